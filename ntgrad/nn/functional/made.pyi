# Written by `python -m ntgrad stubs` from ntgrad/compat/signatures.py.
from __future__ import annotations

from ntgrad.tensor import Tensor
from ntgrad.tensor.activation import Operand
from ntgrad.tensor.random import DType
from ntgrad.tensor.resampling import Ints
from typing import Any, Callable, Sequence

def relu(input: Tensor, inplace: bool=False) -> Tensor:
  """max(x, 0); -0.0 stays. No slope at 0."""

def relu6(input: Tensor, inplace: bool=False) -> Tensor:
  """x kept within 0 and 6. No slope at 0 and 6."""

def selu(input: Tensor, inplace: bool=False) -> Tensor:
  """gamma times elu(alpha)."""

def silu(input: Tensor, inplace: bool=False) -> Tensor:
  """x * sigmoid(x)."""

def mish(input: Tensor, inplace: bool=False) -> Tensor:
  """x * tanh(softplus(x))."""

def hardswish(input: Tensor, inplace: bool=False) -> Tensor:
  """x * relu6(x + 3) / 6."""

def hardsigmoid(input: Tensor, inplace: bool=False) -> Tensor:
  """relu6(x + 3) / 6."""

def elu(input: Tensor, alpha: float | Tensor=1.0, inplace: bool=False) -> Tensor:
  """x where positive, else alpha * (exp(x) - 1)."""

def celu(input: Tensor, alpha: float | Tensor=1.0, inplace: bool=False) -> Tensor:
  """x where positive, else alpha * (exp(x / alpha) - 1). Raises ArgumentError for an alpha of 0."""

def threshold(input: Tensor, threshold: float, value: float, inplace: bool=False) -> Tensor:
  """x where it is above a threshold, else a value; NaN stays."""

def leaky_relu(input: Tensor, negative_slope: float=0.01, inplace: bool=False) -> Tensor:
  """x where positive, else negative_slope * x."""

def hardtanh(input: Tensor, min_val: float=-1.0, max_val: float=1.0, inplace: bool=False) -> Tensor:
  """x kept within the numbers min_val and max_val. No slope where they are reached (clamp has one). Raises ArgumentError."""

def rrelu(input: Tensor, lower: float=1 / 8, upper: float=1 / 3, training: bool=False, inplace: bool=False) -> Tensor:
  """x where it is not negative, else x times a slope: in training (None: as ``Tensor.training`` says) random from lower to
    upper, each element its own; else the mean of both. Raises ArgumentError."""

def dropout(input: Tensor, p: float=0.5, training: bool=True, inplace: bool=False) -> Tensor:
  """While training: zero with probability p, else divided by 1 - p. ``training`` None: as ``Tensor.train`` says. Raises
    ArgumentError for a p outside [0, 1]."""

def dropout1d(input: Tensor, p: float=0.5, training: bool=True, inplace: bool=False) -> Tensor:
  """``dropout`` of whole channels of (n, channels, length), or (channels, length). Raises ShapeError, ArgumentError."""

def dropout2d(input: Tensor, p: float=0.5, training: bool=True, inplace: bool=False) -> Tensor:
  """``dropout`` of whole channels of (n, channels, height, width); of 3 dims, as in PyTorch, (n, channels, length). Raises
    ShapeError, ArgumentError."""

def dropout3d(input: Tensor, p: float=0.5, training: bool=True, inplace: bool=False) -> Tensor:
  """``dropout`` of whole channels of (n, channels, depth, height, width), or without n. Raises ShapeError, ArgumentError."""

def alpha_dropout(input: Tensor, p: float=0.5, training: bool=False, inplace: bool=False) -> Tensor:
  """While training: elements go to the limit of ``selu`` with probability p, and all are scaled so that mean 0 and variance 1
    stay (Klambauer et al., Self-Normalizing Neural Networks, 2017). Raises ArgumentError."""

def feature_alpha_dropout(input: Tensor, p: float=0.5, training: bool=False, inplace: bool=False) -> Tensor:
  """``alpha_dropout`` of whole channels of (n, channels, ..). Raises ShapeError, ArgumentError."""

def relu_(input: Tensor) -> Tensor:
  """``relu``, written in place; see ``add_``."""

def selu_(input: Tensor) -> Tensor:
  """gamma times elu(alpha)."""

def logsigmoid(input: Tensor) -> Tensor:
  """log(sigmoid(x)), without overflow."""

def sigmoid(input: Tensor) -> Tensor:
  """1 / (1 + exp(-x))."""

