"""Kernels that fill memory with what is made of numbers alone (random values, ones and zeros), such that those which differ in
how many elements they fill, or in a number, share one program: both are given at the launch.

    store data0[a0, a1] = float(threefry(a0*30 + a1 + data1[0], data1[1])) * 0.365             a0:20, a1:30
 -> store data0[a0] = float(threefry(a0 + data1[0], data1[1])) * bitcast[float](int(x00))      a0:n; n = 600, x00 = 0x3ebae148
"""
from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, Sequence

import numpy as np

from ntgrad.codegen import index as ix
from ntgrad.codegen.ir import BinaryOps, Ops, Recent, UOp, config, dtypes, held, toposort
from ntgrad.codegen.kernel import Axis, AxisKind, Kernel, Param, flat_index, substitute
from ntgrad.schedule.buffer_pieces import PART_ALIGN_BYTES
from ntgrad.schedule.lower import ScheduleItem
from ntgrad.schedule.nodes import indexed

from . import overrides
from .size_variants import with_common_names

MOST_NUMBERS = 48   # numbers of a kernel that its launch gives
_COUNT = ix.Size("n", lower=1)
_NUMBER = ix.Size("x", lower=-(1 << 31), upper=(1 << 31) - 1)   # 32 bits of data
_shared: Recent[Kernel, bool] = Recent(1024)   # kernels that others have shared


_Sizes = tuple[ix.Dim, ...]   # what a kernel is launched with, for each of its sizes: a number, or an expression of sizes


def with_shared_programs(items: Sequence[ScheduleItem]) -> tuple[list[ScheduleItem], dict[int, _Sizes]]:
  """The steps of a schedule, with one kernel for those that differ in the names of their sizes alone. Where two steps fill memory
  in the same way, all that fill memory get the form that shares a program, with a step for each piece of memory. One step alone
  gets it where an earlier schedule has had that form. Gives the steps and, by their numbers, what their sizes are."""
  forms = [[] if item.ast is None else [_filling(item, s) for s in item.ast.body] for item in items]
  fills = [form for step in forms if None not in step for form in {f[0] for f in step if f}]
  if len({*fills}) < len(fills):
    for form in fills: _shared[form] = True
  out, sizes = list[ScheduleItem](), dict[int, _Sizes]()
  for item, step in zip(items, forms):
    parts = [(part, given) for form, part, given in filter(None, step) if form in _shared]
    if parts and len(parts) == len(step): pass
    elif item.ast is not None and item.ast.sizes:
      kernel, own = with_common_names(item.ast)
      parts = [(replace(item, ast=kernel), tuple([s.node for s in own]))]
    else: parts = [(item, ())]
    for part, given in parts:
      if given: sizes[len(out)] = given
      out.append(part)
  return out, sizes


def _filling(item: ScheduleItem, store: UOp) -> tuple[Kernel, ScheduleItem, _Sizes] | None:
  """What a step stores, as a step of its own for any count and numbers, where it fills one piece of memory from the first element
  to the last. None where it does anything else, and where each kernel is to be what it says: run-time sizes are off, Opts are off
  or measured, or somebody has written the kernel anew."""
  kernel, nodes = item.ast, store.toposort()
  if kernel is None or not kernel.stores_only or config.dynamic == "never" or config.noopt or config.beam: return None
  out, read = kernel.by_uop[store.src[0]], [p for p in kernel.params if not p.written and p.uop in nodes]
  if len(store.src) > 3 or store.arg is not None: return None
  for u in nodes:   # of memory it reads what is at a place, as the state of a generator
    if u.op in (Ops.REDUCE, Ops.SCAN, Ops.SORTED) or u.op is Ops.LOAD and (u.ranges or u.src[0] in kernel.written): return None
  shape, count = tuple([a.size for a in kernel.axes]), ix.product(out.shape)
  at = flat_index(shape, [a.rng for a in kernel.axes])
  if flat_index(out.shape, store.src[1].src) is not at or ix.node(ix.product(shape)) is not ix.node(count): return None
  form, axis = _Form([_COUNT], [count]), Axis(0, _COUNT.node, AxisKind.GRID)
  value = form.of(substitute((store.src[2],), {at: axis.rng} if at.ranges else {})[0], axis.rng)
  align = PART_ALIGN_BYTES if out.align % PART_ALIGN_BYTES == 0 else out.align   # all memory begins at such a multiple
  params = Param(0, (axis.size,), out.dtype, True, align), *[replace(p, slot=i) for i, p in enumerate(read, start=1)]
  value, = substitute((value,), {p.uop: q.uop for p, q in zip(read, params[1:])})
  new = Kernel(params, (axis,), (UOp(Ops.STORE, store.dtype, (params[0].uop, indexed((axis.rng,)), value)),), free=True)
  given = dict(zip(form.sizes, form.given))
  if not value.ranges <= {axis.rng} or {*new.sizes} != given.keys() or len(given) > MOST_NUMBERS: return None
  if overrides.standing_for(kernel) is not None: return None
  slots = [p.slot for p in (out, *read)]
  part = replace(item, ast=new, nodes=tuple([item.nodes[slot] for slot in slots]),
                 offsets=tuple([item.offsets[slot] for slot in slots]) if item.offsets else ())
  return new, part, tuple([given[s] for s in new.sizes])


class _Form(NamedTuple):
  """What numbers of a value become that its launch gives, and what they are."""
  sizes: list[ix.Size]
  given: list[ix.Dim]

  def of(self, value: UOp, axis: UOp) -> UOp:
    """The value with its floats, and what it compares its place with, from the launch. Each use of a number is one of
    its own: that two are equal is no part of the form."""
    if value.op is Ops.CONST: return self.number(value) if value.dtype.kind in "biuf" else value
    new: dict[UOp, UOp] = {}
    for u in toposort((value,)):
      if u.op is Ops.ALU and u.arg is BinaryOps.CMPLT and u.src[0] is axis and ix.of_sizes(u.src[1]):
        new[u] = ix.lt(axis, self.size(ix.Size("x", lower=0), ix.number(u.src[1])))
      else:
        src = tuple([self.number(s) if s.op is Ops.CONST and s.dtype.kind == "f" else new[s] for s in u.src])
        new[u] = u if src == u.src else u.replace(src)
    return new[value]

  def size(self, kind: ix.Size, given: ix.Dim) -> UOp:
    self.sizes.append(kind._replace(name=f"{kind.name}{len(self.sizes):02}"))
    self.given.append(given)
    return self.sizes[-1].node

  def number(self, u: UOp) -> UOp:
    """A number by its bits, in words of 32. NaN stays as it is: it has several."""
    if u.dtype.kind == "e" or u.arg != u.arg: return u
    floats, wide = u.dtype.kind == "f", u.dtype.itemsize == 8
    array = np.array([held(u.arg, u.dtype)], f"f{8 if wide else 4}") if floats else np.array([int(u.arg) & (1 << 64) - 1], "u8")
    words = [UOp(Ops.CAST, dtypes.int32, (self.size(_NUMBER, int(w)),)) for w in array.view("i4")[:1 + wide]]
    if not wide: return (UOp(Ops.BITCAST, dtypes.float32, (words[0],)) if floats else words[0]).cast(u.dtype)
    low, high = [UOp(Ops.BITCAST, dtypes.uint32, (w,)).cast(dtypes.uint64) for w in words]
    both = UOp.alu(BinaryOps.OR, UOp.alu(BinaryOps.SHL, high, UOp.const(dtypes.uint64, 32)), low)
    return both if u.dtype is dtypes.uint64 else UOp(Ops.BITCAST, u.dtype, (both,))
