"""Sorts: SORT_AXIS of the tensor graph, what is made of it, its kernels on every kind of target."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ntgrad import Tensor, dtypes
from ntgrad.backends.cuda.renderer import TritonRenderer
from ntgrad.codegen.ir.config import config
from ntgrad.codegen.ir.dtype import DType
from ntgrad.codegen.ir.target import Target
from ntgrad.codegen.ir.uop import Ops
from ntgrad.codegen.kernel import AxisKind
from ntgrad.codegen.linearizer import linearize
from ntgrad.codegen.pipeline import prepare
from ntgrad.errors import ArgumentError, AxisError, OptError
from ntgrad.graph import nodes as graph
from ntgrad.schedule import create_schedule, schedule_graph, sort as parts
from support.marks import long, long_where
from tests.graph_eval import evaluate, value
from tests.support.triton import NAME as TRITON, installed
from tests.unit.test_tensor_graph import check_gradient

CPU, GPU = Target("opencl", lanes=8, cores=2), Target("triton", blocks=True, cores=132)
DEVICES = ["CPU", "NUMPY", TRITON]
SHAPES = [(1,), (3, 1, 5), (33, 3), (2, 300)]
DTYPES = [dtypes.bool, dtypes.uint8, dtypes.int8, dtypes.int16, dtypes.uint16, dtypes.int32, dtypes.uint32, dtypes.int64,
          dtypes.uint64, dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Any:
  if request.param != TRITON: yield request.param
  else:
    with installed(): yield TRITON


def places(a: np.ndarray, axis: int, descending: bool = False) -> np.ndarray:
  """Where what is sorted stands, in a stable order, NaN greatest."""
  if descending:   # the stable order of the row turned round, turned round
    return a.shape[axis] - 1 - np.flip(np.argsort(np.flip(a, axis), axis, kind="stable"), axis)
  return np.argsort(a, axis, kind="stable")


def data(shape: tuple[int, ...], dtype: DType, seed: int = 0) -> Tensor:
  """Numbers of which many are equal, the extremes of ints, zeros of both signs, infinities and NaN."""
  rng = np.random.default_rng(seed)
  if dtype.kind == "f":
    a = rng.integers(-6, 7, shape).astype(np.float32) * np.float32(0.375)
    odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, -np.nan], np.float32)
    return Tensor(np.where(rng.random(shape) < 0.3, odd[rng.integers(0, len(odd), shape)], a).astype(np.float32)).cast(dtype)
  if dtype.kind == "b": return Tensor(rng.random(shape) < 0.5)
  few = np.array([dtypes.min(dtype), dtypes.max(dtype), 0, 1, 3, 100], dtype.np)
  return Tensor(few[rng.integers(0, len(few), shape)])


def check(t: Tensor, a: np.ndarray, axis: int, descending: bool, keep: int | None = None) -> None:
  where = f"{a.dtype} {a.shape} {axis} {descending} {keep}"
  want = places(a, axis, descending)
  if keep is None: values, indices = t.sort(axis, descending)
  else:
    values, indices = t.topk(keep, axis, largest=descending)
    want = want.take(range(keep), axis)
  assert indices.dtype is dtypes.int32 and values.dtype is t.dtype, where
  np.testing.assert_array_equal(indices.numpy(), want, err_msg=where)
  got = values.float().numpy() if t.dtype.kind == "f" and t.dtype.itemsize < 4 else values.numpy()
  wanted = np.take_along_axis(a, want, axis)
  np.testing.assert_array_equal(got, wanted, err_msg=where)
  if a.dtype.kind == "f": np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(wanted[wanted == 0]), err_msg=where)


def known(t: Tensor) -> np.ndarray:
  return t.float().numpy() if t.dtype.kind == "f" and t.dtype.itemsize < 4 else t.numpy()


@long_where(lambda device, dtype: dtype.itemsize == 8 or (device != "NUMPY" and dtype is not dtypes.int8))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype(device: str, dtype: DType) -> None:
  """Stable both ways, whatever the sign of a zero; NaN is greatest."""
  here = data((3, 70), dtype)
  a, t = known(here), here.to(device)
  check(t, a, 1, False)
  check(t, a, 1, True, 3)
  if dtype in (dtypes.int8, dtypes.float32): check(t, a, 1, True)


@long_where(lambda device, noopt: device != "NUMPY" or noopt)
@pytest.mark.parametrize("noopt", [0, 1])
def test_every_axis(device: str, noopt: int, monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(config, "noopt", noopt)
  for shape in SHAPES:
    a = data(shape, dtypes.float32, 1).numpy()
    t = Tensor(a, device=device)
    for axis in range(len(shape)):
      check(t, a, axis, False)
      if shape[axis] > 2: check(t, a, axis, True, (shape[axis] + 1) // 2)


@long_where(lambda device: device != "NUMPY")
def test_fuzz(device: str) -> None:
  rng = np.random.default_rng(7)
  for n in range(6):
    shape = tuple(int(s) for s in rng.integers(1, (70, 12, 9)[:rng.integers(1, 4)]))
    dtype = DTYPES[rng.integers(len(DTYPES))]
    axis, descending = int(rng.integers(-len(shape), len(shape))), bool(rng.integers(2))
    t = data(shape, dtype, n)
    a = known(t)
    if len(shape) > 1 and rng.integers(2): t, a = t.transpose(0, -1).flip(0), np.flip(np.swapaxes(a, 0, -1), 0)
    keep = None if rng.integers(2) else int(rng.integers(1, a.shape[axis] + 1))
    check(t.to(device), a, axis % a.ndim, descending, keep)


@long
def test_long_rows() -> None:
  for shape in ((1, 70001), (3, 5000)):
    a = np.random.default_rng(0).integers(-3000, 3000, shape).astype(np.float32)
    t = Tensor(a, device="CPU")
    check(t, a, 1, False)
    for k in (1, 65): check(t, a, 1, True, k)


@pytest.mark.parametrize("n", [100, 300])
def test_parts_of_long_rows(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
  """Where there are blocks: parts that are merged, or whose least are sorted again; the same as the graph's evaluation."""
  monkeypatch.setattr(parts, "BLOCK", 64)
  monkeypatch.setattr(parts, "PART", 32)
  monkeypatch.setattr(parts, "KEPT", 4)
  a = np.random.default_rng(n).integers(0, 99, (2, n, 2)).astype(np.float32)
  for axis, keep in ((1, n), (1, 3), (1, 20)):
    t = Tensor(a)
    node = t.topk(keep, axis, largest=False)[1].lazydata
    split = parts.split_sort(next(u for u in node.toposort() if u.op is Ops.SORT_AXIS), GPU)
    assert split is not None
    first, = evaluate(next(u for u in node.toposort() if u.op is Ops.SORT_AXIS))
    np.testing.assert_array_equal(evaluate(split)[0], first)
  with installed():
    t = Tensor(a, device=TRITON)
    check(t, a, 1, False)
    check(t, a, 1, True, 3)


