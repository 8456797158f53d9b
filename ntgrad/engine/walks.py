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
    self.number: dict[UOp, int] = {}    # places in the order
    self.inputs: list[UOp] = []         # the BUFFERs
    self.structure: list[Any] = []      # of each node: its operation, dtype, argument and the places of its sources
    self.places: dict[UOp, int] = {}    # as ``number``, and of nodes whose value exists the place of that
    self.noted: list[UOp] = []          # those that say more than what is computed: indices to look through, writes, calls

  def add(self, nodes: Iterable[UOp]) -> None:
    """What lies beneath more nodes."""
    number, order, structure, places = self.number, self.order, self.structure, self.places
    known_value = values.known.get   # as ``resolved``, without a call
    stack = [resolved(u) for u in nodes][::-1]
    while stack:
      n = stack[-1]
      if n in number:
        stack.pop()
        continue
      try: sources = tuple([places[s] for s in n.src])
      except KeyError:   # the first time that the node is met
        missing = []
        for s in n.src:
          if s in places: continue
          if (entry := known_value(id(s))) is not None and entry() is s:
            if (found := entry.value) in number:
              places[s] = number[found]
              continue
            missing.append(found)
          else: missing.append(s)
        stack += missing[::-1]
        continue
      stack.pop()
      number[n] = places[n] = len(order)
      order.append(n)
      op, arg = n.op, n.arg
      if op is Ops.BUFFER:
        structure.append((len(self.inputs), arg.shape, n.dtype, arg.device))
        self.inputs.append(n)
        continue
      structure.append((op, n.dtype, float.hex(arg) if type(arg) is float else arg, sources))
      if op in _NOTED and (op is not Ops.DETACH or arg is not None): self.noted.append(n)


CHANGES = Ops.UPDATE, Ops.CALL
_NOTED = frozenset({Ops.DETACH, *CHANGES})
