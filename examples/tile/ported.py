"""Ten kernels as people write them for NineToothed, with the import changed: ``import ninetoothed`` became ``import ntgrad.tile
as ninetoothed``, and ``ninetoothed.language`` is ``ntgrad.tile.language``. ``cases`` calls each and says what must come out."""
from __future__ import annotations

from typing import Any, Callable

import numpy as np

import ntgrad.tile as ninetoothed
import ntgrad.tile.language as ntl
from ntgrad.tile import Symbol, Tensor

BLOCK_SIZE = Symbol("BLOCK_SIZE", constexpr=True)
BLOCK_SIZE_M = Symbol("BLOCK_SIZE_M", constexpr=True)
BLOCK_SIZE_N = Symbol("BLOCK_SIZE_N", constexpr=True)
BLOCK_SIZE_K = Symbol("BLOCK_SIZE_K", constexpr=True)


# ---- the sum of two activations, normalised by its root mean square

def arrange_rows(*tensors: Tensor) -> Any:
  """A program a row; a vector is the same for all."""
  rows = tensors[0].shape[0]
  def arranged(t: Tensor) -> Tensor:
    if t.ndim == 0: return t
    return t.tile((1, -1)) if t.ndim == 2 else t.unsqueeze(0).tile((1, -1)).expand((rows, -1))
  return tuple(map(arranged, tensors))


def fused_add_rms_norm_application(input: Any, residual: Any, weight: Any, eps: Any, output: Any) -> None:
  residual = input + residual
  scale = ntl.rsqrt(ntl.sum(residual * residual) / residual.shape[-1] + eps)
  output = residual * scale * weight


fused_add_rms_norm = ninetoothed.make(
  arrange_rows, fused_add_rms_norm_application, (Tensor(2), Tensor(2), Tensor(1), Tensor(0, dtype=ninetoothed.float32), Tensor(2))
)


# ---- group norm

def arrange_group_norm(input: Tensor, weight: Tensor, bias: Tensor, eps: Tensor, output: Tensor) -> Any:
  input = input.tile((1, BLOCK_SIZE, -1, -1))
  def channels(t: Tensor) -> Tensor:
    t = t.tile((BLOCK_SIZE,)).unsqueeze(0).unsqueeze(2).unsqueeze(3)
    return t.expand((input.shape[0], -1, -1, -1))
  return input, channels(weight), channels(bias), eps, output.tile((1, BLOCK_SIZE, -1, -1))


def group_norm_application(input: Any, weight: Any, bias: Any, eps: Any, output: Any) -> None:
  count = input.shape[1] * input.shape[2] * input.shape[3]
  mean = ntl.sum(input) / count
  centred = input - mean
  var = ntl.sum(centred * centred) / count
  output = centred * ntl.rsqrt(var + eps) * weight[None, :, None, None] + bias[None, :, None, None]


group_norm = ninetoothed.make(arrange_group_norm, group_norm_application, (Tensor(4), Tensor(1), Tensor(1), Tensor(0), Tensor(4)))


# ---- a causal convolution of each channel

def arrange_causal_conv1d(input: Tensor, weight: Tensor, output: Tensor, size: Symbol = BLOCK_SIZE) -> Any:
  taps = weight.shape[0]
  input = input.pad(((0, 0), (taps - 1, 0), (0, 0))).tile((1, taps, size), strides=(1, 1, size))
  output = output.tile((1, 1, size))
  weight = weight.tile((-1, size)).unsqueeze(0).expand((input.shape[0], input.shape[1], -1))
  return input, weight, output


def causal_conv1d_application(input: Any, weight: Any, output: Any) -> None:
  output = ntl.sum(input * weight[None], axis=1, keep_dims=True)


causal_conv1d = ninetoothed.make(
  arrange_causal_conv1d, causal_conv1d_application, (Tensor(3), Tensor(shape=(4, None)), Tensor(3))
)


# ---- a product of quantised matrices

