"""Sequences of different lengths in one tensor, with PyTorch's names: padded, or packed as recurrent layers take them."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ntgrad.codegen.ir import ArgumentError, ShapeError, shown
from ntgrad.compat.public import show
from ntgrad.graph import checked, of_kind, text
from ntgrad.tensor import Tensor

__all__ = ["PackedSequence", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence", "pad_sequence", "unpack_sequence",
           "unpad_sequence"]


class _Packed(NamedTuple):
  data: Tensor
  batch_sizes: Tensor
  sorted_indices: Tensor | None
  unsorted_indices: Tensor | None


class PackedSequence(_Packed):
  """Sequences of different lengths, longest first: ``data`` (all elements, ..) has the first step of all, then the second step of
  those that have one, and so on; ``batch_sizes`` says how many sequences have each step. ``sorted_indices`` are the places that
  the sequences had before they were sorted, None where they were not, ``unsorted_indices`` the other way round.
  :func:`pack_padded_sequence` and :func:`pack_sequence` make them."""
  _known: tuple[list[int], list[int] | None] | None = None   # batch_sizes and sorted_indices as numbers

  def __new__(cls, data: Any, batch_sizes: Any = None, sorted_indices: Any = None,
              unsorted_indices: Any = None) -> PackedSequence:
    if batch_sizes is None: data, batch_sizes = data
    if sorted_indices is not None and unsorted_indices is None:
      unsorted_indices = _ints(np.argsort(sorted_indices.numpy()), sorted_indices.device)
    return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

  @property
  def is_cuda(self) -> bool:
    """Whether the data are on a GPU."""
    return bool(self.data.is_cuda)

  def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
    """With the data as ``data.to(..)`` gives them, and the rest on their device."""
    return _packed(self.data.to(*args, **kwargs), *self._numbers())

  def _numbers(self) -> tuple[list[int], list[int] | None]:
    """Batch sizes and sorted indices."""
    return self._known or (self.batch_sizes.tolist(), None if self.sorted_indices is None else self.sorted_indices.tolist())
  def _layout(self) -> tuple[Any, Any]:
    """In the order before sequences were sorted: the place of each among the sorted, which steps it has (steps, n)."""
    sizes, order = self._numbers()
    at = np.arange(sizes[0]) if order is None else np.argsort(order)
    return at, at < np.array(sizes)[:, None]
  def _with(self, padded: Tensor) -> PackedSequence:
    """Other sequences of these lengths, padded (steps, n, ..), in the order before they were sorted."""
    return _from_padded(padded, *self._numbers())


def _ints(values: Any, device: str) -> Tensor: return Tensor(np.asarray(values, np.int64), device=device)


def _packed(data: Tensor, sizes: list[int], order: list[int] | None) -> PackedSequence:
  places = [None, None] if order is None else [_ints(p, data.device) for p in (order, np.argsort(order))]
  out = PackedSequence(data, _ints(sizes, data.device), *places)
  out._known = sizes, order
  return out


def _from_padded(padded: Tensor, sizes: list[int], order: list[int] | None) -> PackedSequence:
  places = np.array(order or range(sizes[0]))
  rows = np.concatenate([t * sizes[0] + places[:k] for t, k in enumerate(sizes)])
  return _packed(padded.flatten(0, 1)[_ints(rows, padded.device)], sizes, order)


def _listed(name: str, lengths: Any, n: int) -> list[int]:
  if isinstance(lengths, Tensor): of_kind("iu", name, "lengths", lengths, "they must be ints")
  found = [int(k) for k in (lengths.tolist() if hasattr(lengths, "tolist") else lengths)]
  if len(found) != n: raise ShapeError(f"{name}: {len(found)} lengths for {n} sequences; give one for each")
  if wrong := [k for k in found if k <= 0]: raise ArgumentError(f"{name}: a length of {wrong[0]}; each must be at least 1")
  return found


@checked
def pack_padded_sequence(input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True) -> PackedSequence:
  """Pack padded sequences (steps, n, ..), or (n, steps, ..) with ``batch_first``: of each as many steps as ``lengths`` says, ints
  or a tensor of ints. With ``enforce_sorted`` they must be sorted, longest first; without it they are sorted, and
  :func:`pad_packed_sequence` gives them back in their order. Raises ShapeError, DTypeError, ArgumentError."""
  name = "pack_padded_sequence"
  if input.ndim < 2:
    raise ShapeError(f"{name}: input of shape {text(input)}, expected {'(n, steps, ..)' if batch_first else '(steps, n, ..)'}")
  x: Any = input.transpose(0, 1) if batch_first else input
  found = _listed(name, lengths, x.shape[1])
  if not found: raise ShapeError(f"{name}: input of shape {text(input)} has no sequences, expected at least one")
  if max(found) > x.shape[0]: raise ArgumentError(f"{name}: a length of {max(found)}, and the input has {x.shape[0]} steps")
  order = None if enforce_sorted else [int(i) for i in np.argsort(-np.array(found), kind="stable")]
  if enforce_sorted and found != sorted(found, reverse=True):
    raise ArgumentError(f"{name}: lengths {shown(found)} are not sorted, longest first; pass enforce_sorted=False to have them "
                        "sorted here")
  sizes = [int(k) for k in np.sum(np.array(found) > np.arange(max(found))[:, None], axis=1)]
  return _from_padded(x, sizes, order)


@checked
def pad_packed_sequence(sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0,
                        total_length: int | None = None) -> tuple[Tensor, Tensor]:
  """The padded sequences (steps, n, ..), or (n, steps, ..) with ``batch_first``, in the order before they were sorted, and their
  lengths, int64. ``padding_value`` stands behind each one's end, up to ``total_length``. Raises ArgumentError for less."""
  at, there = sequence._layout()
  steps, n = there.shape
  if total_length is not None and total_length < steps:
    raise ArgumentError(f"pad_packed_sequence: total_length is {total_length}, and the longest sequence has {steps} steps")
  sizes, data = there.sum(1, keepdims=True), sequence.data
  rows = np.where(there, np.cumsum(sizes)[:, None] - sizes + at, 0)
  out: Any = data[_ints(rows.reshape(-1), data.device)].reshape(steps, n, *data.shape[1:])
  if not there.all():
    out = Tensor(there.reshape(steps, n, *[1] * (data.ndim - 1)), device=data.device).where(
      out, Tensor(padding_value, dtype=data.dtype, device=data.device))
  if total_length is not None: out = out.pad((*[0, 0] * data.ndim, 0, total_length - steps), value=padding_value)
  return out.transpose(0, 1) if batch_first else out, _ints(there.sum(0), data.device)


