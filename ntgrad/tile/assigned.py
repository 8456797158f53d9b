"""Blocks whose elements, or rows, are assigned one by one at places that are numbers, as stages of a Fourier transform that are
written out do: which value lies where is looked up. Through a chain of choices, one an assignment, each read would go anew."""
from __future__ import annotations

import math
from bisect import bisect_right
from typing import NamedTuple, Sequence

from ntgrad.codegen import index as ix
from ntgrad.codegen.ir import Ops, TernaryOps, UOp

Place = tuple["int | None", ...]   # a number for each dimension; None where it is the whole of it


class Assigned:
  """A block's values by place, version after version: each assignment makes one more. ``base`` is what it was before."""

  def __init__(self, base: UOp, axes: Sequence[UOp | None]):
    self.base, self.axes, self.count = base, tuple(axes), 0
    self.places: dict[Place, tuple[list[int], list[UOp]]] = {}

  def takes(self, axes: Sequence[UOp | None], place: Place) -> bool:
    """Whether a place, of a block with these axes, lies among the others: it is one of them, or has nothing in common with each."""
    return tuple(axes) == self.axes and all([(n is None) == (m is None) for n, m in zip(place, next(iter(self.places), place))])

  def put(self, place: Place, value: UOp) -> Version:
    """Assign; the new version."""
    self.count += 1
    versions, values = self.places.setdefault(place, ([], []))
    versions.append(self.count)
    values.append(value)
    return Version(self, self.count)


class Version(NamedTuple):
  """A block after so many assignments."""
  of: Assigned
  number: int

  @property
  def latest(self) -> bool: return self.number == self.of.count

  def at(self, place: Place) -> UOp | None:
    """What lies at a place; None where nothing was assigned."""
    versions, values = self.of.places.get(place, ((), ()))
    n = bisect_right(versions, self.number)
    return values[n - 1] if n else None

  def values(self) -> dict[Place, UOp]:
    """What was assigned, by place."""
    return {place: u for place in self.of.places if (u := self.at(place)) is not None}

  def complete(self) -> bool:
    """Whether every element was assigned."""
    place = next(iter(self.of.places))
    sizes = [1 if a is None else a.arg[1] for a, n in zip(self.of.axes, place) if n is not None]
    return all([isinstance(n, int) for n in sizes]) and len(self.values()) == math.prod(sizes)

  def whole(self) -> UOp:
    """The block as one value, with a choice for each place."""
    out = self.of.base
    for place, u in self.values().items():
      out = chosen(self.of.axes, place, u, out)
    return out


def chosen(axes: Sequence[UOp | None], place: Place, u: UOp, other: UOp) -> UOp:
  """A value at a place of a block, and another one elsewhere."""
  here = ix.both(*[ix.eq(a, n) for a, n in zip(axes, place) if n is not None and a is not None])
  return u if here is ix.TRUE else UOp.alu(TernaryOps.WHERE, here, u, other)


def place_of(axes: Sequence[UOp | None], at: Sequence[UOp]) -> Place | None:
  """The place that an index picks of a block with these axes; None where it is none that is known, or all of it."""
  if all([i is a for a, i in zip(axes, at)]) or any([i is not a and i.op is not Ops.CONST for a, i in zip(axes, at)]): return None
  return tuple([None if i is a else int(i.arg) for a, i in zip(axes, at)])
