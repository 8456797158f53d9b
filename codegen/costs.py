"""What the optimiser looks at: how each memory access moves along each axis, and what the arithmetic depends on."""
from __future__ import annotations

from dataclasses import dataclass, field

from . import index as ix
from .functions import FUNCTIONS
from .kernel import Kernel
from .uop import BinaryOps, Ops, UOp
from .view import strides_of


@dataclass
class MemoryAccess:
  """A LOAD or STORE: the elements that its flat index moves by, axis by axis (None: not linear in it)."""
  node: UOp
  steps: dict[int, int | None]
  axes: frozenset[int]
  gated: bool
  write: bool
  itemsize: int


@dataclass
class Work:
  """Arithmetic that depends on the same axes."""
  axes: frozenset[int]
  cost: float


@dataclass
class Profile:
  """A kernel as the cost model sees it."""
  accesses: list[MemoryAccess] = field(default_factory=list)
  work: list[Work] = field(default_factory=list)
  reduces: list[tuple[frozenset[int], frozenset[int]]] = field(default_factory=list)  # (axes of the operand, bound axes)


def flat_index(kernel: Kernel, u: UOp) -> UOp:
  """The one-dimensional index of a LOAD or STORE."""
  shape = next(p.shape for p in kernel.params if p.uop is u.src[0])
  out = ix.const(0)
  for i, s in zip(u.src[1].src, strides_of(shape)): out = ix.add(out, ix.mul(i, s))
  return out


def steps_of(flat: UOp) -> dict[int, int | None]:
  """Axis id -> factor of a flat index; None where the axis stands inside something that is not linear."""
  steps: dict[int, int | None] = {}
  for atom, k in ix.linear(flat)[0]:
    if atom.op is Ops.RANGE: steps[atom.arg[0]] = k if atom.arg[0] not in steps else None
    else:
      for r in atom.ranges: steps[r.arg[0]] = None
  return steps


def profile(kernel: Kernel) -> Profile:
  """Collect accesses, arithmetic and reductions."""
  out = Profile()
  work: dict[frozenset[int], float] = {}
  users: dict[UOp, int] = {}
  for u in kernel.nodes:
    for s in u.src: users[s] = users.get(s, 0) + 1
  in_index: set[UOp] = set()
  for u in kernel.nodes:
    if u.op is Ops.INDEX: in_index.update(n for s in u.src for n in s.toposort())
  for u in kernel.nodes:
    ids = frozenset(r.arg[0] for r in u.ranges)
    if u.op in (Ops.LOAD, Ops.STORE):
      gate = u.src[2:3] if u.op is Ops.LOAD else u.src[3:4]
      out.accesses.append(
        MemoryAccess(
          u,
          steps_of(flat_index(kernel, u)),
          ids if u.op is Ops.LOAD else frozenset(r.arg[0] for r in u.ranges),
          bool(gate),
          u.op is Ops.STORE,
          u.src[0].dtype.itemsize,
        )
      )
    elif u.op is Ops.REDUCE:
      operand = frozenset(r.arg[0] for r in u.src[0].ranges)
      out.reduces.append((operand | frozenset(u.arg[1]), frozenset(u.arg[1])))
      work[operand] = work.get(operand, 0) + FUNCTIONS[u.arg[0]].cost
    elif u.op is Ops.ALU and u not in in_index:
      fused = (
        u.arg is BinaryOps.MUL and users.get(u) == 1 and any(r.src[0] is u for r in kernel.reduces if r.arg[0] is BinaryOps.ADD)
      )
      if not fused: work[ids] = work.get(ids, 0) + FUNCTIONS[u.arg].cost
  out.work = [Work(a, c) for a, c in work.items()]
  return out
