"""Reverse-mode gradients over the tensor graph: one rule an operation, each building nodes of the same graph.

``gradients(root, cotangent, targets)`` walks the nodes between the targets and the root, from the root. A rule gets a node and
the gradient of its value and gives (source, gradient) pairs; it may name a node further down where that is shorter or more exact.
A leaf is a DETACH node of its own for every version of its value (``Base._read``), whose ``note`` says whose it is. When a
structure is met again, its gradients are made by a ``Recipe``, without a rule."""
from __future__ import annotations

import functools
import itertools
import math
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Sequence

from ntgrad.codegen.ir import FUNCTIONS, MOVEMENT, BinaryOps, GradientError, Ops, Recent, UOp, acc_dtype, config, dtypes, toposort
from ntgrad.codegen.ir.elementwise import Shape, add, const, const_value, eq, isnan, product, quotient, select, where
from ntgrad.core import Base, Leaf
from ntgrad.engine.buffer import Buffer, overwritten, transfer_watchers
from ntgrad.engine.counters import phase
from ntgrad.engine.device import Device
from ntgrad.engine.keeping import gradients_asked, gradients_of
from ntgrad.engine.realize import base_of, walk_nodes as computed_walk
from ntgrad.graph import apply_view, hooks, nodes as graph, origins, synchronized, values, variable
from ntgrad.graph.alias import repeats
from ntgrad.graph.formulas import SLOPES
from ntgrad.graph.nodes import Result, cast, cat, expand, gather, index_along, pad, permute, permute_back, reshape, scan, scatter
from ntgrad.graph.recipes import Recipe, kept_within, nothing_computed, stood_for

from .hooks import call_hooks, differentiable, hooked

Pairs = Sequence[tuple[UOp, UOp]]
Need = set[UOp]  # sources outside it lead to no target: their gradients need not be built

MANY = 8         # users of a node from which on their gradients are joined
STRUCTURES = 64  # of graphs, whose recipes are kept
CONSTANTS = 4    # sets of numbers of one structure that are remembered


def sum_to(g: UOp, axes: Sequence[int]) -> UOp:
  """Sum along axes, kept as dims of 1. One sum upon another becomes one, also under a reshape that drops the summed dims."""
  axes = [a for a in axes if g.shape[a] != 1]
  if not axes: return g
  shape, v = tuple([1 if i in axes else s for i, s in enumerate(g.shape)]), const_value(g)
  if v is not None:
    n = math.prod([g.shape[a] for a in axes])
    return const(v * n if n else 0.0, g.dtype, shape)   # nothing adds up to 0, whatever it would have been
  inner = g.src[0] if g.op is Ops.RESHAPE and g.src[0].shape == g.shape + (1,) * (len(g.src[0].shape) - len(g.shape)) else g
  if inner.op is Ops.REDUCE_AXIS and inner.arg[0] is BinaryOps.ADD:
    return reshape(graph.total(inner.src[0], (*inner.arg[1], *axes)), shape)
  return cast(graph.total(cast(g, acc_dtype(g.dtype)), axes), g.dtype)


# ---- rules of one source: what its gradient is, None for none
def _reshape(u: UOp, g: UOp) -> UOp:
  # a reshape of a reshape is one (nobody looks for the gradient in between); memory and its views are left alone
  if g.op is Ops.RESHAPE and g.src[0].op not in (Ops.BUFFER, Ops.SHRINK): g = g.src[0]
  return reshape(g, u.src[0].shape)


def _tile(u: UOp, g: UOp) -> UOp:
  """(outer.., inner..) -> (d..): windows side by side are put back in order; others are summed over all that hold an element."""
  s, wins = u.src[0].shape, u.arg
  n, outer = len(s), u.shape[:len(s)]
  if all([(dilation == 1 or size == 1) and (stride == size or o == 1) for (size, stride, dilation), o in zip(wins, outer)]):
    g = permute(g, tuple([k for i in range(n) for k in (i, n + i)]))
    g = reshape(g, tuple([o * w[0] for o, w in zip(outer, wins)]))
    return pad(g, [(0, d - k) for d, k in zip(s, g.shape)])
  return reshape(sum_to(graph.untile(g, s, wins), range(n, 2 * n)), s)


