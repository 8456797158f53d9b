"""Batches computed ahead by threads, given in order.

The one who iterates puts empty *slots* into a queue, which threads fill. No lock is shared with it, so an iterator may be dropped
at any time: its threads are then told to end.
"""
from __future__ import annotations

import atexit
import contextvars
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

from ntgrad.codegen.ir.errors import DeviceError

_AT_EXIT = 2.0   # seconds that the end of the process waits for threads


class _Slot:
  """The place of one batch: its value, or an error, or that there is none any more."""
  __slots__ = ("value", "error", "ended", "done")
  def __init__(self) -> None:
    self.value: Any = None
    self.error: BaseException | None = None
    self.ended = False
    self.done = threading.Event()


class _Work:
  """What the threads of one iterator have; it does not know the iterator, which ends them when it goes."""

  def __init__(self, jobs: Iterator[Any], do: Callable[[Any], Any]):
    self.jobs, self.do, self.stopped = jobs, do, False
    self.queue: SimpleQueue[_Slot | None] = SimpleQueue()
    self.mutex = threading.Lock()
    self.threads: list[threading.Thread] = []

  def run(self, number: int) -> None:
    while True:
      slot = None
      try:
        with self.mutex:
          slot = self.queue.get()
          if slot is None or self.stopped: return
          job = next(self.jobs)
        slot.value = self.do(job)
        del job
      except StopIteration: slot.ended = True   # type: ignore[union-attr]
      except BaseException as e:
        e.add_note(f"(in thread {number} of a DataLoader)")
        slot.error = e                          # type: ignore[union-attr]
      slot.done.set()                           # type: ignore[union-attr]
      del slot   # while it waits for the next one, the batch is not held here

  def stop(self) -> None:
    """Tell the threads to end after what they are at. Takes no lock: it may be called anywhere by the garbage collector."""
    self.stopped = True
    for _ in self.threads: self.queue.put(None)


class Ahead:
  """``do(job)`` for each of ``jobs``, in order, ``count`` jobs ahead by ``workers`` threads.

  Settings of the thread that makes it (``no_grad``, ``Tensor.training``, ``config``) hold in its threads. An error in a thread
  is raised where its batch would come; then there are no more.
  """

  def __init__(self, jobs: Iterator[Any], do: Callable[[Any], Any], workers: int, count: int):
    self.work, self.process, self.count = _Work(jobs, do), os.getpid(), count
    self.slots: deque[_Slot] = deque()
    self.end = weakref.finalize(self, self.work.stop)
    self.work.threads += [
      threading.Thread(target=contextvars.copy_context().run, args=(self.work.run, i), name=f"DataLoader-{i}", daemon=True)
      for i in range(workers)]
    _living.add(self.work)
    for thread in self.work.threads: thread.start()
    self._fill()

  def _fill(self) -> None:
    while len(self.slots) < self.count:
      self.slots.append(slot := _Slot())
      self.work.queue.put(slot)

  def __iter__(self) -> Ahead: return self

  def __next__(self) -> Any:
    if not self.end.alive: raise StopIteration
    if self.process != os.getpid():
      raise DeviceError("DataLoader: this iteration began before the process was forked, and threads do not live on in a fork; "
                        "begin another one here")
    slot = self.slots[0]
    slot.done.wait()
    if slot.ended or slot.error is not None:
      self.close()
      if slot.error is not None: raise slot.error
      raise StopIteration
    self.slots.popleft()
    self._fill()
    return slot.value

  def close(self) -> None:
    """End the threads, after what they are at."""
    self.end()
    self.slots.clear()


_living: weakref.WeakSet[_Work] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
  """Threads that are at something when the process ends get a moment to finish it; one that does not is left, it is a daemon."""
  works, until = list(_living), time.monotonic() + _AT_EXIT
  for work in works: work.stop()
  for work in works:
    for thread in work.threads: thread.join(max(0.0, until - time.monotonic()))


os.register_at_fork(after_in_child=_living.clear)   # threads of the parent
