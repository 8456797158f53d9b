"""Tensor code with sizes that change: one plan serves them all, and gives what numpy gives."""
from __future__ import annotations

from typing import Any, Callable, Iterator

import numpy as np
import pytest

from ntgrad import Tensor, Variable, config, nn, no_grad
from ntgrad.codegen import index as ix
from ntgrad.codegen.ir.uop import Ops, UOp
from ntgrad.engine import planner as plans, size_templates
from ntgrad.engine.size_variants import SizedProgram
from ntgrad.errors import ArgumentError, ShapeError
from support.marks import long, long_where

SIZES = (32, 48, 5, 100, 17)
Arrays = tuple[np.ndarray, ...]


class Counts:
  """What was made since it was last asked: plans, and variants of kernels with run-time sizes."""
  plans = variants = 0

  def take(self) -> tuple[int, int]:
    out = self.plans, self.variants
    self.plans = self.variants = 0
    return out


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counts]:
  counts = Counts()
  make, new = plans.make_plan, SizedProgram.new
  def make_plan(*args: Any, **named: Any) -> Any:
    counts.plans += 1
    return make(*args, **named)
  def variant(self: SizedProgram, *args: Any) -> Any:
    counts.variants += 1
    return new(self, *args)
  monkeypatch.setattr(plans, "make_plan", make_plan)
  monkeypatch.setattr(SizedProgram, "new", variant)
  monkeypatch.setattr(plans, "_plans", type(plans._plans)(1024))
  yield counts


def soft(x: np.ndarray) -> np.ndarray:
  e = np.exp(x - x.max(-1, keepdims=True))
  return e / e.sum(-1, keepdims=True)


def attention(q: Any, k: Any, v: Any) -> Any: return (q @ k.transpose(-2, -1) * 0.125).softmax(-1) @ v
def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray: return soft(q @ k.swapaxes(-1, -2) * 0.125) @ v


# name, what is computed, with numpy, the shapes of its arguments for a size, kernels that it takes at most
PROGRAMS: list[tuple[str, Callable[..., Any], Callable[..., np.ndarray], Callable[[int], tuple[tuple[int, ...], ...]]]] = [
  ("add", lambda a, b: a + b, lambda a, b: a + b, lambda n: ((n, 7), (n, 7))),
  ("sum of rows", lambda a: a.sum(1), lambda a: a.sum(1), lambda n: ((7, n),)),
  ("sum of columns", lambda a: a.sum(0), lambda a: a.sum(0), lambda n: ((n, 7),)),
  ("mean", lambda a: a.mean(), lambda a: a.mean(), lambda n: ((n, 7),)),
  ("softmax", lambda a: a.softmax(-1), soft, lambda n: ((9, n),)),
  ("running sums", lambda a: a.cumsum(1), lambda a: a.cumsum(1), lambda n: ((3, n),)),
  ("product", lambda a, b: a @ b, lambda a, b: a @ b, lambda n: ((n, n + 3), (n + 3, 2 * n))),
  ("linear", lambda x, w, b: (x @ w + b).relu(), lambda x, w, b: np.maximum(x @ w + b, 0), lambda n: ((n, 64), (64, 32), (32,))),
  ("reshape", lambda a: a.reshape(-1, 4).sum(1), lambda a: a.reshape(-1, 4).sum(1), lambda n: ((n, 8),)),
  ("slice", lambda a: a[1:-1] * 2, lambda a: a[1:-1] * 2, lambda n: ((n, 6),)),
  ("cat", lambda a, b: Tensor.cat(a, b), lambda a, b: np.concatenate([a, b]), lambda n: ((n, 6), (n + 2, 6))),
  ("pad", lambda a: a.pad(((1, 2), (0, 0))) + 1, lambda a: np.pad(a, ((1, 2), (0, 0))) + 1, lambda n: ((n, 6),)),
  ("flip", lambda a: a.flip(0) + 1, lambda a: a[::-1] + 1, lambda n: ((n, 6),)),
  ("arange", lambda a: a + Tensor.arange(a.shape[0]).reshape(-1, 1), lambda a: a + np.arange(len(a)).reshape(-1, 1),
   lambda n: ((n, 6),)),
  ("attention", attention, attended, lambda n: ((2, n, 16),) * 3),
  ("attention over a cache", attention, attended, lambda n: ((2, 1, 16), (2, n, 16), (2, n, 16))),
]


