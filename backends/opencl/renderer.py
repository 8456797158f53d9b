"""Linear UOps to OpenCL C, written to be read: one statement for each value that is used twice or has an effect, the rest inline.

Values of float16, bfloat16 and the fp8 dtypes are held in ``float`` registers (PoCL has no ``cl_khr_fp16``): LOAD widens them, STORE,
CAST and BITCAST round them to nearest even; ALU results between are not rounded. A vector of bool is an ``intN`` of 0 and -1.
"""
from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Sequence

import numpy as np

from ntgrad.backends.base import KernelSource, Renderer
from ntgrad.backends.opencl import atomics, mathlib, prelude  # noqa: F401  (mathlib's helpers are found by name)
from ntgrad.backends.opencl.analysis import Facts, analyse
from ntgrad.backends.opencl.prelude import SIGNED, SIZES, Type
from ntgrad.codegen.config import config
from ntgrad.codegen.dtype import DType, cast_number, dtypes, held
from ntgrad.codegen.errors import CompileError
from ntgrad.codegen.target import Target
from ntgrad.codegen.uop import COMPARE, BinaryOps, Ops, TernaryOps, UnaryOps, UOp, step_of

DEFAULT_TARGET = Target("opencl", lanes=8, registers=16, cores=2)   # where no device and no setting says otherwise
NARROW = frozenset((dtypes.float16, dtypes.bfloat16, dtypes.float8_e4m3, dtypes.float8_e5m2))
WIDTHS = (1, 2, 3, 4, 8, 16)
_BASE = {"bool": "bool", "int8": "char", "uint8": "uchar", "int16": "short", "uint16": "ushort", "int32": "int", "uint32": "uint",
         "int64": "long", "uint64": "ulong", "float8_e4m3": "float", "float8_e5m2": "float", "float16": "float", "bfloat16": "float",
         "float32": "float", "float64": "double"}
_STORED = {**_BASE, "bool": "uchar", "float8_e4m3": "uchar", "float8_e5m2": "uchar", "float16": "ushort", "bfloat16": "ushort"}

# precedences of C, the tightest first
ATOM, UNARY, MUL, ADD, SHIFT, LESS, EQUAL, AND, XOR, OR, LAND, LOR, COND = range(13)
_INFIX = {
  BinaryOps.ADD: (" + ", ADD), BinaryOps.SUB: (" - ", ADD), BinaryOps.MUL: ("*", MUL), BinaryOps.DIV: ("/", MUL), BinaryOps.IDIV: ("/", MUL),
  BinaryOps.MOD: ("%", MUL), BinaryOps.SHL: (" << ", SHIFT), BinaryOps.SHR: (" >> ", SHIFT), BinaryOps.CMPLT: (" < ", LESS),
  BinaryOps.CMPLE: (" <= ", LESS), BinaryOps.CMPEQ: (" == ", EQUAL), BinaryOps.CMPNE: (" != ", EQUAL), BinaryOps.AND: (" & ", AND),
  BinaryOps.OR: (" | ", OR), BinaryOps.XOR: (" ^ ", XOR)}
# arithmetic of bool: on scalars, and on vectors, which are masks
_LOGIC = {BinaryOps.AND: "and", BinaryOps.MUL: "and", BinaryOps.MIN: "and", BinaryOps.OR: "or", BinaryOps.ADD: "or", BinaryOps.MAX: "or",
          BinaryOps.XOR: "xor", BinaryOps.SUB: "xor"}
_BOOL = {"and": (" && ", LAND), "or": (" || ", LOR), "xor": (" != ", EQUAL)}
_MASK = {"and": (" & ", AND), "or": (" | ", OR), "xor": (" ^ ", XOR)}
_BUILTIN = {
  UnaryOps.SQRT: "sqrt", UnaryOps.EXP: "exp", UnaryOps.EXP2: "exp2", UnaryOps.LOG: "log", UnaryOps.LOG2: "log2", UnaryOps.SIN: "sin",
  UnaryOps.COS: "cos", UnaryOps.TAN: "tan", UnaryOps.TANH: "tanh", UnaryOps.ERF: "erf", UnaryOps.FLOOR: "floor", UnaryOps.CEIL: "ceil",
  UnaryOps.TRUNC: "trunc", UnaryOps.ROUND: "rint"}
Text = tuple[str, int]  # C and its precedence


