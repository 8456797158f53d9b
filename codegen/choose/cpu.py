"""Heuristics for CPUs: which Opts make a kernel fast, from a cost model of vector loads, arithmetic, registers and reuse.

One axis becomes vector lanes, others register copies, where that lets loads be shared; the rest is spread over programs that are
long enough to be worth starting.
"""
from __future__ import annotations

import itertools
import math
import operator
from functools import partial
from typing import Iterable, Iterator, NamedTuple

from .. import index as ix
from ..ir import Ops, Target, UOp, prod
from ..kernel import AccessProfile, AxisKind, Kernel, MemoryAccess, access_profile, gate_or_true, ids_of, volume
from ..opts import Local, NonTemporal, Opt, Pad, Reorder, merge_axes, split_axes, with_opts
from ..opts.axes import Serial, ShiftInwards, SplitInwards, Unroll, Upcast, UpcastInwards, Vectorize
from ..passes.expand import is_spaced
from .candidates import first, tried
from .cpu_panels import LEAST_ROWS, LINE_BYTES, NEAR, copy_for_rows, jumps_far, most_packed, room, share
from .gpu import choose_tiles
from .residues import Residue, needed, reduced_where, residues
from .roles import free

# ---- what is tried
COPIES = 2, 3, 4, 5, 6, 7, 8, 12, 16   # copies of an axis, in registers
_MOST_COPIES = 16                # copies of several axes together where there are 16 registers; also copies of reduced axes
BLOCKS, POWERS = (4, 8, 16), (2, 4, 8, 16)   # copies that make vectors as well, and lanes, of a block to be transposed
SEEDS = 3                        # lanes with which copies of two axes are tried
ACCUMULATORS = 0.75              # of the registers, where there are more
EVEN = 3                         # numbers of copies that make blocks of about one size of an axis that no number divides
MOST_TWICE = 1.25                # elements computed by copies that do not divide an axis, for each that there is
WIDEST_LANES = 16                      # lanes of a vector of OpenCL
UNROLLED, _PART = 8, 4           # values of a reduced axis that is written out whole; iterations of a longer one that are
_SEVERAL, MANY_ROWS = (4, 3, 2), 64    # rows at a time of a plain row sum; rows from which on it takes several
MOST_STATEMENTS = 144            # memory accesses written out in a kernel: more costs compile time and gains nothing
SHORT_STORE, TRANSPOSE = 1.5, 0.5      # statements: of a store of one lane so many times fewer; of each step of a transpose
SMALL = 3                        # a kernel of less than one in so many parts of a program's cycles is one program
_PROGRAMS = 32                   # programs for each core at most, so that none waits for the last
WORK = Ops.LOAD, Ops.STORE, Ops.ALU, Ops.REDUCE   # what takes cycles
NO_LANE = -1                     # in the place of an axis
SHORT_GROUP, PADDED_GROUP = 32, 64           # work-items of a group: fewer are not worth it where padding to so many gives more

# ---- what the model reckons with, in vector operations unless it says otherwise (measured with PoCL on AVX2 and AVX-512)
FAR_LOAD = 12.0                   # a load that goes to another page with each iteration takes so much more than another
GATHER = 1.5                      # each lane that is loaded by itself, and as much arithmetic
STREAM = 12.0                     # a vector load of what has left a core's own cache since it was read before
PANEL, FILL = 1.3, 15             # a load from a panel in local memory; gathers that an element takes which is stored in one
PACKED = 1.0                      # copying rows to local memory, for each load from there
SET, CONFLICT = 4096, 100.0       # bytes between loads that share one place in a cache; what such a load takes more than another
LEFT_OUT = 2.0                    # a vector of a reduction, some of which the one before had
GATE, WHOLE_TEST = 2.0, 4.0       # a lane's mask; lanes' masks that the test costs whether all are true
STORE = 1.5                       # a store
CHAIN = 4                         # cycles from an addition to the next one that needs it
ITERATION, JOIN = 2, 12           # an iteration of a loop; joining an accumulator's lanes, after it
PAGE_BYTES, RUN_BYTES = 4096, 1024  # of a page, and those of a page that are read before others
AHEAD = 8                         # pages that are read one after another take one in so many parts of a core's cache
KEPT_VECTORS, SPILL = 8, 0.3      # loaded vectors in registers at once, at most; part of all arithmetic for each register too few
CYCLES, HIDDEN = 0.5, 0.25        # an operation; one beside a slower load or beside slower arithmetic
# of all, for each statement written out and each axis between copies: neighbours in memory are better
STATEMENT, APART = 1/1024, 0.02


