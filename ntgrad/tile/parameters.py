"""The parameters of a kernel as its application sees them: tiles, levels, and the whole tensor at computed places."""
from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, Sequence

from ntgrad.codegen import index as ix
from ntgrad.codegen.index import Dim, Indices, Pulled, strides_of
from ntgrad.codegen.ir import BinaryOps, DType, Ops, UOp
from ntgrad.codegen.ir.errors import ApplicationError, ArgumentError, AxisError, DTypeError, NtgradError, ShapeError
from ntgrad.codegen.kernel import flat_index
from ntgrad.codegen.kernel.arrangement import Arrangement

from . import block as _b
from .block import BlockShape, BlockValue, as_index, axis_for, block, block_binary, dim, one, plain_value, seen, tracer


@dataclass(eq=False)
class Parameter:
  """A tensor parameter of the kernel that is being built; its arrangement has numbers, or run-time sizes."""
  name: str
  slot: int
  arrangement: Arrangement
  dtype: DType
  other: Any = None
  written: bool = False
  axes: _b.Axes | None = None     # of its innermost level, the same at every read
  memory: tuple[int, ...] | None = None          # the shape in memory, where the tensor is jagged
  offsets: Parameter | None = None               # where each entry of a jagged tensor begins
  of: str = ""                                   # of those offsets: the name of the jagged tensor
  jagged: int = 0                                # its dimension
  anywhere: bool = False                         # read or written at computed places
  picked: set[tuple[int, int]] = field(default_factory=set)   # levels' dimensions where it names one of several tiles: x[0]
  computed: bool = False                         # .. by an index that is neither a number nor a loop's counter: x[k // 2]
  # levels' dimensions that the only round of a loop goes through: what it counts, how many tiles there are, which it is
  once: list[_Once] = field(default_factory=list)
  notes: bool = False                            # no argument: where the kernel notes which of its checks failed
  one: Parameter | None = None                   # a written one that is the same memory
  whole: bool = False                            # it is not arranged: its indices are those of the source
  fit: Callable[[], None] | None = None          # sees whether its tiles are those of the grid, when the first one is used
  misfit: NtgradError | None = None              # why they are not
  tiled: bool = False                            # some of its tiles are read or written, or asked where they are

  @property
  def shared(self) -> bool:
    """Whether several programs may write one element."""
    return self.written and (self.anywhere or not self.arrangement.injective)

  @property
  def shape(self) -> tuple[Dim, ...]:
    """The shape in memory; a single number has one element."""
    return self.memory or self.arrangement.source or (1,)

  @property
  def uop(self) -> UOp:
    slot = (self.one or self).slot
    return UOp(Ops.DEFINE_GLOBAL, self.dtype, (), (slot, f"data{slot}", True))
  @property
  def levels(self) -> tuple[tuple[Dim, ...], ...]:
    """The levels beneath the grid, outermost first; one element where there are none."""
    return self.arrangement.levels[1:] or ((),)
  @property
  def scalar(self) -> bool:
    """A source without dimensions: every program sees the same number."""
    return self.arrangement.source == () and len(self.arrangement.levels) == 1


_Once = tuple["Counter", Dim, tuple[int, int]]


class Counter(int):
  """What a loop whose rounds are known counts; arithmetic with it gives other ints. ``once``: of the only round of a loop."""
  once = False


class Level:
  """What ``parameter.dtype`` is while the parameter has more levels: the next one's shape and dtype."""

  def __init__(self, parameter: Parameter, level: int): self._parameter, self._level = parameter, level
  @property
  def shape(self) -> BlockShape: return tuple(map(seen, self._parameter.levels[self._level]))
  @property
  def ndim(self) -> int: return len(self.shape)
  @property
  def dtype(self) -> Any:
    return self._parameter.dtype if self._level + 1 == len(self._parameter.levels) else Level(self._parameter, self._level + 1)