def arrange_quantised_mm(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor, output: Tensor) -> Any:
  output = output.tile((BLOCK_SIZE_M, BLOCK_SIZE_N))
  a = a.tile((BLOCK_SIZE_M, BLOCK_SIZE_K)).tile((1, -1)).expand((-1, output.shape[1]))
  a.dtype = a.dtype.squeeze(0)
  b = b.tile((BLOCK_SIZE_K, BLOCK_SIZE_N)).tile((-1, 1)).expand((output.shape[0], -1))
  b.dtype = b.dtype.squeeze(1)
  a_scale = a_scale.tile((BLOCK_SIZE_M,)).unsqueeze(1).expand((-1, output.shape[1]))
  b_scale = b_scale.tile((BLOCK_SIZE_N,)).unsqueeze(0).expand((output.shape[0], -1))
  return a, a_scale, b, b_scale, output


def quantised_mm_application(a: Any, a_scale: Any, b: Any, b_scale: Any, output: Any) -> None:
  accumulator = ntl.zeros(output.shape, dtype=ntl.int32)
  for k in range(a.shape[0]):
    accumulator += ntl.dot(a[k], b[k])
  output = ntl.cast(accumulator, ntl.float32) * a_scale[:, None] * b_scale[None, :]


quantised_mm = ninetoothed.make(
  arrange_quantised_mm, quantised_mm_application, (Tensor(2, dtype="i8"), Tensor(1), Tensor(2, dtype="i8"), Tensor(1), Tensor(2))
)


# ---- the greatest k of each row

def topk_application(input: Any, values: Any, indices: Any) -> None:
  rest = input
  columns = ntl.arange(0, input.shape[1])[None, :]
  for i in ntl.static_range(values.shape[1]):
    best = ntl.argmax(rest, axis=1)
    values[0, i] = ntl.max(rest)
    indices[:, i] = best
    rest = ntl.where(columns == best[:, None], float("-inf"), rest)


topk = ninetoothed.make(arrange_rows, topk_application, (Tensor(2), Tensor(shape=(None, 3)), Tensor(shape=(None, 3))))


# ---- attention over sequences of different lengths

def arrange_jagged_attention(query: Tensor, key: Tensor, value: Tensor, lengths: Tensor, scale: Tensor, output: Tensor) -> Any:
  query = query.tile((1, BLOCK_SIZE_M, -1))
  query.dtype = query.dtype.squeeze(0)
  def along(t: Tensor) -> Tensor:
    t = t.tile((1, BLOCK_SIZE_N, -1)).tile((1, -1, -1)).expand((-1, query.shape[1], -1))
    t.dtype = t.dtype.squeeze((0, 2))
    t.dtype.dtype = t.dtype.dtype.squeeze(0)
    return t
  output = output.tile((1, BLOCK_SIZE_M, -1))
  output.dtype = output.dtype.squeeze(0)
  lengths = lengths.unsqueeze(1).unsqueeze(2).expand((-1, query.shape[1], -1))
  return query, along(key), along(value), lengths, scale, output


def jagged_attention_application(query: Any, key: Any, value: Any, lengths: Any, scale: Any, output: Any) -> None:
  m = ntl.full((query.shape[0],), float("-inf"), dtype=ntl.float32)
  total = ntl.zeros((query.shape[0],), dtype=ntl.float32)
  accumulator = ntl.zeros(output.shape, dtype=ntl.float32)
  for i in range(key.shape[0]):
    scores = ntl.dot(query, ntl.trans(key[i])) * scale
    scores = ntl.where((key[i].offsets(1) < lengths)[None, :], scores, float("-inf"))
    new = ntl.maximum(m, ntl.max(scores, axis=1))
    weights = ntl.where(new[:, None] == float("-inf"), 0.0, ntl.exp(scores - new[:, None]))
    alpha = ntl.where(m == float("-inf"), 0.0, ntl.exp(m - new))
    total = total * alpha + ntl.sum(weights, axis=1)
    accumulator = accumulator * alpha[:, None] + ntl.dot(weights, value[i])
    m = new
  output = accumulator / total[:, None]


