"""Heuristics: which Opts make a kernel fast on a target, from a cost model of vector loads, arithmetic, registers and reuse.

For CPUs: one axis becomes vector lanes, others register copies, where that lets loads be shared; the rest is spread over programs
that are long enough to be worth starting. Nothing here changes what a kernel computes.
"""
from __future__ import annotations

import itertools
from typing import Any, Iterator

from .axes import merge_axes, split_axes
from .costs import MemoryAccess, Profile, profile
from .kernel import AxisKind, Kernel
from .opts import CacheRead, Local, NonTemporal, Opt, Pad, Serial, ShiftInwards, Unroll, Upcast, Vectorize
from .target import Target
from .tiling import tile
from .uop import Ops, prod

# ---- what is tried
COPIES = (1, 2, 3, 4, 5, 6, 8)   # of an axis, in registers,
MOST_COPIES = 16                 # and of several together; also copies of reduced axes
WIDEST = 16                      # lanes of a vector of OpenCL
UNROLLED = 8                     # a reduced axis that is written out whole,
PART = 4                         # else so many turns of the innermost
SEVERAL = (4, 3, 2)              # rows at a time of a plain row sum,
MANY_ROWS = 64                   # where there are as many
MOST_STATEMENTS = 144            # memory accesses written out in a kernel: more costs compile time and gains nothing
SMALL = 3                        # a kernel of less than one in so many parts of a program's cycles is one program
PROGRAMS = 32                    # for each core at most, so that none waits for the last,
PANEL_PROGRAMS = 8               # and with a panel, of which each program makes its own
SHORT, PADDED = 32, 64           # work-items of a group: fewer are not worth it where padding to so many gives more

# ---- what the model reckons with, in vector operations unless it says otherwise (measured with PoCL on AVX2 and AVX-512)
NEAR = 256                       # bytes between two turns up to which the next line has been fetched
FAR_LOAD = 4.0                   # of a load that goes to another page with each iteration, more than another
GATHER = 1.5                     # of each lane that is loaded by itself; and as much arithmetic
STAGED = 1.3                     # of a load from a panel in local memory
GATE = 2.0                       # of a lane's mask
STORE = 1.5                      # of a store
CHAIN = 4                        # cycles from an addition to the next one that needs it
ITERATION = 2                         # of an iteration of a loop
JOIN = 12                        # of an accumulator's lanes, after the loop
KEPT = 8                         # loaded vectors that are in registers at once, at most
SPILL = 0.3                      # of all arithmetic, for each register too few
CYCLES, HIDDEN = 0.5, 0.25       # of an operation; of one beside a slower load or beside slower arithmetic
# of all, for each statement written out and each axis between copies: neighbours in memory are better
STATEMENT, APART = 1/1024, 0.02

# ---- panels
MANY_USES = 256                  # of a gather's vectors, from which on a panel pays
MANY_REUSES = 32                 # the same, of what :func:`stage_panel` finds
LONG_STEP = 1024                 # bytes between two turns from which on a panel pays for whole vectors too
PANELS = 2                       # a panel is at most one in so many parts of a core's own cache
MOST_PANELS = 8                  # side by side in one program
PACKED = 64 << 10                # bytes of the other side at most


def optimize(kernel: Kernel, target: Target) -> Kernel:
  """The kernel after the Opts chosen for a target; one with statements is optimised a statement at a time when it is
  linearised."""
  if not kernel.plain: return kernel
  if target.blocks: return tile(kernel, target)
  kernel = merge_axes(split_axes(kernel))
  if target.locals: return work_items(kernel, target)
  if target.lanes == 1 or not kernel.axes: return kernel
  for opt in Search(kernel, target).best(): kernel = opt.apply(kernel)
  return stream(spread(kernel, target), target)


def work_items(kernel: Kernel, target: Target) -> Kernel:
  """For GPUs: neighbouring elements of the output by neighbouring work-items of a group."""
  stores = [x for x in profile(kernel).accesses if x.write]
  grid = [a for a in kernel.of_kind(AxisKind.GRID) if a.id not in kernel.bound]
  if not grid: return kernel
  axis = next((a for a in grid if any(x.steps.get(a.id) == 1 for x in stores)), grid[-1])
  amount = max(d for d in range(1, min(axis.size, target.work_items) + 1) if axis.size % d == 0)
  if amount < SHORT <= axis.size:
    amount = PADDED
    kernel = Pad(axis.id, amount).apply(kernel)
  return Local(axis.id, amount).apply(kernel) if amount > 1 else kernel


