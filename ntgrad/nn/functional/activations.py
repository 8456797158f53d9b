"""Activations, elementwise and along a dimension, and what drops elements in training."""
from __future__ import annotations

from typing import Any

from ntgrad.graph.checks import Operand, checked
from ntgrad.nn.common import implicit_dim
from ntgrad.tensor import Tensor

from .common import written


# ---- elementwise, with the input written where it is asked for
@checked
def relu(input: Tensor, inplace: bool = False) -> Tensor:
  """max(x, 0). In place raises as ``Tensor.add_``."""
  return written("relu", input, input.relu(), inplace)


@checked
def relu6(input: Tensor, inplace: bool = False) -> Tensor:
  """x kept within 0 and 6. In place raises as ``Tensor.add_``."""
  return written("relu6", input, input.relu6(), inplace)


@checked
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
  """x where positive, else alpha * (exp(x) - 1). In place raises as ``Tensor.add_``."""
  return written("elu", input, input.elu(alpha), inplace)


@checked
def selu(input: Tensor, inplace: bool = False) -> Tensor:
  """elu of a fixed alpha, times a fixed scale, which keep mean 0 and variance 1. In place raises as ``Tensor.add_``."""
  return written("selu", input, input.selu(), inplace)


@checked
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
  """x where positive, else alpha * (exp(x / alpha) - 1). Raises ArgumentError for an alpha of 0; in place as ``Tensor.add_``."""
  return written("celu", input, input.celu(alpha), inplace)


@checked
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
  """x where positive, else negative_slope * x. In place raises as ``Tensor.add_``."""
  return written("leaky_relu", input, input.leaky_relu(negative_slope), inplace)


@checked
def rrelu(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False,
          inplace: bool = False) -> Tensor:
  """x where it is not negative, else x times a slope: random from lower to upper with ``training``, else the mean of both.
  Raises ArgumentError; in place as ``Tensor.add_``."""
  return written("rrelu", input, input.rrelu(lower, upper, training), inplace)


@checked
def silu(input: Tensor, inplace: bool = False) -> Tensor:
  """x * sigmoid(x). In place raises as ``Tensor.add_``."""
  return written("silu", input, input.silu(), inplace)


@checked
def mish(input: Tensor, inplace: bool = False) -> Tensor:
  """x * tanh(softplus(x)). In place raises as ``Tensor.add_``."""
  return written("mish", input, input.mish(), inplace)


@checked
def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
  """x * relu6(x + 3) / 6. In place raises as ``Tensor.add_``."""
  return written("hardswish", input, input.hardswish(), inplace)


@checked
def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
  """relu6(x + 3) / 6. In place raises as ``Tensor.add_``."""
  return written("hardsigmoid", input, input.hardsigmoid(), inplace)


@checked
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
  """x kept within two numbers, without slope where they are reached. Raises ArgumentError; in place as ``Tensor.add_``."""
  return written("hardtanh", input, input.hardtanh(min_val, max_val), inplace)


@checked
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
  """x where it is above a threshold, else a value. In place raises as ``Tensor.add_``."""
  return written("threshold", input, input.threshold(threshold, value), inplace)


# ---- the same, always in place
@checked
def relu_(input: Tensor) -> Tensor:
  """:func:`relu`, written in place. Raises as ``Tensor.add_``."""
  return written("relu_", input, input.relu())


@checked
def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
  """:func:`elu`, written in place. Raises as ``Tensor.add_``."""
  return written("elu_", input, input.elu(alpha))


@checked
def selu_(input: Tensor) -> Tensor:
  """:func:`selu`, written in place. Raises as ``Tensor.add_``."""
  return written("selu_", input, input.selu())


@checked
def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
  """:func:`celu`, written in place. Raises ArgumentError, and as ``Tensor.add_``."""
  return written("celu_", input, input.celu(alpha))


@checked
def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
  """:func:`leaky_relu`, written in place. Raises as ``Tensor.add_``."""
  return written("leaky_relu_", input, input.leaky_relu(negative_slope))


@checked
def rrelu_(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False) -> Tensor:
  """:func:`rrelu`, written in place. Raises ArgumentError, and as ``Tensor.add_``."""
  return written("rrelu_", input, input.rrelu(lower, upper, training))


@checked
def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
  """:func:`hardtanh`, written in place. Raises ArgumentError, and as ``Tensor.add_``."""
  return written("hardtanh_", input, input.hardtanh(min_val, max_val))


@checked
def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
  """:func:`threshold`, written in place. Raises as ``Tensor.add_``."""
  return written("threshold_", input, input.threshold(threshold, value))


# ---- elementwise
@checked
def gelu(input: Tensor, *, approximate: str = "none") -> Tensor:
  """x times the normal distribution function, exactly, or with "tanh" by a formula. Raises ArgumentError."""
  return input.gelu(approximate)


