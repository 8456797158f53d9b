"""A kernel's index form as text: axes, parameters, and what is stored, as a person would write it."""
from __future__ import annotations

import itertools
import re
from collections import Counter
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

from .. import index as ix
from ..index import shape_text, sources_first, text_of
from ..ir import ATOM, COMPARISON, CONDITIONAL, PRODUCT, PYTHON, SUM, DType, Fn, Text, dtypes, infix, inside, number_text
from ..ir.uop import BinaryOps, Ops, TernaryOps, UnaryOps, UOp, toposort
from ..kernel import EFFECTS, LOAD_OR_STORE, Kernel, UOpList, block_shapes, fold_names, gate_or_true, inner, is_variable
from ..passes.parts import Mark, Parts

_PREFIX: dict[Fn, str] = {UnaryOps.NEG: "-", UnaryOps.NOT: "~"}
_REDUCE = {BinaryOps.ADD: "sum", BinaryOps.MUL: "prod", BinaryOps.AND: "all", BinaryOps.OR: "any"}
_FUNCTION: dict[Ops, Callable[[Any], str]] = {  # what stands before the operands in brackets, from the arg
  Ops.ALU: lambda fn: fn.name.lower(),
  Ops.REDUCE: lambda a: f"{combiner_text(a[0])}[{_axes(a[1])}]",
  Ops.SCAN: lambda a:
    f"scan[{combiner_text(a[0])}, {_axes(a[1:2])}{', reverse' * a[2]}{f', every {a[3]}' if any(a[3:]) else ''}]",
  Ops.SORT: lambda a: f"sort[{_axes(a[:1])}{', descending' if a[1] else ''}{f', first {a[2]}' if a[2:] else ''}]",
  Ops.SORTED: lambda a: f"sorted[{_axes(a[:1])}, bits {a[1]} to {a[2]}{f', first {a[3]}' if a[3] else ''}]",
  Ops.CACHE_READ: lambda a: f"cache_read[{_axes(a)}]"}
SCREEN = 50      # lines
_LONGEST = 400   # characters: a longer part of an expression has a line of its own


def dtype_name(d: DType) -> str:
  """``float``, ``int``, ``half``: the dtype without its ``dtypes.``"""
  return str(d).removeprefix("dtypes.")


class Printer:
  """Expressions as text. ``named``, where given, writes a text on a line of its own and returns a name for it: the text of a node
  longer than _LONGEST is replaced by such a name. ``dims``, where given, are the dimensions of each buffer that are shown.

  ``gates``, where given, gets each place that is loaded or stored under a condition, and the condition, as texts. The condition
  is then left out of the place. A place ends with ``'`` where the same place has another condition elsewhere."""

  def __init__(self, named: Callable[[str], str] | None = None, gates: dict[str, UOp] | None = None,
               dims: Mapping[UOp, tuple[int, ...]] | None = None):
    self.named, self.gates, self.dims = named, gates, dims or {}
    self.known: dict[UOp, Text] = {}   # of each node so far

  def text(self, u: UOp, most: int = CONDITIONAL) -> str: return inside(self.known_text(u), most)

  def known_text(self, u: UOp) -> Text:
    for n in sources_first(u, lambda n: () if n in self.known else _operands(n)):   # expressions are deeper than Python's stack
      if n in self.known: continue
      self.known[n] = self._text(n)
      if len(self.known[n][0]) > _LONGEST: self.name(n)
    return self.known[u]

  def name(self, u: UOp) -> None:
    """Give ``u`` a name, by which it is printed from here on."""
    if self.named is not None: self.known[u] = self.named(self.text(u)), ATOM

  def _text(self, u: UOp) -> Text:
    op, fn, src = u.op, u.arg, u.src
    if op is Ops.CONST: return constant_text(u), ATOM if u.arg >= 0 else PRODUCT
    if op is Ops.SPECIAL: return f"a{fn[1]}" if fn[0] == "for" else f"{fn[0]}idx{fn[1]}", ATOM
    if op is Ops.RANGE: return _axes(fn[:1]), ATOM
    if u.dtype is dtypes.index and ix.of_sizes(u):
      text, (terms, c) = text_of(u), ix.linear(u)
      return text, ATOM if text.isidentifier() else SUM if len(terms) > 1 or c else PRODUCT
    if op is Ops.LOAD: return self.place(u), ATOM
    if op is Ops.CAST and u.dtype is dtypes.index: return self.text(src[0], ATOM), ATOM
    if fn is TernaryOps.WHERE:
      condition, yes, no = (self.text(s, most) for s, most in zip(src, (COMPARISON, COMPARISON, CONDITIONAL)))
      return f"{yes} if {condition} else {no}", CONDITIONAL
    if fn in _PREFIX: return f"{_PREFIX[fn]}{self.text(src[0], ATOM)}", PRODUCT
    if op is Ops.ALU and fn in PYTHON:
      left, right = src
      if fn is BinaryOps.ADD and u.dtype is dtypes.index:   # c*(-1) + d and a + -1 read better as differences
        less = right.op is Ops.CONST and right.arg < 0
        if not less and _negative(left) and ix.of_sizes(right): left, right = right, left
        if less or _negative(right): fn, right = BinaryOps.SUB, ix.mul(right, -1)
      return infix(fn, self.known_text(left), self.known_text(right))
    if op in (Ops.CAST, Ops.BITCAST): name = dtype_name(u.dtype) if op is Ops.CAST else f"bitcast[{dtype_name(u.dtype)}]"
    else: name = _FUNCTION[op](fn) if op in _FUNCTION else op.name
    return f"{name}({', '.join(map(self.text, _operands(u)))})", ATOM

  def place(self, access: UOp) -> str:
    """``data1[a0, a1 if a1 < 3]``: the element that a LOAD, STORE or ATOMIC is of, and its gate."""
    buffer, index, gate = access.src[0], access.src[1], gate_or_true(access)
    local = buffer.op is Ops.DEFINE_LOCAL
    if local and not index.src and gate is ix.TRUE: return str(buffer.arg[0])
    at = ", ".join(self.text(index.src[d]) for d in self.dims.get(buffer, range(len(index.src))))
    name = buffer.arg[0 if local else 1]
    if self.gates is None: return f"{name}[{at}{'' if gate is ix.TRUE else ' if ' + self.condition(gate)}]"
    place = f"{name}[{at}]"
    while self.gates.setdefault(place, gate) is not gate: place += "'"
    return place

  def where(self, line: str) -> list[str]:
    """A line, and lines with the conditions of the places that it has."""
    lines, said = [line], set[str]()
    margin = line[:len(line) - len(line.lstrip())]
    for text in lines:   # conditions have such places too
      new: dict[UOp, list[str]] = {}
      for place, gate in (self.gates or {}).items():
        if gate is ix.TRUE or place in said or place not in text or not re.search(re.escape(place) + "(?!')", text): continue
        said.add(place)
        new.setdefault(gate, []).append(place)
      lines += [f"{margin}  where {', '.join(places)}: {self.condition(gate)}" for gate, places in new.items()]
    return lines

  def condition(self, gate: UOp) -> str: return " and ".join(self.text(c, COMPARISON) for c in ix.conjuncts(gate)) or "True"


