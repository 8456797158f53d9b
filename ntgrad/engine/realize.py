"""Realising: the graph under some tensors becomes a schedule (found again by its structure), which runs."""
from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Iterable, Sequence
from weakref import WeakSet

import numpy as np

from ntgrad.backends.base import Program
from ntgrad.codegen.config import config
from ntgrad.codegen.dtype import DType
from ntgrad.codegen.errors import DeviceError
from ntgrad.codegen.spec import verify_graph
from ntgrad.codegen.uop import MOVEMENT, Ops, UOp, prod
from ntgrad.schedule import ScheduleItem, schedule_graph
from ntgrad.schedule.storage import storage

from . import memory, plan_cache, report
from .buffer import Buffer, Storage
from .compile import programs
from .device import default_device, get_device


@dataclass(frozen=True)
class Step:
  """One launch, or a copy between devices (``program`` None): which slots it takes, which of those (by position) it writes, and which
  slots are not needed after it."""
  program: Program | None
  slots: tuple[int, ...]
  writes: tuple[int, ...]
  last_use: tuple[int, ...]
  device: str = ""


@dataclass(frozen=True)
class Plan:
  """A schedule that can run again on other buffers. Slots: inputs first, then what it makes."""
  inputs: int
  made: tuple[tuple[str, tuple[int, ...], DType], ...]   # device, shape, dtype of each made slot
  steps: tuple[Step, ...]
  outputs: tuple[tuple[int, bool], ...]                  # for each sink: slot, and whether it is an input written in place


_plans: dict[Any, Plan] = {}
_general: dict[Any, Plan | None] = {}   # structures met before, numbers left out; a plan once they were met with other numbers
captures: list[Any] = []     # functions that are told of every step run (ntgrad.jit while it records)


def resolved(u: UOp) -> UOp:
  """The BUFFER that already holds a node's value, or the node."""
  found: UOp | None = u.__dict__.get("_realized")
  return u if found is None else found


def is_view(u: UOp) -> bool:
  """Whether a node is a BUFFER, or movement of one: nothing is left to compute."""
  return resolved(_base(resolved(u))).op is Ops.BUFFER


def walk(sinks: Iterable[UOp], known: dict[UOp, None] | None = None) -> list[UOp]:
  """The nodes beneath ``sinks``, sources first, values that exist already as their BUFFERs. Those in ``known`` are left out, the rest added."""
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


def realize(tensors: Sequence[Any]) -> None:
  """Compute everything that ``tensors`` need, in one schedule, and point each at its buffer.

  A schedule that writes a buffer in place also computes every live tensor that still needs the old contents.
  """
  started = time.perf_counter()
  wanted = [t for t in dict.fromkeys(tensors)]
  sinks: dict[UOp, None] = {}
  bases: list[tuple[Any, UOp]] = []
  def want(t: Any, node: UOp) -> None:
    base = resolved(node)
    while base.op in (Ops.RESHAPE, Ops.DETACH) or (base.op in MOVEMENT and _base(base).op in (Ops.BUFFER, Ops.ASSIGN)): base = resolved(base.src[0])
    if base.device is None:   # made of numbers alone: memory of its own, not for the interned node that every use, on any device, shares
      t.lazydata = base = UOp.fresh(Ops.CONTIGUOUS, node.dtype, (node.src[0] if node.op is Ops.CONTIGUOUS else node,))
    bases.append((t, base))
    if base.op is not Ops.BUFFER: sinks[base] = None
  for t in wanted: want(t, t.lazydata)
  if not sinks:
    for t, _ in bases: _repoint(t)
    return
  order = walk(sinks)
  assigns: list[UOp] = []
  while len(found := [u for u in order if u.op is Ops.ASSIGN]) > len(assigns):   # readers may bring assignments of their own
    assigns = found
    order = _with_readers({id(t) for t, _ in bases}, sinks, assigns, want)
    sinks.update(dict.fromkeys(assigns))
  _run_graph(list(sinks), order, started)
  for t, _ in bases: _repoint(t)
  if assigns:
    from ntgrad.core import live_tensors
    for t in live_tensors:
      if t.lazydata.op is not Ops.BUFFER: _repoint(t)


def _repoint(t: Any) -> None:
  """Make a tensor a view of the memory that holds its value; one that needs a gradient remembers its graph."""
  node = _rebase(t.lazydata)
  if node is not t.lazydata: getattr(t, "_become", lambda n: setattr(t, "lazydata", n))(node)


def _base(u: UOp) -> UOp:
  """What a view is a view of."""
  while u.op in MOVEMENT or u.op is Ops.DETACH: u = resolved(u.src[0])
  return u


