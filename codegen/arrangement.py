"""Arrangements: a parameter's source tensor seen as nested levels.

The outermost level is the grid, the innermost the tile, levels between are looped over. Every meta-operation gives a new
Arrangement and is one or a few transforms of ``view.py``, so what prints (``data1(64, 32).tile((8, 32))``) is what computes the
indices. ``access.py`` goes the other way: from the index expressions of a kernel to the meta-operations that make them.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Sequence

import numpy as np

from . import index as ix
from .errors import ArgumentError, AxisError, IndexOutOfRangeError, ShapeError
from .uop import BinaryOps, Ops, UOp, prod, toposort
from .view import TRANSFORMS, Pulled, Regrouped, Shape, View

Ints = int | Sequence[int]
Key = int | slice | None | Any  # or an Ellipsis


_NUMPY: dict[Any, Any] = {
  BinaryOps.ADD: np.add,
  BinaryOps.MUL: np.multiply,
  BinaryOps.IDIV: np.floor_divide,
  BinaryOps.MOD: np.mod,
  BinaryOps.MIN: np.minimum,
  BinaryOps.CMPLT: np.less,
  BinaryOps.CMPEQ: np.equal,
  BinaryOps.AND: np.logical_and,
}


def _ints(name: str, values: Ints, n: int, what: str) -> Shape:
  """``values`` as ``n`` ints."""
  got = (values,) * n if isinstance(values, int) else tuple(values)
  if len(got) != n: raise ShapeError(f"{name}: one {what} a dimension, so {n} of them, got {got}")
  if not all(isinstance(v, int) for v in got): raise ArgumentError(f"{name}: each {what} is an int, got {got}")
  return got


def full_key(key: Any, n: int) -> tuple[Any, ...]:
  """An indexing key with one entry for each of ``n`` dimensions (and each None): the Ellipsis filled in, whole dimensions at the
  end."""
  keys = key if isinstance(key, tuple) else (key,)
  dots = sum(k is Ellipsis for k in keys)
  given = sum(k is not None and k is not Ellipsis for k in keys)
  if dots > 1: raise ArgumentError("index: ... may stand once")
  if given > n: raise AxisError(f"index: {given} indices for {n} dimensions")
  at = next((i for i, k in enumerate(keys) if k is Ellipsis), len(keys))
  return (*keys[:at], *[slice(None)] * (n - given), *keys[at + 1:])


def key_text(key: Any, called: bool = False) -> str:
  """A key as written: between brackets, or as an argument of a call."""
  if not isinstance(key, tuple): return entry_text(key, called)
  text = ", ".join([entry_text(k, called) for k in key])
  return f"({text}{',' * (len(key) == 1)})" if called else text or "()"


def entry_text(key: Any, called: bool) -> str:
  """A key's entry for one dimension."""
  if key is Ellipsis: return "..."
  if not isinstance(key, slice): return str(key)
  if called: return f"slice({key.start}, {key.stop}, {key.step})"
  start, stop, step = ("" if v is None else str(v) for v in (key.start, key.stop, key.step))
  return f"{start}:{stop}" + (f":{step}" if step else "")


