"""Files that are there before they are read, and whole before they are seen; files in memory as the system maps them, and tensors
whose bytes are read from there when they are first needed."""
from __future__ import annotations

import errno
import fcntl
import math
import mmap
import os
import re
import secrets
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from ntgrad.codegen.ir import DType, MissingFileError, NtgradError, Ops, StateError, UOp, dtypes, few
from ntgrad.codegen.ir.paths import reason, shown_path, usable
from ntgrad.core import MAX_DIMS, MAX_SIZE
from ntgrad.engine.buffer import LARGE_BYTES, Buffer, Storage, transfer_watchers
from ntgrad.engine.device import Device, get_device
from ntgrad.graph import nodes as graph
from ntgrad.tensor import Tensor

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Refuse = Callable[[str], StateError]
SMALL = 16 << 20   # bytes of a file that are checked when it is opened; of more when they are read
_UNFINISHED = re.compile(r"\.[0-9a-f]{16}\.ntgrad-unfinished")


def plain_file(name: str, path: str | os.PathLike[str], new: bool = False) -> Path:
  """The path that links lead to, of a file that is there (or, ``new``, of one to write in a folder that is there).
  Raises MissingFileError, and StateError where something other than a plain file lies there: a folder, a device."""
  try:
    found = Path(os.path.realpath(path))
    if not (found.parent.is_dir() if new else found.exists()):
      raise MissingFileError(f"{name}: no {'folder' if new else 'file'} for {shown_path(path)}")
    if found.exists() and not found.is_file():
      raise StateError(f"{name}: {shown_path(path)} is {'a folder' if found.is_dir() else 'no plain file (a device or a pipe)'}; "
                       "give the path of a file")
    if new and len(os.fsencode(found.name)) > os.pathconf(found.parent, "PC_NAME_MAX"): raise OSError(errno.ENAMETOOLONG, "")
    return found
  except (OSError, ValueError) as e:   # a name that is too long, or has a NUL; a folder that may not be looked into
    if isinstance(e, NtgradError): raise
    raise MissingFileError(f"{name}: no file can be at {shown_path(path)}: {reason(e)}") from None


def unpacked(data: Any, how: str, refuse: Callable[[str], NtgradError]) -> bytearray:
  """What gzip, bzip2 or xz has packed into some bytes: at most 32 MiB and 24 bytes for each of them, since files come from
  strangers. Raises what ``refuse`` makes."""
  if how == "gzip": make = partial(zlib.decompressobj, 31)
  elif how == "bzip2": make = import_module("bz2").BZ2Decompressor
  else: make = partial(import_module("lzma").LZMADecompressor, memlimit=80 << 20)
  most, out, at = (32 << 20) + 24 * len(data), bytearray(), 0
  try:
    while at < len(data) and any(data[at:at + 16]):   # several streams, and zeros behind them
      unpacker: Any = make()
      while not unpacker.eof:
        if at >= len(data) and getattr(unpacker, "needs_input", True):
          raise refuse(f"its {how} stream is damaged: it ends too early")
        if how == "gzip" or unpacker.needs_input: part, at = data[at:at + 512], at + 512
        else: part = b""   # bzip2 makes a million bytes of one
        out += unpacker.decompress(part, *(() if how == "gzip" else (1 << 20,)))
        if len(out) > most: raise refuse(f"it unpacks to more than {most} bytes from {len(data)}")
      at = min(at, len(data)) - len(unpacker.unused_data)
  except NtgradError: raise
  except Exception as e:   # each of the three has its own
    raise refuse(f"its {how} stream is damaged ({type(e).__name__}: {' '.join(str(e).split())})") from None
  return out


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
  """A file to write that takes the place of ``path`` when the block ends; if it ends by an error, nothing has changed.

  What processes that were killed left unfinished in the folder is removed: the file is locked while its process lives. Raises
  StateError where the folder takes no new file, and OSError where the disk is full.
  """
  with usable("a file to write", path):
    for left in path.parent.iterdir():
      if not _UNFINISHED.fullmatch(left.name): continue
      with suppress(OSError), open(left, "rb") as old:
        fcntl.flock(old, fcntl.LOCK_EX | fcntl.LOCK_NB)   # fails while the process that writes it lives
        left.unlink()
    while True:
      temporary = path.parent / f".{secrets.token_hex(8)}.ntgrad-unfinished"
      f = open(temporary, "xb")  # noqa: SIM115 - closed below
      # a file system without locks: nobody else can lock, and so remove, the file either
      with suppress(OSError): fcntl.flock(f, fcntl.LOCK_EX)
      if os.fstat(f.fileno()).st_nlink: break   # else it was removed before it was locked
      f.close()
  try:
    with f:
      yield f
      f.flush()
      os.fsync(f.fileno())
      os.replace(temporary, path)
  except BaseException:
    temporary.unlink(missing_ok=True)
    raise


def refuser(name: str, path: str | os.PathLike[str], said: str) -> Refuse:
  """What makes the error of a function for a file: ``said`` of it, and why."""
  return lambda why: StateError(f"{name}: {shown_path(path)} {said}: {why}")


# ---- files in memory

def dtypes_in(said: str) -> dict[str, DType]:
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


class Entry(NamedTuple):
  """What a file says of a tensor: its dtype or type, and where its bytes are."""
  name: str
  kind: Any
  shape: tuple[int, ...]
  begin: int
  end: int


class Unread(Storage):
  """Device memory that gets its bytes from ``source`` when it is first asked for."""
  __slots__ = "source"

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
