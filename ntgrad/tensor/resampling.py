"""Other sizes for the last dimensions, and elements read at places that are computed: interpolation, sampling by a grid, pixels
to channels and back, shuffled channels.

Interpolation takes each element from its taps (``convolution.py``), with weights that are computed where they are used."""
from __future__ import annotations

import itertools
import math
from functools import reduce
from typing import Any, NamedTuple, Self, Sequence

from ntgrad.codegen.ir import ArgumentError, DType, DTypeError, ShapeError, UOp, acc_dtype, dtypes, promote, shown
from ntgrad.core import MAX_SIZE, whole_number
from ntgrad.graph import Ints, Operand, checked, nodes as graph, of_kind, real, text
from ntgrad.graph.nodes import Shape, absolute, cast, expand, index_along, maximum, minimum, permute, reshape, where

from .convolution import Line, Pooling, Weight, each, numbers, numbers_of_period, same_line
from .creation import new_shape

_LINEAR = {"linear": (1, 2, 3), "bilinear": (2,), "trilinear": (3,)}   # the numbers of spatial dimensions
_MODES = "nearest", "nearest-exact", *_LINEAR, "bicubic", "area"
# the parameter a of cubic convolution (https://doi.org/10.1109/TASSP.1981.1163711), as PyTorch has it: alone, and with antialias
_CUBIC, _CUBIC_WIDE = -0.75, -0.5


class Places(NamedTuple):
  """Where the elements of a result lie in a dimension: number o at (a * o + b) / d, exact ints, or, if d is 0, at a * o + b."""
  a: Any
  b: Any
  d: int

  def times_d(self, o: UOp, dtype: DType) -> UOp:
    """The place times d (1 for 0)."""
    return (o if self.d else cast(o, dtype)) * self.a + self.b

  def below(self, o: UOp, dtype: DType) -> UOp:
    """The place rounded down."""
    at = self.times_d(o, dtype)
    return at // self.d if self.d else cast(graph.floor(at), o.dtype)

  def distance(self, o: UOp, j: UOp, dtype: DType, last: int | None) -> UOp:
    """From place j to that of o, which is brought into 0 to ``last`` if that is given."""
    at, d = self.times_d(o, dtype), self.d or 1
    if last is not None: at = minimum(maximum(at, 0), last * d)
    return cast(expand(at, j.shape) - cast(j * d, at.dtype), dtype) / float(real(d))


# ---- weights
def _near(x: Any, a: float = _CUBIC) -> Any:
  """The cubic weight of an element at a distance up to 1."""
  return ((a + 2) * x + (-a - 3)) * x * x + 1.0


def _far(x: Any, a: float = _CUBIC) -> Any:
  """The same from 1 to 2."""
  return ((a * x + -5 * a) * x + 8 * a) * x + -4 * a


def _by_distance(x: UOp, a: float = _CUBIC) -> UOp:
  """The same at any distance."""
  return where(graph.le(x, 1.0), _near(x, a), where(graph.lt(x, 2.0), _far(x, a), 0.0))


def _cubic(at: Places) -> Weight:
  def weight(o: UOp, j: UOp, dtype: DType) -> UOp:
    return _by_distance(absolute(at.distance(o, j, dtype, None)))
  return weight


def _cubic_edges(at: Places, last: int) -> Weight:
  """The weights of ``_cubic`` with those of places outside added to the first and the last element's."""
  inner = _cubic(at)
  def weight(o: UOp, j: UOp, dtype: DType) -> UOp:
    out = inner(o, j, dtype)
    for end, away in ((0, -1), (last, 1)):
      out = out + where(graph.eq(j, end), graph.add(*[inner(o, j + away * k, dtype) for k in (1, 2)]), 0.0)
    return where(graph.inside(j, last + 1), out, 0.0)
  return weight


