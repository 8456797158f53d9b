# Written by `python -m ntgrad stubs` from ntgrad/compat/signatures.py.
from __future__ import annotations

from ntgrad.nn.made import Layer
from ntgrad.tensor import Tensor
from ntgrad.tensor.resampling import Ints
from typing import Any, Callable, Sequence

class ReLU(Layer):
  """max(x, 0); -0.0 stays. No slope at 0."""
  inplace: bool = False
  def __init__(self, inplace: bool = False) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class ReLU6(Layer):
  """x kept within 0 and 6. No slope at 0 and 6."""
  inplace: bool = False
  def __init__(self, inplace: bool = False) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class LeakyReLU(Layer):
  """x where positive, else negative_slope * x."""
  negative_slope: float = 0.01
  inplace: bool = False
  def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class ELU(Layer):
  """x where positive, else alpha * (exp(x) - 1)."""
  alpha: float | Tensor = 1.0
  inplace: bool = False
  def __init__(self, alpha: float | Tensor = 1.0, inplace: bool = False) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class SELU(Layer):
  """gamma times elu(alpha)."""
  inplace: bool = False
  def __init__(self, inplace: bool = False) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class CELU(Layer):
  """x where positive, else alpha * (exp(x / alpha) - 1). Raises ArgumentError for an alpha of 0."""
  alpha: float | Tensor = 1.0
  inplace: bool = False
  def __init__(self, alpha: float | Tensor = 1.0, inplace: bool = False) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class RReLU(Layer):
  """x where it is not negative, else x times a slope: in training (None: as ``Tensor.training`` says) random from lower to
    upper, each element its own; else the mean of both. Raises ArgumentError."""
  lower: float = 1 / 8
  upper: float = 1 / 3
  inplace: bool = False
  def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class GELU(Layer):
  """x times the normal distribution function, by the tanh formula, or exactly with ``approximate="none"``."""
  approximate: str = 'none'
  def __init__(self, approximate: str = 'none') -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class SiLU(Layer):
  """x * sigmoid(x)."""
  inplace: bool = False
  def __init__(self, inplace: bool = False) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class Mish(Layer):
  """x * tanh(softplus(x))."""
  inplace: bool = False
  def __init__(self, inplace: bool = False) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class Softplus(Layer):
  """log(1 + exp(beta x)) / beta, without overflow; x where beta x is above a threshold. Raises ArgumentError for a beta of
    0."""
  beta: float = 1.0
  threshold: float = 20.0
  def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class Softsign(Layer):
  """x / (1 + |x|)."""
  def __init__(self) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class Tanh(Layer):
  """The hyperbolic tangent."""
  def __init__(self) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class Sigmoid(Layer):
  """1 / (1 + exp(-x))."""
  def __init__(self) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class LogSigmoid(Layer):
  """log(sigmoid(x)), without overflow."""
  def __init__(self) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class Hardtanh(Layer):
  """x kept within the numbers min_val and max_val. No slope where they are reached (clamp has one). Raises ArgumentError."""
  min_val: float = -1.0
  max_val: float = 1.0
  inplace: bool = False
  def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class Hardswish(Layer):
  """x * relu6(x + 3) / 6."""
  inplace: bool = False
  def __init__(self, inplace: bool = False) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class Hardsigmoid(Layer):
  """relu6(x + 3) / 6."""
  inplace: bool = False
  def __init__(self, inplace: bool = False) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class Tanhshrink(Layer):
  """x - tanh(x)."""
  def __init__(self) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class Hardshrink(Layer):
  """x where its size is above lambd, else 0; NaN stays."""
  lambd: float = 0.5
  def __init__(self, lambd: float = 0.5) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class Softshrink(Layer):
  """x less lambd, to 0 and not beyond. Raises ArgumentError for a lambd beneath 0."""
  lambd: float = 0.5
  def __init__(self, lambd: float = 0.5) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class Threshold(Layer):
  """x where it is above a threshold, else a value; NaN stays."""
  threshold: float
  value: float
  inplace: bool = False
  def __init__(self, threshold: float, value: float, inplace: bool = False) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class Softmax(Layer):
  """exp(x) / sum(exp(x)) along an axis; small floats are computed in float32. Raises AxisError."""
  dim: Any = None
  def __init__(self, dim: Any = None) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class Softmin(Layer):
  """softmax(-x) along a dim. Raises AxisError."""
  dim: Any = None
  def __init__(self, dim: Any = None) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class LogSoftmax(Layer):
  """log(softmax(x)) along an axis; small floats are computed in float32. Raises AxisError."""
  dim: Any = None
  def __init__(self, dim: Any = None) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class GLU(Layer):
  """The first half along a dim, times the sigmoid of the second one. Raises AxisError; ShapeError for a dim that is not
    even."""
  dim: int | str = -1
  def __init__(self, dim: int | str = -1) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class Dropout(Layer):
  """While training: zero with probability p, else divided by 1 - p. ``training`` None: as ``Tensor.train`` says. Raises
    ArgumentError for a p outside [0, 1]."""
  p: float = 0.5
  inplace: bool = False
  def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class Dropout1d(Layer):
  """``dropout`` of whole channels of (n, channels, length), or (channels, length). Raises ShapeError, ArgumentError."""
  p: float = 0.5
  inplace: bool = False
  def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class Dropout2d(Layer):
  """``dropout`` of whole channels of (n, channels, height, width); of 3 dims, as in PyTorch, (n, channels, length). Raises
    ShapeError, ArgumentError."""
  p: float = 0.5
  inplace: bool = False
  def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class Dropout3d(Layer):
  """``dropout`` of whole channels of (n, channels, depth, height, width), or without n. Raises ShapeError, ArgumentError."""
  p: float = 0.5
  inplace: bool = False
  def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class AlphaDropout(Layer):
  """While training: elements go to the limit of ``selu`` with probability p, and all are scaled so that mean 0 and variance 1
    stay (Klambauer et al., Self-Normalizing Neural Networks, 2017). Raises ArgumentError."""
  p: float = 0.5
  inplace: bool = False
  def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class FeatureAlphaDropout(Layer):
  """``alpha_dropout`` of whole channels of (n, channels, ..). Raises ShapeError, ArgumentError."""
  p: float = 0.5
  inplace: bool = False
  def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class ChannelShuffle(Layer):
  """Channels of ``groups`` groups taken in turn, one of each: (n, c, ..) -> the same (https://arxiv.org/abs/1707.01083). Raises
    ShapeError, ArgumentError."""
  groups: int
  def __init__(self, groups: int) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class PixelShuffle(Layer):
  """Channels to pixels (https://arxiv.org/abs/1609.05158): (.., c * r², h, w) -> (.., c, h * r, w * r). Raises ShapeError,
    ArgumentError."""
  upscale_factor: int
  def __init__(self, upscale_factor: int) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class PixelUnshuffle(Layer):
  """Pixels to channels, what takes :meth:`pixel_shuffle` back: (.., c, h * r, w * r) -> (.., c * r², h, w). Raises ShapeError,
    ArgumentError."""
  downscale_factor: int
  def __init__(self, downscale_factor: int) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class CosineSimilarity(Layer):
  """x1 · x2 / (|x1| |x2|) along a dim, each length at least eps; the two broadcast. Raises AxisError, ShapeError."""
  dim: int | str = 1
  eps: float = 1e-08
  def __init__(self, dim: int | str = 1, eps: float = 1e-08) -> None: ...
  def __call__(self, x1: Tensor, x2: Any) -> Tensor: ...

