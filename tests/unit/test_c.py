"""Plain C: its text, and what compiled kernels compute. Operations × dtypes stand in tests/conformance, statements in
test_program.py."""
from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ntgrad import Tensor, config, tile
from ntgrad.backends import render
from ntgrad.backends.base import ProgramSpec
from ntgrad.backends.numpy.device import NumpyDevice
from ntgrad.codegen.choose.cpu import optimize
from ntgrad.codegen.ir.dtype import DType, dtypes
from ntgrad.codegen.ir.errors import CompileError
from ntgrad.codegen.ir.uop import BinaryOps, Ops, UnaryOps
from support import plain_c
from support.functions import functions
from support.kernels import GRAPHS, contents, kernels, launch, spec
from support.linear import Lines, dot
from support.programs import Program

ADD = BinaryOps.ADD


def run(uops: Any, *arrays: np.ndarray, grid: tuple[int, ...] = (1,)) -> list[np.ndarray]:
  """The arrays after a launch."""
  device = plain_c.CDevice()
  program, = device.compile([ProgramSpec("k", device.renderer.render("k", uops), grid, (1,), len(arrays))])
  out = [np.array(a) for a in arrays]
  program([a.reshape(-1).view(np.uint8) for a in out])
  return out


def test_text() -> None:
  """The function loops over the grid; types are those of <stdint.h>."""
  p = Lines()
  out, x = p.buf(0, dtypes.int64, True), p.buf(2, dtypes.float32)
  g, h = p.gid(4), p.gid(3, 1)
  at = p.alu(ADD, p.alu(BinaryOps.MUL, h, 4), g)
  value = p.alu(UnaryOps.SQRT, p.alu(BinaryOps.MAX, p.load(x, at), 0.0))
  p.store(out, at, p.alu(ADD, p.cast(value, dtypes.int64), dtypes.min(dtypes.int64)))
  assert render("c", "roots", p.uops) == """\
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static float max_float(float a, float b) { return (a > b) | (a != a) ? a : b; }

void roots(int64_t* restrict data0, const uint8_t* unused1, const float* restrict data2, const int* grid) {
  for (int32_t gidx1 = 0; gidx1 < grid[1]; gidx1++) {
    for (int32_t gidx0 = 0; gidx0 < grid[0]; gidx0++) {
      int32_t alu0 = gidx1*4 + gidx0;
      float val0 = data2[alu0];
      data0[alu0] = (int64_t)sqrtf(max_float(val0, 0.0f)) + (-9223372036854775807LL - 1);
    }
  }
}
"""


def test_arrays_lie_in_the_program_that_uses_them() -> None:
  p = Lines()
  v, g = p.local("v", 2, dtypes.float32, "private"), p.gid(4)
  p.store(v, 0, p.const(dtypes.float32, 1.0))
  p.store(p.buf(0, dtypes.float32, True), g, p.load(v, 0))
  assert "gidx0++) {\n    float v[2];\n    v[0] = 1.0f;\n" in render("c", "k", p.uops)


def test_refusals() -> None:
  p = Lines()
  p.store(p.buf(0, dtypes.float32, True), p.lid(4), p.const(dtypes.float32, 1.0))
  with pytest.raises(CompileError, match="a group of 4 has to be 1; leave out the Opt 'local'"): render("c", "k", p.uops)
  p = Lines()
  p.store(p.buf(0, dtypes.float32, True), 0, p.load(p.buf(1, dtypes.float32), 0, count=4))
  with pytest.raises(CompileError, match="C has no vectors of 4 elements .*widths: none"): render("c", "k", p.uops)


@pytest.mark.parametrize("target, line", [
  ("c", "void add(const float* restrict data0, const float* restrict data1, float* restrict data2, const int* grid) {"),
  ("metal", "kernel void add(const device float* data0, const device float* data1, device float* data2, uint3 gid ")])
