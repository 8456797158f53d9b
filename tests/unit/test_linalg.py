"""Linear algebra: sizes, scales, refusals, second gradients, and the like."""
from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

import ntgrad
from ntgrad import Tensor, dtypes
from ntgrad.errors import ArgumentError, AxisError, CaptureError, GradientError, ShapeError
from ntgrad.tensor import factors
from support.marks import long, long_where

Array = np.ndarray[Any, Any]
la = np.linalg


def f(*shape: int) -> Tensor: return Tensor.ones(*shape, device="NUMPY")
def normal(*shape: int) -> Array: return np.random.default_rng(len(shape) + sum(shape)).standard_normal(shape)


def near(got: Tensor, want: Array, tol: float) -> None:
  assert got.shape == want.shape
  assert np.abs(got.numpy() - want).max() <= tol * max(np.abs(want).max(), 1e-30)


@long_where(lambda n: n > 1)
@pytest.mark.parametrize("n", [1, 2, 33])
def test_factors_on_the_cpu(n: int) -> None:
  a = normal(2, n, n).astype(np.float32)
  x, wide = Tensor(a), a.astype(np.float64)
  spd = x @ x.mT + Tensor.eye(n)
  low = spd.cholesky()
  near(low @ low.mT, spd.numpy(), 1e-5)
  q, r = x.qr()
  near(q @ r, a, 1e-5)
  near(q.mT @ q, np.eye(n)[None].repeat(2, 0), 1e-5)
  w, v = (x + x.mT).eigh()
  near(w, la.eigvalsh(wide + wide.swapaxes(1, 2)), 1e-5)
  near(v * w.unsqueeze(-2) @ v.mT, a + a.swapaxes(1, 2), 3e-5)
  near(v.mT @ v, np.eye(n)[None].repeat(2, 0), 1e-5)
  u, s, vt = x.svd()
  near(s, la.svd(wide)[1], 1e-5)
  near(u * s.unsqueeze(-2) @ vt, a, 3e-5)
  near(x @ x.solve(x[0, :, :1]), a[0, :, :1][None].repeat(2, 0), 2e-3)
  near(x.slogdet()[1], la.slogdet(wide)[1], 1e-4)


@long
def test_scales_and_ranks() -> None:
  for scale in (1e-18, 1e18):   # squares are out of float32's range
    a = (normal(6, 4) * scale).astype(np.float32)
    x = Tensor(a, device="NUMPY")
    q, r = x.qr()
    near(q @ r, a, 1e-5)
    u, s, vt = x.svd(full_matrices=False)
    near(s, la.svd(a.astype(np.float64))[1], 1e-5)
    near(u * s @ vt, a, 1e-5)
    w, v = (x.mT[:, :4] + x[:4]).eigh()
    near(w, la.eigvalsh((a.T[:, :4] + a[:4]).astype(np.float64)), 1e-5)
  low = normal(6, 2) @ normal(2, 5)
  x = Tensor(low, device="NUMPY")
  u, s, vt = x.svd()
  near(u.mT @ u, np.eye(6), 1e-12)    # also of columns that the matrix says nothing about
  near(vt @ vt.mT, np.eye(5), 1e-12)
  near(u[:, :5] * s @ vt, low, 1e-12)
  near(x.pinv(), la.pinv(low), 1e-12)
  assert x.matrix_rank().item() == 2 and x.matrix_rank(1e9).item() == 0 and f(2, 0, 3).matrix_rank().tolist() == [0, 0]
  rank = x.lstsq(Tensor(normal(6), device="NUMPY"))
  near(rank.solution, la.lstsq(low, normal(6), rcond=None)[0], 1e-11)
  assert rank.rank.item() == 2 and rank.rank.dtype is dtypes.int64 and rank.residuals.shape == ()
  q, r = Tensor(np.zeros((3, 3)), device="NUMPY").qr()
  assert np.array_equal(q.numpy(), np.eye(3)) and not r.numpy().any()


