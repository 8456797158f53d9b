"""From a tensor graph to a list of kernels (docs/architecture.md, Scheduling)."""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Iterable, Mapping, Sequence

from ntgrad.codegen.ir import NtgradError, Ops, Target, UOp, VerifyError, toposort
from ntgrad.codegen.passes.one_pass import lower_one_pass
from ntgrad.graph.lock import stand_aside
from ntgrad.graph.origins import blame, of, worth_naming
from ntgrad.graph.recipes import written_out

from .kernel_groups import Group
from .layout import with_layouts
from .lower import Lowering, ScheduleItem
from .nodes import Nodes, elements_of, node_bytes, viewed
from .padded_rows import with_rows
from .partition import Partition
from .placement import GRAPH_EFFECTS, Placing, Sink, made_by, number_of, storage
from .prepare import prepare_graph
from .schedule_text import Schedule

_ANY = Target("any", cores=2, lanes=8)   # what kernels are made for where nothing is known of a device


def schedule_graph(sinks: Iterable[UOp | Sink], target: Target = _ANY, stands_for: dict[UOp, UOp] | None = None,
                   unjoined: dict[UOp, tuple[str, Nodes]] | None = None) -> tuple[Nodes, list[ScheduleItem]]:
  """The prepared sinks (one for each given: a value, or a value with the BUFFER it is to be written to) and the kernels that
  compute them on ``target``, in an order that may run. ``stands_for`` gets the given node for each node of kernels,
  ``unjoined`` the sums that might be made in one pass with what they need, why they are not, and what their kernels compute."""
  asked: list[Sink] = [s if isinstance(s, tuple) else (s, None) for s in sinks]
  values, given = [u for u, _ in asked], asked
  order = toposort(values)
  if any([u.op is Ops.OUTPUT for u in order]):
    given = list(zip(written_out(values), [memory for _, memory in asked]))
    order = toposort([u for u, _ in given])
  # writes that share no kernel, that get their values from a buffer, that write to a copy of what they would write over
  alone, late, apart = stages = set[int](), set[int](), set[int]()
  # whether one pass would save some reduction's memory
  dear = target.keeps_blocks and any([u.op is Ops.REDUCE_AXIS and node_bytes(u) >= target.least_scores for u in order])
  refused = set[UOp]()       # sums that are not made in one pass with what they need
  kept = set[UOp]()          # sums that are not exchanged: no kernel makes others in one pass with what they would become
  several = set[UOp]()       # sums over several axes that are taken over one of them first, for such a kernel
  while True:
    stand_aside()
    placing, made, exchanged = Placing(given, late, apart), dict[UOp, UOp](), dict[UOp, UOp]()
    ready = placing.owned(prepare_graph(placing.place(), target, made, exchanged if dear else None, kept, several))
    stand_aside()
    part = Partition([u for u in dict.fromkeys(ready) if u.op is not Ops.BUFFER], target, alone, refused if dear else None)
    hinder = part.chains.several
    if hindering := {viewed(old) for old, u in made.items() if u in hinder} - several if hinder else set():
      several |= hindering
      continue
    if alone_again := {old for total, old in exchanged.items() if total not in part.within and total not in part.joined}:
      kept |= alone_again
      continue
    lowering = Lowering(part)
    nodes = given_nodes(placing, made, part)
    parts = _computed(part, nodes)
    made_by_group = {g: _items(lowering, g, parts.get(g, {}), placing.order) for g in part.groups.all if g.stores}
    if left := {u for g, found in made_by_group.items() if g.joined is not None and not is_one_pass(found, target)
               for u in g.joined.sums}:
      refused |= left
      continue
    items = [item for found in made_by_group.values() for item in found]
    items += lowering.copies.values()
    for u in part.order:
      if u.op is Ops.COPY and elements_of(u):
        items.append(ScheduleItem(None, (u, storage(u.src[0])), (u,), frozenset((u.src[0],)), given=(nodes.get(u, u),)))
    items += _calls(part, nodes)
    if stands_for is not None: stands_for.update(nodes)
    if unjoined is not None:
      for u, why in part.chains.apart.items():   # of what is in the graph as it was cut at last
        unjoined[u] = why, tuple(n for g in {d[0] for d in part.uses[u]} for i in made_by_group.get(g, ()) for n in i.given)
    try: return ready, in_order(with_rows(with_layouts(items, ready), ready) if target.blocks else items)
    except Conflict as c:
      if (stage := next((s for s in stages if not c.effects <= s), None)) is None:
        raise VerifyError("the kernels of a schedule wait for each other") from None
      stage |= c.effects


