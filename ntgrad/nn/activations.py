"""Activations as layers: a class each, which says its arguments and which method of Tensor it calls with them.

``inplace`` writes the result to the input, as PyTorch has it. No memory is saved by it: it is for programs that go on with the
input.
"""
from __future__ import annotations

from dataclasses import dataclass, fields
from functools import wraps
from typing import Any, Callable, ClassVar, TypeVar, dataclass_transform

from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.errors import ArgumentError, ShapeError, shown
from ntgrad.core import axis_of
from ntgrad.graph.checks import checked
from ntgrad.tensor import Tensor

from .common import implicit_dim, size
from .module import Module, forward_of

C = TypeVar("C", bound=type)


@dataclass_transform()
def layer(cls: C) -> C:
  """A layer whose arguments are the class's annotated attributes, checked as all public functions' are."""
  kind: Any = cls
  if "__call__" not in vars(kind): kind.__call__, kind.forward = kind.__call__, forward_of(kind)   # refuses under its own name
  if "inplace" in vars(kind).get("__annotations__", ()): kind.__call__ = _written(f"nn.{kind.__name__}", kind.__call__)
  made: Any = checked(dataclass(repr=False, eq=False)(cls))
  made._said = tuple([f.name for f in fields(made) if f.name != "inplace"])
  return made


