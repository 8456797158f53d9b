"""Realising: the graph under some tensors becomes a schedule (found again by its structure), which runs."""
from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Callable, Collection, Hashable, Iterable, Sequence
from weakref import WeakKeyDictionary, ref

import numpy as np

from ntgrad.alias import Alias, caller, live_aliases, pending, waiting, whole
from ntgrad.backends import memory as pools
from ntgrad.backends.base import Program
from ntgrad.backends.process import uninterrupted
from ntgrad.bounds import look_through
from ntgrad.codegen import index as ix
from ntgrad.codegen.config import config
from ntgrad.codegen.dtype import DType, dtypes
from ntgrad.codegen.errors import DeviceError, OutOfMemoryError
from ntgrad.codegen.recent import Recent
from ntgrad.codegen.rewrite import substitute
from ntgrad.codegen.size_text import text_of
from ntgrad.codegen.sizes import evaluator
from ntgrad.codegen.spec_graph import verify_graph
from ntgrad.codegen.uop import MOVEMENT, Ops, UOp, live_nodes, prod
from ntgrad.device import Device
from ntgrad.lock import alone
from ntgrad.schedule import ScheduleItem, schedule_graph
from ntgrad.schedule.parts import ALIGN, alignment, consecutive
from ntgrad.schedule.storage import storage
from ntgrad.schedule.writes import at_index, offset_of
from ntgrad.variable import Bound, Derived

from . import asserts, memory, plan_cache, report, templates
from .buffer import LARGE, Buffer, Storage
from .compile import programs
from .device import get_device
from .tracing import traces
from .variants import SizedProgram


@dataclass(frozen=True)
class Step:
  """One launch, or a copy between devices (``program`` None): which slots it takes, which of those (by position) it writes, and
  which slots are not needed after it. ``offsets``: where in its memory each begins, in bytes; () where all begin with it.
  ``sizes``: the numbers of the program's run-time sizes. ``of``: the program with run-time sizes that it is a variant of, and
  ``asked`` what that was asked for."""
  program: Program | None
  slots: tuple[int, ...]
  writes: tuple[int, ...]
  last_use: tuple[int, ...]
  device: str = ""
  offsets: tuple[int, ...] = ()
  sizes: tuple[int, ...] = ()
  of: SizedProgram | None = None
  asked: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plan:
  """A schedule that can run again on other buffers. Slots: inputs first, then what it makes."""
  inputs: int
  made: tuple[tuple[str, tuple[int, ...], DType], ...]   # device, shape, dtype of each made slot
  steps: tuple[Step, ...]
  outputs: tuple[int, ...]                               # the slot of each sink


@dataclass(frozen=True)
class SizedPlan:
  """A Plan in which shapes are expressions of run-time sizes, and programs are SizedPrograms."""
  plan: Plan
  numbers: Callable[[Sequence[int]], tuple[int, ...]]   # of all that is not known before: shapes, then what each program takes
  exprs: tuple[ix.Dim, ...]                             # what they are

  @staticmethod
  def of(plan: Plan, sizes: tuple[ix.Size, ...]) -> SizedPlan:
    """A plan that :func:`make_plan` made of a graph with ``sizes``."""
    nodes: list[ix.Dim] = [n for _, shape, _ in plan.made for n in shape]
    for step in plan.steps:
      if isinstance(step.program, SizedProgram): nodes += [UOp(Ops.SIZE, ix.INT, (), s) for s in step.program.sizes]
    return SizedPlan(plan, evaluator(tuple(nodes), sizes), tuple(nodes))

  def at(self, values: tuple[int, ...], table: dict[UOp, UOp] | None = None) -> Plan:
    """With numbers for the sizes; what they need is compiled. With a ``table`` of what the sizes are made of, the numbers
    remember that."""
    numbers = self.numbers(values)
    if table is not None: numbers = tuple([Bound.of(n, of) for n, of in zip(numbers, made_of(self.exprs, table))])
    todo = iter(numbers)
    made = tuple([(device, tuple([next(todo) for _ in shape]), dtype) for device, shape, dtype in self.plan.made])
    steps = []
    for step in self.plan.steps:
      if isinstance(step.program, SizedProgram):
        asked = tuple([next(todo) for _ in step.program.sizes])
        program, given = step.program.variant(tuple(map(int, asked)))
        step = replace(step, program=program, sizes=given, of=step.program, asked=asked)
      steps.append(step)
    return replace(self.plan, made=made, steps=tuple(steps))


