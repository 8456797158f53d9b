"""Files of torch.save, read without torch and without running what is in them.

Three formats: a zip archive (``data.pkl`` beside a member with the bytes of each storage; torch 1.6 and later), several pickles
one after the other with the storages behind them (before 1.6), and a tar archive (0.1). A pickle names its tensors as storage,
offset, size and strides; ``pickles.py`` reads it.
"""
from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

import numpy as np

from ntgrad.checks import checked
from ntgrad.codegen.dtype import DType, dtypes
from ntgrad.codegen.errors import ArgumentError, StateError, shown
from ntgrad.codegen.uop import MOVEMENT
from ntgrad.core import MAX_DIMS
from ntgrad.graph import shrink
from ntgrad.nn.state.archives import Stream, is_zip, member_bytes, tar_members, zip_members
from ntgrad.nn.state.mapped import Bytes, Mapped, Refuse, check_bools, checked_shape, tensor_of
from ntgrad.nn.state.pickles import Called, load
from ntgrad.tensor import Tensor

_MAGIC, _VERSION = 0x1950a86a20f9469cfc6c, 1001   # of files before torch 1.6
STORAGES = {"Float": dtypes.float32, "Double": dtypes.float64, "Half": dtypes.float16, "BFloat16": dtypes.bfloat16,
            "Long": dtypes.int64, "Int": dtypes.int32, "Short": dtypes.int16, "Char": dtypes.int8, "Byte": dtypes.uint8,
            "Bool": dtypes.bool}
DTYPES = {d.name: d for d in (*STORAGES.values(), dtypes.uint16, dtypes.uint32, dtypes.uint64, dtypes.float8_e5m2)} | {
  "float8_e4m3fn": dtypes.float8_e4m3, "float8_e8m0fnu": dtypes.float8_e8m0}
_ABSENT = ("ComplexFloat", "ComplexDouble", "ComplexHalf", "QInt8", "QUInt8", "QInt32", "QUInt4x2", "QUInt2x4")


class _Kind:
  """A class of storages: its dtype, None for bytes alone."""
  def __init__(self, dtype: DType | None): self.dtype = dtype


class _Storage:
  """Memory that tensors share: its key in the file, and how to read it as a tensor of one dimension."""
  def __init__(self, key: str, nbytes: int, dtype: DType | None): self.key, self.nbytes, self.dtype = key, nbytes, dtype
  read: Callable[[], Bytes]


