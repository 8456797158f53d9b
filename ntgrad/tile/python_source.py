"""Python source as an application has it: the text that a function was written in (a file's, a notebook cell's, or what was typed
or given to Python, where it compiles to the very function), syntax trees with its line numbers, scopes, what is assigned."""
from __future__ import annotations
import __future__

import ast
import builtins
import codeop
import dis
import inspect
import itertools
import linecache
import os
import re
import stat
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from types import CellType, CodeType, FunctionType
from typing import Any, Iterator, NamedTuple, Sequence

from ntgrad.codegen.ir import ApplicationError, did_you_mean

Statements = Sequence[ast.stmt]
NamedValues = dict[str, Any]
_FUTURES = sum({getattr(__future__, name).compiler_flag for name in __future__.all_feature_names})
_LINES = 5000        # of a prompt's history, that are looked through
_PLACES = 50         # among them where a function of the name is made
_STATEMENT = 200     # lines of a statement at a prompt
_BYTES = 1 << 24     # of a file that is standard input


class _Text(NamedTuple):
  """Where code stands: the name of a file, and its lines, as the code's line numbers count them."""
  file: str
  lines: Sequence[str] = ()

  def line(self, n: int) -> str: return self.lines[n - 1].rstrip() if 0 < n <= len(self.lines) else ""


def _text_of(fn: FunctionType) -> _Text:
  """The text that a function was written in. Raises ApplicationError where nobody has it."""
  code, file = fn.__code__, fn.__code__.co_filename
  linecache.checkcache(file)
  lines = linecache.getlines(file)   # of a file, or a cell of a notebook
  if lines and stands(code, lines): return _Text(file, lines)
  for candidate in _candidates(fn):
    if _said(code) in map(_said, _compiled(candidate, code)): return _Text(file, candidate.splitlines(True))
  what = "a lambda" if code.co_name == "<lambda>" else fn.__qualname__
  if os.path.exists(file):
    raise ApplicationError(f"{what}: it does not stand in line {code.co_firstlineno} of {file}; was the file changed after it "
                           "was imported, or the function made by exec under that file's name?")
  raise ApplicationError(
    f"{what}: its source is not known ({file}). The tile language reads functions from their source, and Python keeps none of "
    "what exec or a pipe gave it; write the function in a file or a notebook cell")


def stands(code: CodeType, lines: Sequence[str]) -> bool:
  """Whether a function of this name begins where its code says."""
  line = _Text("", lines).line(code.co_firstlineno)
  return line.lstrip().startswith("@") or re.search(_made(code.co_name), line) is not None


def _made(name: str) -> str: return r"\blambda\b" if name == "<lambda>" else rf"\bdef\s+{re.escape(name)}\b"


def line_of(code: CodeType, n: int) -> str:
  """A line near some code; "" where nobody has it."""
  if line := linecache.getline(code.co_filename, n): return line.rstrip()
  try: return _text_of(FunctionType(code, {}, closure=tuple(CellType() for _ in code.co_freevars))).line(n)
  except ApplicationError: return ""


def source_of(fn: FunctionType) -> str:
  """The lines of a function, its decorators too, as they stand. Raises ApplicationError where nobody has them."""
  return "".join(_lines_of(fn := inspect.unwrap(fn), _text_of(fn)))


def _lines_of(fn: FunctionType, text: _Text) -> list[str]:
  return inspect.getblock(list(text.lines[max(fn.__code__.co_firstlineno, 1) - 1:]))


def _candidates(fn: FunctionType) -> Iterator[str]:
  """Texts that may have made a function."""
  try: yield "".join(inspect.findsource(fn)[0])   # of a module in an archive; typed, from Python 3.13 on
  except (OSError, TypeError): pass
  if not fn.__code__.co_filename.startswith("<"): return
  for word in sys.orig_argv[1:]:   # python -c
    yield word
    if word.startswith("-"): yield word.partition("c")[2]
  if found := standard_input(): yield found
  yield from typed(fn.__code__)


def standard_input() -> str:
  """What a file has that is standard input; "" where it is none."""
  try:
    info = os.fstat(0)
    return "" if not stat.S_ISREG(info.st_mode) or info.st_size > _BYTES else os.pread(0, info.st_size, 0).decode()
  except (OSError, ValueError, AttributeError): return ""   # closed; no text; a system without pread