def made_of(exprs: Sequence[ix.Dim], table: dict[UOp, UOp]) -> list[UOp]:
  """Expressions with others in place of their sizes."""
  return list(substitute(tuple(map(ix.node, exprs)), table))


@dataclass
class _Seen:
  """The graphs of one skeleton: the sizes and numbers of those met, and the template and plan made of them."""
  met: list[templates.Met]
  template: templates.Template | None = None
  plan: SizedPlan | None = None
  refused: str = ""                 # why there is none


_plans: Recent[Any, Plan] = Recent(1024)
_sized: Recent[Any, _Seen] = Recent(1024)
# structures met before, numbers left out; a plan once they were met with other numbers
_general: Recent[Any, Plan | None] = Recent(2048)
captures: list[Any] = []     # functions that are told of every step run (ntgrad.jit while it records)
checks: list[Any] = []       # functions that may refuse a step, asked for all steps of a plan before the first one runs
# while ntgrad.jit runs a function: values from before the call that are not computed, by the node that each has for itself
outside: dict[UOp, ref[Alias]] = {}


def resolved(u: UOp) -> UOp:
  """The memory that already holds a node's value, or the node."""
  found: UOp | None = u.__dict__.get("_realized")
  return u if found is None else found


def rebased(u: UOp) -> UOp:
  """A node upon the memory that holds what it is a view of, where that has been computed."""
  chain: list[UOp] = []
  while (r := resolved(u)) is u and (u.op in MOVEMENT or u.op is Ops.DETACH):
    if u.op in MOVEMENT: chain.append(u)
    u = u.src[0]
  u = r
  for m in reversed(chain): u = UOp(m.op, m.dtype, (u,), m.arg)
  return u


def is_view(u: UOp) -> bool:
  """Whether a node is memory, or movement of it: nothing is left to compute."""
  return base_of(u).op is Ops.BUFFER


def walk(sinks: Iterable[UOp], known: dict[UOp, None] | None = None) -> list[UOp]:
  """The nodes beneath ``sinks``, sources first, values that exist already as their BUFFERs. Those in ``known`` are left out, the
  rest added."""
  done: dict[UOp, None] = {} if known is None else known
  out: list[UOp] = []
  stack = [resolved(s) for s in sinks][::-1]
  while stack:
    n = stack[-1]
    if n in done:
      stack.pop()
      continue
    missing = []
    for s in n.src:
      s = s.__dict__.get("_realized", s)
      if s not in done: missing.append(s)
    if missing: stack.extend(missing[::-1])
    else:
      done[n] = None
      out.append(n)
      stack.pop()
  return out


class _Wanted:
  """What a schedule is to compute: values of Aliases, and parts of values."""

  def __init__(self) -> None:
    self.sinks: dict[tuple[UOp, UOp | None], list[Alias]] = {}   # a value and the BUFFER it is written to; who waits for it
    self.aliases: dict[Alias, None] = {}   # of those that wait

  def add(self, a: Alias) -> None:
    """The newest value of an Alias."""
    if a in self.aliases: return
    if a.pending:
      self.aliases[a] = None
      self.sinks.setdefault((a.node, a.memory.node), []).append(a)
      return
    base = base_of(a.node)
    if base.op is Ops.BUFFER and not (a.memory is None and base.arg.storage.foreign and not _mine(a, base.arg)): return settle(a)
    # numbers alone, and what others may write: not the interned node that every use shares
    if base.op is Ops.BUFFER or a.node.device is None:
      a.renew()
    self.aliases[a] = None
    self.sinks.setdefault((_to_compute(a.node), None), []).append(a)

  def all_of(self, a: Alias) -> None:
    """A value that is not computed yet, in memory of its own."""
    self.aliases[a] = None
    self.sinks.setdefault((a.node, None), []).append(a)

  def keep(self, a: Alias) -> None:
    """What an Alias shows of memory that is about to be written: a copy, or what is computed from it."""
    if not a.pending and is_view(a.node): a.renew()
    self.add(a)

  def tensor(self, t: Any) -> None:
    """A tensor's value: that of its Alias, or only the part that it shows where nothing else needs more."""
    a: Alias = t._alias
    if not whole(t._view) and not a.pending and not is_view(a.node):
      if len(a.tensors) > 1:
        part = _to_compute(t.lazydata)
        if part.device is None: self.add(a)
        elif not is_view(part): self.sinks.setdefault((part, None), [])
        return
      a.node, t._view = t.lazydata, ()
    self.add(a)


