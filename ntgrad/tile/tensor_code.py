"""Stores of a kernel as tensor code: loads become movement, sums along axes REDUCE_AXIS, arithmetic stays what it is.

    STORE(y[i, j], x[i, j] + b[j])   ->   x + b.reshape(1, n).expand(m, n)

The gradient of that is found by the rules of tensors, and scheduled as any other tensor code."""
from __future__ import annotations

import functools
import math
from typing import Collection, Mapping, NamedTuple, Sequence

from ntgrad.codegen import index as ix
from ntgrad.codegen.explain.derivation import NoArrangement, Terms, terms_of
from ntgrad.codegen.index import Dim
from ntgrad.codegen.ir import BinaryOps, GradientError, Ops, TernaryOps, UOp, dtypes, toposort
from ntgrad.codegen.kernel import AxisKind, Kernel, gate_or_true, rewrite, substitute
from ntgrad.codegen.opts.axes import split_axis
from ntgrad.graph import nodes as graph
from ntgrad.graph.symbol import evaluate

from .block import index_dtype, seen

ParamNodes = Mapping[UOp, UOp]   # by param: the node of the tensor that it is


class WithAxes(NamedTuple):
  """A tensor graph node with a dimension for each of the ``axes``, in the order of their numbers."""
  node: UOp
  axes: tuple[int, ...] = ()


def simplified(kernel: Kernel) -> Kernel:
  """A kernel without operations that change nothing, as where a carried sum begins: 0 + x, 0 * x (which is 0), max(-inf, x). Axes
  that indices divide, a0 // 6 and a0 % 6, are two: what was at a0 is at a0 * 6 + a1."""
  def operand(old: UOp, u: UOp) -> UOp | None:
    if len(u.src) != 2 or u.dtype.kind != "f": return None
    for c, other in (u.src, u.src[::-1]):
      if c.op is not Ops.CONST: continue
      if u.arg is BinaryOps.ADD and c.arg == 0 or u.arg is BinaryOps.MAX and c.arg == -math.inf: return other
      if u.arg is BinaryOps.MUL and c.arg == 0: return c
    return None
  def divided() -> Kernel | None:
    for u in kernel.nodes:
      if u.arg not in (BinaryOps.IDIV, BinaryOps.MOD) or u.src[0].op is not Ops.RANGE or not ix.of_sizes(u.src[1]): continue
      axis, n = kernel.axis(u.src[0].arg[0]), ix.number(u.src[1])
      if ix.divides(n, axis.size): return split_axis(kernel, axis, n, AxisKind.LOOP)
    return None
  while (split := divided()) is not None: kernel = split
  return kernel.with_(body=rewrite(kernel.body, {Ops.ALU: operand}))


def is_movement(kernel: Kernel) -> bool:
  """Whether all indices of a kernel are sums of axes, none of which comes twice in one."""
  return all(movement_of(u) is not None for u in kernel.nodes if u.op is Ops.INDEX)


def movement_of(index: UOp) -> list[tuple[Terms, Dim]] | None:
  """The terms of an index and what is added to them, one a dimension; None where it is no sum of axes, or has one twice."""
  try: sums = [terms_of(i) for i in index.src]
  except NoArrangement: return None
  ranges = [t for terms, _ in sums for t, _ in terms]
  return sums if all(t.op is Ops.RANGE for t in ranges) and len(set(ranges)) == len(ranges) else None


