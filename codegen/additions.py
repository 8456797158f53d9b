"""Pass: no float accumulator takes more than 4,096 additions one after the other: long sums become sums of sums.

    REDUCE(x, ADD, (a0:100000,))   ->   REDUCE(REDUCE(x, ADD, (a1:4000,)), ADD, (a0:25,))

A rule of accuracy, which holds under ``NOOPT=1`` too. It comes after Opts are chosen: lanes, copies and blocks have accumulators
of their own.
"""
from __future__ import annotations

from . import index as ix
from .kernel import Axis, AxisKind, Kernel
from .opts import Pad, Split
from .rewrite import rewrite
from .uop import BinaryOps, Ops, UOp, prod

MOST_ADDITIONS = 4096


def limit_additions(kernel: Kernel) -> Kernel:
  """Float sums of more than 4,096 values one after the other -> sums of sums: sum[a0:10000] -> sum[a0:4](sum[a1:2500]).

  An axis that no useful number divides is padded first.
  """
  def too_long() -> int | None:
    sums = filter(is_float_sum, kernel.reduces)
    return next((i for u in sums for i in sequential(kernel, u) if longest(kernel.axis(i)) > MOST_ADDITIONS), None)
  while (long := too_long()) is not None:
    size = kernel.axis(long).size
    if not isinstance(size, int):
      kernel = Split(long, MOST_ADDITIONS // 4).apply(kernel)
      continue
    inner = next((n for n in range(MOST_ADDITIONS, 31, -1) if size % n == 0), 1024)
    if size % inner: kernel = Pad(long, inner).apply(kernel)
    kernel = Split(long, inner).apply(kernel)

  def nested(old: UOp, u: UOp) -> UOp:
    groups = together(kernel, old) if is_float_sum(old) else []
    if len(groups) < 2: return u
    later = [i for ids in groups[1:] for i in ids]
    total = u.src[0]
    for ids in ([i for i in u.arg[1] if i not in later], *groups[1:]):
      total = UOp(Ops.REDUCE, u.dtype, (total,), (u.arg[0], tuple(ids)))
    return total
  return kernel.with_(body=rewrite(kernel.body, {Ops.REDUCE: nested}))


def longest(axis: Axis) -> int:
  """How many elements an axis may have; of a run-time size twice what it is about, in what it was split into the bound."""
  if isinstance(axis.size, int): return axis.size
  return min(ix.vmax(axis.size), 2 * axis.count)


def is_float_sum(u: UOp) -> bool: return u.arg[0] is BinaryOps.ADD and u.dtype.kind == "f"


def sequential(kernel: Kernel, u: UOp) -> list[int]:
  """The axes of a REDUCE along which its accumulator takes one value after the other."""
  return [i for i in u.arg[1] if kernel.axis(i).kind in (AxisKind.LOOP, AxisKind.GRID)]


def copies(kernel: Kernel, u: UOp) -> int:
  """How many values an accumulator of a REDUCE takes in one round of its loops."""
  return prod(kernel.axis(i).count for i in u.arg[1] if kernel.axis(i).kind is AxisKind.UNROLL)


def additions(kernel: Kernel, u: UOp) -> int:
  """How many values an accumulator of a REDUCE takes one after the other."""
  return copies(kernel, u) * prod(longest(kernel.axis(i)) for i in sequential(kernel, u))


def together(kernel: Kernel, u: UOp) -> list[list[int]]:
  """The sequential axes of a REDUCE in groups of at most 4,096 additions, the innermost first, which has the copies of a
  round."""
  groups: list[list[int]] = [[]]
  n = copies(kernel, u)
  for i in reversed(sequential(kernel, u)):
    if n > 1 and n * longest(kernel.axis(i)) > MOST_ADDITIONS:
      groups.append([])
      n = 1
    groups[-1].insert(0, i)
    n *= longest(kernel.axis(i))
  return groups
