"""Pass: running sums of the scheduler's kernels -> statements: a loop along the scanned axis that carries the sum so far.

    STORE(y, SCAN(x, ADD, a1))   ->   STORE(run, 0), FOR(a1, STORE(run, run + x), STORE(y, run))

On a CPU a program makes a few rows at once, whose chains of additions do not wait for each other, or a block of columns, whose
vectors it adds. On targets with blocks a loop goes over blocks. Each is scanned by itself, and the sum of the blocks before it is
added. Float sums are sums of sums everywhere: no accumulator takes more additions than a block has elements, or there are blocks.
"""
from __future__ import annotations

from typing import Iterable, NamedTuple

from .. import index as ix
from ..index.rewrite import rewrite, substitute
from ..ir.config import config
from ..ir.dtype import DType, dtypes
from ..ir.functions import identity
from ..ir.target import Target
from ..ir.uop import BinaryOps, Ops, UOp
from ..kernel import Axis, AxisKind, Kernel
from ..kernel.accesses import flat_index, steps_of
from ..opts import Warps
from ..opts.axes import or_identity

# ---- CPUs
ONE = 128              # elements up to which one accumulator adds up all; else parts, whose sums go to another
CHAINS = 4             # rows at a time: an addition takes as many cycles
_COLUMNS = (1024, 64)  # columns at a time, at most and at least
PROGRAM = 32768        # elements that a program is worth starting for
EACH = 4               # programs for each core, at least, before one makes several tasks
# ---- targets with blocks
_BLOCK = 4096                                # elements of a block
_ROWS = 2048                                 # of short rows, together
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
  if not kernel.scans: return kernel
  return (_Blocks if target is not None and target.blocks else _Loops)(kernel, kernel.scans, target).lowered()


class _Lowering:
  """What both ways have in common: the axes, the place of the k-th element of a part of a row, the variables."""

  def __init__(self, kernel: Kernel, scans: list[UOp], target: Target | None):
    self.kernel, self.scans, self.target = kernel, scans, target
    self.spec = Scan(*scans[0].arg)
    self.axis = kernel.axis(self.spec.axis)
    self.next = max(a.id for a in kernel.axes) + 1
    self.axes: list[Axis] = []
    self.table: dict[UOp, UOp] = {}        # the kernel's axes, by the new ones
    self.outer = [a for a in kernel.axes if a is not self.axis]
    self.cores = target.cores if target is not None else 1
    n, every = self.axis.size, self.spec.every
    self.parts: ix.Dim = ix.rounds(n, every) if every else 1
    self.first, self.length = ix.const(0), ix.node(n)   # of a part: its first element in the scan's order, how many it has
    if self.parts != 1:
      part = self.new(self.parts, AxisKind.GRID, listed=False)
      self.part = part
      self.first = ix.mul(part.rng, every)
      self.length = ix.const(every) if ix.divides(every, n) else ix.least(ix.sub(ix.node(n), self.first), every)

  def new(self, size: ix.Dim, kind: AxisKind, listed: bool = True) -> Axis:
    axis = Axis(self.next, size, kind)
    self.next += 1
    if listed: self.axes.append(axis)
    return axis

  def side_by_side(self) -> Axis | None:
    """The axis, other than the scanned one, along which neighbours lie side by side in memory."""
    store = self.kernel.body[0]
    shape = next(p.shape for p in self.kernel.params if p.uop is store.src[0])
    steps = steps_of(flat_index(shape, store.src[1].src))
    return next((a for a in self.outer if steps.get(a.id) == 1 and a.size != 1), None)

  def along(self, axes: Iterable[Axis], flat: UOp) -> None:
    """Put what a number among all values of some axes stands for in their place."""
    for a in reversed(list(axes)):
      self.table[a.rng], flat = ix.mod(flat, a.size), ix.fdiv(flat, a.size)

  def variable(self, name: str, dtype: DType, axes: Iterable[Axis]) -> UOp:
    """What reads a variable with an element for each value of some axes."""
    axes = list(axes)
    v = UOp(Ops.DEFINE_LOCAL, dtype, (), (name, tuple([a.known for a in axes]), "private"))
    return UOp(Ops.LOAD, dtype, (v, UOp(Ops.INDEX, ix.INT, tuple([a.rng for a in axes]))))

  def here(self, u: UOp, scanned: dict[UOp, UOp] | None = None) -> UOp:
    """A value of the kernel with the new axes, its SCANs replaced."""
    return substitute((u,), {**self.table, **(scanned or {})})[0]

  def stores(self, scanned: dict[UOp, UOp], gate: UOp, temporary: Iterable[Axis]) -> list[UOp]:
    """The kernel's STOREs; where one could write what another is yet to read, all values are there before the first."""
    found = []
    for s in self.kernel.body:
      index, value, *own = [with_gated_loads(self.here(x, scanned), gate) for x in s.src[1:]]
      found.append((s, index, value, ix.both(gate, *own)))
    out: list[UOp] = []
    if self.kernel.in_place and len(found) > 1:
      kept = [self.variable(f"out{i}", v.dtype, temporary) for i, (_, _, v, _) in enumerate(found)]
      out += [store_over(k, v) for k, (_, _, v, _) in zip(kept, found)]
      found = [(s, index, k, g) for k, (s, index, _, g) in zip(kept, found)]
    for s, index, value, g in found:
      out.append(UOp.unique(Ops.STORE, s.dtype, (s.src[0], index, value, *(() if g is ix.TRUE else (g,)))))
    return out

  def for_(self, axis: Axis, end: ix.Dim, *statements: UOp) -> UOp:
    return UOp.unique(Ops.FOR, dtypes.index, (ix.node(end), *statements), axis.id)

  def made(self, body: Iterable[UOp]) -> Kernel:
    return self.kernel.with_(axes=tuple(self.axes), body=tuple(body))

  def lowered(self) -> Kernel:
    """The kernel with statements."""
    raise NotImplementedError