class TensorCode:
  """The values of a kernel's expressions where ``memory`` has its params and run-time ``sizes`` have values. No gradient goes
  through those reductions that are ``fixed``."""

  def __init__(self, kernel: Kernel, memory: ParamNodes, sizes: Mapping[str, int], fixed: Collection[UOp] = ()):
    self.memory, self.sizes, self.fixed = memory, sizes, fixed
    self.shapes = {p.uop: p.shape for p in kernel.params}
    self.lengths = {a.id: self.number(a.size) for a in kernel.axes}
    self._known: dict[UOp, WithAxes] = {}
    self._plain = {s.node: ix.const(sizes[s.name]) for s in kernel.sizes if type(sizes[s.name]) is int}

  def number(self, n: Dim) -> int: return n if isinstance(n, int) else evaluate(seen(n), self.sizes)

  def spread(self, v: WithAxes, axes: tuple[int, ...]) -> UOp:
    """A value with a dimension for each of ``axes``, among which are its own."""
    ones = graph.reshape(v.node, tuple([self.lengths[i] if i in v.axes else 1 for i in axes]))
    return graph.expand(ones, tuple([self.lengths[i] for i in axes]))

  def together(self, values: Sequence[WithAxes]) -> tuple[list[UOp], tuple[int, ...]]:
    """Values with the axes of all of them."""
    axes = tuple(sorted({i for v in values for i in v.axes}))
    return [self.spread(v, axes) for v in values], axes

  def of(self, u: UOp) -> WithAxes:
    """The value of an expression."""
    for n in toposort((u,), lambda n: n.op is Ops.LOAD or n in self._known):
      if n not in self._known: self._known[n] = self._made(n)
    return self._known[u]

  def _made(self, u: UOp) -> WithAxes:
    index = u.dtype is dtypes.index
    if index and ix.of_sizes(u): return WithAxes(graph.const(self.number(ix.number(u)), index_dtype(u)))
    if u.op is Ops.CONST: return WithAxes(graph.const(u.arg, u.dtype))
    if u.op is Ops.RANGE: return WithAxes(graph.cast(graph.iota(self.lengths[u.arg[0]]), index_dtype(u)), (u.arg[0],))
    if u.op is Ops.LOAD: return self.load(self.memory[u.src[0]], u.src[0], u.src[1], gate_or_true(u))
    values = [self._known[s] for s in u.src]
    if u.op is Ops.CAST: return values[0]._replace(node=graph.cast(values[0].node, dtypes.int64 if index else u.dtype))
    if u.op is Ops.BITCAST: return values[0]._replace(node=graph.seen_as(values[0].node, u.dtype))
    if u.op is Ops.REDUCE:
      fn, ids = u.arg
      node = self.spread(values[0], axes := tuple(sorted({*values[0].axes, *ids})))
      at = [axes.index(i) for i in ids]
      if u in self.fixed: node = graph.detach(node)
      wide = graph.acc_dtype(u.dtype) if fn is BinaryOps.ADD else u.dtype
      out = graph.cast(graph.reduce(fn, graph.cast(node, wide), at), u.dtype)
      return WithAxes(graph.drop(out, at), tuple([i for i in axes if i not in ids]))
    nodes, axes = self.together(values)
    if u.op is Ops.SLOPED: return WithAxes(graph.sloped(u.arg, *nodes), axes)
    if u.op is not Ops.ALU: raise GradientError(f"no rule gives the gradient of {u.op.name}")
    if any(s.dtype is dtypes.index for s in u.src):
      far = index and index_dtype(u) is dtypes.int64
      wide = dtypes.int64 if far or any(n.dtype is dtypes.int64 for n in nodes) else dtypes.int32
      nodes = [n if n.dtype is dtypes.bool else graph.cast(n, wide) for n in nodes]
    return WithAxes(graph.where(*nodes) if u.arg is TernaryOps.WHERE else alu(u.arg, *nodes), axes)

  # ---- memory
  def load(self, node: UOp, param: UOp, index: UOp, gate: UOp) -> WithAxes:
    """The elements of a node at an index of a param, 0 where the gate is false."""
    shape = self.shapes[param]
    node, at = graph.reshape(graph.cast(node, param.dtype), tuple(map(self.number, shape))), index.src
    value = self._moved(node, index) or self._gathered(node, at)
    outside = {c for i, n in zip(at, shape) for c in (ix.ge(i, 0), ix.lt(i, n))}   # there both give 0
    asked = [c for c in ix.conjuncts(gate) if c not in outside and substitute((c,), self._plain)[0] is not ix.TRUE]
    if not asked: return value
    masks = [self.of(c) for c in asked]
    (node, *nodes), axes = self.together([value, *masks])
    mask = functools.reduce(graph.and_, nodes)
    return WithAxes(graph.where(mask, node, graph.const(0, node.dtype, node.shape)), axes)

  def _gathered(self, node: UOp, at: Sequence[UOp]) -> WithAxes:
    """One element after another, by their places."""
    places, axes = self.together([self.of(i) for i in at])
    wide = dtypes.int64 if any(p.dtype is dtypes.int64 for p in places) else dtypes.int32
    return WithAxes(graph.gather(node, *[graph.cast(p, wide) for p in places]), axes)

  def _moved(self, node: UOp, index: UOp) -> WithAxes | None:
    """The elements by movement; None where they are no such."""
    if (sums := movement_of(index)) is None: return None
    order, backwards, d = list[int](), list[int](), 0
    for terms, rest in sums:
      begin, steps = self.number(rest), list[_Step]()
      for t, factor in terms:
        step = _Step(t.arg[0], self.number(factor), self.lengths[t.arg[0]])
        if step.by < 0:
          begin, step = begin + step.reach, step._replace(by=-step.by)
          backwards.append(step.axis)
        steps.append(step)
      node = _box(node, d, begin, begin + sum([s.reach for s in steps]) + 1)
      node, steps = _steps(node, d, sorted(steps, key=lambda s: (-s.by, -s.length)))
      order += [s.axis for s in steps]
      d += len(steps)
    node = graph.permute(node, tuple(sorted(range(len(order)), key=order.__getitem__)))
    axes = tuple(sorted(order))
    return WithAxes(graph.flip(node, tuple([axes.index(i) for i in backwards])), axes)


