"""Rows that are stored where an index says: by programs that have some of the rows each, on targets with blocks."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ntgrad import Tensor, dtypes, graph
from ntgrad.codegen.kernel import AxisKind
from ntgrad.codegen.pipeline import prepare
from ntgrad.codegen.target import Target
from ntgrad.codegen.uop import Ops
from ntgrad.schedule import schedule_graph
from tests.support.triton import NAME as TRITON, installed

GPU = Target("triton", blocks=True, cores=4)


def scattered(base: Tensor, index: Tensor, value: Tensor, mode: str = "add") -> Tensor:
  return value._wrap(graph.scatter(base.lazydata, index.lazydata, value.lazydata, mode))


def expected(base: np.ndarray, index: np.ndarray, value: np.ndarray, mode: str = "add") -> np.ndarray:
  out = base.astype(np.float64 if base.dtype.kind == "f" else base.dtype)
  for at, v in zip(index, value):
    if 0 <= at < len(out): out[at] = v if mode == "set" else out[at] + v
  return out


@pytest.fixture(params=["CPU", "NUMPY", TRITON])
def device(request: pytest.FixtureRequest) -> Any:
  if request.param != TRITON: yield request.param
  else:
    with installed(): yield TRITON


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


def test_run_time_sizes(device: str) -> None:
  rng = np.random.default_rng(0)
  for n in (40, 47, 90, 1500):
    index, value = rng.integers(0, n + 3, n).astype(np.int32), rng.standard_normal((n, 6)).astype(np.float32)
    got = scattered(Tensor.zeros(n + 3, 6, device=device), Tensor(index, device=device), Tensor(value, device=device))
    np.testing.assert_allclose(got.numpy(), expected(np.zeros((n + 3, 6), np.float32), index, value), rtol=1e-4, atol=1e-4)


def test_programs_have_rows() -> None:
  index, value = Tensor.empty(1024, dtype=dtypes.int32), Tensor.empty(1024, 96)
  kernel = schedule_graph([scattered(Tensor.zeros(500, 96), index, value).lazydata], GPU)[1][-1].ast
  assert kernel is not None and kernel.sequential
  done = prepare(kernel, GPU).kernel
  assert [a.size for a in done.of_kind(AxisKind.GRID)] == [32]
  assert [s.op for s in done.statements].count(Ops.WHILE) == 1 and not done.sequential
  few = schedule_graph([scattered(Tensor.zeros(500, 96), index[:8], value[:8]).lazydata], GPU)[1][-1].ast
  assert few is not None and prepare(few, GPU).kernel.sequential   # a few rows are stored one after another
