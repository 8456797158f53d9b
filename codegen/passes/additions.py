"""Pass: no float accumulator takes more than 64 additions one after the other, of products 256: long sums become sums of sums.

    REDUCE(x, ADD, (a0:2048,))   ->   REDUCE(REDUCE(x, ADD, (a1:64,)), ADD, (a0:32,))

It is a rule of accuracy, which holds under ``NOOPT=1`` too. The error of n additions grows with the root of n where the numbers
have both signs, and with n where they have one: 64 additions lose two bits of that, 4,096 five. Adding a partial sum once in 64
rounds costs little where a round reads memory, and once in 256 where it does not.
"""
from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Iterator

from .. import index as ix
from ..ir import BinaryOps, Ops, TernaryOps, UOp, prod, toposort
from ..kernel import Axis, AxisKind, Kernel, rewrite, volume
from ..opts import Pad, Serial, Split

MOST_ADDITIONS = 64   # additions to one accumulator, one after another
MOST_PRODUCTS = 256   # additions of products
MOST_COPIES = 64      # accumulators of one round; more are added in pairs (``expand``)
# of blocks that are multiplied: a second block of accumulators would take the registers of the first, and each addition is of the
# sum over a block already
MOST_BLOCKS = 4096
_LONG = 1 << 18       # additions along an axis of a kernel for all sizes that are counted
FARTHEST = 1 << 40    # elements of a size that nothing bounds: parts of parts of a longer one would have no int64 places


