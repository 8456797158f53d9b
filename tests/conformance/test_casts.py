"""Casts between all dtypes, bitcasts, creation, and random numbers on every backend."""
from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ntgrad import Tensor, dtypes
from ntgrad.codegen.ir.dtype import DType, to_narrow
from support import plain_c
from support.devices import DEVICES, missing
from support.marks import long_half

WITH_C = [*DEVICES, pytest.param(plain_c.NAME, marks=plain_c.needs_cc)]


@pytest.fixture(autouse=True)
def device_exists(request: pytest.FixtureRequest) -> None:
  device = request.node.callspec.params.get("device")
  if device is not None and missing(device): pytest.skip(missing(device))


def samples(d: DType) -> np.ndarray[Any, Any]:
  """Values that matter: limits of the dtype, halves, ties, what other dtypes just hold."""
  if d.kind == "b": return np.array([False, True] * 9)
  if d.kind in "iu":
    lo, hi = dtypes.min(d), dtypes.max(d)
    some = (0, 1, 2, 3, 7, 100, -1, -2, -100, 255, 256, 2049, 16777217, 2 ** 53 + 1)
    return np.array([lo, lo + 1, hi - 1, hi, *(v for v in some if lo <= v <= hi)], dtype=d.np)
  if d.kind == "e": return np.array([2.0 ** -127, 2.0 ** -126, 0.25, 0.5, 1.0, 2.0, 64.0, 2.0 ** 127, math.nan]).astype(d.np)
  x = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.75, 3.1, 100.4, -100.6, 1e-3, 0.1, 240.0, 447.9, 1.0625, 257.0, 2049.0, math.nan]
  with np.errstate(over="ignore"):
    return np.array(x + ([math.inf, -math.inf, 65520.0, 1e-7] if d.itemsize > 1 else [])).astype(d.np)


def defined(x: np.ndarray[Any, Any], to: DType) -> np.ndarray[Any, Any]:
  """Those values whose cast is defined: a float within the range of an int dtype."""
  if to.kind not in "iu" or x.dtype.kind in "iub": return x
  w = np.trunc(x.astype(np.float64))
  return x[np.isfinite(w) & (w >= float(dtypes.min(to))) & (w <= float(dtypes.max(to)) * (1 - 2.0 ** -52))]


def converted(x: np.ndarray[Any, Any], to: DType) -> np.ndarray[Any, Any]:
  src = dtypes.of(x.dtype)
  with np.errstate(all="ignore"):
    if to.kind == "b": return x.astype(np.float64) != 0 if src.kind == "f" else x != 0
    if src.kind == "f" and src.itemsize < 4: x = x.astype(np.float32)
    if src.kind == "e": x = x.astype(np.float32)
    if to.kind == "e": return to_narrow(x.astype(np.float32), to)
    if to.kind == "f" and to.itemsize < 4 and src.kind in "iu": return x.astype(np.float64).astype(to.np)
    return x.astype(to.np)


@pytest.mark.parametrize("device", WITH_C)
@pytest.mark.parametrize("src", long_half(dtypes.all), ids=lambda d: d.name)
def test_cast(device: str, src: DType) -> None:
  made = []
  for dst in dtypes.all:
    x = defined(samples(src), dst)
    made.append((dst, x, Tensor(x, device=device).cast(dst)))
  Tensor.realize(*[t for _, _, t in made])
  wrong = []
  for dst, x, t in made:
    got, want = t.numpy(), converted(x, dst)
    assert got.dtype == dst.np
    a, b = got.astype(np.float64), want.astype(np.float64)
    bad = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    # two roundings on the way from a wide int or double to a narrow float may differ from one in the last place
    if dst.kind == "f" and src.itemsize > dst.itemsize and src.itemsize >= 4:
      with np.errstate(all="ignore"): bad &= ~(np.abs(a - b) <= float(ml_dtypes.finfo(dst.np).eps) * np.abs(b))
    if bad.any(): wrong.append(f"{src} {x[bad].tolist()} to {dst}: {got[bad].tolist()}, numpy has {want[bad].tolist()}")
  assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("device", WITH_C)
def test_bitcast(device: str) -> None:
  for size in (1, 2, 4, 8):
    same = [d for d in dtypes.all if d.itemsize == size and d.kind != "b"]
    bits = np.random.default_rng(size).integers(0, 256, 24 * size, dtype=np.uint8)
    pairs = [(a, b) for a in same for b in same if a is not b]
    made = [Tensor(bits.view(a.np), device=device).bitcast(b) for a, b in pairs]
    Tensor.realize(*made)
    for (a, b), t in zip(pairs, made):
      got, want = t.numpy(), bits.view(b.np)
      ok = got.view(np.uint8).reshape(-1, size) == want.view(np.uint8).reshape(-1, size)
      nan = np.zeros(want.shape, bool)  # a NaN may lose its payload
      for d in (a, b): nan |= np.isnan(bits.view(d.np).astype(np.float64))
      assert (ok.all(1) | nan).all(), f"{a} as {b}"


