"""Names for the tensors of a model, and safetensors files, read and written by our own code.

A safetensors file is a little-endian u64 header length, that many bytes of JSON
(``{name: {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {str: str}}``), then the raw data.
Files come from strangers: everything in one is checked before a tensor is made of it.
"""
from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ntgrad.checks import checked
from ntgrad.codegen.dtype import DType, dtypes
from ntgrad.codegen.errors import StateError, shown
from ntgrad.core import MAX_DIMS, MAX_SIZE
from ntgrad.nn.files import plain_file, replaced_when_whole
from ntgrad.tensor import Tensor

# what files call the dtypes; the format has no others that ntgrad could hold
SAFE_DTYPES: dict[str, DType] = {
  "BOOL": dtypes.bool, "I8": dtypes.int8, "U8": dtypes.uint8, "I16": dtypes.int16, "U16": dtypes.uint16, "I32": dtypes.int32,
  "U32": dtypes.uint32, "I64": dtypes.int64, "U64": dtypes.uint64, "F8_E4M3": dtypes.float8_e4m3, "F8_E5M2": dtypes.float8_e5m2,
  "F16": dtypes.float16, "BF16": dtypes.bfloat16, "F32": dtypes.float32, "F64": dtypes.float64}
_SAFE_NAMES = {d: name for name, d in SAFE_DTYPES.items()}
_MAX_HEADER = 100_000_000  # the format's own limit: a damaged length must not make us read gigabytes


# ---- names

@checked
def get_state_dict(obj: Any, prefix: str = "") -> dict[str, Tensor]:
  """Every Tensor reachable from ``obj`` (attributes, dict values, list and tuple items) under its dotted path.

  ``{"l1.weight": Tensor, "layers.0.bias": Tensor, ..}``, in the order of definition. A tensor held twice is listed
  under both names. ``prefix`` goes before every name. Raises StateError where two paths spell one name.
  """
  out: dict[str, Tensor] = {}
  # a stack, not recursion; ``above`` is the chain of containers, so that a model that refers back to itself ends
  stack: list[tuple[Any, str, tuple[int, ...]]] = [(obj, prefix.rstrip("."), ())]
  while stack:
    x, path, above = stack.pop()
    if isinstance(x, Tensor):
      if path in out and out[path] is not x:
        raise StateError(f"get_state_dict: two different tensors are both called {path!r}; rename one of the attributes or keys")
      out[path] = x
      continue
    if id(x) in above: continue
    items: list[tuple[Any, Any]]
    if isinstance(x, Mapping): items = list(x.items())
    elif isinstance(x, tuple) and hasattr(x, "_fields"): items = list(zip(x._fields, x))
    elif isinstance(x, (list, tuple)): items = list(enumerate(x))
    elif hasattr(x, "__dict__") and not isinstance(x, type): items = list(vars(x).items())
    else: continue
    stack.extend((v, f"{path}.{k}" if path else str(k), (*above, id(x))) for k, v in reversed(items))
  return out


@checked
def get_parameters(obj: Any) -> list[Tensor]:
  """Every Tensor reachable from ``obj``, each once, in the order of :func:`get_state_dict`.

  Includes tensors that are not trained (running statistics); optimizers train those with ``requires_grad`` and leave the others.
  """
  return list({id(t): t for t in get_state_dict(obj).values()}.values())


@checked
def load_state_dict(model: Any, state_dict: Mapping[str, Tensor], strict: bool = True, verbose: bool = False) -> None:
  """Assign the tensors of ``state_dict`` to those of ``model`` with the same names, moved to the model's devices.

  Everything is checked before anything is assigned. Raises StateError for a name that only one side has (unless
  ``strict`` is False) and for a tensor of another shape or dtype. ``verbose`` prints what was loaded and left out.
  """
  mine = get_state_dict(model)
  missing = [k for k in mine if k not in state_dict]
  extra = [k for k in state_dict if k not in mine]
  if strict and (missing or extra):
    said = [f"the model needs {_names(missing)}, which the state dict lacks" if missing else "",
            f"the state dict has {_names(extra)}, which the model lacks" if extra else ""]
    raise StateError(f"load_state_dict: {'; '.join(s for s in said if s)}; "
                     "rename them, or pass strict=False to load only the names that both have")
  pairs: dict[int, tuple[Tensor, Tensor]] = {}
  for name, target in mine.items():
    if name not in state_dict: continue
    value = state_dict[name]
    if not isinstance(value, Tensor):
      raise StateError(f"load_state_dict: {name!r} is {type(value).__name__}, expected a Tensor; wrap it in Tensor(..)")
    if tuple(value.shape) != tuple(target.shape):
      raise StateError(f"load_state_dict: {name!r} has shape {tuple(value.shape)} in the state dict "
                       f"and {tuple(target.shape)} in the model")
    if value.dtype is not target.dtype:
      raise StateError(f"load_state_dict: {name!r} is {value.dtype.name} in the state dict and {target.dtype.name} in the model; "
                       f"cast it first: state_dict[{name!r}].cast({target.dtype.name!r})")
    if value is not target: pairs[id(target)] = (target, value)
  _realize(value for _, value in pairs.values())
  # what they are now: a target may be another one's value
  values = [value.detach().to(target.device) for target, value in pairs.values()]
  for (target, _), value in zip(pairs.values(), values): target.assign(value)
  _realize([target for target, _ in pairs.values()])
  if verbose:
    print(f"loaded {len(mine) - len(missing)} tensors" + (f", without {_names(missing)}" if missing else "")
          + (f", ignored {_names(extra)}" if extra else ""))


