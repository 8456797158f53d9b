"""How long a product of blocks takes, and with which blocks it takes the least: of kernels, and before there are any."""
from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Iterable, Iterator, Sequence

from ..ir import Ops, Target, UOp, dtypes, may_round, power_of_two, prod, toposort
from ..kernel import Kernel, access_profile
from .gpu_cost import KEPT_REGISTERS, MOST_REGISTERS, WARP, overlapped_time, pass_seconds, powers
from .roles import VECTOR_BYTES, fastest_axis

_FEW = 32                 # rows or columns up to which a product is bound by memory
_LONG = 4                 # times as much of the sum that a product bound by memory takes at a time
LARGER = 1.08            # of the least time: a larger block is better as long as it takes no more
SPLIT = 1.2              # of the least time: parts of a sum must gain so much, for their results go through memory once more
LARGE_BLOCK_ELEMENTS = 128 * 128        # elements of a block, from more on eight warps make it
PIPELINE = 4             # blocks of each factor that are in shared memory at once
ADDRESSES = 40           # registers of a thread for addresses, beside those of any kernel
_SHARP = 16               # see ``overlapped_time``: a pipeline does all at once
# times too many registers, from which on half a large block is better: 0.83 to 0.95 of the time then, 0.96 to 1.1 at 1.7 (H200)
CROWDED = 1.9
SPILLED = 4              # the power of how many times too many registers there are, that the time grows by
HALF = 2                 # bytes of an element for which rates are given
EXACT = 0.75             # of the rate of vectors: products of float32 that are not rounded, in blocks of EXACT_BLOCK
EXACT_BLOCK = 64         # rows and columns; smaller blocks read more of shared memory for each
TURNED = 0.15            # of the rate of 16-bit products: those of tf32 by two warps each (110 to 128 TFLOP/s on an H100)
TURNED_WARPS = 2
CROSSED = 3              # times as long, where columns lie along what is summed: their threads read the same banks
# loads a cycle that a core makes of rows which begin at no multiple of VECTOR_BYTES, so that no thread reads as many at once: of
# fewer bytes than go past the registers, and of others (products of odd sizes on an H200: 1.1 to 3.8, and about 8)
NARROW_LOADS, PAST_LOADS, PAST_BYTES = 2.0, 8.0, 4
_COPIED = 0.9             # of the time without copies of factors: copies must take less

Blocks = tuple[int, int, int]


@dataclass(frozen=True)
class ProductWork:
  """A product as the model sees it: its rows, its columns, the length of its sums, and how many such products there are. Bytes of
  an element: of the factors as they are read and as they are multiplied, and of the result. Bytes of memory of both factors. For
  an element of the result, what the epilogue takes: bytes that it reads and stores (0: as of the result), and vector operations.
  Bytes of each factor that one thread can read at a time. ``crossed``: the second factor lies along what is summed; ``rounded``:
  factors of float32 may be rounded to tf32; ``turned``: and one of them does not lie along what is summed."""
  m: int
  n: int
  k: int
  others: int = 1
  read: int = 2
  multiplied: int = 2
  written: int = 2
  factors: int = 0
  beside: int = 0
  stored: int = 0
  operations: float = 0.0
  vectors: tuple[int, int] = VECTOR_BYTES, VECTOR_BYTES
  crossed: bool = False
  rounded: bool = False
  turned: bool = False

  @staticmethod
  def around(kernel: Kernel, sizes: tuple[int, int, int, int], each: frozenset[int], sides: Iterable[UOp]) -> ProductWork:
    """That of a kernel with so many rows, columns, elements of a sum, and products; a block is along axes ``each``."""
    sides = tuple(sides)
    within = set(toposort(sides))
    loads = [u for u in within if u.op is Ops.LOAD]
    read = max([u.dtype.itemsize for u in loads if u.dtype.kind == "f"] or [min([u.dtype.itemsize for u in loads], default=2)])
    known = [prod(n if isinstance(n, int) else 1 for n in p.shape) * p.dtype.itemsize for p in kernel.params if not p.written]
    written = max(p.dtype.itemsize for p in kernel.params if p.written)
    info = access_profile(kernel)
    beside = sum(x.itemsize for x in info.accesses if not x.write and x.node not in within and each <= x.axes)
    operations = sum(cost for axes, cost in info.work.items() if each <= axes and not axes & kernel.bound)
    stored = sum(p.dtype.itemsize for p in kernel.params if p.written)
    return ProductWork(*sizes, read, max(s.dtype.itemsize for s in sides), written, sum(known), beside, stored, operations,
                       rounded=may_round(sides))

  @property
  def exact(self) -> bool:
    """Whether it is one of float32 that rounds no factor: no matrix unit makes it."""
    return self.multiplied == 4 and not self.rounded

  @property
  def memory(self) -> int:
    """Bytes that go through memory at least."""
    factors = self.factors or self.others * self.k * (self.m + self.n) * self.read
    return factors + self.others * self.m * self.n * self.written


