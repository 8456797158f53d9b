"""Optimizers that look at a parameter as a whole: at its length, or at it as a matrix. Each parameter is updated by itself."""
from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ntgrad.codegen.ir.errors import ArgumentError, ShapeError, shown
from ntgrad.graph.checks import checked
from ntgrad.nn.common import number
from ntgrad.tensor import Tensor

from .adam import AdamLike
from .base import BELOW_1, Numbers, Optimizer, ParamGroup, decayed
from .descent import New, with_momentum
from .flat import Flat


def _length(x: Tensor) -> Tensor: return x.square().sum().sqrt().reshape(1)


@checked
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


@checked
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
  check = number(-math.inf)
  if not isinstance(value, (tuple, list)) or len(value) != 3:
    raise ArgumentError(f"{name}: {what} is {shown(value)}, expected three numbers")
  return tuple(check(name, what, v) for v in value)


def _steps(name: str, what: str, value: Any) -> int:
  if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 100:
    raise ArgumentError(f"{name}: {what} is {shown(value)}, expected a whole number below 100")
  return value


def _adjusted(name: str, what: str, value: Any) -> str | None:
  if value not in (None, "original", "match_rms_adamw", "none"):
    raise ArgumentError(f"{name}: {what} is {shown(value)}, expected 'original', 'match_rms_adamw' or 'none'")
  return value or "original"


@checked
class Muon(Optimizer):
  """Momentum whose singular values are all made near 1 (https://kellerjordan.github.io/posts/muon/), for matrices, as PyTorch has
  it. Convolutions' weights (n, ..) are taken as matrices (n, rest); train vectors, embeddings and the last layer by another.

  ``b = momentum·b + (1-momentum)·g``; ``u = newton_schulz(g + momentum·(b - g) if nesterov else b)``;
  ``p -= lr·weight_decay·p + a·lr·u``, where a is √max(1, rows/columns) ("original"), √max(rows, columns)/5 ("match_rms_adamw",
  https://arxiv.org/abs/2502.16982) or 1 ("none", as tinygrad). Raises as :class:`Optimizer`, and ShapeError for a parameter of
  less than two dimensions.
  """
  _checks = {**Optimizer._checks, "momentum": BELOW_1, "ns_coefficients": _coefficients, "ns_steps": _steps,
             "adjust_lr_fn": _adjusted}
  _states, _rest, _reads, _alone = ("momentum_buffer",), "momentum", ("momentum", "weight_decay"), True

  def __init__(self, params: Iterable[Any], lr: float = 1e-3, momentum: float = 0.95, weight_decay: float = 0.1,
               ns_steps: int = 5, ns_coefficients: Sequence[float] = (3.4445, -4.775, 2.0315), nesterov: bool = True, *,
               eps: float = 1e-7, adjust_lr_fn: str | None = None, maximize: bool = False,
               ns_params: Sequence[float] | None = None, **options: Any):
    super().__init__(params, lr, {
      "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov, "eps": eps, "ns_steps": ns_steps,
      "ns_coefficients": tuple(ns_coefficients if ns_params is None else ns_params), "adjust_lr_fn": adjust_lr_fn,
      "maximize": maximize}, options)

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
