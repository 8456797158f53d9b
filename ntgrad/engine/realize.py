"""Computes tensors: finds or makes the plan of the graph beneath them (``planner.py``), and runs it."""
from __future__ import annotations

import time
from typing import Any, Collection, Hashable, Iterable, Sequence
from weakref import ref

import numpy as np

from ntgrad.backends.process import uninterrupted
from ntgrad.codegen.ir import MOVEMENT, DType, NotFiniteError, NtgradError, Ops, OutOfMemoryError, Recent, UOp, config, prod
from ntgrad.graph import Alias, alias, followers, follows, homeless, live_aliases, origins, pending, unplaced, values, waiting
from ntgrad.graph.alias import MOST_RESULTS, companions, next_look, results
from ntgrad.graph.lock import synchronized
from ntgrad.graph.origins import Made
from ntgrad.graph.recipes import recording, sources_of_output

from . import counters, device_asserts, keeping, memory_plan, nan_checks, report
from .buffer import Buffer, Storage, note_place, refuse_recording, resolved, transfer_watchers, walk_nodes, without_reshapes
from .counters import phase, take_phase_seconds
from .device import Device, get_device
from .index_checks import look_through
from .launch_graphs import at_once
from .observers import observers
from .plan import Plan, Step
from .planner import CHANGES, Graph, Walk, plan_of, recipes_made

FOUND = 3     # runs of a plan, from which on it is launched by one call
_NEAR = 256   # nodes that are looked at for it
RELEASED_BYTES = 16 << 20   # of values kept for gradients, from which on each goes as soon as it has been read

_lines: Recent[Any, tuple[Plan, list[Made]]] = Recent(256)   # of the steps of a plan, by it and the line that asked for values
made_now: list[Made] = [()]   # the lines that the step is from which is launched now
captures: list[Any] = []     # functions that are told of every step run (ntgrad.jit while it records)
# while ntgrad.jit runs a function: values from before the call that are not computed, by the node that each has for itself
values_before_call: dict[UOp, ref[Alias]] = {}


def rebased(u: UOp) -> UOp:
  """A node upon the memory that holds what it is a view of, where that has been computed."""
  return apply_moves(base_of(u), moves_from_base(u))


_Move = tuple[Ops, DType, Any]


def moves_from_base(u: UOp) -> tuple[_Move, ...]:
  """The movement between a node and what it is a view of, innermost first (not its nodes: they would hold the memory)."""
  out: list[_Move] = []
  u = resolved(u)
  while u.op in MOVEMENT or u.op is Ops.DETACH and u.src:
    if u.op in MOVEMENT: out.append((u.op, u.dtype, u.arg))
    u = resolved(u.src[0])
  return tuple(out[::-1])


def apply_moves(node: UOp, movement: Iterable[_Move]) -> UOp:
  """The same view of another node."""
  for op, dtype, arg in movement: node = UOp(op, dtype, (node,), arg)
  return node


def is_view(u: UOp) -> bool:
  """Whether a node is memory, or movement of it: nothing is left to compute."""
  return base_of(u).op is Ops.BUFFER


def buffers_beneath(node: UOp) -> list[Buffer]:
  """The memory that a node is computed from."""
  return [u.arg for u in walk_nodes((node,)) if u.op is Ops.BUFFER]


