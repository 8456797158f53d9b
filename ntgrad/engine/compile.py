"""From kernels in index form to programs: optimise, linearise, render, compile, each structure once.

A rendered kernel is kept on disk: another process that has it, in whichever plan, chooses no Opts and renders nothing.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any, Callable, NamedTuple, Sequence
from weakref import WeakValueDictionary

from ntgrad.backends import cache, workers
from ntgrad.backends.base import Device, Program, ProgramSpec, Renderer
from ntgrad.backends.progress import line
from ntgrad.backends.specs import SPEC, check
from ntgrad.codegen import pipeline
from ntgrad.codegen.choose import candidates
from ntgrad.codegen.choose.bound import work_of
from ntgrad.codegen.explain.printing import kernel_name as kernel_name
from ntgrad.codegen.index import Dim, arguments, count, evaluator, product, records, sizes_of
from ntgrad.codegen.index.records import CONDITION, TupleForm
from ntgrad.codegen.ir import CompileError, NtgradError, OverrideError, Recent, UOp, config, dtypes
from ntgrad.codegen.kernel import AxisKind, Kernel, structure_text
from ntgrad.codegen.opts import Told
from ntgrad.codegen.passes.parts import Parts

from . import overrides, report
from .counters import phase
from .override_files import Exported
from .report import labelled, new_label
from .size_variants import SizedProgram

KERNEL_TABLE = "kernel"   # of the disk cache
PROGRAM_FORM = TupleForm(SPEC, records.Sequence(CONDITION))
MANY_KERNELS, PROCESSES = 12, 2   # new kernels of a plan from which on workers make some, where so many processes compile
JOB_KERNELS = 4                      # kernels that a worker makes as one

_making = workers.Queue(0, rank=0)   # before programs: this process has no other way to give work away
_later = workers.Queue(0, background=True)
_programs: Recent[tuple[Any, ...], Program] = Recent(4096)
# told of each kernel that is ``rendered``, with its parts after their Opts; give the program to run instead (``compared``)
comparers: list[Any] = []
_by_spec: WeakValueDictionary[tuple[Any, ...], Program] = WeakValueDictionary()   # whoever launches them keeps them


@dataclass
class Elsewhere:
  """A device of another process, for which a kernel is made."""
  name: str
  renderer: Renderer = Renderer()   # of one for which nothing is made: that of nobody
  identity: str = ""   # the device's; "": nothing of it is kept on disk


_Where = Device | Elsewhere
_Compiled = tuple[Program, tuple[UOp, ...]]   # and what it needs of run-time sizes


class _Made(NamedTuple):
  """A kernel as source."""
  spec: ProgramSpec
  needs: tuple[UOp, ...]   # the conditions on run-time sizes under which it may be launched
  parts: Parts | None      # after their Opts; None for one that lay on disk
  refusals: tuple[candidates.Refusal, ...] = ()   # of another process, while it chose


def program_spec(kernel: Kernel, device: _Where, name: str = "", notes: Sequence[str] = (), label: str = "") -> _Made:
  """The kernel rendered for a device, from the disk where it lies there, with its parts after their Opts. ``notes`` are lines of
  comment in its source; messages call it ``label``, by default its name."""
  name = name or kernel_name(kernel)
  with phase("choosing"):
    key = program_key(kernel, device, name, notes)
    if key is not None and (found := _load(key, name, label)) is not None: return found
  return fresh(kernel, device, name, notes, label, key)


def fresh(kernel: Kernel, device: _Where, name: str, notes: Sequence[str], label: str, key: str | None) -> _Made:
  """``program_spec`` without a look at the disk, where it lies from now on under a ``key``."""
  with phase("choosing"): parts, chosen = chosen_for(kernel, device, name, label)
  with phase("rendering"): new = _made_of(parts, chosen, device, name, notes, label)
  for c in comparers: c.rendered(kernel, new.spec, chosen, device)
  if key is not None: cache.put(KERNEL_TABLE, key, PROGRAM_FORM, (new.spec, new.needs))
  return new


def _made_of(parts: Parts, chosen: Parts, device: _Where, name: str, notes: Sequence[str], label: str) -> _Made:
  """The source of parts, after the Opts that led to ``chosen``."""
  spec, needs = rendered(parts.kernel, chosen, device, name, notes, label)
  chosen = replace(chosen, kernel=chosen.kernel.with_(needs=needs))
  return _Made(spec, chosen.needs, chosen)


def kept(new: _Made, kernel: Kernel, device: Device, notes: Sequence[str] = ()) -> ProgramSpec:
  """The spec of a kernel; of one that was read from the disk such that it is made anew if it does not compile."""
  spec, settings = new.spec, config.keyed()
  def again() -> ProgramSpec:
    with config(**settings):
      return fresh(kernel, device, spec.name, notes, spec.label, program_key(kernel, device, spec.name, notes)).spec
  return spec if new.parts is not None else replace(spec, again=again)


def program_key(kernel: Kernel, device: _Where, name: str, notes: Sequence[str]) -> str | None:
  """What a rendered kernel is kept under: all that its source and launch are made of. None where it is not kept: cache off, Opts
  that are measured, passes that are shown or verified, somebody who is told of its parts, or a device that runs UOps."""
  identity = getattr(device, "identity", "")
  if not config.cache or not identity or needs_parts() or device.renderer.target.name == "numpy": return None
  if config.verify or config.show or config.beam or cache.sources() is None: return None
  try: text = structure_text(kernel)
  except TypeError: return None
  renderer = type(device.renderer).__qualname__, device.renderer.settings, repr(device.renderer.target)
  return cache.key(KERNEL_TABLE, cache.sources(), identity, renderer, config.key(), name, tuple(notes), text)


def overridden() -> bool: return bool(overrides.given_overrides or config.override)   # whether a person's kernels may be in force


def compiled_under() -> tuple[Any, ...]:
  """What all that is compiled depends on: the settings, and the overrides in force."""
  return (*config.key(), overrides.state()) if overridden() else config.key()


def needs_parts() -> bool:
  """Whether somebody is told of the parts of each new kernel: what is printed, or a tool."""
  return config.debug >= 3 or bool(overrides.kernel_listeners)


def _load(key: str, name: str, label: str) -> _Made | None:
  """The rendered kernel under a key. None where there is none; a damaged one, and one that makes no sense, is removed."""
  if (found := cache.get(KERNEL_TABLE, key, PROGRAM_FORM)) is None: return None
  spec, needs = found
  try:
    check(spec)
    evaluator(needs, sizes_of(needs))
    if spec.name == name: return _Made(replace(spec, given=label or name), needs, None)
  except Exception: pass   # whatever is in there, it is no kernel
  cache.remove(KERNEL_TABLE, key)
  return None


def chosen_for(kernel: Kernel, device: _Where, name: str, label: str = "") -> tuple[Parts, Parts]:
  """The parts of a kernel, and the same after their Opts."""
  target, label = device.renderer.target, label or name
  parts = pipeline.prepare(kernel, target, label)
  if not isinstance(device, Elsewhere) and config.beam and not config.noopt and not kernel.sizes:   # measured on numbers
    from .search import best, measurable
    if measurable(parts, target): return parts, best(parts, device, name, rendered, label)
  return parts, pipeline.run_passes(parts, target, "opts", "opts", label)


def rendered(kernel: Kernel, chosen: Parts, device: _Where, name: str,
             notes: Sequence[str] = (), label: str = "") -> tuple[ProgramSpec, tuple[UOp, ...]]:
  """A kernel, after the Opts of ``chosen``, as source, and what it needs of run-time sizes. Raises CompileError."""
  target, label = device.renderer.target, label or name
  limited = pipeline.run_passes(chosen, target, "additions", "additions", label)
  uops = pipeline.run_passes(limited, target, "expand", "widths", label)
  if missing := [d for d in dict.fromkeys([u.dtype.scalar() for u in uops]) if d not in target.dtypes and d in dtypes.all]:
    raise CompileError(f"kernel {label}: {device.name} has no {missing[0].name}; cast to another dtype before, or use "
                       "another device")
  source, sizes = device.renderer.render(name, uops, notes), tuple(arguments(uops))
  grid, local = extent(chosen.kernel, AxisKind.GRID), tuple(map(count, extent(chosen.kernel, AxisKind.LOCAL)))
  work = work_of(kernel).given(sizes)
  if config.allow_tf32: work = work.rounded()
  return ProgramSpec(name, source, grid, local, len(kernel.params), tuple(uops), work, options(chosen.kernel), sizes,
                     label), limited.needs


def options(kernel: Kernel) -> tuple[tuple[str, int], ...]:
  """What the Opts tell the target's compiler."""
  return tuple({f"num_{o.name}": o.n for o in kernel.applied if isinstance(o, Told)}.items())


