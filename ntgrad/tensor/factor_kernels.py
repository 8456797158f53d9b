"""Kernels of linear algebra in the tile language: each program has one matrix of a batch, as a block that its loops go through.

Whoever wants to read one: a block is a whole matrix, ``rows == j`` is row j of it, and a sum over a block that is zero elsewhere
takes row or column j out. A matrix of n rows takes n such steps of O(n * n) work.
"""
from __future__ import annotations

import functools
from typing import Any

from ntgrad import tile
from ntgrad.tile import Tensor, TileKernel, language as tl

# mypy does not know the language's blocks


def _whole(*parameters: Any) -> Any:
  """All of a matrix for each program."""
  return tuple([p if p.constexpr else p.tile((1, *[-1] * (p.ndim - 1))) for p in parameters])


def _columns(t: Any, b: Any, x: Any, lower: Any) -> Any:
  """All of the triangle, some columns of the right side, for each program."""
  width = tile.Symbol("WIDTH", constexpr=True)
  b, x = [y.tile((1, -1, width)) for y in (b, x)]
  return t.tile((1, -1, -1)).expand((-1, -1, b.shape[2])), b, x, lower


def _element(x: Any, at: Any, j: Any) -> Any: return tl.sum(tl.where(at == j, x, 0))
def _column(x: Any, at: Any, j: Any) -> Any: return tl.sum(tl.where(at[None, :] == j, x, 0.0), axis=1)
def _row(x: Any, at: Any, j: Any) -> Any: return tl.sum(tl.where(at[:, None] == j, x, 0.0), axis=0)
def _identity(a: Any, rows: Any, columns: Any) -> Any:
  return tl.where(rows[:, None] == columns[None, :], tl.zeros((rows.shape[0], columns.shape[0]), a.dtype) + 1.0, 0.0)


def _scaled(x: Any) -> Any:
  """A matrix whose largest element is 1, and what it was divided by."""
  most = tl.max(tl.abs(x))
  scale = tl.where((most > 0.0) & (most < float("inf")), most, 1.0)
  return x / scale, scale


def _across(x: Any, order: Any) -> Any:
  """The columns in an order."""
  return tl.gather(x, tl.broadcast_to(order[None, :], (x.shape[0], order.shape[0])), 1)


def _cholesky(a: Any, l: Any) -> None:
  n = a.shape[1]
  at = tl.arange(0, n)
  left, out = a[0], tl.zeros((n, n), a.dtype)
  for j in range(n):
    column = _column(left, at, j)
    pivot = _element(column, at, j)
    column = tl.where(at >= j, column / tl.sqrt(pivot), 0.0)
    left = left - column[:, None] * column[None, :]
    out = tl.where(at[None, :] == j, column[:, None], out)
  l = out[None]  # noqa: F841


def _lu(a: Any, lu: Any, order: Any, sign: Any) -> None:
  """The rows of a in an order such that it is L U, with the elements of L and U in one matrix."""
  n = a.shape[1]
  at = tl.arange(0, n)
  x, place, parity = a[0], at, tl.sum(a[0]) * 0.0 + 1.0
  for j in range(n):
    column = _column(x, at, j)
    size = tl.where(at >= j, tl.abs(column), -1.0)
    p = tl.max(tl.where(at >= j, tl.where(size == tl.max(size), n - at, 0), 0))
    p = tl.where(p > 0, n - p, j)      # the first of the largest; none is where there are NaNs
    row, other = _row(x, at, j), _row(x, at, p)
    x = tl.where(at[:, None] == j, other[None, :], tl.where(at[:, None] == p, row[None, :], x))
    mine, others = _element(place, at, j), _element(place, at, p)
    place = tl.where(at == j, others, tl.where(at == p, mine, place))
    parity = tl.where(p == j, parity, -parity)
    column = _column(x, at, j)
    pivot = _element(column, at, j)
    factor = tl.where(at > j, column / tl.where(pivot == 0.0, 1.0, pivot), 0.0)
    x = x - factor[:, None] * tl.where(at > j, other, 0.0)[None, :]
    x = tl.where((at[None, :] == j) & (at[:, None] > j), factor[:, None], x)
  lu = x[None]  # noqa: F841
  order = place[None, None]  # noqa: F841
  sign = tl.full((1, 1, 1), 1.0, sign.dtype) * parity  # noqa: F841