def _untile(u: UOp, g: UOp) -> UOp:
  """(d.., inner..) -> (outer.., inner..): of the windows of g, each inner index takes its own."""
  shape, wins = u.arg
  n, k = len(shape), len(wins)
  t = graph.tile(g, (*wins, *([(1, 1, 1)] * k)))  # (outer.., inner.., window.., 1..)
  t = reshape(t, t.shape[:n + 2 * k])
  for d, size in enumerate(u.shape[n:]):
    if size != 1: t = select(eq(index_along(n + d, t.shape), index_along(n + k + d, t.shape)), t)
  return reshape(sum_to(t, range(n + k, n + 2 * k)), u.src[0].shape)


def _reduce(u: UOp, g: UOp) -> UOp | None:
  x, (fn, axes) = u.src[0], u.arg
  s = x.shape
  if fn is BinaryOps.ADD:
    v = const_value(g)
    return expand(g, s) if v is None else const(v, g.dtype, s)
  if fn is BinaryOps.MAX or fn is BinaryOps.MIN:
    chosen = eq(x, expand(u, s))
    ties = graph.total(cast(chosen, acc_dtype(g.dtype)), axes)   # equal ones share the gradient
    return select(chosen, expand(quotient(g, cast(ties, g.dtype)), s))
  return product(expand(g, s), _products_of_others(x, axes)) if fn is BinaryOps.MUL else None


def _scan(u: UOp, g: UOp) -> UOp | None:
  """Each element counts for all that come after it, itself included: the scan the other way round."""
  x, (fn, axis, reverse) = u.src[0], u.arg
  if fn is BinaryOps.ADD: return scan(fn, g, axis, not reverse)
  if fn is BinaryOps.MUL: return _product_scan(x, u, g, axis, reverse)
  if fn not in (BinaryOps.MAX, BinaryOps.MIN): return None
  # of equal ones the last one so far has the gradient of all, as of a NaN every later one
  s, n = x.shape, x.shape[axis]
  at = index_along(axis, s)
  if reverse: at = n - 1 - at   # in the order of the scan
  chosen = scan(BinaryOps.MAX, where(eq(x, u) | isnan(x), at, 0), axis, reverse)
  if reverse: chosen = n - 1 - chosen
  # rows, side by side, are one: element i of row r is r * n + i
  order = (*[d for d in range(len(s)) if d != axis], axis)
  chosen, g = permute(chosen, order), permute(g, order)
  flat = math.prod(s) // n, n
  index = index_along(0, flat), reshape(chosen, flat)
  return permute_back(reshape(scatter(const(0.0, g.dtype, flat), index, reshape(g, flat), "add"), g.shape), order)


def _product_scan(x: UOp, u: UOp, g: UOp, axis: int, reverse: bool) -> UOp:
  """The gradient of running products: what comes after an element, with its products, over the element. The first zero of a row
  gets the products without it, what comes after it nothing."""
  def after(v: UOp) -> UOp: return scan(BinaryOps.ADD, v, axis, not reverse)
  zero = eq(x, 0.0)
  seen = scan(BinaryOps.ADD, cast(zero, dtypes.int32), axis, reverse)
  first = zero & eq(seen, 1)
  without = scan(BinaryOps.MUL, where(first, 1.0, x), axis, reverse)
  return where(eq(seen, 0), after(product(g, u)) / where(zero, 1.0, x), select(first, after(product(g, without))))


def _products_of_others(x: UOp, axes: Sequence[int]) -> UOp:
  """For each element, the product of the others along axes, right where elements are zero."""
  s = x.shape
  rest = [i for i in range(len(s)) if i not in axes]
  order = *rest, *axes
  flat = reshape(permute(x, order), (*[s[i] for i in rest], math.prod([s[a] for a in axes])))
  n, r = flat.shape[-1], len(rest)
  every = expand(reshape(flat, (*flat.shape[:-1], 1, n)), (*flat.shape, n))
  others = where(eq(index_along(r, every.shape), index_along(r + 1, every.shape)), 1.0, every)
  return permute_back(reshape(graph.reduce(BinaryOps.MUL, others, (r + 1,)), tuple([s[o] for o in order])), order)


def _gather(u: UOp, g: UOp) -> UOp:
  base, *index = u.src
  none = const(0.0, acc_dtype(base.dtype), base.shape)   # many rows may fall on one
  return cast(scatter(none, index, cast(g, none.dtype), "add"), base.dtype)


