"""Every function of ``ntgrad.tile.language`` against numpy, on the CPU's OpenCL and on the oracle."""
from __future__ import annotations

import math
from typing import Any, Callable

import numpy as np
import pytest

import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad.codegen.ir.config import config
from ntgrad.errors import NtgradError
from support.devices import needs_cuda
from support.marks import long_where
from support.triton import needs_triton

RNG = np.random.default_rng(0)
X = RNG.standard_normal((5, 7)).astype(np.float32)
Y = RNG.standard_normal((7, 6)).astype(np.float32)
I = RNG.integers(-9, 9, (5, 7)).astype(np.int32)
J = RNG.integers(0, 7, (5, 7)).astype(np.int32)
P = np.abs(X) + 0.1
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.5, 1e-30], np.float32)
HALF = P.astype(np.float16)
LGAMMA_HALF = np.vectorize(math.lgamma)(HALF).astype(np.float16)
HALVES = np.array([-2.5, -0.5, 0.0, 0.49999997, 0.5, 1.5, 2.5], np.float32)
U = np.arange(7, dtype=np.uint32) * 10_000_000
XD = X.astype(np.float64)
SQUARE = X[:, :5].copy()


@pytest.fixture(params=["CPU", "NUMPY", pytest.param("TRITON", marks=needs_triton), pytest.param("CUDA", marks=needs_cuda)])
def device(request: Any) -> Any:
  with config(dev=request.param): yield request.param


def erf(x: np.ndarray) -> np.ndarray: return np.vectorize(math.erf)(x).astype(np.float32)
def ones(x: np.ndarray) -> np.ndarray:
  """How many bits are 1."""
  bits = 8 * x.dtype.itemsize
  return sum((x >> k & 1) for k in range(bits)).astype(np.int32)   # type: ignore[attr-defined]