def _triangular(t: Any, b: Any, x: Any, lower: Any) -> None:
  """t x = b, a row of x after the other."""
  n = b.shape[1]
  at = tl.arange(0, n)
  left = b[0]
  for k in range(n):
    j = k if lower else n - 1 - k
    column = tl.load(t.source[tl.program_id(0), at, j])
    pivot = _element(column, at, j)
    row = _row(left, at, j) / pivot
    later = at > j if lower else at < j
    left = left - tl.where(later, column, 0.0)[:, None] * row[None, :]
    left = tl.where(at[:, None] == j, row[None, :], left)
  x = left[None]  # noqa: F841


def _qr(a: Any, q: Any, r: Any) -> None:
  """Householder's reflections; R has the rows of all of a."""
  m, n, k = a.shape[1], a.shape[2], q.shape[2]
  rows, columns, across = tl.arange(0, m), tl.arange(0, n), tl.arange(0, k)
  x, scale = _scaled(a[0])
  reflections = tl.zeros((m, n), a.dtype)
  for j in range(min(m, n)):
    column = tl.where(rows >= j, _column(x, columns, j), 0.0)
    first = _element(column, rows, j)
    below = tl.sum(tl.where(rows > j, column * column, 0.0))
    length = tl.sqrt(below + first * first)
    v = tl.where(rows == j, column + tl.where(first < 0.0, -length, length), column)
    norm = tl.sum(v * v)
    v = v * tl.where(below == 0.0, 0.0, tl.sqrt(2.0 / tl.where(below == 0.0, 1.0, norm)))   # I - v v'
    x = x - v[:, None] * tl.sum(v[:, None] * x, axis=0)[None, :]
    x = tl.where((columns[None, :] == j) & (rows[:, None] > j) & (below == below), 0.0, x)
    reflections = tl.where(columns[None, :] == j, v[:, None], reflections)
  r = (x * scale)[None]  # noqa: F841
  out = _identity(a, rows, across)
  for i in range(min(m, n)):
    v = _column(reflections, columns, min(m, n) - 1 - i)
    out = out - v[:, None] * tl.sum(v[:, None] * out, axis=0)[None, :]
  q = out[None]  # noqa: F841


