"""``DataLoader``: batches of a dataset as Tensors, in an order that can be made again."""
from __future__ import annotations

import atexit
import contextvars
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from ntgrad.codegen.ir import ArgumentError, CaptureError, DeviceError, StateError, few, shown
from ntgrad.engine.buffer import transfer_watchers
from ntgrad.engine.device import Device
from ntgrad.graph import checked

from .collate import collated, placed
from .samplers import BatchSampler, RandomSampler, SequentialSampler, batch_count, batched, batches, begin, count_of, seed_of
from .sets import IterableDataset, by_number, getter, row

_WORKERS, _AHEAD = 256, 1024   # threads, and batches ahead for each of them, at most
_AT_EXIT = 2.0   # seconds that the end of the process waits for threads
_STATE = "epoch position seed batch_size rows".split()


@checked
class DataLoader:
  """Batches of ``dataset`` as Tensors: ``for x, y in DataLoader(TensorDataset(images, labels), 32, shuffle=True): ..``

  ``dataset`` has rows by number (``__getitem__`` and ``__len__``: a Dataset, an array, a list, ..) or is an IterableDataset.
  Rows of arrays and Tensors (TensorDataset, and Subset and ConcatDataset of it) are taken a batch at once; others one by one,
  and ``collate_fn`` makes a batch of a list of them (see ``default_collate``). Without ``batch_size`` rows are given one by one.

  ``shuffle`` gives rows in another order each epoch, the same for the same ``seed`` (or ``generator``: a seed, numpy's Generator
  or ntgrad's; without either the seed of ``Tensor.manual_seed``). A ``sampler`` gives numbers of rows, a ``batch_sampler`` lists
  of them. ``drop_last`` leaves out a last batch with fewer rows: a captured function then sees one shape.

  ``num_workers`` threads compute ``prefetch_factor`` batches each ahead, and copy them to the device; the batches and their order
  are the same with any number. They run the dataset's Python one at a time, but numpy, files and decoders side by side. Errors
  are raised where the batch would come, with a note that says which rows. Each begins with ``worker_init_fn(number)``: in every
  epoch, with ``persistent_workers`` in the first one alone. All see one dataset, which is never split among them
  (``get_worker_info()`` is None). A batch that takes longer than ``timeout`` seconds (0: any time) is a DeviceError.

  Tensors come on ``device`` (None: the default one; rows of Tensors stay where they are), arrays in their dtype. Every copy to
  CUDA goes through pinned memory, so ``pin_memory`` changes nothing; ``pin_memory_device``, ``in_order`` and
  ``multiprocessing_context`` do not either.

  ``state_dict()`` says where an iteration is, and ``load_state_dict`` of a loader of the same dataset goes on there: the next
  iteration gives the very batches that had not been given. Raises ArgumentError, DeviceError; CaptureError where a captured
  function takes a batch, which a replay cannot do again."""

  def __init__(self, dataset: Any, batch_size: int | None = 1, shuffle: bool | None = False, sampler: Iterable[Any] | None = None,
               batch_sampler: Iterable[Any] | None = None, num_workers: int = 0, collate_fn: Callable[..., Any] | None = None,
               pin_memory: bool = False, drop_last: bool = False, timeout: float = 0,
               worker_init_fn: Callable[..., Any] | None = None, multiprocessing_context: Any = None, generator: Any = None, *,
               prefetch_factor: int | None = 2, persistent_workers: bool = False, pin_memory_device: str = "",
               in_order: bool = True, seed: int | None = None, device: str | None = None):
    if not 0 <= num_workers <= _WORKERS: raise ArgumentError(f"DataLoader: num_workers {num_workers}; it takes 0 to {_WORKERS}")
    if prefetch_factor is None: prefetch_factor = 2
    if not 1 <= prefetch_factor <= _AHEAD:
      raise ArgumentError(f"DataLoader: prefetch_factor {prefetch_factor}; it takes 1 to {_AHEAD}")
    if not 0 <= timeout <= threading.TIMEOUT_MAX:
      raise ArgumentError(f"DataLoader: timeout {timeout}; it takes seconds, 0 for any time")
    if persistent_workers and not num_workers: raise ArgumentError("DataLoader: persistent_workers with num_workers 0; give some")
    self.timeout, self.worker_init_fn, self.persistent_workers = timeout, worker_init_fn, persistent_workers
    if batch_size is not None and batch_size < 1: raise ArgumentError(f"DataLoader: batch_size {batch_size}; it takes 1 or more")
    drawn = seed_of("DataLoader", generator, seed)
    self.dataset, self.num_workers, self.collate_fn, self.pin_memory = dataset, num_workers, collate_fn, pin_memory
    self.prefetch_factor, self.device = prefetch_factor, None if device is None else Device._located(device)
    self.iterable = isinstance(dataset, IterableDataset)
    if self.iterable:
      if shuffle or sampler is not None or batch_sampler is not None:
        raise ArgumentError("DataLoader: an IterableDataset comes in its own order; leave shuffle and samplers out")
    elif not by_number(dataset):
      raise ArgumentError(f"DataLoader: {shown(dataset)} is no dataset; it takes what has __getitem__ and __len__ (a Dataset, an "
                          "array, a list) or an IterableDataset")
    if sampler is not None and shuffle: raise ArgumentError("DataLoader: a sampler says the order; leave shuffle out")
    if batch_sampler is not None:
      if batch_size != 1 or shuffle or sampler is not None or drop_last:
        raise ArgumentError("DataLoader: a batch_sampler says it all; leave batch_size, shuffle, sampler and drop_last out")
      batch_size = getattr(batch_sampler, "batch_size", None)
    if batch_size is None and drop_last: raise ArgumentError("DataLoader: drop_last without a batch_size")
    self.batch_size, self.drop_last = batch_size, drop_last
    if not self.iterable and batch_sampler is None:
      if sampler is None: sampler = RandomSampler(dataset, generator=drawn) if shuffle else SequentialSampler(dataset)
      if batch_size is not None: batch_sampler = BatchSampler(sampler, batch_size, drop_last)
    self.sampler = getattr(batch_sampler, "sampler", None) if sampler is None else sampler
    self.batch_sampler = batch_sampler
    self._epoch = self._position = self._run = 0
    self._begun = False   # whether an iteration of this epoch has begun

  # ---- batches
  def __len__(self) -> int:
    """How many batches an epoch has. Raises ArgumentError where the dataset or the sampler does not say."""
    if not self.iterable: return count_of("DataLoader", self.sampler if self.batch_sampler is None else self.batch_sampler)
    n = count_of("DataLoader", self.dataset)
    return n if self.batch_size is None else batch_count(n, self.batch_size, self.drop_last)

  @property
  def epoch(self) -> int:
    """The number of the epoch that is on, or begins next: 0, 1, .."""
    return self._epoch

  @property
  def seed(self) -> int | None:
    """The seed of the order; None where the sampler has none."""
    return getattr(self.sampler, "seed", None)

  def __iter__(self) -> Iterator[Any]:
    """The batches of the next epoch, or those left of one whose state was loaded."""
    if self._begun: self._epoch, self._position = self._epoch + 1, 0
    self._begun, self._run = True, self._run + 1
    return _Iteration(self)

  def _jobs(self, skip: int) -> Iterator[Any]:
    """What each batch is made of: numbers of rows, or the rows of an IterableDataset."""
    if self.iterable and self.batch_size is not None: yield from batched(self.dataset, self.batch_size, self.drop_last, skip)
    elif self.iterable: yield from islice(self.dataset, skip, None)
    elif type(self.batch_sampler) is BatchSampler: yield from batches(self.batch_sampler, skip)
    else: yield from islice(self.sampler or () if self.batch_sampler is None else self.batch_sampler, skip, None)

  def _batch(self, device: str | None) -> Callable[[Any], Any]:
    dataset, collate, iterable = self.dataset, self.collate_fn, self.iterable
    single = self.batch_size is None and self.batch_sampler is None
    at_once = None if iterable or single or collate is not None else getter(dataset)
    many = getattr(dataset, "__getitems__", None)   # PyTorch's way to give the rows of a batch as a list

    def make(job: Any) -> Any:
      if at_once is not None: return placed(at_once(job), device)
      if iterable: rows = job
      elif single: rows = row(dataset, int(job) if isinstance(job, np.integer) else job)
      else:
        numbers = job.tolist() if isinstance(job, np.ndarray) else job
        rows = many(numbers) if callable(many) else [row(dataset, i) for i in numbers]
      if collate is not None: return placed(collate(rows), device)
      return placed(rows, device) if single else collated(rows, device)

    def noted(job: Any) -> Any:
      try: return make(job)
      except StopIteration as e:   # would end the iteration without a word
        raise ArgumentError(f"DataLoader: the dataset or collate_fn raised StopIteration for rows {_brief(job)}") from e
      except Exception as e:
        if not iterable: e.add_note(f"(DataLoader: in the batch of rows {_brief(job)})")
        raise
    return noted

  # ---- where it is
  def state_dict(self) -> dict[str, Any]:
    """Where the newest iteration is: the epoch, how many batches it has given, the seed, and what a loader must have in common
    to go on. Plain numbers, for a checkpoint."""
    rows = None
    if not self.iterable:
      try: rows = len(self.dataset)
      except (TypeError, NotImplementedError): pass
    return {"epoch": self._epoch, "position": self._position, "seed": self.seed, "batch_size": self.batch_size, "rows": rows}

  def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
    """Go on where ``state_dict()`` was called: the next iteration gives the batches of that epoch that were left (none after the
    last one), those after it the next epochs. Iterations that are on do not count any more. Raises StateError for a state of
    something else, and then nothing has changed."""
    if set(state_dict) != set(_STATE):
      raise StateError(f"DataLoader: {shown(dict(state_dict))} is no state of a loader; it has {', '.join(_STATE)}")
    epoch, position, seed = (state_dict[k] for k in _STATE[:3])
    for name, n in (("epoch", epoch), ("position", position), *([("seed", seed)] if seed is not None else [])):
      if type(n) is not int or not 0 <= n < 2 ** 64:
        raise StateError(f"DataLoader: the state's {name} is {shown(n)}, expected a whole number from 0 on")
    mine = self.state_dict()
    for name in "batch_size", "rows":
      if mine[name] != state_dict[name]:
        raise StateError(f"DataLoader: the state is of a loader with {name} {shown(state_dict[name])}, this one has {mine[name]}")
    if (seed is None) != (self.seed is None):
      raise StateError(f"DataLoader: the state has the seed {seed}, this loader {self.seed}; one of them shuffles, one does not")
    if seed is not None: self.sampler.seed = seed   # type: ignore[union-attr]
    self._epoch, self._position, self._begun, self._run = epoch, position, False, self._run + 1


