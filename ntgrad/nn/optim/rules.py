"""The optimizers: what each makes of a gradient."""
from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from ntgrad.codegen.ir import ArgumentError, ShapeError, shown
from ntgrad.graph import whole_number
from ntgrad.nn.common import number, one_of
from ntgrad.tensor import Tensor

from .base import AT_LEAST_0, BELOW_1, Optimizer
from .flat import Flat
from .groups import Numbers, ParamGroup, decayed

New = tuple[Tensor, dict[str, Tensor]]


def with_momentum(group: ParamGroup, flat: Flat, g: Tensor, n: Numbers, taken: Tensor | None = None) -> New:
  """The direction of a step, and what was gathered; ``taken`` is the part of a gradient that is added to it."""
  if "momentum_buffer" not in flat.states: return g, {}
  b = n.momentum * flat["momentum_buffer"] + (g if taken is None else g * taken)
  return g + n.momentum * b if group["nesterov"] else b, {"momentum_buffer": b}


class SGD(Optimizer):
  """Stochastic gradient descent with momentum, as PyTorch has it.

  ``g += weight_decay·p``; ``b = momentum·b + (1 - dampening)·g`` (the first time ``b = g``);
  ``p -= lr·(g + momentum·b if nesterov else b)``. Nesterov's momentum: http://proceedings.mlr.press/v28/sutskever13.pdf.
  ``classic`` multiplies by the learning rate before the momentum: ``b = momentum·b + lr·g``; ``p -= b``.
  Raises as :class:`Optimizer`, and ArgumentError for ``nesterov`` without momentum or with dampening.
  """
  _states_with, _decays = {"momentum": "momentum_buffer"}, True
  _rest, _reads = "dampening", ("momentum", "weight_decay")
  _scalars_of, _scalars_with = ("taken",), "dampening"   # 1, then 1 - dampening

  def __init__(self, params: Iterable[Any], lr: float = 0.001, momentum: float = 0.0, weight_decay: float = 0.0,
               nesterov: bool = False, classic: bool = False, *, dampening: float = 0.0, maximize: bool = False, **options: Any):
    self._start(locals(), "momentum weight_decay nesterov dampening maximize classic")

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


class Adagrad(Optimizer):
  """Adagrad (https://jmlr.org/papers/v12/duchi11a.html), as PyTorch has it.
  ``sum += g²``; ``p -= lr/(1 + (t-1)·lr_decay) · g / (√sum + eps)``. Raises as :class:`Optimizer`."""
  _states, _begin_at, _scalars_of = ("sum",), {"sum": "initial_accumulator_value"}, ("decay",)
  _reads, _decays = ("lr_decay", "eps", "weight_decay"), True

  def __init__(self, params: Iterable[Any], lr: float = 0.01, lr_decay: float = 0.0, weight_decay: float = 0.0,
               initial_accumulator_value: float = 0.0, eps: float = 1e-10, *, maximize: bool = False, **options: Any):
    self._start(locals(), "lr_decay weight_decay eps maximize initial_accumulator_value")

  @classmethod
  def _scalars(cls, n: Numbers, t: Tensor) -> list[Tensor]: return [1 / (1 + (t - 1) * n.lr_decay)]

  def _update(self, group: ParamGroup, flat: Flat, p: Tensor, g: Tensor, n: Numbers) -> New:
    total = flat["sum"] + g * g
    return p - n.lr * n.decay * (g / (total.sqrt() + n.eps)), {"sum": total}


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
    step = (flat["step_size"] * (same > 0).where(n.grow, (same < 0).where(n.shrink, 1.0))).maximum(n.least).minimum(n.most)
    g = (same < 0).where(0.0, g)
    return p - g.sign() * step, {"prev": g, "step_size": step}


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


# ---- Adam and what was made of it

