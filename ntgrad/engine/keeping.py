"""Which values are kept that are computed on the way to others: those that living tensors hold, and what the gradients of such
values read. A plan stores them beside what it was asked for (docs/engine.md, What is alive is kept)."""
from __future__ import annotations

import gc
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from weakref import WeakSet, ref

from ntgrad.codegen.index import elements
from ntgrad.codegen.ir import FUNCTIONS, MOVEMENT, NodeTable, NtgradError, Ops, Target, UOp, config, toposort
from ntgrad.graph import Alias, live_aliases, values
from ntgrad.graph.alias import alive, companions, compute_together, view_covers
from ntgrad.graph.recipes import stood_for
from ntgrad.schedule import ScheduleItem, schedule_graph
from ntgrad.schedule.nodes import node_bytes
from ntgrad.schedule.placement import at_index, storage

from . import memory_plan as memory, report
from .buffer import Buffer, being_recorded, resolved, walk_nodes, without_reshapes
from .device import Device, get_device

if TYPE_CHECKING:
  from .plan import Plan

Sinks = list[tuple[UOp, UOp | None]]   # values, and the BUFFERs that they are written to

FEW_OPERATIONS = 6        # of a value, up to which it is computed again from what is in memory
LARGE_OPERATIONS = 40     # the same of a value that is large
LARGE_PART = 20           # a value is large that takes more than one part in so many of a plan's peak
SMALL_BYTES = 1 << 16     # of a value that is never large
_PASSED = frozenset({*MOVEMENT, Ops.ALU, Ops.CAST, Ops.BITCAST, Ops.DETACH, Ops.GATHER, Ops.SLOPED})   # made of their sources

# the gradients that values have at the leaves beneath them, without a call of what users wrote (set by ntgrad/tensor/gradient.py)
gradients_of: list[Callable[[Sequence[UOp]], list[UOp]]] = []


# calls of captured functions that run, with the serial numbers of their arguments' memory: no gradient of what they give is asked
# for later
captured_calls: list[Collection[int]] = []


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
once_held: NodeTable[bool] = NodeTable()   # what ``numbers_held`` gave at any computation


def held_in(number: Mapping[UOp, int], asked: Collection[UOp]) -> Iterator[tuple[int, Alias]]:
  """The values that living tensors hold among the nodes of a graph (``number``: their places), but for what is ``asked`` for."""
  for a in live_aliases:
    u = a.node
    if u.op is Ops.BUFFER or a.memory is not None or a.packed is not None: continue
    for u in map(without_reshapes, _shown(a)):
      if u in number and u not in asked and u.op is not Ops.BUFFER and u.device is not None: yield number[u], a


def numbers_held() -> dict[UOp, ref[Alias]]:
  """The small values that operations make of numbers alone, and tensors hold: whose they are."""
  return {u: ref(a) for a in live_aliases if a.memory is None and a.node.device is None
          and (u := without_reshapes(a.node)).op in (Ops.ALU, Ops.CAST) and node_bytes(u) <= SMALL_BYTES
          and any([n.op is Ops.ALU for n in toposort((u,))])}


def carried_numbers(number: Mapping[UOp, int]) -> list[tuple[Alias, bool]]:
  """Of these the ones in a graph that are made of what a tensor held at an earlier computation, and none holds now: a count that
  begins as a constant would get longer with every round of its loop. And whether another one held that when what is recorded
  began."""
  if not (held := numbers_held()): return []
  found, began = list[tuple[Alias, bool]](), being_recorded[-1].numbers if being_recorded else {}
  for u, r in held.items() if once_held.known else ():
    before = [n for n in toposort(u.src) if n in once_held and n not in held] if u in number else []
    if before and (a := r()) is not None: found.append((a, any([n in began and began[n]() is not a for n in before])))
  for u in held: once_held.put(u, True)
  return found


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


