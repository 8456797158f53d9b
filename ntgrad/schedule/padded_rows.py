"""Padded rows: rows of factors that the scheduler stores begin at multiples of 16 bytes, which a target with blocks reads at a
time, past the registers.

A matrix of 1001 columns is stored with rows of 1024, with zeros behind, and a sum over them goes on to 1024. A result with so
many columns stores only those that there are. Buffers of the caller stay as they are (``copied_factors`` copies some).
"""
from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ntgrad.codegen import index as ix
from ntgrad.codegen.choose.roles import VECTOR_BYTES
from ntgrad.codegen.index import Shape, strides_of
from ntgrad.codegen.ir import BinaryOps, Ops, UOp, config
from ntgrad.codegen.kernel import Kernel, gate_or_true, is_masked, rewrite
from ntgrad.codegen.opts.axes import or_identity, with_longer_axis

from .layout import FIXED, BufferAccess, buffer_accesses, buffers, products
from .nodes import Nodes, as_buffer, elements_of, is_fixed, movement

if TYPE_CHECKING:
  from .lower import ScheduleItem

LEAST = 16                # elements of a row that a block goes along
_LARGE = 1 << 24          # products of a sum from which on its result has such rows too, where they are at least _LONG
_LONG = 256               # elements of a row, as a block is wide: shorter ones are stored across their ends anyway
_ROWS = 128, 64, 32       # bytes: what rows are a multiple of where they get longer by no more than LONGER
LONGER = 1 / 16           # of a row: how much longer it gets to be a multiple of _ROWS, at most
_MOST = 1 / 8             # of a row: how much longer it gets to be a multiple of VECTOR_BYTES, at most


