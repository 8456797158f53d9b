"""Layers that only move elements: other shapes, padding."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, dataclass_transform

from ntgrad.codegen.ir import ArgumentError, shown
from ntgrad.graph import Ints, checked
from ntgrad.tensor import Tensor

from .common import batched_or_not
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
  _said = "dim unflattened_size"

  def __init__(self, dim: Any, unflattened_size: Sequence[int]): self.dim, self.unflattened_size = dim, unflattened_size
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


# ---- padding

@dataclass_transform()
@layer
class _Pad(Module):
  """``padding`` at both ends of the last ``_rank`` dimensions: one number, or from the last dimension on (before, after, ..).
  Classes beneath are layers whose sentence says ``_what`` is there."""
  _rank: ClassVar[int] = 0
  _filled: ClassVar[str] = "constant"
  _what: ClassVar[str]
  padding: Ints

  def __init_subclass__(cls, **kwargs: Any) -> None:
    super().__init_subclass__(**kwargs)
    cls.__doc__ = f"Pads the last {('', 'dimension', 'two dimensions', 'three dimensions')[cls._rank]} with {cls._what}."
    layer(cls)

  def __post_init__(self) -> None:
    n, given = 2 * self._rank, self.padding
    self.padding = (given,) * n if isinstance(given, int) else tuple(given)
    if len(self.padding) != n:
      raise ArgumentError(f"nn.{type(self).__name__}: padding {shown(given)}; it takes one number, or {n} of them")

  def __call__(self, input: Tensor) -> Tensor:
    """The padded input. Raises ShapeError, ArgumentError."""
    if input.ndim < self._rank or self._filled != "constant": batched_or_not(type(self).__name__, input, self._rank)
    return input.pad(self.padding, self._filled, getattr(self, "value", 0.0))


class _ConstantPad(_Pad):
  value: float | bool
  _what = "``value``"
class ConstantPad1d(_ConstantPad): _rank = 1
class ConstantPad2d(_ConstantPad): _rank = 2
class ConstantPad3d(_ConstantPad): _rank = 3


class _ZeroPad(_Pad):
  _what = "zeros"
class ZeroPad1d(_ZeroPad): _rank = 1
class ZeroPad2d(_ZeroPad): _rank = 2
class ZeroPad3d(_ZeroPad): _rank = 3


class _ReflectionPad(_Pad):
  _filled, _what = "reflect", "what lies beside the edge, mirrored, the edge itself not repeated"
class ReflectionPad1d(_ReflectionPad): _rank = 1
class ReflectionPad2d(_ReflectionPad): _rank = 2
class ReflectionPad3d(_ReflectionPad): _rank = 3


class _ReplicationPad(_Pad):
  _filled, _what = "replicate", "the element at the edge"
class ReplicationPad1d(_ReplicationPad): _rank = 1
class ReplicationPad2d(_ReplicationPad): _rank = 2
class ReplicationPad3d(_ReplicationPad): _rank = 3


class _CircularPad(_Pad):
  _filled, _what = "circular", "what lies at the other end"
class CircularPad1d(_CircularPad): _rank = 1
class CircularPad2d(_CircularPad): _rank = 2
class CircularPad3d(_CircularPad): _rank = 3
