"""Rows of a table by index."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ntgrad.codegen.ir import ArgumentError, ShapeError
from ntgrad.graph import no_grad, of_kind, one_width, text
from ntgrad.tensor import Tensor

from .common import one_of, size
from .module import Module, placed


def row_of_nothing(name: str, shape: Sequence[int], padding_idx: int | None) -> int | None:
  """Which row of a table of a shape stands for nothing, from 0. Raises ArgumentError."""
  n = shape[0] if shape else 0
  if padding_idx is None or -n <= padding_idx < n: return None if padding_idx is None else padding_idx % n
  raise ArgumentError(f"{name}: padding_idx is {padding_idx}, expected {-n} to {n - 1}, a row of {n}")


def looked_up(name: str, index: Tensor, weight: Tensor, padding_idx: int | None, max_norm: float | None, norm_type: float,
              scale_grad_by_freq: bool) -> Tensor:
  """``weight[index]``; rows that are used and longer than ``max_norm`` are made so long in the weight before. The row
  ``padding_idx``, counted from 0, gets no gradient, with ``scale_grad_by_freq`` others one that is divided by how often they are
  used. Raises DTypeError, ShapeError."""
  of_kind("iu", name, "indices", index, "they must be ints, such as .cast('int32') gives")
  if weight.ndim != 2: raise ShapeError(f"{name}: a weight of shape {text(weight)}; it takes (rows, features)")
  times: Any = None
  if max_norm is not None or scale_grad_by_freq:
    flat = index.named().reshape(-1)
    # how often each row is used
    times = weight.new_zeros(weight.shape[0]).index_add(0, flat, weight.new_ones(flat.shape[0]))
  if max_norm is not None:
    with no_grad():
      w = weight.detach()
      length = w.norm(norm_type, 1)
      weight.assign(((times > 0) & (length > max_norm)).where(max_norm / (length + 1e-7), 1.0).unsqueeze(1) * w)
  out = weight[index]
  if scale_grad_by_freq:
    still = out.detach()
    out = still + (out - still) / times[index].unsqueeze(-1)   # what is added is 0, its gradient is not
  return out if padding_idx is None else (index != padding_idx).unsqueeze(-1).where(out, out.detach())


def bagged(rows: Any, nothing: Any, mode: str, offsets: Tensor | None = None, last: bool = False) -> Any:
  """Bags (bags, k, features) reduced over k; or rows (k, features) over what lies from one offset to the next, with ``last`` the
  last one being an end. Rows where ``nothing`` (None: nowhere) is true do not count; zeros for a bag without any."""
  if offsets is not None:
    n = offsets.shape[0] - last   # one bag too many, for what is in none
    bag = offsets.searchsorted(Tensor.arange(rows.shape[0], dtype=offsets.dtype, device=rows.device), right=True) - 1
    bag = (bag < 0 if nothing is None else (bag < 0) | nothing).where(n, bag)
    out = rows.new_zeros(n + 1, rows.shape[1])
    if mode == "max": return out.scatter_reduce(0, bag.unsqueeze(1).expand(rows.shape), rows, "amax", include_self=False)[:n]
    total = out.index_add(0, bag, rows)[:n]
    if mode == "sum": return total
    return total / rows.new_zeros(n + 1, 1).index_add(0, bag, rows.new_ones(rows.shape[0], 1))[:n].maximum(1)
  count: Any = float(rows.shape[1])
  if nothing is not None:
    used = nothing.logical_not().unsqueeze(-1)
    count = used.sum(1).cast(rows.dtype)
    rows = used.where(rows, -math.inf if mode == "max" else 0)
  if mode == "sum" or not rows.shape[1]: return rows.sum(1)
  if mode == "mean": return rows.sum(1) / (count if nothing is None else count.maximum(1))
  greatest = rows.max(axis=1)
  return greatest if nothing is None else (count > 0).where(greatest, 0)


def bags(name: str, index: Tensor, weight: Tensor, offsets: Any, mode: str, per_sample_weights: Any, include_last_offset: bool,
         padding_idx: int | None, *how: Any) -> Any:
  """See :func:`nn.functional.embedding_bag`; ``how`` is what is left of ``looked_up``'s arguments."""
  if index.ndim not in (1, 2) or (offsets is None) is (index.ndim == 1) or (offsets is not None and offsets.ndim != 1):
    raise ShapeError(f"{name}: indices of shape {text(index)} and {'no' if offsets is None else text(offsets)} offsets; give "
                     "(bags, k) without offsets, or (n,) with offsets (bags,)")
  if per_sample_weights is not None and (mode != "sum" or per_sample_weights.shape != index.shape):
    raise ArgumentError(f"{name}: per_sample_weights of shape {text(per_sample_weights)} in mode {mode!r} for indices of shape "
                        f"{text(index)}; they are for mode 'sum', and of the indices' shape")
  rows: Any = looked_up(name, index, weight, padding_idx, *how)
  one_width(name, weight, per_sample_weights)
  if per_sample_weights is not None: rows = rows * per_sample_weights.unsqueeze(-1)
  if offsets is not None and offsets.shape[0] < include_last_offset:
    raise ShapeError(f"{name}: no offsets, of which the last is an end; give one at least")
  return bagged(rows, None if padding_idx is None else index.named() == padding_idx, mode,
                None if offsets is None else offsets.named(), include_last_offset)


