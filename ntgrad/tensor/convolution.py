"""Windows of the last dimensions: convolution and its adjoint, pooling (the greatest, the mean or a norm of each window),
adaptive pooling, windows at random.

A convolution is windows (TILE), a product and one sum, pooling windows and a reduction: the scheduler finds the tiles.
Gradients are windows taken back (UNTILE) and summed, so that nothing is added up in another order from run to run. Of several
greatest elements each has an equal share of the gradient.

Where each element of a result is made of a few neighbouring elements, its taps, along each dimension (adaptive pooling, and the
interpolation of ``resampling.py``), and the sizes have a ratio of small numbers (2, 1/2, 3/2), the taps of all results of a
period are windows too. For other sizes elements are read by index (GATHER). One kernel goes over the data for all dimensions."""
from __future__ import annotations

import functools
import math
from typing import Any, Callable, NamedTuple, Self, Sequence

import numpy as np

from ntgrad.codegen.ir import ArgumentError, BinaryOps, DType, ShapeError, UOp, acc_dtype, config, dtypes, shown
from ntgrad.codegen.ir.elementwise import Shape, and_, const, le, lt, maximum, minimum, where
from ntgrad.core import MAX_SIZE, real_number
from ntgrad.graph import BoundInt, Ints, Operand, Places, checked, merged, nodes as graph, of_kind, one_width, real, text
from ntgrad.graph.checks import as_tuple
from ntgrad.graph.nodes import broadcast, cast, detach, drop, expand, iota, permute, reduce, reshape, shrink, untile, windows
from ntgrad.graph.recipes import recalled

from .elementwise import Elementwise, Host
from .families import member
from .movement import Movement, pad_value
from .products import factors_of_product
from .random import Random
from .reduction import reaches
from .scattering import Scattering

Pair = tuple[int, int]
Padding = int | Sequence[int | Sequence[int]]


def each(name: str, what: str, value: Any, n: int) -> tuple[Any, ...]:
  """One value for all of n spatial dimensions, or one for each, as n values. Raises ShapeError."""
  out = as_tuple(value, n)
  if len(out) != n: raise ShapeError(f"{name}: {what} {out} for {n} spatial dimensions; give one number, or {n}")
  return out


def numbers(name: str, what: str, value: Any, n: int, least: int) -> Shape:
  """An int, or one for each of n spatial dimensions, as n ints. Raises ShapeError, ArgumentError for one below ``least``."""
  out = each(name, what, value, n)
  if not all([isinstance(v, int) and v >= least for v in out]):
    raise ArgumentError(f"{name}: {what} {out}; it must be ints of at least {least}")
  return out


def _steps(name: str, n: int, stride: Any, dilation: Any) -> tuple[Shape, Shape]:
  """The stride and the dilation of n dimensions."""
  return numbers(name, "stride", stride, n, 1), numbers(name, "dilation", dilation, n, 1)


def _biased(out: Any, bias: Any) -> Any:
  """(n, channels, ..) and a bias for each channel."""
  return out if bias is None else out + bias.reshape((1, -1) + (1,) * (out.ndim - 2))


def _paddings(name: str, padding: Any, n: int, cuts: bool = False) -> list[Pair]:
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
  if not cuts and min([min(p) for p in pairs]) < 0: raise ArgumentError(f"{name}: padding {padding}; it must not be negative")
  return pairs


def _must_fit(name: str, kernel: Sequence[int], dilation: Sequence[int], spatial: Sequence[int], pairs: Sequence[Pair]) -> None:
  """Raises ShapeError for a kernel that does not fit into the padded sizes, or has no elements."""
  if any([(k - 1) * d + 1 > s + lo + hi or k < 1 for k, d, s, (lo, hi) in zip(kernel, dilation, spatial, pairs)]):
    raise ShapeError(f"{name}: a kernel of {kernel} with dilation {dilation} does not fit into {spatial} with padding "
                     f"{tuple(pairs)}")


