"""Members of tar and zip archives as tensors of bytes, and arrays of npz files as tensors."""
from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ntgrad.codegen.ir import DType, DTypeError, NtgradError, StateError, dtypes, shown
from ntgrad.codegen.ir.paths import shown_path
from ntgrad.graph import checked
from ntgrad.tensor import Tensor

from . import files
from .files import SMALL, Bytes, Mapped, Refuse, checked_bools, checked_shape, host_bytes, swapped, tensor_of, unpacked

Path = str | os.PathLike[str]


class Member(NamedTuple):
  """A file in an archive: where its bytes are in it, as they are or deflated (``packed``), its length and its checksum (None once
  it was compared)."""
  begin: int
  end: int
  packed: bool
  size: int
  crc: int | None = None


@checked
def tar_extract(fn: Path | Tensor, device: str | None = None) -> dict[str, Tensor]:
  """The files in a tar archive, by name: each a uint8 tensor (bytes,) on ``device`` (None: the default one).

  ``fn`` is a path, or a uint8 tensor (n,) that holds an archive. Of a file that is not compressed a member is read when it is
  first used; of gzip, bzip2 and xz all is read now, at most 32 MiB and 24 bytes for each of the file's. Folders and links are
  left out. Raises MissingFileError, StateError for what is no whole archive, has a name twice or one that leads out of its
  folder, DTypeError for a tensor of another dtype.
  """
  data, refuse = _opened("tar_extract", fn, "tar archive")
  return _tensors(*tar_members(data, refuse), refuse, device)


@checked
def zip_extract(fn: Path | Tensor, device: str | None = None) -> dict[str, Tensor]:
  """The files in a zip archive, by name, as :func:`tar_extract` has those of a tar archive. Members are read, and those that are
  compressed unpacked, when they are first used; checksums are compared then, or now where there is little. Raises as it does, and
  StateError for encrypted members."""
  data, refuse = _opened("zip_extract", fn, "zip archive")
  return _tensors(data, zip_members(data, refuse), refuse, device)


def _tensors(data: Mapped | Bytes, members: dict[str, Member], refuse: Refuse, device: str | None) -> dict[str, Tensor]:
  return {name: tensor_of(partial(member_bytes, data, name, m, refuse), dtypes.uint8, (m.size,), device)
          for name, m in members.items()}


def _opened(name: str, fn: Path | Tensor, what: str) -> tuple[Mapped | Bytes, Refuse]:
  if isinstance(fn, Tensor) and (fn.dtype is not dtypes.uint8 or fn.ndim != 1):
    raise DTypeError(f"{name}: a tensor of {fn.dtype.name} and shape {fn.shape}; it takes bytes, uint8 of shape (n,)")
  said, data = (f"a tensor of {fn.numel()} bytes", fn.numpy()) if isinstance(fn, Tensor) else (shown_path(fn), Mapped(name, fn))
  return data, lambda why: StateError(f"{name}: {said} is not a whole {what}: {why}")


def _plain_name(name: str, refuse: Refuse, path: bool = True) -> str:
  """The name of a member, refused where it is none or, a path, leads out of the folder that it is unpacked in."""
  if not name or "\0" in name: raise refuse(f"a member has the name {shown(name)}")
  if path and (name[0] in "/\\" or ".." in name.replace("\\", "/").split("/")):
    raise refuse(f"{shown(name)} leads out of the archive's folder")
  return name


# ---- tar

_BLOCK = 512
_PACKED = {b"\x1f\x8b": "gzip", b"BZ": "bzip2", b"\xfd7": "xz"}