@long_where(lambda device, name: device != "NUMPY")
@pytest.mark.parametrize("device", ["CPU", "NUMPY"])
@pytest.mark.parametrize("name, fn, want, shapes", PROGRAMS, ids=[p[0] for p in PROGRAMS])
def test_the_third_size_costs_no_plan(
  name: str, fn: Callable[..., Any], want: Callable[..., np.ndarray], shapes: Callable[[int], Any], device: str, made: Counts
) -> None:
  rng = np.random.default_rng(0)
  for i, n in enumerate(SIZES):
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes(n)]
    got = fn(*[Tensor(a, device=device) for a in arrays]).numpy()
    np.testing.assert_allclose(got, want(*arrays), rtol=1e-3, atol=1e-4)
    count, _ = made.take()
    assert count == (1 if i < 2 else 0), (name, n, count)


def test_a_hundred_sizes_take_four_variants_at_most(made: Counts) -> None:
  rng = np.random.default_rng(0)
  for n in range(2, 102):
    a = rng.standard_normal((n, 6)).astype(np.float32)
    np.testing.assert_allclose((Tensor(a).exp() + 1).numpy(), np.exp(a) + 1, rtol=1e-5)
  count, variants = made.take()
  assert count == 2 and variants <= 4


@long
def test_two_sizes_that_were_one_become_two(made: Counts) -> None:
  """A guess from too little is made again: what was the same number twice is not the same size."""
  def run(m: int, n: int) -> None:
    a, b = np.ones((m, 3), np.float32), np.ones((3, n), np.float32)
    assert (Tensor(a) @ Tensor(b)).numpy().shape == (m, n)
  for m, n in ((4, 4), (6, 6), (5, 7), (8, 3), (2, 9)): run(m, n)
  assert made.take()[0] == 3


@long
def test_training_with_another_last_batch(made: Counts) -> None:
  def step(n: int, seed: int) -> list[float]:
    rng = np.random.default_rng(seed)
    Tensor.manual_seed(0)
    one, two = nn.Linear(20, 32), nn.Linear(32, 10)
    opt = nn.optim.Adam([one.weight, one.bias, two.weight, two.bias], lr=1e-2)
    with Tensor.train():
      x, y = Tensor(rng.standard_normal((n, 20)).astype(np.float32)), Tensor(rng.integers(0, 10, n).astype(np.int32))
      loss = two(one(x).relu()).cross_entropy(y)
      opt.zero_grad()
      loss.backward()
      opt.step()
    return [loss.item(), *one.weight.flatten()[:5].tolist()]
  sizes = (32, 48, 7, 100)
  got = [step(n, n) for n in sizes]
  with config(dynamic="never", dev="NUMPY"): want = [step(n, n) for n in sizes]
  np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


@long
def test_gradients_of_a_convolution_at_other_image_sizes() -> None:
  def run(n: int) -> Arrays:
    Tensor.manual_seed(0)
    conv = nn.Conv2d(3, 4, 3, padding=1, stride=2)
    x = Tensor(np.random.default_rng(n).standard_normal((2, 3, n, n)).astype(np.float32), requires_grad=True)
    y = conv(x).relu()
    y.sum().backward()
    return y.numpy(), x.grad.numpy(), conv.weight.grad.numpy()
  sizes = (16, 20, 9, 24)
  got = [run(n) for n in sizes]
  with config(dynamic="never", dev="NUMPY"): want = [run(n) for n in sizes]
  for g, w in zip(got, want):
    for a, b in zip(g, w): np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_never_makes_numbers(made: Counts) -> None:
  with config(dynamic="never"):
    for n in SIZES: (Tensor(np.ones(n, np.float32)) * 3).realize()
  assert made.take() == (len(SIZES), 0)


