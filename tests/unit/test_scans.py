"""Running sums: SCAN_AXIS of the tensor graph, its gradients, its kernels on every kind of target."""
from __future__ import annotations

import itertools
from typing import Any, Callable

import numpy as np
import pytest

from ntgrad import Tensor, dtypes
from ntgrad.codegen.ir.config import config
from ntgrad.codegen.ir.target import Target
from ntgrad.codegen.ir.uop import BinaryOps, Ops
from ntgrad.codegen.kernel import AxisKind
from ntgrad.codegen.linearizer import Linearizer
from ntgrad.codegen.pipeline import prepare
from ntgrad.graph import nodes as graph
from ntgrad.schedule import create_schedule, schedule_graph
from support.marks import long, long_where
from tests.support.triton import NAME as TRITON, installed
from tests.unit.test_tensor_graph import check_gradient

ADD, MUL, MAX, MIN = BinaryOps.ADD, BinaryOps.MUL, BinaryOps.MAX, BinaryOps.MIN
NUMPY: dict[BinaryOps, np.ufunc] = {ADD: np.add, MUL: np.multiply, MAX: np.maximum, MIN: np.minimum}
CPU, GPU = Target("opencl", lanes=8, cores=2), Target("triton", blocks=True, cores=132)
DEVICES = ["CPU", "NUMPY", TRITON]


def scan(t: Tensor, fn: BinaryOps, axis: int, reverse: bool = False) -> Tensor:
  return t._wrap(graph.scan(fn, t.lazydata, axis, reverse))


def expected(a: np.ndarray, fn: BinaryOps, axis: int, reverse: bool) -> np.ndarray:
  wide = a.astype(np.float64) if a.dtype.kind == "f" else a
  out = NUMPY[fn].accumulate(np.flip(wide, axis) if reverse else wide, axis=axis)
  return np.flip(out, axis) if reverse else out


def data(shape: tuple[int, ...], fn: BinaryOps = ADD, seed: int = 0) -> np.ndarray:
  a = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
  return (1 + a / 64).astype(np.float32) if fn is MUL else a


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Any:
  if request.param != TRITON: yield request.param
  else:
    with installed(): yield TRITON


SHAPES = [(1,), (13,), (3, 37, 48), (2, 5000), (5000, 2), (300, 40), (5, 1, 33)]


