"""Symbolic tensors: shapes of every meta-operation with numbers and Symbols, refusals at the call, pictures, numbers for
symbols."""
from __future__ import annotations

import functools
import sys
import time
import xml.etree.ElementTree
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.errors import ArgumentError, AxisError, DTypeError, IndexOutOfRangeError, NtgradError, ShapeError
from ntgrad.graph.symbol import Symbol, block_size, cdiv
from ntgrad.tile.tensor import Tensor, named
from ntgrad.tile.visualize import Cell, cells, simulate_arrangement, visualize

M, N, BM, BN, BK = (Symbol(n) for n in ("M", "N", "BM", "BN", "BK"))


def numbered(*shape: int) -> np.ndarray: return np.arange(int(np.prod(shape))).reshape(shape)


def texts(t: Tensor) -> list[str]: return [", ".join(map(str, level)) for level in t.levels]


# ---- what people write

def test_documented_example() -> None:
  t = Tensor(shape=(4, 8)).tile((2, 2))
  assert t.shape == (2, 4) and t.dtype.shape == (2, 2) and t.levels == ((2, 4), (2, 2)) and t.ndim == 2
  assert (t.eval() == numbered(4, 8).reshape(2, 2, 4, 2).transpose(0, 2, 1, 3)).all()


def matmul(input: Tensor, other: Tensor, output: Tensor, BM: Any = BM, BN: Any = BN, BK: Any = BK) -> tuple[Tensor, ...]:
  output_arranged = output.tile((BM, BN))
  input_arranged = input.tile((BM, BK)).tile((1, -1)).expand((-1, output_arranged.shape[1]))
  input_arranged.dtype = input_arranged.dtype.squeeze(0)
  other_arranged = other.tile((BK, BN)).tile((-1, 1)).expand((output_arranged.shape[0], -1))
  other_arranged.dtype = other_arranged.dtype.squeeze(1)
  return input_arranged, other_arranged, output_arranged


def test_matmul() -> None:
  a, b, c = matmul(*named((Tensor(2), Tensor(2), Tensor(2)), ("input", "other", "output")))
  assert texts(a) == ["cdiv(input_size_0, BM), cdiv(output_size_1, BN)", "cdiv(input_size_1, BK)", "BM, BK"]
  assert texts(b) == ["cdiv(output_size_0, BM), cdiv(other_size_1, BN)", "cdiv(other_size_0, BK)", "BK, BN"]
  assert texts(c) == ["cdiv(output_size_0, BM), cdiv(output_size_1, BN)", "BM, BN"]
  assert str(b) == (
    "other(other_size_0, other_size_1).tile((BK, BN)).tile((-1, 1)).expand((cdiv(output_size_0, BM), cdiv(other_size_1, BN)))"
    ".squeeze(1, level=1)"
  )
  arrangement = a.arrangement((5, 7), {"BM": 2, "BN": 4, "BK": 3, "output_size_1": 9})
  assert arrangement.levels == ((3, 3), (3,), (2, 3))
  assert str(arrangement) == "source(5, 7).tile((2, 3)).tile((1, 3)).expand((3, 3)).squeeze(0, level=1)"


def test_matmul_with_one_name_a_size_has_one_grid() -> None:
  a, b, c = matmul(Tensor(shape=("M", "K")), Tensor(shape=("K", "N")), Tensor(shape=("M", "N")))
  assert a.shape == b.shape == c.shape == (cdiv(M, BM), cdiv(N, BN)) and a.dtype.shape == b.dtype.shape


def test_attention() -> None:
  def query(t: Tensor) -> Tensor:
    arranged = t.tile((1, 1, BM, -1))
    arranged.dtype = arranged.dtype.squeeze((0, 1))
    return arranged

  def key(t: Tensor, rows: Any) -> Tensor:
    arranged = t.tile((1, 1, BN, -1)).tile((1, 1, -1, -1)).expand((-1, -1, rows, -1))
    arranged.dtype = arranged.dtype.squeeze((0, 1, 3))
    arranged.dtype.dtype = arranged.dtype.dtype.squeeze((0, 1))
    return arranged

  q, k = named((Tensor(4), Tensor(4)), ("q", "k"))
  q = query(q)
  k = key(k, q.shape[-2])
  assert texts(q) == ["q_size_0, q_size_1, cdiv(q_size_2, BM), 1", "BM, q_size_3"]
  assert texts(k) == ["k_size_0, k_size_1, cdiv(q_size_2, BM), 1", "cdiv(k_size_2, BN)", "BN, k_size_3"]
  assert k.innermost().shape == (BN, k.source.shape[3]) and k.arrangement(
    (2, 3, 8, 16), {"q_size_2": 10, "BM": 4, "BN": 4}
  ).levels == ((2, 3, 3, 1), (2,), (4, 16))


