"""The text that a function was written in: a file's, a notebook cell's, or what was typed where Python keeps no text.

What comes of ``python -c``, of a file as standard input and of a prompt is found again in the command line, the input and the
history of lines; it is taken where it compiles to the very function.
"""
from __future__ import annotations
import __future__

import codeop
import inspect
import itertools
import linecache
import os
import re
import stat
import sys
import types
from typing import Any, Iterator, NamedTuple, Sequence

from ntgrad.codegen.errors import ApplicationError

_FUTURES = sum({getattr(__future__, name).compiler_flag for name in __future__.all_feature_names})
_LINES = 5000        # of a prompt's history, that are looked through
_PLACES = 50         # among them where a function of the name is made
_STATEMENT = 200     # lines of a statement at a prompt
_BYTES = 1 << 24     # of a file that is standard input


class Text(NamedTuple):
  """Where code stands: the name of a file, and its lines, as the code's line numbers count them."""
  file: str
  lines: Sequence[str] = ()

  def line(self, n: int) -> str: return self.lines[n - 1].rstrip() if 0 < n <= len(self.lines) else ""


def text_of(fn: types.FunctionType) -> Text:
  """The text that a function was written in. Raises ApplicationError where nobody has it."""
  code, file = fn.__code__, fn.__code__.co_filename
  linecache.checkcache(file)
  lines = linecache.getlines(file)   # of a file, or a cell of a notebook
  if lines and stands(code, lines): return Text(file, lines)
  for candidate in candidates(fn):
    if any(same(code, c) for c in compiled(candidate, code)): return Text(file, candidate.splitlines(True))
  what = "a lambda" if code.co_name == "<lambda>" else fn.__qualname__
  if os.path.exists(file):
    raise ApplicationError(f"{what}: it does not stand in line {code.co_firstlineno} of {file}; was the file changed after it "
                           "was imported, or the function made by exec under that file's name?")
  raise ApplicationError(
    f"{what}: its source is not known ({file}). The tile language reads functions from their source, and Python keeps none of "
    "what exec or a pipe gave it; write the function in a file or a notebook cell")


def stands(code: types.CodeType, lines: Sequence[str]) -> bool:
  """Whether a function of this name begins where its code says."""
  line = Text("", lines).line(code.co_firstlineno)
  return line.lstrip().startswith("@") or re.search(_made(code.co_name), line) is not None


def _made(name: str) -> str: return r"\blambda\b" if name == "<lambda>" else rf"\bdef\s+{re.escape(name)}\b"


def line_of(code: types.CodeType, n: int) -> str:
  """A line near some code; "" where nobody has it."""
  if (line := linecache.getline(code.co_filename, n)): return line.rstrip()
  try: return text_of(types.FunctionType(code, {}, closure=tuple(types.CellType() for _ in code.co_freevars))).line(n)
  except ApplicationError: return ""


def source_of(fn: types.FunctionType) -> str:
  """The lines of a function, its decorators too, as they stand. Raises ApplicationError
  where nobody has them."""
  fn = inspect.unwrap(fn)
  text, first = text_of(fn), fn.__code__.co_firstlineno
  return "".join(inspect.getblock(list(text.lines[first - 1:])))


def candidates(fn: types.FunctionType) -> Iterator[str]:
  """Texts that may have made a function."""
  try: yield "".join(inspect.findsource(fn)[0])   # of a module in an archive; typed, from Python 3.13 on
  except (OSError, TypeError): pass
  if not fn.__code__.co_filename.startswith("<"): return
  for word in sys.orig_argv[1:]:   # python -c
    yield word
    if word.startswith("-"): yield word.partition("c")[2]
  if (found := standard_input()): yield found
  yield from typed(fn.__code__)


def standard_input() -> str:
  """What a file has that is standard input; "" where it is none."""
  try:
    info = os.fstat(0)
    if not stat.S_ISREG(info.st_mode) or info.st_size > _BYTES: return ""
    return os.pread(0, info.st_size, 0).decode()
  except (OSError, ValueError, AttributeError): return ""   # closed; no text; a system without pread


def typed(code: types.CodeType) -> Iterator[str]:
  """The statements of a prompt that a function may stand in, the last ones first. Empty lines are in no history."""
  if (readline := sys.modules.get("readline")) is None: return
  n = readline.get_current_history_length()
  lines = [readline.get_history_item(i) or "" for i in range(max(n - _LINES, 0) + 1, n + 1)]
  name = _made(code.co_name)
  places = (i for i in reversed(range(len(lines))) if re.search(name, lines[i]))
  for at in itertools.islice(places, _PLACES):
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


def compiled(text: str, code: types.CodeType) -> Iterator[types.CodeType]:
  """The code in a text of all functions with the name of ``code``."""
  try: stack = [compile(text, code.co_filename, "exec", code.co_flags & _FUTURES, dont_inherit=True)]
  except (SyntaxError, ValueError, OverflowError): return
  while stack:
    c = stack.pop()
    if c.co_name == code.co_name: yield c
    stack += [x for x in c.co_consts if isinstance(x, types.CodeType)]


def same(a: types.CodeType, b: types.CodeType) -> bool:
  """Whether two functions have the same instructions, at the same places."""
  pairs = [(a, b)]
  while pairs:
    a, b = pairs.pop()
    if _said(a) != _said(b): return False
    pairs += [(x, y) for x, y in zip(a.co_consts, b.co_consts) if isinstance(x, types.CodeType)]
  return True


def _said(c: types.CodeType) -> tuple[Any, ...]:
  """What two codes that are the same have in common, without the functions in them."""
  consts = [isinstance(x, types.CodeType) or repr(x) for x in c.co_consts]
  return (c.co_qualname, c.co_firstlineno, c.co_code, consts, c.co_names, c.co_varnames, c.co_freevars, c.co_cellvars,
          list(c.co_positions()))