def _partner(at: Any, step: Any, n: Any) -> Any:
  """The column that each of n is paired with in a step of a round-robin schedule; itself where it has none."""
  m = n - 1 + n % 2
  p = (step - at + m) % m
  if n % 2 == 1: return p
  last = (step * (n // 2)) % m   # the column that the last one is paired with
  return tl.where(at == m, last, tl.where(p == at, m, p))


def _rotation(none: Any, mine: Any, theirs: Any, both: Any, at: Any, p: Any) -> Any:
  """Cosine and sine of the angle that each pair is rotated by, 0 where ``none``: its tangent is the smaller root t of
  t * t + 2 * zeta * t = 1, with its sign for the one of a pair, with the other for the other one."""
  zeta = (theirs - mine) / (2.0 * tl.where(none, 1.0, both))
  sign = tl.where(zeta == 0.0, tl.where(at < p, 1.0, -1.0), tl.where(zeta < 0.0, -1.0, 1.0))
  t = tl.where(none, 0.0, sign / (tl.abs(zeta) + tl.sqrt(zeta * zeta + 1.0)))
  c = 1.0 / tl.sqrt(1.0 + t * t)
  return c, t * c


def _eigh(a: Any, w: Any, v: Any) -> None:
  """Jacobi's rotations: each step makes n / 2 elements beside the diagonal zero, in pairs that share no row."""
  n = a.shape[1]
  at = tl.arange(0, n)
  diagonal = at[:, None] == at[None, :]
  x, scale = _scaled(a[0])
  x = tl.where(at[:, None] >= at[None, :], x, tl.trans(x))   # the lower triangle says it all
  vectors = _identity(a, at, at)
  eps = 1.2e-7 if a.dtype.itemsize == 4 else 2.2e-16
  wrong = tl.sum(x) * 0.0                              # NaN where there is a NaN or an infinity
  beside = tl.sum(tl.where(diagonal, 0.0, x * x))
  sweep = 0
  while (beside > eps * eps * tl.sum(x * x)) & (sweep < 30):
    for step in range(n - 1 + n % 2):
      p = _partner(at, step, n)
      mine = tl.sum(tl.where(diagonal, x, 0.0), axis=1)
      theirs = tl.gather(mine, p, 0)
      both = tl.sum(tl.where(at[None, :] == p[:, None], x, 0.0), axis=1)
      none = (both == 0.0) | (p == at)
      c, s = _rotation(none, mine, theirs, both, at, p)
      across = tl.broadcast_to(p[None, :], (n, n))
      x = c[:, None] * x - s[:, None] * tl.gather(x, tl.broadcast_to(p[:, None], (n, n)), 0)
      x = c[None, :] * x - s[None, :] * tl.gather(x, across, 1)
      x = tl.where((at[None, :] == p[:, None]) & (p != at)[:, None], x * 0.0, x)
      vectors = c[None, :] * vectors - s[None, :] * tl.gather(vectors, across, 1)
    beside = tl.sum(tl.where(diagonal, 0.0, x * x))
    sweep += 1
  values = tl.sum(tl.where(diagonal, x, 0.0), axis=1)
  less = (values[None, :] < values[:, None]) | ((values[None, :] == values[:, None]) & (at[None, :] < at[:, None]))
  rank = tl.sum(tl.where(less, 1, 0), axis=1)
  order = at * 0
  for k in range(n): order = tl.where(at == _element(rank, at, k), k, order)
  w = (tl.gather(values, order, 0) * scale + wrong)[None, None]  # noqa: F841
  v = (_across(vectors, order) + wrong)[None]  # noqa: F841


def _svd(a: Any, u: Any, v: Any) -> None:
  """Rotations of columns until all are orthogonal (Hestenes): a v = u, the longest column first."""
  n = a.shape[2]
  at = tl.arange(0, n)
  x, scale = _scaled(a[0])
  vectors = _identity(a, at, at)
  eps = 1.2e-7 if a.dtype.itemsize == 4 else 2.2e-16
  wrong = tl.sum(x) * 0.0                              # NaN where there is a NaN or an infinity
  worst = wrong + 1.0
  sweep = 0
  while (worst > eps) & (sweep < 30):
    worst = worst * 0.0
    for step in range(n - 1 + n % 2):
      p = _partner(at, step, n)
      other = _across(x, p)
      mine = tl.sum(x * x, axis=0)
      theirs = tl.gather(mine, p, 0)
      both = tl.sum(x * other, axis=0)
      size = tl.sqrt(mine) * tl.sqrt(theirs)
      none = (p == at) | (tl.abs(both) <= eps * size)
      worst = tl.maximum(worst, tl.max(tl.where(none, 0.0, tl.abs(both) / tl.where(none, 1.0, size))))
      c, s = _rotation(none, mine, theirs, both, at, p)
      x = c[None, :] * x - s[None, :] * other
      vectors = c[None, :] * vectors - s[None, :] * _across(vectors, p)
    sweep += 1
  size = tl.sum(x * x, axis=0)
  more = (size[None, :] > size[:, None]) | ((size[None, :] == size[:, None]) & (at[None, :] < at[:, None]))
  rank = tl.sum(tl.where(more, 1, 0), axis=1)
  order = at * 0
  for k in range(n): order = tl.where(at == _element(rank, at, k), k, order)
  u = (_across(x, order) * scale + wrong)[None]  # noqa: F841
  v = (_across(vectors, order) + wrong)[None]  # noqa: F841


# ---- kernels: a matrix's sizes are numbers in them, a batch's is any
Shape = tuple[int, int]


@functools.lru_cache(256)
def _made(application: Any, *shapes: Shape | None, arrangement: Any = _whole) -> TileKernel:
  """The kernel for matrices of these shapes (None: a number that is part of it)."""
  tensors = [Tensor(0, constexpr=True) if s is None else Tensor(shape=(None, *s)) for s in shapes]
  side = max([n for s in shapes if s is not None for n in s])
  warps = 4 if side <= 32 else 8 if side <= 64 else 16     # a block lies in their registers
  return tile.make(arrangement, application, tensors, kernel_name=application.__name__[1:], num_warps=warps)


def cholesky(n: int) -> TileKernel: return _made(_cholesky, (n, n), (n, n))
def lu(n: int) -> TileKernel: return _made(_lu, (n, n), (n, n), (1, n), (1, 1))
def triangular(n: int, m: int) -> TileKernel: return _made(_triangular, (n, n), (n, m), (n, m), None, arrangement=_columns)
def qr(m: int, n: int, k: int) -> TileKernel: return _made(_qr, (m, n), (m, k), (m, n))
def eigh(n: int) -> TileKernel: return _made(_eigh, (n, n), (1, n), (n, n))
def svd(m: int, n: int) -> TileKernel: return _made(_svd, (m, n), (m, n), (n, n))