def named_paddings(name: str, padding: str, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> list[Pair]:
  """The padding that "valid" and "same" stand for; the latter has one more after than before where it is odd."""
  if padding == "valid": return [(0, 0)] * len(kernel)
  if padding != "same": raise ArgumentError(f"{name}: padding {padding!r}; it takes numbers, 'same' or 'valid'")
  if any([s != 1 for s in stride]):
    raise ArgumentError(f"{name}: padding 'same' with stride {tuple(stride)}; it takes stride 1 (give the padding in numbers)")
  return [(t // 2, t - t // 2) for t in [(k - 1) * d for k, d in zip(kernel, dilation)]]


def _convolution_places(n: int, out: int, into: int, groups: int) -> tuple[list[Places], int]:
  """Where the dimensions of a convolution's factors go, over n dimensions, and how many the result has. The weight has the
  channels that come out at dimension ``out``, and those that go in at ``into``; in several groups these are parts of the input's,
  so that their names need not agree."""
  weight: list[int | None] = [None] * (n + 2)
  weight[out] = 1
  if groups == 1: weight[into] = n + 2
  return [(0, n + 2, *range(2, n + 2)), weight], n + 2


_ROUNDING = "CUDA", "TRITON"   # devices whose matrix units round factors of float32, and what stands for them


def _inside_out(u: UOp, rest: int, n: int) -> UOp:
  """(rest.., a.., b..) -> (rest.., b.., a..) of n dimensions each."""
  return permute(u, (*range(rest), *range(rest + n, rest + 2 * n), *range(rest, rest + n)))


@checked
class Convolution(Elementwise, Movement):
  """Convolution and its adjoint."""
  __slots__ = ()

  def _rank(self, name: str, weight: Any, n: int | None) -> tuple[int, bool]:
    """How many spatial dimensions there are, and whether the input has a batch. Raises ShapeError."""
    spatial, batched = weight.ndim - 2, self.ndim == weight.ndim
    if spatial < 1 or spatial != (n or spatial) or not (batched or self.ndim == weight.ndim - 1):
      raise ShapeError(f"{name}: input {text(self)} with weight {text(weight)}; give (n, cin, *spatial) or (cin, *spatial), "
                       "and a weight of as many spatial dimensions as the input"
                       f"{f' of {n} spatial dimension' + 's' * (n > 1) if n else ''}")
    return spatial, batched

  @recalled
  def _convolved(self, name: str, n: int | None, weight: Operand, bias: Operand | None = None, groups: int = 1, stride: Ints = 1,
                 dilation: Ints = 1, padding: Padding | str = 0, dtype: DType | str | None = None) -> Self:
    """The convolution over n dimensions (None: as many as the weight has)."""
    summed_in = None if dtype is None else dtypes.of(dtype)
    n, batched = self._rank(name, weight, n)
    if not batched:
      return self.unsqueeze(0)._convolved(name, n, weight, bias, groups, stride, dilation, padding, dtype).squeeze(0)._own()
    x, w = self.lazydata, weight.lazydata
    sx, sw = x.shape, w.shape
    if groups < 1 or sx[1] != groups * sw[1] or sw[0] % groups:
      raise ShapeError(f"{name}: input {text(self)} with weight {text(weight)} and groups {groups}; "
                       f"channels must be groups * {sw[1]} = {groups * sw[1]} in, and a multiple of groups out "
                       "(by position the order is weight, bias, groups, stride, dilation, padding)")
    if bias is not None and bias.shape != (sw[0],):
      raise ShapeError(f"{name}: bias {bias.shape} with weight {sw}; it must be ({sw[0]},)")
    one_width(name, self, weight, bias)
    (st, di), kernel = _steps(name, n, stride, dilation), sw[2:]
    pairs = named_paddings(name, padding, kernel, st, di) if isinstance(padding, str) else _paddings(name, padding, n, True)
    if min([min(p) for p in pairs]) < 0:
      cut = self.pad(((0, 0), (0, 0), *[(min(lo, 0), min(hi, 0)) for lo, hi in pairs]))
      rest = tuple([(max(lo, 0), max(hi, 0)) for lo, hi in pairs])
      return cut._convolved(name, n, weight, bias, groups, stride, dilation, rest, dtype)
    _must_fit(name, kernel, di, sx[2:], pairs)
    a, b, out = factors_of_product(name, x, w, summed_in)
    bs, cin, cout = sx[0], sw[1], sw[0] // groups
    # the output channels are expanded before the windows are made: in the gradient their sum and the windows' then are one
    a = graph.pad(reshape(a, (bs, groups, 1, cin, *sx[2:])), ((0, 0),) * 4 + tuple(pairs))
    a = windows(expand(a, (bs, groups, cout, cin, *a.shape[4:])), kernel, st, di)
    a = permute(a, (0, 1, 2, *range(4, 4 + n), 3, *range(4 + n, 4 + 2 * n)))
    full = a.shape
    b = expand(reshape(b, (1, groups, cout) + (1,) * n + (cin, *kernel)), full)
    if config.conv_tf32 and x.dtype is w.dtype is b.dtype is dtypes.float32 and (x.device or "").startswith(_ROUNDING):
      a, b = graph.rounded(a), graph.rounded(b)
    node = cast(reshape(graph.total(a * b, tuple(range(3 + n, 4 + 2 * n))), (bs, sw[0], *full[3:3 + n])), out)
    return _biased(self._wrap_many(node, (weight,), None if self._names is weight._names is None else merged(
      name, (self, weight), *_convolution_places(n, 0, 1, groups), "factor")), bias)

  conv1d = member(_convolved, 1, ":meth:`conv2d` over one dimension: (n, cin, l), weight (cout, cin/groups, k) -> (n, cout, l').")
  conv2d = member(_convolved, None, """
    Convolution: (n, cin, *spatial), weight (cout, cin/groups, *kernel) -> (n, cout, *out). Any number of spatial dims.

    The input may have no batch: (cin, *spatial) -> (cout, *out). ``padding`` is a number, one a spatial dim, a flat (left, right,
    top, bottom) from the last dim, pairs, "valid" (none) or "same" (as much as keeps the size, with stride 1); negative numbers
    cut off. ``dtype`` is that of the sums of products, as for ``dot``. What follows the bias is in tinygrad's order; give it by
    name, since PyTorch has another. Raises ShapeError, ArgumentError, DeviceError.
    """)
  conv3d = member(
    _convolved, 3, ":meth:`conv2d` of volumes: (n, cin, d, h, w), weight (cout, cin/groups, *kernel) -> (n, cout, d', h', w').")
  def _transposed(self, name: str, n: int | None, weight: Operand, bias: Operand | None = None, groups: int = 1, stride: Ints = 1,
                  dilation: Ints = 1, padding: Padding = 0, output_padding: Ints = 0) -> Self:
    """The adjoint of convolution over n dimensions (None: as many as the weight has)."""
    n, batched = self._rank(name, weight, n)
    if not batched:
      return self.unsqueeze(0)._transposed(
        name, n, weight, bias, groups, stride, dilation, padding, output_padding).squeeze(0)._own()
    sx, sw = self.shape, weight.shape
    if groups < 1 or sx[1] != sw[0] or sw[0] % groups:
      raise ShapeError(f"{name}: input {text(self)} with weight {text(weight)} and groups {groups}; give (n, cin, *spatial) and "
                       "(cin, cout/groups, *kernel), cin being a multiple of groups "
                       "(by position the order is weight, bias, groups, stride, dilation, padding, output_padding)")
    if bias is not None and bias.shape != (sw[1] * groups,):
      raise ShapeError(f"{name}: bias {bias.shape} with weight {sw} and groups {groups}; it must be ({sw[1] * groups},)")
    st, di = _steps(name, n, stride, dilation)
    pairs, extra = _paddings(name, padding, n), numbers(name, "output_padding", output_padding, n, 0)
    if self._names is not None or weight._names is not None:
      called = merged(name, (self, weight), *_convolution_places(n, 1, 0, groups), "factor")
      return _biased(self.named()._transposed(
        name, n, weight.named(), None, groups, st, di, padding, output_padding)._called(called), bias)
    size = [(s - 1) * t + (k - 1) * d + 1 - lo - hi + e for s, t, k, d, (lo, hi), e in zip(sx[2:], st, sw[2:], di, pairs, extra)]
    if min(sx[2:]) < 1 or min(sw[2:]) < 1 or min(size) < 1:
      raise ShapeError(f"{name}: input {sx} with a kernel of {sw[2:]}, stride {st}, dilation {di} and padding {tuple(pairs)} "
                       f"gives spatial sizes {tuple(size)}; sizes must be at least 1")
    w = weight.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1).flip(*range(2, 2 + n))
    x = self
    if max(st) > 1:  # stride - 1 zeros after each element but the last
      x = x.reshape(sx[:2] + tuple([v for s in sx[2:] for v in (s, 1)]))
      x = x.pad(((0, 0), (0, 0)) + tuple([p for s in st for p in ((0, 0), (0, s - 1))]))
      x = x.reshape(sx[:2] + tuple([s * t for s, t in zip(sx[2:], st)]))
      x = x.shrink((None, None) + tuple([(0, (s - 1) * t + 1) for s, t in zip(sx[2:], st)]))
    full = [((k - 1) * d - lo, (k - 1) * d - hi + e) for k, d, (lo, hi), e in zip(sw[2:], di, pairs, extra)]
    return x.pad(((0, 0), (0, 0)) + tuple(full))._convolved(name, n, w, bias, groups, 1, dilation, 0)

  conv_transpose1d = member(
    _transposed, 1, ":meth:`conv_transpose2d` over one dimension: (n, cin, l), weight (cin, cout/groups, k) -> (n, cout, l').")
  conv_transpose2d = member(_transposed, None, """
    The adjoint of convolution: (n, cin, *spatial), weight (cin, cout/groups, *kernel) -> (n, cout, *out).

    Any number of spatial dims; the input may have no batch. A size s becomes (s - 1) * stride - 2 * padding + dilation *
    (kernel - 1) + 1 + output_padding. What follows the bias is in tinygrad's order; give it by name, since PyTorch has another.
    Raises ShapeError, ArgumentError.
    """)
  conv_transpose3d = member(
    _transposed, 3, ":meth:`conv_transpose2d` of volumes: (n, cin, d, h, w), weight (cin, cout/groups, *kernel).")
  def im2col(self, kernel_size: Ints, dilation: Ints = 1, padding: Padding = 0, stride: Ints = 1) -> Self:
    """Windows as columns, ``torch.nn.functional.unfold``: (n, c, *spatial) -> (n, c * kernel elements, windows). ``kernel_size``
    is one number for two spatial dimensions, or one for each; the input may have no batch. (:meth:`unfold` makes windows of one
    dimension, :meth:`windows` of several without putting them into columns.) Raises ShapeError, ArgumentError."""
    n = 2 if isinstance(kernel_size, int) else len(kernel_size)
    if n < 1 or self.ndim not in (n + 1, n + 2):
      raise ShapeError(f"im2col: shape {text(self)} with kernel_size {kernel_size}; give (n, c, *spatial) or (c, *spatial), "
                       "and a size for each spatial dimension (one number is two of them)")
    k = numbers("im2col", "kernel_size", kernel_size, n, 1)
    (st, di), pairs = _steps("im2col", n, stride, dilation), _paddings("im2col", padding, n)
    s, rest = self.shape, self.ndim - n
    _must_fit("im2col", k, di, s[rest:], pairs)
    t = windows(graph.pad(self.lazydata, ((0, 0),) * rest + tuple(pairs)), k, st, di)
    shape = s[:rest - 1] + (s[rest - 1] * math.prod(k), math.prod(t.shape[rest:rest + n]))
    return self._wrap(reshape(_inside_out(t, rest, n), shape))._called(
      None if self._names is None else self._names[:rest - 1] + (None, None))

  def col2im(self, output_size: Ints, kernel_size: Ints, dilation: Ints = 1, padding: Padding = 0, stride: Ints = 1) -> Self:
    """The adjoint of :meth:`im2col`, ``torch.nn.functional.fold``: (n, c * kernel elements, windows) -> (n, c, *output_size).
    Where windows overlap their elements are added up. One number as a size stands for two spatial dimensions. Raises ShapeError,
    ArgumentError."""
    n = max([2] if isinstance(output_size, int) is isinstance(kernel_size, int) is True else
            [len(v) for v in (output_size, kernel_size) if not isinstance(v, int)])
    size, k = numbers("col2im", "output_size", output_size, n, 1), numbers("col2im", "kernel_size", kernel_size, n, 1)
    st, di = _steps("col2im", n, stride, dilation)
    if n < 1: raise ArgumentError("col2im: output_size (); give a size for each spatial dimension")
    pairs, s = _paddings("col2im", padding, n), self.shape
    full = tuple([a + lo + hi for a, (lo, hi) in zip(size, pairs)])
    outer = tuple([(a - (b - 1) * d - 1) // t + 1 for a, b, d, t in zip(full, k, di, st)])
    if self.ndim not in (2, 3) or s[-2] % math.prod(k) or min(outer) < 1 or s[-1] != math.prod(outer):
      raise ShapeError(f"col2im: shape {text(self)} for output_size {size}, a kernel of {k}, stride {st}, dilation {di} and "
                       f"padding {tuple(pairs)}; give (n, c * {math.prod(k)}, windows), there being {outer} windows")
    lead = s[:-2] + (s[-2] // math.prod(k),)
    rest = len(lead)
    u = reshape(cast(self.lazydata, acc_dtype(self.dtype)), lead + k + outer)
    # the adjoint of windows: where they overlap their sum
    u = _inside_out(u, rest, n)
    u = untile(reshape(u, u.shape[:rest + n] + (1,) * rest + u.shape[rest + n:]), lead + full,
               ((1, 1, 1),) * rest + tuple(zip(k, st, di)))
    axes = range(rest + n, len(u.shape))
    u = shrink(drop(graph.total(u, axes), axes), [(0, a) for a in lead] + [(lo, lo + a) for a, (lo, _) in zip(size, pairs)])
    return self._wrap(cast(u, self.dtype))._called(None if self._names is None else self._names[:rest - 1] + (None,) * (n + 1))


# ---- taps: how one dimension becomes another
_LOOKED_AT = 1 << 16   # elements of a result whose places are compared on the host
Weight = Callable[[UOp, UOp, DType], UOp]


class Line(NamedTuple):
  """How one dimension of ``size`` becomes one of ``out``: element o is made of ``taps`` elements from ``first(o)`` on. ``firsts``
  are the same numbers on the host, of one period or of all (None: not known there). ``weight`` gives, of o and the place j of a
  tap, its weight or whether it counts; None where each counts as it is. ``edge`` gives weights where what lies outside counts as
  the nearest element."""
  size: int
  out: int
  taps: int
  first: Callable[[UOp], UOp]
  firsts: Host | None
  weight: Weight | None = None
  edge: Weight | None = None

  def period(self) -> tuple[int, int, int, int]:
    """Of one period: how far it goes in the source, and in the result; where its windows begin, and how long they are."""
    g = math.gcd(self.size, self.out)
    step, phases = self.size // g, self.out // g
    assert self.firsts is not None
    begin = self.firsts - np.arange(len(self.firsts)) // phases * step
    low = int(begin.min())
    return step, phases, low, int(begin.max()) - low + self.taps

  def tiles(self) -> bool:
    """Whether windows of a period have few elements that a result does not need."""
    return self.firsts is not None and self.period()[3] <= self.taps * (3 if self.weight else 1)


def _windowed(u: UOp, lines: Sequence[Line], count: Sequence[UOp]) -> tuple[UOp, list[UOp]]:
  """(lead.., sizes..) -> (lead.., outs.., taps..) as windows, and for each line the places of the taps, (out, taps)."""
  n, lead = len(lines), u.shape[:len(u.shape) - len(lines)]
  plan = [line.period() for line in lines]
  ends = [(-low, (line.out // phases - 1) * step + taps - line.size + low)
          for line, (step, phases, low, taps) in zip(lines, plan)]
  u = shrink(u, [(0, s) for s in lead] + [(max(-lo, 0), line.size - max(-hi, 0)) for line, (lo, hi) in zip(lines, ends)])
  u = graph.pad(u, ((0, 0),) * len(lead) + tuple([(max(lo, 0), max(hi, 0)) for lo, hi in ends]))
  u = windows(u, [p[3] for p in plan], [p[0] for p in plan], (1,) * n)
  outer, inner = u.shape[len(lead):len(lead) + n], u.shape[len(lead) + n:]
  u = reshape(u, lead + tuple([v for s in outer for v in (s, 1)]) + inner)
  u = expand(u, lead + tuple([v for s, p in zip(outer, plan) for v in (s, p[1])]) + inner)
  places = [_from(o // phases * step + low, taps) for o, (step, phases, low, taps) in zip(count, plan)]
  return reshape(u, lead + tuple([line.out for line in lines]) + inner), places


def _read(u: UOp, lines: Sequence[Line], count: Sequence[UOp]) -> tuple[UOp, list[UOp]]:
  """The same as ``_windowed``, by index."""
  n = len(lines)
  m = len(u.shape) - n
  shape = *[line.out for line in lines], *[line.taps for line in lines]
  places = [_from(line.first(o), line.taps) for line, o in zip(lines, count)]
  index = [expand(_along(minimum(maximum(j, 0), line.size - 1), k, 2 * n, n + k), shape)
           for k, (line, j) in enumerate(zip(lines, places))]
  t = graph.gather(permute(u, (*range(m, m + n), *range(m))), *index)
  return permute(t, (*range(2 * n, 2 * n + m), *range(2 * n))), places


def _from(first: UOp, taps: int) -> UOp:
  """(n,) -> (n, taps): each and those that follow it."""
  shape = first.shape[0], taps
  return expand(reshape(first, (shape[0], 1)), shape) + broadcast(cast(iota(taps), first.dtype), shape)


def _along(u: UOp, d: int, n: int, e: int | None = None) -> UOp:
  """(a,) or (a, b) with a at dim d and b at dim e of n, all others being 1."""
  shape = [1] * n
  shape[d] = u.shape[0]
  if e is not None: shape[e] = u.shape[1]
  return reshape(u, tuple(shape))


def numbers_of_period(size: int, out: int, all_of_them: bool = False) -> Host | None:
  """The elements of a result in one period, or all of them; None where they are not known, or too many to look at."""
  if type(size) is BoundInt or type(out) is BoundInt: return None
  n = out if all_of_them else out // math.gcd(size, out)
  return np.arange(n, dtype=np.int64) if n <= _LOOKED_AT else None


def same_line(size: int) -> Line: return Line(size, size, 1, lambda o: o, numbers_of_period(size, size))


def _adaptive(size: int, out: int) -> Line:
  """Element o is made of those from o * size / out, rounded down, to (o + 1) * size / out, rounded up."""
  if size is out or size == out: return same_line(size)
  def begin(o: UOp) -> UOp: return o * size // out
  def counts(o: UOp, j: UOp, dtype: DType) -> UOp:
    return le(expand(begin(o), j.shape), j) & lt(j, expand(((o + 1) * size + (out - 1)) // out, j.shape))
  o = numbers_of_period(size, out)
  if o is None: return Line(size, out, size // out + 2, begin, None, counts)
  firsts = o * size // out
  most = int((((o + 1) * size + out - 1) // out - firsts).max())
  return Line(size, out, most, begin, firsts, counts if size % out else None)


def _all_of(weights: Sequence[UOp | None], t: UOp) -> UOp | None:
  """Which taps count, of those that count in each dimension; None for all."""
  rest = len(t.shape) - 2 * len(weights)
  used = [expand(w, (1,) * rest + t.shape[rest:]) for w in weights if w is not None]
  return functools.reduce(and_, used) if used else None


@checked
class Pooling(Scattering, Random):
  """Pooling over the last dimensions; whatever stands before them (batch, channels) stays."""
  __slots__ = ()

  def _pool(self, name: str, n: int | None, kernel_size: Any, stride: Any, dilation: Any, padding: Any, ceil_mode: bool
            ) -> tuple[Shape, Shape, Shape, list[Pair]]:
    """The kernel, stride, dilation and padding of n dims (None: 2, or as many as the kernel has), with what ceil_mode adds."""
    if n is None: n = 2 if isinstance(kernel_size, int) else len(kernel_size)
    if not n: raise ArgumentError(f"{name}: kernel_size {kernel_size}; give a number, or one for each of the last dimensions")
    s = self.shape
    if len(s) < n: raise ShapeError(f"{name}: shape {s}; it takes at least {n} dimension{'s' * (n > 1)}")
    k = numbers(name, "kernel_size", kernel_size, n, 1)
    (st, di), pairs = _steps(name, n, k if stride is None else stride, dilation), _paddings(name, padding, n)
    if any([max(p) > (size - 1) * d // 2 + (size - 1) * d % 2 for size, d, p in zip(k, di, pairs)]):
      raise ArgumentError(f"{name}: padding {tuple(pairs)} with a kernel of {k}; it must be at most half of the kernel, "
                          "so that every window has an element")
    spatial = s[len(s) - n:]
    if ceil_mode:  # further windows that start inside the input or the padding before it
      for i, (size, t, d, dim, (lo, hi)) in enumerate(zip(k, st, di, spatial, pairs)):
        out = -(-(dim + lo + hi - (size - 1) * d - 1) // t) + 1
        if (out - 1) * t >= dim + lo: out -= 1
        pairs[i] = lo, max(hi, (out - 1) * t + (size - 1) * d + 1 - dim - lo)
    _must_fit(name, k, di, spatial, pairs)
    return k, st, di, pairs

  def _windows_of(self, u: UOp, k: Sequence[int], st: Sequence[int], di: Sequence[int], pairs: Sequence[Pair], fill: Any) -> UOp:
    """Windows of the last dims, with the padding filled: (.., out.., kernel..)."""
    return windows(pad_value(u, ((0, 0),) * (len(u.shape) - len(k)) + tuple(pairs), fill), k, st, di)

  # ---- the greatest
  def _greatest(self, name: str, t: UOp, axes: Sequence[int], spatial: Shape, places: Callable[[], UOp] | None,
                used: UOp | None = None) -> Any:
    """The greatest of each window; windows lie along axes, and elements not ``used`` do not count. With ``places``, of
    windows' elements in all sizes, also which it is, int32: the first of equal ones, a NaN before all."""
    best = reduce(BinaryOps.OR if t.dtype.kind == "b" else BinaryOps.MAX, t, axes)
    values = self._wrap(drop(best, axes))
    if places is None: return values
    total, most = math.prod(spatial), dtypes.max(dtypes.int32)
    if total > most: raise ShapeError(f"{name}: indices of {total} elements; int32 counts {most}")
    found = reaches(detach(t), expand(detach(best), t.shape))
    if used is not None: found = found & expand(used, t.shape)
    return values, self._from_node(drop(reduce(BinaryOps.MIN, where(found, places(), most), axes), axes))._called(values._names)

  def _max_pool(self, name: str, n: int | None, kernel_size: Ints = 2, stride: Ints | None = None, dilation: Ints = 1,
                padding: Padding = 0, ceil_mode: bool = False, return_indices: bool = False) -> Any:
    k, st, di, pairs = self._pool(name, n, kernel_size, stride, dilation, padding, ceil_mode)
    t, spatial = self._windows_of(self.lazydata, k, st, di, pairs, dtypes.min(self.dtype)), self.shape[self.ndim - len(k):]
    def places() -> UOp:   # those of the padding come after all others
      at = reshape(iota(math.prod(spatial)), spatial)
      return broadcast(self._windows_of(at, k, st, di, pairs, dtypes.max(dtypes.int32)), t.shape)
    return self._greatest(name, t, tuple(range(len(t.shape) - len(k), len(t.shape))), spatial, places if return_indices else None)

  max_pool1d = member(_max_pool, 1, ":meth:`max_pool2d` over the last dimension: (.., l) -> (.., l').")
  def max_pool2d(self, kernel_size: Ints = (2, 2), stride: Ints | None = None, dilation: Ints = 1, padding: Padding = 0,
                 ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """The greatest of each window of the last dims (2, or as many as the kernel has); stride None is the kernel's size. With
    ``return_indices`` ``(values, indices)``: which element of the flattened last dims it is (int32), the first of equal ones, a
    NaN before all. What follows the stride is in tinygrad's order; give it by name, since PyTorch has another. Raises ShapeError,
    ArgumentError."""
    return self._max_pool("max_pool2d", None, kernel_size, stride, dilation, padding, ceil_mode, return_indices)

  max_pool3d = member(_max_pool, 3, ":meth:`max_pool2d` over the last three dimensions: (.., d, h, w) -> (.., d', h', w').")
  def _unpool(self, name: str, n: int, indices: Operand, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
              output_size: Sequence[int] | None = None) -> Self:
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
    rows = math.prod(lead)
    flat = type(self).zeros(rows, math.prod(size), dtype=self.dtype, device=self.device)
    at, values = [t.named().reshape(rows, -1 if rows else 0) for t in (indices, self)]
    return flat.scatter(1, at, values).reshape(*lead, *size)._own()._called(self._names)

  max_unpool1d = member(_unpool, 1, ":meth:`max_unpool2d` over the last dimension: (.., l') -> (.., l).")
  max_unpool2d = member(_unpool, 2, """
    The values of a max pooling where its ``indices`` (ints of their shape) say, zeros elsewhere: (.., h', w') -> (.., h, w).

    The sizes are (size - 1) * stride - 2 * padding + kernel, or ``output_size``, which may differ by less than the stride. Raises
    ShapeError, DTypeError, ArgumentError.
    """)
  max_unpool3d = member(_unpool, 3, ":meth:`max_unpool2d` over the last three dimensions: (.., d', h', w') -> (.., d, h, w).")
  # ---- means
  def _avg_pool(self, name: str, n: int | None, kernel_size: Ints = 2, stride: Ints | None = None, dilation: Ints = 1,
                padding: Padding = 0, ceil_mode: bool = False, count_include_pad: bool = True,
                divisor_override: int | None = None) -> Self:
    self._needs_floats(name)
    if divisor_override == 0: raise ArgumentError(f"{name}: divisor_override 0; it must not be zero")
    k, st, di, pairs = self._pool(name, n, kernel_size, stride, dilation, padding, ceil_mode)
    m = len(k)
    t = self._windows_of(self.lazydata, k, st, di, pairs, 0)
    axes = tuple(range(len(t.shape) - m, len(t.shape)))
    acc = acc_dtype(t.dtype)
    total = graph.total(cast(t, acc), axes)
    if divisor_override is None and (ceil_mode or (not count_include_pad and any([lo or hi for lo, hi in pairs]))):
      ones = const(1.0, acc, self.shape[self.ndim - m:])
      if count_include_pad:  # only what the caller padded counts, not what ceil_mode added
        given = _paddings(name, padding, m)
        ones = pad_value(ones, given, 1.0)
        pairs = [(0, hi - p) for (_, hi), (_, p) in zip(pairs, given)]
      divided_by = broadcast(graph.total(self._windows_of(ones, k, st, di, pairs, 0), tuple(range(m, 2 * m))), total.shape)
    else: divided_by = const(float(math.prod(k) if divisor_override is None else divisor_override), acc, total.shape)
    return self._wrap(cast(drop(total / divided_by, axes), t.dtype))

  avg_pool1d = member(_avg_pool, 1, ":meth:`avg_pool2d` over the last dimension: (.., l) -> (.., l').")
  def avg_pool2d(self, kernel_size: Ints = (2, 2), stride: Ints | None = None, dilation: Ints = 1, padding: Padding = 0,
                 ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None) -> Self:
    """The mean of each window of the last dims (2, or as many as the kernel has); padding counts as zeros unless told otherwise.
    ``divisor_override`` is what sums are divided by in place of the number of elements. What follows the stride is in tinygrad's
    order; give it by name, since PyTorch has another. Raises ShapeError, ArgumentError, DTypeError for what is not float."""
    return self._avg_pool(
      "avg_pool2d", None, kernel_size, stride, dilation, padding, ceil_mode, count_include_pad, divisor_override)

  avg_pool3d = member(_avg_pool, 3, ":meth:`avg_pool2d` over the last three dimensions: (.., d, h, w) -> (.., d', h', w').")
  def _lp_pool(self, name: str, n: int, norm_type: float, kernel_size: Ints, stride: Ints | None = None,
               ceil_mode: bool = False) -> Self:
    if abs(norm_type) == math.inf:
      sign = 1 if norm_type > 0 else -1
      return (self.abs() * sign)._max_pool(name, n, kernel_size, stride, ceil_mode=ceil_mode) * sign
    p = real_number(name, "norm_type", norm_type)
    if not p: raise ArgumentError(f"{name}: norm_type 0; it must be another number")
    self._needs_floats(name)
    x = self._wide()
    mean = (x.square() if p == 2 else x if p == 1 else x.pow(p))._avg_pool(name, n, kernel_size, stride, ceil_mode=ceil_mode)
    total = mean * math.prod(numbers(name, "kernel_size", kernel_size, n, 1))
    return (total if p == 1 else total._root(1 / p) if p > 0 and p % 2 == 0 else total.pow(1 / p)).cast(self.dtype)

  lp_pool1d = member(_lp_pool, 1, ":meth:`lp_pool2d` over the last dimension: (.., l) -> (.., l').")
  lp_pool2d = member(_lp_pool, 2, """
    sum(x^p)^(1/p) of each window of the last two dimensions, p being ``norm_type``; of even p no slope where it is 0.

    As in PyTorch without abs: 1 is the sum, and of numbers beneath 0 the root of an odd power may be NaN. inf is the greatest
    size, -inf the least. With ``ceil_mode`` a window that ends outside counts as if it went on with its mean. Raises ShapeError,
    ArgumentError, DTypeError.
    """)
  lp_pool3d = member(_lp_pool, 3, ":meth:`lp_pool2d` over the last three dimensions: (.., d, h, w) -> (.., d', h', w').")
  # ---- adaptive pooling
  def _taps(self, u: UOp, lines: Sequence[Line], dtype: DType) -> tuple[UOp, list[UOp], list[UOp | None]]:
    """(lead.., outs.., taps..), and of each line the places of the taps and their weights, made to go with it."""
    count = [iota(line.out) if 2 * (line.size + 2) * (line.out + 2) < 2 ** 31 else cast(iota(line.out), dtypes.int64)
             for line in lines]   # in a dtype that holds what is computed of them
    tiled = all([line.tiles() for line in lines])
    t, places = _windowed(u, lines, count) if tiled else _read(u, lines, count)
    n, m = len(lines), len(t.shape)
    def placed(u: UOp, k: int) -> UOp: return _along(u, m - 2 * n + k, m, m - n + k)
    makers = [line.edge if tiled and line.edge is not None else line.weight for line in lines]
    weights = [None if make is None else placed(make(reshape(o, (*o.shape, 1)), j, dtype), k)
               for k, (make, o, j) in enumerate(zip(makers, count, places))]
    return t, [placed(j, k) for k, j in enumerate(places)], weights

  def _adaptive_sizes(self, name: str, n: int, output_size: Any) -> Shape:
    given = as_tuple(output_size, n)
    if len(given) != n: raise ShapeError(f"{name}: output_size {given} for {n} dimensions; give one number, or {n}")
    if self.ndim < n: raise ShapeError(f"{name}: shape {text(self)}; it takes at least {n} dimension{'s' * (n > 1)}")
    spatial = self.shape[self.ndim - n:]
    if min(spatial) < 1: raise ShapeError(f"{name}: shape {text(self)}; pooled dimensions need at least one element")
    sizes = tuple([s if t is None else t for s, t in zip(spatial, given)])
    if min(sizes) < 1 or max(sizes) > MAX_SIZE:
      raise ArgumentError(f"{name}: output_size {given}; sizes go from 1 to {MAX_SIZE}, None keeps one")
    return sizes

  def _adaptive_avg(self, name: str, n: int, output_size: int | None | Sequence[int | None]) -> Self:
    sizes = self._adaptive_sizes(name, n, output_size)
    self._needs_floats(name)
    acc = acc_dtype(self.dtype)
    t, _, weights = self._taps(
      cast(self.lazydata, acc), [_adaptive(s, t) for s, t in zip(self.shape[self.ndim - n:], sizes)], acc)
    used, axes = _all_of(weights, t), tuple(range(self.ndim, self.ndim + n))
    if used is not None: t = where(expand(used, t.shape), t, 0.0)
    total = graph.total(t, axes)
    if used is not None: total = total / expand(graph.total(cast(used, acc), axes), total.shape)
    elif (count := math.prod(t.shape[self.ndim:])) != 1: total = total / real(count)
    return self._wrap(cast(drop(total, axes), self.dtype))

  adaptive_avg_pool1d = member(_adaptive_avg, 1, ":meth:`adaptive_avg_pool2d` of lines: (.., l) -> (.., output_size).")
  adaptive_avg_pool2d = member(_adaptive_avg, 2, """
    The means of as many windows as the result has elements, which cover the last two dims: (.., h, w) -> (.., *output_size).

    Window o of n goes from o * size / n, rounded down, to (o + 1) * size / n, rounded up. None keeps a size. Raises ShapeError,
    ArgumentError, DTypeError.
    """)
  adaptive_avg_pool3d = member(_adaptive_avg, 3, ":meth:`adaptive_avg_pool2d` of volumes: (.., d, h, w) -> (.., *output_size).")
  def _adaptive_max(self, name: str, n: int, output_size: int | None | Sequence[int | None], return_indices: bool = False) -> Any:
    sizes, spatial = self._adaptive_sizes(name, n, output_size), self.shape[self.ndim - n:]
    t, places, weights = self._taps(self.lazydata, [_adaptive(s, t) for s, t in zip(spatial, sizes)], dtypes.float32)
    used = _all_of(weights, t)
    if used is not None: t = where(expand(used, t.shape), t, dtypes.min(t.dtype))
    def at() -> UOp:
      out = const(0, dtypes.int32, t.shape)
      for size, j in zip(spatial, places): out = out * size + expand(cast(j, dtypes.int32), t.shape)
      return out
    return self._greatest(name, t, range(self.ndim, self.ndim + n), spatial, at if return_indices else None, used)

  adaptive_max_pool1d = member(_adaptive_max, 1, ":meth:`adaptive_max_pool2d` of lines: (.., l) -> (.., output_size).")
  adaptive_max_pool2d = member(_adaptive_max, 2, """
    The greatest of each window of :meth:`adaptive_avg_pool2d`: (.., h, w) -> (.., *output_size).

    With ``return_indices`` ``(values, indices)``, as :meth:`max_pool2d` has them. Raises ShapeError, ArgumentError.
    """)
  adaptive_max_pool3d = member(_adaptive_max, 3, ":meth:`adaptive_max_pool2d` of volumes: (.., d, h, w) -> (.., *output_size).")
  # ---- windows at random
  def _fractional(self, name: str, n: int, kernel_size: Ints, output_size: Ints | None = None,
                  output_ratio: float | Sequence[float] | None = None, return_indices: bool = False,
                  _random_samples: Operand | None = None) -> Any:
    k = numbers(name, "kernel_size", kernel_size, n, 1)
    if self.ndim not in (n + 1, n + 2): raise ShapeError(f"{name}: shape {text(self)}; it takes (n, c, *{n} sizes) or without n")
    if (output_size is None) is (output_ratio is None):
      raise ArgumentError(f"{name}: give output_size or output_ratio, one of them")
    spatial, lead = self.shape[-n:], self.shape[:-n]
    if output_size is None:
      ratios: Any = (output_ratio,) * n if isinstance(output_ratio, (int, float)) else output_ratio
      if len(ratios) != n or not all([0 < r < 1 for r in ratios]):
        raise ArgumentError(f"{name}: output_ratio {shown(output_ratio)}; it takes a number between 0 and 1, or {n} of them")
      output_size = [int(s * r) for s, r in zip(spatial, ratios)]
    sizes = numbers(name, "output_size", output_size, n, 1)
    if any([o + w - 1 > s for o, w, s in zip(sizes, k, spatial)]):
      raise ShapeError(f"{name}: {sizes} windows of {k} do not fit into {spatial}")
    rows = (1,) * (n + 2 - self.ndim) + lead
    u: Any = type(self).rand(*rows, n, device=self.device) if _random_samples is None else _random_samples.named()
    if u.shape != (*rows, n): raise ShapeError(f"{name}: random samples of shape {u.shape}; they are {(*rows, n)}")
    at: Any = None   # of each element of each window, its number in the flattened spatial dims
    for d in range(n):
      number = n - 1 - d if n == 2 else d   # as PyTorch takes them
      start = self._starts(u[..., number].unsqueeze(-1), spatial[d], sizes[d], k[d])   # (*rows, out)
      line = start.unsqueeze(-1) + self._from_node(iota(k[d]))
      line = line.reshape(*rows, *[sizes[d] if e == d else 1 for e in range(n)], *[k[d] if e == d else 1 for e in range(n)])
      at = line if at is None else at * spatial[d] + line
    flat = self.named().reshape(*rows, -1)
    values = flat.gather(2, at.reshape(*rows, -1)).reshape(*at.shape[:-n], -1)   # (*rows, *out, kernel elements)
    places = at.reshape(values.shape)
    out = values.max(axis=-1).reshape(*lead, *sizes)
    if not return_indices: return out
    return out, places.gather(places.ndim - 1, values.detach().argmax(-1, keepdim=True)).squeeze(-1).reshape(*lead, *sizes)

  def _starts(self, u: Any, size: int, out: int, k: int) -> Any:
    """Where windows begin: they grow by alpha or so, from a random offset; the last one ends at the end."""
    if out == 1: return (u * 0).cast(dtypes.int32) + (size - k)
    alpha = (size - k) / (out - 1)
    i = self._from_node(iota(out))
    return (i < out - 1).where(((i + u) * alpha).cast(dtypes.int32) - (u * alpha).cast(dtypes.int32), size - k)

  fractional_max_pool2d = member(_fractional, 2, """
    The greatest of windows that lie at random, as many as ``output_size`` or as ``output_ratio`` of each size: (n, c, h, w) ->
    (n, c, h', w'), or without n (Graham, https://arxiv.org/abs/1412.6071).

    Each n and c has its own two numbers from 0 to 1 (``_random_samples`` (n, c, 2) gives them). With ``return_indices`` also
    which element of the flattened h, w each is, int32. Raises ShapeError, ArgumentError.
    """)
  fractional_max_pool3d = member(
    _fractional, 3, ":meth:`fractional_max_pool2d` of volumes: (n, c, d, h, w) -> (n, c, d', h', w').")