def test_what_cannot_be_is_not_finite() -> None:
  t = Tensor([[1.0, 2.0], [2.0, 1.0]], device="NUMPY")
  assert np.isnan(t.cholesky().numpy()[1, 1])
  singular = Tensor([[1.0, 2.0], [2.0, 4.0]], device="NUMPY")
  assert singular.det().item() == 0 and [x.item() for x in singular.slogdet()] == [0, -np.inf]
  assert not np.isfinite(singular.inverse().numpy()).any()
  nan = Tensor([[np.nan, 1.0], [1.0, 2.0]], device="NUMPY")
  for got in (*nan.eigh(), *nan.svd(), nan.det(), nan.inverse()): assert np.isnan(got.numpy()).any()


def test_empty_matrices() -> None:
  numpys: dict[str, Callable[..., Any]] = {"inverse": la.inv}
  for name in ("cholesky", "inverse", "det", "slogdet", "qr", "eigh", "svd", "pinv"):
    for shape in ((0, 3, 3), (2, 0, 0), (0, 0)):
      got, want = getattr(f(*shape), name)(), numpys.get(name, getattr(la, name, None))(np.ones(shape))  # type: ignore[misc]
      for g, w in zip(*[x if isinstance(x, tuple) else (x,) for x in (got, want)]): assert np.array_equal(g.numpy(), w)
  assert f(3, 0).qr("complete")[0].tolist() == np.eye(3).tolist() and f(0, 3).svd()[2].shape == (3, 3)
  assert f(2, 2).solve(f(2, 0)).shape == (2, 0) and f(0, 0).solve(f(0, 2)).shape == (0, 2)
  w = Tensor.ones(0, 0, device="NUMPY", requires_grad=True)
  assert w.inverse().sum().gradient(w)[0].shape == (0, 0)


def test_second_gradients() -> None:
  a = normal(3, 3) + 2 * np.eye(3)
  for name in ("inverse", "det", "cholesky", "qr", "eigh", "svd"):
    def loss(x: Tensor, name: str = name) -> Tensor:
      given = x @ x.mT + x.mT * 0.1 + x * 0.1 if name in ("cholesky", "eigh") else x
      out = getattr(given, name)()
      return sum([(y * y * y).sum() for y in (out if isinstance(out, tuple) else (out,))], Tensor(0.0, device="NUMPY"))
    def first(x: Tensor, loss: Any = loss) -> Tensor: return (loss(x).gradient(x)[0] * Tensor(normal(3, 3), device="NUMPY")).sum()
    x = Tensor(a, device="NUMPY", requires_grad=True)
    second = first(x).gradient(x)[0].numpy()
    h = 1e-5
    for i in ((0, 0), (1, 2), (2, 0)):
      d = np.zeros((3, 3))
      d[i] = h
      up, down = [first(Tensor(a + s * d, device="NUMPY", requires_grad=True)).item() for s in (1, -1)]
      assert (up - down) / (2 * h) == pytest.approx(second[i], rel=1e-4, abs=1e-4 * np.abs(second).max()), name


def test_gradient_of_a_singular_determinant() -> None:
  for a, want in (([[1.0, 2.0], [2.0, 4.0]], [[4, -2], [-2, 1]]), ([[0.0, 1.0], [0.0, 0.0]], [[0, 0], [-1, 0]]),
                  (np.zeros((3, 3)), np.zeros((3, 3))), (np.diag([0.0, 2.0, 3.0]), np.diag([6.0, 0, 0]))):
    x = Tensor(np.array(a), device="NUMPY", requires_grad=True)
    assert np.allclose(x.det().gradient(x)[0].numpy(), want, atol=1e-12)


