"""What ``DEBUG`` shows, each level with those below it: 1 devices, schedules, where the time of a first run went · 2 a line per
kernel that ran, with the part of its bound that it reached, at first how long it took to make · 3 axes, Opts, arrangements and
body of new kernels · 4 source · 5 linear UOps · 6 machine code, once it has run. ``ONLY=r_*`` leaves out kernels with other
names.

A schedule prints its header, from level 3 on a table and a section for each new kernel, and then the lines of what runs.
"""
from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from textwrap import indent
from time import perf_counter
from typing import TYPE_CHECKING, Any, Callable, Hashable

from ntgrad.backends.base import Device, KernelSource, ProgramSpec
from ntgrad.codegen.choose.bound import Bound, Work, bound
from ntgrad.codegen.explain.arrangements import arranged_accesses
from ntgrad.codegen.explain.printing import body_lines, dtype_name, form_text
from ntgrad.codegen.explain.tile_source import tile_source
from ntgrad.codegen.index import COMPARISONS, condition_text, conjuncts, count, dim_text, evaluator, shape_text, text_of
from ntgrad.codegen.ir import ExportError, Ops, Recent, UOp, config
from ntgrad.codegen.kernel import Kernel, UOpList, block_shapes
from ntgrad.codegen.passes.parts import Parts
from ntgrad.graph import lock, origins
from ntgrad.graph.buffer_names import BufferNames

from .observers import observers

if TYPE_CHECKING:
  from .plan import Step

WIDTH = 120              # columns of what is printed
LABELS = 8192            # names, and kernels, that are remembered
_INT_MOST = 2 ** 31 - 1  # what fits an int says nothing of a kernel
_COLORS = {"green": 32, "yellow": 33, "magenta": 35, "cyan": 36, "gray": 90}
# new kernels that no schedule has shown yet, by label
_waiting: dict[str, tuple[ProgramSpec, Parts, Device, Kernel | None]] = {}
_unseen: Recent[str, Device] = Recent(1024)  # kernels whose machine code has not been shown
_helpers: Recent[str, bool] = Recent(1024)   # parts of sources that have been shown
_NAMED = re.compile(r"(\w+)(?=\s*\(|;\s*$)", re.MULTILINE)   # what a function or a typedef defines
_making: Recent[str, float] = Recent(1024)   # kernels that have not been launched yet: seconds that it took to make them
seconds = [0.0]                              # of all launches that were timed (``counters``)
_count = [0, 0]                              # schedules, launches


def _color(text: str, name: str) -> str:
  """Coloured text on a terminal (or as ``config.color`` says), plain elsewhere."""
  on = sys.stdout.isatty() if config.color < 0 else config.color
  return f"\x1b[{_COLORS[name]}m{text}\x1b[0m" if on else text


def unit_text(value: float, unit: str) -> str:
  """A number with a prefix, in 8 columns and the unit: ``  12.3 µs``, `` 203 kFLOP``."""
  if not value: return f"{0:5d}  {unit}"
  for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""), (1e-3, "m"), (1e-6, "µ")):
    if value >= factor * 0.9995: return f"{value / factor:5.{max(0, 2 - len(str(int(value / factor))) + 1)}f} {prefix}{unit}"
  return f"{value * 1e9:5.1f} n{unit}"


def time_text(seconds: float) -> str: return unit_text(seconds, "s").strip()
def bytes_text(n: float) -> str: return unit_text(n, "B").strip()


def launched_spec(spec: ProgramSpec, sizes: Sequence[int] = ()) -> ProgramSpec:
  """A spec with numbers for its sizes, for what is said of a launch. Without ``sizes`` work is about what it may be."""
  if not spec.sizes: return spec
  if not sizes: return replace(spec, work=spec.work.likely())
  found, n = evaluator((*spec.grid, *spec.work.numbers), spec.sizes)(sizes), len(spec.grid)
  return replace(spec, grid=found[:n], work=spec.work.with_numbers(found[n:]))


