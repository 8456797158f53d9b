"""Work that nobody waits for: each piece in a thread, which stands aside while others compute."""
from __future__ import annotations

import atexit
import threading
from contextlib import suppress
from contextvars import copy_context
from typing import Callable

from ntgrad.graph.lock import end_aside, work_aside

MOMENT = 1.0   # seconds that the end of the process waits for work that has begun
_threads: list[threading.Thread] = []


def do_later(work: Callable[[], None]) -> None:
  """Have work done, with the settings of this thread. It takes the lock for what it changes, and calls ``stand_aside``. What it
  raises is not told: who needs its result finds none, and meets the error then."""
  context = copy_context()
  def run() -> None:
    work_aside()
    try:
      with suppress(Exception): context.run(work)
    finally: end_aside()
  thread = threading.Thread(target=run, name="ntgrad-later", daemon=True)
  _threads[:] = [*[t for t in _threads if t.is_alive()], thread]
  thread.start()


def wait(seconds: float | None = None) -> None:
  """Wait until nothing is left to do, for each piece so long at most."""
  for thread in [*_threads]: thread.join(seconds)


atexit.register(wait, MOMENT)
