"""Functions whose gradient is written by hand, and checkpoints: the same values and gradients, in the graph and under a jit."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ntgrad
from ntgrad import Tensor, nn
from ntgrad.errors import ArgumentError, GradientError
from ntgrad.graph.alias import values
from ntgrad.nn.utils.checkpoint import checkpoint
from ntgrad.schedule import create_schedule
from support.marks import long_where

rng = np.random.default_rng(0)


def rand(*shape: int) -> np.ndarray: return rng.standard_normal(shape).astype(np.float32)


def close(got: Any, want: Any, tolerance: float = 1e-5) -> None:
  want = want.numpy() if isinstance(want, Tensor) else np.asarray(want)
  assert got.shape == want.shape
  np.testing.assert_allclose(got.numpy(), want, rtol=tolerance, atol=tolerance)


class Exp(ntgrad.Function):
  @staticmethod
  def forward(ctx: Any, x: Tensor) -> Tensor:
    y = x.exp()
    ctx.save_for_backward(y)
    return y
  @staticmethod
  def backward(ctx: Any, gradient: Tensor) -> Tensor:
    y, = ctx.saved_tensors
    return gradient * y


def test_a_function_in_the_gradient_of_a_function() -> None:
  """Gradients of gradients go through it too."""
  class Squared(ntgrad.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
      ctx.save_for_backward(x)
      return x * x
    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor: return gradient * Doubled.apply(ctx.saved_tensors[0])
  class Doubled(ntgrad.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor: return x * 2
    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor: return gradient * 2
  x = Tensor([1.0, 3.0], requires_grad=True)
  first, = Squared.apply(x).sum().gradient(x)
  assert first.tolist() == [2, 6] and first.sum().gradient(x)[0].tolist() == [2, 2]


class MulDiv(ntgrad.Function):
  """Two results, a number among the arguments, the gradient of which is wrong on purpose by ``scale``."""
  @staticmethod
  def forward(ctx: Any, x: Tensor, y: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    ctx.save_for_backward(x, y)
    ctx.scale = scale
    return x * y, x / y
  @staticmethod
  def backward(ctx: Any, product: Tensor, quotient: Tensor) -> tuple[Any, Any, None]:
    x, y = ctx.saved_tensors
    gx = (product * y + quotient / y) * ctx.scale if ctx.needs_input_grad[0] else None
    gy = (product * x - quotient * x / (y * y)) * ctx.scale if ctx.needs_input_grad[1] else None
    return gx, gy, None


@pytest.mark.parametrize("device", ["NUMPY", "CPU"])
def test_function(device: str) -> None:
  a = rand(3, 4)
  x = Tensor(a, requires_grad=True, device=device)
  y = Exp.apply(x)
  assert y.requires_grad and y.lazydata.op.name == "DETACH" and y.lazydata not in values   # nothing has run
  (y * y).sum().backward()
  close(y, np.exp(a))
  close(x.grad, 2 * np.exp(a) ** 2, 1e-4)


def test_function_of_several() -> None:
  a, b = rand(3), rand(3) + 4
  x, y = Tensor(a, requires_grad=True), Tensor(b, requires_grad=True)
  p, q = MulDiv.apply(x, y, 10.0)
  (p.sin() + q).sum().backward()
  close(x.grad, 10 * (np.cos(a * b) * b + 1 / b), 1e-4)
  close(y.grad, 10 * (np.cos(a * b) * a - a / b**2), 1e-4)
  x.grad = None
  MulDiv.apply(x, Tensor(b), 1.0)[1].sum().backward()   # of the product nothing comes; the divisor needs none
  close(x.grad, 1 / b)
  with ntgrad.no_grad(): assert not Exp.apply(x).requires_grad
  assert not Exp.apply(Tensor(a)).requires_grad


def test_gradients_at_tensors_that_require_none() -> None:
  """``gradient(x)`` may ask at any tensor; ``backward`` is told which arguments it is asked for."""
  a, b = rand(3), rand(3) + 4
  x, y = Tensor(a), Tensor(b)
  p, q = MulDiv.apply(x * 2, y, 10.0)
  assert not p.requires_grad and not q.requires_grad
  close((p + q).sum().gradient(x)[0], 20 * (b + 1 / b), 1e-4)
  asked: list[Any] = []
  class Product(MulDiv):
    @staticmethod
    def backward(ctx: Any, product: Tensor, quotient: Tensor) -> tuple[Any, Any, None]:
      asked.append(ctx.needs_input_grad)
      return MulDiv.backward(ctx, product, quotient)
  for leaf in (x, Tensor(a, requires_grad=True)): close(Product.apply(leaf, y, 1.0)[0].sum().gradient(leaf)[0], b)
  assert asked == [(True, False, False)] * 2
  again = checkpoint(lambda t: (t * t).exp(), x)
  assert not again.requires_grad
  close(again.sum().gradient(x)[0], 2 * a * np.exp(a * a), 1e-4)
  with ntgrad.no_grad(): close(Exp.apply(x).sum().gradient(x)[0], a * 0)   # no gradient goes through it


def test_function_used_twice() -> None:
  a = rand(4)
  x = Tensor(a, requires_grad=True)
  Exp.apply(Exp.apply(x) * 0.1 + Exp.apply(x) * 0.2).sum().backward()
  close(x.grad, np.exp(0.3 * np.exp(a)) * 0.3 * np.exp(a), 1e-4)


def test_function_gradients_of_gradients() -> None:
  a, b = rand(4), rand(4) + 3
  x, y = Tensor(a, requires_grad=True), Tensor(b, requires_grad=True)
  z = Exp.apply(x)
  g, = (z * z).sum().gradient(x)
  g.sum().backward()
  close(x.grad, 4 * np.exp(2 * a), 1e-4)
  x.grad = None
  g, = MulDiv.apply(x, y, 1.0)[0].square().sum().gradient(x)   # 2 x y²
  g.sum().backward()
  close(x.grad, 2 * b * b, 1e-4)
  close(y.grad, 4 * a * b, 1e-4)


def test_function_values_realised_between() -> None:
  a = rand(4)
  x = Tensor(a, requires_grad=True)
  y = Exp.apply(x * 2)
  y.realize()
  z = y.sum()
  z.realize()
  z.backward()
  close(x.grad, 2 * np.exp(2 * a), 1e-4)


def test_function_under_jit() -> None:
  w = Tensor(rand(4), requires_grad=True).realize()
  @ntgrad.jit
  def step(x: Tensor) -> tuple[Any, Any]:
    w.grad = None
    p, q = MulDiv.apply(Exp.apply(w), x, 2.0)
    loss = (p + q * checkpoint(lambda t: t.sin().exp(), w)).sum()
    loss.backward()
    return loss.realize(), w.grad.realize()
  for _ in range(4):
    b = rand(4) + 3
    loss, g = step(Tensor(b).realize())
    a = w.numpy()
    e, s = np.exp(a), np.exp(np.sin(a))
    close(loss, (e * b + e / b * s).sum(), 1e-4)
    close(g, 2 * (b + s / b) * e + e / b * s * np.cos(a), 1e-4)


def test_function_with_a_context_of_its_own_step() -> None:
  class Square(ntgrad.Function):
    @staticmethod
    def forward(x: Tensor) -> Any: return x * x, x.argmax()   # type: ignore[override]
    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
      ctx.save_for_backward(*inputs)
      ctx.mark_non_differentiable(output[1])
      ctx.set_materialize_grads(False)
    @staticmethod
    def backward(ctx: Any, gradient: Any, none: Any) -> Any:
      assert none is None
      return 2 * ctx.saved_tensors[0] * gradient
  x = Tensor(a := rand(3), requires_grad=True)
  y, at = Square.apply(x)
  assert at.item() == a.argmax()
  y.sum().backward()
  close(x.grad, 2 * a)


def test_function_refusals() -> None:
  class Wrong(ntgrad.Function):
    gives: Any = None
    @staticmethod
    def forward(ctx: Any, x: Tensor, n: Any) -> Any: return x * 2 if n else n
    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any: return Wrong.gives
  x = Tensor(rand(3), requires_grad=True)
  with pytest.raises(ArgumentError, match="forward gives 0, expected Tensors"): Wrong.apply(x, 0)
  for gives, said in ((x, "gives 1 gradients, forward takes 2"), ((x.sum(), None), r"argument 0 is one of shape \(\)"),
                      ((3, None), "argument 0 is 3")):
    Wrong.gives = gives
    with pytest.raises(GradientError, match=said): Wrong.apply(x, 1).sum().backward()
  with pytest.raises(ArgumentError, match="without forward"): ntgrad.Function.apply(x)


# ---- checkpoints
def block(x: Tensor, w: Tensor) -> Tensor: return x.dot(w).tanh().dropout(0.5).dot(w).relu() + x


@long_where(lambda device: device != "NUMPY")
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("device", ["NUMPY", "CPU"])
def test_checkpoint(device: str, training: bool) -> None:
  a, b = rand(5, 6), rand(6, 6) / 3
  found = []
  for kept in (False, True):
    Tensor.manual_seed(7)
    x, w = Tensor(a, requires_grad=True, device=device), Tensor(b, requires_grad=True, device=device)
    with Tensor.train(training):
      y = x * 2
      for _ in range(3): y = block(y, w) if kept else nn.checkpoint(block, y, w)
    (y * y).sum().backward()
    found.append((y.numpy(), x.grad.numpy(), w.grad.numpy()))
  for got, want in zip(*found): np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_checkpoint_what_is_not_an_argument() -> None:
  """Weights that ``fn`` knows by itself, also through what was computed before, get their gradients."""
  a, b = rand(4, 4), rand(4, 4)
  grads = []
  for fn in (lambda f, x: f(x), checkpoint):
    x, w = Tensor(a, requires_grad=True), Tensor(b, requires_grad=True)
    before = w.sin()
    out = fn(lambda t: {"y": (t.dot(before).tanh(), t.sum()), "n": 3}, x * 1)  # noqa: B023
    assert out["n"] == 3
    (out["y"][0].square().sum() * out["y"][1] + before.sum()).backward()
    grads.append((x.grad.numpy(), w.grad.numpy()))
  for got, want in zip(*grads): np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_checkpoint_in_a_checkpoint_and_again() -> None:
  a = rand(6)
  def inner(x: Tensor) -> Tensor: return Exp.apply(x.sin()).square()
  def outer(x: Tensor) -> Any: return checkpoint(inner, x * 2).tanh() + Exp.apply(x)
  results = []
  for fn in (outer, lambda x: checkpoint(outer, x)):
    x = Tensor(a, requires_grad=True)
    y = fn(x)
    g, = (y * y * y).sum().gradient(x)
    g.square().sum().backward()   # gradients of gradients
    results.append((y.numpy(), g.numpy(), x.grad.numpy()))
  for got, want in zip(*results): np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


def test_checkpoint_keeps_less() -> None:
  """What lies between is not read by the backward kernels, but made again by kernels that come after the gradient from above."""
  def deep(x: Tensor, w: Tensor) -> Tensor:
    for _ in range(4): x = x.dot(w).tanh()
    return x
  def made(fn: Any) -> tuple[int, Tensor]:
    x, w = Tensor.ones(64, 64).contiguous().realize(), Tensor.rand(64, 64, requires_grad=True).realize()
    y = fn(deep, x * 1, w)
    y = fn(deep, y, w)
    y.square().sum().backward()
    return len(create_schedule([y, w.grad])), w.grad
  plain, want = made(lambda f, *args: f(*args))
  again, got = made(checkpoint)
  assert again > plain + 4
  assert got.shape == want.shape


def test_checkpoint_of_layers_that_have_a_recipe() -> None:
  """From their second call on they are made by it (nn/recipes.py): gradients go on to their weights."""
  layers, x = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4)), Tensor(rand(3, 4), requires_grad=True)
  found = []
  for call in (layers, layers, lambda x: checkpoint(layers, x), lambda x: checkpoint(layers, x)):
    for p in (x, *layers.parameters()): p.grad = None
    call(x * 2).sin().sum().backward()
    found.append([p.grad for p in (x, *layers.parameters())])
  for grads in found[1:]:
    for a, b in zip(found[0], grads): close(a, b)


def test_checkpoint_replayed() -> None:
  """Random numbers are other ones in each replay, and the same in both computations of a call."""
  w = Tensor(np.ones((32, 32), np.float32), requires_grad=True).realize()
  @ntgrad.jit
  @Tensor.train()
  def step(x: Tensor) -> tuple[Any, Any]:
    w.grad = None
    y = checkpoint(lambda t: (t * w).dropout(0.5), x)
    y.sum().backward()
    return y.realize(), w.grad.realize()
  x = Tensor.ones(32, 32).contiguous().realize()
  seen = set()
  for _ in range(4):
    y, g = step(x)
    close(y, g)
    seen.add(y.numpy().tobytes())
  assert len(seen) == 4