_RULES: dict[Ops, Callable[[UOp, UOp], UOp | None]] = {
  Ops.CAST: lambda u, g: cast(g, u.src[0].dtype) if u.src[0].dtype.kind == "f" else None,
  Ops.RESHAPE: _reshape,
  Ops.EXPAND: lambda u, g: sum_to(g, [i for i, (a, b) in enumerate(zip(u.src[0].shape, u.shape)) if a != b]),
  Ops.PAD: lambda u, g: graph.shrink(g, [(lo, lo + s) for (lo, _), s in zip(u.arg, u.src[0].shape)]),
  Ops.SHRINK: lambda u, g: pad(g, [(b, s - e) for (b, e), s in zip(u.arg, u.src[0].shape)]),
  Ops.PERMUTE: lambda u, g: permute_back(g, u.arg), Ops.FLIP: lambda u, g: graph.flip(g, u.arg),
  Ops.TILE: _tile, Ops.UNTILE: _untile, Ops.REDUCE_AXIS: _reduce, Ops.SCAN_AXIS: _scan, Ops.GATHER: _gather,
  Ops.COPY: lambda u, g: g if u.src[0].device is None else graph.copy(g, u.src[0].device), Ops.CONTIGUOUS: lambda u, g: g}


# ---- rules of several sources
def _alu(u: UOp, g: UOp, need: Need) -> Pairs:
  return [x if isinstance(x := rule(u, g), tuple) else (s, x) for s, rule in zip(u.src, FUNCTIONS[u.arg].gradient)
          if s in need and rule is not None]


def _scatter(u: UOp, g: UOp, need: Need) -> Pairs:
  base, *index, value = u.src
  if u.arg == "add": return [(base, g), (value, gather(g, *index))]
  # what was set no longer depends on the base; of equal indices one write is there
  winner, kept = _winners(index, base.shape[:len(index)])
  return [(base, select(_rows(eq(winner, -1), base.shape), g)), (value, select(_rows(kept, value.shape), gather(g, *index)))]


def _update(u: UOp, g: UOp, need: Need) -> Pairs:
  """What a write replaced has no gradient any more, what it put there has."""
  base, value, *index = u.src
  part = apply_view(g, u.arg)
  winner, kept = _winners(index, part.shape[:1]) if index else (part, part)
  found = [(value, select(_rows(kept, value.shape), gather(part, index[0])) if index else part)]
  if base not in need: return found
  left = select(_rows(eq(winner, -1), part.shape), part) if index else const(0.0, g.dtype, part.shape)
  return [*found, (base, graph.update(g, left, u.arg))]


def _rows(mask: UOp, shape: Shape) -> UOp:
  """A value a row, for every element of the rows."""
  return expand(reshape(mask, mask.shape + (1,) * (len(shape) - len(mask.shape))), shape)


def _winners(index: Sequence[UOp], rows: Shape) -> tuple[UOp, UOp]:
  """For each row the number of the last index that names it, -1 for none; and for each index whether it is that last one."""
  shape = index[0].shape
  numbers = reshape(graph.iota(math.prod(shape)), shape)
  winner = scatter(const(-1, numbers.dtype, rows), index, numbers, "set")
  return winner, eq(gather(winner, *index), numbers)


def _cat(u: UOp, g: UOp, need: Need) -> Pairs:
  ends = list(itertools.accumulate([s.shape[u.arg] for s in u.src]))
  return [(s, graph.part(g, u.arg, begin, end)) for s, begin, end in zip(u.src, (0, *ends), ends)]


def _sloped(u: UOp, g: UOp, need: Need) -> Pairs:
  """By the derivatives of a function that is made of others."""
  slopes = SLOPES[u.arg](*map(Base._from_node, (u, *u.src[1:])))
  return [(s, product(g, slope.lazydata)) for s, slope in zip(u.src[1:], slopes) if s in need]


_RULES_OF_MANY: dict[Ops, Callable[[UOp, UOp, Need], Pairs]] = {
  Ops.ALU: _alu, Ops.SCATTER: _scatter, Ops.UPDATE: _update, Ops.CAT: _cat, Ops.SLOPED: _sloped,
  Ops.OUTPUT: lambda u, g, _: [(stood_for(u), g)]}
