"""Kernels with run-time sizes beside the same kernels with numbers, on the CPU: `python bench/sizes.py [name ..]`.

One process, random data, the two sides in turns, medians. Prints a table: both times, their ratio, and what it must reach.
"""
from __future__ import annotations

import statistics
import sys
import time
from typing import Any, Callable, Mapping

import numpy as np

from ntgrad.backends.base import Device
from ntgrad.codegen import index as ix
from ntgrad.codegen.dtype import dtypes
from ntgrad.codegen.index import Dim, Size
from ntgrad.codegen.kernel import Axis, AxisKind, Kernel, Param
from ntgrad.codegen.uop import BinaryOps, Ops, UnaryOps, UOp
from ntgrad.engine.compile import programs
from ntgrad.engine.device import get_device

F32 = dtypes.float32
DIVIDED, OTHERS = 0.95, 0.85   # what sizes that 16 divides must reach, and others
SECONDS = 1.5                  # for each side of a row


def read(p: Param, *at: UOp) -> UOp: return UOp(Ops.LOAD, p.dtype, (p.uop, UOp(Ops.INDEX, ix.INT, at)))
def store(p: Param, value: UOp, *at: UOp) -> UOp: return UOp(Ops.STORE, p.dtype, (p.uop, UOp(Ops.INDEX, ix.INT, at), value))
def total(x: UOp, axis: Axis, fn: BinaryOps = BinaryOps.ADD) -> UOp: return UOp(Ops.REDUCE, x.dtype, (x,), (fn, (axis.id,)))
def number(x: float) -> UOp: return UOp.const(F32, x)


def params(*shapes: tuple[Dim, ...]) -> list[Param]: return [Param(i, shape, F32, i == 0) for i, shape in enumerate(shapes)]


def axes(grid: tuple[Dim, ...], loops: tuple[Dim, ...] = ()) -> tuple[Axis, ...]:
  kinds = [AxisKind.GRID] * len(grid) + [AxisKind.LOOP] * len(loops)
  return tuple([Axis(i, n, kind) for i, (n, kind) in enumerate(zip((*grid, *loops), kinds))])


def add(N: Dim) -> Kernel:
  """z[i] = x[i] + y[i]"""
  z, x, y = params((N,), (N,), (N,))
  a = axes((N,))
  return Kernel((z, x, y), a, (store(z, UOp.alu(BinaryOps.ADD, read(x, a[0].rng), read(y, a[0].rng)), a[0].rng),))


def row_sum(M: Dim, N: Dim) -> Kernel:
  """y[i] = the sum of x[i, j]"""
  y, x = params((M,), (M, N))
  a = axes((M,), (N,))
  return Kernel((y, x), a, (store(y, total(read(x, a[0].rng, a[1].rng), a[1]), a[0].rng),))


def softmax(M: Dim, N: Dim) -> Kernel:
  """The softmax of each row."""
  y, x = params((M, N), (M, N))
  a = axes((M,), (N,))
  i, j = a[0].rng, a[1].rng
  e = UOp.alu(UnaryOps.EXP, UOp.alu(BinaryOps.SUB, read(x, i, j), total(read(x, i, j), a[1], BinaryOps.MAX)))
  return Kernel((y, x), a, (store(y, UOp.alu(BinaryOps.DIV, e, total(e, a[1])), i, j),))


def layer_norm(M: Dim, N: Dim) -> Kernel:
  """Each row less its mean, over its standard deviation; sums in place of means (the work is the same)."""
  y, x = params((M, N), (M, N))
  a = axes((M,), (N,))
  i, j = a[0].rng, a[1].rng
  centred = UOp.alu(BinaryOps.SUB, read(x, i, j), UOp.alu(BinaryOps.MUL, total(read(x, i, j), a[1]), number(0.001)))
  spread = total(UOp.alu(BinaryOps.MUL, centred, centred), a[1])
  scale = UOp.alu(UnaryOps.SQRT, UOp.alu(BinaryOps.ADD, spread, number(1.0)))
  return Kernel((y, x), a, (store(y, UOp.alu(BinaryOps.DIV, centred, scale), i, j),))


