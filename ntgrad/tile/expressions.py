"""Reading an application's expressions: each gives what Python would, or a block."""
from __future__ import annotations

import ast
import inspect
import operator
import types
from dataclasses import replace
from functools import partial
from typing import Any, Callable, Hashable, Iterable, Sequence

from ntgrad.codegen.index import Dim
from ntgrad.codegen.ir import ApplicationError, ArgumentError, BinaryOps, NtgradError, UnaryOps
from ntgrad.graph.origins import pointed
from ntgrad.graph.symbol import Symbol, evaluate_size

from . import breakpoints
from .block import block, block_unary, seen, truth
from .control_flow import NATIVE, boolean, computed, select_value
from .parameters import Tile
from .python_source import Closure, Code, NamedValues, Scope, Statements, code_of, of_language, returns
from .refusals import as_foreign, is_library, no_attribute, no_expression, python_said
from .trace import Tracer

_MOST_CALLS = 64   # functions within each other
_P = inspect.Parameter
_Operators = dict[type, Callable[..., Any]]


def _operators(names: str) -> _Operators:
  """Python's operators, by the names that ast and operator have for them."""
  return {getattr(ast, n): getattr(operator, fn) for n, fn in (row.split() for row in names.split(","))}


_BINARY = _operators("Add add, Sub sub, Mult mul, Div truediv, FloorDiv floordiv, Mod mod, Pow pow, BitAnd and_, BitOr or_, "
                     "BitXor xor, LShift lshift, RShift rshift, MatMult matmul")
IN_PLACE = {op: getattr(operator, f"i{fn.__name__.rstrip('_')}") for op, fn in _BINARY.items()}
_COMPARE: _Operators = {**_operators("Eq eq, NotEq ne, Lt lt, LtE le, Gt gt, GtE ge, Is is_, IsNot is_not"),
                        ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b}
_CONVERSIONS: dict[int, Callable[[Any], str]] = {ord("s"): str, ord("r"): repr, ord("a"): ascii}
_UNARY = _operators("USub neg, UAdd pos, Invert invert")
_OF_SIZES = ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod   # what gives a size of sizes, which the host knows


class Returned:
  """What a function's body gave."""
  def __init__(self, value: Any): self.value = value


