"""Makers of tensor graph nodes, each with its shape and device; arithmetic is here too, from ``codegen/ir/elementwise.py``:
``graph.add(u, 1)``. They trust their arguments; the methods of ``Tensor`` check what a person passes."""
# ruff: noqa: F403, F405
from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple, Sequence
from weakref import ref

from ntgrad.codegen.ir import TF32, BinaryOps, DType, Ops, ShapeError, UOp, acc_dtype as acc_dtype, cast_number, dtypes
from ntgrad.codegen.ir.elementwise import *

Window = tuple[int, int, int]
UINTS = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}   # by the size of an item


def iota(n: int) -> UOp:
  """0 .. n-1 of shape (n,): int32, int64 where n does not fit that."""
  return make(Ops.IOTA, place_dtype(n), (), n, (n,), None)


def place_dtype(n: int) -> DType:
  """The dtype of places among n: one that holds n, too. Raises ShapeError."""
  if not isinstance(n, int) or n < 1 << 31: return dtypes.int32   # schedules of run-time sizes have more nowhere
  if n < 1 << 63: return dtypes.int64
  raise ShapeError(f"places among {n} elements: int64 holds {dtypes.max(dtypes.int64)} at most")


def cast(u: UOp, dtype: DType) -> UOp:
  """The same values in another dtype."""
  if u.dtype is dtype: return u
  if (value := const_value(u)) is not None: return const(cast_number(value, u.dtype, dtype), dtype, u.shape)
  return make(Ops.CAST, dtype, (u,), None, u.shape, u.device)


def rounded(u: UOp) -> UOp:
  """A float32 factor that products on a GPU may round to tf32."""
  return make(Ops.CAST, u.dtype, (u,), TF32, u.shape, u.device)


def _one(op: Ops, u: UOp, arg: Any, shape: Shape) -> UOp: return make(op, u.dtype, (u,), arg, shape, u.device)


# ---- movement: a no-op gives the node itself; merging with the node beneath is left to Tensor (see movement.py)
def reshape(u: UOp, shape: Shape) -> UOp:
  """The same elements in row-major order in another shape."""
  return u if u.shape == shape else _one(Ops.RESHAPE, u, shape, shape)


def expand(u: UOp, shape: Shape) -> UOp:
  """Dims of 1 repeated to any size."""
  return u if u.shape == shape else _one(Ops.EXPAND, u, shape, shape)


def permute(u: UOp, order: Shape) -> UOp:
  """Dims in another order."""
  if all([i == o for i, o in enumerate(order)]): return u
  return _one(Ops.PERMUTE, u, order, tuple([u.shape[o] for o in order]))


def permute_back(u: UOp, order: Shape) -> UOp: return permute(u, tuple(map(order.index, range(len(order)))))


def pad(u: UOp, padding: Sequence[tuple[int, int]]) -> UOp:
  """Zeros (False) before and after each dim."""
  if not any([lo or hi for lo, hi in padding]): return u
  return _one(Ops.PAD, u, tuple(padding), tuple([s + lo + hi for s, (lo, hi) in zip(u.shape, padding)]))


def shrink(u: UOp, bounds: Sequence[tuple[int, int]]) -> UOp:
  """A box: begin to end of each dim."""
  shape = tuple([e - b for b, e in bounds])
  return u if shape == u.shape else _one(Ops.SHRINK, u, tuple(bounds), shape)


def flip(u: UOp, axes: Shape) -> UOp:
  """Dims in reverse order of their elements."""
  axes = tuple([a for a in axes if u.shape[a] > 1])
  return _one(Ops.FLIP, u, axes, u.shape) if axes else u


