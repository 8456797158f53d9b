"""Finds and makes plans. A plan is found by the structure of its graph, also where numbers or sizes in the graph are others:
by a quick walk (``Walk``), and where that finds none by an ordered one (``Graph``), of which a plan is made."""
from __future__ import annotations

import gc
import math
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Collection, Iterable, Iterator, Mapping, NamedTuple, Sequence

from ntgrad.backends.base import Program
from ntgrad.codegen import index as ix
from ntgrad.codegen.index import text_of
from ntgrad.codegen.ir import DeviceError, DType, NtgradError, Ops, Recent, UOp, VerifyError, config
from ntgrad.codegen.verify.graph import verify_graph
from ntgrad.graph import BoundInt, Derived, origins, values
from ntgrad.graph.recipes import kept_beneath, kept_within, sources_of_output
from ntgrad.schedule import ScheduleItem
from ntgrad.schedule.placement import storage

from . import later, plan_cache, report, size_templates
from .buffer import Buffer, constants, resolved, slice_of, walk_nodes
from .compile import compiled_under, programs, start_workers
from .counters import phase
from .device import Device, get_device
from .keeping import Keeping, Kept, Sinks, captured_calls, cleaned, device_of, schedule_with_kept
from .kernels_ahead import kernels_ahead, makes_ahead, variants_ahead
from .observers import Planned, observers
from .other_sizes import Unknown, other_sample
from .plan import Plan, SizedPlan, Step, made_of
from .shared_programs import with_shared_programs
from .size_templates import NumberNode, Skeleton, Template, made_of_variables, number_node, number_nodes, skeleton, template
from .size_variants import SizedProgram
from .traced_sizes import traces

MANY_NODES, MANY_INPUTS = 600, 9   # of a new graph that has many kernels, or is followed by such a one
MANY_SIZED = 512                 # plans that are kept for sizes in particular
MANY_WRITES = 8                  # writes at numbers in one graph, from which on they share their kernels at once
CHANGES = Ops.UPDATE, Ops.CALL
_NOTED = frozenset({Ops.DETACH, Ops.OUTPUT, *CHANGES})


class Scheduled(NamedTuple):
  """The schedule of a graph: what stands for each of its nodes, and what :func:`schedule_with_kept` gives."""
  clean: dict[UOp, UOp]
  kept: Kept
  ready: Sequence[UOp]
  items: list[ScheduleItem]


class _Form(NamedTuple):
  """A graph to be planned, as :func:`make_plan` takes it."""
  sinks: Sinks
  order: list[UOp]
  inputs: list[UOp]
  stand_ins: dict[UOp, UOp] | None = None
  keeping: Keeping | None = None
  places: tuple[int, ...] = ()   # what is kept; of a ``keeping``, that says


@dataclass
class _Ahead:
  """A template that was guessed before a second size came, and the schedule that is made of it meanwhile."""
  template: Template
  form: _Form
  schedule: Scheduled | None = None


@dataclass
class _Seen:
  """The graphs of one skeleton: the sizes and numbers of those seen (samples), and the template and plan made of them."""
  samples: list[size_templates.Sample]
  template: Template | None = None
  plan: SizedPlan | None = None
  refused: str = ""                 # why there is none
  filled: bool = False              # the plans of these graphs have programs for all sizes and numbers anyway
  # places that the plan of the first of them was to keep, and those that it keeps
  kept: tuple[tuple[int, ...], tuple[int, ...]] | None = None
  ahead: _Ahead | None = None