def tar_members(data: Mapped | Bytes, refuse: Refuse) -> tuple[Mapped | Bytes, dict[str, Member]]:
  """A tar archive, unpacked where it is compressed, and its files, by name."""
  if (packed := _PACKED.get(data[:2].tobytes())) is not None:
    data = np.frombuffer(unpacked(data[:].data, packed, refuse), np.uint8)
  whole, at, found = data[:].data, 0, dict[str, Member]()
  name = size = None   # what headers in front of a member's say of it
  while at + _BLOCK <= len(whole):
    header = whole[at:at + _BLOCK].tobytes()
    if not any(header): return data, found
    summed = header[:148] + b" " * 8 + header[156:]   # old programs took bytes with signs
    if _octal(header[148:156]) not in (sum(summed), sum(summed) - 256 * sum(b > 127 for b in summed)):
      raise refuse(f"there is no header of a member at byte {at}")
    if (n := _octal(header[124:136]) if size is None else size) is None: raise refuse(f"the header at byte {at} has no size")
    kind, begin = header[156:157], at + _BLOCK
    if begin + n > len(whole): raise refuse(f"the member at byte {begin} takes {n} bytes, it has {len(whole)}")
    at = begin + -(-n // _BLOCK) * _BLOCK
    if kind in b"LKxg":   # of GNU a long name, of links too; of POSIX attributes, of one member or of all behind
      text = whole[begin:begin + min(n, 1 << 20)].tobytes()
      if kind == b"L": name = text.split(b"\0")[0]
      elif kind == b"x":
        said = _attributes(text, refuse)
        if any(k.startswith(b"GNU.sparse") for k in said): raise refuse("it has a sparse file, which is not read")
        name, size = said.get(b"path", name), _number(said[b"size"], refuse) if b"size" in said else size
      continue
    if kind == b"S": raise refuse(f"{shown(header[:100].rstrip(bytes(1)))} is a sparse file, which is not read")
    own = header[:100].split(b"\0")[0]
    if header[257:263] == b"ustar\0" and header[345]: own = header[345:500].split(b"\0")[0] + b"/" + own
    said_name = (own if name is None else name).decode("utf-8", "surrogateescape")
    name = size = None
    if kind not in b"07\0" or said_name.endswith("/"): continue
    if _plain_name(said_name, refuse) in found: raise refuse(f"{shown(said_name)} is in it twice")
    found[said_name] = Member(begin, begin + n, False, n)
  if at != len(whole) or not found: raise refuse(f"it ends at byte {len(whole)}, in the middle of a block of {_BLOCK}")
  return data, found


def _octal(text: bytes) -> int | None:
  """A number of a header: in octal, or as GNU has large ones, in bytes."""
  if text[:1] == b"\x80": return int.from_bytes(text[1:], "big")
  text = text.strip(b" \0")
  return int(text or b"0", 8) if all(c in b"01234567" for c in text) else None


def _attributes(text: bytes, refuse: Refuse) -> dict[bytes, bytes]:
  """Lines of a length, a name and a value."""
  out, at = dict[bytes, bytes](), 0
  while at < len(text) and text[at]:
    digits = text[at:at + 12].split(b" ")[0]
    n = _number(digits, refuse)
    k, is_one, value = text[at + len(digits) + 1:at + n].partition(b"=")
    if n <= len(digits) or not is_one or value[-1:] != b"\n" or len(text) < at + n:
      raise refuse("a member's attributes are damaged")
    out[k], at = value[:-1], at + n
  return out


def _number(text: bytes, refuse: Refuse) -> int:
  if not text.isdigit() or len(text) > 20: raise refuse(f"{shown(text)} where a number is expected")
  return int(text)


# ---- zip

_ENTRY, _HEADER = struct.Struct("<4s6H3I5H2I"), struct.Struct("<4s5H3I2H")
_LARGE = 0xffffffff   # where a number of 64 bits stands elsewhere


def is_zip(data: Mapped | Bytes) -> bool:
  """Whether bytes begin as a zip archive does."""
  return data[:4].tobytes() in (b"PK\3\4", b"PK\5\6")


def zip_members(data: Mapped | Bytes, refuse: Refuse, paths: bool = True) -> dict[str, Member]:
  """The files of a zip archive, by name: each lies in it and in no other, and is what its own header says too. Names are
  ``paths``, which lead nowhere else, or any. Checksums of what is little are compared now."""
  whole = data[:].data
  at, size, entries, shift = _directory(whole, refuse)
  start, end = at, at + size
  out, places = dict[str, Member](), list[tuple[int, int]]()
  while at < end:
    if at + _ENTRY.size > end or whole[at:at + 4].tobytes() != b"PK\1\2": raise refuse(f"its directory is damaged at byte {at}")
    _, _, _, flags, method, _, _, crc, packed, n, length, more, comment, disk, _, _, begin = _ENTRY.unpack_from(whole, at)
    raw = whole[at + _ENTRY.size:at + _ENTRY.size + length].tobytes()
    at += _ENTRY.size + length + more + comment
    if at > end: raise refuse(f"its directory is damaged at byte {at}")
    if _LARGE in (n, packed, begin):
      n, packed, begin = _large(whole[at - more - comment:at - comment], [n, packed, begin], refuse)
    try: name = _plain_name(raw.decode("utf-8" if flags & 0x800 else "cp437"), refuse, paths)
    except UnicodeDecodeError: raise refuse(f"a member has the name {shown(raw)}, which is not UTF-8") from None
    begin += shift
    own = _HEADER.unpack_from(whole, begin) if begin + _HEADER.size <= start else (b"",)
    if own[0] != b"PK\3\4" or whole[begin + 30:begin + 30 + length] != raw or own[9] != length or own[3] != method:
      raise refuse(f"there is no header for {shown(name)} at byte {begin}")
    if not own[2] & 8 and (own[6] != crc or any(a not in (b, _LARGE) for a, b in zip(own[7:9], (packed, n)))):
      raise refuse(f"the header of {shown(name)} at byte {begin} says something else than the directory")
    first = begin + _HEADER.size + length + own[10]
    places.append((begin, first + packed))
    if name.endswith("/"): continue
    if name in out: raise refuse(f"{shown(name)} is in it twice")
    if (flags | own[2]) & 1: raise refuse(f"{shown(name)} is encrypted")
    if method not in (0, 8): raise refuse(f"{shown(name)} is compressed by method {method}; stored and deflated ones are read")
    # deflate makes at most 1032 bytes of one: a damaged length must not make us ask for gigabytes
    if (packed != n) if method == 0 else n > packed * 1032 + 64:
      raise refuse(f"{shown(name)} cannot have {n} bytes from {packed}")
    out[name] = Member(first, first + packed, method == 8, n, crc)
  if at != end or len(places) != entries:
    raise refuse(f"its directory has {len(places)} entries to byte {at}, it says {entries} to {end}")
  at = 0
  for begin, end in sorted(places):
    if begin < at or end > start: raise refuse(f"its members lie in each other or beyond byte {start}: one from {begin} to {end}")
    at = end
  left = SMALL
  for name, m in out.items():
    if m.size > left: continue
    left -= m.size
    member_bytes(data, name, m, refuse)
    out[name] = m._replace(crc=None)
  return out


def _directory(whole: memoryview, refuse: Refuse) -> tuple[int, int, int, int]:
  """Where the directory of a zip archive is, its bytes and entries, and what stands before the archive."""
  tail = whole[-22 - 65535:].tobytes()
  at = tail.rfind(b"PK\5\6")
  while at >= 0 and (at + 22 > len(tail) or at + 22 + int.from_bytes(tail[at + 20:at + 22], "little") != len(tail)):
    at = tail.rfind(b"PK\5\6", 0, at)
  if at < 0: raise refuse("it has no directory at its end")
  disk, first, here, entries, size, begin = struct.unpack_from("<4H2I", tail, at + 4)
  at += len(whole) - len(tail)
  if at >= 20 and whole[at - 20:at - 16].tobytes() == b"PK\6\7":
    found = int.from_bytes(whole[at - 12:at - 4], "little")
    if found > at - 76 or whole[found:found + 4].tobytes() != b"PK\6\6":
      found = at - 76   # something stands before the archive
      if found < 0 or whole[found:found + 4].tobytes() != b"PK\6\6": raise refuse("its directory of large archives is damaged")
    disk, first, here, entries, size, begin = struct.unpack_from("<2I4Q", whole, found + 16)
    at = found
  shift = at - size - begin
  if disk or first or here != entries or shift < 0: raise refuse(f"its directory of {size} bytes at byte {begin} is damaged")
  return at - size, size, entries, shift


def _large(more: memoryview, numbers: list[int], refuse: Refuse) -> list[int]:
  """Numbers of a member, those of 64 bits from behind its name."""
  at = 0
  while at + 4 <= len(more):
    kind, n = struct.unpack_from("<2H", more, at)
    if kind == 1:
      found = [int.from_bytes(more[i:i + 8], "little") for i in range(at + 4, min(at + 4 + n, len(more)) - 7, 8)]
      if len(found) < numbers.count(_LARGE): break
      return [found.pop(0) if k == _LARGE else k for k in numbers]
    at += 4 + n
  raise refuse("a member's size of 64 bits is missing")


def member_bytes(data: Mapped | Bytes, name: str, m: Member, refuse: Refuse, most: int | None = None) -> Bytes:
  """The bytes of a member, unpacked and compared with their checksum; one of more than ``most`` is refused."""
  if most is not None and m.size > most: raise refuse(f"{shown(name)} has {m.size} bytes, at most {most} are read")
  found = data[m.begin:m.end]
  if m.packed:
    try: out = zlib.decompressobj(-15).decompress(found.data, m.size + 1)
    except zlib.error as e: raise refuse(f"{shown(name)}: {e}") from None
    if len(out) != m.size: raise refuse(f"{shown(name)} unpacks to {len(out)} bytes or more, it says {m.size}")
    found = np.frombuffer(out, np.uint8)
  if m.crc is not None and zlib.crc32(found.data) != m.crc:
    raise refuse(f"the bytes of {shown(name)} are others than were written")
  return found


def first_bytes(data: Mapped | Bytes, name: str, m: Member, refuse: Refuse, n: int) -> bytes:
  """The first n bytes of a member, or all."""
  found = data[m.begin:min(m.end, m.begin + n)].tobytes()
  if not m.packed: return found
  try: return zlib.decompressobj(-15).decompress(found, min(n, m.size))
  except zlib.error as e: raise refuse(f"{shown(name)}: {e}") from None


# ---- npz: a zip archive with a .npy file for each array, as numpy.savez writes it

_BEGIN = 1 << 16   # bytes of a .npy header, at most
# dtypes that the format has
_NUMPY = frozenset(d for d in dtypes.all if d.np.type.__module__ == "numpy")


@checked
def npz_save(tensors: Mapping[str, Tensor], path: str | os.PathLike[str], compressed: bool = False) -> None:
  """Write ``tensors`` to an npz file at ``path``, which numpy.load reads; ``compressed`` makes it smaller and slower to read.

  They are written one after the other; a file that was there is replaced only when the new one is whole, as for ``safe_save``.
  Raises StateError for a name that is no string, for bfloat16 and fp8, which numpy's format has not, and for a path where a
  folder or a device is; MissingFileError where there is no such folder.
  """
  import zipfile
  to = files.plain_file("npz_save", path, new=True)
  for name, t in tensors.items():
    if not isinstance(name, str) or not name or "\0" in name or len(said := name.encode(errors="ignore")) > 60000 \
       or said.decode() != name:
      raise StateError(f"npz_save: {shown(name)} cannot be an array's name; use a string")
    if not isinstance(t, Tensor): raise StateError(f"npz_save: {shown(name)} is {type(t).__name__}, expected a Tensor")
    if t.dtype not in _NUMPY:
      raise StateError(f"npz_save: {shown(name)} is {t.dtype.name}, which the format has not; "
                       "cast it to float32, or use safe_save")
  how = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
  with files.replacing(to) as f, zipfile.ZipFile(f, "w", how, allowZip64=True) as z:
    for name, t in tensors.items():
      # an early date, as numpy has it: equal tensors are equal files
      info = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
      info.compress_type = how
      with z.open(info, "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(member, {
          "descr": np.lib.format.dtype_to_descr(t.dtype.np), "fortran_order": False, "shape": tuple(map(int, t.shape))})
        member.write(host_bytes(t).data)


