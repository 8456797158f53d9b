"""Heuristics for targets with blocks: which axes of a scheduled kernel become TILE axes, how large, and in which order programs
run.

Everything is an Opt, so a search may go on from here. The sizes of blocks are the target's.
"""
from __future__ import annotations

import math
from typing import Iterable

from . import index as ix
from .axes import merge_axes, split_axes
from .config import config
from .costs import MemoryAccess, ids_of, profile
from .dtype import dtypes
from .kernel import Axis, AxisKind, Kernel
from .opts import Block, Fuse, Persistent, Swizzle, TensorDescriptor, even
from .target import Target
from .uop import BinaryOps, Ops, TernaryOps, UOp, prod, toposort

LEAST_DOT = 16           # elements of an axis of a product from which on it is worth a block
WIDE = 64                # an axis of a product is made one with others until it has so many
FEW = 32                 # rows or columns up to which a product is bound by memory,
LONG = 4                 # and takes so many times as much of the sum at a time
FULL = 0.9               # of the cores have a program: all but a few will do


def tile(kernel: Kernel, target: Target) -> Kernel:
  """A plain kernel (its statements may run all at once) with TILE axes, if it has none yet, and its programs in a good order."""
  if not kernel.plain: return kernel
  if not kernel.of_kind(AxisKind.TILE):
    kernel = merge_axes(split_axes(kernel))
    kernel, dot = product(kernel)
    if dot is not None:
      for i, size in zip(dot, blocks(kernel, *dot, target)): kernel = tile_axis(kernel, kernel.axis(i), size)
    else: kernel = reduction(kernel, target) if kernel.reduces else fill(kernel, free(kernel), target.mapped)[0]
  return persistent(grouped(kernel, target), target)


