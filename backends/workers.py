"""The worker processes of this process, for every backend that compiles. They start when there is much to build, and end when
idle.

Jobs wait in a Queue, in the order in which their kernels will be needed. This process builds what it needs next, workers take
jobs from the other end. They are plain subprocesses of another module: a script needs no ``if __name__ == "__main__"``.
"""
from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Callable, Iterator

from ntgrad.codegen.ir import CompileError, config, interrupted

from . import cache
from .process import cores, uninterrupted
from .progress import line

IDLE = 30.0                   # seconds without a job after which a worker ends
MOST = 16                     # processes that compile, unless ``config.workers`` says how many
START = str(Path(__file__).with_name("worker.py"))
LOST = 3                      # workers that ended without an answer, one after another, after which there are no more
Work = tuple[Callable[..., Any], tuple[Any, ...]]

changed = threading.Condition()   # guards the queues, the states of their jobs, and what follows
_queues: weakref.WeakSet[Queue] = weakref.WeakSet()
_workers: list[Worker] = []
_inherited: list[Worker] = []  # of the process that this one was forked from; not waited for, as they are no children of it
_held: list[Job] = []          # being built, here or by a worker
_lost = 0                      # workers lost since the last answer
# of jobs, for profiles: the worker's process, what it was to do, when it began and ended (``time.perf_counter``)
history: deque[tuple[int, str, float, float]] = deque(maxlen=4096)


@dataclass(eq=False, kw_only=True)
class Job:
  """What is built as one. A job that nobody refers to any more is not built."""
  answer: Any = None          # what a worker made of it, not looked at yet
  refused: str = ""           # a worker's CompileError
  taken: bool = False         # being built,
  by: int = 0                 # and by which thread of this process, if it is one that waits for it
  done: bool = False          # built: it can be used
  here: bool = False          # only this process may build it: a worker has failed
  settings: dict[str, Any] = field(default_factory=cache.settings)   # where the answer is stored
  count: int = 1              # kernels in it
  weight: float = 1.0         # about how many small kernels take as long to build
  worth_building: bool = True # whether a worker may take it; else it waits for more kernels to join it

  def work(self) -> Work:
    """What a worker is to call: a function of a module and its arguments; its result is the answer. All are pickled."""
    raise NotImplementedError

  def finished(self) -> None: """Called when a worker has been at it, in another thread, with ``changed`` held."""


class Queue:
  """What one compiler has to build, in the order of need. ``many`` is the weight that is worth starting workers; None: never.
  Workers take jobs of a lower ``rank`` first. ``background``: nobody waits for it, and workers take its jobs in their order."""

  def __init__(self, many: float | None, rank: int = 1, background: bool = False):
    self.many, self.rank, self.background = many, 2 if background else rank, background
    self._todo = dict[weakref.ref[Job], None]()
    with changed: _queues.add(self)

  def waiting(self) -> list[Job]:
    return [job for r in list(self._todo) if (job := r()) is not None and not (job.done or job.taken)]

  def add(self, job: Job) -> None:
    """Put a job at the end."""
    with changed:
      self._todo[weakref.ref(job, self._forget)] = None
      if job.worth_building or self.background: changed.notify_all()

  def serve(self) -> None:
    """Start workers, or as many as are missing, if what waits is worth it."""
    with changed:
      if self.many is None or _lost >= LOST or len(_workers) >= size() - 1: return
      jobs = self.waiting()
      if not _workers and not (config.workers and len(jobs) > 1) and sum(j.weight for j in jobs) <= self.many: return
      with uninterrupted():
        while len(_workers) < size() - 1:
          worker = Worker()
          _workers.append(worker)
          threading.Thread(target=_drive, args=(worker,), name="ntgrad-worker", daemon=True).start()

  @contextmanager
  def claim(self, job: Job) -> Iterator[bool]:
    """Wait until nobody else builds a job. Gives True where the block is to build it, from the worker's answer if there is one,
    and False where it is built already."""
    mine = False
    try:   # around all of it: an interrupt must not leave a job taken that nobody builds
      with building():
        with changed:
          if job.taken and job.by == threading.get_ident(): raise interrupted()   # else it would wait for itself
          line.wait(changed, lambda: not job.taken)
          if not job.done:
            job.taken = mine = True
            job.by = threading.get_ident()
            self._take(job)
        yield mine
      job.done = True
    finally:
      if mine: _let_go(job)

  def _forget(self, r: weakref.ref[Job]) -> None: self._todo.pop(r, None)

  def _take(self, job: Job) -> None:
    self._forget(weakref.ref(job))
    job.taken = True
    if job.answer is None and not job.refused: _held.append(job)   # else it is counted


