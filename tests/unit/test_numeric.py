"""Functions made of others: their values to the last places, special values, gradients, and what is written in place."""
from __future__ import annotations

import math
from typing import Any, Callable

import numpy as np
import pytest

from ntgrad import Tensor, dtypes, jit, no_grad
from ntgrad.codegen.ir.uop import Ops
from ntgrad.codegen.kernel import structure_text
from ntgrad.errors import ArgumentError, AxisError, CaptureError, DTypeError, GradientError, NtgradError, ShapeError
from ntgrad.schedule import create_schedule
from support.marks import long

Array = np.ndarray[Any, Any]
ONE: dict[str, tuple[Callable[[Array], Any], float]] = {   # numpy's, the greatest error in units of the last place
  "log1p": (np.log1p, 2),
  "expm1": (np.expm1, 2),
  "asin": (np.arcsin, 4),
  "acos": (np.arccos, 4),
  "atan": (np.arctan, 3),
  "asinh": (np.arcsinh, 3),
  "acosh": (np.arccosh, 3),
  "atanh": (np.arctanh, 3),
  "erfc": (np.vectorize(math.erfc, otypes=[float]), 4),
}
TWO: dict[str, Any] = {
  "atan2": np.arctan2, "hypot": np.hypot, "fmod": np.fmod, "copysign": np.copysign, "heaviside": np.heaviside, "fmax": np.fmax,
}
AT = [0.0, 1.0, 1e-4, 0.1, 0.49, 0.5, 1.5, 2.5, 7.0, 20.0, 89.0, 300.0, np.inf]


def ulps(got: Array, want: Array) -> float:
  """The greatest difference, in units of the last place of the right value."""
  assert not (np.isnan(got) ^ np.isnan(want)).any()
  near = np.isfinite(want) & np.isfinite(got)
  assert (got[~near & ~np.isnan(want)] == want[~near & ~np.isnan(want)]).all()
  if not near.any(): return 0.0
  return float(np.max(np.abs(got[near] - want[near]) / np.spacing(np.abs(want[near]).astype(got.dtype), dtype=got.dtype)))


@long
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_last_places(dtype: str) -> None:
  rng = np.random.default_rng(0)
  most = 80 if dtype == "float32" else 600
  x = np.concatenate([2.0 ** rng.uniform(-60, math.log2(most), 4000) * rng.choice([1, -1], 4000), rng.uniform(-1, 1, 4000),
                      1 - 2.0 ** -rng.uniform(1, 20, 100)]).astype(dtype)
  got = {name: getattr(Tensor(x), name)() for name in ONE}
  Tensor.realize(*got.values())
  for name, (reference, allowed) in ONE.items():
    with np.errstate(all="ignore"): want = reference(x.astype(np.longdouble) if name != "erfc" else x)
    small = np.abs(want) < np.finfo(dtype).tiny   # of these the last place is another one
    assert ulps(got[name].numpy()[~small], want[~small].astype(dtype)) <= allowed, name


@long
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_special_values_have_numpys_signs(dtype: str) -> None:
  v = np.array([s * x for x in AT for s in (1, -1)] + [np.nan]).astype(dtype)
  a, b = np.repeat(v, len(v)), np.tile(v, len(v))
  def same(name: str, got: Array, want: Array) -> None:
    ok = (np.signbit(got) == np.signbit(want)) & (np.abs(got - want) <= 8 * np.spacing(np.abs(want)))
    ok |= (got == want) & (np.signbit(got) == np.signbit(want)) | np.isnan(got) & np.isnan(want)
    assert ok.all(), f"{name}: {got[~ok][:5]}, numpy has {want[~ok][:5]}"
  with np.errstate(all="ignore"):
    for name, (reference, _) in ONE.items():
      same(name, getattr(Tensor(v), name)().numpy(), np.asarray(reference(v.astype(float))).astype(dtype))
    for name, of_two in TWO.items(): same(name, getattr(Tensor(a), name)(Tensor(b)).numpy(), of_two(a, b))


