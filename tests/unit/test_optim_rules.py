"""Every optimizer against its formula in numpy, over several steps; groups, state, gradients as a whole, averages."""
from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

from ntgrad import Tensor, jit, nn
from ntgrad.errors import ArgumentError, GradientError, NtgradError, ShapeError, StateError
from ntgrad.nn import optim
from ntgrad.nn.utils import clip_grad_norm_, clip_grad_value_, get_total_norm, parameters_to_vector, vector_to_parameters
from support.marks import long, long_where

Array = np.ndarray[Any, Any]
Rule = Callable[[Array, Array, dict[str, Any], int], Array]
LR = 0.05


def sgd(p: Array, g: Array, s: dict[str, Any], t: int) -> Array:
  g = g + 0.1 * p
  s["b"] = g if t == 1 else 0.9 * s["b"] + 0.7 * g
  return p - LR * s["b"]


def classic(p: Array, g: Array, s: dict[str, Any], t: int) -> Array:
  s["b"] = 0.9 * s.get("b", 0) + LR * g
  return p - s["b"]


def rmsprop(p: Array, g: Array, s: dict[str, Any], t: int) -> Array:
  s["v"], s["m"] = 0.9 * s.get("v", 0) + 0.1 * g * g, 0.9 * s.get("m", 0) + 0.1 * g
  s["b"] = 0.5 * s.get("b", 0) + g / (np.sqrt(s["v"] - s["m"] ** 2) + 1e-8)
  return p - LR * s["b"]


def adagrad(p: Array, g: Array, s: dict[str, Any], t: int) -> Array:
  s["v"] = s.get("v", 0.2) + g * g
  return p - LR / (1 + (t - 1) * 0.1) * g / (np.sqrt(s["v"]) + 1e-10)


def adadelta(p: Array, g: Array, s: dict[str, Any], t: int) -> Array:
  s["v"] = 0.9 * s.get("v", 0) + 0.1 * g * g
  d = np.sqrt(s.get("u", 0) + 1e-6) / np.sqrt(s["v"] + 1e-6) * g
  s["u"] = 0.9 * s.get("u", 0) + 0.1 * d * d
  return p - LR * d


def rprop(p: Array, g: Array, s: dict[str, Any], t: int) -> Array:
  same = g * s.get("prev", 0)
  s["step"] = np.clip(s.get("step", LR) * np.where(same > 0, 1.2, np.where(same < 0, 0.5, 1)), 1e-6, 50)
  s["prev"] = np.where(same < 0, 0, g)
  return p - np.sign(s["prev"]) * s["step"]


def asgd(p: Array, g: Array, s: dict[str, Any], t: int) -> Array:
  eta = LR / (1 + 0.01 * LR * (t - 1)) ** 0.75
  return p * (1 - 0.01 * eta) - eta * g


def lion(p: Array, g: Array, s: dict[str, Any], t: int) -> Array:
  m = s.get("m", 0)
  s["m"] = 0.99 * m + 0.01 * g
  return p - LR * (np.sign(0.9 * m + 0.1 * g) + 0.1 * p)


def means(g: Array, s: dict[str, Any]) -> tuple[Array, Array]:
  s["m"], s["v"] = 0.9 * s.get("m", 0) + 0.1 * g, 0.99 * s.get("v", 0) + 0.01 * g * g
  return s["m"], s["v"]


def adamax(p: Array, g: Array, s: dict[str, Any], t: int) -> Array:
  s["m"], s["u"] = 0.9 * s.get("m", 0) + 0.1 * g, np.maximum(0.99 * s.get("u", 0), np.abs(g) + 1e-8)
  return p - LR / (1 - 0.9 ** t) * s["m"] / s["u"]


def amsgrad(p: Array, g: Array, s: dict[str, Any], t: int) -> Array:
  m, v = means(g + 0.1 * p, s)
  s["most"] = np.maximum(s.get("most", 0), v)
  return p - LR * m / (1 - 0.9 ** t) / (np.sqrt(s["most"] / (1 - 0.99 ** t)) + 1e-8)


