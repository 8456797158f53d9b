"""float8_e8m0, the scales of blocks: every operation gives what it gives of the same numbers in float32, or refuses."""
from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

from ntgrad import Tensor, dtypes
from ntgrad.codegen.ir.dtype import to_narrow
from ntgrad.codegen.ir.errors import NtgradError
from support.all_ops import COMPOSED, FAMILIES, ROWS, Row, values
from support.devices import DEVICES, missing
from support.marks import long_where

SCALE = dtypes.float8_e8m0
# rows and families that cast what they make, mostly weights, to the dtype of their inputs
CAST_THEMSELVES = ("mask of floats", "logspace", "windows", "losses of classes")
Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def device_exists(device: str) -> None:
  if missing(device): pytest.skip(missing(device))


def scales(row: Row) -> list[Array]:
  """A row's inputs, those of floats as scales."""
  rng = np.random.default_rng(zlib.crc32(f"scales {row.family} {row.name}".encode()))
  made = [values(spec, dtypes.float32, rng) for spec in row.inputs]
  return [np.exp2(np.round(np.clip(x * 2, -7, 7))).astype(SCALE.np) if x.dtype == np.float32 else x for x in made]


def several(x: Any) -> list[Any]: return list(x) if isinstance(x, (tuple, list)) else [x]


def differs(got: Array, want: Array) -> bool:
  if got.dtype == SCALE.np: want, got = to_narrow(want, SCALE).view(np.uint8), got.view(np.uint8)
  return got.shape != want.shape or not np.isclose(got, want, rtol=1e-5, atol=1e-6, equal_nan=True).all()


@long_where(lambda family: family in COMPOSED)
@pytest.mark.parametrize("device", ["NUMPY"])
@pytest.mark.parametrize("family", FAMILIES)
def test_operations_take_scales_as_float32(device: str, family: str) -> None:
  wrong = []
  for row in [r for r in ROWS if r.family == family and r.takes(dtypes.float32) and not {r.name, r.family} & {*CAST_THEMSELVES}]:
    arrays = scales(row)
    with np.errstate(all="ignore"):
      try: got = [t.numpy() for t in several(row.fn(*[Tensor(a, device=device) for a in arrays]))]
      except NtgradError: continue
      wide = [a.astype(np.float32) if a.dtype == SCALE.np else a for a in arrays]
      want = [t.numpy() for t in several(row.fn(*[Tensor(a, device=device) for a in wide]))]
      if any(map(differs, got, want)): wrong.append(f"{row.name}: {got} of scales, {want} of float32")
  assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("device", DEVICES)
def test_casts(device: str) -> None:
  """All bytes to float32, and what is between two of them, back."""
  every = np.arange(256, dtype=np.uint8).view(SCALE.np)
  wide = every.astype(np.float32)
  further = [0, -0.0, -1, np.inf, -np.inf, np.nan, 3e38]
  near = np.concatenate([*[wide[:-1] * np.float32(f) for f in (1, 1.25, 1.5, 1.75)], further])
  near = near.astype(np.float32)
  t, u = Tensor(every, device=device), Tensor(near, device=device)
  ints = Tensor([2, 3, 0], device=device)
  out = [t.float(), t.cast("float64"), t.bitcast("uint8"), u.cast(SCALE), u.cast(SCALE).bitcast("uint8"), ints.cast(SCALE)]
  Tensor.realize(*out)
  f, d, b, s, c, i = [x.numpy() for x in out]
  assert np.array_equal(f, wide, equal_nan=True) and np.array_equal(d, wide.astype(np.float64), equal_nan=True)
  assert np.array_equal(b, np.arange(256, dtype=np.uint8))
  with np.errstate(all="ignore"): want = np.where(near == 0, 2.0 ** -127, near).astype(np.float32).astype(SCALE.np)
  assert np.array_equal(s.view(np.uint8), want.view(np.uint8)) and np.array_equal(c, want.view(np.uint8))
  assert i.view(np.uint8).tolist() == [128, 129, 0]   # of two that are equally near the greater; the least for 0


@pytest.mark.parametrize("device", DEVICES)
def test_dequantised_product(device: str) -> None:
  """Blocks of 32 elements of float8_e4m3 with a scale each, as MXFP8 has them, against float64."""
  rng = np.random.default_rng(0)
  w, s = rng.standard_normal((16, 4, 32)).astype(dtypes.float8_e4m3.np), np.exp2(rng.integers(-4, 4, (16, 4, 1))).astype(SCALE.np)
  x = rng.standard_normal((5, 128)).astype(np.float32)
  got = Tensor(x, device=device) @ (Tensor(w, device=device).float() * Tensor(s, device=device)).reshape(16, 128).T
  want = x.astype(np.float64) @ (w.astype(np.float64) * s.astype(np.float64)).reshape(16, 128).T
  assert got.dtype is dtypes.float32
  np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-4)
