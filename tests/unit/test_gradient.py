"""Gradients where functions bend, end or do not depend on their argument: numbers that PyTorch 2.13 gives."""
from __future__ import annotations

import math
from typing import Any, Callable, Sequence

import numpy as np
import pytest

from ntgrad import Device, Tensor, config
from ntgrad.errors import GradientError
from support.marks import long_where

INF, NAN = math.inf, math.nan
T = Tensor


@pytest.fixture(autouse=True, params=["NUMPY", "CPU"])
def _device(request: Any) -> Any:
  Device.DEFAULT = request.param
  yield
  Device.DEFAULT = None


def slopes(fn: Callable[..., Tensor], *xs: Sequence[float]) -> list[Any]:
  """The gradients of sum(fn(..)) that backward leaves, and gradient gives."""
  leaves = [Tensor(np.array(x, np.float64), requires_grad=True) for x in xs]
  loss = fn(*leaves).sum()
  loss.backward()
  found = [t.grad.numpy() for t in leaves]
  for t, g in zip(leaves, found): assert np.array_equal(loss.gradient(t)[0].numpy(), g, equal_nan=True)
  return found


def check(fn: Callable[..., Tensor], xs: Sequence[Sequence[float]], *expected: Sequence[float]) -> None:
  for g, want in zip(slopes(fn, *xs), expected): np.testing.assert_allclose(g, want, rtol=1e-7, atol=1e-300)


def out_of_range(x: Tensor) -> Tensor:
  with config(check_indices=0): return x[Tensor([7])]


FLAT: dict[str, Callable[[Tensor], Tensor]] = {
  "sign": T.sign,
  "floor": T.floor,
  "ceil": T.ceil,
  "round": T.round,
  "trunc": T.trunc,
  "x ** 0": lambda x: x**0,
  "x // 2": lambda x: x // 2,
  "2 // x": lambda x: 2 // x,
  "0 * x": lambda x: x * 0,
  "clamp": lambda x: x.clamp(9, 10),
  "out of range": lambda x: out_of_range(x),
}


@pytest.mark.parametrize("name", FLAT)
def test_what_does_not_change_with_x_has_zeros(name: str) -> None:
  check(FLAT[name], [[-1.5, -0.0, 0.5, 3.0]], [0] * 4)
  x, y = Tensor([1.0, 2.0], requires_grad=True), Tensor([1.0, 2.0], requires_grad=True)
  (FLAT[name](x).sum() + (y * y).sum()).backward()
  assert x.grad.tolist() == [0, 0] and y.grad.tolist() == [2, 4]
  (x * 3).sum().backward()
  assert x.grad.tolist() == [3, 3]


def test_what_goes_through_no_float_has_none() -> None:
  for fn in (lambda x: (x > 0).double(), lambda x: x.int().double(), lambda x: x.argmax().double()):
    with pytest.raises(GradientError): fn(Tensor([0.5], requires_grad=True)).sum().backward()


def test_empty_reductions() -> None:
  for fn in (T.sum, T.prod, T.mean, lambda x: x.reshape(0, 3).sum(0)):
    x = Tensor(np.zeros(0), requires_grad=True)
    out = fn(x).sum()
    out.backward()
    assert x.grad.shape == (0,)
  assert (
    Tensor(np.zeros(0)).sum().item() == 0
    and Tensor(np.zeros(0)).prod().item() == 1
    and math.isnan(Tensor(np.zeros(0)).mean().item())
  )
  scale = Tensor(2.0, requires_grad=True)
  assert (scale.expand(0) * Tensor(np.zeros(0, np.float32))).sum().gradient(scale)[0].item() == 0
  assert scale.expand(0).mean().gradient(scale)[0].item() == 0