def _let_go(job: Job) -> None:
  with changed:
    job.taken, job.by = False, 0
    if job in _held:
      _held.remove(job)
      line.done += job.count
    changed.notify_all()


def _so_far() -> str:
  with changed:
    left = sum(j.count for q in _queues if not q.background for j in q.waiting()) + sum(j.count for j in _held)
    return f"compiling {line.done} of {line.done + left} kernels"


building = partial(line, _so_far)   # kernels are compiled, or waited for, in ``with building():``, which the line says


def size() -> int:
  """How many processes compile, this one among them: ``config.workers``, or one a core that this process may use."""
  if not sys.executable: return 1
  return config.workers or min(cores(), MOST)


def alive() -> bool:
  """Whether workers are running already."""
  with changed: return any(w.poll() is None for w in _workers)


class Worker(subprocess.Popen[bytes]):
  """A process that builds, see :mod:`ntgrad.backends.worker`, and the pipe to it. Closing the pipe ends it."""

  def __init__(self) -> None:
    from multiprocessing import Pipe  # takes long, and few processes need it
    package = next(iter(sys.modules["ntgrad"].__path__))   # loaded before anything in it
    path = os.pathsep.join([os.path.dirname(package), *filter(None, [os.environ.get("PYTHONPATH")])])
    self.pipe, theirs = Pipe()
    with theirs:   # -P: the folder of that file is no place to import from
      super().__init__([sys.executable, "-P", START, str(os.getpid()), str(theirs.fileno())],
                       env={**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}, pass_fds=[theirs.fileno()],
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

  def ask(self, settings: dict[str, Any], work: Work) -> tuple[str, Any]:
    """"made" and the result, "refused" and a CompileError's text, "failed" and another error's, "lost" and how it ended."""
    try:
      self.pipe.send((settings, *work))
      how, what = self.pipe.recv()
      return how, what
    except Exception as e:   # of pipes and pickles
      return "lost", f"the process that compiles ended ({type(e).__name__})"

  def end(self) -> None:
    """Wait until it has ended, after the work that it is at."""
    self.pipe.close()
    self.wait()


def _next(worker: Worker) -> Job | None:
  """The job that is needed last: this process, which goes through them from the first, seldom waits for it. Where several workers
  take most of the jobs, the one that takes longest, or all would wait for that. Or one that nobody waits for. None when none has
  come for IDLE seconds, or when the worker has been told to end."""
  def last() -> tuple[Queue, Job] | None:
    for q in sorted(_queues, key=lambda q: q.rank):
      if q.many is None: continue
      found = [j for j in q.waiting() if (j.worth_building or q.background) and not j.here]
      if found: return q, found[0] if q.background else max(reversed(found), key=lambda j: j.weight) if size() > 2 else found[-1]
    return None

  with changed:
    changed.wait_for(lambda: worker not in _workers or last() is not None, IDLE)
    found = last() if worker in _workers else None
    if found is None:
      if worker in _workers: _workers.remove(worker)
      return None
    found[0]._take(found[1])
    return found[1]


def _drive(worker: Worker) -> None:
  """Hand jobs to a worker until none has come for a while; then end it."""
  global _lost
  how = ""
  while how != "lost" and (job := _next(worker)) is not None:
    began, work = time.perf_counter(), job.work()
    how, what = worker.ask(job.settings, work)
    history.append((worker.pid, f"{work[0].__name__}: {job.count} kernels", began, time.perf_counter()))
    with changed:
      if how != "lost": _lost = 0
      elif worker in _workers:   # and was not told to end
        _workers.remove(worker)
        _lost += 1
      if how == "made": job.answer = what
      elif how == "refused": job.refused = what
      job.here = how != "made"
      job.finished()
    _let_go(job)
    del job   # or it would stay alive while this waits for the next
  if how == "lost": worker.kill()
  worker.end()


def once(work: Work) -> Any:
  """The answer of a worker of its own. Raises CompileError."""
  worker = Worker()
  try: how, what = worker.ask(cache.settings(), work)
  finally: worker.end()
  if how == "made": return what
  raise CompileError(str(what))


def stop() -> None:
  """End the workers, whatever they do, and wait for them."""
  for w in _dismiss(): w.wait()


def _dismiss() -> list[Worker]:
  with changed:
    ended, _workers[:] = list(_workers), []
    changed.notify_all()   # their threads
  for w in ended: w.terminate()
  return ended


def _after_fork() -> None:
  """In a forked process: the workers and their threads belong to the parent, and nobody builds their jobs here."""
  global changed
  changed = threading.Condition()
  for w in _workers: w.pipe.close()
  _inherited.extend(_workers)
  for job in _held: job.taken = False
  _workers.clear()
  _held.clear()


os.register_at_fork(after_in_child=_after_fork)


atexit.register(_dismiss)
