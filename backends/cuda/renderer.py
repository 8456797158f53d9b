"""Linear UOps to Triton Python, written to be read: one statement for each value that is used twice or has an effect.

A value that varies with TILE axes is a block: it has a dimension for each of those axes, in one order for the whole kernel, and
no others; ``[:, None]`` brings the operands of an operation to a common rank. TILE sizes that are no power of two are rounded up;
the lanes added are masked at every LOAD and STORE, and are the combiner's identity in a REDUCE.
"""
from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import replace
from typing import Callable, Iterable, Mapping, Sequence

from ntgrad.codegen import index as ix, pipeline
from ntgrad.codegen.choose.gpu_cost import warps_for
from ntgrad.codegen.index import Dim, Size, arguments, dim_text, sizes_of
from ntgrad.codegen.ir import FUNCTIONS, NO_VALUE, BinaryOps, DType, Ops, Target, UOp, config, dtypes, identity, toposort
from ntgrad.codegen.ir.rounding import is_marked
from ntgrad.codegen.ir.spelling import ATOM, BIT_AND, COMPARISON as CMP, CONDITIONAL as ANY, PRODUCT, SUM, Text, inside
from ntgrad.codegen.kernel import FP8, UOpList, accesses_variable, accumulator, gate_or_true, is_dot, loads_zero, substitute
from ntgrad.codegen.kernel.kernel import Fold, buffers_written, fold_names, orders

from ..base import Grid, KernelSource, ProgramSpec, Renderer, grid_of
from ..rates import of_nvidia
from ..writer import head_text, parameters, touched
from . import helpers
from .descriptors import CAPABILITY, AxisIds, Box, Layout
from .expressions import Expressions, constant, permuted, sizes, zero
from .facts import placed, triton_type

CLOCK = 1.98e9   # of an H100, the greatest
TARGET = Target("triton", lanes=1, registers=255, cores=132, local_memory=227 << 10, cache=50 << 20, bandwidth=3e12, blocks=True,
                descriptors=True, double_dots=True, warp_groups=True, rates=of_nvidia(90, 132, CLOCK))   # an H100
FP8_CAPABILITY = 89             # the first chips that multiply fp8
DOUBLE_CAPABILITY = 80          # and float64
_SHARING = 3                    # pipeline stages of a program that others share a core with, at most: more leave room for fewer
SORTED, SELECTED = 16384, 8192  # bytes of a block that a warp sorts, or of which it finds the first few
ALONE = 1024                    # elements that it sorts where there are more cores than programs
GRID_LIMIT = 65535              # programs in the second and third dimension of a launch

_POINTER = {"bool": "i8", "float8_e4m3": "u8", "float8_e5m2": "u8", "bfloat16": "bf16"}   # others are called by kind and bits
_PREFIXES = {"load": "val", "reduce": "red", "bitcast": "cast"}   # of names of values, where they are not the op's
_ACCESSES = Ops.LOAD, Ops.STORE, Ops.ATOMIC
_DOT_TYPE = {dtypes.float8_e4m3: "float8e4nv", dtypes.float8_e5m2: "float8e5"}


class TritonRenderer(Renderer):
  """Triton Python for CUDA. Needs neither triton nor a device. ``capability`` is the chip's: fp8 products from 89 on, tensor
  descriptors from 90 on. ``allow_tf32`` lets float32 products round their factors to tf32; None: as the setting has it then."""

  def __init__(self, target: Target | None = None, capability: int = 90, allow_tf32: bool | None = None):
    self.target = replace(target or TARGET, descriptors=capability >= CAPABILITY, fp8_dots=capability >= FP8_CAPABILITY,
                          warp_groups=capability == CAPABILITY,
                          double_dots=capability >= DOUBLE_CAPABILITY)
    self.allow_tf32 = allow_tf32
    self.settings = allow_tf32,

  def render(self, name: str, uops: Sequence[UOp], notes: Sequence[str] = ()) -> KernelSource:
    """A module: the notes, the helper functions that the kernel ``name`` uses, then the kernel, ``@triton.jit`` on each. Raises
    CompileError for what Triton cannot express: vectors, work-items and local memory, which it makes itself."""
    for u in uops: triton_type(u.dtype)
    sizes = arguments(uops)
    uops = pipeline.run_passes(UOpList(uops), self.target, "floats", "wholes", name)
    tf32 = bool(config.allow_tf32) if self.allow_tf32 is None else self.allow_tf32
    return _TritonKernel(name, uops, sizes, self.target, tf32).source(notes)


