"""The first NaN, or infinity (``config.check_nan``). What a schedule, a replay or a kernel gives is looked through on its device
when all of it has been launched. What they write over is copied before. So where something is found, it is computed again: step
by step, to find the one that made it, and that one's nodes each by itself, to find the operation."""
from __future__ import annotations

from typing import Any, Callable, Collection, Iterable, Mapping, Sequence

import numpy as np

from ntgrad.codegen.explain.printing import dtype_name
from ntgrad.codegen.ir import BinaryOps, NotFiniteError, Ops, Recent, TernaryOps, UOp, config, dtypes, prod, toposort
from ntgrad.graph import caller, nodes as graph, origins
from ntgrad.schedule import ScheduleItem, schedule_graph
from ntgrad.schedule.placement import storage

from .buffer import Buffer, Storage, copy_between, resolved, walk_nodes
from .compile import programs
from .device import get_device
from .keeping import cleaned, device_of
from .plan import Plan, Step
from .planner import Graph, Walk, make_plan, recipes_made

_KINDS = "NaN", "inf"
_SAME = frozenset({Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE, Ops.DETACH})   # which show the same numbers
# operations that make numbers; all others hand on some that there are
_MAKES = frozenset({Ops.ALU, Ops.CAST, Ops.REDUCE_AXIS, Ops.SCAN_AXIS, Ops.SCATTER, Ops.CALL})

_Sinks = Sequence[tuple[UOp, UOp | None]]
_Flags = dict[UOp, bool]
_looks: Recent[Any, Plan] = Recent(256)   # kernels that look through memory, by its sizes and dtypes


# ---- looking
def saved_memory(storages: Iterable[Storage]) -> dict[Storage, Storage]:
  """Copies of memory that is about to be written over."""
  out = {}
  for s in storages:
    if s._raw is None: continue
    device, new = get_device(s.device), Storage(s.device, s.nbytes)
    copy_between(device, new.raw, device, s.raw, s.nbytes)
    out[s] = new
  return out


def put_back(saved: Mapping[Storage, Storage]) -> None:
  """Memory as it was when it was copied."""
  for s, old in saved.items(): copy_between(get_device(s.device), s.raw, get_device(s.device), old.raw, s.nbytes)


def kind_in(buffers: Iterable[Buffer]) -> str:
  """What ``config.check_nan`` asks for and is there in memory: "NaN", else "inf"; "" for nothing."""
  each = list(buffers)
  return next((kind for kind in _KINDS[:config.check_nan] if _there(each, kind)), "")


def _there(buffers: Sequence[Buffer], kind: str) -> bool:
  """Whether some value in memory is NaN, or infinite. One number is read for all that a device has."""
  floats = {b.storage: b for b in buffers if b.dtype.kind == "f" and b.size}
  for device in {b.device for b in floats.values()}:
    mine = [b for b in floats.values() if b.device == device]
    key = kind, device, tuple([(int(b.size), b.dtype) for b in mine])
    if (plan := _looks[key]) is None:
      given = [Buffer(device, (int(b.size),), b.dtype).node for b in mine]
      plan = _looks[key] = _look(given, kind)
    memory = [*mine, *[Buffer(*m) for m in plan.made]]
    for step in plan.steps: step.launch([memory[s] for s in step.slots])
    if memory[plan.outputs[0]].get().any(): return True
  return False


def _look(given: Sequence[UOp], kind: str) -> Plan:
  """The plan that looks through so many buffers; a kernel takes the results of 32."""
  flags = [_any(u, kind) for u in given]
  while len(flags) > 1: flags = [graph.contiguous(_either(flags[i:i + 32])) for i in range(0, len(flags), 32)]
  return make_plan([(flags[0], None)], walk_nodes(flags), list(given))


def _either(flags: Sequence[UOp]) -> UOp:
  out = flags[0]
  for f in flags[1:]: out = graph.or_(out, f)
  return out


def _bad(u: UOp, kind: str) -> UOp:
  if u.dtype.itemsize < 4: u = graph.cast(u, dtypes.float32)
  return graph.isnan(u) if kind == "NaN" else graph.eq(graph.absolute(u), np.inf)


