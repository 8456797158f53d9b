"""What measures rows of ``bench/zoo.py``: a process that ``zoo.py`` starts, and replaces where a row breaks it."""
from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from statistics import median
from typing import Any, Sequence

if "CACHE_DIR" not in os.environ: os.environ["CACHE_DIR"] = tempfile.mkdtemp(prefix="ntgrad-bench-")

import measure  # noqa: E402
import numpy as np  # noqa: E402
import zoo_models  # noqa: E402
import zoo_report as report  # noqa: E402
import zoo_rows as zoo  # noqa: E402
import zoo_torch  # noqa: E402

# bench/cuda.py is no package
sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != Path(__file__).resolve().parent]

import ntgrad  # noqa: E402
from ntgrad import Device, Tensor, config  # noqa: E402

CACHE = 128 << 20   # bytes that the sets of inputs of a row have together on a CPU, where that takes at most so many
SETS = 8
BROKEN = 3          # exit code: go on in another process


class TimeOver(BaseException):
  """A row takes too long; no ``except Exception`` on the way may hold it up."""


def over(*_: Any) -> None: raise TimeOver


class Bench:
  """One device, and torch on it."""

  def __init__(self, args: argparse.Namespace, side: zoo_torch.Side | None, reference: dict[str, Any]) -> None:
    self.args, self.side, self.reference, self.on_gpu = args, side, reference, args.device == "CUDA"
    self.middle: Any = min if args.least else median
    self.flush = measure.Flush("CUDA", zoo_torch.FLUSHED) if self.on_gpu else None

  def works(self) -> bool:
    """Whether the device still does: an error of a GPU stays."""
    try:
      if self.side is not None and self.on_gpu: self.side.torch.cuda.synchronize()
      return (Tensor([1.0, 2.0]).realize() + 1).tolist() == [2.0, 3.0]
    except Exception: return False

  def sets(self, row: zoo.Row) -> list[list[np.ndarray[Any, Any]]]:
    """Inputs: on a CPU more than its cache has room for; on a GPU two sets, as its cache is written over before each call."""
    first = zoo.tensors(row, 0)
    n = 2 if self.on_gpu or row.kind.model else min(SETS, max(2, math.ceil(CACHE / max(1, sum(a.nbytes for a in first)))))
    return [first, *[zoo.tensors(row, s) for s in range(1, n)]]

  def ours(self, row: zoo.Row, arrays: Sequence[Sequence[Any]], found: dict[str, Any]) -> tuple[measure.Timer, list[Any]]:
    """A timer of the captured row, and its outputs of the first set of inputs."""
    mine = [[Tensor(a).realize() for a in xs] for xs in arrays]
    for xs in mine: Tensor.realize(*xs)
    measure.synchronize()
    peak = measure.peak_from_here()
    start = time.perf_counter()
    f: Any = ntgrad.jit(built(row))
    outs = f(*mine[0])
    Tensor.realize(*outs)
    measure.synchronize()
    found["first"] = time.perf_counter() - start
    if row.kind.model: results = [outs[0].numpy()]
    for i in range(1, 4): outs = f(*mine[i % len(mine)])
    measure.synchronize()
    found.update(peak=peak(), captured=f.captured, kernels=f.kernels)
    if not row.kind.model: results = [t.numpy() for t in f(*mine[0])]
    del outs
    turn = itertools.count()
    def call() -> Any: return f(*mine[next(turn) % len(mine)])
    host = []
    for _ in range(5):
      start = time.perf_counter()
      out = call()
      host.append(time.perf_counter() - start)
      measure.synchronize()
      del out
    found["host"] = median(host)
    return (measure.timed(self.flush, call) if self.flush is not None else measure.waited(call)), results

  def row(self, row: zoo.Row, found: dict[str, Any]) -> None:
    """Measure a row into ``found``."""
    found["group"] = row.kind.group
    if row.kind.ours is None:
      found["failed"] = "not in the API"
      return
    arrays = self.sets(row)
    mine, results = self.ours(row, arrays, found)
    known = self.reference.get("rows", {}).get(row.name)
    found["ours"] = measure.turns([mine], self.args.seconds / 2, middle=self.middle)[0]   # kept if torch fails
    if self.side is not None and (known is None or self.args.remeasure):
      known = {"measured": True, **self.side.exact(row)}
      self._judge(row, results, known, found)
      known.pop("full", None)
      self.side.clean()
      notes: list[str] = []
      ways, way, theirs = self.side.ways(row, arrays, notes.append)
      # on a CPU the threads of torch's libraries spin for a while after their last call
      pause = 0 if self.on_gpu else 0.1
      found["ours"], seconds = measure.turns([mine, theirs], self.args.seconds, pause=pause, middle=self.middle)
      more: dict[str, Any] = {"notes": notes} if notes else {}
      if self.on_gpu and row.kind.model: more["peak"] = self.side.peak
      found["torch"] = {**known, "seconds": seconds, "way": way, "ways": ways, **more}
    elif known is not None:
      self._judge(row, results, known, found)
      found["torch"] = {k: known[k] for k in ("way", "peak") if k in known}
      seconds = known["seconds"]
    else: return
    found["theirs"] = seconds

  def _judge(self, row: zoo.Row, results: list[Any], known: dict[str, Any], found: dict[str, Any]) -> None:
    found["right"], found["error"], found["torch_error"] = zoo_torch.judge(row, results, known, self.side)