def tanh(input: Tensor) -> Tensor:
  """The hyperbolic tangent."""

def softsign(input: Tensor) -> Tensor:
  """x / (1 + |x|)."""

def tanhshrink(input: Tensor) -> Tensor:
  """x - tanh(x)."""

def leaky_relu_(input: Tensor, negative_slope: float=0.01) -> Tensor:
  """x where positive, else negative_slope * x."""

def hardtanh_(input: Tensor, min_val: float=-1.0, max_val: float=1.0) -> Tensor:
  """x kept within the numbers min_val and max_val. No slope where they are reached (clamp has one). Raises ArgumentError."""

def rrelu_(input: Tensor, lower: float=1 / 8, upper: float=1 / 3, training: bool=False) -> Tensor:
  """x where it is not negative, else x times a slope: in training (None: as ``Tensor.training`` says) random from lower to
    upper, each element its own; else the mean of both. Raises ArgumentError."""

def gelu(input: Tensor, *, approximate: str='none') -> Tensor:
  """x times the normal distribution function, by the tanh formula, or exactly with ``approximate="none"``."""

def softplus(input: Tensor, beta: float=1.0, threshold: float=20.0) -> Tensor:
  """log(1 + exp(beta x)) / beta, without overflow; x where beta x is above a threshold. Raises ArgumentError for a beta of
    0."""

def softmax(input: Tensor, dim: Any=None, _stacklevel: int=3, dtype: DType | str | None=None) -> Tensor:
  """exp(x) / sum(exp(x)) along an axis; small floats are computed in float32. Raises AxisError."""

def softmin(input: Tensor, dim: Any=None, _stacklevel: int=3, dtype: DType | str | None=None) -> Tensor:
  """softmax(-x) along a dim. Raises AxisError."""

def log_softmax(input: Tensor, dim: Any=None, _stacklevel: int=3, dtype: DType | str | None=None) -> Tensor:
  """log(softmax(x)) along an axis; small floats are computed in float32. Raises AxisError."""

def gumbel_softmax(logits: Tensor, tau: float=1, hard: bool=False, eps: float=1e-10, dim: int | str=-1) -> Tensor:
  """softmax((x + g) / tau) along a dim with Gumbel noise g: nearly one-hot samples of the classes whose logits x are; ``hard``:
    exactly one-hot ones, which have the gradient of the soft ones (Jang et al., https://arxiv.org/abs/1611.01144). Raises
    AxisError, DTypeError, ArgumentError."""

def elu_(input: Tensor, alpha: float | Tensor=1.0) -> Tensor:
  """x where positive, else alpha * (exp(x) - 1)."""

def celu_(input: Tensor, alpha: float | Tensor=1.0) -> Tensor:
  """x where positive, else alpha * (exp(x / alpha) - 1). Raises ArgumentError for an alpha of 0."""

def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
  """``threshold``, written in place; see ``add_``."""

def prelu(input: Tensor, weight: Operand) -> Tensor:
  """x where positive, else weight * x; the weight is one number, or one for each channel (dimension 1). Raises ShapeError."""

def hardshrink(input: Tensor, lambd: float=0.5) -> Tensor:
  """x where its size is above lambd, else 0; NaN stays."""

def softshrink(input: Tensor, lambd: float=0.5) -> Tensor:
  """x less lambd, to 0 and not beyond. Raises ArgumentError for a lambd beneath 0."""

def glu(input: Tensor, dim: int | str=-1) -> Tensor:
  """The first half along a dim, times the sigmoid of the second one. Raises AxisError; ShapeError for a dim that is not
    even."""

def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
  """Channels to pixels (https://arxiv.org/abs/1609.05158): (.., c * r², h, w) -> (.., c, h * r, w * r). Raises ShapeError,
    ArgumentError."""

def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
  """Pixels to channels, what takes :meth:`pixel_shuffle` back: (.., c, h * r, w * r) -> (.., c * r², h, w). Raises ShapeError,
    ArgumentError."""

def channel_shuffle(input: Tensor, groups: int) -> Tensor:
  """Channels of ``groups`` groups taken in turn, one of each: (n, c, ..) -> the same (https://arxiv.org/abs/1707.01083). Raises
    ShapeError, ArgumentError."""

def native_channel_shuffle(input: Tensor, groups: int) -> Tensor:
  """Channels of ``groups`` groups taken in turn, one of each: (n, c, ..) -> the same (https://arxiv.org/abs/1707.01083). Raises
    ShapeError, ArgumentError."""