class PairwiseDistance(Layer):
  """The p-norm of x1 - x2 + eps along the last dim; the two broadcast. Raises ShapeError, ArgumentError."""
  p: float = 2.0
  eps: float = 1e-06
  keepdim: bool = False
  def __init__(self, p: float = 2.0, eps: float = 1e-06, keepdim: bool = False) -> None: ...
  def __call__(self, x1: Tensor, x2: Any) -> Tensor: ...

class CrossEntropyLoss(Layer):
  """Cross entropy of logits (n, classes, ..) with class indices (n, ..) or probabilities of the logits' shape; logits
    (classes,) are one row.

    ``weight`` (classes,) is a factor for each class; the mean over class indices is then divided by the sum of the rows' weights,
    that over probabilities by the number of rows. Rows whose index is ignore_index do not count (None: every row does; PyTorch
    ignores -100); the mean over no rows is NaN, as is the loss of a row whose index is no class. Raises ShapeError, DTypeError,
    ArgumentError; IndexOutOfRangeError where the classes are known (lists, arrays, constants)."""
  weight: Tensor | None = None
  ignore_index: int = -100
  reduction: str = 'mean'
  label_smoothing: float = 0.0
  def __init__(self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = 'mean', label_smoothing: float = 0.0) -> None: ...
  def __call__(self, input: Tensor, target: Any) -> Tensor: ...

