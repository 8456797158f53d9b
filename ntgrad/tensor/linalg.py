"""Linear algebra: factorisations, solutions, determinants, norms of matrices, covariance.

All take batches (.., m, n). Values are computed when a method is called, by tile kernels (a whole matrix for each program), with
gradients (``factors.py``); small floats are computed in float32 and rounded, ints give float32. Results have no names of
dimensions. A matrix that a program cannot keep (of float32 from some 120 rows on for ``eigh`` and ``svd``, 160 for ``qr``, 200
for ``cholesky``, 256 for what takes LU) goes through numpy on the host, which under a jit is a CaptureError; triangles may be of
any size."""
from __future__ import annotations

import math
from collections import namedtuple
from typing import Any, Self, Sequence

from ntgrad.codegen.ir import ArgumentError, AxisError, DType, DTypeError, ShapeError, acc_dtype, as_float, promote, shown
from ntgrad.core import axes_of, whole_number
from ntgrad.graph import Operand, checked, nodes as graph, text
from ntgrad.graph.nodes import Shape

from .elementwise import by_squaring, info_of
from .products import Products
from .promotion import broadcast_shape, common_device
from .reduction import Axis

# what methods with several results give
LeastSquares = namedtuple("LeastSquares", "solution residuals rank singular_values")
SignAndLogarithm = namedtuple("SignAndLogarithm", "sign logabsdet")
Eigen = namedtuple("Eigen", "eigenvalues eigenvectors")
QR = namedtuple("QR", "Q R")
SVD = namedtuple("SVD", "U S Vh")


def _dtype(*tensors: Any) -> DType:
  """What results have: the dtype of the floats, float32 for ints."""
  return as_float(promote(*[t.dtype for t in tensors]))


def _factors() -> Any:
  """factors.py, which is made of tensors itself."""
  from . import factors
  return factors


def _shaped(x: Any, batch: Shape, dtype: DType, vector: bool = False) -> Any:
  """Results (b, ..), or right sides (b, n, 1) that were a vector, with the dimensions that there were in front."""
  return x.reshape(*batch, *(x.shape[1:-1] if vector else x.shape[1:])).cast(dtype)


def _count(s: Any, relative: float) -> Any: return (s > s[..., :1] * relative).sum(-1) if s.shape[-1] else s.sum(-1).cast("int64")


