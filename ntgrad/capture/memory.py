"""The memory of a captured function's arguments, and who keeps it."""
from __future__ import annotations

import gc
from dataclasses import dataclass
from types import FrameType
from typing import Any, Sequence
from weakref import ref

from ntgrad.codegen.ir import Ops, UOp
from ntgrad.core import Base
from ntgrad.engine import realize as engine
from ntgrad.engine.buffer import Buffer
from ntgrad.engine.realize import base_of
from ntgrad.engine.recording import storage_of
from ntgrad.graph import Alias, AliasView, live_aliases, repeats

from .arguments import Pieces

ArgumentMemory = list[tuple[Buffer, Alias | None]]   # of arguments, in their order; with an Alias: of one that is written


@dataclass
class Given:
  """How a captured function gets a Tensor argument. ``kind`` "read": a copy of its elements. "written": its memory, in which
  ``view`` finds it; arguments of one ``group`` share it. Both are other memory at every call. "state": memory that the function
  holds itself, the same at every call."""
  kind: str
  view: AliasView = ()
  shape: tuple[int, ...] = ()      # of the memory
  group: int = 0
  alias: ref[Alias] | None = None


def sharing(pieces: Pieces) -> list[int]:
  """Which Tensors share memory: for each the first one that it shares with, and whether it is expanded."""
  first: dict[Alias, int] = {}
  return [2 * first.setdefault(t._alias, i) + repeats(t._view) for i, t in enumerate(pieces.tensors)]


def exact(tensors: list[Any]) -> list[Buffer]:
  """For computed Tensors, Buffers that hold exactly their elements: their own, or copies."""
  out: list[Any] = []
  for t in tensors:
    u = u if (u := t.lazydata).op is Ops.BUFFER else engine.without_reshapes(u)
    out.append(u.arg if u.op is Ops.BUFFER else type(t)._from_node(UOp.unique(Ops.CONTIGUOUS, t.dtype, (t.detach().lazydata,))))
  if all(type(b) is Buffer for b in out): return out
  if copies := [t._alias for t in out if isinstance(t, Base)]: engine.compute(copies)
  return [base_of(b.lazydata).arg if isinstance(b, Base) else b for b in out]


def write_back(copies: ArgumentMemory, name: str) -> None:
  """What was written to the copies of arguments is the arguments' now."""
  for b, a in copies:
    if a is None: continue
    engine.before_writing([a.memory.storage], [a])
    a.memory.take(b)
    a.overwritten(f"a call of {name}")


def make_own(aliases: Sequence[Alias]) -> None:
  """Give Aliases whose values lie in others' memory their own."""
  for a in aliases: a.renew()
  engine.compute(aliases)


def keeper(storage: Any) -> str:
  """What keeps an argument's memory, in words."""
  for a in live_aliases:
    tensors = list(a.seen())
    if not tensors or all(b.storage is not storage for b in engine.buffers_beneath(a.node)): continue
    return (f"{'as' if engine.is_view(a.node) else 'by a value that was not realised,'} a tensor of shape {tensors[0].shape}"
            f"{_held_by(tensors)}")
  return "by a tensor that is not realised, or the gradients of one"


def _held_by(tensors: list[Any]) -> str:
  """Where Tensors are held: an attribute, a list, a dict."""
  for t in tensors:
    for holder in gc.get_referrers(t):
      if holder is tensors or isinstance(holder, (FrameType, Pieces)): continue
      if isinstance(holder, list): return " in a list"
      owner: Any = holder
      if isinstance(holder, dict):
        owner = next((o for o in gc.get_referrers(holder) if getattr(o, "__dict__", None) is holder), None)
      elif isinstance(holder, (tuple, type(iter([])))) or not hasattr(holder, "__dict__"): continue
      key = next((k for k, v in (holder if isinstance(holder, dict) else vars(holder)).items() if v is t), None)
      if owner is not None and key is not None: return f" in the attribute {key!r} of a {type(owner).__name__}"
      if owner is None: return f" under {key!r} in a dict"
  return ""


def made_after(serial: int, a: Alias) -> bool:
  """Whether the memory that an Alias's value lies in was made after the one with that number."""
  storage = storage_of(a)
  return storage is not None and storage.serial > serial
