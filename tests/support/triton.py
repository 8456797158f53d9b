"""The device that runs Triton source under Triton's interpreter, for tests: "TRITON" where triton is installed."""
from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator

import pytest

from ntgrad.backends.base import KernelSource
from ntgrad.backends.cuda import compiler

NAME = "TRITON"
INSTALLED, REASON = compiler.available()
needs_triton = pytest.mark.skipif(not INSTALLED, reason=REASON)


def module(text: str, params: int = 1, **options: int) -> KernelSource:
  """Triton's Python written by hand, its parameters pointers to float32."""
  return KernelSource(text, tuple((f"data{i}", "*fp32") for i in range(params)), tuple(options.items()))


@contextmanager
def installed() -> Iterator[None]:
  """Skips the test where triton is not installed."""
  if not INSTALLED: pytest.skip(REASON)
  yield
