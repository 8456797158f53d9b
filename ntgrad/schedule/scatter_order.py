"""SCATTERs with a long index, on targets with blocks: the entries are put in the order of the index first.

Each program of a SCATTER has some of the rows, and looks for them in the whole index. Where the index is long, sorting it takes
less time:

    AFTER(y, SCATTER(y, index, value, "add"))  ->  order = the places of index, sorted by it (equal ones as they stood)
                                                   y[index[order]] += value[order], all but what goes on from an earlier part
                                                   y[the first row of each part] += the sum of what goes on there

Equal rows then stand side by side, in *runs*. A program has a part of the entries. A row belongs to the part in which its run
begins. So programs share no rows, and a row that many entries have is spread over many programs. Where a run began in an earlier
part, a later part adds up its own entries, and a second SCATTER with an entry a part adds these sums. With "set" the last entry
of each run counts.
"""
from __future__ import annotations

from ntgrad.codegen import index as ix
from ntgrad.codegen.index.rewrite import substitute
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.elementwise import const
from ntgrad.codegen.ir.target import Target
from ntgrad.codegen.ir.uop import BinaryOps, Ops, TernaryOps, UOp
from ntgrad.codegen.passes.scatters import part_of, worth_sorting

from .sort import in_parts, movement, split_sort

RUNS = "runs"   # arg of a CONTIGUOUS, with a number: an index that has runs in parts of so many


def in_runs(u: UOp, target: Target) -> UOp | None:
  """A memory after a SCATTER, whose index is put in order; None where that is not worth it."""
  memory, scatter = u.src
  if scatter.op is not Ops.SCATTER or len(scatter.src) != 3: return None
  base, index, value = scatter.src
  rows, entries = base.shape[0], ix.product(index.shape)
  if index.dtype not in (dtypes.int32, dtypes.int64) or not isinstance(rows, int) or not isinstance(entries, int): return None
  if rows >= dtypes.max(dtypes.int32) or entries > dtypes.max(dtypes.int32) or not worth_sorting(entries, target): return None
  rest = value.shape[len(index.shape):]
  value = movement(Ops.RESHAPE, value, (entries, *rest))
  part = part_of(entries)
  rising, order = sorted_index(movement(Ops.RESHAPE, index, (entries,)), rows, part, target)
  def gathered(order: UOp) -> UOp: return UOp(Ops.GATHER, u.dtype, (value, order))
  def after(memory: UOp, base: UOp, index: UOp, value: UOp) -> UOp:
    return UOp(Ops.AFTER, u.dtype, (memory, UOp(Ops.SCATTER, u.dtype, (base, index, value), scatter.arg)))
  size = rising.shape[0]
  parts = size // part
  def seen(x: UOp) -> UOp: return movement(Ops.RESHAPE, x, (parts, part))
  nowhere = const(-1, dtypes.int32, (parts, part))
  if scatter.arg[0] == "set":
    following = movement(Ops.PAD, movement(Ops.SHRINK, rising, ((1, size),)), ((0, 1),))
    last = seen(UOp.alu(BinaryOps.CMPNE, rising, following))
    end = UOp.alu(BinaryOps.CMPLT, const(size - 2, dtypes.int32, (size,)), UOp(Ops.IOTA, dtypes.int32, (), size))
    index = UOp.alu(TernaryOps.WHERE, UOp.alu(BinaryOps.OR, last, seen(end)), seen(rising), nowhere)
    return after(memory, base, run_index(index, 1), gathered(order))
  first = movement(Ops.SHRINK, seen(rising), ((0, parts), (0, 1)))
  before = movement(Ops.SHRINK, seen(rising), ((0, parts - 1), (part - 1, part)))   # the last row of the part before
  begun = UOp.alu(BinaryOps.CMPEQ, movement(Ops.SHRINK, first, ((1, parts), (0, 1))), before)
  begun = movement(Ops.PAD, begun, ((1, 0), (0, 0)))   # of each part, whether its first row's run began before it
  def wide(x: UOp) -> UOp: return movement(Ops.EXPAND, x, (parts, part))
  goes_on = UOp.alu(BinaryOps.AND, UOp.alu(BinaryOps.CMPEQ, seen(rising), wide(first)), wide(begun))
  owned = run_index(UOp.alu(TernaryOps.WHERE, goes_on, nowhere, seen(rising)), part)
  memory, base = (out := after(memory, base, owned, gathered(order))), substitute((base,), {memory: out})[0]
  elsewhere = UOp.alu(TernaryOps.WHERE, goes_on, seen(order), nowhere)
  continued = gathered(movement(Ops.RESHAPE, elsewhere, (size,)))
  kind = dtypes.float32 if u.dtype.kind == "f" and u.dtype.itemsize < 4 else u.dtype
  sums = UOp(Ops.REDUCE_AXIS, kind, (movement(Ops.RESHAPE, continued.cast(kind), (parts, part, *rest)),), (BinaryOps.ADD, (1,)))
  sums = movement(Ops.RESHAPE, sums, (parts, *rest)).cast(u.dtype)
  to = UOp.alu(TernaryOps.WHERE, begun, first, const(-1, dtypes.int32, (parts, 1)))
  starts = movement(Ops.CONTIGUOUS, movement(Ops.RESHAPE, to, (parts,)), None)
  out = after(memory, base, starts, movement(Ops.CONTIGUOUS, sums, None))
  return in_runs(out, target) or out


def run_index(index: UOp, part: int) -> UOp:
  """An index that has runs in parts of so many."""
  return movement(Ops.CONTIGUOUS, movement(Ops.RESHAPE, index, (ix.product(index.shape),)), (RUNS, part))


def sorted_index(index: UOp, rows: int, part: int, target: Target) -> tuple[UOp, UOp]:
  """An index in rising order, and where each entry stood; ``rows`` for what goes nowhere, which stands last, and so many more
  that there are whole parts of ``part``."""
  entries = index.shape[0]
  def number(n: int) -> UOp: return const(n, index.dtype, index.shape)
  inside = UOp.alu(BinaryOps.AND, UOp.alu(BinaryOps.CMPLE, number(0), index), UOp.alu(BinaryOps.CMPLT, index, number(rows)))
  low = (entries - 1).bit_length()   # bits that say where an entry stood
  kind = dtypes.uint32 if rows << low < dtypes.max(dtypes.uint32) else dtypes.uint64
  def bits(n: int, x: UOp) -> UOp: return const(n, kind, x.shape)
  to = UOp.alu(TernaryOps.WHERE, inside, index, number(rows)).cast(kind)
  key = UOp.alu(BinaryOps.OR, UOp.alu(BinaryOps.SHL, to, bits(low, to)), UOp(Ops.IOTA, dtypes.int32, (), entries).cast(kind))
  key = UOp(Ops.SORT_AXIS, key.dtype, (key,), (0, low, 8 * kind.itemsize, 0))
  key = in_parts(movement(Ops.CONTIGUOUS, split_sort(key, target) or key, None), 0, part)   # the greatest number behind the end
  key = movement(Ops.RESHAPE, key, (ix.product(key.shape),))
  row = UOp.alu(BinaryOps.MIN, UOp.alu(BinaryOps.SHR, key, bits(low, key)), bits(rows, key)).cast(dtypes.int32)
  place = UOp.alu(BinaryOps.AND, key, bits((1 << low) - 1, key)).cast(dtypes.int32)
  return movement(Ops.CONTIGUOUS, row, None), movement(Ops.CONTIGUOUS, place, None)
