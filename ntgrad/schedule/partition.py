"""Cutting the tensor graph into kernels.

Nodes are visited consumers first. Each gets *demands*: the index tuples at which kernels need it. A node that one kernel needs at one
index tuple is computed there; one that is needed at several, or that would be recomputed at a price, gets a buffer of its own
(a *root*). A reduction joins its consumer's kernel when every value of the kernel's grid needs it once (softmax, layer norm, matmul with an
epilogue): all reductions of a kernel keep the same axes and bind the rest.
"""
from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property

from ntgrad.codegen import index as ix
from ntgrad.codegen.uop import MOVEMENT, BinaryOps, Ops, UnaryOps, UOp, prod, toposort
from ntgrad.codegen.view import pull

from .storage import Idx, load, storage
from .writes import EFFECTS, memory_of, number_of

CHEAP = 6            # ALU cost up to which a value is computed again instead of stored
REUSED_CHEAP = 2     # the same beneath a reduction that uses each value many times (matmul, convolution)
MAX_ALU = 500
MAX_PARAMS = 60
TINY = 256           # elements up to which kernels over the same space are joined even if they share nothing
NEVER = 1 << 40
_COSTLY = {UnaryOps.EXP: 6, UnaryOps.EXP2: 6, UnaryOps.LOG: 6, UnaryOps.LOG2: 6, UnaryOps.SIN: 10, UnaryOps.COS: 10, UnaryOps.TAN: 12,
           UnaryOps.TANH: 10, UnaryOps.ERF: 12, UnaryOps.SQRT: 3, UnaryOps.RSQRT: 3, BinaryOps.POW: 20, BinaryOps.THREEFRY: 80,
           BinaryOps.DIV: 2, BinaryOps.IDIV: 4, BinaryOps.MOD: 4}
LEAVES = frozenset({Ops.BUFFER, Ops.CAT, Ops.ASSIGN, Ops.COPY, Ops.CONTIGUOUS, Ops.SCATTER, Ops.AFTER})

_NO_AXES: frozenset[UOp] = frozenset()

Demand = tuple["Group", Idx, UOp]     # kernel, index, condition under which the element exists


@dataclass(eq=False)
class Group:
  """A kernel being gathered: its output axes, the axes that its reductions bind, and what it stores."""
  number: int
  out: tuple[UOp, ...]                            # RANGEs of the first root's dimensions (size > 1)
  at: Idx                                         # index of the first root
  shape: tuple[int, ...]
  roots: list[UOp] = field(default_factory=list)
  # root, the node whose value is stored, index in the root, condition
  stores: list[tuple[UOp, UOp, Idx, UOp]] = field(default_factory=list)
  bound: list[UOp] = field(default_factory=list)  # RANGEs bound by reductions
  kept: frozenset[UOp] | None = None              # axes that every reduction keeps
  alu: int = 0
  reads: dict[UOp, None] = field(default_factory=dict)
  next_axis: int = 0

  def new_axis(self, size: int) -> UOp:
    r = ix.rng(self.next_axis, size)
    self.next_axis += 1
    return r


def own_cost(u: UOp) -> int:
  """ALU operations of one node."""
  if u.op is not Ops.ALU: return 0
  return _COSTLY.get(u.arg, 1)