class Expressions:
  """What an Interpreter makes of expressions and calls. ``values`` has a number for each Symbol that has one."""
  tracer: Tracer
  values: dict[str, Dim]
  body: Callable[[Statements, Scope], Returned | None]   # what the Interpreter makes of statements, and of targets
  assign: Callable[[ast.expr, Any, Scope], None]

  def __init__(self) -> None:
    self.depth = self.following = 0  # functions that are being read; the line of the statement behind the one that is
    self.left: NamedValues = {}      # the names of the function that was read last, as they are at its end

  def value(self, e: ast.expr, scope: Scope) -> Any:
    held = self.tracer.held
    mark = len(held)
    try: got = self.evaluate(e, scope)
    except NtgradError as x: raise self.located(as_foreign(x, e, held[mark:]), e, scope) from x.__cause__
    except Exception as x: raise self.located(python_said(x, e, held[mark:]), e, scope) from x
    del held[mark:]
    held.append(got)   # until what it is a part of has been read
    return got

  def alike(self, e: ast.expr, scope: Scope) -> Any:
    """What is computed whether it is asked for or not. Raises ApplicationError where that makes a difference."""
    before = self.tracer.atomics
    got = self.value(e, scope)
    if self.tracer.atomics == before: return got
    said = "an atomic operation that the kernel may not come to: this expression is computed either way; put it under an `if`"
    raise self.located(ApplicationError(said), e, scope)

  def evaluate(self, e: ast.expr, scope: Scope) -> Any:
    of = partial(self.value, scope=scope)
    match e:
      case ast.Constant(): return e.value
      case ast.Name():
        x = scope.find(e.id)
        return x.now() if isinstance(x, Tile) and x.level is None else self.with_number(x)
      case ast.BinOp():
        left, right = of(e.left), of(e.right)
        if isinstance(left, Symbol) or isinstance(right, Symbol):
          exact = isinstance(e.op, _OF_SIZES) and all(isinstance(x, int | Symbol) for x in (left, right))
          if not exact: left, right = (block(x) if isinstance(x, Symbol) else x for x in (left, right))
        return _BINARY[type(e.op)](left, right)
      case ast.UnaryOp():
        x = of(e.operand)
        if isinstance(e.op, ast.Not): return block_unary(UnaryOps.NOT, truth(x)) if computed(x) else not x
        return _UNARY[type(e.op)](x)
      case ast.Compare():
        left = of(e.left)
        out: Any = None
        for op, node in zip(e.ops, e.comparators):
          right = of(node)
          got = _COMPARE[type(op)](left, right)
          out, left = got if out is None else boolean(BinaryOps.AND, out, got), right
        return out
      case ast.BoolOp():
        out = None
        for node in e.values:
          x = of(node) if out is None or not computed(out) else self.alike(node, scope)
          out = x if out is None else boolean(BinaryOps.AND if isinstance(e.op, ast.And) else BinaryOps.OR, out, x)
          if not computed(out) and bool(out) is isinstance(e.op, ast.Or): return out
        return out
      case ast.IfExp():
        c = of(e.test)
        if not computed(c): return of(e.body if c else e.orelse)
        return select_value(truth(c), self.alike(e.body, scope), self.alike(e.orelse, scope))
      case ast.Attribute():
        x = of(e.value)
        try: return self.with_number(getattr(x, e.attr))
        except AttributeError as missing: raise no_attribute(e, x) from missing
      case ast.Subscript(): return of(e.value)[of(e.slice)]
      case ast.Slice(): return slice(*(None if x is None else of(x) for x in (e.lower, e.upper, e.step)))
      case ast.Tuple(): return tuple(self.items(e.elts, scope))
      case ast.List(): return self.items(e.elts, scope)
      case ast.Dict(): return {of(k): of(v) for k, v in zip(e.keys, e.values) if k is not None}
      case ast.Call():
        fn = of(e.func)
        if fn is breakpoint: return breakpoints.stop(scope, e.lineno, self.following)
        kwargs: NamedValues = {}
        for k in e.keywords: kwargs.update(of(k.value) if k.arg is None else {k.arg: of(k.value)})
        args = self.items(e.args, scope)
        procedure = self.is_procedure(fn)
        return self.with_number(self.procedure(fn, e, args, kwargs, scope) if procedure else self.call(fn, args, kwargs))
      case ast.Lambda(): return self.closure(e, scope)
      case ast.JoinedStr(): return "".join(str(of(v)) for v in e.values)
      case ast.FormattedValue():
        x = of(e.value)
        if e.conversion > 0: x = _CONVERSIONS[e.conversion](x)
        return format(x, "" if e.format_spec is None else of(e.format_spec))
      case ast.ListComp() | ast.GeneratorExp(): return list(self.comprehend(e.generators, e.elt, scope))
    raise no_expression(e)

  def with_number(self, x: Any) -> Any:
    """A Symbol that an application uses is the number it stands for here."""
    if not isinstance(x, Symbol): return x
    try: return seen(evaluate_size(x, self.values))
    except ArgumentError:
      raise ApplicationError(f"{x} has no value in this kernel; it has {', '.join(self.values) or 'no symbols'}") from None

  def items(self, nodes: Sequence[ast.expr], scope: Scope) -> list[Any]:
    out: list[Any] = []
    for n in nodes: out.extend(self.value(n.value, scope) if isinstance(n, ast.Starred) else [self.value(n, scope)])
    return out

  def comprehend(self, generators: Sequence[ast.comprehension], element: ast.expr, scope: Scope) -> Iterable[Any]:
    if not generators:
      yield self.value(element, scope)
      return
    g = generators[0]
    for x in self.value(g.iter, scope):
      inner = replace(scope, names={}, around=scope)
      self.assign(g.target, x, inner)
      if all(self.value(c, inner) for c in g.ifs): yield from self.comprehend(generators[1:], element, inner)

  def closure(self, node: ast.FunctionDef | ast.Lambda, scope: Scope) -> Closure:
    a = node.args
    named = {k.arg: self.value(d, scope) for k, d in zip(a.kwonlyargs, a.kw_defaults) if d is not None}
    return Closure(Code(node, scope.text), scope, ([self.value(d, scope) for d in a.defaults], named))

  # ---- calls
  def call(self, fn: Any, args: Sequence[Any], kwargs: NamedValues) -> Any:
    """Call whatever an application calls."""
    if isinstance(fn, Closure):
      return self.enter(fn.code, self.bind_closure(fn, args, kwargs), fn.scope, None, getattr(fn.code.tree, "name", "lambda"))
    if isinstance(fn, types.MethodType) and isinstance(fn.__func__, types.FunctionType) and not of_language(fn.__func__):
      return self.call(fn.__func__, (fn.__self__, *args), kwargs)
    if isinstance(fn, Hashable): fn = NATIVE.get(fn, fn)
    wrapped = getattr(fn, "__wrapped__", None)
    if self.is_read(fn) and any(map(computed, (*args, *kwargs.values()))):
      target = wrapped if isinstance(wrapped, types.FunctionType) else fn
      try: bound = inspect.signature(target).bind(*args, **kwargs)
      except TypeError as e: raise ApplicationError(f"{fn.__name__}: {e}") from None
      bound.apply_defaults()
      return self.enter(code_of(target), dict(bound.arguments), None, target, fn.__name__)
    return fn(*args, **kwargs)

  def is_read(self, fn: Any) -> bool:
    """Whether a function is Python that an application may be made of."""
    return isinstance(fn, types.FunctionType) and not of_language(fn) and not is_library(fn.__module__ or "")

  def is_procedure(self, fn: Any) -> bool:
    """Whether a function is read when it is called, and returns nothing."""
    if isinstance(fn, Closure): code = fn.code
    elif self.is_read(fn) and not hasattr(fn, "__wrapped__"): code = code_of(fn)
    else: return False
    return isinstance(code.tree, ast.FunctionDef) and not returns(code.tree.body)

  def procedure(self, fn: Any, e: ast.Call, args: list[Any], kwargs: NamedValues, scope: Scope) -> Any:
    """A call of a function that returns nothing: names that it is called with become what it assigns to its parameters."""
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

  def handed(self, stmts: Statements, scope: Scope) -> list[str]:
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

  def bind_closure(self, c: Closure, args: Sequence[Any], kwargs: NamedValues) -> NamedValues:
    """What the parameters of a function in an application are in a call."""
    spec, (positional, named) = c.code.tree.args, c.defaults
    first = [*spec.posonlyargs, *spec.args]
    default = dict(zip([a.arg for a in first[len(first) - len(positional):]], positional)) | named
    kinds: list[tuple[Sequence[ast.arg | None], Any]] = [
      (spec.posonlyargs, _P.POSITIONAL_ONLY), (spec.args, _P.POSITIONAL_OR_KEYWORD), ([spec.vararg], _P.VAR_POSITIONAL),
      (spec.kwonlyargs, _P.KEYWORD_ONLY), ([spec.kwarg], _P.VAR_KEYWORD)]
    all_ = [_P(a.arg, kind, default=default.get(a.arg, _P.empty)) for args_, kind in kinds for a in args_ if a is not None]
    try: bound = inspect.Signature(all_).bind(*args, **kwargs)
    except TypeError as e: raise ApplicationError(f"{getattr(c.code.tree, 'name', 'lambda')}: {e}") from None
    bound.apply_defaults()
    return dict(bound.arguments)

  def enter(self, code: Code, names: NamedValues, around: Scope | None, fn: types.FunctionType | None, name: str) -> Any:
    if self.depth >= _MOST_CALLS:
      raise ApplicationError(f"{name}: functions call each other {_MOST_CALLS} deep; recursion must end while the application is "
                             "read")
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
    """The error with the line it comes from, and a caret under the place; likewise where a function is called that has it."""
    place = scope.text.file, scope.name
    seen = getattr(e, "places", ())
    if place in seen or seen and not isinstance(node, ast.Call): return e
    line = getattr(node, "lineno", 0)
    text = scope.text.line(line)
    begin = getattr(node, "col_offset", 0)
    end = getattr(node, "end_col_offset", None) if getattr(node, "end_lineno", line) == line else len(text)
    said = pointed(scope.text.file, line, scope.name, text, begin, end or begin + 1)
    new = type(e)(f"{e}\n  {'called at ' if seen else ''}{said}")
    new.__dict__["places"] = *seen, place
    return new
