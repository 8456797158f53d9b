"""The functions of ALU nodes, an entry each: what it costs, which dtypes it takes, what it combines with, its gradient.

A new one is a member of UnaryOps, BinaryOps or TernaryOps, an entry of :data:`FUNCTIONS`, and a text or function in each
backend: docs/architecture.md ("The tensor graph", "Functions") has the files. ``tests/unit/test_functions.py`` says what is
missing where."""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Callable, Sequence

from . import elementwise as el
from .dtype import DType, Number, dtypes, held
from .uop import BinaryOps, TernaryOps, UnaryOps, UOp

Fn = UnaryOps | BinaryOps | TernaryOps
# a node and the gradient of its value -> the gradient of one of its sources; or a node further down, and that one's
_Rule = Callable[[UOp, UOp], UOp | tuple[UOp, UOp]]


@dataclass(frozen=True)
class _Function:
  """What is known of a function, whichever backend computes it."""
  cost: int = 1                                      # vector operations, roughly, as a CPU computes it
  recompute: int = 1                                 # ALU operations that it counts as where a kernel would compute it again
  takes: str | DType = "fiub"                        # kinds of dtypes of its sources (of WHERE: of the values), or the only one
  gradient: Sequence[_Rule | None] = ()              # a rule for each source; empty: zero everywhere
  gives: DType | None = None                         # None: the sources' dtype
  boolean: BinaryOps | None = None                   # the function that it is on bools, where that is another
  identity: Callable[[DType], Number] | None = None  # of a combiner: its identity element


_WORDS = {"f": "floats", "iub": "ints or bool", "iu": "ints", "fiu": "numbers", "fiub": "numbers and bools"}


def refusal(fn: Fn, dtype: DType, name: str = "") -> str | None:
  """Why a function (``name`` in the message) does not take sources of a scalar dtype; None where it does."""
  takes = FUNCTIONS[fn].takes
  if dtype.kind in takes if isinstance(takes, str) else dtype is takes: return None
  return f"{name or fn} takes {_WORDS[takes] if isinstance(takes, str) else takes.name}, got {dtype}" + \
    (" (scales; cast them first, as in x.float())" if dtype.kind == "e" else "")


def identity(combiner: BinaryOps, dtype: DType) -> Number:
  """The identity element of a combiner: combined with it, every value is unchanged, as a Python number of the
  dtype's kind: 0.0 for a sum of floats. Raises KeyError for another function."""
  found = FUNCTIONS[combiner].identity
  if found is None: raise KeyError(combiner)
  return held(found(dtype.scalar()), dtype.scalar())


# ---- gradients
def _recip(u: UOp, g: UOp) -> UOp | tuple[UOp, UOp]:
  x = u.src[0]
  # 1 / (1 + el.exp(y)), the sigmoid: its derivative from its own value is finite where exp overflows
  if x.arg is BinaryOps.ADD and x.src[0].arg is UnaryOps.EXP and el.const_value(x.src[1]) == 1:
    return x.src[0].src[0], el.negative(el.product(g, el.mul(u, el.sub(1.0, u))))
  return el.negative(el.product(g, el.mul(u, u)))


def _tanh(u: UOp, g: UOp) -> UOp: return el.product(g, el.sub(1.0, el.mul(u, u)))
def _tan(u: UOp, g: UOp) -> UOp: return el.product(g, el.add(el.mul(u, u), 1.0))
def _erf(u: UOp, g: UOp) -> UOp:
  return el.product(g, el.scaled(el.exp(el.neg(el.mul(u.src[0], u.src[0]))), 2 / math.sqrt(math.pi)))


def _abs(u: UOp, g: UOp) -> UOp:
  x = u.src[0]
  return el.where(el.lt(x, 0.0), el.negative(g), el.select(el.lt(0.0, x), g))


def _base(u: UOp, g: UOp) -> UOp:
  x, n = u.src
  out = el.product(g, el.product(n, el.power(x, el.sub(n, 1.0))))
  return out if el.const_value(n) is not None else el.where(el.eq(n, 0.0), 0.0, out)


def _exponent(u: UOp, g: UOp) -> UOp:
  x, n = u.src
  out = el.product(g, el.mul(u, el.log(x)))
  if el.const_value(x): return out
  # 0 ** n does not change with n from 0 on: its derivative is 0, where 0 * el.log(0) is NaN
  return el.where(el.and_(el.eq(x, 0.0), el.le(0.0, n)), 0.0, out)


