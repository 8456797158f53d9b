"""Blocks: the values of an application. A block is an expression of the index form, a function of axes, one a dimension;
operations unify the axes of their operands. Where one needs its operand at other places than its own, such as a cumulative sum,
the operand is stored into a *variable* first (``Tracer.keep``)."""
from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Mapping, Sequence, Union

from ntgrad.codegen import index as ix
from ntgrad.codegen.index import Dim, same_size
from ntgrad.codegen.ir import FUNCTIONS, BinaryOps, DType, Ops, TernaryOps, UnaryOps, UOp, as_float, dtypes, promote, refusal
from ntgrad.codegen.ir.errors import ArgumentError, AxisError, DTypeError, ShapeError, shown
from ntgrad.codegen.kernel import fold_node
from ntgrad.codegen.kernel.renaming import renamed
from ntgrad.graph.symbol import Symbol

from .assigned import Assigned, chosen, fixed_place

if TYPE_CHECKING:
  from .trace import Tracer

DimSize = Union[int, Symbol]   # of a dimension, as applications see it
BlockShape = tuple[DimSize, ...]
_Axis = Union[UOp, None]
Axes = tuple[_Axis, ...]   # one a dimension: a RANGE, None for one element
AnyAxes = Sequence[_Axis]
_tracers: list[Tracer] = []


_BITS = {"i1": dtypes.bool, "i8": dtypes.int8, "u8": dtypes.uint8}   # Triton counts bits, where numpy's i8 has 8 bytes


def dtype_of(x: Any) -> DType:
  """The dtype that something stands for in the tile language: what ``dtypes.of`` takes, and all of Triton's names."""
  return _BITS.get(x) or dtypes.of(x) if isinstance(x, str) else dtypes.of(x)


def tracer() -> Tracer:
  """The application that is being read. Raises ArgumentError outside of one."""
  if not _tracers: raise ArgumentError("the functions of ntgrad.tile.language work inside an application, which tile.make reads")
  return _tracers[-1]


def seen(n: Dim) -> DimSize:
  """A size as applications see it: an int, or a Symbol where it is known at the launch."""
  return n if isinstance(n, int) else Symbol._of(n)


def dim(n: DimSize | Dim) -> Dim:
  """A size as kernels have it."""
  return ix.number(n.node) if isinstance(n, Symbol) else n


def one(n: DimSize | Dim) -> bool:
  """Whether a dimension is known to have one element, which no axis is made for."""
  return isinstance(n, int) and n == 1


def axis_for(n: DimSize | Dim) -> UOp | None:
  """A new axis for a dimension of a block; None for one of one element."""
  return None if one(n) else tracer().axis(n)


def dims_of(axes: Iterable[UOp | None]) -> tuple[Dim, ...]:
  """The shape of a block of axes, as kernels have it."""
  return tuple(1 if a is None else a.arg[1] for a in axes)


