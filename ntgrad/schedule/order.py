"""Putting kernels in order: after what they read, and before what overwrites it (DESIGN section 6, rule 5)."""
from __future__ import annotations

from ntgrad.codegen.uop import Ops, UOp

from .lower import ScheduleItem
from .storage import storage
from .writes import EFFECTS, made_by, memory_of, number_of


class Conflict(Exception):
  """Effects (by number) that cannot write in place as they are: their new contents are needed while the old are still read."""

  def __init__(self, effects: set[UOp]):
    super().__init__()
    self.effects = {number_of(u) for u in effects}


def in_order(items: list[ScheduleItem]) -> list[ScheduleItem]:
  """The items in an order that may run, the given order kept where it may be. Raises Conflict."""
  writers: dict[UOp, list[int]] = {}
  readers: dict[UOp, list[int]] = {}
  for i, item in enumerate(items):
    for w in item.writes: writers.setdefault(w, []).append(i)
    for r in item.reads: readers.setdefault(r, []).append(i)
  after: list[set[int]] = [{j for r in item.reads for j in writers.get(made_by(r), ())} - {i} for i, item in enumerate(items)]
  clashing: set[UOp] = set()
  for i, item in enumerate(items):
    for w in item.writes:
      if w.op not in EFFECTS: continue
      if _loads_elsewhere(item, w): clashing.add(w)
      base = memory_of(w.src[0])
      after[i] |= {j for j in (*readers.get(base, ()), *writers.get(made_by(base), ())) if j != i}
  if clashing: raise Conflict(clashing)
  # items were found consumers first: a depth-first walk from the given order's end keeps sources early and the sinks last
  order: list[int] = []
  state = [0] * len(items)
  for start in reversed(range(len(items))):
    stack = [start]
    while stack:
      i = stack[-1]
      if state[i] == 2:
        stack.pop()
        continue
      waiting = [j for j in after[i] if state[j] != 2]
      if not waiting:
        state[i] = 2
        order.append(i)
        stack.pop()
        continue
      if state[i] == 1 and any(state[j] == 1 for j in waiting):
        raise Conflict({w for k, item in enumerate(items) if state[k] != 2 for w in item.writes if w.op in EFFECTS})
      state[i] = 1
      stack.extend(sorted(waiting))
  return [items[i] for i in order]


def _loads_elsewhere(item: ScheduleItem, effect: UOp) -> bool:
  """Whether a kernel that writes a buffer in place also reads it at another index than it writes."""
  if item.ast is None: return False
  slot = item.nodes.index(storage(effect))
  if effect.op is Ops.SCATTER: return any(u.op is Ops.LOAD and u.src[0].arg[0] == slot for u in item.ast.nodes)   # rows may come again
  written = {s.src[1] for s in item.ast.body if s.src[0].arg[0] == slot}
  return any(u.op is Ops.LOAD and u.src[0].arg[0] == slot and u.src[1] not in written for u in item.ast.nodes)
