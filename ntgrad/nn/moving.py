"""Layers that only move elements: other shapes, padding, windows as columns, pixels as channels."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ntgrad.codegen.ir.errors import ArgumentError, ShapeError, shown
from ntgrad.graph.checks import Ints, checked
from ntgrad.tensor import Tensor

from .common import batched_or_not, size
from .made import layer
from .module import Module


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
    return x.pixel_shuffle(r)


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
    return x.pixel_unshuffle(r)


@layer
class Unfold(Module):
  """Windows as columns: ``(n, c, *spatial) -> (n, c · kernel elements, windows)``; see ``Tensor.im2col``."""
  kernel_size: Ints
  dilation: Ints = 1
  padding: Ints = 0
  stride: Ints = 1

  def __call__(self, input: Tensor) -> Tensor:
    """The windows. Raises ShapeError, ArgumentError."""
    return input.im2col(self.kernel_size, self.dilation, self.padding, self.stride)


@layer
class Fold(Module):
  """The adjoint of :class:`Unfold`: ``(n, c · kernel elements, windows) -> (n, c, *output_size)``; see ``Tensor.col2im``."""
  output_size: Ints
  kernel_size: Ints
  dilation: Ints = 1
  padding: Ints = 0
  stride: Ints = 1

  def __call__(self, input: Tensor) -> Tensor:
    """Sums where windows overlap. Raises ShapeError, ArgumentError."""
    return input.col2im(self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)


# ---- padding

class _Pad(Module):
  """``padding`` at both ends of the last ``_rank`` dimensions: one number, or from the last dimension on (before, after, ..)."""
  _rank: ClassVar[int]
  _filled: ClassVar[str] = "constant"
  padding: Any

  def __post_init__(self) -> None:
    n, given = 2 * self._rank, self.padding
    self.padding = (given,) * n if isinstance(given, int) else tuple(given)
    if len(self.padding) != n:
      raise ArgumentError(f"nn.{type(self).__name__}: padding {shown(given)}; it takes one number, or {n} of them")

  def __call__(self, input: Tensor) -> Tensor:
    """The padded input. Raises ShapeError, ArgumentError."""
    if input.ndim < self._rank or self._filled != "constant": batched_or_not(type(self).__name__, input, self._rank)
    return input.pad(self.padding, self._filled, getattr(self, "value", 0.0))


@layer
class ConstantPad1d(_Pad):
  """Pads the last dimension with ``value``."""
  padding: Ints
  value: float | bool
  _rank = 1


@layer
class ConstantPad2d(_Pad):
  """Pads the last two dimensions with ``value``."""
  padding: Ints
  value: float | bool
  _rank = 2


@layer
class ConstantPad3d(_Pad):
  """Pads the last three dimensions with ``value``."""
  padding: Ints
  value: float | bool
  _rank = 3


@layer
class ZeroPad1d(_Pad):
  """Pads the last dimension with zeros."""
  padding: Ints
  _rank = 1


@layer
class ZeroPad2d(_Pad):
  """Pads the last two dimensions with zeros."""
  padding: Ints
  _rank = 2


@layer
class ZeroPad3d(_Pad):
  """Pads the last three dimensions with zeros."""
  padding: Ints
  _rank = 3


@layer
class ReflectionPad1d(_Pad):
  """Pads the last dimension with what lies beside the edge, mirrored, the edge itself not repeated."""
  padding: Ints
  _rank = 1
  _filled = "reflect"


@layer
class ReflectionPad2d(_Pad):
  """Pads the last two dimensions with what lies beside the edge, mirrored, the edge itself not repeated."""
  padding: Ints
  _rank = 2
  _filled = "reflect"


@layer
class ReflectionPad3d(_Pad):
  """Pads the last three dimensions with what lies beside the edge, mirrored, the edge itself not repeated."""
  padding: Ints
  _rank = 3
  _filled = "reflect"


@layer
class ReplicationPad1d(_Pad):
  """Pads the last dimension with the element at the edge."""
  padding: Ints
  _rank = 1
  _filled = "replicate"


@layer
class ReplicationPad2d(_Pad):
  """Pads the last two dimensions with the element at the edge."""
  padding: Ints
  _rank = 2
  _filled = "replicate"


@layer
class ReplicationPad3d(_Pad):
  """Pads the last three dimensions with the element at the edge."""
  padding: Ints
  _rank = 3
  _filled = "replicate"


@layer
class CircularPad1d(_Pad):
  """Pads the last dimension with what lies at the other end."""
  padding: Ints
  _rank = 1
  _filled = "circular"


@layer
class CircularPad2d(_Pad):
  """Pads the last two dimensions with what lies at the other end."""
  padding: Ints
  _rank = 2
  _filled = "circular"


@layer
class CircularPad3d(_Pad):
  """Pads the last three dimensions with what lies at the other end."""
  padding: Ints
  _rank = 3
  _filled = "circular"


__all__ = ["CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
           "Flatten", "Fold", "Identity", "PixelShuffle", "PixelUnshuffle", "ReflectionPad1d", "ReflectionPad2d",
           "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d", "Unflatten", "Unfold", "ZeroPad1d",
           "ZeroPad2d", "ZeroPad3d"]