class BlockValue:
  """``value``, an expression of ``axes``: a RANGE for each dimension, None for a dimension of 1. Arithmetic is numpy's; Python
  numbers take part by kind only. dtype ``index`` is that of positions (loop variables, ``arange``, ``offsets``): exact integers
  of known bounds; they become int32 or int64 where they meet other values. ``level`` says in how many regions of the kernel
  (sides of an `if`, bodies of loops) it was made: what it reads has not changed since."""
  __slots__ = "value", "axes", "level"

  def __init__(self, value: UOp, axes: AnyAxes = ()):
    self.value, self.axes, self.level = value, tuple(axes), len(_tracers[-1].outer) if _tracers else 0

  @property
  def shape(self) -> BlockShape:
    """One int a dimension; a Symbol for one that is known at the launch."""
    return tuple(map(seen, self.dims))
  @property
  def dims(self) -> tuple[Dim, ...]:
    """The shape as kernels have it."""
    return dims_of(self.axes)
  @property
  def ndim(self) -> int: return len(self.axes)
  @property
  def dtype(self) -> DType:
    """The element type; that which a position takes among other values."""
    return self.value.dtype if self.value.dtype is not dtypes.index else index_dtype(self.value)
  @property
  def T(self) -> BlockValue: return block_permute(self, tuple(range(self.ndim))[::-1])

  def __repr__(self) -> str: return f"Block({self.shape}, {self.dtype})"
  def __bool__(self) -> bool:
    if self.value.op is Ops.CONST: return bool(self.value.arg)
    raise ArgumentError("the value of a block is known when the kernel runs, not while it is read; "
                        "use tl.where, or `if` on a scalar")

  def __hash__(self) -> int: return id(self)

  def to(self, dtype: Any, fp_downcast_rounding: str | None = None, bitcast: Any = False) -> BlockValue:
    """The values converted to a dtype; floats become ints by truncation. ``bitcast``: the bits as they are, of another dtype."""
    if fp_downcast_rounding not in (None, "rtne"):
      raise ArgumentError(f"to: fp_downcast_rounding is {fp_downcast_rounding!r}; it is 'rtne' or None, to the nearest")
    return reinterpreted(self, dtype_of(dtype)) if bitcast else block_cast(self, dtype_of(dtype))
  cast = astype = to

  def __getitem__(self, index: Any) -> BlockValue: return getitem(self, index)
  def __len__(self) -> int: return operator.index(self.shape[0])
  def __iter__(self) -> Iterator[BlockValue]: return (self[i] for i in range(len(self)))

  if TYPE_CHECKING:   # give_operators puts them on
    def __add__(self, other: Any) -> BlockValue: ...
    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __floordiv__ = __mod__ = __pow__ = __add__
    __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = __lt__ = __le__ = __gt__ = __ge__ = __add__
    def __eq__(self, other: Any) -> BlockValue: ...  # type: ignore[override]
    def __neg__(self) -> BlockValue: ...
    def __invert__(self) -> BlockValue: ...


def index_dtype(u: UOp) -> DType:
  """The int dtype that a position takes among other values."""
  lo, hi = ix.bounds(u)
  return dtypes.int32 if -(1 << 31) <= lo and hi < 1 << 31 else dtypes.int64


def block(x: Any) -> BlockValue:
  """A value of an application as a BlockValue: what a parameter or reference holds now, a number as a constant."""
  if isinstance(x, BlockValue): return x
  if hasattr(x, "load_block"): return x.load_block()
  if isinstance(x, int) and -(1 << 63) <= x < 1 << 64:
    return BlockValue(UOp.const(dtypes.bool, x) if isinstance(x, bool) else ix.const(x))
  if isinstance(x, Symbol): return BlockValue(x.node)
  # as written: ``plain_value`` rounds it to the dtype that it meets
  if isinstance(x, float): return BlockValue(UOp(Ops.CONST, dtypes.float32, (), float(x)))
  if hasattr(x, "dtype") and hasattr(x, "item") and getattr(x, "shape", None) == ():   # a numpy scalar
    return BlockValue(UOp.const(dtypes.of(x.dtype), x.item()))
  raise ArgumentError(f"an application computes with blocks and numbers, got {type(x).__name__} {shown(x)}")


def is_value(x: Any) -> bool:
  """Whether something takes part in arithmetic as a block does."""
  return isinstance(x, BlockValue) or hasattr(x, "load_block")


# ---- axes

def rename_axes(value: UOp, table: Mapping[UOp, UOp]) -> UOp:
  """``value`` with free axes replaced by index expressions."""
  return renamed(value, table, lambda n: tracer().axis(n))


def broadcast_shapes(name: str, *shapes: BlockShape) -> BlockShape:
  """numpy's broadcasting. Raises ShapeError."""
  n = max(map(len, shapes))
  full = [(1,) * (n - len(s)) + s for s in shapes]
  out = []
  for sizes in zip(*full):
    want = [s for s in sizes if not one(s)] or [1]
    if not all(same_size(dim(s), dim(want[0])) for s in want[1:]):
      raise ShapeError(f"{name}: blocks of shapes {' and '.join(map(str, shapes))} do not broadcast; each dimension must be "
                       "equal or 1")
    out.append(want[0])
  return tuple(out)


