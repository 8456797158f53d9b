"""The gradients of applications by rule: against tensor code in float64, against kernels that are written for them, and what has
none."""
from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

import ntgrad
import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad import Tensor, Variable
from ntgrad.codegen.ir.config import config
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.engine.device import get_device
from ntgrad.errors import GradientError
from ntgrad.nn import checkpoint
from ntgrad.tile import Symbol, block_size
from ntgrad.tile.derived_gradient import Derivations
from ntgrad.tile.launch import Argument
from support.marks import long, long_unless

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "tile"))
import conv2d as conv_example  # noqa: E402
import flash_attention as flash_example  # noqa: E402
import layer_norm as layer_norm_example  # noqa: E402
import matmul as matmul_example  # noqa: E402
import max_pool2d as pool_example  # noqa: E402
import rotary as rotary_example  # noqa: E402
import softmax as softmax_example  # noqa: E402

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(3)
T = tile.Tensor
BLOCK = Symbol("BLOCK", constexpr=True)


def leaf(*shape: int, dtype: Any = np.float32) -> Tensor:
  return Tensor(RNG.standard_normal(shape).astype(dtype), requires_grad=True)


def gradients(fn: Callable[..., Any], xs: Any, seed: int = 0) -> list[Array]:
  """Of a weighted sum of all results, at the tensors among ``xs``."""
  out, rng = fn(*xs), np.random.default_rng(seed)
  out = out if isinstance(out, tuple) else (out,)
  loss = sum([(o * Tensor(rng.standard_normal(o.shape)).cast(o.dtype)).sum() for o in out], Tensor(0.0).cast(out[0].dtype))
  wanted = [x for x in xs if isinstance(x, Tensor) and x.requires_grad]
  return [np.asarray(g.numpy()) for g in ntgrad.autograd.grad(loss, wanted)]


def check(fn: Callable[..., Any], like: Callable[..., Any], *xs: Any, tol: float = 2e-5) -> None:
  """A function of tensors has the results and gradients of tensor code in float64."""
  def wide(x: Any) -> Any:
    if not isinstance(x, Tensor) or x.dtype.kind != "f": return x
    return x.detach().double().requires_grad_(x.requires_grad)
  exact = [wide(x) for x in xs]
  for got, want in zip([fn(*xs)], [like(*exact)]):
    for a, b in zip(got, want) if isinstance(got, tuple) else [(got, want)]:
      np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=tol, atol=tol * 5)
  for a, b in zip(gradients(fn, xs), gradients(like, exact), strict=True):
    assert a.shape == b.shape
    np.testing.assert_allclose(a, b, rtol=tol, atol=tol * max(5.0, float(np.abs(b).max())))


# ---- the kernels of the examples, and others that people write

softmax = tile.function(softmax_example.softmax)
layer_norm = tile.function(layer_norm_example.layer_norm)
rotary = tile.function(rotary_example.rotary)
matmul = tile.function(matmul_example.matmul, outputs={"output": lambda a, b: ((a.shape[0], b.shape[1]), a.dtype)})
conv2d = tile.function(conv_example.conv2d, outputs={"output": lambda x, w: (
  (x.shape[0], w.shape[0], x.shape[2] - w.shape[2] + 1, x.shape[3] - w.shape[3] + 1), x.dtype)})