@long_where(lambda device, fn: device != "NUMPY" and fn is not MAX)
@pytest.mark.parametrize("fn", [ADD, MUL, MAX, MIN])
@pytest.mark.parametrize("noopt", [0, 1])
def test_along_every_axis(device: str, fn: BinaryOps, noopt: int, monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(config, "noopt", noopt)
  shapes = SHAPES if fn is ADD and not noopt else SHAPES[2:4] if fn is ADD else SHAPES[2:3]
  for shape in shapes:
    a = data(shape, fn)
    t = Tensor(a, device=device)
    for axis, reverse in itertools.product(range(len(shape)), (False, True)):
      if reverse and shape[axis] < 33: continue
      got = (scan(t * 2 / 2, fn, axis, reverse) - t).numpy()   # something before it and something behind it
      where = f"{shape} {axis} {reverse}"
      np.testing.assert_allclose(got, expected(a, fn, axis, reverse) - a, rtol=1e-4, atol=1e-3, err_msg=where)


@pytest.mark.parametrize("shape,axis", [((1, 131101), 1), ((131101,), 0), ((70001, 2), 0), ((2, 65536), 1), ((2, 66000, 8), 1)])
def test_long(shape: tuple[int, ...], axis: int) -> None:
  """In parts, of which each core has some; a reversed one as well, and combiners whose identity is not 0."""
  a = data(shape)
  t = Tensor(a, device="CPU")
  for fn, reverse in ((ADD, False), (ADD, True), (MAX, False), (MIN, True)):
    np.testing.assert_allclose(scan(t, fn, axis, reverse).numpy(), expected(a, fn, axis, reverse), rtol=1e-4, atol=2e-3)
  np.testing.assert_array_equal(t.cumsum(axis).numpy(), t.cumsum(axis).numpy())


@long_where(lambda device: device != "NUMPY")
def test_views_and_dtypes(device: str) -> None:
  a = np.random.default_rng(0).integers(-9, 9, (6, 17, 20))
  for dtype in (dtypes.int64, dtypes.uint8, dtypes.bool, dtypes.bfloat16):
    x = a % 2 == 0 if dtype is dtypes.bool else abs(a) if dtype.kind == "u" else a
    t = Tensor(x.astype(np.int64), device=device).cast(dtype)
    views: list[tuple[Callable[[Any], Any], Callable[[np.ndarray], np.ndarray]]] = [
      (lambda t: t, lambda x: x), (lambda t: t.permute(2, 0, 1), lambda x: x.transpose(2, 0, 1)),
      (lambda t: t.flip(1)[1:4, ::3], lambda x: np.flip(x, 1)[1:4, ::3])]
    for view, same in views:
      for axis in (0, 2):
        got = view(t).cumsum(axis).flip(axis).float().numpy()
        np.testing.assert_array_equal(got, np.flip(np.cumsum(same(x.astype(np.int64)), axis), axis).astype(np.float32))


def test_no_elements_and_one() -> None:
  assert Tensor.empty(0, 3).cumsum(0).numpy().shape == (0, 3) and Tensor.empty(3, 0).cumsum(0).numpy().shape == (3, 0)
  assert Tensor(4.0).cumsum(0).numpy() == 4 and Tensor([[5.0], [6.0]]).cumsum(1).numpy().tolist() == [[5.0], [6.0]]
  same = Tensor.ones(3, 700)   # nothing varies along the axis
  np.testing.assert_array_equal(same.cumsum(1).numpy()[2], np.arange(1, 701))


def test_constants_in_blocks() -> None:
  with installed():
    np.testing.assert_array_equal(Tensor.ones(3, 700, device=TRITON).cumsum(1).numpy()[2], np.arange(1, 701))


def test_nan_stays() -> None:
  a = np.array([[1.0, np.nan, 0.5, 3.0], [2.0, 1.0, np.inf, -np.inf]], np.float32)
  for fn in (MAX, MIN):
    np.testing.assert_array_equal(scan(Tensor(a), fn, 1).numpy(), NUMPY[fn].accumulate(a, 1))


@long_where(lambda device: device != "NUMPY")
def test_run_time_sizes(device: str) -> None:
  for n in (40, 47, 90, 1500):
    for shape in ((n, 7), (7, n), (3, n, 20), (n, 70)):
      a = data(shape)
      for axis in range(len(shape)):
        got = (Tensor(a, device=device) * 2).cumsum(axis).numpy()
        np.testing.assert_allclose(got, expected(2 * a, ADD, axis, False), rtol=1e-4, atol=1e-3, err_msg=f"{shape} {axis}")


@long
def test_long_rows_of_run_time_sizes() -> None:
  for n in (40000, 70001, 100003, 8200, 300):
    a = data((2, n))
    for reverse in (False, True):
      got = scan(Tensor(a, device="CPU"), ADD, 1, reverse).numpy()
      np.testing.assert_allclose(got, expected(a, ADD, 1, reverse), rtol=1e-4, atol=2e-3)
  with installed():
    for n in (9000, 20001, 70001, 300):
      a = data((1, n))
      np.testing.assert_allclose(Tensor(a, device=TRITON).cumsum(1).numpy(), expected(a, ADD, 1, False), rtol=1e-4, atol=2e-3)


def test_in_place(device: str) -> None:
  """What a scan reads may be what it is written to."""
  a = data((37, 50))
  for axis in (0, 1):
    t = Tensor(a, device=device).realize()
    t.assign(t + t.cumsum(axis)).realize()
    np.testing.assert_allclose(t.numpy(), a + a.astype(np.float64).cumsum(axis), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("fn", [ADD, MUL, MAX, MIN])
def test_gradients(fn: BinaryOps, reverse: bool) -> None:
  a = np.random.default_rng(3).standard_normal((2, 5, 3))
  for axis in range(3): check_gradient(lambda t, axis=axis: scan(t, fn, axis, reverse), a)
  if fn is MUL:
    a[0, 1, 1] = a[0, 3, 1] = a[1, 4, 2] = 0.0
    check_gradient(lambda t: scan(t, fn, 1, reverse), a)


def test_gradient_of_equal_ones() -> None:
  x = Tensor([1.0, 3.0, 3.0, 2.0, float("nan"), 4.0], requires_grad=True)
  scan(x, MAX, 0).backward(Tensor([1.0, 2.0, 4.0, 8.0, 16.0, 32.0]))
  assert x.grad is not None
  np.testing.assert_array_equal(x.grad.numpy(), [1, 2, 12, 0, 48, 0])   # a NaN's own index is the last one that is NaN


def kernels(t: Tensor, target: Target) -> list[Any]:
  return [i.ast for i in schedule_graph([t.lazydata], target)[1]]


def test_one_kernel() -> None:
  """What it reads and what is made of it are computed in its kernel; it is read once and written once."""
  t = Tensor.empty(512, 200)
  for target in (CPU, GPU):
    kernel, = kernels((t * 2).cumsum(1) + t, target)
    assert len(kernel.params) == 2
    assert [u.arg[:1] + u.arg[2:] for u in kernel.nodes if u.op is Ops.SCAN] == [(ADD, False, 0)]
  t = Tensor.empty(512, 100)   # of longer rows what the parts before came to is carried along too
  one = kernels(t.cumsum(1) / (t * t).cumsum(1), CPU)
  assert len(one) == 1 and len(prepare(one[0], CPU).kernel.variables) == 2


def test_own_kernels() -> None:
  t = Tensor.empty(512, 512)
  assert len(kernels(t.cumsum(0).cumsum(1), CPU)) == 2        # one after the other
  assert len(kernels(t.cumsum(0) + t.cumsum(1), CPU)) == 2    # two ways
  assert len(kernels(t.cumsum(0).sum(0), CPU)) == 2           # a reduction has its own
  assert len(kernels(t.softmax(1).cumsum(1), CPU)) == 3       # so do several, whose row is then made in the scan
  assert len(kernels(t.cumsum(1).T + 1, CPU)) == 1


def test_parts_of_long_rows() -> None:
  """Few rows: sums of parts, where each part begins, all parts at once."""
  for target in (CPU, GPU):
    sums, begins, parts = kernels(Tensor.empty(1, 1 << 20).cumsum(1), target)
    assert sums.reduces and not begins.reduces and not parts.reduces
    grid = [a.size for a in prepare(parts, target).kernel.of_kind(AxisKind.GRID)]
    assert np.prod(grid) >= target.cores
    assert len(kernels(Tensor.empty(4096, 4096).cumsum(1), target)) == 1
    assert len(kernels(Tensor.empty(4096, 8192).cumsum(0), target)) == 1


def test_float_sums_are_sums_of_sums() -> None:
  a = np.full(1 << 16, 0.1, np.float32)
  want = np.arange(1, len(a) + 1) * np.float64(a[0])
  for noopt in (0, 1):
    before, config.noopt = config.noopt, noopt
    try: got = Tensor(a, device="CPU").cumsum(0).numpy()
    finally: config.noopt = before
    assert np.abs(got / want - 1).max() < 5e-5
    assert np.abs(np.add.accumulate(a) / want - 1).max() > 1e-4   # one chain


def test_by_hand() -> None:
  """A kernel without a target, in plain loops."""
  item, = create_schedule([Tensor.empty(5, 7).cumsum(1)])
  uops = Linearizer(item.ast).linearize().uops
  assert Ops.LOOP in [u.op for u in uops] and Ops.SCAN not in [u.op for u in uops]
