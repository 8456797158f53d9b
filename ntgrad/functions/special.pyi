# Written by `python -m ntgrad stubs` from ntgrad/compat/signatures.py.
from __future__ import annotations

from ntgrad.tensor import Tensor
from ntgrad.tensor.elementwise import DType
from ntgrad.tensor.reduction import Axis
from typing import Any

def digamma(input: Tensor) -> Tensor:
  """The derivative of lgamma. NaN at negative whole numbers."""

def erf(input: Tensor) -> Tensor:
  """The error function."""

def erfc(input: Tensor) -> Tensor:
  """1 - erf(x), accurate where that is small."""

def erfinv(input: Tensor) -> Tensor:
  """The inverse of erf; infinite at 1 and -1, NaN beyond."""

def exp2(input: Tensor) -> Tensor:
  """2 to the power of the value."""

def expit(input: Tensor) -> Tensor:
  """1 / (1 + exp(-x))."""

def expm1(input: Tensor) -> Tensor:
  """exp(x) - 1, accurate near 0."""

def gammaln(input: Tensor) -> Tensor:
  """The logarithm of the absolute value of the gamma function."""

def log1p(input: Tensor) -> Tensor:
  """log(1 + x), accurate near 0."""

def psi(input: Tensor) -> Tensor:
  """The derivative of lgamma. NaN at negative whole numbers."""

def sinc(input: Tensor) -> Tensor:
  """sin(pi x) / (pi x), and 1 at 0."""

def round(input: Tensor, *, decimals: int=0) -> Tensor:
  """Rounded to the nearest, halves to even, or to a number of ``decimals``; ints as they are. Raises ArgumentError."""

def xlogy(input: Tensor, other: Any) -> Tensor:
  """self * log(other), and 0 where self is 0 (unless other is NaN)."""

def logit(input: Tensor, eps: float | None=None) -> Tensor:
  """log(x / (1 - x)), the inverse of sigmoid; with ``eps`` x is first kept within eps and 1 - eps. Raises ArgumentError for an
    eps that is not from 0 to 0.5."""

def logsumexp(input: Tensor, dim: Axis, keepdim: bool=False) -> Tensor:
  """log(sum(exp(x))) along axes (None: all), without overflow. Raises AxisError."""

def log_softmax(input: Tensor, dim: int | str, dtype: DType | str | None=None) -> Tensor:
  """log(softmax(x)) along an axis; small floats are computed in float32. Raises AxisError."""

def softmax(input: Tensor, dim: int | str, dtype: DType | str | None=None) -> Tensor:
  """exp(x) / sum(exp(x)) along an axis; small floats are computed in float32. Raises AxisError."""