def cleaned(order: Sequence[UOp], stand_ins: Mapping[UOp, UOp]) -> dict[UOp, UOp]:
  """What stands for each node of a graph: values that exist as their BUFFERs, some of its numbers as those of ``stand_ins``."""
  clean = dict(stand_ins)
  for u in order:
    if u in clean:
      if u.op is Ops.UPDATE:
        base, value = [clean[resolved(s)] for s in u.src]
        clean[u] = at_index(u, base, value, clean[u])
      continue
    clean[u] = u if not u.src else u.replace(tuple(clean[resolved(s)] for s in u.src))
    if u.is_unique and u.op is Ops.CONTIGUOUS:
      clean[u] = UOp(u.op, u.dtype, clean[u].src, ("own", "given", len(clean)))  # equal ones stay two
  return clean


def memory_uses(items: Iterable[ScheduleItem]) -> list[memory.MemoryUse]:
  """What each step of a schedule touches, and writes."""
  return [memory.MemoryUse(item.nodes, tuple(item.nodes[i] for i in item.written)) for item in items]


def peak_of(items: Sequence[ScheduleItem], outputs: Iterable[UOp], inputs: Collection[UOp]) -> int:
  """The most bytes that a schedule allocates at a time, beside its ``inputs``; its ``outputs`` stay."""
  sizes: dict[Any, int] = {n: memory.rounded(node_bytes(n)) for x in items for n in x.nodes if n not in inputs}
  return memory.peak([*memory_uses(items), memory.MemoryUse(tuple(outputs), ())], sizes)


def device_of(order: Iterable[UOp]) -> str:
  """Where a graph is computed; what is copied may have no device."""
  return next((u.device for u in order if u.device is not None and u.op is not Ops.COPY), None) or Device.DEFAULT


class Keeping:
  """What a new plan keeps beside its sinks, found when one is made: ``places`` in the order, and the bytes that its peak may have
  for that. ``before``: what is known of the plan that it replaces."""

  def __init__(self, sinks: Sinks, order: list[UOp], number: Mapping[UOp, int], roots: Sequence[UOp], before: Kept | None):
    self.sinks, self.order, self.number, self.roots, self.before = sinks, order, number, roots, before

  def outdated(self, plan: Plan | None) -> bool:
    """Whether another plan is to be made in the place of one that was found."""
    if plan is None or not plan.kept.outdated: return False
    self.before = plan.kept
    return True

  @cached_property
  def places(self) -> tuple[int, ...]:
    asked = {resolved(s) for s, _ in self.sinks}
    return tuple(sorted({*worth_keeping(self.order, self.number, asked, self.before), *self.read[0]}))

  @cached_property
  def read(self) -> tuple[tuple[int, ...], int]:
    """The places of values in memory that gradients of the roots read, and the peak of a plan that computes these at once."""
    if not (found := gradients(self.roots)): return (), 0
    order = walk_nodes([*[n for s in self.sinks for n in s if n is not None], *found])
    try: return _read_by_gradients(self.sinks, found, order, self.order)
    except NtgradError: return (), 0   # what has no schedule is told of when it is asked for


def _read_by_gradients(sinks: Sinks, found: list[UOp], order: list[UOp], computed: list[UOp]) -> tuple[tuple[int, ...], int]:
  """Schedule gradients with the values that they are of: which of these (their places in ``computed``) do kernels of gradients
  read from memory, and the peak."""
  clean, given = cleaned(order, {}), dict[UOp, UOp]()
  asked: Sinks = [*[(clean[resolved(s)], t) for s, t in sinks], *[(clean[resolved(g)], None) for g in found]]
  ready, items = schedule_graph(asked, get_device(device_of(order)).renderer.target, given)
  place = {clean[u]: i for i, u in enumerate(computed) if u.op is not Ops.BUFFER and u.device is not None}   # no mere numbers
  known = {clean[u] for u in computed}
  # copies that a schedule makes by itself have no node; what they are copies of has
  padded = {_padding(clean[u]): i for i, u in enumerate(computed) if u.op is Ops.PAD}
  places, copied = set[int](), set[int]()
  for item in items:
    if all([u in known for u in item.given]): continue
    for u in item.reads:
      if (at := given.get(u)) in place and at.shape == u.shape and at.dtype is u.dtype: places.add(place[at])
      elif u.op is Ops.CONTIGUOUS and (padding := _padding(u.src[0], given.get)) in padded: copied.add(padded[padding])
  peak = peak_of(items, map(storage, ready), order)
  left = peak // LARGE_PART   # of all copies
  for i in sorted(copied, key=lambda i: node_bytes(computed[i])):
    if (left := left - node_bytes(computed[i])) >= 0: places.add(i)
  return tuple(places - {place.get(clean[resolved(s)], -1) for s, _ in sinks}), peak