def nadam(p: Array, g: Array, s: dict[str, Any], t: int) -> Array:
  m, v = means(g, s)
  mu, after = [0.9 * (1 - 0.5 * 0.96 ** (k * 0.004)) for k in (t, t + 1)]
  s["product"] = s.get("product", 1) * mu
  up = g * (1 - mu) / (1 - s["product"]) + m * after / (1 - s["product"] * after)
  return p - LR * up / (np.sqrt(v / (1 - 0.99 ** t)) + 1e-8)


def radam(p: Array, g: Array, s: dict[str, Any], t: int) -> Array:
  m, v = means(g, s)
  most, fall = 2 / 0.01 - 1, 1 - 0.99 ** t
  rho = most - 2 * t * 0.99 ** t / fall
  m = m / (1 - 0.9 ** t)
  if rho <= 5: return p - LR * m
  r = math.sqrt((rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho))
  return p - LR * m * r * math.sqrt(fall) / (np.sqrt(v) + 1e-8)


def lars(p: Array, g: Array, s: dict[str, Any], t: int) -> Array:
  rate = LR * 0.1 * np.linalg.norm(p) / (np.linalg.norm(g) + 0.01 * np.linalg.norm(p))
  s["b"] = 0.9 * s.get("b", 0) + rate * (g + 0.01 * p)
  return p - s["b"]


def lamb(p: Array, g: Array, s: dict[str, Any], t: int) -> Array:
  m, v = means(g, s)
  up = m / (1 - 0.9 ** t) / (np.sqrt(v / (1 - 0.99 ** t)) + 1e-6) + 0.1 * p
  return p - LR * np.linalg.norm(p) / np.linalg.norm(up) * up


def schulz(x: Array, steps: int = 5) -> Array:
  x = x / (np.linalg.norm(x) + 1e-7)
  for _ in range(steps): x = 3.4445 * x - 4.775 * (x @ x.T) @ x + 2.0315 * (x @ x.T) @ (x @ x.T) @ x
  return x


def muon(p: Array, g: Array, s: dict[str, Any], t: int) -> Array:
  s["b"] = 0.95 * s.get("b", 0) + 0.05 * g
  flat = (0.95 * s["b"] + 0.05 * g).reshape(len(p), -1)
  return p - LR * 0.1 * p - LR * max(1, flat.shape[0] / flat.shape[1]) ** 0.5 * schulz(flat).reshape(p.shape)


B: dict[str, Any] = {"lr": LR, "betas": (0.9, 0.99)}
RULES: dict[str, tuple[Callable[[Any], Any], Rule]] = {
  "SGD": (lambda p: optim.SGD(p, LR, momentum=0.9, weight_decay=0.1, dampening=0.3), sgd),
  "SGD classic": (lambda p: optim.SGD(p, LR, 0.9, classic=True, fused=True), classic),
  "RMSprop": (lambda p: optim.RMSprop(p, LR, 0.9, momentum=0.5, centered=True), rmsprop),
  "Adagrad": (lambda p: optim.Adagrad(p, LR, lr_decay=0.1, initial_accumulator_value=0.2), adagrad),
  "Adadelta": (lambda p: optim.Adadelta(p, LR), adadelta), "Rprop": (lambda p: optim.Rprop(p, LR), rprop),
  "ASGD": (lambda p: optim.ASGD(p, LR, lambd=0.01), asgd), "Lion": (lambda p: optim.Lion(p, LR, weight_decay=0.1), lion),
  "Adamax": (lambda p: optim.Adamax(p, **B), adamax),
  "Adam": (lambda p: optim.Adam(p, **B, amsgrad=True, weight_decay=0.1), amsgrad),
  "Adam, betas third": (lambda p: optim.Adam(p, LR, (0.9, 0.99), weight_decay=0.1, amsgrad=True), amsgrad),
  "NAdam": (lambda p: optim.NAdam(p, **B), nadam), "RAdam": (lambda p: optim.RAdam(p, **B), radam),
  "LARS": (lambda p: optim.LARS(p, LR, weight_decay=0.01, tcoef=0.1), lars),
  "LAMB": (lambda p: optim.LAMB(p, **B, weight_decay=0.1), lamb), "Muon": (lambda p: optim.Muon(p, LR), muon)}


