"""Kernels as their authors write them for NineToothed (examples/tile/ported.py), on every backend."""
from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ntgrad.codegen.ir.config import config
from support.devices import needs_cuda
from support.triton import needs_triton

FILE = Path(__file__).resolve().parents[2] / "examples" / "tile" / "ported.py"


def _ported() -> Any:
  spec = importlib.util.spec_from_file_location("ported_kernels", FILE)
  assert spec is not None and spec.loader is not None
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


ported = _ported()
NAMES = list(ported.cases(np.random.default_rng(0)))


@pytest.mark.parametrize(
  "device", ["CPU", "NUMPY", pytest.param("TRITON", marks=needs_triton), pytest.param("CUDA", marks=needs_cuda)]
)
@pytest.mark.parametrize("name", NAMES)
def test_against_numpy(name: str, device: str) -> None:
  with config(dev=device):
    for got, want in ported.cases(np.random.default_rng(0))[name](): np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_there_are_ten() -> None: assert len(NAMES) == 10
