"""The table of operations, continued: what PyTorch has beside the rest: sampling by grids, copies with a part."""
from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from ntgrad import Tensor

from .ops import rows

Array = np.ndarray[Any, Any]


# ---- sampling
def brought_back(at: float, size: int, padding: str, corners: bool) -> float:
  """A place outside, at the border or mirrored."""
  if padding == "reflection":
    low, span = (0.0, size - 1.0) if corners else (-0.5, float(size))
    turns, rest = divmod(abs(at - low), span)
    at = low + (rest if turns % 2 == 0 else span - rest)
  return at if padding == "zeros" else min(max(at, 0.0), size - 1.0)


def taps(x: float, size: int, mode: str, padding: str, corners: bool) -> list[tuple[int, float]]:
  at = (x + 1) / 2 * (size - 1) if corners else ((x + 1) * size - 1) / 2
  if mode == "nearest": return [(int(np.rint(brought_back(at, size, padding, corners))), 1.0)]
  if mode == "bilinear": at = brought_back(at, size, padding, corners)
  first, t = math.floor(at), at - math.floor(at)
  if mode == "bilinear": return [(first, 1 - t), (first + 1, t)]
  def weight(d: float) -> float:
    d, a = abs(d), -0.75
    return (a + 2) * d ** 3 - (a + 3) * d ** 2 + 1 if d <= 1 else a * (d ** 3 - 5 * d ** 2 + 8 * d - 4)
  return [(int(brought_back(first + k, size, padding, corners)), weight(t - k)) for k in (-1, 0, 1, 2)]


def sampled(x: Array, grid: Array, mode: str = "bilinear", padding: str = "zeros", corners: bool = False) -> Array:
  n, sizes = grid.shape[-1], x.shape[2:]
  out = np.zeros((*x.shape[:2], *grid.shape[1:-1]), x.dtype)
  for b, *o in np.ndindex(*grid.shape[:-1]):
    lines = [taps(float(grid[(b, *o)][n - 1 - k]), s, mode, padding, corners) for k, s in enumerate(sizes)]
    for chosen in itertools.product(*lines):
      if all(0 <= i < s for (i, _), s in zip(chosen, sizes)):
        out[(b, slice(None), *o)] += x[(b, slice(None), *[i for i, _ in chosen])] * math.prod([w for _, w in chosen])
  return out


def regular(m: Array, sizes: tuple[int, ...], corners: bool) -> Array:
  lines = [np.linspace(-1, 1, s) if corners else (2 * np.arange(s) + 1) / s - 1 for s in sizes]
  base = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(sizes)], -1)
  return np.einsum("...k,njk->n...j", base, m)


X2, G2, X3, G3 = (2, 3, 4, 5), (2, 3, 2, 2), (1, 2, 3, 2, 4), (1, 2, 1, 3, 3)
rows("sampling", ((X2, "any"), (G2, "away")), *[
  (f"grid_sample {mode} {padding}{' corners' * corners}",
   lambda x, g, m=mode, p=padding, c=corners: x.grid_sample(g * 0.37, m, p, c),
   lambda x, g, m=mode, p=padding, c=corners: sampled(x, g * 0.37, m, p, c))
  for mode, padding, corners in (("bilinear", "zeros", False), ("bilinear", "border", True), ("bilinear", "reflection", False),
                                 ("nearest", "zeros", False), ("nearest", "reflection", True), ("bicubic", "zeros", True),
                                 ("bicubic", "reflection", False))], kinds="f", composed=True, tol=64, sizes=False, special=False)
rows("sampling", ((X3, "any"), (G3, "unit")), *[
  ("grid_sample of 3", lambda x, g: x.grid_sample(g), sampled),
  ("grid_sample of 3 mirrored", lambda x, g: x.grid_sample(g * 2, padding_mode="reflection", align_corners=True),
   lambda x, g: sampled(x, g * 2, padding="reflection", corners=True))],
  kinds="f", composed=True, tol=64, sizes=False, special=False)
rows("sampling", ((2, 2, 3), "any"), *[
  ("affine_grid", lambda m: m.affine_grid((2, 1, 3, 4)), lambda m: regular(m, (3, 4), False)),
  ("affine_grid corners", lambda m: m.affine_grid((2, 5, 2, 3), True), lambda m: regular(m, (2, 3), True)),
  ("affine_grid of 3", lambda m: m[:, :1].cat(m, dim=1).pad((0, 1)).affine_grid((2, 1, 2, 3, 2)),
   lambda m: regular(np.pad(np.concatenate([m[:, :1], m], 1), ((0, 0), (0, 0), (0, 1))), (2, 3, 2), False))],
  composed=True, tol=16, sizes=False)


