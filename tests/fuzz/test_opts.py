"""Every list of Opts gives what the plain loops give: random kernels, random shapes, random legal Opts, and the heuristics of several targets.

Values are small whole numbers, so sums are exact in any order and equality is exact.
"""
from __future__ import annotations

from typing import Callable

import numpy as np
from hypothesis import given, note, settings, strategies as st

from ntgrad import Tensor
from ntgrad.backends.base import ProgramSpec, Target
from ntgrad.backends.numpy.device import NumpyDevice
from ntgrad.codegen.errors import OptError
from ntgrad.codegen.kernel import AxisKind, Kernel
from ntgrad.codegen.linearizer import linearize
from ntgrad.codegen.opt import Opt, apply_opt
from ntgrad.codegen.optimize import optimize
from ntgrad.codegen.spec import verify_linear
from ntgrad.engine.buffer import Buffer
from ntgrad.engine.compile import extent
from ntgrad.schedule import create_schedule

DEVICE = NumpyDevice()
TARGETS = [Target("opencl", lanes=4, registers=16, cores=2, local_memory=1 << 16),
           Target("opencl", lanes=8, registers=16, cores=2, local_memory=512 << 10),
           Target("opencl", lanes=16, registers=32, cores=4, local_memory=512 << 10)]


def empty(*shape: int, dtype: str = "float32") -> Tensor:
  """A tensor over memory that only gets its values when a kernel runs."""
  from ntgrad.codegen.dtype import dtypes
  return Tensor(Buffer("NUMPY", shape, dtypes.of(dtype)).node)


def kernels(build: Callable[[], list[Tensor]]) -> list[Kernel]:
  return [item.ast for item in create_schedule(build()) if item.ast is not None]


def run(kernel: Kernel, arrays: list[np.ndarray]) -> list[np.ndarray]:
  """What a kernel leaves in its buffers, on the oracle."""
  uops = linearize(kernel)
  verify_linear(uops, "fuzz")
  spec = ProgramSpec("fuzz", "", extent(kernel, AxisKind.GRID), extent(kernel, AxisKind.LOCAL), len(arrays), tuple(uops))
  raws = []
  for a in arrays:
    raw = DEVICE.alloc(max(a.nbytes, 1))
    DEVICE.copyin(raw, np.ascontiguousarray(a).reshape(-1).view(np.uint8))
    raws.append(raw)
  DEVICE.compile([spec])[0](raws)
  return [DEVICE.copyout(raw, a.nbytes).view(a.dtype) for raw, a in zip(raws, arrays)]


def values(kernel: Kernel, seed: int) -> list[np.ndarray]:
  rng = np.random.default_rng(seed)
  return [rng.integers(*((0, 3) if p.dtype.kind in "iu" else (-4, 5)), p.shape).astype(p.dtype.np) for p in kernel.params]


def same(kernel: Kernel, other: Kernel, seed: int) -> None:
  arrays = values(kernel, seed)
  for a, b in zip(run(kernel, arrays), run(other, arrays)): np.testing.assert_array_equal(a, b)


size = st.integers(1, 13)


@st.composite
def programs(draw: st.DrawFn) -> Callable[[], list[Tensor]]:
  """A few tensors to compute, of random shapes."""
  a, b, c = draw(size), draw(size), draw(size)
  k = draw(st.integers(1, 3))
  return draw(st.sampled_from([
    lambda: [empty(a, b) * 2 + empty(b)],
    lambda: [empty(a, b).T + empty(b, a)],
    lambda: [empty(a, b).sum(1), empty(a, b).max(0)],
    lambda: [(empty(a, b) - empty(a, b).max(1, keepdim=True)).sum(1)],
    lambda: [(empty(a, b) @ empty(b, c) + empty(c)).relu()],
    lambda: [empty(a, b) @ empty(c, b).T],
    lambda: [empty(2, 3, a + k, b + k).conv2d(empty(4, 3, k + 1, k), padding=k - 1)],
    lambda: [empty(2, 2, a + 2, b + 2).max_pool2d((2, 2))],
    lambda: [empty(a, b).pad(((1, 2), (0, 3))) * 3],
    lambda: [Tensor.cat(empty(a, b), empty(c, b) + 1)],
    lambda: [empty(a, b)[:, ::-1][::2]],
    lambda: [empty(a, b).reshape(b, a).sum(0)],
    lambda: [empty(a, b)[empty(c, dtype="int32")]],
    lambda: [(empty(a, b, dtype="int32") // 3).sum()],
  ]))


@st.composite
def steps(draw: st.DrawFn, kernel: Kernel) -> list[Opt]:
  """Some Opts, legal or not."""
  out = []
  for _ in range(draw(st.integers(1, 6))):
    if not kernel.axes: break
    axis = draw(st.sampled_from(kernel.axes))
    name = draw(st.sampled_from(["split", "upcast", "unroll", "lane", "tile", "loop", "grid", "pad", "overlap", "first", "last"]))
    amount = draw(st.sampled_from([1, 2, 3, 4, 8] + [d for d in range(1, axis.size + 1) if axis.size % d == 0 and d <= 8]))
    out.append(Opt(name, axis.id, amount))
  return out


@settings(max_examples=2*settings().max_examples)
@given(st.data())
def test_any_legal_opts_agree_with_plain_loops(data: st.DataObject) -> None:
  for kernel in kernels(data.draw(programs())):
    other = kernel
    for opt in data.draw(steps(kernel)):
      try:
        other = apply_opt(other, opt)
      except OptError:
        continue
    note(f"{', '.join(map(str, kernel.axes))}: {', '.join(map(str, other.applied))}")
    same(kernel, other, data.draw(st.integers(0, 5)))


@settings(max_examples=2*settings().max_examples)
@given(programs(), st.sampled_from(TARGETS), st.integers(0, 5))
def test_the_heuristics_agree_with_plain_loops(build: Callable[[], list[Tensor]], target: Target, seed: int) -> None:
  for kernel in kernels(build):
    other = optimize(kernel, target)
    note(f"{', '.join(map(str, kernel.axes))}: {', '.join(map(str, other.applied))}")
    same(kernel, other, seed)
