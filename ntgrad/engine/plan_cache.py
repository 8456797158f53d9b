"""Whole schedules on disk: a structure that any process has seen before is neither scheduled nor rendered again, only loaded.
The key is the structure (nothing that differs between processes), settings, devices, and the state of ntgrad's own sources."""
from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Callable, Collection, Hashable, Iterable

from ntgrad.backends import cache
from ntgrad.backends.base import Program, ProgramSpec
from ntgrad.backends.specs import SPEC, check as check_spec
from ntgrad.codegen.index.records import COUNT, COUNTS, DTYPE, INT, STR, Maybe, RecordError, Sequence, TupleForm
from ntgrad.codegen.ir import DType, config

from . import overrides
from .compile import from_specs, overridden
from .device import get_device
from .keeping import Kept
from .plan import Plan, Step

PLAN_TABLE, MOST_SLOT_BYTES = "plan", 1 << 48   # bytes that a slot has at most
_Made = tuple[str, tuple[int, ...], DType]
SlotMemory = tuple[str, int, DType]   # device, number of elements, dtype
# the kernel, None for a copy; and fields of a Step
Entry = tuple[ProgramSpec | None, tuple[int, ...], tuple[int, ...], tuple[int, ...], str, tuple[int, ...], tuple[int, ...],
              tuple[int, ...]]
PLAN_FORM = TupleForm(   # inputs, made, outputs, places of what is kept, steps
  COUNT, Sequence(TupleForm(STR, COUNTS, DTYPE)), COUNTS, COUNTS,
  Sequence(TupleForm(Maybe(SPEC), COUNTS, COUNTS, COUNTS, STR, COUNTS, COUNTS, Sequence(INT))))


def plan_key(structure: Hashable, devices: Iterable[str]) -> str | None:
  """The entry of a structure on some devices. None where plans are not kept: cache off, a debug level that shows how kernels come
  about, passes to verify, kernels of a person's own, or a device that runs UOps."""
  if overridden() or overrides.kernel_listeners: return None
  if not config.cache or config.debug >= 3 or config.verify: return None
  targets = [(d, get_device(d).identity, get_device(d).renderer.target) for d in sorted(set(devices))]
  if any(t.name == "numpy" for *_, t in targets): return None
  text = repr((structure, targets, cache.sources()))
  return None if cache.sources() is None or " at 0x" in text else hashlib.sha256(text.encode()).hexdigest()


def load_plan(key: str) -> Plan | None:
  """The plan kept under a key, its programs ready. None where there is none; a damaged or senseless one is removed."""
  if (kept := cache.get(PLAN_TABLE, key, PLAN_FORM)) is None: return None
  try:
    _check(*kept)
    inputs, made, outputs, places, steps = kept
    again = Again(key)
    programs = _ready([(spec and replace(spec, again=partial(again, i)), *rest) for i, (spec, *rest) in enumerate(steps)])
    return Plan(inputs, made, tuple(
      Step(program, slots, writes, last_use, device, offsets, sizes, nodes=nodes)
      for program, (_, slots, writes, last_use, device, offsets, nodes, sizes) in zip(programs, steps)
    ), outputs, Kept(places), again)
  except Exception:   # whatever is in there, it is no plan
    cache.remove(PLAN_TABLE, key)
    return None