def _sizes_text(spec: ProgramSpec, sizes: Sequence[int]) -> str:
  """The run-time sizes of a launch, after two blanks: ``  N=48, M=3``, without numbers of its kernel, which are given by their
  bits (``shared_programs``): no size may be negative."""
  known = [f"{s.name}={n * s.unit}" for s, n in zip(spec.sizes, sizes) if s.lower is None or s.lower >= 0]
  return f"  {', '.join(known)}" if known else ""


def keeps(values: Sequence[UOp], kernels: int) -> None:
  """Level 1: which values a new plan stores because tensors hold them, and what that costs."""
  note_line(f"keeps {len(values)} value{'s' * (len(values) != 1)} that tensors hold"
            f"{f', by {kernels} kernels more' if kernels > 0 else ''}: "
            f"{', '.join(f'{dtype_name(u.dtype)}{shape_text(u.shape)}' for u in values[:4])}{', ..' * (len(values) > 4)}")


def made_apart(sums: Mapping[UOp, tuple[str, Sequence[UOp]]], order: Sequence[UOp]) -> None:
  """Level 1: which sums of a graph in ``order`` might be made in one pass with what they need, why they are not, and what their
  kernels compute."""
  if config.debug < 1 or not sums: return
  lines = origins.lines_of([nodes for _, nodes in sums.values()], order)
  said = [f"a sum, {dtype_name(u.dtype)}{shape_text(u.shape)}{f' ({line})' if line else ''}, is not made in one pass with what "
          f"it needs: {why}" for line, (u, (why, _)) in zip(lines, sums.items())]
  for text in dict.fromkeys(said): note_line(text)


def conditions_text(conditions: Iterable[UOp]) -> str:
  """Conditions on run-time sizes: ``8 <= N and M < N``."""
  return " and ".join(condition_text(c) if c.arg in COMPARISONS else f"({dim_text(c)})" for c in conditions)


def grid_text(spec: ProgramSpec) -> str:
  """Programs a launch: ``8x3``, slowest dimension first; with work-items ``8x3 of 64``."""
  grid, local = ("x".join(text_of(d) for d in dims[::-1] if d != 1) for dims in (spec.grid, spec.local))
  return f"{grid or 1}{f' of {local}' if local else ''}"


def sized(kernel: str, sizes: str, family: Any, form: Any) -> None:
  """With DEBUG=1: that sizes of a kernel are known at the launch from here on."""
  if config.debug < 1: return
  met = ", ".join(f"{n} met as {' and '.join(map(str, sorted(v)[:2]))}" for n, v in family.seen.items() if len(v) > 1)
  told = [c for c in conjuncts(form.condition) if not any(s.op is Ops.CONST and s.arg >= _INT_MOST for s in c.src[1:])]
  print_now(f"tile {kernel}: {sizes} unknown until the launch ({met or 'declared'})"
            f"{f', where {conditions_text(told)}' if told else ''}")


def stays_static(kernel: str, names: Sequence[str], why: Exception) -> None:
  """With DEBUG=1: that a kernel is made for each size, and why."""
  if config.debug >= 1: print_now(f"tile {kernel}: {', '.join(names)} stay numbers: {str(why).splitlines()[0]}")


def heading(text: str, name: str) -> str:
  """``── text ─────``"""
  return _color(f"── {text} {'─' * max(3, WIDTH - len(text) - 4)}", name)


def _titled(title: str, *texts: str) -> None:
  """Print texts under a title, moved to the right, without blank lines at the ends."""
  print_now("\n".join([_color(title, "magenta"), *(indent(text.strip("\n"), "  ") for text in texts)]))


def tuned(name: str, values: dict[str, int], lines: Sequence[str]) -> None:
  """Level 2: what a search for block sizes chose, and what it tried."""
  if config.debug < 2 or not config.speaks_of(name): return
  print_now("\n  ".join([_color(f"tuned {name}: {', '.join(f'{n}={v}' for n, v in values.items())}", "cyan"), *lines]))


