"""From a tensor graph to a list of kernels: ``prepare`` rewrites, ``partition`` cuts, ``lower`` makes the index form, ``order`` puts it in order."""
from __future__ import annotations

from typing import Any, Iterable

from ntgrad.codegen.errors import VerifyError
from ntgrad.codegen.uop import Ops, UOp, prod

from .lower import Lowering, ScheduleItem
from .order import Conflict, in_order, write_later
from .partition import Partition
from .prepare import prepare
from .storage import storage


def schedule_graph(sinks: Iterable[UOp], cores: int = 2, blocks: bool = False) -> tuple[tuple[UOp, ...], list[ScheduleItem]]:
  """The prepared sinks (one for each given) and the kernels that compute them, in an order that may run.

  ``cores`` programs run at a time; with ``blocks`` each makes a block of outputs.
  """
  given = tuple(sinks)
  ready = prepare(given, cores, blocks)
  alone: set[UOp] = set()   # ASSIGNs that share no kernel
  while True:
    part = Partition([u for u in dict.fromkeys(ready) if u.op is not Ops.BUFFER], alone)
    lowering = Lowering(part)
    items = [lowering.item(g) for g in part.groups if g.stores]
    items += lowering.copies.values()
    for u in part.order:
      if u.op is Ops.COPY and prod(u.shape): items.append(ScheduleItem(None, (u, storage(u.src[0])), (u,), frozenset((u.src[0],))))
    try:
      return ready[:len(given)], in_order(items)
    except Conflict as c:
      # first without sharing kernels, then by way of a buffer of their own
      before = ready
      if c.assigns <= alone: ready = write_later(ready, c.assigns)
      if c.assigns <= alone and ready == before: raise VerifyError("the kernels of a schedule wait for each other") from None
      alone |= c.assigns


def create_schedule(outputs: Iterable[Any]) -> list[ScheduleItem]:
  """The kernels that compute ``outputs`` (Tensors or their ``lazydata``), in order; the last one's ``.ast`` goes to a Linearizer. Runs nothing."""
  return schedule_graph([getattr(o, "lazydata", o) for o in outputs])[1]


__all__ = ["create_schedule", "schedule_graph", "ScheduleItem"]
