"""A kernel's index form as text: axes, parameters, and what is stored, as a person would write it."""
from __future__ import annotations

import itertools
from typing import Any, Callable, Iterator, Sequence

from . import index as ix
from .dtype import DType, dtypes, number_text
from .kernel import EFFECTS, Kernel, inner, is_variable
from .parts import Mark, Parts
from .uop import BinaryOps, Ops, TernaryOps, UnaryOps, UOp, UOpList, toposort

_INFIX: dict[Any, tuple[str, int]] = {  # sign, how strongly it binds
  BinaryOps.MUL: ("*", 9), BinaryOps.DIV: ("/", 9), BinaryOps.IDIV: ("//", 9), BinaryOps.MOD: ("%", 9),
  BinaryOps.ADD: ("+", 8), BinaryOps.SUB: ("-", 8), BinaryOps.SHL: ("<<", 7), BinaryOps.SHR: (">>", 7),
  BinaryOps.AND: ("&", 6), BinaryOps.XOR: ("^", 5), BinaryOps.OR: ("|", 4),
  BinaryOps.CMPLT: ("<", 3), BinaryOps.CMPLE: ("<=", 3), BinaryOps.CMPEQ: ("==", 3), BinaryOps.CMPNE: ("!=", 3)}
_REDUCE = {BinaryOps.ADD: "sum", BinaryOps.MUL: "prod", BinaryOps.AND: "all", BinaryOps.OR: "any"}
_CALL, _UNARY, _IF = 10, 9, 1
LONGEST = 400   # characters: a longer part of an expression has a line of its own


def dtype_name(d: DType) -> str:
  """``float``, ``int``, ``half``: the dtype without its ``dtypes.``"""
  return str(d).removeprefix("dtypes.")


class Printer:
  """Expressions as text. ``named`` writes a text down on a line of its own and gives it a name: what is long has one."""

  def __init__(self, named: Callable[[str], str] | None = None):
    self.named = named
    self.known: dict[UOp, tuple[str, int]] = {}   # the text of each node so far, and how strongly it binds

  def text(self, u: UOp, least: int = 0) -> str:
    """``u``, in brackets where it binds more loosely than ``least``."""
    stack = [u] if u not in self.known else []
    while stack:   # operands first: expressions are deeper than Python's stack
      n = stack[-1]
      missing = [s for s in _operands(n) if s not in self.known] if n not in self.known else []
      stack.extend(missing[::-1])
      if missing: continue
      stack.pop()
      if n in self.known: continue
      self.known[n] = self._text(n)
      if len(self.known[n][0]) > LONGEST: self.name(n)
    out, strength = self.known[u]
    return f"({out})" if strength < least else out

  def name(self, u: UOp) -> None:
    """From here on ``u`` stands under a name."""
    if self.named is not None: self.known[u] = (self.named(self.text(u)), _CALL)

  def _text(self, u: UOp) -> tuple[str, int]:
    fn, src = u.arg, u.src
    if u.op is Ops.CONST: return (number(u), _CALL if u.arg >= 0 else _UNARY)
    if u.op is Ops.SPECIAL: return (f"a{fn[1]}" if fn[0] == "for" else f"{fn[0]}idx{fn[1]}", _CALL)
    if u.op is Ops.RANGE: return (f"a{fn[0]}", _CALL)
    if u.op is Ops.LOAD: return (self.place(src[0], src[1], src[2] if len(src) > 2 else None), _CALL)
    if u.op is Ops.REDUCE:
      name = _REDUCE.get(fn[0], fn[0].name.lower())
      return (f"{name}[{', '.join(f'a{i}' for i in fn[1])}]({self.text(src[0])})", _CALL)
    if u.op is Ops.SCAN:
      return (
        f"scan[{_REDUCE.get(fn[0], fn[0].name.lower())}, a{fn[1]}{', reverse' if fn[2] else ''}]({self.text(src[0])})",
        _CALL,
      )
    if u.op is Ops.SORT: return (f"sort[a{fn[0]}{', descending' if fn[1] else ''}]({self.text(src[0])})", _CALL)
    if u.op is Ops.CACHE_READ: return (f"cache_read[{', '.join(f'a{i}' for i in fn)}]({self.text(src[0])})", _CALL)
    if u.op in (Ops.CAST, Ops.BITCAST):
      if u.dtype is dtypes.index: return (self.text(src[0], _CALL), _CALL)
      to = dtype_name(u.dtype)
      return (f"{to}({self.text(src[0])})" if u.op is Ops.CAST else f"bitcast[{to}]({self.text(src[0])})", _CALL)
    if u.op is not Ops.ALU: return (f"{u.op.name}({', '.join(map(self.text, src))})", _CALL)
    if fn is TernaryOps.WHERE:
      return (f"{self.text(src[1], _IF + 1)} if {self.text(src[0], _IF + 1)} else {self.text(src[2], _IF)}", _IF)
    if fn is UnaryOps.NEG: return (f"-{self.text(src[0], _UNARY + 1)}", _UNARY)
    if fn is UnaryOps.NOT: return (f"~{self.text(src[0], _UNARY + 1)}", _UNARY)
    if fn in _INFIX:
      sign, strength = _INFIX[fn]
      left, right = src
      if fn is BinaryOps.ADD and u.dtype is dtypes.index:
        # c*(-1) + d and a + -1 read better as differences
        if right.op is Ops.CONST and right.arg < 0: return (f"{self.text(left, strength)} - {-right.arg}", strength)
        if _negative(left) and right.op is Ops.CONST and not _negative(right):
          return (f"{self.text(right)} - {self.text(_negated(left), strength + 1)}", strength)
        if _negative(right): return (f"{self.text(left, strength)} - {self.text(_negated(right), strength + 1)}", strength)
      return (f"{self.text(left, strength)} {sign} {self.text(right, strength + 1)}", strength)
    return (f"{fn.name.lower()}({', '.join(map(self.text, src))})", _CALL)

  def place(self, buffer: UOp, index: UOp, gate: UOp | None) -> str:
    """``data1[a0, a1 if a1 < 3]``: an element, and the condition under which it is touched."""
    at = ", ".join(self.text(i) for i in index.src)
    if buffer.op is Ops.DEFINE_LOCAL and not at and gate is None: return str(buffer.arg[0])
    name = buffer.arg[0] if buffer.op is Ops.DEFINE_LOCAL else buffer.arg[1]
    return f"{name}[{at}{'' if gate is None else ' if ' + self.condition(gate)}]"

  def condition(self, gate: UOp) -> str:
    """A condition, its parts joined by ``and``."""
    return " and ".join(self.text(c, _INFIX[BinaryOps.CMPLT][1]) for c in ix.conjuncts(gate)) or "True"


