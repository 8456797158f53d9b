"""Panels: copies in local memory of the part of a product's factor that every row reads, where it lies far apart in memory."""
from __future__ import annotations

import math
from typing import Iterator, Sequence

from ..ir import Ops, OptError, Target, prod
from ..kernel import Axis, AxisKind, Kernel, MemoryAccess, access_profile, volume
from ..opts import CacheRead, Reorder, Serial, with_opts
from ..passes.additions import limit_additions, room_along
from .candidates import first, tried

# bytes between neighbours in the loop from which on a panel pays for whole vectors (for gathers it always does), where its own
# neighbours lie nearer
_STEP = 512
_USES, _PART = 8, 4    # times that a panel is read at least; parts of a core's own cache, one of which it takes at most
# cycles (measured with PoCL on AVX-512)
MULTIPLY, FILL_CYCLES, GATHERED = 0.75, 12.0, 8.0  # of a product of two vectors; of a vector, of an element copied to a panel
FETCH, START_CYCLES = 4.0, 2000.0                  # of a line of the other factor; of a program
LINE_BYTES = 64                                   # bytes of a line
UNEVEN, MOST_PANELS = 0.3, 8                # of a program: so far the last core is behind the others; panels of one, side by side
NEAR = 256                                  # bytes between two iterations up to which the next line has been fetched
MOST_PACKED = 64 << 10                      # bytes of rows of the other factor that are copied for several panels
_SHARE = 0.75                               # of a core's own cache: a panel and the rows that go through it
PACK_PROGRAMS = 4                           # programs for each core, where each copies its own rows
LEAST_ROWS = 8                              # blocks of rows of a program at least: each program makes all panels again


