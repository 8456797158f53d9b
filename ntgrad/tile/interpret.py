"""Reading an application: its Python source is gone through statement by statement, with blocks for the values that a kernel computes.

What is known while reading (shapes, numbers, conditions on them) is computed by Python itself; loops and conditions on blocks become
regions of the kernel. An error names the line.
"""
from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import math
import operator
import textwrap
import types
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Callable, Iterable, Sequence

from ntgrad.codegen import index as ix
from ntgrad.codegen.dtype import DType, dtypes, promote
from ntgrad.codegen.errors import ApplicationError, NtgradError
from ntgrad.codegen.kernel import AxisKind
from ntgrad.codegen.uop import BinaryOps, Ops, UnaryOps, UOp

from .block import (Block, binary, block, broadcast_shapes, cast, is_value, negative, plain, position, reduce, to_axes, unary, where)
from .trace import Reference, Source, Tile, Tracer, Variable, reads

_MOST_CALLS = 64

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
  ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv,
  ast.Mod: operator.mod, ast.Pow: operator.pow, ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
  ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.MatMult: operator.matmul}
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
  ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
  ast.Is: operator.is_, ast.IsNot: operator.is_not, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b}
_UNARY: dict[type, Callable[[Any], Any]] = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert}


@dataclass(frozen=True)
class Code:
  """A Python function's source as a syntax tree, its line numbers those of the file."""
  tree: ast.FunctionDef | ast.Lambda
  file: str


@lru_cache(maxsize=1024)
def code_of(fn: types.FunctionType) -> Code:
  """The source of a function. Raises ApplicationError where Python does not know it."""
  file = fn.__code__.co_filename
  try:
    lines, first = inspect.getsourcelines(fn)
  except (OSError, TypeError):
    raise ApplicationError(f"{fn.__qualname__}: its source is not known ({file}); an application is written in a file or a notebook cell") from None
  try:
    tree = ast.parse(textwrap.dedent("".join(lines)))
  except SyntaxError:
    raise ApplicationError(f"{fn.__qualname__}: a lambda that begins in the middle of a statement cannot be read; write a def") from None
  margin = len(lines[0]) - len(lines[0].lstrip())
  ast.increment_lineno(tree, max(first, 1) - 1)
  for node in ast.walk(tree):   # columns as in the file, for the caret
    if hasattr(node, "col_offset"): node.col_offset += margin
    if getattr(node, "end_col_offset", None) is not None: node.end_col_offset += margin  # type: ignore[attr-defined]
  found = next((n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.Lambda))), None)
  if found is None: raise ApplicationError(f"{fn.__qualname__}: no function in its source")
  return Code(found, file)


class Unbound:
  """A name without a value here, and why."""
  def __init__(self, why: str): self.why = why


class Closure:
  """A function defined inside an application."""
  def __init__(self, code: Code, scope: Scope, defaults: tuple[list[Any], dict[str, Any]]):
    self.code, self.scope, self.defaults = code, scope, defaults


class Scope:
  """The names of one function call: its own, then those around it."""

  def __init__(self, names: dict[str, Any], around: Scope | None, fn: types.FunctionType | None, file: str, name: str):
    self.names, self.around, self.fn, self.file, self.name = names, around, fn, file, name

  def find(self, name: str) -> Any:
    if name in self.names:
      found = self.names[name]
      if isinstance(found, Unbound): raise ApplicationError(f"{name!r} has no value here: {found.why}")
      return found
    if self.around is not None: return self.around.find(name)
    if self.fn is not None:
      free = self.fn.__code__.co_freevars
      if name in free and self.fn.__closure__ is not None:
        try: return self.fn.__closure__[free.index(name)].cell_contents
        except ValueError: pass
      if name in self.fn.__globals__: return self.fn.__globals__[name]
    if hasattr(builtins, name): return getattr(builtins, name)
    raise ApplicationError(f"{name!r} is read before it has any value")


class Returned:
  """What a function's body gave."""
  def __init__(self, value: Any): self.value = value


