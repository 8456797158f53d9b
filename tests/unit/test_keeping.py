"""What is alive is kept: values that tensors hold are stored by the plan that computes them (docs/engine.md)."""
from __future__ import annotations

import gc
from functools import partial
from typing import Any, Callable
from unittest.mock import patch

import numpy as np
import pytest

import ntgrad
from ntgrad import Device, Tensor, config, nn
from ntgrad.engine import counters, keeping, planner
from ntgrad.errors import CaptureError, GradientError
from ntgrad.graph.alias import MOST_RESULTS
from ntgrad.graph.recipes import Recipe


def array(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
  return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def kernels(fn: Callable[[], Any]) -> int:
  """How many kernels a function launches."""
  before = counters.totals().kernels
  fn()
  return counters.totals().kernels - before


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
  """A list that gets an element for each plan that is made, or read from the disk: how many nodes its graph has."""
  made: list[int] = []
  make = planner._plan_anew
  def plan_anew(sinks: Any, walk: Any, *args: Any) -> Any:
    out = make(sinks, walk, *args)
    if not out[2]: made.append(len(walk.order))
    return out
  monkeypatch.setattr(planner, "_plan_anew", plan_anew)
  return made


def deep(layers: int, width: int = 8) -> nn.Sequential:
  return nn.Sequential(*[m for _ in range(layers) for m in (nn.Linear(width, width), nn.Tanh())])


def test_what_a_tensor_holds_is_stored() -> None:
  x, w = Tensor(array(33, 17)).realize(), Tensor(array(17, 5)).realize()
  hidden = x @ w
  total = hidden.relu().sum()
  first = kernels(total.item)
  assert kernels(hidden.numpy) == 0
  np.testing.assert_allclose(hidden.numpy(), x.numpy() @ w.numpy(), rtol=1e-5, atol=1e-5)
  assert first <= 2


def test_views_and_few_operations_are_not() -> None:
  x = Tensor(array(33, 17)).realize()
  scaled, turned = x * 2 + 1, x.transpose(0, 1)
  total = (scaled.sum(0) + turned.sum(1)).sum()
  total.item()
  assert kernels(scaled.numpy) == 1 and kernels(turned.numpy) == 0


def test_nobody_holds_it() -> None:
  x = Tensor(array(33, 17)).realize()
  def run() -> Tensor:
    hidden = x.softmax()
    return (hidden.log() * 2).sum()
  before = Device.memory().allocated
  run().item()
  assert Device.memory().allocated - before < 4096


def test_only_the_part_that_is_shown() -> None:
  x = Tensor(array(64, 48)).realize()
  rows = x.softmax()
  last = rows[-1]
  loss = (last * 3).sum()
  del rows
  loss.item()
  np.testing.assert_allclose(last.numpy(), np.exp(x.numpy())[-1] / np.exp(x.numpy())[-1].sum(), rtol=1e-5)


def test_a_state_that_a_loop_carries(plans: list[int]) -> None:
  """Each round launches the same kernels, with the same plan."""
  cell, out = nn.GRUCell(16, 16), nn.Linear(16, 1)
  h, counts, state = Tensor.zeros(1, 16), [], np.zeros((1, 16), np.float32)
  with ntgrad.no_grad():
    for _ in range(40):
      h = cell(Tensor.ones(1, 16), h)
      counts.append(kernels(out(h).item))
    again = Tensor.zeros(1, 16)
    for _ in range(40): again = cell(Tensor.ones(1, 16), again).realize()
  assert len(set(counts[5:])) == 1 and len(plans) <= 6
  np.testing.assert_allclose(h.numpy(), again.numpy(), rtol=1e-5)
  assert not np.array_equal(h.numpy(), state)


def test_a_cheap_state(plans: list[int]) -> None:
  """It is not computed from further and further back, nor by a new plan each round."""
  state = Tensor(array(50)).realize()
  want = state.numpy()
  for _ in range(30):
    state = state * 1.01
    want = want * np.float32(1.01)
    np.testing.assert_allclose(state.sum().item(), want.sum(), rtol=1e-3)
  assert len(plans) <= 4


def test_a_context_that_grows(plans: list[int]) -> None:
  """Tokens are appended, and the newest is read, as generation without a cache does."""
  embed, head = nn.Embedding(20, 8), nn.Linear(8, 20)
  index = Tensor([[1, 2, 3]])
  with ntgrad.no_grad():
    for _ in range(30):
      token = head(embed(index).mean(1)).argmax(-1, keepdim=True)
      index = index.cat(token, dim=1)
      index[0, -1].item()
  assert index.shape == (1, 33) and len(plans) <= 8


def test_gradients_read_one_by_one() -> None:
  """They are one request: the first that is read computes all that are alive."""
  m = deep(8)
  m.train()
  for p in m.parameters(): p.requires_grad = True
  (m(Tensor(array(4, 8))) ** 2).sum().backward()
  def read() -> None:
    for p in m.parameters():
      assert p.grad is not None
      p.grad.norm().item()
  assert kernels(read) <= 50
  grads = [p.grad.numpy() for p in m.parameters() if p.grad is not None]
  (m(Tensor(array(4, 8))) ** 2).sum().backward()
  for p, g in zip(m.parameters(), grads): np.testing.assert_allclose(p.grad.numpy(), 2 * g, rtol=1e-5)   # type: ignore[union-attr]


def test_a_gradient_whose_others_are_gone() -> None:
  a, b = [Tensor(array(4, 4, seed=i), requires_grad=True) for i in range(2)]
  (a @ b).sum().backward()
  b.grad = None
  assert kernels(a.grad.numpy) == 1   # type: ignore[union-attr]


def test_the_loss_before_its_gradients() -> None:
  """``loss.item()`` before ``backward()`` launches about what the other order does: what gradients read is kept."""
  m = deep(6)
  for p in m.parameters(): p.requires_grad = True
  def step(first: bool) -> list[Any]:
    for p in m.parameters(): p.grad = None
    loss = (m(Tensor(array(4, 8))) ** 2).sum()
    if first: loss.item()
    loss.backward()
    Tensor.realize(*[p.grad for p in m.parameters()])   # type: ignore[misc]
    loss.item()
    return [p.grad.numpy() for p in m.parameters()]   # type: ignore[union-attr]
  counts = [kernels(partial(step, first)) for first in (False, True, False, True)][2:]
  assert max(counts) <= 1.1 * min(counts), counts
  for a, b in zip(step(False), step(True)): np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_padded_copy_that_both_passes_read() -> None:
  """A convolution reads a padded copy, its weight's gradient reads the same one; a small one is kept, not made again."""
  w = Tensor(array(8, 4, 3, 3)).realize()
  v, big = (Tensor(a, requires_grad=True).realize() for a in (array(4, 8, 3, 3), array(512, 512)))
  def step(first: bool) -> None:
    v.grad = big.grad = None
    x = Tensor(array(2, 4, 6, 6))
    loss = x.conv2d(w, padding=1).tanh().conv2d(v, padding=1).exp().sum() + (big @ big).exp().sum()
    if first: loss.item()
    loss.backward()
    Tensor.realize(v.grad, big.grad, loss)   # type: ignore[arg-type]
  counts = [kernels(partial(step, first)) for first in (False, True) * 2][2:]
  assert counts[0] == counts[1], counts


def test_what_gradients_read_goes_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
  """What was kept for gradients is given back as they are computed; a second backward pass computes it again."""
  from ntgrad.engine import realize
  monkeypatch.setattr(realize, "RELEASED_BYTES", 0)
  w = Tensor(array(64, 64), requires_grad=True)
  x = Tensor(array(256, 64)).realize()
  w.realize()
  def peak(first: bool) -> int:
    w.grad = None
    loss = (((x @ w).tanh() @ w).tanh() ** 2).sum()
    if first: loss.item()
    assert bool(keeping.saved) is first
    loss.backward()
    assert w.grad is not None
    w.grad.realize()
    assert not keeping.due
    before = w.grad.numpy()
    loss.backward()
    np.testing.assert_allclose(w.grad.numpy(), 2 * before, rtol=1e-5)
    return 0
  peak(False)
  peak(True)


def test_nothing_is_kept_without_gradients() -> None:
  m = deep(3)
  for p in m.parameters(): p.requires_grad = True
  x = Tensor(array(4, 8)).realize()
  with ntgrad.no_grad(): (m(x) ** 2).sum().item()
  assert not keeping.saved
  loss = (m(x) ** 2).sum()
  loss.item()
  assert keeping.saved
  del loss
  gc.collect()
  assert not keeping.saved


class Ring:
  """Objects that refer to each other in a circle, of which one holds a value."""

  def __init__(self, n: int, value: Any) -> None:
    self.value, self.next = value, self
    at = self
    for _ in range(n):
      other = Ring.__new__(Ring)
      other.value, other.next = None, self
      at.next, at = other, other


def test_the_collector_changes_nothing(plans: list[int]) -> None:
  """200 steps in which values end in circles of random length, with the collector on, off, and forced at each step: two plans a
  structure at most, and the same bits."""
  def run(how: str) -> list[float]:
    ntgrad.manual_seed(3)
    rng = np.random.default_rng(5)
    w = Tensor(array(8, 8) / 4).realize()
    state, out = Tensor(array(4, 8)).realize(), list[float]()
    plans.clear()
    planner._plans.clear()
    if how == "off": gc.disable()
    try:
      for _ in range(200):
        hidden = (state @ w).tanh()
        if rng.random() < 0.5: Ring(int(rng.integers(1, 60)), hidden.exp() + hidden.sin())
        scaled = hidden.softmax() * 3
        if rng.random() < 0.5: Ring(int(rng.integers(1, 60)), scaled)
        state = scaled - hidden
        if how == "forced": gc.collect()
        out.append(state.square().mean().item())
    finally: gc.enable()
    return out
  with config(cache=0): found = {how: (run(how), len(plans), len(set(plans))) for how in ("on", "off", "forced")}
  assert found["on"][0] == found["off"][0] == found["forced"][0]
  for _, made, structures in found.values(): assert made <= 2 * structures and structures <= 3


def test_a_large_value_does_not_raise_the_peak() -> None:
  """It is stored once it has been asked for again."""
  x = Tensor(array(256, 1024)).realize()
  def step() -> tuple[int, int]:
    rows = x.softmax()
    out = (rows @ x.transpose(0, 1)).softmax() @ x
    out = ((out @ x.transpose(0, 1)).softmax() @ x).sum()
    out.item()
    return kernels(rows.numpy), 0
  assert [step()[0] for _ in range(3)][-1] == 0


def test_a_loop_without_questions_is_cut(plans: list[int]) -> None:
  """A graph that has grown through many rounds is computed on the way, by the same plan each time."""
  x, rounds = Tensor(array(10)).realize(), 6 * MOST_RESULTS // 2
  want = x.numpy().astype(np.float64)
  for _ in range(rounds):
    x = x * 0.999 + 0.1
    want = want * np.float32(0.999) + np.float32(0.1)
  assert 1 <= len(plans) <= 3
  np.testing.assert_allclose(x.numpy(), want, rtol=1e-3)


@pytest.mark.parametrize("in_place", [True, False])
def test_counts_that_begin_as_constants_are_stored(in_place: bool, plans: list[int]) -> None:
  """As graphs of numbers alone they got longer with every round, and each had a plan of its own."""
  x = Tensor(array(8)).realize()
  count, power = Tensor.zeros(1), Tensor(1.0)
  for i in range(1, 12):
    if i == 7: plans.clear()
    if in_place:
      count.add_(1)
      power.mul_(0.9)
    else: count, power = count + 1, power * 0.9
    y = x * count / (1 - power)
    np.testing.assert_allclose(y.numpy(), x.numpy() * i / (1 - 0.9 ** i), rtol=1e-5)
  assert not plans


def test_a_captured_function_does_not_take_a_count_for_a_constant() -> None:
  x, state = Tensor(array(8)).realize(), {"kept": Tensor.zeros(1), "replaced": Tensor.zeros(1)}
  def replaced(x: Tensor) -> Tensor:
    state["replaced"] = state["replaced"] + 1
    return (x * state["replaced"]).realize()
  def kept(x: Tensor) -> Tensor: return (x * state["kept"].add_(1)).realize()
  step = ntgrad.jit(kept)
  for i in range(1, 6): np.testing.assert_allclose(step(x).numpy(), x.numpy() * i, rtol=1e-6)
  step = ntgrad.jit(replaced)
  with pytest.raises(CaptureError, match="of numbers alone, so a replay would make the same again; change it in place"):
    for _ in range(4): step(x)


def test_a_captured_function_may_replace_its_own_numbers() -> None:
  x = Tensor(array(4)).realize()
  def step(x: Tensor) -> Tensor:
    m = Tensor.arange(4) + 1.5
    y = (x * m).realize()
    m = m * 2
    return (y * m).realize()
  call, m = ntgrad.jit(step), np.arange(4) + 1.5
  for _ in range(4): np.testing.assert_allclose(call(x).numpy(), x.numpy() * m * m * 2, rtol=1e-6)


def test_gradients_that_are_numbers_are_no_count() -> None:
  """They are replaced by every captured step, clipped ones too."""
  w = Tensor(array(4), requires_grad=True)
  opt = nn.optim.SGD([w], lr=0.5, momentum=0.5)
  @ntgrad.jit
  def step() -> Tensor:
    opt.zero_grad()
    loss = (w * 3).sum() / 4
    loss.backward()
    nn.utils.clip_grad_norm_([w], 1.0)
    opt.step()
    return loss.detach()
  before, speed, want = w.numpy(), 0.0, np.zeros(4)
  for _ in range(4):
    step()
    speed = 0.5 * speed + 0.5
    want = want - 0.5 * speed
  np.testing.assert_allclose(w.numpy() - before, want, rtol=1e-4, atol=1e-5)


def test_what_is_made_of_numbers_and_stays_is_not_stored(plans: list[int]) -> None:
  """Masks that are made of each other, of which tensors hold all."""
  x, at = Tensor(array(16, 16)).realize(), Tensor.arange(16)
  past = at.reshape(1, 16) <= at.reshape(16, 1)
  near = past & (at.reshape(16, 1) - at.reshape(1, 16) < 4)
  for _ in range(3): assert kernels(lambda: near.where(x, 0).sum().item()) == 1
  assert len(plans) == 1


def test_many_tensors_that_are_not_one_loop() -> None:
  x = Tensor(array(3)).realize()
  assert kernels(lambda: [x + i for i in range(MOST_RESULTS + 10)]) == 0


def test_a_captured_step_keeps_what_the_plain_one_does() -> None:
  """What is held outside of it changes nothing."""
  w = Tensor(array(8, 8)).realize()
  outside = []
  def f(x: Tensor) -> Tensor:
    hidden = (x @ w).softmax()
    return (hidden.log() * 2).sum()
  x = Tensor(array(4, 8)).realize()
  outside.append((x @ w).softmax())   # not computed yet
  step = ntgrad.jit(f)
  results = [step(x).item() for _ in range(4)]
  assert len(set(results)) == 1 and step.kernels == kernels(lambda: ntgrad.jit(f)(x).realize())
  assert kernels(lambda: outside[0].numpy()) > 0


def test_a_captured_call_keeps_nothing_for_gradients() -> None:
  m = deep(3)
  for p in m.parameters(): p.requires_grad = True
  step = ntgrad.jit(lambda x: (m(x) ** 2).sum())
  for _ in range(3): step(Tensor(array(4, 8)))
  assert not keeping.saved


def test_a_step_that_fails() -> None:
  """Values that were computed before it are kept, those after it are not."""
  x = Tensor(array(8, 8)).realize()
  index = Tensor([9])
  hidden = (x @ x).softmax()
  with pytest.raises(ntgrad.errors.NtgradError): (hidden.sum() + x[index].sum()).item()
  np.testing.assert_allclose(hidden.sum(1).numpy(), np.ones(8), rtol=1e-5)


def test_a_second_backward_after_a_step_names_what_is_gone() -> None:
  w = Tensor(array(4, 4), requires_grad=True)
  opt = nn.optim.SGD([w], lr=0.1)
  for _ in range(2):
    loss = ((w @ w).tanh() ** 2).sum()
    loss.item()
    loss.backward()
    opt.step()
  with pytest.raises(GradientError): loss.backward()


def test_parameters_lie_in_the_optimizers_memory_alone(monkeypatch: pytest.MonkeyPatch) -> None:
  """Parameters that are not computed yet are not stored by themselves beside the flat buffer that they become parts of."""
  kept: list[Any] = []
  monkeypatch.setattr(planner.report, "keeps", lambda values, more: kept.append(values))
  m = deep(3)
  nn.optim.Adam(m.parameters())
  assert not kept and kernels(lambda: [p.numpy() for p in m.parameters()]) == 0


def test_the_loss_is_asked_for_between_its_gradients_and_the_step() -> None:
  """What the loss and the gradients are made of is computed once; the step lays the gradients side by side."""
  m = deep(4)
  opt = nn.optim.SGD(m.parameters(), lr=0.1)
  x = Tensor(array(4, 8)).realize()
  def step(at: int) -> None:
    opt.zero_grad()
    loss = (m(x) ** 2).sum()
    if at == 0: loss.item()
    loss.backward()
    if at == 1: loss.item()
    opt.step()
  counts = [kernels(partial(step, at)) for _ in range(2) for at in (0, 1)][2:]
  assert max(counts) <= min(counts) + 3, counts


@pytest.mark.parametrize("asked_first", [False, True])
def test_recipes_keep_what_lies_within(asked_first: bool) -> None:
  """Layers by recipes whose inner values gradients read: nothing is computed twice, from the third step on one walk finds the
  plan, and the values are those of layers without recipes."""
  model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 16), nn.Mish(), nn.Linear(16, 4)).train()
  opt = nn.optim.SGD(model.parameters(), lr=0.1)
  x, y = Tensor.rand(6, 8).realize(), Tensor([0, 3, 1, 2, 1, 0])
  def step() -> tuple[float, int]:
    opt.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    if asked_first: loss.item()
    loss.backward()
    opt.step()
    before = counters.totals().kernels
    return loss.item(), counters.totals().kernels - before
  def losses() -> list[float]:
    model.load_state_dict(state)
    return [step()[0] for _ in range(3)]
  state = {k: v.clone().realize() for k, v in model.state_dict().items()}
  for _ in range(4): step()
  start = counters.totals().kernels
  with patch.object(planner, "_plan_of_graph", None): assert step()[1] == 0
  kernels = counters.totals().kernels - start
  by_recipes = losses()
  with patch.object(Recipe, "later", lambda recipe, inputs, *_: recipe(inputs)):
    step()
    start = counters.totals().kernels
    step()
    assert counters.totals().kernels - start == kernels
    assert losses() == by_recipes


