"""Pooling over the last dimensions: the greatest, the mean or a norm of each window, and what takes the greatest back.

Pooling is windows (TILE) and a reduction; gradients are windows taken back (UNTILE) and summed. Of several greatest elements each
has an equal share of the gradient.
"""
from __future__ import annotations

import math
from typing import Any, Self, Sequence

from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.errors import ArgumentError, ShapeError
from ntgrad.codegen.ir.uop import BinaryOps, UOp
from ntgrad.core import real_number
from ntgrad.graph import nodes as graph
from ntgrad.graph.checks import Ints, Operand, checked, of_kind
from ntgrad.graph.names import text

from .convolution import Padding, Pair, must_fit, numbers, paddings
from .creation import Creation
from .movement import pad_value
from .reduction import Reduction, reaches
from .scattering import Scattering


def greatest(t: UOp, axes: Sequence[int]) -> UOp:
  """The greatest along axes, which become 1."""
  return graph.reduce(BinaryOps.OR if t.dtype.kind == "b" else BinaryOps.MAX, t, axes)


def first_of(name: str, t: UOp, best: UOp, places: UOp, used: UOp | None, axes: tuple[int, ...], total: int) -> UOp:
  """Of each window the least place, int32, of what equals the best of it (or is NaN) and is used; windows lie along axes."""
  most = dtypes.max(dtypes.int32)
  if total > most: raise ShapeError(f"{name}: indices of {total} elements; int32 counts {most}")
  found = reaches(graph.detach(t), graph.expand(graph.detach(best), t.shape))
  if used is not None: found = graph.and_(found, graph.expand(used, t.shape))
  return graph.drop(graph.reduce(BinaryOps.MIN, graph.where(found, places, most), axes), axes)


