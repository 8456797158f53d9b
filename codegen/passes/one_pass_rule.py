"""Which reductions of a kernel may be made in one loop over their axis though they need each other, and what each of them is.

A sum over j of F(x, m), where m is the greatest x, is made in one pass where F is a product of factors of three kinds: what does
not need m; what does not vary along j, which stands outside of the sum; and exp(c (x - m)). When m grows, the sum so far is
multiplied by exp(c (old m - new m)). A maximum over j of x + H(m) is that of x, and H(m) is added to it at the end.

    sum[j](exp(s - m) / l * v), l = sum[j](exp(s - m))   ->   inside exp(s - m) * v, factor 1 / l, shift c = 1, by m
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import NamedTuple

from .. import index as ix
from ..ir import BinaryOps, DType, Ops, TernaryOps, UnaryOps, UOp, dtypes, identity, toposort, union
from ..ir.alu import mul
from ..kernel import Axis, Kernel, substitute

EXPONENTIALS = UnaryOps.EXP, UnaryOps.EXP2
MOST_WITHIN = 256   # elements of an axis that a program has all of: the width of a head of attention

Linear = dict[UOp, float]          # a sum of values, each with its factor
Needs = dict[UOp, frozenset[UOp]]  # the members of a chain beneath each node


class Shift(NamedTuple):
  """A factor exp(c (x - m)) of a sum: ``fn`` is exp or exp2, ``by`` what stands for m, a function of the ``statistic``."""
  fn: UnaryOps
  c: float
  by: UOp
  statistic: UOp


class Member(NamedTuple):
  """A reduction of a chain: of ``inside``; the result is multiplied by ``factors``, or for a maximum they are added. ``shifts``
  say what sums so far are corrected by."""
  node: UOp
  inside: UOp
  factors: tuple[UOp, ...] = ()
  shifts: tuple[Shift, ...] = ()


class Chain(NamedTuple):
  """The reductions along one axis, each after those that it needs, and the reductions beneath them that vary along it."""
  axis: UOp
  members: tuple[Member, ...]
  inner: tuple[UOp, ...]

  def whole(self, kernel: Kernel) -> list[Axis]:
    """The axes of which a program has all elements: neither the chain's nor those of its rows."""
    return [a for a in kernel.axes if a.rng is not self.axis and a.rng not in self.common]

  @property
  def common(self) -> frozenset[UOp]:
    """The axes along which all members have results, of those that the inner reductions vary along."""
    return frozenset.intersection(union([r.ranges for r in self.inner]), *[m.node.ranges for m in self.members])

  def rows(self, kernel: Kernel) -> Axis | None:
    """The axis whose elements share most of what is read along the chain's, so that a program takes a block of it; None where
    they share nothing."""
    nodes = toposort([m.node.src[0] for m in self.members])
    loads = [u for u in nodes if u.op is Ops.LOAD and self.axis in u.ranges]
    shared = {a: sum(a.rng not in u.ranges for u in loads) for a in kernel.axes if a.rng in self.common}
    best = max(shared, key=lambda a: (shared[a], a.count), default=None)
    return best if best is not None and shared[best] else None


def find_chain(kernel: Kernel) -> Chain | None:
  """The chain of a kernel: reductions over an axis of values that are made of other reductions, which vary along it. None where
  there is none, or where the rule does not hold."""
  if not kernel.stores_only or len(kernel.reduces) < 2 or kernel.tiles: return None
  for last in reversed(kernel.reduces):
    along = kernel.axis(last.arg[1][0]).rng
    inner = tuple(r for r in kernel.reduces if along in r.ranges)
    if len(last.arg[1]) != 1 or not inner: continue
    members = members_of([r for r in kernel.reduces if r.arg[1] == last.arg[1]], along)
    if members is not None: return Chain(along, members, inner)
  return None


