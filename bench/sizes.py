"""Kernels with run-time sizes beside the same kernels with numbers: `python bench/sizes.py [CPU|CUDA] [name ..]`.

One process, random data, the two sides in turns, medians. Prints a table: both times, their ratio, and what it must reach.
"""
from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Mapping

if "CACHE_DIR" not in os.environ: os.environ["CACHE_DIR"] = tempfile.mkdtemp(prefix="ntgrad-bench-")

import numpy as np  # noqa: E402
from measure import dropped  # noqa: E402
from rows import EXAMPLES, module_of  # noqa: E402

sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != Path(__file__).resolve().parent]   # bench/cuda.py is no package

from ntgrad import Device, Tensor, config  # noqa: E402
from ntgrad.backends.base import Device as Backend  # noqa: E402
from ntgrad.codegen import index as ix  # noqa: E402
from ntgrad.codegen.index import Dim, Size  # noqa: E402
from ntgrad.codegen.ir.dtype import DType, dtypes  # noqa: E402
from ntgrad.codegen.ir.uop import BinaryOps, Ops, UnaryOps, UOp  # noqa: E402
from ntgrad.codegen.kernel import Axis, AxisKind, Kernel, Param  # noqa: E402
from ntgrad.engine.compile import programs  # noqa: E402
from ntgrad.engine.device import get_device  # noqa: E402

F32 = dtypes.float32
DIVIDED, OTHERS = 0.95, 0.85   # what sizes that 16 divides must reach, and others
SECONDS = 1.0                  # for each side of a row


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


def matmul(M: Dim, N: Dim, K: Dim, dtype: DType = F32) -> Kernel:
  """z = x @ y, summed in float32."""
  z, x, y = [Param(i, shape, dtype, i == 0) for i, shape in enumerate(((M, N), (M, K), (K, N)))]
  a = axes((M, N), (K,))
  i, j, k = [b.rng for b in a]
  value = total(UOp.alu(BinaryOps.MUL, read(x, i, k).cast(F32), read(y, k, j).cast(F32)), a[2])
  return Kernel((z, x, y), a, (store(z, value.cast(dtype), i, j),))


product16 = partial(matmul, dtype=dtypes.float16)


# ---- kernels of examples/tile: their arguments, of some size

Case = tuple[str, Callable[[int], list[Any]]]


def random(*shape: int, dtype: Any = np.float32) -> Tensor:
  return Tensor(np.random.default_rng(0).standard_normal(shape, np.float32).astype(dtype))


def attention(batch: int, heads: int, d: int, dtype: Any) -> Case:
  """Causal attention over n positions."""
  def arguments(n: int) -> list[Any]:
    q, k, v, o = [random(batch, heads, n, d, dtype=dtype) for _ in range(4)]
    return [q, k, v, d ** -0.5, o, random(batch, heads, n, 1)]
  return "flash_attention.forward_kernel", arguments


def rows_softmax(rows: int) -> Case: return "softmax.softmax", lambda n: [random(rows, n), random(rows, n)]


def square(dtype: Any) -> Case: return "matmul.matmul", lambda n: [random(n, n, dtype=dtype) for _ in range(3)]


TILES_ON_GPU: dict[str, tuple[Case, int]] = {
  "tile attention 4×16×2048×64": (attention(4, 16, 64, np.float16), 2048),
  "tile attention 4×16×2001×64": (attention(4, 16, 64, np.float16), 2001),
  "tile matmul half 4096": (square(np.float16), 4096),
  "tile matmul half 4001": (square(np.float16), 4001),
  "tile softmax 4096×4096": (rows_softmax(4096), 4096),
  "tile softmax 4096×3001": (rows_softmax(4096), 3001),
  "tile softmax 256×100000": (rows_softmax(256), 100000),
}
TILES: dict[str, tuple[Case, int]] = {
  "tile attention 1×8×512×64": (attention(1, 8, 64, np.float32), 512),
  "tile attention 1×8×501×64": (attention(1, 8, 64, np.float32), 501),
  "tile matmul 512": (square(np.float32), 512),
  "tile matmul 501": (square(np.float32), 501),
  "tile softmax 2048×2048": (rows_softmax(2048), 2048),
  "tile softmax 2048×2001": (rows_softmax(2048), 2001),
}


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


def sides(make: Callable[..., Kernel], sizes: Mapping[str, int], device: Backend, launches: int) -> list[Callable[[], None]]:
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


def tile_sides(case: Case, n: int, device: Backend, launches: int) -> list[Callable[[], None]]:
  """As ``sides``, for a tile kernel: one that has met this size only, and one that has met others too."""
  where, arguments = case
  module, _, name = where.partition(".")
  kernels = [getattr(module_of(EXAMPLES / "tile" / f"{module}.py"), name) for _ in range(2)]
  with config(dynamic="auto"):
    for other in (n - n // 8, n - n // 8 - 1): kernels[1](*arguments(other))   # the tuner's choice is the same for them
  args = [arguments(n), arguments(n)]
  def side(kernel: Any, mine: list[Any], dynamic: str) -> Callable[[], None]:
    def run() -> None:
      with config(dynamic=dynamic):
        for _ in range(launches): kernel(*mine)
      device.synchronize()
    return run
  runs = [side(k, a, d) for k, a, d in zip(kernels, args, ("never", "auto"))]
  for run in runs: run()
  for x, y in zip(*args):
    if isinstance(x, Tensor): np.testing.assert_allclose(*[t.numpy().astype(np.float32) for t in (x, y)], rtol=2e-2, atol=2e-2)
  assert kernels[1].last.kernel.sizes and not kernels[0].last.kernel.sizes
  return runs


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
  Device.DEFAULT = name
  device, launches = get_device(name), 1 if name == "CPU" else 20
  rows: dict[str, tuple[Callable[[], list[Callable[[], None]]], bool]] = {}
  for row, (make, sizes) in (WORK if name == "CPU" else ON_GPU).items():
    rows[row] = partial(sides, make, sizes, device, launches), all(n % 16 == 0 for n in sizes.values())
  for row, (case, n) in (TILES if name == "CPU" else TILES_ON_GPU).items():
    rows[row] = partial(tile_sides, case, n, device, launches), n % 16 == 0
  print("| work | numbers | sizes | ratio | must reach | ok |\n| --- | --: | --: | --: | --: | --- |")
  for row, (make_sides, divided) in rows.items():
    if names and not any(row.startswith(n) for n in names): continue
    numbers, sized = [t / launches for t in medians(make_sides(), SECONDS)]
    must = DIVIDED if divided else OTHERS
    ok = "yes" if numbers / sized >= must else "**no**"
    print(f"| {row} | {numbers * 1e3:.3f} ms | {sized * 1e3:.3f} ms | {numbers / sized:.2f} × | ≥ {must} × | {ok} |", flush=True)
  if dropped(): sys.exit(1)


if __name__ == "__main__": main(sys.argv[1:])