def test_small_sums_that_share_nothing_are_one_kernel() -> None:
  """The gradients of biases, whose sources are in memory because the loss was asked for first."""
  a, b, c = [Tensor(array(4, 8, seed=i)).realize() for i in range(3)]
  assert kernels(lambda: Tensor.realize(a.sum(0), b.sum(0), c.sum(0))) == 1   # type: ignore[misc]
  wide = [Tensor(array(2048, 8, seed=i)).realize() for i in range(2)]
  assert kernels(lambda: Tensor.realize(*[x.sum(0) for x in wide])) == 2   # type: ignore[misc]


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_the_loss_before_the_gradients_of_a_recurrent_layer(kind: str) -> None:
  """Whose rule is asked what it will read; a rule of the user's is not."""
  layer, out = getattr(nn, kind)(4, 8, batch_first=True), nn.Linear(8, 3)
  opt = nn.optim.SGD([*layer.parameters(), *out.parameters()], lr=0.1)
  x = Tensor(array(2, 5, 4)).realize()
  def step(first: bool) -> None:
    opt.zero_grad()
    loss = (out(layer(x)[0][:, -1]) ** 2).sum()
    if first: loss.item()
    loss.backward()
    opt.step()
    loss.item()
  counts = [kernels(partial(step, first)) for first in (False, True, False, True)][2:]
  assert max(counts) <= min(counts) + 4, counts   # 5 and 6 where the layer is computed again