@checked
def pad_sequence(sequences: Iterable[Tensor], batch_first: bool = False, padding_value: float = 0.0,
                 padding_side: str = "right") -> Tensor:
  """Sequences (steps, ..) as one tensor (most steps, n, ..), or (n, most steps, ..) with ``batch_first``: ``padding_value``
  stands behind each one's end, or before its begin with ``padding_side="left"``. Raises ArgumentError, ShapeError."""
  name, xs = "pad_sequence", list(sequences)
  if padding_side not in ("right", "left"):
    raise ArgumentError(f"{name}: padding_side {shown(padding_side)}; it takes 'right' or 'left'")
  if not xs: raise ArgumentError(f"{name}: no sequences; give at least one")
  for x in xs:
    if not isinstance(x, Tensor): raise ArgumentError(f"{name}: {shown(x)} is no Tensor; it takes sequences (steps, ..)")
    if not x.ndim or x.shape[1:] != xs[0].shape[1:]:
      raise ShapeError(f"{name}: sequences of shapes {text(xs[0])} and {text(x)}; they may differ in their first dimension only")
  most = max([x.shape[0] for x in xs])
  ends = [(0, most - x.shape[0])[::-1 if padding_side == "left" else 1] for x in xs]
  return Tensor.stack([x.pad((*[0, 0] * (x.ndim - 1), *end), value=padding_value) for x, end in zip(xs, ends)],
                      dim=0 if batch_first else 1)


@checked
def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
  """:func:`pack_padded_sequence` of sequences (steps, ..). Raises as that and :func:`pad_sequence`."""
  return pack_padded_sequence(pad_sequence(sequences), [x.shape[0] for x in sequences], enforce_sorted=enforce_sorted)


@checked
def unpad_sequence(padded_sequences: Tensor, lengths: Any, batch_first: bool = False) -> list[Tensor]:
  """Sequences without their padding, taken as :func:`pack_padded_sequence` takes them. Raises as that."""
  x: Any = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
  return [x[i, :k] for i, k in enumerate(_listed("unpad_sequence", lengths, x.shape[0]))]


@checked
def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
  """The sequences (steps, ..) that were packed, in the order before they were sorted."""
  return unpad_sequence(*pad_packed_sequence(packed_sequences, batch_first=True), batch_first=True)


show(__name__)
