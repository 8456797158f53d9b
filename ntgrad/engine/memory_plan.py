"""Memory of schedules: an order of the kernels that holds few buffers at a time, and places for buffers of captured kernels."""
from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import accumulate
from typing import Hashable, Mapping, NamedTuple, Sequence

PIECE_ALIGN_BYTES = 512   # bytes; the strictest device asks that much of a piece of a buffer


class Lifetime(NamedTuple):
  """A buffer of ``nbytes`` that is needed from step ``first`` to step ``last``, both included."""
  first: int
  last: int
  nbytes: int


def arrange(lifetimes: Sequence[Lifetime], rooms: Sequence[Lifetime] = ()) -> tuple[tuple[int, ...], int]:
  """An offset for each buffer, and the bytes that all of them take. Buffers that overlap in time do not overlap in memory.
  Largest first, each into the smallest gap that holds it between those placed before that live at the same time; every offset is
  a multiple of ``PIECE_ALIGN_BYTES``. ``rooms`` is other memory, in which buffers may lie before it is needed itself; it counts
  as the first bytes, as :func:`room_begins` says."""
  offsets = [0] * len(lifetimes)
  taken = _Taken([*lifetimes, *rooms])
  begins, steps = room_begins(rooms), taken.leaf.keys()
  for x, begin, following in zip(rooms, begins, begins[1:]):   # no buffer lies in two of them
    taken.add(x, begin, following)
    taken.add(Lifetime(min(steps), max(steps), 0), following - PIECE_ALIGN_BYTES, following)
  total = begins[-1]
  for i, x in sorted(enumerate(lifetimes), key=lambda each: (-each[1].nbytes, each[1].first)):
    size = rounded(x.nbytes)
    gaps, end = list[tuple[int, int]](), 0   # that hold it
    for start, stop in taken.during(x):
      if start - end >= size: gaps.append((start - end, end))
      end = max(end, stop)
    offsets[i] = begin = min(gaps)[1] if gaps else end
    total = max(total, begin + size)
    taken.add(x, begin, begin + size)
  return tuple(offsets), total