def typed(code: CodeType) -> Iterator[str]:
  """The statements of a prompt that a function may stand in, the last ones first. Empty lines are in no history."""
  if (readline := sys.modules.get("readline")) is None: return
  n = readline.get_current_history_length()
  lines = [readline.get_history_item(i) or "" for i in range(max(n - _LINES, 0) + 1, n + 1)]
  name = _made(code.co_name)
  for at in itertools.islice((i for i in reversed(range(len(lines))) if re.search(name, lines[i])), _PLACES):
    for first in range(at, max(at - _STATEMENT, -1), -1):
      if lines[first][:1] in ("", " ", "\t", ")", "]", "}"): continue   # within a statement
      yield from statements(lines[first:first + _STATEMENT], at - first)


def statements(lines: Sequence[str], at: int) -> Iterator[str]:
  """The statements that begin with the first line and have that of number ``at``."""
  for end in range(at + 1, len(lines) + 1):
    if end < len(lines) and lines[end][:1] in (" ", "\t"): continue   # the next line goes on with a block
    text = "\n".join(lines[:end]) + "\n"
    try: whole = codeop.compile_command(text + "\n", symbol="single") is not None
    except (SyntaxError, ValueError, OverflowError): return
    if whole: yield text


def _compiled(text: str, code: CodeType) -> Iterator[CodeType]:
  """The code in a text of all functions with the name of ``code``."""
  try: stack = [compile(text, code.co_filename, "exec", code.co_flags & _FUTURES, dont_inherit=True)]
  except (SyntaxError, ValueError, OverflowError): return
  while stack:
    c = stack.pop()
    if c.co_name == code.co_name: yield c
    stack += [x for x in c.co_consts if isinstance(x, CodeType)]


def _said(c: CodeType) -> tuple[Any, ...]:
  """What two codes have in common that have the same instructions, at the same places."""
  consts = [_said(x) if isinstance(x, CodeType) else repr(x) for x in c.co_consts]
  return (c.co_qualname, c.co_firstlineno, c.co_code, consts, c.co_names, c.co_varnames, c.co_freevars, c.co_cellvars,
          list(c.co_positions()))


# ---- syntax trees, and scopes
@dataclass(frozen=True)
class Code:
  """A Python function's source as a syntax tree, its line numbers those of the text that it stands in."""
  tree: ast.FunctionDef | ast.Lambda
  text: _Text


@lru_cache(maxsize=1024)
def code_of(fn: FunctionType) -> Code:
  """The source of a function. Raises ApplicationError where Python does not know it."""
  fn = inspect.unwrap(fn)
  text = _text_of(fn)
  if fn.__code__.co_name == "<lambda>": return Code(_lambda(fn, text), text)
  lines = _lines_of(fn, text)
  indented = lines[0][:1].isspace()   # it may stand in an `if`: lines and columns are as in the file, for messages
  tree = ast.parse("if 1:\n" * indented + "".join(lines))
  ast.increment_lineno(tree, max(fn.__code__.co_firstlineno, 1) - 1 - indented)
  return Code(next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)), text)


def _lambda(fn: FunctionType, text: _Text) -> ast.Lambda:
  """A lambda from the places that its instructions have: it may stand anywhere in a statement."""
  code = fn.__code__
  quiet = {"RESUME", "COPY_FREE_VARS", "MAKE_CELL", "RETURN_VALUE"}
  found = [i.positions for i in dis.get_instructions(code) if i.opname not in quiet]
  places = [p for p in found if p is not None and p.col_offset is not None]
  begin = min((p.lineno or 0, p.col_offset or 0) for p in places)
  end = max((p.end_lineno or 0, p.end_col_offset or 0) for p in places)
  lines = [line.encode() for line in text.lines[begin[0] - 1:end[0]]]
  lines[-1] = lines[-1][:end[1]]
  lines[0] = lines[0][begin[1]:]
  body = ast.parse("(\n" + " " * begin[1] + b"".join(lines).decode() + ")", mode="eval").body
  ast.increment_lineno(body, begin[0] - 2)
  tree = ast.parse(f"lambda {', '.join(inspect.signature(fn).parameters)}: 0", mode="eval").body
  assert isinstance(tree, ast.Lambda)
  tree.body = body
  return tree