def settle(a: Alias) -> None:
  """See that an Alias whose value has been computed, for whomever, knows where it is."""
  if a.pending or not is_view(a.node): return
  node = rebased(a.node)
  if node is not a.node: a.settle(node, None)
  if node.op is Ops.BUFFER and a.memory is None: a.claim()


def _mine(a: Alias, buffer: Buffer) -> bool:
  owner = buffer.storage.writer
  return owner is not None and owner() is a


@alone
def realize(tensors: Sequence[Any]) -> None:
  """Compute everything that ``tensors`` need, in one schedule.

  Memory that is written to and still has an older value is written, if what is computed needs the newer one. Whoever needs what
  is written over is computed before.
  """
  started = time.perf_counter()
  wanted = _Wanted()
  for t in tensors: wanted.tensor(t)
  _compute(wanted, started)


@alone
def compute(aliases: Iterable[Alias]) -> None:
  """Compute the newest values of Aliases, in one schedule."""
  wanted = _Wanted()
  for a in aliases: wanted.add(a)
  _compute(wanted, time.perf_counter())


@alone
def before_writing(storages: Iterable[Storage], but: Iterable[Alias] = ()) -> None:
  """Give every Alias (``but`` those) that shows memory which is about to be written a copy, and compute what is made of it."""
  buffers = {b.node for a in live_aliases if (b := a.memory) is not None and b.storage in storages}
  buffers |= {
    u for a in live_aliases if (u := base_of(a.node)).op is Ops.BUFFER and u.arg.storage in storages and not u.arg.stale
  }
  wanted = _Wanted()
  for a in _readers(buffers, set(), set(but)): wanted.keep(a)
  _compute(wanted, time.perf_counter())


def _compute(wanted: _Wanted, started: float) -> None:
  if not (sinks := wanted.sinks): return
  checked: dict[UOp, asserts.Checks] = {}   # indices that are looked through, too
  while True:
    order = walk([n for s in sinks for n in s if n is not None])
    count = len(sinks)
    for a in look_through(order, checked): wanted.add(a)
    if pending:   # writes that what is computed comes after
      there = set(order)
      ends = {b.arg.storage for u in order if u.op is Ops.UPDATE and (b := resolved(u.src[0])).op is Ops.BUFFER}
      for a in waiting():
        if a.node in there or a.memory.storage in ends: wanted.add(a)
    if outside:
      for u in order:
        if u in outside and (found := outside[u]()) is not None and found.node is u and found not in wanted.aliases:
          wanted.all_of(found)
    written = {t for _, t in sinks if t is not None and not asserts.checks_in((t.arg.storage,))}   # nobody reads notes
    if written:
      for a in _readers(written, {s for s, _ in sinks if _known_by_node(s)}, wanted.aliases): wanted.keep(a)
    if len(sinks) == count: break
  plan, inputs = _plan_of(list(sinks), order, started)
  if any([target is not None for _, target in sinks]):   # half of it would be neither the old values nor the new ones
    for step in plan.steps:
      if step.program is not None: step.program.ready()   # what takes long, or is refused, comes before
    with uninterrupted(): _perform(plan, inputs, sinks)
  else: _perform(plan, inputs, sinks)
  for c in checked.values(): asserts.watch(c)


def _perform(plan: Plan, inputs: Sequence[Buffer], sinks: dict[tuple[UOp, UOp | None], list[Alias]]) -> None:
  """Run a plan, and note on each sink and its Aliases where the value is. Where a step fails that is so of what was computed
  before it, and the rest keeps its old value."""
  buffers = [*inputs, *[Buffer(*m) for m in plan.made]]
  left = list(plan.steps[::-1])
  error: Exception | None = None
  try: run_plan(plan, buffers, left)
  except Exception as e: error = e
  late = {step.slots[i] for step in left for i in step.writes} if left else ()
  for ((sink, target), aliases), slot in zip(sinks.items(), plan.outputs):
    if slot in late: continue
    place = aliases[0].place if aliases else ""
    buffer = buffers[slot] if target is None else target.arg.overwritten(place)
    if resolved(sink) is sink and _known_by_node(sink): buffer.is_value_of(sink)
    for a in aliases: _settle(a, sink, None if target is None else buffer)
  if error is None: return
  begun = {step.slots[i] for step in plan.steps[:len(plan.steps) - len(left)] for i in step.writes}
  for ((_, target), aliases), slot in zip(sinks.items(), plan.outputs):
    if target is None or slot not in late: continue
    if slot in begun:
      target.arg.overwritten(f"a part of a write that failed ({aliases[0].place if aliases else 'in several parts'})")
    elif any([u.op is Ops.BUFFER and u.arg.stale for a in aliases for u in walk((a.node,))]):
      # what it is computed from is gone: the old value is what there is
      for a in aliases: a.write(target, "a write that failed")
  try: raise error
  finally: error = None   # or this frame and the error would keep each other, and memory with them


