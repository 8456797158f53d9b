"""Heuristics for targets with blocks: which axes of a scheduled kernel become TILE axes, how large, and how programs run.
Everything is an Opt, so a search may go on from here."""
from __future__ import annotations

import math
from dataclasses import replace
from typing import Iterator, Mapping, NamedTuple

from .. import index as ix
from ..ir import Ops, Target, UOp, power_of_two, prod, toposort
from ..kernel import Axis, AxisKind, Kernel, MemoryAccess, access_profile, volume
from ..opts import Block, Fuse, Persistent, Swizzle, TensorDescriptor, Unroll, Upcast, UpcastInwards, Warps, even
from ..opts.axes import merge_axes, split_axes
from .bound import work_of
from .candidates import first, tried
from .gpu_cost import NO_COPIES, STAGES, Streams, places
from .gpu_products import HALF, LARGE_BLOCK_ELEMENTS, PIPELINE, TURNED_WARPS, ProductWork, blocks_and_warps, is_turned
from .gpu_resources import LEAST_DOT
from .roles import PRODUCT_ROLES, VECTOR_BYTES, Roles, fastest_axis, flat, free, product_of, vector

# elements of reduced axes that may be written out: of each, and of all together. With all 49 of a depthwise 7×7 convolution
# Triton takes 12 s, and the kernel three to ten times as long (H100)
WINDOW, WINDOWS = 16, 32
_ROWS, STATEMENTS = (2, 4, 8, 16), 256   # steps that are tried of other axes, and statements of a kernel, at most, with these
# of the least time: what takes so long is as good. Those without loops, then those without copies, then the smallest are taken
_GAIN = 1.03
ALONG, NEAR_POWER, LARGEST = 4, 2, 15  # blocks that are tried: powers of 2, from 2**4 on along memory; of 4 along other axes
KEYS, LEAST_BLOCK = 3, 64              # axes of which every size is tried; elements of a block, where there is not much to do
STRIDE = 8                             # elements of which a LOAD takes one: what it leaves out is moved along with them
NEARLY = 2                             # of the least time: blocks that may be best with another number of warps
_WORTH = 0.85                          # of the time with the usual warps: another number of warps must take less


def choose_tiles(kernel: Kernel, target: Target) -> Kernel:
  """A plain kernel (its statements may run all at once) with TILE axes, if it has none yet, and its programs in a good order."""
  if not kernel.plain: return kernel
  if not kernel.tiles:
    kernel = tried(kernel, lambda k: flat(merge_axes(split_axes(k))))
    kernel = first(kernel, [lambda k: multiplied(k, target), lambda k: streamed(in_a_line(k), target)])
  return tried(tried(kernel, grouped, target), persistent, target)


def multiplied(kernel: Kernel, target: Target) -> Kernel | None:
  """A kernel that is a matrix product with a block of rows, of columns and of what is summed. None for any other."""
  if (found := _product(kernel, target)) is None: return None
  turned = (sides := product_of(kernel)) is not None and is_turned(kernel, sides.sides, target)
  kernel, dot = found
  product, (m, n, _) = product_of(kernel), dot
  others = volume(a for a in free(kernel) if a.id not in (m, n))
  sizes = kernel.axis(m).count, kernel.axis(n).count, volume(kernel.reduced_loops), others
  work = ProductWork.around(kernel, sizes, frozenset((m, n)), product.stored if product is not None else ())
  work = replace(work, turned=turned)
  blocks, warps = blocks_and_warps(work, target)
  for i, size in zip(dot, blocks): kernel = tile_axis(kernel, kernel.axis(i), size)
  warps = TURNED_WARPS if turned else warps
  return Warps(warps).apply(kernel) if warps else kernel


