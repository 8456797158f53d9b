"""Attention."""
from __future__ import annotations

from typing import Any

from ntgrad.codegen.ir import ArgumentError, ShapeError
from ntgrad.graph import Operand, behaving, checked, text
from ntgrad.nn.attention import added, attended
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
  q, k, v = [x.named().unsqueeze(1) if one else x.named() for x in (query, key, value)]
  steps, n = q.shape[:2]
  attn, padding = [None if m is None else added(_HEADS, what, m, q)
                   for what, m in (("attn_mask", attn_mask), ("key_padding_mask", key_padding_mask))]
  mask = _added(attn, padding, n, heads, steps, k.shape[0])
  weights = _weights(e, in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight, use_separate_proj_weight)
  q, k, v = [linear(x, w, b) for x, w, b in zip(
    (q, k, v), weights, [None] * 3 if in_proj_bias is None else in_proj_bias.split(e))]
  if bias_k is not None and bias_v is not None:
    if static_k is not None or static_v is not None: raise ArgumentError(f"{_HEADS}: bias_k with static_k or static_v")
    k, v = [x.cat(b.reshape(1, 1, e).expand(1, n, e), dim=0) for x, b in ((k, bias_k), (v, bias_v))]
  q, k, v = [x.reshape(x.shape[0], n, heads, e // heads).permute(1, 2, 0, 3) for x in (q, k, v)]   # (n, heads, steps, ..)
  k, v = _static("static_k", static_k, k), _static("static_v", static_v, v)
  x, seen = attended(q, k, v, mask, dropout_p if training else 0.0, add_zero_attn, need_weights,
                     average_attn_weights)
  if one and seen is not None: seen = seen.squeeze(0)
  x = linear(x.permute(2, 0, 1, 3).reshape(steps, n, e), out_proj_weight, out_proj_bias)
  return x.squeeze(1) if one else x, seen


def _added(attn: Any, padding: Any, n: int, heads: int, steps: int, keys: int) -> Any:
  """Both masks in one: (n or 1, heads or 1, steps or 1, keys)."""
  if attn is not None:
    if attn.shape not in ((steps, keys), (n * heads, steps, keys)):
      raise ShapeError(f"{_HEADS}: attn_mask of shape {text(attn)}; it takes {(steps, keys)} or {(n * heads, steps, keys)}")
    attn = attn.reshape(*((1, 1) if attn.ndim == 2 else (n, heads)), steps, keys)
  if padding is None: return attn
  if padding.shape != (n, keys) and (n != 1 or padding.shape != (keys,)):
    raise ShapeError(f"{_HEADS}: key_padding_mask of shape {text(padding)}; it takes {(n, keys)}")
  padding = padding.reshape(n, 1, 1, keys)
  return padding if attn is None else attn + padding


def _weights(e: int, packed: Any, q: Any, k: Any, v: Any, separate: bool) -> Any:
  if separate:
    if q is None or k is None or v is None:
      raise ArgumentError(f"{_HEADS}: use_separate_proj_weight takes q_proj_weight, k_proj_weight and v_proj_weight")
    return q, k, v
  if packed is None: raise ArgumentError(f"{_HEADS}: no in_proj_weight; give it, or use_separate_proj_weight=True")
  if packed.shape != (3 * e, e): raise ShapeError(f"{_HEADS}: in_proj_weight of shape {text(packed)}; it takes {(3 * e, e)}")
  return packed.split(e)


def _static(what: str, given: Any, x: Any) -> Any:
  """What stands for projected keys or values, where it is given."""
  if given is None: return x
  n, heads, _, size = x.shape
  if given.ndim != 3 or given.shape[0] != n * heads or given.shape[2] != size:
    raise ShapeError(f"{_HEADS}: {what} of shape {text(given)}; it takes ({n * heads}, steps, {size})")
  return given.reshape(n, heads, given.shape[1], size)


__all__ = ["multi_head_attention_forward", "scaled_dot_product_attention"]
