"""Building a kernel while its application is read: axes, statements, variables, and the parameters as the application sees them."""
from __future__ import annotations

import ast
import types
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Iterator, NamedTuple, Sequence

from ntgrad.codegen import index as ix
from ntgrad.codegen.arrangement import Arrangement
from ntgrad.codegen.dtype import DType, dtypes
from ntgrad.codegen.errors import AxisError, DTypeError, ShapeError
from ntgrad.codegen.kernel import Axis, AxisKind, Kernel, Param
from ntgrad.codegen.uop import BinaryOps, Ops, TernaryOps, UnaryOps, UOp, toposort
from ntgrad.codegen.view import strides_of

from .block import (
  Block,
  _tracers,
  binary,
  block,
  broadcast_shapes,
  give_operators,
  plain,
  position,
  ranges_of,
  reduce,
  to_axes,
  tracer,
  unify,
)

_COSTLY = {UnaryOps.EXP, UnaryOps.EXP2, UnaryOps.LOG, UnaryOps.LOG2, UnaryOps.SIN, UnaryOps.COS, UnaryOps.TAN, UnaryOps.TANH, UnaryOps.ERF,
           UnaryOps.SQRT, UnaryOps.RSQRT, BinaryOps.POW, BinaryOps.DIV, BinaryOps.THREEFRY}


@dataclass(eq=False)
class Parameter:
  """A tensor parameter of the kernel that is being built: its place among the arguments, its arrangement with numbers, its dtype."""
  name: str
  slot: int
  arrangement: Arrangement
  dtype: DType
  other: Any = None
  written: bool = False
  axes: tuple[UOp | None, ...] | None = None     # of its innermost level, the same at every read
  memory: tuple[int, ...] | None = None          # the shape in memory, where the tensor is jagged
  offsets: Parameter | None = None               # where each entry of a jagged tensor begins
  of: str = ""                                   # of those offsets: the name of the jagged tensor
  jagged: int = 0                                # its dimension
  anywhere: bool = False                         # read or written at computed places

  @property
  def shape(self) -> tuple[int, ...]:
    """The shape in memory; a single number has one element."""
    return self.memory or self.arrangement.source or (1,)

  @property
  def uop(self) -> UOp: return UOp(Ops.DEFINE_GLOBAL, self.dtype, (), (self.slot, f"data{self.slot}", True))
  @property
  def levels(self) -> tuple[tuple[int, ...], ...]:
    """The levels beneath the grid, outermost first; one element where there are none."""
    return self.arrangement.levels[1:] or ((),)
  @property
  def scalar(self) -> bool:
    """A source without dimensions: every program sees the same number."""
    return self.arrangement.source == () and len(self.arrangement.levels) == 1


class Level:
  """What ``parameter.dtype`` is while the parameter has more levels: the next one's shape and dtype."""

  def __init__(self, parameter: Parameter, level: int): self._parameter, self._level = parameter, level
  @property
  def shape(self) -> tuple[int, ...]: return self._parameter.levels[self._level]
  @property
  def ndim(self) -> int: return len(self.shape)
  @property
  def dtype(self) -> Any: return self._parameter.dtype if self._level + 1 == len(self._parameter.levels) else Level(self._parameter, self._level + 1)


class Place:
  """Where elements are in memory, and, once it has been read, what they were then.

  ``level`` is how many regions of the kernel were open when it was read; None for what a parameter's own name stands for, which is read
  anew each time. The elements are loaded when they are first needed, at the latest before they are written (``Tracer.pin``).
  """
  _parameter: Parameter
  level: int | None = None
  _block: Block | None = None

  def load(self) -> Block: raise NotImplementedError
  def load_block(self) -> Block:
    """The elements as they were when the place was read."""
    if self.level is None: return self.load()
    if self._block is None:
      self._block = self.load()
      self._block.level = self.level
    return self._block

  def __hash__(self) -> int: return id(self)
  def to(self, dtype: Any) -> Block:
    """The elements converted to a dtype."""
    return block(self).to(dtype)
  cast = astype = to


