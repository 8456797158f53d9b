"""The arrangements of a kernel: from the index expressions of its LOADs and STOREs to the meta-operations that make them.

Every derivation is checked by pulling the axes back through the arrangement it found: what comes out must be the kernel's own
index expression, node for node. An index that is no chain of meta-operations (a gather, a diagonal) prints as it is.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import permutations

from . import index as ix
from .arrangement import Arrangement
from .errors import NtgradError
from .kernel import Axis, AxisKind, Kernel, Param
from .printing import Printer
from .uop import BinaryOps, Ops, UOp

Row = list[tuple[int, int] | None]      # for each dimension: the axis that stands there, and its factor

LEVELS = (("GRID", (AxisKind.GRID,)), ("LOOP", (AxisKind.LOOP,)),
          ("tile", (AxisKind.TILE, AxisKind.LOCAL, AxisKind.UPCAST, AxisKind.UNROLL, AxisKind.LANE)))
Terms = dict[int, int]     # axis id -> factor


class _NoArrangement(Exception):
  """The index is not a chain of meta-operations."""


@dataclass(frozen=True)
class Access:
  """One way in which a kernel touches a parameter: the index and its gate, and the arrangement behind them where there is one."""
  param: Param
  stored: bool
  index: UOp
  gate: UOp
  arrangement: Arrangement | None
  names: tuple[str, ...]                  # of the levels: GRID, LOOP, tile
  axes: tuple[tuple[Axis, ...], ...]      # of each level, one a dimension
  where: tuple[UOp, ...]                  # conditions of the gate that the arrangement does not say

  def pull(self) -> tuple[tuple[UOp, ...], UOp]:
    """The source index and the condition, from the arrangement, as functions of the kernel's axes."""
    assert self.arrangement is not None
    at, valid = self.arrangement.pull([[a.rng for a in level] for level in self.axes])
    return at, ix.both(valid, *self.where)

  def chain(self) -> str:
    """``data1(64, 32).tile((8, 32))…``, or ``data1(64, 32).at(…)`` with the index as it is; a long part of that is ``…``: the
    body has it."""
    name, printer = f"data{self.param.slot}", Printer(lambda text: "…")
    if self.arrangement is None:
      text = f"{name}({', '.join(map(str, self.param.shape))}).at({', '.join(printer.text(i) for i in self.index.src)})"
      conditions = ix.conjuncts(self.gate)
    else: text, conditions = self.arrangement.text(name), self.where
    return text + (f".where({printer.condition(ix.both(*conditions))})" if conditions else "")

  def levels(self) -> str:
    """``GRID (2, 32) · LOOP (64, 1024) · tile (8, 16)``."""
    if self.arrangement is None: return ""
    return " · ".join(f"{n} {_shape(dims)}" if dims else n for n, dims in zip(self.names, self.arrangement.levels))

  def __str__(self) -> str: return self.chain() + (f"   {self.levels()}" if self.arrangement else "")


def _shape(dims: tuple[int, ...]) -> str: return f"({', '.join(map(str, dims))})"


def accesses(kernel: Kernel) -> list[Access]:
  """Every way in which the kernel touches each parameter, in slot order."""
  found: dict[tuple[int, bool, UOp, UOp], Access] = {}
  by_uop = {p.uop: p for p in kernel.params}
  for u in kernel.nodes:
    if u.op not in (Ops.LOAD, Ops.STORE, Ops.ATOMIC) or u.src[0] not in by_uop: continue
    p, at, stored = by_uop[u.src[0]], u.src[1], u.op is not Ops.LOAD
    gate = (u.src[3:4] if stored else u.src[2:3]) or (ix.TRUE,)
    key = (p.slot, stored, at, gate[0])
    if key not in found: found[key] = derive(kernel, p, stored, at, gate[0])
  return sorted(found.values(), key=lambda a: (a.param.slot, not a.stored))


def derive(kernel: Kernel, param: Param, stored: bool, index: UOp, gate: UOp) -> Access:
  """The arrangement behind one index."""
  try:
    arrangement, names, axes = _Derivation(kernel, param.shape, index.src).run()
  except (_NoArrangement, NtgradError):
    return Access(param, stored, index, gate, None, (), (), ())
  at, valid = arrangement.pull([[a.rng for a in level] for level in axes])
  if at != index.src: return Access(param, stored, index, gate, None, (), (), ())
  said = set(ix.conjuncts(valid))
  return Access(param, stored, index, gate, arrangement, names, axes, tuple(c for c in ix.conjuncts(gate) if c not in said))


