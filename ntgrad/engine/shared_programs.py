"""Kernels that fill memory with what is made of numbers alone (random values, ones and zeros), such that those which differ in
how many elements they fill, or in a number, share one program: both are given at the launch.

    store data0[a0, a1] = float(threefry(a0*30 + a1 + data1[0], data1[1])) * 0.365             a0:20, a1:30
 -> store data0[a0] = float(threefry(a0 + data1[0], data1[1])) * bitcast[float](int(x01))      a0:n; n = 600, x01 = 0x3ebae148
"""
from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Sequence

import numpy as np

from ntgrad.codegen import index as ix
from ntgrad.codegen.ir import BinaryOps, Ops, UOp, config, dtypes, held
from ntgrad.codegen.kernel import Axis, AxisKind, Kernel, Param, flat_index, substitute
from ntgrad.schedule.lower import ScheduleItem
from ntgrad.schedule.nodes import indexed
from ntgrad.schedule.placement import PART_ALIGN_BYTES

from . import overrides
from .size_variants import with_common_names

MOST_NUMBERS = 48   # numbers of a kernel that its launch gives
_COUNT, _PLACE = ix.Size("n", lower=1), ix.Size("x", lower=0)
_WORD = ix.Size("x", lower=-(1 << 31), upper=(1 << 31) - 1)   # 32 bits of data
_AXIS = Axis(0, _COUNT.node, AxisKind.GRID)
_Sizes = tuple[ix.Dim, ...]   # what a kernel is launched with, for each of its sizes: a number, or an expression of sizes


def with_shared_programs(items: Sequence[ScheduleItem]) -> tuple[list[ScheduleItem], dict[int, _Sizes]]:
  """The steps of a schedule, with one kernel for those that differ in the names of their sizes alone. Steps that fill memory get
  the form that shares a program where two of them fill it in the same way, and where several do and a schedule does nothing else,
  with a step for each piece of memory then. Gives the steps and, by their numbers, what their sizes are."""
  forms = [[] if item.ast is None else [_filling(item, item.ast, s) for s in item.ast.body] for item in items]
  several = all([step and None not in step for step in forms])
  fills = [form for step in forms if None not in step and (several or len(step) == 1) for form in {f[0] for f in step if f}]
  shared = {form for form, n in Counter(fills).items() if several and len(fills) > 1 or n > 1}
  out, sizes = list[ScheduleItem](), dict[int, _Sizes]()
  for item, step in zip(items, forms):
    parts = [f[1:] for f in step if f and f[0] in shared]
    if not parts or len(parts) < len(step) or len(step) > 1 and not several: parts = [(item, ())]
    if parts[0][0] is item and item.ast is not None and item.ast.sizes:
      kernel, own = with_common_names(item.ast)
      parts = [(replace(item, ast=kernel), tuple([s.node for s in own]))]
    for part, given in parts:
      if given: sizes[len(out)] = given
      out.append(part)
  return out, sizes


def _filling(item: ScheduleItem, kernel: Kernel, store: UOp) -> tuple[Kernel, ScheduleItem, _Sizes] | None:
  """What a step stores, as a step of its own for any count and numbers, where it fills one piece of memory from the first element
  to the last. None where it does anything else, and where each kernel is to be what it says: run-time sizes are off, Opts are off
  or measured, somebody has written the kernel anew, or kernels are written to files for that."""
  if not kernel.stores_only or config.dynamic == "never" or config.noopt or config.beam or overrides.kernel_listeners: return None
  if len(store.src) > 3 or store.arg is not None: return None
  nodes = store.toposort()
  for u in nodes:   # of memory it reads what is at a place, as the state of a generator
    if u.op in (Ops.REDUCE, Ops.SCAN, Ops.SORTED) or u.op is Ops.LOAD and (u.ranges or u.src[0] in kernel.written): return None
  out, read = kernel.by_uop[store.src[0]], [p for p in kernel.params if not p.written and p.uop in nodes]
  shape, count = tuple([a.size for a in kernel.axes]), ix.product(out.shape)
  at = flat_index(shape, [a.rng for a in kernel.axes])
  if flat_index(out.shape, store.src[1].src) is not at or ix.node(ix.product(shape)) is not ix.node(count): return None
  if overrides.standing_for(kernel) is not None: return None
  align = PART_ALIGN_BYTES if out.align % PART_ALIGN_BYTES == 0 else out.align   # all memory begins at such a multiple
  params = Param(0, (_AXIS.size,), out.dtype, True, align), *[replace(p, slot=i) for i, p in enumerate(read, start=1)]
  table = {p.uop: q.uop for p, q in zip(read, params[1:])}
  value, given = _with_numbers(substitute((store.src[2],), table | ({at: _AXIS.rng} if at.ranges else {}))[0])
  given[_COUNT] = count
  new = Kernel(params, (_AXIS,), (UOp(Ops.STORE, store.dtype, (params[0].uop, indexed((_AXIS.rng,)), value)),), free=True)
  if not value.ranges <= {_AXIS.rng} or {*new.sizes} != given.keys() or len(given) > MOST_NUMBERS: return None
  slots = [p.slot for p in (out, *read)]
  part = replace(item, ast=new, nodes=tuple([item.nodes[slot] for slot in slots]),
                 offsets=tuple([item.offsets[slot] for slot in slots if item.offsets]))
  return new, part, tuple([given[s] for s in new.sizes])


def _with_numbers(value: UOp) -> tuple[UOp, dict[ix.Size, ix.Dim]]:
  """A value with its floats, and what it compares its place with, from the launch, and what these are. Each use of a number is
  one of its own: that two are equal is no part of the form. NaN stays as it is: it has several."""
  given = dict[ix.Size, ix.Dim]()

  def size(kind: ix.Size, n: ix.Dim) -> UOp:
    given[new := kind._replace(name=f"{kind.name}{len(given):02}")] = n
    return new.node

  def number(u: UOp) -> UOp:
    floats, wide = u.dtype.kind == "f", u.dtype.itemsize == 8
    array = np.array([held(u.arg, u.dtype)], f"f{8 if wide else 4}") if floats else np.array([int(u.arg) & (1 << 64) - 1], "u8")
    words = [UOp(Ops.CAST, dtypes.int32, (size(_WORD, int(w)),)) for w in array.view("i4")[:1 + wide]]
    if not wide: return (UOp(Ops.BITCAST, dtypes.float32, (words[0],)) if floats else words[0]).cast(u.dtype)
    low, high = [UOp(Ops.BITCAST, dtypes.uint32, (w,)).cast(dtypes.uint64) for w in words]
    both = UOp.alu(BinaryOps.OR, UOp.alu(BinaryOps.SHL, high, UOp.const(dtypes.uint64, 32)), low)
    return both if u.dtype is dtypes.uint64 else UOp(Ops.BITCAST, u.dtype, (both,))

  def is_number(u: UOp, kinds: str) -> bool: return u.op is Ops.CONST and u.dtype.kind in kinds and u.arg == u.arg
  if is_number(value, "biuf"): return number(value), given
  new: dict[UOp, UOp] = {}
  for u in value.toposort():
    if u.arg is BinaryOps.CMPLT and u.src[0] is _AXIS.rng and ix.of_sizes(u.src[1]):
      new[u] = ix.lt(_AXIS.rng, size(_PLACE, ix.number(u.src[1])))
    else: new[u] = u.replace(tuple([number(s) if is_number(s, "f") else new[s] for s in u.src]))
  return new[value], given
