"""npz files: a zip archive with a .npy file for each array, as numpy.savez writes it."""
from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ntgrad.codegen.ir.dtype import DType, dtypes
from ntgrad.codegen.ir.errors import NtgradError, StateError, shown
from ntgrad.codegen.ir.paths import shown_path
from ntgrad.graph.checks import checked
from ntgrad.nn.files import plain_file, replaced_when_whole
from ntgrad.tensor import Tensor

from .archives import Member, first_bytes, member_bytes, zip_members
from .mapped import Mapped, Refuse, checked_bools, checked_shape, host_bytes, swapped, tensor_of

_HEADER = 1 << 16   # bytes of a .npy header, at most
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
  to = plain_file("npz_save", path, new=True)
  for name, t in tensors.items():
    if not isinstance(name, str) or not name or "\0" in name or len(said := name.encode(errors="ignore")) > 60000 \
       or said.decode() != name:
      raise StateError(f"npz_save: {shown(name)} cannot be an array's name; use a string")
    if not isinstance(t, Tensor): raise StateError(f"npz_save: {shown(name)} is {type(t).__name__}, expected a Tensor")
    if t.dtype not in _NUMPY:
      raise StateError(f"npz_save: {shown(name)} is {t.dtype.name}, which the format has not; "
                       "cast it to float32, or use safe_save")
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


@checked
def npz_load(path: str | os.PathLike[str], device: str | None = None) -> dict[str, Tensor]:
  """The arrays of the npz file at ``path`` as tensors, by name, on ``device`` (the default one if None).

  Bytes of a tensor are read, and unpacked, when it is first used. Raises MissingFileError, and StateError for a file that is
  damaged or holds what no tensor is made of (Python objects, text, complex numbers); nothing is loaded then, and nothing in it
  is run.
  """
  def refuse(why: str) -> StateError: return StateError(f"npz_load: {shown_path(path)} is not a whole npz file: {why}")
  data = Mapped("npz_load", path)
  out: dict[str, Tensor] = {}
  for member, m in zip_members(data, refuse, paths=False).items():
    name = member.removesuffix(".npy")
    if name == member: raise refuse(f"{shown(member)} is no array; its members end with .npy")
    out[name] = _array(data, member, m, refuse, device)
  return out


def _array(data: Mapped, name: str, m: Member, refuse: Refuse, device: str | None) -> Tensor:
  shape, fortran, dtype, order, start = array_header(first_bytes(data, name, m, refuse, _HEADER), name, refuse)
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
  shape = tuple([int(n) for n in re.findall(r"\d+", found["shape"])])
  there: Any = found["descr"][1:-1]
  try:
    there = np.dtype(there)
    dtype = dtypes.of(there.newbyteorder("="))
  except (NtgradError, TypeError, ValueError, SyntaxError):
    raise refuse(f"{shown(name)} holds {there}, which no tensor is made of") from None
  return shape, found["fortran_order"] == "True", dtype, there, start
