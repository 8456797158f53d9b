"""Pass: rows stored where an index says, for targets with blocks: each program has some rows, and looks for them in the index.

    STORE(y[index[a0], a1], x[a0, a1], add, a0 in order)   ->   FOR blocks of the index: at = those of my rows,
                                                                WHILE there are any: y[the first row] += the sum of all its x

So programs share neither rows nor an order: what is stored is the same each time, without atomics. The index, which is small, is
read by every program; the values are read once. Equal ones in a block are added up together: many for one row cost no more than
others.
"""
from __future__ import annotations

from . import index as ix
from .axes import merge_axes
from .config import config
from .costs import flat_index, steps_of
from .dtype import dtypes
from .kernel import Axis, AxisKind, Kernel
from .opts import Warps
from .rewrite import substitute
from .scans import gated, stored
from .target import Target
from .uop import BinaryOps, Ops, TernaryOps, UOp

LEAST = 16            # indices that it is worth for
INDICES = 1024        # of a block, which a program looks through at once
COLUMNS = 256         # of a row, that a program makes
BLOCK = 4096          # elements of the rows for one, which are added up at once
PROGRAMS = 8          # for each core
WARPS = 4


def spread_scatters(kernel: Kernel, target: Target | None = None) -> Kernel:
  """A STORE that goes through an axis in order, as programs that have some rows each: STORE(y, at, x, add) -> FOR, WHILE."""
  if target is None or not target.blocks or config.noopt: return kernel
  if not kernel.plain or not kernel.sequential or kernel.reduces: return kernel
  if len(kernel.body) != 1 or kernel.of_kind(AxisKind.TILE, AxisKind.LOCAL): return kernel
  found = _Scatter(merge_axes(kernel), target)
  return found.lowered() if found.row is not None else kernel


