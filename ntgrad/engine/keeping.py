"""Which values are kept that are computed on the way to others: those that living tensors hold, and what the gradients of such
values read. A plan stores them beside what it was asked for (docs/engine.md, What is alive is kept)."""
from __future__ import annotations

import gc
from dataclasses import dataclass, field
from typing import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from weakref import WeakSet

from ntgrad.codegen.index import elements
from ntgrad.codegen.ir import FUNCTIONS, MOVEMENT, NodeTable, NtgradError, Ops, UOp
from ntgrad.graph import Alias, live_aliases, values
from ntgrad.graph.alias import alive, companions, compute_together, view_covers
from ntgrad.graph.recipes import stood_for

from .buffer import Buffer, resolved, without_reshapes

FEW_OPERATIONS = 6        # of a value, up to which it is computed again from what is in memory
LARGE_OPERATIONS = 40     # the same of a value that is large
LARGE_PART = 20           # a value is large that takes more than one part in so many of a plan's peak
SMALL_BYTES = 1 << 16     # of a value that is never large
_PASSED = frozenset({*MOVEMENT, Ops.ALU, Ops.CAST, Ops.BITCAST, Ops.DETACH, Ops.GATHER, Ops.SLOPED})   # made of their sources

# the gradients that values have at the leaves beneath them, without a call of what users wrote (set by ntgrad/tensor/gradient.py)
gradients_of: list[Callable[[Sequence[UOp]], list[UOp]]] = []


captured_calls: list[object] = []   # calls of captured functions that run: no gradient of what they give is asked for later


@dataclass(eq=False)
class Kept:
  """What is known of keeping in the graphs of one structure. ``places``: what the plan stores beside what it was asked for, as
  places in the order of the graph. ``cheap``: what tensors held at some run and is not worth it. ``asked``: what they held, was
  not stored, and was computed again. ``last``: whether this is the second plan; there are no more than two."""
  places: tuple[int, ...] = ()
  cheap: set[int] = field(default_factory=set)
  asked: set[int] = field(default_factory=set)
  last: bool = False

  @property
  def outdated(self) -> bool:
    """Whether another plan would keep what was asked for again."""
    return bool(self.asked) and not self.last


# memory of values that no tensor shows, kept for gradients; and that of which these have been asked for
saved: WeakSet[Buffer] = WeakSet()
due: WeakSet[Buffer] = WeakSet()
# values that tensors held when they were computed, and not stored; with a Kept those for which another plan may be made
lost: NodeTable[tuple[Kept | None, int]] = NodeTable()


def held_in(number: Mapping[UOp, int], asked: Collection[UOp]) -> Iterator[tuple[int, Alias]]:
  """The values that living tensors hold among the nodes of a graph (``number``: their places), but for what is ``asked`` for."""
  for a in live_aliases:
    u = a.node
    if u.op is Ops.BUFFER or a.memory is not None or a.packed is not None: continue
    for u in map(without_reshapes, _shown(a)):
      if u in number and u not in asked and u.op is not Ops.BUFFER and u.device is not None: yield number[u], a


def _shown(a: Alias) -> list[UOp]:
  """The value of an Alias; where no tensor shows all of it, the parts that they show."""
  tensors = list(a.seen())
  return [a.node] if any([view_covers(t._view) for t in tensors]) else [t.lazydata for t in tensors]


def is_dear(u: UOp, most: int = FEW_OPERATIONS) -> bool:
  """Whether a value is more than a view or a few operations on what is in memory. It is if it is made of another that was not
  worth storing: what a loop carries would get longer with every round."""
  stack, seen, cost = [u], set[UOp](), 0
  while stack:
    n = stack.pop()
    if n in seen or n.op in (Ops.BUFFER, Ops.CONST, Ops.IOTA): continue
    if n.op is Ops.OUTPUT and n.src[0].arg.passes: n = stood_for(n)
    if n.op not in _PASSED or n is not u and n in lost: return True
    seen.add(n)
    cost += FUNCTIONS[n.arg].recompute if n.op is Ops.ALU else 0
    if cost > most: return True
    stack += [resolved(s) for s in n.src[:1 if n.op is Ops.SLOPED else None]]
  return False


def computed_whole(order: Sequence[UOp], asked: Collection[UOp]) -> set[UOp]:
  """The nodes of a graph of which what is asked for needs all elements, not just a part of a large value."""
  whole = {*asked}
  for u in reversed(order):
    if u not in whole: continue
    for i, s in enumerate(map(resolved, u.src)):
      in_part = u.op is Ops.SHRINK or u.op is Ops.GATHER and i == 0
      if not in_part or elements(s.shape) * s.dtype.itemsize <= SMALL_BYTES: whole.add(s)
  return whole


def worth_keeping(order: Sequence[UOp], number: Mapping[UOp, int], asked: Collection[UOp], kept: Kept | None) -> tuple[int, ...]:
  """The places of what a new plan keeps; ``kept``: what is known of the plan in whose place it comes. Garbage that waits for
  the collector holds nothing: else what a plan is would depend on when that runs."""
  whole = computed_whole(order, asked)
  def dear() -> list[int]: return sorted({i for i, _ in held_in(number, asked) if order[i] in whole and is_dear(order[i])})
  found = dear()
  if found:
    gc.collect()
    found = dear()
  return tuple(sorted({*found, *kept.places, *kept.asked})) if kept is not None else tuple(found)


def to_be_differentiated(found: Iterable[Alias]) -> list[UOp]:
  """The nodes of what is computed, requires a gradient, and of which no gradient has been asked for yet."""
  if captured_calls: return []
  return [t.lazydata for a in found if not a.differentiated for t in a.seen() if t._state == 1 and t.lazydata.dtype.kind == "f"]


def with_companions(number: Mapping[UOp, int]) -> list[Alias]:
  """What is computed because a companion is that a graph has (``number``: its nodes)."""
  found = list[Alias]()
  for r, group in list(companions.items()):
    if (a := r()) is None or (u := without_reshapes(a.node)).op is Ops.BUFFER or u not in number: continue
    found += alive(group)
    for each in group: companions.pop(each, None)
  return found


def gradients_asked(beneath: Collection[UOp], of: Alias, made: Iterable[Alias]) -> None:
  """Gradients of a value, with these nodes beneath it, have been asked for: ``made``. They are computed together, and the value
  with them; what was kept for them is not needed after that."""
  for a in live_aliases:
    if a.node in beneath: a.differentiated = True
  if saved: due.update(u.arg for n in beneath if (u := values.get(n)) is not None and u.op is Ops.BUFFER and u.arg in saved)
  compute_together([of, *made])


def note(kept: Kept, found: Mapping[int, UOp]) -> None:
  """A plan has run while tensors held these nodes, at their places."""
  for i, u in found.items():
    if i in kept.places: continue
    if i not in kept.cheap and not is_dear(u): kept.cheap.add(i)
    lost.put(u, (None if i in kept.cheap else kept, i))


def note_again(number: Mapping[UOp, int]) -> None:
  """A graph is computed: what of it was computed before, held, and not stored?"""
  for u in lost.nodes():
    if u not in number or (found := lost.get(u)) is None or found[0] is None: continue
    found[0].asked.add(found[1])
    lost.pop(u)


def gradients(roots: Sequence[UOp]) -> list[UOp]:
  """What will be computed for the gradients of some values; nothing where that cannot be said."""
  try: return [g for find in gradients_of for g in find(roots)] if roots else []
  except NtgradError: return []
