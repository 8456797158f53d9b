"""Pooling: the greatest, the mean or a norm of windows, and what takes the greatest back."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ntgrad.graph.checks import Ints, Operand, checked
from ntgrad.tensor import Tensor
from ntgrad.tensor.convolution import numbers

Sizes = int | None | Sequence[int | None]


# ---- the greatest
def _max_pool(name: str, n: int, x: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool,
              return_indices: bool) -> Any:
  padding = numbers(name, "padding", padding, n, 0)
  return x._max_pool(name, n, kernel_size, stride, dilation, padding, ceil_mode, return_indices)


@checked
def max_pool1d(input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
               ceil_mode: bool = False, return_indices: bool = False) -> Any:
  """The greatest of each window: (.., l) -> (.., l'); see :func:`max_pool2d`."""
  return _max_pool("max_pool1d", 1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@checked
def max_pool2d(input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
               ceil_mode: bool = False, return_indices: bool = False) -> Any:
  """The greatest of each window: (.., h, w) -> (.., h', w'); a stride of None is the kernel's size.

  With ``return_indices`` ``(values, indices)``: which element of the flattened last dims it is, int32. Raises ShapeError,
  ArgumentError.
  """
  return _max_pool("max_pool2d", 2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@checked
def max_pool3d(input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
               ceil_mode: bool = False, return_indices: bool = False) -> Any:
  """The greatest of each window: (.., d, h, w) -> (.., d', h', w'); see :func:`max_pool2d`."""
  return _max_pool("max_pool3d", 3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@checked
def max_pool1d_with_indices(input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
                            ceil_mode: bool = False, return_indices: bool = False) -> Any:
  """:func:`max_pool1d` with indices, whatever ``return_indices`` says. Raises as :func:`max_pool2d`."""
  return _max_pool("max_pool1d_with_indices", 1, input, kernel_size, stride, padding, dilation, ceil_mode, True)


@checked
def max_pool2d_with_indices(input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
                            ceil_mode: bool = False, return_indices: bool = False) -> Any:
  """:func:`max_pool2d` with indices, whatever ``return_indices`` says. Raises as :func:`max_pool2d`."""
  return _max_pool("max_pool2d_with_indices", 2, input, kernel_size, stride, padding, dilation, ceil_mode, True)


@checked
def max_pool3d_with_indices(input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
                            ceil_mode: bool = False, return_indices: bool = False) -> Any:
  """:func:`max_pool3d` with indices, whatever ``return_indices`` says. Raises as :func:`max_pool2d`."""
  return _max_pool("max_pool3d_with_indices", 3, input, kernel_size, stride, padding, dilation, ceil_mode, True)


@checked
def max_unpool1d(input: Tensor, indices: Operand, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
                 output_size: Sequence[int] | None = None) -> Tensor:
  """Values where the indices of a :func:`max_pool1d` say, else zeros: (.., l') -> (.., l). Raises as :func:`max_unpool2d`."""
  return input.max_unpool1d(indices, kernel_size, stride, padding, output_size)


@checked
def max_unpool2d(input: Tensor, indices: Operand, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
                 output_size: Sequence[int] | None = None) -> Tensor:
  """Values where the indices of a :func:`max_pool2d` say, else zeros: (.., h', w') -> (.., h, w). Raises ShapeError, DTypeError,
  ArgumentError."""
  return input.max_unpool2d(indices, kernel_size, stride, padding, output_size)


@checked
def max_unpool3d(input: Tensor, indices: Operand, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
                 output_size: Sequence[int] | None = None) -> Tensor:
  """Values where the indices of a :func:`max_pool3d` say, else zeros: (.., d', h', w') -> (.., d, h, w). Raises as
  :func:`max_unpool2d`."""
  return input.max_unpool3d(indices, kernel_size, stride, padding, output_size)


# ---- means and norms
def _avg_pool(name: str, n: int, x: Tensor, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool,
              count_include_pad: bool, divisor_override: int | None) -> Tensor:
  padding = numbers(name, "padding", padding, n, 0)
  return x._avg_pool(name, n, kernel_size, stride, 1, padding, ceil_mode, count_include_pad, divisor_override)


@checked
def avg_pool1d(input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, ceil_mode: bool = False,
               count_include_pad: bool = True) -> Tensor:
  """The mean of each window: (.., l) -> (.., l'); see :func:`avg_pool2d`."""
  return _avg_pool("avg_pool1d", 1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@checked
def avg_pool2d(input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, ceil_mode: bool = False,
               count_include_pad: bool = True, divisor_override: int | None = None) -> Tensor:
  """The mean of each window: (.., h, w) -> (.., h', w'), or its sum divided by ``divisor_override``; padding counts as zeros
  unless told otherwise. Raises ShapeError, ArgumentError, DTypeError."""
  return _avg_pool("avg_pool2d", 2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@checked
def avg_pool3d(input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, ceil_mode: bool = False,
               count_include_pad: bool = True, divisor_override: int | None = None) -> Tensor:
  """The mean of each window: (.., d, h, w) -> (.., d', h', w'); see :func:`avg_pool2d`."""
  return _avg_pool("avg_pool3d", 3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@checked
def lp_pool1d(input: Tensor, norm_type: float, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False) -> Tensor:
  """The norm of each window: (.., l) -> (.., l'); see :func:`lp_pool2d`."""
  return input.lp_pool1d(norm_type, kernel_size, stride, ceil_mode)


@checked
def lp_pool2d(input: Tensor, norm_type: float, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False) -> Tensor:
  """sum(x^p)^(1/p) of each window, p being ``norm_type``: (.., h, w) -> (.., h', w').

  As in PyTorch without abs: 1 is the sum, and of numbers beneath 0 the root of an odd power may be NaN. inf is the greatest
  size. Raises ShapeError, ArgumentError, DTypeError.
  """
  return input.lp_pool2d(norm_type, kernel_size, stride, ceil_mode)


@checked
def lp_pool3d(input: Tensor, norm_type: float, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False) -> Tensor:
  """The norm of each window: (.., d, h, w) -> (.., d', h', w'); see :func:`lp_pool2d`."""
  return input.lp_pool3d(norm_type, kernel_size, stride, ceil_mode)


# ---- as many windows as the result has elements
@checked
def adaptive_avg_pool1d(input: Tensor, output_size: Sizes) -> Tensor:
  """The means of ``output_size`` windows that cover the last dim. Raises as :func:`adaptive_avg_pool2d`."""
  return input.adaptive_avg_pool1d(output_size)


@checked
def adaptive_avg_pool2d(input: Tensor, output_size: Sizes) -> Tensor:
  """The means of windows that cover the last two dims: (.., h, w) -> (.., *output_size); None keeps a size. Raises ShapeError,
  ArgumentError, DTypeError."""
  return input.adaptive_avg_pool2d(output_size)


@checked
def adaptive_avg_pool3d(input: Tensor, output_size: Sizes) -> Tensor:
  """The means of windows that cover the last three dims. Raises as :func:`adaptive_avg_pool2d`."""
  return input.adaptive_avg_pool3d(output_size)


@checked
def adaptive_max_pool1d(input: Tensor, output_size: Sizes, return_indices: bool = False) -> Any:
  """The greatest of ``output_size`` windows that cover the last dim. Raises as :func:`adaptive_max_pool2d`."""
  return input.adaptive_max_pool1d(output_size, return_indices)


@checked
def adaptive_max_pool2d(input: Tensor, output_size: Sizes, return_indices: bool = False) -> Any:
  """The greatest of windows that cover the last two dims: (.., h, w) -> (.., *output_size), with ``return_indices`` ``(values,
  indices)``. Raises ShapeError, ArgumentError."""
  return input.adaptive_max_pool2d(output_size, return_indices)


@checked
def adaptive_max_pool3d(input: Tensor, output_size: Sizes, return_indices: bool = False) -> Any:
  """The greatest of windows that cover the last three dims. Raises as :func:`adaptive_max_pool2d`."""
  return input.adaptive_max_pool3d(output_size, return_indices)


@checked
def adaptive_max_pool1d_with_indices(input: Tensor, output_size: Sizes, return_indices: bool = False) -> Any:
  """:func:`adaptive_max_pool1d` with indices, whatever ``return_indices`` says. Raises as :func:`adaptive_max_pool2d`."""
  return input.adaptive_max_pool1d(output_size, True)


@checked
def adaptive_max_pool2d_with_indices(input: Tensor, output_size: Sizes, return_indices: bool = False) -> Any:
  """:func:`adaptive_max_pool2d` with indices, whatever ``return_indices`` says. Raises as :func:`adaptive_max_pool2d`."""
  return input.adaptive_max_pool2d(output_size, True)


@checked
def adaptive_max_pool3d_with_indices(input: Tensor, output_size: Sizes, return_indices: bool = False) -> Any:
  """:func:`adaptive_max_pool3d` with indices, whatever ``return_indices`` says. Raises as :func:`adaptive_max_pool2d`."""
  return input.adaptive_max_pool3d(output_size, True)


# ---- windows at random
@checked
def fractional_max_pool2d(input: Tensor, kernel_size: Ints, output_size: Ints | None = None,
                          output_ratio: float | Sequence[float] | None = None, return_indices: bool = False,
                          _random_samples: Operand | None = None) -> Any:
  """The greatest of windows at random, as many as ``output_size`` or a part ``output_ratio`` of the sizes: (n, c, h, w) or
  (c, h, w). Raises ShapeError, ArgumentError."""
  return input.fractional_max_pool2d(kernel_size, output_size, output_ratio, return_indices, _random_samples)


@checked
def fractional_max_pool3d(input: Tensor, kernel_size: Ints, output_size: Ints | None = None,
                          output_ratio: float | Sequence[float] | None = None, return_indices: bool = False,
                          _random_samples: Operand | None = None) -> Any:
  """:func:`fractional_max_pool2d` of (n, c, d, h, w) or (c, d, h, w). Raises ShapeError, ArgumentError."""
  return input.fractional_max_pool3d(kernel_size, output_size, output_ratio, return_indices, _random_samples)


@checked
def fractional_max_pool2d_with_indices(input: Tensor, kernel_size: Ints, output_size: Ints | None = None,
                                       output_ratio: float | Sequence[float] | None = None, return_indices: bool = False,
                                       _random_samples: Operand | None = None) -> Any:
  """:func:`fractional_max_pool2d` with indices, whatever ``return_indices`` says. Raises ShapeError, ArgumentError."""
  return input.fractional_max_pool2d(kernel_size, output_size, output_ratio, True, _random_samples)


@checked
def fractional_max_pool3d_with_indices(input: Tensor, kernel_size: Ints, output_size: Ints | None = None,
                                       output_ratio: float | Sequence[float] | None = None, return_indices: bool = False,
                                       _random_samples: Operand | None = None) -> Any:
  """:func:`fractional_max_pool3d` with indices, whatever ``return_indices`` says. Raises ShapeError, ArgumentError."""
  return input.fractional_max_pool3d(kernel_size, output_size, output_ratio, True, _random_samples)


__all__ = [
  "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool1d_with_indices",
  "adaptive_max_pool2d", "adaptive_max_pool2d_with_indices", "adaptive_max_pool3d", "adaptive_max_pool3d_with_indices",
  "avg_pool1d", "avg_pool2d", "avg_pool3d", "fractional_max_pool2d", "fractional_max_pool2d_with_indices",
  "fractional_max_pool3d", "fractional_max_pool3d_with_indices", "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_pool1d",
  "max_pool1d_with_indices", "max_pool2d", "max_pool2d_with_indices", "max_pool3d", "max_pool3d_with_indices", "max_unpool1d",
  "max_unpool2d", "max_unpool3d",
]