@checked
class Linalg(Products):
  """Linear algebra: factorisations, solutions, determinants, norms, covariance."""
  __slots__ = ()

  def _matrices(self, name: str, square: bool) -> None:
    """Raises ShapeError for what are no (square) matrices."""
    s = self.shape
    if len(s) < 2 or square and s[-1] != s[-2]:
      raise ShapeError(f"{name}: shape {text(self)}; it takes {'square ' * square}matrices (.., {'n' if square else 'm'}, n)")

  def _batch(self, name: str, square: bool = False) -> tuple[Any, Shape, DType]:
    """Matrices (b, m, n) in float32 or float64, the dimensions before the last two, and the dtype of results."""
    self._matrices(name, square)
    s, d = self.shape, _dtype(self)
    return self.named().cast(acc_dtype(d)).reshape(math.prod(s[:-2]), *s[-2:]), s[:-2], d

  def _batched(self, name: str, square: bool, *options: Any) -> Any:
    """What a function of ``factors.py`` gives, one result or several."""
    a, batch, d = self._batch(name, square)
    out = getattr(_factors(), name)(a, *options)
    return tuple([_shaped(x, batch, d) for x in out]) if isinstance(out, tuple) else _shaped(out, batch, d)

  def _both(self, name: str, other: Any) -> tuple[Any, ...]:
    """Square matrices and right sides (b, n, k), in one dtype; then what ``_shaped`` takes."""
    self._matrices(name, True)
    common_device(name, self.lazydata, other.lazydata)
    right, vector, batch = self._right_side(name, other)
    d = _dtype(self, other)
    return *[x.cast(acc_dtype(d)).expand(*batch, *x.shape[-2:]).reshape(math.prod(batch), *x.shape[-2:])
             for x in (self.named(), right)], batch, d, vector

  def _right_side(self, name: str, other: Any) -> tuple[Any, bool, Shape]:
    """Right sides (.., rows, k) of these matrices, whether they were vectors, and the dimensions before both."""
    vector = other.ndim == 1 or (self.ndim == other.ndim + 1 and other.shape == self.shape[:-1])
    right, m = other.named().unsqueeze(-1) if vector else other.named(), self.shape[-2]
    if right.ndim < 2 or right.shape[-2] != m:
      raise ShapeError(f"{name}: shapes {text(self)} and {text(other)}; the right side has {m} rows, (.., {m}, k) or ({m},)")
    return right, vector, broadcast_shape(name, self.shape[:-2], right.shape[:-2])

  # ---- solutions
  def solve(self, B: Operand, left: bool = True) -> Self:
    """The X with ``self @ X = B`` (``left=False``: ``X @ self = B``): (.., n, n) and (.., n, k) or (n,); by LU with pivots. A
    singular matrix gives infinities or NaN. Raises ShapeError."""
    if not left and self.ndim > 1: return self.mT.solve(B.mT).mT if B.ndim > 1 else self.mT.solve(B)
    a, b, *result = self._both("solve", B)
    return _shaped(_factors().solve(a, b), *result)

  def solve_triangular(self, B: Operand, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Self:
    """The X with ``self @ X = B`` (``left=False``: ``X @ self = B``) of upper or lower triangles (.., n, n), and (.., n, k). What
    lies beside the triangle is not looked at, nor is a ``unitriangular`` one's diagonal, which counts as 1. A zero on the
    diagonal gives infinities or NaN. Raises ShapeError."""
    if not left and self.ndim > 1:
      x = self.mT.solve_triangular(B.mT if B.ndim > 1 else B, upper=not upper, unitriangular=unitriangular)
      return x.mT if B.ndim > 1 else x
    a, b, *result = self._both("solve_triangular", B)
    if unitriangular: a = (a.triu(1) if upper else a.tril(-1)) + _factors().eye(a, a.shape[-1])
    return _shaped(_factors().triangular(a, b, not upper), *result)

  def cholesky_solve(self, L: Operand, upper: bool = False) -> Self:
    """The X with ``A @ X = self``, L being ``A.cholesky(upper)``: (.., n, k), (.., n, n) -> (.., n, k). Raises ShapeError."""
    low = L.mT if upper else L
    return low.mT.solve_triangular(low.solve_triangular(self, upper=False), upper=True)

  def inverse(self) -> Self:
    """The inverses of square matrices (.., n, n), by LU with pivots; infinities or NaN where there is none. Raises ShapeError."""
    return self._batched("inverse", True)

  inv = inverse

  def pinverse(self, rcond: float | None = None) -> Self:
    """``pinv``."""
    return self.pinv(rcond)

  def cholesky_inverse(self, upper: bool = False) -> Self:
    """The inverses of A from the factors L of ``A = L @ L.mT`` (``upper``: of ``L.mT @ L``): (.., n, n). Raises ShapeError."""
    self._matrices("cholesky_inverse", True)
    return type(self).eye(self.shape[-1], dtype=self.dtype, device=self.device).expand(self.shape).cholesky_solve(self, upper)

  def tensorinv(self, ind: int = 2) -> Self:
    """What ``tensordot`` with it over ``ind`` dimensions undoes: (a.., b..) -> (b.., a..), where the first ``ind`` sizes, a..,
    and the others have the same product. Raises ShapeError, ArgumentError."""
    ind = whole_number("tensorinv", "ind", ind, 1)
    first, rest = self.shape[:ind], self.shape[ind:]
    if math.prod(first) != math.prod(rest):
      raise ShapeError(f"tensorinv: shape {text(self)} with ind {ind}; the first {ind} sizes must have the product of the others")
    return self.named().reshape(math.prod(first), -1).inverse().reshape(*rest, *first)

  def tensorsolve(self, B: Operand, dims: Sequence[int] | None = None) -> Self:
    """X with ``tensordot(self, X, X.ndim) = B``: (b.., x..), (b..) -> (x..); ``dims`` are moved to the end first. Raises
    ShapeError, AxisError."""
    named: Any = self.named()
    x = named if dims is None else named.movedim(tuple(dims), tuple(range(self.ndim - len(dims), self.ndim)))
    rest = x.shape[B.ndim:]
    if math.prod(rest) != B.numel() or math.prod(x.shape[:B.ndim]) != B.numel():
      raise ShapeError(f"tensorsolve: shapes {text(self)} and {text(B)}; it takes (b.., x..) and (b..) with as many b as x")
    return x.reshape(B.numel(), -1).solve(B.named().reshape(-1)).reshape(rest)

  def matrix_power(self, n: int) -> Self:
    """Square matrices (.., m, m) multiplied n times; the identity for 0, powers of the inverse for less. Raises ShapeError,
    for a negative n DTypeError."""
    self._matrices("matrix_power", True)
    if n < 0: return self.inverse().matrix_power(-n)
    if n == 0:
      one = type(self).eye(self.shape[-1], dtype=self.dtype, device=self.device)
      return self._wrap(graph.broadcast(one.lazydata, self.shape))
    return self._wrap(by_squaring(self.named(), n, lambda a, b: a.dot(b)).lazydata)

  def pinv(self, rtol: float | None = None) -> Self:
    """The pseudo-inverses (.., n, m) of (.., m, n). Singular values up to ``rtol`` (None: max(m, n) times the dtype's eps) of the
    greatest count as 0; the gradient takes the rank for constant. Raises ShapeError, ArgumentError."""
    return self._batched("pinv", False, self._tolerance("pinv", "rtol", rtol, _dtype(self)))

  def _tolerance(self, name: str, what: str, value: Any, d: DType) -> float:
    self._matrices(name, False)
    if value is None: return max(self.shape[-2:]) * float(info_of(d).eps)
    if not value >= 0: raise ArgumentError(f"{name}: {what} {value!r}; it must be a number of at least 0")
    return float(value)

  def lstsq(self, B: Operand, rcond: float | None = None) -> LeastSquares:
    """``solution`` (.., n, k), the X of least ``self @ X - B`` in squares, and of these the least one: (.., m, n), (.., m, k).
    Also ``residuals`` (.., k), the sums of those squares; ``rank`` (..) of ints, singular values up to ``rcond`` (None: max(m, n)
    times eps) of the greatest counting as 0; ``singular_values``. One right side may be (m,), as for ``solve``. Raises
    ShapeError, ArgumentError."""
    self._matrices("lstsq", False)
    right, vector, _ = self._right_side("lstsq", B)
    d = _dtype(self, B)
    acc = acc_dtype(d)
    tolerance = self._tolerance("lstsq", "rcond", rcond, d)
    a, b = self.named().cast(acc), right.cast(acc)
    s = self._values("lstsq")
    inverse = a.pinv(tolerance)
    x = inverse @ b
    x = x + inverse @ (b - a @ x)    # what the products rounded
    residuals = (a @ x - b).square().sum(-2)
    solution, left = (x.squeeze(-1), residuals.squeeze(-1)) if vector else (x, residuals)
    return LeastSquares(solution.cast(d), left.cast(d), _count(s, tolerance), s.detach().cast(d))

  # ---- determinants
  def det(self) -> Self:
    """Determinants (..) of square matrices (.., n, n), by LU with pivots. Raises ShapeError."""
    return self._batched("det", True)

  def slogdet(self) -> SignAndLogarithm:
    """The sign of determinants (1, -1, or 0), and the logarithm of their size (-inf for 0), each (..). Raises ShapeError."""
    return SignAndLogarithm(*self._batched("slogdet", True))

  def logdet(self) -> Self:
    """Logarithms of determinants (..) of (.., n, n): -inf for 0, NaN for one beneath it. Raises ShapeError."""
    sign, log = self.slogdet()
    return (sign < 0).where(math.nan, log)

  # ---- factorisations
  def cholesky(self, upper: bool = False) -> Self:
    """The lower triangles L with ``L @ L.mT = self`` of positive definite matrices (.., n, n); ``upper`` gives ``L.mT``. Only the
    lower triangle is read, and the gradient is symmetric. A matrix that is not positive definite gives NaN. Raises ShapeError."""
    a, batch, d = self._batch("cholesky", True)
    l = _factors().cholesky(a)
    return _shaped(l.mT if upper else l, batch, d)

  def qr(self, mode: str = "reduced") -> QR:
    """Q with orthonormal columns and R, a triangle, ``Q @ R = self``: (.., m, n) -> (.., m, k), (.., k, n), where k is the less
    of m and n, or, in mode "complete", m; by Householder's reflections. The gradient takes the first k columns for independent;
    of mode "complete" there is none where m > n. Raises ShapeError, ArgumentError."""
    if mode not in ("reduced", "complete"): raise ArgumentError(f"qr: mode {shown(mode)}; it takes 'reduced' or 'complete'")
    return QR(*self._batched("qr", False, mode == "complete"))

  def eigh(self, UPLO: str = "L") -> Eigen:
    """Eigenvalues (.., n), rising, and eigenvectors (.., n, n), the columns, of symmetric matrices (.., n, n); by Jacobi's
    rotations. Only the lower triangle is read ("U": the upper one). The gradient is symmetric, that of vectors is right where
    eigenvalues differ; vectors have no sign of their own. Raises ShapeError, ArgumentError."""
    if UPLO not in ("L", "U"): raise ArgumentError(f"eigh: UPLO {shown(UPLO)}; it takes 'L' or 'U'")
    return Eigen(*(self if UPLO == "L" or self.ndim < 2 else self.mT)._batched("eigh", True))

  def svd(self, full_matrices: bool = True) -> SVD:
    """U, the singular values S, falling, and the transposed V, ``U[.., :k] * S @ Vh[.., :k, :] = self``: (.., m, n) -> (.., m,
    m), (.., k), (.., n, n), k being the less of m and n; without ``full_matrices`` (.., m, k), (.., k), (.., k, n). By rotations
    of columns (Hestenes, 1958). The gradient of U and V is right where singular values differ and are not 0, and there is none of
    columns beyond k; they have no signs of their own. Raises ShapeError."""
    a, batch, d = self._batch("svd")
    u, s, vt = _factors().svd(a)
    m, n = a.shape[1:]
    if full_matrices and m != n:
      tall = u if m > n else vt.mT
      more = _factors().qr(tall.detach(), True)[0][:, :, tall.shape[2]:]
      more = _factors().refuse("svd", "columns beyond the singular values have no gradient; take full_matrices=False", more, a)
      tall = tall.cat(more, dim=2)
      u, vt = (tall, vt) if m > n else (u, tall.mT)
    return SVD(*[_shaped(x, batch, d) for x in (u, s, vt)])

  def _values(self, name: str) -> Any:
    """Singular values in float32 or float64."""
    a, batch, _ = self._batch(name)
    s = _factors().svd(a)[1]
    return s.reshape(*batch, s.shape[1])

  def svdvals(self) -> Self:
    """The singular values (.., k) of (.., m, n), the greatest first, where k is the less of m and n. Raises ShapeError."""
    return self.svd(False).S

  def eigvalsh(self, UPLO: str = "L") -> Self:
    """The eigenvalues (.., n) of symmetric matrices, rising; see :meth:`eigh`. Raises ShapeError, ArgumentError."""
    return self.eigh(UPLO).eigenvalues

  def matrix_rank(self, tol: float | None = None) -> Self:
    """How many singular values are greater than ``tol`` (None: max(m, n) times the dtype's eps times the greatest one), int64:
    (.., m, n) -> (..). Raises ShapeError, ArgumentError."""
    relative = self._tolerance("matrix_rank", "tol", tol, _dtype(self))
    s = self.detach()._values("matrix_rank")
    return _count(s, relative) if tol is None else (s > relative).sum(-1)

  # ---- norms
  def vector_norm(self, ord: float = 2, dim: Axis = None, keepdim: bool = False) -> Self:
    """The norm of vectors along dimensions (None: of all elements): the sum of ``|x| ** ord``, to the power 1 / ord; for inf and
    -inf the greatest and the least size, for 0 how many elements are not 0. No slope where the norm is 0. Raises AxisError,
    ArgumentError."""
    x = self._in_floats()
    if math.isinf(ord) and not all([x.shape[a] for a in axes_of("vector_norm", dim, x.ndim, self._names)]):
      if ord > 0: return x.abs().sum(dim, keepdim)
      raise ShapeError(f"vector_norm: shape {text(self)} for ord {ord}; there is no least of no elements")
    return x.norm(ord, dim, keepdim)

  def matrix_norm(self, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False) -> Self:
    """The norm of matrices along two dimensions: "fro", the root of the sum of squares; "nuc", the sum of singular values; 2 and
    -2, the greatest and the least of these; 1 and -1, the greatest and the least sum of a column's sizes; inf and -inf, of a
    row's. Raises AxisError, ArgumentError, ShapeError."""
    kinds = "fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf
    if isinstance(ord, (bool, complex)) or not isinstance(ord, (str, int, float)) or ord not in kinds:
      raise ArgumentError(f"matrix_norm: ord {shown(ord)}; it takes {', '.join(map(repr, kinds))}")
    if not isinstance(dim, (tuple, list)) or len(dim) != 2:
      raise AxisError(f"matrix_norm: dim {shown(dim)}; it takes two dimensions")
    self._dims("matrix_norm", dim)   # none twice
    rows, columns = [self._dims("matrix_norm", d) for d in dim]
    if not rows or not columns: raise AxisError(f"matrix_norm: shape {text(self)}; it takes matrices (.., m, n)")
    r, c, d = rows[0], columns[0], _dtype(self)
    x = self.cast(acc_dtype(d))
    if ord == "fro": return x.vector_norm(2, (r, c), keepdim).cast(d)
    if ord in ("nuc", 2, -2):
      s: Any = x.named().permute(*[k for k in range(x.ndim) if k not in (r, c)], r, c)._values("matrix_norm")
      s = s.sum(-1) if ord == "nuc" else s[..., 0] if ord == 2 else s[..., -1]
      out = self._wrap(s.cast(d).lazydata) if s.ndim == self.ndim else s.cast(d)
      for k in sorted((r, c)) if keepdim else (): out = out.unsqueeze(k)
      return out
    over, along = (r, c) if ord in (1, -1) else (c, r)
    sums = x.abs().sum(over, keepdim=True)
    out = sums.max(axis=along, keepdim=True) if ord in (1, math.inf) else sums.min(axis=along, keepdim=True)
    return (out if keepdim else out.squeeze((r, c))).cast(d)

  # ---- covariance
  def cov(self, *, correction: float = 1, fweights: Operand | None = None, aweights: Operand | None = None) -> Self:
    """The covariance matrix of variables (rows; one dimension is one variable) over observations (columns). ``fweights`` (n,)
    says how often each observation counts (ints), ``aweights`` (n,) how much (floats not beneath 0). The sum of products is
    divided by the number of observations less ``correction``. Raises ShapeError, DTypeError."""
    if self.ndim > 2: raise ShapeError(f"cov: a tensor of shape {self.shape}; it takes up to 2 dimensions")
    d = acc_dtype(as_float(self.dtype))
    x: Any = self.named().cast(d).reshape(self.shape if self.ndim == 2 else (1, self.numel()))
    w, count, less = self._weights(fweights, aweights, correction, d)
    total: Any = x.shape[1] if w is None else w.sum()
    centred = x - (x if w is None else x * w).sum(1, keepdim=True) / total
    out = (centred if w is None else centred * w) @ centred.T
    out = out / (float(max(count - correction, 0)) if w is None else (total - correction * less).maximum(0))
    if self.ndim < 2: out = out.reshape(())
    return out.cast(self.dtype) if self.dtype.kind == "f" else out

  def _weights(self, often: Any, much: Any, correction: float, d: DType) -> tuple[Any, int, Any]:
    """The weight of each observation, their number, and what ``correction`` is multiplied by."""
    n = self.shape[-1] if self.shape else 1
    for what, w in (("fweights", often), ("aweights", much)):
      if w is not None and w.shape != (n,):
        raise ShapeError(f"cov: {what} of shape {w.shape} for {n} observations; it takes one for each, shape {(n,)}")
    if often is not None and often.dtype.kind not in "iu": raise DTypeError(f"cov: fweights of {often.dtype.name}; they are ints")
    if much is None: return None if often is None else often.named().cast(d), n, 1
    a = much.named().cast(d)
    w = a if often is None else a * often.named().cast(d)
    return w, n, (w * a).sum() / w.sum()

  def corrcoef(self) -> Self:
    """The correlations, from -1 to 1, of variables (rows) over observations (columns); see ``cov``. Raises ShapeError."""
    if self.ndim > 2: raise ShapeError(f"corrcoef: a tensor of shape {self.shape}; it takes up to 2 dimensions")
    c = self.cast(acc_dtype(as_float(self.dtype))).cov()
    if self.ndim < 2: return (c / c)._rounded_to(self.dtype)
    s = c.diagonal().sqrt()
    return (c / s.unsqueeze(1) / s.unsqueeze(0)).clamp(-1, 1)._rounded_to(self.dtype)