class _Wanted:
  """What a schedule is to compute: values of Aliases, and parts of values."""

  def __init__(self) -> None:
    self.sinks: dict[tuple[UOp, UOp | None], list[Alias]] = {}   # a value and the BUFFER it is written to; who waits for it
    self.aliases: dict[Alias, None] = {}   # of those that wait

  def add(self, a: Alias) -> None:
    """The newest value of an Alias."""
    if a in self.aliases: return
    if a.pending: return self.ask(a, a.node, a.memory.node)
    base = base_of(a.node)
    if base.op is Ops.BUFFER and not (a.memory is None and base.arg.storage.foreign and base.arg.storage.writer != ref(a)):
      return settle(a)
    # numbers alone, and what others may write: not the interned node that every use shares
    if base.op is Ops.BUFFER or a.node.device is None: a.renew()
    self.ask(a, without_reshapes(a.node))

  def ask(self, a: Alias, node: UOp, memory: UOp | None = None) -> None:
    """A node as an Alias's value, into its ``memory`` if it has some."""
    self.aliases[a] = None
    self.sinks.setdefault((node, memory), []).append(a)

  def keep(self, a: Alias) -> None:
    """What an Alias shows of memory that is about to be written: a copy, or what is computed from it."""
    if not a.pending and is_view(a.node): a.renew()
    self.add(a)

  def add_earlier(self, written: Collection[UOp]) -> None:
    """The versions that gradients go on to and that are made of BUFFERs which are about to be written."""
    for a in live_aliases:
      if (u := a.earlier) is None or is_view(u := without_reshapes(u)): continue
      if _reaches(u, set(written), (), set(), {}): self.sinks.setdefault((u, None), [])

  def tensor(self, t: Any) -> None:
    """A tensor's value: that of its Alias, or only the part that it shows where nothing else needs more."""
    a: Alias = t._alias
    if not alias.view_covers(t._view) and not a.pending and not is_view(a.node):
      if len(a.tensors) > 1 or a.beneath or ref(a) in followers:
        part = without_reshapes(t.lazydata)
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


@synchronized
def realize(tensors: Sequence[Any]) -> None:
  """Compute everything that ``tensors`` need, in one schedule. Memory that still has an older value is written, if what is
  computed needs the newer one; whoever needs what is written over is computed before."""
  started = time.perf_counter()
  wanted = _Wanted()
  for t in tensors: wanted.tensor(t)
  _compute(wanted, started)


@synchronized
def cut(t: Any) -> None:
  """Compute what a loop carries, where ``t`` is made of many rounds of it in which no value was asked for: the first tensor
  that is made of half of them at least. All that lies between two cuts has one plan, as tensors are counted from there."""
  if recording.blocks: return   # the next tensor after them
  walk = Walk()
  walk.add((t.lazydata,))
  next_look[0] = results[0] + MOST_RESULTS
  if len(walk.nodes) < MOST_RESULTS: return
  a = min([a for i, a in keeping.held_in(walk.number, ()) if 2 * i <= len(walk.nodes)], key=lambda a: a.made, default=t._alias)
  report.note_line(f"computes a tensor of shape {a.node.shape} that was not asked for, as {MOST_RESULTS} tensors were made since "
                   "one was")
  compute((a,))
  next_look[0] = a.made + MOST_RESULTS


@synchronized
def compute(aliases: Iterable[Alias]) -> None:
  """Compute the newest values of Aliases, in one schedule."""
  wanted = _Wanted()
  for a in aliases: wanted.add(a)
  _compute(wanted, time.perf_counter())


@synchronized
def before_writing(storages: Collection[Storage], but: Iterable[Alias]) -> None:
  """Give every Alias (``but`` those) that shows memory which is about to be written a copy, and compute what is made of it."""
  buffers = {b.node for a in live_aliases if (b := a.memory) is not None and b.storage in storages}
  buffers |= {u for a in live_aliases
              if (u := base_of(a.node)).op is Ops.BUFFER and u.arg.storage in storages and not u.arg.stale}
  wanted = _Wanted()
  for a in _readers(buffers, set(), set(but)):
    if not follows(a, storages): wanted.keep(a)
  wanted.add_earlier(buffers)
  if wanted.sinks: _compute(wanted, time.perf_counter())


@synchronized
def write_from_host(a: Alias, array: np.ndarray, what: str) -> bool:
  """Write numbers into an Alias's memory now, after whoever needs what is there. False, and nothing is done, where it has none or
  a write waits, and while ntgrad.jit runs a function, whose replays would not do it."""
  if (memory := a.memory) is None or a.pending or memory.storage.foreign or transfer_watchers: return False
  before_writing([memory.storage], [a])
  a.overwritten(what)
  a.memory.put(array)
  return True


