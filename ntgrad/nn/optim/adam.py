"""Adam and what was made of it."""
from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ntgrad.graph.checks import checked
from ntgrad.tensor import Tensor

from .base import Numbers, Optimizer, ParamGroup, decayed
from .descent import New
from .flat import Flat


class AdamLike(Optimizer):
  """Running means of the gradient (m) and of its square (v), and how far both still are from their limits."""
  _states: Sequence[str] = ("exp_avg", "exp_avg_sq")
  _states_with = {"amsgrad": "max_exp_avg_sq"}
  _scalars_of: Sequence[str] = ("step", "bias1", "bias2")   # t, 1 - b1ᵗ, 1 - b2ᵗ
  _kept: Sequence[str] = ("bias1", "bias2")
  _recurrent = True
  decoupled = False   # whether the weight decay is no part of the gradient

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
    return (new["exp_avg"] / n.bias1) / ((v / n.bias2).sqrt() + n.eps)

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


@checked
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


@checked
class AdamW(AdamLike):
  """Adam with decoupled weight decay (https://arxiv.org/abs/1711.05101): as :class:`Adam`, and ``p -= lr · weight_decay · p``."""
  decoupled = True

  def __init__(self, params: Iterable[Any], lr: float = 0.001, b1: Any = 0.9, b2: float = 0.999, eps: float = 1e-8,
               weight_decay: float = 0.01, amsgrad: bool = False, *, betas: tuple[float, float] | None = None,
               maximize: bool = False, **options: Any): self._start(locals())


@checked
class Adamax(AdamLike):
  """Adam with the greatest gradient in place of the mean square (https://arxiv.org/abs/1412.6980), as PyTorch has it.
  ``u = max(b2·u, |g| + eps)``; ``p -= lr/(1-b1ᵗ) · m/u``. Raises as :class:`Adam`."""
  _states, _decays = ("exp_avg", "exp_inf"), True

  def __init__(self, params: Iterable[Any], lr: float = 0.002, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
               weight_decay: float = 0.0, *, maximize: bool = False, **options: Any): self._start(locals())

  def _update(self, group: ParamGroup, flat: Flat, p: Tensor, g: Tensor, n: Numbers) -> New:
    m, u = n.b1 * flat["exp_avg"] + n.c1 * g, (n.b2 * flat["exp_inf"]).maximum(g.abs() + n.eps)
    return p - n.lr / n.bias1 * (m / u), {"exp_avg": m, "exp_inf": u}


@checked
class NAdam(AdamLike):
  """Adam with Nesterov's momentum (https://openreview.net/forum?id=OM0jvwB8jIp57ZJjtNEZ), as PyTorch has it.
  ``muₜ = b1·(1 - 0.96^(t·momentum_decay)/2)``; ``p -= lr · (g·(1-muₜ)/(1-Πmu) + m·muₜ₊₁/(1-Πmu·muₜ₊₁)) / (√(v/(1-b2ᵗ)) + eps)``.
  Raises as :class:`Adam`."""
  _scalars_of = ("bias2", "mu_product", "of_g", "of_m")
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


@checked
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
