"""Elements read at places that are computed: sampling by a grid, max pooling with windows at random, shuffled channels."""
from __future__ import annotations

import itertools
import math
from typing import Any, Self, Sequence

from ntgrad.codegen.ir.dtype import dtypes, promote
from ntgrad.codegen.ir.errors import ArgumentError, DTypeError, ShapeError, shown
from ntgrad.core import whole_number
from ntgrad.graph import nodes as graph
from ntgrad.graph.checks import Ints, Operand, checked, of_kind
from ntgrad.graph.names import text

from .convolution import numbers
from .creation import new_shape
from .indexing import Indexing
from .numeric import Numeric
from .random import Random

_CUBIC = -0.75   # the parameter a of cubic convolution (https://doi.org/10.1109/TASSP.1981.1163711), as PyTorch has it


def _cubic(t: Any) -> list[Any]:
  """The weights of the four elements around a place that lies t behind the second."""
  a = _CUBIC
  def near(d: Any) -> Any: return ((a + 2) * d - (a + 3)) * d * d + 1
  def far(d: Any) -> Any: return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
  return [far(t + 1), near(t), near(1 - t), far(2 - t)]


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
class Sampling(Indexing, Random, Numeric):
  """Elements read at places that are computed."""
  __slots__ = ()

  # ---- grids
  def affine_grid(self, size: Sequence[int], align_corners: bool = False) -> Self:
    """The places that affine maps (n, 2, 3), or (n, 3, 4), send a regular grid to, for ``grid_sample``: (n, h, w, 2), or
    (n, d, h, w, 3), x first, where ``size`` is (n, c, h, w), or (n, c, d, h, w).

    The grid goes from -1 to 1: the centres of the outermost elements with ``align_corners``, else their outer edges (Jaderberg et
    al., https://arxiv.org/abs/1506.02025). Raises ShapeError, DTypeError, ArgumentError.
    """
    name, given, rank = "affine_grid", tuple(size), len(size) - 2
    if rank not in (2, 3) or self.shape != (given[0], rank, rank + 1):
      raise ShapeError(f"{name}: maps of shape {text(self)} for size {given}; it takes (n, 2, 3) with (n, c, h, w), or (n, 3, 4) "
                       "with (n, c, d, h, w)")
    of_kind("f", name, "maps", self, "it takes floats")
    new_shape(name, given)
    maps: Any = self.named().cast(graph.acc_dtype(self.dtype))
    lines = [(self._from_node(graph.iota(s)).cast(maps.dtype) * 2 + (1 - s)) / max(s - 1 if align_corners else s, 1)
             for s in given[:1:-1]]
    out = maps[:, :, rank].reshape(given[0], *[1] * rank, rank)
    for k, t in enumerate(lines):
      along = t.reshape(*[-1 if rank - 1 - k == d else 1 for d in range(rank)], 1)
      out = out + along * maps[:, :, k].reshape(given[0], *[1] * rank, rank)
    done: Self = out.expand(given[0], *given[2:], rank).cast(self.dtype)
    return done

  def grid_sample(self, grid: Operand, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = False) -> Self:
    """Elements of (n, c, h, w) at the places of a grid (n, h', w', 2), x first, from -1 to 1: (n, c, h', w'); or of (n, c, d, h,
    w) at those of (n, d', h', w', 3).

    ``mode``: bilinear (of neighbours), nearest, or bicubic (two dims). ``padding_mode``: what lies outside counts as zeros, as
    the border, or mirrored (reflection). With ``align_corners`` -1 and 1 are the centres of the outermost elements, else their
    outer edges. Raises ShapeError, DTypeError, ArgumentError.
    """
    name, rank = "grid_sample", self.ndim - 2
    if mode not in ("bilinear", "nearest", "bicubic") or (mode == "bicubic" and rank == 3):
      raise ArgumentError(f"{name}: mode {shown(mode)}; it takes 'bilinear', 'nearest' or, for (n, c, h, w), 'bicubic'")
    if padding_mode not in ("zeros", "border", "reflection"):
      raise ArgumentError(f"{name}: padding_mode {shown(padding_mode)}; it takes 'zeros', 'border' or 'reflection'")
    if rank not in (2, 3) or grid.ndim != rank + 2 or grid.shape[0] != self.shape[0] or grid.shape[-1] != rank:
      raise ShapeError(f"{name}: a grid of shape {text(grid)} for {text(self)}; it takes (n, h', w', 2) for (n, c, h, w), or "
                       "(n, d', h', w', 3) for (n, c, d, h, w)")
    if self.dtype.kind != "f" or grid.dtype.kind != "f":
      raise DTypeError(f"{name}: a tensor of {self.dtype.name} and a grid of {grid.dtype.name}; both must be floats")
    if not all(self.shape[2:]): raise ShapeError(f"{name}: a tensor of shape {text(self)}; it has nothing to sample")
    out, sizes = promote(self.dtype, grid.dtype), self.shape[2:]
    places = grid.named().cast(graph.acc_dtype(out))
    taps = [self._taps_at(places[..., rank - 1 - k], s, mode, padding_mode, align_corners) for k, s in enumerate(sizes)]
    total: Any = None
    for chosen in itertools.product(*taps):
      value = self._read_at([index for index, _ in chosen]).cast(places.dtype)   # (n, c, *out)
      factors = [w for _, w in chosen if w is not None]
      if factors: value = value * math.prod(factors[1:], start=factors[0]).unsqueeze(1)
      total = value if total is None else total + value
    done: Self = total.cast(out)
    return done

  def _taps_at(self, at: Any, size: int, mode: str, padding: str, corners: bool) -> list[tuple[Any, Any]]:
    """The elements of one dimension that a result is made of, as indices, and their weights (None: 1)."""
    at = (at + 1) * ((size - 1) / 2) if corners else ((at + 1) * size - 1) * 0.5
    def index(t: Any) -> Any: return t.detach().clamp(-4, size + 4).cast(dtypes.int32)
    if mode == "nearest": return [(index(_kept_within(at, size, padding, corners).round()), None)]
    if mode == "bilinear": at = _kept_within(at, size, padding, corners)
    first = at.detach().floor()
    t = at - first
    if mode == "bilinear": return [(index(first), 1 - t), (index(first + 1), t)]
    return [(index(_kept_within(first + k - 1, size, padding, corners)), w) for k, w in enumerate(_cubic(t))]

  def _read_at(self, places: Sequence[Any]) -> Any:
    """(n, c, ..) at a place for each further dim, (n, *out) each: (n, c, *out), zeros outside."""
    n, *out = places[0].shape
    s = (n, self.shape[1], *out)
    index = [graph.index_along(0, s), graph.index_along(1, s)]
    for p in places: index.append(graph.expand(graph.reshape(p.lazydata, (n, 1, *out)), s))
    return self._wrap_many(graph.gather(self.lazydata, *index), ())

  # ---- windows at random
  def _fractional(self, name: str, n: int, kernel_size: Any, output_size: Any, output_ratio: Any, return_indices: bool,
                  samples: Any) -> Any:
    k = numbers(name, "kernel_size", kernel_size, n, 1)
    if self.ndim not in (n + 1, n + 2): raise ShapeError(f"{name}: shape {text(self)}; it takes (n, c, *{n} sizes) or without n")
    if (output_size is None) is (output_ratio is None):
      raise ArgumentError(f"{name}: give output_size or output_ratio, one of them")
    spatial, lead = self.shape[-n:], self.shape[:-n]
    if output_size is None:
      ratios = (output_ratio,) * n if isinstance(output_ratio, (int, float)) else tuple(output_ratio)
      if len(ratios) != n or not all([0 < r < 1 for r in ratios]):
        raise ArgumentError(f"{name}: output_ratio {shown(output_ratio)}; it takes a number between 0 and 1, or {n} of them")
      output_size = [int(s * r) for s, r in zip(spatial, ratios)]
    sizes = numbers(name, "output_size", output_size, n, 1)
    if any([o + w - 1 > s for o, w, s in zip(sizes, k, spatial)]):
      raise ShapeError(f"{name}: {sizes} windows of {k} do not fit into {spatial}")
    rows = (1,) * (n + 2 - self.ndim) + lead
    make: Any = type(self)
    u = make.rand(*rows, n, device=self.device) if samples is None else samples.named()
    if u.shape != (*rows, n): raise ShapeError(f"{name}: random samples of shape {u.shape}; they are {(*rows, n)}")
    at: Any = None   # of each element of each window, its number in the flattened spatial dims
    for d in range(n):
      number = n - 1 - d if n == 2 else d   # as PyTorch takes them
      start = self._starts(u[..., number].unsqueeze(-1), spatial[d], sizes[d], k[d])   # (*rows, out)
      line = start.unsqueeze(-1) + self._from_node(graph.iota(k[d]))
      line = line.reshape(*rows, *[sizes[d] if e == d else 1 for e in range(n)], *[k[d] if e == d else 1 for e in range(n)])
      at = line if at is None else at * spatial[d] + line
    flat = self.named().reshape(*rows, -1)
    values = flat.gather(2, at.reshape(*rows, -1)).reshape(*at.shape[:-n], -1)   # (*rows, *out, kernel elements)
    places = at.reshape(values.shape)
    out = values.max(axis=-1).reshape(*lead, *sizes)
    if not return_indices: return out
    first = values.detach().argmax(-1, keepdim=True)
    return out, places.gather(places.ndim - 1, first).squeeze(-1).reshape(*lead, *sizes)

  def _starts(self, u: Any, size: int, out: int, k: int) -> Any:
    """Where windows begin: they grow by alpha or so, from a random offset; the last one ends at the end."""
    if out == 1: return (u * 0).cast(dtypes.int32) + (size - k)
    alpha = (size - k) / (out - 1)
    i = self._from_node(graph.iota(out))
    begin = ((i + u) * alpha).cast(dtypes.int32) - (u * alpha).cast(dtypes.int32)
    return (i < out - 1).where(begin, size - k)

  def fractional_max_pool2d(self, kernel_size: Ints, output_size: Ints | None = None,
                            output_ratio: float | Sequence[float] | None = None, return_indices: bool = False,
                            _random_samples: Operand | None = None) -> Any:
    """The greatest of windows that lie at random, as many as ``output_size`` or as ``output_ratio`` of each size: (n, c, h, w) ->
    (n, c, h', w'), or without n (Graham, https://arxiv.org/abs/1412.6071).

    Each n and c has its own two numbers from 0 to 1 (``_random_samples`` (n, c, 2) gives them). With ``return_indices`` also
    which element of the flattened h, w each is, int32. Raises ShapeError, ArgumentError.
    """
    return self._fractional("fractional_max_pool2d", 2, kernel_size, output_size, output_ratio, return_indices, _random_samples)

  def fractional_max_pool3d(self, kernel_size: Ints, output_size: Ints | None = None,
                            output_ratio: float | Sequence[float] | None = None, return_indices: bool = False,
                            _random_samples: Operand | None = None) -> Any:
    """:meth:`fractional_max_pool2d` over three dimensions: (n, c, d, h, w) -> (n, c, d', h', w')."""
    return self._fractional("fractional_max_pool3d", 3, kernel_size, output_size, output_ratio, return_indices, _random_samples)

  # ---- channels
  def channel_shuffle(self, groups: int) -> Self:
    """Channels of ``groups`` groups taken in turn, one of each: (n, c, ..) -> the same (https://arxiv.org/abs/1707.01083). Raises
    ShapeError, ArgumentError."""
    groups = whole_number("channel_shuffle", "groups", groups, 1)
    if self.ndim < 3 or self.shape[1] % groups:
      raise ShapeError(f"channel_shuffle: shape {text(self)} with {groups} groups; it takes (n, c, ..), c a multiple of {groups}")
    n, c, *rest = self.shape
    return self.named().reshape(n, groups, c // groups, *rest).transpose(1, 2).reshape(self.shape)._own()._called(self._names)
