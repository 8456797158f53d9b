"""The algebra of Symbols: sympy adds and multiplies, divisions are nodes of our own, and nothing searches for a simplification.

Three things are made of a sympy expression: its *key*, which says what it equals; its *form*, nested tuples that are quick to walk; and its
text.
"""
from __future__ import annotations

import math
import operator
from functools import lru_cache
from typing import Any, Callable, Mapping

import sympy

Key = Any   # a sympy expression
Form = Any  # (operator, operands…), a name or an int


class FloorDiv(sympy.Function):  # type: ignore[misc]
  """a // b, rounded down."""
  nargs = 2
  is_integer = True


class CeilDiv(sympy.Function):  # type: ignore[misc]
  """a / b, rounded up."""
  nargs = 2
  is_integer = True


class Modulo(sympy.Function):  # type: ignore[misc]
  """a % b, with the sign of b."""
  nargs = 2
  is_integer = True


class Greater(sympy.Function):  # type: ignore[misc]
  """The greater of two."""
  nargs = 2
  is_integer = True


class Lesser(sympy.Function):  # type: ignore[misc]
  """The lesser of two."""
  nargs = 2
  is_integer = True


# ---- keys: what an expression equals

def expanded(e: Key) -> Key:
  """Products multiplied out."""
  return sympy.expand(e) if e.is_Add or e.is_Mul or e.is_Pow else e


def divided(a: Key, b: Key) -> tuple[Key, Key]:
  """Keys a, b -> (whole, rest) with a == whole*b + rest, the rest without terms that b divides."""
  if a == b: return sympy.Integer(1), sympy.Integer(0)
  whole, rest = [], []
  for term in sympy.Add.make_args(a):
    if b.is_Integer:
      factor, of = term.as_coeff_Mul()
      q, r = divmod(int(factor), int(b))
      whole.append(q * of)
      rest.append(r * of)
    else:
      quotient = term / b
      exact = quotient.as_numer_denom()[1] == 1
      (whole if exact else rest).append(quotient if exact else term)
  return sympy.Add(*whole), sympy.Add(*rest)


def floor(a: Key, b: Key) -> Key:
  """The key of a // b."""
  if b.is_Integer and b < 0: a, b = expanded(-a), -b
  whole, rest = divided(a, b)
  if rest == 0: return whole
  if b.is_Integer:
    constant, others = rest.as_coeff_Add()
    if others == 0: return whole
    shared = math.gcd(int(b), *(int(t.as_coeff_Mul()[0]) for t in sympy.Add.make_args(others)))
    if shared > 1: return whole + floor(expanded(others / shared) + constant // shared, b / shared)  # (g*A + c) // (g*B), 0 <= c < g
    if isinstance(rest, FloorDiv) and rest.args[1].is_Integer: return whole + FloorDiv(rest.args[0], rest.args[1] * b)
  return whole + FloorDiv(rest, b)


@lru_cache(maxsize=8192)
def key_of(e: Key) -> Key:
  """Equal keys, equal values: products multiplied out, every division a floor division of what does not divide."""
  if not e.args: return e
  args = [key_of(a) for a in e.args]
  if isinstance(e, FloorDiv): return floor(*args)
  if isinstance(e, CeilDiv): return expanded(1 + floor(args[0] - 1, args[1]))
  if isinstance(e, Modulo): return expanded(args[0] - args[1] * floor(*args))
  if isinstance(e, Greater | Lesser):
    difference = expanded(args[0] - args[1])
    if difference.is_Integer: return args[0] if (difference >= 0) == isinstance(e, Greater) else args[1]
    return e.func(*sorted(args, key=sympy.default_sort_key))
  return expanded(e.func(*args))


# ---- forms: nested tuples that are quick to walk, (operator, operands…), a name or an int

_NODES = {FloorDiv: "//", CeilDiv: "cdiv", Modulo: "%", Greater: "max", Lesser: "min"}
INTS: dict[str, Callable[[int, int], int]] = {
  "//": operator.floordiv, "%": operator.mod, "cdiv": lambda a, b: -(-a // b), "max": max, "min": min, "**": operator.pow}


def form_of(e: Key) -> Form:
  """An expression as nested tuples."""
  if e.is_Integer: return int(e)
  if e.is_Symbol: return e.name
  if e.is_Add: return ("+", *map(form_of, _ordered(e.as_ordered_terms())))
  if e.is_Mul: return ("*", *map(form_of, e.as_ordered_factors()))
  return ("**" if e.is_Pow else _NODES[e.func], *map(form_of, e.args))


def _ordered(terms: list[Key]) -> list[Key]:
  """N - 1 and 1 - N: a term without a minus sign comes first."""
  return sorted(terms, key=lambda t: bool(t.could_extract_minus_sign())) if terms[0].could_extract_minus_sign() else terms


def run(form: Form, values: Mapping[str, int]) -> int:
  """Its value where names have ``values``. Raises KeyError for one that has none."""
  if form.__class__ is int: return form
  if form.__class__ is str: return values[form]
  op = form[0]
  if op == "+":
    total = 0
    for f in form[1:]: total += run(f, values)
    return total
  if op == "*":
    total = 1
    for f in form[1:]: total *= run(f, values)
    return total
  return INTS[op](run(form[1], values), run(form[2], values))


_STRENGTH = {"+": 1, "*": 2, "//": 2, "%": 2, "**": 4}


def text_of(form: Form) -> tuple[str, int]:
  """How it is written, and how strongly it binds."""
  if not isinstance(form, tuple): return str(form), 5 if isinstance(form, str) or form >= 0 else 1
  op, operands = form[0], [text_of(f) for f in form[1:]]
  if op not in _STRENGTH: return f"{op}({', '.join(t for t, _ in operands)})", 5
  mine = _STRENGTH[op]
  if op == "+":
    out = operands[0][0]
    for text, _ in operands[1:]: out += f" - {text[1:]}" if text.startswith("-") else f" + {text}"
    return out, mine
  if op == "*" and form[1] == -1:
    rest, strength = text_of(form[2] if len(form) == 3 else ("*", *form[2:]))
    plain = strength > mine or (strength == mine and "//" not in rest and "%" not in rest)  # -x // 2 would be (-x) // 2
    return f"-{rest}" if plain else f"-({rest})", mine
  if op == "*":  # a // b * c is read from the left: a quotient stands first or in parentheses
    parts = [t if s > mine or (s == mine and f[0] == "*") or (s == mine and n == 0) else f"({t})"
             for n, ((t, s), f) in enumerate(zip(operands, form[1:]))]
    return " * ".join(parts), mine
  (a, sa), (b, sb) = operands
  left = a if sa > mine or (sa == mine and op != "**" and not a.startswith("-")) else f"({a})"  # y - x // 2 is not y + (-x) // 2
  return f"{left}{op if op == '**' else f' {op} '}{b if sb > mine else f'({b})'}", mine