def note_line(text: str) -> None:
  """Level 1: a line about what is done from now on."""
  if config.debug >= 1: print_now(_color(text, "cyan"))


def scheduled(steps: Sequence[Step], found_again: bool, seconds: float, order: Sequence[UOp], inputs: Sequence[UOp] = (),
              asked: Mapping[UOp, Sequence[origins.Origin]] | None = None) -> None:
  """Level 1: the header of the schedule of a graph in ``order``. Level 3: a table, and a section for each new kernel; ``asked``:
  see ``origins.of``."""
  if config.debug < 1: return
  _count[0] += 1
  kernels = sum(s.program is not None for s in steps)
  copies = f", {len(steps) - kernels} copies" if len(steps) > kernels else ""
  head = (f"schedule {_count[0]}: {kernels} kernel{'s' * (kernels != 1)}{copies}, {'found again' if found_again else 'new'}, "
          f"{time_text(seconds)}")
  print_now(_color(head, "cyan") if config.debug < 3 else f"\n{heading(head, 'cyan')}")
  if config.debug >= 3 and not found_again:
    lines = origins.lines_of([[order[i] for i in s.nodes] for s in steps], order, asked)
    for line in table(steps, lines, list(map(BufferNames().of, inputs))): print_now(line)
    made = {s.program.spec.label: text for s, text in zip(steps, lines) if s.program is not None}  # type: ignore[attr-defined]
    for spec, parts, device, before in list(_waiting.values()):
      section(spec, parts, device, made.get(spec.label, ""), before)
    _waiting.clear()
    if kernels: print_now(f"\n{heading('runs', 'gray')}")


def first_run(seconds: float, phases: Mapping[str, float], quick: int) -> None:
  """Level 1: where the time of a schedule went for which kernels were made, so many of them without optimisation."""
  if config.debug < 1 or not phases["choosing"]: return
  parts = ", ".join(f"{name} {time_text(spent)}" for name, spent in phases.items())
  built = f"; quick builds of {quick} kernels" if quick else ""
  note_line(f"first run in {time_text(seconds)}: {parts}{built}")


def table(steps: Sequence[Step], lines: Sequence[str], names: Sequence[str] = ()) -> list[str]:
  """A line for every step: what it writes from what it reads, how much it computes and moves, and the user's ``lines`` for it.
  ``*`` marks a kernel that is new. ``names`` are what the first slots are called, where that is known."""
  def said(slot: int) -> str: return (names[slot] if slot < len(names) else "") or f"b{slot}"
  rows = []
  for i, (s, made) in enumerate(zip(steps, lines)):
    flow = (f"{', '.join(said(s.slots[n]) for n in s.writes)} <- "
            f"{', '.join(said(b) for n, b in enumerate(s.slots) if n not in s.writes) or 'nothing'}")
    program: Any = s.program
    none = f"copy to {s.device}" if program is None else "not made yet" if getattr(program, "variants", True) == [] else ""
    if none: rows.append((f"{i:4d}", none, "", "", "", flow, made))
    elif config.speaks_of(program.spec.label):
      spec = launched_spec(program.spec, s.sizes)
      rows.append(
        (f"{i:4d}{'*' if spec.label in _waiting else ' '}", spec.label, f"grid {grid_text(spec)}",
         unit_text(count(spec.work.flops), "FLOP"), unit_text(count(spec.work.bytes), "B"),
         f"{flow}{_sizes_text(spec, s.sizes)}", made))
  widths = [max(map(len, column)) for column in zip(*rows)]
  return ["  ".join(map(str.ljust, r, widths)).rstrip() for r in rows]


def note_compiled(spec: ProgramSpec, parts: Parts, device: Device, before: Kernel | None) -> None:
  """A new kernel, after its Opts: kept until its schedule is shown; ``before``: as the scheduler made it."""
  if config.debug < 3: return
  _waiting[spec.label] = spec, parts, device, before
  if config.debug >= 6: _unseen[spec.label] = device


