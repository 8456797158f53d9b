"""Expressions over sizes as expressions of sympy, and back, and questions that only sympy answers, which is loaded for them."""
from __future__ import annotations

import operator
import sys
import threading
from functools import lru_cache, reduce
from typing import Any, Callable, Mapping

from ntgrad.codegen import index as ix
from ntgrad.codegen.index import from_parts, size_nodes, text_of
from ntgrad.codegen.ir import ArgumentError, BinaryOps, Ops, UOp, toposort

_SECONDS = 0.5   # for one question
# operations that Python's operators do of ints and of sympy's expressions
PLAIN_OPERATORS: dict[BinaryOps, Callable[[Any, Any], Any]] = {
  BinaryOps.ADD: operator.add, BinaryOps.MUL: operator.mul, BinaryOps.POW: operator.pow}


def is_sympy(x: object) -> bool:
  """Whether it is an expression of sympy."""
  sympy = sys.modules.get("sympy")   # who has one of its expressions has loaded it
  return sympy is not None and isinstance(x, sympy.Basic)


def to_sympy(u: UOp) -> Any:
  """An expression of sympy, whose symbols are integers with what is known of their sign."""
  import sympy
  make: dict[BinaryOps, Callable[[Any, Any], Any]] = {
    **PLAIN_OPERATORS, BinaryOps.MOD: sympy.Mod, BinaryOps.IDIV: lambda a, b: sympy.floor(a / b), BinaryOps.MAX: sympy.Max,
    BinaryOps.MIN: sympy.Min}
  got: dict[UOp, Any] = {}
  for n in toposort((u,)):
    if n.op is Ops.CONST: got[n] = sympy.Integer(n.arg)
    elif n.op is Ops.SIZE:
      sign = "integer" if n.arg.lower is None or n.arg.lower < 0 else "positive" if n.arg.lower else "nonnegative"
      got[n] = sympy.Symbol(n.arg.name, **{"integer": True, sign: True})
    else: got[n] = make[n.arg](*(got[s] for s in n.src))
  return got[u]


Ratio = tuple[UOp, UOp]   # numerator and denominator


def from_sympy(e: Any) -> UOp:
  """An expression of sympy as an index. Raises ArgumentError for what is no whole number."""
  import sympy
  def made(n: Any, known: Mapping[Any, Ratio]) -> Ratio:
    args = [known[a] for a in n.args]
    tops, bottoms = [a for a, _ in args], [b for _, b in args]
    if n.is_Rational: return ix.const(int(n.p)), ix.const(int(n.q))
    if n.is_Symbol:
      return UOp(Ops.SIZE, ix.INT, (), ix.Size(n.name, 1 if n.is_positive else 0 if n.is_nonnegative else None)), ix.ONE
    if n.is_Mul: return reduce(ix.mul, tops), reduce(ix.mul, bottoms)
    if n.is_Add:
      others = [reduce(ix.mul, (b for j, b in enumerate(bottoms) if j != i), ix.ONE) for i in range(len(args))]
      return reduce(ix.add, map(ix.mul, tops, others)), reduce(ix.mul, bottoms)
    if n.is_Pow and n.exp.is_Integer:
      k = ix.const(abs(int(n.exp)))
      return (ix.power(tops[0], k), ix.power(bottoms[0], k)) if n.exp >= 0 else (ix.power(bottoms[0], k), ix.power(tops[0], k))
    if n.func is sympy.floor: return ix.fdiv(*args[0]), ix.ONE
    if n.func is sympy.ceiling: return ix.cdiv(*args[0]), ix.ONE
    if (each := {sympy.Mod: ix.mod, sympy.Max: ix.greatest, sympy.Min: ix.least}.get(n.func)) is not None:
      return reduce(each, [_whole(e, a) for a in args]), ix.ONE
    raise ArgumentError(f"{e}: {n.func.__name__} has no meaning for sizes; + - * // % ** floor, ceiling, Mod, Max and Min have")
  return _whole(e, from_parts(e, lambda n: n.args, made))


def _whole(e: Any, x: Ratio) -> UOp:
  top, bottom = x
  q = ix.fdiv(top, bottom)
  if ix.mul(q, bottom) is top: return q
  raise ArgumentError(f"{e}: ({text_of(top)}) / ({text_of(bottom)}) is not a whole number; floor and ceiling make it one")


# ---- what intervals leave open

@lru_cache(maxsize=4096)
def never_negative(u: UOp) -> bool:
  """Whether sympy shows that a polynomial of sizes is 0 or more: asked once, for half a second. False says nothing."""
  if all(len(ix.factors(t)) < 2 for t, _ in ix.linear(u)[0]): return False   # of a sum of names, intervals say all there is
  import sympy  # not part of the half second
  answer: list[bool] = []
  def ask() -> None:
    e = to_sympy(u)
    for s in size_nodes(u):   # N = 3 + n, n >= 0
      if s.arg.lower is not None: e = e.subs(to_sympy(s), s.arg.lower + sympy.Symbol(s.arg.name, integer=True, nonnegative=True))
    answer.append(bool(sympy.expand(e).is_nonnegative or sympy.factor(e).is_nonnegative))
  asking = threading.Thread(target=ask, daemon=True)
  asking.start()
  asking.join(_SECONDS)
  return bool(answer and answer[0])


def as_comparison(e: Any) -> tuple[str, Any, Any] | None:
  """The operator and sides of a comparison of sympy; None for another expression."""
  if e.is_Relational: return str(e.rel_op), e.lhs, e.rhs
  return ("==", int(bool(e)), 1) if e.is_Boolean and not e.args else None   # one that sympy has decided