@phase("scheduling")
def _compute(wanted: _Wanted, started: float) -> None:
  if not (sinks := wanted.sinks): return
  for o in observers: o.asked()
  next_look[0] = results[0] + MOST_RESULTS
  if config.debug >= 1: take_phase_seconds()
  checked: dict[UOp, device_asserts.Checks] = {}   # indices that are looked through, too
  walk = Walk()
  nodes, there = walk.nodes, walk.number
  count, before = 0, set[UOp]()
  while True:
    walk.add([n for s in list(sinks)[count:] for n in s if n is not None])   # of what has come
    count = len(sinks)
    if marked := [u for u in walk.noted if u.op is Ops.DETACH and u not in checked]:
      for a in look_through(marked, checked): wanted.add(a)
    if pending:   # writes that what is computed comes after
      ends = {b.arg.storage for u in walk.noted if u.op in CHANGES and (b := resolved(u.src[0])).op is Ops.BUFFER}
      for a in waiting():
        if a in wanted.aliases: continue
        if a.node in there or a.memory.storage in ends or _made_of_sums(a.node, there): wanted.add(a)
    if (pending or unplaced) and (calls := {_call(u) for u in walk.noted if u.op is Ops.CALL}):   # what else they write
      for a in (*waiting(), *homeless()):
        if a not in wanted.aliases and (made := _made_by_call(a.node)) is not None and _call(made) in calls: wanted.add(a)
    if unplaced:
      for a in homeless():
        if a not in wanted.aliases and not is_view(a.node) and _made_of_sums(a.node, there): wanted.add(a)
    if companions:
      for a in keeping.with_companions(there):
        if not is_view(a.node): wanted.add(a)
    for a, replaced in keeping.carried_numbers(there):
      if replaced:
        refuse_recording(f"a tensor of shape {a.node.shape} is made of one that it replaces, of numbers alone", "so a replay "
                         "would make the same again; change it in place (add_(), assign()), or pass it as an argument")
      if keeping.device_of(nodes) == Device.DEFAULT: wanted.add(a)   # of another one, others may be used with it yet
    if values_before_call:
      for u in nodes:
        before_call = values_before_call[u]() if u in values_before_call else None
        if before_call is not None and before_call.node is u and before_call not in wanted.aliases: wanted.ask(before_call, u)
    written = {t for _, t in sinks if t is not None and not device_asserts.checks_in((t.arg.storage,))}   # nobody reads notes
    if written != before:
      before = written
      for a in _readers(written, {s for s, _ in sinks if _known_by_node(s)}, wanted.aliases): wanted.keep(a)
      wanted.add_earlier(written)
    if len(sinks) == count: break
  alive = list(keeping.held_in(there, {resolved(s) for s, _ in sinks}))
  if keeping.lost.known: keeping.note_again(there)
  roots = keeping.to_be_differentiated([*wanted.aliases, *[a for _, a in alive]])
  walk.asked = origins.lines_asked({s: aliases for (s, _), aliases in sinks.items()})
  try: found, inputs = plan_of(list(sinks), walk, started, roots)
  except NtgradError as e:   # about no kernel that is known
    _blame(e, sinks, walk)
    raise
  plan, kept = found.plan, found.nodes_kept(walk)
  held = {found.places[i]: nodes[i] for i, _ in alive}
  together = any([target is not None for _, target in sinks])
  shown = config.debug >= 1
  try:
    if (together or shown or observers) and not plan.runs.launch:   # half of it would be neither the old values nor the new ones
      with phase("compiling"):
        for step in plan.steps:
          try:
            if step.program is not None: report.wait_until_compiled(step.program)   # what takes long, or is refused, comes before
          except NtgradError as e:
            _blame(e, sinks, walk, step)
            raise
    spent = [] if config.check_nan else _spent(inputs, wanted.aliases)
    if spent: plan = plan.releasing(spent)
    lines = _made_by(sinks, walk, plan) if observers or captures else ()
    with phase("running"):
      if together:
        with uninterrupted(): _perform(plan, inputs, sinks, kept, walk, lines)
      else: _perform(plan, inputs, sinks, kept, walk, lines)
      for i in spent: inputs[i].overwritten("what came after its gradients, which it was kept for")
  finally:
    if plan.again is not None: plan.again.make = None   # it keeps the graph
  if shown:
    with phase("running"):
      for name in {s.device for s in plan.steps}: get_device(name).synchronize()
    quick = sum([p.quick for p in {s.program for s in plan.steps} if p is not None])
    report.first_run(time.perf_counter() - started, take_phase_seconds(), quick)
  keeping.saved.update(base_of(u).arg for i, u in zip(plan.kept.places, kept) if i not in held and is_view(u))
  keeping.note(plan.kept, held)
  for c in checked.values(): device_asserts.watch(c)


