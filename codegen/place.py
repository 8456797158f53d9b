"""Pass: parts with loops -> one list of UOps, every node in the innermost loop or branch that it depends on.

:class:`Sorter` puts the nodes of one part in order; :class:`Writer` puts parts one after the other: index arithmetic as far out
as it can stand, once; what touches memory that the kernel writes exactly where its statement stands.
"""
from __future__ import annotations

import heapq
import itertools
from typing import Any

from .dtype import dtypes
from .kernel import EFFECTS, is_variable
from .loops import LoopNest
from .parts import Mark, Part, Parts
from .target import Target
from .uop import Ops, UOp, UOpList, prod, toposort


class Sorter:
  """The nodes of one part in order: nodes into blocks (one a loop), blocks into a list (``out``), by a topological sort with
  priorities."""
  FIRST = {Ops.DEFINE_GLOBAL: -5, Ops.DEFINE_LOCAL: -4, Ops.SPECIAL: -3, Ops.DEFINE_ACC: -2, Ops.CONST: -1}

  def __init__(self, low: LoopNest):
    self.low = low
    nodes = toposort([*(f for fills in low.after.values() for f in fills), *low.out])
    self._read_first(nodes)
    self.rank = {u: i for i, u in enumerate(nodes)}
    loops = sorted((u for u in nodes if u.op is Ops.LOOP), key=lambda l: low.order[l])
    need: dict[UOp, set[UOp]] = {l: set(low.inside[l]) - {l} for l in loops}
    place = {l: i for i, l in enumerate(loops)}
    for u in nodes:
      s = sorted(low.inside[u], key=lambda l: place[l])
      for i, l in enumerate(s): need[l].update(s[:i])
    self.parent: dict[UOp, UOp | None] = {}
    for l in reversed(loops):
      p = max(need[l], key=lambda x: place[x], default=None)
      self.parent[l] = p
      if p is not None: need[p] |= need[l] - {p}
    self.place = place
    self.block: dict[UOp, UOp | None] = {}
    self.members: dict[UOp | None, list[UOp]] = {None: []}
    for l in loops: self.members[l] = []
    for u in nodes:
      if u.op is Ops.LOOP: b = self.parent[u]
      else: b = max(low.inside[u], key=lambda x: place[x], default=None)
      self.block[u] = b
      self.members[b].append(u)
    self.out = UOpList()
    self.emit(None)

  def _read_first(self, nodes: list[UOp]) -> None:
    """What is read of a parameter that the kernel also writes is the old contents: loads come before its stores."""
    loads: dict[UOp, list[UOp]] = {}
    for u in nodes:
      if u.op is Ops.LOAD: loads.setdefault(u.src[0], []).append(u)
    for u in nodes:
      if u.op is Ops.STORE and u.src[0].op is Ops.DEFINE_GLOBAL and u.src[0] in loads: self.low.after[u] = tuple(loads[u.src[0]])

  def chain(self, b: UOp | None) -> list[UOp | None]:
    out: list[UOp | None] = [b]
    while b is not None:
      b = self.parent[b]
      out.append(b)
    return out

  def emit(self, b: UOp | None) -> None:
    """The nodes of block ``b`` in order; a loop among them stands for its whole body."""
    members = self.members[b]
    unit: dict[UOp, UOp] = {}
    def own(u: UOp) -> UOp | None:
      """The member of this block that ``u`` is, or lies in."""
      if u in unit: return unit[u]
      x = u if u.op is Ops.LOOP and self.block[u] == b else None
      c = self.block[u]
      if c == b: x = u
      while x is None and c is not None:
        if self.parent[c] == b: x = c
        c = self.parent[c]
      if x is not None: unit[u] = x
      return x
    inner: dict[UOp, list[UOp]] = {u: [u] for u in members}
    for c, us in self.members.items():
      if c is None or c is b: continue
      top = next((x for x in self.chain(c) if x is not None and self.parent[x] == b), None)
      if top is not None and top in inner: inner[top].extend(us)
    waits: dict[UOp, set[UOp]] = {u: set() for u in members}
    users: dict[UOp, list[UOp]] = {u: [] for u in members}
    for u in members:
      for n in inner[u]:
        for s in (*n.src, *self.low.after.get(n, ())):
          o = own(s)
          if o is not None and o is not u and o not in waits[u] and o in waits:
            waits[u].add(o)
            users[o].append(u)
    def priority(u: UOp) -> tuple[int, int, int]:
      if u.op is Ops.PHI: return (3, 0, self.rank[u])
      if u.op is Ops.LOOP: return (1, 0, self.rank[u])
      return (self.FIRST.get(u.op, 0), self.low.step.get(u, 0), u.arg[0] if u.op is Ops.DEFINE_GLOBAL else self.rank[u])
    heap = [(*priority(u), i) for i, u in enumerate(members) if not waits[u]]
    heapq.heapify(heap)
    number = {u: i for i, u in enumerate(members)}
    while heap:
      u = members[heapq.heappop(heap)[-1]]
      self.out.append(u)
      if u.op is Ops.LOOP:
        self.emit(u)
        self.out.append(UOp.unique(Ops.ENDLOOP, u.dtype, (u,)))
      for v in users[u]:
        waits[v].discard(u)
        if not waits[v]: heapq.heappush(heap, (*priority(v), number[v]))


