# Written by `python -m ntgrad stubs` from ntgrad/compat/signatures.py.
from __future__ import annotations

from ntgrad.tensor import Tensor
from ntgrad.tensor.linalg import Eigen, LeastSquares, Operand, QR, SVD, SignAndLogarithm
from typing import Any, Sequence

def det(A: Tensor) -> Tensor:
  """Determinants (..) of square matrices (.., n, n), by LU with pivots. Raises ShapeError."""

def inv(A: Tensor) -> Tensor:
  """The inverses of square matrices (.., n, n), by LU with pivots; infinities or NaN where there is none. Raises ShapeError."""

def slogdet(A: Tensor) -> SignAndLogarithm:
  """The sign of determinants (1, -1, or 0), and the logarithm of their size (-inf for 0), each (..). Raises ShapeError."""

def svdvals(A: Tensor, *, driver: str | None=None) -> Tensor:
  """The singular values (.., k) of (.., m, n), the greatest first, where k is the less of m and n. Raises ShapeError."""

def svd(A: Tensor, full_matrices: bool=True, *, driver: str | None=None) -> SVD:
  """U, the singular values S, falling, and the transposed V, ``U[.., :k] * S @ Vh[.., :k, :] = self``: (.., m, n) -> (.., m,
    m), (.., k), (.., n, n), k being the less of m and n; without ``full_matrices`` (.., m, k), (.., k), (.., k, n). By rotations
    of columns (Hestenes, 1958). The gradient of U and V is right where singular values differ and are not 0, and there is none of
    columns beyond k; they have no signs of their own. Raises ShapeError."""

def lstsq(A: Tensor, B: Operand, rcond: float | None=None, *, driver: str | None=None) -> LeastSquares:
  """``solution`` (.., n, k), the X of least ``self @ X - B`` in squares, and of these the least one: (.., m, n), (.., m, k).
    Also ``residuals`` (.., k), the sums of those squares; ``rank`` (..) of ints, singular values up to ``rcond`` (None: max(m, n)
    times eps) of the greatest counting as 0; ``singular_values``. One right side may be (m,), as for ``solve``. Raises
    ShapeError, ArgumentError."""

def cholesky(A: Tensor, *, upper: bool=False) -> Tensor:
  """The lower triangles L with ``L @ L.mT = self`` of positive definite matrices (.., n, n); ``upper`` gives ``L.mT``. Only the
    lower triangle is read, and the gradient is symmetric. A matrix that is not positive definite gives NaN. Raises ShapeError."""

def matrix_power(A: Tensor, n: int) -> Tensor:
  """Square matrices (.., m, m) multiplied n times; the identity for 0, powers of the inverse for less. Raises ShapeError,
    for a negative n DTypeError."""

def qr(A: Tensor, mode: str='reduced') -> QR:
  """Q with orthonormal columns and R, a triangle, ``Q @ R = self``: (.., m, n) -> (.., m, k), (.., k, n), where k is the less
    of m and n, or, in mode "complete", m; by Householder's reflections. The gradient takes the first k columns for independent;
    of mode "complete" there is none where m > n. Raises ShapeError, ArgumentError."""

def eigh(A: Tensor, UPLO: str='L') -> Eigen:
  """Eigenvalues (.., n), rising, and eigenvectors (.., n, n), the columns, of symmetric matrices (.., n, n); by Jacobi's
    rotations. Only the lower triangle is read ("U": the upper one). The gradient is symmetric, that of vectors is right where
    eigenvalues differ; vectors have no sign of their own. Raises ShapeError, ArgumentError."""

def eigvalsh(A: Tensor, UPLO: str='L') -> Tensor:
  """The eigenvalues (.., n) of symmetric matrices, rising; see :meth:`eigh`. Raises ShapeError, ArgumentError."""

def solve(A: Tensor, B: Operand, *, left: bool=True) -> Tensor:
  """The X with ``self @ X = B`` (``left=False``: ``X @ self = B``): (.., n, n) and (.., n, k) or (n,); by LU with pivots. A
    singular matrix gives infinities or NaN. Raises ShapeError."""

def solve_triangular(A: Tensor, B: Operand, *, upper: bool, left: bool=True, unitriangular: bool=False) -> Tensor:
  """The X with ``self @ X = B`` (``left=False``: ``X @ self = B``) of upper or lower triangles (.., n, n), and (.., n, k). What
    lies beside the triangle is not looked at, nor is a ``unitriangular`` one's diagonal, which counts as 1. A zero on the
    diagonal gives infinities or NaN. Raises ShapeError."""

def tensorsolve(A: Tensor, B: Operand, dims: Sequence[int] | None=None) -> Tensor:
  """X with ``tensordot(self, X, X.ndim) = B``: (b.., x..), (b..) -> (x..); ``dims`` are moved to the end first. Raises
    ShapeError, AxisError."""

def tensorinv(A: Tensor, ind: int=2) -> Tensor:
  """What ``tensordot`` with it over ``ind`` dimensions undoes: (a.., b..) -> (b.., a..), where the first ``ind`` sizes, a..,
    and the others have the same product. Raises ShapeError, ArgumentError."""

def diagonal(A: Tensor, *, offset: int=0, dim1: int | str=-2, dim2: int | str=-1) -> Tensor:
  """The elements whose index along ``dim2`` is that along ``dim1`` plus ``offset``: (.., m, .., n, ..) -> (.., k), the others
    first. A view: what is written to it is written to the tensor. Raises ShapeError, AxisError."""

def matmul(input: Tensor, other: Any) -> Tensor:
  """``self @ other``; see ``dot``."""

def cross(input: Tensor, other: Operand, *, dim: int | str=-1) -> Tensor:
  """The vector product along a dimension of 3; the others broadcast. Raises ShapeError, AxisError."""

def multi_dot(tensors: Any) -> Any:
  """The product of two and more matrices in the order with the fewest multiplications: (a, b), (b, c), (c, d) -> (a, d), given
    one after the other or in a list. The first and the last may be vectors, as for ``@``. Raises ShapeError, ArgumentError."""
