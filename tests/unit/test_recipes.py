"""Gradients of a structure, and results of methods, that were met before are made without rules, and are the same nodes."""
from __future__ import annotations

import inspect
import threading
from typing import Any, Callable
from unittest.mock import patch

import numpy as np
import pytest

import ntgrad
from ntgrad import Tensor, config, nn, no_grad
from ntgrad.codegen.ir import Ops, toposort
from ntgrad.engine import realize
from ntgrad.errors import DTypeError
from ntgrad.graph.alias import next_look
from ntgrad.graph.recipes import SIGNATURES, Recipe, nothing_computed
from ntgrad.nn import functional as F
from ntgrad.tensor import gradient
from ntgrad.tensor.normalising import Normalising
from support.same_recipes import calls_compared, recipes_compared

RNG = np.random.default_rng(0)


def leaf(*shape: int, dtype: str = "float32", requires_grad: bool | None = True) -> Tensor:
  return Tensor(RNG.standard_normal(shape).astype(dtype), device="NUMPY", requires_grad=requires_grad)


def without_rules(fn: Callable[[], Any]) -> bool:
  """Whether a function finds gradients by recipes alone."""
  with patch.object(gradient, "gradients", side_effect=gradient.gradients) as rules:
    fn()
    return not rules.called


def net(x: Tensor, w: Tensor, scale: float = 0.5) -> Tensor: return ((x @ w).relu() * scale).softmax(-1).max(axis=1).sum()


def step(x: Tensor, w: Tensor, scale: float = 0.5, **how: Any) -> None: net(x, w, scale).backward(**how)


def test_no_rule_is_asked_from_the_second_time_on() -> None:
  asked = [without_rules(lambda: step(leaf(3, 7), leaf(7, 5))) for _ in range(5)]
  assert asked == [False, True, True, True, True]
  x, w = leaf(3, 7), leaf(7, 5)
  loss = net(x, w)
  with patch.object(gradient, "gradients", None): loss.backward()
  got = x.grad.numpy(), w.grad.numpy()
  gradient._recipes.clear()
  x.grad = w.grad = None
  loss.backward()
  assert np.array_equal(got[0], x.grad.numpy()) and np.array_equal(got[1], w.grad.numpy())


def test_numbers_that_change_fill_no_table() -> None:
  gradient._recipes.clear()
  for i in range(50): step(leaf(3, 7), leaf(7, 5), 0.5 + i / 128)
  by_constants, = gradient._recipes.values()
  assert len(by_constants) + len(by_constants.older) <= 2 * gradient.CONSTANTS


# what another gradient depends on, beside the structure that ``net`` has
OTHERS: dict[str, Callable[[], Any]] = {
  "another dtype": lambda: step(leaf(3, 7, dtype="float64"), leaf(7, 5, dtype="float64")),
  "another shape": lambda: step(leaf(4, 7), leaf(7, 5)),
  "one leaf": lambda: step(leaf(3, 7, requires_grad=None), leaf(7, 5)),
  "the other leaf": lambda: step(leaf(3, 7), leaf(7, 5, requires_grad=None)),
  "a leaf twice": lambda: step(x := leaf(5, 5), x),
  "a leaf's part alone": lambda: step(x := leaf(3, 7), leaf(7, 5), inputs=[x]),
  "another number": lambda: step(leaf(3, 7), leaf(7, 5), 0.25),
  "no factor at all": lambda: step(leaf(3, 7), leaf(7, 5), 1.0),
  "detached": lambda: step(leaf(3, 7).exp().detach(), leaf(7, 5)),
  "another gradient above": lambda: step(leaf(3, 7), leaf(7, 5), gradient=Tensor(2.0, device="NUMPY")),
}


@pytest.mark.parametrize("other", OTHERS)
def test_another_recipe(other: str) -> None:
  for _ in range(3): step(leaf(3, 7), leaf(7, 5))
  with recipes_compared() as searches: OTHERS[other]()
  assert searches == [True]
  gradient._recipes.clear()
  for _ in range(3): step(leaf(3, 7), leaf(7, 5))
  assert not without_rules(OTHERS[other])


