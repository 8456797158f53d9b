"""What dtypes hold: constants are rounded when they are made, so that folding them gives the bits that a device gives."""
from __future__ import annotations

import math
from enum import IntEnum
from typing import Any

import numpy as np
import pytest

import ntgrad.tile.language as tl
from ntgrad import Device, Tensor, dtypes, tile
from ntgrad.codegen.ir.dtype import DType, cast_number, held, number_text, to_narrow
from ntgrad.codegen.ir.uop import UOp
from support.marks import long_where

NUMBERS = (
  0.0,
  -0.0,
  0.1,
  -0.1,
  1 / 3,
  2.5,
  2147483000.0,
  131008.0,
  65519.0,
  65520.0,
  448.0,
  464.1,
  1e-7,
  6e-8,
  1e-40,
  1e300,
  math.inf,
  -math.inf,
  math.nan,
  16777217.0,
  3.9,
  -3.9,
  1 + 2.0**-8 + 2.0**-40,
  0,
  1,
  -1,
  2**24 + 1,
  2**31 - 1,
  2**60 + 2**36 + 1,
  True,
)


@pytest.fixture(params=["NUMPY", "CPU"])
def device(request: Any) -> Any:
  Device.DEFAULT = request.param
  yield request.param
  Device.DEFAULT = None


def alike(a: Any, b: Any) -> bool:
  a, b = float(a), float(b)
  return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


@pytest.mark.parametrize(
  "dtype, value, expected",
  [
    ("float16", 0.1, 0.0999755859375),
    ("float16", 131008.0, math.inf),
    ("float16", 65519.0, 65504.0),
    ("float32", 2147483000.0, 2147483008.0),
    ("bfloat16", 0.1, 0.10009765625),
    ("bfloat16", 1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-7),
    ("float8_e4m3", 0.1, 0.1015625),
    ("float8_e4m3", 1e9, math.nan),
    ("float8_e5m2", 0.1, 0.09375),
    ("float8_e5m2", 1e9, math.inf),
    ("float32", 2**60 + 2**36 + 1, 2.0**60 + 2**37),
    ("float64", 0.1, 0.1),
    ("float32", -0.0, -0.0),
    ("float32", 1e300, math.inf),
    ("int8", 200, -56),
    ("uint8", -1, 255),
    ("int32", 3.9, 3),
    ("bool", 7, True),
  ],
)
def test_constants_are_rounded_when_they_are_made(dtype: str, value: Any, expected: Any) -> None:
  d = dtypes.of(dtype)
  u = UOp.const(d, value)
  assert alike(u.arg, expected) and u is UOp.const(d, u.arg)
  if value == value and d.kind == "f": assert alike(Tensor(value, dtype=d).lazydata.arg, expected)


@long_where(lambda device: device != "NUMPY")
@pytest.mark.parametrize("src", dtypes.all, ids=lambda d: d.name)
def test_a_folded_cast_is_the_computed_one(device: str, src: DType) -> None:
  numbers = [held(v, src) for v in NUMBERS if src.kind == "f" or (math.isfinite(v) and dtypes.min(src) <= v <= dtypes.max(src))]

  def defined(v: Any, dst: DType) -> bool:
    return src.kind not in "fe" or dst.kind not in "iu" or dtypes.min(dst) - 1 < v < dtypes.max(dst) + 1

  cases = [(dst, [v for v in dict.fromkeys(numbers) if defined(v, dst)]) for dst in dtypes.all if dst is not src]
  computed = [Tensor(np.array(values, src.np)).cast(dst) for dst, values in cases]
  Tensor.realize(*computed)
  for (dst, values), t in zip(cases, computed):
    for v, want in zip(values, t.numpy()):
      folded = Tensor(v, dtype=src).cast(dst)
      assert not folded.lazydata.src and alike(folded.numpy(), want), (v, dst, folded.numpy(), want)


@pytest.mark.parametrize("dtype", dtypes.floats, ids=lambda d: d.name)
def test_a_number_beside_a_tensor_is_one_of_its_dtype(device: str, dtype: DType) -> None:
  one, values = Tensor(np.ones(3, dtype.np)), (0.1, 1 / 3, 65519.0, 300.3)
  made = [
    [
      (one * v).cast("float64"),
      Tensor.full((3,), v, dtype=dtype).cast("float64"),
      (one * 0).fill_(v).cast("float64"),
      one.masked_fill(one > 0, v).cast("float64"),
      Tensor(v, dtype=dtype).cast("float64").expand(3),
      (one * v).eq(v).cast("float64"),
    ]
    for v in values
  ]
  Tensor.realize(*[t for ts in made for t in ts])
  for v, (*same, equal) in zip(values, made):
    number = held(v, dtype)
    for got in same: assert all(alike(g, number) for g in got.numpy()), (v, got.numpy())
    assert equal.numpy().all() == (number == number)


