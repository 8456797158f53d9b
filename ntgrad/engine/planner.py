"""Finds and makes plans. A plan is found by the structure of its graph, also where numbers or sizes in the graph are others."""
from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Collection, Hashable, Iterable, Sequence
from weakref import WeakKeyDictionary, ref

import numpy as np

from ntgrad.backends import memory_pool as pools
from ntgrad.backends.base import Program
from ntgrad.codegen import index as ix
from ntgrad.codegen.index.size_text import text_of
from ntgrad.codegen.ir.config import config
from ntgrad.codegen.ir.dtype import DType, dtypes
from ntgrad.codegen.ir.errors import DeviceError, NtgradError, VerifyError
from ntgrad.codegen.ir.recent import Recent
from ntgrad.codegen.ir.uop import Ops, UOp, live_nodes
from ntgrad.codegen.verify.graph import verify_graph
from ntgrad.graph import origins
from ntgrad.graph.variable import BoundInt, Derived
from ntgrad.schedule import ScheduleItem, schedule_graph
from ntgrad.schedule.buffer_pieces import PART_ALIGN_BYTES, alignment, consecutive
from ntgrad.schedule.placement import at_index, offset_of, storage

from . import memory_plan as memory, overrides, plan_cache, report, size_templates
from .buffer import Buffer, Storage, resolved
from .compile import programs
from .counters import phase
from .device import Device, get_device
from .plan import Plan, SizedPlan, Step, made_of
from .size_variants import with_common_names
from .traced_sizes import traces

_COMMON = (0.0, 0.5, 1.0, 2.0)   # floats that stay part of a kernel
MANY_WRITES = 8                  # writes at numbers in one graph, from which on they share their kernels at once


@dataclass
class _Seen:
  """The graphs of one skeleton: the sizes and numbers of those seen (samples), and the template and plan made of them."""
  samples: list[size_templates.Sample]
  template: size_templates.Template | None = None
  plan: SizedPlan | None = None
  refused: str = ""                 # why there is none


_plans: Recent[Any, Plan] = Recent(1024)
_sized: Recent[Any, _Seen] = Recent(1024)
# structures seen before, numbers left out; a plan once they were seen with other numbers
_general: Recent[Any, Plan | None] = Recent(2048)