class AdamLike(Optimizer):
  """Running means of the gradient (m) and of its square (v), and how far both still are from their limits."""
  _states: Sequence[str] = "exp_avg", "exp_avg_sq"
  _states_with = {"amsgrad": "max_exp_avg_sq"}
  _scalars_of: Sequence[str] = "step", "bias1", "bias2"   # t, 1 - b1ᵗ, 1 - b2ᵗ
  _kept: Sequence[str] = "bias1", "bias2"
  _recurrent = True

  @classmethod
  def _numbers(cls, group: ParamGroup) -> dict[str, float]:
    b1, b2 = group["betas"]
    return {"a": 1.0, "b1": b1, "b2": b2, "b": 1.0, "c1": 1 - b1, "c2": 1 - b2, "eps": group["eps"],
            "weight_decay": group["weight_decay"],
            "log1": math.log(b1) if b1 else -1e30, "log2": math.log(b2) if b2 else -1e30}

  @classmethod
  def _scalars(cls, n: Numbers, t: Tensor) -> list[Tensor]:
    return [t, -(t * n.log1).expm1(), -(t * n.log2).expm1()]

  def _up(self, flat: Flat, new: dict[str, Tensor], g: Tensor, n: Numbers) -> Tensor:
    """The direction from the new means (which may take more state with them)."""
    v = new["exp_avg_sq"]
    if "max_exp_avg_sq" in flat.states: v = new["max_exp_avg_sq"] = flat["max_exp_avg_sq"].maximum(v)
    return new["exp_avg"] / n.bias1 / ((v / n.bias2).sqrt() + n.eps)

  def _direction(self, group: ParamGroup, flat: Flat, p: Tensor, g: Tensor, n: Numbers) -> New:
    """The direction, with the weight decay, and the new state."""
    decoupled = group.get("decoupled_weight_decay", self.decoupled)
    if not decoupled: g = decayed(group, p, g, n)
    new = {"exp_avg": n.b1 * flat["exp_avg"] + n.c1 * g, "exp_avg_sq": n.b2 * flat["exp_avg_sq"] + n.c2 * (g * g)}
    up = self._up(flat, new, g, n)
    return decayed(group, p, up, n) if decoupled else up, new

  def _update(self, group: ParamGroup, flat: Flat, p: Tensor, g: Tensor, n: Numbers) -> New:
    up, new = self._direction(group, flat, p, g, n)
    return p - n.lr * up, new


class Adam(AdamLike):
  """Adam (https://arxiv.org/abs/1412.6980) with bias correction. ``weight_decay`` is added to the gradient, as in PyTorch.

  ``m = b1·m + (1-b1)·g``; ``v = b2·v + (1-b2)·g²``; ``p -= lr · m/(1-b1ᵗ) / (√(v/(1-b2ᵗ)) + eps)``.
  ``t`` counts the optimizer's steps. Betas are two numbers, or one tuple ``betas``. ``amsgrad`` takes the greatest v so far
  (https://openreview.net/forum?id=ryQu7f-RZ). Raises as :class:`Optimizer`, and ArgumentError for betas outside [0, 1) and for
  negative ``eps`` or ``weight_decay``.
  """

  def __init__(self, params: Iterable[Any], lr: float = 0.001, b1: Any = 0.9, b2: float = 0.999, eps: float = 1e-8,
               weight_decay: float = 0.0, amsgrad: bool = False, *, betas: tuple[float, float] | None = None,
               maximize: bool = False, decoupled_weight_decay: bool = False, **options: Any):
    self.decoupled = decoupled_weight_decay
    del decoupled_weight_decay   # no option of a group
    self._start(locals())


class AdamW(AdamLike):
  """Adam with decoupled weight decay (https://arxiv.org/abs/1711.05101): as :class:`Adam`, and ``p -= lr · weight_decay · p``."""
  decoupled = True

  def __init__(self, params: Iterable[Any], lr: float = 0.001, b1: Any = 0.9, b2: float = 0.999, eps: float = 1e-8,
               weight_decay: float = 0.01, amsgrad: bool = False, *, betas: tuple[float, float] | None = None,
               maximize: bool = False, **options: Any): self._start(locals())


class Adamax(AdamLike):
  """Adam with the greatest gradient in place of the mean square (https://arxiv.org/abs/1412.6980), as PyTorch has it.
  ``u = max(b2·u, |g| + eps)``; ``p -= lr/(1-b1ᵗ) · m/u``. Raises as :class:`Adam`."""
  _states, _decays = ("exp_avg", "exp_inf"), True

  def __init__(self, params: Iterable[Any], lr: float = 0.002, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
               weight_decay: float = 0.0, *, maximize: bool = False, **options: Any): self._start(locals())

  def _update(self, group: ParamGroup, flat: Flat, p: Tensor, g: Tensor, n: Numbers) -> New:
    m, u = n.b1 * flat["exp_avg"] + n.c1 * g, (n.b2 * flat["exp_inf"]).maximum(g.abs() + n.eps)
    return p - n.lr / n.bias1 * (m / u), {"exp_avg": m, "exp_inf": u}


