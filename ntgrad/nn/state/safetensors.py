"""Safetensors files, one or several with an index.

A safetensors file is a little-endian u64 header length, that many bytes of JSON
(``{name: {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {str: str}}``), then the raw data. An index is a JSON
file ``{"metadata": {..}, "weight_map": {name: the file that has it}}``.
"""
from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from ntgrad.codegen.ir import MissingFileError, StateError, shown
from ntgrad.codegen.ir.paths import shown_path
from ntgrad.core import MAX_SIZE
from ntgrad.graph import checked
from ntgrad.graph.buffer_names import remember_names
from ntgrad.tensor import Tensor

from . import files
from .files import Entry, Mapped, Refuse, checked_bools, checked_shape, dtypes_in, host_bytes, refuser, tensor_of
from .names import listed

# what files call the dtypes; the format has no others that ntgrad could hold
SAFE_DTYPES = dtypes_in("BOOL:bool I8:int8 U8:uint8 I16:int16 U16:uint16 I32:int32 U32:uint32 I64:int64 U64:uint64 "
  "F8_E4M3:float8_e4m3 F8_E5M2:float8_e5m2 F8_E8M0:float8_e8m0 F16:float16 BF16:bfloat16 F32:float32 F64:float64")
_SAFE_NAMES = {d: name for name, d in SAFE_DTYPES.items()}
_MAX_HEADER = 100_000_000  # the format's own limit: a damaged length must not make us read gigabytes
_WHAT = "is not a whole safetensors file"
INDEX, WHOLE = "model.safetensors.index.json", "model.safetensors"   # what folders of models call them


@checked
def safe_save(tensors: Mapping[str, Tensor], path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None) -> None:
  """Write ``tensors`` to a safetensors file at ``path``. A file that was there is replaced only when the new one is whole.

  They are written one after the other: what is not computed yet is computed when its turn comes, and only for the file.
  Raises StateError for a name or a metadata entry that is not a string, for the name ``__metadata__``, and for a path where a
  folder or a device is; MissingFileError where there is no such folder. Files that a killed save left in the folder are removed.
  """
  to = files.plain_file("safe_save", path, new=True)
  for name, t in tensors.items():
    if not isinstance(name, str) or name == "__metadata__":
      raise StateError(f"safe_save: {shown(name)} cannot be a tensor's name; use a string other than '__metadata__'")
    if not isinstance(t, Tensor): raise StateError(f"safe_save: {shown(name)} is {type(t).__name__}, expected a Tensor")
    if t.dtype not in _SAFE_NAMES:
      raise StateError(f"safe_save: {shown(name)} is {t.dtype}, the format has only {', '.join(d.name for d in _SAFE_NAMES)}")
  header = dict[str, Any]()
  if metadata is not None:
    for k, v in metadata.items():
      if not isinstance(k, str) or not isinstance(v, str):
        raise StateError(f"safe_save: metadata {shown(k)} is not a string with a string value; use json.dumps for other values")
    header["__metadata__"] = dict(metadata)
  # widest elements first: every tensor then starts at a multiple of its item size without holes, which the format forbids
  remember_names(tensors)
  order = sorted(tensors, key=lambda n: -tensors[n].dtype.itemsize)
  ends = dict(zip(order, accumulate([tensors[n].nbytes() for n in order])))
  for name, t in tensors.items():
    header[name] = {"dtype": _SAFE_NAMES[t.dtype], "shape": list(t.shape), "data_offsets": [ends[name] - t.nbytes(), ends[name]]}
  text = json.dumps(header, separators=(",", ":")).encode()
  text += b" " * (-len(text) % 8)
  if len(text) > _MAX_HEADER:
    raise StateError(f"safe_save: the header of {len(tensors)} tensors takes {len(text)} bytes, the format allows {_MAX_HEADER}")
  with files.replacing(to) as f:
    f.write(len(text).to_bytes(8, "little") + text)
    for name in order: f.write(host_bytes(tensors[name]).data)


