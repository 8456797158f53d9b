"""Linear UOps to Triton Python, written to be read: one statement for each value that is used twice or has an effect, the rest inline.

A value that varies with TILE axes is a block: it has a dimension for each of those axes, in one order for the whole kernel, and no others;
``[:, None]`` brings blocks to a common rank where they meet. TILE sizes that are no power of two are rounded up; the lanes added are masked
at every LOAD and STORE, and take the combiner's identity in a REDUCE.
"""
from __future__ import annotations

import keyword
import math
import re
from typing import Any, Sequence

import numpy as np

from ntgrad.backends.base import Renderer, Target
from ntgrad.backends.cuda import helpers
from ntgrad.backends.cuda.legalise import DOT, FP8, NARROW, Dots, accumulator, axis_order, block_axes, layout, prune, sources, terms, widen
from ntgrad.codegen.dtype import DType, dtypes
from ntgrad.codegen.errors import CompileError
from ntgrad.codegen.index import vmin
from ntgrad.codegen.uop import COMPARE, BinaryOps, Ops, TernaryOps, UnaryOps, UOp, identity

TARGET = Target("triton", lanes=1, registers=255, cores=132, max_params=100, blocks=True)
GRID_LIMIT = 65535    # programs in the second and third dimension of a launch

_TYPE = {"bool": "int1", "float8_e4m3": "uint8", "float8_e5m2": "uint8"}   # others have numpy's name
_POINTER = {"bool": "i8", "int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16", "int32": "i32", "uint32": "u32", "int64": "i64",
            "uint64": "u64", "float8_e4m3": "u8", "float8_e5m2": "u8", "float16": "fp16", "bfloat16": "bf16", "float32": "fp32",
            "float64": "fp64"}
_DOT_TYPE = {dtypes.float8_e4m3: "float8e4nv", dtypes.float8_e5m2: "float8e5"}

# precedences of Python, the tightest first
ATOM, UNARY, MUL, ADD, SHIFT, AND, XOR, OR, CMP, ANY = range(10)
_INFIX = {
  BinaryOps.ADD: (" + ", ADD), BinaryOps.SUB: (" - ", ADD), BinaryOps.MUL: ("*", MUL), BinaryOps.DIV: ("/", MUL), BinaryOps.IDIV: ("//", MUL),
  BinaryOps.MOD: ("%", MUL), BinaryOps.SHL: (" << ", SHIFT), BinaryOps.SHR: (" >> ", SHIFT), BinaryOps.CMPLT: (" < ", CMP),
  BinaryOps.CMPLE: (" <= ", CMP), BinaryOps.CMPEQ: (" == ", CMP), BinaryOps.CMPNE: (" != ", CMP), BinaryOps.AND: (" & ", AND),
  BinaryOps.OR: (" | ", OR), BinaryOps.XOR: (" ^ ", XOR)}
# arithmetic of bool
_LOGIC = {BinaryOps.MUL: BinaryOps.AND, BinaryOps.MIN: BinaryOps.AND, BinaryOps.ADD: BinaryOps.OR, BinaryOps.MAX: BinaryOps.OR,
          BinaryOps.SUB: BinaryOps.XOR}
_CALL = {
  UnaryOps.EXP: "libdevice.exp", UnaryOps.EXP2: "libdevice.exp2", UnaryOps.LOG: "libdevice.log", UnaryOps.LOG2: "libdevice.log2",
  UnaryOps.SIN: "libdevice.sin", UnaryOps.COS: "libdevice.cos", UnaryOps.TAN: "libdevice.tan", UnaryOps.TANH: "libdevice.tanh",
  UnaryOps.ERF: "libdevice.erf", UnaryOps.FLOOR: "tl.floor", UnaryOps.CEIL: "tl.ceil", UnaryOps.TRUNC: "libdevice.trunc",
  UnaryOps.ROUND: "libdevice.rint", UnaryOps.RSQRT: "libdevice.rsqrt"}
_COMBINE = {BinaryOps.ADD: "_add", BinaryOps.MUL: "_mul", BinaryOps.AND: "_and", BinaryOps.OR: "_or", BinaryOps.XOR: "_xor"}
_INLINE = frozenset((Ops.ALU, Ops.CAST, Ops.BITCAST))
_NAMED = frozenset((Ops.LOAD, Ops.REDUCE, Ops.SCAN, Ops.SORT))
Text = tuple[str, int]     # Python and its precedence
_TAKEN = re.compile(r"(data|unused|gidx|acc|alu|cast|val|red|dot|scan|sort|next|go|var|ni|i|r|m)\d+|_.*|tl|triton|libdevice|range|float|" +
                    "|".join(keyword.kwlist))   # names that a variable of the kernel cannot have


class TritonRenderer(Renderer):
  """Triton Python for CUDA. Needs neither triton nor a device.

  ``capability`` is the chip's (80, 90, ..): fp8 products from 89 on. ``allow_tf32`` lets float32 products round their factors to tf32.
  """

  def __init__(self, target: Target | None = None, capability: int = 90, allow_tf32: bool = False):
    self.target, self.capability, self.allow_tf32 = target or TARGET, capability, allow_tf32

  def render(self, name: str, uops: Sequence[UOp]) -> str:
    """A module with the helper functions that the kernel ``name`` uses, then the kernel, ``@triton.jit`` on each.

    Raises CompileError for what Triton cannot express: vectors, work-items and local memory, which it makes itself.
    """
    return _Kernel(self, name, uops).source()


def signature(source: str) -> dict[str, str]:
  """Triton's type of each parameter of rendered source, in slot order, as the compiler takes it: ``{"data0": "*fp32"}``."""
  line = next((line for line in source.splitlines() if line.startswith(_TYPES)), _TYPES)
  return dict(part.split(": ") for part in line.removeprefix(_TYPES).split(", ") if part)


_TYPES = "# "    # the line of a module that says the parameters' types: else sources of other dtypes would be equal


def types(uops: Sequence[UOp]) -> dict[str, str]:
  """What ``signature`` reads, from the program."""
  out: dict[str, str] = {}
  for u in sorted((u for u in uops if u.op is Ops.DEFINE_GLOBAL), key=lambda u: int(u.arg[0])):
    while len(out) < u.arg[0]: out[f"unused{len(out)}"] = "*u8"
    out[u.arg[1]] = f"*{_POINTER[u.dtype.name]}"
  return out