def of_language(fn: Any) -> bool:
  """Whether a function belongs to the language: it is called, not read."""
  return str(getattr(fn, "__module__", "")).partition(".")[0] == "ntgrad"


@dataclass(eq=False)
class Unbound:
  """A name without a value here, and why."""
  why: str


@dataclass(eq=False, repr=False)
class Closure:
  """A function defined inside an application."""
  code: Code
  scope: Scope
  defaults: tuple[list[Any], NamedValues]

  def __repr__(self) -> str: return f"{getattr(self.code.tree, 'name', 'lambda')}()"


@dataclass(eq=False)
class Scope:
  """The names of one function call: its own, then those around it."""
  names: NamedValues
  around: Scope | None
  fn: FunctionType | None
  text: _Text
  name: str

  def find(self, name: str) -> Any:
    if name in self.names:
      found = self.names[name]
      if isinstance(found, Unbound): raise ApplicationError(f"{name!r} has no value here: {found.why}")
      return found
    if self.around is not None: return self.around.find(name)
    if (fn := self.fn) is not None:
      cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or ()))
      with suppress(KeyError, ValueError): return cells[name].cell_contents   # there may be none, or it is empty
      if name in fn.__globals__: return fn.__globals__[name]
    if hasattr(builtins, name): return getattr(builtins, name)
    known = [n for n, x in self.names.items() if not isinstance(x, Unbound)]   # Python's own names left out
    if fn is not None: known += [*fn.__code__.co_freevars, *fn.__globals__]
    near = did_you_mean(name, known)
    raise ApplicationError(f"{name!r} is read before it has any value: it is no parameter and nothing here assigns it{near}")


def assigned(target: ast.expr) -> list[str]: return [n.id for n in ast.walk(target) if isinstance(n, ast.Name)]


def _own_nodes(stmts: Statements) -> Iterator[ast.AST]:
  """The nodes of statements in the order of their text, nested functions left out."""
  stack: list[ast.AST] = list[ast.AST](stmts)[::-1]
  while stack:
    n = stack.pop()
    if isinstance(n, (ast.FunctionDef, ast.Lambda, ast.ListComp, ast.GeneratorExp)): continue
    yield n
    stack.extend(list(ast.iter_child_nodes(n))[::-1])


def assigned_names(stmts: Statements) -> list[str]:
  """The names that statements assign, nested functions left out."""
  return list(dict.fromkeys(n.id for n in _own_nodes(stmts) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)))


def changed_parts(stmts: Statements) -> list[str]:
  """The names of which statements assign parts, as ``b[i] = v`` does."""
  out = []
  for n in _own_nodes(stmts):
    if not isinstance(n, ast.Subscript) or not isinstance(n.ctx, ast.Store): continue
    x: ast.expr = n
    while isinstance(x, ast.Subscript): x = x.value
    if isinstance(x, ast.Name): out.append(x.id)
  return out


_PLACES_OF = {"source", "data_ptr", "stride"}   # what a parameter without tiles is asked for


def only_places(fn: FunctionType) -> set[str]:
  """The parameters of an application of which it uses the whole tensor only: ``x.source``, ``x.data_ptr()``. None where nobody
  has its source."""
  try: tree = code_of(fn).tree
  except ApplicationError: return set()
  names = [n for n in ast.walk(tree) if isinstance(n, ast.Name)]
  whole = {n.value for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr in _PLACES_OF}
  found = {n.id for n in names if n in whole} - {n.id for n in names if n not in whole}
  return found.intersection(inspect.signature(fn).parameters)


def returns(stmts: Statements) -> bool:
  """Whether statements return a value, nested functions left out."""
  return any(isinstance(n, ast.Return) and n.value is not None for n in _own_nodes(stmts))


def read_of(target: ast.expr) -> ast.expr:
  """A target of ``+=`` as the expression that reads it."""
  new = ast.parse(ast.unparse(target), mode="eval").body
  for n in ast.walk(new): ast.copy_location(n, target)
  return new
