"""Pass for targets with blocks: what a mask leaves out is looked for in those rounds of a loop in which it leaves out something.

Causal attention goes along blocks of keys, of which only those on the diagonal have keys that a query may not see. So a block
that a loop makes is masked in a branch, which most rounds do not take.
"""
from __future__ import annotations

import math
from collections.abc import Collection

from .. import index as ix
from ..ir import BinaryOps, Ops, Target, TernaryOps, UOp, dtypes, toposort
from ..kernel import AxisKind, Kernel, is_variable, rewrite
from .builder import store_over
from .one_pass_rule import below_zero, greatest_along

_MOST_PRODUCTS = 2   # of a loop where factors lie in registers, as they do without warp groups: a branch needs more of these


def branch_masks(kernel: Kernel, target: Target | None = None) -> Kernel:
  """For targets with blocks: a block that each round of a loop masks -> one that some do: FOR(j, s = where(64*j + c <= i, x, 0))
  -> FOR(j, s = x, IF(~(64*j + 63 <= least i), s = where(64*j + c <= i, s, 0)))."""
  if target is None or not target.blocks: return kernel
  tiles = {a.rng for a in kernel.axes if a.kind is AxisKind.TILE}
  def loop(old: UOp, s: UOp) -> UOp | None:
    products = sum(u.op is Ops.REDUCE and u.arg[0] is BinaryOps.ADD and u.src[0].arg is BinaryOps.MUL for u in toposort(s.src))
    if not products or products > _MOST_PRODUCTS and not target.warp_groups: return None
    return s.replace((s.src[0], *[x for one in s.src[1:] for x in _split(one, kernel.axis(s.arg).rng, tiles)]))
  return kernel.with_(body=rewrite(kernel.body, {Ops.FOR: loop}))


def _split(s: UOp, step: UOp, tiles: Collection[UOp]) -> list[UOp]:
  """A statement of a loop, or what is stored without masks, and these under a condition."""
  if s.op is not Ops.STORE or not is_variable(s.src[0]) or len(s.src) != 3 or len(s.src[1].src) < 2: return [s]
  value, masks, whole = s.src[2], list[UOp](), list[UOp]()
  while value.arg is TernaryOps.WHERE and (chosen := _mask(value, step, tiles)) is not None:
    masks.append(value)
    value, conditions = chosen
    whole += conditions
  condition = ix.both(*whole)
  if not masks or condition is ix.FALSE: return [s]
  block = masked = UOp(Ops.LOAD, s.dtype, s.src[:2])
  for m in masks[::-1]: masked = m.replace(tuple([x if x.op is Ops.CONST or x is m.src[0] else masked for x in m.src]))
  rest = [] if condition is ix.TRUE else [UOp.unique(Ops.IF, dtypes.bool, (condition, store_over(block, masked)), 0)]
  return rest if value is block else [store_over(block, value), *rest]


def _mask(choice: UOp, step: UOp, tiles: Collection[UOp]) -> tuple[UOp, list[UOp]] | None:
  """What is chosen wherever nothing is left out, and conditions under which this is so for a whole block. None where it is no
  choice between something and a constant by indices, in each round another."""
  condition, yes, no = choice.src
  if choice.dtype.kind != "f" or step not in condition.ranges or not (yes.op is Ops.CONST or no.op is Ops.CONST): return None
  negated = yes.op is Ops.CONST and (no.op is not Ops.CONST or yes.arg == -math.inf)
  found: list[UOp] = []
  for c in below_zero(condition, negated):
    if c is None or (end := greatest_along(c, tiles)) is None: return None
    found.append(ix.lt(end, 0))
  return (no if negated else yes), found
