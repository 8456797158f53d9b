"""What the benchmarks measure with: clocks of both kinds of device, turns, launches one by one, memory, and the machine in words.

For ``bench/cpu.py``, ``bench/cuda.py``, ``bench/first_hour.py`` and ``bench/zoo.py``. Nothing here needs torch.
"""
from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, Callable

from ntgrad import Device
from ntgrad.backends.process import cores  # noqa: F401 (for the others)
from ntgrad.codegen.choose.candidates import refusals
from ntgrad.engine import planner, realize as engine
from ntgrad.engine.device import get_device
from ntgrad.utils.command.about import cpu as processor  # noqa: F401

FLUSH = 256 << 20       # bytes written before each timed call on a GPU: more than an L2 cache
BLOCK = 5               # timed calls of one side, at least, before the other has its turn
WARM = 4e-3             # seconds of calls that do not count after a pause: caches, and the clocks of a core that slept
kept: list[Any] = []    # memory of the launches that are repeated

Timer = Callable[[], float]


# ---- a GPU's clock

class Flush:
  """Writes over the L2 cache."""

  def __init__(self, name: str = "CUDA", nbytes: int = FLUSH) -> None:
    self.device: Any = get_device(name)
    self.nbytes = nbytes
    self.raw = self.device.alloc(nbytes)
  def __call__(self) -> None: self.device.driver.cuMemsetD8Async(self.raw, 0, self.nbytes, self.device.stream.handle)


def timed(flush: Flush, fn: Callable[[], Any]) -> Timer:
  """Seconds on the device of what a call launches."""
  device = flush.device
  def once() -> float:
    flush()
    start = device.clock.record()
    out = fn()
    end = device.clock.record()
    end.sync()
    took = float(end - start) * 1e-3
    for e in (start, end): device.clock.give(e)
    del out
    return took
  return once


# ---- a CPU's

def synchronize() -> None:
  """Wait for everything that was launched on the default device."""
  get_device(Device.DEFAULT).synchronize()


def dropped() -> list[str]:
  """What the choosers chose and kernels refused, since the last call: a defect, whatever the times are."""
  found = list(map(str, refusals))
  refusals.clear()
  for r in found: print(f"FAILED: Opts that were chosen do not apply: {r}", flush=True)
  return found


def seconds(fn: Callable[[], Any]) -> float:
  """How long one call takes."""
  start = time.perf_counter()
  out = fn()
  took = time.perf_counter() - start
  del out
  return took


def waited(fn: Callable[[], Any]) -> Timer:
  """Seconds of a call until the default device has done it."""
  def call() -> Any:
    out = fn()
    synchronize()
    return out
  return lambda: seconds(call)


# ---- turns

def turns(sides: list[Timer], budget: float = 1.0, least: int = 3, most: int = 30, pause: float = 0.0,
          middle: Callable[[list[float]], float] = median) -> list[float]:
  """The median seconds of each side, in blocks that take turns; about ``budget`` seconds a side.

  A turn begins with a call that does not count; after a ``pause``, with calls for ``WARM`` seconds. The sides have been called
  before.
  """
  times: list[list[float]] = [[] for _ in sides]
  end = time.perf_counter() + budget * len(sides)
  while len(times[0]) < most and (time.perf_counter() < end or len(times[0]) < least):
    for side, mine in zip(sides, times):
      if pause: time.sleep(pause)
      first, warm = side(), time.perf_counter() + (WARM if pause else 0.0)
      while time.perf_counter() < warm: first = side()
      block = BLOCK if first * BLOCK * 4 < budget else 1
      mine += [side() for _ in range(block)] if first < 2 * budget else [first]
  return [middle(t) if t else math.nan for t in times]


# ---- launches

def launches(fn: Callable[[], Any]) -> list[tuple[Any, list[Any]]]:
  """The programs that a call launches, each with its memory (which stays allocated)."""
  found: list[tuple[Any, list[Any]]] = []
  def note(step: Any, buffers: Any) -> None:
    kept.append(list(buffers))
    found.append((step.program, [b.raw for b in buffers]))
  engine.captures.append(note)
  try: kept.append(fn())
  finally: engine.captures.remove(note)
  return found


@contextmanager
def compiled() -> Iterator[dict[str, int]]:
  """How many programs are compiled and plans are made in the block."""
  found, device, make = {"programs": 0, "plans": 0}, get_device("CPU"), planner.make_plan
  build = device.compile
  def counting_build(specs: Any) -> Any:
    found["programs"] += len(specs)
    return build(specs)
  def counting_make(*args: Any) -> Any:
    found["plans"] += 1
    return make(*args)
  device.compile, planner.make_plan = counting_build, counting_make  # type: ignore[method-assign, assignment]
  try: yield found
  finally:
    del device.compile
    planner.make_plan = make


# ---- memory

def peak_from_here() -> Callable[[], int]:
  """A function that says how many bytes the engine has held at most on the default device since, beyond what it holds now."""
  Device.reset_peak()
  before = Device.memory().allocated
  return lambda: Device.memory().peak - before


# ---- the machine

def load() -> float:
  """What else runs here: processes in the last minute."""
  return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