def unify(name: str, *blocks: BlockValue) -> tuple[list[UOp], Axes]:
  """The values of blocks as functions of the same axes: those of the first block that has the dimension, or older ones."""
  n = len(broadcast_shapes(name, *(b.shape for b in blocks)))
  full = [(None,) * (n - b.ndim) + b.axes for b in blocks]
  axes: list[_Axis] = [None] * n
  for b_axes in full:
    for d, a in enumerate(b_axes):
      if axes[d] is None and a is not None:
        old = tracer().root(a)
        axes[d] = (
          old if old not in axes and old.arg == (old.arg[0], a.arg[1]) else a if a not in axes else tracer().axis(a.arg[1]))
  return [align(b, b_axes, axes) for b, b_axes in zip(blocks, full)], tuple(axes)


def align(b: BlockValue, own: AnyAxes, axes: AnyAxes) -> UOp:
  """The value of a block with its axes called ``axes``; it does not vary along those that it has not."""
  table = {a: ix.ZERO if to is None else to for a, to in zip(own, axes) if a is not None}
  for a, to in table.items():
    if to is not ix.ZERO: tracer().unify(a, to)
  return rename_axes(b.value, table)


def to_axes(name: str, b: BlockValue, axes: AnyAxes) -> UOp:
  """The value of a block as a function of given axes, to which it must broadcast."""
  shape, b_axes, b_shape = tuple(map(seen, dims_of(axes))), b.axes, b.shape
  extra = b.ndim - len(shape)
  if extra > 0 and all(map(one, b_shape[:extra])): b_axes, b_shape = b_axes[extra:], b_shape[extra:]
  if len(b_shape) > len(shape) or any(not one(s) and not same_size(dim(s), dim(t)) for s, t in zip(b_shape[::-1], shape[::-1])):
    raise ShapeError(f"{name}: a block of shape {b.shape} where one of {shape} is wanted; each dimension must be equal or 1")
  return align(b, (None,) * (len(shape) - len(b_axes)) + b_axes, axes)


# ---- elementwise

def plain_value(u: UOp, dtype: DType | None = None) -> UOp:
  """A position as a value of int32, int64 or ``dtype``; other values as they are, cast to ``dtype``. Numbers are rounded here."""
  own = index_dtype(u) if u.dtype is dtypes.index else u.dtype
  if u.op is Ops.CONST: return UOp.const(dtype or own, u.arg)
  if u.dtype is not own: u = UOp(Ops.CAST, own, (u,))
  return u if dtype is None or own is dtype else u.cast(dtype)


def as_index(u: UOp) -> UOp:
  """An int value as an index."""
  if u.dtype is dtypes.index: return u
  if u.op is Ops.CONST: return ix.const(int(u.arg))
  if u.op is Ops.CAST and u.src[0].dtype is dtypes.index: return u.src[0]
  if u.dtype.kind not in "iu": raise DTypeError(f"an index is an int, got {u.dtype}")
  return UOp(Ops.CAST, dtypes.index, (u,))


def weak(x: Any) -> bool:
  """Whether something is a Python number, which takes part by kind only."""
  return isinstance(x, (bool, int, float, Symbol)) and not hasattr(x, "dtype")


def number_dtype(x: Any) -> DType:
  """The dtype of a Python number among others: the default one, or a wider one that has numbers of its size."""
  if isinstance(x, Symbol): return dtypes.default_int
  d = dtypes.of(type(x))
  if d.itemsize == 8 or d.kind not in "if": return d
  if d.kind == "i": return d if dtypes.min(d) <= x <= dtypes.max(d) else dtypes.int64
  return dtypes.float64 if 0 < abs(x) < 2.0 ** -126 or 2.0 ** 128 <= abs(x) < float("inf") else d


def common_dtype(*xs: Any) -> DType:
  """The dtype in which operands meet; beside blocks Python numbers count by kind only."""
  numbers = [x for x in xs if weak(x)]
  d = promote(*([block(x).dtype for x in xs if not weak(x)] or map(number_dtype, xs)))
  if d.kind != "f" and any(isinstance(x, float) for x in numbers): return dtypes.default_float
  return d if d.kind != "b" or all(isinstance(x, bool) for x in numbers) else dtypes.default_int


