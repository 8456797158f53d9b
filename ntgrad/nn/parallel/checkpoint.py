"""Checkpoints that all ranks write and any number of ranks reads: safetensors files and an index, which names them.

The index is replaced at the end, in one step. Until then it names the files of the checkpoint before, which stay: so whatever is
killed while it writes, the last whole checkpoint is there."""
from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ntgrad.codegen.ir import DistributedError, StateError, shown
from ntgrad.distributed.operations import group_of, numbers_of
from ntgrad.distributed.world import Group, known
from ntgrad.graph import checked
from ntgrad.nn.state import safe_load, safe_load_metadata, safe_save
from ntgrad.nn.state.files import replacing
from ntgrad.nn.state.safetensors import INDEX
from ntgrad.tensor import Tensor

_STATE = "ntgrad.state"   # the entry of the index's metadata that says how tensors and values are nested
_PLAIN = bool, int, float, str, type(None)


@checked
def save_checkpoint(state: Mapping[str, Any], folder: str | os.PathLike[str], process_group: Any = None) -> None:
  """Write nested dicts, lists and tuples of tensors and plain values (numbers, text, None), the same on all ranks of a group,
  into a folder. All ranks call it; each writes its part of the tensors. What was in the folder is replaced when all of it is
  written. In a process that is in no group it writes everything. Raises StateError for what cannot be written, DistributedError
  where another rank could not write."""
  tensors = dict[str, Tensor]()
  text = json.dumps(_described("", state, tensors))
  group = None if known() is None and process_group is None else group_of(process_group)
  rank, size, to = (0, 1, Path(folder)) if group is None else (group.rank(), group.size(), Path(folder))
  stamp = _told(group, int.from_bytes(secrets.token_bytes(6), "big"))[0]
  files = [f"{stamp:012x}-{i + 1:05}-of-{size:05}.safetensors" for i in range(size)]
  parts, error = _parts(tensors, size), None
  try:
    to.mkdir(parents=True, exist_ok=True)
    safe_save({name: tensors[name] for name in parts[rank]}, to / files[rank])
  except Exception as e: error = e
  failed = [i for i, bad in enumerate(_told(group, error is not None)) if bad]
  if rank == 0 and not failed:
    try:
      index = {"metadata": {_STATE: text}, "weight_map": {name: files[i] for i, part in enumerate(parts) for name in part}}
      with replacing(to / INDEX) as f: f.write(json.dumps(index).encode())
    except Exception as e: error = e
  failed = failed or [i for i, bad in enumerate(_told(group, error is not None)) if bad]
  if rank == 0 and not failed:
    for old in to.glob("*-of-*.safetensors"):
      if old.name not in files: old.unlink(missing_ok=True)
  if failed:
    (to / files[rank]).unlink(missing_ok=True)
    if error is not None: raise error
    raise DistributedError(f"save_checkpoint: rank{'s' * (len(failed) > 1)} {', '.join(map(str, failed))} could not write to "
                           f"{to}; the checkpoint before is still there")


@checked
def load_checkpoint(folder: str | os.PathLike[str], device: str | None = None) -> dict[str, Any]:
  """What ``save_checkpoint`` was given, whoever wrote it; the tensors on ``device`` (None: the default one), each read when it is
  first used. Raises StateError and MissingFileError as ``nn.state.safe_load`` does."""
  tensors, text = safe_load(folder, device), safe_load_metadata(folder).get(_STATE)
  try: found = _built(json.loads(text or ""), tensors)
  except (ValueError, KeyError, TypeError, RecursionError) as e:
    raise StateError(f"load_checkpoint: {folder} is no checkpoint: its index does not say how tensors are nested "
                     f"({type(e).__name__})") from None
  if not isinstance(found, dict): raise StateError(f"load_checkpoint: {folder} has {type(found).__name__}, expected a dict")
  return found


def _told(group: Group | None, number: int) -> list[int]:
  """The numbers of all ranks, in their order."""
  return [number] if group is None or group.size() == 1 else numbers_of(number, group)


def _parts(tensors: Mapping[str, Tensor], size: int) -> list[list[str]]:
  """The names of the tensors that each rank writes: about as many bytes each."""
  parts: list[list[str]] = [[] for _ in range(size)]
  filled = [0] * size
  for name, t in tensors.items():
    i = filled.index(min(filled))
    parts[i].append(name)
    filled[i] += t.nbytes()
  return parts


def _described(path: str, x: Any, tensors: dict[str, Tensor]) -> list[Any]:
  """A value for JSON, its tensors by name, which ``tensors`` gets."""
  if isinstance(x, Tensor):
    tensors[path] = x.detach()
    return ["tensor", path]
  if isinstance(x, _PLAIN): return ["value", x]
  if isinstance(x, Mapping):
    if wrong := [k for k in x if not isinstance(k, (str, int))]:
      raise StateError(f"save_checkpoint: {path}: the key {shown(wrong[0])}; keys are text or ints")
    return ["dict", [[k, _described(f"{path}.{k}" if path else str(k), v, tensors)] for k, v in x.items()]]
  if isinstance(x, (list, tuple)):
    return ["tuple" if isinstance(x, tuple) else "list", [_described(f"{path}.{i}", v, tensors) for i, v in enumerate(x)]]
  raise StateError(f"save_checkpoint: {path} is {shown(x)}; it takes tensors, numbers, text, None, and dicts, lists and "
                   "tuples of them")


def _built(described: Sequence[Any], tensors: Mapping[str, Tensor]) -> Any:
  kind, x = described
  if kind == "tensor": return tensors[x]
  if kind == "dict": return {k: _built(v, tensors) for k, v in x}
  if kind in ("list", "tuple"): return (list if kind == "list" else tuple)([_built(v, tensors) for v in x])
  if kind != "value" or not isinstance(x, _PLAIN): raise ValueError
  return x
