"""The kernels that a graph is being cut into, and queries about them, none of which costs more in a larger graph."""
from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ntgrad.codegen import index as ix
from ntgrad.codegen.ir import Ops, UOp

from .chains import Joined
from .nodes import LEAVES, Idx, Nodes, index_covers
from .placement import made_by

MAX_ALU = 500     # operations of a kernel
MAX_PARAMS = 60   # buffers that a kernel reads and writes
MAX_STORES = 16   # stores of kernels that do not need each other's values
# how far searches go; all are more than one kernel holds: only graphs of many kernels are cut otherwise than by a full search
MOST_SEARCHED_NODES = MAX_ALU  # nodes beneath a node that are looked at for what it reads
WALK = 512                     # kernels that another is made to wait for, directly or not, before it is taken to wait for all
CANDIDATES = 32                # kernels, the newest, that a value might be stored by

Space = tuple[tuple[int, ...], str | None]   # shape and device


@dataclass(eq=False)
class Group:
  """A kernel being gathered: its output axes, the axes that its reductions bind, and what it stores."""
  number: int
  out: Nodes                            # RANGEs of the first root's dimensions (size > 1)
  at: Idx                                         # index of the first root
  shape: tuple[int, ...]
  roots: list[UOp] = field(default_factory=list)  # a node stands in the graph's order after those that follow it here
  # root, the node whose value is stored, the index at which it is asked for, index in the root, condition
  stores: list[tuple[UOp, UOp, Idx, Idx, UOp]] = field(default_factory=list)
  bound: list[UOp] = field(default_factory=list)  # RANGEs bound by reductions
  kept: frozenset[UOp] | None = None              # axes that every reduction keeps
  product: bool = False                           # whether the reduction is a large product of a target with blocks
  joined: Joined | None = None                    # the reductions that it makes in one pass along an ``axis``
  axis: UOp = ix.ZERO
  places: dict[UOp, Idx] = field(default_factory=dict)   # where inner reductions of these are read
  # the axis that its running sums go along, whether backwards, anew after; or its sort
  scan: tuple[UOp, bool, int] | UOp | None = None
  alu: int = 0
  reads: dict[UOp, None] = field(default_factory=dict)
  next_axis: int = 0

  def new_axis(self, size: int) -> UOp:
    r = ix.rng(self.next_axis, size)
    self.next_axis += 1
    return r

  def stands(self, idx: Idx, valid: UOp, shape: tuple[int, ...]) -> bool:
    """Whether it needs each element of a shape once, where it stands."""
    return valid is ix.TRUE and index_covers(idx, shape) and {i for i, n in zip(idx, shape) if n != 1} == set(self.out)

  @property
  def here(self) -> tuple[Group, Idx, UOp]:
    """The use of each element by it where it stands."""
    return self, self.at, ix.TRUE

  @property
  def full(self) -> bool:
    """Whether it has no room for another node (docs/architecture.md, Scheduling, rule 4)."""
    return self.alu >= MAX_ALU or len(self.reads) >= MAX_PARAMS

  def takes_rows(self, idx: Idx, valid: UOp, shape: tuple[int, ...], scan: tuple[UOp, bool, int] | UOp) -> bool:
    """Have it compute a scan or a sort for itself, and no reduction from now on, if it needs each element once, where it stands,
    and has no reduction, and no other scan or sort."""
    if not self.stands(idx, valid, shape) or self.bound or any(r.op is Ops.SCATTER for r in self.roots): return False
    if self.scan != scan and (self.scan is not None or self.kept is not None): return False
    self.scan, self.kept = scan, frozenset((*self.out, _NO_REDUCTION))
    return True


_NO_REDUCTION = UOp(Ops.RANGE, ix.INT, (), (-1, 1))   # an axis that no value has: no reduction keeps it


