"""Arrangements: a parameter's source tensor seen as nested levels.

The outermost level is the grid, the innermost the tile, levels between are looped over. Every meta-operation gives a new
Arrangement and is one or a few transforms of ``view.py``, so what prints (``data1(64, 32).tile((8, 32))``) is what computes the
indices. ``explain/arrangements.py`` does the reverse: from the index expressions of a kernel to the meta-operations that make
them."""
from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from types import EllipsisType
from typing import Any, Callable, Sequence, TypeVar

import numpy as np

from .. import index as ix
from ..index import Dim, Pulled, Regrouped, Shape, View, below, greater, minus, nested_text, plus, shape_text, text_of, times
from ..ir import ArgumentError, AxisError, IndexOutOfRangeError, Ops, ShapeError, UOp, toposort

_Ints = int | Sequence[int]
Key = Dim | slice | EllipsisType | None
_Numbers = np.ndarray[Any, np.dtype[np.int64]]
_T = TypeVar("_T")
_NUMPY = dict(ADD=np.add, MUL=np.multiply, IDIV=np.floor_divide, MOD=np.mod, MIN=np.minimum, CMPLT=np.less, CMPEQ=np.equal,
              AND=np.logical_and)


def _sizes(name: str, values: Dim | Sequence[Dim], n: int, what: str) -> Shape:
  got = (values,) * n if isinstance(values, (int, UOp)) else tuple(values)
  if len(got) != n: raise ShapeError(f"{name}: one {what} a dimension, so {n} of them, got {shape_text(got)}")
  if not all(isinstance(v, (int, UOp)) for v in got): raise ArgumentError(f"{name}: each {what} is an int, got {got}")
  return got


def full_key(key: object, n: int) -> tuple[Any, ...]:
  """An indexing key with one entry for each of ``n`` dimensions (and each None): whole dimensions for the Ellipsis, or
  at the end. An entry may be anything that stands for an index."""
  keys = key if isinstance(key, tuple) else (key,)
  dots = sum(k is Ellipsis for k in keys)
  given = sum(k is not None and k is not Ellipsis for k in keys)
  if dots > 1: raise ArgumentError("index: ... may stand once")
  if given > n: raise AxisError(f"index: {given} indices for {n} dimensions")
  at = next((i for i, k in enumerate(keys) if k is Ellipsis), len(keys))
  return *keys[:at], *[slice(None)] * (n - given), *keys[at + 1:]


def key_text(key: object, called: bool = False) -> str:
  """A key as written: between brackets, or as an argument of a call."""
  if key is Ellipsis: return "..."
  if isinstance(key, slice):
    start, stop, step = ("" if v is None else str(v) for v in (key.start, key.stop, key.step))
    return f"slice({key.start}, {key.stop}, {key.step})" if called else f"{start}:{stop}" + (f":{step}" if step else "")
  if not isinstance(key, tuple): return str(key)
  text = ", ".join(key_text(k, called) for k in key)
  return f"({text}{',' * (len(key) == 1)})" if called else text or "()"


