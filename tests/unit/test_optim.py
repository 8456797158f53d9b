"""Optimizers: several steps against the textbook update in numpy, flat buffers, gradients that are missing, refusals."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ntgrad import Tensor, jit, nn, no_grad
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.engine import realize as engine
from ntgrad.errors import ArgumentError, DTypeError, GradientError, ShapeError
from ntgrad.nn.optim import LAMB, SGD, Adam, AdamW, Optimizer, RMSprop
from ntgrad.nn.state import get_parameters, get_state_dict, load_state_dict

SHAPES = [(3, 5), (), (17,), (2, 1, 4)]


class NumpySGD:
  def __init__(self, lr: float, momentum: float = 0, weight_decay: float = 0, nesterov: bool = False):
    self.lr, self.momentum, self.weight_decay, self.nesterov = lr, momentum, weight_decay, nesterov
    self.b: dict[int, Any] = {}

  def __call__(self, i: int, p: np.ndarray, g: np.ndarray) -> np.ndarray:
    g = g + self.weight_decay * p
    if self.momentum:
      self.b[i] = self.momentum * self.b.get(i, 0) + g
      g = g + self.momentum * self.b[i] if self.nesterov else self.b[i]
    return p - self.lr * g


class NumpyAdam:
  def __init__(self, lr: float, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, weight_decay: float = 0,
               decoupled: bool = False):
    self.lr, self.b1, self.b2, self.eps, self.weight_decay, self.decoupled = lr, b1, b2, eps, weight_decay, decoupled
    self.m: dict[int, Any] = {}
    self.v: dict[int, Any] = {}
    self.t: dict[int, int] = {}

  def __call__(self, i: int, p: np.ndarray, g: np.ndarray) -> np.ndarray:
    if not self.decoupled: g = g + self.weight_decay * p
    self.t[i] = t = self.t.get(i, 0) + 1
    self.m[i] = self.b1 * self.m.get(i, 0) + (1 - self.b1) * g
    self.v[i] = self.b2 * self.v.get(i, 0) + (1 - self.b2) * g * g
    up = self.m[i] / (1 - self.b1**t) / (np.sqrt(self.v[i] / (1 - self.b2**t)) + self.eps)
    return p - self.lr * (up + (self.weight_decay * p if self.decoupled else 0))


CASES: list[tuple[Callable[[list[Tensor]], Optimizer], Callable[[], Any]]] = [
  (lambda ps: SGD(ps, lr=0.1), lambda: NumpySGD(0.1)),
  (lambda ps: SGD(ps, lr=0.1, weight_decay=0.3), lambda: NumpySGD(0.1, 0, 0.3)),
  (lambda ps: SGD(ps, lr=0.1, momentum=0.9), lambda: NumpySGD(0.1, 0.9)),
  (lambda ps: SGD(ps, lr=0.1, momentum=0.8, weight_decay=0.2, nesterov=True), lambda: NumpySGD(0.1, 0.8, 0.2, True)),
  (lambda ps: Adam(ps, lr=0.01), lambda: NumpyAdam(0.01)),
  (lambda ps: Adam(ps, lr=0.02, b1=0.7, b2=0.95, eps=1e-3, weight_decay=0.1), lambda: NumpyAdam(0.02, 0.7, 0.95, 1e-3, 0.1)),
  (lambda ps: AdamW(ps, lr=0.05), lambda: NumpyAdam(0.05, weight_decay=0.01, decoupled=True)),
  (lambda ps: AdamW(ps, lr=0.05, weight_decay=0.5), lambda: NumpyAdam(0.05, weight_decay=0.5, decoupled=True))]


def start(seed: int = 0) -> tuple[list[Tensor], list[np.ndarray], list[np.ndarray]]:
  """Parameters, their values, and one constant factor each: the loss is Σ factor·p² / 2, so its gradient is factor·p."""
  rng = np.random.default_rng(seed)
  values = [rng.standard_normal(s).astype(np.float32) for s in SHAPES]
  factors = [rng.random(s).astype(np.float32) + 0.5 for s in SHAPES]
  return [Tensor(v, requires_grad=True) for v in values], values, factors


def loss_of(params: list[Tensor], factors: list[np.ndarray]) -> Tensor:
  total = Tensor(0.0)
  for p, f in zip(params, factors): total = total + (Tensor(f) * p * p).sum() * 0.5
  return total


def close(got: Tensor, want: np.ndarray, tolerance: float = 2e-5) -> None:
  np.testing.assert_allclose(got.numpy(), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_steps_are_the_textbook_s(case: int) -> None:
  params, values, factors = start()
  opt, update = CASES[case][0](params), CASES[case][1]()
  want = [v.astype(np.float64) for v in values]
  for _ in range(4):
    opt.zero_grad()
    loss = loss_of(params, factors).backward()
    opt.step()
    np.testing.assert_allclose(loss.item(), sum((f * w * w).sum() / 2 for f, w in zip(factors, want)), rtol=1e-4)
    for p, w, f in zip(params, want, factors): close(p.grad, f * w)
    want = [update(i, w, f * w) for i, (w, f) in enumerate(zip(want, factors))]
    for p, w in zip(params, want): close(p, w)


def test_parameters_keep_shape_dtype_and_value() -> None:
  params, values, _ = start()
  Adam(params)
  for p, v in zip(params, values):
    assert p.shape == v.shape and p.dtype is dtypes.float32 and p.requires_grad
    np.testing.assert_array_equal(p.numpy(), v)


def test_slices_of_one_buffer_are_aligned() -> None:
  params, _, _ = start()
  opt = Adam(params)
  assert len(opt.param_groups[0].flats) == 1
  assert [b * 4 % 64 for b, _ in opt.param_groups[0].flats[0].slices] == [0] * 4
  assert opt.param_groups[0].flats[0].size == 16 + 16 + 32 + 16


def test_learning_rate_can_be_changed() -> None:
  params, values, factors = start()
  opt, want = SGD(params, lr=0.1), [v.astype(np.float64) for v in values]
  for lr in (0.1, 0.5, 0.03):
    opt.lr = lr if lr != 0.03 else Tensor([0.03])
    assert opt.lr.shape == (1,) and abs(opt.lr.item() - lr) < 1e-7
    opt.zero_grad()
    loss_of(params, factors).backward()
    opt.step()
    want = [w - lr * f * w for w, f in zip(want, factors)]
    for p, w in zip(params, want): close(p, w)


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize(("make", "option", "value"), [
  (SGD, "momentum", 0.5), (RMSprop, "momentum", 0.5), (RMSprop, "centered", True), (Adam, "amsgrad", True)])
def test_options_that_have_state_set_later(make: Any, option: str, value: Any, captured: bool) -> None:
  """A schedule's momentum where it was 0: the steps are those of an optimizer that had the state, without effect, before."""
  a, b = [Tensor([1.0, -2.0, 3.0], requires_grad=True) for _ in range(2)]
  later = make([a], lr=0.01)
  def step(x: Tensor) -> Tensor:
    later.zero_grad()
    (a * a * x).sum().backward()
    later.step()
    return a + 0
  run = jit(step) if captured else step
  for k in range(8):
    if k == 4:
      later.param_groups[0][option] = value
      with no_grad(): b.assign(a)
      now = make([b], lr=0.01, **{option: value})
      for name, s in now.state[b].items():
        if name in later.state[a]: s.assign(later.state[a][name])
    out = run(Tensor([1.0, 0.5, k / 8]).realize()).numpy()
    if k < 4: continue
    now.zero_grad()
    (b * b * Tensor([1.0, 0.5, k / 8])).sum().backward()
    now.step()
    np.testing.assert_allclose(out, b.numpy(), rtol=1e-5)


