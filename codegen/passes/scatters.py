"""Pass: rows stored where an index says, for targets with blocks, in programs that share no rows.

Where there is one table of rows for all, each program has some of them, and looks for them in the index.

    STORE(y[index[a0], a1], x[a0, a1], add, a0 in order)   ->   FOR blocks of the index: at = those of my rows,
                                                                WHILE there are any: y[the first row] += the sum of all its x

So programs share neither rows nor an order: what is stored is the same each time, without atomics. The index, which is small, is
read by every program; the values are read once. Equal ones in a block are added up together: many for one row cost no more than
others. A long index is sorted first (``ntgrad/schedule/scatter_order.py``): equal rows stand side by side then, and no two parts
of it have the same one. So each program has a part:

    ->   pos = where my part begins, WHILE it is not at its end: y[index[pos]] += the sum of x[pos..], as many as have that row,
                                                                 pos += so many

Where there are many tables (the rows of ``x.scatter(1, index, y)``), each program has one, or a few that lie side by side, and
compares every two entries of a block:

    STORE(y[a0, index[a0, a1]], x[a0, a1], add, a1 in order)   ->   FOR blocks of a1: total[i] = sum of all x[j] for the row of i,
                                                                    y[a0, index[i]] += total[i] of the last i for each row

or, of many entries, sorts these by where they go:

    -> FOR blocks of a1: key = sorted (index[a0, i], i), total[i] = x[i] in that order,
                         WHILE some entry and the one that is n behind go to one row: total[i] += total[i + n] of these, n *= 2
                         y[a0, row[i]] += total[i] of the first i for each row
"""
from __future__ import annotations

from dataclasses import replace

from .. import index as ix
from ..index.rewrite import substitute
from ..ir.config import config
from ..ir.dtype import dtypes
from ..ir.target import Target
from ..ir.uop import BinaryOps, Ops, TernaryOps, UOp
from ..kernel import Axis, AxisKind, Kernel
from ..kernel.accesses import flat_index, steps_of
from ..opts import Warps
from ..opts.merged_axes import merge_axes
from .scans import store_over, with_gated_loads

_LEAST = 16            # indices that it is worth for
INDICES = 1024         # of a block, which a program looks through at once
_COLUMNS = 256         # elements of a row that a program makes
_BLOCK = 2048          # elements of the rows for one, which are added up at once
_PROGRAMS = 8          # programs for each core
_WARPS = 4             # warps of a program that looks for its rows
# of entries that are compared with each other: how many a block has, and warps, from so many programs for each core on
PAIRS = ((16, 32, 1), (4, 64, 2), (0, 128, 4))
MANY_ENTRIES, SORTED_ENTRIES = 128, 2048  # entries of a table from which on they are sorted, so many at a time
SIDE = 8                                  # tables side by side that one program has, at most
SIDE_PAIRS = (16, 2)                      # entries that are compared with each other then, and warps
# about what it takes: cycles for each entry in pairs, by how many entries a block has; of a program that looks for its rows for
# each block, and for each entry that it finds
PAIR_CYCLES = {32: 40, 64: 20, 128: 12}
BLOCK_CYCLES = FOUND_CYCLES = 1800  # cycles
_LONG = 16384                       # entries from which on to sort them takes less time than that all programs look through them
PART_PROGRAMS, LEAST_PART_ENTRIES = 2048, 32             # programs that then have a part each, and entries of a part, at least
MOST_PART_ENTRIES, RUN_ELEMENTS = 512, 2048  # entries of a part at most, and elements of these that are added up at once


def spread_scatters(kernel: Kernel, target: Target | None = None) -> Kernel:
  """A STORE that goes through an axis in order, as programs that have some rows each: STORE(y, at, x, add) -> FOR, WHILE."""
  if target is None or not target.blocks or config.noopt: return kernel
  if not kernel.plain or not kernel.sequential or kernel.reduces: return kernel
  if len(kernel.body) != 1 or kernel.of_kind(AxisKind.TILE, AxisKind.LOCAL): return kernel
  found = _Scatter(merge_axes(kernel), target)
  if found.row is None: return kernel
  if part := found.part: return found.alone() if part == 1 else found.runs(part)
  return found.lowered() if not found.pairs() else found.sorted() if found.many() else found.compared()


