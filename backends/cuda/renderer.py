"""Linear UOps to Triton Python, written to be read: one statement for each value that is used twice or has an effect, the rest
inline.

A value that varies with TILE axes is a block: it has a dimension for each of those axes, in one order for the whole kernel, and
no others; ``[:, None]`` brings blocks to a common rank where they meet. TILE sizes that are no power of two are rounded up; the
lanes added are masked at every LOAD and STORE, and take the combiner's identity in a REDUCE.
"""
from __future__ import annotations

import math
from typing import Any, Sequence

from ntgrad.backends.base import KernelSource, Renderer
from ntgrad.backends.cuda import helpers
from ntgrad.backends.cuda.descriptors import CAPABILITY, Box
from ntgrad.backends.cuda.expressions import ADD, AND, ANY, ATOM, CMP, MUL, Text, constant, sizes
from ntgrad.backends.cuda.facts import INLINE, NAMED, triton_type
from ntgrad.backends.cuda.variables import Variables
from ntgrad.codegen.blocks import DOT, FP8, accumulator
from ntgrad.codegen.config import config
from ntgrad.codegen.dtype import DType, dtypes
from ntgrad.codegen.functions import FUNCTIONS, identity
from ntgrad.codegen.target import Target
from ntgrad.codegen.uop import BinaryOps, Ops, UOp, step_of

TARGET = Target("triton", lanes=1, registers=255, cores=132, local_memory=227 << 10, cache=50 << 20, bandwidth=3e12, blocks=True,
                descriptors=True)   # an H100
GRID_LIMIT = 65535    # programs in the second and third dimension of a launch

_POINTER = {"bool": "i8", "float8_e4m3": "u8", "float8_e5m2": "u8", "bfloat16": "bf16"}   # others are called by kind and bits
_DOT_TYPE = {dtypes.float8_e4m3: "float8e4nv", dtypes.float8_e5m2: "float8e5"}


class TritonRenderer(Renderer):
  """Triton Python for CUDA. Needs neither triton nor a device.

  ``capability`` is the chip's (80, 90, ..): fp8 products from 89 on, tensor descriptors from 90 on. ``allow_tf32`` lets
  float32 products round their factors to tf32; None: as ``config.allow_tf32`` says at the time.
  """

  def __init__(self, target: Target | None = None, capability: int = 90, allow_tf32: bool | None = None):
    self.target, self.capability, self.allow_tf32 = target or TARGET, capability, allow_tf32

  def render(self, name: str, uops: Sequence[UOp], notes: Sequence[str] = ()) -> KernelSource:
    """A module: the notes, the helper functions that the kernel ``name`` uses, then the kernel, ``@triton.jit`` on each.

    Raises CompileError for what Triton cannot express: vectors, work-items and local memory, which it makes itself.
    """
    return _TritonKernel(self, name, uops).source(notes)


def signature(uops: Sequence[UOp]) -> dict[str, str]:
  """Triton's type of each parameter of a program, in slot order, as the compiler takes it: ``{"data0": "*fp32"}``."""
  out: dict[str, str] = {}
  for u in sorted((u for u in uops if u.op is Ops.DEFINE_GLOBAL), key=lambda u: int(u.arg[0])):
    while len(out) < u.arg[0]: out[f"unused{len(out)}"] = "*u8"
    kind = "fp" if u.dtype.kind == "f" else u.dtype.kind
    out[u.arg[1]] = "*" + _POINTER.get(u.dtype.name, f"{kind}{8 * u.dtype.itemsize}")
  return out


def settings(elements: int, product: int, flattened: bool) -> tuple[int, int]:
  """Warps and pipeline stages for a kernel: enough registers a thread, and wide loads.

  ``elements`` are those of all its axes; ``product`` those of its largest accumulator where it has a dot, else 0; ``flattened``
  says that it goes from block to block by one pipeline.
  """
  if product: return 8 if product > 128 * 128 else 4, 3 if flattened else 4
  warps = 4
  while warps < 16 and elements > warps * 32 * 8: warps *= 2
  return warps, 3


