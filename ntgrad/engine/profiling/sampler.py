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
from collections.abc import Callable
from time import perf_counter
from typing import Any

from ntgrad.engine.counters import phase
from ntgrad.graph import origins

PERIOD = 0.0025   # seconds between two looks
MOST_LINES = 4096      # of the user's that are kept apart
USER, IMPORTS, BUILDING, LAUNCHING = "your Python", "imports", "building graphs", "launching"
# folders of ntgrad whose Python is no building of graphs
_FOLDERS = {"capture": LAUNCHING, "engine": LAUNCHING, "reads": LAUNCHING, "backends": LAUNCHING, "utils": USER}
_LIBRARIES = tuple({*site.getsitepackages(), *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib"))})
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_Line = tuple[str, int]


class Sampler:
  """``seconds`` of Python by whose it is, outside of phases; ``lines``: all those that each of the user's lines took."""

  def __init__(self, phases: list[phase], look: Callable[[float], None]) -> None:
    self.seconds, self.lines = dict.fromkeys((USER, IMPORTS, BUILDING, LAUNCHING), 0.0), dict[_Line, float]()
    self._of, self._phases, self._look, self._last = threading.get_ident(), phases, look, perf_counter()
    self._thread: threading.Thread | None = None
    self._ended = threading.Event()

  def start(self) -> None:
    """Begin to look at the thread that calls this."""
    if not _by_signal(self):
      self._thread = threading.Thread(target=self._run, name="ntgrad-sampler", daemon=True)
      self._thread.start()

  def _run(self) -> None:
    while not self._ended.wait(PERIOD): self.look(sys._current_frames().get(self._of))

  def look(self, frame: Any) -> None:
    """Count the time since the last look for where the thread is now."""
    now = perf_counter()
    took, self._last = now - self._last, now
    self._look(now)
    whose, line = _place(frame)
    if not self._phases and whose: self.seconds[whose] += took
    if line is None or line not in self.lines and len(self.lines) >= MOST_LINES: return
    self.lines[line] = self.lines.get(line, 0.0) + took

  def stop(self) -> None:
    """End."""
    if self in _signalled: _no_signal(self)
    self._ended.set()
    if self._thread is not None: self._thread.join()


_signalled: list[Sampler] = []   # those of the main thread


def _tick(number: int, frame: Any) -> None:
  for s in _signalled: s.look(frame)


def _by_signal(sampler: Sampler) -> bool:
  """Have a signal look, where this is the main thread and nobody else uses that signal."""
  if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"): return False
  if not _signalled:
    if signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL or any(signal.getitimer(signal.ITIMER_REAL)): return False
    signal.signal(signal.SIGALRM, _tick)
    signal.siginterrupt(signal.SIGALRM, False)   # calls of the system go on
    signal.setitimer(signal.ITIMER_REAL, PERIOD, PERIOD)
  _signalled.append(sampler)
  return True


def _no_signal(sampler: Sampler) -> None:
  _signalled.remove(sampler)
  if _signalled: return
  if signal.getitimer(signal.ITIMER_REAL)[1] > 0: signal.setitimer(signal.ITIMER_REAL, 0.0)   # no alarm of the user's
  if signal.getsignal(signal.SIGALRM) is _tick: signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _place(frame: Any) -> tuple[str, _Line | None]:
  """Whose Python a frame runs ("": a profile's own), and the line of the user's that it comes from, if there is one."""
  whose, f = "", frame
  while f is not None:
    file = f.f_code.co_filename
    if file.startswith("<frozen importlib"): whose = IMPORTS
    elif origins.is_internal(file):
      if file.startswith(_HERE): return "", None
      if not whose: whose = _FOLDERS.get(file[len(origins.HERE):].partition("/")[0], BUILDING)
    elif not in_library(file): return whose or USER, (file, f.f_lineno)
    f = f.f_back
  return whose or USER, None


def in_library(file: str) -> bool:
  """Whether a file is Python's, an installed package's, or text that one of these has made Python of."""
  return file.startswith(_LIBRARIES) or file.startswith("<") and not file.startswith(("<stdin", "<ipython"))
