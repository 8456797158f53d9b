"""Linear UOps to a language in C's style, written to be read: one statement for each value that is used twice or has an effect.
Values of float16, bfloat16 and the fp8 dtypes are held in ``float`` registers: LOAD widens them, STORE, CAST and BITCAST round
them to nearest even; ALU results between are not rounded. A vector of bool is an ``intN`` of 0 and -1."""
from __future__ import annotations

import json
import re
from functools import cache
from typing import Sequence

from ntgrad.codegen.index import arguments, vmax, vmin
from ntgrad.codegen.ir import FUNCTIONS, CompileError, DType, cast_number, dtypes, prod, refusal, toposort
from ntgrad.codegen.ir.spelling import ATOM, PRODUCT, SUM, UNARY, Text, inside, operands
from ntgrad.codegen.ir.uop import COMPARE, BinaryOps, Ops, UnaryOps, UOp, step_of
from ntgrad.codegen.kernel import NARROW

from ..base import KernelSource
from ..writer import Writer, parameters, touched
from .analysis import after, analyse, factor
from .functions import FUNCTIONS as BUILTIN, SIGNED, SIZES, Type
from .language import AND, COND, EQUAL, KEYWORDS, LAND, LESS, LOR, C, Language

# bit operations on scalars of bool; vectors of bool are masks, which take the operators of ints
_LOGIC = {BinaryOps.AND: (" && ", LAND), BinaryOps.OR: (" || ", LOR), BinaryOps.XOR: C[BinaryOps.CMPNE]}
# statements that begin or end a block and need nothing of their node
_BLOCKS = {Ops.WHILE: "while (1) {", Ops.ELSE: "} else {", Ops.ENDLOOP: "}", Ops.ENDIF: "}", Ops.ENDWHILE: "}"}
# what a size cannot be called besides: variables and types of vectors (a number at their end), helpers (a type at their end),
# functions, types and macros that languages have
_TAKEN = re.compile(
  rf"[a-z]+\d+u?|(.+_)?({'|'.join(SIZES)})\d*|(get|as|convert|atomic)_.*|[A-Z_]*(NAN|INFINITY|MAX|MIN|EPSILON)|gid|lid|grid|"
  rf"{'|'.join(fn.name.lower() for fn in FUNCTIONS)}")
_PREFIXES = {Ops.CAST: "cast", Ops.BITCAST: "cast", Ops.VECTORIZE: "vec", Ops.LOAD: "val"}   # of variables; of others "alu"


class CStyleRenderer(Language):
  """Source in a language. Needs no device."""

  def render(self, name: str, uops: Sequence[UOp], notes: Sequence[str] = ()) -> KernelSource:
    """The source of a kernel called ``name``: the helper functions that it uses, the notes, then the kernel, blank lines between.
    Raises CompileError for what the language cannot express: widths of vectors, dtypes, more than the target's local memory."""
    return CKernel(self, name, uops).source(notes)


