"""Kernels with random TILE axes, interpreted from their Triton source, compute what their plain loops do; and they compile."""
from __future__ import annotations

import math
from functools import cache
from typing import Any, Callable

import numpy as np
from hypothesis import given, settings, strategies as st

from ntgrad import Tensor
from ntgrad.backends.base import ProgramSpec
from ntgrad.backends.cuda import compiler
from ntgrad.backends.cuda.renderer import signature
from ntgrad.backends.numpy.device import NumpyDevice
from ntgrad.codegen.kernel import AxisKind, Kernel
from ntgrad.codegen.linearizer import linearize
from ntgrad.codegen.opt import split
from ntgrad.codegen.tiling import tile_axis
from ntgrad.codegen.uop import UOpList
from ntgrad.engine.compile import extent
from ntgrad.schedule import create_schedule
from support import triton
from support.kernels import GRAPHS, contents
from support.triton_kernels import lines

pytestmark = triton.needs_triton
E = Tensor.empty
PRODUCTS: dict[str, Callable[[], list[Tensor]]] = {
  "float": lambda: [E(20, 24) @ E(24, 40)], "transposed": lambda: [E(48, 32, dtype="bfloat16").T @ E(40, 48, dtype="bfloat16").T],
  "half": lambda: [(E(33, 48, dtype="float16") @ E(48, 20, dtype="float16") + E(20, dtype="float16")).relu()],
  "bytes": lambda: [E(20, 40, dtype="int8") @ E(40, 20, dtype="int8")], "computed": lambda: [E(20, 20).exp() @ E(20, 20).tril()],
  "fp8": lambda: [E(32, 40, dtype="float8_e5m2") @ E(40, 20, dtype="float8_e5m2")], "batched": lambda: [E(2, 20, 30) @ E(2, 30, 18)],
  "conv": lambda: [E(1, 10, 8, 12).conv2d(E(12, 10, 3, 3), padding=1)], "attention": lambda: [(E(20, 16) @ E(16, 24)).softmax() @ E(24, 20)]}


@cache
def devices() -> tuple[Any, Any]:
  from ntgrad.backends.cuda.interpreter import InterpreterDevice
  return InterpreterDevice(), NumpyDevice()


def run(device: Any, kernel: Kernel, uops: UOpList, data: list[np.ndarray]) -> tuple[str, list[np.ndarray]]:
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
    if amount < now.size and now.size % amount == 0: kernel = split(kernel, now, amount, AxisKind.TILE)
    else: kernel = tile_axis(kernel, now, rounded if amount < now.size else 1 << (now.size - 1).bit_length())
  return kernel


def check(graph: Callable[[], list[Tensor]], data: Any, sizes: list[int], room: int) -> None:
  rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
  interpreter, oracle = devices()
  for item in create_schedule(graph()):
    kernel = item.ast
    if kernel is None: continue
    t = tiled(kernel, data.draw, sizes, room)
    if math.prod(extent(t, AxisKind.GRID)) > 100: continue
    arrays = [np.abs(a) if a.dtype.kind == "i" else a for a in contents(kernel, rng, True)]
    source, got = run(interpreter, t, lines(t), arrays)
    _, want = run(oracle, kernel, linearize(kernel), arrays)
    for g, w in zip(got, want):
      tol = 2e-3 if g.dtype.itemsize < 4 else 1e-5
      np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), rtol=tol, atol=tol, err_msg=f"{', '.join(map(str, t.axes))}\n{source}")
    if data.draw(st.integers(0, 9)) == 0: compiler.build(source, "k", signature(source), data.draw(st.sampled_from(["sm_80", "sm_90"])))


@given(st.data())
def test_random_tiles(data: Any) -> None: check(GRAPHS[data.draw(st.sampled_from(sorted(GRAPHS)))], data, [4, 8, 16], 4096)


@settings(max_examples=20)
@given(st.data())
def test_random_tiles_of_products(data: Any) -> None: check(PRODUCTS[data.draw(st.sampled_from(sorted(PRODUCTS)))], data, [16, 32], 65536)
