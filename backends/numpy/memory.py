"""Buffers as the evaluator sees them: bounds, uninitialised elements and races are found at every access."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, NoReturn, Sequence

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]   # of any shape and dtype
Shape = tuple[int, ...]
NOBODY = -1                              # in the place of a program's number


def bits(x: Array) -> Array:
  """The same elements as unsigned integers, so that equal means the same bits."""
  return x.view(f"u{x.dtype.itemsize}") if x.dtype.kind not in "iu" else x


def _first(bad: Array) -> Shape: return tuple(int(i) for i in np.argwhere(bad)[0])


class Programs:
  """Two of the programs that have done something with each element: a first one, and another where there is one."""

  def __init__(self, size: int):
    self.first: Array = np.full(size, NOBODY, np.int64)
    self.second: Array | None = None   # from when there is one

  def add(self, i: Array, who: Array) -> None:
    """Programs ``who`` do it at elements ``i``, which may occur several times."""
    before = self.first[i]
    self.first[i] = np.where(before == NOBODY, who, before)
    if not np.count_nonzero(more := self.first[i] != who): return
    if self.second is None: self.second = np.full(self.first.size, NOBODY, np.int64)
    self.second[i[more]] = who[more]

  def other(self, i: Array, who: Array) -> Array:
    """For each element a program other than ``who`` that has, NOBODY where there is none."""
    first = self.first[i]
    return np.where(first != who, first, NOBODY if self.second is None else self.second[i])


class Tracker:
  """Which program wrote each element last, which read and which updated it, since the last barrier (of global memory: since the
  launch)."""

  def __init__(self, size: int, reads: bool, updates: bool = False):
    self.writer: Array = np.full(size, NOBODY, np.int64)
    self.readers, self.updaters = (Programs(size) if some else None for some in (reads, updates))

  def wrote(self, i: Array, who: Array) -> Array:
    """For each element the program that wrote it last, NOBODY where that is ``who``."""
    last = self.writer[i]
    return np.where(last != who, last, NOBODY)

  def reset(self) -> None:
    """After a barrier everything that others did is visible."""
    self.__init__(self.writer.size, self.readers is not None, self.updaters is not None)  # type: ignore[misc]


@dataclass(eq=False)
class Memory:
  """One param, or one DEFINE_LOCAL of every group or program of the chunk: parts of ``size`` elements each, of which each program
  has the one that begins at its element of ``base``."""

  what: str
  data: Array
  size: int
  fail: Callable[..., NoReturn]   # with a sentence, and of a race the element and what two programs do
  who: Array   # for the tracker: the group number of each program, in memory of a group its number there
  tracker: Tracker | None = None
  base: Array | None = None

  def __post_init__(self) -> None:
    # which elements hold a value; None: all do
    self.written = None if self.base is None else np.zeros(self.data.size, np.bool_)

  def _places(self, verb: str, index: Array, gate: Array | None, count: int = 1) -> tuple[Array, Array | None] | None:
    """Where an access to ``count`` contiguous elements (the last axis) lies in the data, and its gate, None where that is true
    everywhere. None where it is false everywhere. Raises VerifyError for a lane out of bounds that the gate lets through."""
    if gate is not None:
      let = np.count_nonzero(gate)   # a third of the time of any() and all(), which counts where arrays are small
      if not let: return None
      if let == gate.size: gate = None
    if count > 1 and gate is not None and gate.shape[-1] > 1: index, count = index + np.arange(count, dtype=np.intp), 1
    i = index.astype(np.intp)
    low = i.view(np.uintp)  # a negative index is a huge one
    if i.size and int(np.maximum.reduce(low, axis=None)) + count > self.size:
      bad = low > self.size - count if self.size >= count else np.ones_like(low, np.bool_)
      if gate is not None: bad = bad & gate
      if bad.any():
        where = int(np.broadcast_to(i, bad.shape)[_first(bad)])
        self.fail(
          f"{verb} {self.what} at index {where}{'' if count == 1 else f'..{where + count - 1}'}, but its size is {self.size}")
    if gate is not None: i = np.where(gate, i, 0)
    if self.base is not None: i = i + self.base
    if count > 1: i = i + np.arange(count, dtype=np.intp)
    return i, gate

  def load(self, index: Array, count: int, gate: Array | None, other: Array | None) -> Array:
    """``count`` contiguous elements from ``index`` on, in the last axis; ``other``, or else 0, where the gate is false."""
    places = self._places("reads", index, gate, count)
    if other is None and gate is not None: other = np.zeros((1,) * index.ndim, self.data.dtype)
    if places is None: return np.asarray(other)
    i, gate = places
    if self.written is not None:
      empty = ~self.written[i]
      if gate is not None: empty &= gate
      if np.count_nonzero(empty): self.fail(f"reads {self.what} at index {self._of(i, empty)}, which nothing has written")
    if (tracker := self.tracker) is not None and tracker.readers is not None:
      each, who = _pick(_shape(gate, i.shape, self.who.shape), gate, i, self.who)
      self._apart(each, who, "reads", tracker.wrote(each, who), "writes")
      if tracker.updaters is not None: self._apart(each, who, "reads", tracker.updaters.other(each, who), "updates")
      tracker.readers.add(each, who)
    out = self.data[i]
    return out if gate is None or other is None else np.where(gate, out, other)

  def _of(self, i: Array, bad: Array) -> int: return int(i[_first(bad)]) % max(self.size, 1)

  def _apart(self, i: Array, who: Array, verb: str, other: Array, does: str, differs: Array | bool = True) -> None:
    """Raise RaceError where a program ``other`` does something with an element that ``who`` must be alone with."""
    if not np.count_nonzero(bad := (other != NOBODY) & differs): return
    k, at = _first(bad), self._of(i, bad)
    how = f"in one program and {does} it in another" if verb != does else "with different values in two programs"
    self.fail(f"{verb} {self.what} at index {at} {how}: a race", at, (verb, int(who[k])), (does, int(other[k])))

  def store(self, index: Array, count: int, value: Array, gate: Array | None) -> None:
    """Write ``value`` to ``count`` contiguous elements from ``index`` on."""
    if (places := self._places("writes", index, gate, count)) is None: return
    (i, gate), tracker = places, self.tracker
    each = tracker is not None and (tracker.readers or tracker.updaters)
    # who reads back what it wrote must be known program by program
    shape = _shape(gate, i.shape, value.shape, self.who.shape if each else ())
    # of what does not vary along an axis, all write the same there
    who = self.who if each else self.who[tuple(slice(0, 1) if n == 1 else slice(None) for n in shape[:-1])]
    i, value, who = _pick(shape, gate, i, value, who)
    new = bits(value)
    if tracker is not None:
      differs = bits(self.data[i]) != new
      if tracker.readers is not None: self._apart(i, who, "writes", tracker.readers.other(i, who), "reads", differs)
      if tracker.updaters is not None: self._apart(i, who, "writes", tracker.updaters.other(i, who), "updates")
      self._apart(i, who, "writes", tracker.wrote(i, who), "writes", differs)
      tracker.writer[i] = who
    self.data[i] = value
    if self.written is not None: self.written[i] = True
    if (tracker is not None or i.size > 1 and self.base is None) and np.count_nonzero(differs := bits(self.data[i]) != new):
      self._apart(i, who, "writes", who if tracker is None else tracker.writer[i], "writes", differs)

  def atomic(self, how: str, index: Array, value: Array, gate: Array | None, programs: Shape, compared: Sequence[Array] = (),
             asked: bool = False) -> Array:
    """``data[index] = fn(data[index], value)`` for one program after another, also where they have the same index and value.
    Gives what was there where that is ``asked``, 0 where the gate is false."""
    found = np.zeros(programs + (1,) if asked else 1, self.data.dtype)
    if (places := self._places("updates", index, gate)) is None: return found
    i, gate = places
    shape = _shape(gate, i.shape, value.shape, programs + (1,))
    i, value, who, *compared = _pick(shape, gate, i, value, self.who, *compared)
    if (tracker := self.tracker) is not None and tracker.updaters is not None:
      self._apart(i, who, "updates", tracker.wrote(i, who), "writes")
      if tracker.readers is not None: self._apart(i, who, "updates", tracker.readers.other(i, who), "reads")
      tracker.updaters.add(i, who)
    if how not in ("cas", "xchg") and not asked and self.data.dtype.kind in "iuf":
      _ATOMICS[how].at(self.data, i, value)
      return found
    old, data = np.empty(i.size, self.data.dtype), self.data
    wide = data.dtype if data.dtype.kind in "iuf" else np.float32   # the narrow floats of ml_dtypes
    for n, (k, v) in enumerate(zip(i, value)):
      old[n] = data[k]
      if how not in ("cas", "xchg"): data[k] = _ATOMICS[how](data[k].astype(wide), v.astype(wide)).astype(data.dtype)
      elif how == "xchg" or data[k] == compared[0][n]: data[k] = v
    if asked: found[... if gate is None else np.broadcast_to(gate, shape)] = old.reshape(shape) if gate is None else old
    return found


_ATOMICS = {"add": np.add, "max": np.maximum, "min": np.minimum,
            "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


def _shape(gate: Array | None, *shapes: Shape) -> Shape: return np.broadcast_shapes(*shapes, () if gate is None else gate.shape)


def _pick(shape: Shape, gate: Array | None, *xs: Array) -> list[Array]:
  """The elements that an access of a shape really uses, flat."""
  live = None if gate is None else np.broadcast_to(gate, shape)
  whole = [x if x.shape == shape else np.broadcast_to(x, shape) for x in xs]
  return [x.reshape(-1) if live is None else x[live] for x in whole]
