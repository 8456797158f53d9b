"""Names of tensors (``layers.0.weight``), noted by ``nn.state`` and the like, for what is printed of the buffers that hold their
values. The table holds no tensor."""
from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any
from weakref import ref

from ntgrad.codegen.ir import Ops, UOp

from .alias import values

_MOST = 4096                                  # names that are remembered, those told last
SHOWN = 4                                     # of one buffer
_known: dict[int, tuple[ref[Any], str]] = {}  # by the identity of a Tensor


def _forget(key: int, _: Any) -> None: _known.pop(key, None)


def remember_names(tensors: Mapping[str, Any]) -> None:
  """These Tensors have these names."""
  for name, t in tensors.items():
    _known.pop(id(t), None)
    _known[id(t)] = ref(t, partial(_forget, id(t))), name
  for key in list(_known)[:max(len(_known) - _MOST, 0)]: _known.pop(key, None)


class BufferNames:
  """What buffers are called now, by the tensors that are alive."""

  def __init__(self) -> None:
    self.values: dict[UOp, str] = {}                            # that are not computed yet
    self.places: dict[Any, list[tuple[int, int, str]]] = {}     # of a storage: first byte, bytes, name
    for r, name in list(_known.values()):
      if (t := r()) is None: continue
      u, first = t.lazydata, 0
      size = math.prod(u.shape) * u.dtype.itemsize
      while (u := values.get(u) or u).op in (Ops.RESHAPE, Ops.DETACH, Ops.SHRINK):
        if u.op is Ops.SHRINK:
          if len(u.shape) != 1: break   # no bytes that lie side by side
          first += u.arg[0][0] * u.dtype.itemsize
        u = u.src[0]
      if u.op is Ops.BUFFER: self.places.setdefault(u.arg.storage, []).append((u.arg.offset + first, size, name))
      else: self.values.setdefault(u, name)

  def of(self, node: UOp, first: int = 0, size: int | None = None) -> str:
    """The names of what lies in a BUFFER, or in ``size`` bytes of it from byte ``first`` on; "" where nobody knows any."""
    if node.op is not Ops.BUFFER: return self.values.get(node, "")
    begin = int(node.arg.offset) + first
    end = begin + (node.arg.nbytes if size is None else size)
    found = [f"{'' if at >= begin and at + n <= end else 'part of '}{name}"
             for at, n, name in self.places.get(node.arg.storage, ()) if at < end and at + n > begin]
    return ", ".join(found if len(found) <= SHOWN else [*found[:SHOWN], f"{len(found) - SHOWN} more"])
