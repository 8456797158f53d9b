"""Where the inner buffers of captured kernels lie: what is never needed at the same time shares memory."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

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
  return max((sum(rounded(o.nbytes) for o in lifetimes if o.first <= step <= o.last) for step in {x.first for x in lifetimes}), default=0)


def rounded(nbytes: int) -> int:
  """The next multiple of ``ALIGN``."""
  return -(-max(nbytes, 1) // ALIGN) * ALIGN