def made_in(label: str, seconds: float) -> None:
  """For level 2: choosing Opts, rendering or compiling a new kernel took so long."""
  if config.debug >= 2: _making[label] = _making.get(label, 0.0) + seconds


def wait_until_compiled(program: Any) -> None:
  """Wait until a program is compiled, and note how long that took."""
  started = perf_counter()
  program.ready()
  if config.debug >= 2 and (spec := getattr(program, "spec", None)) is not None and spec.label in _making:
    made_in(spec.label, perf_counter() - started)


def made(spec: ProgramSpec, parts: Parts, device: Device, arrangements: str, dissolved: str = "") -> None:
  """Level 3: a kernel that a person wrote, with its own arrangements, and which of its tiles are ``dissolved``."""
  if config.debug < 3 or not config.speaks_of(spec.label): return
  section(spec, parts, device)
  _titled("arranged", arrangements, *filter(None, [dissolved]))


def section(spec: ProgramSpec, parts: Parts, device: Device, made: str = "", before: Kernel | None = None) -> None:
  """Levels 3 to 5: what a kernel is, the user's lines that it is from; ``before`` its Opts, as a file of the tile language."""
  if not config.speaks_of(spec.label): return
  print_now(f"\n{heading(f'{spec.label} on {device.name}', 'yellow')}")
  if made: print_now(f"from   {made}")
  print_now(describe(parts.kernel))
  if before is not None:
    try: text = tile_source(before, spec.name, parts.opts)
    except ExportError as e: text = f"none: {e}"
    _titled("as a file of the tile language", text)
  if not parts.kernel.plain: _titled("statements, after their Opts", form_text(parts))
  if config.debug >= 4: _titled("source", _source_text(spec))
  if config.debug >= 5 and spec.uops:
    print_now("\n".join([_color("linear UOps", "magenta"), *UOpList(spec.uops).lines(block_shapes(spec.uops))]))


def _source_text(spec: ProgramSpec) -> str:
  """A kernel's source; of the functions that many kernels share those that were not shown yet, and the names of the others."""
  text, names = spec.text, []
  for helper in spec.source.helpers:
    if helper in _helpers:
      if helper not in text: continue
      text = text.replace(helper, "", 1)
      names += _NAMED.findall(helper)[:1]
    _helpers[helper] = True
  comment = "#" if spec.source.text.lstrip().startswith(("import", "#")) else "//"
  if names: text = f"{comment} shown before: {', '.join(names)}\n{text.lstrip()}"
  return re.sub(r"\n{3,}", "\n\n", text)


def describe(kernel: Kernel) -> str:
  """Axes, Opts, the run-time sizes that it is for, each parameter with its arrangements, and the body."""
  lines = [f"axes   {', '.join(map(str, kernel.axes)) or 'none'}"]
  if kernel.applied: lines.append(f"opts   {', '.join(map(str, kernel.applied))}")
  if kernel.needs: lines.append(f"needs  {conditions_text(kernel.needs)}")
  found = arranged_accesses(kernel)
  for p in kernel.params:
    mine: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for a in found:
      if a.param.slot == p.slot:
        mine.setdefault((tuple(a.lines(WIDTH - 7)), a.levels()), []).append("written" if a.stored else "read")
    hows = sorted(set[str]().union(*mine.values()))
    lines.append(f"data{p.slot:<3d}{dtype_name(p.dtype)}{', ' + ' and '.join(hows) if p.written else ''}")
    for (chain, levels), how in mine.items():
      lines += [f"       {step}" for step in chain]
      if p.written and len(mine) > 1: lines[-1] += f" ({how[0]})"
      if levels: lines.append(f"         {levels}")
  return "\n".join([*lines, "body", *(f"  {line}" for line in body_lines(kernel))])


# ---- launches that are timed