class NLLLoss(Layer):
  """The negative of log probabilities (n, classes, ..) at class indices (n, ..), with a weight a class, by whose sum over the
    rows the mean is divided. Rows whose index is ignore_index do not count; the loss of a row whose index is no class is NaN.
    Raises ShapeError, DTypeError; IndexOutOfRangeError where the classes are known (lists, arrays, constants)."""
  weight: Tensor | None = None
  ignore_index: int = -100
  reduction: str = 'mean'
  def __init__(self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = 'mean') -> None: ...
  def __call__(self, input: Tensor, target: Any) -> Tensor: ...

class MSELoss(Layer):
  """(x - target)², reduced; with a weight for each element the mean is over the sum of the weights. Raises ShapeError."""
  reduction: str = 'mean'
  def __init__(self, reduction: str = 'mean') -> None: ...
  def __call__(self, input: Tensor, target: Any) -> Tensor: ...

class L1Loss(Layer):
  """|x - target|, reduced; with a weight for each element the mean is over the sum of the weights. Raises ShapeError."""
  reduction: str = 'mean'
  def __init__(self, reduction: str = 'mean') -> None: ...
  def __call__(self, input: Tensor, target: Any) -> Tensor: ...

class SmoothL1Loss(Layer):
  """d² / (2 beta) where d = |x - target| is less than beta, d - beta / 2 elsewhere, reduced. Raises ShapeError,
    ArgumentError for a negative beta."""
  reduction: str = 'mean'
  beta: float = 1.0
  def __init__(self, reduction: str = 'mean', beta: float = 1.0) -> None: ...
  def __call__(self, input: Tensor, target: Any) -> Tensor: ...

class HuberLoss(Layer):
  """d² / 2 where d = |x - target| is less than delta, delta (d - delta / 2) elsewhere, times a weight for each element, reduced
    (Huber, Robust Estimation of a Location Parameter, 1964). Raises ShapeError, ArgumentError for a delta that is not above 0."""
  reduction: str = 'mean'
  delta: float = 1.0
  def __init__(self, reduction: str = 'mean', delta: float = 1.0) -> None: ...
  def __call__(self, input: Tensor, target: Any) -> Tensor: ...

class BCELoss(Layer):
  """-(y log x + (1 - y) log(1 - x)) for probabilities, times a weight that broadcasts, reduced. A logarithm is at least -100,
    without slope there. Raises ShapeError; ArgumentError for what is no probability, where the host next waits (as indices are
    checked)."""
  weight: Tensor | None = None
  reduction: str = 'mean'
  def __init__(self, weight: Tensor | None = None, reduction: str = 'mean') -> None: ...
  def __call__(self, input: Tensor, target: Any) -> Tensor: ...

class BCEWithLogitsLoss(Layer):
  """Binary cross entropy of sigmoid(x), without overflow, times a weight, reduced; ``pos_weight`` is a factor of the part for the
    target. Both weights broadcast to the loss. Raises ShapeError."""
  weight: Tensor | None = None
  reduction: str = 'mean'
  pos_weight: Tensor | None = None
  def __init__(self, weight: Tensor | None = None, reduction: str = 'mean', pos_weight: Tensor | None = None) -> None: ...
  def __call__(self, input: Tensor, target: Any) -> Tensor: ...

class KLDivLoss(Layer):
  """target * (log(target) - x) for log probabilities x, 0 log 0 being 0; ``log_target``: the target is a logarithm too. The
    reduction "batchmean" is the sum divided by the size of dimension 0: the divergence itself, a row. Raises ShapeError,
    ArgumentError."""
  reduction: str = 'mean'
  log_target: bool = False
  def __init__(self, reduction: str = 'mean', log_target: bool = False) -> None: ...
  def __call__(self, input: Tensor, target: Any) -> Tensor: ...

