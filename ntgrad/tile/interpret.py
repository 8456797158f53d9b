"""Reading an application: its Python source is gone through statement by statement, with blocks for the values that a kernel
computes.

What is known while reading (shapes, numbers, conditions on them) is computed by Python itself; loops and conditions on blocks
become regions of the kernel. An error names the line.
"""
from __future__ import annotations

import ast
import inspect
import operator
import types
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Sequence

from ntgrad.codegen import index as ix
from ntgrad.codegen.assume import same as same_size
from ntgrad.codegen.dtype import dtypes, promote
from ntgrad.codegen.errors import ApplicationError, NtgradError
from ntgrad.codegen.kernel import AxisKind
from ntgrad.codegen.sizes import Dim
from ntgrad.codegen.uop import Ops, UOp

from .block import Block, block, broadcast_shapes, dim, is_value, one, plain, to_axes
from .control import (
  NATIVE,
  Counted,
  Range,
  accumulations,
  alike,
  computed,
  each,
  most,
  number,
  same,
  select,
  together,
  truth,
)
from .expressions import Expressions
from .place import Counter, Place, Source, Tile
from .source import (
  Closure,
  Code,
  Scope,
  Unbound,
  assigned,
  assigned_names,
  code_of,
  hashable,
  of_language,
  read_of,
  returns,
)
from .trace import Tracer, Variable, values_in

_MOST_CALLS = 64

_INPLACE: dict[type, Callable[[Any, Any], Any]] = {
  ast.Add: operator.iadd,
  ast.Sub: operator.isub,
  ast.Mult: operator.imul,
  ast.Div: operator.itruediv,
  ast.FloorDiv: operator.ifloordiv,
  ast.Mod: operator.imod,
  ast.Pow: operator.ipow,
  ast.BitAnd: operator.iand,
  ast.BitOr: operator.ior,
  ast.BitXor: operator.ixor,
  ast.LShift: operator.ilshift,
  ast.RShift: operator.irshift,
  ast.MatMult: operator.imatmul,
}


class Returned:
  """What a function's body gave."""
  def __init__(self, value: Any): self.value = value


