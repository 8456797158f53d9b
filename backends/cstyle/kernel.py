"""Linear UOps to a language in C's style, written to be read: one statement for each value that is used twice or has an effect,
the rest inline.

Values of float16, bfloat16 and the fp8 dtypes are held in ``float`` registers: LOAD widens them, STORE, CAST and BITCAST round
them to nearest even; ALU results between are not rounded. A vector of bool is an ``intN`` of 0 and -1.
"""
from __future__ import annotations

from typing import Sequence

from ntgrad.backends.base import KernelSource, Renderer
from ntgrad.backends.cstyle.analysis import accumulator, analyse, factor
from ntgrad.backends.cstyle.helpers import SIGNED, Type
from ntgrad.backends.cstyle.language import (
  ADD,
  AND,
  ATOM,
  COND,
  EQUAL,
  LAND,
  LESS,
  LOR,
  MUL,
  NARROW,
  OR,
  SHIFT,
  UNARY,
  XOR,
  Language,
  Text,
)
from ntgrad.codegen.dtype import DType, cast_number, dtypes
from ntgrad.codegen.errors import CompileError
from ntgrad.codegen.index import vmin
from ntgrad.codegen.uop import COMPARE, BinaryOps, Ops, TernaryOps, UnaryOps, UOp, step_of

_INFIX = {
  BinaryOps.ADD: (" + ", ADD),
  BinaryOps.SUB: (" - ", ADD),
  BinaryOps.MUL: ("*", MUL),
  BinaryOps.DIV: ("/", MUL),
  BinaryOps.IDIV: ("/", MUL),
  BinaryOps.MOD: ("%", MUL),
  BinaryOps.SHL: (" << ", SHIFT),
  BinaryOps.SHR: (" >> ", SHIFT),
  BinaryOps.CMPLT: (" < ", LESS),
  BinaryOps.CMPLE: (" <= ", LESS),
  BinaryOps.CMPEQ: (" == ", EQUAL),
  BinaryOps.CMPNE: (" != ", EQUAL),
  BinaryOps.AND: (" & ", AND),
  BinaryOps.OR: (" | ", OR),
  BinaryOps.XOR: (" ^ ", XOR),
}
# arithmetic of bool: on scalars, and on vectors, which are masks
_AND, _OR, _XOR = ((" && ", LAND), (" & ", AND)), ((" || ", LOR), (" | ", OR)), ((" != ", EQUAL), (" ^ ", XOR))
_LOGIC = {
  BinaryOps.AND: _AND,
  BinaryOps.MUL: _AND,
  BinaryOps.MIN: _AND,
  BinaryOps.OR: _OR,
  BinaryOps.ADD: _OR,
  BinaryOps.MAX: _OR,
  BinaryOps.XOR: _XOR,
  BinaryOps.SUB: _XOR,
}


class CStyleRenderer(Renderer):
  """Source in a language. Needs no device."""

  def __init__(self, language: Language): self.language, self.target = language, language.target

  def render(self, name: str, uops: Sequence[UOp], notes: Sequence[str] = ()) -> KernelSource:
    """The source of a kernel called ``name``: the helper functions that it uses, the notes, then the kernel, blank lines between.

    Raises CompileError for what the language cannot express: vectors of other widths than it has, dtypes that it has not, arrays
    larger than the target's local memory.
    """
    return CKernel(self.language, name, uops).source(notes)


def uops_to_cstyle(language: Language, name: str, uops: Sequence[UOp]) -> str:
  """The text that :meth:`CStyleRenderer.render` gives."""
  return CKernel(language, name, uops).source().text


