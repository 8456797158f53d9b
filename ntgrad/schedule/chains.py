"""Which sums of a graph are made in one pass over an axis with the reductions that they need, so that what lies between is never
stored: the scores of attention, and in its gradients the scores made once more.

    s = sum[k](q * k), m = max[j](s), l = sum[j](exp(s - m)), y = sum[j](exp(s - m) / l * v)   ->   y with all within, one kernel

``codegen/passes/one_pass_rule`` says which may be, ``one_pass`` makes the loop.
"""
from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ntgrad.codegen import index as ix
from ntgrad.codegen.ir import MOVEMENT, BinaryOps, Ops, Target, TernaryOps, UOp, config, multiplied_exactly, toposort
from ntgrad.codegen.kernel import substitute
from ntgrad.codegen.passes.one_pass_rule import MOST_WITHIN, members_of
from ntgrad.graph import nodes as graph

from .nodes import (
  LEAVES,
  LEAVES_WITHIN,
  Idx,
  axes_in,
  elements_of,
  index_covers,
  is_fixed,
  node_bytes,
  pulled,
  reduced_dims,
  reduced_size,
)
from .placement import load_element

MOST_WALKED = 512     # nodes that are looked at for one sum
MOST_DEAR = 2         # blocks between products that a kernel has room for: the scores of attention, and their gradient
_LITTLE = 16          # so many times less work than the largest of what lies within is done again in each kernel

# why a sum is not made in one pass with what it needs
TOO_FEW = "it would be too few programs, or its blocks too large"
BY_RULE = "no factor of what it adds corrects it for another maximum"
EXACTLY = "matrix units round float32, which ALLOW_TF32=1 lets them"
READ_TOO = "what lies between is asked for elsewhere too"

_EQUALITIES = BinaryOps.CMPEQ, BinaryOps.CMPNE
_ELEMENTWISE = frozenset({Ops.ALU, Ops.CAST, Ops.DETACH})
_AS_STORED = _ELEMENTWISE | {Ops.RESHAPE, Ops.PERMUTE, Ops.CONTIGUOUS}


class Joined(NamedTuple):
  """Sums, and what is computed with them in one kernel.

  ``along``: reductions over the same axis. ``inner``: others, the ``dear`` ones for each element of rows and axis. ``within``:
  all these, what they add and what is made of them; ``reads``: what that is made of. ``shared``: what of it others may read too.
  ``final``: what each round of the loop has a block of, and knows at once. ``at``: where the inner reductions and these are read,
  for the element ``start`` of what the first sum adds."""
  sums: tuple[UOp, ...]
  along: frozenset[UOp]
  inner: frozenset[UOp]
  dear: frozenset[UOp]
  within: frozenset[UOp]
  reads: frozenset[UOp]
  shared: frozenset[UOp]
  final: frozenset[UOp]
  start: Idx
  at: dict[UOp, Idx]

  def places(self, start: Idx) -> dict[UOp, Idx]:
    """The same for another element."""
    table = dict(zip(self.start, start))
    return {r: substitute(idx, table) for r, idx in self.at.items()}

  def with_(self, other: Joined) -> Joined:
    """Both, in the places of the first."""
    return Joined((*self.sums, *other.sums), self.along | other.along, self.inner | other.inner, self.dear | other.dear,
                  self.within | other.within, self.reads | other.reads, self.shared | other.shared, self.final | other.final,
                  self.start, self.at)


class Chains(NamedTuple):
  """The sums of a graph that are ``joined`` with what they need; those over ``several`` axes that read what lies within, and so
  hinder it (the gradient of keys that several heads share); those that are made ``apart`` from a maximum that they need: why.
  ``stored``: what a pass that makes others anyway might store, as it is asked for elsewhere: blocks of a value within (the
  gradient of scores), sums of nothing else, and what is made of these alone (that of a bias), by all that lies between."""
  joined: dict[UOp, Joined]
  several: set[UOp]
  apart: dict[UOp, str]
  stored: dict[UOp, tuple[UOp, ...]]


