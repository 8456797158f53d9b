"""Layers; optimizers in ``nn.optim``, names of tensors and safetensors files in ``nn.state``, digits in ``nn.datasets``.

A layer is a plain object with Tensors for attributes and a ``__call__``; there is no Module to inherit from. Every name is
loaded when it is used first.
"""
# ruff: noqa: F403 - what a file has to give is its __all__
from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  from ntgrad.nn import datasets as datasets, optim as optim, state as state
  from ntgrad.nn.convolution import *
  from ntgrad.nn.embedding import *
  from ntgrad.nn.linear import *
  from ntgrad.nn.norms import *

_NAMES = {   # by file
  "convolution": "Conv1d Conv2d",
  "embedding": "Embedding",
  "linear": "Linear",
  "norms": "BatchNorm BatchNorm2d BatchNorm3d GroupNorm LayerNorm LayerNorm2d RMSNorm"}
_FILES = ("datasets", "optim", "state")
_FILE_OF = {name: file for file, names in _NAMES.items() for name in names.split()}

__all__ = [*_FILE_OF, *_FILES]


def __getattr__(name: str) -> Any:
  from importlib import import_module
  if name in _FILES: found = import_module(f"ntgrad.nn.{name}")
  elif name in _FILE_OF: found = getattr(import_module(f"ntgrad.nn.{_FILE_OF[name]}"), name)
  else: raise AttributeError(f"module 'ntgrad.nn' has no attribute {name!r}")
  globals()[name] = found
  return found


def __dir__() -> list[str]: return list(__all__)
