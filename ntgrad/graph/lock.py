"""One lock for what all threads share: versions of memory, plans, programs, captures, random numbers.

Whoever computes, writes or launches holds it, not who builds a graph or waits for the device to read a value. In the handler of a
signal that has interrupted the holder, what that was doing is half done, so ``enter`` refuses.
"""
from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from types import CodeType
from typing import Any, Callable, TypeVar

from ntgrad.codegen.ir import in_handler, interrupted

_F = TypeVar("_F", bound=Callable[..., Any])

lock = threading.RLock()
os.register_at_fork(after_in_child=lock._at_fork_reinit)  # type: ignore[attr-defined]   # its holder may be no thread of the fork


_aside: set[int] = set()   # threads whose work nobody waits for


@contextmanager
def aside() -> Iterator[None]:
  """What this thread does in the block nobody waits for."""
  _aside.add(threading.get_ident())
  try: yield
  finally: _aside.discard(threading.get_ident())


def stand_aside() -> None:
  """To be called again and again in work that takes long: where nobody waits for what this thread does, who computes goes first.
  They would wait for Python at each call of a driver."""
  if _aside and threading.get_ident() in _aside:
    with lock: pass


_holders: set[CodeType] = set()   # functions that hold the lock while they call others


def holds_lock(fn: _F) -> _F:
  """A function that holds the lock, which it has entered by ``enter``, while others are called that take it too."""
  _holders.add(fn.__code__)
  return fn


def enter() -> None:
  """To be called by what takes the lock, before. Raises DeviceError in the handler of a signal that has interrupted its
  holder."""
  if lock._is_owned() and in_handler(_holders, 3): raise interrupted()  # type: ignore[attr-defined]


def synchronized(fn: _F) -> _F:
  """A function that one thread at a time is in, or in any other that is so marked."""
  @wraps(fn)
  def call(*args: Any, **kwargs: Any) -> Any:
    if lock._is_owned() and in_handler(_holders, 2): raise interrupted()  # type: ignore[attr-defined]
    with lock: return fn(*args, **kwargs)
  _holders.add(call.__code__)  # type: ignore[attr-defined]
  return call  # type: ignore[return-value]