def _realize(tensors: Iterable[Tensor]) -> None:
  tensors = list(tensors)
  if tensors: tensors[0].realize(*tensors[1:])


def _names(names: list[str]) -> str:
  shown = ", ".join(repr(n) for n in names[:8])
  return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"


# ---- safetensors files

@checked
def safe_save(tensors: Mapping[str, Tensor], path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None) -> None:
  """Write ``tensors`` to a safetensors file at ``path``. A file that was there is replaced only when the new one is whole.

  Raises StateError for a name or a metadata entry that is not a string, for the name ``__metadata__``, and for a path where a
  folder or a device is; MissingFileError where there is no such folder. Files that a killed save left in the folder are removed.
  """
  to = plain_file("safe_save", path, new=True)
  for name, t in tensors.items():
    if not isinstance(name, str) or name == "__metadata__":
      raise StateError(f"safe_save: {name!r} cannot be a tensor's name; use a string other than '__metadata__'")
    if not isinstance(t, Tensor):
      raise StateError(f"safe_save: {name!r} is {type(t).__name__}, expected a Tensor")
    if t.dtype not in _SAFE_NAMES:
      raise StateError(f"safe_save: {name!r} is {t.dtype}, the format has only {', '.join(d.name for d in _SAFE_NAMES)}")
  header: dict[str, Any] = {}
  if metadata is not None:
    bad = [k for k, v in metadata.items() if not (isinstance(k, str) and isinstance(v, str))]
    if bad:
      raise StateError(f"safe_save: metadata {bad[0]!r} is not a string with a string value; use json.dumps for other values")
    header["__metadata__"] = dict(metadata)
  _realize(tensors.values())
  # widest elements first: every tensor then starts at a multiple of its item size without holes, which the format forbids
  order = sorted(tensors, key=lambda n: -tensors[n].dtype.itemsize)
  begin: dict[str, int] = {}
  at = 0
  for name in order:
    begin[name] = at
    at += math.prod(tensors[name].shape) * tensors[name].dtype.itemsize
  for name, t in tensors.items():
    size = math.prod(t.shape) * t.dtype.itemsize
    header[name] = {"dtype": _SAFE_NAMES[t.dtype], "shape": list(t.shape), "data_offsets": [begin[name], begin[name] + size]}
  text = json.dumps(header, separators=(",", ":")).encode()
  text += b" " * (-len(text) % 8)
  if len(text) > _MAX_HEADER:
    raise StateError(f"safe_save: the header of {len(tensors)} tensors takes {len(text)} bytes, the format allows {_MAX_HEADER}")
  with replaced_when_whole(to) as f:
    f.write(len(text).to_bytes(8, "little") + text)
    for name in order:
      array = np.ascontiguousarray(tensors[name].numpy())
      f.write(array.reshape(-1).view(np.uint8).data)


@dataclass(frozen=True)
class _Entry:
  name: str
  dtype: DType
  shape: tuple[int, ...]
  begin: int
  end: int


@checked
def safe_load(path: str | os.PathLike[str], device: str | None = None) -> dict[str, Tensor]:
  """The tensors of the safetensors file at ``path``, by name, in the file's order, on ``device`` (the default one if None).

  Raises MissingFileError (a FileNotFoundError), and StateError for a file that is truncated or damaged in any way; nothing is
  loaded then.
  """
  data, entries, _ = _parse(path)
  # a copy each: the file's bytes are not kept alive by one small tensor
  arrays = {e.name: data[e.begin:e.end].copy().view(e.dtype.np).reshape(e.shape) for e in entries}
  return {e.name: Tensor(arrays[e.name], dtype=e.dtype, device=device) for e in entries}


