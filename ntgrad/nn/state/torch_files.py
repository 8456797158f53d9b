"""Files of torch.save, read without torch and without running what is in them, and written as ``torch.load`` reads them.

Three formats: a zip archive (``data.pkl`` beside a member with the bytes of each storage; torch 1.6 and later), several pickles
one after the other with the storages behind them (before 1.6), and a tar archive (0.1). A pickle names its tensors as storage,
offset, size and strides; ``pickles.py`` reads it.
"""
from __future__ import annotations

import math
import os
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ntgrad.codegen.ir import ArgumentError, DType, Ops, StateError, shown
from ntgrad.core import MAX_DIMS
from ntgrad.graph import checked
from ntgrad.graph.nodes import shrink
from ntgrad.graph.origins import called
from ntgrad.tensor import Tensor

from . import files
from .archives import is_zip, member_bytes, tar_members, zip_members
from .files import Mapped, Refuse, checked_bools, checked_shape, dtypes_in, host_bytes, refuser, swapped, tensor_of
from .pickles import ROOM, Called, Loaded, key, load, pairs, text_bytes

_MAGIC, _VERSION = 0x1950a86a20f9469cfc6c, 1001   # of files before torch 1.6
STORAGES = dtypes_in("Float:float32 Double:float64 Half:float16 BFloat16:bfloat16 Long:int64 Int:int32 Short:int16 Char:int8 "
                       "Byte:uint8 Bool:bool")
DTYPES = {d.name: d for d in STORAGES.values()} | dtypes_in(
  "uint16:uint16 uint32:uint32 uint64:uint64 float8_e5m2:float8_e5m2 float8_e4m3fn:float8_e4m3 float8_e8m0fnu:float8_e8m0")
_STORAGES, _NAMES = [{d: name for name, d in table.items()} for table in (STORAGES, DTYPES)]
_FOLDER = "archive"   # of files that are written
_ALIGN = 64   # bytes of a tensor begin at a multiple of it, as torch has them
_ABSENT = "ComplexFloat ComplexDouble ComplexHalf QInt8 QUInt8 QInt32 QUInt4x2 QUInt2x4".split()


@dataclass
class _Kind:
  """A class of storages: its dtype, None for bytes alone; or the name of one that ntgrad has not."""
  dtype: DType | None
  absent: str = ""


# classes and dtypes that a pickle names
_KNOWN: dict[str, Any] = {
  **{f"{module}.{n}Storage": _Kind(d) for module in ("torch", "torch.cuda") for n, d in STORAGES.items()},
  **{f"torch.{n}Storage": _Kind(None, n) for n in _ABSENT}, **{f"torch.{n}": d for n, d in DTYPES.items()},
  **dict.fromkeys(("torch.storage.UntypedStorage", "torch.UntypedStorage"), _Kind(None)),
  **dict.fromkeys(["torch.nn.parameter.Parameter", "torch._utils.Tensor", "torch.Tensor"], Tensor),
  **{f"torch.{n}Tensor": Tensor for n in STORAGES}}


@dataclass(eq=False)
class _Storage:
  """Memory that tensors share: its key in the file, and how to read it as a tensor of one dimension."""
  key: str
  nbytes: int
  dtype: DType | None
  read: Any = None
  packed = False


