"""Expressions over sizes as text: ``cdiv(M, BLOCK) * 2 - 1``."""
from __future__ import annotations

import math
from collections import Counter
from functools import reduce
from typing import Callable, Hashable, Mapping, Sequence, TypeVar

from ..ir import ATOM, COMPARE, PRODUCT, PYTHON, SUM, UNARY, BinaryOps, Ops, Text, UOp, infix, inside, memoized
from . import algebra as ix

_T = TypeVar("_T", bound=Hashable)
_R = TypeVar("_R")


@memoized
def without_options(u: UOp) -> UOp:
  """The expression of names of which nothing else is known."""
  return ix.Size(u.arg.name).node if u.op is Ops.SIZE else u.replace(tuple(map(without_options, u.src)))


def sources_first(e: _T, operands: Callable[[_T], Sequence[_T]]) -> dict[_T, Sequence[_T]]:
  """Every part of an expression with its operands, operands first: expressions are deeper than Python's stack."""
  found: dict[_T, Sequence[_T]] = {}
  out: dict[_T, Sequence[_T]] = {}
  stack = [e]
  while stack:
    n = stack[-1]
    if n not in found:
      found[n] = operands(n)
      stack.extend(o for o in reversed(found[n]) if o not in found)
    else: out.setdefault(stack.pop(), found[n])
  return out


def from_parts(e: _T, operands: Callable[[_T], Sequence[_T]], make: Callable[[_T, Mapping[_T, _R]], _R]) -> _R:
  """What is made of an expression from what is made of its operands."""
  made: dict[_T, _R] = {}
  for n in sources_first(e, operands): made[n] = make(n, made)
  return made[e]


@memoized
def size_nodes(u: UOp) -> frozenset[UOp]:
  """The SIZE nodes beneath an expression."""
  if u.op is Ops.SIZE: return frozenset((u,))
  found = {size_nodes(s) for s in u.src}
  return next(iter(found)) if len(found) == 1 else frozenset().union(*found)


# a term of a sum as it is written: its number, times the product of factors or, where that is true, times ``cdiv`` of these two
_Term = tuple[int, tuple[UOp, ...], bool]


def _terms(u: UOp) -> tuple[list[_Term], int]:
  """A sum's terms in the order in which they are written, and its constant: most factors first, then by name."""
  terms, c = ix.linear(u)
  out: list[_Term] = []
  found = [(tuple(sorted(ix.factors(t), key=lambda f: (f.op is not Ops.SIZE, _first_name(f)))), k) for t, k in terms]
  for factors, k in sorted(found, key=lambda fk: (-len(fk[0]), [_first_name(f) for f in fk[0]])):
    up = _rounds_up(factors[0], c, k) if len(factors) == 1 else None
    if up is not None and factors[0].src[1].op is not Ops.CONST: c -= k
    out.append((k, factors, False) if up is None else (k, (up, factors[0].src[1]), True))
  return out, c


def _first_name(u: UOp) -> tuple[str, str]:
  return min((s.arg.name for s in size_nodes(u)), default=""), "" if u.op is Ops.SIZE else str(u.arg)


def _rounds_up(u: UOp, c: int, k: int) -> UOp | None:
  """What is divided in ``cdiv(.., d)``: (x + d - 1) // d for a number d; (x - 1) // d + 1 for a size d. Else None."""
  if u.arg is not BinaryOps.IDIV: return None
  x, d = u.src
  below = ix.linear(x)[1]
  if d.op is Ops.CONST: return ix.sub(x, d.arg - 1) if below % d.arg == d.arg - 1 else None
  return ix.add(x, 1) if (x.op is Ops.CONST or below < 0) and c * k > 0 and abs(c) >= abs(k) else None


_PRINTED = BinaryOps.IDIV, BinaryOps.MOD, BinaryOps.MAX, BinaryOps.MIN, BinaryOps.POW   # not as a sum or a product


def _written_parts(u: UOp) -> list[UOp]:
  if u.op is Ops.RANGE: return []
  if u.arg in _PRINTED: return list(u.src) if (up := _rounds_up(u, 0, 1)) is None else [up, u.src[1]]
  return [x for _, factors, _ in _terms(u)[0] for x in factors]