class Walk:
  """The graph beneath some nodes, existing values as their BUFFERs, and what tells it from others."""

  def __init__(self) -> None:
    self.nodes: list[UOp] = []          # as they are found from above
    self.number: dict[UOp, int] = {}    # their places there; of nodes whose values exist, of APPLYs (below 0) too
    self.inputs: list[UOp] = []         # the BUFFERs
    # of each node in a row its operation, dtype, argument and the places of its sources; of a BUFFER what it is
    self.structure: list[Any] = []
    # those that say more than what is computed: indices to look through, writes, calls, what recipes make
    self.noted: list[UOp] = []
    self.applied: dict[UOp, int] = {}   # APPLYs of recipes, and the bits of their sources that are needed
    self.asked: dict[UOp, list[origins.Origin]] = {}   # of what is asked for the lines, where other lines made the nodes first

  def add(self, tops: Iterable[UOp]) -> None:
    """What lies beneath more nodes."""
    nodes, number, say = self.nodes, self.number, self.structure.append
    known_value = values.known.get   # as ``resolved``, without a call
    first = n = len(nodes)
    for u in map(resolved, tops):
      if u in number: continue
      number[u] = n
      nodes.append(u)
      n += 1
    for u in islice(nodes, first, None):   # they become more on the way
      op, arg = u.op, u.arg
      src: Sequence[UOp] = u.src
      say(op)
      if op is Ops.BUFFER:
        say(arg.signature)
        self.inputs.append(u)
        continue
      say(u.dtype)
      say(float.hex(arg) if type(arg) is float else arg)
      if op in _NOTED and (op is not Ops.DETACH or arg is not None):
        self.noted.append(u)
        if op is Ops.OUTPUT: src, n = self._needed(u), len(nodes)
      for s in src:
        if (at := number.get(s)) is None:
          entry = known_value(id(s))
          found = entry.value if entry is not None and entry() is s else s
          if (at := number.get(found)) is None:
            at = number[found] = n
            nodes.append(found)
            n += 1
          number[s] = at
        say(at)

  def _needed(self, u: UOp) -> list[UOp]:
    """What an OUTPUT needs that no other of its APPLY did."""
    call, bits = u.src[0], self.applied
    if call not in bits: self._add_kept(call)
    self.structure += call.arg, self.number.setdefault(call, ~len(bits))
    found = sources_of_output(u, before := bits.get(call, 0))
    bits[call] = before | call.arg.reads[u.arg]
    return found

  def _add_kept(self, call: UOp) -> None:
    """What an APPLY stands for may be made of inner values of others that are in memory."""
    for number, other in kept_beneath.get(call) or ():
      nodes = other.arg.nodes_of(other)
      for i in kept_within.get(other) or ():
        if (u := resolved(nodes[i])).op is not Ops.BUFFER: continue
        if u not in self.number:
          self.number[u] = len(self.nodes)
          self.nodes.append(u)
        self.structure += number, i, self.number[u]


@contextmanager
def recipes_made(walk: Walk) -> Iterator[None]:
  """In the block what recipes in a graph stand for is the value of their OUTPUTs."""
  outputs, made = [u for u in walk.noted if u.op is Ops.OUTPUT], {u: u.arg.made(u) for u in walk.applied}
  for u in outputs: values.put(u, made[u.src[0]][u.arg])
  try: yield
  finally:
    for u in outputs: values.pop(u)


class Graph:
  """The graph beneath some sinks with its nodes in an order, sources first, existing values as their BUFFERs."""

  def __init__(self, sinks: Iterable[tuple[UOp, UOp | None]]) -> None:
    self.order = walk_nodes([n for s in sinks for n in s if n is not None])
    self.number = {u: i for i, u in enumerate(self.order)}
    self.inputs = [u for u in self.order if u.op is Ops.BUFFER]
    self.rows = list(map(self._row, self.order))
    self.asked: dict[UOp, list[origins.Origin]] = {}   # as that of ``Walk``

  def _row(self, u: UOp) -> tuple[Any, ...]:
    """What tells a node from others: its operation, dtype, argument and the places of its sources; of a BUFFER shape and
    device."""
    if u.op is Ops.BUFFER: return u.op, u.dtype, u.arg.shape, u.arg.device
    return u.op, u.dtype, float.hex(u.arg) if type(u.arg) is float else u.arg, *[self.number[resolved(s)] for s in u.src]