max_pool2d = tile.function(pool_example.max_pool2d, outputs={
  "output": lambda x: ((*x.shape[:2], (x.shape[2] - 3) // 2 + 1, (x.shape[3] - 3) // 2 + 1), x.dtype)})
attention = tile.function(flash_example.forward_kernel, outputs=flash_example.attention.outputs)


def rotary_code(x: Tensor, sine: Tensor, cosine: Tensor) -> Tensor:
  half = x.shape[-1] // 2
  a, b = x[..., :half], x[..., half:]
  s, c = (t.reshape(1, t.shape[0], 1, half) for t in (sine, cosine))
  return Tensor.cat(a * c - b * s, a * s + b * c, dim=-1)


def attention_code(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
  scores = (q @ k.transpose(-1, -2)) * scale
  scores = Tensor(np.tril(np.ones(scores.shape[-2:], bool))).where(scores, float("-inf"))
  return scores.softmax(-1) @ v, scores.logsumexp(-1, keepdim=True) * flash_example.LOG2_E


def gelu_bias(x: Any, bias: Any, y: Any) -> None:
  z = x + bias
  y = 0.5 * z * (1 + tl.erf(z * 0.7071067811865476))


def by_columns(x: T, bias: T, y: T) -> Any:
  x, y = x.tile((8, 16)), y.tile((8, 16))
  return x, bias.unsqueeze(0).tile((1, 16)).expand((x.shape[0], -1)), y


biased_gelu = tile.function(tile.make(by_columns, gelu_bias, (T(2), T(1), T(2)), kernel_name="biased_gelu"))


def rms(x: Any, weight: Any, y: Any) -> None:
  y = x * tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) / x.shape[1] + 1e-6) * weight


def by_rows(x: T, weight: T, y: T) -> Any:
  return x.tile((1, -1)), weight.unsqueeze(0).tile((1, -1)).expand((x.shape[0], -1)), y.tile((1, -1))


rms_norm = tile.function(tile.make(by_rows, rms, (T(2), T(1), T(2)), kernel_name="rms_norm"))
BM, BN, BK = block_size(), block_size(), block_size()


def linear_arrangement(x: T, w: T, bias: T, residual: T, y: T) -> Any:
  tiles = matmul_example.arrangement(x, w, y)
  size = tiles[2].dtype.shape
  return *tiles[:2], bias.unsqueeze(0).tile((1, size[1])).expand((tiles[2].shape[0], -1)), residual.tile(size), tiles[2]


def linear_relu(x: Any, w: Any, bias: Any, residual: Any, y: Any) -> None:
  accumulator = tl.zeros(y.shape, dtype=tl.float32)
  for k in range(x.shape[0]): accumulator += tl.dot(x[k], w[k])
  y = tl.maximum(accumulator + bias, 0.0) + residual


linear = tile.function(tile.make(linear_arrangement, linear_relu, (T(2), T(2), T(1), T(2), T(2)), kernel_name="linear"),
                       outputs={"y": "residual"})
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[tuple[int, ...]], tuple[Any, ...]]] = {
  "softmax": (softmax, lambda x: x.softmax(-1), [(5, 33)], ()),
  "layer_norm": (layer_norm, lambda x, w, b, eps: x.layer_norm((x.shape[-1],), w, b, eps), [(7, 50), (50,), (50,)], (1e-5,)),
  "rotary": (rotary, rotary_code, [(2, 7, 3, 16), (7, 8), (7, 8)], ()),
  "gelu with bias": (biased_gelu, lambda x, b: (x + b).gelu(approximate="none"), [(13, 37), (37,)], ()),
  "rms norm": (rms_norm, lambda x, w: x / ((x * x).mean(1, keepdim=True) + 1e-6).sqrt() * w, [(6, 41), (41,)], ()),
  "matmul": (matmul, lambda a, b: a @ b, [(33, 17), (17, 70)], ()),
  "matmul with an epilogue": (linear, lambda x, w, b, r: (x @ w + b).relu() + r, [(19, 70), (70, 33), (33,), (19, 33)], ()),
  "convolution": (conv2d, lambda x, w: x.conv2d(w), [(2, 3, 9, 10), (5, 3, 3, 2)], ()),
  "max pooling": (lambda x: max_pool2d(x, WINDOW_H=3, WINDOW_W=3), lambda x: x.max_pool2d(3, stride=2), [(2, 3, 13, 17)], ()),
  "flash attention": (attention, attention_code, [(1, 2, 40, 16)] * 3, (0.25,))}


@pytest.mark.parametrize("name", long_unless(lambda name: name not in ("convolution", "flash attention"), CASES))
def test_gradients_are_those_of_tensor_code(name: str) -> None:
  fn, like, shapes, rest = CASES[name]
  check(fn, like, *[leaf(*s) for s in shapes], *rest)


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "rotary", "rms norm"])
def test_in_float64(name: str) -> None:
  fn, like, shapes, rest = CASES[name]
  check(fn, like, *[leaf(*s, dtype=np.float64) for s in shapes], *rest, tol=1e-12)


