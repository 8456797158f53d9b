"""Opts on the programs of a kernel: which there are, in which order they run, whether they are persistent, what their compiler is
told."""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Iterator

from .. import index as ix
from ..ir import OptError, Target, prod
from ..kernel import Axis, AxisKind, Kernel
from .axes import Fuse, in_place_of, split_axis
from .base import OnAxis, Opt, Opts, SizedOpt
from .memory import TensorDescriptor

__all__ = ["Parallel", "Persistent", "Stages", "Swizzle", "Told", "Warps", "even"]


def even(programs: int, cores: int) -> int:
  """The least number of cores that go through so many programs in as many rounds as all of them."""
  return -(-programs // -(-programs // max(cores, 1)))


class Parallel(OnAxis):
  """``a0:12 LOOP`` → ``a0:12 GRID``: a program for each value."""

  def on(self, kernel: Kernel, axis: Axis) -> Kernel:
    if axis.id in kernel.bound: raise OptError(f"{self}: a reduced axis cannot be spread over programs")
    self.plain(kernel, axis, axis.kind is AxisKind.GRID)
    self.steady(axis)
    return kernel.with_(axes=in_place_of(kernel, axis, replace(axis, kind=AxisKind.GRID)))


class Swizzle(SizedOpt):
  """``a0:64 GRID, a1:32 GRID`` by 8 → ``a0:8 GRID, a1:32 GRID, a2:8 GRID``: eight programs along a0 run before the next step
  along the others, so that what they share stays in a cache."""
  blocks = late = True
  tried = 4, 8, 16

  def on(self, kernel: Kernel, axis: Axis) -> Kernel:
    n = self.n or axis.size
    if axis.kind is not AxisKind.GRID: raise OptError(f"{self}: {axis} is not an axis of programs")
    if not isinstance(n, int) or n < 2 or not ix.divides(n, axis.size):
      raise OptError(f"{self}: {n} does not divide the axis {axis}")
    if n != axis.size:
      kernel = split_axis(kernel, axis, n, AxisKind.GRID)
      axis = max(kernel.axes, key=lambda a: a.id)
    return kernel.with_(axes=(*in_place_of(kernel, axis), axis))


@dataclass(frozen=True)
class Persistent(Opt):
  """``a0:64 GRID, a1:32 GRID`` with 132 programs → ``a0:2048 LOOP/132``: so many programs run, each doing every 132nd part of
  the work."""
  programs: int
  blocks = True

  def change(self, kernel: Kernel) -> Kernel:
    grid = kernel.of_kind(AxisKind.GRID)
    total = prod(a.count for a in grid)
    if not kernel.plain: raise OptError(f"{self}: the kernel's statements are in an order, each program goes through them once")
    if self.programs >= total and all(isinstance(a.size, int) for a in grid):
      raise OptError(f"{self}: the kernel has {total} programs; at least one and fewer than that can be persistent")
    if kernel.of_kind(AxisKind.LOCAL): raise OptError(f"{self}: programs with work-items cannot be persistent")
    for a in grid[1:]: kernel = Fuse(grid[0].id, a.id).change(kernel)
    whole = kernel.axis(grid[0].id)
    return kernel.with_(axes=(Axis(whole.id, whole.size, AxisKind.LOOP, self.programs), *in_place_of(kernel, whole)))

  @classmethod
  def more(cls, kernel: Kernel, target: Target) -> Iterator[Opts]:
    """Persistent programs, and descriptors, which pay with them: neither, or both, or descriptors alone."""
    opts: Opts = kernel.applied
    others = tuple(o for o in opts if not isinstance(o, (Persistent, TensorDescriptor)))
    if others != opts: return (yield others)
    boxes = TensorDescriptor.all(kernel) if target.descriptors else ()
    programs = prod(a.count for a in kernel.of_kind(AxisKind.GRID))
    for n in (even(programs, target.cores), target.cores, 2 * target.cores): yield *opts, Persistent(n), *boxes
    if boxes: yield *opts, *boxes


@dataclass(frozen=True)
class Told(Opt, abstract=True):
  """``num_name = n`` for the target's compiler, where it asks; of several the last counts. The kernel stays as it is."""
  n: int
  tried: ClassVar[tuple[int, ...]]
  blocks = True

  def change(self, kernel: Kernel) -> Kernel: return kernel

  @classmethod
  def more(cls, kernel: Kernel, target: Target) -> Iterator[Opts]:
    """Another number in the place of those that were told."""
    for n in cls.tried: yield *[o for o in kernel.applied if type(o) is not cls], cls(n)


class Warps(Told):
  """A program is made by ``n`` warps, a power of two."""
  tried = 1, 2, 4, 8, 16

  def __post_init__(self) -> None:
    super().__post_init__()
    if self.n & (self.n - 1): raise OptError(f"{self}: a program has 1, 2, 4, 8, .. warps")


class Stages(Told):
  """Loops are made pipelines of ``n`` stages: what later iterations read is on its way while this one computes."""
  tried = 2, 3, 4, 5

  @classmethod
  def more(cls, kernel: Kernel, target: Target) -> Iterator[Opts]:
    return super().more(kernel, target) if kernel.of_kind(AxisKind.LOOP) else iter(())
