"""The golden kernels on a GPU compute what they do under Triton's interpreter.

    compute-sanitizer --error-exitcode 1 python -m pytest -n 0 tests/golden/test_cuda.py      # and --tool racecheck, initcheck,
    synccheck
"""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.kernel import Kernel
from ntgrad.engine.device import get_device
from support import triton
from support.descriptors import marked, product
from support.devices import needs_cuda
from support.kernels import contents, launch, spec
from support.triton_kernels import NAMES, WITH_BLOCKS, kernels

pytestmark = needs_cuda
MORE = {"descriptors": lambda: [marked(product(200, 96, 72, (64, 32, 32), dtypes.bfloat16, (False, True), batch=3), 0, 1, 2)]}


def data_of(name: str, kernel: Kernel) -> list[np.ndarray[Any, Any]]:
  """Whole numbers; indices in range."""
  data = contents(kernel, np.random.default_rng(0), True)
  for d in data:
    if d.dtype.kind in "iu" and name in ("gather", "embedding_gradient", "scatter", "picked", "rounds"): d[...] = np.abs(d)
  return data


@pytest.mark.parametrize("name", [*NAMES, *MORE])
def test_as_interpreted(name: str) -> None:
  for k in (MORE[name]() if name in MORE else kernels(name)):
    data = data_of(name, k)
    s = spec(k, name, WITH_BLOCKS)
    got, want = (launch(get_device(d), [s], k, data)[0] for d in ("CUDA", triton.NAME))
    for g, w in zip(got, want):
      if g.dtype.kind in "iub": np.testing.assert_array_equal(g, w)
      else:
        eps = {1: 0.13, 2: 0.01}.get(g.dtype.itemsize, 1e-5)
        np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), rtol=eps, atol=eps)
