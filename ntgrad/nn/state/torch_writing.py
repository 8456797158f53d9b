"""Files as torch.save writes them (torch 1.6 and later), written without torch: a zip archive of a pickle and of each tensor's
bytes. ``torch.load`` and :func:`torch_load` read them."""
from __future__ import annotations

import math
import os
import struct
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from ntgrad.codegen.ir.dtype import DType
from ntgrad.codegen.ir.errors import StateError, shown
from ntgrad.codegen.ir.paths import shown_path
from ntgrad.graph.checks import checked
from ntgrad.nn.files import plain_file, replaced_when_whole
from ntgrad.tensor import Tensor

from .mapped import host_bytes
from .torch_files import DTYPES, STORAGES

_STORAGES = {d: name for name, d in STORAGES.items()}
_NAMES = {d: name for name, d in DTYPES.items()}
_FOLDER = "archive"
_ALIGN = 64   # bytes of a tensor begin at a multiple of it, as torch has them


class _Writer:
  """The pickle of a value, and the tensors that are in it."""

  def __init__(self, refuse: Any) -> None:
    self.refuse, self.tensors, self.keys, self.above = refuse, list[Tensor](), dict[int, int](), list[int]()
    self.kept: dict[int, tuple[int, Any]] = {}   # lists, tuples and dicts by identity: their number in the pickle

  def code(self, x: Any) -> bytes:
    if x is None or isinstance(x, (bool, np.bool_)): return b"N" if x is None else b"\x88" if x else b"\x89"
    if isinstance(x, Tensor): return self.tensor(x)
    if isinstance(x, DType): return _name("torch", _NAMES.get(x, x.name))
    if isinstance(x, (int, np.integer)): return _int(int(x))
    if isinstance(x, (float, np.floating)): return b"G" + struct.pack(">d", float(x))
    if isinstance(x, str): return self.text(x)
    if not isinstance(x, (Mapping, list, tuple)):
      raise self.refuse(f"it has {shown(x)} ({type(x).__name__}); it takes tensors, numbers, text, lists, tuples and dicts")
    if id(x) in self.above or len(self.above) > 100: raise self.refuse(f"{shown(x)} is in itself, or a hundred others deep")
    if id(x) in self.kept: return b"j" + struct.pack("<I", self.kept[id(x)][0])
    self.above.append(id(x))
    if isinstance(x, Mapping): out = b"}(" + b"".join([self.code(k) + self.code(v) for k, v in x.items()]) + b"u"
    elif isinstance(x, list): out = b"](" + b"".join(map(self.code, x)) + b"e"
    else: out = b"(" + b"".join(map(self.code, x)) + b"t"
    self.above.pop()
    self.kept[id(x)] = len(self.kept), x
    return out + b"r" + struct.pack("<I", len(self.kept) - 1)

  def text(self, x: str) -> bytes:
    try: said = x.encode()
    except UnicodeError: raise self.refuse(f"the text {shown(x)} cannot be written as UTF-8") from None
    return b"X" + struct.pack("<I", len(said)) + said

  def tensor(self, t: Tensor) -> bytes:
    """A tensor in memory of its own; one that comes again is the same memory."""
    if (key := self.keys.get(id(t))) is None:
      key = self.keys[id(t)] = len(self.tensors)
      self.tensors.append(t)
    shape = tuple(map(int, t.shape))
    strides = tuple(math.prod(shape[i + 1:]) for i in range(len(shape)))
    typed = _STORAGES.get(t.dtype)
    kind = _name("torch", typed + "Storage") if typed else _name("torch.storage", "UntypedStorage")
    size = t.numel() if typed else t.nbytes()
    storage = b"(" + self.code("storage") + kind + self.code(str(key)) + self.code("cpu") + _int(size) + b"tQ"
    rebuild = _name("torch._utils", "_rebuild_tensor_v2" if typed else "_rebuild_tensor_v3")
    grad, hooks = self.code(bool(t.requires_grad)), _name("collections", "OrderedDict") + b")R"
    kept = _int(0) + self.code(shape) + self.code(strides) + grad + hooks + (b"" if typed else self.code(t.dtype))
    return rebuild + b"(" + storage + kept + b"tR"


def _name(module: str, name: str) -> bytes: return f"c{module}\n{name}\n".encode()


def _int(x: int) -> bytes:
  if 0 <= x < 1 << 31: return b"J" + struct.pack("<i", x)
  data = x.to_bytes(x.bit_length() // 8 + 1, "little", signed=True)
  return b"\x8a" + bytes([len(data)]) + data if len(data) < 256 else b"\x8b" + struct.pack("<I", len(data)) + data


@checked
def torch_save(obj: Any, path: str | os.PathLike[str]) -> None:
  """Write a state dict, or tensors in lists, tuples and dicts beside numbers and text, to a file that ``torch.load`` reads.

  A tensor is written without what it is a view of; one that is there twice is written once. What is not computed yet is computed
  when its turn comes. A file that was there is replaced only when the new one is whole. Raises StateError for anything else in
  ``obj`` and for a path where a folder or a device is; MissingFileError where there is no such folder.
  """
  import zipfile
  to = plain_file("torch_save", path, new=True)
  writer = _Writer(lambda why: StateError(f"torch_save: {shown_path(path)} cannot be written: {why}"))
  pickle = b"\x80\x02" + writer.code(obj) + b"."
  with replaced_when_whole(to) as f, zipfile.ZipFile(f, "w", zipfile.ZIP_STORED, allowZip64=True) as z:
    def write(name: str, data: Any) -> None:
      info = zipfile.ZipInfo(f"{_FOLDER}/{name}", (1980, 1, 1, 0, 0, 0))   # an early date: equal values are equal files
      gap = -(f.tell() + 30 + len(info.filename) + 20 + 4) % _ALIGN   # behind the header, its name and the field of large sizes
      info.extra = b"FB" + struct.pack("<H", gap) + b"Z" * gap
      with z.open(info, "w", force_zip64=True) as member: member.write(data)
    write("data.pkl", pickle)
    write("byteorder", sys.byteorder.encode())
    for key, t in enumerate(writer.tensors): write(f"data/{key}", host_bytes(t).data)
    write("version", b"3\n")
