"""Index arithmetic: integer UOps kept in one canonical form, with value ranges.

Every sum is ``c0*a0 + c1*a1 + .. + c`` with each atom once and the larger factors first, so equal indices are the same node and
a range proof is interval arithmetic. An atom is an axis, a run-time size, a quotient, a remainder, the greater or lesser of two,
or a product of these: products of sums are multiplied out, ``(i*16 + j) * N -> i*N*16 + j*N``. ``//`` and ``%`` floor, and what
they divide by is 1 or more. Build indices only with these functions.

First come the parts that indices are made of, and how a node is taken apart into terms and factors; then ranges of values, the
canonical form, products, quotients and conditions."""
from __future__ import annotations

import math
import operator
from collections import Counter
from functools import reduce
from hashlib import blake2b
from itertools import permutations
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Sequence, Union

from ..ir import BinaryOps, Ops, TernaryOps, UOp, dtypes, memoized, memoized_of

__all__ = [
  "Dim", "FALSE", "FAR", "INT", "Linear", "ONE", "Size", "TRUE", "UNKNOWN", "ZERO", "add", "both", "bounds", "cdiv",
  "conjuncts", "const", "count", "divides", "elements", "end_of", "eq", "factors", "fdiv", "ge", "greatest", "has_sizes",
  "hint", "least", "linear", "lt", "may_equal", "minus", "mod", "mul", "node", "number", "of_dims", "of_launch", "of_sizes",
  "over", "plus", "power", "product", "rng", "rounds", "sub", "times", "total", "vmax", "vmin", "weighted_sum", "wide"]

Linear = tuple[tuple[tuple[UOp, int], ...], int]
INT = dtypes.index
ALU, CONST, RANGE, SIZE = Ops.ALU, Ops.CONST, Ops.RANGE, Ops.SIZE
ADD, MUL, IDIV, MOD, MIN, MAX = (BinaryOps[name] for name in ("ADD", "MUL", "IDIV", "MOD", "MIN", "MAX"))
TRUE, FALSE = UOp.const(dtypes.bool, True), UOp.const(dtypes.bool, False)
ZERO, ONE = UOp.const(INT, 0), UOp.const(INT, 1)

FAR = 1 << 63       # a bound that stands for: none is known
UNKNOWN = 1024      # of a size of which nothing is known
_MOST_FACTORS = 16  # of a power that is written as a product
_LEVELS = 6         # of a node's sources that its place in an order is seen by; what lies deeper counts by a digest


class Size(NamedTuple):
  """The ``arg`` of a SIZE and of a DEFINE_VAR, an integer that gets its value at the launch. Bounds are included; None: none."""
  name: str
  lower: int | None = None
  upper: int | None = None
  constexpr: bool = False      # its value is part of the kernel
  meta: bool = False           # the tuner chooses it
  power_of_two: bool = False
  unit: int = 1                # the node is the size divided by this: N that 16 divides is 16 * SIZE(N, unit=16)
  hint: int | None = None      # a value that it may well have, which heuristics go by
  wide: bool = False           # what is computed from it may not fit 32 bits

  @property
  def node(self) -> UOp: return UOp(SIZE, INT, (), self)


DATA = "data"   # arg of a CAST in the linear form: what comes of it is no index
Dim = Union[int, UOp]   # a size: a number, or an index over SIZEs


def const(n: int) -> UOp: return UOp(CONST, INT, (), n if type(n) is int else int(n))


def node(n: Dim) -> UOp: return n if isinstance(n, UOp) else const(n)


def rng(axis: int, size: int | UOp) -> UOp:
  """The value of axis number ``axis``, 0 <= value < size, a number or an expression of sizes; an axis of one element is 0."""
  if isinstance(size, UOp): size = number(size)
  if isinstance(size, UOp): return UOp(RANGE, INT, (size,), (axis, size))
  return const(0) if size == 1 else UOp(RANGE, INT, (), (axis, size))


def number(u: UOp) -> int | UOp: return int(u.arg) if u.op is CONST else u   # an index, or the int that it is


# ---- run-time sizes

def between(fn: BinaryOps, al: int, ah: int, bl: int, bh: int) -> tuple[int, int] | None:
  """The bounds of a function of two values, the first in al..ah and the second in bl..bh; None where that says nothing."""
  if fn is ADD: return al + bl, ah + bh
  if fn is BinaryOps.SUB: return al - bh, ah - bl
  if fn is MAX: return max(al, bl), max(ah, bh)
  if fn is MIN: return min(al, bl), min(ah, bh)
  if fn is BinaryOps.AND and al >= 0 and bl >= 0: return 0, min(ah, bh)
  if fn is BinaryOps.SHR and bl == bh >= 0 and al >= 0: return al >> bl, ah >> bl
  if fn is BinaryOps.POW and al >= 1 and bl >= 0: return al ** min(bl, 64), ah ** bh if bh * ah.bit_length() <= 64 else FAR
  if fn is MOD and bl > 0:
    if bl == bh and al // bl == ah // bl: return al % bl, ah % bl
    return (al, ah) if al >= 0 and ah < bl else (0, bh - 1)
  if fn is MUL: corners = al * bl, al * bh, ah * bl, ah * bh
  elif fn is IDIV and bl > 0: corners = al // bl, al // bh, ah // bl, ah // bh
  else: return None
  return min(corners), max(corners)