class _Reader:
  """Makes the tensors that a pickle describes."""

  def __init__(self, device: str | None, refuse: Refuse):
    self.device, self.refuse, self.swapped = device, refuse, False
    self.storages = dict[str, _Storage]()
    self.flat = dict[tuple[str, DType], Tensor]()   # a storage, seen as a dtype
    functions: dict[str, Callable[..., Any]] = {
      "torch._utils._rebuild_tensor": lambda storage, offset, size, strides: self.tensor(storage, offset, size, strides),
      "torch._utils._rebuild_tensor_v2": self.tensor_v2, "torch._utils._rebuild_tensor_v3": self.tensor_v3,
      "torch._utils._rebuild_parameter": self.parameter, "torch._utils._rebuild_parameter_with_state": self.parameter,
      "torch._tensor._rebuild_from_type_v2": self.of_type, "torch.device": _device,
      "torch.Size": lambda x=(): tuple(_said("a size", x, isinstance(x, (list, tuple)) and all(map(_natural, x)))),
      "torch.serialization._get_layout": lambda name: _said("a layout", name, _are_text(name)),
      "collections.OrderedDict": _ordered, "collections.Counter": _ordered,
      "builtins.set": lambda x=(): set(map(key, _plain(x))), "builtins.frozenset": lambda x=(): frozenset(map(key, _plain(x))),
      "builtins.complex": lambda a, b=0.0: complex(*_numbers(a, b)), "builtins.slice": lambda *x: slice(*_numbers(*x)),
      **dict.fromkeys(("builtins.range", "builtins.xrange"), lambda *x: range(*_numbers(*x))),   # as Python 2 calls it
      "builtins.bytearray": lambda x=b"", *how: text_bytes(x, *how), "_codecs.encode": text_bytes}
    self.known = _KNOWN | {name: Called(name, fn, 1500 if "_rebuild_" in name else 64) for name, fn in functions.items()}

  def load(self, data: memoryview, at: int = 0, persistent: Callable[[Any], Any] | None = None,
           size: int | None = None) -> Loaded:
    return load(data, self.known, persistent or self.persistent, self.refuse, at, size)

  def persistent(self, pid: Any) -> _Storage:
    if not isinstance(pid, tuple) or len(pid) not in (5, 6) or not _are_text(pid[0], pid[2]) or pid[0] != "storage":
      raise self.refuse(f"its pickle asks for {shown(pid)}, which is no storage")
    _, kind, name, _, numel, *view = pid
    if view and view[0] is not None: raise self.refuse(f"the storage {shown(name)} is a view of another, as torch 0.1 wrote them")
    return self.storage(name, kind, numel)

  def storage(self, key: str, kind: Any, numel: Any) -> _Storage:
    """A storage of a class and a number of elements, the same each time."""
    if isinstance(kind, _Kind) and kind.absent:
      raise self.refuse(f"it holds a storage of {kind.absent}, and ntgrad has no such dtype")
    if not isinstance(kind, _Kind) or not _natural(numel):
      raise self.refuse(f"the storage {shown(key)} has {shown(numel)} elements of {shown(kind)}")
    new = _Storage(key, numel * (kind.dtype.itemsize if kind.dtype else 1), kind.dtype)
    found = self.storages.setdefault(key, new)
    if (found.nbytes, found.dtype) != (new.nbytes, new.dtype):
      raise self.refuse(f"the storage {shown(key)} is described in two ways")
    return found

  # ---- what pickles call
  def tensor(self, storage: Any, offset: Any, size: Any, strides: Any, dtype: DType | None = None) -> Tensor:
    """A view of a storage; all views of one share its memory."""
    refuse = self.refuse
    if not isinstance(storage, _Storage): raise refuse(f"a tensor of {shown(storage)}, which is no storage")
    d = storage.dtype if dtype is None else dtype
    if not isinstance(d, DType): raise refuse(f"a tensor of the dtype {shown(d)}")
    if not (isinstance(size, tuple) and isinstance(strides, tuple) and len(size) == len(strides)
            and all(_natural(n) for n in (*size, *strides, offset))):
      raise refuse(f"a tensor of size {shown(size)}, strides {shown(strides)} and offset {shown(offset)}")
    checked_shape(size, d, "a tensor", refuse)
    if 0 in size: return Tensor.empty(*size, dtype=d, device=self.device)
    end = offset + sum((n - 1) * s for n, s in zip(size, strides)) + 1
    if end > storage.nbytes // d.itemsize:
      raise refuse(f"a tensor takes elements {offset} to {end} of a storage of {storage.nbytes // d.itemsize} elements")
    if (flat := self.flat.get((storage.key, d))) is None:
      read = checked_bools(storage.read, d, storage.nbytes, storage.packed, f"the storage {shown(storage.key)}", refuse)
      if self.swapped and d.itemsize > 1: read = swapped(read, d.itemsize)
      flat = self.flat[storage.key, d] = tensor_of(read, d, (storage.nbytes // d.itemsize,), self.device)
    return _view(flat, offset, end, size, strides)

  def tensor_v2(self, storage: Any, offset: Any, size: Any, strides: Any, requires_grad: Any = False, hooks: Any = None,
                metadata: Any = None) -> Tensor:
    return self.parameter(self.tensor(storage, offset, size, strides), requires_grad)

  def tensor_v3(self, storage: Any, offset: Any, size: Any, strides: Any, requires_grad: Any, hooks: Any, dtype: Any,
                metadata: Any = None) -> Tensor:
    if not isinstance(dtype, DType): raise self.refuse(f"a tensor of the dtype {shown(dtype)}")
    return self.parameter(self.tensor(storage, offset, size, strides, dtype), requires_grad)

  def parameter(self, data: Any, requires_grad: Any = False, hooks: Any = None, state: Any = None) -> Tensor:
    if not isinstance(data, Tensor): raise self.refuse(f"a parameter of {shown(data)}, which is no tensor")
    if requires_grad is True and data.dtype.kind == "f": data.requires_grad = True
    return data

  def of_type(self, fn: Any, kind: Any, args: Any, state: Any) -> Tensor:
    """A tensor with attributes, which are left out."""
    if not isinstance(fn, Called) or "_rebuild_" not in fn.name or not isinstance(args, tuple) or kind is not Tensor:
      raise self.refuse(f"a tensor of the class {shown(kind)}, made by {shown(fn)}")
    return self.parameter(fn.fn(*args))


def _natural(n: Any) -> bool: return isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 1 << 63
def _are_text(*x: Any) -> bool: return all(isinstance(s, str) for s in x)


def _said(what: str, x: Any, fits: bool) -> Any:
  if not fits: raise TypeError(f"{what} {shown(x)}")
  return x


def _device(kind: Any, index: Any = None) -> str:
  if not _are_text(kind) or not (index is None or _natural(index)): raise TypeError(f"a device {shown(kind)}, {shown(index)}")
  return str(kind) if index is None else f"{kind}:{index}"


def _numbers(*x: Any) -> tuple[Any, ...]:
  if not all(n is None or isinstance(n, (int, float)) for n in x): raise TypeError(f"{shown(x)} where numbers are expected")
  return x


def _plain(x: Any) -> Any:
  if not isinstance(x, (list, tuple, set, frozenset)): raise TypeError(f"{type(x).__name__} is no list")
  return x


def _ordered(found: Any = ()) -> dict[Any, Any]: return dict(found) if isinstance(found, dict) else pairs(_plain(found))


def _view(flat: Tensor, begin: int, end: int, size: Sequence[int], strides: Sequence[int]) -> Tensor:
  """Elements of a tensor of one dimension at offset, size and strides: a view of it; where windows overlap they are looked up
  when they are used."""
  size = tuple(map(int, size))
  if all(n == 1 or s == math.prod(size[i + 1:]) for i, (n, s) in enumerate(zip(size, strides))):
    return flat._seen((Ops.SHRINK, ((begin, end),)), (Ops.RESHAPE, size))
  from ntgrad.engine.interchange import gather_strided, strided
  base = flat.lazydata
  node = strided(shrink(base, [(begin, end)]), size, strides)
  if node is None: return Tensor._from_node(gather_strided(base, size, strides, begin))
  moves = list[Any]()
  while node is not base:
    moves.append((node.op, node.arg))
    node = node.src[0]
  return flat._seen(*moves[::-1])


# ---- the formats

@checked
def torch_load(path: str | os.PathLike[str], device: str | None = None, map_location: str | None = None,
               weights_only: bool = True) -> Any:
  """What torch.save wrote to the file at ``path``: a state dict, or tensors in lists, tuples and dicts beside plain values.

  Tensors come on ``device``, which PyTorch calls ``map_location`` (the default one if None), those that shared memory share it,
  and bytes are read when a tensor is first used. torch's dtypes come as ntgrad's, its devices as text, Size as a tuple,
  OrderedDict as a dict, Parameter as a Tensor that requires a gradient. Raises MissingFileError, and StateError for a file that
  is damaged or holds anything else: what a pickle says to run is never run, also without ``weights_only``. Plain values may take
  40 MiB and four bytes for each byte of the file, and are at most a hundred lists and dicts deep.
  """
  if device is not None and map_location is not None:
    raise ArgumentError(f"torch_load: device={device!r} and map_location={map_location!r}; give one of them")
  name, _ = called("torch_load")   # or what calls it
  refuse = refuser(name, path, "cannot be loaded")
  data = Mapped(name, path)
  form = _zip if is_zip(data) else _tar if data[257:262].tobytes() == b"ustar" else _pickles
  return form(data, _Reader(map_location if device is None else device, refuse), refuse)


def _zip(data: Mapped, reader: _Reader, refuse: Refuse) -> Any:
  members = zip_members(data, refuse)
  pickle = next((name for name in members if name.count("/") == 1 and name.endswith("/data.pkl")), None)
  if pickle is None: raise refuse("it is a zip archive without data.pkl")
  folder = pickle.removesuffix("data.pkl")
  if f"{folder}constants.pkl" in members: raise refuse("it is a TorchScript model, which is code; save a state dict in its place")
  if (order := members.get(f"{folder}byteorder")) is not None:
    said = member_bytes(data, "byteorder", order, refuse, 16).tobytes()
    if said not in (b"little", b"big"): raise refuse(f"its byte order is {shown(said)}, expected little or big")
    reader.swapped = said == b"big"

  def persistent(pid: Any) -> _Storage:
    s = reader.persistent(pid)
    m = members.get(name := f"{folder}data/{s.key}")
    if m is None: raise refuse(f"there is no {shown(name)} in it")
    if m.size < s.nbytes: raise refuse(f"{shown(name)} has {m.size} bytes, its storage {s.nbytes}")
    s.read, s.packed = lambda: member_bytes(data, name, m, refuse)[:s.nbytes], m.packed
    return s

  return reader.load(member_bytes(data, pickle, members[pickle], refuse, ROOM[0] // 4 + len(data)).data, 0, persistent,
                     len(data)).value


def _pickles(data: Mapped, reader: _Reader, refuse: Refuse) -> Any:
  # pickles first, then the storages: found in one round, so that tensors of the second know where their bytes are
  read, whole = reader.load, data[:].data
  try: magic, at = read(whole)
  except StateError: magic, at = None, 0
  if not isinstance(magic, int) or magic != _MAGIC:
    raise refuse("it is neither a zip archive nor a tar archive, nor one of torch before 1.6")
  version, at = read(whole, at)
  if not isinstance(version, int) or version != _VERSION: raise refuse(f"it has version {shown(version)}, expected {_VERSION}")
  info, begin = read(whole, at)
  reader.swapped = isinstance(info, dict) and info.get("little_endian") is False
  dry = _Dry(reader.device, refuse)
  keys, at = read(whole, dry.load(whole, begin).end)
  if not isinstance(keys, list) or not _are_text(*keys) or sorted(dry.storages) != sorted(keys):
    raise refuse(f"its storages are {shown(keys)}, its tensors are of {shown(sorted(dry.storages))}")
  places = dict[str, int]()
  for name in keys:
    s = dry.storages[name]
    numel = int.from_bytes(data[at:at + 8].tobytes(), "big" if reader.swapped else "little")
    if numel * (s.dtype.itemsize if s.dtype else 1) != s.nbytes or at + 8 + s.nbytes > len(data):
      raise refuse(f"the storage {shown(name)} of {s.nbytes} bytes is not whole")
    places[name] = at + 8
    at += 8 + s.nbytes

  def persistent(pid: Any) -> _Storage:
    s = reader.persistent(pid)
    s.read = lambda: data[places[s.key]:places[s.key] + s.nbytes]
    return s

  return read(whole, begin, persistent).value


class _Dry(_Reader):
  """Sees which storages a pickle names, and makes nothing."""
  def tensor(self, *_: Any) -> Any: return None
  def parameter(self, *_: Any) -> Any: return None


def _tar(data: Mapped, reader: _Reader, refuse: Refuse) -> Any:
  """As torch 0.1 wrote it: ``storages``, ``tensors`` that are views of them, and ``pickle``, which names tensors by number."""
  read = reader.load
  whole, members = tar_members(data, refuse)
  parts = {n: member_bytes(whole, n, m, refuse) for n, m in members.items() if n in ("storages", "tensors", "pickle")}
  if len(parts) != 3: raise refuse("it is a tar archive without storages, tensors and pickle")
  def counted(n: Any) -> range:
    if not _natural(n): raise refuse(f"it says that it has {shown(n)} storages or tensors")
    return range(n)

  kept = dict[Any, tuple[_Storage, int]]()   # by key: the storage, and where in it the one of this key begins
  part = parts["storages"]
  count, at = read(part.data)
  for _ in counted(count):
    said, at = read(part.data, at)
    name, _, kind = _three(said, refuse)
    s = reader.storage(str(name), kind, int.from_bytes(part[at:at + 8].tobytes(), "little"))
    s.read = partial(part.__getitem__, slice(at + 8, at + 8 + s.nbytes))
    at += 8 + s.nbytes
    if at > len(part): raise refuse(f"the storage {shown(name)} of {s.nbytes} bytes is not whole")
    kept[name] = s, 0
  views = read(part.data, at).value
  for view in views if isinstance(views, list) else []:
    if not isinstance(view, tuple) or len(view) != 4 or not _named(view[0]) or not _named(view[1]) or view[1] not in kept \
       or not _natural(view[2]):
      raise refuse(f"it says {shown(view)} of a storage that is a part of another")
    kept[view[0]] = kept[view[1]][0], kept[view[1]][1] + view[2]
  tensors = dict[str, Tensor]()
  part = parts["tensors"]
  count, at = read(part.data)
  for _ in counted(count):
    said, at = read(part.data, at)
    name, storage, _ = _three(said, refuse)
    ndim = int.from_bytes(part[at:at + 4].tobytes(), "little")
    numbers = part[at + 8:at + 8 + 8 * (2 * ndim + 1)] if ndim <= MAX_DIMS else part[:0]
    if storage not in kept or len(numbers) != 8 * (2 * ndim + 1): raise refuse(f"the tensor {shown(name)} is not whole")
    at += 8 + len(numbers)
    sizes = np.frombuffer(numbers.tobytes(), "<i8").tolist()
    s, begin = kept[storage]
    tensors[str(name)] = reader.tensor(s, sizes[-1] + begin, tuple(sizes[:ndim]), tuple(sizes[ndim:-1]))

  def persistent(pid: Any) -> Any:
    if isinstance(pid, tuple) and pid: return pid[0]
    if not _named(pid) or str(pid) not in tensors: raise refuse(f"its pickle asks for the tensor {shown(pid)}, which it has not")
    return tensors[str(pid)]

  return read(parts["pickle"].data, 0, persistent, len(data)).value


def _named(x: Any) -> bool:
  """Whether something is what torch 0.1 names storages and tensors by."""
  return isinstance(x, str) or _natural(x)


def _three(x: Any, refuse: Refuse) -> tuple[Any, Any, Any]:
  if not isinstance(x, tuple) or len(x) != 3 or not _named(x[0]) or not _named(x[1]):
    raise refuse(f"it says {shown(x)} of a storage or tensor")
  return x


# ---- writing

class _Writer:
  """The pickle of a value, and the tensors that are in it."""

  def __init__(self, refuse: Any) -> None:
    self.refuse, self.tensors, self.keys, self.above = refuse, list[Tensor](), dict[int, int](), list[int]()
    self.kept = dict[int, tuple[int, Any]]()   # lists, tuples and dicts by identity: their number in the pickle

  def code(self, x: Any) -> bytes:
    if x is None or isinstance(x, (bool, np.bool_)): return b"N" if x is None else b"\x88" if x else b"\x89"
    if isinstance(x, Tensor): return self.tensor(x)
    if isinstance(x, DType): return _name("torch", _NAMES.get(x, x.name))
    if isinstance(x, (int, np.integer)): return _int(int(x))
    if isinstance(x, (float, np.floating)): return b"G" + struct.pack(">d", float(x))
    if isinstance(x, str): return self.text(x)
    if not isinstance(x, (Mapping, list, tuple)):
      raise self.refuse(f"it has {shown(x)} ({type(x).__name__}); it takes tensors, numbers, text, lists, tuples and dicts")
    number = id(x)
    if number in self.above or len(self.above) > 100: raise self.refuse(f"{shown(x)} is in itself, or a hundred others deep")
    if number in self.kept: return b"j" + struct.pack("<I", self.kept[number][0])
    self.above.append(number)
    if isinstance(x, Mapping): out = b"}(" + b"".join(self.code(k) + self.code(v) for k, v in x.items()) + b"u"
    elif isinstance(x, list): out = b"](" + b"".join(map(self.code, x)) + b"e"
    else: out = b"(" + b"".join(map(self.code, x)) + b"t"
    self.above.pop()
    self.kept[number] = len(self.kept), x
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
    code, shape = self.code, tuple(map(int, t.shape))
    strides = tuple(math.prod(shape[i + 1:]) for i in range(len(shape)))
    typed = _STORAGES.get(t.dtype)
    kind = _name("torch", f"{typed}Storage") if typed else _name("torch.storage", "UntypedStorage")
    size = t.numel() if typed else t.nbytes()
    storage = b"(" + code("storage") + kind + code(str(key)) + code("cpu") + _int(size) + b"tQ"
    return (_name("torch._utils", "_rebuild_tensor_v2" if typed else "_rebuild_tensor_v3") + b"(" + storage + _int(0)
            + code(shape) + code(strides) + code(bool(t.requires_grad)) + _name("collections", "OrderedDict")
            + b")R" + (b"" if typed else code(t.dtype)) + b"tR")


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
  to = files.plain_file("torch_save", path, new=True)
  writer = _Writer(refuser("torch_save", path, "cannot be written"))
  pickle = b"\x80\x02" + writer.code(obj) + b"."
  with files.replacing(to) as f, zipfile.ZipFile(f, "w", zipfile.ZIP_STORED, allowZip64=True) as z:
    def write(name: str, data: Any) -> None:
      info = zipfile.ZipInfo(f"{_FOLDER}/{name}", (1980, 1, 1, 0, 0, 0))   # an early date: equal values are equal files
      gap = -(f.tell() + 30 + len(info.filename) + 20 + 4) % _ALIGN   # behind the header, its name and the field of large sizes
      info.extra = b"FB" + struct.pack("<H", gap) + b"Z" * gap
      with z.open(info, "w", force_zip64=True) as member: member.write(data)
    write("data.pkl", pickle)
    write("byteorder", sys.byteorder.encode())
    for key, t in enumerate(writer.tensors): write(f"data/{key}", host_bytes(t).data)
    write("version", b"3\n")