def test_no_elements_and_one() -> None:
  for shape, axis in (((0, 3), 0), ((3, 0), 1), ((3, 0), 0)):
    values, indices = Tensor.empty(*shape).sort(axis)
    assert values.numpy().shape == indices.numpy().shape == shape and indices.dtype is dtypes.int32
  values, indices = Tensor(4.0).sort()
  assert values.numpy() == 4 and indices.numpy() == 0 and values.shape == ()
  values, indices = Tensor([[5.0], [6.0]]).sort(1)
  assert values.numpy().tolist() == [[5.0], [6.0]] and indices.numpy().tolist() == [[0], [0]]
  values, indices = Tensor([[5.0, 7.0]]).topk(0)
  assert values.shape == indices.shape == (1, 0)
  assert Tensor(3).topk(1)[0].numpy() == 3


def test_refusals() -> None:
  t = Tensor.empty(3, 4)
  for call in (lambda: t.sort(2), lambda: t.argsort(-3), lambda: t.topk(1, 5)):
    with pytest.raises(AxisError): call()
  with pytest.raises(ArgumentError, match="k = 5 of the 4 elements along dim 1"): t.topk(5, 1)
  for k in (-1, 1.5):
    with pytest.raises(ArgumentError): t.topk(k)  # type: ignore[arg-type]
  item, = create_schedule([t.argsort()])[:1]
  with pytest.raises(OptError, match="sorts"): prepare_by_hand(item.ast)


def prepare_by_hand(kernel: Any) -> None:
  from ntgrad.codegen.linearizer import Linearizer
  Linearizer(kernel).lane(0, 1)



def test_in_place(device: str) -> None:
  a = np.random.default_rng(0).standard_normal((5, 40)).astype(np.float32)
  t = Tensor(a, device=device).realize()
  t.assign(t.sort(1)[0]).realize()
  np.testing.assert_array_equal(t.numpy(), np.sort(a, 1))
  i = Tensor(a.argsort(1).astype(np.int32), device=device).realize()
  i.assign(i.argsort(1)).realize()
  np.testing.assert_array_equal(i.numpy(), a.argsort(1).argsort(1))


@long
def test_something_before_and_behind(device: str) -> None:
  a = np.random.default_rng(0).standard_normal((5, 40)).astype(np.float32)
  t = Tensor(a, device=device)
  got = (t * 2 - t.mean(1, keepdim=True)).argsort(1) * 2 + 1
  want = (a * 2 - a.mean(1, keepdims=True)).argsort(1, kind="stable") * 2 + 1
  np.testing.assert_array_equal(got.numpy(), want)
  got, want = (t.sort(1)[0].cumsum(1) + t.sort(0)[0]).numpy(), np.sort(a, 1).cumsum(1) + np.sort(a, 0)
  np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
  np.testing.assert_array_equal(t.sort(1)[0].sort(0)[0].numpy(), np.sort(np.sort(a, 1), 0))
  np.testing.assert_array_equal(t.argsort(1).argsort(1).numpy(), a.argsort(1).argsort(1))