def _spent(inputs: Sequence[Buffer], computed: Collection[Alias]) -> list[int]:
  """The places of inputs, where they are large, that were kept for gradients which are computed, and that nothing else needs."""
  if not keeping.due: return []
  mine = {b.storage: i for i, b in enumerate(inputs) if b in keeping.due}
  if sum([s.nbytes for s in mine]) < RELEASED_BYTES: return []
  known: dict[UOp, None] = {}
  for a in live_aliases:
    for u in () if a in computed else walk_nodes((a.node,), known):
      if u.op is Ops.BUFFER: mine.pop(u.arg.storage, None)
  return list(mine.values())


def _perform(plan: Plan, inputs: Sequence[Buffer], sinks: dict[tuple[UOp, UOp | None], list[Alias]], kept: Sequence[UOp],
             walk: Walk, lines: Sequence[Made]) -> None:
  """Run the plan of a graph, and note on each sink, its Aliases, and what is ``kept`` where the value is. Where a step fails that
  is so of what was computed before it, and the rest keeps its old value; so does all that is written where a value is not finite
  (``config.check_nan``)."""
  buffers: list[Any] = list(inputs)
  left = list(plan.steps[::-1])
  error: Exception | None = None
  saved = nan_checks.saved_memory({t.arg.storage for _, t in sinks if t is not None}) if config.check_nan else {}
  try:
    run_plan(plan, buffers, left, lines)
    if config.check_nan: nan_checks.check_schedule(list(sinks), walk, [buffers[s] for s in plan.outputs[:len(sinks)]], saved)
  except Exception as e:
    error = e
    _blame(e, sinks, walk, left[-1] if left else None)
  late = {step.slots[i] for step in left for i in step.writes}
  if undone := isinstance(error, NotFiniteError): nan_checks.restore(saved)   # no step writes what is not finite
  for ((sink, target), aliases), slot in zip(sinks.items(), plan.outputs):
    if undone and target is not None:
      for a in aliases: a.write(target, "a write that was taken back")
      continue
    if slot in late: continue
    buffer = buffers[slot] if target is None else target.arg.overwritten(aliases[0].place if aliases else "")
    if resolved(sink) is sink and _known_by_node(sink): buffer.is_value_of(sink)
    # those with more than a reshape come last: others may take the memory in their shape, and nobody may know it in an older one
    if len(aliases) > 1: aliases.sort(key=lambda a: [op for op, _, _ in moves_from_base(a.node)] not in ([], [Ops.RESHAPE]))
    for a in aliases: _settle(a, sink, None if target is None else buffer)
  for u, slot in zip(kept, plan.outputs[len(sinks):]):
    if slot not in late: buffers[slot].is_value_of(u)
  if error is None: return
  begun = {step.slots[i] for step in plan.steps[:len(plan.steps) - len(left)] for i in step.writes}
  for ((_, target), aliases), slot in zip(sinks.items(), plan.outputs):
    if target is None or slot not in late: continue
    if slot in begun:
      target.arg.overwritten(f"a part of a write that failed ({aliases[0].place if aliases else 'in several parts'})")
    elif any([b.stale for a in aliases for b in buffers_beneath(a.node)]):
      for a in aliases: a.write(target, "a write that failed")   # what it is computed from is gone: the old value is there
  try: raise error
  finally: error = None   # or this frame and the error would keep each other, and memory with them


