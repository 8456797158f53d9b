"""Causal attention without its matrix of scores (Dao et al., FlashAttention, arXiv 2205.14135), forward and backward.

A program has a block of queries and goes along the blocks of keys, with the running maximum and sum of each row's exponentials.
The backward pass makes the scores again, once by rows (for the queries) and once by columns (for keys and values).
"""
import numpy as np

import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad.tile import Tensor, block_size

BM, BN = block_size(16, 128), block_size(16, 128)
LOG2_E = 1.4426950408889634


def own(x, block):
  """(batch, head, blocks) of (block, d): a program's own rows."""
  x = x.tile((1, 1, block, -1)).squeeze(3)
  x.dtype = x.dtype.squeeze((0, 1))
  return x


def all_of(x, block, programs):
  """(batch, head, programs) of (blocks) of (block, d): every program goes through all rows."""
  x = x.tile((1, 1, block, -1)).tile((1, 1, -1, -1)).expand((-1, -1, programs, -1)).squeeze(3)
  x.dtype = x.dtype.squeeze((0, 1, 3))
  x.dtype.dtype = x.dtype.dtype.squeeze((0, 1))
  return x


def forward_arrangement(q, k, v, scale, o, lse):
  q, o = own(q, BM), own(o, BM)
  k, v = (all_of(x, BN, q.shape[2]) for x in (k, v))
  return q, k, v, scale, o, own(lse, BM)


def forward(q, k, v, scale, o, lse):
  accumulator = tl.zeros(o.shape)
  total = tl.zeros(o.shape[:1])
  greatest = tl.full(o.shape[:1], float("-inf"))
  base = scale * LOG2_E   # exponentials are powers of two
  for j in range(tl.cdiv((tl.program_id(2) + 1) * q.shape[0], k.dtype.shape[0])):   # later keys are masked altogether
    scores = tl.dot(q, tl.trans(k[j]))
    seen = (q.offsets(2)[:, None] >= k[j].offsets(2)[None, :]) & (k[j].offsets(2)[None, :] < k.source.shape[2])
    scores = tl.where(seen, scores, float("-inf"))
    new_greatest = tl.maximum(greatest, tl.max(scores, axis=1))
    weights = tl.exp2(scores * base - (new_greatest * base)[:, None])
    shrink = tl.exp2((greatest - new_greatest) * base)
    total = total * shrink + tl.sum(weights, axis=1)
    accumulator = accumulator * shrink[:, None] + tl.dot(weights.to(v.dtype.dtype), v[j])
    greatest = new_greatest
  o = accumulator / total[:, None]
  lse = (greatest * base + tl.log2(total))[:, None]


def weights_and_slope(q, k, v, o, grad_o, lse, scale, columns):
  """A block of attention weights, and the gradient at its scores."""
  scores = tl.dot(q, tl.trans(k)) * (scale * LOG2_E)
  seen = (
    (q.offsets(2)[:, None] >= k.offsets(2)[None, :])
    & (q.offsets(2)[:, None] < q.source.shape[2])
    & (k.offsets(2)[None, :] < columns)
  )
  weights = tl.where(seen, tl.exp2(scores - lse), 0.0)
  slope = weights * (tl.dot(grad_o, tl.trans(v)) - tl.sum(o * grad_o, axis=1, keep_dims=True)) * scale
  return weights, slope


def queries_arrangement(q, k, v, scale, o, lse, grad_o, grad_q):
  mine = [own(x, BM) for x in (q, o, lse, grad_o, grad_q)]
  k, v = (all_of(x, BN, mine[0].shape[2]) for x in (k, v))
  return mine[0], k, v, scale, *mine[1:]


def queries_backward(q, k, v, scale, o, lse, grad_o, grad_q):
  accumulator = tl.zeros(q.shape)
  for j in range(tl.cdiv((tl.program_id(2) + 1) * q.shape[0], k.dtype.shape[0])):
    _, slope = weights_and_slope(q, k[j], v[j], o, grad_o, lse, scale, k.source.shape[2])
    accumulator += tl.dot(slope.to(k.dtype.dtype), k[j])
  grad_q = accumulator


def keys_arrangement(q, k, v, scale, o, lse, grad_o, grad_k, grad_v):
  mine = [own(x, BN) for x in (k, v, grad_k, grad_v)]
  others = [all_of(x, BM, mine[0].shape[2]) for x in (q, o, lse, grad_o)]
  return others[0], *mine[:2], scale, *others[1:], *mine[2:]


def keys_backward(q, k, v, scale, o, lse, grad_o, grad_k, grad_v):
  keys, values = tl.zeros(k.shape), tl.zeros(v.shape)
  for i in range((tl.program_id(2) * k.shape[0]) // q.dtype.shape[0], q.shape[0]):   # earlier queries do not see these keys
    weights, slope = weights_and_slope(q[i], k, v, o[i], grad_o[i], lse[i], scale, k.source.shape[2])
    values += tl.dot(tl.trans(weights).to(v.dtype), grad_o[i])
    keys += tl.dot(tl.trans(slope).to(k.dtype), q[i])
  grad_k = keys
  grad_v = values


T4 = Tensor(4)
forward_kernel = tile.make(forward_arrangement, forward, (T4, T4, T4, Tensor(0), T4, T4), kernel_name="attention")
queries_kernel = tile.make(
  queries_arrangement, queries_backward, (T4, T4, T4, Tensor(0), T4, T4, T4, T4), kernel_name="attention_queries"
)
keys_kernel = tile.make(
  keys_arrangement, keys_backward, (T4, T4, T4, Tensor(0), T4, T4, T4, T4, T4), kernel_name="attention_keys"
)
attention = tile.function(forward_kernel, (queries_kernel, keys_kernel),
                          outputs={"o": "q", "lse": lambda q, k, v, scale: ((*q.shape[:3], 1), "float32")})


def reference(q, k, v, scale):
  """Output and log2 of the sums, in float64."""
  s = np.einsum("bhid,bhjd->bhij", q, k, dtype=np.float64) * scale
  s = np.where(np.tril(np.ones(s.shape[2:], bool)), s, -np.inf)
  top = s.max(-1, keepdims=True)
  e = np.exp(s - top)
  return np.einsum("bhij,bhjd->bhid", e / e.sum(-1, keepdims=True), v), (top + np.log(e.sum(-1, keepdims=True))) * LOG2_E


def case(rng):
  """Arguments for one call, the last two of them written; and what must be in them."""
  q, k, v = rng.standard_normal((3, 1, 2, 80, 32), np.float32)
  o, lse = reference(q, k, v, 32 ** -0.5)
  return forward_kernel, (q, k, v, 32 ** -0.5, np.empty_like(q), np.empty((1, 2, 80, 1), np.float32)), (o, lse)


if __name__ == "__main__":
  from show import show
  show(case)
