"""Walks over the graph beneath what is to be computed: a quick one that tells whether there is a plan, and an ordered one of
which a plan is made."""
from __future__ import annotations

from contextlib import contextmanager
from itertools import islice
from typing import Any, Iterable, Iterator, Sequence

from ntgrad.codegen.ir import Ops, UOp
from ntgrad.graph import values
from ntgrad.graph.recipes import kept_beneath, kept_within, sources_of_output

from .buffer import resolved, walk_nodes

CHANGES = Ops.UPDATE, Ops.CALL
_NOTED = frozenset({Ops.DETACH, Ops.OUTPUT, *CHANGES})


class Walk:
  """The graph beneath some nodes, existing values as their BUFFERs, and what tells it from others."""

  def __init__(self) -> None:
    self.nodes: list[UOp] = []          # as they are found from above
    self.number: dict[UOp, int] = {}    # their places there; of nodes whose values exist, of APPLYs (below 0) too
    self.inputs: list[UOp] = []         # the BUFFERs
    # of each node in a row its operation, dtype, argument and the places of its sources; of a BUFFER what it is
    self.structure: list[Any] = []
    # those that say more than what is computed: indices to look through, writes, calls, what recipes make
    self.noted: list[UOp] = []
    self.applied: dict[UOp, int] = {}   # APPLYs of recipes, and the bits of their sources that are needed

  def add(self, tops: Iterable[UOp]) -> None:
    """What lies beneath more nodes."""
    nodes, number, say = self.nodes, self.number, self.structure.append
    known_value = values.known.get   # as ``resolved``, without a call
    first = n = len(nodes)
    for u in map(resolved, tops):
      if u in number: continue
      number[u] = n
      nodes.append(u)
      n += 1
    for u in islice(nodes, first, None):   # they become more on the way
      op, arg = u.op, u.arg
      src: Sequence[UOp] = u.src
      say(op)
      if op is Ops.BUFFER:
        say(arg.signature)
        self.inputs.append(u)
        continue
      say(u.dtype)
      say(float.hex(arg) if type(arg) is float else arg)
      if op in _NOTED and (op is not Ops.DETACH or arg is not None):
        self.noted.append(u)
        if op is Ops.OUTPUT: src, n = self._needed(u), len(nodes)
      for s in src:
        if (at := number.get(s)) is None:
          entry = known_value(id(s))
          found = entry.value if entry is not None and entry() is s else s
          if (at := number.get(found)) is None:
            at = number[found] = n
            nodes.append(found)
            n += 1
          number[s] = at
        say(at)

  def _needed(self, u: UOp) -> list[UOp]:
    """What an OUTPUT needs that no other of its APPLY did."""
    call, bits = u.src[0], self.applied
    if call not in bits: self._add_kept(call)
    self.structure += call.arg, self.number.setdefault(call, ~len(bits))
    found = sources_of_output(u, before := bits.get(call, 0))
    bits[call] = before | call.arg.reads[u.arg]
    return found

  def _add_kept(self, call: UOp) -> None:
    """What an APPLY stands for may be made of inner values of others that are in memory."""
    for number, other in kept_beneath.get(call) or ():
      nodes = other.arg.nodes_of(other)
      for i in kept_within.get(other) or ():
        if (u := resolved(nodes[i])).op is not Ops.BUFFER: continue
        if u not in self.number:
          self.number[u] = len(self.nodes)
          self.nodes.append(u)
        self.structure += number, i, self.number[u]


@contextmanager
def recipes_made(walk: Walk) -> Iterator[None]:
  """In the block what recipes in a graph stand for is the value of their OUTPUTs."""
  outputs, made = [u for u in walk.noted if u.op is Ops.OUTPUT], {u: u.arg.made(u) for u in walk.applied}
  for u in outputs: values.put(u, made[u.src[0]][u.arg])
  try: yield
  finally:
    for u in outputs: values.pop(u)


class Graph:
  """The graph beneath some nodes with its nodes in an order, sources first, existing values as their BUFFERs."""

  def __init__(self, tops: Iterable[UOp]) -> None:
    self.order = walk_nodes(tops)
    self.number = {u: i for i, u in enumerate(self.order)}
    self.inputs = [u for u in self.order if u.op is Ops.BUFFER]
    self.rows = list(map(self._row, self.order))

  def _row(self, u: UOp) -> tuple[Any, ...]:
    """What tells a node from others: its operation, dtype, argument and the places of its sources; of a BUFFER shape and
    device."""
    if u.op is Ops.BUFFER: return u.op, u.dtype, u.arg.shape, u.arg.device
    return u.op, u.dtype, float.hex(u.arg) if type(u.arg) is float else u.arg, *[self.number[resolved(s)] for s in u.src]
