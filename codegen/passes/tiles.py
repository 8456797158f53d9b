"""TILE axes on targets without blocks: a tile and the grid around it become one axis again, which Opts cut as the target likes.

``data0(1024).tile((64)).at(a0, a1)`` with a0:16 GRID, a1:64 TILE becomes ``data0(1024).at(a0)`` with a0:1024 GRID. Where an index
uses a tile in another way, its axis becomes one more GRID axis, or a LOOP where reductions bind it.
"""
from __future__ import annotations

import functools
import itertools
from dataclasses import replace
from typing import Sequence

from .. import index as ix
from ..index import Dim, greater, lesser, text_of
from ..ir import BinaryOps, Ops, OptError, Target, UOp, config, toposort
from ..kernel import LOAD_OR_STORE, Axis, AxisKind, Kernel, gate_or_true, rewrite, substitute
from ..opts import Cover, Fuse


def lower_tiles(kernel: Kernel) -> Kernel:
  """A plain kernel without TILE axes: a0:16 GRID and a1:64 TILE, seen as a0*64 + a1, become a0:1024 GRID."""
  if not (tiles := {a.id for a in kernel.tiles}): return kernel
  kinds = {i: AxisKind.LOOP if i in kernel.bound else AxisKind.GRID for i in tiles}
  kernel = kernel.with_(axes=tuple(Axis(a.id, a.size, kinds.get(a.id, a.kind)) for a in kernel.axes))
  def joined() -> Kernel | None:
    pairs = [(a, b) for a, b in itertools.permutations(kernel.axes, 2) if b.id in tiles and a.kind is b.kind and a.size != 1]
    return next((merged for a, b in pairs if (merged := _join(kernel, a, b)) is not None), None)
  while (merged := joined()) is not None: kernel = merged
  for a in kernel.axes: kernel = trim(kernel, a)
  return with_numbered_axes(kernel.with_(axes=tuple(a for a in kernel.axes if a.size != 1), applied=()))


def tiles_for(kernel: Kernel, target: Target | None) -> Kernel:
  """A kernel with such tiles as a target has: blocks, or none; with NOOPT as they were written: a1:64 TILE -> a1:64 LOOP."""
  if target and target.blocks: return cover_tiles(kernel, target.row)
  if not kernel.plain: return kernel
  if not config.noopt: return lower_tiles(kernel)
  axes = tuple(replace(a, kind=AxisKind.LOOP) if a.kind is AxisKind.TILE else a for a in kernel.axes)
  return kernel.with_(axes=axes) if axes != kernel.axes else kernel


def dissolved(kernel: Kernel, target: Target) -> str:
  """Which tiles of a person's kernel are none on a target, and why; nothing where all are."""
  tiles = [a for a in kernel.tiles if a.size != 1]
  if not tiles or not kernel.plain or config.noopt: return ""
  now = tiles_for(kernel, target)
  if now.tiles: return ""
  why = f"a row of more than {target.row} elements is no block" if target.blocks else \
    f"{target.name} computes without blocks: a tile is one axis with the programs, which Opts cut; NOOPT=1 keeps tiles"
  return f"tiles {', '.join(f'a{a.id}:{text_of(a.size)}' for a in tiles)} are now part of {', '.join(map(str, now.axes))}: {why}"


def cover_tiles(kernel: Kernel, row: int) -> Kernel:
  """For targets with blocks, whose sizes are numbers: a TILE axis along a run-time size becomes a masked block of the next power
  of two: a1:N TILE, N about 1000 -> a1:1024 TILE. Tiles longer than a ``row``, which registers do not hold, are lowered."""
  if long := [a for a in kernel.tiles if a.count > row and kernel.plain]:
    return lower_tiles(kernel).needing(ix.both(*[ix.ge(a.size, row + 1) for a in long if not isinstance(a.size, int)]))
  for a in kernel.tiles:
    if not isinstance(a.size, int): kernel = Cover.of(a).apply(kernel)
  return kernel.with_(applied=())


