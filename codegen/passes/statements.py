"""Pass: a kernel whose statements have an order -> parts, one a statement.

    FOR(n, STORE(t, SCAN(x)), STORE(y, t * 2))   ->   LOOP, run = 0, LOOP, run = run + x, t = run, ENDLOOP, y = t * 2, ENDLOOP

Regions become marks. In a statement the program's position and the axes of the FORs that it stands in are SPECIAL nodes. A value
that is read elsewhere than it is written is read before. Where a tile may hang over an edge there is a second version without
masks, for tiles that do not.
"""
from __future__ import annotations

from dataclasses import replace
from typing import Iterable, Sequence, Union

from .. import index as ix
from ..ir import BinaryOps, Ops, OptError, Target, UnaryOps, UOp, identity, toposort
from ..ir.alu import and_, equal, int_const, less, not_, or_
from ..kernel import EFFECTS, LOAD_OR_STORE, Axis, AxisKind, Kernel, LocalVariable, gate_or_true, inner, is_variable, substitute
from ..opts.axes import seen_by
from .additions import with_joined_sums
from .builder import chooses, for_, new_name, put, reduce_over, store_over, variable
from .loops import positions
from .parts import Item, Mark, Part, Parts
from .tiles import without_true_gates

_Work = Union[UOp, Ops]   # a statement, or the mark that ends a region
_ALONG = Ops.SCAN, Ops.SORT   # the whole value of a STORE
COPIED_KINDS = AxisKind.UPCAST, AxisKind.UNROLL, AxisKind.LANE, AxisKind.LOCAL


def split_statements(kernel: Kernel, target: Target | None = None) -> Parts:
  """A kernel as parts: one for each statement, with marks for FOR, WHILE and IF; a plain kernel is one part. SCAN -> a loop, SORT
  -> ranks.

  For a target with blocks TILE axes, SCAN and SORT stay."""
  if kernel.plain: return Parts.of(kernel)
  out = _Statements(kernel, target)
  out.body(kernel.body)
  return Parts(kernel, tuple(out.items))