@checked
def npz_load(path: str | os.PathLike[str], device: str | None = None) -> dict[str, Tensor]:
  """The arrays of the npz file at ``path`` as tensors, by name, on ``device`` (the default one if None).

  Bytes of a tensor are read, and unpacked, when it is first used. Raises MissingFileError, and StateError for a file that is
  damaged or holds what no tensor is made of (Python objects, text, complex numbers); nothing is loaded then, and nothing in it
  is run.
  """
  refuse = files.refuser("npz_load", path, "is not a whole npz file")
  data = Mapped("npz_load", path)
  out = dict[str, Tensor]()
  for member, m in zip_members(data, refuse, paths=False).items():
    name = member.removesuffix(".npy")
    if name == member: raise refuse(f"{shown(member)} is no array; its members end with .npy")
    out[name] = _array(data, member, m, refuse, device)
  return out


def _array(data: Mapped, name: str, m: Member, refuse: Refuse, device: str | None) -> Tensor:
  shape, fortran, dtype, order, start = array_header(first_bytes(data, name, m, refuse, _BEGIN), name, refuse)
  size = checked_shape(shape, dtype, shown(name), refuse)
  if start + size != m.size:
    raise refuse(f"{shown(name)} has {m.size - start} bytes of data, shape {shown(shape)} of {dtype.name} takes {size}")
  read = checked_bools(lambda: member_bytes(data, name, m, refuse)[start:], dtype, size, m.packed, shown(name), refuse)
  t = tensor_of(read if order.isnative else swapped(read, order.itemsize), dtype, shape[::-1] if fortran else shape, device)
  return t.permute(*range(len(shape))[::-1]) if fortran and len(shape) > 1 else t


