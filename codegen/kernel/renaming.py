"""Values with other axes. Axes that a REDUCE binds keep their names, unless an axis that comes in from outside has the same."""
from __future__ import annotations

from typing import Any, Callable, Mapping

from ..index import Dim, sources_first
from ..ir import Ops, UOp
from .rewrite import fold_node

_Renamed = tuple[UOp, frozenset[UOp]]   # a node, and which of its axes get other names


def renamed(value: UOp, table: Mapping[UOp, UOp], axis: Callable[[Dim], UOp]) -> UOp:
  """``value`` with free axes replaced by index expressions; axes that a REDUCE binds are its own and stay (a SCAN or SORT, which
  is a statement's whole value, keeps its axis). ``axis`` makes a new one."""
  table = {a: b for a, b in table.items() if a is not b}
  if not table: return value
  args: dict[_Renamed, Any] = {}   # of REDUCEs
  def parts(key: _Renamed) -> list[_Renamed]:
    u, live = key
    if not live or u in live: return []
    if u.op is not Ops.REDUCE: return [(s, live & s.ranges) for s in u.src]
    (fn, ids), operand, outer = u.arg, u.src[0], frozenset(a for a in live if a.arg[0] not in u.arg[1])
    if {r.arg[0] for a in outer if a in operand.ranges for r in table[a].ranges} & set(ids):   # names that bound axes have too
      fresh = {r: axis(r.arg[1]) for r in operand.ranges if r.arg[0] in ids}
      operand = renamed(operand, fresh, axis)  # new axes have nobody's name: no further renaming comes of it
      now = {r.arg[0]: f.arg[0] for r, f in fresh.items()}
      ids = tuple(now.get(i, i) for i in ids)
    args[key] = fn, ids
    return [(operand, outer & operand.ranges)]
  root = value, value.ranges.intersection(table)
  new: dict[_Renamed, UOp] = {}
  for key, read in sources_first(root, parts).items():
    u, live = key
    if not live or u in live: new[key] = table[u] if live else u
    else:
      made = UOp(u.op, u.dtype, tuple(new[r] for r in read), args.get(key, u.arg))
      new[key] = fold_node(made) or made
  return new[root]
