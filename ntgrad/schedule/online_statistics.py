"""Graph rewrite: a sum over elements that are shifted by a statistic of the same elements takes one pass over memory, not two.

A softmax's sum needs the greatest element first, a variance the mean. Where a row is too long for registers, each part of it is
shifted by its own statistic, and corrected when the parts are joined:

    s = sum(w exp(x - m)), m of max(x)  ->   mp = max(part of x), sp = sum(w exp(part - mp)), in one kernel
                                             m = max(mp), s = sum(sp * exp(mp - m))
    v = sum((x - m)²), m of sum(x)      ->   tp = sum(part of x), vp = sum((part - tp / n)²), in one kernel
                                             m of sum(tp), v = sum(vp + n (tp / n - m)²)

``w`` are any weights, or none; exp2 does as well as exp, and several sums may have one m. The first is the online softmax of
Milakov and Gimelshein (2018), the second the update of Chan, Golub and LeVeque (1979).
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

from ntgrad.codegen import index as ix
from ntgrad.codegen.ir import BinaryOps, Ops, Target, UnaryOps, UOp, config, dtypes, identity, toposort
from ntgrad.graph import nodes as graph

from .nodes import LEAVES_WITHIN, is_fixed, leaves, movement, node_bytes, reduced_size

_LITTLE = 0.5                                 # of the cache: what takes no more is read again from there
LONG_PART_ELEMENTS, LINE_ELEMENTS = 1024, 64  # elements of a part, from which on it is a multiple of those of a line
_EXPONENTIALS = UnaryOps.EXP, UnaryOps.EXP2
_MORE = 2                                     # times as many parts as are needed, at most, where their blocks are fuller


class Shifted(NamedTuple):
  """A sum of ``f(x - shift)``, and the statistic of ``x`` that shift is made of. ``exponential``: f is exp or exp2, perhaps
  with weights, else it squares."""
  sum: UOp
  x: UOp
  statistic: UOp
  exponential: bool


def find_shifted(sinks: Sequence[UOp], target: Target) -> dict[UOp, Shifted]:
  """Such sums of a graph that are worth it on a target with blocks, by the sum and by the statistic."""
  found: dict[UOp, Shifted] = {}
  if config.noopt: return found
  for u in toposort(sinks):
    # several sums may be shifted by one statistic; one that is such a sum itself needs a pass before
    if (s := _shifted(u)) is None or found.get(s.statistic, s).statistic is not s.statistic: continue
    # else what is read does not wait for the second pass: in registers, or in the cache
    if reduced_size(u) > _longest_part(s.x, u.arg[1], target) and node_bytes(s.x) > _LITTLE * target.cache:
      found[u] = found[s.statistic] = s
  return found


def _factors(v: UOp) -> tuple[UOp, tuple[UOp, ...]]:
  """The first exponential that a product of elements has, and its other factors; a value that has none as it is."""
  queue, others, exponential = [v], list[UOp](), None
  for x in queue:
    if x.arg is BinaryOps.MUL and x.src[0] is not x.src[1] and len(queue) < LEAVES_WITHIN: queue += x.src
    elif x.arg in _EXPONENTIALS and exponential is None: exponential = x
    else: others.append(x)
  return (v, ()) if exponential is None else (exponential, tuple(others))


def _difference(u: UOp) -> tuple[UOp, UOp] | None:
  """``x`` and ``shift`` of a sum of w exp(x - shift), w exp2(x - shift) or (x - shift)²."""
  v, _ = _factors(u.src[0])
  if v.arg not in _EXPONENTIALS and (v.arg is not BinaryOps.MUL or v.src[0] is not v.src[1]): return None
  d = v.src[0].src[0] if v.src[0].op is Ops.RESHAPE else v.src[0]   # computed in another shape (``round_trips``)
  if d.arg is not BinaryOps.SUB: return None
  x, shift = d.src
  if shift.op is Ops.RESHAPE: shift = shift.src[0]
  if shift.op is not Ops.EXPAND or shift.src[0].shape != u.shape: return None
  return graph.reshape(x, v.shape), shift.src[0]


def _shifted(u: UOp) -> Shifted | None:
  """A sum of what is shifted by a statistic of the same elements, if it is one."""
  if u.op is not Ops.REDUCE_AXIS or u.arg[0] is not BinaryOps.ADD or u.dtype.kind != "f": return None
  if (found := _difference(u)) is None or not is_fixed(found[0].shape): return None
  x, shift = found
  v, weights = _factors(u.src[0])
  exponential = v.arg in _EXPONENTIALS
  # a weight made of another reduction, as 1 / sum(exp(x - shift)), is there only after a pass
  if any(n.op is Ops.REDUCE_AXIS for w in weights for n, _ in leaves(w)): return None
  arg = BinaryOps.MAX if exponential else BinaryOps.ADD, u.arg[1]
  statistic = next((n for n, _ in leaves(shift) if n.op is Ops.REDUCE_AXIS and n.arg == arg and n.src[0] is x), None)
  return None if statistic is None else Shifted(u, x, statistic, exponential)


def _longest_part(x: UOp, axes: Sequence[int], target: Target) -> int:
  """Elements of a part that a program keeps in registers: of a row, or of each of the columns that lie in one line."""
  kept = [d for d, n in enumerate(x.shape) if d not in axes and n != 1]
  return target.row // (target.line // x.dtype.itemsize if kept and kept[-1] > max(axes) else 1)


class _Parts:
  """The elements of a value in parts along the longest reduced axis: (.., n, ..) -> (.., parts, n / parts, ..). Shapes ``(..,
  parts, ..)`` have one element along the other reduced axes."""

  def __init__(self, s: Shifted, target: Target):
    shape, axes = s.x.shape, s.sum.arg[1]
    self.axis = max(axes, key=lambda a: (shape[a], -a))
    n, others = shape[self.axis], ix.elements(shape[a] for a in axes if a != self.axis)
    least = min(-(-n * others // _longest_part(s.x, axes, target)), n)
    def lanes(parts: int) -> tuple[int, bool, int]:   # of blocks, which are powers of two
      return parts << (-(-n // parts) * others - 1).bit_length(), n % parts != 0, parts
    size = -(-n // min(range(least, min(_MORE * least, n) + 1), key=lanes))
    if size >= LONG_PART_ELEMENTS: size = -(-size // LINE_ELEMENTS) * LINE_ELEMENTS   # parts begin where whole lines do
    parts = -(-n // size)
    self.padding = parts * size - n
    self.whole, self.shape = shape, (*shape[:self.axis], parts, size, *shape[self.axis + 1:])
    self.joint = tuple(parts if d == self.axis else 1 if d in axes else m for d, m in enumerate(shape))
    self.inner = in_parts_along(axes, self.axis)
    self.count, self.last = size * others, (size - self.padding) * others

  def of(self, x: UOp) -> UOp:
    """A value in parts, with zeros behind the last element."""
    return graph.reshape(graph.pad(x, [(0, self.padding if d == self.axis else 0) for d in range(len(self.whole))]), self.shape)

  def filled(self, x: UOp, nothing: float) -> UOp:
    """What is in parts, with ``nothing`` behind the last element."""
    return graph.where(self.of(graph.const(True, dtypes.bool, self.whole)), x, nothing) if self.padding else x

  def reduced(self, fn: BinaryOps, x: UOp) -> UOp:
    """What each part is reduced to: (.., parts, n / parts, ..) -> (.., parts, 1, ..)."""
    return movement(Ops.REDUCE_AXIS, x, (fn, self.inner))

  def spread(self, x: UOp) -> UOp:
    """(.., parts, 1, ..) for all elements of a part."""
    return graph.expand(x, self.shape)

  def stored(self, x: UOp) -> UOp:
    """Partial results in memory, those of one part side by side: (.., parts, 1, ..) -> (.., parts, ..)."""
    return graph.reshape(stored_along(x, self.axis), self.joint)

  def joined(self, fn: BinaryOps, x: UOp) -> UOp:
    """All parts reduced to one: (.., parts, ..) -> (.., 1, ..)."""
    return movement(Ops.REDUCE_AXIS, x, (fn, (self.axis,)))

  def counts(self, x: UOp) -> UOp:
    """How many elements each part of ``x``, (.., parts, ..) or (.., parts, 1, ..), has."""
    count, whole = graph.const(self.count, x.dtype, x.shape), x.shape[self.axis] - 1
    return graph.where(graph.lt(graph.index_along(self.axis, x.shape), whole), count, self.last) if self.padding else count


def in_parts_along(axes: Sequence[int], axis: int) -> tuple[int, ...]:
  """The axes of a reduction, one of which is in parts: the parts stay, (.., parts, n / parts, ..) -> (.., parts, 1, ..)."""
  return tuple(sorted([*[a + (a > axis) for a in axes if a != axis], axis + 1]))


def stored_along(x: UOp, axis: int) -> UOp:
  """A value in memory, in which what has one index along an axis lies side by side."""
  order = axis, *[d for d in range(len(x.shape)) if d != axis]
  return graph.permute_back(graph.contiguous(graph.permute(x, order)), order)


def in_one_pass(s: Shifted, u: UOp, target: Target) -> UOp | None:
  """What stands for the statistic, or for the sum. ``u`` is it with rewritten sources."""
  parts, fn = _Parts(s, target), u.arg[0]
  if fn is BinaryOps.MAX or u.arg != s.sum.arg or not (now := _difference(u)):
    return parts.joined(fn, parts.stored(_statistic(parts, fn, u.src[0])))
  return _exponentials(parts, *now, *_factors(u.src[0])) if s.exponential else _squares(parts, *now)


def _statistic(p: _Parts, fn: BinaryOps, x: UOp) -> UOp:
  """The greatest element, or the sum, of each part."""
  return p.reduced(fn, p.filled(p.of(x), identity(fn, x.dtype)) if fn is BinaryOps.MAX else p.of(x))


def _exponentials(p: _Parts, x: UOp, shift: UOp, like: UOp, weights: Sequence[UOp]) -> UOp:
  """sum(w exp(x - shift)), each part shifted by its greatest element. ``like``: an exponential of its function."""
  def exp(y: UOp) -> UOp: return graph.unary(like.arg, y)
  most = _statistic(p, BinaryOps.MAX, x)
  def zero_for(test: UOp, x: UOp) -> UOp: return graph.where(graph.lt(test, math.inf), x, 0)
  by = p.spread(zero_for(graph.absolute(most), most))       # a part of -inf alone has the sum 0
  terms = reduce(graph.mul, map(p.of, weights), exp(graph.sub(p.filled(p.of(x), -math.inf), by)))
  sums = p.reduced(BinaryOps.ADD, terms)
  most = p.stored(most)
  by = graph.sub(zero_for(most, most), graph.expand(shift, p.joint))
  return p.joined(BinaryOps.ADD, graph.mul(p.stored(sums), exp(by)))


def _squares(p: _Parts, x: UOp, shift: UOp) -> UOp:
  """sum((x - shift)²), each part shifted by its mean."""
  total = _statistic(p, BinaryOps.ADD, x)
  off = p.filled(graph.sub(p.of(x), p.spread(graph.div(total, p.counts(total)))), 0)
  squares = p.stored(p.reduced(BinaryOps.ADD, graph.mul(off, off)))
  total = p.stored(total)
  counts = p.counts(total)
  off = graph.sub(graph.div(total, counts), graph.expand(shift, p.joint))
  return p.joined(BinaryOps.ADD, graph.add(squares, graph.mul(counts, graph.mul(off, off))))
