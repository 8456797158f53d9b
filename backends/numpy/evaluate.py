"""Evaluates a linear program: SPECIALs are array axes, vector lanes the last axis, LOOP is a Python ``for``.

All programs of a chunk of the grid run in lockstep, so a value is an array that broadcasts over
``(group axes.., local axes.., lanes)``; an axis that it does not depend on has size 1. IF is a mask over the programs.
"""
from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Iterable, Iterator, Mapping, NamedTuple, NoReturn, Sequence
from weakref import WeakValueDictionary

import numpy as np

from ntgrad.codegen.index import Dim, Size, evaluator
from ntgrad.codegen.ir import Ops, RaceError, UOp, VerifyError, dtypes, step_of
from ntgrad.codegen.kernel import UOpList, accumulator, orders

from ..writer import touched
from .functions import cast, function
from .memory import Array, Memory, Tracker

CHUNK = 1 << 18  # elements of the largest intermediate
# by the number of a PRINT that stops: what to call with the program's place and the blocks. Whoever made the kernel keeps it
breakpoints: WeakValueDictionary[int, Callable[[tuple[int, ...], list[Array]], None]] = WeakValueDictionary()


@dataclass(eq=False)
class Line:
  """A node of the listing, as a :class:`Chunk` runs it."""
  run: Callable[[Chunk, Line], None]
  node: UOp
  sources: list[UOp]                                  # its sources, accumulators instead of their PHIs
  blocks: list[Block] = field(default_factory=list)   # that it opens
  last: list[UOp] = field(default_factory=list)       # whose values no later line of this block reads


Block = list[Line]