def lp_pool1d(input: Tensor, norm_type: float, kernel_size: Ints, stride: Ints | None=None, ceil_mode: bool=False) -> Tensor:
  """:meth:`lp_pool2d` over the last dimension: (.., l) -> (.., l')."""

def lp_pool2d(input: Tensor, norm_type: float, kernel_size: Ints, stride: Ints | None=None, ceil_mode: bool=False) -> Tensor:
  """sum(x^p)^(1/p) of each window of the last two dimensions, p being ``norm_type``; of even p no slope where it is 0.

    As in PyTorch without abs: 1 is the sum, and of numbers beneath 0 the root of an odd power may be NaN. inf is the greatest
    size, -inf the least. With ``ceil_mode`` a window that ends outside counts as if it went on with its mean. Raises ShapeError,
    ArgumentError, DTypeError."""

def lp_pool3d(input: Tensor, norm_type: float, kernel_size: Ints, stride: Ints | None=None, ceil_mode: bool=False) -> Tensor:
  """:meth:`lp_pool2d` over the last three dimensions: (.., d, h, w) -> (.., d', h', w')."""

def adaptive_avg_pool1d(input: Tensor, output_size: int | None | Sequence[int | None]) -> Tensor:
  """:meth:`adaptive_avg_pool2d` of lines: (.., l) -> (.., output_size)."""

def adaptive_avg_pool2d(input: Tensor, output_size: int | None | Sequence[int | None]) -> Tensor:
  """The means of as many windows as the result has elements, which cover the last two dims: (.., h, w) -> (.., *output_size).

    Window o of n goes from o * size / n, rounded down, to (o + 1) * size / n, rounded up. None keeps a size. Raises ShapeError,
    ArgumentError, DTypeError."""

def adaptive_avg_pool3d(input: Tensor, output_size: int | None | Sequence[int | None]) -> Tensor:
  """:meth:`adaptive_avg_pool2d` of volumes: (.., d, h, w) -> (.., *output_size)."""

def adaptive_max_pool1d(input: Tensor, output_size: int | None | Sequence[int | None], return_indices: bool=False) -> Any:
  """:meth:`adaptive_max_pool2d` of lines: (.., l) -> (.., output_size)."""

def adaptive_max_pool2d(input: Tensor, output_size: int | None | Sequence[int | None], return_indices: bool=False) -> Any:
  """The greatest of each window of :meth:`adaptive_avg_pool2d`: (.., h, w) -> (.., *output_size).

    With ``return_indices`` ``(values, indices)``, as :meth:`max_pool2d` has them. Raises ShapeError, ArgumentError."""

def adaptive_max_pool3d(input: Tensor, output_size: int | None | Sequence[int | None], return_indices: bool=False) -> Any:
  """:meth:`adaptive_max_pool2d` of volumes: (.., d, h, w) -> (.., *output_size)."""

def max_unpool1d(input: Tensor, indices: Operand, kernel_size: Ints, stride: Ints | None=None, padding: Ints=0, output_size: Sequence[int] | None=None) -> Tensor:
  """:meth:`max_unpool2d` over the last dimension: (.., l') -> (.., l)."""

def max_unpool2d(input: Tensor, indices: Operand, kernel_size: Ints, stride: Ints | None=None, padding: Ints=0, output_size: Sequence[int] | None=None) -> Tensor:
  """The values of a max pooling where its ``indices`` (ints of their shape) say, zeros elsewhere: (.., h', w') -> (.., h, w).

    The sizes are (size - 1) * stride - 2 * padding + kernel, or ``output_size``, which may differ by less than the stride. Raises
    ShapeError, DTypeError, ArgumentError."""

def max_unpool3d(input: Tensor, indices: Operand, kernel_size: Ints, stride: Ints | None=None, padding: Ints=0, output_size: Sequence[int] | None=None) -> Tensor:
  """:meth:`max_unpool2d` over the last three dimensions: (.., d', h', w') -> (.., d, h, w)."""

def fractional_max_pool2d(input: Tensor, kernel_size: Ints, output_size: Ints | None=None, output_ratio: float | Sequence[float] | None=None, return_indices: bool=False, _random_samples: Operand | None=None) -> Any:
  """The greatest of windows that lie at random, as many as ``output_size`` or as ``output_ratio`` of each size: (n, c, h, w) ->
    (n, c, h', w'), or without n (Graham, https://arxiv.org/abs/1412.6071).

    Each n and c has its own two numbers from 0 to 1 (``_random_samples`` (n, c, 2) gives them). With ``return_indices`` also
    which element of the flattened h, w each is, int32. Raises ShapeError, ArgumentError."""