def _padding(u: UOp, given: Callable[[UOp], UOp | None] = without_reshapes) -> Any:
  """What tells a PAD from others, whatever axes of one element it has: what it pads, and each axis with what is added to it."""
  if u.op is not Ops.PAD: return None
  return given(u.src[0]), *[(n, p) for n, p in zip(u.src[0].shape, u.arg) if n != 1 or p != (0, 0)]


def schedule_with_kept(asked: Sinks, keep: list[tuple[int, UOp]], keeping: Keeping | None, inputs: Sequence[UOp],
                       target: Target) -> tuple[Kept, Sequence[UOp], list[ScheduleItem]]:
  """The kernels in an order that needs little memory, of sinks and of what is kept beside them: places, and nodes. A large value
  that would raise the peak, or is cheap to compute again, is kept only if that has happened."""
  before = keeping.before if keeping else None
  keep = [(i, u) for i, u in keep if u not in {s for s, _ in asked} and u.op not in (Ops.BUFFER, Ops.CONST)]
  while True:
    apart = dict[UOp, tuple[str, tuple[UOp, ...]]]()
    ready, items = schedule_graph([*asked, *[(u, None) for _, u in keep]], target, unjoined=apart)
    items = frugal(items, {*inputs, *map(storage, ready)})
    if keeping is None or not keep: break
    n, places, outputs = len(asked), [i for i, _ in keep], list(map(storage, ready))
    least = peak_of(items, outputs[:n], inputs)
    large = [k for k, (i, u) in enumerate(keep, n) if node_bytes(u) > max(least // LARGE_PART, SMALL_BYTES)
             and not (before and i in before.asked)]
    if large and (apart or {outputs[k] for k in large} - {u for item in items for u in item.reads}):
      # in one pass they need not be in memory at all
      some, plain = schedule_graph([*asked, *[(u, None) for k, (_, u) in enumerate(keep, n) if k not in large]], target)
      least = peak_of(frugal(plain, {*inputs, *map(storage, some)}), map(storage, some[:n]), inputs)
    drop = [k for k in large if not is_dear(keeping.order[places[k - n]], LARGE_OPERATIONS)]
    for k in sorted(large, key=lambda k: -node_bytes(keep[k - n][1])):
      left = [u for j, u in enumerate(outputs) if j not in drop]
      if peak_of(items, left, inputs) <= max(least, keeping.read[1]): break
      if k not in drop: drop.append(k)
    if not drop: break
    keep = [x for k, x in enumerate(keep, n) if k not in drop]
  kept = Kept(tuple([i for i, _ in keep]), last=before is not None)
  report.made_apart(apart, toposort([u for u, _ in asked]) if apart else ())
  if keep: report.keeps([u for _, u in keep], len(items) - len(schedule_graph(asked, target)[1]) if config.debug >= 1 else 0)
  return kept, ready, items


def frugal(items: list[ScheduleItem], kept: set[UOp]) -> list[ScheduleItem]:
  """The items in an order that needs little memory; what is in ``kept`` stays allocated whatever the order."""
  if len(items) == 1: return items
  steps = memory_uses(items)
  sizes: dict[Any, int] = {n: memory.rounded(node_bytes(n)) for item in items for n in item.nodes if n not in kept}
  return [items[i] for i in memory.order(steps, sizes)]