def padded(n: int, itemsize: int) -> int:
  """The elements of rows of ``n`` with padding behind; ``n`` where they are well as they are, or would get much longer."""
  def up(size: int) -> int: return -(-n * itemsize // size) * size // itemsize
  if n * itemsize % VECTOR_BYTES == 0 or n < LEAST: return n
  aligned = up(VECTOR_BYTES)
  return next((up(size) for size in _ROWS if up(size) <= n * (1 + LONGER)), aligned if aligned <= n * (1 + _MOST) else n)


def vector_bytes(shape: Shape, place: int, itemsize: int, align: int) -> int:
  """The bytes of a buffer that one thread can read at a time along a dimension, up to VECTOR_BYTES, whichever row they are of:
  its memory begins at a multiple of ``align`` bytes (0: of many)."""
  strides = list(map(ix.count, strides_of(shape)))
  if strides[place] != 1: return itemsize
  others = [s * itemsize for d, (s, n) in enumerate(zip(strides, shape)) if d != place and n != 1]
  return math.gcd(align or VECTOR_BYTES, VECTOR_BYTES, *others)


def row(shape: Shape) -> int:
  """The dimension that lies side by side in memory."""
  return max([d for d, n in enumerate(shape) if n != 1], default=len(shape) - 1)


def sole_axis(a: BufferAccess, place: int, size: ix.Dim) -> UOp | None:
  """The axis that goes through all of a dimension, and through no other."""
  i = a.at[place]
  return i if i.op is Ops.RANGE and i.arg[1] == size and sum(i in x.ranges for x in a.at) == 1 else None


def _in_parts(a: BufferAccess, place: int) -> bool:
  """Whether an index goes along a row in parts that begin at multiples of VECTOR_BYTES: part * 64 + i."""
  axes, first = ix.linear(a.at[place])
  apart = [k for _, k in axes if k != 1] + [first]
  return all(x.op is Ops.RANGE for x, _ in axes) and len(axes) == len(apart) and not any(
    k * a.by.dtype.itemsize % VECTOR_BYTES for k in apart)


def with_rows(items: Sequence[ScheduleItem], sinks: Collection[UOp]) -> list[ScheduleItem]:
  """The items with longer rows of the buffers that products read: data1[2047, 1001] -> data1[2047, 1024], zeros behind, and
  sum[1001](..) -> sum[1024](..). ``sinks`` stay as they are."""
  if config.noopt: return list(items)
  return list(map(_Rows(items, sinks).changed, items))


class _Row(NamedTuple):
  """A row that gets longer: its dimension, its elements before and after, and the graph node of the longer buffer."""
  place: int
  before: int
  after: int
  node: UOp


class _Rows:
  """Which buffers get longer rows: each element behind them is 0."""

  def __init__(self, items: Sequence[ScheduleItem], sinks: Collection[UOp]):
    self.longer: dict[UOp, _Row] = {}
    fixed = {*sinks, *(n for item in items if item.ast is None for n in item.nodes)}
    writers: dict[UOp, list[tuple[Kernel, BufferAccess]]] = {}
    wanted: dict[UOp, tuple[int, int, int]] = {}
    for item in items:
      if (kernel := item.ast) is None: continue
      fixed.update(n for n, p in zip(item.nodes, kernel.params) if p.align or ix.elements(p.shape) != elements_of(n))
      shapes, of = {p.uop: p.shape for p in kernel.params}, buffers(kernel, item.nodes)
      stores = buffer_accesses(kernel.effects, of)
      for a in stores: writers.setdefault(a.node, []).append((kernel, a))
      rows = [a for a in stores if ix.count((shape := shapes[a.by.src[0]])[row(shape)]) >= _LONG]
      for p in products(kernel.nodes, of):
        # what large products are made into is stored in whole vectors then
        for a in (*[f for f in p.factors if f.by.src[0] not in kernel.written], *(rows if p.count >= _LARGE else ())):
          if a.node in wanted or a.node.op in FIXED: continue
          if (found := longer_row(kernel, a, shapes[a.by.src[0]])) is not None: wanted[a.node] = found
    for n, (place, before, after) in wanted.items():
      if n in fixed or n not in writers or before not in n.shape: continue
      if not all(may_grow(k, a, place, before) for k, a in writers[n]): continue
      pads = [(0, 0)] * len(n.shape)
      pads[n.shape.index(before)] = 0, after - before
      self.longer[n] = _Row(place, before, after, as_buffer(movement(Ops.PAD, n, tuple(pads))))

  def changed(self, item: ScheduleItem) -> ScheduleItem:
    """A kernel over the longer buffers."""
    if self.longer.keys().isdisjoint((*item.nodes, *item.writes, *item.reads)): return item
    kernel = item.ast
    if kernel is not None:
      rows = {p.uop: self.longer[n] for p, n in zip(kernel.params, item.nodes) if n in self.longer}
      params = tuple(replace(p, shape=(*p.shape[:r.place], r.after, *p.shape[r.place + 1:])) if (r := rows.get(p.uop)) else p
                      for p in kernel.params)
      axes: dict[UOp, int] = {}
      of = buffers(kernel, item.nodes)
      for a in (*[f for p in products(kernel.nodes, of) for f in p.factors], *buffer_accesses(kernel.effects, of)):
        if (r := self.longer.get(a.node)) is None: continue
        if (axis := sole_axis(a, r.place, r.before)) is not None and grows(kernel, axis):
          axes[axis] = min(axes.get(axis, r.after), r.after)
      kernel = kernel.with_(params=params)
      for axis, size in axes.items():   # a0:1001 LOOP -> a0:1024 LOOP; nothing is seen behind its old end
        was = kernel.axis(axis.arg[0])
        wide = replace(was, size=size)
        kernel = with_longer_axis(kernel, was, wide, ix.lt(wide.rng, was.size))
      if rows: kernel = _within(kernel, rows)
    def new(ns: Iterable[UOp]) -> Nodes: return tuple(self.longer[n].node if n in self.longer else n for n in ns)
    return replace(item, ast=kernel, nodes=new(item.nodes), writes=new(item.writes), reads=frozenset(new(item.reads)))


def longer_row(kernel: Kernel, a: BufferAccess, shape: Shape) -> tuple[int, int, int] | None:
  """The dimension of a factor, or of a result, that should be longer, its size, and the new one."""
  place, itemsize = row(shape), a.by.dtype.itemsize
  n = shape[place]
  if not is_fixed(shape) or not isinstance(n, int): return None
  if vector_bytes(shape, place, itemsize, 0) >= VECTOR_BYTES or (more := padded(n, itemsize)) == n: return None
  axis = sole_axis(a, place, n)
  return (place, n, more) if (_in_parts(a, place) if axis is None else grows(kernel, axis)) else None


def grows(kernel: Kernel, axis: UOp) -> bool:
  """Whether an axis may go on behind its end: all that is done along it can be left out there."""
  if any(s.op is not Ops.STORE or s.arg for s in kernel.body) or any(u.op is Ops.SCAN for u in kernel.nodes): return False
  return axis.op is Ops.RANGE and axis.arg[1] != 1 and axis.arg[0] in {a.id for a in kernel.axes}


def may_grow(kernel: Kernel, a: BufferAccess, place: int, size: int) -> bool:
  """Whether a kernel that stores a buffer can store zeros behind its rows too: it stores all of them, in one statement."""
  param = a.by.src[0]
  if len(a.by.src) > 3 or any(u.op is Ops.LOAD and u.src[0] is param for u in kernel.nodes): return False
  if sum(s.src[0] is param for s in kernel.body) != 1: return False
  return (axis := sole_axis(a, place, size)) is not None and grows(kernel, axis)


def _within(kernel: Kernel, rows: dict[UOp, _Row]) -> Kernel:
  """A kernel over longer rows: behind the old end of a row there are zeros to be read, and to be stored:

      sum[a0](data1[a1, a0 if a0 < 1001] * data2[a0 if a0 < 1001, a2] if a0 < 1001 else 0)
      ->   sum[a0](data1[a1, a0] * data2[a0 if a0 < 1001, a2]), data1 with rows of 1024
      data0[a1, a0] = x, if a0 < 1001   ->   data0[a1, a0] = x if a0 < 1001 else 0"""
  def inside(u: UOp) -> UOp:
    """The condition that an access of longer rows is within the old ones."""
    r = rows[u.src[0]]
    return ix.lt(u.src[1].src[r.place], r.before)
  def outside(u: UOp) -> Nodes:
    r = rows[u.src[0]]
    left = ix.both(ix.lt(u.src[1].src[r.place], r.after), *[c for c in ix.conjuncts(gate_or_true(u)) if c is not inside(u)])
    return () if left is ix.TRUE else (left,)
  def loaded(old: UOp, new: UOp) -> UOp | None:
    return new.replace((*new.src[:2], *outside(new))) if len(new.src) == 3 and new.src[0] in rows else None
  def stored(old: UOp, new: UOp) -> UOp | None:
    if new.src[0] not in rows or inside(new) not in ix.conjuncts(gate_or_true(new)): return None
    return new.replace((*new.src[:2], inside(new).where(new.src[2], UOp.const(new.src[2].dtype, 0)), *outside(new)))
  def zeros(u: UOp) -> set[UOp]:
    """Conditions outside which a factor is but a LOAD that gives 0, as memory has it or as its gate says."""
    known: set[UOp] = set()
    while u.op is Ops.CAST or is_masked(u):
      if u.op is not Ops.CAST: known.update(ix.conjuncts(u.src[0]))
      u = u.src[0] if u.op is Ops.CAST else u.src[1]
    if u.op is Ops.LOAD: known.update(ix.conjuncts(gate_or_true(u)), [inside(u)] if u.src[0] in rows else ())
    return known
  def summed(old: UOp, new: UOp) -> UOp | None:
    """A product of zeros needs no condition."""
    value, gates = new.src[0], list[UOp]()
    while is_masked(value):
      gates += ix.conjuncts(value.src[0])
      value = value.src[1]
    if not gates or value.arg is not BinaryOps.MUL or new.arg[0] is not BinaryOps.ADD: return None
    known = set.intersection(*map(zeros, value.src))
    return new.replace((or_identity(ix.both(*[c for c in gates if c not in known]), value, BinaryOps.ADD),))
  return kernel.with_(body=rewrite(kernel.body, {Ops.LOAD: loaded, Ops.STORE: stored, Ops.REDUCE: summed}))