def text_of(u: UOp | int) -> str:
  """An expression as people write it: ``cdiv(M, BLOCK) * 2 - 1``."""
  return str(u) if isinstance(u, int) else from_parts(u, _written_parts, _written)[0]


COMPARISONS = {fn: PYTHON[fn][0].strip() for fn in BinaryOps if fn in COMPARE}


def condition_text(c: UOp) -> str:
  """A comparison of sizes as people write it, nothing negative on either side: ``M < N + 8``."""
  terms, k = ix.linear(ix.sub(*c.src))
  left, right = (reduce(ix.add, (ix.mul(t, n * sign) for t, n in terms if n * sign > 0), ix.const(max(k * sign, 0)))
                 for sign in (1, -1))
  return f"{text_of(left)} {COMPARISONS[c.arg]} {text_of(right)}"


def nested_text(x: object, plain: Callable[[object], str] = str) -> str:
  """Expressions, and tuples of them, as people write them; what is neither as ``plain`` does."""
  if isinstance(x, tuple): return f"({', '.join([nested_text(y, plain) for y in x])}{',' * (len(x) == 1)})"
  return text_of(x) if isinstance(x, UOp) else plain(x)


def shape_text(shape: Sequence[UOp | int]) -> str: return nested_text(tuple(shape))


def _written(u: UOp, texts: Mapping[UOp, Text]) -> Text:
  arg = u.arg
  if u.op is Ops.CONST: return str(arg), ATOM if arg >= 0 else SUM
  if u.op is Ops.SIZE: return _multiple(arg.name, arg.unit)
  if u.op is Ops.RANGE: return f"a{arg[0]}", ATOM
  if arg in _PRINTED:
    divided = _written_parts(u)
    a, b = map(texts.__getitem__, divided)
    if divided[0] is not u.src[0]: return f"cdiv({a[0]}, {b[0]})", ATOM
    if arg in (BinaryOps.MAX, BinaryOps.MIN): return f"{arg.name.lower()}({a[0]}, {b[0]})", ATOM
    return (f"{inside(a)}**{inside(b)}", UNARY) if arg is BinaryOps.POW else infix(arg, a, b)
  parts: list[tuple[bool, list[Text]]] = []   # whether it is taken away, and the factors of what
  terms, c = _terms(u)
  for k, factors, rounded in terms:
    if rounded: each = [(f"cdiv({', '.join([texts[f][0] for f in factors])})", ATOM)]
    else: k, each = _units(k, factors, texts)
    parts.append((k < 0, [*[(str(abs(k)), ATOM)] * (abs(k) > 1), *each]))
  if c: parts.append((c < 0, [(str(abs(c)), ATOM)]))
  if parts[0][0]: parts.sort(key=lambda p: p[0])   # 1 - x
  (negative, first), *rest = parts
  text, level = _product(first)
  if negative: text, level = f"-{' * '.join(inside(t, UNARY) for t in first)}", SUM
  return text + "".join(f" {'-' if minus else '+'} {_product(p)[0]}" for minus, p in rest), SUM if rest else level


def _product(factors: Sequence[Text]) -> Text:
  return factors[0] if len(factors) == 1 else (" * ".join(inside(t, UNARY) for t in factors), PRODUCT)


def _multiple(name: str, unit: int) -> Text: return (name, ATOM) if unit == 1 else (f"{name} // {unit}", PRODUCT)


def _units(k: int, factors: Sequence[UOp], texts: Mapping[UOp, Text]) -> tuple[int, list[Text]]:
  """The factors of a term as they are written: 16 * (N // 16) is N where 16 divides N, and 32 * (N // 16) is 2 * N."""
  out: list[Text] = []
  for f in factors:
    g = math.gcd(k, f.arg.unit) if f.op is Ops.SIZE else 1
    k //= g
    out.append(_multiple(f.arg.name, f.arg.unit // g) if g > 1 else texts[f])
  return k, [t if n == 1 else (f"{inside(t)}**{n}", UNARY) for t, n in Counter(out).items()]   # x, x, y -> x**2, y