class FoundPlan(NamedTuple):
  """The plan of a walk; the places of the plan's inputs among the walk's; of the walk's nodes the places in the order of the
  graph that the plan is of, -1 for those that are not in it; where each node is that the plan keeps: -1 and its place among
  the walk's, or the number of an APPLY and its place among what that stands for; and what the plan takes behind its inputs."""
  plan: Plan
  inputs: Sequence[int]
  places: Sequence[int]
  kept: Sequence[tuple[int, int]]
  more: Sequence[Buffer | int] = ()   # numbers, and slices of memory by the places of their nodes

  def nodes_kept(self, walk: Walk) -> list[UOp]:
    """What is kept of the nodes of a walk."""
    calls, out = list(walk.applied) if self.kept else [], list[UOp]()
    for call, i in self.kept:
      if call >= 0 and i not in (before := kept_within.get(calls[call]) or ()): kept_within.put(calls[call], (*before, i))
      out.append(walk.nodes[i] if call < 0 else calls[call].arg.nodes_of(calls[call])[i])
    return out


def given_behind(more: Sequence[Buffer | int], nodes: Sequence[UOp]) -> list[Buffer]:
  """The numbers and slices that a plan takes behind its inputs."""
  found = [x if isinstance(x, Buffer) else slice_of(nodes[x]) for x in more]
  assert None not in found, "a node that was a slice of memory is one in every graph of its structure"
  return found  # type: ignore[return-value]


def numbers_and_slices(given: Sequence[UOp], sinks: Sinks, order: Sequence[UOp]) -> list[Buffer | int] | None:
  """What every graph with the same structure gives a plan behind its inputs: numbers, and slices by the places of their nodes.
  None where that may be other: slices of what is written are no parameters, and values of Variables are none of the structure."""
  if not given: return []
  if traces or any([target is not None for _, target in sinks]) or made_of_variables(order): return None
  at = {(s.storage, s.offset, s.shape, s.dtype): i for i, u in enumerate(order)
        if u.op is Ops.SHRINK and (s := slice_of(u)) is not None}
  more: list[Buffer | int] = [at.get((b.storage, b.offset, b.shape, b.dtype), -1) if b.storage not in constants else b
                              for b in [u.arg for u in given]]
  return None if -1 in more else more


# by the structure of a graph its Plan, and what that takes behind its inputs; by one without numbers the plan, None until there
# were others; by a skeleton its _Seen; by the structure of a walk its FoundPlan, where the plan was found by that of its graph
_plans: Recent[Any, Any] = Recent(8192)
_sized: dict[Any, None] = {}   # keys of plans with run-time sizes, the oldest first: each has up to megabytes of launches


def _remember(key: Any, plan: Plan, found: Any) -> None:
  """Note what was found for a structure with sizes; of plans with run-time sizes those that came last."""
  _plans[key] = found
  if not plan.is_sized: return
  _sized[key] = None
  while len(_sized) > MANY_SIZED:
    _plans.drop(oldest := next(iter(_sized)))
    del _sized[oldest]


def plan_of(sinks: Sinks, walk: Walk, started: float, roots: Sequence[UOp] = ()) -> tuple[FoundPlan, list[Buffer]]:
  """Find or make the plan of what a walk has found, and give it and the buffers that it reads. ``roots``: values that it computes
  of which gradients may be asked for, whose plan keeps what these read."""
  number, inputs = walk.number, walk.inputs
  for u in inputs:
    if u.arg.stale:
      raise DeviceError(f"{u.arg} was overwritten by {u.arg.gone or 'an assignment'}; this value was not computed before that")
  settings = compiled_under(), Device.DEFAULT, bool(roots)
  key = "walk", tuple(walk.structure), _asked(sinks, number), settings
  found: FoundPlan | None = None if traces or config.debug else _plans[key]
  if found is None or found.plan.kept.outdated:
    with recipes_made(walk):
      graph = Graph(sinks)
      graph.asked = {resolved(u): lines for u, lines in walk.asked.items()}
      plan, given, more = _plan_of_graph(sinks, graph, started, roots, settings)
      places = [graph.number.get(resolved(u), -1) for u in walk.nodes]
      found = FoundPlan(plan, [], places, _where_kept(plan, graph, walk, places))
    if (again := plan.again) is not None and (make := again.make) is not None:
      def anew() -> Plan:
        with recipes_made(walk): return make()
      again.make = anew
    place, back, own = {u: i for i, u in enumerate(inputs)}, {p: i for i, p in enumerate(places)}, graph.inputs
    if more is None or not place.keys() >= {*own} or not all([type(x) is not int or x in back for x in more]):
      return found, [u.arg for u in given]
    found = found._replace(inputs=[place[u] for u in own], more=[back[x] if type(x) is int else x for x in more])
    _remember(key, plan, found)
  if (runs := found.plan.runs).first is None: runs.first = [u.arg.storage.serial for u in inputs]
  elif runs.first:
    if not found.plan.is_sized and makes_ahead(len(found.plan.steps)): _plan_ahead(runs.first, sinks, walk, settings)
    runs.first = []
  own_buffers = [inputs[i].arg for i in found.inputs]
  return found, [*own_buffers, *given_behind(found.more, walk.nodes)] if found.more else own_buffers