def test_without_gradient_nothing_moves() -> None:
  params, values, factors = start()
  opt, update = AdamW(params, lr=0.05, weight_decay=0.5), NumpyAdam(0.05, weight_decay=0.5, decoupled=True)
  want = [v.astype(np.float64) for v in values]
  for step in range(3):
    have = [i for i in range(len(params)) if step == 0 or i % 2 == 0]
    opt.zero_grad()
    loss_of([params[i] for i in have], [factors[i] for i in have]).backward()
    opt.step()
    assert [p.grad is not None for p in params] == [i in have for i in range(len(params))]
    for i in have: want[i] = update(i, want[i], factors[i] * want[i])
    for p, w in zip(params, want): close(p, w)


def test_a_gradient_that_stays_is_added_to() -> None:
  p = Tensor([1.0, 2.0], requires_grad=True)
  opt = SGD([p], lr=0.5)
  (p * 3).sum().backward()
  opt.step()
  (p * 3).sum().backward()   # no zero_grad: 3 + 3
  opt.step()
  close(p, np.array([1 - 1.5 - 3, 2 - 1.5 - 3]))
  close(p.grad, np.array([6.0, 6.0]))


def test_readers_from_before_the_step_see_the_old_values() -> None:
  p = Tensor([1.0, 2.0], requires_grad=True)
  opt = SGD([p], lr=1.0)
  before = p * 10
  (p * p).sum().backward()
  opt.step()
  close(before, np.array([10.0, 20.0]))
  close(p, np.array([-1.0, -2.0]))


