"""Every Tensor operation against numpy, and every gradient against finite differences, on the level of the graph (no kernels)."""

from __future__ import annotations

import math
import os
import sys
from typing import Any, Callable

import ml_dtypes
import numpy as np
import pytest

from ntgrad import Device, Tensor, dtypes, no_grad
from ntgrad.codegen.ir.uop import Ops, toposort
from ntgrad.graph.recipes import written_out

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from graph_eval import evaluate, value  # noqa: E402

from support.reference import ints_first  # noqa: E402

rng = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _on_numpy() -> Any:
  Device.DEFAULT = "NUMPY"
  yield
  Device.DEFAULT = None


def same(t: Tensor, expected: Any, dtype: Any = None, tol: float = 1e-6) -> None:
  got, expected = value(t), np.asarray(expected)
  assert got.shape == t.shape == expected.shape, (got.shape, expected.shape)
  if dtype is not None:
    assert t.dtype is dtype, t.dtype
  if got.dtype.kind in "biu" and expected.dtype.kind in "biu":
    np.testing.assert_array_equal(got, expected)
  else:
    np.testing.assert_allclose(got.astype(np.float64), expected.astype(np.float64), rtol=tol, atol=tol)


def check_gradient(fn: Callable[..., Tensor], *arrays: np.ndarray, tol: float = 1e-5) -> None:
  """The gradient of sum(fn(..) * fixed weights) against central differences, float64."""
  xs = [Tensor(a.astype(np.float64), requires_grad=True) for a in arrays]
  nodes = [x.lazydata for x in xs]
  out = fn(*xs)
  weights = np.random.default_rng(1).standard_normal(out.shape)
  loss = (out.double() * Tensor(weights)).sum()
  found = [value(g) for g in loss.gradient(*xs)]
  loss.backward()
  for x, g, a in zip(xs, found, arrays):
    np.testing.assert_allclose(value(x.grad), g, rtol=1e-12)
    assert g.shape == a.shape
  eps = 1e-6
  for k, a in enumerate(arrays):
    a = a.astype(np.float64)
    for at in np.ndindex(*a.shape):
      sides = []
      for sign in (1, -1):
        moved = a.copy()
        moved[at] += sign * eps
        sides.append(float(evaluate(loss.lazydata, feed={nodes[k]: moved})[0]))
      numeric = (sides[0] - sides[1]) / (2 * eps)
      assert abs(numeric - found[k][at]) <= tol * max(1, abs(numeric)), (k, at, numeric, found[k][at])


A = rng.standard_normal((3, 4))
B = rng.standard_normal((3, 4))
POS = np.abs(A) + 0.5

# ---- elementwise

UNARY: list[tuple[str, Callable[[Any], Any], Callable[[Any], Any], np.ndarray]] = [
  ("neg", lambda t: -t, lambda a: -a, A),
  ("abs", abs, np.abs, A),
  ("exp", lambda t: t.exp(), np.exp, A),
  ("exp2", lambda t: t.exp2(), np.exp2, A),
  ("log", lambda t: t.log(), np.log, POS),
  ("log2", lambda t: t.log2(), np.log2, POS),
  ("log10", lambda t: t.log10(), np.log10, POS),
  ("sqrt", lambda t: t.sqrt(), np.sqrt, POS),
  ("rsqrt", lambda t: t.rsqrt(), lambda a: 1 / np.sqrt(a), POS),
  ("reciprocal", lambda t: t.reciprocal(), lambda a: 1 / a, POS),
  ("sin", lambda t: t.sin(), np.sin, A),
  ("cos", lambda t: t.cos(), np.cos, A),
  ("tan", lambda t: t.tan(), np.tan, A * 0.5),
  ("tanh", lambda t: t.tanh(), np.tanh, A),
  ("sinh", lambda t: t.sinh(), np.sinh, A),
  ("cosh", lambda t: t.cosh(), np.cosh, A),
  ("erf", lambda t: t.erf(), np.vectorize(math.erf), A),
  ("sigmoid", lambda t: t.sigmoid(), lambda a: 1 / (1 + np.exp(-a)), A),
  ("logsigmoid", lambda t: t.logsigmoid(), lambda a: -np.log1p(np.exp(-a)), A),
  ("relu", lambda t: t.relu(), lambda a: np.maximum(a, 0), A),
  ("leaky_relu", lambda t: t.leaky_relu(0.1), lambda a: np.where(a > 0, a, 0.1 * a), A),
  ("gelu", lambda t: t.gelu(), lambda a: 0.5 * a * (1 + np.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3))), A),
  ("gelu exact", lambda t: t.gelu("none"), lambda a: 0.5 * a * (1 + np.vectorize(math.erf)(a / math.sqrt(2))), A),
  ("quick_gelu", lambda t: t.quick_gelu(), lambda a: a / (1 + np.exp(-1.702 * a)), A),
  ("silu", lambda t: t.silu(), lambda a: a / (1 + np.exp(-a)), A),
  ("elu", lambda t: t.elu(), lambda a: np.where(a > 0, a, np.exp(a) - 1), A),
  ("celu", lambda t: t.celu(2), lambda a: np.where(a > 0, a, 2 * (np.exp(a / 2) - 1)), A),
  ("selu", lambda t: t.selu(), lambda a: 1.0507009873554805 * np.where(a > 0, a, 1.6732632423543772 * (np.exp(a) - 1)), A),
  ("softplus", lambda t: t.softplus(), lambda a: np.log1p(np.exp(a)), A),
  ("softplus 2", lambda t: t.softplus(2), lambda a: np.log1p(np.exp(2 * a)) / 2, A),
  ("softsign", lambda t: t.softsign(), lambda a: a / (1 + np.abs(a)), A),
  ("mish", lambda t: t.mish(), lambda a: a * np.tanh(np.log1p(np.exp(a))), A),
  ("hardswish", lambda t: t.hardswish(), lambda a: a * np.clip(a + 3, 0, 6) / 6, A),
  ("hardsigmoid", lambda t: t.hardsigmoid(), lambda a: np.clip(a + 3, 0, 6) / 6, A),
  ("relu6", lambda t: (t * 5).relu6(), lambda a: np.clip(a * 5, 0, 6), A),
  ("hardtanh", lambda t: t.hardtanh(), lambda a: np.clip(a, -1, 1), A),
  ("clamp", lambda t: t.clamp(-0.5, 0.6), lambda a: np.clip(a, -0.5, 0.6), A),
  ("clip", lambda t: t.clip(max_=0.3), lambda a: np.minimum(a, 0.3), A),
  ("square", lambda t: t.square(), np.square, A),
  ("pow 2", lambda t: t**2, lambda a: a**2, A),
  ("pow 3", lambda t: t**3, lambda a: a**3, A),
  ("pow -1", lambda t: t**-1, lambda a: 1 / a, POS),
  ("pow -2", lambda t: t**-2, lambda a: a**-2, POS),
  ("pow half", lambda t: t**0.5, np.sqrt, POS),
  ("pow 2.5", lambda t: t**2.5, lambda a: a**2.5, POS),
  ("pow 7 of negatives", lambda t: t**7, lambda a: a**7, A),
  ("pow of a number", lambda t: 2.0**t, lambda a: 2.0**a, A),
  ("radd", lambda t: 1 + t, lambda a: 1 + a, A),
  ("rsub", lambda t: 1 - t, lambda a: 1 - a, A),
  ("rdiv", lambda t: 1 / t, lambda a: 1 / a, POS),
  ("half", lambda t: t / 2, lambda a: a / 2, A),
  ("lerp", lambda t: t.lerp(t * 2, 0.3), lambda a: a * 1.3, A),
]


