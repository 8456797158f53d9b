"""``torch.linalg``: methods of ``Tensor`` with PyTorch's parameters, and what is made of them in a line."""
# ruff: noqa: F403 - the stub has what the table makes
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ntgrad.codegen.ir import ArgumentError, ShapeError
from ntgrad.compat.public import show
from ntgrad.compat.signatures import LINALG
from ntgrad.graph import Operand, checked
from ntgrad.tensor import Tensor
from ntgrad.tensor.made import functions

if TYPE_CHECKING:
  from ntgrad.functions.linalg import *

_MADE = functions(LINALG, __name__)
_OWN = ["cond", "matrix_norm", "matrix_rank", "norm", "pinv", "vander", "vecdot", "vector_norm"]


# ---- norms
def vector_norm(x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
  """See :meth:`Tensor.vector_norm`; with ``dtype`` elements are cast first."""
  return (x if dtype is None else x.cast(dtype)).vector_norm(ord, dim, keepdim)


def matrix_norm(A: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None) -> Tensor:
  """See :meth:`Tensor.matrix_norm`; with ``dtype`` elements are cast first."""
  return (A if dtype is None else A.cast(dtype)).matrix_norm(ord, dim, keepdim)


def norm(input: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
  """Without ``ord`` the root of the sum of squares along dims (None: all). With it, of vectors along one dim, or of matrices
  along two; without dims the tensor is a vector or a matrix. Raises ShapeError, AxisError, ArgumentError."""
  if ord is None: return vector_norm(input, 2, dim, keepdim, dtype=dtype)
  many = input.ndim if dim is None else len(dim) if isinstance(dim, (tuple, list)) else 1
  if many not in (1, 2):
    raise ShapeError(f"norm: ord {ord!r} along {many} dims of shape {input.shape}; it takes one (vectors) or two (matrices)")
  if many == 1 and not isinstance(ord, str): return vector_norm(input, ord, dim, keepdim, dtype=dtype)
  return matrix_norm(input, ord, (-2, -1) if dim is None else dim, keepdim, dtype=dtype)


def cond(A: Tensor, p: Any = None) -> Tensor:
  """The condition of matrices (.., m, n): the greatest singular value over the least (p None or 2; -2: the other way round), or
  the norms p of the matrix and of its inverse, multiplied. Raises ShapeError, ArgumentError."""
  if p is None or isinstance(p, (int, float)) and abs(p) == 2:
    s = A.svdvals()
    return s[..., 0] / s[..., -1] if p is None or p > 0 else s[..., -1] / s[..., 0]
  return A.matrix_norm(p) * A.inv().matrix_norm(p)


# ---- rank and inverses
def _relative(name: str, A: Tensor, atol: Any, rtol: Any) -> Any:
  """The part of the greatest singular value up to which one counts as 0; None for the usual one."""
  if atol is None: return rtol
  if A.ndim != 2: raise ArgumentError(f"{name}: atol= for shape {A.shape}; of several matrices only rtol= is taken")
  greatest = float(A.detach().svdvals().max().item()) if 0 not in A.shape else 1.0
  return max(0.0 if rtol is None else rtol, atol / greatest if greatest else 0.0)


def matrix_rank(A: Tensor, tol: float | None = None, hermitian: bool = False, *, atol: float | None = None,
                rtol: float | None = None) -> Tensor:
  """How many singular values are above ``atol`` (or ``tol``) and above ``rtol`` times the greatest one (both None: max(m, n)
  times the dtype's eps), int32. Raises ShapeError, ArgumentError."""
  least = atol if tol is None else tol
  if least is None and rtol is None: return A.matrix_rank()
  s = A.detach().svdvals()
  return (s > (s[..., :1] * (rtol or 0.0)).maximum(least or 0.0)).sum(-1)


def pinv(A: Tensor, rcond: float | None = None, hermitian: bool = False, *, atol: float | None = None,
         rtol: float | None = None) -> Tensor:
  """The pseudo-inverses (.., n, m) of (.., m, n); singular values up to ``rtol`` (or ``rcond``) times the greatest, or up to
  ``atol``, count as 0. Raises ShapeError, ArgumentError."""
  return A.pinv(_relative("pinv", A, atol, rcond if rtol is None else rtol))


# ---- products
def vecdot(x: Tensor, y: Operand, *, dim: Any = -1) -> Tensor:
  """The sums of products along a dim, broadcast. Raises ShapeError, AxisError."""
  return (x * y).sum(dim)


def vander(x: Tensor, N: int | None = None) -> Tensor:
  """Powers of each number from 0, rising, as rows: (.., n) -> (.., n, N), N being n where it is None. Raises ArgumentError."""
  n = x.shape[-1] if N is None else N
  if n < 1: raise ArgumentError(f"vander: N {n}; it takes 1 or more")
  return x.unsqueeze(-1).pow(Tensor.arange(n, dtype=x.dtype, device=x.device))


globals().update(_MADE | {name: checked(globals()[name]) for name in _OWN})
__all__ = sorted([*_MADE, *_OWN])  # noqa: PLE0605

show(__name__)