def room(target: Target) -> int:
  """Bytes that the panels of a program may have, so that they stay in a core's own cache."""
  return min(target.core_cache // 2, target.local_memory)


def most_packed(target: Target) -> int:
  """Bytes of a panel and the rows that go through it, where these are copied too."""
  return min(int(_SHARE * target.core_cache), target.local_memory)


def jumps_far(x: MemoryAccess, bound: frozenset[int]) -> bool:
  """Whether a load jumps to another line with each step along any of the axes that are reduced, as what a table says does."""
  along = [b for b in bound if b in x.steps]
  return not x.write and bool(along) and all(b in x.looked_up or x.stride(b) >= NEAR for b in along)


def share(count: int, rest: int, want: int, cores: int) -> int:
  """How many of ``count`` values of an axis each program takes for about as many programs as wanted, ``rest`` times those along
  this axis, so that the last of the cores to end has as little to do as it can."""
  least = max(-(-want // rest), 1)
  def last(n: int) -> tuple[int, int]: return -(-rest * -(-count // n) // cores) * n, -n
  return min({-(-count // p) for p in range(least, min(2 * least, count) + 1)} or {1}, key=last)


def panels(kernel: Kernel) -> Iterator[MemoryAccess]:
  """The LOADs of a product with lanes along its columns that may have a panel."""
  lanes, here = kernel.lanes, [a.id for a in kernel.axes if a.kind is not AxisKind.GRID]
  if not lanes or lanes[0].id in kernel.bound or not kernel.reduced_loops or len(kernel.reduces) != 1: return
  for x in access_profile(kernel).accesses:   # variables are near already
    if x.write or x.slot < 0 or lanes[0].id not in x.axes or not x.axes & kernel.bound: continue
    if not x.overlaps_along(here): yield x


def local_bytes(kernel: Kernel) -> int:
  """The bytes that copies take once long sums are sums of sums: that rounds their axes up, unless they have room (``most``)."""
  if not any(a.most and isinstance(a.size, int) for a in kernel.axes): kernel = limit_additions(kernel)
  copies = [u for u in kernel.nodes if u.op is Ops.CACHE_READ]
  return sum(u.dtype.itemsize * prod([a.most or a.count for a in map(kernel.axis, u.arg)]) for u in copies)


def panel_bytes(kernel: Kernel, x: MemoryAccess, lane: Axis) -> float:
  """The bytes of a panel of what a LOAD reads; infinitely many where it cannot be copied."""
  try: return local_bytes(CacheRead(x.slot, lane.id).apply(kernel)) - local_bytes(kernel)
  except OptError: return math.inf


def copy_once(kernel: Kernel, target: Target, left: list[int]) -> Kernel:
  """The kernel of one statement with a panel, where no more bytes are needed than are ``left``, which get less: x[a0, a1] * y[a1,
  a2] -> x[a0, a1] * cache_read[a1, a2](y[a1, a2])."""
  for x in panels(kernel):
    lane, inner = kernel.lanes[0], kernel.reduced_loops[-1].id
    row = volume(a for a in kernel.axes if a.id in x.axes - kernel.bound and a.kind is not AxisKind.GRID) * x.itemsize
    if x.steps.get(lane.id) == 1 and x.stride(inner) < max(_STEP, 2 * row): continue
    again = volume(a for a in kernel.of_kind(AxisKind.GRID, AxisKind.LOOP) if a.id not in kernel.bound | x.axes)
    if x.gated or again < _USES or (size := panel_bytes(kernel, x, lane)) > min(left[0], target.core_cache // _PART): continue
    left[0] -= int(size)
    return CacheRead(x.slot, lane.id).apply(kernel)
  return kernel


def copy_for_rows(kernel: Kernel, target: Target, slot: int, exact: bool = False) -> Kernel | None:
  """A product whose programs are columns of panels of a param, gone through by a loop over rows. None where it can have none."""
  x = next((x for x in panels(kernel) if x.slot == slot), None)
  if x is None: return None
  lane = kernel.lanes[0]
  if (size := panel_bytes(kernel, x, lane)) > room(target): return None
  others = [y for y in access_profile(kernel).accesses if not y.write and y.slot != slot and lane.id not in y.axes]
  # the other factor, where each step goes to another line
  jumps = list({y.slot: y for y in others if jumps_far(y, kernel.bound)}.values())
  def packed(k: Kernel) -> Kernel | None:
    return pack_rows(k, target, x, int(size), jumps[0], lane) if len(jumps) == 1 and not exact else None
  def each(k: Kernel) -> Kernel | None:
    k = CacheRead(x.slot, lane.id).apply(with_opts(k, shared_out(k, target, x, int(size))))
    return tried(k, pack_each, target, jumps) if local_bytes(k) <= target.local_memory else None
  return first(kernel, [packed, each])


def pack_each(kernel: Kernel, target: Target, jumps: Sequence[MemoryAccess]) -> Kernel:
  """A product with a panel, where rows of factors that are read from far apart are copied too, if they fit and it pays."""
  for y in jumps:
    if volume(a for a in kernel.loops if a.id not in kernel.bound | y.axes) < 2: continue
    packed, before = CacheRead(y.slot, summed_along(kernel, y), each_round=True).apply(kernel), local_bytes(kernel)
    if before < local_bytes(packed) <= min(before + MOST_PACKED, target.local_memory): kernel = packed
  return kernel


def summed_along(kernel: Kernel, x: MemoryAccess) -> int:
  """The innermost of the axes that a sum goes through along which it reads a param."""
  return [a.id for a in kernel.axes if a.id in kernel.bound & x.axes][-1]


def shared_out(kernel: Kernel, target: Target, x: MemoryAccess, size: int) -> list[Serial]:
  """How a product whose columns go through panels of ``x``, of so many bytes, is cut into programs: the panels that each fills,
  and the blocks of rows, so that no core ends late: a0:43 GRID, a1:4 GRID -> a0:3 GRID, a3:15 LOOP, a1:4 GRID."""
  grid, lane, copies = kernel.grid, kernel.lanes[0], kernel.of_kind(AxisKind.UPCAST)
  columns, rows = [a for a in grid if a.id in x.axes], [a for a in grid if a.id not in x.axes]
  rounds = volume(a for a in kernel.axes if a.id in kernel.bound)
  vector = max(lane.count * x.itemsize / (4 * target.lanes), 1.0)
  block = MULTIPLY * vector * rounds * volume(copies)            # of one panel, and what else its rows take
  others = FETCH * rounds * volume(a for a in copies if a.id not in x.axes) * x.itemsize / LINE_BYTES
  each = FILL_CYCLES if x.steps.get(lane.id) == 1 else GATHERED * lane.count
  fill = rounds * volume(a for a in copies if a.id in x.axes) * each
  most = min(MOST_PANELS, room(target) // size)
  ways: list[tuple[float, list[Serial]]] = []
  for n in [n for n in range(1, most + 1) if columns[-1].count % n == 0] if columns else [1]:
    for opts, programs, blocks in loops_over(rows):
      rounds = -(-programs * (volume(columns) // n) // target.cores)
      each = n * (fill + blocks * block) + blocks * others + START_CYCLES
      ways.append((rounds * each * (1 + UNEVEN / rounds), [*[Serial(a.id, n) for a in columns[-1:] if n > 1], *opts]))
  return min(ways, key=lambda t: t[0])[1]


def loops_over(rows: Sequence[Axis]) -> Iterator[tuple[list[Serial], int, int]]:
  """The ways to make loops of GRID axes, inner ones first: the Opts, the programs that are left, and what each goes through."""
  inner, opts = 1, list[Serial]()
  for i, r in reversed([*enumerate(rows)]):
    count = r.count
    outer = volume(rows[:i])
    root = math.isqrt(count) + 1   # each number of programs once, and all small parts
    for n in sorted({-(-count // p) for p in range(1, root + 1)} | set(range(1, min(root, count) + 1))):
      yield [*opts, *([Serial(r.id, n)] if n > 1 else [])], outer * -(-count // n), inner * n
    inner, opts = inner * count, [*opts, *([Serial(r.id)] if count > 1 else [])]
  if not rows: yield [], 1, 1


def pack_rows(kernel: Kernel, target: Target, x: MemoryAccess, size: int, y: MemoryAccess, lane: Axis) -> Kernel | None:
  """A product whose programs are blocks of rows, copied once for all panels of ``x``. None where they do not fit."""
  grid = kernel.grid
  rows, columns = [a for a in grid if a.id in y.axes - x.axes], [a for a in grid if a.id in x.axes - y.axes]
  if len(rows) != 1 or len(columns) != 1: return None
  (r,), (c,) = rows, columns
  held = [a for a in kernel.axes if a.id in y.axes and (a.id in kernel.bound or a.kind is AxisKind.UPCAST)]
  most = (most_packed(target) - size) // (y.itemsize * prod(room_along(kernel, a) for a in held))
  rest = volume(a for a in grid if a not in (r, c))
  blocks = min(share(r.count, rest, PACK_PROGRAMS * target.cores, target.cores), most)
  if blocks < min(LEAST_ROWS, r.count): blocks = min(LEAST_ROWS, most)
  if blocks < min(LEAST_ROWS, r.count) or c.count < 2: return None
  panels = share(c.count, rest * -(-r.count // blocks), PACK_PROGRAMS * target.cores, target.cores)
  kernel = Serial(r.id, blocks).apply(Serial(c.id, panels).apply(kernel))
  read = {i for y in access_profile(kernel).accesses if y.slot == x.slot and not y.write for i in y.axes}
  loop = next((a for a in kernel.loops if a.id in read - kernel.bound), None)
  if loop is None: return None
  kernel = CacheRead(x.slot, lane.id, each_round=True).apply(Reorder(loop.id, True).apply(kernel))
  kernel = CacheRead(y.slot, summed_along(kernel, y)).apply(kernel)
  return kernel if local_bytes(kernel) <= target.local_memory else None
