"""ntgrad: lazy tensors, scheduled into a few fused kernels, each an arrangement plus an application."""
# ruff: noqa: F401, F403 - what a file has to give is its __all__
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ntgrad.codegen.ir import config, dtypes, get_default_dtype, set_default_dtype
from ntgrad.compat.public import show
from ntgrad.engine.device import Device
from ntgrad.graph import Variable, no_grad
from ntgrad.tensor import Tensor

if TYPE_CHECKING:   # what is imported when it is asked for
  from ntgrad import errors, helpers, nn
  from ntgrad.capture.jit import TinyJit, jit
  from ntgrad.engine.profiling import profile
  from ntgrad.functions.files import *
  from ntgrad.functions.kinds import *
  from ntgrad.functions.making import *
  from ntgrad.functions.rearranged import *
  from ntgrad.functions.reductions import *
  from ntgrad.functions.settings import *
  from ntgrad.functions.top import *
  from ntgrad.graph.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    set_grad_enabled,
  )
  from ntgrad.helpers import Context, GlobalCounters, getenv
  from ntgrad.nn import amp
  from ntgrad.nn.amp import GradScaler, autocast, get_autocast_dtype, is_autocast_available, is_autocast_enabled
  from ntgrad.tensor.custom import Function
  from ntgrad.tensor.random import Generator, default_generator
  from ntgrad.tile.eject import override

from_dlpack = Tensor.from_dlpack
Tensor._array_api = staticmethod(lambda: import_module("ntgrad.array_api"))

__version__ = "0.1.0"

_LAZY = {name: module for module, names in (row.split(": ") for row in """
ntgrad.nn.amp: GradScaler autocast get_autocast_dtype is_autocast_available is_autocast_enabled
ntgrad.capture.jit: jit TinyJit
ntgrad.tensor.custom: Function
ntgrad.engine.profiling: profile
ntgrad.tile.eject: override
ntgrad.helpers: Context GlobalCounters getenv
ntgrad.graph.modes: enable_grad inference_mode is_grad_enabled set_grad_enabled
ntgrad.tensor.random: Generator default_generator
""".strip().splitlines()) for name in names.split()}


def __getattr__(name: str) -> Any:
  if name in _LAZY: found = getattr(import_module(_LAZY[name]), name)
  else:
    from ntgrad.functions import MISSING, dtype, find, room
    found = room(name) or dtype(name) or find(name)   # torch.long is a dtype
    if found is MISSING: raise AttributeError(name)
  return found


__all__ = [
  "Tensor", "Variable", "dtypes", "config", "from_dlpack", "no_grad", "Device", "jit", "TinyJit", "nn", "errors", "profile",
  "override", "Context", "GlobalCounters", "getenv", "helpers", "Function", "Generator", "default_generator", "get_default_dtype",
  "set_default_dtype", "enable_grad", "inference_mode", "is_grad_enabled", "set_grad_enabled", "amp", "GradScaler", "autocast",
  "get_autocast_dtype", "is_autocast_available", "is_autocast_enabled"
]

show(__name__)
