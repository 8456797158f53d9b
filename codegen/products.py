"""How long a product of blocks takes, and with which blocks it takes the least: for kernels, and before there are any, for
cutting a sum in parts."""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Iterable, Iterator

from .costs import profile
from .estimate import KEPT_REGISTERS, WARP, together
from .kernel import AxisKind, Kernel
from .roles import free
from .target import Target
from .uop import Ops, UOp, prod, toposort

FEW = 32                 # rows or columns up to which a product is bound by memory,
LONG = 4                 # and takes so many times as much of the sum at a time
LARGER = 1.08            # of the least time: a larger block is better as long as it takes no more
SPLIT = 1.2              # of the least time: parts of a sum must gain so much, for their results go through memory once more
LARGE = 128 * 128        # elements of a block, from more on eight warps make it
PIPELINE = 4             # blocks of each factor that are in shared memory at once
ADDRESSES = 40           # registers of a thread for addresses, beside those of any kernel
SHARP = 16               # see ``together``: a pipeline does all at once
MOST_REGISTERS = 255     # of a thread; what needs more of them goes to memory and back,
SPILLED = 4              # which takes the more time the more it is: this power of how many times as many
HALF = 2                 # bytes of an element for which rates are given

Blocks = tuple[int, int, int]


@dataclass(frozen=True)
class Work:
  """A product as the model sees it: rows, columns, what is summed, how many of them there are; the bytes of an element of the
  factors as they are read and as they are multiplied, and of the result; bytes of memory of both factors. Of what is made of the
  result, an element: the bytes that are read for it besides, and vector operations."""
  m: int
  n: int
  k: int
  others: int = 1
  read: int = 2
  multiplied: int = 2
  written: int = 2
  factors: int = 0
  beside: int = 0
  operations: float = 0.0

  @staticmethod
  def of(kernel: Kernel, m: int, n: int, sides: Iterable[UOp]) -> Work:
    """The product that a kernel makes, its blocks along axes ``m`` and ``n``."""
    rows, columns = kernel.axis(m).count, kernel.axis(n).count
    others = prod(a.count for a in free(kernel) if a.id not in (m, n))
    summed = prod(a.count for a in kernel.of_kind(AxisKind.LOOP) if a.id in kernel.bound)
    read = max((u.dtype.itemsize for u in toposort(sides) if u.op is Ops.LOAD and u.dtype.kind == "f"), default=2)
    sizes = [prod(n if isinstance(n, int) else 1 for n in p.shape) * p.dtype.itemsize for p in kernel.params if not p.written]
    written = max(p.dtype.itemsize for p in kernel.params if p.written)
    info, within, each = profile(kernel), set(toposort(sides)), {m, n}
    beside = sum(x.itemsize for x in info.accesses if not x.write and x.node not in within and each <= x.axes)
    operations = sum(cost for axes, cost in info.work.items() if each <= axes and not axes & kernel.bound)
    multiplied = max(s.dtype.itemsize for s in sides)
    return Work(rows, columns, summed, others, max(read, 2), multiplied, written, sum(sizes), beside, operations)

  @property
  def memory(self) -> int:
    """Bytes that go through memory at least."""
    factors = self.factors or self.others * self.k * (self.m + self.n) * self.read
    return factors + self.others * self.m * self.n * self.written


def best_blocks(work: Work, target: Target) -> tuple[float, Blocks]:
  """The least time, and the largest blocks that take hardly longer."""
  found = [(product_seconds(work, b, target), b) for b in candidates(work, target)]
  least = min(seconds for seconds, _ in found)
  return next((seconds, b) for seconds, b in found if seconds <= LARGER * least)


def candidates(work: Work, target: Target) -> Iterator[Blocks]:
  """Blocks to choose from, the largest first."""
  depth = target.row_bytes // work.read
  wide = work.multiplied > HALF
  if min(work.m, work.n) <= FEW and not wide:   # long pieces of the large matrix
    yield (*target.dots[-1], LONG * depth)
    return
  for bm, bn in target.dots[:1] if wide else target.dots:
    if work.m >= bm and work.n >= bn: yield bm, bn, depth
    elif work.m >= bn and work.n >= bm and bm * bn <= LARGE: yield bn, bm, depth
  yield (*target.dots[-1], depth)


def product_seconds(work: Work, blocks: Blocks, target: Target) -> float:
  """The time of a product with blocks of so many rows, columns and elements of the sum."""
  bm, bn, bk = blocks
  programs = -(-work.m // bm) * -(-work.n // bn) * work.others
  bm, bn = (max(min(b, 1 << (n - 1).bit_length()), WARP // 2) for b, n in ((bm, work.m), (bn, work.n)))
  rounds = -(-work.k // bk)
  moved = (bm + bn) * bk * work.read                                    # by a program in a round
  warps = 8 if bm * bn > LARGE else 4
  each = bm * bn / (WARP * warps)                                       # elements of the result of a thread
  # what is read besides and what is stored is laid out anew before it meets the sum, or after it
  needed = KEPT_REGISTERS + ADDRESSES + each * (1 + (work.beside + work.written) / 4 if work.beside else 1)
  registers = int(min(needed, MOST_REGISTERS))
  stages = min(rounds, PIPELINE)
  fit = max(1, min(target.register_file // (registers * WARP * warps), target.local_memory // (stages * moved),
                   target.warps // warps))
  rate = target.dot_flops / target.cores * HALF / max(work.multiplied, 1) * target.dot_rate(bm, bn)
  multiply = 2 * bm * bn * bk / rate
  load = moved / (target.cache_bandwidth / target.cores)
  stored = bm * bn * (work.written + work.beside) / (target.cache_bandwidth / target.cores)
  after = bm * bn * work.operations / (target.alu_lanes * target.clock) * max(needed / MOST_REGISTERS, 1.0) ** SPILLED
  alone = target.start + target.latency + rounds * (max(multiply, load) + target.round) + target.join + stored + after
  slots = fit * target.cores
  busy = -(-programs // target.cores)                                   # programs that one core makes
  waves = -(-programs // slots)
  ends = target.start + target.latency + target.join                    # of the first programs and the last: nothing else runs
  return together((
    ends + work.memory / target.bandwidth, ends + programs * rounds * moved / target.cache_bandwidth,
    # another program multiplies meanwhile, if there is room for one
    ends + busy * (rounds * multiply + after if fit == 1 else max(rounds * multiply, after)), waves * alone, busy * target.starts,
  ), SHARP)


def parts_of(work: Work, most: int, target: Target) -> int:
  """In how many parts the sum of a product is made by programs of their own, the partial sums added by another kernel (split-k):
  1 where that gains nothing."""
  whole = best_blocks(work, target)[0]
  times = {1: whole}
  parts = 2
  while parts <= most:
    cut = replace(work, k=-(-work.k // parts), others=work.others * parts, written=4, factors=work.factors or work.memory)
    times[parts] = best_blocks(cut, target)[0] + joined(parts * work.others * work.m * work.n * 4, target)
    parts *= 2
  least = min(times.values())
  return next(p for p, seconds in times.items() if seconds <= LARGER * least) if least * SPLIT < whole else 1


def joined(partial: int, target: Target) -> float:
  """The time of the kernel that adds partial sums of so many bytes."""
  return target.launch + target.start + target.latency + partial / (
    target.cache_bandwidth if partial < target.cache // 2 else target.bandwidth)


