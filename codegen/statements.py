"""Pass: a kernel whose statements have an order -> parts, one a statement.

    FOR(n, STORE(t, SCAN(x)), STORE(y, t * 2))   ->   LOOP, run = 0, LOOP, run = run + x, t = run, ENDLOOP, y = t * 2, ENDLOOP

Regions become marks. What stands around a statement is a number there: the program's position and the axes of FORs are SPECIAL
nodes. A SCAN becomes a loop, a SORT the rank of every element; what is read elsewhere than it is written is read before; where a
tile may hang over an edge there is a version without masks for those that do not.
"""
from __future__ import annotations

from typing import Callable, Iterable, Sequence, Union

from . import index as ix
from .config import config
from .dtype import DType, dtypes
from .errors import OptError
from .functions import identity
from .kernel import EFFECTS, Axis, AxisKind, Kernel, Param, Variable, inner, is_variable
from .loops import positions
from .parts import Item, Mark, Part, Parts
from .rewrite import substitute
from .target import Target
from .tiles import without_true_gates
from .uop import BinaryOps, Ops, TernaryOps, UnaryOps, UOp, toposort

Work = Union[UOp, Callable[[], None]]   # a statement, or what ends a region
COPIED = (AxisKind.UPCAST, AxisKind.UNROLL, AxisKind.LANE, AxisKind.LOCAL)


def cut(kernel: Kernel, target: Target | None = None) -> Parts:
  """A kernel as parts: one for each statement, with marks for FOR, WHILE and IF; a plain kernel is one part. SCAN -> a loop, SORT
  -> ranks.

  For a target with blocks (``target.blocks``) TILE axes, SCAN and SORT stay.
  """
  if kernel.plain: return Parts.of(kernel)
  return Parts(kernel, tuple(_Statements(kernel, target).run()))


def chooses(target: Target | None) -> bool:
  """Whether Opts are chosen for the statements of a kernel."""
  return not (config.noopt or target is None or target.blocks or target.lanes == 1 or target.locals)