@checked
def safe_load(path: str | os.PathLike[str], device: str | None = None) -> dict[str, Tensor]:
  """The tensors of the safetensors file at ``path``, by name, in the file's order, on ``device`` (the default one if None).

  ``path`` may be an index (``model.safetensors.index.json``) of several files, or a folder that has one or ``model.safetensors``:
  then they are the tensors that the index names. The header is read and checked now, a tensor's bytes when it is first used: the
  file has to stay as it is until then (one that is replaced as a whole does). Raises MissingFileError (a FileNotFoundError), and
  StateError for a file that is truncated or damaged in any way; nothing is loaded then.
  """
  at = _whole_or_index(path)
  if not at.name.endswith(".json"): return _tensors(at, device)
  where, _ = _index(at)
  shards = {file: _tensors(at.parent / file, device) for file in dict.fromkeys(where.values())}
  for name, file in where.items():
    if name not in shards[file]:
      raise StateError(f"safe_load: {shown_path(at)} says that {shown(name)} is in {file!r}, "
                       f"which has {listed(list(shards[file]))}")
  return {name: shards[file][name] for name, file in where.items()}


@checked
def safe_load_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
  """The ``__metadata__`` of a safetensors file, ``{}`` if it has none; of an index its ``metadata``, values that are no text as
  JSON. Raises as :func:`safe_load`."""
  at = _whole_or_index(path)
  return _index(at)[1] if at.name.endswith(".json") else _parse(at)[2]


def _tensors(path: Path, device: str | None) -> dict[str, Tensor]:
  file, entries, _ = _parse(path)
  reads = [checked_bools(partial(file.__getitem__, slice(e.begin, e.end)), e.kind, e.end - e.begin, False, shown(e.name),
                         refuser("safe_load", path, _WHAT)) for e in entries]
  return {e.name: tensor_of(read, e.kind, e.shape, device) for e, read in zip(entries, reads)}


# ---- several files with an index

def _whole_or_index(path: str | os.PathLike[str]) -> Path:
  """The file that is meant: an index or one of tensors, which a folder has under the usual names."""
  folder = Path(path)
  if not os.path.isdir(folder): return folder   # what cannot be a path is refused where it is opened
  found = next((folder / name for name in (INDEX, WHOLE) if (folder / name).exists()), None)
  if found is None:
    raise StateError(f"safe_load: {shown_path(path)} is a folder without {INDEX} and {WHOLE}; give the path of a file")
  return found


def _index(path: Path) -> tuple[dict[str, str], dict[str, str]]:
  """Which file has which tensor, and the metadata, of an index."""
  refuse = refuser("safe_load", path, "is no index of safetensors files")
  data = Mapped("safe_load", path)
  if len(data) > _MAX_HEADER: raise refuse(f"it has {len(data)} bytes, at most {_MAX_HEADER} are read")
  found = _json(data[:].tobytes(), refuse, "it", len(data))
  where = found.get("weight_map")
  if not isinstance(where, dict): raise refuse("it has no weight_map, an object of file names by tensor")
  for name, file in where.items():
    # files come from strangers: nothing outside the folder is read
    if not isinstance(file, str) or "\0" in file or len(file) > 255 or file != os.path.basename(file) \
       or not file.endswith(".safetensors"):
      raise refuse(f"{shown(name)} is in {shown(file)}, expected the name of a .safetensors file of the same folder")
    if not (path.parent / file).exists():
      raise MissingFileError(f"safe_load: {shown_path(path)} says that {shown(name)} is in {file!r}, which is not there")
  metadata = found.get("metadata") or {}
  if not isinstance(metadata, dict): raise refuse("its metadata is not an object")
  return where, {k: v if isinstance(v, str) else json.dumps(v) for k, v in metadata.items()}


