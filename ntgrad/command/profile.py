"""``profile``: run a script, and show where its time went."""
from __future__ import annotations

import argparse
import json as json_text
import sys
import time
from contextlib import ExitStack, contextmanager, redirect_stdout
from typing import IO, Any, Iterator, Sequence

from ntgrad.backends.base import Device, ProgramSpec
from ntgrad.codegen.choose.bound import Bound
from ntgrad.engine import report
from ntgrad.engine.profile import Profile

from .parser import add_script, command, run_script


def add(commands: argparse._SubParsersAction[Any]) -> None:
  """``profile``."""
  parser = command(
    commands, "profile", lambda a: profile_script(a.script, a.args, a.json, a.trace),
    "Run a script, and show where its time went. A line a kernel, what lost most first; the exit code is the script's.",
    "profile train.py --epochs 1", "profile --trace out.json train.py")
  parser.add_argument("--trace", metavar="FILE", help="write each launch to a file that chrome://tracing and Perfetto read")
  add_script(parser)


def profile_script(script: str, args: Sequence[str], json: bool = False, trace: str | None = None) -> None:
  """Run a script as ``python script args...`` does, and print what its launches lost when it ends. With ``json`` what the script
  prints goes to standard error. ``trace`` is a file. Raises SystemExit as the script does."""
  p = Profile()
  with ExitStack() as stack:
    if trace is not None: stack.enter_context(_traced(trace))
    stack.callback(lambda: _print(p, json))
    if json: stack.enter_context(redirect_stdout(sys.stderr))
    stack.enter_context(p)
    run_script(script, args)


def _print(p: Profile, json: bool) -> None:
  sys.stderr.flush()
  rows = [{"kernel": r.name, "device": r.device, "sizes": r.sizes, "count": r.count, "seconds": r.seconds, "bound": r.bound,
           "lost": r.lost, "by": r.unit.value} for r in p.rows]
  report.print_now(json_text.dumps({"seconds": p.total, "lost": p.lost, "kernels": rows}, indent=2) if json else str(p))


@contextmanager
def _traced(path: str) -> Iterator[None]:
  """In the block each launch is written to a file, in the format of Chrome's traces: times are µs."""
  began = time.perf_counter()
  file: IO[str]
  def launched(spec: ProgramSpec, device: Device, seconds: float, least: Bound) -> None:
    event = {"name": spec.label, "cat": device.name, "ph": "X", "pid": 0, "tid": 0, "dur": seconds * 1e6,
             "ts": (time.perf_counter() - began - seconds) * 1e6, "args": {"bound": least.seconds, "by": least.unit.value}}
    file.write(f"{json_text.dumps(event)},\n")
  with open(path, "w") as file:
    file.write("[\n")
    report.launch_watchers.append(launched)
    try: yield
    finally:
      report.launch_watchers.remove(launched)
      file.write(f"{json_text.dumps({'name': 'process_name', 'ph': 'M', 'pid': 0, 'args': {'name': 'ntgrad'}})}]\n")
