"""Attention, and the layers of a transformer (https://arxiv.org/abs/1706.03762), with PyTorch's names of weights."""
from __future__ import annotations

import copy
import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from ntgrad.codegen.ir import ArgumentError, ShapeError, dtypes, shown
from ntgrad.graph import behaving, checked, of_kind, text
from ntgrad.tensor import Tensor

from .activations import activation_of
from .common import count, last, leaf, probability, size
from .containers import ModuleList
from .init import xavier_uniform_
from .layers import Dropout
from .linear import Linear
from .module import Module, placed
from .norms import LayerNorm


def _xavier(rows: int, columns: int) -> Tensor: return leaf(rows, columns, bound=math.sqrt(6 / (rows + columns)))


def added(name: str, what: str, mask: Tensor, like: Tensor) -> Tensor:
  """What a mask adds to scores: 0 or -inf of a bool one, which is True where not to look. Raises DTypeError."""
  of_kind("bf", name, what, mask, "it takes bool (True: not seen) or floats")
  return mask.where(Tensor(-math.inf, dtype=like.dtype, device=like.device), 0) if mask.dtype is dtypes.bool else mask


def attended(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout_p: float, zeros: bool, need_weights: bool,
             average: bool) -> tuple[Tensor, Tensor | None]:
  """What queries (n, heads, steps, features) find among keys and values, and how much of each key, for each head or on
  ``average``; ``zeros`` are one more key and value. A mask (.., keys) is added to the scores; keys behind it may be seen."""
  if zeros: k, v = [x.pad((0, 0, 0, 1)) for x in (k, v)]
  if mask is not None: mask = mask.pad((0, k.shape[2] - mask.shape[3]))
  if not need_weights:
    with behaving(dropout_p != 0): return q.scaled_dot_product_attention(k, v, mask, dropout_p), None
  weights = q._attention_weights(k, mask).dropout(dropout_p, True)
  return weights.dot(v), weights.mean(1) if average else weights


def among_heads(name: str, parts: Sequence[Tensor], same: bool, weights: Tensor | Sequence[Tensor], bias: Tensor | None,
                heads: int, more: Sequence[Tensor | None], known: Sequence[Tensor | None], attn: Tensor | None,
                padding: Tensor | None, *how: Any) -> tuple[Tensor, Tensor | None]:
  """Queries, keys and values (n, steps, features), each by its weight (all three by one product where they are the ``same``), in
  several heads: what the queries find, (n, steps, features), and how much of each key. ``more`` is one more key and value, (1, 1,
  features), ``known`` stands for keys and values that are projected already, ``how`` is what is left of ``attended``'s arguments.
  A mask is bool, True where not to look, or added to the scores. Raises ShapeError, DTypeError."""
  (n, steps, e), keys = parts[0].shape, parts[1].shape[1]
  if same and isinstance(weights, Tensor):
    out = parts[0].linear(weights.transpose(0, 1), bias)
    q, k, v = [out[:, :, i * e:(i + 1) * e] for i in range(3)]
  else:
    each = zip(parts, weights.split(e) if isinstance(weights, Tensor) else weights, [None] * 3 if bias is None else bias.split(e))
    q, k, v = [x.linear(w.transpose(0, 1), b) for x, w, b in each]
  k, v = [x if one is None else x.cat(one.reshape(1, 1, e).expand(n, 1, e), dim=1) for x, one in zip((k, v), more)]
  q, k, v = [t.unflatten(2, (heads, -1)).transpose(1, 2) for t in (q, k, v)]   # (n, heads, steps, features)
  for what, t in zip(("static_k", "static_v"), known):
    if t is not None and (t.ndim != 3 or t.shape[::2] != (n * heads, k.shape[3])):
      raise ShapeError(f"{name}: {what} of shape {text(t)}; it takes ({n * heads}, steps, {k.shape[3]})")
  k, v = [x if t is None else t.reshape(n, heads, t.shape[1], -1) for x, t in zip((k, v), known)]
  masks = list[tuple[str, Tensor]]()
  if attn is not None:
    if attn.shape not in (wanted := ((steps, keys), (n * heads, steps, keys))):
      raise ShapeError(f"{name}: attn_mask of shape {text(attn)}, expected {wanted[0]} or {wanted[1]}")
    masks.append(("attn_mask", attn.reshape(*((1, 1) if attn.ndim == 2 else (n, heads)), steps, keys)))
  if padding is not None:
    if padding.shape != (n, keys) and (n != 1 or padding.shape != (keys,)):
      raise ShapeError(f"{name}: key_padding_mask of shape {text(padding)}, expected {(n, keys)}")
    masks.append(("key_padding_mask", padding.reshape(n, 1, 1, keys)))
  total = functools.reduce(operator.add, [added(name, what, m, q) for what, m in masks]) if masks else None
  out, seen = attended(q, k, v, None if total is None else total.expand(*total.shape[:2], steps, keys), *how)
  return out.transpose(1, 2).flatten(2), seen