def _plan_ahead(read: Collection[int], sinks: Sinks, walk: Walk, settings: tuple[Any, ...]) -> None:
  """A plan is about to run a second time: have one with run-time sizes made that another batch will need. ``read``: the serial
  numbers of the memory that the first run read."""
  with recipes_made(walk):
    graph = Graph(sinks)
    keeping = Keeping(sinks, graph.order, graph.number, (), None)
    sized = _Sized(sinks, graph, keeping, number_nodes(sinks, graph.order), made_of_variables(graph.order),
                   (_asked(sinks, graph.number), settings))
    sized.ahead(read)


def _where_kept(plan: Plan, graph: Graph, walk: Walk, places: Sequence[int]) -> list[tuple[int, int]]:
  """See ``FoundPlan.kept``."""
  if not plan.kept.places: return []
  at = {p: (-1, i) for i, p in enumerate(places)}
  for k, call in enumerate(walk.applied):
    for i, u in enumerate(call.arg.nodes_of(call)):
      if (p := graph.number.get(u, -1)) not in at: at[p] = k, i
  return [at[p] for p in plan.kept.places]


def _asked(sinks: Sinks, number: Mapping[UOp, int]) -> tuple[tuple[int, int], ...]:
  """Which nodes of a graph are asked for, and what they are written to."""
  return tuple([(number[resolved(s)], -1 if target is None else number[target]) for s, target in sinks])


def _plan_of_graph(sinks: Sinks, graph: Graph, started: float, roots: Sequence[UOp],
                   settings: tuple[Any, ...]) -> tuple[Plan, list[UOp], Sequence[Buffer | int] | None]:
  """The plan of a graph, what it takes, and what of that is not its inputs: None where not every graph with the same structure
  has the plan, and takes that."""
  full = tuple(graph.rows), _asked(sinks, graph.number), settings
  traced = bool(traces) and config.dynamic != "never" and made_of_variables(graph.order)   # numbers alone say less
  plan, more = (None if traced else _plans[full]) or (None, None)
  before = None if plan is None else plan.kept
  hit, inputs = before is not None and not before.outdated, graph.inputs
  if hit and more: inputs = [*inputs, *[b.node for b in given_behind(more, graph.order)]]
  if plan is None or not hit:
    keeping = Keeping(sinks, graph.order, graph.number, () if made_of_variables(graph.order) else roots, before)
    plan, inputs, hit = _plan_anew(sinks, graph, keeping, full, traced)
    known = _plans[full]
    more = known[1] if known is not None and known[0] is plan else None
  seconds = time.perf_counter() - started
  for o in () if hit else observers: o.planned(_planned(sinks, graph, plan, seconds))
  report.scheduled(plan.steps, hit, seconds, graph.order, inputs, graph.asked)
  return plan, inputs, more


def _planned(sinks: Sinks, graph: Graph, plan: Plan, seconds: float) -> Planned:
  """What observers are told of a plan that was made for a graph."""
  order = graph.order
  numbers = size_templates.open_numbers(order, number_nodes(sinks, order))
  s = skeleton(order, lambda u: tuple([graph.number[resolved(x)] for x in u.src]), numbers)
  last = next((s.nodes for s in reversed(plan.steps) if s.nodes), ())
  made = origins.lines_that_made([order[i] for i in last], origins.of(order, graph.asked))
  return Planned(s.key, s.sizes, s.constants, [u.shape for u in graph.inputs], plan.steps, made, seconds)


