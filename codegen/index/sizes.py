"""Sizes that a launch gives: a program's arguments, and index expressions over SIZEs as text and as functions of the host."""
from __future__ import annotations

from functools import lru_cache
from typing import Any, Callable, Iterable, Sequence

from ..ir import ATOM, CONDITIONAL, PRODUCT, SHORT_PYTHON, UNARY, ArgumentError, DType, Text, dtypes, infix, inside
from ..ir.uop import COMPARE, BinaryOps, Ops, UOp, toposort
from . import algebra as ix
from .algebra import Dim as Dim

FOLDS: dict[Any, Callable[[UOp, UOp], UOp]] = {
  BinaryOps.ADD: ix.add, BinaryOps.SUB: ix.sub, BinaryOps.MUL: ix.mul, BinaryOps.IDIV: ix.fdiv, BinaryOps.MOD: ix.mod,
  BinaryOps.MAX: ix.greatest, BinaryOps.MIN: ix.least}
_SIGNS = {**{fn: SHORT_PYTHON[fn] for fn in (*FOLDS, *COMPARE) if fn in SHORT_PYTHON},
          BinaryOps.AND: (" and ", CONDITIONAL), BinaryOps.OR: (" or ", CONDITIONAL + 1)}


def sizes_of(exprs: Iterable[Dim]) -> tuple[ix.Size, ...]:
  """The sizes that expressions are made of, each once, in order of their names."""
  return _in_order(u.arg for u in toposort([e for e in exprs if isinstance(e, UOp)]) if u.op is Ops.SIZE)


def numbers(shape: Iterable[Dim]) -> tuple[int, ...]:
  """A shape of numbers. Raises ArgumentError where a size is known at the launch only."""
  out = tuple(shape)
  if all(isinstance(n, int) for n in out): return out  # type: ignore[return-value]
  raise ArgumentError(f"({', '.join(map(dim_text, out))}): sizes are numbers here")


def _in_order(sizes: Iterable[ix.Size]) -> tuple[ix.Size, ...]: return tuple(sorted(set(sizes), key=lambda s: (s.name, s.unit)))


def arguments(uops: Iterable[UOp]) -> dict[ix.Size, DType]:
  """What a launch of a linear program gives numbers for, in the order of its arguments, and their dtypes: the sizes that the
  program reads, and those that the number of its programs is made of (int64 where the program does not read them)."""
  read = {u.arg: u.dtype for u in uops if u.op is Ops.DEFINE_VAR}
  return {s: read.get(s, dtypes.int64) for s in _in_order((*read, *sizes_of(u.arg[2] for u in uops if u.op is Ops.SPECIAL)))}


def uncast(u: UOp) -> UOp:
  """An integer of the linear form without CASTs of ints."""
  while u.op is Ops.CAST and u.src[0].dtype.kind in "iu": u = u.src[0]
  return u


def int_as_index(u: UOp) -> UOp:
  """An int as an index: an axis that was cast to dtypes which hold it is the axis again."""
  while u.op is Ops.CAST and u.src[0].dtype.kind in "iu":
    low, high = ix.bounds(u.src[0])
    if low < dtypes.min(u.dtype) or high > dtypes.max(u.dtype): break
    u = u.src[0]
  return ix.const(u.arg) if u.op is Ops.CONST else u if u.dtype is ix.INT else UOp(Ops.CAST, ix.INT, (u,))


def as_sizes(u: UOp) -> UOp | None:
  """An integer of the linear form as an index over SIZEs; None unless it is made of numbers and DEFINE_VARs alone."""
  u = uncast(u)
  if u.dtype.kind not in "iu": return None
  if u.op is Ops.CONST: return ix.const(u.arg)
  if u.op is Ops.DEFINE_VAR: return u.arg.node
  if u.op is not Ops.ALU or u.arg not in FOLDS: return None
  a, b = (as_sizes(s) for s in u.src)
  if a is None or b is None or u.arg in (BinaryOps.IDIV, BinaryOps.MOD) and ix.vmin(b) < 1: return None
  return FOLDS[u.arg](a, b)


