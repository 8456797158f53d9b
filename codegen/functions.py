"""The functions of ALU nodes, an entry each: what it costs, which dtypes it takes, what it combines with, its gradient.

A new one is a member of UnaryOps, BinaryOps or TernaryOps, an entry of :data:`FUNCTIONS`, and its spelling in each backend: on numpy arrays
(``backends/numpy/functions.py``), in OpenCL C (``backends/opencl/renderer.py``), in Triton (``backends/cuda/expressions.py``).
``tests/unit/test_functions.py`` says what is missing where.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, Sequence

from .dtype import DType, dtypes
from .elementwise import binary, const, const_value, mul, negative, product, quotient, scalar, scaled, select, sub, unary, where
from .uop import BinaryOps, Ops, TernaryOps, UnaryOps, UOp

Pairs = Sequence[tuple[UOp, UOp]]
Need = set[UOp]  # sources outside it lead to no target: their gradients need not be built
Rule = Callable[[UOp, UOp, Need], Pairs]


@dataclass(frozen=True)
class Function:
  """What is true of a function wherever it is computed."""
  cost: int = 1                                      # vector operations, roughly, as a CPU computes it
  again: int = 1                                     # how many ALU operations it counts as where the scheduler would compute it twice
  takes: str | DType = "fiub"                        # kinds of dtypes of its sources (of WHERE: of the values), or the only one
  gives: DType | None = None                         # None: the sources' dtype
  boolean: BinaryOps | None = None                   # what it is on bools, where that has another name
  identity: Callable[[DType], Any] | None = None     # of a combiner: the value that leaves everything unchanged
  gradient: Rule | None = None                       # a node and the gradient of its value -> its sources and theirs; None: no slope anywhere


_WORDS = {"f": "floats", "iub": "ints or bool", "iu": "ints", "fiu": "numbers"}


def refusal(fn: Any, dtype: DType, name: str = "") -> str | None:
  """Why a function, called ``name`` there, has no sources of a (scalar) dtype; None where it takes them."""
  takes = FUNCTIONS[fn].takes
  if dtype.kind in takes if isinstance(takes, str) else dtype is takes: return None
  return f"{name or fn} takes {_WORDS[takes] if isinstance(takes, str) else takes.name}, got {dtype}"


def identity(combiner: BinaryOps, dtype: DType) -> Any:
  """The value that a combiner leaves everything unchanged with. Raises KeyError for a function that combines nothing."""
  found = FUNCTIONS[combiner].identity
  if found is None: raise KeyError(combiner)
  return found(dtype.scalar())


# ---- gradients of one value
def _one(rule: Callable[[UOp, UOp, UOp], UOp]) -> Rule:
  """A rule from what a node, its source and the node's gradient give: the source's."""
  return lambda u, g, need: [(u.src[0], rule(u, u.src[0], g))]


def _recip(u: UOp, g: UOp, need: Need) -> Pairs:
  x = u.src[0]
  # 1 / (1 + exp(y)), the sigmoid: its slope from its value stays finite where exp does not
  if x.op is Ops.ALU and x.arg is BinaryOps.ADD and x.src[0].arg is UnaryOps.EXP and const_value(x.src[1]) == 1:
    return [(x.src[0].src[0], negative(product(g, mul(u, sub(const(1.0, u.dtype, u.shape), u)))))]
  return [(x, negative(product(g, mul(u, u))))]


def _tanh(u: UOp, x: UOp, g: UOp) -> UOp: return product(g, sub(const(1.0, u.dtype, u.shape), mul(u, u)))
def _tan(u: UOp, x: UOp, g: UOp) -> UOp: return product(g, scalar(BinaryOps.ADD, mul(u, u), 1.0))
def _erf(u: UOp, x: UOp, g: UOp) -> UOp:
  return product(g, scaled(unary(UnaryOps.EXP, unary(UnaryOps.NEG, mul(x, x))), 2 / math.sqrt(math.pi)))


def _abs(u: UOp, x: UOp, g: UOp) -> UOp:
  zero = const(0.0, x.dtype, x.shape)
  return where(binary(BinaryOps.CMPLT, x, zero), negative(g), select(binary(BinaryOps.CMPLT, zero, x), g))


# ---- gradients of two and three values
def _pow(u: UOp, g: UOp, need: Need) -> Pairs:
  x, n = u.src
  zero = const(0.0, g.dtype, g.shape)
  out = []
  if x in need:
    gx = product(g, product(n, binary(BinaryOps.POW, x, scalar(BinaryOps.SUB, n, 1.0))))
    out.append((x, gx if const_value(n) is not None else where(scalar(BinaryOps.CMPEQ, n, 0.0), zero, gx)))
  if n in need:
    gn = product(g, mul(u, unary(UnaryOps.LOG, x)))
    if not const_value(x):  # 0 ** n has no slope in n from 0 on, and that zero is not to be multiplied by its logarithm
      flat = binary(BinaryOps.AND, scalar(BinaryOps.CMPEQ, x, 0.0), binary(BinaryOps.CMPLE, zero, n))
      gn = where(flat, zero, gn)
    out.append((n, gn))
  return out


def _extreme(u: UOp, g: UOp, need: Need) -> Pairs:
  """MAX and MIN: to the one chosen; equal ones share it. A constant is a limit: no slope where it is reached (relu at 0)."""
  a, b = u.src
  def chosen(p: UOp, q: UOp) -> UOp: return binary(BinaryOps.CMPLT, *((p, q) if u.arg is BinaryOps.MIN else (q, p)))
  if const_value(b) is not None: return [(a, select(chosen(a, b), g))]
  if const_value(a) is not None: return [(b, select(chosen(b, a), g))]
  half = select(binary(BinaryOps.CMPEQ, a, b), scaled(g, 0.5))
  return [(a, where(chosen(a, b), g, half)), (b, where(chosen(b, a), g, half))]


def _mod(u: UOp, g: UOp, need: Need) -> Pairs:
  """a % b is a - a // b * b, and a // b has no slope."""
  a, b = u.src
  out = [(a, g)]
  if b in need: out.append((b, negative(product(g, binary(BinaryOps.IDIV, a, b)))))
  return out


