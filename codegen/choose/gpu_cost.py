"""A cost model of kernels with blocks. Candidates are chosen by it, or sorted by it before some are measured.

Three things bound a kernel: the rates of memory, cache and cores; the time until a program's loads come, for as many programs as
fit on a core; and waves of programs, the last of which may be part full.
"""
from __future__ import annotations

import math
from types import MappingProxyType
from typing import Collection, Iterator, Mapping, Sequence

from ..ir import Ops, Target, power_of_two, prod, toposort
from ..kernel import LOAD_OR_STORE, AxisKind, Kernel, volume
from .roles import VECTOR_BYTES, Roles, fastest_axis, rounds_of, vector

STAGES = 3                        # of a pipeline, all in shared memory at once
_SHARP = 4                        # how far the longest of the times decides alone: the power of their mean
WARP = 32                         # threads of a warp
FEWEST_WARPS, MOST_WARPS = 4, 16  # warps of a program
_EACH = 8                         # elements a thread, at least: two wide loads of float32
KEPT_REGISTERS, MOST_REGISTERS = 20, 255   # of a thread: for addresses and the like, and at most
ADDRESS = 2                       # registers of an address and a condition
SECTOR = 32                       # bytes of a line that are moved by themselves
MOST_VALUES = 3                   # blocks that were read and wait in registers
JUMP_BYTES = 8                    # bytes that could be moved while memory goes to another place
MANY_PROGRAMS = 8                 # programs a core, from which on it does not matter that some cores have one more
ALONE = 2.0                        # times its share of the bandwidth that a core takes where others are idle
ROUND, TOGETHER = 8192, 2         # elements that a program reads at a time, and programs that a core has at a time
_WORTH = 0.95                     # of the time without: cutting a sum in parts must take less
REST = 0.7                        # of the last cache is there for what is read again
TAGS, FOLDED = 3, 2               # lines that are looked up in a cycle; about how far an axis moves that stands for several
# operations of a load or store, for each vector of a thread, and of a step in which the lanes of a warp combine their values
TOUCH, SHUFFLE = 4, 6
NO_COPIES: Mapping[int, int] = MappingProxyType({})


def powers(first: int, last: int) -> Iterator[int]:
  """A number, and its doubles up to another one."""
  while first <= last:
    yield first
    first *= 2


def warps_for(elements: int) -> int:
  """Warps for a program of so many elements: wide loads, enough registers a thread."""
  return next((n for n in powers(FEWEST_WARPS, MOST_WARPS) if elements <= n * WARP * _EACH), MOST_WARPS)


def places(steps: Sequence[tuple[float, int]]) -> int:
  """How many different places an access goes to, each of some steps so often: windows of 3 at 4 neighbours have 6, not 12."""
  found, others = {0}, 1
  for step, n in steps:
    if step < math.inf: found = {at + int(step) * k for at in found for k in range(n)}
    else: others *= n
  return len(found) * others


def overlapped_time(times: Collection[float], sharp: int = _SHARP) -> float:
  """How long several things take that go on at the same time: a bit longer than the longest."""
  most = max(times)
  return most * math.fsum((t / most) ** sharp for t in times) ** (1 / sharp) if most else 0.0


