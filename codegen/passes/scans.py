"""Pass: running sums of the scheduler's kernels -> statements: a loop along the scanned axis that carries the sum so far.

    STORE(y, SCAN(x, ADD, a1))   ->   STORE(run, 0), FOR(a1, STORE(run, run + x), STORE(y, run))

On a CPU a program makes a few rows at once, whose chains of additions do not wait for each other, or a block of columns. On
targets with blocks a loop goes over blocks, of which each is scanned by itself. Float sums are sums of sums everywhere.
"""
from __future__ import annotations

from typing import NamedTuple

from .. import index as ix
from ..ir import BinaryOps, Ops, Target, UOp, identity, power_of_two
from ..kernel import Axis, AxisKind, Kernel
from ..opts import Warps
from ..opts.axes import or_identity
from .builder import EACH, Builder, Loop, chooses, for_, keep, reduce_over, store_over, variable, with_gated_loads

# ---- CPUs
ONE = 128              # elements up to which one accumulator adds up all; else parts, whose sums go to another
CHAINS = 4             # rows at a time: an addition takes as many cycles
_COLUMNS = 1024, 64  # columns at a time, at most and at least
# ---- targets with blocks
_BLOCK = 4096                                # elements of a block
WIDEST_COLUMNS, NARROWEST_COLUMNS = 128, 32  # columns of a block
_WARPS = 8                                   # of a program with a whole block


class Scan(NamedTuple):
  """What a SCAN of the scheduler says: ``every`` so many elements it starts anew, 0 for never."""
  combiner: BinaryOps
  axis: int
  reverse: bool
  every: int = 0


def lower_scans(kernel: Kernel, target: Target | None = None) -> Kernel:
  """The scheduler's SCANs, which stand anywhere in a value, as a loop with a carry: SCAN -> FOR, run = run + x, y = run."""
  return kernel if not kernel.scans else (_Blocks if target and target.blocks else _Loops)(kernel, target).lowered()


