"""Losses: what predictions cost against a target. Distances are here too.

``reduction`` is "mean", "sum" or "none"; ``size_average`` and ``reduce`` are its older names, and are taken for it where one of
them is given. Predictions and target have one shape: PyTorch warns where they broadcast, here it is a ShapeError.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ntgrad.codegen.ir.dtype import promote
from ntgrad.codegen.ir.errors import ArgumentError, ShapeError
from ntgrad.graph.checks import Operand, checked
from ntgrad.graph.dimension_names import text
from ntgrad.tensor import Tensor

from .common import how
from .products import linear


# ---- distances of numbers
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
def smooth_l1_loss(input: Tensor, target: Operand, size_average: bool | None = None, reduce: bool | None = None,
                   reduction: str = "mean", beta: float = 1.0) -> Tensor:
  """d² / (2 beta) where d = |x - target| is less than beta, else d - beta / 2, reduced. Raises ShapeError, ArgumentError."""
  return input.smooth_l1_loss(target, how(size_average, reduce, reduction), beta)


@checked
def huber_loss(input: Tensor, target: Operand, reduction: str = "mean", delta: float = 1.0,
               weight: Operand | None = None) -> Tensor:
  """d² / 2 where d = |x - target| is less than delta, else delta (d - delta / 2), times a weight for each element, reduced.
  Raises ShapeError, ArgumentError."""
  if weight is None: return input.huber_loss(target, reduction, delta)
  return _weighted("huber_loss", input.huber_loss(target, "none", delta), weight, reduction, False)


# ---- of distributions
@checked
def kl_div(input: Tensor, target: Operand, size_average: bool | None = None, reduce: bool | None = None,
           reduction: str = "mean", log_target: bool = False) -> Tensor:
  """target * (log(target) - x) for log probabilities x, reduced; "batchmean" is the sum over the size of dim 0. Raises
  ShapeError, ArgumentError."""
  return input.kl_div(target, how(size_average, reduce, reduction), log_target)


@checked
def binary_cross_entropy(input: Tensor, target: Operand, weight: Operand | None = None, size_average: bool | None = None,
                         reduce: bool | None = None, reduction: str = "mean") -> Tensor:
  """-(y log x + (1 - y) log(1 - x)) for probabilities, times a weight that broadcasts, reduced. Raises ShapeError,
  ArgumentError."""
  return input.binary_cross_entropy(target, weight, how(size_average, reduce, reduction))


@checked
def binary_cross_entropy_with_logits(input: Tensor, target: Operand, weight: Operand | None = None,
                                     size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
                                     pos_weight: Operand | None = None) -> Tensor:
  """Binary cross entropy of sigmoid(x), times a weight, reduced; ``pos_weight`` is a factor of the target's part. Raises
  ShapeError, ArgumentError."""
  return input.binary_cross_entropy_with_logits(target, weight, how(size_average, reduce, reduction), pos_weight)


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
def poisson_nll_loss(input: Tensor, target: Operand, log_input: bool = True, full: bool = False,
                     size_average: bool | None = None, eps: float = 1e-8, reduce: bool | None = None,
                     reduction: str = "mean") -> Tensor:
  """exp(x) - target * x for the logarithm of a rate, or x - target * log(x + eps) for a rate, reduced; ``full`` adds
  Stirling's approximation of log(target!). Raises ShapeError, ArgumentError."""
  return input.poisson_nll_loss(target, log_input, full, eps, how(size_average, reduce, reduction))


# ---- of classes
@checked
def cross_entropy(input: Tensor, target: Any, weight: Operand | None = None, size_average: bool | None = None,
                  ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean",
                  label_smoothing: float = 0.0) -> Tensor:
  """Cross entropy of logits (n, classes, ..), or (classes,), with class indices (n, ..) or probabilities, with a weight a
  class; rows whose index is ``ignore_index`` do not count.

  Raises ShapeError, DTypeError, ArgumentError; IndexOutOfRangeError for an index that is no class (``Tensor.cross_entropy``).
  """
  return input.cross_entropy(target, how(size_average, reduce, reduction), label_smoothing, ignore_index, weight)


