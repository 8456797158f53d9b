"""Kernels with random TILE axes, interpreted from their Triton source, compute what their plain loops do; and they compile."""
from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any, Callable, Sequence

import numpy as np
from hypothesis import given, settings, strategies as st

from ntgrad import Tensor
from ntgrad.backends.base import KernelSource, ProgramSpec
from ntgrad.backends.cuda import compiler
from ntgrad.backends.cuda.renderer import TARGET
from ntgrad.backends.numpy.device import NumpyDevice
from ntgrad.codegen.choose.cpu import optimize
from ntgrad.codegen.choose.gpu import tile_axis
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.uop import Ops
from ntgrad.codegen.kernel import AxisKind, Kernel
from ntgrad.codegen.kernel.linear import UOpList
from ntgrad.codegen.linearizer import linearize
from ntgrad.codegen.opts import Block
from ntgrad.engine.compile import extent
from ntgrad.schedule import create_schedule, schedule_graph
from support import triton
from support.descriptors import box_copy, interpreted, marked, numbers, product
from support.kernels import GRAPHS, contents
from support.marks import long
from support.triton_kernels import lines

pytestmark = triton.needs_triton
E = Tensor.empty
PRODUCTS: dict[str, Callable[[], list[Tensor]]] = {
  "float": lambda: [E(20, 24) @ E(24, 40)],
  "transposed": lambda: [E(48, 32, dtype="bfloat16").T @ E(40, 48, dtype="bfloat16").T],
  "half": lambda: [(E(33, 48, dtype="float16") @ E(48, 20, dtype="float16") + E(20, dtype="float16")).relu()],
  "bytes": lambda: [E(20, 40, dtype="int8") @ E(40, 20, dtype="int8")],
  "computed": lambda: [E(20, 20).exp() @ E(20, 20).tril()],
  "fp8": lambda: [E(32, 40, dtype="float8_e5m2") @ E(40, 20, dtype="float8_e5m2")],
  "batched": lambda: [E(2, 20, 30) @ E(2, 30, 18)],
  "conv": lambda: [E(1, 10, 8, 12).conv2d(E(12, 10, 3, 3), padding=1)],
  "attention": lambda: [(E(20, 16) @ E(16, 24)).softmax() @ E(24, 20)],
}


@cache
def devices() -> tuple[Any, Any]:
  from ntgrad.backends.cuda.interpreter import InterpreterDevice
  return InterpreterDevice(), NumpyDevice()


def run(device: Any, kernel: Kernel, uops: UOpList, data: list[np.ndarray]) -> tuple[KernelSource, list[np.ndarray]]:
  source = device.renderer.render("k", uops)
  program, = device.compile([ProgramSpec("k", source, extent(kernel, AxisKind.GRID), (1, 1, 1), len(kernel.params), tuple(uops))])
  arrays = [a.copy() for a in data]
  program([a.reshape(-1).view(np.uint8) for a in arrays])
  return source, arrays


def tiled(kernel: Kernel, draw: Any, sizes: list[int], room: int) -> Kernel:
  """Some axes as blocks: whole, by a divisor, or padded to a multiple of a power of two."""
  for axis in draw(st.permutations(kernel.axes)):
    if axis.id in kernel.sequential or axis.size == 1: continue
    amount = draw(st.sampled_from([1, axis.size, *sizes, *(d for d in (2, 3, 5, 6, 12) if axis.size % d == 0)]))
    rounded = 1 << (min(amount, axis.size) - 1).bit_length()
    if amount == 1 or rounded > room: continue
    room //= rounded
    now = kernel.axis(axis.id)
    if amount < now.size and now.size % amount == 0: kernel = Block(now.id, amount).apply(kernel)
    else: kernel = tile_axis(kernel, now, rounded if amount < now.size else 1 << (now.size - 1).bit_length())
  return kernel


