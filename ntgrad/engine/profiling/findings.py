"""What a profile says, added up from what it saw: time by kind, by step, by line, by Module, by kernel; plans; memory."""
from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate, repeat
from operator import add
from statistics import median
from typing import Any, NamedTuple

from ntgrad.codegen.choose.bound import Work
from ntgrad.codegen.index import count
from ntgrad.engine.device import get_device
from ntgrad.engine.report import launched_spec
from ntgrad.graph import origins
from ntgrad.graph.origins import Made, Origin

from .rows import Row
from .sampler import BUILDING, COPYING, IMPORTS, LAUNCHING, PERIOD, USER, WAITING, FileLine
from .watching import KERNEL_TIME, MEASURING, Launches, ValuesAsked, Watching

OTHER = "other"
KINDS = (USER, IMPORTS, "opening devices", BUILDING, "gradients", "scheduling", "choosing", "rendering", "compiling", LAUNCHING,
         COPYING, WAITING, KERNEL_TIME, MEASURING, OTHER)
FEW_SAMPLES = 10   # with which Python is not divided
TYPICAL = 1.5      # times the median that a step may take which counts as a later one
BUILT_ANEW = USER, BUILDING, "gradients", "scheduling", LAUNCHING   # what a captured step spends next to nothing on
MAKING = "choosing", "rendering", "compiling"                   # of kernels


class LineTime(NamedTuple):
  """One of the user's lines: the operations there, seconds of host code beneath it, and of the kernels that it is from, their
  launches, bytes and arithmetic operations. What several lines share is divided evenly."""
  place: FileLine
  operations: Sequence[str]
  host: float
  kernels: float
  lost: float
  launches: float
  nbytes: float
  flops: float


class Steps(NamedTuple):
  """Repeated work: the line that ends a step, and when each ended; the seconds of the first (from the beginning), and those of a
  later one: the mean of all that take no more than ``TYPICAL`` times the median."""
  line: str
  ends: Sequence[ValuesAsked]
  first: dict[str, float]
  later: dict[str, float]