def built(row: zoo.Row) -> Any:
  """What ntgrad computes of a row, as a function of its inputs."""
  if row.kind.model: return zoo_models.ours(row.kind.model, row.sizes, row.dtype)
  return zoo.computed(row.kind)


def told(name: str, found: dict[str, Any]) -> str:
  """A row in a line."""
  if "failed" in found: return f"{name}: FAILED: {found['failed'][:300]}"
  text = f"{name}: {report.time_text(found['ours'])}"
  if found.get("theirs"):
    text += f", torch {report.time_text(found['theirs'])} {found['torch']['way']}, {found['theirs'] / found['ours']:.2f} ×"
  if found.get("right") is False: text += f", WRONG: error {found['error']:.2g}, torch's {found['torch_error']:.2g}"
  return text + ("" if found.get("captured") else ", not captured")


def machine(args: argparse.Namespace, torch: Any) -> dict[str, Any]:
  """The device and versions."""
  if args.device == "CUDA":
    from ntgrad.backends.cuda.driver import available
    there, name = available("CUDA")
    if not there: sys.exit(f"bench: {name}")
  else: name = f"{measure.processor()}, {measure.cores()} cores"
  with_torch = f"torch {torch.__version__}" if torch is not None else "no torch"
  return {"device": name, "versions": f"Python {sys.version.split()[0]}, numpy {np.__version__}, {with_torch}"}


def work(args: argparse.Namespace, rows: dict[str, zoo.Row]) -> int:
  """Measure the rows that are named on standard input."""
  asked = json.load(sys.stdin)
  Device.DEFAULT = args.device
  Tensor.training = True
  torch: Any = None
  if not args.ours_only:
    try: import torch  # noqa: I001
    except ImportError: print("no torch here: its times come from the reference file", flush=True)
  about, out, reference = machine(args, torch), report.Results(args.out), report.load(Path(args.reference))
  side = calibration = None
  if torch is not None:
    compiles = not args.no_compile and (args.remeasure or any(n not in reference.get("rows", {}) for n in asked["rows"]))
    side = zoo_torch.Side(torch, args.device, bool(config.allow_tf32), compiles)
    calibration = side.calibration(min if args.least else median)
    why = "" if args.remeasure else report.refusal(reference, about["device"], calibration)
    if why:
      print(f"@refused {why}", flush=True)
      return 0
  out.about(about, calibration)
  bench = Bench(args, side, reference)
  signal.signal(signal.SIGALRM, over)
  for name in asked["rows"]:
    if time.time() > asked["deadline"]: return BROKEN
    row, found = rows[name], dict[str, Any]()
    print(f"@begin {name}", flush=True)
    limit = args.limit * max(1.0, row.kind.weight / 4)
    code = 0
    try:
      signal.setitimer(signal.ITIMER_REAL, limit)
      try:
        bench.row(row, found)
        if wrong := measure.dropped(): found["failed"] = f"Opts that were chosen do not apply: {wrong[0]}"
      finally: signal.setitimer(signal.ITIMER_REAL, 0)
    except TimeOver:
      found["failed"], code = f"took longer than {limit:g} s" + (" (ours was measured)" if "ours" in found else ""), BROKEN
    except Exception as e:
      found["failed"] = f"{type(e).__name__}: {str(e)[:500]}"
      print(traceback.format_exc(), flush=True)
      code = 0 if bench.works() else BROKEN
    out.add(name, found)
    print(f"{told(name, found)}\n@end {name}", flush=True)
    if code: return code
    measure.kept.clear()
    if side is not None: side.clean()
  return 0


def profile(args: argparse.Namespace, rows: list[zoo.Row]) -> None:
  """Print the kernels of rows, and how long each takes alone."""
  Device.DEFAULT = args.device
  Tensor.training = True
  flush = measure.Flush("CUDA") if args.device == "CUDA" else None
  for row in rows:
    if row.kind.ours is None: continue
    inputs = [Tensor(a).realize() for a in zoo.tensors(row, 0)]
    fn = built(row)
    for _ in range(2): Tensor.realize(*fn(*inputs))   # compiled, and a model's parameters where they stay
    calls = measure.launches(lambda fn=fn, inputs=inputs: Tensor.realize(*fn(*inputs)))
    times: dict[str, list[float]] = {}
    for program, raws in calls:
      if program is None: continue
      def launch(program: Any = program, raws: Any = raws) -> None: program(raws)
      once = measure.timed(flush, launch) if flush is not None else measure.waited(launch)
      once()
      spec = getattr(program, "spec", None)
      times.setdefault(spec.name if spec is not None else type(program).__name__, []).append(median([once() for _ in range(5)]))
    print(f"\n{row.name}: {len(calls)} launches, {report.time_text(sum(map(sum, times.values())))} in kernels")
    for name, some in sorted(times.items(), key=lambda x: -sum(x[1])):
      print(f"  {report.time_text(sum(some)):>10}  {len(some):4} ×  {name}")
    measure.kept.clear()