# {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
_PAIR = re.compile(r"""\s*['"](descr|fortran_order|shape)['"]\s*:\s*
  ('[^']{1,40}' | "[^"]{1,40}" | True | False | \((?:\s*\d{1,20}L?\s*(?:,|(?=\))))*\s*\)) \s*(?:,|(?=\}))""", re.VERBOSE)


def array_header(begins: bytes, name: str, refuse: Refuse) -> tuple[tuple[int, ...], bool, DType, np.dtype[Any], int]:
  """Of the header of an array's file: shape, whether columns come first, dtype here, dtype there, and where the data begins."""
  wide = {b"\1\0": 2, b"\2\0": 4}.get(begins[6:8])
  if begins[:6] != b"\x93NUMPY" or wide is None: raise refuse(f"{shown(name)} has no header of an array")
  start = 8 + wide + int.from_bytes(begins[8:8 + wide], "little")
  if start > len(begins): raise refuse(f"{shown(name)} has no header of an array: one of {start} bytes")
  text = begins[8 + wide:start].decode("latin-1").strip()
  found, at = {}, 1
  while (pair := _PAIR.match(text, at)) is not None and pair[1] not in found: found[pair[1]], at = pair[2], pair.end()
  if text[:1] != "{" or text[at:].strip() != "}" or len(found) != 3 or found["fortran_order"] not in ("True", "False") \
     or found["shape"][0] != "(": raise refuse(f"{shown(name)} has no header of an array, but {shown(text)}")
  shape = tuple(int(n) for n in re.findall(r"\d+", found["shape"]))
  there: Any = found["descr"][1:-1]
  try:
    there = np.dtype(there)
    dtype = dtypes.of(there.newbyteorder("="))
  except (NtgradError, TypeError, ValueError, SyntaxError):
    raise refuse(f"{shown(name)} holds {there}, which no tensor is made of") from None
  return shape, found["fortran_order"] == "True", dtype, there, start
