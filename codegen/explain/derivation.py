"""From the index expressions of one access to the meta-operations that make them; ``arrangements.py`` checks what is found.

Sizes and factors are Dims: numbers, or expressions of run-time sizes. What is not known for all sizes is not derived."""
from __future__ import annotations

import functools
import math
from collections import Counter
from dataclasses import replace
from itertools import permutations
from typing import Iterable, Iterator, Mapping, Sequence

from .. import index as ix
from ..index import Dim, assuming, greater, minus, negated, node, over, plus, times, window_count
from ..ir import BinaryOps, Ops, UOp
from ..kernel import Axis, AxisKind, substitute
from ..kernel.arrangement import Arrangement

Terms = list[tuple[UOp, Dim]]            # what no size is, each with its factor
_Row = list[tuple[int, Dim] | None]      # for each dimension: an axis and its factor, None where the step has none

LEVELS = (("GRID", (AxisKind.GRID,)), ("LOOP", (AxisKind.LOOP,)),
          ("tile", (AxisKind.TILE, AxisKind.LOCAL, AxisKind.UPCAST, AxisKind.UNROLL, AxisKind.LANE)))


class NoArrangement(Exception): """The index is not a chain of meta-operations, or not for all sizes."""


# ---- indices whose factors are Dims

def terms_of(u: UOp) -> tuple[Terms, Dim]:
  """An index as its terms and what is made of sizes alone: a0*N*4 + a0 + M -> [(a0, 4*N + 1)], M."""
  found: dict[UOp, Dim] = {}
  terms, c = ix.linear(u)
  rest: Dim = c
  for t, k in terms:
    atoms = ix.factors(t)
    factor = times(k, ix.product(map(ix.number, filter(ix.of_sizes, atoms))))
    open_ = [f for f in atoms if not ix.of_sizes(f)]
    if not open_: rest = plus(rest, factor)
    else:
      atom = functools.reduce(ix.mul, open_)
      found[atom] = plus(found.get(atom, 0), factor)
  return list(found.items()), rest


def _negative(n: Dim) -> bool:
  """Whether a factor is below 0. Raises NoArrangement where that is not known."""
  lo, hi = ix.bounds(node(n))
  if lo < 0 < hi: raise NoArrangement
  return lo < 0


def _size(n: Dim) -> Dim: return minus(0, n) if _negative(n) else n


def common(ns: Iterable[Dim]) -> Dim:
  """What all of the factors are multiples of: 4*N, 6*N -> 2*N."""
  every = [t for n in ns for terms, c in (ix.linear(node(n)),) for t in (*terms, *([(None, c)] if c else []))]
  if not every: return 0
  atoms = functools.reduce(lambda a, b: a & b, (Counter(ix.factors(t)) for t, _ in every))
  return times(math.gcd(*(k for _, k in every)), ix.product(atoms.elements()))


def ends(i: UOp) -> tuple[Dim, Dim]:
  """The least and the greatest value of an index."""
  if not ix.has_sizes(i): return ix.bounds(i)
  shifted = [t for t, k in terms_of(i)[0] if t.arg is BinaryOps.MIN and not _negative(k)]
  most, = substitute((i,), {t: known for t in shifted for known in filter(ix.of_sizes, t.src)})
  lo, hi = ix.end_of(i, False), ix.end_of(most, True)
  if lo is None or hi is None: raise NoArrangement
  return ix.number(lo), ix.number(hi)


def _full(axis: Axis, last: Mapping[UOp, UOp]) -> Dim:
  """The size of an axis; of one whose last round is shorter that of the others: a1:min(64, N - a0*64)//8 -> 8. ``last`` are
  rounds of which only the last counts."""
  if not axis.varies: return axis.size
  whole, = substitute((node(axis.size),), {m: last.get(m, known) for _, m, known, _ in _rounds(axis)})
  return ix.number(whole) if ix.of_sizes(whole) else ends(whole)[1]


def _rounds(axis: Axis) -> Iterator[tuple[UOp, UOp, UOp, UOp]]:
  """A size that varies, and what is cut into rounds in it: min(64, N - a0*64) with 64 and N - a0*64."""
  for m in (u := node(axis.size)).toposort() if axis.varies else ():
    known = [s for s in m.src if ix.of_sizes(s)] if m.arg is BinaryOps.MIN else []
    if len(known) == 1: yield u, m, known[0], m.src[m.src[0] is known[0]]


