"""Kernels with TILE axes that the Triton tests share: scheduled ones after the first heuristics, and statements written by
hand."""
from __future__ import annotations

from dataclasses import replace
from typing import Callable

import numpy as np
from golden.test_kernels import GRAPHS

from ntgrad import Tensor
from ntgrad.backends.cuda.renderer import TARGET
from ntgrad.codegen.choose.gpu import choose_tiles
from ntgrad.codegen.ir.dtype import DType, dtypes
from ntgrad.codegen.ir.target import Target
from ntgrad.codegen.ir.uop import BinaryOps
from ntgrad.codegen.kernel import Kernel
from ntgrad.codegen.kernel.linear import UOpList
from ntgrad.codegen.linearizer import linearize
from ntgrad.schedule import create_schedule

from .statements import F32, I32, Builder, at, for_, if_, value, while_

E = Tensor.empty
MORE: dict[str, Callable[[], list[Tensor]]] = {
  "matmul_half": lambda: [(E(100, 70, dtype="float16") @ E(70, 90, dtype="float16") + E(90, dtype="float16")).relu()],
  "matmul_float": lambda: [E(64, 64) @ E(64, 64)],
  "matmul_transposed": lambda: [E(64, 64, dtype="bfloat16").T @ E(64, 64, dtype="bfloat16").T],
  "matmul_fp8": lambda: [E(64, 64, dtype="float8_e4m3") @ E(64, 64, dtype="float8_e4m3")],
  "matmul_int8": lambda: [E(32, 32, dtype="int8") @ E(32, 32, dtype="int8")],
  "batched": lambda: [E(3, 20, 24) @ E(3, 24, 40)],
  "long_rows": lambda: [E(4, 30000).softmax(-1)],
  "random": lambda: [Tensor.rand(100)],
  "wide_sum": lambda: [E(300, 200).sum(0)],
  "bool_reduce": lambda: [(E(4, 20) > 0).all(1)],
  "division": lambda: [E(40, dtype="int32") // E(40, dtype="int32")],
  "float_division": lambda: [E(50) // E(50) + E(50) % 3.0, (E(50, dtype="float64") // 0.1).relu6()],
  "double": lambda: [E(50, dtype="float64").sin().sqrt() / 3],
  "maximum": lambda: [E(50).maximum(E(50)).minimum(0.5)],
}


def scheduled(name: str) -> list[Kernel]:
  """The kernels of a graph, tiled for a chip with one core: as much in a block as there may be."""
  return [
    choose_tiles(item.ast, replace(TARGET, cores=1))
    for item in create_schedule({**GRAPHS, **MORE}[name]()) if item.ast is not None
  ]


def online_softmax(dtype: DType = dtypes.float16, n: int = 64, d: int = 32, bm: int = 32, bn: int = 16) -> Kernel:
  """Attention that goes through the keys once."""
  b = Builder()
  g, k = b.grid(n // bm), b.loop(n // bn)
  i, j, e = b.tile(bm), b.tile(bn), b.tile(d)
  out, q, keys, values = b.param((n, d), dtype, True), b.param((n, d), dtype), b.param((n, d), dtype), b.param((n, d), dtype)
  m, l, new, acc = b.variable((bm,)), b.variable((bm,)), b.variable((bm,)), b.variable((bm, d))
  s, p = b.variable((bm, bn)), b.variable((bm, bn), dtype)
  return b.kernel(
    m.set(i, -np.inf), l.set(i, 0), acc.set((i, e), 0),
    for_(k, s.set((i, j), (q[at(g, bm, i), e].cast(F32) * keys[at(k, bn, j), e].cast(F32)).sum(e)),
         new.set(i, m[i].max(s[i, j].reduce(BinaryOps.MAX, j))),
         p.set((i, j), (s[i, j] - new[i]).exp().cast(dtype)),
         l.set(i, l[i] * (m[i] - new[i]).exp() + p[i, j].cast(F32).sum(j)),
         acc.set((i, e), acc[i, e] * (m[i] - new[i]).exp() + (p[i, j].cast(F32) * values[at(k, bn, j), e].cast(F32)).sum(j)),
         m.set(i, new[i])),
    out.set((at(g, bm, i), e), (acc[i, e] / l[i]).cast(dtype)))


def rounds() -> Kernel:
  """A WHILE whose condition is a reduction, an IF with ELSE, a FOR that ends where the data says."""
  b = Builder()
  g, i, k = b.grid(3), b.tile(12), b.loop(5)
  out, x, n = b.param((3, 12), written=True), b.param((3, 12)), b.param((3,), I32)
  v = b.variable((12,))
  return b.kernel(v.set(i, x[g, i]), while_(v[i].reduce(BinaryOps.MAX, i) < 50, v.set(i, v[i] + 7)),
                  for_(k, v.set(i, v[i] * 2), end=n[g]), if_(n[g] > 2, [v.set(i, v[i] - 1)], [out.set((g, i), value(i))]),
                  out.set((g, i), v[i]))


def scatter() -> Kernel:
  """Atomic sums, and a param that is read after it was written."""
  b = Builder()
  g, i = b.grid(16), b.tile(8)
  total, out, x, where = b.param((5,), written=True), b.param((16, 8), written=True), b.param((16, 8)), b.param((16, 8), I32)
  return b.kernel(total.atomic("add", where[g, i], x[g, i]), total.atomic("max", 4, x[g, i].reduce(BinaryOps.MAX, i)),
                  out.set((g, i), x[g, i] * 2), out.set((g, i), out[g, at(i, -1, 7)]))


def ordered() -> Kernel:
  """A reversed scan, a sort of floats, a transposed read, one row of a block."""
  b = Builder()
  i, j = b.tile(12), b.tile(16)
  out, last, x = b.param((12, 16), written=True), b.param((16,), written=True), b.param((12, 16))
  v, w = b.variable((12, 16)), b.variable((16, 12))
  return b.kernel(v.set((i, j), x[i, j].scan(BinaryOps.ADD, i, True)), w.set((j, i), v[i, j] * 2), v.set((i, j), w[j, i].sort(j)),
                  v.set((3, j), v[5, j] + 1), out.set((i, j), v[i, j]), last.set(j, v[11, j]))


def picked() -> Kernel:
  """A gather from a variable, elements of one read and written by number."""
  b = Builder()
  i, j, k = b.tile(12), b.tile(20), b.loop(12)
  out, x, where, sums = b.param((20,), written=True), b.param((12,)), b.param((20,), I32), b.param((12,), written=True)
  v, s = b.variable((12,)), b.variable((12,))
  return b.kernel(v.set(i, x[i] * 2), out.set(j, v[where[j]]), s.set(i, 0), for_(k, s.set(k, v[k] + 1)), sums.set(i, s[i]))


def byte_product() -> Kernel:
  """A dot of int8 goes over at least 32 elements: so does the variable that it reads."""
  b = Builder()
  i, j, k, l = b.tile(16), b.tile(16), b.tile(12), b.tile(12)
  out, x, y, sums = (
    b.param((16, 16), I32, True),
    b.param((16, 12), dtypes.int8),
    b.param((12, 16), dtypes.int8),
    b.param((16,), I32, True),
  )
  v = b.variable((16, 12), dtypes.int8)
  product = (v[i, l].cast(I32) * y[l, j].cast(I32)).sum(l)
  return b.kernel(v.set((i, k), x[i, k]), out.set((i, j), product), sums.set(i, v[i, k].cast(I32).sum(k)))


STATEMENTS: dict[str, Callable[[], Kernel]] = {
  "online_softmax": online_softmax,
  "rounds": rounds,
  "scatter": scatter,
  "ordered": ordered,
  "picked": picked,
  "byte_product": byte_product,
}
NAMES = [*GRAPHS, *MORE, *STATEMENTS]
WITH_BLOCKS: Target = TARGET


def kernels(name: str) -> list[Kernel]: return [STATEMENTS[name]()] if name in STATEMENTS else scheduled(name)


def lines(kernel: Kernel) -> UOpList: return linearize(kernel, WITH_BLOCKS)
