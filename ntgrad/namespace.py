"""Functions of this package that are methods of ``Tensor``: ``ntgrad.cat([a, b], dim=1)``.

Programs written for other libraries call them so. Nothing is listed: each public method is one, and each dtype is a name too
(``ntgrad.float32``). A module of this package that is called like a function of theirs keeps its name.
"""
from __future__ import annotations

import inspect
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from ntgrad.codegen.dtype import DType, dtypes
from ntgrad.tensor import Tensor

_KINDS = (staticmethod, classmethod)


def room(name: str) -> ModuleType | None:
  """The public module of this package with this name, imported or not, None where there is none: ``ntgrad.tile`` is the
  language of kernels, whether something has imported it before or not."""
  return import_module(f"ntgrad.{name}") if not name.startswith("_") and find_spec(f"ntgrad.{name}") is not None else None


def method(name: str) -> Any:
  """The public method of ``Tensor`` with this name as a function, None where there is none."""
  if name.startswith("_"): return None
  found = inspect.getattr_static(Tensor, name, None)
  return getattr(Tensor, name) if isinstance(found, _KINDS) or inspect.isfunction(found) else None


def dtype(name: str) -> DType | None:
  """The dtype with this name, None where there is none."""
  found = None if name.startswith("_") else getattr(dtypes, name, None)
  return found if isinstance(found, DType) else None


def methods() -> list[str]:
  """The names of all functions."""
  return [n for n in dir(Tensor) if method(n) is not None]
