"""Graph rewrites before the cut: nodes that are others in disguise, and reductions with too few outputs to fill the machine."""
from __future__ import annotations

from typing import Sequence

from ntgrad.codegen import index as ix
from ntgrad.codegen.estimate import sum_parts
from ntgrad.codegen.functions import identity
from ntgrad.codegen.products import Work, parts_of
from ntgrad.codegen.rewrite import rewrite
from ntgrad.codegen.target import Target
from ntgrad.codegen.uop import MOVEMENT, BinaryOps, Ops, UOp

from .scan import split_scan

LEAVES = 64           # nodes that are looked at for what a value is made of
SPLIT_FROM = 32768    # elements a reduction must have before it is worth splitting


def prepare(sinks: tuple[UOp, ...], target: Target) -> tuple[UOp, ...]:
  """Rewrite the graph for a target; with ``blocks`` each of its programs makes many outputs."""
  def reduce(old: UOp, u: UOp) -> UOp | None:
    return empty_reduce(u) or (split_blocks(u, target) if target.blocks else split_reduce(u, target))
  def move(old: UOp, u: UOp) -> UOp | None: return empty_source(u) or merge_movement(u)
  def contiguous(old: UOp, u: UOp) -> UOp | None: return u.src[0] if u.arg is None and u.src[0].op is Ops.CONTIGUOUS else None

  return rewrite(
    sinks,
    {Ops.DETACH: lambda old, u: u.src[0], Ops.CONTIGUOUS: contiguous, Ops.REDUCE_AXIS: reduce,
     Ops.SCAN_AXIS: lambda old, u: split_scan(u, target), **dict.fromkeys(MOVEMENT, move)},
  )


def empty_source(u: UOp) -> UOp | None:
  """Movement that makes something of nothing (padding an empty tensor) makes zeros."""
  if ix.elements(u.src[0].shape) or not ix.elements(u.shape): return None
  return broadcast(UOp.const(u.dtype, 0), u.shape)


def merge_movement(u: UOp) -> UOp | None:
  """reshape(reshape(x)) is one reshape."""
  s = u.src[0]
  if u.op is Ops.RESHAPE:
    if s.op is Ops.RESHAPE: s = s.src[0]
    if s.shape == u.arg: return s
    if s is not u.src[0]: return UOp(Ops.RESHAPE, u.dtype, (s,), u.arg)
  return None


def broadcast(u: UOp, shape: tuple[int, ...]) -> UOp:
  """A scalar node as a tensor of ``shape``."""
  ones = UOp(Ops.RESHAPE, u.dtype, (u,), (1,) * len(shape)) if shape else u
  return UOp(Ops.EXPAND, u.dtype, (ones,), shape) if shape else u


def empty_reduce(u: UOp) -> UOp | None:
  """A reduction over no elements is the combiner's identity."""
  if ix.elements(u.src[0].shape) or not ix.elements(u.shape): return None
  return broadcast(UOp.const(u.dtype, identity(u.arg[0], u.dtype)), u.shape)