def test_lazily_two_steps() -> None:
  p = Tensor([1.0, 2.0], requires_grad=True)
  opt = SGD([p], lr=0.25)
  for _ in range(2):
    opt.zero_grad()
    (p * p).sum().backward()
    todo = opt.schedule_step()
  Tensor.realize(*todo)
  close(p, np.array([0.25, 0.5]))


def test_parameters_given_new_values_are_taken_in() -> None:
  model = nn.Linear(2, 1)
  opt = SGD(get_parameters(model), lr=1.0)
  load_state_dict(model, {"weight": Tensor([[5.0, 6.0]]), "bias": Tensor([7.0])})
  (model.weight.sum() + model.bias.sum()).backward()  # type: ignore[union-attr]
  opt.step()
  close(model.weight, np.array([[4.0, 5.0]]))
  opt.zero_grad()
  model.weight.replace(Tensor([[1.0, 1.0]]))
  (model.weight.sum() + model.bias.sum()).backward()  # type: ignore[union-attr]
  opt.step()
  close(model.weight, np.array([[0.0, 0.0]]))
  close(model.bias, np.array([5.0]))  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype, tolerance", [("float16", 2e-3), ("bfloat16", 2e-2), ("float64", 1e-9)])
def test_other_dtypes_and_mixed(dtype: str, tolerance: float) -> None:
  half, single = Tensor([1.0, -2.0, 3.0], dtype=dtype, requires_grad=True), Tensor([4.0], requires_grad=True)
  opt, update = Adam([half, single], lr=0.1), NumpyAdam(0.1)
  assert len(opt.param_groups[0].flats) == 2
  want = [np.array([1.0, -2.0, 3.0]), np.array([4.0])]
  for _ in range(3):
    opt.zero_grad()
    ((half * half).sum().cast("float32") + (single * single).sum()).backward()
    opt.step()
    want = [update(i, w, 2 * w) for i, w in enumerate(want)]
  assert half.dtype.name == dtype
  np.testing.assert_allclose(half.numpy().astype(np.float64), want[0], rtol=max(tolerance, 1e-6), atol=max(tolerance, 1e-6))
  close(single, want[1])