def pretended(machine: Target) -> Target:
  """A CPU's target with what ``config.vector_bits`` and ``config.cores`` say in place of the machine's."""
  lanes = config.vector_bits // 32 or machine.lanes
  # AVX-512 has 32 registers of 16 floats, AVX2 16 of 8
  return replace(machine, lanes=lanes, registers=32 if lanes >= 16 else 16, cores=config.cores or machine.cores)


class OpenCLRenderer(Renderer):
  """OpenCL C for a target. Needs no device."""

  def __init__(self, target: Target | None = None, bad: prelude.Bad = prelude.trusted):
    self.target, self.bad = target or pretended(DEFAULT_TARGET), bad

  def render(self, name: str, uops: Sequence[UOp], notes: Sequence[str] = ()) -> KernelSource:
    """The source of a kernel called ``name``: the helper functions that it uses, the notes, then the kernel, blank lines between.

    Raises CompileError for what OpenCL C cannot express: vectors other than 2, 3, 4, 8, 16 wide, index dtypes,
    arrays larger than the target's local memory.
    """
    return _Kernel(self.target, name, uops, self.bad).source(notes)


def register_type(dtype: DType) -> Type:
  """The C type that holds a value of ``dtype``."""
  if dtype.count not in WIDTHS:
    raise CompileError(f"OpenCL has no vectors of {dtype.count} elements ({dtype}); widths: 2, 3, 4, 8, 16")
  if dtype.name not in _BASE:
    raise CompileError(f"OpenCL has no dtype {dtype}; index dtypes must be lowered to int32 or int64 before rendering")
  return Type("int" if dtype.kind == "b" and dtype.count > 1 else _BASE[dtype.name], dtype.count)


def stored_type(dtype: DType) -> Type:
  """The C type that memory has for elements of ``dtype``."""
  register_type(dtype)
  return Type(_STORED[dtype.name], dtype.count)


def constant(dtype: DType, value: Any) -> Text:
  """A literal of a scalar dtype."""
  register_type(dtype)
  if dtype.kind == "b": return ("true" if value else "false", ATOM)
  if dtype.kind == "f":
    value = held(value, dtype)
    if math.isnan(value): return ("NAN", ATOM)
    if math.isinf(value): return ("INFINITY", ATOM) if value > 0 else ("-INFINITY", UNARY)
    text = repr(value) if dtype is dtypes.float64 else str(np.float32(value))
    if "." not in text and "e" not in text: text += ".0"
    return (text + ("" if dtype is dtypes.float64 else "f"), UNARY if text[0] == "-" else ATOM)
  value = int(value)
  suffix = {"uint": "u", "long": "L", "ulong": "uL"}.get(_BASE[dtype.name], "")
  least = dtype.kind == "i" and dtype.itemsize >= 4 and value == dtypes.min(dtype)
  if least: return (f"(-{-value - 1}{suffix} - 1)", ATOM)  # C reads the number before the sign
  return (f"{value}{suffix}", UNARY if value < 0 else ATOM)