class NAdam(AdamLike):
  """Adam with Nesterov's momentum (https://openreview.net/forum?id=OM0jvwB8jIp57ZJjtNEZ), as PyTorch has it.
  ``muₜ = b1·(1 - 0.96^(t·momentum_decay)/2)``; ``p -= lr · (g·(1-muₜ)/(1-Πmu) + m·muₜ₊₁/(1-Πmu·muₜ₊₁)) / (√(v/(1-b2ᵗ)) + eps)``.
  Raises as :class:`Adam`."""
  _scalars_of = "bias2", "mu_product", "of_g", "of_m"
  _kept, _recurrent = ("mu_product",), False

  def __init__(self, params: Iterable[Any], lr: float = 0.002, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
               weight_decay: float = 0.0, momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False, *,
               maximize: bool = False, **options: Any): self._start(locals())

  @classmethod
  def _numbers(cls, group: ParamGroup) -> dict[str, float]:
    return {**super()._numbers(group), "decay": group["momentum_decay"] * math.log(0.96)}

  @classmethod
  def _scalars(cls, n: Numbers, t: Tensor) -> list[Tensor]:
    mu, after = [n.b1 * (1 - 0.5 * (k * n.decay).exp()) for k in (t, t + 1)]
    product = (t > 1).where(n.mu_product * mu, mu)
    return [-(t * n.log2).expm1(), product, (1 - mu) / (1 - product), after / (1 - product * after)]

  def _up(self, flat: Flat, new: dict[str, Tensor], g: Tensor, n: Numbers) -> Tensor:
    return (g * n.of_g + new["exp_avg"] * n.of_m) / ((new["exp_avg_sq"] / n.bias2).sqrt() + n.eps)


class RAdam(AdamLike):
  """Rectified Adam (https://arxiv.org/abs/1908.03265), as PyTorch has it: without v while that is of too few gradients.
  Raises as :class:`Adam`."""
  _scalars_of, _kept, _recurrent = ("bias1", "bias2", "rectified"), (), False

  def __init__(self, params: Iterable[Any], lr: float = 0.001, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
               weight_decay: float = 0.0, decoupled_weight_decay: bool = False, *, maximize: bool = False, **options: Any):
    self._start(locals())

  @classmethod
  def _numbers(cls, group: ParamGroup) -> dict[str, float]:
    b2 = group["betas"][1]
    most = 2 / (1 - b2) - 1
    return {**super()._numbers(group), "most": most, "begin": most + 2 / math.log(b2) if b2 else 0.0}

  @classmethod
  def _scalars(cls, n: Numbers, t: Tensor) -> list[Tensor]:
    # rho = most - 2·t·b2ᵗ/(1 - b2ᵗ), of large numbers that nearly cancel; with x = -t·log(b2) it is
    # begin + 2·t·(1/x - 1/(eˣ - 1))
    x = -t * n.log2
    small = 0.5 - x / 12 + x ** 3 / 720 - x ** 5 / 30240
    rho = n.begin + 2 * t * (x < 0.5).where(small, 1 / x - 1 / x.expm1())
    ratio = (rho - 4) * (rho - 2) * n.most / ((n.most - 4) * (n.most - 2) * rho)
    return [*super()._scalars(n, t)[1:], (rho > 5).where(ratio.maximum(0.0).sqrt(), 0.0)]   # 0: not yet

  def _up(self, flat: Flat, new: dict[str, Tensor], g: Tensor, n: Numbers) -> Tensor:
    scaled = n.rectified * n.bias2.sqrt() / (new["exp_avg_sq"].sqrt() + n.eps)
    return new["exp_avg"] / n.bias1 * (n.rectified > 0).where(scaled, 1.0)


# ---- those that look at a parameter as a whole: at its length, or at it as a matrix; each is updated by itself

def _length(x: Tensor) -> Tensor: return x.square().sum().sqrt().reshape(1)


class LARS(Optimizer):
  """Layer-wise adaptive rates (https://arxiv.org/abs/1708.03888), as tinygrad has it.

  ``r = tcoef·|p| / (|g| + weight_decay·|p|)`` (1 where a length is 0, or ``tcoef`` is 0); ``g += weight_decay·p``;
  ``b = momentum·b + lr·r·g``; ``p -= (lr·r·g + momentum·b if nesterov else b)``. Without ``classic`` the momentum comes before
  ``lr·r``. Raises as :class:`Optimizer`.
  """
  _states_with, _reads, _alone = {"momentum": "momentum_buffer"}, ("momentum", "weight_decay", "tcoef"), True

  def __init__(self, params: Iterable[Any], lr: float = 0.001, momentum: float = 0.9, weight_decay: float = 1e-4,
               nesterov: bool = False, classic: bool = True, tcoef: float = 0.001, *, maximize: bool = False, **options: Any):
    self._start(locals())

  def _update(self, group: ParamGroup, flat: Flat, p: Tensor, g: Tensor, n: Numbers) -> New:
    rate = n.lr
    if group["tcoef"]:
      of_p, of_g = _length(p), _length(g)
      rate = rate * ((of_p > 0) & (of_g > 0)).where(n.tcoef * of_p / (of_g + n.weight_decay * of_p), 1.0)
    g = decayed(group, p, g, n)
    if group["classic"]: g = g * rate
    g, b = with_momentum(group, flat, g, n)
    return p - (g if group["classic"] else g * rate), b


