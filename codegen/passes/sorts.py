"""Pass: sorts of the scheduler's kernels -> statements, or a SORT of a block.

    STORE(y[k], SORTED(x[j], k))   ->   FOR(j, count[digit(x[j])] += 1), FOR(digit, count = those before it),
                                        FOR(j, at = count[digit(x[j])], count[..] = at + 1, STORE(y[at], x[j]))

A digit is some bits of the keys. A program counts how often each digit occurs. It then puts every element behind those with
lesser digits, and behind those with the same digit that stood before it. Where only the first few are asked for, it keeps these
in order while it goes through the row. On targets with blocks a program has whole rows, which the target sorts as a block.
"""
from __future__ import annotations

from typing import Iterable, NamedTuple

from .. import index as ix
from ..index.rewrite import substitute
from ..ir.config import config
from ..ir.dtype import DType, dtypes
from ..ir.target import Target
from ..ir.uop import BinaryOps, Ops, TernaryOps, UOp
from ..kernel import Axis, AxisKind, Kernel
from .scans import EACH, PROGRAM, store_over, with_gated_loads

LOOK = 16            # elements that are looked at for one that is less than those kept
# ---- targets with blocks
BLOCK = 8192          # elements of a row that a program sorts
_ROWS = 2048          # elements of short rows that a program sorts together


class Sorted(NamedTuple):
  """The arg of a SORTED: the axis that it goes through, the bits that it sorts by, how many of the least are asked for (0: all),
  and whether the elements are bitonic: they rise and then fall, or the other way."""
  axis: int
  low: int
  high: int
  keep: int
  bitonic: bool = False


def lower_sorts(kernel: Kernel, target: Target | None = None) -> Kernel:
  """The scheduler's SORTEDs, which stand anywhere in a value, as loops that count digits, or a block's SORT: SORTED -> FOR,
  count[digit] + 1, FOR, y[count[digit]] = x."""
  if not kernel.sorts: return kernel
  lowering = _Sort(kernel, target)
  if target is not None and target.blocks: return lowering.block()
  return lowering.least() if lowering.spec.keep else lowering.digits()