def check(graph: Callable[[], list[Tensor]], data: Any, sizes: list[int], room: int) -> None:
  rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
  interpreter, oracle = devices()
  for item in create_schedule(graph()):
    kernel = item.ast
    if kernel is None: continue
    if any(u.op is Ops.SCAN for u in kernel.nodes): continue   # its pass chooses for it
    t = tiled(kernel, data.draw, sizes, room)
    if math.prod(extent(t, AxisKind.GRID)) > 100: continue
    arrays = [np.abs(a) if a.dtype.kind == "i" else a for a in contents(kernel, rng, True)]
    source, got = run(interpreter, t, lines(t), arrays)
    _, want = run(oracle, kernel, linearize(kernel), arrays)
    for g, w in zip(got, want):
      tol = 2e-3 if g.dtype.itemsize < 4 else 1e-5
      np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), rtol=tol, atol=tol,
                                 err_msg=f"{', '.join(map(str, t.axes))}\n{source.text}")
    if data.draw(st.integers(0, 9)) == 0:
      compiler.build(compiler.Request(source, "k", data.draw(st.sampled_from(["sm_80", "sm_90"]))))


OTHERS: dict[str, Callable[[], list[Tensor]]] = {
  "columns": lambda: [E(70, 36).sum(0), E(70, 36).softmax(0), E(5, 40, 33).max(axis=1)],
  "transposed": lambda: [E(40, 36).T.contiguous() + 1, E(3, 20, 5, 18).permute(0, 3, 1, 2).contiguous()],
  "vector times matrix": lambda: [E(1, 70) @ E(70, 36), E(36, 70) @ E(70, 1)],
  "statistics": lambda: [E(6, 5, 6, 7).mean((0, 2, 3)), E(6, 5, 6, 7).std((0, 1, 2)), E(9, 130).softmax()],
  "channels last": lambda: [E(2, 8, 7, 18).permute(0, 3, 1, 2).conv2d(E(20, 3, 3, 18).permute(0, 3, 1, 2), padding=1)],
  "stride": lambda: [E(2, 9, 9, 16).permute(0, 3, 1, 2).conv2d(E(18, 3, 3, 16).permute(0, 3, 1, 2), padding=1, stride=2)],
  "by channel": lambda: [E(2, 6, 9, 10).conv2d(E(6, 1, 3, 3), padding=1, groups=6), E(2, 3, 8, 10).max_pool2d(2)],
  "windows with rows in common": lambda: [
    E(2, 3, 23, 18).conv2d(E(3, 1, 5, 3), padding=2, groups=3), E(19, 11).avg_pool2d(3, stride=1),
    E(2, 16, 13).max_pool2d(3, stride=(2, 1), padding=1), E(2, 3, 24, 7).avg_pool2d(2, stride=1)],
  "pointwise": lambda: [E(4, 7, 6, 20).permute(0, 3, 1, 2).conv2d(E(24, 1, 1, 20).permute(0, 3, 1, 2)).permute(0, 2, 3, 1)],
  "gradient": lambda: [*_gradients(1)],
  "gradient, stride": lambda: [*_gradients(2)],
  "epilogue": lambda: [(E(40, 36, dtype="float16") @ E(36, 48, dtype="float16") + E(48, dtype="float16")).gelu()],
  "split": lambda: [E(20, 600) @ E(600, 18), E(3, 2000).sum(1)],
}


def _gradients(stride: int) -> Sequence[Tensor]:
  """Of a convolution whose channels lie side by side, with respect to its weight and its input."""
  x, w = E(2, 8, 8, 16).permute(0, 3, 1, 2), E(18, 3, 3, 16).permute(0, 3, 1, 2)
  x.requires_grad = w.requires_grad = True
  y = x.conv2d(w, padding=1, stride=stride)
  return (E(*y.shape[:1], *y.shape[2:], 18).permute(0, 3, 1, 2) * y).sum().gradient(w, x)


@long
@settings(max_examples=60)
@given(st.data())
def test_what_is_chosen(data: Any) -> None:
  """The blocks that the model chooses for chips of several kinds, all so small that small kernels fill them."""
  draw, (interpreter, oracle) = data.draw, devices()
  graphs = {**GRAPHS, **PRODUCTS, **OTHERS}
  numbers: dict[str, list[Any]] = {
    "cores": [1, 2, 4], "cache": [1 << 8, 1 << 20], "mapped": [16, 64], "row": [64, 256], "block": [32, 128],
    "row_bytes": [64, 128], "dots": [((32, 64), (32, 32), (16, 32), (16, 16)), ((32, 16), (16, 16))], "exact_dot": [(32, 16, 16)],
    "waves": [1, 3], "group": [2], "latency": [1e-8, 1e-6], "bandwidth": [1e9, 3e12], "descriptors": [False, True],
    "launch": [1e-9],
  }
  target = replace(TARGET, **{name: draw(st.sampled_from(values)) for name, values in numbers.items()})
  rng = np.random.default_rng(draw(st.integers(0, 1000)))
  name = draw(st.sampled_from(sorted(graphs)))
  for item in schedule_graph([t.lazydata for t in graphs[name]()], target)[1]:
    kernel = item.ast
    if kernel is None: continue
    t = optimize(kernel, target)
    if math.prod(extent(t, AxisKind.GRID)) > 200: continue
    arrays = [np.abs(a) if a.dtype.kind == "i" else a for a in contents(kernel, rng, True)]
    source, got = run(interpreter, t, lines(t), arrays)
    _, want = run(oracle, kernel, linearize(kernel), arrays)
    for g, w in zip(got, want):
      tol = 2e-3 if g.dtype.itemsize < 4 else 3e-5
      np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), rtol=tol, atol=tol,
                                 err_msg=f"{name}: {' '.join(map(str, t.applied))}\n{source.text}")