def test_half_precision_sums_in_float32() -> None:
  def row(x: Any, y: Any) -> None: y = (x * tl.sum(x.to(tl.float32), axis=1, keep_dims=True)).to(tl.float16)
  fn = tile.function(tile.make(lambda x, y: (x.tile((1, -1)), y.tile((1, -1))), row, (T(2), T(2))))
  check(fn, lambda x: x * x.sum(1, keepdim=True), leaf(3, 40, dtype=np.float16), tol=4e-3)


@long
def test_the_same_as_kernels_that_are_written_for_it() -> None:
  xs = *[leaf(1, 2, 50, 16) for _ in range(3)], 0.25
  def first(fn: Any) -> list[Array]: return gradients(lambda *xs: fn(*xs)[0], xs)   # the others' have none for the second
  for a, b in zip(first(attention), first(flash_example.attention), strict=True): np.testing.assert_allclose(a, b, 1e-4, 1e-4)


# ---- where elements come from

def elementwise(arrangement: Callable[..., Any], *ndim: int, outputs: Any = None) -> Any:
  def application(x: Any, y: Any) -> None: y = tl.exp(x) * x
  return tile.function(tile.make(arrangement, application, [T(n) for n in ndim], kernel_name="moved"), outputs=outputs)


def like_moved(move: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]: return lambda x: move(x).exp() * move(x)


def test_movement() -> None:
  check(elementwise(lambda x, y: (x.permute((1, 0)).tile((4, 3)), y.tile((4, 3))), 2, 2,
                    outputs={"y": lambda x: x.shape[::-1]}), like_moved(lambda x: x.transpose(0, 1)), leaf(7, 10))
  check(elementwise(lambda x, y: (x.flip(0).tile((4,)), y.tile((4,))), 1, 1), like_moved(lambda x: x.flip(0)), leaf(10))
  check(elementwise(lambda x, y: (x[2:9].tile((4,)), y.tile((4,))), 1, 1, outputs={"y": lambda x: (7,)}),
        like_moved(lambda x: x[2:9]), leaf(10))
  check(elementwise(lambda x, y: (x.pad(((2, 3),)).tile((4,)), y.tile((4,))), 1, 1, outputs={"y": lambda x: (15,)}),
        like_moved(lambda x: x.pad((2, 3))), leaf(10))
  check(elementwise(lambda x, y: (x[::3].tile((2,)), y.tile((2,))), 1, 1,
                    outputs={"y": lambda x: (4,)}), like_moved(lambda x: x[::3]), leaf(10))