def _large(inputs: Sequence[UOp], order: Sequence[UOp]) -> bool: return len(inputs) >= MANY_INPUTS or len(order) >= MANY_NODES


def _plan_anew(sinks: Sinks, graph: Graph, keeping: Keeping, full: tuple[Any, ...],
               traced: bool) -> tuple[Plan, list[UOp], bool]:
  """The plan of a graph whose structure has none: that of graphs like it but for numbers or sizes, one from the disk, or a new
  one. Gives it, what it takes, and whether it was there."""
  order, inputs, (_, *rest) = graph.order, graph.inputs, full
  numbers, declared, device = number_nodes(sinks, order), made_of_variables(order), device_of(order)
  if _large(inputs, order) and get_device(device).fresh: start_workers(get_device(device))   # nothing will be found on disk
  general: Any = None
  plan: Plan | None = None
  sized: _Sized | None = None
  again = False
  if numbers and not declared:   # the structure without them: from the second time on they are parameters of the kernels
    general = (tuple([(numbers[i][0], row[3:] if u.op is Ops.UPDATE else None) if i in numbers else row
                      for i, (u, row) in enumerate(zip(order, graph.rows))]), *rest)
    if keeping.outdated(plan := _plans[general]): plan = None
    again = general in _plans or sum([order[i].op is Ops.UPDATE for i in numbers]) >= MANY_WRITES
  # kernels that somebody wrote may be for these sizes
  calls = [u.arg[0] for u in order if u.op is Ops.CALL]
  if plan is None and config.dynamic != "never" and all([c.sizes or c.sizeless for c in calls]):
    sized = _Sized(sinks, graph, keeping, numbers, declared, rest)
    if keeping.outdated(known := sized.known()): known = None
    plan = sized.new() if known is None else known
    if plan is not None:
      more = None if traced else numbers_and_slices(sized.given[len(inputs):], sinks, order)
      if more is not None: _remember(full, plan, (plan, more))
      return plan, sized.given, known is not None
  if again:
    on = size_templates.used_on(order)
    stand_ins = {order[i]: number_node(order[i], on(order[i]), n) for i, n in numbers.items()}
    inputs, hit = [*inputs, *stand_ins.values()], plan is not None
    if plan is None: plan = _plans[general] = make_plan(sinks, order, inputs, stand_ins, keeping)
    return plan, inputs, hit
  devices = [Device.DEFAULT, *(u.arg.device for u in inputs), *(u.arg for u in order if u.op is Ops.COPY)]
  name, make = plan_cache.plan_key((full, keeping.places), devices), partial(make_plan, sinks, order, inputs, None, keeping)
  def memory(u: UOp) -> plan_cache.SlotMemory: return u.device or device, math.prod(u.shape), u.dtype
  given, made = list(map(memory, inputs)), [memory(resolved(u) if target is None else target) for u, target in sinks]
  plan = None if name is None else plan_cache.found(name, make, list(map(memory, order)), frozenset(devices), given, made)
  if plan is None:
    plan = make()
    if name is not None: plan_cache.store_plan(name, plan)
  plan.kept.last = keeping.before is not None
  filled = all([step.sizes for step in plan.steps]) and not any([u.op is Ops.CALL for u in order])
  if sized is not None: sized.seen.filled, sized.seen.kept = filled, (keeping.places, plan.kept.places)
  if general is not None and not filled: _plans[general] = None
  _remember(full, plan, (plan, ()))
  if sized is not None and captured_calls and not traces and makes_ahead(len(plan.steps)):   # it runs once, others are recorded
    sized.ahead({u.arg.storage.serial for u in inputs} - {*captured_calls[-1]})
  return plan, inputs, False