@placed
class MultiheadAttention(Module):
  """Attention in several heads at once: each compares queries with keys, and gives a mean of values.

  Queries, keys and values are ``(steps, n, features)``, with ``batch_first`` ``(n, steps, features)``, or one sample without n.
  ``in_proj_weight`` (3·embed_dim, embed_dim) makes all three of them; where keys or values have other features (``kdim``,
  ``vdim``) there are ``q_proj_weight``, ``k_proj_weight`` and ``v_proj_weight`` instead. ``add_bias_kv`` adds a learned step to
  keys and values, ``add_zero_attn`` one of zeros. Also called MultiHeadAttention."""
  _said = "embed_dim num_heads dropout batch_first"

  def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False,
               add_zero_attn: bool = False, kdim: int | None = None, vdim: int | None = None, batch_first: bool = False):
    name = "MultiheadAttention"
    self.embed_dim, self.num_heads = size(name, "embed_dim", embed_dim), size(name, "num_heads", num_heads)
    if embed_dim % num_heads: raise ArgumentError(f"nn.{name}: embed_dim {embed_dim} cannot be divided into {num_heads} heads")
    probability(f"nn.{name}", "dropout", dropout)
    self.kdim = embed_dim if kdim is None else size(name, "kdim", kdim)
    self.vdim = embed_dim if vdim is None else size(name, "vdim", vdim)
    self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn
    self.same = self.kdim == self.vdim == embed_dim
    if self.same: self.in_proj_weight = _xavier(3 * embed_dim, embed_dim)
    else:
      self.q_proj_weight = _xavier(embed_dim, embed_dim)
      self.k_proj_weight, self.v_proj_weight = _xavier(embed_dim, self.kdim), _xavier(embed_dim, self.vdim)
    self.in_proj_bias: Tensor | None = Tensor.zeros(3 * embed_dim).clone().requires_grad_() if bias else None
    self.out_proj = Linear(embed_dim, embed_dim, bias)
    if self.out_proj.bias is not None: self.out_proj.bias = Tensor.zeros(embed_dim).clone().requires_grad_()
    self.bias_k, self.bias_v = [Tensor.normal(1, 1, embed_dim, std=1 / math.sqrt(embed_dim), requires_grad=True)
                                if add_bias_kv else None for _ in "kv"]

  def __call__(self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None, need_weights: bool = True,
               attn_mask: Tensor | None = None, average_attn_weights: bool = True,
               is_causal: bool = False) -> tuple[Tensor, Tensor | None]:
    """What each query finds, of the queries' shape, and (``need_weights``) how much of each key: (n, queries, keys), the mean
    over heads, or (n, heads, queries, keys) without ``average_attn_weights``.

    A bool mask is True where not to look, a float mask is added to the scores; ``key_padding_mask`` is (n, keys), ``attn_mask``
    (queries, keys) or (n · heads, queries, keys). ``is_causal``: no query looks at later keys. Raises ShapeError, DTypeError."""
    one = query.ndim == 2
    parts = [self._batched(what, x, features, one) for what, x, features in (
      ("query", query, self.embed_dim), ("key", key, self.kdim), ("value", value, self.vdim))]
    if parts[0].shape[0] != parts[1].shape[0] or parts[1].shape[:2] != parts[2].shape[:2]:
      raise ShapeError(f"nn.MultiheadAttention: query {query.shape}, key {key.shape} and value {value.shape}; all need the "
                       "same n, key and value as many steps")
    weights = self.in_proj_weight if self.same else (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
    if is_causal and attn_mask is None:
      attn_mask = Tensor.ones(parts[0].shape[1], parts[1].shape[1], dtype=dtypes.bool, device=query.device).triu(1)
    dropout = self.dropout if self.dropout and self._trains("no weights are dropped") else 0.0
    out, seen = among_heads("nn.MultiheadAttention", parts, query is key and key is value, weights, self.in_proj_bias,
                            self.num_heads, (self.bias_k, self.bias_v), (None, None), attn_mask, key_padding_mask, dropout,
                            self.add_zero_attn, need_weights, average_attn_weights)
    out = self.out_proj(out)
    if one: return out.squeeze(0), None if seen is None else seen.squeeze(0)
    return (out if self.batch_first else out.transpose(0, 1)), seen

  def _batched(self, what: str, x: Tensor, features: int, one: bool) -> Tensor:
    """(n, steps, features)."""
    if x.ndim != (2 if one else 3):
      raise ShapeError(f"nn.MultiheadAttention: {what} of shape {x.shape}; query, key and value need 3 dimensions, or 2 each")
    last("MultiheadAttention", x, features, f"what a {what} has")
    x = x.named()
    return x.unsqueeze(0) if one else x if self.batch_first else x.transpose(0, 1)


MultiHeadAttention = MultiheadAttention


class _Layer(Module):
  _said = "d_model nhead dim_feedforward norm_first"
  _attentions: tuple[str, ...] = ("self_attn",)
  self_attn: MultiheadAttention
  multihead_attn: MultiheadAttention

  def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
               activation: str | Callable[..., Any] = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False,
               norm_first: bool = False, bias: bool = True):
    super().__init__()
    self.d_model, self.nhead, self.dim_feedforward = d_model, nhead, dim_feedforward
    self.batch_first, self.norm_first = batch_first, norm_first
    self.activation = activation_of(f"nn.{type(self).__name__}", activation)
    for part in self._attentions: setattr(self, part, MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first))
    self.linear1, self.dropout = Linear(d_model, dim_feedforward, bias), Dropout(dropout)
    self.linear2 = Linear(dim_feedforward, d_model, bias)
    for i in range(1, len(self._attentions) + 2):
      setattr(self, f"norm{i}", LayerNorm(d_model, layer_norm_eps, bias=bias))
      setattr(self, f"dropout{i}", Dropout(dropout))

  def _sublayer(self, x: Tensor, number: int, fn: Callable[[Tensor], Tensor]) -> Tensor:
    """x and what a function adds to it, normalised before or after."""
    norm, dropout = getattr(self, f"norm{number}"), getattr(self, f"dropout{number}")
    return x + dropout(fn(norm(x))) if self.norm_first else norm(x + dropout(fn(x)))

  def _feed(self, x: Tensor) -> Tensor: return self.linear2(self.dropout(self.activation(self.linear1(x))))


