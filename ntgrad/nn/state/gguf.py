"""GGUF files, as llama.cpp has them: what a model is, its tokenizer, and weights that are mostly quantised.

A little-endian file: ``GGUF``, a version (2 or 3), how many tensors and how many values there are; the values (name, type,
value); the tensors (name, sizes with the fastest first, type, place); then, from a multiple of ``general.alignment`` bytes on,
their data (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).

Quantised numbers lie in blocks of 32 or 256: small ints of 4 to 8 bits, and floats that they are multiplied with. A tensor keeps
the bytes, and its value is computed from them in the kernel that uses it. The formats are ggml's
(https://github.com/ggml-org/ggml/blob/master/src/ggml-quants.c); names of the parts are as there.
"""
from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import partial
from sys import getsizeof
from typing import Any, NamedTuple

import numpy as np

from ntgrad.codegen.ir import dtypes, shown
from ntgrad.core import MAX_DIMS, Base
from ntgrad.graph import checked
from ntgrad.tensor import Tensor

from .files import Entry, Mapped, Refuse, checked_shape, dtypes_in, refuser, tensor_of
from .pickles import ROOM

_NUMBERS = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8"}
_TEXT, _LIST, _DEEPEST = 8, 9, 4
_PLAIN = {int(k): d for k, d in dtypes_in(
  "0:float32 1:float16 24:int8 25:int16 26:int32 27:int64 28:float64 30:bfloat16").items()}
_TYPES = {int(k): name for k, name in [pair.split(":") for pair in (
  "2:Q4_0 3:Q4_1 6:Q5_0 7:Q5_1 8:Q8_0 9:Q8_1 10:Q2_K 11:Q3_K 12:Q4_K 13:Q5_K 14:Q6_K 15:Q8_K 16:IQ2_XXS 17:IQ2_XS 18:IQ3_XXS "
  "19:IQ1_S 20:IQ4_NL 21:IQ3_S 22:IQ2_S 23:IQ4_XS 29:IQ1_M 34:TQ1_0 35:TQ2_0 39:MXFP4").split()]}