def test_convolution_as_a_matmul() -> None:
  def arrangement(input: Tensor, filter: Tensor, output: Tensor) -> tuple[Tensor, ...]:
    tiled = input.tile((1, *filter.shape[1:]), strides=(-1, -1, 1, 1)).squeeze(1)
    tiled.dtype = tiled.dtype.squeeze(0)
    rows = tiled.ravel().flatten(end_dim=3).flatten(start_dim=1)
    return matmul(rows, filter.flatten(start_dim=1).permute((1, 0)), output.permute((0, 2, 3, 1)).flatten(end_dim=3))

  x, w, y = arrangement(*named((Tensor(4), Tensor(4), Tensor(4)), ("x", "w", "y")))
  sizes = {"BM": 4, "BN": 2, "BK": 3, **w.source.sizes((5, 3, 2, 2)), **y.source.sizes((2, 5, 3, 4))}
  a = x.arrangement((2, 3, 4, 5), sizes)
  assert a.levels == ((6, 3), (4,), (4, 3)) == (y.arrangement((2, 5, 3, 4), sizes).levels[0], *a.levels[1:])
  assert w.arrangement((5, 3, 2, 2), sizes).levels == ((6, 3), (4,), (3, 2))
  windows = np.lib.stride_tricks.sliding_window_view(numbered(2, 3, 4, 5), (3, 2, 2), (1, 2, 3)).reshape(24, 12)
  assert (a.elements()[:, 0].reshape(6, 4, 4, 3).transpose(0, 2, 1, 3).reshape(24, 12) == windows).all()


def test_scalars() -> None:
  t = Tensor(0, name="eps", constexpr=True, value=1e-5)
  assert (
    t.shape == ()
    and t.levels == ((),)
    and t.constexpr
    and t.value == 1e-5
    and t.eval() == 0
    and t.arrangement((), {}).levels == ((),)
  )


def test_empty_tensors_have_no_programs() -> None:
  t = Tensor(2, name="x").tile((BM, 3))
  for windows in (None, (2, 5), (1, 1)):
    a = t.source.tile((BM, 3), windows).arrangement((0, 4), {"BM": 2})
    assert a.shape[0] == 0 and a.elements().size == 0
  assert t.arrangement((0, 4), {"BM": 16}).levels == ((0, 2), (16, 3))
  assert t.tile((-1, 1)).arrangement((4, 0), {"BM": 2}).levels == ((1, 0), (2, 1), (2, 3))


# ---- declaring

def test_dimensions() -> None:
  options = (None, None, {"upper_bound": 8}, {"constexpr": True})
  t = Tensor(shape=(4, N, "K", None), name="x", shape_options=options, dtype="float16", other=float("-inf"))
  assert t.shape == (4, N, Symbol("K"), Symbol("x_size_3")) and str(t) == "x(4, N, K, x_size_3)"
  assert (
    t.shape[2].upper_bound == 8 and t.shape[3].constexpr and t.dtype is t.element is dtypes.float16 and t.other == float("-inf")
  )
  assert (
    [str(s) for s in t.strides] == [f"x_stride_{d}" for d in range(4)] and t.stride(1) == Symbol("x_stride_1") and t.size(0) == 4
  )
  assert Tensor(2, shape_options={"constexpr": True}).shape[1].constexpr and Tensor(2, jagged_dim=-1).jagged_dim == 1
  assert Tensor(1).name != Tensor(1).name and Tensor(1).dtype is None


def test_late_names() -> None:
  a, b = Tensor(shape=(None, "K")), Tensor(1)
  assert str(a.named("x")) == "x(x_size_0, K)" and str(a.named("x").named("y")) == "y(y_size_0, K)"
  x, y = named((a.tile((BM, -1)), b.unsqueeze(0).expand((a.shape[0], -1))), ("x", "y"))
  assert texts(x) == ["cdiv(x_size_0, BM), 1", "BM, K"] and texts(y) == ["x_size_0, y_size_0"]


