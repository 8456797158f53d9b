"""Pooling into a number of windows, and resampling."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ntgrad.codegen.ir import ArgumentError, shown
from ntgrad.graph import Ints, checked
from ntgrad.tensor import Tensor

from .common import batched_or_not, count
from .module import Module

Scale = float | Sequence[float] | None


class _Adaptive(Module):
  _rank = 2
  _said = "output_size"
  _how = "mean"

  def _into(self, output_size: Any) -> None:
    given = tuple(output_size) if isinstance(output_size, (list, tuple)) else (output_size,) * self._rank
    if len(given) != self._rank:
      raise ArgumentError(f"nn.{type(self).__name__}: output_size {shown(output_size)}, expected {self._rank} numbers")
    self.output_size = tuple(None if n is None else count(type(self).__name__, "output_size", n) for n in given)

  def _pooled(self, x: Tensor) -> Any:
    """Part i of n of s elements goes from i·s // n to the next whole number of (i + 1)·s / n. One dimension after the other:
    means of means, since all parts of the others are whole."""
    batched_or_not(type(self).__name__, x, self._rank)
    for d, want in zip(range(-self._rank, 0), self.output_size):
      s = x.shape[d]
      if want is None or want == s: continue
      if want == 1: x = getattr(x, self._how)(axis=d, keepdim=True)
      elif s % want == 0: x = getattr(x.unflatten(d, (want, s // want)), self._how)(axis=d)
      else:
        ends = [(i * s // want, -(-(i + 1) * s // want)) for i in range(want)]
        parts: list[Any] = [getattr(x.narrow(d, b, e - b), self._how)(axis=d, keepdim=True) for b, e in ends]
        x = parts[0].cat(*parts[1:], dim=d)
    return x


@checked
class AdaptiveAvgPool2d(_Adaptive):
  """The mean of as many windows as give ``output_size`` (None: the input's size): ``(.., h, w) -> (.., *output_size)``."""
  def __init__(self, output_size: Any): self._into(output_size)
  def __call__(self, x: Tensor) -> Tensor:
    """The means. Raises ShapeError."""
    return self._pooled(x)


class AdaptiveAvgPool1d(AdaptiveAvgPool2d):
  """The same for ``(.., w)``."""
  _rank = 1


class AdaptiveAvgPool3d(AdaptiveAvgPool2d):
  """The same for ``(.., d, h, w)``."""
  _rank = 3


@checked
class AdaptiveMaxPool2d(_Adaptive):
  """The greatest of as many windows as give ``output_size`` (None: the input's size): ``(.., h, w) -> (.., *output_size)``; with
  ``return_indices`` also which element of the flattened ``h, w`` each is."""
  _how = "max"

  def __init__(self, output_size: Any, return_indices: bool = False):
    self._into(output_size)
    self.return_indices = return_indices

  def __call__(self, x: Tensor) -> Any:
    """The greatest elements, or with ``return_indices`` ``(values, indices)``. Raises ShapeError."""
    if not self.return_indices: return self._pooled(x)
    batched_or_not(type(self).__name__, x, self._rank)
    return getattr(x, f"adaptive_max_pool{self._rank}d")(self.output_size, True)


class AdaptiveMaxPool1d(AdaptiveMaxPool2d):
  """The same for ``(.., w)``."""
  _rank = 1


class AdaptiveMaxPool3d(AdaptiveMaxPool2d):
  """The same for ``(.., d, h, w)``."""
  _rank = 3


@checked
class Upsample(Module):
  """``(n, c, *spatial)`` to ``size``, or by ``scale_factor``, with ``mode`` nearest, linear, bilinear, bicubic or trilinear: what
  ``Tensor.interpolate`` does with these. ``recompute_scale_factor`` says that the factor is the sizes' ratio."""
  _said = "size scale_factor mode align_corners"

  def __init__(self, size: Ints | None = None, scale_factor: Scale = None, mode: str = "nearest",
               align_corners: bool | None = None, recompute_scale_factor: bool | None = None):
    if (size is None) == (scale_factor is None): raise ArgumentError("nn.Upsample: give size or scale_factor, one of them")
    self.size, self.scale_factor, self.mode, self.align_corners = size, scale_factor, mode, align_corners
    self.recompute_scale_factor = recompute_scale_factor

  def __call__(self, x: Tensor) -> Tensor:
    """The resampled input. Raises ShapeError, ArgumentError."""
    from .functional import interpolate
    again = self.recompute_scale_factor and self.size is None
    return interpolate(x, self.size, self.scale_factor, self.mode, self.align_corners, again)


@checked
class UpsamplingNearest2d(Upsample):
  """:class:`Upsample` with mode nearest."""
  _said = "size scale_factor"
  def __init__(self, size: Ints | None = None, scale_factor: Scale = None): super().__init__(size, scale_factor)


@checked
class UpsamplingBilinear2d(Upsample):
  """:class:`Upsample` with mode bilinear, whose outermost elements are the input's (``align_corners``)."""
  _said = "size scale_factor"
  def __init__(self, size: Ints | None = None, scale_factor: Scale = None):
    super().__init__(size, scale_factor, "bilinear", True)