class CKernel:
  """One rendering: the lines so far and the C text of every value."""

  def __init__(self, language: Language, name: str, uops: Sequence[UOp]):
    if name in language.reserved:
      raise CompileError(f"no kernel can be called {name}: {language.name} has something of this name; give it another")
    self.language, self.type, self.name, self.uops = language, language.type, name, list(uops)
    self.value_type, self.stored_type, self.constant = language.value_type, language.stored_type, language.constant
    self.facts = analyse(self.uops)
    self.top: list[str] = []      # declarations of arrays, which C wants before what uses them
    self.lines: list[str] = []
    self.depth = 1
    self.text: dict[UOp, Text] = {}
    self.helpers: dict[str, str] = {}
    self.typedefs = {line: line for line in language.header}
    self.counts: dict[str, int] = {}
    self.phis: list[UOp] = []     # assignments that wait for the end of the loop

  def check_arrays(self) -> None:
    """Nobody else may check the size of local memory (PoCL does not), nor of the stack: too much of either ends the process."""
    for where in ("local", "private"):
      arrays = [u for u in self.uops if u.op is Ops.DEFINE_LOCAL and u.arg[2] == where]
      total = sum(u.arg[1]*self.stored_type(u.dtype).size for u in arrays)
      most = self.language.target.local_memory or 1 << 19
      if total > most:
        raise CompileError(f"kernel {self.name}: {total:,} bytes of {where} arrays; {self.language.target.name} takes {most:,}")

  # ---- small tools
  def emit(self, line: str) -> None:
    """Add a line. Braces at its ends close and open blocks."""
    self.depth -= line[0] == "}"
    self.lines.append("  "*self.depth + line)
    self.depth += line[-1] == "{"
  def fresh(self, prefix: str) -> str:
    self.counts[prefix] = self.counts.get(prefix, -1) + 1
    return f"{prefix}{self.counts[prefix]}"
  def declare(self, t: Type, prefix: str, text: str) -> str:
    """A new variable with a value; gives its name."""
    name = self.fresh(prefix)
    self.emit(f"{t} {name} = {text};")
    return name
  def resolve(self, text: str, t: Type) -> str:
    """A text whose calls are marked with ``@``, written out; the helpers that they need are added to the source."""
    text, helpers = self.language.library.resolve(text, t)
    self.helpers.update(helpers)
    return text
  def call(self, name: str, t: Type, *args: str) -> Text:
    """A call of a function of the language, or of a helper."""
    return (f"{self.resolve(f'@{name}', t)}({', '.join(args)})", ATOM)
  def unaligned(self, t: Type) -> str:
    """A name for vector type ``t`` where an element may lie: dereferencing it inlines, PoCL's vloadN is a call."""
    self.typedefs[f"{t}u"] = f"typedef {t} {t}u __attribute__((aligned({t.size})));"
    return f"{t}u"
  def c(self, u: UOp, prec: int = COND) -> str:
    """The C text of a value, in parentheses unless it binds at least as tightly as ``prec``."""
    text, p = self.text[u]
    return text if p <= (min(prec, UNARY) if self.language.parenthesised else prec) else f"({text})"
  def wide(self, u: UOp, n: int, prec: int = COND, force: bool = False) -> str:
    """A value as operand of ``n`` lanes: C widens scalars of 4 and 8 bytes by itself, ``force`` writes it out."""
    if u.dtype.count == n: return self.c(u, prec)
    if u.dtype.kind == "b": return f"(int{n})({'-' + self.c(u, UNARY) if u.op is not Ops.CONST else str(-int(u.arg))})"
    t = self.type(self.value_type(u.dtype).base, n)
    return self.c(u, prec) if not force and t.size >= 4 else f"({t})({self.c(u)})"
  def sign(self, infix: Text) -> Text: return (infix[0].strip(), infix[1]) if self.language.parenthesised else infix
  def choice(self, cond: str, yes: str, no: str) -> Text:
    """``cond ? yes : no``."""
    return (f"{cond}{self.sign((' ? ', COND))[0]}{yes}{self.sign((' : ', COND))[0]}{no}", COND)
  def mask(self, t: Type, text: str, prec: int) -> Text:
    """A comparison of vectors of type ``t`` as intN."""
    return (text, prec) if t.n == 1 or t.size == 4 else (t.to("int", text), ATOM)

  # ---- statements
  def node(self, u: UOp) -> None:
    op = u.op
    if op is Ops.CONST: self.text[u] = self.constant(u.dtype, u.arg)
    elif op is Ops.DEFINE_GLOBAL:
      slot, name = u.arg[:2]
      if u.arg[3:] and self.language.offsets: self.emit(f"{name} += at{slot}/sizeof(*{name});")
      self.text[u] = (name, ATOM)
    elif op is Ops.DEFINE_LOCAL:
      name, size, where = u.arg
      self.top.append(f"{self.language.spaces[where]}{self.stored_type(u.dtype)} {name}[{size}]{self.language.aligned};")
      self.text[u] = (name, ATOM)
    elif op is Ops.SPECIAL:
      name = f"{u.arg[0]}idx{u.arg[1]}"
      position = self.language.position(*u.arg)
      if position != name: self.emit(f"{self.value_type(u.dtype)} {name} = {position};")
      self.text[u] = (name, ATOM)
    elif op is Ops.LOOP:
      name, step = self.fresh(self.language.index), step_of(u)
      more = f"{name}++" if step is None else f"{name} += {self.c(step)}"
      self.emit(f"for ({self.value_type(u.dtype)} {name} = {self.c(u.src[0])}; {name} < {self.c(u.src[1], ADD)}; {more}) {{")
      self.text[u] = (name, ATOM)
    elif op is Ops.WHILE: self.emit("while (1) {")
    elif op is Ops.BREAK: self.emit(f"if (!{self.c(u.src[0], UNARY)}) break;")
    elif op is Ops.ELSE: self.emit("} else {")
    elif op in (Ops.ENDLOOP, Ops.ENDIF, Ops.ENDWHILE):
      self.flush()
      self.emit("}")
    elif op is Ops.IF:
      self.flush()
      self.emit(f"if ({self.c(u.src[0])}) {{")
    elif op is Ops.BARRIER:
      if not self.language.barrier and not self.language.serial:
        raise CompileError(f"kernel {self.name}: {self.language.name} has no barrier")
      if self.language.barrier: self.emit(self.language.barrier)
    elif op is Ops.DEFINE_ACC:
      self.text[u] = (self.declare(self.value_type(u.dtype), "acc", self.constant(u.dtype, u.arg)[0]), ATOM)
    elif op is Ops.PHI:
      self.text[u] = self.text[u.src[0]]
      self.phis.append(u)
    else:
      if any(s in self.phis for s in u.src): self.flush()
      if op is Ops.STORE: self.store(u)
      elif op is Ops.ATOMIC: self.atomic(u)
      elif op is Ops.LOAD: self.text[u] = (self.declare(self.value_type(u.dtype), "val", self.load(u)[0]), ATOM)
      else:
        value = self.value(u)
        if u not in self.facts.inline or len(value[0]) > 100:
          if op is not Ops.GEP or self.facts.reads[u]:
            prefix = {Ops.CAST: "cast", Ops.BITCAST: "cast", Ops.VECTORIZE: "vec"}.get(op, "alu")
            value = (self.declare(self.value_type(u.dtype), prefix, value[0]), ATOM)
        self.text[u] = value

  def flush(self) -> None:
    """Write the waiting PHIs: one parallel assignment, so a value that reads an accumulator assigned before it is kept first."""
    values: list[tuple[UOp, str]] = []
    assigned: set[UOp] = set()
    for u in self.phis:
      acc, value = accumulator(u), u.src[1]
      text = self.c(value)
      if self.facts.reads[value] & assigned: text = self.declare(self.value_type(u.dtype), "next", text)
      assigned.add(acc)
      values.append((acc, text))
    for acc, text in values:
      if text != self.text[acc][0]: self.emit(f"{self.text[acc][0]} = {text};")
    self.phis.clear()

  # ---- memory
  def where(self, buffer: UOp, index: UOp, prec: int = COND) -> str:
    """The C pointer to an element."""
    name = self.c(buffer)
    if index.op is Ops.CONST and index.arg == 0: return name
    where = f"{name}{self.sign(_INFIX[BinaryOps.ADD])[0]}{self.c(index, ADD)}"
    return where if prec >= ADD else f"({where})"

  def pointer(self, buffer: UOp, index: UOp, t: Type, const: bool, aligned: bool = False) -> str:
    """The C pointer to the vector of type ``t`` in ``buffer`` from ``index`` on."""
    space = self.language.spaces["global" if buffer.op is Ops.DEFINE_GLOBAL else buffer.arg[2]]
    where = self.where(buffer, index, UNARY)
    return f"({space}{'const ' if const else ''}{t if aligned else self.unaligned(t)}*){where}"

  def place(self, buffer: UOp, index: UOp, t: Type, const: bool) -> str:
    """The C lvalue of ``t.n`` elements of ``buffer`` from ``index`` on."""
    return self.language.element(self.c(buffer), self.text[index]) if t.n == 1 else f"*{self.pointer(buffer, index, t, const)}"

  def lane(self, buffer: UOp, index: UOp, i: int) -> str:
    if index.op is Ops.CONST: return f"{self.c(buffer)}[{index.arg + i}]"
    return f"{self.c(buffer)}[{self.c(index, ADD)}{f' + {i}' if i else ''}]"

  def load(self, u: UOp) -> Text:
    buffer, index = u.src[:2]
    gate = u.src[2] if len(u.src) > 2 else None
    other = u.src[3] if len(u.src) > 3 else UOp.const(u.dtype.scalar(), 0)
    if other not in self.text: self.node(other)
    t = self.stored_type(u.dtype)
    if t.n == 3: raw = f"({t})({', '.join(self.lane(buffer, index, i) for i in range(3))})"  # a 3-vector takes the room of 4
    else: raw = self.place(buffer, index, t, True)
    if gate is not None and gate.dtype.count > 1:
      lanes: list[str] = []
      for i in range(t.n):
        o = self.c(other) + f".s{i:x}" if other.dtype.count > 1 else self.c(other)
        x = self.widen(self.lane(buffer, index, i), u.dtype.scalar())[0]
        if u.dtype.kind == "b": x, o = f"-({x})", f"-({o})" if other.dtype.count == 1 else o
        lanes.append(f"{self.c(gate, ATOM)}.s{i:x} ? {x} : {o}")
      return (f"({self.value_type(u.dtype)})({', '.join(lanes)})", ATOM)
    value = self.widen(raw, u.dtype)
    if gate is None: return value
    yes = value[0] if value[1] <= LOR else f"({value[0]})"
    return self.choice(self.c(gate, LOR), yes, self.wide(other, t.n, LOR, force=True))

  def widen(self, raw: str, dtype: DType) -> Text:
    """A value in memory's type to its register type."""
    t = self.stored_type(dtype)
    if dtype.scalar() in NARROW: return self.call(f"{dtype.short}_to_float", t, raw)
    if dtype.kind == "b": return (raw, UNARY) if t.n == 1 else (f"{t.to('int', raw)} != 0", EQUAL)
    return (raw, UNARY if t.n > 1 else ATOM)

  def narrow(self, u: UOp, n: int) -> str:
    """The C text of a value as memory of its dtype keeps it, ``n`` lanes wide."""
    d = u.dtype.scalar()
    if d in NARROW:
      # the store rounds: a CAST that does the same just before it need not
      if u.op is Ops.CAST and u.src[0].dtype is dtypes.float32.vec(u.dtype.count): u = u.src[0]
      return self.call(f"float_to_{d.short}", self.type("float", n), self.wide(u, n, force=True))[0]
    if d.kind == "b" and n > 1: return self.type("int", n).to("uchar", self.wide(u, n, AND) + " & 1")
    return self.wide(u, n, force=True)

  def store(self, u: UOp) -> None:
    buffer, index, value = u.src[:3]
    gate = u.src[3] if len(u.src) > 3 else None
    n = value.dtype.count
    if n == 1 and gate is not None: n = gate.dtype.count
    t = self.stored_type(buffer.dtype.scalar().vec(n))
    text = self.narrow(value, n)
    if (gate is not None and gate.dtype.count > 1) or n == 3:
      if n > 1 and self.text[value] != (text, ATOM): text = self.declare(t, "out", text)
      for i in range(n):
        guard = "" if gate is None else f"if ({self.c(gate, ATOM) + (f'.s{i:x}' if gate.dtype.count > 1 else '')}) "
        self.emit(f"{guard}{self.lane(buffer, index, i)} = {text}.s{i:x};")
      return
    guard = f"if ({self.c(gate)}) " if gate is not None else ""
    streams = u.arg == "nt" and self.language.streams and n*t.size >= 16 and buffer.op is Ops.DEFINE_GLOBAL
    if streams and factor(index) % n == 0 and not (buffer.arg[3:] and buffer.arg[3] < n * t.size):  # such a store must be aligned
      self.emit(f"{guard}__builtin_nontemporal_store({text}, {self.pointer(buffer, index, t, False, aligned=True)});")
    else: self.emit(f"{guard}{self.place(buffer, index, t, False)} = {text};")

  def atomic(self, u: UOp) -> None:
    """``*p = fn(*p, value)`` as one step."""
    buffer, index, value = u.src[:3]
    if self.language.serial:
      old = UOp(Ops.LOAD, buffer.dtype, (buffer, index))
      new = UOp.alu({"add": BinaryOps.ADD, "max": BinaryOps.MAX, "min": BinaryOps.MIN}[u.arg], old, value)
      self.text[old] = self.load(old)
      self.text[new] = self.value(new)
      return self.store(UOp(Ops.STORE, u.dtype, (buffer, index, new, *u.src[3:])))
    guard = f"if ({self.c(u.src[3])}) " if len(u.src) > 3 else ""
    call, helpers, head = self.language.atomic(u.arg, buffer.dtype, self.where(buffer, index), self.c(value))
    self.typedefs.update(zip(head, head))
    self.helpers.update(helpers)
    self.emit(f"{guard}{call};")

  # ---- values
  def value(self, u: UOp) -> Text:
    n, src = u.dtype.count, u.src
    t = self.value_type(u.dtype)
    if u.op is Ops.VECTORIZE:
      lanes = [f"-{self.c(s, UNARY)}" if u.dtype.kind == "b" else self.c(s) for s in src]
      return (f"({t})({', '.join(lanes)})", ATOM) if n > 1 else self.text[src[0]]
    if u.op is Ops.GEP:
      if src[0].dtype.count == 1: return self.text[src[0]]
      lane = f"{self.c(src[0], ATOM)}.s{u.arg:x}"
      return (f"({lane} != 0)", ATOM) if u.dtype.kind == "b" else (lane, ATOM)
    if u.op is Ops.CAST: return self.cast(u)
    if u.op is Ops.BITCAST: return self.bitcast(u)
    if u.op is not Ops.ALU: raise CompileError(f"kernel {self.name}: {self.language.name} cannot express {u!r}")
    if isinstance(u.arg, UnaryOps): return self.unary(u)
    if u.arg is TernaryOps.WHERE:
      cond, yes, no = src
      m = self.c(cond, LOR)
      if cond.dtype.count > 1 and t.size != 4: m = t.of("int").to(SIGNED[t.size], m)
      return self.choice(m, self.wide(yes, n, LOR, True), self.wide(no, n, LOR, True))
    return self.binary(u)

  def cast(self, u: UOp) -> Text:
    x = u.src[0]
    s, d, n = x.dtype.scalar(), u.dtype.scalar(), u.dtype.count
    t, f = self.value_type(u.dtype), self.value_type(x.dtype)
    if x.op is Ops.CONST and f.n == n == 1: return self.constant(d, cast_number(x.arg, s, d))
    if f.n == 1:
      one = self.scalar_cast(self.c(x, UNARY), s, d)
      return one if n == 1 else (f"({t})({f'-({one[0]})' if d.kind == 'b' else one[0]})", ATOM)   # convert the scalar, then widen
    if s is d: return self.text[x]
    if d.kind == "b": return self.mask(f, f"{self.c(x, LESS)} != ({f})(0)", EQUAL)
    text = self.c(x)
    if s.kind == "b": text = f"{self.c(x, AND)} & 1"
    if d in NARROW: return self.round(text, f, d)
    if f == t: return (text, AND) if s.kind == "b" else self.text[x]
    if s.kind == "f" and d.kind in "iu" and d.itemsize < 4: f, text = f.of("int"), f.to("int", text)
    return (f.to(t.base, text), ATOM)

  def scalar_cast(self, x: str, s: DType, d: DType) -> Text:
    f, t = self.value_type(s), self.value_type(d)
    if s is d: return (x, UNARY)
    if d.kind == "b": return (f"{x} != 0", EQUAL)
    if d in NARROW: return self.round(x, f, d)
    if f == t: return (x, UNARY)
    # out of range is undefined; by way of int it wraps, as numpy does on most machines
    if s.kind == "f" and d.kind in "iu" and d.itemsize < 4: return (f"({t})({f.of('int')}){x}", UNARY)
    return (f"({t}){x}", UNARY)

  def round(self, x: str, f: Type, d: DType) -> Text:
    """A register value of type ``f`` rounded to what narrow float ``d`` holds."""
    ints = f.base in ("int", "uint", "long", "ulong")
    if ints and "float64" in self.language.values: f, x = f.of("double"), f.to("double", x)
    if ints or f.base == "double": f, x = f.of("float"), self.call("to_odd", f, x)[0]
    elif f.base != "float": f, x = f.of("float"), f.to("float", x)
    bits = self.call(f"float_to_{d.short}", f, x)[0]
    return self.call(f"{d.short}_to_float", f.of(self.language.stored[d.name]), bits)

  def bitcast(self, u: UOp) -> Text:
    x, d = u.src[0], u.dtype.scalar()
    s, n = x.dtype.scalar(), u.dtype.count
    if s.itemsize != d.itemsize: raise CompileError(f"kernel {self.name}: BITCAST from {s} to {d}: item sizes differ")
    text, raw, out = self.narrow(x, n), self.stored_type(s.vec(n)), self.stored_type(u.dtype)
    if raw != out: text = self.resolve(self.language.bits(raw, out, text), raw)
    return self.widen(text, u.dtype) if d in NARROW or d.kind == "b" else (text, ATOM if raw != out else UNARY)

  def unary(self, u: UOp) -> Text:
    fn, x, t = u.arg, u.src[0], self.value_type(u.dtype)
    wide = self.wide(x, t.n, force=True)
    if fn is UnaryOps.ISNAN:
      if x.dtype.kind != "f": return self.constant(u.dtype, False)
      return self.mask(self.value_type(x.dtype), f"{self.c(x, LESS)} != {self.c(x, LESS)}", EQUAL)
    if fn is UnaryOps.NOT:
      if u.dtype.kind == "b" and t.n == 1: return (f"!{self.c(x, UNARY)}", UNARY)
      return self.wrapped(u, f"~{self.wide(x, t.n, UNARY, True)}", UNARY)
    if fn is UnaryOps.NEG:
      if u in self.facts.exposed:
        unsigned = t.of("u" + t.base)
        if t.n == 1: return (f"({t})(0u - ({unsigned}){self.c(x, UNARY)})", UNARY)
        return (t.bits(t.base, f"({unsigned})(0) - {t.bits(unsigned.base, wide)}"), ATOM)
      inner = self.wide(x, t.n, UNARY, True)
      return self.wrapped(u, f"-({inner})" if inner.startswith("-") else f"-{inner}", UNARY)
    if fn is UnaryOps.ABS and u.dtype.kind in "if": return self.call("abs", t, wide)
    if u.dtype.kind in "iub":
      if fn in (UnaryOps.ABS, UnaryOps.FLOOR, UnaryOps.CEIL, UnaryOps.TRUNC, UnaryOps.ROUND): return self.text[x]
      raise CompileError(f"kernel {self.name}: {fn} of {u.dtype}: takes floats")
    if fn in (UnaryOps.RECIP, UnaryOps.RSQRT):
      below = self.wide(x, t.n, UNARY, True) if fn is UnaryOps.RECIP else self.call("sqrt", t, wide)[0]
      return (f"{self.constant(u.dtype.scalar(), 1.0)[0]}/{below}", MUL)
    return self.call("rint" if fn is UnaryOps.ROUND else fn.name.lower(), t, wide)

  def wrapped(self, u: UOp, text: str, prec: int) -> Text:
    """C computes with 8 and 16 bit scalars as int: cut the result back."""
    t = self.value_type(u.dtype)
    if t.n > 1 or u.dtype.kind not in "iu" or t.size >= 4: return (text, prec)
    return (f"({t})({text})", UNARY)

  def binary(self, u: UOp) -> Text:
    fn, (a, b), n = u.arg, u.src, u.dtype.count
    t, o = self.value_type(u.dtype), self.value_type(a.dtype.scalar().vec(n))  # of the result and of the operands
    kind = a.dtype.kind
    if kind == "b":
      if fn in (BinaryOps.CMPLT, BinaryOps.CMPLE):  # a mask that is set is -1
        sign, prec = self.sign((_AND if fn is BinaryOps.CMPLT else _OR)[n > 1])
        return (f"{'!' if n == 1 else '~'}{self.wide(a, n, UNARY)}{sign}{self.wide(b, n, UNARY)}", prec)
      if fn not in COMPARE:
        if fn not in _LOGIC: raise CompileError(f"kernel {self.name}: {fn} of {u.dtype}: takes numbers")
        sign, prec = self.sign(_LOGIC[fn][n > 1])
        most, least = (UNARY, UNARY) if _LOGIC[fn] is _XOR else (prec, prec - 1)
        return (f"{self.wide(a, n, most)}{sign}{self.wide(b, n, least)}", prec)
    whole = [self.wide(x, n, force=True) for x in u.src]
    plain = fn in _INFIX and (fn not in (BinaryOps.IDIV, BinaryOps.MOD) or (kind in "iu" and vmin(a) >= 0 and vmin(b) > 0))
    if not plain: return self.call(fn.name.lower(), t, *whole)   # C's division truncates, and by zero it ends the process
    sign, prec = self.sign(_INFIX[fn])
    # ushort*ushort is an int product in C
    wraps = u in self.facts.exposed or (fn is BinaryOps.MUL and t.base == "ushort" and n == 1)
    if wraps and fn in (BinaryOps.ADD, BinaryOps.SUB, BinaryOps.MUL, BinaryOps.SHL):
      unsigned = t.of("uint" if t.base == "ushort" else "u" + t.base if kind == "i" else t.base)
      if n == 1:
        x = f"({unsigned}){self.c(a, UNARY)}{sign}{f'({unsigned})' if fn is not BinaryOps.SHL else ''}{self.c(b, UNARY)}"
        return (f"({t})({x})", UNARY)
      x, y = (t.bits(unsigned.base, text) for text in whole)
      return (t.bits(t.base, f"{x}{sign}{y}"), ATOM)
    # bit operations beside arithmetic read better in parentheses
    most, least = (prec, prec - 1) if prec <= ADD else (ADD, ADD) if fn in COMPARE else (UNARY, UNARY)
    left, right = self.wide(a, n, most), self.wide(b, n, least)
    if a.op is Ops.ALU and a.arg is fn:   # a chain
      if fn in (BinaryOps.AND, BinaryOps.OR, BinaryOps.XOR): left = self.wide(a, n, prec)
      elif self.language.parenthesised and fn in (BinaryOps.ADD, BinaryOps.MUL): left = self.text[a][0]
    if fn in (BinaryOps.ADD, BinaryOps.SUB) and right[0] == "-": right = f"({right})"
    if a.dtype.count == b.dtype.count == 1 and n > 1: left = whole[0]
    if fn in COMPARE: return self.mask(o, f"{left}{sign}{right}", prec)
    return self.wrapped(u, f"{left}{sign}{right}", prec)

  # ---- the whole
  def source(self, notes: Sequence[str] = ()) -> KernelSource:
    """What is written, rendered once."""
    self.check_arrays()
    for line in self.language.begin(self.uops): self.emit(line)
    first, self.lines, margin = self.lines, [], "  "*self.depth
    for u in self.uops: self.node(u)
    self.flush()
    params = sorted((u for u in self.uops if u.op is Ops.DEFINE_GLOBAL), key=lambda u: u.arg[0])
    loaded = {u.src[0] for u in self.uops if u.op is Ops.LOAD}
    stored = {u.src[0] for u in self.uops if u.op in (Ops.STORE, Ops.ATOMIC)}
    args: dict[str, str] = {}
    for u in params:
      slot, name, written = u.arg[:3]
      while len(args) < slot:
        args[f"unused{len(args)}"] = self.language.param(self.type("uchar"), f"unused{len(args)}", False, False)
      args[name] = self.language.param(
        self.stored_type(u.dtype), name, written or u in stored, u not in loaded or u not in stored
      )
    begun = tuple((u.arg[0], u.arg[3]) for u in params if u.arg[3:])
    if self.language.offsets: args.update({f"at{slot}": f"{self.type('ulong')} at{slot}" for slot, _ in begun})
    size = [1, 1, 1]
    for u in self.uops:
      if u.op is Ops.SPECIAL and u.arg[0] == "l": size[u.arg[1]] = u.arg[2]
    while self.depth: self.emit("}")
    place = "\0" * len(self.name)   # of the name, which is another one where several kernels are in one program
    head = "".join(f"// {note}\n" for note in notes) + self.language.head(place, list(args.values()), size)
    before, _, after = "\n".join([head, *first, *(margin + line for line in self.top), *self.lines]).partition(place)
    parts = ["\n".join(self.typedefs.values())] if self.typedefs else []
    text = "\n\n".join([*parts, *self.helpers.values(), f"{before}{self.name}{after}"]) + "\n"
    return KernelSource(
      text,
      tuple(args.items()),
      (),
      (*self.typedefs.values(), *self.helpers.values()),
      begun,
      (before, after),
      max(1.0, len(text) / 2000),
    )
