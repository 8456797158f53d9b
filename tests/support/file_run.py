"""Files read in a process of their own, one after the other: what came of each, how long it took, how much memory.

  python -m support.file_run       reads lines "kind<tab>path" and answers each with a line of JSON
"""
from __future__ import annotations

import gc
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SECONDS, MIB = 1.0, 64.0   # a file may take so long, and so much memory above its own size
_PATIENCE = 30.0           # seconds until the process is ended
sys.path[:0] = [str(p) for p in (ROOT, ROOT / "tests") if str(p) not in sys.path]

from support.file_cases import Case, place, read, safetensors  # noqa: E402


class Result(NamedTuple):
  """What came of a file: ``refused`` by an error of ntgrad, ``read``, or something that should not be."""
  case: Case
  what: str
  said: str
  seconds: float
  mib: float

  def wrong(self, seconds: float = SECONDS, mib: float = MIB) -> str:
    """What is wrong with it, or nothing."""
    if self.what not in ("refused", "read"): return f"{self.what}: {self.said}"
    if self.case.refused and self.what == "read": return "it was not refused"
    if self.what == "refused" and (not self.said or len(self.said) > 2000): return f"the message has {len(self.said)} characters"
    if self.seconds > seconds: return f"it took {self.seconds:.2f} s"
    return f"it took {self.mib:.0f} MiB above its {len(self.case.data) / 2 ** 20:.1f}" if self.mib > mib else ""


class _Child:
  """The process that reads."""
  def __init__(self) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    self.process = subprocess.Popen([sys.executable, "-m", "support.file_run"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                    stderr=subprocess.DEVNULL, env=env, text=True, bufsize=1)
  def ask(self, line: str) -> dict[str, Any]:
    """The answer to a line; of a process that ends or is silent, what happened."""
    assert self.process.stdin and self.process.stdout
    try:
      print(line, file=self.process.stdin, flush=True)
      if not select.select([self.process.stdout], [], [], _PATIENCE)[0]:
        self.end()
        return {"what": f"no end in {_PATIENCE:.0f} s", "said": "", "seconds": _PATIENCE, "mib": 0.0}
      if answer := self.process.stdout.readline(): return dict(json.loads(answer))
    except OSError: pass
    return {"what": f"the process ended with {self.process.wait()}", "said": "", "seconds": 0.0, "mib": 0.0}
  def end(self) -> None:
    self.process.kill()
    self.process.wait()


def results(cases: Iterable[Case]) -> Iterator[Result]:
  """Read each file, all in one process as long as it lives."""
  child = _Child()
  for case in cases:
    folder = Path(tempfile.mkdtemp())
    try:
      if case.kind == "index.json": (folder / "a.safetensors").write_bytes(_WEIGHTS)
      answer = child.ask(f"{case.kind}\t{place(case.kind, folder, case.data)}")
    finally: shutil.rmtree(folder)
    yield Result(case, **answer)
    if child.process.poll() is not None: child = _Child()
  child.end()


_WEIGHTS = safetensors({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, bytes(8))


def _memory(what: str) -> int:
  """A line of the process's status, in KiB."""
  return int(next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(what)).split()[1])


def _tried(kind: str, path: Path) -> dict[str, Any]:
  from ntgrad.errors import NtgradError
  size = path.stat().st_size
  gc.collect()
  before = _memory("VmRSS")
  with suppress(OSError): Path("/proc/self/clear_refs").write_text("5")   # the peak begins anew
  begun = time.process_time()   # others may be busy on the machine
  try:
    read(kind, path)
    what, said = "read", ""
  except NtgradError as e: what, said = "refused", str(e)
  except BaseException as e: what, said = f"another error, {type(e).__name__}", str(e)[:300]
  seconds = time.process_time() - begun
  return {"what": what, "said": said[:4000], "seconds": seconds, "mib": (_memory("VmHWM") - before) / 1024 - size / 2 ** 20}


def main() -> None:
  """Answer lines."""
  out = os.fdopen(os.dup(1), "w")
  os.dup2(2, 1)   # what is printed meanwhile is no answer
  from support.file_cases import KINDS, whole
  for kind in KINDS:   # imports, and what is built once, are no part of what a file takes
    folder = Path(tempfile.mkdtemp())
    if kind == "index.json": (folder / "a.safetensors").write_bytes(_WEIGHTS)
    read(kind, place(kind, folder, whole(kind)))
    shutil.rmtree(folder)
  for line in sys.stdin:
    kind, path = line.rstrip("\n").split("\t")
    print(json.dumps(_tried(kind, Path(path))), file=out, flush=True)


if __name__ == "__main__": main()