class PoissonNLLLoss(Layer):
  """exp(x) - target * x for the logarithm x of a rate, or x - target * log(x + eps) for a rate, reduced; ``full`` adds
    Stirling's approximation of log(target!) where the target is above 1. Raises ShapeError."""
  log_input: bool = True
  full: bool = False
  eps: float = 1e-08
  reduction: str = 'mean'
  def __init__(self, log_input: bool = True, full: bool = False, eps: float = 1e-08, reduction: str = 'mean') -> None: ...
  def __call__(self, input: Tensor, target: Any) -> Tensor: ...

class GaussianNLLLoss(Layer):
  """(log(var) + (x - target)² / var) / 2 for predicted means and variances, reduced; ``full`` adds log(2 pi) / 2. ``var`` has
    the shape of x, or 1 as its last size, or lacks that dim, or is a number; it counts as eps at least, gradients passing as if
    it did not (Nix and Weigend, Estimating the mean and variance of the target probability distribution, 1994). Raises
    ShapeError, ArgumentError for an eps that is not above 0."""
  full: bool = False
  eps: float = 1e-06
  reduction: str = 'mean'
  def __init__(self, full: bool = False, eps: float = 1e-06, reduction: str = 'mean') -> None: ...
  def __call__(self, input: Tensor, target: Any, var: Any) -> Tensor: ...

class HingeEmbeddingLoss(Layer):
  """x where the target is 1, max(0, margin - x) where it is -1, reduced. Raises ShapeError."""
  margin: float = 1.0
  reduction: str = 'mean'
  def __init__(self, margin: float = 1.0, reduction: str = 'mean') -> None: ...
  def __call__(self, input: Tensor, target: Any) -> Tensor: ...

class SoftMarginLoss(Layer):
  """log(1 + exp(-target * x)) for targets 1 and -1, without overflow, reduced. Raises ShapeError."""
  reduction: str = 'mean'
  def __init__(self, reduction: str = 'mean') -> None: ...
  def __call__(self, input: Tensor, target: Any) -> Tensor: ...

class MultiMarginLoss(Layer):
  """How far scores (n, classes), or (classes,), of other classes come within ``margin`` of the score of the class index (n,):
    the mean over classes of weight[y] max(0, margin - x[y] + x[i]) ** p for i != y, with p 1 or 2. Raises ShapeError, DTypeError,
    ArgumentError; IndexOutOfRangeError where the classes are known."""
  p: int = 1
  margin: float = 1.0
  weight: Tensor | None = None
  reduction: str = 'mean'
  def __init__(self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, reduction: str = 'mean') -> None: ...
  def __call__(self, input: Tensor, target: Any) -> Tensor: ...

class MultiLabelMarginLoss(Layer):
  """How far scores (n, classes), or (classes,), of other classes come within 1 of those of a row's target: the sum over its
    classes y and all others i of max(0, 1 - x[y] + x[i]), divided by the number of classes; then reduced. The target has the
    scores' shape and is class indices, up to the first -1 of a row. Raises ShapeError, DTypeError, ArgumentError;
    IndexOutOfRangeError where the classes are known (lists, arrays, constants)."""
  reduction: str = 'mean'
  def __init__(self, reduction: str = 'mean') -> None: ...
  def __call__(self, input: Tensor, target: Any) -> Tensor: ...

class MultiLabelSoftMarginLoss(Layer):
  """Binary cross entropy of sigmoid(x), times a weight a class, its mean over the last dim, reduced. Raises ShapeError."""
  weight: Tensor | None = None
  reduction: str = 'mean'
  def __init__(self, weight: Tensor | None = None, reduction: str = 'mean') -> None: ...
  def __call__(self, input: Tensor, target: Any) -> Tensor: ...