class _Reader:
  """Makes the tensors that a pickle describes."""

  def __init__(self, device: str | None, refuse: Refuse):
    self.device, self.refuse, self.swapped = device, refuse, False
    self.storages: dict[str, _Storage] = {}
    self.flat: dict[tuple[str, DType], Tensor] = {}   # a storage, seen as a dtype
    known: dict[str, Any] = {}
    for module in ("torch", "torch.cuda"): known |= {f"{module}.{n}Storage": _Kind(d) for n, d in STORAGES.items()}
    known |= {f"torch.{n}": d for n, d in DTYPES.items()} | {f"torch.{n}Tensor": Tensor for n in STORAGES}
    known |= {"torch.storage.UntypedStorage": _Kind(None), "torch.UntypedStorage": _Kind(None), "torch.Tensor": Tensor,
              "torch.nn.parameter.Parameter": Tensor, "torch._utils.Tensor": Tensor}
    functions: dict[str, Callable[..., Any]] = {
      "torch._utils._rebuild_tensor": lambda storage, offset, size, strides: self.tensor(storage, offset, size, strides),
      "torch._utils._rebuild_tensor_v2": self.tensor_v2, "torch._utils._rebuild_tensor_v3": self.tensor_v3,
      "torch._utils._rebuild_parameter": self.parameter, "torch._utils._rebuild_parameter_with_state": self.parameter,
      "torch._tensor._rebuild_from_type_v2": self.of_type, "torch.Size": lambda size=(): tuple(size), "torch.device": _device,
      "torch.serialization._get_layout": str, "collections.OrderedDict": _ordered, "collections.Counter": _ordered,
      "builtins.set": lambda x=(): set(_plain(x)), "builtins.frozenset": lambda x=(): frozenset(_plain(x)),
      "builtins.complex": lambda a, b=0.0: complex(a, b), "builtins.slice": slice, "builtins.range": range,
      "builtins.bytearray": lambda x=b"", *how: _text_bytes(x, *how), "_codecs.encode": _text_bytes}
    known |= {name: Called(name, fn) for name, fn in functions.items()}
    for n in _ABSENT: known[f"torch.{n}Storage"] = _Absent(n)
    self.known = known

  def load(self, f: BinaryIO, persistent: Callable[[Any], Any] | None = None) -> Any:
    """The value of a pickle."""
    return load(f, self.known, persistent or self.persistent, self.refuse)

  def persistent(self, pid: Any) -> _Storage:
    """A storage that a pickle names."""
    if not isinstance(pid, tuple) or len(pid) not in (5, 6) or pid[0] != "storage" or not isinstance(pid[2], str):
      raise self.refuse(f"its pickle asks for {shown(pid)}, which is no storage")
    _, kind, key, _, numel, *view = pid
    if view and view[0] is not None: raise self.refuse(f"the storage {key!r} is a view of another one, as torch 0.1 wrote them")
    return self.storage(key, kind, numel)

  def storage(self, key: str, kind: Any, numel: Any) -> _Storage:
    """A storage of a class and a number of elements, the same each time."""
    if isinstance(kind, _Absent): raise self.refuse(f"it holds a storage of {kind.name}, and ntgrad has no such dtype")
    if not isinstance(kind, _Kind) or not _natural(numel):
      raise self.refuse(f"the storage {key!r} has {shown(numel)} elements of {shown(kind)}")
    new = _Storage(key, numel * (kind.dtype.itemsize if kind.dtype else 1), kind.dtype)
    found = self.storages.setdefault(key, new)
    if (found.nbytes, found.dtype) != (new.nbytes, new.dtype): raise self.refuse(f"the storage {key!r} is described in two ways")
    return found

  # ---- what pickles call
  def tensor(self, storage: Any, offset: Any, size: Any, strides: Any, dtype: DType | None = None) -> Tensor:
    """A view of a storage; all views of one share its memory."""
    if not isinstance(storage, _Storage): raise self.refuse(f"a tensor of {shown(storage)}, which is no storage")
    d = storage.dtype if dtype is None else dtype
    if d is None or not isinstance(d, DType): raise self.refuse(f"a tensor of the dtype {shown(d)}")
    if not (isinstance(size, tuple) and isinstance(strides, tuple) and len(size) == len(strides)
            and all(_natural(n) for n in (*size, *strides, offset))):
      raise self.refuse(f"a tensor of size {shown(size)}, strides {shown(strides)} and offset {shown(offset)}")
    checked_shape(size, d, "a tensor", self.refuse)
    if 0 in size: return Tensor.empty(*size, dtype=d, device=self.device)
    end = offset + sum((n - 1) * s for n, s in zip(size, strides)) + 1
    if end > storage.nbytes // d.itemsize:
      raise self.refuse(f"a tensor takes elements {offset} to {end} of a storage of {storage.nbytes // d.itemsize} elements")
    if (storage.key, d) not in self.flat: self.flat[storage.key, d] = self.flat_tensor(storage, d)
    return _view(self.flat[storage.key, d], offset, end, size, strides)

  def flat_tensor(self, storage: _Storage, d: DType) -> Tensor:
    """All elements of a storage."""
    if d is dtypes.bool: check_bools(storage.read(), d, f"the storage {storage.key!r}", self.refuse)
    def source() -> Bytes:
      data = storage.read()
      return data.view(f"u{d.itemsize}").byteswap().view(np.uint8) if self.swapped and d.itemsize > 1 else data
    return tensor_of(source, d, (storage.nbytes // d.itemsize,), self.device)

  def tensor_v2(self, storage: Any, offset: Any, size: Any, strides: Any, requires_grad: Any = False, hooks: Any = None,
                metadata: Any = None) -> Tensor:
    """A tensor of a storage with a dtype."""
    return self.parameter(self.tensor(storage, offset, size, strides), requires_grad)

  def tensor_v3(self, storage: Any, offset: Any, size: Any, strides: Any, requires_grad: Any, hooks: Any, dtype: Any,
                metadata: Any = None) -> Tensor:
    """A tensor of a storage of bytes."""
    if not isinstance(dtype, DType): raise self.refuse(f"a tensor of the dtype {shown(dtype)}")
    return self.parameter(self.tensor(storage, offset, size, strides, dtype), requires_grad)

  def parameter(self, data: Any, requires_grad: Any = False, hooks: Any = None, state: Any = None) -> Tensor:
    """A tensor that requires a gradient, or not."""
    if not isinstance(data, Tensor): raise self.refuse(f"a parameter of {shown(data)}, which is no tensor")
    if requires_grad is True and data.dtype.kind == "f": data.requires_grad = True
    return data

  def of_type(self, fn: Any, kind: Any, args: Any, state: Any) -> Tensor:
    """A tensor with attributes, which are left out."""
    if not isinstance(fn, Called) or "_rebuild_" not in fn.name or not isinstance(args, tuple) or kind is not Tensor:
      raise self.refuse(f"a tensor of the class {shown(kind)}, made by {shown(fn)}")
    return self.parameter(fn.fn(*args))


class _Absent:
  """A class of storages whose dtype ntgrad has not."""
  def __init__(self, name: str): self.name = name


def _natural(n: Any) -> bool: return isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 1 << 63
def _device(kind: str, index: int | None = None) -> str: return str(kind) if index is None else f"{kind}:{index}"


def _plain(x: Any) -> Any:
  if not isinstance(x, (list, tuple, set, frozenset)): raise TypeError(f"{type(x).__name__} is no list")
  return x


def _ordered(pairs: Any = ()) -> dict[Any, Any]:
  return dict(pairs) if isinstance(pairs, dict) else {k: v for k, v in _plain(pairs)}


def _text_bytes(x: Any, encoding: Any = "latin1") -> bytes:
  """Bytes as Python 2's pickles have them: text, a character each."""
  if isinstance(x, (bytes, bytearray)): return bytes(x)
  if not isinstance(x, str) or encoding not in ("latin1", "latin-1"): raise TypeError(f"{shown(x)} in {shown(encoding)}")
  return x.encode("latin1")


def _view(flat: Tensor, begin: int, end: int, size: Sequence[int], strides: Sequence[int]) -> Tensor:
  """Elements of a tensor of one dimension at offset, size and strides: a view of it, a copy where windows overlap."""
  size = tuple(int(n) for n in size)
  dense, want = [], 1
  for n in reversed(size):
    dense.append(want)
    want *= n
  if all(n == 1 or s == w for n, s, w in zip(size, strides, dense[::-1])): return flat[begin:end].reshape(size)
  from ntgrad.engine.interchange import strided
  base = flat.lazydata
  node = strided(shrink(base, [(begin, end)]), size, strides)
  if node is None:
    at = sum(np.arange(n).reshape(-1, *[1] * (len(size) - i - 1)) * s for i, (n, s) in enumerate(zip(size, strides)))
    return flat[Tensor(np.asarray(at + begin, np.int64), device=flat.device)]
  moves: list[Any] = []
  while node is not base:
    assert node.op in MOVEMENT
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
  is damaged or holds anything else: what a pickle says to run is never run, also without ``weights_only``.
  """
  if device is not None and map_location is not None:
    raise ArgumentError(f"torch_load: device={device!r} and map_location={map_location!r}; give one of them")
  if device is None: device = map_location
  def refuse(why: str) -> StateError: return StateError(f"torch_load: {str(path)!r} cannot be loaded: {why}")
  data = Mapped("torch_load", path)
  reader = _Reader(device, refuse)
  if is_zip(data): return _zip(data, reader, refuse)
  if data[257:262].tobytes() == b"ustar": return _tar(data, reader, refuse)
  return _pickles(data, reader, refuse)


def _zip(data: Mapped, reader: _Reader, refuse: Refuse) -> Any:
  members = zip_members(data, refuse)
  pickle = next((name for name in members if name.count("/") == 1 and name.endswith("/data.pkl")), None)
  if pickle is None: raise refuse("it is a zip archive without data.pkl")
  folder = pickle.removesuffix("data.pkl")
  if folder + "constants.pkl" in members: raise refuse("it is a TorchScript model, which is code; save a state dict in its place")
  if (order := members.get(folder + "byteorder")) is not None:
    said = member_bytes(data, "byteorder", order, refuse).tobytes()
    if said not in (b"little", b"big"): raise refuse(f"its byte order is {shown(said)}, expected little or big")
    reader.swapped = said == b"big"

  def persistent(pid: Any) -> _Storage:
    s = reader.persistent(pid)
    m = members.get(name := f"{folder}data/{s.key}")
    if m is None: raise refuse(f"there is no {name!r} in it")
    if m.size < s.nbytes: raise refuse(f"{name!r} has {m.size} bytes, its storage {s.nbytes}")
    s.read = lambda: member_bytes(data, name, m, refuse)[:s.nbytes]
    return s

  return reader.load(io.BytesIO(member_bytes(data, pickle, members[pickle], refuse).tobytes()), persistent)


def _pickles(data: Mapped, reader: _Reader, refuse: Refuse) -> Any:
  # pickles first, then the storages: found in one round, so that tensors of the second know where their bytes are
  f = _stream(data)
  try: magic = reader.load(f)
  except StateError: magic = None
  if magic != _MAGIC: raise refuse("it is neither a zip archive nor a tar archive, nor one of torch before 1.6")
  if (version := reader.load(f)) != _VERSION: raise refuse(f"it has version {shown(version)}, expected {_VERSION}")
  info = reader.load(f)
  reader.swapped = isinstance(info, dict) and info.get("little_endian") is False
  begin, dry = f.tell(), _Dry(reader.device, refuse)
  dry.load(f)
  keys = reader.load(f)
  if not isinstance(keys, list) or sorted(dry.storages) != sorted(k for k in keys if isinstance(k, str)):
    raise refuse(f"its storages are {shown(keys)}, its tensors are of {shown(sorted(dry.storages))}")
  at = f.tell()
  places: dict[str, int] = {}
  for key in keys:
    s = dry.storages[key]
    numel = int.from_bytes(data[at:at + 8].tobytes(), "big" if reader.swapped else "little")
    if numel * (s.dtype.itemsize if s.dtype else 1) != s.nbytes or at + 8 + s.nbytes > len(data):
      raise refuse(f"the storage {key!r} of {s.nbytes} bytes is not whole")
    places[key] = at + 8
    at += 8 + s.nbytes

  def persistent(pid: Any) -> _Storage:
    s = reader.persistent(pid)
    s.read = lambda: data[places[s.key]:places[s.key] + s.nbytes]
    return s

  f.seek(begin)
  return reader.load(f, persistent)


class _Dry(_Reader):
  """Sees which storages a pickle names, and makes nothing."""
  def tensor(self, *_: Any) -> Any: return None
  def parameter(self, *_: Any) -> Any: return None


def _stream(data: Mapped | Bytes) -> BinaryIO: return io.BufferedReader(Stream(data))


def _tar(data: Mapped, reader: _Reader, refuse: Refuse) -> Any:
  """As torch 0.1 wrote it: ``storages``, then ``tensors`` that are views of them, then ``pickle``, which names tensors by
  number."""
  parts = {name: source() for name, source in tar_members(data, refuse).items() if name in ("storages", "tensors", "pickle")}
  if len(parts) != 3: raise refuse("it is a tar archive without storages, tensors and pickle")
  kept: dict[Any, tuple[_Storage, int]] = {}   # by key: the storage, and where in it the one of this key begins
  f = _stream(parts["storages"])
  for _ in range(_count(reader.load(f), refuse)):
    key, _, kind = _three(reader.load(f), refuse)
    numel = int.from_bytes(f.read(8), "little")
    s = reader.storage(str(key), kind, numel)
    s.read = _slice(parts["storages"], f.tell(), s.nbytes)
    if f.seek(s.nbytes, io.SEEK_CUR) > len(parts["storages"]):
      raise refuse(f"the storage {key!r} of {s.nbytes} bytes is not whole")
    kept[key] = s, 0
  views = reader.load(f)
  for view in views if isinstance(views, list) else []:
    if not isinstance(view, tuple) or len(view) != 4 or view[1] not in kept or not _natural(view[2]):
      raise refuse(f"it says {shown(view)} of a storage that is a part of another")
    kept[view[0]] = kept[view[1]][0], kept[view[1]][1] + view[2]
  tensors: dict[str, Tensor] = {}
  f = _stream(parts["tensors"])
  for _ in range(_count(reader.load(f), refuse)):
    key, storage, _ = _three(reader.load(f), refuse)
    ndim = int.from_bytes(f.read(8)[:4], "little")
    numbers = f.read(8 * (2 * ndim + 1)) if ndim <= MAX_DIMS else b""
    if storage not in kept or len(numbers) != 8 * (2 * ndim + 1): raise refuse(f"the tensor {shown(key)} is not whole")
    sizes = [int(n) for n in np.frombuffer(numbers, "<i8")]
    s, begin = kept[storage]
    tensors[str(key)] = reader.tensor(s, sizes[-1] + begin, tuple(sizes[:ndim]), tuple(sizes[ndim:-1]))

  def persistent(pid: Any) -> Any:
    if isinstance(pid, tuple) and pid: return pid[0]
    if str(pid) not in tensors: raise refuse(f"its pickle asks for the tensor {shown(pid)}, which it has not")
    return tensors[str(pid)]

  return reader.load(_stream(parts["pickle"]), persistent)


def _slice(data: Bytes, begin: int, size: int) -> Callable[[], Bytes]: return lambda: data[begin:begin + size]


def _count(n: Any, refuse: Refuse) -> int:
  if not _natural(n): raise refuse(f"it says that it has {shown(n)} storages or tensors")
  return int(n)


def _three(x: Any, refuse: Refuse) -> tuple[Any, Any, Any]:
  if not isinstance(x, tuple) or len(x) != 3 or not all(isinstance(k, (int, str)) for k in x[:2]):
    raise refuse(f"it says {shown(x)} of a storage or tensor")
  return x
