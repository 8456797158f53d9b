"""Pass: the dtype ``index`` of a list of UOps -> int32 where the ranges of its values prove that it is enough, else int64."""
from __future__ import annotations

from typing import Iterable

from . import index as ix
from .dtype import DType, dtypes
from .uop import Ops, UOp, UOpList


def lower_index(uops: Iterable[UOp]) -> UOpList:
  """The dtype ``index`` -> int32 where the ranges of its values prove that it is enough, else int64."""
  new: dict[UOp, UOp] = {}
  out = UOpList()
  wide = (-(1 << 31), (1 << 31) - 1)
  def width(u: UOp) -> DType:
    lo, hi = ix.bounds(u)
    fits = wide[0] <= lo and hi <= wide[1] and all(new[s].dtype.itemsize <= 4 for s in u.src if s.dtype.scalar() is dtypes.index)
    return (dtypes.int32 if fits else dtypes.int64).vec(u.dtype.count)
  def widen(s: UOp, d: DType) -> UOp:
    n = new[s]
    if n.dtype.scalar() is d.scalar() or s.dtype.scalar() is not dtypes.index: return n
    c = UOp.const(d.scalar(), n.arg) if n.op is Ops.CONST else UOp(Ops.CAST, d.scalar().vec(n.dtype.count), (n,))
    if c not in seen:
      seen.add(c)
      # beside what it widens, so that every loop which sees that sees it too; a PHI is seen after its loops
      beside = n
      if n.op is Ops.PHI: beside = max((ended[l] for l in n.src[2:] if l in ended), key=out.index, default=n)
      after.setdefault(beside, []).append(c)
    return c
  seen: set[UOp] = set()
  ended: dict[UOp, UOp] = {}
  after: dict[UOp, list[UOp]] = {}
  for u in uops:
    src = u.src
    d = u.dtype
    if d.scalar() is dtypes.index and u.op is not Ops.ENDLOOP: d = width(u)
    at = [s for s in src if s.dtype.scalar() is dtypes.index]
    if u.op in (Ops.ALU, Ops.LOOP, Ops.VECTORIZE) and at:
      wide_source = any(new[s].dtype.itemsize > 4 for s in at)
      w = dtypes.int64 if wide_source or (u.dtype.scalar() is dtypes.index and d.itemsize > 4) else dtypes.int32
      srcs = tuple(widen(s, w) for s in src)
    else: srcs = tuple(new[s] for s in src)
    n = srcs[0] if u.op is Ops.CAST and srcs[0].dtype is d else u.replace(srcs, dtype=d)
    new[u] = n
    if n.op is Ops.ENDLOOP: ended[n.src[0]] = n
    if n not in seen:
      seen.add(n)
      out.append(n)
  return UOpList(x for n in out for x in (n, *after.get(n, ())))