def is_turned(kernel: Kernel, sides: Iterable[UOp], target: Target) -> bool:
  """Whether warp groups would have to turn a factor of float32 around, as its elements do not lie along what is summed: a product
  of 512 x 4608 x 4096 takes 0.09 ms where both do, and up to 0.8 where none does; by two warps each 0.17 (an H100)."""
  if not target.warp_groups or not may_round(sides): return False
  loads = {u for u in toposort(sides) if u.op is Ops.LOAD and u.dtype is dtypes.float32}
  along = [fastest_axis(x, kernel.counts) for x in access_profile(kernel).accesses if x.node in loads]
  return any(i is not None and i not in kernel.bound for i in along)


def best_blocks(work: ProductWork, target: Target) -> tuple[float, Blocks]:
  """The least time, and the largest blocks that take hardly longer."""
  found = [(product_seconds(work, b, target), b) for b in _candidates(work, target)]
  least = min(seconds for seconds, _ in found)
  return next((seconds, b) for seconds, b in found if seconds <= LARGER * least)


def blocks_and_warps(work: ProductWork, target: Target) -> tuple[Blocks, int]:
  """The best blocks, and warps of a program (0: as many as usual). Where a large block leaves far too few registers for what
  comes after the sum, half of its rows by as many warps: multiplications wait for each other otherwise."""
  rows, columns, depth = best_blocks(work, target)[1]
  crowded = _registers(work, rows * columns, WARP * 8) > CROWDED * MOST_REGISTERS
  if not crowded or rows >= columns or rows * columns <= LARGE_BLOCK_ELEMENTS: return (rows, columns, depth), 0
  return (rows // 2, columns, depth), 8


def _candidates(work: ProductWork, target: Target) -> Iterator[Blocks]:
  """Blocks to choose from, the largest first."""
  if work.multiplied > 4 or work.exact:   # float64, or float32 that is not rounded
    rows, columns, depth = target.double_dot if work.multiplied > 4 else target.exact_dot
    for r, c in ((rows, columns), (rows, columns // 2), (rows // 2, columns // 2)):
      if min(r, c) >= WARP // 2: yield r, c, depth
    return
  if work.turned:
    yield target.turned_dot
    return
  depth = target.row_bytes // work.read
  wide = work.multiplied > HALF
  if min(work.m, work.n) <= _FEW and not wide:   # long pieces of the large matrix
    yield *target.dots[-1], _LONG * depth
    return
  for bm, bn in target.dots[:1] if wide else target.dots:
    for rows, columns in dict.fromkeys(((bm, bn), (bn, bm))):
      if work.m >= rows and work.n >= columns: yield rows, columns, depth
  yield *target.dots[-1], depth


def multiplied_a_second(work: ProductWork, rows: int, columns: int, target: Target) -> float:
  """Operations a second of one core that multiplies blocks of so many rows and columns."""
  part = min(2 * rows * columns / (rows + columns) / EXACT_BLOCK, 1)
  if work.multiplied > 4: return target.double_flops / target.cores * part
  if work.exact: return EXACT * 2 * target.alu_lanes * target.clock * part / (CROSSED if work.crossed else 1)
  if work.turned: return TURNED * target.dot_flops / target.cores * part
  return target.dot_flops / target.cores * HALF / max(work.multiplied, 1) * target.dot_rate(rows, columns)


def _registers(work: ProductWork, elements: int, threads: int) -> float:
  """Of a thread, for a block of so many elements: what is read besides and what is stored is laid out anew before it meets the
  sum, or after it."""
  after = work.beside + (work.stored or work.written) if work.beside else 0
  return KEPT_REGISTERS + ADDRESSES + elements / threads * (1 + after / 4)


def product_seconds(work: ProductWork, blocks: Blocks, target: Target) -> float:
  """The time of a product with blocks of so many rows, columns and elements of the sum."""
  bm, bn, bk = blocks
  programs = -(-work.m // bm) * -(-work.n // bn) * work.others
  bm, bn = (max(min(b, power_of_two(n)), WARP // 2) for b, n in ((bm, work.m), (bn, work.n)))
  rounds = -(-work.k // bk)
  moved = (bm + bn) * bk * work.read                                    # by a program in a round
  threads = WARP * (8 if bm * bn > LARGE_BLOCK_ELEMENTS else 4)
  needed = _registers(work, bm * bn, threads)
  registers = int(min(needed, MOST_REGISTERS))   # what needs more of them goes to memory and back
  fit = max(1, min(target.register_file // (registers * threads), target.local_memory // (min(rounds, PIPELINE) * moved),
                   target.warps * WARP // threads))
  multiply = 2 * bm * bn * bk / multiplied_a_second(work, bm, bn, target)
  loads = [b * bk * work.read / v / (PAST_LOADS if v >= PAST_BYTES else NARROW_LOADS)
           for b, v in zip((bm, bn), work.vectors) if v < VECTOR_BYTES]
  narrow, bandwidth = sum(loads) / target.clock, target.cache_bandwidth / target.cores
  load = max(moved / bandwidth, narrow)
  if work.exact: multiply += narrow   # by the same units
  stored = bm * bn * (work.written + work.beside) / bandwidth
  after = bm * bn * work.operations / (target.alu_lanes * target.clock) * max(needed / MOST_REGISTERS, 1.0) ** SPILLED
  alone = target.start + target.latency + rounds * (max(multiply, load) + target.round) + target.join + stored + after
  busy = -(-programs // target.cores)                                   # programs that one core makes
  waves = -(-programs // (fit * target.cores))
  ends = target.start + target.latency + target.join                    # of the first programs and the last: nothing else runs
  return overlapped_time((
    ends + work.memory / target.bandwidth, ends + programs * rounds * moved / target.cache_bandwidth,
    # another program multiplies meanwhile, if there is room for one
    ends + busy * (rounds * multiply + after if fit == 1 else max(rounds * multiply, after)), waves * alone, busy * target.starts,
    ends + busy * rounds * narrow), _SHARP)


def worth_copying(work: ProductWork, sizes: Sequence[int], target: Target) -> tuple[bool, ...]:
  """Which factors, of so many bytes (0: not this one), are better copied first to where threads read VECTOR_BYTES at a time."""
  best, least = (False,) * len(sizes), _COPIED * best_blocks(work, target)[0]
  for which in itertools.product(*[(False, True) if n else (False,) for n in sizes]):
    if not any(which): continue
    a, b = (VECTOR_BYTES if copied else v for copied, v in zip(which, work.vectors))
    seconds = best_blocks(replace(work, vectors=(a, b), crossed=work.crossed and not which[1]), target)[0]
    seconds += sum(pass_seconds(2 * n, target) for n, copied in zip(sizes, which) if copied)
    if seconds < least: best, least = which, seconds
  return best


def split_k_parts(work: ProductWork, most: int, target: Target) -> int:
  """In how many parts the sum of a product is made by programs of their own (split-k); 1 where that gains nothing."""
  whole = best_blocks(work, target)[0]
  times = {1: whole}
  for parts in powers(2, most):
    cut = replace(work, k=-(-work.k // parts), others=work.others * parts, written=max(4, work.multiplied),
                  factors=work.factors or work.memory)
    partial = parts * work.others * work.m * work.n * cut.written   # bytes of the partial sums, which another kernel adds
    cached = target.cache_bandwidth if partial < target.cache // 2 else target.bandwidth
    times[parts] = best_blocks(cut, target)[0] + pass_seconds(partial, target, cached)
  least = min(times.values())
  return next(p for p, seconds in times.items() if seconds <= LARGER * least) if least * SPLIT < whole else 1


