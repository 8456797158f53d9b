"""Questions about run-time sizes that bounds do not answer: is N == M, N > 16?

A kernel with run-time sizes is made with hints: likely values of the sizes. A question is answered for the hints, and the answer
is noted as a condition of the kernel. So the kernel serves all sizes that have the same answers, which the host checks before a
launch."""
from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import Iterator

from ..ir import BinaryOps, Ops, ShapeError, UOp, dtypes
from . import algebra as ix
from .sizes import Dim, dim_text, evaluator, sizes_of

_NOT = {BinaryOps.CMPLT: BinaryOps.CMPLE, BinaryOps.CMPLE: BinaryOps.CMPLT,   # of the operands in the other order
        BinaryOps.CMPEQ: BinaryOps.CMPNE, BinaryOps.CMPNE: BinaryOps.CMPEQ}
_made: ContextVar[dict[UOp, None] | None] = ContextVar("assumptions", default=None)


@contextmanager
def assuming() -> Iterator[dict[UOp, None]]:
  """Questions in the block are answered for the sizes' hints; gives the conditions that this takes, in order."""
  found: dict[UOp, None] = {}
  token = _made.set(found)
  try: yield found
  finally: _made.reset(token)


def assumes() -> bool: return _made.get() is not None   # whether questions about sizes are answered here


def condition_holds(condition: UOp) -> bool:
  """Whether a condition on sizes holds: what the bounds say, else what it is for the hints, which is assumed from here on.

  Raises ShapeError where nothing may be assumed."""
  if condition.op is Ops.CONST: return bool(condition.arg)
  found = _made.get()
  sizes = sizes_of((condition,))
  if found is None: raise ShapeError(f"{dim_text(condition)}: not known before {', '.join([s.name for s in sizes])} has a value")
  if condition in found: return True
  if (other := negated(condition)) in found: return False
  true, = evaluator((condition,), sizes)([ix.hint(s.node) for s in sizes])
  found[condition if true else other] = None
  return bool(true)


def negated(c: UOp) -> UOp:
  """The opposite of a comparison: a < b -> b <= a."""
  return UOp(Ops.ALU, dtypes.bool, (c.src[::-1] if c.arg in (BinaryOps.CMPLT, BinaryOps.CMPLE) else c.src), _NOT[c.arg])


def same_size(a: Dim, b: Dim) -> bool:
  """a == b"""
  return a == b if isinstance(a, int) and isinstance(b, int) else a is b or condition_holds(ix.eq(ix.node(a), ix.node(b)))


def below(a: Dim, b: Dim) -> bool:
  """a < b"""
  return a < b if isinstance(a, int) and isinstance(b, int) else condition_holds(ix.lt(ix.node(a), ix.node(b)))


greater, lesser = ix.of_dims(max, ix.greatest), ix.of_dims(min, ix.least)   # of two sizes
