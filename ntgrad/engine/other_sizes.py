"""What the sizes and numbers of a graph would be for another batch, found from the one graph that there is.

The first dimensions of some inputs get another number. From there it goes along dimensions that are the same one, up and down the
graph: those of the sources of an ALU node, those that a movement leaves alone. The others stay. A graph in which that does not
come out has no other sizes.
"""
from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, Callable, Collection, Iterator, Mapping, Sequence

from ntgrad.codegen.ir import DType, NtgradError, Ops, UOp, held

from .buffer import Buffer
from .size_templates import NumberNode, Sample, Skeleton, skeleton, sorted_entries

_ROUNDS = 8   # walks through all reshapes, after which the numbers of dimensions have to agree
_WHOLE = frozenset({Ops.PAD, Ops.SHRINK, Ops.TILE, Ops.UNTILE, Ops.CAT, Ops.UPDATE})   # of dimensions that they leave alone only
# numbers that are made of how many elements a mean or a variance is of
_MADE: tuple[Callable[[int], float], ...] = float, lambda n: n - 1.0, lambda n: 1/n, lambda n: 1/(n - 1), lambda n: n/(n - 1)
_Runs = list[tuple[range, range]]


class Unknown(NtgradError):
  """A graph does not say what its sizes would be."""


def _runs(before: Sequence[int], after: Sequence[int]) -> _Runs:
  """The smallest runs of dimensions of more than one element that a reshape makes of each other: their places."""
  out, i, j = _Runs(), 0, 0
  while i < len(before) and j < len(after):
    first, a, b = (i, j), before[i], after[j]
    i, j = i + 1, j + 1
    while a != b:
      if a < b: a, i = a * before[i], i + 1
      else: b, j = b * after[j], j + 1
    out.append((range(first[0], i), range(first[1], j)))
  return out


def _same(u: UOp, shapes: Sequence[Sequence[int]], own: Sequence[int]) -> Iterator[tuple[int, int, int]]:
  """The dimensions of a node that are a source's: which source's, its dimension, the node's. ``shapes`` are the sources'."""
  op, arg, rank, k = u.op, u.arg, range(len(own)), len(shapes) - 1
  if op is Ops.PERMUTE: yield from [(0, d, e) for e, d in enumerate(arg)]
  elif op is Ops.GATHER:
    n = len(shapes[1])
    yield from [(s, d, d) for s in range(1, k + 1) for d in range(n)]
    yield from [(0, k + d, n + d) for d in range(len(own) - n)]
  elif op is Ops.TILE or op is Ops.UNTILE:
    tiles = arg if op is Ops.TILE else arg[1]
    yield from [(0, d, d) for d, t in enumerate(tiles) if t == (1, 1, 1)]
    if op is Ops.UNTILE: yield from [(0, d, d) for d in rank[len(tiles):]]
  elif op in (Ops.EXPAND, Ops.PAD, Ops.SHRINK): yield from [(0, d, d) for d in rank if shapes[0][d] == own[d]]
  elif op is Ops.REDUCE_AXIS: yield from [(0, d, d) for d in rank if d not in arg[1]]
  elif op is Ops.SORT_AXIS: yield from [(0, d, d) for d in rank if d != arg[0] or not arg[3]]
  elif op is Ops.CAT: yield from [(s, d, d) for s in range(k + 1) for d in rank if d != arg]
  elif op is not Ops.RESHAPE: yield from [(s, d, d) for s in range(k + 1 if op is Ops.ALU else min(k + 1, 1)) for d in rank]


