"""What a driver has wrong is found, kept, said once, and not called."""
from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ntgrad.backends.opencl import selftest
from ntgrad.backends.opencl.device import OpenCLDevice, available
from ntgrad.backends.opencl.prelude import LIBRARY, Type
from ntgrad.backends.opencl.selftest import COUNT, Functions, widths
from ntgrad.codegen.ir.config import config
from ntgrad.codegen.ir.uop import BinaryOps, UOp
from ntgrad.errors import DeviceError
from support.elementwise import elementwise
from support.marks import long
from support.opencl_helpers import has, source

needs_opencl = pytest.mark.skipif(not available()[0], reason=available()[1])


class Driver:
  """Pretends to run the tests' kernels: right, but for the first lane of vectors of some widths, which is its neighbour's."""

  def __init__(self, *spoilt: int): self.spoilt, self.ran = spoilt, 0

  def __call__(self, text: str, name: str, inputs: list[np.ndarray], count: int) -> np.ndarray:
    self.ran += 1
    assert name in text and all(len(x) == COUNT for x in inputs)
    tested = widths("float" if inputs[0].dtype == np.float32 else "double")
    with np.errstate(all="ignore"): right = np.power(*inputs) if len(inputs) == 2 else np.sin(inputs[0])
    out = np.stack([right] * (1 + len(tested)))
    for i, n in enumerate(tested, 1):
      if n in self.spoilt: out[i, ::n] = right[1::n]
    assert out.size == count
    return out.reshape(-1)


@pytest.fixture(autouse=True)
def _kept(tmp_path: Path) -> Any:
  with config(cache=1, cache_dir=str(tmp_path)): yield


def test_spoilt_widths_are_found_once_for_a_version_of_the_driver(capsys: pytest.CaptureFixture[str]) -> None:
  driver = Driver(4, 8)
  first = Functions("driver 1", driver)
  with config(debug=1):
    assert [first("pow", "double") for _ in range(3)] == [{4}] * 3 and driver.ran == 1
    assert capsys.readouterr().err == "ntgrad: the driver's pow of double4 is wrong; smaller vectors are used\n"
    assert first("pow", "float") == {4, 8} and first("sin", "float") == {4, 8} and driver.ran == 3
    capsys.readouterr()
    assert Functions("driver 1", driver)("pow", "double") == {4} and driver.ran == 3     # another process: kept on disk
    assert capsys.readouterr().err == ""
  assert Functions("driver 2", Driver())("pow", "double") == set()
  with config(cache=0):
    again = Functions("driver 1", driver)
    assert [again("pow", "double") for _ in range(2)] == [{4}] * 2 and driver.ran == 4


def test_a_driver_that_takes_no_such_kernel_gets_single_numbers(capsys: pytest.CaptureFixture[str]) -> None:
  def refuses(*_: Any) -> np.ndarray: raise DeviceError("no double here")
  with config(debug=1): assert Functions("driver 1", refuses)("exp", "double") == set(widths("double")) == {2, 3, 4}
  assert "exp of double2, double3, double4 cannot be tested (no double here)" in capsys.readouterr().err
  assert Functions("driver 1", Driver())("exp", "double") == set()                       # nothing was kept


def test_every_number_meets_every_other_in_vectors() -> None:
  a, b = selftest.inputs("pow", "double")
  assert len({x.tobytes() + y.tobytes() for x, y in zip(a, b)}) == COUNT
  for n in widths("float"):
    assert COUNT % n == 0
    wild = ~(np.abs(a) < 1e3).reshape(-1, n)
    assert (wild.any(1) & ~wild.all(1)).sum() > COUNT // n // 4


@pytest.mark.parametrize("base", ["float", "double"])
@pytest.mark.parametrize("name", LIBRARY)
@pytest.mark.parametrize("bad", [{4}, {2, 3, 4, 8}])
def test_what_is_wrong_is_not_called(name: str, base: str, bad: set[int]) -> None:
  def wrong(fn: str, of: str) -> frozenset[int]: return frozenset(bad if (fn, of) == (name, base) else ())
  for n in (2, 3, 4, 8, 16):
    if has(name, Type(base, n)) or (n == 2 and n not in bad): continue
    helpers = source(name, f"{base}{n}", wrong)
    whole = {key for key, text in helpers if re.search(rf"\b{name}\(a(, b)?\)", text)}
    called = {int(m[1]) for m in (re.fullmatch(rf"{name}_{base}(\d+)", key) for key in whole) if m}
    assert not called & bad, helpers
    if bad == {2, 3, 4, 8}: assert not called and len(re.findall(rf"\b{name}\(a\.", "".join(t for _, t in helpers))) >= 2


@long
@needs_opencl
@pytest.mark.parametrize("bad", [(), (4,), (2, 3, 4, 8)])
def test_results_are_the_same_whatever_is_called(bad: tuple[int, ...]) -> None:
  device = OpenCLDevice()
  device.functions.known.update({(name, base): frozenset(bad) for name in LIBRARY for base in ("float", "double")})
  x = np.resize(np.linspace(0.1, 30, 97), 480)
  y = np.resize(np.linspace(-5, 5, 90), 480)
  for n in (2, 3, 4, 8, 16):
    got = elementwise(
      device, n, [x, y], [lambda a, b, op=op: UOp.alu(op, a, b) for op in (BinaryOps.POW, BinaryOps.MOD, BinaryOps.IDIV)]
    )
    for g, want in zip(got, (x ** y, np.mod(x, y), np.floor_divide(x, y))): np.testing.assert_allclose(g, want, rtol=1e-13)


@needs_opencl
def test_this_driver() -> None:
  """Its functions are tested when a kernel for vectors is rendered, not before; what they give then is right."""
  device = OpenCLDevice()
  assert not device.functions.known
  x = np.resize(np.array([0.5, 2.0, np.inf, -1.0, np.nan, 1e30, 3.0, 0.0]), 480)
  y = np.resize(np.array([2.0, -3.0, 0.5, 1e4, 0.0, 3.0, np.inf]), 480)
  got, = elementwise(device, 8, [x, y], [lambda a, b: UOp.alu(BinaryOps.POW, a, b)])
  with np.errstate(all="ignore"): np.testing.assert_allclose(got, x ** y, rtol=1e-13)
  assert set(device.functions.known) == {("pow", "double")}
