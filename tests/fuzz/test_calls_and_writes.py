"""Kernels that are called and writes to what they write, in any order, before anything is computed: random programs beside numpy.

Some tensors have no memory before a kernel writes them; a write to them may come before or after whoever needs what it gave."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ntgrad import Tensor, config, tile
from support.marks import long_after

N = 16


def application(x: Any, out: Any) -> None: out = x * 2  # noqa: F841


double = tile.make(lambda x, out: (x.tile((8,)), out.tile((8,))), application, (tile.Tensor(1),) * 2, kernel_name="double")


def check(seed: int, at_once: bool) -> None:
  rng = np.random.default_rng(seed)
  start: list[Any] = [np.arange(N, dtype=np.float32), None, None, np.full(N, 2, np.float32)]
  tensors, values = [Tensor.empty(N) if v is None else Tensor(v).realize() for v in start], [*start]
  tensors[3] = tensors[3] + 0   # not computed yet
  more: list[tuple[Tensor, Any]] = []
  for _ in range(rng.integers(2, 8)):
    i, j, kind = int(rng.choice([i for i in range(4) if values[i] is not None])), int(rng.integers(4)), int(rng.integers(6))
    x, y, a, b = tensors[i], tensors[j], values[i], values[j]
    if kind < 2 and i != j:
      double(x, y)
      values[j] = a * 2
    elif b is None and kind == 2:
      y.assign(x + 1)
      values[j] = a + 1
    elif b is not None and kind == 2:
      y.assign(x * 0.5 + y)
      values[j] = a * 0.5 + b
    elif b is not None and kind == 3:
      y.assign(y.flip(0) + x.sum() * 0.01)
      values[j] = b[::-1] + a.sum() * np.float32(0.01)
    elif b is not None and kind == 4:
      y[2:5] = x[3:6]
      values[j] = np.concatenate([b[:2], a[3:6], b[5:]])
    elif b is not None and kind == 5: more.append((y + 1, b + 1))
    if at_once: Tensor.realize(*[t for t, v in zip(tensors, values) if v is not None])
  found = [*[(t, v) for t, v in zip(tensors, values) if v is not None], *more]
  order = rng.permutation(len(found))
  if rng.integers(2): Tensor.realize(*[found[k][0] for k in order])
  for k in order: np.testing.assert_allclose(found[k][0].numpy(), found[k][1], rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("first", long_after(2, range(0, 1000, 100)))
@pytest.mark.parametrize("at_once", [False, True])
def test_programs(first: int, at_once: bool) -> None:
  with config(dev="NUMPY"):
    for seed in range(first, first + 100): check(seed, at_once)
