"""Other sizes for the last dimensions: interpolation, adaptive pooling, pixels to channels and back.

Each element of a result is made of a few neighbouring elements, its taps, along each dimension, with weights that are computed
where they are used. Where the sizes have a ratio of small numbers (2, 1/2, 3/2), the taps of all results of a period lie close
together: they are windows (TILE), whose gradient is windows taken back (UNTILE). For other sizes elements are read by index
(GATHER). Either way one kernel goes over the data for all dimensions together; a dimension's weights may be a small one.
"""
from __future__ import annotations

import math
from functools import reduce
from typing import Any, Callable, NamedTuple, Self, Sequence

import numpy as np

from ntgrad.codegen.ir.dtype import DType, dtypes
from ntgrad.codegen.ir.errors import ArgumentError, DTypeError, ShapeError
from ntgrad.codegen.ir.uop import UOp
from ntgrad.core import MAX_SIZE, Base
from ntgrad.graph import nodes as graph
from ntgrad.graph.checks import Ints, checked
from ntgrad.graph.names import text
from ntgrad.graph.variable import BoundInt, real

from .convolution import each, numbers
from .pooling import first_of, greatest

_LINEAR = {"linear": 1, "bilinear": 2, "trilinear": 3}
_MODES = "nearest", "nearest-exact", *_LINEAR, "bicubic", "area"
_CUBIC = -0.75   # the parameter a of cubic convolution (https://doi.org/10.1109/TASSP.1981.1163711), as PyTorch has it
_LOOKED_AT = 1 << 16   # elements of a result whose places are compared on the host
Host = np.ndarray[Any, Any]
Weight = Callable[[UOp, UOp, DType], UOp]


class Places(NamedTuple):
  """Where the elements of a result lie in a dimension: number o at (a * o + b) / d, exact ints, or, if d is 0, at a * o + b."""
  a: Any
  b: Any
  d: int

  def times_d(self, o: UOp, dtype: DType) -> UOp:
    """The place times d (1 for 0)."""
    o = graph.cast(o, dtype) if not self.d else o
    return graph.add(graph.mul(o, self.a), self.b)

  def below(self, o: UOp, dtype: DType) -> UOp:
    """The place rounded down."""
    at = self.times_d(o, dtype)
    return graph.idiv(at, self.d) if self.d else graph.cast(graph.floor(at), o.dtype)

  def distance(self, o: UOp, j: UOp, dtype: DType, last: int | None) -> UOp:
    """From place j to that of o, which is brought into 0 to ``last`` if that is given."""
    at, d = self.times_d(o, dtype), self.d or 1
    if last is not None: at = graph.minimum(graph.maximum(at, 0), last * d)
    there = graph.cast(graph.mul(j, d), at.dtype)
    difference = graph.cast(graph.sub(graph.expand(at, j.shape), there), dtype)
    return graph.div(difference, float(real(d)))


class Line(NamedTuple):
  """How one dimension of ``size`` becomes one of ``out``: element o is made of ``taps`` elements from ``first(o)`` on.

  ``firsts`` are the same numbers on the host, of one period or of all (None: not known there). ``weight`` gives, of o and the
  place j of a tap, its weight or whether it counts; None for one tap alone. ``edge`` gives weights where what lies outside counts
  as the nearest element.
  """
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
    return self.firsts is not None and self.period()[3] <= (3 * self.taps if self.weight else 1)


def _counted(size: int, most: int) -> UOp:
  """0, 1, .. in a dtype that holds ``most``."""
  return graph.iota(size) if most < 2 ** 31 else graph.cast(graph.iota(size), dtypes.int64)