class Partition:
  """Groups of a graph. ``sinks`` are the nodes that must have buffers; effects with a number in ``alone`` share no kernel."""

  def __init__(self, sinks: list[UOp], alone: Collection[int] = ()):
    self.order = toposort(sinks)
    self.alone = {u for u in self.order if alone and u.op in EFFECTS and number_of(u) in alone}
    self.position = {u: i for i, u in enumerate(self.order)}
    self.beneath: dict[UOp, int] = {}  # bit set of everything a node reads, itself included
    self.cost: dict[UOp, int] = {}
    for i, u in enumerate(self.order):
      bits = 1 << i
      for s in u.src: bits |= self.beneath[s]
      self.beneath[u] = bits
      self.cost[u] = self._cost(u)
    self.groups: list[Group] = []
    self.demands: dict[UOp, dict[Demand, None]] = {u: {} for u in self.order}
    self.binds: dict[tuple[UOp, Group, Idx, UOp], tuple[Idx, UOp, tuple[UOp, ...]]] = {}
    # of a node beneath reductions of the kernel that asks for it: the axes that these bind
    self.around: dict[tuple[UOp, Group, Idx, UOp], frozenset[UOp]] = {}
    self.merged: set[tuple[UOp, Group, Idx, UOp]] = set()  # sums that are part of the sum above them
    self.must: set[UOp] = set(sinks)
    self._force()
    for u in reversed(self.order): self._visit(u)

  def _cost(self, u: UOp) -> int:
    if u.op in LEAVES or not u.src: return 0
    if u.op is Ops.REDUCE_AXIS: return NEVER
    return min(NEVER, own_cost(u) + sum(self.cost[s] for s in u.src))

  def _force(self) -> None:
    """Nodes that need a buffer whatever their consumers are."""
    for u in self.order:
      if u.op in LEAVES: self.must.add(u)
      if u.op is Ops.COPY: self.must.add(u.src[0])
      if u.op in (Ops.GATHER, Ops.SCATTER): self.must.add(u.src[1])
    self.must = {u for u in self.must if u.op is not Ops.BUFFER}

  # ---- groups

  def new_group(self, shape: tuple[int, ...]) -> Group:
    g = Group(len(self.groups), (), (), shape)
    at = tuple(ix.const(0) if n == 1 else g.new_axis(n) for n in shape)
    g.out, g.at = tuple(r for r in at if r.op is Ops.RANGE), at
    self.groups.append(g)
    return g

  def depends(self, g: Group, other: Group) -> bool:
    """Whether ``g`` reads, through any chain of kernels, something that ``other`` stores."""
    wanted = self._bits(other) & ~self._bits(g)
    seen, closure = {g}, 0
    for r in g.roots: closure |= self.beneath[r]
    grown = True
    while grown:
      if closure & wanted: return True
      grown = False
      for o in self.groups:
        if o not in seen and len(o.roots) > 1 and any(closure >> self.position[r] & 1 for r in o.roots):
          seen.add(o)
          for r in o.roots: closure |= self.beneath[r]
          grown = True
    return False

  def _bits(self, g: Group) -> int:
    """Bit set of what a kernel stores."""
    bits = 0
    for r in g.roots: bits |= 1 << self.position[r]
    return bits

  # ---- one node

  def _visit(self, u: UOp) -> None:
    ds = self.demands[u]
    if u.op in (Ops.BUFFER, Ops.CONST) or (u not in self.must and not ds) or prod(u.shape) == 0: return
    if u in self.must or not self._fuses(u, list(ds)):
      self._make_root(u, list(ds))
      ds = self.demands[u]
    for d in ds: self._expand(u, d)

  def _fuses(self, u: UOp, ds: list[Demand]) -> bool:
    if u.op is Ops.IOTA or u.op in MOVEMENT: return True
    if u.op is Ops.REDUCE_AXIS: return len(ds) == 1 and (self._bind(u, ds[0]) or self._merge(u, ds[0]))
    cost = self.cost[u]
    if len(ds) > 1 and cost > CHEAP: return False
    if len(ds) == 1 and cost >= NEVER and own_cost(u) and self._beneath(u, ds[0]):
      # reductions under another reduction get buffers: better one for the value that is made of several
      if self._reductions_like(u) > 1: return False
    for d in ds:
      if self._full(u, d[0]): return False
      if cost > REUSED_CHEAP and own_cost(u) and self._reused(u, d): return False
    return True

  def _full(self, u: UOp, g: Group) -> bool:
    """Whether a kernel has no room for another node (DESIGN section 6, rule 4)."""
    return g.alu >= MAX_ALU or len(g.reads) >= MAX_PARAMS

  def _reductions_like(self, u: UOp) -> int:
    """How many reductions of as many elements ``u`` is computed from."""
    bits, total = self.near[u], 0
    while bits:
      low = bits & -bits
      r = self.order[low.bit_length() - 1]
      total += r.op is Ops.REDUCE_AXIS and prod(r.shape) == prod(u.shape)
      bits ^= low
    return total

  def _beneath(self, u: UOp, d: Demand) -> frozenset[UOp]:
    """The axes of the reductions around ``u``; none where it is the same for all of their elements, and so stands outside."""
    around = self.around.get((u, *d), _NO_AXES)
    return around if any(r in around for i in d[1] for r in i.ranges) else _NO_AXES

  def _reused(self, u: UOp, d: Demand) -> bool:
    """Whether a reduction uses each element many times: u lies beneath it and does not vary with all of the axes that it goes through."""
    around = self._beneath(u, d)
    g = d[0]
    return bool(around) and prod(r.arg[1] for r in around.union(g.out if g.kept is None else g.kept)) >= 8 * prod(u.shape)

  def _bind(self, u: UOp, d: Demand) -> bool:
    """Try to compute a reduction inside the kernel that asks for it; choose the axes it binds.

    All reductions of a kernel keep the same axes, and every output axis that they do not keep is one that they bind: the row of a softmax.
    """
    g, idx, valid = d
    free = valid.ranges.union(*(i.ranges for i in idx))
    if g.kept is not None and free != g.kept: return False
    if any(b in free for b in g.bound) or prod(r.arg[1] for r in free) > prod(u.shape): return False
    pool = [r for r in dict.fromkeys((*g.out, *g.bound)) if r not in free]
    same_rank = len(g.shape) == len(u.shape)
    at, taken, fresh = list(idx), [], []
    for dim in sorted(u.arg[1]):
      n = u.src[0].shape[dim]
      if n == 1: continue
      choices = [r for r in pool if r.arg[1] == n and r not in taken]
      if choices:
        at[dim] = g.at[dim] if same_rank and g.at[dim] in choices else choices[0]
        taken.append(at[dim])
      else: fresh.append(dim)
    if any(r not in taken for r in g.out if r not in free and r not in g.bound): return False
    self._take(u, d, at, taken, fresh)
    g.kept = free
    return True

  def _merge(self, u: UOp, d: Demand) -> bool:
    """A sum asked for only by another sum, through movement alone, is one sum over both (the input gradient of a convolution)."""
    g, idx, valid = d
    if u.arg[0] is not BinaryOps.ADD or g.kept is None: return False
    free = valid.ranges.union(*(i.ranges for i in idx))
    above = u
    while True:
      users = self.users.get(above, [])
      if len(users) != 1 or users[0] in self.must: return False
      above = users[0]
      if above.op is Ops.REDUCE_AXIS: break
      if above.op not in MOVEMENT: return False
    if above.arg[0] is not BinaryOps.ADD or above.dtype is not u.dtype: return False
    if not g.kept <= free or prod(r.arg[1] for r in free) > 2 * prod(u.shape): return False
    self._take(u, d, list(idx), [], [dim for dim in sorted(u.arg[1]) if u.src[0].shape[dim] > 1])
    self.merged.add((u, *d))
    return True

  def _take(self, u: UOp, d: Demand, at: list[UOp], taken: list[UOp], fresh: list[int]) -> None:
    g = d[0]
    for dim in fresh:
      at[dim] = g.new_axis(u.src[0].shape[dim])
      taken.append(at[dim])
    g.bound.extend(r for r in taken if r not in g.bound)
    self.binds[(u, *d)] = (tuple(at), d[2], tuple(taken))

  @cached_property
  def users(self) -> dict[UOp, list[UOp]]:
    """Who reads each node."""
    found: dict[UOp, list[UOp]] = {}
    for u in self.order:
      for s in dict.fromkeys(u.src): found.setdefault(s, []).append(u)
    return found

  def _make_root(self, u: UOp, ds: list[Demand]) -> None:
    """Give ``u`` a buffer: stored by a kernel that computes it anyway where there is one, else by a kernel of its own."""
    if u.op in (Ops.CAT, Ops.COPY, Ops.SCATTER, Ops.AFTER):
      for g, _, _ in ds: g.reads.update({u: None, u.src[1]: None} if u.op is Ops.AFTER else {u: None})   # waits for the effect
      s = u
      while s.op is Ops.COPY:   # no kernel: who reads the copy waits for who stores what is copied
        s = s.src[0]
        for g, _, _ in ds if s.op is not Ops.BUFFER else (): g.reads[s] = None
      self.demands[u] = {}
      if u.op is Ops.CAT: self._cat(u)
      if u.op is Ops.SCATTER: self._scatter(u)
      return
    here = next((d for d in ds if self._hosts(u, d, ds)), None)
    if here is None: here = self._sibling(u, ds)
    if here is None:
      g = self.new_group(u.shape)
      here = (g, g.at, ix.TRUE)
      if u.op is Ops.REDUCE_AXIS: self._bind(u, here)
    host = here[0]
    host.roots.append(u)
    for g, _, _ in ds:
      if g is not host: g.reads[u] = None
    if u.op is Ops.ASSIGN: host.reads[memory_of(u.src[0])] = None   # the memory has to be there
    self.demands[u] = {here: None}  # the host computes it; every other demand loads
    host.stores.append((u, u, here[1], ix.TRUE))

  def _hosts(self, u: UOp, d: Demand, ds: list[Demand]) -> bool:
    """Whether the kernel of demand ``d`` can store ``u`` too: it needs each element once, at one place, and waits for no kernel that reads ``u``."""
    g, idx, valid = d
    if valid is not ix.TRUE or not self._whole(idx, u) or not self._may_join(u, g) or self._full(u, g): return False
    if any(o[0] is g and o != d for o in ds): return False
    if u.op is not Ops.REDUCE_AXIS and set(g.out) != {i for i in idx if i.op is Ops.RANGE}: return False
    if any(o[0] is not g and self.depends(g, o[0]) for o in ds): return False
    return u.op is not Ops.REDUCE_AXIS or self._bind(u, d)

  def _may_join(self, u: UOp, g: Group) -> bool:
    """Whether ``g`` may store ``u`` beside what it stores: it reads no element of it elsewhere, and no reader of it must run first."""
    if u in self.alone or any(r in self.alone for r in g.roots): return False
    if any(r.op is Ops.SCATTER or (r.op is Ops.CAT and u.op is Ops.ASSIGN) for r in g.roots): return False
    if u in g.reads or any(u in o.reads and self.depends(g, o) for o in self.groups if o is not g): return False
    if u.op is Ops.CONTIGUOUS and any(r.op is Ops.ASSIGN and r.src[1] is u for r in g.roots): return False  # the value waits there for old readers
    # two versions of one buffer are written one after the other
    return u.op is not Ops.ASSIGN or not any(r.op is Ops.ASSIGN and storage(r) is storage(u) for r in g.roots)

  def _sibling(self, u: UOp, ds: list[Demand]) -> Demand | None:
    """A kernel over the same space that reads something that ``u`` reads too, neither needing the other: it can store ``u`` as well."""
    small = prod(u.shape) <= TINY and u.op is not Ops.REDUCE_AXIS
    for g in self.groups:
      if g.shape != u.shape or any(r.op in (Ops.CAT, Ops.SCATTER) or r.device != u.device for r in g.roots): continue
      if g.alu + min(self.cost[u], MAX_ALU) > MAX_ALU or len(g.reads) > MAX_PARAMS // 2 or len(g.stores) >= 16: continue
      if not self._alike(u, g): continue
      if not small and not any(self.near[u] & self.near[r] for r in g.roots): continue
      if not self._may_join(u, g): continue
      if any(self.beneath[u] >> self.position[r] & 1 for r in g.roots) or self._needs(u, g): continue
      if any(self.depends(g, d[0]) for d in ds if d[0] is not g) or any(d[0] is g for d in ds): continue
      here = (g, g.at, ix.TRUE)
      if u.op is Ops.REDUCE_AXIS and not self._bind(u, here): continue
      return here
    return None

  def _alike(self, u: UOp, g: Group) -> bool:
    """Reductions join reductions of the same axes, everything else joins what is no reduction."""
    others = [r for r in g.roots if r.op is Ops.REDUCE_AXIS]
    if u.op is not Ops.REDUCE_AXIS: return not others
    return any(r.src[0].shape == u.src[0].shape and r.arg[1] == u.arg[1] for r in others)

  def _needs(self, u: UOp, g: Group) -> bool:
    """Whether computing ``u`` waits, through other kernels, for what ``g`` stores."""
    alone = Group(-1, (), (), u.shape, roots=[u])
    return self.depends(alone, g)

  @cached_property
  def near(self) -> dict[UOp, int]:
    """Bit set of what a node reads through arithmetic and movement alone: buffers, reductions, stored values."""
    found: dict[UOp, int] = {}
    for u in self.order:
      if u.op is Ops.CONST or u.op is Ops.IOTA: found[u] = 0
      elif u.op is Ops.ASSIGN: found[u] = found[u.src[1]] if u.src[1].op not in LEAVES else 1 << self.position[u.src[1]]
      else:
        bits = 0
        for s in u.src: bits |= 1 << self.position[s] if s.op in LEAVES or s.op is Ops.REDUCE_AXIS else found[s]
        found[u] = bits
    return found

  def _scatter(self, u: UOp) -> None:
    """Values are stored where their indices say, one index after another, by a kernel of its own."""
    rows, index, value = u.src
    g = self.new_group(value.shape)
    g.roots.append(u)
    g.reads.update({memory_of(rows): None, index: None} | ({value: None} if value.op is Ops.BUFFER else {}))
    where = UOp(Ops.CAST, ix.INT, (load(index, g.at[:1], ix.TRUE),))
    g.stores.append((u, value, (where, *g.at[1:]), ix.both(ix.ge(where, 0), ix.lt(where, rows.shape[0]))))
    self.demands[value][(g, g.at, ix.TRUE)] = None

  def _cat(self, u: UOp) -> None:
    """Each part is stored into its slice by its own kernel."""
    start = 0
    for s in u.src:
      if prod(s.shape):
        g = self.new_group(s.shape)
        g.roots.append(u)
        at = list(g.at)
        at[u.arg] = ix.add(at[u.arg], start)
        g.stores.append((u, s, tuple(at), ix.TRUE))
        if s.op is Ops.BUFFER: g.reads[s] = None
        self.demands[s][(g, g.at, ix.TRUE)] = None
      start += s.shape[u.arg]

  def _whole(self, idx: Idx, u: UOp) -> bool:
    """Whether ``idx`` runs over every element of ``u`` once."""
    rs = [(i, n) for i, n in zip(idx, u.shape) if n > 1]
    return all(i.op is Ops.RANGE and i.arg[1] == n for i, n in rs) and len({i for i, _ in rs}) == len(rs)

  def _expand(self, u: UOp, d: Demand) -> None:
    """Pass a demand on to what ``u`` reads."""
    g, idx, valid = d
    around = self.around.get((u, *d), _NO_AXES)
    if u.op is Ops.REDUCE_AXIS: around = around.union(self.binds[(u, *d)][2])
    def ask(s: UOp, i: Idx, v: UOp) -> None:
      if s.op is Ops.BUFFER: g.reads[s] = None
      self.demands[s][(g, i, v)] = None
      if around: self.around[(s, g, i, v)] = around.union(self.around.get((s, g, i, v), _NO_AXES))
    if u.op in MOVEMENT:
      at, v = pull(u.op, u.src[0].shape, u.arg, idx)
      v = ix.both(valid, v)
      self.binds[(u, *d)] = (at, v, ())
      if v is not ix.FALSE: ask(u.src[0], at, v)
    elif u.op is Ops.REDUCE_AXIS:
      at, v, _ = self.binds[(u, *d)]
      ask(u.src[0], at, v)
    elif u.op is Ops.GATHER:
      n = len(u.src[1].shape)
      where = UOp(Ops.CAST, ix.INT, (load(u.src[1], idx[:n], valid),))
      base = u.src[0]
      v = ix.both(valid, ix.ge(where, 0), ix.lt(where, base.shape[0]))
      at = (where, *idx[n:])
      self.binds[(u, *d)] = (at, v, ())
      g.reads[u.src[1]] = None
      ask(base, at, v)
    elif u.op is Ops.ASSIGN: ask(u.src[1], idx, valid)
    else:
      g.alu += u.op is Ops.ALU
      for s in u.src: ask(s, idx, valid)
