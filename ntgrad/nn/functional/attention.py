"""Attention."""
from __future__ import annotations

from typing import Any

from ntgrad.codegen.ir import ArgumentError, ShapeError
from ntgrad.graph import Operand, behaving, checked, text
from ntgrad.nn.attention import among_heads
from ntgrad.tensor import Tensor

from .products import linear


@checked
def scaled_dot_product_attention(query: Tensor, key: Operand, value: Operand, attn_mask: Operand | None = None,
                                 dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
                                 enable_gqa: bool = False) -> Tensor:
  """softmax(q kᵀ * scale + mask) v; a bool mask keeps where it is true. ``dropout_p`` drops weights whether in training or not.
  Raises ShapeError, ArgumentError (``Tensor.scaled_dot_product_attention``)."""
  with behaving(dropout_p != 0):
    return query.scaled_dot_product_attention(key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


_HEADS = "multi_head_attention_forward"


@checked
def multi_head_attention_forward(
  query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int, in_proj_weight: Tensor | None,
  in_proj_bias: Tensor | None, bias_k: Tensor | None, bias_v: Tensor | None, add_zero_attn: bool, dropout_p: float,
  out_proj_weight: Tensor, out_proj_bias: Tensor | None, training: bool = True, key_padding_mask: Tensor | None = None,
  need_weights: bool = True, attn_mask: Tensor | None = None, use_separate_proj_weight: bool = False,
  q_proj_weight: Tensor | None = None, k_proj_weight: Tensor | None = None, v_proj_weight: Tensor | None = None,
  static_k: Tensor | None = None, static_v: Tensor | None = None, average_attn_weights: bool = True,
  is_causal: bool = False
) -> tuple[Tensor, Tensor | None]:
  """What ``nn.MultiheadAttention`` computes of (steps, n, features), or (steps, features), with its weights as arguments: the
  result, and with ``need_weights`` how much of each key.

  A bool mask is True where not to look. ``is_causal`` says of ``attn_mask`` that it is causal, and needs one. ``static_k`` and
  ``static_v`` (n * heads, steps, features / heads) stand for projected keys and values. Raises ShapeError, DTypeError,
  ArgumentError.
  """
  one = query.ndim == 2
  if query.ndim not in (2, 3) or not key.ndim == value.ndim == query.ndim or key.shape[:-1] != value.shape[:-1] or (
      not one and query.shape[1] != key.shape[1]):
    raise ShapeError(f"{_HEADS}: query {text(query)}, key {text(key)} and value {text(value)}; give (steps, n, features) with "
                     "one n, key and value of as many steps, or (steps, features) each")
  e, heads = query.shape[-1], num_heads
  if e != embed_dim_to_check: raise ShapeError(f"{_HEADS}: query {text(query)} with embed_dim_to_check {embed_dim_to_check}")
  if heads < 1 or e % heads: raise ArgumentError(f"{_HEADS}: {e} features cannot be divided into num_heads {heads}")
  if is_causal and attn_mask is None: raise ArgumentError(f"{_HEADS}: is_causal without attn_mask; give the mask too")
  if (bias_k is None) is not (bias_v is None): raise ArgumentError(f"{_HEADS}: bias_k and bias_v go together; give both")
  if bias_k is not None and (static_k is not None or static_v is not None):
    raise ArgumentError(f"{_HEADS}: bias_k with static_k or static_v")
  parts = [x.named().unsqueeze(0) if one else x.named().transpose(0, 1) for x in (query, key, value)]
  weights = _weights(e, in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight, use_separate_proj_weight)
  x, seen = among_heads(_HEADS, parts, query is key and key is value, weights, in_proj_bias, heads, (bias_k, bias_v),
                        (static_k, static_v), attn_mask, key_padding_mask, dropout_p if training else 0.0, add_zero_attn,
                        need_weights, average_attn_weights)
  x = linear(x, out_proj_weight, out_proj_bias)
  if one: return x.squeeze(0), None if seen is None else seen.squeeze(0)
  return x.transpose(0, 1), seen


def _weights(e: int, packed: Any, q: Any, k: Any, v: Any, separate: bool) -> Any:
  if separate:
    if q is None or k is None or v is None:
      raise ArgumentError(f"{_HEADS}: use_separate_proj_weight takes q_proj_weight, k_proj_weight and v_proj_weight")
    return q, k, v
  if packed is None: raise ArgumentError(f"{_HEADS}: no in_proj_weight; give it, or use_separate_proj_weight=True")
  if packed.shape != (3 * e, e): raise ShapeError(f"{_HEADS}: in_proj_weight of shape {text(packed)}; it takes {(3 * e, e)}")
  return packed


__all__ = ["multi_head_attention_forward", "scaled_dot_product_attention"]
