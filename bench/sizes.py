"""Kernels with run-time sizes beside the same kernels with numbers: `python bench/sizes.py [CPU|CUDA] [name ..]`.

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


def product16(M: Dim, N: Dim, K: Dim) -> Kernel:
  """z = x @ y in float16, summed in float32."""
  half = dtypes.float16
  z, x, y = [Param(i, shape, half, i == 0) for i, shape in enumerate(((M, N), (M, K), (K, N)))]
  a = axes((M, N), (K,))
  i, j, k = [b.rng for b in a]
  value = total(UOp.alu(BinaryOps.MUL, read(x, i, k).cast(F32), read(y, k, j).cast(F32)), a[2])
  return Kernel((z, x, y), a, (store(z, value.cast(half), i, j),))


ON_GPU: dict[str, tuple[Callable[..., Kernel], dict[str, int]]] = {
  "half matmul 1024": (product16, {"M": 1024, "N": 1024, "K": 1024}),
  "half matmul 4096": (product16, {"M": 4096, "N": 4096, "K": 4096}),
  "half matmul 8192": (product16, {"M": 8192, "N": 8192, "K": 8192}),
  "half matmul 1000": (product16, {"M": 1000, "N": 1000, "K": 1000}),
  "half matmul 4095": (product16, {"M": 4095, "N": 4097, "K": 4096}),
  "half matmul 16 rows": (product16, {"M": 16, "N": 4096, "K": 4096}),
  "matmul 1024": (matmul, {"M": 1024, "N": 1024, "K": 1024}),
  "add 256 MB": (add, {"N": 1 << 26}),
  "add odd": (add, {"N": (1 << 26) - 5}),
  "softmax 8192×1024": (softmax, {"M": 8192, "N": 1024}),
  "softmax 8192×1000": (softmax, {"M": 8192, "N": 1000}),
  "softmax 1001×4097": (softmax, {"M": 1001, "N": 4097}),
  "row sum 8192": (row_sum, {"M": 8192, "N": 8192}),
  "layer norm 8192×4096": (layer_norm, {"M": 8192, "N": 4096}),
}


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


def sides(make: Callable[..., Kernel], sizes: Mapping[str, int], device: Device, launches: int) -> list[Callable[[], None]]:
  """Functions that launch (so many times) the kernel with numbers, and the one with run-time sizes, and wait."""
  symbols = {n: UOp(Ops.SIZE, ix.INT, (), Size(n, 1, hint=size)) for n, size in sizes.items()}
  static, sized = make(**sizes), make(**symbols)
  rng = np.random.default_rng(0)
  raws: list[Any] = []
  for p in static.params:
    x = np.ascontiguousarray(rng.standard_normal(p.shape, np.float32).astype(p.dtype.np))
    raws.append(device.alloc(x.nbytes))
    device.copyin(raws[-1], x.reshape(-1).view(np.uint8))
  (one,), (other,) = programs([static], device), programs([sized], device)
  values = tuple([sizes[s.name] for s in sized.sizes])
  def with_numbers() -> None:
    for _ in range(launches): one(raws)
    device.synchronize()
  def with_sizes() -> None:
    for _ in range(launches): other(raws, sizes=values)
    device.synchronize()
  outs = []
  for run in (with_numbers, with_sizes):
    run()
    out = static.params[0]
    outs.append(device.copyout(raws[0], int(np.prod(out.shape)) * out.dtype.itemsize).view(out.dtype.np).astype(np.float32))
  np.testing.assert_allclose(outs[0], outs[1], rtol=1e-2, atol=1e-2)
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
  name = names.pop(0) if names and names[0] in ("CPU", "CUDA") else "CPU"
  device, work, launches = get_device(name), WORK if name == "CPU" else ON_GPU, 1 if name == "CPU" else 20
  print("| work | numbers | sizes | ratio | must reach | ok |\n| --- | --: | --: | --: | --: | --- |")
  for name, (make, sizes) in work.items():
    if names and not any(name.startswith(n) for n in names): continue
    numbers, sized = [t / launches for t in medians(sides(make, sizes, device, launches), SECONDS)]
    must = DIVIDED if all(n % 16 == 0 for n in sizes.values()) else OTHERS
    ok = "yes" if numbers / sized >= must else "**no**"
    print(f"| {name} | {numbers * 1e3:.3f} ms | {sized * 1e3:.3f} ms | {numbers / sized:.2f} × | ≥ {must} × | {ok} |", flush=True)


if __name__ == "__main__": main(sys.argv[1:])