class Tile(Place):
  """A parameter in an application, or one of its tiles. Reading it loads the innermost level's block; indexing goes a level deeper."""

  def __init__(self, parameter: Parameter, indices: tuple[tuple[UOp, ...], ...] = (), level: int | None = None):
    self._parameter, self._indices, self.level = parameter, indices, level

  def now(self) -> Tile:
    """The tile as it is read here."""
    return Tile(self._parameter, self._indices, len(tracer().outer))

  def holds(self, value: Any) -> bool:
    """Whether a value is what this tile has in memory."""
    return isinstance(value, Tile) and value._parameter is self._parameter and value._indices == self._indices and value._block is None

  @property
  def shape(self) -> tuple[int, ...]:
    """The level's shape."""
    return self._parameter.levels[len(self._indices)]
  @property
  def ndim(self) -> int: return len(self.shape)
  @property
  def dtype(self) -> Any:
    """The element type; for a level above the innermost, the next level."""
    return Level(self._parameter, len(self._indices)).dtype
  @property
  def source(self) -> Source: return Source(self._parameter)
  @property
  def innermost(self) -> bool: return len(self._indices) + 1 == len(self._parameter.levels)
  @property
  def T(self) -> Block: return block(self).T
  def __repr__(self) -> str: return f"{self._parameter.name}{list(self._indices) or ''}"
  def __bool__(self) -> bool: return bool(block(self))
  def __len__(self) -> int: return self.shape[0]
  def __iter__(self) -> Iterator[Any]: return (self[i] for i in range(self.shape[0]))

  def __getitem__(self, index: Any) -> Any:
    if self.innermost: return block(self)[index]
    got = index if isinstance(index, tuple) else (index,)
    if len(got) != self.ndim: raise AxisError(f"{self!r}: {len(got)} indices for a level of shape {self.shape}; give one a dimension")
    at = []
    for i, n in zip(got, self.shape):
      u = position(block(i).value)
      lo, hi = ix.bounds(u)
      if lo == hi: u = ix.const(lo % n if -n <= lo < 0 else lo)
      if lo == hi and not -n <= lo < n: raise AxisError(f"{self!r}: index {lo} in a dimension of {n} of a level {self.shape}")
      at.append(u)
    return Tile(self._parameter, (*self._indices, tuple(at)), len(tracer().outer))

  def place(self, axes: Sequence[UOp | None]) -> tuple[tuple[UOp, ...], UOp]:
    """The source index of the innermost level's element at ``axes``, and whether there is one."""
    p = self._parameter
    if p.scalar: return (ix.const(0),), ix.TRUE
    if not self.innermost:
      raise ShapeError(f"{self!r} has levels {p.levels[len(self._indices):]}: index the level {self.shape} before its tiles are read or written")
    tile = [ix.const(0) if a is None else a for a in axes]
    levels = [list(tracer().grid), *map(list, self._indices)]
    if len(p.arrangement.levels) > 1: levels.append(tile)
    indices, valid = p.arrangement.pull(levels)
    if p.offsets is not None: indices, valid = entry_of(p, indices, valid)
    for level, dims in zip(self._indices, p.levels):   # an index that is known only when the kernel runs
      for i, n in zip(level, dims): valid = ix.both(valid, ix.ge(i, 0), ix.lt(i, n))
    return indices, valid

  def axes(self) -> tuple[UOp | None, ...]:
    p = self._parameter
    if p.axes is None: p.axes = tuple(tracer().axis(n) if n > 1 else None for n in p.levels[-1])
    return tracer().settled(p.axes) if self.innermost else ()

  def load(self) -> Block:
    """What is in memory now; ``other`` where the tile hangs over the edge."""
    axes = self.axes()
    indices, valid = self.place(axes)
    return Block(tracer().load(self._parameter, indices, valid), axes)

  def store(self, value: Any) -> None:
    """Write a block that broadcasts to the tile's shape, converted to the parameter's dtype."""
    t, p = tracer(), self._parameter
    b = block(value)
    shape = self.shape if self.innermost else ()
    own = (None,) * (len(shape) - b.ndim) + b.axes
    axes = [a if a is not None else t.axis(n) if n > 1 else None for a, n in zip(own[-len(shape):] if shape else (), shape)]
    if tuple(1 if a is None else a.arg[1] for a in axes) != shape: axes = [t.axis(n) if n > 1 else None for n in shape]
    u = to_axes(f"storing into {self!r}", b, axes)
    indices, valid = self.place(axes)
    t.store(p, indices, plain(u, p.dtype), valid)

  def offsets(self, dim: int | None = None) -> Any:
    """The positions of the tile's elements along a dimension of the source, or a tuple of those along all.

    A block has the dimensions of the tile that the position varies along: those of rows of a matrix tile have shape (rows,).
    """
    axes = self.axes()
    indices, _ = self.place(axes)
    blocks = tuple(Block(i, [a for a in axes if a is not None and a in i.ranges]) for i in indices)
    if dim is None: return blocks
    if not -len(blocks) <= dim < len(blocks): raise AxisError(f"{self!r}.offsets({dim}): the source has {len(blocks)} dimensions")
    return blocks[dim]

  def stride(self, dim: int) -> int: return self.source.stride(dim)