def split_reduce(u: UOp, target: Target) -> UOp | None:
  """sum over 64M elements -> sum over P of P partial sums, each its own program."""
  shape, axes, cores = u.src[0].shape, u.arg[1], target.cores
  count, outputs = ix.elements(shape[a] for a in axes), ix.elements(u.shape)
  if count <= SPLIT_FROM // 2: return None
  if outputs >= 4 * cores: return split_for_cache(u, count, outputs, target)
  if count <= SPLIT_FROM: return None
  want = min(max(16 * cores // max(outputs, 1), cores), 4096)
  axis = longest(shape, axes)
  n = shape[axis]
  if not isinstance(n, int): return in_padded_parts(u, axis, min(want, ix.count(n)))
  parts = next((p for p in range(min(want, n), 1, -1) if n % p == 0), 1)
  return in_parts(u, u.src[0], axis, parts) if parts >= cores else in_padded_parts(u, axis, min(want, n))


def longest(shape: Sequence[ix.Dim], axes: Sequence[int]) -> int:
  """The longest of some axes; of equal ones the first."""
  return max(axes, key=lambda a: (ix.count(shape[a]), -a))


def split_for_cache(u: UOp, count: int, outputs: int, target: Target) -> UOp | None:
  """A long sum that reads everything once for each of many outputs (a convolution's weight gradient) -> a sum of partial sums
  whose inputs stay in a core's own cache."""
  leaves: dict[UOp, None] = {}
  stack, seen = [u.src[0]], {u.src[0]}
  while stack and len(seen) < 64:
    x = stack.pop()
    if x.op in MOVEMENT or x.op in (Ops.ALU, Ops.CAST):
      for s in x.src:
        if s not in seen:
          seen.add(s)
          stack.append(s)
    elif x.op is not Ops.CONST: leaves[x] = None
  size = sum(ix.elements(x.shape) * x.dtype.itemsize for x in leaves)
  axis = min(u.arg[1])
  n = u.src[0].shape[axis]
  if not isinstance(n, int): return None
  fits = target.core_cache * 3 // 4   # the rest is for what else the program reads and writes
  if size <= 4 * fits or outputs * count < 16 * size: return None
  parts = next((p for p in range(max(size // fits, 2 * target.cores), n + 1) if n % p == 0), 0)
  if not parts or parts * outputs * u.dtype.itemsize > size: return None
  return in_parts(u, u.src[0], axis, parts)


LEAST_PART = 256      # elements of a part of a sum


def split_blocks(u: UOp, target: Target) -> UOp | None:
  """A long reduction that leaves cores idle, because one program makes a block of outputs -> a reduction of partial ones
  (split-k), in as many parts as take the least time."""
  x, axes = u.src[0], u.arg[1]
  count, outputs = ix.elements(x.shape[a] for a in axes), ix.elements(u.shape)
  if count < 2 * LEAST_PART: return None
  most = count // LEAST_PART
  if u.arg[0] is BinaryOps.ADD and is_contraction(x): want = parts_of(product_work(x, count, outputs), most, target)
  else: want = sum_parts(outputs, count, bytes_of(x), are_columns(x, axes), most, target)
  if want == 1: return None
  axis = longest(x.shape, axes)
  n = x.shape[axis]
  if not isinstance(n, int): return in_padded_parts(u, axis, min(want, ix.count(n)), True)
  near = [p for p in range(2, min(2 * want, n) + 1) if n % p == 0 and 2 * p >= want]
  if near: return in_parts(u, x, axis, min(near, key=lambda p: max(p, want) / min(p, want)), True)
  return in_padded_parts(u, axis, min(want, n), True)


def are_columns(x: UOp, axes: Sequence[int]) -> bool:
  """Whether the outputs of a reduction lie side by side in what it reads: the last dimension is one of them, or may come to be
  (``layout``: channels between summed dimensions)."""
  kept = [d for d, n in enumerate(x.shape) if d not in axes and n != 1]
  return bool(kept) and (kept[-1] > max(axes) or len(x.shape) > 3 and any(a < kept[-1] for a in axes))


def source(u: UOp) -> UOp:
  """What a value is a view of, or a cast."""
  while u.op in MOVEMENT or u.op is Ops.CAST: u = u.src[0]
  return u


def bytes_of(x: UOp) -> int:
  """About how many bytes are read for a value: those of the largest thing that it is made of."""
  most, left, seen = 0, [x], {x}
  while left and len(seen) < LEAVES:
    u = left.pop()
    if u.op in MOVEMENT or u.op in (Ops.ALU, Ops.CAST):
      for s in u.src:
        if s not in seen:
          seen.add(s)
          left.append(s)
    elif u.op is not Ops.CONST: most = max(most, ix.elements(u.shape) * u.dtype.itemsize)
  return most or ix.elements(x.shape) * x.dtype.itemsize


def product_work(x: UOp, count: int, outputs: int) -> Work:
  """A contraction as the model of products sees it. The rows are what the smaller factor does not vary with."""
  few, many = sorted([source(s) for s in x.src], key=lambda s: ix.elements(s.shape))
  rows = min(max(outputs * count // ix.elements(few.shape), 1), outputs)
  columns = min(max(outputs * count // ix.elements(many.shape), 1), max(outputs // rows, 1))
  sizes = [s.dtype.itemsize for s in (few, many)]
  factors = sum(ix.elements(s.shape) * s.dtype.itemsize for s in (few, many))
  wide = max(s.dtype.itemsize for s in x.src) > 2 and max(sizes) > 2
  return Work(rows, columns, count, max(outputs // (rows * columns), 1), max(2, *sizes), 4 if wide else 2, 4, factors)


def is_contraction(x: UOp) -> bool:
  """Whether summing ``x`` is a matrix product, or a convolution: a product whose factors are both repeated."""
  if x.op is not Ops.ALU or x.arg is not BinaryOps.MUL: return False
  return all(2 * ix.elements(source(s).shape) <= ix.elements(x.shape) for s in x.src)


def in_padded_parts(u: UOp, axis: int, parts: int, apart: bool = False) -> UOp | None:
  """The sum ``u`` in ``parts`` of one size along ``axis``, zeros at the end. None for other reductions."""
  if u.arg[0] is not BinaryOps.ADD: return None
  x = u.src[0]
  padding = tuple((0, ix.minus(ix.times(ix.rounds(n, parts), parts), n)) if d == axis else (0, 0) for d, n in enumerate(x.shape))
  return in_parts(u, UOp(Ops.PAD, u.dtype, (x,), padding), axis, parts, apart)


def in_parts(u: UOp, x: UOp, axis: int, parts: int, apart: bool = False) -> UOp:
  """The reduction ``u`` of ``x`` in ``parts`` along ``axis``: the partial results get a buffer, then they are reduced. ``apart``:
  those of one part lie side by side, as a program of a block stores them."""
  fn, axes = u.arg
  shape = x.shape
  x = UOp(Ops.RESHAPE, x.dtype, (x,), (*shape[:axis], parts, ix.over(shape[axis], parts), *shape[axis + 1:]))
  inner = tuple(sorted((*(a + (a > axis) for a in axes if a != axis), axis + 1)))
  partial = UOp(Ops.REDUCE_AXIS, x.dtype, (x,), (fn, inner))
  first = (axis, *(d for d in range(len(x.shape)) if d != axis)) if apart else tuple(range(len(x.shape)))
  back = tuple(first.index(d) for d in range(len(first)))
  if apart and axis: partial = UOp(Ops.PERMUTE, x.dtype, (partial,), first)
  partial = UOp(Ops.CONTIGUOUS, x.dtype, (partial,))
  if apart and axis: partial = UOp(Ops.PERMUTE, x.dtype, (partial,), back)
  return UOp(Ops.RESHAPE, x.dtype, (UOp(Ops.REDUCE_AXIS, x.dtype, (partial,), (fn, (axis,))),), u.shape)
