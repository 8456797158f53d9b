"""Running sums: which kernel computes one, and how a long one is cut so that all cores have a part of it.

    scan(x)  ->  scan(x, anew after n) + what the parts before come to: the running sum of each part's sum
"""
from __future__ import annotations

import math

from ntgrad.codegen import index as ix
from ntgrad.codegen.dtype import dtypes
from ntgrad.codegen.elementwise import const
from ntgrad.codegen.functions import identity
from ntgrad.codegen.scans import NARROWEST, Scan
from ntgrad.codegen.target import Target
from ntgrad.codegen.uop import BinaryOps, Ops, TernaryOps, UOp

from .groups import Group
from .writes import Idx

SPLIT_FROM = 32768   # elements of a scan that is worth cutting for a CPU's cores,
LEAST_PART = 8192    # and of a part of it
PART = 256           # a multiple of which it has
LEAST_BLOCKS = 2048  # elements of a part on targets with blocks; of columns
LEAST_COLUMN = 64    # so many rows
LOCKSTEP = 1024      # where all programs run in lockstep, from which on loops are short and rows many instead
_NO_REDUCTION = UOp(Ops.RANGE, ix.INT, (), (-1, 1))   # an axis that no value has: no reduction keeps it


def join_scan(u: UOp, g: Group, idx: Idx, valid: UOp) -> bool:
  """Whether a kernel computes the scan ``u`` for itself: it needs each element once, where it stands, and has no reduction, nor a
  scan that goes another way. From then on it gets none."""
  _, axis, reverse, *every = u.arg
  want = (idx[axis], reverse, every[0] if every else 0)
  rs = [i for i, n in zip(idx, u.shape) if n != 1]
  if valid is not ix.TRUE or idx[axis].op is not Ops.RANGE or any(i.op is not Ops.RANGE for i in rs): return False
  if len(set(rs)) != len(rs) or set(rs) != set(g.out) or any(i.arg[1] != n for i, n in zip(idx, u.shape) if n != 1): return False
  if g.bound or any(r.op is Ops.SCATTER for r in g.roots): return False
  if g.scan != want and (g.scan is not None or g.kept is not None): return False
  g.scan, g.kept = want, frozenset((*g.out, _NO_REDUCTION))
  return True


def scan_value(u: UOp, idx: Idx, value: UOp) -> UOp:
  """The index form of a scan of ``value``."""
  fn, axis, *rest = u.arg
  at = idx[axis]
  return UOp(Ops.SCAN, u.dtype, (value,), Scan(fn, at.arg[0], *rest)) if at.op is Ops.RANGE else value


def split_scan(u: UOp, target: Target) -> UOp | None:
  """A long scan of few rows in parts: their sums, the scan of these, and scans of the parts, each from where the one before it
  ends. None where it stays as it is."""
  fn, axis, reverse, *every = u.arg
  n = u.shape[axis]
  # what fills the last part of a run-time size is 0
  if every or not isinstance(n, int) and identity(fn, u.dtype) != 0: return None
  step = part_size(ix.count(n), ix.elements(u.shape[:axis]), ix.elements(u.shape[axis + 1:]), target)
  return None if step >= ix.count(n) else in_parts(u, step)


def part_size(n: int, before: int, inner: int, target: Target) -> int:
  """Elements of a part of a scan of ``n``, of which there are ``before`` times ``inner``: so many that each core has some."""
  rows = before * inner
  if target.name == "numpy": return n if n <= LOCKSTEP else math.isqrt(n)
  if target.blocks:
    columns = inner >= NARROWEST // 2
    tasks, least = (before * -(-inner // NARROWEST), LEAST_COLUMN) if columns else (rows, LEAST_BLOCKS)
    if tasks >= target.cores or n < 2 * least: return n
    size = max(-(-n * tasks // (2 * target.cores)), least)
    return 1 << (size - 1).bit_length()
  tasks = before * -(-inner // 64) if inner >= target.lanes > 1 else rows
  if target.cores == 1 or tasks >= 2 * target.cores or n * rows < SPLIT_FROM: return n
  size = max(-(-n * tasks // (8 * target.cores)), -(-LEAST_PART // inner))
  # parts of one size, if there are such, else of whole blocks
  return next((s for s in range(size, 2 * size) if n % s == 0), -(-size // PART) * PART)


def in_parts(u: UOp, step: int) -> UOp:
  """The scan ``u`` in parts of ``step`` elements along its axis."""
  fn, axis, reverse = u.arg
  x, dtype, shape = u.src[0], u.dtype, u.shape
  n = shape[axis]
  parts = ix.rounds(n, step)
  def along(*size: ix.Dim) -> tuple[ix.Dim, ...]: return (*shape[:axis], *size, *shape[axis + 1:])
  def move(op: Ops, y: UOp, arg: object) -> UOp: return UOp(op, y.dtype, (y,), arg)
  def turned(y: UOp) -> UOp: return move(Ops.FLIP, y, (axis,)) if reverse else y
  def box(size: ix.Dim) -> tuple[tuple[int, ix.Dim], ...]: return tuple([(0, m) for m in along(size)])
  def around(low: int, high: ix.Dim) -> tuple[tuple[int, ix.Dim], ...]:
    return tuple([(low, high) if d == axis else (0, 0) for d in range(len(shape))])
  # what the parts come to: of a number of elements without the last, whose sum nobody needs
  known = isinstance(n, int)
  summed = ix.minus(parts, 1) if known else parts
  full = ix.times(summed, step)
  whole = move(Ops.SHRINK, turned(x), box(full)) if known else move(Ops.PAD, turned(x), around(0, ix.minus(full, n)))
  sums = UOp(Ops.REDUCE_AXIS, dtype, (move(Ops.RESHAPE, whole, along(summed, step)),), (fn, (axis + 1,)))
  sums = UOp(Ops.SCAN_AXIS, dtype, (move(Ops.RESHAPE, sums, along(summed)),), (fn, axis, False))
  # what comes before each part
  if not known: sums = move(Ops.SHRINK, sums, box(ix.minus(parts, 1)))
  begin = move(Ops.PAD, sums, around(1, 0))
  nothing = identity(fn, dtype)
  if nothing != 0 and isinstance(parts, int):
    at = move(Ops.RESHAPE, UOp(Ops.IOTA, dtypes.int32, (), parts), tuple([parts if d == axis else 1 for d in range(len(shape))]))
    first = UOp.alu(BinaryOps.CMPLT, at, const(1, dtypes.int32, at.shape))
    begin = UOp.alu(TernaryOps.WHERE, move(Ops.EXPAND, first, begin.shape), const(nothing, dtype, begin.shape), begin)
  begin = move(Ops.EXPAND, move(Ops.RESHAPE, begin, along(parts, 1)), along(parts, step))
  begin = move(Ops.RESHAPE, begin, along(ix.times(parts, step)))
  if ix.times(parts, step) != n: begin = move(Ops.SHRINK, begin, box(n))
  return UOp.alu(fn, turned(begin), UOp(Ops.SCAN_AXIS, dtype, (x,), (fn, axis, reverse, step)))
