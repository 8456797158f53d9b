"""``torch``'s own functions: its names with its parameters, in its order, with its defaults.

Most are rows of the table of signatures (``compat/signatures.py``), or functions of ``nn.functional``. The rest is written out by
kind: ``reductions.py``, ``rearranged.py``, ``making.py``, ``kinds.py`` of dtypes and devices, ``files.py``, ``settings.py``.
Methods that PyTorch has no function for are functions with their own parameters. Beside them the package has modules and dtypes
under names that are not there yet; a module that is called like a function of theirs keeps its name.
"""
from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from ntgrad.codegen.ir import DType, dtypes

_NAMES = {   # by file
  "files": "load save",
  "reductions": "gradient max min norm qr std std_mean svd var var_mean",
  "rearranged": "adjoint atleast_1d atleast_2d atleast_3d broadcast_tensors column_stack cross isin msort pow "
    "repeat_interleave rsub scatter where",
  "making": "BFloat16Tensor BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor LongTensor "
    "ShortTensor arange as_tensor asarray frombuffer get_rng_state initial_seed manual_seed normal randint_like range "
    "scalar_tensor seed set_rng_state",
  "kinds": "Size broadcast_shapes can_cast channels_last channels_last_3d conj contiguous_format device dtype e finfo iinfo inf "
    "is_complex is_conj is_neg is_nonzero is_same_size is_signed is_storage is_tensor isreal memory_format nan newaxis pi "
    "preserve_format promote_types real resolve_conj resolve_neg result_type typename",
  "settings": "are_deterministic_algorithms_enabled compile function get_default_device get_float32_matmul_precision "
    "get_num_threads is_inference_mode_enabled set_default_device set_float32_matmul_precision set_num_threads set_printoptions "
    "use_deterministic_algorithms vmap"}
_FILE_OF = {name: file for file, names in _NAMES.items() for name in names.split()}
MISSING: Any = object()


def room(name: str) -> ModuleType | None:
  """The public module of ntgrad with this name, imported or not, None where there is none: ``ntgrad.tile`` is the
  language of kernels, whether something has imported it before or not."""
  return import_module(f"ntgrad.{name}") if not name.startswith("_") and find_spec(f"ntgrad.{name}") is not None else None


def dtype(name: str) -> DType | None:
  """The dtype with this name, None where there is none."""
  found = None if name.startswith("_") else getattr(dtypes, name, None)
  return found if isinstance(found, DType) else None


def find(name: str) -> Any:
  """What PyTorch has under this name; MISSING where it is not here."""
  from ntgrad.compat.signatures import AT_TOP, TOP
  from ntgrad.tensor.made import function, method, rows
  if name in _FILE_OF: return getattr(import_module(f"{__name__}.{_FILE_OF[name]}"), name)
  if name in AT_TOP: return getattr(import_module("ntgrad.nn.functional"), name)
  row = rows(TOP).get(name)
  return function(name, row, "ntgrad") if row is not None else method(name) or MISSING
