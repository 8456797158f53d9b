"""Expressions as text: how a language writes functions of two values, and where brackets stand."""
from __future__ import annotations

from typing import Mapping

from .uop import COMPARE, BinaryOps

Text = tuple[str, int]   # an expression, and how tightly it binds: the tighter the less
ATOM, UNARY, PRODUCT, SUM, SHIFT = range(5)                        # in every language; an atom is a name, a literal or a call
BIT_AND, BIT_XOR, BIT_OR, COMPARISON, CONDITIONAL = range(5, 10)   # in Python, looser


def signs(*levels: str, spaced: int = PRODUCT) -> dict[BinaryOps, Text]:
  """The signs of a language and how tightly they bind, from a text for each level from PRODUCT on: ``"ADD + SUB -"``. Those
  that bind no tighter than ``spaced`` have blanks around them."""
  rows = [(row.split(), level) for level, row in enumerate(levels, PRODUCT)]
  return {BinaryOps[name]: (f" {sign} " if level >= spaced else sign, level)
          for words, level in rows for name, sign in zip(words[::2], words[1::2])}


_PYTHON = ("MUL * DIV / IDIV // MOD %", "ADD + SUB -", "SHL << SHR >>", "AND &", "XOR ^", "OR |",
           "CMPLT < CMPLE <= CMPEQ == CMPNE !=")
PYTHON = signs(*_PYTHON)                       # a * b + c
SHORT_PYTHON = signs(*_PYTHON, spaced=SUM)     # a*b + c


def inside(text: Text, most: int = ATOM) -> str:
  """A text as an operand: in brackets unless it binds at least as tightly as ``most``."""
  return text[0] if text[1] <= most else f"({text[0]})"


def infix(fn: BinaryOps, left: Text, right: Text, language: Mapping[BinaryOps, Text] = PYTHON) -> Text:
  """``left + right``, in as few brackets as it needs; comparisons do not chain."""
  sign, level = language[fn]
  return f"{inside(left, level - (fn in COMPARE))}{sign}{inside(right, level - 1)}", level


def operands(fn: BinaryOps, level: int, chain: bool = False) -> tuple[int, int]:
  """How tightly the operands of a function must bind in source that is read: bit operations beside arithmetic read better in
  brackets, and comparisons do not chain. ``chain``: the first operand is the same function."""
  if level <= SUM: return level, level - 1
  if fn in COMPARE: return SUM, SUM
  return level if chain and fn in (BinaryOps.AND, BinaryOps.OR, BinaryOps.XOR) else UNARY, UNARY
