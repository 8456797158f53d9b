"""What the optimiser looks at: how each memory access moves along each axis, and what the arithmetic depends on."""
from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Iterable

from .. import index as ix
from ..index import strides_of
from ..ir import FUNCTIONS, TF32, BinaryOps, Ops, TernaryOps, UOp, toposort
from .kernel import LOAD_OR_STORE, Kernel


@dataclass
class MemoryAccess:
  """A LOAD or STORE, and by how many elements its flat index moves along each axis. The step is None if the index is not linear
  in the axis. If only the last block of an axis starts earlier, it is the step between the others."""
  node: UOp
  steps: dict[int, int | None]
  axes: frozenset[int]
  gated: bool
  write: bool
  slot: int       # of the param; of a variable negative
  itemsize: int
  looked_up: frozenset[int] = frozenset()   # axes along which a table that is read says where it reads or writes

  @property
  def linear(self) -> bool: return None not in self.steps.values()   # whether its place is a sum of steps along axes

  def stride(self, axis: int) -> int: return abs(self.steps.get(axis) or 0) * self.itemsize   # bytes; 0: not known

  @cached_property
  def overlaps(self) -> bool:
    """Whether different axis values reach the same element (a window): a copy in order of the axes would hold it many times."""
    return self.overlaps_along(self.steps)

  def overlaps_along(self, axes: Iterable[int]) -> bool:
    """The same for values of some of the axes."""
    sizes, steps = dict(r.arg for r in self.node.ranges), [(a, self.steps[a]) for a in axes if a in self.steps]
    if any(s is None for _, s in steps): return True
    reach = 1
    for step, size in sorted((abs(s), ix.count(sizes[a])) for a, s in steps if s):
      if step < reach: return True
      reach = step * size
    return False


@dataclass
class AccessProfile:
  """A kernel as the cost model sees it. ``work``: the cost of what depends on the same axes; ``reduces``: (axes of the operand,
  bound axes); ``loops``: bound axes, and the operands' axes of the reductions that are accumulated in one loop over them."""
  accesses: list[MemoryAccess]
  work: dict[frozenset[int], float]
  reduces: list[tuple[frozenset[int], frozenset[int]]]
  loops: list[tuple[frozenset[int], list[frozenset[int]]]]


def gate_or_true(u: UOp) -> UOp: return (*u.src, ix.TRUE)[2 if u.op is Ops.LOAD else 3]


def is_masked(u: UOp) -> bool:
  """Whether a value is another one, or 0 where a condition is false."""
  return u.arg is TernaryOps.WHERE and u.src[2].op is Ops.CONST and u.src[2].arg == 0


def multiplication(u: UOp) -> UOp | None:
  """The product that a REDUCE adds up, without conditions outside which it counts as zero; None where it adds other things."""
  value = u.src[0]
  while is_masked(value): value = value.src[1]
  return value if u.arg[0] is BinaryOps.ADD and value.arg is BinaryOps.MUL else None


def narrow_value(u: UOp) -> UOp:
  """What a CAST widened, or a WHERE leaves out elements of."""
  while is_masked(u): u = u.src[1]
  return u.src[0] if u.op is Ops.CAST and u.arg != TF32 else u


def flat_index(shape: tuple[ix.Dim, ...], index: Iterable[UOp]) -> UOp:
  """The one row-major index of an element from one a dimension."""
  return ix.weighted_sum(zip(index, strides_of(shape)))


def steps_of(flat: UOp) -> dict[int, int | None]:
  """Axis id -> factor of a flat index; None where the axis stands inside something that is not linear."""
  steps: dict[int, int | None] = {}
  for atom, k in ix.linear(flat)[0]:
    if atom.op is Ops.RANGE: steps[atom.arg[0]] = k if atom.arg[0] not in steps else None
    elif is_shifted(atom): steps[next(iter(ids_of(atom)))] = k * ix.linear(atom.src[0])[0][0][1]
    else: steps.update(dict.fromkeys(ids_of(atom)))
  return steps


def is_shifted(atom: UOp) -> bool:
  """Whether an atom is where blocks of an axis begin, the last of which starts earlier: min(a0 * 64, 936)."""
  if atom.arg is not BinaryOps.MIN or atom.src[1].ranges: return False
  terms = ix.linear(atom.src[0])[0]
  return len(terms) == 1 and terms[0][0].op is Ops.RANGE


def ids_of(u: UOp) -> frozenset[int]: return frozenset(r.arg[0] for r in u.ranges)   # the axes that a node depends on


def reduce_depths(nodes: Iterable[UOp]) -> dict[UOp, int]:
  """How many REDUCEs come one after the other up to each node; sources stand first."""
  depth: dict[UOp, int] = {}
  for u in nodes: depth[u] = max([depth[s] for s in u.src], default=0) + (u.op is Ops.REDUCE)
  return depth


@lru_cache(maxsize=16)
def access_profile(kernel: Kernel) -> AccessProfile:
  """Collect accesses, arithmetic and reductions. A chooser asks several times for the kernel that it is at."""
  out = AccessProfile([], defaultdict(int), [], [])
  loops: dict[tuple[frozenset[int], int], list[frozenset[int]]] = {}
  depth = reduce_depths(kernel.nodes)
  uses = Counter([s for u in kernel.nodes for s in u.src])
  summed = {r.src[0] for r in kernel.reduces if r.arg[0] is BinaryOps.ADD}
  in_index = set(toposort([s for u in kernel.nodes if u.op is Ops.INDEX for s in u.src]))
  tables = {u for u in in_index if u.op is Ops.LOAD}
  for u in kernel.nodes:
    ids = ids_of(u)
    if u.op in LOAD_OR_STORE:
      p, gated = kernel.by_uop[u.src[0]], gate_or_true(u) is not ix.TRUE
      steps = steps_of(flat_index(p.shape, u.src[1].src))
      looked_up = frozenset[int]().union(*map(ids_of, tables.intersection(toposort([u.src[1]])))) if tables else frozenset[int]()
      out.accesses.append(MemoryAccess(u, steps, ids, gated, u.op is Ops.STORE, p.slot, p.dtype.itemsize, looked_up))
    elif u.op is Ops.REDUCE:
      bound, ids = frozenset(u.arg[1]), ids_of(u.src[0])
      out.reduces.append((ids | bound, bound))
      loops.setdefault((bound, depth[u]), []).append(ids | bound)
      out.work[ids] += FUNCTIONS[u.arg[0]].cost
    elif u.op is Ops.ALU and u not in in_index:
      fused = u.arg is BinaryOps.MUL and u in summed and uses[u] == 1   # with the addition of a sum
      if not fused: out.work[ids] += FUNCTIONS[u.arg].cost
  out.loops.extend((bound, operands) for (bound, _), operands in loops.items())
  return out
