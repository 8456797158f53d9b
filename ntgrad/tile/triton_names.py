"""What the language has under Triton's and libdevice's other names."""
from __future__ import annotations

import enum
import math
from typing import Any

from ntgrad.codegen.ir import BinaryOps, ShapeError
from ntgrad.graph import variant

from . import block as _b, operations as _o
from .block import BlockValue, axis_number, block, block_binary, block_cast, one
from .operations import arange, expand_dims, int32, maximum, minimum, randbits, reshape, sqrt, sum, uint32, uint64

# ---- Triton's other spellings

def _binary(fn: BinaryOps, x: Any, y: Any, sanitize_overflow: Any = True) -> BlockValue: return block_binary(fn, x, y)


add = variant("add", _binary, BinaryOps.ADD, "x + y.")
sub = variant("sub", _binary, BinaryOps.SUB, "x - y.")
mul = variant("mul", _binary, BinaryOps.MUL, "x * y.")


def div_rn(x: Any, y: Any) -> BlockValue:
  """x / y, rounded to the nearest."""
  return _o.fdiv(x, y)


def sqrt_rn(x: Any) -> BlockValue:
  """The square root, rounded to the nearest."""
  return sqrt(x)


def view(input: Any, *shape: Any) -> BlockValue:
  """``reshape``."""
  return reshape(input, *shape)


def unsqueeze(x: Any, dim: int) -> BlockValue:
  """``expand_dims``."""
  return expand_dims(x, dim)


def squeeze(x: Any, dim: int) -> BlockValue:
  """Without a dimension of 1: (1, n) -> (n). Raises ShapeError for another size."""
  b = block(x)
  at = axis_number("squeeze", dim, b.ndim)
  if not one(b.shape[at]):
    raise ShapeError(f"squeeze: dimension {dim} of a block {b.shape} is {b.shape[at]}; only a dimension of 1 can go")
  return BlockValue(b.value, [a for d, a in enumerate(b.axes) if d != at])


def softmax(x: Any, dim: int | None = None, keep_dims: Any = False, ieee_rounding: Any = False) -> BlockValue:
  """exp(x) over its sum along a dimension, the first unless given; ``keep_dims`` changes nothing."""
  b = block(x)
  if dim is None: dim = 0
  e = _o.exp(b - _o.max(b, dim, keep_dims=True))
  return e / sum(e, dim, True)


class PropagateNan(enum.Enum):
  """What ``maximum``, ``minimum`` and ``clamp`` may be given as ``propagate_nan``. NaN goes through them, whatever it is."""
  NONE = 0
  ALL = 1


def histogram(input: Any, num_bins: int, mask: Any = None) -> BlockValue:
  """How often each of 0, 1, …, num_bins - 1 is among the ints of a block, where ``mask`` holds: (n) -> (num_bins), int32."""
  b = block(input)
  if b.ndim != 1 or b.dtype.kind not in "iu": raise ShapeError(f"histogram: ints of one dimension, got {b.dtype} {b.shape}")
  found = expand_dims(b, 1) == expand_dims(arange(0, num_bins), 0)
  if mask is not None: found = found & expand_dims(mask, 1)
  return sum(found, 0, dtype=int32)


def topk(x: Any, k: int, dim: int | None = None, descending: Any = True) -> BlockValue:
  """The ``k`` greatest along the last dimension, the greatest first; the least where not ``descending``: (…, n) -> (…, k)."""
  b = block(x)
  if dim is not None and axis_number("topk", dim, b.ndim) != b.ndim - 1:
    raise ShapeError(f"topk: dimension {dim} of a block {b.shape}; it goes along the last one")
  return _o.sort(b, -1, descending)[..., :k]


def join(a: Any, b: Any) -> BlockValue:
  """Two blocks side by side in a new last dimension: (…) and (…) -> (…, 2)."""
  x, y = _o.broadcast(a, b)
  return _b.block_where(_o.expand_to(arange(0, 2), x.ndim, x.ndim + 1) == 0, expand_dims(x, x.ndim), expand_dims(y, y.ndim))


def split(a: Any) -> tuple[BlockValue, BlockValue]:
  """The two parts of a last dimension of 2: (…, 2) -> (…) and (…). Raises ShapeError for another size."""
  b = block(a)
  if not b.ndim or b.shape[-1] != 2: raise ShapeError(f"split: a block whose last dimension is 2, got {b.shape}")
  return b[..., 0], b[..., 1]


def interleave(a: Any, b: Any) -> BlockValue:
  """The elements of two blocks by turns along the last dimension: (…, n) and (…, n) -> (…, 2 n)."""
  x = join(a, b)
  return reshape(x, (*x.shape[:-2], -1))


def cat(input: Any, other: Any, can_reorder: Any = False, dim: int = 0) -> BlockValue:
  """Two blocks of one shape one behind the other along a dimension: (n, …) and (n, …) -> (2 n, …). They stay in order."""
  x = join(input, other)
  at = axis_number("cat", dim, x.ndim - 1)
  x = _b.block_permute(x, (*range(at), x.ndim - 1, *range(at, x.ndim - 1)))
  return reshape(x, (*x.shape[:at], -1, *x.shape[at + 2:]))


def umulhi(x: Any, y: Any) -> BlockValue:
  """The upper half of the product of two uint32."""
  return block_cast(block_cast(x, uint64) * block_cast(y, uint64) >> 32, uint32)


def _combined(name: str, fn: BinaryOps, input: Any, axis: int | None = None, keep_dims: Any = False) -> BlockValue:
  return _b.block_reduce(fn, input, axis, keep_dims, name)


xor_sum = variant("xor_sum", _combined, BinaryOps.XOR, "All ints along an axis combined by exclusive or.")
reduce_or = variant("reduce_or", _combined, BinaryOps.OR, "All ints or bools along an axis combined by or.")


def randint(seed: Any, offset: Any, n_rounds: Any = None) -> BlockValue:
  """Random uint32 numbers: ``randbits``."""
  return randbits(seed, offset)


def randn(seed: Any, offset: Any, n_rounds: Any = None) -> BlockValue:
  """Normally distributed float32 numbers, one an element of ``offset``."""
  at = block_cast(offset, uint64) * 2
  u, v = _o.rand(seed, at), _o.rand(seed, at + 1)
  return sqrt(-2.0 * _o.log(maximum(u, 2.0 ** -25))) * _o.cos(2.0 * math.pi * v)


def swizzle2d(i: Any, j: Any, size_i: Any, size_j: Any, size_g: Any) -> tuple[Any, Any]:
  """Where the place (i, j) of a size_i x size_j matrix goes when groups of size_g rows are walked column by column."""
  at = i * size_j + j
  group = at // (size_g * size_j)
  first = group * size_g
  rows = minimum(size_i - first, size_g)
  at = at % (size_g * size_j)
  return first + at % rows, at // rows


def multiple_of(input: Any, values: Any) -> Any:
  """``input``: what is known of positions is found by itself."""
  return input


max_contiguous = max_constancy = multiple_of


def assume(cond: Any) -> None:
  """Nothing: what is known of sizes is found by itself."""


def debug_barrier() -> None:
  """Nothing: barriers stand where they are needed."""