@pytest.mark.parametrize("name,fn,reference,data", UNARY, ids=[u[0] for u in UNARY])
def test_unary(name: str, fn: Any, reference: Any, data: np.ndarray) -> None:
  same(fn(Tensor(data)), reference(data), dtypes.float64, 1e-12)
  same(fn(Tensor(data.astype(np.float32))), reference(data), dtypes.float32, 2e-5)
  check_gradient(fn, data[:2, :3])


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round", "sign"])
def test_rounding(name: str) -> None:
  data = np.array([-2.5, -1.5, -0.5, 0.0, 0.5, 1.5, 2.5, 1.2, -1.7, np.inf, np.nan])
  same(getattr(Tensor(data), name)(), getattr(np, {"round": "rint"}.get(name, name))(data))
  same(getattr(Tensor([1, -2, 3]), name)(), getattr(np, {"round": "rint"}.get(name, name))(np.array([1, -2, 3])), dtypes.int32)


def test_classification() -> None:
  data = np.array([0.0, -1.0, np.inf, -np.inf, np.nan])
  for name in ("isnan", "isinf", "isfinite"):
    same(getattr(Tensor(data), name)(), getattr(np, name)(data), dtypes.bool)
    same(getattr(Tensor([1, 2]), name)(), getattr(np, name)(np.array([1, 2])), dtypes.bool)


BINARY = [
  ("add", lambda a, b: a + b),
  ("sub", lambda a, b: a - b),
  ("mul", lambda a, b: a * b),
  ("div", lambda a, b: a / b),
  ("pow", lambda a, b: abs(a) ** b),
]


