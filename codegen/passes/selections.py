"""Pass: a sum in which an index chooses a single element -> that element, at the index clamped to the axis, where it is inside.

    sum[a0](x[a0] if a0 == i else 0)                ->  x[i] + 0
    sum[a0](1 if a0 == t[a1] and a1 < n else 0)     ->  1 if a1 < n and 0 <= t[a1] < size else 0

So a one-hot mask takes a row or a column out of a matrix, counts or looks up without going through all of it.
"""
from __future__ import annotations

from .. import index as ix
from ..ir import BinaryOps, Ops, Target, TernaryOps, UOp, dtypes, identity, toposort
from ..kernel import Kernel, is_variable, rewrite, substitute

ADD, _BINDS = BinaryOps.ADD, frozenset({Ops.REDUCE, Ops.SCAN, Ops.SORT, Ops.SORTED})


def may_select(u: UOp) -> bool:
  """Whether a REDUCE is a sum of what a condition chooses."""
  value = u.src[0]
  return u.arg[0] is ADD and (value.arg is TernaryOps.WHERE or value.op is Ops.CAST and value.src[0].dtype is dtypes.bool)


def replace_selections(kernel: Kernel, target: Target | None = None) -> Kernel:
  """A sum of what an index chooses one of -> that one: sum[a0](x[a0] if a0 == i else 0) -> x[i] + 0."""
  if not any(may_select(u) for u in kernel.reduces): return kernel
  blocks = target is not None and target.blocks
  def selected(old: UOp, u: UOp) -> UOp:
    """What stands for a REDUCE: the same where no condition chooses."""
    while u.op is Ops.REDUCE and may_select(u):
      axes = sorted([r for r in u.src[0].ranges if r.arg[0] in u.arg[1]], key=lambda r: int(r.arg[0]))
      found = next((new for r in axes if (new := _without(u, r, blocks)) is not None), None)
      if found is None: break
      u = found
    return u
  body = rewrite(kernel.body, {Ops.REDUCE: selected})
  if all(a is b for a, b in zip(body, kernel.body)): return kernel
  made = kernel.with_(body=body)
  used = {u.arg[0] for u in made.nodes if u.op is Ops.RANGE} | {u.arg for u in made.nodes if u.op is Ops.FOR}
  gone = kernel.bound - made.bound - used   # along an axis that is bound still the value may be the same everywhere
  return made.with_(axes=tuple(a for a in kernel.axes if a.id not in gone))


def _without(u: UOp, r: UOp, blocks: bool) -> UOp | None:
  """A sum without an axis of which a condition chooses one index; None where none does."""
  value, zero = u.src[0], identity(ADD, u.src[0].dtype)
  if value.op is Ops.CAST: condition, x = value.src[0], UOp.const(value.dtype, 1)
  else:
    condition, x, other = value.src
    if other.op is not Ops.CONST or other.arg != zero: return None
  conditions = ix.conjuncts(condition)
  chosen, place = next(((c, p) for c in conditions if (p := _place(c, r)) is not None), (None, ix.ZERO))
  if chosen is None: return None
  rest = [c for c in conditions if c is not chosen]
  if not _movable((x, *rest), r, place, blocks): return None
  size = r.src[0] if r.src else r.arg[1]
  inside = ix.both(ix.ge(place, 0), ix.lt(place, size))
  if inside is not ix.TRUE: place = ix.greatest(ix.least(place, ix.sub(ix.node(size), 1)), 0)
  x, *rest = substitute((x, *rest), {r: place})
  condition = ix.both(inside, *rest)
  if condition is not ix.TRUE: x = condition.where(x, UOp.const(x.dtype, zero))
  left = tuple(i for i in u.arg[1] if i != r.arg[0])
  if left: return UOp(Ops.REDUCE, u.dtype, (x,), (ADD, left))
  return UOp.alu(ADD, x, UOp.const(x.dtype, zero)) if x.dtype.kind == "f" else x   # the sum of -0.0 and 0.0 is 0.0


def _place(c: UOp, r: UOp) -> UOp | None:
  """The index of an axis at which a condition holds, which is the same for all of the axis: r == i, int(r) + 1 == x."""
  if c.arg is not BinaryOps.CMPEQ or r not in c.ranges: return None
  a, b = c.src
  if a.dtype is not ix.INT:
    if a.dtype.kind not in "iu": return None
    a, b = ix.int_as_index(a), ix.int_as_index(b)
    if a.op is Ops.CAST: a, b = b, a
    if a.op is Ops.CAST or r in b.ranges and b.op is Ops.CAST: return None
  difference = ix.sub(a, b)
  of = dict(ix.linear(difference)[0]).get(r)
  if of not in (1, -1): return None
  place = ix.mul(ix.sub(difference, ix.mul(r, of)), -of)
  return None if r in place.ranges else place


def _movable(values: tuple[UOp, ...], r: UOp, place: UOp, blocks: bool) -> bool:
  """Whether values may be had at another index of an axis: nothing binds it, or what the index is made of, or reads a block."""
  mine = {s.arg[0] for s in place.ranges}
  for n in toposort(values):
    if n.op in _BINDS and r in n.src[0].ranges:
      if n.op is not Ops.REDUCE or r.arg[0] in n.arg[1] or mine & set(n.arg[1]): return False
    if blocks and n.op is Ops.LOAD and is_variable(n.src[0]) and r in n.src[1].ranges: return False
  return not (blocks and any(n.op is Ops.LOAD and is_variable(n.src[0]) for n in toposort((place,))))
