"""Index arithmetic: integer UOps kept in one canonical form, with value ranges.

Every sum is ``c0*a0 + c1*a1 + .. + c`` with each atom once and the larger factors first, so equal indices are the same node and
a range proof is interval arithmetic. ``//`` and ``%`` floor. Build indices only with these functions.
"""
from __future__ import annotations

import math
from hashlib import blake2b
from typing import Any, Mapping

from .dtype import dtypes
from .uop import BinaryOps, Ops, TernaryOps, UnaryOps, UOp, memoized

Linear = tuple[tuple[tuple[UOp, int], ...], int]
INT = dtypes.index
TRUE, FALSE = UOp.const(dtypes.bool, True), UOp.const(dtypes.bool, False)


def const(n: int) -> UOp: return UOp.const(INT, n)


def rng(axis: int, size: int) -> UOp:
  """The value of axis number ``axis``, 0 <= value < size; an axis of one element is 0."""
  return const(0) if size == 1 else UOp(Ops.RANGE, INT, (), (axis, size))


def vmin(u: UOp) -> int: return bounds(u)[0]
def vmax(u: UOp) -> int: return bounds(u)[1]


@memoized
def bounds(u: UOp) -> tuple[int, int]:
  """The least and greatest value that an integer or bool node can have."""
  if u.op is Ops.CONST and u.dtype.kind in "iub": return (int(u.arg), int(u.arg))
  if u.op is Ops.RANGE: return (0, u.arg[1] - 1)
  if u.op is Ops.SPECIAL: return (0, u.arg[2] - 1)
  if u.op is Ops.LOOP: return (vmin(u.src[0]), max(vmax(u.src[1]) - 1, vmin(u.src[0])))
  d = u.dtype.scalar()
  top = (0, 1) if d.kind == "b" else (int(dtypes.min(d)), int(dtypes.max(d))) if d.kind in "iu" else (-(1 << 63), 1 << 63)
  if u.op is Ops.CAST and u.src[0].dtype.kind in "iub":
    b = bounds(u.src[0])
    return b if top[0] <= b[0] and b[1] <= top[1] else top
  if u.op is Ops.VECTORIZE:
    bs = [bounds(s) for s in u.src]
    return (min(b[0] for b in bs), max(b[1] for b in bs))
  if u.op is not Ops.ALU or d.kind not in "iu": return top
  fn = u.arg
  if fn is TernaryOps.WHERE:
    a, b = bounds(u.src[1]), bounds(u.src[2])
    return (min(a[0], b[0]), max(a[1], b[1]))
  if not isinstance(fn, BinaryOps): return top
  (al, ah), (bl, bh) = bounds(u.src[0]), bounds(u.src[1])
  if fn is BinaryOps.ADD: out = (al + bl, ah + bh)
  elif fn is BinaryOps.SUB: out = (al - bh, ah - bl)
  elif fn is BinaryOps.MUL:
    c = (al * bl, al * bh, ah * bl, ah * bh)
    out = (min(c), max(c))
  elif fn is BinaryOps.IDIV and bl == bh and bl > 0: out = (al // bl, ah // bl)
  elif fn is BinaryOps.MOD and bl == bh and bl > 0:
    out = (al % bl, ah % bl) if al // bl == ah // bl else (0, bl - 1)
  elif fn is BinaryOps.MAX: out = (max(al, bl), max(ah, bh))
  elif fn is BinaryOps.MIN: out = (min(al, bl), min(ah, bh))
  elif fn is BinaryOps.AND and al >= 0 and bl >= 0: out = (0, min(ah, bh))
  elif fn is BinaryOps.SHR and bl == bh and al >= 0: out = (al >> bl, ah >> bl)
  else: return top
  return out if top[0] <= out[0] and out[1] <= top[1] else top


# ---- the canonical form

def linear(u: UOp) -> Linear:
  """An index as its terms (atom, factor) and constant."""
  found = _sum(u)
  return (((u, 1),), 0) if found is None else found


@memoized
def _sum(u: UOp) -> Linear | None:
  """The terms of a sum; None for an atom, which keeps nothing that refers to itself: nodes go when nobody holds them, without a
  collector."""
  if u.op is Ops.CONST: return ((), u.arg)
  if u.op is not Ops.ALU: return None
  a, b = u.src[0], u.src[-1]
  if u.arg is BinaryOps.ADD:
    (ta, ca), (tb, cb) = linear(a), linear(b)
    return (ta + tb, ca + cb)
  if u.arg is BinaryOps.MUL and b.op is Ops.CONST:
    terms, c = linear(a)
    return (tuple([(t, k * b.arg) for t, k in terms]), c * b.arg)
  return None


_LEVELS = 6   # of a node's sources that its place in an order is seen by; what lies deeper counts by a digest


@memoized
def _keys(u: UOp) -> list[Any]:
  """Sort keys of a node, the first a digest, each of the others with one more level of its sources spelled out."""
  text, below = str(u.arg), [_keys(s) for s in u.src]
  digest = blake2b(repr((u.op.value, text, *(keys[0] for keys in below))).encode(), digest_size=16).hexdigest()
  return [digest, *((u.op.value, text, tuple([keys[i] for keys in below])) for i in range(_LEVELS))]


def _key(u: UOp) -> Any: return _keys(u)[-1]


def _build(terms: Mapping[UOp, int], c: int) -> UOp:
  terms = {t: k for t, k in terms.items() if k}
  for t in list(terms):  # (x//d)*(d*k) + (x%d)*k is x*k
    if t.op is Ops.ALU and t.arg is BinaryOps.MOD and len(terms) > 1:
      k, d = terms[t], t.src[1].arg
      whole, wc = linear(fdiv(t.src[0], d))
      if whole and all(terms.get(w) == f * k * d for w, f in whole):
        for w in (t, *(w for w, _ in whole)): del terms[w]
        return add(_build(terms, c - wc * k * d), mul(t.src[0], k))
  out: UOp | None = None
  for t, k in sorted(terms.items(), key=lambda tk: (-abs(tk[1]), _key(tk[0]))):
    term = t if k == 1 else UOp(Ops.ALU, INT, (t, const(k)), BinaryOps.MUL)
    out = term if out is None else UOp(Ops.ALU, INT, (out, term), BinaryOps.ADD)
  if out is None: return const(c)
  return out if c == 0 else UOp(Ops.ALU, INT, (out, const(c)), BinaryOps.ADD)


def add(a: UOp, b: UOp | int) -> UOp:
  """a + b"""
  if isinstance(b, int): b = const(b)
  (ta, ca), (tb, cb) = linear(a), linear(b)
  if not tb and cb == 0: return a
  if not ta and ca == 0: return b
  terms = dict(ta)
  for t, k in tb: terms[t] = terms.get(t, 0) + k
  return _build(terms, ca + cb)


def sub(a: UOp, b: UOp | int) -> UOp:
  """a - b"""
  return add(a, -b if isinstance(b, int) else mul(b, -1))


def mul(a: UOp, b: UOp | int) -> UOp:
  """a * b; stays a product when both are unknown."""
  if isinstance(b, UOp):
    if b.op is not Ops.CONST:
      if a.op is not Ops.CONST:
        x, y = sorted((a, b), key=_key)
        return UOp(Ops.ALU, INT, (x, y), BinaryOps.MUL)
      a, b = b, a
    b = int(b.arg)
  if b == 1: return a
  terms, c = linear(a)
  return _build({t: k * b for t, k in terms}, c * b)


def _split(a: UOp, d: int) -> tuple[dict[UOp, int], int, dict[UOp, int], int]:
  """a = d * (whole terms + whole constant) + (rest terms + rest constant), 0 <= rest constant < d."""
  terms, c = linear(a)
  whole = {t: k // d for t, k in terms if k % d == 0}
  return whole, c // d, {t: k for t, k in terms if k % d}, c % d


def _span(terms: Mapping[UOp, int], c: int) -> tuple[int, int]:
  lo = hi = c
  for t, k in terms.items():
    l, h = bounds(t)
    lo, hi = (lo + l * k, hi + h * k) if k > 0 else (lo + h * k, hi + l * k)
  return lo, hi


def _lift(lo: int, d: int) -> int:
  """How many ``d`` make a dividend that is ``lo`` at least 0 or more, so that a target's truncating division floors it."""
  return -(lo // d) if -(1 << 24) < lo < 0 else 0


def _factors(rest: Mapping[UOp, int], d: int) -> list[int]:
  """Factors that ``d`` shares with some of the terms, the greatest first."""
  return sorted({g for k in rest.values() if (g := math.gcd(d, k)) > 1}, reverse=True)


def _part(rest: Mapping[UOp, int], c: int, g: int) -> tuple[dict[UOp, int], dict[UOp, int], int, int]:
  """rest + c = g * (upper + c_high) + (lower + c_low)"""
  return {t: k // g for t, k in rest.items() if k % g == 0}, {t: k for t, k in rest.items() if k % g}, c // g, c % g


def least(a: UOp, b: int) -> UOp:
  """min(a, b)"""
  if vmax(a) <= b: return a
  if vmin(a) >= b: return const(b)
  return UOp(Ops.ALU, INT, (a, const(b)), BinaryOps.MIN)


def fdiv(a: UOp, d: int) -> UOp:
  """floor(a / d) for a positive int ``d``."""
  if d == 1: return a
  whole, wc, rest, rc = _split(a, d)
  lo, hi = _span(rest, rc)
  if lo // d == hi // d: return _build(whole, wc + lo // d)
  up = _lift(lo, d)
  wc, rc = wc - up, rc + up * d
  for g in _factors(rest, d):  # (g*A + B) // d == A // (d/g) where 0 <= B < g
    upper, low, rc_high, rc_low = _part(rest, rc, g)
    blo, bhi = _span(low, rc_low)
    if blo >= 0 and bhi < g: return add(_build(whole, wc), fdiv(_build(upper, rc_high), d // g))
  if rc == 0 and len(rest) == 1:
    (t, k), = rest.items()
    if k == 1 and t.op is Ops.ALU and t.arg is BinaryOps.IDIV: return add(_build(whole, wc), fdiv(t.src[0], t.src[1].arg * d))
  q = UOp(Ops.ALU, INT, (_build(rest, rc), const(d)), BinaryOps.IDIV)
  return add(_build(whole, wc), q)


def mod(a: UOp, d: int) -> UOp:
  """a modulo d, 0 <= result < d, for a positive int ``d``."""
  if d == 1: return const(0)
  _, _, rest, rc = _split(a, d)
  lo, hi = _span(rest, rc)
  if lo // d == hi // d: return _build(rest, rc - lo // d * d)
  rc += _lift(lo, d) * d
  for g in _factors(rest, d):  # (g*A + B) % d == g * (A % (d/g)) + B where 0 <= B < g
    upper, lower, rc_high, rc_low = _part(rest, rc, g)
    blo, bhi = _span(lower, rc_low)
    if blo >= 0 and bhi < g: return add(mul(mod(_build(upper, rc_high), d // g), g), _build(lower, rc_low))
  inner = _build(rest, rc)
  if inner.op is Ops.ALU and inner.arg is BinaryOps.MOD and inner.src[1].arg % d == 0: return mod(inner.src[0], d)
  return UOp(Ops.ALU, INT, (inner, const(d)), BinaryOps.MOD)


# ---- conditions

def lt(a: UOp, b: int) -> UOp:
  """a < b, a constant where the ranges prove it."""
  lo, hi = bounds(a)
  if hi < b: return TRUE
  if lo >= b: return FALSE
  terms, c = linear(a)
  if c: a, b = _build(dict(terms), 0), b - c
  return UOp(Ops.ALU, dtypes.bool, (a, const(b)), BinaryOps.CMPLT)


def ge(a: UOp, b: int) -> UOp:
  """a >= b, written b - 1 < a where it is not known."""
  lo, hi = bounds(a)
  if lo >= b: return TRUE
  if hi < b: return FALSE
  terms, c = linear(a)
  if c: a, b = _build(dict(terms), 0), b - c
  return UOp(Ops.ALU, dtypes.bool, (const(b - 1), a), BinaryOps.CMPLT)


def eq(a: UOp, b: int) -> UOp:
  """a == b, a constant where the ranges prove it."""
  lo, hi = bounds(a)
  if lo == hi == b: return TRUE
  if b < lo or b > hi: return FALSE
  return UOp(Ops.ALU, dtypes.bool, (a, const(b)), BinaryOps.CMPEQ)


def conjuncts(c: UOp | None) -> tuple[UOp, ...]:
  """The conditions that all hold when ``c`` holds."""
  out: list[UOp] = []
  stack = [c] if c is not None else []
  while stack:
    c = stack.pop()
    if c.op is Ops.ALU and c.arg is BinaryOps.AND and c.dtype is dtypes.bool: stack.extend(c.src[::-1])
    elif c is not TRUE: out.append(c)
  return tuple(out)


def both(*cs: UOp | None) -> UOp:
  """All of the conditions, each once, in a fixed order; TRUE for none."""
  parts = {p: None for c in cs for p in conjuncts(c)}
  if FALSE in parts: return FALSE
  out: UOp | None = None
  for p in sorted(parts, key=_key):
    out = p if out is None else UOp(Ops.ALU, dtypes.bool, (out, p), BinaryOps.AND)
  return TRUE if out is None else out


# ---- rebuilding

def fold(u: UOp) -> UOp | None:
  """Canonical form of one rebuilt node (its sources already canonical); None where there is nothing to do."""
  if u.op is not Ops.ALU: return None
  a = u.src[0]
  if u.dtype is INT:
    if u.arg is BinaryOps.ADD: return add(a, u.src[1])
    if u.arg is BinaryOps.SUB: return sub(a, u.src[1])
    if u.arg is BinaryOps.MUL: return mul(a, u.src[1])
    if u.arg is BinaryOps.IDIV and u.src[1].op is Ops.CONST: return fdiv(a, u.src[1].arg)
    if u.arg is BinaryOps.MOD and u.src[1].op is Ops.CONST: return mod(a, u.src[1].arg)
    if u.arg is BinaryOps.MIN and u.src[1].op is Ops.CONST: return least(a, u.src[1].arg)
  elif u.dtype is dtypes.bool and a.dtype is INT:
    b = u.src[1]
    if u.arg is BinaryOps.CMPLT and b.op is Ops.CONST: return lt(a, b.arg)
    if u.arg is BinaryOps.CMPLT and a.op is Ops.CONST: return ge(b, a.arg + 1)
    if u.arg is BinaryOps.CMPEQ and b.op is Ops.CONST: return eq(a, b.arg)
  elif u.arg is BinaryOps.AND and u.dtype is dtypes.bool:
    if FALSE in u.src: return FALSE
    if a is TRUE: return u.src[1]
    if u.src[1] is TRUE: return a
  elif u.arg is TernaryOps.WHERE:
    if a is TRUE: return u.src[1]
    if a is FALSE: return u.src[2]
  elif u.arg is UnaryOps.NOT and u.dtype is dtypes.bool:
    if a is TRUE: return FALSE
    if a is FALSE: return TRUE
  return None
