"""Pooling, resampling, and layers that only move elements."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ntgrad.checks import Ints, checked
from ntgrad.codegen.errors import ArgumentError, ShapeError, shown
from ntgrad.nn.activations import layer
from ntgrad.nn.common import count, ints, size
from ntgrad.nn.module import Module
from ntgrad.tensor import Tensor


class _Pool(Module):
  _rank = 2

  def _spatial(self, x: Tensor) -> None:
    n = self._rank
    if x.ndim not in (n + 1, n + 2):
      dims = ", ".join("dhw"[3 - n:])
      raise ShapeError(f"nn.{type(self).__name__}: input of shape {x.shape}, expected (n, c, {dims}) or (c, {dims})")
  def _windows(self, kernel_size: Ints, stride: Ints | None, padding: Ints, dilation: Ints = 1) -> None:
    name, n = type(self).__name__, self._rank
    self.kernel_size = ints(name, "kernel_size", kernel_size, n, 1)
    self.stride = self.kernel_size if stride is None else ints(name, "stride", stride, n, 1)
    self.padding, self.dilation = ints(name, "padding", padding, n, 0), ints(name, "dilation", dilation, n, 1)


@checked
class MaxPool2d(_Pool):
  """The greatest of each window: ``(n, c, h, w)`` or ``(c, h, w)`` ``-> (.., h', w')``. ``stride`` None is the kernel's size."""
  _said = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")

  def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
               ceil_mode: bool = False):
    self._windows(kernel_size, stride, padding, dilation)
    self.ceil_mode = ceil_mode

  def __call__(self, x: Tensor) -> Tensor:
    """The greatest of each window. Raises ShapeError."""
    self._spatial(x)
    return x.max_pool2d(self.kernel_size, self.stride, self.dilation, self.padding, self.ceil_mode)


@checked
class MaxPool1d(MaxPool2d):
  """The greatest of each window of ``(n, c, w)`` or ``(c, w)``. See :class:`MaxPool2d`."""
  _rank = 1


@checked
class MaxPool3d(MaxPool2d):
  """The greatest of each window of ``(n, c, d, h, w)`` or ``(c, d, h, w)``. See :class:`MaxPool2d`."""
  _rank = 3


@checked
class AvgPool2d(_Pool):
  """The mean of each window: ``(n, c, h, w)`` or ``(c, h, w)`` ``-> (.., h', w')``. Padding counts as zeros unless
  ``count_include_pad`` is False."""
  _said = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")

  def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, ceil_mode: bool = False,
               count_include_pad: bool = True):
    self._windows(kernel_size, stride, padding)
    self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

  def __call__(self, x: Tensor) -> Tensor:
    """The mean of each window. Raises ShapeError."""
    self._spatial(x)
    return x.avg_pool2d(self.kernel_size, self.stride, 1, self.padding, self.ceil_mode, self.count_include_pad)


@checked
class AvgPool1d(AvgPool2d):
  """The mean of each window of ``(n, c, w)`` or ``(c, w)``. See :class:`AvgPool2d`."""
  _rank = 1


@checked
class AvgPool3d(AvgPool2d):
  """The mean of each window of ``(n, c, d, h, w)`` or ``(c, d, h, w)``. See :class:`AvgPool2d`."""
  _rank = 3