def launch_grid(grid: Sequence[int]) -> tuple[int, int, int]:
  """How many programs to launch in each dimension: one dimension has all where CUDA has not as many in the others."""
  x, y, z = (*grid, 1, 1, 1)[:3]
  return (x, y, z) if y <= GRID_LIMIT and z <= GRID_LIMIT else (x * y * z, 1, 1)


class _TritonKernel(Variables):
  """One rendering: the lines so far and the Python text of every value."""

  def __init__(self, renderer: TritonRenderer, name: str, uops: Sequence[UOp]):
    super().__init__(name, uops, renderer.capability >= 89, renderer.capability >= CAPABILITY)
    self.renderer = renderer
    self.flat = launch_grid(self._grid()) != self._grid()
    self.text: dict[UOp, Text] = {}
    self.descriptors: dict[Any, str] = {}               # param and layout -> name
    self.lines: list[str] = []
    self.depth = 1
    self.counts: dict[str, int] = {}
    self.phis: list[UOp] = []                           # assignments that wait for the end of the loop
    # of each open WHILE: where its condition begins; then its name and the condition's lines
    self.whiles: list[Any] = []
    self.opened: list[int] = []                         # of each open block, how many lines there were
    self.stored: set[UOp] = set()                       # since the last barrier: what was written,
    self.loaded: dict[UOp, set[UOp]] = {}               # and what was read, and where
    self.used: dict[str, None] = {}
    self.blocks = [1]                                   # elements of each accumulator and variable
    self.flattened = False
    self.kept: list[tuple[set[UOp], dict[UOp, set[UOp]]]] = []   # of each open IF, both as they were before it

  def emit(self, line: str) -> None: self.lines.append("  " * self.depth + line)

  def fresh(self, prefix: str) -> str:
    n = self.counts.get(prefix, 0)
    self.counts[prefix] = n + 1
    return f"{prefix}{n}"

  # ---- the module

  def source(self, notes: Sequence[str]) -> KernelSource:
    self.describe()
    for u in sorted((u for u in self.uops if u.op is Ops.SPECIAL), key=lambda u: -u.arg[1]): self.special(u)
    begin = len(self.lines)
    self.text.update((u, (f"r{u.arg[0]}", ATOM)) for u in self.uops if u.op is Ops.RANGE)   # loops that use an axis share it
    for u in self.uops: self.node(u)
    self.flush()
    ranges, self.lines[begin:begin] = self.ranges()
    if not self.lines: self.emit("pass")
    typed = signature(self.params)
    args = list(typed)
    head = f"def {self.name}({', '.join(args)}):"
    if len(head) > 130: head = f"def {self.name}(" + ",".join(f"\n    {a}" for a in args) + "):"
    kernel = "\n".join(["# " + ", ".join(f"{name}: {t}" for name, t in typed.items()), "@triton.jit", head, *self.lines])
    used = helpers.with_called(self.used)
    functions = [helpers.HELPERS[name] for name in used if name in helpers.HELPERS]
    imports = "import triton\nimport triton.language as tl"
    if "libdevice" in used: imports += "\nfrom triton.language.extra.cuda import libdevice"
    text = "".join(f"# {note}\n" for note in notes) + "\n\n\n".join([imports, *functions, kernel]) + "\n"
    dots = sum(u.op is Ops.REDUCE and u.arg[0] is DOT for u in self.uops)
    warps, stages = settings(ranges, max(self.blocks) if dots else 0, self.flattened)
    # only where a kernel adds things up are products and sums fused: elsewhere time goes to memory, and numbers keep numpy's bits
    fuse = any(u.op in (Ops.REDUCE, Ops.LOOP, Ops.WHILE) for u in self.uops)
    options = (("num_warps", warps), ("num_stages", stages), ("enable_fp_fusion", int(fuse)))
    return KernelSource(text, tuple(typed.items()), options, (imports, *functions), weight=1 + dots + len(text)/2000)

  # ---- statements

  def node(self, u: UOp) -> None:
    o = u.op
    if self.ordered: self.order_memory(u)
    if o in (Ops.CONST, Ops.SPECIAL, Ops.RANGE): return
    if o is Ops.DEFINE_GLOBAL: self.text[u] = (u.arg[1], ATOM)
    elif o is Ops.LOOP: self.loop(u)
    elif o is Ops.IF:
      self.flush()
      self.open(f"if {self.x(u.src[0])}:")
    elif o is Ops.DEFINE_ACC:
      name, dims = self.fresh("acc"), self.dims[u]
      self.blocks.append(math.prod(self.padded[i] for i in dims))
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
    elif o in NAMED:
      name = (
        "dot"
        if o is Ops.REDUCE and u.arg[0] is DOT
        else {Ops.LOAD: "val", Ops.REDUCE: "red", Ops.SCAN: "scan", Ops.SORT: "sort"}[o]
      )
      value = getattr(self, "dot" if name == "dot" else o.name.lower())(u)
      if u in self.inline: self.text[u] = value
      else: self.define(u, name, value)
    elif o in INLINE:
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

  def ranges(self) -> tuple[int, list[str]]:
    """How many elements the axes have that values go along, and lines with the element numbers and masks that are used."""
    lines: list[str] = []
    elements = 1
    for i, dtype in dict.fromkeys((u.arg[0], u.dtype) for u in self.uops if u.op is Ops.RANGE):
      if not {f"r{i}", f"m{i}"} & self.used.keys(): continue   # only descriptors go along it
      wide = f".to({triton_type(dtype)})" if dtype is not dtypes.int32 else ""
      lines.append(f"  r{i} = tl.arange(0, {self.padded[i]}){wide}")
      if f"m{i}" in self.used: lines.append(f"  m{i} = r{i} < {self.sizes[i]}")
      elements *= self.padded[i]
    return elements, lines

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
    name, step = self.fresh("i"), step_of(u)
    bounds = ", ".join(self.x(s) for s in (*u.src[:2], *(() if step is None else (step,))))
    flat = u.arg == "flatten" and self.flattens(u)
    self.flattened |= flat
    values = f"tl.range({bounds}, flatten=True)" if flat else f"range({bounds})"
    if u.dtype is dtypes.int32: self.open(f"for {name} in {values}:")
    else:   # the counter has the dtype of its bounds
      self.open(f"for n{name} in {values}:")
      self.emit(f"{name} = tl.cast(n{name}, {triton_type(u.dtype)})")
    self.text[u] = (name, ATOM)

  def flattens(self, loop: UOp) -> bool:
    """Whether the loops in it read by descriptor only: with pointers one pipeline through all of them takes twice the time."""
    depth = 0
    for x in self.uops[self.uops.index(loop):]:
      depth += (x.op is Ops.LOOP) - (x.op is Ops.ENDLOOP)
      if depth > 1 and x.op is Ops.LOAD and not isinstance(x.arg, Box): return False
      if depth == 0: break
    return True

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
    """A barrier where a program's threads could see memory before others have written it, or write it before others have read
    it."""
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
    if isinstance(u.arg, Box): return self.load_box(u, u.arg)
    buffer, index = u.src[:2]
    gate, other = (*u.src[2:], None, None)[:2]
    to = self.target(u)
    mask = self.condition(gate, to)
    rest = ""
    if mask:
      zero = self.x(other, ANY, to) if other is not None else constant(u.dtype, 0)[0]
      if u.dtype.kind == "b":
        zero = str(int(other.arg)) if other is not None and other.op is Ops.CONST else f"{zero}.to(tl.int8)" if other else "0"
      rest = f", mask={mask}, other={zero}"
    text = f"tl.load({self.pointer(buffer, index, to)}{rest})"
    return (f"{text} != 0", CMP) if u.dtype.kind == "b" else (text, ATOM)

  def store(self, u: UOp) -> None:
    if isinstance(u.arg, Box): return self.store_box(u, u.arg)
    buffer, index, value = u.src[:3]
    gate = u.src[3] if len(u.src) > 3 else None
    to = self.target(u)
    mask = self.condition(gate, to)
    # alone, a literal is float32
    text = self.typed(value) if value.op is Ops.CONST and value.dtype is dtypes.float64 else self.x(value, ANY, to)
    if u.src[0].dtype.kind == "b":
      text = str(int(value.arg)) if value.op is Ops.CONST else f"{self.x(value, ATOM, to)}.to(tl.int8)"
    self.emit(f"tl.store({self.pointer(buffer, index, to)}, {text}{mask and f', mask={mask}'})")

  def atomic(self, u: UOp) -> None:
    buffer, index, value = u.src[:3]
    d = buffer.dtype
    if d.itemsize < 4 and not (u.arg == "add" and d in (dtypes.float16, dtypes.bfloat16)):
      raise self.refuse(u, f"CUDA has no atomic {u.arg} of {d}; a wider dtype has")
    to = self.target(u)
    mask = self.condition(u.src[3] if len(u.src) > 3 else None, to)
    self.emit(
      f"tl.atomic_{u.arg}({self.pointer(buffer, index, to)}, {self.whole(value, to)}{mask and f', mask={mask}'}, sem=\"relaxed\")"
    )

  # ---- memory by descriptor

  def describe(self) -> None:
    """The descriptors that the kernel's accesses name."""
    for name, why in self.pointers.items(): self.emit(f"# {name} goes by pointers: {why}")
    for u in self.uops:
      if not isinstance(u.arg, Box): continue
      key, ds = (u.src[0], u.arg.layout), u.arg.dims
      if key in self.descriptors: continue
      self.descriptors[key] = name = self.fresh("desc")
      parts = [sizes(d.size for d in ds), sizes(d.stride for d in ds), sizes(d.block for d in ds)]
      self.emit(f"{name} = tl.make_tensor_descriptor({u.src[0].arg[1]}, {', '.join(parts)})")

  def corner(self, u: UOp, box: Box) -> str:
    """Where a block begins, along each dimension: ints of 32 bits."""
    atoms = u.src[1 if u.op is Ops.LOAD else 2:]
    def times(x: UOp, k: int) -> str:
      text = f"{self.x(x, ATOM)}.to(tl.int32)" if x.dtype.itemsize > 4 else self.x(x, MUL)
      return text if k == 1 else f"{text}*{k}"

    parts = [
      " + ".join([times(atoms[i], k) for i, k in d.terms] + ([str(d.start)] if d.start or not d.terms else [])) for d in box.dims
    ]
    return f"[{', '.join(parts)}]"

  def load_box(self, u: UOp, box: Box) -> Text:
    text = f"{self.descriptors[u.src[0], box.layout]}.load({self.corner(u, box)})"
    axes, wanted = box.axes, self.axes(frozenset(box.axes))
    if len(axes) < len(box.dims): text = f"tl.reshape({text}, {sizes(self.padded[i] for i in axes)})"
    if axes != wanted: text = self.permuted(text, [axes.index(i) for i in wanted])
    return (f"{text} != 0", CMP) if u.dtype.kind == "b" else (text, ATOM)

  def store_box(self, u: UOp, box: Box) -> None:
    axes, to = box.axes, frozenset(box.axes)
    text, wanted = self.whole(u.src[1], to), self.axes(to)
    if axes != wanted: text = self.permuted(text, [wanted.index(i) for i in axes])
    if len(axes) < len(box.dims): text = f"tl.reshape({text}, {sizes(box.blocks)})"
    if u.src[0].dtype.kind == "b": text = f"({text}).to(tl.int8)"
    self.emit(f"{self.descriptors[u.src[0], box.layout]}.store({self.corner(u, box)}, {text})")

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
    return (f"tl.associative_scan({text}, {at}, {self.use(name)}{back})", ATOM)

  def sort(self, u: UOp) -> Text:
    """Ascending or descending, NaN last; floats by ints of the same order. Triton sorts along the last dimension."""
    axis, descending = u.arg
    value, d, to = u.src[0], u.dtype, self.dims[u]
    axes = self.axes(to)
    text, keys = self.whole(value, to), d
    if d.kind == "f":
      keys = dtypes.int64 if d.itemsize > 4 else dtypes.int32
      text = f"{self.use(f'_sort_key_{keys.name}')}({text}, {bool(descending)})"
    elif d.itemsize < 4: text, keys = f"{text if text.isidentifier() else f'({text})'}.to(tl.int32)", dtypes.int32
    if self.padded[axis] != self.sizes[axis]:
      last = dtypes.min(keys) if descending else dtypes.max(keys)
      text = f"tl.where({self.masks(to, to, frozenset((axis,)))[0]}, {text}, {last})"
    order = [i for i in range(len(axes)) if axes[i] != axis] + [axes.index(axis)]
    moved = order != list(range(len(axes)))
    if moved: text = self.permuted(text, order)
    text = f"tl.sort({text}, {len(axes) - 1}, {bool(descending)})"
    if moved: text = self.permuted(text, [order.index(i) for i in range(len(axes))])
    if d.kind == "f": text = f"{self.use(f'_from_sort_key_{keys.name}')}({text})"
    elif keys is not d: text += f".to({triton_type(d)})" if d.kind != "b" else " != 0"
    return (text, CMP if d.kind == "b" else ATOM)

  # ---- reductions

  def zero_outside(self, u: UOp, axis: int) -> bool:
    """Whether a value is certainly zero in the lanes added to an axis."""
    while u.op is Ops.CAST: u = u.src[0]
    if isinstance(u.arg, Box): return axis in u.arg.axes
    return (
      u.op is Ops.LOAD and axis in self.target(u) and u.src[0].op is Ops.DEFINE_GLOBAL and (len(u.src) < 4 or u.src[3].arg == 0)
    )

  def reduce(self, u: UOp) -> Text:
    fn, ids = u.arg
    value, d = u.src[0], u.dtype
    to = self.target(u)
    text = self.whole(value, to)
    prec = ATOM if text == self.x(value) and self.text.get(value, ("", ATOM))[1] == ATOM else ANY
    extra = frozenset(
      i for i in ids if self.padded[i] != self.sizes[i] and not (fn is BinaryOps.ADD and self.zero_outside(value, i))
    )
    if extra:
      mask = " & ".join(self.masks(to, to, extra))
      text, prec = f"tl.where({mask}, {text}, {constant(d, identity(fn, d))[0]})", ATOM
    if d.kind == "b":   # as ints
      fn = FUNCTIONS[fn].boolean or fn
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
      # tl.max leaves NaN out
      return f"tl.reduce({text}, {axis}, {self.use(f'_{name}_nan')})" if d.kind == "f" else f"tl.{name}({text}, {axis})"
    if fn is BinaryOps.XOR and d.kind != "b": return f"tl.xor_sum({text}, {axis})"
    return f"tl.reduce({text}, {axis}, {self.use(f'_{fn.name.lower()}')})"

  def dot(self, u: UOp) -> Text:
    a, b = u.src[:2]
    k = u.arg[1]
    (m,), (n,) = self.dims[a] - {k}, self.dims[b] - {k}
    left, right = self.factor(a, (m, k), k), self.factor(b, (k, n), k)
    more = ""
    if len(u.src) > 2: more = f", {self.x(u.src[2])}"
    if a.dtype is dtypes.float32:
      tf32 = config.allow_tf32 if self.renderer.allow_tf32 is None else self.renderer.allow_tf32
      more += f', input_precision="{"tf32" if tf32 else "ieee"}"'
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
