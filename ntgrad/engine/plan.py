"""A plan: a schedule that can run. It has steps, which read and write numbered slots, and says what each slot has.
``planner.py`` finds and makes plans."""
from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Callable, Collection, Sequence

from ntgrad.backends.base import Program
from ntgrad.codegen import index as ix
from ntgrad.codegen.explain.printing import dtype_name, screen
from ntgrad.codegen.index import evaluator, shape_text
from ntgrad.codegen.ir import DType, Recent, UOp, prod
from ntgrad.codegen.kernel import substitute
from ntgrad.graph import BoundInt

from . import memory_plan, report
from .buffer import Buffer
from .counters import phase
from .device import get_device
from .keeping import Kept
from .size_variants import SizedProgram

KNOWN_SIZES = 16   # numbers for the sizes of a plan, of which each has its Plan
_Ints = tuple[int, ...]


@dataclass(frozen=True)
class Step:
  """One launch, or a copy between devices (``program`` is None). It says which slots the step takes, which of those (by position)
  it writes, and which slots are not needed after it. ``offsets``: the byte of its memory at which each begins, () if all begin at
  0. ``nodes``: the nodes that it computes, as places in the order of the plan's graph. ``sizes``: the numbers of the program's
  run-time sizes. ``of``: the program with run-time sizes that this one is a variant of. ``asked``: the sizes that ``of`` was
  asked for."""
  program: Program | None
  slots: _Ints
  writes: _Ints
  last_use: _Ints
  device: str = ""
  offsets: _Ints = ()
  sizes: _Ints = ()
  of: SizedProgram | None = None
  asked: _Ints = ()
  takes: tuple[ix.Dim, ...] = ()
  nodes: _Ints = ()

  def launch(self, buffers: Sequence[Buffer], wait: bool = False) -> None:
    """Launch it on these; with ``wait`` see how long it takes, and report that."""
    if self.program is None:
      to, source = buffers
      if wait and to.nbytes: report.copied(partial(to.take, source), to.nbytes, get_device(to.device), get_device(source.device))
      else: to.take(source)
      return
    if self.offsets:   # some are parts of their memory
      at = get_device(self.device).at
      raws = [at(b.raw, n) if (n := b.offset + offset) else b.raw for b, offset in zip(buffers, self.offsets)]
    else: raws = [b.storage.raw for b in buffers]
    if wait:
      with phase("compiling"): report.wait_until_compiled(self.program)
    seconds = self.program(raws, wait, self.sizes) if self.sizes else self.program(raws, wait)
    if seconds is not None: report.ran(self.program, seconds, self.sizes, get_device(self.device))


@dataclass(eq=False, slots=True)
class Runs:
  """How often a plan has run, and its steps as one call, where there is (``launch_graphs.PlanLaunch``; False: there is none).
  ``first``: the serial numbers of the memory that its first run read; empty from the second one on."""
  count: int = 0
  first: list[int] | None = None
  launch: Any = None

  def due(self, least: int) -> bool:
    """Note one more run; whether that is number ``least``, or a later one."""
    self.count += 1
    return self.count >= least


