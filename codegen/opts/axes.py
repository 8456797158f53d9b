"""Opts that cut an axis and say how the parts are gone through, or that join, lengthen and move axes."""
from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations
from typing import ClassVar, Iterable, Mapping

from .. import index as ix
from ..ir import BinaryOps, Ops, OptError, Target, TernaryOps, UOp, identity, power_of_two, prod, toposort
from ..kernel import ACCESSES, Axis, AxisKind, Kernel, Rules, access_profile, fold_node, rewrite, substitute
from .base import OnAxis, Opt, SizedOpt

__all__ = ["Block", "Cover", "Fuse", "Local", "Pad", "Peel", "Reorder", "Serial", "ShiftInwards", "Split",
  "SplitInwards", "Unroll", "Upcast", "UpcastInwards", "Vectorize", "merge_axes", "split_axes"]
LEAST_COVER = 16   # elements of a block that covers all shorter sizes too


def new_id(kernel: Kernel) -> int: return max(a.id for a in kernel.axes) + 1   # an id that no axis has


def in_place_of(kernel: Kernel, axis: Axis, *axes: Axis) -> tuple[Axis, ...]:
  """The axes of a kernel with others where ``axis`` stood."""
  return tuple(x for a in kernel.axes for x in (axes if a.id == axis.id else (a,)))