def block_unary(fn: UnaryOps, x: Any, dtype: DType | None = None) -> BlockValue:
  """``fn`` of every element; ``dtype`` is what the elements are converted to before."""
  b = block(x)
  u = plain_value(b.value, dtype)
  if wrong := refusal(fn, u.dtype, fn.name.lower()): raise DTypeError(wrong)
  return BlockValue(UOp(Ops.ALU, FUNCTIONS[fn].gives or u.dtype, (u,), fn), b.axes)


def floating(x: Any) -> DType:
  """The dtype that a function of floats computes in: ints and bools become float32."""
  return as_float(block(x).dtype)


_INDEX: dict[Any, Callable[[UOp, UOp], UOp | None]] = {
  BinaryOps.ADD: ix.add, BinaryOps.SUB: ix.sub, BinaryOps.MUL: ix.mul,
  BinaryOps.IDIV: lambda a, b: ix.fdiv(a, b) if ix.of_sizes(b) and ix.vmin(b) > 0 else None,
  BinaryOps.MOD: lambda a, b: ix.mod(a, b) if ix.of_sizes(b) and ix.vmin(b) > 0 else None,
  BinaryOps.MIN: lambda a, b: ix.least(a, b) if ix.of_sizes(b) else ix.least(b, a) if ix.of_sizes(a) else None,
  BinaryOps.CMPLT: lambda a, b: _less(a, b, 0), BinaryOps.CMPLE: lambda a, b: _less(a, b, 1),
  BinaryOps.CMPEQ: lambda a, b: ix.eq(ix.sub(a, b), 0), BinaryOps.CMPNE: lambda a, b: UOp.const(
    dtypes.bool, not c.arg) if (c := ix.eq(ix.sub(a, b), 0)).op is Ops.CONST else UOp(Ops.ALU, dtypes.bool, (c,), UnaryOps.NOT)}


def _less(a: UOp, b: UOp, more: int) -> UOp:
  """a < b + more"""
  return ix.ge(b, a.arg + 1 - more) if a.op is Ops.CONST else ix.lt(ix.sub(a, b), more)


def block_binary(fn: BinaryOps, x: Any, y: Any, dtype: DType | None = None) -> BlockValue:
  """``fn`` of two operands after broadcasting, in their common dtype or ``dtype``; comparisons give bool."""
  a, b = block(x), block(y)
  (u, v), axes = unify(fn.name.lower(), a, b)
  if u.dtype is dtypes.index and v.dtype is dtypes.index and dtype is None and fn in _INDEX:
    exact = _INDEX[fn](u, v)
    if exact is not None: return BlockValue(exact, axes)
  d = dtype or common_dtype(x, y)
  if d.kind == "e" or fn is BinaryOps.DIV and d.kind != "f": d = dtypes.default_float
  if d.kind == "b" and fn in (BinaryOps.ADD, BinaryOps.SUB, BinaryOps.MUL, BinaryOps.IDIV, BinaryOps.MOD): d = dtypes.default_int
  if wrong := refusal(fn, d, fn.name.lower()): raise DTypeError(f"{wrong} (operands of {a.dtype} and {b.dtype})")
  u, v = plain_value(u, d), plain_value(v, d)
  out = UOp(Ops.ALU, FUNCTIONS[fn].gives or d, (u, v), fn)
  return BlockValue(fold_node(out) or out, axes)


def _negative(x: Any) -> BlockValue:
  """-x."""
  b = block(x)
  if b.value.dtype is dtypes.index: return BlockValue(ix.mul(b.value, -1), b.axes)
  if b.value.op is Ops.CONST: return BlockValue(UOp.const(b.dtype, -b.value.arg), b.axes)
  return block_unary(UnaryOps.NEG, b)


def truth(x: Any) -> BlockValue:
  """A value as a condition: not 0."""
  b = block(x)
  return b if b.dtype.kind == "b" else block_binary(BinaryOps.CMPNE, b, 0)