def _json(text: bytes, refuse: Refuse, what: str, size: int) -> dict[str, Any]:
  """A JSON object in which no name stands twice."""
  def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict[str, Any]()
    for k, v in pairs:
      if k in out: raise refuse(f"the name {shown(k)} stands twice in {what}")
      out[k] = v
    return out
  # what it takes in memory, at most: files come from strangers
  takes = 5 * len(text) + sum(text.count(c) * n for c, n in ((b"{", 240), (b"[", 80), (b":", 100), (b'"', 30), (b",", 40)))
  if takes > (room := (40 << 20) + 4 * size): raise refuse(f"{what} may take {takes} bytes, at most {room} for a file of {size}")
  try: found = json.loads(text.decode("utf-8"), object_pairs_hook=unique)
  except StateError: raise
  except (ValueError, RecursionError) as why:  # not UTF-8, not JSON, a number of thousands of digits, brackets without end
    raise refuse(f"{what} is not JSON ({type(why).__name__}: {str(why)[:200]})") from None
  if not isinstance(found, dict): raise refuse(f"{what} is a JSON {type(found).__name__}, expected an object")
  return found


# ---- one file

def _parse(path: Path) -> tuple[Mapped, list[Entry], dict[str, str]]:
  """The file, the checked entries and the metadata."""
  refuse = refuser("safe_load", path, _WHAT)
  raw = Mapped("safe_load", path)
  if len(raw) < 8: raise refuse(f"it has {len(raw)} bytes, the header length alone takes 8")
  length = int.from_bytes(raw[:8].tobytes(), "little")
  if length > _MAX_HEADER: raise refuse(f"its header length is {length} bytes, the format allows {_MAX_HEADER}")
  if 8 + length > len(raw): raise refuse(f"its header of {length} bytes does not fit the file of {len(raw)} bytes")
  header = _json(raw[8:8 + length].tobytes(), refuse, "its header", len(raw))
  metadata = {} if (given := header.pop("__metadata__", None)) is None else given
  if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
    raise refuse("its __metadata__ is not an object of strings")

  start = 8 + length
  entries = [_entry(name, spec, start, len(raw), refuse) for name, spec in header.items()]
  at, before = start, "the start"
  for e in sorted(entries, key=lambda e: (e.begin, e.end)):
    if e.begin != at:
      raise refuse(f"{shown(e.name)} starts at byte {e.begin - start}, which "
                   f"{'overlaps' if e.begin < at else 'leaves a hole after'} {before} (ends at {at - start})")
    at, before = e.end, shown(e.name)
  if at != len(raw): raise refuse(f"its tensors take {at - start} bytes, the file has {len(raw) - start} bytes of data")
  return raw, entries, metadata


def _entry(name: str, spec: Any, start: int, whole: int, refuse: Refuse) -> Entry:
  """A tensor's entry with its place in the file of ``whole`` bytes, whose data begins at ``start``."""
  size = whole - start
  def natural(x: Any) -> bool: return isinstance(x, int) and not isinstance(x, bool) and x >= 0
  if not isinstance(spec, dict) or not {"dtype", "shape", "data_offsets"} <= set(spec):
    raise refuse(f"{shown(name)} lacks one of dtype, shape and data_offsets")
  dtype = SAFE_DTYPES.get(spec["dtype"]) if isinstance(spec["dtype"], str) else None
  if dtype is None: raise refuse(f"{shown(name)} has the dtype {shown(spec['dtype'])}; dtypes: {', '.join(SAFE_DTYPES)}")
  shape, offsets = spec["shape"], spec["data_offsets"]
  if not isinstance(shape, list) or not all(natural(d) for d in shape):
    raise refuse(f"{shown(name)} has the shape {shown(shape)}, expected a list of whole numbers")
  if not isinstance(offsets, list) or len(offsets) != 2 or not all(natural(o) and o <= MAX_SIZE for o in offsets):
    raise refuse(f"{shown(name)} has the data_offsets {shown(offsets)}, expected two whole numbers")
  begin, end = offsets
  if begin > end or end > size:
    raise refuse(f"{shown(name)} takes bytes {begin} to {end} of its {size} bytes of data (the file may be truncated)")
  if end - begin != (need := checked_shape(tuple(shape), dtype, shown(name), refuse)):
    raise refuse(f"{shown(name)} takes {end - begin} bytes, shape {shown(tuple(shape))} of {dtype.name} takes {need}")
  return Entry(name, dtype, tuple(shape), start + begin, start + end)