def room_begins(rooms: Sequence[Lifetime]) -> list[int]:
  """Where each room begins for :func:`arrange`, and where memory does that is none of them."""
  return [*accumulate([x.nbytes // PIECE_ALIGN_BYTES * PIECE_ALIGN_BYTES + PIECE_ALIGN_BYTES for x in rooms], initial=0)]


@dataclass(slots=True)
class _Ranges:
  """Ranges of bytes, by offset; those that touch are one."""
  starts: list[int] = field(default_factory=list)
  stops: list[int] = field(default_factory=list)

  def add(self, start: int, stop: int) -> None:
    i, j = bisect_left(self.stops, start), bisect_right(self.starts, stop)
    if i < j: start, stop = min(start, self.starts[i]), max(stop, self.stops[j - 1])
    self.starts[i:j], self.stops[i:j] = [start], [stop]


class _Taken:
  """Which bytes are taken at which steps: a segment tree over the steps, so that what lives at the same time is found without
  looking at all."""

  def __init__(self, lifetimes: Sequence[Lifetime]):
    steps = sorted({s for x in lifetimes for s in (x.first, x.last)})
    # the root is node 1, n has 2n and 2n + 1
    self.leaf = {step: i for i, step in enumerate(steps, start=1 << len(steps).bit_length())}
    self.whole: dict[int, _Ranges] = {}    # of a node of the tree: taken during all of its steps
    self.partly: dict[int, _Ranges] = {}   # taken during one of its steps at least

  def _nodes(self, x: Lifetime) -> tuple[list[int], set[int]]:
    """The largest nodes that a lifetime is made of, and those from its first and last step up to the root."""
    i, j = self.leaf[x.first], self.leaf[x.last] + 1
    above = {n >> k for n in (i, j - 1) for k in range(n.bit_length())}
    parts = []
    while i < j:
      if i & 1: parts.append(i)
      if j & 1: parts.append(j - 1)
      i, j = i + 1 >> 1, j >> 1
    return parts, above

  def add(self, x: Lifetime, start: int, stop: int) -> None:
    parts, above = self._nodes(x)
    for n in parts: self.whole.setdefault(n, _Ranges()).add(start, stop)
    for n in above.union(parts): self.partly.setdefault(n, _Ranges()).add(start, stop)

  def during(self, x: Lifetime) -> list[tuple[int, int]]:
    """The ranges taken at any step of a lifetime, by offset."""
    parts, above = self._nodes(x)
    found = [*map(self.partly.get, parts), *map(self.whole.get, above)]
    return sorted({pair for r in found if r is not None for pair in zip(r.starts, r.stops)})


def rounded(nbytes: int) -> int:
  """The next multiple of ``PIECE_ALIGN_BYTES``."""
  return -(-max(nbytes, 1) // PIECE_ALIGN_BYTES) * PIECE_ALIGN_BYTES


class MemoryUse(NamedTuple):
  """What one step touches: all its buffers, and those among them that it writes."""
  buffers: tuple[Hashable, ...]
  writes: tuple[Hashable, ...]


def order(steps: Sequence[MemoryUse], sizes: Mapping[Hashable, int]) -> list[int]:
  """The steps in an order with a low peak: as given, or always the step that leaves least allocated (weight gradients before the
  next layer's). ``sizes`` has the bytes of the buffers that the schedule makes and gives back. A step stays after those that
  write what it touches, and after those that read what it writes."""
  after, before = dependencies(steps)
  touched = [dict.fromkeys(s.buffers) for s in steps]
  waiting = list(map(len, after))
  users: dict[Hashable, list[int]] = {b: [] for b in sizes}
  for i, buffers in enumerate(touched):
    for b in buffers:
      if b in sizes: users[b].append(i)
  left = {b: len(u) for b, u in users.items()}
  # bytes that a step would allocate for good, were it the next: what nobody has touched yet, less what nobody touches after it
  growth = [sum(sizes[b] for b in buffers if b in sizes and left[b] > 1) for buffers in touched]
  # with its growth then; entries of steps that have run since are passed over
  ready = [(growth[i], i) for i, n in enumerate(waiting) if not n]
  heapify(ready)
  out: list[int] = []
  ran = [False] * len(steps)
  while ready:
    known, best = heappop(ready)
    if ran[best] or known != growth[best]: continue
    ran[best] = True
    out.append(best)
    changed = set()
    for b in touched[best]:
      if b not in sizes: continue
      # it is there from now on; its last step is left, which gives it back
      less = sizes[b] * ((left[b] == len(users[b])) + (left[b] == 2))
      left[b] -= 1
      if less:
        for j in users[b]: growth[j] -= less
        changed.update(users[b])
    for j in changed:
      if not waiting[j] and not ran[j]: heappush(ready, (growth[j], j))
    for j in before[best]:
      waiting[j] -= 1
      if not waiting[j]: heappush(ready, (growth[j], j))
  return min(list(range(len(steps))), out, key=lambda o: peak([steps[i] for i in o], sizes))


def dependencies(steps: Sequence[MemoryUse]) -> tuple[list[set[int]], list[set[int]]]:
  """For each step those that it must stand after, and those that must stand after it."""
  after, before = [set[int]() for _ in steps], [set[int]() for _ in steps]
  writer: dict[Hashable, int] = {}
  readers: dict[Hashable, list[int]] = {}
  for i, s in enumerate(steps):
    after[i].update(writer[b] for b in s.buffers if b in writer)
    for b in s.writes:
      after[i].update(readers.pop(b, ()))
      writer[b] = i
    for b in s.buffers:
      if b not in s.writes: readers.setdefault(b, []).append(i)
    after[i].discard(i)
    for j in after[i]: before[j].add(i)
  return after, before


def peak(steps: Sequence[MemoryUse], sizes: Mapping[Hashable, int]) -> int:
  """The most bytes that are allocated at a time."""
  last = {b: i for i, s in enumerate(steps) for b in s.buffers}
  first = {b: i for i, s in reversed(list(enumerate(steps))) for b in s.buffers}
  now = most = 0
  for i, s in enumerate(steps):
    mine = sizes.keys() & s.buffers
    now += sum(sizes[b] for b in mine if first[b] == i)
    most = max(most, now)
    now -= sum(sizes[b] for b in mine if last[b] == i)
  return most
