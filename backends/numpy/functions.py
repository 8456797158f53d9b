"""What every ALU function and CAST means, on numpy arrays of the exact dtype.

Floats narrower than 32 bits are computed in float32 and rounded after every step; transcendental functions of narrower floats are
computed in float64 and rounded once, so a float32 result is right to the last bit but for rare halfway cases.
"""
from __future__ import annotations

import math
from typing import Callable

import numpy as np

from ntgrad.codegen.ir.dtype import DType, dtypes, to_narrow
from ntgrad.codegen.ir.functions import FUNCTIONS
from ntgrad.codegen.ir.uop import BinaryOps, TernaryOps, UnaryOps

from .memory import Array

Function = Callable[..., Array]

erf: Function = np.vectorize(math.erf, otypes=[np.float64])


def threefry(counter: Array, key: Array) -> Array:
  """threefry2x32 of 20 rounds: the uint64 counter and key are two words each, low word first."""
  low = np.uint64(0xFFFFFFFF)
  x0, x1 = (counter & low).astype(np.uint32), (counter >> np.uint64(32)).astype(np.uint32)
  k0, k1 = (key & low).astype(np.uint32), (key >> np.uint64(32)).astype(np.uint32)
  keys = (k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA))
  x0, x1 = x0 + keys[0], x1 + keys[1]
  for i in range(5):
    for r in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
      x0 = x0 + x1
      x1 = ((x1 << np.uint32(r)) | (x1 >> np.uint32(32 - r))) ^ x0
    x0, x1 = x0 + keys[(i + 1) % 3], x1 + keys[(i + 2) % 3] + np.uint32(i + 1)
  return np.asarray(x0.astype(np.uint64) | (x1.astype(np.uint64) << np.uint64(32)))


def _int_power(a: Array, b: Array) -> Array:
  """Integer powers, wrapping; a negative exponent gives what truncating 1/(a**-b) gives, and 0 for 0."""
  if a.dtype.kind == "u": return np.asarray(np.power(a, b))
  one = np.ones_like(a)
  whole = np.power(a, np.maximum(b, 0))
  odd = np.where(b & 1, a, one)
  return np.asarray(np.where(b >= 0, whole, np.where(a == 1, one, np.where(a == -1, odd, 0 * one))))


def _extreme(better: Function) -> Function:
  """MAX and MIN of floats: NaN where either is NaN, of equal zeros the second."""
  return lambda a, b: np.asarray(np.where(better(a, b) | np.isnan(a), a, b))


def _same(x: Array) -> Array: return x


_wide: dict[UnaryOps | BinaryOps | TernaryOps, Function] = {  # computed in float64
  UnaryOps.EXP: np.exp,
  UnaryOps.EXP2: np.exp2,
  UnaryOps.LOG: np.log,
  UnaryOps.LOG2: np.log2,
  UnaryOps.SIN: np.sin,
  UnaryOps.COS: np.cos,
  UnaryOps.TAN: np.tan,
  UnaryOps.TANH: np.tanh,
  UnaryOps.ERF: erf,
  UnaryOps.RSQRT: lambda x: 1 / np.sqrt(x),
  BinaryOps.POW: np.power,
}

_plain: dict[UnaryOps | BinaryOps | TernaryOps, Function] = {
  UnaryOps.NEG: np.negative,
  UnaryOps.RECIP: np.reciprocal,
  UnaryOps.SQRT: np.sqrt,
  UnaryOps.FLOOR: np.floor,
  UnaryOps.CEIL: np.ceil,
  UnaryOps.TRUNC: np.trunc,
  UnaryOps.ROUND: np.rint,
  UnaryOps.NOT: np.invert,
  UnaryOps.ABS: np.abs,
  UnaryOps.ISNAN: np.isnan,
  BinaryOps.ADD: np.add,
  BinaryOps.SUB: np.subtract,
  BinaryOps.MUL: np.multiply,
  BinaryOps.DIV: np.divide,
  BinaryOps.IDIV: np.floor_divide,
  BinaryOps.MOD: np.remainder,
  BinaryOps.MAX: np.maximum,
  BinaryOps.MIN: np.minimum,
  BinaryOps.CMPLT: np.less,
  BinaryOps.CMPLE: np.less_equal,
  BinaryOps.CMPEQ: np.equal,
  BinaryOps.CMPNE: np.not_equal,
  BinaryOps.AND: np.bitwise_and,
  BinaryOps.OR: np.bitwise_or,
  BinaryOps.XOR: np.bitwise_xor,
  BinaryOps.SHL: np.left_shift,
  BinaryOps.SHR: np.right_shift,
  BinaryOps.THREEFRY: threefry,
  TernaryOps.WHERE: np.where,
}

_rounding = frozenset({UnaryOps.FLOOR, UnaryOps.CEIL, UnaryOps.TRUNC, UnaryOps.ROUND})  # nothing to do on ints


def function(fn: UnaryOps | BinaryOps | TernaryOps, dtype: DType, out: DType) -> Function:
  """``fn`` for sources of (scalar) dtype ``dtype`` (for WHERE: of the values), giving arrays of dtype ``out``."""
  kind = dtype.kind
  if fn in _rounding and kind != "f": return _same
  if kind == "b":
    if fn in (UnaryOps.NEG, UnaryOps.ABS): return _same
    fn = FUNCTIONS[fn].boolean or fn
  if fn is UnaryOps.ISNAN and kind != "f": return lambda x: np.zeros(x.shape, np.bool_)
  if fn is BinaryOps.POW and kind in "iu": return _int_power
  if fn in (BinaryOps.MAX, BinaryOps.MIN) and kind == "f": return _extreme(np.greater if fn is BinaryOps.MAX else np.less)
  f, via = _wide.get(fn) or _plain[fn], dtype
  if fn in _wide: via = dtypes.float64
  elif kind == "f" and dtype.itemsize < 4 and fn is not TernaryOps.WHERE: via = dtypes.float32
  if via is dtype: return f
  rounded = cast(via, out)
  return lambda *xs: rounded(np.asarray(f(*[x.astype(via.np) for x in xs])))


def cast(src: DType, dst: DType) -> Function:
  """Arrays of (scalar) dtype ``src`` to ``dst``: truncating float to int, ``!= 0`` to bool, rounding to nearest even to
  floats."""
  if src is dst: return _same
  if src.kind == "f" and src.itemsize < 4:   # ml_dtypes lacks some direct ways
    from_float = cast(dtypes.float32, dst)
    return lambda x: from_float(x.astype(np.float32))
  if dst.kind == "b": return lambda x: x != 0
  if dst.kind == "f" and dst.itemsize < 4: return lambda x: to_narrow(x, dst)
  return lambda x: x.astype(dst.np)