def test_tile_kernels_have_source(target: str, line: str, tmp_path: Path) -> None:
  """With the application's lines, and kept under the target's name."""
  def add(x: Any, y: Any, z: Any) -> None: z = x + y  # noqa: F841
  k = tile.make(lambda *xs: tuple(x.tile((64,)) for x in xs), add, (tile.Tensor(1),) * 3, output_dir=str(tmp_path))
  text = k.source(target, *[((1000,), "float32")] * 3)
  assert line in text and "// test_c.py:" in text
  assert [p.read_text() for p in tmp_path.glob(f"add_*.{target}")] == [text]


@plain_c.needs_cc
def test_dot() -> None:
  a, b = np.array([1, 2, 3, 4], np.int32), np.array([5, 6, 7, 8], np.int32)
  assert run(dot().uops, np.zeros(1, np.int32), a, b)[0] == [70]


@plain_c.needs_cc
@pytest.mark.parametrize("dtype", dtypes.numbers, ids=lambda d: d.name)
def test_functions(dtype: DType) -> None: functions(plain_c.CDevice(), dtype)


@plain_c.needs_cc
@pytest.mark.parametrize("dtype", [d for d in dtypes.numbers if d.kind != "b"], ids=lambda d: d.name)
@pytest.mark.parametrize("how", ["add", "max", "min"])
def test_atomics_are_plain_and_count_every_program(dtype: DType, how: str) -> None:
  """A program that does not use its place runs as often as the grid says."""
  p = Lines()
  total, x, g = p.buf(0, dtype, True), p.buf(1, dtype), p.gid(6, 1)
  p.add(Ops.ATOMIC, dtype, (total, p._node(0), p.load(x, g), p.alu(BinaryOps.CMPLT, g, 5)), how)
  values = np.array([1, 0, 0, 1, 0, 5]).astype(dtype.np)   # sums that every dtype can hold
  got, _ = run(p.uops, np.full(1, 2, dtype.np), values, grid=(1, 6, 3))
  assert float(got[0]) == {"add": 2 + 3*2, "max": 2, "min": 0}[how]
  p = Lines()
  p.add(Ops.ATOMIC, dtype, (p.buf(0, dtype, True), p._node(0), p.const(dtype, 1)), "add")
  assert float(run(p.uops, np.zeros(1, dtype.np), grid=(2, 1, 3))[0][0]) == 6


@plain_c.needs_cc
@pytest.mark.parametrize("name", GRAPHS)
def test_kernels(name: str) -> None:
  """Kernels of tensor code, as loops and with the Opts of the target, against the oracle; numbers are whole, so sums are
  exact."""
  device = plain_c.CDevice()
  for k in kernels(name):
    data = contents(k, np.random.default_rng(0), True)
    want, = launch(NumpyDevice(), [spec(k, "k")], k, data)
    target = device.renderer.target
    for got in launch(device, [spec(k, "plain", target), spec(optimize(k, target), "fast", target)], k, data):
      for g, w in zip(got, want): np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), rtol=1e-5, atol=1e-6)


@plain_c.needs_cc
@pytest.mark.parametrize("noopt", [0, 1])
@pytest.mark.parametrize("seed", range(6))
def test_random_programs(seed: int, noopt: int) -> None:
  rng = random.Random(seed)
  with config(noopt=noopt):
    p = Program(lambda xs: rng.choice(list(xs)), plain_c.NAME, rng.randint(4, 10), np.random.default_rng(seed))
    for t, a in p.values: np.testing.assert_array_equal(t.numpy(), a, err_msg=f"{p.said}")


@plain_c.needs_cc
def test_training_step() -> None:
  """Gradients, a convolution, a scatter."""
  def step(device: str) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    x, w, table = (
      Tensor(rng.integers(-2, 3, s).astype(np.float32), device=device, requires_grad=True)
      for s in ((2, 3, 6, 6), (4, 3, 3, 3), (5, 4))
    )
    rows = table[Tensor(np.array([1, 1, 4], np.int32), device=device)]
    return [g.numpy() for g in (x.conv2d(w, padding=1).relu().sum() + rows.square().sum()).gradient(x, w, table)]
  for got, want in zip(step(plain_c.NAME), step("NUMPY")): np.testing.assert_array_equal(got, want)
