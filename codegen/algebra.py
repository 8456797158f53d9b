"""The algebra of Symbols: sympy adds and multiplies, divisions are nodes of our own, and nothing searches for a simplification.

Three things are made of a sympy expression: its *key*, which says what it equals; its *form*, a list of steps that are quick to
walk; and its text.
"""
from __future__ import annotations

import math
import operator
from functools import lru_cache, reduce
from typing import Any, Callable, Mapping, Sequence

import sympy

Key = Any   # a sympy expression
# steps: an int, a name, or (operator, the numbers of the steps that are its operands…); the last is the value
Form = tuple[Any, ...]


class Function(sympy.Function):  # type: ignore[misc]
  """A function of two integers that are not both known."""
  nargs = 2
  is_integer = True
  is_number = False


class FloorDiv(Function):
  """a // b, rounded down."""


class CeilDiv(Function):
  """a / b, rounded up."""


class Modulo(Function):
  """a % b, with the sign of b."""


class Greater(Function):
  """The greater of two."""


class Lesser(Function):
  """The lesser of two."""


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
    # (g*A + c) // (g*B), 0 <= c < g
    if shared > 1: return whole + floor(expanded(others / shared) + constant // shared, b / shared)
    if isinstance(rest, FloorDiv) and rest.args[1].is_Integer: return whole + FloorDiv(rest.args[0], rest.args[1] * b)
  return whole + FloorDiv(rest, b)


def sources_first(e: Key, operands: Callable[[Key], Sequence[Key]]) -> dict[Key, Sequence[Key]]:
  """Every part of an expression with its operands, operands before what they are part of: expressions are deeper than Python's
  stack."""
  found: dict[Key, Sequence[Key]] = {}
  out: dict[Key, Sequence[Key]] = {}
  stack = [e]
  while stack:
    n = stack[-1]
    if n not in found:
      found[n] = operands(n)
      stack.extend([o for o in reversed(found[n]) if o not in found])
    else:
      out.setdefault(stack.pop(), found[n])
  return out


def key_of(e: Key) -> Key:
  """Equal keys, equal values: products multiplied out, every division a floor division of what does not divide."""
  keys: dict[Key, Key] = {}
  for n, args in sources_first(e, lambda n: n.args).items(): keys[n] = _key(n, tuple([keys[a] for a in args])) if args else n
  return keys[e]


@lru_cache(maxsize=8192)
def _key(e: Key, args: tuple[Key, ...]) -> Key:
  """The key of an expression whose operands have the keys ``args``."""
  if isinstance(e, FloorDiv): return floor(*args)
  if isinstance(e, CeilDiv): return expanded(1 + floor(args[0] - 1, args[1]))
  if isinstance(e, Modulo): return expanded(args[0] - args[1] * floor(*args))
  if isinstance(e, Greater | Lesser):
    difference = expanded(args[0] - args[1])
    if difference.is_Integer: return args[0] if (difference >= 0) == isinstance(e, Greater) else args[1]
    return e.func(*sorted(args, key=sympy.default_sort_key))
  return expanded(e.func(*args))


# ---- forms: steps that are quick to walk, operands first

_NODES = {FloorDiv: "//", CeilDiv: "cdiv", Modulo: "%", Greater: "max", Lesser: "min"}
INTS: dict[str, Callable[[int, int], int]] = {
  "+": operator.add, "*": operator.mul, "//": operator.floordiv, "%": operator.mod, "cdiv": lambda a, b: -(-a // b),
  "max": max, "min": min, "**": operator.pow}


def form_of(e: Key) -> Form:
  """An expression as steps."""
  number: dict[Key, int] = {}
  for n in (parts := sources_first(e, _operands)): number[n] = len(number)
  return tuple(
    [int(n) if n.is_Integer else n.name if n.is_Symbol else (_operator(n), *[number[o] for o in os]) for n, os in parts.items()]
  )


def _operands(e: Key) -> Sequence[Key]:
  """The operands of an expression in the order in which they are written."""
  if e.is_Add: return _ordered(e.as_ordered_terms())
  found: Sequence[Key] = e.as_ordered_factors() if e.is_Mul else e.args
  return found


def _operator(e: Key) -> str: return "+" if e.is_Add else "*" if e.is_Mul else "**" if e.is_Pow else _NODES[e.func]


def _ordered(terms: list[Key]) -> list[Key]:
  """N - 1 and 1 - N: a term without a minus sign comes first."""
  return sorted(terms, key=lambda t: bool(t.could_extract_minus_sign())) if terms[0].could_extract_minus_sign() else terms


def run(form: Form, values: Mapping[str, int]) -> int:
  """Its value where names have ``values``. Raises KeyError for one that has none."""
  got: list[int] = []
  for step in form:
    if step.__class__ is str: got.append(values[step])
    elif step.__class__ is int: got.append(step)
    elif len(step) == 3: got.append(INTS[step[0]](got[step[1]], got[step[2]]))
    else: got.append(reduce(INTS[step[0]], [got[i] for i in step[1:]]))
  return got[-1]


_STRENGTH = {"+": 1, "*": 2, "//": 2, "%": 2, "**": 4}
Text = tuple[str, int]   # how it is written, and how strongly it binds


def text_of(form: Form) -> str:
  """How it is written."""
  texts: list[Text] = []
  for step in form:
    if isinstance(step, tuple): texts.append(_written(step[0], [(texts[i], form[i]) for i in step[1:]]))
    else: texts.append((str(step), 5 if isinstance(step, str) or step >= 0 else 1))
  return texts[-1][0]


def _written(op: str, operands: list[tuple[Text, Any]]) -> Text:
  """An operator between operands, each its text and its step."""
  if op not in _STRENGTH: return f"{op}({', '.join(t for (t, _), _ in operands)})", 5
  mine = _STRENGTH[op]
  if op == "+":
    out = [operands[0][0][0]]
    out += [f" - {t[1:]}" if t.startswith("-") else f" + {t}" for (t, _), _ in operands[1:]]
    return "".join(out), mine
  if op == "*" and operands[0][1] == -1:
    rest, strength = operands[1][0] if len(operands) == 2 else _written("*", operands[1:])
    plain = strength > mine or (strength == mine and "//" not in rest and "%" not in rest)  # -x // 2 would be (-x) // 2
    return f"-{rest}" if plain else f"-({rest})", mine
  if op == "*":  # a // b * c is read from the left: a quotient stands first or in parentheses
    parts = [
      t if s > mine or (s == mine and (n == 0 or step[0] == "*")) else f"({t})" for n, ((t, s), step) in enumerate(operands)
    ]
    return " * ".join(parts), mine
  ((a, sa), _), ((b, sb), _) = operands
  left = a if sa > mine or (sa == mine and op != "**" and not a.startswith("-")) else f"({a})"  # y - x // 2 is not y + (-x) // 2
  return f"{left}{op if op == '**' else f' {op} '}{b if sb > mine else f'({b})'}", mine
