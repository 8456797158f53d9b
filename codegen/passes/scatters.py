"""Pass: rows stored where an index says, for targets with blocks, in programs that share no rows, nor an order: without atomics.

Where there is one table of rows for all, each program has some of them, and looks for them in the index. Values are read once.
Equal ones in a block are added up together: many for one row cost no more than others.

    STORE(y[index[a0], a1], x[a0, a1], add, a0 in order)   ->   FOR blocks of the index: at = those of my rows,
                                                                WHILE there are any: y[the first row] += the sum of all its x

A long index is sorted first (``ntgrad/schedule/scatter_order.py``): equal rows stand side by side, and each program has a part:

    ->   pos = where my part begins, WHILE it is not at its end: y[index[pos]] += the sum of x[pos..], as many as have that row

Where there are many tables (the rows of ``x.scatter(1, index, y)``), each program has one, or a few that lie side by side, and
compares every two entries of a block; or, of many entries, sorts these by where they go:

    STORE(y[a0, index[a0, a1]], x[a0, a1], add, a1 in order)   ->   FOR blocks of a1: total[i] = sum of all x[j] for the row of i,
                                                                    y[a0, index[i]] += total[i] of the last i for each row
    -> FOR blocks of a1: key = sorted (index[a0, i], i), total[i] = x[i] in that order,
                         WHILE some entry and the one that is n behind go to one row: total[i] += total[i + n] of these, n *= 2
                         y[a0, row[i]] += total[i] of the first i for each row
"""
from __future__ import annotations

from dataclasses import replace

from .. import index as ix
from ..ir import BinaryOps, DType, Ops, Target, UOp, config, dtypes, power_of_two
from ..ir.alu import add, and_, at_most, differ, equal, int_const, least_of, less, or_, shift_left, shift_right
from ..kernel import Axis, AxisKind, Kernel, gate_or_true, substitute
from ..opts import Warps, merge_axes
from .builder import Builder, moved, put, reduce_over, store_over, variable, while_, with_gated_loads

_LEAST = 16            # indices that it is worth for
INDICES = 1024         # of a block, which a program looks through at once
_COLUMNS = 256         # elements of a row that a program makes
_BLOCK = 2048          # elements of the rows for one, which are added up at once
_PROGRAMS = 8          # programs for each core
_WARPS = 4             # warps of a program that looks for its rows
# of entries that are compared with each other: how many a block has, and warps, from so many programs for each core on
PAIRS = (16, 32, 1), (4, 64, 2), (0, 128, 4)
MANY_ENTRIES, SORTED_ENTRIES = 128, 2048  # entries of a table from which on they are sorted, so many at a time
SIDE = 8                                  # tables side by side that one program has, at most
SIDE_PAIRS = 16, 2                        # entries that are compared with each other then, and warps
# about what it takes: cycles for each entry in pairs, by how many entries a block has; of a program that looks for its rows for
# each block, and for each entry that it finds
PAIR_CYCLES = {32: 40, 64: 20, 128: 12}
BLOCK_CYCLES = FOUND_CYCLES = 1800  # cycles
_LONG = 16384                       # entries from which on to sort them takes less time than that all programs look through them
PART_PROGRAMS, LEAST_PART_ENTRIES = 2048, 32             # programs that then have a part each, and entries of a part, at least
MOST_PART_ENTRIES, RUN_ELEMENTS = 512, 2048  # entries of a part at most, and elements of these that are added up at once


def spread_scatters(kernel: Kernel, target: Target | None = None) -> Kernel:
  """A STORE that goes through an axis in order, as programs that have some rows each: STORE(y, at, x, add) -> FOR, WHILE."""
  if target is None or not target.blocks or config.noopt or not kernel.plain or not kernel.sequential or kernel.reduces or \
    len(kernel.body) != 1 or kernel.of_kind(AxisKind.TILE, AxisKind.LOCAL): return kernel
  merged = merge_axes(kernel)
  if (place := _row(merged)) is None: return kernel
  found = _Scatter(merged, target, *place)
  if part := found.entries: return found.alone() if part == 1 else found.runs(part)
  if not found.pairs(): return found.lowered()
  # tables that lie side by side are read together
  many = ix.count(found.length) >= MANY_ENTRIES and found.side is None and found.index_side is None
  return found.sorted() if many else found.compared()


