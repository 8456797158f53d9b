"""Sorting: which kernel computes a SORT_AXIS, and how a sort that is too long for one kernel is made of several.

    sort(x, bits 32 to 64)  ->  sort(.. sort(x, bits 32 to 40) .., bits 56 to 64)     where programs count digits
    sort(x)                 ->  merges of sorted parts: min and max of both, then the parts again     where they have blocks
"""
from __future__ import annotations

from ntgrad.codegen import index as ix
from ntgrad.codegen.ir import Ops, ShapeError, Target, UOp, dtypes
from ntgrad.codegen.passes.sorts import BLOCK, Sorted
from ntgrad.graph import nodes as graph

from .kernel_groups import Group
from .nodes import Idx, Nodes, as_buffer, elements_of, movement, reshaped, with_axis
from .scan import is_first, take_first, with_zeros

SELECTED = 64           # elements of a row that a CPU's program keeps in order while it goes through the row
DIGITS = range(3, 12)   # bits of a digit: a program has a counter for each of its values
START_ELEMENTS = 20000  # elements that could be counted while a kernel starts
NUMPY_START = 4         # elements that numpy could count meanwhile: it goes through counters one at a time
PART, KEPT = 2048, 32   # elements of a part whose least are asked for, at least, and how many for each of these
_STAGES = 2             # of a merge in one kernel, which reads so many times two elements for one


def join_sort(u: UOp, g: Group, idx: Idx, valid: UOp) -> tuple[Idx, UOp, Nodes] | None:
  """The index of what ``u`` sorts, if a kernel sorts it for itself (``Group.takes_rows``)."""
  if not g.takes_rows(idx, valid, u.shape, u): return None
  axis = u.arg[0]
  along = g.new_axis(u.src[0].shape[axis])
  return (*idx[:axis], along, *idx[axis + 1:]), ix.TRUE, (along,)


def sorted_value(u: UOp, idx: Idx, at: Idx, value: UOp) -> UOp:
  """The index form of a sort of ``value``."""
  axis, *rest = u.arg
  return UOp(Ops.SORTED, u.dtype, (value, idx[axis]), Sorted(at[axis].arg[0], *rest))


def split_sort(u: UOp, target: Target) -> UOp | None:
  """A sort as several, each of which a kernel does. None where it stays as it is."""
  axis, low, high, keep, *bitonic = u.arg
  x = u.src[0]
  n = x.shape[axis]
  if any(bitonic): return None
  if target.blocks:
    part = min(max(PART, 1 << (KEPT * keep - 1).bit_length()), BLOCK) if 0 < 4 * keep <= BLOCK else 0
    if isinstance(n, int) and part and n > part: return best_of_parts(u, part)
    if ix.vmax(ix.node(n)) <= BLOCK: return None
    if not isinstance(n, int):
      raise ShapeError(f"sort: a run-time size of up to {ix.vmax(n)} along axis {axis}; such a size may be up to {BLOCK} here")
    return take_first(merged_parts(x, axis, low, high), axis, keep or n)
  if keep:
    if keep <= SELECTED and 4 * keep <= ix.count(n) and target.name != "numpy": return None
    return take_first(_by_digits(x, u.arg, target), axis, keep)
  return _by_digits(x, u.arg, target) if high - low > DIGITS[-1] else None


def _by_digits(x: UOp, arg: tuple[int, ...], target: Target) -> UOp:
  """Sorted by the lowest digit first; each sort keeps the order of equal ones."""
  axis, low, high = arg[:3]
  n = ix.count(x.shape[axis])
  rows = elements_of(x) // max(n, 1)
  start = NUMPY_START if target.name == "numpy" else START_ELEMENTS
  def cost(bits: int) -> int: return -(-(high - low) // bits) * (rows * (3 * n + (1 << bits)) + start)
  bits = min(DIGITS, key=cost)
  digits = -(-(high - low) // bits)
  bits = -(-(high - low) // digits)
  for at in range(low, high, bits): x = movement(Ops.SORT_AXIS, x, (axis, at, min(at + bits, high), 0))
  return x


def best_of_parts(u: UOp, size: int) -> UOp:
  """The least of a long row are among the least of its parts."""
  axis, low, high, keep = u.arg
  x = in_parts(u.src[0], axis, size)
  left = x.shape[axis] * keep
  u = u.replace((with_axis(movement(Ops.SORT_AXIS, x, (axis + 1, low, high, keep)), axis, left, after=2),))
  return best_of_parts(u, size) if left > size else u


def merged_parts(x: UOp, axis: int, low: int, high: int) -> UOp:
  """A row sorted in parts, of which two are merged to one until one is left: the first's least against the second's greatest, and
  so on, is in order but for the parts, each of which rises and then falls, or falls and then rises."""
  x = in_parts(x, axis, BLOCK, True)
  before, (parts, _), after = x.shape[:axis], x.shape[axis:axis + 2], x.shape[axis + 2:]
  def seen(*size: ix.Dim) -> UOp: return reshaped(x, (*before, *size, *after))
  def sort(y: UOp, *how: object) -> UOp: return as_buffer(movement(Ops.SORT_AXIS, y, (axis + 1, *how)))
  x, run = sort(x, low, high, 0), 1
  while run < parts:
    x = halves(seen(parts // (2 * run), 2, run * BLOCK), axis + 1, (axis + 1, axis + 2))
    step, stages = run // 2, 1
    while step:
      if stages % _STAGES == 0: x = as_buffer(x)
      x = halves(seen(parts // (2 * step), 2, step * BLOCK), axis + 1, (axis + 1,))
      step, stages = step // 2, stages + 1
    x = sort(seen(parts, BLOCK), 0, 8 * x.dtype.itemsize, 0, True)
    run *= 2
  return seen(parts * BLOCK)


def halves(x: UOp, axis: int, turned: tuple[int, ...]) -> UOp:
  """The lesser of two elements first, the greater second, along an axis of 2; ``turned`` gives the other one of each."""
  other = movement(Ops.FLIP, x, turned)
  return graph.where(is_first(axis, x.shape), graph.minimum(x, other), graph.maximum(x, other))


def in_parts(x: UOp, axis: int, size: int, power: bool = False) -> UOp:
  """A row in parts of a size (``power``: their number a power of two), the greatest number behind its end."""
  n = x.shape[axis]
  parts = -(-n // size)
  if power: parts = 1 << (parts - 1).bit_length()
  def inverted(y: UOp) -> UOp: return graph.xor(y, dtypes.max(y.dtype))
  if parts * size != n: x = inverted(with_zeros(inverted(x), axis, 0, parts * size - n))
  return with_axis(x, axis, parts, size)