def _settle(a: Alias, sink: UOp, memory: Buffer | None) -> None:
  """An Alias's value has been computed, into its ``memory`` if it had some."""
  if memory is not None:
    a.settle(memory.node, memory)
    return
  node = rebased(a.node)
  if node.op is not Ops.BUFFER:   # a reshape of what was computed: the memory is this Alias's, in its shape
    made = base_of(node).arg
    if made.storage.writer is None and node.op is Ops.RESHAPE and node.src[0].op is Ops.BUFFER:
      b = Buffer(made.device, node.shape, made.dtype, made.storage)
      b.is_value_of(sink, UOp(Ops.RESHAPE, sink.dtype, (b.node,), sink.shape))
      node = b.node
  a.settle(node, None)
  if node.op is Ops.BUFFER: a.claim()


def base_of(u: UOp) -> UOp:
  """What a view is of: memory, or what has to be computed."""
  u = resolved(u)
  while u.op in MOVEMENT or u.op is Ops.DETACH: u = resolved(u.src[0])
  return u


def _to_compute(u: UOp) -> UOp:
  """A node without reshapes on top: what is computed has its elements in the same order."""
  u = resolved(u)
  while u.op is Ops.RESHAPE or u.op is Ops.DETACH: u = resolved(u.src[0])
  return u


def _known_by_node(u: UOp) -> bool:
  """Whether whoever asks for a node finds its value once it is computed: not so for memory itself, and for numbers, which are
  everybody's."""
  return (u.is_unique or u.device is not None) and not is_view(u)


def _readers(written: set[UOp], done: set[UOp], have: Collection[Alias]) -> list[Alias]:
  """The Aliases (but those in ``have``) that still need the contents of BUFFERs about to be written; what is ``done`` will be
  there afterwards."""
  found = []
  done = done - written
  known: dict[UOp, None] = {}
  touches: dict[UOp, bool] = {}
  for a in live_aliases:
    u = a.node
    if a in have or u.op is Ops.CONST or (u.op is Ops.BUFFER and u not in written) or (u in written and a.memory is u.arg):
      continue
    for n in walk((u,), known):
      touches[n] = n in written or (n not in done and any([touches[s.__dict__.get("_realized", s)] for s in n.src]))
    if touches[resolved(u)]: found.append(a)
  return found