def overhang(axes: Sequence[Axis]) -> dict[int, tuple[Dim, Dim]]:
  """For axes that number rounds, the last of them shorter: how long a round is and what the last one lacks.
  a0:cdiv(N, 64), a1:min(64, N - a0*64) -> {a0: (64, cdiv(N, 64)*64 - N)}."""
  out: dict[int, tuple[Dim, Dim]] = {}
  sizes = {a.rng: a.size for a in axes}
  for _, _, known, left in (r for a in axes for r in _rounds(a)):
    terms, rest = terms_of(left)
    if len(terms) != 1 or terms[0][0] not in sizes or times(terms[0][1], -1) != ix.number(known): continue
    outer, n = terms[0][0], ix.number(known)
    out[outer.arg[0]] = n, minus(times(sizes[outer], n), rest)
  return out


def of_axes(i: UOp, also: BinaryOps | None = None) -> bool:
  """Whether an index is a sum of axes (and of one other function, where ``also`` allows it)."""
  return all(t.op is Ops.RANGE or also is not None and t.arg is also and k == 1 for t, k in terms_of(i)[0])


def falling(n: Dim) -> tuple[int, int]:
  """Sorts factors, the greater ones first: N*8, N, 8, 1."""
  terms, _ = ix.linear(node(n))
  return -max((len(ix.factors(t)) for t, _ in terms), default=0), -ix.count(n)