def _log1p(x: np.ndarray) -> np.ndarray:
  with np.errstate(all="ignore"): return np.log1p(x)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any]] = {
  # making and converting
  "full": (lambda x: tl.full((3, 2), 4, tl.int64) + tl.zeros((3, 2), tl.int64), (X,), np.full((3, 2), 4, np.int64)),
  "zeros_like": (lambda x: tl.zeros_like(x) + tl.ones((5, 7)), (X,), np.ones((5, 7), np.float32)),
  "arange": (lambda x: tl.arange(0, 7) * 2 + x, (X,), np.arange(7, dtype=np.float32) * 2 + X),
  "arange_from": (lambda x: tl.arange(3, 10), (X,), np.arange(3, 10, dtype=np.int32)),
  "cast": (lambda x: tl.cast(x * 3, tl.int32), (X,), (X * 3).astype(np.int32)),
  "to": (lambda x: x.to(tl.float16), (X,), X.astype(np.float16)),
  "bitcast": (lambda x: tl.bitcast(x, tl.int32), (X,), X.view(np.int32)),
  # shapes
  "trans": (lambda x: tl.trans(x), (X,), X.T),
  "permute": (lambda x: tl.permute(x[None], (2, 0, 1)), (X,), X[None].transpose(2, 0, 1)),
  "T": (lambda x: x.T, (X,), X.T),
  "reshape": (lambda x: tl.reshape(x, (7, -1)), (X,), X.reshape(7, 5)),
  "reshape_of_sum": (lambda x: tl.reshape(tl.cumsum(x, 1), (7, 5)), (X,), X.cumsum(1).reshape(7, 5)),
  "ravel": (lambda x: tl.ravel(x), (X,), X.ravel()),
  "expand_dims": (lambda x: tl.expand_dims(x, 1), (X,), X[:, None]),
  "broadcast_to": (lambda x: tl.broadcast_to(x[0][None, :], (3, 7)), (X,), np.broadcast_to(X[0], (3, 7))),
  "flip": (lambda x: tl.flip(x, 1), (X,), X[:, ::-1]),
  "indexing": (lambda x: x[1:4, None, ::2], (X,), X[1:4, None, ::2]),
  "element": (lambda x: x[2] + x[-1], (X,), X[2] + X[-1]),
  # choosing
  "where": (lambda x: tl.where(x > 0, x, -1.0), (X,), np.where(X > 0, X, np.float32(-1))),
  "maximum": (lambda x: tl.maximum(x, 0.5), (SPECIAL,), np.maximum(SPECIAL, np.float32(0.5))),
  "minimum": (lambda x: tl.minimum(x, 0.5), (SPECIAL,), np.minimum(SPECIAL, np.float32(0.5))),
  "where_small": (lambda x: tl.where(x > 0, 5e-324, -5e-324), (XD,), np.where(XD > 0, 5e-324, -5e-324)),
  "where_large": (lambda x: tl.where(x > 0, 2.0, 1e300), (XD,), np.where(XD > 0, 2.0, 1e300)),
  "where_long": (lambda x: tl.where(x > 0, 1 << 40, -1), (X,), np.where(X > 0, 1 << 40, -1)),
  "clamp": (lambda x: tl.clamp(x, -0.5, 0.5), (X,), np.clip(X, -0.5, 0.5)),
  # functions of one value
  "exp": (lambda x: tl.exp(x), (X,), np.exp(X)),
  "exp2": (lambda x: tl.exp2(x), (X,), np.exp2(X)),
  "log": (lambda x: tl.log(x), (P,), np.log(P)),
  "log2": (lambda x: tl.log2(x), (P,), np.log2(P)),
  "sqrt": (lambda x: tl.sqrt(x), (P,), np.sqrt(P)),
  "rsqrt": (lambda x: tl.rsqrt(x), (P,), 1 / np.sqrt(P)),
  "sin": (lambda x: tl.sin(x), (X,), np.sin(X)),
  "cos": (lambda x: tl.cos(x), (X,), np.cos(X)),
  "tan": (lambda x: tl.tan(x), (X,), np.tan(X)),
  "tanh": (lambda x: tl.tanh(x), (X,), np.tanh(X)),
  "erf": (lambda x: tl.erf(x), (X,), erf(X)),
  "sigmoid": (lambda x: tl.sigmoid(x), (X,), 1 / (1 + np.exp(-X))),
  "floor": (lambda x: tl.floor(x * 3), (X,), np.floor(X * 3)),
  "ceil": (lambda x: tl.ceil(x * 3), (X,), np.ceil(X * 3)),
  "round": (lambda x: tl.round(x), (SPECIAL,), np.round(SPECIAL)),
  "trunc": (lambda x: tl.trunc(x * 3), (X,), np.trunc(X * 3)),
  "abs": (lambda x: tl.abs(x), (I,), np.abs(I)),
  "isnan": (lambda x: tl.isnan(x), (SPECIAL,), np.isnan(SPECIAL)),
  "log10": (lambda x: tl.libdevice.log10(x), (P,), np.log10(P)),
  "log1p": (lambda x: tl.libdevice.log1p(x), (P,), np.log1p(P)),
  "expm1": (lambda x: tl.libdevice.expm1(x), (X,), np.expm1(X)),
  "sinh": (lambda x: tl.libdevice.sinh(x) + tl.libdevice.cosh(x), (X,), np.exp(X)),
  # libdevice's: of floats where they go wrong, then of bits
  "expm1_special": (lambda x: tl.libdevice.expm1(x), (SPECIAL,), np.expm1(SPECIAL)),
  "log1p_special": (lambda x: tl.libdevice.log1p(x), (SPECIAL,), _log1p(SPECIAL)),
  "atan": (lambda x: tl.libdevice.atan(x), (SPECIAL,), np.arctan(SPECIAL)),
  "atan2": (lambda y, x: tl.libdevice.atan2(y, x), (SPECIAL, SPECIAL[::-1].copy()), np.arctan2(SPECIAL, SPECIAL[::-1])),
  "asin": (lambda x: tl.libdevice.asin(x) + tl.libdevice.acos(x), (P / 4,), np.full_like(P, np.pi / 2)),
  "asinh": (lambda x: tl.libdevice.asinh(tl.libdevice.sinh(x)), (X,), X),
  "acosh": (lambda x: tl.libdevice.acosh(tl.libdevice.cosh(x)), (P + 1,), P + 1),
  "atanh": (lambda x: tl.libdevice.atanh(x), (P / 4,), np.arctanh(P / 4)),
  "erfc": (lambda x: tl.libdevice.erfc(x) + tl.erf(x), (X,), np.ones_like(X)),
  "erfinv": (lambda x: tl.libdevice.erfinv(tl.erf(x)), (X / 2,), X / 2),
  "normcdf": (lambda x: tl.libdevice.normcdf(x), (X,), (1 + erf(X / np.sqrt(2))) / 2),
  "lgamma": (lambda x: tl.libdevice.lgamma(x), (X,), np.vectorize(math.lgamma)(X).astype(np.float32)),
  "lgamma_half": (lambda x: tl.libdevice.lgamma(x), (HALF,), LGAMMA_HALF),
  "fmod": (lambda x: tl.libdevice.fmod(x, 0.7), (X,), np.fmod(X, np.float32(0.7))),
  "copysign": (lambda x, y: tl.libdevice.copysign(x, y), (SPECIAL, SPECIAL[::-1].copy()), np.copysign(SPECIAL, SPECIAL[::-1])),
  "signbit": (lambda x: tl.libdevice.signbit(x), (SPECIAL,), np.signbit(SPECIAL)),
  "nextafter": (lambda x: tl.libdevice.nextafter(x, 1.0) - x, (X,), np.nextafter(X, np.float32(1)) - X),
  "nextafter_half": (
    lambda x: tl.libdevice.nextafter(x.to(tl.float16), 9.0), (X,), np.nextafter(X.astype(np.float16), np.float16(9))),
  "round_away": (lambda x: tl.libdevice.round(x), (HALVES,), np.array([-3, -1, 0, 0, 1, 2, 3], np.float32)),
  "llround": (lambda x: tl.libdevice.llround(x) - tl.libdevice.llrint(x), (HALVES,), np.array([-1, -1, 0, 0, 1, 0, 1])),
  "finite": (lambda x: tl.libdevice.isfinited(x), (SPECIAL,), np.isfinite(SPECIAL)),
  "saturatef": (lambda x: tl.libdevice.saturatef(x), (SPECIAL,), np.nan_to_num(np.clip(SPECIAL, 0, 1))),
  "cbrt": (lambda x: tl.libdevice.cbrt(x), (SPECIAL,), np.cbrt(SPECIAL)),
  "rcbrt": (lambda x: tl.libdevice.rcbrt(x), (P,), 1 / np.cbrt(P)),
  "float_as_int": (lambda x: tl.libdevice.float_as_int(x), (X,), X.view(np.int32)),
  "int_as_float": (lambda x: tl.libdevice.int_as_float(x), (X.view(np.int32),), X),
  "popc": (lambda i: tl.libdevice.popc(i), (I,), ones(I)),
  "popc_long": (lambda i: tl.libdevice.popc(i), (I.astype(np.int64),), ones(I.astype(np.int64))),
  "ffs": (lambda i: tl.libdevice.ffs(i), (I,), np.where(I == 0, 0, ones((I & -I) - 1) + 1).astype(np.int32)),
  "clz": (lambda i: tl.libdevice.clz(i), (I,), np.where(I < 0, 0, 32 - np.frexp(I.astype(float))[1]).astype(np.int32)),
  "brev": (lambda i: tl.libdevice.brev(tl.libdevice.brev(i)) + (tl.libdevice.brev(i) < 0), (I,), I + (I & 1)),
  # functions of two values
  "pow": (lambda x: tl.pow(x, 2.5), (P,), P ** np.float32(2.5)),
  "fdiv": (lambda x: tl.fdiv(x, 3.0), (X,), X / 3),
  "fma": (lambda x: tl.fma(x, 2.0, x), (X,), X * 3),
  "cdiv": (lambda i: tl.cdiv(tl.abs(i), 4), (I,), -(-np.abs(I) // 4)),
  "floordiv": (lambda i: i // 3, (I,), I // 3),
  "mod": (lambda i: i % 4, (I,), I % 4),
  "negative": (lambda i: -i, (I,), -I),
  "shifts": (lambda i: (i << 2) >> 1, (I,), (I << 2) >> 1),
  "bits": (lambda i: (i & 6) | (i ^ 3), (I,), (I & 6) | (I ^ 3)),
  "invert": (lambda i: ~i, (I,), ~I),
  "compare": (lambda i: (i > 2) & ~(i == 5) | (i <= -3), (I,), (I > 2) & ~(I == 5) | (I <= -3)),
  "division": (lambda i: i / 4, (I,), (I / 4).astype(np.float32)),
  "weak": (lambda x: x.to(tl.float16) * 2, (X,), X.astype(np.float16) * 2),
  # along an axis
  "sum": (lambda x: tl.sum(x, axis=0), (X,), X.sum(0)),
  "sum_all": (lambda x: tl.sum(x), (X,), X.sum()),
  "sum_bool": (lambda x: tl.sum(x > 0, axis=1), (X,), (X > 0).sum(1, dtype=np.int32)),
  "sum_of_equal": (lambda x: tl.sum(tl.broadcast_to(x[0][None, :], (4, 7)), axis=0), (X,), X[0] * 4),
  "max": (lambda x: tl.max(x, axis=1, keep_dims=True), (X,), X.max(1, keepdims=True)),
  "min": (lambda x: tl.min(x), (X,), X.min()),
  "max_nan": (lambda x: tl.max(x), (SPECIAL,), np.float32(np.nan)),
  "prod": (lambda x: tl.prod(x, axis=0), (X,), X.prod(0)),
  "argmax": (lambda x: tl.argmax(x, axis=1), (X,), X.argmax(1).astype(np.int32)),
  "argmin": (lambda x: tl.argmin(x), (X,), np.int32(X.argmin())),
  "argmin_kept": (lambda x: tl.argmin(x, axis=0, keep_dims=True), (X,), X.argmin(0)[None].astype(np.int32)),
  "argmax_of_all_kept": (lambda x: tl.argmax(x, None, True, True), (X,), np.full((1, 1), X.argmax(), np.int32)),
  "max_and_where": (
    lambda x: tl.max(x, 1, True)[0] + tl.max(x, 1, return_indices=True)[1], (X,), X.max(1) + X.argmax(1).astype(np.float32)),
  "min_and_where": (
    lambda x: tl.min(x, axis=0, return_indices=True, keep_dims=True)[1], (X,), X.argmin(0)[None].astype(np.int32)),
  "cumsum_wide": (lambda i: tl.cumsum(i, 1, dtype=tl.int64), (I,), I.cumsum(1, dtype=np.int64)),
  "argmax_ties": (lambda i: tl.argmax(i, axis=1), (I,), I.argmax(1).astype(np.int32)),
  "cumsum": (lambda x: tl.cumsum(x, axis=1), (X,), X.cumsum(1)),
  "cumsum_reverse": (lambda x: tl.cumsum(x, axis=0, reverse=True), (X,), X[::-1].cumsum(0)[::-1]),
  "cumprod": (lambda x: tl.cumprod(x, axis=1), (X,), X.cumprod(1)),
  "sort": (lambda x: tl.sort(x), (X,), np.sort(X, 1)),
  "sort_down": (lambda x: tl.sort(x, 0, descending=True), (X,), np.sort(X, 0)[::-1]),
  "sort_nan": (lambda x: tl.sort(x), (SPECIAL,), np.sort(SPECIAL)),
  "gather": (lambda x, j: tl.gather(x, j, 1), (X, J), np.take_along_axis(X, J, 1)),
  # products
  "dot": (lambda x, y: tl.dot(x, y), (X, Y), X @ Y),
  "dot_acc": (lambda x, y: tl.dot(x, y, acc=tl.ones((5, 6))), (X, Y), X @ Y + 1),
  "dot_computed": (lambda x, y: tl.dot(tl.exp(x), tl.cumsum(y, 1)), (X, Y), np.exp(X) @ Y.cumsum(1)),
  "dot_trans": (lambda x: tl.dot(x, tl.trans(x)), (X,), X @ X.T),
  "matmul": (lambda x, y: x @ y, (X, Y), X @ Y),
  "dot_half": (
    lambda x, y: tl.dot(x.to(tl.float16), y.to(tl.float16)),
    (X, Y),
    X.astype(np.float16).astype(np.float32) @ Y.astype(np.float16).astype(np.float32),
  ),
  "dot_int": (lambda i, j: tl.dot(i, tl.trans(j)), (I, J), I @ J.T),
  # put together and counted
  "histogram": (lambda j: tl.histogram(tl.ravel(j), 5), (J,), np.bincount(J.ravel(), minlength=5)[:5].astype(np.int32)),
  "histogram_masked": (
    lambda j: tl.histogram(j[0], num_bins=8, mask=j[0] > 2), (J,), np.bincount(J[0][J[0] > 2], minlength=8).astype(np.int32)),
  "topk": (lambda x: tl.topk(x, 3), (X,), np.sort(X)[:, :3:-1]),
  "join": (lambda x: tl.join(x, x + 1), (X,), np.stack((X, X + 1), -1)),
  "split": (lambda x: tl.split(tl.join(x, x + 1))[1], (X,), X + 1),
  "interleave": (lambda x: tl.interleave(x, -x), (X,), np.stack((X, -X), -1).reshape(5, 14)),
  "cat": (lambda x: tl.cat(x, -x), (X,), np.concatenate((X, -X))),
  "cat_columns": (lambda x: tl.cat(x, -x, dim=1), (X,), np.concatenate((X, -X), 1)),
  "umulhi": (lambda i: tl.umulhi(i * 7, 7 << 28), (U,), (U.astype(np.uint64) * 7 * (7 << 28) >> 32).astype(np.uint32)),
  # one block twice
  "softmax": (
    lambda x: tl.exp(x - tl.max(x, 1, keep_dims=True)) / tl.sum(tl.exp(x - tl.max(x, 1, keep_dims=True)), 1, True),
    (X,),
    np.exp(X - X.max(1, keepdims=True)) / np.exp(X - X.max(1, keepdims=True)).sum(1, keepdims=True),
  ),
  "with_its_transpose": (lambda x: x + tl.trans(x), (SQUARE,), SQUARE + SQUARE.T),
  "outer": (lambda x: x[0][:, None] * x[0][None, :], (X,), np.outer(X[0], X[0])),
}


@long_where(lambda device: device == "CPU")
@pytest.mark.parametrize("name", CASES)
def test_functions(name: str, device: str) -> None:
  fn, arrays, want = CASES[name]
  got = tile.apply(fn, *arrays)
  want = np.asarray(want)
  assert got.shape == want.shape and got.dtype == want.dtype, (got.shape, got.dtype, want.shape, want.dtype)
  np.testing.assert_allclose(got, want, rtol=1e-3 if want.dtype == np.float16 else 2e-5, atol=1e-5)


def test_random_numbers_are_the_same_everywhere() -> None:
  def both(o: Any) -> Any: return tl.rand(42, o), tl.randbits(7, o)
  offsets = np.arange(1000, dtype=np.int32)
  with config(dev="CPU"): a, bits = tile.apply(both, offsets)
  with config(dev="NUMPY"): b, same = tile.apply(both, offsets)
  np.testing.assert_array_equal(a, b)
  np.testing.assert_array_equal(bits, same)
  assert a.min() >= 0 and a.max() < 1 and abs(a.mean() - 0.5) < 0.03 and len(set(bits.tolist())) == 1000


# ---- statements

def horner(x: Any) -> Any:
  out = x * 0.0
  for k in range(4): out = out * x + k
  return out


def newton(x: Any) -> Any:
  guess = tl.full((), 1.0)
  n = 0
  while tl.abs(guess * guess - x) > 1e-4:
    guess, n = 0.5 * (guess + x / guess), n + 1
  return guess, n


def early(x: Any) -> Any:
  if tl.sum(x) > 0: return x
  return -x


def nested(x: Any) -> Any:
  total = 0.0
  for i in range(3):
    part = 1.0
    for j in range(i): part = part * 2 + j   # a length that only the kernel knows
    total += part
  return x + total


def unrolled(x: Any) -> Any:
  parts = [x * k for k in tl.static_range(3)]
  return sum(parts) + max(2, 3) + (1 if x.shape[0] == 5 else 0)


def swap(x: Any) -> Any:
  a, b = 0, 1
  for _ in range(10): a, b = b, a + b
  return x + a


def helper(x: Any, scale: Any = 2.0, *, shift: Any = 0.0) -> Any:
  """Called with defaults and keywords."""
  if scale == 1.0: return x
  return x * scale + shift


def calls(x: Any) -> Any:
  def inner(y: Any) -> Any: return y + x
  double = lambda y: helper(y, shift=1.0)  # noqa: E731
  return inner(helper(x, 1.0)) + double(x)


def chained(i: Any) -> Any:
  return tl.where((-3 < i) & (i < 3), 1, 0) + (0 if 1 < 2 < 3 else i)


STATEMENTS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any]] = {
  "for": (horner, (X,), ((0 * X + 1) * X + 2) * X + 3), "nested": (nested, (X,), X + 1 + 2 + (1 * 2 + 0) * 2 + 1),
  "early return": (early, (X,), X * np.sign(X.sum())), "unrolled": (unrolled, (X,), X * 3 + 4), "swap": (swap, (I,), I + 55),
  "calls": (calls, (X,), 2 * X + 2 * X + 1), "chained": (chained, (I,), ((I > -3) & (I < 3)).astype(np.int32)),
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_statements(name: str, device: str) -> None:
  fn, arrays, want = STATEMENTS[name]
  np.testing.assert_allclose(tile.apply(fn, *arrays), want, rtol=2e-5, atol=1e-5)


def test_while(device: str) -> None:
  root, rounds = tile.apply(newton, np.float32(9.0).reshape(()))
  assert abs(root - 3) < 1e-4 and 4 <= rounds <= 8


# ---- refusals: the sentence, and the line with a caret

def unknown(x: Any) -> Any: return tl.expp(x)
def shapes(x: Any) -> Any: return x + tl.zeros((5,))
def unset(x: Any) -> Any: return x + y  # type: ignore[name-defined]  # noqa: F821
def bad_axis(x: Any) -> Any: return tl.sum(x, axis=2)
def bad_dot(x: Any) -> Any: return tl.dot(x, x)
def block_if(x: Any) -> Any:
  if x > 0: return x
  return -x
def changes(x: Any) -> Any:
  out = x
  for _ in range(3): out = tl.sum(out, axis=0)
  return out
def only_inside(x: Any) -> Any:
  for k in range(3): last = x * k
  return last
def otherwise(x: Any) -> Any:
  for _ in range(3): pass
  else: return x
def tries(x: Any) -> Any:
  try: return x
  finally: pass
def one_side(x: Any) -> Any:
  if tl.sum(x) > 0: found = x
  return found
def recursion(x: Any) -> Any: return recursion(x)
def assertion(x: Any) -> Any:
  assert x.shape[0] == 4, "four rows"
  return x
def float_index(x: Any) -> Any: return tl.gather(x, x, 1)
def float_bits(x: Any) -> Any: return x & 1


REFUSALS: dict[Callable[..., Any], str] = {
  unknown: r"no 'expp'; did you mean exp",
  shapes: r"\(5, 7\) and \(5,\) do not broadcast",
  unset: "'y' is read before it has any value",
  bad_axis: "sum: axis 2; the block has 2 dimensions",
  bad_dot: r"dot: blocks of shapes \(5, 7\) and \(5, 7\); it takes \(m, k\) and \(k, n\)",
  block_if: r"`if` takes one condition a program, got a block of shape \(5, 7\); tl.where",
  changes: "'out' has shape .* before the loop and",
  only_inside: "'last' has no value here: it is assigned only inside the loop",
  otherwise: "a for loop of an application has no else",
  tries: "no try statement",
  one_side: "'found' has no value here: the `if` at line .* assigns it on one side only",
  recursion: "64 deep",
  assertion: "assertion failed: four rows",
  float_index: "gather: indices are ints",
  float_bits: "and takes ints or bool, got",
}


@pytest.mark.parametrize("fn", REFUSALS, ids=lambda f: f.__name__)
def test_refusals(fn: Callable[..., Any]) -> None:
  with pytest.raises(NtgradError, match=REFUSALS[fn]) as e: tile.apply(fn, X)
  text = str(e.value)
  assert f"{__file__}:" in text and "^" in text and f"in {fn.__name__}" in text


def test_outside_of_an_application() -> None:
  with pytest.raises(NtgradError, match="inside an application"): tl.zeros((3,))
