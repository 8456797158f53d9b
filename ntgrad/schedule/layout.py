"""Layouts: the order in memory of the dimensions of buffers that the scheduler makes.

A convolution is a product of blocks where its channels lie side by side: x[n, c, h, w] is stored as [n, h, w, c]. Buffers that
are computed from it element by element, or by another product over the same pixels, are stored so too: kernels between
convolutions go along memory in all that they read and write. Buffers of the caller stay as they are.
"""
from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from ntgrad.codegen import index as ix
from ntgrad.codegen.ir import Ops, UOp, may_round, toposort
from ntgrad.codegen.kernel import AxisKind, Kernel, multiplication, rewrite

from .nodes import Idx, at_place, axes_in, axes_size
from .placement import GRAPH_EFFECTS

if TYPE_CHECKING:
  from .lower import ScheduleItem

LEAST_DIMENSIONS = 3     # longer than one, of a buffer whose order matters
LAST = "last"            # arg of a CONTIGUOUS: a copy, with the dimension that comes last in memory
CHANNELS = 8             # from so many on they are worth lying side by side
FIXED = frozenset((*GRAPH_EFFECTS, Ops.BUFFER, Ops.CAT, Ops.COPY, Ops.AFTER, Ops.SCATTER))


class BufferAccess(NamedTuple):
  """A LOAD or STORE of a buffer: the buffer's node in the tensor graph, the index, the LOAD or STORE."""
  node: UOp
  at: Idx
  by: UOp


@dataclass(frozen=True)
class Product:
  """A sum of products: the axes that it sums, and the accesses of its factors."""
  bound: frozenset[UOp]
  factors: tuple[BufferAccess, BufferAccess]
  count: int     # of products
  rounded: bool  # whether factors of float32 may be rounded

  @cached_property
  def windows(self) -> list[UOp]:
    """The indices of its factors that are windows."""
    return [i for f in self.factors for i in f.at if is_window(i)]

  @cached_property
  def sums_windows(self) -> bool:
    """Whether it sums windows, as a convolution does, and not pixels, as the gradient of the weights. True without windows."""
    a, b = [axes_in(*f.at) for f in self.factors]
    summed, kept = reach(self.windows, self.bound, (a & b) - self.bound)
    return summed <= kept

  def summed(self, a: BufferAccess) -> UOp | None:
    """The axis of a factor that it sums, where it sums no other but in windows: the channels of a convolution."""
    found = [i for i in a.at if i in self.bound and all_have(i, self.factors)]
    only = len(found) == 1 and self.bound.difference(found) <= axes_in(*self.windows)
    return found[0] if only and self.sums_windows else None

  def flattens(self) -> bool:
    """Whether a factor has channels and windows in one dimension, stored as (n, groups, elements of a group), say: an
    axis goes through several of its dimensions, and not through several of the other factor's, as merged axes do."""
    a, b = [Counter(r for i in f.at for r in i.ranges) for f in self.factors]
    return any(n > 1 and there[r] < 2 for here, there in ((a, b), (b, a)) for r, n in here.items())

  def channels(self) -> Iterator[tuple[BufferAccess, UOp]]:
    """Of a convolution, which has a factor with windows, the axis of the channels of each factor: where it sums windows, what it
    sums besides; where it sums pixels (the gradient of the weights), what only this factor has and it does not sum."""
    if not self.windows or self.flattens(): return
    sums = self.sums_windows
    for f in self.factors:
      for i in f.at:
        if i.op is Ops.RANGE and (i in self.bound) is sums and all_have(i, self.factors) is sums: yield f, i


def with_layouts(items: Sequence[ScheduleItem], sinks: Collection[UOp]) -> list[ScheduleItem]:
  """The items with the layouts that convolutions like: data1[n, c, h, w] -> data1[n, h, w, c]. ``sinks`` stay as they are."""
  channel = _Channels(items, sinks).found
  return [with_layout(item, channel) for item in items] if channel else list(items)


class _Channels:
  """Which dimension of each buffer comes last: of what convolutions read, and of all that goes along with it."""

  def __init__(self, items: Sequence[ScheduleItem], sinks: Collection[UOp]):
    self.fixed = set(sinks)
    self.kernels: list[tuple[list[BufferAccess], list[Product]]] = []
    self.of: dict[UOp, list[int]] = {}    # the kernels that access a buffer
    for item in items:
      if (kernel := item.ast) is None:
        self.fixed.update(item.nodes)
        continue
      self.fixed.update(n for n, p in zip(item.nodes, kernel.params) if p.shape != n.shape or p.align)
      of = buffers(kernel, item.nodes)
      accesses = buffer_accesses(kernel.nodes, of)
      for a in accesses: self.of.setdefault(a.node, []).append(len(self.kernels))
      self.kernels.append((accesses, list(products(kernel.nodes, of))))
    self.found: dict[UOp, int] = {n: n.arg[1] for n in self.of if n.op is Ops.CONTIGUOUS and n.arg is not None
                                  and n.arg[0] == LAST and n.arg[1] != len(n.shape) - 1}
    self.new = list(self.found)
    for _, found in self.kernels:
      for p in found:
        for f, c in p.channels(): self.mark(f, c)
    while self.new:
      for i in self.of[self.new.pop()]: self.spread(*self.kernels[i])

  def mark(self, a: BufferAccess, channel: UOp) -> None:
    """Put the dimension that goes along an axis last, where it is one, and the buffer may be laid out anew."""
    node = a.node
    if node in self.found or node in self.fixed or node.op in FIXED or (place := dimension_along(channel, a)) is None: return
    self.found[node] = place
    self.new.append(node)

  def spread(self, all: list[BufferAccess], products: list[Product]) -> None:
    """From the buffers of a kernel that have their layout to the others: along the same axis, and from one side of a product to
    the other (x[n, c, h, w] is summed over c to y[n, o, h, w])."""
    channels = {a.at[self.found[a.node]] for a in all if a.node in self.found}
    for a in all:
      for c in a.at:   # of two, as in a gradient of weights, the first: the channels of the result
        if c in channels: self.mark(a, c)
    for p in products:
      results = [a for a in all if p.bound.isdisjoint(axes_in(*a.at))]
      for x, y in itertools.product(p.factors, results):
        seen = axes_in(*x.at)
        summed, kept = p.summed(x), [i for i in y.at if i.op is Ops.RANGE and i not in seen]
        if summed is None or len(kept) != 1 or not seen.intersection(y.at): continue
        if summed in channels: self.mark(y, kept[0])
        if kept[0] in channels: self.mark(x, summed)


