"""Walks over the tensor graph: its nodes in an order of computing, and the structure by which plans are found."""
from __future__ import annotations

from typing import Any, Iterable

from ntgrad.codegen.ir import Ops, UOp
from ntgrad.graph import values

from .buffer import resolved


def walk_nodes(sinks: Iterable[UOp], known: dict[UOp, None] | None = None) -> list[UOp]:
  """The nodes beneath ``sinks``, sources first, existing values as their BUFFERs; but those in ``known``, which gets the rest."""
  done: dict[UOp, None] = {} if known is None else known
  known_value = values.known.get   # as ``resolved``, without a call
  out: list[UOp] = []
  stack = [resolved(s) for s in sinks][::-1]
  while stack:
    n = stack[-1]
    if n in done:
      stack.pop()
      continue
    missing = []
    for s in n.src:
      if s in done: continue
      if (entry := known_value(id(s))) is not None and entry() is s and (s := entry.value) in done: continue
      missing.append(s)
    if missing: stack.extend(missing[::-1])
    else:
      done[n] = None
      out.append(n)
      stack.pop()
  return out


def without_reshapes(u: UOp) -> UOp:
  """A node without reshapes on top: what is computed has its elements in the same order."""
  u = resolved(u)
  while u.op is Ops.RESHAPE or u.op is Ops.DETACH: u = resolved(u.src[0])
  return u


class Walk:
  """The graph beneath some nodes: its nodes, sources first, existing values as their BUFFERs, and what tells it from others."""

  def __init__(self) -> None:
    self.order: list[UOp] = []
    self.number: dict[UOp, int] = {}    # the places of its nodes in the order, and of those whose values exist as such BUFFERs
    self.inputs: list[UOp] = []         # the BUFFERs
    # of each node in a row its operation, dtype, argument and the places of its sources; of a BUFFER shape and device
    self.structure: list[Any] = []
    self.noted: list[UOp] = []          # those that say more than what is computed: indices to look through, writes, calls

  def add(self, nodes: Iterable[UOp]) -> None:
    """What lies beneath more nodes."""
    number, order, structure = self.number, self.order, self.structure
    known_value = values.known.get   # as ``resolved``, without a call
    stack: list[Any] = [resolved(u) for u in nodes][::-1]   # a node, or None after one whose sources are above it
    while stack:
      if (n := stack.pop()) is None: n = stack.pop()   # all that it is made of has been met
      elif n in number: continue
      elif n.src:
        stack += n, None
        for s in n.src[::-1]:
          if s in number: continue
          entry = known_value(id(s))
          found = entry.value if entry is not None and entry() is s else s
          if found in number: number[s] = number[found]
          else: stack.append(found)
        continue
      if n in number: continue
      op, arg = n.op, n.arg
      if op is Ops.BUFFER:
        structure += op, n.dtype, arg.shape, arg.device
        self.inputs.append(n)
      else:
        structure += op, n.dtype, float.hex(arg) if type(arg) is float else arg
        try: structure += [number[s] for s in n.src]
        except KeyError:   # values that were met beneath another source
          for s in n.src: number.setdefault(s, number[resolved(s)])
          structure += [number[s] for s in n.src]
        if op in _NOTED and (op is not Ops.DETACH or arg is not None): self.noted.append(n)
      number[n] = len(order)
      order.append(n)

  def row(self, u: UOp) -> tuple[Any, ...]:
    """What the structure has of a node."""
    if u.op is Ops.BUFFER: return u.op, u.dtype, u.arg.shape, u.arg.device
    return u.op, u.dtype, float.hex(u.arg) if type(u.arg) is float else u.arg, *[self.number[s] for s in u.src]


CHANGES = Ops.UPDATE, Ops.CALL
_NOTED = frozenset({Ops.DETACH, *CHANGES})