def _made_by(sinks: Iterable[tuple[UOp, UOp | None]], walk: Walk, plan: Plan) -> Sequence[Made]:
  """The lines that each step of a plan is from; of one that is run again for the same line they are taken to be the same."""
  if not config.origins: return ()
  if (known := _lines[key := (id(plan), origins.origin_now(2))]) is not None and not captures: return known[1]
  with recipes_made(walk):
    order = Graph(sinks).order
    found = origins.of(order, {resolved(u): lines for u, lines in walk.asked.items()})
  made = [origins.lines_that_made([order[i] for i in step.nodes], found) for step in plan.steps]
  _lines[key] = plan, made
  return made


def _blame(error: Exception, sinks: Iterable[tuple[UOp, UOp | None]], walk: Walk, step: Step | None = None) -> None:
  """Say in a message which lines made what a step computes, or the sinks."""
  with recipes_made(walk):
    order = Graph(sinks).order
    nodes = [resolved(s) for s, _ in sinks] if step is None else [order[i] for i in step.nodes]
    origins.blame(error, nodes, order, {resolved(u): lines for u, lines in walk.asked.items()})


def _settle(a: Alias, sink: UOp, memory: Buffer | None) -> None:
  """An Alias's value has been computed, into its ``memory`` if it had some."""
  if memory is not None: return a.settle(memory.node, memory)
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
  while u.op in MOVEMENT or u.op is Ops.DETACH and u.src: u = resolved(u.src[0])
  return u


def _call(u: UOp) -> tuple[Any, ...]:
  """What the CALLs of one call have in common."""
  return u.arg[0], *u.src[1:]


def _made_by_call(u: UOp) -> UOp | None:
  """The CALL that a value is a result of, or a part of it; None for others."""
  u = base_of(u)
  if u.op is Ops.UPDATE: u = base_of(u.src[1])
  return u if u.op is Ops.CALL else None


def _made_of_sums(u: UOp, there: Collection[UOp]) -> bool:
  """Whether a node is made of a reduction that is computed anyway: a batch norm's statistics are, of those that it normalises by.
  Later they would need all that is beneath them computed again, and until then that would have to be kept."""
  stack, seen = [resolved(u)], set[UOp]()
  while stack and len(seen) < _NEAR:   # a long history of writes is not looked through at every realisation
    n = stack.pop()
    if n in seen: continue
    seen.add(n)
    if n.op is Ops.REDUCE_AXIS and n in there and n.device is not None: return True   # of numbers alone it is any device's
    if n.op is Ops.OUTPUT and n.src[0] in there: return True   # a gradient, most often, or a layer's statistics
    stack.extend([resolved(s) for s in n.src])
  return False


def _known_by_node(u: UOp) -> bool:
  """Whether who asks for a node finds its value once it is computed: not so memory itself, and numbers, which are everybody's."""
  return (u.is_unique or u.device is not None) and not is_view(u)


def _readers(written: set[UOp], done: set[UOp], have: Collection[Alias]) -> list[Alias]:
  """The Aliases (but ``have``) that still need BUFFERs about to be written; what is ``done`` will be there afterwards."""
  found, ends, clean, done = [], set(written), set[UOp](), done - written
  applied: dict[UOp, int] = {}
  for a in live_aliases:
    u = a.node
    if a in have or u.op is Ops.CONST or (u.op is Ops.BUFFER and u not in written) or (u in written and a.memory is u.arg):
      continue
    if _reaches(resolved(u), ends, done, clean, applied): found.append(a)
  return found