class _Statements:
  """Cuts one kernel into ``items``, in order."""

  def __init__(self, kernel: Kernel, target: Target | None):
    self.kernel = kernel
    self.keeps_blocks = bool(target and target.blocks)
    self.chooses = chooses(target)
    self.axes = {a.id: a for a in kernel.axes}
    position = positions(kernel)
    self.scalars: dict[UOp, UOp] = {a.rng: position[a.id] for a in kernel.axes if a.id in position and a.size != 1}
    self.names: set[str] = {v.arg[0] for v in kernel.variables}
    self.outside: list[dict[UOp, UOp]] = []   # the scalars outside each LOOP that is open
    self.items: list[Item] = []
    self.given: dict[UOp, UOp] = {}   # what a FOLD alone reads -> the STORE that fills it, right before
    before: list[UOp] = []
    for s in kernel.statements if not self.keeps_blocks else ():
      if s.op is Ops.FOLD: self.given.update((x.src[0], x) for x in before if x.src[0] in s.src[:len(s.arg.first)])
      plain = s.op is Ops.STORE and s.src[0].op is Ops.DEFINE_LOCAL and s.src[2].op not in _ALONG and not has_reduce(s.src[2])
      if plain: before.append(s)
      else: before = []

  def mark(self, op: Ops, *values: Part, axis: Axis | None = None) -> None: self.items.append(Mark(op, values, axis))

  # ---- regions

  def body(self, statements: Iterable[UOp]) -> None:
    """Go through statements, and what regions among them have: a region gives what is inside, and the marks for it, in order."""
    regions = {Ops.FOR: self.loop, Ops.WHILE: self.while_, Ops.IF: self.branch}
    todo: list[_Work] = [*reversed([*statements])]
    while todo:
      s = todo.pop()
      if isinstance(s, Ops):
        if s is Ops.ENDLOOP: self.scalars = self.outside.pop()
        self.mark(s)
      elif s.op in EFFECTS:
        if s.src[0] not in self.given: self.effect(s)
      elif s.op is Ops.FOLD: self.fold(s)
      elif s.op is Ops.PRINT: self.items.append(self.part(*substitute((s,), self.scalars)))
      elif s.op in regions: todo.extend(regions[s.op](s)[::-1])
      else: raise OptError(f"{s.op} is no statement")

  def loop(self, s: UOp) -> Sequence[_Work]:
    """FOR -> LOOP .. ENDLOOP"""
    axis, end = self.axes[s.arg], s.src[0]
    if end.op is Ops.CONST and end.arg <= 0: return ()
    if end.op is Ops.CONST and axis.size == 1: return s.src[1:]
    self.mark(Ops.LOOP, self.value(ix.ZERO), self.value(ix.least(end, axis.size)), axis=axis)
    self.outside.append(self.scalars)
    if axis.size != 1: self.scalars = {**self.scalars, axis.rng: Mark.index(axis)}
    return *s.src[1:], Ops.ENDLOOP

  def while_(self, s: UOp) -> Sequence[_Work]:
    """WHILE -> WHILE, the condition, BREAK, .. ENDWHILE"""
    self.mark(Ops.WHILE)
    self.mark(Ops.BREAK, self.value(s.src[0]))
    return *s.src[1:], Ops.ENDWHILE

  def branch(self, s: UOp) -> Sequence[_Work]:
    """IF -> IF .. [ELSE ..] ENDIF"""
    condition, (yes, no) = s.src[0], inner(s)
    if condition.op is Ops.CONST: return yes if condition.arg else no
    if not yes: condition, yes, no = not_(condition), no, ()
    self.mark(Ops.IF, self.value(condition))
    return (*yes, Ops.ELSE, *no, Ops.ENDIF) if no else (*yes, Ops.ENDIF)

  # ---- effects

  def effect(self, s: UOp) -> None:
    """A STORE or ATOMIC, by way of other statements where one will not do."""
    value = s.src[2]
    if value.op in _ALONG:
      axis = self.axes[value.arg[1 if value.op is Ops.SCAN else 0]]
      if axis.rng not in value.ranges: s = with_value(s, value.src[0])   # one element
      elif not self.keeps_blocks: return self.scan(s, axis) if value.op is Ops.SCAN else self.sort(s, axis)
    s, = substitute((s,), self.scalars)
    if not self.keeps_blocks:
      loads, whole = before(s)
      s, = substitute((s,), {u: self.materialize(u) for u in loads})
      if whole: s = with_value(s, self.materialize(s.src[2]))
    self.store(s)

  def store(self, s: UOp) -> None:
    """Where a tile may hang over an edge, most do not: IF whole .. without masks, ELSE .. as it is."""
    if self.chooses: s = with_joined_sums(s)
    whole = whole_tiles(s) if s.op is Ops.STORE and self.chooses else {}
    condition = ix.both(*whole.values()) if whole else ix.FALSE
    if condition is ix.FALSE: return self.items.append(self.part(s))
    self.mark(Ops.IF, self.part(condition))
    self.items.append(self.part(without_true_gates(substitute((s,), dict.fromkeys(whole, ix.TRUE)))[0]))
    self.mark(Ops.ELSE)
    self.items.append(self.part(s))
    self.mark(Ops.ENDIF)

  def materialize(self, value: UOp) -> UOp:
    """Compute a value now, into a variable; gives what reads it."""
    out = variable(new_name("t", self.names), value.dtype, *[a for a in self.axes.values() if a.rng in value.ranges])
    self.store(store_over(out, value))
    return out

  def scan(self, s: UOp, axis: Axis) -> None:
    """for a: run = fn(run, value(a)); out[a] = run"""
    fn, _, reverse = s.src[2].arg
    value = s.src[2].src[0]
    if has_reduce(value) or _reads_elsewhere(s, (value,)): value = self.materialize(substitute((value,), self.scalars)[0])
    back = {axis.rng: ix.sub(ix.node(ix.minus(axis.size, 1)), axis.rng)} if reverse else {}
    value, at, *gate = substitute((value, s.src[1], *s.src[3:]), back)
    along = [a for a in self.axes.values() if a is not axis and a.rng in value.ranges and a.rng not in self.scalars]
    run = variable(new_name("t", self.names), value.dtype, *along)
    self.effect(store_over(run, UOp.const(value.dtype, identity(fn, value.dtype))))
    self.body([for_(axis, axis.size, store_over(run, UOp.alu(fn, run, value)), put(s, at, run, *gate))])

  def fold(self, s: UOp) -> None:
    """run = first; for a: run = fn(run, next), out[a] = run. A target with blocks scans all of them."""
    f, n = s.arg, len(s.arg.first)
    read, to, last = s.src[:n], s.src[n:], f.shape[f.axis] - 1
    axis, *others = map(self.new, (max(last, 1), *f.shape[:f.axis], *f.shape[f.axis + 1:]))
    def at(v: UOp, *place: UOp) -> UOp:
      where = [a.rng for a in others]
      where[f.axis:f.axis] = [ix.sub(ix.const(last), k) for k in place] if f.reverse else place
      if v in self.given: return substitute(self.given[v].src[2:3], dict(zip(self.given[v].src[1].src, where)))[0]
      return UOp(Ops.LOAD, v.dtype, (v, UOp(Ops.INDEX, ix.INT, tuple(where))))
    def like(vs: Iterable[UOp], *along: Axis) -> list[UOp]:
      return [variable(new_name("t", self.names), v.dtype, *along) for v in vs]
    if self.keeps_blocks:
      if f.scan: return self.items.append(self.part(s))
      whole = [v.src[0].with_arg((v.src[0].arg[0], *s.src[0].arg[1:])) for v in like(to)]
      self.items.append(self.part(UOp.unique(Ops.FOLD, s.dtype, (*read, *whole), f._replace(scan=True))))
      return self.body([store_over(at(v), at(w, ix.const(last))) for v, w in zip(to, whole)])
    run, next_ = like(read, *others), ix.add(axis.rng, 1)
    values = substitute(f.results, dict(zip((*f.first, *f.second), (*run, *[at(v, next_) for v in read]))))
    new = like(read, *others) if n > 1 else []   # all change at once
    def given(*place: UOp) -> list[UOp]: return [store_over(at(v, *place), run[i]) for v, i in zip(to, f.asked)]
    def scanned(place: UOp) -> list[UOp]: return given(place) if f.scan else []
    self.body([*[store_over(r, at(v, ix.ZERO)) for r, v in zip(run, read)], *scanned(ix.ZERO), for_(
      axis, last, *map(store_over, new, values), *map(store_over, run, new or values), *scanned(next_)), *given() * (not f.scan)])

  def new(self, size: int) -> Axis:
    """One more axis."""
    out = Axis(max(self.axes, default=-1) + 1, size, AxisKind.TILE)
    self.axes[out.id] = out
    return out

  def sort(self, s: UOp, axis: Axis) -> None:
    """Each element goes to its rank: how many stand before it."""
    descending = s.src[2].arg[1]
    x = self.materialize(substitute(s.src[2].src, self.scalars)[0])
    other = self.new(axis.size)  # type: ignore[arg-type]
    y, = substitute((x,), {axis.rng: other.rng})
    before, same = less(*((x, y) if descending else (y, x))), equal(x, y)
    if x.dtype.kind == "f":   # NaN stands after everything else
      xn, yn = UOp.alu(UnaryOps.ISNAN, x), UOp.alu(UnaryOps.ISNAN, y)
      before, same = or_(before, and_(xn, not_(yn))), or_(same, and_(xn, yn))
    first = or_(before, and_(same, ix.lt(ix.sub(other.rng, axis.rng), 0)))
    rank = self.materialize(reduce_over(BinaryOps.ADD, first.where(int_const(1), int_const(0)), other))
    at, *gate = substitute((s.src[1], *s.src[3:]), {axis.rng: rank.cast(ix.INT)})
    self.effect(put(s, at, x, *gate))

  # ---- parts

  def value(self, u: UOp) -> Part:
    """A scalar value that is asked for here."""
    u, = substitute((u,), self.scalars)
    return self.part(self.materialize(u) if has_reduce(u) and not self.keeps_blocks else u)

  def part(self, root: UOp) -> Part:
    """A statement, or a value, as a kernel of the axes that it is a function of and those that its reductions go through."""
    nodes = toposort((root,))
    ids = {r.arg[0] for r in root.ranges}.union(*(n.arg[1] for n in nodes if n.op is Ops.REDUCE))
    def looped(a: Axis) -> Axis: return a if self.keeps_blocks or a.kind in COPIED_KINDS else replace(a, kind=AxisKind.LOOP)
    axes = seen_by(tuple(looped(a) for i, a in self.axes.items() if i in ids), self.scalars)
    variables = [LocalVariable(-1 - i, v.arg[1], v.dtype, True, node=v) for i, v in enumerate(filter(is_variable, nodes))]
    return Part(Kernel((*self.kernel.params, *variables), axes, (root,), free=self.kernel.free))