def _operands(u: UOp) -> Sequence[UOp]:
  """The nodes that the text of a node is made of."""
  if u.op in (Ops.CONST, Ops.RANGE): return ()
  if u.op is Ops.LOAD: return (*u.src[1].src, *ix.conjuncts(u.src[2] if len(u.src) > 2 else None))
  return u.src[:1] if u.op is Ops.CACHE_READ else u.src


def _negative(u: UOp) -> bool: return u.op is Ops.ALU and u.arg is BinaryOps.MUL and u.src[1].op is Ops.CONST and u.src[1].arg < 0


def _negated(u: UOp) -> UOp:
  return ix.mul(u, -1)


def number(u: UOp) -> str:
  """A constant, as short as it can be told."""
  text = number_text(u.arg, u.dtype)
  if not isinstance(u.arg, float): return text
  return text.removesuffix("0") if text.endswith(".0") else text if any(c in text for c in ".einf") else text + "."


def index_form(kernel: Kernel) -> str:
  """The kernel on one screen: an ``axes`` line, one a parameter, values that are used more than once, and the stores.

      axes   a0:8 GRID, a1:16 LOOP
      data0  (8, 16) float, written
      data1  (8, 16) float
      v0 = max[a1](data1[a0, a1])
      store data0[a0, a1] = exp(data1[a0, a1] - v0)

  Where statements have an order: a line a variable, ``for a3 in 0..8:``, ``while …:``, ``if …:`` and ``else:`` with what they
  have beneath them, ``acc[a1, a2] = …``.
  """
  lines = ["axes   " + (", ".join(map(str, kernel.axes)) or "none")]
  marked = {u.src[0].arg[0] for u in kernel.nodes if u.arg == "tma" and u.op in (Ops.LOAD, Ops.STORE)}
  lines += [
    f"data{p.slot:<3d}{p.shape} "
    f"{dtype_name(p.dtype)}{', written' if p.written else ''}{', by descriptor' if p.slot in marked else ''}"
    for p in kernel.params
  ]
  lines += [f"{v.arg[0]:<7s}{v.arg[1]} {dtype_name(v.dtype)}, variable" for v in kernel.variables]
  return "\n".join(lines + body_lines(kernel))


