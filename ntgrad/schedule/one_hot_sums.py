"""Kernel rewrite: a sum that leaves one element, chosen by an index, reads that element alone (the logit of a class).

    sum[a1](a1 == i[a0] ? x[a0, a1] : 0)   ->   0 <= i[a0] < n ? x[a0, i[a0]] : 0
"""
from __future__ import annotations

from ntgrad.codegen import index as ix
from ntgrad.codegen.ir import BinaryOps, Ops, TernaryOps, UOp, config, dtypes, toposort
from ntgrad.codegen.kernel import rewrite

from .nodes import Body, in_bounds


def read_chosen(body: Body) -> Body:
  """The statements of a kernel with such sums replaced by what they choose."""
  if config.noopt or not any(u.op is Ops.REDUCE for u in toposort(body)): return body
  return rewrite(body, {Ops.REDUCE: lambda old, u: _read(u)})


def _read(u: UOp) -> UOp | None:
  """What a REDUCE chooses; None where it does more than that."""
  if u.arg[0] is not BinaryOps.ADD or u.src[0].arg is not TernaryOps.WHERE: return None
  test, chosen, other = u.src[0].src
  if other.op is not Ops.CONST or other.arg != 0 or test.arg is not BinaryOps.CMPEQ: return None
  for number, index in test.src, test.src[::-1]:
    axis = number.src[0] if number.op is Ops.CAST else number
    if axis.op is not Ops.RANGE or axis.arg[0] not in u.arg[1] or axis in index.ranges or number.dtype.kind not in "iu": continue
    if number is not axis and ix.vmax(axis) > dtypes.max(number.dtype): continue   # numbers that come more than once
    # what is reduced along the axis itself (the sum of a softmax) stays
    known = {n: n for n in toposort((chosen,)) if n.op is Ops.REDUCE and axis.arg[0] in n.arg[1]}
    if any(n.op is Ops.SCAN for n in toposort((chosen,), known.__contains__)): return None
    at = index.cast(ix.INT)
    inside = in_bounds((at,), (axis.arg[1],))
    def load(old: UOp, new: UOp, gate: UOp = inside, a: UOp = axis) -> UOp | None:
      return new.replace((*new.src[:2], ix.both(gate, *new.src[2:]))) if a in old.ranges else None
    found = rewrite((chosen,), {Ops.LOAD: load}, {**known, axis: at})[0]
    found = UOp.alu(TernaryOps.WHERE, inside, found, UOp.const(found.dtype, 0))
    rest = tuple(i for i in u.arg[1] if i != axis.arg[0])
    return UOp(Ops.REDUCE, u.dtype, (found,), (u.arg[0], rest)) if rest else found.cast(u.dtype)
  return None