@pytest.mark.parametrize("name,fn", BINARY, ids=[b[0] for b in BINARY])
@pytest.mark.parametrize("shapes", [((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((), (2, 2)), ((2, 1, 2), (3, 1))])
def test_binary(name: str, fn: Any, shapes: Any) -> None:
  a, b = np.asarray(rng.standard_normal(shapes[0]) + 0.1), np.asarray(rng.standard_normal(shapes[1]) + 3)
  same(fn(Tensor(a), Tensor(b)), fn(a, b), dtypes.float64, 1e-12)
  check_gradient(fn, a, b)


def test_maximum_minimum() -> None:
  same(Tensor(A).maximum(Tensor(B)), np.maximum(A, B))
  same(Tensor(A).minimum(Tensor(B)), np.minimum(A, B))
  check_gradient(lambda a, b: a.maximum(b), A, B)
  check_gradient(lambda a, b: a.minimum(b), A, B)
  x = Tensor([1.0, 2.0], requires_grad=True)
  x.maximum(x.detach()).sum().backward()  # equal ones share
  same(x.grad, [0.5, 0.5])
  x = Tensor([0.0, -1.0, 2.0], requires_grad=True)
  x.relu().sum().backward()
  same(x.grad, [0.0, 0.0, 1.0])


@pytest.mark.parametrize("fn", [lambda a, b: a // b, lambda a, b: a % b])
def test_floor_division(fn: Any) -> None:
  a, b = np.array([-7, 7, -7, 7, 0]), np.array([2, -2, -2, 2, 3])
  for dtype in (np.int32, np.int64, np.int8):
    same(fn(Tensor(a.astype(dtype)), Tensor(b.astype(dtype))), fn(a.astype(dtype), b.astype(dtype)), dtypes.of(dtype))
  same(fn(Tensor(a.astype(np.float32)), Tensor(b.astype(np.float32))), fn(a, b).astype(np.float32), dtypes.float32)
  same(fn(Tensor(a.astype(np.int32)), 3), fn(a, 3), dtypes.int32)
  same(fn(Tensor(a.astype(np.int32)), 2.5), fn(a, 2.5), dtypes.float32)
  same(fn(20, Tensor(b.astype(np.int32))), fn(20, b), dtypes.int32)


def test_bits() -> None:
  a, b = np.array([5, -3, 12], np.int32), np.array([3, 6, -1], np.int32)
  for fn in (lambda x, y: x & y, lambda x, y: x | y, lambda x, y: x ^ y):
    same(fn(Tensor(a), Tensor(b)), fn(a, b), dtypes.int32)
  same(~Tensor(a), ~a)
  same(Tensor(a) << 2, a << 2)
  same(Tensor(a) >> 1, a >> 1)
  same(~Tensor([True, False]), [False, True], dtypes.bool)
  same(Tensor([True, False]) + Tensor([True, False]), [True, False], dtypes.bool)
  same(Tensor([True, False]) * Tensor([True, True]), [True, False], dtypes.bool)
  same(Tensor([0.0, 2.0]).logical_not(), [True, False], dtypes.bool)
  same(Tensor([1.0, -0.0]).bitcast(dtypes.uint32), [0x3F800000, 0x80000000], dtypes.uint32)


def test_comparisons() -> None:
  a, b = np.array([1.0, 2.0, np.nan]), np.array([1.0, 3.0, np.nan])
  for fn in (
    lambda x, y: x < y,
    lambda x, y: x <= y,
    lambda x, y: x > y,
    lambda x, y: x >= y,
    lambda x, y: x == y,
    lambda x, y: x != y,
  ):
    same(fn(Tensor(a), Tensor(b)), fn(a, b), dtypes.bool)
    same(fn(Tensor(a), 2), fn(a, 2), dtypes.bool)
    same(fn(2, Tensor(a)), fn(2, a), dtypes.bool)
    same(fn(a, Tensor(b)), fn(a, b), dtypes.bool)


def test_where() -> None:
  mask = A > 0
  same(Tensor(mask).where(Tensor(A), Tensor(B)), np.where(mask, A, B))
  same(Tensor(mask).where(1, 0), np.where(mask, 1, 0), dtypes.int32)
  same(Tensor(mask).where(Tensor([1, 2, 3, 4]), 0.5), np.where(mask, [1, 2, 3, 4], 0.5), dtypes.float32)
  same(Tensor(mask).where(Tensor(A).half(), 0.5).dtype.itemsize * Tensor(1), 2)
  same(Tensor(A).masked_fill(Tensor(mask), -1), np.where(mask, -1, A))
  check_gradient(lambda a, b: (a > 0).where(a, b), A, B[:1])


def test_promotion() -> None:
  def of(x: Any) -> Any:
    return x.dtype

  i8, i32, u8, f16, f32, bf, boolean = (
    Tensor.ones(2, dtype=d) for d in ("int8", "int32", "uint8", "float16", "float32", "bfloat16", "bool")
  )
  assert (
    of(i8 + i32) is dtypes.int32
    and of(i8 + u8) is dtypes.int16
    and of(i32 + f16) is dtypes.float16
    and of(f16 + bf) is dtypes.float32
  )
  assert (
    of(i32 * 0.5) is dtypes.float32
    and of(f16 * 0.5) is dtypes.float16
    and of(f16 * 2) is dtypes.float16
    and of(i8 + 1) is dtypes.int8
  )
  assert (
    of(boolean + 1) is dtypes.int32
    and of(boolean * 1.0) is dtypes.float32
    and of(i32 / i32) is dtypes.float32
    and of(f16 / 2) is dtypes.float16
  )
  assert (
    of(f32 + np.float64(2)) is dtypes.float32
    and of(i32.exp()) is dtypes.float32
    and of(i32**2) is dtypes.int32
    and of(i32**0.5) is dtypes.float32
  )


# ---- movement

MOVES: list[tuple[str, Callable[[Any], Any], Callable[[Any], Any], tuple[int, ...]]] = [
  ("reshape", lambda t: t.reshape(4, -1), lambda a: a.reshape(4, -1), (2, 6)),
  ("view", lambda t: t.view((3, 4)), lambda a: a.reshape(3, 4), (2, 6)),
  ("flatten", lambda t: t.flatten(1), lambda a: a.reshape(2, 12), (2, 3, 4)),
  ("unflatten", lambda t: t.unflatten(1, (2, -1)), lambda a: a.reshape(2, 2, 3), (2, 6)),
  ("permute", lambda t: t.permute(2, 0, 1), lambda a: a.transpose(2, 0, 1), (2, 3, 4)),
  ("transpose", lambda t: t.transpose(0, -1), lambda a: a.swapaxes(0, -1), (2, 3, 4)),
  ("T", lambda t: t.T, lambda a: a.T, (2, 3)),
  ("mT", lambda t: t.mT, lambda a: a.swapaxes(-1, -2), (2, 3, 4)),
  ("expand", lambda t: t.expand(4, 2, 3), lambda a: np.broadcast_to(a, (4, 2, 3)), (2, 1)),
  ("expand -1", lambda t: t.expand(-1, 5), lambda a: np.broadcast_to(a, (2, 5)), (2, 1)),
  ("pad", lambda t: t.pad(((1, 2), None)), lambda a: np.pad(a, ((1, 2), (0, 0))), (2, 3)),
  ("pad torch", lambda t: t.pad((1, 2, 0, 1)), lambda a: np.pad(a, ((0, 1), (1, 2))), (2, 3)),
  ("pad value", lambda t: t.pad((1, 0), value=7), lambda a: np.pad(a, ((0, 0), (1, 0)), constant_values=7), (2, 3)),
  ("pad negative", lambda t: t.pad((-1, 2)), lambda a: np.pad(a[:, 1:], ((0, 0), (0, 2))), (2, 3)),
  ("pad reflect", lambda t: t.pad((2, 1), mode="reflect"), lambda a: np.pad(a, ((0, 0), (2, 1)), mode="reflect"), (2, 4)),
  ("pad replicate", lambda t: t.pad((2, 1), mode="replicate"), lambda a: np.pad(a, ((0, 0), (2, 1)), mode="edge"), (2, 4)),
  ("pad circular", lambda t: t.pad((2, 1), mode="circular"), lambda a: np.pad(a, ((0, 0), (2, 1)), mode="wrap"), (2, 4)),
  ("shrink", lambda t: t.shrink(((1, 2), None)), lambda a: a[1:2], (3, 2)),
  ("flip", lambda t: t.flip(0, 1), lambda a: a[::-1, ::-1], (2, 3)),
  ("squeeze", lambda t: t.squeeze(1), lambda a: a[:, 0], (2, 1, 3)),
  ("unsqueeze", lambda t: t.unsqueeze(-1), lambda a: a[..., None], (2, 3)),
  ("repeat", lambda t: t.repeat(2, 1, 3), lambda a: np.tile(a, (2, 1, 3)), (2, 2)),
  ("repeat_interleave", lambda t: t.repeat_interleave(2, 1), lambda a: a.repeat(2, 1), (2, 3)),
  ("repeat_interleave flat", lambda t: t.repeat_interleave(2), lambda a: a.repeat(2), (2, 3)),
  ("unfold", lambda t: t.unfold(1, 3, 2), lambda a: np.stack([a[:, i : i + 3] for i in (0, 2, 4)], 1), (2, 7)),
  ("split", lambda t: t.split((1, 3), 1)[1] * 2, lambda a: a[:, 1:] * 2, (2, 4)),
  ("chunk", lambda t: t.chunk(2, 1)[1] * 2, lambda a: a[:, 3:] * 2, (2, 5)),
  ("cat", lambda t: t.cat(t * 2, dim=1), lambda a: np.concatenate([a, a * 2], 1), (2, 3)),
  ("stack", lambda t: Tensor.stack(t, t * 2, dim=-1), lambda a: np.stack([a, a * 2], -1), (2, 3)),
  ("roll", lambda t: t.roll((1, -1), (0, 1)), lambda a: np.roll(a, (1, -1), (0, 1)), (3, 4)),
  ("diag", lambda t: t.diag(), np.diag, (4,)),
  ("diagonal", lambda t: t.diagonal(), np.diag, (3, 3)),
  ("tril", lambda t: t.tril(1), lambda a: np.tril(a, 1), (3, 4)),
  ("triu", lambda t: t.triu(-1), lambda a: np.triu(a, -1), (4, 3)),
  (
    "windows",
    lambda t: t.windows((2, 2), 1, (1, 2)),
    lambda a: np.stack([np.stack([a[:, i : i + 3, j : j + 2] for j in (0, 2)], -1) for i in (0, 1)], -2),
    (2, 4, 4),
  ),
  ("slice", lambda t: t[1:, ::2], lambda a: a[1:, ::2], (3, 5)),
  ("slice back", lambda t: t[::-1, 4:0:-3], lambda a: a[::-1, 4:0:-3], (3, 6)),
  ("int", lambda t: t[-1, None, ..., 0], lambda a: a[-1, None, ..., 0], (2, 3, 4)),
]


@pytest.mark.parametrize("name,fn,reference,shape", MOVES, ids=[m[0] for m in MOVES])
def test_movement(name: str, fn: Any, reference: Any, shape: tuple[int, ...]) -> None:
  data = rng.standard_normal(shape)
  same(fn(Tensor(data)), reference(data), dtypes.float64)
  if name != "pad value":
    same(fn(Tensor((data * 10).astype(np.int32))), reference((data * 10).astype(np.int32)), dtypes.int32)
  check_gradient(fn, data)


def test_movement_merges() -> None:
  x = Tensor(rng.standard_normal((2, 3, 4)))
  base = x.lazydata
  for y in (
    x.reshape(2, 3, 4),
    x.permute(0, 1, 2),
    x.expand(2, 3, 4),
    x.pad(((0, 0),) * 3),
    x[:],
    x.shrink((None,) * 3),
    x.reshape(6, 4).reshape(2, 3, 4),
    x.permute(2, 0, 1).permute(1, 2, 0),
  ):
    assert y.lazydata is base
  assert x.reshape(6, 4).reshape(24).lazydata.src[0] is base
  y = x[1:][:, 1:]
  assert y.lazydata.op is Ops.SHRINK and y.lazydata.src[0] is base


def test_meshgrid() -> None:
  a, b = np.arange(3), np.arange(4)
  for indexing in ("ij", "xy"):
    for got, expected in zip(Tensor(a).meshgrid(Tensor(b), indexing=indexing), np.meshgrid(a, b, indexing=indexing)):
      same(got, expected)


# ---- reductions

X3 = rng.standard_normal((2, 3, 4))


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (1,), ()])
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "max", "min", "var", "std"])
def test_reductions(name: str, axis: Any, keepdim: bool) -> None:
  if name in ("var", "std") and axis == ():
    return
  reference = {"max": np.max, "min": np.min}.get(name, getattr(np, name))
  extra = {"ddof": 1} if name in ("var", "std") else {}
  same(
    getattr(Tensor(X3), name)(axis=axis, keepdim=keepdim),
    reference(X3, axis=axis, keepdims=keepdim, **extra),
    dtypes.float64,
    1e-12,
  )
  check_gradient(lambda t: getattr(t, name)(axis=axis, keepdim=keepdim), X3)