class MarginRankingLoss(Layer):
  """max(0, -target * (x1 - x2) + margin), reduced: a target of 1 wants x1 above x2, one of -1 below; they broadcast. Raises
    ShapeError."""
  margin: float = 0.0
  reduction: str = 'mean'
  def __init__(self, margin: float = 0.0, reduction: str = 'mean') -> None: ...
  def __call__(self, input1: Tensor, input2: Any, target: Any) -> Tensor: ...

class CosineEmbeddingLoss(Layer):
  """1 - cosine for a target of 1, max(0, cosine - margin) for one of -1, reduced: (n, d) twice and target (n,), or (d,) and
    (). Raises ShapeError."""
  margin: float = 0.0
  reduction: str = 'mean'
  def __init__(self, margin: float = 0.0, reduction: str = 'mean') -> None: ...
  def __call__(self, input1: Tensor, input2: Any, target: Any) -> Tensor: ...

class TripletMarginLoss(Layer):
  """max(0, margin + distance to positive - distance to negative), reduced; (n, d) or (d,) each, distances as
    ``pairwise_distance`` has them (Balntas et al., Learning shallow convolutional feature descriptors with triplet losses, 2016).
    ``swap`` takes the lesser of the negative's distances to this tensor and to the positive. Raises ShapeError, ArgumentError."""
  margin: float = 1.0
  p: float = 2.0
  eps: float = 1e-06
  swap: bool = False
  reduction: str = 'mean'
  def __init__(self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-06, swap: bool = False, reduction: str = 'mean') -> None: ...
  def __call__(self, anchor: Tensor, positive: Any, negative: Any) -> Tensor: ...

class TripletMarginWithDistanceLoss(Layer):
  """``triplet_margin_loss`` with a distance of one's own, a function of two tensors of this shape (None: their Euclidean
    distance along the last dim). Raises ShapeError, ArgumentError."""
  distance_function: Callable[[Any, Any], Any] | None = None
  margin: float = 1.0
  swap: bool = False
  reduction: str = 'mean'
  def __init__(self, *, distance_function: Callable[[Any, Any], Any] | None = None, margin: float = 1.0, swap: bool = False, reduction: str = 'mean') -> None: ...
  def __call__(self, anchor: Tensor, positive: Any, negative: Any) -> Tensor: ...

class MaxPool1d(Layer):
  """:meth:`max_pool2d` over the last dimension: (.., l) -> (.., l')."""
  kernel_size: Ints
  stride: Ints | None = None
  padding: Ints = 0
  dilation: Ints = 1
  return_indices: bool = False
  ceil_mode: bool = False
  def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1, return_indices: bool = False, ceil_mode: bool = False) -> None: ...
  def __call__(self, input: Tensor) -> Any: ...

class MaxPool2d(Layer):
  """The greatest of each window of the last dims (2, or as many as the kernel has); stride None is the kernel's size. With
    ``return_indices`` ``(values, indices)``: which element of the flattened last dims it is (int32), the first of equal ones, a
    NaN before all. What follows the stride is in tinygrad's order; give it by name, since PyTorch has another. Raises ShapeError,
    ArgumentError."""
  kernel_size: Ints
  stride: Ints | None = None
  padding: Ints = 0
  dilation: Ints = 1
  return_indices: bool = False
  ceil_mode: bool = False
  def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1, return_indices: bool = False, ceil_mode: bool = False) -> None: ...
  def __call__(self, input: Tensor) -> Any: ...

class MaxPool3d(Layer):
  """:meth:`max_pool2d` over the last three dimensions: (.., d, h, w) -> (.., d', h', w')."""
  kernel_size: Ints
  stride: Ints | None = None
  padding: Ints = 0
  dilation: Ints = 1
  return_indices: bool = False
  ceil_mode: bool = False
  def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1, return_indices: bool = False, ceil_mode: bool = False) -> None: ...
  def __call__(self, input: Tensor) -> Any: ...

