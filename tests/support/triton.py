"""The device that runs Triton source under Triton's interpreter, for tests: "TRITON" where triton is installed."""
from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator

import pytest

import ntgrad.device
import ntgrad.engine.compile
import ntgrad.engine.device
from ntgrad.backends.cuda import compiler

NAME = "TRITON"
INSTALLED, REASON = compiler.available()
needs_triton = pytest.mark.skipif(not INSTALLED, reason=REASON)


@contextmanager
def installed() -> Iterator[None]:
  """While it lasts "TRITON" is a device, and kernels made for it get TILE axes. Skips the test where triton is not installed."""
  if not INSTALLED: pytest.skip(REASON)
  from ntgrad.backends.cuda.interpreter import InterpreterDevice
  from ntgrad.backends.cuda.tiling import tile
  kinds, plain = ntgrad.device.KINDS, ntgrad.engine.compile.optimize
  if NAME not in kinds: ntgrad.device.KINDS = (*kinds, NAME)
  ntgrad.engine.compile.optimize = lambda kernel, target: tile(kernel) if target.blocks else plain(kernel, target)
  if NAME not in ntgrad.engine.device._open: ntgrad.engine.device._open[NAME] = InterpreterDevice()
  try: yield
  finally: ntgrad.device.KINDS, ntgrad.engine.compile.optimize = kinds, plain