@checked
def nll_loss(input: Tensor, target: Any, weight: Operand | None = None, size_average: bool | None = None,
             ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean") -> Tensor:
  """The negative of log probabilities (n, classes, ..), or (classes,), at class indices (n, ..), with a weight a class; rows
  whose index is ``ignore_index`` do not count. Raises as :func:`cross_entropy`."""
  return input.nll_loss(target, weight, ignore_index, how(size_average, reduce, reduction))


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
def multi_margin_loss(input: Tensor, target: Any, p: int = 1, margin: float = 1.0, weight: Operand | None = None,
                      size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> Tensor:
  """The mean over classes of weight[y] max(0, margin - x[y] + x[i])^p for i != y, reduced. Raises as :func:`cross_entropy`."""
  return input.multi_margin_loss(target, p, margin, weight, how(size_average, reduce, reduction))


@checked
def multilabel_margin_loss(input: Tensor, target: Any, size_average: bool | None = None, reduce: bool | None = None,
                           reduction: str = "mean") -> Tensor:
  """The mean over classes of the sum of max(0, 1 - x[y] + x[i]) for the classes y of a row, up to the first -1, and all others
  i, reduced. Raises as :func:`cross_entropy`."""
  return input.multilabel_margin_loss(target, how(size_average, reduce, reduction))


@checked
def multilabel_soft_margin_loss(input: Tensor, target: Operand, weight: Operand | None = None,
                                size_average: bool | None = None, reduce: bool | None = None,
                                reduction: str = "mean") -> Tensor:
  """Binary cross entropy of sigmoid(x), times a weight a class, its mean over the last dim, reduced. Raises ShapeError,
  ArgumentError."""
  return input.multilabel_soft_margin_loss(target, weight, how(size_average, reduce, reduction))


# ---- margins
@checked
def hinge_embedding_loss(input: Tensor, target: Operand, margin: float = 1.0, size_average: bool | None = None,
                         reduce: bool | None = None, reduction: str = "mean") -> Tensor:
  """x where the target is 1, max(0, margin - x) where it is -1, reduced. Raises ShapeError, ArgumentError."""
  return input.hinge_embedding_loss(target, margin, how(size_average, reduce, reduction))


@checked
def soft_margin_loss(input: Tensor, target: Operand, size_average: bool | None = None, reduce: bool | None = None,
                     reduction: str = "mean") -> Tensor:
  """log(1 + exp(-target * x)) for targets 1 and -1, reduced. Raises ShapeError, ArgumentError."""
  return input.soft_margin_loss(target, how(size_average, reduce, reduction))


@checked
def margin_ranking_loss(input1: Tensor, input2: Operand, target: Operand, margin: float = 0, size_average: bool | None = None,
                        reduce: bool | None = None, reduction: str = "mean") -> Tensor:
  """max(0, -target * (x1 - x2) + margin), reduced. Raises ShapeError, ArgumentError."""
  if not input1.ndim == input2.ndim == target.ndim:
    raise ShapeError(f"margin_ranking_loss: shapes {text(input1)}, {text(input2)} and {text(target)}; they must have as many "
                     "dimensions")
  return input1.margin_ranking_loss(input2, target, margin, how(size_average, reduce, reduction))


@checked
def cosine_embedding_loss(input1: Tensor, input2: Operand, target: Operand, margin: float = 0,
                          size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> Tensor:
  """1 - cosine for a target of 1, max(0, cosine - margin) for one of -1, reduced. Raises ShapeError, ArgumentError."""
  return input1.cosine_embedding_loss(input2, target, margin, how(size_average, reduce, reduction))


@checked
def triplet_margin_loss(anchor: Tensor, positive: Operand, negative: Operand, margin: float = 1.0, p: float = 2,
                        eps: float = 1e-6, swap: bool = False, size_average: bool | None = None, reduce: bool | None = None,
                        reduction: str = "mean") -> Tensor:
  """max(0, margin + distance to positive - distance to negative), reduced; ``swap`` takes the lesser of the negative's distances
  to anchor and positive. Raises ShapeError, ArgumentError."""
  return anchor.triplet_margin_loss(positive, negative, margin, p, eps, swap, how(size_average, reduce, reduction))


@checked
def triplet_margin_with_distance_loss(anchor: Tensor, positive: Operand, negative: Operand, *,
                                      distance_function: Callable[[Any, Any], Any] | None = None, margin: float = 1.0,
                                      swap: bool = False, reduction: str = "mean") -> Tensor:
  """:func:`triplet_margin_loss` with a distance of one's own. Raises ShapeError, ArgumentError."""
  return anchor.triplet_margin_with_distance_loss(
    positive, negative, distance_function=distance_function, margin=margin, swap=swap, reduction=reduction)


# ---- distances of vectors
@checked
def cosine_similarity(x1: Tensor, x2: Operand, dim: Any = 1, eps: float = 1e-8) -> Tensor:
  """x1 · x2 / (|x1| |x2|) along a dim, each length at least eps. Raises AxisError, ShapeError."""
  return x1.cosine_similarity(x2, dim, eps)


@checked
def pairwise_distance(x1: Tensor, x2: Operand, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
  """The p-norm of x1 - x2 + eps along the last dim. Raises ShapeError, ArgumentError."""
  return x1.pairwise_distance(x2, p, eps, keepdim)


@checked
def pdist(input: Tensor, p: float = 2) -> Tensor:
  """The p-norm of the difference of every two rows: (n, d) -> (n (n - 1) / 2,). Raises ShapeError, ArgumentError."""
  return input.pdist(p)


__all__ = [
  "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cosine_similarity", "cross_entropy",
  "gaussian_nll_loss", "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss", "linear_cross_entropy", "margin_ranking_loss",
  "mse_loss", "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss", "nll_loss", "pairwise_distance",
  "pdist", "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss", "triplet_margin_loss", "triplet_margin_with_distance_loss",
]