class _Lowering(Builder):
  """What both ways have in common: the axes, and the place of the k-th element of a part of a row."""

  def __init__(self, kernel: Kernel, target: Target | None):
    super().__init__(kernel, target)
    self.scans = kernel.scans
    self.spec = Scan(*self.scans[0].arg)
    self.axis = kernel.axis(self.spec.axis)
    self.outer = [a for a in kernel.axes if a is not self.axis]
    n, every = self.axis.size, self.spec.every
    self.known = isinstance(n, int)
    self.first, self.length = ix.ZERO, ix.node(n)   # of a part: its first element in the scan's order, how many it has
    if every and (parts := ix.rounds(n, every)) != 1:
      self.part = Axis(self.next, parts, AxisKind.GRID)
      self.next += 1
      self.first = ix.mul(self.part.rng, every)
      self.length = ix.const(every) if ix.divides(every, n) else ix.least(ix.sub(ix.node(n), self.first), every)

  @property
  def count(self) -> int:
    """About how many elements a part has."""
    return ix.count(self.spec.every or self.axis.size)

  def side_by_side(self) -> Axis | None:
    """The axis, other than the scanned one, along which neighbours lie side by side in memory."""
    return self.beside(*self.kernel.body[0].src[:2])

  def narrowed(self, axis: Axis, width: int, least: int, programs: int) -> int:
    """The columns of a block, so many or fewer, that leave every core some programs."""
    others = ix.count(ix.product(a.size for a in self.outer if a is not axis)) * self.parts
    while width > least and others * -(-axis.count // width) < programs * self.cores: width //= 2
    return width

  def columns(self, axis: Axis, width: int) -> tuple[list[Axis], UOp, Loop | None]:
    """A block of columns: its axis, which of them there are, the loop over the tasks of a program."""
    outer, n, blocks = [a for a in self.outer if a is not axis], axis.size, ix.rounds(axis.size, width)
    task, loop = self.programs(ix.product([*(a.size for a in outer), blocks]), self.count * width)
    tile, = self.tiles(width)
    self.along(outer, ix.fdiv(task, blocks))
    begin = ix.mul(ix.mod(task, blocks), width)
    if chooses(self.target) and isinstance(n, int) and n % width and not self.kernel.in_place: begin = ix.least(begin, n - width)
    self.table[axis.rng] = at = ix.add(begin, tile.rng)
    return [tile], ix.lt(at, n), loop

  def go_to(self, k: UOp) -> None:
    """The scanned axis at the k-th element of a part."""
    at = ix.add(self.first, k)
    self.table[self.axis.rng] = ix.sub(ix.sub(ix.node(self.axis.size), 1), at) if self.spec.reverse else at


class _Loops(_Lowering):
  """An element of each row, or a row of a block of columns, after another."""

  def lowered(self) -> Kernel:
    """The kernel with statements."""
    scans = self.scans
    several = chooses(self.target)
    columns = self.side_by_side() if several else None
    if columns is not None and columns.count < self.target.lanes: columns = None  # type: ignore[union-attr]
    together, valid, loop = self.rows(several) if columns is None else self.columns(columns, self.width(columns))
    longest = ix.vmax(self.length) if self.known else 0
    blocks = any(s.dtype.kind == "f" and s.arg[0] in (BinaryOps.ADD, BinaryOps.MUL) for s in scans) and \
      (not self.known or longest > ONE)
    runs, carries = ([variable(f"{name}{i}", s.dtype, *together) for i, s in enumerate(scans)] for name in ("run", "carry"))
    none = [UOp.const(s.dtype, identity(s.arg[0], s.dtype)) for s in scans]
    most = longest if self.known else self.spec.every or self.axis.size
    # as many parts as elements of a part: what an element goes through is rounded least often
    part = 1 << power_of_two(ix.count(most)).bit_length() // 2
    block = self.loops(ix.rounds(most, part))[0] if blocks else None
    step, = self.loops(part if blocks else most)
    begin = ix.mul(block.rng, part) if block is not None else ix.ZERO
    self.go_to(ix.add(begin, step.rng))
    add = [store_over(run, UOp.alu(s.arg[0], run, with_gated_loads(self.here(s.src[0]), valid)))
           for run, s in zip(runs, scans)]
    sums = [UOp.alu(s.arg[0], c, run) for s, c, run in zip(scans, carries, runs)] if blocks else runs
    end = ix.least(ix.sub(self.length, begin), part) if blocks else self.length
    inner = for_(step, ix.number(end), *add, *self.stores(dict(zip(scans, sums)), valid, together))
    body = [*map(store_over, runs, none), inner]
    if block is not None:
      body = [*map(store_over, carries, none),
              for_(block, ix.number(ix.cdiv(self.length, part)), *body, *map(store_over, carries, sums))]
    return self.made(body, loop)

  def rows(self, copies: bool) -> tuple[list[Axis], UOp, Loop | None]:
    """Rows in copies: the axis of the copies, which of them there are, the loop over the tasks of a program."""
    outer = list(self.outer)
    if copies and self.part is not None and ix.divides(self.spec.every, self.axis.size):   # parts of a row are rows
      outer.append(self.part)
      self.part = None
    n = ix.product(a.size for a in outer)
    many = CHAINS if copies and isinstance(n, int) and (n % CHAINS == 0 or n > CHAINS and not self.kernel.in_place) else 1
    row, loop = self.programs(ix.rounds(n, many), many * self.count)
    tile = [self.new(many, AxisKind.UPCAST)] if many > 1 else []
    for a in tile:
      # the last rows are some of those before once more, where there are not as many
      begin = ix.mul(row, many)
      row = ix.add(begin if n % many == 0 else ix.least(begin, n - many), a.rng)  # type: ignore[operator]
    self.along(outer, row)
    self.first = self.here(self.first)
    return tile, ix.TRUE, loop

  def width(self, axis: Axis) -> int:
    """The columns of a block."""
    n, (most, least) = axis.size, _COLUMNS
    width = self.narrowed(axis, most, least, EACH)
    if not isinstance(n, int): return min(width, max(16, power_of_two(axis.count)))
    # blocks of one size, of whole vectors
    return n if n <= width else width if self.kernel.in_place else -(-n // (16 * -(-n // width))) * 16


class _Blocks(_Lowering):
  """A block of each row, or of a few columns, after another."""

  def lowered(self) -> Kernel:
    """The kernel with statements."""
    axis, size = self.side_by_side(), min(power_of_two(self.count), _BLOCK)
    if axis is not None and axis.count >= NARROWEST_COLUMNS // 2:
      width = self.narrowed(axis, min(WIDEST_COLUMNS, power_of_two(axis.count)), NARROWEST_COLUMNS, 2)
      (tile, valid, _), size = self.columns(axis, width), min(size, _BLOCK // width)
    else: tile, valid = self.rows_of_blocks(size)
    whole = self.known and ix.vmax(self.length) <= size   # one block has all
    most = ix.number(self.length) if not self.length.ranges else self.spec.every
    block = None if whole else self.loops(ix.rounds(most, size))[0]
    step, = self.tiles(size)
    begin = ix.ZERO if block is None else ix.mul(block.rng, size)
    # the block's elements as they lie in memory: backwards the last comes first
    k = ix.sub(ix.add(begin, size - 1), step.rng) if self.spec.reverse else ix.add(begin, step.rng)
    self.go_to(k)
    there = ix.lt(k, self.length)
    body, start, carried, scanned = list[UOp](), list[UOp](), list[UOp](), dict[UOp, UOp]()
    for i, s in enumerate(self.scans):
      fn = s.arg[0]
      value = or_identity(there, with_gated_loads(self.here(s.src[0]), ix.both(valid, there)), fn)
      if step.rng not in value.ranges: value = keep(body, f"same{i}", value, *tile, step)   # the same all along
      scanned[s] = keep(body, f"run{i}", UOp(Ops.SCAN, s.dtype, (value,), (fn, step.id, self.spec.reverse)), *tile, step)
      if block is None: continue
      carry = variable(f"carry{i}", s.dtype, *tile)
      scanned[s] = UOp.alu(fn, carry, scanned[s])
      # what the block ends with, found by its place: Triton 3.6 does not compile a loop that adds up sums and uses them meanwhile
      last = or_identity(ix.lt(step.rng, 1) if self.spec.reverse else ix.ge(step.rng, size - 1), scanned[s], fn)
      carried.append(store_over(carry, keep(body, f"sum{i}", reduce_over(fn, last, step), *tile)))
      start.append(store_over(carry, UOp.const(s.dtype, identity(fn, s.dtype))))
    body += [*self.stores(scanned, ix.both(valid, there), (*tile, step)), *carried]
    if block is not None: body = [*start, for_(block, ix.number(ix.cdiv(self.length, size)), *body)]
    warps = size * ix.elements(a.size for a in tile) * _WARPS // _BLOCK
    return self.made(body, applied=(Warps(max(1, min(_WARPS, warps))),))
