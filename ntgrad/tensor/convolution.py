"""Convolution over one, two and three dimensions (or more), its adjoint, and the windows it is made of.

A convolution is windows (TILE), a product and one sum: the scheduler finds the tiles. Gradients are windows taken back (UNTILE)
and summed, so nothing is added up in an order that differs from run to run.
"""
from __future__ import annotations

import math
from typing import Any, Self, Sequence

from ntgrad.codegen.ir.errors import ArgumentError, ShapeError
from ntgrad.codegen.ir.uop import UOp
from ntgrad.graph import nodes as graph
from ntgrad.graph.checks import Ints, Operand, checked, one_width
from ntgrad.graph.names import Places, text

from .elementwise import Elementwise
from .functional import _product, names_of_product
from .movement import Movement

Pair = tuple[int, int]
Padding = int | Sequence[int | Sequence[int]]


def each(name: str, what: str, value: Any, n: int) -> tuple[Any, ...]:
  """One value for all of n spatial dimensions, or one for each, as n values. Raises ShapeError."""
  out = tuple(value) if isinstance(value, (tuple, list)) else (value,) * n
  if len(out) != n: raise ShapeError(f"{name}: {what} {out} for {n} spatial dimensions; give one number, or {n}")
  return out


def numbers(name: str, what: str, value: Any, n: int, least: int) -> tuple[int, ...]:
  """An int, or one for each of n spatial dimensions, as n ints. Raises ShapeError, ArgumentError for one below ``least``."""
  out = each(name, what, value, n)
  if not all([isinstance(v, int) and v >= least for v in out]):
    raise ArgumentError(f"{name}: {what} {out}; it must be ints of at least {least}")
  return out


def paddings(name: str, padding: Any, n: int) -> list[Pair]:
  """An int, one a dim, a flat torch padding (last dim first), or pairs, as (before, after) a spatial dim."""
  if not isinstance(padding, (tuple, list)): pairs: list[Any] = [(padding, padding)] * n
  elif all([isinstance(p, int) for p in padding]):
    if len(padding) == n: pairs = [(p, p) for p in padding]
    elif len(padding) == 2 * n: pairs = [(padding[i], padding[i + 1]) for i in range(2 * n - 2, -1, -2)]
    else: raise ShapeError(f"{name}: padding {tuple(padding)} for {n} spatial dimensions; give 1, {n} or {2 * n} numbers")
  else:
    pairs = [(p,) if isinstance(p, int) else p for p in padding]
    if len(pairs) != n or any([len(p) != 2 for p in pairs]):
      raise ShapeError(f"{name}: padding {padding}; give {n} (before, after) pairs")
  if min([min(p) for p in pairs]) < 0: raise ArgumentError(f"{name}: padding {padding}; it must not be negative")
  return pairs


def must_fit(name: str, kernel: Sequence[int], dilation: Sequence[int], spatial: Sequence[int], pairs: Sequence[Pair]) -> None:
  """Raises ShapeError for a kernel that does not fit into the padded sizes, or has no elements."""
  if any([(k - 1) * d + 1 > s + lo + hi or k < 1 for k, d, s, (lo, hi) in zip(kernel, dilation, spatial, pairs)]):
    raise ShapeError(f"{name}: a kernel of {kernel} with dilation {dilation} does not fit into {spatial} with padding "
                     f"{tuple(pairs)}")