def start(dtype: Any = np.float32) -> tuple[list[Tensor], list[Array], list[Array]]:
  """Parameters, their values, and factors of a loss whose gradient is factor * p + cos(p)."""
  rng = np.random.default_rng(3)
  values = [rng.standard_normal(s).astype(dtype) for s in ((3, 5), (2, 2, 3))]
  return [Tensor(v, requires_grad=True) for v in values], values, [rng.standard_normal(v.shape).astype(dtype) for v in values]


def backward(params: list[Tensor], factors: list[Array]) -> None:
  sum([(Tensor(f) * p * p / 2 + p.sin()).sum() for f, p in zip(factors, params)], Tensor(0.0)).backward()


@long_where(lambda name: name == "Muon")
@pytest.mark.parametrize("name", RULES)
def test_rules(name: str) -> None:
  make, rule = RULES[name]
  for dtype, tolerance in ((np.float32, 2e-5), (np.float64, 1e-9)):
    params, values, factors = start(dtype)
    opt = make(params)
    want, states = [v.astype(np.float64) for v in values], [dict[str, Any]() for _ in values]
    for t in range(1, 8):
      opt.zero_grad()
      backward(params, factors)
      opt.step()
      want = [rule(p, f * p + np.cos(p), s, t) for p, f, s in zip(want, factors, states)]
    for p, w in zip(params, want): np.testing.assert_allclose(p.numpy(), w, rtol=tolerance, atol=tolerance)


@long_where(lambda name: name in ("Muon", "LAMB", "LARS"))
@pytest.mark.parametrize("name", RULES)
def test_a_run_goes_on_from_its_state_bit_for_bit(name: str, tmp_path: Path) -> None:
  def steps(params: list[Tensor], opt: Any, n: int) -> None:
    for _ in range(n):
      opt.zero_grad()
      backward(params, factors)
      opt.step()
  params, _, factors = start()
  opt = RULES[name][0](params)
  steps(params, opt, 3)
  nn.state.safe_save({**nn.state.get_state_dict({"opt": opt.state_dict()}), **nn.state.get_state_dict({"p": params})},
                     str(tmp_path / "run.safetensors"))
  held = opt.state_dict()
  held = {"state": {i: {k: v.clone().realize() for k, v in s.items()} for i, s in held["state"].items()},
          "param_groups": held["param_groups"]}
  between = [p.numpy() for p in params]
  steps(params, opt, 3)
  for load in ("file", "dict"):
    again = [Tensor(b, requires_grad=True) for b in between]
    other = RULES[name][0](again)
    if load == "dict": other.load_state_dict(held)
    else:
      saved = nn.state.safe_load(str(tmp_path / "run.safetensors"))
      nn.state.load_state_dict({"opt": other.state_dict(), "p": again}, saved, verbose=False)
    steps(again, other, 3)
    for a, p in zip(again, params): np.testing.assert_array_equal(a.numpy(), p.numpy())


def test_groups_have_options_of_their_own() -> None:
  params, values, _ = start()
  opt = optim.SGD([{"params": params[0], "lr": 0.5}, {"params": params[1:], "momentum": 0.5}], lr=0.1)
  third = Tensor([1.0], requires_grad=True)
  opt.add_param_group({"params": [third], "lr": 2.0})
  for p in (*params, third): p.grad = Tensor(np.ones(p.shape, np.float32))
  opt.step()
  for p, v, lr in zip((*params, third), (*values, np.ones(1)), (0.5, 0.1, 2.0)):
    np.testing.assert_allclose(p.numpy(), v - lr, rtol=1e-6, atol=1e-6)
  assert [g["lr"] for g in opt.param_groups] == [0.5, 0.1, 2.0] and [g["momentum"] for g in opt.param_groups] == [0, 0.5, 0]
  assert "momentum=0.5" in repr(opt) and repr(opt).startswith("SGD(\n  1 parameters, 15 numbers: lr=0.5")
  state = opt.state_dict()
  assert [g["params"] for g in state["param_groups"]] == [[0], [1], [2]] and set(state["state"]) == {1}
  assert opt.state[params[1]]["momentum_buffer"].shape == params[1].shape
  opt.lr = 0.25
  assert [g["lr"] for g in opt.param_groups] == [0.25] * 3
  with pytest.raises(ArgumentError, match="momentum is 'much'"): opt.param_groups[0]["momentum"] = "much"
  assert opt.param_groups[0]["momentum"] == 0
  with pytest.raises(ArgumentError, match="is in two groups"): opt.add_param_group({"params": params[0]})
  with pytest.raises(ArgumentError, match="a group has 'rate'"): optim.SGD([{"params": params, "rate": 1.0}])
  with pytest.raises(StateError, match="groups of"): opt.load_state_dict(optim.SGD([third]).state_dict())