def optimize(kernel: Kernel, target: Target, exact: bool = False) -> Kernel:
  """The kernel after the Opts chosen for a target, unless it has statements. ``exact`` as for :class:`Search`."""
  if not kernel.plain: return kernel
  if target.blocks: return choose_tiles(kernel, target)
  kernel = tried(kernel, lambda k: merge_axes(split_axes(k)))
  if target.locals: return tried(kernel, work_items, target)
  if target.lanes == 1 or not kernel.axes: return kernel
  return first(kernel, (partial(after, target=target, opts=opts, panel=panel, exact=exact)
                        for opts, panel in Search(kernel, target, exact).choices()))


def after(kernel: Kernel, target: Target, opts: list[Opt], panel: int | None, exact: bool = False) -> Kernel:
  """A kernel with the lanes and copies of a choice, spread over programs."""
  return stream(spread(_in_runs(with_opts(kernel, opts), target), target, panel, exact), target)


def _in_runs(kernel: Kernel, target: Target) -> Kernel:
  """Where the innermost axis jumps to other pages of what is read, some steps of the axis along its lines are made for each: 1 KB
  is read of a page before the next: a0:128 GRID (64 bytes a step), a1:4 GRID (32 KB) -> a0:8 GRID, a1:4 LOOP, a2:16 LOOP."""
  grid = [a for a in kernel.grid if a.count > 1]
  if kernel.bound or kernel.sequential or len(grid) < 2: return kernel
  inner = grid[-1]
  for x in access_profile(kernel).accesses:
    steps = {a.id: x.stride(a.id) for a in grid}
    along = next((a for a in grid[:-1] if 0 < steps[a.id] <= 2 * LINE_BYTES), None)
    if x.write or not x.linear or along is None or steps[inner.id] < PAGE_BYTES: continue
    many = RUN_BYTES // steps[along.id]
    if along.count < 2 * many: continue
    # bytes between rows that copies or lanes beside the inner axis's steps read, and how many of these a step reads
    inside = [x.stride(a.id) for a in kernel.of_kind(AxisKind.UPCAST, AxisKind.LANE)]
    row = min([n for n in inside if n >= PAGE_BYTES and steps[inner.id] % n == 0], default=steps[inner.id])
    rows = max(steps[inner.id] // max(row, 1), 1)
    kernel = Serial(inner.id, max(target.core_cache // (AHEAD * RUN_BYTES * rows), 1)).apply(kernel)
    before = {a.id for a in kernel.axes}
    kernel = Serial(along.id, many).apply(kernel)
    return Reorder(next(a.id for a in kernel.axes if a.id not in before), first=False).apply(kernel)
  return kernel


def work_items(kernel: Kernel, target: Target) -> Kernel:
  """For GPUs, neighbouring elements of the output by neighbouring work-items: a0:1024 GRID -> a0:4 GRID, a1:256 LOCAL."""
  stores = [x for x in access_profile(kernel).accesses if x.write]
  if not (grid := free(kernel)): return kernel
  axis = next((a for a in grid if any(x.steps.get(a.id) == 1 for x in stores)), grid[-1])
  amount = max(d for d in range(1, target.work_items + 1) if axis.count % d == 0)
  if amount < SHORT_GROUP <= axis.count: amount, kernel = PADDED_GROUP, Pad(axis.id, PADDED_GROUP).apply(kernel)
  return Local(axis.id, amount).apply(kernel) if amount > 1 else kernel


def stream(kernel: Kernel, target: Target) -> Kernel:
  """Stores of large outputs are nontemporal (past the cache): what they would evict is worth more."""
  for p in kernel.params:
    if p.written and not kernel.in_place and ix.elements(p.shape) * p.dtype.itemsize >= target.stream:
      kernel = NonTemporal(p.slot).apply(kernel)
  return kernel


class Trial(NamedTuple):
  """What is tried: the axis of vector lanes, and how many; copies of output axes; reduced values that are written out."""
  lane: int
  width: int
  copies: dict[int, int]
  unroll: dict[int, int]

  def of(self, axis: int) -> int:
    """The copies of an axis."""
    return self.copies.get(axis, 1)


class Seen(NamedTuple):
  """A kernel with some lanes: a vector's registers; the sizes of output axes; for each access whether it differs from lane to
  lane, whether by anything but 1, of how many whole vectors its lanes are taken (``Expander.spaced_load``; 0: they are loaded one
  by one), whether it is summed, and along which axes copies lie beside each other where lanes do not; the arithmetic of the same
  axes; of both, how many output axes they are inside of, and the rounds of reduced ones. ``scalars``: axes along which numbers
  that all lanes take lie beside each other: several are loaded as one vector."""
  vec: float
  left: list[tuple[int, int]]
  accesses: list[tuple[MemoryAccess, bool, bool, int, bool, set[int], int, int]]
  work: list[tuple[frozenset[int], float, int, int]]
  scalars: set[int]


Tried = tuple[float, Trial, int | None]   # its cost, and the param whose elements go through a panel


class Search:
  """Tries vector lanes, register copies and unrolled axes, and takes the choice with the least :meth:`cost`.

  ``exact``: lanes and copies of output axes divide them, for a kernel that stands for another one whose sizes are others."""

  def __init__(self, kernel: Kernel, target: Target, exact: bool = False):
    self.kernel, self.target = kernel, target
    self.info: AccessProfile = access_profile(kernel)
    accesses = self.info.accesses
    self.sizes = kernel.counts
    self.bound = kernel.bound
    self.out = [a.id for a in kernel.axes if a.id not in self.bound]
    self.exact = exact or kernel.in_place   # then no element may be computed twice
    self.most = max(_MOST_COPIES, int(ACCUMULATORS * target.registers))
    self.panel: int | None = None           # of the last cost
    self.reached: dict[tuple[UOp, tuple[tuple[int, int], ...]], int] = {}   # by copies of an access: ``distinct``
    self.far = {x.node: self._far(x) for x in accesses}
    self.streams = {x.node: STREAM if self._left_cache(x) else 0.0 for x in accesses}
    self.beside = {x.node: [a for a in self.out if 0 < x.stride(a) < NEAR] for x in accesses}
    self.gates = {x.node: residues([gate_or_true(x.node)]) for x in accesses}
    self.masks = reduced_where(kernel)
    self.needed = needed(self.masks, self.sizes, self.out)

  def choices(self) -> Iterator[tuple[list[Opt], int | None]]:
    """All choices, the cheapest first: lanes, copies and what is written out, and the param whose elements go through a panel."""
    for _, trial, panel in sorted(self.candidates(), key=lambda t: t[0]): yield self.opts(trial), panel

  def candidates(self) -> list[Tried]:
    """What is tried, with its cost and panel. Copies of two axes are tried with the lanes that are best with copies of one."""
    found, seeds = list[Tried](), list[Tried]()
    def priced(lane: int, width: int, unroll: dict[int, int], every: Iterable[dict[int, int]]) -> None:
      seen = self.seen(lane, width)
      costs = [(self.cost(trial, seen), trial, self.panel) for trial in [Trial(lane, width, c, unroll) for c in every]]
      found.extend(costs)
      if costs: seeds.append(min(costs, key=lambda t: t[0]))
    for lane, width in self.lanes():
      for unroll in self.unrolls(lane, width): priced(lane, width, unroll, self.copies(lane, width))
    for _, (lane, width, _, unroll), _ in sorted(seeds, key=lambda t: t[0])[:SEEDS]:
      priced(lane, width, unroll, self.pairs(lane, width))
    return found

  def lanes(self) -> Iterator[tuple[int, int]]:
    """Axes for vector lanes, and how many lanes."""
    yield NO_LANE, 1
    for a, n in self.sizes.items():
      if a in self.kernel.sequential: continue
      full = max(self.target.lanes * 4 // self.widest(a), 2)
      for w in (2 * full, full, full // 2):
        if 1 < w <= WIDEST_LANES and (n % w == 0 or (n > w and w == full and not self.kernel.in_place)): yield a, w

  def widest(self, lane: int) -> int:
    """The bytes of the widest element, at least 4, of which each of some lanes has another: a place that all of them look up in
    a table is a scalar."""
    return max((x.itemsize for x in self.info.accesses if lane in x.axes and x.itemsize > 4), default=4)

  def unrolls(self, lane: int, width: int) -> Iterator[dict[int, int]]:
    """Short reduced axes are written out, innermost first, while the copies stay few."""
    out: dict[int, int] = {}
    inner = [i for i in reversed(self.sizes) if i in self.bound - self.kernel.sequential]
    for i in inner:
      size = self.left(i, lane, width)
      if i == lane and self.sizes[i] % width == 0 and size > UNROLLED: continue
      if size > UNROLLED or prod(out.values()) * size > _MOST_COPIES: break
      if size > 1: out[i] = size
    yield out
    if not out and inner and self.sizes[inner[0]] % _PART == 0 and lane == NO_LANE: yield {inner[0]: _PART}

  def left(self, axis: int, lane: int, width: int) -> int:
    """The size of an axis, without the lanes that it may have."""
    return -(-self.sizes[axis] // width) if axis == lane else self.sizes[axis]

  def numbers(self, axis: int, lane: int, width: int) -> list[int]:
    """How many copies of an axis, beside lanes, are worth trying: those that divide it, or compute few elements twice."""
    size, each, vectors = self.sizes[axis], width if axis == lane else 1, self.left(axis, lane, width)
    least = -(-vectors // _MOST_COPIES)
    even = [-(-vectors // n) for n in range(least, least + EVEN)] if vectors > _MOST_COPIES and vectors % _MOST_COPIES else []
    def fits(n: int) -> bool: return size % n == 0 or not self.exact and n <= size and -(-size // n) * n <= MOST_TWICE * size
    return [c for c in dict.fromkeys((*COPIES, *even)) if c <= self.most and fits(c * each)]

  def copies(self, lane: int, width: int) -> Iterator[dict[int, int]]:
    """Copies of an output axis that some load of a reduction does not depend on, inner axes (neighbours in memory) first."""
    yield {}
    useful = self.useful(lane)
    for a in useful: yield from [{a: c} for c in self.numbers(a, lane, width)]
    if lane not in self.needed: yield from self.known([(a, c)] for a in useful for c in self.numbers(a, lane, width))
    if lane in self.bound and not useful and self.out and len(self.info.reduces) == 1:
      # a plain row sum: several rows at a time keep more of memory busy, if what is stored is small
      if any(x.write and x.axes & self.bound for x in self.info.accesses): return
      rows = self.sizes[last := self.out[-1]]
      if rows >= MANY_ROWS: yield from [{last: c} for c in _SEVERAL if rows % c == 0 or not self.exact][:1]
    if not useful:   # blocks that are transposed in registers
      beside = {a: x for x in self.info.accesses if x.steps.get(lane, 1) != 1 for a in self.out if x.steps.get(a) == 1}
      for a in beside: yield from [{a: c} for c in BLOCKS if c <= width and c in self.numbers(a, lane, 1)]

  def pairs(self, lane: int, width: int) -> Iterator[dict[int, int]]:
    """Register copies of two such axes."""
    for (a, some), (b, others) in itertools.combinations([(a, self.numbers(a, lane, width)) for a in self.useful(lane)], 2):
      yield from [{a: c, b: d} for c in some for d in others if c * d <= self.most]
      if lane not in self.needed: yield from self.known([(a, c), (b, d)] for c in some for d in others)

  def known(self, every: Iterable[list[tuple[int, int]]]) -> Iterator[dict[int, int]]:
    """Copies with those of more axes that make conditions on remainders known."""
    for some in every if self.needed else ():
      copies = self.needed | dict(some)
      if all(copies[a] % n == 0 for a, n in self.needed.items()) and prod(copies.values()) <= self.most: yield copies

  def there(self, c: Residue, trial: Trial) -> tuple[float, float]:
    """The parts of copies where a condition holds, as ``Residue.left`` has them; all where it is not known in each copy."""
    def copies(a: int) -> int: return trial.unroll.get(a, 1) if a in self.bound else trial.of(a)
    def known(a: int) -> bool:
      n, size = copies(a), self.sizes[a]
      return n == size or n % c.copies(a) == 0 and (size % n == 0 or self.padded(a, n))
    return c.left(copies) if all(a != trial.lane and known(a) for a, _ in c.factors) else (1.0, 1.0)

  def padded(self, axis: int, n: int) -> bool:
    """Whether an axis is made longer for its copies: were the last ones from earlier on, they were not alike."""
    return self.sizes[axis] % n > 0 and n % self.needed.get(axis, n + 1) == 0

  def useful(self, lane: int) -> list[int]:
    """The output axes that copies pay for: their loads are shared, or lie beside each other and far from those before."""
    loads = [x for x in self.info.accesses if not x.write and x.axes & self.bound]
    out = [a for a in reversed(self.out) if any(a not in x.axes for x in loads)]
    beside = any(self.far[x.node] and x.steps.get(lane) == 1 for x in loads)
    return [*out, lane] if lane in self.out and lane not in out and beside else out

  def transposed(self, along: set[int], trial: Trial) -> int:
    """How many copies lie beside each other ``along`` some axis where lanes lie apart (``Expander.beside`` transposes them); 0
    where none do."""
    if any([self.padded(a, c) for a, c in trial.copies.items()]): return 0
    return next((c for a, c in trial.copies.items() if a in along and c in BLOCKS and c <= trial.width), 0)

  def seen(self, lane: int, width: int) -> Seen:
    """What is the same for all copies beside some lanes."""
    def rounds(axes: frozenset[int]) -> tuple[int, int]:
      # what an inner axis does not change is computed before the loop over it
      deep = len(self.out) if axes & self.bound else max([self.out.index(a) + 1 for a in axes], default=0)
      return deep, prod(self.left(a, lane, width) for a in axes & self.bound)
    out = Seen(max(width * self.widest(lane) / (4 * self.target.lanes), 1.0), [(a, self.left(a, lane, width)) for a in self.out],
               [], [(axes, cycles, *rounds(axes)) for axes, cycles in self.info.work.items()], set())
    for x in self.info.accesses:
      step, across, summed = x.steps.get(lane), lane in x.axes, not x.write and bool(x.axes & self.bound)
      if summed and not across: out.scalars.update(a for a in self.out if x.steps.get(a) == 1)
      spaced = 0 if x.write or step is None or not is_spaced(step, width) else abs(step)
      scattered = across and step != 1
      beside = {a for a in self.out if scattered and a != lane and x.steps.get(a) == 1 and not x.gated and x.linear}
      out.accesses.append((x, across, scattered, spaced, summed, beside if width in POWERS else set(), *rounds(x.axes)))
    return out

  def held(self, x: MemoryAccess, trial: Trial) -> int:
    """The bytes of what a program's copies read by an access."""
    return x.itemsize * prod(self.sizes[a] if a in self.bound else trial.of(a) for a in x.axes)

  def panel_uses(self, x: MemoryAccess, trial: Trial) -> float:
    """How often each element of a load's panel in local memory would be read; 0 where it cannot have one."""
    if x.write or x.slot < 0 or x.overlaps or not x.axes & self.bound: return 0
    if trial.lane in self.bound or len(self.info.reduces) != 1 or self.held(x, trial) * trial.width > room(self.target): return 0
    return math.prod([-(-n // trial.of(a)) for a, n in self.sizes.items() if a not in self.bound and a not in x.axes])

  def packs(self, y: MemoryAccess, trial: Trial) -> bool:
    """Whether rows of a product's other factor fit beside the panel that was found."""
    panel = next((x for x in self.info.accesses if x.slot == self.panel and not x.write), None)
    if panel is None or self.exact: return False
    return self.held(panel, trial) * trial.width + LEAST_ROWS * self.held(y, trial) <= most_packed(self.target)

  def _left_cache(self, x: MemoryAccess) -> bool:
    """Whether a load reads more than a core's own cache has before it comes to an element again."""
    again = [i for i, a in enumerate(self.out) if a not in x.axes]
    if x.write or not again or not x.axes & self.bound: return False
    between = [a for a in x.axes if a in self.bound or a in self.out[again[-1]:]]
    return x.itemsize * prod(self.sizes[a] for a in between) > self.target.core_cache

  def _far(self, x: MemoryAccess) -> float:
    """What a load costs more that jumps to another page or line with each step, with what lies beside it."""
    if not jumps_far(x, self.bound): return 0.0
    along = [b for b in self.bound if b in x.steps]   # its gate may vary along others
    rounds, step = prod(self.sizes[b] for b in along), min([x.stride(b) for b in along if b not in x.looked_up], default=1)
    return CONFLICT if step % SET == 0 and rounds * SET >= self.target.core_cache else FAR_LOAD

  def distinct(self, x: MemoryAccess, written: dict[int, int]) -> int:
    """The elements (or vectors) that copies of an access read: neighbouring windows share theirs."""
    along = tuple([(a, n) for a in x.axes if (n := written.get(a, 1)) > 1])
    if (x.node, along) not in self.reached:
      places = {0}
      for a, n in along:
        # where its place is not known, each copy has one that no other has
        by = step if (step := x.steps.get(a)) is not None else max(places) + 1
        places = {p + by * i for p in places for i in range(n)}
      self.reached[x.node, along] = len(places)
    return self.reached[x.node, along]

  def cost(self, trial: Trial, seen: Seen) -> float:
    """Estimated cycles of the whole kernel on one core."""
    lane, width, copies, unroll = trial
    vec, steps = seen.vec, {a: -(-n // copies.get(a, 1)) for a, n in seen.left}
    before = [*itertools.accumulate(steps.values(), operator.mul, initial=1)]
    outer = before[-1]
    loads = alu = live = statements = 0.0
    jumps: list[tuple[MemoryAccess, float, float]] = []   # of scalars
    self.panel = None
    for x, across, scattered, spaced, summed, beside, deep, rounds in seen.accesses:
      own = math.prod([c for a, c in copies.items() if a in x.axes])
      n, written_out = float(before[deep] * rounds * own), float(own * math.prod([c for a, c in unroll.items() if a in x.axes]))
      if written_out > 1 and x.overlaps:
        places = self.distinct(x, {**copies, **unroll})
        n, written_out = n * places / written_out, places
      for c in self.gates[x.node]:   # one load for copies of one place
        part = self.there(c, trial)[all(x.steps.get(a, 0) is None for a, _ in c.factors)]
        n, written_out = n * part, written_out * part
      price, extra, panel = 1.0, 0.0, False
      far = self.far[x.node] and self.far[x.node] / math.prod([trial.of(a) for a in self.beside[x.node]])
      transposed = self.transposed(beside, trial) if beside else 0
      if transposed:   # each lane's vector is of another line
        price = (vec + (max(self.far[x.node], FAR_LOAD) if summed else 0)) * width / transposed
        extra = vec * (width.bit_length() + (transposed < width))
      elif spaced: price = extra = vec * spaced
      elif scattered: price = extra = GATHER * width
      elif across: price = vec + far + self.streams[x.node]
      elif far: jumps.append((x, far, n))
      paneled = across and summed and not transposed and (scattered or far or self.streams[x.node]) and self.panel is None
      if paneled and (uses := self.panel_uses(x, trial)):
        # filled once (scalars, or vectors from far away), then read by the others
        fill = (FILL * price if scattered else price + STORE) / uses
        panel = vec * PANEL + fill < price + CYCLES * extra
        if panel: self.panel, price, extra = x.slot, vec * PANEL + fill, 0.0
      if not scattered: statements += written_out
      elif transposed: statements += written_out * (TRANSPOSE * (width / transposed + extra))
      elif not panel: statements += written_out * (2.0 * spaced if spaced else width / SHORT_STORE if x.write else width)
      if across and lane in self.bound and self.sizes[lane] % width: extra += LEFT_OUT
      if x.gated: extra += GATE * (width if scattered and not spaced else WHOLE_TEST * max(spaced, 1) if across else 1)
      if x.write: price *= STORE
      loads += price * n
      alu += extra * n
      if across and summed: live += vec * own
      if statements > MOST_STATEMENTS: return math.inf
    for x, far, often in jumps:
      if self.packs(x, trial):   # read from far away once, for all panels
        far = min(far, PACKED + far / math.prod([n for a, n in steps.items() if a not in x.axes]))
      loads += often * far
    made = [({a for a, _ in c.factors}, self.there(c, trial)[0]) for c in self.masks]
    for axes, cycles, deep, rounds in seen.work:
      trips = before[deep] * rounds * math.prod([c for a, c in copies.items() if a in axes])
      alu += cycles * trips * (vec if lane in axes else 1.0) * math.prod([part for own, part in made if own <= axes])
    # registers of numbers for all lanes, beside accumulators and vectors
    chain, copied, numbers = 0.0, prod(copies.values()), 1 if seen.scalars.isdisjoint(copies) else 2
    for bound, operands in self.info.loops:
      accumulators = copied * sum(vec if lane in operand else 1 for operand in operands)
      rounds = prod(self.left(a, lane, width) for a in bound)
      chain += CHAIN * rounds * outer * math.prod([part for _, part in made])
      alu += ITERATION * (rounds / prod(unroll.get(a, 1) for a in bound)) * outer
      if lane in bound: alu += JOIN * outer * copied * len(operands)
      alu *= 1.0 + SPILL * max(accumulators + min(live, KEPT_VECTORS) + numbers - self.target.registers, 0)
    # every statement written out costs compile time; copies of outer axes are far apart in memory
    far_apart = sum(len(self.out) - 1 - self.out.index(a) for a in copies) / max(len(self.out), 1)
    cycles = max(CYCLES * max(loads, alu) + HIDDEN * min(loads, alu), chain)
    if cycles > self.target.start_cycles / SMALL: cycles *= -(-outer // self.target.cores) * self.target.cores / outer
    return cycles * (1 + STATEMENT * statements + APART * far_apart)

  def opts(self, trial: Trial) -> list[Opt]:
    """A trial as Opts: ``a1.vectorize(8), a1.upcast(2)``, or ``a1.split_inwards(16), a3.vectorize(8), a3.upcast()``."""
    lane, width, copies, unroll = trial
    out, c = list[Opt](), trial.of(lane)
    if lane != NO_LANE and c > 1 and self.sizes[lane] % (c * width):
      block = max(self.sizes) + 1
      out = [SplitInwards(lane, c * width), Vectorize(block, width), Upcast(block)]
    elif lane != NO_LANE:
      out = [(ShiftInwards if self.sizes[lane] % width else Vectorize)(lane, width), *[Upcast(lane, c)] * (c > 1)]
    padded = {a for a, c in copies.items() if self.padded(a, c)}
    out += [Pad(a, copies[a]) for a in sorted(padded)]
    out += [(UpcastInwards if self.sizes[a] % c and a not in padded else Upcast)(a, c) for a, c in copies.items() if a != lane]
    return [*out, *itertools.starmap(Unroll, unroll.items())]


def spread(kernel: Kernel, target: Target, panel: int | None = None, exact: bool = False) -> Kernel:
  """Inner GRID axes become loops until a program is worth starting: a0:64 GRID, a1:100 GRID -> a0:64 GRID, a1:100 LOOP."""
  panels = kernel if panel is None else tried(kernel, copy_for_rows, target, panel, exact)
  if panels is not kernel: return panels
  programs = volume(kernel.grid)
  each = {a.id: 1 if a.kind is AxisKind.LANE else a.count for a in kernel.axes}
  work = sum(CYCLES * prod(each[i] for i in ids_of(u.src[0] if u.op is Ops.REDUCE else u)) for u in kernel.nodes if u.op in WORK)
  most = max(int(work / target.start_cycles), target.cores) if work > target.start_cycles / SMALL else 1
  want = min(most, _PROGRAMS * target.cores)
  for a in reversed(kernel.grid):
    if programs <= want: break
    if (rest := programs // a.count) >= want:
      kernel, programs = Serial(a.id).apply(kernel), rest
      continue
    each_one = share(a.count, rest, want, target.cores)
    return Serial(a.id, each_one).apply(kernel) if each_one > 1 else kernel
  return kernel