@checked
class Pooling(Scattering, Reduction, Creation):
  """Pooling over the last dimensions; whatever stands before them (batch, channels) stays."""
  __slots__ = ()

  def _pool(self, name: str, n: int | None, kernel_size: Any, stride: Any, dilation: Any, padding: Any, ceil_mode: bool
            ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], list[Pair]]:
    """The kernel, stride, dilation and padding of n dims (None: 2, or as many as the kernel has), with what ceil_mode adds."""
    if n is None: n = 2 if isinstance(kernel_size, int) else len(kernel_size)
    if not n: raise ArgumentError(f"{name}: kernel_size {kernel_size}; give a number, or one for each of the last dimensions")
    s = self.shape
    if len(s) < n: raise ShapeError(f"{name}: shape {s}; it takes at least {n} dimension{'s' * (n > 1)}")
    k = numbers(name, "kernel_size", kernel_size, n, 1)
    st, di = numbers(name, "stride", k if stride is None else stride, n, 1), numbers(name, "dilation", dilation, n, 1)
    pairs = paddings(name, padding, n)
    if any([max(p) > (size - 1) * d // 2 + (size - 1) * d % 2 for size, d, p in zip(k, di, pairs)]):
      raise ArgumentError(f"{name}: padding {tuple(pairs)} with a kernel of {k}; it must be at most half of the kernel, "
                          "so that every window has an element")
    spatial = s[len(s) - n:]
    if ceil_mode:  # further windows that start inside the input or the padding before it
      grown = []
      for size, t, d, dim, (lo, hi) in zip(k, st, di, spatial, pairs):
        out = -(-(dim + lo + hi - (size - 1) * d - 1) // t) + 1
        if (out - 1) * t >= dim + lo: out -= 1
        grown.append((lo, max(hi, (out - 1) * t + (size - 1) * d + 1 - dim - lo)))
      pairs = grown
    must_fit(name, k, di, spatial, pairs)
    return k, st, di, pairs

  def _windows_of(self, u: UOp, k: Sequence[int], st: Sequence[int], di: Sequence[int], pairs: Sequence[Pair], fill: Any) -> UOp:
    """Windows of the last dims, with the padding filled: (.., out.., kernel..)."""
    return graph.windows(pad_value(u, ((0, 0),) * (len(u.shape) - len(k)) + tuple(pairs), fill), k, st, di)

  # ---- the greatest
  def _max_pool(self, name: str, n: int | None, kernel_size: Any, stride: Any, dilation: Any, padding: Any, ceil_mode: bool,
                return_indices: bool) -> Any:
    k, st, di, pairs = self._pool(name, n, kernel_size, stride, dilation, padding, ceil_mode)
    t = self._windows_of(self.lazydata, k, st, di, pairs, dtypes.min(self.dtype))
    axes = tuple(range(len(t.shape) - len(k), len(t.shape)))
    best = greatest(t, axes)
    values = self._wrap(graph.drop(best, axes))
    if not return_indices: return values
    spatial = self.shape[self.ndim - len(k):]
    total = math.prod(spatial)
    nowhere = dtypes.max(dtypes.int32)
    # which element of the input each window's are; those of the padding come after all others
    place = self._windows_of(graph.reshape(graph.iota(total), spatial), k, st, di, pairs, nowhere)
    place = graph.broadcast(place, t.shape)
    return values, self._from_node(first_of(name, t, best, place, None, axes, total))._called(values._names)

  def max_pool1d(self, kernel_size: Ints = 2, stride: Ints | None = None, dilation: Ints = 1, padding: Padding = 0,
                 ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """:meth:`max_pool2d` over the last dimension: (.., l) -> (.., l')."""
    return self._max_pool("max_pool1d", 1, kernel_size, stride, dilation, padding, ceil_mode, return_indices)

  def max_pool2d(self, kernel_size: Ints = (2, 2), stride: Ints | None = None, dilation: Ints = 1, padding: Padding = 0,
                 ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """The greatest of each window of the last dims (2, or as many as the kernel has); stride None is the kernel's size.

    With ``return_indices`` ``(values, indices)``: which element of the flattened last dims it is (int32), the first of equal
    ones, a NaN before all. What follows the stride is in tinygrad's order; give it by name, since PyTorch has another. Raises
    ShapeError, ArgumentError.
    """
    return self._max_pool("max_pool2d", None, kernel_size, stride, dilation, padding, ceil_mode, return_indices)

  def max_pool3d(self, kernel_size: Ints = 2, stride: Ints | None = None, dilation: Ints = 1, padding: Padding = 0,
                 ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """:meth:`max_pool2d` over the last three dimensions: (.., d, h, w) -> (.., d', h', w')."""
    return self._max_pool("max_pool3d", 3, kernel_size, stride, dilation, padding, ceil_mode, return_indices)

  def _unpool(self, name: str, n: int, indices: Any, kernel_size: Any, stride: Any, padding: Any, output_size: Any) -> Self:
    k = numbers(name, "kernel_size", kernel_size, n, 1)
    st, pad = numbers(name, "stride", k if stride is None else stride, n, 1), numbers(name, "padding", padding, n, 0)
    s = self.shape
    if len(s) < n or indices.shape != s:
      raise ShapeError(f"{name}: values of shape {text(self)} with indices of {text(indices)}; they must have one shape, of at "
                       f"least {n} dimension{'s' * (n > 1)}")
    of_kind("iu", name, "indices", indices, "they must be ints")
    lead = s[:len(s) - n]
    size = tuple([(d - 1) * t - 2 * p + a for d, t, p, a in zip(s[len(s) - n:], st, pad, k)])
    if output_size is not None:
      given = tuple(output_size[-n:])
      if len(output_size) not in (n, len(s)) or any([not a - t < b < a + t for a, b, t in zip(size, given, st)]):
        raise ShapeError(f"{name}: output_size {tuple(output_size)} for input {s}; the last {n} must be within a stride {st} of "
                         f"{size}")
      size = given
    if min(size) < 1: raise ShapeError(f"{name}: input {s} with a kernel of {k} and padding {pad} gives sizes {size}")
    rows, each = math.prod(lead), math.prod(size)
    make: Any = type(self)
    flat = make.zeros(rows, each, dtype=self.dtype, device=self.device)
    out = flat.scatter(1, indices.named().reshape(rows, -1 if rows else 0), self.named().reshape(rows, -1 if rows else 0))
    return out.reshape(*lead, *size)._own()._called(self._names)

  def max_unpool1d(self, indices: Operand, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
                   output_size: Sequence[int] | None = None) -> Self:
    """:meth:`max_unpool2d` over the last dimension: (.., l') -> (.., l)."""
    return self._unpool("max_unpool1d", 1, indices, kernel_size, stride, padding, output_size)

  def max_unpool2d(self, indices: Operand, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
                   output_size: Sequence[int] | None = None) -> Self:
    """The values of a max pooling where its ``indices`` (ints of their shape) say, zeros elsewhere: (.., h', w') -> (.., h, w).

    The sizes are (size - 1) * stride - 2 * padding + kernel, or ``output_size``, which may differ by less than the stride. Raises
    ShapeError, DTypeError, ArgumentError.
    """
    return self._unpool("max_unpool2d", 2, indices, kernel_size, stride, padding, output_size)

  def max_unpool3d(self, indices: Operand, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
                   output_size: Sequence[int] | None = None) -> Self:
    """:meth:`max_unpool2d` over the last three dimensions: (.., d', h', w') -> (.., d, h, w)."""
    return self._unpool("max_unpool3d", 3, indices, kernel_size, stride, padding, output_size)

  # ---- means
  def _avg_pool(self, name: str, n: int | None, kernel_size: Any, stride: Any, dilation: Any, padding: Any, ceil_mode: bool,
                count_include_pad: bool, divisor: int | None) -> Self:
    self._needs_floats(name)
    if divisor == 0: raise ArgumentError(f"{name}: divisor_override 0; it must not be zero")
    k, st, di, pairs = self._pool(name, n, kernel_size, stride, dilation, padding, ceil_mode)
    m = len(k)
    t = self._windows_of(self.lazydata, k, st, di, pairs, 0)
    axes = tuple(range(len(t.shape) - m, len(t.shape)))
    acc = graph.acc_dtype(t.dtype)
    total = graph.total(graph.cast(t, acc), axes)
    if divisor is None and (ceil_mode or (not count_include_pad and any([lo or hi for lo, hi in pairs]))):
      ones = graph.const(1.0, acc, self.shape[self.ndim - m:])
      if count_include_pad:  # only what the caller padded counts, not what ceil_mode added
        given = paddings(name, padding, m)
        ones = pad_value(ones, given, 1.0)
        pairs = [(0, hi - p) for (_, hi), (_, p) in zip(pairs, given)]
      counts = graph.total(self._windows_of(ones, k, st, di, pairs, 0), tuple(range(m, 2 * m)))
      divided_by = graph.broadcast(counts, total.shape)
    else: divided_by = graph.const(float(math.prod(k) if divisor is None else divisor), acc, total.shape)
    return self._wrap(graph.cast(graph.drop(graph.div(total, divided_by), axes), t.dtype))

  def avg_pool1d(self, kernel_size: Ints = 2, stride: Ints | None = None, dilation: Ints = 1, padding: Padding = 0,
                 ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None) -> Self:
    """:meth:`avg_pool2d` over the last dimension: (.., l) -> (.., l')."""
    return self._avg_pool(
      "avg_pool1d", 1, kernel_size, stride, dilation, padding, ceil_mode, count_include_pad, divisor_override
    )

  def avg_pool2d(self, kernel_size: Ints = (2, 2), stride: Ints | None = None, dilation: Ints = 1, padding: Padding = 0,
                 ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None) -> Self:
    """The mean of each window of the last dims (2, or as many as the kernel has); padding counts as zeros unless told otherwise.

    ``divisor_override`` is what sums are divided by in place of the number of elements. What follows the stride is in tinygrad's
    order; give it by name, since PyTorch has another. Raises ShapeError, ArgumentError, DTypeError for what is not float.
    """
    return self._avg_pool(
      "avg_pool2d", None, kernel_size, stride, dilation, padding, ceil_mode, count_include_pad, divisor_override
    )

  def avg_pool3d(self, kernel_size: Ints = 2, stride: Ints | None = None, dilation: Ints = 1, padding: Padding = 0,
                 ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None) -> Self:
    """:meth:`avg_pool2d` over the last three dimensions: (.., d, h, w) -> (.., d', h', w')."""
    return self._avg_pool(
      "avg_pool3d", 3, kernel_size, stride, dilation, padding, ceil_mode, count_include_pad, divisor_override
    )

  def _lp_pool(self, name: str, n: int, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool) -> Self:
    if abs(norm_type) == math.inf:
      sign = 1 if norm_type > 0 else -1
      return (self.abs() * sign)._max_pool(name, n, kernel_size, stride, 1, 0, ceil_mode, False) * sign
    p = real_number(name, "norm_type", norm_type)
    if not p: raise ArgumentError(f"{name}: norm_type 0; it must be another number")
    self._needs_floats(name)
    x = self.cast(graph.acc_dtype(self.dtype))
    powers = x.square() if p == 2 else x if p == 1 else x.pow(p)
    mean = powers._avg_pool(name, n, kernel_size, stride, 1, 0, ceil_mode, True, None)
    total = mean * math.prod(numbers(name, "kernel_size", kernel_size, n, 1))
    even = p > 0 and p % 2 == 0
    return (total if p == 1 else total._root(1 / p) if even else total.pow(1 / p)).cast(self.dtype)

  def lp_pool1d(self, norm_type: float, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False) -> Self:
    """:meth:`lp_pool2d` over the last dimension: (.., l) -> (.., l')."""
    return self._lp_pool("lp_pool1d", 1, norm_type, kernel_size, stride, ceil_mode)

  def lp_pool2d(self, norm_type: float, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False) -> Self:
    """sum(x^p)^(1/p) of each window of the last two dimensions, p being ``norm_type``; of even p no slope where it is 0.

    As in PyTorch without abs: 1 is the sum, and of numbers beneath 0 the root of an odd power may be NaN. inf is the greatest
    size, -inf the least. With ``ceil_mode`` a window that ends outside counts as if it went on with its mean. Raises ShapeError,
    ArgumentError, DTypeError.
    """
    return self._lp_pool("lp_pool2d", 2, norm_type, kernel_size, stride, ceil_mode)

  def lp_pool3d(self, norm_type: float, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False) -> Self:
    """:meth:`lp_pool2d` over the last three dimensions: (.., d, h, w) -> (.., d', h', w')."""
    return self._lp_pool("lp_pool3d", 3, norm_type, kernel_size, stride, ceil_mode)
