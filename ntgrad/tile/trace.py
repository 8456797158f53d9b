"""Building a kernel while its application is read: axes, statements, regions, variables."""
from __future__ import annotations

import ast
import operator
import types
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Callable, Container, Iterator, Mapping, NamedTuple, Sequence

from ntgrad.codegen import index as ix
from ntgrad.codegen.explain.scheduler_form import inlined, is_scheduled, without_tiles
from ntgrad.codegen.index import Dim, same_size, text_of
from ntgrad.codegen.ir import COMPARE, FUNCTIONS, TF32, BinaryOps, DType, Ops, TernaryOps, UnaryOps, UOp, dtypes, prod, toposort
from ntgrad.codegen.ir.errors import ApplicationError, DTypeError, IndexOutOfRangeError, ShapeError
from ntgrad.codegen.kernel import EFFECTS, REGIONS, Axis, AxisKind, Kernel, Param, flat_index, gate_or_true, rewrite, substitute
from ntgrad.codegen.kernel.arrangement import Arrangement
from ntgrad.codegen.kernel.kernel import Print, buffers_written
from ntgrad.codegen.passes.statements import kept_sizes
from ntgrad.engine.device_asserts import WORD_VALUES, Check
from ntgrad.graph.origins import Line

from . import block as _b
from .assigned import Version
from .block import BlockValue, DimSize, as_index, block, dim, plain_value, seen
from .parameters import Level, Parameter, Place, Reference, SourceTensor, Tile

_RECOMPUTED = 8   # times as many nodes as there is, that statements may have without what they have in common being kept


@dataclass
class LocalArray:
  """Memory of a program's own: an array that a statement fills and others read."""
  uop: UOp
  axes: _b.Axes

  @property
  def block(self) -> BlockValue:
    return BlockValue(UOp(Ops.LOAD, self.uop.dtype, (self.uop, self.index)), self.axes)
  @property
  def index(self) -> UOp: return UOp(Ops.INDEX, dtypes.index, tuple(a for a in self.axes if a is not None))

  def value_of(self, name: str, x: Any) -> UOp:
    """A value, called ``name``, as a function of the array's axes."""
    return plain_value(_b.to_axes(name, block(x), self.axes), self.uop.dtype)


_Table = dict[UOp, UOp]


class Region(NamedTuple):
  """What is being read around a region, as far as it has been read."""
  statements: list[UOp]
  known: _Table
  written: set[UOp]
  inside: list[int]