def block_where(condition: Any, yes: Any, no: Any) -> BlockValue:
  """Elements of ``yes`` where the condition holds, else of ``no``."""
  (w, u, v), axes = unify("where", truth(condition), block(yes), block(no))
  d = common_dtype(yes, no)
  if w.op is Ops.CONST: return BlockValue(plain_value(u if w.arg else v, d), axes)
  return BlockValue(UOp.alu(TernaryOps.WHERE, w, plain_value(u, d), plain_value(v, d)), axes)


def block_cast(x: Any, dtype: DType) -> BlockValue:
  """The values converted to a dtype."""
  b = block(x)
  return BlockValue(plain_value(b.value, dtype), b.axes)


def reinterpreted(b: BlockValue, dtype: DType) -> BlockValue:
  """The bits of the values as another dtype of the same size. Raises DTypeError."""
  u = plain_value(b.value)
  if u.dtype.itemsize == dtype.itemsize: return BlockValue(u if u.dtype is dtype else UOp(Ops.BITCAST, dtype, (u,)), b.axes)
  raise DTypeError(f"bitcast: {u.dtype} has {u.dtype.itemsize} bytes, {dtype} has {dtype.itemsize}")


# ---- movement

def axis_number(name: str, axis: Any, ndim: int) -> int:
  """An axis counted from the front. Raises AxisError."""
  if not isinstance(axis, int) or not -ndim <= axis < ndim:
    raise AxisError(f"{name}: axis {axis!r}; the block has {ndim} dimensions")
  return axis % ndim


def block_permute(x: Any, order: Sequence[int]) -> BlockValue:
  """The dimensions in another order."""
  b = block(x)
  got = tuple(axis_number("permute", a, b.ndim) for a in (order if isinstance(order, (list, tuple, range)) else [order]))
  if sorted(got) != list(range(b.ndim)):
    raise AxisError(f"permute: {tuple(order)} is no order of the {b.ndim} dimensions of a block {b.shape}")
  return BlockValue(b.value, [b.axes[a] for a in got])


def block_reshape(x: Any, shape: Sequence[Any]) -> BlockValue:
  """The same elements in row-major order; one size may be -1."""
  b = block(x)
  static = all(isinstance(n, int) for n in (*b.dims, *shape))   # else sizes are known at the launch
  want: list[Any] = [int(s) if static else dim(s) for s in shape]
  total: Any = ix.product(b.dims)
  known: Any = ix.product([s for s in want if s != -1])
  if want.count(-1) == 1 and (not static or known and total % known == 0): want[want.index(-1)] = ix.over(total, known)
  if not same_size(size := ix.product(want), total) or static and any(s < 1 for s in want):
    raise ShapeError(f"reshape: a block {b.shape} has {seen(total)} elements, {tuple(shape)} has {seen(size)}")
  kept = [a for a in b.axes if a is not None]
  if static and list(dims_of(kept)) == [s for s in want if s != 1]:   # only dimensions of 1 come and go
    left = iter(kept)
    return BlockValue(b.value, [None if s == 1 else next(left) for s in want])
  from ntgrad.codegen.index.view import Regrouped, View
  groups = tuple(want) if static else Regrouped(want)
  if isinstance(groups, Regrouped): groups.runs = ((b.ndim, len(want)),)
  axes = [axis_for(s) for s in want]
  pulled, _ = View(b.dims).then(Ops.RESHAPE, groups).pull([ix.ZERO if a is None else a for a in axes])
  return BlockValue(rename_axes(b.value, {a: p for a, p in zip(b.axes, pulled) if a is not None}), axes)