class _Iteration(Iterator[Any]):
  """The batches of one epoch, from where the loader stands."""

  def __init__(self, loader: DataLoader):
    self.loader, self.run, self.failed = loader, loader._run, False
    begin(loader.dataset if loader.iterable else loader.sampler if loader.batch_sampler is None else loader.batch_sampler,
          loader._epoch)
    jobs, make = loader._jobs(loader._position), loader._batch(loader.device)
    workers = loader.num_workers
    self.source: Iterator[Any] = map(make, jobs) if not workers else Ahead(
      jobs, make, workers, workers * loader.prefetch_factor, None if loader.persistent_workers and self.run > 1 else
      loader.worker_init_fn, loader.timeout)

  def __next__(self) -> Any:
    if transfer_watchers and any(w.thread == threading.get_ident() for w in transfer_watchers):
      raise CaptureError("DataLoader: a batch is taken within a captured function, which a replay cannot repeat; take it before "
                         "the call, and pass it as an argument")
    loader = self.loader
    try: batch = next(self.source)
    except StopIteration:
      self.source = iter(())
      if loader._run == self.run and loader._begun and not self.failed:
        loader._epoch, loader._position, loader._begun = loader._epoch + 1, 0, False
      raise
    except BaseException:   # there are no more; the loader stays at the batch that failed
      self.source, self.failed = iter(()), True
      raise
    if loader._run == self.run: loader._position += 1
    return batch