_OWN = frozenset({Ops.SLOPED, Ops.CUSTOM, Ops.CALL, Ops.OUTPUT})   # whose gradients are not those of their sources' values
_STOPS = frozenset({Ops.SORT_AXIS, Ops.DETACH, Ops.CONST, Ops.IOTA, Ops.BITCAST})


def sources_of(u: UOp) -> tuple[UOp, ...]:
  """Where the gradient of a node may go on to."""
  if u.op in _STOPS: return u.note.call.sources if isinstance(u.note, Result) else ()
  if u.dtype.kind != "f": return ()
  if u.op is Ops.OUTPUT: return (stood_for(u),) if u.src[0].arg.passes else ()
  return u.src[1:] if u.op is Ops.SLOPED else u.src


def _call_of(u: UOp) -> Any:
  """The call that has a node's gradient (of ``tensor/custom.py``, ``tile/function.py``) and which output the node is, or None."""
  return u.arg if u.op is Ops.CUSTOM else u.note if isinstance(u.note, Result) else None


def walk(*roots: UOp) -> list[UOp]:
  """The nodes that a gradient of the roots can reach, sources first."""
  done, seen, stack = dict[UOp, None](), set[UOp](), [*roots][::-1]
  while stack:
    n = stack[-1]
    if n in seen:
      done[n] = None
      stack.pop()
    else:
      seen.add(n)
      stack.extend([s for s in sources_of(n)[::-1] if s not in done])
  return list(done)


class _Graph(NamedTuple):
  """What a gradient can reach, in an order that its structure gives; ``key`` is None where rules have to be asked each time."""
  root: UOp
  nodes: list[UOp]
  place: dict[UOp, int]        # of each of them
  end: int                     # from there on they are only beneath the gradient that is given
  leaves: list[UOp]
  key: tuple[Any, ...] | None  # all that rules look at, but for constants
  constants: tuple[UOp, ...]


def _followed(u: UOp) -> bool:
  """Whether rules look beneath a node: a gradient passes it, or there may be a constant beneath."""
  op = u.op
  if op is Ops.OUTPUT: return u.dtype.kind == "f" and bool(u.src[0].arg.passes)
  return op is Ops.RESHAPE or op is Ops.EXPAND or op is Ops.APPLY or u.dtype.kind == "f" and op not in _STOPS and u.src != ()


def _graph(root: UOp, start: UOp) -> _Graph:
  """What a gradient ``start`` at the root can reach. The key has of each node, in one row, what it does and the places of its
  sources; of one that is not followed shape and device."""
  place, nodes = {root: 0}, [root]
  leaves: list[UOp] = []
  constants: list[UOp] = []
  key: list[Any] = []
  add, found, placed, n, end = key.append, nodes.append, place.setdefault, 1, 0
  for top in root, start:
    if top not in place:
      place[top] = n
      n += 1
      found(top)
    add(place[top])
    for u in itertools.islice(nodes, end, None):   # they become more on the way
      op, d, src = u.op, u.dtype, u.src
      if d.kind == "f" and src and op not in _STOPS or op is Ops.RESHAPE or op is Ops.EXPAND:   # as ``_followed``
        add(op)
        add(d)
        add(u.arg)
        if op in _OWN:
          add(u.shape)
          if op is Ops.SLOPED: src = src[1:]
          elif op is Ops.OUTPUT:
            call, = src
            add(call.arg)
            src = call.src if call.arg.passes else ()
          else: return _plain_graph(root)
        for s in src:
          at = placed(s, n)
          if at == n:
            n += 1
            found(s)
          add(at)
      elif op is Ops.CONST:
        constants.append(u)
        key += op, d
      else:
        if isinstance(u.note, Leaf): leaves.append(u)
        elif isinstance(u.note, Result): return _plain_graph(root)
        key += op, d, u.shape, u.device
    if top is root: end, reached = n, leaves.copy()
  return _Graph(root, nodes, place, end, reached, None if variable.looks or hooks.any_of(nodes) else tuple(key),
                tuple(constants))