def test_running_statistics_are_left_alone() -> None:
  norm = nn.BatchNorm(3)
  opt = Adam(get_parameters(norm))
  assert [p.shape for p in opt.params] == [(3,), (3,)] and len(opt.buffers) == 3
  Tensor.training = True
  try:
    norm(Tensor.randn(8, 3, 2, 2)).sum().backward()
    opt.step()
  finally: Tensor.training = False
  assert norm.num_batches_tracked.item() == 1 and set(get_state_dict(norm)) == {
    "weight", "bias", "num_batches_tracked", "running_mean", "running_var"}


def test_training_goes_down() -> None:
  Tensor.manual_seed(0)
  rng = np.random.default_rng(0)
  x = rng.standard_normal((64, 4)).astype(np.float32)
  y = np.abs(x[:, :3]).argmax(1).astype(np.int32)
  model = [nn.Linear(4, 16), nn.Linear(16, 3)]
  opt = AdamW(get_parameters(model), lr=0.05)
  losses = []
  for _ in range(30):
    opt.zero_grad()
    loss = model[1](model[0](Tensor(x)).relu()).sparse_categorical_crossentropy(Tensor(y)).backward()
    opt.step()
    losses.append(loss.item())
  assert losses[-1] < 0.5 * losses[0]


def launched(fn: Callable[[], Any]) -> list[str]:
  """The names of the kernels that a call launches."""
  names: list[str] = []
  def note(step: Any, buffers: Any) -> None: names.append(step.program.spec.name)
  engine.captures.append(note)
  try: fn()
  finally: engine.captures.remove(note)
  return names


@pytest.mark.parametrize("make", [SGD, Adam, AdamW])
def test_an_update_is_one_kernel(make: Callable[[list[Tensor]], Optimizer]) -> None:
  params, _, _ = start()
  opt = make(params)
  for p in params: p.grad = Tensor(np.ones(p.shape, np.float32))
  kernels = launched(opt.step)
  # at most one for each gradient that is copied into its slice, two for what depends on the step, one
  assert len(kernels) <= len(params) + 3 and kernels.count(f"E_{opt.param_groups[0].flats[0].size}") == 1, kernels


def test_captured_with_a_changing_learning_rate() -> None:
  params, values, factors = start()
  opt, update = Adam(params, lr=0.1), NumpyAdam(0.1)

  @jit  # type: ignore[untyped-decorator]
  def step(scale: Tensor) -> Tensor:
    opt.zero_grad()
    loss = (loss_of(params, factors) * scale).backward()
    opt.step()
    return loss.realize()

  want = [v.astype(np.float64) for v in values]
  for i in range(6):
    update.lr = opt.lr = 0.1 / (i + 1)
    scale = 1 + i % 3
    loss = step(Tensor([float(scale)]).reshape(()).contiguous().realize())
    np.testing.assert_allclose(loss.item(), scale * sum((f * w * w).sum() / 2 for f, w in zip(factors, want)), rtol=1e-4)
    want = [update(j, w, scale * f * w) for j, (w, f) in enumerate(zip(want, factors))]
    for p, w in zip(params, want): close(p, w)


@pytest.mark.parametrize("make, error, said", [
  (lambda: SGD([]), ArgumentError, "none of the 0 params"),
  (lambda: SGD(Tensor([1.0])), ArgumentError, "params is one Tensor"),
  (lambda: SGD([np.zeros(2)]), ArgumentError, "params has a ndarray"),  # type: ignore[list-item]
  (lambda: SGD([Tensor([1.0], requires_grad=False)]), ArgumentError, "none of the 1 params has requires_grad"),
  (lambda: SGD([{"params": [t := Tensor([1.0])]}, {"params": [t]}]), ArgumentError, r"of shape \(1,\) is in two groups"),
  (lambda: SGD([Tensor([1, 2])]), DTypeError, r"of shape \(2,\) is int32, only floats"),
  (lambda: SGD([Tensor([1.0])], lr=-1), ArgumentError, r"lr is -1(.0)?, expected a number of at least 0"),
  (lambda: Adam([Tensor([1.0])], lr=-1), ArgumentError, "Adam: lr is -1"),
  (lambda: AdamW([Tensor([1.0])], lr=float("nan")), ArgumentError, "AdamW: lr is nan"),
  (lambda: Adam([Tensor([1.0])], lr="fast"), ArgumentError, "lr is 'fast'; it takes a number"),  # type: ignore[arg-type]
  (lambda: Adam([Tensor([1.0])], b1=1.0), ArgumentError, r"betas\[0\] is 1.0"),
  (lambda: Adam([Tensor([1.0])], eps=-1e-8), ArgumentError, "eps is -1e-08, expected a number of at least 0"),
  (lambda: SGD([Tensor([1.0])], momentum=-0.1), ArgumentError, "momentum is -0.1"),
  (lambda: SGD([Tensor([1.0])], nesterov=True), ArgumentError, "nesterov needs a momentum")])