def launch_grid(grid: Sequence[int]) -> tuple[int, int, int]:
  """How many programs to launch in each dimension: one dimension has all where CUDA has not as many in the others."""
  x, y, z = (*grid, 1, 1, 1)[:3]
  return (x, y, z) if y <= GRID_LIMIT and z <= GRID_LIMIT else (x * y * z, 1, 1)


def triton_type(dtype: DType) -> str:
  """What a value of ``dtype`` is called: ``tl.float32``."""
  if dtype.count > 1: raise CompileError(f"Triton has no vectors ({dtype}): blocks are TILE axes; render the kernel without LANE axes")
  return f"tl.{_TYPE.get(dtype.name, dtype.name)}"


def constant(dtype: DType, value: Any) -> Text:
  """A literal. Triton gives it the dtype of what it meets."""
  if dtype.kind == "b": return (str(bool(value)), ATOM)
  if dtype in FP8:
    with np.errstate(over="ignore"): return (str(int(np.array(value).astype(dtype.np).view(np.uint8))), ATOM)
  if dtype.kind == "f":
    with np.errstate(over="ignore"): value = float(np.array(value).astype(dtype.np))
    if math.isnan(value): return ('float("nan")', ATOM)
    if math.isinf(value): return ('float("inf")', ATOM) if value > 0 else ('float("-inf")', ATOM)
    text = repr(value) if dtype is dtypes.float64 else str(np.float32(value))
    if "." not in text and "e" not in text: text += ".0"
    return (text, UNARY if text[0] == "-" else ATOM)
  return (str(int(value)), UNARY if value < 0 else ATOM)