def _with_readers(have: set[int], sinks: dict[UOp, None], assigns: list[UOp], want: Any) -> list[UOp]:
  """Add every live tensor that reads the old contents of a buffer that is about to be written."""
  from ntgrad.core import live_tensors
  # the BUFFERs that are written, and values of assignments that later ones write over
  written = {storage_node(a) for a in assigns} | {b for a in assigns if (b := _base(a.src[0])).op is Ops.ASSIGN}
  done = {*sinks, *assigns} - written
  known: dict[UOp, None] = {}
  touches: dict[UOp, bool] = {}
  for t in live_tensors:
    if id(t) in have: continue
    u = t.lazydata
    if u.op is Ops.CONST: continue
    if u.op is Ops.BUFFER and u not in written: continue
    for n in walk((u,), known):
      # what this schedule computes (ASSIGNs among it) will be there afterwards
      touches[n] = n in written or (n not in done and any([touches[s.__dict__.get("_realized", s)] for s in n.src]))
    if touches[resolved(u)]:
      if _base(u).op in (Ops.BUFFER, Ops.ASSIGN):
        t.lazydata = UOp(Ops.CONTIGUOUS, u.dtype, (u,))   # a view keeps the value it showed
      want(t, t.lazydata)
  return walk(sinks)


def storage_node(a: UOp) -> UOp:
  """The BUFFER that an ASSIGN writes."""
  u = a
  while u.op is not Ops.BUFFER: u = resolved(u.src[0])
  return u


def _rebase(u: UOp) -> UOp:
  """A node whose realised base is replaced by its BUFFER, its movement kept."""
  chain: list[UOp] = []
  while True:
    r = resolved(u)
    if r is not u or not (u.op in MOVEMENT or u.op is Ops.DETACH):
      u = r
      break
    if u.op in MOVEMENT: chain.append(u)
    u = u.src[0]
  for m in reversed(chain): u = UOp(m.op, m.dtype, (u,), m.arg)
  return u


def _run_graph(sinks: list[UOp], order: list[UOp], started: float) -> None:
  """Find or make the plan of a graph, run it, and note on each sink where its value is."""
  number: dict[UOp, int] = {}
  inputs: list[UOp] = []
  key: list[Any] = []
  for i, u in enumerate(order):
    number[u] = i
    if u.op is Ops.BUFFER:
      b = u.arg
      if b.stale: raise DeviceError(f"{b} was overwritten by an assignment; this value was not computed before that")
      key.append((len(inputs), b.shape, u.dtype, b.device))
      inputs.append(u)
    else: key.append((u.op, u.dtype, float.hex(u.arg) if type(u.arg) is float else u.arg,
                      tuple([number[s.__dict__.get("_realized", s)] for s in u.src])))
  full = (tuple(key), tuple([number[s] for s in sinks]), config.key(), default_device())
  plan = _plans.get(full)
  hit = plan is not None
  if plan is None and (numbers := [i for i, u in enumerate(order) if _varies(u)]):
    # the same structure with other numbers: from the second time on they are parameters of the kernels
    general = (tuple([("number", order[i].dtype) if _varies(order[i]) else k for i, k in enumerate(key)]), *full[1:])
    if general in _general:
      device = next((u.device for u in order if u.device is not None), None) or default_device()
      stand_ins = {order[i]: number_buffer(device, order[i].dtype, order[i].arg).node for i in numbers}
      inputs = [*inputs, *(stand_ins[order[i]] for i in numbers)]
      plan = _general[general]
      hit = plan is not None
      if plan is None: plan = _general[general] = make_plan(sinks, order, inputs, stand_ins)
    else: _general[general] = None
  if plan is None:
    name = plan_cache.key_of(full, [default_device(), *(u.arg.device for u in inputs), *(u.arg for u in order if u.op is Ops.COPY)])
    plan = plan_cache.load(name) if name is not None else None
    if plan is None:
      plan = make_plan(sinks, order, inputs)
      if name is not None: plan_cache.store(name, plan)
    _plans[full] = plan
  report.scheduled(plan.steps, hit, time.perf_counter() - started)
  made = run_plan(plan, [u.arg for u in inputs])
  current = {u.arg for u in inputs}
  for sink, (slot, in_place) in zip(sinks, plan.outputs):
    if in_place:
      old = inputs[slot].arg
      if old in current:
        old.storage.version += 1
        current.discard(old)
        inputs[slot] = old.again().node
      node = inputs[slot]
      for m in _target_views(sink): node = UOp(m.op, m.dtype, (node,), m.arg)
      sink.__dict__["_realized"] = node
    else: sink.__dict__["_realized"] = made[slot - plan.inputs].node