@memoized
def of_sizes(u: UOp) -> bool:
  """Whether an index is made of run-time sizes and numbers alone: known to the host at the launch."""
  return u.op in (SIZE, CONST) or u.op is ALU and all(map(of_sizes, u.src))


@memoized
def hint(u: UOp) -> int:
  """About what an expression of sizes is: heuristics go by it. Axes count as 0."""
  if u.op is CONST: return 0 if u.dtype.kind == "f" else int(u.arg)
  if u.op is SIZE or u.op is Ops.DEFINE_VAR:
    size: Size = u.arg
    if size.hint is not None: return size.hint
    return max(1 if size.lower is None else size.lower, UNKNOWN if size.upper is None else min(size.upper, UNKNOWN))
  if u.op is not ALU or u.dtype is not INT: return 0
  return (between(u.arg, *[hint(s) for s in u.src for _ in (0, 1)]) or (0, 0))[0]


def count(n: int | UOp) -> int:
  """A number, or about what an expression of sizes is."""
  return n if isinstance(n, int) else max(hint(n), 0)


@memoized
def has_sizes(u: UOp) -> bool:
  """Whether run-time sizes stand in an index or a condition: as values, or as the ends of axes. Data that an index is made of,
  wherever it is read, has the bounds of its dtype."""
  if u.op is SIZE: return True
  if u.op is Ops.CAST and u.dtype is INT: return False
  if u.op is RANGE or u.op is Ops.SPECIAL: return not isinstance(u.arg[-1], int)
  return any(map(has_sizes, u.src))


@memoized
def of_launch(u: UOp) -> bool:
  """Whether a node is index arithmetic upon numbers of the launch alone: sizes, positions and what loops count. A CAST that makes
  data of them ends it: sums of data wrap."""
  if u.op in (CONST, Ops.DEFINE_VAR, Ops.SPECIAL, RANGE): return True
  if u.op is Ops.CAST and (u.arg is DATA or u.dtype.kind != "i" or u.dtype is not INT and u.src[0].dtype is INT): return False
  return u.op in (Ops.LOOP, ALU, Ops.CAST) and all(map(of_launch, u.src)) and any([s.op is not CONST for s in u.src])


@memoized
def wide(u: UOp) -> bool:
  """Whether what is computed from the sizes in a node may not fit 32 bits."""
  if u.op is SIZE: return bool(u.arg.wide)
  if u.op is Ops.SPECIAL and isinstance(u.arg[-1], UOp): return wide(u.arg[-1])
  return any(map(wide, u.src))


# ---- terms and factors

def linear(u: UOp) -> Linear:
  """An index as its terms (atom, factor) and constant."""
  found = _sum(u)
  return (((u, 1),), 0) if found is None else found


@memoized
def _sum(u: UOp) -> Linear | None:
  """The terms of a sum; None for an atom, which keeps nothing that refers to itself: nodes go without a collector."""
  if u.op is CONST: return (), u.arg
  if u.op is not ALU: return None
  a, b = u.src[0], u.src[-1]
  if u.arg is ADD:
    (ta, ca), (tb, cb) = linear(a), linear(b)
    return ta + tb, ca + cb
  if u.arg is MUL and b.op is CONST:
    terms, c = linear(a)
    return tuple([(t, k * b.arg) for t, k in terms]), c * b.arg
  return None


@memoized
def _keys(u: UOp) -> list[Any]:
  """Sort keys of a node, the first a digest, each of the others with one more level of its sources spelled out."""
  op, text, below = u.op._value_, str(u.arg), [_keys(s) for s in u.src]   # .value is a call of Python code
  digest = blake2b(repr((op, text, *[keys[0] for keys in below])).encode(), digest_size=16).hexdigest()
  return [digest, *[(op, text, tuple([keys[i] for keys in below])) for i in range(_LEVELS)]]


def key_of(u: UOp) -> Any: return _keys(u)[-1]   # what nodes are put in a fixed order by


def factors(t: UOp | None) -> tuple[UOp, ...]:
  """The atoms that a term without its number is a product of; None is the constant's."""
  out: list[UOp] = []
  while t is not None and t.arg is MUL:
    t, last = t.src
    out.append(last)
  return () if t is None else (t, *reversed(out))