def _reduced(fn: BinaryOps, u: UOp) -> UOp: return graph.reduce(fn, graph.reshape(u, (prod(u.shape),)), (0,))


def _any(u: UOp, kind: str) -> UOp: return graph.cast(_reduced(BinaryOps.OR, _bad(u, kind)), dtypes.int32)


# ---- finding what made it
def check_schedule(sinks: _Sinks, walk: Walk, values: Sequence[Buffer], saved: Mapping[Storage, Storage]) -> None:
  """Raises NotFiniteError where the ``values`` of a schedule that has run are not finite, and some operation is to blame.
  ``saved``: what it has written over."""
  if not (kind := kind_in(values)): return
  with recipes_made(walk):
    order = Graph([n for s in sinks for n in s if n is not None]).order
    found = _Search(sinks, order, saved, kind).text()
  if found: raise blamed(found)


def check_kernel(name: str, names: Sequence[str], step: Step, buffers: Sequence[Buffer],
                 saved: Mapping[Storage, Storage]) -> None:
  """The same of a kernel of somebody's own that has been launched by itself. What it writes and something was in before counts
  where it writes it over zeros, too."""
  if not (kind := kind_in([buffers[i] for i in step.writes])): return
  def bad(a: np.ndarray) -> bool: return bool((np.isnan if kind == "NaN" else np.isinf)(a.astype(np.float64)).any())
  before = [b if b.storage not in saved else Buffer(b.device, b.shape, b.dtype, saved[b.storage]) for b in buffers]
  held = [i for i, b in enumerate(before) if b.dtype.kind == "f" and bad(b.get())]
  if any(i in held for i in step.writes):
    zeros = [Buffer(b.device, b.shape, b.dtype) if i in step.writes else b for i, b in enumerate(buffers)]
    for i in step.writes: zeros[i].put(np.zeros(zeros[i].shape, zeros[i].dtype.np))
    step.launch(zeros)
    if not _there([zeros[i] for i in step.writes], kind): return
  read = [i for i in held if i not in step.writes]
  if read and kind == "inf": return
  search = _Search([], [b.node for b in before], {}, kind)
  ranges = [f"  {n}: {search.range_of(b.node, {})}" for n, b in zip(names, before)]
  how = f"reads {kind}, in {names[read[0]]}, and gives {kind}" if read else f"makes {kind}"
  raise blamed("\n".join([f"kernel {name} {how}, called at {caller()}", *ranges]))


def blamed(text: str) -> NotFiniteError:
  """The error, to which no other line of the user's is added."""
  error = NotFiniteError(text)
  error.__dict__["blamed"] = True
  return error


