"""The table of operations, continued: selecting, order statistics, writing at indices, splitting and joining."""
from __future__ import annotations

from typing import Any, Callable

import numpy as np

from ntgrad import Tensor

from .ops import Array, In, S, rows

Combine = Callable[[Any, Any], Any]


def combined(a: Array, dim: int, index: Array, src: Array, fn: Combine, keep: bool = True) -> Array:
  """``fn`` of each element and the ones of ``src`` that go there, one after the other; without ``keep`` the element itself has no
  part in it."""
  out, begun = a.copy(), np.full(a.shape, keep)
  for at in np.ndindex(*index.shape):
    to = (*at[:dim], int(index[at]), *at[dim + 1:])
    if not -a.shape[dim] <= index[at] < a.shape[dim]: raise IndexError(to)
    to = (*at[:dim], int(index[at]) % a.shape[dim], *at[dim + 1:])
    out[to] = fn(out[to], src[at]) if begun[to] else src[at]
    begun[to] = True
  return out


def mean_of(a: Array, dim: int, index: Array, src: Array) -> Array:
  """``scatter_reduce`` with "mean": of the element and what goes there."""
  ones = np.ones(src.shape)
  add: Combine = lambda x, y: x + y
  return combined(a, dim, index, src, add) / combined(np.ones(a.shape), dim, index, ones, add)


def rows_at(a: Array, dim: int, index: Array, src: Array, fn: Combine) -> Array:
  """``fn`` of the slices of ``a`` along a dim and those of ``src``."""
  out = a.copy()
  view = np.moveaxis(out, dim, 0)
  for i, s in zip(index, np.moveaxis(src, dim, 0), strict=True): view[i] = fn(view[i], s)
  return out