def conjuncts(c: UOp) -> tuple[UOp, ...]:
  """The conditions that all hold when ``c`` holds."""
  out: list[UOp] = []
  stack = [c]
  while stack:
    c = stack.pop()
    if c.arg is BinaryOps.AND and c.dtype is dtypes.bool: stack.extend(c.src[::-1])
    elif c is not TRUE: out.append(c)
  return tuple(out)


# ---- numbers and expressions of sizes

def elements(shape: Iterable[Dim]) -> int: return math.prod(map(count, shape))


def may_equal(a: Dim, b: Dim) -> bool:
  """Whether two sizes may be the same number."""
  return a == b or not (isinstance(a, int) and isinstance(b, int)) and eq(sub(node(a), b), 0) is not FALSE


def divides(n: Dim, size: Dim) -> bool:
  """Whether ``n`` is known to divide a size."""
  return size % n == 0 if isinstance(size, int) and isinstance(n, int) else mod(node(size), n) is ZERO


def vmin(u: UOp) -> int: return bounds(u)[0]
def vmax(u: UOp) -> int: return bounds(u)[1]


def _parts(u: UOp) -> Sequence[UOp]:
  """What the bounds of a node are made of: of a sum its terms, not the sums of the first of them; else its sources."""
  return u.src if u.dtype is not INT or u.op is not ALU or (found := _sum(u)) is None else [t for t, _ in found[0]]


@memoized_of(_parts)
def bounds(u: UOp) -> tuple[int, int]:
  """The least and greatest value that an integer or bool node can have; -FAR and FAR where none is known."""
  out = _interval(u)
  if u.op is not ALU or u.dtype is not INT or out[0] == out[1] or not has_sizes(u): return out
  (terms, c), found = linear(u), [*out]
  for upper in (False, True):
    ends = [(end_of(t, upper == (k > 0)), t, k) for t, k in terms]
    if known := [(end, k) for end, _, k in ends if end is not None]:   # the others count by their bounds
      found[upper] = _polynomial(weighted_sum(known))[upper] + _span([(t, k) for end, t, k in ends if end is None], c)[upper]
  return max(out[0], found[0]), min(out[1], found[1])


def _interval(u: UOp) -> tuple[int, int]:
  """``bounds`` from the bounds of the sources."""
  op, arg, src = u.op, u.arg, u.src
  if op is CONST and u.dtype.kind in "iub": return int(arg), int(arg)
  if op is RANGE or op is Ops.SPECIAL:
    size = arg[-1]
    return (0, size - 1) if isinstance(size, int) else (0, min(max(vmax(size) - 1, 0), FAR))
  if op is SIZE or op is Ops.DEFINE_VAR:
    return -FAR if arg.lower is None else arg.lower, FAR if arg.upper is None else arg.upper
  if op is Ops.LOOP: return vmin(src[0]), max(vmax(src[1]) - 1, vmin(src[0]))
  d = u.dtype.scalar()
  top = (0, 1) if d.kind == "b" else (int(dtypes.min(d)), int(dtypes.max(d))) if d.kind in "iu" and d is not INT else (-FAR, FAR)
  if op is Ops.CAST and src[0].dtype.kind in "iub":
    b = bounds(src[0])
    return b if top[0] <= b[0] and b[1] <= top[1] else top
  if op is Ops.VECTORIZE:
    bs = [bounds(s) for s in src]
    return min(b[0] for b in bs), max(b[1] for b in bs)
  if op is not ALU or d.kind not in "iu": return top
  if d is INT and (found := _sum(u)) is not None:
    lo, hi = _span(*found)
    return max(lo, -FAR), min(hi, FAR)
  if arg is TernaryOps.WHERE:
    a, b = bounds(src[1]), bounds(src[2])
    return min(a[0], b[0]), max(a[1], b[1])
  if not isinstance(arg, BinaryOps): return top
  out = between(arg, *bounds(src[0]), *bounds(src[1]))
  if out is None: return top
  if d is INT: return max(out[0], -FAR), min(out[1], FAR)
  if top[0] <= out[0] and out[1] <= top[1]: return out
  # what is made of the launch's numbers fits its dtype: see widths.py
  return (max(out[0], top[0]), min(out[1], top[1])) if of_launch(u) else top


def end_of(u: UOp, upper: bool) -> UOp | None:
  """An expression of sizes that a node is nowhere above (``upper``), or below: each axis at one of its ends, as the sign of what
  it is multiplied by says. a0*64 + a1 with a0 < N//64 and a1 < 64 -> N//64*64 - 1. None where the signs are not known."""
  return _ends(u)[upper]


