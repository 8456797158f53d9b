"""Pass: reductions along one axis that need each other -> one loop over that axis, which makes them all.

A softmax's sum needs the greatest score, and a product with the weights needs both. Each score is made once, and what was added
so far is corrected when the greatest grows (``one_pass_rule`` has the rule):

    y[i, d] = sum[j](exp(s - max[j](s)) * v[j, d]) / sum[j](exp(s - max[j](s))),  s = sum[k](q[i, k] * k[j, k])

    ->  most = -inf, total = 0, sums = 0
        for each block of j:
          s = sum[k](q[i, k] * k[j, k])
          next = max(most, max[j](s)),  w = exp(s - next),  by = exp(most - next)
          total = total * by + sum[j](w),  sums = sums * by + sum[j](w * v[j, d])
          most = next
        y[i, d] = sums / total

This is the online softmax of Milakov and Gimelshein (2018), which FlashAttention (Dao et al., arXiv 2205.14135) keeps blocks of
in fast memory; as a rule for any such reductions it is in Neptune (arXiv 2510.08726).
"""
from __future__ import annotations

import math
import sys
from collections.abc import Collection
from functools import cached_property, reduce

from .. import index as ix
from ..ir import FUNCTIONS, BinaryOps, Ops, Target, TernaryOps, UnaryOps, UOp, identity, multiplied_exactly, toposort, union
from ..ir.alu import add, less, mul
from ..ir.dtype import dtypes
from ..ir.uop import power_of_two
from ..kernel import Axis, AxisKind, Kernel, flat_index, rewrite, steps_of, substitute, volume
from ..opts import TensorDescriptor, Warps
from .builder import Builder, chooses, for_, keep, put, reduce_over, store_over
from .matrix_units import in_powers_of_two, unrounded
from .one_pass_rule import MOST_WITHIN, Chain, Shift, counted_where, find_chain, greatest_along, times, uncast_float

RECOMPUTED = 6                                  # operations up to which a value is computed again
# rows and columns of a block of scores, at most, where blocks are multiplied (bench/RESULTS-attention.md). By warp groups those
# that have the registers take more: of wide rows several, or scores that are products alone; of others one, but for a bias
_MULTIPLIED, _LARGE, _NARROW, _LONG = (64, 64), (128, 64), (64, 32), (64, 128)
_ON_CPU = 64, 64                                # the same on a CPU, whose own cache holds them
LANES = 16                 # elements that blocks on a CPU are multiples of
LEAST_MULTIPLIED = 16      # elements of a block that is multiplied, along each axis
LEAST_CORES = 4            # programs for one of so many cores, at least, on a target with blocks
WARP_ROWS, LEAST_WARPS = 16, 4   # rows of a warp; few are multiplied by several, each of which has some of the columns
_LEAST = {dtypes.float32: math.ldexp(2 ** -23 - 2, 127), dtypes.float64: -sys.float_info.max}   # finite numbers
DESCRIBED = 32             # blocks of a loop from which on descriptors are worth making


def lower_one_pass(kernel: Kernel, target: Target | None = None) -> Kernel:
  """Reductions along one axis that need each other -> a loop over its blocks: max[j](s), sum[j](exp(s - max[j](s)) * v) -> FOR(j,
  m = max(m, s), sum = sum * exp(old m - m) + exp(s - m) * v)."""
  if (chain := find_chain(kernel)) is None or (rows := chain.rows(kernel)) is None: return kernel
  if not all(isinstance(a.size, int) and a.size <= MOST_WITHIN for a in chain.whole(kernel)): return kernel
  made = kernel
  if target and target.blocks:
    if any(map(_multiplied_exactly, kernel.reduces)): return kernel
    faster = with_shared_axes(in_powers_of_two(unrounded(kernel) or kernel, chain.axis), chain)
    if (found := find_chain(faster)) is not None: made, chain = faster, found
  blocks = _Blocks(made, target, chain, rows)
  # one query and a long cache would be read by a few programs, each from the first to the last key
  return kernel if blocks.blocks and blocks.started * LEAST_CORES < blocks.cores else blocks.made_in_blocks()