class _Step(NamedTuple):
  """An axis of an index: from one of its values to the next are so many elements."""
  axis: int
  by: int
  length: int

  @property
  def reach(self) -> int: return self.by * (self.length - 1)


def _box(node: UOp, d: int, begin: int, end: int) -> UOp:
  """From begin to end along a dimension, 0 outside of it."""
  n, before = node.shape[d], max(0, -begin)
  node = graph.pad(node, [(before, max(0, end - n)) if e == d else (0, 0) for e in range(len(node.shape))])
  return graph.part(node, d, begin + before, end + before)


def _steps(node: UOp, d: int, steps: list[_Step]) -> tuple[UOp, list[_Step]]:
  """A dimension as one for each of the steps, the longest first, and in which order they stand."""
  done = list[_Step]()
  if not steps: node = graph.reshape(node, (*node.shape[:d], *node.shape[d + 1:]))   # of 1
  while steps:
    (step, *rest), s = steps, node.shape
    size, gap = sum([r.reach for r in rest]) + 1, 1
    if size == step.by: node = graph.reshape(node, (*s[:d], step.length, *([size] if rest else []), *s[d + 1:]))
    else:
      if len(rest) == 1:   # of two whose windows overlap the shorter one is the window
        step, last = sorted(steps, key=lambda s: -s.length)
        size, gap, rest = last.length, last.by, [last._replace(by=1)]
      node = graph.tile(node, [(size, step.by, gap) if e == d else (1, 1, 1) for e in range(len(s))])
      node = graph.reshape(node, (*node.shape[:len(s)], *([size] if rest else [])))
      if rest: node = graph.permute(node, (*range(d + 1), len(s), *range(d + 1, len(s))))
    done.append(step)
    steps, d = rest, d + 1
  return node, done


def alu(fn: object, *nodes: UOp) -> UOp:
  """A function of nodes of one shape and dtype."""
  return graph.unary(fn, *nodes) if len(nodes) == 1 else graph.binary(fn, *nodes)  # type: ignore[arg-type]


def stored(kernel: Kernel, memory: ParamNodes, sizes: Mapping[str, int], cotangents: ParamNodes,
           fixed: Collection[UOp]) -> tuple[UOp, UOp]:
  """What a kernel of one store stores, and the gradient at that, from the gradients at the params that are written."""
  code, store = TensorCode(kernel, memory, sizes, fixed), kernel.body[0]
  buffer, where, value = store.src[:3]
  at = code.load(cotangents[buffer], buffer, where, gate_or_true(store))
  (root, g), _ = code.together([code.of(value), at])
  return root, g
