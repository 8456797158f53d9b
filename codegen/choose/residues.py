"""Conditions on remainders, (a2 - a5 + 3) % 2 == 0, as gradients of strided convolutions have them: known in each copy of their
axes where the copies are a multiple of what is divided by. Products and loads where one is false are not made."""
from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Callable, Iterable, Mapping

from .. import index as ix
from ..ir import BinaryOps, Ops, UOp
from ..kernel import Kernel, ids_of, is_masked


@dataclass(frozen=True)
class Residue:
  """(the sum of factors times axes + ``start``) % ``modulus`` == ``rest``."""
  factors: tuple[tuple[int, int], ...]   # axis id, factor
  start: int
  modulus: int
  rest: int

  def copies(self, axis: int) -> int:
    """Of how many copies of an axis a multiple is needed for its value in each to be known."""
    return self.modulus // math.gcd(self.modulus, dict(self.factors)[axis])

  def left(self, copies: Callable[[int], int]) -> tuple[float, float]:
    """Of the copies of its axes the part where it holds, and the part with different sums among those."""
    sums = [self.start + sum(ns) for ns in itertools.product(*[[k * n for n in range(copies(a))] for a, k in self.factors])]
    there = [n for n in sums if n % self.modulus == self.rest]
    return len(there) / len(sums), len({*there}) / len(sums)


def residues(conditions: Iterable[UOp]) -> list[Residue]:
  """Those of some conditions, or of what they are made of, that are about a remainder of axes."""
  out = list[Residue]()
  for c in {c: None for whole in conditions for c in ix.conjuncts(whole)}:
    if c.arg is not BinaryOps.CMPEQ or c.src[0].arg is not BinaryOps.MOD or c.src[1].op is not Ops.CONST: continue
    (terms, start), by = ix.linear(c.src[0].src[0]), c.src[0].src[1]
    if by.op is Ops.CONST and all(t.op is Ops.RANGE for t, _ in terms):
      out.append(Residue(tuple([(t.arg[0], k) for t, k in terms]), start, by.arg, c.src[1].arg))
  return out


def reduced_where(kernel: Kernel) -> list[Residue]:
  """The conditions outside which what the one reduction of a kernel takes counts as zero."""
  if len(kernel.reduces) != 1: return []
  value, masks = kernel.reduces[0].src[0], list[UOp]()
  while is_masked(value): masks, value = [*masks, value.src[0]], value.src[1]
  return residues(masks)


def needed(conditions: Iterable[Residue], sizes: Mapping[int, int], among: Iterable[int]) -> dict[int, int]:
  """The least copies of some axes with which all conditions on them are known: {a2: 2, a3: 2}."""
  every = {a: math.lcm(*[c.copies(a) for c in conditions if a in dict(c.factors)]) for a in among}
  return {a: n for a, n in every.items() if 1 < n <= sizes[a]}
