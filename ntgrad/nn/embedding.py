"""Rows of a table by index."""
from __future__ import annotations

import math
from typing import Any

from ntgrad.checks import checked
from ntgrad.codegen.dtype import dtypes
from ntgrad.codegen.errors import ArgumentError, DTypeError, ShapeError
from ntgrad.nn.common import size
from ntgrad.nn.module import Module, placed
from ntgrad.tensor import Tensor


class _Table(Module):
  weight: Tensor
  padding_idx: int | None

  def _row(self, padding_idx: int | None, n: int) -> int | None:
    """The number of the row that stands for nothing, from 0. Raises ArgumentError."""
    if padding_idx is None: return None
    if not -n <= padding_idx < n:
      raise ArgumentError(f"nn.{type(self).__name__}: padding_idx is {padding_idx}, expected {-n} to {n - 1}, a row of {n}")
    return padding_idx % n

  def _cleared(self, weight: Tensor) -> Tensor:
    """A table whose row ``padding_idx`` is zeros."""
    if self.padding_idx is None: return weight
    rows = Tensor.arange(weight.shape[0]).unsqueeze(1)
    return (rows != self.padding_idx).where(weight.detach(), 0).requires_grad_()

  def _rows(self, idx: Tensor) -> Tensor:
    """``weight[idx]``, through which the row ``padding_idx`` gets no gradient."""
    if not dtypes.is_int(idx.dtype):
      raise DTypeError(f"nn.{type(self).__name__}: index of {idx.dtype.name}, expected an integer dtype; use idx.cast('int32')")
    out = self.weight[idx]
    if self.padding_idx is None: return out
    return (idx != self.padding_idx).unsqueeze(-1).where(out, out.detach())


@checked
@placed
class Embedding(_Table):
  """Rows of a table: int ``(..) -> (.., embed_size)``. ``weight`` is (vocab_size, embed_size), Glorot uniform.

  The row ``padding_idx`` begins as zeros and gets no gradient.
  """
  _said = ("*vocab_size", "*embed_size", "padding_idx")

  def __init__(self, vocab_size: int, embed_size: int, padding_idx: int | None = None):
    self.vocab_size, self.embed_size = size("Embedding", "vocab_size", vocab_size), size("Embedding", "embed_size", embed_size)
    self.padding_idx = self._row(padding_idx, vocab_size)
    bound = math.sqrt(6 / (vocab_size + embed_size))
    self.weight = self._cleared(Tensor.uniform(vocab_size, embed_size, low=-bound, high=bound, requires_grad=True))

  def __call__(self, idx: Tensor) -> Tensor:
    """``(..) -> (.., embed_size)``, as ``weight[idx]``. Raises DTypeError for an index that is not an integer."""
    return self._rows(idx)

  def extra_repr(self) -> str:
    """Sizes, and ``padding_idx`` where there is one."""
    said = f"{self.vocab_size}, {self.embed_size}"
    return said if self.padding_idx is None else f"{said}, padding_idx={self.padding_idx}"


@checked
@placed
class EmbeddingBag(_Table):
  """The sum, mean or greatest of several rows of a table: int ``(n, k) -> (n, embedding_dim)``, a bag a row.

  ``weight`` is (num_embeddings, embedding_dim), normal with variance 1. Indices that are ``padding_idx`` do not count.
  """
  _said = ("*num_embeddings", "*embedding_dim", "mode", "padding_idx")

  def __init__(self, num_embeddings: int, embedding_dim: int, mode: str = "mean", padding_idx: int | None = None):
    size("EmbeddingBag", "num_embeddings", num_embeddings)
    size("EmbeddingBag", "embedding_dim", embedding_dim)
    if mode not in ("sum", "mean", "max"): raise ArgumentError(f"nn.EmbeddingBag: mode {mode!r}; it takes 'sum', 'mean' or 'max'")
    self.num_embeddings, self.embedding_dim, self.mode = num_embeddings, embedding_dim, mode
    self.padding_idx = self._row(padding_idx, num_embeddings)
    self.weight = self._cleared(Tensor.randn(num_embeddings, embedding_dim, requires_grad=True))

  def __call__(self, idx: Tensor, per_sample_weights: Tensor | None = None) -> Tensor:
    """``(n, k) -> (n, embedding_dim)``; with a weight for each index, of its shape, in mode "sum". A bag without indices gives
    zeros. Raises ShapeError, DTypeError, ArgumentError."""
    if idx.ndim != 2: raise ShapeError(f"nn.EmbeddingBag: index of shape {idx.shape}, expected (n, k)")
    if per_sample_weights is not None and (self.mode != "sum" or per_sample_weights.shape != idx.shape):
      raise ArgumentError(f"nn.EmbeddingBag: per_sample_weights of shape {per_sample_weights.shape} in mode {self.mode!r} for an "
                          f"index of shape {idx.shape}; they are for mode 'sum', and of the index's shape")
    rows: Any = self._rows(idx)
    if per_sample_weights is not None: rows = rows * per_sample_weights.unsqueeze(-1)
    counts: Any = float(idx.shape[1])
    if self.padding_idx is not None:
      used = (idx != self.padding_idx).unsqueeze(-1)
      counts = used.sum(1).cast(rows.dtype)
      rows = used.where(rows, -math.inf if self.mode == "max" else 0)
    if not idx.shape[1]: return rows.sum(1)
    if self.mode == "max":
      out = rows.max(1)
      return out if self.padding_idx is None else (counts > 0).where(out, 0)
    if self.mode == "sum": return rows.sum(1)
    return rows.sum(1) / (counts if self.padding_idx is None else counts.maximum(1))


__all__ = ["Embedding", "EmbeddingBag"]
