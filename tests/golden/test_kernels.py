"""Kernels from tensor code and Opts by hand: what DEBUG=3 says of them, their linear UOps and OpenCL source, as read once."""
from __future__ import annotations

from typing import Callable

import numpy as np
import pytest

from ntgrad import Tensor
from ntgrad.backends import render
from ntgrad.codegen.explain.printing import index_form
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.uop import BinaryOps, Ops, UnaryOps, UOp
from ntgrad.codegen.kernel.linear import UOpList
from ntgrad.codegen.linearizer import Linearizer
from ntgrad.codegen.opts import CacheRead, Local, Opt, Pad, Serial, Unroll, Upcast, Vectorize
from ntgrad.engine.report import describe
from ntgrad.schedule import create_schedule
from support.linear import Lines

Golden = Callable[[str, str], None]
E = Tensor.empty


def adam() -> list[Tensor]:
  p, m, v, g = E(6), E(6), E(6), E(6)
  m.assign(m * 0.9 + g * 0.1)
  v.assign(v * 0.99 + g * g * 0.01)
  p.assign(p - 0.001 * m / (v.sqrt() + 1e-8))
  return [p, m, v]


GRAPHS: dict[str, Callable[[], list[Tensor]]] = {
  "chain": lambda: [(E(32) * 2 + 1).relu().exp()],
  "two_outputs": lambda: [(x := E(4, 6)) + 1, x * 2],
  "row_sum": lambda: [E(4, 16).sum(1)],
  "column_sum": lambda: [E(16, 8).sum(0)],
  "softmax": lambda: [E(4, 16).softmax(-1)],
  "layer_norm": lambda: [E(4, 16).layernorm() * E(16) + E(16)],
  "matmul": lambda: [(E(16, 8) @ E(8, 32) + E(32)).relu()],
  "conv2d": lambda: [E(1, 2, 6, 6).conv2d(E(4, 2, 3, 3), E(4), padding=1, stride=2).relu()],
  "max_pool": lambda: [E(1, 2, 7, 7).max_pool2d()],
  "cat": lambda: [E(2, 3).cat(E(1, 3) * 2)],
  "pad": lambda: [E(2, 3).pad(((1, 0), (0, 2))) + 1],
  "views": lambda: [E(4, 6).T.reshape(2, 12).flip(1) * 2],
  "gather": lambda: [E(5, 3)[E(4, dtype="int32")]],
  "adam": adam,
  "embedding_gradient": lambda: [(t := E(5, 3, requires_grad=True))[E(4, dtype="int32")].exp().sum().gradient(t)[0]],
  "mixed": lambda: [E(8, dtype="float16").float().sum() + E(1)],
}

# name of the golden: (graph, Opts by hand on the last kernel)
CASES: dict[str, tuple[str, list[Opt]]] = {
  **{name: (name, []) for name in GRAPHS},
  "chain_lane": ("chain", [Vectorize(0, 8)]),
  "chain_pad_lane": ("chain", [Pad(0, 24), Vectorize(0, 8)]),
  "row_sum_unroll": ("row_sum", [Unroll(1, 4)]),
  "row_sum_lane": ("row_sum", [Vectorize(1, 8)]),
  "row_sum_upcast": ("row_sum", [Upcast(0, 2)]),
  "column_sum_lane": ("column_sum", [Vectorize(0, 8), Serial(1, 4)]),
  "softmax_lane": ("softmax", [Vectorize(1, 8)]),
  "matmul_tiled": ("matmul", [Upcast(0, 4), Vectorize(1, 16), Serial(2, 4)]),
  "matmul_unrolled": ("matmul", [Upcast(0, 2), Upcast(1, 2), Unroll(2, 4)]),
  "matmul_local": ("matmul", [Local(1, 8)]),
  "matmul_local_cached": ("matmul", [Local(1, 8), Serial(0), CacheRead(1, 2, each_round=True)]),
  "conv2d_upcast": ("conv2d", [Upcast(0, 4), Unroll(5, 3)]),
  "adam_lane": ("adam", [Vectorize(0, 2)]),
}