def _line(size: int, out: int, scale: float | None, mode: str, corners: bool, dtype: DType) -> Line:
  """A dimension of ``interpolate``; scale is given where it, and not the sizes, says where elements lie."""
  half = mode != "nearest"
  centre = half and mode != "nearest-exact"   # places count from the middle of the first element
  if corners: at = Places(size - 1, 0, max(out - 1, 1))
  elif scale is not None: at = Places(1 / scale, (0.5 / scale if half else 0.0) - 0.5 * centre, 0)
  else: at = Places(2 * size, size - out * centre, 2 * out) if half else Places(size, 0, out)
  o = numbers_of_period(size, out, corners) if at.d else None
  below = None if o is None else (o * at.a + at.b) // at.d
  if mode in ("nearest", "nearest-exact"): return Line(size, out, 1, lambda o: at.below(o, dtype), below)
  if mode == "bicubic":
    return Line(size, out, 4, lambda o: at.below(o, dtype) + -1, None if below is None else below - 1,
                _cubic(at), _cubic_edges(at, size - 1))
  def weight(o: UOp, j: UOp, dtype: DType) -> UOp: return maximum(1.0 - absolute(at.distance(o, j, dtype, size - 1)), 0.0)
  return Line(size, out, 2, lambda o: minimum(maximum(at.below(o, dtype), 0), size - 1), below, weight)


