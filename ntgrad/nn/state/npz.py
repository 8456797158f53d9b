"""npz files: a zip archive with a .npy file for each array, as numpy.savez writes it."""
from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ntgrad.checks import checked
from ntgrad.codegen.dtype import DType, dtypes
from ntgrad.codegen.errors import NtgradError, StateError
from ntgrad.nn.files import plain_file, replaced_when_whole
from ntgrad.nn.state.archives import Member, member_bytes, zip_members
from ntgrad.nn.state.mapped import Bytes, Mapped, Refuse, check_bools, checked_shape, host_bytes, tensor_of
from ntgrad.tensor import Tensor

_HEADER = 1 << 20   # bytes of a .npy header that are looked at, at most
# dtypes that the format has
_NUMPY = frozenset(d for d in dtypes.all if d.np.type.__module__ == "numpy")


@checked
def npz_save(tensors: Mapping[str, Tensor], path: str | os.PathLike[str], compressed: bool = False) -> None:
  """Write ``tensors`` to an npz file at ``path``, which numpy.load reads; ``compressed`` makes it smaller and slower to read.

  They are written one after the other, and a file that was there is replaced only when the new one is whole, as for
  ``safe_save``.
  Raises StateError for a name that is no string, for bfloat16 and fp8, which numpy's format has not, and for a path where a
  folder or a device is; MissingFileError where there is no such folder.
  """
  import zipfile
  to = plain_file("npz_save", path, new=True)
  for name, t in tensors.items():
    if not isinstance(name, str) or not name or "\0" in name or _unwritable(name):
      raise StateError(f"npz_save: {name!r} cannot be an array's name; use a string")
    if not isinstance(t, Tensor): raise StateError(f"npz_save: {name!r} is {type(t).__name__}, expected a Tensor")
    if t.dtype not in _NUMPY:
      raise StateError(f"npz_save: {name!r} is {t.dtype.name}, which the format has not; cast it to float32, or use safe_save")
  how = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
  with replaced_when_whole(to) as f, zipfile.ZipFile(f, "w", how, allowZip64=True) as z:
    for name, t in tensors.items():
      # an early date, as numpy has it: equal tensors are equal files
      info = zipfile.ZipInfo(name + ".npy", (1980, 1, 1, 0, 0, 0))
      info.compress_type = how
      with z.open(info, "w", force_zip64=True) as member:
        header = {"descr": np.lib.format.dtype_to_descr(t.dtype.np), "fortran_order": False, "shape": tuple(map(int, t.shape))}
        np.lib.format.write_array_header_1_0(member, header)
        member.write(host_bytes(t).data)


def _unwritable(name: str) -> bool:
  try: name.encode()
  except UnicodeError: return True
  return len(name.encode()) > 60000


@checked
def npz_load(path: str | os.PathLike[str], device: str | None = None) -> dict[str, Tensor]:
  """The arrays of the npz file at ``path`` as tensors, by name, on ``device`` (the default one if None).

  Bytes of a tensor are read, and unpacked, when it is first used. Raises MissingFileError, and StateError for a file that is
  damaged or holds what no tensor is made of (Python objects, text, complex numbers); nothing is loaded then, and nothing in it
  is run.
  """
  def refuse(why: str) -> StateError: return StateError(f"npz_load: {str(path)!r} is not a whole npz file: {why}")
  data = Mapped("npz_load", path)
  out: dict[str, Tensor] = {}
  for member, m in zip_members(data, refuse).items():
    name = member.removesuffix(".npy")
    if name == member: raise refuse(f"{member!r} is no array; its members end with .npy")
    out[name] = _array(data, member, m, refuse, device)
  return out


def _array(data: Mapped, name: str, m: Member, refuse: Refuse, device: str | None) -> Tensor:
  begins = member_bytes(data, name, m, refuse) if m.packed else data[m.begin:m.begin + min(m.size, _HEADER)]
  shape, fortran, dtype, order, start = _header(begins[:_HEADER].tobytes(), name, refuse)
  size = checked_shape(shape, dtype, repr(name), refuse)
  if start + size != m.size:
    raise refuse(f"{name!r} has {m.size - start} bytes of data, shape {shape} of {dtype.name} takes {size}")
  if dtype is dtypes.bool: check_bools(member_bytes(data, name, m, refuse)[start:], dtype, repr(name), refuse)
  source: Callable[[], Bytes] = lambda: _native(member_bytes(data, name, m, refuse)[start:], order)
  t = tensor_of(source, dtype, shape[::-1] if fortran else shape, device)
  return t.permute(*range(len(shape))[::-1]) if fortran and len(shape) > 1 else t


def _header(begins: bytes, name: str, refuse: Refuse) -> tuple[tuple[int, ...], bool, DType, np.dtype[Any], int]:
  """Shape, whether columns come first, dtype here, dtype there, and where the data begins."""
  f = io.BytesIO(begins)
  try:
    version = np.lib.format.read_magic(f)
    if version == (1, 0): found = np.lib.format.read_array_header_1_0(f)
    elif version == (2, 0): found = np.lib.format.read_array_header_2_0(f)
    else: raise ValueError(f"version {version}")
    shape, fortran, there = found
  except Exception as e:   # numpy's parser of such headers lets its tokenizer's errors through
    raise refuse(f"{name!r} has no header of an array ({shown_line(e)})") from None
  if any(isinstance(n, bool) or n < 0 for n in shape): raise refuse(f"{name!r} has the shape {shape}")
  try: dtype = dtypes.of(there.newbyteorder("="))
  except NtgradError: raise refuse(f"{name!r} holds {there}, which no tensor is made of") from None
  return tuple(int(n) for n in shape), bool(fortran), dtype, there, f.tell()


def shown_line(e: Exception) -> str:
  """An exception in a line."""
  return (str(e).splitlines() or [type(e).__name__])[0][:200]


def _native(data: Bytes, order: np.dtype[Any]) -> Bytes:
  """Bytes in the order that the machine has."""
  return data if order.isnative else data.view(order.newbyteorder("=")).byteswap().view(np.uint8)