def _extreme(i: int) -> _Rule:
  """MAX and MIN: the gradient goes to the chosen source; equal ones share it. At a constant it is zero (relu at 0)."""
  def rule(u: UOp, g: UOp) -> UOp:
    pair = u.src[i], u.src[1 - i]
    chosen = el.lt(*(pair if u.arg is BinaryOps.MIN else pair[::-1]))
    if el.const_value(pair[1]) is not None: return el.select(chosen, g)
    return el.where(chosen, g, el.select(el.eq(*u.src), el.scaled(g, 0.5)))
  return rule


# ---- the table
def _all_ones(d: DType) -> Number: return dtypes.max(d) if d.kind in "bu" else -1


_BY_NAME = dict(
  NEG=_Function(gradient=(lambda u, g: el.negative(g),)),
  RECIP=_Function(5, 1, "f", (_recip,)),
  SQRT=_Function(6, 3, "f", (lambda u, g: el.quotient(el.scaled(g, 0.5), u),)),
  RSQRT=_Function(10, 3, "f", (lambda u, g: el.product(el.scaled(g, -0.5), el.quotient(u, u.src[0])),)),
  EXP=_Function(10, 6, "f", (lambda u, g: el.product(g, u),)),
  EXP2=_Function(10, 6, "f", (lambda u, g: el.product(el.scaled(g, math.log(2)), u),)),
  LOG=_Function(14, 6, "f", (lambda u, g: el.quotient(g, u.src[0]),)),
  LOG2=_Function(14, 6, "f", (lambda u, g: el.quotient(el.scaled(g, 1 / math.log(2)), u.src[0]),)),
  SIN=_Function(14, 10, "f", (lambda u, g: el.product(g, el.unary(UnaryOps.COS, u.src[0])),)),
  COS=_Function(14, 10, "f", (lambda u, g: el.negative(el.product(g, el.unary(UnaryOps.SIN, u.src[0]))),)),
  TAN=_Function(24, 12, "f", (_tan,)),
  TANH=_Function(18, 10, "f", (_tanh,)),
  ERF=_Function(24, 12, "f", (_erf,)),
  ABS=_Function(gradient=(_abs,)),
  **dict.fromkeys(("FLOOR", "CEIL", "TRUNC", "ROUND"), _Function()),
  NOT=_Function(takes="iub"),
  ISNAN=_Function(gives=dtypes.bool),
  ADD=_Function(boolean=BinaryOps.OR, identity=lambda d: 0, gradient=(lambda u, g: g,) * 2),
  SUB=_Function(boolean=BinaryOps.XOR, gradient=(lambda u, g: g, lambda u, g: el.negative(g))),
  MUL=_Function(
    boolean=BinaryOps.AND, identity=lambda d: 1,
    gradient=(lambda u, g: el.product(g, u.src[1]), lambda u, g: el.product(g, u.src[0]))),
  DIV=_Function(
    5, 2, "f", (lambda u, g: el.quotient(g, u.src[1]), lambda u, g: el.negative(el.product(el.quotient(g, u.src[1]), u)))
  ),
  IDIV=_Function(20, 4, "fiu"),
  MOD=_Function(
    20, 4, "fiu",  # a % b is a - a // b * b, and the derivative of a // b is zero
    (lambda u, g: g, lambda u, g: el.negative(el.product(g, el.idiv(*u.src))))),
  MAX=_Function(3, boolean=BinaryOps.OR, identity=dtypes.min, gradient=(_extreme(0), _extreme(1))),
  MIN=_Function(3, boolean=BinaryOps.AND, identity=dtypes.max, gradient=(_extreme(0), _extreme(1))),
  POW=_Function(60, 20, "fiu", (_base, _exponent)),
  **dict.fromkeys(("CMPLT", "CMPLE", "CMPEQ", "CMPNE"), _Function(gives=dtypes.bool)),
  AND=_Function(takes="iub", identity=_all_ones),
  OR=_Function(takes="iub", identity=lambda d: 0),
  XOR=_Function(takes="iub", identity=lambda d: 0),
  SHL=_Function(takes="iu"),
  SHR=_Function(takes="iu"),
  THREEFRY=_Function(100, 80, dtypes.uint64),
  WHERE=_Function(
    takes="fiube",
    gradient=(None, lambda u, g: el.select(u.src[0], g), lambda u, g: el.where(u.src[0], 0.0, g))))
FUNCTIONS: dict[Fn, _Function] = {fn: _BY_NAME[fn.name] for kind in (UnaryOps, BinaryOps, TernaryOps) for fn in kind}
COMBINERS = tuple(fn for fn, about in FUNCTIONS.items() if about.identity is not None)
