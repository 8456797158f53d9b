"""Launches that are made again and again on other memory: a run of kernels that the device takes as one graph is one call."""
from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Any, Hashable, Iterable, Mapping, Sequence

from ntgrad.backends.base import Argument, Device, Graph, Node, Sizes
from ntgrad.codegen.ir import OutOfMemoryError

from . import memory_plan
from .buffer import Buffer, Storage, note_place
from .device import get_device
from .plan import Plan

MORE_BYTES, MORE_PART = 64 << 10, 32   # bytes, or one part in so many, that a plan may take more when it is one call


@dataclass(eq=False, slots=True)
class Launched:
  """A program or a copy (which has no device of its own), where its arguments lie, and the numbers of its run-time sizes."""
  program: Any
  device: Device | None
  args: Sequence[Argument]
  sizes: Sizes = ()


@dataclass(eq=False, slots=True)
class _Run:
  """Steps on one device: the first, one past the last, their one call if there is, and the number of each allocation there."""
  start: int
  end: int
  memory: dict[int, Any]
  graph: Graph | None = None

  def placed(self, args: Iterable[Argument]) -> list[Argument]:
    """Arguments with the numbers that allocations have in the call."""
    return [a._replace(memory=self.memory[a.memory]) for a in args]


@dataclass(eq=False, slots=True)
class LaunchList:
  """Steps on allocations that each call gives. Raises what ``Device.graph`` does, once it is asked for graphs."""
  steps: list[Launched]
  graphs: list[_Run] = field(default_factory=list)
  parts: dict[Argument, tuple[Any, Any]] = field(default_factory=dict)   # an allocation, and a piece of it

  def make_graphs(self, accesses: Sequence[memory_plan.MemoryUse]) -> None:
    """Have each run of kernels be one call, where its device makes graphs. ``accesses`` says what each step touches."""
    graphs = []
    devices = [None if s.device is None or s.program.apart else s.device for s in self.steps]
    for start, end in runs(devices):
      mine, device = self.steps[start:end], devices[start]
      run = _Run(start, end, {k: i for i, k in enumerate(dict.fromkeys([a.memory for s in mine for a in s.args]))})
      if device is not None:
        after = reduced(memory_plan.dependencies(accesses[start:end])[0])
        run.graph = device.graph([Node(s.program, run.placed(s.args), a, s.sizes) for s, a in zip(mine, after)])
      graphs.append(run)
    self.graphs = graphs

  def change(self, i: int, args: Sequence[Argument], sizes: Sizes) -> None:
    """Give a step other places and sizes."""
    step = self.steps[i]
    if (step.args, step.sizes) == (args, sizes): return
    for run in self.graphs:
      if run.start <= i < run.end and run.graph is not None: run.graph.change(i - run.start, run.placed(args), sizes)
    step.args, step.sizes = args, sizes   # last: an interrupt before, and the graph is told again

  def __call__(self, memory: Sequence[Any]) -> None:
    """Launch all steps, in their order."""
    for run in self.graphs:
      if run.graph is not None and run.graph.ready(): run.graph([memory[k] for k in run.memory])
      else:
        for s in self.steps[run.start:run.end]: s.program(self.raws(s, memory), False, s.sizes)

  def raws(self, step: Launched, memory: Sequence[Any]) -> list[Any]:
    """The arguments of a step, for launching it by itself."""
    out = []
    for i, a in enumerate(step.args):
      raw = memory[a.memory]
      device: Device = step.device or (step.program.to, step.program.source)[i]
      if a.nbytes:
        whole, part = self.parts.get(a, (None, None))
        if whole is not raw: self.parts[a] = raw, (part := device.part(raw, a.place, a.nbytes))
        raw = part
      out.append(device.at(raw, a.offset) if a.offset else raw)
    return out


@dataclass(eq=False, slots=True)
class PlanLaunch:
  """All steps of a plan as one call. A run allocates what outlives it, and one arena for those inner buffers that do not lie in
  the former before it is written. ``slots``: whose memory the call is given, before the arena's. ``moves``: whether arguments may
  begin at another place in it at every run."""
  device: Device
  graph: Graph
  arena: int
  slots: Sequence[int]
  inner: frozenset[int]
  moves: bool

  def __call__(self, plan: Plan, buffers: list[Any]) -> bool:
    """Launch on ``buffers``, which get those that the plan makes, None for inner ones. False where that cannot be, for want of
    memory too: nothing has been launched then. Raises DeviceError, likewise."""
    arena = Storage(self.device.name, self.arena)
    buffers += [None if i in self.inner else Buffer(*m) for i, m in enumerate(plan.made, plan.inputs)]
    made = [b.storage for b in buffers[plan.inputs:] if b is not None]
    note_place([arena, *made])
    try:
      memory = [buffers[s].storage.raw for s in self.slots]
      if self.arena: memory.append(arena.raw)
      self.graph(memory, [*[buffers[s].offset for s in self.slots], 0] if self.moves else ())
      return True
    except OutOfMemoryError:
      for s in made: s.release()
      del buffers[plan.inputs:]
      return False
    finally: arena.release()