class Tracer:
  """The kernel as far as it has been read. ``checks``: which it makes; with ``slopes`` SLOPED nodes say what functions were."""

  def __init__(self, parameters: list[Parameter], grid_shape: tuple[Dim, ...], checks: str, slopes: bool = False):
    self.parameters, self.grid_shape, self.checks, self.slopes = parameters, grid_shape, checks, slopes
    self.statements: list[UOp] = []
    self.known: _Table = {}                     # a value that lies in a variable -> the load of it
    self.written: set[UOp] = set()              # the parameters' memory that the region writes
    self.inside: list[int] = []                 # FOR axes around what is being read
    self.outer: list[Region] = []               # around the region that is being read, outermost first
    self.frames: list[dict[str, Any]] = []      # the names of the functions that are being read
    self.held: list[Any] = []                   # values of the expressions that are being read
    self.materialized: list[int] = []           # the levels of values that were materialized, in order
    self.line = ""                              # of the application that is being read, with its file and number
    self.at_line: Line | None = None            # the same, for errors
    self.lines: dict[str, None] = {}            # those that store something
    self.done_at: dict[UOp, str] = {}           # the line of each LOAD, STORE and ATOMIC
    self.places: dict[tuple[int | str, Ops], list[str]] = {}   # of those in the kernel, by slot or variable's name
    self.reached: dict[int, Line | None] = {}   # those that come to a parameter first, by its slot
    self.breakpoints: list[Any] = []            # of the application, in order
    self.looking: str | None = None             # the arg of LOADs that only a debugger sees
    self.replaced: set[UOp] = set()             # values that are others but for a part: ``block[i] = v``
    self.assigned: dict[UOp, Version] = {}      # values that are others at places which are numbers
    self.asserts: dict[Check, int] = {}         # what it checks -> the number of its note
    self.atomics = 0                            # those that were read
    self.raw_loads = self._variables = 0        # loads at computed places: not to be done where a condition forbids them
    self.call: Callable[..., Any]               # reads a function, as the application is
    self.axes: list[Axis] = []
    self.grid = [self.new_axis(n, AxisKind.GRID) for n in grid_shape]
    self.parents: _Table = {}                   # union-find of axes over one dimension: each leads to an older one
    self._sources: dict[UOp, frozenset[UOp]] = {}   # what ``sources`` has found

  def __enter__(self) -> Tracer:
    _b._tracers.append(self)
    return self
  def __exit__(self, *_: Any) -> None: _b._tracers.pop()

  # ---- axes
  def new_axis(self, size: DimSize | Dim, kind: AxisKind) -> UOp:
    self.axes.append(Axis(len(self.axes), dim(size), kind))
    return self.axes[-1].rng

  def axis(self, size: DimSize | Dim) -> UOp:
    """A new block axis."""
    return self.new_axis(size, AxisKind.TILE)

  def unify(self, a: UOp, b: UOp) -> None:
    """Two axes run over the same dimension: what one operand calls ``a`` the other calls ``b``."""
    old, new = sorted((self.root(a), self.root(b)), key=lambda r: int(r.arg[0]))
    if old is not new: self.parents[new] = old

  def root(self, a: UOp) -> UOp:
    """The first of the axes that ``a`` was unified with."""
    while a in self.parents: a = self.parents[a]
    return a

  def settled(self, axes: _b.AnyAxes) -> _b.Axes:
    """Axes under the names that the rest of the program has for them, so that equal values are equal expressions."""
    out = tuple(None if a is None else self.root(a) for a in axes)
    real = [a for a in out if a is not None]
    return out if len(set(real)) == len(real) else tuple(axes)

  # ---- memory
  def load(self, p: Parameter, at: tuple[UOp, ...], valid: UOp, other: UOp | None = None) -> UOp:
    self.reached.setdefault(p.slot, self.at_line)
    src = p.uop, UOp(Ops.INDEX, dtypes.index, at)
    value = UOp(Ops.LOAD, p.dtype, src if valid is ix.TRUE else (*src, valid), self.looking)
    if self.looking is None: self.done_at.setdefault(value, self.place)
    fill = other if other is not None else UOp.const(p.dtype, p.other) if p.other is not None else None
    if fill is None or valid is ix.TRUE or fill.op is Ops.CONST and fill.arg == 0 and str(fill.arg) != "-0.0": return value
    return UOp.alu(TernaryOps.WHERE, valid, value, plain_value(fill, p.dtype))

  def atomic(self, how: str, p: Parameter, at: Sequence[UOp], value: UOp, valid: UOp, axes: _b.Axes,
             compared: Sequence[UOp] = ()) -> BlockValue:
    """Combine elements with what is there, and give that: a block of ``axes``."""
    self.atomics += 1
    old = self.variable(p.dtype, (), axes, True)
    compared = [self.stage(BlockValue(c, axes)).value for c in compared]
    self.store(p, at, value, valid, how, old=(old.uop, old.index, *map(self.refer, compared)))
    return old.block

  def store(self, p: Parameter, at: Sequence[UOp], value: UOp, valid: UOp, atomic: str | None = None,
            order: tuple[str, tuple[int, ...]] | None = None, old: tuple[UOp, ...] = ()) -> None:
    """Write elements; ``order``: "set" or "add", and the axes along which one comes after another; ``old``: where what an atomic
    operation finds goes, and what it compares it with."""
    self.reached.setdefault(p.slot, self.at_line)
    self.materialize(p)
    if any(q.one is not None for q in self.parameters): value = self.refer(value)   # what was kept, rather than reading it anew
    if order is not None: value, valid, *at = [self.now(u, p) for u in (value, valid, *at)]
    p.written = True
    self.written.add(p.uop)
    self.known = self.unchanged({p.uop})
    value, valid = self.refer(value), self.refer(valid)
    gate = () if valid is ix.TRUE and not old else (valid,)
    src = p.uop, UOp(Ops.INDEX, dtypes.index, tuple(map(self.refer, at))), value, *gate, *old
    self.state(UOp.unique(Ops.ATOMIC if atomic else Ops.STORE, p.dtype, src, atomic or order))

  def now(self, u: UOp, p: Parameter) -> UOp:
    """A part of a write that goes in an order; what reads the memory that is written is computed before."""
    if p.uop not in self.sources(u): return u
    self.keep_node(plain_value(u))
    kept = self.known[plain_value(u)]
    return as_index(kept) if u.dtype is dtypes.index else kept

  def materialize(self, p: Parameter) -> None:
    """Values that were read from a parameter which is about to be written keep what they were, wherever the application has them.
    Each is computed at the end of what has been read of the region that it was made in: nothing has written over it yet there. If
    that is outside of a loop whose body is being read, the body must be read once more."""
    for x in values_in(self.frames, self.held):
      if isinstance(x, Place):
        if x._block is None and x._parameter.uop is p.uop and x.level is not None:
          with self.at(x.level): x.load_block()
        if x._block is None: continue
        x = x._block
      if not isinstance(x, BlockValue) or p.uop not in self.sources(x.value): continue
      with self.at(x.level): x.value = self.keep(x).value
      self.materialized.append(x.level)

  def sources(self, u: UOp) -> frozenset[UOp]:
    """The memory of parameters that an expression reads."""
    memo = self._sources
    if u in memo: return memo[u]
    for n in toposort((u,), stop=memo.__contains__):
      if n in memo: continue
      found = {n.src[0]} if n.op is Ops.LOAD and n.src[0].op is Ops.DEFINE_GLOBAL else set()
      memo[n] = frozenset(found.union(*(memo[s] for s in n.src)))
    return memo[u]

  def unchanged(self, written: set[UOp]) -> _Table:
    """The values that lie in variables, without those that would not be the same after writing to some memory."""
    return {u: v for u, v in self.known.items() if not self.sources(u) & written} if written else self.known

  # ---- checks
  def device_assert(self, condition: BlockValue, message: str) -> None:
    """Note where a condition does not hold, with the first thing that it compares, if it is a comparison."""
    if self.checks == "none": return
    value = plain_value(condition.value)
    operands = value.src if value.arg in COMPARE else ()
    compared = next((s for s in operands if s.op is not Ops.CONST and s.dtype.kind != "b"), None)
    kind = "" if compared is None else "f" if compared.dtype.kind == "f" else "i"
    said = f"device_assert{': ' + message if message else ''} does not hold, {self.place}".replace("{", "{{").replace("}", "}}")
    shape = known_sizes((*self.grid_shape, *condition.dims))
    said += f"; last for element {{element}} of {shape}, the grid's dimensions first"
    if kind: said += ", where {value} is compared"
    self.note(Check(said, shape, kind), UOp.alu(UnaryOps.NOT, value), condition.axes, compared)

  def check_index(self, name: str, dim: int, size: Dim, index: UOp, axes: _b.AnyAxes, where: UOp = ix.TRUE) -> None:
    """With ``checks="all"``, note where an index that only the kernel knows is outside of a dimension: where ``where`` holds."""
    outside = ix.both(ix.ge(index, 0), ix.lt(index, size))
    if self.checks != "all" or outside is ix.TRUE: return
    said = f"index {{value}} is outside dimension {dim} of {name}, which has {text_of(size)} elements ({self.place})"
    shape = known_sizes((*self.grid_shape, *_b.dims_of(axes)))
    self.note(Check(said, shape, "i", IndexOutOfRangeError), ix.both(where, UOp.alu(UnaryOps.NOT, outside)), axes, index)

  @property
  def place(self) -> str:
    """The line of the application that is being read: file and number."""
    return self.line.partition(": ")[0]

  def note(self, check: Check, failed: UOp, axes: _b.AnyAxes, value: UOp | None) -> None:
    """Note the greatest element for which ``failed`` holds, and the value there, as ``engine/device_asserts.py`` has it; none
    that is made of what lies outside of a tensor."""
    if (notes := next((p for p in self.parameters if p.notes), None)) is None:
      notes = Parameter("checks", len(self.parameters), Arrangement.of((1,)), dtypes.int64, notes=True)
      self.parameters.append(notes)
    site = self.asserts.setdefault(check, len(self.asserts))
    notes.arrangement = Arrangement.of((len(self.asserts),))
    places = [ix.ZERO if a is None else a for a in (*self.grid, *axes)]
    number = flat_index(check.shape, places) if prod(check.shape) < 1 << 31 else ix.ZERO
    gates = [gate_or_true(u) for u in toposort((failed,)) if u.op is Ops.LOAD]
    inside = [g for g in gates if g is not None and g.ranges <= failed.ranges]
    noted = UOp.alu(BinaryOps.MUL, plain_value(ix.add(number, 1), dtypes.int64), UOp.const(dtypes.int64, WORD_VALUES))
    if value is not None: noted = UOp.alu(BinaryOps.ADD, noted, word(value))
    self.store(notes, (ix.const(site),), noted, ix.both(failed, *inside), "max")
    before = takewhile(lambda s: s.src[0] is notes.uop, self.statements[-2::-1])
    if any(s.src == self.statements[-1].src for s in before): self.statements.pop()   # it is there already

  # ---- looking
  def print(self, text: str, blocks: Sequence[BlockValue], stop: int = 0) -> None:
    """Print all elements of blocks as they are here; or stop at a breakpoint, which is given them."""
    variables = []
    for b in blocks:
      if costly(b.value): self.keep(b)   # what is printed and what is computed of it are the same bits
      variables.append(self.variable(plain_value(b.value).dtype, b.shape, b.axes))
      self.assign(variables[-1], plain_value(b.value))
    src = *[v.uop for v in variables], *map(self.refer, self.grid)
    said = Print(text, tuple(known_sizes(b.dims) for b in blocks), stop)
    self.state(UOp.unique(Ops.PRINT, dtypes.bool, src, said))

  # ---- variables
  def variable(self, dtype: DType, shape: tuple[DimSize, ...], axes: _b.AnyAxes | None = None,
               any_size: bool = False) -> LocalArray:
    """Memory for a block; its sizes become numbers, unless it may be of ``any_size`` (see ``finished``)."""
    own = tuple(map(_b.axis_for, shape)) if axes is None else tuple(axes)
    sizes = tuple(a.arg[1] for a in own if a is not None)
    if not any_size: sizes = known_sizes(sizes)
    name = f"v{self._variables}"
    self._variables += 1
    return LocalArray(UOp(Ops.DEFINE_LOCAL, dtype, (), (name, sizes, "private")), own)

  def assign(self, v: LocalArray, value: UOp) -> None:
    """``value``, a function of the variable's axes, becomes its contents."""
    self.state(UOp.unique(Ops.STORE, v.uop.dtype, (v.uop, v.index, self.refer(value))))

  def state(self, s: UOp) -> None:
    """One more statement, of this line."""
    self.statements.append(s)
    self.lines[self.line] = None
    self.done_at[self.statements[-1]] = self.place

  def keep(self, b: BlockValue) -> BlockValue:
    """The block, its elements computed now and stored."""
    value = plain_value(b.value)
    if value in self.known: return BlockValue(self.known[value], b.axes)
    for u in _shared([value], self): self.keep_node(u)
    return self.keep_node(value, b.axes)

  def keep_node(self, u: UOp, axes: _b.AnyAxes | None = None) -> BlockValue:
    """Compute a part of an expression now; wherever it comes again it is read from the variable. ``axes``: the variable's."""
    v = self.variable(u.dtype, (), [r for r in _b.ranges_of(u) if self.kind(r) is AxisKind.TILE] if axes is None else axes)
    self.assign(v, u)
    self.known[u] = v.block.value
    return v.block

  def kind(self, r: UOp) -> AxisKind: return self.axes[r.arg[0]].kind

  def made_of_assigned(self, u: UOp) -> list[UOp]:
    """The blocks assigned by places that an expression reads."""
    return [n for n in toposort((u,), stop=self.assigned.__contains__) if n in self.assigned] if self.assigned else []

  def refer(self, u: UOp) -> UOp:
    """An expression that reads from variables what lies in them."""
    if found := self.made_of_assigned(u): u = substitute((u,), {n: self.assigned[n].whole(_b.rename_axes) for n in found})[0]
    return substitute((u,), self.known)[0] if self.known else u

  def stage(self, b: BlockValue) -> BlockValue:
    """A block that is read many times over: computed once, unless it is hardly more than a load."""
    return self.keep(b) if costly(b.value) else b

  # ---- matrix products
  def dot(self, x: Any, y: Any, acc: Any = None, dtype: DType | None = None, rounded: Any = False) -> BlockValue:
    """(m, k) @ (k, n) -> (m, n), added up in float32 (int32 for ints, float64 for float64); with a batch in front, too. Where it
    is ``rounded``, factors of float32 may be rounded to tf32."""
    a, b = block(x), block(y)
    n = a.ndim
    if n not in (2, 3) or b.ndim != n or not all(map(same_size, (*a.dims[:-2], a.dims[-1]), (*b.dims[:-2], b.dims[-2]))):
      raise ShapeError(f"dot: blocks of shapes {a.shape} and {b.shape}; it takes (m, k) and (k, n), or (b, m, k) and (b, k, n)")
    if a.dtype.kind != b.dtype.kind: raise DTypeError(f"dot: blocks of {a.dtype} and {b.dtype}; both floats or both ints")
    a, b = self.stage(a), self.stage(b)
    big = max(a.dtype.itemsize, b.dtype.itemsize)
    narrow, wide = (dtypes.float32, dtypes.float64) if a.dtype.kind == "f" else (dtypes.int32, dtypes.int64)
    factor = UOp(Ops.CAST, a.dtype, (a.value,), TF32) if rounded and a.dtype is b.dtype is dtypes.float32 else a.value
    left, right = BlockValue(factor, (*a.axes, None)), BlockValue(b.value, (*b.axes[:-2], None, *b.axes[-2:]))
    product = _b.block_binary(BinaryOps.MUL, left, right, dtype or (wide if big == 8 else narrow))
    out = _b.block_reduce(BinaryOps.ADD, product, n - 1, name="dot")
    return out if acc is None else _b.block_binary(BinaryOps.ADD, acc, out)

  # ---- regions
  def region_here(self) -> Region: return Region(self.statements, self.known, self.written, self.inside)
  def go_to(self, r: Region) -> None: self.statements, self.known, self.written, self.inside = r

  @contextmanager
  def region(self, written: set[UOp] | None = None) -> Iterator[list[UOp]]:
    """Statements go into a list of their own; values kept inside are not known outside, nor what is written over inside.
    ``written`` is what a loop's body writes: at its begin it may be written already."""
    self.outer.append(self.region_here())
    self.go_to(Region([], dict(self.unchanged(written or set())), set(), list(self.inside)))
    try: yield self.statements
    finally:
      inner = self.written
      self.go_to(self.outer.pop())
      self.written |= inner
      self.known = self.unchanged(inner)

  @contextmanager
  def at(self, level: int) -> Iterator[None]:
    """What is stated goes to the end of a region around this one, or of this one."""
    if level >= len(self.outer):
      yield
      return
    regions = [*self.outer, self.region_here()]
    self.outer[level:] = []
    self.go_to(regions[level])
    try: yield
    finally:
      self.outer.extend(regions[level:-1])
      self.go_to(regions[-1])

  def update(self, variables: Mapping[str, LocalArray], to: Mapping[str, UOp]) -> None:
    """Give variables their next contents, all at once; parts that several of them need are computed once."""
    changes = [(v, self.refer(to[n])) for n, v in variables.items() if to[n] is not v.block.value]
    for u in _shared([u for _, u in changes], self): self.keep_node(u)
    changes = [(v, self.refer(u)) for v, u in changes]
    waiting = dict(enumerate(changes))
    while waiting:
      free = next((i for i, (v, _) in waiting.items() if not any(reads(u, v) for j, (_, u) in waiting.items() if j != i)), None)
      if free is None:   # a swap: one goes through another variable
        i, (v, u) = next(iter(waiting.items()))
        waiting[i] = v, self.keep(BlockValue(u, v.axes)).value
        continue
      v, u = waiting.pop(free)
      if _reads_elsewhere(u, v): u = self.keep(BlockValue(u, v.axes)).value
      self.assign(v, u)

  def asked(self, statements: Sequence[UOp]) -> Sequence[UOp]:
    """Statements without the variables that nothing reads: of atomic operations, if they are done once an element without."""
    nodes = toposort(statements)
    if not any(u.op in (Ops.ATOMIC, Ops.FOLD) for u in nodes): return statements
    read = {u.src[0] for u in nodes if u.op is Ops.LOAD}
    def plain(u: UOp, new: UOp) -> UOp:
      gate = [g for g in u.src[3:4] if g is not ix.TRUE]
      if len(u.src) != 6 or u.src[4] in read or u.src[5].ranges - frozenset().union(*[s.ranges for s in (*u.src[1:3], *gate)]):
        return new
      out = new.replace((*new.src[:3], *gate))
      self.done_at[out] = self.done_at[u]
      return out
    def fewer(u: UOp, new: UOp) -> UOp:
      n = len(u.arg.first)
      kept = [(v, i) for v, i in zip(u.src[n:], u.arg.asked) if v in read]
      return new.replace((*u.src[:n], *[v for v, _ in kept]), arg=u.arg._replace(asked=tuple(i for _, i in kept)))
    return rewrite(statements, {Ops.ATOMIC: plain, Ops.FOLD: fewer})

  def computed_once(self, statements: list[UOp]) -> list[UOp]:
    """Statements whose values have so much in common that computing it in each would be most of the work, as the stages of a
    Fourier transform that are written out have: the common parts are computed before."""
    once, each = len(toposort(tuple(statements))), 0
    for s in statements:
      each += len(toposort((s,)))
      if each > _RECOMPUTED * once: break
    else: return statements
    fixed = dict[UOp, bool]()   # whether no statement changes what a value is
    for u in toposort(tuple(statements)):
      fixed[u] = u.op is not Ops.DEFINE_LOCAL and u not in self.written and all([fixed[s] for s in u.src])
    values = [s.src[2] for s in statements if s.op is Ops.STORE and not isinstance(s.arg, tuple)]
    self.statements, self.known = [], {}
    for u in _shared([v for v in values if fixed[v]], self): self.keep_node(u)
    changed = substitute(statements, self.known)
    self.done_at |= {new: self.done_at[old] for old, new in zip(statements, changed) if old in self.done_at}
    return [*self.statements, *changed]

  def kernel(self) -> Kernel:
    """What has been read, as a kernel in index form."""
    statements = self.computed_once(list(self.asked(_needed(self.statements))))
    own = [p for p in self.parameters if p.one is None]
    table = {p.uop: UOp(Ops.DEFINE_GLOBAL, p.dtype, (), (p.slot, f"data{p.slot}", p.written)) for p in own}
    new: _Table = {}
    used: set[int] = set()   # axes
    for u in toposort(statements):
      new[u] = table[u] if u in table else u.replace(tuple(new[s] for s in u.src))
      if u in self.done_at and (place := self.done_at[u]) not in (known := self.places.setdefault((u.src[0].arg[0], u.op), [])):
        known.append(place)
      used.update(u.arg[:1] if u.op is Ops.RANGE else u.arg[1] if u.op is Ops.REDUCE else [u.arg] if u.op is Ops.FOR else ())
    axes = tuple(a for a in self.axes if a.kind is AxisKind.GRID or a.id in used)
    params = tuple(Param(p.slot, p.shape, p.dtype, p.written) for p in self.parameters)
    kernel = Kernel(params, axes, tuple(new[s] for s in statements))
    if kept := kept_sizes(kernel): known_sizes(kept)
    return finished(kernel) if kernel.variables or kernel.sorts else kernel


