"""Members of tar and zip archives as tensors of bytes."""
from __future__ import annotations

import io
import os
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ntgrad.checks import checked
from ntgrad.codegen.dtype import dtypes
from ntgrad.codegen.errors import DTypeError, StateError
from ntgrad.nn.state.mapped import Bytes, Mapped, Refuse, tensor_of
from ntgrad.tensor import Tensor

Path = str | os.PathLike[str]


class Member(NamedTuple):
  """A file in an archive: where its bytes are in it, as they are (``packed`` False) or compressed by ``method``; its length."""
  begin: int
  end: int
  packed: bool
  size: int
  crc: int | None = None


@checked
def tar_extract(fn: Path | Tensor, device: str | None = None) -> dict[str, Tensor]:
  """The files in a tar archive, by name: each a uint8 tensor (bytes,) on ``device`` (None: the default one).

  ``fn`` is a path, or a uint8 tensor (n,) that holds an archive. Of a file that is not compressed a member is read when it is
  first used; of gzip, bzip2 and xz all is read now. Folders and links are left out. Raises MissingFileError, StateError for what
  is no whole archive, DTypeError for a tensor of another dtype.
  """
  data, refuse = _opened("tar_extract", fn, "tar archive")
  return {name: _bytes_tensor(source, device) for name, source in tar_members(data, refuse).items()}


@checked
def zip_extract(fn: Path | Tensor, device: str | None = None) -> dict[str, Tensor]:
  """The files in a zip archive, by name: each a uint8 tensor (bytes,) on ``device`` (None: the default one).

  ``fn`` is a path, or a uint8 tensor (n,) that holds an archive. Members are read, and those that are compressed unpacked, when
  they are first used. Raises MissingFileError, StateError for what is no whole archive or has encrypted members, DTypeError for a
  tensor of another dtype.
  """
  data, refuse = _opened("zip_extract", fn, "zip archive")
  return {name: _bytes_tensor(_unpacked(data, name, m, refuse), device) for name, m in zip_members(data, refuse).items()}


def _bytes_tensor(source: Callable[[], Bytes], device: str | None) -> Tensor:
  size = source.size if isinstance(source, Source) else len(source())
  return tensor_of(source, dtypes.uint8, (size,), device)


class Source:
  """Gives bytes when it is asked for them, and says before how many."""
  def __init__(self, size: int, read: Callable[[], Bytes]): self.size, self.read = size, read
  def __call__(self) -> Bytes: return self.read()


def _part(data: Mapped | Bytes, begin: int, end: int) -> Source: return Source(end - begin, lambda: data[begin:end])
def _held(data: bytes) -> Source: return Source(len(data), lambda: np.frombuffer(data, np.uint8))


class Stream(io.RawIOBase):
  """Bytes as a file to read."""
  def __init__(self, data: Mapped | Bytes): self.held, self.at = data, 0
  def readable(self) -> bool: return True
  def seekable(self) -> bool: return True
  def tell(self) -> int: return self.at
  def seek(self, offset: int, whence: int = 0) -> int:
    self.at = max(0, offset + (0, self.at, len(self.held))[whence])
    return self.at
  def readinto(self, to: Any) -> int:
    part = self.held[self.at:self.at + len(to)]
    to[:len(part)] = part.tobytes()
    self.at += len(part)
    return len(part)


def _opened(name: str, fn: Path | Tensor, what: str) -> tuple[Mapped | Bytes, Refuse]:
  if isinstance(fn, Tensor):
    if fn.dtype is not dtypes.uint8 or fn.ndim != 1:
      raise DTypeError(f"{name}: a tensor of {fn.dtype.name} and shape {fn.shape}; it takes bytes, uint8 of shape (n,)")
    said, data = f"a tensor of {fn.numel()} bytes", fn.numpy()
    return data, lambda why: StateError(f"{name}: {said} is not a whole {what}: {why}")
  return Mapped(name, fn), lambda why: StateError(f"{name}: {str(fn)!r} is not a whole {what}: {why}")


# ---- tar

