"""What ``ntgrad.tile.language`` has: functions of blocks."""
from __future__ import annotations

import builtins
import sys
from typing import Any, Sequence

from ntgrad.codegen import index as ix
from ntgrad.codegen.index import same_size
from ntgrad.codegen.ir import BinaryOps, Ops, UnaryOps, UOp, acc_dtype, as_float, dtypes
from ntgrad.codegen.ir.errors import ApplicationError, ArgumentError, DTypeError, ShapeError
from ntgrad.codegen.passes.sorts import Sorted
from ntgrad.graph import variant
from ntgrad.graph.symbol import Symbol, cdiv as _cdiv

from . import block as _b
from .block import BlockValue, DimSize, axis_number, block, block_binary, block_cast, block_reduce, dtype_of, tracer
from .parameters import Counter, Reference, Tile

bool = dtypes.bool  # noqa: A001
int8, int16, int32, int64 = dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64
uint8, uint16, uint32, uint64 = dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64
float16, bfloat16, float32, float64 = dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64
float8e4nv = float8_e4m3 = dtypes.float8_e4m3
float8e5 = float8_e5m2 = dtypes.float8_e5m2
float8_e8m0 = dtypes.float8_e8m0
int1 = bool
constexpr = int

Shape = Sequence[DimSize]


def _shape(name: str, shape: Any) -> _b.BlockShape:
  got = tuple(shape) if isinstance(shape, (list, tuple, str)) else (shape,)
  if (d := next((d for d, s in enumerate(got) if _b.is_value(s)), None)) is not None:
    raise ShapeError(f"{name}: dimension {d} has a size that the kernel computes; it takes one that is known before the kernel "
                     "runs: a number, or a size of an argument such as those of x.shape")
  try: fits = builtins.all(isinstance(s, int | Symbol) and s > 0 for s in got)
  except ArgumentError: fits = False   # a Symbol that has no value here
  if not fits: raise ShapeError(f"{name}: a block has the shape {got}; it takes positive ints, such as those of x.shape")
  return got


# ---- making

def _full(name: str, value: Any, shape: Shape | int, dtype: Any = float32) -> BlockValue:
  """A block of one value, for the function ``name``. Raises ShapeError under that name."""
  if block(value).ndim: raise ShapeError(f"{name}: one value for all elements, got a block of shape {block(value).shape}")
  return BlockValue(block_cast(value, dtype_of(dtype)).value, [_b.axis_for(n) for n in _shape(name, shape)])


def full(shape: Shape | int, value: Any, dtype: Any = float32) -> BlockValue:
  """A block of one value: (shape) of ``dtype``."""
  return _full("full", value, shape, dtype)


zeros = variant("zeros", _full, 0, "A block of zeros.")
ones = variant("ones", _full, 1, "A block of ones.")


def zeros_like(input: Any) -> BlockValue:
  """Zeros of a block's shape and dtype."""
  return zeros(block(input).shape, block(input).dtype)


def arange(start: DimSize, end: DimSize | None = None) -> BlockValue:
  """The ints start, start + 1, …, end - 1 (or 0, …, start - 1): shape (end - start,)."""
  first, last = (0, start) if end is None else (start, end)
  if not isinstance(first, int | Symbol) or not isinstance(last, int | Symbol):
    raise ArgumentError(f"arange: ends that are known while reading, got {first!r} and {last!r}")
  if last <= first: raise ArgumentError(f"arange: from {first} to {last} there is nothing")
  if _b.one(last - first): return BlockValue(block(first).value, (None,))
  a = tracer().axis(last - first)
  return BlockValue(ix.add(a, block(first).value), (a,))


def cast(input: Any, dtype: Any, fp_downcast_rounding: str | None = None, bitcast: Any = False) -> BlockValue:
  """The values converted to a dtype, floats to the nearest, to ints by truncation; with ``bitcast`` their bits as they are."""
  return block(input).to(dtype, fp_downcast_rounding, bitcast)


def bitcast(x: Any, dtype: Any) -> BlockValue:
  """The bits of the values as another dtype of the same size."""
  return _b.reinterpreted(block(x), dtype_of(dtype))


