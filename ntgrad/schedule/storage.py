"""The buffer that holds the value of a graph node, and the index of an element in it."""
from __future__ import annotations

from ntgrad.codegen import index as ix
from ntgrad.codegen.uop import MOVEMENT, Ops, UOp
from ntgrad.codegen.view import pull

Idx = tuple[UOp, ...]


_WRITES = frozenset({Ops.ASSIGN, Ops.SCATTER, Ops.LAUNCH, Ops.AFTER})


def storage(u: UOp) -> UOp:
  """The node whose buffer holds ``u``'s value: of a write that of the memory that it writes."""
  if u.op not in _WRITES: return u
  passed = []
  # found once for each version: they lie upon each other
  while (u.op in _WRITES or u.op in MOVEMENT) and "_storage" not in u.__dict__:
    if u.op in _WRITES: passed.append(u)
    u = u.src[0]
  found: UOp = u.__dict__.get("_storage", u)
  for w in passed: w.__dict__["_storage"] = found
  return found


def storage_index(u: UOp, idx: Idx) -> Idx:
  """Where element ``idx`` of root ``u`` lies in its storage."""
  if u.op is not Ops.ASSIGN and u.op is not Ops.SCATTER: return idx
  t = u.src[0]
  while t.op in MOVEMENT:
    idx, _ = pull(t.op, t.src[0].shape, t.arg, idx)
    t = t.src[0]
  return idx


def stand_in(u: UOp) -> UOp:
  """A parameter that has no slot yet: it names the graph node that stores ``u``."""
  return UOp(Ops.DEFINE_GLOBAL, u.dtype, (), storage(u))


def load(u: UOp, idx: Idx, valid: UOp) -> UOp:
  """LOAD of an element of a root or BUFFER."""
  at = storage_index(u, idx)
  return UOp(Ops.LOAD, u.dtype, (stand_in(u), UOp(Ops.INDEX, ix.INT, at)) + ((valid,) if valid is not ix.TRUE else ()))