@pytest.mark.parametrize("name", CASES)
def test_kernel(name: str, golden: Golden) -> None:
  graph, steps = CASES[name]
  items = create_schedule(GRAPHS[graph]())
  parts = []
  for i, item in enumerate(items):
    assert item.ast is not None
    k = Linearizer(item.ast)
    if i == len(items) - 1:
      for opt in steps: k.apply(opt)
    k.linearize()
    head = f"kernel {i + 1} of {len(items)}: " if len(items) > 1 else ""
    parts += [f"# {head}arrangements and body", describe(k.kernel), ""]
    parts += ["# linear UOps", str(k.uops), "", "# OpenCL", render("opencl", graph, k.uops), ""]
  golden(name, "\n".join(parts))


def test_index_form_fits_one_screen() -> None:
  k = create_schedule(GRAPHS["softmax"]())[-1].ast
  assert k is not None and index_form(k) == """\
axes   a0:4 GRID, a1:16 LOOP
data0  (4, 16) float, written
data1  (4, 16) float
v0 = exp(data1[a0, a1] - max[a1](data1[a0, a1]))
store data0[a0, a1] = v0 / sum[a1](v0)"""


# ---- by hand, in the linear form

def fibonacci(n: int) -> Lines:
  """a, b = b, a + b: both PHIs of the loop are one parallel assignment."""
  p = Lines()
  out = p.buf(0, dtypes.int32, True)
  a, b = p.acc(dtypes.int32, 0), p.acc(dtypes.int32, 1)
  i = p.loop(0, n)
  total = p.alu(BinaryOps.ADD, a, b)
  last = p.phi(a, b, i)
  p.phi(b, total, i)
  p.end(i)
  p.store(out, 0, last)
  return p


def attention(n: int) -> Lines:
  """softmax(scores) · values in one loop: greatest score so far, sum, and weighted sum, rescaled as the greatest one grows."""
  p = Lines()
  f = dtypes.float32
  out, scores, values = p.buf(0, f, True), p.buf(1, f), p.buf(2, f)
  m, l = p.acc(f, float("-inf")), p.acc(f, 0.0)
  p.uops.append(acc := UOp.unique(Ops.DEFINE_ACC, f, (), 0.0))   # another accumulator that starts like l
  i = p.loop(0, n)
  s, v = p.load(scores, i), p.load(values, i)
  new = p.alu(BinaryOps.MAX, m, s)
  old = p.alu(UnaryOps.EXP, p.alu(BinaryOps.SUB, m, new))
  weight = p.alu(UnaryOps.EXP, p.alu(BinaryOps.SUB, s, new))
  l2 = p.alu(BinaryOps.ADD, p.alu(BinaryOps.MUL, l, old), weight)
  acc2 = p.alu(BinaryOps.ADD, p.alu(BinaryOps.MUL, acc, old), p.alu(BinaryOps.MUL, weight, v))
  p.phi(m, new, i)
  l3, acc3 = p.phi(l, l2, i), p.phi(acc, acc2, i)
  p.end(i)
  p.store(out, 0, p.alu(BinaryOps.DIV, acc3, l3))
  return p


def by_hand(golden: Golden, name: str, p: Lines) -> None:
  golden(name, f"# linear UOps\n{p.uops}\n\n# OpenCL\n{render('opencl', name, UOpList(p.uops))}")


def test_fibonacci(golden: Golden) -> None:
  by_hand(golden, "fibonacci", fibonacci(10))
  out = np.zeros(1, np.int32)
  fibonacci(10).run(out)
  assert out[0] == 55


def test_flash_attention(golden: Golden) -> None:
  by_hand(golden, "attention", attention(8))
  rng = np.random.default_rng(0)
  s, v, out = rng.standard_normal(8).astype(np.float32), rng.standard_normal(8).astype(np.float32), np.zeros(1, np.float32)
  attention(8).run(out, s, v)
  e = np.exp(s - s.max())
  assert np.allclose(out[0], e @ v / e.sum(), rtol=1e-5)
