"""A linear program as a list of nodes and as text, and what is asked of one whose values are blocks."""
from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from typing import Callable, Iterable, Mapping, Sequence

from .. import index as ix
from ..index import arg_text, uncast
from ..ir import NO_VALUE, Ops, UOp, dtypes, number_text
from .accesses import gate_or_true

F32 = dtypes.float32
FP8 = frozenset((dtypes.float8_e4m3, dtypes.float8_e5m2))
NARROW = FP8 | {dtypes.float16, dtypes.bfloat16}
DOT = "dot"   # in the place of a REDUCE's combiner: (a, b[, accumulator]), arg (DOT, (axis id,)) is a product of two blocks
_EFFECTS = NO_VALUE | {Ops.LOOP, Ops.PHI, Ops.SPECIAL, Ops.DEFINE_GLOBAL}


class UOpList(list[UOp]):
  """A linear program, in order."""

  @property
  def uops(self) -> UOpList: return self   # ``k.uops.uops``, as older scripts have it
  def lines(self, shapes: Mapping[UOp, tuple[int, ...]] | None = None) -> list[str]:
    """One line a node: number, op, dtype (and shape, of the blocks in ``shapes``), the numbers of its sources, argument."""
    number, blocks = {u: i for i, u in enumerate(self)}, shapes or {}
    def typed(u: UOp) -> str:
      if u.op in NO_VALUE: return ""
      return f"{'ptr.' * (u.op in (Ops.DEFINE_GLOBAL, Ops.DEFINE_LOCAL))}{u.dtype}{f' {blocks[u]}' if u in blocks else ''}"
    def arg(u: UOp) -> str:
      if u.op is Ops.CONST: return number_text(u.arg, u.dtype)
      return arg_text(u.arg) if u.op in (Ops.SIZE, Ops.DEFINE_VAR, Ops.SPECIAL) else str(u.arg)
    return [f"{i:4d} {str(u.op):20s}: {typed(u):25s} {str([number[s] for s in u.src]):32s} {arg(u)}" for i, u in enumerate(self)]

  def __str__(self) -> str: return "\n".join(self.lines())
  def print(self) -> None: print(self)


def prune(uops: Sequence[UOp], sources: Callable[[UOp], Iterable[UOp]] = lambda u: u.src) -> UOpList:
  """Without the values that nothing reads, each node once, constants in front. ``sources`` tells what a node reads."""
  used: set[UOp] = set()
  for u in reversed(uops):
    if u.op in _EFFECTS or u in used: used.update((u, *sources(u)))
  return UOpList(u for u in sorted(dict.fromkeys(uops), key=lambda u: u.op is not Ops.CONST) if u in used)


def is_dot(u: UOp) -> bool: return u.op is Ops.REDUCE and u.arg[0] is DOT


def loads_zero(u: UOp) -> bool:
  """Whether a LOAD gives 0 where its gate is false."""
  return len(u.src) < 4 or u.src[3].op is Ops.CONST and u.src[3].arg == 0


def zero_outside(x: UOp, where: UOp) -> bool:
  """Whether a value is a LOAD, or a CAST of one, that gives 0 where a condition is false."""
  while x.op is Ops.CAST: x = x.src[0]
  return x.op is Ops.LOAD and loads_zero(x) and set(ix.conjuncts(where)) <= set(ix.conjuncts(gate_or_true(x)))


def accumulator(u: UOp) -> UOp:
  """The DEFINE_ACC that a PHI assigns; any other node itself."""
  while u.op is Ops.PHI: u = u.src[0]
  return u


def accesses_variable(u: UOp) -> bool:
  """Whether a LOAD or STORE accesses a variable of the program, not memory."""
  return u.op in (Ops.LOAD, Ops.STORE) and u.src[0].op is Ops.DEFINE_LOCAL


