"""Elements moved, looked up and resampled: padding, rows of a table, one-hot, other sizes."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ntgrad.codegen.ir import ArgumentError, ShapeError, dtypes
from ntgrad.graph import Ints, Operand, checked, of_kind, one_width, text
from ntgrad.nn.embedding import bagged, looked_up
from ntgrad.tensor import Tensor

# ---- padding


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | bool | None = None) -> Tensor:
  """More elements round the tensor, (before, after) from the last dim on; negative cuts off.

  ``mode`` is "constant" (``value``, or 0), "reflect", "replicate" or "circular". Raises ShapeError, ArgumentError.
  """
  if value is not None and mode != "constant":
    raise ArgumentError(f"pad: value {value} with mode {mode!r}; it is for mode 'constant'")
  return input.pad(tuple(pad), mode, 0.0 if value is None else value)


# ---- rows of a table
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
  """(..) ints -> (.., num_classes) int64: 1 at the index, 0 elsewhere. -1: as many classes as the greatest index needs, which is
  read for it. Raises DTypeError, ArgumentError; IndexOutOfRangeError for an index that is no class."""
  return tensor.one_hot(num_classes).cast(dtypes.int64)


def _looked_up(name: str, index: Tensor, weight: Tensor, padding_idx: int | None, *how: Any) -> tuple[Tensor, int | None]:
  """Rows of a table, and which one stands for nothing, from 0."""
  n = weight.shape[0] if weight.ndim else 0
  if padding_idx is not None and not -n <= padding_idx < n:
    raise ArgumentError(f"{name}: padding_idx {padding_idx}; it goes from {-n} to {n - 1}")
  of_kind("iu", name, "indices", index, "they must be ints")
  if weight.ndim != 2: raise ShapeError(f"{name}: a weight of shape {text(weight)}; it takes (rows, features)")
  row = None if padding_idx is None else padding_idx % n
  return looked_up(index, weight, row, *how), row


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None,
              norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:
  """Rows of a table: ints (..), weight (rows, features) -> (.., features).

  The row ``padding_idx`` gets no gradient; rows longer than ``max_norm`` are shortened in the weight itself;
  ``scale_grad_by_freq`` divides a row's gradient by how often it is used. ``sparse`` has no effect: gradients are dense. Raises
  DTypeError, ShapeError, ArgumentError.
  """
  return _looked_up("embedding", input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq)[0]


def embedding_bag(input: Tensor, weight: Tensor, offsets: Operand | None = None, max_norm: float | None = None,
                  norm_type: float = 2, scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
                  per_sample_weights: Operand | None = None, include_last_offset: bool = False,
                  padding_idx: int | None = None) -> Tensor:
  """The sum, mean or greatest of several rows of a table, a bag: ints (bags, k), or (n,) with the ``offsets`` (bags,) where each
  bag begins, weight (rows, features) -> (bags, features).

  A bag of nothing gives zeros; the row ``padding_idx`` does not count. ``per_sample_weights`` are for mode "sum". With
  ``include_last_offset`` the last offset is an end. What is left as in :func:`embedding`. Raises ShapeError, DTypeError,
  ArgumentError.
  """
  name = "embedding_bag"
  if mode not in ("sum", "mean", "max"): raise ArgumentError(f"{name}: mode {mode!r}; it takes 'sum', 'mean' or 'max'")
  if input.ndim not in (1, 2) or (offsets is None) is (input.ndim == 1) or (offsets is not None and offsets.ndim != 1):
    raise ShapeError(f"{name}: indices of shape {text(input)} and {'no' if offsets is None else text(offsets)} offsets; give "
                     "(bags, k) without offsets, or (n,) with offsets (bags,)")
  if per_sample_weights is not None and (mode != "sum" or per_sample_weights.shape != input.shape):
    raise ArgumentError(f"{name}: per_sample_weights of shape {text(per_sample_weights)} in mode {mode!r} for indices of shape "
                        f"{text(input)}; they are for mode 'sum', and of the indices' shape")
  if mode == "max" and scale_grad_by_freq: raise ArgumentError(f"{name}: scale_grad_by_freq in mode 'max'; take 'sum' or 'mean'")
  rows, row = _looked_up(name, input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq)
  one_width(name, weight, per_sample_weights)
  if per_sample_weights is not None: rows = rows * per_sample_weights.unsqueeze(-1)
  if offsets is not None and offsets.shape[0] < include_last_offset:
    raise ShapeError(f"{name}: no offsets, of which the last is an end; give one at least")
  return bagged(rows, None if row is None else input.named() == row, mode, None if offsets is None else offsets.named(),
                include_last_offset)


# ---- other sizes
def interpolate(input: Tensor, size: Ints | None = None, scale_factor: float | Sequence[float] | None = None,
                mode: str = "nearest", align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
                antialias: bool = False) -> Tensor:
  """Another size for the spatial dimensions: (n, c, *spatial) -> (n, c, *size), or scaled by ``scale_factor``.

  ``recompute_scale_factor`` takes the scale from the rounded sizes. Raises ShapeError, ArgumentError, DTypeError
  (``Tensor.interpolate``).
  """
  if recompute_scale_factor:
    if size is not None or scale_factor is None:
      raise ArgumentError(f"interpolate: recompute_scale_factor with size {size} and scale_factor {scale_factor}; it takes "
                          "scale_factor alone")
    n = input.ndim - 2
    scales = tuple(scale_factor) if isinstance(scale_factor, Sequence) else (scale_factor,) * n
    if len(scales) != n:
      raise ShapeError(f"interpolate: scale_factor {scales} for shape {text(input)}; give one number, or one for each spatial "
                       "dimension")
    if not all(math.isfinite(f) for f in scales): raise ArgumentError(f"interpolate: scale_factor {scales}; it must be finite")
    size, scale_factor = tuple(int(s * f) for s, f in zip(input.shape[2:], scales)), None
  return input.interpolate(size, scale_factor, mode, align_corners, antialias)


__all__ = ["embedding", "embedding_bag", "interpolate", "one_hot", "pad"]

globals().update({name: checked(globals()[name]) for name in __all__})