def _target_views(a: UOp) -> list[UOp]:
  """Movement between an ASSIGN's BUFFER and its value, innermost first."""
  out: list[UOp] = []
  u = a.src[0]
  while u.op in MOVEMENT or u.op is Ops.ASSIGN:
    if u.op in MOVEMENT: out.append(u)
    u = resolved(u.src[0])
  return out[::-1]


_COMMON = (0.0, 0.5, 1.0, 2.0)


def _varies(u: UOp) -> bool:
  """Whether a node is a number that another call may well have otherwise (a learning rate, not the 0 of a relu)."""
  return u.op is Ops.CONST and u.dtype.kind == "f" and math.isfinite(u.arg) and abs(u.arg) not in _COMMON


constants: WeakSet[Storage] = WeakSet()   # memory of numbers, which no tensor has and nobody writes


@lru_cache(maxsize=4096)
def number_buffer(device: str, dtype: DType, value: float) -> Buffer:
  """A number as a buffer of shape ()."""
  made = Buffer.from_numpy(device, np.array(value, dtype.np))
  constants.add(made.storage)
  return made


def make_plan(sinks: list[UOp], order: list[UOp], inputs: list[UOp], stand_ins: dict[UOp, UOp] | None = None) -> Plan:
  """Schedule and compile a graph, some of its numbers replaced by the BUFFERs of ``stand_ins``."""
  clean: dict[UOp, UOp] = dict(stand_ins or {})   # values that exist stand as their BUFFERs
  for u in order:
    if u in clean: continue
    clean[u] = u if not u.src else u.replace(tuple(clean[resolved(s)] for s in u.src))
  device = next((u.device for u in order if u.device is not None), None) or default_device()
  target = get_device(device).renderer.target
  if config.verify: verify_graph([clean[s] for s in sinks])
  ready, items = schedule_graph([clean[s] for s in sinks], target.cores, target.blocks)
  if config.verify: verify_graph(ready)
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
  for s, r in zip(sinks, ready):
    base = storage(r)
    at = slot(base)
    outputs.append((at, s.op is Ops.ASSIGN))
  keep = {s for s, _ in outputs}
  last: dict[int, int] = {}
  for i, ss in enumerate(placed): last.update(dict.fromkeys(ss, i))
  by_device: dict[str, list[int]] = {}
  where = [(item.nodes[0].device or device) for item in items]
  for i, item in enumerate(items):
    if item.ast is not None: by_device.setdefault(where[i], []).append(i)
  ready_programs: dict[int, Program] = {}
  for name, numbers in by_device.items():
    found = programs([items[i].ast for i in numbers], get_device(name))  # type: ignore[misc]
    ready_programs.update(zip(numbers, found))
  steps = tuple(Step(ready_programs.get(i), ss, written(items[i]),
                     tuple(s for s in dict.fromkeys(ss) if last[s] == i and s >= len(inputs) and s not in keep), where[i])
                for i, ss in enumerate(placed))
  return Plan(len(inputs), tuple(made), steps, tuple(outputs))


def frugal(items: list[ScheduleItem], kept: set[UOp]) -> list[ScheduleItem]:
  """The items in an order that needs little memory; what is in ``kept`` stays allocated whatever the order."""
  steps = [memory.Access(item.nodes, tuple([item.nodes[i] for i in written(item)])) for item in items]
  sizes: dict[Any, int] = {n: memory.rounded(prod(n.shape) * n.dtype.itemsize) for item in items for n in item.nodes if n not in kept}
  return [items[i] for i in memory.order(steps, sizes)]


def written(item: ScheduleItem) -> tuple[int, ...]:
  """The positions of the buffers that an item writes."""
  return (0,) if item.ast is None else tuple([p.slot for p in item.ast.params if p.written])


def run_plan(plan: Plan, inputs: Sequence[Buffer]) -> list[Buffer]:
  """Run the steps; gives the made buffers (inner ones are released as soon as nothing needs them)."""
  made = [Buffer(*m) for m in plan.made]
  buffers: list[Buffer] = [*inputs, *made]
  wait = config.debug >= 2
  for step in plan.steps:
    run_step(step, [buffers[s] for s in step.slots], wait)
    for s in step.last_use: buffers[s].storage.release()
  return made


def run_step(step: Step, buffers: Sequence[Buffer], wait: bool = False) -> None:
  """Launch one step."""
  for note in captures: note(step, buffers)
  if step.program is None:
    to, source = buffers
    to.take(source)
    return
  seconds = step.program([b.raw for b in buffers], wait)
  if seconds is not None: report.ran(step.program.spec, max(seconds, 1e-9))  # type: ignore[attr-defined]


__all__ = ["realize", "Plan", "Step", "prod"]
