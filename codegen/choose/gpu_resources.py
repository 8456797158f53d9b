"""What a program of a kernel with TILE axes takes of a core, by which blocks are chosen before any of them is compiled.

Accumulators and variables lie in registers. The factors of products lie in shared memory; those that a loop reads lie there as
many times as its pipeline has stages. A product that no matrix unit makes is written out: so much that compilers take a minute.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Sequence

from .. import index as ix
from ..ir import Ops, Target, UOp, dtypes, may_round, power_of_two, prod, toposort
from ..kernel import Axis, Kernel, ids_of, is_variable
from .gpu_cost import KEPT_REGISTERS, MOST_REGISTERS, STAGES, WARP, estimate, warps_for
from .gpu_products import LARGE_BLOCK_ELEMENTS, PIPELINE, Blocks, ProductWork, best_blocks, product_seconds
from .roles import PRODUCT_ROLES, Role, Roles, multiplication, narrow_value

LEAST_DOT = 16       # elements along each axis of a block that is multiplied as one
WRITTEN_OUT = 2048   # multiplications of a thread; each takes the compiler about half a millisecond, many more than twice so many


@dataclass(frozen=True)
class Room:
  """What a program takes: registers of a thread, bytes of shared memory, multiplications of a thread that are written out."""
  registers: int
  staged: int
  written_out: int

  def excess(self, target: Target) -> float:
    """How many times as much as there is; 1 and less: it fits."""
    return max(self.registers / MOST_REGISTERS, self.staged / max(target.local_memory, 1), self.written_out / WRITTEN_OUT)


def room_of(kernel: Kernel, warps: int = 0, stages: int = 0) -> Room:
  """What a program takes with so many warps and stages (0: as many as the target's renderer would say)."""
  tiles = {a.id: power_of_two(a.count) for a in kernel.tiles}
  def block(u: UOp) -> int: return prod(tiles.get(r.arg[0], 1) for r in u.ranges)
  loops = {a.id for a in kernel.loops if a.count > 1}
  dots = [found for r in kernel.reduces if (found := factors_of(r, tiles)) is not None]
  results = [block(r) for r, _, _ in dots]
  variables = [(prod(power_of_two(ix.count(n)) for n in u.arg[1]), u.dtype) for u in kernel.nodes if is_variable(u)]
  blocks = [block(u.src[0]) for u in kernel.reduces] + [block(s.src[2]) for s in kernel.effects]
  words = sum(n * d.itemsize for n, d in variables) // 4 + max(results or blocks)
  if not warps and dots: warps = 8 if max([*results, *(n for n, _ in variables)]) > LARGE_BLOCK_ELEMENTS else 4
  warps = warps or warps_for(prod(tiles.values()))
  threads, stages = WARP * warps, stages or (PIPELINE if dots else STAGES)
  staged = written_out = 0
  for r, sides, summed in dots:
    for u in {u for u in toposort(sides) if u.op is Ops.LOAD and u.src[0].op is Ops.DEFINE_GLOBAL}:
      staged += block(u) * u.dtype.itemsize * (stages if any(x.arg[0] in loops for x in u.ranges) else 1)
    if r.dtype is dtypes.float32 and not may_round(sides) and all(narrow_value(s).dtype.itemsize > 2 for s in sides):
      written_out += block(r) * summed // threads
  return Room(KEPT_REGISTERS + words // threads, staged, written_out)


def factors_of(r: UOp, tiles: dict[int, int]) -> tuple[UOp, tuple[UOp, UOp], int] | None:
  """A REDUCE that is a product of blocks, its factors, and how many elements a block sums; None for any other."""
  if (value := multiplication(r)) is None: return None
  a, b = value.src
  summed = prod(tiles.get(i, 1) for i in r.arg[1])
  mine, others = ((ids_of(s) & tiles.keys()) - set(r.arg[1]) for s in (a, b))
  sizes = [prod(tiles[i] for i in ids) for ids in (mine - others, others - mine)]
  return (r, (a, b), summed) if min(summed, *sizes) >= LEAST_DOT else None


def _work_of(kernel: Kernel, target: Target) -> tuple[ProductWork, Blocks] | None:
  """The product that a kernel with TILE axes is, and its blocks; None where it is none, or has blocks that are too small."""
  tiles = kernel.tiles
  if not (target.blocks and kernel.plain and tiles) or (roles := Roles(kernel)).product is None: return None
  def size(role: Role, among: Sequence[Axis]) -> int: return prod(kernel.axis(i).count for i in roles.of(role, among))
  rows, columns, summed = (size(role, tiles) for role in PRODUCT_ROLES)
  if min(rows, columns, summed) < LEAST_DOT: return None
  each = frozenset(i for role in PRODUCT_ROLES[:2] for i in roles.of(role, tiles))
  m, n, k, others = (size(role, kernel.axes) for role in (*PRODUCT_ROLES, Role.BATCH))
  return ProductWork.around(kernel, (m, n, k, others), each, roles.product.stored), (rows, columns, summed)


def seconds_of(kernel: Kernel, target: Target) -> float:
  """About how long a kernel with TILE axes takes: by the model of products where it is one, else by ``estimate``."""
  found = _work_of(kernel, target)
  return estimate(kernel, target) if found is None else product_seconds(*found, target)


def best_of(kernel: Kernel, target: Target) -> Blocks | None:
  """The blocks that the model likes best for the product that a kernel is; None where it is none."""
  found = _work_of(kernel, target)
  return None if found is None else best_blocks(found[0], target)[1]


def from_best(kernel: Kernel, best: Blocks | None, target: Target) -> float:
  """How many doublings blocks of a product are from the ``best``; of others a part of one, the less the faster they are."""
  found = _work_of(kernel, target) if best is not None else None
  if found is None or best is None: return 1 - 1 / (1 + estimate(kernel, target))
  return math.fsum(abs(math.log2(b / n)) for b, n in zip(found[1], best))
