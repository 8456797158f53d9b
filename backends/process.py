"""What belongs to one process: drivers, which a forked process has no use of, temporary files, and work that Ctrl-C must not cut in two."""
from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
import threading
import time
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Any, Iterator

from ntgrad.codegen.errors import DeviceError

try:
  import fcntl
except ImportError: fcntl = None  # type: ignore[assignment]


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


PREFIX, LOCK = "ntgrad-process-", ".lock"
YOUNG = 60.0                  # seconds in which a folder may not have its lock yet
_locks: list[IO[bytes]] = []  # held as long as the process lives


@cache
def temporary() -> Path:
  """A folder for files of this process, gone at exit. Those of processes that were killed are removed: nobody holds their locks."""
  for other in Path(tempfile.gettempdir()).glob(PREFIX + "*"):
    try: abandoned = time.time() - other.stat().st_mtime > YOUNG and _lock(other) is not None
    except OSError: continue   # another user's, or gone
    if abandoned: shutil.rmtree(other, ignore_errors=True)
  path = Path(tempfile.mkdtemp(prefix=PREFIX))
  (path / LOCK).touch()
  lock = _lock(path)
  if lock is not None: _locks.append(lock)
  atexit.register(_remove, path, os.getpid())
  return path


os.register_at_fork(after_in_child=temporary.cache_clear)   # a forked process has its own, and leaves its parent's


def _remove(path: Path, process: int) -> None:
  if os.getpid() == process: shutil.rmtree(path, ignore_errors=True)


def _lock(path: Path) -> IO[bytes] | None:
  """The lock of a folder, which the system gives back when the process ends, however; None where another process has it. Raises OSError."""
  if fcntl is None: return None   # on Windows they stay
  file = open(path / LOCK, "r+b")
  try: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    file.close()
    return None
  return file


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