def test_refusals(make: Callable[[], Any], error: type[Exception], said: str) -> None:
  with pytest.raises(error, match=said): make()


def test_refusals_at_a_step() -> None:
  p = Tensor([1.0, 2.0], requires_grad=True)
  opt = SGD([p])
  with pytest.raises(GradientError, match="SGD.step: none of the 1 parameters has a gradient"): opt.step()
  p.grad = Tensor([1.0])
  with pytest.raises(ShapeError, match=r"a gradient of shape \(1,\) for a parameter of shape \(2,\)"): opt.step()
  with pytest.raises(ShapeError, match="expected one element"): opt.lr = Tensor([1.0, 2.0])
  with pytest.raises(ArgumentError, match="lr is -1"): opt.lr = -1
  assert p.tolist() == [1, 2]


# ---- parameters of 16 bits that are kept in float32

MASTERED: list[Callable[..., Any]] = [
  lambda p, **k: SGD(p, lr=1e-3, momentum=0.5, **k), lambda p, **k: AdamW(p, lr=1e-4, **k), lambda p, **k: LAMB(p, lr=1e-4, **k)]


def gradient(step: int) -> np.ndarray:
  return (np.random.default_rng(step).standard_normal((8, 8)) * 0.1 + 0.05).astype("f4")


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("make", MASTERED)
def test_master_weights(make: Callable[..., Any], captured: bool) -> None:
  """Small steps add up: what is kept is a float32 parameter's, bit for bit, and the parameter is it, rounded."""
  start = Tensor(np.random.default_rng(7).standard_normal((8, 8)).astype("f4")).cast("bfloat16").realize()
  low, kept, exact = start.clone().requires_grad_(True), start.clone().requires_grad_(True), start.float().requires_grad_(True)
  optimizers = [make([low]), make([kept], master_weights=True), make([exact])]
  def step(g: Tensor) -> None:
    for p, o in zip((low, kept, exact), optimizers):
      p.grad = g.cast(p.dtype)
      o.step()
  call = jit(step) if captured else step
  for i in range(60): call(Tensor(gradient(i)).cast("bfloat16").realize())
  master = optimizers[1].state_dict()["state"][0]["master_weights"]
  assert master.dtype is dtypes.float32
  np.testing.assert_array_equal(master.numpy(), exact.numpy())
  np.testing.assert_array_equal(kept.float().numpy(), exact.cast("bfloat16").float().numpy())
  assert np.mean(low.float().numpy() != kept.float().numpy()) > 0.4   # the steps of the other one were lost


def test_a_parameter_that_was_written_has_its_new_value() -> None:
  p = Tensor.full((8,), 2.0, dtype="bfloat16").contiguous().realize().requires_grad_(True)
  o = SGD([p], lr=2.0 ** -12, master_weights=True)
  def step() -> None:
    p.grad = Tensor.ones(8, dtype="bfloat16")
    o.step()
  step()
  assert p.float().numpy().tolist() == [2.0] * 8 and o.state_dict()["state"][0]["master_weights"].numpy()[0] == 2 - 2.0 ** -12
  with no_grad(): p[:4] = 1.0
  step()
  assert o.state_dict()["state"][0]["master_weights"].numpy().tolist() == [1 - 2.0 ** -12] * 4 + [2 - 2.0 ** -11] * 4


