"""Scaled dot product attention."""
from __future__ import annotations

import math
from typing import Any, Self

from ntgrad.codegen.ir import ArgumentError, BinaryOps, ShapeError, acc_dtype, as_float, dtypes
from ntgrad.core import real_number
from ntgrad.graph import Operand, checked, fit, merged, nodes as graph, one_width, text

from .products import Products
from .random import Random

_NAME = "scaled_dot_product_attention"


@checked
class Attention(Products, Random):
  """Attention."""
  __slots__ = ()

  def scaled_dot_product_attention(self, key: Operand, value: Operand, attn_mask: Operand | None = None, dropout_p: float = 0.0,
                                   is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False) -> Self:
    """softmax(q kᵀ * scale + mask) v, with a scale of 1 / sqrt(d) unless given, for queries (.., l, d), keys (.., s, d) and
    values (.., s, e): (.., l, e).

    A bool mask keeps where it is true; one of floats is added. A query that no key is left for gives zeros, as in PyTorch from
    2.5 on. ``is_causal`` lets query i see the keys 0 to i, also where l and s differ. ``enable_gqa``: queries (.., h, l, d) with
    keys and values of fewer heads, each of which serves h / heads queries that follow each other, without being copied.
    ``dropout_p`` drops weights in training only (``Tensor.train``). Raises ShapeError, ArgumentError."""
    one_width(_NAME, self, key, value)
    if not self._names is key._names is value._names is None:
      return self._attention_named(key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if is_causal and attn_mask is not None: raise ArgumentError(f"{_NAME}: is_causal with attn_mask; give one of them")
    if enable_gqa: return self._attention_grouped(key, value, attn_mask, dropout_p, is_causal, scale)
    return self._attention_weights(key, attn_mask, is_causal, scale).dropout(dropout_p).dot(value)

  def _attention_weights(self, key: Any, mask: Any, is_causal: bool = False, scale: float | None = None) -> Self:
    """How much of each key a query takes: what all attention, with weights and without, is made of. A query that no key is left
    for takes nothing, and has gradients of 0."""
    if scale is None: scale = 1 / math.sqrt(self.shape[-1] or 1) if self.ndim else 1.0
    products: Any = self.dot(key.transpose(-2, -1))
    dtype = as_float(products.dtype)   # which might not hold the scale
    scores = (products.cast(acc_dtype(dtype)) * real_number(_NAME, "scale", scale)).cast(dtype)
    if is_causal:
      # every query sees key 0
      return type(self).ones(*scores.shape[-2:], dtype=dtypes.bool).tril().where(scores, -math.inf).softmax(-1)
    if mask is None: return scores.softmax(-1)
    masked = mask.where(scores, -math.inf) if mask.dtype is dtypes.bool else scores + mask.cast(scores.dtype)
    u, a, out = masked._rows(_NAME, -1)
    top = graph.detach(graph.reduce(BinaryOps.MAX, u, (a,)))
    none = graph.eq(top, -math.inf)
    e = graph.exp(u - graph.expand(graph.where(none, 0.0, top), u.shape))
    return masked._wrap(graph.cast(e / graph.expand(graph.where(none, 1.0, graph.total(e, (a,))), e.shape), out))

  def _attention_grouped(self, key: Any, value: Any, mask: Any, dropout_p: float, is_causal: bool, scale: float | None) -> Self:
    """Attention in which each head of the keys and values serves several heads of queries: these become a dim of their own."""
    if min(self.ndim, key.ndim, value.ndim) < 3:
      raise ShapeError(f"{_NAME}: enable_gqa with shapes {text(self)}, {text(key)} and {text(value)}; "
                       "give (.., heads, length, d)")
    h, n = self.shape[-3], key.shape[-3]
    if value.shape[-3] != n or not n or h % n:
      raise ShapeError(f"{_NAME}: {h} heads of queries with {n} of keys and {value.shape[-3]} of values; "
                       "keys and values must have as many, and queries a multiple of them")
    if mask is not None and mask.ndim > 2:
      if mask.shape[-3] not in (1, h): raise ShapeError(f"{_NAME}: a mask of shape {text(mask)} for {h} heads of queries")
      mask = mask.reshape(*mask.shape[:-3], *((1, 1) if mask.shape[-3] == 1 else (n, h // n)), *mask.shape[-2:])
    out = self.reshape(*self.shape[:-3], n, h // n, *self.shape[-2:]).scaled_dot_product_attention(
      key.unsqueeze(-3), value.unsqueeze(-3), mask, dropout_p, is_causal, scale)
    return out.reshape(*out.shape[:-4], h, *out.shape[-2:])

  def _attention_named(self, key: Any, value: Any, mask: Any, dropout_p: float, is_causal: bool, scale: float | None,
                       grouped: bool) -> Self:
    """Attention of tensors of which some have names: the result has the queries' rows and the values' columns. Keys may have
    the name of the queries: they are summed in the end."""
    tensors = self, key, value
    n = max([t.ndim for t in tensors])
    ends = (n - 2, n + 1), (n, n + 1), (n, n - 1)   # places n and n + 1 are summed: the keys, and what queries and keys have
    places = [(*range(n - t.ndim, n - 2), *end) for t, end in zip(tensors, ends)]
    called = None
    if min([t.ndim for t in tensors]) > 1:
      if not grouped: fit(_NAME, tensors, places, n)
      called = merged(_NAME, tensors, places, n)
    return self.named().scaled_dot_product_attention(
      key.named(), value.named(), None if mask is None else mask.named(), dropout_p, is_causal, scale, grouped)._called(called)
