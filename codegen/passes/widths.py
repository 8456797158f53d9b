"""Pass: the dtype ``index`` of a list of UOps -> int32 where the ranges of its values prove that it is enough, else int64.

The host launches the kernel whose sizes are not ``wide`` only where all that is computed from them fits 32 bits. A target may
have sizes in 64 bits all the same (``Target.long_index``): no range shows a C compiler that a sum of them does not overflow.
"""
from __future__ import annotations

from typing import Iterable

from .. import index as ix
from ..index.algebra import DATA
from ..ir import TF32, DType, Ops, Target, UOp, dtypes
from ..kernel import UOpList


def lower_index(uops: Iterable[UOp], target: Target | None = None) -> UOpList:
  """The dtype ``index`` -> int32 where the ranges of its values prove that it is enough, else int64."""
  long = target is not None and target.long_index
  new, out, seen, after = dict[UOp, UOp](), UOpList(), set[UOp](), dict[UOp, list[UOp]]()
  ended, must = dict[UOp, UOp](), set[UOp]()   # LOOP -> its ENDLOOP, in order; what does not fit 32 bits
  index = set[UOp]()   # the nodes of this dtype
  branches, ended_with = list[list[UOp]](), set[UOp]()   # what stands in each open IF, and what stood in those that have ended
  def widen(s: UOp, dtype: DType) -> UOp:
    n = new[s]
    if s not in index or n.dtype.scalar() is dtype: return n
    c = UOp.const(dtype, n.arg) if n.op is Ops.CONST else UOp(Ops.CAST, dtype.vec(n.dtype.count), (n,))
    if c not in seen:
      seen.add(c)
      # beside what it widens, so that every loop which sees that sees it too; a PHI is seen after its loops
      ends = [end for loop, end in ended.items() if loop in n.src[2:]] if n.op is Ops.PHI else []
      after.setdefault((n, *ends)[-1], []).append(c)
    return c
  def emit(n: UOp) -> None:
    if n in seen: return
    out.append(n)
    seen.add(n)
    if branches: branches[-1].append(n)
  for u in uops:
    if u.dtype.scalar() is dtypes.index: index.add(u)
    indices = [s for s in u.src if s in index]
    lo, hi = ix.bounds(u) if u in index else (0, 0)
    far = lo < -(1 << 31) or hi >= 1 << 31
    if not must.isdisjoint(indices) or far and (not ix.has_sizes(u) or ix.wide(u)): must.add(u)
    # numbers of a vector are not addresses
    freely = long and u.dtype.count == 1 and (any(new[s].dtype.itemsize > 4 for s in indices) or u in index and ix.has_sizes(u))
    width = dtypes.int64 if u in must or freely else dtypes.int32
    dtype = width.vec(u.dtype.count) if u in index and u.op is not Ops.ENDLOOP else u.dtype
    together = indices and u.op in (Ops.ALU, Ops.LOOP, Ops.VECTORIZE)
    src = tuple([widen(s, width) if together else new[s] for s in u.src])
    if u.op is Ops.SIZE: n = UOp(Ops.DEFINE_VAR, dtype, (), u.arg)
    else: n = src[0] if u.op is Ops.CAST and src[0].dtype is dtype and u.arg != TF32 else u.replace(src, dtype=dtype)
    data = n.op is Ops.ALU and n.dtype.kind in "iu" and u not in index
    if data and ix.of_launch(n) and ix.bounds(n) != ix.bounds(u):   # it may wrap
      emit(one := UOp(Ops.CAST, n.src[0].dtype, n.src[:1], DATA))
      n = n.replace((one, *n.src[1:]))
    if n in ended_with: n = UOp.unique(n.op, n.dtype, n.src, n.arg)   # nobody sees the one that is like it
    new[u] = n
    if n.op is Ops.ENDLOOP: ended[n.src[0]] = n
    if n.op is Ops.ELSE or n.op is Ops.ENDIF: ended_with.update(branches.pop())
    emit(n)
    if n.op is Ops.ELSE or n.op is Ops.IF: branches.append([])
  listed, stack = UOpList(), out[::-1]
  while stack:   # what is widened may itself stand beside another node
    listed.append(n := stack.pop())
    stack.extend(after.get(n, ())[::-1])
  return listed