def fractional_max_pool3d(input: Tensor, kernel_size: Ints, output_size: Ints | None=None, output_ratio: float | Sequence[float] | None=None, return_indices: bool=False, _random_samples: Operand | None=None) -> Any:
  """:meth:`fractional_max_pool2d` of volumes: (n, c, d, h, w) -> (n, c, d', h', w')."""

def huber_loss(input: Tensor, target: Operand, reduction: str='mean', delta: float=1.0, weight: Operand | None=None) -> Tensor:
  """d² / 2 where d = |x - target| is less than delta, delta (d - delta / 2) elsewhere, times a weight for each element, reduced
    (Huber, Robust Estimation of a Location Parameter, 1964). Raises ShapeError, ArgumentError for a delta that is not above 0."""

def batch_norm(input: Tensor, running_mean: Operand | None, running_var: Operand | None, weight: Operand | None=None, bias: Operand | None=None, training: bool=False, momentum: float=0.1, eps: float=1e-05) -> Tensor:
  """Normalisation of each channel over the batch and what follows (https://arxiv.org/abs/1502.03167): (n, c, ..) -> the same.
    By the running statistics, or, in ``training``, by the batch's own mean and variance; then the running ones, where given, move
    towards these by ``momentum`` (the variance unbiased). All are (c,). Raises ShapeError, DTypeError; ArgumentError where
    running statistics are missing, and for a single value a channel in training."""

def instance_norm(input: Tensor, running_mean: Operand | None=None, running_var: Operand | None=None, weight: Operand | None=None, bias: Operand | None=None, use_input_stats: bool=True, momentum: float=0.1, eps: float=1e-05) -> Tensor:
  """Normalisation of each channel of each sample over what follows: (n, c, l, ..) -> the same
    (https://arxiv.org/abs/1607.08022). By its own mean and variance, towards whose averages over the batch the running ones move;
    or, without ``use_input_stats``, by the running ones. All are (c,). Raises ShapeError, DTypeError, ArgumentError as
    :meth:`batch_norm`."""

def layer_norm(input: Tensor, normalized_shape: int | Sequence[int], weight: Operand | None=None, bias: Operand | None=None, eps: float=1e-05) -> Tensor:
  """(x - mean) / sqrt(variance + eps) * weight + bias over the last dims (https://arxiv.org/abs/1607.06450). (..,
    *normalized_shape) -> the same; weight and bias have ``normalized_shape``. Raises ShapeError, DTypeError."""

def group_norm(input: Tensor, num_groups: int, weight: Operand | None=None, bias: Operand | None=None, eps: float=1e-05) -> Tensor:
  """Normalisation of groups of channels of each sample (https://arxiv.org/abs/1803.08494): (n, c, ..) -> the same. Weight and
    bias are (c,). Raises ShapeError, DTypeError; ArgumentError for a number of groups that does not divide c."""

def local_response_norm(input: Tensor, size: int, alpha: float=0.0001, beta: float=0.75, k: float=1.0) -> Tensor:
  """x / (k + alpha * mean(x² of ``size`` channels around))^beta (AlexNet, section 3.3): (n, c, l, ..) -> the same. Channels
    outside count as zeros. Raises ShapeError, DTypeError, ArgumentError for a size below 1."""

def pdist(input: Tensor, p: float=2.0) -> Tensor:
  """The p-norm of the difference of every two rows: (n, d) -> (n (n - 1) / 2,), of rows 0 and 1, 0 and 2, .., 1 and 2, ..
    Raises ShapeError, ArgumentError."""

def cosine_similarity(x1: Tensor, x2: Operand, dim: int | str=1, eps: float=1e-08) -> Tensor:
  """x1 · x2 / (|x1| |x2|) along a dim, each length at least eps; the two broadcast. Raises AxisError, ShapeError."""

def pairwise_distance(x1: Tensor, x2: Operand, p: float=2.0, eps: float=1e-06, keepdim: bool=False) -> Tensor:
  """The p-norm of x1 - x2 + eps along the last dim; the two broadcast. Raises ShapeError, ArgumentError."""

def rms_norm(input: Tensor, normalized_shape: int | Sequence[int] | None, weight: Operand | None=None, eps: float | None=None) -> Tensor:
  """x / sqrt(mean(x²) + eps) * weight over the last dims (https://arxiv.org/abs/1910.07467); small floats in float32.
    ``normalized_shape`` has the sizes of these dims, as weight has; without it, it is along ``axis``. ``eps`` None is the dtype's
    smallest step at 1. Raises ShapeError, AxisError, DTypeError."""