def test_dtypes_nest() -> None:
  t = Tensor(shape=(4, 8), dtype=dtypes.int8).tile((2, 4)).tile((1, 2))
  assert (
    isinstance(t.dtype, Tensor)
    and t.dtype.shape == (1, 2)
    and t.dtype.levels == ((1, 2), (2, 4))
    and t.dtype.dtype.dtype is dtypes.int8
  )
  assert (
    t.innermost().shape == (2, 4) and t.dtype.source.shape == (4, 8) and t.source.levels == ((4, 8),) and t.source.source is not t
  )
  t.dtype.dtype = t.dtype.dtype.flatten()
  t.dtype = t.dtype.squeeze(0)
  assert (
    t.levels == ((2, 1), (2,), (8,))
    and str(t) == f"{t.name}(4, 8).tile((2, 4)).tile((1, 2)).flatten(0, 2, level=2).squeeze(0, level=1)"
  )
  t.innermost().dtype = "float32"
  assert t.dtype.dtype.dtype is dtypes.float32


def test_setting_a_dtype_replaces_it() -> None:
  t = Tensor(shape=(4, 8)).tile((2, 4))
  inner = t.dtype
  t.dtype = inner.permute((1, 0))
  assert t.levels == ((2, 2), (4, 2))
  t.dtype = inner.flatten()                      # made from the dtype as it was before
  assert t.levels == ((2, 2), (8,))
  later = t.flatten()
  later.dtype = inner.flip(0)                    # the outer level has changed since, the inner one not
  assert later.levels == ((4,), (2, 4)) and (later.eval()[0] == numbered(4, 8)[:2, :4][::-1]).all()
  assert t.levels == ((2, 2), (8,))              # a new tensor is independent
  part = t.dtype.unflatten(0, (2, 4))
  assert t.levels == ((2, 2), (8,)) and part.shape == (2, 4)


def test_setting_a_foreign_dtype_is_refused() -> None:
  a, b = Tensor(shape=(4, 8)).tile((2, 4)), Tensor(shape=(4, 8)).tile((2, 4))
  c = a.source.tile((2, 4))
  with pytest.raises(ArgumentError, match="is no inner level"): a.dtype = b.dtype
  with pytest.raises(ArgumentError, match="is no inner level"): a.dtype = a
  with pytest.raises(ArgumentError, match="made from the dtype of another arrangement"): a.dtype = a.source.tile((4, 2)).dtype
  with pytest.raises(ArgumentError, match="made from the dtype of another arrangement"): a.dtype = a.tile((1, 1)).dtype
  with pytest.raises(ArgumentError, match="its dtype is a Tensor"): a.dtype = dtypes.int32
  with pytest.raises(DTypeError, match="no dtype"): a.dtype.dtype = "float33"
  a.dtype = c.dtype.flip(0)                      # the same operations on the same source
  assert (a.eval()[0, 0] == numbered(4, 8)[:2, :4][::-1]).all()


# ---- the shape of each, with Symbols