class Source:
  """The whole tensor beneath a parameter. Indexing gives a reference: read or written at computed places, by every program."""

  def __init__(self, parameter: Parameter): self._parameter = parameter
  @property
  def shape(self) -> tuple[int, ...]: return self._parameter.arrangement.source
  @property
  def ndim(self) -> int: return len(self.shape)
  @property
  def dtype(self) -> DType: return self._parameter.dtype
  def __repr__(self) -> str: return f"{self._parameter.name}.source"
  def stride(self, dim: int) -> int:
    """Elements from one index of a dimension to the next."""
    return strides_of(self.shape)[dim]
  @property
  def strides(self) -> tuple[int, ...]: return tuple(self.stride(d) for d in range(self.ndim))
  def __getitem__(self, index: Any) -> Reference:
    got = index if isinstance(index, tuple) else (index,)
    if len(got) != self.ndim: raise AxisError(f"{self!r}: {len(got)} indices for a tensor of shape {self.shape}; give one a dimension")
    return Reference(self._parameter, tuple(block(i) for i in got))


class Reference(Place):
  """Elements of a tensor at computed indices, which broadcast together. Outside the tensor a load gives 0 and a store does nothing."""

  def __init__(self, parameter: Parameter, indices: tuple[Block, ...]):
    self._parameter, self._indices, self.level = parameter, indices, len(tracer().outer)
  def __repr__(self) -> str: return f"{self._parameter.name}.source[…]"
  @property
  def dtype(self) -> DType: return self._parameter.dtype
  @property
  def shape(self) -> tuple[int, ...]: return unify_shape(self._indices)

  def _places(self, mask: Any, *more: Any) -> tuple[tuple[UOp, ...], UOp, list[UOp], tuple[UOp | None, ...]]:
    given = [*self._indices, *([block(mask)] if mask is not None else []), *map(block, more)]
    values, axes = unify(repr(self), *given) if given else ([], ())
    n = len(self._indices)
    self._parameter.anywhere = True
    at = tuple(position(v) for v in values[:n])
    valid = ix.both(*(c for i, s in zip(at, self._parameter.arrangement.source) for c in (ix.ge(i, 0), ix.lt(i, s))))
    rest = values[n:]
    if mask is not None:
      m = rest.pop(0)
      if m.dtype.kind != "b": raise DTypeError(f"{self!r}: a mask is a block of bools, got {m.dtype}")
      valid = ix.both(valid, m)
    return at, valid, rest, axes

  def load(self, mask: Any = None, other: Any = None) -> Block:
    """The elements; where ``mask`` is false, ``other`` (0)."""
    t = tracer()
    at, valid, rest, axes = self._places(mask, *([] if other is None else [other]))
    value = t.load(self._parameter, at, valid, rest[0] if rest else None)
    t.raw_loads += 1
    return Block(value, axes)

  def store(self, value: Any, mask: Any = None) -> None:
    """Write elements where ``mask`` holds."""
    at, valid, (u,), _ = self._places(mask, value)
    tracer().store(self._parameter, at, plain(u, self.dtype), valid)

  def atomic(self, op: str, value: Any, mask: Any = None) -> None:
    at, valid, (u,), _ = self._places(mask, value)
    tracer().store(self._parameter, at, plain(u, self.dtype), valid, op)


