"""How far something long is, on one line of a terminal or a notebook: ``ntgrad: compiling 37 of 106 kernels, 4 s``.

The main thread writes it before it waits or builds, and takes it away after that. So it stands there only while the user's own
program does not run, and is never between what that prints. On a terminal it begins at the cursor, which stays where it is.
"""
from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import Any, Callable, Iterator

from ntgrad.codegen.ir import config

AFTER = 2.0    # seconds of work after which there is a line
QUIET = 1.0    # seconds without work after which what comes is counted anew
EVERY = 0.1    # seconds between two texts, at least


class Line:
  """The line of this process. Only its main thread writes it; in others nothing is said."""

  def __init__(self) -> None:
    self.done = 0                                # kernels that were compiled since the work began
    self._text: Callable[[], str] | None = None   # says what is done, where something is
    self._began = self._ended = self._drawn = -QUIET
    self._shown = 0                              # characters

  @contextmanager
  def __call__(self, text: Callable[[], str]) -> Iterator[None]:
    """Something that may take long is done in the block; ``text`` says how far it is. Within another block that one's does."""
    mine = self._text is None and threading.current_thread() is threading.main_thread()
    try:
      if mine:
        if (now := time.monotonic()) - self._ended > QUIET: self._began, self.done = now, 0
        self._text, self._drawn = text, -QUIET
      self.draw()
      yield
    finally:
      if mine:
        self._text, self._ended = None, time.monotonic()
        self._write("")

  def draw(self) -> None:
    """Say how far it is now, where it is time for that."""
    now = time.monotonic()
    if self._text is None or now - self._began < AFTER or now - self._drawn < EVERY or not wanted(): return
    self._drawn = now
    self._write(f"ntgrad: {self._text()}, {now - self._began:.0f} s")

  def wait(self, changed: threading.Condition, done: Callable[[], Any]) -> None:
    """Wait with a condition's lock held until something is so, and draw meanwhile."""
    while not changed.wait_for(done, EVERY if wanted() else None): self.draw()

  def _write(self, text: str) -> None:
    if not text and not self._shown: return
    if _notebook(): line = f"\r{text:{self._shown}}" if text else f"\r{'':{self._shown}}\r"
    else: line = f"\x1b7\x1b[?7l{text}\x1b[K\x1b[?7h\x1b8" if text else "\x1b[K"   # the cursor is kept, and nothing wraps
    self._shown = len(text)
    with suppress(OSError, ValueError):   # the terminal may be gone
      sys.stderr.write(line)
      sys.stderr.flush()


line = Line()


def wanted() -> bool:
  """Whether the line can be shown: to a person, by this thread, and nothing else says what is compiled."""
  if not config.progress or config.debug or threading.current_thread() is not threading.main_thread(): return False
  with suppress(ValueError, AttributeError):   # closed, or none
    return _notebook() or sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
  return False


def _notebook() -> bool: return type(sys.stderr).__module__.startswith("ipykernel.")