@long
def test_inverses_and_gammas() -> None:
  x = np.linspace(-0.999999, 0.999999, 999)
  np.testing.assert_allclose([math.erf(y) for y in Tensor(x).erfinv().tolist()], x, rtol=4e-15)
  tiny = np.array([1 - 1e-12, 1 - 1e-15])   # of these the tail says more
  np.testing.assert_allclose([math.erfc(y) for y in Tensor(tiny).erfinv().tolist()], 1 - tiny, rtol=1e-13)
  assert Tensor([1.0, -1.0]).erfinv().tolist() == [math.inf, -math.inf] and math.isnan(Tensor(2.0).erfinv().item())
  y = np.concatenate([np.linspace(0.01, 40, 700), np.linspace(-6.9, -0.05, 137)])
  want = np.array([math.lgamma(v) for v in y])
  np.testing.assert_allclose(Tensor(y).lgamma().numpy(), want, rtol=1e-14, atol=2e-14)
  single = y.astype("float32")
  np.testing.assert_allclose(Tensor(single).lgamma().numpy(), [math.lgamma(v) for v in single], rtol=1e-6, atol=3e-6)
  assert Tensor([0.0, -1.0, -2.0, math.inf]).lgamma().tolist() == [math.inf] * 4
  euler = 0.5772156649015329
  np.testing.assert_allclose(Tensor(np.array([1.0, 0.5, 10.0])).digamma().numpy(),
                             [-euler, -euler - 2 * math.log(2), 2.2517525890667211], rtol=1e-15)


@pytest.mark.parametrize("name, at, want", [
  ("log1p", 0.5, -1 / 2.25), ("expm1", 0.5, math.exp(0.5)), ("atan", 0.5, -1 / 1.5625), ("asin", 0.5, 0.5 / 0.75 ** 1.5),
  ("acos", 0.5, -0.5 / 0.75 ** 1.5), ("asinh", 0.5, -0.5 / 1.25 ** 1.5), ("atanh", 0.5, 1 / 0.5625),
  ("lgamma", 1.0, math.pi ** 2 / 6),
  ("erfc", 0.5, 2 / math.sqrt(math.pi) * math.exp(-0.25)), ("erfinv", 0.0, 0.0)])
def test_second_derivatives(name: str, at: float, want: float) -> None:
  x = Tensor(np.array([at]), requires_grad=True)
  first, = getattr(x, name)().sum().gradient(x)
  second, = first.sum().gradient(x)
  np.testing.assert_allclose(second.numpy(), want, rtol=1e-12, atol=1e-15)


@long
def test_slopes_are_right_where_formulas_are_not() -> None:
  def slope(fn: Callable[..., Tensor], *at: float) -> list[float]:
    xs = [Tensor([a], requires_grad=True) for a in at]
    return [g.item() for g in fn(*xs).sum().gradient(*xs)]
  assert slope(Tensor.atan, math.inf) == [0.0] and slope(Tensor.log1p, 0.0) == [1.0] and slope(Tensor.sinc, 0.0) == [0.0]
  assert slope(Tensor.hypot, 0.0, 0.0) == slope(Tensor.atan2, 0.0, 0.0) == [0.0, 0.0]
  assert slope(Tensor.logaddexp, -math.inf, -math.inf) == [0.5, 0.5] and slope(Tensor.fmod, 7.5, 2.0) == [1.0, -3.0]
  np.testing.assert_allclose(slope(Tensor.logaddexp, 1000.0, 0.0), [1.0, 0.0])
  x = Tensor([-math.inf, -math.inf, 0.0], requires_grad=True)
  assert x.logcumsumexp(0)[2].gradient(x)[0].tolist() == [0.0, 0.0, 1.0]


def test_a_formula_has_one_node_for_its_slope_and_none_under_no_grad() -> None:
  def nodes(t: Tensor) -> list[Ops]: return [u.op for u in t.lazydata.toposort()]
  x = Tensor([0.5]).realize()
  plain = nodes(x.atan())
  with no_grad(): fewer = nodes(x.atan())
  assert plain.count(Ops.SLOPED) == 1 and fewer.count(Ops.SLOPED) == 0 and len(plain) == len(fewer) + 1
  with no_grad(): want = [structure_text(k.ast) for k in create_schedule([x.atan()])]
  assert [structure_text(k.ast) for k in create_schedule([x.atan()])] == want   # schedules see the value alone


