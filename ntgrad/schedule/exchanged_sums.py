"""Graph rewrite: a sum of products with the result of a product is taken over what that one sums, where another product is there.

    D = sum[j](p * sum[d](g * v)),  y = sum[j](p * v)   ->   D = sum[d](g * y)

``p`` varies along the rows and ``j``, ``g`` along the rows and ``d``. A number or a mask, as of dropout, may stand at p in one
of them and at the other product in the other. So the gradient of a softmax that weighs values sums no
weights: it is the inner product of y and y's gradient (FlashAttention-2, Dao, arXiv 2307.08691, algorithm 2).
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ntgrad.codegen import index as ix
from ntgrad.codegen.ir import MOVEMENT, BinaryOps, Ops, TernaryOps, UnaryOps, UOp, config, toposort
from ntgrad.codegen.kernel import substitute
from ntgrad.graph import nodes as graph

from .nodes import Idx, axes_in, is_fixed, leaves, movement, pulled, reduced_dims, reduced_size, reshaped, users_in, with_axis

_NEAR = 16                     # values of a product that are looked at
_AS_STORED = Ops.RESHAPE, Ops.PERMUTE, Ops.CAST   # what is made of a result before it is stored
_OTHER, _SUMMED = 100, 1000    # ids of the axes of another product, and of what a product sums


class ExchangedSum(NamedTuple):
  """A sum ``of`` factors as ± sum(g * y) * times / over, along ``axes``: ``g`` with one element along ``without``, ``y`` in the
  ``order`` of its dimensions. ``path`` leads from y to what is made of it before it is stored."""
  of: _Factors
  g: UOp
  path: tuple[UOp, ...]
  without: int
  order: tuple[int, ...]
  axes: tuple[int, ...]

  @property
  def stored(self) -> UOp: return self.path[-1]

  def made(self, u: UOp, new: Mapping[UOp, UOp]) -> tuple[UOp, UOp] | None:
    """The sum that is made in place of ``u``, and what stands for ``u``, of nodes that have been rewritten; None where one has
    not been yet."""
    if self.stored not in new: return None
    y = new[self.stored]
    for step in self.path[:0:-1]:
      if step.op is Ops.RESHAPE: y = graph.reshape(y, step.src[0].shape)
      elif step.op is Ops.PERMUTE: y = graph.permute_back(y, step.arg)
    shape = tuple(1 if d == self.without else n for d, n in enumerate(self.g.shape))
    g = movement(Ops.SHRINK, new[self.g], tuple((0, n) for n in shape))
    y = graph.cast(graph.reshape(graph.permute(y, self.order), shape), g.dtype)
    total = movement(Ops.REDUCE_AXIS, graph.mul(g, y), (BinaryOps.ADD, self.axes))
    out = graph.cast(graph.reshape(total, u.shape), u.dtype)
    for f in self.of.times: out = graph.mul(out, new[f])
    for f in self.of.over: out = graph.div(out, new[f])
    return total, graph.neg(out) if self.of.negative else out


def in_two(u: UOp) -> tuple[UOp, UOp]:
  """A sum over several axes as one over the longest, and one over the others of what that gives: heads that share keys have
  gradients of their own first. Matrices that have several axes (a bias that they share) are added up along one.

      sum[g, i](x)   ->   sum[g](sum[i](x))          sum[b, h](x)   ->   sum[b * h](x)"""
  if _of_matrices(u):
    first, *_ = dims = reduced_dims(u)
    merged = with_axis(u.src[0], first, ix.product(u.src[0].shape[d] for d in dims), after=len(dims))
    total = movement(Ops.REDUCE_AXIS, merged, (BinaryOps.ADD, (first,)))
    return total, reshaped(total, u.shape)
  axis = max(u.arg[1], key=lambda d: ix.elements((u.src[0].shape[d],)))
  total = movement(Ops.REDUCE_AXIS, u.src[0], (BinaryOps.ADD, (axis,)))
  return total, movement(Ops.REDUCE_AXIS, total, (BinaryOps.ADD, tuple(d for d in u.arg[1] if d != axis)))


def _of_matrices(u: UOp) -> bool:
  """Whether a sum goes over neighbouring axes that both factors of the products in it have: it adds up matrices."""
  dims = reduced_dims(u)
  here = tuple(ix.rng(d, n) for d, n in enumerate(u.src[0].shape))
  summed, found = {here[d] for d in dims}, False
  for r, idx in leaves(u.src[0], here):
    if r.op is not Ops.REDUCE_AXIS or (p := _product(r, _SUMMED)) is None: continue
    table = {a: i for a, i in zip(p.at, idx) if a is not p.axis}
    if any(not summed <= axes_in(*substitute(f.at, table)) for f in p.factors): return False
    found = True
  return found and [*dims] == [*range(dims[0], dims[-1] + 1)]


_Part = tuple[Any, Idx]        # a number, or a condition and where it is read


class _Factor(NamedTuple):
  """A factor as a view of a value, perhaps in fewer bytes, with the index at which that is read: times numbers, and 0 where
  conditions are false (``parts``, with where they are read), as dropped weights are of weights."""
  value: UOp
  at: Idx
  parts: tuple[_Part, ...]


class _Product(NamedTuple):
  """A sum over an axis of the products of two values: its node, the axes of what it sums, and its factors."""
  node: UOp
  at: Idx
  factors: tuple[_Factor, ...]

  @property
  def axis(self) -> UOp: return next(i for d, i in enumerate(self.at) if d in self.node.arg[1] and i.op is Ops.RANGE)


def find_exchanges(sinks: Sequence[UOp]) -> dict[UOp, ExchangedSum]:
  """The sums of a graph that are fewer additions over what a product beneath them sums."""
  found: dict[UOp, ExchangedSum] = {}
  if config.noopt: return found
  order = toposort(sinks)
  sums = [u for u in order if u.op is Ops.REDUCE_AXIS and u.arg[0] is BinaryOps.ADD and u.dtype.kind == "f"]
  sums = [u for u in sums if is_fixed(u.src[0].shape)]
  products: dict[UOp, list[_Product]] = {}   # by their factors
  for u in sums:
    if (p := _product(u, _OTHER)) is not None:
      for factor in p.factors: products.setdefault(factor.value, []).append(p)
  users = users_in(order) if products else {}
  for u in sums if products else ():
    if (f := _factors(u, products)) is None: continue
    if (exchange := next((e for p in products[f.other] if (e := _exchange(u, f, p, users)) is not None), None)) is not None:
      found[u] = exchange
  return found


def _read(x: UOp, idx: Idx) -> _Factor:
  """What a value is a view of, and where it is read for an element."""
  parts = list[_Part]()
  while True:
    if (found := _part(x, idx)) is not None:
      x, part = found
      parts.append(part)
    elif x.op in MOVEMENT or x.op is Ops.CAST and x.dtype.kind == "f" == x.src[0].dtype.kind:
      if x.op in MOVEMENT: idx = pulled(x, idx)[0]
      x = x.src[0]
    else: return _Factor(x, idx, tuple(parts))


def _part(x: UOp, idx: Idx) -> tuple[UOp, _Part] | None:
  """A value times a number, or 0 where a condition is false: the value, and the number or the condition. None for any other."""
  if x.arg is TernaryOps.WHERE and graph.const_value(x.src[2]) == 0: return x.src[1], (x.src[0], idx)
  if x.arg is BinaryOps.MUL:
    for a, b in (x.src, x.src[::-1]):
      if (n := graph.const_value(b)) is not None: return a, (n, ())
  return None


def _product(u: UOp, first: int) -> _Product | None:
  """A sum of products as such, with axes numbered from ``first`` on; None for any other."""
  x = u.src[0]
  if x.arg is not BinaryOps.MUL or len(reduced_dims(u)) != 1: return None
  at = tuple(ix.rng(first + d, n) for d, n in enumerate(x.shape))
  return _Product(u, at, tuple(_read(s, at) for s in x.src))


class _Factors(NamedTuple):
  """What a sum adds: the ``result`` of a product, times ``other`` and the ``parts`` that a factor may have, times and over rows
  that are the same for all of it."""
  result: UOp
  other: UOp
  parts: tuple[_Part, ...]
  times: tuple[UOp, ...]
  over: tuple[UOp, ...]
  negative: bool


def _factors(u: UOp, products: Mapping[UOp, object]) -> _Factors | None:
  """The factors of what a sum adds, if one is the result of a product and another a factor of one."""
  def row(x: UOp) -> UOp | None: return x.src[0] if x.op is Ops.EXPAND and x.src[0].shape == u.shape else None
  queue, results, others, negative = [u.src[0]], list[UOp](), list[UOp](), False
  times, over, parts = list[UOp](), list[UOp](), list[_Part]()
  here = tuple(ix.rng(d, n) for d, n in enumerate(u.src[0].shape))
  for x in queue:
    if len(queue) > _NEAR: return None
    if (r := row(x)) is not None: times.append(r)
    elif x in products and x is not u.src[0]: others.append(x)
    elif (found := _part(x, here)) is not None:
      queue.append(found[0])
      parts.append(found[1])
    elif x.arg is BinaryOps.MUL: queue += x.src
    elif x.arg is UnaryOps.NEG:
      negative = not negative
      queue.append(x.src[0])
    elif x.arg is BinaryOps.DIV and (r := row(x.src[1])) is not None:
      over.append(r)
      queue.append(x.src[0])
    elif x.op is Ops.CAST and x.dtype.kind == "f" == x.src[0].dtype.kind: queue.append(x.src[0])
    else: results.append(x)
  if len(results) != 1 or len(others) != 1: return None
  return _Factors(results[0], others[0], tuple(parts), tuple(times), tuple(over), negative)


def _exchange(u: UOp, f: _Factors, y: _Product, users: Mapping[UOp, Sequence[UOp]]) -> ExchangedSum | None:
  """The exchange of a sum by another product ``y``, if that multiplies the same values."""
  here = tuple(ix.rng(d, n) for d, n in enumerate(u.src[0].shape))
  dims = reduced_dims(u)
  node, idx, parts = _read(f.result, here)
  if parts or len(dims) != 1 or node.op is not Ops.REDUCE_AXIS or node.arg[0] is not BinaryOps.ADD or node is y.node: return None
  if (r := _product(node, _SUMMED)) is None or reduced_size(node) >= reduced_size(u): return None
  j, k = here[dims[0]], r.axis
  table = {a: i for a, i in zip(r.at, idx) if a is not k}
  if any(s.parts for s in r.factors): return None
  factors = [(s.value, substitute(s.at, table)) for s in r.factors]
  sides = [n for n, (_, i) in enumerate(factors) if j not in axes_in(*i)]
  if len(sides) != 1: return None
  v, v_at = factors[1 - sides[0]]
  for (p, p_at, mine), (other, other_at, more) in (y.factors, y.factors[::-1]):   # they are p and v, in the same places
    if p is not f.other or other is not v or more: continue
    known = {a: i for a, i in zip(p_at, here) if a.op is Ops.RANGE}
    if tuple(known.get(a, a) for a in p_at) != here: continue
    if Counter((part, substitute(at, known)) for part, at in mine) != Counter(f.parts): continue
    left = [a for a in y.at if a.op is Ops.RANGE and a not in known]
    if len(left) != 1 or left[0].arg[1] != k.arg[1] or known.get(y.axis) is not j: continue
    known[left[0]] = k
    if substitute(other_at, known) != v_at: continue
    # dimensions of y as those of g, which has the product's shape
    wide = [table.get(a, a) for a in r.at]
    theirs = [ix.ZERO if a is y.axis else known.get(a, a) for a in y.at]
    wanted = [i for i in wide if i.op is Ops.RANGE and i is not j]
    without = [d for d, i in enumerate(wide) if j in i.ranges]
    if len(without) != 1 or [i for i in wanted if i is not k] != [i for i in here if i.op is Ops.RANGE and i is not j]: continue
    order = (*[theirs.index(i) for i in wanted], *[d for d, i in enumerate(theirs) if i.op is not Ops.RANGE])
    path = [y.node]
    while len(found := users.get(path[-1], ())) == 1 and found[0].op in _AS_STORED:
      if found[0].dtype not in (y.node.dtype, v.dtype): break   # rounded further than its factors are
      path += found
    return ExchangedSum(f, node.src[0].src[sides[0]], tuple(path), without[0], order, node.arg[1])
  return None