def _sub(u: UOp, g: UOp, need: Need) -> Pairs:
  a, b = u.src
  return [(a, g), (b, negative(g))] if b in need else [(a, g)]


def _mul(u: UOp, g: UOp, need: Need) -> Pairs:
  a, b = u.src
  if b not in need: return [(a, product(g, b))]
  return [(a, product(g, b)), (b, product(g, a))] if a in need else [(b, product(g, a))]


def _where(u: UOp, g: UOp, need: Need) -> Pairs:
  condition, yes, no = u.src
  out = [(yes, select(condition, g))] if yes in need else []
  if no in need: out.append((no, where(condition, const(0.0, g.dtype, g.shape), g)))
  return out


def _div(u: UOp, g: UOp, need: Need) -> Pairs:
  a, b = u.src
  ga = quotient(g, b)
  return [(a, ga), (b, negative(product(ga, u)))] if b in need else [(a, ga)]


# ---- the table
def _all_ones(d: DType) -> Any: return dtypes.max(d) if d.kind in "bu" else -1


FUNCTIONS: dict[Any, Function] = {
  UnaryOps.NEG: Function(gradient=_one(lambda u, x, g: negative(g))),
  UnaryOps.RECIP: Function(5, takes="f", gradient=_recip),
  UnaryOps.SQRT: Function(6, 3, "f", gradient=_one(lambda u, x, g: quotient(scaled(g, 0.5), u))),
  UnaryOps.RSQRT: Function(10, 3, "f", gradient=_one(lambda u, x, g: product(scaled(g, -0.5), quotient(u, x)))),
  UnaryOps.EXP: Function(10, 6, "f", gradient=_one(lambda u, x, g: product(g, u))),
  UnaryOps.EXP2: Function(10, 6, "f", gradient=_one(lambda u, x, g: product(scaled(g, math.log(2)), u))),
  UnaryOps.LOG: Function(14, 6, "f", gradient=_one(lambda u, x, g: quotient(g, x))),
  UnaryOps.LOG2: Function(14, 6, "f", gradient=_one(lambda u, x, g: quotient(scaled(g, 1 / math.log(2)), x))),
  UnaryOps.SIN: Function(14, 10, "f", gradient=_one(lambda u, x, g: product(g, unary(UnaryOps.COS, x)))),
  UnaryOps.COS: Function(14, 10, "f", gradient=_one(lambda u, x, g: negative(product(g, unary(UnaryOps.SIN, x))))),
  UnaryOps.TAN: Function(24, 12, "f", gradient=_one(_tan)),
  UnaryOps.TANH: Function(18, 10, "f", gradient=_one(_tanh)),
  UnaryOps.ERF: Function(24, 12, "f", gradient=_one(_erf)),
  UnaryOps.ABS: Function(gradient=_one(_abs)),
  **{fn: Function() for fn in (UnaryOps.FLOOR, UnaryOps.CEIL, UnaryOps.TRUNC, UnaryOps.ROUND)},
  UnaryOps.NOT: Function(takes="iub"),
  UnaryOps.ISNAN: Function(gives=dtypes.bool),
  BinaryOps.ADD: Function(boolean=BinaryOps.OR, identity=lambda d: 0, gradient=lambda u, g, need: [(s, g) for s in u.src]),
  BinaryOps.SUB: Function(boolean=BinaryOps.XOR, gradient=_sub),
  BinaryOps.MUL: Function(boolean=BinaryOps.AND, identity=lambda d: 1, gradient=_mul),
  BinaryOps.DIV: Function(5, 2, "f", gradient=_div),
  BinaryOps.IDIV: Function(20, 4, "fiu"),
  BinaryOps.MOD: Function(20, 4, "fiu", gradient=_mod),
  BinaryOps.MAX: Function(3, boolean=BinaryOps.OR, identity=dtypes.min, gradient=_extreme),
  BinaryOps.MIN: Function(3, boolean=BinaryOps.AND, identity=dtypes.max, gradient=_extreme),
  BinaryOps.POW: Function(60, 20, "fiu", gradient=_pow),
  **{fn: Function(gives=dtypes.bool) for fn in (BinaryOps.CMPLT, BinaryOps.CMPLE, BinaryOps.CMPEQ, BinaryOps.CMPNE)},
  BinaryOps.AND: Function(takes="iub", identity=_all_ones),
  BinaryOps.OR: Function(takes="iub", identity=lambda d: 0),
  BinaryOps.XOR: Function(takes="iub", identity=lambda d: 0),
  BinaryOps.SHL: Function(takes="iu"),
  BinaryOps.SHR: Function(takes="iu"),
  BinaryOps.THREEFRY: Function(100, 80, dtypes.uint64),
  TernaryOps.WHERE: Function(gradient=_where),
}
COMBINERS = tuple(fn for fn, about in FUNCTIONS.items() if about.identity is not None)
