"""The table of operations, continued: Products."""
from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from ntgrad import Tensor

from .ops import Array, In, rows

M: In = ((5, 7), "any")
SQUARE: In = ((5, 5), "any")
CUBE: In = ((3, 4, 5), "any")


def einsum(formula: str, *inputs: tuple[int, ...], **more: Any) -> tuple[Any, ...]:
  return (f"einsum {formula}", lambda *xs: Tensor.einsum(formula, *xs), lambda *xs: np.einsum(formula, *xs),
          {"inputs": tuple([(s, "any") for s in inputs]), **more})


def distances(a: Array, b: Array, p: float) -> Array:
  d = np.abs(a[..., :, None, :] - b[..., None, :, :])
  if p == 0: return (d != 0).sum(-1).astype(np.float64)
  return d.max(-1) if p == np.inf else (d ** p).sum(-1) ** (1 / p)


def schulz(x: Any) -> Any:
  """A step that brings singular values near 1."""
  x = x / (np.sqrt((x ** 2).sum()) + 1e-7)
  return 3.4445 * x - 4.775 * (x @ x.T) @ x + 2.0315 * (x @ x.T) @ (x @ x.T) @ x


rows("named products", (M, ((7, 3), "any")), *[
  ("mm", lambda a, b: a.mm(b), lambda a, b: a @ b),
  ("mv", lambda a, v: a.mv(v), lambda a, v: a @ v, {"inputs": (M, ((7,), "any"))}),
  ("bmm", lambda a, b: a.bmm(b), lambda a, b: a @ b, {"inputs": (((2, 3, 4), "any"), ((2, 4, 5), "any"))}),
  ("vdot", lambda a, b: a.vdot(b), np.vdot, {"inputs": (((9,), "any"), ((9,), "any"))}),
  ("inner", lambda a, b: a.inner(b), np.inner, {"inputs": (M, ((2, 3, 7), "any"))}),
  ("tensordot", lambda a, b: a.tensordot(b, 2), lambda a, b: np.tensordot(a, b, 2),
   {"inputs": (((2, 3, 4), "any"), ((3, 4, 5), "any"))}),
  ("tensordot lists", lambda a, b: a.tensordot(b, ([2, 1], [0, -2])), lambda a, b: np.tensordot(a, b, ([2, 1], [0, 1])),
   {"inputs": (((2, 3, 4), "any"), ((4, 3, 5), "any"))}),
  ("multi_dot", lambda a, b, c: Tensor.multi_dot(a, b, c), lambda a, b, c: a @ b @ c,
   {"inputs": (M, ((7, 3), "any"), ((3, 9), "any"))}),
  ("multi_dot vectors", lambda a, b, c: Tensor.multi_dot([a, b, c]), lambda a, b, c: a @ b @ c,
   {"inputs": (((5,), "any"), M, ((7,), "any")), "special": False}),
  ("newton_schulz", lambda a, b: a.newton_schulz(1), lambda a, b: schulz(a), {"special": False, "tol": 8, "kinds": "f"}),
  ("chain_matmul", lambda a, b: a.chain_matmul(b, b.T), lambda a, b: a @ b @ b.T),
  ("matmul of a list", lambda a, b: a.matmul([[1, 2]] * 7) + [[1, 2]] @ b[:2],
   lambda a, b: a @ np.array([[1, 2]] * 7) + np.array([[1, 2]]) @ b[:2],
   {"kinds": "i", "out": "with int32", "inputs": (M, ((7, 2), "any")), "sizes": False})],
  kinds="fiu", tol=64, composed=True)
