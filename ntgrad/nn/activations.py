"""Activations that are more than a row of the table of signatures, and activations by name."""
from __future__ import annotations

from typing import Any, Callable

from ntgrad.codegen.ir import ArgumentError, ShapeError, dtypes, shown
from ntgrad.graph import checked
from ntgrad.tensor import Tensor

from .common import size
from .made import layer
from .module import Module


@layer
class Softmax2d(Module):
  """Softmax over the channels of ``(n, c, h, w)`` or ``(c, h, w)``."""

  def __call__(self, input: Tensor) -> Any:
    """The input's shape. Raises ShapeError for another number of dimensions."""
    if input.ndim not in (3, 4):
      raise ShapeError(f"nn.Softmax2d: input of shape {input.shape}, expected (n, c, h, w) or (c, h, w)")
    return input.softmax(-3)


@checked
class PReLU(Module):
  """x where it is positive, else weight · x, a slope that is learned (https://arxiv.org/abs/1502.01852): one, or one a channel.

  ``weight`` has shape (num_parameters,), the channels are the second dimension."""
  _said = "num_parameters"

  def __init__(self, num_parameters: int = 1, init: float = 0.25, device: str | None = None, dtype: Any = None):
    self.num_parameters = size("PReLU", "num_parameters", num_parameters)
    self.weight = Tensor.full(
      (num_parameters,), init, device=device, dtype=dtypes.default_float if dtype is None else dtype, requires_grad=True)

  def __call__(self, input: Tensor) -> Tensor:
    """The input's shape. Raises ShapeError for another number of channels."""
    n = self.num_parameters
    if n > 1 and (input.ndim < 2 or input.shape[1] != n):
      raise ShapeError(f"nn.PReLU: input of shape {input.shape}, expected (n, {n}, ..)")
    return input.prelu(self.weight)


_NAMED = "relu gelu silu tanh sigmoid leaky_relu elu mish".split()


def activation_of(name: str, x: str | Callable[..., Any]) -> Callable[[Tensor], Tensor]:
  """A function of tensors, given as such or by the name of Tensor's method. Raises ArgumentError."""
  if not isinstance(x, str): return x
  if x not in _NAMED:
    raise ArgumentError(f"{name}: activation {shown(x)}; it takes a function, or one of {', '.join(_NAMED)}")
  if x == "gelu": return lambda t: t.gelu("none")
  return lambda t: getattr(t, x)()
