"""Pass for targets with blocks: programs that go through more rounds of a loop begin before others.

Programs begin in order as cores have room. Where those that take longest begin last, as the later rows of causal attention do,
most cores wait for a few of them at the end.
"""
from __future__ import annotations

from collections.abc import Iterable

from .. import index as ix
from ..ir import BinaryOps, Ops, Target, UOp, toposort
from ..kernel import AxisKind, Kernel, orders, substitute, walk_statements
from .one_pass_rule import index_of_value


def longest_first(kernel: Kernel, target: Target | None = None) -> Kernel:
  """For targets with blocks: an axis of the grid along which loops get longer -> the same from its end: of g < 64,
  FOR(j < g + 1, y[g] = ..) -> FOR(j < 64 - g, y[63 - g] = ..). Not where programs may wait for those that begin before them."""
  if target is None or not target.blocks or any(map(orders, kernel.nodes)): return kernel
  ends = [index_of_value(s.src[0]) for s, _ in walk_statements(kernel.body) if s.op is Ops.FOR]
  table: dict[UOp, UOp] = {}
  for a in kernel.axes:
    if a.kind is not AxisKind.GRID: continue
    signs = {_direction(e, a.rng) for e in ends if e is not None and a.rng in e.ranges}
    if signs == {1}: table[a.rng] = ix.sub(ix.sub(ix.node(a.size), 1), a.rng)
  return kernel.with_(body=substitute(kernel.body, table)) if table else kernel


def _direction(index: UOp, axis: UOp) -> int | None:
  """1 where an index nowhere falls along an axis, -1 where it nowhere grows, None where it may do both."""
  found: dict[UOp, int | None] = {}
  for u in toposort((index,)):
    terms, _ = ix.linear(u)
    if axis not in u.ranges: found[u] = 0
    elif u is axis: found[u] = 1
    elif u not in dict(terms): found[u] = _together((found[t], by) for t, by in terms)
    elif u.arg is BinaryOps.MAX or u.arg is BinaryOps.MIN: found[u] = _together((found[s], 1) for s in u.src)
    elif u.arg is BinaryOps.IDIV and axis not in u.src[1].ranges and ix.vmin(u.src[1]) > 0: found[u] = found[u.src[0]]
    else: found[u] = None
  return found[index]


def _together(parts: Iterable[tuple[int | None, int]]) -> int | None:
  """The direction of a sum of parts, by the direction of each and what it is multiplied by."""
  signs = {None if d is None else d if by > 0 else -d for d, by in parts} - {0}
  return signs.pop() if len(signs) == 1 else None
