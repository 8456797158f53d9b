"""What ``DEBUG`` shows, each level with those below it:

1 devices, schedules, where the time of a first run went · 2 a line per kernel that ran, with the part of its bound that it
reached · 3 axes, Opts, arrangements and body of every new kernel · 4 its source · 5 its linear UOps · 6 its machine code, once it
has run.

A schedule prints its header, from level 3 on a table of its kernels and a section for each that is new, and then the lines of
what runs.
"""
from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Callable, Protocol

from ntgrad.backends.base import Device, KernelSource, ProgramSpec
from ntgrad.codegen.access import accesses
from ntgrad.codegen.bound import Bound, Work, bound
from ntgrad.codegen.config import config
from ntgrad.codegen.errors import ExportError
from ntgrad.codegen.index import Dim, conjuncts, count
from ntgrad.codegen.kernel import Kernel
from ntgrad.codegen.parts import Parts
from ntgrad.codegen.printing import body_lines, dtype_name, form_text
from ntgrad.codegen.recent import Recent
from ntgrad.codegen.size_text import COMPARISONS, condition_text, text_of
from ntgrad.codegen.sizes import dim_text, evaluator
from ntgrad.codegen.tile_source import tile_source
from ntgrad.codegen.uop import Ops, UOp, UOpList

if TYPE_CHECKING:
  from .plans import Step

WIDTH = 120
_INT_MOST = 2 ** 31 - 1   # what fits an int says nothing of a kernel
_COLORS = {"green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36, "gray": 90}
# new kernels that no schedule has shown yet
_waiting: dict[tuple[str, KernelSource], tuple[ProgramSpec, Parts, Device, Kernel | None]] = {}
# kernels whose machine code has not been shown
_unseen: Recent[tuple[str, KernelSource], Device] = Recent(1024)
seconds = [0.0]   # of all launches that were timed (``counters``)
_count = [0, 0]                                                             # schedules, launches


def color(text: str, name: str) -> str:
  """Coloured text on a terminal (or as ``config.color`` says), plain elsewhere."""
  on = sys.stdout.isatty() if config.color < 0 else bool(config.color)
  return f"\x1b[{_COLORS[name]}m{text}\x1b[0m" if on else text


def scaled(value: float, unit: str) -> str:
  """A number with a prefix, in 8 columns and the unit: ``  12.3 µs``, `` 203 kFLOP``."""
  if not value: return f"{0:5d}  {unit}"
  for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""), (1e-3, "m"), (1e-6, "µ")):
    if value >= factor * 0.9995: return f"{value / factor:5.{max(0, 2 - len(str(int(value / factor))) + 1)}f} {prefix}{unit}"
  return f"{value * 1e9:5.1f} n{unit}"


def launched(spec: ProgramSpec, sizes: Sequence[int] = ()) -> ProgramSpec:
  """What is said of a launch: a spec with numbers for its sizes. Without ``sizes`` work and traffic are about what they may
  be."""
  if not spec.sizes: return spec
  if not sizes: return replace(spec, work=spec.work.likely())
  found, n = evaluator((*spec.grid, *spec.work.numbers), spec.sizes)(sizes), len(spec.grid)
  return replace(spec, grid=found[:n], work=spec.work.with_numbers(found[n:]))


def sizes_text(spec: ProgramSpec, sizes: Sequence[int]) -> str:
  """The run-time sizes of a launch, after two blanks: ``  N=48, M=3``."""
  return "  " + ", ".join([f"{s.name}={n * s.unit}" for s, n in zip(spec.sizes, sizes)]) if sizes else ""


def conditions_text(conditions: Iterable[UOp]) -> str:
  """Conditions on run-time sizes: ``8 <= N and M < N``."""
  return " and ".join([condition_text(c) if c.arg in COMPARISONS else f"({dim_text(c)})" for c in conditions])


def grid_text(spec: ProgramSpec) -> str:
  """Programs a launch: ``8x3``, slowest dimension first; with work-items ``8x3 of 64``."""
  def sizes(dims: Sequence[Dim]) -> str: return "x".join(text_of(d) for d in dims[::-1] if d != 1) or "1"
  return sizes(spec.grid) + (f" of {sizes(spec.local)}" if sizes(spec.local) != "1" else "")


def sized(kernel: str, sizes: str, family: Any, form: Any) -> None:
  """With DEBUG=1: that sizes of a kernel are known at the launch from here on."""
  if config.debug < 1: return
  met = ", ".join([f"{n} met as {' and '.join(map(str, sorted(v)[:2]))}" for n, v in family.seen.items() if len(v) > 1])
  told = [c for c in conjuncts(form.condition) if not any(s.op is Ops.CONST and s.arg >= _INT_MOST for s in c.src[1:])]
  where = f", where {conditions_text(told)}" if told else ""
  print(f"tile {kernel}: {sizes} unknown until the launch ({met or 'declared'}){where}", flush=True)