sequences = Tensor(shape=(None, None, 16), jagged_dim=1)
jagged_attention = ninetoothed.make(
  arrange_jagged_attention, jagged_attention_application, (*(sequences,) * 3, Tensor(1), Tensor(0), sequences)
)


# ---- rotary embedding, in place

def arrange_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Any:
  heads = x.shape[1]
  x = x.tile((1, 1, -1))
  x.dtype = x.dtype.squeeze((0, 1))
  def positions(t: Tensor) -> Tensor:
    t = t.tile((1, -1)).unsqueeze(1).expand((-1, heads, -1))
    t.dtype = t.dtype.squeeze(0)
    return t
  return x, positions(cos), positions(sin)


def turn(first: Any, second: Any, cos: Any, sin: Any) -> Any: return first * cos - second * sin, second * cos + first * sin


def rotary_application(x: Any, cos: Any, sin: Any) -> None:
  half = x.shape[0] // 2
  first, second = turn(x[:half], x[half:], cos, sin)
  x[:half] = first
  x[half:] = second


rotary_in_place = ninetoothed.make(arrange_rotary, rotary_application, (Tensor(3), Tensor(2), Tensor(2)))


# ---- dropout

def arrange_elements(*tensors: Tensor) -> Any: return tuple(t.tile((BLOCK_SIZE,)) if t.ndim else t for t in tensors)


def dropout_application(input: Any, p: Any, seed: Any, output: Any) -> None:
  output = ntl.where(ntl.rand(seed, input.offsets()) > p, input / (1 - p), 0)


dropout = ninetoothed.make(
  arrange_elements, dropout_application, (Tensor(1), Tensor(0, dtype="fp32"), Tensor(0, dtype=ninetoothed.int64), Tensor(1))
)


# ---- the median and quantiles of each row