def get_worker_info() -> None:
  """None, as in PyTorch's main process: workers are threads that see one dataset, and it is not split among them."""


def _brief(job: Any) -> str:
  rows = job.tolist() if isinstance(job, np.ndarray) else job
  return few(rows) if isinstance(rows, (list, tuple)) else shown(rows)


# ---- batches computed ahead by threads, in order. The one who iterates puts empty *slots* into a queue, which threads fill. No
# lock is shared with it, so an iterator may be dropped at any time: its threads are then told to end


_Slot = SimpleQueue[tuple[Any, BaseException | None]]   # of one batch: its value, or an error; StopIteration: there are no more


class _Work:
  """What the threads of one iterator have; it does not know the iterator, which ends them when it goes."""

  def __init__(self, jobs: Iterator[Any], do: Callable[[Any], Any], first: Callable[[int], Any] | None):
    self.jobs, self.do, self.first, self.stopped = jobs, do, first, False
    self.queue: SimpleQueue[_Slot | None] = SimpleQueue()
    self.mutex = threading.Lock()
    self.threads = list[threading.Thread]()

  def run(self, number: int) -> None:
    failed: BaseException | None = None
    try:
      if self.first is not None: self.first(number)
    except BaseException as e: failed = e   # where the first batch would come
    while True:
      try:
        with self.mutex:
          slot = self.queue.get()
          if slot is None or self.stopped: return
          if failed is not None: raise failed
          job = next(self.jobs)
        slot.put((self.do(job), None))
        del job
      except BaseException as e:
        if e is not failed and not isinstance(e, StopIteration): e.add_note(f"(in thread {number} of a DataLoader)")
        slot.put((None, e))   # type: ignore[union-attr]
      del slot   # while it waits for the next one, the batch is not held here

  def stop(self) -> None:
    """Tell the threads to end after what they are at. Takes no lock: it may be called anywhere by the garbage collector."""
    self.stopped = True
    for _ in self.threads: self.queue.put(None)