def test_variables_are_sizes_from_the_first_time_on(made: Counts) -> None:
  n = Variable("n", 1, 4096)
  rng = np.random.default_rng(0)
  memory = rng.standard_normal((2, 64, 16)).astype(np.float32)
  cache, q = Tensor(memory).realize(), Tensor(rng.standard_normal((2, 1, 16)).astype(np.float32)).realize()
  made.take()
  for i, v in enumerate((5, 6, 33, 17)):
    k = cache[:, :n.bind(v)]
    got = ((q @ k.transpose(-2, -1)).softmax(-1) @ k).numpy()
    np.testing.assert_allclose(got, soft(q.numpy() @ memory[:, :v].swapaxes(1, 2)) @ memory[:, :v], rtol=1e-3, atol=1e-5)
    assert made.take()[0] == (i == 0)


def test_a_bound_variable_is_an_int_that_remembers() -> None:
  n = Variable("n", 1, 4096).bind(17)
  assert n == 17 and isinstance(n, int) and (n + 1) * 2 == 36 and 40 - n == 23 and n // 4 == 4 and n % 4 == 1 and -n == -17
  assert ((n + 1) * 2).node is ix.add(ix.mul(n.node, 2), 2)
  assert type(n - n) is int and [0] * n == [0] * 17 and n / 2 == 8.5 and f"{n}" == "17" and hash(n) == hash(17)
  assert Tensor.ones(n, 3).shape == (17, 3)


def test_what_variables_refuse() -> None:
  with pytest.raises(ShapeError, match="n is from 1 to 8, got 9"): Variable("n", 1, 8).bind(9)
  with pytest.raises(ArgumentError, match="a name, got"): Variable("2n", 1, 8)
  with pytest.raises(ArgumentError, match="no value from 8 to 1"): Variable("n", 8, 1)
  with pytest.raises(ArgumentError, match="an int from 0"): Variable("n", 1, 1 << 40)
  with pytest.raises(ShapeError): Tensor.ones(Variable("n", 1, 8).bind(3)) + Tensor.ones(Variable("m", 1, 8).bind(4))


@pytest.mark.parametrize("met, dims, sizes", [
  ([(32, 32), (48, 48)], (True, False), 1),            # one size
  ([(32, 320), (48, 480)], (True, False), 1),          # a multiple
  ([(32, 30), (48, 46)], (True, False), 1),            # a difference
  ([(32, 8), (48, 12)], (True, False), 1),             # a part
  ([(9, 5), (33, 17), (24, 12)], (True, False), 1),    # rounded up
  ([(3, 5, 15), (4, 7, 28)], (True, True, False), 2),  # a product
  ([(32, 64), (48, 96)], (True, True), 2),             # dimensions of buffers are only the same, or not
  ([(32, 7), (48, 11), (60, 19)], (True, False), 2),   # nothing that is looked for
])
def test_guesses(met: list[tuple[int, ...]], dims: tuple[bool, ...], sizes: int) -> None:
  exprs, made = size_templates.guess(met, dims)
  assert len(made) == sizes
  for numbers in met:
    values = {s: numbers[p] for s, p in made}
    for e, n in zip(exprs, numbers):
      if isinstance(e, int): assert e == n
      else:
        table = {u: ix.const(values[u.arg]) for u in e.toposort() if u.op is Ops.SIZE}
        from ntgrad.codegen.kernel.rewrite import substitute
        assert substitute((e,), table)[0] is ix.const(n)


def test_a_size_of_one_graph_is_the_dimension_that_is_nearest() -> None:
  """Also where it comes before that in the graph; 0 and 1 stay, whatever else there is."""
  exprs, _ = size_templates.guess([(2, 3, 11, 1, 9, 3)], (True, False, False, False, True, True))
  two, three, eleven, one, nine, last = exprs
  assert three is last and one == 1 and eleven is ix.add(ix.node(nine), 2) and isinstance(two, UOp)


@pytest.mark.parametrize("fn", [
  lambda x, k: (x * 2)[k:k + 2] + 1, lambda x, k: (x * 3)[k] + 1, lambda x, k: (x * 3)[k:2 * k + 2] + 1,
  lambda x, k: (x * 5)[:k] + x[:k], lambda x, k: (x * 7)[:k - 1] + 1])
def test_variables_of_0_and_1(fn: Callable[..., Any]) -> None:
  """A place may be 0 or 1; a size of 0 or 1 is another structure."""
  n, a = Variable("n", 0, 18), np.arange(40, dtype=np.float32).reshape(20, 2)
  x = Tensor(a, device="NUMPY").realize()
  for k in (5, 1, 0, 7, 2, 1): np.testing.assert_array_equal(fn(x, n.bind(k)).numpy(), fn(a, k))


