"""Reductions, windows, short rows and elementwise kernels of random sizes on small chips with blocks, one kernel of an expression
after another: what they compute is what plain loops do, and what whole programs do without masks compiles."""
from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any, Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ntgrad import Tensor, config
from ntgrad.backends.base import KernelSource, ProgramSpec
from ntgrad.backends.cuda import compiler
from ntgrad.backends.cuda.renderer import TARGET, TritonRenderer
from ntgrad.backends.numpy.device import NumpyDevice
from ntgrad.codegen import index as ix
from ntgrad.codegen.choose.chooser import choose
from ntgrad.codegen.ir.target import Target
from ntgrad.codegen.ir.uop import UOp
from ntgrad.codegen.kernel import AxisKind
from ntgrad.codegen.pipeline import finish, prepare
from ntgrad.engine.compile import extent
from ntgrad.schedule import schedule_graph
from support import triton
from support.marks import long

pytestmark = triton.needs_triton
E = Tensor.empty


def half(*shape: int) -> Tensor: return E(*shape, dtype="bfloat16")


EXPRESSIONS: dict[str, Callable[[int, int], Tensor]] = {
  "sum": lambda m, n: E(m, n).sum(),
  "sum of more": lambda m, n: (E(m, n) * E(m, n) + 1).sum(),
  "mean of rows and columns": lambda m, n: E(3, m, n).mean((1, 2)),
  "maximum": lambda m, n: half(m, n).max(),
  "least": lambda m, n: E(m, n, dtype="int32").min(),
  "product": lambda m, n: (E(m, n) * 0.01 + 1).prod(),
  "greatest of rows": lambda m, n: E(2, m * n).max(axis=1),
  "greatest of a transpose": lambda m, n: E(m, n).T.max(),
  "columns": lambda m, n: E(m, n).max(axis=0),
  "cast": lambda m, n: E(m, n).cast("bfloat16"),
  "elementwise": lambda m, n: half(m, n).silu() * half(m, n) + E(m, n),
  "softmax": lambda m, n: E(m, n).softmax(-1),
  "masked softmax": lambda m, n: (E(2, 1, m, n) > 0).where(E(2, 3, m, n), -math.inf).softmax(-1).maximum(0),
  "vector times matrix": lambda m, n: E(1, m) @ E(m, n),
  "greatest of windows": lambda m, n: E(1, 3, m, n).max_pool2d(3, stride=2, padding=1),
  "mean of windows": lambda m, n: E(1, 3, m, n).avg_pool2d(2, padding=1),
  "by channel": lambda m, n: E(1, 3, m, n).conv2d(E(3, 1, 3, 3), groups=3, padding=1),
  "running sum": lambda m, n: E(m * n).cumsum(0),
  "reversed": lambda m, n: E(m, n).flip(0, 1).contiguous(),
}
MOST = 150   # programs
NUMBERS: dict[str, list[Any]] = {
  "cores": [1, 2, 4], "cache": [1 << 8, 1 << 20], "mapped": [16, 64], "row": [64, 256], "block": [32, 128],
  "latency": [1e-8, 1e-6], "bandwidth": [1e9, 3e12], "launch": [1e-9], "start": [1e-9, 4e-7],
}


@cache
def devices() -> tuple[Any, Any]:
  from ntgrad.backends.cuda.interpreter import InterpreterDevice
  return InterpreterDevice(), NumpyDevice()


def computed(out: Tensor, target: Target | None, inputs: dict[UOp, np.ndarray], rng: np.random.Generator,
             sources: list[KernelSource]) -> np.ndarray | None:
  """The value of a tensor by one kernel after another: with Opts for ``target``, or as plain loops by the oracle."""
  interpreter, oracle = devices()
  device = oracle if target is None else interpreter
  memory, chip = dict(inputs), target or oracle.renderer.target
  with config(noopt=int(target is None)):
    for item in schedule_graph([out.lazydata], chip)[1]:
      assert item.ast is not None
      kernel = item.ast
      for node, p in zip(item.nodes, kernel.params):
        if node in memory: continue
        size, dtype = ix.elements(node.shape), p.dtype
        values = np.zeros(size) if p.written else rng.standard_normal(size) * (100 if dtype.kind == "i" else 1)
        memory[node] = values.astype(dtype.np)
        if not p.written: inputs[node] = memory[node]
      parts = choose(prepare(kernel, chip), chip)
      uops = finish(parts, chip)
      source = device.renderer.render("k", uops)
      sources.append(source)
      grid = extent(parts.kernel, AxisKind.GRID)
      if math.prod(grid) > MOST and target is not None: return None   # the interpreter takes them one by one
      program, = device.compile([ProgramSpec("k", source, grid, (1, 1, 1), len(kernel.params), tuple(uops))])
      program([memory[node].view(np.uint8) for node in item.nodes])   # pieces of memory lie at its beginning here
      found = memory[item.nodes[0]]
  return found.astype(np.float64)


@long
@settings(max_examples=40)
@given(st.data())
def test_expressions_of_odd_sizes(data: Any) -> None:
  draw = data.draw
  target = replace(TARGET, **{name: draw(st.sampled_from(values)) for name, values in NUMBERS.items()})
  name = draw(st.sampled_from(sorted(EXPRESSIONS)))
  m, n = (draw(st.sampled_from([1, 0, -1, 3])) + draw(st.sampled_from([2, 8, 16, 32, 64])) for _ in range(2))
  out = EXPRESSIONS[name](m, n)
  inputs: dict[UOp, np.ndarray] = {}
  rng = np.random.default_rng(draw(st.integers(0, 1000)))
  sources: list[KernelSource] = []
  want = computed(out, None, inputs, rng, [])
  assert want is not None
  got = computed(out, target, inputs, rng, sources)
  if got is None: return
  tol = 2e-2 if any(a.dtype.itemsize < 4 for a in inputs.values()) or "bfloat16" in str(out.dtype) else 2e-4
  text = "\n".join(s.text for s in sources)
  near = tol * max(1.0, float(np.abs(np.nan_to_num(want)).max()))
  np.testing.assert_allclose(got, want, rtol=tol, atol=near, err_msg=f"{name} {m}×{n}\n{text}")
  if draw(st.integers(0, 9)) == 0:
    for source in sources: compiler.build(compiler.Request(source, "k", draw(st.sampled_from(["sm_80", "sm_90"]))))


@pytest.mark.parametrize("m, n", [(8191, 8193), (1021, 1031)])
def test_whole_programs_move_vectors(m: int, n: int) -> None:
  """All but the last program of a flat kernel do without masks; sums and maxima have a program for every core."""
  for make in (lambda: E(m, n).cast("bfloat16"), lambda: half(m, n) * 2, lambda: E(m, n).sum(), lambda: half(m, n).max()):
    kernel = next(i.ast for i in schedule_graph([make().lazydata], TARGET)[1] if i.ast is not None)
    parts = choose(prepare(kernel, TARGET), TARGET)
    text = TritonRenderer(TARGET).render("k", finish(parts, TARGET)).text
    branch = text[text.index("  if "):]
    whole, rest = branch.split("  else:")
    assert "mask" not in whole and "mask" in rest and math.prod(extent(parts.kernel, AxisKind.GRID)) > TARGET.cores // 2
