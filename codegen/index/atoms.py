"""The parts that indices are made of: numbers, axes, run-time sizes, and how a node is taken apart into terms and factors.

``index.py`` builds on this and exports all of it, so that ``ix.rng`` and ``ix.Size`` are found there.
"""
from __future__ import annotations

from hashlib import blake2b
from typing import Any, NamedTuple, Union

from ..ir.dtype import dtypes
from ..ir.uop import BinaryOps, Ops, UOp, memoized

Linear = tuple[tuple[tuple[UOp, int], ...], int]
INT = dtypes.index
TRUE, FALSE = UOp.const(dtypes.bool, True), UOp.const(dtypes.bool, False)
ZERO, ONE = UOp.const(INT, 0), UOp.const(INT, 1)

FAR = 1 << 63   # a bound that stands for: none is known
UNKNOWN = 1024  # of a size of which nothing is known


class Size(NamedTuple):
  """The ``arg`` of a SIZE and of a DEFINE_VAR, an integer that gets its value at the launch. Bounds are included, None where
  there is none."""
  name: str
  lower: int | None = None
  upper: int | None = None
  constexpr: bool = False      # its value is part of the kernel
  meta: bool = False           # the tuner chooses it
  power_of_two: bool = False
  unit: int = 1                # the node is the size divided by this: N that 16 divides is 16 * SIZE(N, unit=16)
  hint: int | None = None      # a value that it may well have, which heuristics go by
  wide: bool = False           # what is computed from it may not fit 32 bits

  @property
  def node(self) -> UOp:
    """The SIZE."""
    return UOp(Ops.SIZE, INT, (), self)


DATA = "data"   # arg of a CAST in the linear form: what comes of it is no index
Dim = Union[int, UOp]   # a size: a number, or an index over SIZEs


def const(n: int) -> UOp: return UOp(Ops.CONST, INT, (), n if type(n) is int else int(n))


def node(n: Dim) -> UOp:
  """A size as a node."""
  return n if isinstance(n, UOp) else const(n)


def rng(axis: int, size: int | UOp) -> UOp:
  """The value of axis number ``axis``, 0 <= value < size, a number or an expression of sizes; an axis of one element is 0."""
  if isinstance(size, UOp): size = number(size)
  if isinstance(size, UOp): return UOp(Ops.RANGE, INT, (size,), (axis, size))
  return const(0) if size == 1 else UOp(Ops.RANGE, INT, (), (axis, size))


def number(u: UOp) -> int | UOp:
  """An index, or the int that it is."""
  return int(u.arg) if u.op is Ops.CONST else u


# ---- run-time sizes