E = [-3.0, -1.0, 0.0, 1.0, 3.0, 6.0]
BENDS: dict[str, tuple[Callable[[Tensor], Tensor], list[float]]] = {
  "relu": (T.relu, [0, 0, 0, 1, 1, 1]), "abs": (T.abs, [-1, -1, 0, 1, 1, 1]), "relu6": (T.relu6, [0, 0, 0, 1, 1, 0]),
  "hardtanh": (T.hardtanh, [0, 0, 1, 0, 0, 0]), "clamp": (lambda x: x.clamp(-1, 1), [0, 1, 1, 1, 0, 0]),
  "clamp least": (lambda x: x.clamp(0), [0, 0, 1, 1, 1, 1]),
  "clamp to one": (lambda x: x.clamp(3, 1), [0] * 6), "hardsigmoid": (T.hardsigmoid, [0, 1 / 6, 1 / 6, 1 / 6, 0, 0]),
  "hardswish": (T.hardswish, [0, 1 / 6, 0.5, 5 / 6, 1, 1]), "leaky_relu": (T.leaky_relu, [0.01, 0.01, 0.01, 1, 1, 1]),
  "maximum": (lambda x: x.maximum(1), [0, 0, 0, 0.5, 1, 1]), "minimum": (lambda x: x.minimum(1.0), [1, 1, 1, 0.5, 0, 0]),
  "maximum of a constant": (lambda x: x.maximum(T.zeros(6, dtype="float64")), [0, 0, 0.5, 1, 1, 1]),
  "a constant's maximum": (lambda x: T.zeros(6, dtype="float64").maximum(x), [0, 0, 0.5, 1, 1, 1]),
  "elu": (T.elu, [math.exp(-3), math.exp(-1), 1, 1, 1, 1])}


@pytest.mark.parametrize("name", BENDS)
def test_where_a_function_bends(name: str) -> None:
  fn, want = BENDS[name]
  check(fn, [E], want)


def test_ties_and_limits_of_tensors() -> None:
  check(T.maximum, [[1, 2], [1, 3]], [0.5, 0], [0.5, 1])
  check(T.minimum, [[1, 2], [1, 3]], [0.5, 1], [0.5, 0])
  check(lambda x, a, b: x.clamp(a, b), [[0, 1, 2, 3, 4], [1] * 5, [3] * 5], [0, 1, 1, 1, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 1])
  check(T.max, [[2, 2, 1]], [0.5, 0.5, 0])
  check(T.min, [[2, 1, 1]], [0, 0.5, 0.5])
  assert math.isnan(Tensor([1.0]).clamp(Tensor([NAN]))[0].item()) and math.isnan(Tensor([NAN]).clamp(0, 1).item())


BIG = [-300.0, -20.0, 0.0, 20.0, 300.0]
LARGE: dict[str, tuple[Callable[[Tensor], Tensor], list[float], list[float]]] = {
  "sigmoid": (
    T.sigmoid,
    [5.148200222412014e-131, 2.0611536181902037e-09, 0.5, 0.9999999979388463, 1.0],
    [5.148200222412014e-131, 2.0611536139418496e-09, 0.25, 2.0611536879193953e-09, 0],
  ),
  "softplus": (
    T.softplus,
    [5.148200222412013e-131, 2.061153620314381e-09, math.log(2), 20.000000002061153, 300],
    [5.148200222412013e-131, 2.0611536181902033e-09, 0.5, 0.9999999979388464, 1],
  ),
  "logsigmoid": (
    T.logsigmoid,
    [-300, -20.000000002061153, -math.log(2), -2.061153620314381e-09, -5.148200222412013e-131],
    [1, 0.9999999979388464, 0.5, 2.0611536181902033e-09, 5.148200222412013e-131],
  ),
  "silu": (
    T.silu,
    [-1.5444600667236042e-128, -4.122307236380407e-08, 0, 19.999999958776925, 300],
    [-1.5393118665011924e-128, -3.9161918660646786e-08, 0.5, 1.0000000391619202, 1],
  ),
  "mish": (
    T.mish,
    [-1.544460066723604e-128, -4.122307240628762e-08, 0, 20, 300],
    [-1.5393118665011924e-128, -3.916191874348969e-08, 0.6, 1, 1],
  ),
  "gelu": (T.gelu, [0, 0, 0, 20, 300], [0, 0, 0.5, 1, 1]),
  "tanh": (T.tanh, [-1, -1, 0, 1, 1], [0, 0, 1, 0, 0]),
  "exact gelu": (lambda x: x.gelu("none"), [0, 0, 0, 20, 300], [0, -1.1041896724319527e-86, 0.5, 1, 1]),
  "softsign": (T.softsign, [-300 / 301, -20 / 21, 0, 20 / 21, 300 / 301], [1 / 301**2, 1 / 21**2, 1, 1 / 21**2, 1 / 301**2]),
  "elu": (T.elu, [-1, -0.9999999979388464, 0, 20, 300], [5.148200222412013e-131, 2.061153622438558e-09, 1, 1, 1]),
}


