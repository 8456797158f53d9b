"""Work that nobody waits for: each piece in a thread, which stands aside while others compute."""
from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context

from ntgrad.graph.lock import aside

MOMENT = 1.0   # seconds that the end of the process waits for work that has begun
# seconds after which such a thread lets others run Python that want to. By Python's 5 ms, who waits for the device would go on so
# much later each time: steps of 10 ms took 15 (H100)
TURN = 1e-4
_threads: list[threading.Thread] = []
_turns: list[float] = []   # of each thread at work, how long a turn was before it
_counting = threading.Lock()


@contextmanager
def _short_turns() -> Iterator[None]:
  """In the block threads that run Python take short turns."""
  with _counting:
    _turns.append(sys.getswitchinterval())
    sys.setswitchinterval(min(TURN, _turns[0]))
  try: yield
  finally:
    with _counting:
      before = _turns.pop()
      if not _turns: sys.setswitchinterval(before)


def do_later(work: Callable[[], None]) -> None:
  """Have work done, with the settings of this thread. It takes the lock for what it changes, and calls ``stand_aside``. What it
  raises is not told: who needs its result finds none, and meets the error then."""
  context = copy_context()
  def run() -> None:
    with aside(), suppress(Exception), _short_turns(): context.run(work)
  thread = threading.Thread(target=run, name="ntgrad-later", daemon=True)
  _threads[:] = [*[t for t in _threads if t.is_alive()], thread]
  thread.start()


def wait(seconds: float | None = None) -> None:
  """Wait until nothing is left to do, for each piece so long at most."""
  for thread in [*_threads]: thread.join(seconds)


atexit.register(wait, MOMENT)
