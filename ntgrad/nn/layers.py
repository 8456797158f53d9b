"""Layers that are rows of the table of signatures (``compat/signatures.py``); each is made when it is used first."""
# ruff: noqa: F401 - what is handed on
from __future__ import annotations

# what annotations of the layers name
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY
from typing import Any

from ntgrad.codegen.ir import DType
from ntgrad.graph import Ints
from ntgrad.tensor import Tensor

from .made import class_of


def __getattr__(name: str) -> Any:
  try: made = globals()[name] = class_of(name)
  except KeyError: raise AttributeError(name) from None
  return made
