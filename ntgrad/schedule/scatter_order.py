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

Where rows are few, each adds up all that goes there: y[i] += the sum of value[j] where index[j] = i, over all j.
"""
from __future__ import annotations

from typing import Callable

from ntgrad.codegen import index as ix
from ntgrad.codegen.ir import BinaryOps, Ops, Target, UOp, dtypes
from ntgrad.codegen.kernel import substitute
from ntgrad.codegen.passes.scatters import part_of, worth_sorting
from ntgrad.graph import nodes as graph

from .nodes import as_buffer, movement, reshaped
from .sort import in_parts, split_sort

RUNS = "runs"   # arg of a CONTIGUOUS, with a number: an index that has runs in parts of so many
_SORTING = 16   # kernels that put an index in order, one after the other


def in_runs(u: UOp, target: Target, reduced: Callable[[UOp], UOp]) -> UOp | None:
  """A memory after a SCATTER, whose index is put in order, or compared with each of few rows; None where neither is worth it.
  ``reduced`` gives a REDUCE_AXIS as it is computed."""
  memory, scatter = u.src
  if scatter.op is not Ops.SCATTER or len(scatter.src) != 3: return None
  base, index, value = scatter.src
  rows, entries = base.shape[0], ix.product(index.shape)
  if index.dtype not in (dtypes.int32, dtypes.int64) or not isinstance(rows, int) or not isinstance(entries, int): return None
  if max(rows + 1, entries) > dtypes.max(dtypes.int32) or not worth_sorting(entries, target): return None
  rest = value.shape[len(index.shape):]
  value, part = reshaped(value, (entries, *rest)), part_of(entries)
  kind = dtypes.float32 if u.dtype.kind == "f" and u.dtype.itemsize < 4 else u.dtype
  def after(memory: UOp, base: UOp, index: UOp, value: UOp) -> UOp:
    return UOp(Ops.AFTER, u.dtype, (memory, UOp(Ops.SCATTER, u.dtype, (base, index, value), scatter.arg)))
  read = rows * ix.count(ix.product(value.shape)) * (value.dtype.itemsize + index.dtype.itemsize)
  waits = _SORTING * (target.launch + target.start + 2 * target.latency)
  if scatter.arg[0] == "add" and read < waits * target.rates.cache:
    shape, ones = (rows, entries, *rest), (1,) * len(rest)
    def each(x: UOp, *own: ix.Dim) -> UOp: return movement(Ops.EXPAND, reshaped(x, own), shape)
    here = graph.eq(each(index, 1, entries, *ones), each(graph.iota(rows).cast(index.dtype), rows, 1, *ones))
    sums = movement(Ops.REDUCE_AXIS, graph.where(here, each(value.cast(kind), 1, entries, *rest), 0), (BinaryOps.ADD, (1,)))
    return after(memory, base, graph.iota(rows).cast(index.dtype), reshaped(reduced(sums), (rows, *rest)).cast(u.dtype))
  rising, order = sorted_index(reshaped(index, (entries,)), rows, part, target)
  size = rising.shape[0]
  parts = size // part
  def gathered(order: UOp) -> UOp: return UOp(Ops.GATHER, u.dtype, (value, order))
  def seen(x: UOp) -> UOp: return reshaped(x, (parts, part))
  if scatter.arg[0] == "set":
    following = movement(Ops.PAD, movement(Ops.SHRINK, rising, ((1, size),)), ((0, 1),))
    last = graph.or_(seen(graph.ne(rising, following)), seen(graph.lt(size - 2, graph.iota(size))))
    return after(memory, base, run_index(graph.where(last, seen(rising), -1), 1), gathered(order))
  first = movement(Ops.SHRINK, seen(rising), ((0, parts), (0, 1)))
  begun = graph.eq(movement(Ops.SHRINK, first, ((1, parts), (0, 1))),
                   movement(Ops.SHRINK, seen(rising), ((0, parts - 1), (part - 1, part))))   # the last row of the part before
  begun = movement(Ops.PAD, begun, ((1, 0), (0, 0)))   # of each part, whether its first row's run began before it
  def wide(x: UOp) -> UOp: return movement(Ops.EXPAND, x, (parts, part))
  goes_on = graph.and_(graph.eq(seen(rising), wide(first)), wide(begun))
  owned = run_index(graph.where(goes_on, -1, seen(rising)), part)
  memory, base = (out := after(memory, base, owned, gathered(order))), substitute((base,), {memory: out})[0]
  continued = gathered(reshaped(graph.where(goes_on, seen(order), -1), (size,)))
  sums = movement(Ops.REDUCE_AXIS, reshaped(continued.cast(kind), (parts, part, *rest)), (BinaryOps.ADD, (1,)))
  sums = reshaped(sums, (parts, *rest)).cast(u.dtype)
  out = after(memory, base, as_buffer(reshaped(graph.where(begun, first, -1), (parts,))), as_buffer(sums))
  return in_runs(out, target, reduced) or out


def run_index(index: UOp, part: int) -> UOp:
  """An index that has runs in parts of so many."""
  return movement(Ops.CONTIGUOUS, reshaped(index, (ix.product(index.shape),)), (RUNS, part))


def sorted_index(index: UOp, rows: int, part: int, target: Target) -> tuple[UOp, UOp]:
  """An index in rising order, and where each entry stood; last ``rows``, for what goes nowhere and to fill the last part."""
  entries = index.shape[0]
  low = (entries - 1).bit_length()   # bits that say where an entry stood
  kind = dtypes.uint32 if rows << low < dtypes.max(dtypes.uint32) else dtypes.uint64
  to = graph.where(graph.inside(index, rows), index, rows).cast(kind)
  key = movement(Ops.SORT_AXIS, graph.or_(graph.shl(to, low), graph.iota(entries).cast(kind)), (0, low, 8 * kind.itemsize, 0))
  key = in_parts(as_buffer(split_sort(key, target) or key), 0, part)   # the greatest number behind the end
  key = reshaped(key, (ix.product(key.shape),))
  row = graph.minimum(graph.shr(key, low), rows).cast(dtypes.int32)
  return as_buffer(row), as_buffer(graph.and_(key, (1 << low) - 1).cast(dtypes.int32))