def finished(kernel: Kernel) -> Kernel:
  """A kernel as it has been read, in the form of the scheduler's where only that can be compiled: with a sort by bits, a running
  sum that begins anew (ApplicationError if it cannot), or one along a size that is no number (which else becomes one)."""
  by_parts = any(u.op is Ops.SORTED or u.op is Ops.SCAN and any(u.arg[3:]) for u in kernel.nodes)
  if not by_parts and all(isinstance(n, int) for v in kernel.variables for n in v.arg[1]): return kernel
  found = inlined(kernel)
  if is_scheduled(found): return without_tiles(found)
  if by_parts:
    raise ApplicationError("sort_bits, and a running sum that begins anew (every=), stand in an application that apart from that "
                           "computes element by element and stores: one of a kind, in no loop or condition, beside no sum")
  numbers = {v: v.replace((), arg=(v.arg[0], known_sizes(v.arg[1]), *v.arg[2:])) for v in kernel.variables}
  return kernel.with_(body=substitute(kernel.body, numbers))


def known_sizes(sizes: Sequence[Dim]) -> tuple[int, ...]:
  """Sizes that must be numbers: a run-time size is the one that it is now, which the kernel is for from there on."""
  return tuple(operator.index(seen(n)) for n in sizes)


def word(value: UOp) -> UOp:
  """A number as 32 bits in an int64: those of a float32, or of an int32, the nearest that there is."""
  u = plain_value(value)
  if u.dtype.kind == "f": bits = UOp(Ops.BITCAST, dtypes.uint32, (plain_value(u, dtypes.float32),))
  else:
    if u.dtype.itemsize == 8 or u.dtype is dtypes.uint32:
      if u.dtype.kind == "i": u = UOp.alu(BinaryOps.MAX, u, UOp.const(u.dtype, dtypes.min(dtypes.int32)))
      u = UOp.alu(BinaryOps.MIN, u, UOp.const(u.dtype, dtypes.max(dtypes.int32)))
    bits = plain_value(plain_value(u, dtypes.int32), dtypes.uint32)
  return plain_value(bits, dtypes.int64)