@long
def test_options_change_without_compiling() -> None:
  params, _, factors = start()
  opt = optim.AdamW(params, lr=0.1, weight_decay=0.1)
  schedule = nn.optim.lr_scheduler.LambdaLR(opt, lambda t: 1 / (1 + t))

  @jit
  def step(scale: Tensor) -> Tensor:
    opt.zero_grad()
    loss = sum([(Tensor(f) * p * p * scale).sum() for f, p in zip(factors, params)], Tensor(0.0))
    loss.backward()
    opt.step()
    return loss.realize()

  other, _, _ = start()
  plain = optim.AdamW(other, lr=0.1, weight_decay=0.1)
  for t in range(6):
    plain.param_groups[0]["lr"], plain.param_groups[0]["betas"] = 0.1 / (1 + t), (0.9 - 0.01 * t, 0.999)
    opt.param_groups[0]["betas"] = (0.9 - 0.01 * t, 0.999)
    assert opt.param_groups[0]["lr"] == pytest.approx(plain.param_groups[0]["lr"])
    step(Tensor([1.0 + t]))
    plain.zero_grad()
    sum([(Tensor(f) * p * p * (1.0 + t)).sum() for f, p in zip(factors, other)], Tensor(0.0)).backward()
    plain.step()
    schedule.step()
  for a, b in zip(params, other): np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)


def test_a_learning_rate_written_as_a_tensor_is_seen() -> None:
  opt = optim.SGD([Tensor([1.0], requires_grad=True)], lr=0.1)
  opt.lr.assign(opt.lr * 0.5)
  assert opt.param_groups[0]["lr"] == pytest.approx(0.05)
  opt.param_groups[0]["lr"] = Tensor(0.2)
  opt.param_groups[0]["nesterov"] = False
  assert opt.param_groups[0]["lr"] == pytest.approx(0.2) and opt.lr.item() == pytest.approx(0.2)


def test_closures_zeros_and_several_optimizers() -> None:
  params, values, factors = start()
  both = optim.OptimizerGroup(optim.SGD(params[:1], lr=1.0), optim.SGD(params[1:], lr=2.0))
  for p in params: p.grad = Tensor(np.ones(p.shape, np.float32))
  both.step()
  np.testing.assert_allclose(params[1].numpy(), values[1] - 2, rtol=1e-6)
  state = both.state_dict()
  both.load_state_dict(state)
  with pytest.raises(StateError): both.load_state_dict({"0": state["0"]})
  both[0].zero_grad(set_to_none=False)
  assert params[0].grad is not None and params[0].grad.tolist() == np.zeros((3, 5)).tolist()
  both.zero_grad()
  with pytest.raises(GradientError): both.step()
  def closure() -> str:
    backward(params[:1], factors[:1])
    return "loss"
  assert both[0].step(closure) == "loss"
  with pytest.raises(ArgumentError, match="index 5"): both[5]


@pytest.mark.parametrize("wrong", [
  lambda p: optim.Adam([p], 0.1, (0.9, 0.99), 1e-8), lambda p: optim.Adam([p], betas=(0.9,)),
  lambda p: optim.RMSprop([p], speed=1),
  lambda p: optim.Muon([p]), lambda p: optim.Rprop([p], etas=(1.2, 0.5)), lambda p: optim.SGD([p], nesterov=True, momentum=0.0),
  lambda p: optim.Muon([p.reshape(1, 2)], ns_coefficients=(1.0,)), lambda p: optim.SGD([p], lr=math.nan)])
def test_refusals(wrong: Callable[[Tensor], Any]) -> None:
  with pytest.raises(NtgradError): wrong(Tensor([1.0, 2.0], requires_grad=True))


