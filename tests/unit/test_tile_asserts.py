"""Checks that kernels make while they run: ``tl.device_assert``."""
from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad import Device, Tensor, jit
from ntgrad.engine import device_asserts
from ntgrad.errors import ApplicationError, ArgumentError, DeviceAssertError, DTypeError
from support.devices import DEVICES, missing

N = 40


def logs(x: Any, y: Any) -> None:
  tl.device_assert(x > 0, "positive numbers only")
  y = tl.log(x)  # noqa: F841


def rows(x: Any, y: Any) -> None:
  for i in range(x.shape[0]):
    tl.device_assert(tl.sum(x[i]) < 100, "small sums only")
    y[i] = x[i] * 2


def pair(application: Any = logs) -> Any:
  return tile.make(lambda x, y: (x.tile((16,)), y.tile((16,))), application, (tile.Tensor(1),) * 2)


def numbers(*bad: int) -> np.ndarray[Any, Any]:
  out = np.arange(1, N + 1, dtype=np.float32)
  out[list(bad)] = -1
  return out


def on(device: str, values: Any) -> Tensor:
  if reason := missing(device): pytest.skip(reason)
  return Tensor(values, device=device).realize()


@pytest.mark.parametrize("device", DEVICES)
def test_raised_where_the_host_waits(device: str) -> None:
  k, y = pair(), on(device, np.zeros(N, np.float32))
  k(on(device, numbers()), y)
  np.testing.assert_allclose(y.numpy(), np.log(numbers()), rtol=1e-4)   # what lies outside of the last tile does not count
  k(on(device, numbers(3, 20)), y)
  said = r"logs: device_assert: positive numbers only does not hold, test_tile_asserts.py:\d+; last for element \(1, 4\) of \(3,"
  with pytest.raises(DeviceAssertError, match=said): y.numpy()
  np.testing.assert_allclose(y.numpy()[:3], np.log(numbers())[:3], rtol=1e-4)   # said once
  k(on(device, numbers(1)), y)
  with pytest.raises(DeviceAssertError, match=r"\(0, 1\)"): Device.synchronize(device)
  Device.synchronize(device)


@pytest.mark.parametrize("device", DEVICES)
def test_captured(device: str) -> None:
  k, y = pair(), on(device, np.zeros(N, np.float32))

  @jit
  def f(x: Tensor) -> Tensor:
    k(x, y)
    return x + 1

  good, bad = on(device, numbers()), on(device, numbers(30))
  for _ in range(4): f(good).numpy()
  out = f(bad)
  with pytest.raises(DeviceAssertError, match=r"\(1, 14\)"): out.numpy()
  f(good).numpy()


def test_in_a_loop_and_several() -> None:
  k = tile.make(lambda x, y: (x.tile((4,)).tile((-1,)), y.tile((4,)).tile((-1,))), rows, (tile.Tensor(1),) * 2)
  x, y = numbers(), np.zeros(N, np.float32)
  with pytest.raises(DeviceAssertError, match="rows: device_assert: small sums only"): k(x, y)
  k(np.ones(N, np.float32), y)
  np.testing.assert_array_equal(y, 2)

  def two(x: Any, y: Any) -> None:
    tl.device_assert(x < 1e3)
    tl.device_assert(x > 0, "positive")
    y = x + 1  # noqa: F841
  bad = numbers(5)
  bad[7] = 1e4
  with pytest.raises(DeviceAssertError) as e: pair(two)(bad, np.zeros(N, np.float32))
  first, second = str(e.value).splitlines()
  assert "(0, 7)" in first and "device_assert does not hold" in first and "positive" in second and "(0, 5)" in second


def test_applied_and_refused() -> None:
  def roots(x: Any) -> Any:
    tl.device_assert(x >= 0)
    return tl.sqrt(x), x * 2
  a, b = tile.apply(roots, np.array([4, 9], np.float32))
  assert a.tolist() == [2, 3] and b.tolist() == [8, 18]
  with pytest.raises(DeviceAssertError): tile.apply(roots, np.array([4, -9], np.float32))
  with pytest.raises(DTypeError, match="a block of bools, got dtypes.float"):
    tile.apply(lambda x: tl.device_assert(x) or x, np.ones(3, np.float32))
  with pytest.raises(ApplicationError, match="static_assert failed: known"):
    tile.apply(lambda x: tl.device_assert(1 > 2, "known") or x, np.ones(3, np.float32))


def test_libraries_have_none(tmp_path: Any) -> None:
  def premake() -> Any: return lambda x, y: (x.tile((16,)), y.tile((16,))), logs, (tile.Tensor(1),) * 2
  with pytest.raises(ArgumentError, match="logs has a device_assert"):
    tile.build(premake, (tile.Config(arguments=(((N,), "float32"),) * 2),), output_dir=tmp_path)


def test_checks_go_with_their_kernel() -> None:
  gc.collect()
  before = set(device_asserts._of)
  k = pair()
  k(numbers(), np.zeros(N, np.float32))
  assert len(set(device_asserts._of) - before) == 1
  del k
  gc.collect()
  assert not set(device_asserts._of) - before