def median_application(input: Any, output: Any) -> None:
  ordered = ntl.sort(input)
  output[0, 0] = ordered[0, (input.shape[1] - 1) // 2]


median = ninetoothed.make(arrange_rows, median_application, (Tensor(2), Tensor(shape=(None, 1))))


def quantile_application(input: Any, q: Any, output: Any) -> None:
  ordered = ntl.sort(input)
  place = q * (input.shape[1] - 1)
  below = ntl.cast(ntl.floor(place), ntl.int32)
  above = ntl.minimum(below + 1, input.shape[1] - 1)
  share = place - ntl.floor(place)
  output = ordered[:, below][:, None] * (1 - share) + ordered[:, above][:, None] * share


quantile = ninetoothed.make(arrange_rows, quantile_application, (Tensor(2), Tensor(0, dtype="fp32"), Tensor(shape=(None, 1))))


# ---- what must come out

def cases(rng: np.random.Generator) -> dict[str, Callable[[], list[tuple[Any, Any]]]]:
  """For each kernel a call, which gives what it wrote and what that should be."""
  def normal(*shape: int) -> Any: return rng.standard_normal(shape).astype(np.float32)

  def add_rms_norm() -> list[tuple[Any, Any]]:
    x, residual, weight, out = normal(5, 48), normal(5, 48), normal(48), np.zeros((5, 48), np.float32)
    total = x + residual
    fused_add_rms_norm(x, residual, weight, 1e-5, out)
    return [(residual, total), (out, total / np.sqrt((total ** 2).mean(1, keepdims=True) + 1e-5) * weight)]

  def groups() -> list[tuple[Any, Any]]:
    x, weight, bias = normal(2, 6, 4, 5), normal(6), normal(6)
    out = np.zeros_like(x)
    group_norm(x, weight, bias, 1e-5, out, BLOCK_SIZE=3)
    by = x.reshape(2, 2, -1)
    normed = (by - by.mean(2, keepdims=True)) / np.sqrt(by.var(2, keepdims=True) + 1e-5)
    return [(out, normed.reshape(x.shape) * weight[:, None, None] + bias[:, None, None])]

  def conv() -> list[tuple[Any, Any]]:
    x, weight = normal(2, 9, 20), normal(4, 20)
    out = np.zeros_like(x)
    causal_conv1d(x, weight, out, BLOCK_SIZE=8)
    padded = np.pad(x, ((0, 0), (3, 0), (0, 0)))
    return [(out, sum(padded[:, i:i + 9] * weight[i] for i in range(4)))]

  def quantised() -> list[tuple[Any, Any]]:
    a, b = (rng.integers(-127, 128, s).astype(np.int8) for s in ((33, 40), (40, 24)))
    a_scale, b_scale, out = abs(normal(33)), abs(normal(24)), np.zeros((33, 24), np.float32)
    quantised_mm(a, a_scale, b, b_scale, out, BLOCK_SIZE_M=16, BLOCK_SIZE_N=16, BLOCK_SIZE_K=32)
    return [(out, a.astype(np.int32) @ b.astype(np.int32) * a_scale[:, None] * b_scale)]

  def greatest() -> list[tuple[Any, Any]]:
    x, values, indices = normal(4, 30), np.zeros((4, 3), np.float32), np.zeros((4, 3), np.int64)
    topk(x, values, indices)
    order = np.argsort(-x, 1, kind="stable")[:, :3]
    return [(values, np.take_along_axis(x, order, 1)), (indices, order)]

  def attention() -> list[tuple[Any, Any]]:
    offsets = np.array([0, 5, 6, 29], np.int64)
    q, k, v = normal(29, 16), normal(29, 16), normal(29, 16)
    out, want = np.zeros_like(q), np.zeros_like(q)
    q_, k_, v_, out_ = (ninetoothed.Jagged(t, offsets) for t in (q, k, v, out))
    jagged_attention(q_, k_, v_, np.diff(offsets).astype(np.int32), 0.25, out_, BLOCK_SIZE_M=16, BLOCK_SIZE_N=16)
    for a, b in zip(offsets, offsets[1:]):
      s = q[a:b] @ k[a:b].T * 0.25
      e = np.exp(s - s.max(1, keepdims=True))
      want[a:b] = e / e.sum(1, keepdims=True) @ v[a:b]
    return [(out, want)]

  def rotary() -> list[tuple[Any, Any]]:
    x, angle = normal(6, 3, 16), normal(6, 8)
    cos, sin = np.cos(angle), np.sin(angle)
    c, s, first, second = cos[:, None], sin[:, None], x[..., :8], x[..., 8:]
    want = np.concatenate([first * c - second * s, second * c + first * s], 2)
    rotary_in_place(x, cos, sin)
    return [(x, want)]

  def dropped() -> list[tuple[Any, Any]]:
    x, out = normal(100), np.zeros(100, np.float32)
    dropout(x, 0.25, 7, out, BLOCK_SIZE=32)
    kept = ninetoothed.apply(lambda at: ntl.rand(7, at), np.arange(100)) > 0.25
    return [(out, np.where(kept, x / 0.75, 0)), (0.5 < kept.mean() < 0.95, True)]

  def medians() -> list[tuple[Any, Any]]:
    x, y, out, other = normal(4, 9), normal(4, 12), np.zeros((4, 1), np.float32), np.zeros((4, 1), np.float32)
    median(x, out)
    median(y, other)
    return [(out, np.median(x, 1, keepdims=True)), (other, np.sort(y, 1)[:, 5:6])]

  def quantiles() -> list[tuple[Any, Any]]:
    x, out = normal(4, 9), np.zeros((4, 1), np.float32)
    got = []
    for q in (0, 0.3, 0.5, 1.0):
      quantile(x, q, out)
      got.append((out.copy(), np.quantile(x, q, axis=1, keepdims=True)))
    return got

  return {
    "fused norm": add_rms_norm, "group norm": groups, "convolution": conv, "quantised product": quantised, "top-k": greatest,
    "jagged attention": attention, "rotary embedding": rotary, "dropout": dropped, "median": medians, "quantile": quantiles}


if __name__ == "__main__":
  for name, run in cases(np.random.default_rng(0)).items():
    for got, want in run(): np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    print(name, "is right")