def test_parts_without_gradients_and_writes_between() -> None:
  def parts(part: bool, write: bool) -> Any:
    x, w = leaf(3, 7), leaf(7, 5)
    if part:
      with no_grad(): h = x.exp()
    else: h = x.exp()
    h = h * 2.0
    if write: h[1:] = h[1:] * h[:2]
    with recipes_compared() as searches: net(h, w).backward()
    assert searches == [True]
    return (None if x.grad is None else x.grad.shape), w.grad.shape
  for _ in range(2):
    for part in (False, True):
      for write in (False, True): assert parts(part, write) == (None if part else (3, 7), (7, 5))


def test_a_node_that_happens_to_be_one_that_rules_make() -> None:
  """``x == greatest`` is in the graph already, where the gradient of the maximum makes it: elsewhere another mask is there."""
  def masked(mask: Callable[[Tensor, Tensor], Tensor]) -> Any:
    x = Tensor([1.0, 5.0, 2.0, 5.0], device="NUMPY", requires_grad=True)
    greatest = x.max(axis=0, keepdim=True)
    (mask(x, greatest).where(x, 0.0).sum() + greatest.sum() * 3).backward()
    return x.grad.tolist()
  for _ in range(3): assert masked(lambda x, greatest: x == greatest) == [0.0, 2.5, 0.0, 2.5]
  for _ in range(3): assert masked(lambda x, greatest: x < 3) == [1.0, 1.5, 1.0, 1.5]


def test_gradients_of_gradients_and_of_any_tensor() -> None:
  for i in range(4):
    x, w = leaf(3, 7), leaf(7, 5)
    h = x @ w
    def search(h: Tensor = h, x: Tensor = x, w: Tensor = w) -> None:
      gx, gh = h.tanh().sum().gradient(x, h)
      (gx * gx).sum().backward()
      assert gh.shape == h.shape and x.grad is not None and w.grad is not None
    assert without_rules(search) == (i > 0)
  with recipes_compared() as searches: search()
  assert searches == [True, True]


def test_a_function_is_asked_each_time() -> None:
  calls = []
  class Twice(ntgrad.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any: return x * 2
    @staticmethod
    def backward(ctx: Any, *g: Any) -> Any:
      calls.append(1)
      return g[0] * 2
  x = leaf(3)
  for _ in range(4): Twice.apply(x).sum().backward()
  assert len(calls) == 4


def test_a_gradient_has_the_line_of_what_it_is_a_gradient_of() -> None:
  def at(w: Tensor) -> tuple[set[Any], set[Any]]:
    x = leaf(3, 7)
    h = x @ w
    y = h.tanh()
    y.sum().backward()
    call = w.grad.lazydata.src[0]
    nodes = [u for u in toposort(call.arg.made(call)) if u.origin is not None and len(u.origin) == 4]
    assert nodes
    return {u.origin[:3] for u in nodes}, {t.lazydata.origin for t in (h, y)}
  with config(origins=1):
    for _ in range(4):
      of_gradients, of_values = at(leaf(7, 5))
      assert of_values <= of_gradients


def test_layers() -> None:
  model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 8),
                        nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3))
  model.to("NUMPY")
  with recipes_compared() as searches:
    for _ in range(2): model(leaf(2, 2, 8, 8)).log_softmax(-1).mean().backward()
  assert searches == [True, True]


# ---- methods
def bodies(fn: Callable[[], Any], kind: Any, name: str) -> int:
  """How often a method is asked for what it does, by its own body."""
  with patch.object(kind, name, side_effect=getattr(kind, name), autospec=True) as method:
    fn()
    return method.call_count


def test_what_is_held_of_a_recording_is_in_nobody_s_way(monkeypatch: pytest.MonkeyPatch) -> None:
  """Somebody who is called while a recipe is recorded may keep what he was given."""
  held, linear = [], Tensor.linear
  monkeypatch.setattr(Tensor, "linear", lambda x, *more: held.append(x) or linear(x, *more))
  layer = nn.Linear(15, 11).to("NUMPY")   # of sizes that no other test has
  for _ in range(4): assert np.isfinite(layer(leaf(2, 15)).sum().exp().numpy()).all()
  assert len(held) == 2 and "float32" in repr(held)


def test_a_method_does_its_work_twice() -> None:
  layer = nn.Linear(14, 13).to("NUMPY")   # of sizes that no other test has
  assert [bodies(lambda: layer(leaf(2, 14)), Tensor, "linear") for _ in range(4)] == [1, 1, 0, 0]
  assert bodies(lambda: layer(leaf(5, 14)), Tensor, "linear") == 1