def find_joined(order: Sequence[UOp], users: Mapping[UOp, Sequence[UOp]], must: Collection[UOp], refused: Collection[UOp],
                target: Target) -> Chains:
  """Such sums of a graph that are worth it: for a target with blocks those of products that its matrix units make. Each has
  reductions along its axis, or makes once more what such a one has within; nobody else reads that."""
  found, several, apart, stored = chains = Chains({}, set(), {u: TOO_FEW for u in order if u in refused}, {})
  if config.noopt: return chains
  sums = [u for u in order if u.op is Ops.REDUCE_AXIS and u.arg[0] is BinaryOps.ADD and u.dtype.kind == "f" and u not in refused]
  walks = {u: w for u in sums if len(reduced_dims(u)) == 1 and (w := _Walk(u, users, must, target.least_scores)).dear}
  first = {u: j for u, w in walks.items() if (j := w.with_others()) is not None}
  apart.update((u, BY_RULE) for u, w in walks.items() if u not in first and any(r.arg[0] is BinaryOps.MAX for r in w.along))
  for u in [u for u, j in first.items() if target.blocks and any(map(_multiplied_exactly, j.dear))]:
    apart[u] = EXACTLY
    del first[u]
  # what some sum is made with, or is itself, others load; they make what is dear once more
  loaded, dear = {r for u, j in first.items() for r in (u, *j.along)}, {r for j in first.values() for r in j.dear}
  needed = {r for u, j in first.items() if not walks[u].beside for r in j.dear}
  for u, w in walks.items():
    mine = first.get(u)
    beside = w.beside and not needed.isdisjoint(w.dear)   # sums of the same are made with it all the same
    if mine is None or beside or not mine.inner.isdisjoint(loaded): mine = w.alone(loaded, dear)
    if mine is not None: found[u] = mine
  for r in {r for j in found.values() for r in j.along}: found.pop(r, None)
  while True:
    inside, left = {n for j in found.values() for n in j.within}, dict(found)
    known = {n for j in left.values() if j.along for n in j.dear}
    final = {n for j in left.values() for n in j.final}
    private = {n for j in left.values() for n in j.within - j.shared}
    asked = {n: [r for r in users.get(n, ()) if r not in inside and r not in left] for n in private}
    for u, mine in left.items():
      others = [n for n in mine.within - mine.shared if asked[n] or n in must]
      several.update(s for n in others for r in asked[n] for s in _sums_above(r, users))
      hindered = not final.issuperset(others)
      if hindered and mine.along: apart[u] = READ_TOO
      if hindered or known.isdisjoint(mine.dear): del found[u]
    if len(found) == len(left): break
  bare = {u for u, j in found.items() if elements_of(u.src[0]) <= min(map(elements_of, j.dear))}
  for n in order:
    path: tuple[UOp, ...] = (n,)
    above = users.get(n, ()) if n in bare else asked.get(n, ()) if n in final else ()
    if n in bare or n in final and (n in must or above): stored[n] = path
    while len(above) == 1 and path[-1] not in must and above[0].op in _AS_STORED:   # with what alone it is asked for
      path = *path, above[0]
      stored[path[-1]], above = path, users.get(path[-1], ())
  for u in {*found, *inside}: apart.pop(u, None)
  return chains


def _sums_above(n: UOp, users: Mapping[UOp, Sequence[UOp]]) -> list[UOp]:
  """The sum over several axes that adds a node, or what is made of it and of nothing else's, and what only puts its parts
  together; empty where there is none."""
  found: list[UOp] = []
  for _ in range(LEAVES_WITHIN):
    if n.op is Ops.REDUCE_AXIS:
      if n.arg[0] is not BinaryOps.ADD or n.dtype.kind != "f" or not found and len(reduced_dims(n)) < 2: break
      found.append(n)
    elif n.op in MOVEMENT or found and n.op is Ops.CONTIGUOUS: found += [n] * bool(found)
    elif n.op not in _ELEMENTWISE or found: break
    if len(above := users.get(n, ())) != 1: break
    n = above[0]
  return found


def _multiplied_exactly(r: UOp) -> bool: return r.src[0].arg is BinaryOps.MUL and multiplied_exactly(r.src[0])
def _products(r: UOp) -> int: return elements_of(r) * reduced_size(r)


def _is_short(r: UOp) -> bool:
  """Whether a program has all that a reduction goes along."""
  return is_fixed([r.src[0].shape[d] for d in r.arg[1]]) and reduced_size(r) <= MOST_WITHIN