def grouped(kernel: Kernel, target: Target) -> Kernel:
  """Programs of a product in groups of ``target.group`` blocks of rows, which the last GRID axis goes through, unless a wave is
  all there is, or the cache holds most of the factors: a0:64 GRID, a1:32 GRID -> a0:8 GRID, a1:32 GRID, a2:8 GRID."""
  grid = kernel.grid
  if len(grid) < 2 or volume(grid) <= target.cores or not is_product(kernel): return kernel
  if ix.count(work_of(kernel).bytes) <= target.cache // 2: return kernel
  rows = grid[-2]
  high = max(d for d in range(1, target.group + 1) if rows.count % d == 0)
  return Swizzle(rows.id, high).apply(kernel) if high > 1 and grid[-1].count > 1 else kernel


def persistent(kernel: Kernel, target: Target) -> Kernel:
  """A large product of 16-bit floats or less by one program a core, which reads and writes through tensor descriptors where the
  chip has them. Where smaller blocks are best, several programs on a core do what one pipeline would. As few programs as take no
  more rounds: a last round that leaves cores idle gains nothing."""
  programs = volume(kernel.grid)
  if not target.descriptors or programs < target.waves * target.cores or not is_product(kernel): return kernel
  found = product_of(kernel)
  if found is None or any(u.dtype.itemsize > HALF for u in toposort(found.sides) if u.op is Ops.LOAD): return kernel
  # a short sum is over before the pipeline is full: several programs a core, each at another point, use the core better
  if volume(kernel.reduced_loops) < PIPELINE: return kernel
  accesses = access_profile(kernel).accesses
  tiles = {a.id: a.count for a in kernel.tiles}
  if not all(x.linear for x in accesses): return kernel   # no descriptor has it
  boxes = [x for x in accesses if len(x.axes & tiles.keys()) > 1]   # a bias is read by its addresses
  # rows that begin anywhere have no descriptor; a store by addresses takes the registers that the next block is multiplied in
  if any(vector(x, fastest_axis(x, kernel.counts)) < VECTOR_BYTES for x in boxes): return kernel
  def elements(x: MemoryAccess) -> int: return prod(tiles.get(i, 1) for i in x.axes)
  if max(elements(x) for x in accesses if x.write) <= LARGE_BLOCK_ELEMENTS: return kernel
  # what goes through shared memory on its way to or from a descriptor must leave room for the pipeline
  staged = max(elements(x) * x.itemsize for x in accesses if not x.axes & kernel.bound)
  pipeline = STAGES * sum(elements(x) * x.itemsize for x in accesses if x.axes & kernel.bound)
  if staged + pipeline > target.local_memory: return kernel
  kernel = Persistent(even(programs, target.cores)).apply(kernel)
  for slot in sorted({x.slot for x in boxes}): kernel = TensorDescriptor(slot).apply(kernel)
  return kernel


def tile_axis(kernel: Kernel, axis: Axis, size: int) -> Kernel:
  """An axis in blocks of at most ``size``, a power of two: a0:100 GRID by 64 -> a0:2 GRID, a1:64 TILE."""
  return Block(axis.id, min(size, axis.count)).apply(kernel) if axis.count > 1 < size else kernel


# ---- all but matrix products

def streamed(kernel: Kernel, target: Target) -> Kernel:
  """The blocks with which a kernel that makes no products takes the least time, by ``Streams``."""
  model = Streams(roles := Roles(kernel), target)
  found = [(model.seconds(c.tiles, c.copied, 0, c.rows), c) for c in choices(roles, target)]
  most = _GAIN * min([seconds for seconds, _ in found], default=0.0)
  good = [c for seconds, c in found if seconds <= most] or [_Choice({}, (), NO_COPIES)]
  best = min(good, key=lambda c: (c.loops(roles), len(c.copied), prod(c.rows.values()), c.size))
  # not of loops, which wait for loads: many warps hide that
  whole = [c for seconds, c in found if seconds <= NEARLY * most and not c.loops(roles)]
  others = [(model.seconds(c.tiles, c.copied, n, c.rows), c, n) for c in whole for n in Warps.tried]
  fewest, other, warps = min(others, key=lambda t: t[0], default=(math.inf, best, 0))
  best, warps = (other, warps) if fewest * _GAIN < _WORTH * most else (best, 0)
  for i in best.copied: kernel = Unroll(i, kernel.axis(i).count).apply(kernel)
  for i, n in best.rows.items(): kernel = (Upcast if kernel.axis(i).count % n == 0 else UpcastInwards)(i, n).apply(kernel)
  for a in reversed(kernel.axes):
    if a.id in best.tiles: kernel = tile_axis(kernel, a, best.tiles[a.id])
  return Warps(warps).apply(kernel) if warps else kernel


