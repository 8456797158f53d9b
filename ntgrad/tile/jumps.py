"""``break`` and ``continue`` of an application's loops, written as conditions: a kernel has loops that run to their end."""
from __future__ import annotations

import ast
from typing import Iterator, TypeVar

from .python_source import Statements

_Loop = ast.For | ast.While
_Node = TypeVar("_Node", bound=ast.AST)


def without_jumps(s: _Loop) -> tuple[_Loop, str | None]:
  """The loop as one that says the same without a ``break`` or ``continue`` of its own, and the name that says whether it has been
  left, which is False before it; None for a loop without ``break``. Rounds behind the one in which it is left do nothing."""
  jumps = list(_jumps(s.body))
  if not jumps: return s, None
  left = f"break in line {s.lineno}" if any(isinstance(j, ast.Break) for j in jumps) else None
  over = f"continue in line {s.lineno}"
  body = _guarded(s.body, left, over)
  if any(isinstance(n, ast.Name) and n.id == over and isinstance(n.ctx, ast.Load) for b in body for n in ast.walk(b)):
    body = [_set(over, False, s.body[0]), *body]
  else: body = _guarded(s.body, left, None)   # nothing asks
  if isinstance(s, ast.For):
    if left is not None: body = [_placed(ast.If(_unless(left), body, []), s.body[0])]
    return _placed(ast.For(s.target, s.iter, body, s.orelse), s), left
  test = s.test if left is None else _placed(ast.BoolOp(ast.And(), [_unless(left), s.test]), s.test)
  return _placed(ast.While(test, body, s.orelse), s), left


def _set(name: str, to: bool, at: ast.AST) -> ast.stmt:
  return _placed(ast.Assign([ast.Name(name, ast.Store())], ast.Constant(to)), at)


def _unless(name: str) -> ast.expr: return ast.UnaryOp(ast.Not(), ast.Name(name, ast.Load()))


def _placed(new: _Node, at: ast.AST) -> _Node:
  """A new node at the place of another one; parts of it that have a place keep theirs."""
  return ast.fix_missing_locations(ast.copy_location(new, at))


def _jumps(stmts: Statements) -> Iterator[ast.Break | ast.Continue]:
  """The jumps among statements that are of the loop around them."""
  for s in stmts:
    if isinstance(s, (ast.Break, ast.Continue)): yield s
    elif isinstance(s, ast.If): yield from _jumps([*s.body, *s.orelse])


def _ends(stmts: Statements) -> bool:
  """Whether statements come to a jump in any case."""
  def end(s: ast.stmt) -> bool: return isinstance(s, ast.If) and _ends(s.body) and _ends(s.orelse)
  return any(isinstance(s, (ast.Break, ast.Continue)) or end(s) for s in stmts)


def _guarded(stmts: Statements, left: str | None, over: str | None) -> list[ast.stmt]:
  """Statements of which those behind a jump stand under a condition; ``over`` says whether a jump has been come to."""
  out: list[ast.stmt] = []
  for i, s in enumerate(stmts):
    rest = stmts[i + 1:]
    if isinstance(s, (ast.Break, ast.Continue)):
      flags = [left] * isinstance(s, ast.Break) + [over]
      return [*out, *[_set(n, True, s) for n in flags if n is not None]] or [_placed(ast.Pass(), s)]
    if not isinstance(s, ast.If) or not any(_jumps([s])):
      out.append(s)
      continue
    body, orelse = s.body, s.orelse
    # what is behind an `if` of which one side always jumps is the other side's
    if _ends(body) and rest: body, orelse, rest = body, [*orelse, *rest], []
    elif _ends(orelse) and rest: body, orelse, rest = [*body, *rest], orelse, []
    out.append(_placed(ast.If(s.test, _guarded(body, left, over), _guarded(orelse, left, over)), s))
    if rest: out.append(_placed(ast.If(_unless(over or ""), _guarded(rest, left, over), []), rest[0]))
    return out
  return out
