"""What belongs to one process: drivers, which a forked process has no use of, and work that Ctrl-C must not cut in two."""
from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import Any, Iterator

from ntgrad.codegen.errors import DeviceError


class Driver:
  """A driver with threads and state of its own: it works in the process that started it, and in none that is forked from that one."""

  def __init__(self, name: str):
    self.name = name
    self._process: int | None = None

  def start(self) -> None:
    """To be called before the driver is. Raises DeviceError where a parent process has started it."""
    if self._process is None: self._process = os.getpid()
    elif self._process != os.getpid(): raise DeviceError(forked(self.name))


def forked(what: str) -> str:
  """Why something cannot be used in a forked process, and what to do."""
  return (f"{what} was opened before this process was forked, and drivers do not work in a fork; start processes by "
          'multiprocessing.get_context("spawn"), use devices in the child only, or use device NUMPY in it')


@contextmanager
def uninterrupted() -> Iterator[None]:
  """Ctrl-C in the block takes effect after it. For work that would leave half of its effects, and that does not wait for long."""
  handler = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
  if not callable(handler):   # other threads are not interrupted, and neither is who ignores the signal
    yield
    return
  caught: list[tuple[Any, Any]] = []
  signal.signal(signal.SIGINT, lambda *what: caught.append(what))
  try: yield
  finally:
    signal.signal(signal.SIGINT, handler)
    if caught: handler(*caught[-1])