@placed
class TransformerEncoderLayer(_Layer):
  """Self-attention, then two linear layers, each added to its input: ``(steps, n, d_model) -> same``, with ``batch_first``
  ``(n, steps, d_model)``. ``norm_first`` normalises what goes into each part, else what comes out. ``activation`` is a name
  (relu, gelu, ..) or a function."""

  def __call__(self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
               is_causal: bool = False) -> Tensor:
    """The input's shape; masks as in :class:`MultiheadAttention`. Raises ShapeError."""
    last("TransformerEncoderLayer", src, self.d_model, "d_model")
    x = self._sublayer(src, 1, lambda y: self.self_attn(y, y, y, src_key_padding_mask, False, src_mask, is_causal=is_causal)[0])
    return self._sublayer(x, 2, self._feed)


@placed
class TransformerDecoderLayer(_Layer):
  """Self-attention, attention to what an encoder gave (``memory``), then two linear layers, each added to its input:
  ``(steps, n, d_model) -> same``. Arguments as in :class:`TransformerEncoderLayer`."""

  _attentions = "self_attn", "multihead_attn"

  def __call__(self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
               tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
               tgt_is_causal: bool = False, memory_is_causal: bool = False) -> Tensor:
    """The shape of ``tgt``; masks as in :class:`MultiheadAttention`. Raises ShapeError."""
    last("TransformerDecoderLayer", tgt, self.d_model, "d_model")
    x = self._sublayer(tgt, 1, lambda y: self.self_attn(y, y, y, tgt_key_padding_mask, False, tgt_mask,
                                                        is_causal=tgt_is_causal)[0])
    x = self._sublayer(x, 2, lambda y: self.multihead_attn(y, memory, memory, memory_key_padding_mask, False, memory_mask,
                                                           is_causal=memory_is_causal)[0])
    return self._sublayer(x, 3, self._feed)