@dataclass(frozen=True)
class Plan:
  """A schedule that can run again on other buffers. Slots: inputs first, then what it makes."""
  inputs: int
  made: tuple[tuple[str, _Ints, DType], ...]   # device, shape, dtype of each made slot
  steps: tuple[Step, ...]
  outputs: _Ints                               # the slot of each sink, then of each value that is kept
  kept: Kept = field(default_factory=Kept, compare=False)
  again: Any = field(default=None, compare=False, repr=False)   # of one that was read from the disk: plan_cache.Again
  runs: Runs = field(default_factory=Runs, init=False, compare=False, repr=False)

  @property
  def is_sized(self) -> bool:
    """Whether a SizedPlan gave it, for some sizes."""
    return any([step.of is not None for step in self.steps])

  def uses(self) -> list[memory_plan.MemoryUse]:
    """The slots that each step takes, and at the end those that stay."""
    return [memory_plan.MemoryUse(s, ()) for s in (*[step.slots for step in self.steps], self.outputs)]

  def lifetimes(self) -> dict[int, memory_plan.Lifetime]:
    """By the slots that a step makes (what has no elements has none); those that stay live until after the last one."""
    used: dict[Any, tuple[int, int]] = {}
    for i, use in enumerate(self.uses()):
      used.update({s: (used.get(s, (i,))[0], i) for s in use.buffers if s in used or i < len(self.steps)})
    return {s: memory_plan.Lifetime(*used[s], max(prod(shape) * dtype.itemsize, 1))
            for s, (_, shape, dtype) in enumerate(self.made, self.inputs) if s in used}

  def releasing(self, slots: Collection[int]) -> Plan:
    """The plan that also gives back inputs once it has read them."""
    last = {s: i for i, step in enumerate(self.steps) for s in step.slots if s in slots}
    more = [tuple([s for s in last if last[s] == i]) for i in range(len(self.steps))]
    return replace(self, steps=tuple([replace(x, last_use=(*x.last_use, *m)) if m else x for x, m in zip(self.steps, more)]))

  def __str__(self) -> str:
    made = [f"b{i} {dtype_name(dtype)}{shape_text(shape)}" for i, (_, shape, dtype) in enumerate(self.made, self.inputs)]
    reads, steps = "b0" if self.inputs == 1 else f"b0 to b{self.inputs - 1}" if self.inputs else "nothing", len(self.steps)
    head = (f"plan of {steps} step{'s' * (steps != 1)}: reads {reads}, makes {', '.join(made) or 'nothing'}, "
            f"gives {', '.join(f'b{n}' for n in self.outputs)}")
    return screen("\n".join([head, *report.table(self.steps, [""] * steps)]))


@dataclass(frozen=True)
class SizedPlan:
  """A Plan in which shapes are expressions of run-time sizes, and programs are SizedPrograms."""
  plan: Plan
  numbers: Callable[[Sequence[int]], _Ints]   # of all that is not known before: shapes, then what each program takes
  exprs: Sequence[ix.Dim]                               # what they are
  found: Recent[_Ints, Plan] = field(default_factory=lambda: Recent(KNOWN_SIZES), compare=False, repr=False)

  @staticmethod
  def of(plan: Plan, sizes: tuple[ix.Size, ...]) -> SizedPlan:
    """A plan that :func:`make_plan` made of a graph with ``sizes``."""
    exprs: list[ix.Dim] = [n for _, shape, _ in plan.made for n in shape]
    exprs += [n for step in plan.steps for n in step.takes]
    out = SizedPlan(plan, evaluator(tuple(exprs), sizes), exprs)
    hints = [s.hint for s in sizes if s.hint is not None]
    todo = iter(out.numbers(hints) if len(hints) == len(sizes) else ())
    for n in [len(shape) for _, shape, _ in plan.made]: tuple(itertools.islice(todo, n))
    for step in plan.steps:
      likely = tuple(itertools.islice(todo, len(step.takes)))
      if isinstance(step.program, SizedProgram): step.program.likely = step.program.likely or likely
    return out

  def at(self, values: _Ints, table: dict[UOp, UOp] | None = None) -> Plan:
    """With numbers for the sizes; what they need is compiled. With a ``table`` of what the sizes are made of, the numbers
    remember that; without, numbers that came lately have the same Plan again."""
    if table is None and (known := self.found[values]) is not None: return known
    numbers = self.numbers(values)
    if table is not None: numbers = tuple(map(BoundInt.of, numbers, made_of(self.exprs, table)))
    todo = iter(numbers)
    made = tuple([(device, tuple(itertools.islice(todo, len(shape))), dtype) for device, shape, dtype in self.plan.made])
    steps = []
    for step in self.plan.steps:
      if isinstance(step.program, SizedProgram):
        asked = tuple(itertools.islice(todo, len(step.takes)))
        program, given = step.program.variant(tuple(map(int, asked)))
        step = replace(step, program=program, sizes=given, of=step.program, asked=asked)
      steps.append(step)
    plan = replace(self.plan, made=made, steps=tuple(steps))
    if table is None: self.found[values] = plan
    return plan


def made_of(exprs: Sequence[ix.Dim], table: dict[UOp, UOp]) -> list[UOp]:
  """Expressions with others in place of their sizes."""
  return list(substitute(tuple(map(ix.node, exprs)), table))