@dataclass(frozen=True)
class Arrangement:
  """A source tensor through ``view``, whose output dimensions are those of ``levels``, outermost first; ``chain`` is how it is
  written.

  ``Arrangement.of((64, 32)).tile((8, 32))`` has levels ``((8, 1), (8, 32))``. The meta-operations work on the outermost level, or
  on the one that ``level`` names. Each raises ShapeError, AxisError or ArgumentError where it does not fit."""
  view: View
  levels: tuple[Shape, ...]
  chain: tuple[str, ...] = ()
  first: Arrangement | None = field(default=None, repr=False, compare=False)

  @staticmethod
  def of(shape: Sequence[ix.Dim]) -> Arrangement:
    """The whole source as one level."""
    return Arrangement(View(tuple(shape)), (tuple(shape),))

  @property
  def source(self) -> Shape: return self.view.source

  @property
  def shape(self) -> Shape: return self.levels[0]   # the outermost level

  @property
  def uncut(self) -> Arrangement:
    """As it is before it is first cut into tiles: the source, or what was made of it whole."""
    return self.first or self

  @property
  def cut(self) -> View:
    """How the levels lie in ``uncut``."""
    out, n = View(self.uncut.view.shape), len(self.uncut.view.steps)
    out.steps, out.shapes = self.view.steps[n:], self.view.shapes[n:]
    return out

  @property
  def partly(self) -> bool:
    """Whether elements of ``uncut`` may be in no tile: tiles that are left out, or sliced away."""
    links = self.chain[len(self.uncut.chain):]
    return any("floor_mode=True" in link for link in links) or any(op is Ops.SHRINK for op, _ in self.cut.steps)

  def text(self, name: str = "source") -> str: return f"{name}({', '.join(map(text_of, self.source))})" + "".join(self.chain)

  def __str__(self) -> str: return self.text()

  def pull(self, indices: Sequence[Sequence[UOp | int]]) -> Pulled:
    """Where in the source an element lies, from one index a dimension of each level, and whether there is one.

    (program, …, element of the tile) -> (source indices, valid). Ints or index UOps. Raises ShapeError for another number."""
    if tuple(map(len, indices)) != tuple(map(len, self.levels)):
      raise ShapeError(f"pull: {self} has levels {self.levels}, got {[len(i) for i in indices]} indices")
    return self.view.pull([ix.const(i) if isinstance(i, int) else i for level in indices for i in level])

  @property
  def injective(self) -> bool:
    """Whether no element of the source is seen twice: no two windows share one, and nothing is expanded."""
    shapes = self.view.shapes
    for (op, arg), before, after in zip(self.view.steps, shapes, shapes[1:]):
      if op is Ops.EXPAND and before != after: return False
      if op is not Ops.TILE: continue
      for (size, stride, gap, *shifted), count in zip(arg, after):
        if stride is size and gap == 1 and not shifted: continue   # one beside another
        if not all(isinstance(n, int) for n in (size, stride, gap, count)): return False
        common = math.gcd(stride, gap)   # windows i and i + n share one where n * stride is a multiple of gap below size * gap
        if shifted or (gap // common < count and stride // common < size): return False
    return True

  def elements(self) -> _Numbers:
    """The picture: for every element of every level the number of its source element, row by row; -1 where there is none.

    Its shape is that of all levels, outermost first. int64."""
    at, valid = self._points()
    index: Any = np.zeros((), np.int64)
    for i, size in zip(at, self.source): index = index * size + i
    return np.broadcast_to(np.where(valid, index, -1), ix.numbers(self.view.shape)).copy()

  def offsets(self) -> tuple[_Numbers, ...]:
    """For every element of every level its index in each source dimension, inside or not: an int64 array a dimension."""
    return tuple(np.broadcast_to(i, ix.numbers(self.view.shape)).copy() for i in self._points()[0])

  def _points(self) -> tuple[list[Any], Any]:
    """Source indices and validity of all elements: numbers, or arrays with one dimension for each of the view."""
    shape = ix.numbers(self.view.shape)
    if 0 in shape: return [np.zeros(shape, np.int64) for _ in self.source], np.zeros(shape, bool)
    ranges = [ix.rng(d, n) for d, n in enumerate(shape)]
    at, valid = self.view.pull(ranges)
    values: dict[UOp, Any] = {r: np.arange(n).reshape([-1 if d == e else 1 for e in range(len(shape))])
                              for d, (r, n) in enumerate(zip(ranges, shape)) if n > 1}
    for u in toposort((*at, valid)):
      if u not in values: values[u] = u.arg if u.op is Ops.CONST else _NUMPY[u.arg.name](*(values[s] for s in u.src))
    return [values[i] for i in at], values[valid]

  # ---- helpers

  def _dims(self, name: str, level: int) -> Shape:
    if not 0 <= level < len(self.levels): raise AxisError(f"{name}: level {level}; {self} has levels 0 to {len(self.levels) - 1}")
    return self.levels[level]

  def _axes(self, name: str, axes: _Ints, n: int) -> tuple[int, ...]:
    """Axis numbers of a level with ``n`` dimensions, negative ones from the end."""
    got = (axes,) if isinstance(axes, int) else tuple(axes)
    for a in got:
      if not isinstance(a, int) or not -n <= a < n: raise AxisError(f"{name}: axis {a}; the level has {n} dimensions")
    out = tuple(a % n for a in got)
    if len(set(out)) != len(out): raise AxisError(f"{name}: an axis is given twice in {got}")
    return out

  def _start(self, level: int) -> int:
    """Where the level's dimensions begin in the view."""
    return sum(map(len, self.levels[:level]))

  def _whole(self, level: int, part: Sequence[_T], other: Callable[[Dim], _T]) -> tuple[_T, ...]:
    """A transform's arg, with ``part`` for the level's dimensions and ``other(size)`` for those of the other levels."""
    n = self._start(level)
    shape = self.view.shape
    return *map(other, shape[:n]), *part, *map(other, shape[n + len(self.levels[level]):])

  def _step(self, view: View, level: int, shapes: Sequence[Shape], name: str, *args: object, joined: int = 1) -> Arrangement:
    """The next arrangement, ``name(*args)``: ``shapes`` instead of ``level`` (and of the ``joined - 1`` levels after it)."""
    text = ", ".join(map(nested_text, (*args, f"level={level}") if level else args))
    levels = *self.levels[:level], *shapes, *self.levels[level + joined:]
    return Arrangement(view, levels, (*self.chain, f".{name}({text})"), self.first)

  def _moved(self, op: Ops, level: int, arg: object, *args: object) -> Arrangement:
    """The next arrangement, by a transform that keeps the number of dimensions."""
    view, start = self.view.then(op, arg), self._start(level)
    return self._step(view, level, [view.shape[start:start + len(self.levels[level])]], op.name.lower(), *args)

  def _regrouped(self, level: int, groups: Sequence[tuple[int, Shape]], name: str, *args: object) -> Arrangement:
    """``level`` in another shape; ``groups`` says how many of its dimensions become which."""
    arg = Regrouped.of(self._whole(level, groups, lambda n: (1, (n,))))
    return self._step(self.view.then(Ops.RESHAPE, arg), level, [tuple(n for _, sizes in groups for n in sizes)], name, *args)

  # ---- meta-operations

  def tile(self, shape: Dim | Sequence[Dim], strides: Dim | Sequence[Dim] | None = None,
           dilation: Dim | Sequence[Dim] | None = None, floor_mode: bool = False,
           shift_inwards: bool = False, level: int = 0) -> Arrangement:
    """(d, …) -> (tiles, …) and within it (shape, …): a new level of windows.

    ``shape`` -1 takes a whole dimension. ``strides`` is from one window to the next (default, or -1: the tile's size),
    ``dilation`` from one element of a window to the next (default 1). A partial last window counts; its elements outside are not
    valid. ``floor_mode`` leaves it out. ``shift_inwards`` moves it back until it lies inside, where it shares elements with the
    window before it."""
    dims = self._dims("tile", level)
    n = len(dims)
    asked = _sizes("tile", shape, n, "tile size")
    sizes = tuple(d if s == -1 else s for s, d in zip(asked, dims))
    steps = tuple(z if s == -1 else s for s, z in zip(_sizes("tile", -1 if strides is None else strides, n, "stride"), sizes))
    gaps = _sizes("tile", 1 if dilation is None else dilation, n, "dilation")
    whole = [s == -1 for s in asked]
    steps = tuple(1 if w and z == 0 and s == 0 else s for w, z, s in zip(whole, sizes, steps))
    if any(below(v, 1) for v in (*[z for z, w in zip(sizes, whole) if not w or z != 0], *steps, *gaps)):
      got = ", ".join(map(shape_text, (sizes, steps, gaps)))
      raise ArgumentError(f"tile: sizes, strides and dilations are 1 or more, got {got}")
    if floor_mode and shift_inwards:
      raise ArgumentError("tile: a partial last window is left out (floor_mode) or moved back inside (shift_inwards), not both")
    rows: list[tuple[Dim, Dim, tuple[Dim, ...], Dim]] = []   # tiles, what is padded behind, the arg of TILE, the padded size
    for at, (d, size, stride, gap) in enumerate(zip(dims, sizes, steps, gaps)):
      if size == 0:   # the whole of nothing is one tile of nothing
        rows.append((1, 0, (0, 1, 1), 0))
        continue
      behind = ix.rest(d, size, gap)
      count = ix.window_count(d, size, stride, gap, not floor_mode)
      if floor_mode and below(count, 1) or shift_inwards and below(behind, 0):
        apart = "" if gap == 1 else f" (dilation {text_of(gap)})"
        raise ShapeError(f"tile: no window of {text_of(size)}{apart} lies inside dimension {at}, which has {text_of(d)} elements")
      begin = times(minus(count, 1), stride)   # of the last one
      over = greater(minus(begin, behind), 0)
      if shift_inwards: rows.append((count, 0, (size, stride, gap, *[True] * (over != 0)), d))
      else: rows.append((count, over, (size, stride, gap), d if over == 0 else plus(begin, plus(times(minus(size, 1), gap), 1))))
    counts, pads, specs, padded = zip(*rows) if rows else ((),) * 4
    view, first = self.view, self._start(level)
    if any(pads):
      arg = self._whole(level, [(0, over) for over in pads], lambda _: (0, 0))
      view = view.then(Ops.PAD, arg, self._whole(level, padded, lambda n: n))
    inner = self._whole(level, sizes, lambda _: 1)
    view = view.then(Ops.TILE, self._whole(level, specs, lambda _: (1, 1, 1)), (*self._whole(level, counts, lambda n: n), *inner))
    rank = len(self.view.shape)
    if rank > n:  # the new level stands after its outer part, and dimensions of other levels have no inner one
      order = *range(first + n), *range(rank + first, rank + first + n), *range(first + n, rank)
      view = view.then(Ops.PERMUTE, (*order, *(i for i in range(2 * rank) if i not in order)))
      view = view.then(Ops.RESHAPE, Regrouped.of([*_alone(view.shape[:rank + n]), *[(1, ())] * (rank - n)]))
    given = {"strides": steps, "dilation": gaps, "floor_mode": floor_mode, "shift_inwards": shift_inwards}
    usual = {"strides": sizes, "dilation": (1,) * n, "floor_mode": False, "shift_inwards": False}
    options = [f"{name}={nested_text(value)}" for name, value in given.items() if value != usual[name]]
    return replace(self._step(view, level, [counts, sizes], "tile", sizes, *options), first=self.uncut)

  def expand(self, shape: Sequence[Dim], level: int = 0) -> Arrangement:
    """(1, n) -> (m, n): dimensions of 1 become any size (-1 leaves one alone)."""
    dims = self._dims("expand", level)
    given = _sizes("expand", tuple(shape), len(dims), "size")
    if void := [d for d, (n, s) in enumerate(zip(dims, given)) if n == 0 and s not in (-1, 0)]:
      return self._with_one(void, level).expand(shape, level)
    want = tuple(d if s == -1 or d != 1 and ix.same_size(d, s) else s for s, d in zip(given, dims))
    if any(d is not w and d != w and not ix.same_size(d, 1) for d, w in zip(dims, want)):
      raise ShapeError(f"expand: only dimensions of 1 become others, {shape_text(dims)} cannot become {shape_text(want)}")
    if any(isinstance(d, UOp) and d is not w for d, w in zip(dims, want)):   # a size that is taken to be 1 is one from here on
      ones = [(1, (d if d is w or d == w else 1,)) for d, w in zip(dims, want)]
      self = replace(self._regrouped(level, ones, ""), chain=self.chain)
    return self._moved(Ops.EXPAND, level, self._whole(level, want, lambda n: n), want)

  def squeeze(self, axes: _Ints, level: int = 0) -> Arrangement:
    """(1, n) -> (n): dimensions of 1 are removed."""
    dims = self._dims("squeeze", level)
    dropped = self._axes("squeeze", axes, len(dims))
    if void := [a for a in dropped if dims[a] == 0]: return self._with_one(void, level).squeeze(axes, level)
    if not all(ix.same_size(dims[a], 1) for a in dropped):
      raise ShapeError(f"squeeze: axes {dropped} of a level {shape_text(dims)}; only a dimension of 1 can go")
    groups = [(1, () if a in dropped else (d,)) for a, d in enumerate(dims)]
    return self._regrouped(level, groups, "squeeze", dropped[0] if len(dropped) == 1 else dropped)

  def _with_one(self, axes: Sequence[int], level: int) -> Arrangement:
    """With an element that is not valid in each of some empty dimensions."""
    return self.pad([(0, int(a in axes)) for a in range(len(self.levels[level]))], level)

  def unsqueeze(self, axis: int, level: int = 0) -> Arrangement:
    """(n) -> (1, n): a dimension of 1 comes before ``axis``."""
    dims = self._dims("unsqueeze", level)
    at, = self._axes("unsqueeze", axis, len(dims) + 1)
    return self._regrouped(level, [*_alone(dims[:at]), (0, (1,)), *_alone(dims[at:])], "unsqueeze", at)

  def permute(self, order: Sequence[int], level: int = 0) -> Arrangement:
    """(m, n) -> (n, m): dimension i of the result is dimension ``order[i]``."""
    dims, start = self._dims("permute", level), self._start(level)
    got = self._axes("permute", tuple(order), len(dims))
    if len(got) != len(dims): raise AxisError(f"permute: a level of {len(dims)} dimensions, got {tuple(order)}")
    full = *range(start), *(start + a for a in got), *range(start + len(dims), len(self.view.shape))
    return self._moved(Ops.PERMUTE, level, full, got)

  def flatten(self, start_axis: int = 0, end_axis: int = -1, level: int = 0) -> Arrangement:
    """(a, b, c) -> (a, b*c): the dimensions from ``start_axis`` to ``end_axis``, that one included, become one."""
    dims = self._dims("flatten", level)
    if not dims: raise AxisError("flatten: the level has no dimensions")
    (first,), (last,) = (self._axes("flatten", axis, len(dims)) for axis in (start_axis, end_axis))
    if first > last: raise AxisError(f"flatten: axis {start_axis} stands behind axis {end_axis}")
    groups = [*_alone(dims[:first]), (last + 1 - first, (ix.product(dims[first:last + 1]),)), *_alone(dims[last + 1:])]
    return self._regrouped(level, groups, "flatten", *(() if level == 0 and len(groups) == 1 else (first, last)))

  def unflatten(self, axis: int, sizes: Sequence[Dim], level: int = 0) -> Arrangement:
    """(a*b, c) -> (a, b, c): one dimension becomes several; a size of -1 is what is left for it."""
    dims = self._dims("unflatten", level)
    at, = self._axes("unflatten", axis, len(dims))
    got = tuple(sizes)
    if not all(isinstance(v, (int, UOp)) for v in got): raise ArgumentError(f"unflatten: sizes are ints, got {got}")
    if got.count(-1) > 1 or any(below(v, -1) for v in got):
      raise ArgumentError(f"unflatten: sizes are 0 or more, one may be -1, got {shape_text(got)}")
    if known := ix.product(v for v in got if v != -1): got = tuple(ix.over(dims[at], known) if v == -1 else v for v in got)
    if -1 in got or not ix.same_size(ix.product(got), dims[at]):
      raise ShapeError(
        f"unflatten: dimension {at} of {shape_text(dims)} has {text_of(dims[at])} elements, which is no {shape_text(sizes)}")
    return self._regrouped(level, [*_alone(dims[:at]), (1, got), *_alone(dims[at + 1:])], "unflatten", at, got)

  def ravel(self, levels: int | None = None, level: int = 0) -> Arrangement:
    """((a), (b)) -> ((a, b)): ``levels`` levels (default: all) become one, from ``level`` on."""
    self._dims("ravel", level)
    most = len(self.levels) - level
    n = most if levels is None else levels
    if not 1 <= n <= most: raise AxisError(f"ravel: {n} levels from level {level}; there are {len(self.levels)}")
    shape = tuple(d for dims in self.levels[level:level + n] for d in dims)
    return self._step(self.view, level, [shape], "ravel", *([f"levels={n}"] if n < most else []), joined=n)

  def pad(self, amounts: Sequence[tuple[Dim, Dim]], level: int = 0) -> Arrangement:
    """(n) -> (lo + n + hi): elements before and behind that are not valid."""
    dims = self._dims("pad", level)
    pairs = tuple((lo, hi) for lo, hi in amounts)
    if len(pairs) != len(dims): raise ShapeError(f"pad: a pair for each of {len(dims)} dimensions, got {pairs}")
    if any(below(v, 0) for p in pairs for v in p):
      raise ArgumentError(f"pad: amounts are 0 or more, got {pairs}; shrink cuts off")
    return self._moved(Ops.PAD, level, self._whole(level, pairs, lambda _: (0, 0)), pairs)

  def shrink(self, ranges: Sequence[tuple[Dim, Dim]], level: int = 0) -> Arrangement:
    """(n) -> (end - begin): what lies outside [begin, end) is cut off."""
    dims = self._dims("shrink", level)
    pairs = tuple((b, e) for b, e in ranges)
    if len(pairs) != len(dims) or any(below(b, 0) or below(e, b) or below(d, e) for d, (b, e) in zip(dims, pairs)):
      raise ShapeError(f"shrink: a pair 0 <= begin <= end <= size for each dimension of {dims}, got {pairs}")
    return self._moved(Ops.SHRINK, level, self._whole(level, pairs, lambda n: (0, n)), pairs)

  def flip(self, axes: _Ints, level: int = 0) -> Arrangement:
    """(n) -> (n), last element first."""
    got = self._axes("flip", axes, len(self._dims("flip", level)))
    return self._moved(Ops.FLIP, level, tuple(self._start(level) + a for a in got), got[0] if len(got) == 1 else got)

  def index(self, key: Key | tuple[Key, ...], level: int = 0) -> Arrangement:
    """(m, n) -> (n): indices, slices with steps, None and ... as numpy has them: ``a[0]``, ``a[1:, ::-2]``.

    Raises IndexOutOfRangeError for an index outside its dimension, AxisError for too many of them."""
    dims = self._dims("index", level)
    keys = full_key(key, len(dims))
    parts = [p for k in keys for p in ((k.start, k.stop, k.step) if isinstance(k, slice) else (k,))]
    if any(p is not None and (isinstance(p, bool) or not isinstance(p, (int, UOp))) for p in parts):
      raise ArgumentError(f"index: ints, slices of ints, None and ..., got {keys}")
    taken: list[tuple[tuple[Dim, Dim], int]] = []   # of each dimension: from where to where, and the step
    groups: list[tuple[int, Shape]] = []
    for k in keys:
      if k is None:
        groups.append((0, (1,)))
        continue
      n = dims[len(taken)]
      if isinstance(k, slice):
        if k.step == 0: raise ArgumentError("index: a step of 0")
        first, last, step, count = _sliced(n, k)
        taken.append(((first, last), step))
        groups.append((1, (count,)))
      else:
        if below(k, minus(0, n)) or not below(k, n):
          raise IndexOutOfRangeError(f"index: {text_of(k)} is outside dimension {len(taken)} of {shape_text(dims)}")
        if below(k, 0): k = plus(k, n)
        taken.append(((k, plus(k, 1)), 1))
        groups.append((1, ()))
    ranges, steps = [r for r, _ in taken], [s for _, s in taken]
    a = self.shrink(ranges, level).flip([d for d, s in enumerate(steps) if s < 0], level)
    if any(abs(s) > 1 for s in steps):  # windows of one element
      a = a.tile(1, [abs(s) for s in steps], level=level).ravel(2, level)
      groups += [(1, ())] * len(steps)
    link = f".index({key_text(key, True)}, level={level})" if level else f"[{key_text(key)}]"
    return replace(a._regrouped(level, groups, ""), chain=(*self.chain, link), first=self.first)

  def __getitem__(self, key: Key | tuple[Key, ...]) -> Arrangement: return self.index(key)


def onward(view: View, at: Sequence[UOp]) -> list[UOp | None]:
  """Where the element of a view's source at ``at`` is in the view; None along dimensions that are padded, expanded or windows."""
  out: list[UOp | None] = list(at)
  for (op, arg), before, after in zip(view.steps, view.shapes, view.shapes[1:]):
    if op is Ops.PERMUTE: out = [out[d] for d in arg]
    elif op is Ops.FLIP:
      out = [ix.sub(ix.node(minus(n, 1)), i) if i and d in arg else i for d, (n, i) in enumerate(zip(before, out))]
    elif op is Ops.SHRINK: out = [i and ix.sub(i, b) for i, (b, _) in zip(out, arg)]
    elif op is Ops.PAD: out = [i if pair == (0, 0) else None for i, pair in zip(out, arg)]
    elif op is Ops.EXPAND: out = [i if n is m or n == m else None for i, n, m in zip(out, before, after)]
    elif op is Ops.TILE:   # of a slice with a step: windows of one element
      firsts = [ix.fdiv(i, stride) if i and size == 1 else None for i, (size, stride, *_) in zip(out, arg)]
      out = [*firsts, *[ix.ZERO if size == 1 else None for size, *_ in arg]]
    elif op is Ops.RESHAPE and isinstance(arg, Regrouped):
      regrouped: list[UOp | None] = []
      i = j = 0
      for m, n in arg.runs:
        back = Regrouped.of([(n, before[i:i + m])])
        known = [u for u in out[i:i + m] if u is not None]
        regrouped += ix.pull(Ops.RESHAPE, after[j:j + n], back, tuple(known))[0] if len(known) == m else [None] * n
        i, j = i + m, j + n
      out = regrouped
    else: return [None] * len(view.shape)
  return out


def _sliced(n: Dim, k: slice) -> tuple[Dim, Dim, int, Dim]:
  """The elements of a dimension that a slice takes: from where to where, the step between them, and how many there are."""
  if isinstance(n, int) and not any(isinstance(p, UOp) for p in (k.start, k.stop)):
    at = range(n)[k]
    return (min(at[0], at[-1]), max(at[0], at[-1]) + 1, at.step, len(at)) if at else (0, 0, 1, 0)
  step = 1 if k.step is None else k.step
  def bound(v: Dim | None, low: int, else_: Dim) -> Dim:
    """An end as Python has it: counted from the dimension's end where it is negative, and no further out than ``low`` or n."""
    if v is None: return else_
    if below(v, 0): v = plus(v, n)
    most = n if low == 0 else minus(n, 1)
    return low if below(v, low) else most if below(most, v) else v
  low, begin, end = (0, 0, n) if step > 0 else (-1, minus(n, 1), -1)
  start, stop = bound(k.start, low, begin), bound(k.stop, low, end)
  span = minus(stop, start) if step > 0 else minus(start, stop)
  if not below(0, span): return 0, 0, 1, 0
  count = ix.rounds(span, abs(step))
  last = plus(start, times(minus(count, 1), step))
  first, last = (start, last) if step > 0 else (last, start)
  return first, plus(last, 1), step, count


def _alone(dims: Shape) -> list[tuple[int, Shape]]: return [(1, (d,)) for d in dims]