def whole_tiles(s: UOp) -> dict[UOp, UOp]:
  """Conditions of gates, some of which depend on the statement's own axes, each with what makes it true for all their values. Of
  a statement with reductions those within them: what is outside of their loops takes little time beside them, masked too."""
  out: dict[UOp, UOp] = {}
  nodes = toposort((s,))
  nodes = toposort(tuple(u.src[0] for u in nodes if u.op is Ops.REDUCE)) or nodes
  gates = [c for u in nodes if u.op in LOAD_OR_STORE for c in ix.conjuncts(gate_or_true(u))]
  if not any(c.ranges for c in gates): return out
  for c in gates:
    if c.arg is not BinaryOps.CMPLT or c.src[0].dtype is not ix.INT: continue
    terms, n = ix.linear(ix.sub(*c.src))  # below 0
    if any(t.ranges and t.op is not Ops.RANGE for t, _ in terms): continue
    greatest = ix.const(n)
    for t, k in terms:
      greatest = ix.add(greatest, ix.mul(ix.sub(ix.node(t.arg[1]), 1), max(k, 0)) if t.op is Ops.RANGE else ix.mul(t, k))
    if (always := ix.lt(greatest, 0)) is not ix.FALSE and not any(x.op is Ops.LOAD for x in always.toposort()): out[c] = always
  return out