class Evaluator:
  """A linear program, which must be legal, ready to run on numpy. Raises VerifyError for a node that numpy cannot evaluate;
  running it, for what a device would leave undefined."""

  def __init__(self, name: str, uops: Sequence[UOp], grid: Sequence[Dim] = ()):
    self.name, self.uops = name, UOpList(uops)
    self.params = [u for u in self.uops if u.op is Ops.DEFINE_GLOBAL]
    there = {u.arg[:2]: u for u in self.uops if u.op is Ops.SPECIAL}
    specials = {("g", d): UOp(Ops.SPECIAL, dtypes.int32, (), ("g", d, n)) for d, n in enumerate(grid) if n != 1} | there
    # dimension 0 is the fastest: last of the group axes, last of the local axes
    self.groups, self.locals = ([specials[at] for at in sorted(specials, reverse=True) if at[0] == kind] for kind in "gl")
    # programs that differ in nothing run once, unless it counts how many there are
    self.once = {u for at, u in specials.items() if at not in there and not any(x.op is Ops.ATOMIC for x in self.uops)}
    self.ones = (1,) * (len(self.groups) + len(self.locals) + 1)
    self.items = math.prod(u.arg[2] for u in self.locals)
    self.written, self.read = touched(self.uops, Ops.STORE, Ops.ATOMIC), touched(self.uops, Ops.LOAD)
    self.updated = touched(self.uops, Ops.ATOMIC)
    locals_ = [u.arg for u in self.uops if u.op is Ops.DEFINE_LOCAL]
    each = [n if kind == "private" else -(-n // self.items) for _, n, kind in locals_]
    self.weight = max([u.dtype.count for u in self.uops] + each)
    self.constants = {u: np.full(self.ones, u.arg, u.dtype.np) for u in self.uops if u.op in (Ops.CONST, Ops.DEFINE_ACC)}
    # one program after another: they print, or wait for each other
    self.alone = any(u.op is Ops.PRINT or orders(u) for u in self.uops)
    self.block = self._blocks()

  def fail(self, u: UOp, sentence: str, race: Any = None) -> NoReturn:
    """Raise VerifyError about a line of the listing; RaceError for a race."""
    said = f"kernel {self.name!r} {sentence}; line {self.uops.lines()[self.uops.index(u)].strip()}"
    raise VerifyError(said) if race is None else RaceError(said, race)

  def _blocks(self) -> Block:
    """The lines; those between a LOOP, WHILE, IF or ELSE and its end are a block of the line that opens it."""
    opened: list[Block] = [[]]
    depth, last = {}, {}   # how many blocks are open where a node stands; the line of that block which was the last to read it
    for u in self.uops:
      sources = [accumulator(s) for s in u.src]
      depth[u] = len(opened)
      if u.op in (Ops.ELSE, Ops.ENDLOOP, Ops.ENDIF, Ops.ENDWHILE): opened.pop()
      else:
        opened[-1].append(Line(self._run(u), u, sources))
        last[u] = opened[-1][-1]
      if u.op in (Ops.LOOP, Ops.WHILE, Ops.IF, Ops.ELSE):
        body: Block = []
        opened[-1][-1].blocks.append(body)
        opened.append(body)
      for s in sources: last[s] = opened[min(depth[s], len(opened)) - 1][-1]
    for u, line in last.items(): line.last.append(u)
    return opened[0]

  def _run(self, u: UOp) -> Callable[[Chunk, Line], None]:
    if (run := getattr(Chunk, f"run_{u.op.name.lower()}", None)) is not None: return run
    if u.op not in FUNCTIONS: self.fail(u, f"has a {u.op} which the numpy backend cannot evaluate")
    f = FUNCTIONS[u.op](u)
    def compute(chunk: Chunk, line: Line) -> None:
      values = chunk.values
      values[line.node] = f(*[values[s] for s in line.sources])
    def compute_of_two(chunk: Chunk, line: Line) -> None:   # the most frequent
      values, (a, b) = chunk.values, line.sources
      values[line.node] = f(values[a], values[b])
    return compute_of_two if len(u.src) == 2 else compute

  # ---- running
  def boxes(self, extents: Mapping[UOp, int]) -> Iterator[list[range]]:
    """Boxes of group ids, each small enough for one go."""
    room = 1 if self.alone else max(1, CHUNK // (self.items * self.weight))
    parts = []
    for u in reversed(self.groups):
      n = extents[u] if u not in self.once else 1
      step = min(n, room)
      parts.append([range(b, min(b + step, n)) for b in range(0, n, step)])
      room = max(1, room // n) if step == n else 1
    return map(list, itertools.product(*reversed(parts)))

  def run(self, buffers: Sequence[Array], sizes: Mapping[Size, int]) -> None:
    """Launch over flat uint8 arrays, one a param in slot order, with numbers for the sizes: at least one program."""
    specials = *self.groups, *self.locals
    numbers = evaluator(tuple([u.arg[2] for u in specials]), tuple(sizes))(tuple(sizes.values()))
    launch = Launch(dict(zip(specials, numbers)), {}, {}, dict(self.constants))
    for u in self.uops:
      if u.op is not Ops.DEFINE_VAR: continue
      n, dtype = sizes[u.arg], u.dtype
      if not dtypes.min(dtype) <= n <= dtypes.max(dtype): self.fail(u, f"was launched with {n}, which is no {dtype}")
      launch.constants[u] = np.full(self.ones, n, dtype.np)
    data = launch.data
    same = dict[tuple[int, int], list[UOp]]()
    for u in self.params:
      slot, name = u.arg[:2]
      if slot >= len(buffers):
        raise VerifyError(f"kernel {self.name!r} has param {slot} {name!r}, but was launched with {len(buffers)} buffers")
      raw, size = buffers[slot], u.dtype.itemsize
      data[u] = raw[:raw.nbytes // size * size].view(u.dtype.np)
      # one allocation under two params is one memory: what one writes the other sees
      same.setdefault((raw.ctypes.data, size), []).append(u)
    for users in same.values():
      if math.prod(numbers) == self.items or not self.written.intersection(users): continue
      launch.trackers.update(dict.fromkeys(users, Tracker(
        max(data[u].size for u in users), not self.read.isdisjoint(users), not self.updated.isdisjoint(users))))
    with np.errstate(all="ignore"):
      for box in self.boxes(launch.extents): Chunk(self, box, launch).run(self.block)


class Launch(NamedTuple):
  """What is true of all programs of a launch."""
  extents: dict[UOp, int]        # of SPECIALs
  data: dict[UOp, Array]         # of params
  trackers: dict[UOp, Tracker]   # of params that are written
  constants: dict[UOp, Array]    # CONSTs, start values and sizes


class Chunk:
  """Some of a launch's groups, whose programs run in lockstep. The method ``run_`` and a node's op runs it."""

  def __init__(self, ev: Evaluator, box: list[range], launch: Launch):
    ranges = [*box, *(range(u.arg[2]) for u in ev.locals)]
    self.ev, self.launch = ev, launch
    self.shape = tuple(len(r) for r in ranges)    # programs along each axis
    self.mask: Array | None = None                # programs that run; None: all
    self.values = dict[UOp, Array]()
    self.assigned = dict[UOp, Array]()          # what the PHIs of the loop that ends give their accumulators
    self.current: Line | None = None
    self.axes = dict(zip((*ev.groups, *ev.locals), [
      np.arange(r.start, r.stop).reshape([-1 if a == i else 1 for a in range(len(ev.ones))]) for i, r in enumerate(ranges)]))
    self.item = self._numbers(ev.locals)          # of each program within its group
    group = self._numbers(ev.groups)
    self.memory = {u: Memory(f"param {u.arg[0]} {u.arg[1]!r}", x, x.size, self.fail, group, launch.trackers.get(u))
                   for u, x in launch.data.items()}

  def _numbers(self, specials: Sequence[UOp]) -> Array:
    number: Array = np.zeros(self.ev.ones, np.int64)
    for u in specials: number = number * self.launch.extents[u] + self.axes[u]
    return np.broadcast_to(number, (*self.shape, 1))

  def fail(self, sentence: str, *race: Any) -> NoReturn:
    """Raise VerifyError about the line that runs; RaceError with an element, and what two programs did to it."""
    assert (line := self.current) is not None
    self.ev.fail(line.node, sentence, (line.node.src[0].arg[0], *race) if race else None)

  def masked(self, condition: Array) -> Array:
    """The programs that run and for which a condition is true."""
    return condition if self.mask is None else condition & self.mask

  def gate(self, gate: Sequence[UOp]) -> Array | None:
    """The programs that run and which a LOAD's or STORE's gate, if it has one, lets through. None: all."""
    return self.masked(self.values[gate[0]]) if gate else self.mask

  def run(self, block: Iterable[Line]) -> None:
    """Run lines one after another, and forget each value after the last line that reads it."""
    forget = self.values.pop
    for line in block:
      self.current = line
      line.run(self, line)
      for u in line.last: forget(u, None)

  def run_define_global(self, line: Line) -> None: """It is there from the start."""
  def run_const(self, line: Line) -> None: self.values[line.node] = self.launch.constants[line.node]
  run_define_acc = run_define_var = run_const
  def run_special(self, line: Line) -> None: self.values[line.node] = self.axes[line.node].astype(line.node.dtype.np)

  def run_define_local(self, line: Line) -> None:
    ev, u = self.ev, line.node
    name, size, kind = u.arg
    private, groups = kind == "private", len(ev.groups)
    part = self.shape if private else self.shape[:groups] + (1,) * len(ev.locals)   # an array for each program, or each group
    parts = math.prod(part)
    self.memory[u] = Memory(f"{kind} array {name!r}", np.zeros(parts * size, u.dtype.np), size, self.fail, self.item,
                            Tracker(parts * size, True) if not private and ev.items > 1 else None,
                            (np.arange(parts, dtype=np.intp) * size).reshape((*part, 1)))

  def run_load(self, line: Line) -> None:
    buf, index, *gate = line.sources   # and the value where the gate is false
    other = self.values[gate[1]] if len(gate) > 1 else None
    memory = self.memory[buf] if line.node.arg != "look" else replace(self.memory[buf], tracker=None)
    self.values[line.node] = memory.load(self.values[index], line.node.dtype.count, self.gate(gate), other)

  def run_store(self, line: Line) -> None:
    buf, index, value, *gate = line.sources
    self.memory[buf].store(self.values[index], line.node.src[2].dtype.count, self.values[value], self.gate(gate))

  def run_atomic(self, line: Line) -> None:
    buf, index, value, *gate = line.sources[:4]
    compared, values = [self.values[s] for s in line.sources[6:]], self.values
    to = [(self.memory[v], values[i]) for v, i in [line.sources[4:6]] * bool(line.sources[4:])]
    old = self.memory[buf].atomic(line.node.arg, values[index], values[value], self.gate(gate), self.shape, compared, bool(to))
    for memory, at in to: memory.store(at, 1, old, self.mask)
    if orders(line.node): self.visible()

  def run_print(self, line: Line) -> None:
    """Print, or stop, for the one program of this chunk."""
    said, n = line.node.arg, len(line.node.arg.shapes)
    program = tuple([int(self.values[s].item()) for s in line.sources[n:]])
    blocks = [np.array(self.memory[v].data[:math.prod(shape)]).reshape(shape) for v, shape in zip(line.sources, said.shapes)]
    if said.stop: return breakpoints[said.stop](program, blocks)
    where = f"pid ({', '.join(map(str, program))})"
    if not n: print(where, said.text)
    for label, block in zip(said.labels(), blocks):
      for at, x in np.ndenumerate(block):
        value = str(int(x)) if block.dtype.kind in "iub" else format(float(x), f".{16 if block.itemsize == 8 else 7}g")
        print(f"{where} idx ({', '.join(map(str, at))}) {label}{value}")

  def run_barrier(self, line: Line) -> None:
    own = tuple(range(len(self.ev.groups), len(self.shape)))
    if self.mask is not None and own and (self.mask.any(axis=own) != self.mask.all(axis=own)).any():
      self.fail("has a barrier that only some work-items of a group reach")
    self.visible(lambda m: m.base is not None)

  def visible(self, where: Callable[[Memory], bool] = lambda m: True) -> None:
    """What was done so far comes before all that is done from here on."""
    for m in self.memory.values():
      if m.tracker is not None and where(m): m.tracker.reset()

  def run_phi(self, line: Line) -> None:
    accumulator, value, *_ = line.sources
    new = self.values[value]
    self.assigned[accumulator] = new if self.mask is None else np.where(self.mask, new, self.values[accumulator])

  def round(self, line: Line, index: Array) -> None:
    """The body of a LOOP; all its PHIs have read their values before one of them assigns."""
    self.values[line.node] = index
    self.run(line.blocks[0])
    self.values |= self.assigned
    self.assigned.clear()

  def run_loop(self, line: Line) -> None:
    dtype, (start, end, *by) = line.node.dtype.np, (self.values[s] for s in line.sources if s in self.values)
    stride = np.ones(self.ev.ones, dtype) if step_of(line.node) is None else by[0]
    if self.masked(stride < 1).any(): self.fail("has a loop that does not go up")
    if start.size == end.size == stride.size == 1:
      for i in range(start.item(), end.item(), stride.item()): self.round(line, np.array(i, dtype, ndmin=len(self.ev.ones)))
      return
    outer = self.mask   # bounds that differ from program to program: those that have ended are masked out
    rounds = (end.astype(np.int64) - start + stride - 1) // stride
    if outer is not None: rounds = np.where(outer, rounds, 0)
    for i in range(max(0, int(rounds.max()))):
      index = start + np.asarray(i, dtype) * stride
      self.mask = outer
      self.mask = self.masked(index < end)
      if np.count_nonzero(self.mask): self.round(line, index)
    self.mask = outer

  def run_if(self, line: Line) -> None:
    outer, c = self.mask, self.values[line.sources[0]]
    for side, mask in zip(line.blocks, (self.masked(c), self.masked(~c))):
      self.mask = None if mask.all() else mask
      if mask.any(): self.run(side)
    self.mask = outer

  def run_break(self, line: Line) -> None: self.mask = self.masked(self.values[line.sources[0]])

  def run_while(self, line: Line) -> None:
    """WHILE: its BREAK leaves fewer and fewer programs, until there is none."""
    outer = self.mask
    for inner in itertools.cycle(line.blocks[0]):
      self.run((inner,))
      if self.mask is not None and not self.mask.any(): break
    self.mask = outer


# nodes that have no effect: the function that gives a node's value from its sources' values
FUNCTIONS: dict[Ops, Callable[[UOp], Callable[..., Array]]] = {
  Ops.ALU: lambda u: function(u.arg, u.src[-1].dtype.scalar(), u.dtype.scalar()),
  Ops.CAST: lambda u: cast(u.src[0].dtype.scalar(), u.dtype.scalar()),
  Ops.BITCAST: lambda u: lambda x: x.view(u.dtype.np),
  Ops.VECTORIZE: lambda u: lambda *lanes: np.concatenate(np.broadcast_arrays(*lanes), axis=-1),
  # a last axis of size 1 stands for lanes that are all equal
  Ops.GEP: lambda u: lambda x: x if x.shape[-1] == 1 else x[..., u.arg:u.arg + 1]}
