"""Losses as layers: each calls the method of Tensor that PyTorch's function of that name corresponds to, with its arguments.

Called with predictions and a target; ``reduction`` is "mean", "sum" or "none". Similarities and distances are here too.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from ntgrad.codegen.ir.errors import ArgumentError
from ntgrad.graph.checks import checked
from ntgrad.tensor import Tensor

from .activations import layer
from .module import Module


class _Calls(Module):
  """``_calls``: the method, then the attributes that it takes by name."""
  _calls: ClassVar[str]
  _reductions: ClassVar[tuple[str, ...]] = ("mean", "sum", "none")
  reduction: str

  def __post_init__(self) -> None:
    if self.reduction not in self._reductions:
      *known, last = map(repr, self._reductions)
      raise ArgumentError(f"nn.{type(self).__name__}: reduction {self.reduction!r}; it takes {', '.join(known)} or {last}")
  def _of(self, input: Tensor, *others: Any) -> Any:
    method, *names = self._calls.split()
    given = {n: getattr(self, n) for n in names}
    return getattr(input, method)(*others, **{n: v for n, v in given.items() if v is not None})


class _Loss(_Calls):
  def __call__(self, input: Tensor, target: Any) -> Any:
    """The loss: one number, or with reduction "none" one for each element or row."""
    return self._of(input, target)


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
class KLDivLoss(_Loss):
  """y · (log y - x), x being logarithms of probabilities; with log_target y is one too. "batchmean" is the sum over the first
  size."""
  reduction: str = "mean"
  log_target: bool = False
  _calls = "kl_div reduction log_target"
  _reductions = ("mean", "batchmean", "sum", "none")


@layer
class PoissonNLLLoss(_Loss):
  """exp(x) - y · x for the logarithm x of a rate, or x - y · log(x + eps) for a rate; ``full`` adds Stirling's term."""
  log_input: bool = True
  full: bool = False
  eps: float = 1e-8
  reduction: str = "mean"
  _calls = "poisson_nll_loss log_input full eps reduction"


@layer
class CTCLoss(_Calls):
  """What it costs to say labels in sequences of log probabilities (steps, n, classes), over all ways to repeat labels and put
  ``blank`` between them; "mean" divides by the number of labels first. See :func:`nn.functional.ctc_loss`."""
  blank: int = 0
  reduction: str = "mean"
  zero_infinity: bool = False

  def __call__(self, log_probs: Tensor, targets: Any, input_lengths: Any, target_lengths: Any) -> Tensor:
    """The loss, of targets (n, most labels) or all labels in a row, and lengths (n,). Raises ShapeError, DTypeError,
    ArgumentError."""
    from .functional import ctc_loss
    return ctc_loss(log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity)


@layer
class GaussianNLLLoss(_Calls):
  """(log(var) + (x - y)² / var) / 2 for predicted means and variances; ``full`` adds a constant."""
  full: bool = False
  eps: float = 1e-6
  reduction: str = "mean"
  _calls = "gaussian_nll_loss full eps reduction"

  def __call__(self, input: Tensor, target: Any, var: Any) -> Any:
    """The loss of means ``input`` with variances ``var``. Raises ShapeError."""
    return self._of(input, target, var)


@layer
class HingeEmbeddingLoss(_Loss):
  """x where the target is 1, max(0, margin - x) where it is -1."""
  margin: float = 1.0
  reduction: str = "mean"
  _calls = "hinge_embedding_loss margin reduction"


@layer
class SoftMarginLoss(_Loss):
  """log(1 + exp(-y · x)) for targets 1 and -1."""
  reduction: str = "mean"
  _calls = "soft_margin_loss reduction"


@layer
class MultiMarginLoss(_Loss):
  """How far scores (n, classes) of other classes come within ``margin`` of the one of the class index (n,), to the power p, 1 or
  2. ``weight`` has one number a class."""
  p: int = 1
  margin: float = 1.0
  weight: Tensor | None = None
  reduction: str = "mean"
  _calls = "multi_margin_loss p margin weight reduction"
  _buffers = frozenset({"weight"})