def in_a_line(kernel: Kernel) -> Kernel:
  """A kernel that takes every so many elements of something, a window with a stride, goes through what it stores as one axis, as
  nothing says along which of several the lanes of a warp lie: y[a0, a1] = x[2*a0, 2*a1] -> y[a0] = x[2*(a0//56), 2*(a0%56)]."""
  roles = Roles(kernel)
  ids = [a.id for a in roles.free if a.count > 1]
  if len(ids) < 2: return kernel
  strided = [x.steps for x in roles.accesses if not x.write and x.linear and 1 < abs(x.steps.get(ids[-1]) or 0) <= STRIDE]
  for i, j in zip(ids[-2::-1], ids[:0:-1]):
    stores = [x.steps for x in access_profile(kernel).accesses if x.write]
    if not strided or not all(s.get(i) for s in strided): break
    if any(s.get(j) != 1 or s.get(i) != kernel.axis(j).count for s in stores): break
    kernel = flat(Fuse(i, j).apply(kernel))
  return kernel


class _Choice(NamedTuple):
  """Sizes of blocks along some axes, reduced axes that are written out, and so many steps of another."""
  tiles: dict[int, int]
  copied: tuple[int, ...]
  rows: Mapping[int, int]

  @property
  def size(self) -> int:
    """Elements of a block."""
    return prod(map(power_of_two, self.tiles.values()))

  def loops(self, roles: Roles) -> bool:
    """Whether a program goes through reduced axes in several steps."""
    return any(a.count > self.tiles.get(a.id, 1) for a in roles.bound if a.id not in self.copied)


