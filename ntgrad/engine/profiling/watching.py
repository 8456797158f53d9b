"""What a profile sees while it lasts: phases, steps, launches, plans, memory. It only writes down; ``findings.py`` adds up."""
from __future__ import annotations

import inspect
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from threading import RLock, get_ident
from time import perf_counter
from types import CodeType
from typing import Any, NamedTuple

from ntgrad.backends.base import Device, ProgramSpec
from ntgrad.codegen.choose.bound import Bound
from ntgrad.codegen.index import shape_text
from ntgrad.engine.counters import open_phases
from ntgrad.engine.device import open_devices
from ntgrad.engine.keeping import captured_calls
from ntgrad.engine.observers import Observer, Planned, observers
from ntgrad.graph import origins
from ntgrad.graph.origins import Made, Origin

from .rows import Row
from .sampler import COPYING, PHASE_NAMES, Sampler

KERNELS = 4096       # that have a row of their own; what comes after shares one
LAUNCH_LISTS = 4096  # lists of launches that are kept apart
EVENTS = 100_000     # that a trace has
MEMORY_PERIOD = 0.01  # seconds between two looks at memory
ASKED = 20_000       # times that values were asked for, which may end a step
PLANS = 4096         # that are told of
NOTED = 512          # phases and askings that wait to be taken in
MORE = 1.02          # how much more memory a new peak has, of which it is known what lies there
WAIT = 1e-4          # seconds that waiting for one kernel takes at most
TIMED_PART = 0.04    # of the time that passes, which timing launches again may take
KERNEL_TIME, MEASURING = "kernels", "timing kernels"
_ASKED = ""          # what stands for a phase's name where values are asked for


class ValuesAsked(NamedTuple):
  """Values were asked for, by a line: when; until then the seconds of phases, and of Python outside of them, and how many kernels
  were launched that were not timed; the memory; whether by a replay."""
  at: float
  line: Origin | None
  spent: dict[str, float]
  python: dict[str, float]
  untimed: int
  nbytes: int
  replay: bool = False


class Compiled(NamedTuple):
  """A plan that was made: why, in a word and in a sentence, of which lines, new kernels, seconds up to the end of its first run
  but for the time of its kernels, and when that began."""
  kind: str
  why: str
  made: Made
  kernels: int
  seconds: float
  at: float


# pieces of memory by the serial numbers of their Storages: bytes, and who asked for it, in words or as a line
_There = dict[int, tuple[int, str | Origin]]


class Launches:
  """Steps that are launched together, the lines that each is from, how often they were, and were timed, about how long it takes
  to time them."""
  __slots__ = "steps", "made", "count", "timed", "cost"

  def __init__(self, steps: Sequence[Any], made: Sequence[Made]) -> None:
    self.steps, self.made, self.count, self.timed, self.cost = steps, made, 0, 0, 0.0