def _written(name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
  @wraps(fn)
  def call(self: Any, input: Any) -> Any:
    out = fn(self, input)
    return input._in_place(name, lambda: out) if self.inplace else out
  return call


class _Elementwise(Module):
  """Calls a method of the input: its name, then the attributes that it takes."""
  _calls: ClassVar[str]

  def __call__(self, input: Tensor) -> Any:
    """The function of every element (or of the elements along ``dim``)."""
    method, *names = self._calls.split()
    return getattr(input, method)(*[getattr(self, n) for n in names])


@layer
class ReLU(_Elementwise):
  """max(x, 0)."""
  inplace: bool = False
  _calls = "relu"


@layer
class ReLU6(_Elementwise):
  """min(max(x, 0), 6)."""
  inplace: bool = False
  _calls = "relu6"


@layer
class LeakyReLU(_Elementwise):
  """x where it is positive, else negative_slope · x."""
  negative_slope: float = 0.01
  inplace: bool = False
  _calls = "leaky_relu negative_slope"


@layer
class ELU(_Elementwise):
  """x where it is positive, else alpha · (exp(x) - 1)."""
  alpha: float = 1.0
  inplace: bool = False
  _calls = "elu alpha"


@layer
class SELU(_Elementwise):
  """ELU times 1.0507, with alpha = 1.6733: layers of it keep mean 0 and variance 1 (https://arxiv.org/abs/1706.02515)."""
  inplace: bool = False
  _calls = "selu"


@layer
class CELU(_Elementwise):
  """x where it is positive, else alpha · (exp(x / alpha) - 1)."""
  alpha: float = 1.0
  inplace: bool = False
  _calls = "celu alpha"


@layer
class GELU(_Elementwise):
  """x times the normal distribution function: exactly ("none"), or by the tanh formula ("tanh")."""
  approximate: str = "none"
  _calls = "gelu approximate"


@layer
class SiLU(_Elementwise):
  """x · sigmoid(x)."""
  inplace: bool = False
  _calls = "silu"


@layer
class Mish(_Elementwise):
  """x · tanh(softplus(x))."""
  inplace: bool = False
  _calls = "mish"


@layer
class Softplus(_Elementwise):
  """log(1 + exp(beta · x)) / beta; x where beta · x is above ``threshold``."""
  beta: float = 1.0
  threshold: float = 20.0
  _calls = "softplus beta threshold"


@layer
class Softsign(_Elementwise):
  """x / (1 + |x|)."""
  _calls = "softsign"


@layer
class Tanh(_Elementwise):
  """The hyperbolic tangent."""
  _calls = "tanh"


@layer
class Sigmoid(_Elementwise):
  """1 / (1 + exp(-x))."""
  _calls = "sigmoid"


@layer
class LogSigmoid(_Elementwise):
  """log(sigmoid(x))."""
  _calls = "logsigmoid"


@layer
class Hardtanh(_Elementwise):
  """x kept within min_val and max_val."""
  min_val: float = -1.0
  max_val: float = 1.0
  inplace: bool = False
  _calls = "hardtanh min_val max_val"


@layer
class Hardswish(_Elementwise):
  """x · relu6(x + 3) / 6."""
  inplace: bool = False
  _calls = "hardswish"


@layer
class Hardsigmoid(_Elementwise):
  """relu6(x + 3) / 6."""
  inplace: bool = False
  _calls = "hardsigmoid"


@layer
class Tanhshrink(_Elementwise):
  """x - tanh(x)."""
  _calls = "tanhshrink"


@layer
class Hardshrink(_Elementwise):
  """x, but 0 where it is from -lambd to lambd."""
  lambd: float = 0.5
  _calls = "hardshrink lambd"


@layer
class Softshrink(_Elementwise):
  """x nearer to 0 by lambd, 0 where that is beyond it."""
  lambd: float = 0.5
  _calls = "softshrink lambd"


@layer
class Threshold(_Elementwise):
  """x where it is greater than threshold, else value."""
  threshold: float
  value: float
  inplace: bool = False
  _calls = "threshold threshold value"


class _Along(_Elementwise):
  """Calls a method of the input with ``dim``."""
  dim: Any

  def __call__(self, input: Tensor) -> Any:
    """What adds up to 1 along ``dim``: numbers from 0 to 1, or their logarithms. Raises AxisError."""
    return getattr(input, self._calls)(implicit_dim(self.dim, input.ndim))


@layer
class Softmax(_Along):
  """exp(x) over its sum along ``dim`` (None: the second of three and of one to two dimensions the last, as PyTorch chooses)."""
  dim: Any = None
  _calls = "softmax"


@layer
class Softmin(_Along):
  """Softmax of -x."""
  dim: Any = None
  _calls = "softmin"


@layer
class LogSoftmax(_Along):
  """The logarithm of Softmax."""
  dim: Any = None
  _calls = "log_softmax"


@layer
class Softmax2d(_Elementwise):
  """Softmax over the channels of ``(n, c, h, w)`` or ``(c, h, w)``."""

  def __call__(self, input: Tensor) -> Any:
    """The input's shape. Raises ShapeError for another number of dimensions."""
    if input.ndim not in (3, 4):
      raise ShapeError(f"nn.Softmax2d: input of shape {input.shape}, expected (n, c, h, w) or (c, h, w)")
    return input.softmax(-3)


@layer
class GLU(_Elementwise):
  """The first half along ``dim`` times the sigmoid of the second (https://arxiv.org/abs/1612.08083)."""
  dim: Any = -1

  def __call__(self, input: Tensor) -> Any:
    """Half of the input along ``dim``. Raises AxisError, ShapeError for an odd size."""
    d = axis_of("nn.GLU", self.dim, input.ndim, input._names)
    if input.ndim == 0 or input.shape[d] % 2:
      raise ShapeError(f"nn.GLU: input of shape {input.shape}, expected an even size at {d}")
    return input.glu(d)


@layer
class RReLU(Module):
  """x where it is positive, else x times a slope: in training drawn anew for each element from lower to upper, else their mean
  (https://arxiv.org/abs/1505.00853)."""
  lower: float = 1 / 8
  upper: float = 1 / 3
  inplace: bool = False

  def __post_init__(self) -> None:
    if not self.lower <= self.upper:
      raise ArgumentError(f"nn.RReLU: lower {self.lower}, upper {self.upper}; they must be in order")

  def __call__(self, input: Tensor) -> Tensor:
    """The input's shape."""
    return input.rrelu(self.lower, self.upper, self._trains("the slope is the mean of both"))


@checked
class PReLU(Module):
  """x where it is positive, else weight · x, a slope that is learned (https://arxiv.org/abs/1502.01852): one, or one a channel.

  ``weight`` has shape (num_parameters,), the channels are the second dimension.
  """
  _said = ("num_parameters",)

  def __init__(self, num_parameters: int = 1, init: float = 0.25, device: str | None = None, dtype: Any = None):
    self.num_parameters = size("PReLU", "num_parameters", num_parameters)
    kind = dtypes.default_float if dtype is None else dtype
    self.weight = Tensor.full((num_parameters,), init, device=device, dtype=kind, requires_grad=True)

  def __call__(self, input: Tensor) -> Tensor:
    """The input's shape. Raises ShapeError for another number of channels."""
    n = self.num_parameters
    if n > 1 and (input.ndim < 2 or input.shape[1] != n):
      raise ShapeError(f"nn.PReLU: input of shape {input.shape}, expected (n, {n}, ..)")
    return input.prelu(self.weight)


_NAMED = ("relu", "gelu", "silu", "tanh", "sigmoid", "leaky_relu", "elu", "mish")


def activation_of(name: str, x: str | Callable[..., Any]) -> Callable[[Tensor], Tensor]:
  """A function of tensors, given as such or by the name of Tensor's method. Raises ArgumentError."""
  if not isinstance(x, str): return x
  if x not in _NAMED:
    raise ArgumentError(f"{name}: activation {shown(x)}; it takes a function, or one of {', '.join(_NAMED)}")
  if x == "gelu": return lambda t: t.gelu("none")
  return lambda t: getattr(t, x)()


__all__ = ["CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU", "LogSigmoid",
           "LogSoftmax", "Mish", "PReLU", "RReLU", "ReLU", "ReLU6", "SELU", "Sigmoid", "SiLU", "Softmax", "Softmax2d", "Softmin",
           "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Threshold"]