@pytest.mark.parametrize("stride, dilation", [(1, 1), (2, 1), (3, 2), (1, 4)])
def test_windows_that_overlap_add_up(stride: int, dilation: int) -> None:
  """In a fixed order: the same bits each time."""
  def total(x: Any, y: Any) -> None: y = tl.sum(x * x * x, axis=0, keep_dims=True)
  def count(x: Any) -> int: return int((x.shape[0] - 2 * dilation - 1) // stride + 1)
  def arrangement(x: T, y: T) -> Any: return x.tile((3,), (stride,), (dilation,), floor_mode=True), y.tile((1,))
  fn = tile.function(tile.make(arrangement, total, (T(1), T(1))), outputs={"y": lambda x: (count(x),)})
  def code(x: Tensor) -> Tensor:
    a, b, c = ((x * x * x)[w * dilation:w * dilation + stride * (count(x) - 1) + 1:stride] for w in range(3))
    return a + b + c
  x = leaf(23)
  check(fn, code, x)
  np.testing.assert_array_equal(gradients(fn, [x]), gradients(fn, [x]))


def test_grouped_heads_share_their_keys() -> None:
  """An index that is divided: four heads of queries read one of keys."""
  def scores(q: Any, k: Any, y: Any) -> None: y = tl.sum(q * k, axis=1, keep_dims=True)
  def arrangement(q: T, k: T, y: T) -> Any:
    k = k.unsqueeze(1).expand((-1, 4, -1)).flatten(end_dim=2)
    return q.tile((1, -1)), k.tile((1, -1)), y.tile((1, 1))
  fn = tile.function(tile.make(arrangement, scores, (T(2), T(2), T(2))), outputs={"y": lambda q, k: (q.shape[0], 1)})
  check(fn, lambda q, k: (q.reshape(3, 4, 10) * k.reshape(3, 1, 10)).sum(-1).reshape(12, 1), leaf(12, 10), leaf(3, 10))


def test_an_index_that_is_no_movement() -> None:
  """A diagonal is read by its places."""
  def twice(x: Any, y: Any) -> None: y = tl.sum(x.source[tl.program_id(0), tl.program_id(0)] * x.source[tl.program_id(0), 0])
  fn = tile.function(tile.make(lambda x, y: (x.tile((1, -1)).squeeze(1), y), twice, (T(2), T(1))),
                     outputs={"y": lambda x: (x.shape[0],)})
  check(fn, lambda x: x[np.arange(6), np.arange(6)] * x[:, 0], leaf(6, 6))


# ---- statements

def test_conditions_and_loops_are_written_out() -> None:
  def carried(x: Any, y: Any) -> None:
    state = x * 0
    for i in range(5): state = tl.sin(state + x) * (i + 1)
    if tl.program_id(0) % 2 == 0: state = state * state
    else: state = state + x
    y = state
  fn = tile.function(tile.make(lambda x, y: (x.tile((4,)), y.tile((4,))), carried, (T(1), T(1))))
  def code(x: Tensor) -> Tensor:
    state = x * 0
    for i in range(5): state = (state + x).sin() * (i + 1)
    return Tensor(np.arange(14) // 4 % 2 == 0).where(state * state, state + x)
  check(fn, code, leaf(14))


@pytest.mark.parametrize("name", "log1p expm1 asin acos atan asinh acosh atanh erfc erfinv lgamma sinh cosh".split())
def test_a_function_made_of_bits_has_its_own_slope(name: str) -> None:
  def function(x: Any, w: Any, y: Any) -> None: y = getattr(tl.libdevice, name)(x) * w  # noqa: F841
  fn = tile.function(tile.make(lambda *xs: tuple(x.tile((4,)) for x in xs), function, (T(1),) * 3))
  at = np.array([1.5, 2.5, 5.0, 1.25, 3.0] if name in ("acosh", "lgamma") else [-0.75, 0.5, 0.0, 0.25, -0.5], np.float32)
  with config(dev="NUMPY"): check(fn, lambda x, w: getattr(x, name)() * w, Tensor(at, requires_grad=True), leaf(5))


@pytest.mark.parametrize("name", ["atan2", "hypot", "fmod", "copysign"])
def test_a_function_of_two_made_of_bits_has_its_own_slopes(name: str) -> None:
  def function(x: Any, w: Any, y: Any) -> None: y = getattr(tl.libdevice, name)(x, w)  # noqa: F841
  fn = tile.function(tile.make(lambda *xs: tuple(x.tile((4,)) for x in xs), function, (T(1),) * 3))
  with config(dev="NUMPY"): check(fn, lambda x, w: getattr(x, name)(w), leaf(5), leaf(5))


def test_a_sum_that_is_corrected_on_the_way() -> None:
  """An online softmax along tiles of a number of elements: each round is written out."""
  def online(x: Any, y: Any) -> None:
    greatest, total = tl.full((1,), float("-inf")), tl.zeros((1,))
    for k in range(x.shape[0]):
      new = tl.maximum(greatest, tl.max(x[k], axis=0, keep_dims=True))
      total = total * tl.exp(greatest - new) + tl.sum(tl.exp(x[k] - new), axis=0, keep_dims=True)
      greatest = new
    y = greatest + tl.log(total)
  def arrangement(x: T, y: T) -> Any:
    x = x.tile((1, 8)).tile((1, -1)).squeeze(1)
    x.dtype = x.dtype.squeeze(0)
    x.dtype.dtype = x.dtype.dtype.squeeze(0)
    return x, y.tile((1,))
  fn = tile.function(tile.make(arrangement, online, (T(2, other=float("-inf")), T(1))), outputs={"y": lambda x: (x.shape[0],)})
  check(fn, lambda x: x.logsumexp(-1), leaf(3, 29))


@pytest.mark.parametrize("formula, makes_none", [
  ("e / tl.sum(e, axis=1, keep_dims=True)", True), ("m + tl.log(tl.sum(e, axis=1, keep_dims=True)) - x", True),
  ("tl.sqrt(e) / tl.sqrt(tl.sum(e * x, axis=1, keep_dims=True))", True), ("(x - m) * 2 + m * 2", True), ("e", False),
  ("x - m", False), ("e / tl.sum(e * e, axis=1, keep_dims=True)", False), ("tl.where(x > m - 1, x, 0.0)", False),
  ("tl.where(x > 0, e, 0.0) / tl.sum(e, axis=1, keep_dims=True)", True), ("e + 1 - e", False)])
def test_an_extreme_that_makes_no_difference(formula: str, makes_none: bool, tmp_path: Path) -> None:
  """It is found where the gradient through it is zero, and only there."""
  (file := tmp_path / "formula.py").write_text("import ntgrad.tile.language as tl\ndef application(x, y):\n  "
    f"m = tl.max(x, axis=1, keep_dims=True)\n  e = tl.exp(x - m)\n  y = {formula} + x * 0\n")
  space: dict[str, Any] = {}
  exec(compile(file.read_text(), str(file), "exec"), space)
  kernel = tile.make(lambda x, y: (x.tile((1, -1)), y.tile((1, -1))), space["application"], (T(2), T(2)))
  like = Argument((3, 5), dtypes.float32)
  derived, _ = Derivations(kernel).find({"x": like, "y": like}, {})
  assert bool(derived.fixed[0]) is makes_none


def test_what_is_stored_last_counts() -> None:
  def again(x: Any, y: Any) -> None:
    y = x * x
    if tl.program_id(0) > 0: y = x * 3
  fn = tile.function(tile.make(lambda x, y: (x.tile((4,)), y.tile((4,))), again, (T(1), T(1))))
  check(fn, lambda x: Tensor(np.arange(10) < 4).where(x * x, x * 3), leaf(10))


# ---- several outputs and inputs

def split(x: Any, w: Any, total: Any, product: Any) -> None:
  total = x + w
  product = x * w


def fours(*xs: T) -> Any: return tuple([x.tile((4,)) for x in xs])


splitting = tile.function(tile.make(lambda x, w, total, product: fours(x, w, total, product), split, (T(1),) * 4),
                          outputs={"total": "x", "product": "x"})


def test_several_outputs() -> None:
  xs = leaf(10), leaf(10)
  check(splitting, lambda x, w: (x + w, x * w), *xs)
  check(lambda *xs: splitting(*xs)[1], lambda x, w: x * w, *xs)      # nothing depends on the other
  check(lambda *xs: splitting(*xs)[0] * splitting(*xs)[1], lambda x, w: (x + w) * x * w, *xs)
  check(lambda x: splitting(x, x), lambda x: (x + x, x * x), leaf(10))
  check(lambda *xs: checkpoint(lambda x, w: splitting(x * 2, w)[1].sin(), *xs), lambda x, w: (x * 2 * w).sin(), *xs)


def test_inputs_that_need_none_and_that_have_none() -> None:
  def scaled(x: Any, places: Any, factor: Any, y: Any) -> None: y = x * places * factor
  fn = tile.function(tile.make(lambda x, places, factor, y: (*fours(x, places), factor, y.tile((4,))), scaled,
                               (T(1), T(1), T(0), T(1)), kernel_name="scaled"))
  x, places = leaf(10), np.arange(10, dtype=np.int32)
  check(fn, lambda x, places, factor: x * places * factor, x, Tensor(places), 2.5)
  check(fn, lambda x, places, factor: x * places * factor, x, Tensor(places), leaf())
  check(lambda x: fn(x, places, 2), lambda x: x * Tensor(places) * 2, x)
  wide = tile.function(tile.make(lambda x, places, factor, y: (*fours(x, places), factor, y.tile((4,))), scaled,
                                 (T(1), T(1), T(0, dtype="float64"), T(1)), kernel_name="wide"),
                       outputs={"y": lambda x, *_: (x.shape, "float64")})
  check(lambda x: wide(x + 1, places, 2), lambda x: (x.double() + 1) * Tensor(places) * 2, x)   # a number of a declared dtype
  plain = x.detach()
  assert not fn(plain, places, 2).requires_grad
  weight = leaf(10)
  assert len(gradients(splitting, (plain, weight))) == 1
  asked, = (fn(plain, places, 2) * weight.detach()).sum().gradient(plain)   # of one that requires none
  np.testing.assert_allclose(asked.numpy(), (weight.detach() * Tensor(places) * 2).numpy())
  none = Tensor(np.zeros(0, np.float32), requires_grad=True)
  assert splitting(none, none)[1].sum().gradient(none)[0].shape == (0,)


def test_values_that_were_there_at_the_call_count() -> None:
  x, w = leaf(10), leaf(10)
  y, kept = splitting(x, w)[1], x.detach().numpy().copy()
  with ntgrad.no_grad(): x.assign(x * 0 + 5)
  try: y.sum().backward()
  except GradientError as e: assert "overwritten" in str(e)   # its memory is gone
  else: np.testing.assert_allclose(w.grad.numpy(), kept)


FACTOR = 2.0


def test_what_the_application_reads_may_change() -> None:
  def times(x: Any, y: Any) -> None: y = x * x * FACTOR
  fn, x = tile.function(tile.make(lambda x, y: fours(x, y), times, (T(1), T(1)))), leaf(6)
  first = fn(x).sum()
  for value in (2.0, 3.0):
    globals()["FACTOR"] = value
    np.testing.assert_allclose(fn(x).sum().gradient(x)[0].numpy(), 2 * value * x.detach().numpy(), rtol=1e-6)
  np.testing.assert_allclose(first.gradient(x)[0].numpy(), 4 * x.detach().numpy(), rtol=1e-6)   # as it was at the call


# ---- sizes, captures, lazy calls

def test_one_gradient_serves_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
  """It is derived once, and compiles nothing for the third size."""
  fn = tile.function(layer_norm_example.layer_norm)
  def run(m: int, n: int) -> None:
    xs = leaf(m, n), leaf(n), leaf(n)
    got = [g.numpy() for g in fn(*xs, 1e-5).sum().gradient(*xs)]
    want = [g.numpy() for g in xs[0].layer_norm((n,), *xs[1:], 1e-5).sum().gradient(*xs)]
    for a, b in zip(got, want): np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
  for sizes in ((40, 50), (44, 60), (36, 52)): run(*sizes)
  (known,) = fn.derivations.known.values()
  assert len(known.forms) == 1 and not known.exact
  def derived(*_: Any) -> Any: raise AssertionError("derived again")
  monkeypatch.setattr("ntgrad.tile.derived_gradient.form_of", derived)
  run(33, 70)


def test_a_gradient_compiles_nothing_for_a_third_size(monkeypatch: pytest.MonkeyPatch) -> None:
  def run(n: int) -> Array:
    x = Tensor(np.ones((n, 20), np.float32), requires_grad=True)
    return np.asarray(biased_gelu(x, Tensor(np.ones(20, np.float32))).sum().gradient(x)[0].numpy())
  first = [run(n) for n in (50, 70)]
  def never(*_: Any) -> Any: raise AssertionError("nothing is compiled")
  monkeypatch.setattr(type(get_device("CPU")), "compile", never)
  for n in (60, 55, 50): np.testing.assert_allclose(run(n), first[0][:1].repeat(n, 0))


@long
def test_captured() -> None:
  w = leaf(20)
  def loss(x: Tensor) -> Tensor: return (rms_norm(x * 2, w) * x).sum()
  step = ntgrad.jit(lambda x: [g.realize() for g in ntgrad.autograd.grad(loss(x), [x, w])])
  sized = ntgrad.jit(dynamic={"x": (0,)})(lambda x: [g.realize() for g in ntgrad.autograd.grad(loss(x), [x, w])])
  for _ in range(4):
    x = leaf(6, 20)
    for a, b in zip(step(x), ntgrad.autograd.grad(loss(x), [x, w])): np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-5, 1e-5)
  for n in (6, 8, 9, 17, 5):
    x = leaf(n, 20)
    for a, b in zip(sized(x), ntgrad.autograd.grad(loss(x), [x, w])): np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-5, 1e-5)