def plan_launch(plan: Plan) -> PlanLaunch | None:
  """A plan's steps as one call; None where the device has none, where there are copies or other libraries' work, whose memory is
  another at each run, or where that would take notably more memory than releasing each buffer after its last use does."""
  steps, end = plan.steps, len(plan.steps)
  programs = [s.program.clone() for s in steps if s.program is not None and s.device == steps[0].device]
  if not steps or len(programs) < end or any([p.apart or p.recorded for p in programs]): return None
  life = plan.lifetimes()
  inner = {s: x for s, x in life.items() if x.last < end}
  rooms = {s: x for s, x in life.items() if x.last == end}
  begins = memory_plan.room_begins([*rooms.values()])
  offsets, total = memory_plan.arrange([*inner.values()], [*rooms.values()])
  arena = total - begins[-1]
  least = memory_plan.peak(plan.uses(), {s: x.nbytes for s, x in life.items()})
  if arena + sum(x.nbytes for x in rooms.values()) > least + max(least // MORE_PART, MORE_BYTES): return None
  slots = [*dict.fromkeys(s for step in steps for s in step.slots if s not in inner)]
  number = {s: i for i, s in enumerate(slots)}
  homes = [*[number[s] for s in rooms], len(slots)]
  places = {s: (i, 0, 0) for s, i in number.items()}
  for (s, x), offset in zip(inner.items(), offsets):
    home = bisect_right(begins, offset) - 1
    places[s] = homes[home], offset - begins[home], memory_plan.rounded(x.nbytes)
  device = get_device(steps[0].device)
  # one after another, as they are without a graph: two inputs may be the same memory
  nodes = []
  for i, (step, program) in enumerate(zip(steps, programs)):
    args = [Argument(*places[s], offset, bool(step.offsets) and s < plan.inputs)
            for s, offset in zip(step.slots, step.offsets or (0,) * len(step.slots))]
    nodes.append(Node(program, args, (i - 1,) if i else (), step.sizes))
  if (graph := device.graph(nodes)) is None: return None
  return PlanLaunch(device, graph, arena, slots, frozenset(range(plan.inputs, plan.inputs + len(plan.made))) - {*plan.outputs},
                    any([step.offsets for step in steps]))


def at_once(plan: Plan, buffers: list[Any], least: int) -> bool:
  """Run all steps by one call, at a plan's run number ``least`` or a later one (``Runs.due``). False where they have to be run
  one by one, as there is no call, or it is not ready."""
  runs = plan.runs
  n = runs.count - least
  if runs.launch is None and not n & n - 1: runs.launch = plan_launch(plan) or False
  if not runs.launch: return False
  if runs.launch.graph.ready() and runs.launch(plan, buffers): return True
  runs.launch = None   # made again, ever less often: programs run for the first time since, or memory is there again
  return False


def runs(devices: Sequence[Any]) -> list[tuple[int, int]]:
  """The longest stretches of one device, as first and one past the last."""
  starts = [i for i, d in enumerate(devices) if i == 0 or d is not devices[i - 1]]
  return list(zip(starts, [*starts[1:], len(devices)]))


def reduced(after: Sequence[Iterable[int]]) -> list[list[int]]:
  """Of the earlier steps that each must come after, those that do not follow from the others."""
  out, behind = list[list[int]](), list[int]()   # for each step a bit for it and for every step that it comes after
  for i, earlier in enumerate(after):
    seen, kept = 0, []
    for j in sorted(earlier, reverse=True):
      if seen >> j & 1: continue
      kept.append(j)
      seen |= behind[j]
    out.append(kept[::-1])
    behind.append(seen | 1 << i)
  return out


def pieces(places: Mapping[Any, tuple[Hashable, int, int]]) -> dict[Any, tuple[Hashable, ...]]:
  """Buffers that share memory, cut where any of them begins or ends: two overlap where they have a piece in common. ``places``
  has the memory that a buffer lies in, its first byte and the one past its last."""
  cuts: dict[Hashable, set[int]] = {}
  for home, start, end in places.values(): cuts.setdefault(home, set()).update((start, end))
  order = {home: sorted(c) for home, c in cuts.items()}
  return {k: tuple((home, at) for at in order[home][bisect_left(order[home], start):bisect_left(order[home], end)])
          for k, (home, start, end) in places.items()}