def tar_members(data: Mapped | Bytes, refuse: Refuse) -> dict[str, Source]:
  """The files of a tar archive, by name; the archive may be compressed."""
  import tarfile
  try:
    with tarfile.open(fileobj=Stream(data), mode="r:*") as tar:
      plain = isinstance(tar.fileobj, Stream)
      found: dict[str, Source] = {}
      for m in tar:
        if not m.isreg(): continue
        if m.issparse(): raise refuse(f"{m.name!r} is a sparse file, which is not read")
        if plain:
          if m.offset_data + m.size > len(data): raise refuse(f"{m.name!r} goes on beyond its end")
          found[m.name] = _part(data, m.offset_data, m.offset_data + m.size)
        else:
          f = tar.extractfile(m)
          read = b"" if f is None else f.read()
          if len(read) != m.size: raise refuse(f"{m.name!r} has {len(read)} bytes, its header says {m.size}")
          found[m.name] = _held(read)
  except StateError: raise
  except Exception as e:   # tarfile, and what unpacks for it, let many kinds through
    raise refuse(f"{type(e).__name__}: {' '.join(str(e).split())}") from None
  return found


# ---- zip

def is_zip(data: Mapped | Bytes) -> bool:
  """Whether bytes begin as a zip archive does."""
  return data[:4].tobytes() in (b"PK\3\4", b"PK\5\6")


def zip_members(data: Mapped | Bytes, refuse: Refuse) -> dict[str, Member]:
  """The files of a zip archive, by name, each checked to lie in it."""
  import zipfile
  out: dict[str, Member] = {}
  try:
    with zipfile.ZipFile(io.BufferedReader(Stream(data))) as z:
      for info in z.infolist():
        if info.is_dir(): continue
        if info.filename in out: raise refuse(f"{info.filename!r} is in it twice")
        if info.flag_bits & 1: raise refuse(f"{info.filename!r} is encrypted")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
          raise refuse(f"{info.filename!r} is compressed by method {info.compress_type}; stored and deflated ones are read")
        begin = _data_begins(data, info.header_offset, info.filename, refuse)
        packed = info.compress_type != zipfile.ZIP_STORED
        if begin + info.compress_size > len(data) or (not packed and info.compress_size != info.file_size):
          raise refuse(f"{info.filename!r} takes bytes {begin} to {begin + info.compress_size} of {len(data)}")
        # deflate makes at most 1032 bytes of one: a damaged length must not make us ask for gigabytes
        if info.file_size > info.compress_size * 1032 + 64:
          raise refuse(f"{info.filename!r} cannot have {info.file_size} bytes unpacked from {info.compress_size}")
        out[info.filename] = Member(begin, begin + info.compress_size, packed, info.file_size, info.CRC)
  except (zipfile.BadZipFile, EOFError, ValueError, OverflowError, NotImplementedError, OSError, UnicodeError) as e:
    if isinstance(e, StateError): raise
    raise refuse(f"{type(e).__name__}: {e}") from None
  return out


def _data_begins(data: Mapped | Bytes, at: int, name: str, refuse: Refuse) -> int:
  """Where a member's bytes begin, behind its own header."""
  header = data[at:at + 30].tobytes() if at >= 0 else b""
  if len(header) < 30 or header[:4] != b"PK\3\4": raise refuse(f"there is no header for {name!r} at byte {at}")
  return at + 30 + int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")


def member_bytes(data: Mapped | Bytes, name: str, m: Member, refuse: Refuse) -> Bytes:
  """The bytes of a member, unpacked."""
  found = data[m.begin:m.end]
  if not m.packed: return found
  unpacker = zlib.decompressobj(-15)
  try: out = unpacker.decompress(found.tobytes(), m.size + 1)
  except zlib.error as e: raise refuse(f"{name!r}: {e}") from None
  if len(out) != m.size or (m.crc is not None and zlib.crc32(out) != m.crc):
    raise refuse(f"{name!r} unpacks to {len(out)} bytes or others than its {m.size}")
  return np.frombuffer(out, np.uint8)


def _unpacked(data: Mapped | Bytes, name: str, m: Member, refuse: Refuse) -> Source:
  return Source(m.size, lambda: member_bytes(data, name, m, refuse))