def picks(axes: AnyAxes, index: Any) -> tuple[list[UOp], list[_Axis], UOp]:
  """What an index picks of a block of ``axes``, as numpy has it: where in each dimension, the axes of the result, and the
  condition on which all of it lies inside. Ints, slices (what is computed may say where they begin, not how long they are),
  blocks of ints (which broadcast together), None (a dimension of 1) and Ellipsis. Raises AxisError for what lies outside for
  certain."""
  shape = tuple(map(seen, dims_of(axes)))
  parts = index if isinstance(index, tuple) else (index,)
  given = sum(1 for p in parts if p is not None and p is not Ellipsis)
  if given > len(shape): raise AxisError(f"index {index!r}: {given} indices for a block of shape {shape}")
  at = next((i for i, p in enumerate(parts) if p is Ellipsis), len(parts))
  parts = *parts[:at], *(slice(None),) * (len(shape) - given), *parts[at + 1:]
  places = [i for i, p in enumerate(parts) if p is not None and not isinstance(p, slice)]
  values, common = unify("index", *[block(parts[i]) for i in places]) if places else ([], ())
  found = dict(zip(places, values))
  # the dimensions of the indices stand where the first of them does; in front where something is between them
  first = 0 if places and places[-1] - places[0] >= len(places) else places[0] if places else -1
  out: list[_Axis] = []
  where: list[UOp] = []
  inside = ix.TRUE
  for i, p in enumerate(parts):
    if i == first: out.extend(common)
    if p is None:
      out.append(None)
      continue
    a, n = axes[len(where)], shape[len(where)]
    if i in found:
      u = as_index(found[i])
      lo, hi = ix.bounds(u)
      if lo == hi:
        if isinstance(n, int) and not -n <= lo < n: raise AxisError(f"index {lo} in a dimension of {n} of a block {shape}")
        u = ix.const(lo) if lo >= 0 else ix.add(ix.node(dim(n)), lo)
      elif isinstance(n, int) and (hi < 0 or lo >= n):
        raise AxisError(f"index between {lo} and {hi} in a dimension of {n} of a block {shape}")
      if lo != hi or not isinstance(n, int): inside = ix.both(inside, ix.ge(u, 0), ix.lt(u, dim(n)))
    elif p == slice(None):
      out.append(a)
      u = ix.ZERO if a is None else a
    elif is_value(p.start) or is_value(p.stop):
      start, size, step = _computed_slice(p)
      new = tracer().axis(size) if size > 1 else None
      u = ix.add(ix.ZERO if new is None else ix.mul(new, step), start)
      out.append(new)
      inside = ix.both(inside, ix.ge(u, 0), ix.lt(u, dim(n)))
    else:
      start, stop, step = p.indices(n)
      size = len(range(start, stop, step))
      if not size: raise ShapeError(f"index {index!r}: nothing is left of a dimension of {n}")
      new = a if (start, step, size) == (0, 1, n) else tracer().axis(size) if size > 1 else None
      out.append(new)
      u = ix.ZERO if a is None else a if new is a else ix.add(ix.ZERO if new is None else ix.mul(new, step), start)
    where.append(u)
  return where, out, inside


def _computed_slice(p: slice) -> tuple[UOp, int, int]:
  """Where a slice begins, its length and step: where it begins is computed, how long it is known."""
  step = 1 if p.step is None else p.step
  if isinstance(step, int) and step and p.start is not None and p.stop is not None:
    first = block(p.start).value
    (a, low), (b, high) = _base(first), _base(block(p.stop).value)
    length = ix.sub(as_index(b), as_index(a))
    if length.op is Ops.CONST and (n := len(range(low, int(length.arg) + high, step))): return as_index(first), n, step
  raise ShapeError("a slice that begins at a computed place has a length that is known: block[at:at + 4]")


def _base(u: UOp) -> tuple[UOp, int]:
  """An int value as another one and a number that is added to it."""
  more = 0
  while u.op is Ops.ALU and u.arg in (BinaryOps.ADD, BinaryOps.SUB) and u.src[1].op is Ops.CONST:
    more += int(u.src[1].arg) * (1 if u.arg is BinaryOps.ADD else -1)
    u = u.src[0]
  return u, more


