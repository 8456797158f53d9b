"""The collective operations by messages, over arrays of the host. Every rank adds in the order of ranks, so results are the same
bits whatever carries the messages, in every run, and on every rank.

An ``all_reduce`` is a ``reduce_scatter`` and an ``all_gather`` of the results: each rank sends and receives 2 (n - 1) / n of the
bytes. Floats of less than 32 bits are added in float32 and rounded once."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .transport import Bytes, Doing, Transport

SMALL = 1 << 14   # bytes that every rank sends to every other as a whole: one round of messages in place of two

Array = np.ndarray[Any, Any]
Parts = Sequence[Array] | Array   # an array for each rank
_COMBINE: dict[str, Callable[..., Any]] = {
  "sum": np.add, "avg": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum}


def as_bytes(x: Array) -> Bytes: return x.reshape(-1).view(np.uint8)


def reduce_into(out: Array, parts: list[Array], op: str) -> None:
  """``out``, which may be one of the parts, is these combined in their order; "avg" divides by how many there are."""
  dtype, combine = out.dtype, _COMBINE[op]
  if dtype.itemsize < 4 and dtype.kind not in "biu":
    total = parts[0].astype(np.float32)
    for p in parts[1:]: combine(total, p.astype(np.float32), out=total)
    if op == "avg": total /= np.float32(len(parts))
    out[...] = total.astype(dtype)
    return
  parts[2:] = [p.copy() if np.may_share_memory(p, out) else p for p in parts[2:]]   # not yet read when ``out`` is written
  if len(parts) == 1: out[...] = parts[0]
  else: combine(parts[0], parts[1], out=out)
  for p in parts[2:]: combine(out, p, out=out)
  if op == "avg": out /= dtype.type(len(parts))


def _exchange(t: Transport, doing: Doing, gives: Parts, takes: Parts) -> None:
  """Array r of ``gives`` goes to rank r; what that gives this rank comes into array r of ``takes``."""
  others = [r for r in range(t.size) if r != t.rank]
  t.exchange(doing, [(r, as_bytes(gives[r])) for r in others], [(r, as_bytes(takes[r])) for r in others])


def _reduce(t: Transport, doing: Doing, gives: Parts, out: Array, op: str) -> None:
  """``out`` is the combination, in the order of ranks, of what all have in their ``gives`` for this one."""
  mine = gives[t.rank]
  parts = [mine if r == t.rank else np.empty_like(mine) for r in range(t.size)]
  _exchange(t, doing, gives, parts)
  reduce_into(out, parts, op)


def all_reduce(t: Transport, doing: Doing, x: Array, out: Array, op: str, root: int) -> None:
  """``out`` is the combination of all ranks' ``x``."""
  if x.nbytes <= SMALL or t.size == 1: _reduce(t, doing, [x] * t.size, out, op)
  else:
    parts = np.array_split(out, t.size)
    _reduce(t, doing, np.array_split(x, t.size), parts[t.rank], op)
    _exchange(t, doing, [parts[t.rank]] * t.size, parts)


def reduce_scatter(t: Transport, doing: Doing, x: Array, out: Array, op: str, root: int) -> None:
  """``out`` is this rank's part of the combination of all ranks' ``x``."""
  _reduce(t, doing, x.reshape(t.size, -1), out, op)


def all_gather(t: Transport, doing: Doing, x: Array, out: Array, op: str, root: int) -> None:
  """``out`` has every rank's ``x``, in their order."""
  all_to_all(t, doing, np.broadcast_to(x, (t.size, x.size)), out, op, root)


def all_to_all(t: Transport, doing: Doing, x: Array, out: Array, op: str, root: int) -> None:
  """Part r of ``out`` is this rank's part of rank r's ``x``."""
  x, out = x.reshape(t.size, -1), out.reshape(t.size, -1)
  out[t.rank] = x[t.rank]
  _exchange(t, doing, x, out)


def broadcast(t: Transport, doing: Doing, x: Array, out: Array, op: str, root: int) -> None:
  """``out`` is the ``x`` of rank ``root``."""
  if t.rank == root:
    out[...] = x
    t.exchange(doing, [(r, as_bytes(x)) for r in range(t.size) if r != root], [])
  else: t.exchange(doing, [], [(root, as_bytes(out))])


def send(t: Transport, doing: Doing, x: Array, out: Array, op: str, root: int) -> None:
  """``x`` goes to rank ``root``; ``out`` is it, too."""
  out[...] = x
  t.exchange(doing, [(root, as_bytes(x))], [], f"{t.rank}>{root}")


def recv(t: Transport, doing: Doing, x: Array, out: Array, op: str, root: int) -> None:
  """``out`` is what rank ``root`` sends."""
  t.exchange(doing, [], [(root, as_bytes(out))], f"{root}>{t.rank}")


OPERATIONS = {f.__name__: f for f in (all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, send, recv)}