def extent(kernel: Kernel, kind: AxisKind) -> tuple[Dim, Dim, Dim]:
  """Launch sizes of the GRID or LOCAL axes: the last axis is dimension 0, all beyond the second share dimension 2."""
  sizes: list[Dim] = [a.size for a in kernel.of_kind(kind)[::-1]]
  if kind is AxisKind.GRID: sizes = [a.programs for a in kernel.axes if a.programs] or sizes
  return (*sizes, 1)[0], (*sizes, 1, 1)[1], product(sizes[2:])


def programs(kernels: Sequence[Kernel], device: Device,
             refused: Callable[[int, NtgradError], None] | None = None) -> list[Program]:
  """A program for each kernel; new ones are compiled in this order. ``refused`` is told which kernel raises what."""
  now = compiled_under()
  keys = [_key(k, device, now) for k in kernels]
  new = {key: k for key, k in zip(keys, kernels) if key not in _programs and not k.sizes}
  making = made_by_workers(new, device)
  out: list[Program] = []
  with device.expecting(len(new)), line(lambda: f"rendering {len({*keys[:len(out)]} & new.keys())} of {len(new)} kernels"):
    for i, (key, kernel) in enumerate(zip(keys, kernels)):
      if (program := _programs.get(key)) is None:
        try:   # one by one: the device may compile while the next is rendered
          program = _programs[key] = SizedProgram(kernel, device, partial(compiled_program, device=device)) if kernel.sizes else \
            compiled_program(kernel, device, making.pop(key, None))[0]
        except NtgradError as e:
          if refused is not None: refused(i, e)
          raise
        if overridden() and (mine := overrides.standing_for(kernel)) is not None:
          program = _programs[key] = overrides.Overridden(kernel, program, overriding(mine, kernel, device), mine.file, device)
      out.append(program)
      line.draw()
  return out