def values_in(*roots: Any) -> Iterator[BlockValue | Place | list[Any] | dict[Any, Any]]:
  """The blocks, places, lists and dicts among values, and in lists, dicts, tuples, closures and objects; each once."""
  stack, seen = list(roots)[::-1], set[int]()
  while stack:
    x = stack.pop()
    if x is None or isinstance(x, _FLAT) or id(x) in seen: continue
    seen.add(id(x))
    if isinstance(x, (BlockValue, Reference)) or isinstance(x, Tile) and x.innermost: yield x
    elif isinstance(x, (tuple, list, dict)):
      if not isinstance(x, tuple): yield x
      stack.extend(reversed(x.values() if isinstance(x, dict) else x))
    else: stack.append(getattr(x, "__dict__", None))


_FLAT = (bool, int, float, str, bytes, type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, ast.AST, DType, UOp,
         Parameter, Level, SourceTensor)


def _needed(statements: Sequence[UOp]) -> list[UOp]:
  """The statements without those that fill variables which nothing reads."""
  fills: dict[UOp, list[UOp]] = {}
  stack: list[UOp] = []                 # expressions of statements that are needed
  order = toposort(tuple(statements))
  for u in order:
    if u.op in REGIONS: stack.append(u.src[0])
    elif u.op is Ops.PRINT: stack.extend(UOp(Ops.LOAD, v.dtype, (v,)) for v in u.src)
    elif u.op in EFFECTS or u.op is Ops.FOLD:
      if all(v.op is Ops.DEFINE_LOCAL for v in buffers_written(u)):
        for v in buffers_written(u): fills.setdefault(v, []).append(u)
      else: stack.extend(u.src)
  seen: set[UOp] = set()
  while stack:
    u = stack.pop()
    if u in seen: continue
    seen.add(u)
    stack.extend(u.src)
    for s in fills.get(u.src[0], ()) if u.op is Ops.LOAD else ():
      stack.extend(s.src[1:] if s.op is not Ops.FOLD else [UOp(Ops.LOAD, v.dtype, (v,)) for v in s.src[:len(s.arg.first)]])
  dead = {s for stores in fills.values() for s in stores if seen.isdisjoint(buffers_written(s))}
  if not dead: return list(statements)
  new: _Table = {}
  for u in order:
    if u.op not in REGIONS: continue
    body = [new.get(s, s) for s in u.src[1:] if s not in dead]
    if not body: dead.add(u)
    elif body != list(u.src[1:]):
      then = sum(s not in dead for s in u.src[1:u.arg + 1]) if u.op is Ops.IF else u.arg
      new[u] = UOp.unique(u.op, u.dtype, (u.src[0], *body), then)
  return [new.get(s, s) for s in statements if s not in dead]