def split_axis(kernel: Kernel, axis: Axis, n: ix.Dim, kind: AxisKind) -> Kernel:
  """a -> (a_outer, a_inner): a = a_outer * n + a_inner. The outer axis keeps the id, the inner gets the next free one and stands
  after it. Where ``n`` may not divide a run-time size, the last inner loop is shorter: a1:min(n, N - a0*n)."""
  outer = replace(axis, size=ix.rounds(axis.size, n), most=-(-axis.most // n) if isinstance(n, int) else 0)
  last = n if ix.divides(n, axis.size) else ix.number(ix.least(ix.sub(ix.node(axis.size), ix.mul(outer.rng, n)), n))
  inner = Axis(new_id(kernel), last, kind, most=n if axis.most and isinstance(n, int) else 0)
  return expressed(kernel, axis, ix.add(ix.mul(outer.rng, n), inner.rng), (outer, inner))


def expressed(kernel: Kernel, axis: Axis, by: UOp, axes: tuple[Axis, ...], keep: UOp | None = None) -> Kernel:
  """The kernel with an axis expressed ``by`` other ``axes``, which are bound, copied and gone through in its place.

  With ``keep``, a condition on these axes, reductions take the identity where it is false."""
  ids = [a.id for a in axes if a.size != 1]

  def those(before: tuple[int, ...]) -> tuple[int, ...]: return tuple(j for i in before for j in (ids if i == axis.id else (i,)))
  def reduced(old: UOp, new: UOp) -> UOp | None:
    fn, over = old.arg
    if axis.id not in over: return None
    if keep is not None: new = new.replace((masked(keep, new.src[0], old),))
    return new.with_arg((fn, those(over))) if those(over) else new.src[0]
  return rewritten(kernel, axis, by, axes, {
    Ops.REDUCE: reduced, Ops.CACHE_READ: lambda old, new: new.with_arg(those(old.arg)),
    Ops.STORE: lambda old, new: new.with_arg((old.arg[0], those(old.arg[1]))) if isinstance(old.arg, tuple) else None})


def rewritten(kernel: Kernel, axis: Axis, by: UOp, axes: tuple[Axis, ...], rules: Rules) -> Kernel:
  """The kernel with an axis expressed ``by`` others, where rules are followed."""
  body = rewrite(kernel.body, rules, {axis.rng: by})
  return kernel.with_(axes=seen_by(in_place_of(kernel, axis, *axes), {axis.rng: by}), body=body)


def seen_by(axes: tuple[Axis, ...], table: Mapping[UOp, UOp]) -> tuple[Axis, ...]:
  """Axes whose sizes vary with others, after these are replaced."""
  return tuple(replace(a, size=ix.number(substitute((a.size,), table)[0])) if isinstance(a.size, UOp) else a for a in axes)


def or_identity(keep: UOp, value: UOp, fn: BinaryOps) -> UOp:
  """``value``, or where ``keep`` is false what changes nothing when it is combined by ``fn``."""
  out = UOp.alu(TernaryOps.WHERE, keep, value, UOp.const(value.dtype, identity(fn, value.dtype)))
  return fold_node(out) or out


def masked(keep: UOp, value: UOp, reduce: UOp) -> UOp:
  """The new value of a REDUCE, left out where ``keep`` is false: of a summed product the factor with fewer ranges is 0 there."""
  fn, was = reduce.arg[0], reduce.src[0]
  if fn is not BinaryOps.ADD or was.arg is not BinaryOps.MUL: return or_identity(keep, value, fn)
  few, many = value.src if len(was.src[0].ranges) <= len(was.src[1].ranges) else value.src[::-1]
  return UOp.alu(BinaryOps.MUL, or_identity(keep, few, fn), many)


class SplitOpt(SizedOpt, abstract=True):
  """The inner ``n`` values of an axis get a kind of their own."""
  kind: ClassVar[AxisKind | None] = None   # None: as the axis
  shorter: ClassVar[bool] = False          # the last loop may be: n need not divide the axis
  reduced: ClassVar[bool | None] = None    # True: of reduced axes only, False: of others only; then ``rule`` says so
  rule: ClassVar[str] = ""

  def on(self, kernel: Kernel, axis: Axis) -> Kernel:
    size = axis.size
    n, kind = self.n or size, self.kind or axis.kind
    self.fits(kernel, axis)
    uneven = kind is AxisKind.LOOP and (self.shorter or isinstance(size, UOp))
    if not isinstance(n, int) and not uneven: raise OptError(f"{self}: the size of {axis} is no number")
    if isinstance(n, int) and not uneven and not ix.divides(n, size):
      raise OptError(f"{self}: {n} does not divide the axis {axis}; pad it first")
    if n == size or self.shorter and isinstance(n, int) and isinstance(size, int) and n > size:
      return kernel.with_(axes=in_place_of(kernel, axis, replace(axis, kind=kind)))
    return kernel if n == 1 else split_axis(kernel, axis, n, kind)

  def fits(self, kernel: Kernel, axis: Axis) -> None:
    self.plain(kernel, axis, self.kind in (None, AxisKind.LOOP))
    if self.kind is None: return
    if self.kind is not AxisKind.LOOP: self.alone(kernel, axis)
    if self.reduced not in (None, axis.id in kernel.bound): raise OptError(f"{self}: {self.rule}")
    self.unordered(kernel, axis)
    if self.kind is AxisKind.LANE and kernel.lanes: raise OptError(f"{self}: the kernel has a LANE axis already")


class Split(SplitOpt):
  """``a0:12 LOOP`` by 4 → ``a0:3 LOOP, a1:4 LOOP``; what was at a0 is at a0 * 4 + a1."""

  def resized(self) -> Iterable[Opt]: return ()


class Upcast(SplitOpt):
  """``a0:12 GRID`` by 4 → ``a0:3 GRID, a1:4 UPCAST``: four register copies of what a program makes of an output axis."""
  kind, tried = AxisKind.UPCAST, (2, 4, 8)
  blocks, optional = False, True
  reduced, rule = False, "a reduced axis is unrolled, not upcast"


class Unroll(SplitOpt):
  """``a0:12 LOOP`` by 4 → ``a0:3 LOOP, a1:4 UNROLL``: four copies in index order of what is reduced, the same bits."""
  kind, tried = AxisKind.UNROLL, (2, 4, 8)
  blocks, optional = False, True
  reduced, rule = True, "only a reduced axis is unrolled; upcast an output axis"


class Vectorize(SplitOpt):
  """``a0:16 GRID`` by 8 → ``a0:2 GRID, a1:8 LANE``: vector lanes. Those of a sum are added up after the loop, in another
  order."""
  kind, tried = AxisKind.LANE, (2, 4, 8)
  blocks, optional = False, True

  @classmethod
  def suits(cls, target: Target) -> bool: return target.lanes > 1 and not target.blocks


class ShiftInwards(SplitOpt):
  """``a0:10 GRID`` by 8 → ``a0:2 GRID, a1:8 LANE``: lanes along an axis that they do not divide. The last vector starts earlier,
  at min(a0 * 8, 2) + a1, and computes some elements again.

  A reduction leaves out what it has had (in a product, one factor is zero there). Not where a buffer is read and written, or
  added to: there again is not the same."""
  kind: ClassVar[AxisKind | None] = AxisKind.LANE
  blocks, optional = False, True

  def on(self, kernel: Kernel, axis: Axis) -> Kernel:
    size = axis.size
    n = self.n or size
    self.fits(kernel, axis)
    if not isinstance(n, int): raise OptError(f"{self}: the size of {axis} is no number")
    self.steady(axis)
    self.alone(kernel, axis)
    self.unordered(kernel, axis)
    if axis.count < n: raise OptError(f"{self}: the axis {axis} is shorter than {n}")
    if kernel.in_place: raise OptError(f"{self}: the kernel writes what it reads, no element may be computed twice")
    rounds = ix.rounds(size, n)
    again = rounds * n - size if isinstance(rounds, int) and isinstance(size, int) else n - 1
    outer, inner = Axis(axis.id, rounds, axis.kind), Axis(new_id(kernel), n, self.kind or axis.kind, again=again)
    at = ix.add(ix.least(ix.mul(outer.rng, n), ix.node(ix.minus(size, n))), inner.rng)
    kernel = kernel.needing(ix.ge(ix.node(size), n))
    return expressed(kernel, axis, at, (outer, inner), keep=ix.ge(ix.sub(at, ix.mul(outer.rng, n)), 0))


class UpcastInwards(ShiftInwards):
  """``a0:10 GRID`` by 4 → ``a0:3 GRID, a1:4 UPCAST``: register copies of an output axis that they do not divide, the last ones
  from earlier on, as ``ShiftInwards`` has lanes."""
  kind = AxisKind.UPCAST
  reduced, rule = False, "a reduced axis is unrolled, not upcast"


class SplitInwards(ShiftInwards):
  """``a0:100 GRID`` by 64 → ``a0:2 GRID, a1:64 GRID``: blocks of an axis that they do not divide, the last from earlier on, as
  ``ShiftInwards`` has lanes. Lanes and copies then divide the block, and stay neighbours."""
  kind = None


@dataclass(frozen=True)
class Peel(OnAxis):
  """``a0:N LOOP`` by 8 → ``a0:N//8*8 LOOP`` and, after it, ``a1:N%8 LOOP``: what is left over has a loop of its own, so that the
  first can be split by 8.

  A reduction is joined of both parts, a STORE along the axis is made twice. Not of an axis of programs."""
  n: int

  def on(self, kernel: Kernel, axis: Axis) -> Kernel:
    if axis.kind is not AxisKind.LOOP: raise OptError(f"{self}: {axis} is no loop")
    self.plain(kernel, axis)
    self.alone(kernel, axis)
    self.unordered(kernel, axis)
    whole = ix.times(ix.over(axis.size, self.n), self.n)
    if whole == axis.size: return kernel
    if whole == 0: raise OptError(f"{self}: the axis {axis} is shorter than {self.n}")
    whole_of = axis.id if axis.rest_of is None else axis.rest_of
    main = replace(axis, size=whole)
    tail = Axis(new_id(kernel), ix.minus(axis.size, whole), AxisKind.LOOP, rest_of=whole_of)
    if tail.size == 1 and kernel.sequential and any(axis.rng in s.ranges for s in kernel.body):
      raise OptError(f"{self}: one element would be left over, without a loop to say that it is none of the others; "
                     f"axes {sorted(kernel.sequential)} are gone through in order")
    behind = ix.add(tail.rng, ix.node(whole))
    joined: dict[UOp, UOp] = {}    # the REDUCEs over the axis, and what is made of them

    def tail_of(u: UOp) -> UOp:
      """What varies with the axis, for the values that are left over. ``u`` is of the whole axis: a comparison that always holds
      in the main part is gone there, and need not hold here."""
      return substitute((u,), {**joined, axis.rng: behind})[0]
    def reduced(old: UOp, new: UOp) -> UOp | None:
      fn, over = old.arg
      if axis.id not in over: return None
      rest = tuple(tail.id if i == axis.id else i for i in over if i != axis.id or tail.size != 1)
      value = tail_of(old.src[0])
      joined[old] = UOp.alu(fn, new, UOp(Ops.REDUCE, new.dtype, (value,), (fn, rest)) if rest else value)
      return joined[old]
    body: list[UOp] = []
    for old, new in zip(kernel.body, rewrite(kernel.body, {Ops.REDUCE: reduced}, {axis.rng: main.rng})):
      body.append(new)
      if axis.rng in old.ranges: body.append(tail_of(old))
    return kernel.with_(axes=seen_by(in_place_of(kernel, axis, main, tail), {axis.rng: main.rng}), body=tuple(body))


class Local(SplitOpt):
  """``a0:256 GRID`` by 64 → ``a0:4 GRID, a1:64 LOCAL``: work-items of a group."""
  kind, tried = AxisKind.LOCAL, (2, 4, 8)
  blocks = False
  reduced, rule = False, "a reduced axis has no work-items"

  @classmethod
  def suits(cls, target: Target) -> bool: return target.locals and not target.blocks


class Serial(SplitOpt):
  """``a0:12 GRID`` by 4 → ``a0:3 GRID, a1:4 LOOP``: a loop in the program; of the whole axis → ``a0:12 LOOP``. That of the last
  program may be shorter: ``a0:10 GRID`` by 4 → ``a0:3 GRID, a1:min(10 - 4*a0, 4) LOOP``."""
  kind, tried, along = AxisKind.LOOP, (4, 16), (AxisKind.GRID,)
  shorter = True
  blocks, late, optional = False, True, True


class Block(SplitOpt):
  """``a0:100 GRID`` by 64 → ``a0:2 GRID, a1:64 TILE``: part of a block, which the target makes at once. Pads where it must."""
  kind, tried, along = AxisKind.TILE, (2, 8, 64), (AxisKind.GRID,)
  blocks = late = True

  def on(self, kernel: Kernel, axis: Axis) -> Kernel:
    kernel = Pad(axis.id, self.n or 1).on(kernel, axis)
    return super().on(kernel, kernel.axis(axis.id))


@dataclass(frozen=True)
class Cover(OnAxis):
  """``a0:N LOOP`` by 1024 → ``a0:1024 TILE``, for N from 513 to 1024: a run-time size as one block, the next power of two.

  A TILE axis of such a size (a tile that spans a dimension) gets a number so."""
  n: int
  blocks = True

  def on(self, kernel: Kernel, axis: Axis) -> Kernel:
    if axis.kind is not AxisKind.TILE: self.plain(kernel, axis)
    if isinstance(axis.size, int): raise OptError(f"{self}: the size of {axis} is a number; block takes it")
    self.unordered(kernel, axis)
    self.steady(axis)
    self.alone(kernel, axis)
    size = axis.size
    whole = replace(axis, size=self.n, kind=AxisKind.TILE)
    kernel = kernel.needing(ix.both(ix.lt(size, self.n + 1), ix.ge(size, self.n // 2 + 1) if self.n > LEAST_COVER else ix.TRUE))
    return with_longer_axis(kernel, axis, whole, ix.lt(whole.rng, size))

  @classmethod
  def of(cls, axis: Axis) -> Cover:
    """The block for the size that an axis has about."""
    return cls(axis.id, max(power_of_two(axis.count), LEAST_COVER))


@dataclass(frozen=True)
class Fuse(OnAxis):
  """``a0:3 GRID, a1:4 GRID`` with a1 → ``a0:12 GRID``: every index sees a0 // 4 and a0 % 4."""
  other: int

  def on(self, kernel: Kernel, axis: Axis) -> Kernel:
    other = self.axis_of(kernel, self.other)
    both = f"{self}: {axis} and {other}"
    if other is axis: raise OptError(f"{self}: another axis of the kernel is fused with {axis}")
    if axis.kind is not other.kind: raise OptError(f"{both} are not gone through alike")
    for a in axis, other:
      self.plain(kernel, a, a.kind is AxisKind.GRID)
      self.steady(a)
      self.alone(kernel, a)
    if any((axis.id in r.arg[1]) != (other.id in r.arg[1]) for r in kernel.reduces):
      raise OptError(f"{both}: a reduction binds one of them only")
    if axis.kind is AxisKind.LOOP and any((axis.rng in s.ranges) != (other.rng in s.ranges) for s in kernel.effects):
      raise OptError(f"{both}: what is stored varies with one of them only, and would be stored several times")
    if {axis.id, other.id} & kernel.sequential: raise OptError(f"{both}: one is gone through in order")
    most = prod(a.most or a.count for a in (axis, other)) if axis.most or other.most else 0
    whole = Axis(axis.id, ix.times(axis.size, other.size), axis.kind, most=most)
    kernel = expressed(kernel, axis, ix.fdiv(whole.rng, other.size), (whole,))
    return expressed(kernel, other, ix.mod(whole.rng, other.size), ())


@dataclass(frozen=True)
class Pad(OnAxis):
  """``a0:10 GRID`` by 4 → ``a0:12 GRID``: up to a multiple of 4. The added values are not seen: reductions take the identity,
  LOADs and STOREs have a gate."""
  n: int

  def on(self, kernel: Kernel, axis: Axis) -> Kernel:
    wide = replace(axis, size=ix.times(ix.rounds(axis.size, self.n), self.n), most=-(-axis.most // self.n) * self.n)
    if wide.size == axis.size: return kernel
    if axis.size == 1: raise OptError(f"{self}: the axis {axis} has one element, which no index sees; there is nothing to pad")
    return with_longer_axis(kernel, axis, wide, ix.lt(wide.rng, axis.size))


def with_longer_axis(kernel: Kernel, axis: Axis, wide: Axis, inside: UOp) -> Kernel:
  """A kernel with a longer axis, of which nothing sees what is not ``inside`` the old one, as :class:`Pad` has it. A LOAD needs
  no gate where there is memory behind the axis (rows with a gap): what is read there is not stored."""
  numbers = toposort(s for u in kernel.nodes for s in u.src if ix.INT in (u.dtype, s.dtype))   # that say where
  shapes = {p.uop: p.shape for p in kernel.params if not p.written}
  free = kernel.plain and axis.id not in kernel.bound
  def access(old: UOp, new: UOp) -> UOp | None:
    if axis.rng not in old.ranges: return None
    if free and len(old.src) == 2 and old not in numbers and (shape := shapes.get(old.src[0])) is not None:
      if all(isinstance(n, int) and 0 <= ix.vmin(i) <= ix.vmax(i) < n for i, n in zip(new.src[1].src, shape)): return new
    at = 2 if old.op is Ops.LOAD else 3
    return new.replace((*new.src[:at], ix.both(inside, *new.src[at:])))
  return rewritten(kernel, axis, wide.rng, (wide,), {
    **dict.fromkeys(ACCESSES, access), Ops.REDUCE: lambda old, new:
    new.replace((or_identity(inside, new.src[0], old.arg[0]),)) if axis.id in old.arg[1] else None})


@dataclass(frozen=True)
class Reorder(OnAxis):
  """``a0, a1, a2`` with a1 first → ``a1, a0, a2``; with ``first=False`` → ``a0, a2, a1``. The last axis is gone through fastest.

  The axes that its size varies with go along, in front of it, or those whose sizes vary with it behind it:
  ``a0:4, a1:3, a2:min(11 - 4*a1, 4)`` with a2 first → ``a1, a2, a0``."""
  first: bool

  def on(self, kernel: Kernel, axis: Axis) -> Kernel:
    together = [a for a in kernel.axes if (a.rng in axis.rng.ranges if self.first else axis.rng in a.rng.ranges)]
    rest = [a for a in kernel.axes if a not in together]
    moved = (*together, *rest) if self.first else (*rest, *together)
    def ordered(axes: Iterable[Axis]) -> list[int]: return [a.id for a in axes if a.id in kernel.sequential]
    if ordered(moved) != ordered(kernel.axes): raise OptError(f"{self}: axes that are gone through in order would change it")
    return kernel.with_(axes=moved)


# ---- axes in their simplest form, before Opts split them

def split_axes(kernel: Kernel) -> Kernel:
  """An axis that indices only see through ``a // n`` and ``a % n`` becomes the two that they mean (a flattened gradient). Not one
  whose number stands for a run-time size (then it has a ``most``), which ``n`` need not divide."""
  axes = {a.rng: a for a in kernel.axes if isinstance(a.size, UOp) or not a.most}
  for u in kernel.nodes:
    if u.arg in (BinaryOps.IDIV, BinaryOps.MOD) and u.src[0] in axes and ix.of_sizes(u.src[1]):
      a, n = axes[u.src[0]], ix.number(u.src[1])
      if n in (1, a.size) or ix.mod(ix.node(a.size), n) is not ix.ZERO: continue
      return split_axes(Split(a.id, n).apply(kernel) if isinstance(n, int) else split_axis(kernel, a, n, a.kind))
  return kernel


def merge_axes(kernel: Kernel) -> Kernel:
  """Neighbouring axes that every access sees as one become one."""
  while len(kernel.axes) > 1:
    info = access_profile(kernel)
    # an axis whose number is itself a value, or is compared, stays what it is
    others = {r.arg[0] for u in kernel.nodes if u.op in (Ops.CAST, Ops.ALU) and u.dtype.name != "index"
              for s in u.src if s.dtype.name == "index" for r in s.ranges}
    for a, b in permutations(kernel.axes, 2):
      ids = {a.id, b.id}
      if a.kind is not b.kind or ids & (kernel.sequential | others): continue   # sequential: gone through in order
      if any(len(ids & bound) == 1 for bound in (kernel.bound, *(bound for _, bound in info.reduces))): continue   # one of them
      pairs = [(x.steps.get(a.id, 0), x.steps.get(b.id, 0)) for x in info.accesses]
      if all(sa is not None and sb is not None and sa == sb * b.count for sa, sb in pairs):
        kernel = Fuse(a.id, b.id).apply(kernel)
        break
    else: break
  return kernel