# ---- shapes

def _listed(given: tuple[Any, ...]) -> Any:
  """Sizes or dimensions, given one by one or as one sequence."""
  return given[0] if len(given) == 1 and not isinstance(given[0], int) else given


def trans(input: Any, *dims: Any) -> BlockValue:
  """The last two dimensions exchanged, or the dimensions in an order: (m, n) -> (n, m)."""
  b = block(input)
  if not dims:
    if b.ndim < 2: raise ShapeError(f"trans: a block of two or more dimensions, got {b.shape}")
    return _b.block_permute(b, (*range(b.ndim - 2), b.ndim - 1, b.ndim - 2))
  return _b.block_permute(b, _listed(dims))


def permute(input: Any, *dims: Any) -> BlockValue:
  """The dimensions in another order."""
  return trans(input, *dims)


def reshape(input: Any, *shape: Any, can_reorder: Any = False) -> BlockValue:
  """The same elements, row-major, in another shape; one size may be -1. They stay in order, also where they need not."""
  return _b.block_reshape(input, _listed(shape))


def ravel(x: Any, can_reorder: Any = False) -> BlockValue:
  """All elements in one dimension."""
  return _b.block_reshape(x, (-1,))


def expand_dims(input: Any, axis: int) -> BlockValue:
  """A dimension of 1 before ``axis``: (n) -> (1, n)."""
  b = block(input)
  at = axis_number("expand_dims", axis, b.ndim + 1)
  return BlockValue(b.value, (*b.axes[:at], None, *b.axes[at:]))


def broadcast_to(input: Any, *shape: Any) -> BlockValue:
  """Dimensions of 1 become any size: (1, n) -> (m, n)."""
  b, want = block(input), tuple(s if isinstance(s, Symbol) else int(s) for s in _listed(shape))
  found = _b.broadcast_shapes("broadcast_to", b.shape, want)
  if not builtins.all(same_size(_b.dim(s), _b.dim(w)) for s, w in zip(found, want)) or b.ndim > len(want):
    raise ShapeError(f"broadcast_to: a block {b.shape} does not broadcast to {want}")
  own = (None,) * (len(want) - b.ndim) + b.axes
  return BlockValue(b.value, [a if a is not None else _b.axis_for(n) for a, n in zip(own, want)])


def flip(x: Any, dim: int = -1) -> BlockValue:
  """The last element along a dimension first."""
  b = block(x)
  a = b.axes[axis_number("flip", dim, b.ndim)]
  return b if a is None else BlockValue(_b.rename_axes(b.value, {a: ix.sub(ix.node(ix.minus(a.arg[1], 1)), a)}), b.axes)


# ---- choosing

def where(condition: Any, x: Any, y: Any) -> BlockValue:
  """``x`` where the condition holds, else ``y``, element by element."""
  return _b.block_where(condition, x, y)


def _better(fn: BinaryOps, x: Any, y: Any, propagate_nan: Any = None) -> BlockValue: return block_binary(fn, x, y)


maximum = variant("maximum", _better, BinaryOps.MAX, """
  The greater, element by element; NaN where either is NaN, whatever ``propagate_nan`` is.""")
minimum = variant("minimum", _better, BinaryOps.MIN, """
  The less, element by element; NaN where either is NaN, whatever ``propagate_nan`` is.""")


def clamp(x: Any, min: Any, max: Any, propagate_nan: Any = None) -> BlockValue:
  """The nearest value between ``min`` and ``max``; NaN where one is NaN, whatever ``propagate_nan`` is."""
  return minimum(maximum(x, min), max)


# ---- functions of one value

def _of_floats(fn: UnaryOps, x: Any) -> BlockValue: return _b.block_unary(fn, x, _b.floating(x))


