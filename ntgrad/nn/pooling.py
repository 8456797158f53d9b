"""Resampling by layers."""
from __future__ import annotations

from collections.abc import Sequence

from ntgrad.codegen.ir import ArgumentError
from ntgrad.graph import Ints, checked
from ntgrad.tensor import Tensor

from .module import Module

Scale = float | Sequence[float] | None


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