def test_padding_in_front_is_a_size(made: Counts) -> None:
  for i, k in enumerate((2, 5, 3, 9, 4)):
    got = (Tensor(np.ones((4, 2), np.float32), device="NUMPY").pad(((k, 0), (0, 0))) * 2).numpy()
    assert got.shape == (4 + k, 2) and got.sum() == 16
    assert made.take()[0] == (i < 2)


def test_a_size_is_divided_by_a_difference_of_sizes() -> None:
  """Heuristics see sizes rounded; what is divided by stays positive."""
  with config(dynamic="always", dev="NUMPY"):
    t = Tensor(np.zeros((40, 8), np.float32)).unfold(0, 3, 2).transpose(-1, -2).clone()
    t[4] = 1
    assert t.numpy().sum() == t[4].numel()


def test_products_that_change_by_one_have_room_for_their_panels() -> None:
  """What is copied along a run-time size has room up to a power of two, which is no more than fits."""
  rng = np.random.default_rng(0)
  for k in (1024, 1025, 1500, 2000):
    a, b = rng.standard_normal((200, k)).astype(np.float32), rng.standard_normal((k, 300)).astype(np.float32)
    np.testing.assert_allclose((Tensor(a, device="CPU") @ Tensor(b, device="CPU")).numpy(), a @ b, rtol=1e-3, atol=1e-3)


def test_a_size_that_makes_an_axis_shorter() -> None:
  """Strides (2, 3), then (3, 2): the plan for both divides by 4 - s, so that Opts cannot be chosen for a large s."""
  rng = np.random.default_rng(0)
  x, w = (rng.standard_normal(s).astype(np.float32) for s in ((1, 1, 3, 2), (1, 1, 3, 3)))
  for pads, strides in (((1, 1), (2, 3)), ((2, 1), (3, 2))):
    want = np.zeros([(n - 1) * s + 3 + p for n, s, p in zip(x.shape[2:], strides, pads)], np.float32)
    for i, j in np.ndindex(3, 2): want[strides[0] * i:, strides[1] * j:][:3, :3] += x[0, 0, i, j] * w[0, 0]
    got = Tensor(x).conv_transpose2d(Tensor(w), output_padding=pads, stride=strides)
    np.testing.assert_allclose(got.numpy()[0, 0], want, 1e-5)


def test_sizes_that_were_there_before_are_found_at_once(monkeypatch: pytest.MonkeyPatch, made: Counts) -> None:
  """Weights lie in one piece of memory, of which the plan with run-time sizes is given slices; and the scale is a number."""
  anew: list[str] = []
  def noted(*args: Any) -> Any:
    anew.append("")
    return plan_anew(*args)
  plan_anew = plans._plan_anew
  monkeypatch.setattr(plans, "_plan_anew", noted)
  models = [nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4)) for _ in range(2)]
  nn.optim.SGD([p for m in models for p in m.parameters()], lr=0.1)   # has them in one piece
  rng = np.random.default_rng(0)
  def check(model: Any, n: int, scale: float = 0.37) -> None:
    a = rng.standard_normal((n, 5)).astype(np.float32)
    first, second = [[p.numpy() for p in (layer.weight, layer.bias)] for layer in (model[0], model[2])]
    with no_grad(): got = (model(Tensor(a)) * scale).softmax(1).numpy()
    np.testing.assert_allclose(got, soft((np.maximum(a @ first[0].T + first[1], 0) @ second[0].T + second[1]) * scale), rtol=1e-4)
  for n in SIZES: check(models[0], n)
  for turn in range(3):   # recipes, then the walk alone
    anew.clear()
    for n in SIZES[1:]: check(models[0], n)
    assert turn == 0 or not anew
  for n in SIZES: check(models[1], n)      # the same structure, other slices
  with no_grad(): models[0][0].weight.assign(models[0][0].weight * -2).realize()
  for n in SIZES[::-1]: check(models[0], n)
  for n in SIZES: check(models[0], n, 0.91)
  for n in SIZES: check(models[0], n)
  models[1].load_state_dict({k: v * 3 for k, v in models[0].state_dict().items()})
  for n in SIZES: check(models[1], n)