def with_shared_axes(kernel: Kernel, chain: Chain) -> Kernel:
  """A kernel whose inner reductions go along axes of as many elements that others have, so that what both read is read once:
  sum[k](q[i, k] * x[j, k]), y[i, d] = sum[j](p[i, j] * x[j, d]) -> sum[d](q[i, d] * x[j, d])."""
  axes = chain.whole(kernel)
  def reduce_(old: UOp, r: UOp) -> UOp | None:
    a = next((a for a in axes if r.arg[1] == (a.id,)), None)
    if a is None: return None
    taken = {i for u in toposort(r.src) if u.op is Ops.REDUCE for i in u.arg[1]}   # along these something is summed within
    b = next(b for b in axes if b is a or b.size == a.size and b.rng not in r.src[0].ranges and b.id not in taken)
    return None if b is a else r.replace(substitute(r.src, {a.rng: b.rng}), arg=(r.arg[0], (b.id,)))
  body = rewrite(kernel.body, {Ops.REDUCE: reduce_})
  used = {u.arg[0] for u in toposort(body) if u.op is Ops.RANGE}
  return kernel.with_(axes=tuple(a for a in kernel.axes if a not in axes or a.id in used), body=body)


def _multiplied_exactly(r: UOp) -> bool:
  """Whether no matrix unit makes a sum of products, which takes the registers that the blocks between products are to stay in."""
  x = r.src[0]
  if x.arg is not BinaryOps.MUL or not multiplied_exactly(x): return False
  a, b = [s.ranges for s in x.src]
  return bool(a - b and b - a) and all(any(i.arg[0] in r.arg[1] for i in s) for s in (a, b))


def _other_rows(kernel: Kernel, chain: Chain, rows: Axis) -> Axis | None:
  """Where both factors of the products within vary along the chain's axis, the axis whose elements are multiplied with those of
  the rows: j in sum[b](f(sum[d](x[b, i, d] * y[b, j, d]))). None where the chain's are."""
  factors = [s for r in chain.inner if r.src[0].arg is BinaryOps.MUL for s in r.src[0].src]
  if not all(chain.axis in s.ranges for s in factors): return None
  axes = [a for a in kernel.axes if a is not rows and a.rng in chain.common and not all(a.rng in s.ranges for s in factors)]
  return max(axes, key=lambda a: a.count, default=None)