class _Dimensions:
  """The dimensions of a graph's nodes by number, of which those that are one know each other."""

  def __init__(self, order: Sequence[UOp], sources: Sequence[Sequence[int]]):
    self.shapes = [u.shape for u in order]
    self.first = [0]
    for shape in self.shapes: self.first.append(self.first[-1] + len(shape))
    self.old = [n for shape in self.shapes for n in shape]
    self.one, self.new = list(range(len(self.old))), dict[int, int]()
    self.reshapes = list[tuple[list[int], list[int]]]()
    self.linked: list[set[tuple[int, int]]] = []
    for i, (u, src) in enumerate(zip(order, sources)):
      shapes, own = [self.shapes[s] for s in src], self.shapes[i]
      links = list(_same(u, shapes, own)) if src else []
      self.linked.append({(s, d) for s, d, _ in links})
      for s, d, e in links: self.join(self.first[src[s]] + d, self.first[i] + e)
      if u.op is Ops.SCATTER:   # an index's dimensions are the first of the value's
        for s in src[1:-1]:
          for d in range(len(self.shapes[s])): self.join(self.first[s] + d, self.first[src[-1]] + d)
      if u.op is Ops.RESHAPE:
        for a, b in _runs(shapes[0], own) if 0 not in own else ():
          a_all, b_all = [self.first[src[0]] + d for d in a], [self.first[i] + d for d in b]
          large = [[d for d in x if self.old[d] > 1] for x in (a_all, b_all)]
          if len(large[0]) == len(large[1]) == 1: self.join(large[0][0], large[1][0])
          elif large[0]: self.reshapes.append((large[0], large[1]))

  def root(self, d: int) -> int:
    """The dimension that stands for all that are one with it."""
    while (up := self.one[d]) != d: self.one[d] = d = self.one[up]
    return d

  def join(self, a: int, b: int) -> None:
    """Two dimensions are one."""
    if self.old[a] == self.old[b] > 1: self.one[self.root(a)] = self.root(b)

  def size(self, d: int) -> int: return self.new.get(self.root(d), self.old[d])
  def shape(self, i: int) -> tuple[int, ...]: return tuple(map(self.size, range(self.first[i], self.first[i + 1])))
  def changed(self, i: int) -> list[int]: return [d for d, n in enumerate(self.shapes[i]) if self.size(self.first[i] + d) != n]

  def solve(self) -> None:
    """Give numbers to the dimensions that reshapes make of those that have got others."""
    for n in range(_ROUNDS):
      left = [r for r in self.reshapes if math.prod(map(self.size, r[0])) != math.prod(map(self.size, r[1]))]
      if not left: return
      for sides in left[::-1] if n % 2 else left:
        was = math.prod([self.old[d] for d in sides[0]])
        now = [math.prod(map(self.size, side)) for side in sides]
        if now[0] == now[1]: continue
        if was not in now: raise Unknown("a reshape of dimensions of which several change")
        late, want = sides[now.index(was)], max(now, key=lambda p: p != was)
        fit = [d for d in late if self.old[d] * want % was == 0]
        if not fit: raise Unknown("a reshape of other sizes than go with the batch")
        self.new[self.root(fit[0])] = self.old[fit[0]] * want // was
    raise Unknown("reshapes that do not agree")


def other_sample(order: Sequence[UOp], s: Skeleton, sources: Callable[[UOp], tuple[int, ...]], numbers: Mapping[int, NumberNode],
                 open_: Collection[int], stay: Collection[int], other: int) -> Sample:
  """The sizes and numbers that a graph in ``order`` with the skeleton ``s`` would have if the first dimensions of the inputs
  ``open_`` (their places), and what comes of these, were ``other``; those of the inputs ``stay`` do. ``sources`` gives the places
  of a node's sources. Raises Unknown."""
  places = list(map(sources, order))
  dims = _Dimensions(order, places)
  for i in open_: dims.new[dims.root(dims.first[i])] = other
  dims.solve()
  counts = dict[int, int]()   # elements that are added up, of those that change
  for i, (u, src) in enumerate(zip(order, places)):
    if i in stay and dims.changed(i): raise Unknown("an input that stays has such a size")
    moved = [] if i in numbers else [(k, d) for k, at in enumerate(src) for d in dims.changed(at)]
    if not moved: continue
    if u.op in _WHOLE and not dims.linked[i].issuperset(moved): raise Unknown(f"{u.op} along a dimension of the batch")
    if (u.op is Ops.SCATTER or u.op is Ops.UPDATE and len(src) > 2) and sorted_entries(u): raise Unknown("a sorted index")
    if u.op is Ops.REDUCE_AXIS:
      was, now = [math.prod([shape[d] for d in u.arg[1]]) for shape in (dims.shapes[src[0]], dims.shape(src[0]))]
      if was != now: counts[was] = now
  def seen(i: int, u: UOp) -> tuple[tuple[int, ...], Any]:
    shape, arg = dims.shape(i), u.arg
    if u.op is Ops.RESHAPE or u.op is Ops.EXPAND: arg = shape
    elif u.op is Ops.IOTA: arg = shape[0]
    elif u.op is Ops.UNTILE: arg = shape[:len(arg[0])], arg[1]
    elif u.op is Ops.SHRINK:
      own = dims.shapes[places[i][0]]
      arg = tuple([(0, m) if (b, e) == (0, n) else (b, e) for (b, e), n, m in zip(arg, own, shape)])
    elif u.op is Ops.CALL and arg[0].sizes:
      to = {n: m for at in places[i] for n, m in zip(dims.shapes[at], dims.shape(at))}
      launcher = SimpleNamespace(base=arg[0].base or arg[0], sizes=[to.get(n, n) for n in arg[0].sizes])
      arg = launcher, *arg[1:]
    return shape, arg
  found = skeleton(order, sources, numbers, seen)
  if found.key != s.key: raise Unknown("another skeleton")
  return found.sizes, tuple([None if isinstance(n, Buffer) else _other_number(n, numbers[i][1], counts)
                             for i, n in zip(numbers, s.numbers)])


def _other_number(value: Any, dtype: DType, counts: Mapping[int, int]) -> Any:
  """What a number would be if it were made of one of the ``counts``, which would be another, as means and variances make them."""
  for was, now in counts.items():
    for made in _MADE if dtype.kind == "f" and was > 1 and now > 1 else ():
      if value == held(made(was), dtype): return held(made(now), dtype)
  return value