class Ahead(Iterator[Any]):
  """``do(job)`` for each of ``jobs``, in order, ``count`` jobs ahead by ``workers`` threads.

  Settings of the thread that makes it (``no_grad``, ``Tensor.training``, ``config``) hold in its threads. An error in a thread
  is raised where its batch would come; then there are no more."""

  def __init__(self, jobs: Iterator[Any], do: Callable[[Any], Any], workers: int, count: int,
               first: Callable[[int], Any] | None = None, timeout: float = 0):
    self.work, self.process, self.count, self.timeout = _Work(jobs, do, first), os.getpid(), count, timeout
    self.slots = deque[_Slot]()
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

  def __next__(self) -> Any:
    if not self.end.alive: raise StopIteration
    if self.process != os.getpid():
      raise DeviceError("DataLoader: this iteration began before the process was forked, and threads do not live on in a fork; "
                        "begin another one here")
    try: value, error = self.slots[0].get(timeout=self.timeout or None)
    except Empty:
      self.close()
      raise DeviceError(f"DataLoader: no batch came in {self.timeout} seconds; give a longer timeout, or 0 to wait for any "
                        "time") from None
    if error is not None:
      self.close()
      raise StopIteration if isinstance(error, StopIteration) else error
    self.slots.popleft()
    self._fill()
    return value

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
