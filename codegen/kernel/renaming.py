"""Values with other axes. Axes that a REDUCE binds keep their names, unless an axis that comes in from outside has the same."""
from __future__ import annotations

from typing import Any, Callable, Mapping

from ..index.sizes import Dim
from ..ir.uop import Ops, UOp
from .rewrite import fold_node

Renamed = tuple[UOp, frozenset[UOp]]   # a node, and which of its axes get other names


def renamed(value: UOp, table: Mapping[UOp, UOp], axis: Callable[[Dim], UOp]) -> UOp:
  """``value`` with free axes replaced by index expressions; axes that a REDUCE or SCAN binds are its own and stay. ``axis`` makes
  a new one."""
  table = {a: b for a, b in table.items() if a is not b}
  if not table: return value
  memo: dict[Renamed, UOp] = {}
  opened: dict[Renamed, tuple[Any, Renamed]] = {}   # what binds axes -> its argument and operand, where those have other names
  def within(u: UOp, live: frozenset[UOp]) -> Renamed:
    """``u`` and those of its axes that are replaced."""
    out = u, live & u.ranges
    if not out[1]: memo[out] = u
    return out
  root = within(value, frozenset(table))
  stack = [root]
  while stack:   # sources first: expressions are deeper than Python's stack
    u, live = key = stack[-1]
    if key not in memo:
      binds = u.op in (Ops.REDUCE, Ops.SCAN, Ops.SORT)
      if binds and key not in opened: opened[key] = unbound(u, live, table, within, axis)
      parts = [opened[key][1]] if binds else [within(s, live) for s in u.src]
      missing = [p for p in parts if p not in memo]
      if missing:
        stack.extend(reversed(missing))
        continue
      if u in live: memo[key] = table[u]
      elif binds: memo[key] = UOp(u.op, u.dtype, (memo[parts[0]],), opened[key][0])
      else:
        new = UOp(u.op, u.dtype, tuple([memo[p] for p in parts]), u.arg)
        memo[key] = fold_node(new) or new
    stack.pop()
  return memo[root]


def unbound(u: UOp, live: frozenset[UOp], table: Mapping[UOp, UOp], within: Callable[[UOp, frozenset[UOp]], Renamed],
  axis: Callable[[Dim], UOp]) -> tuple[Any, Renamed]:
  """The argument and the operand of what binds axes, renamed where one that comes in from outside has the name of a bound one."""
  ids, operand, arg = bound_ids(u), u.src[0], u.arg
  inside = frozenset(a for a in live if a.arg[0] not in ids)
  taken = {r.arg[0] for a in inside if a in operand.ranges for r in table[a].ranges}
  if taken & set(ids):
    fresh = {r: axis(r.arg[1]) for r in operand.ranges if r.arg[0] in ids}
    operand = renamed(operand, fresh, axis)  # new axes have nobody's name: no further renaming comes of it
    arg = rebind(u, {r.arg[0]: f.arg[0] for r, f in fresh.items()})
  return arg, within(operand, inside)


def bound_ids(u: UOp) -> tuple[int, ...]:
  """The ids of the axes that a REDUCE, SCAN or SORT binds."""
  if u.op is Ops.REDUCE: return tuple(u.arg[1])
  return ()   # SCAN and SORT keep their axis: they stand as a statement's whole value


def rebind(u: UOp, ids: Mapping[int, int]) -> Any:
  """The argument of a REDUCE whose axes have other numbers."""
  return (u.arg[0], tuple([ids.get(i, i) for i in u.arg[1]]))
