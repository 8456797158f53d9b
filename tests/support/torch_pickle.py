"""Files as torch.save writes them, put together by hand: pickles instruction by instruction, and what is around them."""
from __future__ import annotations

import io
import struct
import tarfile
import zipfile
from collections.abc import Mapping
from typing import Any, NamedTuple


class Name(NamedTuple):
  """A name of a module, as ``torch.FloatStorage``."""
  module: str
  name: str


class Call(NamedTuple):
  """A call of a function by name."""
  fn: Name
  args: tuple[Any, ...]
  state: Any = None   # attributes that the result is given


class Kept(NamedTuple):
  """What is kept outside of the pickle."""
  pid: Any


class Raw(NamedTuple):
  """Instructions as they are."""
  code: bytes


def storage(kind: str, key: str, numel: int, module: str = "torch") -> Kept:
  return Kept(("storage", Name(module, kind), key, "cpu", numel))


def tensor(of: Kept, offset: int, size: tuple[int, ...], stride: tuple[int, ...], requires_grad: bool = False) -> Call:
  return Call(Name("torch._utils", "_rebuild_tensor_v2"), (of, offset, size, stride, requires_grad, ordered()))


def ordered(*pairs: tuple[Any, Any], state: Any = None) -> Call:
  return Call(Name("collections", "OrderedDict"), ([list(p) for p in pairs],) if pairs else (), state)


def pickled(x: Any) -> bytes:
  """A pickle of protocol 2."""
  return b"\x80\x02" + code(x) + b"."


def code(x: Any) -> bytes:
  """The instructions that make a value."""
  if isinstance(x, Raw): return x.code
  if isinstance(x, Name): return f"c{x.module}\n{x.name}\n".encode()
  if isinstance(x, Call): return code(x.fn) + code(x.args) + b"R" + (b"" if x.state is None else code(x.state) + b"b")
  if isinstance(x, Kept): return code(x.pid) + b"Q"
  if x is None or isinstance(x, bool): return {None: b"N", True: b"\x88", False: b"\x89"}[x]
  if isinstance(x, int):
    n = x.to_bytes(x.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(n)]) + n
  if isinstance(x, float): return b"G" + struct.pack(">d", x)
  if isinstance(x, str): return b"X" + struct.pack("<I", len(x.encode())) + x.encode()
  if isinstance(x, tuple): return b"(" + b"".join(map(code, x)) + b"t"
  if isinstance(x, list): return b"](" + b"".join(map(code, x)) + b"e"
  if isinstance(x, dict): return b"}(" + b"".join(code(k) + code(v) for k, v in x.items()) + b"u"
  raise TypeError(type(x))


def zipped(x: Any, storages: Mapping[str, bytes], order: bytes = b"little", compressed: bool = False) -> bytes:
  """A file of torch 1.6 or later."""
  out = io.BytesIO()
  with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED) as z:
    z.writestr("archive/data.pkl", pickled(x))
    z.writestr("archive/byteorder", order)
    for key, data in storages.items(): z.writestr(f"archive/data/{key}", data)
    z.writestr("archive/version", "3\n")
  return out.getvalue()


def in_line(x: Any, storages: Mapping[str, tuple[int, bytes]]) -> bytes:
  """A file before torch 1.6; ``storages`` are elements and bytes."""
  info = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
  inner = pickled(x).replace(b"tQ", b"NtQ")   # a storage is said to be no view of another one
  head = pickled(0x1950a86a20f9469cfc6c) + pickled(1001) + pickled(info) + inner + pickled(sorted(storages))
  return head + b"".join(struct.pack("<q", storages[k][0]) + storages[k][1] for k in sorted(storages))


def tarred(x: Any, storages: Mapping[int, tuple[str, int, bytes]],
           tensors: Mapping[int, tuple[int, tuple[int, ...], tuple[int, ...], int]],
           views: list[tuple[int, int, int, int]]) -> bytes:
  """A file of torch 0.1: storages (type, elements, bytes), tensors (storage, size, strides, offset), storages that are parts."""
  first = pickled(len(storages))
  for key, (kind, numel, data) in storages.items():
    first += pickled((key, "cpu", Name("torch", kind + "Storage"))) + struct.pack("<q", numel) + data
  second = pickled(len(tensors))
  for key, (of, size, stride, offset) in tensors.items():
    second += pickled((key, of, Name("torch", "FloatTensor")))
    second += struct.pack(f"<q{2 * len(size) + 1}q", len(size), *size, *stride, offset)
  out = io.BytesIO()
  with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
    for name, data in (("sys_info", pickled({})), ("pickle", pickled(x)), ("tensors", second),
                       ("storages", first + pickled(views))):
      info = tarfile.TarInfo(name)
      info.size = len(data)
      tar.addfile(info, io.BytesIO(data))
  return out.getvalue()
