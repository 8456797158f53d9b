"""The first NaN, or infinity (``config.check_nan``). What a schedule, a replay or a kernel gives is looked through on its device
when all of it has been launched. What they write over is copied before. So where something is found, it is computed again: step
by step, to find the one that made it, and that one's nodes each by itself, to find the operation."""
from __future__ import annotations

from functools import reduce
from typing import Any, Callable, Collection, Iterable, Mapping, Sequence

import numpy as np

from ntgrad.backends.base import Argument
from ntgrad.codegen.explain.printing import dtype_name
from ntgrad.codegen.ir import BinaryOps, DType, NotFiniteError, Ops, Recent, TernaryOps, UOp, config, dtypes, prod, toposort
from ntgrad.graph import caller, nodes as graph, origins
from ntgrad.schedule import ScheduleItem, schedule_graph
from ntgrad.schedule.placement import storage

from . import memory_plan
from .buffer import Buffer, Storage, copy_between, resolved, walk_nodes
from .compile import programs
from .device import get_device
from .keeping import cleaned, device_of
from .launch_graphs import Launched, LaunchList
from .memory_plan import MemoryUse
from .plan import Step
from .planner import Graph, Walk, make_plan, recipes_made

_KINDS = "NaN", "inf"
_SAME = frozenset({Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE, Ops.DETACH})   # which show the same numbers
# operations that make numbers; all others, and choices, hand on some that there are
_MAKES = frozenset({Ops.ALU, Ops.CAST, Ops.REDUCE_AXIS, Ops.SCAN_AXIS, Ops.SCATTER, Ops.CALL})
_Memory = Mapping[UOp, Buffer]
_Sinks = Sequence[tuple[UOp, UOp | None]]
_Saved = Mapping[Storage, tuple[Storage, int]]   # of memory: where a copy of it begins
# of what operation makes such values of finite ones, and what helps
_HELP = {
  "div recip log log2 rsqrt pow": "keep 0 away from it: add a small number (1e-6) before, to a standard deviation or in a sqrt",
  "exp exp2": "subtract the greatest value before, as softmax and logsumexp do",
  "sqrt": "keep it from negative numbers: clamp(min=0)",
  "cast": "the values are too large for that dtype: scale them, or use bfloat16 or float32"}
_GREW = "the values have grown so much before: a smaller learning rate, or nn.utils.clip_grad_norm_ on the gradients"
_LARGE = 1e15   # a number from which on values are too large
PIECE_BYTES = 64 << 20   # bytes, about, of which copies lie in one piece of memory


_calls: Recent[Any, tuple[LaunchList, Sequence[int], int]] = Recent(256)


def _call(what: str, device: str, sizes: Sequence[tuple[int, DType]]) -> tuple[LaunchList, Sequence[int], int]:
  """What copies memory of these sizes, or sees whether any there has NaN, or infinities: launches on that, and on one allocation
  for all that they make; where the results begin in it, the first of them at 0; its bytes."""
  given = [Buffer(device, (n,), dtype).node for n, dtype in sizes]
  if what == "copy": nodes = [graph.or_(u, 0) for u in given]
  else: nodes = [reduce(graph.or_, [_reduced(BinaryOps.OR, _bad(u, what)) for u in given])]
  plan = make_plan([(u, None) for u in nodes], walk_nodes(nodes), given)
  life = plan.lifetimes()
  results = [life.pop(s) for s in plan.outputs]
  begins = memory_plan.room_begins(results)[:-1]
  offsets, nbytes = memory_plan.arrange([*life.values()], results)
  args = [Argument(s) for s in range(len(given) + len(plan.made))]
  for s, x, at in zip([*plan.outputs, *life], [*results, *life.values()], [*begins, *offsets]):
    args[s] = Argument(len(given), at, memory_plan.rounded(x.nbytes))
  launches = LaunchList([Launched(p.clone(), get_device(device), [args[s] for s in step.slots], step.sizes)
                         for step in plan.steps if (p := step.program) is not None])
  launches.make_graphs([MemoryUse((0,), (0,))] * len(plan.steps))   # one after another
  return launches, begins, nbytes