@layer
class MultiLabelMarginLoss(_Loss):
  """How far scores (n, classes) of other classes come within 1 of those of the target's: class indices (n, classes), -1 ends a
  row."""
  reduction: str = "mean"
  _calls = "multilabel_margin_loss reduction"


@layer
class MultiLabelSoftMarginLoss(_Loss):
  """Binary cross entropy of sigmoid(x), its mean over the classes. ``weight`` has one number a class."""
  weight: Tensor | None = None
  reduction: str = "mean"
  _calls = "multilabel_soft_margin_loss weight reduction"
  _buffers = frozenset({"weight"})


class _OfTwo(_Calls):
  def __call__(self, input1: Tensor, input2: Any, target: Any) -> Any:
    """The loss of two predictions and a target: one number, or with reduction "none" one for each. Raises ShapeError."""
    return self._of(input1, input2, target)


@layer
class MarginRankingLoss(_OfTwo):
  """max(0, -y · (x1 - x2) + margin): a target of 1 wants x1 above x2, one of -1 below."""
  margin: float = 0.0
  reduction: str = "mean"
  _calls = "margin_ranking_loss margin reduction"


@layer
class CosineEmbeddingLoss(_OfTwo):
  """1 - cosine for a target of 1, max(0, cosine - margin) for one of -1: (n, d) twice and target (n,)."""
  margin: float = 0.0
  reduction: str = "mean"
  _calls = "cosine_embedding_loss margin reduction"


@layer
class TripletMarginLoss(_Calls):
  """max(0, margin + |a - p| - |a - n|) for an anchor a, what is like it, p, and what is not, n: (n, d) each.

  ``swap`` takes |p - n| where that is less than |a - n| (Balntas et al., Learning shallow convolutional feature descriptors with
  triplet losses, 2016).
  """
  margin: float = 1.0
  p: float = 2.0
  eps: float = 1e-6
  swap: bool = False
  reduction: str = "mean"
  _calls = "triplet_margin_loss margin p eps swap reduction"

  def __call__(self, anchor: Tensor, positive: Any, negative: Any) -> Any:
    """One number, or with reduction "none" one for each row. Raises ShapeError."""
    return self._of(anchor, positive, negative)


@checked
class TripletMarginWithDistanceLoss(_Calls):
  """:class:`TripletMarginLoss` with a distance of one's own: a function of two tensors, which gives one number a row (None: the
  Euclidean distance)."""
  _said = ("margin", "swap")
  _calls = "triplet_margin_with_distance_loss distance_function margin swap reduction"

  def __init__(self, *, distance_function: Callable[[Any, Any], Any] | None = None, margin: float = 1.0, swap: bool = False,
               reduction: str = "mean"):
    self.distance_function, self.margin, self.swap = distance_function, margin, swap
    self.reduction = reduction
    self.__post_init__()

  def __call__(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """One number, or with reduction "none" one for each row. Raises ShapeError."""
    return self._of(anchor, positive, negative)


@layer
class CosineSimilarity(Module):
  """x1 · x2 / (|x1| |x2|) along ``dim``, each length at least eps."""
  dim: Any = 1
  eps: float = 1e-8

  def __call__(self, x1: Tensor, x2: Any) -> Tensor:
    """The inputs' shape, broadcast, without ``dim``. Raises AxisError, ShapeError."""
    return x1.cosine_similarity(x2, self.dim, self.eps)


@layer
class PairwiseDistance(Module):
  """The p-norm of x1 - x2 + eps along the last dimension."""
  p: float = 2.0
  eps: float = 1e-6
  keepdim: bool = False

  def __call__(self, x1: Tensor, x2: Any) -> Tensor:
    """The inputs' shape, broadcast, without the last dimension. Raises ShapeError."""
    return x1.pairwise_distance(x2, self.p, self.eps, self.keepdim)


__all__ = ["BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CosineEmbeddingLoss", "CosineSimilarity", "CrossEntropyLoss",
           "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss", "MarginRankingLoss",
           "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss", "PairwiseDistance",
           "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss", "TripletMarginLoss", "TripletMarginWithDistanceLoss"]
