"""Rewrites of a kernel whose products matrix units make: what it computes between these is made cheaper, since it would take as
long as they do. Results differ in last bits."""
from __future__ import annotations

import math

from ..ir import BinaryOps, Ops, TernaryOps, UnaryOps, UOp, dtypes, toposort
from ..ir.alu import mul
from ..kernel import Kernel, multiplication, narrow_value, rebuilt, rewrite
from .one_pass_rule import EXPONENTIALS, times

_DEFINED = Ops.DEFINE_GLOBAL, Ops.DEFINE_LOCAL
_SMALL = dtypes.float16, dtypes.bfloat16
LOG2_E = math.log2(math.e)


def unrounded(kernel: Kernel) -> Kernel | None:
  """A kernel that computes with what it rounds to 16 bits on its way as if it did not, but for what it multiplies and stores:
  exp(float32(bfloat16(s)) - m) -> exp(s - m). None where the bits of such a float are asked for."""
  new: dict[UOp, UOp] = {}   # of small floats as float32
  rounds = {s: narrow_value(s).dtype for r in kernel.reduces if (x := multiplication(r)) is not None for s in x.src}
  for u in toposort(kernel.body):
    src, small = tuple([new[s] for s in u.src]), u.dtype in _SMALL
    if u.op is Ops.CAST and (small or u.src[0].dtype in _SMALL) and u.dtype.kind == "f":
      n = src[0].cast(dtypes.float32 if small else u.dtype)
    elif u.op is Ops.LOAD: n = rebuilt(u, src).cast(dtypes.float32 if small else u.dtype)
    elif u.op is Ops.STORE: n = u.replace((*src[:2], src[2].cast(u.src[2].dtype), *src[3:]))
    elif small and u.op is Ops.CONST: n = UOp.const(dtypes.float32, u.arg)
    elif small and u.op in (Ops.ALU, Ops.REDUCE): n = u.replace(src, dtype=dtypes.float32)
    elif u.op is Ops.BITCAST and u.src[0].dtype in _SMALL or small and u.op not in _DEFINED: return None
    else: n = rebuilt(u, src)
    if u in rounds and rounds[u] in _SMALL and narrow_value(n).dtype is not rounds[u]: n = n.cast(rounds[u]).cast(n.dtype)
    new[u] = n
  return kernel.with_(body=tuple([new[s] for s in kernel.body]))


def in_powers_of_two(kernel: Kernel, along: UOp) -> Kernel:
  """A kernel whose exponentials of differences along an axis are powers of two of a product each, which one instruction makes a
  fused multiplication and addition: exp(s * c - max(s * c)) -> exp2(s * d - max(s) * d), d = c * log2(e). What all elements of a
  row or a column are divided by they are multiplied by the inverse of: e / l -> e * (1 / l)."""
  def reduce_(old: UOp, r: UOp) -> UOp | None:
    x, c = _scaled(r.src[0])
    return mul(r.replace((x,)), UOp.const(r.dtype, c)) if r.arg[0] is BinaryOps.MAX and c != 1 else None
  def alu(old: UOp, u: UOp) -> UOp | None:
    if u.arg is BinaryOps.DIV and u.dtype.kind == "f" and u.src[1].ranges < u.src[0].ranges:
      return mul(u.src[0], UOp.alu(BinaryOps.DIV, UOp.const(u.dtype, 1), u.src[1]))
    if u.arg not in EXPONENTIALS or u.src[0].arg is not BinaryOps.SUB or along not in old.ranges: return None
    by = LOG2_E if u.arg is UnaryOps.EXP else 1.0
    a, b = [times(x, c * by) for x, c in map(_scaled, u.src[0].src)]
    return UOp.alu(UnaryOps.EXP2, UOp.alu(BinaryOps.SUB, a, b))
  return kernel.with_(body=rewrite(kernel.body, {Ops.REDUCE: reduce_, Ops.ALU: alu}))


def _scaled(x: UOp) -> tuple[UOp, float]:
  """A value as another one times a positive number: where(m, s * 0.5, -inf) is where(m, s, -inf) and 0.5."""
  masks: list[tuple[UOp, int]] = []   # and which source goes on
  value = x
  while value.arg is TernaryOps.WHERE:
    n = 1 if value.src[2].op is Ops.CONST else 2
    other = value.src[3 - n]
    if other.op is not Ops.CONST or other.arg != 0 and not math.isinf(other.arg): break
    masks.append((value, n))
    value = value.src[n]
  a, b = value.src if value.arg is BinaryOps.MUL else (value, value)
  if a.op is Ops.CONST: a, b = b, a
  if value.arg is not BinaryOps.MUL or b.op is not Ops.CONST or not 0 < b.arg < math.inf: return x, 1.0
  for w, n in masks[::-1]: a = w.replace((w.src[0], *((a, w.src[2]) if n == 1 else (w.src[1], a))))
  return a, float(b.arg)