class Place:
  """Where elements are in memory, and, once it has been read, what they were then: loaded when first needed, at the latest before
  they are written (``Tracer.materialize``). ``level`` is how many regions of the kernel were open when it was read; None for what
  a parameter's own name stands for, which is read anew each time."""
  _parameter: Parameter
  level: int | None = None
  line = ""   # of the application, where it was read
  _block: BlockValue | None = None

  def load(self) -> BlockValue: raise NotImplementedError
  def load_block(self) -> BlockValue:
    """The elements as they were when the place was read."""
    if self.level is None: return self.load()
    if self._block is None:
      t, here = tracer(), tracer().line
      t.line = self.line or here
      try: self._block = self.load()
      finally: t.line = here
      self._block.level = self.level
    return self._block

  def __hash__(self) -> int: return id(self)
  def to(self, dtype: Any, fp_downcast_rounding: str | None = None, bitcast: Any = False) -> BlockValue:
    """The elements converted to a dtype; with ``bitcast`` their bits as they are."""
    return block(self).to(dtype, fp_downcast_rounding, bitcast)
  cast = astype = to
  @property
  def shape(self) -> BlockShape: raise NotImplementedError
  @property
  def ndim(self) -> int: return len(self.shape)
  @property
  def T(self) -> BlockValue: return block(self).T
  def __bool__(self) -> bool: return bool(block(self))
  def __len__(self) -> int: return operator.index(self.shape[0])
  def __iter__(self) -> Iterator[Any]: return (self[i] for i in range(len(self)))
  def __getitem__(self, index: Any) -> Any: return block(self)[index]


