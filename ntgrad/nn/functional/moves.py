"""Elements moved, looked up and resampled: padding, rows of a table, one-hot, other sizes."""
from __future__ import annotations

import math
from collections.abc import Sequence

from ntgrad.codegen.ir import ArgumentError, dtypes
from ntgrad.graph import Ints, Operand, checked
from ntgrad.nn.common import one_of
from ntgrad.nn.embedding import bags, looked_up, row_of_nothing
from ntgrad.tensor import Tensor
from ntgrad.tensor.convolution import each

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


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None,
              norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:
  """Rows of a table: ints (..), weight (rows, features) -> (.., features).

  The row ``padding_idx`` gets no gradient; rows longer than ``max_norm`` are shortened in the weight itself;
  ``scale_grad_by_freq`` divides a row's gradient by how often it is used. ``sparse`` has no effect: gradients are dense. Raises
  DTypeError, ShapeError, ArgumentError.
  """
  row = row_of_nothing("embedding", weight.shape, padding_idx)
  return looked_up("embedding", input, weight, row, max_norm, norm_type, scale_grad_by_freq)


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
  one_of(name, "mode", mode, "sum", "mean", "max")
  if mode == "max" and scale_grad_by_freq: raise ArgumentError(f"{name}: scale_grad_by_freq in mode 'max'; take 'sum' or 'mean'")
  row = row_of_nothing(name, weight.shape, padding_idx)
  return bags(name, input, weight, offsets, mode, per_sample_weights, include_last_offset, row, max_norm, norm_type,
              scale_grad_by_freq)


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
    scales = each("interpolate", "scale_factor", scale_factor, input.ndim - 2)
    if not all(math.isfinite(f) for f in scales): raise ArgumentError(f"interpolate: scale_factor {scales}; it must be finite")
    size, scale_factor = tuple(int(s * f) for s, f in zip(input.shape[2:], scales)), None
  return input.interpolate(size, scale_factor, mode, align_corners, antialias)


__all__ = ["embedding", "embedding_bag", "interpolate", "one_hot", "pad"]

globals().update({name: checked(globals()[name]) for name in __all__})