class _Table(Module):
  """A table of rows, and what is asked of those that are used."""
  def _make(self, n: int, width: int, given: Tensor | None, padding_idx: int | None, max_norm: float | None, norm_type: float,
            scale_grad_by_freq: bool) -> None:
    name = f"nn.{type(self).__name__}"
    self.padding_idx = row_of_nothing(name, (n, width), padding_idx)
    self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
    if given is None:
      given = Tensor.randn(n, width)
      if self.padding_idx is not None: given = (Tensor.arange(n).unsqueeze(1) != self.padding_idx).where(given, 0)
      given.requires_grad_()
    elif given.shape != (n, width): raise ShapeError(f"{name}: a table of shape {given.shape}, expected {(n, width)}")
    self.weight = given

  @property
  def _how(self) -> tuple[Any, ...]: return self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq


@placed
class Embedding(_Table):
  """Rows of a table: int ``(..) -> (.., embed_size)``. ``weight`` is (vocab_size, embed_size), normal with mean 0 and
  variance 1, or ``_weight``.

  The row ``padding_idx`` begins as zeros and gets no gradient. ``max_norm``: rows that are used are made that long at most (by
  the norm ``norm_type``), in the table. ``scale_grad_by_freq``: gradients are divided by how often an index stands in the call.
  ``sparse`` is taken as PyTorch has it, without effect."""
  _said = "*vocab_size *embed_size padding_idx"

  def __init__(self, vocab_size: int, embed_size: int, padding_idx: int | None = None, max_norm: float | None = None,
               norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Tensor | None = None):
    self.vocab_size, self.embed_size = size("Embedding", "vocab_size", vocab_size), size("Embedding", "embed_size", embed_size)
    self._make(vocab_size, embed_size, _weight, padding_idx, max_norm, norm_type, scale_grad_by_freq)

  def __call__(self, idx: Tensor) -> Tensor:
    """``(..) -> (.., embed_size)``, as ``weight[idx]``. Raises DTypeError for an index that is not an integer."""
    return looked_up("nn.Embedding", idx, self.weight, *self._how)

  def extra_repr(self) -> str:
    """Sizes, and ``padding_idx`` where there is one."""
    said = f"{self.vocab_size}, {self.embed_size}"
    return said if self.padding_idx is None else f"{said}, padding_idx={self.padding_idx}"


@placed
class EmbeddingBag(_Table):
  """The sum, mean or greatest of several rows of a table: int ``(n, k) -> (n, embedding_dim)``, a bag a row; or ``(k,)`` and the
  place in it where each bag begins, ``offsets`` (n,), with ``include_last_offset`` also where the last one ends.

  ``weight`` is (num_embeddings, embedding_dim), normal with variance 1. Indices that are ``padding_idx`` do not count. The other
  parameters are :class:`Embedding`'s."""
  _said = "*num_embeddings *embedding_dim mode padding_idx"

  def __init__(self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0,
               scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, _weight: Tensor | None = None,
               include_last_offset: bool = False, padding_idx: int | None = None):
    size("EmbeddingBag", "num_embeddings", num_embeddings)
    size("EmbeddingBag", "embedding_dim", embedding_dim)
    self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
    self.mode = one_of("nn.EmbeddingBag", "mode", mode, "sum", "mean", "max")
    self.include_last_offset = include_last_offset
    self._make(num_embeddings, embedding_dim, _weight, padding_idx, max_norm, norm_type, scale_grad_by_freq)

  def __call__(self, idx: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
    """``(n, k) -> (n, embedding_dim)``, or ``(k,)`` and ``offsets``; with a weight for each index, of its shape, in mode "sum". A
    bag without indices gives zeros. Raises ShapeError, DTypeError, ArgumentError."""
    return bags("nn.EmbeddingBag", idx, self.weight, offsets, self.mode, per_sample_weights, self.include_last_offset, *self._how)
