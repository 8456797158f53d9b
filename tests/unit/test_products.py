"""Products by name, einsum and rearrange: what a table of values does not say."""
from __future__ import annotations

import math
from typing import Any, Callable

import numpy as np
import pytest

from ntgrad import Tensor, dtypes
from ntgrad.engine.report import describe
from ntgrad.errors import ArgumentError, AxisError, ShapeError
from ntgrad.schedule import create_schedule
from ntgrad.tensor.products import order_of_products, read_formula


def f(*shape: int) -> Tensor: return Tensor.ones(*shape, device="NUMPY")


def work(formula: str, *shapes: tuple[int, ...]) -> tuple[int, list[tuple[int, int]]]:
  """How many multiplications the order of einsum takes."""
  terms, output, sizes = read_formula(formula, [f(*s) for s in shapes])
  live: dict[int, set[str]] = {k: set(t) for k, t in enumerate(terms)}
  total, steps = 0, order_of_products(terms, output, sizes)
  for n, (i, j) in enumerate(steps):
    a, b = live.pop(i), live.pop(j)
    total += math.prod([sizes[c] for c in a | b])
    live[len(terms) + n] = (a | b) & set(output).union(*live.values())
  return total, steps


def test_einsum_multiplies_in_the_best_order() -> None:
  assert work("ab,bc,cd->ad", (2, 100), (100, 100), (100, 1))[0] == 100 * 100 + 200
  assert work("ab,bc,cd->ad", (1, 100), (100, 100), (100, 2))[0] == 100 * 100 + 200
  shapes = [(10, 3), (3, 50), (50, 2), (2, 40), (40, 5), (5, 60)]
  chain, most = "ab,bc,cd,de,ef,fg->ag", [10, 3, 50, 2, 40, 5, 60]
  best: dict[tuple[int, int], int] = {(i, i): 0 for i in range(6)}
  for length in range(1, 6):
    for i in range(6 - length):
      j = i + length
      best[i, j] = min(best[i, k] + best[k + 1, j] + most[i] * most[k + 1] * most[j + 1] for k in range(i, j))
  assert work(chain, *shapes)[0] == best[0, 5]
  many = ",".join(f"{a}{b}" for a, b in zip("abcdefghi", "bcdefghij")) + "->aj"   # nine: two at a time, the smallest product next
  total, steps = work(many, *[(8, 8)] * 9)
  assert len(steps) == 8 and total == 8 * 8 ** 3


def test_a_product_of_einsum_is_one_kernel() -> None:
  def kernels(formula: str, *shapes: tuple[int, ...]) -> list[str]:
    return [describe(k.ast) for k in create_schedule([Tensor.einsum(formula, *[Tensor.empty(*s) for s in shapes])])]
  assert len(kernels("bhqd,bkhd->bqhk", (2, 3, 16, 8), (2, 16, 3, 8))) == 1
  assert len(kernels("iij,...jk->...ik", (4, 4, 8), (5, 8, 6))) == 1
  assert len(kernels("ab,bc,cd->ad", (16, 16), (16, 16), (16, 16))) == 2


def test_forms_of_einsum() -> None:
  a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
  x, y = Tensor(a, device="NUMPY"), Tensor(b, device="NUMPY")
  for got in (Tensor.einsum("ij,jk", x, y), Tensor.einsum("ij,jk", [x, y]), Tensor.einsum(" i j , j k -> i k ", (x, b)),
              Tensor.einsum(x, [0, 1], y, [1, 2], [0, 2]), Tensor.einsum(x, [5, 30], y, [30, 40])):
    assert np.array_equal(got.numpy(), a @ b)
  assert np.array_equal(Tensor.einsum(x, [..., 0], y, [0, 1], [1, ...]).numpy(), (a @ b).T)
  assert Tensor.einsum("Aa->", x).item() == 15
  assert Tensor.einsum("ba", x).shape == Tensor.einsum("aB", x).shape == (3, 2)   # sorted, capitals first
  small = Tensor([[1, 2]], dtype="int8", device="NUMPY")
  assert Tensor.einsum("ij->ji", small).dtype is dtypes.int8 and Tensor.einsum("ij->i", small).dtype is dtypes.int64
  half = Tensor.full((3000,), 1.0, dtype="float16", device="NUMPY")
  assert Tensor.einsum("i,i,i->", half, half, half).item() == 3000
  assert Tensor.einsum("...i->i", f(2, 3)).tolist() == [2, 2, 2]
  named = Tensor.einsum("bij,bjk->bik", f(2, 3, 4).named("batch", "time", None), f(2, 4, 5).named("batch", None, "out"))
  assert named.names == ("batch", "time", "out")


