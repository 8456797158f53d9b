"""Patterns of ``rearrange``, in the grammar of einops (Rogozhnikov, *Einops: Clear and Reliable Tensor Manipulations with
Einstein-like Notation*, ICLR 2022)."""
from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from ntgrad.codegen.ir import ArgumentError, ShapeError
from ntgrad.graph import text

Groups = list[list[str]]        # the names that make each dimension; none: a dimension of 1
_DOTS, _JOINED = "...", "(...)"  # as many dimensions as there are; all of them as a part of one, on the right


def _sides(formula: str) -> list[Groups]:
  """Both sides of a pattern as it is written, ``left -> right``. Raises ArgumentError."""
  texts = formula.split("->")
  if len(texts) != 2: raise _wrong_pattern(formula, "it takes one -> between two sides, as 'b (h w) c -> b c h w'")
  sides = [_pattern_groups(formula, s) for s in texts]
  if any([_JOINED in g for g in sides[0]]): raise _wrong_pattern(formula, "... in parentheses stands on the right only")
  names, result = [[_DOTS if n == _JOINED else n for g in side for n in g] for side in sides]
  for n in names + result:
    if max(names.count(n), result.count(n)) > 1: raise _wrong_pattern(formula, f"{n} stands twice on one side")
    if (n in names) != (n in result):
      raise _wrong_pattern(formula, f"{n} stands on the {'left' if n in names else 'right'} only; both sides take the same names")
  return sides


def pattern_moves(formula: str, x: Any, axes: Mapping[str, int]) -> tuple[list[tuple[int | None, int]], list[list[int]]]:
  """What a pattern does with a tensor, some names having sizes: the pieces that its dimensions are made of (which dimension a
  piece is, None for a part of one, and its size), and which pieces make each dimension of the result. Raises ShapeError,
  ArgumentError."""
  left, right = _sides(formula)
  if extra := [n for n in axes if not any([n in g for g in left])]:
    raise _wrong_pattern(formula, f"a size for {extra[0]!r}, which does not stand in it")
  fixed, dots = sum([g != [_DOTS] for g in left]), [_DOTS] in left
  more = x.ndim - fixed
  if more < 0 or more and not dots:
    raise ShapeError(f"rearrange: {formula!r} for shape {text(x)}; its left side takes {'at least ' * dots}{fixed} dimensions")
  pieces: list[tuple[int | None, int]] = []
  at: dict[str, list[int]] = {}   # name -> its pieces
  d = 0
  for g in left:
    if g == [_DOTS]:
      at[_DOTS] = list(range(len(pieces), len(pieces) + more))
      pieces += [(k, x.shape[k]) for k in range(d, d + more)]
      d += more
    else:
      for n, size in zip(g, _sizes_of(formula, g, d, x, axes)):
        at[n] = [len(pieces)]
        pieces.append((d if len(g) == 1 else None, size))
      d += 1
  groups: list[list[int]] = []
  for g in right:
    if g == [_DOTS]: groups += [[k] for k in at[_DOTS]]
    else: groups.append([k for n in g for k in at[_DOTS if n == _JOINED else n]])
  return pieces, groups


def _sizes_of(formula: str, g: list[str], d: int, x: Any, axes: Mapping[str, int]) -> list[int]:
  """The sizes of what a dimension is made of."""
  size, free = x.shape[d], [n for n in g if n not in axes]
  product = math.prod([axes[n] for n in g if n in axes])
  if len(free) > 1: raise _wrong_pattern(formula, f"no sizes for {' and '.join(free)}; of each group one may be left open")
  if product != size if not free else not product or size % product:
    what = f"is no multiple of {product}" if free else f"must be {' * '.join(g)} = {product}" if g else "must be 1"
    raise ShapeError(f"rearrange: {formula!r} for shape {text(x)}: dimension {d} of size {size} {what}")
  return [axes[n] if n in axes else size // product for n in g]


def _pattern_groups(formula: str, side: str) -> Groups:
  """What one side says."""
  out: Groups = []
  group: list[str] | None = None   # in parentheses
  for word in re.findall(r"\.\.\.|[()]|[^\s().]+|\.", side):
    if word == "(":
      if group is not None: raise _wrong_pattern(formula, "parentheses in parentheses")
      group = []
    elif word == ")":
      if group is None: raise _wrong_pattern(formula, "a ) without its (")
      out.append(group)
      group = None
    elif word == _DOTS:
      if group is None: out.append([_DOTS])
      else: group.append(_JOINED)
    elif word == "1":
      if group is None: out.append([])
    elif not word.isidentifier() or word[0] == "_" or word[-1] == "_":
      raise _wrong_pattern(formula, f"{word!r}: " + ("an int that is not 1 has no name to find it by" if word.isdecimal()
                                                     else "a name is an identifier without _ at its ends"))
    elif group is None: out.append([word])
    else: group.append(word)
  if group is not None: raise _wrong_pattern(formula, "a ( without its )")
  return out


def _wrong_pattern(formula: str, why: str) -> ArgumentError: return ArgumentError(f"rearrange: {formula!r}: {why}")