class LAMB(AdamLike):
  """Layer-wise adaptive moments (https://arxiv.org/abs/1904.00962), as tinygrad has it.
  ``u = m/(1-b1ᵗ) / (√(v/(1-b2ᵗ)) + eps) + weight_decay·p``; ``p -= lr · |p|/|u| · u`` (``adam``: without the lengths).
  Raises as :class:`Adam`."""
  _alone = decoupled = True

  def __init__(self, params: Iterable[Any], lr: float = 0.001, b1: Any = 0.9, b2: float = 0.999, eps: float = 1e-6,
               weight_decay: float = 0.0, adam: bool = False, *, betas: tuple[float, float] | None = None, maximize: bool = False,
               **options: Any): self._start(locals())

  def _update(self, group: ParamGroup, flat: Flat, p: Tensor, g: Tensor, n: Numbers) -> New:
    up, new = self._direction(group, flat, p, g, n)
    rate = n.lr
    if not group["adam"]:
      of_p, of_up = _length(p), _length(up)
      rate = rate * ((of_p > 0) & (of_up > 0)).where(of_p / of_up, 1.0)
    return p - rate * up, new


def _coefficients(name: str, what: str, value: Any) -> tuple[float, ...]:
  if not isinstance(value, (tuple, list)) or len(value) != 3:
    raise ArgumentError(f"{name}: {what} is {shown(value)}, expected three numbers")
  return tuple(number(-math.inf)(name, what, v) for v in value)


class Muon(Optimizer):
  """Momentum whose singular values are all made near 1 (https://kellerjordan.github.io/posts/muon/), for matrices, as PyTorch has
  it. Convolutions' weights (n, ..) are taken as matrices (n, rest); train vectors, embeddings and the last layer by another.

  ``b = momentum·b + (1-momentum)·g``; ``u = newton_schulz(g + momentum·(b - g) if nesterov else b)``;
  ``p -= lr·weight_decay·p + a·lr·u``, where a is √max(1, rows/columns) ("original"), √max(rows, columns)/5 ("match_rms_adamw",
  https://arxiv.org/abs/2502.16982) or 1 ("none", as tinygrad). Raises as :class:`Optimizer`, and ShapeError for a parameter of
  less than two dimensions.
  """
  _checks = {**Optimizer._checks, "momentum": BELOW_1, "ns_coefficients": _coefficients,
             "ns_steps": partial(whole_number, least=0, most=99),
             "adjust_lr_fn": lambda name, what, value: one_of(
               name, what, "original" if value is None else value, "original", "match_rms_adamw", "none")}
  _states, _rest, _reads, _alone = ("momentum_buffer",), "momentum", ("momentum", "weight_decay"), True

  def __init__(self, params: Iterable[Any], lr: float = 1e-3, momentum: float = 0.95, weight_decay: float = 0.1,
               ns_steps: int = 5, ns_coefficients: Sequence[float] = (3.4445, -4.775, 2.0315), nesterov: bool = True, *,
               eps: float = 1e-7, adjust_lr_fn: str | None = None, maximize: bool = False,
               ns_params: Sequence[float] | None = None, **options: Any):
    ns_coefficients = tuple(ns_coefficients if ns_params is None else ns_params)
    self._start(locals(), "weight_decay momentum nesterov eps ns_steps ns_coefficients adjust_lr_fn maximize")

  def _check_param(self, p: Tensor) -> None:
    if p.ndim < 2:
      raise ShapeError(f"Muon: a parameter of shape {p.shape}; it takes matrices (train others by another optimizer, "
                       "such as AdamW)")

  def _update(self, group: ParamGroup, flat: Flat, p: Tensor, g: Tensor, n: Numbers) -> New:
    b = n.momentum * flat["momentum_buffer"] + n.rest * g
    up = n.momentum * b + n.rest * g if group["nesterov"] else b
    shape = flat.params[0].shape
    rows, columns = shape[0], math.prod(shape[1:])
    up = up.reshape(rows, columns).newton_schulz(group["ns_steps"], group["ns_coefficients"], group["eps"]).reshape(-1)
    adjust = {"original": max(1.0, rows / columns) ** 0.5, "match_rms_adamw": 0.2 * max(rows, columns) ** 0.5, "none": 1.0}
    new = p - n.lr * adjust[group["adjust_lr_fn"]] * up
    if group["weight_decay"]: new = new - n.lr * n.weight_decay * p
    return new, {"momentum_buffer": b}