@long_where(lambda _device: _device != "NUMPY")
@pytest.mark.parametrize("name", LARGE)
def test_activations_of_large_values(name: str) -> None:
  fn, values, gradient = LARGE[name]
  np.testing.assert_allclose(fn(Tensor(np.array(BIG))).numpy(), values, rtol=1e-12, atol=1e-300)
  check(fn, [BIG], gradient)
  x = Tensor(np.array([-60000.0, -3000.0, 3000.0, 60000.0]), requires_grad=True, dtype="float16")
  for loss in (fn(x).sum(), fn(x).cast("float32").log_softmax(0).sum()): assert np.isfinite(loss.gradient(x)[0].numpy()).all()


@pytest.mark.parametrize(
  "base, power, by_base, by_power",
  [
    (0, -1, -INF, -INF),
    (0, 0, 0, 0),
    (0, 0.5, INF, 0),
    (0, 1, 1, 0),
    (0, 2, 0, 0),
    (0, 3, 0, 0),
    (-1, 0, 0, NAN),
    (-1, 2, -2, NAN),
    (-1, 0.5, NAN, NAN),
    (2, -1, -0.25, 0.34657359027997264),
    (2, 0, 0, 0.6931471805599453),
    (2, 3, 12, 5.545177444479562),
  ],
)
def test_powers(base: float, power: float, by_base: float, by_power: float) -> None:
  check(T.pow, [[base], [power]], [by_base], [by_power])
  check(lambda x: x ** power, [[base]], [by_base])
  check(lambda n: base ** n, [[power]], [by_power])


def test_roots_and_logarithms_of_zero() -> None:
  for fn, want in ((T.sqrt, INF), (T.rsqrt, -INF), (T.log, INF), (T.reciprocal, -INF)): check(fn, [[0.0]], [want])
  assert slopes(lambda x: x ** 0, [NAN, INF])[0].tolist() == [0, 0]


@pytest.mark.parametrize(
  "p, one, two",
  [
    (2, [1, 0], [0.7071067811865476, -0.7071067811865476]),
    (1, [1, 0], [1, -1]),
    (3, [1, 0], [0.6299605249474367, -0.6299605249474367]),
    (0.5, [1, 0], [2, -2]),
    (1.5, [1, 0], [0.7937005259840998, -0.7937005259840998]),
    (INF, [1, 0], [0.5, -0.5]),
    (-INF, [0, 0], [0.5, -0.5]),
    (-1, [0, 0], [0.25, -0.25]),
  ],
)
def test_norms(p: float, one: list[float], two: list[float]) -> None:
  for x, want in (([0, 0], [0, 0]), ([3, 0], one), ([3, -3], two)): check(lambda t: t.norm(p), [x], want)


def test_statistics() -> None:
  check(T.prod, [[0, 2, 3]], [6, 0, 0])
  check(T.prod, [[0, 0, 3]], [0, 0, 0])
  check(T.std, [[2]], [NAN])
  check(T.var, [[2]], [NAN])
  check(T.std, [[2, 2]], [0, 0])
  check(lambda x: x.std(correction=0), [[2]], [0])
  check(lambda x: x.logsumexp(0), [[-INF, 1]], [0, 1])
  check(lambda x: x.softmax(0)[0], [[-INF, 1]], [0, 0])


def test_remainders() -> None:
  check(lambda a, b: a % b, [[5, -5, 6], [3, 3, -4]], [1, 1, 1], [-1, 2, 2])
  check(lambda a: a % 3, [[5, -5]], [1, 1])
  check(lambda b: 7 % b, [[3, -4]], [-2, 2])


def test_hyperbolic_functions() -> None:
  x = [-90.0, -1.0, -0.3, 0.0, 0.49, 0.51, 90.0]
  check(T.sinh, [x], np.cosh(x).tolist())
  check(T.cosh, [x], np.sinh(x).tolist())


def test_binary_cross_entropy_of_certain_probabilities() -> None:
  y = Tensor(np.array([0.0, 1, 1, 0]))
  assert Tensor(np.array([0.0, 1, 0, 1])).binary_crossentropy(y, "none").tolist() == [0, 0, 100, 100]
  g, = slopes(lambda x: x.binary_crossentropy(y, "sum"), [0, 1, 0, 1])
  assert g.tolist() == [1, -1, 0, 0]
  assert np.isnan(Tensor([-0.1, NAN]).binary_crossentropy(Tensor([1.0, 0.0]), "none").numpy()).all()