@memoized_of(_parts)
def _ends(u: UOp) -> tuple[UOp | None, ...]:
  arg = u.arg
  if u.dtype is not INT: return None, None
  if of_sizes(u): return u, u
  if u.op is RANGE or u.op is Ops.SPECIAL:   # of no values anything may be said
    return ZERO, const(size - 1) if isinstance(size := arg[-1], int) else sub(size, 1)
  if u.op is not ALU: return None, None
  if (found := _sum(u)) is not None:
    ends = [[(e, k) for t, k in found[0] if (e := _ends(t)[upper == (k > 0)]) is not None] for upper in (False, True)]
    return tuple([weighted_sum([*each, (ONE, found[1])]) if len(each) == len(found[0]) else None for each in ends])
  b = u.src[-1]
  fn = _GROWING.get(arg)
  pairs: Iterable[tuple[UOp | None, UOp | None]] = zip(_ends(u.src[0]), _ends(b))
  if of_sizes(b) and arg is MOD: return ZERO, sub(b, 1)
  if of_sizes(b) and arg is IDIV: fn, pairs = fdiv, [(a, b) for a, _ in pairs]
  elif arg is MUL and vmin(u.src[0]) >= 0 and vmin(b) >= 0: fn = mul
  return tuple([None if fn is None or a is None or b is None else fn(a, b) for a, b in pairs])


def _polynomial(u: UOp) -> tuple[int, int]:
  """Bounds of an expression of sizes: with N = 1 + N' for 1 or more, a sum without negative terms is least where N' is 0."""
  lo, hi = _interval(u)
  terms, c = linear(u)
  least: dict[UOp, int] = {}
  for f in {f for t, _ in terms for f in factors(t)}:
    least[f] = (_interval if f is u else bounds)(f)[0]
    if least[f] <= -FAR: return lo, hi
  number_of = {f: i for i, f in enumerate(least)}
  whole: dict[tuple[int, ...], int] = {}   # by the numbers of its factors, each less its least, what a product counts
  for t, k in terms:
    product: dict[tuple[int, ...], int] = {(): k}
    for f in factors(t):
      i, n = number_of[f], least[f]
      wider = {m: j * n for m, j in product.items()} if n else {}
      for m, j in product.items():
        more = tuple(sorted((*m, i)))
        wider[more] = wider.get(more, 0) + j
      product = wider
    for m, j in product.items(): whole[m] = whole.get(m, 0) + j
  c += whole.pop((), 0)
  if all(k >= 0 for k in whole.values()): lo = max(lo, c)
  if all(k <= 0 for k in whole.values()): hi = min(hi, c)
  return lo, hi


# ---- the canonical form

def _build(terms: Mapping[UOp, int], c: int) -> UOp:
  terms = {t: k for t, k in terms.items() if k}
  if len(terms) > 1:
    for t in terms:
      if t.op is ALU and t.arg in _DIVISIONS and (joined := _joined(terms, c, t)) is not None: return joined
  out: UOp | None = None
  for t, k in sorted(terms.items(), key=lambda tk: (-abs(tk[1]), key_of(tk[0]))):
    term = t if k == 1 else UOp(ALU, INT, (t, const(k)), MUL)
    out = term if out is None else UOp(ALU, INT, (out, term), ADD)
  if out is None: return const(c)
  return out if c == 0 else UOp(ALU, INT, (out, const(c)), ADD)


_DIVISIONS = MOD, IDIV, MUL


# What a term with a quotient or remainder joins with: (x//d)*d*r and (x%d)*r are x*r, x*r and -(x//d)*d*r are (x%d)*r. The term's
# number is a multiple of the first; the others are theirs times the quotient; x; d where the result is a remainder; r
_Pair = tuple[int, Linear, UOp, UOp | None, UOp]


