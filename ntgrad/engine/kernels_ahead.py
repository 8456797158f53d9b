"""Programs that are made before somebody asks for their sizes, by workers that have nothing else to do."""
from __future__ import annotations

from functools import partial
from typing import Iterable, Sequence

from ntgrad.backends import workers
from ntgrad.codegen import index as ix
from ntgrad.codegen.index import evaluator
from ntgrad.codegen.ir import config
from ntgrad.codegen.kernel import Kernel
from ntgrad.graph.lock import lock, stand_aside
from ntgrad.schedule import ScheduleItem

from .compile import ahead, compiled_program, needs_parts, overridden
from .device import get_device
from .plan import Step
from .size_variants import SizedProgram, with_common_names

WORTH_WORKERS = 5   # steps of a plan for whose other sizes processes are started


def makes_ahead(steps: int) -> bool:
  """Whether programs are made for sizes that nobody asks for yet, of a plan of so many steps: not where somebody measures or
  looks on, where no other process compiles, or one would have to be started for a few kernels."""
  if config.dynamic != "auto" or config.beam or needs_parts() or overridden(): return False
  return workers.size() > 1 and (steps >= WORTH_WORKERS or workers.alive())


def kernels_ahead(items: Iterable[ScheduleItem], device: str, sizes: tuple[ix.Size, ...], values: tuple[int, ...],
                  soon: bool = False) -> None:
  """Have the programs made that a schedule needs for these values of its sizes. ``soon``: they are about to be asked for."""
  likely = tuple([n if s.hint is None else s.hint for s, n in zip(sizes, values)])
  found: dict[str, list[Kernel]] = {}
  for item in items:
    stand_aside()
    if (kernel := item.ast) is None or kernel.free: continue
    name = item.nodes[0].device or device
    if kernel.sizes:
      kernel, takes = with_common_names(kernel)
      at = evaluator(tuple([s.node for s in takes]), sizes)
      program = SizedProgram(kernel, get_device(name), partial(compiled_program, device=get_device(name)))
      program.likely = at(likely)
      kernel = program.first_kernel(at(values))
    found.setdefault(name, []).append(kernel)
  for name, kernels in found.items():
    with lock: ahead(kernels, get_device(name), soon)


def variants_ahead(steps: Sequence[Step]) -> None:
  """Have the programs made that sizes will need which those do not fit that there are."""
  for name in dict.fromkeys(step.device for step in steps):
    programs = dict.fromkeys(step.of for step in steps if step.device == name and isinstance(step.of, SizedProgram))
    with lock: ahead([kernel for p in programs if p is not None and (kernel := p.free_kernel()) is not None], get_device(name))
