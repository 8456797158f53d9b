"""Names and behaviours of tinygrad: each case gives the same by itself and, where tinygrad is installed, there."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any, Callable

import numpy as np
import pytest

import ntgrad
from ntgrad import Tensor, TinyJit, Variable, dtypes, nn
from ntgrad.errors import ArgumentError, AssignError, ConfigError, DTypeError, GradientError, ShapeError
from ntgrad.helpers import Context
from ntgrad.nn import optim, state
from support.marks import long_half

Case = Callable[[Any], Any]


def arange(t: Any, *shape: int) -> Any: return t.Tensor(np.arange(np.prod(shape), dtype=np.float32).reshape(shape))


def seen(x: Any) -> tuple[tuple[int, ...], str, Any]:
  return tuple(x.shape), str(x.dtype).removeprefix("dtypes."), rounded(x.tolist())


def rounded(v: Any) -> Any: return [rounded(x) for x in v] if isinstance(v, list) else round(v, 4)


# ---- what is done, given a library
def training(t: Any) -> Any:
  w = t.Tensor([1.0, 2.0])
  with t.leaves(), t.Context(TRAINING=1):
    w = t.Tensor([1.0, 2.0])
    o = t.optim.SGD([w], 0.1)
    w.sum().backward()
    o.step()
    dropped = t.Tensor.ones(1000).dropout(0.5).numpy().min()
  return rounded(w.tolist()), dropped, t.Tensor.ones(10).dropout(0.5).tolist() == [1.0] * 10


def is_param(t: Any) -> Any:
  a, b = t.Tensor([1.0, 2.0]).is_param_(False), t.Tensor([3.0]).is_param_()
  o = t.optim.SGD([a, b], 0.1)
  return a.is_param, b.is_param, len(o.params), len(o.buffers), t.Tensor([1]).is_param_().is_param


def decorated(t: Any) -> Any:
  @t.function
  def f(a: Any, b: Any) -> Any: return a + b

  class Layer:
    def __init__(self) -> None: self.w = t.Tensor([10.0, 20.0])
    @t.function(precompile=True)
    def __call__(self, x: Any) -> Any: return x * self.w, x + self.w

  with t.leaves(): x, y = t.Tensor([1.0, 2.0]), t.Tensor([3.0, 4.0])
  layer = Layer()
  product, total = layer(x)
  (f(x, y) * 2 + product).sum().backward()
  return rounded(x.grad.tolist()), rounded(y.grad.tolist()), total.tolist(), f(x, y).tolist()


def replaced(t: Any) -> Any: return seen(t.Tensor([1, 2, 3]).replace(t.Tensor([1.5, 2.0, 3.0])))


def volumes(t: Any) -> Any:
  conv, back = t.nn.Conv2d(2, 3, (2, 3, 1), padding=1), t.nn.ConvTranspose2d(2, 4, (2, 2, 2), stride=2)
  line, x = t.nn.Conv2d(2, 3, (3,)), arange(t, 1, 2, 4, 4, 4)
  return conv.weight.shape, conv(x).shape, back(x).shape, line(arange(t, 1, 2, 5)).shape


def unused(t: Any) -> Any:
  with t.leaves(): x, y = t.Tensor([1.0, 2.0]), t.Tensor([[3.0], [4.0]])
  a, b = (x * x).sum().gradient(x, y)
  return seen(a), seen(b + y.detach() * 0)


def with_gradient(t: Any) -> Any:
  with t.leaves(): x = t.Tensor([1.0, 2.0, 3.0])
  (found,) = (x * x).sum().gradient(x, gradient=t.Tensor([3.0]))
  (x * x).backward(t.Tensor([3.0, 3.0, 3.0]))
  return [found.tolist(), x.grad.tolist()]


def all_leaves(t: Any) -> Any:
  with t.leaves():
    x, w, skipped = t.Tensor([[1.0, 2.0]]), t.Tensor.ones(2, 3), t.Tensor.rand(2)
    hidden = (x @ w).relu()
    (hidden * t.Tensor([1.0, 2.0, 3.0])).sum().backward()
  return x.grad.tolist(), w.grad.tolist(), skipped.grad


def by_hand(t: Any) -> Any:
  """Steps by hand, on a tensor that nobody has called a leaf."""
  with t.leaves():
    w, x = t.Tensor([1.0, 2.0]), t.Tensor([3.0, 4.0])
    for _ in range(2):
      w.grad = None
      (w * x).sum().backward()
      w.assign(w.detach() - 0.5 * w.grad).realize()
    return w.tolist()


def sized(t: Any) -> Any:
  x = t.Tensor([[1, 0, 2], [0, 0, 3]])
  mask = x != 0
  return (
    *(seen(x.nonzero(size=n, fill_value=fill)) for n, fill in ((5, -1), (2, 0), (0, 0))),
    *(seen(x.masked_select(mask, size=n, fill_value=9)) for n in (5, 2, 0)),
    seen(t.Tensor([[1.0], [2.0]]).masked_select(t.Tensor([[True], [False]]), size=3)),
  )


def kept(t: Any) -> Any:
  floats, ints = t.Tensor([1.0, 2.0]), t.Tensor([1, 2])
  return [seen(x + floats) for x in (t.Tensor.full((2,), 3.0, buffer=False), t.Tensor.zeros(2, buffer=False),
                                     t.Tensor.ones(2, buffer=True))] + [
    seen(x + ints) for x in (ints.full_like(4, buffer=False), ints.zeros_like(buffer=False), ints.ones_like(buffer=False))]


def wide_products(t: Any) -> Any:
  a, b = [arange(t, *s).cast("float16") for s in ((2, 3), (3, 2))]
  image, kernel = arange(t, 1, 1, 2, 3), arange(t, 1, 1, 2, 2)
  return [seen(x) for x in (
    a.matmul(b, dtype="float32"), a.dot(b, dtype=t.dtypes.float32), a.linear(b, dtype="float32"),
    a.linear(b, t.Tensor([1.0, 2.0]).cast("float16"), dtype="float32"), t.Tensor.einsum("ij,jk->ik", a, b, dtype="float32"),
    image.cast("float16").conv2d(kernel.cast("float16"), dtype="float32"), image.conv2d(kernel, dtype="float16"))]


def loaded(t: Any) -> Any:
  to, given = t.nn.Linear(2, 3), {k: v * 0 + 2 for k, v in t.state.get_state_dict(t.nn.Linear(2, 3)).items()}
  more = {**given, "bias": given["bias"] + 1}
  t.state.load_state_dict(to, given, verbose=False, consume=True)
  first = to.weight.tolist()
  t.state.load_state_dict(to, more, verbose=False, realize=False)
  return sorted(given), sorted(more), first, to.bias.tolist()


def dtype_names(t: Any) -> Any:
  d = t.dtypes
  return ([str(x) for x in (d.fp8e4m3, d.fp8e5m2, *d.uints, *d.sints)], d.fp8e4m3 in d.fp8s, d.int8 in d.uints,
          d.is_bool(d.bool), d.is_bool(d.int8))


def bound(t: Any) -> Any:
  v = t.Variable("v", 1, 8)
  n = v.bind(3)
  x = arange(t, 10)
  variable, value = n.unbind()
  return ((x[:n + 1].sum() * 1).item(), x[n * 2].item(), x[n:n + 2].tolist(), (x[:3] * (n * 2 - 1)).tolist(), v.vmin, v.vmax,
          v.expr, variable.expr, int(value), x.shrink(((0, n // 2),)).sum().item())


def pruned(t: Any) -> Any:
  c = t.Tensor([1.0, 2.0]).contiguous().realize()
  @t.TinyJit(prune=True)
  def f(x: Any) -> Any: return (x + (c * 2 + 1)).realize()
  return [f((t.Tensor([0.0, 1.0]) + k).contiguous().realize()).tolist() for k in range(4)]


def written_wide(t: Any) -> Any:
  x = arange(t, 2, 3)
  return [seen(x.assign(v)) for v in (t.Tensor([1.0, 2.0, 3.0]), t.Tensor([[4.0], [5.0]]), 6.0, [7.0, 8.0, 9.0])]


def twice(t: Any) -> Any:
  with t.leaves(), t.Context(TRAINING=1):
    w = t.Tensor([0.0, 1.0])
    o = t.optim.Adam([w, w], lr=0.1)
    (w * 2).sum().backward()
    o.step()
  return len(o.params), o.device == w.device, rounded(w.tolist())


def cached(t: Any) -> Any:
  """A cache that an argument brings and a layer with weights writes, in a step that calls no backward."""
  layer = t.nn.Linear(2, 2)
  layer.weight.assign(t.Tensor([[1.0, 0.0], [0.0, 2.0]])).realize()
  layer.bias.assign(t.Tensor([0.5, 0.0])).realize()
  cache, v = t.Tensor.zeros(4, 2).contiguous().realize(), t.Variable("v", 0, 3)
  @t.TinyJit
  def step(x: Any, cache: Any, at: Any) -> Any:
    cache[at:at + 1] = layer(x)
    return (cache.sum(0) * 1).realize()
  return [step(t.Tensor([[1.0, i]]).contiguous().realize(), cache, v.bind(i)).tolist() for i in range(4)]


def interpolated(t: Any) -> Any:
  return [rounded(arange(t, 1, 1, *s).interpolate(size, mode="linear", align_corners=corners).flatten().tolist())
          for s, size in (((3,), (5,)), ((2, 2), (3, 4)), ((2, 2, 1), (3, 2, 2))) for corners in (False, True)]


MATRIX = [[0.0, 1.0, 2.0], [3.0485873, 4.0485873, 5.0485873]]
CASES: dict[str, tuple[Case, Any]] = {
  "Context(TRAINING=1)": (training, ([0.9, 1.9], 0.0, True)),
  "reshape(None)": (lambda t: [x.shape for x in (arange(t, 2, 6).reshape(None, 2, 3), arange(t, 2, 6).reshape((None, -1)),
                                                arange(t, 2, 6).view(None, 6))], [(2, 2, 3), (2, 6), (2, 6)]),
  "is_param_": (is_param, (False, True, 1, 1, True)),
  "function": (decorated, ([12.0, 22.0], [2.0, 2.0], [11.0, 22.0], [4.0, 6.0])),
  "replace": (replaced, ((3,), "float", [1.5, 2.0, 3.0])),
  "binary_crossentropy": (lambda t: [seen(x) for x in (
    arange(t, 2, 3).binary_crossentropy_logits(t.Tensor([0.0, 1.0, 1.0])),
    t.Tensor([0.0, 1.0, 1.0]).binary_crossentropy_logits((arange(t, 2, 3) + 1) / 8),
    arange(t, 2, 3).binary_crossentropy_logits(t.Tensor([[0.0], [1.0]]), reduction="sum", pos_weight=t.Tensor([1.0, 2.0, 3.0])),
    ((arange(t, 2, 3) + 1) / 8).binary_crossentropy(t.Tensor([0.0, 1.0, 1.0])))],
    [((), "float", 0.7011), ((), "float", 0.7732), ((), "float", 4.2384), ((), "float", 0.6586)]),
  "Conv2d": (volumes, ((3, 2, 2, 3, 1), (1, 3, 5, 4, 6), (1, 4, 8, 8, 8), (1, 3, 3))),
  "interpolate": (interpolated, [
    [0.0, 0.4, 1.0, 1.6, 2.0], [0.0, 0.5, 1.0, 1.5, 2.0],
    [0.0, 0.25, 0.75, 1.0, 1.0, 1.25, 1.75, 2.0, 2.0, 2.25, 2.75, 3.0],
    [0.0, 0.3333, 0.6667, 1.0, 1.0, 1.3333, 1.6667, 2.0, 2.0, 2.3333, 2.6667, 3.0],
    [0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 3.0, 3.0],
    [0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 3.0, 3.0]]),
  "gradient of what is not used": (unused, (((2,), "float", [2.0, 4.0]), ((2, 1), "float", [[0.0], [0.0]]))),
  "gradient=": (with_gradient, [[6.0, 12.0, 18.0], [6.0, 12.0, 18.0]]),
  "ALL_LEAVES": (all_leaves, ([[6.0, 6.0]], [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]], None)),
  "ALL_LEAVES, steps by hand": (by_hand, [-2.0, -2.0]),
  "size=": (sized, (
    ((5, 2), "int", [[0, 0], [0, 2], [1, 2], [-1, -1], [-1, -1]]), ((2, 2), "int", [[0, 0], [0, 2]]), ((0, 2), "int", []),
    ((5,), "int", [1, 2, 3, 9, 9]), ((2,), "int", [1, 2]), ((0,), "int", []), ((3,), "float", [1.0, 0.0, 0.0]))),
  "clone(device)": (lambda t: [(y := arange(t, 2)).clone(y.device).device == y.device, seen(y.clone(device=None))],
                    [True, ((2,), "float", [0.0, 1.0])]),
  "buffer=": (kept, [((2,), "float", [4.0, 5.0]), ((2,), "float", [1.0, 2.0]), ((2,), "float", [2.0, 3.0]), ((2,), "int", [5, 6]),
                     ((2,), "int", [1, 2]), ((2,), "int", [2, 3])]),
  "dtype= of products": (wide_products, [
    *[((2, 2), "float", [[10.0, 13.0], [28.0, 40.0]])] * 3, ((2, 2), "float", [[11.0, 15.0], [29.0, 42.0]]),
    ((2, 2), "float", [[10.0, 13.0], [28.0, 40.0]]), ((1, 1, 1, 2), "float", [[[[19.0, 25.0]]]]),
    ((1, 1, 1, 2), "half", [[[[19.0, 25.0]]]])]),
  "load_state_dict": (loaded, ([], ["bias", "weight"], [[2.0, 2.0]] * 3, [3.0] * 3)),
  "dtypes": (dtype_names, ([f"dtypes.{n}" for n in "fp8e4m3 fp8e5m2 uchar ushort uint ulong char short int long".split()],
                           True, False, True, False)),
  "Variable": (bound, (6.0, 6.0, [3.0, 4.0], [0.0, 5.0, 10.0], 1, 8, "v", "v", 3, 0.0)),
  "TinyJit(prune=)": (pruned, [[3.0, 6.0], [4.0, 7.0], [5.0, 8.0], [6.0, 9.0]]),
  "assign": (written_wide, [((2, 3), "float", v) for v in (
    [[1.0, 2.0, 3.0]] * 2, [[4.0] * 3, [5.0] * 3], [[6.0] * 3] * 2, [[7.0, 8.0, 9.0]] * 2)]),
  "Adam([w, w])": (twice, (1, True, [-0.1, 0.9])),
  "logcumsumexp()": (lambda t: seen(arange(t, 2, 3).logcumsumexp()), ((2, 3), "float", rounded(MATRIX))),
  "a cache in a step": (cached, [[1.5, 0.0], [3.0, 2.0], [4.5, 6.0], [6.0, 12.0]]),
}


def here() -> Any:
  return SimpleNamespace(Tensor=Tensor, nn=nn, dtypes=ntgrad.dtypes, Context=Context, optim=optim, state=state, TinyJit=TinyJit,
                         Variable=Variable, function=ntgrad.function, leaves=lambda: Context(ALL_LEAVES=1))


@pytest.mark.parametrize("name", long_half(CASES))
def test_by_itself(name: str) -> None:
  case, expected = CASES[name]
  assert case(here()) == expected


@pytest.mark.parametrize("name", CASES)
def test_beside_tinygrad(name: str) -> None:
  tinygrad: Any = pytest.importorskip("tinygrad")
  case, expected = CASES[name]
  there = SimpleNamespace(**{n: getattr(tinygrad, n) for n in "Tensor nn dtypes Context TinyJit Variable function".split()},
                          optim=tinygrad.nn.optim, state=tinygrad.nn.state, leaves=contextlib.nullcontext)
  with tinygrad.Context(DEV="PYTHON"): assert case(there) == expected


# ---- results as there
def test_idiv_rounds_to_zero() -> None:
  x, y = Tensor([-4, 7, 5, 4, -7, 8]), Tensor([2, -3, 8, -2, 3, 5])
  assert x.idiv(y).tolist() == [-2, -2, 0, -2, -2, 1] and (x // y).tolist() == [-2, -3, 0, -2, -3, 1]
  assert Tensor([-7.5, 7.5]).idiv(2).tolist() == [-3, 3] and Tensor([2, -2]).idiv(-7, True).tolist() == [-3, 3]
  assert Tensor(-5).idiv(2).item() == Tensor(-5).contiguous().idiv(2).item() == -2
  assert Tensor([2 ** 64 - 1], dtype="uint64").idiv(1).item() == 2 ** 64 - 1
  with pytest.raises(ArgumentError, match="divided by 0"): x.idiv(0)


def test_assign_casts_within_a_category_and_to_one_above() -> None:
  x, n = Tensor.zeros(3, 5).contiguous(), Tensor([1, 2], dtype="int32")
  assert x.assign(Tensor.arange(5)).tolist() == [[0, 1, 2, 3, 4]] * 3 and x.dtype == dtypes.float32
  n.assign(n * n.sum())   # the sum is int64
  assert n.dtype == dtypes.int32 and n.tolist() == [3, 6]
  with pytest.raises(AssignError, match="cast it first"): n.assign(Tensor([1.5, 2.5]))
  with pytest.raises(AssignError, match="cast it first"): Tensor([True]).assign(Tensor([1]))


def test_a_convolution_cuts_off_negative_padding() -> None:
  x, w = Tensor(np.arange(60.0, dtype=np.float32).reshape(1, 2, 5, 6), requires_grad=True), Tensor.rand(3, 2, 2, 3)
  for padding, part in ((-1, x[:, :, 1:-1, 1:-1]), ((-1, 0, -1, 0), x[:, :, 1:, 1:]),
                        ((-2, 1, 0, 1), x[:, :, :, 2:].pad((0, 1, 0, 1)))):
    got, want = x.conv2d(w, padding=padding), part.conv2d(w)
    np.testing.assert_allclose(got.numpy(), want.numpy(), 1e-5)
    np.testing.assert_allclose(got.sum().gradient(x)[0].numpy(), want.sum().gradient(x)[0].numpy(), 1e-5)


def test_windows_of_no_elements() -> None:
  x = Tensor.arange(27.0).reshape(3, 3, 3)
  assert x.unfold(1, 0, 8).shape == (3, 1, 3, 0) and x.unfold(0, 0, 1).shape == (4, 3, 3, 0)


def test_images_of_bytes_are_interpolated() -> None:
  x = Tensor([[[[0, 10], [20, 255]]]], dtype="uint8")
  assert x.interpolate((2, 4), mode="linear").tolist() == [[[[0, 3, 8, 10], [20, 79, 196, 255]]]]
  assert x.interpolate((1, 1), mode="bilinear").tolist() == [[[[72]]]]   # of 5 and 138, which 137.5 is rounded to
  wide = x.interpolate((5, 5), mode="bicubic")
  assert wide.dtype == dtypes.uint8 and wide[0, 0, 0, 0].item() == 0 and wide[0, 0, 4, 4].item() == 255   # kept within
  with pytest.raises(DTypeError, match="int32 with mode 'linear'"): x.int().interpolate((2, 4), mode="linear")


# ---- what is said, and what goes further than there
def test_settings_that_are_not_here_warn_once() -> None:
  with pytest.warns(UserWarning, match="SURELY_NOT is no setting here and changes nothing"):
    with Context(SURELY_NOT=1, DEBUG=0): pass
  with Context(SURELY_NOT=2): pass   # warnings are errors in tests
  with pytest.raises(ConfigError, match="TRAINING is 'on', expected 0 or 1"): Context(TRAINING="on")
  with pytest.raises(ConfigError):
    with Context(TRAINING=1, DEBUG=99): pass
  assert not Tensor.training

  @Context(TRAINING=1)
  def trained() -> bool: return Tensor.training
  assert trained() and not Tensor.training
  with Context(TRAINING=1):
    with Context(TRAINING=0): assert not Tensor.training
    assert Tensor.training


@pytest.mark.parametrize(("code", "kind", "text"), [
  (lambda: ntgrad.function(lambda x: x, grad_fxn=print), ArgumentError, "write the gradient as ntgrad.Function has it"),
  (lambda: ntgrad.function(3), ArgumentError, "function: 3; it takes a function"),
  (lambda: Variable("n", 1, 4) + 1, ArgumentError, r"has no value yet; compute with a value of it: n.bind\(1\)"),
  (lambda: (Variable("n", 1, 4).bind(2) + 1).unbind(), ArgumentError, "unbind: 3 is no Variable's value"),
  (lambda: Tensor([1.0, 2.0]).replace(Tensor([1.0])), AssignError, r"replace: shape \(1,\) in place of \(2,\)"),
  (lambda: Tensor([1.0], requires_grad=True).replace(Tensor([1])), GradientError, "replace: dtypes.int in place of dtypes.float"),
  (lambda: Tensor([1.0, 2.0]).assign(Tensor.ones(2, 2)), AssignError, "does not fit a tensor of shape"),
  (lambda: (Tensor([1.0, 2.0], requires_grad=True) * 2).backward(gradient=Tensor.ones(3)), GradientError, "that broadcasts to"),
  (lambda: Tensor.ones(2, 3).binary_crossentropy_logits(Tensor.ones(2)), ShapeError, "binary_crossentropy_logits"),
  (lambda: state.load_state_dict([], tuple({}.items()), consume=True), ArgumentError, "state_dict"),
  (lambda: Tensor.ones(1, 1, 2, 2, 2, 2).interpolate((3, 3, 3, 3), mode="linear"), ShapeError, "being 1 or 2 or 3"),
  (lambda: nn.Conv2d(1, 1, (2, 2, 2, 2)), ArgumentError, "kernel_size"),
  (lambda: nn.Conv3d(1, 1, (2, 2)), ArgumentError, "kernel_size"),
  (lambda: optim.SGD([{"params": [w := Tensor([1.0])]}, {"params": [w]}]), ArgumentError, "is in two groups; give each once")])
def test_said(code: Case, kind: type[Exception], text: str) -> None:
  with pytest.raises(kind, match=text): code()  # type: ignore[call-arg]


def test_gradients_that_broadcast() -> None:
  x = Tensor(np.ones((2, 3), np.float32), requires_grad=True)
  assert (x * 2).gradient(x, gradient=Tensor([1.0, 2.0, 3.0]))[0].tolist() == [[2, 4, 6]] * 2
  (x * 2).backward(gradient=Tensor(1.0))
  assert x.grad.tolist() == [[2] * 3] * 2


def test_a_selection_of_a_size_in_a_captured_function() -> None:
  @TinyJit
  def picked(x: Tensor) -> tuple[Tensor, Tensor]: return x.masked_select(x > 1, size=2).realize(), x.nonzero(size=2).realize()
  for k in range(4):
    found, places = picked(Tensor([0.0, 2.0 + k, 0.5, 3.0]))
    assert found.tolist() == [2 + k, 3] and places.tolist() == [[1], [2]]
  w = Tensor([1.0, 2.0, 3.0], requires_grad=True)
  w.masked_select(Tensor([True, False, True]), size=3, fill_value=7).square().sum().backward()
  assert w.grad.tolist() == [2, 0, 6]
  assert [t.tolist() for t in Tensor([[0, 1], [1, 0]]).nonzero(as_tuple=True, size=3)] == [[0, 1, 0], [1, 0, 0]]


def test_gradients_are_read_after_replays() -> None:
  """A gradient that nobody realises in the step, in one that is the argument itself, and one that is computed."""
  w, v = [Tensor([1.0, 2.0], requires_grad=True) for _ in range(2)]
  @TinyJit
  def step(x: Tensor) -> Tensor:
    w.grad = v.grad = None
    ((w * x).sum() + (v * x).square().sum()).backward()
    return x.sum().realize()
  for k in range(1, 6):
    step(Tensor([1.0 * k, 3.0 * k]))
    assert w.grad.tolist() == [k, 3 * k] and v.grad.tolist() == [2 * k * k, 36 * k * k]


def test_gradients_are_added_up_by_replays() -> None:
  """What a step finds in ``.grad`` it adds to, whoever made it: an earlier step, or somebody who sets it to zeros by writing."""
  w = Tensor([1.0, 2.0], requires_grad=True)
  @TinyJit
  def step(x: Tensor) -> Tensor:
    for part in (x, x * 2): (w * part).sum().backward()
    return x.sum().realize()
  total = np.zeros(2)
  for k in range(1, 7):
    if k == 5:
      w.grad.assign(Tensor.zeros(2)).realize()
      total[:] = 0
    step(Tensor([1.0 * k, 2.0]))
    total += [3 * k, 6]
    assert w.grad.tolist() == total.tolist()


def test_all_leaves_is_of_what_the_line_makes() -> None:
  with Context(ALL_LEAVES=1):
    made = [Tensor([1.0]), Tensor.rand(2), Tensor.glorot_uniform(2, 2), Tensor([1.0]).zeros_like(), ntgrad.ones(2), Tensor.eye(2)]
    assert all(t.requires_grad and t.is_leaf for t in made)
    others = [Tensor([1]), Tensor([1.0], requires_grad=False), Tensor.zeros(2, dtype="int32"), nn.BatchNorm(2).running_mean]
    assert not any(t.requires_grad for t in others)
    x, y = Tensor.zeros(3), Tensor([1.0, 2.0, 3.0])
    x += 1   # still a leaf: nothing else is in it
    assert x.is_leaf and x.tolist() == [1, 1, 1]
    x[0] = y[1] * 2   # a result from here on
    assert not x.is_leaf
    x.sum().backward()
    assert y.grad.tolist() == [0, 2, 0] and x.grad is None
    data, layer = Tensor([[1.0, 2.0]]), nn.Linear(2, 1)
    o = optim.SGD([layer.weight, layer.bias], 0.1)
    @TinyJit
    def step(x: Tensor) -> Tensor:
      o.zero_grad()
      loss = layer(x).square().sum()
      loss.backward()
      o.step()
      return loss.realize()
    losses = [step(data + 0).item() for _ in range(4)]
    assert losses == sorted(losses, reverse=True) and losses[0] > losses[-1]
  assert Tensor([1.0]).requires_grad is None