def worth_sorting(entries: int, target: Target) -> bool:
  """Whether to sort an index of so many entries before rows are stored where it says."""
  return target.blocks and entries >= _LONG and not config.noopt


def part_of(entries: int) -> int:
  """How many of so many sorted entries a program has, a power of two."""
  return min(max(1 << max(entries // PART_PROGRAMS, 1).bit_length() - 1, LEAST_PART_ENTRIES), MOST_PART_ENTRIES)


def _row(kernel: Kernel) -> tuple[UOp, UOp] | None:
  """Where an index says that a row goes, and how many rows there are; None where the STORE is of another form."""
  s, = kernel.body
  along, gate = [a for a in kernel.axes if a.id in s.arg[1]], gate_or_true(s)
  ordered = {a.rng for a in along}
  if ix.count(ix.product(a.size for a in along)) < _LEAST or s.dtype.kind == "b": return None
  found = [c.src for c in ix.conjuncts(gate)   # -1 < row and row < rows
           if c.arg is BinaryOps.CMPLT and not c.src[1].ranges and c.src[0].op is Ops.CAST and ordered <= c.src[0].ranges]
  if not found: return None
  row, rows = found[-1]
  if row.src[0].dtype not in (dtypes.int32, dtypes.int64) or not ix.of_sizes(rows): return None
  return None if any(ordered & x.ranges for x in substitute((s.src[1], gate), {row: ix.ZERO})) else (row, rows)


class _Scatter(Builder):
  """One such kernel: ``row`` is where the index says that a row goes, of so many ``rows``."""

  def __init__(self, kernel: Kernel, target: Target, row: UOp, rows: UOp):
    super().__init__(kernel, target)
    self.row, self.rows, self.known = row, rows, ix.number(rows)
    self.index, self.kind = row.src[0], row.src[0].dtype
    self.store = s = kernel.body[0]
    self.adds = s.arg[0] == "add"
    self.acc = dtypes.float32 if s.dtype.kind == "f" and s.dtype.itemsize < 4 else s.dtype   # what is added up in
    self.sequence = [a for a in kernel.axes if a.id in s.arg[1]]
    self.outer = [a for a in kernel.axes if a.id not in s.arg[1]]
    self.length = ix.product(a.size for a in self.sequence)
    self.stored, self.gate = s.src[2], gate_or_true(s)
    self.others = ix.count(self.outside)   # tables
    load = next((u for u in row.toposort() if u.op is Ops.LOAD), None)
    # the axes other than those in order along which elements of the target, or of the index, lie side by side
    self.side = self.beside(s.src[0], substitute((s.src[1],), {row: ix.ZERO})[0])
    self.index_side = self.beside(*load.src[:2]) if load is not None else None

  # ---- which way

  @property
  def entries(self) -> int:
    """The entries of a program, where equal ones stand side by side in these; 0 where they do not."""
    load = self.index
    if load.op is not Ops.LOAD or len(self.sequence) != 1 or load.src[1].src != (self.sequence[0].rng,): return 0
    p = self.kernel.by_uop.get(load.src[0])
    return p.runs if p else 0

  def pairs(self) -> bool:
    """Whether the entries of a block are compared with each other: there are many tables, each of rows of one element."""
    if self.side is not None and self.side.rng not in self.row.ranges: return False
    if self.side is not None or self.index_side is not None: return True
    length, owners = ix.count(self.length), self.owners(self.others)
    look = (length // INDICES + 1) * BLOCK_CYCLES + length // owners * FOUND_CYCLES
    return length * PAIR_CYCLES[self.compared_pairs[0]] < look * max(self.others * owners // (_PROGRAMS * self.cores), 1)

  @property
  def compared_pairs(self) -> tuple[int, int]:
    """How many entries of a block are compared with each other, and the warps for that."""
    return next((n, w) for least, n, w in PAIRS if self.others >= least * self.cores)

  def owners(self, others: int) -> int:
    """The programs that share the rows of each of so many tables."""
    return max(min(_PROGRAMS * self.cores // max(others, 1), ix.count(self.known)), 1)

  # ---- what they have in common

  def grid(self, side: Axis | None = None) -> None:
    """A program for each element of the other axes."""
    for a in self.outer:
      if a is not side and a.size != 1: self.table[a.rng] = self.new(a.size, AxisKind.GRID).rng

  def columns(self) -> tuple[list[Axis], UOp]:
    """Programs for the elements of a row, blocks of those side by side: the axis of a block, and whether an element is there."""
    self.grid(side := self.side)
    if side is None: return [], ix.TRUE
    width = min(_COLUMNS, power_of_two(side.count))
    blocks = ix.rounds(side.size, width)
    number = ix.ZERO if blocks == 1 else self.new(blocks, AxisKind.GRID).rng
    tile, = self.tiles(width)
    self.table[side.rng] = column = ix.add(ix.mul(number, width), tile.rng)
    return [tile], ix.lt(column, side.size)

  def blocks(self, most: int) -> int:
    """The loop over blocks of the entries, of which each has so many, a power of two."""
    size = min(most, power_of_two(ix.count(self.length)))
    block, = self.loops(ix.rounds(self.length, size))
    self.loop, self.begin = (block, block.size), ix.mul(block.rng, size)
    return size

  def value(self, x: UOp, place: UOp, there: UOp) -> UOp:
    """A value for the entry at a place among all, where there is one."""
    axes: dict[UOp, UOp] = {}
    for a in self.sequence[:0:-1]: axes[a.rng], place = ix.mod(place, a.size), ix.fdiv(place, a.size)
    return with_gated_loads(self.here(x, {**axes, self.sequence[0].rng: place}), there)

  def entry(self, x: UOp, at: UOp, there: UOp = ix.TRUE) -> tuple[UOp, UOp]:
    """A value for the entry at a place of the block, and whether there is one."""
    inside = ix.both(there, ix.lt(ix.add(self.begin, at), self.length))
    return self.value(x, ix.add(self.begin, at), inside), inside

  def goes(self, at: UOp, there: UOp = ix.TRUE, low: UOp | None = None, end: UOp | None = None) -> tuple[UOp, UOp]:
    """The row of the entry at a place of the block, and whether it is one of all, or from ``low`` to ``end``."""
    here, inside = self.entry(self.index, at, there)
    valid = and_(at_most(low or UOp.const(self.kind, 0), here), less(here, (end or self.rows).cast(self.kind)))
    return here, valid if inside is ix.TRUE else and_(valid, inside)

  def to(self, row: UOp, gate: UOp) -> tuple[UOp, ...]:
    """The index that is stored at, and a condition, where a row goes to ``row``."""
    return substitute((self.store.src[1], gate), {**self.table, self.row: row.cast(ix.INT)})

  def added(self, target: UOp, gate: UOp, total: UOp | None, *axes: Axis) -> list[UOp]:
    """Statements that add ``total``, or the variable of that name, to what lies there, which is asked for first."""
    s, sums, old = self.store, variable("total", self.acc, *axes), variable("old", self.acc, *axes)
    return [store_over(old, UOp(Ops.LOAD, s.dtype, (s.src[0], target, *[gate] * (gate is not ix.TRUE))).cast(self.acc)),
            *([] if total is None else [store_over(sums, total)]), put(s, target, add(old, sums).cast(s.dtype), gate)]

  def chosen(self, value: UOp, where: UOp) -> UOp:
    """What is added up of a value: 0 where a condition is false."""
    return where.where(value.cast(self.acc), UOp.const(self.acc, 0))

  # ---- tables for each program

  def sorted(self) -> Kernel:
    """The kernel with statements, where each program has a table and sorts what goes there."""
    self.grid()
    size = self.blocks(SORTED_ENTRIES)
    bits, (i,) = size.bit_length() - 1, self.tiles(size)
    word = dtypes.uint32 if isinstance(self.known, int) and self.known << bits < dtypes.max(dtypes.uint32) else dtypes.uint64
    kind, (here, valid) = self.narrow, self.goes(i.rng)
    both = or_(shift_left(here.cast(word), UOp.const(word, bits)), i.rng.cast(word))
    nowhere = UOp.const(word, dtypes.max(word))
    key, at = variable("key", word, i), variable("at", kind, i)
    row = shift_right(key, UOp.const(word, bits)).cast(kind)
    value = self.entry(self.stored, and_(key, UOp.const(word, size - 1)).cast(ix.INT))[0]
    work = [store_over(key, valid.where(both, nowhere)), store_over(key, UOp(Ops.SORT, word, (key,), (i.id, False, size, False))),
            store_over(at, equal(key, nowhere).where(UOp.const(kind, -1), row))]
    target, gate = self.to(at, self.gate)
    def differs(to: UOp) -> UOp: return differ(at, moved(at, to))
    if self.adds:
      first = or_(ix.lt(i.rng, 1), differs(ix.greatest(ix.sub(i.rng, ix.ONE), 0)))
      work += self.doubled(at, value, i, target, ix.both(gate, first))
    else:
      after, last = ix.add(i.rng, ix.ONE), ix.const(size - 1)
      work.append(put(self.store, target, value, ix.both(gate, or_(ix.lt(last, after), differs(ix.least(after, last))))))
    return self.made(work, self.loop)

  @property
  def narrow(self) -> DType:
    """The dtype of a row's number."""
    return dtypes.int32 if isinstance(self.known, int) and self.known < 2 ** 31 else self.kind

  def doubled(self, at: UOp, value: UOp, i: Axis, target: UOp, gate: UOp) -> list[UOp]:
    """Statements that add each row's values to what lies there, in a block whose entries have rising rows, ``at``. Each entry
    adds up those of its row behind it: ``total[i] += total[i + far]``, ``far`` = 1, 2, 4, .. as long as any two so far apart have
    one row."""
    total, more = variable("total", self.acc, i), variable("more", self.acc, i)
    far, left = variable("far", dtypes.int32), variable("left", dtypes.int32)
    one, none, end = map(int_const, (1, 0, i.known - 1))
    behind = add(i.rng.cast(dtypes.int32), far)
    there, behind = at_most(behind, end), least_of(behind, end).cast(ix.INT)
    together = and_(there, and_(at_most(UOp.const(at.dtype, 0), at), equal(at, moved(at, behind))))
    look = store_over(left, reduce_over(BinaryOps.MAX, together.where(one, none), i))
    double = while_(less(none, left), store_over(more, self.chosen(moved(total, behind), together)),
                    store_over(total, add(total, more)), store_over(far, add(far, far)), look)
    return [store_over(total, value.cast(self.acc)), store_over(far, one), look, double, *self.added(target, gate, None, i)]

  def compared(self) -> Kernel:
    """The kernel with statements, where each program has tables of its own."""
    side = self.side or self.index_side
    self.grid(side)
    there, columns = ix.TRUE, 1
    if side is None: size, warps = self.compared_pairs
    else:
      size, warps = SIDE_PAIRS
      columns = min(SIDE, power_of_two(side.count))
      number = self.new(ix.rounds(side.size, columns), AxisKind.GRID).rng
    size = self.blocks(size)
    # a thread has some entries and goes through the others of the block: these come first
    j, i = self.tiles(size, size)
    tile = [] if side is None else self.tiles(columns)
    if side is not None:
      self.table[side.rng] = ix.add(ix.mul(number, columns), tile[0].rng)
      there = ix.lt(self.table[side.rng], side.size)
    def rows_of(name: str, axis: Axis) -> tuple[UOp, UOp]:
      """Where each entry goes, -1 for nowhere; and its STORE."""
      here, valid = self.goes(axis.rng, there)
      kept = variable(name, self.narrow, axis, *tile)
      return kept, store_over(kept, valid.where(here.cast(kept.dtype), UOp.const(kept.dtype, -1)))
    (other, find_other), (at, find) = rows_of("other", j), rows_of("at", i)
    same, last = equal(at, other), variable("last", dtypes.int32, i, *tile)
    latest = same.where(j.rng.cast(dtypes.int32), int_const(-1))
    work = [find_other, find, store_over(last, reduce_over(BinaryOps.MAX, latest, j))]
    target, gate = self.to(at, self.gate)
    gate = ix.both(gate, there, equal(last, i.rng.cast(dtypes.int32)))
    if self.adds:
      value = self.chosen(self.entry(self.stored, j.rng, there)[0], same)
      work += self.added(target, gate, reduce_over(BinaryOps.ADD, value, j), i, *tile)
    else: work.append(put(self.store, target, self.entry(self.stored, i.rng, there)[0], gate))
    return self.made(work, self.loop, applied=(Warps(warps),))

  # ---- rows for each program

  def lowered(self) -> Kernel:
    """The kernel with statements, where each program looks for its rows."""
    tile, within = self.columns()
    owners = self.owners(ix.count(ix.product(a.size for a in self.axes if a.kind is AxisKind.GRID)))
    each = ix.cdiv(self.rows, owners)
    first = ix.mul(self.new(owners, AxisKind.GRID).rng, each) if owners > 1 else ix.ZERO
    size = self.blocks(INDICES)
    groups = min(_BLOCK // ix.elements(a.size for a in tile), size // 2)
    t, j = self.tiles(groups, size // groups)
    place = ix.add(ix.mul(j.rng, t.known), t.rng)   # entries side by side, which often have one row, are of different groups
    last = ix.add(first, each) if owners > 1 else self.rows
    here, mine = self.goes(place, low=first.cast(self.kind), end=ix.least(last, self.rows))
    none = UOp.const(self.kind, dtypes.max(self.kind))
    at, to = variable("at", self.kind, t, j), variable("to", self.kind)
    least = store_over(to, reduce_over(BinaryOps.MIN, at, t, j))
    same, number = equal(at, to), place.cast(dtypes.int32)
    target = self.to(to, self.gate)[0]
    gate = ix.both(self.here(self.gate, {self.row: ix.ZERO}), within)
    found = variable("found", dtypes.int32, *[t] * self.adds)   # of each group the first, or the last of all
    which = ix.add(self.begin, ix.greatest(ix.least(found.cast(ix.INT), size - 1), 0))
    if self.adds:
      find, rest = reduce_over(BinaryOps.MIN, same.where(number, int_const(size)), j), equal(number, found)
      there = ix.lt(found.cast(ix.INT), size)
      value = self.chosen(self.value(self.stored, which, ix.both(there, within)), there)
      work = self.added(target, gate, reduce_over(BinaryOps.ADD, value, t), *tile)
    else:
      find, rest = reduce_over(BinaryOps.MAX, same.where(number, int_const(-1)), t, j), same
      work = [put(self.store, target, self.value(self.stored, which, within), gate)]
    loop = while_(less(to, none), store_over(found, find), *work, store_over(at, rest.where(none, at)), least)
    return self.made([store_over(at, mine.where(here, none)), least, loop], self.loop, applied=(Warps(_WARPS),))

  def alone(self) -> Kernel:
    """The kernel where no two entries have the same row: all may be stored at once."""
    s = self.store
    value = add(UOp(Ops.LOAD, s.dtype, (*s.src[:2], *s.src[3:])), self.stored) if self.adds else self.stored
    axes = tuple(replace(a, kind=AxisKind.GRID) if a in self.sequence else a for a in self.kernel.axes)
    return self.kernel.with_(axes=axes, body=(put(s, s.src[1], value, *s.src[3:]),))

  def runs(self, part: int) -> Kernel:
    """The kernel with statements, where each program has a part of the entries, in which equal ones stand side by side."""
    assert isinstance(self.length, int)
    tile, within = self.columns()
    number = self.new(self.length // part, AxisKind.GRID).rng
    t, = self.tiles(min(max(RUN_ELEMENTS // ix.elements(a.size for a in tile), 2), part))
    pos, at, to = variable("pos", dtypes.int32), variable("at", self.kind, t), variable("to", self.kind)
    begin, end = ix.mul(number, part), ix.mul(ix.add(number, 1), part)
    place = ix.add(pos.cast(ix.INT), t.rng)
    inside = ix.lt(place, end)
    mine = and_(inside, equal(at, to))
    target, gate = self.to(to, ix.both(self.gate, within))
    value = self.chosen(self.value(self.stored, place, ix.both(mine, within)), mine)
    loop = while_(
      less(pos, end.cast(dtypes.int32)), store_over(to, self.value(self.index, pos.cast(ix.INT), ix.TRUE)),
      store_over(at, self.value(self.index, place, inside)),
      *self.added(target, gate, reduce_over(BinaryOps.ADD, value, t), *tile),
      store_over(pos, add(pos, reduce_over(BinaryOps.ADD, mine.where(int_const(1), int_const(0)), t))))
    return self.made([store_over(pos, begin.cast(dtypes.int32)), loop], applied=(Warps(_WARPS),))
