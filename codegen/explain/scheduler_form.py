"""A kernel of the tile language in the form of the scheduler's kernels: no tiles, running sums and sorts where they are used.

    STORE(v[i], SCAN(x[i])), STORE(y[j], v[j] * 2)   ->   STORE(y[j], SCAN(x[j]) * 2)

The passes ``scans`` and ``sorts`` make loops of them, also along sizes that only a launch knows."""
from __future__ import annotations

from dataclasses import replace
from typing import Sequence

from ..index import assumes, same_size
from ..ir import Ops, UOp, toposort
from ..kernel import AxisKind, Kernel, rewrite, substitute
from ..passes.tiles import lower_tiles, with_numbered_axes


def with_aligns(kernel: Kernel, aligns: Sequence[int]) -> Kernel:
  """A kernel whose params are pieces of a memory with these ``aligns`` (see ``Param``); () for none."""
  if not any(aligns): return kernel
  params = tuple(replace(p, align=n) for p, n in zip(kernel.params, aligns))
  return kernel.with_(params=params, body=substitute(kernel.body, {p.uop: q.uop for p, q in zip(kernel.params, params)}))


def inlined(kernel: Kernel) -> Kernel:
  """A kernel that keeps running sums and sorted values in variables, and does nothing else in an order, with the SCANs and
  SORTEDs where they are used; else as it is."""
  if not kernel.variables or any(s.op is not Ops.STORE for s in kernel.body): return kernel
  found: dict[UOp, tuple[UOp, UOp]] = {}   # by variable: its axes, and what it is filled with
  def used(old: UOp, new: UOp) -> UOp:
    if new.src[0] not in found: return new
    own, value = found[new.src[0]]
    to = dict(zip(own.src, new.src[1].src))
    if any(r.op is not Ops.RANGE or t.op is not Ops.RANGE or not as_long(r, t) for r, t in to.items()): return new
    ids = {r.arg[0]: t.arg[0] for r, t in to.items()}
    scan = {Ops.SCAN: lambda old, new: new.with_arg((old.arg[0], ids.get(old.arg[1], old.arg[1]), *old.arg[2:]))}
    return substitute(rewrite((value,), scan), to)[0]
  stores: list[UOp] = []
  for s in kernel.body:
    place = s.src[0]
    where, value = rewrite(s.src[1:3], {Ops.LOAD: used})
    if place.op is not Ops.DEFINE_LOCAL:
      stores.append(s.replace((place, where, value, *rewrite(s.src[3:], {Ops.LOAD: used}))))
    elif value.op in (Ops.SCAN, Ops.SORTED) and place not in found: found[place] = where, value
    else: return kernel
  changed = kernel.with_(body=tuple(stores))
  if changed.variables: return kernel
  there = {u.arg[0] for u in changed.nodes if u.op is Ops.RANGE} | changed.bound
  return changed.with_(axes=tuple(a for a in kernel.axes if a.kind is AxisKind.GRID or a.id in there))


def as_long(a: UOp, b: UOp) -> bool:
  """Whether two axes have one size, as far as is known or may be assumed."""
  m, n = a.arg[1], b.arg[1]
  return m is n or m == n if isinstance(m, int) or isinstance(n, int) or not assumes() else same_size(m, n)


def is_scheduled(kernel: Kernel) -> bool:
  """Whether the passes ``scans`` and ``sorts`` take a kernel: it has sorts or scans of one kind, each store has all axes, and
  what is read of written memory is what is written over."""
  scans, sorts = kernel.scans, kernel.sorts
  if not kernel.stores_only or kernel.reduces or any(s.arg is not None for s in kernel.body): return False
  if len(sorts) > 1 or bool(sorts) == bool(scans) or len({u.arg[1:] for u in scans}) > 1: return False
  if any(u.op is Ops.SCAN for s in scans for u in toposort(s.src)): return False
  every = {a.id for a in kernel.axes if a.size != 1} - {u.arg[0] for u in sorts}
  for s in kernel.body:
    if {r.arg[0] for r in s.src[1].ranges if r.arg[0] in every} != every: return False
  where = {s.src[0]: s.src[1] for s in kernel.body}
  if len(where) < len(kernel.body): return False
  read = [u for u in kernel.nodes if u.op is Ops.LOAD and u.src[0] in where]
  return not read if sorts else all(u.src[1] is where[u.src[0]] for u in read)


def without_tiles(kernel: Kernel) -> Kernel:
  """A kernel in which tiles and the grid around them are one axis; of one that sorts, each row is."""
  if not kernel.sorts: return with_numbered_axes(lower_tiles(kernel))
  within = kernel.bound | {r.arg[0] for u in kernel.sorts for r in u.src[1].ranges}
  axes = tuple(replace(a, kind=AxisKind.LOOP if a.id in within else AxisKind.GRID) for a in kernel.axes if a.size != 1)
  return with_numbered_axes(kernel.with_(axes=axes, applied=()))
