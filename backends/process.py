"""What belongs to one process: drivers, which do not work in a forked process, temporary files, and work that Ctrl-C must not
interrupt."""
from __future__ import annotations

# signal's own functions look their arguments up in enums, which takes ten times as long
import _signal  # type: ignore[import-not-found]
import atexit
import ctypes
import fcntl
import os
import shutil
import tempfile
import threading
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Callable, Sequence

from ntgrad.codegen.ir import DeviceError

YOUNG = 60.0                  # seconds in which a folder may not have its lock yet


def cores() -> int:
  """Processors that this process may use."""
  return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(eq=False)
class Driver:
  """A driver with threads and state of its own: it works in the process that started it, not in a fork of that process."""
  name: str
  _process: int | None = None

  def start(self) -> None:
    """To be called before the driver is. Raises DeviceError where a parent process has started it."""
    if self._process is None: self._process = os.getpid()
    elif self._process != os.getpid(): raise DeviceError(forked(self.name))


def forked(what: str) -> str:
  """The message of an error: why something cannot be used in a forked process, and what to do."""
  return (f"{what} was opened before this process was forked, and drivers do not work in a fork; start processes by "
          'multiprocessing.get_context("spawn"), use devices in the child only, or use device NUMPY in it')


class Parameters:
  """A kernel's parameters as drivers and machine code read them: 64-bit ``values``, and at ``address`` where each lies."""

  def __init__(self, values: Sequence[int]):
    self.values: Any = (ctypes.c_uint64 * len(values))(*values)
    at = ctypes.addressof(self.values)
    self._pointers = (ctypes.c_void_p * len(values))(*range(at, at + 8 * len(values), 8))
    self.address = ctypes.addressof(self._pointers)


PREFIX, LOCK = "ntgrad-process-", ".lock"
_locks: list[int] = []        # descriptors of files, held as long as the process lives


@cache
def temporary() -> Path:
  """A folder for files of this process, gone at exit. Those of processes that were killed, whose locks nobody holds, go now."""
  for other in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
    try:
      about = other.lstat()
      lock = _lock(other) if about.st_uid == os.geteuid() and time.time() - about.st_mtime > YOUNG else None
    except OSError: continue   # gone
    if lock is None: continue
    shutil.rmtree(other, ignore_errors=True)
    os.close(lock)
  path = Path(tempfile.mkdtemp(prefix=PREFIX))
  (path / LOCK).touch()
  if (lock := _lock(path)) is not None: _locks.append(lock)
  atexit.register(_remove, path, os.getpid())
  return path


os.register_at_fork(after_in_child=temporary.cache_clear)   # a forked process has its own, and leaves its parent's


def _remove(path: Path, process: int) -> None:
  if os.getpid() == process: shutil.rmtree(path, ignore_errors=True)


def _lock(path: Path) -> int | None:
  """The lock of a folder, which goes when the process ends, however; None where another process has it. Raises OSError."""
  file = os.open(path / LOCK, os.O_RDWR)
  try: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    os.close(file)
    return None
  return file


class uninterrupted:
  """``with uninterrupted(): ..``: Ctrl-C in the block takes effect after it. For short work that would otherwise be left half
  done. Python interrupts the main thread only, so in other threads there is nothing to do."""
  __slots__ = "handler", "caught"
  handler: Callable[[int, FrameType | None], object] | None
  caught: list[tuple[int, FrameType | None]]

  def __enter__(self) -> None:
    self.handler = None
    if threading.get_ident() != threading.main_thread().ident: return
    handler = _signal.getsignal(_signal.SIGINT)
    if callable(handler):   # else the signal is ignored, or ends the process
      self.caught = []
      self.handler = handler
      _signal.signal(_signal.SIGINT, self.catch)

  def catch(self, signal: int, frame: FrameType | None) -> None: self.caught.append((signal, frame))

  def __exit__(self, *_: object) -> None:
    if self.handler is None: return
    _signal.signal(_signal.SIGINT, self.handler)
    if self.caught: self.handler(*self.caught[-1])


def interrupt_waits() -> bool:
  """Whether Ctrl-C has come in a block that it must not interrupt: work there that waits for others ends then."""
  block = getattr(_signal.getsignal(_signal.SIGINT), "__self__", None)
  return isinstance(block, uninterrupted) and bool(block.caught)