@long
def test_sizes_of_variables() -> None:
  whole, n = leaf(64, 20).detach().realize(), Variable("n", 1, 64)
  for size in (10, 20, 7):
    x, w = whole[:n.bind(size)].detach().requires_grad_(True), leaf(20)
    got = [g.numpy() for g in rms_norm(x, w).sum().gradient(x, w)]
    y = whole[:size].detach().requires_grad_(True)
    want = [g.numpy() for g in rms_norm(y, w).sum().gradient(y, w)]
    for a, b in zip(got, want): np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_among_lazy_tensors() -> None:
  """Neither the call nor its gradient computes anything before somebody asks."""
  x = leaf(6, 20).realize()
  y = softmax(x.tanh() + 1)
  (y * y).sum().backward()
  assert not x.grad.lazydata.op.name == "BUFFER"
  z = x.detach().double().requires_grad_(True)
  ((z.tanh() + 1).softmax(-1) ** 2).sum().backward()
  np.testing.assert_allclose(x.grad.numpy(), z.grad.numpy(), rtol=1e-4, atol=1e-6)


# ---- what has no rule

def refused(application: Callable[..., Any], line: str, says: str, *shapes: tuple[int, ...], arrangement: Any = None) -> None:
  """A call whose gradient is needed is refused with the line that says ``line``; without gradients it runs."""
  names = list(inspect.signature(application).parameters)
  fn = tile.function(tile.make(arrangement or (lambda *xs: fours(*xs)), application, [T(len(s)) for s in shapes] + [T(1)]))
  xs = [leaf(*s) for s in shapes]
  lines, begin = inspect.getsourcelines(application)
  at = begin + next(i for i, s in enumerate(lines) if line in s)
  with pytest.raises(GradientError, match=rf"{application.__name__}: .*{says}.*test_tile_gradient.py:{at}\)") as e: fn(*xs)
  assert "give tile.function a backward kernel, or call it under no_grad()" in str(e.value) and names
  with ntgrad.no_grad(): fn(*xs).numpy()