WRONG: list[tuple[Callable[[], Any], type[Exception], str]] = [
  (lambda: f(2, 3).solve(f(2)), ShapeError, "square"),
  (lambda: f(2, 2).solve(f(3, 1)), ShapeError, "has 2 rows"),
  (lambda: f(4, 2, 2).solve(f(3, 2, 1)), ShapeError, "solve"),
  (lambda: f(2).qr(), ShapeError, "matrices"),
  (lambda: f(2, 2).qr("r"), ArgumentError, "mode 'r'"),
  (lambda: f(2, 2).eigh("x"), ArgumentError, "UPLO 'x'"),
  (lambda: f(2, 3).lstsq(f(3)), ShapeError, "has 2 rows"),
  (lambda: f(2, 3).pinv(-1.0), ArgumentError, "rtol -1"),
  (lambda: f(2, 3).matrix_norm("max"), ArgumentError, "ord 'max'"),
  (lambda: f(2, 3).matrix_norm("fro", (1, 1)), AxisError, "twice"),
  (lambda: f(2, 3).matrix_norm("fro", 1), AxisError, "two dimensions"),
  (lambda: slope(lambda x: x.qr("complete")[0]), GradientError, "reduced"),
  (lambda: slope(lambda x: x.svd()[0]), GradientError, "full_matrices"),
]


def slope(fn: Callable[[Tensor], Tensor]) -> Tensor:
  x = Tensor.ones(3, 2, requires_grad=True, device="NUMPY")
  return fn(x).sum().gradient(x)[0]


@pytest.mark.parametrize("make, kind, says", WRONG, ids=lambda x: "" if callable(x) else str(x))
def test_refusals(make: Callable[[], Any], kind: type[Exception], says: str) -> None:
  with pytest.raises(kind, match=says): make()


def test_dtypes_names_and_memory() -> None:
  assert f(2, 2).cast("int32").det().dtype is dtypes.float32 and f(2, 2).half().eigh()[0].dtype is dtypes.float16
  named = (f(2, 2) + Tensor.eye(2, device="NUMPY")).named("rows", "columns")
  assert named.inverse().names is None or named.inverse().names == (None, None)
  x = Tensor([[2.0, 1.0], [1.0, 3.0]], device="NUMPY", requires_grad=True)
  y = x.inverse()
  z = y * 2
  with ntgrad.no_grad(): y.assign(y * 0).realize()
  assert z.numpy()[0, 0] == pytest.approx(1.2)
  kept = x.svd()[1].sum()     # the other results are let go of
  assert np.allclose(kept.gradient(x)[0].numpy(), np.eye(2), atol=1e-6)


def test_what_is_too_large_for_a_program_goes_through_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(factors, "_MOST", 0)
  a = normal(2, 5, 5)
  x = Tensor(a, device="NUMPY", requires_grad=True)
  near(x.inverse(), la.inv(a), 1e-12)
  near(x.det(), la.det(a), 1e-12)
  near((x @ x.mT).cholesky(), la.cholesky(a @ a.swapaxes(1, 2)), 1e-12)
  for got, want in zip((*x.qr(), *(x + x.mT).eigh(), *x.svd()), (*la.qr(a), *la.eigh(a + a.swapaxes(1, 2)), *la.svd(a))):
    near(got, want, 1e-12)
  assert np.allclose(x.det().sum().gradient(x)[0].numpy(), (la.det(a)[:, None, None] * la.inv(a)).swapaxes(1, 2))
  bad = Tensor(a * np.array([1, np.nan])[:, None, None], device="NUMPY")
  for got in (bad.svd()[1], bad.eigh()[0], bad.qr()[1], bad.cholesky()): assert np.isnan(got.numpy()[1]).any()
  jitted = ntgrad.jit(lambda y: y.svd()[1].realize())
  with pytest.raises(CaptureError):
    for _ in range(3): jitted(Tensor(a, device="NUMPY").realize())


def test_under_jit() -> None:
  @ntgrad.jit
  def step(a: Tensor, b: Tensor) -> Any:
    w = a.detach().requires_grad_()
    x = w.solve(b)
    return x.realize(), x.sum().gradient(w)[0].realize(), (a @ a.mT).cholesky().realize()
  for k in range(4):
    a, b = normal(3, 3) + (k + 2) * np.eye(3), normal(3, 2) * k
    x, g, low = step(Tensor(a, device="NUMPY").realize(), Tensor(b, device="NUMPY").realize())
    assert np.allclose(x.numpy(), la.solve(a, b)) and np.allclose(low.numpy(), la.cholesky(a @ a.T))
    assert np.allclose(g.numpy(), -la.solve(a.T, np.ones((3, 2))) @ la.solve(a, b).T)