def named_sources(u: UOp) -> tuple[UOp, ...]:
  """What the text of a node names: not the index into a variable but its terms, as the variable's dimensions are told apart."""
  if u.op is Ops.ATOMIC and u.src[4:]: return (*u.src[:5], *terms(u.src[5])[0], *u.src[6:])
  return (u.src[0], *terms(u.src[1])[0], *u.src[2:]) if accesses_variable(u) else u.src


def block_axes(uops: Sequence[UOp]) -> defaultdict[UOp, frozenset[int]]:
  """The TILE axes that each value varies with: an accumulator with those of what is assigned to it, a variable with none."""
  axes: defaultdict[UOp, frozenset[int]] = defaultdict(frozenset)
  grown = True
  while grown:
    grown = False
    for u in uops:
      along = axes[u].union(*[axes[s] for s in named_sources(u)])
      if u.op is Ops.RANGE: along = frozenset((u.arg[0],))
      elif u.op is Ops.REDUCE: along = along.difference(u.arg[1])
      for x in (u, accumulator(u)):
        grown |= axes[x] != along
        axes[x] = along
  return axes


def block_shapes(uops: Sequence[UOp]) -> dict[UOp, tuple[int, ...]]:
  """The shape of each value that is a block: the sizes of the TILE axes that it varies with, in one order for the program."""
  sizes = dict(u.arg for u in uops if u.op is Ops.RANGE)
  if not sizes: return {}
  order, axes = axis_order(uops), block_axes(uops)
  return {u: tuple(sizes[i] for i in order if i in axes[u]) for u in uops if axes[u] and u.op not in NO_VALUE}


def axis_order(uops: Sequence[UOp]) -> list[int]:
  """One order of the TILE axes for the whole program: STOREs, then LOADs, put what moves further through memory first."""
  later: dict[int, set[int]] = {u.arg[0]: set() for u in uops if u.op is Ops.RANGE}   # axis -> those that come after it
  for kind in Ops.STORE, Ops.LOAD:
    for u in uops:
      if u.op is not kind: continue
      steps = sorted([found for x, k in terms(u.src[1])[0].items() if (found := step(x, k)) is not None], key=lambda t: -t[0])
      for (s, a), (t, b) in combinations(steps, 2):
        if s == t or a == b or a in later[b]: continue
        for i, after in later.items():
          if i == a or a in after: after |= {b} | later[b]
  out: list[int] = []
  while later:
    out.append(next(i for i in later if not any(i in after for after in later.values())))
    del later[out[-1]]
  return out


def step(x: UOp, k: int) -> tuple[int, int] | None:
  """About how far a term of an index moves through memory with a TILE axis, and the axis: r5 * N * 8 -> 8 N's hint, 5. None for a
  term of none, or of several."""
  axes, others = [], abs(k)
  for f in ix.factors(x):
    while f.op is Ops.CAST: f = f.src[0]
    if f.op is Ops.RANGE: axes.append(f.arg[0])
    else: others *= max(ix.hint(f), 1)
  return (others, axes[0]) if len(axes) == 1 else None


def terms(index: UOp) -> tuple[dict[UOp, int], int]:
  """An index of the linear form as its terms (atom, factor) and constant: ``ix.linear``, through CASTs of ints."""
  found: dict[UOp, int] = {}
  constant = 0
  left = [(index, 1)]
  while left:
    u, factor = left.pop()
    u = uncast(u)
    parts, c = ix.linear(u)
    constant += factor * c
    for x, k in reversed(parts):
      if x is not u: left.append((x, factor * k))
      else: found[x] = found.get(x, 0) + factor * k
  return found, constant


def layout(size: int, index: UOp) -> tuple[int, ...] | None:
  """The shape of an array of ``size`` elements of which an access at ``index`` takes every one; None where it does not."""
  atoms, c = terms(index)
  if c or any(x.op is not Ops.RANGE for x in atoms): return None
  below = 1
  shape: list[int] = []
  for x, k in sorted(atoms.items(), key=lambda t: t[1]):
    if k != below: return None
    shape.insert(0, x.arg[1])
    below *= x.arg[1]
  return tuple(shape) if below == size else None