class AvgPool1d(Layer):
  """:meth:`avg_pool2d` over the last dimension: (.., l) -> (.., l')."""
  kernel_size: Ints
  stride: Ints | None = None
  padding: Ints = 0
  ceil_mode: bool = False
  count_include_pad: bool = True
  def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, ceil_mode: bool = False, count_include_pad: bool = True) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class AvgPool2d(Layer):
  """The mean of each window of the last dims (2, or as many as the kernel has); padding counts as zeros unless told otherwise.
    ``divisor_override`` is what sums are divided by in place of the number of elements. What follows the stride is in tinygrad's
    order; give it by name, since PyTorch has another. Raises ShapeError, ArgumentError, DTypeError for what is not float."""
  kernel_size: Ints
  stride: Ints | None = None
  padding: Ints = 0
  ceil_mode: bool = False
  count_include_pad: bool = True
  divisor_override: int | None = None
  def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class AvgPool3d(Layer):
  """:meth:`avg_pool2d` over the last three dimensions: (.., d, h, w) -> (.., d', h', w')."""
  kernel_size: Ints
  stride: Ints | None = None
  padding: Ints = 0
  ceil_mode: bool = False
  count_include_pad: bool = True
  divisor_override: int | None = None
  def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class LPPool1d(Layer):
  """:meth:`lp_pool2d` over the last dimension: (.., l) -> (.., l')."""
  norm_type: float
  kernel_size: Ints
  stride: Ints | None = None
  ceil_mode: bool = False
  def __init__(self, norm_type: float, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class LPPool2d(Layer):
  """sum(x^p)^(1/p) of each window of the last two dimensions, p being ``norm_type``; of even p no slope where it is 0.

    As in PyTorch without abs: 1 is the sum, and of numbers beneath 0 the root of an odd power may be NaN. inf is the greatest
    size, -inf the least. With ``ceil_mode`` a window that ends outside counts as if it went on with its mean. Raises ShapeError,
    ArgumentError, DTypeError."""
  norm_type: float
  kernel_size: Ints
  stride: Ints | None = None
  ceil_mode: bool = False
  def __init__(self, norm_type: float, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class LPPool3d(Layer):
  """:meth:`lp_pool2d` over the last three dimensions: (.., d, h, w) -> (.., d', h', w')."""
  norm_type: float
  kernel_size: Ints
  stride: Ints | None = None
  ceil_mode: bool = False
  def __init__(self, norm_type: float, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class FractionalMaxPool2d(Layer):
  """The greatest of windows that lie at random, as many as ``output_size`` or as ``output_ratio`` of each size: (n, c, h, w) ->
    (n, c, h', w'), or without n (Graham, https://arxiv.org/abs/1412.6071).

    Each n and c has its own two numbers from 0 to 1 (``_random_samples`` (n, c, 2) gives them). With ``return_indices`` also
    which element of the flattened h, w each is, int32. Raises ShapeError, ArgumentError."""
  kernel_size: Ints
  output_size: Ints | None = None
  output_ratio: float | Sequence[float] | None = None
  return_indices: bool = False
  _random_samples: Tensor | None = None
  def __init__(self, kernel_size: Ints, output_size: Ints | None = None, output_ratio: float | Sequence[float] | None = None, return_indices: bool = False, _random_samples: Tensor | None = None) -> None: ...
  def __call__(self, input: Tensor) -> Any: ...

class FractionalMaxPool3d(Layer):
  """:meth:`fractional_max_pool2d` of volumes: (n, c, d, h, w) -> (n, c, d', h', w')."""
  kernel_size: Ints
  output_size: Ints | None = None
  output_ratio: float | Sequence[float] | None = None
  return_indices: bool = False
  _random_samples: Tensor | None = None
  def __init__(self, kernel_size: Ints, output_size: Ints | None = None, output_ratio: float | Sequence[float] | None = None, return_indices: bool = False, _random_samples: Tensor | None = None) -> None: ...
  def __call__(self, input: Tensor) -> Any: ...

class AdaptiveAvgPool1d(Layer):
  """:meth:`adaptive_avg_pool2d` of lines: (.., l) -> (.., output_size)."""
  output_size: int | None | Sequence[int | None]
  def __init__(self, output_size: int | None | Sequence[int | None]) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class AdaptiveAvgPool2d(Layer):
  """The means of as many windows as the result has elements, which cover the last two dims: (.., h, w) -> (.., *output_size).

    Window o of n goes from o * size / n, rounded down, to (o + 1) * size / n, rounded up. None keeps a size. Raises ShapeError,
    ArgumentError, DTypeError."""
  output_size: int | None | Sequence[int | None]
  def __init__(self, output_size: int | None | Sequence[int | None]) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class AdaptiveAvgPool3d(Layer):
  """:meth:`adaptive_avg_pool2d` of volumes: (.., d, h, w) -> (.., *output_size)."""
  output_size: int | None | Sequence[int | None]
  def __init__(self, output_size: int | None | Sequence[int | None]) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class AdaptiveMaxPool1d(Layer):
  """:meth:`adaptive_max_pool2d` of lines: (.., l) -> (.., output_size)."""
  output_size: int | None | Sequence[int | None]
  return_indices: bool = False
  def __init__(self, output_size: int | None | Sequence[int | None], return_indices: bool = False) -> None: ...
  def __call__(self, input: Tensor) -> Any: ...

class AdaptiveMaxPool2d(Layer):
  """The greatest of each window of :meth:`adaptive_avg_pool2d`: (.., h, w) -> (.., *output_size).

    With ``return_indices`` ``(values, indices)``, as :meth:`max_pool2d` has them. Raises ShapeError, ArgumentError."""
  output_size: int | None | Sequence[int | None]
  return_indices: bool = False
  def __init__(self, output_size: int | None | Sequence[int | None], return_indices: bool = False) -> None: ...
  def __call__(self, input: Tensor) -> Any: ...

class AdaptiveMaxPool3d(Layer):
  """:meth:`adaptive_max_pool2d` of volumes: (.., d, h, w) -> (.., *output_size)."""
  output_size: int | None | Sequence[int | None]
  return_indices: bool = False
  def __init__(self, output_size: int | None | Sequence[int | None], return_indices: bool = False) -> None: ...
  def __call__(self, input: Tensor) -> Any: ...

class MaxUnpool1d(Layer):
  """:meth:`max_unpool2d` over the last dimension: (.., l') -> (.., l)."""
  kernel_size: Ints
  stride: Ints | None = None
  padding: Ints = 0
  def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0) -> None: ...
  def __call__(self, input: Tensor, indices: Any, output_size: Sequence[int] | None = None) -> Tensor: ...

class MaxUnpool2d(Layer):
  """The values of a max pooling where its ``indices`` (ints of their shape) say, zeros elsewhere: (.., h', w') -> (.., h, w).

    The sizes are (size - 1) * stride - 2 * padding + kernel, or ``output_size``, which may differ by less than the stride. Raises
    ShapeError, DTypeError, ArgumentError."""
  kernel_size: Ints
  stride: Ints | None = None
  padding: Ints = 0
  def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0) -> None: ...
  def __call__(self, input: Tensor, indices: Any, output_size: Sequence[int] | None = None) -> Tensor: ...

class MaxUnpool3d(Layer):
  """:meth:`max_unpool2d` over the last three dimensions: (.., d', h', w') -> (.., d, h, w)."""
  kernel_size: Ints
  stride: Ints | None = None
  padding: Ints = 0
  def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0) -> None: ...
  def __call__(self, input: Tensor, indices: Any, output_size: Sequence[int] | None = None) -> Tensor: ...

class Unfold(Layer):
  """Windows as columns, ``torch.nn.functional.unfold``: (n, c, *spatial) -> (n, c * kernel elements, windows). ``kernel_size``
    is one number for two spatial dimensions, or one for each; the input may have no batch. (:meth:`unfold` makes windows of one
    dimension, :meth:`windows` of several without putting them into columns.) Raises ShapeError, ArgumentError."""
  kernel_size: Ints
  dilation: Ints = 1
  padding: Ints = 0
  stride: Ints = 1
  def __init__(self, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...

class Fold(Layer):
  """The adjoint of :meth:`im2col`, ``torch.nn.functional.fold``: (n, c * kernel elements, windows) -> (n, c, *output_size).
    Where windows overlap their elements are added up. One number as a size stands for two spatial dimensions. Raises ShapeError,
    ArgumentError."""
  output_size: Ints
  kernel_size: Ints
  dilation: Ints = 1
  padding: Ints = 0
  stride: Ints = 1
  def __init__(self, output_size: Ints, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1) -> None: ...
  def __call__(self, input: Tensor) -> Tensor: ...