class Findings:
  """See the head of this file."""

  def __init__(self, w: Watching) -> None:
    w.take_in()
    self.watched, self.wall = w, w.elapsed
    counts = Counter[Any]()
    self.parts: list[tuple[Launches, Any, Row | None, Made]] = []   # each step of each list
    self.untimed = 0   # kernels that were launched and not timed, by all threads
    for launches in list(w.lists.values()):
      self.untimed += (launches.count - launches.timed) * len(launches.steps)
      for step, made in zip(launches.steps, launches.made or repeat(())):
        spec = getattr(step.program, "spec", None)
        at = spec and (getattr(step.device, "name", step.device), spec.label)
        counts[at] += launches.count
        self.parts.append((launches, step, w.rows.get(at), made))
    self.launches = counts.total()
    self.elsewhere = self.launches - w.mine   # those by other threads
    for at, row in list(w.rows.items()): row.count = max(counts[at] if at else 0, row.timed)
    self.rows = sorted(w.rows.values(), key=lambda r: -r.lost)
    self.kinds = self._kinds(w.spent, w.sampler.seconds, self.wall, w.untimed)
    self.steps = self._steps()

  def _kinds(self, spent: Mapping[str, float], python: Mapping[str, float], wall: float, launches: int) -> dict[str, float]:
    """Seconds by kind of all or of a part of the time: that in phases as it was measured; the rest, which is Python, as the
    samples divide it; of what was waited for the device as much as the kernels took that were launched (``launches``) untimed."""
    out = dict.fromkeys(KINDS, 0.0)
    for k, v in spent.items(): out[k if k in out else OTHER] += v
    rest, seen = max(wall - sum(out.values()), 0.0), sum(python.values())
    if seen < FEW_SAMPLES * PERIOD: python = self.watched.sampler.seconds   # too few samples: as it is in all
    if not (seen := sum(python.values())): python, seen = {BUILDING: 1.0}, 1.0
    for k, v in python.items(): out[k] += rest * v / seen
    untimed: dict[str, float] = defaultdict(float)
    for r in self.rows: untimed[r.device] += r.typical * max(r.count - r.timed, 0)
    for device, seconds in untimed.items():
      seconds *= launches / max(self.untimed, 1)
      # whether its kernels may run in the call that launches them
      on_host = device and getattr(get_device(device), "on_host", device == "NUMPY")
      for kind in (WAITING, LAUNCHING) if on_host else (WAITING,):
        moved = min(seconds, out[kind])
        seconds -= moved
        out[kind] -= moved
        out[KERNEL_TIME] += moved
    return out

  def _steps(self) -> Steps | None:
    """The line at which values were asked for most often, and for most of the time, ends a step."""
    asked: dict[Origin, list[ValuesAsked]] = defaultdict(list)
    for a in self.watched.asks:
      if a.line is not None: asked[a.line].append(a)
    ends = max(asked.values(), key=lambda mine: len(mine) * (mine[-1].at - mine[0].at), default=[])
    if len(ends) < 3 or (line := ends[0].line) is None: return None
    later = list(zip(ends, ends[1:]))
    most = TYPICAL * median([b.at - a.at for a, b in later])
    begin = ValuesAsked(self.watched.began, None, {}, {}, 0, 0)
    return Steps(place_text(origins.place_of(line)[0]), ends, self._between([(begin, ends[0])]),
                 self._between([(a, b) for a, b in later if b.at - a.at <= most]))

  def _between(self, steps: Sequence[tuple[ValuesAsked, ValuesAsked]]) -> dict[str, float]:
    """Seconds by kind, as the mean of some steps."""
    spent, python = Counter[str](), Counter[str]()
    for a, b in steps:
      for into, before, after in (spent, a.spent, b.spent), (python, a.python, b.python):
        into.update(after)
        into.subtract(before)
    wall, launches = sum(b.at - a.at for a, b in steps), sum(b.untimed - a.untimed for a, b in steps)
    return {k: v / len(steps) for k, v in self._kinds(spent, python, wall, launches).items()}

  # ---- tables
  def lines(self, kernels: Collection[tuple[str, str]] | None = None) -> list[LineTime]:
    """The user's lines, what took longest first; of some ``kernels`` alone, by name and device."""
    rows: list[Any] = [(place, seconds, *[0.0] * 5) for (place, _), seconds in self.watched.sampler.lines.copy().items()]
    operations: dict[FileLine, dict[str, None]] = defaultdict(dict)
    for launches, step, row, made in self.parts:
      if row is None or step.program is None or kernels is not None and (row.name, row.device) not in kernels: continue
      found = [(*origins.place_of(origin), name) for origin, name in made]
      places = {place: operation or name for place, operation, name in found}
      work = launched_spec(step.program.spec, step.sizes).work
      nbytes, flops = count(work.bytes), count(work.flops)
      for place, operation in places.items():
        operations[place][operation], part = None, launches.count / len(places)
        rows.append((place, 0.0, row.each * part, row.lost / max(row.count, 1) * part, part, nbytes * part, flops * part))
    times = [LineTime(place, [*operations[place]], *numbers) for place, *numbers in added(rows)]
    return sorted(times, key=lambda x: -x.host - x.kernels)

  def works(self) -> dict[tuple[str, str], Work]:
    """What a launch of each kernel does, by its name and device."""
    return {(row.name, row.device): launched_spec(step.program.spec, step.sizes).work
            for _, step, row, _ in self.parts if row is not None and step.program is not None}

  def line_of(self, kind: str) -> FileLine | None:
    """The user's line at which most time of a kind of host code went."""
    return max([(s, at) for (at, of), s in self.watched.sampler.lines.copy().items() if of == kind], default=(0.0, None))[1]

  def modules(self) -> list[tuple[str, float, float]]:
    """Paths of Modules with the seconds of kernels and the launches from within them; a kernel of several is divided evenly."""
    rows = []
    for launches, _, row, made in self.parts:
      paths = {origin[2] for origin, _ in made}
      for path in paths if row is not None else ():
        part = launches.count / len(paths)
        rows += [(outer, row.each * part, part) for outer in accumulate(path.split("."), "{}.{}".format) if path]  # type: ignore
    return added(rows)

  def pieces(self, there: Mapping[int, tuple[int, str | Origin]]) -> list[tuple[str, int, int]]:
    """Memory by who made it: the text, bytes, how many pieces; the largest first."""
    return added([(origins.text_of_lines(self.watched.made.get(serial, ())) or (
      at if isinstance(at, str) else place_text(origins.place_of(at)[0])), nbytes, 1) for serial, (nbytes, at) in there.items()])

  def grown(self) -> tuple[float, list[tuple[str, int, int]]]:
    """Bytes by which memory grew from each step to the next, where it did so all the time, and what there is more of."""
    if self.steps is None or len(self.steps.ends) < 6: return 0.0, []
    held = [a.nbytes for a in self.steps.ends[2:]]
    grows = [b > a for a, b in zip(held, held[1:])]
    if sum(grows) < 0.6 * len(grows) or held[-1] <= held[0]: return 0.0, []
    early, *_, late = self.watched.held[-3:]
    return (held[-1] - held[0]) / len(grows), self.pieces({k: p for k, p in late.items() if k not in early})


def added(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
  """Rows of a key and numbers, those of one key added up; what has most of the first number comes first."""
  out: dict[Any, Iterable[float]] = {}
  for key, *numbers in rows: out[key] = list(map(add, out[key], numbers)) if key in out else numbers
  return sorted([(key, *numbers) for key, numbers in out.items()], key=lambda x: -x[1])


def place_text(place: FileLine) -> str:
  """``train.py:31``"""
  return f"{place[0].rpartition('/')[2]}:{place[1]}"
