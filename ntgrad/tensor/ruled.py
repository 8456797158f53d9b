"""Values whose gradients a rule has, made of tensors, so that they can be differentiated again.

``graph.Result`` is the note of such a node: a *call*, which knows its sources, and the number of the result. Nothing is computed
for a gradient before somebody asks for it, with ``backward`` or, at any tensor, with ``gradient(x)``.
"""
from __future__ import annotations

from typing import Any, Callable, Collection, Mapping, Sequence
from weakref import ref

from ntgrad.codegen.ir.uop import UOp
from ntgrad.core import Base
from ntgrad.graph import nodes as graph
from ntgrad.graph.modes import mode

# (gradients of the outputs, None where nothing depends on one; inputs; outputs) -> gradients of the inputs, None for none
Rule = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], Sequence[Any]]


class Ruled:
  """One call: its rule, the values of its results, and what they are made from. The results' nodes are held weakly: they hold the
  call."""

  def __init__(self, rule: Rule, values: tuple[UOp, ...], sources: tuple[UOp, ...]):
    self.rule, self.values, self.sources = rule, values, sources
    self.outputs: dict[int, ref[UOp]] = {}

  def node(self, i: int) -> UOp:
    """The node of a result, which may have been let go of since."""
    node = self.outputs[i]() if i in self.outputs else None
    return graph.with_gradient(self.values[i], self, i) if node is None else node

  def gradients(self, at: Mapping[int, UOp], sources: Sequence[UOp], need: Collection[UOp]) -> list[tuple[UOp, UOp]]:
    """The gradients at the sources from those at the results, by number."""
    return by_rule(self.rule, at, sources, [self.node(i) for i in range(len(self.values))])

  def moved(self, to: Callable[[UOp], UOp]) -> Ruled:
    """The same call of other nodes."""
    return Ruled(self.rule, tuple([to(v) for v in self.values]), tuple([to(s) for s in self.sources]))


def by_rule(rule: Rule, at: Mapping[int, UOp], sources: Sequence[UOp], outs: Sequence[UOp]) -> list[tuple[UOp, UOp]]:
  """What a rule gives for nodes."""
  grads = [_attached(at[i]) if i in at else None for i in range(len(outs))]
  found = rule(grads, [_attached(s) for s in sources], [_attached(o) for o in outs])
  return [(s, g.lazydata) for s, g in zip(sources, found) if g is not None]


def _attached(node: UOp) -> Any:
  t = Base._from_node(node)
  if mode.grad and node.dtype.kind == "f": t._state = 1
  return t


def ruled(values: Sequence[Any], sources: Sequence[Any], rule: Rule) -> list[Any]:
  """Values that no gradient goes through, with the gradients at the sources that a rule has."""
  if not mode.grad: return list(values)
  call = Ruled(rule, tuple([v.lazydata for v in values]), tuple([s.lazydata for s in sources]))
  out, needs = [Base._from_node(call.node(i)) for i in range(len(values))], any([s._state > 0 for s in sources])
  for t in out: t._state = int(needs)
  return out