def normalize(input: Tensor, p: float=2.0, dim: int | str=1, eps: float=1e-12, out: Tensor | None=None) -> Tensor:
  """x over its p-norm along a dim, which counts as ``eps`` at least. Raises AxisError, ArgumentError; see ``norm``."""

def multilabel_margin_loss(input: Tensor, target: Any, size_average: bool | None=None, reduce: bool | None=None, reduction: str='mean') -> Tensor:
  """How far scores (n, classes), or (classes,), of other classes come within 1 of those of a row's target: the sum over its
    classes y and all others i of max(0, 1 - x[y] + x[i]), divided by the number of classes; then reduced. The target has the
    scores' shape and is class indices, up to the first -1 of a row. Raises ShapeError, DTypeError, ArgumentError;
    IndexOutOfRangeError where the classes are known (lists, arrays, constants)."""

def soft_margin_loss(input: Tensor, target: Operand, size_average: bool | None=None, reduce: bool | None=None, reduction: str='mean') -> Tensor:
  """log(1 + exp(-target * x)) for targets 1 and -1, without overflow, reduced. Raises ShapeError."""

def mse_loss(input: Tensor, target: Operand, size_average: bool | None=None, reduce: bool | None=None, reduction: str='mean', weight: Operand | None=None) -> Tensor:
  """(x - target)², reduced; with a weight for each element the mean is over the sum of the weights. Raises ShapeError."""

def l1_loss(input: Tensor, target: Operand, size_average: bool | None=None, reduce: bool | None=None, reduction: str='mean', weight: Operand | None=None) -> Tensor:
  """|x - target|, reduced; with a weight for each element the mean is over the sum of the weights. Raises ShapeError."""

def smooth_l1_loss(input: Tensor, target: Operand, size_average: bool | None=None, reduce: bool | None=None, reduction: str='mean', beta: float=1.0) -> Tensor:
  """d² / (2 beta) where d = |x - target| is less than beta, d - beta / 2 elsewhere, reduced. Raises ShapeError,
    ArgumentError for a negative beta."""

def kl_div(input: Tensor, target: Operand, size_average: bool | None=None, reduce: bool | None=None, reduction: str='mean', log_target: bool=False) -> Tensor:
  """target * (log(target) - x) for log probabilities x, 0 log 0 being 0; ``log_target``: the target is a logarithm too. The
    reduction "batchmean" is the sum divided by the size of dimension 0: the divergence itself, a row. Raises ShapeError,
    ArgumentError."""

def binary_cross_entropy(input: Tensor, target: Operand, weight: Operand | None=None, size_average: bool | None=None, reduce: bool | None=None, reduction: str='mean') -> Tensor:
  """-(y log x + (1 - y) log(1 - x)) for probabilities, times a weight that broadcasts, reduced. A logarithm is at least -100,
    without slope there. Raises ShapeError; ArgumentError for what is no probability, where the host next waits (as indices are
    checked)."""

def multilabel_soft_margin_loss(input: Tensor, target: Operand, weight: Operand | None=None, size_average: bool | None=None, reduce: bool | None=None, reduction: str='mean') -> Tensor:
  """Binary cross entropy of sigmoid(x), times a weight a class, its mean over the last dim, reduced. Raises ShapeError."""

def binary_cross_entropy_with_logits(input: Tensor, target: Operand, weight: Operand | None=None, size_average: bool | None=None, reduce: bool | None=None, reduction: str='mean', pos_weight: Operand | None=None) -> Tensor:
  """Binary cross entropy of sigmoid(x), without overflow, times a weight, reduced; ``pos_weight`` is a factor of the part for the
    target. Both weights broadcast to the loss. Raises ShapeError."""

def hinge_embedding_loss(input: Tensor, target: Operand, margin: float=1.0, size_average: bool | None=None, reduce: bool | None=None, reduction: str='mean') -> Tensor:
  """x where the target is 1, max(0, margin - x) where it is -1, reduced. Raises ShapeError."""

def multi_margin_loss(input: Tensor, target: Any, p: int=1, margin: float=1.0, weight: Operand | None=None, size_average: bool | None=None, reduce: bool | None=None, reduction: str='mean') -> Tensor:
  """How far scores (n, classes), or (classes,), of other classes come within ``margin`` of the score of the class index (n,):
    the mean over classes of weight[y] max(0, margin - x[y] + x[i]) ** p for i != y, with p 1 or 2. Raises ShapeError, DTypeError,
    ArgumentError; IndexOutOfRangeError where the classes are known."""

