"""Pass: float8_e8m0 -> its bytes, so that no renderer has that dtype.

    y:float = CAST(LOAD(x:float8_e8m0, i))   ->   c:uint = CAST(LOAD(x:uint8, i));
                                                  y:float = BITCAST(c == 0 ? 0x400000 : c == 255 ? NaN : c << 23)

float8_e8m0 holds the scales of blocks: a byte is the exponent of a float32, 2 ** (byte - 127), and 255 is NaN. It is stored,
moved, cast and taken as bits; nothing computes in it. Source: OCP Microscaling Formats (MX) 1.0, section 5.4.1.
"""
from __future__ import annotations

from dataclasses import replace

from ..ir import DType, Ops, Target, UOp, cast_number, dtypes, scale_byte
from ..ir.alu import add, equal, least_of, less, shift_left, shift_right
from ..kernel import Kernel, Rules, rewrite

SCALE, UINT8, UINT32, FLOAT32 = dtypes.float8_e8m0, dtypes.uint8, dtypes.uint32, dtypes.float32
_NAN, _HALF, _INF, _LEAST = 0x7fc00000, 0x400000, 0x7f800000, 0x400000   # bits of float32; the least scale is 2 ** -127
_MINUS = 0x80000000   # -0.0


def lower_scales(kernel: Kernel, target: Target | None = None) -> Kernel:
  """What is float8_e8m0 as uint8, and casts from and to it as arithmetic on bits: CAST(scale) -> BITCAST(byte << 23)."""
  if not any(p.dtype is SCALE for p in kernel.params) and not any(u.dtype is SCALE for u in kernel.nodes): return kernel
  def bytes_of(old: UOp, new: UOp) -> UOp | None: return new.replace(new.src, dtype=UINT8) if old.dtype is SCALE else None
  rules: Rules = {op: bytes_of for op in {u.op for u in kernel.nodes if u.dtype is SCALE}} | {
    Ops.CONST: lambda old, new: UOp.const(UINT8, scale_byte(old.arg)) if old.dtype is SCALE else None,
    Ops.CAST: _cast, Ops.BITCAST: _bitcast}
  params = tuple(replace(p, dtype=UINT8) if p.dtype is SCALE else p for p in kernel.params)
  return kernel.with_(params=params, body=rewrite(kernel.body, rules))


def _cast(old: UOp, new: UOp) -> UOp | None:
  x = new.src[0]
  if old.dtype is SCALE: return _byte(x.cast(FLOAT32))
  return _number(x, old.dtype) if old.src[0].dtype is SCALE else None


def _bitcast(old: UOp, new: UOp) -> UOp | None:
  if SCALE not in (old.dtype, old.src[0].dtype): return None
  dtype = UINT8 if old.dtype is SCALE else old.dtype
  return new.src[0] if new.src[0].dtype is dtype else new.replace(new.src, dtype=dtype)


def _word(n: int) -> UOp: return UOp.const(UINT32, n)


def _number(byte: UOp, dtype: DType) -> UOp:
  """The number that a byte stands for."""
  if byte.op is Ops.CONST:
    value = float("nan") if byte.arg == 255 else 2.0 ** (byte.arg - 127)
    return UOp.const(dtype, cast_number(value, FLOAT32, dtype))
  c = byte.cast(UINT32)
  bits = equal(c, _word(255)).where(_word(_NAN), shift_left(c, _word(23)))
  return UOp(Ops.BITCAST, FLOAT32, (equal(c, _word(0)).where(_word(_LEAST), bits),)).cast(dtype)


def _byte(x: UOp) -> UOp:
  """The byte of the scale that is nearest to a float32, of two the greater; 255 (NaN) where there is none."""
  if x.op is Ops.CONST: return UOp.const(UINT8, scale_byte(x.arg))
  bits = UOp(Ops.BITCAST, UINT32, (x,))
  near = shift_right(add(least_of(bits, _word(_INF)), _word(_HALF)), _word(23))
  near = less(_word(_LEAST), bits).where(near, _word(0))
  return equal(bits, _word(_MINUS)).where(_word(0), near).cast(UINT8)
