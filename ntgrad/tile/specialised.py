"""A tile kernel with all that it is specialised for: its index form, rendered for devices."""
from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from time import perf_counter
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from ntgrad.backends.base import Device, Program, ProgramSpec
from ntgrad.codegen import index as ix
from ntgrad.codegen.explain.scheduler_form import with_aligns
from ntgrad.codegen.index import Size
from ntgrad.codegen.ir import ApplicationError, NtgradError, Ops, Recent, UOp, config, dtypes, toposort
from ntgrad.codegen.ir.paths import usable
from ntgrad.codegen.kernel import EFFECTS, AxisKind, Kernel, UOpList, buffers_written, flat_index, substitute, walk_statements
from ntgrad.codegen.passes.tiles import dissolved
from ntgrad.codegen.pipeline import finish, prepare
from ntgrad.core import Base as Lazy
from ntgrad.engine import report
from ntgrad.engine.compile import comparers, from_specs, kept, program_spec, with_label
from ntgrad.engine.device import get_device
from ntgrad.engine.device_asserts import Check, Checks, make_checks
from ntgrad.engine.plan import Step
from ntgrad.engine.report import new_label
from ntgrad.engine.size_variants import SizedProgram

from .block import ranges_of
from .launch import EVERYTHING, Launcher, SlotPair, Span
from .open_sizes import Sizes
from .parameters import Parameter
from .races import Named, in_regions
from .tune import fingerprint