def _plan_of(sinks: list[tuple[UOp, UOp | None]], order: list[UOp], started: float) -> tuple[Plan, list[Buffer]]:
  """Find or make the plan of a graph; gives it and the buffers that it reads."""
  number: dict[UOp, int] = {}
  inputs: list[UOp] = []
  key: list[Any] = []
  for i, u in enumerate(order):
    number[u] = i
    if u.op is Ops.BUFFER:
      b = u.arg
      if b.stale:
        raise DeviceError(f"{b} was overwritten by {b.gone or 'an assignment'}; this value was not computed before that")
      key.append((len(inputs), b.shape, u.dtype, b.device))
      inputs.append(u)
    else: key.append((u.op, u.dtype, float.hex(u.arg) if type(u.arg) is float else u.arg,
                      tuple([number[s.__dict__.get("_realized", s)] for s in u.src])))
  full = (
    tuple(key),
    tuple([(number[resolved(s)], -1 if target is None else number[target]) for s, target in sinks]),
    config.key(),
    Device.DEFAULT,
  )
  traced = bool(traces) and config.dynamic != "never" and _declared(order)   # what is known of numbers alone says less
  plan = None if traced else _plans[full]
  hit = plan is not None
  numbers = {} if hit else _parameters(sinks, order)
  general: Any = None
  if numbers and not _declared(order):   # the structure without them: from the second time on they are parameters of the kernels
    general = (
      tuple([(numbers[i][0], k[-1] if k[0] is Ops.UPDATE else None) if i in numbers else k for i, k in enumerate(key)]),
      *full[1:],
    )
    plan = _general.get(general)
    hit = plan is not None
  sized = None if plan is not None or config.dynamic == "never" else _Sized(sinks, order, inputs, number, numbers, full[1:])
  if sized is not None and (found := sized.known()) is not None: plan, hit, inputs = found, True, sized.given
  elif general is not None and (hit or general in _general or sum([order[i].op is Ops.UPDATE for i in numbers]) >= MANY_WRITES):
    device = device_of(order)
    stand_ins = {
      order[i]: value.node if isinstance(value, Buffer)
      else number_buffer(device, dtype, value, (1,) if order[i].op is Ops.UPDATE else ()).node
      for i, (_, dtype, value) in numbers.items()
    }
    inputs = [*inputs, *stand_ins.values()]
    if plan is None: plan = _general[general] = make_plan(sinks, order, inputs, stand_ins)
  elif plan is None:
    if general is not None: _general[general] = None
    if sized is not None and (made := sized.new()) is not None: plan, inputs = made, sized.given
  if sized is not None and plan is not None and inputs is sized.given and len(inputs) == sized.buffers and not traced:
    _plans[full] = plan
  if plan is None:
    name = plan_cache.key_of(full, [Device.DEFAULT, *(u.arg.device for u in inputs), *(u.arg for u in order if u.op is Ops.COPY)])
    plan = plan_cache.load(name) if name is not None else None
    if plan is None:
      plan = make_plan(sinks, order, inputs)
      if name is not None: plan_cache.store(name, plan)
    _plans[full] = plan
  report.scheduled(plan.steps, hit, time.perf_counter() - started)
  return plan, [u.arg for u in inputs]


def device_of(order: Iterable[UOp]) -> str:
  """Where a graph is computed."""
  return next((u.device for u in order if u.device is not None), None) or Device.DEFAULT


class _Sized:
  """A graph as one of its skeleton: with the template and plan of graphs like it but for sizes and numbers."""

  def __init__(self, sinks: list[tuple[UOp, UOp | None]], order: list[UOp], inputs: list[UOp], number: dict[UOp, int],
               numbers: dict[int, templates.Number], rest: tuple[Any, ...]):
    self.sinks, self.order, self.inputs, self.buffers = sinks, order, inputs, len(inputs)
    # a write at a number is one at a size; whole numbers may come of sizes
    self.numbers = {i: n for i, n in numbers.items() if order[i].op is not Ops.UPDATE}
    for i, u in enumerate(order):
      if u.op is Ops.CONST and u.dtype.kind in "iu" and abs(u.arg) > 1: self.numbers[i] = (("number", u.dtype), u.dtype, u.arg)
    self.skeleton = templates.skeleton(order, lambda u: tuple([number[resolved(x)] for x in u.src]), self.numbers)
    if traces: self.skeleton = self.skeleton._replace(sizes=tuple(map(traces[-1].known, self.skeleton.sizes)))
    key = (self.skeleton.key, *rest)
    if self.skeleton.declared: key += tuple([n.node if type(n) is Bound else None for n in self.skeleton.sizes])
    found = _sized.get(key)
    if found is None: found = _sized[key] = _Seen([])
    self.seen: _Seen = found
    self.given = inputs   # what its plan takes

  def known(self) -> Plan | None:
    """The plan, where the template that there is has this graph."""
    t = self.seen.template
    values = None if t is None else t.values(self.skeleton)
    return None if values is None else self.plan(values)

  def new(self) -> Plan | None:
    """The plan after a new guess. None where nothing is to be guessed from, or what was guessed has no kernels."""
    seen, s = self.seen, self.skeleton
    if seen.refused and traces: traces[-1].lost = seen.refused
    if seen.refused: return None
    seen.met = [*seen.met, (s.sizes, s.kept)][-templates.MOST_MET:]
    always = config.dynamic == "always" or s.declared
    if not always and len({sizes for sizes, _ in seen.met}) == 1: return None   # the first, or it is not sizes that differ
    try: self.guess()
    except Exception as e:   # what has no form with run-time sizes is compiled for each
      if config.verify: raise
      seen.refused = str(e) or type(e).__name__
      if traces: traces[-1].lost = seen.refused
      report.note(f"a structure with other sizes is compiled again for each: {seen.refused}")
      return None
    assert seen.template is not None
    values = seen.template.values(s)
    assert values is not None, f"{templates.about(seen.template)} does not have the sizes that it was made from"
    return self.plan(values)

  def guess(self) -> None:
    """A new template, and its plan."""
    t = templates.template(self.order, resolved, self.numbers, self.seen.met, self.skeleton.dims, self.skeleton.declared)
    report.note(f"run-time sizes from now on: {templates.about(t)}")
    buffers = {i: n for i, n in self.parameters(t)}
    stand_ins = {(u := t.new[self.order[i]]): u if u.op is Ops.BUFFER else n for i, n in buffers.items()}
    asked = [(t.new[resolved(x)], None if target is None else t.new[target]) for x, target in self.sinks]
    plan = make_plan(asked, list(t.order), [*(t.new[u] for u in self.inputs), *stand_ins.values()], stand_ins)
    self.seen.template, self.seen.plan = replace(t, new={}), SizedPlan.of(plan, t.sizes)   # the nodes would keep memory

  def plan(self, values: tuple[int, ...]) -> Plan:
    """For numbers of the template's sizes; ``given`` is what it takes."""
    assert self.seen.plan is not None and self.seen.template is not None
    self.given = [*self.inputs, *(n for _, n in self.parameters(self.seen.template))]
    if traces:
      for i, n in self.parameters(self.seen.template):
        _, dtype, value = self.numbers[i]
        if type(value) is Derived: traces[-1].numbers[n.arg.storage.serial] = n.arg.device, dtype, value
    return self.seen.plan.at(values, _made_of(self.seen.template, self.skeleton) if traces else None)

  def parameters(self, t: templates.Template) -> list[tuple[int, UOp]]:
    """The numbers that are parameters of a template's plan, by their place in the order, and the BUFFERs that are given for
    them."""
    device = device_of(self.order)
    return [
      (i, value.node if isinstance(value, Buffer) else number_buffer(device, dtype, value).node)
      for (i, (_, dtype, value)), stays in zip(sorted(self.numbers.items(), key=lambda n: n[0]), t.numbers) if stays is None
    ]


