"""``profile``: run a script, and show where its time and its memory went."""
from __future__ import annotations

import argparse
import json as json_text
import sys
from contextlib import ExitStack, redirect_stdout
from typing import Any, Sequence

from ntgrad.engine.profiling import Profile
from ntgrad.engine.report import print_now

from .parser import add_script, command, run_script


def add(commands: argparse._SubParsersAction[Any]) -> None:
  """``profile``."""
  parser = command(
    commands, "profile", lambda a: profile_script(a.script, a.args, a.json, a.trace),
    "Run a script, and show where its time and its memory went: by kind, by line, by Module, by kernel, with advice at the end. "
    "The exit code is the script's.", "profile train.py --epochs 1", "profile --trace out.json train.py")
  parser.add_argument("--trace", metavar="FILE", help="write what happened to a file that Perfetto and chrome://tracing read")
  add_script(parser)


def profile_script(script: str, args: Sequence[str], json: bool = False, trace: str | None = None) -> None:
  """Run a script as ``python script args...`` does, and print where its time went when it ends. With ``json`` what the script
  prints goes to standard error. ``trace`` is a file. Raises SystemExit as the script does."""
  p = Profile()
  if trace is not None: open(trace, "w").close()   # what cannot be written is told before it runs
  with ExitStack() as stack:
    stack.callback(lambda: _tell(p, json, trace))
    if json: stack.enter_context(redirect_stdout(sys.stderr))
    stack.enter_context(p)
    run_script(script, args)


def _tell(p: Profile, json: bool, trace: str | None) -> None:
  sys.stderr.flush()
  if trace is not None: p.trace(trace)
  print_now(json_text.dumps(p.data(), indent=2) if json else str(p))