def _made(what: str, device: str, given: Mapping[Storage, tuple[int, DType]]) -> tuple[Storage, Sequence[int]]:
  """Memory with what ``_call`` finds of some, and where in it that begins."""
  if (found := _calls[key := (what, device, tuple(given.values()))]) is None: found = _calls[key] = _call(*key)
  launches, begins, nbytes = found
  launches([*[s.raw for s in given], (made := Storage(device, nbytes)).raw])
  launches.parts.clear()   # they would keep it
  return made, begins


def saved_memory(storages: Iterable[Storage]) -> _Saved:
  """Copies of memory that is about to be written over."""
  out, size = dict[Storage, tuple[Storage, int]](), 0
  groups: dict[tuple[str, int], dict[Storage, tuple[int, DType]]] = {}
  for s in [s for s in storages if s._raw is not None and s.nbytes]:
    size += (n := s.nbytes)
    groups.setdefault((s.device, size // PIECE_BYTES), {})[s] = (n, dtypes.uint8) if n % 4 else (n // 4, dtypes.int32)
  for (device, _), mine in groups.items():
    made, begins = _made("copy", device, mine)
    out.update(zip(mine, [(made, at) for at in begins]))
  return out


def copy(to: Storage, source: tuple[Storage, int]) -> None:
  """Copy as many bytes as the first one has, from a place in the other."""
  device, (memory, at) = get_device(to.device), source
  copy_between(device, to.raw, device, device.part(memory.raw, at, memory_plan.rounded(to.nbytes)), to.nbytes)


def restore(saved: _Saved) -> None:
  """Give memory the values that were saved of it."""
  for written, before in saved.items(): copy(written, before)


def kind_in(buffers: Sequence[Buffer]) -> str:
  """What ``config.check_nan`` asks for and is there in memory: "NaN", else "inf"; "" for nothing."""
  return next((kind for kind in _KINDS[:config.check_nan] if _there(buffers, kind)), "")


def _there(buffers: Sequence[Buffer], kind: str) -> bool:
  """Whether some value in memory is NaN, or infinite."""
  floats = {b.storage: b for b in buffers if b.dtype.kind == "f" and b.size}
  made = [_made(kind, device, {s: (int(b.size), b.dtype) for s, b in floats.items() if s.device == device})[0]
          for device in {s.device for s in floats}]
  return any([get_device(m.device).copyout(m.raw, 1)[0] for m in made])


def _bad(u: UOp, kind: str) -> UOp:
  if u.dtype.kind != "f" or u.dtype.itemsize < 4: u = graph.cast(u, dtypes.float32)
  return graph.isnan(u) if kind == "NaN" else graph.eq(graph.absolute(u), np.inf)


def _reduced(fn: BinaryOps, u: UOp) -> UOp: return graph.reduce(fn, graph.reshape(u, (prod(u.shape),)), (0,))


def _numbers(u: UOp) -> list[UOp]:
  """How many values are NaN, how many infinite, the least and the greatest of the others."""
  bad = [_bad(u, kind) for kind in _KINDS]
  x = u if u.dtype.kind == "f" else graph.cast(u, dtypes.float32)
  ends = [_reduced(fn, graph.where(graph.or_(*bad), fill, x)) for fn, fill in ((BinaryOps.MIN, np.inf), (BinaryOps.MAX, -np.inf))]
  return [*[_reduced(BinaryOps.ADD, graph.cast(b, dtypes.int64)) for b in bad], *ends]


def check_kernel(name: str, names: Sequence[str], step: Step, buffers: Sequence[Buffer]) -> None:
  """Raises NotFiniteError where a kernel that was launched by itself has written values that are not finite."""
  if not (kind := kind_in([buffers[i] for i in step.writes])): return
  search = _Search([], [b.node for b in buffers], {}, kind)
  read = [i for i, b in enumerate(buffers) if i not in step.writes and b.dtype.kind in "iuf" and b.size]
  ranges = dict(zip(read, search.ranges([buffers[i].node for i in read], {})))
  if kind == "inf" and any(n[1] for n, _ in ranges.values()): return   # it was given
  raise NotFiniteError("\n".join([f"kernel {name} gives {kind}, called at {caller()}",
                          *[f"  {names[i]}: {text}" for i, (_, text) in ranges.items()]]))


def check_schedule(sinks: _Sinks, walk: Walk, values: Sequence[Buffer], saved: _Saved) -> None:
  """Raises NotFiniteError where the ``values`` of a schedule that has run are not finite, and some operation is to blame.
  ``saved``: what it has written over."""
  if not (kind := kind_in(values)): return
  with recipes_made(walk): found = _Search(sinks, Graph(sinks).order, saved, kind).text()
  if not found: return
  error = NotFiniteError(found)
  error.__dict__["blamed"] = True   # no other line is added
  raise error


class _Search:
  """Computes sinks again, from memory as it was, and finds what made a value that is not finite."""

  def __init__(self, sinks: _Sinks, order: Sequence[UOp], saved: _Saved, kind: str):
    clean = cleaned(order, {})
    for u, n in clean.items(): origins.carry(u, n)
    self.order, self.saved, self.kind, self.device = list(clean.values()), saved, kind, device_of(order)
    self.sinks = [(clean[resolved(s)], t) for s, t in sinks]
    self.inputs = [u for u in order if u.op is Ops.BUFFER]
    self.stands: dict[UOp, UOp] = {}   # the given node for each node of kernels

  def run(self, sinks: _Sinks, more: _Memory, tell: Callable[..., None] = lambda *_: None,
          stands: dict[UOp, UOp] | None = None) -> list[tuple[UOp, Buffer]]:
    """Compute sinks from the inputs as they were and ``more`` memory; ``tell`` is told of each step. Gives for each sink the node
    of the memory that has its value, and that memory."""
    ready, items = schedule_graph(sinks, get_device(self.device).renderer.target, stands)
    ends = [storage(r) if t is None else t for r, (_, t) in zip(ready, sinks)]
    last = {n: i for i, item in enumerate(items) for n in item.nodes}
    memory = {u: u.arg for u in self.inputs} | dict(more)
    for u in [u for u in self.inputs if u.arg.storage in self.saved and (u in last or u in ends)]:
      memory[u] = Buffer(u.arg.device, u.arg.shape, u.arg.dtype)
      copy(memory[u].storage, self.saved[u.arg.storage])
    for i, item in enumerate(items):
      name, call = item.nodes[0].device or self.device, item.call
      program = call.program if call is not None else programs([item.ast], get_device(name))[0] if item.ast is not None else None
      for n in item.nodes:
        if n not in memory: memory[n] = Buffer(n.device or self.device, n.shape, n.dtype)
      step = Step(program, (), item.written, (), name, item.offsets, call.step.sizes if call else ())
      step.launch([memory[n] for n in item.nodes])
      tell(i, item, memory)
      for n in item.nodes:
        if last[n] == i and n not in ends: memory.pop(n, None)
    return [(n, memory[n]) for n in ends]

  def ranges(self, nodes: Sequence[UOp], more: _Memory) -> list[tuple[tuple[float, ...], str]]:
    """Of each node what ``_numbers`` says, and that in words: ``float (2, 3), from -1 to 4, 2 NaN, no inf``."""
    each = list(dict.fromkeys([x for u in nodes for x in _numbers(u)]))
    found = {x: b.get().item() for x, (_, b) in zip(each, self.run([(x, None) for x in each], more))}
    out = []
    for u in nodes:
      nan, inf, low, high = numbers = tuple([found[x] for x in _numbers(u)])
      ends = f"from {low:.6g} to {high:.6g}, " if nan + inf < prod(u.shape) else ""
      out.append((numbers, f"{dtype_name(u.dtype)} {u.shape}, {ends}{nan or 'no'} NaN, {inf or 'no'} inf"))
    return out

  def text(self) -> str:
    """What to say; "" where nothing is to blame."""
    writers: dict[UOp, int] = {}               # of memory that has such values: the step that wrote them
    sources: dict[int, Collection[int]] = {}   # of a step that wrote some: the steps that made those it read
    texts: dict[int, str] = {}                 # of one that read none, what to say of it

    def noted(i: int, item: ScheduleItem, memory: _Memory) -> None:
      read = {writers[n] for n in item.nodes if n in writers}
      for n in [item.nodes[k] for k in item.written]:
        writers.pop(n, None)
        if _there([memory[n]], self.kind): sources[i], writers[n] = read, i
      if i in sources and not read: texts[i] = self.within(item, memory)

    todo, seen = [writers[n] for n, _ in self.run(self.sinks, {}, noted, self.stands) if n in writers], set[int]()
    while todo:
      if (i := todo.pop()) not in seen: todo += sources[i]
      seen.add(i)
    return texts[min(seen & texts.keys())] if seen else f"a schedule gave {self.kind}, and did not when it ran again"

  def within(self, item: ScheduleItem, memory: _Memory) -> str:
    """What to say of a step that made such values of finite ones, with the memory that it read."""
    same: dict[UOp, UOp] = {}    # of nodes of kernels that stand for a given one the first is it, others are parts of it
    for n, g in self.stands.items(): same.setdefault(g, n)
    known: dict[UOp, UOp] = {}   # nodes whose values it read
    for n in item.nodes:
      g = self.stands.get(n, n)
      if same.get(g) is n and n.op is not Ops.BUFFER and n not in item.writes and prod(g.shape) == prod(n.shape):
        known[g] = graph.reshape(memory[n].node, g.shape)
    more = {memory[n].node: memory[n] for n in item.nodes if n.op is not Ops.BUFFER}
    tops, places = [self.stands[w] for w in item.writes if w in self.stands], origins.of(self.order)
    nodes, new = toposort([*item.given, *tops], stop=known.__contains__), dict[UOp, UOp]()
    for u in nodes: new[u] = known.get(u) or (u.replace(tuple([new[s] for s in u.src])) if u.src else u)
    shown: dict[Any, UOp] = {u: new[u] for u in nodes if u.dtype.kind in "iuf" and prod(u.shape)}
    for u in [u for u in nodes if u.arg is TernaryOps.WHERE and u in shown and u not in known]:   # each side where it is chosen
      c, a, b = [new[s] for s in u.src]
      shown[u, u.src[1]], shown[u, u.src[2]] = graph.where(c, a, 0), graph.where(c, 0, b)
    said = dict(zip(shown, self.ranges(list(shown.values()), more)))
    def bad(u: Any) -> bool: return u in said and said[u][0][_KINDS.index(self.kind)] > 0
    def makes(u: UOp) -> bool: return u.op in _MAKES and u.arg is not TernaryOps.WHERE and u not in known
    todo, seen = [(u, u) for u in tops if bad(u)], set[tuple[UOp, UOp]]()   # and the operation that reads it
    if not todo: return f"a kernel makes {self.kind} that computes what was made at {origins.lines(item.given, places)}"
    made, given = list[UOp](), list[UOp]()
    while todo:
      if (now := todo.pop()) in seen: continue
      seen.add(now)
      u, above = now
      sources = [s for s in u.src if u not in known and bad((u, s) if (u, s) in said else s)]
      todo += [(s, u if makes(u) else above) for s in sources]
      if not sources and makes(u): made.append(u)
      elif not sources and makes(above) and self.kind == "NaN": given.append(above)
    if not made and not given: return ""   # it was only moved
    u = min(made or given, key=nodes.index)
    lines, fn = origins.lines([u], places) or origins.lines(item.given, places), u.arg[0] if isinstance(u.arg, tuple) else u.arg
    name = f"kernel {fn.kernel}" if u.op is Ops.CALL else getattr(fn, "name", u.op.name).lower()
    backward = "gradient of " in lines or "<code object backward at" in repr(places.get(u))   # the latter of a Function
    out = [f"{name} {'makes' if made else 'reads, from memory,'} {self.kind}, in the {'back' if backward else 'for'}ward pass"
           f"{f', at {lines}' if lines else ''}", f"  result: {said[u][1]}"]
    infinite, ends = None, (0.0, 0.0)   # the input that is infinite; between which numbers the inputs are
    for s in u.src:
      while s.op in _SAME and s.src[0] in said: s = s.src[0]
      if s not in said: continue
      out.append(f"  input {len(out) - 2}: {said[s][1]}")
      if said[s][0][1] and self.kind == "NaN": infinite = infinite or s
      ends = min(ends[0], said[s][0][2]), max(ends[1], said[s][0][3])
    if infinite is not None and (before := _Search([(infinite, None)], walk_nodes((infinite,)), self.saved, "inf").text()):
      out += ["before that", before]
    elif made:
      grew = _GREW if max(map(abs, ends)) > _LARGE else ""
      if helps := next((text for names, text in _HELP.items() if name in names.split()), grew):
        out.append(f"what may help: {helps}")
    return "\n".join(out)
