"""Where a thread is, looked at some hundred times a second: what of its Python is the user's, and at which of the user's lines.

Of the main thread a timer's signal does that: a handler runs between any two instructions. A thread that looks at another one is
let in when that waits for something, and sees it there too often: it is used for other threads, and where the user has that
signal."""
from __future__ import annotations

import os
import signal
import site
import sys
import sysconfig
import threading
from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache
from time import perf_counter, thread_time
from typing import Any

from ntgrad.engine.counters import open_phases
from ntgrad.graph import origins

PERIOD = 0.0025   # seconds between two looks
MOST_LINES = 4096      # of the user's that are kept apart
USER, IMPORTS, BUILDING, LAUNCHING = "your Python", "imports", "building graphs", "launching"
WAITING, COPYING = "waiting for the device", "copies"
PHASE_NAMES = {"running": LAUNCHING, "waiting": WAITING}
FileLine = tuple[str, int]   # a file and a line
# folders of ntgrad whose Python is no building of graphs
_FOLDERS = {"capture": LAUNCHING, "engine": LAUNCHING, "reads": LAUNCHING, "backends": LAUNCHING, "utils": USER}
_LIBRARIES = "<", *{*site.getsitepackages(), *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib"))}
_TYPED = "<stdin", "<ipython"   # the user's; a text in <> of another name is what a library has made Python of
_HERE, _OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep, "a profile"
KNOWN_FILES = 1024   # of which is remembered whose they are


class Sampler:
  """Looks at a thread. ``seconds`` of its Python by whose it is, outside of phases: another dict after every look. ``lines``: all
  those that each of the user's lines took, by whose Python or which phase that was; ``idle``: those of the user's own Python in
  which the thread computed nothing."""

  def __init__(self) -> None:
    self.seconds: dict[str, float] = {}
    self.lines: dict[tuple[FileLine, str], float] = defaultdict(float)
    self.idle: dict[FileLine, float] = defaultdict(float)
    self._thread, self._ended = threading.Thread(), threading.Event()

  def start(self, look: Callable[[float], None]) -> None:
    """Begin to look at the thread that calls this, or go on; ``look`` is called with the time, too."""
    self._of, self._phases, self._look, self._last = threading.get_ident(), open_phases(), look, perf_counter()
    self._clock, self._computed = thread_time, thread_time()
    if threading.current_thread() is threading.main_thread() and (_signalled or _take_signal()): return _signalled.append(self)
    self._ended.clear()
    self._clock, self._computed = perf_counter, self._last   # of another thread it is not known: it is never idle
    self._thread = threading.Thread(target=self._run, name="ntgrad-sampler", daemon=True)
    self._thread.start()

  def _run(self) -> None:
    while not self._ended.wait(PERIOD): self.look(sys._current_frames().get(self._of))

  def look(self, frame: Any) -> None:
    """Count the time since the last look for where the thread is now."""
    now, computed = perf_counter(), self._clock()
    took, self._last = now - self._last, now
    idle, self._computed = took - computed + self._computed, computed
    self._look(now)
    (whose, line), inner = _place(frame), self._phases[-1:]
    if not inner and whose: self.seconds = {**self.seconds, whose: self.seconds.get(whose, 0.0) + took}
    kind = PHASE_NAMES.get(inner[0].name, inner[0].name) if inner else whose
    if line is None or (line, kind) not in self.lines and len(self.lines) >= MOST_LINES: return
    self.lines[line, kind] += took
    if kind == USER: self.idle[line] += idle

  def stop(self) -> None:
    """End."""
    if by_signal := self in _signalled: _signalled.remove(self)
    else:
      self._ended.set()
      self._thread.join()
    del self._look   # it and this would keep each other
    if _signalled or not by_signal: return
    if signal.getitimer(signal.ITIMER_REAL)[1] > 0: signal.setitimer(signal.ITIMER_REAL, 0.0)   # no alarm of the user's
    if signal.getsignal(signal.SIGALRM) is _tick: signal.signal(signal.SIGALRM, signal.SIG_DFL)


_signalled: list[Sampler] = []   # those of the main thread


def _tick(number: int, frame: Any) -> None:
  for s in _signalled: s.look(frame)


def _take_signal() -> bool:
  """Have a timer's signal look, where nobody else uses it."""
  if not hasattr(signal, "setitimer") or signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL: return False
  if any(signal.getitimer(signal.ITIMER_REAL)): return False
  signal.signal(signal.SIGALRM, _tick)
  signal.siginterrupt(signal.SIGALRM, False)   # calls of the system go on
  signal.setitimer(signal.ITIMER_REAL, PERIOD, PERIOD)
  return True


def _place(frame: Any) -> tuple[str, tuple[str, int] | None]:
  """Whose Python a frame runs ("": a profile's own), and the line of the user's that it comes from, if there is one."""
  whose, f = "", frame
  while f is not None:
    of = _of_file(f.f_code.co_filename)
    if of is None: return whose or USER, (f.f_code.co_filename, f.f_lineno)
    if of is _OWN: return "", None
    if of is IMPORTS or not whose: whose = of
    f = f.f_back
  return whose or USER, None


@lru_cache(maxsize=KNOWN_FILES)
def _of_file(file: str) -> str | None:
  """Whose Python a file of ntgrad's is; "" for a library's, None for the user's."""
  if file.startswith("<frozen importlib"): return IMPORTS
  if file.startswith(_HERE): return _OWN
  if file.startswith(origins.HERE): return _FOLDERS.get(file[len(origins.HERE):].partition("/")[0], BUILDING)
  return None if file.startswith(_TYPED) or not file.startswith(_LIBRARIES) else ""