@checked
def safe_load_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
  """The ``__metadata__`` of a safetensors file, ``{}`` if it has none. Raises as :func:`safe_load`."""
  return _parse(path)[2]


def _parse(path: str | os.PathLike[str]) -> tuple[np.ndarray, list[_Entry], dict[str, str]]:
  """The raw data, the checked entries and the metadata of a file."""
  def refuse(why: str) -> StateError: return StateError(f"safe_load: {str(path)!r} is not a whole safetensors file: {why}")
  raw = np.fromfile(plain_file("safe_load", path), dtype=np.uint8)
  if len(raw) < 8: raise refuse(f"it has {len(raw)} bytes, the header length alone takes 8")
  length = int.from_bytes(raw[:8].tobytes(), "little")
  if length > _MAX_HEADER: raise refuse(f"its header length is {length} bytes, the format allows {_MAX_HEADER}")
  if 8 + length > len(raw): raise refuse(f"its header of {length} bytes does not fit the file of {len(raw)} bytes")
  data = raw[8 + length:]

  def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for k, v in pairs:
      if k in out: raise refuse(f"the name {k!r} stands twice in its header")
      out[k] = v
    return out
  try:
    header = json.loads(raw[8:8 + length].tobytes().decode("utf-8"), object_pairs_hook=unique)
  except StateError:
    raise
  except (ValueError, RecursionError) as why:  # not UTF-8, not JSON, a number of thousands of digits, brackets without end
    raise refuse(f"its header is not JSON ({type(why).__name__}: {why})") from None
  if not isinstance(header, dict): raise refuse(f"its header is a JSON {type(header).__name__}, expected an object")
  metadata = header.pop("__metadata__", None)
  if metadata is None: metadata = {}
  if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
    raise refuse("its __metadata__ is not an object of strings")

  entries = [_entry(name, spec, len(data), refuse) for name, spec in header.items()]
  at, before = 0, "the start"
  for e in sorted(entries, key=lambda e: (e.begin, e.end)):
    if e.begin != at:
      wrong = "overlaps" if e.begin < at else "leaves a hole after"
      raise refuse(f"{e.name!r} starts at byte {e.begin}, which {wrong} {before} (ends at {at})")
    at, before = e.end, repr(e.name)
  if at != len(data): raise refuse(f"its tensors take {at} bytes, the file has {len(data)} bytes of data")
  for e in entries:
    if e.dtype is dtypes.bool and e.end > e.begin and (top := data[e.begin:e.end].max()) > 1:
      raise refuse(f"{e.name!r} is BOOL and holds a byte {top}, expected 0 or 1")
  return data, entries, metadata


def _entry(name: str, spec: Any, size: int, refuse: Any) -> _Entry:
  def natural(x: Any) -> bool: return isinstance(x, int) and not isinstance(x, bool) and x >= 0
  if not isinstance(spec, dict) or not {"dtype", "shape", "data_offsets"} <= set(spec):
    raise refuse(f"{name!r} lacks one of dtype, shape and data_offsets")
  dtype = SAFE_DTYPES.get(spec["dtype"]) if isinstance(spec["dtype"], str) else None
  if dtype is None: raise refuse(f"{name!r} has the dtype {spec['dtype']!r}; dtypes: {', '.join(SAFE_DTYPES)}")
  shape, offsets = spec["shape"], spec["data_offsets"]
  if not isinstance(shape, list) or not all(natural(d) for d in shape):
    raise refuse(f"{name!r} has the shape {shown(shape)}, expected a list of whole numbers")
  if not isinstance(offsets, list) or len(offsets) != 2 or not all(natural(o) for o in offsets):
    raise refuse(f"{name!r} has the data_offsets {shown(offsets)}, expected two whole numbers")
  begin, end = offsets
  if begin > end or end > size:
    raise refuse(f"{name!r} takes bytes {begin} to {end} of its {size} bytes of data (the file may be truncated)")
  if end - begin != (need := math.prod(shape) * dtype.itemsize):
    raise refuse(f"{name!r} takes {end - begin} bytes, shape {tuple(shape)} of {dtype.name} takes {need}")
  # no elements, but sizes that numpy has not
  if len(shape) > MAX_DIMS or math.prod([d for d in shape if d]) * dtype.itemsize > MAX_SIZE:
    raise refuse(
      f"{name!r} has the shape {shown(shape)} of {len(shape)} dimensions, a tensor has up to {MAX_DIMS} and {MAX_SIZE} bytes"
    )
  return _Entry(name, dtype, tuple(shape), begin, end)


__all__ = ["SAFE_DTYPES", "get_parameters", "get_state_dict", "load_state_dict", "safe_load", "safe_load_metadata", "safe_save"]