@given(st.data())
def test_random_tiles(data: Any) -> None: check(GRAPHS[data.draw(st.sampled_from(sorted(GRAPHS)))], data, [4, 8, 16], 4096)


@long
@settings(max_examples=20)
@given(st.data())
def test_random_tiles_of_products(data: Any) -> None:
  check(PRODUCTS[data.draw(st.sampled_from(sorted(PRODUCTS)))], data, [16, 32], 65536)


@settings(max_examples=25)
@given(st.data())
def test_random_boxes_by_descriptor(data: Any) -> None:
  """Slices in random blocks: copies, and products of them, by descriptor and by pointers."""
  draw, interpreter = data.draw, devices()[0]
  dtype = draw(st.sampled_from([dtypes.float16, dtypes.float32, dtypes.int8, dtypes.int64, dtypes.bool]))
  rank = draw(st.integers(1, 4))
  unit = 16 // dtype.itemsize
  shape = [draw(st.integers(1, 9)) for _ in range(rank - 1)] + [
    draw(st.sampled_from([1, 2, 3, 5])) * unit + draw(st.sampled_from([0, 0, 0, 1]))
  ]
  start = [draw(st.sampled_from([0, 0, n // 2])) for n in shape[:-1]]
  start.append(draw(st.sampled_from([0, 0, unit if shape[-1] > unit else 0, shape[-1] // 2])))
  size = [draw(st.integers(max(1, n - s - 3), n - s)) for n, s in zip(shape, start)]
  blocks = [draw(st.sampled_from([0, 1, 2, 3, 4, n])) for n in size[:-1]] + [draw(st.sampled_from([unit, 2 * unit, size[-1]]))]
  k = box_copy(shape, blocks, dtype, start, size, draw(st.permutations(range(rank))), [draw(st.booleans()) for _ in range(rank)])
  if math.prod(extent(k, AxisKind.GRID)) > 60: return
  slots = [slot for slot in (0, 1) if draw(st.booleans()) or slot == 1]
  arrays = numbers(k, np.random.default_rng(draw(st.integers(0, 1000))))
  a, b = interpreted(interpreter, marked(k, *slots), arrays), interpreted(interpreter, k, arrays)
  for got, want in zip(a, b): np.testing.assert_array_equal(got, want)


@settings(max_examples=15)
@given(st.data())
def test_random_products_by_descriptor(data: Any) -> None:
  draw, interpreter = data.draw, devices()[0]
  dtype = draw(st.sampled_from([dtypes.bfloat16, dtypes.float16, dtypes.float32, dtypes.int8]))
  m, n, k = (draw(st.integers(2, 8)) * 8 + draw(st.sampled_from([0, 0, 0, 1])) for _ in range(3))
  blocks = tuple(draw(st.sampled_from([16, 32, 64])) for _ in range(3))
  kernel = product(
    m,
    n,
    k,
    blocks,
    dtype,
    (draw(st.booleans()), draw(st.booleans())),
    dtypes.int32 if dtype is dtypes.int8 else None,
    draw(st.sampled_from([0, 0, 2])),
  )
  arrays = numbers(kernel, np.random.default_rng(draw(st.integers(0, 1000))))
  a, b = (
    interpreted(interpreter, marked(kernel, *draw(st.sets(st.integers(0, 2), min_size=1))), arrays),
    interpreted(interpreter, kernel, arrays),
  )
  for got, want in zip(a, b): np.testing.assert_array_equal(got, want)