def stays_static(kernel: str, names: Sequence[str], why: Exception) -> None:
  """With DEBUG=1: that a kernel is made for each size, and why."""
  if config.debug >= 1: print(f"tile {kernel}: {', '.join(names)} stay numbers: {str(why).splitlines()[0]}", flush=True)


def heading(text: str, name: str) -> str:
  """``── text ─────``"""
  return color(f"── {text} " + "─" * max(3, WIDTH - len(text) - 4), name)


def indented(text: str, by: str = "  ") -> str:
  """Every line moved to the right, without blank lines at the ends."""
  return "\n".join(by + line if line else "" for line in text.strip("\n").split("\n"))


def tuned(name: str, values: dict[str, int], lines: Sequence[str]) -> None:
  """Level 2: what a search for block sizes chose, and what it tried."""
  if config.debug < 2: return
  show(color(f"tuned {name}: {', '.join(f'{n}={v}' for n, v in values.items())}", "cyan"))
  for line in lines: show(f"  {line}")


def note(text: str) -> None:
  """Level 1: a line about what is done from now on."""
  if config.debug >= 1: show(color(text, "cyan"))


def scheduled(steps: Sequence[Step], found_again: bool, seconds: float) -> None:
  """Level 1: a schedule's header. Level 3: a table of its kernels, and a section for each that is new."""
  if config.debug < 1: return
  _count[0] += 1
  kernels = sum(s.program is not None for s in steps)
  copies = f", {len(steps) - kernels} copies" if len(steps) > kernels else ""
  found = "found again" if found_again else "new"
  head = f"schedule {_count[0]}: {kernels} kernel{'s' if kernels != 1 else ''}{copies}, {found}, {scaled(seconds, 's').strip()}"
  show(color(head, "cyan") if config.debug < 3 else ("\n" + heading(head, "cyan")))
  if config.debug >= 3 and not found_again:
    for line in table(steps): show(line)
    for spec, parts, device, before in list(_waiting.values()): section(spec, parts, device, before)
    _waiting.clear()
    if kernels: show("\n" + heading("runs", "gray"))


def first_run(seconds: float, phases: Mapping[str, float]) -> None:
  """Level 1: where the time of a schedule went for which kernels were made."""
  if config.debug < 1 or not phases["choosing"]: return
  parts = ", ".join([f"{name} {scaled(spent, 's').strip()}" for name, spent in phases.items()])
  show(color(f"first run in {scaled(seconds, 's').strip()}: {parts}", "cyan"))


def table(steps: Sequence[Step]) -> list[str]:
  """A line for every step: what it writes from what it reads, how much it computes and moves. ``*`` marks a kernel that is
  new."""
  rows = []
  for i, s in enumerate(steps):
    reads = ", ".join(f"b{b}" for n, b in enumerate(s.slots) if n not in s.writes)
    flow = f"{', '.join(f'b{s.slots[n]}' for n in s.writes)} <- {reads or 'nothing'}"
    if s.program is None: rows.append((f"{i:4d}", f"copy to {s.device}", "", "", "", flow))
    else:
      spec = launched(s.program.spec, s.sizes)  # type: ignore[attr-defined]
      flow += sizes_text(spec, s.sizes)
      mark = "*" if (spec.name, spec.source) in _waiting else " "
      rows.append(
        (f"{i:4d}{mark}", spec.name, f"grid {grid_text(spec)}", scaled(count(spec.work.flops), "FLOP"),
         scaled(count(spec.work.bytes), "B"), flow)
      )
  widths = [max((len(r[c]) for r in rows), default=0) for c in range(5)]
  return ["  ".join(x.ljust(w) for x, w in zip(r, widths)) + "  " + r[5] for r in rows]


def compiled(spec: ProgramSpec, parts: Parts, device: Device, before: Kernel | None = None) -> None:
  """A new kernel, after its Opts: kept until its schedule is shown; ``before``: as the scheduler made it."""
  if config.debug < 3: return
  key = (spec.name, spec.source)
  _waiting[key] = (spec, parts, device, before)
  if config.debug >= 6: _unseen[key] = device


def made(spec: ProgramSpec, parts: Parts, device: Device, arrangements: str, dissolved: str = "") -> None:
  """Level 3: a kernel that a person wrote, with its own arrangements, and which of its tiles are ``dissolved``."""
  if config.debug < 3: return
  section(spec, parts, device)
  show(color("arranged", "magenta"))
  show(indented(arrangements))
  if dissolved: show(indented(dissolved))


