"""From index-form kernels to programs: optimise, linearise, render, compile; each structure once."""
from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Sequence
from weakref import WeakValueDictionary

from ntgrad.backends import cache, pool
from ntgrad.backends.base import Device, Program, ProgramSpec, Renderer
from ntgrad.codegen import pipeline
from ntgrad.codegen.config import config
from ntgrad.codegen.dtype import dtypes
from ntgrad.codegen.errors import CompileError
from ntgrad.codegen.index import Dim, count, product
from ntgrad.codegen.kernel import AxisKind, Kernel
from ntgrad.codegen.opts import Told
from ntgrad.codegen.parts import Parts
from ntgrad.codegen.recent import Recent
from ntgrad.codegen.size_text import text_of
from ntgrad.codegen.uop import UOp

from . import overrides, report
from .phases import phase
from .variants import SizedProgram

# new kernels of a plan from which on workers make source of some, where so many processes compile: a single worker only compiles
MANY, PROCESSES = 48, 4

_making = pool.Queue(MANY)
_programs: Recent[tuple[Any, ...], Program] = Recent(4096)
_by_spec: WeakValueDictionary[tuple[Any, ...], Program] = WeakValueDictionary()   # whoever launches them keeps them


@dataclass
class Elsewhere:
  """A device of another process, for which a kernel is made."""
  name: str
  renderer: Renderer


def kernel_name(kernel: Kernel) -> str:
  """What kind it is (E elementwise, r reduction) and its axes as written: r_64_48_32."""
  sizes = "_".join(text_of(a.size) if text_of(a.size).isalnum() else "n" for a in kernel.axes) or "1"
  return f"{'r' if kernel.reduces else 'E'}_{sizes}"


def program_spec(
  kernel: Kernel, device: Device | Elsewhere, name: str = "", notes: Sequence[str] = ()
) -> tuple[ProgramSpec, Parts]:
  """The kernel rendered for a device, and its parts after their Opts: the model's, or with ``BEAM`` those found by measuring.
  ``notes`` are lines of comment in its source."""
  with phase("choosing"): parts, chosen = chosen_for(kernel, device, name or kernel_name(kernel))
  with phase("rendering"): return rendered(parts.kernel, chosen, device, name or kernel_name(kernel), notes), chosen


def chosen_for(kernel: Kernel, device: Device | Elsewhere, name: str) -> tuple[Parts, Parts]:
  """The parts of a kernel, and the same after their Opts."""
  target = device.renderer.target
  parts = pipeline.prepare(kernel, target, name)
  if not isinstance(device, Elsewhere) and config.beam and not config.noopt and not kernel.sizes:   # measured on numbers
    from .search import best, measurable
    if measurable(parts, target): return parts, best(parts, device, name)
  return parts, pipeline.run(parts, target, "opts", "opts", name)


def rendered(kernel: Kernel, chosen: Parts, device: Device | Elsewhere, name: str, notes: Sequence[str] = ()) -> ProgramSpec:
  """A kernel, after the Opts that led to ``chosen``, as source. Raises CompileError for what the device cannot express."""
  target = device.renderer.target
  uops = pipeline.finish(chosen, target, name)
  if missing := [u.dtype for u in uops if u.dtype.scalar() not in target.dtypes and u.dtype.scalar() in dtypes.all]:
    raise CompileError(
      f"kernel {name}: {device.name} has no {missing[0].scalar().name}; cast to another dtype before, or use another device"
    )
  source = device.renderer.render(name, uops, notes)
  grid, local = extent(chosen.kernel, AxisKind.GRID), tuple(map(count, extent(chosen.kernel, AxisKind.LOCAL)))
  work = kernel.work.rounded() if config.allow_tf32 else kernel.work
  return ProgramSpec(name, source, grid, local, len(kernel.params), tuple(uops), work, options(chosen.kernel), kernel.sizes)


