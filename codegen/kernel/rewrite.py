"""The one function that rewrites a graph. Rules replace nodes, nodes that read a replaced one are rebuilt, and all others are the
same objects as before.

A rule is found by the op of a node. It is called with the node as it was and as it would be now (its sources rewritten, index
arithmetic in canonical form). It gives the node that stands in its place, or None for the node as it would be now. A unique node
(not interned: a statement, a loop, an accumulator) is rebuilt as a unique one.

    rewrite(body, {Ops.LOAD: lambda old, new: new.replace(new.src[:2])})    # LOAD(buffer, index, gate) -> LOAD(buffer, index)"""
from __future__ import annotations

from typing import Callable, Iterable, Mapping, Union

from .. import index as ix
from ..ir import BinaryOps, Ops, TernaryOps, UnaryOps, UOp, dtypes, toposort

_DIVISIONS = BinaryOps.IDIV, BinaryOps.MOD
_FOLDS = {**ix.FOLDS, BinaryOps.POW: ix.power}
_Rule = Callable[[UOp, UOp], Union[UOp, None]]
Rules = Mapping[Ops, _Rule]


def rewrite(roots: Iterable[UOp], rules: Rules, known: Mapping[UOp, UOp] | None = None,
            made: dict[UOp, UOp] | None = None) -> tuple[UOp, ...]:
  """``roots`` after the rules. What stands for the nodes in ``known`` is known already: nothing beneath them is looked at. What
  stands for every other node is put into ``made``."""
  roots = tuple(roots)
  new: dict[UOp, UOp] = {} if made is None else made
  new.update(known or ())
  for n in toposort(roots, new.__contains__):
    if n in new: continue
    m = rebuilt(n, tuple([new[s] for s in n.src]))
    rule = rules.get(n.op)
    new[n] = m if rule is None else rule(n, m) or m
  return tuple(new[r] for r in roots)


def substitute(roots: Iterable[UOp], table: Mapping[UOp, UOp]) -> tuple[UOp, ...]: return rewrite(roots, {}, table)


def rebuilt(u: UOp, src: tuple[UOp, ...]) -> UOp:
  """A node with other sources, in canonical form."""
  if src == u.src: return u
  if u.dtype is ix.INT and u.arg not in _DIVISIONS and (fold := _FOLDS.get(u.arg)) is not None: return fold(*src)
  new = u.replace(src)
  return fold_node(new) or new


def fold_node(u: UOp) -> UOp | None:
  """Canonical form of one rebuilt node (its sources already canonical); None where there is nothing to do."""
  src = u.src
  if u.op is Ops.RANGE and src: return ix.rng(u.arg[0], src[0])
  if u.op is not Ops.ALU: return None
  a, fn = src[0], u.arg
  if u.dtype is ix.INT:
    if fn in _DIVISIONS and not (ix.vmin(src[1]) > 0 or ix.of_sizes(src[1])): return None
    fold = _FOLDS.get(fn)
    return fold and fold(a, src[1])
  if u.dtype is dtypes.bool and a.dtype is ix.INT:
    b = src[1]
    if fn is BinaryOps.CMPLT and b.op is Ops.CONST: return ix.lt(a, b.arg)
    if fn is BinaryOps.CMPLT and a.op is Ops.CONST: return ix.ge(b, a.arg + 1)
    if fn is BinaryOps.CMPLT and (ix.has_sizes(a) or ix.has_sizes(b)): return ix.lt(a, b)
    if fn is BinaryOps.CMPEQ and b.op is Ops.CONST: return ix.eq(a, b.arg)
  elif fn is BinaryOps.AND and u.dtype is dtypes.bool:
    if ix.FALSE in src: return ix.FALSE
    if ix.TRUE in src: return src[a is ix.TRUE]
  elif fn is TernaryOps.WHERE and a in (ix.TRUE, ix.FALSE): return src[1 if a is ix.TRUE else 2]
  elif fn is TernaryOps.WHERE and src[1:] == (ix.TRUE, ix.FALSE): return a
  elif fn is UnaryOps.NOT and a in (ix.TRUE, ix.FALSE): return ix.FALSE if a is ix.TRUE else ix.TRUE
  return None