class _Derivation:
  """Outermost level first, each level's terms are split off every index by one ``tile``; what is left is the next level."""

  def __init__(self, kernel: Kernel, shape: tuple[int, ...], index: tuple[UOp, ...]):
    self.arr = Arrangement.of(shape)
    self.index = list(index)
    self.sizes = {a.id: a.size for a in kernel.axes}
    used = {r.arg[0] for i in index for r in i.ranges}
    self.names: list[str] = []
    self.axes: list[tuple[Axis, ...]] = []
    for name, kinds in LEVELS:
      every = tuple(a for a in kernel.of_kind(*kinds) if a.size > 1)
      mine = every if name == "GRID" else tuple(a for a in every if a.id in used)   # the grid is the same for every parameter
      if mine:
        self.names.append(name)
        self.axes.append(mine)
    if not self.axes: self.names, self.axes = ["one element"], [()]
    self.level = {a.id: n for n, axes in enumerate(self.axes) for a in axes}

  def run(self) -> tuple[Arrangement, tuple[str, ...], tuple[tuple[Axis, ...], ...]]:
    self.flip_and_flatten()
    terms = [self.terms(i) for i in self.index]
    axes = [a for t in terms for a in t[0]]
    if len(set(axes)) != len(axes): raise _NoArrangement   # a diagonal
    negative = {a for t, _ in terms for a, k in t.items() if k < 0}
    plan = self.plan([t for t, _ in terms])
    self.fit(plan, [ix.vmin(i) for i in self.index])
    self.tile(plan)
    self.name_levels(plan, negative)
    return self.arr, tuple(self.names), tuple(self.axes)

  def terms(self, i: UOp) -> tuple[Terms, int]:
    ts, c = ix.linear(i)
    if any(t.op is not Ops.RANGE for t, _ in ts): raise _NoArrangement
    return {t.arg[0]: k for t, k in ts}, c

  # ---- first: every index a sum of axes

  def flip_and_flatten(self) -> None:
    """Turn dimensions that are gone through backwards, and join those that one axis goes through together: (x // 3, x % 3) is
    x."""
    backwards = []
    for d, i in enumerate(self.index):
      ts, c = ix.linear(i)
      if ts and all(k < 0 for _, k in ts):
        backwards.append(d)
        self.index[d] = ix.sub(ix.const(self.arr.shape[d] - 1), i)
    if backwards: self.arr = self.arr.flip(tuple(backwards))
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
    for d in range(len(self.index)): self.move_back(d)

  def move_back(self, d: int) -> None:
    """min(8*x, n - 8) + y, a last tile that is moved back inside, is a dimension for each: x and y."""
    i = self.index[d]
    found = [t for t, _ in ix.linear(i)[0] if t.op is not Ops.RANGE]
    if _of_axes(i): return
    if len(found) != 1 or found[0].src[1].op is not Ops.CONST: raise _NoArrangement
    x, most = found[0].src[0], found[0].src[1].arg
    rest = ix.sub(i, found[0])
    terms, c = ix.linear(x)
    if c or not (_of_axes(x) and _of_axes(rest)) or x.ranges & rest.ranges or any(k < 0 for _, k in terms): raise _NoArrangement
    lo, hi = ix.bounds(rest)
    n, size = len(self.index), hi - lo + 1
    front, begin = max(-lo, 0), max(lo, 0)
    back = max(most + hi + 1 - self.arr.shape[d], 0)
    if front or back: self.arr = self.arr.pad(tuple((front, back) if e == d else (0, 0) for e in range(n)))
    whole = (begin, begin + most + size)
    if whole != (0, self.arr.shape[d]):
      self.arr = self.arr.shrink(tuple(whole if e == d else (0, m) for e, m in enumerate(self.arr.shape)))
    stride = math.gcd(*(k for _, k in terms))
    ones = (1,) * n
    self.arr = self.arr.tile((*ones[:d], size, *ones[d + 1:]), (*ones[:d], stride, *ones[d + 1:]), moved=True).ravel()
    gone = tuple(n + e for e in range(n) if e != d)
    if gone: self.arr = self.arr.squeeze(gone)
    self.index[d] = _sum([(t, k // stride) for t, k in terms])
    self.index.append(ix.sub(rest, lo))
    if ix.vmax(self.index[d]) + 1 != self.arr.shape[d]: raise _NoArrangement

  def separate(self, d: int) -> None:
    """k*(x // n) + y, where nothing else shares axes with y, is a dimension for each: x // n and y."""
    i = self.index[d]
    if _of_axes(i, BinaryOps.MIN): return
    terms, c = ix.linear(i)
    elsewhere = {r for e, j in enumerate(self.index) if e != d for r in j.ranges} | {
      r for t, _ in terms if t.op is not Ops.RANGE for r in t.ranges
    }
    alone = [(t, k) for t, k in terms if t.op is Ops.RANGE and t not in elsewhere]
    shared = [(t, k) for t, k in terms if (t, k) not in alone]
    stride = math.gcd(*(k for _, k in shared))
    if not alone and stride == 1: return
    if c or any(k < 0 for _, k in terms): raise _NoArrangement
    reach = sum(ix.vmax(t) * k for t, k in alone)
    ones = (1,) * len(self.index)
    self.arr = self.arr.tile((*ones[:d], reach + 1, *ones[d + 1:]), (*ones[:d], stride, *ones[d + 1:])).ravel()
    n = len(self.index)
    gone = tuple(n + e for e in range(n) if e != d or not alone)
    if gone: self.arr = self.arr.squeeze(gone)
    self.index[d] = _sum([(t, k // stride) for t, k in shared])
    if alone: self.index.append(_sum(alone))
    if ix.vmax(self.index[d]) + 1 != self.arr.shape[d]: raise _NoArrangement

  def repeat(self, d: int) -> list[int]:
    """x // n alone is every element n times, x % n alone the whole again and again: an expanded dimension beside it makes x of
    both."""
    i = self.index[d]
    if i.op is not Ops.ALU or i.arg not in (BinaryOps.IDIV, BinaryOps.MOD): raise _NoArrangement
    x, n = i.src[0], i.src[1].arg
    other = ix.mod(x, n) if i.arg is BinaryOps.IDIV else ix.fdiv(x, n)
    at = d + (i.arg is BinaryOps.IDIV)
    self.arr = self.arr.unsqueeze(at)
    self.arr = self.arr.expand((*self.arr.shape[:at], ix.vmax(other) + 1, *self.arr.shape[at + 1:]))
    self.index.insert(at, other)
    return [d, d + 1]

  def entangled(self) -> list[int]:
    """Dimensions whose indices share axes, one of them by ``//`` or ``%``; empty when there are none."""
    for d, i in enumerate(self.index):
      if _of_axes(i, BinaryOps.MIN): continue
      group, shared = [d], set(i.ranges)
      grown = True
      while grown:
        more = [e for e, j in enumerate(self.index) if e not in group and shared & j.ranges]
        for e in more: shared |= self.index[e].ranges
        group, grown = sorted(group + more), bool(more)
      if len(group) > 5: raise _NoArrangement
      return group
    return []

  # ---- then: which term of which dimension goes to which level

  def plan(self, terms: list[Terms]) -> list[Row]:
    """For each step (a level, or a part of one) and dimension: the axis that stands there and its factor."""
    steps: list[Row] = []
    self.step_level: list[int] = []
    for n in range(len(self.axes)):
      mine = [sorted(((a, abs(k)) for a, k in t.items() if self.level[a] == n), key=lambda ak: -ak[1]) for t in terms]
      for s in range(max(map(len, mine), default=0)):
        steps.append([m[s] if s < len(m) else None for m in mine])
        self.step_level.append(n)
    return steps

  def windows(self, plan: list[Row], s: int, d: int) -> tuple[int, int, int, int]:
    """(count, size, stride, dilation) of the ``tile`` that splits step ``s`` off dimension ``d``. The dilations of earlier steps
    are out."""
    factor = 1
    for e in range(s): factor *= self.gaps[e][d]
    rest = [(self.sizes[a], k // factor) for a, k in (t for t in (row[d] for row in plan[s + 1:]) if t is not None)]
    here = plan[s][d]
    count, stride = (1, -1) if here is None else (self.sizes[here[0]], here[1] // factor)
    if any(k % factor for _, k in (t for t in (row[d] for row in plan[s:]) if t is not None)): raise _NoArrangement
    reach = sum((n - 1) * k for n, k in rest)
    gap = 1
    if rest and min(k for _, k in rest) > 1 and all(k % min(k for _, k in rest) == 0 for _, k in rest):
      gap = min(k for _, k in rest)
    return count, reach // gap + 1, stride, gap

  def fit(self, plan: list[Row], least: list[int]) -> None:
    """Pad and shrink until every dimension is as long as its index needs; ``tile`` itself takes in a partial last window."""
    self.gaps: list[list[int]] = []
    n = len(self.index)
    ends = [1 + sum((self.sizes[t[0]] - 1) * t[1] for t in (row[d] for row in plan) if t is not None) for d in range(n)]
    begin = [max(lo, 0) for lo in least]
    front = [max(-lo, 0) for lo in least]
    have = [size + f - b for size, f, b in zip(self.arr.shape, front, begin)]
    self.must_tile = len(plan) > 1 or any(t is not None and t[1] > 1 for row in plan for t in row)
    def counts(floor: bool) -> list[bool]:
      if not self.must_tile: return [h == e for h, e in zip(have, ends)]
      out = []
      for d in range(n):
        count, size, stride, gap = self.windows(plan, 0, d)
        rest, step = have[d] - (size - 1) * gap - 1, size if stride == -1 else stride
        out.append((rest // step + 1 if floor else max(-(-rest // step) + 1, 1)) == count)
      return out
    ceil = counts(False)
    self.floor = not all(ceil) and all(counts(True))
    back, cut = [0] * n, have[:]
    if not self.floor:
      for d in range(n):
        if not ceil[d]: back[d], cut[d] = max(ends[d] - have[d], 0), min(ends[d], have[d])
    if any(front) or any(back): self.arr = self.arr.pad(tuple(zip(front, back)))
    shape = self.arr.shape
    ranges = tuple((b, min(b + c + k, size)) for b, c, k, size in zip(begin, cut, back, shape))
    if ranges != tuple((0, size) for size in shape): self.arr = self.arr.shrink(ranges)

  def tile(self, plan: list[Row]) -> None:
    """A level for every step."""
    if not self.must_tile: return
    last = len(plan) - 1
    for s in range(len(plan)):
      if s == last and s > 0: break
      spec = [self.windows(plan, s, d) for d in range(len(self.index))]
      self.gaps.append([w[3] for w in spec])
      sizes = tuple(w[1] for w in spec)
      # a stride that no second window takes is not worth saying
      strides = tuple(w[1] if w[2] == -1 or w[0] == 1 else w[2] for w in spec)
      dilation = tuple(w[3] for w in spec)
      floor = self.floor and s == 0
      self.arr = self.arr.tile(
        sizes, None if strides == sizes else strides, None if set(dilation) == {1} else dilation, floor, level=s
      )
      if last == 0: self.arr = self.arr.ravel()

  # ---- last: each level has its axes, in the kernel's order

  def name_levels(self, plan: list[Row], negative: set[int]) -> None:
    rows = [[None if t is None else t[0] for t in row] for row in plan]
    if not plan: rows = [[None] * len(self.index)]
    elif self.must_tile and len(plan) == 1: rows[0] += [None] * len(self.index)
    steps = self.step_level or [0]
    for n in range(len(self.axes)):      # several steps of one level are one level
      k = steps.count(n)
      at = steps.index(n) if k else -1
      if k > 1:
        self.arr = self.arr.ravel(k, at)
        rows[at:at + k] = [[a for row in rows[at:at + k] for a in row]]
        steps[at:at + k] = [n]
    if self.axes and self.names[0] == "GRID" and plan and steps[0] != 0:  # nothing of the grid: one program's view, for all
      self.arr = self.arr.tile((-1,) * len(rows[0]))
      rows.insert(0, [None] * len(rows[0]))
      steps.insert(0, 0)
    for lv in range(len(rows)):
      want = [a.id for a in self.axes[lv]]
      back = [i for i, a in enumerate(rows[lv]) if a in negative]
      if back: self.arr = self.arr.flip(tuple(back), level=lv)
      self.settle(lv, rows[lv], want)

  def settle(self, lv: int, have: list[int | None], want: list[int]) -> None:
    """Dimensions of a level (an axis each, or None for 1) become the wanted axes."""
    if len(have) != len(want) or any(h not in (None, w) for h, w in zip(have, want)):
      gone = tuple(i for i, a in enumerate(have) if a is None)
      if gone: self.arr = self.arr.squeeze(gone, level=lv)
      have = [a for a in have if a is not None]
      order = tuple(have.index(a) for a in want if a in have)
      if order != tuple(range(len(order))): self.arr = self.arr.permute(order, level=lv)
      for i, a in enumerate(want):
        if a not in have: self.arr = self.arr.unsqueeze(i, level=lv)
    full = tuple(self.sizes[a] for a in want)
    if self.arr.levels[lv] != full: self.arr = self.arr.expand(full, level=lv)


def _of_axes(i: UOp, also: BinaryOps | None = None) -> bool:
  """Whether an index is a sum of axes (and of one other function, where ``also`` allows it)."""
  return all(t.op is Ops.RANGE or also is not None and t.arg is also and k == 1 for t, k in ix.linear(i)[0])


def _sum(terms: list[tuple[UOp, int]]) -> UOp:
  out = ix.const(0)
  for t, k in terms: out = ix.add(out, ix.mul(t, k))
  return out


__all__ = ["Access", "accesses", "derive"]