def signature(uops: Sequence[UOp]) -> dict[str, str]:
  """Triton's type of each parameter of a program, in slot order, as the compiler takes it: ``{"data0": "*fp32"}``."""
  def pointer(d: DType) -> str: return "*" + _POINTER.get(d.name, f"{'fp' if d.kind == 'f' else d.kind}{8 * d.itemsize}")
  return {name: "*u8" if u is None else pointer(u.dtype) for name, u in parameters(uops).items()}


def settings(elements: int, product: int, flattened: bool) -> tuple[int, int]:
  """Warps and pipeline stages for a kernel: enough registers a thread, and wide loads. ``elements`` are those of all its axes;
  ``product`` those of its largest accumulator if it has a dot; ``flattened``: one pipeline goes through all its blocks."""
  return (8 if product > 128 * 128 else 4, 3 if flattened else 4) if product else (warps_for(elements), 3)


def sort_key(dtype: DType) -> DType:
  """The int by which elements of ``dtype`` are sorted."""
  if dtype.kind != "f" and dtype.itemsize >= 4: return dtype
  return dtypes.int64 if dtype.itemsize > 4 else dtypes.int32


def to_int32(text: str) -> str: return f"{text if text.isidentifier() else f'({text})'}.to(tl.int32)"


def in_one_dimension(grid: Sequence[Dim]) -> bool:
  """Whether all programs are launched in the first dimension: a launch might not have as many in the others."""
  return any(ix.vmax(ix.node(n)) > GRID_LIMIT for n in grid[1:])


def launch_grid(spec: ProgramSpec) -> Callable[[Sequence[int]], Grid]:
  """How many programs to launch in each dimension, as a function of a launch's sizes. See :func:`grid_of`."""
  grid = grid_of(spec)

  def folded(sizes: Sequence[int]) -> Grid: return math.prod(grid(sizes)), 1, 1
  return folded if in_one_dimension(spec.grid) else grid


