"""Cutting the tensor graph into kernels (docs/architecture.md, Scheduling).

Each node gets a list of its *uses*: the kernels that need it, and at which index tuples. A node that one kernel needs at one
index tuple is computed there, one that is needed at several, or dear to compute again, gets a buffer of its own (a *root*). All
reductions of a kernel keep the same axes and bind the rest.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice

from ntgrad.codegen import index as ix
from ntgrad.codegen.ir import FUNCTIONS, MOVEMENT, BinaryOps, Ops, Target, UOp, toposort
from ntgrad.graph.lock import stand_aside

from .chains import MOST_DEAR, Chains, find_joined
from .kernel_groups import CANDIDATES, MAX_ALU, MAX_PARAMS, MOST_SEARCHED_NODES, Group, Groups, nearest
from .nodes import (
  LEAVES,
  Idx,
  Nodes,
  axes_in,
  axes_size,
  elements_of,
  in_bounds,
  index_covers,
  node_bytes,
  pulled,
  pushed,
  reduced_dims,
  users_in,
  viewed,
)
from .placement import GRAPH_EFFECTS, load_element, number_of, storage
from .prepare import is_contraction
from .scan import join_scan
from .sort import join_sort

CHEAP = 6            # ALU cost up to which a value is computed again instead of stored
# the same of a value that is computed from no more bytes than it would take itself; for targets with blocks, which load meanwhile
AGAIN, BLOCKS_AGAIN = 6, 40
_SEVERAL = 3          # values in memory that may be looked at for that
_FEW = 8              # a value with so many times fewer elements is a statistic: it costs nothing to load
REUSED_CHEAP = 2      # the same beneath a reduction that uses each value many times (matmul, convolution)
# of a product in blocks: uses of each element of a factor, and products, from which on a factor that is computed is stored first
FACTOR_USES, FACTOR_PRODUCTS = 512, 1 << 29
# products of a sum from which on it shares a kernel with no other sum where a target multiplies blocks
LARGE_PRODUCT = 1 << 20
TINY = 256           # elements of a space up to which kernels over it are joined even if they share nothing
MUCH, FEW = 1 << 18, 1 << 13   # elements that such kernels sum, at most; of bare sums, which are often larger elsewhere
MASK = 40            # ALU cost up to which what is made of indices alone is computed where scores of attention are
INDEX_NODES = 24     # of the graph, that an index is computed with where it is used
_NEVER = 1 << 40   # operations: a cost at which nothing is computed again
_ROWS = frozenset({Ops.SCAN_AXIS, Ops.SORT_AXIS})   # what needs whole rows, and keeps them
_ROWS_OR_SUMS = _ROWS | {Ops.REDUCE_AXIS}
_NO_AXES: frozenset[UOp] = frozenset()

Use = tuple[Group, Idx, UOp]          # of a node: kernel, index, condition under which the element exists
Asked = tuple[UOp, Group, Idx, UOp]   # a node, and a use of it


def own_cost(u: UOp) -> int: return FUNCTIONS[u.arg].recompute if u.op is Ops.ALU else 0


def narrows(u: UOp) -> bool: return u.op is Ops.CAST and u.dtype.itemsize < u.src[0].dtype.itemsize


def indices_of(u: UOp) -> Nodes: return u.src[1:] if u.op is Ops.GATHER else u.src[1:-1]


def read_by_index(u: UOp, stored: Collection[UOp]) -> list[UOp]:
  """What has to be in memory to use an index: what it is made of where that is cheap and no larger, or stored; else itself."""
  queue, found, cost = [u], [], 0
  for x in queue:
    if x.op in (Ops.CONST, Ops.IOTA): continue
    passed = x.op in (Ops.ALU, Ops.CAST, Ops.DETACH) or x.op in MOVEMENT and x.op not in (Ops.PAD, Ops.UNTILE)
    if passed and x.dtype.kind != "f" and x not in stored: queue += [s for s in x.src if s not in queue]
    else: found.append(x)
    cost += own_cost(x)
    if cost > CHEAP or len(found) > 2 or len(queue) > INDEX_NODES: return [u]
  return [u] if sum(node_bytes(x) for x in found if x not in stored and x.op not in LEAVES) > node_bytes(u) else found


def contraction(u: UOp) -> UOp | None:
  """The products that a sum adds, where it is a matrix product or a convolution, also in parts: sums of sums of products."""
  if u.op is not Ops.REDUCE_AXIS or u.arg[0] is not BinaryOps.ADD: return None
  while u.op in MOVEMENT or u.op is Ops.REDUCE_AXIS and u.arg[0] is BinaryOps.ADD: u = u.src[0]
  return u if is_contraction(u) else None


def reduction(u: UOp) -> tuple[UOp | None, tuple[object, ...]]:
  """The reduction whose results a node stores, as they are, rounded or in another order, and how it orders them."""
  path: list[object] = []
  while u.op in MOVEMENT or u.op in (Ops.CONTIGUOUS, Ops.CAST):
    if u.op is not Ops.CAST: path += u.op, u.arg
    u = u.src[0]
  return (u, tuple(path)) if u.op is Ops.REDUCE_AXIS else (None, ())


def summands(r: UOp) -> int: return elements_of(r.src[0]) // max(elements_of(r), 1)   # that a reduction has for each result


class Partition:
  """Groups of a graph for a target. ``sinks`` must have buffers; effects with a number in ``alone`` share no kernel.
  Sums are made in one pass with what they need but for those ``refused``, or where that is None."""

  def __init__(self, sinks: list[UOp], target: Target, alone: Collection[int], refused: Collection[UOp] | None = None):
    self.order = toposort(sinks)
    self.target, self.blocks = target, target.blocks
    self.alone = {u for u in self.order if alone and u.op in GRAPH_EFFECTS and number_of(u) in alone}
    self.cost: dict[UOp, int] = {}
    self.again: dict[UOp, tuple[int, frozenset[UOp]]] = {}   # operations, and values in memory, to compute a node once more
    for u in self.order:
      if u.op in LEAVES: self.cost[u] = 0
      else: self.cost[u] = _NEVER if u.op in _ROWS_OR_SUMS else min(_NEVER, own_cost(u) + sum(self.cost[s] for s in u.src))
      self.again[u] = self._again(u)
    self.uses: dict[UOp, dict[Use, None]] = {u: {} for u in self.order}
    self.binds: dict[Asked, tuple[Idx, UOp, Nodes]] = {}
    # of a node beneath reductions of the kernel that asks for it: the axes that these bind
    self.around: dict[Asked, frozenset[UOp]] = {}
    self.merged: set[Asked] = set()  # sums that are part of the sum above them
    self.launches: dict[int, Group] = {}   # the kernels of LAUNCHs, by call
    self.of_one: set[UOp] = set()   # nodes computed from one reduction of as many elements at most
    self.must: set[UOp] = set(sinks)
    self._force()
    self.chains = Chains({}, set(), {}, {})
    if refused is not None: self.chains = find_joined(self.order, self.users, self.must, refused, target)
    self.joined = self.chains.joined
    # the kernels that make a reduction within such sums, or know a value of them in each round that others ask for
    self.passes: dict[UOp, list[Group]] = {}
    # what a kernel might store beside sums of products is looked at after these
    if self.chains.stored: self.order = toposort([*self.chains.stored, *sinks])
    self.groups = Groups({u: i for i, u in enumerate(self.order)})
    self.within = {n for j in self.joined.values() for n in j.within}
    self.with_sums = {n: j for j in self.joined.values() for n in j.along}
    for u in reversed(self.order): self._visit(u)

  def _again(self, u: UOp) -> tuple[int, frozenset[UOp]]:
    """Operations to compute ``u`` in one more kernel, and the values beneath it that are in memory, or will be because several
    nodes read what is dear to compute. Too many of them count as _NEVER."""
    if u.op in LEAVES or u.op in _ROWS_OR_SUMS: return self.cost[u], frozenset()
    cost, beneath = own_cost(u), frozenset[UOp]()
    for s in u.src:
      more, leaves = self.again[s]
      if more > CHEAP and elements_of(u) >= _FEW * elements_of(s): continue
      if self.cost[s] > CHEAP and len(self.users[s]) > 1 and not self._worth_again(s): more, leaves = 0, frozenset((s,))
      cost, beneath = cost + more, beneath | leaves
    return (_NEVER, frozenset()) if len(beneath) > _SEVERAL else (min(_NEVER, cost), beneath)

  def _worth_again(self, u: UOp) -> bool:
    """Whether several kernels that need ``u`` had better compute it: from no more bytes than it has itself, beside numbers of its
    rows."""
    cost, leaves = self.again[u]
    large = [x for x in leaves if elements_of(u) < _FEW * elements_of(x)]
    return cost <= (BLOCKS_AGAIN if self.blocks else AGAIN) and sum(map(node_bytes, large)) <= node_bytes(u)

  def _of_product(self, u: UOp) -> bool:
    """Whether ``u`` is what a sum of products is made into, element by element: its own kernel then stores no more than this."""
    size, queue = elements_of(u), [u]
    for x in queue:
      if x.op is Ops.REDUCE_AXIS: return contraction(x) is not None and not self._of_pass(x)
      if len(queue) > MOST_SEARCHED_NODES: break
      queue += [s for s in x.src if self.cost[s] >= _NEVER and len(self.users[s]) == 1 and elements_of(s) == size]
    return False

  def _force(self) -> None:
    """Nodes that need a buffer whatever their consumers are."""
    for u in self.order:
      if u.op in LEAVES: self.must.add(u)
      if u.op is Ops.COPY: self.must.add(u.src[0])
      if u.op is Ops.LAUNCH: self.must.update(u.src[1:])
      if u.op in (Ops.GATHER, Ops.SCATTER):
        for i in indices_of(u): self.must.update(read_by_index(i, self.must))
      if u.op is Ops.SCATTER:   # what is stored in order would be summed by one program
        value = u.src[-1]
        while value.op in MOVEMENT and elements_of(value) > elements_of(value.src[0]): value = value.src[0]
        if self.cost[value] >= _NEVER: self.must.add(value)
    self.must = {u for u in self.must if u.op is not Ops.BUFFER}

  # ---- one node

  def _visit(self, u: UOp) -> None:
    stand_aside()
    ds = self.uses[u]
    if u.op in (Ops.BUFFER, Ops.CONST) or u not in self.must and not ds or elements_of(u) == 0: return
    if u not in self.chains.stored or not self._store_in_pass(u, list(ds)):
      if u in self.must or not self._fuses(u, list(ds)): self._make_root(u, list(ds))
    for d in self.uses[u]: self._expand(u, d)

  def _fuses(self, u: UOp, ds: list[Use]) -> bool:
    if u.op is Ops.IOTA or u.op in MOVEMENT: return True
    if u.device is None and self.cost[u] <= MASK and all(g.joined is not None for g, _, _ in ds): return True
    if u in self.within and u not in self.with_sums and all(g.joined is not None and u in g.joined.within for g, _, _ in ds):
      return u.op is not Ops.REDUCE_AXIS or all(self._bind(u, d) for d in ds)
    if u.op is Ops.REDUCE_AXIS: return len(ds) == 1 and (self._bind(u, ds[0]) or self._merge(u, ds[0]))
    if u.op is Ops.CAST and not narrows(u): return True   # what it is made of takes no more memory
    if u.op in _ROWS: return len(ds) == 1 and (u, *ds[0]) not in self.around and self._join(u, ds[0])
    cost = self.cost[u]
    if len(ds) > 1 and cost > CHEAP and not self._worth_again(u): return False
    # reductions under another reduction get buffers: better one for the value that is made of several
    if len(ds) == 1 and cost >= _NEVER and own_cost(u) and self._beneath(u, ds[0]) and self._of_several(u): return False
    for d in ds:
      if d[0].full: return False
      if not own_cost(u) and not narrows(u) or cost <= REUSED_CHEAP and not d[0].product: continue
      n, size = self._products(u, d), elements_of(u)
      # a reduction uses each element many times: u is beneath it, and does not vary with all of its axes
      if cost > REUSED_CHEAP and own_cost(u) and n >= 8 * size > 0: return False
      # a factor of a large product, which is faster where that lies in memory
      if d[0].product and n >= FACTOR_PRODUCTS and n >= FACTOR_USES * size: return False
    return True

  def _of_several(self, u: UOp) -> bool:
    """Whether ``u`` is computed from more than one reduction of as many elements."""
    size = elements_of(u)
    if u not in self.of_one:
      alike = (r for r in nearest(u) if r.op is Ops.REDUCE_AXIS and elements_of(r) == size)
      if len(list(islice(alike, 2))) > 1: return True
    self.of_one.update([s for s in u.src if elements_of(s) == size])   # they read no more than it does
    return False

  def _beneath(self, u: UOp, d: Use) -> frozenset[UOp]:
    """The axes of the reductions around ``u``; none where it is the same for all of their elements, and so stands outside."""
    around = self.around.get((u, *d), _NO_AXES)
    return around if not around.isdisjoint(axes_in(*d[1])) else _NO_AXES

  def _products(self, u: UOp, d: Use) -> int:
    """How many elements the reductions around ``u`` go through; 0 where it is beneath none."""
    around, g = self._beneath(u, d), d[0]
    return axes_size(around.union(g.out if g.kept is None else g.kept)) if around else 0

  def _bind(self, u: UOp, d: Use) -> bool:
    """Try to compute a reduction inside the kernel that asks for it; choose the axes it binds: every output axis that the
    kernel's reductions do not keep, as the row of a softmax."""
    g, idx, valid = d
    if g.joined is not None: return self._join_pass(u, d)
    if (u in self.joined or u in self.with_sums) and self._join_pass(u, d): return True
    if u in self.joined: return False   # what lies within would be stored
    free, product = axes_in(valid, *idx), self._is_product(u)
    if g.kept is not None and (free != g.kept or product) or g.product: return False   # blocks are chosen for one product
    if not free.isdisjoint(g.bound) or axes_size(free) > elements_of(u): return False
    pool = [r for r in dict.fromkeys((*g.out, *g.bound)) if r not in free]
    same_rank = len(g.shape) == len(u.shape)
    at, taken, fresh = list(idx), [], []
    for dim in sorted(u.arg[1]):
      n = u.src[0].shape[dim]
      if n == 1: continue
      if choices := [r for r in pool if r.arg[1] == n and r not in taken]:
        at[dim] = g.at[dim] if same_rank and g.at[dim] in choices else choices[0]
        taken.append(at[dim])
      else: fresh.append(dim)
    if any(r not in taken for r in g.out if r not in free and r not in g.bound): return False
    self._take(u, d, at, taken, fresh)
    g.kept, g.product = free, product
    return True

  def _join_pass(self, u: UOp, d: Use) -> bool:
    """Compute a reduction in the kernel of sums, with which it is made in one pass over their axis, or such a sum itself."""
    g, idx, valid = d
    dims = reduced_dims(u)
    mine = self.joined.get(u)
    if g.joined is None:
      joined, free = mine or self.with_sums.get(u), axes_in(valid, *idx)
      if joined is None or g.kept is not None or not free.isdisjoint(g.bound): return False
      if mine and (valid is not ix.TRUE or free != set(g.out) or axes_size(free) != elements_of(u)): return False
      g.joined, g.kept, g.product, g.axis = joined, frozenset(g.out), True, g.new_axis(u.src[0].shape[dims[0]])
    elif mine and u not in g.joined.sums:
      if not self._in_pass(u, idx, g): return False
      g.joined = g.joined.with_(mine)
    if u in g.joined.inner: self._take(u, d, list(idx), [], dims)
    elif u in g.joined.along or mine:
      at = [*idx[:dims[0]], g.axis, *idx[dims[0] + 1:]]
      self._take(u, d, at, [g.axis], [])
      if mine:
        g.places.update(mine.places(tuple(at)))
        for r in mine.dear | mine.final: self.passes.setdefault(r, []).append(g)
    else: return False
    return True

  def _pass_with(self, path: Sequence[UOp], readers: Collection[Group]) -> Use | None:
    """A use, by a kernel that makes a value or what lies within a sum anyway, of what is made of that alone."""
    first, u = path[0], path[-1]
    for g, idx in self._in_passes(first):
      if g in readers or any(r.device != u.device for r in g.roots): continue
      if u is not first and first in self.joined and not self._in_pass(first, idx, g): continue
      for x in path[1:]: idx = pushed(x, idx)
      if self._takes(u, (g, idx, ix.TRUE), readers): return g, idx, ix.TRUE
    return None

  def _in_passes(self, u: UOp) -> Iterator[tuple[Group, Idx]]:
    """Such kernels, whose results may lie in another order, and where they have each element."""
    if (mine := self.joined.get(u)) is None:   # best where it lies along what the kernel goes along
      yield from sorted([(g, g.places[u]) for g in self.passes.get(u, ())[-CANDIDATES:]], key=lambda p: p[1][-1] is not p[0].axis)
      return
    for g in dict.fromkeys(g for r in mine.dear for g in self.passes.get(r, ())[-CANDIDATES:]):
      table: dict[UOp, UOp] = {}
      for r in mine.dear & g.places.keys(): table.update(zip(mine.at[r], g.places[r]))
      left = [a for a in g.out if a not in table.values()]
      for i in mine.start:   # along what the inner reductions do not vary
        if i.op is Ops.RANGE and i not in table: table[i] = next((a for a in left if a.arg[1] == i.arg[1]), i)
      idx = tuple(ix.ZERO if d in u.arg[1] else table.get(i, i) for d, i in enumerate(mine.start))
      if axes_in(*idx) <= set(g.out) and index_covers(idx, u.shape): yield g, idx

  def _store_in_pass(self, u: UOp, ds: list[Use]) -> bool:
    """Have a kernel that makes it anyway store a value for those that do not make it too."""
    inside = [d for d in ds if d[0].joined is not None and u in d[0].joined.within]
    asking = dict.fromkeys(d[0] for d in ds if d not in inside)
    readers = asking.keys() | self.groups.reading.get(u, ())
    if not asking and u not in self.must or (here := self._pass_with(self.chains.stored[u], readers)) is None: return False
    self._store(u, here, [], asking)
    for d in inside:   # other kernels make it once more
      if d != here: self._begin(u, d)
      self.uses[u][d] = None
    return True

  def _in_pass(self, u: UOp, idx: Idx, g: Group) -> bool:
    """Whether a sum shares what lies within with those that a kernel makes in one pass, read at the same places."""
    mine, dim = self.joined[u], reduced_dims(u)[0]
    if g.joined is None or u.src[0].shape[dim] != g.axis.arg[1] or mine.along - g.joined.along: return False
    if u in g.joined.reads or not mine.reads.isdisjoint(g.joined.sums): return False
    if len(mine.dear | g.joined.dear) > MOST_DEAR: return False
    places = mine.places((*idx[:dim], g.axis, *idx[dim + 1:]))
    return any(r in g.places for r in places) and all(g.places.get(r, at) == at for r, at in places.items())

  def _merge(self, u: UOp, d: Use) -> bool:
    """A sum asked for only by another sum, through movement alone, is one sum over both (the input gradient of a convolution)."""
    g, idx, valid = d
    if u.arg[0] is not BinaryOps.ADD or g.kept is None or u in self.joined: return False
    free, above = axes_in(valid, *idx), u
    while above is u or above.op in MOVEMENT:
      users = self.users.get(above, [])
      if len(users) != 1 or users[0] in self.must: return False
      above = users[0]
    if above.op is not Ops.REDUCE_AXIS or above.arg[0] is not BinaryOps.ADD or above.dtype is not u.dtype: return False
    if not g.kept <= free or axes_size(free) > 2 * elements_of(u): return False
    self._take(u, d, list(idx), [], sorted(reduced_dims(u)))
    self.merged.add((u, *d))
    return True

  def _join(self, u: UOp, d: Use) -> bool:
    """Try to compute a scan or a sort inside the kernel that asks for it."""
    if u.op is Ops.SCAN_AXIS: return join_scan(u, *d)
    if (bound := join_sort(u, *d)) is None: return False
    self.binds[u, *d] = bound
    return True

  def _take(self, u: UOp, d: Use, at: list[UOp], taken: list[UOp], fresh: list[int]) -> None:
    g = d[0]
    for dim in fresh:
      at[dim] = g.new_axis(u.src[0].shape[dim])
      taken.append(at[dim])
    g.bound.extend(r for r in taken if r not in g.bound)
    self.binds[u, *d] = tuple(at), d[2], tuple(taken)

  @cached_property
  def users(self) -> dict[UOp, list[UOp]]: return users_in(self.order)

  def _make_root(self, u: UOp, ds: list[Use]) -> None:
    """Give ``u`` a buffer: stored by a kernel that computes it anyway where there is one, else by a kernel of its own."""
    if u.op in (Ops.CAT, Ops.COPY, Ops.SCATTER, Ops.LAUNCH, Ops.AFTER):
      for g, _, _ in ds: self._await(u, g)
      self.uses[u] = {}
      if u.op is Ops.CAT: self._cat(u)
      if u.op is Ops.LAUNCH: self._launch(u)
      if u.op is Ops.SCATTER:   # stored where its indices say, one after another, by a kernel of its own
        g = self.groups.new(u.src[-1].shape)
        self.groups.read(g, viewed(u.src[0]))
        self._into(u, u.src[-1], g, *self._rows(u, *g.here))
      return
    if (cast := self._narrower(u)) is not None: return self._root_of_cast(cast, u)
    asking = Counter([g for g, _, _ in ds])
    readers = asking.keys() | self.groups.reading.get(u, ())   # the kernels that wait for whoever stores it
    here = None if u.op in _ROWS else next((d for d in ds if asking[d[0]] == 1 and self._can_store(u, d, readers)), None)
    near = self._near(u)
    if here is None and u.op not in _ROWS: here = self._sibling(u, readers, near)
    if here is None and u in self.joined: here = self._pass_with((u,), readers)
    if here is None: self._begin(u, here := self.groups.new(u.shape).here)
    if asking == {here[0]: 1} and u not in self.must: return   # computed where it is needed
    self._store(u, here, near, asking)
    if u.op is Ops.ASSIGN: self.groups.read(here[0], viewed(u.src[0]))   # the memory has to be there

  def _begin(self, u: UOp, d: Use) -> None:
    if u.op is Ops.REDUCE_AXIS: self._bind(u, d)
    if u.op in _ROWS: self._join(u, d)

  def _store(self, u: UOp, here: Use, near: list[UOp], asking: Iterable[Group]) -> None:
    """Have a kernel store ``u``, which it computes at one index; every other kernel loads it."""
    g, at, _ = here
    g.stores.append((u, u, at, at, ix.TRUE))
    self.groups.store(g, u, near)
    for other in asking:
      if other is not g: self.groups.read(other, u)
    self.uses[u] = {here: None}

  def _narrower(self, u: UOp) -> UOp | None:
    """The CAST to fewer bytes that alone reads ``u``, through reshapes at most, where neither has a buffer yet."""
    while u not in self.must and len(users := self.users.get(u, [])) == 1:
      u = users[0]
      if narrows(u): return None if u in self.must or u in self.groups.storing else u
      if u.op is not Ops.RESHAPE: break
    return None

  def _root_of_cast(self, cast: UOp, u: UOp) -> None:
    """Store what a CAST makes of ``u`` in fewer bytes, in place of ``u``: x -> u -> bfloat16(u) -> .. , stored as bfloat16."""
    mine, asking = reduction(cast)[0], dict.fromkeys(g for g, _, _ in self.uses[cast])
    near = self._near(cast)
    here = None if mine is None else self._sibling(cast, asking.keys() | self.groups.reading.get(cast, ()), near)
    self._store(cast, here or self.groups.new(cast.shape).here, near, asking)
    x = cast
    while x is not u:   # asked for by the new kernel alone
      self.uses[x.src[0]] = {}
      for d in self.uses[x]: self._expand(x, d)
      x = x.src[0]
    for d in self.uses[u]: self._begin(u, d)

  def _can_store(self, u: UOp, d: Use, readers: Collection[Group]) -> bool:
    """Whether the kernel of a use can store ``u`` too: it needs each element once, and waits for none that reads ``u``."""
    g, idx, valid = d
    once = valid is ix.TRUE and index_covers(idx, u.shape) if u.op is Ops.REDUCE_AXIS else g.stands(idx, valid, u.shape)
    return once and not g.full and self._takes(u, d, readers)

  def _may_join(self, u: UOp, g: Group) -> bool:
    """Whether ``g`` may store ``u`` too: it reads no element of it elsewhere, and no write has to be kept apart."""
    first = g.roots[0]
    if u in self.alone or first in self.alone or u in g.reads: return False
    if first.op is Ops.SCATTER or first.op is Ops.CAT and u.op is Ops.ASSIGN: return False
    # the value waits there for old readers
    if u.op is Ops.CONTIGUOUS and any(r.op is Ops.ASSIGN and r.src[1] is u for r in g.roots): return False
    # two versions of one buffer are written one after the other
    return u.op is not Ops.ASSIGN or not any(r.op is Ops.ASSIGN and storage(r) is storage(u) for r in g.roots)

  def _near(self, u: UOp) -> list[UOp]:
    """What a root reads nearest, for those that read the same; where it is what a pass stores, what that reads."""
    near = list(islice(nearest(reduction(u)[0] or u), MAX_PARAMS))
    return near + [x for s in near if s in self.joined for x in self.joined[s].reads]

  def _sibling(self, u: UOp, readers: Collection[Group], near: list[UOp]) -> Use | None:
    """A kernel over the same space that reads something that ``u`` reads too, and can store ``u`` as well. (``u`` waits for
    nothing that it stores: nodes are visited consumers first.)"""
    mine = reduction(u)[0]   # sums of much would be no more programs together than one of them, and wait for what others read
    small = elements_of(u) <= TINY and (mine is None or elements_of(mine.src[0]) <= (FEW if u is mine else MUCH))
    for g in self.groups.candidates(u, None if small else near):
      if any(r.device != u.device for r in g.roots): continue
      if g.alu + min(self.cost[u], MAX_ALU) > MAX_ALU and (g.joined is None or mine not in self.joined): continue
      if self._alike(u, g) and g not in readers and self._takes(u, g.here, readers): return g.here
    return None

  def _takes(self, u: UOp, d: Use, readers: Collection[Group]) -> bool:
    """Whether a kernel that needs, or has, each element of ``u`` may store it; a reduction is bound in it then."""
    g = d[0]
    if not self._may_join(u, g) or self.groups.depends(g, readers): return False
    if g.kept is not None and g.joined is None and self._of_product(u): return False
    return u.op is not Ops.REDUCE_AXIS or self._bind(u, d)

  def _alike(self, u: UOp, g: Group) -> bool:
    """Reductions join those of the same axes whose results lie in the same order, all else joins what is no reduction."""
    if (mine := reduction(u)[0]) in self.joined and g.joined is not None:
      idx, x = g.at, u
      while x is not mine: idx, x = pulled(x, idx)[0] if x.op in MOVEMENT else idx, x.src[0]
      return self._in_pass(x, idx, g)
    others, (mine, order) = [(r, other) for r, other in map(reduction, g.roots) if r is not None], reduction(u)
    if mine is None: return not others
    if mine is not u and self._is_product(mine): return False
    if self._of_pass(mine) and any(self._of_pass(r) and summands(r) == summands(mine) for r, _ in others): return True
    return any(r.src[0].shape == mine.src[0].shape and r.arg[1] == mine.arg[1] and order == other for r, other in others)

  def _of_pass(self, r: UOp) -> bool:
    """Whether a reduction is of what a pass stores, as in the gradient of keys that several heads share."""
    x = r.src[0]
    while x.op in MOVEMENT: x = x.src[0]
    return x in self.joined

  def _is_product(self, u: UOp) -> bool:
    """Whether a reduction is a product that a target with blocks makes in a kernel without others."""
    return self.blocks and (x := contraction(u)) is not None and elements_of(x) >= LARGE_PRODUCT and not self._of_pass(u)

  def _into(self, u: UOp, value: UOp, g: Group, at: Idx, gate: UOp) -> None:
    """Have a kernel of its own store a value into ``u``."""
    g.stores.append((u, value, g.at, at, gate))
    self.groups.store(g, u)
    if value.op is Ops.BUFFER: self.groups.read(g, value)
    self.uses[value][g.here] = None

  def _launch(self, u: UOp) -> None:
    """A kernel that there is already, which waits for its arguments; it stores nothing else."""
    g = self.launches[u.arg[3]] = self.launches.get(u.arg[3]) or self.groups.new(())
    for s in u.src: self._await(s, g)
    self.groups.store(g, u)

  def _await(self, u: UOp, g: Group) -> None:
    """Have a kernel read a value, and wait for the effect that it comes after."""
    self.groups.read(g, u)
    if u.op is Ops.AFTER: self.groups.read(g, u.src[1])

  def _rows(self, u: UOp, g: Group, idx: Idx, valid: UOp) -> tuple[Idx, UOp]:
    """Where in its base a GATHER or SCATTER reads or writes for element ``idx``, and when that is inside."""
    indices = indices_of(u)
    n = len(indices[0].shape)
    where = tuple(ix.int_as_index(self._index_value(i, g, idx[:n], valid)) for i in indices)
    return (*where, *idx[n:]), ix.both(valid, in_bounds(where, u.src[0].shape))

  def _index_value(self, u: UOp, g: Group, idx: Idx, valid: UOp) -> UOp:
    """An index node in index form, computed from what is in memory (``read_by_index``)."""
    values: dict[tuple[UOp, Idx], UOp] = {}
    todo = [(u, idx)]
    while todo:
      node, at = here = todo[-1]
      if here in values: todo.pop()
      elif node in self.must or node.op is Ops.BUFFER:
        self.groups.read(g, node)
        values[here] = load_element(node, at, valid)
      elif node.op is Ops.CONST: values[here] = node
      elif node.op is Ops.IOTA: values[here] = UOp(Ops.CAST, node.dtype, (at[0],))
      else:
        if node.op in MOVEMENT: at = pulled(node, at)[0]
        if missing := [(s, at) for s in node.src if (s, at) not in values]: todo += missing
        else:
          found = tuple(values[s, at] for s in node.src)
          values[here] = UOp(node.op, node.dtype, found, node.arg) if node.op in (Ops.ALU, Ops.CAST) else found[0]
    return values[u, idx]

  def _cat(self, u: UOp) -> None:
    """Each part is stored into its slice by its own kernel."""
    start: ix.Dim = 0
    for s in u.src:
      if elements_of(s):
        g = self.groups.new(s.shape)
        self._into(u, s, g, (*g.at[:u.arg], ix.add(g.at[u.arg], start), *g.at[u.arg + 1:]), ix.TRUE)
      start = ix.plus(start, s.shape[u.arg])

  def _expand(self, u: UOp, d: Use) -> None:
    """Add the uses that a use of ``u`` makes of what ``u`` reads."""
    g, idx, valid = d
    here = u, *d
    around = self.around.get(here, _NO_AXES)
    if u.op is Ops.REDUCE_AXIS: around = around.union(self.binds[here][2])
    if u.op is Ops.SCAN_AXIS: around = around | idx[u.arg[1]].ranges
    def ask(s: UOp, i: Idx, v: UOp) -> None:
      if s.op is Ops.BUFFER: self.groups.read(g, s)
      self.uses[s][g, i, v] = None
      if around: self.around[s, g, i, v] = around.union(self.around.get((s, g, i, v), _NO_AXES))
    if u.op in MOVEMENT:
      at, v = pulled(u, idx)
      self.binds[here] = at, (v := ix.both(valid, v)), ()
      if v is not ix.FALSE: ask(u.src[0], at, v)
    elif u.op in (Ops.REDUCE_AXIS, Ops.SORT_AXIS, Ops.GATHER):
      if u.op is Ops.GATHER: self.binds[here] = *self._rows(u, g, idx, valid), ()
      ask(u.src[0], *self.binds[here][:2])
    elif u.op is Ops.ASSIGN: ask(u.src[1], idx, valid)
    else:
      g.alu += u.op is Ops.ALU
      for s in u.src: ask(s, idx, valid)
