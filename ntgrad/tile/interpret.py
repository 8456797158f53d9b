"""Reading an application, statement by statement: what is known while reading (shapes, numbers, conditions on them) is computed
by Python itself; loops and conditions on blocks become regions of the kernel. An error names the line."""
from __future__ import annotations

import ast
import inspect
import types
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Callable, Iterator, Mapping, Sequence

from ntgrad.codegen import index as ix
from ntgrad.codegen.index import Dim, same_size
from ntgrad.codegen.ir import ApplicationError, NtgradError, Ops, UOp, dtypes, promote
from ntgrad.codegen.kernel import AxisKind
from ntgrad.graph.origins import Line
from ntgrad.reads.places import contents

from . import control_flow as flow
from .block import BlockValue, block, broadcast_shapes, dim, is_value, one, replaced, truth
from .control_flow import Range, alike, common_dtype_shape, computed, each, select_value
from .expressions import IN_PLACE, Expressions, Returned
from .jumps import without_jumps
from .parameters import Counter, Place, Reference, SourceTensor, Tile
from .python_source import NamedValues, Scope, Statements, Unbound, assigned, assigned_names, changed_parts, code_of, read_of
from .refusals import python_said
from .trace import LocalArray, Tracer, values_in


class Interpreter(Expressions):
  """Reads functions into a kernel that a Tracer builds."""

  def __init__(self, tracer: Tracer, values: Mapping[str, Dim] | None = None):
    super().__init__()
    self.tracer, self.values = tracer, dict(values or {})
    tracer.call = self.call

  # ---- functions
  def application(self, fn: types.FunctionType, tiles: Sequence[Any]) -> None:
    """Read an application whose parameters are ``tiles``."""
    code = code_of(fn)
    assert isinstance(code.tree, ast.FunctionDef)
    names = list(inspect.signature(fn).parameters)
    out = self.body(code.tree.body, Scope(dict(zip(names, tiles)), None, fn, code.text, fn.__name__))
    if out is not None and out.value is not None:
      raise ApplicationError(f"{fn.__name__} returns a value; an application stores: assign to one of its parameters "
                             f"{', '.join(names)}")

  # ---- statements
  def body(self, stmts: Statements, scope: Scope) -> Returned | None:
    """Read statements; what a ``return`` among them gave, None where there was none."""
    t = self.tracer
    held, mark = t.held, len(t.held)
    t.frames.append(scope.names)
    try:
      for i, s in enumerate(stmts):
        del held[mark:]
        line = t.at_line = Line(scope.text.file, s.lineno, scope.name)
        t.line = f"{line.short}: {scope.text.line(s.lineno).strip()}"
        self.following = stmts[i + 1].lineno if i + 1 < len(stmts) else s.lineno
        try: out = self.statement(s, scope, stmts[i + 1:])
        except NtgradError as e: raise self.located(e, s, scope) from e.__cause__
        except Exception as e: raise self.located(python_said(e, s, held[mark:]), s, scope) from e
        if out is not None: return out
      return None
    finally:
      t.frames.pop()
      del held[mark:]

  def statement(self, s: ast.stmt, scope: Scope, rest: Statements) -> Returned | None:
    of = partial(self.value, scope=scope)
    match s:
      case ast.Expr(): of(s.value)
      case ast.Assign() | ast.AnnAssign():
        if s.value is not None:
          value, targets = of(s.value), s.targets if isinstance(s, ast.Assign) else [s.target]
          for t in targets[:-1]: self.assign(t, value, scope)
          self.tracer.held.pop()   # the last target takes it: a store needs no copy of what it stores
          self.assign(targets[-1], value, scope)
      case ast.AugAssign():
        mark = len(self.tracer.held)
        before = self.tracer.atomics
        old = self.value(read_of(s.target), scope)
        if self.tracer.atomics > before:
          raise ApplicationError("an atomic operation in a place that is found twice, to be read and written; name it before")
        value = IN_PLACE[type(s.op)](old, of(s.value))
        del self.tracer.held[mark:]
        self.assign(s.target, value, scope)
      case ast.Return(): return Returned(None if s.value is None else of(s.value))
      case ast.If(): return self.branch(s, scope, rest)
      case ast.For() | ast.While():
        loop, leaves = without_jumps(s)
        if leaves is not None: scope.names[leaves] = False
        return self.loop(loop, scope, rest, leaves) if isinstance(loop, ast.For) else self.repeat(loop, scope)
      case ast.FunctionDef(): scope.names[s.name] = self.closure(s, scope)
      case ast.Assert():
        held = of(s.test)
        if computed(held):
          raise ApplicationError("assert: the condition is known only when the kernel runs; assert takes what is known before")
        if not held: raise ApplicationError(f"assertion failed{': ' + str(of(s.msg)) if s.msg is not None else ''}")
      case ast.Pass(): pass
      case ast.Import() | ast.ImportFrom():
        for a in s.names:
          module = __import__(getattr(s, "module", None) or a.name, fromlist=["_"])
          scope.names[a.asname or a.name] = getattr(module, a.name) if isinstance(s, ast.ImportFrom) else module
      case _:
        raise ApplicationError(f"an application has no {type(s).__name__.lower()} statement; "
                               "it has assignments, calls, for, while, break, continue, if, def, return")
    return None

  def stores(self, name: str, scope: Scope) -> bool:
    """Whether assigning a name stores: it is a kernel's parameter (or was given one), not another name for a tile."""
    x = scope.names.get(name)
    return isinstance(x, Tile) and x.level is None

  def assign(self, target: ast.expr, value: Any, scope: Scope) -> None:
    held = self.tracer.held
    match target:
      case ast.Name():
        if not self.stores(target.id, scope): scope.names[target.id] = value
        elif not scope.names[target.id].holds(value): scope.names[target.id].store(value)
      case ast.Subscript():
        held.append(value)
        mark = len(held)
        base, at = self.value(target.value, scope), self.value(target.slice, scope)
        del held[mark - 1:]
        if isinstance(base, Tile): base, at = base.reached(at)
        if isinstance(base, (Tile, SourceTensor)):
          if isinstance(base, Tile) and base.innermost: base.store_at(at, value)
          else: base[at].store(value)
        elif isinstance(base, (list, dict)): base[at] = value
        elif isinstance(base, (BlockValue, Reference)): self.assign(target.value, replaced(block(base), at, value), scope)
        else:
          raise ApplicationError(f"{type(base).__name__} takes no assignment at an index; blocks, tiles and .source do")
      case ast.Tuple() | ast.List():
        values, names = list(value), target.elts
        star = next((i for i, t in enumerate(names) if isinstance(t, ast.Starred)), None)
        if star is not None and (end := len(values) - (len(names) - star - 1)) >= star: values[star:end] = [values[star:end]]
        if len(values) != len(names): raise ApplicationError(f"{len(names)} names for {len(values)} values")
        held.append(values)
        for t in names: self.assign(t.value if isinstance(t, ast.Starred) else t, values.pop(0), scope)
        held.pop()
      case _: raise ApplicationError(f"cannot assign to {ast.unparse(target)}")

  # ---- conditions
  def branch(self, s: ast.If, scope: Scope, rest: Statements) -> Returned | None:
    held = self.value(s.test, scope)
    if computed(held):
      b = truth(held)
      if b.value.op is not Ops.CONST:
        if all(map(one, b.shape)): return self.chosen(BlockValue(b.value), s, scope, rest, lambda inner: None)
        raise ApplicationError(f"`if` takes one condition a program, got a block of shape {b.shape}; "
                               "tl.where chooses element by element")
      held = b.value.arg
    return self.body(s.body if held else s.orelse, scope)

  def chosen(self, condition: BlockValue, s: ast.If | ast.For, scope: Scope, rest: Statements,
             begin: Callable[[Scope], None]) -> Returned | None:
    """The body of an `if`, or of a loop of one round, which begins with ``begin``, where the kernel finds a condition true; else
    what stands under ``else``. ``rest``: the statements behind."""
    what, unless, where = ("loop", "and may not run", "a loop of the kernel") if isinstance(s, ast.For) else (
      "`if`", "on one side only", "an `if` whose condition is known only when the kernel runs")
    bodies = (s.body, begin), (s.orelse, lambda inner: None)
    # the statements behind belong to whichever side has not returned
    returned = any(isinstance(n, ast.Return) for b in (*s.body, *s.orelse) for n in ast.walk(b))
    (a, ra, names_a, raw_a), (b, rb, names_b, raw_b) = (
      self.side([*b, *rest] if returned else b, scope, first, where) for b, first in bodies)
    def values(pairs: dict[str, tuple[Any, Any]]) -> NamedValues:
      if a or b or raw_a or raw_b: return self.joined(condition, (a, b), pairs)
      return {n: select_value(condition, *v) for n, v in pairs.items()}
    if returned: return Returned(values({"": (ra and ra.value, rb and rb.value)})[""])
    old = scope.names
    changed = [n for n in names_a | names_b if names_a.get(n) is not old.get(n) or names_b.get(n) is not old.get(n)]
    pairs: dict[str, tuple[Any, Any]] = {}
    for n in changed:
      if any(isinstance(names.get(n, Unbound("")), Unbound) for names in (names_a, names_b)):
        scope.names[n] = Unbound(f"the {what} at line {s.lineno} assigns it {unless}")
      elif alike(names_a[n], names_b[n]): pairs[n] = names_a[n], names_b[n]
      else:
        scope.names[n] = Unbound(f"the {what} at line {s.lineno} leaves it {names_a[n]!r} or {names_b[n]!r}, as the kernel "
                                 "decides; both must be numbers or blocks")
    scope.names.update(values(pairs))
    return None

  def side(self, stmts: Statements, scope: Scope,
           begin: Callable[[Scope], None], where: str) -> tuple[list[UOp], Returned | None, NamedValues, bool]:
    """One side of an `if`, read apart: its statements, return, names, and whether it loads from computed places."""
    before = self.tracer.raw_loads
    inner = replace(scope, names=dict(scope.names))
    with self.unmoved(where), self.tracer.region() as statements:
      begin(inner)
      out = self.body(stmts, inner)
    level = len(self.tracer.outer)
    for x in values_in(inner.names, out):
      if isinstance(x, (BlockValue, Place)) and x.level is not None and x.level > level: x.level = level
    return statements, out, inner.names, self.tracer.raw_loads > before

  @contextmanager
  def unmoved(self, where: str) -> Iterator[None]:
    """Lists and dicts are Python's own: what the kernel does some times or not at all must leave those around it alone."""
    before = [(x, x.copy()) for x in values_in(self.tracer.frames) if isinstance(x, (list, dict))]
    yield
    for x, old in before:
      now, then = map(contents, (x, old))
      if len(now) != len(then) or any(a is not b for a, b in zip(now, then)):
        raise ApplicationError(f"{where} changes a {type(x).__name__} that was made before it; only what the kernel computes can "
                               "be changed there: assign a name, or loop over tl.static_range")

  def joined(self, condition: BlockValue, sides: tuple[list[UOp], list[UOp]], pairs: dict[str, tuple[Any, Any]]) -> NamedValues:
    """An IF with effects; what its sides assign goes through variables."""
    t = self.tracer
    out: NamedValues = {}
    def chosen(a: Any, b: Any) -> Any:
      v = t.variable(*common_dtype_shape(a, b))
      for statements, x in zip(sides, (a, b)):
        with t.region() as own: t.assign(v, v.value_of("value", x))
        statements.extend(own)
      return v.block
    for name, (a, b) in pairs.items():
      if not alike(a, b):
        raise ApplicationError(f"the result is {a!r} or {b!r}, as a condition decides that is known only when the kernel runs; "
                               "both must be numbers or blocks")
      out[name] = each(a, b, chosen)
    then, other = sides
    t.statements.append(UOp.unique(Ops.IF, dtypes.bool, (t.refer(condition.value), *then, *other), len(then)))
    return out

  # ---- loops
  def loop(self, s: ast.For, scope: Scope, rest: Statements, leaves: str | None) -> Returned | None:
    """A for loop; ``leaves`` is the name that says whether it has been left by a ``break``."""
    if s.orelse: raise ApplicationError("a for loop of an application has no else")
    t = self.tracer
    over = self.value(s.iter, scope)
    if isinstance(over, range) and len(over) > 1: over = Range(over.start, over.stop, over.step)
    tiles = isinstance(over, Tile) and not over.innermost
    if not tiles and not isinstance(over, Range):
      items = list(map(Counter, over) if isinstance(over, range) else over)
      for i in items if isinstance(over, range) else (): i.once = True   # there is no other
      for x in items:
        self.assign(s.target, x, scope)
        out = self.body(s.body, scope)
        if out is not None: return out
        if leaves is not None and scope.names[leaves] is True: break
      if leaves is not None and computed(scope.names[leaves]): self.counted(s, scope)
      return None
    end, item = flow.tiles_of(over) if tiles else over.steps()
    if (end if isinstance(end, int) else ix.vmax(end)) <= 0: return None
    if one(end):
      self.assign(s.target, item(ix.ZERO), scope)
      return self.body(s.body, scope)
    known = isinstance(end, int) or ix.of_sizes(end)
    if not known and flow.most(end) == 1:   # one round or none
      out = self.chosen(BlockValue(ix.ge(end, 1)), s, scope, rest, lambda inner: self.assign(s.target, item(ix.ZERO), inner))
      self.counted(s, scope)
      return out
    k = t.new_axis(end if known else flow.most(end), AxisKind.LOOP)
    variables, statements, updates, kept, _ = self.carry(
      s, scope, lambda inner: self.assign(s.target, item(k), inner), [k.arg[0]], assigned(s.target))
    first = flow.carried(flow.names_of(variables), scope.names)
    totals = flow.accumulations(variables, first, updates, k) if known and not statements else None
    if totals is not None: scope.names.update(flow.with_parts(scope.names, totals))
    else:
      self.settle(variables, scope)
      with t.region() as inner:
        inner.extend(statements)
        t.known = kept
        t.inside.append(k.arg[0])
        t.update(variables, updates)
        t.inside.pop()
      t.statements.append(UOp.unique(Ops.FOR, dtypes.int32, (t.refer(ix.node(end)), *inner), k.arg[0]))
    self.counted(s, scope)
    return None

  def counted(self, s: ast.For, scope: Scope) -> None:
    """Behind a loop of the kernel nobody knows what its counter is."""
    for n in assigned(s.target):
      if not self.stores(n, scope): scope.names[n] = Unbound(f"it counts the loop at line {s.lineno}")

  def repeat(self, s: ast.While, scope: Scope) -> Returned | None:
    if s.orelse: raise ApplicationError("a while loop of an application has no else")
    t = self.tracer
    start = self.value(s.test, scope)
    conditions: list[tuple[BlockValue, bool]] = []     # each with whether it takes statements to find it
    if not computed(start) and not set(assigned_names(s.body)) & {n.id for n in ast.walk(s.test) if isinstance(n, ast.Name)}:
      if not start: return None
      raise ApplicationError("a while loop whose condition never changes does not end")
    def begin(inner: Scope) -> None:
      with t.region() as made: c = truth(self.value(s.test, inner))
      conditions.append((c, bool(made)))

    variables, statements, updates, _, written = self.carry(s, scope, begin, [], [])
    self.settle(variables, scope)
    c, stated = conditions[-1]
    if not all(map(one, c.shape)):
      raise ApplicationError(f"`while` takes one condition a program, got a block of shape {c.shape}; "
                             "reduce it with tl.max or tl.sum")
    if stated:   # found before the loop, and at the end of each round
      going = t.variable(dtypes.bool, ())
      t.assign(going, truth(start).value)
      c = going.block
    with t.region(written) as inner:
      known = t.known
      inner.extend(statements)
      t.update(variables, updates)
      if stated:
        t.known = known
        t.assign(going, truth(self.value(s.test, scope)).value)
    t.statements.append(UOp.unique(Ops.WHILE, dtypes.bool, (c.value, *inner)))
    return None

  def carry(self, s: ast.For | ast.While, scope: Scope, begin: Callable[[Scope], None], around: list[int],
            counters: Sequence[str]) -> tuple[dict[str, LocalArray], list[UOp], dict[str, UOp], dict[UOp, UOp], set[UOp]]:
    """Read a loop's body, which begins with ``begin``, with what it changes from round to round in variables. Gives them by
    name (see ``flow.carried``), the body's statements, each variable's next value, what the body keeps in variables, and what it
    writes."""
    t, outer = self.tracer, scope.names
    parts = [n for n in changed_parts(s.body) if isinstance(outer.get(n), BlockValue)]
    first = flow.carried([n for n in dict.fromkeys((*assigned_names(s.body), *self.handed(s.body, scope), *parts))
                          if n not in counters and n in outer and not self.stores(n, scope)], outer)
    changing = flow.names_of(first)
    kinds = {n: common_dtype_shape(x) for n, x in first.items()}
    variables = {n: t.variable(*kinds[n]) for n in first}
    written: set[UOp] = set()  # what the body writes
    tries = 0  # of finding the variables' dimensions
    lost: dict[str, Unbound] = {}  # what it changes that no variable can hold
    while True:
      names = outer | flow.with_parts(outer, {n: v.block for n, v in variables.items()}) | lost
      made, still = len(t.materialized), t.unchanged(written)
      with self.unmoved(f"the loop at line {s.lineno}, which the kernel runs,"), t.region(written) as statements:
        t.inside.extend(around)
        inner = replace(scope, names=names)
        begin(inner)
        if self.body(s.body, inner) is not None:
          raise ApplicationError("return inside a loop of the kernel; assign, and return after it")
        known, written = dict(t.known), written | t.written
      if any(level <= len(t.outer) for level in t.materialized[made:]) or len(t.unchanged(written)) < len(still): continue
      gone = [n for n, x in outer.items() if n not in changing and n not in counters and n not in lost
              and not isinstance(x, Unbound) and not flow.known_equal(names[n], x)]
      if gone:
        why = f"the loop at line {s.lineno} changes it, and a loop of the kernel carries numbers, blocks and tuples of them only"
        lost |= {n: Unbound(why) for n in gone}
        continue
      new, now = dict(kinds), flow.carried(changing, names)
      if now.keys() != first.keys():
        n = next(k for k in (*first, *now) if k not in now or k not in first).partition("[")[0]
        raise ApplicationError(f"{n!r} is {outer[n]!r} before the loop and {names[n]!r} in it")
      for n in first:
        d, shape = common_dtype_shape(now[n])
        old_d, old_shape = kinds[n]
        if not is_value(first[n]):
          new[n] = promote(old_d, d) if d is not old_d else d, broadcast_shapes(n, old_shape, shape)
        elif len(shape) != len(old_shape) or not all(same_size(dim(m), dim(n)) for m, n in zip(shape, old_shape)):
          raise ApplicationError(f"{n!r} has shape {old_shape} before the loop and {shape} after a round of it; "
                                 "a loop keeps shapes")
        elif d is not old_d and promote(old_d, d) is not old_d:
          raise ApplicationError(f"{n!r} is {old_d} before the loop and {d} after a round of it; convert one with .to")
      if new != kinds:
        kinds, variables = new, {n: t.variable(*new[n]) for n in first}
        continue
      axes = {n: t.settled(v.axes) for n, v in variables.items()}
      if tries == 5 or all(axes[n] == variables[n].axes for n in first): break
      tries += 1  # once more, with the names that the body has for the dimensions
      variables = {n: t.variable(*kinds[n], axes[n]) for n in first}
    outer.update(lost)
    for n in names:
      if n not in outer and n not in counters:
        outer[n] = Unbound(f"it is assigned only inside the loop at line {s.lineno}")
    return variables, statements, {n: v.value_of(n, now[n]) for n, v in variables.items()}, known, written

  def settle(self, variables: dict[str, LocalArray], scope: Scope) -> None:
    """Before a loop: its variables get their first values; afterwards names mean the variables."""
    first = flow.carried(flow.names_of(variables), scope.names)
    for n, v in variables.items(): self.tracer.assign(v, v.value_of(n, first[n]))
    scope.names.update(flow.with_parts(scope.names, {n: v.block for n, v in variables.items()}))