class Derivation:
  """Outermost level first, each level's terms are split off every index by one ``tile``; what is left is the next level.

  A level may need several steps, one for each term that it has of the same dimension. ``plan`` has a row for each step."""

  def __init__(self, axes: Sequence[Axis], shape: Sequence[Dim], index: Sequence[UOp], inside: bool = False):
    used = {r.arg[0] for i in index for r in i.ranges}
    # what is known of rounds where axes go over what only the last one leaves over: a1:min(64, N - a0*64) % 8 has no values in
    # another, so min(64, N - a0*64) is N - a0*64
    last = {m: left for a in axes if a.id in used for u, m, known, left in _rounds(a)
            if u.arg is BinaryOps.MOD and u.src[0] is m and ix.mod(known, u.src[1]) is ix.ZERO}
    whole = [replace(a, size=_full(a, last)) for a in axes]
    self.arr = Arrangement.of(shape)
    self.given = substitute(index, {**last, **{a.rng: a.rng for a in axes}})   # as it is wherever the kernel gets there
    self.index = list(substitute(self.given, {a.rng: w.rng for a, w in zip(axes, whole) if a.varies}))
    self.inside = inside   # whether the index is, for all values of its axes
    self.sizes = {a.id: a.size for a in whole}
    self.lacks = overhang(axes)
    self.known: set[UOp] = set()
    self.names: list[str] = []
    self.axes: list[tuple[Axis, ...]] = []
    for name, kinds in LEVELS:
      # the grid is the same for every parameter
      if mine := tuple(a for a in axes if a.kind in kinds and self.sizes[a.id] not in (0, 1)
                       and (name == "GRID" or a.id in used)):
        self.names.append(name)
        self.axes.append(mine)
    if not self.axes: self.names, self.axes = ["one element"], [()]

  def run(self) -> Derivation:
    """Find ``arr``, with ``axes`` for its dimensions. Raises NoArrangement."""
    with assuming() as self.assumed:
      for level in self.axes:
        for a in level: self.deny(self.sizes[a.id], 1)   # a loop without rounds touches nothing
      self.flip_and_flatten()
      terms = [terms_of(i)[0] for i in self.index]
      axes = [t for ts in terms for t, _ in ts]
      if any(t.op is not Ops.RANGE for t in axes) or len(set(axes)) != len(axes): raise NoArrangement   # a diagonal
      self.make_plan(terms)
      self.fit()
      self.tile()
      self.name_levels({t.arg[0] for ts in terms for t, k in ts if _negative(k)})
      if not self.assumed.keys() <= self.known: raise NoArrangement
    return self

  def deny(self, a: Dim, b: Dim) -> None:
    """a < b is known to be false."""
    condition = ix.lt(node(a), b)
    if condition.op is Ops.CONST: return
    self.known.add(negated(condition))
    self.assumed[negated(condition)] = None

  # ---- first: every index a sum of axes

  def flip_and_flatten(self) -> None:
    """Flip dimensions that are indexed backwards, and flatten those that one axis indexes together: (x // 3, x % 3) -> x."""
    for d in range(len(self.index)): self.split_backwards(d)
    backwards = tuple(d for d, i in enumerate(self.index) if (ts := terms_of(i)[0]) and all(_negative(k) for _, k in ts))
    for d in backwards: self.index[d] = ix.sub(node(minus(self.arr.shape[d], 1)), self.index[d])
    if backwards: self.arr = self.arr.flip(backwards)
    separated = False
    while group := self.entangled():
      if separated and len(group) == 1: group = self.repeat(group[0])
      for order in permutations(group):
        flat = self.index[order[0]]
        for d in order[1:]: flat = ix.add(ix.mul(flat, self.arr.shape[d]), self.index[d])
        if of_axes(flat, BinaryOps.MIN): break
      else:
        if separated: raise NoArrangement
        for d in range(len(self.index)): self.separate(d)
        separated = True
        continue
      place = group[0]   # those before it are in no group
      rest = [d for d in range(len(self.index)) if d not in group]
      now = *rest[:place], *order, *rest[place:]
      if now != tuple(range(len(now))): self.arr = self.arr.permute(now)
      self.arr = self.arr.flatten(place, place + len(order) - 1)
      self.index = [*(self.index[d] for d in rest[:place]), flat, *(self.index[d] for d in rest[place:])]
    for d in range(len(self.index)): self.unshift(d)

  def split_backwards(self, d: int) -> None:
    """Split an index that goes on by some axes and back by a quotient or remainder: 3*y + 2 - x // 4 -> y, 2 - x // 4."""
    terms, c = terms_of(self.index[d])
    up, down = ([tk for tk in terms if _negative(tk[1]) == below] for below in (False, True))
    if not up or all(t.op is Ops.RANGE for t, _ in down): return
    back = ix.add(ix.weighted_sum(down), c)
    lo, hi = ends(back)
    stride = common(k for _, k in up)
    if lo == 0 and ix.vmax(node(minus(hi, stride))) < 0: self.split(d, up, [back], plus(hi, 1), stride)

  def unshift(self, d: int) -> None:
    """Split an index whose last tile is shifted inwards: min(8*x, n - 8) + y -> x, y."""
    while not of_axes(i := self.index[d]):
      shifted = next(t for t, _ in terms_of(i)[0] if t.op is not Ops.RANGE)
      most = next(filter(ix.of_sizes, shifted.src), None)
      rest = ix.sub(i, shifted)
      if most is None or not of_axes(rest): raise NoArrangement
      x = shifted.src[shifted.src[0] is most]
      terms, c = terms_of(x)
      if c != 0 or x.ranges & rest.ranges or any(_negative(k) for _, k in terms): raise NoArrangement
      lo, hi = ends(rest)
      size = plus(minus(hi, lo), 1)
      self.resize({d: (lo, plus(ix.number(most), size))})
      self.split(d, terms, [ix.sub(rest, lo)], size, common(k for _, k in terms), shift_inwards=True)

  def separate(self, d: int) -> None:
    """Split an index whose terms y share axes with nothing else: k*(x // n) + y -> x // n, y."""
    i = self.index[d]
    if of_axes(i, BinaryOps.MIN): return
    terms, c = terms_of(i)
    others = [t for t, _ in terms if t.op is not Ops.RANGE] + [j for e, j in enumerate(self.index) if e != d]
    elsewhere = frozenset[UOp]().union(*(t.ranges for t in others))
    alone = [(t, k) for t, k in terms if t.op is Ops.RANGE and t not in elsewhere]
    shared = [t for t in terms if t not in alone]
    stride = common(k for _, k in shared)
    if not alone and stride == 1: return
    if c != 0 or any(_negative(k) for _, k in terms): raise NoArrangement
    within = ix.weighted_sum(alone)
    self.split(d, shared, [within] if alone else [], plus(ends(within)[1], 1), stride)

  def split(self, d: int, terms: Terms, inner: list[UOp], size: Dim, stride: Dim, shift_inwards: bool = False) -> None:
    """Dimension ``d``, (n) -> (windows, size): ``terms``, over ``stride``, is the window, ``inner`` the element in it, if any."""
    n = len(self.index)
    sizes, strides = ([here if e == d else 1 for e in range(n)] for here in (size, stride))
    self.arr = self.arr.tile(sizes, strides, shift_inwards=shift_inwards).ravel()
    dropped = tuple(n + e for e in range(n) if e != d or not inner)
    if dropped: self.arr = self.arr.squeeze(dropped)
    self.index[d] = ix.weighted_sum([(t, over(k, stride)) for t, k in terms])
    self.index += inner
    if self.extent(self.index[d]) != self.arr.shape[d]: raise NoArrangement

  def resize(self, wanted: dict[int, tuple[Dim, Dim]]) -> None:
    """Dimensions that begin at another element and have another size: what is missing is padded, what is over is cut off."""
    shape = self.arr.shape
    dims = [wanted.get(d, (0, n)) for d, n in enumerate(shape)]
    pads = [(greater(minus(0, lo), 0), self.behind(plus(lo, size), n)) for (lo, size), n in zip(dims, shape)]
    if any(p != (0, 0) for p in pads): self.arr = self.arr.pad(pads)
    ranges = [(begin, plus(begin, size)) for lo, size in dims for begin in (greater(lo, 0),)]
    for begin, end in ranges: self.deny(end, begin)
    if ranges != [(0, n) for n in self.arr.shape]: self.arr = self.arr.shrink(ranges)

  def behind(self, end: Dim, n: Dim) -> Dim:
    """How far an end lies behind a dimension's; 0 for an index that is inside, where sizes do not tell it."""
    beyond = minus(end, n)
    lo, hi = ix.bounds(node(beyond))
    if not (self.inside and lo <= 0 < hi): return greater(beyond, 0)
    self.deny(n, end)
    return 0

  def extent(self, i: UOp) -> Dim:
    """How many elements an index goes over; where its last round is shorter, without what that lacks: a0*64 + a1 -> N."""
    lo, hi = ends(i)
    out = plus(minus(hi, lo), 1)
    for t, k in terms_of(i)[0]:
      if t.op is not Ops.RANGE or t.arg[0] not in self.lacks: continue
      n, missing = self.lacks[t.arg[0]]
      if not ix.divides(n, k): raise NoArrangement
      out = minus(out, times(over(_size(k), n), missing))
    return out

  def repeat(self, d: int) -> list[int]:
    """Add an expanded dimension for the other half of a quotient or remainder that is alone: x // n -> x // n, x % n."""
    i = self.index[d]
    if i.arg not in (BinaryOps.IDIV, BinaryOps.MOD): raise NoArrangement
    x, n = i.src
    divided = i.arg is BinaryOps.IDIV
    other = ix.mod(x, n) if divided else ix.fdiv(x, n)
    at = d + divided
    self.arr = self.arr.unsqueeze(at)
    self.arr = self.arr.expand((*self.arr.shape[:at], plus(ends(other)[1], 1), *self.arr.shape[at + 1:]))
    self.index.insert(at, other)
    return [d, d + 1]

  def entangled(self) -> list[int]:
    """Dimensions whose indices share axes, one of them by ``//`` or ``%``; empty when there are none."""
    d = next((d for d, i in enumerate(self.index) if not of_axes(i, BinaryOps.MIN)), None)
    if d is None: return []
    group, more, shared = [d], [d], frozenset[UOp]()
    while more:
      shared = shared.union(*(self.index[e].ranges for e in more))
      more = [e for e, j in enumerate(self.index) if e not in group and shared & j.ranges]
      group += more
    if len(group) > 5: raise NoArrangement
    return sorted(group)

  # ---- then: the terms of each dimension are assigned to levels

  def make_plan(self, terms: list[Terms]) -> None:
    """Assign each term of each index to a step: the terms of a level by falling factor, one a step for each dimension."""
    self.plan: list[_Row] = []
    self.steps: list[int] = []
    self.gaps: list[list[Dim]] = []   # the dilations of each step that is made, one a dimension
    every = [[(t.arg[0], _size(k)) for t, k in ts] for ts in terms]
    for n, axes in enumerate(self.axes):
      ids = {a.id for a in axes}
      mine = [sorted((ak for ak in ts if ak[0] in ids), key=lambda ak: falling(ak[1])) for ts in every]
      for s in range(max(map(len, mine), default=0)):
        self.plan.append([m[s] if s < len(m) else None for m in mine])
        self.steps.append(n)
    self.tiled = len(self.plan) > 1 or any(t is not None and t[1] != 1 for row in self.plan for t in row)

  def column(self, d: int, s: int = 0) -> list[tuple[Dim, Dim]]:
    """Size and factor of the axes of a dimension, from step ``s`` on."""
    return [(self.sizes[t[0]], t[1]) for row in self.plan[s:] if (t := row[d]) is not None]

  def window(self, s: int, d: int) -> tuple[Dim, Dim, Dim, Dim]:
    """(count, size, stride, dilation) of the ``tile`` that splits step ``s`` off dimension ``d``, less earlier dilations."""
    factor = ix.product(gaps[d] for gaps in self.gaps[:s])
    if not all(ix.divides(factor, k) for _, k in self.column(d, s)): raise NoArrangement
    rest = [(n, over(k, factor)) for n, k in self.column(d, s + 1)]
    least = max((k for _, k in rest), key=falling, default=1)
    gap = least if all(ix.divides(least, k) for _, k in rest) else 1
    far = ix.total(times(minus(n, 1), k) for n, k in rest)   # the last element from the first
    size = plus(over(far, gap), 1)
    here = self.plan[s][d]
    return (1, size, size, gap) if here is None else (self.sizes[here[0]], size, over(here[1], factor), gap)

  def fit(self) -> None:
    """Pad and shrink until every dimension is as long as its index needs; ``tile`` itself takes in a partial last window."""
    least = [ends(i)[0] for i in self.index]
    have = [minus(n, lo) for n, lo in zip(self.arr.shape, least)]
    need = [self.extent(i) for i in self.index]
    def fits(partial: bool) -> list[bool]:
      if not self.tiled: return [h == n for h, n in zip(have, need)]
      return [window_count(h, size, stride, gap, partial) == count
              for d, h in enumerate(have) for count, size, stride, gap in (self.window(0, d),)]
    whole = fits(True)
    self.floor = not all(whole) and all(fits(False))
    self.resize({d: (lo, h if fit or self.floor else n) for d, (lo, h, n, fit) in enumerate(zip(least, have, need, whole))})

  def tile(self) -> None:
    if not self.tiled: return
    for s in range(max(len(self.plan) - 1, 1)):
      counts, sizes, strides, gaps = map(list, zip(*[self.window(s, d) for d in range(len(self.index))]))
      self.gaps.append(gaps)
      for size in sizes: self.deny(size, 1)   # as no axis is empty
      # a stride that no second window takes is not worth saying
      strides = [size if count == 1 else stride for count, size, stride in zip(counts, sizes, strides)]
      self.arr = self.arr.tile(sizes, strides, gaps, self.floor and s == 0, level=s)
    if len(self.plan) == 1: self.arr = self.arr.ravel()

  # ---- last: each level has its axes, in the kernel's order

  def name_levels(self, backwards: set[int]) -> None:
    """Join the steps of a level, and give every level its axes; ``backwards`` are those that go through it so."""
    n = len(self.index)
    rows = [[None if t is None else t[0] for t in row] for row in self.plan] or [[None] * n]
    if self.tiled and len(rows) == 1: rows[0] += [None] * n
    steps = self.steps or [0]
    for level in range(len(self.axes)):      # several steps of one level are one level
      if (k := steps.count(level)) > 1:
        at = steps.index(level)
        self.arr = self.arr.ravel(k, at)
        rows[at:at + k] = [[a for row in rows[at:at + k] for a in row]]
        steps[at:at + k] = [level]
    if self.names[0] == "GRID" and steps[0] != 0:  # no axis of the grid: every program sees all of it
      self.arr = self.arr.tile((-1,) * len(rows[0]))
      rows.insert(0, [None] * len(rows[0]))
    for level, (have, axes) in enumerate(zip(rows, self.axes)):
      back = tuple(i for i, a in enumerate(have) if a in backwards)
      if back: self.arr = self.arr.flip(back, level=level)
      self.settle(level, have, [a.id for a in axes])

  def settle(self, level: int, have: list[int | None], want: list[int]) -> None:
    """Dimensions of a level (an axis each, or None for 1) become the wanted axes."""
    if len(have) != len(want) or any(h not in (None, w) for h, w in zip(have, want)):
      dropped = tuple(i for i, a in enumerate(have) if a is None)
      if dropped: self.arr = self.arr.squeeze(dropped, level=level)
      have = [a for a in have if a is not None]
      order = tuple(have.index(a) for a in want if a in have)
      if order != tuple(range(len(order))): self.arr = self.arr.permute(order, level=level)
      for i, a in enumerate(want):
        if a not in have: self.arr = self.arr.unsqueeze(i, level=level)
    sizes = tuple(self.sizes[a] for a in want)
    if self.arr.levels[level] != sizes: self.arr = self.arr.expand(sizes, level=level)


def straight(axes: Sequence[Axis], shape: Sequence[Dim], index: Sequence[UOp], gate: UOp) -> Derivation:
  """The derivation of an index as it is. Raises NoArrangement."""
  return Derivation(axes, shape, index, gate is ix.TRUE).run()