def timing(steps: Sequence[Any], made: Sequence[origins.Made] = ()) -> bool:
  """Whether these launches are made one by one and timed: for lines at level 2, and for observers that say so. ``made``: the
  lines that each is from."""
  wait = config.debug >= 2
  for o in observers: wait |= o.runs(steps, made)
  return wait


def ran(program: Any, took: float, sizes: Sequence[int], device: Device) -> None:
  """A launch with ``sizes`` was timed. Level 2: a line for it. Level 6: its machine code, after the first time."""
  spec: ProgramSpec = program.spec
  seconds[0] += took
  least = _tell(spec := launched_spec(spec, sizes), device, took := max(took, 1e-9), program.quick)
  if config.debug < 2: return
  _count[1] += 1
  making = _making.pop(spec.label, 0.0)
  if not config.speaks_of(spec.label): return
  made = "  quick build" * program.quick + (f"  made in {time_text(making)}" if making else "")
  print_now(f"*** {_count[1]:5d}  {_color(f'{spec.label:26s}', 'green')}  grid {grid_text(spec):10s} {unit_text(took, 's')} "
            f"{count(spec.work.flops) / took * 1e-9:8.2f} GFLOP/s {count(spec.work.bytes) / took * 1e-9:7.2f} GB/s  "
            f"{least.seconds / took * 100:3.0f} % of bound ({least.unit.value}){_sizes_text(spec, sizes)}{made}")
  if config.debug >= 6 and _unseen.pop(spec.label, None) is not None:
    none = f"# no assembly of {spec.label}: this device runs its UOps as they are"
    _titled(f"machine code of {spec.label}", getattr(device, "disassemble", lambda spec: none)(spec))


def copied(copy: Callable[[], object], nbytes: int, to: Device, source: Device) -> None:
  """Make a copy between devices and time it, for observers: its bound is the memory of the slower one."""
  for device in source, to: device.synchronize()
  start = perf_counter()
  copy()
  to.synchronize()
  slower = min(to, source, key=lambda d: d.renderer.target.bandwidth)
  spec = ProgramSpec(f"copy {source.name} to {to.name}", KernelSource(""), (), (), 2, work=Work(nbytes, (), (nbytes,)))
  _tell(spec, slower, perf_counter() - start)


def _tell(spec: ProgramSpec, device: Device, seconds: float, quick: bool = False) -> Bound:
  least = bound(spec.work, device.renderer.target)
  for o in observers: o.launched(spec, device, seconds, least, quick)
  return least


def print_now(text: str) -> None:
  """Print now: what goes to standard error (progress bars, warnings) stays in place when both go to one file."""
  print(text, flush=True)


# ---- what kernels are called in all that is said of them: a name each, the same in every line of a run. A source has the name of
# its structure, r_64_32, so that equal kernels are one program and one entry of each cache. Another kernel of that name is called
# r_64_32n1, the next r_64_32n2. Nothing that is kept on disk knows these labels.

_counts: dict[str, int] = {}   # how many kernels have had a name
_least = [0]                   # as many as any name had that was forgotten: so no label is given twice
_known: Recent[int, str] = Recent(LABELS)


def new_label(name: str) -> str:
  """A label for one more kernel called ``name``, which no other has."""
  with lock:
    if len(_counts) >= LABELS:
      _least[0] = max(_least[0], *_counts.values())
      _counts.clear()
    count = _counts.get(name, _least[0])
    while (label := f"{name}n{count}" if count else name) in _counts and count: count += 1   # some kernel's own name is like that
    if count: _counts[label] = 1
    _counts[name] = count + 1
    return label


def labelled(spec: ProgramSpec, identity: Hashable) -> ProgramSpec:
  """The spec with its label: that of the kernel with the same ``identity``, else the given one, else a new one."""
  with lock:
    key = hash(identity)
    found = _known.get(key) or spec.given or new_label(spec.name)
    _known[key] = found
  return spec if spec.given == found else replace(spec, given=found)