def _plain_graph(root: UOp) -> _Graph:
  nodes = walk(root)
  place, leaves = {n: i for i, n in enumerate(nodes)}, [n for n in nodes if isinstance(n.note, Leaf)]
  return _Graph(root, nodes, place, len(nodes), leaves, None, ())


# by structure and targets, then by constants, so that those which change each time fill no table: the recipe, and the places of
# the targets in the order of a walk, first those that have gradients
_recipes: Recent[Any, Recent[tuple[UOp, ...], tuple[Recipe, list[int]] | None]] = Recent(STRUCTURES)


def _found(g: _Graph, start: UOp, targets: Sequence[UOp], later: bool = False,
           kept: Sequence[tuple[int, UOp]] = ()) -> dict[UOp, UOp | None]:
  """The gradient, or None, of each target: in the order of a walk, first those that have one. ``later``: what they
  are made of is not needed before a plan is made, as nobody differentiates them."""
  if g.key is not None:
    at = g.key, tuple(sorted({g.place[n] for n in targets})), config.origins > 0
    if (known := _recipes[at]) is None: known = _recipes[at] = Recent(CONSTANTS)
    if (recorded := known[g.constants]) is None: recorded = known[g.constants] = _recorded(g, start, targets)
    if recorded is not None:
      recipe, places = recorded
      made = recipe.later(g.nodes, None, kept) if later else recipe(g.nodes)
      return {g.nodes[i]: x for i, x in itertools.zip_longest(places, made)}
  return _by_rules(g.root, start, set(targets))


def _by_rules(root: UOp, start: UOp, targets: set[UOp], lines: dict[UOp, UOp] | None = None) -> dict[UOp, UOp | None]:
  order = walk(root)
  found = gradients(order, {root: start}, targets, lines)
  return {n: found[n] for n in order if n in found} | {n: None for n in order if n in targets and n not in found}


def _recorded(g: _Graph, start: UOp, targets: Sequence[UOp]) -> tuple[Recipe, list[int]] | None:
  """The recipe of a structure: what rules make of nodes of which no more is known than the key has, so that it is the same for
  every graph with that key. None where a node is what an OUTPUT stands for."""
  new, made = dict[UOp, UOp](), dict[UOp, list[UOp]]()
  for n in toposort(g.nodes, lambda n: not _followed(n)):
    if n.op is Ops.APPLY: made[n] = n.arg.made(n, [new[s] for s in n.src])
    elif n.op is Ops.CONST: new[n] = n
    elif not _followed(n): new[n] = UOp.unique(n.op if n.op is not Ops.OUTPUT else Ops.DETACH, n.dtype)
    else: new[n] = made[n.src[0]][n.arg] if n.op is Ops.OUTPUT else n.replace(tuple([new[s] for s in n.src]))
    if n in new:
      new[n].__dict__.update(shape=n.shape, device=n.device)
      origins.carry(n, new[n])
  nodes, lines = [new[n] for n in g.nodes], dict[UOp, UOp]()
  place = {u: i for i, u in enumerate(nodes)}
  if len(place) < len(nodes): return None
  with nothing_computed(): found = _by_rules(new[g.root], new[start], {new[n] for n in targets}, lines)
  # a node without a line has that of the one that reads it
  read, noted = origins.of(walk(new[g.root])), {id(u.origin): i for i, u in enumerate(nodes) if u.origin is not None}
  at = {u: place[n] if n in place and n.origin is not None else noted.get(id(next(iter(read[n]))), -1) for u, n in lines.items()}
  return Recipe(nodes, [x for x in found.values() if x is not None], {u: i for u, i in at.items() if i >= 0}), [
    place[n] for n in found]