def test_gradients_fold_as_they_would_be_computed(device: str) -> None:
  x = Tensor(np.ones(3, np.float16), requires_grad=True)
  g, = (x * 0.1).cast("float32").mul(3.0).sum().gradient(x)
  assert g.cast("float64").numpy().tolist() == [float(np.float16(3) * np.float16(0.1))] * 3
  wide, = (x.cast("float32") * 0.1).sum().gradient(x)
  assert wide.cast("float64").numpy().tolist() == [float(np.float16(0.1))] * 3


def test_floats_outside_of_an_int_dtype_are_one_number_everywhere(device: str) -> None:
  assert cast_number(-0.9, dtypes.float32, dtypes.uint8) == 0 and cast_number(255.9, dtypes.float32, dtypes.uint8) == 255
  for v in (math.inf, -math.inf, math.nan, 3e9):
    assert Tensor(v).cast("int32").item() == -2 ** 31
    assert ((Tensor([1.0, 2.0]) * 0).cast("int32") + Tensor(v).cast("int32")).tolist() == [-2 ** 31] * 2


def test_arrays_are_rounded_once() -> None:
  x = np.array(
    [1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8 - 2.0**-40, -1 - 2.0**-8 - 2.0**-40, np.nan, np.inf, 1e300, -0.0, 2.0**25 + 1]
  )
  got = to_narrow(x, dtypes.bfloat16).astype(np.float64)
  assert np.array_equal(got, [1 + 2.0 ** -7, 1.0, -1 - 2.0 ** -7, np.nan, np.inf, np.inf, 0.0, 2.0 ** 25], equal_nan=True)
  assert np.array_equal(Tensor(x, dtype="bfloat16").numpy().astype(np.float64), got, equal_nan=True)
  assert np.array_equal(Tensor(x, device="NUMPY").cast("bfloat16").numpy().astype(np.float64), got, equal_nan=True)


def _sum(x: Any, y: Any) -> None:
  y = x * 0.1 + 0.2  # noqa: F841

def _loop(x: Any, y: Any) -> None:
  t = 0.1
  for _ in range(2): t = t + x * 0
  y = t + 0.2 + x * 0.1  # noqa: F841

def _chosen(x: Any, y: Any) -> None:
  y = x * 0.1 + tl.where(x < 2.0, 0.2, x * 0 + 0.2)  # noqa: F841


@pytest.mark.parametrize("application, least", [(_sum, 0.2), (_loop, 0.3), (_chosen, 0.2)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_numbers_in_tile_kernels_are_rounded_to_the_dtype_that_they_meet(application: Any, least: float, dtype: Any) -> None:
  def arrangement(x: Any, y: Any) -> Any: return x.tile((4,)), y.tile((4,))
  kernel = tile.make(arrangement, application, (tile.Tensor(1), tile.Tensor(1)))
  x, y = np.arange(4).astype(dtype), np.empty(4, dtype)
  kernel(x, y)
  np.testing.assert_allclose(y, np.arange(4) * float(dtype(0.1)) + least, rtol=3 * np.finfo(dtype).eps)


def test_a_number_alone_is_stored_in_the_dtype_of_the_parameter() -> None:
  def arrangement(y: Any) -> Any: return (y.tile((4,)),)
  def application(y: Any) -> None:
    y = 0.1  # noqa: F841
  y = np.empty(4, np.float64)
  tile.make(arrangement, application, (tile.Tensor(1),))(y)
  assert y.tolist() == [0.1] * 4


def test_constants_read_as_they_were_written() -> None:
  assert [number_text(held(0.1, d), d) for d in (dtypes.float64, dtypes.float32, dtypes.float16)] == ["0.1"] * 3
  assert number_text(3, dtypes.int32) == "3" and number_text(-math.inf, dtypes.float32) == "-inf"


def test_kinds_of_ints_are_ints() -> None:
  class Color(IntEnum): RED = 1
  assert dtypes.of(Color) is dtypes.of(int) and dtypes.of(bool) is dtypes.bool
