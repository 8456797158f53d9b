"""Which nodes of the given graph each kernel computes, whatever rewrites have made of them."""
from __future__ import annotations

from collections.abc import Mapping

from ntgrad.codegen.uop import UOp
from ntgrad.origins import worth_naming

from .groups import Group
from .partition import Partition
from .writes import Placing


def given_nodes(placing: Placing, made: Mapping[UOp, UOp], part: Partition) -> dict[UOp, UOp]:
  """A node of the graph that is being cut -> the node that was given in its place. What a rewrite has added stands for what reads
  it: the partial sums of a sum are that sum."""
  found: dict[UOp, UOp] = {}
  for u in placing.order:
    if (n := made.get(placing.new[u])) is not None: found.setdefault(n, u)   # before movement that came to nothing
  for u in reversed(part.order):
    if (source := found.get(u)) is not None:
      for s in u.src: found.setdefault(s, source)
  return found


def computed(part: Partition, given: Mapping[UOp, UOp]) -> dict[Group, tuple[UOp, ...]]:
  """The given nodes that each kernel computes, sources first."""
  out: dict[Group, dict[UOp, None]] = {}
  for u in part.order:
    if (source := given.get(u)) is None: continue
    for g, _, _ in part.uses[u]: out.setdefault(g, {})[source] = None
  return {g: tuple(worth_naming(nodes)) for g, nodes in out.items()}