class Tile(Place):
  """A parameter in an application, or one of its tiles. Reading loads the innermost level's block; indexing goes deeper."""

  def __init__(self, parameter: Parameter, indices: tuple[Indices, ...] = (), level: int | None = None,
               once: tuple[_Once, ...] = ()):
    self._parameter, self._indices, self.level, self._once = parameter, indices, level, once
    if level is not None: self.line = tracer().line

  def now(self) -> Tile:
    """The tile as it is read here."""
    return Tile(self._parameter, self._indices, len(tracer().outer), self._once)

  def holds(self, value: Any) -> bool:
    """Whether a value is what this tile has in memory."""
    return isinstance(value, Tile) and (value._parameter, value._indices) == (self._parameter, self._indices) and \
      value._block is None

  @property
  def shape(self) -> BlockShape:
    """The level's shape."""
    return tuple(map(seen, self._parameter.levels[len(self._indices)]))
  @property
  def dtype(self) -> Any:
    """The element type; for a level above the innermost, the next level."""
    return Level(self._parameter, len(self._indices)).dtype
  @property
  def source(self) -> SourceTensor: return SourceTensor(self._parameter, self)
  @property
  def innermost(self) -> bool: return len(self._indices) + 1 == len(self._parameter.levels)
  def __repr__(self) -> str:
    return self._parameter.name + "".join(f"[{', '.join(str(i.arg) if i.op is Ops.CONST else '…' for i in at)}]"
                                           for at in self._indices)

  def reached(self, index: Any) -> tuple[Tile, Any]:
    """The tile that an index goes to through several levels, and what of the index is left: x[i, j] is x[i][j] there."""
    tile = self
    while not tile.innermost and isinstance(index, tuple) and len(index) > (n := tile.ndim):
      tile, index = tile[index[:n]], index[n:]
    return tile, index

  def __getitem__(self, index: Any) -> Any:
    p = self._parameter
    if p.whole: return self.source[index]
    tile, index = self.reached(index)
    if tile is not self: return tile[index]
    if self.innermost:
      at, axes, inside = self.part(index)
      if inside is ix.TRUE: return block(self)[index]
      indices, valid = self.accessed(at)
      return BlockValue(tracer().load(p, indices, ix.both(valid, inside)), axes)
    at, once = [], list(self._once)
    for d, (i, n) in enumerate(zip(listed(self, index, f"level of shape {self.shape}"), self.shape)):
      u, here = as_index(block(i).value), (len(self._indices) + 1, d)
      lo, hi = ix.bounds(u)
      if lo == hi:
        if not -n <= lo < n: raise AxisError(f"{self!r}: index {lo} in a dimension of {n} of a level {self.shape}")
        if lo < 0: u = as_index(block(n + lo).value)
        if isinstance(i, Counter):
          if i.once: once.append((i, dim(n), here))
        elif not one(n): p.picked.add(here)
      if u.op not in (Ops.CONST, Ops.RANGE): p.computed = True
      at.append(u)
    return Tile(p, (*self._indices, tuple(at)), len(tracer().outer), tuple(once))

  def place(self, axes: _b.AnyAxes) -> Pulled:
    """The index in memory of the innermost level's element at ``axes``, and whether there is one."""
    indices, valid = self.pulled(axes)
    if self._parameter.offsets is not None: indices, valid = entry_of(self._parameter, indices, valid)
    for level, dims in zip(self._indices, self._parameter.levels):   # an index that is known only when the kernel runs
      for i, n in zip(level, dims): valid = ix.both(valid, ix.ge(i, 0), ix.lt(i, n))
    return indices, valid

  def pulled(self, axes: _b.AnyAxes) -> Pulled:
    """The source index of the innermost level's element at ``axes``, and whether its tile has one there."""
    p = self._parameter
    if p.scalar: return (ix.const(0),), ix.TRUE
    if self.innermost: return self.pulled_by(axes)
    raise ShapeError(f"{self!r} has levels {p.levels[len(self._indices):]}: index the level {self.shape} before its tiles are "
                     "read or written")

  def pulled_by(self, *deeper: _b.AnyAxes) -> Pulled:
    """``pulled`` with axes for each level beneath the tile's indices."""
    p = self._parameter
    p.tiled = True
    if p.fit is not None: p.fit()
    p.once += self._once
    levels = [list(tracer().grid), *map(list, self._indices), *[[ix.ZERO if a is None else a for a in axes] for axes in deeper]]
    return p.arrangement.pull(levels[:len(p.arrangement.levels)])

  def length(self) -> BlockValue:
    """How long the entry of a jagged tensor is that the tile is of, with the tile's dimensions along which the entry varies."""
    p = self._parameter
    above = p.levels[len(self._indices):-1]
    axes = tuple(map(axis_for, p.levels[-1])) if above else self.axes()
    (batch, *_), _ = self.pulled_by(*[tuple(map(axis_for, dims)) for dims in above], axes)
    if above and batch.ranges - set(tracer().grid) - {r for level in self._indices for i in level for r in i.ranges}:
      raise ShapeError(f"{self!r}.source.shape[{p.jagged}]: the level {self.shape} has several entries; index it first")
    begin, end = ends_of(p, batch, ix.both(ix.ge(batch, 0), ix.lt(batch, p.arrangement.source[0])))
    return BlockValue(ix.sub(end, begin), [a for a in axes if a is not None and a in batch.ranges])

  def accessed(self, axes: _b.AnyAxes) -> Pulled:
    """``place`` for what is read or written there: with ``checks="all"`` run-time indices of levels are checked."""
    for number, (level, dims) in enumerate(zip(self._indices, self._parameter.levels), 1):
      for d, (i, n) in enumerate(zip(level, dims)): tracer().check_index(f"level {number} of {self._parameter.name}", d, n, i, ())
    return self.place(axes)

  def axes(self) -> _b.Axes:
    p = self._parameter
    if p.axes is None: p.axes = tuple(map(axis_for, p.levels[-1]))
    return tracer().settled(p.axes) if self.innermost else ()

  def load(self) -> BlockValue:
    """What is in memory now; ``other`` where the tile hangs over the edge."""
    axes = self.axes()
    indices, valid = self.accessed(axes)
    return BlockValue(tracer().load(self._parameter, indices, valid), axes)

  def store(self, value: Any) -> None:
    """Write a block that broadcasts to the tile's shape, converted to the parameter's dtype."""
    t, p = tracer(), self._parameter
    try: b = block(value)
    except ArgumentError as e: raise ArgumentError(f"storing into {self!r}: {e}") from None
    shape = p.levels[-1] if self.innermost else ()
    each = t.assigned.get(b.value) if b.shape == shape and all([q.one is None for q in t.parameters]) else None
    if each is not None and each.of.axes == tuple(b.axes) and each.complete() and p.uop not in t.sources(b.value):
      for place, (u, own) in each.values().items():
        rest = [a if n is None else o for a, n, o in zip(b.axes, place, own)]
        self.store_at(tuple([slice(None) if n is None else slice(n[0], sum(n)) for n in place]), BlockValue(u, rest))
      return
    own = ((None,) * (len(shape) - b.ndim) + b.axes)[-len(shape):]
    axes = t.settled([a if a is not None else axis_for(n) for a, n in zip(own, shape)])
    if _b.dims_of(axes) != shape: axes = tuple(map(axis_for, shape))
    u = _b.to_axes(f"storing into {self!r}", b, axes)
    indices, valid = self.accessed(axes)
    t.store(p, indices, plain_value(u, p.dtype), valid)

  def atomic(self, how: str, mask: Any, *values: Any) -> BlockValue:
    """See ``Reference.atomic``: the elements of the tile."""
    p, axes = self._parameter, self.axes()
    at, valid = self.accessed(axes)
    u, *compared = [plain_value(_b.to_axes(f"atomic_{how}", block(x), axes), p.dtype) for x in values]
    if mask is not None: valid = ix.both(valid, _b.to_axes(f"atomic_{how}", block(mask), axes))
    return tracer().atomic(how, p, at, u, valid, axes, compared)

  def part(self, index: Any) -> tuple[list[UOp], list[UOp | None], UOp]:
    """What an index picks of an innermost tile, as ``picks`` gives it."""
    own = self.axes()
    at, axes, inside = _b.picks(own, index)
    for d, (a, i) in enumerate(zip(own, at)):
      if a is not None and i is not a: self._parameter.picked.add((len(self._indices) + 1, d))
    return at, axes, inside

  def store_at(self, index: Any, value: Any) -> None:
    """Write the elements of an innermost tile that an index picks, as numpy has it; those outside of the tile are not written."""
    p = self._parameter
    if p.whole: return self.source[index].store(value)
    at, axes, inside = self.part(index)
    u = _b.to_axes(f"storing into a part of {self!r}", block(value), axes)
    indices, valid = self.accessed(at)
    tracer().store(p, indices, plain_value(u, p.dtype), ix.both(valid, inside))

  def offsets(self, dim: int | None = None) -> BlockValue:
    """The positions of the tile's elements along a dimension of the source; without one, where they are in memory, counted in
    elements from the source's first: of the tile's shape.

    Along a dimension a block has the dimensions of the tile that the position varies along, those of one element too: those of
    rows of a matrix tile have shape (rows,).
    """
    axes = self.axes()
    indices, _ = self.place(axes) if dim is None else self.pulled(axes)
    if dim is None: return BlockValue(flat_index(self._parameter.shape, indices), axes)
    if not isinstance(dim, int): raise AxisError(f"{self!r}.offsets({dim!r}): a dimension is an int")
    if not -(n := len(indices)) <= dim < n: raise AxisError(f"{self!r}.offsets({dim}): the source has {n} dimensions")
    longer = [tracer().axis(2) if a is None else a for a in axes]   # what varies along a dimension of one element, were it longer
    along = (self.pulled(longer)[0] if None in axes else indices)[dim].ranges
    return BlockValue(indices[dim], [a for a, b in zip(axes, longer) if b in along])

  def stride(self, dim: int) -> _b.DimSize: return self.source.stride(dim)
  def data_ptr(self) -> Pointer:
    """Where the source's first element is."""
    return self.source.data_ptr()


