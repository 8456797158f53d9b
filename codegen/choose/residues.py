"""Conditions on remainders, (a2 - a5 + 3) % 2 == 0, as gradients of strided convolutions have them: known in each copy of their
axes where the copies are a multiple of what is divided by. Products and loads where one is false are not made."""
from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Callable, Iterable, Mapping

from .. import index as ix
from ..ir import BinaryOps, Ops, UOp
from ..kernel import Kernel, gate_or_true, is_masked

_MOST = 16   # of what is divided by: for more, there are too few registers for the copies


@dataclass(frozen=True)
class Residue:
  """(the sum of factors times axes + ``start``) % ``modulus`` is one of ``rests``."""
  factors: tuple[tuple[int, int], ...]   # axis id, factor
  start: int
  modulus: int
  rests: frozenset[int]

  def copies(self, axis: int) -> int:
    """Of how many copies of an axis a multiple is needed for its value in each to be known."""
    return self.modulus // math.gcd(self.modulus, dict(self.factors)[axis])

  def left(self, copies: Callable[[int], int]) -> tuple[float, float]:
    """Of the copies of its axes the part where it holds, and the part with different sums among those."""
    sums = [self.start + sum(ns) for ns in itertools.product(*[[k * n for n in range(copies(a))] for a, k in self.factors])]
    there = [n for n in sums if n % self.modulus in self.rests]
    return len(there) / len(sums), len({*there}) / len(sums)


def residues(conditions: Iterable[UOp]) -> list[Residue]:
  """Those of some conditions, or of what they are made of, that are about a remainder of axes."""
  out = list[Residue]()
  for c in {c: None for whole in conditions for c in ix.conjuncts(whole)}:
    if c.arg not in (BinaryOps.CMPEQ, BinaryOps.CMPLT) or c.src[0].dtype is not ix.INT: continue
    terms, start = ix.linear(ix.sub(*c.src))   # compared with 0
    if len(terms) != 1: continue
    (atom, k), = terms
    if atom.arg is BinaryOps.MOD: (within, at), by = ix.linear(atom.src[0]), ix.number(atom.src[1])
    elif atom.op is Ops.RANGE and c.arg is BinaryOps.CMPEQ: within, at, by = ((atom, 1),), 0, atom.arg[1]   # left by a split
    else: continue
    if not isinstance(by, int) or by > _MOST: continue
    values = [k * n + start for n in range(by)]
    rests = frozenset(n for n, v in enumerate(values) if (v == 0 if c.arg is BinaryOps.CMPEQ else v < 0))
    if all(t.op is Ops.RANGE for t, _ in within):
      out.append(Residue(tuple([(t.arg[0], k) for t, k in within]), at, by, rests))
  return out


def reduced_where(kernel: Kernel) -> list[Residue]:
  """The conditions outside which what the one reduction of a kernel takes counts as zero."""
  if len(kernel.reduces) != 1: return []
  value, masks = kernel.reduces[0].src[0], list[UOp]()
  while is_masked(value): masks, value = [*masks, value.src[0]], value.src[1]
  if value.arg is BinaryOps.MUL: masks += [gate_or_true(s) for s in value.src if s.op is Ops.LOAD]
  return residues(masks)


def needed(conditions: Iterable[Residue], sizes: Mapping[int, int], among: Iterable[int]) -> dict[int, int]:
  """The least copies of some axes with which all conditions on them are known: {a2: 2, a3: 2}."""
  every = {a: math.lcm(*[c.copies(a) for c in conditions if a in dict(c.factors)]) for a in among}
  return {a: n for a, n in every.items() if 1 < n <= sizes[a]}
