"""Files as ``torch.save`` writes them, by path or as open ones."""
from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any

from ntgrad.codegen.ir import ArgumentError, shown
from ntgrad.nn.state import torch_load, torch_save
from ntgrad.nn.tree import tensors
from ntgrad.tensor import Tensor


def save(obj: Any, f: Any, pickle_module: Any = None, pickle_protocol: Any = 2,
         _use_new_zipfile_serialization: Any = True) -> None:
  """Write a state dict, or tensors in lists, tuples and dicts beside numbers and text, to a path or an open file: see
  :func:`nn.state.torch_save`. There is one format, whatever the rest says."""
  if not hasattr(f, "write"): return torch_save(obj, f)
  with tempfile.TemporaryDirectory() as folder:
    torch_save(obj, os.path.join(folder, "saved"))
    with open(os.path.join(folder, "saved"), "rb") as made: shutil.copyfileobj(made, f)
  return None


def load(f: Any, map_location: Any = None, pickle_module: Any = None, *, weights_only: Any = True, mmap: Any = None) -> Any:
  """What is in a file that torch.save has written, given by its path or open, on the device ``map_location``: see
  :func:`nn.state.torch_load`. No code of the file runs, whatever ``weights_only`` says. Raises ArgumentError for a function or a
  dict as ``map_location``."""
  if map_location is not None and not isinstance(map_location, str):
    raise ArgumentError(f"load: map_location {shown(map_location)}; it takes a device, such as 'cpu'")
  if not hasattr(f, "read"): return torch_load(f, map_location)
  with tempfile.TemporaryDirectory() as folder:
    with open(os.path.join(folder, "saved"), "wb") as copy: shutil.copyfileobj(f, copy)
    out = torch_load(os.path.join(folder, "saved"), map_location)
    found = [p.value for p in tensors([out]).values()]
    if found: Tensor.realize(*found)   # the file goes
    return out
