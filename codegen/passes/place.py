"""Pass: parts with loops -> one list of UOps, every node in the innermost loop or branch that it depends on.

Index arithmetic stands as far out as it can, once. A node that touches memory that the kernel writes stands exactly where its
statement does.
"""
from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from functools import cache
from typing import Iterable, Union

from .. import index as ix
from ..ir import Ops, Target, UOp, dtypes, prod, toposort
from ..kernel import EFFECTS, UOpList, is_variable
from .builder import new_name
from .loops import LoopNest
from .parts import Mark, Part, Parts

# what stands first in a list, in this order
_FIRST = Ops.DEFINE_GLOBAL, Ops.SIZE, Ops.DEFINE_LOCAL, Ops.SPECIAL, Ops.DEFINE_ACC, Ops.CONST
_HERE = frozenset((*EFFECTS, Ops.PRINT, Ops.FOLD, Ops.DEFINE_ACC, Ops.PHI, Ops.BARRIER))   # what stands where its statement does
FIRST = {op: n for n, op in enumerate(_FIRST, -len(_FIRST))}


def _in_order(nest: LoopNest) -> UOpList:
  """The nodes of one part, each in its innermost loop: loop by loop a topological sort with priorities."""
  nodes = toposort([*(u for before in nest.after.values() for u in before), *nest.out])
  loads: dict[UOp, list[UOp]] = {}
  for u in nodes:
    if u.op is Ops.LOAD: loads.setdefault(u.src[0], []).append(u)
  for u in nodes:   # what is read of a parameter that the part also writes is the old contents
    if u.op is Ops.STORE and u.src[0].op is Ops.DEFINE_GLOBAL and u.src[0] in loads:
      nest.after[u] = tuple(x for x in loads[u.src[0]] if not nest.apart(u, x))

  # the tree of loops: a loop stands in all that some node stands in together with it, and that come before it in the nesting
  loops = sorted((u for u in nodes if u.op is Ops.LOOP), key=nest.order.__getitem__)
  number = {l: i for i, l in enumerate(loops)}
  @cache
  def innermost(ls: Iterable[UOp]) -> UOp | None: return max(ls, key=number.__getitem__, default=None)
  outer: dict[UOp, set[UOp]] = {l: set() for l in loops}
  for ls in {nest.inside[u] for u in nodes}:
    for l in ls: outer[l].update(x for x in ls if number[x] < number[l])
  parent: dict[UOp, UOp | None] = {}
  for l in reversed(loops):
    p = parent[l] = innermost(frozenset(outer[l]))
    if p is not None: outer[p] |= outer[l] - {p}

  # the path to each block: the loops that it stands in, outermost first
  path: dict[UOp | None, tuple[UOp, ...]] = {None: ()}
  for l in loops: path[l] = *path[parent[l]], l
  block = {u: parent[u] if u.op is Ops.LOOP else innermost(nest.inside[u]) for u in nodes}
  members: dict[UOp | None, list[UOp]] = {l: [] for l in (None, *loops)}
  for u in nodes: members[block[u]].append(u)

  # a node waits for its sources; where their paths part, a loop stands for all that is in it
  waits: dict[UOp, set[UOp]] = {u: set() for u in nodes}
  users: dict[UOp, list[UOp]] = {u: [] for u in nodes}
  for u in nodes:
    for s in (*u.src, *nest.after.get(u, ())):
      first, then = s, u
      if block[s] is not block[u]:
        paths = zip((*path[block[s]], s), (*path[block[u]], u))
        first, then = next(((x, y) for x, y in paths if x is not y), (u, u))
      if first is not then and first not in waits[then]:
        waits[then].add(first)
        users[first].append(then)

  rank = {u: i for i, u in enumerate(nodes)}
  def priority(u: UOp) -> tuple[int, int, int, int]:
    if u.op in (Ops.LOOP, Ops.PHI): return 1 if u.op is Ops.LOOP else 3, 0, 0, rank[u]
    return FIRST.get(u.op, 0), nest.step.get(u, 0), u.arg[0] if u.op is Ops.DEFINE_GLOBAL else 0, rank[u]
  out = UOpList()
  def emit(block: UOp | None) -> None:
    heap = [priority(u) for u in members[block] if not waits[u]]
    heapq.heapify(heap)
    while heap:
      u = nodes[heapq.heappop(heap)[-1]]
      out.append(u)
      if u.op is Ops.LOOP:
        emit(u)
        out.append(UOp.unique(Ops.ENDLOOP, u.dtype, (u,)))
      for v in users[u]:
        waits[v].discard(u)
        if not waits[v]: heapq.heappush(heap, priority(v))
  emit(None)
  assert len(out) == len(nodes) + len(loops), "nodes wait for each other"
  return out


