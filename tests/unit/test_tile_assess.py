"""What a tile kernel assumes of sizes: decided when it is made, or checked when it is called."""
from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest
import sympy
from hypothesis import given, settings, strategies as st

import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad.errors import ArgumentError, NtgradError, ShapeError


def ones(*shape: int) -> Any: return np.ones(shape, np.float32)


def product(x: Any, y: Any, z: Any) -> None:
  total = tl.zeros(z.shape)
  for k in range(x.shape[0]): total += tl.dot(x[k], y[k])
  z = total  # noqa: F841


def static_product(x: Any, y: Any, z: Any) -> None:
  total = tl.zeros(z.shape)
  for k in tl.static_range(x.shape[0]): total += tl.dot(x[k], y[k])
  z = total  # noqa: F841


def arranged(x: Any, y: Any, z: Any, rows: int = 0) -> Any:
  z = z.tile((16, 16))
  x = x.tile((16, 8)).tile((1, -1)).expand((-1, z.shape[1]))
  y = y.tile((8, 16)).tile((-1, 1)).expand((z.shape[rows], -1))
  x.dtype, y.dtype = x.dtype.squeeze(0), y.dtype.squeeze(1)
  return x, y, z


def in_tiles(*tensors: Any) -> Any: return tuple(t.tile((16,)) for t in tensors)
def add(x: Any, y: Any, z: Any) -> None: z = x + y  # noqa: F841
def rows(x: Any, bias: Any, z: Any) -> None: z = x + bias  # noqa: F841


def plain(x: Any, bias: Any, z: Any) -> Any:
  z = z.tile((4, 16))
  return x.tile((4, 16)), bias.tile((1, 16)).expand((z.shape[0], -1)), z


def two(n: int) -> tuple[Any, ...]: return (tile.Tensor(n),) * 3


DISAGREE: list[tuple[str, Callable[[], None]]] = [
  ("dimension 0 of x has 3 elements, dimension 0 of y has 5",
   lambda: tile.make(in_tiles, add, two(1))(ones(3), ones(5), ones(5))),
  ("dimension 0 of z has 3 elements, dimension 0 of x has 5",
   lambda: tile.make(in_tiles, add, two(1))(ones(5), ones(5), ones(3))),
  ("dimension 1 of x has 16 elements, dimension 0 of y has 48",
   lambda: tile.make(arranged, product, two(2))(ones(32, 16), ones(48, 32), ones(32, 32))),
  ("dimension 1 of x has 48 elements, dimension 0 of y has 16",
   lambda: tile.make(arranged, product, two(2))(ones(32, 48), ones(16, 32), ones(32, 32))),
  ("dimension 1 of x has 8 elements, dimension 0 of y has 48",   # a loop of one round
   lambda: tile.make(arranged, product, two(2))(ones(32, 8), ones(48, 32), ones(32, 32))),
  ("dimension 1 of x has 8 elements, dimension 0 of y has 16",
   lambda: tile.make(arranged, static_product, two(2))(ones(32, 8), ones(16, 32), ones(32, 32))),
  ("dimension 0 of z has 31 elements, dimension 0 of x has 32",
   lambda: tile.make(arranged, product, two(2))(ones(32, 16), ones(16, 32), ones(31, 32))),
  ("dimension 1 of x has 20 elements, dimension 1 of bias has 19",
   lambda: tile.make(plain, rows, (tile.Tensor(2), tile.Tensor(shape=(1, None)), tile.Tensor(2)))(
     ones(8, 20), ones(1, 19), ones(8, 20))),
  ("K is 128 in dimension 1 of x and 64 in dimension 0 of y",
   lambda: tile.make(arranged, product, (tile.Tensor(shape=(None, "K")), tile.Tensor(shape=("K", None)), tile.Tensor(2)))(
     ones(32, 128), ones(64, 32), ones(32, 32))),
]


@pytest.mark.parametrize("text, use", DISAGREE, ids=[t for t, _ in DISAGREE])
def test_dimensions_side_by_side_agree(text: str, use: Callable[[], None]) -> None:
  with pytest.raises(ShapeError) as e: use()
  for part in text.replace(" elements", "").replace(" and ", ", ").split(", "): assert part in str(e.value)


