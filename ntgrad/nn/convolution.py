"""Convolutions."""
from __future__ import annotations

import math

from ntgrad.checks import Ints, checked
from ntgrad.codegen.errors import ArgumentError, ShapeError
from ntgrad.nn.common import ints, size
from ntgrad.tensor import Tensor


@checked
class Conv2d:
  """2-d convolution (cross-correlation): ``(n, in_channels, h, w) -> (n, out_channels, h', w')``.

  ``weight`` is (out_channels, in_channels / groups, *kernel_size), ``bias`` (out_channels,) or None, both from U(-k, k) with
  k = 1/√(in_channels / groups · kernel elements). ``padding`` takes a number, one a dimension, or "same" (stride 1).
  """
  _room = "nn."
  _rank = 2

  def __init__(self, in_channels: int, out_channels: int, kernel_size: Ints, stride: Ints = 1, padding: Ints | str = 0,
               dilation: Ints = 1, groups: int = 1, bias: bool = True):
    name, rank = type(self).__name__, self._rank
    for what, n in (("in_channels", in_channels), ("out_channels", out_channels), ("groups", groups)): size(name, what, n)
    if in_channels % groups or out_channels % groups:
      raise ArgumentError(f"nn.{name}: {in_channels} channels in and {out_channels} out cannot be divided into {groups} groups")
    self.kernel_size = ints(name, "kernel_size", kernel_size, rank, 1)
    self.stride, self.dilation = ints(name, "stride", stride, rank, 1), ints(name, "dilation", dilation, rank, 1)
    self.in_channels, self.groups = in_channels, groups
    self.padding: tuple[int, ...]
    if isinstance(padding, str):
      if padding != "same" or self.stride != (1,) * rank:
        raise ArgumentError(f"nn.{name}: padding {padding!r} with stride {self.stride}; give numbers, or 'same' with stride 1")
      # (left, right, top, bottom), the last dimension first; an even kernel pads one more after than before
      total = [d * (k - 1) for d, k in zip(self.dilation[::-1], self.kernel_size[::-1])]
      self.padding = tuple(p for t in total for p in (t // 2, t - t // 2))
    else:
      self.padding = ints(name, "padding", padding, rank, 0)
    bound = 1 / math.sqrt(in_channels // groups * math.prod(self.kernel_size))
    self.weight = Tensor.uniform(
      out_channels, in_channels // groups, *self.kernel_size, low=-bound, high=bound, requires_grad=True
    )
    self.bias: Tensor | None = Tensor.uniform(out_channels, low=-bound, high=bound, requires_grad=True) if bias else None

  def __call__(self, x: Tensor) -> Tensor:
    """``(n, in_channels, *spatial) -> (n, out_channels, *spatial')``. Raises ShapeError for another rank or number of
    channels."""
    if x.ndim != self._rank + 2 or x.shape[1] != self.in_channels:
      spatial = ", ".join("hw"[:self._rank])
      raise ShapeError(f"nn.{type(self).__name__}: input of shape {tuple(x.shape)}, expected (n, {self.in_channels}, {spatial})")
    return x.conv2d(self.weight, self.bias, groups=self.groups, stride=self.stride, dilation=self.dilation, padding=self.padding)


@checked
class Conv1d(Conv2d):
  """1-d convolution: ``(n, in_channels, w) -> (n, out_channels, w')``. See :class:`Conv2d`."""
  _rank = 1


__all__ = ["Conv1d", "Conv2d"]