@dataclass(frozen=True)
class Arrangement:
  """A source of shape ``source`` through ``view``, whose output dimensions are those of ``levels``, outermost first.

  ``Arrangement.of((64, 32)).tile((8, 32))`` has levels ``((8, 1), (8, 32))``. The meta-operations work on the outermost level, or
  on the one that ``level`` names. Each raises ShapeError, AxisError or ArgumentError where it does not fit.
  """
  source: Shape
  view: View
  levels: tuple[Shape, ...]
  chain: tuple[str, ...] = ()

  @staticmethod
  def of(shape: Sequence[int]) -> Arrangement:
    """The whole source as one level."""
    return Arrangement(tuple(shape), View(tuple(shape)), (tuple(shape),))

  @property
  def shape(self) -> Shape:
    """The outermost level."""
    return self.levels[0]

  def text(self, name: str = "source") -> str:
    """The meta-operations, as written: ``data1(64, 32).tile((8, 32))``."""
    return f"{name}({', '.join(map(str, self.source))})" + "".join(self.chain)

  def __str__(self) -> str: return self.text()

  def pull(self, indices: Sequence[Sequence[UOp | int]]) -> Pulled:
    """Where in the source an element lies, from one index a dimension of each level, and whether there is one.

    (program, …, element of the tile) -> (source indices, valid). Ints or index UOps. Raises ShapeError for too few or too many.
    """
    if tuple(map(len, indices)) != tuple(map(len, self.levels)):
      raise ShapeError(f"pull: {self} has levels {self.levels}, got {[len(i) for i in indices]} indices")
    return self.view.pull([ix.const(i) if isinstance(i, int) else i for level in indices for i in level])

  @property
  def once(self) -> bool:
    """Whether no element of the source comes twice: no two windows share one, and nothing is expanded."""
    shape = self.view.source
    for op, arg in self.view.steps:
      before, shape = shape, TRANSFORMS[op][0](shape, arg)
      if op is Ops.EXPAND and before != shape: return False
      if op is not Ops.TILE: continue
      for (size, stride, gap, *moved), count in zip(arg, shape):
        common = math.gcd(stride, gap)   # windows i and i + n share one where n * stride is a multiple of gap below size * gap
        if moved or (gap // common < count and stride // common < size): return False
    return True

  def elements(self) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The picture: for every element of every level the number of its source element, row by row; -1 where there is none.

    Its shape is that of all levels, outermost first. int64.
    """
    at, valid = self._points()
    index: Any = np.zeros((), np.int64)
    for i, size in zip(at, self.source): index = index * size + i
    return np.broadcast_to(np.where(valid, index, -1), self.view.shape).copy()

  def offsets(self) -> tuple[np.ndarray[Any, np.dtype[np.int64]], ...]:
    """For every element of every level its index in each source dimension, whether it lies inside or not. int64, one array a
    dimension."""
    return tuple(np.broadcast_to(i, self.view.shape).copy() for i in self._points()[0])

  def _points(self) -> tuple[list[Any], Any]:
    """Source indices and validity of all elements, one array dimension a dimension of the view."""
    shape = self.view.shape
    if 0 in shape: return [np.zeros(shape, np.int64) for _ in self.source], np.zeros(shape, bool)
    ranges = [ix.rng(d, n) for d, n in enumerate(shape)]
    at, valid = self.view.pull(ranges)
    values: dict[UOp, Any] = {r: np.arange(n).reshape([-1 if d == e else 1 for e in range(len(shape))])
                              for d, (r, n) in enumerate(zip(ranges, shape)) if n > 1}
    for u in toposort((*at, valid)):
      if u not in values: values[u] = u.arg if u.op is Ops.CONST else _NUMPY[u.arg](*(values[s] for s in u.src))
    return [values[i] for i in at], values[valid]

  # ---- helpers

  def _span(self, name: str, level: int) -> tuple[int, Shape]:
    """Where the level's dimensions begin in the view, and its shape."""
    if not 0 <= level < len(self.levels): raise AxisError(f"{name}: level {level}; {self} has levels 0 to {len(self.levels) - 1}")
    return sum(map(len, self.levels[:level])), self.levels[level]

  def _axes(self, name: str, axes: Ints, n: int) -> Shape:
    """Axis numbers of a level with ``n`` dimensions, negative ones from the end."""
    got = (axes,) if isinstance(axes, int) else tuple(axes)
    for a in got:
      if not isinstance(a, int) or not -n <= a < n: raise AxisError(f"{name}: axis {a}; the level has {n} dimensions")
    out = tuple(a % n for a in got)
    if len(set(out)) != len(out): raise AxisError(f"{name}: an axis is given twice in {got}")
    return out

  def _step(self, view: View, level: int, shape: Shape, text: str) -> Arrangement:
    """The next arrangement: ``level`` has a new shape."""
    suffix = "" if level == 0 else f", level={level}"
    return Arrangement(
      self.source, view, (*self.levels[:level], shape, *self.levels[level + 1 :]), (*self.chain, f".{text}{suffix})")
    )

  def _reshaped(self, level: int, shape: Shape, text: str, runs: Sequence[tuple[int, int]]) -> Arrangement:
    """``level`` in another shape; ``runs`` says how many of its dimensions become how many."""
    start, dims = self._span("reshape", level)
    levels = (*self.levels[:level], shape, *self.levels[level + 1:])
    all_runs = (*((1, 1),) * start, *runs, *((1, 1),) * (len(self.view.shape) - start - len(dims)))
    return self._step(
      self.view.then(Ops.RESHAPE, Regrouped.of(tuple(n for dims in levels for n in dims), all_runs)), level, shape, text
    )

  # ---- meta-operations

  def tile(self, shape: Ints, strides: Ints | None = None, dilation: Ints | None = None, floor_mode: bool = False,
           moved: bool = False, level: int = 0) -> Arrangement:
    """(d, …) -> (tiles, …) and within it (shape, …): a new level of windows.

    ``shape`` -1 takes a whole dimension. ``strides`` from a window to the next (default, or -1: the tile's size), ``dilation``
    from an element to the next (default 1). A partial last window counts, its outside elements not being valid. With
    ``floor_mode`` it does not count; with ``moved`` it is moved back until it lies inside, over elements that the window before
    it has too.
    """
    start, dims = self._span("tile", level)
    n = len(dims)
    sizes = tuple(d if s == -1 else s for s, d in zip(_ints("tile", shape, n, "tile size"), dims))
    steps = tuple(z if s == -1 else s for s, z in zip(sizes if strides is None else _ints("tile", strides, n, "stride"), sizes))
    gaps = (1,) * n if dilation is None else _ints("tile", dilation, n, "dilation")
    if any(v < 1 for v in (*sizes, *steps, *gaps)):
      raise ArgumentError(f"tile: sizes, strides and dilations are 1 or more, got {sizes}, {steps}, {gaps}")
    if floor_mode and moved:
      raise ArgumentError("tile: a partial last window is left out (floor_mode) or moved back inside (moved), not both")
    counts: list[int] = []
    pads: list[int] = []
    specs: list[tuple[int, ...]] = []
    text = [f"tile({sizes}"]
    for d, size, stride, gap in zip(dims, sizes, steps, gaps):
      rest = d - (size - 1) * gap - 1
      count = rest // stride + 1 if floor_mode else max(-(-rest // stride) + 1, 1) if d else 0
      if count < 1 and (d or floor_mode):
        raise ShapeError(f"tile: no window of {size} (dilation {gap}) lies inside a dimension of {d}")
      counts.append(count)
      if moved and rest < 0: raise ShapeError(f"tile: no window of {size} (dilation {gap}) lies inside a dimension of {d}")
      over = max((count - 1) * stride - rest, 0)
      pads.append(0 if moved else over)
      specs.append((size, stride, gap, True) if moved and over else (size, stride, gap))
    view = self.view
    before, after = start, len(view.shape) - start - n
    if any(pads): view = view.then(Ops.PAD, ((0, 0),) * before + tuple((0, p) for p in pads) + ((0, 0),) * after)
    spec = ((1, 1, 1),) * before + tuple(specs) + ((1, 1, 1),) * after
    view = view.then(Ops.TILE, spec)
    if before or after:  # the new level stands after its outer part, and dims of other levels have no inner one
      rank = before + n + after
      order = (*range(start + n), *range(rank + start, rank + start + n), *range(start + n, rank))
      order = (*order, *(i for i in range(2 * rank) if i not in order))
      view = view.then(Ops.PERMUTE, order)
      view = view.then(Ops.RESHAPE, Regrouped.of(view.shape[:rank + n], [*((1, 1),) * (rank + n), *((1, 0),) * (rank - n)]))
    if strides is not None and steps != sizes: text.append(f"strides={steps}")
    if dilation is not None and set(gaps) != {1}: text.append(f"dilation={gaps}")
    if floor_mode: text.append("floor_mode=True")
    if moved: text.append("moved=True")
    out = self._step(view, level, tuple(counts), ", ".join(text))
    return Arrangement(out.source, out.view, (*out.levels[:level + 1], sizes, *out.levels[level + 1:]), out.chain)

  def expand(self, shape: Sequence[int], level: int = 0) -> Arrangement:
    """(1, n) -> (m, n): dimensions of 1 become any size (-1 leaves one alone)."""
    start, dims = self._span("expand", level)
    want = tuple(d if s == -1 else s for s, d in zip(_ints("expand", tuple(shape), len(dims), "size"), dims))
    if any(d not in (1, w) for d, w in zip(dims, want)):
      raise ShapeError(f"expand: only dimensions of 1 become others, {dims} cannot become {want}")
    full = (*self.view.shape[:start], *want, *self.view.shape[start + len(dims):])
    return self._step(self.view.then(Ops.EXPAND, full), level, want, f"expand({want}")

  def squeeze(self, axes: Ints, level: int = 0) -> Arrangement:
    """(1, n) -> (n): dimensions of 1 go."""
    _, dims = self._span("squeeze", level)
    gone = self._axes("squeeze", axes, len(dims))
    if any(dims[a] != 1 for a in gone): raise ShapeError(f"squeeze: axes {gone} of a level {dims}; only a dimension of 1 can go")
    text = f"squeeze({gone[0] if len(gone) == 1 else gone}"
    return self._reshaped(
      level, tuple(d for i, d in enumerate(dims) if i not in gone), text, [(1, int(i not in gone)) for i in range(len(dims))]
    )

  def unsqueeze(self, axis: int, level: int = 0) -> Arrangement:
    """(n) -> (1, n): a dimension of 1 comes before ``axis``."""
    _, dims = self._span("unsqueeze", level)
    at, = self._axes("unsqueeze", axis, len(dims) + 1)
    return self._reshaped(
      level, (*dims[:at], 1, *dims[at:]), f"unsqueeze({at}", [*((1, 1),) * at, (0, 1), *((1, 1),) * (len(dims) - at)]
    )

  def permute(self, order: Sequence[int], level: int = 0) -> Arrangement:
    """(m, n) -> (n, m): dimension i of the result is dimension ``order[i]``."""
    start, dims = self._span("permute", level)
    got = self._axes("permute", tuple(order), len(dims))
    if len(got) != len(dims): raise AxisError(f"permute: a level of {len(dims)} dimensions, got {tuple(order)}")
    full = (*range(start), *(start + a for a in got), *range(start + len(dims), len(self.view.shape)))
    return self._step(self.view.then(Ops.PERMUTE, full), level, tuple(dims[a] for a in got), f"permute({got}")

  def flatten(self, start_axis: int = 0, end_axis: int = -1, level: int = 0) -> Arrangement:
    """(a, b, c) -> (a, b*c): the dimensions from ``start_axis`` to ``end_axis``, that one included, become one."""
    _, dims = self._span("flatten", level)
    if not dims: raise AxisError("flatten: the level has no dimensions")
    first, = self._axes("flatten", start_axis, len(dims))
    last, = self._axes("flatten", end_axis, len(dims))
    if first > last: raise AxisError(f"flatten: axis {start_axis} stands behind axis {end_axis}")
    whole = (first, last) == (0, len(dims) - 1)
    text = "flatten(" if whole and level == 0 else f"flatten({first}, {last}"
    runs = [*((1, 1),) * first, (last + 1 - first, 1), *((1, 1),) * (len(dims) - last - 1)]
    return self._reshaped(level, (*dims[:first], prod(dims[first:last + 1]), *dims[last + 1:]), text, runs)

  def unflatten(self, axis: int, sizes: Sequence[int], level: int = 0) -> Arrangement:
    """(a*b, c) -> (a, b, c): one dimension becomes several; a size of -1 is what is left for it."""
    _, dims = self._span("unflatten", level)
    at, = self._axes("unflatten", axis, len(dims))
    got = tuple(sizes)
    if not all(isinstance(v, int) for v in got): raise ArgumentError(f"unflatten: sizes are ints, got {got}")
    if got.count(-1) > 1 or any(v < -1 for v in got):
      raise ArgumentError(f"unflatten: sizes are 0 or more, one may be -1, got {got}")
    rest = prod(v for v in got if v != -1)
    if -1 in got and rest and dims[at] % rest == 0: got = tuple(dims[at] // rest if v == -1 else v for v in got)
    if -1 in got or prod(got) != dims[at]:
      raise ShapeError(f"unflatten: dimension {at} of {dims} has {dims[at]} elements, which is no {got}")
    runs = [*((1, 1),) * at, (1, len(got)), *((1, 1),) * (len(dims) - at - 1)]
    return self._reshaped(level, (*dims[:at], *got, *dims[at + 1:]), f"unflatten({at}, {got}", runs)

  def ravel(self, levels: int | None = None, level: int = 0) -> Arrangement:
    """((a), (b)) -> ((a, b)): ``levels`` levels (default: all) become one, from ``level`` on."""
    self._span("ravel", level)
    n = len(self.levels) - level if levels is None else levels
    if n < 1 or level + n > len(self.levels):
      raise AxisError(f"ravel: {n} levels from level {level}; there are {len(self.levels)}")
    joined = tuple(d for dims in self.levels[level:level + n] for d in dims)
    args = [f"levels={n}"] if n < len(self.levels) - level else []
    if level: args.append(f"level={level}")
    return Arrangement(
      self.source,
      self.view,
      (*self.levels[:level], joined, *self.levels[level + n :]),
      (*self.chain, f".ravel({', '.join(args)})"),
    )

  def pad(self, amounts: Sequence[tuple[int, int]], level: int = 0) -> Arrangement:
    """(n) -> (lo + n + hi): elements before and behind that are not valid."""
    start, dims = self._span("pad", level)
    pairs = tuple((int(lo), int(hi)) for lo, hi in amounts)
    if len(pairs) != len(dims): raise ShapeError(f"pad: a pair for each of {len(dims)} dimensions, got {pairs}")
    if any(v < 0 for p in pairs for v in p): raise ArgumentError(f"pad: amounts are 0 or more, got {pairs}; shrink cuts off")
    full = ((0, 0),) * start + pairs + ((0, 0),) * (len(self.view.shape) - start - len(dims))
    return self._step(
      self.view.then(Ops.PAD, full), level, tuple(lo + d + hi for d, (lo, hi) in zip(dims, pairs)), f"pad({pairs}"
    )

  def shrink(self, ranges: Sequence[tuple[int, int]], level: int = 0) -> Arrangement:
    """(n) -> (end - begin): what lies outside [begin, end) goes."""
    start, dims = self._span("shrink", level)
    pairs = tuple((int(b), int(e)) for b, e in ranges)
    if len(pairs) != len(dims) or not all(0 <= b <= e <= d for d, (b, e) in zip(dims, pairs)):
      raise ShapeError(f"shrink: a pair 0 <= begin <= end <= size for each dimension of {dims}, got {pairs}")
    full = tuple((0, n) for n in self.view.shape[:start]) + pairs + tuple((0, n) for n in self.view.shape[start + len(dims):])
    return self._step(self.view.then(Ops.SHRINK, full), level, tuple(e - b for b, e in pairs), f"shrink({pairs}")

  def flip(self, axes: Ints, level: int = 0) -> Arrangement:
    """(n) -> (n), last element first."""
    start, dims = self._span("flip", level)
    got = self._axes("flip", axes, len(dims))
    return self._step(
      self.view.then(Ops.FLIP, tuple(start + a for a in got)), level, dims, f"flip({got[0] if len(got) == 1 else got}"
    )

  def index(self, key: Key | tuple[Key, ...], level: int = 0) -> Arrangement:
    """(m, n) -> (n): indices, slices with steps, None and ... as numpy has them: ``a[0]``, ``a[1:, ::-2]``.

    Raises IndexOutOfRangeError for an index outside its dimension, AxisError for too many of them.
    """
    start, dims = self._span("index", level)
    keys = full_key(key, len(dims))
    parts = [p for k in keys for p in ((k.start, k.stop, k.step) if isinstance(k, slice) else (k,))]
    if any(p is not None and (isinstance(p, bool) or not isinstance(p, int)) for p in parts):
      raise ArgumentError(f"index: ints, slices of ints, None and ..., got {keys}")
    if any(isinstance(k, slice) and k.step == 0 for k in keys): raise ArgumentError("index: a step of 0")
    ranges, flips, steps, shape, runs, d = [], [], [], [], [], 0
    for k in keys:
      runs.append((int(k is not None), int(k is None or isinstance(k, slice))))
      if k is None:
        shape.append(1)
        continue
      n = dims[d]
      if isinstance(k, slice):
        first, stop, step = k.indices(n)
        count = len(range(first, stop, step))
        last = first + (count - 1) * step
        ranges.append((0, 0) if count == 0 else (min(first, last), max(first, last) + 1))
        if step < 0: flips.append(start + d)
        steps.append(abs(step) if count else 1)
        shape.append(count)
      else:
        if not -n <= k < n: raise IndexOutOfRangeError(f"index: {k} is outside dimension {d} of {dims}")
        ranges.append((k % n, k % n + 1))
        steps.append(1)
      d += 1
    view, before, after = self.view, self.view.shape[:start], self.view.shape[start + len(dims):]
    if any(r != (0, n) for r, n in zip(ranges, dims)):
      view = view.then(Ops.SHRINK, tuple((0, n) for n in before) + tuple(ranges) + tuple((0, n) for n in after))
    if flips: view = view.then(Ops.FLIP, tuple(flips))
    if any(s > 1 for s in steps):  # windows of one element
      view = view.then(Ops.TILE, ((1, 1, 1),) * len(before) + tuple((1, s, 1) for s in steps) + ((1, 1, 1),) * len(after))
    if runs != [(1, 1)] * len(dims) or len(view.shape) > len(self.view.shape):
      all_runs = (*((1, 1),) * len(before), *runs, *((1, 1),) * len(after), *((1, 0),) * (len(view.shape) - len(self.view.shape)))
      view = view.then(Ops.RESHAPE, Regrouped.of((*before, *shape, *after), all_runs))
    link = f".index({key_text(key, True)}, level={level})" if level else f"[{key_text(key)}]"
    return Arrangement(self.source, view, (*self.levels[:level], tuple(shape), *self.levels[level + 1:]), (*self.chain, link))

  def __getitem__(self, key: Key | tuple[Key, ...]) -> Arrangement: return self.index(key)