class _TritonKernel(Expressions):
  """One rendering: each node is written by the method ``write_`` and its op; those of values give their text."""

  def __init__(self, name: str, uops: Sequence[UOp], arguments: Mapping[Size, DType], target: Target, tf32: bool):
    super().__init__(name, uops, arguments, target.descriptors)
    self.tf32, self.shared, self.cores = tf32, target.local_memory, target.cores
    self.grid: list[Dim] = [1, 1, 1]
    for u in self.uops:
      if u.op is Ops.SPECIAL: self.grid[u.arg[1]] = u.arg[2]
    self.descriptors = dict[tuple[UOp, Layout], str]()   # param and layout -> name
    self.begins = list[int]()                         # of each WHILE whose condition is written, its first line
    self.conditions = list[list[str]]()               # of each open WHILE, the lines of its condition
    # for params that are read and written: the indices of LOADs since the last barrier, None for a STORE or ATOMIC
    self.accessed = defaultdict[UOp, set[UOp | None]](set)
    self.before_if = list[dict[UOp, set[UOp | None]]]()   # of each open IF, the same when it began
    self.ordered = {p for p in touched(self.uops, Ops.LOAD) & touched(self.uops, Ops.STORE, Ops.ATOMIC)
                    if p.op is Ops.DEFINE_GLOBAL}
    self.flattened = False
    self.functions = list[str]()                      # that FOLDs combine with

  # ---- the module

  def source(self, notes: Sequence[str]) -> KernelSource:
    self.describe()
    for u in sorted((u for u in self.uops if u.op is Ops.SPECIAL), key=lambda u: -u.arg[1]): self.special(u)
    begin = len(self.lines)
    for u in self.uops:
      if self.ordered: self.order_memory(u)
      self.node(u)
    ranges = {i: n for i, n in self.padded.items() if {f"r{i}", f"m{i}"} & self.used.keys()}   # only descriptors go along others
    self.lines[begin:begin] = [line for i in ranges for line in self.range(i)]
    if not self.lines: self.emit("pass")
    typed = signature(self.params) | {self.called[s]: f"i{8 * dtype.itemsize}" for s, dtype in self.arguments.items()}
    kernel = "\n".join([f"# {', '.join(f'{name}: {t}' for name, t in typed.items())}", "@triton.jit",
                        head_text(f"def {self.name}", list(typed), ":"), *self.lines])
    used = helpers.with_called(self.used)
    functions = [*(helpers.HELPERS[name] for name in used if name in helpers.HELPERS), *self.functions]
    imports = "import triton\nimport triton.language as tl"
    if "libdevice" in used: imports += "\nfrom triton.language.extra.cuda import libdevice"
    text = "".join(f"# {note}\n" for note in notes) + "\n\n\n".join([imports, *functions, f"{kernel}\n"])
    dots = sum(map(is_dot, self.uops))
    warps, stages = settings(math.prod(ranges.values()), self.largest() if dots else 0, self.flattened)
    warps, stages = max([self.sort_warps(u) for u in self.uops if u.op is Ops.SORT], default=warps), self.shared_stages(stages)
    # only where a kernel adds things up are products and sums fused: elsewhere time goes to memory, and numbers keep numpy's bits
    options = ("num_warps", warps), ("num_stages", stages), (
      "enable_fp_fusion", int(any(u.op in (Ops.REDUCE, Ops.LOOP, Ops.WHILE) for u in self.uops)))
    return KernelSource(text, tuple(typed.items()), options, (imports, *functions),
                        tuple((p.arg[0], p.arg[3]) for p in self.params if p.arg[3:]), weight=1 + dots + len(text)/2000,
                        sizes=tuple(self.arguments.values()))

  def largest(self) -> int:
    """Elements of the largest accumulator, or variable with a start value."""
    accumulators = [[self.padded[i] for i in self.dims[u]] for u in self.uops if u.op is Ops.DEFINE_ACC or is_dot(u)]
    variables = [self.padded_shapes[u] for u in self.uops if u.op is Ops.DEFINE_LOCAL and not self.assigned_first(u)]
    return max([1, *map(math.prod, accumulators), *map(math.prod, variables)])

  def shared_stages(self, most: int) -> int:
    """Pipeline stages, at ``most`` so many: where a loop has several products so few that two programs or more have room on a
    core. One multiplies while another computes what stands between products."""
    def read(uops: Iterable[UOp]) -> int:
      blocks = [u for u in uops if u.op is Ops.LOAD and u.src[0].op is Ops.DEFINE_GLOBAL and len(self.dims[u]) > 1]
      return sum(math.prod(self.padded[i] for i in self.dims[u]) * u.dtype.itemsize for u in blocks)
    for body in (self.body(u) for u in self.uops if u.op is Ops.LOOP):
      if any(u.op is Ops.LOOP for u in body) or sum(map(is_dot, body)) < 2 or not (each := read(body)): continue
      found = (self.shared // 2 - read(self.uops) + each) // each
      most = min(most, found if found > 1 else _SHARING, _SHARING)
    return most

  # ---- statements

  def node(self, u: UOp) -> None:
    """The statements that a node becomes, if any; a value that does not stand inline gets a name."""
    name = u.op.name.lower()
    write: Callable[[UOp], Text | None] | None = getattr(self, f"write_{name}", None)
    if write is None:
      if u.op not in (Ops.CONST, Ops.SPECIAL, Ops.RANGE):
        raise self.refuse(u, "Triton makes work-items itself" if u.op is Ops.BARRIER else "")
    elif (text := write(u)) is not None:
      self.text[u] = text if len(text[0]) <= self.inline.get(u, -1) else self.declare(
        "dot" if is_dot(u) else _PREFIXES.get(name, name), text[0])

  def write_define_global(self, u: UOp) -> None: self.text[u] = u.arg[1], ATOM
  def write_define_var(self, u: UOp) -> None: self.text[u] = self.called[u.arg], ATOM

  def open(self, head: str) -> None:
    self.emit(head)
    self.depth += 1

  def close(self) -> None:
    if self.lines[-1].endswith(":"): self.emit("pass")
    self.depth -= 1

  def range(self, axis: int) -> list[str]:
    """Lines with the element numbers of an axis, and their mask where it is used."""
    lines = [f"  r{axis} = tl.arange(0, {self.padded[axis]})"]
    return [*lines, f"  m{axis} = r{axis} < {self.sizes[axis]}"] if f"m{axis}" in self.used else lines

  def special(self, u: UOp) -> None:
    kind, dim, size = u.arg
    if kind != "g": raise self.refuse(u, "Triton makes work-items itself")
    text: Text = f"tl.program_id({dim})", ATOM
    if in_one_dimension(self.grid):
      text = "tl.program_id(0)", ATOM
      if (below := self.count(self.grid[:dim])) != "1": text = f"{text[0]}//{below}", PRODUCT
      if self.count(self.grid[dim + 1:]) != "1": text = f"{text[0]}%{self.count([size])}", PRODUCT
    wide = text[1] == PRODUCT and sizes_of(self.grid)   # sizes may be int64
    self.emit(f"gidx{dim} = {inside(text)}.to({triton_type(u.dtype)})" if wide or u.dtype is not dtypes.int32 else
              f"gidx{dim} = {text[0]}")
    self.text[u] = f"gidx{dim}", ATOM

  def count(self, grid: Sequence[Dim]) -> str:
    """The product of some dimensions of the grid, as an operand."""
    text = dim_text(ix.product(grid), self.called.__getitem__, self.floor)
    return text if text.isalnum() else f"({text})"
  def floor(self, fn: BinaryOps) -> str: return self.use("_floor_div" if fn is BinaryOps.IDIV else "_floor_mod")

  def write_define_acc(self, u: UOp) -> None:
    self.text[u] = self.declare(
      "acc", f"tl.full({self.shape(self.dims[u])}, {constant(u.dtype, u.arg)[0]}, {triton_type(u.dtype)})")

  def write_loop(self, u: UOp) -> None:
    name, bounds = self.fresh("i"), ", ".join(self.x(s) for s in u.src if s.op not in NO_VALUE)
    # where the loops inside read by descriptor only: with pointers one pipeline through all takes twice the time
    inner = [x for loop in self.body(u) if loop.op is Ops.LOOP for x in self.body(loop)]
    flat = u.arg == "flatten" and not any(x.op is Ops.LOAD and x not in self.boxes for x in inner)
    self.flattened |= flat
    values = f"tl.range({bounds}, flatten=True)" if flat else f"range({bounds})"
    if u.dtype is dtypes.int32: self.open(f"for {name} in {values}:")
    else:   # the counter has the dtype of its bounds
      self.open(f"for n{name} in {values}:")
      self.emit(f"{name} = tl.cast(n{name}, {triton_type(u.dtype)})")
    self.text[u] = name, ATOM

  def write_phi(self, u: UOp) -> None:
    self.text[u] = self.text[u.src[0]]
    self.phis.append(u)

  def next_value(self, phi: UOp) -> tuple[str, str]: return self.whole(phi.src[1], self.dims[accumulator(phi)]), ""

  def write_endloop(self, u: UOp) -> None:
    self.assign_phis()
    self.close()

  def write_if(self, u: UOp) -> None: self.open(f"if {self.x(u.src[0])}:")

  def write_else(self, u: UOp) -> None:
    self.close()
    self.open("else:")

  def write_endif(self, u: UOp) -> None: self.close()
  def write_while(self, u: UOp) -> None: self.begins.append(len(self.lines))

  def write_break(self, u: UOp) -> None:
    """The start of a ``while`` loop. The lines of its condition stand before it and again at its end."""
    name = self.fresh("go")
    self.emit(f"{name} = {self.typed(u.src[0])}")
    self.conditions.append([f"  {line}" for line in self.lines[self.begins.pop():]])
    self.open(f"while {name}:")

  def write_endwhile(self, u: UOp) -> None:
    self.lines += self.conditions.pop()
    self.close()

  def order_memory(self, u: UOp) -> None:
    """A barrier where threads could see memory before others have written it, or write it before others have read it."""
    op = u.op
    if op is Ops.IF: self.before_if.append({p: set(indices) for p, indices in self.accessed.items()})
    elif op in (Ops.ELSE, Ops.ENDIF):   # the other branch may not have been taken
      for p, indices in self.before_if[-1].items(): self.accessed[p] |= indices
      if op is Ops.ENDIF: self.before_if.pop()
    elif op in (Ops.LOOP, Ops.WHILE):   # a later iteration finds what an earlier one did
      for x in self.body(u): self.note(x)
    elif op in _ACCESSES and u.src[0] in self.ordered:
      if None in self.accessed[u.src[0]] if op is Ops.LOAD else (self.accessed[u.src[0]] - {None, u.src[1]}):
        self.emit("tl.debug_barrier()")
        self.accessed.clear()
      self.note(u)

  def note(self, u: UOp) -> None:
    """Note an access of memory, which may be under way until the next barrier."""
    if u.op in _ACCESSES and u.src[0] in self.ordered: self.accessed[u.src[0]].add(u.src[1] if u.op is Ops.LOAD else None)

  # ---- memory

  def pointer(self, u: UOp, to: AxisIds) -> str:
    """The addresses of an access: a block over all of ``to``."""
    buffer, index = self.x(u.src[0]), u.src[1]
    if self.dims[index] != to: return f"{buffer} + {self.whole(index, to)}"
    return buffer if index.op is Ops.CONST and index.arg == 0 else f"{buffer} + {self.x(index, SUM)}"

  def mask(self, u: UOp, to: AxisIds) -> str:
    """The argument ``mask=`` of an access over axes ``to``; empty where it needs none."""
    gate = gate_or_true(u)
    parts = [*([] if gate.op is Ops.CONST else [self.x(gate, BIT_AND, to)]), *self.masks(to, to)]
    return f", mask={' & '.join(parts)}" if parts else ""

  def write_load(self, u: UOp) -> Text:
    if accesses_variable(u): return self.read(u)
    dtype, to = u.dtype, self.target(u)
    if u in self.boxes: text = self.load_box(u, self.boxes[u])
    else:
      if mask := self.mask(u, to):
        other = u.src[3] if len(u.src) > 3 else UOp.const(dtype, 0)
        if dtype.kind != "b": mask += f", other={self.x(other, ANY, to)}"
        else: mask += f", other={int(other.arg)}" if other.op is Ops.CONST else f", other={self.x(other, ANY, to)}.to(tl.int8)"
      text = f"tl.load({self.pointer(u, to)}{mask})"
    return (f"{text} != 0", CMP) if dtype.kind == "b" else (text, ATOM)

  def write_store(self, u: UOp) -> None:
    if accesses_variable(u): return self.assign(u)
    if u in self.boxes: return self.store_box(u, self.boxes[u])
    value, to = u.src[2], self.target(u)
    # alone, a literal is float32
    text = self.typed(value) if value.op is Ops.CONST and value.dtype is dtypes.float64 else self.x(value, ANY, to)
    if value.dtype.kind == "b": text = str(int(value.arg)) if value.op is Ops.CONST else f"{self.x(value, ATOM, to)}.to(tl.int8)"
    pointer = self.pointer(u, to)
    # a thread would take as many elements side by side as it can store at once, and its reads would lie apart
    if len(to) == 1 and self.reads_in_steps(*to): pointer = f"tl.max_contiguous({pointer}, 1)"
    self.emit(f"tl.store({pointer}, {text}{self.mask(u, to)})")

  def write_atomic(self, u: UOp) -> None:
    dtype, to = u.src[0].dtype, self.target(u)
    if dtype.itemsize < 4 and not (u.arg == "add" and dtype in (dtypes.float16, dtypes.bfloat16)):
      raise self.refuse(u, f"CUDA has no atomic {u.arg} of {dtype}; a wider dtype has")
    place, value, mask = self.pointer(u, to), self.whole(u.src[2], to), self.mask(u, to)
    if orders(u): self.emit("tl.debug_barrier()")   # of all threads
    how = "" if orders(u) else ', sem="relaxed"'
    if not u.src[4:]: return self.emit(f"tl.atomic_{u.arg}({place}, {value}{mask}{how})")
    where = mask.removeprefix(", mask=")
    if u.arg != "cas": text = f"tl.atomic_{u.arg}({place}, {value}{mask}{how})"
    else:   # it has no mask: elsewhere the first element gets what it has
      same = self.whole(u.src[6], to)
      if mask: place, value = f"tl.where({where}, {place}, {self.x(u.src[0])})", f"tl.where({where}, {value}, {same})"
      text = f"tl.atomic_cas({place}, {same}, {value})"
    self.text[u] = self.declare("old", f"tl.where({where}, {text}, {zero(dtype)})" if mask else text)
    self.assign(placed(u))

  def write_print(self, u: UOp) -> None:
    """All elements of blocks as Triton has them, those that it adds too."""
    said = u.arg
    def block(v: UOp) -> str:
      if v.dtype in FP8: return f"{self.use('_from_' + v.dtype.name.removeprefix('float8_'))}({self.text[v][0]})"
      return f"{self.text[v][0]}{'.to(tl.int32)' * (v.dtype.kind == 'b')}"
    blocks = map(block, u.src[:len(said.shapes)])
    self.emit(f"tl.device_print({', '.join([json.dumps(said.text.replace('%', '%%')), *blocks])})")

  # ---- memory by descriptor

  def describe(self) -> None:
    """The descriptors that the kernel's accesses name."""
    for name, why in self.pointers.items(): self.emit(f"# {name} goes by pointers: {why}")
    for u, box in self.boxes.items():
      if (u.src[0], box.layout) in self.descriptors: continue
      self.descriptors[u.src[0], box.layout] = name = self.fresh("desc")
      parts = [", ".join(map(self.number, ns)) + ("," if len(box.dims) == 1 else "") for ns in zip(*box.layout)]
      self.emit(f"{name} = tl.make_tensor_descriptor({u.src[0].arg[1]}, ({'), ('.join(parts)}))")

  def number(self, n: Dim) -> str:
    """A number that may be made of sizes; in int64 where it may be too large for int32."""
    wide = isinstance(n, UOp) and ix.vmax(n) > dtypes.max(dtypes.int32)
    return dim_text(n, lambda s: f"{self.called[s]}.to(tl.int64)" if wide else self.called[s], self.floor)

  def corner(self, u: UOp, box: Box) -> tuple[str, str]:
    """The descriptor of an access, and where its block begins along each dimension."""
    begins = (self.sum(dim.terms, dim.start, narrow=True) for dim in box.dims)
    return self.descriptors[u.src[0], box.layout], f"[{', '.join(begins)}]"

  def load_box(self, u: UOp, box: Box) -> str:
    name, corner = self.corner(u, box)
    text = f"{name}.load({corner})"
    if len(box.axes) < len(box.dims): text = f"tl.reshape({text}, {sizes(self.padded[i] for i in box.axes)})"
    return permuted(text, [box.axes.index(i) for i in self.axes(frozenset(box.axes))])

  def store_box(self, u: UOp, box: Box) -> None:
    name, corner = self.corner(u, box)
    axes = self.axes(self.target(u))
    text = permuted(self.whole(u.src[2], self.target(u)), [axes.index(i) for i in box.axes])
    if len(axes) < len(box.dims): text = f"tl.reshape({text}, {sizes(dim.block for dim in box.dims)})"
    if u.src[0].dtype.kind == "b": text = f"({text}).to(tl.int8)"
    self.emit(f"{name}.store({corner}, {text})")

  # ---- scans, sorts and reductions

  def combiner(self, fn: BinaryOps, dtype: DType) -> str:
    """A helper that combines two values."""
    return self.use(f"_{fn.name.lower()}{'_nan' if dtype.kind == 'f' and fn in (BinaryOps.MAX, BinaryOps.MIN) else ''}")

  def write_scan(self, u: UOp) -> Text:
    fn, axis, reverse = u.arg
    dtype, to = u.dtype, self.dims[u]
    text = self.whole(u.src[0], to)
    if reverse: text = self.filled(text, (axis,), to, constant(dtype, identity(fn, dtype))[0])   # the lanes added come first
    dim, back = self.axes(to).index(axis), ", reverse=True" if reverse else ""
    if fn is BinaryOps.ADD and dtype.itemsize >= 4: return f"tl.cumsum({text}, {dim}{back})", ATOM
    return f"tl.associative_scan({text}, {dim}, {self.combiner(fn, dtype)}{back})", ATOM

  def write_fold(self, u: UOp) -> None:
    """A scan of several blocks at once; bools are ints meanwhile."""
    f, (read, to) = u.arg, fold_names(u, [self.text[v][0] for v in u.src])
    given = [to_int32(name) if v.dtype.kind == "b" else name for name, v in zip(read, u.src)]
    shape = self.padded_shapes[u.src[0]]
    if f.reverse and shape[f.axis] != f.shape[f.axis]:   # the lanes added come first
      f, own = f.guarded(), f"tl.arange(0, {shape[f.axis]}) < {f.shape[f.axis]}"
      at = ", ".join(":" if d == f.axis else "None" for d in range(len(shape)))
      to.insert(0, "_")
      given.insert(0, f"tl.broadcast_to(({own})[{at}], {sizes(shape)}).to(tl.int32)")
    operands, back = given[0] if len(given) == 1 else f"({', '.join(given)})", ", reverse=True" if f.reverse else ""
    self.emit(f"{', '.join(to)} = tl.associative_scan({operands}, {f.axis}, {self.combining(f)}{back})")
    for name in [self.text[v][0] for v in buffers_written(u) if v.dtype.kind == "b"]: self.emit(f"{name} = {name} != 0")

  def combining(self, f: Fold) -> str:
    """The function of a FOLD, written as a helper of the module."""
    zero, given = UOp.const(dtypes.int32, 0), dict[UOp, UOp]()
    def memory(name: str, dtype: DType) -> UOp: return UOp(Ops.DEFINE_LOCAL, dtype, (), (name, 1, "private"))
    for letter, loads in (("a", f.first), ("b", f.second)):
      given.update((x, UOp(Ops.LOAD, x.dtype, (memory(f"{letter}{i}", x.dtype), zero))) for i, x in enumerate(loads))
    roots = substitute(f.results, given)
    stores = [UOp(Ops.STORE, r.dtype, (memory(f"out{i}", r.dtype), zero, r)) for i, r in enumerate(roots)]
    plain = Target("triton")
    own = _TritonKernel(self.name, pipeline.run_passes(UOpList(toposort(stores + [*given.values()])), plain, "floats", "floats",
                                                       self.name), {}, plain, self.tf32)
    own.exact = set(own.uops)
    parameters = {x.src[0].arg[0]: x for x in given.values()}
    for u in own.uops:
      if u.op is not Ops.DEFINE_LOCAL or u.arg[0] not in parameters: own.node(u)
      else: own.text[u] = f"({u.arg[0]} != 0)" if u.dtype.kind == "b" else u.arg[0], ATOM
    for name in own.used: self.use(name)
    name = self.fresh(f"_{self.name}_fold")
    out = [f"out{i}{'.to(tl.int32)' * (r.dtype.kind == 'b')}" for i, r in enumerate(roots)]
    head = "@triton.jit", f"def {name}({', '.join(parameters)}):"
    self.functions.append("\n".join([*head, *own.lines, f"  return {', '.join(out)}"]))
    return name

  def write_sort(self, u: UOp) -> Text:
    """Ascending or descending, NaN last; floats by ints of the same order."""
    axis, descending, *first = u.arg
    dtype, to, keys = u.dtype, self.dims[u], sort_key(u.dtype)
    text = self.whole(u.src[0], to)
    if dtype.kind == "f": text = f"{self.use(f'_sort_key_{keys.name}')}({text}, {descending})"
    elif keys is not dtype: text = to_int32(text)
    text = self.filled(text, (axis,), to, str(dtypes.min(keys) if descending else dtypes.max(keys)))
    axes = self.axes(to)
    order = sorted(range(len(axes)), key=lambda i: axes[i] == axis)
    size, block = self.padded[axis], math.prod(self.padded[i] for i in axes)
    keep, bitonic = first or (size, False)
    bits, row, kept, wide = [n.bit_length() - 1 for n in (block, size, keep, self.neighbours(axis))]
    # the bits of an element's number that say where in a thread it is are those below low and from top on: the lanes lie between
    top = row if bitonic else min(row, wide + 4 + self.sort_warps(u).bit_length())
    told = f"{bits}, {row}, {kept}, {row if bitonic else 1}, {min(wide, top)}, {top}"
    text = permuted(f"(~({text}))" if descending else text, order)
    text = permuted(f"{self.use('_first_sorted')}({text}, {told})", [order.index(i) for i in range(len(axes))])
    # the sorted ones lie side by side within a thread: where neighbours are read, they had better be of other lanes
    if len(axes) == 1 and self.gathering(): text = f"tl.gather({text}, tl.arange(0, {size}), 0)"
    if descending: text = f"(~{text})"
    if dtype.kind == "b": return f"{text} != 0", CMP
    if dtype.kind == "f": return f"{self.use(f'_from_sort_key_{keys.name}')}({text})", ATOM
    return (text if keys is dtype else f"{text}.to({triton_type(dtype)})"), ATOM

  def gathering(self) -> bool:
    """Whether elements of blocks are read at places that are computed."""
    return any(u.op is Ops.LOAD and self.gathers(u) for u in self.uops)

  def sort_warps(self, u: UOp) -> int:
    """For a block that is sorted: the fewer, the more comparisons are within a thread, as long as it has registers for them. More
    where cores idle anyway: compilers take seconds for all comparisons of a thread."""
    keep = u.arg[2] if u.arg[2:] else self.padded[u.arg[0]]
    elements = math.prod(self.padded[i] for i in self.dims[u])
    few = elements // ALONE if ix.count(ix.product(self.grid)) < self.cores else 0
    # Triton gathers within one warp by as many shuffles as a thread has pairs of elements
    return max(1 + self.gathering(), min(16, max(few, elements * sort_key(u.dtype).itemsize // (
      SORTED if keep == self.padded[u.arg[0]] else SELECTED))))

  def zero_outside(self, u: UOp, axis: int) -> bool:
    """Whether a value is known to be zero in the lanes added to an axis: it was loaded there under their mask."""
    while u.op is Ops.CAST: u = u.src[0]
    return u.op is Ops.LOAD and axis in self.target(u) and u.src[0].op is Ops.DEFINE_GLOBAL and loads_zero(u)

  def write_reduce(self, u: UOp) -> Text:
    if is_dot(u): return self.dot(u)
    fn, ids = u.arg
    value, dtype, to = u.src[0], u.dtype, self.target(u)
    text = self.whole(value, to)
    added = [i for i in ids if self.ragged(i) and not (fn is BinaryOps.ADD and self.zero_outside(value, i))]
    text = self.filled(text, added, to, constant(dtype, identity(fn, dtype))[0])
    if dtype.kind == "b": fn, text = FUNCTIONS[fn].boolean or fn, f"{text}.to(tl.int32)" if added else to_int32(text)
    axes = self.axes(to)
    for i in reversed([i for i in axes if i in ids]): text = self.reduced(fn, dtype, text, axes.index(i))
    if dtype.kind == "b": return f"{text} != 0", CMP
    return (f"{text}.to({triton_type(dtype)})" if dtype.kind in "iu" and dtype.itemsize < 4 else text), ATOM

  def reduced(self, fn: BinaryOps, dtype: DType, text: str, axis: int) -> str:
    if fn is BinaryOps.ADD: return f"tl.sum({text}, {axis})"
    if fn is BinaryOps.XOR and dtype.kind != "b": return f"tl.xor_sum({text}, {axis})"
    if fn in (BinaryOps.MAX, BinaryOps.MIN) and dtype.kind != "f": return f"tl.{fn.name.lower()}({text}, {axis})"
    return f"tl.reduce({text}, {axis}, {self.combiner(fn, dtype)})"   # tl.max leaves NaN out

  def dot(self, u: UOp) -> Text:
    (a, b), (k,) = u.src[:2], u.arg[1]
    batch = self.dims[a] & self.dims[b] - {k}
    own = [*self.axes(batch), *(i for x in (a, b) for i in self.dims[x] - batch - {k})]   # of the product
    axes = self.axes(self.dims[u])
    parts = [self.factor(a, k, [*own[:-1], k]), self.factor(b, k, [*own[:-2], k, own[-1]]),
             *(permuted(self.x(s), [axes.index(i) for i in own]) for s in u.src[2:])]
    if a.dtype is dtypes.float32:
      parts.append(f'input_precision="{"tf32" if self.tf32 or is_marked((a, b)) else "ieee"}"')
    if a.dtype in FP8: parts.append("max_num_imprecise_acc=0")   # without it sums have 14 bits
    if u.dtype is not dtypes.float32: parts.append(f"out_dtype={triton_type(u.dtype)}")
    return permuted(f"tl.dot({', '.join(parts)})", [own.index(i) for i in axes]), ATOM

  def factor(self, u: UOp, k: int, order: Sequence[int]) -> str:
    """A factor of a dot, whose dimensions are these axes, with zeros in the lanes added to axis ``k``."""
    text, dims = self.x(u), self.dims[u]
    if not self.zero_outside(u, k): text = self.filled(text, (k,), dims, zero(u.dtype))
    text = permuted(text, [self.axes(dims).index(i) for i in order])
    return f"{text}.to(tl.{_DOT_TYPE[u.dtype]}, bitcast=True)" if u.dtype in FP8 else text
