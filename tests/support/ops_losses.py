"""The table of operations, continued: Losses."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ntgrad import Tensor, dtypes

from . import reference as R
from .ops import rows

Array = np.ndarray[Any, Any]
L, M = (7, 5), (3, 5, 4)
W = np.array([0.5, 1.0, 2.0, 0.25, 1.5])


def classes(x: Array, y: Array, w: Array = W, smoothing: float = 0.0, ignore: int = -100, how: str = "mean") -> Array:
  """Cross entropy of logits (n, c, ..) with class indices (n, ..) and a weight a class."""
  lp = np.moveaxis(R.log_softmax(x, 1), 1, -1).reshape(-1, x.shape[1])
  y = y.reshape(-1)
  used = y != ignore
  at = np.where(used, y, 0)
  rows = -lp[np.arange(len(y)), at] * w[at] * (1 - smoothing) - (lp * w).mean(1) * smoothing
  rows, mine = np.where(used, rows, 0), np.where(used, w[at], 0)
  return rows.reshape(x.shape[:1] + x.shape[2:]) if how == "none" else rows.sum() if how == "sum" else rows.sum() / mine.sum()


def weight(x: Tensor) -> Tensor: return Tensor(W, device=x.device, dtype=x.dtype)


def margins(x: Array, y: Array, p: int = 1, w: Array | None = None) -> Array:
  """multi_margin_loss with a margin of 0.8."""
  n = np.arange(len(y))
  each = np.maximum(0, 0.8 - x[n, y][:, None] + x) ** p
  each[n, y] = 0
  return (each.mean(1) * (1 if w is None else w[y])).mean()


def xlogy(t: Array) -> Array: return np.where(t == 0, 0, t * np.log(np.where(t == 0, 1, t)))
def huber(d: Array, b: float) -> Array: return np.where(np.abs(d) < b, d * d / 2, b * (np.abs(d) - b / 2))


rows("losses of classes", ((L, "any"), ((7,), "class:5")), *[
  ("weighted", lambda x, y: x.cross_entropy(y, weight=weight(x)), classes),
  ("weighted smoothing", lambda x, y: x.cross_entropy(y, label_smoothing=0.3, weight=weight(x), ignore_index=1),
   lambda x, y: classes(x, y, smoothing=0.3, ignore=1)),
  ("weighted sum", lambda x, y: x.cross_entropy(y, "sum", 0.3, 2, weight(x)), lambda x, y: classes(x, y, W, 0.3, 2, "sum")),
  ("weighted nll", lambda x, y: x.log_softmax(1).nll_loss(y, weight(x), 3), lambda x, y: classes(x, y, ignore=3)),
  ("multi_margin", lambda x, y: x.multi_margin_loss(y, margin=0.8), margins),
  ("multi_margin squared", lambda x, y: x.multi_margin_loss(y, 2, 0.8, weight(x)), lambda x, y: margins(x, y, 2, W))],
  composed=True, tol=32, sizes=False)
rows("losses of classes", ((M, "any"), ((3, 4), "class:5")), *[
  ("classes at dim 1", lambda x, y: x.cross_entropy(y, "none", 0.1, weight=weight(x)),
   lambda x, y: classes(x, y, W, 0.1, -1, "none")),
  ("nll at dim 1", lambda x, y: x.log_softmax(1).nll_loss(y, ignore_index=0), lambda x, y: classes(x, y, W * 0 + 1, ignore=0))],
  composed=True, tol=32, sizes=False)
rows("losses of classes", ((M, "any"), (M, "prob")), *[
  ("probabilities", lambda x, y: x.cross_entropy(y), lambda x, y: -(R.log_softmax(x, 1) * y).sum(1).mean()),
  ("probabilities weighted", lambda x, y: x.cross_entropy(y, "none", 0.5, weight=weight(x)),
   lambda x, y: -(R.log_softmax(x, 1) * (y / 2 + 0.1) * W[:, None]).sum(1))], composed=True, tol=32, sizes=False)

rows("losses", ((L, "any"), (L, "any")), *[
  ("l1", lambda x, y: x.l1_loss(y), lambda x, y: np.abs(x - y).mean()),
  ("smooth l1", lambda x, y: x.smooth_l1_loss(y, "none", 0.7), lambda x, y: huber(x - y, 0.7) / 0.7),
  ("smooth l1 of beta 0", lambda x, y: x.smooth_l1_loss(y, beta=0.0), lambda x, y: np.abs(x - y).mean()),
  ("huber", lambda x, y: x.huber_loss(y, delta=0.6), lambda x, y: huber(x - y, 0.6).mean()),
  ("kl log target", lambda x, y: x.kl_div(y, "sum", True), lambda x, y: (np.exp(y) * (y - x)).sum()),
  ("pairwise_distance", lambda x, y: x.pairwise_distance(y), lambda x, y: np.sqrt(((x - y + 1e-6) ** 2).sum(-1))),
  ("cosine_similarity", lambda x, y: x.cosine_similarity(y),
   lambda x, y: (x * y).sum(1) / np.maximum(np.sqrt((x * x).sum(1)), 1e-8) / np.maximum(np.sqrt((y * y).sum(1)), 1e-8)),
  ("cosine_similarity negative dim", lambda x, y: x.cosine_similarity(y, -2),
   lambda x, y: (x * y).sum(0) / np.maximum(np.sqrt((x * x).sum(0)), 1e-8) / np.maximum(np.sqrt((y * y).sum(0)), 1e-8)),
  ("hinge_embedding", lambda x, y: x.hinge_embedding_loss((y > 0).where(1, -1)),
   lambda x, y: np.where(y > 0, x, np.maximum(0, 1 - x)).mean()),
  ("margin_ranking", lambda x, y: x.margin_ranking_loss(y, (y > 0).where(1, -1), 0.3),
   lambda x, y: np.maximum(0, np.where(y > 0, -1, 1) * (x - y) + 0.3).mean()),
  ("soft_margin", lambda x, y: x.soft_margin_loss((y > 0).where(1, -1), "none"),
   lambda x, y: R.softplus(-np.where(y > 0, 1, -1) * x)),
  ("poisson nll", lambda x, y: x.poisson_nll_loss(y), lambda x, y: (np.exp(x) - y * x).mean())],
  composed=True, tol=32, special=False)
rows("losses", ((L, "any"), (L, "any"), (L, "any")), *[
  ("triplet", lambda x, y, z: x.triplet_margin_loss(y, z, 2.0, swap=True),
   lambda x, y, z: np.maximum(0, 2 + distance(x, y) - np.minimum(distance(x, z), distance(y, z))).mean()),
  ("cosine_embedding", lambda x, y, z: x.cosine_embedding_loss(y, (z[:, 0] > 0).where(1, -1), 0.1),
   lambda x, y, z: np.where(z[:, 0] > 0, 1 - cosine(x, y), np.maximum(0, cosine(x, y) - 0.1)).mean())],
  composed=True, tol=32, sizes=False, special=False)
rows("losses", ((L, "any"), (L, "prob"), ((5,), "pos")), *[
  ("bce logits weights", lambda x, y, w: x.binary_cross_entropy_with_logits(y, w, pos_weight=w * 2),
   lambda x, y, w: (w * (2 * w * y * R.softplus(-x) + (1 - y) * R.softplus(x))).mean()),
  ("bce weights", lambda x, y, w: x.sigmoid().binary_cross_entropy(y, w, "sum"),
   lambda x, y, w: (w * (R.softplus(x) - x * y)).sum(), {"tol": 64}),
  ("multilabel_soft_margin", lambda x, y, w: x.multilabel_soft_margin_loss(y, w),
   lambda x, y, w: (w * (R.softplus(x) - x * y)).mean(-1).mean()),
  ("kl", lambda x, y, w: x.kl_div(y, "batchmean"), lambda x, y, w: (xlogy(y) - y * x).sum() / 7)],
  composed=True, tol=32, sizes=False, special=False)
rows("losses", ((L, "any"), (L, "pos"), (L, "pos")), *[
  ("gaussian nll", lambda x, y, v: x.gaussian_nll_loss(y, v, True),
   lambda x, y, v: ((np.log(v) + (x - y) ** 2 / v) / 2 + math.log(2 * math.pi) / 2).mean()),
  ("poisson nll full", lambda x, y, v: v.poisson_nll_loss(y, False, True, reduction="none"),
   lambda x, y, v: v - y * np.log(v + 1e-8) + np.where(y > 1, xlogy(y) - y + np.log(2 * math.pi * y) / 2, 0))],
  composed=True, tol=32, special=False)


def distance(x: Array, y: Array) -> Array: return np.sqrt(((x - y + 1e-6) ** 2).sum(-1))
def cosine(x: Array, y: Array) -> Array: return (x * y).sum(1) / np.sqrt(((x * x).sum(1) + 1e-12) * ((y * y).sum(1) + 1e-12))


def grouped(q: Array, k: Array, v: Array, mask: Any = None, scale: float = 0.3) -> Array:
  """Attention whose keys and values serve several heads each, zeros where the mask leaves no key."""
  k, v = [np.repeat(x, q.shape[-3] // x.shape[-3], -3) for x in (k, v)]
  s = q @ k.swapaxes(-1, -2) * scale
  if mask is not None: s = np.where(mask, s, -np.inf)
  top = s.max(-1, keepdims=True)
  e = np.exp(s - np.where(np.isfinite(top), top, 0))
  total = e.sum(-1, keepdims=True)
  return e / np.where(total == 0, 1, total) @ v


KEEP = np.array([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], bool)
rows("attention of groups", (((2, 4, 3, 8), "any"), ((2, 2, 5, 8), "any"), ((2, 2, 5, 6), "any")), *[
  ("groups", lambda q, k, v: q.scaled_dot_product_attention(k, v, scale=0.3, enable_gqa=True), grouped),
  ("groups causal", lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True, scale=0.3, enable_gqa=True),
   lambda q, k, v: grouped(q, k, v, np.tril(np.ones((3, 5), bool)))),
  ("rows without keys", lambda q, k, v: q.scaled_dot_product_attention(k, v, Tensor(KEEP, device=q.device), enable_gqa=True),
   lambda q, k, v: grouped(q, k, v, KEEP, 1 / math.sqrt(8))),
  ("mask of floats", lambda q, k, v: q[:, :2].scaled_dot_product_attention(
    k, v, Tensor(KEEP, device=q.device).where(0.0, -math.inf).cast(q.dtype)),
   lambda q, k, v: grouped(q[:, :2], k, v, KEEP, 1 / math.sqrt(8)))], composed=True, tol=64, sizes=False, special=False)

rows("made", ((4,), "any"), *[
  ("tri", lambda a: Tensor.tri(3, 4, 1, dtype=a.dtype, device=a.device) * a, lambda a: np.tri(3, 4, 1) * a),
  ("logspace", lambda a: Tensor.logspace(0, 2, 4, dtype=a.dtype, device=a.device) * a, lambda a: np.logspace(0, 2, 4) * a,
   {"tol": 16}),
  ("new_ones", lambda a: a.new_ones(2, 4) * a, lambda a: np.ones((2, 4)) * a),
  ("dropout2d in use", lambda a: a.reshape(1, 1, 2, 2).dropout2d(0.5), lambda a: a.reshape(1, 1, 2, 2))],
  composed=True, sizes=False)


def in_default(make: Any) -> Any:
  """A row's function while float64 and int64 are the defaults; its results are rounded to the row's dtype."""
  def fn(a: Tensor) -> Tensor:
    dtypes.default_float, dtypes.default_int = dtypes.float64, dtypes.int64
    try:
      out: Tensor = make(a)
      assert out.dtype is dtypes.float64
      return out.cast(dtypes.float32)
    finally: dtypes.default_float, dtypes.default_int = dtypes.float32, dtypes.int32
  return fn


rows("defaults", ((4, 6), "any"), *[
  ("exp of ints", in_default(lambda a: (a.clamp(0, 3)).exp()), lambda a: np.exp(np.clip(a, 0, 3))),
  ("list of floats", in_default(lambda a: a * Tensor([0.5] * 6, device=a.device)), lambda a: a * 0.5, {"sizes": False}),
  ("mean of ints", in_default(lambda a: a.mean(1)), lambda a: a.mean(1))], kinds="i", out="float", grad=False, composed=True)
