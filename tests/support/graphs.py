"""Graphs of launches whose arguments are named by their allocations, each a memory of its own; and of numpy's launches."""
from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, Sequence

from ntgrad.backends.base import Argument, Device, Graph, Node, Raw, Sizes
from ntgrad.backends.opencl.program import Part


class Launches:
  """A graph of ``(program, allocations, launches that it comes after, sizes)``; an allocation may be one with a place in it."""

  def __init__(self, device: Device, *launches: tuple[Any, Sequence[Raw], Sequence[int], Sizes]):
    self.raws = [list(raws) for _, raws, *_ in launches]
    self.nodes = []
    for program, raws, after, sizes in launches:
      first = sum(len(n.args) for n in self.nodes)
      offsets = [raw.offset if isinstance(raw, Part) else 0 for raw in raws]
      self.nodes.append(Node(program, [Argument(first + i, offset=n) for i, n in enumerate(offsets)], after, sizes))
    found = device.graph(self.nodes)
    assert found is not None
    self.graph: Graph = found

  def change(self, node: int, arg: int, raw: Raw) -> None:
    """Give a launch another allocation."""
    self.raws[node][arg] = raw

  def resize(self, node: int, sizes: Sizes) -> None:
    """Give a launch other sizes."""
    self.graph.change(node, self.nodes[node].args, sizes)
    self.nodes[node] = replace(self.nodes[node], sizes=sizes)

  def __call__(self) -> None:
    """Launch all as one call where that can be, else each by itself."""
    if self.graph.ready(): return self.graph([raw.raw if isinstance(raw, Part) else raw for raws in self.raws for raw in raws])
    for n, raws in zip(self.nodes, self.raws): n.program(raws, False, n.sizes)


class Shuffled(Graph):
  """A graph of numpy's launches, which run in any order that it allows, another one each time."""

  def __init__(self, nodes: Sequence[Node]):
    self.nodes, self.any = list(nodes), random.Random(len(nodes))

  def __call__(self, memory: Sequence[Any], begins: Sequence[int] = ()) -> None:
    done: set[int] = set()
    while len(done) < len(self.nodes):
      i = self.any.choice([i for i, n in enumerate(self.nodes) if i not in done and done.issuperset(n.after)])
      raws = [memory[a.memory][a.place:a.place + a.nbytes if a.nbytes else None][a.offset + (begins[a.memory] if a.moves else 0):]
              for a in self.nodes[i].args]
      self.nodes[i].program(raws, False, self.nodes[i].sizes)
      done.add(i)

  def change(self, node: int, args: Sequence[Argument], sizes: Sizes) -> None:
    self.nodes[node] = replace(self.nodes[node], args=args, sizes=sizes)