exp = variant("exp", _of_floats, UnaryOps.EXP, "e to the x.")
exp2 = variant("exp2", _of_floats, UnaryOps.EXP2, "2 to the x.")
log = variant("log", _of_floats, UnaryOps.LOG, "The natural logarithm.")
log2 = variant("log2", _of_floats, UnaryOps.LOG2, "The logarithm to the base 2.")
sqrt = variant("sqrt", _of_floats, UnaryOps.SQRT, "The square root.")
rsqrt = variant("rsqrt", _of_floats, UnaryOps.RSQRT, "1 / sqrt(x).")
sin = variant("sin", _of_floats, UnaryOps.SIN, "The sine, of radians.")
cos = variant("cos", _of_floats, UnaryOps.COS, "The cosine, of radians.")
tan = variant("tan", _of_floats, UnaryOps.TAN, "The tangent, of radians.")
tanh = variant("tanh", _of_floats, UnaryOps.TANH, "The hyperbolic tangent.")
erf = variant("erf", _of_floats, UnaryOps.ERF, "The error function.")
floor = variant("floor", _of_floats, UnaryOps.FLOOR, "The greatest whole number that is not greater.")
ceil = variant("ceil", _of_floats, UnaryOps.CEIL, "The least whole number that is not less.")
round = rint = variant("round", _of_floats, UnaryOps.ROUND, "The nearest whole number, the even one of two.")  # noqa: A001
trunc = variant("trunc", _of_floats, UnaryOps.TRUNC, "The whole number nearest towards 0.")
isnan = variant("isnan", _of_floats, UnaryOps.ISNAN, "Whether a value is not a number: bool.")


def sigmoid(x: Any) -> BlockValue:
  """1 / (1 + exp(-x))."""
  return 1.0 / (1.0 + exp(-block(x)))


def abs(x: Any) -> BlockValue:  # noqa: A001
  """The value without its sign."""
  return _b.block_unary(UnaryOps.ABS, x)


# ---- functions of two values

def pow(x: Any, y: Any) -> BlockValue:  # noqa: A001
  """x to the y, of floats."""
  return block_binary(BinaryOps.POW, x, y, as_float(_b.common_dtype(x, y)))


def fdiv(x: Any, y: Any, ieee_rounding: Any = False, approx: Any = False) -> BlockValue:
  """x / y, rounded as the target divides."""
  return block_binary(BinaryOps.DIV, x, y)


def fma(x: Any, y: Any, z: Any) -> BlockValue:
  """x * y + z."""
  return block_binary(BinaryOps.ADD, block_binary(BinaryOps.MUL, x, y), z)