class CKernel(Writer):
  """One rendering: the lines so far and the C text of every value."""
  end = ";"

  def __init__(self, language: Language, name: str, uops: Sequence[UOp]):
    self.sizes = arguments(uops)
    super().__init__(name, uops, self.sizes, _TAKEN, {*KEYWORDS, *(language.reserved or ()), *BUILTIN})
    self.language, self.uops = language, uops
    self.value_type, self.stored_type, self.constant = cache(language.value_type), cache(language.stored_type), language.constant
    self.facts = analyse(uops)
    self.reads = self.facts.reads
    self.arrays = list[str]()   # declarations, which C wants before what uses them
    self.modular = dict[UOp, Text]()   # of ints that wrap: their text as unsigned ints
    self.helpers = dict[str, str]()
    self.typedefs = {line: line for line in language.header}

  def check_arrays(self) -> None:
    """Nobody else may check the size of local memory (PoCL does not), nor of the stack: too much of either ends the process."""
    for where in "local", "private":
      total = sum(u.arg[1]*u.dtype.itemsize for u in self.uops if u.op is Ops.DEFINE_LOCAL and u.arg[2] == where)
      most = self.language.target.local_memory or 1 << 19
      if total > most:
        raise CompileError(f"kernel {self.name}: {total:,} bytes of {where} arrays; {self.language.target.name} takes {most:,}")

  # ---- small tools
  def emit(self, line: str) -> None:
    """Add a line. Braces at its ends close and open blocks."""
    self.depth -= line[0] == "}"
    super().emit(line)
    self.depth += line[-1] == "{"
  def resolve(self, text: str, t: Type) -> str:
    """A text whose calls are marked with ``@``, written out; the helpers that they need are added to the source."""
    text, helpers = self.language.library.resolve(text, t)
    self.helpers.update(helpers)
    return text
  def call(self, name: str, t: Type, *args: str) -> Text: return f"{self.resolve(f'@{name}', t)}({', '.join(args)})", ATOM
  def inside(self, text: Text, prec: int) -> str: return inside(text, min(prec, UNARY) if self.language.parenthesised else prec)
  def c(self, u: UOp, prec: int = COND) -> str: return self.inside(self.text[u], prec)
  def element(self, u: UOp, i: int) -> str:
    """Element ``i`` of a vector; a scalar is every element."""
    return f"{self.c(u, ATOM)}.s{i:x}" if u.dtype.count > 1 else self.c(u)
  def guard(self, gate: Sequence[UOp], i: int = 0) -> str:
    """What a statement begins with that is for element ``i`` where its gate is true; nothing where it has none."""
    return f"if ({self.element(gate[0], i)}) " if gate else ""
  def wide(self, u: UOp, n: int, prec: int = COND, bare: bool = False) -> str:
    """A value as operand of ``n`` lanes. Operators widen scalars of 4 and 8 bytes themselves: ``bare`` leaves it to them."""
    if u.dtype.count == n: return self.c(u, prec)
    if u.dtype.kind == "b": return f"(int{n})({'-' + self.c(u, UNARY) if u.op is not Ops.CONST else str(-int(u.arg))})"
    t = self.value_type(u.dtype.vec(n))
    return self.c(u, prec) if bare and t.size >= 4 else f"({t})({self.c(u)})"
  def sign(self, infix: str) -> str: return infix.strip() if self.language.parenthesised else infix
  def choice(self, cond: str, yes: str, no: str) -> Text: return f"{cond}{self.sign(' ? ')}{yes}{self.sign(' : ')}{no}", COND
  def mask(self, t: Type, text: str, prec: int) -> Text:
    """A comparison of vectors of type ``t`` as intN."""
    return (text, prec) if t.n == 1 or t.size == 4 else (t.to("int", text), ATOM)

  # ---- statements
  def node(self, u: UOp) -> None:
    """Write the statements of a node, and note the text of its value where it has one."""
    op = u.op
    if self.phis and op is not Ops.PHI and (op in _BLOCKS or op in (Ops.LOOP, Ops.IF) or any(s in self.phis for s in u.src)):
      self.assign_phis()
    if op in _BLOCKS: self.emit(_BLOCKS[op])
    elif op is Ops.BREAK: self.emit(f"if (!{self.c(u.src[0], UNARY)}) break;")
    elif op is Ops.IF: self.emit(f"if ({self.c(u.src[0])}) {{")
    elif op is Ops.BARRIER:
      if not self.language.barrier and not self.language.serial:
        raise CompileError(f"kernel {self.name}: {self.language.name} has no barrier")
      if self.language.barrier: self.emit(self.language.barrier)
    elif op is Ops.STORE: self.store(u)
    elif op is Ops.ATOMIC: self.atomic(u)
    elif op is Ops.PRINT: self.print(u)
    else: self.text[u] = self.value(u)

  def value(self, u: UOp) -> Text:
    """The text of a value: an expression, or the name of a variable that is declared here."""
    op, arg = u.op, u.arg
    if op is Ops.CONST: return self.constant(u.dtype, arg)
    if op is Ops.DEFINE_VAR: return self.called[arg], ATOM
    if op is Ops.DEFINE_GLOBAL:
      slot, name = arg[:2]
      if arg[3:] and self.language.offsets: self.emit(f"{name} += at{slot}/sizeof(*{name});")
      return name, ATOM
    if op is Ops.DEFINE_LOCAL:
      name, size, where = arg
      self.arrays.append(f"{self.language.spaces[where]}{self.stored_type(u.dtype)} {name}[{size}]{self.language.aligned};")
      return name, ATOM
    if op is Ops.PHI:
      self.phis.append(u)
      return self.text[u.src[0]]
    t = self.value_type(u.dtype)
    if op is Ops.SPECIAL:
      name, position = f"{arg[0]}idx{arg[1]}", self.language.position(*arg)
      if position != name: self.emit(f"{t} {name} = {position};")
      return name, ATOM
    if op is Ops.LOOP:
      name, step = self.fresh(self.language.index), step_of(u)
      self.emit(f"for ({t} {name} = {self.c(u.src[0])}; {name} < {self.c(u.src[1], SUM)}; "
                f"{name}{'++' if step is None else f' += {self.c(step)}'}) {{")
      return name, ATOM
    if op is Ops.DEFINE_ACC: return self.declare("acc", self.constant(u.dtype, arg)[0], t)
    lines = len(self.lines)
    text = self.expression(u)
    if u in self.facts.inline and (len(text[0]) <= 100 or u in self.facts.joined): return text
    if u.op is Ops.LOAD and len(self.lines) > lines: return text
    return self.declare(_PREFIXES.get(op, "alu"), text[0], t)

  def next_value(self, phi: UOp) -> tuple[str, Type]: return self.c(phi.src[1]), self.value_type(phi.dtype)

  # ---- memory
  def where(self, buffer: UOp, index: UOp) -> Text:
    """The C pointer to an element."""
    if index.op is Ops.CONST and index.arg == 0: return self.text[buffer]
    return f"{self.c(buffer)}{self.sign(' + ')}{self.c(index, SUM)}", SUM

  def pointer(self, buffer: UOp, index: UOp, t: Type, const: bool, aligned: bool = False) -> str:
    """The C pointer to the vector of type ``t`` in ``buffer`` from ``index`` on. An unaligned vector has a type of its own:
    dereferencing that inlines, PoCL's vloadN is a call."""
    name = str(t)
    if not aligned:
      name += "u"
      self.typedefs[name] = f"typedef {t} {name} __attribute__((aligned({t.size})));"
    return (f"({self.language.spaces['global' if buffer.op is Ops.DEFINE_GLOBAL else buffer.arg[2]]}{'const ' if const else ''}"
            f"{name}*){self.inside(self.where(buffer, index), UNARY)}")

  def place(self, buffer: UOp, index: UOp, t: Type, const: bool) -> str:
    """The C lvalue of ``t.n`` elements of ``buffer`` from ``index`` on."""
    if t.n > 1: return f"*{self.pointer(buffer, index, t, const)}"
    if index in self.facts.inline and (split := after(index)) is not None and (buffer, split[0]) in self.facts.bases:
      return self.language.element(f"({self.where(buffer, split[0])[0]})", self.text[split[1]])
    return self.language.element(self.c(buffer), self.text[index])

  def lane(self, buffer: UOp, index: UOp, i: int) -> str:
    """The C lvalue of element ``index + i`` of ``buffer``."""
    return f"{self.c(buffer)}[{str(index.arg + i) if index.op is Ops.CONST else self.c(index, SUM) + (f' + {i}' if i else '')}]"

  def load(self, u: UOp) -> Text:
    """The elements of a LOAD; where its gate is false they are not read."""
    dtype, (buffer, index, *more) = u.dtype, u.src
    gate = more[0] if more else None
    other = more[1] if len(more) > 1 else UOp.const(dtype.scalar(), 0)
    if other not in self.text: self.node(other)
    t, n = self.stored_type(dtype), dtype.count
    if gate is not None and gate.dtype.count > 1:
      lanes = []
      # as a whole where that lies in memory, else where all lanes are read
      all_lanes = None if n == 3 else self.c(more[2]) if more[2:] else self.all_lanes(gate)
      for i in range(n):
        x, o = self.widen(self.lane(buffer, index, i), dtype.scalar())[0], self.element(other, i)
        if dtype.kind == "b": x, o = f"-({x})", f"-({o})" if other.dtype.count == 1 else o
        lanes.append(f"{self.element(gate, i)} ? {x} : {o}")
      some = f"({self.value_type(dtype)})({', '.join(lanes)})"
      if all_lanes is None: return some, ATOM
      name = self.fresh("val")
      self.emit(f"{self.value_type(dtype)} {name};")
      self.emit(f"if ({all_lanes}) {name} = {self.widen(self.place(buffer, index, t, True), dtype)[0]};")
      self.emit(f"else {name} = {some};")
      return name, ATOM
    if n == 3: raw = f"({t})({', '.join(self.lane(buffer, index, i) for i in range(n))})"  # a 3-vector takes the room of 4
    else: raw = self.place(buffer, index, t, True)
    value = self.widen(raw, dtype)
    return value if gate is None else self.choice(self.c(gate, LOR), self.inside(value, LOR), self.wide(other, n, LOR))

  def all_lanes(self, gate: UOp) -> str | None:
    """The condition that a gate of lanes is true for all of them; None where some are known, and the others soon tested."""
    return None if gate.op is Ops.VECTORIZE else self.sign(" & ").join(self.element(gate, i) for i in range(gate.dtype.count))

  def widen(self, raw: str, dtype: DType) -> Text:
    """A value in memory's type to its register type."""
    t = self.stored_type(dtype)
    if dtype.scalar() in NARROW: return self.call(f"{dtype.short}_to_float", t, raw)
    if dtype.kind == "b": return (raw, UNARY) if t.n == 1 else (f"{t.to('int', raw)} != 0", EQUAL)
    return raw, UNARY if t.n > 1 else ATOM

  def narrow(self, u: UOp) -> Text:
    """A value in its register type to memory's type."""
    t = self.value_type(u.dtype)
    if u.dtype.scalar() in NARROW: return self.call(f"float_to_{u.dtype.short}", t, self.c(u))
    return (t.to("uchar", f"{self.c(u, AND)} & 1"), ATOM) if u.dtype.kind == "b" and t.n > 1 else self.text[u]

  def store(self, u: UOp) -> None:
    """Write a value to memory, where the gate is true."""
    buffer, index, value, *gate = u.src
    t, text = self.stored_type(value.dtype), self.inside(self.narrow(value), COND)
    if t.n == 3 or (gate and gate[0].dtype.count > 1):
      if self.text[value] != (text, ATOM): text, _ = self.declare("out", text, t)
      every = self.all_lanes(gate[0]) if gate and t.n != 3 and gate[0].dtype.count > 1 else None
      if every is not None:
        self.emit(f"if ({every}) {self.place(buffer, index, t, False)} = {text};")
        self.emit("else {")
      for i in range(t.n): self.emit(f"{self.guard(gate, i)}{self.lane(buffer, index, i)} = {text}.s{i:x};")
      if every is not None: self.emit("}")
      return
    if u.arg == "nt" and self.language.streams and t.n*t.size >= 16 and buffer.op is Ops.DEFINE_GLOBAL and \
       factor(index) % t.n == 0 and not any(n < t.n*t.size for n in buffer.arg[3:]):  # such a store must be aligned
      write = f"__builtin_nontemporal_store({text}, {self.pointer(buffer, index, t, False, aligned=True)});"
    else: write = f"{self.place(buffer, index, t, False)} = {text};"
    self.emit(f"{self.guard(gate)}{write}")

  def atomic(self, u: UOp) -> None:
    """``*p = fn(*p, value)`` as one step; what was there before it goes to a variable."""
    buffer, index, value = u.src[:3]
    gate, to = [g for g in u.src[3:4] if g.op is not Ops.CONST], u.src[4:6]
    if self.language.serial:
      old = UOp(Ops.LOAD, buffer.dtype, (buffer, index, *gate))
      text = self.expression(old)
      self.text[old] = self.declare("old", text[0], self.value_type(old.dtype)) if to else text
      new = value
      if u.arg == "cas": new = UOp.alu(BinaryOps.CMPEQ, old, u.src[6]).where(value, old)
      elif u.arg != "xchg": new = UOp.alu(BinaryOps[u.arg.upper()], old, value)
      for x in toposort((new,), self.text.__contains__):
        if x not in self.text: self.text[x] = self.expression(x)
      self.store(UOp(Ops.STORE, u.dtype, (buffer, index, new, *gate)))
    else:
      values = [self.c(x) for x in (*u.src[6:], value)]
      call, helpers, head = self.language.atomic(u.arg, buffer.dtype, self.where(buffer, index)[0], *values)
      self.typedefs.update(zip(head, head))
      self.helpers.update(helpers)
      if not to: return self.emit(f"{self.guard(gate)}{call};")
      old, t = UOp(Ops.CAST, buffer.dtype, (u,)), self.value_type(buffer.dtype)
      name, _ = self.text[old] = self.declare("old", "0", t)
      self.emit(f"{self.guard(gate)}{name} = {call};")
    if to: self.store(UOp(Ops.STORE, u.dtype, (*to, old)))

  def print(self, u: UOp) -> None:
    """A line for each element of each variable, in order; without variables a line."""
    head, said, n = self.language.printing, u.arg, len(u.arg.shapes)
    if head is None:
      raise CompileError(f"kernel {self.name}: {self.language.name} has no printf for device_print; CPU, CUDA and NUMPY print")
    self.typedefs.update(zip(head, head))
    def ints(values: Sequence[str]) -> str: return f"({', '.join(['%d'] * len(values))})"
    def printf(text: str, *values: str) -> str:
      return f"printf({', '.join([json.dumps(f'pid {ints(place)} {text}' + chr(10)), *place, *values])});"
    place = [f"(int){self.c(s, UNARY)}" for s in u.src[n:]]
    if not n: self.emit(printf(said.text.replace("%", "%%")))
    for v, shape, label in zip(u.src, said.shapes, said.labels()):
      i, kind, wide = self.fresh("at"), v.dtype.kind, v.dtype.itemsize == 8
      value = self.widen(f"{self.c(v)}[{i}]", v.dtype)[0]
      if kind != "f": value = f"({'unsigned ' * (kind == 'u')}{'long' if wide else 'int'})({value})"
      how = f"%.{16 if wide else 7}g" if kind == "f" else f"%{'l' * wide}{'u' if kind == 'u' else 'd'}"
      idx = [f"{i} / {prod(shape[d + 1:])} % {size}" if len(shape) > 1 else i for d, size in enumerate(shape)]
      line = printf(f"idx {ints(idx)} {label.replace('%', '%%')}{how}", *idx, value)
      self.emit(f"for (int {i} = 0; {i} < {prod(shape)}; {i}++) {line}")

  # ---- expressions
  def expression(self, u: UOp) -> Text:
    """The C text of what a node computes."""
    op, n, src = u.op, u.dtype.count, u.src
    t = self.value_type(u.dtype)
    if op is Ops.LOAD: return self.load(u)
    if op in (Ops.VECTORIZE, Ops.GEP) and src[0].dtype.count == n: return self.text[src[0]]
    if op is Ops.VECTORIZE:
      return f"({t})({', '.join(f'-{self.c(s, UNARY)}' if u.dtype.kind == 'b' else self.c(s) for s in src)})", ATOM
    if op is Ops.GEP:
      lane = self.element(src[0], u.arg)
      return (f"({lane} != 0)", ATOM) if u.dtype.kind == "b" else (lane, ATOM)
    if op in (Ops.CAST, Ops.BITCAST) and src[0].dtype.count != n:   # a scalar is converted, then widened
      one = u.replace(src, dtype=u.dtype.scalar())
      self.text[one] = self.expression(one)
      return self.wide(one, n), ATOM
    if op is Ops.CAST: return self.cast(u)
    if op is Ops.BITCAST: return self.bitcast(u)
    refused = refusal(u.arg, src[-1].dtype.scalar()) if op is Ops.ALU else f"{self.language.name} cannot express {u!r}"
    if refused: raise CompileError(f"kernel {self.name}: {refused}")
    if isinstance(u.arg, UnaryOps): return self.unary(u)
    if isinstance(u.arg, BinaryOps): return self.binary(u)
    cond, yes, no = src
    text = self.c(cond, LOR)
    if cond.dtype.count > 1 and t.size != 4: text = t.of("int").to(SIGNED[t.size], text)
    return self.choice(text, self.wide(yes, n, LOR), self.wide(no, n, LOR))

  def cast(self, u: UOp) -> Text:
    x = u.src[0]
    s, d = x.dtype.scalar(), u.dtype.scalar()
    f, t, value = self.value_type(x.dtype), self.value_type(u.dtype), self.text[x]
    if x.op is Ops.CONST and t.n == 1: return self.constant(d, cast_number(x.arg, s, d))
    if s is d: return value
    if d.kind == "b": return self.mask(f, f"{self.c(x, LESS)} != {f'({f})(0)' if t.n > 1 else '0'}", EQUAL)
    if s.kind == "b" and t.n > 1: value = f"{self.c(x, AND)} & 1", AND
    if d in NARROW: return self.rounded(u, value, f)
    if f == t: return value
    # a float out of the range of an int is undefined; by way of int it wraps, as numpy does on most machines
    if s.kind == "f" and d.kind in "iu" and d.itemsize < 4: f, value = f.of("int"), self.convert(value, f, f.of("int"))
    return self.convert(value, f, t)

  def convert(self, value: Text, f: Type, t: Type) -> Text:
    """A value of type ``f`` as type ``t``."""
    return (f.to(t.base, value[0]), ATOM) if f.n > 1 else (f"({t}){self.inside(value, UNARY)}", UNARY)

  def rounded(self, u: UOp, value: Text, f: Type) -> Text:
    """A register value of type ``f`` rounded to what the narrow float of a CAST holds, as a float again."""
    single, double, ints = f.of("float"), f.of("double"), f.base in ("int", "uint", "long", "ulong")
    if ints and "float64" in self.language.values: f, value = double, self.convert(value, f, double)
    if ints or f == double: value = self.call("to_odd", f, value[0])
    elif f != single: value = self.convert(value, f, single)
    if u in self.facts.unrounded: return value
    return self.widen(self.call(f"float_to_{u.dtype.short}", single, value[0])[0], u.dtype)

  def bitcast(self, u: UOp) -> Text:
    x, d = u.src[0], u.dtype.scalar()
    text, raw, out = self.narrow(x), self.stored_type(x.dtype), self.stored_type(u.dtype)
    if raw.size != out.size: raise CompileError(f"kernel {self.name}: BITCAST from {x.dtype} to {u.dtype}: item sizes differ")
    if raw != out: text = self.resolve(raw.bits(out.base, self.inside(text, COND)), raw), ATOM
    return self.widen(self.inside(text, UNARY), u.dtype) if d in NARROW or d.kind == "b" else text

  def unary(self, u: UOp) -> Text:
    fn, x, t = u.arg, u.src[0], self.value_type(u.dtype)
    wide, operand = self.wide(x, t.n), self.wide(x, t.n, UNARY)
    if fn is UnaryOps.ISNAN:
      return self.binary(UOp.alu(BinaryOps.CMPNE, x, x)) if x.dtype.kind == "f" else self.constant(u.dtype, False)
    if fn is UnaryOps.NOT:
      return (f"!{operand}", UNARY) if u.dtype.kind == "b" and t.n == 1 else self.wrapped(u, f"~{operand}", UNARY)
    if fn is UnaryOps.NEG:
      if u in self.facts.exposed: return self.signed(u, f"-{self.unsigned(x, ATOM if x in self.modular else UNARY, t.n)}", UNARY)
      return self.wrapped(u, f"-({operand})" if operand.startswith("-") else f"-{operand}", UNARY)
    if fn is UnaryOps.ABS and u.dtype.kind in "if": return self.call("abs", t, wide)
    if u.dtype.kind in "iub": return self.text[x]   # ABS and roundings of what has neither sign nor fraction
    if fn in (UnaryOps.RECIP, UnaryOps.RSQRT):
      return (f"{self.constant(u.dtype.scalar(), 1.0)[0]}/"
              f"{operand if fn is UnaryOps.RECIP else self.call('sqrt', t, wide)[0]}"), PRODUCT
    return self.call("rint" if fn is UnaryOps.ROUND else fn.name.lower(), t, wide)

  def wrapped(self, u: UOp, text: str, prec: int) -> Text:
    """C computes with 8 and 16 bit scalars as int: cut the result back."""
    t = self.value_type(u.dtype)
    return (text, prec) if t.n > 1 or u.dtype.kind not in "iu" or t.size >= 4 else (f"({t})({text})", UNARY)

  def unsigned(self, x: UOp, prec: int, n: int, bare: bool = False) -> str:
    """An int of ``n`` lanes as an operand of unsigned ints; ``bare``: beside another one, which makes it one as well."""
    if x in self.modular and n == x.dtype.count: return self.inside(self.modular[x], prec)
    t = self.value_type(x.dtype.scalar().vec(n))
    if n > 1: return t.bits(f"u{t.base}", self.wide(x, n))
    return self.c(x, prec) if bare else f"({t.of('u' + t.base)}){self.c(x, UNARY)}"

  def signed(self, u: UOp, text: str, prec: int) -> Text:
    """What was computed with unsigned ints, as a signed one again; where it is summed on it stays what it is."""
    t = self.value_type(u.dtype)
    if u in self.facts.inline: self.modular[u] = text, prec
    return (f"({t})({text})", UNARY) if t.n == 1 else (t.of(f"u{t.base}").bits(t.base, text), ATOM)

  def logic(self, u: UOp) -> Text:
    """A function of bools, a mask of -1 and 0 where they are vectors; a < b is !a && b, a <= b is !a || b."""
    (a, b), n = u.src, u.dtype.count
    fn = {BinaryOps.CMPLT: BinaryOps.AND, BinaryOps.CMPLE: BinaryOps.OR}.get(u.arg) or FUNCTIONS[u.arg].boolean or u.arg
    infix, prec = (_LOGIC if n == 1 else C)[fn]
    most, least = (UNARY, UNARY) if fn is BinaryOps.XOR else (prec, prec - 1)
    left = self.wide(a, n, most) if u.arg not in COMPARE else ("!" if n == 1 else "~") + self.wide(a, n, UNARY)
    return f"{left}{self.sign(infix)}{self.wide(b, n, least)}", prec

  def binary(self, u: UOp) -> Text:
    fn, (a, b), n, t = u.arg, u.src, u.dtype.count, self.value_type(u.dtype)
    kind = a.dtype.kind
    if kind == "b" and fn not in (BinaryOps.CMPEQ, BinaryOps.CMPNE): return self.logic(u)
    whole = [self.wide(x, n) for x in u.src]
    # C's division truncates, and by zero it ends the process
    floors = fn in (BinaryOps.IDIV, BinaryOps.MOD) and not (kind in "iu" and vmin(a) >= 0 and vmin(b) > 0)
    far = fn in (BinaryOps.SHL, BinaryOps.SHR) and not 0 <= vmin(b) <= vmax(b) < 8*t.size
    if floors or far or fn not in C: return self.call(fn.name.lower(), t, *whole)
    sign, prec = self.sign(C[fn][0]), C[fn][1]
    if u in self.facts.exposed:
      first = self.language.parenthesised and a in self.modular and a.arg is fn and fn in (BinaryOps.ADD, BinaryOps.MUL)
      left = self.modular[a][0] if first else self.unsigned(a, prec, n)   # of a chain
      right = self.c(b, UNARY) if fn is BinaryOps.SHL and n == 1 else self.unsigned(b, prec - 1, n, bare=True)
      return self.signed(u, f"{left}{sign}{right if right[0] != '-' else f'({right})'}", prec)
    if n == 1 and (fn is BinaryOps.MUL and t.base == "ushort" or fn is BinaryOps.SHL and t.size < 4):   # C has ints of these
      return f"({t})(({t.of('uint')}){self.c(a, UNARY)}{sign}{self.c(b, UNARY)})", UNARY
    chain = a.op is Ops.ALU and a.arg is fn
    most, least = operands(fn, prec, chain)
    # of shifts C takes no scalar beside a vector on the left
    left, right = self.wide(a, n, most, bare=fn not in (BinaryOps.SHL, BinaryOps.SHR)), self.wide(b, n, least, bare=True)
    if chain and self.language.parenthesised and fn in (BinaryOps.ADD, BinaryOps.MUL): left = self.text[a][0]
    if fn in (BinaryOps.ADD, BinaryOps.SUB) and right[0] == "-": right = f"({right})"
    if a.dtype.count == b.dtype.count == 1 and n > 1: left = whole[0]
    text = f"{left}{sign}{right}"
    return self.mask(self.value_type(a.dtype.scalar().vec(n)), text, prec) if fn in COMPARE else self.wrapped(u, text, prec)

  # ---- the whole
  def source(self, notes: Sequence[str] = ()) -> KernelSource:
    """What is written, rendered once."""
    language = self.language
    self.check_arrays()
    for line in language.begin(self.uops): self.emit(line)
    top, margin = len(self.lines), "  "*self.depth
    for u in self.uops: self.node(u)
    self.assign_phis()
    self.lines[top:top] = [f"{margin}{line}" for line in self.arrays]
    while self.depth: self.emit("}")
    if (reserved := language.reserved) is not None and self.name in reserved.union(self.helpers):
      raise CompileError(f"no kernel can be called {self.name}: {language.name} has something of this name; give it another")
    loaded, stored = touched(self.uops, Ops.LOAD), touched(self.uops, Ops.STORE, Ops.ATOMIC)
    args = dict[str, str]()
    params = parameters(self.uops)
    for name, p in params.items():
      if p is None: args[name] = language.param(self.stored_type(dtypes.uint8), name, False, False)
      else: args[name] = language.param(self.stored_type(p.dtype), name, p.arg[2] or p in stored, p not in loaded & stored)
    for size, dtype in self.sizes.items():
      args[self.called[size]] = language.size_param(self.value_type(dtype), self.called[size])
    begun = tuple((p.arg[0], p.arg[3]) for p in params.values() if p is not None and p.arg[3:])
    if language.offsets: args.update({f"at{slot}": f"{self.stored_type(dtypes.uint64)} at{slot}" for slot, _ in begun})
    local = {u.arg[1]: u.arg[2] for u in self.uops if u.op is Ops.SPECIAL and u.arg[0] == "l"}
    place = "\0" * len(self.name)   # of the name, which is another one where several kernels are in one program
    head = "".join(f"// {note}\n" for note in notes)
    head += language.head(place, list(args.values()), [local.get(i, 1) for i in range(3)])
    before, _, after = "\n".join([head, *self.lines]).partition(place)
    declared = *self.typedefs.values(), *self.helpers.values()
    parts = ["\n".join(self.typedefs.values())] if self.typedefs else []
    text = "\n\n".join([*parts, *self.helpers.values(), f"{before}{self.name}{after}\n"])
    return KernelSource(text, tuple(args.items()), (), declared, begun, (before, after), max(1.0, len(text) / 2000),
                        tuple(self.sizes.values()))