class _Sized:
  """A graph as one of its skeleton: with the template and plan of graphs like it but for sizes and numbers."""

  def __init__(self, sinks: Sinks, graph: Graph, keeping: Keeping, numbers: dict[int, NumberNode], declared: bool,
               rest: Iterable[Any]):
    self.sinks, self.order, self.inputs, self.keeping = sinks, graph.order, graph.inputs, keeping
    order, number = graph.order, graph.number
    self.numbers = size_templates.open_numbers(order, numbers)
    self.sources = lambda u: tuple([number[resolved(x)] for x in u.src])
    self.skeleton = skeleton(order, self.sources, self.numbers)
    if traces: self.skeleton = self.skeleton._replace(sizes=tuple(map(traces[-1].known, self.skeleton.sizes)))
    key = "sizes", self.skeleton.key, *rest
    if named := self.skeleton.declared: key += tuple(n.node if type(n) is BoundInt else None for n in self.skeleton.sizes)
    self.declared = named or declared   # also where all that Variables made is 0 or 1: what is compiled gets plain numbers
    if (found := _plans[key]) is None: found = _plans[key] = _Seen([])
    self.seen: _Seen = found
    self.given = graph.inputs   # what its plan takes

  def known(self) -> Plan | None:
    """The plan, where the template that there is has this graph."""
    t = self.seen.template
    return None if t is None or (values := t.values(self.skeleton)) is None else self.plan(values)

  def new(self) -> Plan | None:
    """The plan after a new guess. None where nothing is to be guessed from, or what was guessed has no kernels."""
    seen, s = self.seen, self.skeleton
    if seen.filled and not traces and config.dynamic != "always": return None
    if not seen.refused:
      seen.samples = [*seen.samples, (s.sizes, s.constants)][-size_templates.MOST_SAMPLES:]
      if config.dynamic != "always" and not self.declared and len({sizes for sizes, _ in seen.samples}) == 1:
        return None   # the first, or it is not sizes that differ
      try: self.guess()
      except Exception as e:   # what has no form with run-time sizes is compiled for each
        if config.verify: raise
        seen.refused = str(e) or type(e).__name__
        report.note_line(f"a structure with other sizes is compiled again for each: {seen.refused}")
    if seen.refused:
      if traces: traces[-1].lost = seen.refused
      return None
    assert seen.template is not None
    plan = self.known()
    assert plan is not None, f"{size_templates.template_text(seen.template)} does not have the sizes that it was made from"
    if makes_ahead(len(plan.steps)): later.do_later(partial(variants_ahead, plan.steps))
    return plan

  def guess(self) -> None:
    """A new template, and its plan."""
    seen = self.seen
    t = template(self.order, resolved, self.numbers, seen.samples, self.skeleton.dims, self.declared)
    report.note_line(f"run-time sizes from now on: {size_templates.template_text(t)}")
    form, schedule, ahead = self.form(t), None, seen.ahead
    if ahead is not None and ahead.template.alike(t) and form.keeping is None and form.places == ahead.form.places:
      form, schedule = ahead.form, ahead.schedule
    schedule = schedule or schedule_of(form)
    if makes_ahead(len(schedule.items)):   # several at a time
      kernels_ahead(schedule.items, device_of(form.order), t.sizes, tuple([int(self.skeleton.sizes[p]) for p in t.places]), True)
    plan = make_plan(*form, schedule)
    seen.template, seen.plan, seen.ahead = replace(t, new={}), SizedPlan.of(plan, t.sizes), None   # the nodes would keep memory

  def form(self, t: Template, ahead: bool = False) -> _Form:
    """A template as a graph to be planned. Where it is to keep what the plan with numbers was to, it keeps what that does."""
    stand_ins = {(u := t.new[self.order[i]]): u if u.op is Ops.BUFFER else n for i, n in self.parameters(t)}
    asked = [(t.new[resolved(x)], None if target is None else t.new[target]) for x, target in self.sinks]
    given = [*(t.new[u] for u in self.inputs), *stand_ins.values()]
    form, kept = _Form(asked, list(t.order), given, stand_ins, self.keeping), self.seen.kept
    if kept is None or not ahead and (self.keeping.before is not None or self.keeping.places != kept[0]): return form
    return form._replace(keeping=None, places=kept[1])

  def ahead(self, read: Collection[int]) -> None:
    """Have the plan with run-time sizes made that graphs with another batch would need: other numbers for the first dimension of
    most inputs that came from the host, since the plan ran last. ``read``: the serial numbers of what it read then."""
    seen, given = self.seen, {i: u.arg for i, u in enumerate(self.order) if u.op is Ops.BUFFER and not u.arg.rng_count}
    if self.declared or seen.ahead is not None or len(seen.samples) != 1 or seen.kept is None: return
    new = {i: b.shape[0] for i, b in given.items() if b.storage.serial not in read and b.shape and b.shape[0] > 1}
    counts = Counter([n for i, n in new.items() if not given[i].known])
    if not counts: return
    (batch, _), = counts.most_common(1)
    open_ = [i for i, n in new.items() if n == batch]
    stay = [i for i, b in given.items() if b.storage.serial in read]
    try:
      other = other_sample(self.order, self.skeleton, self.sources, self.numbers, open_, stay, (batch + 1) | 1)
      t = template(self.order, resolved, self.numbers, [*seen.samples, other], self.skeleton.dims)
    except Exception as e:   # it is found out when there is a second size
      if config.verify and not isinstance(e, Unknown): raise
      return
    seen.ahead = _Ahead(replace(t, new={}), self.form(t, True))
    later.do_later(partial(_schedule_ahead, seen.ahead, tuple([other[0][p] for p in t.places])))

  def plan(self, values: tuple[int, ...]) -> Plan:
    """For numbers of the template's sizes; ``given`` is what it takes."""
    t, plan = self.seen.template, self.seen.plan
    assert plan is not None and t is not None
    given = self.parameters(t)
    self.given = [*self.inputs, *(n for _, n in given)]
    if not traces: return plan.at(values)
    for i, n in given:
      _, dtype, value = self.numbers[i]
      if type(value) is Derived: traces[-1].numbers[n.arg.storage.serial] = n.arg.device, dtype, value
    return plan.at(values, _made_of(t, self.skeleton))

  def parameters(self, t: Template) -> list[tuple[int, UOp]]:
    """The numbers that are parameters of a template's plan, by place in the order, and the BUFFERs given for them."""
    on = size_templates.used_on(self.order)
    return [(i, number_node(u := self.order[i], on(u), n))
            for (i, n), stays in zip(self.numbers.items(), t.numbers) if stays is None]