give_operators(Tile)
give_operators(Reference)


def entry_of(p: Parameter, indices: tuple[UOp, ...], valid: UOp) -> tuple[tuple[UOp, ...], UOp]:
  """An element of a jagged tensor in memory: (batch, …, j, …) is at (…, offsets[batch] + j, …), if the entry is that long."""
  assert p.offsets is not None
  t, batch = tracer(), indices[0]
  begin, end = (position(t.load(p.offsets, (ix.add(batch, k),), valid)) for k in (0, 1))
  j = indices[p.jagged]
  inside = binary(BinaryOps.CMPLT, Block(plain(ix.sub(j, ix.sub(end, begin)))), 0).value
  at = list(indices[1:])
  at[p.jagged - 1] = ix.add(begin, j)
  return tuple(at), ix.both(valid, inside)


def unify_shape(blocks: Sequence[Block]) -> tuple[int, ...]:
  """The shape that blocks broadcast to."""
  return broadcast_shapes("index", *(b.shape for b in blocks)) if blocks else ()


@dataclass
class Variable:
  """Memory of a program's own: an array that a statement fills and others read."""
  uop: UOp
  axes: tuple[UOp | None, ...]

  @property
  def block(self) -> Block:
    return Block(UOp(Ops.LOAD, self.uop.dtype, (self.uop, self.index)), self.axes)
  @property
  def index(self) -> UOp: return UOp(Ops.INDEX, dtypes.index, tuple([a for a in self.axes if a is not None]))


class Region(NamedTuple):
  """What is being read around a region, as far as it has been read."""
  statements: list[UOp]
  known: dict[UOp, UOp]
  written: set[UOp]
  inside: list[int]


