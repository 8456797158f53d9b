"""Pass: Opts for each part, by the heuristics of the target. ``BEAM`` measures instead; ``NOOPT=1`` chooses nothing."""
from __future__ import annotations

from dataclasses import replace
from functools import partial

from ..ir import Ops, Target, config
from ..kernel import Axis, AxisKind, Kernel, access_profile
from ..opts import Vectorize, merge_axes, split_axes, with_opts
from ..passes.builder import chooses
from ..passes.parts import Part, Parts
from ..passes.statements import COPIED_KINDS
from .candidates import first, tried
from .cpu import Search, optimize
from .cpu_panels import copy_once
from .runtime_sizes import as_twin


def choose(parts: Parts, target: Target | None) -> Parts:
  """Opts for the axes of each part, by the heuristics of the target: a0:64 LOOP -> a0:8 LOOP, a1:8 LANE."""
  if not parts.kernel.plain: return choose_statements(parts, target)
  if config.noopt or target is None: return parts
  kernel = parts.kernel
  if kernel.sizes and not kernel.tiles: kernel = split_axes(kernel)   # by sizes, which its twin has numbers for
  return Parts.of(as_twin(kernel, target, lambda k: optimize(k, target, bool(kernel.sizes))))


def choose_statements(parts: Parts, target: Target | None) -> Parts:
  """The parts of a kernel whose statements have an order, after their Opts; all share the local memory of one program."""
  # work-items share local memory, and were chosen by hand
  if config.noopt or target is None or not (chooses(target) or target.name == "numpy") or parts.kernel.of_kind(AxisKind.LOCAL):
    return parts
  room = [target.local_memory // 2]
  def one(part: Part) -> Part:
    kernel = part.kernel
    if kernel.body[0].op is not Ops.STORE or not kernel.axes or kernel.of_kind(*COPIED_KINDS): return part
    return replace(part, kernel=as_twin(kernel, target, several if chooses(target) else whole_axis))
  def several(kernel: Kernel) -> Kernel:
    kernel = tried(kernel, lambda k: merge_axes(split_axes(k)))
    kernel = first(kernel, (partial(with_opts, opts=opts) for opts, _ in Search(kernel, target, exact=True).choices()))
    return tried(kernel, copy_once, target, room)
  return parts.map(one)


def whole_axis(kernel: Kernel) -> Kernel:
  """For an evaluator with arrays, the longest axis that accesses go along, or not with, as a vector: a1:64 LOOP -> a1:64 LANE."""
  accesses = access_profile(kernel).accesses
  def fits(a: Axis) -> bool: return 1 < a.count <= 1024 and all(x.steps.get(a.id, 0) in (0, 1) for x in accesses)
  best = max([a for a in kernel.axes if a.id not in kernel.bound and fits(a)], key=lambda a: a.count, default=None)
  return kernel if best is None else tried(kernel, Vectorize(best.id).apply)
