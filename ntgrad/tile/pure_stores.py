"""A kernel as stores of expressions of what it was given: for gradients, which go from a store to what it reads.

    STORE(v[i], exp(x[i])), FOR(2, STORE(v[i], v[i] * x[k])), STORE(y[j], v[j])   ->   STORE(y[j], exp(x[j]) * x[0] * x[1])

Variables are replaced by what they hold, loops are written out, conditions become gates and choices. Sums stay sums. What has no
such form is refused, with the line of the application."""
from __future__ import annotations

import itertools
from dataclasses import replace
from typing import NamedTuple

from ntgrad.codegen import index as ix
from ntgrad.codegen.explain.derivation import NoArrangement, ends
from ntgrad.codegen.index import below, text_of
from ntgrad.codegen.ir import BinaryOps, GradientError, Ops, TernaryOps, UnaryOps, UOp, toposort
from ntgrad.codegen.kernel import EFFECTS, Axis, AxisKind, Kernel, gate_or_true, inner, is_variable, rewrite, substitute
from ntgrad.codegen.passes.tiles import lower_tiles

from .specialised import Specialised

ROUNDS = 32   # of a loop that is written out


def no_rule(kernel: str, what: str) -> GradientError:
  """The error for a kernel whose gradient no rule gives."""
  return GradientError(f"{kernel}: an input requires a gradient, and no rule gives that of {what}; give tile.function a backward "
                       "kernel, or call it under no_grad()")


class _At(NamedTuple):
  """A statement, the numbers that the axes of the FORs around it have there, and the condition under which it is done."""
  statement: UOp
  counters: dict[UOp, UOp]
  condition: UOp


def pure_stores(s: Specialised) -> list[Kernel]:
  """A kernel for each store of the application, in the scheduler's form. Raises GradientError for what has none."""
  reader = _Reader(s)
  reader.run()
  out = []
  for store in reader.stores:
    bound = [i for u in toposort((store,)) if u.op is Ops.REDUCE for i in u.arg[1]]
    used = {r.arg[0] for r in store.ranges}.union(bound)
    out.append(lower_tiles(s.kernel.with_(axes=tuple([a for a in reader.axes.values() if a.id in used]), body=(store,))))
  return out