def _key(k: Kernel, device: Device, settings: tuple[Any, ...]) -> tuple[Any, ...]:
  return device.name, settings, k.params, k.axes, k.body, k.needs, k.free


# ---- kernels that other processes make

@dataclass(eq=False, kw_only=True)
class Making(workers.Job):
  """Kernels that some process makes: their source, and their programs where ``build`` can do that in any process."""
  kernels: Sequence[Kernel]
  labels: Sequence[str]
  device: Elsewhere
  build: Callable[..., bytes] | None = None
  made: list[_Made] | None = None          # what a worker has made; none: this process does
  held: Any = None                         # its programs, until somebody launches them
  count: int = 0                           # they are counted when they are compiled

  def work(self) -> workers.Work: return _made, (self.kernels, self.labels, self.device, self.build)

  def take(self, i: int, device: Device) -> _Made:
    """One of the kernels as source, made here if no worker has made it."""
    if self.made is None:
      with _making.claim(self) as mine:   # whichever queue it is in
        if mine:
          self.made, packed = self.answer or ([], None)
          self.answer = None
          if packed: self.held = device.take_built([m.spec for m in self.made], packed)
    if not self.made: return program_spec(self.kernels[i], device, label=self.labels[i])
    candidates.tell(self.made[i].refusals)
    return self.made[i]