S = Tensor(shape=("M", "N", 6))
PLAIN = Symbol("B", lower_bound=8)
SHAPES: list[tuple[Callable[[Tensor], Tensor], str]] = [
  (lambda t: t.tile((BM, 1, -1)), "cdiv(M, BM), N, 1 of BM, 1, 6"),
  (lambda t: t.tile((2, 3, 4)), "cdiv(M, 2), cdiv(N, 3), 2 of 2, 3, 4"),
  (lambda t: t.tile((3, -1, 2), (1, -1, 2), (1, 1, 1)), "max(M - 3, 0) + 1, 1, 3 of 3, N, 2"),
  (lambda t: t.tile((3, 1, 2), (2, 1, 1), (2, 1, 3)), "cdiv(max(M - 5, 0), 2) + 1, N, 3 of 3, 1, 2"),
  (lambda t: t.tile((2, BN, 4), floor_mode=True), "M // 2, N // BN, 1 of 2, BN, 4"),
  (lambda t: t.tile((3, 1, 2), (2, 1, 2), floor_mode=True), "cdiv(M, 2) - 1, N, 3 of 3, 1, 2"),
  (lambda t: t.tile((BM, BN, 6)).tile((-1, 2, 1)), "1, cdiv(N, 2 * BN), 1 of cdiv(M, BM), 2, 1 of BM, BN, 6"),
  (lambda t: t.unsqueeze(0).expand((BM, -1, -1, 6)), "BM, M, N, 6"),
  (lambda t: t.unsqueeze(-1), "M, N, 6, 1"),
  (lambda t: t.squeeze(1), "M, 6"),
  (lambda t: t.permute((2, 0, -2)), "6, M, N"),
  (lambda t: t.flatten(), "6 * M * N"),
  (lambda t: t.flatten(1), "M, 6 * N"),
  (lambda t: t.flatten(0, 2), "M * N, 6"),
  (lambda t: t.flatten(0, -1), "M * N, 6"),
  (lambda t: t.unflatten(2, (2, 3)), "M, N, 2, 3"),
  (lambda t: t.unflatten(0, (-1, 4)), "M // 4, 4, N, 6"),
  (lambda t: t.unflatten(-1, (BM, -1)), "M, N, BM, 6 // BM"),
  (lambda t: t.tile((BM, BN, 2)).ravel(), "cdiv(M, BM), cdiv(N, BN), 3, BM, BN, 2"),
  (lambda t: t.pad(((1, 2), (0, BN), (0, 0))), "M + 3, BN + N, 6"),
  (lambda t: t.flip((0, -1)), "M, N, 6"),
  (lambda t: t[1:], "max(M - 1, 0), N, 6"),
  (lambda t: t[0, :, ::2], "N, 3"),
  (lambda t: t[..., -1], "M, N"),
  (lambda t: t[:, None, BM], "M, 1, 6"),
  (lambda t: t[:, 2:BN:3], "M, cdiv(max(min(BN, N) - 2, 0), 3), 6"),
  (lambda t: t[::-1, :-1], "M, max(N - 1, 0), 6"),
  (lambda t: t[()], "M, N, 6"),
  (lambda t: t[:, :, 4:0:-2], "M, N, 2"),
]


@pytest.mark.parametrize("use, text", SHAPES, ids=[t for _, t in SHAPES])
def test_symbolic_shapes(use: Callable[[Tensor], Tensor], text: str) -> None:
  assert " of ".join(texts(use(S))) == text


def test_sizes_are_taken_for_one_or_more() -> None:
  t = Tensor(1, name="x")
  assert texts(t[1:]) == ["max(x_size_0 - 1, 0)"] and texts(t[:1].squeeze(0)) == [""] and texts(t[0:1].expand((5,))) == ["5"]
  assert Tensor(shape=(1, "N")).tile((block_size(), BN)).shape[0] == 1


def test_printed_operations() -> None:
  t = Tensor(shape=(9, 9), name="x")[1:, ::-2].tile((2, 3), strides=(1, -1), dilation=(2, 1), floor_mode=True).unsqueeze(0)
  assert str(t) == "x(9, 9)[1:, ::-2].tile((2, 3), strides=(1, -1), dilation=(2, 1), floor_mode=True).unsqueeze(0)"
  t.dtype = t.dtype[..., 0]
  assert str(t).endswith(".index((..., 0), level=1)") and t.eval().shape == (1, 6, 1, 2)
  assert str(t.ravel().flatten(1, 3).permute((1, 0, 2))).endswith(".ravel().flatten(1, 3).permute((1, 0, 2))")


# ---- refusals