def reads(u: UOp, v: LocalArray) -> bool:
  """Whether an expression reads a variable."""
  return v.uop in toposort((u,))


def _reads_elsewhere(u: UOp, v: LocalArray) -> bool:
  """Whether an expression reads a variable at another element than its own."""
  own = {a.arg[0] for a in v.axes if a is not None}
  return any(n.op is Ops.LOAD and n.src[0] is v.uop and n is not v.block.value or
             n.op is Ops.REDUCE and own.intersection(n.arg[1]) and reads(n, v) for n in toposort((u,)))


def costly(u: UOp, known: Container[UOp] = ()) -> bool:
  """Whether a value is more than a load and a little arithmetic, when those of ``known`` cost nothing."""
  alu = 0
  for n in toposort((u,), stop=lambda n: n.op in (Ops.LOAD, Ops.INDEX) or n in known):
    if n in known: continue
    if n.op in (Ops.REDUCE, Ops.SCAN, Ops.SORT, Ops.SORTED): return True
    if n.op is Ops.ALU and n.dtype.kind != "b" and n.dtype is not dtypes.index:
      if FUNCTIONS[n.arg].recompute > 1: return True
      alu += 1
  return alu > 2


def _shared(values: Sequence[UOp], t: Tracer) -> list[UOp]:
  """Costly parts that come several times in the values, sources first."""
  order = toposort(tuple(values))
  users: dict[UOp, int] = dict.fromkeys(values, 1)
  for n in order:
    for s in dict.fromkeys(n.src): users[s] = users.get(s, 0) + 1
  out: dict[UOp, None] = {}
  for n in order:
    if n.dtype is dtypes.index or n.op not in (Ops.ALU, Ops.REDUCE, Ops.CAST) or users[n] < 2: continue
    # it is one of a sum's many summands
    if any(t.kind(r) is AxisKind.LOOP and r.arg[0] not in t.inside for r in n.ranges): continue
    if costly(n, out): out[n] = None
  return list(out)

