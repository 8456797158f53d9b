"""Which line of the user's code made a node of the tensor graph, and within which Module.

An operation notes beside the node of its result the code object that called into ntgrad, the place in it, and the path of the
Module that was being called: no frame, which would keep its locals alive. A node without a note (made within an operation, or by
a rewrite) has the line of the node that reads it.

Two lines that make the same expression make one node, which has the note of the first. What a further line makes is known by who
uses it: its value has that line (``Alias.line``), and what is made of that value notes whose result it reads (``uses``). So

  3  a = x + 1
  5  b = x + 1         # the same node
  6  c = b * 2

names line 3 when ``a`` is computed, line 5 for ``b``, lines 5 and 6 for ``c``.
"""
from __future__ import annotations

import ast
import inspect
import linecache
import os
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from threading import local
from types import CodeType, FrameType
from typing import Any, NamedTuple

from ntgrad.codegen.ir import MOVEMENT, BinaryOps, NodeTable, NtgradError, Ops, Recent, UOp, config

# code, the offset of an instruction in it, the path of a Module; a fourth is there for the gradient of what that has made
Origin = tuple[CodeType, int, str] | tuple[CodeType, int, str, bool]
Made = tuple[tuple[Origin, str], ...]   # what made something, and for each what its node does, where the source does not say it

FILES = 4096          # of which is remembered whether they are ntgrad's
LINES = 4             # that are named of one kernel
MODULES = 2           # that are named of one line
READ_CODE = 1024           # instructions whose source has been read
USES = 8              # lines that read one node, of which is known which other line made what they read
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
if not os.path.isdir(HERE):   # what is kept on disk is known by these files, and workers import them by their folder
  raise ImportError(f"ntgrad lies packed in {HERE[:-1]}, and needs its files in a folder: unpack the archive, or pip install it")
_WORDS = {"mult": "mul", "matmult": "matmul", "usub": "neg", "lt": "less", "gt": "greater", "subscript": "getitem"}
_OPERATIONS = frozenset({"__getitem__", "__setitem__"})   # that have no name of their own to be called by
_SUMS = {BinaryOps.ADD: "sum", BinaryOps.MUL: "prod"}
# what is no work of a kernel by itself
_QUIET = MOVEMENT - {Ops.PAD}
_QUIET |= {Ops.CONST, Ops.BUFFER, Ops.DETACH, Ops.CONTIGUOUS, Ops.CAST, Ops.SLOPED, Ops.IOTA, Ops.AFTER, Ops.ASSIGN}


class Calling(local):
  """The path of the Module that this thread is in. No ContextVar, whose value threads and tasks with a copied context share."""
  path = ""


calling = Calling()
own_lines = set[bool]()   # True, since some value has a line of its own: another had made its node before
uses: NodeTable[dict[Origin, Origin]] = NodeTable()   # what reads a node that several lines made -> which of them it reads
internal: dict[str, bool] = {}   # whether a file is one of ntgrad's


def is_internal(name: str) -> bool:
  """Whether a file is one of ntgrad's."""
  if name not in internal:
    if len(internal) >= FILES: internal.clear()
    internal[name] = name.startswith(HERE)
  return internal[name]


def user_frame(depth: int = 1) -> FrameType:
  """The frame that called into ntgrad."""
  f = sys._getframe(depth)
  while is_internal(f.f_code.co_filename) and f.f_back is not None: f = f.f_back
  return f


def asked_for() -> bool:
  """Whether the user's line itself makes the tensor that is made now: it calls what takes ``requires_grad``."""
  f, entry = sys._getframe(1), sys._getframe(0)
  while is_internal(f.f_code.co_filename) and f.f_back is not None:
    if f.f_code.co_name != "_unwritten": entry = f   # that one calls what has no code yet (``checks.checked``)
    f = f.f_back
  return "requires_grad" in entry.f_code.co_varnames


def frame_line(f: FrameType) -> str:
  """Where a frame is, as ``model.py:31``."""
  return f"{os.path.basename(f.f_code.co_filename)}:{f.f_lineno}"


def called(name: str) -> tuple[str, str]:
  """What the user called and where, for a message about ``name``, which may be a part of that: the layer, or else the function
  or the operation, that the line called (``nn.Embedding``, ``take``, ``getitem``), and the line as ``model.py:31``."""
  f: FrameType | None = sys._getframe(1)
  layer = ""
  while f is not None and is_internal(f.f_code.co_filename):
    what = f.f_code.co_name
    if what in _OPERATIONS: name = what.strip("_")
    elif what == "__call__":
      kind: Any = type(f.f_locals.get("self"))
      if not layer and (room := getattr(kind, "_room", "")):
        layer = f"{room if kind.__module__.startswith('ntgrad.') else ''}{kind.__name__}"
    elif what[0] not in "_<" and "<locals>" not in f.f_code.co_qualname: name = what
    if f.f_back is None: break
    f = f.f_back
  assert f is not None
  return layer or name, frame_line(f)


_told: Recent[Any, bool] = Recent(1024)


