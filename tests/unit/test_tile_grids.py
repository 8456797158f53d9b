"""Grids of parameters: who decides it, those with fewer programs, and elements that several programs write."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ntgrad
import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad.codegen.ir.config import config
from ntgrad.errors import ArgumentError, RaceError, ShapeError
from ntgrad.tile import Tensor
from support.triton import needs_triton

f32 = np.float32


@pytest.fixture(params=["CPU", "NUMPY", pytest.param("TRITON", marks=needs_triton)])
def device(request: Any) -> Any:
  with config(dev=request.param): yield request.param


def table_of(rows: int) -> np.ndarray: return np.arange(rows * 2, dtype=f32).reshape(rows, 2)


# ---- parameters of which only .source is used

@pytest.mark.parametrize("arranged", [lambda t: t, lambda t: t.tile((1, 1))], ids=["whole", "tiled"])
def test_a_parameter_used_as_source_decides_no_grid(arranged: Any, device: str) -> None:
  def picked(table: Any, rows: Any, out: Any) -> None: out = table.source[rows, 0] + table.source.shape[0]  # noqa: F841
  k = tile.make(lambda t, i, o: (arranged(t), i.tile((4,)), o.tile((4,))), picked, (Tensor(2), Tensor(1), Tensor(1)))
  for rows, n in ((10, 8), (10, 7), (3, 21), (50, 6)):
    at, out = (np.arange(n) * 7 % rows).astype(np.int32), np.zeros(n, f32)
    k(table_of(rows), at, out)
    np.testing.assert_array_equal(out, table_of(rows)[at, 0] + rows)


def test_handed_on_as_source_it_decides_none_either() -> None:
  def row(source: Any, i: Any) -> Any: return source[i, 1]
  def picked(table: Any, rows: Any, out: Any) -> None: out = row(table.source, rows)  # noqa: F841
  at, out = np.array([2, 0, 1], np.int32), np.zeros(3, f32)
  tile.make(lambda t, i, o: (t, i.tile((2,)), o.tile((2,))), picked, (Tensor(2), Tensor(1), Tensor(1)))(table_of(9), at, out)
  assert out.tolist() == [5, 1, 3]


def test_in_a_library(tmp_path: Path) -> None:
  def picked(table: Any, rows: Any, out: Any) -> None: out = table.source[rows]  # noqa: F841
  def premake() -> Any: return lambda t, i, o: (t, i.tile((4,)), o.tile((4,))), picked, (Tensor(1),) * 3
  shapes = [((None,), "float32"), ((None,), "int32"), ((None,), "float32")]
  with config(dev="CPU"):
    library = tile.load(tile.build(premake, [tile.Config(arguments=shapes)], tmp_path), "CPU")
    for rows, n in ((10, 8), (3, 21)):
      at, out = (np.arange(n) % rows).astype(np.int32), np.zeros(n, f32)
      library(np.arange(rows, dtype=f32), at, out)
      np.testing.assert_array_equal(out, at)


# ---- fewer programs than the grid

def sums(x: Any, y: Any, total: Any) -> None:
  y = x * 2  # noqa: F841
  total = tl.program_id(0) + 1.0  # noqa: F841


def test_fewer_programs_are_counted_over_their_own_grid(device: str) -> None:
  k = tile.make(lambda x, y, t: (x.tile((4,)), y.tile((4,)), t.tile((1,))), sums, (Tensor(1),) * 3)
  for n, few in ((16, 3), (18, 2), (40, 9), (12, 3)):
    x, y, total = np.arange(n, dtype=f32), np.zeros(n, f32), np.zeros(few, f32)
    k(x, y, total)
    np.testing.assert_array_equal(y, x * 2)
    np.testing.assert_array_equal(total, np.arange(few) + 1)
  with pytest.raises(ShapeError, match=r"outermost level of total is \(4,\), that of x is \(3,\).*\n.*test_tile_grids.py:\d+"):
    k(np.zeros(12, f32), np.zeros(12, f32), np.zeros(4, f32))


def test_of_other_dimensions_they_are_counted_row_by_row(device: str) -> None:
  def numbered(x: Any, y: Any, few: Any) -> None:
    y = x + few  # noqa: F841
    few = tl.program_id(0) * 10.0 + tl.program_id(1)  # noqa: F841
  k = tile.make(lambda x, y, t: (x.tile((1, 1)), y.tile((1, 1)), t.tile((1,))), numbered, (Tensor(2), Tensor(2), Tensor(1)))
  x, y, few = np.ones((2, 3), f32), np.zeros((2, 3), f32), np.arange(4, dtype=f32)
  k(x, y, few)
  np.testing.assert_array_equal(y, [[1, 2, 3], [4, 1, 1]])   # outside it reads 0
  np.testing.assert_array_equal(few, [0, 1, 2, 10])


def test_in_as_many_dimensions_they_are_counted_row_by_row(device: str) -> None:
  """With numbers, with names, and with sizes that are known at the launch."""
  def numbered(x: Any, y: Any, few: Any) -> None:
    y = x + few  # noqa: F841
    few = tl.program_id(0) * 10.0 + tl.program_id(1)  # noqa: F841
  def by(*xs: Any) -> Any: return tuple(t.tile((1, 1)) for t in xs)
  grids = [((2, 3), (2, 2)), ((3, 4), (5, 2)), ((4, 3), (2, 5)), ((3, 3), (3, 1)), ((2, 3), (2, 3))]
  anything = tile.make(by, numbered, (Tensor(2),) * 3)
  named = tile.make(by, numbered, (Tensor(shape=("M", "N")), Tensor(shape=("M", "N")), Tensor(shape=("P", "Q"))))
  for grid, own in grids:
    fixed = [] if own == (3, 1) else [tile.make(by, numbered, (Tensor(shape=grid), Tensor(shape=grid), Tensor(shape=own)))]
    for k in (*fixed, anything, named):
      x, y, few = np.ones(grid, f32), np.zeros(grid, f32), np.arange(np.prod(own), dtype=f32).reshape(own)
      if own == (3, 1):   # which looks as if expand was forgotten
        with pytest.raises(ShapeError, match=r"outermost level of few is \(3, 1\), that of x is \(3, 3\)"): k(x, y, few)
        continue
      k(x, y, few)
      each = np.zeros(x.size)
      each[:few.size] = np.arange(few.size)
      np.testing.assert_array_equal(y, 1 + each.reshape(grid))   # outside it reads 0
      at = np.arange(few.size)
      np.testing.assert_array_equal(few.ravel(), at // grid[1] * 10 + at % grid[1])


def test_a_grid_that_differs_otherwise_is_refused() -> None:
  def copies(x: Any, y: Any) -> None: y = x  # noqa: F841
  def by(x: Any, y: Any) -> Any: return x.tile((1, 1)), y.tile((1, 1))
  for own in ((2, 4), (3, 2), (3, 3), (6, 1)):   # more, or as many
    said = rf"outermost level of y is \({own[0]}, {own[1]}\), that of x is \(2, 3\).*\n.*test_tile_grids.py:\d+"
    with pytest.raises(ShapeError, match=said): tile.make(by, copies, (Tensor(shape=(2, 3)), Tensor(shape=own)))
    for dynamic in ("auto", "always"):
      with config(dynamic=dynamic), pytest.raises(ShapeError, match=rf"outermost level of y is \({own[0]}, {own[1]}\)"):
        tile.make(by, copies, (Tensor(2), Tensor(2)))(np.zeros((2, 3), f32), np.zeros(own, f32))
  with pytest.raises(ShapeError, match=r"outermost level of y is \(7,\), that of x is \(4,\)"):
    tile.make(lambda x, y: (x.tile((1, 1)).squeeze(1), y.tile((1,))), copies, (Tensor(2), Tensor(1)))(
      np.zeros((4, 1), f32), np.zeros(7, f32))
  def row(x: Any, y: Any) -> Any: return x.tile((1, 1)), y.tile((1,))
  def matrix(x: Any, y: Any) -> Any: return x.tile((1, 1)), y.tile((1,)).unsqueeze(0)
  for beside in (row, matrix):   # a vector beside a matrix is to be expanded
    with pytest.raises(ShapeError, match=r"gives it th(at|e dimensions) of x"):
      tile.make(beside, copies, (Tensor(2), Tensor(1)))(np.zeros((4, 2), f32), np.zeros(2, f32))


def test_dimensions_side_by_side_agree_as_ever() -> None:
  """Elements that an operation puts beside each other are no matter of the grid."""
  def add(x: Any, y: Any, z: Any) -> None: z = x + y  # noqa: F841
  x, y, z = np.ones(16, f32), np.ones(8, f32), np.zeros(16, f32)
  with pytest.raises(ShapeError, match="dimension 0 of x has 16 elements, dimension 0 of y has 8"):
    tile.make(lambda *xs: tuple(v.tile((4,)) for v in xs), add, (Tensor(1),) * 3)(x, y, z)
  tile.make(lambda *xs: tuple(v.tile((4,)) for v in xs), add, tuple(Tensor(shape=(n,)) for n in "NMN"))(x, y, z)
  assert z.tolist() == [2] * 8 + [1] * 8


# ---- elements that several programs write

def expanded(x: Any, y: Any) -> Any:
  x = x.tile((2,))
  return x, y.tile((-1,)).expand(x.shape)


def overlapping(x: Any, y: Any) -> Any: return x.tile((4,), strides=(2,)), y.tile((4,), strides=(2,))
def apart(x: Any, y: Any) -> Any: return x.tile((4,)), y.tile((4,), strides=(2,))


def sum_of(x: Any, y: Any) -> None: y = tl.sum(x)  # noqa: F841
def in_a_variable(x: Any, y: Any) -> None:
  total = 0.0
  while total < 5: total += tl.max(x) + 1
  y = total  # noqa: F841
def number(x: Any, y: Any) -> None: y.source[0] = tl.program_id(0)
def copied(x: Any, y: Any) -> None: y = x  # noqa: F841


@pytest.mark.parametrize("arrangement, application", [
  (expanded, sum_of), (expanded, in_a_variable), (expanded, number), (apart, copied)])
def test_values_of_their_own_at_one_place_are_refused(arrangement: Any, application: Any, device: str) -> None:
  k = tile.make(arrangement, application, (Tensor(1),) * 2)
  said = rf"^{application.__name__}: program \(0,\) writes y\[\d\] at test_tile_grids.py:\d+, program \(1,\) writes it"
  for dynamic, n in (("auto", 12), ("always", 24)):
    with config(dynamic=dynamic), pytest.raises(RaceError, match=said):
      k(np.zeros(n, f32), np.zeros(n // 2 + 2 if arrangement is apart else 1, f32))


def test_what_is_no_race_runs(device: str) -> None:
  """The verifier, which is on in tests, knows nothing of values that are the same."""
  with config(verify=0): no_races()


def no_races() -> None:
  x = np.arange(8, dtype=f32)
  def same(x: Any, y: Any) -> None: y = tl.sum(x) * 0 + 3  # noqa: F841
  def once(x: Any, y: Any) -> None:
    if tl.program_id(0) == 2: y = tl.sum(x)  # noqa: F841
  def where_it_is(x: Any, y: Any) -> None: y = y.offsets(0) * 10 + tl.max(y.offsets(0)) * 0  # noqa: F841
  for arrangement, application, want in (
      (expanded, same, [3.0]), (expanded, once, [9.0]), (overlapping, copied, x.tolist()),
      (apart, where_it_is, [0, 10, 20, 30, 40, 50, 60, 70])):
    y = np.zeros(len(want), f32)
    tile.make(arrangement, application, (Tensor(1),) * 2)(np.arange(12, dtype=f32) if application is where_it_is else x, y)
    assert y.tolist() == want
  y = np.zeros(1, f32)   # one program is alone
  tile.make(expanded, sum_of, (Tensor(1),) * 2)(x[:2].copy(), y)
  assert y.tolist() == [1]


def test_numpy_finds_what_indices_do_not_show() -> None:
  def placed(x: Any, at: Any, y: Any) -> None: y.source[at] = x
  k = tile.make(lambda x, a, y: (x.tile((2,)), a.tile((2,)), y), placed, (Tensor(1),) * 3)
  x, y = np.arange(4, dtype=f32), np.zeros(4, f32)
  with config(dev="NUMPY", verify=0):
    k(x, np.array([2, 0, 1, 3], np.int32), y)
    assert y.tolist() == [1, 2, 0, 3]
    with pytest.raises(RaceError, match=r"program \(0,\) writes y\[1\] .*, program \(1,\) writes it"):
      k(x, np.array([1, 0, 1, 3], np.int32), y)


# ---- arguments that are views of one memory

def put(x: Any, slot: Any, cache: Any) -> None: slot = x + cache.source.shape[0]  # noqa: F841
def put_sum(x: Any, slot: Any, cache: Any) -> None: slot = x + tl.sum(cache.source[0, tl.arange(0, 4)])  # noqa: F841
def put_all(x: Any, slot: Any, cache: Any) -> None:
  slot = x + tl.sum(cache.source[tl.program_id(0) + 1, tl.arange(0, 4)])  # noqa: F841


def slots(x: Any, slot: Any, cache: Any) -> Any: return x.tile((4,)), slot.tile((4,)), cache


@pytest.mark.parametrize("of", ["numpy", "torch", "ntgrad"])
def test_a_slot_of_a_cache_is_written_where_the_cache_is_not_read(of: str, device: str) -> None:
  """On the host of another library's memory: a kernel there would see what is written."""
  torch = pytest.importorskip("torch")
  def made(a: np.ndarray) -> Any:
    return ntgrad.Tensor(a).realize() if of == "ntgrad" else torch.from_numpy(a.copy()) if of == "torch" else a.copy()
  for fn, more in ((put, 3), (put_sum, 6)):
    for row in (1, 2):
      x, cache = made(np.ones(4, f32)), made(np.arange(12, dtype=f32).reshape(3, 4))
      tile.make(slots, fn, (Tensor(1), Tensor(1), Tensor(2)))(x, cache[row], cache)
      want = np.arange(12, dtype=f32).reshape(3, 4)
      want[row] = 1 + more
      np.testing.assert_array_equal(cache.numpy() if of != "numpy" else cache, want)
  cache = made(np.zeros((3, 4), f32))
  if of != "ntgrad":   # of which a slot is a copy that goes back
    with pytest.raises(ArgumentError, match="slot and cache overlap in memory"):
      tile.make(slots, put_all, (Tensor(1), Tensor(1), Tensor(2)))(made(np.ones(4, f32)), cache[1], cache)