def members_of(reduces: Sequence[UOp], along: UOp) -> tuple[Member, ...] | None:
  """What reductions along an axis are in one pass; None where the rule does not hold for all."""
  needs: Needs = {}
  for u in toposort(reduces): needs[u] = union([needs[s] for s in u.src], frozenset((u,)) if u in reduces else frozenset())
  members = [m for r in reduces if (m := _decomposed(r, along, needs)) is not None]
  shifting = {s.statistic for m in members for s in m.shifts}
  # a statistic that is corrected itself would be known only after a pass
  corrected = any(m.node in shifting and (m.shifts or m.factors) for m in members)
  return tuple(members) if len(members) == len(reduces) and not corrected else None


def _decomposed(r: UOp, along: UOp, needs: Needs) -> Member | None:
  """What a reduction is in one pass with those that it needs; None where the rule does not hold. ``needs`` gets new nodes."""
  fn, x = r.arg[0], r.src[0]
  if not needs[x]: return Member(r, x)
  if r.dtype.kind != "f": return None
  if fn is BinaryOps.MAX:
    terms = {t: c for t, c in linear(x).items() if needs[t]}
    if any(along in t.ranges for t in terms): return None
    zeros = {t: UOp.const(t.dtype, 0) for t in terms}
    return Member(r, substitute((x,), zeros)[0], tuple(times(t, c) for t, c in terms.items()))
  if fn is not BinaryOps.ADD: return None
  inside, factors = pulled_out(x, along, needs)
  for u in toposort((inside, *factors), needs.__contains__): needs[u] = needs.get(u) or union([needs[s] for s in u.src])
  shifts: list[Shift] = []
  queue = [inside]
  for u in queue:
    if not needs[u]: continue
    if u.arg in EXPONENTIALS:
      if (shift := _shift(u, along, needs)) is None: return None
      shifts.append(shift)
    elif u.arg is BinaryOps.MUL or u.op is Ops.CAST or u.arg is UnaryOps.NEG: queue += u.src
    elif u.arg is BinaryOps.DIV and not needs[u.src[1]]: queue.append(u.src[0])
    elif _chooses_or_zero(u) and not needs[u.src[0]]: queue += [s for s in u.src[1:] if not _is_zero(s)]
    else: return None
  return Member(r, inside, tuple(factors), tuple(shifts))


def _is_finite(u: UOp) -> bool: return u.op is Ops.CONST and math.isfinite(u.arg)
def _is_zero(u: UOp) -> bool: return u.op is Ops.CONST and u.arg == 0
def _chooses_or_zero(u: UOp) -> bool: return u.arg is TernaryOps.WHERE and any(map(_is_zero, u.src[1:]))
def _is_float_cast(u: UOp) -> bool: return u.op is Ops.CAST and u.dtype.kind == "f" == u.src[0].dtype.kind
def times(t: UOp, c: float) -> UOp: return t if c == 1 else mul(t, UOp.const(t.dtype, c))


def pulled_out(x: UOp, along: UOp, needs: Needs) -> tuple[UOp, list[UOp]]:
  """A product without its factors that are the same along an axis and need other reductions, and these factors: e / l * v -> e *
  v and 1 / l. What is rounded to fewer bits is rounded without them."""
  found: dict[UOp, tuple[UOp, list[UOp]]] = {}
  def factor(u: UOp) -> bool: return along not in u.ranges and bool(needs[u])
  def whole(u: UOp) -> bool: return along not in u.ranges or not needs[u] or u.op not in (Ops.ALU, Ops.CAST)
  for u in toposort((x,), whole):
    inside, out = u, list[UOp]()
    if not whole(u):
      parts = [found[s] for s in u.src]
      if u.arg is BinaryOps.MUL:
        left = [p for s, (p, _) in zip(u.src, parts) if not factor(s)]
        out = [f for s, (_, more) in zip(u.src, parts) for f in ([s] if factor(s) else more)]
        if out: inside = reduce(mul, left)
      elif u.arg is BinaryOps.DIV:
        a, b = u.src
        out = [*parts[0][1], *([UOp.alu(BinaryOps.DIV, UOp.const(u.dtype, 1), b)] if factor(b) else [])]
        if out: inside = parts[0][0] if factor(b) else UOp.alu(BinaryOps.DIV, parts[0][0], b)
      elif u.arg is UnaryOps.NEG or _is_float_cast(u): inside, out = u.replace((parts[0][0],)), parts[0][1]
      elif _chooses_or_zero(u):
        n, = [i for i, s in enumerate(u.src) if i and not _is_zero(s)][:1] or [0]
        out = parts[n][1] if n else []
        if out: inside = u.replace(tuple(parts[i][0] if i == n else s for i, s in enumerate(u.src)))
    found[u] = inside, out
  return found[x]