def test_refusals() -> None:
  def in_place(x: Any, y: Any) -> None:
    z = x * 2
    y = y + z
  refused(in_place, "y = y + z", "y, which is read and written", (10,))

  def atomic(x: Any, y: Any) -> None:
    tl.atomic_add(y, x)
  refused(atomic, "tl.atomic_add", "an atomic", (10,))

  def halved(x: Any, y: Any) -> None:
    z = x * 1.0
    while tl.max(z) > 1.0:
      z = z / 2
    y = z
  refused(halved, "z = z / 2", "a loop whose end the kernel computes", (10,))

  def running(x: Any, y: Any) -> None:
    y = tl.cumsum(x, axis=0)
  refused(running, "tl.cumsum", "a running sum", (10,))

  def combined(x: Any, y: Any) -> None:
    y = x * tl.reduce(x, 0, lambda a, b: a + b)
  refused(combined, "tl.reduce", "a reduction or scan by any function", (10,))

  def ordered(x: Any, y: Any) -> None:
    y = tl.sort(x)
  refused(ordered, "tl.sort", "a sort", (8,))

  def looked_up(x: Any, y: Any) -> None:
    places = (x * 0).to(tl.int32)
    y = x.source[places]
  refused(looked_up, "x.source[places]", "x at computed places", (10,))

  def put(x: Any, y: Any) -> None:
    places = (x * 0).to(tl.int32)
    y.source[places] = x
  refused(put, "y.source[places]", "y", (10,))

  def long_loop(x: Any, y: Any) -> None:
    z = x
    for _ in range(100):
      z = tl.sin(z)
    y = z
  refused(long_loop, "tl.sin", "a loop of 100 rounds", (10,))