def test_dimensions_with_names_may_differ() -> None:
  m, n = tile.Tensor(shape=("M",)), tile.Tensor(shape=("N",))
  out = np.zeros(5, np.float32)
  tile.make(in_tiles, add, (m, n, n))(ones(3), ones(5), out)
  np.testing.assert_array_equal(out, [2, 2, 2, 1, 1])


def test_single_tiles_and_windows_are_longer() -> None:
  def halves(x: Any, y: Any, z: Any) -> Any: return x.tile((4,)).tile((-1,)), y.tile((4,)), z.tile((4,))
  def cross(x: Any, y: Any, z: Any) -> None: z = x[0] * y + x[1]  # noqa: F841
  out = np.zeros(4, np.float32)
  x = np.arange(8, dtype=np.float32)
  tile.make(halves, cross, two(1))(x, ones(4), out)
  np.testing.assert_array_equal(out, x[:4] + x[4:])

  def windows(x: Any, z: Any) -> Any: return x.tile((3,), strides=(1,), floor_mode=True), z.tile((1,))
  def sums(x: Any, z: Any) -> None: z = tl.sum(x)  # noqa: F841
  out = np.zeros(6, np.float32)
  tile.make(windows, sums, (tile.Tensor(1),) * 2)(x, out)
  np.testing.assert_array_equal(out, x[:6] + x[1:7] + x[2:])


def test_only_square() -> None:
  with pytest.raises(ShapeError, match=r"dimension 0 is the same only for a square z \(z_size_0, z_size_1\)"):
    tile.make(lambda x, y, z: arranged(x, y, z, 1), product, two(2))
  square = tile.Tensor(shape=("N", "N"))
  out = np.zeros((32, 32), np.float32)
  kernel = tile.make(lambda x, y, z: arranged(x, y, z, 1), product, (tile.Tensor(2), tile.Tensor(2), square))
  kernel(ones(32, 16), ones(16, 32), out)
  np.testing.assert_array_equal(out, 16)


def test_checks_of_ones_own() -> None:
  def pairs(x: Any, y: Any) -> Any:
    n = x.shape[0]
    tile.check(n % 2 == 0, "rows come in pairs")
    tile.check(sympy.Symbol(n.name, integer=True, nonnegative=True) <= 8)
    tile.check(n >= 0)
    return x.tile((2,)), y.tile((2,))
  def double(x: Any, y: Any) -> None: y = x * 2  # noqa: F841
  k = tile.make(pairs, double, (tile.Tensor(1),) * 2)
  out = np.zeros(4, np.float32)
  k(ones(4), out)
  assert out.tolist() == [2] * 4
  with pytest.raises(ShapeError, match=r"rows come in pairs \(x_size_0 % 2 == 0, where x_size_0 = 5\); asked for at test_"):
    k(ones(5), ones(5))
  with pytest.raises(ShapeError, match=r"double: a check fails \(x_size_0 <= 8, where x_size_0 = 10\)"): k(ones(10), ones(10))
  lines = k.assessments().splitlines()
  assert "x_size_0 % 2 == 0; rows come in pairs" in lines[1] and lines[3].startswith("holds always")
  assert lines[1].endswith("host: if not (x.shape[0] % 2 == 0): raise ShapeError") and "host" not in lines[3]


def test_checks_that_are_refused() -> None:
  def never(x: Any) -> Any:
    tile.check(x.shape[0] < 0, "a size is no less than 0")
    return x.tile((2,))
  def nothing(x: Any) -> None: x = x * 2  # noqa: F841
  with pytest.raises(ShapeError, match="check: a size is no less than 0 never holds\n.*in never"):
    tile.make(never, nothing, (tile.Tensor(1),))
  with pytest.raises(ArgumentError, match="belongs in an arrangement"): tile.check(tile.Symbol("N") > 1)
  def text(x: Any) -> Any:
    tile.check("N > 1")
    return x.tile((2,))
  with pytest.raises(ArgumentError, match="a condition compares sizes"): tile.make(text, nothing, (tile.Tensor(1),))


