"""The one function that rewrites a graph: rules replace nodes, what reads a replaced node is rebuilt, and all other nodes are the
same objects as before.

A rule is found by the op of a node. It is called with the node as it was and as it would be now (its sources rewritten, index
arithmetic in canonical form), and gives what stands in its place, or None for the latter. A unique node (not interned: a
statement, a loop, an accumulator) is rebuilt as a unique one.

    rewrite(body, {Ops.LOAD: lambda old, new: new.replace(new.src[:2])})    # LOAD(buffer, index, gate) -> LOAD(buffer, index)
"""
from __future__ import annotations

from typing import Callable, Iterable, Mapping, Union

from . import index as ix
from .uop import Ops, UOp, toposort

Rule = Callable[[UOp, UOp], Union[UOp, None]]
Rules = Mapping[Ops, Rule]


def rewrite(roots: Iterable[UOp], rules: Rules, known: Mapping[UOp, UOp] | None = None,
            made: dict[UOp, UOp] | None = None) -> tuple[UOp, ...]:
  """``roots`` after the rules. What stands for the nodes in ``known`` is known already: nothing beneath them is looked at. What
  stands for every other node is put into ``made``."""
  roots = tuple(roots)
  new: dict[UOp, UOp] = {} if made is None else made
  new.update(known or ())
  for n in toposort(roots, new.__contains__):
    if n in new: continue
    m = n
    src = tuple([new[s] for s in n.src])
    if src != n.src:
      m = n.replace(src)
      m = ix.fold(m) or m
    rule = rules.get(n.op)
    new[n] = m if rule is None else rule(n, m) or m
  return tuple([new[r] for r in roots])


def substitute(roots: Iterable[UOp], table: Mapping[UOp, UOp]) -> tuple[UOp, ...]:
  """``roots`` with the nodes of ``table`` (mostly RANGEs) replaced."""
  return rewrite(roots, {}, table)
