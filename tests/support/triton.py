"""The device that runs Triton source under Triton's interpreter, for tests: "TRITON" where triton is installed."""
from __future__ import annotations

from functools import cache
from typing import Any

import ntgrad.device
import ntgrad.engine.compile
import ntgrad.engine.device
from ntgrad.backends.cuda import compiler

NAME = "TRITON"
INSTALLED, REASON = compiler.available()


@cache
def install() -> Any:
  """Make "TRITON" a device whose kernels get TILE axes. Gives the device."""
  from ntgrad.backends.cuda.interpreter import InterpreterDevice
  from ntgrad.backends.cuda.tiling import tile
  if NAME not in ntgrad.device.KINDS:
    ntgrad.device.KINDS = (*ntgrad.device.KINDS, NAME)
    ntgrad.device.canonical.cache_clear()
  device = ntgrad.engine.device._open.setdefault(NAME, InterpreterDevice())
  plain = ntgrad.engine.compile.optimize
  ntgrad.engine.compile.optimize = lambda kernel, target: tile(kernel) if target.blocks else plain(kernel, target)
  return device
