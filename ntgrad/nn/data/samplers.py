"""In which order the rows of a dataset come: a function of a seed and of the number of the epoch, that can be made again."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from ntgrad.codegen.ir import ArgumentError, shown
from ntgrad.graph import checked
from ntgrad.tensor.random import Generator, default_generator

Rows = np.ndarray[Any, Any]
_MOST_ROWS = 2 ** 31   # numbers of rows that an order may have in memory


def seed_of(name: str, generator: Any, seed: int | None = None) -> int:
  """The seed that is given: a number, numpy's generator, ntgrad's, or, without one, that of ``Tensor.manual_seed``. Raises
  ArgumentError."""
  if seed is not None:
    if generator is not None: raise ArgumentError(f"{name}: generator and seed={seed} say the same; give one of them")
    generator = seed
  if generator is None: return default_generator.initial_seed()
  if isinstance(generator, Generator): return generator.initial_seed()
  if isinstance(generator, np.random.Generator): return int(generator.integers(0, 2 ** 63))
  if isinstance(generator, (int, np.integer)) and not isinstance(generator, bool) and 0 <= generator < 2 ** 64:
    return int(generator)
  raise ArgumentError(f"{name}: generator {shown(generator)}; it takes a seed from 0 to 2**64 - 1, a numpy.random.Generator or "
                      "an ntgrad.Generator")


class NoLength(ArgumentError, TypeError):
  """Something does not say how many rows it has; a TypeError for ``list``, which asks everything for its length first."""


def count_of(name: str, dataset: Any) -> int:
  """How many rows a dataset has. Raises ArgumentError where it does not say."""
  try: return len(dataset)
  except (TypeError, NotImplementedError):
    raise NoLength(f"{name}: {shown(dataset)} has no length; give a dataset with a __len__, or a sampler") from None


class Sampler:
  """The base of samplers: an ``__iter__`` gives numbers of rows (or lists of them, for a ``batch_sampler``).

  One that has ``set_epoch(n)`` is told the number of an epoch before it begins; its order must then be a function of that, or a
  loader cannot go on in the middle of one."""

  def __iter__(self) -> Iterator[Any]: raise ArgumentError(f"{type(self).__name__} has no __iter__; it gives numbers of rows")


class _Ordered(Sampler):
  """A sampler that has its whole order at once, one for each epoch."""

  def __init__(self, seed: int): self.seed, self.epoch = seed, 0

  def order(self) -> Rows:
    """The numbers of the rows in this epoch, int64."""
    raise NotImplementedError

  def rng(self) -> np.random.Generator: return np.random.default_rng((self.seed, self.epoch))

  def set_epoch(self, epoch: int) -> None:
    """Have the order of this epoch, from 0 on. Raises ArgumentError."""
    if type(epoch) is not int or epoch < 0: raise ArgumentError(f"set_epoch: {shown(epoch)}; epochs are counted from 0")
    self.epoch = epoch

  def __iter__(self) -> Iterator[int]:
    order = self.order()
    self.epoch += 1
    return iter(order.tolist())


@checked
class SequentialSampler(Sampler):
  """The rows of ``data_source`` in order: 0, 1, .. Raises ArgumentError where it has no length."""

  def __init__(self, data_source: Any):
    self.data_source = data_source
    count_of("SequentialSampler", data_source)
  def __iter__(self) -> Iterator[int]: return iter(range(len(self)))
  def __len__(self) -> int: return count_of("SequentialSampler", self.data_source)


@checked
class RandomSampler(_Ordered):
  """The rows of ``data_source`` in an order drawn by ``generator`` (a seed, numpy's Generator or ntgrad's; None: the seed of
  ``Tensor.manual_seed``), another one each epoch.

  ``replacement``: each row is drawn among all. ``num_samples`` rows are given, by default as many as there are; without
  replacement all come once before one comes again. Raises ArgumentError."""

  def __init__(self, data_source: Any, replacement: bool = False, num_samples: int | None = None, generator: Any = None):
    n = count_of("RandomSampler", data_source)
    if num_samples is not None and not 0 < num_samples < _MOST_ROWS:
      raise ArgumentError(f"RandomSampler: num_samples {num_samples}; it takes 1 to {_MOST_ROWS - 1}")
    if num_samples and not n: raise ArgumentError(f"RandomSampler: {num_samples} rows of a dataset that has none")
    super().__init__(seed_of("RandomSampler", generator))
    self.data_source, self.replacement, self.given = data_source, replacement, num_samples

  @property
  def num_samples(self) -> int:
    """How many rows an epoch has."""
    return len(self)
  def __len__(self) -> int: return count_of("RandomSampler", self.data_source) if self.given is None else self.given

  def order(self) -> Rows:
    n, many, rng = count_of("RandomSampler", self.data_source), len(self), self.rng()
    if self.replacement: return rng.integers(0, n, many)
    return rng.permutation(n)[:many] if many <= n else np.concatenate([rng.permutation(n) for _ in range(-(-many // n))])[:many]


@checked
class DistributedSampler(_Ordered):
  """The rows of ``dataset`` that are rank ``rank``'s of ``num_replicas``: every ``num_replicas``-th of an order that all ranks
  share, and that with ``shuffle`` is another one each epoch, drawn by ``seed``. All ranks have equally many rows: the first ones
  are repeated at the end, or with ``drop_last`` the last ones are left out. Without ``num_replicas`` and ``rank`` it is the rank
  of this process in ``ntgrad.distributed``. Raises ArgumentError."""

  def __init__(self, dataset: Any, num_replicas: int | None = None, rank: int | None = None, shuffle: bool = True, seed: int = 0,
               drop_last: bool = False):
    super().__init__(seed_of("DistributedSampler", None, seed))
    if num_replicas is None or rank is None:
      from ntgrad import distributed
      num_replicas = distributed.get_world_size() if num_replicas is None else num_replicas
      rank = distributed.get_rank() if rank is None else rank
    if not 0 <= rank < num_replicas: raise ArgumentError(f"DistributedSampler: rank {rank} of {num_replicas}; ranks begin at 0")
    self.dataset, self.num_replicas, self.rank, self.shuffle, self.drop_last = dataset, num_replicas, rank, shuffle, drop_last
    if not count_of("DistributedSampler", dataset): raise ArgumentError("DistributedSampler: a dataset that has no rows")

  def __len__(self) -> int: return batch_count(count_of("DistributedSampler", self.dataset), self.num_replicas, self.drop_last)

  def order(self) -> Rows:
    n, all_of = count_of("DistributedSampler", self.dataset), len(self) * self.num_replicas
    rows = self.rng().permutation(n) if self.shuffle else np.arange(n)
    return np.resize(rows, all_of)[self.rank::self.num_replicas]


@checked
class SubsetRandomSampler(_Ordered):
  """The rows ``indices`` in an order drawn by ``generator`` (see RandomSampler), another one each epoch. Raises ArgumentError."""

  def __init__(self, indices: Sequence[int], generator: Any = None):
    super().__init__(seed_of("SubsetRandomSampler", generator))
    try: self.indices = np.array(indices, np.int64)
    except OverflowError:
      raise ArgumentError(f"SubsetRandomSampler: indices {shown(indices)}; numbers of rows have 63 bits at most") from None
  def __len__(self) -> int: return len(self.indices)
  def order(self) -> Rows: return self.rng().permutation(self.indices)


@checked
class WeightedRandomSampler(_Ordered):
  """``num_samples`` rows, each drawn as often as its number of ``weights`` says (they need not add up to 1), with ``replacement``
  or each row once. ``generator`` as for RandomSampler. Raises ArgumentError."""

  def __init__(self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Any = None):
    w = np.array(weights, np.float64)
    if not len(w) or not np.isfinite(w).all() or (w < 0).any() or not 0 < w.sum() < np.inf:
      raise ArgumentError(f"WeightedRandomSampler: weights {shown(weights)}; they are finite, 0 or above, not all 0")
    if not 0 < num_samples < _MOST_ROWS or (not replacement and num_samples > np.count_nonzero(w)):
      raise ArgumentError(f"WeightedRandomSampler: num_samples {num_samples}; it takes 1 to {_MOST_ROWS - 1}, and without "
                          f"replacement no more than the {np.count_nonzero(w)} rows with a weight")
    super().__init__(seed_of("WeightedRandomSampler", generator))
    self.weights, self.num_samples, self.replacement = w / w.sum(), num_samples, replacement

  def __len__(self) -> int: return self.num_samples
  def order(self) -> Rows: return self.rng().choice(len(self.weights), self.num_samples, self.replacement, self.weights)


@checked
class BatchSampler(Sampler):
  """Lists of ``batch_size`` numbers of ``sampler``; the last one has fewer, or is left out with ``drop_last``. Raises
  ArgumentError."""

  def __init__(self, sampler: Iterable[Any], batch_size: int, drop_last: bool = False):
    if batch_size < 1: raise ArgumentError(f"BatchSampler: batch_size {batch_size}; it takes 1 or more")
    self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

  def __iter__(self) -> Iterator[list[Any]]:
    for rows in batches(self): yield rows.tolist() if isinstance(rows, np.ndarray) else rows

  def __len__(self) -> int: return batch_count(count_of("BatchSampler", self.sampler), self.batch_size, self.drop_last)

  def set_epoch(self, epoch: int) -> None:
    """Tell the sampler the number of the epoch, if it wants to know."""
    begin(self.sampler, epoch)


def begin(sampler: Any, epoch: int) -> None:
  """Tell a sampler the number of the epoch, if it wants to know."""
  if callable(tell := getattr(sampler, "set_epoch", None)): tell(epoch)


def batches(sampler: BatchSampler, skip: int = 0) -> Iterator[Any]:
  """The batches of a BatchSampler without the first ``skip``: arrays of the numbers of our samplers, lists of those of others."""
  size, inner = sampler.batch_size, sampler.sampler
  if type(inner) not in (RandomSampler, DistributedSampler, SubsetRandomSampler, WeightedRandomSampler, SequentialSampler):
    yield from batched(inner, size, sampler.drop_last, skip)
    return
  order: Any = range(len(inner)) if isinstance(inner, SequentialSampler) else inner.order()  # type: ignore[attr-defined]
  for at in range(skip * size, len(order) - (size - 1 if sampler.drop_last else 0), size):
    rows = order[at:at + size]
    yield np.arange(rows.start, rows.stop) if isinstance(rows, range) else rows


def batched(rows: Iterable[Any], size: int, drop_last: bool, skip: int) -> Iterator[list[Any]]:
  """Lists of so many rows without the first ``skip`` lists; the last one has fewer, or is left out with ``drop_last``."""
  left = islice(rows, skip * size, None)
  while found := list(islice(left, size)):
    if len(found) == size or not drop_last: yield found


def batch_count(n: int, size: int, drop_last: bool) -> int:
  """How many batches n rows make."""
  return n // size if drop_last else -(-n // size)