def copies(name: str, layer: Any, n: int) -> ModuleList:
  """A layer n times, each with weights of its own, which begin with the same values."""
  if not callable(layer): raise ArgumentError(f"nn.{name}: {shown(layer)} is no layer")
  return ModuleList([copy.deepcopy(layer) for _ in range(count(name, "num_layers", n))])


@checked
class TransformerEncoder(Module):
  """Copies of an encoder layer, one after the other, then ``norm``. ``enable_nested_tensor`` and ``mask_check`` are taken as
  PyTorch has them, without effect."""

  def __init__(self, encoder_layer: Any, num_layers: int, norm: Any = None, enable_nested_tensor: bool = True,
               mask_check: bool = True):
    super().__init__()
    self.layers, self.num_layers, self.norm = copies("TransformerEncoder", encoder_layer, num_layers), num_layers, norm

  def __call__(self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
               is_causal: bool = False) -> Tensor:
    """The input's shape. Raises ShapeError."""
    for layer in self.layers: src = layer(src, mask, src_key_padding_mask, is_causal)
    return src if self.norm is None else self.norm(src)


@checked
class TransformerDecoder(Module):
  """Copies of a decoder layer, one after the other, then ``norm``."""

  def __init__(self, decoder_layer: Any, num_layers: int, norm: Any = None):
    super().__init__()
    self.layers, self.num_layers, self.norm = copies("TransformerDecoder", decoder_layer, num_layers), num_layers, norm

  def __call__(self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
               tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
               tgt_is_causal: bool = False, memory_is_causal: bool = False) -> Tensor:
    """The shape of ``tgt``. Raises ShapeError."""
    for layer in self.layers:
      tgt = layer(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal,
                  memory_is_causal)
    return tgt if self.norm is None else self.norm(tgt)


@placed
class Transformer(Module):
  """An encoder of what is read, and a decoder of what is written, which attends to the encoder's result: ``src (s, n, d_model)``
  and ``tgt (t, n, d_model) -> (t, n, d_model)``, with ``batch_first`` ``(n, s, ..)``.

  ``custom_encoder`` and ``custom_decoder`` stand in for the two; else layers as in :class:`TransformerEncoderLayer`, each stack
  with a layer norm behind it. Matrices begin as Xavier's uniform numbers."""
  _said = "d_model nhead"

  def __init__(self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
               dim_feedforward: int = 2048, dropout: float = 0.1, activation: str | Callable[..., Any] = "relu",
               custom_encoder: Callable[..., Any] | None = None, custom_decoder: Callable[..., Any] | None = None,
               layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True):
    super().__init__()
    self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
    given = d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias
    self.encoder: Any = custom_encoder if custom_encoder is not None else TransformerEncoder(
      TransformerEncoderLayer(*given), num_encoder_layers, LayerNorm(d_model, layer_norm_eps, bias=bias))
    self.decoder: Any = custom_decoder if custom_decoder is not None else TransformerDecoder(
      TransformerDecoderLayer(*given), num_decoder_layers, LayerNorm(d_model, layer_norm_eps, bias=bias))
    for p in self.parameters():
      if p.ndim == 2: xavier_uniform_(p)

  def __call__(self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None, tgt_mask: Tensor | None = None,
               memory_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
               tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
               src_is_causal: bool = False, tgt_is_causal: bool = False, memory_is_causal: bool = False) -> Tensor:
    """The shape of ``tgt``; masks as in :class:`MultiheadAttention`. Raises ShapeError."""
    last("Transformer", src, self.d_model, "d_model")
    last("Transformer", tgt, self.d_model, "d_model")
    memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
    return self.decoder(
      tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
      memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=tgt_is_causal, memory_is_causal=memory_is_causal)

  @staticmethod
  def generate_square_subsequent_mask(sz: int, device: str | None = None, dtype: Any = None) -> Tensor:
    """What is added to scores so that step i looks at steps 0 to i: (sz, sz), 0 there, -inf elsewhere."""
    size("Transformer", "sz", sz)
    return Tensor.full((sz, sz), -math.inf, device=device, dtype=dtypes.default_float if dtype is None else dtype).triu(1)
