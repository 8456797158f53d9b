"""First heuristics for targets with blocks: which axes of a scheduled kernel become TILE axes, and how large."""
from __future__ import annotations

from typing import Any

from .axes import merge_axes, split_axes
from .costs import profile
from .dtype import dtypes
from .kernel import Axis, AxisKind, Kernel
from .opt import Opt, apply_opt, split
from .uop import BinaryOps, Ops, TernaryOps, UOp, prod

ELEMENTS = 1024          # of a program that only maps elements
BLOCK = 4096             # elements of the largest block of a reduction
COLUMNS = 64             # outputs a program when neighbouring outputs lie side by side in memory and what is summed does not
LEAST_DOT = 16
DOTS = ((128, 256), (128, 128), (128, 64), (64, 64))   # of the output of a product of 16-bit floats or less, best first


def tile(kernel: Kernel, cores: int = 1) -> Kernel:
  """The kernel with TILE axes where it has none yet: a plain one, whose statements may run all at once. Products keep ``cores`` busy."""
  if not kernel.plain or kernel.of_kind(AxisKind.TILE): return kernel
  kernel = merge_axes(split_axes(kernel))
  dot = product(kernel)
  if dot is not None:
    m, n, k = dot
    wide = any(p.dtype.itemsize > 2 for p in kernel.params)
    rows, columns = (64, 64) if wide else blocks(kernel, m, n, cores)
    for i, size in ((m, rows), (n, columns), (k, 32 if wide else 64)): kernel = tile_axis(kernel, kernel.axis(i), size)
    return kernel
  return reduction(kernel) if kernel.reduces else elementwise(kernel, ELEMENTS)


def blocks(kernel: Kernel, m: int, n: int, cores: int) -> tuple[int, int]:
  """Rows and columns of a product that a program makes: the largest block with which there is a program for every core."""
  rows, columns = kernel.axis(m).size, kernel.axis(n).size
  others = prod(a.size for a in free(kernel) if a.id not in (m, n))
  for bm, bn in DOTS:
    if rows >= bm and columns >= bn and -(-rows // bm) * -(-columns // bn) * others >= cores: return bm, bn
  return DOTS[-1]


def tile_axis(kernel: Kernel, axis: Axis, size: int) -> Kernel:
  """``axis`` in blocks of at most ``size``, a power of two: whole, or padded to a multiple and split."""
  if axis.size == 1: return kernel
  if axis.size <= size: return kernel.with_(axes=tuple(Axis(a.id, a.size, AxisKind.TILE) if a is axis else a for a in kernel.axes))
  if size == 1: return kernel
  kernel = apply_opt(kernel, Opt("pad", axis.id, size))
  return split(kernel, kernel.axis(axis.id), size, AxisKind.TILE)


def fill(kernel: Kernel, axes: list[Axis], room: int) -> tuple[Kernel, int]:
  """The last of ``axes`` as blocks, as far as ``room`` elements go; gives the room that is left."""
  for a in reversed(axes):
    if room <= 1: break
    if a.size == 1: continue
    kernel = tile_axis(kernel, a, room)
    room //= min(room, 1 << (a.size - 1).bit_length())
  return kernel, room


def free(kernel: Kernel) -> list[Axis]: return [a for a in kernel.of_kind(AxisKind.GRID) if a.id not in kernel.bound]


def elementwise(kernel: Kernel, room: int) -> Kernel: return fill(kernel, free(kernel), room)[0]


def reduction(kernel: Kernel) -> Kernel:
  """The reduced axes as a block where they are small enough, and as many rows as then fit."""
  bound = [a for a in kernel.axes if a.kind is AxisKind.LOOP and a.id in kernel.bound and a.id not in kernel.sequential]
  reads = [x for x in profile(kernel).accesses if not x.write]
  def contiguous(axes: list[Axis]) -> bool: return any(x.steps.get(a.id) == 1 for x in reads for a in axes)
  rows = free(kernel)
  if rows and contiguous(rows[-1:]) and not contiguous(bound):
    kernel, _ = fill(kernel, rows, COLUMNS)
    return fill(kernel, bound, BLOCK // COLUMNS)[0]
  kernel, room = fill(kernel, bound, BLOCK)
  return fill(kernel, rows, room)[0]


def product(kernel: Kernel) -> tuple[int, int, int] | None:
  """The axes (m, n, k) of a kernel that is a matrix product large enough for tl.dot; others stay programs and loops."""
  if len(kernel.reduces) != 1: return None
  u = kernel.reduces[0]
  value = u.src[0]
  if value.op is Ops.ALU and value.arg is TernaryOps.WHERE: value = value.src[1]
  if u.arg[0] is not BinaryOps.ADD or value.op is not Ops.ALU or value.arg is not BinaryOps.MUL: return None
  if u.dtype not in (dtypes.float32, dtypes.int32): return None
  if u.dtype is dtypes.int32 and any(stored(s).dtype is not dtypes.int8 for s in value.src): return None
  grid = {a.id for a in free(kernel)}
  a, b = ({r.arg[0] for r in s.ranges} for s in value.src)
  def largest(ids: Any) -> int | None:
    return max((i for i in ids if kernel.axis(i).size >= LEAST_DOT), key=lambda i: (kernel.axis(i).size, i), default=None)
  m, n, k = largest(grid & a - b), largest(grid & b - a), largest(set(u.arg[1]) & a & b)
  return None if m is None or n is None or k is None else (m, n, k)


def stored(u: UOp) -> UOp:
  """What a CAST widened."""
  return u.src[0] if u.op is Ops.CAST else u