def stream(kernel: Kernel, target: Target) -> Kernel:
  """Stores of large outputs go past the cache: what they would push out is worth more."""
  for p in kernel.params:
    if p.written and not kernel.in_place and prod(p.shape) * p.dtype.itemsize >= target.stream:
      kernel = NonTemporal(p.slot).apply(kernel)
  return kernel


class Search:
  """Tries lane axes and register copies and keeps the cheapest by :meth:`cost`."""

  def __init__(self, kernel: Kernel, target: Target):
    self.kernel, self.target = kernel, target
    self.info: Profile = profile(kernel)
    self.sizes = {a.id: a.size for a in kernel.axes}
    self.bound = kernel.bound
    self.out = [a.id for a in kernel.axes if a.id not in self.bound]
    self.item = max((x.itemsize for x in self.info.accesses), default=4)
    self.in_place = kernel.in_place
    self._overlap: dict[tuple[int, int], bool] = {}

  def best(self) -> list[Opt]:
    """The cheapest choice as Opts."""
    best: tuple[float, list[Opt]] = (float("inf"), [])
    for lane, width in self.lanes():
      for unroll in self.unrolls(lane, width):
        for copies in self.copies(lane, width):
          c = self.cost(lane, width, copies, unroll)
          if lane is not None and self.sizes[lane] % width: c *= -(-self.sizes[lane] // width) * width / self.sizes[lane]
          if c < best[0]: best = (c, self.opts(lane, width, copies, unroll))
    return best[1]

  def lanes(self) -> Iterator[tuple[int | None, int]]:
    yield None, 1
    full = max(self.target.lanes * 4 // max(self.item, 4), 2)
    for a, n in self.sizes.items():
      if a in self.kernel.sequential: continue
      for w in (2 * full, full, full // 2):
        if 1 < w <= WIDEST and (n % w == 0 or (n > w and w == full and not self.in_place)): yield a, w

  def unrolls(self, lane: int | None, width: int) -> Iterator[dict[int, int]]:
    """Short reduced axes are written out, innermost first, while the copies stay few."""
    out: dict[int, int] = {}
    n = 1
    for a in reversed(self.kernel.axes):
      size = -(-a.size // width) if a.id == lane else a.size  # with lanes: what is left of the axis
      if a.id not in self.bound or a.id in self.kernel.sequential or (a.id == lane and a.size % width == 0): continue
      if size > UNROLLED or n * size > MOST_COPIES: break
      if size > 1: out[a.id] = size
      n *= size
    yield out
    if not out:
      inner = [a for a in self.kernel.axes if a.id in self.bound - self.kernel.sequential and a.id != lane]
      if inner and inner[-1].size % PART == 0 and lane is None: yield {inner[-1].id: PART}

  def copies(self, lane: int | None, width: int) -> Iterator[dict[int, int]]:
    """Register copies of up to two output axes that some load of a reduction does not depend on, inner axes (neighbours in
    memory) first."""
    loads = [x for x in self.info.accesses if not x.write and x.axes & self.bound]
    useful = [a for a in reversed(self.out) if any(a not in x.axes for x in loads)]
    yield {}
    if not loads: return
    if lane in self.out and lane not in useful and any(self._long_step(x, lane) for x in loads): useful.append(lane)
    if lane in self.bound and not useful and self.out and len(self.info.reduces) == 1:
      # a plain row sum: several rows at a time keep more of memory busy, if what is stored is small
      if not any(x.write and x.axes & self.bound for x in self.info.accesses):
        several = next((c for c in SEVERAL if self.sizes[self.out[-1]] % c == 0), 1)
        if several > 1 and self.sizes[self.out[-1]] >= MANY_ROWS: yield {self.out[-1]: several}
      return
    left = {a: -(-self.sizes[a] // width) if a == lane else self.sizes[a] for a in useful}
    options = {a: [c for c in COPIES if left[a] % c == 0 and c > 1] for a in useful}
    for a in useful:
      for c in options[a]: yield {a: c}
    for a, b in itertools.combinations(useful, 2):
      for c, d in itertools.product(options[a], options[b]):
        if c * d <= MOST_COPIES: yield {a: c, b: d}

  def stageable(self, x: MemoryAccess, lane: int, width: int, copies: dict[int, int]) -> bool:
    """Whether :func:`stage_panel` would copy this gather to local memory."""
    if x.write or lane in self.bound or len(self.info.reduces) != 1 or not x.axes & self.bound: return False
    key = (id(x), lane)
    if key not in self._overlap: self._overlap[key] = overlapping(self.kernel, x)
    rows = prod(n // copies.get(a, 1) for a, n in self.sizes.items() if a not in self.bound and a not in x.axes)
    size = x.itemsize * width * prod(self.sizes[a] if a in self.bound else copies.get(a, 1) for a in x.axes)
    return not self._overlap[key] and rows >= MANY_USES and size <= panel(self.target)

  def _long_step(self, x: MemoryAccess, lane: int | None) -> bool:
    """Whether a vector load jumps to another page or line with each step of the reduction: then neighbours should be read
    together."""
    return (
      lane is not None
      and x.steps.get(lane) == 1
      and not any((x.steps.get(b) or 0) * x.itemsize < NEAR for b in self.bound if b in x.steps)
    )

  def cost(self, lane: int | None, width: int, copies: dict[int, int], unroll: dict[int, int]) -> float:
    """Estimated cycles of the whole kernel on one core."""
    regs = width * max(self.item, 4) / (4 * self.target.lanes)           # registers a vector takes
    vec = max(regs, 1.0)
    def trips(axes: frozenset[int]) -> float:
      n = 1.0
      for a in self.out: n *= self.sizes[a] / (copies.get(a, 1) * (width if a == lane else 1))
      for a in axes:
        if a in self.bound: n *= self.sizes[a] / (width if a == lane else 1)
        else: n *= copies.get(a, 1)
      return n
    loads = alu = 0.0
    live = 0.0
    statements = 0
    for x in self.info.accesses:
      n = trips(x.axes)
      if lane is None or lane not in x.axes: price, extra = 1.0, 0.0
      elif x.steps.get(lane) == 1:
        price, extra = vec, 0.0
        if x.axes & self.bound and self._long_step(x, lane) and not self.stageable(x, lane, width, copies):
          price += FAR_LOAD / copies.get(lane, 1)
      elif x.steps.get(lane) == 0: price, extra = 1.0, 0.0
      elif self.stageable(x, lane, width, copies): price, extra = STAGED * vec, 0.0   # gathered once into local memory
      else: price = extra = GATHER * width
      scattered = lane in x.axes and x.steps.get(lane) not in (0, 1)
      if not (scattered and lane is not None and self.stageable(x, lane, width, copies)):
        statements += prod(copies.get(a, 1) * unroll.get(a, 1) for a in x.axes) * (width if scattered else 1)
      if x.gated: extra += GATE * (width if lane in x.axes else 1)
      if x.write: price *= STORE
      loads += price * n
      alu += extra * n
      if not x.write and lane in x.axes and x.axes & self.bound:
        live += vec * prod(c for a, c in copies.items() if a in x.axes)
    for axes, cycles in self.info.work.items(): alu += cycles * trips(axes) * (vec if lane in axes else 1.0)
    if statements > MOST_STATEMENTS: return float("inf")
    chain = 0.0
    for operand, bound in self.info.reduces:
      accumulators = prod(copies.values()) * (vec if lane in operand else 1)
      inner = 1.0
      for a in bound: inner *= self.sizes[a] / (width if a == lane else 1)
      outer = 1.0
      for a in self.out: outer *= self.sizes[a] / (copies.get(a, 1) * (width if a == lane else 1))
      chain += CHAIN * inner * outer
      loops = inner / prod(unroll.get(a, 1) for a in bound)
      alu += ITERATION * loops * outer
      if lane in bound: alu += JOIN * outer * prod(copies.values())
      alu *= 1.0 + SPILL * max(accumulators + min(live, KEPT) + 1 - self.target.registers, 0)
    # every statement written out costs compile time; copies of outer axes are far apart in memory
    far = sum(len(self.out) - 1 - self.out.index(a) for a in copies) / max(len(self.out), 1)
    return max(CYCLES * max(loads, alu) + HIDDEN * min(loads, alu), chain) * (1 + STATEMENT * statements + APART * far)

  def opts(self, lane: int | None, width: int, copies: dict[int, int], unroll: dict[int, int]) -> list[Opt]:
    lanes = [] if lane is None else [(ShiftInwards if self.sizes[lane] % width else Vectorize)(lane, width)]
    return [*lanes, *itertools.starmap(Upcast, copies.items()), *itertools.starmap(Unroll, unroll.items())]


def spread(kernel: Kernel, target: Target) -> Kernel:
  """Give each program enough to do: inner GRID axes become loops until a program is worth starting."""
  staged = stage_panel(kernel, target)
  if staged is not None: return staged
  grid = kernel.of_kind(AxisKind.GRID)
  programs = prod(a.size for a in grid)
  work = sum(_cycles(kernel, u) for u in kernel.nodes if u.op in (Ops.LOAD, Ops.STORE, Ops.ALU, Ops.REDUCE))
  most = max(int(work / target.start_cycles), 1)
  most = max(most, target.cores) if work > target.start_cycles / SMALL else 1
  want = min(max(most, 1), PROGRAMS * target.cores)
  for a in reversed(grid):
    if programs <= want: break
    rest = programs // a.size
    if rest >= want:
      kernel = Serial(a.id).apply(kernel)
      programs = rest
      continue
    parts = next((p for p in range(-(-want // rest), a.size + 1) if a.size % p == 0), a.size)
    if parts < a.size: kernel = Serial(a.id, a.size // parts).apply(kernel)
    break
  return kernel


def panel(target: Target) -> int:
  """Bytes that a panel in local memory may have, so that it stays in a core's own cache."""
  return min(target.core_cache // PANELS, target.local_memory)


def stage_panel(kernel: Kernel, target: Target) -> Kernel | None:
  """A matrix product's panel in local memory: what all rows of a program read again and again, with a long stride between reads.

  Programs are columns of panels; a loop over the rows reads each panel from the cache.
  """
  if not target.local_memory or len(kernel.reduces) != 1: return None
  lanes = kernel.of_kind(AxisKind.LANE)
  loops = [a for a in kernel.of_kind(AxisKind.LOOP) if a.id in kernel.bound]
  if not lanes or not loops or lanes[0].id in kernel.bound: return None
  lane, inner = lanes[0], loops[-1]
  for x in profile(kernel).accesses:
    step = x.steps.get(inner.id) or 0
    if x.write or lane.id not in x.axes or (x.steps.get(lane.id) == 1 and step * x.itemsize < LONG_STEP): continue
    if overlapping(kernel, x): continue
    rows = [a for a in kernel.of_kind(AxisKind.GRID) if a.id not in x.axes]
    columns = [a for a in kernel.of_kind(AxisKind.GRID) if a.id in x.axes]
    size = x.itemsize * prod(a.size for a in kernel.axes if a.id in x.axes and a.kind is not AxisKind.GRID)
    if prod(a.size for a in rows) < MANY_REUSES or size > panel(target): continue
    if columns:  # several sub-panels a program, as long as they fit and enough programs are left
      c = columns[-1]
      spare = prod(a.size for a in (*rows, *columns)) // PANEL_PROGRAMS
      parts = max(
        (p for p in range(1, MOST_PANELS + 1) if c.size % p == 0 and p * size <= panel(target) and spare // p >= 1), default=1
      )
      if parts > 1: kernel = Serial(c.id, parts).apply(kernel)
    programs = prod(a.size for a in kernel.of_kind(AxisKind.GRID) if a.id in {c.id for c in columns})
    for r in rows[::-1]:
      # rows are a loop; only as many programs along them as the cores need
      want = max(PANEL_PROGRAMS * target.cores // programs, 1)
      split = next((p for p in range(want, r.size + 1) if r.size % p == 0), r.size) if r is rows[0] else 1
      programs *= split
      if split == r.size: continue
      kernel = Serial(r.id, r.size // split if split > 1 else None).apply(kernel)
    slot = x.node.src[0].arg[0]
    kernel = CacheRead(slot, lane.id).apply(kernel)
    for y in profile(kernel).accesses:  # the other side, where each step goes to another line: pack the rows of one iteration
      again = prod(a.size for a in kernel.of_kind(AxisKind.LOOP) if a.id not in kernel.bound and a.id not in y.axes)
      size = y.itemsize * prod(
        a.size for a in kernel.axes if a.id in y.axes and (a.id in kernel.bound or a.kind is AxisKind.UPCAST)
      )
      other = y.node.src[0].arg[0]
      if y.write or other == slot or lane.id in y.axes or not y.axes & kernel.bound or again < 2 or size > PACKED: continue
      if (y.steps.get(inner.id) or 0) * y.itemsize >= NEAR: kernel = CacheRead(other, inner.id, each_round=True).apply(kernel)
    return kernel
  return None


def overlapping(kernel: Kernel, x: MemoryAccess) -> bool:
  """Whether different axis values reach the same element (a window): a staged copy would hold it many times."""
  steps = sorted((abs(s), kernel.axis(a).size) for a, s in x.steps.items() if s)
  reach = 1
  for s, n in steps:
    if s < reach: return True
    reach = s * n
  return any(s is None for s in x.steps.values())


def _cycles(kernel: Kernel, u: Any) -> float:
  n = 1.0
  for r in (u.src[0].ranges if u.op is Ops.REDUCE else u.ranges):
    n *= kernel.axis(r.arg[0]).size if kernel.axis(r.arg[0]).kind is not AxisKind.LANE else 1
  return n * CYCLES