def cdiv(x: Any, div: Any) -> Any:
  """x / div rounded up, of ints; of Python ints a Python int."""
  if isinstance(x, int) and isinstance(div, int): return -(-x // div)
  if isinstance(x, int | Symbol) and isinstance(div, int | Symbol): return _cdiv(x, div)
  return (x + div - 1) // div


# ---- along an axis

def sum(input: Any, axis: int | None = None, keep_dims: Any = False, dtype: Any = None) -> BlockValue:  # noqa: A001
  """The sum along an axis, or of all elements (None): float16 and less are added up in float32, small ints in int32."""
  b = block(input)
  d = dtype_of(dtype) if dtype is not None else acc_dtype(b.dtype)
  out = block_reduce(BinaryOps.ADD, block_cast(b, d), axis, keep_dims, "sum")
  return out if dtype is not None or b.dtype.kind != "f" else block_cast(out, b.dtype)


def prod(x: Any, axis: int | None = None, keep_dims: Any = False) -> BlockValue:
  """The product along an axis, or of all elements."""
  return block_reduce(BinaryOps.MUL, x, axis, keep_dims, "prod")


def _arg(name: str, best: BinaryOps, input: Any, axis: int | None = None, tie_break_left: Any = True,
         keep_dims: Any = False) -> BlockValue:
  b = block(input)
  ndim = b.ndim
  if axis is None: b, axis = ravel(b), 0
  at = axis_number(name, axis, b.ndim)
  n = b.shape[at]
  where_ = expand_to(arange(0, n), at, b.ndim)
  top = block_reduce(best, b, at, True)
  found = (b == top) | isnan(b) if b.dtype.kind == "f" else b == top
  out = block_cast(block_reduce(BinaryOps.MIN, _b.block_where(found, where_, n), at, keep_dims, name), int32)
  return BlockValue(out.value, [None] * ndim) if keep_dims and out.ndim < ndim else out


def expand_to(x: BlockValue, axis: int, ndim: int) -> BlockValue:
  """A block of one dimension as dimension ``axis`` of ``ndim``."""
  return BlockValue(x.value, [x.axes[0] if d == axis else None for d in range(ndim)])


argmax = variant("argmax", _arg, BinaryOps.MAX, "Where the greatest is, the first of several (of NaNs, if there is one): int32.")
argmin = variant("argmin", _arg, BinaryOps.MIN, "Where the least is, the first of several (of NaNs, if there is one): int32.")


def _extreme(name: str, best: BinaryOps, input: Any, axis: int | None = None, return_indices: Any = False,
             return_indices_tie_break_left: Any = True, keep_dims: Any = False) -> Any:
  out = block_reduce(best, input, axis, keep_dims, name)
  return (out, _arg(f"arg{name}", best, input, axis, keep_dims=keep_dims)) if return_indices else out


max = variant("max", _extreme, BinaryOps.MAX, """
  The greatest along an axis, or of all elements; NaN if one is NaN. With ``return_indices`` also where it is (``argmax``).""")
min = variant("min", _extreme, BinaryOps.MIN, """
  The least along an axis, or of all elements; NaN if one is NaN. With ``return_indices`` also where it is (``argmin``).""")


def sort(x: Any, dim: int = -1, descending: Any = False) -> BlockValue:
  """In ascending order along a dimension; NaN last."""
  return _along(Ops.SORT, x, lambda a: (a, True if descending else False), dim, "sort")


def gather(src: Any, index: Any, axis: int) -> BlockValue:
  """Elements of ``src`` at the positions that ``index`` has for an axis; other dimensions of the two are equal."""
  b, i = block(src), block(index)
  at = axis_number("gather", axis, b.ndim)
  if i.ndim != b.ndim or not builtins.all(same_size(m, n) for d, (m, n) in enumerate(zip(b.dims, i.dims)) if d != at):
    raise ShapeError(f"gather: blocks of shapes {b.shape} and {i.shape}; all dimensions but axis {at} must be equal")
  if i.dtype.kind not in "iu": raise DTypeError(f"gather: indices are ints, got {i.dtype}")
  along = _b.as_index(i.value)
  places = [along if d == at else ix.ZERO if a is None else a for d, a in enumerate(i.axes)]
  n = b.axes[at]
  return _b.block_gather(b, places, i.axes, ix.both(ix.ge(along, 0), ix.lt(along, 1 if n is None else n.arg[1])))


# ---- matrix products

def dot(input: Any, other: Any, acc: Any = None, input_precision: str | None = None, allow_tf32: Any = None,
        max_num_imprecise_acc: Any = None, out_dtype: Any = None) -> BlockValue:
  """(m, k) @ (k, n) -> (m, n), added up in float32 (int32 for ints), on top of ``acc`` where it is given; of a batch of matrices
  (b, m, k) @ (b, k, n) -> (b, m, n).

  ``input_precision`` "tf32" (or ``allow_tf32``) lets a GPU round float32 operands to tf32; "ieee" (the default) does not. Sums
  are never less precise than that: ``max_num_imprecise_acc`` says nothing.
  """
  if input_precision not in (None, "ieee", "tf32", "tf32x3"):
    raise ArgumentError(f"dot: input_precision is 'ieee', 'tf32' or 'tf32x3', got {input_precision!r}")
  dtype = None if out_dtype is None else dtype_of(out_dtype)
  return tracer().dot(input, other, acc, dtype, input_precision == "tf32" or allow_tf32)


# ---- memory

def _reference(name: str, where_: Any) -> Reference | Tile:
  if isinstance(where_, (Reference, Tile)): return where_
  raise ApplicationError(f"{name}: a place in a tensor, such as input.source[rows, columns], got {where_!r}")


def load(pointer: Any, mask: Any = None, other: Any = None, cache_modifier: str = "", eviction_policy: str = "",
         volatile: Any = False) -> BlockValue:
  """The elements at computed places, ``load(x.source[i, j], mask=…, other=0)``; outside the tensor and where the mask is false,
  ``other``. The rest is advice, which is not needed."""
  r = _reference("load", pointer)
  if not isinstance(r, Tile): return r.load(mask, other)
  b = r.load()
  return b if mask is None else _b.block_where(mask, b, 0 if other is None else other)


def store(pointer: Any, value: Any, mask: Any = None, cache_modifier: str = "", eviction_policy: str = "") -> None:
  """Write elements at computed places, ``store(x.source[i, j], value, mask=…)``, but none outside. The rest is advice."""
  r = _reference("store", pointer)
  if not isinstance(r, Tile): return r.store(value, mask)
  if mask is not None: raise ApplicationError("store: a tile is written whole; give .source[…] for a mask")
  r.store(value)


def _atomic(name: str, kinds: str, pointer: Any, *values: Any, mask: Any = None) -> BlockValue:
  r = _reference(name, pointer)
  d = r._parameter.dtype
  if d.kind not in kinds: raise DTypeError(f"{name}: elements that are {'numbers' if 'f' in kinds else 'ints'}, got {d}")
  return r.atomic(name.removeprefix("atomic_"), mask, *values)


def _update(name: str, kinds: str, pointer: Any, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
            ) -> BlockValue: return _atomic(name, kinds, pointer, val, mask=mask)


atomic_add = variant("atomic_add", _update, "iuf", """
  Add to elements that several programs may add to; the order of float additions, and so the last bits, is not fixed. Gives what
  was there before, 0 where the mask is false, as all atomic operations do.""")
atomic_max = variant("atomic_max", _update, "iuf", "Take the greater of what an element holds and a value; gives what was there.")
atomic_min = variant("atomic_min", _update, "iuf", "Take the less of what an element holds and a value; gives what was there.")
atomic_xchg = variant("atomic_xchg", _update, "iuf", "Put a value in the place of what an element holds, and give that.")
atomic_and = variant("atomic_and", _update, "iu", "Keep the bits of ints that a value has too; gives what was there.")
atomic_or = variant("atomic_or", _update, "iu", "Set the bits of ints that a value has; gives what was there.")
atomic_xor = variant("atomic_xor", _update, "iu", "Turn the bits of ints that a value has; gives what was there.")


def atomic_cas(pointer: Any, cmp: Any, val: Any, sem: str | None = None, scope: str | None = None, mask: Any = None
               ) -> BlockValue:
  """Put ``val`` in the place of ints that equal ``cmp``; gives what was there, 0 where the mask is false."""
  return _atomic("atomic_cas", "iu", pointer, val, cmp, mask=mask)


# ---- random numbers

def rand(seed: Any, offset: Any, n_rounds: Any = None) -> BlockValue:
  """Uniform float32 numbers in [0, 1), one an element of ``offset``: threefry2x32 of (seed, offset) on every backend."""
  return block_cast(block_binary(BinaryOps.SHR, randbits(seed, offset), 8), float32) * (1.0 / (1 << 24))


def randbits(seed: Any, offset: Any) -> BlockValue:
  """Random uint32 numbers, one an element of ``offset``."""
  return block_cast(block_binary(BinaryOps.AND, threefry(offset, seed), 0xFFFFFFFF), uint32)


# ---- while reading

def static_assert(cond: Any, msg: str = "") -> None:
  """Stop with an error unless a condition holds that is known while the application is read."""
  held = cond.value.arg if isinstance(cond, BlockValue) and cond.value.op is Ops.CONST else cond
  if isinstance(held, BlockValue): raise ApplicationError("static_assert: the condition is known only when the kernel runs")
  if not held: raise ApplicationError(f"static_assert failed{': ' + msg if msg else ''}")


def device_assert(cond: Any, msg: str = "", mask: Any = None) -> None:
  """What must hold for every element of a block of bools when the kernel runs, where ``mask`` holds.

  Where it does not, DeviceAssertError is raised when the host next waits for the device (``numpy``, ``item``,
  ``Device.synchronize``), with the line and the last such element. Elements outside of a tensor do not count.
  """
  b = block(cond) if mask is None else _b.block_where(mask, cond, True)
  if b.dtype.kind != "b": raise DTypeError(f"device_assert: a condition is a block of bools, got {b.dtype}")
  if b.value.op is Ops.CONST: static_assert(b.value.arg, msg)
  else: tracer().device_assert(b, msg)


def static_print(*values: Any, sep: str = " ", end: str = "\n", file: Any = None, flush: Any = False) -> None:
  """Print shapes, dtypes and numbers while the application is read: to stderr, unless there is a ``file``."""
  print(*values, sep=sep, end=end, file=sys.stderr if file is None else file, flush=flush)


def device_print(prefix: str, *args: Any) -> None:
  """Print from the device: a line for each element of each block, with the program's place in the grid, the element's place in
  the block, ``prefix`` and the value; without blocks a line for each program. ``prefix`` is printable ASCII.

  Programs print in no order, each its own lines in theirs. Elements outside of a tensor are printed as what is read there. On
  CUDA it is Triton's: ``pid`` counts the grid's last dimension first, and a block's sizes are rounded up to powers of two.
  """
  if not isinstance(prefix, str) or not prefix.isascii() or not prefix.isprintable():
    raise ArgumentError(f"device_print: the prefix is a text of printable ASCII characters, got {prefix!r}")
  tracer().print(prefix, list(map(block, args)))


def static_range(*args: int) -> list[int]:
  """A range whose loop is written out."""
  return list(map(Counter, range(*args)))


def program_id(axis: int) -> BlockValue:
  """The number of the program along a dimension of the grid: the outermost level's shape."""
  grid = tracer().grid
  return BlockValue(grid[axis_number("program_id", axis, len(grid))])


def num_programs(axis: int) -> DimSize:
  """How many programs there are along a dimension of the grid."""
  shape = tracer().grid_shape
  return _b.seen(shape[axis_number("num_programs", axis, len(shape))])


# ---- what stands in scheduled kernels: running sums, sorts by bits, writes in an order, positions

def position(x: Any) -> BlockValue:
  """Ints as positions, such as ``arange`` and ``program_id`` give: what is computed of them is exact, whatever its size."""
  b = block(x)
  return BlockValue(_b.as_index(b.value), b.axes)


def broadcast(*xs: Any) -> tuple[BlockValue, ...]:
  """Blocks of one shape from some that broadcast; their dimensions are the same from here on, so that sums share a loop."""
  values, axes = _b.unify("broadcast", *map(block, xs))
  return tuple(BlockValue(u, axes) for u in values)


reciprocal = variant("reciprocal", _of_floats, UnaryOps.RECIP, "1 / x.")


def _whether(name: str, fn: BinaryOps, x: Any, axis: int | None = None, keep_dims: Any = False) -> BlockValue:
  return block_reduce(fn, _b.truth(x), axis, keep_dims, name)


all = variant("all", _whether, BinaryOps.AND, """
  Whether all elements along an axis, or all there are, are true (of numbers: are not 0).""")
any = variant("any", _whether, BinaryOps.OR, """
  Whether some element along an axis, or of all, is true (of numbers: is not 0).""")


def _along(op: Ops, x: Any, arg: Any, axis: int, name: str, any_size: builtins.bool = False) -> BlockValue:
  """A variable with what ``op`` makes of all elements along an axis."""
  b = block(x)
  a = b.axes[axis_number(name, axis, b.ndim)]
  value = _b.plain_value(b.value)
  if a is None: return BlockValue(value, b.axes)
  t = tracer()
  v = t.variable(value.dtype, b.shape, b.axes, any_size)
  t.assign(v, UOp(op, value.dtype, (value,), arg(a.arg[0])))
  return v.block


def _scan(name: str, fn: BinaryOps, x: Any, axis: int = 0, reverse: Any = False, every: Any = 0) -> BlockValue:
  if not isinstance(every, int) or every < 0: raise ArgumentError(f"{name}: every is a number of elements, got {every!r}")
  return _along(Ops.SCAN, x, lambda a: (fn, a, True if reverse else False, *((every,) if every else ())), axis, name, True)


def cumsum(input: Any, axis: int = 0, reverse: Any = False, dtype: Any = None, every: Any = 0) -> BlockValue:
  """Running sums along an axis; with ``reverse`` from its end, with ``every`` anew after so many elements; in ``dtype``."""
  b = block(input)
  d = acc_dtype(b.dtype) if dtype is None else dtype_of(dtype)
  out = _scan("cumsum", BinaryOps.ADD, block_cast(b, d), axis, reverse, every)
  return block_cast(out, b.dtype) if dtype is None and b.dtype.kind == "f" else out


def cumprod(input: Any, axis: int = 0, reverse: Any = False, dtype: Any = None, every: Any = 0) -> BlockValue:
  """Running products along an axis; with ``reverse`` from its end, with ``every`` anew after so many elements; in ``dtype``."""
  b = block(input)
  return _scan("cumprod", BinaryOps.MUL, b if dtype is None else block_cast(b, dtype_of(dtype)), axis, reverse, every)


cummax = variant("cummax", _scan, BinaryOps.MAX, """
  The greatest so far along an axis; with ``reverse`` from its end, with ``every`` anew after so many elements.""")
cummin = variant("cummin", _scan, BinaryOps.MIN, """
  The least so far along an axis; with ``reverse`` from its end, with ``every`` anew after so many elements.""")


def sort_bits(x: Any, low: int, high: int, axis: int = -1, keep: Any = 0, bitonic: Any = False) -> BlockValue:
  """Unsigned ints along an axis in rising order of their bits from ``low`` to ``high - 1``, equal ones as they stood; only the
  first ``keep`` of them, unless that is 0. ``bitonic`` says that they rise and then fall, or fall and then rise."""
  b = block(x)
  at = axis_number("sort_bits", axis, b.ndim)
  if b.dtype.kind != "u": raise DTypeError(f"sort_bits: unsigned ints, got {b.dtype}; bitcast others")
  if not isinstance(low, int) or not isinstance(high, int) or not 0 <= low < high <= 8 * b.dtype.itemsize:
    raise ArgumentError(f"sort_bits: bits from {low!r} to {high!r} of {b.dtype}, which has {8 * b.dtype.itemsize}")
  n = b.dims[at]
  if not isinstance(keep, int) or keep < 0 or isinstance(n, int) and keep > n:
    raise ArgumentError(f"sort_bits: the first {keep!r} of {b.shape[at]}")
  a, t, value = b.axes[at], tracer(), _b.plain_value(b.value)
  if a is None: return BlockValue(value, b.axes)
  place = None if keep == 1 else t.axis(keep or n)
  axes = *b.axes[:at], place, *b.axes[at + 1:]
  if a not in value.ranges: return BlockValue(value, axes)
  own = t.axis(n)   # what is sorted and what comes of it may be the same memory's dimension
  v = t.variable(value.dtype, (), axes, True)
  how = Sorted(own.arg[0], low, high, keep, True if bitonic else False)
  t.assign(v, UOp(Ops.SORTED, value.dtype, (_b.rename_axes(value, {a: own}), ix.ZERO if place is None else place), how))
  return v.block


def put(where: Any, value: Any, mask: Any = None, axis: Any = None, add: Any = False) -> None:
  """Write elements at computed places, ``put(x.source.at(i), value, axis=0)``, in order along an axis of the value (None: all).

  Where places are equal the last one stays, or with ``add`` all are added up: the same bits each time, unlike an atomic sum.
  """
  if not isinstance(where, Reference):
    raise ApplicationError(f"put: places in a tensor, such as x.source[rows, columns], got {where!r}")
  where.put(value, mask, axis, "add" if add else "set")


def gcd(a: Any, b: Any) -> BlockValue:
  """The greatest common divisor of ints, at least 0."""
  return block_binary(BinaryOps.GCD, a, b)


def threefry(counter: Any, key: Any) -> BlockValue:
  """The 64 bits of threefry2x32 for a counter and a key, both uint64."""
  counter, key = block_cast(counter, dtypes.uint64), block_cast(key, dtypes.uint64)
  return block_binary(BinaryOps.THREEFRY, counter, key, dtypes.uint64)


range = range  # noqa: A001
