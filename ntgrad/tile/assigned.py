"""Blocks whose elements, rows or pieces are assigned one by one at places that are numbers, as in stages of a Fourier transform
that are written out: which value lies where is looked up. Through a chain of choices, one an assignment, each read goes anew."""
from __future__ import annotations

import math
from bisect import bisect_right
from typing import Callable, NamedTuple, Sequence

from ntgrad.codegen import index as ix
from ntgrad.codegen.ir import TernaryOps, UOp

DimensionAxes = Sequence["UOp | None"]
FixedPlace = tuple["tuple[int, int] | None", ...]   # first element and number of elements in each dimension; None for all of them
PlacedValue = tuple[UOp, tuple["UOp | None", ...]]   # an expression, with the axes of its block in the dimensions of the other
RenameAxes = Callable[[UOp, "dict[UOp, UOp]"], UOp]


class Assigned:
  """A block's values by place, version after version: each assignment makes one more. ``base`` is what it was before."""

  def __init__(self, base: UOp, axes: DimensionAxes):
    self.base, self.axes, self.count = base, tuple(axes), 0
    self.places: dict[FixedPlace, tuple[list[int], list[PlacedValue]]] = {}

  def takes(self, axes: DimensionAxes, place: FixedPlace) -> bool:
    """Whether a place, of a block with these axes, lies among the others: it is one of them, or apart from each."""
    def apart(p: tuple[int, int] | None, q: tuple[int, int] | None) -> bool:
      return p is q if p is None or q is None else p[1] == q[1] and (p[0] - q[0]) % p[1] == 0
    return tuple(axes) == self.axes and all(map(apart, place, next(iter(self.places), place)))

  def put(self, place: FixedPlace, value: PlacedValue) -> Version:
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

  def at(self, place: FixedPlace) -> PlacedValue | None:
    """What lies at a place; None where nothing was assigned."""
    versions, values = self.of.places.get(place, ((), ()))
    n = bisect_right(versions, self.number)
    return values[n - 1] if n else None

  def values(self) -> dict[FixedPlace, PlacedValue]:
    """What was assigned, by place."""
    return {place: value for place in self.of.places if (value := self.at(place)) is not None}

  def complete(self) -> bool:
    """Whether every element was assigned."""
    place = next(iter(self.of.places))
    sizes = [1 if a is None else a.arg[1] for a, n in zip(self.of.axes, place) if n is not None]
    each = math.prod([n[1] for n in place if n is not None])
    return all([isinstance(n, int) for n in sizes]) and len(self.values()) * each == math.prod(sizes)

  def whole(self, rename: RenameAxes) -> UOp:
    """The block as one value, with a choice for each place."""
    out = self.of.base
    for place, value in self.values().items(): out = chosen(self.of.axes, place, value, out, rename)
    return out


def chosen(axes: DimensionAxes, place: FixedPlace, value: PlacedValue, other: UOp, rename: RenameAxes) -> UOp:
  """A value at a place of a block, and another one elsewhere."""
  here, found = ix.TRUE, dict[UOp, UOp]()
  for a, n, own in zip(axes, place, value[1]):
    if n is None or a is None: continue
    k = ix.sub(a, n[0])
    here = ix.both(here, ix.eq(k, 0)) if n[1] == 1 else ix.both(here, ix.ge(k, 0), ix.lt(k, n[1]))
    if own is not None: found[own] = ix.mod(k, n[1])
  u = rename(value[0], found) if found else value[0]
  return u if here is ix.TRUE else UOp.alu(TernaryOps.WHERE, here, u, other)


def fixed_place(axes: DimensionAxes, at: Sequence[UOp], picked: DimensionAxes) -> FixedPlace | None:
  """The place that an index picks of a block with these axes, as a block with others; None where it is none that is known, or all
  of it."""
  out: list[tuple[int, int] | None] = []
  for a, i in zip(axes, at):
    terms, first = ix.linear(i)
    if i is a: out.append(None)
    elif not terms: out.append((first, 1))
    elif len(terms) == 1 and terms[0][1] == 1 and terms[0][0] in picked and terms[0][0] not in axes:
      if not isinstance(n := terms[0][0].arg[1], int): return None
      out.append((first, n))
    else: return None
  return None if all([n is None for n in out]) else tuple(out)