class _Loops(_Lowering):
  """An element of each row, or a row of a block of columns, after another."""

  def lowered(self) -> Kernel:
    plain = config.noopt or self.target is None or self.target.lanes == 1 or self.target.locals
    columns = None if plain else self.side_by_side()
    if columns is not None and columns.count < self.target.lanes: columns = None  # type: ignore[union-attr]
    tile, valid, begin = self.rows(not plain) if columns is None else self.columns(columns)
    together = [tile] if tile is not None else []
    blocks = any(s.dtype.kind == "f" and s.arg[0] in (BinaryOps.ADD, BinaryOps.MUL) for s in self.scans) and \
      (not isinstance(self.axis.size, int) or ix.vmax(self.length) > ONE)
    runs = [self.variable(f"run{i}", s.dtype, together) for i, s in enumerate(self.scans)]
    carries = [self.variable(f"carry{i}", s.dtype, together) for i, s in enumerate(self.scans)] if blocks else []
    none = [UOp.const(s.dtype, identity(s.arg[0], s.dtype)) for s in self.scans]
    most = ix.vmax(self.length) if isinstance(self.axis.size, int) else self.spec.every or self.axis.size
    # as many parts as elements of a part: what an element goes through is rounded least often
    part = 1 << (max(ix.count(most) - 1, 0).bit_length() + 1) // 2
    if blocks:
      block = self.new(ix.rounds(most, part), AxisKind.LOOP)
      step = self.new(part, AxisKind.LOOP)
      end: UOp = ix.least(ix.sub(self.length, ix.mul(block.rng, part)), part)
      k = ix.add(ix.mul(block.rng, part), step.rng)
    else:
      step = self.new(most, AxisKind.LOOP)
      end, k = self.length, step.rng
    at = ix.add(self.first, k)
    self.table[self.axis.rng] = ix.sub(ix.sub(ix.node(self.axis.size), 1), at) if self.spec.reverse else at
    add = [store_over(run, UOp.alu(s.arg[0], run, with_gated_loads(self.here(s.src[0]), valid)))
           for run, s in zip(runs, self.scans)]
    scanned = {s: UOp.alu(s.arg[0], carries[i], runs[i]) if blocks else runs[i] for i, s in enumerate(self.scans)}
    inner = self.for_(step, ix.number(end), *add, *self.stores(scanned, valid, together))
    start = [store_over(run, x) for run, x in zip(runs, none)]
    if blocks:
      carry = [store_over(c, UOp.alu(s.arg[0], c, run)) for c, run, s in zip(carries, runs, self.scans)]
      start = [*[store_over(c, x) for c, x in zip(carries, none)],
               self.for_(block, ix.number(ix.cdiv(self.length, part)), *start, inner, *carry)]
    else: start.append(inner)
    return self.made([self.for_(*begin, *start)] if begin else start)

  def tasks(self, rows: ix.Dim, each: int) -> tuple[UOp, tuple[Axis, ix.Dim] | None]:
    """Tasks by programs: the number of a task, and the loop over those of a program where one is too short to be worth it."""
    parts = ix.count(self.parts)
    n = ix.count(rows)
    several = min(-(-PROGRAM // max(each, 1)), n * parts // (EACH * self.cores))
    if config.noopt or self.target is None or self.target.lanes == 1: several = 1
    if several <= 1:
      task = self.new(rows, AxisKind.GRID) if rows != 1 else None
      if self.parts != 1: self.axes.append(self.part)
      return (ix.const(0) if task is None else task.rng), None
    program = self.new(ix.rounds(rows, several), AxisKind.GRID)
    if self.parts != 1: self.axes.append(self.part)
    task = self.new(several, AxisKind.LOOP)
    left = ix.sub(ix.node(rows), ix.mul(program.rng, several))
    end = several if ix.divides(several, rows) else ix.number(ix.least(left, several))
    return ix.add(ix.mul(program.rng, several), task.rng), (task, end)

  def rows(self, copies: bool) -> tuple[Axis | None, UOp, tuple[Axis, ix.Dim] | None]:
    """Rows in copies: the axis of the copies, which of them there are, the loop over the tasks of a program."""
    outer = list(self.outer)
    if copies and self.parts != 1 and ix.divides(self.spec.every, self.axis.size):   # parts of a row are rows
      outer.append(self.part)
      self.parts = 1
    n = ix.product(a.size for a in outer)
    length = ix.count(self.spec.every or self.axis.size)
    many = CHAINS if copies and isinstance(n, int) and (n % CHAINS == 0 or n > CHAINS and not self.kernel.in_place) else 1
    task, loop = self.tasks(ix.rounds(n, many), many * length)
    if many == 1:
      self.along(outer, task)
      self.first = self.here(self.first)
      return None, ix.TRUE, loop
    tile = self.new(many, AxisKind.UPCAST)
    # the last rows are some of those before once more, where there are not as many
    begin = ix.mul(task, many) if n % many == 0 else ix.least(ix.mul(task, many), n - many)  # type: ignore[operator]
    self.along(outer, ix.add(begin, tile.rng))
    self.first = self.here(self.first)
    return tile, ix.TRUE, loop

  def columns(self, axis: Axis) -> tuple[Axis | None, UOp, tuple[Axis, ix.Dim] | None]:
    """A block of columns: its axis, which of them there are, the loop over the tasks of a program."""
    outer = [a for a in self.outer if a is not axis]
    n, others = axis.size, ix.count(ix.product(a.size for a in outer)) * ix.count(self.parts)
    most, least = _COLUMNS
    width = most
    while width > least and others * -(-axis.count // width) < EACH * self.cores: width //= 2
    if not isinstance(n, int): width = min(width, max(16, 1 << max(axis.count - 1, 0).bit_length()))
    elif n <= width: width = n
    elif not self.kernel.in_place: width = -(-n // (16 * -(-n // width))) * 16   # blocks of one size, of whole vectors
    blocks = ix.rounds(n, width)
    task, loop = self.tasks(ix.product([*(a.size for a in outer), blocks]), ix.count(self.spec.every or self.axis.size) * width)
    tile = self.new(width, AxisKind.TILE)
    number = ix.mod(task, blocks)
    self.along(outer, ix.fdiv(task, blocks))
    begin = ix.mul(number, width)
    if isinstance(n, int) and n % width and not self.kernel.in_place: begin = ix.least(begin, n - width)
    self.table[axis.rng] = at = ix.add(begin, tile.rng)
    return tile, ix.lt(at, n), loop


class _Blocks(_Lowering):
  """A block of each row, or of a few columns, after another."""

  def lowered(self) -> Kernel:
    axis = self.side_by_side()
    count = ix.count(self.spec.every or self.axis.size)
    if axis is not None and axis.count >= NARROWEST_COLUMNS // 2: tile, valid, size = self.columns(axis, count)
    else: tile, valid, size = self.rows(count)
    whole = isinstance(self.axis.size, int) and ix.vmax(self.length) <= size   # one block has all
    most = ix.number(self.length) if not self.length.ranges else self.spec.every
    block = None if whole else self.new(ix.rounds(most, size), AxisKind.LOOP)
    step = self.new(size, AxisKind.TILE)
    together = [] if tile is None else [tile]
    begin = ix.const(0) if block is None else ix.mul(block.rng, size)
    # the block's elements as they lie in memory: backwards the last comes first
    k = ix.sub(ix.add(begin, size - 1), step.rng) if self.spec.reverse else ix.add(begin, step.rng)
    at = ix.add(self.first, k)
    self.table[self.axis.rng] = ix.sub(ix.sub(ix.node(self.axis.size), 1), at) if self.spec.reverse else at
    there = ix.lt(k, self.length)
    both = [*together, step]
    body: list[UOp] = []
    carries, scanned = [], {}
    for i, s in enumerate(self.scans):
      fn = s.arg[0]
      value = or_identity(there, with_gated_loads(self.here(s.src[0]), ix.both(valid, there)), fn)
      if step.rng not in value.ranges:   # the same all along
        same = self.variable(f"same{i}", value.dtype, both)
        body.append(store_over(same, value))
        value = same
      run = self.variable(f"run{i}", s.dtype, both)
      body.append(store_over(run, UOp(Ops.SCAN, s.dtype, (value,), (fn, step.id, self.spec.reverse))))
      scanned[s] = run
      if block is None: continue
      carry, total = self.variable(f"carry{i}", s.dtype, together), self.variable(f"sum{i}", s.dtype, together)
      scanned[s] = UOp.alu(fn, carry, run)
      # what the block ends with, found by its place: Triton 3.6 does not compile a loop that adds up sums and uses them meanwhile
      last = or_identity(ix.lt(step.rng, 1) if self.spec.reverse else ix.ge(step.rng, size - 1), scanned[s], fn)
      body.append(store_over(total, UOp(Ops.REDUCE, s.dtype, (last,), (fn, (step.id,)))))
      carries.append((fn, carry, total))
    body += self.stores(scanned, ix.both(valid, there), both)
    if block is not None:
      body += [store_over(c, total) for _, c, total in carries]
      body = [*[store_over(c, UOp.const(c.dtype, identity(fn, c.dtype))) for fn, c, _ in carries],
              self.for_(block, ix.number(ix.cdiv(self.length, size)), *body)]
    elements = size * (tile.known if tile is not None else 1)
    return self.made(body).with_(applied=(Warps(max(1, min(_WARPS, elements * _WARPS // _BLOCK))),))

  def programs(self, rows: ix.Dim) -> UOp:
    task = self.new(rows, AxisKind.GRID) if rows != 1 else None
    if self.parts != 1: self.axes.append(self.part)
    return ix.const(0) if task is None else task.rng

  def rows(self, count: int) -> tuple[Axis | None, UOp, int]:
    """Whole rows: several in a block where they are short."""
    size = min(1 << max(count - 1, 0).bit_length(), _BLOCK)
    n = ix.product(a.size for a in self.outer)
    many = max(_ROWS // size, 1)
    while many > 1 and ix.count(n) * ix.count(self.parts) < many * 2 * self.cores: many //= 2
    task = self.programs(ix.rounds(n, many))
    tile = self.new(many, AxisKind.TILE) if many > 1 else None
    row = task if tile is None else ix.add(ix.mul(task, many), tile.rng)
    self.along(self.outer, row)
    return tile, ix.lt(row, n), size

  def columns(self, axis: Axis, count: int) -> tuple[Axis | None, UOp, int]:
    """Some columns: as many as leave every core a program."""
    outer = [a for a in self.outer if a is not axis]
    others = ix.count(ix.product(a.size for a in outer)) * ix.count(self.parts)
    width = min(WIDEST_COLUMNS, 1 << max(axis.count - 1, 0).bit_length())
    while width > NARROWEST_COLUMNS and others * -(-axis.count // width) < 2 * self.cores: width //= 2
    blocks = ix.rounds(axis.size, width)
    task = self.programs(ix.product([*(a.size for a in outer), blocks]))
    tile = self.new(width, AxisKind.TILE)
    self.along(outer, ix.fdiv(task, blocks))
    self.table[axis.rng] = at = ix.add(ix.mul(ix.mod(task, blocks), width), tile.rng)
    return tile, ix.lt(at, axis.size), min(1 << max(count - 1, 0).bit_length(), _BLOCK // width)


def with_gated_loads(u: UOp, gate: UOp) -> UOp:
  """A value whose LOADs read where a condition is true only."""
  if gate is ix.TRUE: return u
  def load(old: UOp, new: UOp) -> UOp | None:
    if new.src[0].op is not Ops.DEFINE_GLOBAL: return None
    return new.replace((*new.src[:2], ix.both(gate, *new.src[2:])))
  return rewrite((u,), {Ops.LOAD: load})[0]


def store_over(place: UOp, value: UOp) -> UOp:
  """A STORE to where a LOAD reads."""
  return UOp.unique(Ops.STORE, value.dtype, (*place.src[:2], value))
