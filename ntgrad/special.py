"""``torch.special``: methods of ``Tensor`` under its names, and what is made of them in a line."""
# ruff: noqa: F403 - the stub has what the table makes
from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ntgrad.codegen.ir import ArgumentError
from ntgrad.compat.public import show
from ntgrad.compat.signatures import SPECIAL
from ntgrad.graph import Operand, checked
from ntgrad.tensor import Tensor
from ntgrad.tensor.made import functions

if TYPE_CHECKING:
  from ntgrad.functions.special import *

_MADE = functions(SPECIAL, __name__)
_OWN = ["entr", "log_ndtr", "multigammaln", "ndtr", "ndtri", "xlog1py"]
_ROOT = math.sqrt(0.5)


def entr(input: Tensor) -> Tensor:
  """-x ln(x), 0 for 0, and -inf beneath it."""
  return (input < 0).where(-math.inf, -input.clamp(0).xlogy(input.clamp(0)))


def ndtr(input: Tensor) -> Tensor:
  """The part of a standard normal distribution beneath x."""
  return (input * -_ROOT).erfc() * 0.5


def ndtri(input: Tensor) -> Tensor:
  """The x beneath which this part of a standard normal distribution lies."""
  return (input * 2 - 1).erfinv() / _ROOT


def log_ndtr(input: Tensor) -> Tensor:
  """The logarithm of :func:`ndtr`, of x far beneath 0 by its asymptotic series."""
  low = input < -5
  x = low.where(input, -5)
  t = 1 / x.square()
  series = 1.0 + t * (-1 + t * (3 + t * (-15 + t * (105 - t * (945 - t * 10395)))))
  return low.where(-0.5 * x.square() - (-x).log() - 0.5 * math.log(2 * math.pi) + series.log(), ndtr(low.where(0, input)).log())


def xlog1py(input: Tensor, other: Operand) -> Tensor:
  """x ln(1 + y), 0 where x is 0 and y no NaN. Raises ShapeError."""
  return ((input == 0) & other.isnan().logical_not()).where(0, input * other.log1p())


def multigammaln(input: Tensor, p: int) -> Tensor:
  """The logarithm of the gamma function of dimension p, of numbers above (p - 1) / 2. Raises ArgumentError."""
  if not 1 <= p <= 1024: raise ArgumentError(f"multigammaln: p {p}; it takes 1 to 1024")
  halves = Tensor.arange(p, dtype=input.dtype if input.dtype.kind == "f" else "float32", device=input.device) / 2
  return (input.unsqueeze(-1) - halves).lgamma().sum(-1) + p * (p - 1) / 4 * math.log(math.pi)


globals().update(_MADE | {name: checked(globals()[name]) for name in _OWN})
__all__ = sorted([*_MADE, *_OWN])  # noqa: PLE0605

show(__name__)