def test_a_weight_that_is_used_many_times() -> None:
  """Its gradients are one product, and those of slices that share nothing one array: sums of as many terms were slow."""
  rng = np.random.default_rng(0)
  data, weight = rng.standard_normal((4, 12, 8)), rng.standard_normal((8, 8)) * 0.3
  def last(x: Any, w: Any) -> Any:
    h = x[:, 0]
    for t in range(1, 12): h = (h @ w + x[:, t]).tanh()
    return (h * h).sum()
  x, w = Tensor(data, requires_grad=True), Tensor(weight, requires_grad=True)
  last(x, w).backward()
  def value(a: Any, b: Any) -> float: return float(last(Tensor(a), Tensor(b)).item())
  for t, at in ((x, (1, 3, 2)), (x, (3, 0, 7)), (x, (0, 11, 0)), (w, (2, 5)), (w, (7, 7))):
    given = [data.copy(), weight.copy()]
    bumped = given[0 if t is x else 1]
    bumped[at] += 1e-6
    up = value(*given)
    bumped[at] -= 2e-6
    assert t.grad.numpy()[at] == pytest.approx((up - value(*given)) / 2e-6, rel=1e-5, abs=1e-7)


def test_slices_that_overlap_or_leave_gaps() -> None:
  x = Tensor(np.arange(40.0), requires_grad=True)
  sum(((i + 1) * x[3 * i:3 * i + 2]).sum() for i in range(10)).backward()
  want = np.zeros(40)
  for i in range(10): want[3 * i:3 * i + 2] = i + 1
  np.testing.assert_array_equal(x.grad.numpy(), want)
  x = Tensor(np.arange(40.0), requires_grad=True)
  sum(((i + 1) * x[3 * i:3 * i + 5]).sum() for i in range(10)).backward()
  want = np.zeros(40)
  for i in range(10): want[3 * i:3 * i + 5] += i + 1
  np.testing.assert_array_equal(x.grad.numpy(), want)


def test_functions_of_others_at_what_is_no_leaf() -> None:
  x = Tensor([3.0, 2.0])
  np.testing.assert_allclose(x.acosh().sum().gradient(x)[0].numpy(), (x.numpy() ** 2 - 1) ** -0.5, 1e-6)
  y = Tensor([-5.0, -1.5, -0.5, 1e20])   # beneath 1 the value is NaN, the slope that of its formula, as in PyTorch
  np.testing.assert_allclose(y.acosh().sum().gradient(y)[0].numpy(), [24 ** -0.5, 1.25 ** -0.5, np.nan, 1e-20], 1e-6)


@pytest.mark.parametrize("x", [Tensor(3.0), Tensor.ones(2), Tensor.full((2, 2), 3.0)[0]], ids=["number", "ones", "view"])
def test_a_number_cannot_be_told_from_others(x: Tensor) -> None:
  # a number is one node of the graph with every other of its value: x * 3 would have the gradient of x * x
  with pytest.raises(GradientError, match=r"target 0 of shape .* is the number [13].0, .* requires_grad=True"):
    (x * 3.0 + 1.0).sum().gradient(x)
  y = Tensor(3.0, requires_grad=True)
  slope, = (y * 3.0 + y ** 3).gradient(y)
  assert slope.gradient(y)[0].item() == 18 and slope.item() == 30


def test_a_computed_value_of_which_no_graph_is_kept_is_refused() -> None:
  x, y = Tensor([2.0, 3.0]), Tensor([1.0, 1.0])
  first, = (x ** 3).sum().gradient(x)
  assert first.sum().gradient(x)[0].tolist() == [12, 18] and first.tolist() == [12, 27]
  for made in (first[0], first[1:].reshape(1, 1)):
    with pytest.raises(GradientError, match=r"has been computed, and what of is not kept .* before it is realised"):
      made.gradient(x)
  assert y.sum().gradient(x)[0].tolist() == [0, 0]
  x.requires_grad = True
  first, = (x ** 3).sum().gradient(x)
  assert first.tolist() == [12, 27] and first.sum().gradient(x)[0].tolist() == [12, 18]