def linear(x: UOp) -> Linear:
  """A value as a sum of others with factors: x * 2 - (y + x) is {x: 1, y: -1}."""
  found: dict[UOp, Linear] = {}
  for u in toposort((x,), lambda u: not _summands(u)):
    parts, out = _summands(u), Linear()
    for s, by in parts:
      for t, c in found[s].items(): out[t] = out.get(t, 0) + by * c
    found[u] = {t: c for t, c in out.items() if c} if parts else {u: 1.0}
  return found[x]


def _summands(u: UOp) -> list[tuple[UOp, float]]:
  """The values that one is a sum of, each with its factor; none for other values."""
  if u.arg is BinaryOps.ADD or u.arg is BinaryOps.SUB: return [(u.src[0], 1), (u.src[1], 1 if u.arg is BinaryOps.ADD else -1)]
  if u.arg is UnaryOps.NEG: return [(u.src[0], -1)]
  if u.arg is BinaryOps.DIV and _is_finite(u.src[1]) and u.src[1].arg: return [(u.src[0], 1 / u.src[1].arg)]
  for x, n in (u.src, u.src[::-1]) if u.arg is BinaryOps.MUL else ():
    if _is_finite(n): return [(x, n.arg)]
  return []


def _shift(u: UOp, along: UOp, needs: Needs) -> Shift | None:
  """exp(c (x - m)), m the greatest x, or another number where that is not finite; None for any other exponential."""
  terms = linear(u.src[0])
  shifts = [(t, c) for t, c in terms.items() if needs[t]]
  if len(shifts) != 1 or along in shifts[0][0].ranges or shifts[0][1] >= 0: return None
  (by, c), statistic = shifts[0], None
  queue = [by]
  for v in queue:   # a choice between the statistic and finite numbers
    if v.op is Ops.REDUCE and (statistic is None or v is statistic): statistic = v
    elif v.arg is TernaryOps.WHERE: queue += v.src[1:]
    elif not _is_finite(v): return None
  if statistic is None or statistic.arg[0] is not BinaryOps.MAX or needs[by] != {statistic}: return None
  x, of = {t: -k / c for t, k in terms.items() if t is not by}, linear(statistic.src[0])
  if x.keys() != of.keys() or any(not math.isclose(k, of[t], rel_tol=1e-6) for t, k in x.items()): return None
  return Shift(u.arg, -c, by, statistic)


# ---- where elements count

def counted_where(m: Member) -> Iterator[UOp]:
  """Indices that are below 0 for each element that counts for a reduction: it is the identity where a condition is false, as a
  sum of exp(where(j <= i, s, -inf)) is."""
  queue = [(m.inside, identity(m.node.arg[0], m.node.dtype))]   # values, and what each is where nothing counts
  for x, nothing in queue:
    x = uncast_float(x)
    for n in (1, 2) if x.arg is TernaryOps.WHERE else ():
      if x.src[n].op is Ops.CONST and x.src[n].arg == nothing:
        queue.append((x.src[3 - n], nothing))
        yield from [c for c in below_zero(x.src[0], n == 1) if c is not None]
    if nothing != 0: continue
    if x.arg is BinaryOps.MUL: queue += [(s, nothing) for s in x.src]
    elif x.arg is BinaryOps.DIV or x.arg is UnaryOps.NEG: queue.append((x.src[0], nothing))
    elif x.arg in EXPONENTIALS: queue += [(t, -math.inf) for t, c in linear(x.src[0]).items() if c > 0]


def uncast_float(x: UOp) -> UOp:
  """A float before it was rounded or made wider."""
  while _is_float_cast(x): x = x.src[0]
  return x