class _Search:
  """Computes sinks again, from memory as it was, and finds what made a value that is not finite."""

  def __init__(self, sinks: _Sinks, order: Sequence[UOp], saved: Mapping[Storage, Storage], kind: str):
    clean = cleaned(order, {})
    for u, n in clean.items(): origins.carry(u, n)
    self.order, self.saved, self.kind, self.device = list(clean.values()), saved, kind, device_of(order)
    self.sinks = [(clean[resolved(s)], t) for s, t in sinks]
    self.inputs = [u for u in order if u.op is Ops.BUFFER]
    self.stands: dict[UOp, UOp] = {}   # the given node for each node of kernels

  def text(self) -> str:
    """What to say; "" where nothing is to blame."""
    writers: dict[UOp, int] = {}               # of memory that has such values: the step that wrote them
    sources: dict[int, Collection[int]] = {}   # of a step that wrote some: the steps that made those it read

    def noted(i: int, item: ScheduleItem, memory: Mapping[UOp, Buffer]) -> bool:
      read = {writers[n] for n in item.nodes if n in writers}
      for n in [item.nodes[k] for k in item.written]:
        writers.pop(n, None)
        if not _there([memory[n]], self.kind): continue
        sources[i], writers[n] = read, i
      return False

    ends = self.run(self.sinks, {}, noted, self.stands)
    todo, seen = [writers[n] for n, _ in ends if n in writers], set[int]()
    while todo:
      if (i := todo.pop()) in seen: continue
      seen.add(i)
      todo += sources[i]
    made = [i for i in seen if not sources[i]]
    if not made: return f"a schedule gave {self.kind}, and did not when it was computed again, step by step"
    at: list[tuple[ScheduleItem, Mapping[UOp, Buffer]]] = []
    def reached(i: int, item: ScheduleItem, memory: Mapping[UOp, Buffer]) -> bool:
      if i == min(made): at.append((item, memory))
      return bool(at)
    self.run(self.sinks, {}, reached)
    return self.within(*at[0])

  def run(self, sinks: _Sinks, more: Mapping[UOp, Buffer], tell: Callable[..., bool] | None = None,
          stands: dict[UOp, UOp] | None = None) -> list[tuple[UOp, Buffer | None]]:
    """Compute sinks from the inputs as they were and ``more`` memory; ``tell`` is told of each step, and may end it. Gives for
    each sink the node of the memory that has its value, and that memory."""
    ready, items = schedule_graph(sinks, get_device(self.device).renderer.target, stands)
    ends = [storage(r) if t is None else t for r, (_, t) in zip(ready, sinks)]
    last = {n: i for i, item in enumerate(items) for n in item.nodes}
    memory = {u: self.as_it_was(u.arg) for u in self.inputs if u in last or u in ends} | dict(more)
    for i, item in enumerate(items):
      name, sizes = item.nodes[0].device or self.device, ()
      program: Any = None
      if item.call is not None: program, sizes = item.call.program, item.call.step.sizes
      elif item.ast is not None: program = programs([item.ast], get_device(name))[0]
      for n in item.nodes:
        if n not in memory: memory[n] = Buffer(n.device or self.device, n.shape, n.dtype)
      Step(program, (), item.written, (), name, item.offsets, sizes).launch([memory[n] for n in item.nodes])
      if tell is not None and tell(i, item, memory): break
      for n in item.nodes:
        if last[n] == i and n not in ends: memory.pop(n, None)
    return [(n, memory.get(n)) for n in ends]

  def as_it_was(self, b: Buffer) -> Buffer:
    """An input before the schedule ran; a copy where it is written over."""
    if (old := self.saved.get(b.storage)) is None: return b
    new, device = Buffer(b.device, b.shape, b.dtype), get_device(b.device)
    copy_between(device, new.raw, device, old.raw, b.nbytes)
    return new

  def numbers(self, nodes: Sequence[UOp], more: Mapping[UOp, Buffer]) -> list[Any]:
    """What nodes of one element are."""
    each = list(dict.fromkeys(nodes))
    found = {u: b.get().item() for u, (_, b) in zip(each, self.run([(u, None) for u in each], more)) if b is not None}
    return [found[u] for u in nodes]

  def within(self, item: ScheduleItem, memory: Mapping[UOp, Buffer]) -> str:
    """What to say of a step that made such values of finite ones, with the memory that it read."""
    same: dict[UOp, UOp] = {}    # of nodes of kernels that stand for a given one the first is it, others are parts of it
    for n, g in self.stands.items(): same.setdefault(g, n)
    known: dict[UOp, UOp] = {}   # nodes whose values it read
    for n in item.nodes:
      g = self.stands.get(n, n)
      if same.get(g) is n and n.op is not Ops.BUFFER and n not in item.writes and prod(g.shape) == prod(n.shape):
        known[g] = graph.reshape(memory[n].node, g.shape)
    more = {memory[n].node: memory[n] for n in item.nodes if n.op is not Ops.BUFFER}
    tops = [self.stands[w] for w in item.writes if w in self.stands]
    nodes = toposort([*item.given, *tops], stop=known.__contains__)
    new: dict[UOp, UOp] = {}
    for u in nodes: new[u] = known.get(u) or (u.replace(tuple([new[s] for s in u.src])) if u.src else u)
    # of a choice, each side where it is chosen
    shown: dict[tuple[UOp, UOp], UOp] = {}
    for u in nodes:
      if u.arg is TernaryOps.WHERE and u.dtype.kind == "f" and u not in known:
        c, a, b = [new[s] for s in u.src]
        shown[u, u.src[1]], shown[u, u.src[2]] = graph.where(c, a, 0.0), graph.where(c, 0.0, b)
    floats = [u for u in nodes if u.dtype.kind == "f" and prod(u.shape)]
    flags = self.numbers([_any(x, self.kind) for x in (*[new[u] for u in floats], *shown.values())], more)
    bad = dict(zip([*floats, *shown], flags))
    todo = [(u, u) for u in tops if bad.get(u)]
    if not todo:   # not with these kernels, which round otherwise
      return f"a kernel makes {self.kind} that computes what was made at {origins.lines(item.given, origins.of(self.order))}"
    makers, given = list[UOp](), list[UOp]()
    seen = set[tuple[UOp, UOp]]()
    while todo:
      if (now := todo.pop()) in seen: continue
      seen.add(now)
      u, above = now   # and the operation that reads it
      makes = u.op in _MAKES and u.arg is not TernaryOps.WHERE and u not in known
      sources = [] if u in known else [s for s in u.src if bad.get((u, s), bad.get(s))]
      if sources: todo += [(s, u if makes else above) for s in sources]
      elif makes: makers.append(u)
      elif above.op in _MAKES and above.arg is not TernaryOps.WHERE and self.kind == "NaN": given.append(above)
    if not makers and not given: return ""   # it was only moved
    u = min(makers or given, key=nodes.index)
    return self.said(u, bool(makers), new, more)

  def said(self, u: UOp, made: bool, new: Mapping[UOp, UOp], more: Mapping[UOp, Buffer]) -> str:
    """The message about an operation."""
    places = origins.of(self.order)
    lines = origins.lines([u], places)
    name = getattr(u.arg[0] if isinstance(u.arg, tuple) else u.arg, "name", u.op.name).lower()
    if u.op is Ops.CALL: name = f"kernel {u.arg[0].kernel}"
    by_hand = "<code object backward at" in repr(places.get(u))   # of a Function
    where = "the backward pass" if by_hand or "gradient of " in lines else "the forward pass"
    read = []
    for s in u.src:
      while s.op in _SAME and s.src[0] in new: s = s.src[0]
      if s.dtype.kind in "iuf" and prod(s.shape): read.append(s)
    result, *ranges = [self.range_of(new[s], more) for s in (u, *read)]
    head = f"{name} makes {self.kind}" if made else f"{name} reads {self.kind} that was in memory when the schedule began"
    out = [f"{head}, in {where}{f', at {lines}' if lines else ''}", f"  result: {result}"]
    out += [f"  input {i}: {r}" for i, r in enumerate(ranges)]
    infinite = next((s for s, r in zip(read, ranges) if not r.endswith("no inf") and s.dtype.kind == "f"), None)
    if self.kind == "NaN" and infinite is not None and (
      earlier := _Search([(infinite, None)], walk_nodes((infinite,)), self.saved, "inf").text()): out += ["before that", earlier]
    return "\n".join(out)

  def range_of(self, u: UOp, more: Mapping[UOp, Buffer]) -> str:
    """A value in words: ``float (2, 3), from -1 to 4, 2 NaN, no inf``."""
    n, head = prod(u.shape), f"{dtype_name(u.dtype)} {u.shape}"
    if u.dtype.kind != "f":
      low, high = self.numbers([_reduced(fn, u) for fn in (BinaryOps.MIN, BinaryOps.MAX)], more)
      return f"{head}, from {low} to {high}"
    bad = {kind: _bad(u, kind) for kind in _KINDS}
    either = graph.or_(*bad.values())
    ends = [_reduced(fn, graph.where(either, fill, u)) for fn, fill in ((BinaryOps.MIN, np.inf), (BinaryOps.MAX, -np.inf))]
    counts = [_reduced(BinaryOps.ADD, graph.cast(b, dtypes.int64)) for b in bad.values()]
    low, high, *each = self.numbers([*ends, *counts], more)
    said = ", ".join(f"{count or 'no'} {kind}" for kind, count in zip(bad, each))
    return f"{head}, {f'from {low:.6g} to {high:.6g}, ' if sum(each) < n else ''}{said}"