def test_dtypes() -> None:
  i, h = Tensor([1, 2]), Tensor([1.0, 2.0], dtype="float16")
  for name in ("log1p", "atan", "erfc", "lgamma", "deg2rad"):
    assert getattr(i, name)().dtype is dtypes.float32 and getattr(h, name)().dtype is dtypes.float16
  assert i.hypot(2).dtype is dtypes.float32 and h.hypot(2).dtype is dtypes.float16 and h.float_power(2).dtype is dtypes.float64
  assert i.div(2, rounding_mode="trunc").dtype is dtypes.int32 and i.cumprod(0).dtype is dtypes.int64
  assert Tensor([True]).count_nonzero().dtype is dtypes.int64 and i.add(i, alpha=0.5).dtype is dtypes.float32
  with pytest.raises(ArgumentError): Tensor([1], dtype="int8").fmod(1000)


def test_equal_and_close() -> None:
  a = Tensor([1.0, math.nan, math.inf])
  assert a.isclose(a).tolist() == [True, False, True] and a.allclose(a, equal_nan=True) and not a.equal(a)
  assert Tensor([1, 2]).equal(Tensor([1, 2])) and not Tensor([1, 2]).equal(Tensor([[1, 2]])) and Tensor([]).equal(Tensor([]))
  assert Tensor([1], dtype="uint8").isclose(Tensor([3], dtype="uint8"), atol=1).item() is False   # no difference below 0
  with pytest.raises(ArgumentError, match="rtol"): a.isclose(a, rtol=-1.0)
  with pytest.raises(CaptureError):
    step = jit(lambda x: x if x.allclose(x) else -x)
    for _ in range(3): step(Tensor([1.0]).realize())


def test_far_apart() -> None:
  x = Tensor([-1000.0, 0.0, 1000.0, -1000.0])
  assert x.logcumsumexp(0).tolist() == [-1000.0, 0.0, 1000.0, 1000.0]
  long = np.random.default_rng(0).standard_normal((2, 1100)) * 100   # parts of parts
  np.testing.assert_allclose(Tensor(long).logcumsumexp(1).numpy(), np.logaddexp.accumulate(long, 1), rtol=1e-13)
  assert Tensor([3e38, 4e38 / 2]).hypot(Tensor([0.0, 1.0])).tolist() == pytest.approx([3e38, 2e38])


def test_empty_and_single() -> None:
  for shape in ((0,), (3, 0), (0, 3), ()):
    x = Tensor.zeros(*shape)
    assert x.logcumsumexp(-1).shape == x.cumprod(-1).shape == x.cummax(-1)[1].shape == x.atan2(x).shape == shape
    assert x.nansum().item() == 0
    if shape: assert x.diff().shape == (*shape[:-1], max(shape[-1] - 1, 0))
  assert Tensor.zeros(0, 4).bitcast("uint8").shape == (0, 16) and Tensor(3.0).cov().shape == ()


def test_names_stay() -> None:
  x = Tensor.rand(2, 4).named("rows", "columns")
  for t in (x.log1p(), x.hypot(1), x.logcumsumexp(1), x.cummax("columns").indices, x.isclose(x), x.diff(), x.softmin()):
    assert t.names == ("rows", "columns")
  assert x.amax("rows").names == x.nanmean("rows").names == ("columns",) and x.cov().names == (None, None)
  with pytest.raises(ShapeError): x.atan2(x.named("columns", "rows"))


@long
def test_bits_as_other_sizes() -> None:
  for dtype in ("float32", "int16", "float64", "uint8"):
    a = np.arange(24, dtype=np.uint8).reshape(3, 8).view(dtype)
    for other in ("uint8", "int32", "float16", "int64", "float64"):
      np.testing.assert_array_equal(Tensor(a).bitcast(other).numpy().view(np.uint8), a.view(other).view(np.uint8))
  assert Tensor.zeros(2, 4).named("a", "b").bitcast("uint8").names == ("a", None)
  with pytest.raises(ShapeError, match="multiple of 2"): Tensor.zeros(3).bitcast("float64")
  with pytest.raises(ShapeError, match="last dimension"): Tensor(1.0).bitcast("uint8")
  with pytest.raises(DTypeError, match="bool"): Tensor([True]).bitcast("uint8")