def lower_median(x: Array, axis: int) -> Array:
  """The lower of the two in the middle; NaN where there is one."""
  if not x.shape[axis]: raise ValueError("median of nothing")
  middle = np.take(np.sort(x, axis), (x.shape[axis] - 1) // 2, axis)
  return np.where(np.isnan(x).any(axis), np.nan, middle) if x.dtype.kind == "f" else middle


def nan_median(x: Array, axis: int) -> Array:
  """The lower median of what is not NaN."""
  if not x.shape[axis]: raise ValueError("median of nothing")
  last = np.maximum((~np.isnan(x)).sum(axis, keepdims=True) - 1, 0) // 2
  return np.take_along_axis(np.sort(x, axis), last, axis).squeeze(axis)


def commonest(x: Array) -> Array:
  """Of each row the value that is there most often, the least of several."""
  def one(row: Array) -> Any:
    values, counts = np.unique(row, return_counts=True)
    return values[np.argmax(counts)]
  return np.array([one(r) for r in x], x.dtype)


def where_placed(a: Array, mask: Array, src: Array) -> Array:
  out = a.copy()
  out[mask] = src.reshape(-1)[:mask.sum()]
  return out


def at_places(a: Array, index: Array, src: Array, add: bool) -> Array:
  out = a.copy().reshape(-1)
  for i, s in zip(index.reshape(-1), src.reshape(-1), strict=True): out[i] = out[i] + s if add else s
  return out.reshape(a.shape)


def pairs(first: Array, second: Array) -> Array:
  return np.stack([g.reshape(-1) for g in np.meshgrid(first, second, indexing="ij")], 1)


def diagonals(*blocks: Array) -> Array:
  out = np.zeros((sum(b.shape[0] for b in blocks), sum(b.shape[1] for b in blocks)), blocks[0].dtype)
  i = j = 0
  for b in blocks:
    out[i:i + b.shape[0], j:j + b.shape[1]] = b
    i, j = i + b.shape[0], j + b.shape[1]
  return out


INDEX: In = ((3, 4), "ix:5")           # for rows of a (5, 4), negative ones among them
ROWS_OF: In = ((3,), "ix:5")
ONTO: In = ((5, 4), "any")
FROM: In = ((3, 4), "any")
each = {"kinds": "fiu", "composed": True}

rows("at indices", (ONTO, INDEX, FROM), *[
  ("scatter_add", lambda a, i, s: a.scatter_add(0, i, s), lambda a, i, s: combined(a, 0, i, s, lambda x, y: x + y), {"tol": 16}),
  *[(f"scatter_reduce {how}{'' if keep else ' without itself'}",
     lambda a, i, s, how=how, keep=keep: a.scatter_reduce(0, i, s, how, include_self=keep),
     lambda a, i, s, fn=fn, keep=keep: combined(a, 0, i, s, fn, keep), {"grad": how == "sum", "special": how == "sum", "tol": 16})
    for how, fn in (("sum", lambda x, y: x + y), ("amax", np.maximum), ("amin", np.minimum)) for keep in (True, False)],
  ("scatter_reduce prod", lambda a, i, s: a.scatter_reduce(0, i, s, "prod"),
   lambda a, i, s: combined(a, 0, i, s, lambda x, y: x * y), {"kinds": "f", "tol": 16, "special": False, "grad": False}),
  ("scatter_reduce mean", lambda a, i, s: a.scatter_reduce(0, i, s, "mean"), lambda a, i, s: mean_of(a, 0, i, s),
   {"kinds": "f", "tol": 16})], **{**each, "sizes": False})
rows("at indices", (ONTO, ROWS_OF, FROM), *[
  ("index_add", lambda a, i, s: a.index_add(0, i, s), lambda a, i, s: rows_at(a, 0, i, s, lambda x, y: x + y), {"tol": 16}),
  ("index_add alpha", lambda a, i, s: a.T.index_add(-1, i, s.T, alpha=2),
   lambda a, i, s: rows_at(a.T, 1, i, s.T, lambda x, y: x + 2 * y), {"tol": 16}),
  ("index_copy", lambda a, i, s: a.index_copy(-2, i * 0 + [4, 1, -3], s),
   lambda a, i, s: rows_at(a, 0, i * 0 + [4, 1, -3], s, lambda x, y: y)),
  ("index_put", lambda a, i, s: a.index_put((i * 0 + [4, 1, -3],), s),
   lambda a, i, s: rows_at(a, 0, i * 0 + [4, 1, -3], s, lambda x, y: y)),
  ("index_put accumulate", lambda a, i, s: a.index_put((i,), s, accumulate=True),
   lambda a, i, s: rows_at(a, 0, i, s, lambda x, y: x + y), {"tol": 16}),
  ("put", lambda a, i, s: a.put(i * 0 + [19, 0, -3], s[:, 0]), lambda a, i, s: at_places(a, i * 0 + [19, 0, -3], s[:, 0], False)),
  ("put accumulate", lambda a, i, s: a.put(i, s[:, 0], True), lambda a, i, s: at_places(a, i, s[:, 0], True), {"tol": 16})],
  **{**each, "sizes": False})
rows("at indices", (ONTO, ROWS_OF), *[
  ("index_select", lambda a, i: a.index_select(0, i), lambda a, i: a[i]),
  ("index_select of columns", lambda a, i: a.T.index_select(-1, i), lambda a, i: a.T[:, i]),
  ("index_fill", lambda a, i: a.index_fill(0, i, 2),
   lambda a, i: rows_at(a, 0, i, np.full((len(i), a.shape[1]), 2), lambda x, y: y)),
  ("take", lambda a, i: a.take(i), lambda a, i: a.reshape(-1)[i]),
  ("take_along_dim", lambda a, i: a.take_along_dim(i.reshape(1, -1) // 2, 1),
   lambda a, i: np.take_along_axis(a, np.broadcast_to(i.reshape(1, -1) // 2, (a.shape[0], len(i))), 1)),
  ("take_along_dim of all", lambda a, i: a.take_along_dim(i), lambda a, i: a.reshape(-1)[i])],
  **{**each, "kinds": "fiub", "tol": 0, "sizes": False})
rows("at indices", (S, "any"), *[
  ("select", lambda a: a.select(-1, -2), lambda a: a[:, -2], {"sizes": False}),
  ("narrow", lambda a: a.narrow(1, -3, 2), lambda a: a[:, -3:-1], {"sizes": False}),
  ("masked_select", lambda a, m: a.masked_select(m), lambda a, m: a[m], {"inputs": ((S, "any"), (S, "bool"))}),
  ("masked_scatter", lambda a, m, s: a.masked_scatter(m, s), where_placed, {"inputs": ((S, "any"), (S, "bool"), (S, "any"))})],
  **{**each, "kinds": "fiub", "tol": 0})

rows("order", (S, "distinct"), *[
  ("median", lambda a: a.median(1)[0], lambda a: lower_median(a, 1)),
  ("median of columns", lambda a: a.median(-2, keepdim=True)[0], lambda a: lower_median(a, 0)[None]),
  ("median of all", lambda a: a.median(), lambda a: lower_median(a.reshape(-1), 0)),
  ("nanmedian", lambda a: a.nanmedian(1)[0], lambda a: nan_median(a, 1), {"kinds": "f"}),
  ("kthvalue", lambda a: a.kthvalue(2, 1)[0], lambda a: np.sort(a, 1)[:, 1], {"sizes": False}),
  ("kthvalue of columns", lambda a: a.kthvalue(4, -2)[0], lambda a: np.sort(a, 0)[3], {"sizes": False})],
  **{**each, "tol": 0})
rows("order", (S, "distinct"), *[
  ("median where", lambda a: a.median(1)[1], lambda a: np.argsort(a, 1)[:, (a.shape[1] - 1) // 2], {"sizes": False}),
  ("kthvalue where", lambda a: a.kthvalue(2, 1)[1], lambda a: np.argsort(a, 1)[:, 1], {"sizes": False}),
  ("searchsorted", lambda a, v: a.reshape(-1).sort()[0].searchsorted(v), lambda a, v: np.searchsorted(np.sort(a.reshape(-1)), v),
   {"inputs": ((S, "few"), (S, "few"))}),
  ("searchsorted right", lambda a, v: a.reshape(-1).sort()[0].searchsorted(v, right=True),
   lambda a, v: np.searchsorted(np.sort(a.reshape(-1)), v, "right"), {"inputs": ((S, "few"), (S, "few"))}),
  ("bucketize", lambda a, v: v.bucketize(a.reshape(-1).sort()[0]), lambda a, v: np.searchsorted(np.sort(a.reshape(-1)), v),
   {"inputs": ((S, "few"), (S, "few"))})],
  **{**each, "grad": False, "out": "int32", "special": False})
rows("order", (S, "few"), *[
  ("mode", lambda a: a.mode(1)[0], commonest, {"sizes": False}),
  ("unique", lambda a: a.unique(), lambda a: np.unique(a)),
  ("unique_consecutive", lambda a: a.reshape(-1).sort()[0].unique_consecutive(), lambda a: np.unique(a))],
  **{**each, "grad": False, "tol": 0, "special": False})
rows("order", (S, "few"), ("isin", lambda a, b: a.isin(b), np.isin, {"inputs": ((S, "few"), ((2,), "few"))}),
     **{**each, "grad": False, "out": "bool", "special": False})
rows("order", (S, "distinct"), *[
  *[(f"quantile {how}", lambda a, how=how: a.quantile(0.3, 1, interpolation=how),
     lambda a, how=how: np.quantile(a, 0.3, axis=1, method=how)) for how in ("linear", "lower", "higher", "midpoint", "nearest")],
  ("quantiles", lambda a: a.quantile([0.0, 0.5, 1.0], 0), lambda a: np.quantile(a, [0.0, 0.5, 1.0], axis=0)),
  ("quantile of all", lambda a: a.quantile(0.75), lambda a: np.quantile(a, 0.75)),
  ("nanquantile", lambda a: a.nanquantile(0.5, -1), lambda a: np.nanquantile(a, 0.5, axis=-1)),
  ("histc", lambda a: a.histc(4, -3, 3), lambda a: np.histogram(a, 4, (-3, 3))[0].astype(float), {"grad": False}),
  ("histogram", lambda a: a.histogram(5, range=(-2.0, 4.0)),
   lambda a: tuple([x.astype(float) for x in np.histogram(a, 5, (-2, 4))]),
   {"grad": False}),
  ("std_mean", lambda a: a.std_mean(1), lambda a: (a.std(1, ddof=1), a.mean(1)), {"tol": 16})],
  composed=True, sizes=False, special=False)

rows("pieces and joins", (S, "any"), *[
  ("rot90", lambda a: a.rot90() * 2, lambda a: np.rot90(a) * 2),
  ("rot90 back", lambda a: a.rot90(-1, (1, 0)), lambda a: np.rot90(a)),
  ("movedim", lambda a: a.reshape(2, 2, 6).movedim((0, -1), (-1, 0)),
   lambda a: np.moveaxis(a.reshape(2, 2, 6), (0, -1), (-1, 0)), {"sizes": False}),
  ("swapdims", lambda a: a.swapdims(0, -1), lambda a: a.T), ("unbind", lambda a: a.unbind(-2), tuple),
  ("tensor_split", lambda a: a.tensor_split(4, 1), lambda a: tuple(np.array_split(a, 4, 1))),
  ("tensor_split at", lambda a: a.tensor_split((1, 4), -1), lambda a: tuple(np.split(a, (1, 4), -1)), {"sizes": False}),
  ("hsplit", lambda a: a.hsplit(3), lambda a: tuple(np.hsplit(a, 3)), {"sizes": False}),
  ("vsplit", lambda a: a.vsplit(2), lambda a: tuple(np.vsplit(a, 2)), {"sizes": False}),
  ("dsplit", lambda a: a.reshape(2, 2, 6).dsplit(3), lambda a: tuple(np.dsplit(a.reshape(2, 2, 6), 3)), {"sizes": False}),
  ("hstack", lambda a: Tensor.hstack(a, a * 2), lambda a: np.hstack([a, a * 2])),
  ("vstack", lambda a: Tensor.vstack([a, a[0]]), lambda a: np.vstack([a, a[0]]), {"sizes": False}),
  ("dstack", lambda a: Tensor.dstack(a, a * 2), lambda a: np.dstack([a, a * 2])),
  ("block_diag", lambda a: Tensor.block_diag(a, a.T), lambda a: diagonals(a, a.T)),
  ("cartesian_prod", lambda a: a[0].cartesian_prod(a[:, 1]), lambda a: pairs(a[0], a[:, 1]), {"sizes": False}),
  ("diag_embed", lambda a: a.diag_embed(), lambda a: np.stack([np.diag(r) for r in a]), {"sizes": False}),
  ("diag_embed elsewhere", lambda a: a.diag_embed(1, 0, -1),
   lambda a: np.stack([np.diag(r, 1) for r in a], 1), {"sizes": False}),
  ("fliplr", lambda a: a.fliplr(), np.fliplr), ("flipud", lambda a: a.flipud(), np.flipud),
  ("expand_as", lambda a: a[:1].expand_as(a) * 2, lambda a: np.broadcast_to(a[:1], a.shape) * 2, {"sizes": False}),
  ("view_as", lambda a: a.view_as(a.T), lambda a: a.reshape(a.T.shape)),
  ("atleast", lambda a: (a[0, 0].atleast_1d(), a[0].atleast_2d(), a.atleast_3d()),
   lambda a: (np.atleast_1d(a[0, 0]), np.atleast_2d(a[0]), np.atleast_3d(a)), {"sizes": False})],
  **{**each, "tol": 0})
rows("pieces and joins", (S, "any"), *[
  ("vander", lambda a: a[:, 0].vander(3), lambda a: np.vander(a[:, 0], 3), {"sizes": False}),
  ("vander increasing", lambda a: a[:, 0].vander(4, increasing=True), lambda a: np.vander(a[:, 0], 4, increasing=True),
   {"sizes": False})], composed=True, tol=16, special=False)

# ---- other names, windows, pools in one and three dimensions
rows("other names", (S, "away"), *[
  ("absolute", lambda a: a.absolute(), np.abs, {"kinds": "fi"}), ("positive", lambda a: a.positive() * 2, lambda a: a * 2),
  ("fix", lambda a: a.fix(), np.trunc), ("memory", lambda a: a.clone().contiguous() + a.contiguous_backward(), lambda a: 2 * a),
  ("true_divide", lambda a: a.true_divide(3), lambda a: a / 3, {"out": "float", "kinds": "fi"}),
  ("to", lambda a: a.to(a.device).to_device(a.device).type_as(a) * 3, lambda a: a * 3),
  ("windows", lambda a: tuple([a * w.cast(a.dtype) for w in (
    Tensor.hann_window(6, device=a.device), Tensor.hamming_window(6, False, device=a.device),
    Tensor.blackman_window(6, device=a.device), Tensor.bartlett_window(6, False, device=a.device),
    Tensor.kaiser_window(6, False, 5.0, device=a.device))]),
   lambda a: (a * np.hanning(7)[:-1], a * np.hamming(6), a * np.blackman(7)[:-1], a * np.bartlett(6), a * np.kaiser(6, 5.0)),
   {"sizes": False, "tol": 16, "special": False}),
  ("tril_indices", lambda a: a[tuple(Tensor.tril_indices(4, 6, 1, device=a.device).unbind())],
   lambda a: a[np.tril_indices(4, 1, 6)],
   {"sizes": False}),
  ("triu_indices", lambda a: a[tuple(Tensor.triu_indices(4, 6, -1, device=a.device).unbind())],
   lambda a: a[np.triu_indices(4, -1, 6)],
   {"sizes": False})], composed=True)
rows("other names", (S, "any"), *[
  ("bitwise_not", lambda a: a.bitwise_not(), np.invert), ("invert", lambda a: a.invert(), np.invert),
  ("bitwise_left_shift", lambda a: a.bitwise_left_shift(2), lambda a: a << 2),
  ("bitwise_right_shift", lambda a: a.bitwise_right_shift(1), lambda a: a >> 1)], kinds="iu", grad=False, composed=True)


def pooled(x: Array, k: int, fn: Callable[..., Any]) -> Array:
  """``fn`` of windows of ``k`` along all dims but the first two, side by side."""
  n = x.ndim - 2
  parts = x.reshape(*x.shape[:2], *[m for s in x.shape[2:] for m in (s // k, k)])
  return fn(parts, axis=tuple(range(3, 3 + 2 * n, 2)))


def unpooled(x: Array, k: int) -> Array:
  """What is largest in its window stays, the rest is 0."""
  big = pooled(x, k, np.max)
  for axis in range(2, x.ndim): big = np.repeat(big, k, axis)
  return np.where(x == big, x, 0)


rows("pools", (((2, 3, 8), "distinct"), ((1, 2, 4, 2, 6), "distinct")), *[
  ("lp_pool1d", lambda a, b: a.lp_pool1d(2, 2), lambda a, b: np.sqrt(pooled(a ** 2, 2, np.sum)), {"tol": 16}),
  ("lp_pool3d", lambda a, b: b.lp_pool3d(2, 2), lambda a, b: np.sqrt(pooled(b ** 2, 2, np.sum)), {"tol": 16}),
  ("max_unpool1d", lambda a, b: Tensor.max_unpool1d(*a.max_pool1d(2, return_indices=True), 2), lambda a, b: unpooled(a, 2)),
  ("max_unpool3d", lambda a, b: Tensor.max_unpool3d(*b.max_pool3d(2, return_indices=True), 2), lambda a, b: unpooled(b, 2)),
  ("adaptive_max_pool3d", lambda a, b: b.adaptive_max_pool3d((2, 1, 3)), lambda a, b: pooled(b, 2, np.max))],
  composed=True, sizes=False, special=False)