def _operands(u: UOp) -> Sequence[UOp]:
  if u.op in (Ops.CONST, Ops.RANGE) or u.dtype is dtypes.index and ix.of_sizes(u): return ()
  if u.op is Ops.LOAD: return *u.src[1].src, *ix.conjuncts(gate_or_true(u))
  return u.src[:1] if u.op is Ops.CACHE_READ else u.src


def _axes(ids: Iterable[int]) -> str: return ", ".join(f"a{i}" for i in ids)
def combiner_text(fn: BinaryOps) -> str: return _REDUCE.get(fn, fn.name.lower())


def _negative(u: UOp) -> bool: return u.arg is BinaryOps.MUL and u.src[1].op is Ops.CONST and u.src[1].arg < 0


def constant_text(u: UOp) -> str:
  """A constant, in as few digits as its dtype needs."""
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

  Where statements have an order: a line for each variable, ``for a3 in 0..8:``, ``while …:``, ``if …:`` and ``else:`` with their
  statements indented, ``acc[a1, a2] = …``."""
  lines = ["axes   " + (", ".join(map(str, kernel.axes)) or "none")]
  marked = {u.src[0].arg[0] for u in kernel.nodes if u.arg == "tma" and u.op in LOAD_OR_STORE}
  lines += [
    f"data{p.slot:<3d}{shape_text([p.shape[d] for d in kernel.seen_dims[p.uop]])} "
    f"{dtype_name(p.dtype)}{', written' if p.written else ''}{', by descriptor' if p.slot in marked else ''}"
    for p in kernel.params]
  lines += [f"{v.arg[0]:<7s}{v.arg[1]} {dtype_name(v.dtype)}, variable" for v in kernel.variables]
  return "\n".join(lines + body_lines(kernel))


def screen(text: str) -> str:
  """A text cut to what one screen shows: SCREEN lines, of 160 characters each."""
  lines = [line if len(line) <= 160 else line[:159] + "…" for line in text.splitlines()]
  if len(lines) > SCREEN: lines = [*lines[:SCREEN - 1], f"… {len(lines) - SCREEN + 1} more lines"]
  return "\n".join(lines)


def form_text(program: object) -> str:
  """A program in any form of the pipeline, as ``SHOW`` prints it: a kernel, its parts with the Opts of each, or UOps."""
  if isinstance(program, Kernel): return index_form(program)
  if isinstance(program, UOpList): return "\n".join(program.lines(block_shapes(program)))
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
  printer = _printer(kernel, lines, "", (f"v{n}" for n in itertools.count()), {})
  shared = _shared(kernel.nodes)
  for u in kernel.nodes:
    if u.op is Ops.STORE: lines += printer.where(_effect(printer, u))
    elif u in shared: printer.name(u)
  return lines


def _statement_lines(kernel: Kernel) -> list[str]:
  """Statements, indented; a value that a statement uses more than once, or that is long, has a line before it and a name."""
  lines: list[str] = []
  names, gates = (f"x{n}" for n in itertools.count()), dict[str, UOp]()
  stack: list[tuple[UOp | str, str]] = [(s, "") for s in reversed(kernel.body)]
  while stack:
    s, margin = stack.pop()
    if isinstance(s, str):
      lines.append(margin + s)
      continue
    printer = _printer(kernel, lines, margin, names, gates)
    for u in _shared(toposort(s.src if s.op in EFFECTS else s.src[:1])): printer.name(u)
    if s.op in EFFECTS: text = _effect(printer, s)
    elif s.op is Ops.FOLD: text = _fold(printer, s)
    elif s.op is Ops.PRINT: text = f"print {s.arg.text!r} {', '.join(v.arg[0] for v in s.src[:len(s.arg.shapes)])}"
    elif s.op is Ops.FOR: text = f"for a{s.arg} in 0..{printer.text(s.src[0], ATOM)}:"
    else: text = f"{s.op.name.lower()} {printer.condition(s.src[0])}:"
    lines += printer.where(margin + text)
    within: list[tuple[UOp | str, str]] = []
    for i, part in enumerate(inner(s)):
      if i and part: within.append(("else:", margin))
      within += [(x, margin + "  ") for x in part or (() if i else ("pass",))]
    stack.extend(reversed(within))
  return lines


def _printer(kernel: Kernel, lines: list[str], margin: str, names: Iterator[str], gates: dict[str, UOp]) -> Printer:
  """One whose names have a line of ``lines`` each, ``name = text``, and conditions below it."""
  def named(text: str) -> str:
    name = next(names)
    lines.extend(printer.where(f"{margin}{name} = {text}"))
    return name
  printer = Printer(named, gates, kernel.seen_dims)
  return printer


def _shared(nodes: Sequence[UOp]) -> dict[UOp, None]:
  """The values among the nodes that are read more than once, and so get a name: no index arithmetic."""
  uses = Counter(s for u in nodes for s in u.src)
  return dict.fromkeys(u for u in nodes if uses[u] > 1 and _worth_a_name(u))


def _fold(printer: Printer, s: UOp) -> str:
  f, (read, to) = s.arg, fold_names(s, [v.arg[0] for v in s.src])
  how = "from the end, all" if f.reverse else "all" if f.scan else "the last"
  together = [f"({', '.join(map(printer.text, xs))})" for xs in (f.first, f.second, f.results)]
  return f"{', '.join(to)} = {how} of {' ⊕ '.join(together[:2])} = {together[2]} along {f.axis} of {', '.join(read)}"


def _effect(printer: Printer, s: UOp) -> str:
  place, value = printer.place(s), printer.text(s.src[2])
  if s.op is Ops.ATOMIC:
    old = f"{printer.place(UOp(Ops.LOAD, s.dtype, s.src[4:6]))} = " if s.src[4:] else ""
    return f"{old}atomic {s.arg} {place}, {', '.join([value, *map(printer.text, s.src[6:])])}"
  how, axes = s.arg if isinstance(s.arg, tuple) else ("set", None)
  note = "past the cache" if s.arg == "nt" else "" if axes is None else f"{_axes(axes)} one after another"
  store = "" if is_variable(s.src[0]) else "store "
  return f"{store}{place} {'+=' if how == 'add' else '='} {value}{'   # ' + note if note else ''}"


def _worth_a_name(u: UOp) -> bool:
  if u.op not in (Ops.ALU, Ops.CAST): return u.op is Ops.REDUCE
  if u.dtype is dtypes.index or u.op is Ops.CAST and u.src[0].op in (Ops.LOAD, Ops.RANGE): return False
  return not all(s.dtype is dtypes.index or s.op is Ops.CONST for s in u.src) and not all(s.dtype is dtypes.bool for s in u.src)


def _kernel_text(kernel: Kernel) -> str: return screen(index_form(kernel))


Kernel.__str__ = _kernel_text  # type: ignore[assignment] # what looks through kernels stands above them


def kernel_name(kernel: Kernel) -> str:
  """What kind it is (E elementwise, r reduction) and its axes as written: r_64_48_32."""
  sizes = "_".join(text if (text := text_of(a.size)).isalnum() else "n" for a in kernel.axes) or "1"
  return f"{'r' if kernel.reduces else 'E'}_{sizes}"