def between(fn: BinaryOps, al: int, ah: int, bl: int, bh: int) -> tuple[int, int] | None:
  """The bounds of a function of two values, the first in al..ah and the second in bl..bh; None where that says nothing."""
  if fn is BinaryOps.ADD: return (al + bl, ah + bh)
  if fn is BinaryOps.SUB: return (al - bh, ah - bl)
  if fn is BinaryOps.MAX: return (max(al, bl), max(ah, bh))
  if fn is BinaryOps.MIN: return (min(al, bl), min(ah, bh))
  if fn is BinaryOps.AND and al >= 0 and bl >= 0: return (0, min(ah, bh))
  if fn is BinaryOps.SHR and bl == bh >= 0 and al >= 0: return (al >> bl, ah >> bl)
  if fn is BinaryOps.POW and al >= 1 and bl >= 0: return (al ** min(bl, 64), ah ** bh if bh * ah.bit_length() <= 64 else FAR)
  if fn is BinaryOps.MOD and bl > 0:
    if bl == bh and al // bl == ah // bl: return (al % bl, ah % bl)
    return (al, ah) if al >= 0 and ah < bl else (0, bh - 1)
  if fn is BinaryOps.MUL: corners = (al * bl, al * bh, ah * bl, ah * bh)
  elif fn is BinaryOps.IDIV and bl > 0: corners = (al // bl, al // bh, ah // bl, ah // bh)
  else: return None
  return min(corners), max(corners)


@memoized
def of_sizes(u: UOp) -> bool:
  """Whether an index is made of run-time sizes and numbers alone: known to the host at the launch."""
  return u.op in (Ops.SIZE, Ops.CONST) or u.op is Ops.ALU and all(map(of_sizes, u.src))


@memoized
def hint(u: UOp) -> int:
  """About what an expression of sizes is: heuristics go by it. Axes count as 0."""
  if u.op is Ops.CONST: return int(u.arg)
  if u.op is Ops.SIZE or u.op is Ops.DEFINE_VAR:
    size: Size = u.arg
    if size.hint is not None: return size.hint
    low = 1 if size.lower is None else size.lower
    return max(low, UNKNOWN if size.upper is None else min(size.upper, UNKNOWN))
  if u.op is not Ops.ALU or u.dtype is not INT: return 0
  lo, hi = between(u.arg, *[hint(s) for s in u.src for _ in (0, 1)]) or (0, 0)
  return lo


def count(n: int | UOp) -> int:
  """A number, or about what an expression of sizes is."""
  return n if isinstance(n, int) else max(hint(n), 0)


@memoized
def has_sizes(u: UOp) -> bool:
  """Whether run-time sizes stand in an index or a condition: as values, or as the ends of axes. Data that an index is made of,
  wherever it is read, has the bounds of its dtype."""
  if u.op is Ops.SIZE: return True
  if u.op is Ops.CAST and u.dtype is INT: return False
  if u.op is Ops.RANGE or u.op is Ops.SPECIAL: return not isinstance(u.arg[-1], int)
  return any(map(has_sizes, u.src))


@memoized
def of_launch(u: UOp) -> bool:
  """Whether a node is index arithmetic upon numbers of the launch alone: sizes, positions and what loops count. A CAST that makes
  data of them ends it: sums of data wrap."""
  if u.op in (Ops.CONST, Ops.DEFINE_VAR, Ops.SPECIAL, Ops.RANGE): return True
  if u.op is Ops.CAST and (u.arg is DATA or u.dtype.kind != "i" or u.dtype is not INT and u.src[0].dtype is INT): return False
  return u.op in (Ops.LOOP, Ops.ALU, Ops.CAST) and all(map(of_launch, u.src)) and any([s.op is not Ops.CONST for s in u.src])


@memoized
def wide(u: UOp) -> bool:
  """Whether what is computed from the sizes in a node may not fit 32 bits."""
  if u.op is Ops.SIZE: return bool(u.arg.wide)
  if u.op is Ops.SPECIAL and isinstance(u.arg[-1], UOp): return wide(u.arg[-1])
  return any(map(wide, u.src))


# ---- terms and factors

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
  op, text, below = u.op._value_, str(u.arg), [_keys(s) for s in u.src]   # .value is a call of Python code
  digest = blake2b(repr((op, text, *[keys[0] for keys in below])).encode(), digest_size=16).hexdigest()
  return [digest, *[(op, text, tuple([keys[i] for keys in below])) for i in range(_LEVELS)]]


def key_of(u: UOp) -> Any:
  """What nodes are put in a fixed order by."""
  return _keys(u)[-1]


def factors(t: UOp | None) -> tuple[UOp, ...]:
  """The atoms that a term without its number is a product of; None is the constant's."""
  out: list[UOp] = []
  while t is not None and t.op is Ops.ALU and t.arg is BinaryOps.MUL:
    t, last = t.src
    out.append(last)
  return () if t is None else (t, *reversed(out))


def conjuncts(c: UOp | None) -> tuple[UOp, ...]:
  """The conditions that all hold when ``c`` holds."""
  out: list[UOp] = []
  stack = [c] if c is not None else []
  while stack:
    c = stack.pop()
    if c.op is Ops.ALU and c.arg is BinaryOps.AND and c.dtype is dtypes.bool: stack.extend(c.src[::-1])
    elif c is not TRUE: out.append(c)
  return tuple(out)