def fractional(x: Array, k: int, out: int, u: float) -> Array:
  """Windows whose offset is u in both of the last dims."""
  def starts(size: int) -> list[int]:
    a = (size - k) / (out - 1)
    return [*[int((i + u) * a) - int(u * a) for i in range(out - 1)], size - k]
  return np.stack([np.stack([x[..., i:i + k, j:j + k].max((-2, -1)) for j in starts(x.shape[-1])], -1)
                   for i in starts(x.shape[-2])], -2)


def offsets(x: Tensor) -> Tensor: return Tensor.full((2, 3, 2), 0.375, device=x.device)


rows("sampling", ((2, 3, 9, 8), "distinct"), *[
  ("fractional_max_pool2d", lambda x: x.fractional_max_pool2d(2, 4, _random_samples=offsets(x)),
   lambda x: fractional(x, 2, 4, 0.375)),
  ("fractional_max_pool2d without n", lambda x: x[0].fractional_max_pool2d(3, 3, _random_samples=offsets(x)[:1]),
   lambda x: fractional(x[0], 3, 3, 0.375))], composed=True, sizes=False, special=False)
rows("sampling", ((2, 6, 5), "any"), ("channel_shuffle", lambda x: x.channel_shuffle(3),
     lambda x: x.reshape(2, 3, 2, 5).swapaxes(1, 2).reshape(2, 6, 5)), kinds="fiub", tol=0, composed=True, sizes=False)


# ---- losses
def label_margins(x: Array, y: Array) -> Array:
  """Per row; the target's classes end at the first -1."""
  out = []
  for row, t in zip(x, y):
    mine = list(itertools.takewhile(lambda c: c >= 0, t))
    others = [i for i in range(len(row)) if i not in mine]
    out.append(sum(max(0.0, 1 - row[c] + row[i]) for c in mine for i in others) / len(row))
  return np.array(out)


LABELS = np.array([[1, 2, -1, 0, 3], [0, -1, 0, 0, 0], [4, 4, 1, -1, -1], [-1, 0, 1, 2, 3], [0, 1, 2, 3, 4], [3, -1, -1, -1, -1]],
                  np.int32)
rows("further losses", ((6, 5), "any"), *[
  ("multilabel_margin", lambda x: x.multilabel_margin_loss(LABELS, "none"), lambda x: label_margins(x, LABELS)),
  ("multilabel_margin mean", lambda x: x.multilabel_margin_loss(Tensor(LABELS, device=x.device)),
   lambda x: label_margins(x, LABELS).mean())], composed=True, tol=16, sizes=False, special=False)
rows("further losses", (((4, 5), "any"),) * 3, *[
  ("triplet with distance",
   lambda a, p, n: a.triplet_margin_with_distance_loss(p, n, distance_function=lambda u, v: (u - v).abs().sum(-1), swap=True),
   lambda a, p, n: np.maximum(0, np.abs(a - p).sum(-1) - np.minimum(np.abs(a - n).sum(-1), np.abs(p - n).sum(-1)) + 1).mean()),
  ("triplet with the usual distance", lambda a, p, n: a.triplet_margin_with_distance_loss(p, n, margin=2.0, reduction="none"),
   lambda a, p, n: np.maximum(0, np.sqrt(((a - p + 1e-6) ** 2).sum(-1)) - np.sqrt(((a - n + 1e-6) ** 2).sum(-1)) + 2))],
  composed=True, tol=32, sizes=False, special=False)

# ---- products
rows("further products", (((5, 3), "any"), ((2, 5, 4), "any"), ((2, 4, 3), "any")), *[
  ("addbmm", lambda a, x, y: a.addbmm(x, y, beta=2, alpha=3), lambda a, x, y: 2 * a + 3 * (x @ y).sum(0))],
  composed=True, tol=64, special=False)
rows("further products", (((5, 3), "any"), ((5,), "any"), ((3,), "any")), *[
  ("addr", lambda a, x, y: a.addr(x, y, beta=2, alpha=3), lambda a, x, y: 2 * a + 3 * np.outer(x, y)),
  ("ger", lambda a, x, y: x.ger(y), lambda a, x, y: np.outer(x, y))], composed=True, special=False)
rows("further products", ((5, 3), "any"), *[
  ("pdist", lambda x: x.pdist(),
   lambda x: np.array([np.sqrt(((a - b) ** 2).sum()) for a, b in itertools.combinations(x, 2)]).reshape(-1)),
  ("pdist of 1", lambda x: x.pdist(1.0), lambda x: np.array([np.abs(a - b).sum() for a, b in itertools.combinations(x, 2)]))],
  composed=True, tol=16, sizes=False, special=False)
rows("further products", ((3, 4, 5), "any"), *[
  ("renorm", lambda x: x.renorm(2, 1, 1.5), lambda x: x * limited(x, 1, 2, 1.5)),
  ("renorm of 1", lambda x: x.renorm(1, -1, 3.0), lambda x: x * limited(x, 2, 1, 3.0))],
  composed=True, tol=32, sizes=False, special=False)