class _Blocks(Builder):
  """A kernel whose chain is made by a loop: a program has a block of rows, and goes along the blocks of the chain's axis."""

  def __init__(self, kernel: Kernel, target: Target | None, chain: Chain, rows: Axis):
    super().__init__(kernel, target)
    if (other := _other_rows(kernel, chain, rows)) is not None: rows, other = sorted((rows, other), key=lambda a: a.id)
    self.chain, self.rows, self.columns, self.common = chain, rows, kernel.axis(chain.axis.arg[0]), chain.common
    self.each_round = [s for s in kernel.body if chain.axis in s.ranges]   # what is stored block by block
    self.made_inside = [*[m.inside for m in chain.members], *[s.src[2] for s in self.each_round]]
    self.blocks, self.is_wide, self.long_warps = bool(target and target.blocks), False, False
    all_of = chain.whole(kernel)
    most = _ON_CPU
    if target and target.blocks:
      several = sum(r.ranges >= self.common for r in chain.inner) > 1
      wide = self.is_wide = max([a.count for a in all_of], default=1) > _MULTIPLIED[1]
      self.long_warps = wide and not several and target.warp_groups and self.of_products_alone()
      large = self.long_warps or wide and several and target.warp_groups
      long = target.warp_groups and not wide and not several and self.of_products_mostly()
      most = _LARGE if large else _LONG if long else _NARROW if wide and several else _MULTIPLIED
    self.height, across = self.size(rows.size, most[0]), self.size((other or self.columns).size, most[1])
    self.width = across if other is None else 1
    self.axes += [a for a in kernel.axes if a not in (rows, other, self.columns) and a not in all_of]
    rows_in_all = volume(self.axes) * ix.count(rows.size) * (1 if other is None else ix.count(ix.rounds(other.size, across)))
    while self.blocks and self.height > LEAST_MULTIPLIED and rows_in_all < self.height * self.cores: self.height //= 2
    self.fixed, self.there = dict[UOp, UOp](), dict[UOp, UOp]()
    self.row = self.blocks_along(rows, self.height)
    if other is not None: self.blocks_along(other, across)
    self.table = self.fixed
    self.started = volume(a for a in self.axes if a.kind is AxisKind.GRID)
    begin, end = self.trimmed()
    self.rounds = ix.number(end if begin is ix.ZERO else ix.greatest(ix.sub(end, begin), 0))
    self.step = self.new(ix.rounds(self.columns.size, self.width), AxisKind.LOOP)
    self.block = ix.add(self.step.rng, begin)
    self.axes += [Axis(a.id, a.size, AxisKind.TILE) for a in all_of]
    # behind the others: blocks lie along it
    self.column = self.new(self.width, AxisKind.TILE) if other is None else None
    self.to_least = all(s.by is s.statistic and s.by.dtype in _LEAST and 0 < s.c <= 1 for m in chain.members for s in m.shifts)
    self.before: list[UOp] = []        # what stands before the loop
    self.kept: dict[UOp, UOp] = {}     # the variable of each member
    self.reads = set[UOp]()            # variables of what is read at first in a round
    self.newest: dict[UOp, UOp] = {}   # of a statistic that others are shifted by, in the round

  def blocks_along(self, axis: Axis, size: int) -> Axis:
    """The axis of a program's block of so many elements of an axis."""
    at, tile = self.new(ix.rounds(axis.size, size), AxisKind.GRID), self.new(size, AxisKind.TILE)
    i = self.fixed[axis.rng] = ix.add(ix.mul(at.rng, size), tile.rng)
    self.there[tile.rng] = ix.TRUE if ix.divides(size, axis.size) else ix.lt(i, axis.size)
    return tile

  def size(self, n: ix.Dim, most: int) -> int:
    """The elements of a block along an axis of ``n``: at most so many, few of which are behind the last."""
    if not isinstance(n, int): return most
    if self.blocks: return min(most, max(power_of_two(n), LEAST_MULTIPLIED))
    each = -(-n // -(-n // most))
    return n if n <= LANES else min(-(-each // LANES) * LANES, most)

  def made_in_blocks(self) -> Kernel:
    """The kernel with its loop."""
    members = self.chain.members
    for n, m in enumerate(members):
      nothing = UOp.const(m.node.dtype, identity(m.node.arg[0], m.node.dtype))
      self.kept[m.node] = keep(self.before, f"so_far{n}", nothing, *self.axes_of(*m.node.ranges))
    loop = for_(self.step, self.rounds, *self.statements(self.made_before()))
    rows = 2 * WARP_ROWS if self.long_warps else WARP_ROWS
    told = (Warps(max(self.height // rows, LEAST_WARPS)),) if self.blocks else ()
    made = self.made((*self.before, loop, *self.stored()), applied=told)
    for slot in sorted({u.src[0].arg[0] for u in self.described}): made = TensorDescriptor(slot).apply(made)
    return made

  @cached_property
  def described(self) -> list[UOp]:
    """What a long loop reads of params that it goes through, of wide rows: a descriptor spares a round the addresses of them."""
    target, axis = self.target, self.chain.axis
    if not (target and target.descriptors and self.is_wide and ix.count(self.step.size) >= DESCRIBED): return []
    reads: dict[int, list[UOp]] = {}
    for u in toposort(self.made_inside):
      if u.op is Ops.LOAD and u.src[0].op is Ops.DEFINE_GLOBAL: reads.setdefault(u.src[0].arg[0], []).append(u)
    def goes(u: UOp) -> bool: return axis in u.ranges and self.rows.rng not in u.ranges and bool(u.ranges - self.common - {axis})
    return [u for found in reads.values() if all(map(goes, found)) for u in found]

  # ---- which blocks

  def reads_pairs(self) -> bool:
    """Whether something is read for each pair of a row and a column, as a bias is."""
    pair = {self.chain.axis, self.rows.rng}
    return any(u.op is Ops.LOAD and pair <= u.ranges for u in toposort(self.made_inside))

  def of_products_mostly(self) -> bool:
    """Whether scores are products, scaled at most and masked behind some column: others take registers, or few columns each."""
    axis, row = self.chain.axis, self.rows.rng
    def computes(u: UOp) -> bool:
      return u.op is Ops.ALU and u.dtype.kind == "f" and u.arg is not TernaryOps.WHERE and {axis, row} <= u.ranges
    scores = [m.inside for m in self.chain.members if m.node.arg[0] is BinaryOps.MAX]
    begins = any(dict(ix.linear(c)[0]).get(axis, 0) < 0 for c in self.conditions())   # behind the first column
    return not self.reads_pairs() and not begins and sum(map(computes, toposort(scores, lambda u: u.op is Ops.REDUCE))) <= 1

  def of_products_alone(self) -> bool:
    """Whether all elements count, and nothing is read for each pair of a row and a column: no mask, and no bias."""
    def masks(u: UOp) -> bool: return u.arg is TernaryOps.WHERE and self.chain.axis in u.src[0].ranges
    return not self.reads_pairs() and not any(map(masks, toposort(self.made_inside)))

  def conditions(self) -> list[UOp]:
    """Indices that are below 0 wherever something counts, for any member; none where all is stored."""
    if self.each_round: return []
    first, *others = [dict.fromkeys(counted_where(m)) for m in self.chain.members]
    return [c for c in first if all(c in other for other in others)]

  def trimmed(self) -> tuple[UOp, UOp]:
    """The first block of the chain's axis of which something counts, and the end of these."""
    begin, end = ix.ZERO, ix.node(ix.rounds(self.columns.size, self.width))
    for c in self.conditions():
      if (found := self.step_of(c)) is None: continue
      k, most = found
      if k > 0: end = ix.least(end, ix.greatest(ix.cdiv(most, k * self.width), 0))
      else: begin = ix.greatest(begin, ix.fdiv(ix.add(ix.fdiv(ix.mul(most, -1), -k), 1), self.width))
    return begin, end

  def step_of(self, c: UOp) -> tuple[int, UOp] | None:
    """The step of an index along the chain's axis, and the most that this has to be below for some row of a program where the
    index is below 0. None where it does not go along that axis, or along others."""
    axis, index = self.chain.axis, self.here(c)
    for t, by in ix.linear(index)[0]:   # j // d + rest < 0  ->  j + rest * d < 0
      if t is axis or axis not in t.ranges or t.arg is not BinaryOps.IDIV or abs(by) != 1: continue
      others, d = ix.sub(index, ix.mul(t, by)), t.src[1]
      index = ix.add(ix.mul(t.src[0], by), ix.add(ix.mul(others, d), 0 if by > 0 else ix.sub(d, 1)))
      break
    k = dict(ix.linear(index)[0]).get(axis, 0)
    most = greatest_along(ix.sub(ix.mul(axis, k), index), [self.row.rng])
    outside = {a.rng for a in self.axes if a.kind is AxisKind.GRID}
    return (k, most) if k and most is not None and outside.issuperset(most.ranges) else None

  # ---- values

  def value(self, u: UOp) -> UOp:
    """A value by the new axes, read where it is there."""
    def load(old: UOp, u: UOp) -> UOp | None:
      gates = [gate for r, gate in self.there.items() if gate is not ix.TRUE and r in u.ranges]
      return u.replace((*u.src[:2], ix.both(*u.src[2:], *gates))) if gates and u.src[0].op is Ops.DEFINE_GLOBAL else None
    return rewrite((self.here(u),), {Ops.LOAD: load})[0]

  def axes_of(self, *ranges: UOp) -> list[Axis]:
    """The tile axes of what is a function of axes of the kernel, or of new ones."""
    here = union([self.here(r).ranges for r in ranges])
    return [a for a in self.axes if a.kind is AxisKind.TILE and a.rng in here]

  def counted(self, x: UOp, fn: BinaryOps, blocks: Collection[UOp], body: list[UOp]) -> UOp:
    """What is reduced, without what is behind the last element. Of ``blocks`` one is written over (weight = where(j < n, weight,
    0)), which ``masks`` has whole blocks spared; what it is multiplied by is read as 0 there."""
    gate, value = ix.TRUE if self.column is None else self.there[self.column.rng], self.value(x)
    if gate is ix.TRUE: return value
    product = x.arg is BinaryOps.MUL and fn is BinaryOps.ADD
    first, *others = sorted([uncast_float(f) for f in x.src] if product else [x], key=lambda f: f not in blocks)
    if not self.blocks or first not in blocks or not all(map(self.is_read, others)):
      return gate.where(value, UOp.const(x.dtype, identity(fn, x.dtype)))
    body.append(store_over(first, gate.where(first, UOp.const(first.dtype, identity(fn, first.dtype)))))
    return value

  def is_read(self, u: UOp) -> bool:
    """Whether it is read along the chain's axis, and so 0 behind the last element."""
    axes = {self.chain.axis} if self.column is None else {self.chain.axis, self.column.rng}
    return u.op is Ops.LOAD and (u.src[0].op is Ops.DEFINE_GLOBAL or u in self.reads) and not axes.isdisjoint(u.ranges)

  def finite(self, v: UOp, other: UOp | None = None) -> UOp:
    """What a sum is shifted by: a maximum, but the least finite number for -inf, from which -inf is as far as it was; where that
    could overflow, 0 for all that is not finite (or ``other``)."""
    if self.to_least: return UOp.alu(BinaryOps.MAX, v, UOp.const(v.dtype, _LEAST[v.dtype]))
    inside = less(UOp.alu(UnaryOps.ABS, v), UOp.const(v.dtype, math.inf))
    return inside.where(v, UOp.const(v.dtype, 0) if other is None else other)

  def exponential(self, s: Shift, old: UOp, new: UOp) -> UOp:
    """What a sum that is shifted by an old statistic is multiplied by, to be shifted by a new one."""
    a, b = [self.here(substitute((s.by,), {s.statistic: v})[0]) for v in (old, new)]
    return UOp.alu(s.fn, times(UOp.alu(BinaryOps.SUB, a, b), s.c))

  # ---- statements

  def statements(self, made: dict[UOp, UOp]) -> list[UOp]:
    """The body of the loop. ``made``: what was made before."""
    j = self.block
    if self.column is not None:
      j = ix.add(ix.mul(j, self.width), self.column.rng)
      self.there[self.column.rng] = ix.TRUE if ix.divides(self.width, self.columns.size) else ix.lt(j, self.columns.size)
    self.table = {**self.fixed, self.chain.axis: j}
    members, body, late = self.chain.members, list[UOp](), list[UOp]()
    shifting = {s.statistic for m in members for s in m.shifts}
    shared, blocks = self.shared(), set[UOp]()
    def keep_blocks(x: UOp) -> None:
      for u in toposort((x,), made.__contains__):
        if u not in shared or u in made: continue
        there, = substitute((u,), made)
        blocks.add(block := keep(body, f"block{len(made)}", self.value(there), *self.axes_of(*u.ranges)))
        made[u] = block
    by: dict[tuple[UnaryOps, float, UOp], UOp] = {}
    for n, u in enumerate(self.described):   # all at first, to be waited for once
      self.reads.add(read := keep(body, f"read{n}", self.value(u), *self.axes_of(*u.ranges)))
      made[u] = read
    for n, m in enumerate(members):
      keep_blocks(m.inside)
      fn, so_far = m.node.arg[0], self.kept[m.node]
      new = self.counted(substitute((m.inside,), made)[0], fn, blocks, body)
      if self.column is not None: new = reduce_over(fn, new, self.column)
      for s in m.shifts:   # where nothing was there before, by 1
        if (key := (s.fn, s.c, s.by)) not in by:
          now = self.finite(self.newest[s.statistic])
          value = self.exponential(s, self.finite(self.kept[s.statistic], now), now)
          by[key] = keep(body, f"by{len(by)}", value, *self.axes_of(*s.statistic.ranges))
        so_far = mul(so_far, by[key])
      new = UOp.alu(fn, so_far, new)
      if m.node in shifting:   # the old one is needed till the end of the round
        new = self.newest[m.node] = keep(body, f"next{n}", new, *self.axes_of(*m.node.ranges))
        made[m.node] = self.finite(new)
      (late if m.node in shifting else body).append(store_over(self.kept[m.node], new))
    for one in self.each_round:
      keep_blocks(one.src[2])
      body.append(self.put(one, made))
    return body + late

  def made_before(self) -> dict[UOp, UOp]:
    """What is the same in each round: other reductions, and on a target with blocks what the rows have in memory."""
    made: dict[UOp, UOp] = {}
    for u in toposort(self.made_inside, self.kept.__contains__):
      is_row = self.blocks and u.op is Ops.LOAD and self.rows.rng in u.ranges
      if u in self.kept or self.chain.axis in u.ranges or not (u.op is Ops.REDUCE or is_row): continue
      made[u] = keep(self.before, f"outside{len(made)}", self.value(substitute((u,), made)[0]), *self.axes_of(*u.ranges))
    return made

  def shared(self) -> set[UOp]:
    """The values that are made once a round, as a block: those that several reductions need, or one along more axes."""
    users: dict[UOp, dict[UOp, None]] = {}
    dear: dict[UOp, int] = {}   # operations
    for x in self.made_inside:
      for u in toposort((x,), self.kept.__contains__):
        users.setdefault(u, {})[x] = None
        own = RECOMPUTED + 1 if u.op is Ops.REDUCE else FUNCTIONS[u.arg].recompute if u.op is Ops.ALU else 0
        dear[u] = 0 if u in self.kept else own + sum(dear[s] for s in u.src)
    def is_block(s: UOp) -> bool:
      return s not in self.kept and self.chain.axis in s.ranges and s.dtype.kind == "f" and dear[s] > RECOMPUTED
    def alike(a: UOp, b: UOp) -> bool: return users[a] == users[b] and a.ranges - self.common == b.ranges - self.common
    found = {x for x in self.made_inside if len(users[x]) > 1 and is_block(x)}
    for u in users:
      for s in u.src if u.op is Ops.ALU or u.op is Ops.CAST else ():
        if not is_block(s) or alike(s, u): continue
        narrow = s.op is Ops.CAST and s.src[0].dtype.kind == "f" and s.src[0].dtype.itemsize < s.dtype.itemsize
        found.add(s.src[0] if narrow else s)   # in as few bytes as it is rounded to
    def is_masked(u: UOp) -> bool: return u.arg is TernaryOps.WHERE and u.dtype.kind == "f" and self.chain.axis in u.src[0].ranges
    masked = set(filter(is_masked, users)) if self.blocks else set[UOp]()
    return found | self.turned() | masked | {r for r in toposort(masked) if r.op is Ops.REDUCE and is_block(r)}

  def turned(self) -> set[UOp]:
    """On a CPU, factors of inner sums that lie along what is summed: a block is copied for all rows, to lie along the columns."""
    found = set[UOp]()
    for r in self.chain.inner if chooses(self.target) else ():
      for u in toposort((r.src[0],)):
        if u.op is not Ops.LOAD or self.chain.axis not in u.ranges or self.rows.rng in u.ranges: continue
        steps = steps_of(flat_index(self.kernel.by_uop[u.src[0]].shape, u.src[1].src))
        if any(steps.get(i) == 1 for i in r.arg[1]): found.add(u)
    return found

  def stored(self) -> list[UOp]:
    """The STOREs of the kernel, of what the members come to."""
    totals: dict[UOp, UOp] = {}
    out: list[UOp] = []
    self.table = self.fixed
    for n, m in enumerate(self.chain.members):
      so_far, with_ = self.kept[m.node], add if m.node.arg[0] is BinaryOps.MAX else mul
      factors = [self.exponential(s, self.finite(v := self.kept[s.statistic]), v) for s in m.shifts]
      factors += [self.here(substitute((f,), totals)[0]).cast(so_far.dtype) for f in m.factors]
      if factors:
        by = reduce(with_, factors)
        if by.ranges < so_far.ranges: by = keep(out, f"last{n}", by, *self.axes_of(*by.ranges))
        so_far = with_(so_far, by)
      totals[m.node] = so_far
    return out + [self.put(s, totals) for s in self.kernel.body if s not in self.each_round]

  def put(self, s: UOp, made: dict[UOp, UOp]) -> UOp:
    """A STORE of the kernel with what was made."""
    index, gates = self.here(s.src[1]), [self.here(g) for g in s.src[3:]]
    gates += [gate for r, gate in self.there.items() if r in index.ranges]
    return put(s, index, self.value(substitute(s.src[2:3], made)[0]), ix.both(*gates))
