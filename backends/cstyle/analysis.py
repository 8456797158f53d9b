"""What the renderer asks of a program before it writes: which values are inlined, which ints must wrap, which divisions are
plain."""
from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Sequence

from ntgrad.codegen.dtype import dtypes
from ntgrad.codegen.index import bounds
from ntgrad.codegen.uop import BinaryOps, Ops, TernaryOps, UnaryOps, UOp, memoized

_INLINABLE = frozenset((Ops.ALU, Ops.CAST, Ops.BITCAST, Ops.VECTORIZE, Ops.GEP))
_WRAPS = frozenset((BinaryOps.ADD, BinaryOps.SUB, BinaryOps.MUL, BinaryOps.SHL, UnaryOps.NEG))
# operations whose low bits depend on their sources' low bits only: overflow beneath them is not yet seen
_MODULAR = _WRAPS | {BinaryOps.AND, BinaryOps.OR, BinaryOps.XOR, UnaryOps.NOT}


@dataclass
class Facts:
  """See the functions that fill it."""
  inline: set[UOp] = field(default_factory=set)
  exposed: set[UOp] = field(default_factory=set)
  reads: dict[UOp, frozenset[UOp]] = field(default_factory=dict)  # accumulators that a value's C text names


def overflows(u: UOp) -> bool:
  """Whether a signed sum, product, shift or negation may leave the range of its dtype."""
  (al, ah), (bl, bh) = [*map(bounds, u.src), (0, 0)][:2]
  ends = {BinaryOps.ADD: (al + bl, ah + bh), BinaryOps.SUB: (al - bh, ah - bl), BinaryOps.MUL: (al*bl, al*bh, ah*bl, ah*bh),
          UnaryOps.NEG: (-al, -ah)}.get(u.arg, ())
  if u.arg is BinaryOps.SHL and 0 <= bl and bh < 64: ends = (al << bl, al << bh, ah << bl, ah << bh)
  d = u.dtype.scalar()
  return not ends or min(ends) < dtypes.min(d) or max(ends) > dtypes.max(d)


@memoized
def factor(u: UOp) -> int:
  """A number that an int is certainly a multiple of, as great as is known; 0 for the constant 0."""
  if u.dtype.kind not in "iu": return 1
  if u.op is Ops.CONST: return abs(int(u.arg))
  if u.op is Ops.CAST: return factor(u.src[0])
  if u.op is not Ops.ALU: return 1
  if u.arg in (BinaryOps.ADD, BinaryOps.SUB): return math.gcd(factor(u.src[0]), factor(u.src[1]))
  if u.arg is BinaryOps.MUL: return factor(u.src[0]) * factor(u.src[1])
  if u.arg is BinaryOps.SHL and u.src[1].op is Ops.CONST: return factor(u.src[0]) << int(u.src[1].arg)
  return 1


def analyse(uops: Sequence[UOp]) -> Facts:
  """The facts of a linear program."""
  facts = Facts()
  _find_reads(uops, facts)
  _find_inline(uops, facts)
  # a value with a name of its own no longer reads the accumulator where it is used
  for u in uops:
    if u.op in _INLINABLE and u not in facts.inline and u.op is not Ops.GEP: facts.reads[u] = frozenset()
    elif u.op in _INLINABLE: facts.reads[u] = frozenset().union(*(facts.reads[s] for s in u.src))
  _find_exposed(uops, facts)
  return facts


def accumulator(u: UOp) -> UOp:
  """The DEFINE_ACC that a PHI assigns."""
  while u.op is Ops.PHI: u = u.src[0]
  return u


def _find_inline(uops: Sequence[UOp], facts: Facts) -> None:
  """Values used once, in the block where they stand, with no assignment between to an accumulator that they read."""
  uses: dict[UOp, int] = {}
  user: dict[UOp, int] = {}
  block: list[int] = []
  stack = [0]
  phis: dict[UOp, list[int]] = {}
  for at, u in enumerate(uops):
    if u.op in (Ops.ENDLOOP, Ops.ENDIF, Ops.ELSE, Ops.ENDWHILE): stack.pop()
    block.append(stack[-1])
    if u.op in (Ops.LOOP, Ops.IF, Ops.ELSE, Ops.WHILE): stack.append(at)
    if u.op is Ops.PHI: phis.setdefault(accumulator(u), []).append(at)
    # text that a statement repeats must be a name
    repeats = u.arg is UnaryOps.ISNAN
    if u.op is Ops.LOOP: repeats = True   # its end is looked at every time round
    if u.op in (Ops.LOAD, Ops.STORE): repeats = any(s.dtype.kind == "b" and s.dtype.count > 1 for s in u.src[2:])
    for s in u.src:
      uses[s] = uses.get(s, 0) + (2 if repeats else 1)
      user[s] = at
  for at, u in enumerate(uops):
    if u.op not in _INLINABLE or uses.get(u, 0) != 1 or block[user[u]] != block[at]: continue
    if uops[user[u]].op is Ops.GEP and u.op is not Ops.GEP: continue  # v.s3 wants a name before the dot
    if not any(at < p < user[u] for acc in facts.reads[u] for p in phis.get(acc, ())): facts.inline.add(u)


def _find_reads(uops: Sequence[UOp], facts: Facts) -> None:
  for u in uops:
    if u.op in (Ops.DEFINE_ACC, Ops.PHI): facts.reads[u] = frozenset((accumulator(u),))
    elif u.op in _INLINABLE: facts.reads[u] = frozenset().union(*(facts.reads[s] for s in u.src))
    else: facts.reads[u] = frozenset()


def _find_exposed(uops: Sequence[UOp], facts: Facts) -> None:
  """Signed sums and products of data whose overflow something could see: a comparison, a division, a widening, a float.

  A sum that is only stored or summed on is left in plain C: its low bits are right whatever the compiler assumes.
  """
  seen: set[UOp] = set()
  while True:  # a loop's accumulator carries the fact back from its PHI
    before = len(seen)
    for u in reversed(uops):
      if u.op is Ops.PHI:
        if u in seen: seen.add(u.src[0])
        if u in seen or u.src[0] in seen: seen.update((u.src[1], u))
      elif u.op in (Ops.VECTORIZE, Ops.GEP) or (u.op is Ops.ALU and u.arg in _MODULAR):
        if u in seen: seen.update(u.src)
      elif u.op is Ops.ALU and u.arg is TernaryOps.WHERE:
        seen.add(u.src[0])
        if u in seen: seen.update(u.src[1:])
      elif u.op is Ops.CAST and u.dtype.kind in "iu" and u.dtype.itemsize <= u.src[0].dtype.itemsize:
        if u in seen: seen.add(u.src[0])
      elif u.op is Ops.STORE: seen.add(u.src[1])
      elif u.op is Ops.ATOMIC: seen.update(u.src[1:])
      elif u.op is not Ops.DEFINE_ACC: seen.update(u.src)
    if len(seen) == before: break
  facts.exposed = {
    u for u in seen if u.op is Ops.ALU and u.arg in _WRAPS and u.dtype.kind == "i" and u.dtype.itemsize >= 4 and overflows(u)
  }