def nll_loss(input: Tensor, target: Any, weight: Operand | None=None, size_average: bool | None=None, ignore_index: int=-100, reduce: bool | None=None, reduction: str='mean') -> Tensor:
  """The negative of log probabilities (n, classes, ..) at class indices (n, ..), with a weight a class, by whose sum over the
    rows the mean is divided. Rows whose index is ignore_index do not count; the loss of a row whose index is no class is NaN.
    Raises ShapeError, DTypeError; IndexOutOfRangeError where the classes are known (lists, arrays, constants)."""

def cross_entropy(input: Tensor, target: Any, weight: Operand | None=None, size_average: bool | None=None, ignore_index: int=-100, reduce: bool | None=None, reduction: str='mean', label_smoothing: float=0.0) -> Tensor:
  """Cross entropy of logits (n, classes, ..) with class indices (n, ..) or probabilities of the logits' shape; logits
    (classes,) are one row.

    ``weight`` (classes,) is a factor for each class; the mean over class indices is then divided by the sum of the rows' weights,
    that over probabilities by the number of rows. Rows whose index is ignore_index do not count (None: every row does; PyTorch
    ignores -100); the mean over no rows is NaN, as is the loss of a row whose index is no class. Raises ShapeError, DTypeError,
    ArgumentError; IndexOutOfRangeError where the classes are known (lists, arrays, constants)."""

def poisson_nll_loss(input: Tensor, target: Operand, log_input: bool=True, full: bool=False, size_average: bool | None=None, eps: float=1e-08, reduce: bool | None=None, reduction: str='mean') -> Tensor:
  """exp(x) - target * x for the logarithm x of a rate, or x - target * log(x + eps) for a rate, reduced; ``full`` adds
    Stirling's approximation of log(target!) where the target is above 1. Raises ShapeError."""

def cosine_embedding_loss(input1: Tensor, input2: Operand, target: Operand, margin: float=0.0, size_average: bool | None=None, reduce: bool | None=None, reduction: str='mean') -> Tensor:
  """1 - cosine for a target of 1, max(0, cosine - margin) for one of -1, reduced: (n, d) twice and target (n,), or (d,) and
    (). Raises ShapeError."""

def triplet_margin_loss(anchor: Tensor, positive: Operand, negative: Operand, margin: float=1.0, p: float=2.0, eps: float=1e-06, swap: bool=False, size_average: bool | None=None, reduce: bool | None=None, reduction: str='mean') -> Tensor:
  """max(0, margin + distance to positive - distance to negative), reduced; (n, d) or (d,) each, distances as
    ``pairwise_distance`` has them (Balntas et al., Learning shallow convolutional feature descriptors with triplet losses, 2016).
    ``swap`` takes the lesser of the negative's distances to this tensor and to the positive. Raises ShapeError, ArgumentError."""

def triplet_margin_with_distance_loss(anchor: Tensor, positive: Operand, negative: Operand, *, distance_function: Callable[[Any, Any], Any] | None=None, margin: float=1.0, swap: bool=False, reduction: str='mean') -> Tensor:
  """``triplet_margin_loss`` with a distance of one's own, a function of two tensors of this shape (None: their Euclidean
    distance along the last dim). Raises ShapeError, ArgumentError."""

def max_pool1d(input: Tensor, kernel_size: Ints, stride: Ints | None=None, padding: Ints=0, dilation: Ints=1, ceil_mode: bool=False, return_indices: bool=False) -> Any:
  """:meth:`max_pool2d` over the last dimension: (.., l) -> (.., l')."""

def max_pool2d(input: Tensor, kernel_size: Ints, stride: Ints | None=None, padding: Ints=0, dilation: Ints=1, ceil_mode: bool=False, return_indices: bool=False) -> Any:
  """The greatest of each window of the last dims (2, or as many as the kernel has); stride None is the kernel's size. With
    ``return_indices`` ``(values, indices)``: which element of the flattened last dims it is (int32), the first of equal ones, a
    NaN before all. What follows the stride is in tinygrad's order; give it by name, since PyTorch has another. Raises ShapeError,
    ArgumentError."""

def max_pool3d(input: Tensor, kernel_size: Ints, stride: Ints | None=None, padding: Ints=0, dilation: Ints=1, ceil_mode: bool=False, return_indices: bool=False) -> Any:
  """:meth:`max_pool2d` over the last three dimensions: (.., d, h, w) -> (.., d', h', w')."""

def avg_pool1d(input: Tensor, kernel_size: Ints, stride: Ints | None=None, padding: Ints=0, ceil_mode: bool=False, count_include_pad: bool=True) -> Tensor:
  """:meth:`avg_pool2d` over the last dimension: (.., l) -> (.., l')."""