class Streams:
  """The time of a kernel that makes no products of blocks, as a function of the blocks along its axes."""

  def __init__(self, roles: Roles, target: Target):
    self.target, self.sizes = target, roles.sizes
    self.free = [a.id for a in roles.free]
    self.bound = [i for i in self.sizes if i not in self.free]
    self.joins = len(roles.kernel.reduces)
    self.last = next(reversed(self.sizes), 0)
    self.work = [(ids, n) for ids, n in roles.work.items() if n]
    rounds = rounds_of(roles.kernel)
    self.reads = sum(not x.write and len(x.axes) >= len(self.sizes) for x in roles.accesses)
    self.accesses, self.scattered = [], 0
    for x in roles.accesses:
      # an axis that stands for several (a0//56, a0%56) goes on through memory, what an index in memory says does not
      folded = not any(u.op is Ops.LOAD for u in toposort(x.node.src[1:2]))
      steps = sorted((abs(s) if s is not None else 1 if folded else math.inf, i) for i, s in x.steps.items() if s != 0)
      size, moved = roles.footprint(x), {i for _, i in steps}
      last = max((n for n, i in enumerate(self.free, 1) if i in moved and size > REST * target.cache), default=0)
      apart = [i for i in self.free[:last] if i not in moved]   # programs along these read it again much later
      own = fastest_axis(x, self.sizes)
      wide = vector(x, own) // x.itemsize if own is not None else 1
      # an address and a condition for each element, where no thread takes several at once
      if own is not None and vector(x, own) < VECTOR_BYTES // 2: self.scattered = ADDRESS
      self.accesses.append((x, steps, size, rounds.get(x.node, 1), apart, own, wide))

  def seconds(self, tiles: Mapping[int, int], copied: Collection[int] = (), warps: int = 0,
              rows: Mapping[int, int] = NO_COPIES) -> float:
    """The time with blocks of these sizes, ``copied`` axes and so many ``rows`` written out; infinite if registers overflow."""
    target, sizes = self.target, self.sizes
    cores = target.cores
    out = {**{i: sizes[i] for i in copied}, **rows}   # how many steps of an axis are written out
    trips = {i: -(-n // (out.get(i, 1) * tiles.get(i, 1))) for i, n in sizes.items()}
    programs, rounds = (prod(trips[i] for i in ids) for ids in (self.free, self.bound))
    padded = {i: power_of_two(n) for i, n in tiles.items()}
    block = prod(padded.values())
    warps = warps or warps_for(block)
    if out: values = MOST_VALUES + prod(rows.values()) - 1
    else: values = 2 if self.joins and rounds > 1 else max(1, min(self.reads, MOST_VALUES))
    registers = KEPT_REGISTERS + (values + self.scattered) * -(-block // (WARP * warps))
    # programs on a core at the same time
    fit = min(target.warps // warps, target.resident, target.register_file // (registers * WARP * warps))
    if registers > MOST_REGISTERS or not fit: return math.inf
    uneven = -(-programs // cores) * cores / programs if programs < MANY_PROGRAMS * cores else 1.0
    memory = cache = lines = touched = 0.0
    phases = 1
    # threads have neighbours along one axis, as many as the widest access takes at once
    keys = [(len(x.steps.keys() - copied), wide, i) for x, *_, i, wide in self.accesses if i is not None and i not in out]
    _, widest, side = max(keys, default=(0, 1, self.last))
    most, along = max(1, block // (WARP * warps)), padded.get(side, 1)
    each_thread = min(widest, along, most)
    row = min(WARP, max(1, along // each_thread))   # lanes that lie along the axis
    for x, steps, size, times, apart, own, wide in self.accesses:
      itemsize = x.itemsize
      run = segments = own_run = own_segments = 1   # of all copies, of one
      far: list[tuple[float, int]] = []
      for step, i in steps:
        n = out[i] if i in out else min(tiles.get(i, 1), sizes[i])
        if n == 1: continue
        if i not in out:
          if step <= own_run or step <= run and step * itemsize < target.line: own_run += int(step) * (n - 1)
          else: own_segments *= n
        if step <= run: run += int(step) * (n - 1)
        elif i in out: far.append((step, n))
        else: segments *= n
      segments *= places(far)
      copies = places([(step, out[i]) for step, i in steps if i in out])
      inner = any(i in self.bound and trips[i] > 1 for _, i in steps)
      each = programs * (rounds * times if inner else 1)
      if inner: phases = max(phases, times)
      # what lies along another axis is moved by other threads
      there, thread = side, each_thread
      if own is not None and own != side and padded.get(own, 1) > 1: there, thread = own, min(wide, padded[own], most)
      unaligned = SECTOR if wide * itemsize < VECTOR_BYTES and own == there else 0
      moved = segments * max(-(-run * itemsize // SECTOR) * SECTOR + unaligned, target.line if segments > 1 else SECTOR)
      cache += each * moved
      lanes = prod([padded[i] for _, i in steps if i in padded])
      # a warp's lanes take what lies ``thread`` elements apart, at once or one after the other
      step = abs(found) if (found := x.steps.get(there, 0)) is not None else FOLDED
      threads = min(WARP, max(1, padded.get(there, 1) // thread))
      taken = max(1, min(thread, wide)) if own == there else 1
      near = max(1, -(-(WARP if segments == 1 else threads) * thread * step * itemsize // target.line))
      near = min(WARP, near if segments == 1 else WARP // threads * min(threads, near))
      asked = lanes / (WARP * taken)
      lines += each * copies * max(own_segments * -(-own_run * itemsize // target.line),
                                   asked * max(1, near / TAGS, WARP * taken * itemsize / target.line))
      touched += each * copies * asked * WARP * TOUCH
      again, shared = prod(trips[i] for i in apart), prod(trips[i] for _, i in steps if i in self.free)
      if inner and times > 1 and size // shared * min(shared, fit * cores) > REST * target.cache: again *= times
      memory += size * again * (1 + (JUMP_BYTES + unaligned) / (run * itemsize))
    elements = {i: trips[i] * padded.get(i, 1) * out.get(i, 1) for i in sizes}
    alu = touched + sum(n * prod([elements[i] for i in ids]) for ids, n in self.work)
    if side in self.bound and row > 1:
      parts = row * min(warps, max(1, along // (each_thread * row)))   # lanes that have a part of one sum
      alu += self.joins * programs * (block // along) * parts * (row.bit_length() - 1) * SHUFFLE
    each_round = target.latency + (target.iteration if rounds > 1 else 0.0)
    alone = target.start + phases * rounds * each_round + self.joins * target.join
    alone += alu / (programs * WARP * warps) / target.clock
    share = max(1.0, cores / (ALONE * programs))
    return overlapped_time((
      memory / target.bandwidth * share, cache / target.cache_bandwidth * share, lines / (cores * target.clock) * uneven,
      alu / (cores * target.alu_lanes * target.clock) * uneven, -(-programs // (fit * cores)) * alone,
      programs / cores * target.starts))


def pass_seconds(moved: int, target: Target, bandwidth: float = 0) -> float:
  """The time of a kernel that moves so many bytes through memory, or what has another bandwidth."""
  return target.launch + target.start + target.latency + moved / (bandwidth or target.bandwidth)


def sum_parts(outputs: int, count: int, size: int, columns: bool, most: int, target: Target) -> int:
  """In how many parts a reduction that is no product is made: ``count`` elements for each of so many outputs, ``size`` bytes in
  all. ``columns``: neighbouring outputs lie side by side in memory. 1 where that gains nothing."""
  elements = outputs * count
  wide = max(1, min(outputs, target.line * elements // max(size, 1))) if columns else 1   # outputs of a program at least
  def seconds(parts: int) -> float:
    programs = -(-outputs // wide) * parts
    rounds = -(-elements // (programs * ROUND))
    alone = target.start + rounds * (target.latency + target.iteration) + target.join
    if parts > 1: alone += pass_seconds(2 * parts * outputs * 4, target)
    share = max(1.0, target.cores / (ALONE * programs))
    return overlapped_time((size / target.bandwidth * share, -(-programs // (TOGETHER * target.cores)) * alone))
  best, least = 1, seconds(1)
  for parts in powers(2, most):
    if (now := seconds(parts)) < _WORTH * least: best, least = parts, now
  return best


def estimate(kernel: Kernel, target: Target) -> float:
  """Seconds of a kernel after its Opts: by ``Streams`` where it makes no product, else by :func:`of_product`."""
  if not (target.blocks and kernel.plain and kernel.tiles) or any(a.programs for a in kernel.axes) or \
    (roles := Roles(kernel)).product is not None: return of_product(kernel, target)
  told = [o.n for o in kernel.applied if o.name == "warps"]
  kinds = AxisKind.TILE, AxisKind.UNROLL, AxisKind.UPCAST
  tiles, copied, rows = [{a.id: a.known for a in kernel.of_kind(kind)} for kind in kinds]
  return Streams(roles, target).seconds(tiles, copied.keys(), told[-1] if told else 0, rows)


def of_product(kernel: Kernel, target: Target) -> float:
  """Seconds, from memory traffic, cores that idle in the last wave, and blocks that overflow registers or shared memory."""
  sizes = {a.rng: a.count for a in kernel.axes}
  tiles = {a.rng for a in kernel.tiles}
  spread = {a.rng: a.count for a in kernel.axes if a.kind is AxisKind.GRID or a.programs}   # over programs
  programs = prod(spread.values())
  rounds = volume(a for a in kernel.loops if not a.programs)
  cores = max(target.cores, 1)
  traffic = live = read = 0.0
  for u in kernel.nodes:
    if u.op in LOAD_OR_STORE and u.src[0].op is Ops.DEFINE_GLOBAL:
      moved = prod(sizes.get(r, 1) for r in u.src[1].ranges if r not in spread) * u.dtype.itemsize   # by one program
      traffic += moved * programs
      if u.op is Ops.LOAD and rounds > 1: read += moved / rounds
    if u.op is Ops.REDUCE or (u.op is Ops.STORE and u.src[0].op is Ops.DEFINE_LOCAL):
      live = max(live, prod(sizes[r] for r in u.ranges & tiles) * 4.0)
  waves = -(-programs // cores) * cores / max(programs, 1)
  crowded = max(1.0, STAGES * read / target.local_memory) if target.blocks and target.local_memory else 1.0
  iterations = programs * rounds / cores * target.iteration if target.blocks else 0.0
  crowded *= crowded * max(1.0, live / target.accumulators)
  return (traffic / target.bandwidth + iterations) * waves * crowded + programs * target.start_bytes / target.bandwidth
