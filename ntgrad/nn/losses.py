"""Losses as layers: each calls the method of Tensor that PyTorch's function of that name corresponds to, with its arguments.

Called with predictions and a target; ``reduction`` is "mean", "sum" or "none".
"""
from __future__ import annotations

from typing import Any, ClassVar

from ntgrad.codegen.errors import ArgumentError
from ntgrad.nn.activations import layer
from ntgrad.nn.module import Module
from ntgrad.tensor import Tensor


class _Loss(Module):
  """``_calls``: the method, then the attributes that it takes by name."""
  _calls: ClassVar[str]
  reduction: str

  def __post_init__(self) -> None:
    if self.reduction not in ("mean", "sum", "none"):
      raise ArgumentError(f"nn.{type(self).__name__}: reduction {self.reduction!r}; it takes 'mean', 'sum' or 'none'")

  def __call__(self, input: Tensor, target: Any) -> Any:
    """The loss: one number, or with reduction "none" one for each element or row."""
    method, *names = self._calls.split()
    given = {n: getattr(self, n) for n in names}
    return getattr(input, method)(target, **{n: v for n, v in given.items() if v is not None})


@layer
class CrossEntropyLoss(_Loss):
  """Cross entropy of logits (n, classes, ..) with class indices (n, ..) or probabilities. ``weight`` has one number a class; rows
  whose index is ignore_index do not count."""
  weight: Tensor | None = None
  ignore_index: int = -100
  reduction: str = "mean"
  label_smoothing: float = 0.0
  _calls = "cross_entropy weight ignore_index reduction label_smoothing"
  _buffers = frozenset({"weight"})


@layer
class NLLLoss(_Loss):
  """The negative of log probabilities (n, classes, ..) at class indices (n, ..). ``weight`` has one number a class."""
  weight: Tensor | None = None
  ignore_index: int = -100
  reduction: str = "mean"
  _calls = "nll_loss weight ignore_index reduction"
  _buffers = frozenset({"weight"})


@layer
class MSELoss(_Loss):
  """(x - y)²."""
  reduction: str = "mean"
  _calls = "mse_loss reduction"


@layer
class L1Loss(_Loss):
  """|x - y|."""
  reduction: str = "mean"
  _calls = "l1_loss reduction"


@layer
class SmoothL1Loss(_Loss):
  """(x - y)² / (2 beta) where |x - y| is less than beta, else |x - y| - beta / 2."""
  reduction: str = "mean"
  beta: float = 1.0
  _calls = "smooth_l1_loss reduction beta"


@layer
class HuberLoss(_Loss):
  """(x - y)² / 2 where |x - y| is at most delta, else delta · (|x - y| - delta / 2)."""
  reduction: str = "mean"
  delta: float = 1.0
  _calls = "huber_loss reduction delta"


@layer
class BCELoss(_Loss):
  """Binary cross entropy of probabilities. ``weight`` multiplies the elements' losses."""
  weight: Tensor | None = None
  reduction: str = "mean"
  _calls = "binary_cross_entropy weight reduction"
  _buffers = frozenset({"weight"})


@layer
class BCEWithLogitsLoss(_Loss):
  """Binary cross entropy of sigmoid(x), without overflow. ``pos_weight`` multiplies what belongs to a target of 1."""
  weight: Tensor | None = None
  reduction: str = "mean"
  pos_weight: Tensor | None = None
  _calls = "binary_cross_entropy_with_logits weight reduction pos_weight"
  _buffers = frozenset({"weight", "pos_weight"})


@layer
class KLDivLoss(Module):
  """y · (log y - x), x being logarithms of probabilities; with log_target y is one too. "batchmean" is the sum over the first
  size."""
  reduction: str = "mean"
  log_target: bool = False

  def __post_init__(self) -> None:
    if self.reduction not in ("mean", "sum", "none", "batchmean"):
      raise ArgumentError(f"nn.KLDivLoss: reduction {self.reduction!r}; it takes 'mean', 'batchmean', 'sum' or 'none'")

  def __call__(self, input: Tensor, target: Any) -> Any:
    """The loss: one number, or with reduction "none" one for each element."""
    fn: Any = getattr(input, "kl_div")  # noqa: B009 - found when it is called
    return fn(target, reduction=self.reduction, log_target=self.log_target)


__all__ = ["BCELoss", "BCEWithLogitsLoss", "CrossEntropyLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss", "NLLLoss",
           "SmoothL1Loss"]
