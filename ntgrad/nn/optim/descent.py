"""Optimizers that scale each element's gradient by what it has seen, other than Adam's family."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ntgrad.codegen.ir.errors import ArgumentError
from ntgrad.graph.checks import checked
from ntgrad.tensor import Tensor

from .base import AT_LEAST_0, Numbers, Optimizer, ParamGroup, decayed
from .flat import Flat

New = tuple[Tensor, dict[str, Tensor]]


def with_momentum(group: ParamGroup, flat: Flat, g: Tensor, n: Numbers, taken: Tensor | None = None) -> New:
  """The direction of a step, and what was gathered; ``taken`` is the part of a gradient that is added to it."""
  if "momentum_buffer" not in flat.states: return g, {}
  b = n.momentum * flat["momentum_buffer"] + (g if taken is None else g * taken)
  return g + n.momentum * b if group["nesterov"] else b, {"momentum_buffer": b}


@checked
class SGD(Optimizer):
  """Stochastic gradient descent with momentum, as PyTorch has it.

  ``g += weight_decay·p``; ``b = momentum·b + (1 - dampening)·g`` (the first time ``b = g``);
  ``p -= lr·(g + momentum·b if nesterov else b)``. Nesterov's momentum: http://proceedings.mlr.press/v28/sutskever13.pdf.
  ``classic`` multiplies by the learning rate before the momentum: ``b = momentum·b + lr·g``; ``p -= b``.
  Raises as :class:`Optimizer`, and ArgumentError for ``nesterov`` without momentum or with dampening.
  """
  _states_with, _decays = {"momentum": "momentum_buffer"}, True
  _rest, _reads = "dampening", ("momentum", "weight_decay")
  _scalars_of: Sequence[str] = ("taken",)   # 1, then 1 - dampening

  def __init__(self, params: Iterable[Any], lr: float = 0.001, momentum: float = 0.0, weight_decay: float = 0.0,
               nesterov: bool = False, classic: bool = False, *, dampening: float = 0.0, maximize: bool = False, **options: Any):
    super().__init__(params, lr, {"momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov,
                                  "dampening": dampening, "maximize": maximize, "classic": classic}, options)

  @classmethod
  def _scalars_for(cls, group: ParamGroup) -> Sequence[str]: return cls._scalars_of if group["dampening"] else ()
  @classmethod
  def _check(cls, group: ParamGroup) -> None:
    if group["nesterov"] and (not group["momentum"] or group["dampening"]):
      raise ArgumentError("SGD: nesterov needs a momentum above 0, and no dampening")
  @classmethod
  def _scalars(cls, n: Numbers, t: Tensor) -> list[Tensor]: return [(t > 1).where(n.rest, 1.0)]

  def _update(self, group: ParamGroup, flat: Flat, p: Tensor, g: Tensor, n: Numbers) -> New:
    if group["classic"]: g = g * n.lr
    g, b = with_momentum(group, flat, g, n, n.taken if group["dampening"] else None)
    return p - (g if group["classic"] else n.lr * g), b


@checked
class RMSprop(Optimizer):
  """RMSprop (https://www.cs.toronto.edu/~tijmen/csc321/slides/lecture_slides_lec6.pdf), as PyTorch has it.

  ``v = alpha·v + (1-alpha)·g²``; ``p -= lr · g / (√v + eps)``. ``centered`` subtracts the square of the mean gradient from v
  (https://arxiv.org/abs/1308.0850); ``momentum`` gathers what is subtracted. Raises as :class:`Optimizer`.
  """
  _states, _states_with = ("square_avg",), {"momentum": "momentum_buffer", "centered": "grad_avg"}
  _rest, _reads, _decays = "alpha", ("alpha", "eps", "weight_decay", "momentum"), True

  def __init__(self, params: Iterable[Any], lr: float = 0.01, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0.0,
               momentum: float = 0.0, centered: bool = False, *, maximize: bool = False, **options: Any): self._start(locals())

  def _update(self, group: ParamGroup, flat: Flat, p: Tensor, g: Tensor, n: Numbers) -> New:
    v = n.alpha * flat["square_avg"] + n.rest * (g * g)
    new = {"square_avg": v}
    if "grad_avg" in flat.states:
      mean = new["grad_avg"] = flat["grad_avg"] + n.rest * (g - flat["grad_avg"])
      v = v - mean * mean
    up = g / (v.sqrt() + n.eps)
    if "momentum_buffer" in flat.states: up = new["momentum_buffer"] = n.momentum * flat["momentum_buffer"] + up
    return p - n.lr * up, new


@checked
class Adagrad(Optimizer):
  """Adagrad (https://jmlr.org/papers/v12/duchi11a.html), as PyTorch has it.
  ``sum += g²``; ``p -= lr/(1 + (t-1)·lr_decay) · g / (√sum + eps)``. Raises as :class:`Optimizer`."""
  _states, _begin_at, _scalars_of = ("sum",), {"sum": "initial_accumulator_value"}, ("decay",)
  _reads, _decays = ("lr_decay", "eps", "weight_decay"), True

  def __init__(self, params: Iterable[Any], lr: float = 0.01, lr_decay: float = 0.0, weight_decay: float = 0.0,
               initial_accumulator_value: float = 0.0, eps: float = 1e-10, *, maximize: bool = False, **options: Any):
    super().__init__(params, lr, {"lr_decay": lr_decay, "weight_decay": weight_decay, "eps": eps, "maximize": maximize,
                                  "initial_accumulator_value": initial_accumulator_value}, options)

  @classmethod
  def _scalars(cls, n: Numbers, t: Tensor) -> list[Tensor]: return [1 / (1 + (t - 1) * n.lr_decay)]

  def _update(self, group: ParamGroup, flat: Flat, p: Tensor, g: Tensor, n: Numbers) -> New:
    total = flat["sum"] + g * g
    return p - n.lr * n.decay * (g / (total.sqrt() + n.eps)), {"sum": total}


@checked
class Adadelta(Optimizer):
  """Adadelta (https://arxiv.org/abs/1212.5701), as PyTorch has it.
  ``v = rho·v + (1-rho)·g²``; ``d = √(u + eps) / √(v + eps) · g``; ``u = rho·u + (1-rho)·d²``; ``p -= lr·d``.
  Raises as :class:`Optimizer`."""
  _states, _rest, _reads, _decays = ("square_avg", "acc_delta"), "rho", ("rho", "eps", "weight_decay"), True

  def __init__(self, params: Iterable[Any], lr: float = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0.0, *,
               maximize: bool = False, **options: Any): self._start(locals())

  def _update(self, group: ParamGroup, flat: Flat, p: Tensor, g: Tensor, n: Numbers) -> New:
    v = n.rho * flat["square_avg"] + n.rest * (g * g)
    d = (flat["acc_delta"] + n.eps).sqrt() / (v + n.eps).sqrt() * g
    return p - n.lr * d, {"square_avg": v, "acc_delta": n.rho * flat["acc_delta"] + n.rest * (d * d)}


@checked
class Rprop(Optimizer):
  """Resilient backpropagation (https://doi.org/10.1109/ICNN.1993.298623), as PyTorch has it: by the gradients' signs alone.

  An element's step grows by ``etas[1]`` while the sign stays, and shrinks by ``etas[0]`` where it changed (and then no step is
  made), between the two ``step_sizes``; the first is ``lr``. Raises as :class:`Optimizer`.
  """
  _states, _begin_at = ("prev", "step_size"), {"step_size": "lr"}

  def __init__(self, params: Iterable[Any], lr: float = 0.01, etas: tuple[float, float] = (0.5, 1.2),
               step_sizes: tuple[float, float] = (1e-6, 50.0), *, maximize: bool = False, **options: Any): self._start(locals())

  @classmethod
  def _check(cls, group: ParamGroup) -> None:
    if not group["etas"][0] < 1 < group["etas"][1]:
      raise ArgumentError(f"Rprop: etas {group['etas']}; the first is below 1, the second above")
  @classmethod
  def _numbers(cls, group: ParamGroup) -> dict[str, float]:
    return dict(zip(("shrink", "grow", "least", "most"), (*group["etas"], *group["step_sizes"])))

  def _update(self, group: ParamGroup, flat: Flat, p: Tensor, g: Tensor, n: Numbers) -> New:
    same = g * flat["prev"]
    factor = (same > 0).where(n.grow, (same < 0).where(n.shrink, 1.0))
    step = (flat["step_size"] * factor).maximum(n.least).minimum(n.most)
    g = (same < 0).where(0.0, g)
    return p - g.sign() * step, {"prev": g, "step_size": step}


@checked
class ASGD(Optimizer):
  """Averaged stochastic gradient descent (https://doi.org/10.1137/0330046), as PyTorch has it: ``state[p]["ax"]`` is the average.
  ``eta = lr / (1 + lambd·lr·(t-1))^alpha``; ``p = (1 - lambd·eta)·p - eta·g``; from step ``t0`` on ``ax`` is the mean of p.
  Raises as :class:`Optimizer`."""
  _checks = {**Optimizer._checks, "alpha": AT_LEAST_0}
  _states, _reads, _scalars_of, _decays = ("ax",), ("lambd", "alpha", "t0", "weight_decay"), ("eta", "mu"), True

  def __init__(self, params: Iterable[Any], lr: float = 0.01, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6,
               weight_decay: float = 0.0, *, maximize: bool = False, **options: Any): self._start(locals())

  @classmethod
  def _scalars(cls, n: Numbers, t: Tensor) -> list[Tensor]:
    return [n.lr / (1 + n.lambd * n.lr * (t - 1)) ** n.alpha, 1 / (t - 1 - n.t0).maximum(1.0)]

  def _update(self, group: ParamGroup, flat: Flat, p: Tensor, g: Tensor, n: Numbers) -> New:
    new = p * (1 - n.lambd * n.eta) - n.eta * g
    return new, {"ax": n.mu.eq(1).where(new, flat["ax"] + (new - flat["ax"]) * n.mu)}


@checked
class Lion(Optimizer):
  """Lion (https://arxiv.org/abs/2302.06675): ``p -= lr · (sign(b1·m + (1-b1)·g) + weight_decay·p)``; ``m = b2·m + (1-b2)·g``.
  Learning rates are 3 to 10 times smaller than Adam's, weight decay as much larger. Raises as :class:`Optimizer`."""
  _states = ("exp_avg",)

  def __init__(self, params: Iterable[Any], lr: float = 1e-4, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0,
               *, maximize: bool = False, **options: Any): self._start(locals())

  @classmethod
  def _numbers(cls, group: ParamGroup) -> dict[str, float]:
    b1, b2 = group["betas"]
    return {"b1": b1, "c1": 1 - b1, "b2": b2, "c2": 1 - b2, "weight_decay": group["weight_decay"]}

  def _update(self, group: ParamGroup, flat: Flat, p: Tensor, g: Tensor, n: Numbers) -> New:
    up = decayed(group, p, (n.b1 * flat["exp_avg"] + n.c1 * g).sign(), n)
    return p - n.lr * up, {"exp_avg": n.b2 * flat["exp_avg"] + n.c2 * g}