def _made(kernels: Sequence[Kernel], labels: Sequence[str], device: Elsewhere,
          build: Callable[..., bytes] | None) -> tuple[list[_Made], bytes | None]:
  """Kernels as source and as a packed program, in a worker."""
  out = []
  for kernel, label in zip(kernels, labels):
    candidates.refusals.clear()
    new = program_spec(kernel, device, label=label)
    if device.identity: new = new._replace(spec=replace(new.spec, uops=()), parts=None)   # nobody asks for more, nor runs them
    out.append(new._replace(refusals=tuple(candidates.refusals)))
  return out, build(device.name, [m.spec for m in out], True) if build is not None else None


_starting: list[Making] = []   # without kernels
_Jobs = dict[Any, tuple[Making, int]]   # and the kernel's place in it
_ahead: Recent[Any, tuple[Making, int]] = Recent(256)


def made_by_workers(new: dict[Any, Kernel], device: Device) -> _Jobs:
  """Jobs for kernels that will be needed, in this order, where they are many; those that are measured are not among them."""
  if len(new) < MANY_KERNELS or workers.size() < PROCESSES or config.beam: return {}
  jobs = _jobs({key: k for key, k in new.items() if key not in _ahead}, device)
  for job in dict.fromkeys([job for job, _ in jobs.values()]): _making.add(job)
  _making.serve()
  return jobs


def start_workers(device: Device) -> None:
  """Have workers start, and get ready to make kernels: many will come."""
  if workers.size() < PROCESSES or workers.alive() or (build := device.builds_anywhere() or device.prepare) is None: return
  there = Elsewhere(device.name)
  _starting[:] = [Making(kernels=(), labels=(), device=there, build=build) for _ in range(workers.size() - 1)]   # one for each
  for job in _starting: _making.add(job)
  _making.serve()


def ahead(kernels: Sequence[Kernel], device: Device, soon: bool = False) -> None:
  """Have workers make the programs of kernels that may be asked for later; run-time sizes have their final form in them.
  ``soon``: this process is about to make them, from the first on."""
  if workers.size() < PROCESSES or config.beam: return
  now = compiled_under()
  new = {key: k for k in kernels if (key := _key(k, device, now)) not in _programs}
  _ahead.update(_jobs({key: k for key, k in new.items() if key not in _ahead}, device))
  queue = _making if soon else _later
  for job in dict.fromkeys([_ahead[key][0] for key in new]): queue.add(job)
  queue.serve()


def _jobs(new: dict[Any, Kernel], device: Device) -> _Jobs:
  settings = {**cache.settings(), **config.keyed(), "verify": config.verify}
  keeps = needs_parts() or device.renderer.target.name == "numpy"   # which runs UOps
  there = Elsewhere(device.name, device.renderer, "" if keeps else device.identity)
  keys, out = list(new), _Jobs()
  for part in [keys[i:i + JOB_KERNELS] for i in range(0, len(keys), JOB_KERNELS)]:
    kernels = [new[key] for key in part]
    job = Making(kernels=kernels, labels=[new_label(kernel_name(k)) for k in kernels], device=there, settings=settings,
                 build=device.builds_anywhere())
    out.update({key: (job, i) for i, key in enumerate(part)})
  return out


def compiled_program(kernel: Kernel, device: Device, making: tuple[Making, int] | None = None) -> _Compiled:
  """A new program, and what it needs of run-time sizes. ``making``: a worker may have its source, and the program."""
  started = perf_counter()
  if making is None and _ahead: making = _ahead[_key(kernel, device, compiled_under())]
  if making is None: new = program_spec(kernel, device, label=new_label(kernel_name(kernel)))
  else:
    with phase("compiling"): new = making[0].take(making[1], device)   # when the worker is done
  spec = with_label(kept(new, kernel, device), device)
  report.made_in(spec.label, perf_counter() - started)
  if new.parts is not None:
    for note in overrides.kernel_listeners: note(kernel, spec, new.parts, device)
  return _program(new, spec, device, kernel)


