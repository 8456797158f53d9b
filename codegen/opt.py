"""Opts: steps on a kernel's axes. Each splits an axis and says how the inner part is gone through: a tiling of every arrangement."""
from __future__ import annotations

from dataclasses import dataclass, replace

from . import index as ix
from .dtype import dtypes
from .errors import OptError
from .functions import identity
from .kernel import Axis, AxisKind, Kernel, reads_its_place
from .rewrite import substitute
from .uop import BinaryOps, Ops, TernaryOps, UOp, prod, toposort

KINDS = {"upcast": AxisKind.UPCAST, "unroll": AxisKind.UNROLL, "lane": AxisKind.LANE, "local": AxisKind.LOCAL, "tile": AxisKind.LOOP,
         "block": AxisKind.TILE}

OTHERS = ("overlap", "group", "loop", "grid", "merge", "pad", "first", "last", "stage", "pack", "stream", "descriptor", "persist", "warps", "stages")


@dataclass(frozen=True)
class Opt:
  """A step on axis id ``axis`` by ``amount``.

  split, upcast, unroll, lane, overlap, local, tile, block, group, loop, grid, merge (with axis ``amount``), pad, first, last.
  ``block`` pads where it must; ``group`` makes neighbours along a GRID axis run together. ``stage`` and ``pack`` take an axis and a
  param's slot; ``stream`` and ``descriptor`` a param's slot in place of the axis, ``persist`` a number of programs,
  ``warps`` and ``stages`` how many of them the target's compiler makes.

  What a STORE leaves is the same however often and in whichever order its elements are stored. That is not so of effects that read their
  place (``kernel.reads_its_place``: a STORE that adds, a scatter, an ATOMIC) nor of a kernel that reads what it writes:

  - ``overlap`` computes elements twice: none of these kernels takes it, and the verifier refuses one that has it.
  - ``stream`` and ``descriptor`` change how a STORE writes: of these effects they are refused.
  - An axis that is gone through in order is split, padded (the added values are not stored) or moved, as long as the order stays. No other
    Opt takes it.
  - All others give every element to exactly one place of the new axes, and any effect takes them.
  """
  name: str
  axis: int
  amount: int = 0

  def __str__(self) -> str:
    if self.name in ("stream", "descriptor"): return f"data{self.axis}.{self.name}()"
    return f"{self.name}({self.axis})" if self.name in ("persist", "warps", "stages") else f"a{self.axis}.{self.name}({self.amount or ''})"


def apply_opt(kernel: Kernel, opt: Opt) -> Kernel:
  """The kernel after one Opt. Raises OptError, saying why, where it cannot be applied."""
  if opt.name == "stream":
    stored = [s for s in kernel.effects if s.src[0].arg[0] == opt.axis]
    if not kernel.plain or not stored: raise OptError(f"{opt}: the kernel has no STORE to data{opt.axis} that needs no order")
    if any(map(reads_its_place, stored)): raise OptError(f"{opt}: what is written to data{opt.axis} depends on what was there, which is read")
    body = tuple(UOp(Ops.STORE, s.dtype, s.src, "nt") if s.src[0].arg[0] == opt.axis else s for s in kernel.body)
    return kernel.with_(body=body, applied=(*kernel.applied, opt))
  if opt.name == "descriptor": return _descriptor(kernel, opt)
  if opt.name in ("warps", "stages"): return kernel.with_(applied=(*kernel.applied, opt))   # what the compiler is told, where it asks
  if opt.name == "persist": return _persist(kernel, opt).with_(applied=(*kernel.applied, opt))
  if any(a.programs for a in kernel.axes): raise OptError(f"{opt}: programs that stay ({', '.join(map(str, kernel.axes))}) are the last step")
  axis = next((a for a in kernel.axes if a.id == opt.axis), None)
  if axis is None: raise OptError(f"{opt}: the kernel has axes {', '.join(map(str, kernel.axes))}")
  out = _apply(kernel, axis, opt)
  return out.with_(applied=(*kernel.applied, opt))


