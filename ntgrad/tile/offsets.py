"""Extremes that only keep numbers small, as the m of a softmax: exp(x - m) / sum(exp(x - m)) is the same for every m.

No gradient has to go through them. They are found by what becomes of each part of an expression when m + c takes the place of m:
sums and logarithms grow by a multiple of c, powers and their products by a factor that is a power of exp(c)."""
from __future__ import annotations

import math
from collections import defaultdict
from typing import Mapping, NamedTuple, Sequence

from ntgrad.codegen import index as ix
from ntgrad.codegen.ir import BinaryOps, Ops, TernaryOps, UnaryOps, UOp, toposort
from ntgrad.codegen.kernel import rewrite, substitute

_EXTREMES = BinaryOps.MAX, BinaryOps.MIN


class _Change(NamedTuple):
  """Where m + c is in the place of m, a value is itself + rate * c or, as a ``factor``, itself * exp(rate * c)."""
  rate: float
  factor: bool = False


_NONE, _UNKNOWN = _Change(0.0), _Change(math.nan)


def offsets(value: UOp) -> frozenset[UOp]:
  """The reductions in an expression that make no difference to it."""
  order, alike = toposort((value,)), defaultdict[UOp, list[UOp]](list)
  for u in order:
    if u.op is Ops.REDUCE and u.arg[0] in _EXTREMES: alike[_renamed(u)].append(u)
  return frozenset([u for us in alike.values() if _is_offset(order, us) for u in us])


def _renamed(u: UOp) -> UOp:
  """A reduction with its own names for the axes that reductions bind: the same for two that differ in these only."""
  def own(old: UOp, new: UOp) -> UOp:
    height = 1 + max([-min(r.arg[1]) >> 8 for r in toposort(new.src) if r.op is Ops.REDUCE], default=0)
    bound = [r for r in old.src[0].ranges if r.arg[0] in old.arg[1]]
    table = {r: ix.rng(-(height << 8) - n, r.arg[1]) for n, r in enumerate(sorted(bound, key=lambda r: int(r.arg[0])))}
    return new.replace(substitute(new.src, table)).with_arg((old.arg[0], tuple([r.arg[0] for r in table.values()])))
  return rewrite((u,), {Ops.REDUCE: own})[0]


def _is_offset(order: Sequence[UOp], extremes: Sequence[UOp]) -> bool:
  """Whether other numbers in the place of some reductions, which are equal, leave the last value of ``order`` as it is."""
  found = dict.fromkeys(extremes, _Change(1.0))
  axes = {r.arg[0] for r in extremes[0].ranges}
  for u in order:
    if u in found or not any(s in found for s in u.src): continue
    change = _UNKNOWN if any(found.get(s) is _UNKNOWN for s in u.src) else _change(u, found, axes)
    if abs(change.rate) > 1e-9 or change is _UNKNOWN: found[u] = change   # else the value stays
  return order[-1] not in found


def _change(u: UOp, found: Mapping[UOp, _Change], axes: set[int]) -> _Change:
  """What becomes of a value, from what becomes of its sources."""
  a, *rest = each = [found.get(s, _NONE) for s in u.src]
  if u.op is Ops.CAST and u.dtype.kind == "f" or u.arg is UnaryOps.NEG and a.factor: return a
  if u.op is Ops.REDUCE and axes.isdisjoint(u.arg[1]):
    return a if u.arg[0] in _EXTREMES or u.arg[0] is BinaryOps.ADD and a.factor else _UNKNOWN
  sums, factors = all(not c.factor for c in each), all(c.factor or c == _NONE for c in each)
  numbers = [float(s.arg) if s.op is Ops.CONST else math.nan for s in u.src]
  match u.arg:
    case UnaryOps.NEG: return _Change(-a.rate)
    case UnaryOps.EXP | UnaryOps.EXP2 if sums: return _Change(a.rate * _base(u.arg), True)
    case UnaryOps.LOG | UnaryOps.LOG2 if factors: return _Change(a.rate / _base(u.arg))
    case UnaryOps.RECIP | UnaryOps.SQRT | UnaryOps.RSQRT if factors: return _Change(a.rate * _POWERS[u.arg], True)
    case BinaryOps.MUL if 0 in numbers: return _NONE
    case BinaryOps.MUL if factors: return _Change(a.rate + rest[0].rate, True)
    case BinaryOps.DIV if factors: return _Change(a.rate - rest[0].rate, True)
    case BinaryOps.MUL | BinaryOps.DIV if sums:
      number = next((n for n in numbers if not math.isnan(n)), math.nan)
      if u.arg is BinaryOps.DIV: number = 1 / number if number and each[1] == _NONE else math.nan
      return _UNKNOWN if math.isnan(number) else _Change(number * (a.rate + rest[0].rate))
    case BinaryOps.ADD | BinaryOps.SUB if sums and math.inf not in map(abs, numbers):
      return _Change(a.rate + (rest[0].rate if u.arg is BinaryOps.ADD else -rest[0].rate))
    case BinaryOps.ADD | BinaryOps.SUB if sums: return _NONE   # it is infinite
  if u.arg in (BinaryOps.ADD, BinaryOps.SUB, *_EXTREMES): left = u.src
  elif u.arg is TernaryOps.WHERE and u.src[0] not in found: left = u.src[1:]
  else: return _UNKNOWN
  # all alternatives change alike, but for numbers that stay what they are
  c = next(found[s] for s in left if s in found)
  def stays(s: UOp) -> bool: return s.op is Ops.CONST and (s.arg == 0 if c.factor else math.isinf(s.arg))
  return c if all(stays(s) or found.get(s) == c for s in left) else _UNKNOWN


def _base(fn: object) -> float: return math.log(2) if fn in (UnaryOps.EXP2, UnaryOps.LOG2) else 1.0


_POWERS: dict[object, float] = {UnaryOps.RECIP: -1.0, UnaryOps.SQRT: 0.5, UnaryOps.RSQRT: -0.5}