def form_text(program: Any) -> str:
  """A program in any form of the pipeline, as ``SHOW`` prints it: a kernel, its parts (with the Opts of each), or a list of
  UOps."""
  if isinstance(program, Kernel): return index_form(program)
  if not isinstance(program, Parts): return str(program)
  lines: list[str] = []
  margin = ""
  for item in program.items:
    if isinstance(item, Mark):
      if item.op in (Ops.ELSE, Ops.ENDIF, Ops.ENDLOOP, Ops.ENDWHILE): margin = margin[2:]
      lines.append(" ".join([margin + str(item), *(Printer().text(v.kernel.body[0]) for v in item.values)]))
      if item.op in (Ops.ELSE, Ops.IF, Ops.LOOP, Ops.WHILE): margin += "  "
    else:
      kernel = item.kernel
      about = ", ".join(map(str, kernel.axes)) + (f"; opts {', '.join(map(str, kernel.applied))}" if kernel.applied else "")
      body = UOpList(toposort(item.roots)).lines() if item.roots else body_lines(kernel)
      lines += [margin + line for line in (*([f"# {about}"] if about else []), *body)]
  return "\n".join(lines)


def body_lines(kernel: Kernel) -> list[str]:
  """The body: ``v0 = …`` for what is used more than once or is long, then a line a STORE."""
  if not kernel.plain: return _statement_lines(kernel)
  lines: list[str] = []
  uses = _uses(kernel.nodes)
  printer = Printer(_names(lines, "", (f"v{n}" for n in itertools.count())))
  for u in kernel.nodes:
    if u.op is Ops.STORE: lines.append(_effect(printer, u))
    elif uses.get(u, 0) > 1 and _worth_a_name(u): printer.name(u)
  return lines


def _statement_lines(kernel: Kernel) -> list[str]:
  """Statements, indented; what one uses more than once, or is long, stands before it under a name."""
  lines: list[str] = []
  names = (f"x{n}" for n in itertools.count())
  stack: list[tuple[UOp | str, str]] = [(s, "") for s in reversed(kernel.body)]
  while stack:
    s, margin = stack.pop()
    if isinstance(s, str):
      lines.append(margin + s)
      continue
    nodes = toposort(s.src if s.op in EFFECTS else s.src[:1])
    uses = _uses(nodes)
    printer = Printer(_names(lines, margin, names))
    for u in nodes:
      if uses.get(u, 0) > 1 and _worth_a_name(u): printer.name(u)
    if s.op in EFFECTS: text = _effect(printer, s)
    elif s.op is Ops.FOR: text = f"for a{s.arg} in 0..{printer.text(s.src[0], _CALL)}:"
    else: text = f"{s.op.name.lower()} {printer.condition(s.src[0])}:"
    lines.append(margin + text)
    within: list[tuple[UOp | str, str]] = []
    for i, part in enumerate(inner(s)):
      if i and part: within.append(("else:", margin))
      within += [(x, margin + "  ") for x in part or (() if i else ("pass",))]
    stack.extend(reversed(within))
  return lines


def _names(lines: list[str], margin: str, names: Iterator[str]) -> Callable[[str], str]:
  """What gives texts names, each on a line."""
  def named(text: str) -> str:
    name = next(names)
    lines.append(f"{margin}{name} = {text}")
    return name
  return named


def _uses(nodes: Sequence[UOp]) -> dict[UOp, int]:
  """How often each node is read."""
  uses: dict[UOp, int] = {}
  for u in nodes:
    for s in u.src: uses[s] = uses.get(s, 0) + 1
  return uses


def _effect(printer: Printer, s: UOp) -> str:
  """A STORE or ATOMIC."""
  place, value = printer.place(s.src[0], s.src[1], s.src[3] if len(s.src) > 3 else None), printer.text(s.src[2])
  if s.op is Ops.ATOMIC: return f"atomic {s.arg} {place}, {value}"
  sign, note = _mode(s.arg)
  return f"{'' if is_variable(s.src[0]) else 'store '}{place} {sign} {value}{note}"


def _mode(arg: Any) -> tuple[str, str]:
  """How a STORE writes."""
  if arg is None or arg == "tma": return "=", ""
  if arg == "nt": return "=", "   # past the cache"
  how, axes = arg
  return ("+=" if how == "add" else "="), f"   # {', '.join(f'a{i}' for i in axes)} one after another"


def _worth_a_name(u: UOp) -> bool:
  """Values, not index arithmetic."""
  if u.op is Ops.REDUCE: return True
  if u.op not in (Ops.ALU, Ops.CAST): return False
  if u.dtype is dtypes.index or u.op is Ops.CAST and u.src[0].op in (Ops.LOAD, Ops.RANGE): return False
  return not all(s.dtype is dtypes.index or s.op is Ops.CONST for s in u.src) and not all(s.dtype is dtypes.bool for s in u.src)


__all__ = ["index_form", "body_lines", "Printer", "dtype_name"]
