"""Pass: sorts of the scheduler's kernels -> statements, or a SORT of a block.

    STORE(y[k], SORTED(x[j], k))   ->   FOR(j, count[digit(x[j])] += 1), FOR(digit, count = those before it),
                                        FOR(j, at = count[digit(x[j])], count[..] = at + 1, STORE(y[at], x[j]))

A digit is some bits of the keys: a program puts every element behind those with lesser digits, and those with the same that stood
before it. Where only the first few are asked for, it keeps these in order while it goes through the row. On targets with blocks a
program has whole rows, which the target sorts as a block.
"""
from __future__ import annotations

from typing import NamedTuple

from .. import index as ix
from ..ir import BinaryOps, Ops, Target, UOp, dtypes, power_of_two
from ..ir.alu import add, and_, int_const, least_of, less, most_of, shift_right
from ..kernel import Kernel
from .builder import Builder, Loop, for_, keep, moved, reduce_over, store_over, variable, with_gated_loads

LOOK = 16            # elements that are looked at for one that is less than those kept
# ---- targets with blocks
BLOCK = 8192         # elements of a row that a program sorts


class Sorted(NamedTuple):
  """The arg of a SORTED: its axis, the bits that it sorts by, how many of the least are asked for (0: all), and whether the
  elements are bitonic: they rise and then fall, or the other way."""
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
  if target and target.blocks: return lowering.block()
  return lowering.least() if lowering.spec.keep else lowering.digits()


class _Sort(Builder):
  """One such kernel: its SORTED, the axis of what is sorted, and that of the sorted ones."""

  def __init__(self, kernel: Kernel, target: Target | None):
    super().__init__(kernel, target)
    self.sort, = kernel.sorts
    self.spec = Sorted(*self.sort.arg)
    self.axis = kernel.axis(self.spec.axis)
    self.place = self.sort.src[1]
    placed = kernel.axis(self.place.arg[0]) if self.place.op is Ops.RANGE else None
    self.outer = [a for a in kernel.axes if a is not self.axis and a is not placed]
    self.dtype = self.sort.dtype
    self.greatest = UOp.const(self.dtype, dtypes.max(self.dtype))

  def value(self, at: UOp, there: UOp = ix.TRUE) -> UOp:
    """What is sorted, the greatest where there is none."""
    value = with_gated_loads(self.here(self.sort.src[0], {self.axis.rng: at}), there)
    return value if there is ix.TRUE else there.where(value, self.greatest)

  def stores_of(self, at: UOp, value: UOp, gate: UOp = ix.TRUE) -> list[UOp]:
    """The kernel's STOREs of the element that is sorted to ``at``."""
    return self.stores({self.sort: value, **({self.place: at} if self.place.op is Ops.RANGE else {})}, gate)

  # ---- loops

  def rows(self) -> Loop | None:
    """A program for each row; for several, and the loop over them, where one is too short to be worth it."""
    row, loop = self.programs(self.outside, 8 * self.axis.count)
    self.along(self.outer, row)
    return loop

  def digits(self) -> Kernel:
    """Every element behind those with lesser digits."""
    size = self.axis.size
    loop, low, bits = self.rows(), self.spec.low, self.spec.high - self.spec.low
    (i, j), (clear,), (sums,) = self.loops(size, size), self.tiles(1 << bits), self.loops(1 << bits)
    count, x = variable("count", dtypes.int32, clear), variable("x", self.dtype)
    run, before, digit = (variable(name, dtypes.int32) for name in ("run", "before", "digit"))
    def number(v: UOp) -> UOp:
      if low: v = shift_right(v, UOp.const(self.dtype, low))
      return and_(v, UOp.const(self.dtype, (1 << bits) - 1)).cast(dtypes.int32)
    mine, each, one, zero = moved(count, digit.cast(ix.INT)), moved(count, sums.rng), int_const(1), int_const(0)
    added = for_(i, size, store_over(digit, number(self.value(i.rng))), store_over(mine, add(mine, one)))
    begins = for_(sums, 1 << bits, store_over(before, each), store_over(each, run), store_over(run, add(run, before)))
    place = for_(j, size, store_over(x, self.value(j.rng)), store_over(digit, number(x)), store_over(before, mine),
                 store_over(mine, add(before, one)), *self.stores_of(before.cast(ix.INT), x))
    return self.made([store_over(count, zero), added, store_over(run, zero), begins, place], loop)

  def least(self) -> Kernel:
    """The least so far in order; what is less than the last of them goes to its place among them."""
    loop, keeps, dtype = self.rows(), self.spec.keep, self.dtype
    n = ix.rounds(self.axis.size, LOOK)
    (i,), (each, all_, some), (one, out) = self.loops(n), self.tiles(LOOK, keeps + 1, keeps), self.loops(LOOK, keeps)
    best, seen, moving = (variable(name, dtype, a) for name, a in (("best", all_), ("seen", each), ("moved", some)))
    x, lowest = variable("x", dtype), variable("lowest", dtype)
    start = store_over(best, ix.lt(all_.rng, 1).where(UOp.const(dtype, 0), self.greatest))   # nothing comes before the first
    after = moved(best, ix.add(some.rng, 1))
    shift = store_over(moving, most_of(moved(best, some.rng), least_of(after, x)))
    def where_less(u: UOp, *then: UOp) -> UOp:
      return UOp.unique(Ops.IF, dtypes.bool, (less(u, moved(best, ix.const(keeps))), *then), len(then))
    place = ix.add(ix.mul(i.rng, LOOK), each.rng)
    look = for_(
      i, n, store_over(seen, self.value(place, ix.lt(place, self.axis.size))),
      store_over(lowest, reduce_over(BinaryOps.MIN, seen, each)), where_less(lowest, for_(
        one, LOOK, store_over(x, moved(seen, one.rng)), where_less(x, shift, store_over(after, moving)))))
    return self.made([start, look, for_(out, keeps, *self.stores_of(out.rng, moved(best, ix.add(out.rng, 1))))], loop)

  # ---- blocks

  def block(self) -> Kernel:
    """Whole rows, several where they are short."""
    size = max(power_of_two(ix.vmax(ix.node(self.axis.size))), 2)
    tile, valid = self.rows_of_blocks(size)
    step, = self.tiles(size)
    body, both = list[UOp](), (*tile, step)
    value = self.value(step.rng, ix.both(valid, ix.lt(step.rng, self.axis.size)))
    if any(a.rng not in value.ranges for a in both): value = keep(body, "same", value, *both)   # the same all along
    kept = min(power_of_two(self.spec.keep), size) if self.spec.keep else size
    run = keep(body, "sorted", UOp(Ops.SORT, value.dtype, (value,), (step.id, False, kept, self.spec.bitonic)), *both)
    return self.made(body + self.stores_of(step.rng, run, ix.both(valid, ix.lt(step.rng, self.spec.keep or self.axis.size))))
