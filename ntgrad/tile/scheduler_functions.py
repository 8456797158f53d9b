"""Functions of the language of applications that stand in scheduled kernels: running sums, sorts by bits, writes in an order,
positions. They are names of ``ntgrad.tile.language``."""
from __future__ import annotations

from typing import Any

from ntgrad.codegen import index as ix
from ntgrad.codegen.ir.dtype import acc_dtype, dtypes
from ntgrad.codegen.ir.errors import ApplicationError, ArgumentError, DTypeError
from ntgrad.codegen.ir.uop import BinaryOps, Ops, UnaryOps, UOp
from ntgrad.codegen.kernel.renaming import renamed
from ntgrad.codegen.passes.sorts import Sorted

from . import block as _b
from .block import BlockValue, block, block_cast, floating, plain_value, tracer
from .parameters import Reference


def position(x: Any) -> BlockValue:
  """Ints as positions, such as ``arange`` and ``program_id`` give: what is computed of them is exact, whatever its size."""
  b = block(x)
  return BlockValue(_b.as_index(b.value), b.axes)


def broadcast(*xs: Any) -> tuple[BlockValue, ...]:
  """Blocks of one shape from some that broadcast; their dimensions are the same from here on, so that sums share a loop."""
  values, axes = _b.unify("broadcast", *map(block, xs))
  return tuple(BlockValue(u, axes) for u in values)


def reciprocal(x: Any) -> BlockValue:
  """1 / x."""
  return _b.block_unary(UnaryOps.RECIP, x, floating(x))


def all(x: Any, axis: int | None = None, keep_dims: Any = False) -> BlockValue:  # noqa: A001
  """Whether all elements along an axis, or all there are, are true (of numbers: are not 0)."""
  return _b.block_reduce(BinaryOps.AND, _b.truth(x), axis, keep_dims, "all")


def any(x: Any, axis: int | None = None, keep_dims: Any = False) -> BlockValue:  # noqa: A001
  """Whether some element along an axis, or of all, is true (of numbers: is not 0)."""
  return _b.block_reduce(BinaryOps.OR, _b.truth(x), axis, keep_dims, "any")


def _along(op: Ops, x: Any, arg: Any, axis: int, name: str, any_size: bool = False) -> BlockValue:
  """A variable with what ``op`` makes of all elements along an axis."""
  b = block(x)
  a = b.axes[_b.axis_number(name, axis, b.ndim)]
  value = plain_value(b.value)
  if a is None: return BlockValue(value, b.axes)
  t = tracer()
  v = t.variable(value.dtype, b.shape, b.axes, any_size)
  t.assign(v, UOp(op, value.dtype, (value,), arg(a.arg[0])))
  return v.block


def _scan(name: str, fn: BinaryOps, x: Any, axis: int, reverse: Any, every: Any) -> BlockValue:
  if not isinstance(every, int) or every < 0: raise ArgumentError(f"{name}: every is a number of elements, got {every!r}")
  return _along(Ops.SCAN, x, lambda a: (fn, a, True if reverse else False, *((every,) if every else ())), axis, name, True)


def cumsum(input: Any, axis: int = 0, reverse: Any = False, dtype: Any = None, every: Any = 0) -> BlockValue:
  """Running sums along an axis; with ``reverse`` from its end, with ``every`` anew after so many elements; in ``dtype``."""
  b = block(input)
  d = acc_dtype(b.dtype) if dtype is None else _b.dtype_of(dtype)
  out = _scan("cumsum", BinaryOps.ADD, block_cast(b, d), axis, reverse, every)
  return block_cast(out, b.dtype) if dtype is None and b.dtype.kind == "f" else out


def cumprod(input: Any, axis: int = 0, reverse: Any = False, dtype: Any = None, every: Any = 0) -> BlockValue:
  """Running products along an axis; with ``reverse`` from its end, with ``every`` anew after so many elements; in ``dtype``."""
  b = block(input)
  return _scan("cumprod", BinaryOps.MUL, b if dtype is None else block_cast(b, _b.dtype_of(dtype)), axis, reverse, every)


def cummax(x: Any, axis: int = 0, reverse: Any = False, every: Any = 0) -> BlockValue:
  """The greatest so far along an axis; with ``reverse`` from its end, with ``every`` anew after so many elements."""
  return _scan("cummax", BinaryOps.MAX, x, axis, reverse, every)


def cummin(x: Any, axis: int = 0, reverse: Any = False, every: Any = 0) -> BlockValue:
  """The least so far along an axis; with ``reverse`` from its end, with ``every`` anew after so many elements."""
  return _scan("cummin", BinaryOps.MIN, x, axis, reverse, every)


def sort_bits(x: Any, low: int, high: int, axis: int = -1, keep: Any = 0, bitonic: Any = False) -> BlockValue:
  """Unsigned ints along an axis in rising order of their bits from ``low`` to ``high - 1``, equal ones as they stood; only the
  first ``keep`` of them, unless that is 0. ``bitonic`` says that they rise and then fall, or fall and then rise."""
  b = block(x)
  at = _b.axis_number("sort_bits", axis, b.ndim)
  if b.dtype.kind != "u": raise DTypeError(f"sort_bits: unsigned ints, got {b.dtype}; bitcast others")
  if not _all_ints(low, high) or not 0 <= low < high <= 8 * b.dtype.itemsize:
    raise ArgumentError(f"sort_bits: bits from {low!r} to {high!r} of {b.dtype}, which has {8 * b.dtype.itemsize}")
  n = b.dims[at]
  if not isinstance(keep, int) or keep < 0 or isinstance(n, int) and keep > n:
    raise ArgumentError(f"sort_bits: the first {keep!r} of {b.shape[at]}")
  a, t, value = b.axes[at], tracer(), plain_value(b.value)
  if a is None: return BlockValue(value, b.axes)
  place = None if keep == 1 else t.axis(keep or n)
  axes = (*b.axes[:at], place, *b.axes[at + 1:])
  if a not in value.ranges: return BlockValue(value, axes)
  own = t.axis(n)   # what is sorted and what comes of it may be the same memory's dimension
  v = t.variable(value.dtype, (), axes, True)
  how = Sorted(own.arg[0], low, high, keep, True if bitonic else False)
  t.assign(v, UOp(Ops.SORTED, value.dtype, (renamed(value, {a: own}, t.axis), ix.ZERO if place is None else place), how))
  return v.block


def _all_ints(*xs: Any) -> bool: return not [x for x in xs if not isinstance(x, int)]


def put(where: Any, value: Any, mask: Any = None, axis: Any = None, add: Any = False) -> None:
  """Write elements at computed places, ``put(x.source.at(i), value, axis=0)``, in order along an axis of the value (None: all).

  Where places are equal the last one stays, or with ``add`` all are added up: the same bits each time, unlike an atomic sum.
  """
  if not isinstance(where, Reference):
    raise ApplicationError(f"put: places in a tensor, such as x.source[rows, columns], got {where!r}")
  where.put(value, mask, axis, "add" if add else "set")


def threefry(counter: Any, key: Any) -> BlockValue:
  """The 64 bits of threefry2x32 for a counter and a key, both uint64."""
  counter, key = block_cast(counter, dtypes.uint64), block_cast(key, dtypes.uint64)
  return _b.block_binary(BinaryOps.THREEFRY, counter, key, dtypes.uint64)
