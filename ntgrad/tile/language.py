"""The language of applications: functions of blocks. ``import ntgrad.tile.language as tl``.

Blocks have shapes and dtypes; arithmetic broadcasts as numpy's does, and Python numbers take part by kind only. Every function
here is called inside an application, which ``tile.make`` reads; ints and floats are blocks of shape ``()``. Functions of floats
compute in float32 where they are given ints. Raises ShapeError, AxisError, DTypeError and ArgumentError, with the application's
line.
"""
from __future__ import annotations

from ntgrad.codegen.ir import DType
from ntgrad.compat.public import show

from . import combining, libdevice as _libdevice, operations, triton_names
from .combining import *  # noqa: F403
from .libdevice import libdevice as libdevice
from .operations import *  # noqa: F403
from .triton_names import *  # noqa: F403

# the names that these files make are the language's own
_OWN = {file.__name__ for file in (combining, _libdevice, operations, triton_names)}

__all__ = sorted(k for k, v in globals().items() if k in ("constexpr", "math", "range") or k[0] != "_" and (  # noqa: PLE0605
  isinstance(v, DType) or getattr(v, "__module__", "") in _OWN))

show(__name__)
