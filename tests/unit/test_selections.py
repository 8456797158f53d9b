"""Sums of which an index chooses one element read that element, and nothing else changes."""
from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

from ntgrad import Tensor, config, tile
from ntgrad.backends.numpy.evaluate import Evaluator
from ntgrad.codegen import index as ix
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.uop import BinaryOps, Ops, UOp
from ntgrad.codegen.kernel import Axis, AxisKind, Kernel, Param
from ntgrad.codegen.linearizer import linearize
from ntgrad.codegen.passes.selections import may_select, replace_selections
from ntgrad.schedule import create_schedule
from ntgrad.tile import language as tl
from support.devices import DEVICES

N = tile.Symbol("N", constexpr=True)
rng = np.random.default_rng(0)
SPECIAL = np.array([[np.nan, -0.0, np.inf, 3.0], [1.0, np.nan, -0.0, -np.inf], [-0.0, 5.0, 6.0, np.nan]], np.float32)


def left(*tensors: Tensor) -> int:
  """How many sums the kernels of a schedule have after the pass."""
  return sum([len([u for u in replace_selections(k).reduces if u.arg[0] is BinaryOps.ADD])
              for item in create_schedule(tensors) for k in item.ast])


def chosen(x: np.ndarray, i: np.ndarray) -> np.ndarray:
  """What a one-hot mask chooses of each row: 0 where the index is outside."""
  inside = (i >= 0) & (i < x.shape[1])
  return np.where(inside, np.take_along_axis(x, np.where(inside, i, 0)[:, None], 1)[:, 0], 0).astype(x.dtype) + x.dtype.type(0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.int8])
def test_rows_by_a_mask(device: str, dtype: Any) -> None:
  x = np.concatenate([SPECIAL, rng.standard_normal((5, 4)).astype(np.float32)])
  i = np.array([1, 2, 0, 3, 4, 255 if dtype == np.uint8 else -1, 100, 3]).astype(dtype)
  mask = Tensor.arange(4).reshape(1, 4) == Tensor(i, device=device).reshape(8, 1).cast("int64")
  y = mask.where(Tensor(x, device=device), 0.0).sum(1)
  assert left(y) == 0
  got, want = y.numpy(), chosen(x, i.astype(np.int64))
  np.testing.assert_array_equal(got, want)
  np.testing.assert_array_equal(np.signbit(got), np.signbit(want))   # a sum has no -0.0