def _made_of(t: templates.Template, s: templates.Skeleton) -> dict[UOp, UOp]:
  """What a template's sizes are made of while a function is recorded for all values of variables. Where its guess is another one
  than what the graph's sizes are made of, the trace notes what must hold."""
  trace = traces[-1]
  table = {}
  for size, place in zip(t.sizes, t.places):
    now = table[UOp(Ops.SIZE, ix.INT, (), size)] = ix.node(trace.expr(s.sizes[place]))
    if size.lower is not None: trace.holds(ix.ge(now, size.lower))
  for guessed, n in zip(made_of(t.exprs, table), s.sizes):
    own = ix.node(trace.expr(n))
    if guessed is own: continue
    if own.op is Ops.CONST:
      trace.lost = trace.lost or f"a size of {n} does not say what it is made of, and may be {text_of(guessed)}"
    else: trace.holds(ix.eq(guessed, own))
  for c in made_of(t.conditions, table): trace.holds(c)
  return table


def _declared(order: Sequence[UOp]) -> bool:
  """Whether sizes, places or numbers in a graph are made of Variables."""
  for u in order:
    if any([type(n) is Bound for n in u.shape]): return True
    if u.op is Ops.SHRINK and any([type(b) is Bound or type(e) is Bound for b, e in u.arg]): return True
    if u.op is Ops.UPDATE and any([type(b) is Bound for op, arg in u.arg if op is Ops.SHRINK for b, _ in arg]): return True
    if u.op is Ops.CONST and type(u.arg) is Derived: return True
  return False


_COMMON = (0.0, 0.5, 1.0, 2.0)


MANY_WRITES = 8   # so many writes at numbers in one graph share their kernels at once


def _parameters(sinks: list[tuple[UOp, UOp | None]], order: list[UOp]) -> dict[int, tuple[Hashable, DType, Any]]:
  """What ``_parameter`` finds in a graph, by the number of the node in ``order``."""
  targets = {target.arg.storage for _, target in sinks if target is not None}
  return {i: p for i, u in enumerate(order) if (p := _parameter(u, targets)) is not None}


