"""One lock for what all threads share: which version lies in which memory, plans, programs, captures, random numbers.

Whoever computes, writes or launches holds it; building a graph does not. A thread that waits for the device while it reads a
value does not hold it either.
"""
from __future__ import annotations

import os
import threading
from functools import wraps
from typing import Any, Callable, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

lock = threading.RLock()
os.register_at_fork(after_in_child=lock._at_fork_reinit)  # type: ignore[attr-defined]   # its holder may be no thread of the fork


def alone(fn: F) -> F:
  """A function that one thread at a time is in, or in any other that is so marked."""
  @wraps(fn)
  def call(*args: Any, **kwargs: Any) -> Any:
    with lock: return fn(*args, **kwargs)
  return call  # type: ignore[return-value]
