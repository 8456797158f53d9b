"""Handlers of signals. Python runs a handler in the main thread, between any two instructions. What it interrupts is half done,
and waits for the handler to end. If the main thread holds a lock, a handler that takes it either gets it at once (a re-entrant
lock) or waits for ever."""
from __future__ import annotations

import os
import sys
import threading
from collections.abc import Collection
from importlib import import_module
from types import CodeType, FrameType
from typing import Any

from .errors import DeviceError

# the folder of the package, which codegen/ is installed in
_HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_signal: Any = import_module("_signal")   # signal's own functions look their arguments up in enums


def in_handler(within: Collection[CodeType] = (), above: int = 1) -> bool:
  """Whether this thread is in a handler that has begun after the newest call of ``within``, not counting the ``above`` newest
  frames."""
  if threading.get_ident() != threading.main_thread().ident: return False
  handlers: set[CodeType] | None = None
  frame: FrameType | None = sys._getframe(above)
  while frame is not None:
    code = frame.f_code
    if code in within: return False
    if not code.co_filename.startswith(_HERE):   # a handler is no function of ntgrad: between these there is nothing to look for
      if handlers is None: handlers = {c for s in _signal.valid_signals() if (c := _code(_signal.getsignal(s))) is not None}
      if code in handlers: return True
    frame = frame.f_back
  return False


def _code(handler: Any) -> CodeType | None:
  """What Python runs when a handler is called."""
  for _ in range(8):
    found = getattr(handler, "__code__", None)
    if isinstance(found, CodeType) or handler is None: return found
    if isinstance(handler, type): return None
    handler = getattr(handler, "func", None) or getattr(handler, "__func__", None) or type(handler).__dict__.get("__call__")
  return None


def keep_handlers() -> None:
  """Python's handlers again where LLVM, which compiles in this process, has put its own over them for good."""
  if threading.get_ident() != threading.main_thread().ident: return
  for s in _signal.SIGUSR1, _signal.SIGQUIT:
    if callable(handler := _signal.getsignal(s)): _signal.signal(s, handler)


def not_in_handler(lock: Any) -> None:
  """Raises DeviceError where a lock is held, and this thread is in a handler: it may be the one that waits for the handler."""
  if lock.locked() and in_handler(): raise interrupted()


def interrupted() -> DeviceError:
  """The error of a handler that asks for what the thread is at."""
  return DeviceError("a signal's handler uses ntgrad while the thread that it has interrupted computes: what that is at is half "
                     "done; set a flag in the handler, and compute when it has returned")