class _Adaptive(_Pool):
  _said = ("output_size",)
  _how = "mean"

  def _into(self, output_size: Any) -> None:
    given = tuple(output_size) if isinstance(output_size, (list, tuple)) else (output_size,) * self._rank
    if len(given) != self._rank:
      raise ArgumentError(f"nn.{type(self).__name__}: output_size {shown(output_size)}, expected {self._rank} numbers")
    self.output_size = tuple([None if n is None else count(type(self).__name__, "output_size", n) for n in given])

  def _pooled(self, x: Tensor) -> Any:
    """Part i of n of s elements goes from i·s // n to the next whole number of (i + 1)·s / n. One dimension after the other:
    means of means, since all parts of the others are whole."""
    self._spatial(x)
    for d, want in zip(range(-self._rank, 0), self.output_size):
      s = x.shape[d]
      if want is None or want == s: continue
      if want == 1: x = getattr(x, self._how)(d, keepdim=True)
      elif s % want == 0: x = getattr(x.unflatten(d, (want, s // want)), self._how)(d)
      else:
        dim = x.ndim + d
        ends = [(i * s // want, -(-(i + 1) * s // want)) for i in range(want)]
        part = [tuple((b, e) if k == dim else (0, n) for k, n in enumerate(x.shape)) for b, e in ends]
        parts: list[Any] = [getattr(x.shrink(p), self._how)(d, keepdim=True) for p in part]
        x = parts[0].cat(*parts[1:], dim=dim)
    return x


@checked
class AdaptiveAvgPool2d(_Adaptive):
  """The mean of as many windows as give ``output_size`` (None: the input's size): ``(.., h, w) -> (.., *output_size)``."""
  def __init__(self, output_size: Any): self._into(output_size)
  def __call__(self, x: Tensor) -> Tensor:
    """The means. Raises ShapeError."""
    return self._pooled(x)


@checked
class AdaptiveAvgPool1d(AdaptiveAvgPool2d):
  """The same for ``(.., w)``."""
  _rank = 1


@checked
class AdaptiveAvgPool3d(AdaptiveAvgPool2d):
  """The same for ``(.., d, h, w)``."""
  _rank = 3


@checked
class AdaptiveMaxPool2d(_Adaptive):
  """The greatest of as many windows as give ``output_size`` (None: the input's size): ``(.., h, w) -> (.., *output_size)``."""
  _how = "max"
  def __init__(self, output_size: Any): self._into(output_size)
  def __call__(self, x: Tensor) -> Tensor:
    """The greatest elements. Raises ShapeError."""
    return self._pooled(x)


@checked
class AdaptiveMaxPool1d(AdaptiveMaxPool2d):
  """The same for ``(.., w)``."""
  _rank = 1


@checked
class AdaptiveMaxPool3d(AdaptiveMaxPool2d):
  """The same for ``(.., d, h, w)``."""
  _rank = 3


@checked
class Upsample(Module):
  """``(n, c, *spatial)`` to ``size``, or by ``scale_factor``, with ``mode`` nearest, linear, bilinear, bicubic or trilinear: what
  ``Tensor.interpolate`` does with these."""
  _said = ("size", "scale_factor", "mode", "align_corners")

  def __init__(self, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None):
    if (size is None) == (scale_factor is None): raise ArgumentError("nn.Upsample: give size or scale_factor, one of them")
    self.size, self.scale_factor, self.mode, self.align_corners = size, scale_factor, mode, align_corners

  def __call__(self, x: Tensor) -> Tensor:
    """The resampled input. Raises ShapeError, ArgumentError."""
    given = {k: v for k in self._said if (v := getattr(self, k)) is not None}
    return x.interpolate(**given)


@layer
class PixelShuffle(Module):
  """``(.., c·r², h, w) -> (.., c, h·r, w·r)`` (https://arxiv.org/abs/1609.05158)."""
  upscale_factor: int

  def __post_init__(self) -> None: size("PixelShuffle", "upscale_factor", self.upscale_factor)
  def __call__(self, x: Tensor) -> Tensor:
    """Channels as pixels. Raises ShapeError for channels that r² does not divide."""
    r = self.upscale_factor
    if x.ndim < 3 or x.shape[-3] % (r * r):
      raise ShapeError(f"nn.PixelShuffle: input of shape {x.shape}, expected (.., c, h, w), c a multiple of {r * r}")
    *n, c, h, w = x.shape
    k = len(n)
    x = x.reshape(*n, c // (r * r), r, r, h, w).permute(*range(k), k, k + 3, k + 1, k + 4, k + 2)
    return x.reshape(*n, c // (r * r), h * r, w * r)


@layer
class PixelUnshuffle(Module):
  """``(.., c, h·r, w·r) -> (.., c·r², h, w)``: what undoes PixelShuffle."""
  downscale_factor: int

  def __post_init__(self) -> None: size("PixelUnshuffle", "downscale_factor", self.downscale_factor)
  def __call__(self, x: Tensor) -> Tensor:
    """Pixels as channels. Raises ShapeError for sizes that r does not divide."""
    r = self.downscale_factor
    if x.ndim < 3 or x.shape[-1] % r or x.shape[-2] % r:
      raise ShapeError(f"nn.PixelUnshuffle: input of shape {x.shape}, expected (.., c, h, w), h and w multiples of {r}")
    *n, c, h, w = x.shape
    k = len(n)
    x = x.reshape(*n, c, h // r, r, w // r, r).permute(*range(k), k, k + 2, k + 4, k + 1, k + 3)
    return x.reshape(*n, c * r * r, h // r, w // r)


@layer
class Flatten(Module):
  """Dimensions from start_dim to end_dim as one."""
  start_dim: Any = 1
  end_dim: Any = -1

  def __call__(self, x: Tensor) -> Tensor:
    """A view of the input. Raises AxisError."""
    return x.flatten(self.start_dim, self.end_dim)


@checked
class Unflatten(Module):
  """One dimension as several: ``nn.Unflatten(1, (2, 3))``."""
  _said = ("dim", "unflattened_size")

  def __init__(self, dim: Any, unflattened_size: Sequence[int]): self.dim, self.unflattened_size = dim, tuple(unflattened_size)
  def __call__(self, x: Tensor) -> Tensor:
    """A view of the input. Raises AxisError, ShapeError."""
    return x.unflatten(self.dim, self.unflattened_size)


@checked
class Identity(Module):
  """What goes in comes out. Arguments are taken and not used."""
  def __init__(self, *args: Any, **kwargs: Any): pass
  def __call__(self, x: Any) -> Any:
    """The input itself."""
    return x


__all__ = ["AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
           "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "Flatten", "Identity", "MaxPool1d", "MaxPool2d",
           "MaxPool3d", "PixelShuffle", "PixelUnshuffle", "Unflatten", "Upsample"]