def below_zero(c: UOp, negated: bool = False) -> Iterator[UOp | None]:
  """Indices that are all below 0 exactly where a condition holds (or does not); None for each part that is of no indices."""
  queue = [c]
  for c in queue:
    if c.arg is TernaryOps.WHERE and [s.arg for s in c.src[1:] if s.op is Ops.CONST] == [True, False]: queue.append(c.src[0])
    elif c.arg is (BinaryOps.OR if negated else BinaryOps.AND): queue += c.src
    elif c.arg is BinaryOps.CMPLT or c.arg is BinaryOps.CMPLE:
      a, b = map(index_of_value, c.src[::-1] if negated else c.src)
      if a is None or b is None: yield None
      else: yield ix.add(ix.sub(a, b), 0 if (c.arg is BinaryOps.CMPLT) is not negated else -1)
    elif c.arg is (BinaryOps.CMPNE if negated else BinaryOps.CMPEQ) and c.src[0].dtype.kind in "iu":
      a, b = map(index_of_value, c.src)
      yield from (None,) if a is None or b is None else (ix.add(ix.sub(a, b), -1), ix.add(ix.sub(b, a), -1))
    else: yield None


def index_of_value(u: UOp) -> UOp | None:
  """An int value that is made of indices as an index; None for any other."""
  found: dict[UOp, UOp | None] = {}
  def quotient(a: UOp, b: UOp) -> UOp | None:
    return ix.fdiv(a, b) if ix.vmin(a) >= 0 and b.op is Ops.CONST and b.arg > 0 else None
  fold = {BinaryOps.ADD: ix.add, BinaryOps.SUB: ix.sub, BinaryOps.MUL: ix.mul, BinaryOps.IDIV: quotient}
  for v in toposort((u,), lambda v: v.dtype is ix.INT):
    parts = [] if v.dtype is ix.INT else [p for s in v.src if (p := found[s]) is not None]
    if v.dtype is ix.INT: found[v] = v
    elif v.dtype.kind not in "iu" or len(parts) < len(v.src): found[v] = None
    elif v.op is Ops.CONST: found[v] = ix.const(v.arg)
    elif v.op is Ops.CAST: found[v] = _fitting(parts[0], v.dtype)
    else: found[v] = _fitting(made, v.dtype) if v.arg in fold and (made := fold[v.arg](*parts)) is not None else None
  return found[u]


def _fitting(u: UOp, dtype: DType) -> UOp | None:
  """An index if a dtype holds it."""
  low, high = ix.bounds(u)
  return u if low >= dtypes.min(dtype) and high <= dtypes.max(dtype) else None


def greatest_along(index: UOp, axes: Iterable[UOp]) -> UOp | None:
  """The greatest value of an index along axes, the same for all of them: a*64 + b - c along b and c below 64 -> a*64 + 63. None
  where it may go up and down."""
  ways = {a: direction(index, a) for a in axes if a in index.ranges}
  ends = {a: ix.sub(ix.node(a.arg[1]), 1) if way == 1 else ix.ZERO for a, way in ways.items() if way}
  return substitute((index,), ends)[0] if len(ends) == len(ways) else None


def direction(index: UOp, axis: UOp) -> int | None:
  """1 where an index nowhere falls along an axis, -1 where it nowhere grows, None where it may do both."""
  found: dict[UOp, int | None] = {}
  for u in toposort((index,)):
    terms, _ = ix.linear(u)
    if axis not in u.ranges: found[u] = 0
    elif u is axis: found[u] = 1
    elif u.arg is BinaryOps.IDIV and axis not in u.src[1].ranges and ix.vmin(u.src[1]) > 0: found[u] = found[u.src[0]]
    elif u in dict(terms) and u.arg is not BinaryOps.MAX and u.arg is not BinaryOps.MIN: found[u] = None
    else:   # that of all parts
      parts = [(s, 1) for s in u.src] if u in dict(terms) else terms
      signs = {d if d is None or by > 0 else -d for t, by in parts for d in (found[t],)} - {0}
      found[u] = signs.pop() if len(signs) == 1 else None
  return found[index]
