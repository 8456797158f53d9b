"""Conditions on remainders, as gradients of strided convolutions have them: copies that make them known, and what is left."""
from __future__ import annotations

from typing import Callable

import numpy as np
import pytest

from ntgrad import Tensor, config
from ntgrad.codegen.choose.cpu import optimize
from ntgrad.codegen.ir.target import Target
from ntgrad.codegen.ir.uop import BinaryOps, Ops, TernaryOps
from ntgrad.codegen.kernel import AxisKind
from ntgrad.codegen.linearizer import linearize
from ntgrad.schedule import create_schedule
from support.devices import missing
from support.marks import long_half

TARGET = Target("opencl", lanes=16, registers=32, cores=2, local_memory=512 << 10)


def filled(*shape: int) -> Tensor:
  return Tensor(np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32), device="CPU")


def gradient(x: tuple[int, ...], w: tuple[int, ...], **how: int) -> Tensor:
  """Of a convolution, with respect to its input."""
  a = filled(*x)
  y = a.conv2d(filled(*w), **how)
  return (y * filled(*y.shape)).sum().gradient(a)[0]


def transposed(w: tuple[int, ...], **how: int) -> Tensor:
  return filled(2, w[0], *[6] * (len(w) - 2)).conv_transpose2d(filled(*w), **how)


# what is computed, and the products of a group of so many elements of the output
MADE: dict[str, tuple[Callable[[], Tensor], int, int]] = {
  "gradient": (lambda: gradient((4, 32, 8, 8), (64, 32, 3, 3), stride=2, padding=1), 9, 4),
  "one dimension": (lambda: gradient((4, 32, 16), (64, 32, 5), stride=2, padding=2), 5, 2),
  "dilated": (lambda: gradient((2, 32, 12, 12), (64, 32, 3, 3), stride=3, padding=2, dilation=2), 9, 9),
  "even taps": (lambda: gradient((2, 32, 16, 16), (64, 32, 3, 3), stride=2, padding=2, dilation=2), 9, 4),
  "odd": (lambda: gradient((4, 32, 15, 15), (64, 32, 3, 3), stride=2, padding=1), 9, 4),
  "transposed": (lambda: transposed((64, 32, 4, 4), stride=2, padding=1), 16, 4),
  "transposed by 3": (lambda: transposed((64, 32, 3, 3), stride=3), 9, 9),
  "transposed, odd": (lambda: transposed((64, 32, 3, 3), stride=2), 9, 4),
}


@pytest.mark.parametrize("name", MADE)
def test_only_products_that_there_are_are_made(name: str) -> None:
  """A quarter of them with a stride of two, without a remainder in the inner loop: the copies have the conditions filled in."""
  make, products, elements = MADE[name]
  kernel = optimize(create_schedule([make()])[-1].ast, TARGET)
  uops = linearize(kernel, TARGET)
  copies = int(np.prod([a.count for a in kernel.of_kind(AxisKind.UPCAST)]))
  made = [u for u in uops if u.arg is BinaryOps.MUL and u.dtype.count > 1]
  assert copies % elements == 0 and len(made) * elements <= products * copies, kernel.applied
  assert not [u for u in uops if u.arg is BinaryOps.MOD]
  if name == "transposed": assert not [u for u in uops if u.arg is TernaryOps.WHERE]


@pytest.mark.parametrize("name", long_half(MADE))
def test_values_are_those_without_opts(name: str) -> None:
  if reason := missing("CPU"): pytest.skip(reason)
  got = MADE[name][0]().numpy()
  with config(noopt=True): want = MADE[name][0]().numpy()
  np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_a_sum_of_nothing_has_no_loop() -> None:
  """Elements between the strides of a convolution that is wider than its filter are 0."""
  uops = linearize(optimize(create_schedule([gradient((4, 32, 8, 8), (64, 32, 2, 2), stride=4)])[-1].ast, TARGET), TARGET)
  assert not [u for u in uops if u.op is Ops.PHI and u.src[1] is u.src[0]]
