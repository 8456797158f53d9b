"""What a tile kernel assumes of sizes: decided when it is made, or checked when it is called."""
from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest
import sympy
from hypothesis import given, settings, strategies as st

import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad.codegen.ir.config import config
from ntgrad.errors import ArgumentError, NtgradError, ShapeError
from support.marks import long


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


def plus_one(x: Any, z: Any) -> None: z = x + 1  # noqa: F841


def from_to(of_x: Callable[[Any], Any], rank: int = 1, of_z: Callable[[Any], Any] = lambda z: z.tile((4,))) -> Any:
  return tile.make(lambda x, z: (of_x(x), of_z(z)), plus_one, (tile.Tensor(rank), tile.Tensor(1)))


# how x is arranged beside z in tiles of 4, a shape of x, the size of z that goes with it, one that does not, what is said
MADE_OF: dict[str, tuple[Callable[[Any], Any], tuple[int, ...], int, int, str]] = {
  "flip": (lambda x: x.flip(0).tile((4,)), (7,), 7, 5, "dimension 0 of x has 7 elements, dimension 0 of z has 5"),
  "[:5]": (lambda x: x[:5].tile((4,)), (11,), 5, 7, "dimension 0 of x(11)[:5] has 5 elements, dimension 0 of z has 7"),
  "[1:]": (lambda x: x[1:].tile((4,)), (7,), 6, 7, "dimension 0 of x(7)[1:] has 6 elements, dimension 0 of z has 7"),
  "[::2]": (lambda x: x[::2].tile((4,)), (12,), 6, 7, "dimension 0 of x(12)[::2] has 6 elements, dimension 0 of z has 7"),
  "flatten": (lambda x: x.flatten().tile((4,)), (4, 6), 24, 21, "x(4, 6).flatten() has 24 elements, dimension 0 of z has 21"),
  "turned": (lambda x: x.permute((1, 0)).flatten().tile((4,)), (4, 6), 24, 21, "has 24 elements, dimension 0 of z has 21"),
  "floor": (lambda x: x.tile((4,), floor_mode=True), (11,), 8, 7,
            "dimension 0 of x has 11 elements, tiles for 8, dimension 0 of z has 7"),
  "tiles": (lambda x: x.tile((4,))[:2], (11,), 8, 7, "dimension 0 of x has 11 elements, tiles for 8, dimension 0 of z has 7"),
  "tiles from 1": (lambda x: x.tile((4,))[1:], (11,), 7, 8, "dimension 0 of x has 11 elements, dimension 0 of z has 8"),
  "windows": (lambda x: x.tile((4,), strides=(4,), dilation=(1,)), (7,), 7, 6,
              "dimension 0 of x has 7 elements, dimension 0 of z has 6"),
}


@pytest.mark.parametrize("dynamic", ["never", "auto", "always"])
@pytest.mark.parametrize("name", MADE_OF)
def test_what_is_made_of_a_parameter_is_compared(name: str, dynamic: str) -> None:
  of_x, shape, fits, other, text = MADE_OF[name]
  k = from_to(of_x, len(shape))
  more = tuple([n + 12 * (d == len(shape) - 1) for d, n in enumerate(shape)])
  with config(dev="NUMPY", dynamic=dynamic):
    for s in (shape, more, shape):
      z = np.zeros(fits if s is shape or name == "[:5]" else fits_more(name, s), np.float32)
      if name != "tiles" or s is shape:
        k(ones(*s), z)
        assert (z == 2).all()
    with pytest.raises(ShapeError) as e: k(ones(*shape), np.zeros(other, np.float32))
  assert text in str(e.value)


