"""Trying candidates on a device: each runs on memory of its own, is compared with a first one's results, and is timed.

Both tuners use it: that of the tile language's block sizes, and the search for Opts (``BEAM``).
"""
from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Callable, Iterator, Sequence

import numpy as np

from ntgrad.backends import workers as pool
from ntgrad.backends.base import Device, Program, Specs
from ntgrad.backends.process import uninterrupted
from ntgrad.codegen.ir import ArgumentError, DType, NtgradError, config

REPEATS = 5                   # launches of each candidate, as far as TRIAL seconds go
TRIAL = 0.5                   # seconds of launches of a candidate
PIECES = 64                   # pieces of a large result that are compared
PIECE = 65536                 # elements of a piece
HOPELESS = 3.0                # a first launch so many times slower than the best is not repeated


@dataclass(frozen=True)
class CandidateMemory:
  """What a candidate gets for a param: its number of bytes and dtype, memory that it may read, and whether it writes (then a
  copy)."""
  nbytes: int
  dtype: DType
  raw: Any
  written: bool


@dataclass(eq=False)
class Bench:
  """Measures candidates that take the same memory."""
  device: Device
  memory: Sequence[CandidateMemory]
  want: list[np.ndarray] | None = None
  best: float = float("inf")

  def results(self, raws: Sequence[Any]) -> list[np.ndarray]:
    """What a trial wrote."""
    return [self.device.copyout(raw, m.nbytes).view(np.dtype(m.dtype.np)) for m, raw in zip(self.memory, raws) if m.written]

  @contextmanager
  def trial(self) -> Iterator[list[Any]]:
    """Raw memory for a trial: what is only read is shared, copies are given back."""
    raws: list[Any] = []
    try:
      for m in self.memory:
        raws.append(self.device.alloc(max(m.nbytes, 1)) if m.written else m.raw)
        if m.written and m.nbytes: self.device.copyin(raws[-1], self.device.copyout(m.raw, m.nbytes))
      yield raws
    finally:
      self.device.synchronize()
      for m, raw in zip(self.memory, raws):
        if m.written: self.device.free(raw, max(m.nbytes, 1))

  def reference(self, program: Program) -> None:
    """What this program computes is right."""
    with self.trial() as raws:
      program(raws)
      self.want = self.results(raws)

  def measure(self, program: Program) -> float:
    """Median seconds of a candidate. Raises ArgumentError where its results are others, and whatever its launch raises."""
    program.optimised()
    with self.trial() as raws:
      first = program(raws, True) or 0.0
      for got, want in zip(self.results(raws), self.want or ()): compare(got, want)
      if first > HOPELESS * self.best: return first
      repeats = REPEATS if first * REPEATS <= TRIAL else max(1, int(TRIAL / first))
      seconds = float(np.median([program(raws, True) or 0.0 for _ in range(repeats)]))
      self.best = min(self.best, seconds)
      return seconds


def compare(got: np.ndarray, want: np.ndarray) -> None:
  """Raise ArgumentError where results (flat) differ by more than another order of additions does; large ones are compared in
  pieces."""
  if got.size > PIECES * PIECE:
    starts = np.linspace(0, got.size - PIECE, PIECES).astype(np.int64)
    got, want = (np.concatenate([x[i:i + PIECE] for i in starts]) for x in (got, want))
  a, b = got.astype(np.float64), want.astype(np.float64)
  greatest = float(np.max(np.abs(b), initial=0.0, where=np.isfinite(b)))
  close = np.isclose(a, b, rtol=2e-2 if got.dtype.itemsize < 4 else 1e-3, atol=1e-3 * max(1.0, greatest), equal_nan=True)
  if not close.all(): raise ArgumentError(f"{(~close).sum()} of {close.size} results differ from the reference kernel's")


@contextmanager
def kept_on_interrupt(timed: Sequence[tuple[float, Any]], interrupted: Callable[[Any], None]) -> Iterator[None]:
  """Where Ctrl-C ends the block, ``interrupted`` gets the fastest of what was ``timed``, if there is something."""
  try: yield
  except KeyboardInterrupt:
    if timed: interrupted(min(timed, key=lambda t: t[0])[1])
    raise


def candidates_of(device: Device, specs: Specs) -> list[Program]:
  """Programs that are to be measured: each is optimised at once."""
  with config(tiers=0): return device.compile(specs)


def compiled_in_time(programs: Sequence[Program], seconds: float, apart: bool = False) -> list[bool]:
  """Compile programs before measuring, for which a CPU must have nothing else to do; which of them are there within so many
  seconds. Errors are left until a program is measured. Worker processes help; ``apart``: only they compile, and what one is at
  when the time is over is dropped."""
  ends, apart = time.perf_counter() + seconds, apart and bool(sys.executable)
  jobs = [j if isinstance(j := getattr(p, "unit", None), pool.Job) else None for p in programs]
  if apart: build_apart([j for j in jobs if j is not None], seconds)
  out = []
  for p, j in zip(programs, jobs):
    there = j is None if apart else time.perf_counter() < ends
    if not there and j is not None:   # a worker may have it, or one that was built with it
      with pool.changed: there = _built(j)
    out.append(there)
    if there:
      with suppress(NtgradError): p.ready()
  return out


def _built(job: pool.Job) -> bool:
  """Whether nothing is left but to take what a worker made of a job, or said of it."""
  return job.done or not job.taken and (job.answer is not None or job.refused != "")


def build_apart(jobs: Sequence[pool.Job], seconds: float) -> None:
  """Build jobs in processes of their own, which are ended after so many seconds, whatever they are at: a compiler that runs in
  this process cannot be stopped. What others have begun to build already is waited for."""
  ends = time.monotonic() + seconds
  with pool.changed:
    todo = [j for j in dict.fromkeys(jobs) if not _built(j) and not j.taken]
    for j in todo: j.here = j.taken = True   # no other worker begins it
  waiting = todo[::-1]
  workers: list[pool.Worker] = []

  def drive(worker: pool.Worker) -> None:
    how = ""
    while how != "lost":
      with pool.changed:
        if not waiting: break
        job = waiting.pop()
      how, what = worker.ask(job.settings, job.work())
      with pool.changed:
        if how == "made": job.answer = what
        elif how == "refused": job.refused = what
        job.taken = False
        pool.changed.notify_all()

  try:
    with uninterrupted():
      for _ in range(min(len(todo), pool.size())): workers.append(pool.Worker())
    threads = [threading.Thread(target=drive, args=(w,), name="ntgrad-apart", daemon=True) for w in workers]
    for t in threads: t.start()
    def over() -> bool: return not any(j.taken for j in jobs) or not any(t.is_alive() for t in threads)
    with pool.changed: pool.changed.wait_for(over, max(ends - time.monotonic(), 0.0))
  finally:
    with pool.changed: waiting.clear()
    for w in workers: w.kill()
    for w in workers: w.end()
    with pool.changed:
      for j in todo: j.taken = False
      pool.changed.notify_all()