X = Tensor(shape=(6, "N"), name="x")
REFUSED: list[tuple[type[NtgradError], str, Callable[[], object]]] = [
  (ShapeError, "tile: one tile size a dimension, so 2 of them, got \\(2,\\); in x\\(6, N\\)", lambda: X.tile((2,))),
  (ShapeError, "tile: one stride a dimension", lambda: X.tile((2, 2), strides=(1,))),
  (ShapeError, "tile: one dilation", lambda: X.tile((2, 2), None, (1, 1, 1))),
  (ArgumentError, "tile: a size of 0; it is 1 or more, or -1", lambda: X.tile((0, 2))),
  (ArgumentError, "a stride of -2", lambda: X.tile((1, 2), (1, -2))),
  (ArgumentError, "a dilation of -1; it is 1 or more", lambda: X.tile((1, 2), None, (-1, 1))),
  (ArgumentError, "sizes are ints and Symbols, got 1.5", lambda: X.tile((1, 1.5))),
  (ArgumentError, "a tuple with a size for each dimension, got 2", lambda: X.tile(2)),  # type: ignore[arg-type]
  (ShapeError, "no window of 7 lies inside dimension 0, which has 6 elements", lambda: X.tile((7, 1), floor_mode=True)),
  (ShapeError, "no window of 3 .dilation 3. lies inside", lambda: X.tile((3, 1), dilation=(3, 1), floor_mode=True)),
  (ShapeError, "expand: one size a dimension", lambda: X.expand((6,))),
  (ShapeError, "dimension 0 of \\(6, N\\) is 6, only a dimension of 1 becomes 12", lambda: X.expand((12, -1))),
  (ArgumentError, "expand: dimension 0 to -2", lambda: X.expand((-2, -1))),
  (ShapeError, "squeeze: dimension 0 of \\(6, N\\) is 6", lambda: X.squeeze(0)),
  (AxisError, "squeeze: dimension 2; there are 2", lambda: X.squeeze(2)),
  (ShapeError, "is B \\+ 1; only a dimension of 1", lambda: Tensor(shape=(PLAIN + 1,)).squeeze(0)),
  (AxisError, "given twice in \\(0, -2\\)", lambda: X.squeeze((0, -2))),
  (ArgumentError, "a dimension's number is an int, got N", lambda: X.squeeze(N)),  # type: ignore[arg-type]
  (AxisError, "unsqueeze: dimension 3; there are 3", lambda: X.unsqueeze(3)),
  (AxisError, "permute: dimension 2", lambda: X.permute((0, 2))),
  (AxisError, "given twice", lambda: X.permute((0, 0))),
  (AxisError, "permute: each of 2 dimensions once, got \\(1,\\)", lambda: X.permute((1,))),
  (AxisError, "flatten: end_dim 3; there are 2", lambda: X.flatten(0, 3)),
  (AxisError, "no dimension from 1 to 1", lambda: X.flatten(1, 1)),
  (AxisError, "flatten: there are no dimensions", lambda: Tensor(0).flatten()),
  (ArgumentError, "start_dim is an int", lambda: X.flatten("0")),  # type: ignore[arg-type]
  (ShapeError, "unflatten: dimension 0 of \\(6, N\\) is 6, which is no \\(4, 2\\)", lambda: X.unflatten(0, (4, 2))),
  (ShapeError, "no \\(4, -1\\)", lambda: X.unflatten(0, (4, -1))),
  (ArgumentError, "one may be -1", lambda: X.unflatten(0, (-1, -1))),
  (AxisError, "unflatten: dimension 2", lambda: X.unflatten(2, (1,))),
  (ShapeError, "unflatten: .* is no \\(N, 0\\)", lambda: Tensor(1, shape_options={"lower_bound": 1}).unflatten(0, (N, 0))),
  (ShapeError, "pad: a pair .before, behind. for each of 2", lambda: X.pad(((0, 1),))),
  (ShapeError, "pad: a pair", lambda: X.pad(((0, 1, 2), (0, 0)))),
  (ArgumentError, "pad: amounts are 0 or more, got \\(0, -1\\); slicing cuts off", lambda: X.pad(((0, -1), (0, 0)))),
  (AxisError, "flip: dimension 2", lambda: X.flip(2)),
  (IndexOutOfRangeError, "index: 6 is outside dimension 0 of \\(6, N\\)", lambda: X[6]),
  (IndexOutOfRangeError, "-7 is outside", lambda: X[-7]),
  (AxisError, "index: 3 indices for 2 dimensions", lambda: X[0, 0, 0]),
  (ArgumentError, "may stand once", lambda: X[..., ...]),
  (ArgumentError, "a step of 0", lambda: X[::0]),
  (ArgumentError, "an int for a step", lambda: X[::N]),
  (ArgumentError, "index: ints, Symbols, slices", lambda: X[1.5]),
  (ArgumentError, "index: ints", lambda: X[True]),
  (ArgumentError, "a slice has ints and Symbols", lambda: X[1.5:]),
  (ArgumentError, "the number of dimensions, or a shape", lambda: Tensor()),
  (ArgumentError, "Tensor: -1 dimensions", lambda: Tensor(-1)),
  (ArgumentError, "2 dimensions, but a shape of 1", lambda: Tensor(2, shape=(1,))),
  (ArgumentError, "'a b' is no name", lambda: Tensor(2, name="a b")),
  (ArgumentError, "a dimension is an int, a Symbol", lambda: Tensor(shape=(1.5,))),
  (ArgumentError, "a dimension of -1; None is", lambda: Tensor(shape=(-1,))),
  (ArgumentError, "shape_options for each of 2", lambda: Tensor(2, shape_options=({},))),
  (ArgumentError, "mappings of constexpr, meta", lambda: Tensor(1, shape_options={"const": True})),
  (AxisError, "jagged_dim 2", lambda: Tensor(2, jagged_dim=2)),
  (ArgumentError, "constexpr and value are those of a scalar", lambda: Tensor(1, constexpr=True)),
  (ArgumentError, "no value for N", lambda: X.eval()),
  (ArgumentError, "this is its level 1", lambda: X.tile((2, 2)).dtype.eval({N: 1})),
  (ArgumentError, "names, Symbols and Tensors get values", lambda: X.subs({N + 1: 2})),
  (ShapeError, "subs: x has 2 dimensions, got a shape \\(1,\\)", lambda: X.subs({X: (1,)})),
  (DTypeError, "no dtype", lambda: Tensor(1, dtype="float33")),
]