def is_one_pass(items: Sequence[ScheduleItem], target: Target) -> bool:
  """Whether one of the kernels of a group is made in one pass over the axis of its sums."""
  return any(item.ast is not None and lower_one_pass(item.ast, target) is not item.ast for item in items)


def _items(lowering: Lowering, g: Group, given: Mapping[UOp, UOp], order: Sequence[UOp]) -> list[ScheduleItem]:
  stand_aside()
  try: return lowering.items(g, given)
  except NtgradError as e:
    blame(e, worth_naming(given), order)
    raise


def _calls(part: Partition, nodes: dict[UOp, UOp]) -> list[ScheduleItem]:
  """The items of kernels that somebody wrote, each of all LAUNCHs that are one call."""
  found: dict[int, list[UOp]] = {}
  for u in part.order:
    if u.op is Ops.LAUNCH: found.setdefault(u.arg[3], []).append(u)
  items = []
  for launches in found.values():
    first = launches[0]
    at = {u.arg[1]: storage(u) for u in launches} | dict(zip(first.arg[2], map(storage, first.src[1:])))
    reads = frozenset([*first.src[1:], *[viewed(u.src[0]) for u in launches]])
    given = tuple(dict.fromkeys(nodes.get(u, u) for u in launches))
    in_slots = tuple(at[i] for i in range(len(at)))
    items.append(ScheduleItem(None, in_slots, tuple(launches), reads, given=given, call=first.arg[0]))
  return items


def given_nodes(placing: Placing, made: Mapping[UOp, UOp], part: Partition) -> dict[UOp, UOp]:
  """A node of the graph that is being cut -> the node that was given in its place. What a rewrite has added stands for what reads
  it: the partial sums of a sum are that sum."""
  found: dict[UOp, UOp] = {}
  for u in placing.order:
    if (n := made.get(placing.new[u])) is not None: found.setdefault(n, u)   # before movement that came to nothing
  for u in reversed(part.order):
    if (source := found.get(u)) is not None:
      for s in u.src: found.setdefault(s, source)
  return found


def _computed(part: Partition, given: Mapping[UOp, UOp]) -> dict[Group, dict[UOp, UOp]]:
  """The given nodes that each group computes, sources first, with what stands for them."""
  out: dict[Group, dict[UOp, UOp]] = {}
  for u in part.order:
    for g, _, _ in part.uses[u] if u in given else (): out.setdefault(g, {})[given[u]] = u
  return out


def create_schedule(outputs: Any) -> Schedule:
  """The kernels that compute ``outputs`` (a Tensor or node, or several in an iterable), in order; the last one's ``.ast`` goes to
  a Linearizer. ``print`` shows them as bodies of the tile language. Runs nothing."""
  one = isinstance(outputs, UOp) or hasattr(outputs, "_alias")   # a Tensor is iterable too, by its rows
  sinks = sinks_of([outputs] if one else outputs)
  origins = of(toposort([s for s, _ in sinks]))
  return Schedule([replace(item, origins=origins) for item in schedule_graph(sinks)[1]])


def sinks_of(outputs: Iterable[Any]) -> list[Sink]:
  """What is to be computed for Tensors or nodes: their values, or the newest values of their memory, which is then written."""
  found: list[Sink] = [(o, None) if isinstance(o, UOp) else (o._alias.node, o._alias.memory.node) if o._alias.pending else
                       (o.lazydata, None) for o in outputs]
  return list(zip(written_out([u for u, _ in found]), [memory for _, memory in found]))


# ---- an order that may run: after what is read, and before what overwrites it (docs/architecture.md, Scheduling, rule 5)

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
