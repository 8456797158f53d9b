"""Pooling and resampling."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ntgrad.codegen.ir.errors import ArgumentError, shown
from ntgrad.graph.checks import Ints, checked
from ntgrad.tensor import Tensor

from .common import batched_or_not, count, ints
from .module import Module

Scale = float | Sequence[float] | None


class _Pool(Module):
  _rank = 2

  def _spatial(self, x: Tensor) -> None: batched_or_not(type(self).__name__, x, self._rank)
  def _windows(self, kernel_size: Ints, stride: Ints | None, padding: Ints, dilation: Ints = 1) -> None:
    name, n = type(self).__name__, self._rank
    self.kernel_size = ints(name, "kernel_size", kernel_size, n, 1)
    self.stride = self.kernel_size if stride is None else ints(name, "stride", stride, n, 1)
    self.padding, self.dilation = ints(name, "padding", padding, n, 0), ints(name, "dilation", dilation, n, 1)


@checked
class MaxPool2d(_Pool):
  """The greatest of each window: ``(n, c, h, w)`` or ``(c, h, w)`` ``-> (.., h', w')``. ``stride`` None is the kernel's size.

  With ``return_indices`` also which element of the flattened ``h, w`` each is, for :class:`MaxUnpool2d`.
  """
  _said = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")

  def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
               return_indices: bool = False, ceil_mode: bool = False):
    self._windows(kernel_size, stride, padding, dilation)
    self.ceil_mode, self.return_indices = ceil_mode, return_indices

  def __call__(self, x: Tensor) -> Any:
    """The greatest of each window, or with ``return_indices`` ``(values, indices)``. Raises ShapeError."""
    self._spatial(x)
    return x.max_pool2d(self.kernel_size, self.stride, self.dilation, self.padding, self.ceil_mode, self.return_indices)


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
               count_include_pad: bool = True, divisor_override: int | None = None):
    self._windows(kernel_size, stride, padding)
    self.ceil_mode, self.count_include_pad, self.divisor_override = ceil_mode, count_include_pad, divisor_override

  def __call__(self, x: Tensor) -> Tensor:
    """The mean of each window. Raises ShapeError."""
    self._spatial(x)
    return x.avg_pool2d(self.kernel_size, self.stride, 1, self.padding, self.ceil_mode, self.count_include_pad,
                        self.divisor_override)


@checked
class AvgPool1d(AvgPool2d):
  """The mean of each window of ``(n, c, w)`` or ``(c, w)``. See :class:`AvgPool2d`."""
  _rank = 1


@checked
class AvgPool3d(AvgPool2d):
  """The mean of each window of ``(n, c, d, h, w)`` or ``(c, d, h, w)``. See :class:`AvgPool2d`."""
  _rank = 3


@checked
class LPPool2d(_Pool):
  """(Σ x^p)^(1/p) of each window, p being ``norm_type``: ``(n, c, h, w)`` or ``(c, h, w)`` ``-> (.., h', w')``."""
  _said = ("norm_type", "kernel_size", "stride", "ceil_mode")

  def __init__(self, norm_type: float, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False):
    self._windows(kernel_size, stride, 0)
    self.norm_type, self.ceil_mode = norm_type, ceil_mode

  def __call__(self, x: Tensor) -> Tensor:
    """The norm of each window. Raises ShapeError, ArgumentError."""
    self._spatial(x)
    fn: Any = getattr(x, f"lp_pool{self._rank}d")
    out: Tensor = fn(self.norm_type, self.kernel_size, self.stride, self.ceil_mode)
    return out


@checked
class LPPool1d(LPPool2d):
  """The same of ``(n, c, w)`` or ``(c, w)``. See :class:`LPPool2d`."""
  _rank = 1


@checked
class LPPool3d(LPPool2d):
  """The same of ``(n, c, d, h, w)`` or ``(c, d, h, w)``. See :class:`LPPool2d`."""
  _rank = 3


@checked
class FractionalMaxPool2d(_Pool):
  """The greatest of windows that lie at random, as many as ``output_size`` or as ``output_ratio`` of each size
  (https://arxiv.org/abs/1412.6071): ``(n, c, h, w)`` or ``(c, h, w)`` ``-> (.., h', w')``."""
  _said = ("kernel_size", "output_size", "output_ratio")
  _buffers = frozenset({"_random_samples"})

  def __init__(self, kernel_size: Ints, output_size: Ints | None = None, output_ratio: float | Sequence[float] | None = None,
               return_indices: bool = False, _random_samples: Tensor | None = None):
    name = type(self).__name__
    self.kernel_size = ints(name, "kernel_size", kernel_size, self._rank, 1)
    if (output_size is None) is (output_ratio is None):
      raise ArgumentError(f"nn.{name}: give output_size or output_ratio, one of them")
    self.output_size, self.output_ratio, self.return_indices = output_size, output_ratio, return_indices
    self._random_samples = _random_samples

  def __call__(self, x: Tensor) -> Any:
    """The greatest of each window, or with ``return_indices`` ``(values, indices)``. Raises ShapeError, ArgumentError."""
    self._spatial(x)
    fn: Any = getattr(x, f"fractional_max_pool{self._rank}d")
    return fn(self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples)


@checked
class FractionalMaxPool3d(FractionalMaxPool2d):
  """The same of ``(n, c, d, h, w)`` or ``(c, d, h, w)``. See :class:`FractionalMaxPool2d`."""
  _rank = 3


@checked
class MaxUnpool2d(_Pool):
  """Puts the values of a max pooling back where its indices say, with zeros elsewhere: ``(n, c, h', w')`` or ``(c, h', w')``
  ``-> (.., h, w)``. ``stride`` None is the kernel's size."""
  _said = ("kernel_size", "stride", "padding")

  def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0):
    self._windows(kernel_size, stride, padding)

  def __call__(self, x: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
    """The values in place; ``indices`` are what ``return_indices=True`` gave. Raises ShapeError, DTypeError."""
    self._spatial(x)
    fn: Any = getattr(x, f"max_unpool{self._rank}d")
    out: Tensor = fn(indices, self.kernel_size, self.stride, self.padding, output_size)
    return out


@checked
class MaxUnpool1d(MaxUnpool2d):
  """The same of ``(n, c, w')`` or ``(c, w')``. See :class:`MaxUnpool2d`."""
  _rank = 1


@checked
class MaxUnpool3d(MaxUnpool2d):
  """The same of ``(n, c, d', h', w')`` or ``(c, d', h', w')``. See :class:`MaxUnpool2d`."""
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
  """The greatest of as many windows as give ``output_size`` (None: the input's size): ``(.., h, w) -> (.., *output_size)``; with
  ``return_indices`` also which element of the flattened ``h, w`` each is."""
  _how = "max"

  def __init__(self, output_size: Any, return_indices: bool = False):
    self._into(output_size)
    self.return_indices = return_indices

  def __call__(self, x: Tensor) -> Any:
    """The greatest elements, or with ``return_indices`` ``(values, indices)``. Raises ShapeError."""
    if not self.return_indices: return self._pooled(x)
    self._spatial(x)
    return getattr(x, f"adaptive_max_pool{self._rank}d")(self.output_size, True)


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
  ``Tensor.interpolate`` does with these. ``recompute_scale_factor`` says that the factor is the sizes' ratio."""
  _said: ClassVar[tuple[str, ...]] = ("size", "scale_factor", "mode", "align_corners")

  def __init__(self, size: Ints | None = None, scale_factor: Scale = None, mode: str = "nearest",
               align_corners: bool | None = None, recompute_scale_factor: bool | None = None):
    if (size is None) == (scale_factor is None): raise ArgumentError("nn.Upsample: give size or scale_factor, one of them")
    self.size, self.scale_factor, self.mode, self.align_corners = size, scale_factor, mode, align_corners
    self.recompute_scale_factor = recompute_scale_factor

  def __call__(self, x: Tensor) -> Tensor:
    """The resampled input. Raises ShapeError, ArgumentError."""
    given = {k: v for k in Upsample._said if (v := getattr(self, k)) is not None}
    if self.recompute_scale_factor and (scale := given.pop("scale_factor", None)) is not None:
      scales = scale if isinstance(scale, (tuple, list)) else [scale] * (x.ndim - 2)
      given["size"] = tuple([int(n * s) for n, s in zip(x.shape[2:], scales)])
    return x.interpolate(**given)


@checked
class UpsamplingNearest2d(Upsample):
  """:class:`Upsample` with mode nearest."""
  _said: ClassVar[tuple[str, ...]] = ("size", "scale_factor")
  def __init__(self, size: Ints | None = None, scale_factor: Scale = None): super().__init__(size, scale_factor)


@checked
class UpsamplingBilinear2d(Upsample):
  """:class:`Upsample` with mode bilinear, whose outermost elements are the input's (``align_corners``)."""
  _said: ClassVar[tuple[str, ...]] = ("size", "scale_factor")
  def __init__(self, size: Ints | None = None, scale_factor: Scale = None):
    super().__init__(size, scale_factor, "bilinear", True)


__all__ = ["AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
           "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "FractionalMaxPool2d", "FractionalMaxPool3d", "LPPool1d",
           "LPPool2d", "LPPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "Upsample",
           "UpsamplingBilinear2d", "UpsamplingNearest2d"]
