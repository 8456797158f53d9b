"""Optimizers that are written as for PyTorch, beside numpy, and beside torch where it is installed."""
from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

import ntgrad
from ntgrad import Tensor, amp, nn
from ntgrad.errors import ArgumentError, CaptureError, StateError

Array = np.ndarray[Any, Any]
X = [np.random.default_rng(i).standard_normal((5, 4)).astype(np.float32) for i in range(6)]
W = np.random.default_rng(9).standard_normal((3, 4)).astype(np.float32)


class Signs(nn.optim.Optimizer):
  """A moving average's sign; state and numbers as most have them."""
  def __init__(self, params: Any, lr: float = 0.1, beta: float = 0.9):
    super().__init__(params, dict(lr=lr, beta=beta))   # type: ignore[arg-type]

  @ntgrad.no_grad()
  def step(self, closure: Callable[[], Any] | None = None) -> None:
    for group in self.param_groups:
      for p in group["params"]:
        if p.grad is None: continue
        state = self.state[p]
        if len(state) == 0: state["mean"] = p.zeros_like()
        state["mean"].mul_(group["beta"]).add_(p.grad, alpha=1 - group["beta"])
        p.add_(state["mean"].sign(), alpha=-group["lr"])


class Counted(Signs):
  """One that counts, in Python."""
  def step(self, closure: Callable[[], Any] | None = None) -> None:
    for p in self.params: self.state[p]["step"] = self.state[p].get("step", 0) + 1
    for group in self.param_groups:
      for p in group["params"]: p.data.sub_(p.grad, alpha=group["lr"] / self.state[p]["step"])


class Around(nn.optim.Optimizer):
  """One around another, with whose groups it works, as SAM is written."""
  def __init__(self, params: Any, kind: Any, rho: float, **options: Any):
    super().__init__(params, dict(rho=rho, **options))   # type: ignore[arg-type]
    self.base = kind(self.param_groups, **options)
    self.param_groups = self.base.param_groups

  def step(self, closure: Callable[[], Any] | None = None) -> None:
    with ntgrad.no_grad():
      for p in self.params: p.grad.mul_(self.param_groups[0]["rho"])
    self.base.step()


def trained(make: Callable[[Tensor], Any], steps: int = 6, captured: bool = False, each: Any = None) -> Array:
  w = Tensor(W, requires_grad=True)
  opt = make(w)
  def step(x: Tensor) -> Tensor:
    opt.zero_grad()
    loss = (x @ w.T).tanh().sum()
    loss.backward()
    opt.step()
    return loss.detach()
  call = ntgrad.jit(step) if captured else step
  for i in range(steps):
    call(Tensor(X[i]))
    if each is not None: each(opt)
  return w.numpy()


def by_numpy(rates: list[float], beta: float = 0.9) -> Array:
  w, mean = W.astype(np.float64), np.zeros(W.shape)
  for x, lr in zip(X, rates):
    slope = (1 - np.tanh(x.astype(np.float64) @ w.T) ** 2).T @ x
    mean = beta * mean + (1 - beta) * slope
    w = w - lr * np.sign(mean)
  return w


@pytest.mark.parametrize("captured", [False, True])
def test_values(captured: bool) -> None:
  np.testing.assert_allclose(trained(lambda w: Signs([w]), captured=captured), by_numpy([0.1] * 6), rtol=1e-5)


@pytest.mark.parametrize("captured", [False, True])
def test_schedules(captured: bool) -> None:
  """Write a group's rate, which captured steps follow."""
  schedules: dict[int, Any] = {}
  def each(opt: Any) -> None: schedules.setdefault(id(opt), nn.optim.lr_scheduler.StepLR(opt, 2, 0.5)).step()
  found = trained(lambda w: Signs([w]), captured=captured, each=each)
  np.testing.assert_allclose(found, by_numpy([0.1, 0.1, 0.05, 0.05, 0.025, 0.025]), rtol=1e-4)


