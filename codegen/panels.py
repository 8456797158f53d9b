"""Panels: copies in local memory of what a product's rows read again and again, with a long way between one read and the next."""
from __future__ import annotations

from typing import Iterator, NamedTuple

from .costs import MemoryAccess, profile
from .kernel import AxisKind, Kernel
from .opts import CacheRead, Serial
from .target import Target
from .uop import prod


class Limits(NamedTuple):
  """When a panel pays."""
  step: int    # bytes between neighbours in the loop from which on one does for whole vectors (for gathers it always does),
  uses: int    # where it is read at least as often,
  part: int    # and takes at most one in so many parts of a core's own cache


KERNEL = Limits(step=1024, uses=32, part=2)
STATEMENT = Limits(step=512, uses=8, part=4)
PANEL_PROGRAMS = 8               # for each core at most: each makes panels of its own
MOST_PANELS = 8                  # side by side in one program
NEAR = 256                       # bytes between two iterations up to which the next line has been fetched
PACKED = 64 << 10                # bytes of the other factor at most


def room(target: Target) -> int:
  """Bytes that the panels of a program may have, so that they stay in a core's own cache."""
  return min(target.core_cache // KERNEL.part, target.local_memory)


def panels(kernel: Kernel, target: Target, limits: Limits) -> Iterator[tuple[MemoryAccess, int]]:
  """The LOADs of a product with lanes along its columns that a panel pays for, each with the bytes of its panel."""
  lanes = kernel.of_kind(AxisKind.LANE)
  loops = [a.id for a in kernel.of_kind(AxisKind.LOOP) if a.id in kernel.bound]
  if not lanes or lanes[0].id in kernel.bound or not loops or len(kernel.reduces) != 1: return
  lane, inner = lanes[0].id, loops[-1]
  for x in profile(kernel).accesses:
    if x.write or x.slot < 0 or lane not in x.axes or not x.axes & kernel.bound: continue   # variables are near already
    if x.steps.get(lane) == 1 and (x.steps.get(inner) or 0) * x.itemsize < limits.step: continue
    size = x.itemsize * prod(a.count for a in kernel.axes if a.id in x.axes and a.kind is not AxisKind.GRID)
    again = prod(a.count for a in kernel.of_kind(AxisKind.GRID, AxisKind.LOOP) if a.id not in kernel.bound | x.axes)
    if again >= limits.uses and size <= target.core_cache // limits.part and not x.overlaps: yield x, size


def copy_once(kernel: Kernel, target: Target, left: list[int]) -> Kernel:
  """The kernel of one statement with a panel: x[a0, a1] * y[a1, a2] -> x[a0, a1] * cache_read[a1, a2](y[a1, a2]).

  Not where more bytes would be needed than are ``left`` of the program's local memory; what the panel takes is subtracted.
  """
  for x, size in panels(kernel, target, STATEMENT):
    if x.gated or size > left[0]: continue
    left[0] -= size
    return CacheRead(x.slot, kernel.of_kind(AxisKind.LANE)[0].id).apply(kernel)
  return kernel


def copy_for_rows(kernel: Kernel, target: Target) -> Kernel | None:
  """A product whose programs are columns of panels: a loop over the rows reads each panel from the cache. None where no panel
  pays."""
  x, size = next((p for p in panels(kernel, target, KERNEL) if p[1] <= room(target)), (None, 0))
  if x is None: return None
  lane, inner = kernel.of_kind(AxisKind.LANE)[0], [a for a in kernel.of_kind(AxisKind.LOOP) if a.id in kernel.bound][-1]
  grid = kernel.of_kind(AxisKind.GRID)
  columns = [a for a in grid if a.id in x.axes]
  if columns:  # several panels a program, as long as they fit and enough programs are left
    c = columns[-1]
    most = min(MOST_PANELS, room(target) // size, prod(a.count for a in grid) // PANEL_PROGRAMS)
    several = max((p for p in range(1, most + 1) if c.count % p == 0), default=1)
    if several > 1: kernel = Serial(c.id, several).apply(kernel)
  programs = prod(a.count for a in kernel.of_kind(AxisKind.GRID) if a.id in x.axes)
  want = max(PANEL_PROGRAMS * target.cores // programs, 1)
  rows = [a for a in grid if a.id not in x.axes]
  for r in rows[::-1]:   # loops, with only as many programs along the first as the cores need
    split = next((p for p in range(want, r.count + 1) if r.count % p == 0), r.count) if r is rows[0] else 1
    if split < r.count: kernel = Serial(r.id, r.count // split if split > 1 else None).apply(kernel)
  kernel = CacheRead(x.slot, lane.id).apply(kernel)
  for y in profile(kernel).accesses:   # the other factor, where each step goes to another line: pack the rows of one iteration
    if y.write or y.slot == x.slot or lane.id in y.axes or not y.axes & kernel.bound: continue
    again = prod(a.count for a in kernel.of_kind(AxisKind.LOOP) if a.id not in kernel.bound | y.axes)
    rows = [a for a in kernel.axes if a.id in y.axes and (a.id in kernel.bound or a.kind is AxisKind.UPCAST)]
    size = y.itemsize * prod(a.count for a in rows)
    if again >= 2 and size <= PACKED and (y.steps.get(inner.id) or 0) * y.itemsize >= NEAR:
      kernel = CacheRead(y.slot, inner.id, each_round=True).apply(kernel)
  return kernel