def limit_additions(kernel: Kernel) -> Kernel:
  """Float sums of more than 64 values one after the other -> sums of sums: sum[a0:2048] -> sum[a0:32](sum[a1:64])."""
  if kernel.free:
    def far(a: Axis) -> bool: return isinstance(a.size, UOp) and not a.most and ix.vmax(a.size) > FARTHEST
    kernel = kernel.with_(axes=tuple(replace(a, most=FARTHEST) if far(a) else a for a in kernel.axes))
  while (found := too_long(kernel)) is not None:
    id, most = found
    size = (axis := kernel.axis(id)).size
    inner = _part(size, most) if isinstance(size, int) else most if kernel.free else max(most // 4, 2)
    if not isinstance(size, int) or size % inner == 0: kernel = Split(id, inner).apply(kernel)
    elif axis.kind is AxisKind.LOOP and not axis.programs:
      kernel = Serial(id, inner).apply(kernel)
      # copies in local memory have room for whole parts
      kernel = kernel.with_(axes=tuple(replace(a, most=inner) if a.varies and not a.most else a for a in kernel.axes))
    else: kernel = Split(id, most).apply(Pad(id, most).apply(kernel))

  def nested(old: UOp, u: UOp) -> UOp:
    groups = _together(kernel, old) if is_float_sum(old) else []
    if len(groups) < 2: return u
    total, later = u.src[0], sum(groups[1:], [])
    for ids in ([i for i in u.arg[1] if i not in later], *groups[1:]):
      total = UOp(Ops.REDUCE, u.dtype, (total,), (u.arg[0], tuple(ids)))
    return total
  if not kernel.free:
    for condition in [c for u in filter(is_float_sum, kernel.reduces) for c in short_enough(kernel, u)]:
      kernel = kernel.needing(condition)
  return kernel.with_(body=rewrite(kernel.body, {Ops.REDUCE: nested}))


def short_enough(kernel: Kernel, u: UOp) -> Iterator[UOp]:
  """What run-time sizes have to be for accumulators to take few enough additions: loops were made for about those sizes."""
  n = copies(kernel, u)
  for ids in _together(kernel, u):
    axes = [kernel.axis(i) for i in ids]
    most = max(most_additions(kernel, u) // n, prod(map(_longest, axes)))
    total = ix.product(_longest(a) if a.varies else a.size for a in axes)   # parts of a long axis are short
    if isinstance(total, UOp) and ix.vmax(total) > most: yield ix.ge(ix.const(most), total)
    n = 1


def _part(size: int, most: int) -> int:
  """How many of ``size`` values one accumulator takes, at most ``most``: a number that divides them, else about equal parts."""
  return next((n for n in range(most, most // 2, -1) if size % n == 0), -(-size // -(-size // most)))


def room_along(kernel: Kernel, axis: Axis) -> int:
  """How many elements a copy in local memory needs along an axis: whole parts of a long sum."""
  mosts = [most_additions(kernel, u) // copies(kernel, u) for u in kernel.reduces if is_float_sum(u) and axis.id in u.arg[1]]
  most = max(min(mosts, default=axis.count), 1)
  if axis.kind is not AxisKind.LOOP or axis.count <= most: return axis.count
  each = _part(axis.count, most)
  return -(-axis.count // each) * each


def with_joined_sums(s: UOp) -> UOp:
  """x + sum[k](a) + sum[k](b) -> x + sum[k](a + b): an accumulator for both, so that more elements at a time have theirs."""
  uses = Counter([x for u in toposort((s,)) for x in u.src])
  def alike(a: UOp, b: UOp) -> bool:
    return (a.op is b.op is Ops.REDUCE and a.arg == b.arg and a.arg[0] is BinaryOps.ADD and a.dtype is b.dtype
            and a.dtype.itemsize >= 4 and a.src[0].ranges == b.src[0].ranges and uses[a] <= 1)
  def joined(a: UOp, b: UOp) -> UOp: return b.replace((UOp.alu(BinaryOps.ADD, a.src[0], b.src[0]),))
  def join(old: UOp, new: UOp) -> UOp | None:
    if new.arg is not BinaryOps.ADD or max([uses[x] for x in old.src]) > 1: return None
    for rest, b in new.src, new.src[::-1]:
      if alike(rest, b): return joined(rest, b)
      for x, a in (rest.src, rest.src[::-1]) if rest.arg is BinaryOps.ADD else ():
        if alike(a, b): return UOp.alu(BinaryOps.ADD, x, joined(a, b))
    return None
  return rewrite((s,), {Ops.ALU: join})[0]


def too_long(kernel: Kernel) -> tuple[int, int] | None:
  """An axis that makes a float sum too long, and how many of its values one accumulator may take; None where there is none."""
  for u in filter(is_float_sum, kernel.reduces):
    n, most = copies(kernel, u), most_additions(kernel, u)   # additions in a round of an axis, the innermost first
    for i in reversed(sequential(kernel, u)):
      size = _longest(kernel.axis(i), kernel.free)
      if n > 1 and n * size > most and most // n < 2: n = 1   # of the sums so far there is another sum
      if size > most // n >= 2: return i, most // n
      n = n * size if n * size <= most else 1
  return None


def most_additions(kernel: Kernel, u: UOp) -> int:
  """How many additions one after the other an accumulator of a REDUCE may take."""
  value = u.src[0]
  while value.op in (Ops.REDUCE, Ops.CAST) or value.arg is TernaryOps.WHERE: value = value.src[value.op is Ops.ALU]
  if value.arg is not BinaryOps.MUL: return MOST_ADDITIONS
  return MOST_BLOCKS if kernel.tiles else MOST_PRODUCTS


def _longest(axis: Axis, free: bool = False) -> int:
  """How many elements an axis may have; of a run-time size twice what it is about, in what it was split into the bound. In a
  kernel for all sizes it may be long, and of what is longer than ``_LONG`` the rest counts as one addition."""
  if isinstance(axis.size, int): return axis.size
  return max(min(ix.vmax(axis.size), min(axis.most or _LONG, _LONG) if free else 2 * axis.count), 1)


def is_float_sum(u: UOp) -> bool: return u.arg[0] is BinaryOps.ADD and u.dtype.kind == "f"


def sequential(kernel: Kernel, u: UOp) -> list[int]:
  """The axes of a REDUCE along which its accumulator takes one value after the other, the outermost first."""
  return [a.id for a in kernel.axes if a.id in u.arg[1] and a.kind in (AxisKind.LOOP, AxisKind.GRID)]


def copies(kernel: Kernel, u: UOp) -> int:
  """How many values an accumulator of a REDUCE takes in one round of its loops: its copies, many of them as pairs of pairs."""
  return min(volume(a for a in kernel.of_kind(AxisKind.UNROLL) if a.id in u.arg[1]), MOST_COPIES)


def additions(kernel: Kernel, u: UOp) -> int:
  """How many values an accumulator of a REDUCE takes one after the other."""
  return copies(kernel, u) * prod(_longest(kernel.axis(i), kernel.free) for i in sequential(kernel, u))


def _together(kernel: Kernel, u: UOp) -> list[list[int]]:
  """The sequential axes of a REDUCE in groups of few enough additions, the innermost first, which has the copies of a round."""
  groups: list[list[int]] = [[]]
  n, most = copies(kernel, u), most_additions(kernel, u)
  for i in reversed(sequential(kernel, u)):
    size = _longest(kernel.axis(i), kernel.free)
    if n > 1 and n * size > most: groups, n = [*groups, []], 1
    groups[-1].insert(0, i)
    n *= size
  return groups