@pytest.mark.parametrize("device", DEVICES)
def test_creation(device: str) -> None:
  made = {
    "zeros": (Tensor.zeros(2, 3, device=device), np.zeros((2, 3), np.float32)),
    "ones": (Tensor.ones(4, dtype=dtypes.int8, device=device), np.ones(4, np.int8)),
    "full": (Tensor.full((2, 2), 7, device=device), np.full((2, 2), 7, np.int32)),
    "full bool": (Tensor.full((2,), True, device=device), np.array([True, True])),
    "arange": (Tensor.arange(7, device=device), np.arange(7, dtype=np.int32)),
    "arange from": (Tensor.arange(3, 20, 4, device=device), np.arange(3, 20, 4, dtype=np.int32)),
    "arange down": (Tensor.arange(5, -5, -3, device=device), np.arange(5, -5, -3, dtype=np.int32)),
    "arange float": (Tensor.arange(0.0, 2.0, 0.25, device=device), np.arange(0, 2, 0.25, dtype=np.float32)),
    "arange wide": (Tensor.arange(5, dtype=dtypes.int64, device=device) + 2 ** 40, np.arange(5) + 2 ** 40),
    "linspace": (Tensor.linspace(0, 1, 5, device=device), np.linspace(0, 1, 5, dtype=np.float32)),
    "eye": (Tensor.eye(3, 4, device=device), np.eye(3, 4, dtype=np.float32)),
    "like": (Tensor.ones(2, 2, dtype=dtypes.float16, device=device).full_like(3), np.full((2, 2), 3, np.float16)),
    "tril": (Tensor.ones(3, 3, device=device).tril(), np.tril(np.ones((3, 3), np.float32))),
    "empty size": (Tensor.zeros(0, 3, device=device) + 1, np.zeros((0, 3), np.float32)),
    "padded nothing": (Tensor.zeros(0, 3, device=device).pad(((1, 1), (0, 0))), np.zeros((2, 3), np.float32)),
    "sum of nothing": (Tensor.zeros(0, 3, device=device).sum(0), np.zeros(3, np.float32))}
  Tensor.realize(*[t for t, _ in made.values()])
  for name, (t, want) in made.items():
    got = t.numpy()
    assert got.dtype == want.dtype and got.shape == want.shape and np.array_equal(got, want), name


def draw(device: str) -> dict[str, np.ndarray[Any, Any]]:
  Tensor.manual_seed(1234)
  made = {
    "rand": Tensor.rand(37, device=device),
    "rand half": Tensor.rand(5, 8, dtype=dtypes.float16, device=device),
    "rand double": Tensor.rand(9, dtype=dtypes.float64, device=device),
    "randint": Tensor.randint(40, low=-3, high=50, device=device),
    "uniform": Tensor.uniform(33, low=-2, high=3, device=device),
    "randn": Tensor.randn(41, device=device),
    "normal": Tensor.normal(20, mean=2.0, std=0.5, device=device),
  }
  Tensor.realize(*made.values())
  return {k: t.numpy() for k, t in made.items()}


@pytest.mark.parametrize("device", DEVICES)
def test_random_numbers_are_the_same_everywhere(device: str) -> None:
  """Ints and uniforms to the bit; what goes through logarithm and cosine within a few units in the last place."""
  got, want = draw(device), draw("NUMPY")
  for name in got:
    if name in ("randn", "normal"): np.testing.assert_allclose(got[name], want[name], rtol=2e-6, atol=2e-6, err_msg=name)
    else: assert np.array_equal(got[name], want[name]), name


@pytest.mark.parametrize("device", DEVICES)
def test_random_numbers_look_random(device: str) -> None:
  Tensor.manual_seed(7)
  u, n, i = (
    Tensor.rand(20000, device=device),
    Tensor.randn(20000, device=device),
    Tensor.randint(20000, low=2, high=7, device=device),
  )
  Tensor.realize(u, n, i)
  a, b, c = u.numpy(), n.numpy(), i.numpy()
  assert a.min() >= 0 and a.max() < 1 and abs(a.mean() - 0.5) < 0.01 and abs(a.var() - 1 / 12) < 0.003
  assert abs(b.mean()) < 0.03 and abs(b.std() - 1) < 0.02 and np.isfinite(b).all()
  assert set(c.tolist()) == {2, 3, 4, 5, 6} and np.bincount(c)[2:].min() > 3700
  assert not np.array_equal(a[:100], Tensor.rand(100, device=device).numpy())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda d: d.name)
def test_host_and_back(device: str, dtype: DType) -> None:
  x = samples(dtype)
  t = Tensor(x, device=device)
  back = t.numpy()
  assert back.dtype == x.dtype and np.array_equal(back.view(np.uint8), x.view(np.uint8))