@long
def test_sizes_that_change(device: str) -> None:
  for n in (40, 47, 90):
    for shape in ((n, 7), (7, n)):
      a = np.random.default_rng(n).standard_normal(shape).astype(np.float32)
      check(Tensor(a, device=device) * 1, a, 1, False)


def test_gradients() -> None:
  a = np.random.default_rng(3).standard_normal((2, 5, 3))
  check_gradient(lambda t: t.sort(1)[0], a)
  check_gradient(lambda t: t.topk(2, 0)[0], a)
  x = Tensor([3.0, 1.0, 3.0, 2.0], requires_grad=True)
  x.sort(descending=True)[0].backward(Tensor([1.0, 2.0, 4.0, 8.0]))
  assert x.grad is not None
  np.testing.assert_array_equal(x.grad.numpy(), [1, 8, 2, 4])
  assert not x.sort()[1].requires_grad


def kernels(t: Tensor, target: Target) -> list[Any]:
  return [i.ast for i in schedule_graph([t.lazydata], target)[1]]


def test_kernels() -> None:
  """What is sorted is computed where it is sorted; a block sorts a row at once, a CPU by a digit at a time."""
  t = Tensor.empty(512, 1024)
  one, = kernels((t * 2).argsort(1), GPU)
  assert len(one.params) == 2 and [tuple(u.arg) for u in one.sorts] == [(one.sorts[0].arg[0], 32, 64, 0, False)]
  assert [a.size for a in prepare(one, GPU).kernel.of_kind(AxisKind.TILE)] == [1024]
  digits = kernels((t * 2).argsort(1), CPU)
  assert [u.arg[1:3] for k in digits for u in k.sorts] == [(32, 40), (40, 48), (48, 56), (56, 64)]
  assert len(kernels(t.cast(dtypes.uint8).argsort(1), CPU)) == 1
  assert len(kernels(t.topk(16, 1)[1], CPU)) == len(kernels(t.topk(16, 1)[1], GPU)) == 1
  assert len(kernels(t.topk(500, 1)[1], CPU)) == 5        # sorted, and cut
  assert len(kernels(t.argsort(0) + t.argsort(1), GPU)) == 2   # the second adds


def test_short_keys_are_one_word_with_their_places() -> None:
  for dtype, n, bits in ((dtypes.bfloat16, 4096, (12, 28)), (dtypes.int8, 5, (3, 11)), (dtypes.uint16, 65537, None)):
    first = kernels(Tensor.empty(4, n, dtype=dtype).argsort(1), GPU)[0].sorts[0]
    assert (first.dtype, first.arg[1:3]) == ((dtypes.uint32, bits) if bits else (dtypes.uint64, (32, 48))), dtype


def test_what_is_stored_are_places() -> None:
  """The keys need twice the memory; values are read at the places."""
  for outs in (Tensor.empty(512, 1024).sort(1)[:1], Tensor.empty(512, 1024).sort(1)):
    ks = [i.ast for i in schedule_graph([t.lazydata for t in outs], GPU)[1] if i.ast is not None]
    assert [p.dtype for k in ks for p in k.params if p.written] == [dtypes.int32, dtypes.float32]


def test_elements_of_a_thread_are_compared_with_each_other() -> None:
  """Four side by side by a load, the others 4 * 32 apart where there is one warp: bits 0, 1 and from 7 on of an element's number.
  Unaligned rows are read by single elements: bits from 5 on."""
  for n, told in ((2048, "11, 11, 11, 1, 2, 7"), (2047, "11, 11, 11, 1, 0, 5")):
    kernel, = kernels(Tensor.empty(2047, n).argsort(1), GPU)
    assert f", {told})\n" in TritonRenderer(GPU).render("k", linearize(prepare(kernel, GPU).kernel, GPU)).text


def test_number_of_kernels() -> None:
  """For a row of n parts, about (log n)**2 / 2, two stages of a merge in one; top-k takes one more for each time it is cut."""
  t = Tensor.empty(2, 1 << 20)
  assert len(kernels(t.argsort(1), GPU)) <= 25
  assert len(kernels(t.topk(10, 1)[1], GPU)) == 3
  assert len(t.topk(10, 1)[1].lazydata.toposort()) < 60


def test_evaluation_agrees() -> None:
  a = data((3, 40), dtypes.float32).numpy()
  np.testing.assert_array_equal(value(Tensor(a).argsort(1)), places(a, 1))
  assert graph.sort(Tensor(a).cast(dtypes.uint32).lazydata, 1, 0, 32, 4).shape == (3, 4)
