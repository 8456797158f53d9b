"""ntgrad: lazy tensors, scheduled into a few fused kernels, each an arrangement plus an application."""
from __future__ import annotations

from typing import Any

from ntgrad.codegen.config import config
from ntgrad.codegen.dtype import dtypes, get_default_dtype, set_default_dtype
from ntgrad.core import no_grad
from ntgrad.device import Device
from ntgrad.tensor import Tensor
from ntgrad.variable import Variable

from_dlpack = Tensor.from_dlpack

_LAZY = {"jit": ("ntgrad.engine.jit", "jit"), "TinyJit": ("ntgrad.engine.jit", "TinyJit"), "nn": ("ntgrad.nn", None),
         "profile": ("ntgrad.profiling", "profile"),
         "errors": ("ntgrad.errors", None), "Generator": ("ntgrad.random", "Generator"),
         "default_generator": ("ntgrad.random", "default_generator")}


def __getattr__(name: str) -> Any:
  if name not in _LAZY: raise AttributeError(f"module 'ntgrad' has no attribute {name!r}")
  from importlib import import_module
  module, attribute = _LAZY[name]
  found = import_module(module) if attribute is None else getattr(import_module(module), attribute)
  globals()[name] = found
  return found


__all__ = [
  "Tensor", "Variable", "dtypes", "config", "from_dlpack", "no_grad", "Device", "jit", "TinyJit", "nn", "errors", "profile",
  "Generator", "default_generator", "get_default_dtype", "set_default_dtype"
]