@dataclass(frozen=True)
class Specialised:
  """A kernel for certain shapes, dtypes and compile-time values."""
  name: str
  kernel: Kernel                              # the index form
  parameters: tuple[Parameter, ...]           # those that are memory, by slot
  values: Mapping[str, int]                   # what each symbol is
  options: tuple[tuple[str, int], ...] = ()   # for the compiler: warps and stages
  lines: tuple[str, ...] = ()                 # of the application that store something, with file and number
  output_dir: str | os.PathLike[str] | None = None               # where generated source is kept
  asserts: tuple[Check, ...] = ()             # what it checks while it runs
  again: Callable[[Sequence[SlotPair]], Specialised | None] | None = field(default=None, compare=False)   # for pairs that are one
  # of one for many sizes: the kernel that has numbers for them
  numbers: Callable[[Mapping[str, int]], Specialised | None] | None = field(default=None, compare=False)
  breakpoints: tuple[Any, ...] = field(default=(), compare=False)   # what stops in the debugger, kept while it may run
  # a parameter's slot or a variable's name, op -> their lines
  accesses: Mapping[tuple[int | str, Ops], Sequence[str]] = field(default_factory=dict, compare=False)
  launchers: Recent[Any, Any] = field(default_factory=lambda: Recent(64), compare=False)   # by device and settings

  @property
  def writes(self) -> Sizes: return tuple(p.slot for p in self.parameters if p.written)

  @cached_property
  def touched(self) -> frozenset[int]:
    """The slots of the parameters that it reads or writes."""
    return frozenset(u.arg[0] for u in toposort(self.kernel.effects) if u.op is Ops.DEFINE_GLOBAL)

  @cached_property
  def reads(self) -> tuple[Span, ...]:
    """Of each parameter the elements in memory among which are all that are read, from the first to behind the last."""
    out = [(0, 0)] * len(self.parameters)
    for u in self.kernel.nodes:
      if u.op not in (Ops.LOAD, Ops.ATOMIC) or u.src[0].op is not Ops.DEFINE_GLOBAL: continue
      slot = u.src[0].arg[0]
      flat, (low, high) = flat_index(self.parameters[slot].shape, u.src[1].src), out[slot]
      lo, hi = EVERYTHING if ix.has_sizes(flat) else ix.bounds(flat)
      out[slot] = (min(low, lo), max(high, hi + 1)) if high else (lo, hi + 1)
    return tuple(out)

  @property
  def sizes(self) -> tuple[Size, ...]:
    """What a launch gives numbers for."""
    return self.kernel.sizes

  def launcher(self, device: str, aligns: Sizes = (), sizes: Sizes = (), shared: tuple[SlotPair, ...] = ()) -> Launcher:
    """The kernel compiled for a device; ``aligns`` are those of the params (see ``Param``) where some are pieces of a memory,
    ``sizes`` what it is launched with for its run-time sizes, ``shared`` the pairs of params that are the same memory."""
    if shared and not set(shared) <= set(self._plainly) and (found := self._read_as_one(shared)) is not None:
      return found.launcher(device, aligns, sizes)   # a value must be kept before something is written over it
    if not any(aligns): aligns = ()
    key = device, config.key(), aligns, shared
    made: Launcher | None = self.launchers[key]
    if made is None:
      d = get_device(device)
      def compiled(kernel: Kernel) -> tuple[Program, tuple[UOp, ...]]:
        spec, needs = self.rendered(kernel, d, aligns, shared)
        program, = from_specs([spec], d)
        def exact() -> Program:
          with config(noopt=1): return from_specs([self.rendered(kernel, d, aligns, shared)[0]], d)[0]
        named = bool(comparers) or d.renderer.target.name == "numpy"
        return (Named(program, kernel, self, exact) if named else program), needs
      program = SizedProgram(self.kernel, d, compiled) if self.sizes else compiled(self.kernel)[0]
      names, checks = tuple(p.name for p in self.parameters), self.checks(device)
      step = Step(program, tuple(range(len(names))), self.writes, (), device, (0,) * len(aligns))
      made = self.launchers[key] = Launcher(
        self.name, step, self.writes, names, lambda: self.sharing, checks and checks[0], partial(self.launcher, device, aligns),
        partial(self.static, device, aligns), reads=lambda: self.reads)
    return made.with_sizes(sizes) if sizes else made

  def static(self, device: str, aligns: Sizes, sizes: Sizes) -> Launcher | None:
    """The launcher of the kernel that has numbers for these sizes; None where there is none."""
    if self.numbers is None or self.asserts: return None   # what it notes of asserts is in memory of its own
    found = self.launchers["static", sizes]
    if found is None:
      found = self.launchers["static", sizes] = self.numbers(dict(zip([s.name for s in self.sizes], sizes))) or _NEVER
    return None if found is _NEVER else found.launcher(device, aligns)

  @cached_property
  def sharing(self) -> tuple[SlotPair, ...]:
    """The pairs (written parameter, another) that may be the same memory."""
    plainly = self._plainly
    return *plainly, *[p for p in _alike(self.parameters) if p not in plainly and self._read_as_one((p,)) is not None]

  @cached_property
  def _plainly(self) -> tuple[SlotPair, ...]:
    """Those that may be in the kernel as it is, which knows nothing of it."""
    pairs = _alike(self.parameters)
    by_slot = by_parameter(staged(self.kernel)) if pairs else {}
    return tuple((w, p) for w, p in pairs if _in_order(by_slot.get(p, []), by_slot.get(w, [])))

  def _read_as_one(self, shared: tuple[SlotPair, ...]) -> Specialised | None:
    """The kernel read for pairs that are the same memory; None where it reads what it has written over, or is not to be had."""
    if self.again is None: return None
    found: Any = self.launchers[shared]
    if found is None:
      try: found = self.again(shared) or _NEVER
      except NtgradError: found = _NEVER   # a sort cannot keep a value
      by_slot = {} if found is _NEVER else by_parameter(found.kernel)
      for events in [by_slot.get(w, []) for w, _ in shared]:
        if not _in_order([e for e in events if e.access.op is Ops.LOAD], events): found = _NEVER
      self.launchers[shared] = found
    return None if found is _NEVER else found

  def checks(self, device: str) -> tuple[Checks, Lazy] | None:
    """Where the kernel notes on a device which of its asserts failed, and the argument that this is; None for one without any."""
    if not self.asserts: return None
    found: tuple[Checks, Lazy] | None = self.launchers[device]
    if found is None:
      made, memory = make_checks(self.name, device, self.asserts)
      made.owner = Lazy._from_node(memory.node)
      found = self.launchers[device] = made, made.owner
    return found

  def spec(self, device: Device, aligns: Sequence[int] = (), shared: Sequence[SlotPair] = ()) -> ProgramSpec:
    """Rendered for a device. With DEBUG=3 and more this is shown."""
    return self.rendered(self.kernel, device, aligns, shared)[0]

  def rendered(self, kernel: Kernel, device: Device, aligns: Sequence[int] = (),
               shared: Sequence[SlotPair] = ()) -> tuple[ProgramSpec, tuple[UOp, ...]]:
    """``spec`` of the kernel, or of it with other expressions for its run-time sizes; and what it needs of these."""
    for u in kernel.nodes:
      if u.op is Ops.PRINT and u.arg.stop and device.renderer.target.name != "numpy":
        raise ApplicationError(f"{self.name}: breakpoint() at {u.arg.text}: device {device.name} stops in no debugger; launch it "
                               "on NUMPY (DEV=NUMPY, or its tensors' device); PYTHONBREAKPOINT=0 leaves it out")
    if shared: kernel = as_one(kernel, shared)
    kernel = with_aligns(kernel, aligns)
    started = perf_counter()
    made = program_spec(kernel, device, self.name, self.lines, new_label(self.name))
    options, needs, parts = {**dict(made.spec.options), **dict(self.options)}, made.needs, made.parts
    spec = with_label(replace(kept(made, kernel, device, self.lines), options=tuple(options.items())), device)
    report.made_in(spec.label, perf_counter() - started)
    if config.debug >= 3 and parts is not None:
      report.made(spec, parts, device, self.arrangements(), dissolved(kernel, device.renderer.target))
    if self.output_dir is not None: self.keep(spec, device.renderer.target.name)
    return spec, needs

  def keep(self, spec: ProgramSpec, target: str) -> None:
    """Write the source into ``output_dir``."""
    folder = Path(self.output_dir or ".")
    with usable(f"{self.name}: output_dir", folder): folder.mkdir(parents=True, exist_ok=True)
    end = {"opencl": "cl", "triton": "py", "numpy": "txt"}.get(target, target)
    (folder / f"{spec.name}_{fingerprint(spec.source.text)[:8]}.{end}").write_text(spec.source.text)

  @cached_property
  def uops(self) -> UOpList:
    """The linear UOps without any Opt."""
    return finish(prepare(self.kernel, None), None)

  def arrangements(self) -> str:
    """The meta-operations of each parameter, as written."""
    return "\n".join(p.arrangement.text(p.name) for p in self.parameters)


