"""Notes on sizes while ntgrad.jit records a function for all values of them."""
from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Iterator, Sequence

from ntgrad.codegen import index as ix
from ntgrad.codegen.index import evaluator, negated, sizes_of
from ntgrad.codegen.ir import BinaryOps, Ops, UOp
from ntgrad.codegen.kernel import substitute
from ntgrad.graph import BoundInt, Derived, variable

VariableValues = tuple[int, ...]


class Trace:
  """A recording for all values of ``sizes``, which are ``values`` in it. ``lost`` says why it is for these values alone."""

  def __init__(self, sizes: Sequence[ix.Size], values: VariableValues):
    self.sizes, self.values = tuple(sizes), values
    self._known = dict(zip(self.sizes, values))
    self.looks: dict[variable.Looked, None] = {}             # comparisons that Python code made
    self.conditions: dict[UOp, None] = {}                    # what kernels and plans need
    self.numbers: dict[int, tuple[str, Any, Derived]] = {}   # memory of a number, by serial: its device, dtype and what it is
    self.lost = ""
    self._first: tuple[int, dict[UOp, UOp]] = 0, {}

  def expr(self, n: int) -> ix.Dim:
    """What an int is made of; itself where it is no value of these variables."""
    if type(n) is not BoundInt: return n
    return n.node if self._value(n.node) == int(n) else int(n)

  def known(self, n: int) -> int:
    """An int that is a Bound only as a value of these variables: one that stayed from another call is not. Of sizes that were
    found equal it is made of the first."""
    if type(n) is not BoundInt: return n
    if not isinstance(self.expr(n), UOp): return int(n)
    return BoundInt.of(int(n), substitute((n.node,), first)[0]) if (first := self.first()) else n

  def first(self) -> dict[UOp, UOp]:
    """Sizes that must be equal to others (a comparison said so), each with the first of these."""
    seen = len(self.looks) + len(self.conditions)
    if seen != self._first[0]:
      to: dict[UOp, UOp] = {}
      for c in self.guards:
        terms, n = ix.linear(ix.sub(*c.src)) if c.op is Ops.ALU and c.arg is BinaryOps.CMPEQ else ((), 0)
        if n or len(terms) != 2 or terms[0][1] != -terms[1][1] or any(t.op is not Ops.SIZE for t, _ in terms): continue
        a, b = sorted([to.get(t, t) for t, _ in terms], key=lambda t: self.sizes.index(t.arg))
        if a is not b: to = {t: a if x is b else x for t, x in to.items()} | {b: a}
      self._first = seen, to
    return self._first[1]

  def holds(self, condition: UOp) -> None:
    """Note what is so now and must be for other values."""
    if condition.op is not Ops.CONST: self.conditions[condition] = None

  @property
  def guards(self) -> tuple[UOp, ...]:
    """All that must hold of other values."""
    out = dict(self.conditions)
    for x in self.looks:
      c = x.fn(x.a, x.b)
      value = self._value(c)
      if c.op is not Ops.CONST and value is not None and bool(value) is x.said: out[c if x.said else negated(c)] = None
    return tuple(out)

  def _value(self, node: UOp) -> int | None: return value_now(node, self._known.__getitem__)


def value_now(node: UOp, known: Callable[[ix.Size], int]) -> int | None:
  """What an expression is; None for one of sizes that are not known (KeyError)."""
  used = sizes_of((node,))
  try: return evaluator((node,), used)(list(map(known, used)))[0]
  except (KeyError, ZeroDivisionError): return None   # a quotient that stayed from another call


traces: list[Trace] = []   # of the recording under way


@contextmanager
def tracing(trace: Trace | None) -> Iterator[None]:
  """In the block sizes that are values of variables stay expressions."""
  if trace is not None:
    traces.append(trace)
    variable.looks.append(trace.looks)
  try: yield
  finally:
    if trace is not None:
      traces.remove(trace)
      variable.looks.pop()
