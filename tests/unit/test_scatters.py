"""Rows that are stored where an index says: by programs that have some of the rows each, on targets with blocks."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ntgrad import Tensor, config, dtypes
from ntgrad.backends.cuda.renderer import TARGET as HOPPER
from ntgrad.codegen.ir.target import Target
from ntgrad.codegen.ir.uop import Ops
from ntgrad.codegen.kernel import AxisKind
from ntgrad.codegen.passes import scatters
from ntgrad.codegen.pipeline import prepare
from ntgrad.graph import nodes as graph
from ntgrad.schedule import scatter_order, schedule_graph
from support.marks import long_where
from tests.support.triton import NAME as TRITON, installed

GPU = Target("triton", blocks=True, cores=4)


def scattered(base: Tensor, index: Tensor, value: Tensor, mode: str = "add") -> Tensor:
  return value._wrap(graph.scatter(base.lazydata, (index.lazydata,), value.lazydata, mode))


def expected(base: np.ndarray, index: np.ndarray, value: np.ndarray, mode: str = "add") -> np.ndarray:
  out = base.astype(np.float64 if base.dtype.kind == "f" else base.dtype)
  for at, v in zip(index, value):
    if 0 <= at < len(out): out[at] = v if mode == "set" else out[at] + v
  return out


@pytest.fixture(params=["CPU", "NUMPY", TRITON, "runs", "few"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
  """``runs``: with each index put in order first, as long ones are; ``few``: compared with each row, as where these are few."""
  if request.param in ("runs", "few"):
    monkeypatch.setattr(scatters, "_LONG", 16)
    if request.param == "runs": monkeypatch.setattr(scatter_order, "_SORTING", 0)
    monkeypatch.setattr(scatters, "LEAST_PART_ENTRIES", 8)
  if request.param in ("CPU", "NUMPY"): yield request.param
  else:
    with installed(): yield TRITON


@long_where(lambda device: device == TRITON)
@pytest.mark.parametrize("mode", ["add", "set"])
@pytest.mark.parametrize("rows,columns,count", [
  (7, (5,), 33), (300, (), 100), (1, (3,), 40), (50, (2, 300), 70), (5, (40,), 1500), (9, (4,), 3)
])
def test_rows(device: str, mode: str, rows: int, columns: tuple[int, ...], count: int) -> None:
  """Equal indices, and some that are out of range."""
  rng = np.random.default_rng(rows)
  base, value = [rng.standard_normal((n, *columns)).astype(np.float32) for n in (rows, count)]
  index = rng.integers(-2, rows + 2, count).astype(np.int32)
  got = scattered(Tensor(base, device=device), Tensor(index, device=device), Tensor(value, device=device) * 1.5, mode)
  np.testing.assert_allclose(got.numpy(), expected(base, index, value * 1.5, mode), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.int64, dtypes.float64, dtypes.float16, dtypes.bfloat16])
def test_dtypes(device: str, dtype: Any) -> None:
  value = np.random.default_rng(0).integers(0, 3, (60, 20))
  index = np.random.default_rng(1).integers(0, 4, 60)
  for kind in (np.int32, np.int64):
    zero = Tensor(np.zeros((4, 20), np.int64), device=device).cast(dtype)
    got = scattered(zero, Tensor(index.astype(kind), device=device), Tensor(value, device=device).cast(dtype))
    np.testing.assert_array_equal(got.cast(dtypes.float64).numpy(), expected(np.zeros((4, 20), np.int64), index, value))


def test_all_for_one_row(device: str) -> None:
  value = np.random.default_rng(0).standard_normal((2100, 3)).astype(np.float32)
  index = np.full(2100, 5, np.int32)
  def once() -> np.ndarray:
    return scattered(Tensor.zeros(9, 3, device=device), Tensor(index, device=device), Tensor(value, device=device)).numpy()
  np.testing.assert_allclose(once(), expected(np.zeros((9, 3), np.float32), index, value), rtol=1e-4, atol=1e-3)
  np.testing.assert_array_equal(once(), once())


@pytest.mark.parametrize("add", [True, False])
def test_rows_of_itself(device: str, add: bool) -> None:
  """What is written is made of what was there."""
  rng = np.random.default_rng(0)
  x, i, j = rng.standard_normal((30, 5)).astype(np.float32), rng.integers(0, 30, 90), rng.integers(0, 30, 90)
  t = Tensor(x, device=device).realize()
  if add: t.index_add_(0, Tensor(i, device=device), t[Tensor(j, device=device)] * 2)
  else: t[Tensor(i, device=device)] = t[Tensor(j, device=device)] * 2
  np.testing.assert_allclose(t.numpy(), expected(x, i, x[j] * 2, "add" if add else "set"), rtol=1e-4, atol=1e-4)


def test_long_indices_are_sorted() -> None:
  """A long index, and the sums of what goes on from one part to the next; each row of y is written by one program."""
  def names(count: int) -> list[int]:
    y = scattered(Tensor.zeros(500, 8), Tensor.empty(count, dtype="int32"), Tensor.empty(count, 8))
    kernels = [item.ast for item in schedule_graph([y.lazydata], GPU)[1]]
    return [p.runs for k in kernels if k is not None for p in k.params if p.runs]
  assert names(1000) == [] and set(names(100_000)) == {scatters.part_of(100_000)}
  sizes = [scatters.part_of(n) for n in (1, 16384, 131072, 1_000_000, 10**8)]
  assert sizes == [32, 32, 64, 256, 512]


def test_few_rows_are_sums() -> None:
  """The gradient of a bias that a table gives for each distance: a sum for each row, which no program has alone."""
  table, bucket, x = Tensor.empty(32, 8, requires_grad=True), Tensor.empty(512, 512, dtype="int32"), Tensor.empty(512, 512, 8)
  def kernels(t: Tensor) -> int: return len(schedule_graph([(t[bucket] * x).sum().gradient(t)[0].lazydata], HOPPER)[1])
  assert kernels(table) <= 5 and kernels(Tensor.empty(5000, 8, requires_grad=True)) > 10


def test_gradients_of_indexing(device: str) -> None:
  """An embedding, and fancy indices of the second dimension."""
  w = np.random.default_rng(0).standard_normal((40, 12)).astype(np.float32)
  at = np.random.default_rng(1).integers(-40, 40, (3, 30))
  g = np.random.default_rng(2).standard_normal((3, 30, 12)).astype(np.float32)
  t = Tensor(w, device=device, requires_grad=True)
  (t[Tensor(at, device=device)] * Tensor(g, device=device)).sum().backward()
  assert t.grad is not None
  want = expected(np.zeros_like(w), at.reshape(-1) % 40, g.reshape(-1, 12))
  np.testing.assert_allclose(t.grad.numpy(), want, rtol=1e-4, atol=1e-4)
  t.grad = None
  columns = at[0] % 12
  (t[:, Tensor(columns, device=device)] * 2).sum().backward()
  want = expected(np.zeros((12, 40)), columns, np.full((30, 40), 2.0)).T
  np.testing.assert_allclose(t.grad.numpy(), want, rtol=1e-5)  # type: ignore[attr-defined]


def along(x: np.ndarray, dim: int, index: np.ndarray, y: np.ndarray, add: bool) -> np.ndarray:
  """What ``x.scatter(dim, index, y)`` gives, one entry after another."""
  out = x.astype(np.float64) if x.dtype.kind == "f" else x.copy()
  for at in np.ndindex(*index.shape):
    to = (*at[:dim], int(index[at]), *at[dim + 1:])
    if -x.shape[dim] <= to[dim] < x.shape[dim]: out[to] = out[to] + y[at] if add else y[at]
  return out


@long_where(lambda device: device in (TRITON, "runs"))
@pytest.mark.parametrize("add", [True, False])
@pytest.mark.parametrize("shape,count,dim", [
  ((9, 50), (9, 40), 1), ((7, 5), (6, 130), 1), ((40, 7), (33, 7), 0), ((300, 19), (21, 18), 0), ((3, 11, 6), (3, 20, 5), 1),
  ((4, 3, 200), (4, 2, 70), 2), ((1, 500), (1, 300), 1), ((20, 3, 9), (35, 3, 9), 0),
  ((5, 700), (5, 2100), 1), ((3, 2), (3, 400), 1),
])
def test_along_a_dimension(device: str, add: bool, shape: tuple[int, ...], count: tuple[int, ...], dim: int) -> None:
  """Many tables: indices that come again, negative ones, and some that are outside, which write nothing."""
  rng = np.random.default_rng(sum(shape) + dim)
  n = shape[dim]
  x, y = rng.standard_normal(shape).astype(np.float32), rng.standard_normal(count).astype(np.float32)
  index = rng.integers(-n - 2, n + 2, count)
  with config(check_indices=False):
    got = Tensor(x, device=device).scatter(dim, Tensor(index, device=device), Tensor(y, device=device), "add" if add else None)
    np.testing.assert_allclose(got.numpy(), along(x, dim, index, y, add), rtol=1e-5, atol=1e-5)


@long_where(lambda device, dtype: device != "NUMPY")
@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.int64, dtypes.float64, dtypes.float16, dtypes.bfloat16])
def test_dtypes_along(device: str, dtype: Any) -> None:
  rng = np.random.default_rng(2)
  for shape, count, dim in (((5, 40), (5, 64), 1), ((5, 40), (5, 164), 1), ((40, 5), (64, 5), 0)):
    x, y = rng.integers(-3, 3, shape), rng.integers(-2, 3, count)
    for kind in (np.uint8, np.int32, np.int64):
      index = rng.integers(0, 40, count).astype(kind)
      for add in (True, False):
        got = Tensor(x, device=device).cast(dtype).scatter(
          dim, Tensor(index, device=device), Tensor(y, device=device).cast(dtype), "add" if add else None)
        np.testing.assert_array_equal(got.cast(dtypes.float64).numpy(), along(x, dim, index, y, add))


@long_where(lambda seed: seed > 3)
@pytest.mark.parametrize("seed", range(12))
def test_random_forms(device: str, seed: int) -> None:
  """Indices and values that are views, computed, or of fewer elements than the table; the same bits each time."""
  rng = np.random.default_rng(seed)
  rank = int(rng.integers(1, 4))
  dim = int(rng.integers(rank))
  shape = [int(n) for n in rng.choice([1, 2, 3, 7, 17, 33], rank)]
  count = [int(rng.integers(1, n + 1)) for n in shape]
  count[dim] = int(rng.choice([1, 15, 16, 33, 70, 150]))
  order = [int(d) for d in rng.permutation(rank)]
  back = [order.index(d) for d in range(rank)]
  x, y = rng.standard_normal(shape).astype(np.float32), rng.standard_normal(count).astype(np.float32)
  index = rng.integers(0, shape[dim], count)
  def seen(a: np.ndarray) -> Tensor: return Tensor(np.ascontiguousarray(a.transpose(order)), device=device).permute(*back)
  add = bool(rng.integers(2))
  def once() -> np.ndarray:
    at = seen(index)
    if seed % 3 == 0: at = at * 2 - seen(index)
    if seed % 3 == 1: at = at - shape[dim]
    source = seen(x) * 2 if seed % 2 else seen(x)
    return source.scatter(dim, at, seen(y) + 1, "add" if add else None).numpy()
  want = along(x * 2 if seed % 2 else x, dim, index, y + 1, add)
  got = once()
  np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
  np.testing.assert_array_equal(got, once())
  with config(noopt=True): np.testing.assert_allclose(once(), want, rtol=1e-4, atol=1e-4)


def test_gradient_along(device: str) -> None:
  rng = np.random.default_rng(3)
  x, g = rng.standard_normal((6, 40)).astype(np.float32), rng.standard_normal((6, 90)).astype(np.float32)
  at = rng.integers(0, 40, (6, 90))
  t = Tensor(x, device=device, requires_grad=True)
  (t.gather(1, Tensor(at, device=device)) * Tensor(g, device=device)).sum().backward()
  assert t.grad is not None
  np.testing.assert_allclose(t.grad.numpy(), along(np.zeros_like(x), 1, at, g, True), rtol=1e-4, atol=1e-5)


@long_where(lambda device: device in (TRITON, "runs"))
def test_run_time_sizes(device: str) -> None:
  rng = np.random.default_rng(0)
  for n in (40, 47, 90, 1500):
    index, value = rng.integers(0, n + 3, n).astype(np.int32), rng.standard_normal((n, 6)).astype(np.float32)
    got = scattered(Tensor.zeros(n + 3, 6, device=device), Tensor(index, device=device), Tensor(value, device=device))
    np.testing.assert_allclose(got.numpy(), expected(np.zeros((n + 3, 6), np.float32), index, value), rtol=1e-4, atol=1e-4)


def test_tables_have_programs() -> None:
  """Rows of a scatter along them are sorted, or compared block by block, by a program each; no axis is gone through in order."""
  pairs = [32, 32]
  for n, add, tile in ((200, True, [256]), (200, False, [256]), (5000, True, [2048]), (100, True, pairs), (20, False, pairs)):
    x, y, index = Tensor.empty(500, 800), Tensor.empty(500, n), Tensor.empty(500, n, dtype=dtypes.int32)
    t = x.scatter(1, index, y, "add" if add else None)
    kernels = [i.ast for i in schedule_graph([t.lazydata], GPU)[1]]
    assert len(kernels) == 2   # a copy of x, and what is added
    kernel = kernels[-1]
    assert kernel is not None and kernel.sequential == {1}
    done = prepare(kernel, GPU).kernel
    assert [a.size for a in done.of_kind(AxisKind.GRID)] == [500] and not done.sequential
    assert [a.size for a in done.of_kind(AxisKind.TILE)] == tile and [s.op for s in done.statements].count(Ops.FOR) == 1


def test_cheap_indices_need_no_kernel() -> None:
  """What an index is computed from is read where it is used: a gather is one kernel, and so is what it is made into."""
  w, index = Tensor.empty(500, 30), Tensor.empty(64, dtype=dtypes.int64)
  def kernels(t: Tensor) -> int: return len(schedule_graph([t.lazydata], GPU)[1])
  assert kernels(w[index]) == kernels(w[index] + 1) == kernels(w[index * 2 + 1, :3]) == 1
  assert kernels(w[index, index + 1]) == kernels(w.gather(0, index.reshape(64, 1))) == 1
  assert kernels(w[w.argmax(0)]) == 2   # a reduction is not cheap


def test_programs_have_rows() -> None:
  index, value = Tensor.empty(1024, dtype=dtypes.int32), Tensor.empty(1024, 96)
  kernel = schedule_graph([scattered(Tensor.zeros(500, 96), index, value).lazydata], GPU)[1][-1].ast
  assert kernel is not None and kernel.sequential
  done = prepare(kernel, GPU).kernel
  assert [a.size for a in done.of_kind(AxisKind.GRID)] == [32]
  assert [s.op for s in done.statements].count(Ops.WHILE) == 1 and not done.sequential
  few = schedule_graph([scattered(Tensor.zeros(500, 96), index[:8], value[:8]).lazydata], GPU)[1][-1].ast
  assert few is not None and prepare(few, GPU).kernel.sequential   # a few rows are stored one after another


def test_a_layer_above_an_embedding(device: str) -> None:
  """The gradient of rows that a product reads is itself a product, which no program makes alone: it has a kernel of its own."""
  rng = np.random.default_rng(5)
  table, w = rng.integers(-3, 4, (70, 40)).astype(np.float32), rng.integers(-3, 4, (40, 24)).astype(np.float32)
  index = rng.integers(0, 70, 90).astype(np.int32)
  t, x = Tensor(table, device=device, requires_grad=True), Tensor(w, device=device)
  g, = (t[Tensor(index, device=device)] @ x).square().sum().gradient(t)
  want = np.zeros_like(table)
  np.add.at(want, index, 2 * (table[index] @ w) @ w.T)
  np.testing.assert_array_equal(g.numpy(), want)


def test_what_is_scattered_is_summed_elsewhere() -> None:
  value = Tensor.empty(30, 20) @ Tensor.empty(20, 8)
  ks = [i.ast for i in schedule_graph([scattered(Tensor.empty(5, 8), Tensor.empty(30, dtype="int32"), value).lazydata], GPU)[1]]
  assert [bool(k.reduces) for k in ks if k.sequential] == [False] and sum(bool(k.reduces) for k in ks) == 1


def test_places_that_no_index_tells_apart(device: str) -> None:
  """An index that is one number for all: each is added."""
  def same(n: int, *shape: int) -> Tensor: return Tensor.full(shape, n, dtype="int32", device=device)
  x = Tensor(np.ones((3, 4), np.float32), device=device)
  assert x.index_add(0, same(2, 5), Tensor.ones(5, 4, device=device)).tolist() == [[1.0] * 4, [1.0] * 4, [6.0] * 4]
  assert x.scatter_add(0, same(1, 2, 4), Tensor.full((2, 4), 3.0, device=device)).tolist()[1] == [7.0] * 4
  assert x.index_put((same(0, 3),), Tensor.full((3, 4), 2.0, device=device)).tolist()[0] == [2.0] * 4
