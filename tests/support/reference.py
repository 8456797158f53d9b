"""What operations that numpy lacks mean, in numpy: plain definitions, written for clarity."""
from __future__ import annotations

import math
from typing import Any, Sequence

import numpy as np

Array = np.ndarray[Any, Any]
erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x: Array) -> Array: return 1 / (1 + np.exp(-x))
def softplus(x: Array, beta: float = 1.0) -> Array: return np.logaddexp(0, x * beta) / beta
def gelu_tanh(x: Array) -> Array: return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))
def gelu(x: Array) -> Array: return 0.5 * x * (1 + erf(x / math.sqrt(2)))
def elu(x: Array, alpha: float = 1.0) -> Array: return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def logsumexp(x: Array, axis: Any = None, keepdims: bool = False) -> Array:
  top = x.max(axis=axis, keepdims=True)
  out = np.log(np.exp(x - top).sum(axis=axis, keepdims=True)) + top
  return out if keepdims else np.squeeze(out, axis=axis if axis is not None else tuple(range(x.ndim)))


def log_softmax(x: Array, axis: int = -1) -> Array: return x - logsumexp(x, axis, True)
def softmax(x: Array, axis: int = -1) -> Array: return np.exp(log_softmax(x, axis))


def pads(x: Array, n: int, padding: int | Sequence[tuple[int, int]], value: float = 0) -> Array:
  pairs = [(padding, padding)] * n if isinstance(padding, int) else list(padding)
  return np.pad(x, [(0, 0)] * (x.ndim - n) + pairs, constant_values=value)


def windows(x: Array, size: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Array:
  """(.., d0, d1) -> (.., outer0, outer1, size0, size1)"""
  n = len(size)
  reach = tuple((k - 1) * d + 1 for k, d in zip(size, dilation))
  out = np.lib.stride_tricks.sliding_window_view(x, reach, axis=tuple(range(x.ndim - n, x.ndim)))
  steps = tuple(slice(None, None, s) for s in stride) + tuple(slice(None, None, d) for d in dilation)
  return out[(..., *steps)]


def conv(
  x: Array, w: Array, b: Array | None = None, groups: int = 1, stride: Any = 1, dilation: Any = 1, padding: Any = 0
) -> Array:
  n = w.ndim - 2
  st, di = ((v,) * n if isinstance(v, int) else v for v in (stride, dilation))
  t = windows(pads(x, n, padding), w.shape[2:], st, di)
  bs, cin = x.shape[:2]
  t = t.reshape(bs, groups, cin // groups, *t.shape[2:])
  k = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
  dims, taps = "xyz"[:n], "uvw"[:n]
  out = np.einsum(f"bgc{dims}{taps},goc{taps}->bgo{dims}", t, k)
  out = out.reshape(bs, w.shape[0], *out.shape[3:])
  return out if b is None else out + b.reshape(1, -1, *[1] * n)


def conv_transpose(
  x: Array, w: Array, b: Array | None = None, stride: int = 1, padding: int = 0, output_padding: int = 0
) -> Array:
  """Two spatial dims, one group: every input pixel adds its kernel to the output."""
  bs, _, h, wd = x.shape
  _, cout, kh, kw = w.shape
  out = np.zeros((bs, cout, (h - 1) * stride + kh + output_padding, (wd - 1) * stride + kw + output_padding), x.dtype)
  for i in range(h):
    for j in range(wd):
      out[:, :, i * stride : i * stride + kh, j * stride : j * stride + kw] += np.einsum("bc,couv->bouv", x[:, :, i, j], w)
  out = out[:, :, padding : out.shape[2] - padding, padding : out.shape[3] - padding]
  return out if b is None else out + b.reshape(1, -1, 1, 1)


def max_pool(x: Array, size: Sequence[int], stride: Any = None, dilation: int = 1, padding: int = 0) -> Array:
  st = size if stride is None else (stride,) * 2 if isinstance(stride, int) else stride
  low = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
  return windows(pads(x, 2, padding, low), size, st, (dilation,) * 2).max(axis=(-2, -1))


def avg_pool(x: Array, size: Sequence[int], stride: Any = None, padding: int = 0, count_include_pad: bool = True) -> Array:
  st = size if stride is None else (stride,) * 2 if isinstance(stride, int) else stride
  total = windows(pads(x, 2, padding), size, st, (1, 1)).sum(axis=(-2, -1))
  if count_include_pad: return total / math.prod(size)
  return total / windows(pads(np.ones_like(x), 2, padding), size, st, (1, 1)).sum(axis=(-2, -1))


def layernorm(x: Array, axis: Any = -1, eps: float = 1e-5) -> Array:
  return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + eps)


def attention(q: Array, k: Array, v: Array, causal: bool = False, mask: Array | None = None) -> Array:
  s = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
  if causal: mask = np.tril(np.ones(s.shape[-2:], bool))
  if mask is not None: s = np.where(mask, s, -np.inf)
  return softmax(s) @ v


def cross_entropy(x: Array, y: Array, smoothing: float = 0.0, ignore: int | None = None, reduction: str = "mean") -> Array:
  """Logits (n, classes), class indices (n,)."""
  lp = log_softmax(x, 1)
  n, c = x.shape
  kept = np.ones(n, bool) if ignore is None else y != ignore
  target = np.zeros((n, c))
  target[np.arange(n)[kept], y[kept]] = 1
  target = target * (1 - smoothing) + smoothing / c
  rows = -(lp * target).sum(1) * kept
  return np.asarray(rows if reduction == "none" else rows.sum() if reduction == "sum" else rows.sum() / kept.sum())


def bce_logits(x: Array, y: Array) -> Array: return np.asarray((softplus(x) - x * y).mean())


def scatter(base: Array, dim: int, index: Array, src: Array, add: bool) -> Array:
  out = base.copy()
  for at in np.ndindex(*index.shape):
    to = list(at)
    to[dim] = index[at]
    out[tuple(to)] = out[tuple(to)] + src[at] if add else src[at]
  return out


def ints_first(a: Array, index: Any) -> tuple[Array, tuple[Any, ...]]:
  """A view and an index of it in numpy that choose what PyTorch's ``a[index]`` does: there ints and integer arrays of shape ()
  take their dimension away before the others are looked at."""
  items = list(index) if isinstance(index, tuple) else [index]
  taken = [0 if i is None or i is Ellipsis or isinstance(i, bool) else i.ndim if is_mask(i) else 1 for i in items]
  at = next((k for k, i in enumerate(items) if i is Ellipsis), len(items))
  items[at:at + 1] = [slice(None)] * (a.ndim - sum(taken))
  rest, axis = [], 0
  for i in items:
    if not isinstance(i, bool) and not is_mask(i) and i is not None and not isinstance(i, slice) and np.ndim(i) == 0:
      a = a[(slice(None),) * axis + (int(i), Ellipsis)]
      continue
    rest.append(np.array(i) if isinstance(i, (list, range)) else i)
    axis += 0 if i is None or isinstance(i, bool) else i.ndim if is_mask(i) else 1
  return a, (*rest, Ellipsis)


def is_mask(i: Any) -> bool: return isinstance(i, np.ndarray) and i.dtype == bool