class _Kernel:
  """One rendering: the lines so far and the Python text of every value."""

  def __init__(self, renderer: TritonRenderer, name: str, uops: Sequence[UOp]):
    self.renderer, self.name = renderer, name
    self.params = [u for u in uops if u.op is Ops.DEFINE_GLOBAL]
    for u in uops:
      if u.dtype.count > 1: triton_type(u.dtype)
    self.uops = Dots(prune(widen(uops)), renderer.capability >= 89).find()
    self.dims = block_axes(self.uops)
    self.order = axis_order(self.uops)
    self.sizes: dict[int, int] = {u.arg[0]: u.arg[1] for u in self.uops if u.op is Ops.RANGE}
    self.padded = self._padded()
    self.flat = launch_grid(self._grid()) != self._grid()
    self.lines: list[str] = []
    self.depth = 1
    self.text: dict[UOp, Text] = {}
    self.counts: dict[str, int] = {}
    self.phis: list[UOp] = []
    self.whiles: list[Any] = []                         # of each open WHILE: where its condition begins; then its name and the condition's lines
    self.opened: list[int] = []                         # of each open block, how many lines there were
    self.shapes = self._variables()
    self.ordered = self._ordered()                      # params that are read and written
    self.stored: set[UOp] = set()                       # since the last barrier: what was written,
    self.loaded: dict[UOp, set[UOp]] = {}               # and what was read, and where
    self.kept: list[tuple[set[UOp], dict[UOp, set[UOp]]]] = []   # of each open IF, both as they were before it
    self._analyse()

  # ---- facts

  def _grid(self) -> tuple[int, int, int]:
    size = [1, 1, 1]
    for u in self.uops:
      if u.op is Ops.SPECIAL and u.arg[0] == "g": size[u.arg[1]] = u.arg[2]
    return (size[0], size[1], size[2])

  def _padded(self) -> dict[int, int]:
    """The size of each TILE axis as Triton wants it: a power of two, for a dot at least 16 (its inner one 32 for a byte)."""
    least: dict[int, int] = {}
    for u in self.uops:
      if u.op is Ops.REDUCE and u.arg[0] is DOT:
        for i in self.dims[u.src[0]] | self.dims[u.src[1]]:
          least[i] = max(least.get(i, 0), 32 if i == u.arg[1] and u.src[0].dtype.itemsize == 1 else 16)
    return {i: max(1 << (n - 1).bit_length(), least.get(i, 1)) for i, n in self.sizes.items()}

  def _ordered(self) -> frozenset[UOp]:
    loads, stores = ({u.src[0] for u in self.uops if u.op in ops} for ops in ((Ops.LOAD,), (Ops.STORE, Ops.ATOMIC)))
    return frozenset(p for p in loads & stores if p.op is Ops.DEFINE_GLOBAL)

  def _variables(self) -> dict[UOp, tuple[int, ...]]:
    """The shape of each variable: that of an access which takes all of it, else one dimension."""
    out: dict[UOp, tuple[int, ...]] = {}
    for u in self.uops:
      if u.op not in (Ops.LOAD, Ops.STORE) or u.src[0].op is not Ops.DEFINE_LOCAL: continue
      size = u.src[0].arg[1]
      found = layout(size, u.src[1])
      if found is not None and (u.src[0] not in out or len(found) > len(out[u.src[0]])): out[u.src[0]] = found
    return {u: out.get(u, () if u.arg[1] == 1 else (u.arg[1],)) for u in self.uops if u.op is Ops.DEFINE_LOCAL}

  def axes(self, dims: frozenset[int]) -> list[int]: return [i for i in self.order if i in dims]

  def target(self, u: UOp) -> frozenset[int]:
    """The axes that the sources of ``u`` are brought to."""
    if u.op in (Ops.LOAD, Ops.STORE, Ops.ATOMIC): return frozenset().union(*(self.dims.get(s, frozenset()) for s in sources(u)))
    if u.op is Ops.REDUCE: return self.dims[u.src[0]].union((u.arg[1],) if u.arg[0] is DOT else u.arg[1])
    return self.dims[u]

  def _analyse(self) -> None:
    """``inline``: values used once, where they stand, by something over the same axes, with nothing that they read written between."""
    uses: dict[UOp, int] = {}
    users: dict[UOp, list[int]] = {}
    block: list[int] = []
    stack = [0]
    self.reads: dict[UOp, frozenset[UOp]] = {}
    writes: dict[UOp, list[int]] = {}
    ends: dict[int, int] = {}     # where a loop begins -> where it ends
    around: list[tuple[int, ...]] = []
    for at, u in enumerate(self.uops):
      if u.op in (Ops.ENDLOOP, Ops.ENDIF, Ops.ELSE): stack.pop()
      elif u.op is Ops.ENDWHILE: stack[-2:] = []
      if u.op in (Ops.ENDLOOP, Ops.ENDWHILE): ends[self.uops.index(u.src[0])] = at
      block.append(stack[-1])
      around.append(tuple(stack))
      if u.op in (Ops.LOOP, Ops.IF, Ops.WHILE, Ops.ELSE, Ops.BREAK): stack.append(at)
      if u.op is Ops.PHI: writes.setdefault(accumulator(u), []).append(at)
      elif u.op is Ops.STORE and u.src[0].op is Ops.DEFINE_LOCAL: writes.setdefault(u.src[0], []).append(at)
      for s in sources(u):
        uses[s] = uses.get(s, 0) + (2 if u.op is Ops.ALU and u.arg is UnaryOps.ISNAN else 1)
        users.setdefault(s, []).append(at)
    none: frozenset[UOp] = frozenset()
    self.inline: set[UOp] = set()
    for at, u in enumerate(self.uops):
      self.reads[u] = none
      if u.op in (Ops.DEFINE_ACC, Ops.PHI): self.reads[u] = frozenset((accumulator(u),))
      elif u.op is Ops.LOAD and u.src[0].op is Ops.DEFINE_LOCAL:
        # as long as nothing is stored to it, a variable's own name will do; what a loop after this reads it may write in a later round
        last = max((max([p, *(ends[b] for b in around[p] if b > at and b in ends)]) for p in users.get(u, ())), default=at)
        if not any(at < w < last for w in writes.get(u.src[0], ())):
          self.inline.add(u)
          self.reads[u] = frozenset((u.src[0],))
      elif u.op in _INLINE or (u.op is Ops.REDUCE and u.arg[0] is DOT and len(u.src) == 3):
        reads = none.union(*(self.reads.get(s, none) for s in u.src))
        p = users[u][-1] if u in users else at
        if uses.get(u, 0) == 1 and block[p] == block[at] and (not self.dims[u] or self.dims[u] == self.target(self.uops[p])) and \
            not any(at < w < p for x in reads for w in writes.get(x, ())):
          self.inline.add(u)
          self.reads[u] = reads
      elif uses.get(u, 0) == 1 and users[u] == [at + 1] and u.op in _NAMED and self.uops[at + 1].op is Ops.STORE and \
          self.uops[at + 1].src[0].op is Ops.DEFINE_LOCAL and self.uops[at + 1].src[2] is u: self.inline.add(u)   # it gets the variable's name

  # ---- small tools

  def emit(self, line: str) -> None: self.lines.append("  " * self.depth + line)

  def fresh(self, prefix: str) -> str:
    n = self.counts.get(prefix, 0)
    self.counts[prefix] = n + 1
    return f"{prefix}{n}"

  def refuse(self, u: UOp, why: str = "") -> CompileError:
    return CompileError(f"kernel {self.name}: Triton cannot express {u!r}{why and f': {why}'}")

  def shape(self, dims: frozenset[int]) -> str:
    sizes = [str(self.padded[i]) for i in self.axes(dims)]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"

  def expand(self, text: str, prec: int, dims: frozenset[int], to: frozenset[int]) -> Text:
    """A block over ``dims`` with dimensions of one for the other axes of ``to``. Scalars meet every block."""
    if not dims or dims == to: return (text, prec)
    at = ", ".join(":" if i in dims else "None" for i in self.axes(to))
    return (f"{text if prec == ATOM else f'({text})'}[{at}]", ATOM)

  def x(self, u: UOp, prec: int = ANY, to: frozenset[int] | None = None) -> str:
    """The text of a value as an operand beside axes ``to``, in parentheses unless it binds at least as tightly as ``prec``."""
    text, p = constant(u.dtype, u.arg) if u.op is Ops.CONST else self.text[u]
    if to is not None: text, p = self.expand(text, p, self.dims.get(u, frozenset()), to)
    return text if p <= prec else f"({text})"

  def typed(self, u: UOp, to: frozenset[int] | None = None, prec: int = ANY) -> str:
    """Like ``x``, a constant as a tensor of its dtype."""
    return f"tl.full((), {self.x(u)}, {triton_type(u.dtype)})" if u.op is Ops.CONST else self.x(u, prec, to)

  def whole(self, u: UOp, to: frozenset[int]) -> str:
    """A value as a block over all of ``to``."""
    if self.dims.get(u, frozenset()) == to: return self.typed(u)
    if u.op is Ops.CONST: return f"tl.full({self.shape(to)}, {self.x(u)}, {triton_type(u.dtype)})"
    return f"tl.broadcast_to({self.x(u, ANY, to)}, {self.shape(to)})"

  def masks(self, dims: frozenset[int], to: frozenset[int], axes: frozenset[int] | None = None) -> list[str]:
    """The conditions that leave out the lanes added to axes, as operands of ``&``."""
    return [self.expand(f"m{i}", ATOM, frozenset((i,)), to)[0] for i in self.axes(dims if axes is None else axes) if self.padded[i] != self.sizes[i]]

  # ---- the module

  def source(self) -> str:
    for u in sorted((u for u in self.uops if u.op is Ops.SPECIAL), key=lambda u: -u.arg[1]): self.special(u)
    named: dict[tuple[int, DType], Text] = {}
    for u in self.uops:   # loops that use an axis share it
      if u.op is not Ops.RANGE: continue
      if (u.arg[0], u.dtype) not in named:
        self.range(u)
        named[(u.arg[0], u.dtype)] = self.text[u]
      self.text[u] = named[(u.arg[0], u.dtype)]
    for u in self.uops: self.node(u)
    self.flush()
    if not self.lines: self.emit("pass")
    typed = types(self.params)
    args = list(typed)
    head = f"def {self.name}({', '.join(args)}):"
    if len(head) > 130: head = f"def {self.name}(" + ",".join(f"\n    {a}" for a in args) + "):"
    about = _TYPES + ", ".join(f"{name}: {t}" for name, t in typed.items())
    kernel = "\n".join([about, "@triton.jit", head, *self.lines])
    parts = [*(helpers.HELPERS[name] for name in helpers.needed(kernel)), kernel]
    body = "\n\n\n".join(parts)
    imports = "import triton\nimport triton.language as tl\n"
    if "libdevice." in body: imports += "from triton.language.extra.cuda import libdevice\n"
    return f"{imports}\n\n{body}\n"

  # ---- statements

  def node(self, u: UOp) -> None:
    o = u.op
    if self.ordered: self.order_memory(u)
    if o in (Ops.CONST, Ops.SINK, Ops.SPECIAL, Ops.RANGE): return
    if o is Ops.DEFINE_GLOBAL: self.text[u] = (u.arg[1], ATOM)
    elif o is Ops.LOOP: self.loop(u)
    elif o is Ops.IF:
      self.flush()
      self.open(f"if {self.x(u.src[0])}:")
    elif o is Ops.DEFINE_ACC:
      name, dims = self.fresh("acc"), self.dims[u]
      self.emit(f"{name} = tl.full({self.shape(dims)}, {constant(u.dtype, u.arg)[0]}, {triton_type(u.dtype)})")
      self.text[u] = (name, ATOM)
    elif o is Ops.PHI:
      self.text[u] = self.text[u.src[0]]
      self.phis.append(u)
    elif o in (Ops.ENDLOOP, Ops.ENDIF):
      self.flush()
      self.close()
    elif o is Ops.ELSE:
      self.flush()
      self.close()
      self.open("else:")
    elif o is Ops.WHILE:
      self.flush()
      self.whiles.append(len(self.lines))
    elif o is Ops.BREAK: self.while_(u)
    elif o is Ops.ENDWHILE:
      self.flush()
      _, again = self.whiles.pop()
      self.lines += again     # the condition, for the next round
      self.opened[-1] = -1
      self.close()
    elif o is Ops.DEFINE_LOCAL: self.variable(u)
    elif o is Ops.STORE: (self.assign if u.src[0].op is Ops.DEFINE_LOCAL else self.store)(u)
    elif o is Ops.ATOMIC: self.atomic(u)
    elif o is Ops.LOAD and u.src[0].op is Ops.DEFINE_LOCAL:
      value = self.read(u)
      if u in self.inline and (value[0].isidentifier() or len(value[0]) < 60): self.text[u] = value
      else: self.define(u, "val", value)
    elif o in _NAMED:
      name = "dot" if u.arg and u.arg[0] is DOT else {Ops.LOAD: "val", Ops.REDUCE: "red", Ops.SCAN: "scan", Ops.SORT: "sort"}[o]
      value = getattr(self, "dot" if name == "dot" else o.name.lower())(u)
      if u in self.inline: self.text[u] = value
      else: self.define(u, name, value)
    elif o in _INLINE:
      value = self.alu(u) if o is Ops.ALU else self.cast(u) if o is Ops.CAST else self.bitcast(u)
      if u in self.inline and len(value[0]) <= 90: self.text[u] = value
      else:
        self.inline.discard(u)
        self.define(u, "alu" if o is Ops.ALU else "cast", value)
    else: raise self.refuse(u, "work-items are Triton's own" if o is Ops.BARRIER else "")

  def define(self, u: UOp, prefix: str, value: Text) -> None:
    name = self.fresh(prefix)
    self.emit(f"{name} = {value[0]}")
    self.text[u] = (name, ATOM)

  def open(self, head: str) -> None:
    self.emit(head)
    self.depth += 1
    self.opened.append(len(self.lines))

  def close(self) -> None:
    if self.opened.pop() == len(self.lines): self.emit("pass")
    self.depth -= 1

  def range(self, u: UOp) -> None:
    i, n = u.arg
    wide = f".to({triton_type(u.dtype)})" if u.dtype is not dtypes.int32 else ""
    self.emit(f"r{i} = tl.arange(0, {self.padded[i]}){wide}")
    if self.padded[i] != n: self.emit(f"m{i} = r{i} < {n}")
    self.text[u] = (f"r{i}", ATOM)

  def special(self, u: UOp) -> None:
    kind, dim, size = u.arg
    if kind != "g": raise self.refuse(u, "work-items are Triton's own")
    name = f"gidx{dim}"
    grid = self._grid()
    if not self.flat: text: Text = (f"tl.program_id({dim})", ATOM)
    else:
      below = math.prod(grid[:dim])
      text = ("tl.program_id(0)", ATOM) if below == 1 else (f"tl.program_id(0)//{below}", MUL)
      if dim < 2 and math.prod(grid[dim + 1:]) > 1: text = (f"{text[0]}%{size}", MUL)
    if u.dtype is not dtypes.int32: text = (f"{text[0] if text[1] == ATOM else f'({text[0]})'}.to({triton_type(u.dtype)})", ATOM)
    self.emit(f"{name} = {text[0]}")
    self.text[u] = (name, ATOM)

  def loop(self, u: UOp) -> None:
    self.flush()
    name = self.fresh("i")
    start, end = self.x(u.src[0]), self.x(u.src[1])
    if u.dtype is dtypes.int32: self.open(f"for {name} in range({start}, {end}):")
    else:   # the counter has the dtype of its bounds
      self.open(f"for n{name} in range({start}, {end}):")
      self.emit(f"{name} = tl.cast(n{name}, {triton_type(u.dtype)})")
    self.text[u] = (name, ATOM)

  def flush(self) -> None:
    """Write the waiting PHIs: one parallel assignment, so a value that reads an accumulator assigned before it is kept first."""
    values: list[tuple[UOp, str]] = []
    assigned: set[UOp] = set()
    for u in self.phis:
      acc, value = accumulator(u), u.src[1]
      text = self.whole(value, self.dims[acc])
      if self.reads.get(value, frozenset()) & assigned:
        name = self.fresh("next")
        self.emit(f"{name} = {text}")
        text = name
      assigned.add(acc)
      values.append((acc, text))
    for acc, text in values:
      if text != self.text[acc][0]: self.emit(f"{self.text[acc][0]} = {text}")
    self.phis.clear()

  def while_(self, u: UOp) -> None:
    """The condition's lines stand before the loop and again at its end."""
    start = self.whiles.pop()
    name = self.fresh("go")
    self.emit(f"{name} = {self.typed(u.src[0])}")
    self.whiles.append((name, ["  " + line for line in self.lines[start:]]))
    self.open(f"while {name}:")

  def order_memory(self, u: UOp) -> None:
    """A barrier where a program's threads could see memory before others have written it, or write it before others have read it."""
    if u.op is Ops.IF: self.kept.append((set(self.stored), {k: set(v) for k, v in self.loaded.items()}))
    elif u.op in (Ops.ELSE, Ops.ENDIF):
      before = self.kept[-1]
      self.stored |= before[0]
      for p, where in before[1].items(): self.loaded.setdefault(p, set()).update(where)
      if u.op is Ops.ENDIF: self.kept.pop()
    elif u.op in (Ops.LOOP, Ops.WHILE):   # a later round finds what an earlier one did
      depth = 0
      for x in self.uops[self.uops.index(u):]:
        depth += (x.op in (Ops.LOOP, Ops.WHILE)) - (x.op in (Ops.ENDLOOP, Ops.ENDWHILE))
        if depth == 0: break
        if x.op in (Ops.STORE, Ops.ATOMIC) and x.src[0] in self.ordered: self.stored.add(x.src[0])
        if x.op is Ops.LOAD and x.src[0] in self.ordered: self.loaded.setdefault(x.src[0], set()).add(x.src[1])
    elif u.op in (Ops.LOAD, Ops.STORE, Ops.ATOMIC) and u.src[0] in self.ordered:
      p = u.src[0]
      early = p in self.stored if u.op is Ops.LOAD else bool(self.loaded.get(p, set()) - {u.src[1]})
      if early:
        self.emit("tl.debug_barrier()")
        self.stored.clear()
        self.loaded.clear()
      if u.op is Ops.LOAD: self.loaded.setdefault(p, set()).add(u.src[1])
      else: self.stored.add(p)

  # ---- variables

  def variable(self, u: UOp) -> None:
    name = u.arg[0] if u.arg[0].isidentifier() and not _TAKEN.fullmatch(u.arg[0]) else self.fresh("var")
    self.text[u] = (name, ATOM)
    for x in self.uops[self.uops.index(u) + 1:]:   # nothing to say where the first thing is that all of it is stored
      if x.op in (Ops.LOOP, Ops.IF, Ops.WHILE): break
      if x.op in (Ops.LOAD, Ops.STORE) and x.src[0] is u:
        if x.op is Ops.STORE and len(x.src) < 4 and layout(u.arg[1], x.src[1]) == self.shapes[u]: return
        break
    self.emit(f"{name} = tl.full({self.array(u)}, {constant(u.dtype, 0)[0]}, {triton_type(u.dtype)})")

  def array(self, u: UOp) -> str:
    sizes = [str(n) for n in self.padded_shape(u)]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"

  def padded_shape(self, u: UOp) -> list[int]:
    """A variable's sizes as Triton has them: those of the axes that go through it."""
    sizes = [1 << (n - 1).bit_length() for n in self.shapes[u]]
    for x in self.uops:
      if x.op in (Ops.LOAD, Ops.STORE) and x.src[0] is u:
        for d, (axis, _) in enumerate(self.places(x)):
          if axis is not None: sizes[d] = max(sizes[d], self.padded[axis])
    return sizes

  def places(self, u: UOp) -> list[tuple[int | None, list[tuple[UOp, int]]]]:
    """How an access of a variable goes through each dimension: by an axis of its size, or by an index, here as terms (the constant's UOp last)."""
    shape = self.shapes[u.src[0]]
    atoms, c = terms(u.src[1])
    out: list[tuple[int | None, list[tuple[UOp, int]]]] = []
    stride = math.prod(shape)
    for n in shape:
      stride //= n
      own = [(x, k // stride) for x, k in atoms.items() if abs(k) >= stride and k % stride == 0]
      for x, _ in own: del atoms[x]
      whole, c = divmod(c, stride)
      if len(own) == 1 and own[0][1] == 1 and own[0][0].op is Ops.RANGE and own[0][0].arg[1] == n and not whole: out.append((own[0][0].arg[0], []))
      else: out.append((None, [*own, (UOp.const(dtypes.int32, whole), 1)]))
    if atoms or c: raise self.refuse(u, f"an index that is not made of those into its dimensions {shape}")
    return out

  def read(self, u: UOp) -> Text:
    """A variable, its dimensions in the kernel's order."""
    name = self.text[u.src[0]][0]
    places = self.places(u)
    order: list[int] = []
    text = name
    for d, (axis, index) in enumerate(places):
      if axis is not None:
        order.append(axis)
        continue
      dims = frozenset().union(*(self.dims.get(x, frozenset()) for x, _ in index))
      if not dims: order.append(-1)
      elif len(dims) == 1 and len(places) == 1:
        order.append(*dims)
        text = f"tl.gather({text}, {self.sum(index)}, {d})"
      else: raise self.refuse(u, "a gather from more than one dimension")
    for d in reversed(range(len(places))):   # one element: the others are masked away
      if order[d] != -1: continue
      at = ", ".join(":" if e == d else "None" for e in range(len(order)))
      here = f"(tl.arange(0, {self.padded_shape(u.src[0])[d]}) == {self.sum(places[d][1])})"
      text = f"tl.sum(tl.where({here if len(order) == 1 else f'{here}[{at}]'}, {text}, {constant(u.dtype, 0)[0]}), {d})"
      if u.dtype.kind == "b": text = f"({text} != 0)"
      elif u.dtype.itemsize < 4: text += f".to({triton_type(u.dtype)})"
      del order[d]
    wanted = self.axes(frozenset(order))
    if wanted != order: text = self.permuted(text, [order.index(i) for i in wanted])
    return (text, ATOM)

  def permuted(self, text: str, order: list[int]) -> str:
    return f"tl.trans({text})" if order == [1, 0] else f"tl.permute({text}, ({', '.join(map(str, order))}))"

  def sum(self, index: list[tuple[UOp, int]]) -> str:
    parts = [self.x(x, MUL) + (f"*{k}" if k != 1 else "") for x, k in index if not (x.op is Ops.CONST and x.arg == 0)]
    return " + ".join(parts) or "0"

  def assign(self, u: UOp) -> None:
    """STORE to a variable: where all of it is stored, the value takes its place."""
    buffer, _, value = u.src[:3]
    name = self.text[buffer][0]
    places = self.places(u)
    order = [axis for axis, _ in places if axis is not None]
    to = frozenset(order)
    if not self.dims.get(value, frozenset()) <= to or len(to) != len(order): raise self.refuse(u, "a value of other axes than its place")
    masks = [self.x(u.src[3], AND, to)] if len(u.src) > 3 else []
    if len(u.src) > 3 and not self.dims.get(u.src[3], frozenset()) <= to: raise self.refuse(u, "a condition of other axes than its place")
    text = self.whole(value, to) if len(order) == len(places) and not masks else self.x(value, ANY, to)
    wanted = self.axes(to)
    if wanted != order and self.dims.get(value, frozenset()):
      text = self.permuted(self.whole(value, to), [wanted.index(i) for i in order])
      masks = [self.permuted(self.whole(u.src[3], to), [wanted.index(i) for i in order])] if masks else []
    if len(order) < len(places):   # some element, or row: the rest stays
      at = ", ".join("None" if axis is None else ":" for axis, _ in places)
      if order and self.dims.get(value, frozenset()): text = f"({text})[{at}]"
      if order and masks and self.dims.get(u.src[3], frozenset()): masks = [f"({masks[0]})[{at}]"]
      for d, (axis, index) in enumerate(places):
        if axis is not None: continue
        if any(self.dims.get(x, frozenset()) for x, _ in index): raise self.refuse(u, "a scatter into a variable")
        here = f"(tl.arange(0, {self.padded_shape(buffer)[d]}) == {self.sum(index)})"
        masks.append(here if len(places) == 1 else f"{here}[{', '.join(':' if e == d else 'None' for e in range(len(places)))}]")
    if masks: text = f"tl.where({' & '.join(masks)}, {text}, {name})"
    if text != name: self.emit(f"{name} = {text}")

  # ---- memory

  def pointer(self, buffer: UOp, index: UOp, to: frozenset[int]) -> str:
    """Addresses over all of ``to``, where a block is accessed."""
    if self.dims.get(index, frozenset()) == to:
      return self.x(buffer) if index.op is Ops.CONST and index.arg == 0 else f"{self.x(buffer)} + {self.x(index, ADD)}"
    return f"{self.x(buffer)} + {self.whole(index, to)}"

  def condition(self, gate: UOp | None, to: frozenset[int]) -> str:
    """The mask of an access over axes ``to``; empty for none."""
    parts = [*([] if gate is None else [self.x(gate, AND, to)]), *self.masks(to, to)]
    return " & ".join(parts)

  def load(self, u: UOp) -> Text:
    buffer, index = u.src[:2]
    gate, other = (*u.src[2:], None, None)[:2]
    to = self.target(u)
    mask = self.condition(gate, to)
    rest = ""
    if mask:
      zero = self.x(other, ANY, to) if other is not None else constant(u.dtype, 0)[0]
      if u.dtype.kind == "b": zero = str(int(other.arg)) if other is not None and other.op is Ops.CONST else f"{zero}.to(tl.int8)" if other else "0"
      rest = f", mask={mask}, other={zero}"
    text = f"tl.load({self.pointer(buffer, index, to)}{rest})"
    return (f"{text} != 0", CMP) if u.dtype.kind == "b" else (text, ATOM)

  def store(self, u: UOp) -> None:
    buffer, index, value = u.src[:3]
    gate = u.src[3] if len(u.src) > 3 else None
    to = self.target(u)
    mask = self.condition(gate, to)
    text = self.x(value, ANY, to)
    if u.src[0].dtype.kind == "b": text = str(int(value.arg)) if value.op is Ops.CONST else f"{self.x(value, ATOM, to)}.to(tl.int8)"
    self.emit(f"tl.store({self.pointer(buffer, index, to)}, {text}{mask and f', mask={mask}'})")

  def atomic(self, u: UOp) -> None:
    buffer, index, value = u.src[:3]
    d = buffer.dtype
    if d.itemsize < 4 and not (u.arg == "add" and d in (dtypes.float16, dtypes.bfloat16)):
      raise self.refuse(u, f"CUDA has no atomic {u.arg} of {d}; a wider dtype has")
    to = self.target(u)
    mask = self.condition(u.src[3] if len(u.src) > 3 else None, to)
    self.emit(f"tl.atomic_{u.arg}({self.pointer(buffer, index, to)}, {self.whole(value, to)}{mask and f', mask={mask}'}, sem=\"relaxed\")")

  # ---- scans and sorts

  def scan(self, u: UOp) -> Text:
    fn, axis, reverse = u.arg
    value, d, to = u.src[0], u.dtype, self.dims[u]
    text = self.whole(value, to)
    if reverse and self.padded[axis] != self.sizes[axis]:   # the lanes added come first
      text = f"tl.where({self.masks(to, to, frozenset((axis,)))[0]}, {text}, {constant(d, identity(fn, d))[0]})"
    name = f"_{fn.name.lower()}_nan" if d.kind == "f" and fn in (BinaryOps.MAX, BinaryOps.MIN) else f"_{fn.name.lower()}"
    back = ", reverse=True" if reverse else ""
    at = self.axes(to).index(axis)
    if fn is BinaryOps.ADD and d.itemsize >= 4: return (f"tl.cumsum({text}, {at}{back})", ATOM)
    return (f"tl.associative_scan({text}, {at}, {name}{back})", ATOM)

  def sort(self, u: UOp) -> Text:
    """Ascending or descending, NaN last; floats by ints of the same order. Triton sorts along the last dimension."""
    axis, descending = u.arg
    value, d, to = u.src[0], u.dtype, self.dims[u]
    axes = self.axes(to)
    text, keys = self.whole(value, to), d
    if d.kind == "f":
      keys = dtypes.int64 if d.itemsize > 4 else dtypes.int32
      text = f"_sort_key_{keys.name}({text}, {bool(descending)})"
    elif d.itemsize < 4: text, keys = f"{text if text.isidentifier() else f'({text})'}.to(tl.int32)", dtypes.int32
    if self.padded[axis] != self.sizes[axis]:
      last = dtypes.min(keys) if descending else dtypes.max(keys)
      text = f"tl.where({self.masks(to, to, frozenset((axis,)))[0]}, {text}, {last})"
    order = [i for i in range(len(axes)) if axes[i] != axis] + [axes.index(axis)]
    moved = order != list(range(len(axes)))
    if moved: text = self.permuted(text, order)
    text = f"tl.sort({text}, {len(axes) - 1}, {bool(descending)})"
    if moved: text = self.permuted(text, [order.index(i) for i in range(len(axes))])
    if d.kind == "f": text = f"_from_sort_key_{keys.name}({text})"
    elif keys is not d: text += f".to({triton_type(d)})" if d.kind != "b" else " != 0"
    return (text, CMP if d.kind == "b" else ATOM)

  # ---- reductions

  def zero_outside(self, u: UOp, axis: int) -> bool:
    """Whether a value is certainly zero in the lanes added to an axis."""
    if u.op is Ops.CAST: return self.zero_outside(u.src[0], axis)
    return u.op is Ops.LOAD and axis in self.target(u) and u.src[0].op is Ops.DEFINE_GLOBAL and (len(u.src) < 4 or u.src[3].arg == 0)

  def reduce(self, u: UOp) -> Text:
    fn, ids = u.arg
    value, d = u.src[0], u.dtype
    to = self.target(u)
    text = self.whole(value, to)
    prec = ATOM if text == self.x(value) and self.text.get(value, ("", ATOM))[1] == ATOM else ANY
    extra = frozenset(i for i in ids if self.padded[i] != self.sizes[i] and not (fn is BinaryOps.ADD and self.zero_outside(value, i)))
    if extra:
      mask = " & ".join(self.masks(to, to, extra))
      text, prec = f"tl.where({mask}, {text}, {constant(d, identity(fn, d))[0]})", ATOM
    if d.kind == "b":   # as ints
      fn = _LOGIC.get(fn, fn)
      text = f"{text if prec == ATOM else f'({text})'}.to(tl.int32)"
    axes = self.axes(to)
    for i in reversed([i for i in axes if i in ids]):
      text = self.reduced(fn, d, text, axes.index(i))
    if d.kind == "b": return (f"{text} != 0", CMP)
    return (f"{text}.to({triton_type(d)})" if d.kind in "iu" and d.itemsize < 4 else text, ATOM)

  def reduced(self, fn: BinaryOps, d: DType, text: str, axis: int) -> str:
    if fn is BinaryOps.ADD: return f"tl.sum({text}, {axis})"
    if fn in (BinaryOps.MAX, BinaryOps.MIN):
      name = fn.name.lower()
      return f"tl.reduce({text}, {axis}, _{name}_nan)" if d.kind == "f" else f"tl.{name}({text}, {axis})"   # tl.max leaves NaN out
    if fn is BinaryOps.XOR and d.kind != "b": return f"tl.xor_sum({text}, {axis})"
    return f"tl.reduce({text}, {axis}, {_COMBINE[fn]})"

  def dot(self, u: UOp) -> Text:
    a, b = u.src[:2]
    k = u.arg[1]
    (m,), (n,) = self.dims[a] - {k}, self.dims[b] - {k}
    left, right = self.factor(a, (m, k), k), self.factor(b, (k, n), k)
    more = ""
    if len(u.src) > 2: more = f", {self.x(u.src[2])}"
    if a.dtype is dtypes.float32: more += f', input_precision="{"tf32" if self.renderer.allow_tf32 else "ieee"}"'
    if a.dtype in FP8: more += ", max_num_imprecise_acc=0"   # the chip's own sums have 14 bits
    if u.dtype is dtypes.int32: more += ", out_dtype=tl.int32"
    return (f"tl.dot({left}, {right}{more})", ATOM)

  def factor(self, u: UOp, order: tuple[int, int], k: int) -> str:
    """One side of a dot, its dimensions in ``order``, zero in the lanes added to axis ``k``."""
    text = self.x(u)
    if self.padded[k] != self.sizes[k] and not self.zero_outside(u, k):
      text = f"tl.where({self.masks(self.dims[u], self.dims[u], frozenset((k,)))[0]}, {text}, {constant(u.dtype, 0)[0]})"
    if self.axes(self.dims[u]) != list(order): text = f"tl.trans({text})"
    if u.dtype in FP8: text = f"{text}.to(tl.{_DOT_TYPE[u.dtype]}, bitcast=True)"
    return text

  # ---- values

  def cast(self, u: UOp) -> Text:
    v, d = u.src[0], u.dtype
    s = v.dtype
    if v.op is Ops.CONST: return (f"tl.full((), {constant(d, _converted(v.arg, d))[0]}, {triton_type(d)})", ATOM)
    if s is d: return self.text[v]
    if s in FP8: return (f"_from_{d_short(s)}({self.x(v)})", ATOM)
    if d in FP8: return (f"_to_{d_short(d)}({self.x(v) if s is dtypes.float32 else f'{self.x(v, ATOM)}.to(tl.float32)'})", ATOM)
    if d.kind == "b": return (f"{self.x(v, OR)} != {'0.0' if s.kind == 'f' else '0'}", CMP)
    text = self.x(v, ATOM)
    # out of range is undefined; by way of a wider int it wraps, as numpy does on most machines
    if s.kind == "f" and d.kind in "iu" and d.itemsize < 4: text += ".to(tl.int32)"
    elif s.kind == "f" and d is dtypes.uint32: text += ".to(tl.int64)"
    elif s.kind == "b" and d in NARROW: text += ".to(tl.float32)"
    return (f"{text}.to({triton_type(d)})", ATOM)

  def bitcast(self, u: UOp) -> Text:
    v, d = u.src[0], u.dtype
    if v.dtype.itemsize != d.itemsize: raise CompileError(f"kernel {self.name}: BITCAST from {v.dtype} to {d}: item sizes differ")
    text, (s, t) = self.typed(v, None, ATOM), (triton_type(v.dtype), triton_type(d))
    if v.dtype.kind == "b": text, s = f"{text}.to(tl.int8)", "tl.int8"
    if d.kind == "b": return (f"{text} != 0", CMP)
    return (text, ATOM) if s == t else (f"{text}.to({t}, bitcast=True)", ATOM)

  def alu(self, u: UOp) -> Text:
    fn, src = u.arg, u.src
    to = self.dims[u]
    if fn is TernaryOps.WHERE:
      if all(s.op is Ops.CONST for s in src[1:]): yes, no = self.typed(src[1]), self.x(src[2])
      else: yes, no = self.x(src[1], ANY, to), self.x(src[2], ANY, to)
      return (f"tl.where({self.x(src[0], ANY, to)}, {yes}, {no})", ATOM)
    return self.unary(u) if isinstance(fn, UnaryOps) else self.binary(u)

  def unary(self, u: UOp) -> Text:
    fn, v, d = u.arg, u.src[0], u.dtype
    x = self.typed(v, None, ATOM)
    if fn is UnaryOps.ISNAN: return (f"{x} != {x}" if v.dtype.kind == "f" else f"{x} != {x}", CMP)
    if fn is UnaryOps.NOT: return (f"~{x}", UNARY)
    if fn is UnaryOps.NEG:
      if d.kind == "b": return self.text[v]
      return (f"{x}*-1.0", MUL) if d.kind == "f" else (f"-{x}", UNARY)   # Triton's -x is 0 - x, which makes 0.0 of -0.0's opposite
    if d.kind != "f":
      if fn is UnaryOps.ABS and d.kind == "i": return (f"tl.abs({self.typed(v)})", ATOM)
      if fn in (UnaryOps.ABS, UnaryOps.FLOOR, UnaryOps.CEIL, UnaryOps.TRUNC, UnaryOps.ROUND): return (self.typed(v), ANY)
      raise self.refuse(u, f"{fn} of {d}: takes floats")
    if fn is UnaryOps.ABS: return (f"tl.abs({self.typed(v)})", ATOM)
    if fn is UnaryOps.RECIP:
      one = constant(d, 1.0)[0]
      return (f"tl.div_rn({one}, {self.typed(v)})" if d is dtypes.float32 else f"{one}/{x}", ATOM if d is dtypes.float32 else MUL)
    if fn is UnaryOps.SQRT: return (f"{'tl.sqrt_rn' if d is dtypes.float32 else 'tl.sqrt'}({self.typed(v)})", ATOM)
    return (f"{_CALL[fn]}({self.typed(v)})", ATOM)

  def binary(self, u: UOp) -> Text:
    fn, (a, b), d = u.arg, u.src, u.dtype
    to = self.dims[u]
    kind = a.dtype.kind
    if kind == "b":
      fn = _LOGIC.get(fn, fn)
      if fn in (BinaryOps.CMPLT, BinaryOps.CMPLE):
        sign, prec = _INFIX[BinaryOps.AND if fn is BinaryOps.CMPLT else BinaryOps.OR]
        return (f"~{self.typed(a, to, ATOM)}{sign}{self.x(b, prec - 1, to)}", prec)
    both = a.op is Ops.CONST and b.op is Ops.CONST
    if fn in (BinaryOps.MAX, BinaryOps.MIN):
      nan = ", propagate_nan=tl.PropagateNan.ALL" if kind == "f" else ""
      return (f"tl.{fn.name.lower()}imum({self.typed(a, to) if both else self.x(a, ANY, to)}, {self.x(b, ANY, to)}{nan})", ATOM)
    if fn is BinaryOps.THREEFRY: return self.call("_threefry", u)
    if fn is BinaryOps.POW: return self.call("libdevice.pow" if kind == "f" else "_signed_pow" if kind == "i" else "_int_pow", u)
    if fn is BinaryOps.DIV and d is dtypes.float32: return (f"tl.div_rn({self.x(a, ANY, to)}, {self.x(b, ANY, to)})", ATOM)
    if fn in (BinaryOps.IDIV, BinaryOps.MOD):
      name = "div" if fn is BinaryOps.IDIV else "mod"
      if kind == "f": return self.call("_float_floor_div" if name == "div" else "_float_mod", u)
      if not (vmin(a) >= 0 and vmin(b) > 0): return self.call(f"_unsigned_{name}" if kind == "u" else f"_floor_{name}", u)
    if fn not in _INFIX: raise self.refuse(u)
    sign, prec = _INFIX[fn]
    tight = fn in _ARITHMETIC
    # bit operations beside arithmetic read better in parentheses, and comparisons do not chain
    most, least = (prec, prec - 1) if tight else (ADD, ADD) if fn in COMPARE else (UNARY, UNARY)
    left = self.typed(a, to, most) if both else self.x(a, most, to)
    right = self.x(b, least, to)
    if fn in (BinaryOps.AND, BinaryOps.OR, BinaryOps.XOR) and a.op is Ops.ALU and a.arg is fn: left = self.x(a, prec, to)
    if right.startswith("-"): right = f"({right})"
    return (f"{left}{sign}{right}", prec)

  def call(self, name: str, u: UOp) -> Text:
    """A helper or library function of typed operands."""
    return (f"{name}({', '.join(self.typed(s, self.dims[u]) for s in u.src)})", ATOM)


_ARITHMETIC = frozenset((BinaryOps.ADD, BinaryOps.SUB, BinaryOps.MUL, BinaryOps.DIV, BinaryOps.IDIV, BinaryOps.MOD))


def d_short(d: DType) -> str: return "e4m3" if d is dtypes.float8_e4m3 else "e5m2"


def _converted(value: Any, d: DType) -> Any:
  """A constant as what a CAST to ``d`` makes of it."""
  if d.kind == "f": return float(value)
  if d.kind == "b": return bool(value)
  return UOp.const(d, int(value)).arg
