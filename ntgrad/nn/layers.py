"""Layers that are rows of the table of signatures (``compat/signatures.py``); each is made when it is used first."""
from __future__ import annotations

# what annotations of the layers name
from collections.abc import Callable as Callable, Sequence as Sequence
from dataclasses import KW_ONLY as KW_ONLY
from typing import Any

from ntgrad.codegen.ir import DType as DType
from ntgrad.graph import Ints as Ints
from ntgrad.tensor import Tensor as Tensor

from .made import class_of


def __getattr__(name: str) -> Any:
  try: made = globals()[name] = class_of(name)
  except KeyError: raise AttributeError(name) from None
  return made
