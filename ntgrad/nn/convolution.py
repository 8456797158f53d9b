"""Convolutions and their adjoints, over one, two and three dimensions."""
from __future__ import annotations

import math

from ntgrad.codegen.ir import ArgumentError, ShapeError
from ntgrad.graph import Ints
from ntgrad.tensor import Tensor
from ntgrad.tensor.convolution import named_paddings

from .common import batched_or_not, ints, leaf, one_of, size
from .module import Module, placed


class _Convolution(Module):
  _rank = 2

  def _sizes(self, in_channels: int, out_channels: int, kernel_size: Ints, stride: Ints, dilation: Ints, groups: int) -> None:
    name, rank = type(self).__name__, self._rank
    if rank == 2 and isinstance(kernel_size, (tuple, list)) and 0 < len(kernel_size) < 4: rank = self._rank = len(kernel_size)
    for what, n in ("in_channels", in_channels), ("out_channels", out_channels), ("groups", groups): size(name, what, n)
    if in_channels % groups or out_channels % groups:
      raise ArgumentError(f"nn.{name}: {in_channels} channels in and {out_channels} out cannot be divided into {groups} groups")
    self.kernel_size = ints(name, "kernel_size", kernel_size, rank, 1)
    self.stride, self.dilation = ints(name, "stride", stride, rank, 1), ints(name, "dilation", dilation, rank, 1)
    self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups

  def _make(self, first: int, second: int, bias: bool) -> None:
    bound = 1 / math.sqrt(second * math.prod(self.kernel_size))
    self.weight = leaf(first, second, *self.kernel_size, bound=bound)
    self.bias: Tensor | None = leaf(self.out_channels, bound=bound) if bias else None

  def extra_repr(self) -> str:
    """The arguments, without those that are as usual."""
    usual = {"padding": (0,) * self._rank, "output_padding": (0,) * self._rank, "dilation": (1,) * self._rank, "groups": 1,
             "padding_mode": "zeros"}
    said = [f"{k}={v!r}" for k, least in usual.items() if (v := getattr(self, k, least)) != least]
    if self.bias is None: said.append("bias=False")
    return ", ".join([f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}", *said])


@placed
class Conv2d(_Convolution):
  """2-d convolution (cross-correlation): ``(n, in_channels, h, w) -> (n, out_channels, h', w')``, or both without n. A tuple of
  one size or three for the kernel makes it a 1-d or a 3-d one.

  ``weight`` is (out_channels, in_channels / groups, *kernel_size), ``bias`` (out_channels,) or None, both from U(-k, k) with
  k = 1/√(in_channels / groups · kernel elements). ``padding`` takes a number, one a dimension, "same" (stride 1) or "valid"
  (none), and ``padding_mode`` what is there: "zeros", "reflect", "replicate" or "circular"."""

  def __init__(self, in_channels: int, out_channels: int, kernel_size: Ints, stride: Ints = 1, padding: Ints | str = 0,
               dilation: Ints = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros"):
    self._sizes(in_channels, out_channels, kernel_size, stride, dilation, groups)
    name, rank = type(self).__name__, self._rank
    if padding == "valid": padding = 0
    if isinstance(padding, str):
      pairs = named_paddings(f"nn.{name}", padding, self.kernel_size, self.stride, self.dilation)
      self.padding = tuple(p for pair in reversed(pairs) for p in pair)   # (left, right, top, bottom): the last dimension first
    else: self.padding = ints(name, "padding", padding, rank, 0)
    self.padding_mode = one_of(f"nn.{name}", "padding_mode", padding_mode, "zeros", "reflect", "replicate", "circular")
    self._make(out_channels, in_channels // groups, bias)

  def __call__(self, x: Tensor) -> Tensor:
    """``(n, in_channels, *spatial) -> (n, out_channels, *spatial')``. Raises ShapeError for another rank or channel count."""
    batched_or_not(type(self).__name__, x, self._rank, self.in_channels)
    padding = self.padding
    if self.padding_mode != "zeros":
      # a flat padding has the last dimension first
      x = x.pad(padding if len(padding) > self._rank else tuple(p for n in padding[::-1] for p in (n, n)), mode=self.padding_mode)
      padding = (0,) * self._rank
    return x.conv2d(self.weight, self.bias, groups=self.groups, stride=self.stride, dilation=self.dilation, padding=padding)


class Conv1d(Conv2d):
  """1-d convolution: ``(n, in_channels, w) -> (n, out_channels, w')``. See :class:`Conv2d`."""
  _rank = 1


class Conv3d(Conv2d):
  """3-d convolution: ``(n, in_channels, d, h, w) -> (n, out_channels, d', h', w')``. See :class:`Conv2d`."""
  _rank = 3


@placed
class ConvTranspose2d(_Convolution):
  """The adjoint of a 2-d convolution, which makes larger what that makes smaller:
  ``(n, in_channels, h, w) -> (n, out_channels, h', w')``, h' = (h - 1)·stride - 2·padding + dilation·(kernel - 1) +
  output_padding + 1.

  ``weight`` is (in_channels, out_channels / groups, *kernel_size), ``bias`` (out_channels,) or None, both from U(-k, k) with
  k = 1/√(out_channels / groups · kernel elements). ``output_padding`` is less than the stride or the dilation; a call with
  ``output_size`` finds it. ``padding_mode`` is "zeros", as PyTorch has it."""

  def __init__(self, in_channels: int, out_channels: int, kernel_size: Ints, stride: Ints = 1, padding: Ints = 0,
               output_padding: Ints = 0, groups: int = 1, bias: bool = True, dilation: Ints = 1, padding_mode: str = "zeros"):
    name = type(self).__name__
    if padding_mode != "zeros": raise ArgumentError(f"nn.{name}: padding_mode {padding_mode!r}; it takes 'zeros' alone")
    self._sizes(in_channels, out_channels, kernel_size, stride, dilation, groups)
    rank = self._rank
    self.padding = ints(name, "padding", padding, rank, 0)
    self.output_padding = ints(name, "output_padding", output_padding, rank, 0)
    if not all(e < max(s, d) for e, s, d in zip(self.output_padding, self.stride, self.dilation)):
      raise ArgumentError(f"nn.{name}: output_padding is {self.output_padding}, it must be less than the stride {self.stride} "
                          f"or the dilation {self.dilation}")
    self._make(in_channels, out_channels // groups, bias)

  def __call__(self, x: Tensor, output_size: Ints | None = None) -> Tensor:
    """``(n, in_channels, *spatial) -> (n, out_channels, *spatial')``, or those of ``output_size``, whose last dimensions count.
    Raises ShapeError for another rank or number of channels, and where no output is left or ``output_size`` cannot be."""
    batched_or_not(type(self).__name__, x, self._rank, self.in_channels)
    name, extra = type(self).__name__, self.output_padding
    least = [(s - 1) * st - 2 * p + d * (k - 1) + 1 for s, st, p, d, k in zip(
      x.shape[-self._rank:], self.stride, self.padding, self.dilation, self.kernel_size)]
    if output_size is not None:
      want = ints(name, "output_size", output_size if isinstance(output_size, int) else tuple(output_size)[-self._rank:],
                  self._rank, 1)
      extra = tuple(n - m for n, m in zip(want, least))
      if not all(0 <= e < max(s, d) for e, s, d in zip(extra, self.stride, self.dilation)):
        raise ShapeError(f"nn.{name}: output_size {want} from an input of shape {tuple(x.shape)}; it may be from {tuple(least)} "
                         f"to {tuple(n + max(s, d) - 1 for n, s, d in zip(least, self.stride, self.dilation))}")
    out = tuple(n + e for n, e in zip(least, extra))
    if min(out) < 1: raise ShapeError(f"nn.{name}: input of shape {tuple(x.shape)} leaves an output of {out}")
    return x.conv_transpose2d(self.weight, self.bias, groups=self.groups, stride=self.stride, dilation=self.dilation,
                              padding=self.padding, output_padding=extra)


class ConvTranspose1d(ConvTranspose2d):
  """The adjoint of a 1-d convolution: ``(n, in_channels, w) -> (n, out_channels, w')``. See :class:`ConvTranspose2d`."""
  _rank = 1


class ConvTranspose3d(ConvTranspose2d):
  """The adjoint of a 3-d convolution: ``(n, in_channels, d, h, w) -> (n, out_channels, d', h', w')``. See
  :class:`ConvTranspose2d`."""
  _rank = 3
