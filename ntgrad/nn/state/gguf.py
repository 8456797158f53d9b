"""GGUF files, as llama.cpp has them: what a model is, its tokenizer, and weights that are mostly quantised.

A little-endian file: ``GGUF``, a version (2 or 3), how many tensors and how many values there are; the values (name, type,
value); the tensors (name, sizes with the fastest first, type, place); then, from a multiple of ``general.alignment`` bytes on,
their data (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
"""
from __future__ import annotations

import math
import os
from functools import partial
from sys import getsizeof
from typing import Any, NamedTuple

import numpy as np

from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.errors import StateError, shown
from ntgrad.codegen.ir.paths import shown_path
from ntgrad.core import MAX_DIMS
from ntgrad.graph.checks import checked
from ntgrad.tensor import Tensor

from .mapped import Mapped, Refuse, checked_shape, dtype_table, tensor_of
from .pickles import ROOM
from .quantised import QUANTISED, unpacked

_NUMBERS = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8"}
_TEXT, _LIST, _DEEPEST = 8, 9, 4
_PLAIN = {int(k): d for k, d in dtype_table(
  "0:float32 1:float16 24:int8 25:int16 26:int32 27:int64 28:float64 30:bfloat16").items()}
_TYPES = {int(k): name for k, name in [pair.split(":") for pair in (
  "2:Q4_0 3:Q4_1 6:Q5_0 7:Q5_1 8:Q8_0 9:Q8_1 10:Q2_K 11:Q3_K 12:Q4_K 13:Q5_K 14:Q6_K 15:Q8_K 16:IQ2_XXS 17:IQ2_XS 18:IQ3_XXS "
  "19:IQ1_S 20:IQ4_NL 21:IQ3_S 22:IQ2_S 23:IQ4_XS 29:IQ1_M 34:TQ1_0 35:TQ2_0 39:MXFP4").split()]}


class _Entry(NamedTuple):
  name: str
  kind: int
  shape: tuple[int, ...]
  begin: int
  nbytes: int


@checked
def gguf_load(path: str | os.PathLike[str], device: str | None = None) -> tuple[dict[str, Any], dict[str, Tensor]]:
  """What a GGUF file says of its model (``{"llama.block_count": 30, "tokenizer.ggml.tokens": [..], ..}``), and its tensors by
  name, on ``device`` (the default one if None), shapes with the slowest dimension first.

  Of quantised weights (Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K Q6_K) the bytes are kept, and a kernel that uses the float32 tensor
  computes it from them; such a tensor cannot be written. Bytes are read when a tensor is first used.

  Raises MissingFileError, and StateError for a file that is damaged in any way, or has a type or version other than these.
  """
  def refuse(why: str) -> StateError: return StateError(f"gguf_load: {shown_path(path)} is not a whole GGUF file: {why}")
  data = Mapped("gguf_load", path)
  r = _Cursor(data, refuse)
  if (magic := r.bytes(4, "its name")) != b"GGUF": raise refuse(f"it begins with {magic!r}, expected b'GGUF'")
  version = r.number("<u4", "its version")
  if version not in (2, 3):
    raise refuse(f"it is of version {version}, or big-endian; little-endian ones of versions 2 and 3 are read")
  tensors, values = r.number("<u8", "the number of tensors"), r.number("<u8", "the number of values")
  metadata: dict[str, Any] = {}
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


def _tensor(data: Mapped, e: _Entry, start: int, device: str | None) -> Tensor:
  source = partial(data.__getitem__, slice(start + e.begin, start + e.begin + e.nbytes))
  if e.kind in _PLAIN: return tensor_of(source, _PLAIN[e.kind], e.shape, device)
  return unpacked(tensor_of(source, dtypes.uint8, (e.nbytes,), device), QUANTISED[_TYPES[e.kind]], e.shape)


def _entry(r: _Cursor) -> _Entry:
  r.take(2000)
  name = r.text("the name of a tensor")
  said = shown(name)
  ndim = r.number("<u4", f"the dimensions of {said}")
  if ndim > MAX_DIMS: raise r.refuse(f"{said} has {ndim} dimensions, a tensor has up to {MAX_DIMS}")
  shape = tuple([int(n) for n in np.frombuffer(r.bytes(8 * ndim, f"the sizes of {said}"), "<u8")][::-1])
  kind, begin = r.number("<u4", f"the type of {said}"), r.number("<u8", f"the place of {said}")
  if kind in _PLAIN: return _Entry(name, kind, shape, begin, checked_shape(shape, _PLAIN[kind], said, r.refuse))
  if (type_name := _TYPES.get(kind, kind)) not in QUANTISED:
    raise r.refuse(f"{said} is of type {type_name}; types: F32, F16, BF16, F64, I8, I16, I32, I64, "
                   f"{', '.join(QUANTISED)}")
  checked_shape(shape, dtypes.float32, said, r.refuse)
  how = QUANTISED[type_name]
  if not shape or shape[-1] % how.numbers:
    raise r.refuse(f"{said} of {type_name} has the shape {shape}; its last dimension comes in blocks of {how.numbers}")
  return _Entry(name, kind, shape, begin, math.prod(shape) // how.numbers * how.nbytes)


def _check_places(entries: list[_Entry], start: int, size: int, alignment: int, refuse: Refuse) -> None:
  """Tensors lie in the file, where one may begin, and none in another."""
  at, before, names = 0, "", set()
  for e in sorted(entries, key=lambda e: (e.begin, e.nbytes)):
    if e.name in names: raise refuse(f"the tensor {shown(e.name)} stands twice in it")
    names.add(e.name)
    if e.begin % alignment:
      raise refuse(f"{shown(e.name)} begins at byte {e.begin} of the data, which is no multiple of {alignment}")
    if start + e.begin + e.nbytes > size:
      raise refuse(f"{shown(e.name)} takes bytes {e.begin} to {e.begin + e.nbytes} of its {max(size - start, 0)} bytes of data "
                   "(the file may be truncated)")
    if e.begin < at: raise refuse(f"{shown(e.name)} begins at byte {e.begin} of the data, inside of {shown(before)}")
    at, before = e.begin + e.nbytes, e.name


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