def listed(x: Tile | SourceTensor, index: Any, what: str) -> tuple[Any, ...]:
  """An index, one a dimension. Raises AxisError."""
  got = index if isinstance(index, tuple) else (index,)
  if len(got) == x.ndim: return got
  raise AxisError(f"{x!r}: {len(got)} indices for a {what}; give one a dimension")


class SourceTensor:
  """The whole tensor beneath a parameter, seen from one of its tiles. Indexing gives a reference: read or written at computed
  places, by every program. Of a jagged tensor the jagged dimension is as long as the tile's entry."""

  def __init__(self, parameter: Parameter, tile: Tile): self._parameter, self._tile = parameter, tile
  @property
  def shape(self) -> tuple[Any, ...]:
    p = self._parameter
    return tuple(self._tile.length() if p.offsets is not None and d == p.jagged else seen(n)
                  for d, n in enumerate(p.arrangement.source))
  @property
  def ndim(self) -> int: return len(self._parameter.arrangement.source)
  @property
  def dtype(self) -> DType: return self._parameter.dtype
  def __repr__(self) -> str: return f"{self._parameter.name}.source"
  def __iter__(self) -> Iterator[Any]: raise ApplicationError(f"{self!r} is a whole tensor, not one by one; give it indices")
  def stride(self, dim: int) -> _b.DimSize:
    """Elements from one index of a dimension to the next."""
    p, n = self._parameter, self.ndim
    if not isinstance(dim, int) or not -n <= dim < n: raise AxisError(f"{self!r}.stride({dim!r}): the source has {n} dimensions")
    if p.memory is None: return seen(strides_of(p.arrangement.source)[dim])
    if dim % n: return seen(strides_of(p.memory)[dim % n - 1])
    raise ShapeError(f"{self!r}.stride({dim}): from one entry of a jagged tensor to the next it is not always as far; "
                     f"{p.name}.offsets() is where a tile's elements are")
  @property
  def strides(self) -> BlockShape: return tuple(self.stride(d) for d in range(self.ndim))
  def data_ptr(self) -> Pointer:
    """Where the first element is; ``data_ptr() + offsets`` are places for ``tl.load``, ``tl.store`` and the atomics."""
    return Pointer(self._parameter, block(0))
  def __getitem__(self, index: Any) -> Reference:
    return Reference(self._parameter, tuple(map(block, listed(self, index, f"tensor of {self.ndim} dimensions"))))
  def at(self, *indices: Any, inside: bool = False) -> Reference:
    """``x.source.at(i, j)`` is ``x.source[i, j]``; ``inside`` promises that all are in the tensor where the mask holds."""
    place = self[indices]
    place.inside = bool(inside)
    return place