def _parameter(u: UOp, written: Collection[Storage]) -> tuple[Hashable, DType, Any] | None:
  """What another call may well have otherwise in a node (a learning rate, not the 0 of a relu; the place of a write or a slice):
  the node without it, its dtype, and the number; of a slice of memory that is not among what is ``written``, its Buffer."""
  if u.op is Ops.CONST and u.dtype.kind == "f" and (type(u.arg) is Derived or math.isfinite(u.arg) and abs(u.arg) not in _COMMON):
    return ("number", u.dtype), u.dtype, u.arg
  if u.op is Ops.SHRINK:
    part = slice_of(u)
    return None if part is None or part.storage in written else (("slice", u.dtype, u.shape, part.align), u.dtype, part)
  if u.op is not Ops.UPDATE: return None
  found = offset_of(u)
  return None if found is None else (("place", u.dtype, found[0]), dtypes.int32, found[1])


def slice_of(u: UOp) -> Buffer | None:
  """A slice of memory whose elements are consecutive as a Buffer of its own, for kernels to read; None for any other node."""
  chain: list[UOp] = []
  while (n := resolved(u)).op in (Ops.SHRINK, Ops.RESHAPE):
    chain.append(n)
    u = n.src[0]
  if n.op is not Ops.BUFFER or not n.arg.size: return None
  first = 0
  for m in reversed(chain):
    if m.op is Ops.RESHAPE: continue
    begin = consecutive(m.src[0].shape, m.arg)
    if begin is None: return None
    first += ix.count(begin)   # of memory that there is
  out = Buffer(n.arg.device, chain[0].shape, n.dtype, n.arg.storage)
  out.version = n.arg.version   # stale where the memory is
  out.offset = n.arg.offset + first * n.dtype.itemsize
  if type(out.offset) is not Bound: out.align = alignment(out.offset, n.dtype.itemsize)
  else: out.align = ALIGN if ix.mod(out.offset.node, ALIGN) is ix.ZERO else n.dtype.itemsize   # wherever it is
  return out if out.size else None


class _Nobody:
  """The owner of memory that no tensor may write."""


_nobody = _Nobody()
# memory of numbers, which no tensor has and nobody writes, and the numbers in words
constants: WeakKeyDictionary[Storage, str] = WeakKeyDictionary()


@lru_cache(maxsize=4096)
def number_buffer(device: str, dtype: DType, value: float, shape: tuple[int, ...] = ()) -> Buffer:
  """A number as a buffer of shape (), or (1,)."""
  made = Buffer.from_numpy(device, np.full(shape, value, dtype.np))
  constants[made.storage] = f"{dtype.name} {value!r}"
  made.storage.writer = ref(_nobody)
  return made


pools.relievers[:0] = [number_buffer.cache_clear, live_nodes]   # the latter lets go of what an interrupt kept from going


def make_plan(
  sinks: list[tuple[UOp, UOp | None]], order: list[UOp], inputs: list[UOp], stand_ins: dict[UOp, UOp] | None = None
) -> Plan:
  """Schedule and compile a graph, some of its numbers replaced by the BUFFERs of ``stand_ins``."""
  clean: dict[UOp, UOp] = dict(stand_ins or {})  # values that exist stand as their BUFFERs
  for u in order:
    if u.op is Ops.UPDATE and u in clean:
      base, value = (clean[resolved(s)] for s in u.src)
      clean[u] = at_index(u, base, value, clean[u])
      continue
    if u in clean:
      continue
    clean[u] = u if not u.src else u.replace(tuple(clean[resolved(s)] for s in u.src))
    if u.is_unique and u.op is Ops.CONTIGUOUS:
      clean[u] = UOp(u.op, u.dtype, clean[u].src, ("own", "given", len(clean)))  # equal ones stay two
  device = next((u.device for u in order if u.device is not None), None) or Device.DEFAULT
  target = get_device(device).renderer.target
  asked = [(clean[resolved(s)], t) for s, t in sinks]
  if config.verify:
    verify_graph([s for s, _ in asked])
  ready, items = schedule_graph(asked, target)
  if config.verify:
    verify_graph(ready)
  items = frugal(items, {*inputs, *(storage(r) for r in ready)})
  slots: dict[UOp, int] = {u: i for i, u in enumerate(inputs)}
  made: list[tuple[str, tuple[int, ...], DType]] = []

  def slot(u: UOp) -> int:
    if u not in slots:
      slots[u] = len(inputs) + len(made)
      made.append((u.device or device, u.shape, u.dtype))
    return slots[u]

  placed = [tuple(slot(n) for n in item.nodes) for item in items]
  outputs = []
  for (_, t), r in zip(sinks, ready):
    outputs.append(slot(storage(r) if t is None else t))
  keep = set(outputs)
  last: dict[int, int] = {}
  for i, ss in enumerate(placed):
    last.update(dict.fromkeys(ss, i))
  by_device: dict[str, list[int]] = {}
  where = [(item.nodes[0].device or device) for item in items]
  for i, item in enumerate(items):
    if item.ast is not None:
      by_device.setdefault(where[i], []).append(i)
  ready_programs: dict[int, Program] = {}
  for name, numbers in by_device.items():
    found = programs([items[i].ast for i in numbers], get_device(name))  # type: ignore[misc]
    ready_programs.update(zip(numbers, found))
  steps = tuple(
    Step(
      ready_programs.get(i),
      ss,
      written(items[i]),
      tuple(s for s in dict.fromkeys(ss) if last[s] == i and s >= len(inputs) and s not in keep),
      where[i],
      items[i].offsets,
    )
    for i, ss in enumerate(placed)
  )
  return Plan(len(inputs), tuple(made), steps, tuple(outputs))