@pytest.mark.parametrize("error, text, use", REFUSED, ids=[t for _, t, _ in REFUSED])
def test_refusals(error: type[NtgradError], text: str, use: Callable[[], object]) -> None:
  with pytest.raises(error, match=text) as e: use()
  assert type(e.value) is error


def test_iterating_is_a_type_error() -> None:
  with pytest.raises(TypeError): list(X)  # type: ignore[call-overload]


# ---- numbers

def test_what_numbers_show_is_refused_then() -> None:
  t = Tensor(shape=("M", "N"), name="x")
  cases: list[tuple[type[NtgradError], str, Tensor]] = [
    (
      ShapeError,
      "x: squeeze: axes \\(1,\\) of a level \\(4, 6\\); only a dimension of 1 can go; in x.M, N..squeeze.1., with source.4, 6.",
      t.squeeze(1),
    ),
    (ShapeError, "no window of 7", t.tile((1, 7), floor_mode=True)),
    (ShapeError, "dimension 0 of \\(4, 6\\) has 4 elements, which is no \\(3, 2\\)", t.unflatten(0, (3, 2))),
    (IndexOutOfRangeError, "index: 5 is outside dimension 0", t[5]),
    (ArgumentError, "1 or more", t.tile((N - 6, 1))),
  ]
  for error, text, use in cases:
    with pytest.raises(error, match=text): use.arrangement((4, 6), {})


def test_arrays_of_another_shape_are_refused() -> None:
  t = Tensor(shape=("M", 4, "M", "K"), name="x", shape_options=(None, None, None, {"upper_bound": 8}))
  assert t.sizes((2, 4, 2, 3)) == {"M": 2, "K": 3}
  for shape, text in (
    ((2, 4, 2), "x: 4 dimensions \\(M, 4, M, K\\), got an array of shape \\(2, 4, 2\\)"),
    ((2, 5, 2, 3), "dimension 1 is 4"),
    ((2, 4, 3, 3), "M is 2 and 3"),
    ((2, 4, 2, 9), "dimension 3 has 9 elements; K goes from 0 to 8"),
  ):
    with pytest.raises(ShapeError, match=text):
      t.arrangement(shape, {})
  with pytest.raises(ShapeError, match="M is 5, got an array"): t.arrangement((2, 4, 2, 3), {"M": 5})
  double = Tensor(shape=(N, 2 * N), name="y")
  assert double.arrangement((3, 6), {}).source == (3, 6) and double.arrangement(None, {"N": 2}).source == (2, 4)
  with pytest.raises(ShapeError, match="y: a shape of \\(3, 6\\), got an array of shape \\(3, 7\\)"):
    double.arrangement((3, 7), {})
  with pytest.raises(ArgumentError, match="BM: no value for BM"): t.tile((1, 1, BM, 1)).arrangement((2, 4, 2, 3), {})


def test_subs() -> None:
  x = Tensor(2, name="x")
  t = x.tile((BM, BN))
  assert t.subs({BM: 2}).levels[1] == (2, BN) and t.subs({"BM": 2, BN: 3, x: Tensor(shape=(5, 6))}).levels == ((3, 2), (2, 3))
  assert t.subs({BM: 2, BN: 3, x: {"shape": (5, 6)}}).levels == t.subs({BM: 2, BN: 3, x: (5, 6)}).levels == ((3, 2), (2, 3))
  assert str(t.subs({BM: N * 2})) == "x(x_size_0, x_size_1).tile((2 * N, BN))" and t.levels[1] == (BM, BN)
  with pytest.raises(ShapeError, match="only a dimension of 1"): x.squeeze(0).subs({x: (5, 6)})


