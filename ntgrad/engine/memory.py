"""How little memory a schedule can do with: an order of its kernels that holds few buffers at a time, and places for those of captured kernels."""
from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import accumulate
from typing import Hashable, Mapping, Sequence

ALIGN = 512   # bytes; the strictest device asks that much of a piece of a buffer


@dataclass(frozen=True)
class Lifetime:
  """A buffer of ``nbytes`` that is needed from step ``first`` to step ``last``, both included."""
  first: int
  last: int
  nbytes: int


def arrange(lifetimes: Sequence[Lifetime]) -> tuple[tuple[int, ...], int]:
  """An offset for each buffer, and the bytes that all of them take. Buffers that overlap in time do not overlap in memory.

  Largest first, each into the smallest gap that holds it between those placed before that live at the same time; every offset is a
  multiple of ``ALIGN``.
  """
  offsets = [0] * len(lifetimes)
  placed: list[int] = []   # by offset
  total = 0
  for i in sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].nbytes, lifetimes[i].first)):
    me = lifetimes[i]
    size = rounded(me.nbytes)
    best, room, end = -1, 0, 0
    for j in placed:
      other = lifetimes[j]
      if other.last < me.first or me.last < other.first: continue
      gap = offsets[j] - end
      if gap >= size and (best < 0 or gap < room): best, room = end, gap
      end = max(end, offsets[j] + rounded(other.nbytes))
    offsets[i] = end if best < 0 else best
    total = max(total, offsets[i] + size)
    placed.append(i)
    placed.sort(key=lambda j: offsets[j])
  return tuple(offsets), total


def least(lifetimes: Sequence[Lifetime]) -> int:
  """The most bytes that are needed at one step: no arrangement takes fewer."""
  change: dict[int, int] = {}
  for x in lifetimes:
    change[x.first] = change.get(x.first, 0) + rounded(x.nbytes)
    change[x.last + 1] = change.get(x.last + 1, 0) - rounded(x.nbytes)
  return max(accumulate([change[step] for step in sorted(change)]), default=0)


def rounded(nbytes: int) -> int:
  """The next multiple of ``ALIGN``."""
  return -(-max(nbytes, 1) // ALIGN) * ALIGN


@dataclass(frozen=True)
class Access:
  """What one step touches: all its buffers, and those among them that it writes."""
  buffers: tuple[Hashable, ...]
  writes: tuple[Hashable, ...]


def order(steps: Sequence[Access], sizes: Mapping[Hashable, int]) -> list[int]:
  """The steps in an order with a low peak: as given, or always the step that leaves least allocated (weight gradients before the next layer's).

  ``sizes`` has the bytes of the buffers that the schedule makes and gives back. A step stays after those that write what it touches, and
  after those that read what it writes.
  """
  after, before = dependencies(steps)
  touched = [dict.fromkeys(s.buffers) for s in steps]
  waiting = [len(a) for a in after]
  users: dict[Hashable, list[int]] = {}
  for i, buffers in enumerate(touched):
    for b in buffers:
      if b in sizes: users.setdefault(b, []).append(i)
  left = {b: len(u) for b, u in users.items()}
  # bytes that a step would allocate for good, were it the next: what nobody has touched yet, less what nobody touches after it
  growth = [sum([sizes[b] for b in buffers if b in sizes and left[b] > 1]) for buffers in touched]
  ready = [(growth[i], i) for i, n in enumerate(waiting) if not n]   # with its growth then; entries of steps that have run since are passed over
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
      less = sizes[b] * ((left[b] == len(users[b])) + (left[b] == 2))   # it is there from now on; its last step is left, which gives it back
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


def dependencies(steps: Sequence[Access]) -> tuple[list[set[int]], list[set[int]]]:
  """For each step those that it must stand after, and those that must stand after it."""
  after: list[set[int]] = [set() for _ in steps]
  before: list[set[int]] = [set() for _ in steps]
  writer: dict[Hashable, int] = {}
  readers: dict[Hashable, list[int]] = {}
  for i, s in enumerate(steps):
    for b in s.buffers:
      if b in writer: after[i].add(writer[b])
    for b in s.writes:
      after[i].update(readers.pop(b, ()))
      writer[b] = i
    for b in s.buffers:
      if b not in s.writes: readers.setdefault(b, []).append(i)
    after[i].discard(i)
    for j in after[i]: before[j].add(i)
  return after, before


def peak(steps: Sequence[Access], sizes: Mapping[Hashable, int]) -> int:
  """The most bytes that are allocated at a time."""
  last = {b: i for i, s in enumerate(steps) for b in s.buffers}
  held: set[Hashable] = set()
  now = most = 0
  for i, s in enumerate(steps):
    for b in s.buffers:
      if b in sizes and b not in held:
        held.add(b)
        now += sizes[b]
    most = max(most, now)
    now -= sum([sizes[b] for b in set(s.buffers) if b in sizes and last[b] == i])
  return most