@dataclass
class _Block:
  """What stands in a loop or a branch, while it is open."""
  opener: UOp | None = None                                 # LOOP, WHILE or IF; None at the top
  nodes: list[Union[UOp, _Block]] = field(default_factory=list)
  available: dict[UOp, UOp] = field(default_factory=dict)   # a node as it would be interned -> the one that stands here
  inner: int = 0                                            # where the last block inside begins, before which hoisted nodes go

  @property
  def runs(self) -> bool:
    """Whether it is a loop that has a round at least."""
    return self.opener is not None and self.opener.op is Ops.LOOP and ix.vmin(ix.sub(self.opener.src[1], self.opener.src[0])) > 0
  @property
  def is_branch(self) -> bool: return self.opener is not None and self.opener.op is Ops.IF


class _Writer:
  """A linear program while it is written: a tree of blocks, each with its nodes and the expressions that are available there."""

  def __init__(self, parts: Parts, target: Target) -> None:
    self.private = target.private_memory                 # bytes from which on a variable is local memory
    self.makes_blocks = target.blocks                    # of many elements: what only a branch needs stands in it
    self.written = frozenset[UOp]().union(*[part.kernel.written for part in parts.all()])
    # Triton moves a block that a loop reads in each round, but not what puts it into shared memory; others need no help
    self.reads_ahead = target.blocks and not any(isinstance(x, Mark) and x.op is Ops.BREAK for x in parts.items)
    self.names: set[str] = {v.arg[0] for part in parts.all() for v in part.kernel.variables}
    self.arrays: dict[UOp, UOp] = {}                     # variables and arrays of CACHE_READs -> as they stand in the list
    self.values: dict[UOp, UOp] = {}                     # what stands for a loop's axis in a part -> the LOOP
    self.blocks = [_Block()]                              # the open ones
    self.depths: dict[UOp, int] = {}                     # every node that stands in the list -> how many blocks it is in

  @property
  def depth(self) -> int: return len(self.blocks) - 1

  def pure(self, u: UOp, src: tuple[UOp, ...], hoist: bool) -> UOp:
    """A node without effect, or the same that stands in an open block; ``hoist``: as far out as its sources allow."""
    like = UOp(u.op, u.dtype, src, u.arg) if u.is_unique else u.replace(src)
    for block in reversed(self.blocks):
      if like in block.available: return block.available[like]
    new = UOp.unique(u.op, u.dtype, src, u.arg) if like in self.depths else like
    depth = max([self.depths[s] for s in src], default=0) if hoist else self.depth
    if u.op is Ops.LOAD:   # elsewhere it may not be there
      depth = max([depth, *[n for n, b in enumerate(self.blocks) if not (self.reads_ahead and b.runs)]])
    elif self.makes_blocks and src:   # a position in the grid or a number stands at the top
      while depth < self.depth and self.blocks[depth + 1].is_branch: depth += 1
    self.blocks[depth].available[like] = new
    return self._place(new, depth)

  def unique(self, u: UOp, src: tuple[UOp, ...]) -> UOp:
    """A unique node (not interned), which stands here."""
    return self._place(u.replace(src) if u.is_unique else UOp.unique(u.op, u.dtype, src, u.arg), self.depth)

  def _place(self, new: UOp, depth: int) -> UOp:
    block, hoisted = self.blocks[depth], depth != self.depth
    block.nodes.insert(block.inner if hoisted else len(block.nodes), new)
    block.inner += hoisted
    self.depths[new] = self.depths[new.src[0]] if new.op is Ops.PHI else depth
    return new

  def part(self, part: Part) -> UOp | None:
    """Put the nodes of a part here; gives what its last root became, None where no root is left (a gate that is never true)."""
    if not part.roots: return None
    nest = LoopNest(part.kernel, part.roots)
    base = self.depth
    new: dict[UOp, UOp] = {}
    for u in _in_order(nest):
      op = u.op
      src = tuple([new[s] for s in u.src])
      if u in self.values: new[u] = self.values[u]
      elif op is Ops.DEFINE_LOCAL: new[u] = self.array(u)
      elif op is Ops.LOOP: new[u] = self.open(u.replace(src))
      elif op is Ops.ENDLOOP: self.close(UOp.unique(op, u.dtype, src))
      elif op in _HERE or op is Ops.LOAD and \
        (u.src[0] in self.written or u.src[0].op is Ops.DEFINE_LOCAL): new[u] = self.unique(u, src)   # what it reads changes
      else: new[u] = self.pure(u, src, self.depth == base)
    return new[nest.out[-1]]

  def mark(self, mark: Mark) -> None:
    """Begin or end a loop or a branch."""
    op = mark.op
    values = tuple(v for v in map(self.part, mark.values) if v is not None)
    dtype = dtypes.index if op in (Ops.LOOP, Ops.ENDLOOP) else dtypes.bool
    if op in (Ops.LOOP, Ops.WHILE, Ops.IF):
      opened = self.open(UOp.unique(op, dtype, values))
      if mark.axis is not None: self.values[Mark.index(mark.axis)] = opened
    elif op is Ops.BREAK: self.unique(UOp(Ops.BREAK, dtype), values)
    else:
      assert (opener := self.blocks[-1].opener) is not None, f"{mark} without what it belongs to"
      if op is not Ops.ELSE: return self.close(UOp.unique(op, dtype, (opener,)))
      self.blocks.pop()
      self.open(UOp.unique(op, dtype, (opener,)), opener)

  def array(self, u: UOp) -> UOp:
    """A variable, or the array of a CACHE_READ, as it stands at the top of the list."""
    if (found := self.arrays.get(u)) is None:
      name, size, where = u.arg
      if not is_variable(u): name = new_name("cache", self.names)
      elif (size := prod(size)) * u.dtype.itemsize > self.private: where = "local"
      found = self.arrays[u] = UOp.unique(Ops.DEFINE_LOCAL, u.dtype, (), (name, size, where))
      self._place(found, 0)
    return found

  def open(self, u: UOp, opener: UOp | None = None) -> UOp:
    """``u`` stands here, what follows inside it, or as another part of what ``opener`` began."""
    around, block = self.blocks[-1], _Block(opener or u)
    if opener is None: around.inner = len(around.nodes)
    around.nodes += [u, block]
    self.blocks.append(block)
    self.depths[u] = self.depth
    return u

  def close(self, end: UOp) -> None:
    """``end`` ends what is open."""
    self.blocks.pop()
    self.blocks[-1].nodes.append(end)
    self.depths[end] = self.depth

  def list(self) -> UOpList:
    """Everything in order; first params, arrays, positions and constants, and accumulators that stand before all others."""
    top = self.blocks[0].nodes
    start = next((i for i, u in enumerate(top) if isinstance(u, _Block) or u.op not in FIRST), len(top))
    moved = [u for u in top[start:] if isinstance(u, UOp) and u.op in FIRST and u.op is not Ops.DEFINE_ACC]
    head = [u for u in (*top[:start], *moved) if isinstance(u, UOp)]
    out = UOpList(sorted(head, key=lambda u: (FIRST[u.op], u.arg[0] if u.op is Ops.DEFINE_GLOBAL else 0)))
    done = set(moved)
    todo = top[start:][::-1]
    while todo:
      u = todo.pop()
      if isinstance(u, _Block): todo.extend(u.nodes[::-1])
      elif u not in done: out.append(u)
    return out


def place(parts: Parts, target: Target | None = None) -> UOpList:
  """Loops and accumulators for reductions, every node in the innermost loop that it depends on: REDUCE -> DEFINE_ACC, LOOP, ..,
  PHI, ENDLOOP."""
  target = target or Target("none")
  writer = _Writer(parts, target)
  for p in parts.kernel.params: writer.pure(p.uop, (), True)
  for size in parts.kernel.sizes: writer.pure(size.node, (), True)
  for item in parts.items:
    if isinstance(item, Part): writer.part(item)
    else: writer.mark(item)
  return writer.list()
