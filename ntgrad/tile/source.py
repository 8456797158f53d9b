"""Python source as an application has it: syntax trees with the file's line numbers, scopes, and what statements assign."""
from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
import types
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Sequence

from ntgrad.codegen.errors import ApplicationError


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


def read_of(target: ast.expr) -> ast.expr:
  """A target of ``+=`` as the expression that reads it."""
  new = ast.parse(ast.unparse(target), mode="eval").body
  for n in ast.walk(new): ast.copy_location(n, target)
  return new