def getitem(x: Any, index: Any) -> BlockValue:
  """The elements that an index picks, as numpy has it; 0 where an index that only the kernel knows lies outside."""
  b = block(x)
  at, axes, inside = picks(b.axes, index)
  if inside is ix.TRUE:
    t = tracer()
    known, place = t.assigned.get(b.value), fixed_place(b.axes, at, axes)
    if known is not None and place is not None and known.of.takes(b.axes, place):
      if (found := known.at(place)) is not None:   # what lies there, in the dimensions of what the index gives
        table = {a: next(iter(r for r in i.ranges if r in axes)) for a, i in zip(found[1], at) if a is not None and a is not i}
        return BlockValue(rename_axes(found[0], table) if table else found[0], axes)
      b = BlockValue(known.of.base, b.axes)
    elif any([i is not a for a, i in zip(b.axes, at)]) and t.made_of_assigned(b.value): b = t.keep(b)
    return BlockValue(rename_axes(b.value, {a: i for a, i in zip(b.axes, at) if a is not None}), axes)
  return block_gather(b, at, axes, inside)


def block_gather(b: BlockValue, at: Sequence[UOp], axes: AnyAxes, inside: UOp) -> BlockValue:
  """The elements of a block, which is stored first, at an index for each dimension. 0 where ``inside`` does not hold."""
  kept = tracer().keep(b)
  table = dict(zip(kept.axes, at))
  memory, place = kept.value.src[:2]
  where = UOp(Ops.INDEX, dtypes.index, tuple(table.get(i, i) for i in place.src))
  return BlockValue(UOp(Ops.LOAD, kept.dtype, (memory, where) if inside is ix.TRUE else (memory, where, inside)), axes)


def replaced(b: BlockValue, index: Any, value: Any) -> BlockValue:
  """The block with other elements at the places that an index picks, as numpy has ``b[index] = value``: single ones,
  or ones equally far from each other. What lies outside is left out."""
  t = tracer()
  at, axes, inside = picks(b.axes, index)
  place, known = fixed_place(b.axes, at, axes), t.assigned.get(b.value)
  if known is not None and (place is None or not known.latest or not known.of.takes(b.axes, place)) or b.value in t.replaced:
    b, known = t.keep(b), None   # or each of many parts would be made of all before it
  u = plain_value(to_axes("assigning a part of a block", block(value), axes), b.dtype)
  new = {a for a in axes if a is not None}
  if place is not None:
    kept = t.stage(BlockValue(u, axes)).value, tuple([next(iter(i.ranges.intersection(new)), None) for i in at])
    if known is None: b = t.stage(b)
    if (new_value := chosen(b.axes, place, kept, plain_value(b.value, b.dtype), rename_axes)) is not kept[0]:
      t.assigned[new_value] = (Assigned(plain_value(b.value), b.axes) if known is None else known.of).put(place, kept)
    return BlockValue(new_value, b.axes)
  if moved := {a for a in new if a not in b.axes and a in u.ranges}: u = t.stage(BlockValue(u, axes)).value
  found: dict[UOp, UOp] = {}   # where along an axis of the index an element of the block is
  here = inside
  for a, i in zip(b.axes, at):
    if i is a: continue
    own = ix.ZERO if a is None else a
    i = rename_axes(i, found) if found else i
    free = [r for r in i.ranges if r in new]
    if free:
      first, second = (rename_axes(i, {free[0]: ix.const(k)}) for k in (0, 1))
      step = ix.sub(second, first)
      if len(free) > 1 or step.op is not Ops.CONST or not step.arg or i is not ix.add(ix.mul(free[0], step.arg), first):
        raise ArgumentError("a part of a block is assigned at one place, or at places equally far from each other; tl.where "
                            "chooses element by element, and x.source[…] writes anywhere")
      k = ix.fdiv(ix.mul(ix.sub(own, first), 1 if step.arg > 0 else -1), abs(step.arg))
      here = ix.both(here, ix.ge(k, 0), ix.lt(k, free[0].arg[1]))
      found[free[0]] = ix.mod(k, free[0].arg[1]) if free[0] in moved else k
      i = rename_axes(i, {free[0]: k})
    here = ix.both(here, ix.eq(ix.sub(own, i), 0))
  here, u = (rename_axes(x, found) for x in (here, u))
  if here is ix.TRUE: return BlockValue(u, b.axes)
  t.replaced.add(new_value := UOp.alu(TernaryOps.WHERE, here, u, plain_value(b.value, b.dtype)))
  return BlockValue(new_value, b.axes)