_Where = tuple[tuple[BlockValue, ...], tuple[Dim, ...]]


class Reference(Place):
  """Elements at computed indices, which broadcast together. Outside the tensor a load gives 0 and a store does nothing."""

  def __init__(self, parameter: Parameter, indices: tuple[BlockValue, ...]):
    self._parameter, self._indices, self.level, self.line = parameter, indices, len(tracer().outer), tracer().line
    self.inside = False   # whether all indices are known to be inside where the mask holds
  def __repr__(self) -> str: return f"{self._parameter.name}.source[…]"
  @property
  def dtype(self) -> DType: return self._parameter.dtype
  @property
  def shape(self) -> BlockShape:
    return _b.broadcast_shapes("index", *(b.shape for b in self._indices)) if self._indices else ()

  def _where(self) -> _Where:
    """An index for each dimension in memory, and the sizes of these."""
    return self._indices, self._parameter.arrangement.source

  def _places(self, mask: Any, *more: Any) -> tuple[Indices, UOp, list[UOp], _b.Axes]:
    indices, sizes = self._where()
    given = [*indices, *([block(mask)] if mask is not None else []), *map(block, more)]
    values, axes = _b.unify(repr(self), *given) if given else ([], ())
    n = len(indices)
    self._parameter.anywhere = True
    at = tuple(map(as_index, values[:n]))
    valid = ix.TRUE if self.inside else ix.both(*(c for i, s in zip(at, sizes) for c in (ix.ge(i, 0), ix.lt(i, s))))
    rest, m = values[n:], ix.TRUE
    if mask is not None:
      m = rest.pop(0)
      if m.dtype.kind != "b": raise DTypeError(f"{self!r}: a mask is a block of bools, got {m.dtype}")
      valid = ix.both(valid, m)
    for d, (i, size) in enumerate(zip(at, sizes)): tracer().check_index(self._parameter.name, d, size, i, axes, m)
    if self._parameter.offsets is not None and not hasattr(self, "_pointed"): at, valid = entry_of(self._parameter, at, valid)
    return at, valid, rest, axes

  def load(self, mask: Any = None, other: Any = None) -> BlockValue:
    """The elements; where ``mask`` is false, ``other`` (0)."""
    t = tracer()
    at, valid, rest, axes = self._places(mask, *([] if other is None else [other]))
    value = t.load(self._parameter, at, valid, rest[0] if rest else None)
    t.raw_loads += 1
    return BlockValue(value, axes)

  def store(self, value: Any, mask: Any = None) -> None:
    """Write elements where ``mask`` holds."""
    at, valid, (u,), _ = self._places(mask, value)
    tracer().store(self._parameter, at, plain_value(u, self.dtype), valid)

  def atomic(self, how: str, mask: Any, *values: Any) -> BlockValue:
    """Combine elements with a value where ``mask`` holds; of two values the second is what they are compared with. Gives what was
    there."""
    at, valid, given, axes = self._places(mask, *values)
    u, *compared = [plain_value(u, self.dtype) for u in given]
    return tracer().atomic(how, self._parameter, at, u, valid, axes, compared)

  def put(self, value: Any, mask: Any, axis: int | Sequence[int] | None, how: str) -> None:
    """Write elements where ``mask`` holds, one after another along axes of their block."""
    at, valid, (u,), axes = self._places(mask, value)
    n = len(axes)
    ids = range(n) if axis is None else [axis] if isinstance(axis, int) else axis
    if bad := [a for a in ids if not -n <= a < n]: raise AxisError(f"{self!r}.put: axis {bad[0]}; the block has {n} dimensions")
    order = tuple(int(a.arg[0]) for i in ids if (a := axes[i]) is not None)
    tracer().store(self._parameter, at, plain_value(u, self.dtype), valid, order=(how, order) if order or how == "add" else None)