class _Statements:
  """Cuts one kernel. ``run`` gives the items in order."""

  def __init__(self, kernel: Kernel, target: Target | None):
    self.kernel = kernel
    self.keeps_blocks = bool(target is not None and target.blocks)
    self.chooses = chooses(target)
    self.axes = {a.id: a for a in kernel.axes}
    self.order = [a.id for a in kernel.axes]
    self.around: dict[UOp, UOp] = {
      a.rng: positions(kernel)[a.id] for a in kernel.of_kind(AxisKind.GRID, AxisKind.LOCAL) if a.size > 1
    }
    self.names: set[str] = {v.arg[0] for v in kernel.variables}
    self.items: list[Item] = []

  def run(self) -> list[Item]:
    self.body(self.kernel.body)
    return self.items

  def mark(self, op: Ops, *values: Part, axis: Axis | None = None) -> None: self.items.append(Mark(op, values, axis))

  # ---- regions

  def body(self, statements: Iterable[UOp]) -> None:
    """Go through statements, and what regions among them have: a region gives what is to be done for it, in order."""
    todo: list[Work] = [*statements]
    todo.reverse()
    while todo:
      s = todo.pop()
      if not isinstance(s, UOp): s()
      elif s.op in EFFECTS: self.effect(s)
      elif s.op is Ops.FOR: todo.extend(self.loop(s)[::-1])
      elif s.op is Ops.WHILE: todo.extend(self.while_(s)[::-1])
      elif s.op is Ops.IF: todo.extend(self.branch(s)[::-1])
      else: raise OptError(f"{s.op} is no statement")

  def loop(self, s: UOp) -> Sequence[Work]:
    """FOR -> LOOP .. ENDLOOP"""
    axis = self.axes[s.arg]
    end = s.src[0]
    if end.op is Ops.CONST and end.arg <= 0: return ()
    if end.op is Ops.CONST and axis.size == 1: return s.src[1:]
    self.mark(Ops.LOOP, self.value(ix.const(0)), self.value(ix.least(end, axis.size)), axis=axis)
    before = self.around
    if axis.size > 1: self.around = {**before, axis.rng: Mark.index(axis)}
    def end_loop() -> None:
      self.around = before
      self.mark(Ops.ENDLOOP)
    return (*s.src[1:], end_loop)

  def while_(self, s: UOp) -> Sequence[Work]:
    """WHILE -> WHILE, the condition, BREAK, .. ENDWHILE"""
    self.mark(Ops.WHILE)
    self.mark(Ops.BREAK, self.value(s.src[0]))
    return (*s.src[1:], lambda: self.mark(Ops.ENDWHILE))

  def branch(self, s: UOp) -> Sequence[Work]:
    """IF -> IF .. [ELSE ..] ENDIF"""
    condition, (yes, no) = s.src[0], inner(s)
    if condition.op is Ops.CONST: return yes if condition.arg else no
    if not yes: condition, yes, no = UOp.alu(UnaryOps.NOT, condition), no, ()
    self.mark(Ops.IF, self.value(condition))
    other: Sequence[Work] = (lambda: self.mark(Ops.ELSE), *no) if no else ()
    return (*yes, *other, lambda: self.mark(Ops.ENDIF))

  # ---- effects

  def effect(self, s: UOp) -> None:
    """A STORE or ATOMIC, by way of other statements where one will not do."""
    value = s.src[2]
    if value.op in (Ops.SCAN, Ops.SORT):
      # one element
      if not any(r.arg[0] == value.arg[1 if value.op is Ops.SCAN else 0] for r in value.ranges): s = with_value(s, value.src[0])
      elif not self.keeps_blocks: return self.scan(s) if value.op is Ops.SCAN else self.sort(s)
    s, = substitute((s,), self.around)
    if not isinstance(s.arg, tuple) and not self.keeps_blocks:   # what is read elsewhere than it is written must be read before
      elsewhere = [u for u in toposort(s.src[1:]) if u.op is Ops.LOAD and u.src[0] is s.src[0] and u.src[1] is not s.src[1]]
      for u in elsewhere:
        if any(n is u for n in toposort((s.src[1], *s.src[3:]))): s, = substitute((s,), {u: self.keep(u)})
      if any(n in elsewhere for n in toposort((s.src[2],))): s = with_value(s, self.keep(s.src[2]))
    if s.op is Ops.ATOMIC and not self.keeps_blocks and has_reduce(s.src[2]): s = with_value(s, self.keep(s.src[2]))
    self.store(s)

  def store(self, s: UOp) -> None:
    """Where a tile may hang over an edge, most do not: IF whole .. without masks, ELSE .. as it is."""
    whole = whole_tiles(s) if s.op is Ops.STORE and self.chooses else {}
    condition = ix.both(*whole.values())
    if not whole or condition is ix.FALSE:
      self.items.append(self.part(s))
      return
    self.mark(Ops.IF, self.part(condition))
    self.items.append(self.part(without_true_gates(substitute((s,), {c: ix.TRUE for c in whole}))[0]))
    self.mark(Ops.ELSE)
    self.items.append(self.part(s))
    self.mark(Ops.ENDIF)

  def keep(self, value: UOp) -> UOp:
    """Compute a value now, into a variable; gives what reads it."""
    ids = {r.arg[0] for r in value.ranges}
    axes = [self.axes[i] for i in self.order if i in ids]
    v = self.variable(value.dtype, tuple(a.size for a in axes))
    at = UOp(Ops.INDEX, dtypes.index, tuple(a.rng for a in axes))
    self.store(UOp.unique(Ops.STORE, value.dtype, (v, at, value)))
    return UOp(Ops.LOAD, value.dtype, (v, at))

  def variable(self, dtype: DType, shape: tuple[int, ...]) -> UOp:
    n = 0
    while f"t{n}" in self.names: n += 1
    self.names.add(f"t{n}")
    return UOp(Ops.DEFINE_LOCAL, dtype, (), (f"t{n}", shape, "private"))

  def scan(self, s: UOp) -> None:
    """for a: run = fn(run, value(a)); out[a] = run"""
    fn, axis, reverse = s.src[2].arg
    a = self.axes[axis]
    value = s.src[2].src[0]
    if has_reduce(value) or any(
      n.op is Ops.LOAD and n.src[0] is s.src[0] and n.src[1] is not s.src[1] for n in toposort((value,))
    ):
      value = self.keep(substitute((value,), self.around)[0])
    if reverse:
      back = {a.rng: ix.sub(ix.const(a.size - 1), a.rng)}
      value, *rest = substitute((value, s.src[1], *s.src[3:]), back)
    else: rest = [s.src[1], *s.src[3:]]
    others = [self.axes[r.arg[0]] for r in sorted(value.ranges, key=lambda r: self.order.index(r.arg[0]))
              if r.arg[0] != axis and r not in self.around]
    run = self.variable(value.dtype, tuple(o.size for o in others))
    at = UOp(Ops.INDEX, dtypes.index, tuple(o.rng for o in others))
    now = UOp(Ops.LOAD, value.dtype, (run, at))
    self.effect(UOp.unique(Ops.STORE, value.dtype, (run, at, UOp.const(value.dtype, identity(fn, value.dtype)))))
    step = UOp.unique(Ops.STORE, value.dtype, (run, at, UOp.alu(fn, now, value)))
    out = UOp.unique(Ops.STORE, s.dtype, (s.src[0], rest[0], now, *rest[1:]))
    self.body([UOp.unique(Ops.FOR, dtypes.index, (ix.const(a.size), step, out), axis)])

  def sort(self, s: UOp) -> None:
    """Each element goes to its rank: how many stand before it."""
    axis, descending = s.src[2].arg
    a = self.axes[axis]
    value = s.src[2].src[0]
    x = self.keep(substitute((value,), self.around)[0])
    other = self.axis(a.size)
    y, = substitute((x,), {a.rng: other.rng})
    more, less = (x, y) if descending else (y, x)
    before, same = UOp.alu(BinaryOps.CMPLT, more, less), UOp.alu(BinaryOps.CMPEQ, x, y)
    if value.dtype.kind == "f":   # NaN stands after everything else
      xn, yn = UOp.alu(UnaryOps.ISNAN, x), UOp.alu(UnaryOps.ISNAN, y)
      before = UOp.alu(BinaryOps.OR, before, UOp.alu(BinaryOps.AND, xn, UOp.alu(UnaryOps.NOT, yn)))
      same = UOp.alu(BinaryOps.OR, same, UOp.alu(BinaryOps.AND, xn, yn))
    first = UOp.alu(BinaryOps.OR, before, UOp.alu(BinaryOps.AND, same, ix.lt(ix.sub(other.rng, a.rng), 0)))
    one = UOp.alu(TernaryOps.WHERE, first, UOp.const(dtypes.int32, 1), UOp.const(dtypes.int32, 0))
    rank = self.keep(UOp(Ops.REDUCE, dtypes.int32, (one,), (BinaryOps.ADD, (other.id,))))
    rest = substitute((s.src[1], *s.src[3:]), {a.rng: UOp(Ops.CAST, dtypes.index, (rank,))})
    self.effect(UOp.unique(Ops.STORE, s.dtype, (s.src[0], rest[0], x, *rest[1:])))

  def axis(self, size: int) -> Axis:
    """A new axis of a statement."""
    a = Axis(max(self.axes) + 1, size, AxisKind.TILE)
    self.axes[a.id] = a
    self.order.append(a.id)
    return a

  # ---- parts

  def value(self, u: UOp) -> Part:
    """A scalar value that is asked for here."""
    u, = substitute((u,), self.around)
    if has_reduce(u) and not self.keeps_blocks: u = self.keep(u)
    return self.part(u)

  def part(self, root: UOp) -> Part:
    """A statement, or a value, as a kernel of the axes that it is a function of and those that its reductions go through."""
    ids = {r.arg[0] for r in root.ranges}
    for n in toposort((root,)):
      if n.op is Ops.REDUCE: ids.update(n.arg[1])
    own = [self.axes[i] for i in self.order if i in ids]
    axes = tuple(a if self.keeps_blocks or a.kind in COPIED else Axis(a.id, a.size, AxisKind.LOOP) for a in own)
    params: list[Param] = list(self.kernel.params)
    for i, v in enumerate(u for u in toposort((root,)) if is_variable(u)):
      params.append(Variable(-1 - i, v.arg[1], v.dtype, True, v))
    return Part(Kernel(tuple(params), axes, (root,)))