def choices(roles: Roles, target: Target) -> Iterator[_Choice]:
  """Blocks along the axes that memory goes along, and a reduced one and another; more axes where these are all of a block."""
  room = target.row if roles.bound else 2 * target.block   # without a loop
  least = min(target.mapped, max(LEAST_BLOCK, power_of_two(volume((*roles.free, *roles.bound)) // target.cores)))
  windows = [a for a in roles.bound if 1 < a.count <= WINDOW]
  short = windows and len(windows) == len(roles.bound) and volume(windows) <= WINDOWS
  ways: list[tuple[list[Axis], Mapping[int, int]]] = [([], NO_COPIES)]
  if short: ways += [(windows, NO_COPIES), *[(windows, {i: n}) for i, n in shared_rows(roles, windows)]]
  for copied, rows in ways:
    left = [a for a in (*roles.free, *roles.bound) if a.count > 1 and a not in copied and a.id not in rows]
    keys = key_axes(roles, left)
    others = [a for a in roles.kernel.axes[::-1] if a in left and a not in keys]
    for tiles in sized_blocks(keys, roles, room, least):
      yield from [_Choice(t, tuple(a.id for a in copied), rows) for t in filled(tiles, keys, others, target)]


def shared_rows(roles: Roles, windows: list[Axis]) -> Iterator[tuple[int, int]]:
  """Axes of which a program may make several steps, and how many: those along which the windows of neighbours share rows, which
  are then read once. Four steps at once of y[a0] = x[a0] + x[a0 + 1] + x[a0 + 2] read six and not twelve."""
  for a in roles.free:
    if a.id in roles.along: continue
    for n in _ROWS:
      if n > a.count or n * volume(windows) > STATEMENTS: break
      reads = [[(x.steps.get(i) or 0, m) for i, m in ((a.id, n), *[(w.id, w.count) for w in windows])]
               for x in roles.accesses if not x.write and x.steps.get(a.id)]
      if any(places(r) < prod(m for step, m in r if step) for r in reads): yield a.id, n


def key_axes(roles: Roles, left: list[Axis]) -> list[Axis]:
  """The axes of which every size of a block is tried: up to two that memory goes along, the last other one of each kind."""
  by_bytes = sorted([a for a in left if a.id in roles.along], key=lambda a: -roles.along[a.id])[:2]
  for kind in roles.bound, roles.free:
    rest = [a for a in kind if a in left and a not in by_bytes]
    if rest and len(by_bytes) < KEYS: by_bytes.append(rest[-1])
  return by_bytes


def sized_blocks(keys: list[Axis], roles: Roles, room: int, least: int) -> Iterator[dict[int, int]]:
  """Powers of two for each of some axes, or all of it; together at most ``room`` elements, and not much less than there are."""
  whole = prod(power_of_two(a.count) for a in keys)
  found: list[tuple[dict[int, int], int]] = [({}, 1)]
  for a in keys:
    most, along = power_of_two(a.count), a.id in roles.along
    exponents = range(min(ALONG, most.bit_length()), LARGEST, 1) if along else range(0, LARGEST, NEAR_POWER)
    steps = [n for e in exponents if (n := 1 << e) < most]
    found = [({**tiles, a.id: n}, size * n) for tiles, size in found for n in (most, *steps[::-1]) if size * n <= room]
  yield from [tiles for tiles, size in found if size >= min(least, whole)]


def filled(tiles: dict[int, int], keys: list[Axis], others: list[Axis], target: Target) -> Iterator[dict[int, int]]:
  """Some blocks, and where they have all of their axes, the same with the next axes too."""
  yield tiles
  if not others or any(tiles[a.id] < a.count for a in keys): return
  for room in target.mapped, target.block:
    more, left = dict(tiles), room // prod(tiles.values())
    for a in others:
      if left <= 1: break
      more[a.id] = min(left, power_of_two(a.count))
      left //= more[a.id]
    if more != tiles: yield more


# ---- matrix products

def is_product(kernel: Kernel) -> bool:
  """Whether a kernel with TILE axes has a block of rows, one of columns and one of what is summed."""
  roles, blocks = Roles(kernel), [a for a in kernel.tiles if a.count >= LEAST_DOT]
  return all(roles.of(role, blocks) for role in PRODUCT_ROLES)


def _product(kernel: Kernel, target: Target) -> tuple[Kernel, list[int]] | None:
  """A kernel that is a product large enough for ``tl.dot``, and its axes m, n and k, one of each role; None for any other."""
  roles = Roles(kernel)
  among = [a for a in kernel.axes if a.kind is AxisKind.GRID or a.id in kernel.bound]
  axes = [roles.of(role, among) for role in PRODUCT_ROLES]
  found = roles.product
  if found is None or any(volume(map(kernel.axis, ids)) < LEAST_DOT for ids in axes): return None
  if found.reduce.dtype.itemsize > 4 and not target.double_dots: return None
  chosen = []
  for sides, ids in zip((found.sides[:1], found.sides[1:], found.sides), axes):
    # all of one role are made one, in the order in which they move through memory (that of a factor, or else any): a block of an
    # image's rows has as many as any other, and the target's compiler makes a pipeline of one loop through all that is summed
    side = set(toposort(sides))
    def distance(j: int, side: set[UOp] = side) -> float:
      steps = [(x.node in side, abs(s)) for x in roles.accesses if (s := x.steps.get(j))]
      return min([s for of, s in steps if of] or [s for _, s in steps], default=math.inf)
    i, *further = sorted(ids, key=distance)
    for j in further: kernel, i = flat(Fuse(j, i).apply(kernel)), j
    chosen.append(i)
  if any(x.write and x.steps.get(chosen[0]) == 1 for x in access_profile(kernel).accesses):
    chosen[:2] = chosen[1::-1]   # columns lie side by side in the result
  return kernel, chosen