_b.give_operators(Tile)
_b.give_operators(Reference)


class Pointer(Reference):
  """Elements in memory by how far they are from the first: ``x.source.data_ptr() + offsets``. It is read with ``tl.load``,
  written with ``tl.store`` and the atomics; adding moves it. Outside of the tensor a load gives 0 and a store does nothing."""
  _pointed = True

  def __init__(self, parameter: Parameter, offset: BlockValue):
    super().__init__(parameter, (offset,))
    self.level = None   # it holds no value
  def __repr__(self) -> str: return f"{self._parameter.name}.source.data_ptr()"
  def load_block(self) -> BlockValue:
    raise ApplicationError(f"{self!r} is a place, not what is there; read it with tl.load")
  def __add__(self, other: Any) -> Pointer: return Pointer(self._parameter, block_binary(BinaryOps.ADD, self._indices[0], other))
  __radd__ = __add__
  def __sub__(self, other: Any) -> Pointer: return Pointer(self._parameter, block_binary(BinaryOps.SUB, self._indices[0], other))

  def _where(self) -> _Where:
    sizes, (at,) = self._parameter.shape, self._indices
    out = []
    for d, (n, step) in enumerate(zip(sizes, strides_of(sizes))):
      i = at if one(step) else block_binary(BinaryOps.IDIV, at, seen(step))
      out.append(i if d == 0 else block_binary(BinaryOps.MOD, i, seen(n)))   # the first tells what is outside
    return tuple(out), sizes


def entry_of(p: Parameter, indices: Indices, valid: UOp) -> Pulled:
  """An element of a jagged tensor in memory: (batch, …, j, …) is at (…, offsets[batch] + j, …), if the entry is that long."""
  begin, end = ends_of(p, indices[0], valid)
  j = indices[p.jagged]
  inside = block_binary(BinaryOps.CMPLT, BlockValue(plain_value(ix.sub(j, ix.sub(end, begin)))), 0).value
  at = list(indices[1:])
  at[p.jagged - 1] = ix.add(begin, j)
  return tuple(at), ix.both(valid, inside)


def ends_of(p: Parameter, batch: UOp, valid: UOp) -> tuple[UOp, UOp]:
  """Where an entry of a jagged tensor begins and ends."""
  assert p.offsets is not None
  begin, end = (as_index(tracer().load(p.offsets, (ix.add(batch, k),), valid)) for k in (0, 1))
  return begin, end


def is_meta(a: Any) -> bool:
  """Whether another library's tensor has a shape and a dtype only."""
  return getattr(getattr(a, "device", None), "type", None) == "meta"
