"""Pass for targets with blocks, which compute with float32 and float64: narrow float arithmetic -> arithmetic on float32."""
from __future__ import annotations

from typing import Iterable

from ..ir import DType, Ops, TernaryOps, UOp
from ..kernel import F32, NARROW, UOpList, prune

# these have the dtype of memory, or of bits; arithmetic has float32
_EXACT = frozenset((Ops.CONST, Ops.DEFINE_GLOBAL, Ops.DEFINE_LOCAL, Ops.LOAD, Ops.STORE, Ops.ATOMIC, Ops.PRINT, Ops.FOLD,
                    Ops.BITCAST))


def widen_floats(uops: Iterable[UOp]) -> UOpList:
  """For targets with blocks: arithmetic on float16, bfloat16 and fp8 -> arithmetic on float32 between CASTs.

  Values are rounded where they are stored, cast or taken as bits. A WHERE between narrow values is one of narrow values still.

      x:half = LOAD(..); y:half = x * x; STORE(.., y)   ->   x:half = LOAD(..); w:float = CAST(x); y:float = w * w;
                                                             z:half = CAST(y); STORE(.., z)"""
  new, out = dict[UOp, UOp](), list[UOp]()
  widened: dict[UOp, UOp] = {}   # narrow value -> its CAST, which follows it

  def wide(u: UOp) -> UOp:
    """A source as float32 where it is narrow, else as it is."""
    n = new[u]
    if n.dtype not in NARROW: return n
    if n.op is not Ops.CONST: return widened.setdefault(n, n.cast(F32))
    out.append(UOp.const(F32, n.arg))
    return out[-1]

  def cast(n: UOp, dtype: DType) -> UOp:
    """A value in another dtype, by a CAST that stands here."""
    if n.dtype is dtype: return n
    out.append(UOp.unique(Ops.CAST, dtype, (n,)))
    return out[-1]

  for u in uops:
    src = u.src
    if u.op in _EXACT or not any(x.dtype in NARROW for x in (u, *src)):
      n = u.replace(tuple(cast(new[s], s.dtype) for s in src))
    elif u.op is Ops.CAST:
      n = wide(src[0])
      if n.dtype is not u.dtype:
        if u.dtype in NARROW and n.dtype.kind != "b": n = cast(n, F32)   # by way of float32
        n = u.replace((n,))
    elif u.arg is TernaryOps.WHERE and all(new[s].dtype in NARROW for s in src[1:]) and \
        any(s.op is not Ops.CONST for s in src[1:]): n = u.replace(tuple(new[s] for s in src))
    else: n = u.replace(tuple(wide(s) for s in src), dtype=F32 if u.dtype in NARROW else u.dtype)
    new[u] = n
    out.append(n)
  return prune([x for n in out for x in (n, widened.get(n, n))])