def test_reduction_dtypes() -> None:
  same(Tensor([True, True]).sum(), 2, dtypes.int64)
  same(Tensor(np.array([200, 100], np.uint8)).sum(), 300, dtypes.int64)
  same(Tensor(np.array([100, 100], np.int8)).sum(), 200, dtypes.int64)
  same(Tensor(np.array([2**32 - 1, 5], np.uint32)).sum(), 2**32 + 4, dtypes.int64)
  same(Tensor(np.array([2**63, 5], np.uint64)).sum(), 2**63 + 5, dtypes.uint64)
  same(Tensor([2**30, 2**30, 2**30]).sum(dtype="int32"), 3 * 2**30 - 2**32, dtypes.int32)   # the dtype that is given wraps
  same(Tensor(np.full(4096, 1.0, np.float16)).sum(), 4096, dtypes.float16)
  same(Tensor(np.full(3, 0.1, ml_dtypes.bfloat16)).mean(), 0.1, dtypes.bfloat16, 1e-2)
  same(Tensor([1, 2]).mean(), 1.5, dtypes.float32)
  same(Tensor([1, 2]).sum(dtype="float64"), 3, dtypes.float64)
  same(Tensor.ones(2, 0).sum(), 0.0)
  same(Tensor.ones(2, 0).prod(1), [1.0, 1.0])
  x = Tensor.ones(4, 1)
  assert x.sum(1, keepdim=True).lazydata is x.lazydata


def test_extreme_shares_between_ties() -> None:
  x = Tensor([[1.0, 3.0, 3.0], [2.0, 1.0, 0.0]], requires_grad=True)
  x.max(axis=1).sum().backward()
  same(x.grad, [[0, 0.5, 0.5], [1, 0, 0]])
  same(Tensor([1.0, np.nan]).max(), np.nan)


def test_argmax() -> None:
  a = np.array([[1, 3, 3], [5, 2, 5]])
  for t in (Tensor(a), Tensor(a.astype(np.float32)), Tensor(a.astype(np.uint8))):
    same(t.argmax(), 3, dtypes.int32)
    same(t.argmax(1), [1, 0], dtypes.int32)
    same(t.argmin(0, keepdim=True), a.argmin(0)[None])
  same(Tensor([1.0, np.nan, 3.0]).argmax(), 1)
  same(Tensor([[False, True], [False, False]]).argmax(1), [1, 0])


def test_any_all() -> None:
  a = np.array([[0, 1], [0, 0], [1, 2]])
  for axis in (None, 0, 1):
    same(Tensor(a).any(axis), a.any(axis), dtypes.bool)
    same(Tensor(a).all(axis), a.all(axis), dtypes.bool)
  same(Tensor([[True, False]]).max(axis=1), [True])


def _softmax(a: np.ndarray, axis: int) -> np.ndarray:
  e = np.exp(a - a.max(axis, keepdims=True))
  return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax(axis: int) -> None:
  same(Tensor(X3).softmax(axis), _softmax(X3, axis), dtypes.float64, 1e-12)
  same(Tensor(X3).log_softmax(axis), np.log(_softmax(X3, axis)), dtypes.float64, 1e-12)
  same(Tensor(X3).logsumexp(axis), np.log(np.exp(X3).sum(axis)), dtypes.float64, 1e-12)
  same(Tensor(X3).half().softmax(axis), _softmax(X3.astype(np.float16).astype(np.float64), axis), dtypes.float16, 1e-3)
  check_gradient(lambda t: t.softmax(axis), X3)
  check_gradient(lambda t: t.log_softmax(axis), X3)
  check_gradient(lambda t: t.logsumexp(axis), X3)
  same(Tensor([-np.inf, -np.inf]).logsumexp(), -np.inf)


def test_softmax_is_one_chain_of_kept_dims() -> None:
  ops = [u.op for u in Tensor(X3).softmax(-1).lazydata.toposort()]
  assert Ops.RESHAPE not in ops and ops.count(Ops.REDUCE_AXIS) == 2


@pytest.mark.parametrize("n", [1, 5, 300])
def test_cumsum(n: int) -> None:
  a = rng.standard_normal((2, n))
  same(Tensor(a).cumsum(1), a.cumsum(1), dtypes.float64, 1e-9)
  same(Tensor(a.T.copy()).cumsum(0), a.T.cumsum(0), dtypes.float64, 1e-9)
  same(Tensor(np.ones((2, n), np.int8)).cumsum(1), np.ones((2, n), np.int64).cumsum(1), dtypes.int64)
  if n < 10:
    check_gradient(lambda t: t.cumsum(1), a)


def test_norm() -> None:
  for p in (1, 2, 3, math.inf):
    same(Tensor(A).norm(p, 1), np.linalg.norm(A, p, axis=1), tol=1e-12)


# ---- products


@pytest.mark.parametrize(
  "shapes",
  [
    ((4,), (4,)),
    ((2, 3), (3, 4)),
    ((3,), (3, 2)),
    ((2, 3), (3,)),
    ((2, 1, 3, 4), (3, 4, 2)),
    ((2, 3, 4), (4, 2)),
    ((4,), (2, 4, 3)),
    ((1, 1), (1, 1)),
  ],
)
def test_matmul(shapes: Any) -> None:
  a, b = rng.standard_normal(shapes[0]), rng.standard_normal(shapes[1])
  same(Tensor(a) @ Tensor(b), a @ b, dtypes.float64, 1e-12)
  same(a @ Tensor(b), a @ b, dtypes.float64, 1e-12)
  check_gradient(lambda x, y: x @ y, a, b)