def _named_paddings(name: str, padding: str, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> list[Pair]:
  """The padding that "valid" and "same" stand for; the latter has one more after than before where it is odd."""
  if padding == "valid": return [(0, 0)] * len(kernel)
  if padding != "same": raise ArgumentError(f"{name}: padding {padding!r}; it takes numbers, 'same' or 'valid'")
  if any([s != 1 for s in stride]):
    raise ArgumentError(f"{name}: padding 'same' with stride {tuple(stride)}; it takes stride 1 (give the padding in numbers)")
  total = [(k - 1) * d for k, d in zip(kernel, dilation)]
  return [(t // 2, t - t // 2) for t in total]


def _convolution_places(n: int, out: int, into: int, groups: int) -> tuple[list[Places], int]:
  """Where the dimensions of a convolution's factors go, over n dimensions, and how many the result has.

  The weight has the channels that come out at dimension ``out``, and those that go in at ``into``; in several groups these are
  parts of the input's, so that their names need not agree.
  """
  weight: list[int | None] = [None] * (n + 2)
  weight[out] = 1
  if groups == 1: weight[into] = n + 2
  return [(0, n + 2, *range(2, n + 2)), weight], n + 2


def _inside_out(u: UOp, rest: int, n: int) -> UOp:
  """(rest.., a.., b..) -> (rest.., b.., a..) of n dimensions each."""
  return graph.permute(u, (*range(rest), *range(rest + n, rest + 2 * n), *range(rest, rest + n)))


def _folded(u: UOp, shape: tuple[int, ...], size: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> UOp:
  """The adjoint of windows: (rest.., outer.., inner..) -> (rest.., d..) of ``shape``, where windows overlap their sum."""
  n, rest = len(size), len(shape) - len(size)
  u = graph.reshape(u, u.shape[:rest + n] + (1,) * rest + u.shape[rest + n:])
  t = graph.untile(u, shape, ((1, 1, 1),) * rest + tuple(zip(size, stride, dilation)))
  axes = tuple(range(len(shape), len(t.shape)))
  return graph.drop(graph.total(t, axes), axes)


@checked
class Convolution(Elementwise, Movement):
  """Convolution and its adjoint."""
  __slots__ = ()

  def _rank(self, name: str, weight: Any, n: int | None) -> tuple[int, bool]:
    """How many spatial dimensions there are, and whether the input has a batch. Raises ShapeError."""
    spatial, batched = weight.ndim - 2, self.ndim == weight.ndim
    if spatial < 1 or spatial != (n or spatial) or not (batched or self.ndim == weight.ndim - 1):
      size = f" of {n} spatial dimension{'s' * (n > 1)}" if n else ""
      raise ShapeError(f"{name}: input {text(self)} with weight {text(weight)}; give (n, cin, *spatial) or (cin, *spatial), "
                       f"and a weight of as many spatial dimensions as the input{size}")
    return spatial, batched

  def _convolved(self, name: str, n: int | None, weight: Any, bias: Any, groups: int, stride: Ints, dilation: Ints,
                 padding: Padding | str) -> Self:
    """The convolution over n dimensions (None: as many as the weight has)."""
    n, batched = self._rank(name, weight, n)
    if not batched:
      return self.unsqueeze(0)._convolved(name, n, weight, bias, groups, stride, dilation, padding).squeeze(0)._own()
    x, w = self.lazydata, weight.lazydata
    sx, sw = x.shape, w.shape
    if groups < 1 or sx[1] != groups * sw[1] or sw[0] % groups:
      raise ShapeError(f"{name}: input {text(self)} with weight {text(weight)} and groups {groups}; "
                       f"channels must be groups * {sw[1]} = {groups * sw[1]} in, and a multiple of groups out "
                       "(by position the order is weight, bias, groups, stride, dilation, padding)")
    if bias is not None and bias.shape != (sw[0],):
      raise ShapeError(f"{name}: bias {bias.shape} with weight {sw}; it must be ({sw[0]},)")
    one_width(name, self, weight, bias)
    st, di = numbers(name, "stride", stride, n, 1), numbers(name, "dilation", dilation, n, 1)
    kernel = sw[2:]
    pairs = _named_paddings(name, padding, kernel, st, di) if isinstance(padding, str) else paddings(name, padding, n)
    must_fit(name, kernel, di, sx[2:], pairs)
    a, b, out = _product(name, x, w)
    bs, cin, cout = sx[0], sw[1], sw[0] // groups
    # the output channels are expanded before the windows are made: in the gradient their sum and the windows' then are one
    a = graph.pad(graph.reshape(a, (bs, groups, 1, cin, *sx[2:])), ((0, 0),) * 4 + tuple(pairs))
    a = graph.windows(graph.expand(a, (bs, groups, cout, cin, *a.shape[4:])), kernel, st, di)
    a = graph.permute(a, (0, 1, 2, *range(4, 4 + n), 3, *range(4 + n, 4 + 2 * n)))
    full = a.shape
    b = graph.expand(graph.reshape(b, (1, groups, cout) + (1,) * n + (cin, *kernel)), full)
    total = graph.total(graph.mul(a, b), tuple(range(3 + n, 4 + 2 * n)))
    node = graph.cast(graph.reshape(total, (bs, sw[0], *full[3:3 + n])), out)
    result = self._wrap_many(node, (weight,), None if self._names is weight._names is None else names_of_product(
      name, (self, weight), *_convolution_places(n, 0, 1, groups)))
    return result if bias is None else result + bias.reshape((1, -1) + (1,) * n)

  def conv1d(self, weight: Operand, bias: Operand | None = None, groups: int = 1, stride: Ints = 1, dilation: Ints = 1,
             padding: Padding | str = 0) -> Self:
    """:meth:`conv2d` over one dimension: (n, cin, l), weight (cout, cin/groups, k) -> (n, cout, l')."""
    return self._convolved("conv1d", 1, weight, bias, groups, stride, dilation, padding)

  def conv2d(self, weight: Operand, bias: Operand | None = None, groups: int = 1, stride: Ints = 1, dilation: Ints = 1,
             padding: Padding | str = 0) -> Self:
    """Convolution: (n, cin, *spatial), weight (cout, cin/groups, *kernel) -> (n, cout, *out). Any number of spatial dims.

    The input may have no batch: (cin, *spatial) -> (cout, *out). ``padding`` is a number, one a spatial dim, a flat (left, right,
    top, bottom) from the last dim, pairs, "valid" (none) or "same" (as much as keeps the size, with stride 1). What follows the
    bias is in tinygrad's order; give it by name, since PyTorch has another. Raises ShapeError, ArgumentError, DeviceError.
    """
    return self._convolved("conv2d", None, weight, bias, groups, stride, dilation, padding)

  def conv3d(self, weight: Operand, bias: Operand | None = None, groups: int = 1, stride: Ints = 1, dilation: Ints = 1,
             padding: Padding | str = 0) -> Self:
    """:meth:`conv2d` over three dimensions: (n, cin, d, h, w), weight (cout, cin/groups, *kernel) -> (n, cout, d', h', w')."""
    return self._convolved("conv3d", 3, weight, bias, groups, stride, dilation, padding)

  def _transposed(self, name: str, n: int | None, weight: Any, bias: Any, groups: int, stride: Ints, dilation: Ints,
                  padding: Padding, output_padding: Ints) -> Self:
    """The adjoint of convolution over n dimensions (None: as many as the weight has)."""
    n, batched = self._rank(name, weight, n)
    rest: tuple[Any, ...] = bias, groups, stride, dilation, padding, output_padding
    if not batched: return self.unsqueeze(0)._transposed(name, n, weight, *rest).squeeze(0)._own()
    sx, sw = self.shape, weight.shape
    if groups < 1 or sx[1] != sw[0] or sw[0] % groups:
      raise ShapeError(f"{name}: input {text(self)} with weight {text(weight)} and groups {groups}; give (n, cin, *spatial) and "
                       "(cin, cout/groups, *kernel), cin being a multiple of groups "
                       "(by position the order is weight, bias, groups, stride, dilation, padding, output_padding)")
    if bias is not None and bias.shape != (sw[1] * groups,):
      raise ShapeError(f"{name}: bias {bias.shape} with weight {sw} and groups {groups}; it must be ({sw[1] * groups},)")
    st, di = numbers(name, "stride", stride, n, 1), numbers(name, "dilation", dilation, n, 1)
    pairs, extra = paddings(name, padding, n), numbers(name, "output_padding", output_padding, n, 0)
    if self._names is not None or weight._names is not None:
      called = names_of_product(name, (self, weight), *_convolution_places(n, 1, 0, groups))
      out = self.named()._transposed(name, n, weight.named(), None, groups, st, di, padding, output_padding)._called(called)
      return out if bias is None else out + bias.reshape((1, -1) + (1,) * n)
    size = [(s - 1) * t + (k - 1) * d + 1 - lo - hi + e for s, t, k, d, (lo, hi), e in zip(sx[2:], st, sw[2:], di, pairs, extra)]
    if min(sx[2:]) < 1 or min(sw[2:]) < 1 or min(size) < 1:
      raise ShapeError(f"{name}: input {sx} with a kernel of {sw[2:]}, stride {st}, dilation {di} and padding {tuple(pairs)} "
                       f"gives spatial sizes {tuple(size)}; sizes must be at least 1")
    w = weight.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1).flip(*range(2, 2 + n))
    x = self
    if any([s > 1 for s in st]):  # stride - 1 zeros after each element but the last
      x = x.reshape(sx[:2] + tuple([v for s in sx[2:] for v in (s, 1)]))
      x = x.pad(((0, 0), (0, 0)) + tuple([p for s in st for p in ((0, 0), (0, s - 1))]))
      x = x.reshape(sx[:2] + tuple([s * t for s, t in zip(sx[2:], st)]))
      x = x.shrink((None, None) + tuple([(0, (s - 1) * t + 1) for s, t in zip(sx[2:], st)]))
    full = [((k - 1) * d - lo, (k - 1) * d - hi + e) for k, d, (lo, hi), e in zip(sw[2:], di, pairs, extra)]
    return x.pad(((0, 0), (0, 0)) + tuple(full))._convolved(name, n, w, bias, groups, 1, dilation, 0)

  def conv_transpose1d(self, weight: Operand, bias: Operand | None = None, groups: int = 1, stride: Ints = 1, dilation: Ints = 1,
                       padding: Padding = 0, output_padding: Ints = 0) -> Self:
    """:meth:`conv_transpose2d` over one dimension: (n, cin, l), weight (cin, cout/groups, k) -> (n, cout, l')."""
    return self._transposed("conv_transpose1d", 1, weight, bias, groups, stride, dilation, padding, output_padding)

  def conv_transpose2d(self, weight: Operand, bias: Operand | None = None, groups: int = 1, stride: Ints = 1, dilation: Ints = 1,
                       padding: Padding = 0, output_padding: Ints = 0) -> Self:
    """The adjoint of convolution: (n, cin, *spatial), weight (cin, cout/groups, *kernel) -> (n, cout, *out).

    Any number of spatial dims; the input may have no batch. A size s becomes (s - 1) * stride - 2 * padding + dilation *
    (kernel - 1) + 1 + output_padding. What follows the bias is in tinygrad's order; give it by name, since PyTorch has another.
    Raises ShapeError, ArgumentError.
    """
    return self._transposed("conv_transpose2d", None, weight, bias, groups, stride, dilation, padding, output_padding)

  def conv_transpose3d(self, weight: Operand, bias: Operand | None = None, groups: int = 1, stride: Ints = 1, dilation: Ints = 1,
                       padding: Padding = 0, output_padding: Ints = 0) -> Self:
    """:meth:`conv_transpose2d` over three dimensions: (n, cin, d, h, w), weight (cin, cout/groups, *kernel)."""
    return self._transposed("conv_transpose3d", 3, weight, bias, groups, stride, dilation, padding, output_padding)

  def im2col(self, kernel_size: Ints, dilation: Ints = 1, padding: Padding = 0, stride: Ints = 1) -> Self:
    """Windows as columns, ``torch.nn.functional.unfold``: (n, c, *spatial) -> (n, c * kernel elements, windows).

    ``kernel_size`` is one number for two spatial dimensions, or one for each; the input may have no batch. (:meth:`unfold` makes
    windows of one dimension, :meth:`windows` of several without putting them into columns.) Raises ShapeError, ArgumentError.
    """
    n = 2 if isinstance(kernel_size, int) else len(kernel_size)
    if n < 1 or self.ndim not in (n + 1, n + 2):
      raise ShapeError(f"im2col: shape {text(self)} with kernel_size {kernel_size}; give (n, c, *spatial) or (c, *spatial), "
                       "and a size for each spatial dimension (one number is two of them)")
    k, di, st = [numbers("im2col", what, v, n, 1) for what, v in (
      ("kernel_size", kernel_size), ("dilation", dilation), ("stride", stride))]
    pairs = paddings("im2col", padding, n)
    s, rest = self.shape, self.ndim - n
    must_fit("im2col", k, di, s[rest:], pairs)
    t = graph.windows(graph.pad(self.lazydata, ((0, 0),) * rest + tuple(pairs)), k, st, di)
    outer = t.shape[rest:rest + n]
    t = _inside_out(t, rest, n)
    out = self._wrap(graph.reshape(t, s[:rest - 1] + (s[rest - 1] * math.prod(k), math.prod(outer))))
    return out._called(None if self._names is None else self._names[:rest - 1] + (None, None))

  def col2im(self, output_size: Ints, kernel_size: Ints, dilation: Ints = 1, padding: Padding = 0, stride: Ints = 1) -> Self:
    """The adjoint of :meth:`im2col`, ``torch.nn.functional.fold``: (n, c * kernel elements, windows) -> (n, c, *output_size).

    Where windows overlap their elements are added up. One number as a size stands for two spatial dimensions. Raises ShapeError,
    ArgumentError.
    """
    n = max([2] if isinstance(output_size, int) is isinstance(kernel_size, int) is True else
            [len(v) for v in (output_size, kernel_size) if not isinstance(v, int)])
    size, k = numbers("col2im", "output_size", output_size, n, 1), numbers("col2im", "kernel_size", kernel_size, n, 1)
    di, st = numbers("col2im", "dilation", dilation, n, 1), numbers("col2im", "stride", stride, n, 1)
    if n < 1: raise ArgumentError("col2im: output_size (); give a size for each spatial dimension")
    pairs, s = paddings("col2im", padding, n), self.shape
    full = tuple([a + lo + hi for a, (lo, hi) in zip(size, pairs)])
    outer = tuple([(a - (b - 1) * d - 1) // t + 1 for a, b, d, t in zip(full, k, di, st)])
    if self.ndim not in (2, 3) or s[-2] % math.prod(k) or min(outer) < 1 or s[-1] != math.prod(outer):
      raise ShapeError(f"col2im: shape {text(self)} for output_size {size}, a kernel of {k}, stride {st}, dilation {di} and "
                       f"padding {tuple(pairs)}; give (n, c * {math.prod(k)}, windows), there being {outer} windows")
    lead = s[:-2] + (s[-2] // math.prod(k),)
    rest = len(lead)
    u = graph.reshape(graph.cast(self.lazydata, graph.acc_dtype(self.dtype)), lead + k + outer)
    u = _folded(_inside_out(u, rest, n), lead + full, k, st, di)
    u = graph.shrink(u, [(0, a) for a in lead] + [(lo, lo + a) for a, (lo, _) in zip(size, pairs)])
    out = self._wrap(graph.cast(u, self.dtype))
    return out._called(None if self._names is None else self._names[:rest - 1] + (None,) * (n + 1))
