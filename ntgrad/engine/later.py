"""Work that nobody waits for: a thread of this process does it piece by piece, each under the lock of all that computes."""
from __future__ import annotations

import atexit
import contextvars
import os
import threading
from collections import deque
from functools import partial
from typing import Callable

from ntgrad.graph.lock import lock

MOMENT = 1.0   # seconds that the end of the process waits for a piece that has begun
_todo: deque[Callable[[], None]] = deque()
_changed = threading.Condition()
_thread: threading.Thread | None = None


def do_later(piece: Callable[[], None]) -> None:
  """Have a piece of work done, with the settings of this thread. What it raises is not told: who needs its result later finds none,
  and meets the error itself."""
  global _thread
  with _changed:
    _todo.append(partial(contextvars.copy_context().run, piece))
    if _thread is None:
      _thread = threading.Thread(target=_work, name="ntgrad-later", daemon=True)
      _thread.start()


def _work() -> None:
  global _thread
  while True:
    with _changed:
      if not _todo:
        _thread = None
        return _changed.notify_all()
      piece = _todo.popleft()
    try:
      with lock: piece()
    except Exception: pass
    del piece   # it keeps what it is about


def wait() -> None:
  """Wait until nothing is left to do."""
  with _changed: _changed.wait_for(lambda: _thread is None)


@atexit.register
def _leave() -> None:
  _todo.clear()
  if (thread := _thread) is not None: thread.join(MOMENT)


def _after_fork() -> None:
  """In a forked process: what is left to do is the parent's."""
  global _changed, _thread
  _changed, _thread = threading.Condition(), None
  _todo.clear()


os.register_at_fork(after_in_child=_after_fork)