def _reaches(u: UOp, ends: set[UOp], stops: Collection[UOp], clean: set[UOp], applied: dict[UOp, int]) -> bool:
  """Whether one of ``ends`` lies beneath a node, not beneath ``stops``. ``ends`` gets the nodes that are found to reach them,
  ``clean`` those that do not, ``applied`` the bits of the sources of APPLYs that do not."""
  if u in ends: return True
  known_value = values.known.get   # as ``resolved``, without a call
  stack: list[Any] = [u]   # None after one whose sources are above it
  path: list[UOp] = []
  while stack:
    if (n := stack.pop()) is None:
      clean.add(n := path.pop())
      if n.op is Ops.OUTPUT: applied[n.src[0]] = applied.get(n.src[0], 0) | n.src[0].arg.reads[n.arg]
      continue
    if n in clean or n in stops: continue
    path.append(n)
    stack.append(None)
    for s in sources_of_output(n, applied.get(n.src[0], 0)) if n.op is Ops.OUTPUT else n.src:
      if (entry := known_value(id(s))) is not None and entry() is s: s = entry.value
      if s in ends:
        ends.update(path)
        return True
      if s.src and s not in clean: stack.append(s)
  return False


def run_plan(plan: Plan, buffers: list[Any], left: list[Step], lines: Sequence[Made] = ()) -> None:
  """Run the steps on ``buffers``, one for each input, which get those that the plan makes. A plan that has been found twice is
  one call, else inner buffers are released after their last use. ``left``: the steps to run, the next one last. ``lines``: those
  that each step is from, where somebody is told."""
  wait = report.timing(plan.steps, lines)
  if not (wait or captures or transfer_watchers) and plan.runs.due(FOUND) and at_once(plan, buffers, FOUND):
    counters.count_launches(plan.steps)
    for o in observers: o.written(_written(plan, buffers, lines))
    return left.clear()
  buffers += [Buffer(*m) for m in plan.made]
  note_place([b.storage for b in buffers[plan.inputs:]])
  for o in observers: o.written(_written(plan, buffers, lines))
  for w in transfer_watchers:
    for step in plan.steps: w.refuse(step, [buffers[s] for s in step.slots])
  counters.count_launches(plan.steps)
  try:
    for i, step in enumerate(plan.steps):
      run_step(step, [buffers[s] for s in step.slots], wait, lines[i] if lines else ())
      for s in step.last_use: buffers[s].storage.release()
      del left[-1]
  except OutOfMemoryError as e:
    made: dict[Hashable, int] = {i: prod(shape) * dtype.itemsize for i, (_, shape, dtype) in enumerate(plan.made, plan.inputs)}
    most, read = memory_plan.peak(plan.uses(), made), sum(s.nbytes for s in {b.storage for b in buffers[:plan.inputs]})
    raise OutOfMemoryError(
      f"{e}\nthe schedule that ran (of {len(plan.steps)} kernels) takes {most:,} bytes at most, beside the {read:,} that it "
      "reads; smaller batches, or fewer tensors that are kept, take less") from None


def _written(plan: Plan, buffers: Sequence[Any], lines: Sequence[Made]) -> list[tuple[Storage, Made]]:
  """The memory that steps write, with the lines that each is from."""
  return [(b.storage, made) for s, made in zip(plan.steps, lines) for i in s.writes if (b := buffers[s.slots[i]]) is not None]


def run_step(step: Step, buffers: Sequence[Buffer], wait: bool, made: Made = ()) -> None:
  """Launch one step; with ``wait`` see how long it takes, and report that. ``made``: the lines that it is from."""
  made_now[0] = made
  for note in captures: note(step, buffers)
  step.launch(buffers, wait)