@dataclass(eq=False)
class Tracer:
  """The kernel as far as it has been read."""
  parameters: list[Parameter]
  grid_shape: tuple[int, ...]
  statements: list[UOp] = field(default_factory=list)
  known: dict[UOp, UOp] = field(default_factory=dict)   # a value that lies in a variable -> the load of it
  written: set[UOp] = field(default_factory=set)        # the parameters' memory that the region writes
  outer: list[Region] = field(default_factory=list)     # around the region that is being read, outermost first
  frames: list[dict[str, Any]] = field(default_factory=list)   # the names of the functions that are being read
  held: list[Any] = field(default_factory=list)         # values of the expressions that are being read
  pinned: list[int] = field(default_factory=list)       # the levels of values that have been pinned, in order
  line: str = ""                                        # of the application that is being read, with its file and number
  lines: dict[str, None] = field(default_factory=dict)  # those that store something
  tf32: bool = False                                    # a product asks for factors rounded to tf32
  raw_loads: int = 0                                    # loads at computed places: not to be done where a condition forbids them
  _next: int = 0
  _variables: int = 0

  def __post_init__(self) -> None:
    self.axes: list[Axis] = []
    self.grid = [self.new_axis(n, AxisKind.GRID) for n in self.grid_shape]
    self.inside: list[int] = []                         # FOR axes around what is being read
    self.alike: dict[UOp, UOp] = {}                     # axes that have met in one dimension: each leads to an older one
    self._sources: dict[UOp, frozenset[UOp]] = {}       # what ``sources`` has found

  def __enter__(self) -> Tracer:
    _tracers.append(self)
    return self
  def __exit__(self, *_: Any) -> None: _tracers.pop()

  # ---- axes
  def new_axis(self, size: int, kind: AxisKind) -> UOp:
    a = Axis(self._next, size, kind)
    self._next += 1
    self.axes.append(a)
    return a.rng

  def axis(self, size: int) -> UOp:
    """A new block axis."""
    return self.new_axis(size, AxisKind.TILE)

  def met(self, a: UOp, b: UOp) -> None:
    """Two axes run over the same dimension: what one operand calls ``a`` the other calls ``b``."""
    a, b = self.oldest(a), self.oldest(b)
    if a is not b: self.alike[max(a, b, key=lambda r: int(r.arg[0]))] = min(a, b, key=lambda r: int(r.arg[0]))

  def oldest(self, a: UOp) -> UOp:
    """The first axis of those that ``a`` has met."""
    while a in self.alike: a = self.alike[a]
    return a

  def settled(self, axes: Sequence[UOp | None]) -> tuple[UOp | None, ...]:
    """Axes under the names that the rest of the program has for them, so that equal values are equal expressions."""
    out = tuple(None if a is None else self.oldest(a) for a in axes)
    real = [a for a in out if a is not None]
    return out if len(set(real)) == len(real) else tuple(axes)

  # ---- memory
  def load(self, p: Parameter, at: tuple[UOp, ...], valid: UOp, other: UOp | None = None) -> UOp:
    src = (p.uop, UOp(Ops.INDEX, dtypes.index, at))
    value = UOp(Ops.LOAD, p.dtype, src if valid is ix.TRUE else (*src, valid))
    fill = other if other is not None else UOp.const(p.dtype, p.other) if p.other is not None else None
    if fill is None or valid is ix.TRUE or (fill.op is Ops.CONST and fill.arg == 0 and str(fill.arg) != "-0.0"): return value
    return UOp.alu(TernaryOps.WHERE, valid, value, plain(fill, p.dtype))

  def store(self, p: Parameter, at: tuple[UOp, ...], value: UOp, valid: UOp, atomic: str | None = None) -> None:
    self.pin(p)
    p.written = True
    self.written.add(p.uop)
    self.known = self.unchanged({p.uop})
    value, valid = self.refer(value), self.refer(valid)
    where = UOp(Ops.INDEX, dtypes.index, tuple(self.refer(i) for i in at))
    src = (p.uop, where, value) if valid is ix.TRUE else (p.uop, where, value, valid)
    self.statements.append(UOp.fresh(Ops.ATOMIC if atomic else Ops.STORE, p.dtype, src, atomic))
    self.lines[self.line] = None

  def pin(self, p: Parameter) -> None:
    """Values that were read from a parameter which is about to be written keep what they were, wherever the application has them.

    Each is computed at the end of what has been read of the region that it was made in: there nothing has written over it yet, and all
    that can see the value comes behind. If that is outside of a loop whose body is being read, the body must be read once more.
    """
    for x in values_in(self.frames, self.held):
      if isinstance(x, Place):
        if x._block is None and x._parameter is p and x.level is not None:
          with self.at(x.level): x.load_block()
        if x._block is None: continue
        x = x._block
      if not isinstance(x, Block) or p.uop not in self.sources(x.value): continue
      with self.at(x.level): x.value = self.keep(x).value
      self.pinned.append(x.level)

  def sources(self, u: UOp) -> frozenset[UOp]:
    """The memory of parameters that an expression reads."""
    memo = self._sources
    if u in memo: return memo[u]
    for n in toposort((u,), stop=lambda n: n in memo):
      if n in memo: continue
      found = {n.src[0]} if n.op is Ops.LOAD and n.src[0].op is Ops.DEFINE_GLOBAL else set()
      memo[n] = frozenset(found.union(*(memo[s] for s in n.src)))
    return memo[u]

  def unchanged(self, written: set[UOp]) -> dict[UOp, UOp]:
    """The values that lie in variables, without those that would not be the same after writing to some memory."""
    return {u: v for u, v in self.known.items() if not self.sources(u) & written} if written else self.known

  # ---- variables
  def variable(self, dtype: DType, shape: tuple[int, ...], axes: Sequence[UOp | None] | None = None) -> Variable:
    """Memory for a block."""
    own = tuple(self.axis(n) if n > 1 else None for n in shape) if axes is None else tuple(axes)
    name = f"v{self._variables}"
    self._variables += 1
    return Variable(UOp(Ops.DEFINE_LOCAL, dtype, (), (name, tuple(a.arg[1] for a in own if a is not None), "private")), own)

  def assign(self, v: Variable, value: UOp) -> None:
    """``value``, a function of the variable's axes, becomes its contents."""
    self.statements.append(UOp.fresh(Ops.STORE, v.uop.dtype, (v.uop, v.index, self.refer(value))))
    self.lines[self.line] = None

  def keep(self, b: Block) -> Block:
    """The block, its elements computed now and stored."""
    value = plain(b.value)
    if value in self.known: return Block(self.known[value], b.axes)
    for u in shared([value], self): self.keep_node(u)
    v = self.variable(value.dtype, b.shape, b.axes)
    self.assign(v, value)
    self.known[value] = v.block.value
    return v.block

  def keep_node(self, u: UOp) -> None:
    """Compute a part of an expression now; wherever it comes again it is read from the variable."""
    v = self.variable(u.dtype, (), [r for r in ranges_of(u) if self.kind(r) is AxisKind.TILE])
    self.assign(v, u)
    self.known[u] = v.block.value

  def kind(self, r: UOp) -> AxisKind: return self.axes[r.arg[0]].kind

  def refer(self, u: UOp) -> UOp:
    """An expression that reads from variables what lies in them."""
    if not self.known: return u
    memo: dict[UOp, UOp] = {}
    stack = [u]
    while stack:
      n = stack[-1]
      if n in memo:
        stack.pop()
        continue
      if n in self.known:
        memo[n] = self.known[n]
        continue
      missing = [s for s in n.src if s not in memo]
      if missing:
        stack.extend(missing)
        continue
      memo[n] = n.replace(tuple([memo[s] for s in n.src]))
    return memo[u]

  def stage(self, b: Block) -> Block:
    """A block that is read many times over: computed once, unless it is hardly more than a load."""
    return self.keep(b) if costly(b.value) else b

  # ---- matrix products
  def dot(self, x: Any, y: Any, acc: Any = None, dtype: DType | None = None) -> Block:
    """(m, k) @ (k, n) -> (m, n), added up in float32 (int32 for ints, float64 for float64)."""
    a, b = block(x), block(y)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
      raise ShapeError(f"dot: blocks of shapes {a.shape} and {b.shape}; it takes (m, k) and (k, n)")
    if a.dtype.kind != b.dtype.kind: raise DTypeError(f"dot: blocks of {a.dtype} and {b.dtype}; both floats or both ints")
    a, b = self.stage(a), self.stage(b)
    big = max(a.dtype.itemsize, b.dtype.itemsize)
    d = dtype or ((dtypes.float64 if big == 8 else dtypes.float32) if a.dtype.kind == "f" else dtypes.int64 if big == 8 else dtypes.int32)
    left, right = Block(a.value, (*a.axes, None)), Block(b.value, (None, *b.axes))
    product = binary(BinaryOps.MUL, left, right, d)
    out = reduce(BinaryOps.ADD, product, 1, name="dot")
    return out if acc is None else binary(BinaryOps.ADD, acc, out)

  # ---- regions
  @contextmanager
  def region(self, written: set[UOp] | None = None) -> Iterator[list[UOp]]:
    """Statements go into a list of their own; values kept inside are not known outside, nor what is written over inside.

    ``written`` is what a loop's body writes: at its begin it may be written already.
    """
    self.outer.append(Region(self.statements, self.known, self.written, self.inside))
    self.statements, self.known, self.written, self.inside = [], dict(self.unchanged(written or set())), set(), list(self.inside)
    try: yield self.statements
    finally:
      inner = self.written
      self.statements, self.known, self.written, self.inside = self.outer.pop()
      self.written |= inner
      self.known = self.unchanged(inner)

  @contextmanager
  def at(self, level: int) -> Iterator[None]:
    """What is stated goes to the end of a region around this one, or of this one."""
    if level >= len(self.outer):
      yield
      return
    regions = [*self.outer, Region(self.statements, self.known, self.written, self.inside)]
    self.outer[level:] = []
    self.statements, self.known, self.written, self.inside = regions[level]
    try: yield
    finally:
      self.outer.extend(regions[level:-1])
      self.statements, self.known, self.written, self.inside = regions[-1]

  def update(self, changes: list[tuple[Variable, UOp]]) -> None:
    """Give variables their next contents, all at once; parts that several of them need are computed once."""
    changes = [(v, self.refer(u)) for v, u in changes if u is not v.block.value]
    for u in shared([u for _, u in changes], self): self.keep_node(u)
    changes = [(v, self.refer(u)) for v, u in changes]
    waiting = dict(enumerate(changes))
    while waiting:
      def others_read(i: int) -> bool:
        v = waiting[i][0]
        return any(reads(u, v) for j, (_, u) in waiting.items() if j != i)
      free = next((i for i in waiting if not others_read(i)), None)
      if free is None:   # a swap: one goes through another variable
        i = next(iter(waiting))
        v, u = waiting[i]
        waiting[i] = (v, self.keep(Block(u, v.axes)).value)
        continue
      v, u = waiting.pop(free)
      if reads_elsewhere(u, v): u = self.keep(Block(u, v.axes)).value
      self.assign(v, u)

  def kernel(self) -> Kernel:
    """What has been read, as a kernel in index form."""
    statements = needed(self.statements)
    used: dict[UOp, None] = {}
    for u in toposort(statements):
      if u.op in (Ops.RANGE, Ops.DEFINE_GLOBAL): used[u] = None
      elif u.op is Ops.REDUCE: used.update({self.axes[i].rng: None for i in u.arg[1]})
      elif u.op is Ops.FOR: used[self.axes[u.arg].rng] = None
    axes = tuple(a for a in self.axes if a.kind is AxisKind.GRID or a.rng in used)
    table = {p.uop: UOp(Ops.DEFINE_GLOBAL, p.dtype, (), (p.slot, f"data{p.slot}", p.written)) for p in self.parameters}
    new: dict[UOp, UOp] = {}
    for u in toposort(statements):
      src = tuple(new[s] for s in u.src)
      new[u] = table[u] if u in table else u if src == u.src else \
        (UOp.fresh if u.op in (Ops.STORE, Ops.ATOMIC, Ops.FOR, Ops.WHILE, Ops.IF) else UOp)(u.op, u.dtype, src, u.arg)
    params = tuple(Param(p.slot, p.shape, p.dtype, p.written) for p in self.parameters)
    return Kernel(params, axes, tuple(new[s] for s in statements))


