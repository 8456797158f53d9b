"""Graph rewrites before the cut: nodes that are others in disguise, and reductions with too few outputs to fill the machine."""
from __future__ import annotations

from ntgrad.codegen.dtype import dtypes
from ntgrad.codegen.uop import MOVEMENT, BinaryOps, Ops, TernaryOps, UOp, identity, prod, rewrite

SPLIT_FROM = 32768    # elements a reduction must have before it is worth splitting


def prepare(sinks: tuple[UOp, ...], cores: int) -> tuple[UOp, ...]:
  """Rewrite the graph for a machine that runs ``cores`` programs at a time."""
  def step(u: UOp) -> UOp | None:
    if u.op is Ops.DETACH: return u.src[0]
    if u.op in MOVEMENT: return merge_movement(u)
    if u.op is Ops.CONTIGUOUS and u.src[0].op is Ops.CONTIGUOUS: return u.src[0]
    if u.op is Ops.SCATTER: return lower_scatter(u)
    if u.op is Ops.REDUCE_AXIS: return empty_reduce(u) or split_reduce(u, cores)
    return None
  return rewrite(sinks, step)


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
  if prod(u.src[0].shape) or not prod(u.shape): return None
  return broadcast(UOp.const(u.dtype, identity(u.arg[0], u.dtype)), u.shape)


def split_reduce(u: UOp, cores: int) -> UOp | None:
  """sum over 64M elements -> sum over P of P partial sums, each its own program.

  Only where the outputs are fewer than 4 a core and the reduction is long (DESIGN section 6, rule 1).
  """
  fn, axes = u.arg
  shape = u.src[0].shape
  count = prod(shape[a] for a in axes)
  outputs = prod(u.shape)
  if count <= SPLIT_FROM or outputs >= 4 * cores: return None
  want = min(max(16 * cores // max(outputs, 1), cores), 4096)
  axis = max(axes, key=lambda a: (shape[a], -a))
  n = shape[axis]
  parts = next((p for p in range(min(want, n), 1, -1) if n % p == 0), 1)
  x = u.src[0]
  if parts < cores:
    if fn is not BinaryOps.ADD: return None
    parts = min(want, n)
    extra = -n % parts
    x = UOp(Ops.PAD, x.dtype, (x,), tuple((0, extra) if d == axis else (0, 0) for d in range(len(shape))))
    shape = x.shape
    n = shape[axis]
  split = (*shape[:axis], parts, n // parts, *shape[axis + 1:])
  shifted = tuple(a + (a > axis) for a in axes if a != axis)
  x = UOp(Ops.RESHAPE, x.dtype, (x,), split)
  partial = UOp(Ops.REDUCE_AXIS, x.dtype, (x,), (fn, tuple(sorted((*shifted, axis + 1)))))
  whole = UOp(Ops.REDUCE_AXIS, x.dtype, (UOp(Ops.CONTIGUOUS, x.dtype, (partial,)),), (fn, (axis,)))
  return UOp(Ops.RESHAPE, x.dtype, (whole,), u.shape)


def lower_scatter(u: UOp) -> UOp:
  """base[index[n]] op= value[n], as a reduction over n of the values whose index is the row's: every output element by one program,
  in the order of n, so the same bits each time. ``set`` keeps the last one."""
  base, index, value = u.src
  rows, rest = base.shape[0], base.shape[1:]
  n = prod(index.shape)
  if n == 0 or prod(base.shape) == 0: return base
  ones = (1,) * len(rest)
  at = UOp(Ops.EXPAND, index.dtype, (UOp(Ops.RESHAPE, index.dtype, (index,), (1, n)),), (rows, n))
  row = UOp(Ops.CAST, index.dtype, (UOp(Ops.IOTA, dtypes.int32, (), rows),))
  row = UOp(Ops.EXPAND, index.dtype, (UOp(Ops.RESHAPE, index.dtype, (row,), (rows, 1)),), (rows, n))
  hit = UOp.alu(BinaryOps.CMPEQ, at, row)
  if u.arg == "add":
    full = (rows, n, *rest)
    v = UOp(Ops.EXPAND, value.dtype, (UOp(Ops.RESHAPE, value.dtype, (value,), (1, n, *rest)),), full)
    h = UOp(Ops.EXPAND, dtypes.bool, (UOp(Ops.RESHAPE, dtypes.bool, (hit,), (rows, n, *ones)),), full)
    total = UOp(Ops.REDUCE_AXIS, v.dtype, (UOp.alu(TernaryOps.WHERE, h, v, broadcast(UOp.const(v.dtype, 0), full)),), (BinaryOps.ADD, (1,)))
    return UOp.alu(BinaryOps.ADD, base, UOp(Ops.RESHAPE, v.dtype, (total,), base.shape))
  order = UOp(Ops.EXPAND, dtypes.int32, (UOp(Ops.RESHAPE, dtypes.int32, (UOp(Ops.IOTA, dtypes.int32, (), n),), (1, n)),), (rows, n))
  last = UOp(Ops.REDUCE_AXIS, dtypes.int32, (UOp.alu(TernaryOps.WHERE, hit, order, broadcast(UOp.const(dtypes.int32, -1), (rows, n))),), (BinaryOps.MAX, (1,)))
  last = UOp(Ops.RESHAPE, dtypes.int32, (last,), (rows,))
  flat = UOp(Ops.RESHAPE, value.dtype, (value,), (n, *rest))
  new = UOp(Ops.GATHER, value.dtype, (flat, last))
  none = UOp(Ops.RESHAPE, dtypes.bool, (UOp.alu(BinaryOps.CMPLT, last, broadcast(UOp.const(dtypes.int32, 0), (rows,))),), (rows, *ones))
  none = UOp(Ops.EXPAND, dtypes.bool, (none,), base.shape)
  return UOp.alu(TernaryOps.WHERE, none, base, new)
