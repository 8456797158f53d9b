"""Whole programs in the tile language, each of which puts many of its parts together; values are compared with plain Python's."""
from __future__ import annotations

# ruff: noqa: F841 (assigning a parameter stores)
from typing import Any

import numpy as np
import pytest

import ntgrad
import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad.tile import Tensor
from support.triton import needs_triton

i32, f32 = np.int32, np.float32
RNG = np.random.default_rng(5)
on = pytest.mark.parametrize("device", ["CPU", "NUMPY", pytest.param("TRITON", marks=needs_triton)])


def ran(device: str, kernel: Any, *arrays: Any) -> list[Any]:
  """What lies in the arrays after a call."""
  tensors = [ntgrad.Tensor(a, device=device).realize() for a in arrays]
  kernel(*tensors)
  return [t.numpy() for t in tensors]


def ones(x: Any, *others: Any) -> Any:
  x = x.tile((1,))
  return x, *(y.tile((-1,)).expand(x.shape) for y in others)


@on
def test_a_set_of_numbers(device: str) -> None:
  """Programs put numbers into one table, where each looks for a free place, and count those that were not there."""
  def insert(x: Any, table: Any, count: Any) -> None:
    at = x[0] * 7 % 32
    while True:
      old = tl.atomic_cas(table.source[at], 0, x[0])
      if old == 0:
        tl.atomic_add(count.source[0], 1)
        break
      if old == x[0]: break
      at = (at + 1) % 32
  x = RNG.integers(1, 25, 40).astype(i32)
  _, table, count = ran(device, tile.make(ones, insert, (Tensor(1),) * 3), x, np.zeros(32, i32), np.zeros(1, i32))
  assert count == len({*x}) and {*table} - {0} == {*x}


@on
def test_primes_below(device: str) -> None:
  def primes(x: Any, y: Any) -> None:
    count = 0
    for n in range(2, x[0]):
      if n > 2 and n % 2 == 0: continue
      prime = 1
      for d in range(2, n):
        if d * d > n: break
        if n % d == 0:
          prime = 0
          break
      count += prime
    y = tl.full((1,), 0, tl.int32) + count
  x = np.array([0, 2, 3, 10, 31], i32)
  _, y = ran(device, tile.make(lambda x, y: (x.tile((1,)), y.tile((1,))), primes, (Tensor(1),) * 2), x, np.zeros(5, i32))
  assert y.tolist() == [0, 0, 1, 4, 10]


@on
def test_the_distance_of_words(device: str) -> None:
  """A row of the table of distances after the other; along a row a running minimum takes the place of a loop."""
  def distance(a: Any, b: Any, y: Any) -> None:
    j = tl.arange(0, 10)
    row = j.to(tl.int32)
    for k in range(a.shape[0]):
      before = tl.maximum(j - 1, 0)
      changed = tl.gather(row, before, 0) + (a[k] != b.source[before]).to(tl.int32)
      row = tl.cummin(tl.where(j == 0, row + 1, tl.minimum(row + 1, changed)) - j, 0) + j
    y = tl.sum(tl.where(j == 9, row, 0), keep_dims=True)
  a, b = RNG.integers(0, 3, 7), RNG.integers(0, 3, 9)
  want = [*range(10)]
  for x in a:
    new = [want[0] + 1]
    for j in range(9): new.append(min(want[j + 1] + 1, new[-1] + 1, want[j] + int(x != b[j])))
    want = new
  whole = tile.make(lambda *xs: tuple(x.tile((-1,)) for x in xs), distance, (Tensor(1),) * 3)
  assert ran(device, whole, a.astype(i32), b.astype(i32), np.zeros(1, i32))[2] == want[-1]


@on
@pytest.mark.parametrize("n", [1, 3, 4])
def test_a_determinant(device: str, n: int) -> None:
  """Elimination with pivots: each round writes the whole matrix anew, and a bool goes around with it."""
  def determinant(a: Any, y: Any) -> None:
    rows, columns = a.offsets(0)[:, None], a.offsets(1)[None, :]
    m, product, singular = a + 0, 1.0, False
    for k in range(a.source.shape[0]):
      column = tl.sum(tl.where(columns == k, m, 0), 1)
      pivot = tl.argmax(tl.where((a.offsets(0) >= k) & (a.offsets(0) < a.source.shape[0]), tl.abs(column), -1), 0)
      kth, found = (tl.sum(tl.where(rows == r, m, 0), 0)[None, :] for r in (k, pivot))
      m = tl.where(rows == k, found, tl.where(rows == pivot, kth, m))
      at = tl.sum(tl.where((rows == k) & (columns == k), m, 0))
      singular = singular | (at == 0)
      product = product * tl.where(pivot == k, at, -at)
      below = tl.sum(tl.where(columns == k, m, 0), 1)[:, None] / tl.where(at == 0, 1, at)
      m = tl.where(rows > k, m - below * found, m)
    y = tl.where(singular, 0, product) + tl.zeros((1, 1))
  kernel = tile.make(lambda a, y: (a.tile((1 if n == 1 else 4,) * 2), y.tile((1, 1))), determinant, (Tensor(2),) * 2)
  for a in (RNG.standard_normal((n, n)).astype(f32), np.ones((n, n), f32)):
    np.testing.assert_allclose(ran(device, kernel, a, np.zeros((1, 1), f32))[1], np.linalg.det(a), rtol=1e-4, atol=1e-6)
