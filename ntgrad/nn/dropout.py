"""Dropout: layers that drop elements or channels at random in training."""
from __future__ import annotations

from ntgrad.codegen.ir.errors import ShapeError
from ntgrad.tensor import Tensor

from .activations import layer
from .common import probability
from .module import Module


class _Dropout(Module):
  p: float

  def __post_init__(self) -> None: probability(f"nn.{type(self).__name__}", "p", self.p)

  def _drop(self, x: Tensor, shape: tuple[int, ...], alpha: bool = False) -> Tensor:
    """Dropout with one random number for each element of a shape, which is expanded."""
    return x._dropped(type(self).__name__, self.p, self.p != 0 and self._trains("nothing is dropped"), shape, None, alpha)


@layer
class Dropout(_Dropout):
  """In training: each element zero with probability p, else divided by 1 - p (https://arxiv.org/abs/1207.0580)."""
  p: float = 0.5
  inplace: bool = False

  def __call__(self, input: Tensor) -> Tensor:
    """The input's shape."""
    return self._drop(input, input.shape)


class _Channels(_Dropout):
  _rank = 1

  def __call__(self, input: Tensor) -> Tensor:
    """The input's shape. Raises ShapeError for another number of dimensions."""
    n = self._rank
    if input.ndim not in (n + 1, n + 2):
      raise ShapeError(f"nn.{type(self).__name__}: input of shape {input.shape}, expected (n, c, *{n} more) or (c, *{n} more)")
    return self._drop(input, (*input.shape[:input.ndim - n], *[1] * n))


@layer
class Dropout1d(_Channels):
  """Dropout of whole channels of ``(n, c, w)`` or ``(c, w)``."""
  p: float = 0.5
  inplace: bool = False


@layer
class Dropout2d(_Channels):
  """Dropout of whole channels of ``(n, c, h, w)`` or ``(c, h, w)``."""
  p: float = 0.5
  inplace: bool = False
  _rank = 2


@layer
class Dropout3d(_Channels):
  """Dropout of whole channels of ``(n, c, d, h, w)`` or ``(c, d, h, w)``."""
  p: float = 0.5
  inplace: bool = False
  _rank = 3


@layer
class AlphaDropout(_Dropout):
  """Dropout that goes with SELU: it keeps mean 0 and variance 1 (https://arxiv.org/abs/1706.02515)."""
  p: float = 0.5
  inplace: bool = False

  def __call__(self, input: Tensor) -> Tensor:
    """The input's shape."""
    return self._drop(input, input.shape, True)


@layer
class FeatureAlphaDropout(_Dropout):
  """AlphaDropout of whole channels of ``(n, c, ..)``."""
  p: float = 0.5
  inplace: bool = False

  def __call__(self, input: Tensor) -> Tensor:
    """The input's shape. Raises ShapeError for fewer than two dimensions."""
    if input.ndim < 2: raise ShapeError(f"nn.FeatureAlphaDropout: input of shape {input.shape}, expected (n, c, ..)")
    return self._drop(input, (*input.shape[:2], *[1] * (input.ndim - 2)), True)


__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]
