"""Rows of a table by index."""
from __future__ import annotations

import math
from typing import Any

from ntgrad.checks import checked
from ntgrad.codegen.dtype import dtypes
from ntgrad.codegen.errors import ArgumentError, DTypeError, ShapeError
from ntgrad.core import no_grad
from ntgrad.nn.common import size
from ntgrad.nn.module import Module, placed
from ntgrad.tensor import Tensor


class _Table(Module):
  """A table of rows, and what is asked of those that are used."""
  weight: Tensor
  padding_idx: int | None
  max_norm: float | None
  norm_type: float
  scale_grad_by_freq: bool

  def _make(self, n: int, width: int, weight: Tensor, given: Tensor | None, padding_idx: int | None, max_norm: float | None,
            norm_type: float, scale_grad_by_freq: bool) -> None:
    name = f"nn.{type(self).__name__}"
    if padding_idx is not None and not -n <= padding_idx < n:
      raise ArgumentError(f"{name}: padding_idx is {padding_idx}, expected {-n} to {n - 1}, a row of {n}")
    self.padding_idx = None if padding_idx is None else padding_idx % n
    self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
    if given is not None and given.shape != (n, width):
      raise ShapeError(f"{name}: a table of shape {given.shape}, expected {(n, width)}")
    if given is not None: self.weight = given
    elif self.padding_idx is None: self.weight = weight
    else:   # that row begins as zeros
      rows = Tensor.arange(n).unsqueeze(1)
      self.weight = (rows != self.padding_idx).where(weight.detach(), 0).requires_grad_()

  def _rows(self, idx: Tensor) -> Tensor:
    """``weight[idx]``, through which the row ``padding_idx`` gets no gradient."""
    if not dtypes.is_int(idx.dtype):
      raise DTypeError(f"nn.{type(self).__name__}: index of {idx.dtype.name}, expected an integer dtype; use idx.cast('int32')")
    if self.max_norm is not None: self._shorten(idx, self.max_norm)
    out = self.weight[idx]
    if self.scale_grad_by_freq:
      often = self._counts(idx)[idx].unsqueeze(-1)
      out = out.detach() + (out - out.detach()) / often
    if self.padding_idx is None: return out
    return (idx != self.padding_idx).unsqueeze(-1).where(out, out.detach())

  def _counts(self, idx: Tensor) -> Tensor:
    """How often each row is used."""
    ones = Tensor.ones(idx.numel(), dtype=self.weight.dtype, device=idx.device)
    return Tensor.zeros(self.weight.shape[0], dtype=self.weight.dtype, device=idx.device).index_add(0, idx.flatten(), ones)

  @no_grad()
  def _shorten(self, idx: Tensor, most: float) -> None:
    """Rows that are used and longer than ``most`` are made so long, in the table."""
    w = self.weight.detach()
    length = w.norm(self.norm_type, 1)
    shorter = (self._counts(idx) > 0) & (length > most)
    self.weight.assign(shorter.where(most / (length + 1e-7), 1.0).unsqueeze(1) * w)