def avg_pool2d(input: Tensor, kernel_size: Ints, stride: Ints | None=None, padding: Ints=0, ceil_mode: bool=False, count_include_pad: bool=True, divisor_override: int | None=None) -> Tensor:
  """The mean of each window of the last dims (2, or as many as the kernel has); padding counts as zeros unless told otherwise.
    ``divisor_override`` is what sums are divided by in place of the number of elements. What follows the stride is in tinygrad's
    order; give it by name, since PyTorch has another. Raises ShapeError, ArgumentError, DTypeError for what is not float."""

def avg_pool3d(input: Tensor, kernel_size: Ints, stride: Ints | None=None, padding: Ints=0, ceil_mode: bool=False, count_include_pad: bool=True, divisor_override: int | None=None) -> Tensor:
  """:meth:`avg_pool2d` over the last three dimensions: (.., d, h, w) -> (.., d', h', w')."""

def unfold(input: Tensor, kernel_size: Ints, dilation: Ints=1, padding: Ints=0, stride: Ints=1) -> Tensor:
  """Windows as columns, ``torch.nn.functional.unfold``: (n, c, *spatial) -> (n, c * kernel elements, windows). ``kernel_size``
    is one number for two spatial dimensions, or one for each; the input may have no batch. (:meth:`unfold` makes windows of one
    dimension, :meth:`windows` of several without putting them into columns.) Raises ShapeError, ArgumentError."""

def fold(input: Tensor, output_size: Ints, kernel_size: Ints, dilation: Ints=1, padding: Ints=0, stride: Ints=1) -> Tensor:
  """The adjoint of :meth:`im2col`, ``torch.nn.functional.fold``: (n, c * kernel elements, windows) -> (n, c, *output_size).
    Where windows overlap their elements are added up. One number as a size stands for two spatial dimensions. Raises ShapeError,
    ArgumentError."""

def max_pool1d_with_indices(input: Tensor, kernel_size: Ints, stride: Ints | None=None, padding: Ints=0, dilation: Ints=1, ceil_mode: bool=False, return_indices: bool=False) -> Any:
  """:meth:`max_pool2d` over the last dimension: (.., l) -> (.., l')."""

def max_pool2d_with_indices(input: Tensor, kernel_size: Ints, stride: Ints | None=None, padding: Ints=0, dilation: Ints=1, ceil_mode: bool=False, return_indices: bool=False) -> Any:
  """The greatest of each window of the last dims (2, or as many as the kernel has); stride None is the kernel's size. With
    ``return_indices`` ``(values, indices)``: which element of the flattened last dims it is (int32), the first of equal ones, a
    NaN before all. What follows the stride is in tinygrad's order; give it by name, since PyTorch has another. Raises ShapeError,
    ArgumentError."""

def max_pool3d_with_indices(input: Tensor, kernel_size: Ints, stride: Ints | None=None, padding: Ints=0, dilation: Ints=1, ceil_mode: bool=False, return_indices: bool=False) -> Any:
  """:meth:`max_pool2d` over the last three dimensions: (.., d, h, w) -> (.., d', h', w')."""

def adaptive_max_pool1d_with_indices(input: Tensor, output_size: int | None | Sequence[int | None], return_indices: bool=False) -> Any:
  """:meth:`adaptive_max_pool2d` of lines: (.., l) -> (.., output_size)."""

def adaptive_max_pool2d_with_indices(input: Tensor, output_size: int | None | Sequence[int | None], return_indices: bool=False) -> Any:
  """The greatest of each window of :meth:`adaptive_avg_pool2d`: (.., h, w) -> (.., *output_size).

    With ``return_indices`` ``(values, indices)``, as :meth:`max_pool2d` has them. Raises ShapeError, ArgumentError."""

def adaptive_max_pool3d_with_indices(input: Tensor, output_size: int | None | Sequence[int | None], return_indices: bool=False) -> Any:
  """:meth:`adaptive_max_pool2d` of volumes: (.., d, h, w) -> (.., *output_size)."""

def fractional_max_pool2d_with_indices(input: Tensor, kernel_size: Ints, output_size: Ints | None=None, output_ratio: float | Sequence[float] | None=None, return_indices: bool=False, _random_samples: Operand | None=None) -> Any:
  """The greatest of windows that lie at random, as many as ``output_size`` or as ``output_ratio`` of each size: (n, c, h, w) ->
    (n, c, h', w'), or without n (Graham, https://arxiv.org/abs/1412.6071).

    Each n and c has its own two numbers from 0 to 1 (``_random_samples`` (n, c, 2) gives them). With ``return_indices`` also
    which element of the flattened h, w each is, int32. Raises ShapeError, ArgumentError."""