@checked
def prelu(input: Tensor, weight: Operand) -> Tensor:
  """x where positive, else weight * x; the weight is one number, or one for each channel (dim 1). Raises ShapeError."""
  return input.prelu(weight)


@checked
def logsigmoid(input: Tensor) -> Tensor:
  """log(sigmoid(x)), without overflow."""
  return input.logsigmoid()


@checked
def sigmoid(input: Tensor) -> Tensor:
  """1 / (1 + exp(-x))."""
  return input.sigmoid()


@checked
def tanh(input: Tensor) -> Tensor:
  """The hyperbolic tangent."""
  return input.tanh()


@checked
def softsign(input: Tensor) -> Tensor:
  """x / (1 + |x|)."""
  return input.softsign()


@checked
def tanhshrink(input: Tensor) -> Tensor:
  """x - tanh(x)."""
  return input.tanhshrink()


@checked
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
  """x where its size is above lambd, else 0."""
  return input.hardshrink(lambd)


@checked
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
  """x less lambd, to 0 and not beyond. Raises ArgumentError for a lambd beneath 0."""
  return input.softshrink(lambd)


@checked
def softplus(input: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
  """log(1 + exp(beta x)) / beta, and x where beta x is above the threshold. Raises ArgumentError for a beta of 0."""
  return input.softplus(beta, threshold)


# ---- along a dimension
@checked
def softmax(input: Tensor, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
  """exp(x) / sum(exp(x)) along a dim, cast to ``dtype`` first. Without a dim: dim 0 of 0, 1 or 3 dimensions, else dim 1.

  ``_stacklevel`` has no effect. Raises AxisError.
  """
  return (input if dtype is None else input.cast(dtype)).softmax(implicit_dim(dim, input.ndim))


@checked
def softmin(input: Tensor, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
  """:func:`softmax` of -x. Raises AxisError."""
  return (input if dtype is None else input.cast(dtype)).softmin(implicit_dim(dim, input.ndim))


@checked
def log_softmax(input: Tensor, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
  """The logarithm of :func:`softmax`, without overflow. Raises AxisError."""
  return (input if dtype is None else input.cast(dtype)).log_softmax(implicit_dim(dim, input.ndim))


@checked
def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: Any = -1) -> Tensor:
  """softmax((x + Gumbel noise) / tau) along a dim; ``hard``: one-hot, with the gradient of the soft result.

  ``eps`` has no effect, as in PyTorch. Raises AxisError, DTypeError, ArgumentError.
  """
  return logits.gumbel_softmax(tau, hard, dim)


@checked
def glu(input: Tensor, dim: Any = -1) -> Tensor:
  """The first half along a dim, times the sigmoid of the second. Raises AxisError, ShapeError."""
  return input.glu(dim)


# ---- dropout
@checked
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
  """With ``training`` each element zero with probability p, else divided by 1 - p; without, x. Raises ArgumentError for a p
  outside 0 to 1; in place as ``Tensor.add_``."""
  return written("dropout", input, input.dropout(p, training), inplace)


@checked
def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
  """:func:`dropout` of whole channels of (n, c, l) or (c, l). Raises ShapeError, ArgumentError; in place as ``Tensor.add_``."""
  return written("dropout1d", input, input.dropout1d(p, training), inplace)


@checked
def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
  """:func:`dropout` of whole channels of (n, c, h, w) or (n, c, l). Raises ShapeError, ArgumentError; in place as
  ``Tensor.add_``."""
  return written("dropout2d", input, input.dropout2d(p, training), inplace)


@checked
def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
  """:func:`dropout` of whole channels of (n, c, d, h, w) or (c, d, h, w). Raises ShapeError, ArgumentError; in place as
  ``Tensor.add_``."""
  return written("dropout3d", input, input.dropout3d(p, training), inplace)


@checked
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
  """With ``training`` elements go to selu's limit with probability p, and all are scaled so that mean 0 and variance 1 stay;
  without, x. Raises ArgumentError; in place as ``Tensor.add_``."""
  return written("alpha_dropout", input, input.alpha_dropout(p, training), inplace)


@checked
def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
  """:func:`alpha_dropout` of whole channels of (n, c, ..). Raises ShapeError, ArgumentError; in place as ``Tensor.add_``."""
  return written("feature_alpha_dropout", input, input.feature_alpha_dropout(p, training), inplace)


__all__ = [
  "alpha_dropout", "celu", "celu_", "dropout", "dropout1d", "dropout2d", "dropout3d", "elu", "elu_", "feature_alpha_dropout",
  "gelu", "glu", "gumbel_softmax", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "hardtanh_", "leaky_relu", "leaky_relu_",
  "log_softmax", "logsigmoid", "mish", "prelu", "relu", "relu6", "relu_", "rrelu", "rrelu_", "selu", "selu_", "sigmoid", "silu",
  "softmax", "softmin", "softplus", "softshrink", "softsign", "tanh", "tanhshrink", "threshold", "threshold_",
]