def _apply(kernel: Kernel, axis: Axis, opt: Opt) -> Kernel:
  if opt.name == "pad": return _pad(kernel, axis, opt)
  if opt.name == "merge": return _merge(kernel, axis, opt)
  if opt.name in ("stage", "pack"): return _stage(kernel, opt)
  if opt.name == "overlap": return _overlap(kernel, axis, opt)
  if opt.name == "group": return _group(kernel, axis, opt)
  if opt.name == "block" and opt.amount > 0 and axis.size % opt.amount:
    kernel = _pad(kernel, axis, opt)
    axis = kernel.axis(axis.id)
  if opt.name in ("loop", "grid"):
    kind = AxisKind.LOOP if opt.name == "loop" else AxisKind.GRID
    if kind is AxisKind.GRID and axis.id in kernel.bound: raise OptError(f"{opt}: a reduced axis cannot be spread over programs")
    return kernel.with_(axes=tuple(replace(a, kind=kind) if a is axis else a for a in kernel.axes))
  if opt.name in ("first", "last"):
    rest = tuple(a for a in kernel.axes if a is not axis)
    moved = (axis, *rest) if opt.name == "first" else (*rest, axis)
    if _in_order(kernel, moved) != _in_order(kernel, kernel.axes): raise OptError(f"{opt}: axes that are gone through in order would change it")
    return kernel.with_(axes=moved)
  kind = axis.kind if opt.name == "split" else KINDS.get(opt.name)  # type: ignore[assignment]
  if kind is None: raise OptError(f"no Opt {opt.name!r}; Opts: split, {', '.join(KINDS)}, {', '.join(OTHERS)}")
  if axis.kind not in (AxisKind.LOOP, AxisKind.GRID): raise OptError(f"{opt}: axis {axis} is expanded already")
  if opt.amount < 1 or axis.size % opt.amount: raise OptError(f"{opt}: {opt.amount} does not divide the axis {axis}; pad it first")
  if opt.name == "unroll" and axis.id not in kernel.bound: raise OptError(f"{opt}: only a reduced axis is unrolled; upcast an output axis")
  if opt.name == "upcast" and axis.id in kernel.bound: raise OptError(f"{opt}: a reduced axis is unrolled, not upcast")
  if opt.name != "split" and axis.id in kernel.sequential: raise OptError(f"{opt}: the axis {axis} is gone through in order")
  if opt.name == "local" and axis.id in kernel.bound: raise OptError(f"{opt}: a reduced axis has no work-items")
  if opt.name == "lane" and kernel.of_kind(AxisKind.LANE): raise OptError(f"{opt}: the kernel has a LANE axis already")
  if opt.amount == axis.size: return kernel.with_(axes=tuple(Axis(a.id, a.size, kind) if a is axis else a for a in kernel.axes))
  if opt.amount == 1: return kernel
  return split(kernel, axis, opt.amount, kind)


def _in_order(kernel: Kernel, axes: tuple[Axis, ...]) -> list[int]: return [a.id for a in axes if a.id in kernel.sequential]