class _Kernel:
  """One rendering: the lines so far and the C text of every value."""

  def __init__(self, target: Target, name: str, uops: Sequence[UOp], bad: prelude.Bad):
    self.target, self.name, self.uops, self.bad = target, name, list(uops), bad
    self.facts: Facts = analyse(self.uops)
    self.native = target.locals  # a GPU: its own math builtins are fast
    self.lines: list[str] = []
    self.top: list[str] = []      # declarations of arrays, which C wants at function scope
    self.depth = 1
    self.text: dict[UOp, Text] = {}
    self.helpers: dict[str, str] = {}
    self.typedefs: dict[str, str] = {}
    self.counts: dict[str, int] = {}
    self.phis: list[UOp] = []     # assignments that wait for the end of the loop

  def source(self, notes: Sequence[str] = ()) -> KernelSource:
    self.check_arrays()
    for u in self.uops: self.node(u)
    self.flush()
    params = sorted((u for u in self.uops if u.op is Ops.DEFINE_GLOBAL), key=lambda u: u.arg[0])
    loaded = {u.src[0] for u in self.uops if u.op is Ops.LOAD}
    stored = {u.src[0] for u in self.uops if u.op in (Ops.STORE, Ops.ATOMIC)}
    signature: list[tuple[str, str]] = []
    for u in params:
      slot, name, written = u.arg
      while len(signature) < slot: signature.append((f"unused{len(signature)}", "__global const uchar*"))
      restrict = "" if u in loaded and u in stored else " restrict"
      signature.append((name, f"__global {'' if written or u in stored else 'const '}{stored_type(u.dtype)}*{restrict}"))
    args = [f"{t} {name}" for name, t in signature]
    size = [1, 1, 1]
    for u in self.uops:
      if u.op is Ops.SPECIAL and u.arg[0] == "l": size[u.arg[1]] = u.arg[2]
    attribute = f"__attribute__((reqd_work_group_size({size[0]}, {size[1]}, {size[2]})))"
    head = f"({', '.join(args)}) {{"
    if len(f"void {self.name}{head}") > 130: head = "(" + ",".join(f"\n    {a}" for a in args) + ") {"
    # GPUs' compilers fuse products and sums on their own: only sums over many elements gain by it, other numbers keep numpy's bits
    fused = not self.target.locals or any(u.op is Ops.LOOP for u in self.uops)
    before = "".join(f"// {note}\n" for note in notes) + f"__kernel {attribute}\nvoid "
    after = "\n".join([head, *([] if fused else ["  #pragma OPENCL FP_CONTRACT OFF"]), *self.top, *self.lines, "}"])
    parts = ["\n".join(self.typedefs.values())] if self.typedefs else []
    text = "\n\n".join([*parts, *self.helpers.values(), f"{before}{self.name}{after}"]) + "\n"
    helpers = (*self.typedefs.values(), *self.helpers.values())
    return KernelSource(text, tuple(signature), (), helpers, (before, after), max(1.0, len(text)/2000))

  def check_arrays(self) -> None:
    """PoCL does not check the size of local memory, nor of the stack: too much of either ends the process."""
    for where in ("local", "private"):
      arrays = [u for u in self.uops if u.op is Ops.DEFINE_LOCAL and u.arg[2] == where]
      total = sum(u.arg[1]*stored_type(u.dtype).size for u in arrays)
      most = self.target.local_memory or 1 << 19
      if total > most:
        raise CompileError(f"kernel {self.name}: {total:,} bytes of {where} arrays; {self.target.name} takes {most:,}")

  # ---- small tools
  def emit(self, line: str) -> None: self.lines.append("  "*self.depth + line)
  def fresh(self, prefix: str) -> str:
    n = self.counts.get(prefix, 0)
    self.counts[prefix] = n + 1
    return f"{prefix}{n}"
  def call(self, name: str, t: Type, *args: str) -> Text:
    """A call of a helper of the prelude, which is added to the source."""
    for key, text in prelude.source(name, str(t), self.bad): self.helpers[key] = text
    return (f"{name}_{t}({', '.join(args)})", ATOM)
  def unaligned(self, t: Type) -> str:
    """A name for vector type ``t`` where an element may lie: dereferencing it inlines, PoCL's vloadN is a call."""
    self.typedefs[f"{t}u"] = f"typedef {t} {t}u __attribute__((aligned({SIZES[t.base]})));"
    return f"{t}u"
  def c(self, u: UOp, prec: int = COND) -> str:
    """The C text of a value, in parentheses unless it binds at least as tightly as ``prec``."""
    text, p = self.text[u]
    return text if p <= prec else f"({text})"
  def wide(self, u: UOp, n: int, prec: int = COND, force: bool = False) -> str:
    """A value as operand of ``n`` lanes: C widens scalars of 4 and 8 bytes by itself, ``force`` writes it out."""
    if u.dtype.count == n: return self.c(u, prec)
    if u.dtype.kind == "b": return f"(int{n})({'-' + self.c(u, UNARY) if u.op is not Ops.CONST else str(-int(u.arg))})"
    t = register_type(u.dtype).base
    if not force and SIZES[t] >= 4: return self.c(u, prec)
    return f"({t}{n})({self.c(u)})"
  def mask(self, t: Type, text: str, prec: int) -> Text:
    """A comparison of vectors of type ``t`` as intN."""
    return (text, prec) if t.n == 1 or t.size == 4 else (t.to("int", text), ATOM)

  # ---- statements
  def node(self, u: UOp) -> None:
    op = u.op
    if op is Ops.CONST:
      self.text[u] = constant(u.dtype.scalar(), u.arg)
      if u.dtype.count > 1:
        t = register_type(u.dtype)
        self.text[u] = (f"({t})({-int(u.arg) if u.dtype.kind == 'b' else self.text[u][0]})", ATOM)
    elif op is Ops.DEFINE_GLOBAL: self.text[u] = (u.arg[1], ATOM)
    elif op is Ops.DEFINE_LOCAL:
      name, size, where = u.arg
      space = "__local " if where == "local" else ""
      self.top.append(f"  {space}{stored_type(u.dtype)} {name}[{size}] __attribute__((aligned(64)));")
      self.text[u] = (name, ATOM)
    elif op is Ops.SPECIAL:
      kind, dim, _ = u.arg
      name = f"{kind}idx{dim}"
      t = register_type(u.dtype)
      self.emit(f"{t} {name} = {'get_group_id' if kind == 'g' else 'get_local_id'}({dim});")
      self.text[u] = (name, ATOM)
    elif op is Ops.LOOP:
      name, t = self.fresh("i"), register_type(u.dtype)
      step = step_of(u)
      more = f"{name}++" if step is None else f"{name} += {self.c(step)}"
      self.emit(f"for ({t} {name} = {self.c(u.src[0])}; {name} < {self.c(u.src[1], ADD)}; {more}) {{")
      self.text[u] = (name, ATOM)
      self.depth += 1
    elif op is Ops.WHILE:
      self.emit("while (1) {")
      self.depth += 1
    elif op is Ops.BREAK: self.emit(f"if (!{self.c(u.src[0], UNARY)}) break;")
    elif op is Ops.ELSE:
      self.depth -= 1
      self.emit("} else {")
      self.depth += 1
    elif op in (Ops.ENDLOOP, Ops.ENDIF, Ops.ENDWHILE):
      self.flush()
      self.depth -= 1
      self.emit("}")
    elif op is Ops.IF:
      self.flush()
      self.emit(f"if ({self.c(u.src[0])}) {{")
      self.depth += 1
    elif op is Ops.BARRIER: self.emit("barrier(CLK_LOCAL_MEM_FENCE);")
    elif op is Ops.DEFINE_ACC:
      name, t = self.fresh("acc"), register_type(u.dtype)
      start = constant(u.dtype.scalar(), u.arg)[0]
      if t.n > 1: start = f"({t})({-int(u.arg) if u.dtype.kind == 'b' else start})"
      self.emit(f"{t} {name} = {start};")
      self.text[u] = (name, ATOM)
    elif op is Ops.PHI:
      self.text[u] = self.text[u.src[0]]
      self.phis.append(u)
    elif op is Ops.SINK: pass
    else:
      if any(s in self.phis for s in u.src): self.flush()
      if op is Ops.STORE: self.store(u)
      elif op is Ops.ATOMIC: self.atomic(u)
      elif op is Ops.LOAD: self.define(u, "val", self.load(u))
      else:
        value = self.value(u)
        if u in self.facts.inline and len(value[0]) <= 100 or (op is Ops.GEP and not self.facts.reads[u]): self.text[u] = value
        else: self.define(u, {Ops.CAST: "cast", Ops.BITCAST: "cast", Ops.VECTORIZE: "vec"}.get(op, "alu"), value)

  def define(self, u: UOp, prefix: str, value: Text) -> None:
    name = self.fresh(prefix)
    self.emit(f"{register_type(u.dtype)} {name} = {value[0]};")
    self.text[u] = (name, ATOM)

  def flush(self) -> None:
    """Write the waiting PHIs: one parallel assignment, so a value that reads an accumulator assigned before it is kept first."""
    values: list[tuple[UOp, str]] = []
    assigned: set[UOp] = set()
    for u in self.phis:
      acc = _acc(u)
      text = self.c(u.src[1])
      if self.facts.reads[u.src[1]] & assigned:
        name = self.fresh("next")
        self.emit(f"{register_type(u.dtype)} {name} = {text};")
        text = name
      assigned.add(acc)
      values.append((acc, text))
    for acc, text in values:
      if text != self.text[acc][0]: self.emit(f"{self.text[acc][0]} = {text};")
    self.phis.clear()

  # ---- memory
  def pointer(self, buffer: UOp, index: UOp, t: Type, const: bool, aligned: bool = False) -> str:
    """The C pointer to the vector of type ``t`` in ``buffer`` from ``index`` on."""
    space = "__global " if buffer.op is Ops.DEFINE_GLOBAL else ("__local " if buffer.arg[2] == "local" else "")
    offset = "" if index.op is Ops.CONST and index.arg == 0 else f" + {self.c(index, ADD)}"
    where = f"{self.c(buffer)}{offset}"
    return f"({space}{'const ' if const else ''}{t if aligned else self.unaligned(t)}*){f'({where})' if offset else where}"

  def place(self, buffer: UOp, index: UOp, t: Type, const: bool) -> str:
    """The C lvalue of ``t.n`` elements of ``buffer`` from ``index`` on."""
    return f"{self.c(buffer)}[{self.c(index)}]" if t.n == 1 else f"*{self.pointer(buffer, index, t, const)}"

  def lane(self, buffer: UOp, index: UOp, i: int) -> str:
    if index.op is Ops.CONST: return f"{self.c(buffer)}[{index.arg + i}]"
    return f"{self.c(buffer)}[{self.c(index, ADD)}{f' + {i}' if i else ''}]"

  def load(self, u: UOp) -> Text:
    buffer, index = u.src[:2]
    gate = u.src[2] if len(u.src) > 2 else None
    other = u.src[3] if len(u.src) > 3 else UOp.const(u.dtype.scalar(), 0)
    if other not in self.text: self.node(other)
    t = stored_type(u.dtype)
    if t.n == 3: raw = f"({t})({', '.join(self.lane(buffer, index, i) for i in range(3))})"  # a 3-vector takes the room of 4
    else: raw = self.place(buffer, index, t, True)
    if gate is not None and gate.dtype.count > 1:
      lanes: list[str] = []
      for i in range(t.n):
        o = self.c(other) + f".s{i:x}" if other.dtype.count > 1 else self.c(other)
        x = self.widen(self.lane(buffer, index, i), u.dtype.scalar())[0]
        if u.dtype.kind == "b": x, o = f"-({x})", f"-({o})" if other.dtype.count == 1 else o
        lanes.append(f"{self.c(gate, ATOM)}.s{i:x} ? {x} : {o}")
      return (f"({register_type(u.dtype)})({', '.join(lanes)})", ATOM)
    value = self.widen(raw, u.dtype)
    if gate is None: return value
    yes = value[0] if value[1] <= LOR else f"({value[0]})"
    return (f"{self.c(gate, LOR)} ? {yes} : {self.wide(other, t.n, LOR, force=True)}", COND)

  def widen(self, raw: str, dtype: DType) -> Text:
    """A value in memory's type to its register type."""
    t = stored_type(dtype)
    if dtype.scalar() in NARROW: return self.call(f"{dtype.short}_to_float", t, raw)
    if dtype.kind == "b": return (raw, UNARY) if t.n == 1 else (f"{t.to('int', raw)} != 0", EQUAL)
    return (raw, UNARY if t.n > 1 else ATOM)

  def narrow(self, u: UOp, n: int) -> str:
    """The C text of a value as memory of its dtype keeps it, ``n`` lanes wide."""
    d = u.dtype.scalar()
    if d in NARROW:
      # the store rounds: a CAST that does the same just before it need not
      if u.op is Ops.CAST and u.src[0].dtype.scalar() is dtypes.float32 and u.src[0].dtype.count == u.dtype.count: u = u.src[0]
      return self.call(f"float_to_{d.short}", Type("float", n), self.wide(u, n, force=True))[0]
    if d.kind == "b" and n > 1: return Type("int", n).to("uchar", self.wide(u, n, AND) + " & 1")
    return self.wide(u, n, force=True)

  def store(self, u: UOp) -> None:
    buffer, index, value = u.src[:3]
    gate = u.src[3] if len(u.src) > 3 else None
    n = value.dtype.count
    if n == 1 and gate is not None: n = gate.dtype.count
    t = stored_type(buffer.dtype.scalar().vec(n))
    text = self.narrow(value, n)
    if (gate is not None and gate.dtype.count > 1) or n == 3:
      if n > 1 and (self.text[value][0] != text or self.text[value][1] > ATOM):
        name = self.fresh("out")
        self.emit(f"{t} {name} = {text};")
        text = name
      for i in range(n):
        guard = "" if gate is None else f"if ({self.c(gate, ATOM) + (f'.s{i:x}' if gate.dtype.count > 1 else '')}) "
        self.emit(f"{guard}{self.lane(buffer, index, i)} = {text}.s{i:x};")
      return
    guard = f"if ({self.c(gate)}) " if gate is not None else ""
    streams = u.arg == "nt" and not self.native and n*t.size >= 16 and buffer.op is Ops.DEFINE_GLOBAL
    if streams and self.facts.divides(index, n):  # such a store must be aligned
      self.emit(f"{guard}__builtin_nontemporal_store({text}, {self.pointer(buffer, index, t, False, aligned=True)});")
    else: self.emit(f"{guard}{self.place(buffer, index, t, False)} = {text};")

  def atomic(self, u: UOp) -> None:
    """``*p = fn(*p, value)`` as one step."""
    buffer, index, value = u.src[:3]
    d = buffer.dtype
    guard = f"if ({self.c(u.src[3])}) " if len(u.src) > 3 else ""
    name = f"atomic_{u.arg}_{d.short}"
    if d.short in ("int", "uint"): call = f"atomic_{u.arg}"   # the device's own
    else:
      call = name
      for pragma in atomics.pragmas(d): self.typedefs[pragma] = pragma
      for key, text in atomics.source(u.arg, d): self.helpers[key] = text
    place = f"{self.c(buffer)}" if index.op is Ops.CONST and index.arg == 0 else f"{self.c(buffer)} + {self.c(index, ADD)}"
    self.emit(f"{guard}{call}({place}, {self.c(value)});")

  # ---- values
  def value(self, u: UOp) -> Text:
    n, src = u.dtype.count, u.src
    t = register_type(u.dtype)
    if u.op is Ops.VECTORIZE:
      lanes = [f"-{self.c(s, UNARY)}" if u.dtype.kind == "b" else self.c(s) for s in src]
      return (f"({t})({', '.join(lanes)})", ATOM) if n > 1 else self.text[src[0]]
    if u.op is Ops.GEP:
      if src[0].dtype.count == 1: return self.text[src[0]]
      lane = f"{self.c(src[0], ATOM)}.s{u.arg:x}"
      return (f"({lane} != 0)", ATOM) if u.dtype.kind == "b" else (lane, ATOM)
    if u.op is Ops.CAST: return self.cast(u)
    if u.op is Ops.BITCAST: return self.bitcast(u)
    if u.op is not Ops.ALU: raise CompileError(f"kernel {self.name}: OpenCL cannot express {u!r}")
    if isinstance(u.arg, UnaryOps): return self.unary(u)
    if u.arg is TernaryOps.WHERE:
      cond, yes, no = src
      m = self.c(cond, LOR)
      if cond.dtype.count > 1 and t.size != 4: m = Type("int", n).to(SIGNED[t.size], m)
      return (f"{m} ? {self.wide(yes, n, LOR, True)} : {self.wide(no, n, LOR, True)}", COND)
    return self.binary(u)

  def cast(self, u: UOp) -> Text:
    s, d, n = u.src[0].dtype.scalar(), u.dtype.scalar(), u.dtype.count
    t = register_type(u.dtype)
    if u.src[0].op is Ops.CONST and u.src[0].dtype.count == n == 1: return constant(d, cast_number(u.src[0].arg, s, d))
    if u.src[0].dtype.count != n:  # convert the scalar, then widen
      x = self.scalar_cast(self.c(u.src[0], UNARY), s, d)[0]
      return (f"({t})({'-' + f'({x})' if d.kind == 'b' else x})", ATOM)
    if n == 1: return self.scalar_cast(self.c(u.src[0], UNARY), s, d)
    f = register_type(u.src[0].dtype)
    if s is d: return self.text[u.src[0]]
    if d.kind == "b": return self.mask(f, f"{self.c(u.src[0], LESS)} != ({f})(0)", EQUAL)
    x = self.c(u.src[0])
    if s.kind == "b": f, x = Type("int", n), f"{self.c(u.src[0], AND)} & 1"
    if d in NARROW: return self.round(x, f, d)
    if f == t: return (x, AND) if s.kind == "b" else self.text[u.src[0]]
    if s.kind == "f" and d.kind in "iu" and d.itemsize < 4: f, x = f.of("int"), f.to("int", x)
    return (f.to(t.base, x), ATOM)

  def scalar_cast(self, x: str, s: DType, d: DType) -> Text:
    f, t = register_type(s), register_type(d)
    if s is d: return (x, UNARY)
    if d.kind == "b": return (f"{x} != 0", EQUAL)
    if d in NARROW: return self.round(x, f, d)
    if f == t: return (x, UNARY)
    # out of range is undefined; by way of int it wraps, as numpy does on most machines
    if s.kind == "f" and d.kind in "iu" and d.itemsize < 4: return (f"({t})(int){x}", UNARY)
    return (f"({t}){x}", UNARY)

  def round(self, x: str, f: Type, d: DType) -> Text:
    """A register value of type ``f`` rounded to what narrow float ``d`` holds."""
    if f.base in ("int", "uint", "long", "ulong"): f, x = f.of("double"), f.to("double", x)
    if f.base == "double": f, x = f.of("float"), self.call("to_odd", f, x)[0]
    elif f.base != "float": f, x = f.of("float"), f.to("float", x)
    bits = self.call(f"float_to_{d.short}", f, x)[0]
    return self.call(f"{d.short}_to_float", Type(_STORED[d.name], f.n), bits)

  def bitcast(self, u: UOp) -> Text:
    s, d, n = u.src[0].dtype.scalar(), u.dtype.scalar(), u.dtype.count
    if s.itemsize != d.itemsize: raise CompileError(f"kernel {self.name}: BITCAST from {s} to {d}: item sizes differ")
    x = self.narrow(u.src[0], n)
    raw, out = Type(_STORED[s.name], n), Type(_STORED[d.name], n)
    if raw != out: x = f"as_{out}({x})"
    return self.widen(x, u.dtype) if d in NARROW or d.kind == "b" else (x, ATOM if raw != out else UNARY)

  def unary(self, u: UOp) -> Text:
    fn, x, t = u.arg, u.src[0], register_type(u.dtype)
    wide = self.wide(x, t.n, force=True)
    if fn is UnaryOps.ISNAN:
      if x.dtype.kind != "f": return ("false" if t.n == 1 else f"({t})(0)", ATOM)
      return self.mask(register_type(x.dtype), f"{self.c(x, LESS)} != {self.c(x, LESS)}", EQUAL)
    if fn is UnaryOps.NOT:
      if u.dtype.kind == "b" and t.n == 1: return (f"!{self.c(x, UNARY)}", UNARY)
      return self.wrapped(u, f"~{self.wide(x, t.n, UNARY, True)}", UNARY)
    if fn is UnaryOps.NEG:
      if self.exposed(u):
        unsigned = t.of("u" + t.base)
        if t.n == 1: return (f"({t})(0u - ({unsigned}){self.c(x, UNARY)})", UNARY)
        return (t.bits(t.base, f"({unsigned})(0) - {t.bits(unsigned.base, wide)}"), ATOM)
      inner = self.wide(x, t.n, UNARY, True)
      return self.wrapped(u, f"-({inner})" if inner.startswith("-") else f"-{inner}", UNARY)
    if u.dtype.kind in "iub":
      if fn is UnaryOps.ABS: return self.call("abs", t, wide) if u.dtype.kind == "i" else self.text[x]
      if fn in (UnaryOps.FLOOR, UnaryOps.CEIL, UnaryOps.TRUNC, UnaryOps.ROUND): return self.text[x]
      raise CompileError(f"kernel {self.name}: {fn} of {u.dtype}: takes floats")
    if fn is UnaryOps.RECIP: return (f"{'1.0' if t.base == 'double' else '1.0f'}/{self.wide(x, t.n, UNARY, True)}", MUL)
    if fn is UnaryOps.RSQRT: return (f"{'1.0' if t.base == 'double' else '1.0f'}/{self.math('sqrt', t, wide)[0]}", MUL)
    if fn is UnaryOps.ABS: return self.call("abs", t, wide)
    return self.math(_BUILTIN[fn], t, wide)

  def math(self, name: str, t: Type, x: str) -> Text:
    """A function of floats: the prelude's where that is faster or more accurate than the device's."""
    if not self.native and prelude.has(name, t): return self.call(name, t, x)
    return self.library(name, t, x)

  def library(self, name: str, t: Type, *args: str) -> Text:
    """A function of the device's own."""
    return (f"{name}({', '.join(args)})", ATOM) if prelude.direct(name, t, self.bad) else self.call(name, t, *args)

  def exposed(self, u: UOp) -> bool:
    """Whether signed overflow here could be seen, so that it must wrap by way of unsigned (C leaves it undefined)."""
    return u.dtype.kind == "i" and u.dtype.itemsize >= 4 and u in self.facts.exposed

  def wrapped(self, u: UOp, text: str, prec: int) -> Text:
    """C computes with 8 and 16 bit scalars as int: cut the result back."""
    t = register_type(u.dtype)
    if t.n > 1 or u.dtype.kind not in "iu" or t.size >= 4: return (text, prec)
    return (f"({t})({text})", UNARY)

  def binary(self, u: UOp) -> Text:
    fn, (a, b), n = u.arg, u.src, u.dtype.count
    t, o = register_type(u.dtype), register_type(a.dtype.scalar().vec(n))  # of the result and of the operands
    kind = a.dtype.kind
    if kind == "b":
      table = _BOOL if n == 1 else _MASK
      if fn in (BinaryOps.CMPLT, BinaryOps.CMPLE):  # a mask that is set is -1
        sign, prec = table["and" if fn is BinaryOps.CMPLT else "or"]
        return (f"{'!' if n == 1 else '~'}{self.wide(a, n, UNARY)}{sign}{self.wide(b, n, UNARY)}", prec)
      if fn not in COMPARE:
        if fn not in _LOGIC: raise CompileError(f"kernel {self.name}: {fn} of {u.dtype}: takes numbers")
        sign, prec = table[_LOGIC[fn]]
        most, least = (UNARY, UNARY) if _LOGIC[fn] == "xor" else (prec, prec - 1)
        return (f"{self.wide(a, n, most)}{sign}{self.wide(b, n, least)}", prec)
    if fn is BinaryOps.POW and kind == "f": return self.library("pow", t, self.wide(a, n, force=True), self.wide(b, n, force=True))
    plain = fn in _INFIX and (fn not in (BinaryOps.IDIV, BinaryOps.MOD) or (kind in "iu" and self.facts.plain_division(a, b)))
    if not plain: return self.call(fn.name.lower(), t, self.wide(a, n, force=True), self.wide(b, n, force=True))
    sign, prec = _INFIX[fn]
    wraps = self.exposed(u) or (fn is BinaryOps.MUL and t == Type("ushort"))  # ushort*ushort is an int product in C
    if wraps and fn in (BinaryOps.ADD, BinaryOps.SUB, BinaryOps.MUL, BinaryOps.SHL):
      base = "uint" if t.base == "ushort" else "u" + t.base if kind == "i" else t.base
      if n == 1:
        x = f"({base}){self.c(a, UNARY)}{sign}{f'({base})' if fn is not BinaryOps.SHL else ''}{self.c(b, UNARY)}"
        return (f"({t})({x})", UNARY)
      x, y = t.bits(base, self.wide(a, n, force=True)), t.bits(base, self.wide(b, n, force=True))
      return (t.bits(t.base, f"{x}{sign}{y}"), ATOM)
    # bit operations beside arithmetic read better in parentheses
    most, least = (prec, prec - 1) if fn in _ARITHMETIC else (ADD, ADD) if fn in COMPARE else (UNARY, UNARY)
    left, right = self.wide(a, n, most), self.wide(b, n, least)
    if fn in (BinaryOps.AND, BinaryOps.OR, BinaryOps.XOR) and a.op is Ops.ALU and a.arg is fn: left = self.wide(a, n, prec)
    if fn is BinaryOps.SUB and right.startswith("-") or fn is BinaryOps.ADD and right.startswith("-"): right = f"({right})"
    if a.dtype.count == 1 and b.dtype.count == 1 and n > 1: left = self.wide(a, n, force=True)
    if fn in COMPARE: return self.mask(o, f"{left}{sign}{right}", prec)
    return self.wrapped(u, f"{left}{sign}{right}", prec)


_ARITHMETIC = frozenset((BinaryOps.ADD, BinaryOps.SUB, BinaryOps.MUL, BinaryOps.DIV, BinaryOps.IDIV, BinaryOps.MOD))


def _acc(u: UOp) -> UOp:
  """The DEFINE_ACC that a PHI assigns."""
  while u.op is Ops.PHI: u = u.src[0]
  return u