def frugal(items: list[ScheduleItem], kept: set[UOp]) -> list[ScheduleItem]:
  """The items in an order that needs little memory; what is in ``kept`` stays allocated whatever the order."""
  steps = [memory.Access(item.nodes, tuple([item.nodes[i] for i in written(item)])) for item in items]
  sizes: dict[Any, int] = {
    n: memory.rounded(ix.elements(n.shape) * n.dtype.itemsize) for item in items for n in item.nodes if n not in kept
  }
  return [items[i] for i in memory.order(steps, sizes)]


def written(item: ScheduleItem) -> tuple[int, ...]:
  """The positions of the buffers that an item writes."""
  return (0,) if item.ast is None else tuple([p.slot for p in item.ast.params if p.written])


def run_plan(plan: Plan, buffers: Sequence[Buffer], left: list[Step]) -> None:
  """Run the steps on a buffer a slot; inner ones are released as soon as nothing needs them. ``left`` are the steps that have not
  run yet, the next one last."""
  wait = config.debug >= 2
  place = ""
  for b in buffers[plan.inputs:]:
    if b.storage.nbytes >= LARGE: b.storage.place = place = place or caller()
  for check in checks:
    for step in plan.steps: check(step, [buffers[s] for s in step.slots])
  try:
    for step in plan.steps:
      run_step(step, [buffers[s] for s in step.slots], wait)
      for s in step.last_use: buffers[s].storage.release()
      del left[-1]
  except OutOfMemoryError as e:
    kept = sum({b.storage: b.storage.nbytes for b in buffers[: plan.inputs]}.values())
    raise OutOfMemoryError(
      f"{e}\nthe schedule that ran (of {len(plan.steps)} kernels) takes {peak(plan):,} bytes at most, beside the {kept:,} "
      "that it reads; smaller batches, or fewer tensors that are kept, take less"
    ) from None


def peak(plan: Plan) -> int:
  """The bytes that a plan makes and holds at most."""
  living = most = 0
  seen: set[int] = set()
  def nbytes(slot: int) -> int:
    _, shape, dtype = plan.made[slot - plan.inputs]
    return prod(shape) * dtype.itemsize
  for step in plan.steps:
    for s in step.slots:
      if s >= plan.inputs and s not in seen:
        seen.add(s)
        living += nbytes(s)
    most = max(most, living)
    for s in step.last_use: living -= nbytes(s)
  return most


def run_step(step: Step, buffers: Sequence[Buffer], wait: bool = False) -> None:
  """Launch one step."""
  for note in captures: note(step, buffers)
  if step.program is None:
    to, source = buffers
    to.take(source)
    return
  if step.offsets:   # some are parts of their memory
    at = get_device(step.device).at
    raws = [at(b.raw, n) if (n := b.offset + offset) else b.raw for b, offset in zip(buffers, step.offsets)]
  else: raws = [b.raw for b in buffers]
  seconds = step.program(raws, wait, step.sizes) if step.sizes else step.program(raws, wait)
  if seconds is not None: report.ran(step.program.spec, max(seconds, 1e-9), step.sizes)  # type: ignore[attr-defined]


__all__ = ["realize", "Plan", "Step", "prod"]
