"""What the language has under Triton's and libdevice's other names."""
from __future__ import annotations

import math
from typing import Any

from ntgrad.codegen.errors import ShapeError
from ntgrad.codegen.uop import BinaryOps

from . import block as _b
from .block import Block, block, one
from .operations import (
  cos,
  exp,
  expand_dims,
  fdiv,
  log,
  max,
  maximum,
  minimum,
  rand,
  randbits,
  reshape,  # noqa: A004
  sqrt,
  sum,
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
