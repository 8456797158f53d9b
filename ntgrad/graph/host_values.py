"""Values that the host reads without running a kernel: constants, and views of memory."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ntgrad.backends.memory_pool import host_room
from ntgrad.codegen.ir import Ops, ShapeError, UOp

_MOST = 1 << 28    # elements of what is expanded, which a reshape may have to copy
MAX_DIMS = 64      # as arrays of numpy have
_MANY = 1 << 22    # lists in lists that are not counted
_DEEP = 1000       # how deep is said
_HOST = frozenset({Ops.DETACH, Ops.RESHAPE, Ops.PERMUTE, Ops.SHRINK, Ops.FLIP})


def _host_movement(u: UOp) -> bool:
  """Movement that numpy does for nothing, and can do: of TILE steps, windows of one element; EXPAND to what memory may hold."""
  if u.op is Ops.EXPAND: return math.prod(u.shape) <= _MOST
  return u.op in _HOST or u.op is Ops.TILE and all([w[0] == 1 for w in u.arg])


def is_host_view(u: UOp) -> bool:
  """Whether a node is a constant, or a plain view of memory that is small or mostly used: its value is found on the host."""
  size = math.prod(u.shape)
  while u.src and _host_movement(u): u = u.src[0]
  return u.op is Ops.CONST or u.op is Ops.BUFFER and (u.arg.size <= 4 * size or u.arg.nbytes <= 65536)


def host_view(u: UOp) -> np.ndarray[Any, Any]:
  """The value of a node for which ``is_host_view`` holds."""
  chain: list[UOp] = []
  host_room(math.prod(u.shape) * u.dtype.itemsize, "the value of a tensor")
  while _host_movement(u):
    chain.append(u)
    u = u.src[0]
  a = np.array(u.arg, u.dtype.np) if u.op is Ops.CONST else u.arg.numpy()
  for n in reversed(chain):
    if n.op is Ops.RESHAPE: a = a.reshape(n.arg)
    elif n.op is Ops.PERMUTE: a = a.transpose(n.arg)
    elif n.op is Ops.EXPAND: a = np.broadcast_to(a, n.arg)
    elif n.op is Ops.SHRINK: a = a[tuple(slice(b, e) for b, e in n.arg)]
    elif n.op is Ops.FLIP: a = np.flip(a, n.arg)
    elif n.op is Ops.TILE:
      a = a[tuple(slice(0, (k - 1) * step + 1, step) for k, (_, step, _) in zip(n.shape, n.arg))].reshape(n.shape)
  return np.array(a, order="C") if chain or u.op is Ops.CONST else a


# ---- nested lists


def first_of(name: str, data: Any) -> Any:
  """The first element of nested lists. Raises ShapeError for lists that are too deep, such as one that has itself, and for a few
  that are a great many written out."""
  depth, rows, level, x = 0, 1, 1, data
  while isinstance(x, (list, tuple)) and x and depth < _DEEP: depth, rows, level, x = depth + 1, level, level * len(x), x[0]
  if depth > MAX_DIMS:
    raise ShapeError(f"{name}: lists {depth} deep{' or more, or one that has itself' * (depth == _DEEP)}; tensors have up to "
                     f"{MAX_DIMS} dimensions")
  if rows > _MANY:
    found = [data]
    for _ in range(depth - 1):
      found = list({id(y): y for part in found if isinstance(part, (list, tuple)) for y in part}.values())
    if rows > 64 * len(found):
      raise ShapeError(f"{name}: lists that come again and again, {rows} of them if they are written out; make a tensor of "
                       "a row, and expand it")
  return x