def test_in_place() -> None:
  x = Tensor([[1.0, 4.0], [9.0, 16.0]])
  row = x[1]
  assert x.sqrt_() is x and row.tolist() == [3.0, 4.0]
  x.add_(Tensor([1.0, 2.0]), alpha=-2).clamp_(0).masked_fill_(x > 1, 5.0).addcmul_(x, x, value=2)
  assert x.tolist() == [[0.0, 0.0], [3.0, 0.0]]
  assert Tensor([7, -7]).div_(2, rounding_mode="trunc").tolist() == [3, -3]
  assert 0 <= x.uniform_(2, 3).min().item() - 2 < 1 and x.normal_(100, 1).min().item() > 50
  assert Tensor.exp_.__doc__ == "``exp``, written in place; see ``add_``."
  with pytest.raises(DTypeError, match="sqrt_: a result of float32"): Tensor([4]).sqrt_()
  with pytest.raises(ShapeError, match="atan2_"): Tensor([1.0]).atan2_(Tensor([1.0, 2.0]))
  with pytest.raises(GradientError): Tensor([1.0], requires_grad=True).exp_()


def test_rrelu_is_random_in_training_only() -> None:
  x = Tensor.full((1000,), -1.0)
  assert set(x.rrelu(0.25, 0.75).tolist()) == {-0.5}
  with Tensor.train(): y = -x.rrelu(0.25, 0.75).numpy()
  assert 0.25 <= y.min() < 0.3 and 0.7 < y.max() < 0.75 and abs(y.mean() - 0.5) < 0.03
  assert (-x.rrelu(0.25, 0.75, training=True).numpy()).std() > 0.1


@pytest.mark.parametrize("make, error, words", [
  (lambda x: x.div(2, rounding_mode="up"), ArgumentError, "'up'; it takes None, 'trunc' or 'floor'"),
  (lambda x: x.glu(1), ShapeError, "must be even"), (lambda x: x.prelu(Tensor.zeros(2)), ShapeError, "1 for each channel"),
  (lambda x: x.logit(0.7), ArgumentError, "0 to 0.5"), (lambda x: x.rrelu(2.0, 1.0), ArgumentError, "in order"),
  (lambda x: x.softshrink(-1.0), ArgumentError, "not be negative"), (lambda x: x[0].trace(), ShapeError, "it takes a matrix"),
  (lambda x: x.addmm(x, x), ShapeError, "."),
  (lambda x: x.ldexp("a"), ArgumentError, "ldexp"), (lambda x: x.baddbmm(x, x), ShapeError, "3 dimensions"),
  (lambda x: x.cov(fweights=Tensor([1.5] * 3)), DTypeError, "they are ints"), (lambda x: x.diff(-1), ArgumentError, "n = -1"),
  (lambda x: x.cov(aweights=Tensor([1.0])), ShapeError, "one for each"), (lambda x: x.amax(2), AxisError, "amax"),
  (lambda x: x[:, :0].amin(1), ArgumentError, "amin"), (lambda x: x.trapezoid(Tensor([1.0, 2.0])), ShapeError, "points of shape"),
  (lambda x: x.clamp_min(None), NtgradError, "clamp_min")])
def test_refusals(make: Callable[[Tensor], Any], error: type[Exception], words: str) -> None:
  with pytest.raises(error, match=words): make(Tensor.zeros(2, 3))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("device", ["CPU", "NUMPY"])
def test_nextafter(device: str, dtype: type) -> None:
  info = np.finfo(dtype)
  x = np.array([0, -0.0, 1, -1, 1.5, info.max, -info.max, np.inf, -np.inf, info.tiny, info.smallest_subnormal, np.nan], dtype)
  for to in (np.inf, -np.inf, 0, -0.0, 1, np.nan):
    got = Tensor(x, device=device).nextafter(to).numpy()
    with np.errstate(over="ignore", invalid="ignore"): want = np.nextafter(x, dtype(to))
    want[x == to] = to   # as C has it (numpy gives x for float16: the same but for the sign of 0)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))
