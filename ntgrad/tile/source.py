"""Python source as an application has it: syntax trees with the file's line numbers, scopes, and what statements assign."""
from __future__ import annotations

import ast
import builtins
import dis
import inspect
import textwrap
import types
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Sequence

from ntgrad.codegen.errors import ApplicationError, did_you_mean

from .typed import Text, text_of


@dataclass(frozen=True)
class Code:
  """A Python function's source as a syntax tree, its line numbers those of the text that it stands in."""
  tree: ast.FunctionDef | ast.Lambda
  text: Text


@lru_cache(maxsize=1024)
def code_of(fn: types.FunctionType) -> Code:
  """The source of a function. Raises ApplicationError where Python does not know it."""
  fn = inspect.unwrap(fn)
  text, first = text_of(fn), fn.__code__.co_firstlineno
  if fn.__code__.co_name == "<lambda>": return Code(_lambda(fn, text), text)
  lines = inspect.getblock(list(text.lines[max(first, 1) - 1:]))
  tree = ast.parse(textwrap.dedent("".join(lines)))
  _move(tree, max(first, 1) - 1, len(lines[0]) - len(lines[0].lstrip()))
  return Code(next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)), text)


def _lambda(fn: types.FunctionType, text: Text) -> ast.Lambda:
  """A lambda from the places that its instructions have: it may stand anywhere in a statement."""
  code = fn.__code__
  quiet = {"RESUME", "COPY_FREE_VARS", "MAKE_CELL", "RETURN_VALUE"}
  places = [
    p for i in dis.get_instructions(code) if i.opname not in quiet and (p := i.positions) is not None and p.col_offset is not None
  ]
  begin = min((p.lineno or 0, p.col_offset or 0) for p in places)
  end = max((p.end_lineno or 0, p.end_col_offset or 0) for p in places)
  lines = [line.encode() for line in text.lines[begin[0] - 1:end[0]]]
  lines[-1] = lines[-1][:end[1]]
  lines[0] = lines[0][begin[1]:]
  body = ast.parse("(" + b"".join(lines).decode() + ")", mode="eval").body
  for n in ast.walk(body):
    if getattr(n, "lineno", 0) == 1: _shift(n, begin[1] - 1)
  ast.increment_lineno(body, begin[0] - 1)
  names = ", ".join(inspect.signature(fn).parameters)
  tree = ast.parse(f"lambda {names}: 0", mode="eval").body
  assert isinstance(tree, ast.Lambda)
  tree.body = body
  return tree


def _shift(n: Any, columns: int) -> None:
  if hasattr(n, "col_offset"): n.col_offset += columns
  if getattr(n, "end_col_offset", None) is not None and n.end_lineno == n.lineno: n.end_col_offset += columns


def _move(tree: ast.AST, lines: int, columns: int) -> None:
  """Line numbers and columns as in the file, for messages."""
  ast.increment_lineno(tree, lines)
  for n in ast.walk(tree): _shift(n, columns)


class Unbound:
  """A name without a value here, and why."""
  def __init__(self, why: str): self.why = why


class Closure:
  """A function defined inside an application."""
  def __init__(self, code: Code, scope: Scope, defaults: tuple[list[Any], dict[str, Any]]):
    self.code, self.scope, self.defaults = code, scope, defaults


class Scope:
  """The names of one function call: its own, then those around it."""

  def __init__(self, names: dict[str, Any], around: Scope | None, fn: types.FunctionType | None, text: Text, name: str):
    self.names, self.around, self.fn, self.text, self.name = names, around, fn, text, name

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
    near = did_you_mean(name, self.known())
    raise ApplicationError(f"{name!r} is read before it has any value: it is no parameter and nothing here assigns it{near}")

  def known(self) -> list[str]:
    """The names that have values here, Python's own left out."""
    out: list[str] = []
    scope: Scope | None = self
    while scope is not None:
      out += [n for n, x in scope.names.items() if not isinstance(x, Unbound)]
      if scope.around is None and scope.fn is not None: out += [*scope.fn.__code__.co_freevars, *scope.fn.__globals__]
      scope = scope.around
    return out


def assigned(target: ast.expr) -> list[str]: return [n.id for n in ast.walk(target) if isinstance(n, ast.Name)]


def assigned_names(stmts: Sequence[ast.stmt]) -> list[str]:
  """The names that statements assign, nested functions left out."""
  out: dict[str, None] = {}
  stack: list[ast.AST] = list[ast.AST](stmts)[::-1]
  while stack:
    n = stack.pop()
    if isinstance(n, (ast.FunctionDef, ast.Lambda, ast.ListComp, ast.GeneratorExp)): continue
    if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store): out[n.id] = None
    stack.extend(list(ast.iter_child_nodes(n))[::-1])
  return list(out)


def returns(stmts: Sequence[ast.stmt]) -> bool:
  """Whether statements return a value, nested functions left out."""
  stack: list[ast.AST] = list(stmts)
  while stack:
    n = stack.pop()
    if isinstance(n, ast.Return) and n.value is not None: return True
    if not isinstance(n, (ast.FunctionDef, ast.Lambda)): stack.extend(ast.iter_child_nodes(n))
  return False


def read_of(target: ast.expr) -> ast.expr:
  """A target of ``+=`` as the expression that reads it."""
  new = ast.parse(ast.unparse(target), mode="eval").body
  for n in ast.walk(new): ast.copy_location(n, target)
  return new
