"""The functions of ALU nodes, a row each: what it costs, which dtypes it takes, what it combines with, its gradient.
CONTRIBUTING.md ("An elementwise operation") says what a new one takes."""
# ruff: noqa: F403, F405 - what makes gradients is elementwise.py's
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Callable, Sequence

from .dtype import DType, Number, dtypes, held
from .elementwise import *
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
  # 1 / (1 + exp(y)), the sigmoid: its derivative from its own value is finite where exp overflows
  if x.arg is BinaryOps.ADD and x.src[0].arg is UnaryOps.EXP and const_value(x.src[1]) == 1:
    return x.src[0].src[0], negative(product(g, mul(u, sub(1.0, u))))
  return negative(product(g, mul(u, u)))


def _base(u: UOp, g: UOp) -> UOp:
  x, n = u.src
  out = product(g, product(n, power(x, sub(n, 1.0))))
  return out if const_value(n) is not None else where(eq(n, 0.0), 0.0, out)


def _exponent(u: UOp, g: UOp) -> UOp:
  x, n = u.src
  out = product(g, mul(u, log(x)))
  # 0 ** n does not change with n from 0 on: its derivative is 0, where 0 * log(0) is NaN
  return out if const_value(x) else where(and_(eq(x, 0.0), le(0.0, n)), 0.0, out)


def _extreme(i: int) -> _Rule:
  """MAX and MIN: the gradient goes to the chosen source; equal ones share it. At a constant it is zero (relu at 0)."""
  def rule(u: UOp, g: UOp) -> UOp:
    pair = u.src[i], u.src[1 - i]
    chosen = lt(*(pair if u.arg is BinaryOps.MIN else pair[::-1]))
    return select(chosen, g) if const_value(pair[1]) is not None else where(chosen, g, select(eq(*u.src), scaled(g, 0.5)))
  return rule


# ---- the table
_ROWS = dict(
  NEG=_Function(gradient=(lambda u, g: negative(g),)),
  RECIP=_Function(5, 1, "f", (_recip,)),
  SQRT=_Function(6, 3, "f", (lambda u, g: quotient(scaled(g, 0.5), u),)),
  RSQRT=_Function(10, 3, "f", (lambda u, g: product(scaled(g, -0.5), quotient(u, u.src[0])),)),
  EXP=_Function(10, 6, "f", (lambda u, g: product(g, u),)),
  EXP2=_Function(10, 6, "f", (lambda u, g: product(scaled(g, math.log(2)), u),)),
  LOG=_Function(14, 6, "f", (lambda u, g: quotient(g, u.src[0]),)),
  LOG2=_Function(14, 6, "f", (lambda u, g: quotient(scaled(g, 1 / math.log(2)), u.src[0]),)),
  SIN=_Function(14, 10, "f", (lambda u, g: product(g, cos(u.src[0])),)),
  COS=_Function(14, 10, "f", (lambda u, g: negative(product(g, sin(u.src[0]))),)),
  TAN=_Function(24, 12, "f", (lambda u, g: product(g, add(mul(u, u), 1.0)),)),
  TANH=_Function(18, 10, "f", (lambda u, g: product(g, sub(1.0, mul(u, u))),)),
  ERF=_Function(24, 12, "f", (
    lambda u, g: product(g, scaled(exp(neg(mul(u.src[0], u.src[0]))), 2 / math.sqrt(math.pi))),)),
  ABS=_Function(gradient=(lambda u, g: where(lt(u.src[0], 0.0), negative(g), select(lt(0.0, u.src[0]), g)),)),
  FLOOR=_Function(), CEIL=_Function(), TRUNC=_Function(), ROUND=_Function(),
  NOT=_Function(takes="iub"),
  ISNAN=_Function(gives=dtypes.bool),
  ADD=_Function(boolean=BinaryOps.OR, identity=lambda d: 0, gradient=(lambda u, g: g,) * 2),
  SUB=_Function(boolean=BinaryOps.XOR, gradient=(lambda u, g: g, lambda u, g: negative(g))),
  MUL=_Function(boolean=BinaryOps.AND, identity=lambda d: 1,
                gradient=(lambda u, g: product(g, u.src[1]), lambda u, g: product(g, u.src[0]))),
  DIV=_Function(5, 2, "f", (lambda u, g: quotient(g, u.src[1]),
                            lambda u, g: negative(product(quotient(g, u.src[1]), u)))),
  IDIV=_Function(20, 4, "fiu"),
  # a % b is a - a // b * b, and the derivative of a // b is zero
  MOD=_Function(20, 4, "fiu", (lambda u, g: g, lambda u, g: negative(product(g, idiv(*u.src))))),
  MAX=_Function(3, boolean=BinaryOps.OR, identity=dtypes.min, gradient=(_extreme(0), _extreme(1))),
  MIN=_Function(3, boolean=BinaryOps.AND, identity=dtypes.max, gradient=(_extreme(0), _extreme(1))),
  POW=_Function(60, 20, "fiu", (_base, _exponent)),
  **dict.fromkeys(("CMPLT", "CMPLE", "CMPEQ", "CMPNE"), _Function(gives=dtypes.bool)),
  AND=_Function(takes="iub", identity=lambda d: dtypes.max(d) if d.kind in "bu" else -1),
  OR=_Function(takes="iub", identity=lambda d: 0),
  XOR=_Function(takes="iub", identity=lambda d: 0),
  SHL=_Function(takes="iu"), SHR=_Function(takes="iu"),
  GCD=_Function(120, 120, "iu"),   # of 0 and 0 it is 0
  THREEFRY=_Function(100, 80, dtypes.uint64),
  WHERE=_Function(takes="fiube", gradient=(None, lambda u, g: select(u.src[0], g), lambda u, g: where(u.src[0], 0.0, g))))
FUNCTIONS: dict[Fn, _Function] = {
  fn: _ROWS[fn.name] for kind in (UnaryOps, BinaryOps, TernaryOps) for fn in kind if fn.name in _ROWS}
COMBINERS = tuple(fn for fn, about in FUNCTIONS.items() if about.identity is not None)
