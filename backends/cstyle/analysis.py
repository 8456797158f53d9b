"""What the renderer asks of a program before it writes: which values are inlined, which roundings are left to stores, which ints
wrap, which elements are reached from a pointer that they share."""
from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Sequence

from ntgrad.codegen.index import bounds, linear, vmin
from ntgrad.codegen.ir import BinaryOps, Ops, TernaryOps, UnaryOps, UOp, dtypes, memoized, union
from ntgrad.codegen.kernel import LOAD_OR_STORE, NARROW, accumulator

from ..writer import Usage, touched

_INLINABLE = frozenset((Ops.ALU, Ops.CAST, Ops.BITCAST, Ops.VECTORIZE, Ops.GEP))
_ACCUMULATED = Ops.DEFINE_ACC, Ops.PHI
_WRAPS = frozenset((BinaryOps.ADD, BinaryOps.SUB, BinaryOps.MUL, BinaryOps.SHL, UnaryOps.NEG))
# operations whose low bits depend on their sources' low bits only: they do not expose an overflow in their sources
_MODULAR = _WRAPS | {BinaryOps.AND, BinaryOps.OR, BinaryOps.XOR, UnaryOps.NOT}
MANY = 8   # elements at constant distances from one index that are worth a pointer to it


@dataclass
class Facts:
  """What :func:`analyse` finds out about a program."""
  inline: set[UOp]                      # values whose text stands where they are used, instead of a variable
  joined: set[UOp]                      # of these products that a compiler makes one operation with a sum
  reads: dict[UOp, frozenset[UOp]]      # the accumulators that the text of an inlined value names
  unrounded: set[UOp]                   # CASTs to narrow floats that need not round: every use of them rounds
  exposed: set[UOp]                     # signed ints that may overflow where that would show, so that they must wrap
  # buffers and indices from which many elements are constant distances away. A compiler sees how far they are apart where this is
  # a pointer, and has to prove it of sums of 32 bits: it takes half as long for a convolution
  bases: set[tuple[UOp, UOp]]


def analyse(uops: Sequence[UOp]) -> Facts:
  """The facts of a linear program."""
  casts = {u for u in uops if u.op is Ops.CAST and u.dtype.scalar() in NARROW}
  unrounded = casts.difference(*(u.src for u in uops if u.op not in (Ops.STORE, Ops.BITCAST)))
  near = Counter((u.src[0], split[0]) for u in uops if u.op in LOAD_OR_STORE and (split := after(u.src[1])) is not None)
  return Facts(*_find_inline(uops), unrounded, _find_exposed(uops), {at for at, n in near.items() if n >= MANY})


def after(index: UOp) -> tuple[UOp, UOp] | None:
  """An index as another and how far it lies behind that one; None where that may be before the buffer."""
  if index.op is not Ops.ALU or index.arg is not BinaryOps.ADD or index.src[1].op is not Ops.CONST: return None
  base, by = index.src
  return (base, by) if by.arg > 0 and vmin(base) >= 0 else None


def _find_inline(uops: Sequence[UOp]) -> tuple[set[UOp], set[UOp], dict[UOp, frozenset[UOp]]]:
  """Values used once, in the block where they stand, with no assignment between to an accumulator that they read."""
  def sources(u: UOp) -> tuple[UOp, ...]:
    # text that a statement repeats must be a name: each iteration of a loop compares with its end
    repeats = u.op is Ops.LOOP or u.arg is UnaryOps.ISNAN
    if u.op in LOAD_OR_STORE: repeats = any([s.dtype.kind == "b" and s.dtype.count > 1 for s in u.src[2:]])
    return u.src * 2 if repeats else u.src
  usage = Usage(uops, sources, (Ops.LOOP, Ops.IF, Ops.ELSE, Ops.WHILE))
  inline, joined = set[UOp](), set[UOp]()
  reads = dict[UOp, frozenset[UOp]]()
  for at, u in enumerate(uops):
    if u.op in _ACCUMULATED: reads[u] = frozenset((accumulator(u),))
    elif u.op in _INLINABLE and (users := usage.users[u]):
      read = union([reads[s] for s in u.src if s in reads])
      once = len(users) == 1 and usage.blocks[users[0]] == usage.blocks[at]
      if u.op is Ops.GEP: once = once or not read         # the element of a variable is as good as a name
      elif uops[users[-1]].op is Ops.GEP: once = False    # v.s3 wants a name before the dot
      if once and not usage.written(read, at, users[-1]):
        inline.add(u)
        reads[u] = read
        if u.arg is BinaryOps.MUL and u.dtype.kind == "f" and uops[users[0]].arg in (BinaryOps.ADD, BinaryOps.SUB): joined.add(u)
  return inline, joined, reads


def _find_exposed(uops: Sequence[UOp]) -> set[UOp]:
  """Signed sums and products of data whose overflow something could see: a comparison, a division, a widening, a float, or
  whoever reads the memory that they are stored to. C leaves it open what comes of those, so they are written with unsigned ints.

  A sum that is summed on, or stored where the kernel reads nothing, is left in plain C: of its low bits compilers keep all."""
  read, wrapping = touched(uops, Ops.LOAD), {u for u in uops if wraps(u)}
  seen = set[UOp]()
  before = -1 if wrapping else 0
  while before < len(seen):  # a loop's accumulator carries the fact back from its PHI
    before = len(seen)
    for u in reversed(uops):
      if u.op is Ops.PHI and u.src[0] in seen: seen.add(u)
      seen.update(u.src if u in seen and u.op is not Ops.STORE else _exposed_sources(u, read))
  return wrapping & seen


def _exposed_sources(u: UOp, read: set[UOp]) -> tuple[UOp, ...]:
  """The sources whose overflow shows even where only the low bits of ``u`` are looked at."""
  op, src = u.op, u.src
  if op is Ops.STORE: return src[1:3] if src[0] in read else src[1:2]
  if op is Ops.ALU and u.arg is TernaryOps.WHERE: return src[:1]
  narrows = op is Ops.CAST and u.dtype.kind in "iu" and u.dtype.itemsize <= src[0].dtype.itemsize
  return () if narrows or op in (Ops.PHI, Ops.VECTORIZE, Ops.GEP) or op is Ops.ALU and u.arg in _MODULAR else src


@memoized
def wraps(u: UOp) -> bool:
  """Whether a signed int is computed that may leave the range of its dtype; smaller ones are computed as int."""
  if u.op is not Ops.ALU or u.arg not in _WRAPS or u.dtype.kind != "i" or u.dtype.itemsize < 4: return False
  d = u.dtype.scalar()
  if u.arg is UnaryOps.NEG: u = UOp.alu(BinaryOps.SUB, UOp.const(d, 0), u.src[0])
  return bounds(u) == (dtypes.min(d), dtypes.max(d))


@memoized
def factor(u: UOp) -> int:
  """A number that an int is certainly a multiple of, as great as is known; 0 for the constant 0."""
  if u.dtype.kind not in "iu": return 1
  if u.op is Ops.CAST: return factor(u.src[0])
  if u.op is Ops.ALU and u.arg is BinaryOps.MUL: return factor(u.src[0]) * factor(u.src[1])
  terms, c = linear(u)
  return math.gcd(c, *(k * factor(t) if t is not u else 1 for t, k in terms))