def worth_sorting(entries: int, target: Target) -> bool:
  """Whether to sort an index of so many entries before rows are stored where it says."""
  return target.blocks and entries >= _LONG and not config.noopt


def part_of(entries: int) -> int:
  """How many of so many sorted entries a program has, a power of two."""
  return min(max(1 << max(entries // PART_PROGRAMS, 1).bit_length() - 1, LEAST_PART_ENTRIES), MOST_PART_ENTRIES)


def _moved(v: UOp, to: UOp) -> UOp:
  """What a variable has at another place."""
  return v.replace((v.src[0], UOp(Ops.INDEX, ix.INT, (to,))))


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
    self.length = ix.product(a.size for a in self.along)
    if ix.count(self.length) < _LEAST or s.dtype.kind == "b": return
    for c in ix.conjuncts(self.gate):   # -1 < row and row < rows
      if c.op is Ops.ALU and c.arg is BinaryOps.CMPLT and not c.src[1].ranges and c.src[0].op is Ops.CAST and \
         ordered <= c.src[0].ranges: self.row, self.rows = c.src
    if self.row is None or self.rows is None: return
    if self.row.src[0].dtype not in (dtypes.int32, dtypes.int64) or not ix.of_sizes(self.rows): self.row = None
    elif any(r in ordered for x in substitute((s.src[1], self.gate), {self.row: ix.ZERO}) for r in x.ranges): self.row = None

  @property
  def part(self) -> int:
    """The entries of a program, where equal ones stand side by side in these; 0 where they do not."""
    assert self.row is not None
    load = self.row.src[0]
    if load.op is not Ops.LOAD or len(self.along) != 1 or load.src[1].src != (self.along[0].rng,): return 0
    return next((p.runs for p in self.kernel.params if p.uop is load.src[0]), 0)

  @property
  def outer(self) -> list[Axis]: return [a for a in self.kernel.axes if a not in self.along]

  def at(self, place: UOp) -> dict[UOp, UOp]:
    """The axes in order, at a place among all their values."""
    table: dict[UOp, UOp] = {}
    for n, a in enumerate(reversed(self.along)):
      first = n == len(self.along) - 1
      table[a.rng], place = place if first else ix.mod(place, a.size), ix.fdiv(place, a.size)
    return table

  def beside(self, *, in_index: bool = False) -> Axis | None:
    """The axis other than those in order along which elements lie side by side: of the target, or of the index."""
    if in_index:
      assert self.row is not None
      load = next((u for u in self.row.toposort() if u.op is Ops.LOAD), None)
      if load is None: return None
      buffer, index = load.src[0], load.src[1]
    else:
      assert self.row is not None
      buffer, index = self.store.src[0], substitute((self.store.src[1],), {self.row: ix.ZERO})[0]
    shape = next((p.shape for p in self.kernel.params if p.uop is buffer), None)
    steps = steps_of(flat_index(shape, index.src)) if shape is not None else {}
    return next((a for a in self.outer if steps.get(a.id) == 1 and a.size != 1), None)

  def pairs(self) -> bool:
    """Whether the entries of a block are compared with each other: there are many tables, each of rows of one element."""
    assert self.row is not None and self.rows is not None
    if (side := self.beside()) is not None and side.rng not in self.row.ranges: return False
    if side is not None or (side := self.beside(in_index=True)) is not None: return True
    others, cores = ix.count(ix.product(a.size for a in self.outer)), self.target.cores
    length, owners = ix.count(self.length), max(min(_PROGRAMS * cores // max(others, 1), ix.count(ix.number(self.rows))), 1)
    look = (length // INDICES + 1) * BLOCK_CYCLES + length // owners * FOUND_CYCLES
    size = next(n for least, n, _ in PAIRS if others >= least * cores)
    return length * PAIR_CYCLES[size] < look * max(others * owners // (_PROGRAMS * cores), 1)

  def many(self) -> bool:
    """Whether a table has so many entries that they are sorted; tables that lie side by side are read together."""
    return ix.count(self.length) >= MANY_ENTRIES and self.beside() is None and self.beside(in_index=True) is None

  def sorted(self) -> Kernel:
    """The kernel with statements, where each program has a table and sorts what goes there."""
    s, row, rows = self.store, self.row, self.rows
    assert row is not None and rows is not None
    table = {a.rng: self.new(a.size, AxisKind.GRID).rng for a in self.outer if a.size != 1}
    size = min(SORTED_ENTRIES, 1 << max(ix.count(self.length) - 1, 0).bit_length())
    bits = size.bit_length() - 1
    blocks = ix.rounds(self.length, size)
    block, i = self.new(blocks, AxisKind.LOOP), self.new(size, AxisKind.TILE)
    known = ix.number(rows)
    word = dtypes.uint32 if isinstance(known, int) and known << bits < dtypes.max(dtypes.uint32) else dtypes.uint64
    kind = dtypes.int32 if isinstance(known, int) and known < 2 ** 31 else row.src[0].dtype
    def entry(x: UOp, at: UOp) -> tuple[UOp, UOp]:
      """A value for the entry that is the block's ``at``-th, and whether there is one."""
      place = ix.add(ix.mul(block.rng, size), at)
      inside = ix.lt(place, self.length)
      return with_gated_loads(substitute((x,), {**table, **self.at(place)})[0], inside), inside
    here, inside = entry(row.src[0], i.rng)
    valid = UOp.alu(BinaryOps.AND, UOp.alu(BinaryOps.CMPLE, UOp.const(here.dtype, 0), here),
                    UOp.alu(BinaryOps.CMPLT, here, rows.cast(here.dtype)))
    if inside is not ix.TRUE: valid = UOp.alu(BinaryOps.AND, valid, inside)
    both = UOp.alu(BinaryOps.OR, UOp.alu(BinaryOps.SHL, here.cast(word), UOp.const(word, bits)), i.rng.cast(word))
    nowhere = UOp.const(word, dtypes.max(word))
    key, at = self.variable("key", word, i), self.variable("at", kind, i)
    to = UOp.alu(BinaryOps.SHR, key, UOp.const(word, bits)).cast(kind)
    last = ix.const(size - 1)
    number = UOp.alu(BinaryOps.AND, key, UOp.const(word, size - 1)).cast(ix.INT)
    value = entry(s.src[2], number)[0]
    work = [store_over(key, valid.where(both, nowhere)), store_over(key, UOp(Ops.SORT, word, (key,), (i.id, False, size, False))),
            store_over(at, UOp.alu(BinaryOps.CMPEQ, key, nowhere).where(UOp.const(kind, -1), to))]
    target, gate = substitute((s.src[1], self.gate), {**table, row: at.cast(ix.INT)})
    def other(to: UOp) -> UOp: return UOp.alu(BinaryOps.CMPNE, at, _moved(at, to))
    if self.mode == "add":
      first = UOp.alu(BinaryOps.OR, ix.lt(i.rng, 1), other(ix.greatest(ix.sub(i.rng, ix.const(1)), 0)))
      work += self.added(at, value, i, target, (ix.both(gate, first),))
    else:
      final = UOp.alu(BinaryOps.OR, ix.lt(last, ix.add(i.rng, ix.const(1))), other(ix.least(ix.add(i.rng, ix.const(1)), last)))
      work.append(self.to(target, value, (ix.both(gate, final),)))
    body = UOp.unique(Ops.FOR, dtypes.index, (ix.node(blocks), *work), block.id)
    return self.kernel.with_(axes=tuple(self.axes), body=(body,))

  def added(self, at: UOp, value: UOp, i: Axis, target: UOp, gates: tuple[UOp, ...]) -> list[UOp]:
    """Statements that add each row's values to what lies there, in a block whose entries have rising rows, ``at``.

    Each entry adds up those of its row from it on, by doubling: ``total[i] += total[i + far]``, ``far`` = 1, 2, 4, .. as long as
    any two so far apart have one row; so the ``first`` entry of a row has all of it, which ``gates`` tell."""
    s, kind = self.store, at.dtype
    acc = dtypes.float32 if s.dtype.kind == "f" and s.dtype.itemsize < 4 else s.dtype
    total, old, more = (self.variable(n, acc, i) for n in ("total", "old", "more"))
    far, left = self.variable("far", dtypes.int32), self.variable("left", dtypes.int32)
    one, none, end = (UOp.const(dtypes.int32, n) for n in (1, 0, ix.count(i.size) - 1))
    behind = UOp.alu(BinaryOps.ADD, i.rng.cast(dtypes.int32), far)
    there, behind = UOp.alu(BinaryOps.CMPLE, behind, end), UOp.alu(BinaryOps.MIN, behind, end).cast(ix.INT)
    together = UOp.alu(BinaryOps.AND, there, UOp.alu(BinaryOps.AND, UOp.alu(
      BinaryOps.CMPLE, UOp.const(kind, 0), at), UOp.alu(BinaryOps.CMPEQ, at, _moved(at, behind))))
    look = store_over(left, UOp(Ops.REDUCE, dtypes.int32, (together.where(one, none),), (BinaryOps.MAX, (i.id,))))
    add = UOp.unique(Ops.WHILE, dtypes.bool, (
      UOp.alu(BinaryOps.CMPLT, none, left), store_over(more, together.where(_moved(total, behind), UOp.const(acc, 0))),
      store_over(total, UOp.alu(BinaryOps.ADD, total, more)), store_over(far, UOp.alu(BinaryOps.ADD, far, far)), look))
    return [store_over(total, value.cast(acc)), store_over(far, one), look, add,
            store_over(old, UOp(Ops.LOAD, s.dtype, (s.src[0], target, *gates)).cast(acc)),
            self.to(target, UOp.alu(BinaryOps.ADD, old, total).cast(s.dtype), gates)]

  def compared(self) -> Kernel:
    """The kernel with statements, where each program has tables of its own."""
    s, row, rows = self.store, self.row, self.rows
    assert row is not None and rows is not None
    side = self.beside() or self.beside(in_index=True)
    table: dict[UOp, UOp] = {}
    for a in self.outer:
      if a is not side and a.size != 1: table[a.rng] = self.new(a.size, AxisKind.GRID).rng
    there, columns = ix.TRUE, 1
    others = ix.count(ix.product(a.size for a in self.outer))
    if side is None: size, warps = next((n, w) for least, n, w in PAIRS if others >= least * self.target.cores)
    else:
      size, warps = SIDE_PAIRS
      columns = min(SIDE, 1 << max(side.count - 1, 0).bit_length())
      number = self.new(ix.rounds(side.size, columns), AxisKind.GRID).rng
    size = min(size, 1 << max(ix.count(self.length) - 1, 0).bit_length())
    blocks = ix.rounds(self.length, size)
    # a thread has some entries and goes through the others of the block: these come first
    block, j, i = self.new(blocks, AxisKind.LOOP), self.new(size, AxisKind.TILE), self.new(size, AxisKind.TILE)
    tile = [] if side is None else [self.new(columns, AxisKind.TILE)]
    if side is not None:
      table[side.rng] = ix.add(ix.mul(number, columns), tile[0].rng)
      there = ix.lt(table[side.rng], side.size)
    kind = dtypes.int32 if isinstance(ix.number(rows), int) and ix.vmax(rows) < 2 ** 31 else row.src[0].dtype
    def entry(x: UOp, axis: Axis) -> tuple[UOp, UOp]:
      """A value for one entry of a block, and whether there is one."""
      place = ix.add(ix.mul(block.rng, size), axis.rng)
      inside = ix.both(there, ix.lt(place, self.length))
      return with_gated_loads(substitute((x,), {**table, **self.at(place)})[0], inside), inside
    def rows_of(name: str, axis: Axis) -> tuple[UOp, UOp]:
      """Where each entry goes, -1 for nowhere; and its STORE."""
      here, inside = entry(row.src[0], axis)
      low, end = UOp.const(here.dtype, 0), rows.cast(here.dtype)
      valid = UOp.alu(BinaryOps.AND, UOp.alu(BinaryOps.CMPLE, low, here), UOp.alu(BinaryOps.CMPLT, here, end))
      if inside is not ix.TRUE: valid = UOp.alu(BinaryOps.AND, valid, inside)
      kept = self.variable(name, kind, axis, *tile)
      return kept, store_over(kept, UOp.alu(TernaryOps.WHERE, valid, here.cast(kind), UOp.const(kind, -1)))
    (other, find_other), (at, find) = rows_of("other", j), rows_of("at", i)
    equal = UOp.alu(BinaryOps.CMPEQ, at, other)
    last = self.variable("last", dtypes.int32, i, *tile)
    latest = equal.where(j.rng.cast(dtypes.int32), UOp.const(dtypes.int32, -1))
    work = [find_other, find, store_over(last, UOp(Ops.REDUCE, dtypes.int32, (latest,), (BinaryOps.MAX, (j.id,))))]
    target, gate = substitute((s.src[1], self.gate), {**table, row: at.cast(ix.INT)})
    gates = (ix.both(gate, there, UOp.alu(BinaryOps.CMPEQ, last, i.rng.cast(dtypes.int32))),)
    if self.mode == "add":
      acc = dtypes.float32 if s.dtype.kind == "f" and s.dtype.itemsize < 4 else s.dtype
      value = equal.where(entry(s.src[2], j)[0].cast(acc), UOp.const(acc, 0))
      total, old = self.variable("total", acc, i, *tile), self.variable("old", acc, i, *tile)
      work += [store_over(old, UOp(Ops.LOAD, s.dtype, (s.src[0], target, *gates)).cast(acc)),
               store_over(total, UOp(Ops.REDUCE, acc, (value,), (BinaryOps.ADD, (j.id,)))),
               self.to(target, UOp.alu(BinaryOps.ADD, old, total).cast(s.dtype), gates)]
    else: work.append(self.to(target, entry(s.src[2], i)[0], gates))
    body = UOp.unique(Ops.FOR, dtypes.index, (ix.node(blocks), *work), block.id)
    return self.kernel.with_(axes=tuple(self.axes), body=(body,), applied=(Warps(warps),))

  def new(self, size: ix.Dim, kind: AxisKind) -> Axis:
    self.axes.append(Axis(self.next, size, kind))
    self.next += 1
    return self.axes[-1]

  def variable(self, name: str, dtype: object, *axes: Axis) -> UOp:
    v = UOp(Ops.DEFINE_LOCAL, dtype, (), (name, tuple([a.known for a in axes]), "private"))  # type: ignore[arg-type]
    return UOp(Ops.LOAD, v.dtype, (v, UOp(Ops.INDEX, ix.INT, tuple([a.rng for a in axes]))))

  def lowered(self) -> Kernel:
    """The kernel with statements."""
    s, row, rows = self.store, self.row, self.rows
    assert row is not None and rows is not None
    table = self.columns()
    others = ix.count(ix.product(a.size for a in self.axes if a.kind is AxisKind.GRID))
    owners = max(min(_PROGRAMS * self.target.cores // max(others, 1), ix.count(ix.number(rows))), 1)
    each = ix.cdiv(rows, owners)
    owner = self.new(owners, AxisKind.GRID).rng if owners > 1 else ix.ZERO
    first = ix.mul(owner, each)
    size = min(INDICES, 1 << max(ix.count(self.length) - 1, 0).bit_length())
    tile = [a for a in self.axes if a.kind is AxisKind.TILE]
    groups = min(_BLOCK // (tile[0].known if tile else 1), size // 2)
    blocks = ix.rounds(self.length, size)
    block = self.new(blocks, AxisKind.LOOP)
    t, j = self.new(groups, AxisKind.TILE), self.new(size // groups, AxisKind.TILE)
    place = ix.add(ix.mul(j.rng, t.known), t.rng)   # entries side by side, which often have one row, are of different groups
    begin = ix.mul(block.rng, size)
    inside = ix.lt(ix.add(begin, place), self.length)

    kind = row.src[0].dtype
    none, nowhere = UOp.const(kind, dtypes.max(kind)), UOp.const(dtypes.int32, size)
    here = with_gated_loads(substitute((row.src[0],), {**table, **self.at(ix.add(begin, place))})[0], inside)
    def within(low: UOp) -> UOp: return UOp.alu(BinaryOps.CMPLE, low.cast(kind), here)
    last = ix.add(first, each) if owners > 1 else rows
    mine = UOp.alu(BinaryOps.AND, within(first), UOp.alu(BinaryOps.CMPLT, here, ix.least(last, rows).cast(kind)))
    if inside is not ix.TRUE: mine = UOp.alu(BinaryOps.AND, mine, inside)

    at, to = self.variable("at", kind, t, j), self.variable("to", kind)
    least = store_over(to, UOp(Ops.REDUCE, kind, (at,), (BinaryOps.MIN, (t.id, j.id))))
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
    value = with_gated_loads(substitute((s.src[2],), {**table, **self.at(ix.add(begin, which))})[0], ix.both(there, self.inside))
    if self.mode == "add":
      value = UOp.alu(TernaryOps.WHERE, there, value.cast(acc), UOp.const(acc, 0))
      total, old = self.variable("total", acc, *tile), self.variable("old", acc, *tile)
      # what is there is asked for first: it comes while the values do
      work = [store_over(old, UOp(Ops.LOAD, s.dtype, (s.src[0], target, *gates)).cast(acc)),
              store_over(total, UOp(Ops.REDUCE, acc, (value,), (BinaryOps.ADD, (t.id,)))),
              self.to(target, UOp.alu(BinaryOps.ADD, old, total).cast(s.dtype), gates)]
    else: work = [self.to(target, value, gates)]
    done = store_over(at, UOp.alu(TernaryOps.WHERE, rest, none, at))
    loop = UOp.unique(Ops.WHILE, dtypes.bool, (UOp.alu(BinaryOps.CMPLT, to, none), store_over(found, find), *work, done, least))
    body = UOp.unique(Ops.FOR, dtypes.index, (
      ix.node(blocks), store_over(at, UOp.alu(TernaryOps.WHERE, mine, here, none)), least, loop), block.id)
    return self.kernel.with_(axes=tuple(self.axes), body=(body,), applied=(Warps(_WARPS),))

  def alone(self) -> Kernel:
    """The kernel where no two entries have the same row: all may be stored at once."""
    s = self.store
    value = UOp.alu(BinaryOps.ADD, UOp(Ops.LOAD, s.dtype, (*s.src[:2], *s.src[3:])), s.src[2]) if self.mode == "add" else s.src[2]
    along = {a.id for a in self.along}
    axes = tuple([replace(a, kind=AxisKind.GRID) if a.id in along else a for a in self.kernel.axes])
    return self.kernel.with_(axes=axes, body=(UOp.unique(Ops.STORE, s.dtype, (*s.src[:2], value, *s.src[3:])),))

  def runs(self, part: int) -> Kernel:
    """The kernel with statements, where each program has a part of the entries, in which equal ones stand side by side."""
    s, row, rows = self.store, self.row, self.rows
    assert row is not None and rows is not None and isinstance(self.length, int)
    table = self.columns()
    number = self.new(self.length // part, AxisKind.GRID).rng
    tile = [a for a in self.axes if a.kind is AxisKind.TILE]
    t = self.new(min(max(RUN_ELEMENTS // (tile[0].known if tile else 1), 2), part), AxisKind.TILE)
    kind = row.src[0].dtype
    pos, at, to = self.variable("pos", dtypes.int32), self.variable("at", kind, t), self.variable("to", kind)
    begin, end = ix.mul(number, part), ix.mul(ix.add(number, 1), part)
    place = ix.add(pos.cast(ix.INT), t.rng)
    inside = ix.lt(place, end)
    along = self.along[0].rng
    def entry(x: UOp, place: UOp, valid: UOp) -> UOp: return with_gated_loads(substitute((x,), {**table, along: place})[0], valid)
    mine = UOp.alu(BinaryOps.AND, inside, UOp.alu(BinaryOps.CMPEQ, at, to))
    target, gate = substitute((s.src[1], ix.both(self.gate, self.inside)), {**table, row: to.cast(ix.INT)})
    gates = () if gate is ix.TRUE else (gate,)
    acc = dtypes.float32 if s.dtype.kind == "f" and s.dtype.itemsize < 4 else s.dtype
    total, old = self.variable("total", acc, *tile), self.variable("old", acc, *tile)
    value = mine.where(entry(s.src[2], place, ix.both(mine, self.inside)).cast(acc), UOp.const(acc, 0))
    one, none = (UOp.const(dtypes.int32, n) for n in (1, 0))
    count = UOp(Ops.REDUCE, dtypes.int32, (mine.where(one, none),), (BinaryOps.ADD, (t.id,)))
    loop = UOp.unique(Ops.WHILE, dtypes.bool, (
      UOp.alu(BinaryOps.CMPLT, pos, end.cast(dtypes.int32)),
      store_over(to, entry(row.src[0], pos.cast(ix.INT), ix.TRUE)), store_over(at, entry(row.src[0], place, inside)),
      store_over(old, UOp(Ops.LOAD, s.dtype, (s.src[0], target, *gates)).cast(acc)),
      store_over(total, UOp(Ops.REDUCE, acc, (value,), (BinaryOps.ADD, (t.id,)))),
      self.to(target, UOp.alu(BinaryOps.ADD, old, total).cast(s.dtype), gates),
      store_over(pos, UOp.alu(BinaryOps.ADD, pos, count))))
    start = store_over(pos, begin.cast(dtypes.int32))
    return self.kernel.with_(axes=tuple(self.axes), body=(start, loop), applied=(Warps(_WARPS),))

  def to(self, target: UOp, value: UOp, gates: tuple[UOp, ...]) -> UOp:
    return UOp.unique(Ops.STORE, self.store.dtype, (self.store.src[0], target, value, *gates))

  def columns(self) -> dict[UOp, UOp]:
    """The other axes: a block of those elements of a row that lie side by side, a program for each other one."""
    side = self.beside()
    table: dict[UOp, UOp] = {}
    self.inside = ix.TRUE
    for a in self.outer:
      if a is not side and a.size != 1: table[a.rng] = self.new(a.size, AxisKind.GRID).rng
    if side is not None:
      width = min(_COLUMNS, 1 << max(side.count - 1, 0).bit_length())
      blocks = ix.rounds(side.size, width)
      number = ix.ZERO if blocks == 1 else self.new(blocks, AxisKind.GRID).rng
      table[side.rng] = column = ix.add(ix.mul(number, width), self.new(width, AxisKind.TILE).rng)
      self.inside = ix.lt(column, side.size)
    return table
