"""The arrangements of a kernel: from the index expressions of its LOADs and STOREs to the meta-operations that make them.

Every derivation is checked by pulling the axes back through the arrangement it found: the result must be the kernel's index
expression, node for node. An index that is no chain of meta-operations (a gather, a diagonal) prints as it is.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import permutations
from typing import Sequence

from . import index as ix
from .arrangement import Arrangement
from .errors import NtgradError
from .kernel import EFFECTS, Axis, AxisKind, Kernel, Param
from .printing import Printer
from .size_text import text_of
from .uop import BinaryOps, Ops, UOp, prod
from .view import Shape, windows

Terms = dict[int, int]     # axis id -> factor
Row = list[tuple[int, int] | None]      # for each dimension: an axis and its factor, None where the step has none

LEVELS = (("GRID", (AxisKind.GRID,)), ("LOOP", (AxisKind.LOOP,)),
          ("tile", (AxisKind.TILE, AxisKind.LOCAL, AxisKind.UPCAST, AxisKind.UNROLL, AxisKind.LANE)))


class _NoArrangement(Exception):
  """The index is not a chain of meta-operations."""


@dataclass(frozen=True)
class Access:
  """One way in which a kernel touches a parameter: the index and its gate, and the arrangement behind them where there is one.

  ``names`` and ``axes`` are those of the arrangement's levels, an axis of the kernel for each dimension; ``where`` are the
  conditions of the gate that the arrangement does not have.
  """
  param: Param
  stored: bool
  index: UOp
  gate: UOp
  arrangement: Arrangement | None = None
  names: tuple[str, ...] = ()
  axes: tuple[tuple[Axis, ...], ...] = ()
  where: tuple[UOp, ...] = ()

  def chain(self) -> str:
    """``data1(64, 32).tile((8, 32))…``, or ``data1(64, 32).at(…)`` with the index as it is; a long part of that is ``…``: the
    body has it."""
    name, printer = f"data{self.param.slot}", Printer(lambda text: "…")
    if self.arrangement is not None: text, conditions = self.arrangement.text(name), self.where
    else:
      text = f"{name}({', '.join(map(text_of, self.param.shape))}).at({', '.join(printer.text(i) for i in self.index.src)})"
      conditions = ix.conjuncts(self.gate)
    return text + (f".where({printer.condition(ix.both(*conditions))})" if conditions else "")

  def levels(self) -> str:
    """``GRID (2, 32) · LOOP (64, 1024) · tile (8, 16)``."""
    shapes = self.arrangement.levels if self.arrangement else ()
    return " · ".join(f"{n} ({', '.join(map(str, dims))})" if dims else n for n, dims in zip(self.names, shapes))


def accesses(kernel: Kernel) -> list[Access]:
  """Every way in which the kernel touches each parameter, in slot order."""
  params = {p.uop: p for p in kernel.params}
  found: dict[tuple[Param, bool, UOp, UOp], None] = {}
  for u in kernel.nodes:
    if u.op not in (Ops.LOAD, *EFFECTS) or u.src[0] not in params: continue
    stored = u.op is not Ops.LOAD
    found[params[u.src[0]], stored, u.src[1], (*u.src[2 + stored:], ix.TRUE)[0]] = None
  return sorted((derive(kernel, *a) for a in found), key=lambda a: (a.param.slot, not a.stored))


def derive(kernel: Kernel, param: Param, stored: bool, index: UOp, gate: UOp) -> Access:
  """The arrangement behind one index."""
  if kernel.sizes: return Access(param, stored, index, gate)
  try:
    d = _Derivation(kernel, param.shape, index.src)
    d.run()
    at, valid = d.arr.pull([[a.rng for a in level] for level in d.axes])
    if at != index.src: raise _NoArrangement
  except (_NoArrangement, NtgradError): return Access(param, stored, index, gate)
  said = set(ix.conjuncts(valid))
  where = tuple(c for c in ix.conjuncts(gate) if c not in said)
  return Access(param, stored, index, gate, d.arr, tuple(d.names), tuple(d.axes), where)


def numbers(shape: Shape) -> tuple[int, ...]:
  """A shape of numbers: nothing is derived where a size is none."""
  return tuple(map(ix.count, shape))


class _Derivation:
  """Outermost level first, each level's terms are split off every index by one ``tile``; what is left is the next level.

  A level may need several steps, one for each term that it has of the same dimension. ``plan`` has a row for each step.
  """

  def __init__(self, kernel: Kernel, shape: Shape, index: Sequence[UOp]):
    self.arr = Arrangement.of(shape)
    self.index = list(index)
    self.sizes = {a.id: a.count for a in kernel.axes}
    used = {r.arg[0] for i in index for r in i.ranges}
    self.names: list[str] = []
    self.axes: list[tuple[Axis, ...]] = []
    for name, kinds in LEVELS:
      every = tuple(a for a in kernel.of_kind(*kinds) if a.count > 1)
      mine = every if name == "GRID" else tuple(a for a in every if a.id in used)   # the grid is the same for every parameter
      if mine:
        self.names.append(name)
        self.axes.append(mine)
    if not self.axes: self.names, self.axes = ["one element"], [()]

  def run(self) -> None:
    """Find ``arr``, with ``axes`` for its dimensions. Raises _NoArrangement."""
    self.flip_and_flatten()
    terms = [self.terms(i) for i in self.index]
    axes = [a for t in terms for a in t]
    if len(set(axes)) != len(axes): raise _NoArrangement   # a diagonal
    self.make_plan(terms)
    self.fit()
    self.tile()
    self.name_levels({a for t in terms for a, k in t.items() if k < 0})

  def terms(self, i: UOp) -> Terms:
    ts, _ = ix.linear(i)
    if any(t.op is not Ops.RANGE for t, _ in ts): raise _NoArrangement
    return {t.arg[0]: k for t, k in ts}

  # ---- first: every index a sum of axes

  def flip_and_flatten(self) -> None:
    """Flip dimensions that are indexed backwards, and flatten those that one axis indexes together: (x // 3, x % 3) -> x."""
    for d in range(len(self.index)): self.split_backwards(d)
    backwards = tuple(d for d, i in enumerate(self.index) if (ts := ix.linear(i)[0]) and all(k < 0 for _, k in ts))
    for d in backwards: self.index[d] = ix.sub(ix.node(ix.minus(self.arr.shape[d], 1)), self.index[d])
    if backwards: self.arr = self.arr.flip(backwards)
    separated = False
    while group := self.entangled():
      if separated and len(group) == 1: group = self.repeat(group[0])
      for order in permutations(group):
        flat = self.index[order[0]]
        for d in order[1:]: flat = ix.add(ix.mul(flat, self.arr.shape[d]), self.index[d])
        if _of_axes(flat, BinaryOps.MIN): break
      else:
        if separated: raise _NoArrangement
        for d in range(len(self.index)): self.separate(d)
        separated = True
        continue
      rest = [d for d in range(len(self.index)) if d not in group]
      place = sum(d < group[0] for d in rest)
      full = (*rest[:place], *order, *rest[place:])
      if full != tuple(range(len(full))): self.arr = self.arr.permute(full)
      self.arr = self.arr.flatten(place, place + len(order) - 1)
      self.index = [self.index[d] for d in rest[:place]] + [flat] + [self.index[d] for d in rest[place:]]
    for d in range(len(self.index)): self.unshift(d)

  def split_backwards(self, d: int) -> None:
    """Split an index that goes on by some axes and back by a quotient or remainder: 3*y + 2 - x // 4 -> y, 2 - x // 4."""
    terms, c = ix.linear(self.index[d])
    up, down = [(t, k) for t, k in terms if k > 0], [(t, k) for t, k in terms if k < 0]
    if not up or all(t.op is Ops.RANGE for t, _ in down): return
    back = ix.add(_sum(down), c)
    lo, hi = ix.bounds(back)
    stride = math.gcd(*(k for _, k in up))
    if lo == 0 and hi < stride: self.split(d, up, [back], hi + 1, stride)

  def unshift(self, d: int) -> None:
    """Split an index whose last tile is shifted inwards: min(8*x, n - 8) + y -> x, y."""
    i = self.index[d]
    if _of_axes(i): return
    found = [t for t, _ in ix.linear(i)[0] if t.op is not Ops.RANGE]
    if len(found) != 1 or found[0].src[1].op is not Ops.CONST: raise _NoArrangement
    x, most = found[0].src[0], found[0].src[1].arg
    rest = ix.sub(i, found[0])
    terms, c = ix.linear(x)
    if c or not (_of_axes(x) and _of_axes(rest)) or x.ranges & rest.ranges or any(k < 0 for _, k in terms): raise _NoArrangement
    lo, hi = ix.bounds(rest)
    size = hi - lo + 1
    self.resize({d: (lo, most + size)})
    self.split(d, terms, [ix.sub(rest, lo)], size, math.gcd(*(k for _, k in terms)), shift_inwards=True)

  def separate(self, d: int) -> None:
    """Split an index whose terms y share axes with nothing else: k*(x // n) + y -> x // n, y."""
    i = self.index[d]
    if _of_axes(i, BinaryOps.MIN): return
    terms, c = ix.linear(i)
    others = [t for t, _ in terms if t.op is not Ops.RANGE] + [j for e, j in enumerate(self.index) if e != d]
    elsewhere = frozenset[UOp]().union(*(t.ranges for t in others))
    alone = [(t, k) for t, k in terms if t.op is Ops.RANGE and t not in elsewhere]
    shared = [t for t in terms if t not in alone]
    stride = math.gcd(*(k for _, k in shared))
    if not alone and stride == 1: return
    if c or any(k < 0 for _, k in terms): raise _NoArrangement
    self.split(d, shared, [_sum(alone)] if alone else [], 1 + sum(ix.vmax(t) * k for t, k in alone), stride)

  def split(
    self, d: int, terms: Sequence[tuple[UOp, int]], inner: list[UOp], size: int, stride: int, shift_inwards: bool = False
  ) -> None:
    """Dimension ``d``, (n) -> (windows, size): ``terms``, over ``stride``, is the window and ``inner`` the element in it; without
    ``inner`` (windows)."""
    n = len(self.index)
    sizes, strides = [1] * n, [1] * n
    sizes[d], strides[d] = size, stride
    self.arr = self.arr.tile(sizes, strides, shift_inwards=shift_inwards).ravel()
    dropped = tuple(n + e for e in range(n) if e != d or not inner)
    if dropped: self.arr = self.arr.squeeze(dropped)
    self.index[d] = _sum([(t, k // stride) for t, k in terms])
    self.index += inner
    if ix.vmax(self.index[d]) + 1 != self.arr.shape[d]: raise _NoArrangement

  def resize(self, wanted: dict[int, tuple[int, int]]) -> None:
    """Dimensions that begin at another element and have another size: what is missing is padded, what is over is cut off."""
    shape = self.arr.shape
    dims = [wanted.get(d, (0, n)) for d, n in enumerate(numbers(shape))]
    pads = [(max(-lo, 0), max(lo + size - n, 0)) for (lo, size), n in zip(dims, numbers(shape))]
    if any(map(any, pads)): self.arr = self.arr.pad(pads)
    ranges = [(max(lo, 0), max(lo, 0) + size) for lo, size in dims]
    if ranges != [(0, n) for n in self.arr.shape]: self.arr = self.arr.shrink(ranges)

  def repeat(self, d: int) -> list[int]:
    """Add an expanded dimension for the other half of a quotient or remainder that is alone: x // n -> x // n, x % n, which x
    indexes together."""
    i = self.index[d]
    if i.op is not Ops.ALU or i.arg not in (BinaryOps.IDIV, BinaryOps.MOD): raise _NoArrangement
    x, n = i.src[0], i.src[1].arg
    divided = i.arg is BinaryOps.IDIV
    other = ix.mod(x, n) if divided else ix.fdiv(x, n)
    at = d + divided
    self.arr = self.arr.unsqueeze(at)
    self.arr = self.arr.expand((*self.arr.shape[:at], ix.vmax(other) + 1, *self.arr.shape[at + 1:]))
    self.index.insert(at, other)
    return [d, d + 1]

  def entangled(self) -> list[int]:
    """Dimensions whose indices share axes, one of them by ``//`` or ``%``; empty when there are none."""
    d = next((d for d, i in enumerate(self.index) if not _of_axes(i, BinaryOps.MIN)), None)
    if d is None: return []
    group, more, shared = [d], [d], frozenset[UOp]()
    while more:
      shared = shared.union(*(self.index[e].ranges for e in more))
      more = [e for e, j in enumerate(self.index) if e not in group and shared & j.ranges]
      group += more
    if len(group) > 5: raise _NoArrangement
    return sorted(group)

  # ---- then: the terms of each dimension are assigned to levels

  def make_plan(self, terms: list[Terms]) -> None:
    """Assign each term of each index to a step: the terms of a level by falling factor, one a step for each dimension."""
    self.plan: list[Row] = []
    self.steps: list[int] = []
    self.gaps: list[list[int]] = []   # the dilations of each step that is made, one a dimension
    for n, axes in enumerate(self.axes):
      ids = {a.id for a in axes}
      mine = [sorted(((a, abs(k)) for a, k in t.items() if a in ids), key=lambda ak: -ak[1]) for t in terms]
      for s in range(max(map(len, mine), default=0)):
        self.plan.append([m[s] if s < len(m) else None for m in mine])
        self.steps.append(n)
    self.tiled = len(self.plan) > 1 or any(t is not None and t[1] > 1 for row in self.plan for t in row)

  def column(self, d: int, s: int = 0) -> list[tuple[int, int]]:
    """Size and factor of the axes of a dimension, from step ``s`` on."""
    return [(self.sizes[t[0]], t[1]) for row in self.plan[s:] if (t := row[d]) is not None]

  def window(self, s: int, d: int) -> tuple[int, int, int, int]:
    """(count, size, stride, dilation) of the ``tile`` that splits step ``s`` off dimension ``d``. The dilations of earlier steps
    are out."""
    factor = prod(gaps[d] for gaps in self.gaps[:s])
    if any(k % factor for _, k in self.column(d, s)): raise _NoArrangement
    rest = [(n, k // factor) for n, k in self.column(d, s + 1)]
    least = min((k for _, k in rest), default=1)
    gap = least if all(k % least == 0 for _, k in rest) else 1
    size = sum((n - 1) * k for n, k in rest) // gap + 1
    here = self.plan[s][d]
    return (1, size, size, gap) if here is None else (self.sizes[here[0]], size, here[1] // factor, gap)

  def fit(self) -> None:
    """Pad and shrink until every dimension is as long as its index needs; ``tile`` itself takes in a partial last window."""
    least = [ix.vmin(i) for i in self.index]
    have = [n - lo for n, lo in zip(numbers(self.arr.shape), least)]
    ends = [1 + sum((n - 1) * k for n, k in self.column(d)) for d in range(len(have))]
    def fits(partial: bool) -> list[bool]:
      if not self.tiled: return [h == e for h, e in zip(have, ends)]
      dims = [(h, self.window(0, d)) for d, h in enumerate(have)]
      counts = [ix.count(windows(h, size, stride, gap, partial)) for h, (_, size, stride, gap) in dims]
      return [max(n, int(partial)) == count for n, (_, (count, *_)) in zip(counts, dims)]
    whole = fits(True)
    self.floor = not all(whole) and all(fits(False))
    self.resize({d: (lo, h if fit or self.floor else e) for d, (lo, h, e, fit) in enumerate(zip(least, have, ends, whole))})

  def tile(self) -> None:
    """A level for every step."""
    if not self.tiled: return
    for s in range(max(len(self.plan) - 1, 1)):
      spec = [self.window(s, d) for d in range(len(self.index))]
      self.gaps.append([gap for *_, gap in spec])
      sizes = [size for _, size, _, _ in spec]
      # a stride that no second window takes is not worth saying
      strides = [size if count == 1 else stride for count, size, stride, _ in spec]
      self.arr = self.arr.tile(sizes, strides, self.gaps[s], self.floor and s == 0, level=s)
    if len(self.plan) == 1: self.arr = self.arr.ravel()

  # ---- last: each level has its axes, in the kernel's order

  def name_levels(self, negative: set[int]) -> None:
    """Join the steps of a level, and give every level its axes; ``negative`` are those that go through it backwards."""
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
      back = tuple(i for i, a in enumerate(have) if a in negative)
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
    full = tuple(self.sizes[a] for a in want)
    if self.arr.levels[level] != full: self.arr = self.arr.expand(full, level=level)


def _of_axes(i: UOp, also: BinaryOps | None = None) -> bool:
  """Whether an index is a sum of axes (and of one other function, where ``also`` allows it)."""
  return all(t.op is Ops.RANGE or also is not None and t.arg is also and k == 1 for t, k in ix.linear(i)[0])


def _sum(terms: Sequence[tuple[UOp, int]]) -> UOp:
  out = ix.const(0)
  for t, k in terms: out = ix.add(out, ix.mul(t, k))
  return out