class Interpreter(Expressions):
  """Reads functions into a kernel that a Tracer builds."""

  def __init__(self, tracer: Tracer, values: Mapping[str, Dim] | None = None):
    self.tracer, self.values = tracer, dict(values or {})
    self.depth = 0
    self.known: dict[UOp, UOp] = {}     # what the loop body that was read last keeps in variables
    self.written: set[UOp] = set()      # and what it writes
    self.left: dict[str, Any] = {}      # the names of the function that was read last, as they are at its end

  # ---- functions
  def application(self, fn: types.FunctionType, tiles: Sequence[Any]) -> None:
    """Read an application whose parameters are ``tiles``."""
    code = code_of(fn)
    assert isinstance(code.tree, ast.FunctionDef)
    names = [a.arg for a in (*code.tree.args.posonlyargs, *code.tree.args.args)]
    scope = Scope(dict(zip(names, tiles)), None, fn, code.text, fn.__name__)
    out = self.body(code.tree.body, scope)
    if out is not None and out.value is not None:
      raise ApplicationError(
        f"{fn.__name__} returns a value; an application stores: assign to one of its parameters {', '.join(names)}"
      )

  def call(self, fn: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call whatever an application calls."""
    if isinstance(fn, Closure):
      return self.enter(fn.code, self.bind_closure(fn, args, kwargs), fn.scope, None, getattr(fn.code.tree, "name", "lambda"))
    if isinstance(fn, types.MethodType) and of_language(fn.__func__):
      pass
    elif isinstance(fn, types.MethodType) and isinstance(fn.__func__, types.FunctionType):
      return self.call(fn.__func__, (fn.__self__, *args), kwargs)
    fn, args, kwargs = NATIVE.get(fn, fn) if hashable(fn) else fn, tuple(args), kwargs
    wrapped = getattr(fn, "__wrapped__", None)
    if isinstance(fn, types.FunctionType) and not of_language(fn) and any(map(computed, (*args, *kwargs.values()))):
      target = wrapped if isinstance(wrapped, types.FunctionType) else fn
      try: bound = inspect.signature(target).bind(*args, **kwargs)
      except TypeError as e: raise ApplicationError(f"{fn.__name__}: {e}") from None
      bound.apply_defaults()
      return self.enter(code_of(target), dict(bound.arguments), None, target, fn.__name__)
    if not callable(fn): raise ApplicationError(f"{fn!r} is no function")
    return fn(*args, **kwargs)

  def is_procedure(self, fn: Any) -> bool:
    if isinstance(fn, Closure): code = fn.code
    elif isinstance(fn, types.FunctionType) and not of_language(fn) and not hasattr(fn, "__wrapped__"): code = code_of(fn)
    else: return False
    return isinstance(code.tree, ast.FunctionDef) and not returns(code.tree.body)

  def procedure(self, fn: Any, e: ast.Call, args: list[Any], kwargs: dict[str, Any], scope: Scope) -> Any:
    code = fn.code if isinstance(fn, Closure) else code_of(fn)
    parameters = [a.arg for a in (*code.tree.args.posonlyargs, *code.tree.args.args)]
    given = {} if any(isinstance(n, ast.Starred) for n in e.args) else dict(zip(parameters, e.args))
    given |= {k.arg: k.value for k in e.keywords if k.arg is not None}
    names = {p: n.id for p, n in given.items() if isinstance(n, ast.Name) and n.id in scope.names}
    # a parameter of the kernel stands for itself, so that assigning it stores
    live = {p: x for p, n in names.items() if isinstance(x := scope.names[n], Tile) and x.level is None}
    args = [live.get(p, x) for p, x in zip(parameters, args)] + args[len(parameters):]
    kwargs = {p: live.get(p, x) for p, x in kwargs.items()}
    before = dict(zip(parameters, args)) | kwargs
    if not any(map(computed, before.values())): return self.call(fn, args, kwargs)
    self.left = {}
    out = self.call(fn, args, kwargs)
    for p, n in names.items():
      if p in self.left and p not in live and self.left[p] is not before[p]: scope.names[n] = self.left[p]
    return out

  def handed(self, stmts: Sequence[ast.stmt], scope: Scope) -> list[str]:
    """The names that statements give to functions which return nothing, and so may change."""
    out: dict[str, None] = {}
    for s in stmts:
      for n in ast.walk(s):
        if not isinstance(n, ast.Expr) or not isinstance(n.value, ast.Call) or not isinstance(n.value.func, ast.Name): continue
        try: fn = scope.find(n.value.func.id)
        except ApplicationError: continue
        if not self.is_procedure(fn): continue
        out |= {a.id: None for a in (*n.value.args, *(k.value for k in n.value.keywords)) if isinstance(a, ast.Name)}
    return list(out)

  def bind_closure(self, c: Closure, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    spec = c.code.tree.args
    names = [a.arg for a in (*spec.posonlyargs, *spec.args)]
    positional, named = c.defaults
    out = dict(zip(names[len(names) - len(positional):], positional)) | named
    if len(args) > len(names): raise ApplicationError(f"a function of {len(names)} parameters is called with {len(args)}")
    out |= dict(zip(names, args)) | kwargs
    missing = [n for n in (*names, *(a.arg for a in spec.kwonlyargs)) if n not in out]
    if missing: raise ApplicationError(f"a function is called without {', '.join(missing)}")
    return out

  def enter(self, code: Code, names: dict[str, Any], around: Scope | None, fn: types.FunctionType | None, name: str) -> Any:
    if self.depth >= _MOST_CALLS:
      raise ApplicationError(
        f"{name}: functions call each other {_MOST_CALLS} deep; recursion must end while the application is read"
      )
    scope = Scope(names, around, fn, code.text, name)
    self.depth += 1
    try:
      if isinstance(code.tree, ast.Lambda): return self.value(code.tree.body, scope)
      out = self.body(code.tree.body, scope)
      self.left = scope.names
      return None if out is None else out.value
    finally: self.depth -= 1

  # ---- errors
  def located(self, e: NtgradError, node: ast.AST, scope: Scope) -> NtgradError:
    """The error with the line it comes from, and a caret under the place."""
    if getattr(e, "located", False): return e
    line = getattr(node, "lineno", 0)
    text = scope.text.line(line)
    begin = getattr(node, "col_offset", 0)
    end = getattr(node, "end_col_offset", None) if getattr(node, "end_lineno", line) == line else len(text)
    mark = " " * begin + "^" * max((end or begin + 1) - begin, 1)
    said = f"{scope.text.file}:{line}, in {scope.name}\n    {text.strip()}\n    {mark[len(text) - len(text.lstrip()):]}"
    new = type(e)(f"{e}\n  {said}")
    new.__dict__["located"] = True
    return new

  # ---- statements
  def body(self, stmts: Sequence[ast.stmt], scope: Scope) -> Returned | None:
    """Read statements; what a ``return`` among them gave, None where there was none."""
    held = self.tracer.held
    mark = len(held)
    self.tracer.frames.append(scope.names)
    try:
      for i, s in enumerate(stmts):
        del held[mark:]
        self.tracer.line = f"{Path(scope.text.file).name}:{s.lineno}: {scope.text.line(s.lineno).strip()}"
        try:
          out = self.statement(s, scope, stmts[i + 1:])
        except NtgradError as e: raise self.located(e, s, scope) from None
        except (TypeError, ValueError, AttributeError, KeyError, IndexError, ZeroDivisionError, AssertionError) as e:
          raise self.located(ApplicationError(f"{type(e).__name__}: {e}"), s, scope) from e
        if out is not None: return out
      return None
    finally:
      self.tracer.frames.pop()
      del held[mark:]

  def statement(self, s: ast.stmt, scope: Scope, rest: Sequence[ast.stmt]) -> Returned | None:
    match s:
      case ast.Expr(): self.value(s.value, scope)
      case ast.Assign():
        value = self.value(s.value, scope)
        for t in s.targets[:-1]: self.assign(t, value, scope)
        self.tracer.held.pop()   # the last target takes it: a store needs no copy of what it stores
        self.assign(s.targets[-1], value, scope)
      case ast.AnnAssign():
        if s.value is not None:
          value = self.value(s.value, scope)
          self.tracer.held.pop()
          self.assign(s.target, value, scope)
      case ast.AugAssign():
        mark = len(self.tracer.held)
        old = self.value(read_of(s.target), scope)
        value = _INPLACE[type(s.op)](old, self.value(s.value, scope))
        del self.tracer.held[mark:]
        self.assign(s.target, value, scope)
      case ast.Return(): return Returned(None if s.value is None else self.value(s.value, scope))
      case ast.If(): return self.branch(s, scope, rest)
      case ast.For(): return self.loop(s, scope)
      case ast.While(): return self.repeat(s, scope)
      case ast.FunctionDef(): scope.names[s.name] = self.closure(s, scope)
      case ast.Assert():
        held = self.value(s.test, scope)
        if computed(held):
          raise ApplicationError("assert: the condition is known only when the kernel runs; assert takes what is known before")
        if not held:
          raise ApplicationError(f"assertion failed{': ' + str(self.value(s.msg, scope)) if s.msg is not None else ''}")
      case ast.Pass(): pass
      case ast.Import() | ast.ImportFrom():
        for a in s.names:
          module = __import__(s.module if isinstance(s, ast.ImportFrom) and s.module else a.name, fromlist=["_"])
          scope.names[a.asname or a.name] = getattr(module, a.name) if isinstance(s, ast.ImportFrom) else module
      case _:
        raise ApplicationError(
          f"an application has no {type(s).__name__.lower()} statement; it has assignments, calls, for, while, if, def, return"
        )
    return None

  def stores(self, name: str, scope: Scope) -> bool:
    """Whether assigning a name stores: it is a parameter of the application, or one of a function that was called with such, not
    another name for a tile."""
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
        if isinstance(base, (Tile, Source)):
          if isinstance(base, Tile) and base.innermost: base.store_at(at, value)
          else: base[at].store(value)
        elif isinstance(base, (list, dict)): base[at] = value
        else:
          raise ApplicationError(f"{type(base).__name__} takes no assignment at an index; a parameter with levels and .source do")
      case ast.Tuple() | ast.List():
        values = list(value)
        if len(values) != len(target.elts): raise ApplicationError(f"{len(target.elts)} names for {len(values)} values")
        held.append(values)
        for t in target.elts: self.assign(t, values.pop(0), scope)
        held.pop()
      case _: raise ApplicationError(f"cannot assign to {ast.unparse(target)}")

  # ---- conditions
  def branch(self, s: ast.If, scope: Scope, rest: Sequence[ast.stmt]) -> Returned | None:
    condition = self.condition(s.test, scope, "if")
    if isinstance(condition, bool): return self.body(s.body if condition else s.orelse, scope)
    if any(isinstance(n, ast.Return) for b in (*s.body, *s.orelse) for n in ast.walk(b)):
      # the statements behind belong to whichever side has not returned
      sides = [self.side([*b, *rest], scope) for b in (s.body, s.orelse)]
      (a, ra, names_a, raw_a), (b, rb, names_b, raw_b) = sides
      va, vb = (None if r is None else r.value for r in (ra, rb))
      if not a and not b and not raw_a and not raw_b: return Returned(select(condition, va, vb))
      return Returned(self.joined(condition, (a, b), {"": (va, vb)})[""])
    (a, ra, names_a, raw_a), (b, rb, names_b, raw_b) = self.side(s.body, scope), self.side(s.orelse, scope)
    old = scope.names
    changed = [
      n for n in dict.fromkeys((*names_a, *names_b)) if names_a.get(n) is not old.get(n) or names_b.get(n) is not old.get(n)
    ]
    pairs: dict[str, tuple[Any, Any]] = {}
    for n in changed:
      both_have = n in names_a and n in names_b and not isinstance(names_a[n], Unbound) and not isinstance(names_b[n], Unbound)
      if not both_have: scope.names[n] = Unbound(f"the `if` at line {s.lineno} assigns it on one side only")
      elif alike(names_a[n], names_b[n]): pairs[n] = names_a[n], names_b[n]
      else:
        what = f"{names_a[n]!r} or {names_b[n]!r}, as the kernel decides; both must be numbers or blocks"
        scope.names[n] = Unbound(f"the `if` at line {s.lineno} leaves it {what}")
    if not a and not b and not raw_a and not raw_b:
      scope.names.update({n: select(condition, *v) for n, v in pairs.items()})
    else: scope.names.update(self.joined(condition, (a, b), pairs))
    return None

  def side(self, stmts: Sequence[ast.stmt], scope: Scope) -> tuple[list[UOp], Returned | None, dict[str, Any], bool]:
    """One side of an `if`, read apart: its statements, return, names, and whether it loads from computed places."""
    before = self.tracer.raw_loads
    inner = Scope(dict(scope.names), scope.around, scope.fn, scope.text, scope.name)
    with self.unmoved("an `if` whose condition is known only when the kernel runs"), self.tracer.region() as statements:
      out = self.body(stmts, inner)
    level = len(self.tracer.outer)
    for x in values_in(inner.names, out):
      if isinstance(x, (Block, Place)) and x.level is not None and x.level > level: x.level = level
    return statements, out, inner.names, self.tracer.raw_loads > before

  @contextmanager
  def unmoved(self, where: str) -> Iterator[None]:
    """Lists and dicts are Python's own: what the kernel does some times or not at all must leave those around it alone."""
    before = [(x, x.copy()) for x in values_in(self.tracer.frames) if isinstance(x, (list, dict))]
    yield
    for x, old in before:
      now, then = (list(c.values() if isinstance(c, dict) else c) for c in (x, old))
      if len(now) != len(then) or any(a is not b for a, b in zip(now, then)):
        raise ApplicationError(
          f"{where} changes a {type(x).__name__} that was made before it; only what the kernel computes can be changed there: "
          "assign a name, or loop over tl.static_range"
        )

  def joined(self, condition: Block, sides: tuple[list[UOp], list[UOp]], pairs: dict[str, tuple[Any, Any]]) -> dict[str, Any]:
    """An IF with effects; what its sides assign goes through variables."""
    t = self.tracer
    out: dict[str, Any] = {}
    def chosen(a: Any, b: Any) -> Any:
      dtype, shape = together(a, b)
      v = t.variable(dtype, shape)
      for statements, x in zip(sides, (a, b)):
        with t.region() as own: t.assign(v, plain(to_axes("value", block(x), v.axes), dtype))
        statements.extend(own)
      return v.block
    for name, (a, b) in pairs.items():
      if not alike(a, b):
        what = "as a condition decides that is known only when the kernel runs; both must be numbers or blocks"
        raise ApplicationError(f"the result is {a!r} or {b!r}, {what}")
      out[name] = each(a, b, chosen)
    then, other = sides
    t.statements.append(UOp.unique(Ops.IF, dtypes.bool, (t.refer(condition.value), *then, *other), len(then)))
    return out

  def condition(self, test: ast.expr, scope: Scope, what: str) -> Any:
    """A bool that is known now, or a scalar block."""
    got = self.value(test, scope)
    if not computed(got): return bool(got)
    b = truth(got)
    if b.value.op is Ops.CONST: return bool(b.value.arg)
    if not all(map(one, b.shape)):
      raise ApplicationError(
        f"`{what}` takes one condition a program, got a block of shape {b.shape}; tl.where chooses element by element"
      )
    return Block(b.value)

  # ---- loops
  def loop(self, s: ast.For, scope: Scope) -> Returned | None:
    if s.orelse: raise ApplicationError("a for loop of an application has no else")
    t = self.tracer
    over = self.value(s.iter, scope)
    if isinstance(over, range) and len(over) > 1: over = Range(over.start, over.stop, over.step)
    if isinstance(over, Tile) and not over.innermost: over = Counted(over)
    if not isinstance(over, (Range, Counted)):
      items = list(map(Counter, over) if isinstance(over, range) else over)
      for i in items if isinstance(over, range) else (): i.once = True   # there is no other
      for x in items:
        self.assign(s.target, x, scope)
        out = self.body(s.body, scope)
        if out is not None: return out
      return None
    end, item = over.steps()
    if isinstance(end, int) and end <= 0: return None
    known = isinstance(end, int) or ix.of_sizes(end)
    k = t.new_axis(end if known else most(end), AxisKind.LOOP)
    if isinstance(end, int) and end == 1:
      self.assign(s.target, item(ix.const(0)), scope)
      return self.body(s.body, scope)
    def read(names: dict[str, Any]) -> None:
      inner = Scope(names, scope.around, scope.fn, scope.text, scope.name)
      self.assign(s.target, item(k), inner)
      if self.body(s.body, inner) is not None:
        raise ApplicationError("return inside a loop of the kernel; assign, and return after it")

    self.no_jumps(s)
    carried, variables, initial, statements, updates = self.carry(s, s.body, scope, read, [k.arg[0]], assigned(s.target))
    if known and not statements and (totals := accumulations(carried, variables, initial, updates, k)) is not None:
      scope.names.update(totals)
    else:
      kept = self.known
      self.settle(carried, variables, initial, scope)
      with t.region() as inner:
        inner.extend(statements)
        t.known = kept
        t.inside.append(k.arg[0])
        t.update([(variables[n], updates[n]) for n in carried])
        t.inside.pop()
      t.statements.append(
        UOp.unique(Ops.FOR, dtypes.int32, (t.refer(ix.node(end)), *inner), k.arg[0])
      )
    for n in assigned(s.target):
      if not self.stores(n, scope): scope.names[n] = Unbound(f"it counts the loop at line {s.lineno}")
    return None

  def repeat(self, s: ast.While, scope: Scope) -> Returned | None:
    if s.orelse: raise ApplicationError("a while loop of an application has no else")
    t = self.tracer
    self.no_jumps(s)
    start = self.value(s.test, scope)
    conditions: list[tuple[Block, bool]] = []     # each with whether it takes statements to find it
    if not computed(start) and not set(assigned_names(s.body)) & {n.id for n in ast.walk(s.test) if isinstance(n, ast.Name)}:
      if not start: return None
      raise ApplicationError("a while loop whose condition never changes does not end")
    def read(names: dict[str, Any]) -> None:
      inner = Scope(names, scope.around, scope.fn, scope.text, scope.name)
      before = len(t.statements)
      got = self.value(s.test, inner)
      conditions.append((truth(got), len(t.statements) > before))
      if self.body(s.body, inner) is not None:
        raise ApplicationError("return inside a loop of the kernel; assign, and return after it")

    carried, variables, initial, statements, updates = self.carry(s, s.body, scope, read, [], [])
    self.settle(carried, variables, initial, scope)
    c, stated = conditions[-1]
    if not all(map(one, c.shape)):
      raise ApplicationError(
        f"`while` takes one condition a program, got a block of shape {c.shape}; reduce it with tl.max or tl.sum"
      )
    if stated:   # found before the loop, and at the end of each round
      going = t.variable(dtypes.bool, ())
      t.assign(going, truth(start).value)
      c = going.block
    with t.region(self.written) as inner:
      known = t.known
      inner.extend(statements)
      t.update([(variables[n], updates[n]) for n in carried])
      if stated:
        t.known = known
        t.assign(going, truth(self.value(s.test, scope)).value)
    t.statements.append(UOp.unique(Ops.WHILE, dtypes.bool, (c.value, *inner)))
    return None

  def no_jumps(self, s: ast.For | ast.While) -> None:
    for n in ast.walk(s):
      if isinstance(n, (ast.Break, ast.Continue)):
        raise ApplicationError(
          f"{type(n).__name__.lower()} at line {n.lineno}: a loop of a kernel runs to its end; put the rest under an if"
        )

  def carry(
    self,
    s: ast.stmt,
    stmts: Sequence[ast.stmt],
    scope: Scope,
    read: Callable[[dict[str, Any]], None],
    around: list[int],
    counters: Sequence[str],
  ) -> tuple[list[str], dict[str, Variable], dict[str, Any], list[UOp], dict[str, UOp]]:
    """Read a loop's body with what it changes from round to round in variables.

    Gives those names, their variables and first values, the body's statements, and each variable's next value.
    """
    t = self.tracer
    changing = [
      n
      for n in dict.fromkeys((*assigned_names(stmts), *self.handed(stmts, scope)))
      if n not in counters and n in scope.names and number(scope.names[n]) and not self.stores(n, scope)
    ]
    kinds = {n: together(scope.names[n]) for n in changing}
    variables = {n: t.variable(*kinds[n]) for n in changing}
    written: set[UOp] = set()  # what the body writes
    tries = 0  # of finding the variables' dimensions
    lost: dict[str, Unbound] = {}  # what it changes that no variable can hold
    while True:
      names = dict(scope.names) | {n: v.block for n, v in variables.items()} | lost
      made, still = len(t.materialized), t.unchanged(written)
      with self.unmoved(f"the loop at line {s.lineno}, which the kernel runs,"), t.region(written) as statements:
        t.inside.extend(around)
        read(names)
        self.known, self.written = dict(t.known), written | t.written
      written = self.written
      if any(level <= len(t.outer) for level in t.materialized[made:]) or len(t.unchanged(written)) < len(still):
        continue
      gone = [
        n
        for n, x in scope.names.items()
        if n not in changing and n not in counters and n not in lost and not isinstance(x, Unbound) and not same(names[n], x)
      ]
      if gone:
        lost |= {
          n: Unbound(f"the loop at line {s.lineno} changes it, and a loop of the kernel carries numbers and blocks only")
          for n in gone
        }
        continue
      new = dict(kinds)
      for n in changing:
        if not number(names[n]):
          raise ApplicationError(f"{n!r} is a block before the loop and {names[n]!r} in it")
        d, shape = together(names[n])
        old_d, old_shape = kinds[n]
        if not is_value(scope.names[n]):
          new[n] = promote(old_d, d) if d is not old_d else d, broadcast_shapes(n, old_shape, shape)
        elif len(shape) != len(old_shape) or not all(same_size(dim(m), dim(n)) for m, n in zip(shape, old_shape)):
          raise ApplicationError(
            f"{n!r} has shape {old_shape} before the loop and {shape} after a round of it; a loop keeps shapes"
          )
        elif d is not old_d and promote(old_d, d) is not old_d:
          raise ApplicationError(f"{n!r} is {old_d} before the loop and {d} after a round of it; convert one with .to")
      if new != kinds:
        kinds = new
        variables = {n: t.variable(*kinds[n]) for n in changing}
        continue
      axes = {n: t.settled(v.axes) for n, v in variables.items()}
      if tries == 5 or all(axes[n] == variables[n].axes for n in changing):
        break
      tries += 1  # once more, with the names that the body has for the dimensions
      variables = {n: t.variable(*kinds[n], axes[n]) for n in changing}
    scope.names.update(lost)
    for n in names:
      if n not in scope.names and n not in counters:
        scope.names[n] = Unbound(f"it is assigned only inside the loop at line {s.lineno}")
    updates = {n: plain(to_axes(n, block(names[n]), variables[n].axes), variables[n].uop.dtype) for n in changing}
    return changing, variables, {n: scope.names[n] for n in changing}, statements, updates

  def settle(self, carried: list[str], variables: dict[str, Variable], initial: dict[str, Any], scope: Scope) -> None:
    """Before a loop: its variables get their first values; afterwards names mean the variables."""
    for n in carried:
      v = variables[n]
      self.tracer.assign(v, plain(to_axes(n, block(initial[n]), v.axes), v.uop.dtype))
    for n in carried: scope.names[n] = variables[n].block