class Writer:
  """A linear program while it is written: a tree of blocks, each with what stands in it and what can be used again there."""

  def __init__(self, parts: Parts, private: int) -> None:
    self.private = private                               # bytes from which on a variable is local memory
    self.written = {s.src[0] for part in parts.all() for s in part.kernel.effects}
    self.names: set[str] = {v.arg[0] for part in parts.all() for v in part.kernel.variables}
    self.arrays: dict[UOp, UOp] = {}                     # variables and arrays of CACHE_READs -> as they stand in the list
    self.values: dict[UOp, UOp] = {}                     # what stands for a loop's axis in a part -> the LOOP
    self.openers: list[UOp] = []                         # of the open blocks
    self.root: list[Any] = []
    self.blocks: list[list[Any]] = [self.root]           # the open ones
    self.opened: list[int] = []                          # in each but the last, where that begins which is open inside it
    # for each open block: a node as it would be interned -> the one that stands there
    self.again: list[dict[UOp, UOp]] = [{}]
    self.home: dict[UOp, int] = {}                       # every node that stands somewhere -> how many blocks are round it

  @property
  def depth(self) -> int: return len(self.blocks) - 1

  def pure(self, u: UOp, src: tuple[UOp, ...], hoist: bool) -> UOp:
    """A node without effect: the one that stands in an open block, or a new one, with ``hoist`` as far out as its sources
    allow."""
    like = UOp(u.op, u.dtype, src, u.arg)
    for table in reversed(self.again):
      if like in table: return table[like]
    new = UOp.unique(u.op, u.dtype, src, u.arg) if like in self.home else like
    depth = max((self.home[s] for s in src), default=0) if hoist else self.depth
    self.again[depth][like] = new
    return self._place(new, depth)

  def unique(self, u: UOp, src: tuple[UOp, ...]) -> UOp:
    """A node that stands here and is no other's equal."""
    return self._place(UOp.unique(u.op, u.dtype, src, u.arg), self.depth)

  def _place(self, new: UOp, depth: int) -> UOp:
    block = self.blocks[depth]
    if depth == self.depth: block.append(new)
    else:
      block.insert(self.opened[depth], new)
      self.opened[depth] += 1
    self.home[new] = self.home[new.src[0]] if new.op is Ops.PHI else depth
    return new

  def part(self, part: Part) -> UOp | None:
    """Put the nodes of a part here; gives what its last root became, None where no root is left (a gate that is never true)."""
    if not part.roots: return None
    low = LoopNest(part.kernel, part.roots)
    base = self.depth
    new: dict[UOp, UOp] = {}
    for u in Sorter(low).out:
      if u in self.values: new[u] = self.values[u]
      elif u.op is Ops.DEFINE_LOCAL: new[u] = self.array(u)
      else:
        src = tuple([new[s] for s in u.src])
        if u.op is Ops.LOOP: new[u] = self.open(UOp.unique(u.op, u.dtype, src, u.arg))
        elif u.op is Ops.ENDLOOP: self.close(UOp.unique(u.op, u.dtype, src))
        elif u.op in EFFECTS or u.op in (Ops.DEFINE_ACC, Ops.PHI): new[u] = self.unique(u, src)
        elif u.op is Ops.LOAD:
          changes = u.src[0] in self.written or u.src[0].op is Ops.DEFINE_LOCAL
          new[u] = self.unique(u, src) if changes else self.pure(u, src, False)
        else: new[u] = self.pure(u, src, self.depth == base)
    return new[low.out[-1]]

  def mark(self, mark: Mark) -> None:
    """Begin or end a loop or a branch."""
    values = tuple([v for v in map(self.part, mark.values) if v is not None])
    dtype = dtypes.index if mark.op in (Ops.LOOP, Ops.ENDLOOP) else dtypes.bool
    if mark.op in (Ops.LOOP, Ops.WHILE, Ops.IF):
      opener = self.open(UOp.unique(mark.op, dtype, values))
      if mark.axis is not None: self.values[UOp(Ops.SPECIAL, dtypes.index, (), ("for", mark.axis.id, mark.axis.size))] = opener
    elif mark.op is Ops.BREAK: self.unique(UOp(Ops.BREAK, dtype), values)
    elif mark.op is Ops.ELSE:
      self.blocks.pop()
      self.again.pop()
      self._begin(UOp.unique(Ops.ELSE, dtype, (self.openers[-1],)))
    else: self.close(UOp.unique(mark.op, dtype, (self.openers[-1],)))

  def array(self, u: UOp) -> UOp:
    """A variable, or the array of a CACHE_READ, as it stands at the top of the list."""
    found = self.arrays.get(u)
    if found is None:
      name, size, where = u.arg
      if is_variable(u):
        size = prod(size)
        if size * u.dtype.itemsize > self.private: where = "local"
      else:
        name = next(n for i in itertools.count() if (n := f"cache{i}") not in self.names)
        self.names.add(name)
      found = self.arrays[u] = UOp.unique(Ops.DEFINE_LOCAL, u.dtype, (), (name, size, where))
      self._place(found, 0)
    return found

  def open(self, opener: UOp) -> UOp:
    """``opener`` stands here, what follows inside it."""
    self.opened.append(len(self.blocks[-1]))
    self.openers.append(opener)
    self._begin(opener)
    return opener

  def _begin(self, u: UOp) -> None:
    block: list[Any] = []
    self.blocks[-1] += [u, block]
    self.blocks.append(block)
    self.again.append({})
    self.home[u] = self.depth

  def close(self, end: UOp) -> None:
    """``end`` ends what is open."""
    for stack in (self.blocks, self.again, self.opened, self.openers): stack.pop()
    self.blocks[-1].append(end)
    self.home[end] = self.depth

  def list(self) -> UOpList:
    """Everything in order; params, arrays, positions and constants first, and accumulators that nothing but these stands
    before."""
    start = next((i for i, u in enumerate(self.root) if not isinstance(u, UOp) or u.op not in _FIRST), len(self.root))
    moved = {u for u in self.root[start:] if isinstance(u, UOp) and u.op in _FIRST and u.op is not Ops.DEFINE_ACC}
    head = [*self.root[:start], *(u for u in self.root[start:] if isinstance(u, UOp) and u in moved)]
    head.sort(key=lambda u: (_FIRST.index(u.op), u.arg[0] if u.op is Ops.DEFINE_GLOBAL else 0))
    out = UOpList(head)
    todo = self.root[start:][::-1]
    while todo:
      u = todo.pop()
      if isinstance(u, UOp):
        if u not in moved: out.append(u)
      else: todo.extend(u[::-1])
    return out


_FIRST = (Ops.DEFINE_GLOBAL, Ops.DEFINE_LOCAL, Ops.SPECIAL, Ops.DEFINE_ACC, Ops.CONST)


def place(parts: Parts, target: Target | None = None) -> UOpList:
  """Loops and accumulators for reductions, every node in the innermost loop that it depends on: REDUCE -> DEFINE_ACC, LOOP, ..,
  PHI, ENDLOOP."""
  target = target or Target("none")
  writer = Writer(parts, target.private_memory)
  for p in parts.kernel.params: writer.pure(p.uop, (), True)
  for item in parts.items:
    if isinstance(item, Part): writer.part(item)
    else: writer.mark(item)
  return writer.list()