def options(kernel: Kernel) -> tuple[tuple[str, int], ...]:
  """What the Opts tell the target's compiler."""
  return tuple({f"num_{o.name}": o.n for o in kernel.applied if isinstance(o, Told)}.items())


def extent(kernel: Kernel, kind: AxisKind) -> tuple[Dim, Dim, Dim]:
  """Launch sizes of the GRID or LOCAL axes: the last axis is dimension 0, all beyond the second share dimension 2."""
  sizes: list[Dim] = [a.size for a in kernel.of_kind(kind)[::-1]]
  if kind is AxisKind.GRID and (stay := [a.programs for a in kernel.axes if a.programs]): sizes = [*stay]
  return ((*sizes, 1)[0], (*sizes, 1, 1)[1], product(sizes[2:]))


def programs(kernels: Sequence[Kernel], device: Device) -> list[Program]:
  """A program for each kernel; new ones are handed to the device's compiler in this order."""
  settings = (*config.key(), overrides.state())
  keys = [(device.name, settings, k.params, k.axes, k.body) for k in kernels]
  new = {key: k for key, k in zip(keys, kernels) if key not in _programs and not k.sizes}
  making = made_by_workers(new, device)
  out = []
  for key, kernel in zip(keys, kernels):
    program = _programs.get(key)
    if program is None:
      # one by one: the device may compile while the next is rendered
      program = _programs[key] = SizedProgram(kernel, device, partial(compiled, device=device)) if kernel.sizes else \
        compiled(kernel, device, making.pop(key, None))[0]
      program = _programs[key] = overrides.replaced(kernel, device, program)
    out.append(program)
  return out


@dataclass(eq=False, kw_only=True)
class Making(pool.Job):
  """A kernel whose source some process makes."""
  kernel: Kernel
  name: str           # of the device
  renderer: Renderer

  @property
  def count(self) -> int:
    """None: it is counted when it is compiled."""
    return 0

  def work(self) -> pool.Work: return made, (self.kernel, self.name, self.renderer)


def made(kernel: Kernel, name: str, renderer: Renderer) -> tuple[ProgramSpec, Parts]:
  """A kernel as source, in a worker."""
  return program_spec(kernel, Elsewhere(name, renderer))


def made_by_workers(new: dict[Any, Kernel], device: Device) -> dict[Any, Making]:
  """Jobs for kernels that will be needed, in this order, where they are many; those that are measured are not among them."""
  if len(new) < MANY or pool.size() < PROCESSES or config.beam: return {}
  settings = {**cache.settings(), **config.keyed(), "verify": config.verify}
  jobs = {key: Making(kernel=k, name=device.name, renderer=device.renderer, settings=settings) for key, k in new.items()}
  for job in jobs.values(): _making.add(job)
  _making.serve()
  return jobs


def compiled(kernel: Kernel, device: Device, making: Making | None = None) -> tuple[Program, tuple[UOp, ...]]:
  """A new program, and what it needs of run-time sizes. ``making``: a worker may have its source."""
  if making is None: spec, parts = program_spec(kernel, device)
  else:
    with _making.claim(making) as mine:
      assert mine
      if making.refused: raise CompileError(making.refused)
      spec, parts = making.answer or program_spec(kernel, device)
  report.compiled(spec, parts, device, kernel)
  for note in overrides.noted: note(kernel, spec, parts, device)
  return from_specs([spec], device)[0], parts.needs


def from_specs(specs: Sequence[ProgramSpec], device: Device) -> list[Program]:
  """A program for each rendered kernel; those that are not there yet are compiled together."""
  keys = [(device.name, s.name, s.source, s.grid, s.local, s.nparams, s.options, s.sizes) for s in specs]
  found = {k: _by_spec.get(k) for k in keys}
  new = {k: s for k, s in zip(keys, specs) if found[k] is None}
  if new:
    with phase("compiling"): found.update(zip(new, device.compile(list(new.values()))))
    _by_spec.update({k: p for k in new if (p := found[k]) is not None})
  return [p for k in keys if (p := found[k]) is not None]