def _windowed(u: UOp, lines: Sequence[Line], count: Sequence[UOp]) -> tuple[UOp, list[UOp]]:
  """(lead.., sizes..) -> (lead.., outs.., taps..) as windows, and for each line the places of the taps, (out, taps)."""
  n, lead = len(lines), u.shape[:len(u.shape) - len(lines)]
  plan = [line.period() for line in lines]
  ends = []
  for line, (step, phases, low, taps) in zip(lines, plan):
    ends.append((-low, (line.out // phases - 1) * step + taps - line.size + low))
  u = graph.shrink(u, [(0, s) for s in lead] + [(max(-lo, 0), line.size - max(-hi, 0)) for line, (lo, hi) in zip(lines, ends)])
  u = graph.pad(u, ((0, 0),) * len(lead) + tuple([(max(lo, 0), max(hi, 0)) for lo, hi in ends]))
  u = graph.windows(u, [p[3] for p in plan], [p[0] for p in plan], (1,) * n)
  outer, inner = u.shape[len(lead):len(lead) + n], u.shape[len(lead) + n:]
  u = graph.reshape(u, lead + tuple([v for s in outer for v in (s, 1)]) + inner)
  u = graph.expand(u, lead + tuple([v for s, p in zip(outer, plan) for v in (s, p[1])]) + inner)
  places = []
  for o, (step, phases, low, taps) in zip(count, plan):
    begin = graph.add(graph.mul(graph.idiv(o, phases), step), low)
    places.append(_from(begin, taps))
  return graph.reshape(u, lead + tuple([line.out for line in lines]) + inner), places


def _read(u: UOp, lines: Sequence[Line], count: Sequence[UOp]) -> tuple[UOp, list[UOp]]:
  """The same as ``_windowed``, by index."""
  n = len(lines)
  m = len(u.shape) - n
  outs, taps = tuple([line.out for line in lines]), tuple([line.taps for line in lines])
  places = [_from(line.first(o), line.taps) for line, o in zip(lines, count)]
  index = []
  for k, (line, j) in enumerate(zip(lines, places)):
    j = graph.minimum(graph.maximum(j, 0), line.size - 1)
    index.append(graph.expand(_along(j, k, 2 * n, n + k), outs + taps))
  t = graph.gather(graph.permute(u, (*range(m, m + n), *range(m))), *index)
  return graph.permute(t, (*range(2 * n, 2 * n + m), *range(2 * n))), places


def _from(first: UOp, taps: int) -> UOp:
  """(n,) -> (n, taps): each and those that follow it."""
  shape = first.shape[0], taps
  return graph.add(graph.expand(graph.reshape(first, (shape[0], 1)), shape),
                   graph.broadcast(graph.cast(graph.iota(taps), first.dtype), shape))


def _along(u: UOp, d: int, n: int, e: int | None = None) -> UOp:
  """(a,) or (a, b) with a at dim d and b at dim e of n, all others being 1."""
  shape = [1] * n
  shape[d] = u.shape[0]
  if e is not None: shape[e] = u.shape[1]
  return graph.reshape(u, tuple(shape))


# ---- weights
def _linear(at: Places, last: int) -> Weight:
  def weight(o: UOp, j: UOp, dtype: DType) -> UOp:
    far = graph.absolute(at.distance(o, j, dtype, last))
    return graph.maximum(graph.sub(1.0, far), 0.0)
  return weight


def _cubic(at: Places) -> Weight:
  def weight(o: UOp, j: UOp, dtype: DType) -> UOp:
    x = graph.absolute(at.distance(o, j, dtype, None))
    def polynomial(*factors: Any) -> Any: return reduce(lambda out, f: graph.add(graph.mul(out, x), f), factors)
    near, far = polynomial(_CUBIC + 2, -_CUBIC - 3, 0.0, 1.0), polynomial(_CUBIC, -5 * _CUBIC, 8 * _CUBIC, -4 * _CUBIC)
    far = graph.where(graph.lt(x, 2.0), far, 0.0)
    return graph.where(graph.le(x, 1.0), near, far)
  return weight


def _cubic_edges(at: Places, last: int) -> Weight:
  """The weights of ``_cubic`` with those of places outside added to the first and the last element's."""
  inner = _cubic(at)
  def weight(o: UOp, j: UOp, dtype: DType) -> UOp:
    out = inner(o, j, dtype)
    for end, away in ((0, -1), (last, 1)):
      more = graph.add(*[inner(o, graph.add(j, away * k), dtype) for k in (1, 2)])
      out = graph.add(out, graph.where(graph.eq(j, end), more, 0.0))
    return graph.where(graph.inside(j, last + 1), out, 0.0)
  return weight


# ---- lines
def _numbers(size: int, out: int, all_of_them: bool = False) -> Host | None:
  """The elements of a result in one period, or all of them; None where they are not known, or too many to look at."""
  if type(size) is BoundInt or type(out) is BoundInt: return None
  n = out if all_of_them else out // math.gcd(size, out)
  return np.arange(n, dtype=np.int64) if n <= _LOOKED_AT else None


def _same(size: int) -> Line: return Line(size, size, 1, lambda o: o, _numbers(size, size))


def _line(size: int, out: int, scale: float | None, mode: str, corners: bool, dtype: DType) -> Line:
  """A dimension of ``interpolate``; scale is given where it, and not the sizes, says where elements lie."""
  half = mode != "nearest"
  centre = half and mode != "nearest-exact"   # places count from the middle of the first element
  if corners: at = Places(size - 1, 0, max(out - 1, 1))
  elif scale is not None: at = Places(1 / scale, (0.5 / scale if half else 0.0) - 0.5 * centre, 0)
  else: at = Places(2 * size, size - out * centre, 2 * out) if half else Places(size, 0, out)
  o = _numbers(size, out, corners) if at.d else None
  below = None if o is None else (o * at.a + at.b) // at.d
  if mode in ("nearest", "nearest-exact"): return Line(size, out, 1, lambda o: at.below(o, dtype), below)
  if mode == "bicubic":
    return Line(size, out, 4, lambda o: graph.add(at.below(o, dtype), -1), None if below is None else below - 1,
                _cubic(at), _cubic_edges(at, size - 1))
  begin = lambda o: graph.minimum(graph.maximum(at.below(o, dtype), 0), size - 1)  # noqa: E731
  return Line(size, out, 2, begin, below, _linear(at, size - 1))


def _adaptive(size: int, out: int) -> Line:
  """Element o is made of those from o * size / out, rounded down, to (o + 1) * size / out, rounded up."""
  if size is out or size == out: return _same(size)
  def begin(o: UOp) -> UOp: return graph.idiv(graph.mul(o, size), out)
  def end(o: UOp) -> UOp:
    return graph.idiv(graph.add(graph.mul(graph.add(o, 1), size), out - 1), out)
  def counts(o: UOp, j: UOp, dtype: DType) -> UOp:
    return graph.and_(graph.le(graph.expand(begin(o), j.shape), j), graph.lt(j, graph.expand(end(o), j.shape)))
  o = _numbers(size, out)
  if o is None: return Line(size, out, size // out + 2, begin, None, counts)
  firsts = o * size // out
  return Line(size, out, int((((o + 1) * size + out - 1) // out - firsts).max()), begin, firsts, counts)


@checked
class Resampling(Base):
  """Interpolation, adaptive pooling, pixels to channels and back."""
  __slots__ = ()

  def _taps(self, u: UOp, lines: Sequence[Line], dtype: DType) -> tuple[UOp, list[UOp], list[UOp | None]]:
    """(lead.., outs.., taps..), and of each line the places of the taps and their weights, made to go with it."""
    count = [_counted(line.out, 2 * (line.size + 2) * (line.out + 2)) for line in lines]
    tiled = all([line.tiles() for line in lines])
    t, places = _windowed(u, lines, count) if tiled else _read(u, lines, count)
    n, m = len(lines), len(t.shape)
    shaped, weights = [], []
    for k, (line, o, j) in enumerate(zip(lines, count, places)):
      make = line.edge if tiled and line.edge is not None else line.weight
      where = (m - 2 * n + k, m, m - n + k)
      shaped.append(_along(j, *where))
      w = None if make is None else make(graph.reshape(o, (*o.shape, 1)), j, dtype)
      weights.append(None if w is None else _along(w, *where))
    return t, shaped, weights

  def _interpolated(self, lines: Sequence[Line]) -> Self:
    """The weighted sums of taps."""
    n = len(lines)
    if all([line.weight is None for line in lines]):   # what is not computed with stays as it is
      t, _, _ = self._taps(self.lazydata, lines, dtypes.float32)
      return self._wrap(graph.reshape(t, t.shape[:len(t.shape) - n]))
    acc = graph.acc_dtype(self.dtype)
    t, _, weights = self._taps(graph.cast(self.lazydata, acc), lines, acc)
    shape = (1,) * (self.ndim - n) + t.shape[self.ndim - n:]
    w: UOp | None = None
    for one in weights:
      if one is None: continue
      one = graph.expand(one, shape)
      w = one if w is None else graph.mul(w, one)
    assert w is not None
    # what has no weight does not count, whatever it is: 0 * inf would be NaN
    used = graph.ne(w, 0.0)
    t = graph.where(graph.expand(used, t.shape), graph.mul(t, graph.expand(w, t.shape)), 0.0)
    axes = tuple(range(self.ndim, self.ndim + n))
    return self._wrap(graph.cast(graph.drop(graph.total(t, axes), axes), self.dtype))

  def interpolate(self, size: Ints | None = None, scale_factor: float | Sequence[float] | None = None, mode: str = "nearest",
                  align_corners: bool | None = None) -> Self:
    """Another size for the spatial dimensions: (n, c, *spatial) -> (n, c, *size), or scaled by ``scale_factor`` (rounded down).

    ``mode`` is "nearest" (by left edges), "nearest-exact" (by centres), "linear", "bilinear" and "trilinear" for one, two and
    three spatial dimensions, "bicubic" for two, "area" (means, as adaptive_avg_pool). ``align_corners``: the first and the last
    elements stay where they are, in place of the outer edges. All but the nearest modes take floats. Raises ShapeError,
    ArgumentError, DTypeError.
    """
    if mode not in _MODES: raise ArgumentError(f"interpolate: mode {mode!r}; it takes {', '.join(map(repr, _MODES))}")
    n = self.ndim - 2
    want = 2 if mode == "bicubic" else _LINEAR.get(mode, n)
    if n < 1 or n != want:
      raise ShapeError(f"interpolate: shape {text(self)} with mode {mode!r}; it takes (n, c, *spatial), of {want or 1} spatial "
                       f"dimension{'s' * (want > 1)}{' at least' * (n < 1)}")
    if align_corners is not None and mode != "bicubic" and mode not in _LINEAR:
      raise ArgumentError(f"interpolate: align_corners with mode {mode!r}; only linear and cubic modes have it")
    sizes, scales = self._new_sizes(size, scale_factor)
    if mode == "area": return self._adaptive_avg("interpolate", sizes)
    if mode[:7] != "nearest" and self.dtype.kind != "f":
      raise DTypeError(f"interpolate: a tensor of {self.dtype.name} with mode {mode!r}; it takes floats (cast it first)")
    wide = dtypes.float64 if self.dtype is dtypes.float64 else dtypes.float32
    lines = [_same(s) if s is t or s == t and scale in (None, 1) else _line(s, t, scale, mode, bool(align_corners), wide)
             for s, t, scale in zip(self.shape[2:], sizes, scales)]
    return self._interpolated(lines)

  def _new_sizes(self, size: Any, scale_factor: Any) -> tuple[tuple[int, ...], list[float | None]]:
    """The new spatial sizes, and the scale where the sizes do not have it."""
    if (size is None) is (scale_factor is None):
      raise ArgumentError(f"interpolate: size {size} and scale_factor {scale_factor}; give one of them")
    spatial = self.shape[2:]
    n = len(spatial)
    if min(spatial) < 1: raise ShapeError(f"interpolate: shape {text(self)}; spatial dimensions need at least one element")
    if size is not None:
      sizes = numbers("interpolate", "size", size, n, 1)
      scales: list[float | None] = [None] * n
    else:
      given = each("interpolate", "scale_factor", scale_factor, n)
      if not all([math.isfinite(f) and 0 < f <= MAX_SIZE for f in given]):
        raise ArgumentError(f"interpolate: scale_factor {given}; it must be greater than 0")
      sizes = tuple([s * int(f) if f == int(f) else math.floor(s * f) for s, f in zip(spatial, given)])
      scales = [None if f == int(f) or s * f == t else float(f) for s, f, t in zip(spatial, given, sizes)]
    if min(sizes) < 1 or max(sizes) > MAX_SIZE:
      raise ArgumentError(f"interpolate: spatial sizes {spatial} to {sizes}; sizes go from 1 to {MAX_SIZE}")
    return sizes, scales

  # ---- adaptive pooling
  def _adaptive_sizes(self, name: str, n: int, output_size: Any) -> tuple[int, ...]:
    given = tuple(output_size) if isinstance(output_size, (tuple, list)) else (output_size,) * n
    if len(given) != n: raise ShapeError(f"{name}: output_size {given} for {n} dimensions; give one number, or {n}")
    if self.ndim < n: raise ShapeError(f"{name}: shape {text(self)}; it takes at least {n} dimension{'s' * (n > 1)}")
    spatial = self.shape[self.ndim - n:]
    if min(spatial) < 1: raise ShapeError(f"{name}: shape {text(self)}; pooled dimensions need at least one element")
    sizes = tuple([s if t is None else t for s, t in zip(spatial, given)])
    if min(sizes) < 1 or max(sizes) > MAX_SIZE:
      raise ArgumentError(f"{name}: output_size {given}; sizes go from 1 to {MAX_SIZE}, None keeps one")
    return sizes

  def _adaptive_avg(self, name: str, sizes: tuple[int, ...]) -> Self:
    self._needs_floats(name)
    n, acc = len(sizes), graph.acc_dtype(self.dtype)
    lines = [_adaptive(s, t) for s, t in zip(self.shape[self.ndim - n:], sizes)]
    t, _, weights = self._taps(graph.cast(self.lazydata, acc), lines, acc)
    used, axes = _all_of(weights, t), tuple(range(self.ndim, self.ndim + n))
    if used is not None: t = graph.where(graph.expand(used, t.shape), t, 0.0)
    total = graph.total(t, axes)
    if used is not None:
      number = graph.total(graph.cast(used, acc), axes)
      total = graph.div(total, graph.expand(number, total.shape))
    return self._wrap(graph.cast(graph.drop(total, axes), self.dtype))

  def adaptive_avg_pool1d(self, output_size: int | None | Sequence[int | None]) -> Self:
    """:meth:`adaptive_avg_pool2d` over the last dimension: (.., l) -> (.., output_size)."""
    return self._adaptive_avg("adaptive_avg_pool1d", self._adaptive_sizes("adaptive_avg_pool1d", 1, output_size))

  def adaptive_avg_pool2d(self, output_size: int | None | Sequence[int | None]) -> Self:
    """The means of as many windows as the result has elements, which cover the last two dims: (.., h, w) -> (.., *output_size).

    Window o of n goes from o * size / n, rounded down, to (o + 1) * size / n, rounded up. None keeps a size. Raises ShapeError,
    ArgumentError, DTypeError.
    """
    return self._adaptive_avg("adaptive_avg_pool2d", self._adaptive_sizes("adaptive_avg_pool2d", 2, output_size))

  def adaptive_avg_pool3d(self, output_size: int | None | Sequence[int | None]) -> Self:
    """:meth:`adaptive_avg_pool2d` over the last three dimensions: (.., d, h, w) -> (.., *output_size)."""
    return self._adaptive_avg("adaptive_avg_pool3d", self._adaptive_sizes("adaptive_avg_pool3d", 3, output_size))

  def _adaptive_max(self, name: str, n: int, output_size: Any, return_indices: bool) -> Any:
    sizes, spatial = self._adaptive_sizes(name, n, output_size), self.shape[self.ndim - n:]
    t, places, weights = self._taps(self.lazydata, [_adaptive(s, t) for s, t in zip(spatial, sizes)], dtypes.float32)
    used, axes = _all_of(weights, t), tuple(range(self.ndim, self.ndim + n))
    if used is not None:
      t = graph.where(graph.expand(used, t.shape), t, dtypes.min(t.dtype))
    best = greatest(t, axes)
    values = self._wrap(graph.drop(best, axes))
    if not return_indices: return values
    at = graph.const(0, dtypes.int32, t.shape)
    for size, j in zip(spatial, places):
      at = graph.add(graph.mul(at, size), graph.expand(graph.cast(j, dtypes.int32), t.shape))
    return values, self._from_node(first_of(name, t, best, at, used, axes, math.prod(spatial)))._called(values._names)

  def adaptive_max_pool1d(self, output_size: int | None | Sequence[int | None], return_indices: bool = False) -> Any:
    """:meth:`adaptive_max_pool2d` over the last dimension: (.., l) -> (.., output_size)."""
    return self._adaptive_max("adaptive_max_pool1d", 1, output_size, return_indices)

  def adaptive_max_pool2d(self, output_size: int | None | Sequence[int | None], return_indices: bool = False) -> Any:
    """The greatest of each window of :meth:`adaptive_avg_pool2d`: (.., h, w) -> (.., *output_size).

    With ``return_indices`` ``(values, indices)``, as :meth:`max_pool2d` has them. Raises ShapeError, ArgumentError.
    """
    return self._adaptive_max("adaptive_max_pool2d", 2, output_size, return_indices)

  def adaptive_max_pool3d(self, output_size: int | None | Sequence[int | None], return_indices: bool = False) -> Any:
    """:meth:`adaptive_max_pool2d` over the last three dimensions: (.., d, h, w) -> (.., *output_size)."""
    return self._adaptive_max("adaptive_max_pool3d", 3, output_size, return_indices)

  # ---- pixels to channels and back
  def pixel_shuffle(self, upscale_factor: int) -> Self:
    """Channels to pixels (https://arxiv.org/abs/1609.05158): (.., c * r², h, w) -> (.., c, h * r, w * r). Raises ShapeError,
    ArgumentError."""
    r, s = upscale_factor, self.shape
    if r < 1: raise ArgumentError(f"pixel_shuffle: upscale_factor {r}; it must be at least 1")
    if len(s) < 3 or s[-3] % (r * r):
      raise ShapeError(f"pixel_shuffle: shape {text(self)} with upscale_factor {r}; it takes (.., c * {r * r}, h, w)")
    lead, n = s[:-3], len(s) - 3
    u = graph.reshape(self.lazydata, (*lead, s[-3] // (r * r), r, r, *s[-2:]))
    u = graph.permute(u, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return self._wrap(graph.reshape(u, (*lead, s[-3] // (r * r), s[-2] * r, s[-1] * r)))

  def pixel_unshuffle(self, downscale_factor: int) -> Self:
    """Pixels to channels, what takes :meth:`pixel_shuffle` back: (.., c, h * r, w * r) -> (.., c * r², h, w). Raises ShapeError,
    ArgumentError."""
    r, s = downscale_factor, self.shape
    if r < 1: raise ArgumentError(f"pixel_unshuffle: downscale_factor {r}; it must be at least 1")
    if len(s) < 3 or s[-1] % r or s[-2] % r:
      raise ShapeError(f"pixel_unshuffle: shape {text(self)} with downscale_factor {r}; it takes (.., c, h * {r}, w * {r})")
    lead, n = s[:-3], len(s) - 3
    u = graph.reshape(self.lazydata, (*lead, s[-3], s[-2] // r, r, s[-1] // r, r))
    u = graph.permute(u, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return self._wrap(graph.reshape(u, (*lead, s[-3] * r * r, s[-2] // r, s[-1] // r)))


def _all_of(weights: Sequence[UOp | None], t: UOp) -> UOp | None:
  """Which taps count, of those that count in each dimension; None for all."""
  out: UOp | None = None
  n = len(weights)
  shape = (1,) * (len(t.shape) - 2 * n) + t.shape[len(t.shape) - 2 * n:]
  for w in weights:
    if w is not None: out = graph.expand(w, shape) if out is None else graph.and_(out, graph.expand(w, shape))
  return out