def test_eval_masks_and_nests() -> None:
  x, m, n = Tensor(2), Symbol("m"), Symbol("n")
  values = {x: {"shape": (5, 6)}, m: 2, n: 3}
  tiled = x.tile((m, n))
  picture = np.pad(numbered(5, 6), ((0, 1), (0, 0)), constant_values=-1).reshape(3, 2, 2, 3).transpose(0, 2, 1, 3)
  assert (tiled.eval(values) == picture).all()
  twice = tiled.tile((m, n))
  full = (
    np.pad(picture, ((0, 1), (0, 1), (0, 0), (0, 0)), constant_values=-1).reshape(2, 2, 1, 3, 2, 3).transpose(0, 2, 1, 3, 4, 5)
  )
  assert (twice.eval(values) == full).all() and (twice.subs(values).eval() == full).all()
  twice.dtype = twice.dtype.flatten()
  twice.dtype.dtype = twice.dtype.dtype.flatten()
  assert (twice.eval(values) == full.reshape(2, 1, 6, 6)).all()


def test_offsets() -> None:
  rows, columns = Tensor(shape=(3, 4)).tile((2, 2)).offsets()
  assert rows[1, 0].tolist() == [[2, 2], [3, 3]] and columns[1, 1].tolist() == [[2, 3], [2, 3]]
  x = Tensor(2)
  assert (x.offsets(-1, {x: (2, 3)}) == [[0, 1, 2]] * 2).all()
  with pytest.raises(AxisError, match="offsets: dimension 2"): x.offsets(2, {x: (2, 3)})


def test_arranging_is_quick() -> None:
  a, _, _ = matmul(*named((Tensor(2), Tensor(2), Tensor(2)), ("input", "other", "output")))
  values = {"BM": 2, "BN": 4, "BK": 3, "output_size_1": 9}
  a.arrangement((5, 7), values)
  best = min(_seconds(lambda: a.arrangement((5, 7), values)) for _ in range(20))
  assert best < 2e-3


def _seconds(fn: Callable[[], object]) -> float:
  start = time.perf_counter()
  fn()
  return time.perf_counter() - start


def test_simulate() -> None:
  tensors = (Tensor(shape=(3, 5)), Tensor(shape=(5, 4)), Tensor(shape=(3, 4)))
  sources, targets = simulate_arrangement(functools.partial(matmul, BM=2, BN=2, BK=2), tensors)
  assert [s.tolist() for s in sources] == [numbered(*t.shape).tolist() for t in tensors]
  assert [t.shape for t in targets] == [(4, 3, 2, 2), (4, 3, 2, 2), (4, 2, 2)]
  assert targets[0][2].tolist() == [[[10, 11], [-1, -1]], [[12, 13], [-1, -1]], [[14, -1], [-1, -1]]]
  assert targets[1][1].tolist() == [[[2, 3], [6, 7]], [[10, 11], [14, 15]], [[18, 19], [-1, -1]]]
  assert targets[2][2].tolist() == [[8, 9], [-1, -1]]
  again = simulate_arrangement(matmul, tensors, {BM: 2, "BN": 2, BK: 2})
  assert all((a == b).all() for a, b in zip(again[1], targets))
  (one,), (picture,) = simulate_arrangement(lambda t: t, (Tensor(0),))
  assert one.tolist() == picture.tolist() == 0
  with pytest.raises(ArgumentError, match="no value for BK, BM"): simulate_arrangement(matmul, tensors)
  with pytest.raises(ArgumentError, match="gives 1 arranged tensors for 2"):
    simulate_arrangement(lambda a, b: (a,), (Tensor(0), Tensor(0)))


# ---- pictures

def test_cells() -> None:
  found = cells(Tensor(shape=(3, 5)).tile((2, 2)).tile((1, 3)).subs({}).arrangement())
  assert len(found) == 4 * 6 and found[0, 0] == Cell((0, 0, 0), 0, False) and found[1, 2] == Cell((0, 1, 2), 0, False)
  assert found[2, 4] == Cell((1, 2, 0), 0, False) and found[3, 5] == Cell((1, 2, 3), 0, True)
  spread = cells(Tensor(shape=(1, 4)).expand((3, 4)).tile((1, 2)).arrangement())
  assert spread[0, 3] == Cell((1, 1), 2, False) and len(spread) == 4
  cut = cells(Tensor(shape=(6,))[1:5].pad(((1, 0),)).tile((5,)).arrangement())
  assert cut[0,].masked and not cut[1,].masked and (5,) not in cut
  assert cells(Tensor(0).arrangement()) == {(): Cell((0,), 0, False)}