def has_reduce(u: UOp) -> bool: return any(n.op is Ops.REDUCE for n in toposort((u,)))


def _reads_elsewhere(s: UOp, roots: Iterable[UOp]) -> list[UOp]:
  """The LOADs beneath ``roots`` of what a statement writes, at other indices than it does."""
  return [u for u in toposort(roots) if u.op is Ops.LOAD and u.src[0] is s.src[0] and u.src[1] is not s.src[1]]


def before(s: UOp) -> tuple[list[UOp], bool]:
  """The LOADs that must be kept before an effect, as it writes there, in its place and its gate; and whether its value must."""
  early = [] if isinstance(s.arg, tuple) else _reads_elsewhere(s, s.src[1:])
  places, value = set(toposort((s.src[1], *s.src[3:]))), set(toposort((s.src[2],)))
  return [u for u in early if u in places], s.op is Ops.ATOMIC and has_reduce(s.src[2]) or any(u in value for u in early)


def kept_sizes(kernel: Kernel) -> list[ix.Dim]:
  """The sizes of the tiles that a kernel keeps before it writes over what they are made of."""
  tiles = {a.rng: a.size for a in kernel.tiles}
  found = [(s, *before(s)) for s in kernel.effects]
  kept = dict.fromkeys(r for s, loads, whole in found for u in (*loads, *s.src[2:3] * whole) for r in u.ranges if r in tiles)
  return [tiles[r] for r in kept]


def with_value(s: UOp, value: UOp) -> UOp: return UOp.unique(s.op, s.dtype, (*s.src[:2], value, *s.src[3:]), s.arg)