def limited(x: Array, d: int, p: int, most: float) -> Array:
  rest = tuple(k for k in range(x.ndim) if k != d)
  size = (np.abs(x) ** p).sum(rest, keepdims=True) ** (1 / p)
  return np.where(size > most, most / (size + 1e-7), 1)


# ---- linear algebra
def positive(x: Any, eye: Any) -> Any: return x @ x.swapaxes(-2, -1) + 2 * eye
def eye(x: Tensor) -> Tensor: return Tensor.eye(3, dtype=x.dtype, device=x.device)


rows("further linear algebra", ((2, 3, 3), "any"), *[
  ("logdet", lambda x: positive(x, eye(x)).logdet(), lambda x: np.log(np.linalg.det(positive(x, np.eye(3))))),
  ("svdvals", lambda x: x.svdvals(), lambda x: np.linalg.svd(x, compute_uv=False)),
  ("eigvalsh", lambda x: (x + x.mT).eigvalsh(), lambda x: np.linalg.eigvalsh(x + x.swapaxes(-2, -1))),
  ("pinverse", lambda x: positive(x, eye(x)).pinverse(), lambda x: np.linalg.inv(positive(x, np.eye(3)))),
  ("cholesky_inverse", lambda x: (x.tril(-1) * 0.3 + eye(x)).cholesky_inverse(),
   lambda x: np.linalg.inv((lambda l: l @ l.swapaxes(-2, -1))(np.tril(x, -1) * 0.3 + np.eye(3))))],
  composed=True, tol=512, sizes=False, special=False)
rows("further linear algebra", (((6, 6), "any"), ((2, 3), "any")), *[
  ("tensorinv", lambda x, b: (x * 0.1 + Tensor.eye(6, dtype=x.dtype, device=x.device)).reshape(2, 3, 6).tensorinv(2),
   lambda x, b: np.linalg.inv(x * 0.1 + np.eye(6)).reshape(6, 2, 3)),
  ("tensorsolve", lambda x, b: (x * 0.1 + Tensor.eye(6, dtype=x.dtype, device=x.device)).reshape(2, 3, 3, 2).tensorsolve(b),
   lambda x, b: np.linalg.solve(x * 0.1 + np.eye(6), b.reshape(-1)).reshape(3, 2))],
  composed=True, tol=512, sizes=False, special=False)


# ---- copies with a part, places
def having(x: Array, at: Any, y: Array) -> Array:
  out = x.copy()
  out[at] = y
  return out


def diagonal(x: Array, y: Array, offset: int) -> Array:
  i = np.arange(len(y))
  return having(x, (i + max(-offset, 0), i + max(offset, 0)), y)


rows("parts", (((4, 5), "any"), ((4,), "any")), *[
  ("select_scatter", lambda x, y: x.select_scatter(y, -1, -2), lambda x, y: having(x, (slice(None), 3), y)),
  ("slice_scatter", lambda x, y: x.slice_scatter(y.unsqueeze(1).expand(4, 2), 1, 1, None, 2),
   lambda x, y: having(x, (slice(None), slice(1, None, 2)), y[:, None])),
  ("diagonal_scatter", lambda x, y: x.diagonal_scatter(y, 1), lambda x, y: diagonal(x, y, 1)),
  ("diagonal_scatter below", lambda x, y: x.diagonal_scatter(y[:3], -1), lambda x, y: diagonal(x, y[:3], -1)),
  ("diagflat", lambda x, y: y.reshape(2, 2).diagflat(-1), lambda x, y: np.diag(y, -1))],
  kinds="fiub", tol=0, composed=True, sizes=False)
rows("parts", ((7, 3), "any"), *[
  ("fill_diagonal_", lambda x: (x + 0).fill_diagonal_(3.0), lambda x: filled(x, False)),
  ("fill_diagonal_ wrapped", lambda x: (x + 0).fill_diagonal_(3.0, True), lambda x: filled(x, True))],
  kinds="fi", tol=0, composed=True, grad=False, sizes=False)
rows("parts", ((4, 3), "few"), *[
  ("nonzero_static", lambda x: x.nonzero_static(size=14, fill_value=-2),
   lambda x: np.concatenate([np.argwhere(x), np.full((14, 2), -2)])[:14].astype(np.int32)),
  ("nonzero_static of less", lambda x: x.nonzero_static(size=2), lambda x: np.concatenate(
    [np.argwhere(x), np.full((2, 2), -1)])[:2].astype(np.int32))],
  kinds="fiub", tol=0, composed=True, grad=False, out="int32", sizes=False)
rows("parts", ((6,), "ix:12"), ("unravel_index", lambda x: x.unravel_index((3, 4)),
     lambda x: tuple(i.astype(np.int32) for i in np.unravel_index(x % 12, (3, 4)))), kinds="i", tol=0, composed=True, grad=False,
     out="int32")


def filled(x: Array, wrap: bool) -> Array:
  out = x.copy()
  np.fill_diagonal(out, 3, wrap)
  return out