def _made_of(t: Template, s: Skeleton) -> dict[UOp, UOp]:
  """What a template's sizes are made of while a function is recorded for all values of variables. Where the graph's are made of
  others, the trace notes what must hold."""
  trace = traces[-1]
  table = {}
  for size, place in zip(t.sizes, t.places):
    now = table[size.node] = ix.node(trace.expr(s.sizes[place]))
    if size.lower is not None: trace.holds(ix.ge(now, size.lower))
  for guessed, n in zip(made_of(t.exprs, table), s.sizes):
    own = ix.node(trace.expr(n))
    if guessed is not own and own.op is Ops.CONST:
      trace.lost = trace.lost or f"a size of {n} does not say what it is made of, and may be {text_of(guessed)}"
    elif guessed is not own: trace.holds(ix.eq(guessed, own))
  for c in made_of(t.conditions, table): trace.holds(c)
  return table


@contextmanager
def _without_collector() -> Iterator[None]:
  """In the block Python looks for no cycles: many objects are made, and next to nothing is let go of."""
  if not gc.isenabled():
    yield
    return
  gc.disable()
  try: yield
  finally: gc.enable()


@_without_collector()
def schedule_of(form: _Form) -> Scheduled:
  """The schedule of a graph, some of its numbers replaced by the BUFFERs of ``stand_ins``."""
  sinks, order, inputs, stand_ins, keeping, places = form
  clean = cleaned(order, stand_ins or {})
  asked = [(clean[resolved(s)], t) for s, t in sinks]
  if config.verify: verify_graph([s for s, _ in asked])
  for u, n in clean.items(): origins.carry(u, n)
  with phase("scheduling"):
    places = keeping.places if keeping else places
    kept, ready, items = schedule_with_kept(asked, [(i, clean[order[i]]) for i in places], keeping, inputs,
                                            get_device(device_of(order)).renderer.target)
  if config.verify: verify_graph(ready)
  return Scheduled(clean, kept, ready, items)