@memoized
def _pairs(t: UOp) -> tuple[_Pair, ...]:
  """What a term may join with, whatever its number: of what it is made of, or quotients of that, never of itself."""
  if t.dtype is not INT: return ()
  out: list[_Pair] = []
  atoms = factors(t)
  for i, f in enumerate(atoms):
    if f.arg not in _DIVISIONS[:2]: continue
    x, d = f.src
    rest = _monomial((*atoms[:i], *atoms[i + 1:]))
    if f.arg is MOD:
      out.append((1, linear(mul(mul(fdiv(x, d), d), rest)), x, None, rest))
      continue
    if n := _number(d):
      out.append((n, linear(mul(mod(x, n), rest)), x, None, rest))
      if x.arg is MOD and (m := _number(x.src[1])) and m % n == 0:   # y//m*(m//n) + y%m//n is y//n
        out.append((1, linear(mul(mul(fdiv(x.src[0], m), m // n), rest)), fdiv(x.src[0], n), None, rest))
    by, more = _leading(d)
    if _monomial(by, more) is not d or (left := _over(rest, Counter(by))) is None: continue   # nothing that d divides
    rest = _monomial(left)
    out.append((-more, linear(mul(x, rest)), x, d, rest))
  return tuple(out)


def _joined(terms: Mapping[UOp, int], c: int, t: UOp) -> UOp | None:
  """A sum with a term and what it joins with: (x//d)*(d*k) + (x%d)*k -> x*k, and x*k - (x//d)*(d*k) -> (x%d)*k."""
  for every, (whole, wc), x, d, rest in _pairs(t):
    k, odd = divmod(terms[t], every)
    if odd or not whole or not all([w is not t and terms.get(w) == n * k for w, n in whole]): continue
    gone = {t, *(w for w, _ in whole)}
    gives = mul(mul(x if d is None else UOp(ALU, INT, (x, d), MOD), rest), k)
    return add(_build({w: n for w, n in terms.items() if w not in gone}, c - wc * k), gives)
  return None


def add(a: UOp, b: UOp | int) -> UOp:
  """a + b"""
  if isinstance(b, UOp) and a.op is CONST: a, b = b, a
  if isinstance(b, int) or b.op is CONST:   # the same terms, so there is nothing to put in order, nor to join
    n = b if isinstance(b, int) else b.arg
    if a.op is CONST: return const(a.arg + n)
    if n and a.arg is ADD and a.src[1].op is CONST: a, n = a.src[0], a.src[1].arg + n
    return a if n == 0 else UOp(ALU, INT, (a, const(n)), ADD)
  (ta, ca), (tb, cb) = linear(a), linear(b)
  terms = dict(ta)
  for t, k in tb: terms[t] = terms.get(t, 0) + k
  return _build(terms, ca + cb)


def weighted_sum(parts: Iterable[tuple[UOp, Dim]]) -> UOp:
  """The sum of indices, each times a size."""
  terms: dict[UOp, int] = {}
  c, joins = 0, False
  for x, n in parts:
    if isinstance(n, UOp): x, n = mul(x, n), 1
    found, constant = linear(x)
    for t, k in found: terms[t] = terms.get(t, 0) + k * n
    c += constant * n
    joins = joins or any([t.arg in _DIVISIONS for t, _ in found])
    if joins:   # with those before it, not with what is left of them after the next
      joined, c = linear(_build(terms, c))
      terms = dict(joined)
  return _build(terms, c)


def sub(a: UOp, b: UOp | int) -> UOp: return add(a, -b if isinstance(b, int) else mul(b, -1))


def mul(a: UOp, b: UOp | int) -> UOp:
  """a * b, multiplied out."""
  if isinstance(b, int): b = const(b)
  if a.op is CONST: a, b = b, a
  terms, c = linear(a)
  if b.op is CONST: return a if b.arg == 1 else _build({t: k * b.arg for t, k in terms}, c * b.arg)
  others, cb = linear(b)
  out: dict[UOp, int] = {}
  for t, k in (*terms, (None, c)):
    for s, j in (*others, (None, cb)):
      product = _monomial((*factors(t), *factors(s)))
      out[product] = out.get(product, 0) + k * j
  return _build(out, out.pop(ONE))


def power(a: UOp, n: UOp) -> UOp:
  """a**n, n 0 or more; multiplied out where n is a number and not great."""
  if n.op is CONST and a.op is CONST: return const(a.arg ** n.arg)
  if n.op is not CONST or n.arg > _MOST_FACTORS: return UOp(ALU, INT, (a, n), BinaryOps.POW)
  return reduce(mul, (a,) * n.arg, ONE)


# ---- products

def _monomial(atoms: tuple[UOp, ...], k: int = 1) -> UOp:
  """The product of atoms, in a fixed order, and a number."""
  if not atoms: return const(k)
  out, *others = sorted(atoms, key=key_of)
  for f in others: out = UOp(ALU, INT, (out, f), MUL)
  return out if k == 1 else _build({out: k}, 0)


def _order(t: UOp | None) -> tuple[int, list[Any]]:
  """What terms are led by: the number of factors. Which of two is first stays so when both are multiplied by an atom."""
  atoms = factors(t)
  return len(atoms), list(map(key_of, atoms))


def _leading(u: UOp) -> tuple[tuple[UOp, ...], int]:
  """The term with the most factors, and its number."""
  terms, c = linear(u)
  if not terms: return (), c
  t, k = max(terms, key=lambda tk: _order(tk[0])) if len(terms) > 1 else terms[0]
  return factors(t), k


def _over(t: UOp | None, by: Counter[UOp]) -> tuple[UOp, ...] | None:
  """The atoms of a term without those of another; None where it does not have them."""
  over = Counter(factors(t))
  over.subtract(by)
  return None if min(over.values(), default=0) < 0 else tuple(over.elements())


def _long_division(a: UOp, d: UOp) -> tuple[UOp, UOp]:
  """a -> (whole, rest), a == whole * d + rest, as polynomials are divided: the first term of ``d`` divides none of the rest's."""
  first, of = _leading(d)
  by, (terms, c) = Counter(first), linear(a)
  rest, (of_d, cd) = {**dict(terms), ONE: c}, linear(d)
  whole: dict[UOp, int] = {}
  todo = {t: over for t in rest if (over := _over(t if t is not ONE else None, by)) is not None}   # what it may divide
  while todo:
    t = max(todo, key=lambda t: _order(t if t is not ONE else None))
    over, k = todo.pop(t), rest[t]
    if not (times := abs(k) // abs(of) * (1 if (k < 0) == (of < 0) else -1)): continue
    whole[_monomial(over)] = times
    for s, j in (*of_d, (None, cd)):
      part = _monomial((*over, *factors(s)))
      if part not in rest and (left := _over(part if part is not ONE else None, by)) is not None: todo[part] = left
      rest[part] = rest.get(part, 0) - times * j
  return tuple([_build(u, u.pop(ONE, 0)) for u in (whole, rest)])   # type: ignore[return-value]


# ---- quotients and remainders

def _split(a: UOp, d: int) -> tuple[dict[UOp, int], int, dict[UOp, int], int]:
  """a = d * (whole terms + whole constant) + (rest terms + rest constant), 0 <= rest constant < d."""
  terms, c = linear(a)
  whole = {t: k // d if k > 0 else -(-k // d) for t, k in terms if not -d < k < d}
  return whole, c // d, {t: r for t, k in terms if (r := k - d * whole.get(t, 0))}, c % d


def _span(terms: Iterable[tuple[UOp, int]], c: int) -> tuple[int, int]:
  """The bounds of a sum of terms and a number."""
  lo = hi = c
  for t, k in terms:
    l, h = bounds(t)
    lo, hi = (lo + l * k, hi + h * k) if k > 0 else (lo + h * k, hi + l * k)
  return lo, hi


def _lift(lo: int, d: int) -> int:
  """How many ``d`` make a dividend that is ``lo`` at least 0 or more, so that a target's truncating division floors it."""
  return -(lo // d) if -(1 << 24) < lo < 0 else 0


def _divisors(rest: Mapping[UOp, int], d: int) -> list[int]:
  """Factors that ``d`` shares with some of the terms, the greatest first."""
  return sorted({g for k in rest.values() if (g := math.gcd(d, k)) > 1}, reverse=True)


def _part(rest: Mapping[UOp, int], c: int, g: int) -> tuple[dict[UOp, int], dict[UOp, int], int, int]:
  """rest + c = g * (upper + c_high) + (lower + c_low)"""
  return {t: k // g for t, k in rest.items() if k % g == 0}, {t: k for t, k in rest.items() if k % g}, c // g, c % g


def _number(d: UOp | int) -> int:
  """What is divided by, where it is a number; else 0."""
  return d if isinstance(d, int) else d.arg if d.op is CONST else 0


def fdiv(a: UOp, by: UOp | int) -> UOp:
  """floor(a / by), ``by`` 1 or more."""
  d = _number(by)
  if d == 1: return a
  if not d: return _fdiv_size(a, by)  # type: ignore[arg-type]
  whole, wc, rest, rc = _split(a, d)
  lo, hi = _span(rest.items(), rc)
  if lo // d == hi // d: return _build(whole, wc + lo // d)
  if _leads_down(rest): return sub(_build(whole, wc), fdiv(_build({t: -k for t, k in rest.items()}, d - 1 - rc), d))
  up = _lift(lo, d)
  wc, rc = wc - up, rc + up * d
  for g in _divisors(rest, d):  # (g*A + B) // d == A // (d/g) where 0 <= B < g
    upper, low, rc_high, rc_low = _part(rest, rc, g)
    blo, bhi = _span(low.items(), rc_low)
    if blo >= 0 and bhi < g: return add(_build(whole, wc), fdiv(_build(upper, rc_high), d // g))
  for t, k in rest.items():  # (A + x // n) // d == (A*n + x) // (n*d)
    if k == 1 and t.arg is IDIV and (len(rest) == 1 and rc == 0 or _number(t.src[1])):
      return add(_build(whole, wc), fdiv(add(mul(_without(t, rest, rc), t.src[1]), t.src[0]), mul(t.src[1], d)))
  return add(_build(whole, wc), UOp(ALU, INT, (_build(rest, rc), const(d)), IDIV))


def _without(t: UOp, terms: Mapping[UOp, int], c: int) -> UOp: return _build({s: k for s, k in terms.items() if s is not t}, c)


def _leads_down(rest: Mapping[UOp, int]) -> bool:
  """Whether the first term is negative: -a // d is written -((a + d - 1) // d), and -a % d is d - 1 - (a - 1) % d."""
  if all(k > 0 for k in rest.values()): return False
  return min(rest.items(), key=lambda tk: (-abs(tk[1]), key_of(tk[0])))[1] < 0


def _shared(a: UOp, d: UOp) -> tuple[UOp, UOp, UOp]:
  """a, d -> (a / g, d / g, g): without the numbers and atoms that all terms of both have."""
  found: list[tuple[UOp | None, int]] = []
  for terms, c in (linear(a), linear(d)): found += [*terms, *([(None, c)] if c else [])]
  number, atoms = math.gcd(*(k for _, k in found)), Counter(factors(found[0][0]))
  for t, _ in found[1:]: atoms &= Counter(factors(t))
  g = _monomial(tuple(atoms.elements()), number)
  return (a, d, ONE) if g is ONE else (_long_division(a, g)[0], _long_division(d, g)[0], g)


def _known_quotient(a: UOp, d: UOp) -> int | None:
  """floor(a / d) where the bounds show it to be 0 or -1."""
  (lo, hi), least_d = bounds(a), max(vmin(d), 1)
  if 0 <= lo and (hi < least_d or vmax(sub(a, d)) < 0): return 0
  if hi < 0 and (-least_d <= lo or vmin(add(a, d)) >= 0): return -1
  return None


def _fdiv_size(a: UOp, d: UOp) -> UOp:
  """floor(a / d) for a ``d`` that is no number."""
  whole, rest = _long_division(a, d)
  if (known := _known_quotient(rest, d)) is not None: return add(whole, known)
  rest, d, _ = _shared(rest, d)
  if _number(d): return add(whole, fdiv(rest, d))
  terms, c = linear(rest)
  if terms and _leads_down(dict(terms)) or not terms and c < 0: return sub(whole, _fdiv_size(sub(sub(d, rest), 1), d))
  if rest.arg is IDIV: return add(whole, fdiv(rest.src[0], mul(rest.src[1], d)))
  return add(whole, UOp(ALU, INT, (rest, d), IDIV))


def mod(a: UOp, by: UOp | int) -> UOp:
  """a modulo by, 0 <= result < by, ``by`` 1 or more."""
  d = _number(by)
  if d == 1: return ZERO
  if not d: return _mod_size(a, by)  # type: ignore[arg-type]
  _, _, rest, rc = _split(a, d)
  lo, hi = _span(rest.items(), rc)
  if lo // d == hi // d: return _build(rest, rc - lo // d * d)
  if _leads_down(rest): return sub(const(d - 1), mod(_build({t: -k for t, k in rest.items()}, -1 - rc), d))
  rc += _lift(lo, d) * d
  for g in _divisors(rest, d):  # (g*A + B) % d == g * (A % (d/g)) + B where 0 <= B < g
    upper, lower, rc_high, rc_low = _part(rest, rc, g)
    blo, bhi = _span(lower.items(), rc_low)
    if blo >= 0 and bhi < g: return add(mul(mod(_build(upper, rc_high), d // g), g), _build(lower, rc_low))
  for t, k in rest.items():
    if t.op is not ALU or not (n := _number(t.src[-1])): continue
    if t.arg is MOD and n * k % d == 0:  # (A + x % n * k) % d == (A + x*k) % d
      return mod(add(_without(t, rest, rc), mul(t.src[0], k)), d)
    if t.arg is IDIV and k == 1 and (others := _without(t, rest, rc)).ranges <= t.ranges:
      return fdiv(mod(add(mul(others, n), t.src[0]), n * d), n)  # (A + x // n) % d, where A has no axes of its own
  return UOp(ALU, INT, (_build(rest, rc), const(d)), MOD)


def _mod_size(a: UOp, d: UOp) -> UOp:
  """a modulo d for a ``d`` that is no number."""
  rest = _long_division(a, d)[1]
  if (known := _known_quotient(rest, d)) is not None: return sub(rest, mul(d, known))
  rest, d, times = _shared(rest, d)
  return mul(mod(rest, d) if _number(d) else UOp(ALU, INT, (rest, d), MOD), times)


def cdiv(a: UOp, by: UOp | int) -> UOp: return fdiv(add(a, by - 1 if isinstance(by, int) else sub(by, 1)), by)


def _chosen(fn: BinaryOps, a: UOp, b: UOp | int) -> UOp:
  if isinstance(b, int): b = const(b)
  lo, hi = bounds(a if b is ZERO else sub(a, b))
  if lo >= 0 or hi <= 0: return a if (lo >= 0) == (fn is MAX) else b
  return UOp(ALU, INT, tuple(sorted((a, b), key=lambda u: (u.op is CONST, key_of(u)))), fn)


def least(a: UOp, b: UOp | int) -> UOp: return _chosen(MIN, a, b)


def greatest(a: UOp, b: UOp | int) -> UOp: return _chosen(MAX, a, b)


_GROWING: dict[BinaryOps, Callable[[UOp, UOp], UOp]] = {   # greater where what they are of is greater
  MIN: least, MAX: greatest}


# ---- arithmetic of sizes: what is a number stays one

def of_dims(of_numbers: Callable[[int, int], int], fn: Callable[[UOp, UOp], UOp]) -> Callable[[Dim, Dim], Dim]:
  """A function of two sizes, from that of numbers and that of nodes."""
  def of(a: Dim, b: Dim) -> Dim:
    return of_numbers(a, b) if isinstance(a, int) and isinstance(b, int) else number(fn(node(a), node(b)))
  return of


plus, minus, times, over = map(of_dims, (operator.add, operator.sub, operator.mul, operator.floordiv), (add, sub, mul, fdiv))
rounds = of_dims(lambda a, b: -(-a // b), cdiv)


def product(ns: Iterable[Dim]) -> Dim: return reduce(times, ns, number(ONE))
def total(ns: Iterable[Dim]) -> Dim: return reduce(plus, ns, number(ZERO))


# ---- conditions

def lt(a: UOp, b: int | UOp) -> UOp:
  """a < b, a constant where the ranges prove it. Terms of sizes stand on the right."""
  if isinstance(b, UOp): a, b = sub(a, b), 0
  lo, hi = bounds(a)
  if hi < b: return TRUE
  if lo >= b: return FALSE
  if has_sizes(a) and (found := _lt_sizes(a, b)) is not None: return found
  terms, c = linear(a)
  if c: a, b = _build(dict(terms), 0), b - c
  return UOp(ALU, dtypes.bool, (a, const(b)), BinaryOps.CMPLT)


def _lt_sizes(a: UOp, b: int) -> UOp | None:
  """a < b where ``a`` has terms of sizes and others: i + 1 - N < 0 -> i < N - 1, and N - i < 1 -> N - 1 < i; without quotients:
  i < cdiv(N, 64) -> 64*i < N. None for any other."""
  terms, c = linear(a)
  known, open_ = {t: k for t, k in terms if of_sizes(t)}, {t: k for t, k in terms if not of_sizes(t)}
  if not known or not open_: return None
  down = _leads_down(open_) and all(k < 0 for k in open_.values())
  rest = _build({t: -k if down else k for t, k in open_.items()}, 0)
  end = _build({t: k if down else -k for t, k in known.items()}, 0)
  if end.arg is IDIV and end.src[1].op is CONST:
    x, n = end.src[0], end.src[1].arg
    return lt(x, mul(add(rest, b - c), n)) if down else lt(mul(add(rest, c - b), n), sub(x, n - 1))
  return UOp(ALU, dtypes.bool, ((add(end, c - b), rest) if down else (rest, add(end, b - c))), BinaryOps.CMPLT)


def ge(a: UOp, b: int | UOp) -> UOp:
  """a >= b, written b - 1 < a where it is not known."""
  if isinstance(b, UOp): a, b = sub(a, b), 0
  lo, hi = bounds(a)
  if lo >= b: return TRUE
  if hi < b: return FALSE
  if has_sizes(a) and (found := _lt_sizes(sub(const(b - 1), a), 0)) is not None: return found
  terms, c = linear(a)
  if c: a, b = _build(dict(terms), 0), b - c
  return UOp(ALU, dtypes.bool, (const(b - 1), a), BinaryOps.CMPLT)


def eq(a: UOp, b: int | UOp) -> UOp:
  """a == b, a constant where the ranges prove it."""
  if isinstance(b, UOp): a, b = sub(a, b), 0
  lo, hi = bounds(a)
  if lo == hi == b: return TRUE
  if not lo <= b <= hi: return FALSE
  return UOp(ALU, dtypes.bool, (a, const(b)), BinaryOps.CMPEQ)


def both(*cs: UOp) -> UOp:
  """All of the conditions, each once, in a fixed order; TRUE for none. Of i < N and i + 1 < N the second is left, of
  i < 3 and i < 4 the first."""
  parts = {p: None for c in cs for p in conjuncts(c)}
  if FALSE in parts: return FALSE
  ends = [p for p in parts if p.arg is BinaryOps.CMPLT and has_sizes(p.src[1])] if len(parts) > 1 else []
  for p, by in permutations(ends, 2):
    if p in parts and by in parts and vmin(sub(sub(*by.src), sub(*p.src))) >= 0: del parts[p]
  for p, by in permutations([p for p in parts if p.arg is BinaryOps.CMPLT and p.src[1].op is CONST], 2):
    if p in parts and by in parts and p.src[0] is by.src[0] and by.src[1].arg < p.src[1].arg: del parts[p]
  out, *others = sorted(parts, key=key_of) or [TRUE]
  for p in others: out = UOp(ALU, dtypes.bool, (out, p), BinaryOps.AND)
  return out