class Interpreter:
  """Reads functions into a kernel that a Tracer builds."""

  def __init__(self, tracer: Tracer):
    self.tracer = tracer
    self.depth = 0
    self.known: dict[UOp, UOp] = {}     # what the loop body that was read last keeps in variables

  # ---- functions
  def application(self, fn: types.FunctionType, tiles: Sequence[Any]) -> None:
    """Read an application whose parameters are ``tiles``."""
    code = code_of(fn)
    assert isinstance(code.tree, ast.FunctionDef)
    names = [a.arg for a in (*code.tree.args.posonlyargs, *code.tree.args.args)]
    scope = Scope(dict(zip(names, tiles)), None, fn, code.file, fn.__name__)
    out = self.body(code.tree.body, scope)
    if out is not None and out.value is not None:
      raise ApplicationError(f"{fn.__name__} returns a value; an application stores: assign to one of its parameters {', '.join(names)}")

  def call(self, fn: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call whatever an application calls."""
    if isinstance(fn, Closure): return self.enter(fn.code, self.bind_closure(fn, args, kwargs), fn.scope, None, getattr(fn.code.tree, "name", "lambda"))
    if isinstance(fn, types.MethodType) and ours(fn.__func__): pass
    elif isinstance(fn, types.MethodType) and isinstance(fn.__func__, types.FunctionType): return self.call(fn.__func__, (fn.__self__, *args), kwargs)
    fn, args, kwargs = _NATIVE.get(fn, fn) if _hashable(fn) else fn, tuple(args), kwargs
    wrapped = getattr(fn, "__wrapped__", None)
    if isinstance(fn, types.FunctionType) and not ours(fn) and any(map(computed, (*args, *kwargs.values()))):
      target = wrapped if isinstance(wrapped, types.FunctionType) else fn
      try: bound = inspect.signature(target).bind(*args, **kwargs)
      except TypeError as e: raise ApplicationError(f"{fn.__name__}: {e}") from None
      bound.apply_defaults()
      return self.enter(code_of(target), dict(bound.arguments), None, target, fn.__name__)
    if not callable(fn): raise ApplicationError(f"{fn!r} is no function")
    return fn(*args, **kwargs)

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
    if self.depth >= _MOST_CALLS: raise ApplicationError(f"{name}: functions call each other {_MOST_CALLS} deep; recursion must end while the application is read")
    scope = Scope(names, around, fn, code.file, name)
    self.depth += 1
    try:
      if isinstance(code.tree, ast.Lambda): return self.value(code.tree.body, scope)
      out = self.body(code.tree.body, scope)
      return None if out is None else out.value
    finally: self.depth -= 1

  # ---- errors
  def located(self, e: NtgradError, node: ast.AST, scope: Scope) -> NtgradError:
    """The error with the line it comes from, and a caret under the place."""
    if getattr(e, "located", False): return e
    line = getattr(node, "lineno", 0)
    text = linecache.getline(scope.file, line).rstrip()
    begin = getattr(node, "col_offset", 0)
    end = getattr(node, "end_col_offset", None) if getattr(node, "end_lineno", line) == line else len(text)
    mark = " " * begin + "^" * max((end or begin + 1) - begin, 1)
    new = type(e)(f"{e}\n  {scope.file}:{line}, in {scope.name}\n    {text.strip()}\n    {mark[len(text) - len(text.lstrip()):]}")
    setattr(new, "located", True)
    return new

  # ---- statements
  def body(self, stmts: Sequence[ast.stmt], scope: Scope) -> Returned | None:
    """Read statements; what a ``return`` among them gave, None where there was none."""
    self.tracer.frames.append(scope.names)
    try:
      for i, s in enumerate(stmts):
        try:
          out = self.statement(s, scope, stmts[i + 1:])
        except NtgradError as e: raise self.located(e, s, scope) from None
        except (TypeError, ValueError, AttributeError, KeyError, IndexError, ZeroDivisionError, AssertionError) as e:
          raise self.located(ApplicationError(f"{type(e).__name__}: {e}"), s, scope) from e
        if out is not None: return out
      return None
    finally: self.tracer.frames.pop()

  def statement(self, s: ast.stmt, scope: Scope, rest: Sequence[ast.stmt]) -> Returned | None:
    match s:
      case ast.Expr(): self.value(s.value, scope)
      case ast.Assign():
        value = self.value(s.value, scope)
        for t in s.targets: self.assign(t, value, scope)
      case ast.AnnAssign():
        if s.value is not None: self.assign(s.target, self.value(s.value, scope), scope)
      case ast.AugAssign():
        old = self.value(_load(s.target), scope)
        self.assign(s.target, _BINARY[type(s.op)](old, self.value(s.value, scope)), scope)
      case ast.Return(): return Returned(None if s.value is None else self.value(s.value, scope))
      case ast.If(): return self.branch(s, scope, rest)
      case ast.For(): return self.loop(s, scope)
      case ast.While(): return self.repeat(s, scope)
      case ast.FunctionDef(): scope.names[s.name] = self.closure(s, scope)
      case ast.Assert():
        held = self.value(s.test, scope)
        if computed(held): raise ApplicationError("assert: the condition is known only when the kernel runs; tl.static_assert and assert take what is known before")
        if not held: raise ApplicationError(f"assertion failed{': ' + str(self.value(s.msg, scope)) if s.msg is not None else ''}")
      case ast.Pass(): pass
      case ast.Import() | ast.ImportFrom():
        for a in s.names:
          module = __import__(s.module if isinstance(s, ast.ImportFrom) and s.module else a.name, fromlist=["_"])
          scope.names[a.asname or a.name] = getattr(module, a.name) if isinstance(s, ast.ImportFrom) else module
      case _: raise ApplicationError(f"an application has no {type(s).__name__.lower()} statement; it takes assignments, calls, for, while, if, def and return")
    return None

  def assign(self, target: ast.expr, value: Any, scope: Scope) -> None:
    match target:
      case ast.Name():
        held = scope.names.get(target.id)
        if isinstance(held, Tile) and scope.around is None and scope.fn is not None and self.depth == 0:
          if value is not held: held.store(value)
        else: scope.names[target.id] = value
      case ast.Subscript():
        base, at = self.value(target.value, scope), self.value(target.slice, scope)
        if isinstance(base, (Tile, Source)):
          place = base[at]
          if isinstance(place, (Tile, Reference)): place.store(value)
          else: raise ApplicationError("a part of a block cannot be assigned; store the whole tile, with tl.where for the elements that stay")
        elif isinstance(base, (list, dict)): base[at] = value
        else: raise ApplicationError(f"{type(base).__name__} takes no assignment at an index; a parameter with levels and .source do")
      case ast.Tuple() | ast.List():
        values = list(value)
        if len(values) != len(target.elts): raise ApplicationError(f"{len(target.elts)} names for {len(values)} values")
        for t, v in zip(target.elts, values): self.assign(t, v, scope)
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
    changed = [n for n in dict.fromkeys((*names_a, *names_b)) if names_a.get(n) is not scope.names.get(n) or names_b.get(n) is not scope.names.get(n)]
    pairs: dict[str, tuple[Any, Any]] = {}
    for n in changed:
      if n in names_a and n in names_b and not isinstance(names_a[n], Unbound) and not isinstance(names_b[n], Unbound): pairs[n] = names_a[n], names_b[n]
      else: scope.names[n] = Unbound(f"the `if` at line {s.lineno} assigns it on one side only")
    if not a and not b and not raw_a and not raw_b:
      scope.names.update({n: select(condition, *v) for n, v in pairs.items()})
    else: scope.names.update(self.joined(condition, (a, b), pairs))
    return None

  def side(self, stmts: Sequence[ast.stmt], scope: Scope) -> tuple[list[UOp], Returned | None, dict[str, Any], bool]:
    """One side of an `if`, read apart: its statements, return, names, and whether it loads from computed places."""
    before = self.tracer.raw_loads
    inner = Scope(dict(scope.names), scope.around, scope.fn, scope.file, scope.name)
    with self.tracer.region() as statements: out = self.body(stmts, inner)
    return statements, out, inner.names, self.tracer.raw_loads > before

  def joined(self, condition: Block, sides: tuple[list[UOp], list[UOp]], pairs: dict[str, tuple[Any, Any]]) -> dict[str, Any]:
    """An IF with effects; what its sides assign goes through variables."""
    t = self.tracer
    out: dict[str, Any] = {}
    for name, values in pairs.items():
      if same(*values):
        out[name] = values[0]
        continue
      if not all(map(number, values)): raise ApplicationError(f"{name or 'the result'} is {values[0]!r} or {values[1]!r}, as a condition decides that is known only when the kernel runs")
      dtype, shape = together(*values)
      v = t.variable(dtype, shape)
      for statements, x in zip(sides, values):
        with t.region() as own: t.assign(v, plain(to_axes(name, block(x), v.axes), dtype))
        statements.extend(own)
      out[name] = v.block
    then, other = sides
    t.statements.append(UOp.fresh(Ops.IF, dtypes.bool, (t.refer(condition.value), *then, *other), len(then)))
    return out

  def condition(self, test: ast.expr, scope: Scope, what: str) -> Any:
    """A bool that is known now, or a scalar block."""
    got = self.value(test, scope)
    if not computed(got): return bool(got)
    b = truth(got)
    if b.value.op is Ops.CONST: return bool(b.value.arg)
    if any(n != 1 for n in b.shape):
      raise ApplicationError(f"`{what}` takes one condition a program, got a block of shape {b.shape}; tl.where chooses element by element")
    return Block(b.value)

  # ---- loops
  def loop(self, s: ast.For, scope: Scope) -> Returned | None:
    if s.orelse: raise ApplicationError("a for loop of an application has no else")
    t = self.tracer
    over = self.value(s.iter, scope)
    if isinstance(over, range) and len(over) > 1: over = Range(over.start, over.stop, over.step)
    if isinstance(over, Tile) and not over.innermost: over = Counted(over)
    if not isinstance(over, (Range, Counted)):
      items = list(over)
      for x in items:
        self.assign(s.target, x, scope)
        out = self.body(s.body, scope)
        if out is not None: return out
      return None
    end, item = over.steps()
    if isinstance(end, int) and end <= 0: return None
    size = end if isinstance(end, int) else min(max(ix.vmax(end), 1), (1 << 31) - 1)
    k = t.new_axis(size, AxisKind.LOOP)
    if isinstance(end, int) and end == 1:
      self.assign(s.target, item(ix.const(0)), scope)
      return self.body(s.body, scope)
    def read(names: dict[str, Any]) -> None:
      inner = Scope(names, scope.around, scope.fn, scope.file, scope.name)
      self.assign(s.target, item(k), inner)
      if self.body(s.body, inner) is not None: raise ApplicationError("return inside a loop whose length or condition the kernel computes; assign and return after it")
    self.no_jumps(s)
    carried, variables, initial, statements, updates = self.carry(s, s.body, scope, read, [k.arg[0]], assigned(s.target))
    if isinstance(end, int) and not statements and (totals := accumulations(carried, variables, initial, updates, k)) is not None:
      scope.names.update(totals)
    else:
      known = self.known
      self.settle(carried, variables, initial, scope)
      with t.region() as inner:
        inner.extend(statements)
        t.known = known
        t.inside.append(k.arg[0])
        t.update([(variables[n], updates[n]) for n in carried])
        t.inside.pop()
      t.statements.append(UOp.fresh(Ops.FOR, dtypes.int32, (t.refer(ix.const(end) if isinstance(end, int) else end), *inner), k.arg[0]))
    for n in assigned(s.target): scope.names[n] = Unbound(f"it counts the loop at line {s.lineno}")
    return None

  def repeat(self, s: ast.While, scope: Scope) -> Returned | None:
    if s.orelse: raise ApplicationError("a while loop of an application has no else")
    t = self.tracer
    self.no_jumps(s)
    start = self.value(s.test, scope)
    conditions: list[Block] = []
    if not computed(start) and not set(assigned_names(s.body)) & {n.id for n in ast.walk(s.test) if isinstance(n, ast.Name)}:
      if not start: return None
      raise ApplicationError("a while loop whose condition never changes does not end")
    def read(names: dict[str, Any]) -> None:
      inner = Scope(names, scope.around, scope.fn, scope.file, scope.name)
      got = self.value(s.test, inner)
      conditions.append(truth(got))
      if self.body(s.body, inner) is not None: raise ApplicationError("return inside a loop whose length or condition the kernel computes; assign and return after it")
    carried, variables, initial, statements, updates = self.carry(s, s.body, scope, read, [], [])
    self.settle(carried, variables, initial, scope)
    with t.region() as inner:
      inner.extend(statements)
      t.update([(variables[n], updates[n]) for n in carried])
    c = conditions[-1]
    if any(n != 1 for n in c.shape): raise ApplicationError(f"`while` takes one condition a program, got a block of shape {c.shape}; reduce it with tl.max or tl.sum")
    t.statements.append(UOp.fresh(Ops.WHILE, dtypes.bool, (c.value, *inner)))
    return None

  def no_jumps(self, s: ast.For | ast.While) -> None:
    for n in ast.walk(s):
      if isinstance(n, (ast.Break, ast.Continue)): raise ApplicationError(f"{type(n).__name__.lower()} at line {n.lineno}: a loop of a kernel runs to its end; put the rest under an if")

  def carry(self, s: ast.stmt, stmts: Sequence[ast.stmt], scope: Scope, read: Callable[[dict[str, Any]], None], around: list[int],
            counters: Sequence[str]) -> tuple[list[str], dict[str, Variable], dict[str, Any], list[UOp], dict[str, UOp]]:
    """Read a loop's body with what it changes from round to round in variables.

    Gives those names, their variables and first values, the body's statements, and each variable's next value.
    """
    t = self.tracer
    changing = [n for n in assigned_names(stmts) if n not in counters and n in scope.names and (number(scope.names[n]) or isinstance(scope.names[n], Block))
                and not isinstance(scope.names[n], Tile)]
    kinds = {n: together(scope.names[n]) for n in changing}
    variables = {n: t.variable(*kinds[n]) for n in changing}
    for attempt in range(6):
      names = dict(scope.names) | {n: v.block for n, v in variables.items()}
      with t.region() as statements:
        t.inside.extend(around)
        read(names)
        self.known = dict(t.known)
        del t.inside[len(t.inside) - len(around):]
      new = dict(kinds)
      for n in changing:
        if not number(names[n]): raise ApplicationError(f"{n!r} is a block before the loop and {names[n]!r} in it")
        d, shape = together(names[n])
        old_d, old_shape = kinds[n]
        if not isinstance(scope.names[n], Block): new[n] = promote(old_d, d) if d is not old_d else d, broadcast_shapes(n, old_shape, shape)
        elif shape != old_shape:
          raise ApplicationError(f"{n!r} has shape {old_shape} before the loop and {shape} after a round of it; a loop keeps shapes")
        elif d is not old_d and promote(old_d, d) is not old_d:
          raise ApplicationError(f"{n!r} is {old_d} before the loop and {d} after a round of it; convert one with .to")
      if new != kinds:
        kinds = new
        variables = {n: t.variable(*kinds[n]) for n in changing}
        continue
      axes = {n: t.settled(v.axes) for n, v in variables.items()}
      if attempt == 5 or all(axes[n] == variables[n].axes for n in changing): break
      # once more, with the names that the body has for the dimensions
      variables = {n: t.variable(*kinds[n], axes[n]) for n in changing}
    for n, x in names.items():
      if n not in scope.names and n not in counters: scope.names[n] = Unbound(f"it is assigned only inside the loop at line {s.lineno}")
    updates = {n: plain(to_axes(n, block(names[n]), variables[n].axes), variables[n].uop.dtype) for n in changing}
    return changing, variables, {n: scope.names[n] for n in changing}, statements, updates

  def settle(self, carried: list[str], variables: dict[str, Variable], initial: dict[str, Any], scope: Scope) -> None:
    """Before a loop: its variables get their first values; afterwards names mean the variables."""
    for n in carried:
      v = variables[n]
      self.tracer.assign(v, plain(to_axes(n, block(initial[n]), v.axes), v.uop.dtype))
    for n in carried: scope.names[n] = variables[n].block

  # ---- expressions
  def value(self, e: ast.expr, scope: Scope) -> Any:
    try: return self.evaluate(e, scope)
    except NtgradError as x: raise self.located(x, e, scope) from None
    except (TypeError, ValueError, AttributeError, KeyError, IndexError, ZeroDivisionError) as x:
      raise self.located(ApplicationError(f"{type(x).__name__}: {x}"), e, scope) from x

  def evaluate(self, e: ast.expr, scope: Scope) -> Any:
    match e:
      case ast.Constant(): return e.value
      case ast.Name(): return scope.find(e.id)
      case ast.BinOp(): return _BINARY[type(e.op)](self.value(e.left, scope), self.value(e.right, scope))
      case ast.UnaryOp():
        x = self.value(e.operand, scope)
        if isinstance(e.op, ast.Not): return unary(UnaryOps.NOT, truth(x)) if computed(x) else not x
        return _UNARY[type(e.op)](x)
      case ast.Compare():
        left = self.value(e.left, scope)
        out: Any = None
        for op, right_node in zip(e.ops, e.comparators):
          right = self.value(right_node, scope)
          got = _COMPARE[type(op)](left, right)
          out = got if out is None else both(out, got)
          left = right
        return out
      case ast.BoolOp():
        out = None
        for node in e.values:
          x = self.value(node, scope)
          if out is None: out = x
          elif computed(out) or computed(x): out = both(out, x) if isinstance(e.op, ast.And) else either(out, x)
          else: out = x
          if not computed(out) and bool(out) is isinstance(e.op, ast.Or): return out
        return out
      case ast.IfExp():
        c = self.value(e.test, scope)
        if not computed(c): return self.value(e.body if c else e.orelse, scope)
        return select(truth(c), self.value(e.body, scope), self.value(e.orelse, scope))
      case ast.Attribute():
        x = self.value(e.value, scope)
        try: return getattr(x, e.attr)
        except AttributeError:
          what = getattr(x, "__name__", type(x).__name__)
          names = [n for n in dir(x) if not n.startswith("_")]
          import difflib
          near = difflib.get_close_matches(e.attr, names, 3)
          raise ApplicationError(f"{what} has no {e.attr!r}{'; did you mean ' + ' or '.join(near) + '?' if near else ''}") from None
      case ast.Subscript(): return self.value(e.value, scope)[self.value(e.slice, scope)]
      case ast.Slice(): return slice(*(None if x is None else self.value(x, scope) for x in (e.lower, e.upper, e.step)))
      case ast.Tuple(): return tuple(self.items(e.elts, scope))
      case ast.List(): return self.items(e.elts, scope)
      case ast.Dict(): return {self.value(k, scope): self.value(v, scope) for k, v in zip(e.keys, e.values) if k is not None}
      case ast.Call():
        fn = self.value(e.func, scope)
        kwargs: dict[str, Any] = {}
        for k in e.keywords:
          if k.arg is None: kwargs.update(self.value(k.value, scope))
          else: kwargs[k.arg] = self.value(k.value, scope)
        return self.call(fn, self.items(e.args, scope), kwargs)
      case ast.Lambda(): return self.closure(e, scope)
      case ast.JoinedStr(): return "".join(str(self.value(v, scope)) for v in e.values)
      case ast.FormattedValue():
        x = self.value(e.value, scope)
        return format(x, "" if e.format_spec is None else self.value(e.format_spec, scope))
      case ast.ListComp() | ast.GeneratorExp(): return list(self.comprehend(e.generators, e.elt, scope))
    raise ApplicationError(f"an application has no {type(e).__name__} expressions")

  def items(self, nodes: Sequence[ast.expr], scope: Scope) -> list[Any]:
    out: list[Any] = []
    for n in nodes:
      if isinstance(n, ast.Starred): out.extend(self.value(n.value, scope))
      else: out.append(self.value(n, scope))
    return out

  def comprehend(self, generators: Sequence[ast.comprehension], element: ast.expr, scope: Scope) -> Iterable[Any]:
    if not generators:
      yield self.value(element, scope)
      return
    g = generators[0]
    for x in self.value(g.iter, scope):
      inner = Scope({}, scope, scope.fn, scope.file, scope.name)
      self.assign(g.target, x, inner)
      if all(self.value(c, inner) for c in g.ifs): yield from self.comprehend(generators[1:], element, inner)

  def closure(self, node: ast.FunctionDef | ast.Lambda, scope: Scope) -> Closure:
    a = node.args
    named = {k.arg: self.value(d, scope) for k, d in zip(a.kwonlyargs, a.kw_defaults) if d is not None}
    return Closure(Code(node, scope.file), scope, ([self.value(d, scope) for d in a.defaults], named))


# ---- what a loop counts

@dataclass(frozen=True)
class Range:
  """``range`` of numbers that may be known only when the kernel runs."""
  start: Any
  stop: Any
  step: Any

  def steps(self) -> tuple[Any, Callable[[UOp], Any]]:
    """How many rounds (an int, or an index expression), and what the counter is in round ``k``."""
    if not any(map(computed, (self.start, self.stop, self.step))):
      n = len(range(self.start, self.stop, self.step))
      return n, lambda k: simple(ix.add(ix.mul(k, self.step), self.start))
    if computed(self.step) or self.step == 0: raise ApplicationError("range: the step is a number other than 0 that is known while the application is read")
    first, last = (position(scalar(x).value) for x in (self.start, self.stop))
    span = ix.sub(last, first) if self.step > 0 else ix.sub(first, last)
    end = ix.fdiv(ix.add(span, abs(self.step) - 1), abs(self.step))
    if end.op is Ops.CONST: return int(end.arg), lambda k: Block(ix.add(ix.mul(k, self.step), first))
    return end, lambda k: Block(ix.add(ix.mul(k, self.step), first))


@dataclass(frozen=True)
class Counted:
  """The tiles of a level, along its first dimension."""
  tile: Tile

  def steps(self) -> tuple[Any, Callable[[UOp], Any]]:
    if self.tile.ndim != 1: raise ApplicationError(f"{self.tile!r} has a level of shape {self.tile.shape}: loop over the ranges of its dimensions and index it")
    return self.tile.shape[0], lambda k: self.tile[Block(k)]


def simple(u: UOp) -> Any: return int(u.arg) if u.op is Ops.CONST else Block(u)


def scalar(x: Any) -> Block:
  b = block(x)
  if any(n != 1 for n in b.shape): raise ApplicationError(f"a single number is wanted, got a block of shape {b.shape}")
  return b


def make_range(*args: Any) -> Any:
  """range, also of numbers that the kernel computes."""
  start, stop, step = (0, args[0], 1) if len(args) == 1 else (*args, 1) if len(args) == 2 else args
  if not any(map(computed, (start, stop, step))): return range(start, stop, step)
  return Range(start, stop, step)


def native_min(*xs: Any) -> Any:
  items = xs if len(xs) > 1 else tuple(xs[0])
  if not any(map(computed, items)): return min(items)
  out = items[0]
  for x in items[1:]: out = binary(BinaryOps.MIN, out, x)
  return out


def native_max(*xs: Any) -> Any:
  items = xs if len(xs) > 1 else tuple(xs[0])
  if not any(map(computed, items)): return max(items)
  out = items[0]
  for x in items[1:]: out = binary(BinaryOps.MAX, out, x)
  return out


def native_int(x: Any = 0) -> Any: return cast(x, dtypes.int32) if computed(x) and block(x).dtype.kind == "f" else x if computed(x) else int(x)
def native_float(x: Any = 0.0) -> Any: return cast(x, dtypes.float32) if computed(x) else float(x)
def native_bool(x: Any = False) -> Any: return truth(x) if computed(x) else bool(x)


def native_sum(xs: Any, start: Any = 0) -> Any:
  for x in xs: start = start + x
  return start


_NATIVE: dict[Any, Any] = {range: make_range, min: native_min, max: native_max, int: native_int, float: native_float, bool: native_bool,
                           sum: native_sum, abs: abs, len: len, math.ceil: math.ceil}


# ---- helpers

def _hashable(x: Any) -> bool: return getattr(type(x), "__hash__", None) is not None


def ours(fn: Any) -> bool:
  """Whether a function belongs to the language: it is called, not read."""
  return str(getattr(fn, "__module__", "")).startswith("ntgrad.")


def computed(x: Any) -> bool:
  """Whether a value is computed by the kernel (or holds one that is)."""
  if isinstance(x, (tuple, list)): return any(map(computed, x))
  return is_value(x) or isinstance(x, (Range, Closure, Source))


def number(x: Any) -> bool:
  """Whether something can be held by a variable."""
  return is_value(x) or (isinstance(x, (bool, int, float)) and not isinstance(x, DType))


def truth(x: Any) -> Block:
  b = block(x)
  return b if b.dtype.kind == "b" else binary(BinaryOps.CMPNE, b, 0)


def both(a: Any, b: Any) -> Any:
  if not computed(a): return b if a else a
  if not computed(b): return a if b else b
  return binary(BinaryOps.AND, truth(a), truth(b))


def either(a: Any, b: Any) -> Any:
  if not computed(a): return a if a else b
  if not computed(b): return b if b else a
  return binary(BinaryOps.OR, truth(a), truth(b))


def same(a: Any, b: Any) -> bool:
  if a is b: return True
  if isinstance(a, Block) or isinstance(b, Block): return isinstance(a, Block) and isinstance(b, Block) and a.value is b.value and a.axes == b.axes
  return type(a) is type(b) and not computed(a) and bool(a == b)


def select(condition: Block, a: Any, b: Any) -> Any:
  """``a`` or ``b``, as a condition decides that the kernel computes."""
  if same(a, b): return a
  if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)) and len(a) == len(b):
    return type(a)(select(condition, x, y) for x, y in zip(a, b))
  if not number(a) or not number(b): raise ApplicationError(f"{a!r} or {b!r}, as a condition decides that is known only when the kernel runs: both must be numbers or blocks")
  return where(condition, a, b)


def together(*values: Any) -> tuple[DType, tuple[int, ...]]:
  """The dtype and shape of a variable that holds any of the values."""
  blocks = [block(v) for v in values]
  found = [b.dtype if is_value(v) else dtypes.of(type(v)) for b, v in zip(blocks, values)]
  strong = [d for d, v in zip(found, values) if is_value(v)]
  d = promote(*found) if len(strong) != 1 or promote(*found).kind != strong[0].kind else strong[0]
  return d, broadcast_shapes("value", *(b.shape for b in blocks))


def accumulations(carried: list[str], variables: dict[str, Variable], initial: dict[str, Any], updates: dict[str, UOp], k: UOp) -> dict[str, Any] | None:
  """A loop that only adds to (or takes the greatest with) what each variable held is a reduction over its axis."""
  out: dict[str, Any] = {}
  for n in carried:
    v, u = variables[n], updates[n]
    held = v.block.value
    if u is held:
      out[n] = initial[n]
      continue
    if u.op is not Ops.ALU or u.arg not in (BinaryOps.ADD, BinaryOps.MAX, BinaryOps.MIN) or held not in u.src: return None
    part = u.src[1] if u.src[0] is held else u.src[0]
    if any(reads(part, w) for w in variables.values()): return None
    ids: tuple[int, ...] = (k.arg[0],)
    if part.op is Ops.REDUCE and part.arg[0] is u.arg: part, ids = part.src[0], (k.arg[0], *part.arg[1])
    if k not in part.ranges: return None
    total = Block(UOp(Ops.REDUCE, part.dtype, (part,), (u.arg, ids)), v.axes)
    first = initial[n]
    zero = u.arg is BinaryOps.ADD and (b := block(first)).value.op is Ops.CONST and b.value.arg == 0
    out[n] = total if zero else binary(u.arg, cast(first, part.dtype) if is_value(first) else first, total)
  return out


def assigned(target: ast.expr) -> list[str]: return [n.id for n in ast.walk(target) if isinstance(n, ast.Name)]


def assigned_names(stmts: Sequence[ast.stmt]) -> list[str]:
  """The names that statements assign, nested functions left out."""
  out: dict[str, None] = {}
  stack: list[ast.AST] = list(stmts)[::-1]
  while stack:
    n = stack.pop()
    if isinstance(n, (ast.FunctionDef, ast.Lambda, ast.ListComp, ast.GeneratorExp)): continue
    if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store): out[n.id] = None
    stack.extend(list(ast.iter_child_nodes(n))[::-1])
  return list(out)


def _load(target: ast.expr) -> ast.expr:
  """A target of ``+=`` as the expression that reads it."""
  new = ast.parse(ast.unparse(target), mode="eval").body
  for n in ast.walk(new): ast.copy_location(n, target)
  return new


__all__ = ["Interpreter", "negative", "reduce"]
