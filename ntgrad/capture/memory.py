"""The memory of a captured function's arguments, and who keeps it."""
from __future__ import annotations

import gc
from dataclasses import dataclass
from types import FrameType
from typing import Any
from weakref import ref

from ntgrad.codegen.ir.uop import Ops, UOp
from ntgrad.core import Base
from ntgrad.engine import realize as engine
from ntgrad.engine.buffer import Buffer
from ntgrad.engine.realize import base_of
from ntgrad.graph.alias import Alias, AliasView, live_aliases, repeats

from .arguments import Pieces


@dataclass
class Given:
  """How a captured function gets a Tensor argument.

  ``kind`` "read": a copy of its elements, other memory at every call. "written": its memory, other memory at every call, in which
  ``view`` finds it; arguments of one ``group`` share that memory. "state": memory that the function holds itself, the same at
  every call.
  """
  kind: str
  view: AliasView = ()
  shape: tuple[int, ...] = ()      # of the memory
  group: int = 0
  alias: ref[Alias] | None = None


def sharing(pieces: Pieces) -> list[int]:
  """Which Tensors share memory: for each the first one that it shares with, and whether it is expanded."""
  first: dict[Alias, int] = {}
  return [2 * first.setdefault(t._alias, i) + repeats(t._view) for i, t in enumerate(pieces.tensors)]


def serials_in_order(given: list[Given], read: list[int], written: list[int]) -> list[int]:
  """The numbers of the copies that stand for arguments, in the order of the arguments."""
  reads, writes, out = iter(read), iter(written), []
  seen: set[int] = set()
  for g in given:
    if g.kind == "read": out.append(next(reads))
    elif g.kind == "written" and g.group not in seen:
      seen.add(g.group)
      out.append(next(writes))
  return out


def exact(tensors: list[Any]) -> list[Buffer]:
  """For computed Tensors, Buffers that hold exactly their elements: their own, or copies."""
  out: list[Any] = []
  for t in tensors:
    u = t.lazydata
    while u.op is not Ops.BUFFER and ((r := engine.resolved(u)) is not u or u.op is Ops.RESHAPE or u.op is Ops.DETACH):
      u = r if r is not u else u.src[0]
    out.append(u.arg if u.op is Ops.BUFFER else type(t)._from_node(UOp.unique(Ops.CONTIGUOUS, t.dtype, (t.detach().lazydata,))))
  if all([type(b) is Buffer for b in out]): return out
  if copies := [t._alias for t in out if isinstance(t, Base)]: engine.compute(copies)
  return [base_of(b.lazydata).arg if isinstance(b, Base) else b for b in out]


def write_back(written: list[tuple[Buffer, Alias]], name: str) -> None:
  """What was written to the copies of arguments is the arguments' now."""
  for b, a in written:
    engine.before_writing([a.memory.storage], [a])
    a.memory.take(b)
    a.overwritten(f"a call of {name}")


def make_own(a: Alias) -> None:
  """Give an Alias whose value lies in another's memory its own."""
  a.renew()
  engine.compute([a])


def keeper(storage: Any) -> str:
  """What keeps an argument's memory, in words."""
  for a in live_aliases:
    tensors = list(a.seen())
    if not tensors: continue
    base = base_of(a.node)
    if base.op is Ops.BUFFER:
      if base.arg.storage is not storage: continue
      what = "as"
    elif any([u.op is Ops.BUFFER and u.arg.storage is storage for u in engine.walk_nodes((a.node,))]): what = "by"
    else: continue
    where = _held_by(tensors)
    shape = tensors[0].shape
    return f"{'as' if what == 'as' else 'by a value that was not realised,'} a tensor of shape {shape}{where}"
  return "by a tensor that is not realised, or the gradients of one"


def _held_by(tensors: list[Any]) -> str:
  """Where Tensors are held: an attribute, a list, a dict."""
  for t in tensors:
    for holder in gc.get_referrers(t):
      if holder is tensors or isinstance(holder, FrameType) or isinstance(holder, Pieces): continue
      if isinstance(holder, list): return " in a list"
      if isinstance(holder, dict):
        key = next((k for k, v in holder.items() if v is t), None)
        owner = next((o for o in gc.get_referrers(holder) if getattr(o, "__dict__", None) is holder), None)
        return f" in the attribute {key!r} of a {type(owner).__name__}" if owner is not None else f" under {key!r} in a dict"
      if not isinstance(holder, (tuple, type(iter([])))) and hasattr(holder, "__dict__"):
        key = next((k for k, v in vars(holder).items() if v is t), None)
        if key is not None: return f" in the attribute {key!r} of a {type(holder).__name__}"
  return ""


def made_after(serial: int, a: Alias) -> bool:
  """Whether the memory that an Alias's value lies in was made after the one with that number."""
  base = base_of(a.node)
  return base.op is Ops.BUFFER and base.arg.storage.serial > serial
