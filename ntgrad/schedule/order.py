"""Putting kernels in order: after what they read, and before what overwrites it (docs/architecture.md, Scheduling, rule 5)."""
from __future__ import annotations

from ntgrad.codegen.ir import Ops, UOp

from .lower import ScheduleItem
from .nodes import viewed
from .placement import GRAPH_EFFECTS, made_by, number_of, storage


class Conflict(Exception):
  """Effects (by number) that cannot write in place: their new contents are needed while the old contents are still read."""

  def __init__(self, effects: set[UOp]):
    super().__init__()
    self.effects = set(map(number_of, effects))


def in_order(items: list[ScheduleItem]) -> list[ScheduleItem]:
  """The items in an order that may run, the given order kept where it may be. Raises Conflict."""
  writers: dict[UOp, list[int]] = {}
  readers: dict[UOp, list[int]] = {}
  for i, item in enumerate(items):
    for w in item.writes: writers.setdefault(w, []).append(i)
    for r in item.reads: readers.setdefault(r, []).append(i)
  # what an item comes after: other items (by number), and roots that several items store a part of each
  after: list[set[int | UOp]] = []
  clashing: set[UOp] = set()
  for i, item in enumerate(items):
    waits: set[int | UOp] = set()
    after.append(waits)
    for made in writers.keys() & map(made_by, item.reads): waits.add(made if len(writers[made]) > 1 else writers[made][0])
    for w in item.writes:
      if w.op not in GRAPH_EFFECTS: continue
      if _loads_elsewhere(item, w): clashing.add(w)
      base = viewed(w.src[0])
      waits.update(readers.get(base, ()), writers.get(made_by(base), ()))
    waits.discard(i)
  if clashing: raise Conflict(clashing)
  # items were found consumers first: a depth-first walk from the given order's end keeps sources early and the sinks last
  order: list[int] = []
  begun: set[int | UOp] = set()
  done: set[int | UOp] = set()
  place = lambda n: (n, 0) if isinstance(n, int) else (writers[n][-1], 1)
  for start in reversed(range(len(items))):
    stack: list[int | UOp] = [start]
    while stack:
      n = stack[-1]
      waiting = [] if n in done else [m for m in (after[n] if isinstance(n, int) else writers[n]) if m not in done]
      if not waiting:
        if n not in done and isinstance(n, int): order.append(n)
        done.add(stack.pop())
        continue
      if n in begun and not begun.isdisjoint(waiting):
        raise Conflict({w for k, item in enumerate(items) if k not in done for w in item.writes if w.op in GRAPH_EFFECTS})
      begun.add(n)
      stack.extend(sorted(waiting, key=place))
  return [items[i] for i in order]


def _loads_elsewhere(item: ScheduleItem, effect: UOp) -> bool:
  """Whether a kernel that writes a buffer in place also reads it at another index than it writes."""
  if item.ast is None: return False
  slot = item.nodes.index(storage(effect))
  # of a SCATTER rows may come again
  written = {s.src[1] for s in item.ast.body if effect.op is not Ops.SCATTER and s.src[0].arg[0] == slot}
  return any(u.op is Ops.LOAD and u.src[0].arg[0] == slot and u.src[1] not in written for u in item.ast.nodes)
