"""What every ALU function and CAST means, on numpy arrays of the exact dtype. Floats narrower than 32 bits are computed in
float32 and rounded after every step; transcendental functions of float32 and less are computed in float64 and rounded once."""
from __future__ import annotations

import math
from typing import Callable

import numpy as np

from ntgrad.codegen.ir import FUNCTIONS, BinaryOps, DType, Fn, TernaryOps, UnaryOps, dtypes, to_narrow

from .memory import Array

Function = Callable[..., Array]

erf: Function = np.vectorize(math.erf, otypes=[np.float64])


def threefry(counter: Array, key: Array) -> Array:
  """threefry2x32 of 20 rounds: the uint64 counter and key are two words each, low word first."""
  (x0, x1), (k0, k1) = ((x.astype(np.uint32), (x >> np.uint64(32)).astype(np.uint32)) for x in (counter, key))
  keys = k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA)
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
  return np.asarray(np.where(b >= 0, whole, np.where(a == 1, one, np.where(a == -1, np.where(b & 1, a, one), 0 * one))))


def _same(x: Array) -> Array: return x


# how numpy spells the functions: on floats those of ``_WIDE`` are computed in float64
_WORDS = """NEG negative RECIP reciprocal SQRT sqrt EXP exp EXP2 exp2 LOG log LOG2 log2 SIN sin COS cos TAN tan TANH tanh
FLOOR floor CEIL ceil TRUNC trunc ROUND rint NOT invert ABS abs ISNAN isnan
ADD add SUB subtract MUL multiply DIV divide IDIV floor_divide MOD remainder MAX maximum MIN minimum POW power
CMPLT less CMPLE less_equal CMPEQ equal CMPNE not_equal AND bitwise_and OR bitwise_or XOR bitwise_xor SHL left_shift
SHR right_shift GCD gcd WHERE where""".split()
_SPELLINGS: dict[str, Function] = {**{name: getattr(np, spelling) for name, spelling in zip(_WORDS[::2], _WORDS[1::2])},
                                   "RSQRT": lambda x: 1 / np.sqrt(x), "ERF": erf, "THREEFRY": threefry}
_WIDE = "EXP EXP2 LOG LOG2 SIN COS TAN TANH ERF RSQRT POW".split()


def function(fn: Fn, dtype: DType, out: DType) -> Function:
  """``fn`` for sources of (scalar) dtype ``dtype`` (for WHERE: of the values), giving arrays of dtype ``out``."""
  kind = dtype.kind
  if fn in (UnaryOps.FLOOR, UnaryOps.CEIL, UnaryOps.TRUNC, UnaryOps.ROUND) and kind != "f": return _same
  if kind == "b":
    if fn in (UnaryOps.NEG, UnaryOps.ABS): return _same
    fn = FUNCTIONS[fn].boolean or fn
  if fn is UnaryOps.ISNAN and kind != "f": return lambda x: np.zeros(x.shape, np.bool_)
  if fn is BinaryOps.POW and kind in "iu": return _int_power
  if fn in (BinaryOps.MAX, BinaryOps.MIN) and kind == "f":   # NaN where either is NaN, of equal zeros the second
    better = np.greater if fn is BinaryOps.MAX else np.less
    return lambda a, b: np.asarray(np.where(better(a, b) | np.isnan(a), a, b))
  f, via = _SPELLINGS[fn.name], dtype
  if fn.name in _WIDE: via = dtypes.float64
  elif kind == "f" and dtype.itemsize < 4 and fn is not TernaryOps.WHERE: via = dtypes.float32
  if via is dtype: return f
  rounded = cast(via, out)
  return lambda *xs: rounded(np.asarray(f(*[x.astype(via.np) for x in xs])))


def cast(src: DType, dst: DType) -> Function:
  """Arrays of (scalar) dtype ``src`` to ``dst``: floats to ints truncated, to bool ``!= 0``, to floats nearest even."""
  if src is dst: return _same
  if src.kind == "f" and src.itemsize < 4:   # ml_dtypes lacks some direct ways
    from_float = cast(dtypes.float32, dst)
    return lambda x: from_float(x.astype(np.float32))
  if dst.kind == "b": return lambda x: x != 0
  if dst.kind == "f" and dst.itemsize < 4: return lambda x: to_narrow(x, dst)
  return lambda x: x.astype(dst.np)