def tile(u: UOp, windows: Sequence[Window]) -> UOp:
  """Windows of every dim: (d..) -> (outer.., inner..)."""
  outer = tuple([(d - (size - 1) * dilation - 1) // stride + 1 for d, (size, stride, dilation) in zip(u.shape, windows)])
  return _one(Ops.TILE, u, tuple(windows), outer + tuple([w[0] for w in windows]))


def untile(u: UOp, shape: Shape, windows: tuple[Window, ...]) -> UOp:
  """Adjoint of TILE before its sum: (outer.., inner..) -> (d.., inner..)."""
  return _one(Ops.UNTILE, u, (shape, windows), shape + tuple([w[0] for w in windows]))


def windows(u: UOp, size: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> UOp:
  """Windows of the last ``len(size)`` dims: (rest.., d..) -> (rest.., outer.., inner..)."""
  n, rest = len(u.shape), len(u.shape) - len(size)
  t = tile(u, ((1, 1, 1),) * rest + tuple(zip(size, stride, dilation)))
  return reshape(t, t.shape[:n] + t.shape[n + rest:])


def broadcast(u: UOp, shape: Shape) -> UOp:
  """numpy broadcasting to a shape that is known to fit."""
  if (s := u.shape) == shape: return u
  if len(s) < len(shape): u = reshape(u, (1,) * (len(shape) - len(s)) + s)
  return expand(u, shape)


def broadcasts(shape: Shape, to: Shape) -> bool:
  """Whether a shape broadcasts to another one."""
  missing = len(to) - len(shape)
  return missing >= 0 and all([n in (1, m) for n, m in zip(shape, to[missing:])])


def index_along(axis: int, shape: Shape) -> UOp:
  """The index along an axis, at every element of a shape: of the same dtype for all of its axes."""
  line = cast(iota(shape[axis]), place_dtype(max([n for n in shape if isinstance(n, int)], default=0)))
  return expand(reshape(line, tuple([n if d == axis else 1 for d, n in enumerate(shape)])), shape)


# ---- reductions and the rest
def reduce(fn: BinaryOps, u: UOp, axes: Sequence[int]) -> UOp:
  """Combine along axes, which stay as dims of 1. An empty axis gives the identity."""
  if u.dtype.kind == "e": u = cast(u, dtypes.float32)
  s = u.shape
  if not (axes := tuple(sorted([a for a in axes if s[a] != 1]))): return u
  shape = list(s)
  for a in axes: shape[a] = 1
  return _one(Ops.REDUCE_AXIS, u, (fn, axes), tuple(shape))


def scan(fn: BinaryOps, u: UOp, axis: int, reverse: bool = False) -> UOp:
  """What the elements up to each one along an axis combine to, itself included; with ``reverse`` those from it on."""
  if u.dtype.kind == "e": u = cast(u, dtypes.float32)
  return u if u.shape[axis] <= 1 else _one(Ops.SCAN_AXIS, u, (fn, axis, reverse), u.shape)


def sort(u: UOp, axis: int, low: int, high: int, keep: int = 0) -> UOp:
  """Unsigned ints along an axis, rising by bits ``low`` to ``high - 1``, equal ones as they stood; the first ``keep``, 0 for all.
  Beneath ``low`` they have to rise as they stand, from ``high`` on to be alike: so the whole numbers rise."""
  n = u.shape[axis]
  if n <= 1: return u
  return _one(Ops.SORT_AXIS, u, (axis, low, high, keep if keep != n else 0), (*u.shape[:axis], keep or n, *u.shape[axis + 1:]))


def index_of(u: UOp, size: int) -> UOp:
  """Ints that count elements of a dim, in int32 or int64: whichever holds all of them, the size, and the size added to one that
  is negative. A uint64 beyond int64 becomes int64's greatest value, which is as much out of range."""
  d = u.dtype
  if d is dtypes.uint64: u = minimum(u, dtypes.max(dtypes.int64))
  return cast(u, dtypes.int32 if size < 2 ** 31 and (d.itemsize < 4 or d is dtypes.int32) else dtypes.int64)


def inside(index: UOp, size: int) -> UOp: return and_(le(0, index), lt(index, size))


def part(u: UOp, axis: int, begin: int, end: int) -> UOp:
  """From begin to end along an axis."""
  return shrink(u, [(begin, end) if i == axis else (0, s) for i, s in enumerate(u.shape)])


def total(u: UOp, axes: Sequence[int]) -> UOp: return reduce(BinaryOps.ADD, u, axes)


def drop(u: UOp, axes: Sequence[int]) -> UOp:
  """Without the given dims of 1."""
  return reshape(u, tuple([s for i, s in enumerate(u.shape) if i not in axes]))


def gather(base: UOp, *index: UOp) -> UOp:
  """Rows of base, one index (all of one shape) for each of its first dims: index.shape + the other dims, zero where out of
  range."""
  shape = index[0].shape + base.shape[len(index):]
  if 0 in base.shape[:len(index)]: return const(0, base.dtype, shape)
  return make(Ops.GATHER, base.dtype, (base, *index), None, shape, _device(base, *index))


def scatter(base: UOp, index: Sequence[UOp], value: UOp, mode: str) -> UOp:
  """Base with rows set or added to ("set" | "add"); one index for each of its first dims."""
  if base.dtype.kind == "e" and mode == "add":
    return cast(scatter(cast(base, dtypes.float32), index, cast(value, dtypes.float32), mode), base.dtype)
  return make(Ops.SCATTER, base.dtype, (base, *index, value), mode, base.shape, _device(base, value, *index))


def _device(*nodes: UOp) -> str | None: return next((n.device for n in nodes if n.device), None)


def cat(nodes: Sequence[UOp], axis: int) -> UOp:
  """One after the other along an axis."""
  nodes = [n for n in nodes if n.shape[axis]] or list(nodes[:1])
  if len(nodes) == 1: return nodes[0]
  s = nodes[0].shape
  shape = *s[:axis], sum([n.shape[axis] for n in nodes]), *s[axis + 1:]
  return make(Ops.CAT, nodes[0].dtype, tuple(nodes), axis, shape, _device(*nodes))


def detach(u: UOp) -> UOp: return u if u.op is Ops.DETACH and not u.is_unique else _one(Ops.DETACH, u, None, u.shape)


def sloped(name: str, value: UOp, *made_from: UOp) -> UOp:
  """A value whose gradient is not that of its formula but one of ``formulas.SLOPES`` for each node that it is made from."""
  return make(Ops.SLOPED, value.dtype, (value, *made_from), name, value.shape, value.device)


def seen_as(u: UOp, dtype: DType) -> UOp:
  """The same bits as another dtype of the same size."""
  return u if u.dtype is dtype else make(Ops.BITCAST, dtype, (u,), None, u.shape, u.device)


def bits(u: UOp, dtype: DType) -> UOp:
  """The same bits as another dtype; one of another size changes the last dimension, which divides."""
  few, many = sorted((dtype.itemsize, u.dtype.itemsize))
  if few == many: return seen_as(u, dtype)
  return _narrower(u, dtype, many // few) if few == dtype.itemsize else _wider(u, dtype, many // few)


def _places(shape: tuple[int, ...], n: int, step: int, d: DType) -> UOp:
  """How far each of n parts of a number, in the last dimension, is shifted."""
  return broadcast(cast(mul(iota(n), step), d), (*shape, n))


def _narrower(u: UOp, d: DType, n: int) -> UOp:
  whole, shape = UINTS[u.dtype.itemsize], u.shape
  parts = broadcast(reshape(seen_as(u, whole), (*shape, 1)), (*shape, n))
  parts = and_(shr(parts, _places(shape, n, 8 * d.itemsize, whole)), (1 << 8 * d.itemsize) - 1)
  return seen_as(reshape(cast(parts, UINTS[d.itemsize]), (*shape[:-1], shape[-1] * n)), d)


def _wider(u: UOp, d: DType, n: int) -> UOp:
  whole, shape, size = UINTS[d.itemsize], (*u.shape[:-1], u.shape[-1] // n), u.dtype.itemsize
  parts = shl(cast(reshape(seen_as(u, UINTS[size]), (*shape, n)), whole), _places(shape, n, 8 * size, whole))
  return seen_as(reshape(reduce(BinaryOps.OR, parts, (len(shape),)), shape), d)


def contiguous(u: UOp) -> UOp:
  """Asks to be realised on its own."""
  below = u
  while below.op is Ops.DETACH: below = below.src[0]
  return u if below.op in (Ops.CONTIGUOUS, Ops.BUFFER) else _one(Ops.CONTIGUOUS, u, None, u.shape)


def stand_in(u: UOp) -> UOp:
  """A node of the same value that equals no other, through which no gradient passes."""
  node = UOp.unique(Ops.DETACH, u.dtype, (u,))
  node.__dict__.update(shape=u.shape, device=u.device)
  return node


class Result(NamedTuple):
  """The note of a node that has the gradient of an output of a call (``ntgrad/tensor/custom.py``)."""
  call: Any
  number: int


# the gradients at nodes beneath values, from those at the values, by the rules (set by ntgrad/tensor/gradient.py)
by_rules: list[Callable[[Mapping[UOp, UOp], Sequence[UOp]], Mapping[UOp, UOp]]] = []


def with_gradient(value: UOp, call: Any, number: int) -> UOp:
  """A node that stands for a value, and has the gradient of an output of a call."""
  node = stand_in(value)
  node.note = Result(call, number)
  call.outputs[number] = ref(node)
  return node


def copy(u: UOp, device: str) -> UOp:
  """The value on another device."""
  # a bare constant is in no memory that could be copied
  if u.op is Ops.CONST or u.op is Ops.DETACH and u.src[0].op is Ops.CONST: u = contiguous(u)
  return make(Ops.COPY, u.dtype, (u,), device, u.shape, device)


def update(base: UOp, value: UOp, view: tuple[tuple[Ops, Any], ...], index: UOp | None = None) -> UOp:
  """Base with the part that a view (movement without PAD and EXPAND) shows replaced by a value of the view's shape, or, where
  there is an index, rows of that part by a value of shape ``index.shape + part.shape[1:]``; of equal indices the last counts."""
  src = (base, value) if index is None else (base, value, index)
  return make(Ops.UPDATE, base.dtype, src, view, base.shape, _device(*src))


def buffer(buf: Any) -> UOp: return make(Ops.BUFFER, buf.dtype, (), buf, buf.shape, buf.device)