def with_numbered_axes(kernel: Kernel, numbers: Sequence[int] | None = None) -> Kernel:
  """With axes numbered in order (or by ``numbers``), so that what different tiles lead to is the same kernel."""
  ids = dict(zip([a.id for a in kernel.axes], range(len(kernel.axes)) if numbers is None else numbers))
  def over(old: UOp) -> tuple[object, tuple[int, ...]]: return old.arg[0], tuple(ids[i] for i in old.arg[1] if i in ids)
  def reduced(old: UOp, new: UOp) -> UOp: return new.with_arg(over(old)) if over(old)[1] else new.src[0]
  def stored(old: UOp, new: UOp) -> UOp:   # equal STOREs are one here, so that equal kernels are equal
    return UOp(Ops.STORE, new.dtype, new.src, over(old) if isinstance(old.arg, tuple) else old.arg)
  rules = {Ops.RANGE: lambda old, new: new.with_arg((ids[old.arg[0]], new.arg[1])), Ops.REDUCE: reduced,
           Ops.SCAN: lambda old, new: new.with_arg((old.arg[0], ids[old.arg[1]], *old.arg[2:])),
           Ops.SORTED: lambda old, new: new.with_arg(type(old.arg)(ids[old.arg[0]], *old.arg[1:])), Ops.STORE: stored}
  return kernel.with_(axes=tuple(Axis(ids[a.id], a.size, a.kind) for a in kernel.axes), body=rewrite(kernel.body, rules))


def _join(kernel: Kernel, a: Axis, b: Axis) -> Kernel | None:
  """The kernel with axes a and b as one, a * b.size + b; None where some index sees them apart."""
  try: merged = Fuse(a.id, b.id).apply(kernel)
  except OptError: return None
  apart = merged.axis(a.id).rng, ix.node(b.size)
  return None if any(u.arg in (BinaryOps.IDIV, BinaryOps.MOD) and u.src == apart for u in merged.nodes) else merged


def trim(kernel: Kernel, axis: Axis) -> Kernel:
  """An axis whose last part no STORE writes, and no sum counts, is as long as the rest."""
  limits = [upper(gate_or_true(s), axis) for s in kernel.body if axis.rng in s.ranges] if axis.id not in kernel.bound else \
    [_summed(r.src[0], axis) if r.arg[0] is BinaryOps.ADD else None for r in kernel.reduces if axis.id in r.arg[1]]
  ends = {axis.size if n is None else n for n in limits}
  if not ends or len(ends) > 1 and not all(isinstance(n, int) for n in ends): return kernel
  size = lesser(max(ends) if len(ends) > 1 else ends.pop(), axis.size)  # type: ignore[type-var]
  if size == axis.size or size == 0: return kernel
  short = Axis(axis.id, size, axis.kind)
  body = without_true_gates(substitute(kernel.body, {axis.rng: short.rng}))
  return kernel.with_(axes=tuple(short if a is axis else a for a in kernel.axes), body=body)


def without_true_gates(body: tuple[UOp, ...]) -> tuple[UOp, ...]:
  """LOADs and STOREs whose gate has been proven have none."""
  def ungated(old: UOp, new: UOp) -> UOp:
    return new.replace(new.src[:2 if new.op is Ops.LOAD else 3]) if gate_or_true(new) is ix.TRUE else new
  return rewrite(body, dict.fromkeys(LOAD_OR_STORE, ungated))


def upper(gate: UOp, axis: Axis) -> Dim | None:
  """The n of a condition ``axis < n`` among those of a gate."""
  return next((ix.number(c.src[1]) for c in ix.conjuncts(gate)
               if c.arg is BinaryOps.CMPLT and c.src[0] is axis.rng and ix.of_sizes(c.src[1])), None)


def _summed(u: UOp, axis: Axis) -> Dim | None:
  """From where on a summand is 0, because it is a product with a load that is gated there."""
  found: dict[UOp, Dim | None] = {}
  for n in toposort((u,), stop=lambda n: n.op not in (Ops.ALU, Ops.CAST)):
    if n.op is Ops.CAST and n.src[0].dtype.kind == n.dtype.kind: found[n] = found[n.src[0]]
    elif n.op is Ops.LOAD: found[n] = upper(gate_or_true(n), axis)
    elif n.arg is BinaryOps.MUL:
      # both factors: past the end of one, the other must not be asked for an infinity
      ends = [found[s] for s in n.src if axis.rng in s.ranges]
      several = {e for e in ends if e is not None}
      found[n] = functools.reduce(greater, several) if several and None not in ends else None
    else: found[n] = None
  return found[u]