def found(key: str, make: Callable[[], Plan], nodes: list[SlotMemory], devices: Collection[str], inputs: list[SlotMemory],
          outputs: list[SlotMemory]) -> Plan | None:
  """The plan kept under a key for a graph of ``nodes`` on ``devices``, with what it reads and gives. None where there is none;
  one of another graph is removed. Until it has run, ``make`` makes it anew where a kernel of it does not compile."""
  plan = load_plan(key)
  if plan is None: return None
  have = [*inputs, *[(device, prod(shape), dtype) for device, shape, dtype in plan.made]]
  nbytes = [count * dtype.itemsize for _, count, dtype in have]
  if plan.inputs == len(inputs) and not any(at > nbytes[slot] for s in plan.steps for slot, at in zip(s.slots, s.offsets)) and (
      {device for device, *_ in plan.made} | {s.device for s in plan.steps} <= {*devices}
      and all(n < len(nodes) for places in (plan.kept.places, *[s.nodes for s in plan.steps]) for n in places)
      and [have[slot] for slot in plan.outputs] == [*outputs, *[nodes[i] for i in plan.kept.places]]):
    if plan.again is not None: plan.again.make = make
    return plan
  cache.remove(PLAN_TABLE, key)
  return None


def _ready(steps: Collection[Entry]) -> list[Program | None]:
  """The program of each step; those of a device are compiled together."""
  mine: dict[str, dict[int, ProgramSpec]] = {}
  for i, (spec, _, _, _, device, *_) in enumerate(steps):
    if spec is not None: mine.setdefault(device, {})[i] = spec
  found = {i: p for d, specs in mine.items() for i, p in zip(specs, from_specs(list(specs.values()), get_device(d)))}
  return list(map(found.get, range(len(steps))))


def _check(inputs: int, made: Collection[_Made], outputs: Collection[int], places: Collection[int],
           steps: Collection[Entry]) -> None:
  """Raises RecordError, or what its kernels raise, for a plan that makes no sense."""
  nothing = {slot for slot, (_, shape, _) in enumerate(made, inputs) if not prod(shape)}
  there, slots = {*range(inputs), *nothing}, inputs + len(made)
  if any(prod(shape) * dtype.itemsize > MOST_SLOT_BYTES for _, shape, dtype in made):
    raise RecordError("more memory than there is")
  for spec, taken, writes, last_use, _, offsets, _, sizes in steps:
    if max(taken, default=0) >= slots or max(writes, default=0) >= len(taken) or offsets and len(offsets) != len(taken):
      raise RecordError("a step on what is not there")
    if not {s for i, s in enumerate(taken) if i not in writes} <= there: raise RecordError("a step reads what nothing has made")
    there.update(taken[i] for i in writes)
    if any(s < inputs or s in outputs or s not in taken for s in last_use): raise RecordError("a step releases what is needed")
    there -= {*last_use} - nothing
    if len(taken) != (2 if spec is None else spec.nparams): raise RecordError("a step has other buffers than its kernel takes")
    if len(sizes) != (0 if spec is None else len(spec.sizes)): raise RecordError("a step has other sizes than its kernel takes")
    if spec is not None: check_spec(spec)
  if not {*outputs} <= there: raise RecordError("results that nothing computes")


@dataclass(eq=False)
class Again:
  """Makes a plan anew in the place of a kept one, once, and gives its kernels."""
  key: str
  specs: list[ProgramSpec | None] = field(default_factory=list)
  make: Callable[[], Plan] | None = None

  def __call__(self, step: int) -> ProgramSpec | None:
    """The kernel of a step; None where it is not known any more what the plan is made of."""
    if self.make is not None:
      cache.remove(PLAN_TABLE, self.key)
      with config(cache=0): plan = self.make()   # its kernels may lie there likewise
      self.specs, self.make = [None if s.program is None else s.program.spec for s in plan.steps], None   # type: ignore[attr-defined]
      store_plan(self.key, plan)
    return self.specs[step] if step < len(self.specs) else None


def store_plan(key: str, plan: Plan) -> None:
  """Keep a plan."""
  steps: list[Entry] = [
    (None if s.program is None else s.program.spec,  # type: ignore[attr-defined]
     s.slots, s.writes, s.last_use, s.device, s.offsets, s.nodes, s.sizes)
    for s in plan.steps]
  cache.put(PLAN_TABLE, key, PLAN_FORM, (plan.inputs, plan.made, plan.outputs, plan.kept.places, tuple(steps)))
