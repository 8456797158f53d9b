"""Numbers for sizes: index expressions over SIZEs as a function that the host calls before a launch."""
from __future__ import annotations

from functools import lru_cache
from typing import Callable, Iterable, Sequence

from . import index as ix
from .errors import ArgumentError
from .uop import BinaryOps, Ops, UOp, toposort

Dim = ix.Dim
_INFIX = {
  BinaryOps.ADD: "+", BinaryOps.SUB: "-", BinaryOps.MUL: "*", BinaryOps.IDIV: "//", BinaryOps.MOD: "%", BinaryOps.POW: "**",
  BinaryOps.CMPLT: "<", BinaryOps.CMPLE: "<=", BinaryOps.CMPEQ: "==", BinaryOps.CMPNE: "!=", BinaryOps.AND: "and",
  BinaryOps.OR: "or"}
_CALL = {BinaryOps.MAX: "max", BinaryOps.MIN: "min"}


def sizes_of(exprs: Iterable[Dim]) -> tuple[ix.Size, ...]:
  """The sizes that expressions are made of, each once, in order of their names."""
  nodes = toposort([e for e in exprs if isinstance(e, UOp)])
  return tuple(sorted({u.arg for u in nodes if u.op is Ops.SIZE}, key=lambda s: (s.name, s.unit)))


@lru_cache(maxsize=4096)
def evaluator(exprs: tuple[Dim, ...], sizes: tuple[ix.Size, ...]) -> Callable[[Sequence[int]], tuple[int, ...]]:
  """A function from numbers for ``sizes``, in order, to those of the expressions (conditions give a bool):
  (cdiv(N, 64), 4), (N,) -> lambda v: ((v[0] + 63)//64, 4). Raises ArgumentError for an expression of anything else."""
  text: dict[UOp, str] = {}
  for u in toposort([e for e in exprs if isinstance(e, UOp)]):
    if u.op is Ops.CONST: text[u] = repr(u.arg)
    elif u.op is Ops.SIZE and u.arg in sizes: text[u] = f"v[{sizes.index(u.arg)}]"
    elif u.op is Ops.ALU and u.arg in _CALL: text[u] = f"{_CALL[u.arg]}({text[u.src[0]]}, {text[u.src[1]]})"
    elif u.op is Ops.ALU and u.arg in _INFIX: text[u] = f"({text[u.src[0]]} {_INFIX[u.arg]} {text[u.src[1]]})"
    else: raise ArgumentError(f"{u} is no expression of {', '.join(s.name for s in sizes) or 'numbers'}")
  parts = "".join([f"{text[e] if isinstance(e, UOp) else e}, " for e in exprs])
  found: Callable[[Sequence[int]], tuple[int, ...]] = eval(f"lambda v: ({parts})")
  return found