def test_visualize(tmp_path: Path) -> None:
  small = functools.partial(matmul, BM=2, BN=2)
  picture = visualize(small, (Tensor(shape=(3, 5)), Tensor(shape=(5, 4)), Tensor(shape=(3, 4))), {BK: 2}, tmp_path / "matmul.svg")
  root = xml.etree.ElementTree.fromstring((tmp_path / "matmul.svg").read_text())
  shown = ["".join(e.itertext()) for e in root.iter("{http://www.w3.org/2000/svg}text")]
  assert "output(3, 4).tile((2, 2))" in shown and shown.count("masked: no element of the source") == 3 and shown.count("3") == 2
  assert (
    "level 1: (3,), indexed or looped over" in shown and shown.count("0+1") == 10 + 10 and picture._repr_svg_() == picture.svg
  )
  for t in (Tensor(shape=(2, 3, 4)).tile((1, 2, 2)), Tensor(0), Tensor(1).tile((BM,)).subs({BM: 4})):
    assert "<rect" in visualize(t, subs={t: (5,)} if t.source.ndim == 1 else None).svg
  picture.save(tmp_path / "matmul.png")
  assert (tmp_path / "matmul.png").read_bytes().startswith(b"\x89PNG")


def test_visualize_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  t = Tensor(shape=(4,), name="x").tile((2,))
  with pytest.raises(ArgumentError, match="saved as .svg or .png"): visualize(t, save_path=tmp_path / "x.pdf")
  with pytest.raises(ArgumentError, match="no value for BM"): visualize(Tensor(shape=(4,)).tile((BM,)))
  with pytest.raises(ArgumentError, match="too many elements for a picture"): visualize(Tensor(shape=(200, 200)))
  with pytest.raises(ArgumentError, match="4096000000 elements; give smaller sizes"): visualize(Tensor(shape=(64000, 64000)))
  with pytest.raises(ArgumentError, match="is drawn with tensors="): visualize(matmul)
  monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
  with pytest.raises(ArgumentError, match="matplotlib, which is not installed"): visualize(t).save(tmp_path / "x.png")


@pytest.mark.parametrize(
  "chain",
  [
    lambda x: x.unsqueeze(0).tile((2, 4)),
    lambda x: x.unsqueeze(1).tile((4, 2)),
    lambda x: x.unsqueeze(0).unsqueeze(2).squeeze(0).tile((4, 1)),
    lambda x: x.expand((-1,)).tile((4,)),
    lambda x: x[None].permute((1, 0)).tile((4, 1)),
    lambda x: x[::2].tile((4,)),
    lambda x: x.tile((1,)).tile((4,)),
    lambda x: x.unsqueeze(0).tile((1, 1)).tile((1, 4)).ravel().squeeze(0),
    lambda x: x.pad(((1, 4),)),
  ],
)
def test_offsets_behind_the_end_do_not_depend_on_the_size(chain: Any) -> None:
  one, more = (chain(Tensor(shape=(n,))) for n in (1, 5))
  assert one.eval().max() == 0 and (one.eval() == -1).any()
  got = one.offsets(0)
  np.testing.assert_array_equal(got, more.offsets(0)[tuple(slice(n) for n in got.shape)])


def test_offsets_of_a_dimension_of_one_among_others() -> None:
  rows, columns = Tensor(shape=(1, 1)).squeeze(0).tile((3,)).offsets()
  assert rows.tolist() == [[0, 0, 0]] and columns.tolist() == [[0, 1, 2]]
  rows, columns = Tensor(shape=(1, 1)).squeeze(1).tile((3,)).offsets()
  assert rows.tolist() == [[0, 1, 2]] and columns.tolist() == [[0, 0, 0]]
  batch, i, j = Tensor(shape=(1, 2, 3)).flatten(1, 3).tile((2, 6)).offsets()
  assert (
    batch.tolist() == [[[[0] * 6, [1] * 6]]]
    and i.tolist() == [[[[0, 0, 0, 1, 1, 1]] * 2]]
    and j.tolist() == [[[[0, 1, 2] * 2] * 2]]
  )
