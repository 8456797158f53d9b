"""A guess at how long a kernel with blocks takes, for putting candidates in order before some are measured."""
from __future__ import annotations

from .kernel import AxisKind, Kernel
from .target import Target
from .uop import Ops, prod

STAGES = 3             # of a pipeline, all in shared memory at once


def estimate(kernel: Kernel, target: Target) -> float:
  """Seconds, from memory traffic and bandwidth, cores that idle in the last wave, and blocks that overflow registers or shared
  memory."""
  sizes = {a.rng: a.count for a in kernel.axes}
  tiles = {a.rng for a in kernel.of_kind(AxisKind.TILE)}
  spread = {a.rng: a.count for a in kernel.axes if a.kind is AxisKind.GRID or a.programs}   # over programs
  programs = prod(spread.values())
  rounds = prod(a.count for a in kernel.of_kind(AxisKind.LOOP) if not a.programs)
  cores = max(target.cores, 1)
  traffic = live = read = 0.0
  for u in kernel.nodes:
    if u.op in (Ops.LOAD, Ops.STORE) and u.src[0].op is Ops.DEFINE_GLOBAL:
      moved = prod(sizes.get(r, 1) for r in u.src[1].ranges if r not in spread) * u.dtype.itemsize   # by one program
      traffic += moved * programs
      if u.op is Ops.LOAD and rounds > 1: read += moved / rounds
    if u.op is Ops.REDUCE or (u.op is Ops.STORE and u.src[0].op is Ops.DEFINE_LOCAL):
      live = max(live, prod(sizes[r] for r in u.ranges & tiles) * 4.0)
  waves = -(-programs // cores) * cores / max(programs, 1)
  crowded = max(1.0, STAGES * read / target.local_memory) if target.blocks and target.local_memory else 1.0
  iterations = programs * rounds / cores * target.iteration if target.blocks else 0.0
  crowded *= crowded * max(1.0, live / target.accumulators)
  return (traffic / target.bandwidth + iterations) * waves * crowded + programs * target.start_bytes / target.bandwidth
