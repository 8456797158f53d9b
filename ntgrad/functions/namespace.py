"""What this package has under a name that is not there yet: a module, a dtype (``ntgrad.float32``), or a function as PyTorch has
it (``ntgrad.functions``: ``ntgrad.cat([a, b], dim=1)``). A module that is called like a function of theirs keeps its name.
"""
from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from ntgrad.codegen.ir import DType, dtypes


def room(name: str) -> ModuleType | None:
  """The public module of this package with this name, imported or not, None where there is none: ``ntgrad.tile`` is the
  language of kernels, whether something has imported it before or not."""
  return import_module(f"ntgrad.{name}") if not name.startswith("_") and find_spec(f"ntgrad.{name}") is not None else None


def dtype(name: str) -> DType | None:
  """The dtype with this name, None where there is none."""
  found = None if name.startswith("_") else getattr(dtypes, name, None)
  return found if isinstance(found, DType) else None