@checked
@placed
class Embedding(_Table):
  """Rows of a table: int ``(..) -> (.., embed_size)``. ``weight`` is (vocab_size, embed_size), Glorot uniform, or ``_weight``.

  The row ``padding_idx`` begins as zeros and gets no gradient. ``max_norm``: rows that are used are made that long at most (by
  the norm ``norm_type``), in the table. ``scale_grad_by_freq``: gradients are divided by how often an index stands in the call.
  ``sparse`` is taken as PyTorch has it, without effect.
  """
  _said = ("*vocab_size", "*embed_size", "padding_idx")

  def __init__(self, vocab_size: int, embed_size: int, padding_idx: int | None = None, max_norm: float | None = None,
               norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Tensor | None = None):
    self.vocab_size, self.embed_size = size("Embedding", "vocab_size", vocab_size), size("Embedding", "embed_size", embed_size)
    bound = math.sqrt(6 / (vocab_size + embed_size))
    made = Tensor.uniform(vocab_size, embed_size, low=-bound, high=bound, requires_grad=True)
    self._make(vocab_size, embed_size, made, _weight, padding_idx, max_norm, norm_type, scale_grad_by_freq)

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
  """The sum, mean or greatest of several rows of a table: int ``(n, k) -> (n, embedding_dim)``, a bag a row; or ``(k,)`` and the
  place in it where each bag begins, ``offsets`` (n,), with ``include_last_offset`` also where the last one ends.

  ``weight`` is (num_embeddings, embedding_dim), normal with variance 1. Indices that are ``padding_idx`` do not count. The other
  parameters are :class:`Embedding`'s.
  """
  _said = ("*num_embeddings", "*embedding_dim", "mode", "padding_idx")

  def __init__(self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0,
               scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, _weight: Tensor | None = None,
               include_last_offset: bool = False, padding_idx: int | None = None):
    size("EmbeddingBag", "num_embeddings", num_embeddings)
    size("EmbeddingBag", "embedding_dim", embedding_dim)
    if mode not in ("sum", "mean", "max"): raise ArgumentError(f"nn.EmbeddingBag: mode {mode!r}; it takes 'sum', 'mean' or 'max'")
    self.num_embeddings, self.embedding_dim, self.mode = num_embeddings, embedding_dim, mode
    self.include_last_offset = include_last_offset
    made = Tensor.randn(num_embeddings, embedding_dim, requires_grad=True)
    self._make(num_embeddings, embedding_dim, made, _weight, padding_idx, max_norm, norm_type, scale_grad_by_freq)

  def __call__(self, idx: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
    """``(n, k) -> (n, embedding_dim)``, or ``(k,)`` and ``offsets``; with a weight for each index, of its shape, in mode "sum". A
    bag without indices gives zeros. Raises ShapeError, DTypeError, ArgumentError."""
    if idx.ndim != (2 if offsets is None else 1) or offsets is not None and offsets.ndim != 1:
      had = "" if offsets is None else f" and offsets of shape {offsets.shape}"
      raise ShapeError(f"nn.EmbeddingBag: index of shape {idx.shape}{had}, expected (n, k), or (k,) with offsets (n,)")
    if per_sample_weights is not None and (self.mode != "sum" or per_sample_weights.shape != idx.shape):
      raise ArgumentError(f"nn.EmbeddingBag: per_sample_weights of shape {per_sample_weights.shape} in mode {self.mode!r} for an "
                          f"index of shape {idx.shape}; they are for mode 'sum', and of the index's shape")
    rows: Any = self._rows(idx)
    if per_sample_weights is not None: rows = rows * per_sample_weights.unsqueeze(-1)
    used = None if self.padding_idx is None else (idx != self.padding_idx).unsqueeze(-1)
    if offsets is not None: return self._bags(rows, used, offsets)
    counts: Any = float(idx.shape[1])
    if used is not None:
      counts = used.sum(1).cast(rows.dtype)
      rows = used.where(rows, -math.inf if self.mode == "max" else 0)
    if not idx.shape[1]: return rows.sum(1)
    if self.mode == "max":
      out = rows.max(1)
      return out if used is None else (counts > 0).where(out, 0)
    if self.mode == "sum": return rows.sum(1)
    return rows.sum(1) / (counts if used is None else counts.maximum(1))

  def _bags(self, rows: Any, used: Any, offsets: Tensor) -> Any:
    """Bags of rows (k, embedding_dim) that begin at ``offsets``."""
    n = offsets.shape[0] - self.include_last_offset
    bag = offsets[:n].searchsorted(Tensor.arange(rows.shape[0], dtype=offsets.dtype, device=rows.device), right=True) - 1
    one = rows[:, :1].detach() * 0 + 1
    if used is not None: one = used.where(one, 0)
    counts = Tensor.zeros(n, 1, dtype=rows.dtype, device=rows.device).index_add(0, bag, one)
    zeros = Tensor.zeros(n, rows.shape[1], dtype=rows.dtype, device=rows.device)
    if self.mode == "max":
      least = rows if used is None else used.where(rows, -math.inf)
      found = (zeros - math.inf).scatter_reduce(0, bag.unsqueeze(1).expand(rows.shape), least, "amax")
      return (counts > 0).where(found, 0)
    total = zeros.index_add(0, bag, rows if used is None else used.where(rows, 0))
    return total if self.mode == "sum" else total / counts.maximum(1)


__all__ = ["Embedding", "EmbeddingBag"]