def size_terms(index: UOp) -> tuple[dict[UOp, UOp], UOp]:
  """An index of the linear form as its terms and what is left, factors and rest being indices over SIZEs:
  (gidx0*64 + r0)*K + M -> {gidx0: 64*K, r0: K}, M."""
  found: dict[UOp, UOp] = {}
  rest = ix.ZERO
  left = [(index, ix.ONE)]
  while left:
    u, factor = left.pop()
    u = uncast(u)
    sizes = [as_sizes(s) for s in u.src] if u.arg is BinaryOps.MUL else []
    if (known := as_sizes(u)) is not None: rest = ix.add(rest, ix.mul(factor, known))
    elif u.arg is BinaryOps.ADD: left += [(s, factor) for s in reversed(u.src)]
    elif sizes and sizes[1] is not None: left.append((u.src[0], ix.mul(factor, sizes[1])))
    elif sizes and sizes[0] is not None: left.append((u.src[1], ix.mul(factor, sizes[0])))
    else: found[u] = ix.add(found.get(u, ix.ZERO), factor)
  return {x: k for x, k in found.items() if k is not ix.ZERO}, rest


def size_text(size: ix.Size) -> str:
  """``N``, or ``N/16`` for one that counts units of 16."""
  return size.name if size.unit == 1 else f"{size.name}/{size.unit}"


def bounds_text(size: ix.Size) -> str:
  """A size and its bounds, where there are any: ``N/16 (1..64)``, ``N (1..)``."""
  low, high = ("" if n is None else str(n) for n in (size.lower, size.upper))
  return size_text(size) + (f" ({low}..{high})" if low or high else "")


def dim_text(expr: Dim, name: Callable[[ix.Size], str] = size_text, floor: Callable[[BinaryOps], str] | None = None) -> str:
  """Sizes, by their ``name``, and numbers as Python writes them: ``(N + 63)//64``; ``floor`` names what divides below 0."""
  if isinstance(expr, int): return str(expr)
  out: dict[UOp, Text] = {}
  for u in toposort((expr,)):
    op, arg = u.op, u.arg
    operands = [out[s] for s in u.src]
    if op is Ops.CONST: out[u] = repr(arg), ATOM if arg >= 0 else UNARY
    elif op is Ops.SIZE: out[u] = (called := name(arg)), PRODUCT if "/" in called else ATOM
    elif arg in (BinaryOps.MAX, BinaryOps.MIN): out[u] = f"{arg.name.lower()}({', '.join(t for t, _ in operands)})", ATOM
    elif arg is BinaryOps.POW: out[u] = "**".join(map(inside, operands)), UNARY
    elif floor and arg in (BinaryOps.IDIV, BinaryOps.MOD) and ix.vmin(u.src[0]) < 0:
      out[u] = f"{floor(arg)}({', '.join(t for t, _ in operands)})", ATOM
    elif op is Ops.ALU and arg in _SIGNS: out[u] = infix(arg, operands[0], operands[1], _SIGNS)
    else: raise ArgumentError(f"{u} is no expression of sizes and numbers")
  return out[expr][0]


def arg_text(arg: Any) -> str:
  """The arg of a SIZE, DEFINE_VAR or SPECIAL as listings have it."""
  if isinstance(arg, ix.Size): return bounds_text(arg)
  if not isinstance(arg, tuple): return str(arg)
  return f"({', '.join(dim_text(a) if isinstance(a, UOp) and ix.of_sizes(a) else repr(a) for a in arg)})"


@lru_cache(maxsize=4096)
def evaluator(exprs: tuple[Dim, ...], sizes: tuple[ix.Size, ...]) -> Callable[[Sequence[int]], tuple[int, ...]]:
  """A function from numbers for ``sizes``, in order, to those of the expressions (conditions give a bool):
  (cdiv(N, 64), 4), (N,) -> lambda v: ((v[0] + 63)//64, 4). Raises ArgumentError for an expression of anything else."""
  def value(size: ix.Size) -> str:
    if size in sizes: return f"v[{sizes.index(size)}]"
    raise ArgumentError(f"{bounds_text(size)} is none of the sizes {', '.join(map(bounds_text, sizes)) or '(there are none)'}")
  parts = "".join(f"{dim_text(e, value)}, " for e in exprs)
  return eval(f"lambda v: ({parts})")