def _with_little(dear: Collection[UOp], reduces: Iterable[UOp]) -> set[UOp]:
  """Of reductions the dear ones, and those that are little work beside these."""
  most = max(map(_products, dear)) // _LITTLE
  return {r for r in reduces if r in dear or _products(r) <= most}


def _above(some: Iterable[UOp], among: Collection[UOp]) -> set[UOp]:
  """Some nodes, and those among others that are made of them."""
  found = set(some)
  for n in toposort(among, lambda n: n not in among):
    if n in among and not found.isdisjoint(n.src): found.add(n)
  return found


class _Walk:
  """What lies beneath a sum over one axis, as far as it could be computed with it: ``at`` has where each node is read."""

  def __init__(self, u: UOp, users: Mapping[UOp, Sequence[UOp]], must: Collection[UOp], least: int):
    self.sum, self.users, self.must = u, users, must
    self.beside = False   # whether the sum needs none of the other reductions along its axis
    self.start = tuple(ix.rng(d, n) for d, n in enumerate(u.src[0].shape))
    self.axis = self.start[reduced_dims(u)[0]]
    queue, seen, reduces = [u.src[0]], {u.src[0]}, list[UOp]()
    for n in queue:
      if n.op is Ops.REDUCE_AXIS:
        if _is_short(n): reduces.append(n)
        if self.axis.arg[1] not in [n.src[0].shape[d] for d in n.arg[1]]: continue
      elif n.op not in MOVEMENT and n.op not in _ELEMENTWISE: continue
      new = [s for s in n.src if s not in seen]
      seen.update(new)
      queue += new
      if len(queue) > MOST_WALKED: break
    # the reductions beneath that might be dear, and what leads to these or to small ones
    self.dear = {r for r in reduces if node_bytes(r) >= least and elements_of(r) >= elements_of(u)}
    self.leading = _above(_with_little(self.dear, reduces), seen) if self.dear else self.dear

  def with_others(self) -> Joined | None:
    """What is made in one pass with the sum, and reductions along its axis that it needs; None where nothing is, or where a
    program has no room for it."""
    if not self._go(True) or not self.along or (found := self._joined()) is None or not self._rule_holds(): return None
    self.beside = self.along.isdisjoint(toposort((self.sum.src[0],), lambda n: n not in self.at))
    return found

  def alone(self, loaded: Collection[UOp], known: Collection[UOp]) -> Joined | None:
    """The same with what is ``loaded``, where the kernel makes something once more that is ``known`` to be dear."""
    return None if self.dear.isdisjoint(known) or not self._go(False, loaded) else self._joined(known)

  def _go(self, with_others: bool, loaded: Collection[UOp] = ()) -> bool:
    """Walk, to other reductions along the axis or not; whether all nodes were seen, and some reduction varies along the axis."""
    self.at: dict[UOp, Idx] = {}
    self.leaves: dict[UOp, Idx] = {}
    self.along, self.inner, self.twice = set[UOp](), set[UOp](), set[UOp]()
    todo = [(self.sum.src[0], self.start)]
    for n, idx in todo:
      if len(todo) > MOST_WALKED: return False
      if n in self.at and self.at[n] != idx: self.twice.add(n)
      if n in self.at or n in self.leaves: continue
      new: list[tuple[UOp, Idx]] = []
      if n.op is Ops.REDUCE_AXIS:
        if with_others and (where := _along(n, idx, self.axis)) is not None:
          self.along.add(n)
          new = [(n.src[0], where)]
        elif self._lies(n, idx) or n in loaded or not _is_short(n): self.leaves[n] = idx
        else: self.inner.add(n)
      elif self._lies(n, idx) or n not in self.leading: self.leaves[n] = idx
      elif n.op in MOVEMENT: new = [(n.src[0], pulled(n, idx)[0])]
      else:
        new = [(s, idx) for s in n.src]
        if with_others: new += [(r, i) for r in self.users.get(n, ()) if r is not self.sum and (i := _over(r, idx, self.axis))]
      if n not in self.leaves: self.at[n] = idx
      todo += new
    return any(self.axis in axes_in(*self.at[r]) for r in self.inner)

  def _lies(self, n: UOp, idx: Idx) -> bool:
    """Whether a value lies in memory: all that somebody asks for, but what a pass may store block by block."""
    return n in self.must and not self._is_block(n, idx)

  def _is_block(self, n: UOp, idx: Idx) -> bool:
    return self.axis in axes_in(*idx) and n.op not in LEAVES and index_covers(idx, n.shape)

  def _joined(self, known: Collection[UOp] = ()) -> Joined | None:
    at, axis = self.at, self.axis
    spaces = {axes_in(*at[r]) | {axis} for r in self.along} or {axes_in(*at[r]) for r in self.inner if r in known}
    dear = {r for r in self.inner & self.dear if axis in axes_in(*at[r]) in spaces}
    if len(spaces) != 1 or not dear: return None
    inner = _with_little(dear, self.inner)
    made = _above(inner, at)
    # what each element of the axis has would be made again by every block of rows: it is stored
    stored = {r for r in inner - dear if axis in axes_in(*at[r])}
    inner, made = inner - stored, made - stored
    along = self.along & made
    # scores that are made again may have other last bits: they equal no number that was made of the first ones
    if any(n.arg in _EQUALITIES and axis in axes_in(*at[n]) and not any(graph.const_value(s) is not None for s in n.src)
           for n in made): return None
    if not self.twice.isdisjoint(made): return None
    products = {n for r in inner for n in _added(r)}
    within = made | products
    reads = {s for n in within - along for s in n.src if s not in within}
    shared = along | products | {n for n in made if axis not in axes_in(*at[n])}   # what each row has once, and is cheap
    final = {n for n in made - _above(along, made) if self._is_block(n, at[n])}
    return Joined((self.sum,), frozenset(along), frozenset(inner), frozenset(dear), frozenset(within), frozenset(reads),
                  frozenset(shared), frozenset(final), self.start, {r: at[r] for r in inner | final})

  def _rule_holds(self) -> bool:
    """Whether the sum and all reductions along its axis can be made in one pass, by their index form."""
    made: dict[UOp, UOp] = {}
    for n in toposort((self.sum.src[0], *self.along), lambda n: n not in self.at):
      idx = self.at.get(n) or self.leaves.get(n, ())
      if (number := graph.const_value(n)) is not None: made[n] = UOp.const(n.dtype, number)
      elif n.op is Ops.IOTA and idx: made[n] = UOp(Ops.CAST, n.dtype, (idx[0],))
      elif n in self.along: made[n] = UOp(Ops.REDUCE, n.dtype, (made[n.src[0]],), (n.arg[0], (self.axis.arg[0],)))
      elif n not in self.at or n in self.inner: made[n] = load_element(n, idx, ix.TRUE)
      elif n.op in MOVEMENT:
        valid, value = pulled(n, idx)[1], made[n.src[0]]
        made[n] = value if valid is ix.TRUE else UOp.alu(TernaryOps.WHERE, valid, value, UOp.const(n.dtype, 0))
      elif n.op is Ops.DETACH: made[n] = made[n.src[0]]
      else: made[n] = UOp(n.op, n.dtype, tuple(made[s] for s in n.src), n.arg)
    total = UOp(Ops.REDUCE, self.sum.dtype, (made[self.sum.src[0]],), (BinaryOps.ADD, (self.axis.arg[0],)))
    return members_of([*(made[r] for r in self.along), total], self.axis) is not None


def _added(r: UOp) -> list[UOp]:
  """The nodes between what a reduction adds and what that is made of in fewer elements."""
  def part(n: UOp) -> bool: return (n.op in MOVEMENT or n.op in _ELEMENTWISE) and elements_of(n) == elements_of(r.src[0])
  return [n for n in toposort((r.src[0],), lambda n: not part(n)) if part(n)]


def _along(r: UOp, idx: Idx, axis: UOp) -> Idx | None:
  """Where a reduction over as many elements as an axis has reads, along that axis; None for one that varies along it."""
  dims = reduced_dims(r)
  if axis in axes_in(*idx) or len(dims) != 1 or r.src[0].shape[dims[0]] != axis.arg[1]: return None
  return (*idx[:dims[0]], axis, *idx[dims[0] + 1:])


def _over(r: UOp, idx: Idx, axis: UOp) -> Idx | None:
  """Where the result of a reduction lies that goes along an axis of what it reads at an index; None for one that does not."""
  if r.op is not Ops.REDUCE_AXIS or [i for d, i in enumerate(idx) if d in r.arg[1] and i.op is Ops.RANGE] != [axis]: return None
  return tuple(ix.ZERO if d in r.arg[1] else i for d, i in enumerate(idx))