def fractional_max_pool3d_with_indices(input: Tensor, kernel_size: Ints, output_size: Ints | None=None, output_ratio: float | Sequence[float] | None=None, return_indices: bool=False, _random_samples: Operand | None=None) -> Any:
  """:meth:`fractional_max_pool2d` of volumes: (n, c, d, h, w) -> (n, c, d', h', w')."""

def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None=None) -> Tensor:
  """The places that affine maps (n, 2, 3), or (n, 3, 4), send a regular grid to, for ``grid_sample``: (n, h, w, 2), or (n, d,
    h, w, 3), x first, where ``size`` is (n, c, h, w), or (n, c, d, h, w). The grid goes from -1 to 1: the centres of the
    outermost elements with ``align_corners``, else their outer edges (Jaderberg et al., https://arxiv.org/abs/1506.02025). Raises
    ShapeError, DTypeError, ArgumentError."""

def grid_sample(input: Tensor, grid: Operand, mode: str='bilinear', padding_mode: str='zeros', align_corners: bool | None=None) -> Tensor:
  """Elements of (n, c, h, w) at the places of a grid (n, h', w', 2), x first, from -1 to 1: (n, c, h', w'); or of (n, c, d, h,
    w) at those of (n, d', h', w', 3). ``mode``: bilinear (of neighbours), nearest, or bicubic (two dims). ``padding_mode``: what
    lies outside counts as zeros, as the border, or mirrored (reflection). With ``align_corners`` -1 and 1 are the centres of the
    outermost elements, else their outer edges. Raises ShapeError, DTypeError, ArgumentError."""

def upsample(input: Tensor, size: Ints | None=None, scale_factor: float | Sequence[float] | None=None, mode: str='nearest', align_corners: bool | None=None) -> Tensor:
  """Another size for the spatial dimensions: (n, c, *spatial) -> (n, c, *size), or scaled by ``scale_factor`` (rounded down).
    ``mode`` is "nearest" (by left edges), "nearest-exact" (by centres), "linear" for one, two and three spatial dimensions,
    "bilinear" and "bicubic" for two, "trilinear" for three, "area" (means, as adaptive_avg_pool). ``align_corners``: the first
    and the last elements stay where they are, in place of the outer edges. ``antialias``, of "bilinear" and "bicubic": where a
    dimension becomes smaller, each result is made of all elements that it stands for. All but the nearest modes take floats;
    "linear", "bilinear" and "bicubic" uint8 too, with results rounded along each dimension, the last one first.
    Raises ShapeError, ArgumentError, DTypeError."""

def upsample_nearest(input: Tensor, size: Ints | None=None, scale_factor: float | Sequence[float] | None=None) -> Tensor:
  """Another size for the spatial dimensions: (n, c, *spatial) -> (n, c, *size), or scaled by ``scale_factor`` (rounded down).
    ``mode`` is "nearest" (by left edges), "nearest-exact" (by centres), "linear" for one, two and three spatial dimensions,
    "bilinear" and "bicubic" for two, "trilinear" for three, "area" (means, as adaptive_avg_pool). ``align_corners``: the first
    and the last elements stay where they are, in place of the outer edges. ``antialias``, of "bilinear" and "bicubic": where a
    dimension becomes smaller, each result is made of all elements that it stands for. All but the nearest modes take floats;
    "linear", "bilinear" and "bicubic" uint8 too, with results rounded along each dimension, the last one first.
    Raises ShapeError, ArgumentError, DTypeError."""

def upsample_bilinear(input: Tensor, size: Ints | None=None, scale_factor: float | Sequence[float] | None=None) -> Tensor:
  """Another size for the spatial dimensions: (n, c, *spatial) -> (n, c, *size), or scaled by ``scale_factor`` (rounded down).
    ``mode`` is "nearest" (by left edges), "nearest-exact" (by centres), "linear" for one, two and three spatial dimensions,
    "bilinear" and "bicubic" for two, "trilinear" for three, "area" (means, as adaptive_avg_pool). ``align_corners``: the first
    and the last elements stay where they are, in place of the outer edges. ``antialias``, of "bilinear" and "bicubic": where a
    dimension becomes smaller, each result is made of all elements that it stands for. All but the nearest modes take floats;
    "linear", "bilinear" and "bicubic" uint8 too, with results rounded along each dimension, the last one first.
    Raises ShapeError, ArgumentError, DTypeError."""
