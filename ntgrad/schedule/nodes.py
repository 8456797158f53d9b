"""What every step of scheduling asks of a node, and the nodes that it makes."""
from __future__ import annotations

from collections.abc import Iterable

from ntgrad.codegen import index as ix
from ntgrad.codegen.index.view import pull
from ntgrad.codegen.ir.uop import MOVEMENT, Ops, UOp

Idx = tuple[UOp, ...]
Body = tuple[UOp, ...]                    # the statements of a kernel
Copies = dict[UOp, tuple[UOp, Body]]   # a copy's node -> what it copies, and the body of the kernel that does


def viewed(u: UOp) -> UOp:
  """What a value is a view of: the version of memory, the products that windows are made of."""
  while u.op in MOVEMENT: u = u.src[0]
  return u


def pulled(u: UOp, idx: Idx) -> tuple[Idx, UOp]:
  """Where a movement finds element ``idx`` in its source, and when there is one."""
  return pull(u.op, u.src[0].shape, u.arg, idx)


def elements_of(u: UOp) -> int:
  """About how many elements a value has."""
  return ix.elements(u.shape)


def node_bytes(u: UOp) -> int:
  """Bytes of a value in memory."""
  return ix.elements(u.shape) * u.dtype.itemsize


def axes_in(*indices: UOp) -> frozenset[UOp]:
  """The axes that indices, or a condition, go along."""
  return frozenset().union(*[i.ranges for i in indices])


def axes_size(axes: Iterable[UOp]) -> int:
  """About how many elements axes go through together."""
  return ix.elements([r.arg[1] for r in axes])


def in_bounds(idx: Iterable[UOp], shape: Iterable[ix.Dim]) -> UOp:
  """Whether an index is one of an element."""
  return ix.both(*[c for i, n in zip(idx, shape) for c in (ix.ge(i, 0), ix.lt(i, n))])


def indexed(idx: Idx) -> UOp:
  """An index, as a LOAD or STORE has it."""
  return UOp(Ops.INDEX, ix.INT, idx)


def at_place(access: UOp, idx: Idx) -> UOp:
  """A LOAD or STORE at another index."""
  return access.replace((access.src[0], indexed(idx), *access.src[2:]))


def movement(op: Ops, x: UOp, arg: object) -> UOp:
  """A node of one source that has its dtype; sizes may be expressions."""
  return UOp(op, x.dtype, (x,), arg)