def values_in(*roots: Any) -> Iterator[Block | Place | list[Any] | dict[Any, Any]]:
  """The blocks, places, lists and dicts among an application's values, and in lists, dicts, tuples, closures and objects; each once."""
  stack, seen = list(roots)[::-1], set[int]()
  while stack:
    x = stack.pop()
    if x is None or isinstance(x, _FLAT) or id(x) in seen: continue
    seen.add(id(x))
    if isinstance(x, (Block, Reference)) or (isinstance(x, Tile) and x.innermost): yield x
    elif isinstance(x, (tuple, list, dict)):
      if not isinstance(x, tuple): yield x
      stack.extend(reversed(x.values() if isinstance(x, dict) else x))
    else: stack.append(getattr(x, "__dict__", None))


_FLAT = (bool, int, float, str, bytes, type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, ast.AST, DType, UOp, Parameter, Level,
         Source)


def needed(statements: Sequence[UOp]) -> list[UOp]:
  """The statements without those that fill variables which nothing reads."""
  fills: dict[UOp, list[UOp]] = {}
  stack: list[UOp] = []                 # expressions of statements that are needed
  order = toposort(tuple(statements))
  for u in order:
    if u.op in (Ops.FOR, Ops.WHILE, Ops.IF): stack.append(u.src[0])
    elif u.op in (Ops.STORE, Ops.ATOMIC):
      if u.src[0].op is Ops.DEFINE_LOCAL: fills.setdefault(u.src[0], []).append(u)
      else: stack.extend(u.src)
  read: set[UOp] = set()
  seen: set[UOp] = set()
  while stack:
    u = stack.pop()
    if u in seen: continue
    seen.add(u)
    stack.extend(u.src)
    if u.op is Ops.LOAD and u.src[0] in fills and u.src[0] not in read:
      read.add(u.src[0])
      for s in fills[u.src[0]]: stack.extend(s.src[1:])
  if len(read) == len(fills): return list(statements)
  dead = {s for v, stores in fills.items() if v not in read for s in stores}
  new: dict[UOp, UOp] = {}
  for u in order:
    if u.op not in (Ops.FOR, Ops.WHILE, Ops.IF): continue
    body = [new.get(s, s) for s in u.src[1:] if s not in dead]
    if not body: dead.add(u)
    elif body != list(u.src[1:]):
      new[u] = UOp.fresh(u.op, u.dtype, (u.src[0], *body), sum(s not in dead for s in u.src[1:u.arg + 1]) if u.op is Ops.IF else u.arg)
  return [new.get(s, s) for s in statements if s not in dead]