def test_elements_that_several_programs_write() -> None:
  def same(x: Any, y: Any) -> None:
    y = x * 0
  refused(same, "y = x", "elements of y that several programs write", (10,),
          arrangement=lambda x, y: (x.tile((4,)), y.tile((4,), (1,))[:3]))


def test_gradients_of_gradients_are_refused_by_name() -> None:
  def cube(x: Any, y: Any) -> None: y = x * x * x
  def cube_backward(x: Any, grad_y: Any, grad_x: Any) -> None: grad_x = 3 * x * x * grad_y
  kernel = tile.make(lambda x, y: fours(x, y), cube, (T(1), T(1)))
  written = tile.make(lambda x, grad_y, grad_x: fours(x, grad_y, grad_x), cube_backward, (T(1),) * 3)
  x = leaf(10)
  for fn in (tile.function(kernel), tile.function(kernel, written)):
    slope, = ntgrad.autograd.grad(fn(x).sum(), [x], create_graph=True)
    np.testing.assert_allclose(slope.numpy(), 3 * x.detach().numpy() ** 2, rtol=1e-6)
    with pytest.raises(GradientError, match="cube: a gradient of its gradient"): ntgrad.autograd.grad((slope * slope).sum(), [x])


# ---- random applications

UNARY = {"exp": lambda t: t.exp(), "sin": lambda t: t.sin(), "sqrt": lambda t: t.sqrt(), "sigmoid": lambda t: t.sigmoid()}