def gradients(order: Sequence[UOp], cotangents: Mapping[UOp, UOp], targets: Iterable[UOp],
              lines: dict[UOp, UOp] | None = None) -> dict[UOp, UOp]:
  """The gradients at the targets that the walk ``order`` has, from those at its roots. ``lines`` gets what each is of."""
  wanted = set(targets)
  on_path: set[UOp] = set()         # nodes on a path from the root to a target
  calls: dict[Any, UOp] = {}        # users' kernels -> the first of their outputs in the walk, where all its gradients are known
  for n in order:
    if n in wanted or any([s in on_path for s in sources_of(n)]): on_path.add(n)
    if (custom := _call_of(n)) is not None: calls.setdefault(custom[0], n)
  found: dict[UOp, list[UOp]] = {root: [g] for root, g in cotangents.items()}   # what each node's gradient is the sum of
  out, reached, made = dict[UOp, UOp](), dict[Any, dict[int, UOp]](), origins.of(order)
  for n in reversed(order):
    g = total(found.pop(n)) if n in found else None
    if g is not None and (mine := hooks.of_node(n)) is not None: g = hooked(g, mine)
    if g is not None and n in wanted: out[n] = g
    if (custom := _call_of(n)) is not None:
      call, number = custom
      if g is not None: reached.setdefault(call, {})[number] = g
      sources = sources_of(n)
      if calls[call] is not n or call not in reached or not any([s in on_path for s in sources]): continue
      parts = call.gradients(reached.pop(call), sources, on_path)
    elif g is None or n not in on_path: continue
    elif (rule := _RULES.get(n.op)) is not None: parts = [] if (at := rule(n, g)) is None else [(n.src[0], at)]
    elif n.op in _RULES_OF_MANY: parts = _RULES_OF_MANY[n.op](n, g, on_path)
    else: continue
    for s, gs in parts:
      if n in made:
        if config.origins and gs.origin is None: gs.origin = origins.gradient_of(next(iter(made[n])))
        if lines is not None: lines.setdefault(gs, n)
      if s in on_path: found.setdefault(s, []).append(gs)
  return out


def total(parts: Sequence[UOp]) -> UOp:
  """The sum of the gradients that one node gets from its users. Of a node that many use, as the steps of a recurrent layer use
  its weights and slices of its input, parts that stand side by side are joined, and products are one product of the joined
  factors: pad(a) + pad(b) + .. -> cat(a, b, ..), a*b + c*d + .. -> sum(stack(a, c, ..) * stack(b, d, ..))."""
  if len(parts) >= MANY:
    for joined in _side_by_side, _one_product: parts = joined(parts)
  return functools.reduce(add, parts)


def _side_by_side(parts: Sequence[UOp]) -> list[UOp]:
  """Parts that are zero but for slices along the same axis that share no element, as one."""
  slices, others = dict[int, list[tuple[int, UOp]]](), list[UOp]()   # axis -> where each begins
  for u in parts:
    axes = [d for d, amounts in enumerate(u.arg) if any(amounts)] if u.op is Ops.PAD else []
    if len(axes) == 1: slices.setdefault(axes[0], []).append((u.arg[axes[0]][0], u))
    else: others.append(u)
  for axis, found in slices.items():
    found.sort(key=lambda f: f[0])
    ends = [start + u.src[0].shape[axis] for start, u in found]
    if len(found) < MANY or any([start < end for end, (start, _) in zip(ends, found[1:])]):
      others += [u for _, u in found]
      continue
    shape, filled = found[0][1].shape, list[UOp]()
    for before, (start, u) in zip((0, *ends), found):
      if start > before: filled.append(_zeros(u, axis, start - before))
      filled.append(u.src[0])
    if ends[-1] < shape[axis]: filled.append(_zeros(u, axis, shape[axis] - ends[-1]))
    others.append(cat(filled, axis))
  return others


def _zeros(u: UOp, axis: int, n: int) -> UOp: return const(0, u.dtype, (*u.shape[:axis], n, *u.shape[axis + 1:]))


def _one_product(parts: Sequence[UOp]) -> list[UOp]:
  """Products of two factors, each expanded from fewer elements, as one sum of products."""
  alike, others = dict[Any, list[UOp]](), list[UOp]()
  for u in parts:
    if u.op is Ops.ALU and u.arg is BinaryOps.MUL and all([s.op is Ops.EXPAND for s in u.src]):
      alike.setdefault((u.dtype, u.src[0].src[0].shape, u.src[1].src[0].shape), []).append(u)
    else: others.append(u)
  for products in alike.values():
    if len(products) < MANY:
      others += products
      continue
    shape = products[0].shape
    a, b = [expand(cat([reshape(x, (1, *x.shape)) for u in products if (x := u.src[i].src[0])], 0), (len(products), *shape))
            for i in (0, 1)]
    others.append(reshape(sum_to(a * b, [0]), shape))
  return others