def reads(u: UOp, v: Variable) -> bool:
  """Whether an expression reads a variable."""
  return any(n is v.uop for n in toposort((u,)))


def reads_elsewhere(u: UOp, v: Variable) -> bool:
  """Whether an expression reads a variable at another element than its own."""
  return any(n.op is Ops.LOAD and n.src[0] is v.uop and n is not v.block.value for n in toposort((u,))) or \
    any(n.op is Ops.REDUCE and reads(n, v) and set(n.arg[1]) & {a.arg[0] for a in v.axes if a is not None} for n in toposort((u,)))


def costly(u: UOp, known: Sequence[UOp] = ()) -> bool:
  """Whether a value is more than a load and a little arithmetic, when those of ``known`` cost nothing."""
  alu = 0
  for n in toposort((u,), stop=lambda n: n.op in (Ops.LOAD, Ops.INDEX) or n in known):
    if n in known: continue
    if n.op in (Ops.REDUCE, Ops.SCAN, Ops.SORT): return True
    if n.op is Ops.ALU and n.dtype.kind != "b" and n.dtype is not dtypes.index:
      if n.arg in _COSTLY: return True
      alu += 1
  return alu > 2


def shared(values: Sequence[UOp], t: Tracer) -> list[UOp]:
  """Costly parts that come several times in the values, sources first."""
  order = toposort(tuple(values))
  users: dict[UOp, int] = dict.fromkeys(values, 1)
  for n in order:
    for s in dict.fromkeys(n.src): users[s] = users.get(s, 0) + 1
  out: list[UOp] = []
  for n in order:
    if n.dtype is dtypes.index or n.op not in (Ops.ALU, Ops.REDUCE, Ops.CAST) or users[n] < 2: continue
    if any(t.kind(r) is AxisKind.LOOP and r.arg[0] not in t.inside for r in n.ranges): continue   # it is one of a sum's many summands
    if costly(n, out): out.append(n)
  return out

