"""Running sums of random shapes, views and dtypes, backwards too, and rows scattered by random indices, against numpy."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ntgrad import Tensor, dtypes
from ntgrad.codegen.ir.uop import BinaryOps
from ntgrad.graph import nodes as graph
from support.marks import long_after

SIZES = (1, 2, 3, 7, 16, 31, 64, 100, 257, 1021)
COMBINERS: dict[BinaryOps, np.ufunc] = {BinaryOps.ADD: np.add, BinaryOps.MAX: np.maximum, BinaryOps.MIN: np.minimum}


def shape_of(rng: Any) -> tuple[int, ...]:
  while True:
    shape = tuple(int(n) for n in rng.choice(SIZES, rng.integers(1, 4)))
    if np.prod(shape) <= 60000: return shape


@pytest.mark.parametrize("device", ["CPU", "NUMPY"])
@pytest.mark.parametrize("seed", long_after(2, range(8)))
def test_scans(seed: int, device: str) -> None:
  rng = np.random.default_rng(seed)
  for _ in range(4 if device == "CPU" else 2):
    a = rng.integers(-50, 50, shape_of(rng)).astype(np.int64)
    dtype = (dtypes.int32, dtypes.int64, dtypes.float64, dtypes.float32)[rng.integers(4)]
    t = Tensor(a, device=device).cast(dtype)
    if rng.random() < 0.5:
      order = tuple(int(i) for i in rng.permutation(a.ndim))
      t, a = t.permute(*order), a.transpose(order)
    if rng.random() < 0.5:
      d = int(rng.integers(a.ndim))
      t, a = t.flip(d), np.flip(a, d)
    if rng.random() < 0.5 and a.shape[0] > 2: t, a = t[1:-1], a[1:-1]
    axis, reverse, fn = int(rng.integers(a.ndim)), bool(rng.random() < 0.5), list(COMBINERS)[rng.integers(3)]
    want = COMBINERS[fn].accumulate(np.flip(a, axis) if reverse else a, axis=axis)
    if reverse: want = np.flip(want, axis)
    got = t._wrap(graph.scan(fn, t.lazydata, axis, reverse))
    np.testing.assert_array_equal(got.cast(dtypes.int64).numpy(), want)   # whole numbers that every dtype holds
    np.testing.assert_array_equal((got * 2 - t).cast(dtypes.int64).numpy(), want * 2 - a)


@pytest.mark.parametrize("device", ["CPU", "NUMPY"])
@pytest.mark.parametrize("seed", long_after(2, range(4)))
def test_scatters(seed: int, device: str) -> None:
  rng = np.random.default_rng(seed)
  for _ in range(3):
    rows, count = (int(n) for n in rng.choice(SIZES, 2))
    rest = tuple(int(n) for n in rng.choice((1, 2, 5, 33), rng.integers(0, 3)))
    index, value = rng.integers(-1, rows + 1, count), rng.integers(-9, 9, (count, *rest))
    want = np.ones((rows, *rest), np.int64)
    for i, v in zip(index, value):
      if 0 <= i < rows: want[i] += v
    base, x = Tensor.ones(rows, *rest, device=device), Tensor(value, device=device).float()
    at = Tensor(index, device=device).cast((dtypes.int32, dtypes.int64)[rng.integers(2)])
    np.testing.assert_array_equal(x._wrap(graph.scatter(base.lazydata, (at.lazydata,), x.lazydata, "add")).numpy(), want)
