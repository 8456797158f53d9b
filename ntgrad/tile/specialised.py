"""A tile kernel with all that it is specialised for: its index form, rendered for devices."""
from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any, Mapping, Sequence

from ntgrad.backends.base import Device, ProgramSpec
from ntgrad.codegen.config import config
from ntgrad.codegen.index import Size
from ntgrad.codegen.kernel import Kernel
from ntgrad.codegen.listing import UOpList
from ntgrad.codegen.pipeline import finish, prepare
from ntgrad.codegen.recent import Recent
from ntgrad.codegen.rewrite import substitute
from ntgrad.codegen.tiles import dissolved
from ntgrad.codegen.uop import Ops, UOp, toposort
from ntgrad.core import Base as Lazy
from ntgrad.engine import report
from ntgrad.engine.asserts import Check, Checks, make_checks
from ntgrad.engine.compile import named, program_spec
from ntgrad.engine.report import new_label

from .launch import Launcher, launcher_of
from .place import Parameter
from .sharing import Pair, as_one, may_share
from .tune import fingerprint


def aligned(kernel: Kernel, aligns: Sequence[int]) -> Kernel:
  """A kernel whose params are pieces of a memory with these ``aligns`` (see ``Param``); () for none."""
  if not any(aligns): return kernel
  params = tuple(replace(p, align=n) for p, n in zip(kernel.params, aligns))
  return kernel.with_(params=params, body=substitute(kernel.body, {p.uop: q.uop for p, q in zip(kernel.params, params)}))


@dataclass(frozen=True)
class Specialised:
  """A kernel for certain shapes, dtypes and compile-time values."""
  name: str
  kernel: Kernel                              # the index form
  parameters: tuple[Parameter, ...]           # those that are memory, by slot
  values: Mapping[str, int]                   # what each symbol is
  options: tuple[tuple[str, int], ...] = ()   # for the compiler: warps and stages
  lines: tuple[str, ...] = ()                 # of the application that store something, with file and number
  output_dir: str | None = None               # where generated source is kept
  tf32: bool = False                          # a product asks for it
  asserts: tuple[Check, ...] = ()             # what it checks while it runs
  launchers: Recent[Any, Any] = field(default_factory=lambda: Recent(64), compare=False)   # by device and settings

  @property
  def writes(self) -> tuple[int, ...]: return tuple(p.slot for p in self.parameters if p.written)

  @cached_property
  def touched(self) -> frozenset[int]:
    """The slots of the parameters that it reads or writes."""
    return frozenset(u.arg[0] for u in toposort(self.kernel.effects) if u.op is Ops.DEFINE_GLOBAL)

  @property
  def sizes(self) -> tuple[Size, ...]:
    """What a launch gives numbers for."""
    return self.kernel.sizes

  def launcher(self, device: str, aligns: tuple[int, ...] = (), sizes: tuple[int, ...] = ()) -> Launcher:
    """The kernel compiled for a device. See ``launcher_of``."""
    return launcher_of(self, device, aligns, (), sizes)

  @cached_property
  def sharing(self) -> tuple[tuple[int, int], ...]:
    """The pairs (written parameter, another) that may be the same memory."""
    return may_share(self.kernel, self.parameters)

  def checks(self, device: str) -> tuple[Checks, Lazy] | None:
    """Where the kernel notes on a device which of its asserts failed, and the argument that this is; None for one without any."""
    if not self.asserts: return None
    found: tuple[Checks, Lazy] | None = self.launchers.get(device)
    if found is None:
      made, memory = make_checks(self.name, device, self.asserts)
      made.owner = Lazy._from_node(memory.node)
      found = self.launchers[device] = made, made.owner
    return found

  def spec(self, device: Device, aligns: Sequence[int] = (), shared: Sequence[Pair] = ()) -> ProgramSpec:
    """Rendered for a device, params that are pieces of a memory with their ``aligns``, for ``shared`` pairs that are the same
    memory. With DEBUG=3 and more this is shown."""
    return self.rendered(self.kernel, device, aligns, shared)[0]

  def rendered(self, kernel: Kernel, device: Device, aligns: Sequence[int] = (),
               shared: Sequence[Pair] = ()) -> tuple[ProgramSpec, tuple[UOp, ...]]:
    """``spec`` of the kernel, or of it with other expressions for its run-time sizes; and what it needs of these."""
    if shared: kernel = as_one(kernel, shared)
    kernel = aligned(kernel, aligns)
    started = perf_counter()
    with config(allow_tf32=1 if self.tf32 else config.allow_tf32):
      spec, parts = program_spec(kernel, device, self.name, self.lines, new_label(self.name))
    spec = named(replace(spec, options=tuple({**dict(spec.options), **dict(self.options)}.items())), device)
    report.made_in(spec.label, perf_counter() - started)
    report.made(spec, parts, device, self.arrangements(), dissolved(kernel, device.renderer.target) if config.debug >= 3 else "")
    if self.output_dir is not None: self.keep(spec, device.renderer.target.name)
    return spec, parts.needs

  def keep(self, spec: ProgramSpec, target: str) -> None:
    """Write the source into ``output_dir``."""
    folder = Path(self.output_dir or ".")
    folder.mkdir(parents=True, exist_ok=True)
    end = {"opencl": "cl", "triton": "py", "numpy": "txt"}.get(target, target)
    (folder / f"{spec.name}_{fingerprint(spec.source.text)[:8]}.{end}").write_text(spec.source.text)

  @cached_property
  def uops(self) -> UOpList:
    """The linear UOps without any Opt."""
    return finish(prepare(self.kernel, None), None)

  def arrangements(self) -> str:
    """The meta-operations of each parameter, as written."""
    return "\n".join(p.arrangement.text(p.name) for p in self.parameters)
