"""Pass for targets with blocks: sums of products -> products of blocks."""
from __future__ import annotations

from collections import Counter
from typing import Sequence

from ..ir import BinaryOps, Ops, Target, TernaryOps, UOp, dtypes
from ..kernel import DOT, F32, FP8, NARROW, UOpList, axis_order, block_axes, is_dot, is_masked, prune, zero_outside

_SMALLEST_DOT = 9   # elements along an axis: of the 16 that a dot has at least, most would be padding


def find_dots(uops: Sequence[UOp], target: Target | None) -> UOpList:
  """For targets with blocks: sums of products -> products of blocks, sum[k](a * b) + c -> dot[k](a, b, c).

  The factors are those in memory, narrow ones too, and each varies with ``k``, one other axis, and maybe one that both
  have (a batch). A condition of the sum becomes
  one of each factor that is not 0 outside it anyway.

      s = REDUCE(WHERE(m, CAST(a) * CAST(b), 0)), arg (ADD, (k,)); t = s + c
      ->   t = REDUCE(WHERE(m, a, 0), WHERE(m, b, 0), c), arg (DOT, (k,))"""
  sizes = dict(u.arg for u in uops if u.op is Ops.RANGE)
  if len(sizes) < 3: return UOpList(uops)
  axes, order, uses = block_axes(uops), axis_order(uops), Counter(s for u in uops for s in u.src)
  new, out = dict[UOp, UOp](), list[UOp]()

  def factors(u: UOp) -> list[UOp] | None:
    """The factors of a sum that is a product of blocks, the one whose free axis comes first in front. None where it is none."""
    if (found := _product(u, target)) is None: return None
    (k,), (a, b, wheres) = u.arg[1], found
    free = [axes[x] - {k} for x in (a, b) if k in axes[x]]
    batch = free[0] & free[1] if len(free) == 2 else frozenset()   # an axis that both have
    free = [f - batch for f in free]
    if [len(f) for f in free] != [1, 1] or len(batch) > 1: return None
    if any(not any(axes[w] <= axes[x] for x in (a, b)) for w in wheres): return None
    (i,), (j,) = free
    if min(sizes[i], sizes[j], sizes[k]) < _SMALLEST_DOT: return None
    return [masked(x, wheres) for x in ((a, b) if order.index(i) < order.index(j) else (b, a))]

  def masked(x: UOp, wheres: list[UOp]) -> UOp:
    """A factor that is zero where one of the conditions is false."""
    value, zero = new[x], UOp.const(x.dtype, 0)
    for where in wheres:
      if not axes[where] <= axes[x] or zero_outside(x, where): continue   # then the other one is 0
      value = UOp.unique(Ops.ALU, x.dtype, (new[where], value, zero), TernaryOps.WHERE)
      out.extend((zero, value))
    return value

  for u in uops:
    n = u.replace(tuple(new[s] for s in u.src))
    if u.op is Ops.REDUCE and (found := factors(u)) is not None: n = UOp(Ops.REDUCE, u.dtype, tuple(found), (DOT, u.arg[1]))
    elif u.arg is BinaryOps.ADD:
      for x, acc in (u.src, u.src[::-1]):
        dot = new[x]
        if is_dot(dot) and len(dot.src) == 2 and uses[x] == 1 and axes[acc] == axes[x]: n = dot.replace((*dot.src, new[acc]))
    new[u] = n
    out.append(n)
  return prune(out)


def _product(u: UOp, target: Target | None) -> tuple[UOp, UOp, list[UOp]] | None:
  """The factors in memory that a REDUCE multiplies, and the conditions outside which they count as zero, if the target can."""
  value, wheres = u.src[0], list[UOp]()
  while is_masked(value):
    wheres.append(value.src[0])
    value = value.src[1]
  if u.arg[0] is not BinaryOps.ADD or len(u.arg[1]) != 1 or value.arg is not BinaryOps.MUL: return None
  # a factor without a condition outside which it was loaded as 0 anyway
  a, b = [u.src[1] if is_masked(u) and zero_outside(u.src[1], u.src[0]) else u for u in value.src]
  x, y = (s.src[0] if s.op is Ops.CAST else s for s in (a, b))
  narrow = NARROW if target and target.fp8_dots else NARROW - FP8
  if x.dtype is y.dtype and x.dtype in {F32: narrow, dtypes.int32: (dtypes.int8,)}.get(u.dtype, ()): return x, y, wheres
  return (a, b, wheres) if u.dtype is F32 or u.dtype is dtypes.float64 and target and target.double_dots else None
