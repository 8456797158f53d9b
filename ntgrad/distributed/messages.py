"""The collective operations by messages, over arrays of the host. Every rank adds in the order of ranks, so results are the same
bits whatever carries the messages, in every run, and on every rank.

An ``all_reduce`` is a ``reduce_scatter`` and an ``all_gather`` of the results: each rank sends and receives 2 (n - 1) / n of the
bytes. Floats of less than 32 bits are added in float32 and rounded once."""
from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from .transport import Bytes, Doing, Message, Transport

SMALL = 1 << 14   # bytes that every rank sends to every other as a whole: one round of messages in place of two

Array = np.ndarray[Any, Any]
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


def _others(t: Transport) -> list[int]: return [r for r in range(t.size) if r != t.rank]


def _from_all(t: Transport, doing: Doing, sends: list[Message], mine: Array) -> list[Array]:
  """What the others send, in the order of ranks, each of the size of ``mine``, which is this rank's."""
  parts = [mine if r == t.rank else np.empty_like(mine) for r in range(t.size)]
  t.exchange(doing, sends, [(r, as_bytes(parts[r])) for r in _others(t)])
  return parts


def all_reduce(t: Transport, doing: Doing, x: Array, out: Array, op: str, root: int) -> None:
  """``out`` is the combination of all ranks' ``x``."""
  if x.nbytes <= SMALL or t.size == 1:
    reduce_into(out, _from_all(t, doing, [(r, as_bytes(x)) for r in _others(t)], x), op)
    return
  ends = [x.size * i // t.size for i in range(t.size + 1)]
  pieces = [slice(a, b) for a, b in pairwise(ends)]
  mine = pieces[t.rank]
  reduce_into(out[mine], _from_all(t, doing, [(r, as_bytes(x[pieces[r]])) for r in _others(t)], x[mine]), op)
  t.exchange(doing, [(r, as_bytes(out[mine])) for r in _others(t)], [(r, as_bytes(out[pieces[r]])) for r in _others(t)])


def reduce_scatter(t: Transport, doing: Doing, x: Array, out: Array, op: str, root: int) -> None:
  """``out`` is this rank's part of the combination of all ranks' ``x``."""
  x = x.reshape(t.size, -1)
  reduce_into(out, _from_all(t, doing, [(r, as_bytes(x[r])) for r in _others(t)], x[t.rank]), op)


def all_gather(t: Transport, doing: Doing, x: Array, out: Array, op: str, root: int) -> None:
  """``out`` has every rank's ``x``, in their order."""
  out = out.reshape(t.size, -1)
  out[t.rank] = x
  t.exchange(doing, [(r, as_bytes(x)) for r in _others(t)], [(r, as_bytes(out[r])) for r in _others(t)])


def all_to_all(t: Transport, doing: Doing, x: Array, out: Array, op: str, root: int) -> None:
  """Part r of ``out`` is this rank's part of rank r's ``x``."""
  x, out = x.reshape(t.size, -1), out.reshape(t.size, -1)
  out[t.rank] = x[t.rank]
  t.exchange(doing, [(r, as_bytes(x[r])) for r in _others(t)], [(r, as_bytes(out[r])) for r in _others(t)])


def broadcast(t: Transport, doing: Doing, x: Array, out: Array, op: str, root: int) -> None:
  """``out`` is the ``x`` of rank ``root``."""
  if t.rank == root:
    out[...] = x
    t.exchange(doing, [(r, as_bytes(x)) for r in _others(t)], [])
  else: t.exchange(doing, [], [(root, as_bytes(out))])


def send(t: Transport, doing: Doing, x: Array, out: Array, op: str, root: int) -> None:
  """``x`` goes to rank ``root``; ``out`` is it, too."""
  out[...] = x
  t.exchange(doing, [(root, as_bytes(x))], [], f"{t.rank}>{root}")


def recv(t: Transport, doing: Doing, x: Array, out: Array, op: str, root: int) -> None:
  """``out`` is what rank ``root`` sends."""
  t.exchange(doing, [], [(root, as_bytes(out))], f"{root}>{t.rank}")


OPERATIONS = {f.__name__: f for f in (all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, send, recv)}
