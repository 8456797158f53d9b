"""Pieces of arrays that lie apart, every few elements of padded ones, and sums of many pieces' gradients, against numpy."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ntgrad import Tensor, config
from support.devices import missing
from support.marks import long, long_unless, long_where


@st.composite
def keys(draw: Any) -> tuple[tuple[int, ...], tuple[Any, ...]]:
  """A shape, and an index with numbers, slices and steps for each of its dimensions."""
  shape = tuple(draw(st.lists(st.integers(1, 37), min_size=2, max_size=4)))
  key: list[Any] = []
  for n in shape:
    kind = draw(st.sampled_from(("all", "one", "slice", "step")))
    lo = draw(st.integers(0, n - 1))
    if kind == "all": key.append(slice(None))
    elif kind == "one": key.append(lo)
    elif kind == "slice": key.append(slice(lo, draw(st.integers(lo + 1, n))))
    else: key.append(slice(None, None, draw(st.sampled_from((-3, -2, -1, 2, 3, 4)))))
  return shape, tuple(key)


# what NOOPT leaves has plain loops, which NUMPY runs as they are
@long_where(lambda device, noopt: device != "NUMPY" or noopt)
@pytest.mark.parametrize("device, noopt", [("CPU", 0), ("NUMPY", 0), ("NUMPY", 1)])
@settings(max_examples=25, deadline=None)
@given(given=keys(), pad=st.integers(0, 2), seed=st.integers(0, 99))
def test_read_and_written(device: str, noopt: int, given: tuple[tuple[int, ...], tuple[Any, ...]], pad: int, seed: int) -> None:
  if reason := missing(device): pytest.skip(reason)
  shape, key = given
  a = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
  with config(noopt=noopt):
    t = Tensor(a.copy(), device=device)
    padded = np.pad(a, [(pad, 0)] * a.ndim)
    wide = t.pad([(pad, 0)] * a.ndim)[key]
    np.testing.assert_allclose((wide * 2 + 1).numpy(), padded[key] * 2 + 1, rtol=1e-6)
    if not any(isinstance(k, slice) and k.step for k in key):
      t[key] = t[key] * 3
      a[key] *= 3
      np.testing.assert_allclose(t.numpy(), a, rtol=1e-6)


@long
@settings(max_examples=15, deadline=None)
@given(n=st.integers(8, 20), width=st.integers(1, 9), step=st.integers(1, 4), seed=st.integers(0, 99))
def test_gradients_of_many_pieces(n: int, width: int, step: int, seed: int) -> None:
  """n slices of one array, side by side, apart or overlapping, each times a weight that all share."""
  gradients_of_many_pieces("NUMPY", n, width, step, seed)


@pytest.mark.parametrize("n, width, step", long_unless(
  lambda n, width, step: n == 8, [(8, 9, 1), (20, 3, 3), (11, 4, 2), (13, 1, 4), (9, 5, 4), (17, 8, 2)]))
def test_gradients_of_many_pieces_on_the_cpu(n: int, width: int, step: int) -> None:
  """Side by side, apart and overlapping: another size is another kernel to compile."""
  gradients_of_many_pieces("CPU", n, width, step, 1)


def gradients_of_many_pieces(device: str, n: int, width: int, step: int, seed: int) -> None:
  if reason := missing(device): pytest.skip(reason)
  rng = np.random.default_rng(seed)
  data, weight = rng.standard_normal((3, (n - 1) * step + width)), rng.standard_normal((width, 5))
  x, w = (Tensor(v, device=device, requires_grad=True) for v in (data, weight))
  factors = rng.standard_normal((n, 3, 5))
  total: Any = 0.0
  for i in range(n): total = total + (x[:, i * step:i * step + width] @ w * Tensor(factors[i], device=device)).sum()
  total.backward()
  dx, dw = np.zeros_like(data), np.zeros_like(weight)
  for i in range(n):
    dx[:, i * step:i * step + width] += factors[i] @ weight.T
    dw += data[:, i * step:i * step + width].T @ factors[i]
  np.testing.assert_allclose(x.grad.numpy(), dx, rtol=1e-9, atol=1e-9)
  np.testing.assert_allclose(w.grad.numpy(), dw, rtol=1e-9, atol=1e-9)