def matmul(M: Dim, N: Dim, K: Dim) -> Kernel:
  """z = x @ y"""
  z, x, y = params((M, N), (M, K), (K, N))
  a = axes((M, N), (K,))
  i, j, k = [b.rng for b in a]
  return Kernel((z, x, y), a, (store(z, total(UOp.alu(BinaryOps.MUL, read(x, i, k), read(y, k, j)), a[2]), i, j),))


WORK: dict[str, tuple[Callable[..., Kernel], dict[str, int]]] = {
  "add 64 MB": (add, {"N": 1 << 24}),
  "add odd": (add, {"N": (1 << 24) - 5}),
  "add small": (add, {"N": 5000}),
  "row sum 64 MB": (row_sum, {"M": 4096, "N": 4096}),
  "row sum odd": (row_sum, {"M": 4001, "N": 4001}),
  "softmax 2048": (softmax, {"M": 2048, "N": 2048}),
  "softmax odd": (softmax, {"M": 2001, "N": 1999}),
  "layer norm 2048": (layer_norm, {"M": 2048, "N": 2048}),
  "layer norm odd": (layer_norm, {"M": 2001, "N": 1999}),
  "matmul 256": (matmul, {"M": 256, "N": 256, "K": 256}),
  "matmul 512": (matmul, {"M": 512, "N": 512, "K": 512}),
  "matmul 1024": (matmul, {"M": 1024, "N": 1024, "K": 1024}),
  "matmul 1000": (matmul, {"M": 1000, "N": 1000, "K": 1000}),
  "matmul 509": (matmul, {"M": 509, "N": 503, "K": 511}),
  "matmul 1x1000": (matmul, {"M": 1, "N": 1000, "K": 1000}),
}


def sides(make: Callable[..., Kernel], sizes: Mapping[str, int], device: Device) -> list[Callable[[], None]]:
  """Functions that launch the kernel with numbers, and the one with run-time sizes, and wait."""
  symbols = {n: UOp(Ops.SIZE, ix.INT, (), Size(n, 1, hint=size)) for n, size in sizes.items()}
  static, sized = make(**sizes), make(**symbols)
  rng = np.random.default_rng(0)
  raws: list[Any] = []
  for p in static.params:
    x = rng.standard_normal(p.shape, np.float32)
    raws.append(device.alloc(x.nbytes))
    device.copyin(raws[-1], x.reshape(-1).view(np.uint8))
  (one,), (other,) = programs([static], device), programs([sized], device)
  values = tuple([sizes[s.name] for s in sized.sizes])
  def with_numbers() -> None:
    one(raws)
    device.synchronize()
  def with_sizes() -> None:
    other(raws, sizes=values)
    device.synchronize()
  outs = []
  for run in (with_numbers, with_sizes):
    run()
    outs.append(device.copyout(raws[0], int(np.prod(static.params[0].shape)) * 4).view(np.float32).copy())
  np.testing.assert_allclose(outs[0], outs[1], rtol=1e-3, atol=1e-3)
  return [with_numbers, with_sizes]


def medians(runs: list[Callable[[], None]], seconds: float) -> list[float]:
  """The median time of each, run in turns."""
  for run in runs: run()
  times: list[list[float]] = [[] for _ in runs]
  end = time.perf_counter() + seconds * len(runs)
  while time.perf_counter() < end or len(times[0]) < 5:
    for run, mine in zip(runs, times):
      begin = time.perf_counter()
      run()
      mine.append(time.perf_counter() - begin)
  return [statistics.median(t) for t in times]


def main(names: list[str]) -> None:
  """The table; of rows whose names begin with one of ``names``, where any are given."""
  device = get_device("CPU")
  print("| work | numbers | sizes | ratio | must reach | ok |\n| --- | --: | --: | --: | --: | --- |")
  for name, (make, sizes) in WORK.items():
    if names and not any(name.startswith(n) for n in names): continue
    numbers, sized = medians(sides(make, sizes, device), SECONDS)
    must = DIVIDED if all(n % 16 == 0 for n in sizes.values()) else OTHERS
    ok = "yes" if numbers / sized >= must else "**no**"
    print(f"| {name} | {numbers * 1e3:.3f} ms | {sized * 1e3:.3f} ms | {numbers / sized:.2f} × | ≥ {must} × | {ok} |", flush=True)


if __name__ == "__main__": main(sys.argv[1:])
