"""Counters and random numbers at the limits of their dtypes."""
from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest

import ntgrad
from ntgrad import Device, Tensor, dtypes
from ntgrad.codegen.ir.dtype import DType, held
from ntgrad.errors import ArgumentError
from support.marks import long_where

INT = 2 ** 31 - 1


@pytest.fixture(autouse=True, params=["NUMPY", "CPU"])
def _device(request: Any) -> Any:
  Device.DEFAULT = request.param
  yield
  Device.DEFAULT = None


@pytest.mark.parametrize("args", [
  (INT - 3, INT), (INT - 3, INT + 1), (INT - 1, INT + 3), (-INT - 4, -INT), (-INT - 1, INT, 2 ** 30), (INT, -INT - 1, -2 ** 30),
  (-INT - 1, INT, INT * 2),
  (0, 2 ** 60 + 1, 2 ** 59), (2 ** 62, 2 ** 62 + 5, 2), (5, 5), (5, 0), (0, 5, -1), (7, -1, -3)])
def test_arange_of_ints(args: tuple[int, ...]) -> None:
  t, want = Tensor.arange(*args), list(range(*args))
  assert t.tolist() == want
  assert t.dtype is (dtypes.int32 if all(-INT - 1 <= v <= INT for v in want) else dtypes.int64)


def test_arange_as_floats_is_counted_in_ints() -> None:
  for args in ((2 ** 24, 2 ** 24 + 9), (0, 3 * 2 ** 23, 2 ** 21 + 1), (2 ** 40, 2 ** 40 + 5)):
    assert (Tensor.arange(*args, dtype="float32").numpy() == np.array(range(*args), np.float32)).all()
  assert Tensor.arange(0.5, 3).tolist() == [0.5, 1.5, 2.5] and Tensor.arange(0, 1, 0.25).tolist() == [0, 0.25, 0.5, 0.75]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_linspace_ends_at_its_ends(dtype: str) -> None:
  d = dtypes.of(dtype)
  cases = ((0.1, 0.7, 7), (-1.0, 1.0, 1001), (0.0, 1 / 3, 50), (5.0, -7.3, 13), (1e-3, 1e3, 2), (0, 1, 3), (2.5, 2.5, 4))
  made = [Tensor.linspace(*c, dtype=dtype).cast("float64") for c in cases]
  Tensor.realize(*made)
  for (start, stop, n), t in zip(cases, made):
    got = t.numpy()
    assert got[0] == held(start, d) and got[-1] == held(stop, d) and len(got) == n
    precision = {2: 2 ** -8, 4: 2 ** -23, 8: 2 ** -52}[d.itemsize]
    np.testing.assert_allclose(got, np.linspace(start, stop, n), atol=4 * precision * max(abs(start), abs(stop)))
  assert Tensor.linspace(3, 9, 1, dtype=dtype).tolist() == [3] and Tensor.linspace(3, 9, 0, dtype=dtype).shape == (0,)


@long_where(lambda low, high: (low, high) not in ((1.0, 2.0), (-1.0, 1e-3), (3.0, 3.0)))
@pytest.mark.parametrize("dtype", dtypes.floats, ids=lambda d: d.name)
@pytest.mark.parametrize("low, high", [(1.0, 2.0), (0.0, 3.0), (100.0, 101.0), (-1.0, 1e-3), (0.5, 0.75), (-2.0, 0.0),
                                       (1.0, 1.0 + 2.0 ** -20), (3.0, 3.0)])
def test_uniform_stays_below_high(dtype: DType, low: float, high: float) -> None:
  Tensor.manual_seed(0)
  x = Tensor.uniform(20000, low=low, high=high, dtype=dtype).cast("float64").numpy()
  least, most = held(low, dtype), held(high, dtype)
  assert x.min() >= least and (x.max() < most or (least == most and (x == least).all()))
  if most - least > 0.4 and dtype.itemsize >= 2:
    assert abs(x.mean() - (low + high) / 2) < 0.02 * (high - low) + abs(high) * 2**-7


def test_uniform_over_most_of_a_narrow_dtype() -> None:
  x = Tensor.uniform(1000, low=-60000.0, high=60000.0, dtype="float16").numpy()
  assert np.isfinite(x).all() and x.min() < -50000 and x.max() > 50000


@pytest.mark.parametrize(
  "p, expected",
  [(2, 5.0), (1, 7.0), (0, 2.0), (math.inf, 4.0), (-math.inf, 0.0), (3, 91 ** (1 / 3)), (-1, 0.0), (0.5, 4 * math.sqrt(3) + 7)],
)
def test_norms(p: float, expected: float) -> None:
  x = Tensor([3.0, 0.0, -4.0])
  assert abs(x.norm(p).item() - expected) < 1e-5 and x.norm(p, 0, keepdim=True).shape == (1,)
  assert np.isclose(Tensor([[3.0, -4.0], [1.0, 2.0]]).norm(-math.inf, 1).numpy(), [3, 1]).all()


def test_norms_of_small_floats_do_not_overflow() -> None:
  x = Tensor(np.array([300.0, -400.0], np.float16))
  assert x.norm().item() == 500 and x.norm().dtype is dtypes.float16 and abs(x.std().item() - 495) < 0.5


BYTES = struct.pack("ffff", 0.25, 1.5, -2.0, 0.0)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("name", ["uint8", "int8", "uint16", "float16", "bfloat16", "int32", "float32", "int64", "float64",
                                  "uint64", "float8_e4m3"])
def test_bytes_are_the_bits_of_a_dtype(kind: Any, name: str) -> None:
  dtype = dtypes.of(name)
  want = np.frombuffer(BYTES, dtype.np)
  for t in (Tensor(kind(BYTES), dtype=name), ntgrad.frombuffer(kind(BYTES), dtype=dtype)):
    assert t.dtype is dtype and t.numpy().tobytes() == BYTES and t.shape == want.shape
  assert Tensor(kind(BYTES)).dtype is dtypes.uint8 and Tensor(kind(BYTES)).shape == (16,)
  if dtype.itemsize > 1:
    for refuse in (lambda b: Tensor(b, dtype=name), lambda b: ntgrad.frombuffer(b, dtype=name)):
      with pytest.raises(ArgumentError, match="15 bytes|memory"): refuse(kind(BYTES[:-1]))
  assert Tensor(kind(b""), dtype=name).shape == (0,)


def test_bytes_of_bools_and_of_numbers_in_memory() -> None:
  assert Tensor(b"\0\1\1", dtype="bool").tolist() == [False, True, True]
  with pytest.raises(ArgumentError, match="a byte of 2 as bool"): Tensor(b"\0\2", dtype="bool")
  numbers = memoryview(np.array([[0.25, 1.5]], np.float32))
  assert Tensor(numbers).tolist() == [[0.25, 1.5]] and Tensor(numbers, dtype="int32").shape == (2,)
  with pytest.raises(ArgumentError): Tensor(memoryview(np.arange(8, dtype=np.uint8))[::2], dtype="int32")