class _Scatter:
  """One such kernel. ``row`` is where the index says that a row goes; None where the STORE is of another form."""

  def __init__(self, kernel: Kernel, target: Target):
    self.kernel, self.target = kernel, target
    self.store = s = kernel.body[0]
    self.mode = s.arg[0]
    self.along = [a for a in kernel.axes if a.id in s.arg[1]]
    self.gate = s.src[3] if len(s.src) > 3 else ix.TRUE
    self.axes: list[Axis] = []
    self.next = max(a.id for a in kernel.axes) + 1
    self.row: UOp | None = None
    self.rows: UOp | None = None    # how many there are
    ordered = {a.rng for a in self.along}
    if len(self.along) != 1 or self.along[0].count < LEAST or s.dtype.kind == "b": return
    for c in ix.conjuncts(self.gate):   # -1 < row and row < rows
      if c.op is Ops.ALU and c.arg is BinaryOps.CMPLT and not c.src[1].ranges and c.src[0].op is Ops.CAST and \
         c.src[0].ranges == ordered: self.row, self.rows = c.src
    if self.row is None or self.rows is None: return
    if self.row.src[0].dtype not in (dtypes.int32, dtypes.int64) or not ix.of_sizes(self.rows): self.row = None
    elif any(r in ordered for x in substitute((s.src[1], self.gate), {self.row: ix.ZERO}) for r in x.ranges): self.row = None

  def new(self, size: ix.Dim, kind: AxisKind) -> Axis:
    self.axes.append(Axis(self.next, size, kind))
    self.next += 1
    return self.axes[-1]

  def variable(self, name: str, dtype: object, *axes: Axis) -> UOp:
    v = UOp(Ops.DEFINE_LOCAL, dtype, (), (name, tuple([a.known for a in axes]), "private"))  # type: ignore[arg-type]
    return UOp(Ops.LOAD, v.dtype, (v, UOp(Ops.INDEX, ix.INT, tuple([a.rng for a in axes]))))

  def lowered(self) -> Kernel:
    """The kernel with statements."""
    s, row, rows, along = self.store, self.row, self.rows, self.along[0]
    assert row is not None and rows is not None
    table = self.columns()
    others = ix.count(ix.product(a.size for a in self.axes if a.kind is AxisKind.GRID))
    owners = max(min(PROGRAMS * self.target.cores // max(others, 1), ix.count(ix.number(rows))), 1)
    each = ix.cdiv(rows, owners)
    owner = self.new(owners, AxisKind.GRID).rng if owners > 1 else ix.ZERO
    first = ix.mul(owner, each)
    size = min(INDICES, 1 << max(along.count - 1, 0).bit_length())
    tile = [a for a in self.axes if a.kind is AxisKind.TILE]
    groups = min(BLOCK // (tile[0].known if tile else 1), size // 2)
    blocks = ix.rounds(along.size, size)
    block = self.new(blocks, AxisKind.LOOP)
    t, j = self.new(groups, AxisKind.TILE), self.new(size // groups, AxisKind.TILE)
    place = ix.add(ix.mul(t.rng, j.known), j.rng)
    begin = ix.mul(block.rng, size)
    inside = ix.lt(ix.add(begin, place), along.size)

    kind = row.src[0].dtype
    none, nowhere = UOp.const(kind, dtypes.max(kind)), UOp.const(dtypes.int32, size)
    here = gated(substitute((row.src[0],), {along.rng: ix.add(begin, place)})[0], inside)
    def within(low: UOp) -> UOp: return UOp.alu(BinaryOps.CMPLE, low.cast(kind), here)
    last = ix.add(first, each) if owners > 1 else rows
    mine = UOp.alu(BinaryOps.AND, within(first), UOp.alu(BinaryOps.CMPLT, here, ix.least(last, rows).cast(kind)))
    if inside is not ix.TRUE: mine = UOp.alu(BinaryOps.AND, mine, inside)

    at, to = self.variable("at", kind, t, j), self.variable("to", kind)
    least = stored(to, UOp(Ops.REDUCE, kind, (at,), (BinaryOps.MIN, (t.id, j.id))))
    equal = UOp.alu(BinaryOps.CMPEQ, at, to)
    number = place.cast(dtypes.int32)
    acc = dtypes.float32 if s.dtype.kind == "f" and s.dtype.itemsize < 4 else s.dtype
    target = substitute((s.src[1],), {**table, row: to.cast(ix.INT)})[0]
    gate = ix.both(substitute((self.gate,), {**table, row: ix.ZERO})[0], self.inside)
    gates = () if gate is ix.TRUE else (gate,)
    if self.mode == "add":
      found = self.variable("found", dtypes.int32, t)   # of each group the first
      find = UOp(Ops.REDUCE, dtypes.int32, (equal.where(number, nowhere),), (BinaryOps.MIN, (j.id,)))
      rest = UOp.alu(BinaryOps.CMPEQ, number, found)
    else:
      found = self.variable("found", dtypes.int32)      # the last of all
      find = UOp(Ops.REDUCE, dtypes.int32, (equal.where(number, UOp.const(dtypes.int32, -1)),), (BinaryOps.MAX, (t.id, j.id)))
      rest = equal
    there = ix.lt(found.cast(ix.INT), size) if self.mode == "add" else ix.TRUE
    which = ix.greatest(ix.least(found.cast(ix.INT), size - 1), 0)
    value = gated(substitute((s.src[2],), {**table, along.rng: ix.add(begin, which)})[0], ix.both(there, self.inside))
    if self.mode == "add":
      value = UOp.alu(TernaryOps.WHERE, there, value.cast(acc), UOp.const(acc, 0))
      total = self.variable("total", acc, *tile)
      old = UOp(Ops.LOAD, s.dtype, (s.src[0], target, *gates)).cast(acc)
      work = [stored(total, UOp(Ops.REDUCE, acc, (value,), (BinaryOps.ADD, (t.id,)))),
              self.to(target, UOp.alu(BinaryOps.ADD, old, total).cast(s.dtype), gates)]
    else: work = [self.to(target, value, gates)]
    done = stored(at, UOp.alu(TernaryOps.WHERE, rest, none, at))
    loop = UOp.unique(Ops.WHILE, dtypes.bool, (UOp.alu(BinaryOps.CMPLT, to, none), stored(found, find), *work, done, least))
    body = UOp.unique(Ops.FOR, dtypes.index, (
      ix.node(blocks), stored(at, UOp.alu(TernaryOps.WHERE, mine, here, none)), least, loop), block.id)
    return self.kernel.with_(axes=tuple(self.axes), body=(body,), applied=(Warps(WARPS),))

  def to(self, target: UOp, value: UOp, gates: tuple[UOp, ...]) -> UOp:
    return UOp.unique(Ops.STORE, self.store.dtype, (self.store.src[0], target, value, *gates))

  def columns(self) -> dict[UOp, UOp]:
    """The other axes: a block of those elements of a row that lie side by side, a program for each other one."""
    outer = [a for a in self.kernel.axes if a is not self.along[0]]
    shape = next(p.shape for p in self.kernel.params if p.uop is self.store.src[0])
    assert self.row is not None
    index = substitute((self.store.src[1],), {self.row: ix.ZERO})[0]
    steps = steps_of(flat_index(shape, index.src))
    side = next((a for a in outer if steps.get(a.id) == 1 and a.size != 1), None)
    table: dict[UOp, UOp] = {}
    self.inside = ix.TRUE
    for a in outer:
      if a is not side and a.size != 1: table[a.rng] = self.new(a.size, AxisKind.GRID).rng
    if side is not None:
      width = min(COLUMNS, 1 << max(side.count - 1, 0).bit_length())
      blocks = ix.rounds(side.size, width)
      number = ix.ZERO if blocks == 1 else self.new(blocks, AxisKind.GRID).rng
      table[side.rng] = column = ix.add(ix.mul(number, width), self.new(width, AxisKind.TILE).rng)
      self.inside = ix.lt(column, side.size)
    return table