def _schedule_ahead(ahead: _Ahead, values: tuple[int, ...]) -> None:
  """Schedule a template, and have the programs made that it needs for these values of its sizes."""
  ahead.schedule = schedule_of(ahead.form)
  kernels_ahead(ahead.schedule.items, device_of(ahead.form.order), ahead.template.sizes, values)


@_without_collector()
def make_plan(sinks: Sinks, order: list[UOp], inputs: list[UOp], stand_ins: dict[UOp, UOp] | None = None,
              keeping: Keeping | None = None, places: tuple[int, ...] = (), schedule: Scheduled | None = None) -> Plan:
  """Schedule (unless that is done) and compile a graph, some of its numbers replaced by the BUFFERs of ``stand_ins``."""
  device = device_of(order)
  if _large(inputs, order): start_workers(get_device(device))
  clean, kept, ready, items = schedule or schedule_of(_Form(sinks, order, inputs, stand_ins, keeping, places))
  takes: dict[int, tuple[ix.Dim, ...]] = {}
  if len(items) > 1 or any([item.ast is not None and item.ast.sizes for item in items]):
    with phase("scheduling"): items, takes = with_shared_programs(items)
  slots: dict[UOp, int] = {u: i for i, u in enumerate(inputs)}
  made: list[tuple[str, tuple[int, ...], DType]] = []

  def slot(u: UOp) -> int:
    if u not in slots:
      slots[u] = len(inputs) + len(made)
      made.append((u.device or device, u.shape, u.dtype))
    return slots[u]

  place: dict[UOp, int] = {}
  for i, u in enumerate(order): place.setdefault(clean[u], i)
  placed = [tuple(map(slot, item.nodes)) for item in items]
  targets = [*[t for _, t in sinks], *[None] * len(kept.places)]
  outputs = [slot(storage(r) if t is None else t) for t, r in zip(targets, ready)]
  written = {ss[i] for ss, item in zip(placed, items) for i in item.written}
  for i, (_, shape, dtype) in enumerate(made, start=len(inputs)):
    if i not in written and ix.elements(shape): raise VerifyError(f"no step of a schedule computes its {dtype} of shape {shape}")
  keep = {*outputs, *range(len(inputs))}
  last = {s: i for i, ss in enumerate(placed) for s in ss}
  where = [item.nodes[0].device or device for item in items]
  programs_of: dict[int, Program] = {i: item.call.program for i, item in enumerate(items) if item.call is not None}
  takes |= {i: item.call.step.takes for i, item in enumerate(items) if item.call is not None}
  sizes = {i: item.call.step.sizes for i, item in enumerate(items) if item.call is not None}
  def refused(numbers: list[int], n: int, e: NtgradError) -> None:
    origins.blame(e, items[numbers[n]].given, list(clean.values()))
  for name in dict.fromkeys(where):
    mine = {i: k for i, item in enumerate(items) if (k := item.ast) is not None and where[i] == name}
    found = programs([*mine.values()], get_device(name), partial(refused, [*mine]))
    programs_of.update(zip(mine, found))
    for i, program in zip(mine, found):
      numbers = tuple([n for n in takes.get(i, ()) if not isinstance(n, UOp)])
      if not isinstance(program, SizedProgram) or len(numbers) < len(takes[i]): continue
      try: (programs_of[i], sizes[i]), takes[i] = program.variant(numbers), ()
      except NtgradError as e:
        refused([i], 0, e)
        raise
  steps = tuple(
    Step(programs_of.get(i), ss, item.written, tuple(s for s in dict.fromkeys(ss) if last[s] == i and s not in keep), where[i],
         item.offsets, sizes.get(i, ()), takes=takes.get(i, ()), nodes=tuple(place[u] for u in item.given if u in place))
    for i, (ss, item) in enumerate(zip(placed, items)))
  return Plan(len(inputs), tuple(made), steps, tuple(outputs), kept)