def say_once(key: Any, text: str, where: tuple[str, int] | None = None) -> None:
  """A warning at the user's line, or at a file and line, once a process for each ``key``."""
  if key in _told: return
  _told[key] = True
  f = user_frame()
  warnings.warn_explicit(text, UserWarning, *(where or (f.f_code.co_filename, f.f_lineno)))


def origin_now(depth: int = 2) -> Origin | None:
  """The user's line that has called what is ``depth`` calls above; None where no lines are noted."""
  if not config.origins: return None
  f: Any = sys._getframe(depth)
  try:
    while internal[f.f_code.co_filename]: f = f.f_back
  except (KeyError, AttributeError): f = user_frame()   # a file that was not seen before, or the outermost frame
  return f.f_code, f.f_lasti, calling.path


def note_origin(node: UOp) -> UOp:
  """The user's line makes ``node`` now, which is given back."""
  if node.origin is None: node.origin = origin_now(3)
  return node


def note_value(node: UOp, line: Origin, value: Any, operands: Iterable[Any] = ()) -> None:
  """``line`` makes a value (an Alias) whose node is ``node``, of tensors. Of numbers alone, and of memory, nobody asks who
  did."""
  if node.origin is None: node.origin = line
  elif node.origin != line and node.op is not Ops.BUFFER and node.device is not None:
    value.line = line
    own_lines.add(True)
  if not own_lines: return
  for a in operands:
    if (made := (of := a._alias).line) is None: continue
    if (known := uses.get(of.node)) is None: uses.put(of.node, known := {})
    if len(known) < USES: known[line] = made


def lines_asked(asked: Mapping[UOp, Sequence[Any]]) -> dict[UOp, list[Origin]]:
  """Of nodes that are computed for values (Aliases) the lines of these, where they are not those that made the nodes first, and
  where the nodes have none: a value may be a reshape of what is computed."""
  return {u: [line for a in values if (line := a.line or a.node.origin) is not None] for u, values in asked.items()
          if values and (u.origin is None or any([a.line for a in values]))}


def gradient_of(made: Origin) -> Origin:
  """The note of a gradient of what was ``made`` there."""
  return *made[:3], True


def carry(old: UOp, new: UOp) -> None:
  """``new`` stands for ``old``, in another graph."""
  if new.origin is not None: return
  new.origin = old.origin
  if uses and (known := uses.get(old)) is not None: uses.put(new, known)


def of(order: Sequence[UOp], asked: Mapping[UOp, Iterable[Origin]] | None = None) -> dict[UOp, dict[Origin, None]]:
  """Which lines made the nodes of a graph (sources first), as it uses them; of those without a note the lines of what reads them.
  ``asked``: the lines of nodes whose values are asked for, where these are not the first that made them."""
  found = {u: dict.fromkeys(lines) for u, lines in (asked or {}).items()}
  if not config.origins: return {}
  for u in reversed(order):
    if (mine := found.get(u)) is None:
      if u.origin is None: continue
      mine = found[u] = {u.origin: None}
    for s in u.src:
      if s.origin is None:
        found.setdefault(s, mine)
        continue
      into, known = found.setdefault(s, {}), uses.get(s) if uses.known else None
      for line in mine:   # what the line made that is another's here, is that other's too
        same = line is not u.origin and s.origin == u.origin
        into[known[line] if known and line in known else line if same else s.origin] = None
  return found


def worth_naming(nodes: Iterable[UOp]) -> list[UOp]:
  """Those that compute something; where none does, all that are made of others."""
  nodes = list(nodes)
  return [u for u in nodes if u.op not in _QUIET] or [u for u in nodes if u.src] or nodes


def lines_that_made(nodes: Iterable[UOp], origins: Mapping[UOp, Iterable[Origin]]) -> Made:
  """What made nodes."""
  return tuple(dict.fromkeys([(origin, _name(u)) for u in nodes for origin in origins.get(u, ())]))


def lines(nodes: Iterable[UOp], origins: Mapping[UOp, Iterable[Origin]]) -> str:
  """``text_of_lines`` of what made nodes."""
  return text_of_lines(lines_that_made(nodes, origins))


def text_of_lines(made: Made) -> str:
  """The user's lines, with the operations there and the Modules: ``model.py:31 conv2d, relu in layers.3 · model.py:33 sum``. ""
  for none."""
  found: dict[tuple[str, int], tuple[dict[str, None], dict[str, None]]] = {}
  for (code, at, path, *gradient), otherwise in made:
    place, name = _read(code, at)
    names, modules = found.setdefault((code.co_filename, place), ({}, {}))
    names[f"{'gradient of ' if gradient else ''}{name or otherwise}"] = None
    if path: modules[path] = None
  texts = [f"{os.path.basename(file)}:{line} {', '.join(names)}{_within([*modules])}"
           for (file, line), (names, modules) in found.items()]
  if len(texts) > LINES + 1: texts[LINES:] = [f"and {len(texts) - LINES} more lines"]
  return " · ".join(texts)


