"""Buffers as the evaluator sees them: bounds, uninitialised elements and races are found at every access."""
from __future__ import annotations

from typing import Any, Callable, NoReturn

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
NOBODY, SEVERAL = -1, -2


def bits(x: Array) -> Array:
  """The same elements as unsigned integers, so that equal means the same bits."""
  return x.view(f"u{x.dtype.itemsize}") if x.dtype.kind not in "iu" else x


def _first(bad: Array) -> tuple[int, ...]: return tuple(int(i) for i in np.argwhere(bad)[0])


class Tracker:
  """Who wrote and who read each element since the last barrier (of global memory: since the launch)."""

  def __init__(self, size: int, reads: bool):
    self.writer: Array = np.full(size, NOBODY, np.int64)
    self.reader: Array | None = np.full(size, NOBODY, np.int64) if reads else None

  def reset(self) -> None:
    """After a barrier everything that others did is visible."""
    self.writer.fill(NOBODY)
    if self.reader is not None: self.reader.fill(NOBODY)


class Memory:
  """One param, or one DEFINE_LOCAL of every group or work-item of the chunk (parts of ``size`` elements each)."""

  def __init__(self, what: str, data: Array, size: int, fail: Callable[[str], NoReturn], tracker: Tracker | None = None,
               written: Array | None = None):
    self.what, self.data, self.size, self.fail, self.tracker = what, data, size, fail, tracker
    self.written = written  # which elements hold a value; None: all do

  def check(self, verb: str, index: Array, gate: Array | None, count: int) -> Array:
    """The index as intp. Raises VerifyError where a lane that the gate lets through is out of bounds."""
    i = index.astype(np.intp)
    if i.size == 0: return i
    low = i.view(np.uintp)  # a negative index is a huge one
    if int(low.max()) + count > self.size:
      bad = low > self.size - count if self.size >= count else np.ones_like(low, np.bool_)
      if gate is not None: bad = bad & gate
      if bad.any():
        wide = np.broadcast_to(i, bad.shape)
        where = int(wide[_first(bad)])
        many = "" if count == 1 else f"..{where + count - 1}"
        self.fail(f"{verb} {self.what} at index {where}{many}, but its size is {self.size}")
    return i

  def load(
    self, index: Array, count: int, gate: Array | None, other: Array | None, base: Array | None, who: Array | None
  ) -> Array:
    """Elements at ``base + index``; ``count`` contiguous ones in the last axis."""
    if gate is not None:
      if not gate.any():
        shape = np.broadcast_shapes(index.shape, gate.shape)
        return np.zeros(shape[:-1] + (count,), self.data.dtype) if other is None else other
      if gate.all():
        gate = None
    if count > 1 and gate is not None and gate.shape[-1] > 1:
      index, count = index + np.arange(count, dtype=np.intp), 1
    i = self.check("reads", index, gate, count)
    if gate is not None:
      i = np.where(gate, i, 0)
    if base is not None:
      i = i + base
    if count > 1:
      i = i + np.arange(count, dtype=np.intp)
    if self.written is not None:
      empty = ~self.written[i]
      if gate is not None:
        empty &= gate
      if empty.any():
        self.fail(f"reads {self.what} at index {self._of(i, _first(empty))}, which nothing has written")
    if self.tracker is not None and self.tracker.reader is not None and who is not None:
      self._reading(self.tracker, i, gate, who)
    out = self.data[i]
    if gate is None:
      return out
    return np.asarray(np.where(gate, out, np.zeros(1, out.dtype) if other is None else other))

  def _of(self, i: Array, at: tuple[int, ...]) -> int: return int(i[at]) % max(self.size, 1)

  def _reading(self, tracker: Tracker, i: Array, gate: Array | None, who: Array) -> None:
    shape = np.broadcast_shapes(i.shape, who.shape, () if gate is None else gate.shape)
    i, who = np.broadcast_to(i, shape), np.broadcast_to(who, shape)
    if gate is not None:
      live = np.broadcast_to(gate, shape)
      i, who = i[live], who[live]
    assert tracker.reader is not None
    wrote = tracker.writer[i]
    bad = (wrote != NOBODY) & (wrote != who)
    if bad.any():
      self.fail(f"reads {self.what} at index {self._of(i, _first(bad))} in one program and writes it in another: a race")
    before = tracker.reader[i]
    after = np.where((before == NOBODY) | (before == who), who, SEVERAL)
    tracker.reader[i] = after
    tracker.reader[i[tracker.reader[i] != after]] = SEVERAL

  def store(self, index: Array, count: int, value: Array, gate: Array | None, base: Array | None, who: Array | None) -> None:
    """Write ``value`` at ``base + index``, ``count`` contiguous elements."""
    if gate is not None:
      if not gate.any(): return
      if gate.all(): gate = None
    if count > 1 and gate is not None and gate.shape[-1] > 1:
      index, count = index + np.arange(count, dtype=np.intp), 1
    i = self.check("writes", index, gate, count)
    if base is not None: i = i + base
    if count > 1: i = i + np.arange(count, dtype=np.intp)
    reader = None if self.tracker is None else self.tracker.reader
    shapes = [i.shape, value.shape] + ([] if gate is None else [gate.shape])
    # who reads back what it wrote must be known program by program
    if who is not None and reader is not None: shapes.append(who.shape)
    shape = np.broadcast_shapes(*shapes)
    live = None if gate is None else np.broadcast_to(gate, shape)
    i, value = _pick(i, shape, live), _pick(value, shape, live)
    new = bits(value)
    if who is not None and self.tracker is not None:
      who = _pick(who if reader is not None else _thin(who, shape), shape, live)
      differs = bits(self.data[i]) != new
      if reader is not None:
        read = reader[i]
        bad = (read != NOBODY) & (read != who) & differs
        if bad.any():
          self.fail(f"writes {self.what} at index {self._of(i, _first(bad))} in one program and reads it in another: a race")
      wrote = self.tracker.writer[i]
      bad = (wrote != NOBODY) & (wrote != who) & differs
      if bad.any(): self._race(i, bad)
      self.tracker.writer[i] = who
    self.data[i] = value
    if self.written is not None: self.written[i] = True
    if self.tracker is not None or (i.size > 1 and base is None):
      lost = bits(self.data[i]) != new
      if lost.any(): self._race(i, lost)

  def atomic(self, how: str, index: Array, value: Array, gate: Array | None, programs: tuple[int, ...]) -> None:
    """``data[index] = fn(data[index], value)`` for one program after another; each program has its turn, also where it asks for
    the same."""
    if gate is not None and not gate.any(): return
    i = self.check("updates", index, gate, 1)
    shape = np.broadcast_shapes(i.shape, value.shape, programs + (1,), () if gate is None else gate.shape)
    live = None if gate is None else np.broadcast_to(gate, shape)
    i, value = _pick(i, shape, live), _pick(value, shape, live)
    fn = {"add": np.add, "max": np.maximum, "min": np.minimum}[how]
    if self.data.dtype.kind in "iuf": fn.at(self.data, i, value)
    else:  # the narrow floats of ml_dtypes
      for k, v in zip(i, value): self.data[k] = fn(self.data[k].astype(np.float32), v.astype(np.float32)).astype(self.data.dtype)

  def _race(self, i: Array, bad: Array) -> NoReturn:
    self.fail(f"writes {self.what} at index {self._of(i, _first(bad))} with different values in two programs: a race")


def _pick(x: Array, shape: tuple[int, ...], live: Array | None) -> Array:
  """The elements that a store really writes, flat."""
  x = np.broadcast_to(x, shape)
  return x.reshape(-1) if live is None else x[live]


def _thin(who: Array, shape: tuple[int, ...]) -> Array:
  """``who`` of the first program along the axes that a store does not depend on (all write the same there)."""
  return who[tuple(slice(0, 1) if n == 1 else slice(None) for n in shape[:-1])]
