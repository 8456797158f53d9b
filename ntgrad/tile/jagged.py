"""Jagged tensors: rows of different lengths, one behind the other."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ntgrad.codegen.ir import ArgumentError, ShapeError, shown
from ntgrad.core import Base as Tensor


@dataclass(frozen=True, eq=False)
class Jagged:
  """An argument for ``Tensor(ndim, jagged_dim=d)``: a batch whose entries have different sizes along one dimension.

  ``values`` has the entries one behind the other along that dimension, without a batch dimension: for entries of (length, 64) it
  is (total, 64), and the jagged tensor is (batch, greatest length, 64) with ``dim`` 1. ``offsets`` are batch + 1 ints: where each
  entry begins, and the end. Elements behind an entry's end are outside the tensor: loads give ``other``, stores do nothing.
  Raises ShapeError and ArgumentError for offsets that do not fit.
  """
  values: Any
  offsets: Any
  dim: int = 1

  def __post_init__(self) -> None:
    values, dim = self.values, self.dim
    if not isinstance(getattr(values, "shape", None), Iterable) or not hasattr(values, "dtype"):
      raise ArgumentError(f"Jagged: values are {shown(values)}; they are a tensor or an array")
    if not isinstance(dim, int) or isinstance(dim, bool):
      raise ArgumentError(f"Jagged: dim is {shown(dim)}; it is a whole number")
    try: starts = self.starts
    except ValueError: starts = np.zeros(())  # rows of different lengths
    if starts.ndim != 1 or starts.dtype.kind not in "iu":
      raise ArgumentError(f"Jagged: offsets are {shown(self.offsets)}; they are a row of ints")
    if len(starts) < 2 or (np.diff(starts) < 0).any():
      raise ArgumentError(f"Jagged: offsets rise from 0, one more than there are entries, got {starts.tolist()}")
    if not 1 <= dim <= len(values.shape): raise ShapeError(f"Jagged: dim is between 1 and {len(values.shape)}, got {shown(dim)}")
    if starts[0] != 0 or starts[-1] != values.shape[dim - 1]:
      raise ShapeError(f"Jagged: offsets go from {starts[0]} to {starts[-1]}; the values have {values.shape[dim - 1]} along that "
                       "dimension")

  @property
  def starts(self) -> np.ndarray[Any, Any]:
    """The offsets on the host."""
    return np.asarray(self.offsets.numpy() if isinstance(self.offsets, Tensor) else self.offsets)
  @property
  def lengths(self) -> np.ndarray[Any, Any]:
    """The size of each entry along the jagged dimension."""
    return np.diff(self.starts)
  @property
  def shape(self) -> tuple[int, ...]:
    """(batch, …, greatest length, …)"""
    own = list(self.values.shape)
    own[self.dim - 1] = int(self.lengths.max(initial=0))
    return len(self.lengths), *map(int, own)
  @property
  def dtype(self) -> Any: return self.values.dtype


def of_entries(a: Any) -> tuple[Any, np.ndarray[Any, Any]]:
  """The values and offsets of a nested tensor of PyTorch with ``layout=torch.strided``: its memory, entries of the sizes that it
  says one behind the other. Raises ArgumentError where they differ in another dimension than their first, or lie otherwise."""
  sizes, strides, begins = (np.asarray(f(), np.int64) for f in (
    a._nested_tensor_size, a._nested_tensor_strides, a._nested_tensor_storage_offsets))
  if sizes.ndim != 2 or not sizes.size: raise ArgumentError("a nested tensor without entries, or of numbers, is no batch of rows")
  if (sizes[:, 1:] != sizes[0, 1:]).any():
    raise ArgumentError("the entries of a nested tensor differ in more than their first dimension, "
                        f"{tuple(sizes[0].tolist())} and others; make it with layout=torch.jagged")
  whole = [int(np.prod(sizes[0, d + 1:])) for d in range(sizes.shape[1])]
  counts = sizes.prod(1)
  if ((strides != whole) & (sizes > 1)).any() or (begins != np.cumsum(counts) - counts).any():
    raise ArgumentError("the entries of a nested tensor do not lie one behind the other; make it contiguous()")
  offsets = np.concatenate([[0], np.cumsum(sizes[:, 0])])
  return a.values().reshape((int(offsets[-1]), *sizes[0, 1:].tolist())), offsets