@pytest.mark.parametrize("device", DEVICES)
def test_counts_and_further_conditions(device: str) -> None:
  i, j = rng.integers(-3, 12, (6, 20)), rng.standard_normal((6, 20)).astype(np.float32)
  a, b = Tensor(i, device=device), Tensor(j, device=device)
  at = Tensor.arange(9).reshape(1, 1, 9)
  ones = (at == a.unsqueeze(-1)).sum(-1)
  both = ((at == a.unsqueeze(-1)) & (b.unsqueeze(-1) > 0)).where(b.unsqueeze(-1) * (at + 1), 0.0).sum((1, 2))
  assert left(ones) == 0 and left(both) == 1   # the sum over the other axis stays
  np.testing.assert_array_equal(ones.numpy(), ((i >= 0) & (i < 9)).astype(np.int64))
  want = np.where((i >= 0) & (i < 9) & (j > 0), j * (i + 1), 0).sum(1)
  np.testing.assert_allclose(both.numpy(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_of_a_table_that_is_computed(device: str) -> None:
  """The value at the index is computed, not a table."""
  x, i = rng.standard_normal((30, 7)).astype(np.float32), rng.integers(0, 30, 11)
  mask = Tensor.arange(30).reshape(1, 30, 1) == Tensor(i, device=device).reshape(11, 1, 1)
  y = mask.where(Tensor(x, device=device).exp().reshape(1, 30, 7), 0.0).sum(1)
  np.testing.assert_allclose(y.numpy(), np.exp(x)[i], rtol=1e-6)


def _elements(x: Any, i: Any, y: Any, z: Any) -> None:
  n = x.shape[1]
  at = tl.arange(0, n)
  block, place = x[0] * 2.0, i[0, 0]
  y = tl.sum(tl.where(at[None, :] == place, block, 0.0), axis=1)[None]   # noqa: F841
  total = tl.sum(block) * 0.0
  for j in range(n): total += tl.sum(tl.where((at[:, None] == j) & (at[None, :] == n - 1 - j), block, 0.0))
  z = tl.full((1, 1), 1.0, z.dtype) * total   # noqa: F841


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("noopt", [0, 1])
def test_in_tile_kernels(device: str, noopt: int) -> None:
  def whole(*tensors: Any) -> Any: return tuple([t.tile((1, *[-1] * (t.ndim - 1))) for t in tensors])
  kernel = tile.make(whole, _elements, [tile.Tensor(shape=(None, 8, 8)), tile.Tensor(shape=(None, 1), dtype="int32"),
                                        tile.Tensor(shape=(None, 8)), tile.Tensor(shape=(None, 1))])
  x, i = rng.standard_normal((4, 8, 8)).astype(np.float32), np.array([[0], [7], [8], [-1]], np.int32)
  y, z = np.zeros((4, 8), np.float32), np.zeros((4, 1), np.float32)
  with config(dev=device, noopt=noopt): kernel(x, i, y, z)
  np.testing.assert_array_equal(y, np.stack([x[0, :, 0] * 2, x[1, :, 7] * 2, np.zeros(8), np.zeros(8)]).astype(np.float32))
  np.testing.assert_allclose(z[:, 0], 2 * np.einsum("bii->b", x[:, :, ::-1]), rtol=1e-5)


# ---- the pass alone

A, B, R = ix.rng(0, 5), ix.rng(1, 6), ix.rng(2, 6)
TABLE, OUT, PLACES = (Param(n, shape, d, n == 0) for n, (shape, d) in enumerate([((5,), dtypes.float32), ((5, 6), dtypes.float32),
                                                                                ((5,), dtypes.int32)]))
TABLE, OUT = OUT, TABLE
AXES = (Axis(0, 5, AxisKind.GRID), Axis(1, 6, AxisKind.LOOP), Axis(2, 6, AxisKind.LOOP))
ZERO = UOp.const(dtypes.float32, 0)


def load(p: Param, *at: UOp) -> UOp: return UOp(Ops.LOAD, p.dtype, (p.uop, UOp(Ops.INDEX, ix.INT, at)))
def total(x: UOp, *axes: int, fn: BinaryOps = BinaryOps.ADD) -> UOp: return UOp(Ops.REDUCE, x.dtype, (x,), (fn, axes))
def kernel_of(value: UOp) -> Kernel:
  store = UOp(Ops.STORE, dtypes.float32, (OUT.uop, UOp(Ops.INDEX, ix.INT, (A,)), value))
  return Kernel((OUT, TABLE, PLACES), AXES, (store,))


def equal(a: UOp, b: UOp) -> UOp: return UOp(Ops.ALU, dtypes.bool, (a, b), BinaryOps.CMPEQ)


def value_after(value: UOp) -> UOp: return replace_selections(kernel_of(value)).body[0].src[2]


def test_what_the_pass_makes() -> None:
  picked = ix.eq(B, ix.add(A, 1)).where(load(TABLE, A, B), ZERO)
  assert value_after(total(picked, 1)) is UOp.alu(BinaryOps.ADD, load(TABLE, A, ix.add(A, 1)), ZERO)   # 1 <= a0 + 1 < 6
  assert [a.id for a in replace_selections(kernel_of(total(picked, 1))).axes] == [0, 2]   # nothing used the last
  beyond = ix.eq(B, ix.add(A, 2)).where(load(TABLE, A, B), ZERO)
  inside = ix.lt(A, 4).where(load(TABLE, A, ix.least(ix.add(A, 2), 5)), ZERO)
  assert value_after(total(beyond, 1)) is UOp.alu(BinaryOps.ADD, inside, ZERO)
  turned = ix.eq(ix.sub(A, B), 0).where(load(TABLE, A, B), ZERO)   # from the other side
  assert value_after(total(turned, 1)) is UOp.alu(BinaryOps.ADD, load(TABLE, A, A), ZERO)


@pytest.mark.parametrize("value", [
  lambda: total(ix.eq(B, A).where(load(TABLE, A, B), ZERO), 1, fn=BinaryOps.MAX),                          # no sum
  lambda: total(ix.eq(ix.mul(B, 2), A).where(load(TABLE, A, B), ZERO), 1),                                 # not of every index
  lambda: total(ix.lt(B, 3).where(load(TABLE, A, B), ZERO), 1),                                            # several
  lambda: total(ix.eq(B, A).where(load(TABLE, A, B), UOp.const(dtypes.float32, 1)), 1),                    # others count
  lambda: total(
    equal(UOp(Ops.CAST, dtypes.int8, (ix.mul(B, 100),)), UOp.const(dtypes.int8, 4)).where(load(TABLE, A, B), ZERO), 1),
  lambda: total(ix.eq(B, ix.fdiv(B, 2)).where(load(TABLE, A, B), ZERO), 1),                                # of itself
], ids=["max", "twice", "less", "others", "wraps", "itself"])
def test_what_stays(value: Callable[[], UOp]) -> None:
  u = value()
  assert value_after(u) is u


def test_an_axis_inside_has_its_own_indices() -> None:
  """An index is not taken into a sum over the axes that it is made of."""
  u = total(ix.eq(B, A).where(total(load(TABLE, A, ix.least(ix.add(B, R), 5)), 2), ZERO), 1)
  assert value_after(u) is not u
  inner = total(load(TABLE, ix.const(0), ix.least(ix.add(B, R), 5)), 2)
  free = ix.eq(B, R).where(inner, ZERO)   # R is free here, and bound in what is chosen
  assert total(free, 1) in value_after(total(total(free, 1), 2)).toposort()
  again = total(ix.eq(B, A).where(total(load(TABLE, A, B), 1), ZERO), 1)   # the axis itself is bound inside
  assert value_after(again) is again


def test_blocks_are_read_at_their_own_indices() -> None:
  from ntgrad.backends.cuda.renderer import TARGET
  variable = UOp(Ops.DEFINE_LOCAL, dtypes.float32, (), ("v0", (6,), "private"))
  u = total(ix.eq(B, A).where(UOp(Ops.LOAD, dtypes.float32, (variable, UOp(Ops.INDEX, ix.INT, (B,)))), ZERO), 1)
  assert TARGET.blocks and replace_selections(kernel_of(u), TARGET).body[0].src[2] is u and value_after(u) is not u
  of_memory = total(ix.eq(B, A).where(load(TABLE, A, B), ZERO), 1)
  assert replace_selections(kernel_of(of_memory), TARGET).body[0].src[2] is not of_memory


def test_which_sums_are_looked_at() -> None:
  assert may_select(total(ix.eq(B, A).where(load(TABLE, A, B), ZERO), 1)) and not may_select(total(load(TABLE, A, B), 1))


def test_an_axis_that_nothing_varies_with_any_more_counts_still() -> None:
  """sum[a, b](x[i - a + b] if a == b else 0) is sum[b](x[i]): as often as b has values."""
  out, x = Param(0, (5,), dtypes.float32, True), Param(1, (5,), dtypes.float32, False)
  i, a, b = Axis(0, 5, AxisKind.GRID), Axis(1, 3, AxisKind.LOOP), Axis(2, 3, AxisKind.LOOP)
  place = ix.add(ix.sub(i.rng, a.rng), b.rng)
  inside = ix.both(ix.ge(place, 0), ix.lt(place, 5))
  value = UOp(Ops.LOAD, dtypes.float32, (x.uop, UOp(Ops.INDEX, ix.INT, (place,)), inside))
  one = ix.eq(a.rng, b.rng).where(value, UOp.const(dtypes.float32, 0.0))
  total = UOp(Ops.REDUCE, dtypes.float32, (one,), (BinaryOps.ADD, (1, 2)))
  store = UOp(Ops.STORE, dtypes.float32, (out.uop, UOp(Ops.INDEX, ix.INT, (i.rng,)), total))
  kernel = Kernel((out, x), (i, a, b), (store,))
  assert [axis.id for axis in replace_selections(kernel).axes] == [0, 2]
  data = np.arange(1, 6, dtype=np.float32)
  memory = [np.zeros(20, np.uint8), data.view(np.uint8).copy()]
  Evaluator("k", linearize(kernel)).run(memory, {})
  np.testing.assert_array_equal(memory[0].view(np.float32), 3 * data)
