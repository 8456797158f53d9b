"""Files that lie in memory as the system maps them, and tensors whose bytes are read from there when they are first needed."""
from __future__ import annotations

import math
import mmap
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from ntgrad.codegen.ir.dtype import DType, dtypes
from ntgrad.codegen.ir.errors import StateError, few
from ntgrad.codegen.ir.paths import shown_path, usable
from ntgrad.codegen.ir.uop import Ops, UOp
from ntgrad.core import MAX_DIMS, MAX_SIZE
from ntgrad.engine.buffer import LARGE_BYTES, Buffer, Storage, transfer_watchers
from ntgrad.engine.device import Device, get_device
from ntgrad.graph import nodes as graph
from ntgrad.nn.files import plain_file
from ntgrad.tensor import Tensor

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Refuse = Callable[[str], StateError]
SMALL = 16 << 20   # bytes of a file that are checked when it is opened; of more when they are read


def dtype_table(said: str) -> dict[str, DType]:
  """Dtypes by what files call them: ``"F32:float32 F16:float16"``."""
  return {theirs: dtypes.of(ours) for theirs, ours in [pair.split(":") for pair in said.split()]}


class Mapped:
  """A file that is there, seen as bytes: ``len(file)`` of them, ``file[begin:end]`` without reading more than is looked at.
  The bytes are those of the file that was opened, also where another one takes its place. Raises MissingFileError, StateError."""

  def __init__(self, name: str, path: str | os.PathLike[str]):
    self.name, self.path = name, str(path)
    with usable(name, path), open(plain_file(name, path), "rb") as f:
      self.size = os.fstat(f.fileno()).st_size
      self.map = mmap.mmap(f.fileno(), self.size, access=mmap.ACCESS_READ) if self.size else None
    self.all: Bytes = np.zeros(0, np.uint8) if self.map is None else np.frombuffer(self.map, np.uint8)

  def __len__(self) -> int: return self.size
  def __getitem__(self, part: slice) -> Bytes:
    if self.map is not None and self.map.size() < self.size:   # reading beyond its end would end the process
      raise StateError(f"{self.name}: {shown_path(self.path)} had {self.size} bytes when it was opened and has fewer now; "
                       "load it again")
    return self.all[part]


class Unread(Storage):
  """Device memory that gets its bytes from ``source`` when it is first asked for."""
  __slots__ = ("source",)

  def __init__(self, device: str, nbytes: int, source: Callable[[], Bytes]):
    super().__init__(device, nbytes)
    self.source: Callable[[], Bytes] | None = source

  @property
  def raw(self) -> Any:
    """The device's allocation, filled now if it is not yet."""
    if self.source is None: return self._raw
    data = self.source()   # may refuse
    raw = super().raw
    self._owner.copyin(raw, data)
    self.source = None
    return raw


def tensor_of(source: Callable[[], Bytes], dtype: DType, shape: tuple[int, ...], device: str | None) -> Tensor:
  """A tensor of the bytes that ``source`` gives, on ``device``; they are asked for when its memory is."""
  name = Device._located(device)
  get_device(name)   # refuses one that the machine has not
  nbytes = math.prod(shape) * dtype.itemsize
  # a jit that records has to see what comes from the host
  if transfer_watchers or not nbytes: return Tensor(np.array(source()).view(dtype.np).reshape(shape), device=name)
  storage = Unread(name, nbytes, source)
  if nbytes >= LARGE_BYTES: storage.place = "a file"
  return Tensor._from_node(graph.buffer(Buffer(name, shape, dtype, storage)))


def host_bytes(t: Tensor) -> Bytes:
  """The bytes of a tensor, row by row: of one that is whole in memory and not read yet, straight from where they come from. What
  is not computed yet is computed for this alone, and let go."""
  from ntgrad.engine.realize import rebased
  u = below = rebased(t.lazydata)
  while below.op is Ops.RESHAPE: below = below.src[0]
  if not t._alias.pending:
    if below.op is Ops.BUFFER and isinstance(below.arg.storage, Unread) and not below.arg.stale and below.arg.storage.source:
      data = below.arg.storage.source()
      if data.nbytes == t.nbytes(): return data
    while below.op in (Ops.RESHAPE, Ops.PERMUTE, Ops.SHRINK, Ops.EXPAND, Ops.FLIP, Ops.DETACH): below = below.src[0]
    if below.op not in (Ops.BUFFER, Ops.CONST): t = Tensor._from_node(UOp.unique(Ops.CONTIGUOUS, u.dtype, (u,)))
  return np.ascontiguousarray(t.numpy()).reshape(-1).view(np.uint8)


def swapped(read: Callable[[], Bytes], itemsize: int) -> Callable[[], Bytes]:
  """What reads numbers whose bytes come in the other order."""
  return lambda: read().view(f"u{itemsize}").byteswap().view(np.uint8)


def checked_shape(shape: tuple[int, ...], dtype: DType, what: str, refuse: Refuse) -> int:
  """The bytes that a shape takes. Raises what ``refuse`` makes for one that no tensor has, zeros among its sizes or not."""
  if len(shape) > MAX_DIMS or max(shape, default=0) > MAX_SIZE \
     or math.prod([d for d in shape if d]) * dtype.itemsize > MAX_SIZE:
    raise refuse(f"{what} has a shape of {len(shape)} dimensions, {few(shape)}; "
                 f"a tensor has up to {MAX_DIMS} and {MAX_SIZE} bytes")
  return math.prod(shape) * dtype.itemsize


def checked_bools(source: Callable[[], Bytes], dtype: DType, nbytes: int, packed: bool, what: str,
                  refuse: Refuse) -> Callable[[], Bytes]:
  """What reads bytes of a tensor. Those of bools are 0 or 1, as kernels trust: seen now if they are few and lie in the file as
  they are, else when they are read."""
  if dtype is not dtypes.bool: return source
  def checked() -> Bytes:
    if len(data := source()) and (top := data.max()) > 1: raise refuse(f"{what} is bool and holds a byte {top}, expected 0 or 1")
    return data
  if packed or nbytes > SMALL: return checked
  checked()
  return source
