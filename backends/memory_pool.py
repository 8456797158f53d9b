"""Memory pools, for devices with memory of their own: a freed allocation is used again for one of about the same size."""
from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Callable

import numpy as np

from ntgrad.codegen.ir import OutOfMemoryError, config

from .base import Device, Raw

reclaimers: list[Callable[[], None]] = []   # called before a pool grows: they free what they hold and do not use
# called when a device has no memory left: they drop what they could make again
relievers: list[Callable[[], object]] = [gc.collect]


class Pooled(Device):
  """A device whose freed memory waits in a pool by size. Its queue or stream is in order, so freed memory may be handed out again
  at once: the launches that still use it come first."""
  unit = 4096        # sizes are multiples of it
  most_pooled = 0    # bytes that may lie unused

  def __init__(self) -> None:
    self._pool = dict[int, list[Raw]]()
    self._lock = threading.RLock()   # of the pool and what is counted; memory may be freed by any thread, at any time

  def forked(self) -> None: self._lock = threading.RLock()   # its holder may be no thread of the fork

  def alloc(self, nbytes: int) -> Raw:
    """An allocation of at least ``nbytes``, from the pool where it has one. Raises OutOfMemoryError."""
    size = bucket(nbytes, self.unit)
    if (raw := self._take(size, nbytes)) is None:
      for reclaim in reclaimers: reclaim()
      raw = self._take(size, nbytes)
    if raw is None: raw = self._take(size, nbytes, from_system(self, size, nbytes, lambda: self._new(size, nbytes)))
    if config.poison: self.copyin(raw, np.full(nbytes, 0xFF, np.uint8))
    return raw

  def _take(self, size: int, nbytes: int, raw: Raw = None) -> Raw:
    """Count an allocation: ``raw``, or one from the pool; None where it has none."""
    with self._lock:
      if raw is None:
        if not (free := self._pool.get(size)): return None
        self.pooled -= size
        raw = free.pop()
      self.allocated += nbytes
      if self.allocated > self.peak: self.peak = self.allocated
      return raw

  def _new(self, size: int, nbytes: int) -> Raw:
    """An allocation of ``size`` bytes, at least of ``nbytes``, from the system. Raises OutOfMemoryError."""
    raise NotImplementedError

  def free(self, raw: Raw, nbytes: int) -> None:
    """Back to the pool; to the system where the pool is full."""
    size = bucket(nbytes, self.unit)
    with self._lock:
      self.allocated -= nbytes
      self._pool.setdefault(size, []).append(raw)
      self.pooled += size
    if self.pooled > self.most_pooled: self.trim()

  def _emptied(self) -> dict[int, list[Raw]]:
    """Empty the pool; gives what was in it."""
    with self._lock: pool, self._pool, self.pooled = self._pool, {}, 0
    return pool


def from_system(device: Device, size: int, nbytes: int, new: Callable[[], Raw]) -> Raw:
  """What ``new`` gives: ``size`` bytes for ``nbytes``. Where there is no memory left, or ``config.memory`` allows no more, it is
  tried again after the device has given unused memory back, and after the relievers. Raises OutOfMemoryError."""
  def attempt() -> Raw:
    if not config.memory or device.allocated + device.pooled + size <= config.memory: return new()
    raise OutOfMemoryError(f"{device.name}: out of memory allocating {nbytes:,} bytes ({device.allocated:,} in use, "
                           f"and MEMORY allows {config.memory:,})")
  for relieve in (), relievers:
    try: return attempt()
    except OutOfMemoryError:
      for f in relieve: f()
      device.trim()
  return attempt()


def host_room(nbytes: int, what: str) -> None:
  """Raises OutOfMemoryError where the host has not as much memory left as ``what`` takes: the system would grant it, and end the
  process when it is used. Little is not looked at."""
  if nbytes >= 1 << 30 and nbytes > (left := host_left()):
    raise OutOfMemoryError(f"{what}: out of memory for {nbytes:,} bytes on the host, which has {left:,} left")


def host_left() -> int:
  """Bytes that the host, or the group of processes that this one is in, has left."""
  left = 1 << 62
  try:
    found = {k: int(v.split()[0]) << 10 for k, v in (line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())}
    left = found["MemAvailable"] + found["SwapFree"]
    most = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    if most.isdigit():
      held = dict(line.split() for line in Path("/sys/fs/cgroup/memory.stat").read_text().splitlines())
      left = min(left, int(most) - int(Path("/sys/fs/cgroup/memory.current").read_text()) + int(held.get("inactive_file", 0)))
  except (OSError, ValueError, KeyError): pass   # another system, or one without groups
  return max(left, 0)


def bucket(nbytes: int, unit: int) -> int:
  """The size that is allocated for ``nbytes``: whole units, eight steps to a doubling, so that near sizes share."""
  if (units := max((nbytes + unit - 1) // unit, 1)) <= 8: return units * unit
  step = 1 << (units.bit_length() - 4)
  return (units + step - 1) // step * step * unit