def test_matmul_dtypes() -> None:
  same(Tensor.ones(2, 5000, dtype="float16") @ Tensor.ones(5000, 2, dtype="float16"), np.full((2, 2), 5000), dtypes.float16)
  same(Tensor([[1, 2]]) @ Tensor([[3], [4]]), [[11]], dtypes.int32)
  small = Tensor(np.array([100, 100], np.int8))
  same(small.dot(small), 20000 - 78 * 256, dtypes.int8)
  same(small.dot(small, dtype="int32"), 20000, dtypes.int32)
  same(Tensor([1.0, 2.0]).linear(Tensor([[1.0], [3.0]]), Tensor([0.5])), [7.5])
  same(Tensor([1.0, 2.0]).outer(Tensor([1.0, 3.0])), [[1, 3], [2, 6]])


def test_einsum() -> None:
  a, b, c = rng.standard_normal((2, 3)), rng.standard_normal((3, 4)), rng.standard_normal((4,))
  for formula, xs in (
    ("ij,jk->ik", (a, b)),
    ("ij,jk,k->i", (a, b, c)),
    ("ij->ji", (a,)),
    ("ij->", (a,)),
    ("ij,jk", (a, b)),
    ("ij,kl->jkil", (a, b)),
  ):
    same(Tensor.einsum(formula, *[Tensor(x) for x in xs]), np.einsum(formula, *xs), tol=1e-12)


