"""Indices that see the digits of an axis, as ``Fuse`` makes them: e // 9, e % 9 // 3 and e % 3 of the products of a convolution.

Such an access has a chain of meta-operations with an axis for each digit, as before the ``Fuse``; these are then flattened into
one dimension, and that is cut into tiles where ``e`` is several axes, 32*a4 + a7."""
from __future__ import annotations

import math
from functools import reduce
from typing import Iterable, NamedTuple, Sequence

from .. import index as ix
from ..index import Dim
from ..ir import BinaryOps, Ops, UOp
from ..kernel import Axis
from .derivation import LEVELS, Derivation, NoArrangement, straight, terms_of

_NAMES = [name for name, _ in LEVELS]


class Fused(NamedTuple):
  """An axis of which indices use the digits: the axes that it is made of, outermost first, and an axis for each digit, the
  highest first."""
  parts: tuple[Axis, ...]
  digits: tuple[Axis, ...]

  @property
  def whole(self) -> UOp:
    """The number that has the digits: a4*32 + a7."""
    return reduce(lambda at, a: ix.add(ix.mul(at, a.known), a.rng), self.parts, ix.ZERO)

  def expressions(self) -> list[tuple[Axis, UOp]]:
    """Each digit with what it is of the whole: (a4*32 + a7) % 9 // 3."""
    out, below = [], 1
    for a in reversed(self.digits):
      above = below * a.known
      out.append((a, ix.fdiv(self.whole if a is self.digits[0] else ix.mod(self.whole, above), below)))
      below = above
    return out


def by_digits(axes: Sequence[Axis], shape: Sequence[Dim], index: Sequence[UOp], gate: UOp) -> Derivation:
  """The derivation of an index that sees the digits of some axes. Raises NoArrangement."""
  found = fused(axes, index, gate)
  if not found: raise NoArrangement
  now, at = list(axes), tuple(index)
  for f in found:
    at = tuple(in_digits(i, f) for i in at)
    first = now.index(f.parts[0])
    now[first:first + 1] = f.digits
    now = [a for a in now if a not in f.parts]
  d = straight(now, shape, at, gate)
  for f in found: _flatten(d, f)
  rank = {a: n for n, a in enumerate(axes)}
  for level, own in enumerate(d.axes):
    order = sorted(range(len(own)), key=lambda i: rank[own[i]])
    if order != list(range(len(own))): d.arr = d.arr.permute(order, level=level)
    d.axes[level] = tuple(own[i] for i in order)
  d.given = tuple(index)
  return d


def fused(axes: Sequence[Axis], index: Sequence[UOp], gate: UOp) -> list[Fused]:
  """The axes of which an index has a quotient or a remainder, those together that stand in one."""
  atoms = [t for i in index for t, _ in terms_of(i)[0] if t.arg in (BinaryOps.IDIV, BinaryOps.MOD)]
  groups: list[set[UOp]] = []
  for t in atoms:
    mine = set(t.ranges)
    for g in [g for g in groups if g & mine]:
      groups.remove(g)
      mine |= g
    groups.append(mine)
  out, free = [], max((a.id for a in axes), default=0) + 1
  for g in groups:
    parts = tuple(a for _, kinds in LEVELS for a in axes if a.rng in g and a.kind in kinds)
    if len(parts) < len(g) or not all(isinstance(a.size, int) for a in parts): raise NoArrangement
    cuts = [1, *sorted({n for t in atoms if g >= t.ranges for n in divisors(t)})]
    if any(b % a for a, b in zip(cuts, cuts[1:])): raise NoArrangement
    whole = Fused(parts, ()).whole
    # of a last block that is padded, fewer values get beyond the gate than there are
    ends = [c.src[1] for c in ix.conjuncts(gate) if c.arg is BinaryOps.CMPLT and c.src[0] is whole]
    size = min([math.prod(a.known for a in parts), *(end.arg for end in ends if end.op is Ops.CONST)])
    if size % cuts[-1]: raise NoArrangement
    sizes = [size // cuts[-1], *[b // a for a, b in zip(cuts[-2::-1], cuts[:0:-1])]]
    out.append(Fused(parts, tuple(Axis(free + n, size, parts[0].kind) for n, size in enumerate(sizes))))
    free += len(sizes)
  return out


def divisors(t: UOp) -> Iterable[int]:
  """What a number is divided by to get one of its digits: e % 9 // 3 -> 9, 3."""
  while t.arg in (BinaryOps.IDIV, BinaryOps.MOD):
    t, n = t.src
    if n.op is not Ops.CONST: raise NoArrangement
    yield n.arg


def in_digits(i: UOp, f: Fused) -> UOp:
  """An index with axes for the digits: 16*((a4*5 + a7) // 9 + 3*a4) + a2 -> 16*c + a2."""
  terms = dict(terms_of(i)[0])
  for digit, at in f.expressions():
    k = next((terms[t] for t, n in terms_of(at)[0] if n == 1 and t.op is Ops.ALU and t in terms), None)
    if k is not None: i = ix.add(i, ix.mul(ix.sub(digit.rng, at), k))
  if any(a.rng in i.ranges for a in f.parts): raise NoArrangement
  return i


def _flatten(d: Derivation, f: Fused) -> None:
  """Make one dimension of the digits, and tiles of this one where it is several axes, each part in the level of its kind."""
  digits = f.digits
  level = next((n for n, axes in enumerate(d.axes) if digits[0] in axes), None)
  if level is None: raise NoArrangement   # the access sees too little of it
  axes = d.axes[level]
  at = axes.index(digits[0])
  if axes[at:at + len(digits)] != digits: raise NoArrangement
  d.arr = d.arr.flatten(at, at + len(digits) - 1, level=level)
  d.axes[level] = *axes[:at], f.parts[0], *axes[at + len(digits):]
  below = math.prod(a.known for a in f.parts)
  for outer, inner in zip(f.parts, f.parts[1:]):
    below //= outer.known
    name = next(name for name, kinds in LEVELS if inner.kind in kinds)
    if name == d.names[level]: raise NoArrangement   # two parts of one level
    into(d, level, {outer: below}, inner)
    level += 1
    while level < len(d.names) and (rank := _NAMES.index(d.names[level])) <= _NAMES.index(name):
      d.axes[level:level + 2] = [(inner, *d.axes[level + 1])]
      d.arr = d.arr.ravel(2, level)
      if rank == _NAMES.index(name): break
      into(d, level, {inner: -1}, inner)   # past the level of other axes
      level += 1
    else: d.names.insert(level, name)


def into(d: Derivation, level: int, sizes: dict[Axis, int], inner: Axis) -> None:
  """Cut tiles of a level, of which axes without a size have one element: a level of its own for ``inner``."""
  axes = d.axes[level]
  d.arr = d.arr.tile([sizes.get(a, 1) for a in axes], level=level)
  rest = [i for i, a in enumerate(axes) if a not in sizes]
  if rest: d.arr = d.arr.squeeze(rest, level=level + 1)
  if -1 in sizes.values():   # nothing of it is left in this level
    gone = axes.index(inner)
    d.arr = d.arr.squeeze(gone, level=level)
    d.axes[level] = *axes[:gone], *axes[gone + 1:]
  d.axes.insert(level + 1, (inner,))