def plan_of(sinks: list[tuple[UOp, UOp | None]], order: list[UOp], started: float) -> tuple[Plan, list[Buffer]]:
  """Find or make the plan of a graph; gives it and the buffers that it reads."""
  number: dict[UOp, int] = {}
  inputs: list[UOp] = []
  key: list[Any] = []
  called = False   # kernels that somebody wrote are for these sizes
  for i, u in enumerate(order):
    number[u] = i
    if u.op is Ops.CALL: called = True
    if u.op is Ops.BUFFER:
      b = u.arg
      if b.stale:
        raise DeviceError(f"{b} was overwritten by {b.gone or 'an assignment'}; this value was not computed before that")
      key.append((len(inputs), b.shape, u.dtype, b.device))
      inputs.append(u)
    else: key.append((u.op, u.dtype, float.hex(u.arg) if type(u.arg) is float else u.arg,
                      tuple([number[s] if s in number else number[resolved(s)] for s in u.src])))
  full = (
    tuple(key),
    tuple([(number[resolved(s)], -1 if target is None else number[target]) for s, target in sinks]),
    config.key() if not overrides.given_overrides and not config.override else (*config.key(), overrides.state()),
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
  static = called or config.dynamic == "never"
  sized = None if plan is not None or static else _Sized(sinks, order, inputs, number, numbers, full[1:])
  if sized is not None and (found := sized.known()) is not None: plan, hit, inputs = found, True, sized.given
  elif sized is not None and not hit and (made := sized.new()) is not None: plan, inputs = made, sized.given
  elif general is not None and (hit or general in _general or sum([order[i].op is Ops.UPDATE for i in numbers]) >= MANY_WRITES):
    device = _device_of(order)
    stand_ins = {
      order[i]: value.node if isinstance(value, Buffer)
      else number_buffer(device, dtype, value, (1,) if order[i].op is Ops.UPDATE else ()).node
      for i, (_, dtype, value) in numbers.items()
    }
    inputs = [*inputs, *stand_ins.values()]
    if plan is None: plan = _general[general] = make_plan(sinks, order, inputs, stand_ins)
  elif plan is None and general is not None: _general[general] = None
  if sized is not None and plan is not None and inputs is sized.given and len(inputs) == sized.buffers and not traced:
    _plans[full] = plan
  if plan is None:
    devices = [Device.DEFAULT, *(u.arg.device for u in inputs), *(u.arg for u in order if u.op is Ops.COPY)]
    name = plan_cache.plan_key(full, devices)
    make = partial(make_plan, sinks, order, inputs)
    plan = plan_cache.found(name, _about(sinks, order, inputs, devices), make) if name is not None else None
    if plan is None:
      plan = make()
      if name is not None: plan_cache.store_plan(name, plan)
    _plans[full] = plan
  report.scheduled(plan.steps, hit, time.perf_counter() - started, order, inputs)
  return plan, [u.arg for u in inputs]


def _about(sinks: Iterable[tuple[UOp, UOp | None]], order: Sequence[UOp], inputs: Iterable[UOp],
          devices: Iterable[str]) -> plan_cache.Graph:
  """What a kept plan of a graph must be like."""
  def memory(u: UOp) -> tuple[str, int, DType]: return u.device or _device_of(order), math.prod(u.shape), u.dtype
  return plan_cache.Graph(len(order), frozenset(devices), [memory(u) for u in inputs],
                          [memory(resolved(u) if target is None else target) for u, target in sinks])


def _device_of(order: Iterable[UOp]) -> str:
  """Where a graph is computed."""
  return next((u.device for u in order if u.device is not None), None) or Device.DEFAULT


class _Sized:
  """A graph as one of its skeleton: with the template and plan of graphs like it but for sizes and numbers."""

  def __init__(self, sinks: list[tuple[UOp, UOp | None]], order: list[UOp], inputs: list[UOp], number: dict[UOp, int],
               numbers: dict[int, size_templates.NumberNode], rest: tuple[Any, ...]):
    self.sinks, self.order, self.inputs, self.buffers = sinks, order, inputs, len(inputs)
    # a write at a number is one at a size; whole numbers may come of sizes
    self.numbers = {i: n for i, n in numbers.items() if order[i].op is not Ops.UPDATE}
    for i, u in enumerate(order):
      if u.op is Ops.CONST and u.dtype.kind in "iu" and abs(u.arg) > 1: self.numbers[i] = (("number", u.dtype), u.dtype, u.arg)
    self.skeleton = size_templates.skeleton(order, lambda u: tuple([number[resolved(x)] for x in u.src]), self.numbers)
    if traces: self.skeleton = self.skeleton._replace(sizes=tuple(map(traces[-1].known, self.skeleton.sizes)))
    # also where all that Variables made is 0 or 1: what is compiled gets plain numbers
    self.declared = self.skeleton.declared or _declared(order)
    key = (self.skeleton.key, *rest)
    if self.skeleton.declared: key += tuple([n.node if type(n) is BoundInt else None for n in self.skeleton.sizes])
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
    seen.samples = [*seen.samples, (s.sizes, s.constants)][-size_templates.MOST_SAMPLES:]
    always = config.dynamic == "always" or self.declared
    if not always and len({sizes for sizes, _ in seen.samples}) == 1: return None   # the first, or it is not sizes that differ
    try: self.guess()
    except Exception as e:   # what has no form with run-time sizes is compiled for each
      if config.verify: raise
      seen.refused = str(e) or type(e).__name__
      if traces: traces[-1].lost = seen.refused
      report.note_line(f"a structure with other sizes is compiled again for each: {seen.refused}")
      return None
    assert seen.template is not None
    values = seen.template.values(s)
    assert values is not None, f"{size_templates.template_text(seen.template)} does not have the sizes that it was made from"
    return self.plan(values)

  def guess(self) -> None:
    """A new template, and its plan."""
    t = size_templates.template(self.order, resolved, self.numbers, self.seen.samples, self.skeleton.dims, self.declared)
    report.note_line(f"run-time sizes from now on: {size_templates.template_text(t)}")
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

  def parameters(self, t: size_templates.Template) -> list[tuple[int, UOp]]:
    """The numbers that are parameters of a template's plan, by their place in the order, and the BUFFERs that are given for
    them."""
    device = _device_of(self.order)
    return [
      (i, value.node if isinstance(value, Buffer) else number_buffer(device, dtype, value).node)
      for (i, (_, dtype, value)), stays in zip(sorted(self.numbers.items(), key=lambda n: n[0]), t.numbers) if stays is None
    ]


def _made_of(t: size_templates.Template, s: size_templates.Skeleton) -> dict[UOp, UOp]:
  """What a template's sizes are made of while a function is recorded for all values of variables. Where its guess is another one
  than what the graph's sizes are made of, the trace notes what must hold."""
  trace = traces[-1]
  table = {}
  for size, place in zip(t.sizes, t.places):
    now = table[size.node] = ix.node(trace.expr(s.sizes[place]))
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
    if any([type(n) is BoundInt for n in u.shape]): return True
    if u.op is Ops.SHRINK and any([type(b) is BoundInt or type(e) is BoundInt for b, e in u.arg]): return True
    if u.op is Ops.UPDATE and any([type(b) is BoundInt for op, arg in u.arg if op is Ops.SHRINK for b, _ in arg]): return True
    if u.op is Ops.CONST and type(u.arg) is Derived: return True
  return False


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
  if type(out.offset) is not BoundInt: out.align = alignment(out.offset, n.dtype.itemsize)
  else:   # wherever it is
    out.align = PART_ALIGN_BYTES if ix.mod(out.offset.node, PART_ALIGN_BYTES) is ix.ZERO else n.dtype.itemsize
  return out if out.size else None


class _Nobody:
  """The owner of memory that no tensor may write."""


_nobody = _Nobody()
# memory of numbers, which no tensor has and nobody writes, and the numbers in words
constants: WeakKeyDictionary[Storage, str] = WeakKeyDictionary()


def number_buffer(device: str, dtype: DType, value: float, shape: tuple[int, ...] = ()) -> Buffer:
  """A number as a buffer of shape (), or (1,). 0.0 and -0.0 are two."""
  return _number_buffer(device, dtype, value, math.copysign(1, value) if value == 0 else 0, shape)


@lru_cache(maxsize=4096)
def _number_buffer(device: str, dtype: DType, value: float, sign: float, shape: tuple[int, ...]) -> Buffer:
  made = Buffer.from_numpy(device, np.full(shape, value, dtype.np))
  constants[made.storage] = f"{dtype.name} {value!r}"
  made.storage.writer = ref(_nobody)
  return made


pools.relievers[:0] = [_number_buffer.cache_clear, live_nodes]   # the latter lets go of what an interrupt kept from going


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
  for u, n in clean.items(): origins.carry(u, n)
  with phase("scheduling"): ready, items = schedule_graph(asked, target)
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

  place: dict[UOp, int] = {}
  for i, u in enumerate(order): place.setdefault(clean[u], i)
  placed = [tuple(slot(n) for n in item.nodes) for item in items]
  outputs = []
  for (_, t), r in zip(sinks, ready):
    outputs.append(slot(storage(r) if t is None else t))
  written = {ss[i] for ss, item in zip(placed, items) for i in item.written}
  for i, (_, shape, dtype) in enumerate(made, start=len(inputs)):
    if i not in written and ix.elements(shape): raise VerifyError(f"no step of a schedule computes its {dtype} of shape {shape}")
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
  takes: dict[int, tuple[ix.Size, ...]] = {}
  for name, numbers in by_device.items():
    named = [with_common_names(k) if k.sizes else (k, ()) for i in numbers if (k := items[i].ast) is not None]
    def refused(i: int, e: NtgradError, numbers: list[int] = numbers) -> None:
      origins.blame(e, items[numbers[i]].given, list(clean.values()))
    found = programs([kernel for kernel, _ in named], get_device(name), refused)
    ready_programs.update(zip(numbers, found))
    takes.update(zip(numbers, [sizes for _, sizes in named]))
  steps = tuple(
    Step(
      ready_programs.get(i) if (call := items[i].call) is None else call.program,
      ss,
      items[i].written,
      tuple(s for s in dict.fromkeys(ss) if last[s] == i and s >= len(inputs) and s not in keep),
      where[i],
      items[i].offsets,
      () if call is None else call.step.sizes,
      takes=takes.get(i, ()),
      nodes=tuple([place[u] for u in items[i].given if u in place]),
    )
    for i, ss in enumerate(placed)
  )
  return Plan(len(inputs), tuple(made), steps, tuple(outputs))


def frugal(items: list[ScheduleItem], kept: set[UOp]) -> list[ScheduleItem]:
  """The items in an order that needs little memory; what is in ``kept`` stays allocated whatever the order."""
  if len(items) == 1: return items
  steps = [memory.MemoryUse(item.nodes, tuple([item.nodes[i] for i in item.written])) for item in items]
  sizes: dict[Any, int] = {
    n: memory.rounded(ix.elements(n.shape) * n.dtype.itemsize) for item in items for n in item.nodes if n not in kept
  }
  return [items[i] for i in memory.order(steps, sizes)]