def split(kernel: Kernel, axis: Axis, amount: int, kind: AxisKind) -> Kernel:
  """a -> (a_outer, a_inner): a = a_outer * amount + a_inner. The inner axis gets the next free id and stands after the outer."""
  new = max(a.id for a in kernel.axes) + 1
  outer_id = new + 1
  outer, inner = Axis(outer_id, axis.size // amount, axis.kind), Axis(new, amount, kind)
  # the outer part keeps the id, so that the next Opt can name it
  outer = Axis(axis.id, outer.size, axis.kind)
  body = substitute_axis(kernel, axis, ix.add(ix.mul(outer.rng, amount), inner.rng), (outer, inner))
  axes = tuple(x for a in kernel.axes for x in ((outer, inner) if a is axis else (a,)))
  return kernel.with_(axes=axes, body=body)


def _overlap(kernel: Kernel, axis: Axis, opt: Opt) -> Kernel:
  """Lanes along an axis that they do not divide: the last vector starts earlier and computes some elements again.

  a -> min(a_outer * amount, size - amount) + a_inner. A reduction leaves out what it has had (in a product, one factor is zero
  there). Not where a buffer is read and written, or added to: there again is not the same.
  """
  if kernel.of_kind(AxisKind.LANE): raise OptError(f"{opt}: the kernel has a LANE axis already")
  if axis.kind not in (AxisKind.LOOP, AxisKind.GRID): raise OptError(f"{opt}: axis {axis} is expanded already")
  if axis.size < opt.amount: raise OptError(f"{opt}: the axis {axis} is shorter than {opt.amount}")
  if kernel.in_place: raise OptError(f"{opt}: the kernel writes what it reads, no element may be computed twice")
  turns = -(-axis.size // opt.amount)
  inner = Axis(max(a.id for a in kernel.axes) + 1, opt.amount, AxisKind.LANE, again=turns * opt.amount - axis.size)
  outer = Axis(axis.id, turns, axis.kind)
  start = ix.least(ix.mul(outer.rng, opt.amount), axis.size - opt.amount)
  fresh = ix.ge(ix.sub(ix.add(start, inner.rng), ix.mul(outer.rng, opt.amount)), 0)
  if axis.id in kernel.bound: kernel = kernel.with_(body=mask_reduced(kernel, axis, UOp(Ops.DETACH, fresh.dtype, (axis.rng,))))
  body = substitute_axis(kernel, axis, ix.add(start, inner.rng), (outer, inner))
  body = substitute(body, {u: fresh for b in body for u in b.toposort() if u.op is Ops.DETACH})
  return kernel.with_(axes=tuple(x for a in kernel.axes for x in ((outer, inner) if a is axis else (a,))), body=body)


def mask_reduced(kernel: Kernel, axis: Axis, keep: UOp) -> tuple[UOp, ...]:
  """The body with reductions over ``axis`` taking the identity where ``keep`` is false."""
  new: dict[UOp, UOp] = {}
  for u in kernel.nodes:
    src = tuple(new[s] for s in u.src)
    if u.op is Ops.REDUCE and axis.id in u.arg[1]:
      value, zero = src[0], UOp.const(u.dtype, identity(u.arg[0], u.dtype))
      if u.arg[0] is BinaryOps.ADD and value.op is Ops.ALU and value.arg is BinaryOps.MUL:
        few, many = sorted(value.src, key=lambda s: len(s.ranges))
        src = (UOp.alu(BinaryOps.MUL, UOp.alu(TernaryOps.WHERE, keep, few, zero), many),)
      else: src = (UOp.alu(TernaryOps.WHERE, keep, value, zero),)
    new[u] = u.replace(src)
  return tuple(new[b] for b in kernel.body)


def substitute_axis(kernel: Kernel, axis: Axis, by: UOp, axes: tuple[Axis, ...]) -> tuple[UOp, ...]:
  """The body with an axis replaced by an expression of others, which reductions then bind in its place."""
  ids = tuple(a.id for a in axes if a.size > 1)
  table: dict[UOp, UOp] = {axis.rng: by}
  for u in kernel.nodes:
    if u in table: continue
    arg = u.arg
    if (u.op is Ops.REDUCE or (u.op is Ops.STORE and isinstance(arg, tuple))) and axis.id in arg[1]:
      arg = (arg[0], tuple(j for i in arg[1] for j in (ids if i == axis.id else (i,))))
    src = tuple(table[s] for s in u.src)
    if src == u.src and arg == u.arg: table[u] = u
    elif u.op is Ops.REDUCE and not arg[1]: table[u] = src[0]
    else:
      new = UOp(u.op, u.dtype, src, arg)
      table[u] = ix.fold(new) or new
  return tuple(table[b] for b in kernel.body)


def _merge(kernel: Kernel, axis: Axis, opt: Opt) -> Kernel:
  """(a, b) -> one axis of a.size * b.size, where b is the axis with id ``amount``: every index sees them as one."""
  other = next((a for a in kernel.axes if a.id == opt.amount), None)
  here = ", ".join(map(str, kernel.axes))
  if other is None or other is axis: raise OptError(f"{opt}: another axis of the kernel ({here}) is merged with {axis}")
  both = f"{opt}: {axis} and {other}"
  if axis.kind is not other.kind or axis.kind not in (AxisKind.GRID, AxisKind.LOOP): raise OptError(f"{both} are not gone through alike")
  if any((axis.id in r.arg[1]) != (other.id in r.arg[1]) for r in kernel.reduces): raise OptError(f"{both}: a reduction binds one of them only")
  if {axis.id, other.id} & kernel.sequential: raise OptError(f"{both}: one is gone through in order")
  merged = Axis(axis.id, axis.size * other.size, axis.kind)
  whole = merged.rng
  table = {axis.rng: ix.fdiv(whole, other.size), other.rng: ix.mod(whole, other.size)}
  new: dict[UOp, UOp] = {}
  for u in kernel.nodes:
    if u in table:
      new[u] = table[u]
      continue
    arg = u.arg
    if u.op is Ops.REDUCE: arg = (arg[0], tuple(i for i in arg[1] if i != other.id))
    m = UOp(u.op, u.dtype, tuple(new[s] for s in u.src), arg) if u.src else u
    new[u] = ix.fold(m) or m
  axes = tuple(merged if a is axis else a for a in kernel.axes if a is not other)
  return kernel.with_(axes=axes, body=tuple(new[b] for b in kernel.body))


def _group(kernel: Kernel, axis: Axis, opt: Opt) -> Kernel:
  """Groups of ``amount`` programs along a GRID axis run before the next step along the others: what they share stays in a cache."""
  if axis.kind is not AxisKind.GRID: raise OptError(f"{opt}: {axis} is not an axis of programs")
  if opt.amount < 2 or axis.size % opt.amount: raise OptError(f"{opt}: {opt.amount} does not divide the axis {axis}")
  inner = axis.id
  if opt.amount < axis.size:
    kernel = split(kernel, axis, opt.amount, AxisKind.GRID)
    inner = max(a.id for a in kernel.axes)
  rest = tuple(a for a in kernel.axes if a.id != inner)
  return kernel.with_(axes=(*rest, kernel.axis(inner)))


def _persist(kernel: Kernel, opt: Opt) -> Kernel:
  """Only ``opt.axis`` programs, which stay: what the others would have done is gone through by a loop, one program's share after the other."""
  grid = kernel.of_kind(AxisKind.GRID)
  total = prod(a.size for a in grid)
  if not kernel.plain: raise OptError(f"{opt}: the kernel's statements are in an order, each program goes through them once")
  if not 0 < opt.axis < total: raise OptError(f"{opt}: the kernel has {total} programs; fewer than that, and at least one, can stay")
  if kernel.of_kind(AxisKind.LOCAL): raise OptError(f"{opt}: programs with work-items do not stay")
  for a in grid[1:]: kernel = _merge(kernel, kernel.axis(grid[0].id), Opt("merge", grid[0].id, a.id))
  whole = kernel.axis(grid[0].id)
  stay = Axis(whole.id, whole.size, AxisKind.LOOP, opt.axis)
  return kernel.with_(axes=(stay, *(a for a in kernel.axes if a is not whole)))


def _stage(kernel: Kernel, opt: Opt) -> Kernel:
  """Copy what a program reads of param ``amount`` along ``axis`` to local memory first, laid out loops, copies, lanes. Comes after every split.

  ``pack`` copies what one turn of the output loops reads (a few rows), ``stage`` what all of them do (a panel).
  """
  if kernel.of_kind(AxisKind.LOCAL): raise OptError(f"{opt}: staging with work-items needs barriers, which are not made yet")
  here = {a.rng: a for a in kernel.axes if a.kind is not AxisKind.GRID and
          not (opt.name == "pack" and a.kind is AxisKind.LOOP and a.id not in kernel.bound)}
  order = {AxisKind.LOOP: 0, AxisKind.UPCAST: 1, AxisKind.UNROLL: 1, AxisKind.LANE: 2}
  gates = [c for u in kernel.nodes if u.op in (Ops.LOAD, Ops.STORE) for c in u.src[2 if u.op is Ops.LOAD else 3:]]
  indexed = set(toposort([*gates, *(u for u in kernel.nodes if u.dtype is dtypes.index)]))
  new: dict[UOp, UOp] = {}
  for u in kernel.nodes:
    m = u.replace(tuple(new[s] for s in u.src))
    if u.op is Ops.LOAD and u.src[0].arg[0] == opt.amount and opt.axis in {r.arg[0] for r in u.ranges}:
      axes = sorted((here[r] for r in u.ranges if r in here), key=lambda a: (order[a.kind], kernel.axes.index(a)))
      if not axes: raise OptError(f"{opt}: a program reads one element of data{opt.amount}, there is nothing to copy first")
      if u in indexed: raise OptError(f"{opt}: data{opt.amount} says where to read or write, and is read where that is done")
      m = UOp(Ops.STAGE, u.dtype, (m,), tuple(a.id for a in axes))
    new[u] = m
  return kernel.with_(body=tuple(new[b] for b in kernel.body))


def _descriptor(kernel: Kernel, opt: Opt) -> Kernel:
  """Mark every LOAD and STORE of a param: a target with tensor descriptors reads and writes it by one, where the access is a box."""
  new: dict[UOp, UOp] = {}
  found = False
  for u in kernel.nodes:
    src, arg = tuple(new[s] for s in u.src), u.arg
    if u.op in (Ops.LOAD, Ops.STORE) and u.src[0].op is Ops.DEFINE_GLOBAL and u.src[0].arg[0] == opt.axis and not isinstance(arg, tuple):
      arg, found = "tma", True
    new[u] = u if src == u.src and arg == u.arg else (UOp.fresh if u.lone else UOp)(u.op, u.dtype, src, arg)
  if not found: raise OptError(f"{opt}: the kernel neither reads nor writes data{opt.axis} one element a place")
  return kernel.with_(body=tuple(new[b] for b in kernel.body), applied=(*kernel.applied, opt))


def _pad(kernel: Kernel, axis: Axis, opt: Opt) -> Kernel:
  """Round an axis up to a multiple of ``amount``. The added values are invisible: reductions see the identity, stores skip them."""
  size = -(-axis.size // opt.amount) * opt.amount
  if size == axis.size: return kernel
  if axis.size == 1: raise OptError(f"{opt}: the axis {axis} has one element, which no index sees; there is nothing to pad")
  wide = Axis(axis.id, size, axis.kind)
  inside = ix.lt(wide.rng, axis.size)
  new: dict[UOp, UOp] = {}
  for u in kernel.nodes:
    src = tuple(new[s] for s in u.src)
    if u is axis.rng: new[u] = wide.rng
    elif u.op is Ops.LOAD and axis.rng in u.ranges:
      new[u] = UOp(Ops.LOAD, u.dtype, (src[0], src[1], ix.both(inside, *src[2:3])), u.arg)
    elif u.op is Ops.REDUCE and axis.id in u.arg[1]:
      value = UOp.alu(TernaryOps.WHERE, inside, src[0], UOp.const(u.dtype, identity(u.arg[0], u.dtype)))
      new[u] = UOp(Ops.REDUCE, u.dtype, (value,), u.arg)
    elif u.op is Ops.STORE and axis.rng in u.ranges:
      new[u] = UOp(Ops.STORE, u.dtype, (*src[:3], ix.both(inside, *src[3:4])), u.arg)
    else:
      m = u.replace(src)
      new[u] = (ix.fold(m) or m) if src != u.src else m
  return kernel.with_(axes=tuple(wide if a is axis else a for a in kernel.axes), body=tuple(new[b] for b in kernel.body))