def _start(name: str, loss: Any, gradient: Any) -> UOp:
  u: UOp = loss.lazydata
  if u.dtype.kind != "f":
    raise GradientError(f"{name}: a tensor of {u.dtype.name} has no gradient; it takes a float (cast before the computation)")
  if gradient is None:
    if loss.numel() != 1:
      raise GradientError(f"{name}: a tensor of shape {u.shape} is not one number; reduce it (.sum(), .mean()) or give gradient=")
    return const(1.0, u.dtype, u.shape)
  g: UOp = gradient.lazydata
  if math.prod(g.shape) == 1: g = reshape(g, ())
  if g.dtype is not u.dtype or not graph.broadcasts(g.shape, u.shape):
    raise GradientError(f"{name}: gradient= of {g.dtype.name} {g.shape} for a tensor of {u.dtype.name} {u.shape}; give that "
                        "dtype, and a shape that broadcasts to that one")
  return graph.broadcast(g, u.shape)


def _memory(u: UOp) -> UOp:
  """A node seen in memory where it, or what it is a view of, has been realised; else the node."""
  chain = []
  while (found := values.get(u)) is None:
    if u.op not in MOVEMENT: return u
    chain.append(u)
    u = u.src[0]
  u = found
  for m in reversed(chain): u = UOp(m.op, m.dtype, (u,), m.arg)
  return u


def _is_computed(u: UOp) -> bool:
  """Whether a node is memory, or a view of it, that an expression was computed into."""
  u = base_of(u)
  return u.op is Ops.BUFFER and u.arg.known != []


def _refuse_gone(name: str, loss: Any, found: Iterable[UOp | None]) -> None:
  """Raises GradientError where gradients need values that have been written over and cannot be computed again."""
  if not overwritten: return
  for u in computed_walk([g for g in found if g is not None]):
    if u.op is Ops.BUFFER and u.arg.stale:
      raise GradientError(
        f"{name}: the gradient of a tensor of shape {loss.shape} needs the old value of a tensor of shape {u.shape} ({u.dtype}), "
        f"which was overwritten by {u.arg.gone or 'an assignment'}; call {name} before that is realised, or write to a .clone()")


@synchronized
@phase("gradients")
def backward(loss: Any, gradient: Any = None, inputs: Sequence[Any] | None = None, create_graph: bool = False) -> None:
  """Add to ``grad`` of every live leaf beneath ``loss``, or of ``inputs`` alone; see ``Tensor.backward``."""
  cotangent = _start("backward", loss, gradient)
  if loss._state <= 0:
    raise GradientError(f"backward: a tensor of shape {loss.shape} that no leaf leads to; "
                        "set requires_grad=True on a source, outside of no_grad")
  walked = _graph(loss.lazydata, cotangent)
  leaves = {n: t for n in walked.leaves if (t := n.note()) is not None and t._state == 2}
  if not leaves:
    raise GradientError("backward: no leaf that requires a gradient is in the graph and alive; "
                        "keep the leaf tensors, use them in the computation")
  if inputs is not None:
    wrong = [i for i, t in enumerate(inputs) if not any([t is leaf for leaf in leaves.values()])]
    if wrong: raise GradientError(f"backward: inputs[{wrong[0]}] is no leaf beneath the tensor; autograd.grad takes any tensor")
    leaves = {n: t for n, t in leaves.items() if any([t is x for x in inputs])}
  calls = dict.fromkeys([n.src[0] for n in walked.nodes if n.op is Ops.OUTPUT])
  kept = [(i, call) for i, call in enumerate(calls) if call in kept_within]
  with differentiable(create_graph):
    found = _found(walked, cotangent, list(leaves), not create_graph, kept)
    if hooks.of_leaves: found = {n: hooked(g, hooks.of_leaf(leaves[n])) for n, g in found.items()}
  _refuse_gone("backward", loss, found.values())
  made = []
  for n, g in found.items():
    t = leaves[n]
    if g is not None:
      if not create_graph and (g.src[0] if g.op is Ops.RESHAPE else g).op is not Ops.OUTPUT: g = graph.detach(g)
      old = t.grad
      both = g if old is None else old.lazydata + g
      # a jit's function adds to the memory that a gradient had before: each replay does so
      here = old is not None and transfer_watchers and old._alias.memory is not None and not (create_graph or repeats(old._view))
      if here and old._state <= 0 and both.dtype is old.dtype: old._write("backward", both)
      else: t.grad = (loss._wrap if create_graph else t._detached)(both)
      made.append(t.grad._alias)
    elif t.grad is None: t.grad = t._detached(const(0.0, n.dtype, n.shape))   # used, but without slope
  gradients_asked({*walked.nodes[:walked.end], *[n for _, call in kept for n in call.arg.nodes_of(call)]}, loss._alias, made)
  if hooks.of_leaves:
    with differentiable(create_graph):
      for n in reversed(found): call_hooks("accumulated", hooks.of_leaf(leaves[n]), leaves[n])