class _Reader:
  """What each variable holds, and what is stored, as far as a kernel has been read."""

  def __init__(self, s: Specialised):
    self.s = s
    self.axes: dict[int, Axis] = {a.id: a for a in s.kernel.axes}
    self.stores: list[UOp] = []
    self._held: dict[UOp, tuple[UOp, UOp]] = {}    # by variable: its INDEX, and the value there
    self._numbers = itertools.count(max(self.axes, default=-1) + 1)   # of new axes
    self._notes = {p.uop for p, q in zip(s.kernel.params, s.parameters) if q.notes}

  def refused(self, what: str, *accesses: UOp) -> GradientError:
    """An error with the last line that one of the accesses comes from."""
    lines = [line for u in accesses for line in self.s.accesses.get((u.src[0].arg[0], u.op), ())]
    return no_rule(self.s.name, f"{what} ({lines[-1]})" if lines else what)

  def name(self, buffer: UOp) -> str: return self.s.parameters[buffer.arg[0]].name

  # ---- statements
  def run(self) -> None:
    """Go through the statements in order."""
    written = {e.src[0]: e for e in self.s.kernel.effects}
    for u in self.s.kernel.nodes:
      if u.op is not Ops.LOAD or is_variable(u.src[0]): continue
      if u.src[0] in written: raise self.refused(f"{self.name(u.src[0])}, which is read and written", u, written[u.src[0]])
      if any(x.op is Ops.LOAD for x in u.src[1].toposort()): raise self.refused(f"{self.name(u.src[0])} at computed places", u)
    todo = [_At(s, {}, ix.TRUE) for s in reversed(self.s.kernel.body)]
    while todo:
      at = todo.pop()
      op, now = at.statement.op, at.counters
      effects = [e for e in at.statement.toposort() if e.op in EFFECTS]
      if op is Ops.FOR:
        axis, end = self.axes[at.statement.arg], self.value(at.statement.src[0], now)
        if not isinstance(axis.size, int) or axis.size > ROUNDS:
          raise self.refused(f"a loop of {text_of(axis.size)} rounds that is no sum, of at most {ROUNDS}", *effects)
        for k in reversed(range(axis.size)):
          gate = ix.both(at.condition, ix.lt(ix.const(k), ix.number(end)))
          if gate is not ix.FALSE: todo.extend([_At(x, {**now, axis.rng: ix.const(k)}, gate) for x in at.statement.src[:0:-1]])
      elif op is Ops.IF:
        yes = self.value(at.statement.src[0], now)
        for part, gate in list(zip(inner(at.statement), (yes, UOp.alu(UnaryOps.NOT, yes))))[::-1]:
          todo.extend([_At(x, now, both(at.condition, gate)) for x in reversed(part)])
      elif op is Ops.STORE: self.store(at)
      elif op is Ops.FOLD:
        raise self.refused("a reduction or scan by any function", *[e for e in written.values() if e.src[0] in at.statement.src])
      elif op is Ops.WHILE: raise self.refused("a loop whose end the kernel computes", *effects)
      elif op is Ops.ATOMIC and at.statement.src[0] not in self._notes: raise self.refused("an atomic", at.statement)

  def store(self, at: _At) -> None:
    s, (buffer, where, given) = at.statement, at.statement.src[:3]
    if given.op in (Ops.SCAN, Ops.SORT, Ops.SORTED):
      raise self.refused("a running sum" if given.op is Ops.SCAN else "a sort", s)
    if s.arg is not None: raise self.refused(f"{self.name(buffer)}, which is written at computed places", s)
    value, gate = self.value(given, at.counters), both(at.condition, self.value(gate_or_true(s), at.counters))
    where, = substitute((where,), at.counters)
    if is_variable(buffer):
      if gate is not ix.TRUE:   # what it held stays where the condition is false
        before = self.held(buffer, where) if buffer in self._held else UOp.const(value.dtype, 0)
        value = UOp.alu(TernaryOps.WHERE, gate, value, before)
      self._held[buffer] = where, value
      return
    if any(u.op is Ops.LOAD for u in where.toposort()): raise self.refused(f"{self.name(buffer)} at computed places", s)
    if not self.s.parameters[buffer.arg[0]].arrangement.injective or value.ranges - where.ranges:
      raise self.refused(f"elements of {self.name(buffer)} that several programs write", s)
    self.stores = [left for e in self.stores if (left := self.left_of(e, buffer, where, gate)) is not None]
    self.stores.append(UOp(Ops.STORE, value.dtype, (buffer, where, value, *(() if gate is ix.TRUE else (gate,)))))

  def left_of(self, earlier: UOp, buffer: UOp, where: UOp, gate: UOp) -> UOp | None:
    """What an earlier store leaves after another one of ``buffer``."""
    if earlier.src[0] is not buffer: return earlier
    if earlier.src[1] is where:
      if gate is ix.TRUE or gate is gate_or_true(earlier): return None
      return earlier.replace((*earlier.src[:3], both(gate_or_true(earlier), UOp.alu(UnaryOps.NOT, gate))))
    for i, j in zip(earlier.src[1].src, where.src):
      try: (a, b), (c, d) = ends(i), ends(j)
      except NoArrangement: continue
      if below(b, c) or below(d, a): return earlier   # they share no element
    raise self.refused(f"{self.name(buffer)}, which is written twice", earlier)

  # ---- values
  def value(self, u: UOp, counters: dict[UOp, UOp]) -> UOp:
    """An expression, with what variables hold in their place."""
    return rewrite((u,), {Ops.LOAD: lambda old, new: self.loaded(new) if is_variable(new.src[0]) else None}, counters)[0]

  def loaded(self, load: UOp) -> UOp:
    if load.src[0] not in self._held: return UOp.const(load.dtype, 0)
    value, gate = self.held(load.src[0], load.src[1]), gate_or_true(load)
    return value if gate is ix.TRUE else UOp.alu(TernaryOps.WHERE, gate, value, UOp.const(load.dtype, 0))

  def held(self, variable: UOp, where: UOp) -> UOp:
    """What a variable holds at an index."""
    own, value = self._held[variable]
    if own is where: return value
    if any(r.op is not Ops.RANGE for r in own.src) or any(u.op is Ops.LOAD for u in where.toposort()):
      raise self.refused("a block at computed places", UOp(Ops.STORE, value.dtype, (variable, own, value)))
    clash = {r.arg[0] for r in (*own.src, *where.ranges)}
    def renamed(old: UOp, new: UOp) -> UOp | None:
      """A sum along an axis that is the index's, too, is along another one."""
      fn, ids = new.arg
      if clash.isdisjoint(ids): return None
      other = {i: next(self._numbers) for i in ids if i in clash}
      for i, n in other.items(): self.axes[n] = replace(self.axes[i], id=n, kind=AxisKind.TILE)
      table = {self.axes[i].rng: self.axes[n].rng for i, n in other.items()}
      return new.replace(substitute(new.src, table)).with_arg((fn, tuple([other.get(i, i) for i in ids])))
    value, = rewrite((value,), {Ops.REDUCE: renamed})
    return substitute((value,), dict(zip(own.src, where.src)))[0]


def both(a: UOp, b: UOp) -> UOp:
  """Whether two conditions hold, which a kernel may have to compute."""
  if any(u.op is Ops.LOAD for u in toposort((a, b))) and ix.TRUE not in (a, b): return UOp.alu(BinaryOps.AND, a, b)
  return ix.both(a, b)