def section(spec: ProgramSpec, parts: Parts, device: Device, before: Kernel | None = None) -> None:
  """Levels 3 to 5: what a kernel is; ``before``, as the scheduler made it, as a file of the tile language."""
  show("\n" + heading(f"{spec.name} on {device.name}", "yellow"))
  show(describe(parts.kernel))
  if before is not None:
    try: text = tile_source(before, spec.name, parts.opts)
    except ExportError as e: text = f"none: {e}"
    show(color("as a file of the tile language", "magenta"))
    show(indented(text))
  if not parts.kernel.plain:
    show(color("statements, after their Opts", "magenta"))
    show(indented(form_text(parts)))
  if config.debug >= 4:
    show(color("source", "magenta"))
    show(indented(spec.source.text))
  if config.debug >= 5 and spec.uops:
    show(color("linear UOps", "magenta"))
    show(str(UOpList(spec.uops)))


def describe(kernel: Kernel) -> str:
  """Axes, Opts, the run-time sizes that it is for, each parameter with its arrangements, and the body."""
  lines = ["axes   " + (", ".join(map(str, kernel.axes)) or "none")]
  if kernel.applied: lines.append("opts   " + ", ".join(map(str, kernel.applied)))
  if kernel.needs: lines.append("needs  " + conditions_text(kernel.needs))
  found = accesses(kernel)
  for p in kernel.params:
    mine: dict[tuple[str, str], list[str]] = {}
    for a in found:
      if a.param is p: mine.setdefault((a.chain(), a.levels()), []).append("written" if a.stored else "read")
    hows = sorted({how for hows in mine.values() for how in hows})
    lines.append(f"data{p.slot:<3d}{dtype_name(p.dtype)}{', ' + ' and '.join(hows) if p.written else ''}")
    for (chain, levels), how in mine.items():
      lines.append(f"       {chain}{f' ({how[0]})' if p.written and len(mine) > 1 else ''}")
      if levels: lines.append("         " + levels)
  return "\n".join(lines + ["body"] + ["  " + line for line in body_lines(kernel)])


# ---- launches that are timed

class Watcher(Protocol):
  """What is told of launches that are timed."""

  def launched(self, spec: ProgramSpec, device: Device, seconds: float, least: Bound) -> None:
    """A launch, ``spec`` having numbers for its sizes, has taken so long; ``least`` is its bound. Called by the thread that
    launched."""


watchers: list[Watcher] = []


def timing() -> bool:
  """Whether launches are made one by one and timed: for lines at level 2, and for watchers."""
  return bool(watchers) or config.debug >= 2


def ran(spec: ProgramSpec, took: float, sizes: Sequence[int], device: Device) -> None:
  """A launch with ``sizes`` was timed. Level 2: a line for it. Level 6: its machine code, after the first time."""
  seconds[0] += took
  least = _tell(spec := launched(spec, sizes), device, took := max(took, 1e-9))
  if config.debug < 2: return
  _count[1] += 1
  name, work = color(f"{spec.name:26s}", "green"), spec.work
  speed = f"{count(work.flops) / took * 1e-9:8.2f} GFLOP/s {count(work.bytes) / took * 1e-9:7.2f} GB/s"
  reached = f"{least.seconds / took * 100:3.0f} % of bound ({least.unit.value})"
  line = f"*** {_count[1]:5d}  {name}  grid {grid_text(spec):10s} {scaled(took, 's')} {speed}  {reached}"
  show(line + sizes_text(spec, sizes))
  if config.debug >= 6 and _unseen.pop((spec.name, spec.source), None) is not None:
    show(color(f"machine code of {spec.name}", "magenta"))
    show(indented(getattr(device, "disassemble", _no_machine_code)(spec)))


def copied(copy: Callable[[], object], nbytes: int, to: Device, source: Device) -> None:
  """Make a copy between devices and time it, for watchers: its bound is the memory of the slower one."""
  for device in (source, to): device.synchronize()
  start = perf_counter()
  copy()
  to.synchronize()
  slower = min(to, source, key=lambda d: d.renderer.target.bandwidth)
  spec = ProgramSpec(f"copy {source.name} to {to.name}", KernelSource(""), (), (), 2, work=Work(nbytes, (), (nbytes,)))
  _tell(spec, slower, perf_counter() - start)


def _tell(spec: ProgramSpec, device: Device, seconds: float) -> Bound:
  least = bound(spec.work, device.renderer.target)
  for w in tuple(watchers): w.launched(spec, device, seconds, least)
  return least


def _no_machine_code(spec: ProgramSpec) -> str: return f"# no assembly of {spec.name}: this device runs its UOps as they are"


def show(text: str) -> None:
  """Print now: what goes to standard error (progress bars, warnings) stays in place when both go to one file."""
  print(text, flush=True)


def reset() -> None:
  """Count schedules and launches from 1 again, as if nothing had been shown."""
  _count[:] = [0, 0]
  _waiting.clear()
  _unseen.clear()


__all__ = ["color", "compiled", "describe", "ran", "reset", "scheduled"]