def _gradients_beneath(values: Sequence[UOp]) -> list[UOp]:
  """The gradients at the leaves beneath values that they will have, of about the kernels; none where a user's rule or hook gives
  some."""
  order = walk(*values)
  leaves = [n for n in order if isinstance(n.note, Leaf) and (t := n.note()) is not None and t._state == 2]
  if not leaves or hooks.any_of(order): return []
  if not all([getattr(call[0], "own", False) for n in order if (call := _call_of(n)) is not None]): return []
  ones = {u: const(1.0, u.dtype) if u.shape == () else Buffer(u.device or Device.DEFAULT, u.shape, u.dtype).node for u in values}
  with nothing_computed(): return list(gradients(order, ones, leaves).values())


gradients_of.append(_gradients_beneath)
graph.by_rules.append(lambda values, beneath: gradients(walk(*values), values, beneath))


@synchronized
@phase("gradients")
def gradient(loss: Any, targets: Sequence[Any], cotangent: Any = None, unused: bool = False) -> list[Any]:
  """The gradients with respect to targets; see ``Tensor.gradient``; with ``unused`` None for those that are not in the graph."""
  start = _start("gradient", loss, cotangent)
  walked = _graph(loss.lazydata, start)
  memory: dict[UOp, UOp] | None = None
  versions, wanted = dict[int, list[UOp]](), list[list[UOp]]()   # of each leaf, by its identity; of each target
  for n in walked.leaves: versions.setdefault(id(n.note()), []).append(n)
  for i, t in enumerate(targets):
    if t.dtype.kind != "f":
      raise GradientError(f"gradient: target {i} is of {t.dtype.name}; gradients are with respect to floats")
    u = number = t.lazydata
    while number.op in MOVEMENT: number = number.src[0]
    if t._state <= 0 and number.op is Ops.CONST:
      raise GradientError(f"gradient: target {i} of shape {t.shape} is the number {number.arg}, which is one with all others of "
                          "its value in the graph; make it with requires_grad=True, or of a list or an array")
    if t._state == 2: at = versions.get(id(t), [])
    elif walked.place.get(u, walked.end) < walked.end: at = [u]
    else:   # realised after the graph was made
      if memory is None: memory = {_memory(n): n for n in walk(loss.lazydata) if n in values or n.op in MOVEMENT}
      at = [memory[u]] if u in memory else []
    if not at and not unused:
      raise GradientError(f"gradient: target {i} of shape {t.shape} is not in the graph of the value; use it in the computation, "
                          "with requires_grad=True set before")
    wanted.append(at)
  if loss._state == 0 and not any(wanted) and _is_computed(loss.lazydata):
    raise GradientError(f"gradient: a tensor of shape {loss.shape} has been computed, and what of is not kept where nothing "
                        "requires a gradient; call gradient before it is realised, or make the targets with requires_grad=True")
  found = _found(walked, start, [n for at in wanted for n in at])
  rank = {n: i for i, n in enumerate(found)}   # versions of a leaf in the order of a walk
  _refuse_gone("gradient", loss, found.values())
  # of a value that requires a gradient so do its gradients: they can be differentiated again
  make = loss._wrap if loss._state > 0 else loss._from_node
  out = []
  for t, at in zip(targets, wanted):
    parts = [g for n in sorted(at, key=rank.__getitem__) if (g := found[n]) is not None]
    if parts and hooks.of_leaves: parts = [hooked(functools.reduce(add, parts), hooks.of_leaf(t))]   # type: ignore[list-item]
    out.append(None if not at else make(functools.reduce(add, parts or [const(0.0, t.dtype, at[0].shape)]))._called(t._names))
  return out
