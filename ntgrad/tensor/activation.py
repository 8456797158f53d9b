"""Activations of ``Tensor``: elementwise functions that networks are made with."""
from __future__ import annotations

import math
from functools import wraps
from typing import Any, Callable, Self, TypeVar

from ntgrad.codegen.ir import ArgumentError, BinaryOps, ShapeError, UnaryOps, as_float, dtypes, shown
from ntgrad.core import Base, real_number
from ntgrad.graph import Operand, checked, nodes as graph, one_width
from ntgrad.graph.recipes import recalled

from .elementwise import Elementwise
from .movement import Movement

F = TypeVar("F", bound=Callable[..., Any])


def in_float32(fn: F) -> F:
  """Compute a function of smaller floats in float32 and round its result: what lies between, in gradients too, may not fit the
  dtype."""
  @wraps(fn)
  def call(x: Any, *args: Any, **kwargs: Any) -> Any:
    d = x.dtype
    return fn(x, *args, **kwargs) if d.kind != "f" or d.itemsize >= 4 else fn(x.cast(dtypes.float32), *args, **kwargs).cast(d)
  return call  # type: ignore[return-value]


@checked
class Activation(Elementwise, Movement):
  """The activations. Those that are no mere choice are computed in float32 for smaller floats."""
  __slots__ = ()

  def _limited(self, least: Any, greatest: Any = None) -> Self:
    """Kept within numbers, without slope where they are reached; x where it equals one."""
    if greatest is not None and not least <= greatest:
      raise ArgumentError(f"hardtanh: {shown(least)} to {shown(greatest)}; they must be in order")
    out = self._binary(BinaryOps.MAX, least, True)
    return out if greatest is None else out._binary(BinaryOps.MIN, greatest, True)
  def relu(self) -> Self:
    """max(x, 0); -0.0 stays. No slope at 0."""
    return self._limited(0)
  @in_float32
  def sigmoid(self) -> Self:
    """1 / (1 + exp(-x))."""
    return self._wrap(graph.unary(UnaryOps.RECIP, graph.exp(graph.neg(graph.cast(self.lazydata, as_float(self.dtype)))) + 1.0))
  @in_float32
  def logsigmoid(self) -> Self:
    """log(sigmoid(x)), without overflow."""
    return self.neg().softplus().neg()
  @recalled
  @in_float32
  def silu(self) -> Self:
    """x * sigmoid(x)."""
    return self * self.sigmoid()
  swish = silu
  @recalled
  @in_float32
  def gelu(self, approximate: str = "tanh") -> Self:
    """x times the normal distribution function, by the tanh formula, or exactly with ``approximate="none"``."""
    if approximate == "none": return self * 0.5 * (1 + (self * math.sqrt(0.5)).erf())
    if approximate != "tanh": raise ArgumentError(f"gelu: approximate={approximate!r}; it takes 'tanh' or 'none'")
    return self * 0.5 * (1 + (self * 0.7978845608028654 * (1 + 0.044715 * self * self)).tanh())
  @recalled
  @in_float32
  def quick_gelu(self) -> Self:
    """x * sigmoid(1.702 x)."""
    return self * (self * 1.702).sigmoid()
  @recalled
  def leaky_relu(self, neg_slope: float | Base = 0.01) -> Self:
    """x where positive, else neg_slope * x."""
    return (self > 0).where(self, self * neg_slope)
  @recalled
  @in_float32
  def elu(self, alpha: float | Base = 1.0) -> Self:
    """x where positive, else alpha * (exp(x) - 1)."""
    positive = self > 0
    return positive.where(self, (positive.where(0, self).exp() - 1) * alpha)
  @recalled
  @in_float32
  def celu(self, alpha: float | Base = 1.0) -> Self:
    """x where positive, else alpha * (exp(x / alpha) - 1). Raises ArgumentError for an alpha of 0."""
    if alpha.__class__ in (int, float) and not alpha: raise ArgumentError("celu: alpha = 0; it must not be 0")
    positive = self > 0
    return positive.where(self, ((positive.where(0, self) / alpha).exp() - 1) * alpha)
  @recalled
  @in_float32
  def selu(self, alpha: float | Base = 1.6732632423543772, gamma: float | Base = 1.0507009873554805) -> Self:
    """gamma times elu(alpha)."""
    return self.elu(alpha) * gamma
  @recalled
  @in_float32
  def softplus(self, beta: float = 1.0, threshold: float | None = None) -> Self:
    """log(1 + exp(beta x)) / beta, without overflow; x where beta x is above a threshold. Raises ArgumentError for a beta of
    0."""
    if beta.__class__ in (int, float) and not beta: raise ArgumentError("softplus: beta = 0; it must not be 0")
    x = self if beta == 1 else self * beta
    y = x.abs().neg().exp()
    u = y + 1
    # what 1 + y has lost of y changes the logarithm by lost / u; as a function it is constant
    out = x.maximum(0) + (u.log() + ((y - (u - 1)) / u).detach())
    if beta != 1: out = out / beta
    return out if threshold is None else (x > threshold).where(self, out)
  @in_float32
  def softsign(self) -> Self:
    """x / (1 + |x|)."""
    return self / (self.abs() + 1)
  @recalled
  @in_float32
  def mish(self) -> Self:
    """x * tanh(softplus(x))."""
    return self * self.softplus().tanh()
  def relu6(self) -> Self:
    """x kept within 0 and 6. No slope at 0 and 6."""
    return self._limited(0, 6)
  @in_float32
  def hardswish(self) -> Self:
    """x * relu6(x + 3) / 6."""
    return self * self.hardsigmoid()
  def hardsigmoid(self) -> Self:
    """relu6(x + 3) / 6."""
    return (self + 3).relu6() * (1 / 6)
  def hardtanh(self, min_val: Any = -1, max_val: Any = 1) -> Self:
    """x kept within the numbers min_val and max_val. No slope where they are reached (clamp has one). Raises ArgumentError."""
    return self._limited(real_number("hardtanh", "min_val", min_val), real_number("hardtanh", "max_val", max_val))
  def threshold(self, threshold: float, value: float) -> Self:
    """x where it is above a threshold, else a value; NaN stays."""
    return (self <= threshold).where(value, self)
  def hardshrink(self, lambd: float = 0.5) -> Self:
    """x where its size is above lambd, else 0; NaN stays."""
    return (self.abs() <= lambd).where(0, self)
  def softshrink(self, lambd: float = 0.5) -> Self:
    """x less lambd, to 0 and not beyond. Raises ArgumentError for a lambd beneath 0."""
    if not lambd >= 0: raise ArgumentError(f"softshrink: lambd = {lambd}; it must not be negative")
    return self - self.clamp(-lambd, lambd)
  @in_float32
  def tanhshrink(self) -> Self:
    """x - tanh(x)."""
    return self - self.tanh()

  # ---- of more than one element
  def glu(self, dim: int | str = -1) -> Self:
    """The first half along a dim, times the sigmoid of the second one. Raises AxisError; ShapeError for a dim that is not
    even."""
    a = self._dim("glu", dim)
    if not self.ndim or self.shape[a] % 2: raise ShapeError(f"glu: shape {self.shape} along {dim}; the dimension must be even")
    first, second = self.split(self.shape[a] // 2, a) if self.shape[a] else (self, self)
    return first * second.sigmoid()
  def prelu(self, weight: Operand) -> Self:
    """x where positive, else weight * x; the weight is one number, or one for each channel (dimension 1). Raises ShapeError."""
    one_width("prelu", self, weight)
    one = weight.numel() == 1
    if not one and (self.ndim < 2 or weight.shape != self.shape[1:2]):
      raise ShapeError(f"prelu: a weight of shape {weight.shape} for shape {self.shape}; it has 1 element, or 1 for each channel")
    return (self > 0).where(self, self * weight.named().reshape(() if one else (-1,) + (1,) * (self.ndim - 2)))
