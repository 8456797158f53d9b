"""Quantised weights of GGUF files: what a block of bytes stands for, as an expression of the bytes.

Numbers lie in blocks of 32 or 256: small ints of 4 to 8 bits, and floats that they are multiplied with. A tensor keeps the bytes,
and its value is computed from them wherever it is used, in the kernel that uses it. The formats are ggml's
(https://github.com/ggml-org/ggml/blob/master/src/ggml-quants.c); names of the parts are as there.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.core import Base
from ntgrad.tensor import Tensor


class Format(NamedTuple):
  """A way to keep numbers: how many are in a block, the bytes of one, and their values: (blocks, bytes) -> (blocks, numbers)."""
  numbers: int
  nbytes: int
  values: Callable[[Tensor], Tensor]


def _half(b: Tensor) -> Tensor:
  """(.., 2) bytes of a float16 -> (.., 1) float32."""
  low, high = b[..., 0:1].cast(dtypes.uint16), b[..., 1:2].cast(dtypes.uint16)
  return (low | (high << 8)).bitcast(dtypes.float16).cast(dtypes.float32)


def _counted(n: int, times: int, b: Tensor, shape: tuple[int, ...]) -> Tensor:
  """``times`` × 0 .. n - 1 as uint8 in a shape, for the bits of ``b`` to be shifted by."""
  return (Tensor.arange(n, dtype=dtypes.uint8, device=b.device) * times).reshape(shape)


def _nibbles(qs: Tensor) -> Tensor:
  """(blocks, n) bytes -> (blocks, 2n): the lower four bits of all, then the upper ones."""
  n, width = qs.shape
  return ((qs.reshape(n, 1, width) >> _counted(2, 4, qs, (2, 1))) & 15).reshape(n, 2 * width)


def _fifth(qh: Tensor) -> Tensor:
  """(blocks, 4) bytes -> (blocks, 32): each bit, as 0 or 16."""
  return (((qh.reshape(-1, 4, 1) >> _counted(8, 1, qh, (8,))) & 1) << 4).reshape(-1, 32)


def _small(fifth: bool, least: bool) -> Callable[[Tensor], Tensor]:
  """The values of blocks of a scale, a minimum (``least``; else they are around 0), the fifth bits, and four bits of each."""
  def values(b: Tensor) -> Tensor:
    at = 4 if least else 2
    q = _nibbles(b[:, at + 4 * fifth:])
    x = (q | _fifth(b[:, at:at + 4]) if fifth else q).cast(dtypes.float32)
    return x * _half(b[:, :2]) + _half(b[:, 2:4]) if least else (x - (16 if fifth else 8)) * _half(b[:, :2])
  return values


def _q8_0(b: Tensor) -> Tensor: return b[:, 2:].bitcast(dtypes.int8).cast(dtypes.float32) * _half(b[:, :2])


def _scales(b: Tensor) -> tuple[Tensor, Tensor]:
  """(blocks, 16) bytes: two float16 and twelve bytes that hold eight scales and eight minima of 6 bits -> both times their float,
  (blocks, 8, 1) float32."""
  n = b.shape[0]
  first, second, third = (b[:, i:i + 4].reshape(n, 1, 4) for i in (4, 8, 12))
  late = _counted(2, 1, b, (2, 1)) == 1   # the last four have their upper bits where the first four have room
  scale = late.where((third & 15) | ((first >> 6) << 4), first & 63)
  least = late.where((third >> 4) | ((second >> 6) << 4), second & 63)
  out = [(x.cast(dtypes.float32).reshape(n, 8) * _half(b[:, at:at + 2])).reshape(n, 8, 1) for x, at in ((scale, 0), (least, 2))]
  return out[0], out[1]


def _four_bits(qs: Tensor) -> Tensor:
  """(blocks, 128) bytes -> (blocks, 8, 32): of each 32 bytes the lower four bits, then the upper ones."""
  return (qs.reshape(-1, 4, 1, 32) >> _counted(2, 4, qs, (2, 1))).reshape(-1, 8, 32) & 15


def _large(fifth: bool) -> Callable[[Tensor], Tensor]:
  """The values of blocks of scales and minima, the fifth bits, and four bits of each."""
  def values(b: Tensor) -> Tensor:
    scale, least = _scales(b[:, :16])
    q = _four_bits(b[:, 48 if fifth else 16:])
    if fifth: q = q | (((b[:, 16:48].reshape(-1, 1, 32) >> _counted(8, 1, b, (8, 1))) & 1) << 4)
    return (q.cast(dtypes.float32) * scale - least).reshape(-1, 256)
  return values


def _q6_k(b: Tensor) -> Tensor:
  # two halves of 128 numbers, each four times 32: the lower four bits in 64 bytes, the upper two in 32
  low = (b[:, :128].reshape(-1, 2, 1, 2, 32) >> _counted(2, 4, b, (2, 1, 1))) & 15
  high = (b[:, 128:192].reshape(-1, 2, 1, 32) >> _counted(4, 2, b, (4, 1))) & 3
  q = (low.reshape(-1, 2, 4, 32) | (high << 4)).cast(dtypes.float32) - 32
  scale = b[:, 192:208].bitcast(dtypes.int8).cast(dtypes.float32) * _half(b[:, 208:210])
  return (q.reshape(-1, 16, 16) * scale.reshape(-1, 16, 1)).reshape(-1, 256)


QUANTISED = {
  "Q4_0": Format(32, 18, _small(False, False)), "Q4_1": Format(32, 20, _small(False, True)),
  "Q5_0": Format(32, 22, _small(True, False)), "Q5_1": Format(32, 24, _small(True, True)), "Q8_0": Format(32, 34, _q8_0),
  "Q4_K": Format(256, 144, _large(False)), "Q5_K": Format(256, 176, _large(True)), "Q6_K": Format(256, 210, _q6_k)}


def unpacked(packed: Tensor, how: Format, shape: tuple[int, ...]) -> Tensor:
  """The float32 values of shape ``shape`` that the uint8 tensor ``packed`` (bytes,) holds: computed wherever they are used, also
  by functions that a jit captures, and never kept. They cannot be written."""
  t = how.values(packed.reshape(-1, how.nbytes)).reshape(shape)
  out: Tensor = Base._own(t)
  out._alias.packed = packed
  return out