def test_master_weights_are_saved_and_loaded() -> None:
  def made(**options: Any) -> tuple[Tensor, Any]:
    p = Tensor.ones(4, dtype="bfloat16").contiguous().realize().requires_grad_(True)
    return p, SGD([p], lr=2.0 ** -12, momentum=0.5, **options)
  def step(p: Tensor, o: Any) -> None:
    p.grad = Tensor.ones(4, dtype="bfloat16")
    o.step()
  p, o = made(master_weights=True)
  for _ in range(3): step(p, o)
  saved = o.state_dict()
  (q, again), (r, without) = made(master_weights=True), made()
  for t, other in ((q, again), (r, without)):
    t.assign(p.detach()).realize()
    other.load_state_dict(saved)
    step(t, other)
  step(p, o)
  np.testing.assert_array_equal(o.state_dict()["state"][0]["master_weights"].numpy(),
                                again.state_dict()["state"][0]["master_weights"].numpy())
  again.load_state_dict(without.state_dict())   # which has none: the parameter is what counts
  step(q, again)
  assert again.state_dict()["state"][0]["master_weights"].numpy()[0] < 1
  assert "master_weights" not in without.state_dict()["state"][0]


def test_masters_of_float32_are_itself() -> None:
  p = Tensor.ones(4).realize().requires_grad_(True)
  assert "master_weights" not in SGD([p], momentum=0.5, master_weights=True).state_dict()["state"][0]
  with pytest.raises(ArgumentError, match="SGD: master_weights is 'yes', expected True or False"): SGD([p], master_weights="yes")


@pytest.mark.parametrize(("first", "second", "flats"), [
  ([[0, 1, 2, 3, 4]], [[0, 1, 2, 3, 4]], [[0, 1, 2, 3, 4]]), ([[0, 1, 2, 3, 4]], [[0, 1, 3, 4]], [[0, 1], [2, 3]]),
  ([[0, 2, 4], [1, 3]], [[0, 1, 2, 3, 4]], [[0, 2, 4], [1, 3]]), ([[0, 1, 2, 3, 4]], [[4, 3, 1]], [[0], [1], [2]])])
def test_another_optimizer_of_the_same_parameters(first: list[list[int]], second: list[list[int]],
                                                  flats: list[list[int]]) -> None:
  """It works on the first one's memory, in as few pieces as that has; each goes on with what the other has made."""
  rng = np.random.default_rng(0)
  values = [rng.standard_normal(s).astype(np.float32) for s in ((3, 5), (7,), (20,), (2, 2, 4), (1,))]
  params = [Tensor(v, requires_grad=True) for v in values]
  def groups(of: list[list[int]]) -> list[dict[str, Any]]: return [{"params": [params[i] for i in g]} for g in of]
  opts = [SGD(groups(first), lr=0.1, momentum=0.5), Adam(groups(second), lr=0.1)]
  rules: list[Any] = [NumpySGD(0.1, 0.5), NumpyAdam(0.1)]
  assert [f.numbers for g in opts[1].param_groups for f in g.flats] == flats
  for which in (0, 0, 1, 1, 0, 1, 0, 1):
    sum([(p * p.sin()).sum() for p in params], Tensor(0.0)).backward()
    opts[which].step()
    for i in {i for g in (first, second)[which] for i in g}:
      values[i] = rules[which](i, values[i], np.sin(values[i]) + values[i] * np.cos(values[i]))
    for p in params: p.grad = None
  for p, v in zip(params, values): np.testing.assert_allclose(p.numpy(), v, rtol=2e-5, atol=2e-6)