@checked
def gguf_load(path: str | os.PathLike[str], device: str | None = None) -> tuple[dict[str, Any], dict[str, Tensor]]:
  """What a GGUF file says of its model (``{"llama.block_count": 30, "tokenizer.ggml.tokens": [..], ..}``), and its tensors by
  name, on ``device`` (the default one if None), shapes with the slowest dimension first.

  Of quantised weights (Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K Q6_K) the bytes are kept, and a kernel that uses the float32 tensor
  computes it from them; such a tensor cannot be written. Bytes are read when a tensor is first used.
  Raises MissingFileError, and StateError for a file that is damaged in any way, or has a type or version other than these.
  """
  refuse = refuser("gguf_load", path, "is not a whole GGUF file")
  data = Mapped("gguf_load", path)
  r = _Cursor(data, refuse)
  if (magic := r.bytes(4, "its name")) != b"GGUF": raise refuse(f"it begins with {magic!r}, expected b'GGUF'")
  version = r.number("<u4", "its version")
  if version not in (2, 3):
    raise refuse(f"it is of version {version}, or big-endian; little-endian ones of versions 2 and 3 are read")
  tensors, values = r.number("<u8", "the number of tensors"), r.number("<u8", "the number of values")
  metadata = dict[str, Any]()
  for _ in range(values):
    key = r.text("the name of a value")
    if key in metadata: raise refuse(f"the value {shown(key)} stands twice in it")
    metadata[key] = r.value(r.number("<u4", f"the type of {shown(key)}"), shown(key))
  entries = [_entry(r) for _ in range(tensors)]
  alignment = metadata.get("general.alignment", 32)
  if not isinstance(alignment, int) or isinstance(alignment, bool) or alignment < 1 or alignment & (alignment - 1):
    raise refuse(f"its general.alignment is {shown(alignment)}, expected a power of two")
  start = -(-r.at // alignment) * alignment
  _check_places(entries, start, len(data), alignment, refuse)
  return metadata, {e.name: _tensor(data, e, start, device) for e in entries}


def _tensor(data: Mapped, e: Entry, start: int, device: str | None) -> Tensor:
  source = partial(data.__getitem__, slice(start + e.begin, start + e.end))
  if e.kind in _PLAIN: return tensor_of(source, _PLAIN[e.kind], e.shape, device)
  return unpacked(tensor_of(source, dtypes.uint8, (e.end - e.begin,), device), QUANTISED[_TYPES[e.kind]], e.shape)


def _entry(r: _Cursor) -> Entry:
  r.take(2000)
  name = r.text("the name of a tensor")
  said = shown(name)
  ndim = r.number("<u4", f"the dimensions of {said}")
  if ndim > MAX_DIMS: raise r.refuse(f"{said} has {ndim} dimensions, a tensor has up to {MAX_DIMS}")
  shape = tuple([int(n) for n in np.frombuffer(r.bytes(8 * ndim, f"the sizes of {said}"), "<u8")][::-1])
  kind, begin = r.number("<u4", f"the type of {said}"), r.number("<u8", f"the place of {said}")
  if kind in _PLAIN: return Entry(name, kind, shape, begin, begin + checked_shape(shape, _PLAIN[kind], said, r.refuse))
  if (type_name := _TYPES.get(kind, kind)) not in QUANTISED:
    raise r.refuse(f"{said} is of type {type_name}; types: F32, F16, BF16, F64, I8, I16, I32, I64, {', '.join(QUANTISED)}")
  checked_shape(shape, dtypes.float32, said, r.refuse)
  how = QUANTISED[type_name]
  if not shape or shape[-1] % how.numbers:
    raise r.refuse(f"{said} of {type_name} has the shape {shape}; its last dimension comes in blocks of {how.numbers}")
  return Entry(name, kind, shape, begin, begin + math.prod(shape) // how.numbers * how.nbytes)


def _check_places(entries: list[Entry], start: int, size: int, alignment: int, refuse: Refuse) -> None:
  """Tensors lie in the file, where one may begin, and none in another."""
  at, before, names = 0, "", set()
  for e in sorted(entries, key=lambda e: (e.begin, e.end)):
    if e.name in names: raise refuse(f"the tensor {shown(e.name)} stands twice in it")
    names.add(e.name)
    if e.begin % alignment:
      raise refuse(f"{shown(e.name)} begins at byte {e.begin} of the data, which is no multiple of {alignment}")
    if start + e.end > size:
      raise refuse(f"{shown(e.name)} takes bytes {e.begin} to {e.end} of its {max(size - start, 0)} bytes of data "
                   "(the file may be truncated)")
    if e.begin < at: raise refuse(f"{shown(e.name)} begins at byte {e.begin} of the data, inside of {shown(before)}")
    at, before = e.end, e.name


class _Cursor:
  """Reads one value after the other from the file."""

  def __init__(self, data: Mapped, refuse: Refuse):
    self.refuse, self.at, self.all, self.room = refuse, 0, data[:].data, ROOM[0] + ROOM[1] * len(data)

  def take(self, n: int) -> None:
    """Charge n bytes of memory that values take."""
    self.room -= n
    if self.room < 0:
      raise self.refuse(f"its values take more than {ROOM[0] >> 20} MiB and {ROOM[1]} bytes for each of the file's")

  def bytes(self, n: int, what: str) -> bytes:
    if self.at + n > len(self.all): raise self.refuse(f"{what} takes {n} bytes at byte {self.at}, it has {len(self.all)} bytes")
    self.at += n
    return self.all[self.at - n:self.at].tobytes()

  def number(self, kind: str, what: str) -> Any:
    d = np.dtype(kind)
    return np.frombuffer(self.bytes(d.itemsize, what), d)[0].item()

  def text(self, what: str) -> str:
    """The next text: its length, and so many bytes of UTF-8."""
    try: found = self.bytes(self.number("<u8", what), what).decode()
    except UnicodeDecodeError as e: raise self.refuse(f"{what} is not UTF-8 ({e})") from None
    self.take(getsizeof(found) + 32)
    return found

  def value(self, kind: int, what: str, deep: int = 0) -> Any:
    """The next value of a type: a number, text, or a list of values of one type."""
    if kind == _TEXT: return self.text(what)
    self.take(150)
    if kind in _NUMBERS: return self.number(_NUMBERS[kind], what)
    if kind != _LIST or deep >= _DEEPEST:
      raise self.refuse(f"{what} is of type {kind}, expected 0 to 12, lists up to {_DEEPEST} deep")
    of, n = self.number("<u4", what), self.number("<u8", what)
    if of in _NUMBERS:
      d = np.dtype(_NUMBERS[of])
      self.take(n * (8 if d.itemsize == 1 else 40))
      return np.frombuffer(self.bytes(n * d.itemsize, what), d).tolist()
    return [self.value(of, what, deep + 1) for _ in range(n)]


# ---- quantised weights: what a block of bytes stands for, as an expression of the bytes

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


def _small(fifth: bool, least: bool) -> Callable[[Tensor], Tensor]:
  """The values of blocks of a scale, a minimum (``least``; else they are around 0), the fifth bits, and four bits of each."""
  def values(b: Tensor) -> Tensor:
    at = 4 if least else 2
    n, width = (qs := b[:, at + 4 * fifth:]).shape
    q = ((qs.reshape(n, 1, width) >> _counted(2, 4, qs, (2, 1))) & 15).reshape(n, 2 * width)   # the lower bits, then the upper
    if fifth: q = q | (((b[:, at:at + 4].reshape(-1, 4, 1) >> _counted(8, 1, b, (8,))) & 1) << 4).reshape(-1, 32)
    x = q.cast(dtypes.float32)
    return x * _half(b[:, :2]) + _half(b[:, 2:4]) if least else (x - (16 if fifth else 8)) * _half(b[:, :2])
  return values


def _scales(b: Tensor) -> list[Tensor]:
  """(blocks, 16) bytes: two float16 and twelve bytes that hold eight scales and eight minima of 6 bits -> both times their float,
  (blocks, 8, 1) float32."""
  n = b.shape[0]
  first, second, third = (b[:, i:i + 4].reshape(n, 1, 4) for i in (4, 8, 12))
  late = _counted(2, 1, b, (2, 1)) == 1   # the last four have their upper bits where the first four have room
  scale = late.where((third & 15) | ((first >> 6) << 4), first & 63)
  least = late.where((third >> 4) | ((second >> 6) << 4), second & 63)
  return [(x.cast(dtypes.float32).reshape(n, 8) * _half(b[:, at:at + 2])).reshape(n, 8, 1) for x, at in ((scale, 0), (least, 2))]


def _large(fifth: bool) -> Callable[[Tensor], Tensor]:
  """The values of blocks of scales and minima, the fifth bits, and four bits of each."""
  def values(b: Tensor) -> Tensor:
    scale, least = _scales(b[:, :16])
    # of each 32 bytes the lower four bits, then the upper ones: (blocks, 8, 32)
    q = (b[:, 48 if fifth else 16:].reshape(-1, 4, 1, 32) >> _counted(2, 4, b, (2, 1))).reshape(-1, 8, 32) & 15
    if fifth: q = q | (((b[:, 16:48].reshape(-1, 1, 32) >> _counted(8, 1, b, (8, 1))) & 1) << 4)
    return (q.cast(dtypes.float32) * scale - least).reshape(-1, 256)
  return values


def _q6_k(b: Tensor) -> Tensor:
  # two halves of 128 numbers, each four times 32: the lower four bits in 64 bytes, the upper two in 32
  low = b[:, :128].reshape(-1, 2, 1, 2, 32) >> _counted(2, 4, b, (2, 1, 1)) & 15
  high = b[:, 128:192].reshape(-1, 2, 1, 32) >> _counted(4, 2, b, (4, 1)) & 3
  q = (low.reshape(-1, 2, 4, 32) | (high << 4)).cast(dtypes.float32) - 32
  scale = b[:, 192:208].bitcast(dtypes.int8).cast(dtypes.float32) * _half(b[:, 208:210])
  return (q.reshape(-1, 16, 16) * scale.reshape(-1, 16, 1)).reshape(-1, 256)


QUANTISED = {
  "Q4_0": Format(32, 18, _small(False, False)), "Q4_1": Format(32, 20, _small(False, True)),
  "Q5_0": Format(32, 22, _small(True, False)), "Q5_1": Format(32, 24, _small(True, True)),
  "Q8_0": Format(32, 34, lambda b: b[:, 2:].bitcast(dtypes.int8).cast(dtypes.float32) * _half(b[:, :2])),
  "Q4_K": Format(256, 144, _large(False)), "Q5_K": Format(256, 176, _large(True)), "Q6_K": Format(256, 210, _q6_k)}


def unpacked(packed: Tensor, how: Format, shape: tuple[int, ...]) -> Tensor:
  """The float32 values of shape ``shape`` that the uint8 tensor ``packed`` (bytes,) holds: computed wherever they are used, also
  by functions that a jit captures, and never kept. They cannot be written."""
  out: Tensor = Base._own(how.values(packed.reshape(-1, how.nbytes)).reshape(shape))
  out._alias.packed = packed
  return out
