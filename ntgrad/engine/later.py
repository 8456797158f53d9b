"""Work that nobody waits for: each piece in a thread, under the lock of all that computes."""
from __future__ import annotations

import atexit
import threading
from contextlib import suppress
from contextvars import copy_context
from typing import Callable

from ntgrad.graph.lock import lock

MOMENT = 1.0   # seconds that the end of the process waits for work that has begun
_threads: list[threading.Thread] = []


def do_later(work: Callable[[], None]) -> None:
  """Have work done, with the settings of this thread. What it raises is not told: who needs its result finds none, and meets the
  error then."""
  context = copy_context()
  def run() -> None:
    with suppress(Exception), lock: context.run(work)
  thread = threading.Thread(target=run, name="ntgrad-later", daemon=True)
  _threads[:] = [*[t for t in _threads if t.is_alive()], thread]
  thread.start()


def wait(seconds: float | None = None) -> None:
  """Wait until nothing is left to do, for each piece so long at most."""
  for thread in [*_threads]: thread.join(seconds)


atexit.register(wait, MOMENT)