def blocks(kernel: Kernel, m: int, n: int, k: int, target: Target) -> tuple[int, int, int]:
  """Rows and columns of a product that a program makes, and how much it sums at a time: the largest with which there is a program
  for (nearly) every core."""
  found = factors(kernel)
  sides = [stored(s) for s in found[1:]] if found is not None else []
  wide = any(s.dtype.itemsize > 2 for s in sides)   # as they are multiplied
  if wide and not config.allow_tf32: return target.exact_dot
  rows, columns = kernel.axis(m).count, kernel.axis(n).count
  read = max((u.dtype.itemsize for u in toposort(sides) if u.op is Ops.LOAD and u.dtype.kind == "f"), default=2)
  depth = target.row_bytes // max(read, 2)
  # bound by memory: long pieces of the large matrix
  if min(rows, columns) <= FEW and not wide: return *target.dots[-1], LONG * depth
  others = prod(a.count for a in free(kernel) if a.id not in (m, n))
  for bm, bn in target.dots[:1] if wide else target.dots:
    if rows >= bm and columns >= bn and -(-rows // bm) * -(-columns // bn) * others >= FULL * target.cores: return bm, bn, depth
  return *target.dots[-1], depth


def grouped(kernel: Kernel, target: Target) -> Kernel:
  """Programs of a product in groups of ``target.group`` blocks of rows, which the last GRID axis goes through:
  a0:64 GRID, a1:32 GRID -> a0:8 GRID, a1:32 GRID, a2:8 GRID.

  Not where a wave is all there is, or the cache holds most of the factors anyway.
  """
  grid = kernel.of_kind(AxisKind.GRID)
  if len(grid) < 2 or prod(a.count for a in grid) <= target.cores or not is_product(kernel): return kernel
  if ix.count(kernel.bytes) <= target.cache // 2: return kernel
  rows = grid[-2]
  high = max(d for d in range(1, target.group + 1) if rows.count % d == 0)
  return Swizzle(rows.id, high).apply(kernel) if high > 1 and grid[-1].count > 1 else kernel


def persistent(kernel: Kernel, target: Target) -> Kernel:
  """A large product of 16-bit floats or less by one program a core, which reads and writes through tensor descriptors where the
  chip has them.

  As few programs as take no more rounds: a last round that leaves cores idle gains nothing, and all rounds alike keep the chip
  cooler.
  """
  programs = prod(a.count for a in kernel.of_kind(AxisKind.GRID))
  if not target.descriptors or programs < target.waves * target.cores or not is_product(kernel): return kernel
  if any(p.dtype.itemsize > 2 for p in kernel.params if not p.written): return kernel
  kernel = Persistent(even(programs, target.cores)).apply(kernel)
  for opt in TensorDescriptor.all(kernel): kernel = opt.apply(kernel)
  return kernel


def tile_axis(kernel: Kernel, axis: Axis, size: int) -> Kernel:
  """``axis`` in blocks of at most ``size``, a power of two: a0:100 GRID by 64 -> a0:2 GRID, a1:64 TILE; a shorter axis is one
  block."""
  return Block(axis.id, min(size, axis.count)).apply(kernel) if axis.count > 1 < size else kernel


def fill(kernel: Kernel, axes: Iterable[Axis], room: int) -> tuple[Kernel, int]:
  """The last of ``axes`` as blocks, as far as ``room`` elements go; gives the room that is left."""
  for a in reversed(list(axes)):
    kernel = tile_axis(kernel, a, room)
    room //= min(room, 1 << (a.count - 1).bit_length())
  return kernel, room


def free(kernel: Kernel) -> list[Axis]: return [a for a in kernel.of_kind(AxisKind.GRID) if a.id not in kernel.bound]


def reduction(kernel: Kernel, target: Target) -> Kernel:
  """The reduced axes as a block where they are small enough, and as many rows as then fit and leave every core some programs."""
  bound = [a for a in kernel.axes if a.kind is AxisKind.LOOP and a.id in kernel.bound and a.id not in kernel.sequential]
  reads = [x for x in profile(kernel).accesses if not x.write]
  rows = free(kernel)
  if rows and contiguous(rows[-1].id, reads) and not any(contiguous(a.id, reads) for a in bound):
    kernel, _ = fill(kernel, rows, target.columns)
    return fill(kernel, bound, target.block // target.columns)[0]
  width = prod(1 << (a.count - 1).bit_length() for a in bound)
  kernel, room = fill(kernel, bound, target.row if target.block < width <= target.row else target.block)
  if width > target.block: return kernel
  programs = prod(a.count for a in rows)
  while room > 1 and programs // room < target.cores: room //= 2
  return fill(kernel, rows, room)[0]


# ---- matrix products

def factors(kernel: Kernel) -> tuple[UOp, UOp, UOp] | None:
  """The REDUCE of a kernel that is a sum of products which ``tl.dot`` makes, and the two factors."""
  if len(kernel.reduces) != 1: return None
  u = kernel.reduces[0]
  value = u.src[0]
  if value.op is Ops.ALU and value.arg is TernaryOps.WHERE: value = value.src[1]
  if u.arg[0] is not BinaryOps.ADD or value.op is not Ops.ALU or value.arg is not BinaryOps.MUL: return None
  if u.dtype not in (dtypes.float32, dtypes.int32): return None
  if u.dtype is dtypes.int32 and any(stored(s).dtype is not dtypes.int8 for s in value.src): return None
  return u, value.src[0], value.src[1]


def roles(kernel: Kernel, among: Iterable[Axis]) -> tuple[list[int], list[int], list[int]]:
  """Which axes of a product are its rows (the first factor varies with them), its columns (the second), and summed."""
  found = factors(kernel)
  if found is None: return [], [], []
  u, *sides = found
  a, b = (ids_of(s).intersection([x.id for x in among]) for s in sides)
  bound = set(u.arg[1])
  return sorted(a - b - bound), sorted(b - a - bound), sorted(a & b & bound)


def is_product(kernel: Kernel) -> bool:
  """Whether a kernel with TILE axes has a block of rows, one of columns and one of what is summed."""
  return all(roles(kernel, [a for a in kernel.of_kind(AxisKind.TILE) if a.count >= LEAST_DOT]))


def product(kernel: Kernel) -> tuple[Kernel, tuple[int, int, int] | None]:
  """The axes (m, n, k) of a kernel that is a matrix product large enough for ``tl.dot``; others stay programs and loops.

  Of several axes (a convolution has them) those that memory goes along are taken, and made one with their neighbours where they
  are short.
  """
  found = factors(kernel)
  axes = roles(kernel, [a for a in kernel.axes if a.kind is AxisKind.GRID or a.id in kernel.bound])
  if found is None or any(prod(kernel.axis(i).count for i in ids) < LEAST_DOT for ids in axes): return kernel, None
  accesses = [x for x in profile(kernel).accesses if not x.write]
  reads = [[x for x in accesses if x.node in s.toposort()] for s in found[1:]]
  k = inner(kernel, axes[2], reads)
  m, n = (outer(kernel, ids, side, k) for ids, side in zip(axes, reads))
  chosen = []
  for i, ids in zip((m, n, k), axes):
    kernel, i = widened(kernel, i, ids, accesses)
    chosen.append(i)
  stores = [x for x in profile(kernel).accesses if x.write]
  if contiguous(chosen[0], stores): chosen[:2] = chosen[1::-1]   # columns lie side by side in the result
  return kernel, (chosen[0], chosen[1], chosen[2])


def contiguous(i: int, accesses: list[MemoryAccess]) -> bool:
  """Whether some access goes along memory with an axis."""
  return any(x.steps.get(i) == 1 for x in accesses)


def inner(kernel: Kernel, ids: list[int], sides: list[list[MemoryAccess]]) -> int:
  """The summed axis to make blocks of: a long one that the memory of both factors goes along, else the longest."""
  def rank(i: int) -> tuple[bool, int, int]:
    size = kernel.axis(i).count
    return size >= LEAST_DOT and all(contiguous(i, side) for side in sides), size, i
  return max(ids, key=rank)


def outer(kernel: Kernel, ids: list[int], side: list[MemoryAccess], k: int) -> int:
  """A factor's own axis to make blocks of: the longest, if its memory goes along axis ``k``; else the one that it goes along."""
  if kernel.axis(k).count >= LEAST_DOT and contiguous(k, side): return max(ids, key=lambda i: (kernel.axis(i).count, i))
  return max(ids, key=lambda i: (kernel.axis(i).count >= 4 and contiguous(i, side), kernel.axis(i).count, i))


def widened(kernel: Kernel, i: int, ids: list[int], accesses: list[MemoryAccess]) -> tuple[Kernel, int]:
  """The axis ``i`` made one with those of ``ids`` beside it in memory, the nearest first, until it is long enough for a block;
  its new number."""
  def distance(j: int) -> float: return min((abs(s) for x in accesses if (s := x.steps.get(j))), default=math.inf)
  near = sorted(ids, key=distance)
  short = kernel.axis(i).count < LEAST_DOT and distance(i) != 1
  if short: i = near[0]
  elif distance(i) != 1: return kernel, i   # nothing is gained by neighbours
  for j in near[near.index(i) + 1:]:
    if kernel.axis(i).count >= (LEAST_DOT if short else WIDE): break
    kernel = Fuse(j, i).apply(kernel)
    i = j
  return kernel, i


def stored(u: UOp) -> UOp:
  """What a CAST widened."""
  return u.src[0] if u.op is Ops.CAST else u
