"""Pass for targets with blocks: programs that go through more rounds of a loop begin before others.

Programs begin in order as cores have room. Where those that take longest begin last, as the later rows of causal attention do,
most cores wait for a few of them at the end.
"""
from __future__ import annotations

from .. import index as ix
from ..ir import Ops, Target, UOp
from ..kernel import AxisKind, Kernel, orders, substitute, walk_statements
from .one_pass_rule import direction, index_of_value


def longest_first(kernel: Kernel, target: Target | None = None) -> Kernel:
  """For targets with blocks: an axis of the grid along which loops get longer -> the same from its end: of g < 64,
  FOR(j < g + 1, y[g] = ..) -> FOR(j < 64 - g, y[63 - g] = ..). Not where programs may wait for those that begin before them."""
  if target is None or not target.blocks or any(map(orders, kernel.nodes)): return kernel
  ends = [index_of_value(s.src[0]) for s, _ in walk_statements(kernel.body) if s.op is Ops.FOR]
  table: dict[UOp, UOp] = {}
  for a in kernel.axes:
    if a.kind is not AxisKind.GRID: continue
    signs = {direction(e, a.rng) for e in ends if e is not None and a.rng in e.ranges}
    if signs == {1}: table[a.rng] = ix.sub(ix.sub(ix.node(a.size), 1), a.rng)
  return kernel.with_(body=substitute(kernel.body, table)) if table else kernel