def nearest(u: UOp) -> Iterator[UOp]:
  """What a node reads through arithmetic and movement alone, nearest first: buffers, reductions, stored values."""
  if u.op is Ops.ASSIGN:
    u = u.src[1]
    if u.op in LEAVES:
      yield u
      return
  queue, seen = [u], {u}
  for n in queue:
    for s in n.src:
      if s in seen: continue
      seen.add(s)
      if s.op in LEAVES or s.op is Ops.REDUCE_AXIS or s.op is Ops.SORT_AXIS: yield s
      elif s.src: queue.append(s)
    if len(seen) > MOST_SEARCHED_NODES: return


class Groups:
  """All kernels of a graph. ``position`` is where each node stands in it, sources first; roots are given from its end on."""

  def __init__(self, position: Mapping[UOp, int]):
    self.position = position
    self.all: list[Group] = []
    self.storing: dict[UOp, list[Group]] = {}
    self.reading: dict[UOp, list[Group]] = {}
    # kernels that may take in more values: all over a space, and those that read a node there
    self.over: dict[Space, dict[Group, None]] = {}
    self.sharing: dict[tuple[UOp, Space], dict[Group, None]] = {}

  def new(self, shape: tuple[int, ...]) -> Group:
    g = Group(len(self.all), (), (), shape)
    g.at = tuple(ix.const(0) if n == 1 else g.new_axis(n) for n in shape)
    g.out = tuple(r for r in g.at if r.op is Ops.RANGE)
    self.all.append(g)
    return g

  def store(self, g: Group, u: UOp, near: Iterable[UOp] = ()) -> None:
    """Make ``u`` a root of a kernel; it reads what is ``near`` it."""
    g.roots.append(u)
    self.storing.setdefault(u, []).append(g)
    if self._closed(g): return
    space = g.shape, g.roots[0].device
    self.over.setdefault(space, {})[g] = None
    for s in near: self.sharing.setdefault((s, space), {})[g] = None

  def read(self, g: Group, u: UOp) -> None:
    """Note that a kernel loads ``u``, or waits for it: a BUFFER, a root, an effect, or what lies in memory after one."""
    while True:
      if u not in g.reads:
        g.reads[u] = None
        self.reading.setdefault(u, []).append(g)
      if u.op is not Ops.COPY or u.src[0].op is Ops.BUFFER: return
      u = u.src[0]   # a copy is no kernel: who reads it waits for who stores what is copied

  def depends(self, g: Group, others: Collection[Group]) -> bool:
    """Whether ``g`` reads, through any chain of kernels, what one of ``others`` stores, or that takes too long to find."""
    if not others: return False
    lowest = min(self.position[o.roots[-1]] for o in others)
    queue, seen = [g], {g}
    for waiting in queue:
      for r in waiting.reads:
        for o in self.storing.get(made_by(r), ()):
          if o in others: return True
          # what a kernel reads stands beneath its first root
          if o not in seen and self.position[o.roots[0]] > lowest:
            seen.add(o)
            queue.append(o)
      if len(seen) > WALK: return True
    return False

  def candidates(self, u: UOp, near: Iterable[UOp] | None) -> list[Group]:
    """The newest open kernels over the space of ``u``, oldest first: all, or those that read something ``near`` it."""
    space = u.shape, u.device
    if near is None: return self._newest(self.over.get(space, {}))[::-1]
    found = {g for s in near for g in self._newest(self.sharing.get((s, space), {}))}
    return sorted(found, key=lambda g: g.number)[-CANDIDATES:]

  def _newest(self, among: dict[Group, None]) -> list[Group]:
    """The last of some kernels that are still open; closed ones that come before it are removed."""
    found: list[Group] = []
    closed: list[Group] = []
    for g in reversed(among):
      (closed if self._closed(g) else found).append(g)
      if len(found) == CANDIDATES: break
    for g in closed: del among[g]
    return found

  def _closed(self, g: Group) -> bool:
    """Whether a kernel takes in nothing more beside what it needs itself."""
    return (g.alu >= MAX_ALU or len(g.reads) > MAX_PARAMS // 2 or len(g.stores) >= MAX_STORES or
            g.roots[0].op in (Ops.CAT, Ops.SCATTER, Ops.LAUNCH))