rows("other products", (M, ((2, 3), "any")), *[
  ("kron", lambda a, b: a.kron(b), np.kron, {"kinds": "fiu", "sizes": False}),
  ("kron of unequal ranks", lambda a, b: a.kron(b), np.kron, {"inputs": (((3,), "any"), ((2, 2, 3), "any")), "sizes": False}),
  ("cross", lambda a, b: a.cross(b), np.cross, {"inputs": (((4, 3), "any"), ((4, 3), "any")), "sizes": False}),
  ("cross dim", lambda a, b: a.cross(b, 0), lambda a, b: np.cross(a, b, axis=0),
   {"inputs": (((3, 5), "any"), ((3, 5), "any")), "sizes": False}),
  ("t", lambda a, b: a.t() * 2, lambda a, b: a.T * 2, {"kinds": "fiu"}),
  ("matrix_power", lambda a: a.matrix_power(3), lambda a: np.linalg.matrix_power(a, 3),
   {"inputs": (((2, 4, 4), "unit"),), "sizes": False}),
  ("matrix_power 0", lambda a: a.matrix_power(0) + a, lambda a: np.eye(4) + a,
   {"inputs": (((2, 4, 4), "unit"),), "sizes": False}),
  *[(f"cdist {p}", lambda a, b, p=p: a.cdist(b, p), lambda a, b, p=p: distances(a, b, p),
     {"inputs": (((2, 3, 4), "any"), ((5, 4), "any")), "grad": p > 0, "special": False, "sizes": False})
    for p in (0.0, 0.5, 1.0, 2.0, 3.0, np.inf)]], tol=64, composed=True)
rows("einsum", M, *[
  einsum("ij->ji", (2, 3), kinds="fiu"), einsum("ij,jk", (5, 7), (7, 3)), einsum("ii", (5, 5), sizes=False),
  einsum("ii->i", (5, 5), kinds="fiu", sizes=False),
  einsum("iij,jk->ki", (3, 3, 2), (2, 4), sizes=False), einsum("...ij,...jk->...ik", (5, 2, 3), (3, 4), sizes=False),
  einsum("i...,...i->...", (3, 2, 4), (2, 4, 3), sizes=False), einsum("B a, a B -> B", (2, 3), (3, 2)),
  einsum("ab,bc,cd,de->ae", (2, 3), (3, 4), (4, 5), (5, 2)), einsum("bhqd,bkhd->bqhk", (2, 3, 4, 5), (2, 6, 3, 5)),
  einsum("a,b,c,d,e,f,g,ag->bcdefg", *[(2,)] * 7, (2, 2), special=False), einsum("i,j->ij", (4,), (5,), kinds="fiu"),
  einsum("ij,k->", (2, 3), (4,), special=False), einsum("ij,jk->ik", (2, 1), (3, 4), sizes=False)], tol=64, composed=True)
rows("einsum", M, *[
  ("rearrange", lambda a: a.rearrange("a b (c d) -> (a c) 1 d b", c=2),
   lambda a: a.reshape(2, 3, 2, 2).transpose(0, 2, 3, 1).reshape(4, 1, 2, 3), {"inputs": (((2, 3, 4), "any"),), "sizes": False}),
  ("rearrange dots", lambda a: a.rearrange("a ... -> (...) a"), lambda a: a.reshape(a.shape[0], -1).T, {"inputs": (CUBE,),
   "sizes": False}),
  ("diag", lambda a: a.diag(2), lambda a: np.diag(a, 2), {"inputs": (((4,), "any"),), "kinds": "fiub"}),
  ("diag below", lambda a: a.diag(-1), lambda a: np.diag(a, -1), {"inputs": (((4,), "any"),), "kinds": "fiub"}),
  ("diag of a matrix", lambda a: a.diag(-2), lambda a: np.diag(a, -2), {"kinds": "fiub"}),
  ("diagonal", lambda a: a.diagonal(1, 2, 0), lambda a: np.diagonal(a, 1, 2, 0), {"inputs": (CUBE,), "kinds": "fiub"}),
  ("diagonal below", lambda a: a.diagonal(-2), lambda a: np.diagonal(a, -2), {"kinds": "fiub"}),
  ("writing a diagonal", lambda a: written(a), lambda a: reduce(lambda x, i: put(x, i), range(5), a.copy()), {"sizes": False})],
  tol=0, composed=True)


def written(a: Tensor) -> Tensor:
  out = a + 0
  out.diagonal(2)[:] = 1.0
  return out


def put(a: Array, i: int) -> Array:
  a[i, i + 2] = 1.0
  return a