# ---- gradients as a whole
@pytest.mark.parametrize("kind", [1.0, 2.0, 3.0, math.inf])
def test_clipping_by_the_norm(kind: float) -> None:
  params, values, _ = start()
  for p, v in zip(params, values): p.grad = Tensor(v * 3)
  flat = np.concatenate([v.ravel() * 3 for v in values]).astype(np.float64)
  norm = np.linalg.norm(flat, kind)
  total = clip_grad_norm_(params, 1.5, kind)
  assert total.item() == pytest.approx(norm, rel=1e-5)
  for p, v in zip(params, values):
    np.testing.assert_allclose(p.grad.numpy(), v * 3 * 1.5 / norm, rtol=1e-4)  # type: ignore[union-attr]
  before = [p.grad.numpy() for p in params if p.grad is not None]
  clip_grad_norm_(params, 1e6, kind)   # short enough
  for p, b in zip(params, before):
    np.testing.assert_array_equal(p.grad.numpy(), b)  # type: ignore[union-attr]


def test_clipping_within_a_captured_step() -> None:
  params, values, factors = start()
  opt = optim.SGD(params, lr=0.1)
  @jit
  def step(scale: Tensor) -> Tensor:
    opt.zero_grad()
    sum([(Tensor(f) * p * scale).sum() for f, p in zip(factors, params)], Tensor(0.0)).backward()
    total = clip_grad_norm_(params, 1.0)
    opt.step()
    return total.realize()
  norm = math.sqrt(sum(float((f ** 2).sum()) for f in factors))
  for i in range(5): assert step(Tensor([1.0 + i])).item() == pytest.approx((1 + i) * norm, rel=1e-5)
  for p, v, f in zip(params, values, factors): np.testing.assert_allclose(p.numpy(), v - 0.5 * f / norm, rtol=1e-4, atol=1e-5)


def test_values_vectors_and_refusals() -> None:
  params, values, _ = start()
  params[0].grad = Tensor(values[0] * 9)
  clip_grad_value_(params, 0.5)
  np.testing.assert_allclose(params[0].grad.numpy(), np.clip(values[0] * 9, -0.5, 0.5))
  vector = parameters_to_vector(params)
  np.testing.assert_array_equal(vector.numpy(), np.concatenate([v.ravel() for v in values]))
  vector_to_parameters(vector.detach() * 2, params)
  for p, v in zip(params, values): np.testing.assert_array_equal(p.numpy(), v * 2)
  assert get_total_norm([]).item() == 0
  with pytest.raises(ShapeError, match="27 elements"): vector_to_parameters(Tensor.ones(3), params)
  with pytest.raises(GradientError, match="is inf"): get_total_norm([Tensor([math.inf])], error_if_nonfinite=True)
  with pytest.raises(ArgumentError, match="no Tensor"): clip_grad_norm_([1.0], 1.0)


# ---- averages
def test_averages() -> None:
  model = nn.Linear(2, 2)
  ema, copies = optim.EMA(model, decay=0.5), optim.swa_utils.AveragedModel(model)
  first = model.weight.numpy()
  copies.update_parameters(model)
  with Tensor.no_grad(): model.weight.assign(model.weight + 1).realize()
  ema.update()
  copies.update_parameters(model)
  np.testing.assert_allclose(ema.average[0].numpy(), first + 0.5, rtol=1e-6)
  np.testing.assert_allclose(copies.module.weight.numpy(), first + 0.5, rtol=1e-6)
  with ema.applied(): np.testing.assert_allclose(model.weight.numpy(), first + 0.5, rtol=1e-6)
  np.testing.assert_allclose(model.weight.numpy(), first + 1, rtol=1e-6)
  assert copies(Tensor.ones(1, 2)).shape == (1, 2) and copies.n_averaged.item() == 2
  assert list(copies.state_dict()) == ["n_averaged", "module.weight", "module.bias"] and not copies.eval().module.training
  other = optim.swa_utils.AveragedModel(model, multi_avg_fn=optim.swa_utils.get_ema_multi_avg_fn(0.75))
  other.update_parameters(model)
  with Tensor.no_grad(): model.weight.assign(model.weight + 1).realize()
  other.update_parameters(model)
  np.testing.assert_allclose(other.module.weight.numpy(), first + 1.25, rtol=1e-6)
  with pytest.raises(ArgumentError, match="other parameters"): other.update_parameters(nn.Linear(3, 2))
  with pytest.raises(ArgumentError): optim.EMA(model, 1.5)
