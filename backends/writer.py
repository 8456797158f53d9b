"""What renderers share that write text: the lines so far, names, the texts of values, the assignments at a loop's end."""
from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import Callable, Container, Iterable, Sequence

from ntgrad.codegen.index import Size
from ntgrad.codegen.ir import ATOM, UNARY, DType, Ops, Text, UOp, dtypes, number_text
from ntgrad.codegen.kernel import accumulator, buffers_written

from .base import size_names


class Usage:
  """Who uses the values of a program, and where. ``sources`` says what a node's text names, once for each time. A block begins
  after a node of ``opens``, and ends where what holds it does."""

  def __init__(self, uops: Sequence[UOp], sources: Callable[[UOp], Iterable[UOp]], opens: Container[Ops]):
    self.users = defaultdict[UOp, list[int]](list)    # the places of a value's users
    self.writes = defaultdict[UOp, list[int]](list)   # of an accumulator's PHIs, and STOREs to a buffer
    self.blocks = list[tuple[UOp, ...]]()                        # those that each node stands in
    stack: tuple[UOp, ...] = ()
    for at, u in enumerate(uops):
      if u.op in (Ops.ENDLOOP, Ops.ENDIF, Ops.ENDWHILE): stack = stack[:stack.index(u.src[0])]
      self.blocks.append(stack)
      if u.op in opens: stack += (u,)
      for buffer in (accumulator(u),) if u.op is Ops.PHI else buffers_written(u): self.writes[buffer].append(at)
      for s in sources(u): self.users[s].append(at)

  def written(self, reads: Iterable[UOp], first: int, last: int) -> bool:
    """Whether any of these accumulators and buffers is written between two places."""
    return any(first < at < last for x in reads for at in self.writes[x])


class Writer:
  """One rendering. ``reads`` has the accumulators that the texts of values name."""
  reads: dict[UOp, frozenset[UOp]]
  end = ""                                 # of a statement

  def __init__(self, name: str, uops: Sequence[UOp], sizes: Iterable[Size], taken: re.Pattern[str], words: Iterable[str] = ()):
    """``taken`` and ``words`` are what a size cannot be called."""
    self.name = name
    own = {name, *words, *(u.arg[u.op is Ops.DEFINE_GLOBAL] for u in uops if u.op in (Ops.DEFINE_LOCAL, Ops.DEFINE_GLOBAL))}
    self.called = size_names(sizes, lambda called: called in own or taken.fullmatch(called) is not None)
    self.lines = list[str]()
    self.depth = 1
    self.text = dict[UOp, Text]()        # of every value
    self.names = Counter[str]()            # how many names begin with a word
    self.phis = list[UOp]()              # assignments that have not been written yet

  def emit(self, line: str) -> None: self.lines.append(f"{'  ' * self.depth}{line}")

  def fresh(self, prefix: str) -> str:
    """A name that no variable has yet: ``val0``, ``val1``, .."""
    self.names[prefix] += 1
    return f"{prefix}{self.names[prefix] - 1}"

  def declare(self, prefix: str, text: str, type: object = "") -> Text:
    """A new variable with a value; gives its name."""
    name = self.fresh(prefix)
    self.emit(f"{type} {name} = {text}{self.end}".lstrip())
    return name, ATOM

  def next_value(self, phi: UOp) -> tuple[str, object]:
    """The text of what a PHI assigns, and the type of a variable for it."""
    raise NotImplementedError

  def assign_phis(self) -> None:
    """Write the waiting PHIs: one parallel assignment, so a value that reads an accumulator assigned before it is saved first."""
    values = dict[UOp, str]()
    for u in self.phis:
      text, type = self.next_value(u)
      if self.reads.get(u.src[1], frozenset()) & values.keys(): text, _ = self.declare("next", text, type)
      values[accumulator(u)] = text
    for acc, text in values.items():
      if text != self.text[acc][0]: self.emit(f"{self.text[acc][0]} = {text}{self.end}")
    self.phis.clear()


def touched(uops: Sequence[UOp], *ops: Ops) -> set[UOp]: return {u.src[0] for u in uops if u.op in ops}


def parameters(uops: Sequence[UOp]) -> dict[str, UOp | None]:
  """The buffers of a program by name, in slot order; None for a slot that it has no use for."""
  at = {u.arg[0]: u for u in uops if u.op is Ops.DEFINE_GLOBAL}
  return {at[i].arg[1] if i in at else f"unused{i}": at.get(i) for i in range(max(at, default=-1) + 1)}


def float_text(value: float, dtype: DType) -> Text:
  """A finite number, as float64 or else as float32 has it."""
  text = number_text(value, dtype if dtype is dtypes.float64 else dtypes.float32)
  return text, UNARY if text[0] == "-" else ATOM


def head_text(before: str, params: Sequence[str], after: str) -> str:
  """A function's head in one line, or in a line for each parameter."""
  line = f"{before}({', '.join(params)}){after}"
  return line if len(line) <= 130 else f"{before}(" + ",".join(f"\n    {p}" for p in params) + f"){after}"