CALLS: dict[str, Callable[[], Any]] = {
  "linear": lambda: F.linear(leaf(2, 4), leaf(3, 4), leaf(3)),
  "linear without a bias": lambda: F.linear(leaf(2, 4), leaf(3, 4)),
  "the same tensor three times": lambda: F.linear(x := leaf(4, 4), x, leaf(4)),
  "a bias that is of the product": lambda: F.linear(x := leaf(4, 4), w := leaf(4, 4), (x @ w.T)[0]),
  "a constant bias": lambda: F.linear(leaf(2, 4), leaf(3, 4), Tensor.zeros(3, device="NUMPY")),
  "no gradient": lambda: F.linear(leaf(2, 4, requires_grad=None), leaf(3, 4, requires_grad=None)),
  "a transposed weight": lambda: F.linear(leaf(2, 4), leaf(4, 3).T),
  "names": lambda: F.linear(leaf(2, 4).named("n", "c"), leaf(3, 4)),
  "float16": lambda: F.linear(leaf(2, 4, dtype="float16"), leaf(3, 4, dtype="float16")),
  "layer_norm": lambda: leaf(2, 4).layer_norm((4,), leaf(4), leaf(4)),
  "layer_norm of a list": lambda: leaf(2, 4).layer_norm([2, 4]),
  "conv2d": lambda: F.conv2d(leaf(2, 4, 6, 6), leaf(6, 2, 3, 3), leaf(6), padding=1, groups=2),
  "conv2d without a batch": lambda: F.conv2d(leaf(4, 6, 6), leaf(6, 4, 3, 3), stride=2, padding="valid"),
  "cross_entropy": lambda: F.cross_entropy(leaf(3, 5), Tensor([0, 4, 2], device="NUMPY"), label_smoothing=0.1),
  "cross_entropy with weights": lambda: F.cross_entropy(leaf(3, 5), Tensor([0, 4, 2], device="NUMPY"), leaf(5), reduction="sum"),
  "gelu": lambda: leaf(3, 5, dtype="float16").gelu(), "gelu exactly": lambda: leaf(3, 5).gelu(approximate="none"),
  "silu": lambda: leaf(3, 5, dtype="float16").silu(),
  "mse_loss": lambda: F.mse_loss(leaf(3, 5), leaf(3, 5)),
  "bce of a constant": lambda: F.binary_cross_entropy_with_logits(leaf(3, 5), Tensor.ones(3, 5, device="NUMPY")),
  "leaky_relu": lambda: leaf(3, 5).leaky_relu(0.2), "elu of named arguments": lambda: leaf(3, 5).elu(alpha=0.5),
  "softplus": lambda: leaf(3, 5, dtype="float16").softplus(beta=2.0), "mish": lambda: leaf(3, 5).mish()}


def test_constants_are_of_a_call() -> None:
  """Another constant, which is folded otherwise, has another recipe."""
  x = leaf(3, 5)
  for _ in range(4):
    got = [F.mse_loss(x, Tensor.full((3, 5), c, device="NUMPY")).item() for c in (0.0, 1.0, 0.25)]
    want = [np.square(x.numpy() - np.float32(c)).mean() for c in (0.0, 1.0, 0.25)]
    assert np.allclose(got, want, rtol=1e-6)


def test_gradients_do_not_pass_gradients() -> None:
  """What backward() leaves is a number for what is made of it, whether by rules or by a recipe."""
  for _ in range(4):
    w = leaf(4, 4)
    (w.tanh() @ w).square().sum().backward()
    g, w.grad = w.grad, None
    (g * w).sum().backward()
    assert np.array_equal(w.grad.numpy(), g.numpy())


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
  with calls_compared() as called:
    for _ in range(3): CALLS[name]()
    with no_grad(): CALLS[name]()
  assert len(called) >= 4


def test_batch_norm_moves_its_statistics() -> None:
  layers = [nn.BatchNorm2d(3, momentum=m).to("NUMPY").train() for m in (0.1, 0.1)]
  class Own(nn.BatchNorm2d):
    def calc_stats(self, x: Tensor) -> tuple[Tensor, Tensor]: return super().calc_stats(x)
  layers.append(Own(3).to("NUMPY").train())
  for _ in range(4):
    x = leaf(2, 3, 4, 4, requires_grad=None)
    values = [[layer(x).numpy(), layer.running_mean.numpy(), layer.running_var.numpy(), layer.num_batches_tracked.numpy()]
              for layer in layers]
    for other in values[1:]: assert all(np.array_equal(a, b) for a, b in zip(values[0], other, strict=True))


