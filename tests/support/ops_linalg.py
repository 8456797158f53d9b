"""The table of operations, continued: Linalg."""
from __future__ import annotations

from typing import Any

import numpy as np

from ntgrad import Tensor

from .ops import Array, In, rows

SQUARE: In = ((2, 5, 5), "unit")
RIGHT: In = ((2, 5, 3), "unit")
la = np.linalg


def well(a: Any) -> Any:
  """Far from singular: the matrix and four times the identity."""
  n = a.shape[-1]
  return a + 4 * (Tensor.eye(n, dtype=a.dtype, device=a.device) if isinstance(a, Tensor) else np.eye(n))


def positive(a: Any) -> Any: return a @ a.mT + (well(a) - a) / 4 if isinstance(a, Tensor) else a @ turned(a) + np.eye(len(a[0]))
def lower(a: Array) -> Array: return np.tril(well(a))
def turned(a: Array) -> Array: return np.swapaxes(a, -1, -2)


def signed(u: Any, *vt: Any) -> Any:
  """Vectors with a first element that is positive, and the others of their pairs."""
  first = u[..., :1, :]
  sign = first.sign() if isinstance(u, Tensor) else np.sign(first)
  return (u * sign, *[v * (sign.mT if isinstance(v, Tensor) else turned(sign)) for v in vt])


def eigh(a: Any) -> Any:
  w, v = (a + a.mT).eigh() if isinstance(a, Tensor) else la.eigh(a + turned(a))
  return (w, *signed(v))


def svd(a: Any) -> Any:
  u, s, vt = a.svd(False) if isinstance(a, Tensor) else la.svd(a, full_matrices=False)
  return (s, *signed(u, vt))


alone: dict[str, Any] = {"inputs": (SQUARE,)}
rows("solutions", (SQUARE, RIGHT), *[
  ("solve", lambda a, b: well(a).solve(b), lambda a, b: la.solve(well(a), b)),
  ("solve for a vector", lambda a, b: well(a).solve(b), lambda a, b: la.solve(well(a), b), {"inputs": (SQUARE, ((5,), "unit"))}),
  ("solve from the right", lambda a, b: well(a).solve(b.mT, left=False), lambda a, b: turned(b) @ la.inv(well(a))),
  ("solve_triangular", lambda a, b: well(a).solve_triangular(b, upper=False), lambda a, b: la.solve(lower(a), b)),
  ("solve_triangular unit", lambda a, b: well(a).solve_triangular(b, upper=True, unitriangular=True),
   lambda a, b: la.solve(np.triu(a, 1) + np.eye(5), b)),
  ("solve_triangular from the right", lambda a, b: well(a).solve_triangular(b.mT, upper=False, left=False),
   lambda a, b: turned(b) @ la.inv(lower(a))),
  ("cholesky_solve", lambda a, b: b.cholesky_solve(positive(a).cholesky()), lambda a, b: la.solve(positive(a), b)),
  ("inverse", lambda a: well(a).inverse(), lambda a: la.inv(well(a)), alone),
  ("inv of a power", lambda a: well(a).matrix_power(-2) + well(a).inv(),
   lambda a: la.matrix_power(well(a), -2) + la.inv(well(a)), alone),
  ("pinv", lambda a: a.pinv(), la.pinv, {"inputs": (((2, 3, 5), "any"),)}),
  ("lstsq", lambda a, b: a.lstsq(b)[:2], lambda a, b: la.lstsq(a, b, rcond=None)[:2],
   {"inputs": (((6, 3), "any"), ((6, 2), "any")), "tol": 512})],
  tol=128, composed=True, sizes=False, special=False)
rows("factors", SQUARE, *[
  ("cholesky", lambda a: positive(a).cholesky(), lambda a: la.cholesky(positive(a))),
  ("cholesky upper", lambda a: positive(a).cholesky(True), lambda a: turned(la.cholesky(positive(a)))),
  ("qr", lambda a: well(a).qr(), lambda a: tuple(la.qr(well(a)))),
  ("qr tall", lambda a: a.qr(), lambda a: tuple(la.qr(a)), {"inputs": (((2, 6, 3), "any"),)}),
  ("qr wide", lambda a: a.qr(), lambda a: tuple(la.qr(a)), {"inputs": (((3, 5), "any"),)}),
  ("qr complete", lambda a: a.qr("complete"), lambda a: tuple(la.qr(a, "complete")),
   {"inputs": (((5, 3), "any"),), "grad": False}),
  ("eigh", eigh, eigh), ("svd", svd, svd), ("svd tall", svd, svd, {"inputs": (((6, 3), "any"),)}),
  ("svd wide", svd, svd, {"inputs": (((2, 3, 4), "any"),)}),
  ("det", lambda a: well(a).det(), lambda a: la.det(well(a))),
  ("slogdet", lambda a: well(a).slogdet(), lambda a: tuple(la.slogdet(well(a))))],
  tol=256, composed=True, sizes=False, special=False)
rows("norms of matrices", ((2, 4, 3), "any"), *[
  *[(f"matrix_norm {o}", lambda a, o=o: a.matrix_norm(o), lambda a, o=o: la.norm(a, o, (-2, -1)))
    for o in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)],
  ("matrix_norm keepdim", lambda a: a.matrix_norm("nuc", (2, 0), True), lambda a: la.norm(a, "nuc", (2, 0), keepdims=True)),
  *[(f"vector_norm {o}", lambda a, o=o: a.vector_norm(o, -1), lambda a, o=o: la.norm(a, o, -1), {"grad": o != 0})
    for o in (2, 1, 0, 3, -1, np.inf, -np.inf)],
  ("vector_norm of all", lambda a: a.vector_norm(keepdim=True), lambda a: la.norm(a.ravel()).reshape(1, 1, 1)),
  ("matrix_rank", lambda a: a.matrix_rank(), la.matrix_rank, {"grad": False, "out": "int64"})],
  tol=64, composed=True, sizes=False, special=False)
