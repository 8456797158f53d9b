"""Opts on how a param's elements are read and written."""
from __future__ import annotations

from dataclasses import dataclass, replace

from .. import index as ix
from ..ir import Ops, OptError, UOp, dtypes, power_of_two, toposort
from ..kernel import ACCESSES, LOAD_OR_STORE, Axis, AxisKind, Kernel, gate_or_true, reads_its_place, rewrite
from .base import Opt

__all__ = ["CacheRead", "NonTemporal", "TensorDescriptor"]

UNBOUNDED = 1 << 20   # elements along an axis that no local memory has
# of a local copy, outermost first
LAYOUT = {AxisKind.LOCAL: 0, AxisKind.LOOP: 0, AxisKind.UPCAST: 1, AxisKind.UNROLL: 1, AxisKind.LANE: 2}


def most_along(axis: Axis) -> int:
  """How many elements a copy in local memory has room for along an axis of a run-time size: all that there may be, or if these
  are many more than there are about, a power of two."""
  most = ix.vmax(ix.node(axis.size))
  return most if axis.varies or most <= 2 * axis.count else power_of_two(axis.count)


@dataclass(frozen=True)
class CacheRead(Opt):
  """``data1[a0, a2]`` along a2 → ``cache_read[a2](data1[a0, a2])``: what a program reads of a param along an axis is copied to
  local memory first.

  The copy has all that the program reads (a panel), or with ``each_round`` what one iteration of the output loops reads (a few
  rows). Where a sum reads the param, reads outside of the sum stay as they are: they read once. The copy's dimensions are loops,
  copies, lanes, in this order; so this Opt comes after those that make these axes. The work-items of a group have one copy, which
  they make together."""
  param: int
  axis: int
  each_round: bool = False
  blocks, late, optional = False, True, True

  def change(self, kernel: Kernel) -> Kernel:
    along, nodes = self.axis_of(kernel, self.axis).rng, kernel.nodes
    what = f"data{self.param}"
    if any(u.op is Ops.SPECIAL and u.arg[0] == "l" for u in nodes):
      raise OptError(f"{self}: the kernel is one statement of several that work-items go through, each at its own pace")
    if kernel.tiles: raise OptError(f"{self}: the kernel has blocks, which are read at once")
    here = {a.rng: a for a in kernel.axes if a.kind is not AxisKind.GRID and
            not (self.each_round and a.kind is AxisKind.LOOP and a.id not in kernel.bound)}
    gates = [gate_or_true(u) for u in nodes if u.op in ACCESSES]
    indexed = set(toposort([*gates, *(u for u in nodes if u.dtype is dtypes.index)]))
    copied = {u.src[0] for u in nodes if u.op is Ops.CACHE_READ}
    summed = set(toposort(kernel.reduces))
    reads = {u for u in nodes if u.op is Ops.LOAD and u.src[0].arg[0] == self.param and along in u.ranges}
    wanted = reads & summed or reads
    def copy(old: UOp, new: UOp) -> UOp | None:
      if old not in wanted: return None
      axes = sorted((here[r] for r in old.ranges if r in here), key=lambda a: (LAYOUT[a.kind], kernel.axes.index(a)))
      if not axes: raise OptError(f"{self}: a program reads one element of {what}, there is nothing to copy first")
      if old in indexed: raise OptError(f"{self}: {what} says where to read or write, and is read where that is done")
      if old in copied: raise OptError(f"{self}: {what} is copied to local memory already")
      return UOp(Ops.CACHE_READ, new.dtype, (new,), tuple(a.id for a in axes))
    body = rewrite(kernel.body, {Ops.LOAD: copy})
    if body == kernel.body: raise OptError(f"{self}: no read of {what} goes along a{self.axis}")
    kernel = kernel.with_(body=body)
    along_loops = {i for u in kernel.nodes if u.op is Ops.CACHE_READ for i in u.arg}
    for a in kernel.axes:   # local memory has a size
      if a.id not in along_loops or isinstance(a.size, int) or a.most: continue
      most = most_along(a)
      if a.varies and most >= UNBOUNDED: raise OptError(f"{self}: the size of {a} varies")
      if most < ix.vmax(a.size): kernel = kernel.needing(ix.lt(a.size, most + 1))
      kernel = kernel.with_(axes=tuple(replace(x, most=most) if x is a else x for x in kernel.axes))
    return kernel


@dataclass(frozen=True)
class NonTemporal(Opt):
  """``store data0[a0] = v`` → the same past the cache, where the data that it would push out is worth more."""
  param: int
  blocks, late, optional = False, True, True

  def change(self, kernel: Kernel) -> Kernel:
    stored = [s for s in kernel.effects if s.src[0].arg[0] == self.param]
    if not kernel.plain or not stored: raise OptError(f"{self}: the kernel has no STORE to data{self.param} that needs no order")
    if any(map(reads_its_place, stored)):
      raise OptError(f"{self}: what is written to data{self.param} depends on what was there, which is read")
    return kernel.with_(body=tuple(s.with_arg("nt") if s in stored else s for s in kernel.body))


@dataclass(frozen=True)
class TensorDescriptor(Opt):
  """``load data1[a0, a1]`` → the same by descriptor: where a target has tensor descriptors it reads and writes a param so, if the
  access is a box."""
  param: int
  blocks = True

  @staticmethod
  def all(kernel: Kernel) -> tuple[Opt, ...]: return tuple(TensorDescriptor(p.slot) for p in kernel.params)

  def change(self, kernel: Kernel) -> Kernel:
    def is_plain(u: UOp) -> bool:
      return u.op in LOAD_OR_STORE and u.src[0].arg[0] == self.param and not isinstance(u.arg, tuple)
    if not any(map(is_plain, kernel.nodes)):
      raise OptError(f"{self}: the kernel neither reads nor writes data{self.param} one element a place")
    def marked(old: UOp, new: UOp) -> UOp | None: return new.with_arg("tma") if is_plain(old) else None
    return kernel.with_(body=rewrite(kernel.body, dict.fromkeys(LOAD_OR_STORE, marked)))
