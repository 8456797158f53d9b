"""Schedules of the learning rate against their formulas."""
from __future__ import annotations

import math
from typing import Any, Callable

import pytest

from ntgrad import Tensor, jit
from ntgrad.engine import counters
from ntgrad.errors import ArgumentError, CaptureError, StateError
from ntgrad.nn import optim
from ntgrad.nn.optim import lr_scheduler as L

N = 24


def sgd(**options: Any) -> optim.SGD: return optim.SGD([Tensor([1.0], requires_grad=True)], lr=0.1, **options)


def cosine(t: float, n: float, high: float = 0.1, low: float = 0.0) -> float:
  return low + (high - low) * (1 + math.cos(math.pi * t / n)) / 2


def restarts(t: int) -> float:
  size = 4
  while t >= size: t, size = t - size, size * 2
  return cosine(t, size)


def cycle(t: int) -> float:
  up = 0.3 * 30 - 1
  return cosine(up - t, up, 1.0, 0.04) if t <= up else cosine(t - up, 29 - up, 1.0, 0.04 / 1e4)


def triangle(t: int, high: float = 1.0) -> float: return 0.01 + 0.09 * high * (t % 12 / 7 if t % 12 <= 7 else (12 - t % 12) / 5)


TABLE: dict[str, tuple[Callable[[Any], L.LRScheduler], Callable[[int], float]]] = {
  "step": (lambda o: L.StepLR(o, 5, 0.5), lambda t: 0.1 * 0.5 ** (t // 5)),
  "milestones": (lambda o: L.MultiStepLR(o, [9, 3, 3]), lambda t: 0.1 * 0.1 ** (2 * (t >= 3) + (t >= 9))),
  "constant": (lambda o: L.ConstantLR(o), lambda t: 0.1 / 3 if t < 5 else 0.1),
  "linear": (lambda o: L.LinearLR(o, 0.2, 1.0, 10), lambda t: 0.1 * (0.2 + 0.8 * min(t, 10) / 10)),
  "exponential": (lambda o: L.ExponentialLR(o, 0.9), lambda t: 0.1 * 0.9 ** t),
  "polynomial": (lambda o: L.PolynomialLR(o, 20, 2.0), lambda t: 0.1 * (1 - min(t, 20) / 20) ** 2),
  "cosine": (lambda o: L.CosineAnnealingLR(o, 10, 0.01), lambda t: cosine(t, 10, 0.1, 0.01)),
  "restarts": (lambda o: L.CosineAnnealingWarmRestarts(o, 4, 2), restarts),
  "one cycle": (lambda o: L.OneCycleLR(o, 1.0, total_steps=30), cycle),
  "triangles": (lambda o: L.CyclicLR(o, 0.01, 0.1, 7, 5), triangle),
  "triangles, each half": (lambda o: L.CyclicLR(o, 0.01, 0.1, 7, 5, mode="triangular2"), lambda t: triangle(t, 0.5 ** (t // 12))),
  "triangles that fall": (lambda o: L.CyclicLR(o, 0.01, 0.1, 7, 5, mode="exp_range", gamma=0.9), lambda t: triangle(t, 0.9 ** t)),
  "lambda": (lambda o: L.LambdaLR(o, lambda t: 1 / (1 + t)), lambda t: 0.1 / (1 + t)),
  "times": (lambda o: L.MultiplicativeLR(o, lambda t: 0.9), lambda t: 0.1 * 0.9 ** t),
  "warm-up, then cosine": (lambda o: L.SequentialLR(o, [L.LinearLR(o, 0.1, 1.0, 5), L.CosineAnnealingLR(o, 30)], [5]),
                           lambda t: 0.1 * (0.1 + 0.9 * t / 5) if t < 5 else cosine(t - 5, 30)),
  "chained": (lambda o: L.ChainedScheduler([L.ConstantLR(o, 0.1, 4), L.ExponentialLR(o, 0.9)]),
              lambda t: 0.1 * 0.9 ** t * (0.1 if t < 4 else 1))}


@pytest.mark.parametrize("name", TABLE)
def test_rates(name: str) -> None:
  make, want = TABLE[name]
  opt = sgd(momentum=0.9)
  schedule = make(opt)
  for t in range(N):
    assert opt.param_groups[0]["lr"] == pytest.approx(want(t), rel=1e-6, abs=1e-12), t
    assert opt.lr.item() == pytest.approx(want(t), rel=1e-6, abs=1e-9) and schedule.get_last_lr() == [opt.param_groups[0]["lr"]]
    if t == 10: held, rates = schedule.state_dict(), opt.state_dict()
    schedule.step()
  opt = sgd(momentum=0.9)   # go on from what was held
  schedule = make(opt)
  schedule.load_state_dict(held)
  opt.load_state_dict(rates)
  for t in range(10, N):
    assert opt.param_groups[0]["lr"] == pytest.approx(want(t), rel=1e-6, abs=1e-12), t
    schedule.step()


def test_momentum_cycles_the_other_way() -> None:
  for opt in (sgd(momentum=0.9), optim.AdamW([Tensor([1.0], requires_grad=True)])):
    schedule = L.OneCycleLR(opt, max_lr=1.0, epochs=3, steps_per_epoch=10)
    for t in range(30):
      g = opt.param_groups[0]
      momentum = g["betas"][0] if "betas" in g else g["momentum"]
      assert momentum == pytest.approx(cosine(8 - t, 8, 0.85, 0.95) if t <= 8 else cosine(t - 8, 21, 0.85, 0.95), rel=1e-6), t
      if t < 29: schedule.step()


def test_plateau() -> None:
  opt = sgd()
  schedule = L.ReduceLROnPlateau(opt, factor=0.5, patience=2, cooldown=1, min_lr=0.03)
  rates = []
  for loss in [1.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.1, 0.1, 0.1, 0.1, 0.1]:
    schedule.step(Tensor([loss]))
    rates.append(round(opt.param_groups[0]["lr"], 4))
  assert rates == [0.1] * 4 + [0.05] * 4 + [0.03] * 6
  other = L.ReduceLROnPlateau(sgd())
  other.load_state_dict(schedule.state_dict())
  assert other.best == pytest.approx(0.1)


def test_groups_and_refusals() -> None:
  p = [Tensor([1.0], requires_grad=True) for _ in range(2)]
  opt = optim.SGD([{"params": p[:1], "lr": 1.0}, {"params": p[1:]}], lr=0.1)
  L.LambdaLR(opt, [lambda t: 0.5, lambda t: 2.0])
  assert [g["lr"] for g in opt.param_groups] == [0.5, 0.2]
  for wrong in (lambda: L.StepLR(opt, 0), lambda: L.StepLR(1, 5), lambda: L.LambdaLR(opt, 3), lambda: L.LambdaLR(opt, [abs]),
                lambda: L.OneCycleLR(opt, 1.0), lambda: L.OneCycleLR(opt, 1.0, 10, anneal_strategy="up"),
                lambda: L.CyclicLR(optim.Adagrad(p), 0.1, 0.2), lambda: L.SequentialLR(opt, [L.StepLR(opt, 5)], [1]),
                lambda: L.ExponentialLR(sgd(), 0.9, last_epoch=3), lambda: L.ReduceLROnPlateau(opt, "low")):
    with pytest.raises(ArgumentError): wrong()
  with pytest.raises(StateError): L.StepLR(opt, 5).load_state_dict({"gamma": 1})
  schedule = L.OneCycleLR(sgd(momentum=0.9), 1.0, total_steps=3)
  for _ in range(3): schedule.step()
  with pytest.raises(ArgumentError, match="step 4 of 3"): schedule.step()


def test_a_rate_is_written_without_a_kernel() -> None:
  """And whoever needs the one before has it."""
  o = sgd()
  schedule = L.ExponentialLR(o, 0.5)
  before = o.lr * 2
  schedule.step()
  assert before.item() == pytest.approx(0.2)
  launched = counters.totals().kernels
  for _ in range(3): schedule.step()
  assert counters.totals().kernels == launched and o.lr.item() == pytest.approx(0.1 / 16)


@pytest.mark.parametrize("make", [
  lambda o: L.StepLR(o, 1), lambda o: L.CosineAnnealingWarmRestarts(o, 3),
  lambda o: L.SequentialLR(o, [L.ConstantLR(o), L.CosineAnnealingWarmRestarts(o, 3)], [1])])
def test_a_step_in_a_captured_function_is_refused(make: Any) -> None:
  schedule = make(sgd())
  def step(x: Tensor) -> Tensor:
    schedule.step()
    return x * 2
  captured = jit(step)
  with pytest.raises(CaptureError, match=r"step\(\) sets the optimizer's rates by numbers that Python counts"):
    for _ in range(3): captured(Tensor([1.0]).realize())