def _count(r: UOp) -> int: return ix.count(r.arg[1])


def is_window(index: UOp) -> bool:
  """Whether values of several axes meet at one element of a dimension: h + kh of a convolution, not a * 4 + b with b < 4."""
  if len(index.ranges) < 2: return False
  reach = 1
  for axis, step in sorted(ix.linear(index)[0], key=lambda t: abs(t[1])):
    if axis.op is not Ops.RANGE or abs(step) < reach: return True
    reach = abs(step) * _count(axis)
  return False


def reach(windows: Sequence[UOp], bound: frozenset[UOp], parts: frozenset[UOp]) -> tuple[int, int]:
  """How far axes that are summed move an index of a window, and others do: of ``a0 + a1//3 % 3``, a0 < 7 summed: 6 and 2. Those
  along which a sum is made in parts do not count; what several move together counts for the longer ones."""
  summed = kept = 0
  for index in windows:
    moves: dict[bool, int] = {True: 0, False: 0}
    for term, step in ix.linear(index)[0]:
      if axes := term.ranges - parts:
        moves[axes_size(axes & bound) > axes_size(axes - bound)] += abs(step) * (ix.vmax(term) - ix.vmin(term))
    summed, kept = max(summed, moves[True]), max(kept, moves[False])
  return summed, kept


def all_have(i: UOp, factors: Sequence[BufferAccess]) -> bool: return all(i in f.at for f in factors)


def dimension_along(channel: UOp, a: BufferAccess) -> int | None:
  """The dimension of a buffer that goes along an axis, where its order matters and the axis is nowhere else in the index."""
  if channel.op is not Ops.RANGE or _count(channel) < CHANNELS: return None
  if sum(n != 1 for n in a.node.shape) < LEAST_DIMENSIONS: return None
  return a.at.index(channel) if channel in a.at and sum(channel in i.ranges for i in a.at) == 1 else None


def buffers(kernel: Kernel, nodes: Sequence[UOp]) -> dict[UOp, UOp]:
  """The node in the tensor graph of each param of a kernel."""
  return {p.uop: nodes[p.slot] for p in kernel.params}


def buffer_accesses(nodes: Iterable[UOp], of: Mapping[UOp, UOp]) -> list[BufferAccess]:
  """The LOADs and STOREs among some nodes; ``of`` says which buffer a param is."""
  return [BufferAccess(of[u.src[0]], u.src[1].src, u) for u in nodes if u.op in (Ops.LOAD, Ops.STORE) and u.src[0] in of]


def products(nodes: Iterable[UOp], of: Mapping[UOp, UOp]) -> Iterator[Product]:
  """The sums of products among some nodes."""
  for r in nodes:
    if r.op is not Ops.REDUCE or (value := multiplication(r)) is None: continue
    first, second = [buffer_accesses(toposort((s,)), of) for s in value.src]
    bound = frozenset(x for x in value.ranges if x.arg[0] in r.arg[1])
    if len(first) == len(second) == 1:
      yield Product(bound, (first[0], second[0]), axes_size(value.ranges), may_round(value.src))


def with_layout(item: ScheduleItem, channel: dict[UOp, int]) -> ScheduleItem:
  """A kernel over buffers some of whose dimensions come last."""
  if (kernel := item.ast) is None or channel.keys().isdisjoint(item.nodes): return item
  last = {p.uop: channel[n] for p, n in zip(kernel.params, item.nodes) if n in channel}
  def moved(old: UOp, new: UOp) -> UOp | None:
    return at_place(new, to_end(new.src[1].src, last[old.src[0]])) if old.src[0] in last else None
  body = rewrite(kernel.body, dict.fromkeys((Ops.LOAD, Ops.STORE), moved))
  params = tuple(replace(p, shape=to_end(p.shape, last[p.uop])) if p.uop in last else p for p in kernel.params)
  # the GRID axes in the order in which the first STORE goes through memory, the others where they are
  order = {r: n for n, r in enumerate(body[0].src[1].src)}
  grid = iter(sorted(kernel.of_kind(AxisKind.GRID), key=lambda a: order.get(a.rng, -1)))
  return replace(item, ast=kernel.with_(
    params=params, body=body, axes=tuple(next(grid) if a.kind is AxisKind.GRID else a for a in kernel.axes)))


def to_end(values: tuple[Any, ...], place: int) -> tuple[Any, ...]: return *values[:place], *values[place + 1:], values[place]
