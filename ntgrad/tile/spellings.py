"""What the language has under Triton's and libdevice's other names."""
from __future__ import annotations

import math
from typing import Any

from ntgrad.codegen.errors import ShapeError
from ntgrad.codegen.uop import BinaryOps, UnaryOps

from . import block as _b
from .block import Block, block, one
from .operations import (
  abs,
  ceil,
  cos,
  erf,
  exp,
  exp2,
  expand_dims,
  fdiv,
  floor,
  fma,
  isnan,
  log,
  log2,
  max,
  maximum,
  minimum,
  pow,
  rand,
  randbits,
  reshape,  # noqa: A004
  round,
  rsqrt,
  sin,
  sqrt,
  sum,
  tan,
  tanh,
  trunc,
  uint64,
)

# ---- Triton's other spellings

def add(x: Any, y: Any) -> Block:
  """x + y."""
  return _b.binary(BinaryOps.ADD, x, y)


def sub(x: Any, y: Any) -> Block:
  """x - y."""
  return _b.binary(BinaryOps.SUB, x, y)


def mul(x: Any, y: Any) -> Block:
  """x * y."""
  return _b.binary(BinaryOps.MUL, x, y)


def div_rn(x: Any, y: Any) -> Block:
  """x / y, rounded to the nearest."""
  return fdiv(x, y)


def sqrt_rn(x: Any) -> Block:
  """The square root, rounded to the nearest."""
  return sqrt(x)


def view(x: Any, *shape: Any) -> Block:
  """``reshape``."""
  return reshape(x, *shape)


def unsqueeze(x: Any, dim: int) -> Block:
  """``expand_dims``."""
  return expand_dims(x, dim)


def squeeze(x: Any, dim: int) -> Block:
  """Without a dimension of 1: (1, n) -> (n). Raises ShapeError for another size."""
  b = block(x)
  at = _b.axis_number("squeeze", dim, b.ndim)
  if not one(b.shape[at]):
    raise ShapeError(f"squeeze: dimension {dim} of a block {b.shape} is {b.shape[at]}; only a dimension of 1 can go")
  return Block(b.value, [a for d, a in enumerate(b.axes) if d != at])


def softmax(x: Any, dim: int = 0, keep_dims: Any = False) -> Block:
  """exp(x) over its sum along a dimension; ``keep_dims`` changes nothing."""
  b = block(x)
  e = exp(b - max(b, dim, True))
  return e / sum(e, dim, True)


def xor_sum(x: Any, axis: int | None = None, keep_dims: Any = False) -> Block:
  """All ints along an axis combined by exclusive or."""
  return _b.reduce(BinaryOps.XOR, x, axis, keep_dims, "xor_sum")


def reduce_or(x: Any, axis: int | None = None, keep_dims: Any = False) -> Block:
  """All ints or bools along an axis combined by or."""
  return _b.reduce(BinaryOps.OR, x, axis, keep_dims, "reduce_or")


def randint(seed: Any, offset: Any) -> Block:
  """Random uint32 numbers: ``randbits``."""
  return randbits(seed, offset)


def randn(seed: Any, offset: Any) -> Block:
  """Normally distributed float32 numbers, one an element of ``offset``."""
  at = _b.cast(offset, uint64) * 2
  u, v = rand(seed, at), rand(seed, at + 1)
  return sqrt(-2.0 * log(maximum(u, 2.0 ** -25))) * cos(2.0 * math.pi * v)


def swizzle2d(i: Any, j: Any, size_i: Any, size_j: Any, size_g: Any) -> tuple[Any, Any]:
  """Where the place (i, j) of a size_i x size_j matrix goes when groups of size_g rows are walked column by column."""
  at = i * size_j + j
  group = at // (size_g * size_j)
  first = group * size_g
  rows = minimum(size_i - first, size_g)
  at = at % (size_g * size_j)
  return first + at % rows, at // rows


def multiple_of(x: Any, values: Any) -> Any:
  """``x``: what is known of positions is found by itself."""
  return x


max_contiguous = max_constancy = multiple_of


def assume(condition: Any) -> None:
  """Nothing: what is known of sizes is found by itself."""


def debug_barrier() -> None:
  """Nothing: barriers stand where they are needed."""


class libdevice:
  """The functions under the names that CUDA's libdevice has."""
  exp, exp2, log, log2 = staticmethod(exp), staticmethod(exp2), staticmethod(log), staticmethod(log2)
  sqrt, rsqrt = staticmethod(sqrt), staticmethod(rsqrt)
  sin, cos, tan, tanh, erf = staticmethod(sin), staticmethod(cos), staticmethod(tan), staticmethod(tanh), staticmethod(erf)
  floor, ceil, rint, trunc = staticmethod(floor), staticmethod(ceil), staticmethod(round), staticmethod(trunc)
  nearbyint = rint
  div_rn, sqrt_rn = staticmethod(div_rn), staticmethod(sqrt_rn)
  fabs = abs = staticmethod(abs)
  fmax, fmin, pow, fma, isnan = (
    staticmethod(maximum),
    staticmethod(minimum),
    staticmethod(pow),
    staticmethod(fma),
    staticmethod(isnan),
  )

  @staticmethod
  def log10(x: Any) -> Block: return log2(x) * math.log10(2)
  @staticmethod
  def log1p(x: Any) -> Block:
    # exact for small x: log(1 + x) * x / ((1 + x) - 1)
    b = block(x)
    u = 1.0 + b
    return _b.where(u == 1.0, b, log(u) * b / _b.where(u == 1.0, 1.0, u - 1.0))
  @staticmethod
  def expm1(x: Any) -> Block:
    # exact for small x: (e^x - 1) * x / log(e^x)
    b = block(x)
    u = exp(b)
    near = u == 1.0
    return _b.where(near, b, _b.where(u == 0.0, -1.0, (u - 1.0) * b / _b.where(near, 1.0, log(u))))
  @staticmethod
  def exp10(x: Any) -> Block: return exp2(block(x) * math.log2(10))
  @staticmethod
  def isinf(x: Any) -> Block: return _b.unary(UnaryOps.ABS, x) == math.inf
  @staticmethod
  def hypot(x: Any, y: Any) -> Block:
    a, b = abs(x), abs(y)
    most, least = maximum(a, b), minimum(a, b)
    share = least / _b.where(most == 0.0, 1.0, most)
    return _b.where((a == math.inf) | (b == math.inf), math.inf, most * sqrt(1.0 + share * share))
  @staticmethod
  def fdim(x: Any, y: Any) -> Block: return _b.where(isnan(x) | isnan(y), math.nan, maximum(block(x) - y, 0.0))
  @staticmethod
  def sinh(x: Any) -> Block: return 0.5 * (exp(x) - exp(-block(x)))
  @staticmethod
  def cosh(x: Any) -> Block: return 0.5 * (exp(x) + exp(-block(x)))
