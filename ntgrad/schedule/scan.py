"""Running sums: which kernel computes one, and how a long one is cut so that all cores have a part of it.

    scan(x)  ->  scan(x, anew after n) + what the parts before come to: the running sum of each part's sum
"""
from __future__ import annotations

import math

from ntgrad.codegen import index as ix
from ntgrad.codegen.ir import Ops, Target, UOp, identity
from ntgrad.codegen.passes.scans import NARROWEST_COLUMNS, Scan
from ntgrad.graph import nodes as graph

from .kernel_groups import Group
from .nodes import Idx, movement, reshaped, with_axis

_SPLIT_FROM = 32768   # elements of a scan that is worth cutting for a CPU's cores
_LEAST_PART = 8192    # elements of a part of it, at least
_PART = 256           # elements: a part is a multiple of it
LEAST_BLOCKS = 2048   # elements of a part on targets with blocks
LEAST_COLUMN = 64     # rows of a part of columns on targets with blocks
LOCKSTEP = 1024       # elements of a scan that is not cut where all programs run in lockstep, as numpy's do


def join_scan(u: UOp, g: Group, idx: Idx, valid: UOp) -> bool:
  """Whether a kernel computes the scan ``u`` for itself, which has no scan that goes another way (``Group.takes_rows``)."""
  _, axis, reverse, *every = u.arg
  return idx[axis].op is Ops.RANGE and g.takes_rows(idx, valid, u.shape, (idx[axis], reverse, every[0] if every else 0))


def scan_value(u: UOp, idx: Idx, value: UOp) -> UOp:
  """The index form of a scan of ``value``."""
  fn, axis, *rest = u.arg
  at = idx[axis]
  return UOp(Ops.SCAN, u.dtype, (value,), Scan(fn, at.arg[0], *rest)) if at.op is Ops.RANGE else value


def split_scan(u: UOp, target: Target) -> UOp | None:
  """A long scan of few rows in parts: their sums, the scan of these, and scans of the parts, each begun with what is before."""
  fn, axis, reverse, *every = u.arg
  n = u.shape[axis]
  # what fills the last part of a run-time size is 0
  if every or not isinstance(n, int) and identity(fn, u.dtype) != 0: return None
  step = part_size(ix.count(n), ix.elements(u.shape[:axis]), ix.elements(u.shape[axis + 1:]), target)
  return None if step >= ix.count(n) else _in_parts(u, step)


def part_size(n: int, before: int, inner: int, target: Target) -> int:
  """Elements of a part of a scan of ``n``, of which there are ``before`` times ``inner``: so many that each core has some."""
  rows = before * inner
  if target.name == "numpy": return n if n <= LOCKSTEP else math.isqrt(n)
  if target.blocks:
    columns = inner >= NARROWEST_COLUMNS // 2
    tasks, least = (before * -(-inner // NARROWEST_COLUMNS), LEAST_COLUMN) if columns else (rows, LEAST_BLOCKS)
    if tasks >= target.cores or n < 2 * least: return n
    size = max(-(-n * tasks // (2 * target.cores)), least)
    return 1 << (size - 1).bit_length()
  tasks = before * -(-inner // 64) if inner >= target.lanes > 1 else rows
  if target.cores == 1 or tasks >= 2 * target.cores or n * rows < _SPLIT_FROM: return n
  size = max(-(-n * tasks // (8 * target.cores)), -(-_LEAST_PART // inner))
  # parts of one size, if there are such, else of whole blocks
  return next((s for s in range(size, 2 * size) if n % s == 0), -(-size // _PART) * _PART)


def _in_parts(u: UOp, step: int) -> UOp:
  """The scan ``u`` in parts of ``step`` elements along its axis."""
  fn, axis, reverse = u.arg
  x, dtype, shape = u.src[0], u.dtype, u.shape
  n = shape[axis]
  parts = ix.rounds(n, step)
  def turned(y: UOp) -> UOp: return movement(Ops.FLIP, y, (axis,)) if reverse else y
  # what the parts come to: of a number of elements without the last, whose sum nobody needs
  known = isinstance(n, int)
  summed = ix.minus(parts, 1) if known else parts
  full = ix.times(summed, step)
  whole = take_first(turned(x), axis, full) if known else with_zeros(turned(x), axis, 0, ix.minus(full, n))
  sums = movement(Ops.REDUCE_AXIS, with_axis(whole, axis, summed, step), (fn, (axis + 1,)))
  sums = movement(Ops.SCAN_AXIS, with_axis(sums, axis, summed, after=2), (fn, axis, False))
  # what comes before each part
  if not known: sums = take_first(sums, axis, ix.minus(parts, 1))
  begin, nothing = with_zeros(sums, axis, 1, 0), identity(fn, dtype)
  if nothing != 0 and isinstance(parts, int): begin = graph.where(is_first(axis, begin.shape), nothing, begin)
  begin = movement(Ops.EXPAND, with_axis(begin, axis, parts, 1), (*shape[:axis], parts, step, *shape[axis + 1:]))
  begin = with_axis(begin, axis, ix.times(parts, step), after=2)
  if ix.times(parts, step) != n: begin = take_first(begin, axis, n)
  return UOp.alu(fn, turned(begin), movement(Ops.SCAN_AXIS, x, (fn, axis, reverse, step)))


# ---- nodes of rows whose sizes may be expressions
def take_first(x: UOp, axis: int, n: ix.Dim) -> UOp:
  """The first ``n`` along an axis."""
  return movement(Ops.SHRINK, x, tuple((0, n if d == axis else size) for d, size in enumerate(x.shape)))


def with_zeros(x: UOp, axis: int, before: int, behind: ix.Dim) -> UOp:
  """So many zeros before and behind what stands along an axis."""
  return movement(Ops.PAD, x, tuple((before, behind) if d == axis else (0, 0) for d in range(len(x.shape))))


def is_first(axis: int, shape: tuple[int, ...]) -> UOp:
  """Whether an element is the first along an axis."""
  at = reshaped(graph.iota(shape[axis]), tuple(n if d == axis else 1 for d, n in enumerate(shape)))
  return movement(Ops.EXPAND, graph.lt(at, 1), shape)
