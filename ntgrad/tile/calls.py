"""What an Interpreter makes of calls: functions are read where blocks go into them, others are called."""
from __future__ import annotations

import ast
import inspect
import types
from typing import Any, Sequence

from ntgrad.codegen.errors import ApplicationError, NtgradError

from .control import NATIVE, computed
from .explain import is_library
from .expressions import Expressions
from .place import Tile
from .source import Closure, Code, Scope, code_of, hashable, of_language, returns

_MOST_CALLS = 64
_P = inspect.Parameter


class Returned:
  """What a function's body gave."""
  def __init__(self, value: Any): self.value = value


class Calls(Expressions):
  """The part of an Interpreter that calls functions."""

  def __init__(self) -> None:
    self.depth = 0
    self.left: dict[str, Any] = {}      # the names of the function that was read last, as they are at its end

  def body(self, stmts: Sequence[ast.stmt], scope: Scope) -> Returned | None:
    """Read statements; what a ``return`` among them gave, None where there was none."""
    raise NotImplementedError

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
    if isinstance(fn, Closure): code = fn.code
    elif self.is_read(fn) and not hasattr(fn, "__wrapped__"): code = code_of(fn)
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
    """The error with the line it comes from, and a caret under the place; likewise where a function is called that has it."""
    place = scope.text.file, scope.name
    seen = getattr(e, "places", ())
    if place in seen or seen and not isinstance(node, ast.Call): return e
    line = getattr(node, "lineno", 0)
    text = scope.text.line(line)
    begin = getattr(node, "col_offset", 0)
    end = getattr(node, "end_col_offset", None) if getattr(node, "end_lineno", line) == line else len(text)
    mark = " " * begin + "^" * max((end or begin + 1) - begin, 1)
    said = f"{scope.text.file}:{line}, in {scope.name}\n    {text.strip()}\n    {mark[len(text) - len(text.lstrip()):]}"
    new = type(e)(f"{e}\n  {'called at ' if seen else ''}{said}")
    new.__dict__["places"] = (*seen, place)
    return new