# ---- arguments that are the same memory
# In general what one program writes others would read. It is safe where both parameters are arranged alike, so that each program
# has elements of its own, and where a program reads an element before it is written or for the write itself: ``y[k] = x[k] * 2``.
# The kernel is then compiled once more with the two as one parameter, so that nothing is reordered that may not be.

class Event(NamedTuple):
  """A load or store of a parameter: its place among the kernel's statements, the FORs and WHILEs around it, and the access."""
  position: int
  loops: tuple[UOp, ...]
  access: UOp


_NEVER = object()   # stands for a kernel that there is not


def _alike(parameters: Sequence[Parameter]) -> list[SlotPair]:
  """The pairs (written parameter, another) that are arranged alike, so that each program has elements of its own."""
  def own(p: Parameter) -> bool: return not p.anywhere and not p.computed and p.memory is None and p.arrangement.injective
  return [(w.slot, p.slot) for w in parameters for p in parameters if w.written and not p.written and own(w) and own(p)
          and w.dtype is p.dtype and w.arrangement.text() == p.arrangement.text()]


def by_parameter(kernel: Kernel) -> dict[int, list[Event]]:
  """Every LOAD, STORE and ATOMIC of each parameter, by its slot."""
  out: dict[int, list[Event]] = {}
  for position, (s, around) in enumerate(in_regions(kernel.body)):
    loops = tuple([r for r in around if r.op in (Ops.FOR, Ops.WHILE)])
    # the condition of a WHILE is looked at in each round
    within = (*loops, s) if s.op is Ops.WHILE else loops
    found = [(within, u) for u in toposort(s.src if s.op in EFFECTS else s.src[:1]) if u.op is Ops.LOAD]
    for at, u in [*found, (loops, s)] if s.op in EFFECTS else found:
      if u.src[0].op is Ops.DEFINE_GLOBAL: out.setdefault(u.src[0].arg[0], []).append(Event(position, at, u))
  return out


def _in_order(loads: Sequence[Event], touched: Sequence[Event]) -> bool:
  """Whether loads get the same where others of ``touched`` write that memory: each comes before, or is at the same element."""
  for s in touched:
    if s.access.op is Ops.ATOMIC: return False
    if s.access.op is not Ops.STORE: continue
    index = s.access.src[1]
    counters = {r.arg[0] for r in index.ranges}
    for load in loads:
      around = [x for x in load.loops if x in s.loops]
      same = load.access.src[1] is index
      # each round has elements of its own, or the next one would read what this one wrote
      if around and not same or any(x.op is Ops.WHILE or x.arg not in counters for x in around): return False
      if load.position > s.position or load.position == s.position and not same: return False
  return True


def staged(kernel: Kernel) -> Kernel:
  """The kernel with reductions that are the same in every round of a loop computed before it, as in a softmax's last loop."""
  kinds = {a.id: a.kind for a in kernel.axes}
  body: list[UOp] = []
  count = 0
  for s in kernel.body:
    if s.op is not Ops.FOR:
      body.append(s)
      continue
    counters = {f.arg for f in toposort((s,)) if f.op is Ops.FOR}
    stored = {b for e, _ in walk_statements((s,)) for b in buffers_written(e)}

    def fixed(u: UOp, own: set[int] = counters, filled: set[UOp] = stored) -> bool:
      if u.op is not Ops.REDUCE or own & {r.arg[0] for r in u.ranges}: return False
      return not any(n.op is Ops.LOAD and n.src[0] in filled for n in toposort((u,)))

    new: dict[UOp, UOp] = {}
    for u in toposort((s,), stop=fixed):
      if not fixed(u): continue
      axes = [r for r in ranges_of(u) if kinds[r.arg[0]] is AxisKind.TILE]
      variable = UOp(Ops.DEFINE_LOCAL, u.dtype, (), (f"kept{count}", tuple(r.arg[1] for r in axes), "private"))
      index = UOp(Ops.INDEX, dtypes.index, tuple(axes))
      body.append(UOp.unique(Ops.STORE, u.dtype, (variable, index, substitute((u,), new)[0])))
      new[u] = UOp(Ops.LOAD, u.dtype, (variable, index))
      count += 1
    body.append(substitute((s,), new)[0] if new else s)
  return kernel.with_(body=tuple(body))


def as_one(kernel: Kernel, pairs: Sequence[SlotPair]) -> Kernel:
  """The kernel in which the second parameter of each pair is the first."""
  kernel = staged(kernel)
  uops = {p.slot: p.uop for p in kernel.params}
  return kernel.with_(body=substitute(kernel.body, {uops[p]: uops[w] for w, p in pairs}))