def random_application(seed: int) -> tuple[Any, Callable[..., Tensor]]:
  """A kernel of a matrix, a row and a column, and the same in tensor code."""
  rng, lines, values = np.random.default_rng(seed), list[str](), ["x", "row", "column"]
  code: list[tuple[str, ...]] = []
  for n in range(int(rng.integers(3, 8))):
    a, b, name = rng.choice(values), rng.choice(values), f"v{n}"
    match rng.integers(4):
      case 0: code.append((name, "binary", str(rng.choice(["+", "-", "*"])), a, b))
      case 1: code.append((name, "unary", str(rng.choice(["exp", "sin", "sigmoid"])), a))
      case 2: code.append((name, "reduce", str(rng.choice(["sum", "max"])), a))
      case 3: code.append((name, "where", a, b))
    match code[-1]:
      case (_, "binary", op, p, q): lines.append(f"{name} = ({p} {op} {q}) * 0.5")
      case (_, "unary", fn, p): lines.append(f"{name} = tl.{fn}(tl.minimum({p}, 2.0))")
      case (_, "reduce", fn, p): lines.append(f"{name} = tl.{fn}({p} + x * 0, axis=1, keep_dims=True) * 0.1")
      case (_, "where", p, q): lines.append(f"{name} = tl.where({p} > {q}, {p}, {q} * 0.3)")
    values.append(name)
  return lines, lambda x, row, column: run_code(code, x, row, column)


def run_code(code: list[tuple[str, ...]], x: Tensor, row: Tensor, column: Tensor) -> Tensor:
  known = {"x": x, "row": row.reshape(1, -1), "column": column.reshape(-1, 1)}
  for step in code:
    match step:
      case (name, "binary", op, a, b):
        p, q = known[a], known[b]
        known[name] = (p + q if op == "+" else p - q if op == "-" else p * q) * 0.5
      case (name, "unary", fn, a): known[name] = UNARY[fn](known[a].minimum(2.0))
      case (name, "reduce", fn, a):
        known[name] = getattr(known[a] + x * 0, "sum" if fn == "sum" else "amax")(1, keepdim=True) * 0.1
      case (name, "where", a, b): known[name] = (known[a] > known[b]).where(known[a], known[b] * 0.3)
  return known[code[-1][0]] + (x + known["row"] + known["column"]) * 0.1


def random_arrangement(rng: np.random.Generator) -> Callable[..., Any]:
  """Programs with some rows each, which they have whole."""
  rows = int(rng.integers(1, 5))
  def arrangement(x: T, row: T, column: T, y: T) -> Any:
    x, y = x.tile((rows, -1)), y.tile((rows, -1))
    return x, row.unsqueeze(0).tile((1, -1)).expand((x.shape[0], -1)), column.unsqueeze(1).tile((rows, 1)), y
  return arrangement


@pytest.mark.parametrize("seed", [*range(2), *[pytest.param(n, marks=long) for n in range(2, 16)]])
def test_random_applications(seed: int, tmp_path: Path) -> None:
  rng = np.random.default_rng(seed)
  lines, code = random_application(seed)
  file = tmp_path / f"application_{seed}.py"
  last = lines[-1].split(" = ")[0]
  body = [*lines, f"y = {last} + (x + row + column) * 0.1", ""]
  file.write_text("\n  ".join(["import ntgrad.tile.language as tl\ndef application(x, row, column, y):", *body]))
  space: dict[str, Any] = {}
  exec(compile(file.read_text(), str(file), "exec"), space)
  kernel = tile.make(random_arrangement(rng), space["application"], (T(2), T(1), T(1), T(2)), kernel_name=f"random{seed}")
  fn = tile.function(kernel)
  m, n = int(rng.integers(1, 12)), int(rng.integers(1, 12))
  check(fn, code, leaf(m, n), leaf(n), leaf(m), tol=1e-4)