def fits_more(name: str, shape: tuple[int, ...]) -> int:
  """The size of z beside a larger x."""
  n = int(np.prod(shape))
  return {"[1:]": n - 1, "[::2]": (n + 1) // 2, "floor": n // 4 * 4, "tiles from 1": n - 4}.get(name, n)


def test_what_is_padded_may_be_longer() -> None:
  with config(dev="NUMPY"):
    for pads in ((0, 2), (2, 0)):
      z = np.zeros(7, np.float32)
      from_to(lambda x, pads=pads: x.pad((pads,)).tile((4,)))(ones(5), z)
      assert sorted(z) == [1] * 2 + [2] * 5


def test_a_tile_by_its_number_leaves_other_dimensions_to_check() -> None:
  def arrangement(x: Any, z: Any) -> Any:
    x = x.tile((4, 4)).tile((1, -1)).squeeze(1)
    x.dtype = x.dtype.squeeze(0)
    return x, z.unsqueeze(1).tile((4, 1)).squeeze(1)
  def second(x: Any, z: Any) -> None: z = tl.sum(x[1], axis=1, keep_dims=True)  # noqa: F841
  k = tile.make(arrangement, second, (tile.Tensor(2), tile.Tensor(1)))
  z = np.zeros(5, np.float32)
  with config(dev="NUMPY"):
    k(ones(5, 10), z)
    assert z.tolist() == [4] * 5
    with pytest.raises(ShapeError, match="dimension 0 of x has 5 elements, dimension 0 of z has 8"): k(ones(5, 10), ones(8))


def in_turn(*tensors: Any) -> Any: return tuple(t.tile((1,)).tile((-1,)) for t in tensors)


def each_in_turn(x: Any, z: Any) -> None:
  for k in range(x.shape[0]): z[k] = x[k]


def test_a_loop_of_one_round_says_both_sizes() -> None:
  with config(dev="NUMPY"):
    with pytest.raises(ShapeError, match="dimension 0 of x has 1 elements, dimension 0 of z has 2, and a loop goes once through"):
      tile.make(in_turn, each_in_turn, (tile.Tensor(1),) * 2)(ones(1), ones(2))
    z = np.zeros(2, np.float32)
    tile.make(in_turn, each_in_turn, (tile.Tensor(shape=("M",)), tile.Tensor(shape=("N",))))(ones(1), z)
    assert z.tolist() == [1, 0]


def test_names_are_said() -> None:
  k = tile.make(in_tiles, add, (tile.Tensor(shape=("N",)), tile.Tensor(shape=("N",)), tile.Tensor(1)))
  with config(dev="NUMPY"), pytest.raises(ShapeError, match="dimension 0 of x, N, has 3 elements, dimension 0 of z has 5"):
    k(ones(3), ones(3), ones(5))


def test_all_that_are_side_by_side_are_compared() -> None:
  def first(x: Any, y: Any, z: Any) -> None: z = x * 2 + y  # noqa: F841
  named = tile.Tensor(shape=("M",)), tile.Tensor(1), tile.Tensor(shape=("N",))
  with config(dev="NUMPY"), pytest.raises(ShapeError, match="dimension 0 of y has 1 elements, dimension 0 of z, N, has 4"):
    tile.make(in_tiles, first, named)(ones(1), ones(1), ones(4))   # x and y agree, and x and z may differ


def test_a_tile_whose_dtype_is_asked_is_not_gone_through() -> None:
  """``y[k].dtype`` in a loop of one round over ``x`` says nothing of how many tiles there are of y."""
  def levels(x: Any, y: Any, z: Any) -> Any: return tuple(t.tile((4,)).tile((-1,)) for t in (x, y, z))
  def asks(x: Any, y: Any, z: Any) -> None:
    for k in range(x.shape[0]): z[k] = x[k].to(y[k].dtype) * 1.5 + y[2]
  def reads(x: Any, y: Any, z: Any) -> None:
    for k in range(x.shape[0]): z[k] = x[k] + y[k]
  with config(dev="NUMPY"):
    for application, fits in ((asks, True), (reads, False)):
      k = tile.make(levels, application, (tile.Tensor(1),) * 3)
      x, y, z = ones(4), np.arange(12, dtype=np.float16), ones(4)
      if fits:
        k(x, y, z)
        assert z.tolist() == [9.5, 10.5, 11.5, 12.5]
      else:
        with pytest.raises(ShapeError, match="dimension 0 of x has 4 elements, dimension 0 of y has 12"): k(x, y, z)


def test_the_whole_of_nothing() -> None:
  def spans(x: Any, z: Any) -> Any: return x.tile((1, -1)).squeeze(1), z.unsqueeze(1).tile((1, 1)).squeeze(1)
  def total(x: Any, z: Any) -> None: z = tl.sum(x, axis=1, keep_dims=True)  # noqa: F841
  with config(dev="NUMPY"):
    k = tile.make(spans, total, (tile.Tensor(2), tile.Tensor(1)))
    k(ones(0, 0), ones(0))                                     # no programs
    with pytest.raises(ShapeError, match=r"level 1 of x is \(1, 0\), for a tensor of shape \(5, 0\)"): k(ones(5, 0), ones(5))
    fixed = tile.make(spans, total, (tile.Tensor(shape=(5, 0)), tile.Tensor(1)))
    with pytest.raises(ShapeError, match="level 1 of x"): fixed(ones(5, 0), ones(5))
    padded = tile.make(lambda x, z: spans(x.pad(((0, 0), (0, 2))), z), total, (tile.Tensor(2), tile.Tensor(1)))
    z = ones(5)
    padded(ones(5, 0), z)
    assert z.tolist() == [0] * 5
    stepped = tile.make(lambda x, z: spans(x[::2].pad(((0, 0), (0, 2))), z), total, (tile.Tensor(2), tile.Tensor(1)))
    stepped(ones(10, 0), ones(5))


def test_a_slice_that_is_one_element_of_many_sizes() -> None:
  def arrangement(x: Any, z: Any) -> Any: return x[:-2].tile((-1,)), z.tile((-1,))
  k = tile.make(arrangement, plus_one, (tile.Tensor(1), tile.Tensor(1)))
  for dynamic in ("always", "auto"):
    with config(dev="NUMPY", dynamic=dynamic):
      for n in (3, 7, 3, 5):
        z = np.zeros(n - 2, np.float32)
        k(ones(n), z)
        assert (z == 2).all()


def test_arranged_tensors_come_in_order() -> None:
  with pytest.raises(ArgumentError, match="gives z, x; it returns x, z, in this order"):
    tile.make(lambda x, z: (z.tile((4,)), x.tile((4,))), plus_one, (tile.Tensor(1),) * 2)


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


@long
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
