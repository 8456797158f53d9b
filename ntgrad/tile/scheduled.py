"""Running sums and sorts of an application as the scheduler has them: where they are used, without a variable.

    STORE(v[i], SCAN(x[i])), STORE(y[j], v[j] * 2)   ->   STORE(y[j], SCAN(x[j]) * 2)

The passes ``scans`` and ``sorts`` make loops of them, along sizes too that only a launch knows.
"""
from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any, Sequence

from ntgrad.codegen.index.assume import assumes, same
from ntgrad.codegen.index.rewrite import rewrite, substitute
from ntgrad.codegen.index.sizes import Dim
from ntgrad.codegen.ir.errors import ApplicationError
from ntgrad.codegen.ir.uop import Ops, UOp, toposort
from ntgrad.codegen.kernel import AxisKind, Kernel
from ntgrad.codegen.passes import tiles

from .block import seen


def finished(kernel: Kernel) -> Kernel:
  """A kernel as it has been read, in the form of the scheduler's where only that can be compiled: with a sort by bits, a running
  sum that begins anew, or one along a size that is no number. Where it cannot have that form, the size becomes a number; raises
  ApplicationError for the others."""
  by_parts = any(u.op is Ops.SORTED or u.op is Ops.SCAN and any(u.arg[3:]) for u in kernel.nodes)
  if not by_parts and all(isinstance(n, int) for v in kernel.variables for n in v.arg[1]): return kernel
  found = inlined(kernel)
  if is_scheduled(found): return without_tiles(found)
  if by_parts:
    raise ApplicationError("sort_bits, and a running sum that begins anew (every=), stand in an application that apart from that "
                           "computes element by element and stores: one of a kind, in no loop or condition, beside no sum")
  numbers = {v: v.replace((), arg=(v.arg[0], known(v.arg[1]), *v.arg[2:])) for v in kernel.variables}
  made = {Ops.DEFINE_LOCAL: lambda old, new: numbers.get(old, new)}
  return kernel.with_(body=rewrite(kernel.body, made))


def known(sizes: Sequence[Dim]) -> tuple[int, ...]:
  """Sizes that must be numbers: a run-time size is the one that it is now, which the kernel is for from there on."""
  return tuple([operator.index(seen(n)) for n in sizes])


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
    scan = {Ops.SCAN: lambda old, new: new.replace(new.src, arg=(old.arg[0], ids.get(old.arg[1], old.arg[1]), *old.arg[2:]))}
    return substitute(rewrite((value,), scan), to)[0]
  stores: list[UOp] = []
  for s in kernel.body:
    where, value = rewrite(s.src[1:3], {Ops.LOAD: used})
    if s.src[0].op is not Ops.DEFINE_LOCAL:
      stores.append(s.replace((s.src[0], where, value, *rewrite(s.src[3:], {Ops.LOAD: used}))))
    elif value.op in (Ops.SCAN, Ops.SORTED) and s.src[0] not in found: found[s.src[0]] = where, value
    else: return kernel
  changed = kernel.with_(body=tuple(stores))
  there = {u.arg[0] for u in changed.nodes if u.op is Ops.RANGE} | changed.bound
  axes = tuple(a for a in kernel.axes if a.kind is AxisKind.GRID or a.id in there)
  return kernel if changed.variables else changed.with_(axes=axes)


def as_long(a: UOp, b: UOp) -> bool:
  """Whether two axes have one size, as far as is known or may be assumed."""
  m, n = a.arg[1], b.arg[1]
  return m is n or m == n if isinstance(m, int) or isinstance(n, int) or not assumes() else same(m, n)


def is_scheduled(kernel: Kernel) -> bool:
  """Whether the passes ``scans`` and ``sorts`` take a kernel: it has sorts or scans of one kind, each store has all axes, and
  what is read of written memory is what is written over."""
  if kernel.variables or kernel.reduces or any(s.op is not Ops.STORE or s.arg is not None for s in kernel.body): return False
  if len(kernel.sorts) > 1 or kernel.sorts and kernel.scans or not kernel.sorts and not kernel.scans: return False
  if len({u.arg[1:] for u in kernel.scans}) > 1: return False
  if any(u.op is Ops.SCAN for s in kernel.scans for u in toposort(s.src)): return False
  every = {a.id for a in kernel.axes if a.size != 1} - {u.arg[0] for u in kernel.sorts}
  for s in kernel.body:
    if {r.arg[0] for r in s.src[1].ranges if r.arg[0] in every} != every: return False
  where = {s.src[0]: s.src[1] for s in kernel.body}
  if len(where) < len(kernel.body): return False
  read = [u for u in kernel.nodes if u.op is Ops.LOAD and u.src[0] in where]
  return not read if kernel.sorts else all(u.src[1] is where[u.src[0]] for u in read)


def without_tiles(kernel: Kernel) -> Kernel:
  """A kernel in which tiles and the grid around them are one axis; of one that sorts, each row is."""
  if not kernel.sorts: return numbered(tiles.lower_tiles(kernel))
  within = kernel.bound | {r.arg[0] for u in kernel.sorts for r in u.src[1].ranges}
  axes = tuple([replace(a, kind=AxisKind.LOOP if a.id in within else AxisKind.GRID) for a in kernel.axes if a.size != 1])
  return numbered(kernel.with_(axes=axes, applied=()))


def numbered(kernel: Kernel, numbers: Sequence[int] | None = None) -> Kernel:
  """With axes numbered in order, or by ``numbers``: what SORTEDs go through as well."""
  ids = dict(zip([a.id for a in kernel.axes], range(len(kernel.axes)) if numbers is None else numbers))
  rules: dict[Any, Any] = {Ops.SORTED: lambda old, new: new.replace(new.src, arg=type(old.arg)(ids[old.arg[0]], *old.arg[1:]))}
  return tiles.numbered(kernel.with_(body=rewrite(kernel.body, rules)) if kernel.sorts else kernel, numbers)