def _within(modules: list[str]) -> str:
  """Paths of Modules behind the line that they call: `` in layers.0, layers.1 and 4 more``."""
  if not modules: return ""
  return f" in {', '.join(modules[:MODULES])}{f' and {len(modules) - MODULES} more' * (len(modules) > MODULES)}"


def lines_of(parts: Sequence[Iterable[UOp]], order: Sequence[UOp],
             asked: Mapping[UOp, Iterable[Origin]] | None = None) -> list[str]:
  """``lines`` of several parts of a graph in ``order``; ``asked``: see ``of``."""
  origins = of(order, asked)
  return [lines(nodes, origins) for nodes in parts]


def blame(error: Exception, nodes: Iterable[UOp], order: Sequence[UOp],
          asked: Mapping[UOp, Iterable[Origin]] | None = None) -> None:
  """Say in an error's message which lines made the nodes that it is about, of a graph in ``order``, where none has."""
  if _may_say(error) and (text := lines(nodes, of(order, asked))): _say(error, f"computing what was made at {text}")


def blame_caller(error: Exception, what: str) -> None:
  """Say in an error's message which line of the user's called ``what`` (a replay, which goes through no graph; a wait for the
  device), where no line has been named."""
  if config.origins and _may_say(error): _say(error, f"{what} at {frame_line(user_frame())}")


def _may_say(error: Exception) -> bool: return isinstance(error, NtgradError) and "blamed" not in error.__dict__


def _say(error: Exception, line: str) -> None:
  """A further line of an error's message; no other is added to it."""
  error.__dict__["blamed"] = True
  error.args = f"{error}\n{line}", *error.args[1:]


def place_of(origin: Origin) -> tuple[tuple[str, int], str]:
  """The file and the line of an origin, and what is called there, as ``_read`` says it."""
  line, operation = _read(*origin[:2])
  return (origin[0].co_filename, line), operation


@lru_cache(maxsize=READ_CODE)
def _read(code: CodeType, at: int) -> tuple[int, str]:
  """The line of an instruction, and the operation that is called there, as the source has it: ``relu`` of ``self.c(x).relu()``;
  "" where there is no source."""
  first, last, begin, end = next(islice(code.co_positions(), at // 2, None), (None,) * 4)
  line = first or code.co_firstlineno
  if first is None or last is None or begin is None or end is None: return line, ""
  texts = [linecache.getline(code.co_filename, n).encode() for n in range(first, last + 1)]
  if not all(texts): return line, ""
  texts[-1] = texts[-1][:end]
  texts[0] = texts[0][begin:]
  try: tree = ast.parse(b"".join(texts).decode().strip()).body[0]
  except (SyntaxError, ValueError, IndexError): return line, ""
  what: ast.AST = tree.value if isinstance(tree, ast.Expr) else tree
  if isinstance(what, ast.Call):
    fn = what.func
    if isinstance(fn, ast.Attribute):   # the line of the method, in a chain over several lines
      return first + (fn.end_lineno or 1) - 1, fn.attr
    return line, fn.id if isinstance(fn, ast.Name) else ""
  op: ast.AST = what.ops[0] if isinstance(what, ast.Compare) else getattr(what, "op", what)
  word = type(op).__name__.lower()
  return line, _WORDS.get(word, word)


def _name(u: UOp) -> str:
  """A node's own operation, where the source does not say what the user called."""
  while u.op in _QUIET and u.src: u = u.src[0]
  if u.op is Ops.ALU: return str(u.arg.name).lower()
  return _SUMS.get(u.arg[0], u.arg[0].name.lower()) if u.op is Ops.REDUCE_AXIS else u.op.name.lower()


# ---- lines that errors name: where a tensor of a kernel was declared, where a meta-operation was done to it

class Line(NamedTuple):
  """A line of the user's code, and the function that it is in."""
  file: str
  number: int
  function: str

  @property
  def short(self) -> str:
    """Its file's name and number."""
    return f"{os.path.basename(self.file)}:{self.number}"

  def __str__(self) -> str:
    text = linecache.getline(self.file, self.number).strip()
    return f"{self.file}:{self.number}, in {self.function}" + (f"\n    {text}" if text else "")


def pointed(file: str, number: int, function: str, text: str, begin: int, end: int) -> str:
  """A line as errors show it, with carets under some of its columns."""
  lead = len(text) - len(text.lstrip())
  return f"{file}:{number}, in {function}\n    {text.strip()}\n    {' ' * max(begin - lead, 0)}{'^' * max(end - begin, 1)}"


def here() -> Line:
  """The line that called into ntgrad; of an annotation that is text, that of the function which has it."""
  f = user_frame(2)
  while f.f_back is not None and f.f_code.co_filename == "<string>" and f.f_back.f_code.co_filename == inspect.__file__:
    f = f.f_back
    while f.f_back is not None and (f.f_code.co_filename == inspect.__file__ or is_internal(f.f_code.co_filename)): f = f.f_back
  return Line(f.f_code.co_filename, f.f_lineno, f.f_code.co_name)


def at_lines(*lines: Line | None) -> str:
  """What an error says below its message: each line once."""
  return "".join(f"\n  {line}" for line in dict.fromkeys(lines) if line is not None)