def test_no_programs_and_no_elements() -> None:
  tile.make(in_tiles, add, two(1))(ones(0), ones(0), ones(0))
  def cut(x: Any, y: Any) -> Any:
    x = x.tile((4,))
    x.dtype = x.dtype[0:0]
    return x, y.tile((1,))
  def total(x: Any, y: Any) -> None: y = tl.sum(x)  # noqa: F841
  with pytest.raises(ShapeError, match=r"level 1 of x is \(0,\)"): tile.make(cut, total, (tile.Tensor(1),) * 2)(ones(8), ones(2))


@settings(max_examples=60, deadline=None)
@given(*[st.integers(1, 40)] * 4, st.integers(1, 20), st.sampled_from([1, 4, 16]), st.booleans())
def test_a_product_runs_where_sizes_agree(m: int, k: int, other: int, n: int, extra: int, block: int, equal: bool) -> None:
  def arrangement(x: Any, y: Any, z: Any) -> Any:
    z = z.tile((block, block))
    x = x.tile((block, block)).tile((1, -1)).expand((-1, z.shape[1]))
    y = y.tile((block, block)).tile((-1, 1)).expand((z.shape[0], -1))
    x.dtype, y.dtype = x.dtype.squeeze(0), y.dtype.squeeze(1)
    return x, y, z
  r = np.random.default_rng(m * 41 + k)
  x, y = (r.standard_normal(s).astype(np.float32) for s in ((m, k), (k if equal else other, n)))
  out = np.zeros((m, n + (extra if extra < 4 else 0)), np.float32)
  kernel = tile.make(arrangement, product, two(2))
  if x.shape[1] == y.shape[0] and out.shape == (m, n):
    kernel(x, y, out)
    np.testing.assert_allclose(out, x @ y, rtol=1e-4, atol=1e-4)
  else:
    with pytest.raises(NtgradError): kernel(x, y, out)


# ---- sizes that are expressions

def test_sizes_are_solved() -> None:
  def arrangement(x: Any, y: Any) -> Any: return x.tile((1,), floor_mode=True), y.tile((2,), floor_mode=True)
  def copies(x: Any, y: Any) -> None: x = tl.sum(y)  # noqa: F841
  k = tile.make(arrangement, copies, (tile.Tensor(shape=("K",)), tile.Tensor(shape=("2*K + 1",))))
  out = np.zeros(3, np.float32)
  k(out, np.arange(7, dtype=np.float32))
  assert out.tolist() == [1, 5, 9]
  with pytest.raises(ShapeError, match=r"dimension 0 of y has 8 elements; 2 \* K \+ 1 is 7 where K = 3"): k(out, ones(8))
  def loaded(x: Any, y: Any, z: Any) -> Any: return x.tile((1,)), y.tile((1,)), z
  def first(x: Any, y: Any, z: Any) -> None: x = y * z  # noqa: F841
  both = (tile.Tensor(shape=("M + N",)), tile.Tensor(shape=("2*M",)), tile.Tensor(0))
  out = np.zeros(6, np.float32)
  tile.make(lambda x, y, z: (x.tile((1,)), y.tile((1,)), z), first, both)(out, ones(6), 2.0)   # M is 3, so N is 3
  assert out.tolist() == [2] * 6
  with pytest.raises(ShapeError, match=r"dimension 0 of y has 5 elements; 2 \* M is 5 for no M"):
    tile.make(loaded, first, both)(out, ones(5), 2.0)


def test_anonymous_dimensions_and_sympy_as_sizes() -> None:
  q = sympy.Symbol("q", integer=True, positive=True)
  assert [str(n) for n in tile.Tensor(shape=("?", 1, q // 4, None), name="x").shape] == ["x_size_0", "1", "q // 4", "x_size_3"]
  y = tile.Tensor(shape=(q + 1,), name="y")
  assert y.subs({"q": 3}).shape == (4,)
