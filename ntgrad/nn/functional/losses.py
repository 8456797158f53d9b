"""Losses that do more than their methods of ``Tensor``: ``size_average`` and ``reduce`` are older names of ``reduction``."""
from __future__ import annotations

from typing import Any

from ntgrad.codegen.ir.dtype import promote
from ntgrad.codegen.ir.errors import ArgumentError, ShapeError
from ntgrad.graph.checks import Operand, checked
from ntgrad.graph.dimension_names import text
from ntgrad.tensor import Tensor
from ntgrad.tensor.made import reduction_of as how

from .products import linear


def _mean_by_weight(name: str, loss: Any, target: Any, reduction: str, weight: Any) -> Tensor:
  """A loss of elements (a method of the predictions); with weights the mean is over their sum."""
  return loss(target, reduction) if weight is None else _weighted(name, loss(target, "none"), weight, reduction, True)


def _weighted(name: str, loss: Tensor, weight: Any, reduction: str, by_weight: bool) -> Tensor:
  """Losses of elements, each times its weight, reduced; ``by_weight``: the mean is over the sum of the weights."""
  if weight.shape != loss.shape:
    raise ShapeError(f"{name}: a weight of shape {text(weight)} for a loss of shape {text(loss)}; they must be equal")
  total = (loss * weight.cast(loss.dtype))._reduced(name, "sum" if by_weight and reduction == "mean" else reduction)
  return total / weight.sum() if by_weight and reduction == "mean" else total


@checked
def mse_loss(input: Tensor, target: Operand, size_average: bool | None = None, reduce: bool | None = None,
             reduction: str = "mean", weight: Operand | None = None) -> Tensor:
  """(x - target)², reduced; with a weight for each element the mean is over the sum of the weights. Raises ShapeError,
  ArgumentError."""
  return _mean_by_weight("mse_loss", input.mse_loss, target, how(size_average, reduce, reduction), weight)


@checked
def l1_loss(input: Tensor, target: Operand, size_average: bool | None = None, reduce: bool | None = None,
            reduction: str = "mean", weight: Operand | None = None) -> Tensor:
  """|x - target|, reduced; with a weight for each element the mean is over the sum of the weights. Raises ShapeError,
  ArgumentError."""
  return _mean_by_weight("l1_loss", input.l1_loss, target, how(size_average, reduce, reduction), weight)


@checked
def huber_loss(input: Tensor, target: Operand, reduction: str = "mean", delta: float = 1.0,
               weight: Operand | None = None) -> Tensor:
  """d² / 2 where d = |x - target| is less than delta, else delta (d - delta / 2), times a weight for each element, reduced.
  Raises ShapeError, ArgumentError."""
  if weight is None: return input.huber_loss(target, reduction, delta)
  return _weighted("huber_loss", input.huber_loss(target, "none", delta), weight, reduction, False)




@checked
def gaussian_nll_loss(input: Tensor, target: Operand, var: float | Operand, full: bool = False, eps: float = 1e-6,
                      reduction: str = "mean") -> Tensor:
  """(log(var) + (x - target)² / var) / 2, reduced; ``full`` adds log(2 pi) / 2. Raises ShapeError; ArgumentError, too for a
  variance beneath 0 that is a number."""
  if isinstance(var, (int, float)):
    if not var >= 0: raise ArgumentError(f"gaussian_nll_loss: var = {var}; it must be at least 0")
    var = Tensor(var, dtype=promote(input._float(), target.dtype), device=input.device)
  return input.gaussian_nll_loss(target, var, full, eps, reduction)




@checked
def linear_cross_entropy(input: Tensor, linear_weight: Operand, target: Any, *, linear_bias: Operand | None = None,
                         weight: Operand | None = None, reduction: str = "mean", ignore_index: int | None = None,
                         label_smoothing: float = 0.0, options: Any = None) -> Tensor:
  """:func:`cross_entropy` of logits that are :func:`linear` of (n, in) with a weight (classes, .., in): (n, classes, ..).

  An ``ignore_index`` of None is -100. Raises ShapeError, DTypeError; ArgumentError, too for any ``options``: kernels are fused
  without them.
  """
  name = "linear_cross_entropy"
  if options is not None: raise ArgumentError(f"{name}: options is for PyTorch's kernels in chunks; leave it None")
  w: Any = linear_weight
  if input.ndim not in (1, 2) or w.ndim < 2 or w.shape[-1] != input.shape[-1] or (input.ndim == 1 and w.ndim > 2):
    raise ShapeError(f"{name}: input {text(input)} with linear_weight {text(w)}; give (n, in) and (classes, .., in), or (in,) "
                     "and (classes, in)")
  if linear_bias is not None and linear_bias.shape != w.shape[:-1]:
    raise ShapeError(f"{name}: linear_bias of shape {text(linear_bias)} with linear_weight {text(w)}; it must be {w.shape[:-1]}")
  shape = input.shape[:-1] + w.shape[:-1]
  if ignore_index is not None and getattr(target, "shape", None) == shape:
    raise ArgumentError(f"{name}: ignore_index = {ignore_index} with probabilities; it is for class indices")
  logits = linear(input, w.reshape(-1, w.shape[-1]), None if linear_bias is None else linear_bias.reshape(-1)).reshape(shape)
  return logits.cross_entropy(target, reduction, label_smoothing, -100 if ignore_index is None else ignore_index, weight)


@checked
def margin_ranking_loss(input1: Tensor, input2: Operand, target: Operand, margin: float = 0, size_average: bool | None = None,
                        reduce: bool | None = None, reduction: str = "mean") -> Tensor:
  """max(0, -target * (x1 - x2) + margin), reduced. Raises ShapeError, ArgumentError."""
  if not input1.ndim == input2.ndim == target.ndim:
    raise ShapeError(f"margin_ranking_loss: shapes {text(input1)}, {text(input2)} and {text(target)}; they must have as many "
                     "dimensions")
  return input1.margin_ranking_loss(input2, target, margin, how(size_average, reduce, reduction))


__all__ = ["gaussian_nll_loss", "huber_loss", "l1_loss", "linear_cross_entropy", "margin_ranking_loss", "mse_loss"]
