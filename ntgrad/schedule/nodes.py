"""What every step of scheduling asks of a node, and the nodes that it makes."""
from __future__ import annotations

from collections.abc import Iterable, Iterator

from ntgrad.codegen import index as ix
from ntgrad.codegen.index import Shape, pull
from ntgrad.codegen.ir import MOVEMENT, Ops, UOp
from ntgrad.codegen.kernel import flat_index

LEAVES = frozenset({Ops.BUFFER, Ops.CAT, Ops.ASSIGN, Ops.COPY, Ops.CONTIGUOUS, Ops.SCATTER, Ops.LAUNCH, Ops.AFTER})
LEAVES_WITHIN = 64   # nodes that are looked at for what a value is made of
Nodes = tuple[UOp, ...]
Idx = Nodes
Body = Nodes                           # the statements of a kernel
Copies = dict[UOp, tuple[UOp, Body]]   # a copy's node -> what it copies, and the body of the kernel that does


def viewed(u: UOp) -> UOp:
  """What a value is a view of: the version of memory, the products that windows are made of."""
  while u.op in MOVEMENT: u = u.src[0]
  return u


# about how many elements a value has, and each output of a reduction is made of; the bytes of a value in memory; what some axes
# go through together; whether all sizes are numbers
def elements_of(u: UOp) -> int: return ix.elements(u.shape)
def reduced_dims(u: UOp) -> list[int]: return [d for d in u.arg[1] if u.src[0].shape[d] != 1]   # of more than one element
def reduced_size(u: UOp) -> int: return ix.elements([u.src[0].shape[a] for a in u.arg[1]])
def node_bytes(u: UOp) -> int: return ix.elements(u.shape) * u.dtype.itemsize
def axes_size(axes: Iterable[UOp]) -> int: return ix.elements([r.arg[1] for r in axes])
def is_fixed(shape: Iterable[ix.Dim]) -> bool: return all(isinstance(n, int) for n in shape)


# the axes that indices, or conditions, go along; where a movement finds an element in its source, and when there is one
def axes_in(*indices: UOp) -> frozenset[UOp]: return frozenset().union(*[i.ranges for i in indices])
def pulled(u: UOp, idx: Idx) -> tuple[Idx, UOp]: return pull(u.op, u.src[0].shape, u.arg, idx)


def pushed(u: UOp, idx: Idx) -> Idx:
  """Where a RESHAPE, a PERMUTE or what moves nothing has an element of its source."""
  if u.op is Ops.RESHAPE: return pull(Ops.RESHAPE, u.shape, u.src[0].shape, idx)[0]
  return tuple(idx[d] for d in u.arg) if u.op is Ops.PERMUTE else idx


def users_in(order: Iterable[UOp]) -> dict[UOp, list[UOp]]:
  """The nodes of an order that read each node, each once."""
  found: dict[UOp, list[UOp]] = {}
  for u in order:
    for s in dict.fromkeys(u.src): found.setdefault(s, []).append(u)
  return found


def index_covers(idx: Idx, shape: tuple[int, ...]) -> bool:
  """Whether an index runs over every element of a shape once: by axes of its own, or those of a reshaped one."""
  axes = [(i, n) for i, n in zip(idx, shape) if n != 1]
  if all(i.op is Ops.RANGE and i.arg[1] == n for i, n in axes): return len({i for i, _ in axes}) == len(axes)
  if not is_fixed(shape) or not is_fixed(i.arg[1] for i in axes_in(*idx)): return False
  parts, offset = ix.linear(flat_index(shape, idx))
  step = 1
  for axis, k in sorted(parts, key=lambda p: p[1]):
    if axis.op is not Ops.RANGE or k != step: return False
    step *= axis.arg[1]
  return offset == 0 and step == ix.elements(shape)


def leaves(x: UOp, idx: Idx = ()) -> Iterator[tuple[UOp, Idx]]:
  """What a value is made of element by element but constants (of much some), and which element of each is in element ``idx``."""
  left, seen = [(x, idx)], {x}
  while left and len(seen) < LEAVES_WITHIN:
    u, at = left.pop()
    if u.op in MOVEMENT or u.op in (Ops.ALU, Ops.CAST, Ops.DETACH):
      if at and u.op in MOVEMENT: at = pulled(u, at)[0]
      new = [s for s in dict.fromkeys(u.src) if s not in seen]
      seen.update(new)
      left += [(s, at) for s in new]
    elif u.op is not Ops.CONST: yield u, at


def in_bounds(idx: Iterable[UOp], shape: Iterable[ix.Dim]) -> UOp:
  """Whether an index is one of an element."""
  return ix.both(*[c for i, n in zip(idx, shape) for c in (ix.ge(i, 0), ix.lt(i, n))])


# the index of a LOAD or STORE; an access at another index; nodes of one source, with its dtype, whose sizes may be expressions
def indexed(idx: Idx) -> UOp: return UOp(Ops.INDEX, ix.INT, idx)
def at_place(access: UOp, idx: Idx) -> UOp: return access.replace((access.src[0], indexed(idx), *access.src[2:]))
def movement(op: Ops, x: UOp, arg: object) -> UOp: return UOp(op, x.dtype, (x,), arg)
def reshaped(x: UOp, shape: Shape) -> UOp: return movement(Ops.RESHAPE, x, shape)
def as_buffer(x: UOp) -> UOp: return movement(Ops.CONTIGUOUS, x, None)


def with_axis(x: UOp, axis: int, *sizes: ix.Dim, after: int = 1) -> UOp:
  """An axis, or ``after`` axes from it on, as others: (.., n, ..) -> (.., parts, n / parts, ..)."""
  return reshaped(x, (*x.shape[:axis], *sizes, *x.shape[axis + after:]))
