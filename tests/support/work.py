"""How much work something is, counted and not timed: for tests of what must not grow faster than what it is done for."""
from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from typing import Any


def events(run: Callable[[], Any]) -> int:
  """How many calls, lines, and turns of loops run in Python."""
  count, before = 0, sys.gettrace()
  def trace(frame: Any, event: str, arg: Any) -> Any:
    nonlocal count
    count += 1
    return trace
  sys.settrace(trace)
  try: run()
  finally: sys.settrace(before)
  return count


def most_bytes(run: Callable[[], Any]) -> int:
  """The most bytes that are allocated at a time."""
  tracemalloc.start()
  try:
    run()
    return tracemalloc.get_traced_memory()[1]
  finally: tracemalloc.stop()