def whole_tiles(s: UOp) -> dict[UOp, UOp]:
  """Conditions of gates that depend on the statement's own axes, each with what makes it true for all their values."""
  out: dict[UOp, UOp] = {}
  for u in toposort((s,)):
    for c in ix.conjuncts(
      u.src[2] if u.op is Ops.LOAD and len(u.src) > 2 else u.src[3] if u.op is Ops.STORE and len(u.src) > 3 else None
    ):
      if not c.ranges or c.op is not Ops.ALU or c.arg is not BinaryOps.CMPLT or c.src[0].dtype is not dtypes.index:
        continue
      terms, n = ix.linear(ix.sub(c.src[0], c.src[1]))  # below 0
      top = ix.const(n)
      for t, k in terms:
        if t.ranges and t.op is not Ops.RANGE:
          break
        top = ix.add(top, ix.mul(t, k) if t.op is not Ops.RANGE else ix.const(max(k, 0) * ix.vmax(t)))
      else:
        if not any(x.op is Ops.LOAD for x in top.toposort()):
          out[c] = ix.lt(top, 0)
  return {c: always for c, always in out.items() if always is not ix.FALSE}


def has_reduce(u: UOp) -> bool: return any(n.op is Ops.REDUCE for n in toposort((u,)))


def with_value(s: UOp, value: UOp) -> UOp: return UOp.unique(s.op, s.dtype, (*s.src[:2], value, *s.src[3:]), s.arg)