def _wide_line(size: int, out: int, scale: float | None, mode: str, corners: bool) -> Line:
  """A dimension of ``interpolate`` with antialias: where it becomes smaller, weights reach as much further."""
  cubic = mode == "bicubic"
  # centres, counted from the left edge of the first element, as exact halves where sizes say where they lie
  if corners: a, b, d = 2 * (size - 1) * (out > 1), (size - 1) * (out > 1), 2 * max(out - 1, 1)   # type: Any, Any, int
  elif scale is None: a, b, d = 2 * size, size, 2 * out
  else: a, b, d = 1 / scale, 0.5 / scale, 0
  one = d or 1.0                            # a step of one element
  reach = (2 if cubic else 1) * max(a, one)   # on each side
  begin, middle = Places(a, b - reach + one // 2 if d else b - reach + 0.5, d), Places(a, b - one // 2 if d else b - 0.5, d)
  o = numbers_of_period(size, out, corners) if d else None
  def weight(o: UOp, j: UOp, dtype: DType) -> UOp:
    x = absolute(middle.distance(o, j, dtype, None)) * (one / max(a, one))
    return where(graph.inside(j, size), _by_distance(x, _CUBIC_WIDE) if cubic else maximum(1.0 - x, 0.0), 0.0)
  return Line(size, out, math.ceil(2 * reach / one) + (not d), lambda o: begin.below(o, dtypes.float32),
              None if o is None else (o * begin.a + begin.b) // d, weight)


def _kept_within(at: Any, size: int, padding: str, corners: bool) -> Any:
  """Places outside brought back to the edge, or mirrored there."""
  if padding == "reflection":
    low, span = (0.0, size - 1) if corners else (-0.5, size)
    if not span: at = at * 0
    else:
      d = (at - low).abs()
      turns = (d / span).floor()
      rest = d - turns * span
      at = (turns % 2 == 0).where(rest, span - rest) + low
  return at if padding == "zeros" else at.clamp(0, size - 1)


@checked
class Resampling(Pooling):
  """Interpolation, sampling by a grid, pixels to channels and back."""
  __slots__ = ()

  # ---- interpolation
  def _interpolated(self, lines: Sequence[Line], means: bool = False) -> Self:
    """The weighted sums of taps, or their means."""
    n = len(lines)
    if all([line.weight is None for line in lines]):   # what is not computed with stays as it is
      t, _, _ = self._taps(self.lazydata, lines, dtypes.float32)
      return self._wrap(reshape(t, t.shape[:len(t.shape) - n]))
    acc = acc_dtype(self.dtype)
    t, _, weights = self._taps(cast(self.lazydata, acc), lines, acc)
    shape = (1,) * (self.ndim - n) + t.shape[self.ndim - n:]
    w = reduce(graph.mul, [expand(one, shape) for one in weights if one is not None])
    # what has no weight does not count, whatever it is: 0 * inf would be NaN
    t = where(expand(graph.ne(w, 0.0), t.shape), t * expand(w, t.shape), 0.0)
    axes = range(self.ndim, self.ndim + n)
    t = graph.total(t, axes)
    if means: t = t / expand(graph.total(w, axes), t.shape)
    return self._wrap(cast(graph.drop(t, axes), self.dtype))

  def interpolate(self, size: Ints | None = None, scale_factor: float | Sequence[float] | None = None, mode: str = "nearest",
                  align_corners: bool | None = None, antialias: bool = False) -> Self:
    """Another size for the spatial dimensions: (n, c, *spatial) -> (n, c, *size), or scaled by ``scale_factor`` (rounded down).
    ``mode`` is "nearest" (by left edges), "nearest-exact" (by centres), "linear" for one, two and three spatial dimensions,
    "bilinear" and "bicubic" for two, "trilinear" for three, "area" (means, as adaptive_avg_pool). ``align_corners``: the first
    and the last elements stay where they are, in place of the outer edges. ``antialias``, of "bilinear" and "bicubic": where a
    dimension becomes smaller, each result is made of all elements that it stands for. All but the nearest modes take floats;
    "linear", "bilinear" and "bicubic" uint8 too, with results rounded along each dimension, the last one first.
    Raises ShapeError, ArgumentError, DTypeError."""
    if mode not in _MODES: raise ArgumentError(f"interpolate: mode {mode!r}; it takes {', '.join(map(repr, _MODES))}")
    n = self.ndim - 2
    want = (2,) if mode == "bicubic" else _LINEAR.get(mode, (n,))
    if n < 1 or n not in want:
      raise ShapeError(f"interpolate: shape {text(self)} with mode {mode!r}; it takes (n, c, *spatial), the "
                       f"number of spatial dimensions being {' or '.join(map(str, want)) if n > 0 else 'at least 1'}")
    if align_corners is not None and mode != "bicubic" and mode not in _LINEAR:
      raise ArgumentError(f"interpolate: align_corners with mode {mode!r}; only linear and cubic modes have it")
    if antialias and mode not in ("bilinear", "bicubic"):
      raise ArgumentError(f"interpolate: antialias with mode {mode!r}; it is for 'bilinear' and 'bicubic'")
    sizes, scales = self._new_sizes(size, scale_factor)
    if mode == "area": return self._adaptive_avg("interpolate", n, sizes)
    rounds = self.dtype is dtypes.uint8 and mode in ("bilinear", "linear", "bicubic")
    if mode[:7] != "nearest" and self.dtype.kind != "f" and not rounds:
      raise DTypeError(f"interpolate: a tensor of {self.dtype.name} with mode {mode!r}; it takes floats (cast it first)")
    wide = dtypes.float64 if self.dtype is dtypes.float64 else dtypes.float32
    if antialias or rounds:   # a dimension after the other, the last one first
      out = self.cast(wide if rounds else acc_dtype(self.dtype))
      for k in range(n - 1, -1, -1):
        if sizes[k] == self.shape[2 + k] and scales[k] in (None, 1): continue
        lines, given = [same_line(s) for s in out.shape[2:]], (self.shape[2 + k], sizes[k], scales[k], mode, bool(align_corners))
        lines[k] = _wide_line(*given) if antialias else _line(*given, wide)
        out = out._interpolated(lines, antialias)
        if rounds: out = (out + 0.5).floor().clamp(0, 255)
      return out.cast(self.dtype)._own()
    return self._interpolated([
      same_line(s) if s is t or s == t and scale in (None, 1) else _line(s, t, scale, mode, bool(align_corners), wide)
      for s, t, scale in zip(self.shape[2:], sizes, scales)])

  def _new_sizes(self, size: Any, scale_factor: Any) -> tuple[Shape, list[float | None]]:
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

  # ---- pixels to channels and back
  def pixel_shuffle(self, upscale_factor: int) -> Self:
    """Channels to pixels (https://arxiv.org/abs/1609.05158): (.., c * r², h, w) -> (.., c, h * r, w * r). Raises ShapeError,
    ArgumentError."""
    r, s = upscale_factor, self.shape
    if r < 1: raise ArgumentError(f"pixel_shuffle: upscale_factor {r}; it must be at least 1")
    if len(s) < 3 or s[-3] % (r * r):
      raise ShapeError(f"pixel_shuffle: shape {text(self)} with upscale_factor {r}; it takes (.., c * {r * r}, h, w)")
    lead, n = (*s[:-3], s[-3] // (r * r)), len(s) - 2
    u = permute(reshape(self.lazydata, (*lead, r, r, *s[-2:])), (*range(n), n + 2, n, n + 3, n + 1))
    return self._wrap(reshape(u, (*lead, s[-2] * r, s[-1] * r)))

  def pixel_unshuffle(self, downscale_factor: int) -> Self:
    """Pixels to channels, what takes :meth:`pixel_shuffle` back: (.., c, h * r, w * r) -> (.., c * r², h, w). Raises ShapeError,
    ArgumentError."""
    r, s = downscale_factor, self.shape
    if r < 1: raise ArgumentError(f"pixel_unshuffle: downscale_factor {r}; it must be at least 1")
    if len(s) < 3 or s[-1] % r or s[-2] % r:
      raise ShapeError(f"pixel_unshuffle: shape {text(self)} with downscale_factor {r}; it takes (.., c, h * {r}, w * {r})")
    h, w, n = s[-2] // r, s[-1] // r, len(s) - 2
    u = permute(reshape(self.lazydata, (*s[:-2], h, r, w, r)), (*range(n), n + 1, n + 3, n, n + 2))
    return self._wrap(reshape(u, (*s[:-3], s[-3] * r * r, h, w)))

  # ---- grids
  def affine_grid(self, size: Sequence[int], align_corners: bool | None = False) -> Self:
    """The places that affine maps (n, 2, 3), or (n, 3, 4), send a regular grid to, for ``grid_sample``: (n, h, w, 2), or (n, d,
    h, w, 3), x first, where ``size`` is (n, c, h, w), or (n, c, d, h, w). The grid goes from -1 to 1: the centres of the
    outermost elements with ``align_corners``, else their outer edges (Jaderberg et al., https://arxiv.org/abs/1506.02025). Raises
    ShapeError, DTypeError, ArgumentError."""
    given, rank = tuple(size), len(size) - 2
    if rank not in (2, 3) or self.shape != (given[0], rank, rank + 1):
      raise ShapeError(f"affine_grid: maps of shape {text(self)} for size {given}; it takes (n, 2, 3) with (n, c, h, w), or "
                       "(n, 3, 4) with (n, c, d, h, w)")
    of_kind("f", "affine_grid", "maps", self, "it takes floats")
    new_shape("affine_grid", given)
    maps: Any = self.named()._wide()
    lines = [(self._from_node(graph.iota(s)).cast(maps.dtype) * 2 + (1 - s)) / max(s - 1 if align_corners else s, 1)
             for s in given[:1:-1]]
    out = maps[:, :, rank].reshape(given[0], *[1] * rank, rank)
    for k, t in enumerate(lines):
      along = t.reshape(*[-1 if rank - 1 - k == d else 1 for d in range(rank)], 1)
      out = out + along * maps[:, :, k].reshape(given[0], *[1] * rank, rank)
    return out.expand(given[0], *given[2:], rank).cast(self.dtype)

  def grid_sample(self, grid: Operand, mode: str = "bilinear", padding_mode: str = "zeros",
                  align_corners: bool | None = False) -> Self:
    """Elements of (n, c, h, w) at the places of a grid (n, h', w', 2), x first, from -1 to 1: (n, c, h', w'); or of (n, c, d, h,
    w) at those of (n, d', h', w', 3). ``mode``: bilinear (of neighbours), nearest, or bicubic (two dims). ``padding_mode``: what
    lies outside counts as zeros, as the border, or mirrored (reflection). With ``align_corners`` -1 and 1 are the centres of the
    outermost elements, else their outer edges. Raises ShapeError, DTypeError, ArgumentError."""
    rank = self.ndim - 2
    if mode not in ("bilinear", "nearest", "bicubic") or (mode == "bicubic" and rank == 3):
      raise ArgumentError(f"grid_sample: mode {shown(mode)}; it takes 'bilinear', 'nearest' or, for (n, c, h, w), 'bicubic'")
    if padding_mode not in ("zeros", "border", "reflection"):
      raise ArgumentError(f"grid_sample: padding_mode {shown(padding_mode)}; it takes 'zeros', 'border' or 'reflection'")
    if rank not in (2, 3) or grid.ndim != rank + 2 or grid.shape[0] != self.shape[0] or grid.shape[-1] != rank:
      raise ShapeError(f"grid_sample: a grid of shape {text(grid)} for {text(self)}; it takes (n, h', w', 2) for (n, c, h, w), "
                       "or (n, d', h', w', 3) for (n, c, d, h, w)")
    if self.dtype.kind != "f" or grid.dtype.kind != "f":
      raise DTypeError(f"grid_sample: a tensor of {self.dtype.name} and a grid of {grid.dtype.name}; both must be floats")
    if not all(self.shape[2:]): raise ShapeError(f"grid_sample: a tensor of shape {text(self)}; it has nothing to sample")
    out, sizes = promote(self.dtype, grid.dtype), self.shape[2:]
    places = grid.named().cast(acc_dtype(out))
    taps = [self._taps_at(places[..., rank - 1 - k], s, mode, padding_mode, bool(align_corners)) for k, s in enumerate(sizes)]
    values: list[Any] = []   # (n, c, *out) each
    for chosen in itertools.product(*taps):
      values.append(self._read_at([index for index, _ in chosen]).cast(places.dtype))
      factors = [w for _, w in chosen if w is not None]
      if factors: values[-1] = values[-1] * math.prod(factors[1:], start=factors[0]).unsqueeze(1)
    return sum(values[1:], values[0]).cast(out)

  def _taps_at(self, at: Any, size: int, mode: str, padding: str, corners: bool) -> list[tuple[Any, Any]]:
    """The elements of one dimension that a result is made of, as indices, and their weights (None: 1)."""
    at = (at + 1) * ((size - 1) / 2) if corners else ((at + 1) * size - 1) * 0.5
    def index(t: Any) -> Any: return t.detach().clamp(-4, size + 4).cast(dtypes.int32)
    if mode == "nearest": return [(index(_kept_within(at, size, padding, corners).round()), None)]
    if mode == "bilinear": at = _kept_within(at, size, padding, corners)
    first = at.detach().floor()
    t = at - first
    if mode == "bilinear": return [(index(first), 1 - t), (index(first + 1), t)]
    weights = _far(t + 1), _near(t), _near(1 - t), _far(2 - t)
    return [(index(_kept_within(first + k - 1, size, padding, corners)), w) for k, w in enumerate(weights)]

  def _read_at(self, places: Sequence[Any]) -> Any:
    """(n, c, ..) at a place for each further dim, (n, *out) each: (n, c, *out), zeros outside."""
    n, *out = places[0].shape
    s = n, self.shape[1], *out
    index = [expand(reshape(p.lazydata, (n, 1, *out)), s) for p in places]
    return self._wrap_many(graph.gather(self.lazydata, index_along(0, s), index_along(1, s), *index), ())

  # ---- channels
  def channel_shuffle(self, groups: int) -> Self:
    """Channels of ``groups`` groups taken in turn, one of each: (n, c, ..) -> the same (https://arxiv.org/abs/1707.01083). Raises
    ShapeError, ArgumentError."""
    groups = whole_number("channel_shuffle", "groups", groups, 1)
    if self.ndim < 3 or self.shape[1] % groups:
      raise ShapeError(f"channel_shuffle: shape {text(self)} with {groups} groups; it takes (n, c, ..), c a multiple of {groups}")
    n, c, *rest = self.shape
    return self.named().reshape(n, groups, c // groups, *rest).transpose(1, 2).reshape(self.shape)._own()._called(self._names)
