"""Datasets: rows by number, or one after the other."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from ntgrad.codegen.ir import ArgumentError, DTypeError, IndexOutOfRangeError, NtgradError, ShapeError, dtypes, shown
from ntgrad.graph import checked, foreign
from ntgrad.tensor import Tensor
from ntgrad.tensor.creation import array_of

from .samplers import Rows, count_of, seed_of

T = TypeVar("T", covariant=True)


class Dataset(Generic[T]):
  """The base of datasets: ``__getitem__(i)`` gives row ``i`` (numbers, arrays, Tensors, or tuples and dicts of them),
  ``__len__()`` how many there are. ``a + b`` is both, one behind the other.

  One that can give many rows faster than one by one also has ``__getbatch__(rows)``: for an int64 array of numbers of rows the
  batch as ``default_collate`` would make it, of arrays or Tensors whose first dimension is the batch."""

  def __getitem__(self, index: Any) -> T: raise ArgumentError(f"{type(self).__name__} has no __getitem__; it gives a row")
  def __add__(self, other: Any) -> ConcatDataset[T]: return ConcatDataset([self, other])


class IterableDataset(Dataset[T]):
  """The base of datasets without numbers: ``__iter__()`` gives the rows in order, from the start each time.

  One that has ``set_epoch(n)`` is told the number of an epoch before it begins. To go on in the middle of an epoch the rows
  before are read and left out, so they have to come in the same order again."""

  def __iter__(self) -> Iterator[T]: raise ArgumentError(f"{type(self).__name__} has no __iter__; it gives the rows")


@checked
class TensorDataset(Dataset[tuple[Any, ...]]):
  """Row ``i`` of each of ``tensors``, as a tuple: Tensors, numpy arrays (memory maps too) or lists, all of as many rows.
  Arrays stay on the host; many rows are taken at once. Raises ShapeError for different lengths, DTypeError."""

  def __init__(self, *tensors: Any):
    if not tensors: raise ArgumentError("TensorDataset: no tensors; give one or more, each with a row for every sample")
    self.tensors = tuple(_rows_in(t) for t in tensors)
    if len({len(t) for t in self.tensors}) > 1:
      raise ShapeError(f"TensorDataset: {', '.join(str(len(t)) for t in self.tensors)} rows; all must have as many")

  def __len__(self) -> int: return len(self.tensors[0])

  def __getitem__(self, index: Any) -> tuple[Any, ...]:
    if isinstance(index, slice):
      try: return self.__getbatch__(np.arange(*index.indices(len(self))))
      except TypeError: raise ArgumentError(f"TensorDataset: {shown(index)}; a slice has whole numbers") from None
    i = row_of("TensorDataset", index, len(self))
    return tuple(t[i] for t in self.tensors)

  def __getbatch__(self, rows: Rows) -> tuple[Any, ...]: return tuple(taken(t, rows) for t in self.tensors)


@checked
class Subset(Dataset[Any]):
  """The rows ``indices`` of ``dataset``. Raises ArgumentError, IndexOutOfRangeError."""

  def __init__(self, dataset: Any, indices: Sequence[int]):
    n = count_of("Subset", dataset)
    if indices and not -n <= min(indices) <= max(indices) < n:
      raise IndexOutOfRangeError(f"Subset: rows {min(indices)} to {max(indices)} of {n}")
    self.dataset, self.indices = dataset, np.array(indices, np.int64)
  def __len__(self) -> int: return len(self.indices)
  def __getitem__(self, index: Any) -> Any: return self.dataset[int(self.indices[row_of("Subset", index, len(self))])]


class ConcatDataset(Dataset[T]):
  """The rows of several datasets, one behind the other. Raises ArgumentError where one has no length."""

  @checked
  def __init__(self, datasets: Iterable[Any]):
    self.datasets = list(datasets)
    if not self.datasets: raise ArgumentError("ConcatDataset: no datasets; give one or more")
    for d in self.datasets:
      if not by_number(d): raise ArgumentError(f"ConcatDataset: {shown(d)} has no rows by number")
    self.cumulative_sizes = np.cumsum([count_of("ConcatDataset", d) for d in self.datasets]).tolist()

  def __len__(self) -> int: return int(self.cumulative_sizes[-1])

  def __getitem__(self, index: Any) -> T:
    i = row_of("ConcatDataset", index, len(self))
    which = int(np.searchsorted(self.cumulative_sizes, i, "right"))
    return self.datasets[which][i - (self.cumulative_sizes[which - 1] if which else 0)]


@checked
def random_split(dataset: Any, lengths: Sequence[float], generator: Any = None) -> list[Subset]:
  """Cut the rows of ``dataset`` into Subsets of ``lengths`` rows, which rows is drawn by ``generator`` (see RandomSampler).
  ``lengths`` add up to the length, or are shares that add up to 1 (rows that are left over go to the first ones, one each).
  Raises ArgumentError."""
  n = count_of("random_split", dataset)
  said = f"random_split: lengths {shown(list(lengths))} of {n} rows; they add up to {n}, or as shares to 1"
  if not lengths or not all(0 <= x <= 2 ** 62 for x in lengths): raise ArgumentError(said)
  if abs(sum(lengths) - 1) < 1e-9 and max(lengths) <= 1 and (n != 1 or any(x != int(x) for x in lengths)):
    sizes = [int(n * x + 1e-9) for x in lengths]
    for i in range(n - sum(sizes)): sizes[i % len(sizes)] += 1
  else: sizes = [int(x) for x in lengths]
  if sum(sizes) != n or (sum(lengths) != n and abs(sum(lengths) - 1) > 1e-9): raise ArgumentError(said)
  order = np.random.default_rng(seed_of("random_split", generator)).permutation(n)
  return [Subset(dataset, order[e - s:e].tolist()) for s, e in zip(sizes, np.cumsum(sizes))]


# ---- rows of anything

def by_number(dataset: Any) -> bool:
  """Whether something has rows by number."""
  if isinstance(dataset, (Mapping, type, IterableDataset, np.generic)) or getattr(dataset, "ndim", None) == 0: return False
  return hasattr(type(dataset), "__getitem__")


def row(dataset: Any, index: Any) -> Any:
  """One row of a dataset. Raises IndexOutOfRangeError for one that it has not, and what the dataset raises."""
  try: return dataset[index]
  except IndexError as e:
    if isinstance(e, NtgradError) or not isinstance(index, int) or -(n := count_of("DataLoader", dataset)) <= index < n: raise
    raise IndexOutOfRangeError(f"DataLoader: row {shown(index)} of {n}; the sampler gives what the dataset has not") from e


def getter(dataset: Any) -> Callable[[Rows], Any] | None:
  """What gives many rows of a dataset at once, collated; None where they have to be asked for one by one."""
  if isinstance(dataset, (np.ndarray, Tensor)): return lambda rows: taken(dataset, rows)
  kind = type(dataset)
  if kind is Subset:
    inner = getter(dataset.dataset)
    return None if inner is None else lambda rows: inner(dataset.indices[_checked_rows(rows, len(dataset.indices))])
  if kind is ConcatDataset:
    inners = [g for d in dataset.datasets if (g := getter(d)) is not None]
    return _together(inners, dataset.cumulative_sizes) if len(inners) == len(dataset.datasets) else None
  # a class that has another __getitem__ than the one that __getbatch__ was written for is asked row by row
  for c in kind.__mro__:
    if "__getbatch__" in vars(c): return dataset.__getbatch__
    if "__getitem__" in vars(c): return None
  return None


def taken(t: Any, rows: Any) -> Any:
  """The given rows of an array or Tensor. Raises IndexOutOfRangeError, ArgumentError."""
  rows = _checked_rows(rows, len(t))
  return t[rows].realize() if isinstance(t, Tensor) else np.take(np.asarray(t), rows, axis=0)


def row_of(name: str, index: Any, n: int) -> int:
  """The number of a row, from 0 on. Raises ArgumentError, IndexOutOfRangeError."""
  if not isinstance(index, (int, np.integer)) or isinstance(index, bool):
    raise ArgumentError(f"{name}: row {shown(index)}; it takes a whole number")
  if not -n <= index < n: raise IndexOutOfRangeError(f"{name}: row {shown(int(index))} of {n}")
  return int(index) % n


def _checked_rows(rows: Any, n: int) -> Rows:
  try: a = np.asarray(rows)
  except ValueError: a = np.zeros(())
  if a.ndim != 1 or (a.dtype.kind not in "iu" and a.size):
    raise ArgumentError(f"DataLoader: rows {shown(rows)}; a sampler gives whole numbers of 63 bits at most")
  if a.size and (a.max() >= n or a.min() < -n):
    raise IndexOutOfRangeError(f"DataLoader: row {a[(a >= n) | (a < -n)][0]} of {n}; the sampler gives what the dataset has not")
  return a.astype(np.int64)


def _rows_in(t: Any) -> Any:
  if isinstance(t, (Tensor, np.ndarray)): out: Any = t
  elif isinstance(t, (list, tuple, range)): out = array_of(list(t), None)
  elif foreign(t): out = Tensor(t)
  else: raise ArgumentError(f"TensorDataset: {shown(t)} is no tensor; give Tensors, arrays or lists")
  if not out.ndim: raise ShapeError(f"TensorDataset: {shown(t)} is one number; it takes a row for every sample")
  if isinstance(out, np.ndarray): dtypes.of(out.dtype)   # refuses what no tensor has
  return out


def _together(inners: list[Callable[[Rows], Any]], ends: list[int]) -> Callable[[Rows], Any]:
  """Many rows of several datasets, in the order asked for."""
  starts = np.array([0, *ends[:-1]])
  def get(rows: Rows) -> Any:
    rows = _checked_rows(rows, ends[-1]) % max(ends[-1], 1)
    which = np.searchsorted(ends, rows, "right")
    if not len(rows): return inners[0](rows)
    if (which == which[0]).all(): return inners[which[0]](rows - starts[which[0]])
    back = np.argsort(np.argsort(which, kind="stable"))   # the inverse of an order
    return _joined([inners[i](rows[which == i] - starts[i]) for i in np.unique(which)], back)
  return get


def _joined(parts: list[Any], back: Rows) -> Any:
  """Batches of the same kind as one, whose rows are then put in order."""
  first = parts[0]
  if len({type(p) for p in parts}) == 1:
    if isinstance(first, (np.ndarray, Tensor)) and len({(p.dtype, p.shape[1:]) for p in parts}) == 1:
      if isinstance(first, np.ndarray): return np.concatenate(parts)[back]
      return Tensor.cat(*[p.to(first.device) for p in parts])[back].realize()
    if isinstance(first, Mapping) and all(p.keys() == first.keys() for p in parts):
      return {k: _joined([p[k] for p in parts], back) for k in first}
    if isinstance(first, (tuple, list)) and all(len(p) == len(first) for p in parts):
      return tuple(_joined(list(column), back) for column in zip(*parts))
  raise (DTypeError if len({getattr(p, "dtype", None) for p in parts}) > 1 else ShapeError)(
    f"ConcatDataset: rows of different shapes or dtypes in one batch: {', '.join(map(shown, parts))}")
