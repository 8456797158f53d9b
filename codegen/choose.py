"""Pass: Opts for each part, by the heuristics of the target. ``BEAM`` measures instead; ``NOOPT=1`` chooses nothing."""
from __future__ import annotations

from dataclasses import replace

from .axes import merge_axes, split_axes
from .config import config
from .costs import profile
from .kernel import AxisKind, Kernel
from .optimize import Search, optimize, overlapping
from .opts import CacheRead, Vectorize
from .parts import Part, Parts
from .statements import COPIED, chooses
from .target import Target
from .uop import Ops, prod

PANEL_STEP = 512               # bytes between neighbours in the loop from which on a copy to local memory pays,
PANEL_AGAIN = 8                # where it is read at least as often,
PANELS = 4                     # and takes at most this part of a core's own cache: one in four


def choose(parts: Parts, target: Target | None) -> Parts:
  """Opts for the axes of each part, by the heuristics of the target: a0:64 LOOP -> a0:8 LOOP, a1:8 LANE."""
  if config.noopt or target is None: return parts
  if parts.kernel.plain: return Parts.of(optimize(parts.kernel, target))
  return choose_statements(parts, target)


def choose_statements(parts: Parts, target: Target | None) -> Parts:
  """The parts of a kernel whose statements have an order, after their Opts; the local memory that they take is that of one
  program."""
  if config.noopt or target is None or not (chooses(target) or target.name == "numpy"): return parts
  room = [target.local_memory // 2]
  def one(part: Part) -> Part:
    kernel = part.kernel
    if kernel.body[0].op is not Ops.STORE or not kernel.axes or any(a.kind in COPIED for a in kernel.axes): return part
    if not chooses(target): return replace(part, kernel=whole_axis(kernel))
    kernel = merge_axes(split_axes(kernel))
    for opt in Search(kernel, target).best(): kernel = opt.apply(kernel)
    return replace(part, kernel=panel(kernel, target, room))
  return parts.map(one)


def panel(kernel: Kernel, target: Target, room: list[int]) -> Kernel:
  """What a product reads again for each of its rows, in long strides, is copied to local memory first, while there is ``room``
  (in bytes)."""
  lanes = kernel.of_kind(AxisKind.LANE)
  loops = [a for a in kernel.of_kind(AxisKind.LOOP) if a.id in kernel.bound]
  if not lanes or lanes[0].id in kernel.bound or not loops or len(kernel.reduces) != 1: return kernel
  lane, last = lanes[0].id, loops[-1].id
  for x in profile(kernel).accesses:
    if x.write or x.gated or x.node.src[0].op is not Ops.DEFINE_GLOBAL or lane not in x.axes or not x.axes & kernel.bound:
      continue
    if x.steps.get(lane) == 1 and (x.steps.get(last) or 0) * x.itemsize < PANEL_STEP: continue
    again = prod(a.size for a in kernel.of_kind(AxisKind.LOOP) if a.id not in kernel.bound and a.id not in x.axes)
    size = x.itemsize * prod(a.size for a in kernel.axes if a.id in x.axes)
    if again < PANEL_AGAIN or size > min(target.core_cache // PANELS, room[0]) or overlapping(kernel, x): continue
    room[0] -= size
    return CacheRead(x.node.src[0].arg[0], lane).apply(kernel)
  return kernel


def whole_axis(kernel: Kernel) -> Kernel:
  """For an evaluator with arrays: an axis that is contiguous wherever it is seen, as one vector."""
  accesses = profile(kernel).accesses
  fits = [
    a
    for a in kernel.axes
    if a.id not in kernel.bound and 1 < a.size <= 1024 and all(x.steps.get(a.id, 0) in (0, 1) for x in accesses)
  ]
  best = max(fits, key=lambda a: a.size, default=None)
  return kernel if best is None else Vectorize(best.id).apply(kernel)