def _conv(x: np.ndarray, w: np.ndarray, stride: Any, pads: Any, dilation: Any, groups: int) -> np.ndarray:
  x = np.pad(x, ((0, 0), (0, 0), *pads))
  k = [(s - 1) * d + 1 for s, d in zip(w.shape[2:], dilation)]
  out = np.zeros((x.shape[0], w.shape[0], *[(n - s) // t + 1 for n, s, t in zip(x.shape[2:], k, stride)]))
  co, ci = w.shape[0] // groups, w.shape[1]
  for c in range(w.shape[0]):
    part = x[:, (c // co) * ci : (c // co + 1) * ci]
    for i, j in np.ndindex(*out.shape[2:]):
      box = part[:, :, i * stride[0] : i * stride[0] + k[0] : dilation[0], j * stride[1] : j * stride[1] + k[1] : dilation[1]]
      out[:, c, i, j] = (box * w[c]).sum((1, 2, 3))
  return out


@pytest.mark.parametrize(
  "size,weight,stride,padding,pads,dilation,groups",
  [
    ((2, 2, 5, 5), (3, 2, 3, 3), 1, 0, ((0, 0), (0, 0)), 1, 1),
    ((1, 2, 5, 6), (2, 2, 3, 2), (2, 1), 1, ((1, 1), (1, 1)), 1, 1),
    ((1, 4, 6, 5), (4, 2, 2, 2), 1, (1, 0), ((1, 1), (0, 0)), (2, 1), 2),
    ((1, 3, 4, 4), (3, 1, 3, 3), 2, (1, 2, 0, 1), ((0, 1), (1, 2)), 1, 3),
  ],
)
def test_conv2d(size: Any, weight: Any, stride: Any, padding: Any, pads: Any, dilation: Any, groups: int) -> None:
  x, w, b = rng.standard_normal(size), rng.standard_normal(weight), rng.standard_normal(weight[0])
  st, di = (stride,) * 2 if isinstance(stride, int) else stride, (dilation,) * 2 if isinstance(dilation, int) else dilation

  def fn(x: Any, w: Any, b: Any) -> Any:
    return x.conv2d(w, b, groups, stride, dilation, padding)

  same(fn(Tensor(x), Tensor(w), Tensor(b)), _conv(x, w, st, pads, di, groups) + b[:, None, None], dtypes.float64, 1e-12)
  if size[0] * size[1] * size[2] <= 24:
    check_gradient(fn, x, w, b)


def test_conv2d_input_gradient_sums_once() -> None:
  """Output channels and windows are summed together: no array of windows in between."""
  x, w = (
    Tensor(rng.standard_normal((2, 3, 6, 6)), requires_grad=True),
    Tensor(rng.standard_normal((4, 3, 3, 3)), requires_grad=True),
  )
  loss = x.conv2d(w, padding=1).square().sum()
  loss.backward()
  sums = [u for u in toposort(written_out([x.grad.lazydata])) if u.op is Ops.REDUCE_AXIS]
  assert len(sums) == 2, sums  # the convolution itself, and one for the gradient
  assert len([u for u in toposort(written_out([w.grad.lazydata])) if u.op is Ops.REDUCE_AXIS]) == 2


def test_conv1d_and_transposed() -> None:
  x, w = rng.standard_normal((1, 2, 6)), rng.standard_normal((3, 2, 3))
  same(Tensor(x).conv2d(Tensor(w)), _conv(x[..., None], w[..., None], (1, 1), ((0, 0), (0, 0)), (1, 1), 1)[..., 0], tol=1e-12)
  x, w = rng.standard_normal((1, 2, 3, 3)), rng.standard_normal((2, 2, 3, 3))
  for stride, padding, extra in ((1, 0, 0), (2, 1, 1), (3, 1, 0)):
    got = Tensor(x).conv_transpose2d(Tensor(w), stride=stride, padding=padding, output_padding=extra)
    # the adjoint of the convolution that takes its output's shape to its input's
    y = Tensor(np.zeros(got.shape), requires_grad=True)
    (g,) = (y.conv2d(Tensor(w), stride=stride, padding=padding) * Tensor(x)).sum().gradient(y)
    np.testing.assert_allclose(value(got), value(g), atol=1e-12)


@pytest.mark.parametrize(
  "kernel,stride,dilation,padding",
  [((2, 2), None, 1, 0), (3, 1, 1, 1), ((2, 3), (2, 1), 1, 0), (2, 1, 2, 0), (2, 3, 1, 0), ((1, 2), 2, 1, 0)],
)
def test_pools(kernel: Any, stride: Any, dilation: Any, padding: int) -> None:
  x = rng.standard_normal((1, 2, 5, 6))
  k = (kernel,) * 2 if isinstance(kernel, int) else kernel
  st = k if stride is None else (stride,) * 2 if isinstance(stride, int) else stride

  def pooled(fill: float, how: Any) -> np.ndarray:
    a = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)), constant_values=fill)
    out = np.zeros((1, 2, *[(n - (s - 1) * dilation - 1) // t + 1 for n, s, t in zip(a.shape[2:], k, st)]))
    for i, j in np.ndindex(*out.shape[2:]):
      out[:, :, i, j] = how(
        a[
          :,
          :,
          i * st[0] : i * st[0] + (k[0] - 1) * dilation + 1 : dilation,
          j * st[1] : j * st[1] + (k[1] - 1) * dilation + 1 : dilation,
        ],
        axis=(2, 3),
      )
    return out

  same(Tensor(x).max_pool2d(kernel, stride, dilation, padding), pooled(-np.inf, np.max))
  same(Tensor(x).avg_pool2d(kernel, stride, dilation, padding), pooled(0, np.mean), tol=1e-12)
  check_gradient(lambda t: t.max_pool2d(kernel, stride, dilation, padding), x)
  check_gradient(lambda t: t.avg_pool2d(kernel, stride, dilation, padding), x)


def test_pool_options() -> None:
  same(Tensor([[[1, 2, 3], [4, 5, 6], [7, 8, 9]]]).max_pool2d(2, ceil_mode=True), [[[5, 6], [8, 9]]], dtypes.int32)
  ones = Tensor.ones(1, 3, 3)
  same(ones.avg_pool2d(2, 1, padding=1)[0, 0], [0.25, 0.5, 0.5, 0.25])
  same(ones.avg_pool2d(2, 1, padding=1, count_include_pad=False), np.ones((1, 4, 4)))
  same(ones.avg_pool2d(2, ceil_mode=True), np.ones((1, 2, 2)))
  # windows side by side: the gradient only moves elements
  x = Tensor(rng.standard_normal((1, 1, 4, 4)), requires_grad=True)
  x.avg_pool2d(2).sum().backward()
  assert not [u for u in toposort(written_out([x.grad.lazydata])) if u.op in (Ops.UNTILE, Ops.REDUCE_AXIS)]


# ---- normalisation and losses


def test_norms() -> None:
  mean, var = X3.mean(-1, keepdims=True), X3.var(-1, keepdims=True)
  same(Tensor(X3).layernorm(), (X3 - mean) / np.sqrt(var + 1e-5), dtypes.float64, 1e-9)
  check_gradient(lambda t: t.layernorm(), X3)
  check_gradient(lambda t: t.layernorm((1, 2)), X3)
  check_gradient(lambda t: t.rms_norm(), X3)

  def batchnorm(x: Any, w: Any, b: Any) -> Any:
    m = x.mean((0, 2))
    v = (x - m.reshape(1, -1, 1)).square().mean((0, 2))
    return x.batchnorm(w, b, m, (v + 1e-5).rsqrt())

  w, b = rng.standard_normal(3), rng.standard_normal(3)
  expected = (X3 - X3.mean((0, 2), keepdims=True)) / np.sqrt(X3.var((0, 2), keepdims=True) + 1e-5) * w[:, None] + b[:, None]
  same(batchnorm(Tensor(X3), Tensor(w), Tensor(b)), expected, dtypes.float64, 1e-9)
  check_gradient(batchnorm, X3, w, b)


def test_batchnorm_over_two_channel_axes() -> None:
  n, c, d = X3.shape
  m, s = rng.standard_normal((c, d)), POS.reshape(-1)[:c * d].reshape(c, d)
  for shape in ((c, d), (1, c, d), (c * d,)):
    same(
      Tensor(X3).batchnorm(Tensor(s.reshape(shape)), None, Tensor(m), Tensor(s.reshape(shape)), (1, 2)),
      (X3 - m) * s * s,
      tol=1e-12,
    )
  row = s[:, 0]
  same(Tensor(X3).batchnorm(None, None, Tensor(m[:, 0]), Tensor(row.reshape(1, c, 1))), (X3 - m[:, :1]) * row[:, None], tol=1e-12)


def test_attention() -> None:
  q, k, v = (rng.standard_normal((2, 3, 4)) for _ in range(3))
  p = _softmax(np.where(np.tril(np.ones((3, 3))) > 0, q @ k.swapaxes(-1, -2) / 2, -np.inf), -1)
  same(Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), is_causal=True), p @ v, dtypes.float64, 1e-12)
  check_gradient(lambda a, b, c: a.scaled_dot_product_attention(b, c, is_causal=True), q[:1], k[:1], v[:1])


LOGITS = rng.standard_normal((5, 3))
CLASSES = np.array([0, 2, 1, -1, 2])


def test_class_losses() -> None:
  logp = np.log(_softmax(LOGITS, 1))
  y = np.array([0, 2, 1, 1, 2])
  rows = -logp[np.arange(5), y]
  t = Tensor(LOGITS)
  same(t.cross_entropy(Tensor(y)), rows.mean(), dtypes.float64, 1e-12)
  same(t.cross_entropy(Tensor(y), reduction="none"), rows, tol=1e-12)
  same(t.cross_entropy(Tensor(y), reduction="sum"), rows.sum(), tol=1e-12)
  same(t.cross_entropy(Tensor(np.eye(3)[y])), rows.mean(), tol=1e-12)
  same(t.sparse_categorical_crossentropy(Tensor(y)), rows.mean(), tol=1e-12)
  same(t.log_softmax(1).nll_loss(Tensor(y)), rows.mean(), tol=1e-12)
  weight = np.array([1.0, 2.0, 0.5])
  same(t.log_softmax(1).nll_loss(Tensor(y), weight=Tensor(weight)), (rows * weight[y]).sum() / weight[y].sum(), tol=1e-12)
  smooth = 0.9 * rows - 0.1 * logp.mean(1)
  same(t.cross_entropy(Tensor(y), label_smoothing=0.1), smooth.mean(), tol=1e-12)
  same(t.cross_entropy(Tensor(np.eye(3)[y]), label_smoothing=0.1), smooth.mean(), tol=1e-12)
  kept = CLASSES >= 0
  rows = -logp[np.arange(5), np.where(kept, CLASSES, 0)] * kept
  same(t.sparse_categorical_crossentropy(Tensor(CLASSES)), rows.sum() / 4, tol=1e-12)
  same(t.sparse_categorical_crossentropy(Tensor(CLASSES), reduction="none"), rows, tol=1e-12)
  same(
    Tensor(X3).cross_entropy(Tensor([[0, 1, 2, 0], [2, 2, 1, 0]])),
    -np.mean([np.log(_softmax(X3, 1))[i, c, j] for i, r in enumerate([[0, 1, 2, 0], [2, 2, 1, 0]]) for j, c in enumerate(r)]),
    tol=1e-12,
  )
  same(Tensor(LOGITS.astype(np.float16)).cross_entropy(Tensor(y)), -logp[np.arange(5), y].mean(), dtypes.float16, 2e-3)
  for fn in (
    lambda t: t.cross_entropy(Tensor(y)),
    lambda t: t.cross_entropy(Tensor(y), label_smoothing=0.2),
    lambda t: t.sparse_categorical_crossentropy(Tensor(CLASSES)),
    lambda t: t.cross_entropy(Tensor(np.eye(3)[y])),
    lambda t: t.log_softmax(1).nll_loss(Tensor(y)),
  ):
    check_gradient(fn, LOGITS)


def test_other_losses() -> None:
  x, y = rng.standard_normal((4,)), np.array([0.0, 1.0, 0.5, 1.0])
  p = 1 / (1 + np.exp(-x))
  expected = -(y * np.log(p) + (1 - y) * np.log(1 - p)).mean()
  same(Tensor(x).binary_crossentropy_logits(Tensor(y)), expected, tol=1e-9)
  same(Tensor(p).binary_crossentropy(Tensor(y)), expected, tol=1e-9)
  same(Tensor(x).mse_loss(Tensor(y)), ((x - y) ** 2).mean(), tol=1e-12)
  check_gradient(lambda t: t.binary_crossentropy_logits(Tensor(y)), x)
  zero = Tensor([0.0, 0.0], requires_grad=True)
  zero.binary_crossentropy_logits(Tensor([1.0, 0.0]), reduction="sum").backward()
  same(zero.grad, [-0.5, 0.5])


@pytest.mark.parametrize("name", ["sigmoid", "softplus", "silu", "mish", "logsigmoid", "tanh", "gelu", "elu"])
def test_extreme_inputs_have_finite_gradients(name: str) -> None:
  x = Tensor(np.array([-200.0, -30.0, 0.0, 30.0, 200.0], np.float32), requires_grad=True)
  getattr(x, name)().sum().backward()
  assert np.isfinite(value(x.grad)).all(), value(x.grad)


# ---- indexing

INDEX: list[Any] = [
  0,
  -1,
  slice(1, None),
  slice(None, None, -1),
  slice(None, None, 2),
  slice(-2, 0, -2),
  (0, 1),
  (slice(None), 1),
  (Ellipsis, 0),
  (None, 0),
  (slice(None), None, 2),
  (slice(3, 1),),
  [0, 2],
  [[0, 1], [2, -1]],
  (slice(None), [0, 3]),
  ([0, 1], [2, 3]),
  ([0, 1], slice(None), [1, 0]),
  (0, slice(None), [1, 0]),
  (slice(None), [1], slice(1, 3)),
  (slice(None), [0, 1], [[1], [2]]),
  (None, [0, 1], None),
  (Ellipsis, [0, 4]),
  (slice(None), 1, [0, 2]),
  ([0], slice(None), 1),
  (slice(0, 2), [2, 0], slice(None, None, 2)),
]


@pytest.mark.parametrize("index", INDEX, ids=str)
def test_getitem(index: Any) -> None:
  a = rng.standard_normal((3, 4, 5))
  view, rest = ints_first(a, index)
  expected = view[rest]
  same(Tensor(a)[index], expected)
  wrap = lambda i: Tensor(i) if isinstance(i, list) else i
  tensors = tuple(wrap(i) for i in index) if isinstance(index, tuple) else wrap(index)
  same(Tensor(a)[tensors], expected)
  small = a[:, :, :5]
  if expected.size and expected.size < 30:
    check_gradient(lambda t: t[index], small)


def test_index_tensor_out_of_range_is_zero() -> None:
  x = Tensor([[1.0, 2.0], [3.0, 4.0]])
  same(x[Tensor([0, 5, -1])], [[1, 2], [0, 0], [3, 4]])
  same(x[Tensor([0, 1]), Tensor([3, 0])], [0, 3])


SET: list[Any] = [
  0,
  slice(1, None),
  slice(None, None, 2),
  slice(None, None, -1),
  (slice(None), 1),
  (slice(2, 0, -2), slice(1, 4, 2)),
  (Ellipsis, -1),
  slice(None),
  [0, 2],
  ([0, 1], [1, 3]),
  (slice(None), [3, 0]),
]


@pytest.mark.parametrize("index", SET, ids=str)
@pytest.mark.parametrize("memory", [False, True])
def test_setitem(index: Any, memory: bool) -> None:
  a = rng.standard_normal((3, 4))
  shape = a[index].shape
  for v in (7.0, rng.standard_normal(shape)):
    t = Tensor(a) if memory else Tensor(a) * 1
    b = a.copy()
    t[index] = v if isinstance(v, float) else Tensor(v)
    b[index] = v
    same(t, b)

  def fn(x: Any, v: Any) -> Any:
    y = x * 1
    y[index] = v
    return y

  if shape != a.shape:
    check_gradient(fn, a, rng.standard_normal(shape))


def test_gather_scatter() -> None:
  a = rng.standard_normal((3, 4))
  i = np.array([[0, 2], [1, -1]])
  same(Tensor(a).gather(1, Tensor(i)), np.take_along_axis(a[:2], np.where(i < 0, i + 4, i), 1))
  check_gradient(lambda t: t.gather(1, Tensor(i)), a)
  src = rng.standard_normal((2, 2))
  b = a.copy()
  np.put_along_axis(b[:2], np.where(i < 0, i + 4, i), src, 1)
  same(Tensor(a).scatter(1, Tensor(i), Tensor(src)), b)
  check_gradient(lambda t, s: t.scatter(1, Tensor(i), s), a, src)
  check_gradient(lambda t, s: t.scatter(0, Tensor(i % 3), s, reduce="add"), a, src)
  same(Tensor([0, 2]).one_hot(3), [[1, 0, 0], [0, 0, 1]], dtypes.int32)


# ---- creation and random numbers


def test_creation() -> None:
  same(Tensor([[1, 2], [3, 4]]), [[1, 2], [3, 4]], dtypes.int32)
  same(Tensor([1, 2.5]), [1, 2.5], dtypes.float32)
  same(Tensor([2**40]), [2**40], dtypes.int64)
  same(Tensor(3), 3, dtypes.int32)
  same(Tensor(2.5), 2.5, dtypes.float32)
  same(Tensor(True), True, dtypes.bool)
  same(Tensor(b"\x01\xff"), [1, 255], dtypes.uint8)
  same(Tensor(np.float64(2)), 2.0, dtypes.float64)
  same(Tensor(np.array([1.5], ml_dtypes.bfloat16)), [1.5], dtypes.bfloat16)
  same(Tensor(np.arange(6).reshape(2, 3).T), np.arange(6).reshape(2, 3).T, dtypes.int64)
  same(Tensor(np.arange(3, dtype=">i4")), [0, 1, 2], dtypes.int32)
  same(Tensor([]), np.zeros(0), dtypes.float32)
  same(Tensor([1, 2], dtype="half"), [1, 2], dtypes.float16)
  same(Tensor([1.7], dtype=dtypes.int8), [1], dtypes.int8)
  same(Tensor(Tensor([1, 2]).lazydata), [1, 2])
  same(Tensor.zeros(2, 3), np.zeros((2, 3)), dtypes.float32)
  same(Tensor.ones((2,), dtype="int8"), np.ones(2), dtypes.int8)
  same(Tensor.full((2, 2), 3), np.full((2, 2), 3), dtypes.int32)
  same(Tensor.full((), -0.0), -0.0)
  assert np.signbit(value(Tensor.full((2,), -0.0))).all() and not np.signbit(value(Tensor.full((2,), 0.0))).any()
  same(Tensor.eye(2, 3), np.eye(2, 3), dtypes.float32)
  for args in ((5,), (2, 7), (7, 2, -2), (0, 1, 0.25), (1.5, 4), (3, 3)):
    same(Tensor.arange(*args), np.arange(*args))
  assert Tensor.arange(3).dtype is dtypes.int32 and Tensor.arange(0, 1, 0.5).dtype is dtypes.float32
  same(Tensor.linspace(0, 1, 5), np.linspace(0, 1, 5))
  same(Tensor([1, 2]).zeros_like(), [0, 0], dtypes.int32)
  same(Tensor([1.0, 2]).full_like(4), [4, 4], dtypes.float32)
  assert Tensor.empty(2, 3).shape == (2, 3)


def test_random() -> None:
  Tensor.manual_seed(3)
  a = value(Tensor.rand(1000))
  b = value(Tensor.rand(10, 100))
  Tensor.manual_seed(3)
  both = value(Tensor.rand(2000))
  np.testing.assert_array_equal(both, np.concatenate([a, b.reshape(-1)]))  # a counter: where a call is cut does not matter
  assert a.dtype == np.float32 and 0 <= a.min() and a.max() < 1 and abs(a.mean() - 0.5) < 0.03
  n = value(Tensor.randn(4000))
  assert abs(n.mean()) < 0.06 and abs(n.std() - 1) < 0.05 and np.isfinite(n).all()
  i = value(Tensor.randint(2000, low=-3, high=4))
  assert i.dtype == np.int32 and set(i) == set(range(-3, 4))
  u = value(Tensor.uniform(1000, low=-2, high=3))
  assert -2 <= u.min() < -1.9 and 2.9 < u.max() < 3
  for d in ("float16", "bfloat16", "float64"):
    x = value(Tensor.rand(3000, dtype=d)).astype(np.float64)
    assert 0 <= x.min() and x.max() < 1 and abs(x.mean() - 0.5) < 0.03
  assert abs(value(Tensor.kaiming_uniform(100, 50)).max() - math.sqrt(6 / 1.0001 / 50)) < 0.01
  assert value(Tensor([0.0, 1.0, 0.0]).multinomial(20, replacement=True)).tolist() == [1] * 20
  state = [u for u in Tensor.rand(7).lazydata.toposort() if u.op is Ops.BUFFER]
  assert len(state) == 1 and state[0].arg.rng_count == 7 and state[0].dtype is dtypes.uint64


def test_threefry_known_answer() -> None:
  from graph_eval import threefry

  # Random123's known answers for threefry2x32, 20 rounds
  def words(lo: int, hi: int) -> np.ndarray:
    return np.array(lo | hi << 32, np.uint64)

  assert int(threefry(words(0, 0), words(0, 0))) == 0x99BA4EFE6B200159
  assert int(threefry(words(0x243F6A88, 0x85A308D3), words(0x13198A2E, 0x03707344))) == 0x483DF7A0C4923A9C


def test_dropout() -> None:
  x = Tensor.ones(1000)
  assert x.dropout(0.5).lazydata is x.lazydata
  with Tensor.train():
    assert Tensor.training
    y = value(x.dropout(0.25))
    assert np.unique(np.round(y.astype(float), 4)).tolist() == [0.0, 1.3333] and abs((y == 0).mean() - 0.25) < 0.06
    same(x.dropout(1.0), np.zeros(1000))
  assert not Tensor.training


# ---- gradient mode, leaves, assignment


def test_leaves() -> None:
  w1, w2 = Tensor.zeros(3, requires_grad=True), Tensor.zeros(3, requires_grad=True)  # equal constants are two leaves
  a = Tensor([1.0, 2.0, 3.0])
  y = w1 * a + w2 * 2
  assert y.requires_grad and not y.is_leaf and w1.is_leaf
  y.sum().backward()
  same(w1.grad, [1, 2, 3])
  same(w2.grad, [2, 2, 2])
  (w1 * a).sum().backward()  # adds
  same(w1.grad, [2, 4, 6])
  assert y.grad is None and a.grad is None and a.requires_grad is None


def test_detach_and_no_grad() -> None:
  x = Tensor([2.0], requires_grad=True)
  (x.detach() * x).backward()
  same(x.grad, [2.0])
  x.grad = None
  with no_grad():
    y = x * 3
  assert not y.requires_grad
  (y * x).backward()
  same(x.grad, [6.0])

  @no_grad
  def f(t: Tensor) -> Tensor:
    return t * 2

  @Tensor.no_grad()
  def g(t: Tensor) -> Tensor:
    return t * 2

  assert not f(x).requires_grad and not g(x).requires_grad and (x * 2).requires_grad
  z = x * 2
  z.requires_grad = False
  assert z.requires_grad is False and not (z * 2).requires_grad


def test_second_order() -> None:
  x = Tensor(np.array([1.5, -0.5]), requires_grad=True)
  (g,) = (x**3).sum().gradient(x)
  (h,) = g.sum().gradient(x)
  same(h, 6 * np.array([1.5, -0.5]))
  check_gradient(lambda t: (t.unfold(1, 3, 1) ** 3).sum().gradient(t)[0], rng.standard_normal((1, 5)))
  check_gradient(lambda t: t.tanh().sigmoid().sum().gradient(t)[0], A[:1])


def test_backward_after_realize() -> None:
  x = Tensor([1.0, 2.0], requires_grad=True)
  h = (x * 3).realize()
  loss = (h * h).sum()
  loss.item()
  loss.backward()
  same(x.grad, [18.0, 36.0])
  w = Tensor.full((2,), 2.0, requires_grad=True)
  loss = (w * w).sum()
  w.realize()  # after it was used
  loss.backward()
  same(w.grad, [4.0, 4.0])


def test_assign() -> None:
  x = Tensor([1.0, 2.0])
  memory = x.lazydata
  y = x.assign(x + 1)
  assert y is x and x.lazydata.src[0] is memory
  x.assign(x * 2)   # writes are pure nodes, and memory is written when they are realised
  same(x, [4, 6])
  raw = memory.arg.raw
  assert x.realize().lazydata.arg.raw is raw and memory.arg.stale
  z = Tensor.zeros(2).assign(Tensor([1.0, 2.0]))  # a constant gets memory
  same(z, [1, 2])
  same(Tensor([1.0, 2.0]).assign(5), [5, 5])
  p = Tensor([1.0], requires_grad=True)
  (p * p).backward()
  with no_grad():
    p.assign(p - p.grad)
  p.grad = None
  (p * 3).backward()  # the new value is the leaf
  same(p.grad, [3.0])
  same(p, [-1.0])


def test_realize_and_values() -> None:
  t = Tensor([[1, 2], [3, 4]]) + 1
  assert t.tolist() == [[2, 3], [4, 5]] and t.lazydata.op is Ops.BUFFER and t[1, 0].item() == 4 and int(t[0, 0]) == 2
  assert Tensor(2.5).item() == 2.5 and Tensor.ones(2, 2).tolist() == [[1.0, 1.0], [1.0, 1.0]]
  assert t.T.tolist() == [[2, 4], [3, 5]] and bool(Tensor([3]) == 3) and len(t) == 2
  assert t.size() == (2, 2) and t.size(-1) == 2 and t.numel() == 4 and t.nbytes() == 16 and t.element_size() == 4
  assert "Tensor (2, 2) int32 on NUMPY" in repr(t)
  assert bytes(Tensor([1, 2], dtype="uint8").data()) == b"\x01\x02"
  assert t.to("numpy").lazydata is t.lazydata


def test_devices() -> None:
  assert (
    Device.canonicalize("cl:0") == "CL"
    and Device.canonicalize("cpu") == "CPU"
    and Device.canonicalize("CL:1") == "CL:1"
    and Device.canonicalize(None) == "NUMPY"
  )
  a = Tensor.zeros(2, device="CPU")
  assert a.device == "CPU" and Tensor.zeros(2).device == "NUMPY" and (a + Tensor.zeros(2)).device == "CPU"