class _Sort:
  """One such kernel: its SORTED, the axis of what is sorted, and that of the sorted ones."""

  def __init__(self, kernel: Kernel, target: Target | None):
    self.kernel, self.target = kernel, target
    self.sort, = kernel.sorts
    self.spec = Sorted(*self.sort.arg)
    self.axis = kernel.axis(self.spec.axis)
    self.place = self.sort.src[1]
    placed = kernel.axis(self.place.arg[0]) if self.place.op is Ops.RANGE else None
    self.outer = [a for a in kernel.axes if a is not self.axis and a is not placed]
    self.next = max(a.id for a in kernel.axes) + 1
    self.axes: list[Axis] = []
    self.table: dict[UOp, UOp] = {}        # the kernel's axes, by the new ones

  def new(self, size: ix.Dim, kind: AxisKind) -> Axis:
    self.axes.append(Axis(self.next, size, kind))
    self.next += 1
    return self.axes[-1]

  def variable(self, name: str, dtype: DType, *axes: Axis, more: int = 0) -> UOp:
    """What reads a variable with an element for each value of some axes, and ``more``."""
    v = UOp(Ops.DEFINE_LOCAL, dtype, (), (name, tuple([a.known + more for a in axes]), "private"))
    return UOp(Ops.LOAD, dtype, (v, UOp(Ops.INDEX, ix.INT, tuple([a.rng for a in axes]))))

  def along(self, flat: UOp) -> None:
    """Rows: which of them a number among all stands for."""
    for a in reversed(self.outer): self.table[a.rng], flat = ix.mod(flat, a.size), ix.fdiv(flat, a.size)

  def here(self, u: UOp, more: dict[UOp, UOp]) -> UOp: return substitute((u,), {**self.table, **more})[0]

  def value(self, at: UOp) -> UOp: return self.here(self.sort.src[0], {self.axis.rng: at})

  def stores(self, at: UOp, value: UOp, gate: UOp) -> list[UOp]:
    """The kernel's STOREs of the element that is sorted to ``at``."""
    out: list[UOp] = []
    table = {self.sort: value} if self.place.op is not Ops.RANGE else {self.sort: value, self.place: at}
    for s in self.kernel.body:
      index, x, *own = [with_gated_loads(self.here(y, table), gate) for y in s.src[1:]]
      all_of = ix.both(gate, *own)
      out.append(UOp.unique(Ops.STORE, s.dtype, (s.src[0], index, x, *(() if all_of is ix.TRUE else (all_of,)))))
    return out

  def for_(self, axis: Axis, end: ix.Dim, *statements: UOp) -> UOp:
    return UOp.unique(Ops.FOR, dtypes.index, (ix.node(end), *statements), axis.id)

  def made(self, body: Iterable[UOp]) -> Kernel: return self.kernel.with_(axes=tuple(self.axes), body=tuple(body))

  # ---- loops

  def rows(self) -> tuple[Axis, ix.Dim] | None:
    """A program for each row; for several, and the loop over them, where one is too short to be worth it."""
    n = ix.product(a.size for a in self.outer)
    several = min(-(-PROGRAM // max(8 * self.axis.count, 1)), ix.count(n) // (EACH * (self.target.cores if self.target else 1)))
    if config.noopt or self.target is None or self.target.lanes == 1 or self.target.locals or several <= 1:
      self.along(self.new(n, AxisKind.GRID).rng if n != 1 else ix.const(0))
      return None
    program, row = self.new(ix.rounds(n, several), AxisKind.GRID), self.new(several, AxisKind.LOOP)
    self.along(ix.add(ix.mul(program.rng, several), row.rng))
    left = ix.sub(ix.node(n), ix.mul(program.rng, several))
    return row, several if ix.divides(several, n) else ix.number(ix.least(left, several))

  def digits(self) -> Kernel:
    """Every element behind those with lesser digits."""
    loop, low, bits = self.rows(), self.spec.low, self.spec.high - self.spec.low
    i, j = self.new(self.axis.size, AxisKind.LOOP), self.new(self.axis.size, AxisKind.LOOP)
    clear, sums = self.new(1 << bits, AxisKind.TILE), self.new(1 << bits, AxisKind.LOOP)
    dtype = self.sort.dtype
    count = self.variable("count", dtypes.int32, clear)
    x, run, one = self.variable("x", dtype), self.variable("run", dtypes.int32), UOp.const(dtypes.int32, 1)
    before, digit = self.variable("before", dtypes.int32), self.variable("digit", dtypes.int32)
    def number(v: UOp) -> UOp:
      mask = UOp.const(dtype, (1 << bits) - 1)
      return UOp.alu(BinaryOps.AND, UOp.alu(BinaryOps.SHR, v, UOp.const(dtype, low)) if low else v, mask).cast(dtypes.int32)
    def counter(at: UOp) -> UOp: return count.replace((count.src[0], UOp(Ops.INDEX, ix.INT, (at,))))
    mine = counter(digit.cast(ix.INT))
    add = store_over(mine, UOp.alu(BinaryOps.ADD, mine, one))
    added = self.for_(i, self.axis.size, store_over(digit, number(self.value(i.rng))), add)
    each = counter(sums.rng)
    begins = self.for_(sums, 1 << bits, store_over(before, each), store_over(each, run),
                       store_over(run, UOp.alu(BinaryOps.ADD, run, before)))
    put = self.for_(j, self.axis.size, store_over(x, self.value(j.rng)), store_over(digit, number(x)), store_over(before, mine),
                    store_over(mine, UOp.alu(BinaryOps.ADD, before, one)), *self.stores(before.cast(ix.INT), x, ix.TRUE))
    zero = UOp.const(dtypes.int32, 0)
    body = [store_over(count, zero), added, store_over(run, zero), begins, put]
    return self.made([self.for_(*loop, *body)] if loop else body)

  def least(self) -> Kernel:
    """The least so far in order; what is less than the last of them goes to its place among them."""
    loop, keep, dtype = self.rows(), self.spec.keep, self.sort.dtype
    i = self.new(ix.rounds(self.axis.size, LOOK), AxisKind.LOOP)
    each, all_, some = (self.new(n, AxisKind.TILE) for n in (LOOK, keep + 1, keep))
    one, put = self.new(LOOK, AxisKind.LOOP), self.new(keep, AxisKind.LOOP)
    best, x, seen = self.variable("best", dtype, all_), self.variable("x", dtype), self.variable("seen", dtype, each)
    moved, lowest = self.variable("moved", dtype, some), self.variable("lowest", dtype)
    def at(k: ix.Dim | UOp) -> UOp: return best.replace((best.src[0], UOp(Ops.INDEX, ix.INT, (ix.node(k),))))
    greatest, least = UOp.const(dtype, dtypes.max(dtype)), UOp.const(dtype, 0)
    start = store_over(best, UOp.alu(TernaryOps.WHERE, ix.lt(all_.rng, 1), least, greatest))   # nothing comes before the first
    after = at(ix.add(some.rng, 1))
    lesser = UOp.alu(BinaryOps.MIN, after, x)
    shift = store_over(moved, UOp.alu(BinaryOps.MAX, at(some.rng), lesser))
    def where_less(u: UOp, *then: UOp) -> UOp:
      return UOp.unique(Ops.IF, dtypes.bool, (UOp.alu(BinaryOps.CMPLT, u, at(keep)), *then), len(then))
    this = seen.replace((seen.src[0], UOp(Ops.INDEX, ix.INT, (one.rng,))))
    place = ix.add(ix.mul(i.rng, LOOK), each.rng)
    there = ix.lt(place, self.axis.size)
    value = with_gated_loads(self.value(place), there)
    if there is not ix.TRUE: value = UOp.alu(TernaryOps.WHERE, there, value, greatest)
    least_of = UOp(Ops.REDUCE, dtype, (seen,), (BinaryOps.MIN, (each.id,)))
    look = self.for_(i, ix.rounds(self.axis.size, LOOK), store_over(seen, value), store_over(lowest, least_of), where_less(
      lowest, self.for_(one, LOOK, store_over(x, this), where_less(x, shift, store_over(after, moved)))))
    out = self.for_(put, keep, *self.stores(put.rng, at(ix.add(put.rng, 1)), ix.TRUE))
    body = [start, look, out]
    return self.made([self.for_(*loop, *body)] if loop else body)

  # ---- blocks

  def block(self) -> Kernel:
    """Whole rows, several where they are short."""
    most = self.axis.size if isinstance(self.axis.size, int) else ix.vmax(self.axis.size)
    size = max(1 << max(most - 1, 0).bit_length(), 2)
    n = ix.product(a.size for a in self.outer)
    many = max(_ROWS // size, 1)
    cores = self.target.cores if self.target else 1
    while many > 1 and ix.count(n) < many * 2 * cores: many //= 2
    rows = ix.rounds(n, many)
    task = self.new(rows, AxisKind.GRID).rng if rows != 1 else ix.const(0)
    tile = self.new(many, AxisKind.TILE) if many > 1 else None
    row = task if tile is None else ix.add(ix.mul(task, many), tile.rng)
    self.along(row)
    valid = ix.lt(row, n)
    step = self.new(size, AxisKind.TILE)
    together = [step] if tile is None else [tile, step]
    there = ix.both(valid, ix.lt(step.rng, self.axis.size))
    value = with_gated_loads(self.value(step.rng), there)
    if there is not ix.TRUE: value = UOp.alu(TernaryOps.WHERE, there, value, UOp.const(value.dtype, dtypes.max(value.dtype)))
    body: list[UOp] = []
    if step.rng not in value.ranges or tile is not None and tile.rng not in value.ranges:   # the same all along
      same = self.variable("same", value.dtype, *together)
      body.append(store_over(same, value))
      value = same
    run = self.variable("sorted", value.dtype, *together)
    keep = min(1 << (self.spec.keep - 1).bit_length(), size) if self.spec.keep else size
    body.append(store_over(run, UOp(Ops.SORT, value.dtype, (value,), (step.id, False, keep, self.spec.bitonic))))
    body += self.stores(step.rng, run, ix.both(valid, ix.lt(step.rng, self.spec.keep or self.axis.size)))
    return self.made(body)