def test_groups_and_state() -> None:
  a, b = Tensor(W, requires_grad=True), Tensor(W[0], requires_grad=True)
  opt = Signs([{"params": [a], "lr": 0.5}, {"params": [b]}])
  assert [(g["lr"], g["beta"]) for g in opt.param_groups] == [(0.5, 0.9), (0.1, 0.9)] and not opt.state
  (a.sum() + (b * b).sum()).backward()
  opt.step()
  np.testing.assert_allclose(a.numpy(), W - 0.5, rtol=1e-6)
  kept = opt.state_dict()
  assert [g["params"] for g in kept["param_groups"]] == [[0], [1]] and [*kept["state"]] == [0, 1]
  other = Signs([{"params": [Tensor(W, requires_grad=True)]}, {"params": [Tensor(W[0], requires_grad=True)]}])
  other.load_state_dict(kept)
  assert other.param_groups[0]["lr"] == 0.5
  np.testing.assert_array_equal(other.state[other.params[1]]["mean"].numpy(), kept["state"][1]["mean"].numpy())
  with pytest.raises(StateError, match=r"groups of \[1, 1\] parameters for an optimizer that has \[1\]"):
    Signs([Tensor(W)]).load_state_dict(kept)
  assert repr(opt) == "Signs(lr=0.1, beta=0.9, 2 parameters)"


def test_one_around_another() -> None:
  found = trained(lambda w: Around([w], nn.optim.SGD, 0.5, lr=0.2, momentum=0.9))
  np.testing.assert_allclose(found, trained(lambda w: nn.optim.SGD([w], lr=0.1, momentum=0.9)), rtol=1e-4)


def test_numbers_that_python_counts() -> None:
  """Are right in plain steps, and refused in a captured one, which would repeat them."""
  w = W.astype(np.float64)
  for i, x in enumerate(X): w = w - 0.1 / (i + 1) * ((1 - np.tanh(x.astype(np.float64) @ w.T) ** 2).T @ x)
  np.testing.assert_allclose(trained(lambda w: Counted([w])), w, rtol=1e-4)
  with pytest.raises(CaptureError, match=r"Counted.step\(\) changes numbers of its state that Python counts"):
    trained(lambda w: Counted([w]), captured=True)


def test_grad_scaler() -> None:
  w, scaler = Tensor(W, requires_grad=True), amp.GradScaler(init_scale=1024.0)
  opt = Signs([w])
  for factor, moved in ((1.0, True), (float("inf"), False), (1.0, True)):
    before = w.numpy()
    opt.zero_grad()
    scaler.scale((w * w).sum() * factor).backward()
    scaler.step(opt)
    scaler.update()
    assert bool(abs(w.numpy() - before).max() > 0) is moved
  assert scaler.get_scale() == 512.0


def test_half_gradients_are_unscaled_in_float32() -> None:
  """1 / 3e6 is no number of float16."""
  w, scaler = Tensor(W, requires_grad=True, dtype="float16"), amp.GradScaler(init_scale=3e6)
  opt = Signs([w])
  w.grad = Tensor(np.full(W.shape, 3e4, np.float32)).cast("float16")
  scaler.unscale_(opt)
  np.testing.assert_allclose(w.grad.numpy(), 0.01, rtol=2e-3)


def test_refusals() -> None:
  w = Tensor(W, requires_grad=True)
  class Own(nn.optim.Optimizer):
    def __init__(self, params: Any): super().__init__(params, 0.1)
    def step(self, closure: Any = None) -> None: pass
  with pytest.raises(ArgumentError, match="Own: defaults is 0.1, expected a dict of options"): Own([w])
  with pytest.raises(ArgumentError, match="is in two groups"): Signs([{"params": [w]}, {"params": [w]}])
  assert len(Signs([w, w]).params) == 1   # as of other optimizers
  with pytest.raises(ArgumentError, match="params has a int, expected Tensors"): Signs([1])
  with pytest.raises(ArgumentError, match="no params"): Signs([])
  with pytest.raises(ArgumentError, match="a group has 'rho'"): nn.optim.SGD([{"params": [w], "rho": 1}], lr=0.1)
