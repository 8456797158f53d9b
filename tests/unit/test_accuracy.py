"""How far float32 sums, products and running sums are from float64: no accumulator takes many additions one after the other."""
from __future__ import annotations

from typing import Callable

import numpy as np
import pytest

from ntgrad import Tensor
from ntgrad.codegen.ir.config import config
from support.marks import long

ULP = 2.0 ** -24


def error(got: Tensor, want: np.ndarray) -> float:
  return float(np.linalg.norm(got.numpy() - want) / np.linalg.norm(want))


def normal(*shape: int) -> np.ndarray: return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("noopt", [0, 1])
@pytest.mark.parametrize("shape,axis", [
  ((2048, 256), 0), ((2047, 257), 0), ((4096, 33), 0), ((33, 4099), 1), ((3, 700, 6, 5), (1, 2))
])
def test_sums(shape: tuple[int, ...], axis: int | tuple[int, ...], noopt: int, monkeypatch: pytest.MonkeyPatch) -> None:
  """One accumulator of 2,048 values is 13 of the last bit away."""
  monkeypatch.setattr(config, "noopt", noopt)
  x = normal(*shape)
  assert error(Tensor(x).sum(axis), x.astype(np.float64).sum(axis)) < 4 * ULP


@pytest.mark.parametrize("m,k,n", [(64, 1024, 65), (48, 2047, 50), (1, 4096, 64), (200, 1021, 513)])
def test_products(m: int, k: int, n: int) -> None:
  """One accumulator of 1,024 products is 9.6 of the last bit away; of its square twice that."""
  a, b = normal(m, k), normal(k, n)
  want = a.astype(np.float64) @ b.astype(np.float64)
  assert error(Tensor(a) @ Tensor(b), want) < 7.5 * ULP
  assert error((Tensor(a) @ Tensor(b)).square(), want * want) < 10 * ULP


def test_convolution() -> None:
  """Two axes of a kernel and channels are one sum."""
  x, w = normal(1, 80, 10, 10), normal(8, 80, 5, 5)
  windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (5, 5), axis=(2, 3))
  want = np.einsum("bchwij,ocij->bohw", windows, w.astype(np.float64))
  assert error(Tensor(x).conv2d(Tensor(w)), want) < 6.5 * ULP


@pytest.mark.parametrize("make", [lambda x: x, lambda x: x.T])
def test_running_sums(make: Callable[[np.ndarray], np.ndarray]) -> None:
  """As many parts as elements of a part: of 2,047, parts of 256 were 6.3 of the last bit away."""
  x = np.ascontiguousarray(make(normal(97, 2047)))
  axis = int(np.argmax(x.shape))
  assert error(Tensor(x).cumsum(axis), x.astype(np.float64).cumsum(axis)) < 4.5 * ULP


@long
def test_sizes_far_from_those_that_kernels_were_made_for() -> None:
  """Kernels with run-time sizes are made when sizes are small, and launched with long ones."""
  with config(dynamic="auto"):
    for m, k, n in ((3, 4, 5), (4, 6, 8), (7, 9, 11), (64, 1024, 65), (5, 40_000, 6), (200, 1021, 513)):
      a, b = normal(m, k), normal(k, n)
      assert error(Tensor(a) @ Tensor(b), a.astype(np.float64) @ b.astype(np.float64)) < 7.5 * ULP, (m, k, n)
    for rows, columns in ((3, 4), (5, 6), (7, 11), (2, 70), (33, 4099), (2, 300_001)):
      for axis in (0, 1):
        x = normal(*((rows, columns) if axis else (columns, rows)))
        assert error(Tensor(x).sum(axis), x.astype(np.float64).sum(axis)) < 6 * ULP, (rows, columns, axis)
