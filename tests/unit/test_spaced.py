"""Lanes that lie a few elements apart in memory."""
from __future__ import annotations

import numpy as np
import pytest

from ntgrad import Tensor
from ntgrad.codegen.choose.cpu import optimize
from ntgrad.codegen.ir.target import Target
from ntgrad.codegen.ir.uop import Ops
from ntgrad.codegen.kernel import AxisKind
from ntgrad.codegen.kernel.accesses import access_profile
from ntgrad.codegen.pipeline import linearize
from ntgrad.schedule import create_schedule
from support.devices import missing
from support.marks import long, long_where


@long_where(lambda step: step < 0)
@long_where(lambda step: abs(step) != 2)
@pytest.mark.parametrize("step", [2, 3, 4, -1, -2, -3])
def test_lanes_a_few_elements_apart_are_taken_from_whole_vectors(step: int) -> None:
  """The last vector ends with the last lane's element: nothing behind a buffer is read."""
  if reason := missing("CPU"): pytest.skip(reason)
  rng = np.random.default_rng(0)
  for n in (64, 131, 1000):
    for dtype in (np.float32, np.float64, np.int8):
      a = (rng.standard_normal((5, n)) * 50).astype(dtype)
      np.testing.assert_array_equal((Tensor(a, device="CPU")[:, ::step] + 1).numpy(), a[:, ::step] + dtype(1))
    padded = Tensor(a, device="CPU").pad(((0, 0), (2, 1)))[:, ::step]
    np.testing.assert_array_equal((padded + 1).numpy(), np.pad(a, ((0, 0), (2, 1)))[:, ::step] + dtype(1))
  item, = create_schedule([Tensor.empty(64, 128, device="CPU")[:, ::step].exp()])
  target = Target("opencl", lanes=16, registers=32, cores=2, local_memory=512 << 10)
  assert not [u for u in linearize(optimize(item.ast, target), target) if u.op is Ops.LOAD and u.dtype.count == 1]


@long
@long_where(lambda shape: len(shape) != 2)
@pytest.mark.parametrize("shape, order", [((512, 512), (1, 0)), ((2, 64, 4096), (0, 2, 1)), ((2, 30, 64, 65), (0, 2, 3, 1)),
                                          ((1030, 1027), (1, 0))], ids=str)
def test_rows_in_far_pages_are_read_in_runs(shape: tuple[int, ...], order: tuple[int, ...]) -> None:
  """Of each page 1 KB, before others: the innermost loop goes along the lines of what is read."""
  if reason := missing("CPU"): pytest.skip(reason)
  for dtype in (np.float32, np.float64, np.int8):
    a = (np.random.default_rng(0).standard_normal(shape) * 50).astype(dtype)
    np.testing.assert_array_equal((Tensor(a, device="CPU").permute(*order) + 1).numpy(), a.transpose(order) + dtype(1))
  item, = create_schedule([Tensor.empty(*shape, device="CPU").permute(*order).exp()])
  target = Target("opencl", lanes=16, registers=32, cores=2, local_memory=512 << 10)
  kernel = optimize(item.ast, target)
  last = [a for a in kernel.axes if a.kind is AxisKind.LOOP][-1]
  load, = [x for x in access_profile(kernel).accesses if not x.write]
  step = load.steps[last.id]   # None: the last block begins earlier
  assert step is None or 0 < abs(step) * load.itemsize <= 128, kernel.axes