def test_methods_of_a_class_of_its_own_are_asked() -> None:
  class Mine(Tensor):
    def dot(self, w: Any, dtype: Any = None) -> Any: return super().dot(w, dtype) * 2
  w = leaf(3, 4)
  for _ in range(4):
    x = leaf(2, 4)
    assert np.array_equal(F.linear(Mine(x), w).numpy(), F.linear(x, w).numpy() * 2)


def test_errors_are_those_of_the_method() -> None:
  layer = nn.Linear(4, 3).to("NUMPY")
  for _ in range(4): layer(leaf(2, 4))
  for _ in range(4):
    with pytest.raises(DTypeError, match="linear"): layer(leaf(2, 4, dtype="float64"))


def test_a_line_is_that_of_the_call() -> None:
  layer = nn.Linear(4, 3).to("NUMPY")
  for _ in range(4):
    lines = {u.origin for u in layer(leaf(2, 4)).lazydata.toposort() if u.origin is not None and u.op.name in ("ALU", "RESHAPE")}
    assert {code.co_name for code, *_ in lines} == {"test_a_line_is_that_of_the_call"}


def test_shapes_that_change_each_time_fill_no_table() -> None:
  """What is remembered of a kind of call that came once is its key alone."""
  known = inspect.getclosurevars(inspect.unwrap(
    Normalising.layer_norm, stop=lambda f: "known" in f.__code__.co_freevars)).nonlocals["known"]
  known.clear()
  for n in range(2, 600): F.layer_norm(leaf(n, 3), (3,))
  kept = {**known.older, **known}
  assert len(kept) <= 2 * SIGNATURES and not any(kept.values())


def often(monkeypatch: pytest.MonkeyPatch) -> None:
  """Have every tensor be one that is computed because so many were made since a value was asked for."""
  monkeypatch.setattr(realize, "MOST_RESULTS", 1)
  next_look[0] = 0


def test_recording_computes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
  """Many tensors may have been made since a value was asked for when a recipe is recorded."""
  layer, cut = nn.Linear(4, 4).to("NUMPY"), list[Any]()
  often(monkeypatch)
  monkeypatch.setattr(realize, "compute", cut.extend)
  for _ in range(4): layer(leaf(2, 4)).tan().sum().gradient(layer.weight)
  assert cut and not any([u.op is Ops.DETACH and not u.src for a in cut for u in a.node.toposort()])


@pytest.mark.parametrize("kind", [nn.optim.SGD, nn.optim.AdamW])
def test_an_optimizer_whose_step_comes_after_many_tensors(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
  """The same as where nothing has to be computed on the way."""
  def losses() -> list[float]:
    Tensor.manual_seed(0)
    layer, found = nn.Linear(4, 4), list[float]()
    average = nn.optim.swa_utils.AveragedModel(layer)
    optimizer = kind(layer.parameters(), lr=0.1)
    for _ in range(4):
      optimizer.zero_grad()
      for p in layer.parameters(): p.grad = (p * 2).tan()[:4]   # a part, that has a value of its own
      optimizer.step()
      average.update_parameters(layer)
      found.append(sum([p.sum().item() for p in (*layer.parameters(), *average.parameters())]))
    return found
  want = losses()
  often(monkeypatch)
  assert losses() == pytest.approx(want, rel=1e-6)


def test_a_thread_that_records_puts_off_no_other_ones_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
  begun, ended, cut = threading.Event(), threading.Event(), list[Any]()
  def record() -> None:
    with nothing_computed():
      begun.set()
      ended.wait(10)
  other = threading.Thread(target=record)
  other.start()
  begun.wait(10)
  often(monkeypatch)
  monkeypatch.setattr(realize, "compute", cut.extend)
  x = leaf(2)
  with nothing_computed(): x.tan()
  assert not cut
  x.tan()
  assert cut and other.is_alive()
  ended.set()
  other.join()


def test_inputs_of_a_recipe_are_different_nodes() -> None:
  u = leaf(3).lazydata
  with pytest.raises(AssertionError, match="comes twice"): Recipe([u, u], [u + u])
