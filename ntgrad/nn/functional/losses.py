"""Losses that do more than their methods of ``Tensor``: ``size_average`` and ``reduce`` are older names of ``reduction``."""
from __future__ import annotations

from typing import Any

from ntgrad.codegen.ir import ArgumentError, ShapeError, as_float, promote
from ntgrad.graph import Operand, checked, text
from ntgrad.tensor import Tensor
from ntgrad.tensor.made import reduction_of as how

from .products import linear


@checked
def gaussian_nll_loss(input: Tensor, target: Operand, var: float | Operand, full: bool = False, eps: float = 1e-6,
                      reduction: str = "mean") -> Tensor:
  """(log(var) + (x - target)² / var) / 2, reduced; ``full`` adds log(2 pi) / 2. Raises ShapeError; ArgumentError, too for a
  variance beneath 0 that is a number."""
  if isinstance(var, (int, float)):
    if not var >= 0: raise ArgumentError(f"gaussian_nll_loss: var = {var}; it must be at least 0")
    var = Tensor(var, dtype=promote(as_float(input.dtype), target.dtype), device=input.device)
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
  return linear(input, w.reshape(-1, w.shape[-1]), None if linear_bias is None else linear_bias.reshape(-1)).reshape(
    shape).cross_entropy(target, reduction, label_smoothing, -100 if ignore_index is None else ignore_index, weight)


@checked
def margin_ranking_loss(input1: Tensor, input2: Operand, target: Operand, margin: float = 0, size_average: bool | None = None,
                        reduce: bool | None = None, reduction: str = "mean") -> Tensor:
  """max(0, -target * (x1 - x2) + margin), reduced. Raises ShapeError, ArgumentError."""
  if not input1.ndim == input2.ndim == target.ndim:
    raise ShapeError(f"margin_ranking_loss: shapes {text(input1)}, {text(input2)} and {text(target)}; they must have as many "
                     "dimensions")
  return input1.margin_ranking_loss(input2, target, margin, how(size_average, reduce, reduction))


__all__ = ["gaussian_nll_loss", "linear_cross_entropy", "margin_ranking_loss"]