class Watching(Observer):
  """What the engine told, of the thread that began it; launches of all threads count."""

  def __init__(self) -> None:
    self.thread, self.began, self.lasted, self.inside = 0, 0.0, 0.0, False
    self.spent: dict[str, float] = defaultdict(float)   # by phase, but for what is within it
    # what took time: its name, when it began, how long it took; the device that it was on, else "", and the lines that made it
    self.events: list[tuple[str, float, float, str, Made]] = []
    self.asks: list[ValuesAsked] = []
    self.rows: dict[Any, Row] = {}
    self.lists: dict[Any, Launches] = {}
    self.plans: list[Compiled] = []
    # captured functions that ran their own code, and why; optimizers and parameters that were made, and by which line; when
    self.plainly_run: list[tuple[CodeType, tuple[str, str], float]] = []
    self.builds: list[tuple[str, Origin, float]] = []
    self.memory: list[tuple[float, int]] = []        # when, and the bytes that devices had given
    self.peak, self.at_peak = 0, _There()
    self.held: list[_There] = []                     # what there was when values had been asked for 4, 8, 16, .. times
    self.nbytes = self.at_end = 0   # that tensors have, on all devices: as told, and now and then as the devices say
    self.sampler = Sampler()
    self.made: dict[int, Made] = {}                  # what has written memory first
    self._live = _There()
    self._now = Launches((), ())            # the launches of now, and the lines of those that are to come
    self._made: Iterator[Made] = iter(())
    self._structures: dict[int, Planned] = {}
    self._labels: set[str] = set()
    self.untimed = self.mine = 0   # kernels that this thread launched and were not timed; all that it launched
    self._timed = 0             # 1 while launches are timed one by one in the first run of a list, 2 in a later one
    self._kernels, self._timing, self._newest = 0.0, 0.0, False
    # phases that have ended, and askings for values, which come often: they are taken in when they are many, or somebody looks
    self._noted = deque[tuple[str, float, Any, Any, list[Any]]](maxlen=EVENTS)
    self.copies = 0   # between the host and devices
    self._count, self._taking, self.phase = 0, RLock(), self._noted.append
    self._phases: list[Any] = []               # those that the thread is in
    self._line: Origin | None = None           # that has asked for values
    self._within: Any = None                   # the innermost phase then: what is allocated while it lasts is for that line

  # ---- begin and end
  def enter(self) -> None:
    """Begin, or go on."""
    self.thread, self.began, self.inside = get_ident(), perf_counter(), True
    self._phases, self.nbytes = open_phases(), _given()
    self.sampler.start(self.look)
    observers.append(self)

  def leave(self) -> None:
    """End."""
    observers.remove(self)
    self.sampler.stop()
    self.look(perf_counter())
    self.take_in()
    self.lasted, self.inside, self.at_end = self.elapsed, False, _given()

  @property
  def elapsed(self) -> float:
    """Seconds of all blocks."""
    return self.lasted + self.inside * (perf_counter() - self.began)

  def look(self, now: float) -> None:
    """Take in what was noted, where it is much, and note the memory, a hundred times a second at most."""
    if len(self._noted) >= NOTED: self.take_in()
    if self.memory and (len(self.memory) >= EVENTS or now - self.memory[-1][0] < MEMORY_PERIOD): return
    self.nbytes = _given()
    self.memory.append((now, self.nbytes))

  # ---- time
  def asked(self, replay: bool = False) -> None:
    if get_ident() != self.thread: return
    self._line = origins.origin_now(5)   # three callers of this function are the engine's
    self._within = self._phases[-1] if self._phases else None
    self._note_asked(replay)

  def _note_asked(self, replay: bool) -> None:
    if captured_calls: return   # what a captured function asks for itself ends no step
    if (n := self._count + 1) > ASKED: return
    self._count = n
    own = self.sampler.seconds, self.untimed, self.nbytes, replay
    self._noted.append((_ASKED, perf_counter(), self._line, own, self._phases))
    if not n & n - 1 and n >= 4: self.held.append(self._live.copy())

  def take_in(self) -> None:
    """Add up the phases that have ended, up to each time that values were asked for."""
    with self._taking:
      while self._noted:
        name, began, took, own, phases = self._noted.popleft()
        if name is _ASKED: self.asks.append(ValuesAsked(began, took, dict(self.spent), *own))
        elif phases is self._phases and began >= self.began: self._take_phase(name, began, took, own)

  def _take_phase(self, name: str, began: float, took: float, own: float) -> None:
    self.copies += name == COPYING
    timed, name = self._timed if name == "running" else 0, PHASE_NAMES.get(name, name)
    if len(self.events) < EVENTS: self.events.append((f"{name}, kernels timed" if timed else name, began, took, "", ()))
    if not timed:
      self.spent[name] += own
      return
    # launches that were timed one by one have ended
    kernels, self._kernels, self._timed = min(self._kernels, own), 0.0, 0
    self.spent[KERNEL_TIME] += kernels
    self.spent["compiling" if timed == 1 else MEASURING] += own - kernels   # a first launch makes machine code
    self._now.cost = 2 * kernels + WAIT * len(self._now.steps)
    if timed > 1: self._timing += took
    elif self._newest:
      self.plans[-1] = self.plans[-1]._replace(seconds=began + took - self.plans[-1].at - kernels)
      self._newest = False

  # ---- launches
  def runs(self, steps: Sequence[Any], made: Sequence[Made]) -> bool:
    found = self._now
    if found.steps is not steps or found.made is not made:   # not the same as before
      key = id(steps[0]) if steps else 0, len(steps), id(made) if len(made) > 1 else tuple(made)   # lists of one are made anew
      if (known := self.lists.get(key)) is None:
        if len(self.lists) >= LAUNCH_LISTS: return False
        known = self.lists[key] = Launches(steps, made)
      found = known
    found.count = n = found.count + 1
    if mine := get_ident() == self.thread:
      if self._timed: self.take_in()   # what was timed before
      self._timed, self._made, self._now = 0, iter(made), found
      self.mine += len(steps)
    # timed at 1, and at 2, 8, 32, .. where there is time for it
    if n & n - 1 or n > 1 and (n.bit_length() & 1 or self._timing + found.cost > TIMED_PART * self.elapsed):
      if mine: self.untimed += len(steps)
      return False
    found.timed += 1
    if mine:
      self.take_in()   # the phases before are none of launches that are timed
      self._timed = min(n, 2)
    return True

  def launched(self, spec: ProgramSpec, device: Device, seconds: float, least: Bound, quick: bool = False) -> None:
    key: Any = device.name, spec.label
    axes = [n for n in spec.work.axes if isinstance(n, int)]
    if key not in self.rows and len(self.rows) >= KERNELS: key, axes = None, []
    if key not in self.rows: self.rows[key] = Row(spec.label, device.name) if key else Row("other kernels", "")
    self.rows[key].add(axes, seconds, least, quick)
    if get_ident() == self.thread: self._kernels += seconds
    if len(self.events) < EVENTS:
      self.events.append((spec.label, perf_counter() - seconds, seconds, device.name, next(self._made, ())))

  # ---- plans
  def built(self, what: str) -> None:
    if (line := origins.origin_now(2)) is not None and len(self.builds) < PLANS: self.builds.append((what, line, perf_counter()))

  def plainly(self, fn: Any, kind: str, why: str) -> None:
    if get_ident() != self.thread: return
    self._line = origins.origin_now(3)
    self._note_asked(False)
    fn = inspect.unwrap(fn)
    if (code := getattr(getattr(fn, "__func__", fn), "__code__", None)) is not None and len(self.plainly_run) < PLANS:
      self.plainly_run.append((code, (kind, why), perf_counter()))

  def planned(self, plan: Planned) -> None:
    self.take_in()   # what was launched before is none of it
    before = self._structures.get(at := hash(plan.structure))
    if before is not None or len(self._structures) < PLANS: self._structures[at] = plan._replace(structure=None, steps=())
    labels = {s.program.spec.label for s in plan.steps if getattr(s.program, "spec", None) is not None}
    kind, why = _why(before, plan)
    if len(self.plans) < PLANS:
      began = perf_counter() - plan.seconds
      self.plans.append(Compiled(kind, why, plan.made, len(labels - self._labels), plan.seconds, began))
      self._newest = True   # its first run, which takes long, too, comes next
    self._labels |= labels

  # ---- memory
  def allocated(self, storage: Any) -> None:
    line: str | Origin | None = storage.place or (
      self._line if self._within in self._phases and get_ident() == self.thread else origins.origin_now(2))
    if line is None: line = (f := origins.user_frame()).f_code, f.f_lasti, ""   # no lines are noted
    self._live[storage.serial] = storage.nbytes, line
    self.nbytes += storage.nbytes
    if self.nbytes > self.peak * MORE: self.peak, self.at_peak = self.nbytes, self._live.copy()

  def released(self, storage: Any) -> None:
    self.nbytes -= storage.nbytes
    self._live.pop(key := storage.serial, None)
    if key in self.made and not any([key in there for there in (self.at_peak, *self.held)]): self.made.pop(key, None)

  def written(self, storages: Iterable[tuple[Any, Made]]) -> None:
    for s, made in storages: self.made.setdefault(s.serial, made)


def _given() -> int: return sum([d.allocated for d in open_devices()])


def _why(before: Planned | None, plan: Planned) -> tuple[str, str]:
  """Why there was no plan: in a word, and in a sentence."""
  if before is None: return "structure", "a new structure"
  for i, (old, new) in enumerate(zip(before.shapes, plan.shapes)):
    for d, (a, b) in enumerate(zip(old, new)):
      if a != b: return "size", f"dimension {d} of input {i}, {shape_text(new)}, is {b}, and was {a}"
  for kind, what, olds, news in (("size", "a size", before.sizes, plan.sizes),
                                 ("constant", "a number", before.numbers, plan.numbers)):
    for a, b in zip(olds, news):
      if a != b: return kind, f"{what} is {b}, and was {a}"
  return "again", "the same again, which keeps other values or has other settings"