# ---- reductions

def block_reduce(fn: BinaryOps, x: Any, axis: int | Sequence[int] | None, keep_dims: bool = False,
                 name: str = "reduce") -> BlockValue:
  """Combine along an axis, several, or all (None)."""
  b = block(x)
  ids = range(b.ndim) if axis is None else axis if isinstance(axis, (list, tuple, range)) else [axis]
  gone = {axis_number(name, a, b.ndim) for a in ids}
  bound = [a for d in sorted(gone) if (a := b.axes[d]) is not None]
  out = [None if d in gone else a for d, a in enumerate(b.axes) if keep_dims or d not in gone]
  value = plain_value(b.value)
  if wrong := refusal(fn, value.dtype, name): raise DTypeError(wrong)
  if not bound: return BlockValue(value, out)
  present = [a for a in bound if a in value.ranges]
  if len(present) < len(bound):   # along an axis that the value does not depend on
    value = repeat(fn, value, ix.product([a.arg[1] for a in bound if a not in present]))
  return BlockValue(UOp(Ops.REDUCE, value.dtype, (value,), (fn, tuple(a.arg[0] for a in present))) if present else value, out)


def repeat(fn: BinaryOps, value: UOp, times: Dim) -> UOp:
  """What ``times`` equal values combine to."""
  d = value.dtype
  if fn in (BinaryOps.MAX, BinaryOps.MIN, BinaryOps.AND, BinaryOps.OR): return value
  if fn is BinaryOps.ADD: return UOp(Ops.ALU, d, (value, plain_value(ix.node(times), d)), BinaryOps.MUL)
  times = operator.index(seen(times))
  if fn is BinaryOps.XOR: return value if times % 2 else UOp.const(d, 0)
  out = value
  for _ in range(times - 1): out = UOp(Ops.ALU, d, (out, value), fn)
  return out


def ranges_of(u: UOp) -> list[UOp]:
  """The free axes of a value, by id."""
  return sorted(u.ranges, key=lambda r: int(r.arg[0]))


# of two operands, of the two in each other's place, and what computes both
_BINARY = """
  add radd ADD, sub rsub SUB, mul rmul MUL, truediv rtruediv DIV, floordiv rfloordiv IDIV, mod rmod MOD, pow rpow POW,
  and rand AND, or ror OR, xor rxor XOR, lshift rlshift SHL, rshift rrshift SHR,
  lt gt CMPLT, le ge CMPLE, eq eq CMPEQ, ne ne CMPNE"""
_ONE: dict[str, Callable[..., Any]] = {
  "neg": _negative, "pos": block, "invert": lambda x: block_unary(UnaryOps.NOT, x), "abs": lambda x: block_unary(UnaryOps.ABS, x),
  "matmul": lambda x, y: tracer().dot(x, y)}


def operators() -> Iterator[tuple[str, Callable[..., Any]]]:
  """Python's operators for blocks, under the names of their methods."""
  for row in _BINARY.split(","):
    name, swapped, fn = row.split()
    yield f"__{swapped}__", _forward(BinaryOps[fn], True)
    yield f"__{name}__", _forward(BinaryOps[fn], False)
  for name, one in _ONE.items(): yield f"__{name}__", one


def give_operators(cls: type) -> None:
  """Put arithmetic on a class whose objects stand for blocks: numpy's numbers beside them leave it to them."""
  for name, fn in *operators(), ("__array_ufunc__", None), ("__array__", None): setattr(cls, name, fn)


def _forward(fn: BinaryOps, swapped: bool) -> Callable[[Any, Any], Any]:
  def operator(self: Any, other: Any) -> Any:
    if not (weak(other) or is_value(other) or hasattr(other, "dtype")) or hasattr(other, "_pointed"): return NotImplemented
    return block_binary(fn, other, self) if swapped else block_binary(fn, self, other)
  return operator


give_operators(BlockValue)