def _program(new: _Made, spec: ProgramSpec, device: Device, before: Kernel | None = None) -> _Compiled:
  """The program of a ``spec``, which is told of if it is new, and what it needs of run-time sizes."""
  if new.parts is not None: report.note_compiled(spec, new.parts, device, before)
  return from_specs([spec], device)[0], new.needs


def _identity(spec: ProgramSpec, device: Device) -> tuple[Any, ...]:
  """What equal programs have alike."""
  return device.name, spec.name, spec.source, spec.grid, spec.local, spec.nparams, spec.options, spec.sizes


def with_label(spec: ProgramSpec, device: Device) -> ProgramSpec:
  """A rendered kernel with its label: equal ones have the same."""
  return labelled(spec, _identity(spec, device))


def from_specs(specs: Sequence[ProgramSpec], device: Device) -> list[Program]:
  """A program for each rendered kernel; those that are not there yet are compiled together."""
  keys = [_identity(s, device) for s in specs]
  found: dict[Any, Any] = {k: _by_spec.get(k) for k in keys}
  again: dict[Any, list[Callable[[], ProgramSpec | None]]] = {}
  for k, s in zip(keys, specs):
    if s.again is not None: again.setdefault(k, []).append(s.again)
  for k, made_anew in again.items():   # a program that has them serves all of these
    if (p := found[k]) is None: continue
    if _identity(p.spec, device) != k: found[k] = None   # it is another one by now
    elif p.spec.again is not None: p.spec = replace(p.spec, again=_alike([p.spec.again, *made_anew]))
  new = {k: labelled(s, k) for k, s in zip(keys, specs) if found[k] is None}
  new.update({k: replace(s, again=_alike(again[k])) for k, s in new.items() if k in again})
  if new:
    started = perf_counter()
    with phase("compiling"): made = dict(zip(new, device.compile(list(new.values()))))
    for s in new.values(): report.made_in(s.label, (perf_counter() - started) / len(new))
    for c in comparers: made = {k: c.compared(p, new[k], device) for k, p in made.items()}
    _by_spec.update(made)
    found.update(made)
  return [found[k] for k in keys]


def _alike(made_anew: Sequence[Callable[[], ProgramSpec | None]]) -> Callable[[], ProgramSpec | None]:
  """Makes what was one kernel on the disk anew for each that is to have it; None where that gives several."""
  def again() -> ProgramSpec | None:
    first, *rest = [make() for make in made_anew]
    return first if all(s is not None and first is not None and s.source == first.source for s in rest) else None
  return again


def overriding(mine: Exported, kernel: Kernel, device: Device) -> Program:
  """A person's kernel compiled in the place of a scheduled one. Raises OverrideError where parameters or OPTS do not fit."""
  form = overrides.check_parameters(mine, kernel)
  name = f"{mine.kernel.name}_overridden"

  def compiled(k: Kernel) -> _Compiled:
    label = new_label(name)
    if mine.opts is None: new = program_spec(k, device, name, label=label)
    else:
      parts = pipeline.prepare(k, device.renderer.target, name)
      try: chosen = parts.after(mine.opts)
      except (NtgradError, StopIteration) as e:
        raise OverrideError(f"{mine.file}: its OPTS do not apply to the kernel as it is ({e}); OPTS = None chooses anew") from e
      new = _made_of(parts, chosen, device, name, (), label)
    return _program(new, with_label(kept(new, k, device), device), device)
  if form.sizes: return SizedProgram(form, device, compiled)
  return compiled(form if mine.opts is not None else mine.tiled())[0]