WRONG: list[tuple[Callable[[], Any], type[Exception], str]] = [
  (lambda: Tensor.einsum("ij,jk->ik", f(2, 3), f(4, 4)), ShapeError, "letter 'j' is 3 in the first tensor and 4 in the second"),
  (lambda: Tensor.einsum("...i,...i->i", f(5, 3), f(4, 3)), ShapeError, r"dimension -1 of \.\.\. is 5 in the first"),
  (lambda: Tensor.einsum("ii", f(1, 3)), ShapeError, "letter 'i' is 1 in the first tensor and 3 in the same"),
  (lambda: Tensor.einsum("ijk", f(2, 3)), ShapeError, "a letter a dimension"),
  (lambda: Tensor.einsum("ij->ii", f(2, 3)), ArgumentError, "each once"),
  (lambda: Tensor.einsum("i.j", f(2, 3)), ArgumentError, "name the dims"),
  (lambda: Tensor.einsum("ij->ik", f(2, 3)), ArgumentError, "letter 'k'"),
  (lambda: Tensor.einsum(f(2), [52]), ArgumentError, "label 52"),
  (lambda: Tensor.einsum(f(2)), ArgumentError, "give a formula"),
  (lambda: f(2, 3).mm(f(3)), ShapeError, "mm: shapes"),
  (lambda: f(2, 3, 4).bmm(f(1, 4, 5)), ShapeError, "bmm: shapes"),
  (lambda: f(2, 3).mv(f(2)), ShapeError, "matmul: shapes"),
  (lambda: f(2, 3, 4).t(), ShapeError, "at most 2"),
  (lambda: f(2, 3).tensordot(f(2, 3), 1), ShapeError, "tensordot: shapes"),
  (lambda: f(2, 3).tensordot(f(2, 3), 3), ArgumentError, "dims 3"),
  (lambda: f(2, 3).tensordot(f(2, 3), ([0, 0], [0, 0])), ArgumentError, "none twice"),
  (lambda: f(2, 4).cross(f(2, 4)), ShapeError, "must be 3"),
  (lambda: f(2, 4).cdist(f(2, 4), -1), ArgumentError, "p = -1"),
  (lambda: f(2, 4).matrix_power(2), ShapeError, "square"),
  (lambda: Tensor.multi_dot(f(2, 3)), ArgumentError, "two and more"),
  (lambda: Tensor.multi_dot(f(2, 3), f(4, 3)), ShapeError, "one behind the other"),
  (lambda: f(2, 3).diagonal(0, 0, 0), AxisError, "same dimension"),
  (lambda: f(2).diagonal(), ShapeError, "at least two"),
  (lambda: f(2, 3, 4).rearrange("a b -> b a"), ShapeError, "takes 2 dimensions"),
  (lambda: f(2, 3).rearrange("a b -> a"), ArgumentError, "b stands on the left only"),
  (lambda: f(2, 3).rearrange("a 3 -> a 3"), ArgumentError, "no name"),
  (lambda: f(2, 3).rearrange("a (b c) -> a b c"), ArgumentError, "no sizes for b and c"),
  (lambda: f(2, 3).rearrange("a (b c) -> a b c", b=2), ShapeError, "no multiple of 2"),
  (lambda: f(2, 3).rearrange("a b -> b a", c=2), ArgumentError, "'c', which does not stand"),
  (lambda: f(2, 3).rearrange("(...) a -> a ..."), ArgumentError, "on the right only"),
  (lambda: f(2, 3).rearrange("a (b -> a b"), ArgumentError, r"\( without"),
  (lambda: f(2, 3).rearrange("a b) -> a b"), ArgumentError, r"\) without"),
  (lambda: f(2, 3).rearrange("a ((b)) -> a b"), ArgumentError, "parentheses in parentheses"),
  (lambda: f(2, 3).rearrange("a a -> a"), ArgumentError, "twice"),
  (lambda: f(2, 3).rearrange("a b"), ArgumentError, "one ->"),
]


@pytest.mark.parametrize("make, kind, says", WRONG, ids=lambda x: "" if callable(x) else str(x))
def test_refusals(make: Callable[[], Any], kind: type[Exception], says: str) -> None:
  with pytest.raises(kind, match=says): make()


def test_rearrange_and_diagonal_are_views() -> None:
  t = Tensor(np.zeros((2, 6), np.float32), device="NUMPY").named("batch", "columns")
  v = t.rearrange("b (h c) -> h b c", h=2)
  assert v.names == (None, "batch", None) and v.shape == (2, 2, 3)
  v[1, 0] = 1.0
  assert t[0].tolist() == [0, 0, 0, 1, 1, 1]
  assert t.rearrange("b c -> c b").names == ("columns", "batch") and t.rearrange("b c -> (b c)").names == (None,)
  t.diagonal(1).assign(Tensor([7.0, 8.0], device="NUMPY"))
  assert t[0, 1].item() == 7 and t[1, 2].item() == 8
  kept = t.diag()
  kept[0] = 100.0
  assert t[0, 0].item() == 0
  assert f(3, 0, 4).diagonal(0, 0, 1).shape == (4, 0) and f(2, 3).diagonal(9).shape == (0,) and f(0).diag(2).shape == (2, 2)
  assert f(2, 3, 4).named("a", "b", "c").diagonal(0, "a", "c").names == ("b", None)


def test_cdist_near_and_far() -> None:
  x = Tensor(np.array([[1000.0, 1.0], [1000.0, 1.0]], np.float32), requires_grad=True, device="NUMPY")
  y = Tensor(np.array([[1000.001, 1.0], [1000.0, 1.0]], np.float32), device="NUMPY")
  for p in (0.5, 1.0, 2.0, 3.0):
    d = x.cdist(y, p)
    assert np.allclose(d.numpy()[:, 0], np.float32(1000.001) - np.float32(1000)) and not d.numpy()[:, 1].any()
    slope, = d.sum().gradient(x)
    assert np.isfinite(slope.numpy()).all() and slope.numpy()[0, 0] == pytest.approx(-1, rel=1e-5)
  assert f(3, 0).cdist(f(2, 0)).tolist() == [[0, 0]] * 3
