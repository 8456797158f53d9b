"""Kernels whose body is a sequence of statements: on several backends, as plain loops and with Opts, against numpy."""
from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from ntgrad.backends.base import Device
from ntgrad.backends.numpy.device import NumpyDevice
from ntgrad.backends.opencl.renderer import OpenCLRenderer
from ntgrad.codegen.explain.printing import index_form
from ntgrad.codegen.ir.config import config
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.errors import VerifyError
from ntgrad.codegen.ir.target import Target
from ntgrad.codegen.ir.uop import BinaryOps, Ops, UOp
from ntgrad.codegen.kernel import Kernel
from support.marks import long_where
from tests.support import plain_c
from tests.support.machines import MACHINES
from tests.support.statements import F32, I32, Array, Builder, E, at, for_, if_, lines, run, value, while_

ADD, MAX = BinaryOps.ADD, BinaryOps.MAX
AVX2 = Target("opencl", lanes=8, registers=16, cores=2, local_memory=512 << 10)


@cache
def device(name: str) -> Device:
  if name == "numpy": return NumpyDevice()
  if name == "c": return plain_c.CDevice()
  from ntgrad.backends.opencl.device import OpenCLDevice, available
  ok, why = available("CPU")
  if not ok: pytest.skip(why)
  return OpenCLDevice("CPU")


@pytest.fixture(params=["numpy", pytest.param("c", marks=plain_c.needs_cc), *(f"opencl {name}" for name in MACHINES)])
def dev(request: Any) -> Iterator[Device]:
  """numpy, plain C, and OpenCL as different CPUs have it."""
  name, *machine = request.param.split()
  with config(**MACHINES[machine[0]] if machine else {}): yield device(name)


@pytest.fixture(params=[False, True], ids=["plain", "opts"])
def opts(request: Any) -> bool: return bool(request.param)


def ints(*shape: int, lo: int = -4, hi: int = 5, seed: int = 0) -> Array:
  return np.random.default_rng(seed).integers(lo, hi, shape).astype(np.float32)


def normal(*shape: int, seed: int = 0) -> Array: return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def matmul(m: int, n: int, k: int, bm: int, bn: int, bk: int) -> Kernel:
  b = Builder()
  gi, gj, gk = b.grid(m // bm), b.grid(n // bn), b.loop(k // bk)
  i, j, l = b.tile(bm), b.tile(bn), b.tile(bk)
  c, x, y = b.param((m, n), written=True), b.param((m, k)), b.param((k, n))
  acc = b.variable((bm, bn))
  product = (x[at(gi, bm, i), at(gk, bk, l)] * y[at(gk, bk, l), at(gj, bn, j)]).sum(l)
  return b.kernel(
    acc.set((i, j), 0), for_(gk, acc.set((i, j), acc[i, j] + product)), c.set((at(gi, bm, i), at(gj, bn, j)), acc[i, j])
  )


@long_where(lambda dev, opts: dev.startswith("opencl") and not (opts and "avx2" in dev))
@pytest.mark.parametrize(
  "sizes",
  [(16, 32, 24, 8, 16, 8), (32, 32, 32, 16, 16, 8), (15, 14, 6, 5, 7, 3), (32, 64, 16, 32, 32, 16), (32, 256, 32, 32, 32, 16)],
)
def test_accumulator_over_blocks(dev: Device, opts: bool, sizes: tuple[int, ...]) -> None:
  m, n, k = sizes[:3]
  x, y = ints(m, k), ints(k, n, seed=1)
  np.testing.assert_array_equal(run(matmul(*sizes), dev, [np.zeros((m, n), np.float32), x, y], opts)[0], x @ y)


def fibonacci() -> Kernel:
  b = Builder()
  g, k = b.grid(4), b.loop(10)
  out = b.param((4,), I32, True)
  x, y, t = (b.variable((), I32) for _ in range(3))
  return b.kernel(
    x.set((), 0),
    y.set((), value(g, I32) + 1),
    for_(k, t.set((), x[()] + y[()]), x.set((), y[()]), y.set((), t[()])),
    out.set(g, x[()]),
  )


def test_swap(dev: Device, opts: bool) -> None:
  x, y = np.zeros(4, np.int32), np.arange(1, 5, dtype=np.int32)
  for _ in range(10): x, y = y, x + y
  np.testing.assert_array_equal(run(fibonacci(), dev, [np.zeros(4, np.int32)], opts)[0], x)


def attention(n: int, d: int, bm: int, bn: int) -> Kernel:
  b = Builder()
  g, k = b.grid(n // bm), b.loop(n // bn)
  i, j, e = b.tile(bm), b.tile(bn), b.tile(d)
  out, q, kk, v = b.param((n, d), written=True), b.param((n, d)), b.param((n, d)), b.param((n, d))
  m, l, acc, new, s = b.variable((bm,)), b.variable((bm,)), b.variable((bm, d)), b.variable((bm,)), b.variable((bm, bn))
  return b.kernel(
    m.set(i, -np.inf), l.set(i, 0), acc.set((i, e), 0),
    for_(k, s.set((i, j), (q[at(g, bm, i), e] * kk[at(k, bn, j), e]).sum(e)),
         new.set(i, m[i].max(s[i, j].reduce(MAX, j))),
         s.set((i, j), (s[i, j] - new[i]).exp()),
         l.set(i, l[i] * (m[i] - new[i]).exp() + s[i, j].sum(j)),
         acc.set((i, e), acc[i, e] * (m[i] - new[i]).exp() + (s[i, j] * v[at(k, bn, j), e]).sum(j)),
         m.set(i, new[i])),
    out.set((at(g, bm, i), e), acc[i, e] / l[i]))


@long_where(lambda dev, opts: dev.startswith("opencl") and not (opts and "avx2" in dev))
@pytest.mark.parametrize("sizes", [(64, 16, 16, 16), (24, 8, 6, 12)])
def test_online_softmax(dev: Device, opts: bool, sizes: tuple[int, int, int, int]) -> None:
  n, d = sizes[:2]
  q, k, v = (normal(n, d, seed=s) for s in range(3))
  s = np.exp((q @ k.T).astype(np.float64))
  got = run(attention(*sizes), dev, [np.zeros((n, d), np.float32), q, k, v], opts)[0]
  np.testing.assert_allclose(got, s / s.sum(1, keepdims=True) @ v, rtol=2e-5, atol=1e-6)


def test_if_else(dev: Device, opts: bool) -> None:
  b = Builder()
  g, i = b.grid(6), b.tile(16)
  out, x, flag = b.param((6, 16), written=True), b.param((6, 16)), b.param((6,), I32)
  v = b.variable((16,))
  kernel = b.kernel(
    v.set(i, x[g, i]),
    if_(flag[g] > 0, [v.set(i, v[i] * 2), if_(flag[g] > 1, [v.set(i, v[i] + 100)])], [v.set(i, v[i] - 1), out.set((g, i), v[i])]),
    if_(flag[g] > 0, [out.set((g, i), v[i])]),
    if_(flag[g] < -1, [], [out.set((g, i), out[g, i] + 1)]),
  )
  x_, f = ints(6, 16), np.array([0, 1, 2, -1, -2, 5], np.int32)
  want = np.where(f[:, None] > 0, x_ * 2 + np.where(f[:, None] > 1, 100, 0), x_ - 1) + np.where(f[:, None] < -1, 0, 1)
  np.testing.assert_array_equal(run(kernel, dev, [np.zeros((6, 16), np.float32), x_, f], opts)[0], want)


def test_while(dev: Device, opts: bool) -> None:
  """Newton's square root: each program takes as many rounds as it needs."""
  b = Builder()
  g = b.grid(7)
  out, rounds, x = b.param((7,), written=True), b.param((7,), I32, True), b.param((7,))
  y, n = b.variable(), b.variable((), I32)
  kernel = b.kernel(
    y.set((), x[g]),
    n.set((), 0),
    while_((y[()] * y[()] - x[g]).abs() > x[g] * 1e-4, y.set((), (y[()] + x[g] / y[()]) * 0.5), n.set((), n[()] + 1)),
    out.set(g, y[()]),
    rounds.set(g, n[()]),
  )
  x_ = np.array([1, 2, 100, 1e4, 0.5, 1e6, 9], np.float32)
  got, count, _ = run(kernel, dev, [np.zeros(7, np.float32), np.zeros(7, np.int32), x_], opts)
  np.testing.assert_allclose(got, np.sqrt(x_), rtol=1e-4)
  assert count[0] == 0 and count[5] > count[1] > 0


def test_while_over_a_tile(dev: Device, opts: bool) -> None:
  """A condition that is a reduction; a FOR inside; in a FOR."""
  b = Builder()
  g, r, i, k = b.grid(3), b.loop(2), b.tile(16), b.loop(3)
  out, x = b.param((3, 16), written=True), b.param((3, 16))
  v = b.variable((16,))
  kernel = b.kernel(
    v.set(i, x[g, i]),
    for_(r, while_(v[i].reduce(MAX, i) < (value(r) + 1) * 50, for_(k, v.set(i, v[i] + value(k)))), v.set(i, v[i] + 1)),
    out.set((g, i), v[i]),
  )
  x_ = ints(3, 16) + np.array([[0], [30], [200]], np.float32)
  want = x_.copy()
  for row in want:
    for r_ in range(2):
      while row.max() < (r_ + 1) * 50: row += 3
      row += 1
  np.testing.assert_array_equal(run(kernel, dev, [np.zeros((3, 16), np.float32), x_], opts)[0], want)


@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.int64])
def test_dynamic_end(dev: Device, opts: bool, dtype: Any) -> None:
  b = Builder()
  g, k, i = b.grid(5), b.loop(8), b.tile(16)
  out, x, n = b.param((5, 16), written=True), b.param((8, 16)), b.param((5,), dtype)
  acc = b.variable((16,))
  kernel = b.kernel(acc.set(i, 0), for_(k, acc.set(i, acc[i] + x[k, i]), end=n[g]), out.set((g, i), acc[i]))
  x_, n_ = ints(8, 16), np.array([0, 8, 3, 1, -2], dtype.np)
  want = np.stack([x_[:max(m, 0)].sum(0) for m in n_])
  np.testing.assert_array_equal(run(kernel, dev, [np.zeros((5, 16), np.float32), x_, n_], opts)[0], want)


@long_where(lambda dev, dtype: dev.startswith("opencl") and dtype is not dtypes.float32 or dev == "c" and dtype.itemsize < 4)
@pytest.mark.parametrize("how", ["add", "max", "min"])
@pytest.mark.parametrize(
  "dtype",
  [
    dtypes.int32,
    dtypes.uint32,
    dtypes.int64,
    dtypes.uint64,
    dtypes.float32,
    dtypes.float64,
    dtypes.float16,
    dtypes.bfloat16,
    dtypes.int8,
    dtypes.uint8,
    dtypes.int16,
  ],
  ids=str,
)
def test_atomic(dev: Device, opts: bool, how: str, dtype: Any) -> None:
  """Many programs update few places: from scalars, from tiles, to places that are loaded."""
  b = Builder()
  g, i = b.grid(16), b.tile(8)
  out, x, where = b.param((5,), dtype, True), b.param((16, 8), dtype), b.param((16, 8), I32)
  kernel = b.kernel(out.atomic(how, where[g, i], x[g, i]), out.atomic(how, 4, x[g, i].reduce(MAX, i)))
  rng = np.random.default_rng(0)
  x_, w = rng.integers(0, 3, (16, 8)).astype(dtype.np), rng.integers(0, 4, (16, 8)).astype(np.int32)
  start = np.array([1, 2, 0, 1, 1]).astype(dtype.np)
  want = start.astype(np.float64)
  fn = {"add": np.add, "max": np.maximum, "min": np.minimum}[how]
  for row, at_ in zip(x_.astype(np.float64), w):
    for v, p in zip(row, at_): want[p] = fn(want[p], v)
    want[4] = fn(want[4], row.max())
  got = run(kernel, dev, [start, x_, w], opts)[0]
  np.testing.assert_array_equal(got.astype(np.float64), want.astype(dtype.np).astype(np.float64))


@long_where(lambda dev, opts: dev.startswith("opencl") and not (opts and "avx2" in dev))
@pytest.mark.parametrize("fn", [ADD, MAX])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_scan(dev: Device, opts: bool, fn: BinaryOps, reverse: bool, axis: int) -> None:
  b = Builder()
  g, i, j = b.grid(3), b.tile(5), b.tile(16)
  out, x = b.param((3, 5, 16), written=True), b.param((3, 5, 16))
  v = b.variable((5, 16))
  kernel = b.kernel(
    v.set((i, j), (x[g, i, j] * 2).scan(fn, (i, j)[axis], reverse)),
    v.set((i, j), v[i, j].scan(ADD, j)),
    out.set((g, i, j), v[i, j]),
  )
  x_ = ints(3, 5, 16)
  y = np.flip(x_ * 2, axis + 1) if reverse else x_ * 2
  y = (np.cumsum if fn is ADD else np.maximum.accumulate)(y, axis + 1)
  want = np.cumsum(np.flip(y, axis + 1) if reverse else y, 2)
  np.testing.assert_array_equal(run(kernel, dev, [np.zeros((3, 5, 16), np.float32), x_], opts)[0], want)


@long_where(lambda dev, opts: dev.startswith("opencl") and not (opts and "avx2" in dev))
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int32, dtypes.uint8, dtypes.float16])
def test_sort(dev: Device, opts: bool, descending: bool, dtype: Any) -> None:
  b = Builder()
  g, i, j = b.grid(2), b.tile(3), b.tile(24)
  out, x = b.param((2, 3, 24), dtype, True), b.param((2, 3, 24), dtype)
  v = b.variable((3, 24), dtype)
  kernel = b.kernel(v.set((i, j), x[g, i, j].sort(j, descending)), out.set((g, i, j), v[i, j]))
  x_ = np.random.default_rng(0).integers(0, 9, (2, 3, 24)).astype(dtype.np)
  if dtype.kind == "f": x_[0, 0, 3] = x_[1, 1, 7] = x_[1, 1, 20] = np.nan
  want = np.sort(x_, -1)
  if descending:
    want = want[..., ::-1].copy()
    for row in want.reshape(-1, 24): row[:] = np.concatenate([row[row == row], row[row != row]])
  np.testing.assert_array_equal(run(kernel, dev, [np.zeros_like(x_), x_], opts)[0], want)


def test_transposed_read_and_swap_in_place(dev: Device, opts: bool) -> None:
  """What a statement reads elsewhere than it writes, it reads before it writes anything."""
  b = Builder()
  i, j = b.tile(16), b.tile(16)
  out, x = b.param((16, 16), written=True), b.param((16, 16))
  v, w = b.variable((16, 16)), b.variable((16, 16))
  kernel = b.kernel(
    v.set((i, j), x[i, j]),
    w.set((i, j), v[j, i] * 2),
    v.set((i, j), v[j, i] + w[i, j]),
    v.set((i, j), v[j, i].scan(ADD, j)),
    out.set((i, j), v[i, j]),
    out.set((i, j), out[j, i] + 1),
  )
  x_ = ints(16, 16)
  want = np.cumsum((x_.T * 3).T, 1).T + 1
  np.testing.assert_array_equal(run(kernel, dev, [np.zeros((16, 16), np.float32), x_], opts)[0], want)


def test_a_place_read_by_way_of_another(dev: Device, opts: bool) -> None:
  """x[x[x[i]]] = x[i] + 1: all that says where to store is read before anything is stored."""
  b = Builder()
  i = b.tile(8)
  x = b.param((8,), I32, written=True)
  given = np.array([3, 0, 6, 1, 7, 2, 4, 5], np.int32)
  want = given.copy()
  want[given[given]] = given + 1
  np.testing.assert_array_equal(run(b.kernel(x.set(x[x[i]], x[i] + 1)), dev, [given], opts)[0], want)


def test_param_written_and_read_again(dev: Device, opts: bool) -> None:
  b = Builder()
  g, i, k = b.grid(4), b.tile(16), b.loop(3)
  p, q = b.param((4, 16), written=True), b.param((4, 16), written=True)
  kernel = b.kernel(p.set((g, i), p[g, i] + 1), q.set((g, i), p[g, i] * 2), for_(k, p.set((g, i), p[g, i] + q[g, i] + value(k))),
                    q.set((g, i), p[g, i].max(q[g, i])))
  p_ = ints(4, 16)
  p1, q1 = p_ + 1, (p_ + 1) * 2
  p2 = p1 + 3 * q1 + 3
  got = run(kernel, dev, [p_, np.zeros((4, 16), np.float32)], opts)
  np.testing.assert_array_equal(got[0], p2)
  np.testing.assert_array_equal(got[1], np.maximum(p2, q1))


def test_two_loops_and_equal_statements(dev: Device, opts: bool) -> None:
  """Loops one after another over the same variable; the same node twice is two statements."""
  b = Builder()
  g, k, l, i = b.grid(2), b.loop(3), b.loop(4), b.tile(12)
  out, x = b.param((2, 12), written=True), b.param((2, 12))
  v = b.variable((12,))
  twice = v.set(i, v[i] * 2)
  kernel = b.kernel(
    v.set(i, x[g, i]),
    for_(k, v.set(i, v[i] + value(k))),
    for_(l, v.set(i, v[i] + x[g, i] * value(l)), twice),
    twice,
    twice,
    out.set((g, i), v[i]),
  )
  x_ = ints(2, 12)
  want = x_ + 3
  for n in range(4): want = (want + x_ * n) * 2
  np.testing.assert_array_equal(run(kernel, dev, [np.zeros((2, 12), np.float32), x_], opts)[0], want * 4)


def test_gates_and_narrow_variables(dev: Device, opts: bool) -> None:
  """A ragged last tile, a float16 and a bool variable, a variable too large for the stack."""
  from ntgrad.codegen import index as ix
  b = Builder()
  g, i, j = b.grid(3), b.tile(16), b.tile(512)
  out, x = b.param((40,), written=True), b.param((40,))
  h, flag, big = b.variable((16,), dtypes.float16), b.variable((16,), dtypes.bool), b.variable((16, 512))
  inside = ix.lt(at(g, 16, i), 40)
  kernel = b.kernel(
    h.set(i, x.load(at(g, 16, i), inside).cast(dtypes.float16)),
    flag.set(i, h[i] > 0),
    big.set((i, j), h[i].cast(F32) + value(j)),
    out.set(at(g, 16, i), flag[i].where(big[i, j].sum(j), h[i].cast(F32)), inside),
  )
  x_ = ints(40)
  np.testing.assert_array_equal(
    run(kernel, dev, [np.zeros(40, np.float32), x_], opts)[0], np.where(x_ > 0, x_ * 512 + 511 * 256, x_)
  )


def test_mistakes_that_numpy_finds() -> None:
  b = Builder()
  g, i = b.grid(2), b.tile(4)
  out = b.param((4,), written=True)
  v = b.variable((4,))
  zeros = [np.zeros(4, np.float32)]
  with pytest.raises(VerifyError, match="which nothing has written"): run(b.kernel(out.set(i, v[i])), device("numpy"), zeros)
  with pytest.raises(VerifyError, match="index (1..)?4, but its size is 4"):
    run(b.kernel(v.set(at(i, 1, 1), value(i)), out.set(i, v[i])), device("numpy"), zeros)
  with pytest.raises(VerifyError, match="a race"): run(b.kernel(v.set(i, value(g)), out.set(i, v[i])), device("numpy"), zeros)


def test_what_the_verifier_refuses() -> None:
  b = Builder()
  b.grid(2)
  i, k = b.tile(4), b.loop(3)
  out = b.param((4,), written=True)
  v = b.variable((4,))
  for message, statement in [
    ("INDEX of 2 dimensions into variable 'v0'", v.set((i, i), 0)),
    ("whole value", out.set(i, v[i].scan(ADD, i))),
    ("only one program sees", v.atomic("add", i, 1)),
    ("arg of ATOMIC", out.atomic("mul", i, 1)),
    ("binds that axis", for_(k, v.set(0, value(k).sum(k)))),
    ("condition of IF is a bool", if_(v[0], [])),
    ("STOREs? of a value|depends on axis 1 of 4", v.set(0, value(i))),
  ]:
    with pytest.raises(VerifyError, match=message):
      lines(b.kernel(statement))
  lone = UOp.unique(Ops.BREAK, dtypes.bool, (E(UOp.const(dtypes.bool, True)).u,))
  with pytest.raises(VerifyError, match="body of a kernel is statements|does not belong"): lines(b.kernel(lone))


def test_index_form_as_text() -> None:
  assert index_form(fibonacci()) == """\
axes   a0:4 GRID, a1:10 LOOP
data0  (4,) int, written
v0     () int, variable
v1     () int, variable
v2     () int, variable
v0 = 0
v1 = int(a0) + 1
for a1 in 0..10:
  v2 = v0 + v1
  v0 = v1
  v1 = v2
store data0[a0] = v0"""
  assert index_form(attention(32, 8, 8, 8)).split("variable\n")[-1] == """\
v0[a2] = -inf
v1[a2] = 0.
v2[a2, a4] = 0.
for a1 in 0..4:
  v4[a2, a3] = sum[a4](data1[a0 * 8 + a2, a4] * data2[a1 * 8 + a3, a4])
  v3[a2] = max(v0[a2], max[a3](v4[a2, a3]))
  v4[a2, a3] = exp(v4[a2, a3] - v3[a2])
  v1[a2] = v1[a2] * exp(v0[a2] - v3[a2]) + sum[a3](v4[a2, a3])
  v2[a2, a4] = v2[a2, a4] * exp(v0[a2] - v3[a2]) + sum[a3](v4[a2, a3] * data3[a1 * 8 + a3, a4])
  v0[a2] = v3[a2]
store data0[a0 * 8 + a2, a4] = v2[a2, a4] / v1[a2]"""
  b = Builder()
  g, i = b.grid(6), b.tile(16)
  out, x = b.param((6, 16), written=True), b.param((6, 16))
  v = b.variable((16,))
  kernel = b.kernel(
    v.set(i, x[g, i].scan(ADD, i, True)),
    v.set(i, v[i].sort(i, True)),
    if_(x[g, 0] > 0, [v.set(i, v[i].exp() * v[i].exp())], [out.set((g, i), v[i])]),
    if_(x[g, 0] < 1, [], [v.set(i, 0)]),
    while_(v[0] < 3, out.atomic("add", (g, i), v[i])),
  )
  assert index_form(kernel).split("variable\n")[-1] == """\
v0[a1] = scan[sum, a1, reverse](data1[a0, a1])
v0[a1] = sort[a1, descending](v0[a1])
if 0. < data1[a0, 0]:
  x0 = exp(v0[a1])
  v0[a1] = x0 * x0
else:
  store data0[a0, a1] = v0[a1]
if data1[a0, 0] < 1.:
  pass
else:
  v0[a1] = 0.
while v0[0] < 3.:
  atomic add data0[a0, a1], v0[a1]"""


def test_listing_of_the_swap() -> None:
  """Index arithmetic and constants once, as far out as they can stand; what reads a variable where its statement stands."""
  assert [" ".join(line.split()) for line in lines(fibonacci()).lines()[8:]] == [
    "8 UOps.STORE : [1, 5, 5] None",
    "9 UOps.ALU : dtypes.int [4, 6] BinaryOps.ADD",
    "10 UOps.STORE : [2, 5, 9] None",
    "11 UOps.LOOP : dtypes.int [5, 7] None",
    "12 UOps.LOAD : dtypes.int [1, 5] None",
    "13 UOps.LOAD : dtypes.int [2, 5] None",
    "14 UOps.ALU : dtypes.int [12, 13] BinaryOps.ADD",
    "15 UOps.STORE : [3, 5, 14] None",
    "16 UOps.LOAD : dtypes.int [2, 5] None",
    "17 UOps.STORE : [1, 5, 16] None",
    "18 UOps.LOAD : dtypes.int [3, 5] None",
    "19 UOps.STORE : [2, 5, 18] None",
    "20 UOps.ENDLOOP : [11] None",
    "21 UOps.LOAD : dtypes.int [1, 5] None",
    "22 UOps.STORE : [0, 4, 21] None"]


def test_programs_survive_pickling() -> None:
  """Two nodes that are equal stay two."""
  import pickle
  uops = lines(attention(32, 8, 8, 8))
  again = pickle.loads(pickle.dumps(uops))
  assert str(again) == str(uops) and len(set(again)) == len(uops)


def test_blocks_stay_for_targets_that_have_them() -> None:
  b = Builder()
  g, k = b.grid(2), b.loop(3)
  i, j = b.tile(8), b.tile(8)
  out, x = b.param((16, 8), written=True), b.param((16, 24))
  v, w = b.variable((8, 8)), b.variable((8,))
  kernel = b.kernel(
    v.set((i, j), 0),
    for_(k, v.set((i, j), v[i, j] + x[at(g, 8, i), at(k, 8, j)])),
    v.set((i, j), v[j, i].scan(ADD, j)),
    w.set(i, v[i, j].sum(j)),
    if_(w[0] > 0, [w.set(i, w[i].sort(i))]),
    out.set((at(g, 8, i), j), v[i, j] / w[i]),
  )
  uops = lines(kernel, Target("triton", blocks=True))
  count = {op: sum(u.op is op for u in uops) for op in Ops}
  assert (
    count[Ops.LOOP] == 1
    and count[Ops.RANGE] == 2
    and count[Ops.SCAN] == count[Ops.SORT] == count[Ops.REDUCE] == count[Ops.IF] == 1
  )


def ragged(m: int, n: int, k: int, block: int) -> Kernel:
  """A product whose tiles hang over every edge."""
  from ntgrad.codegen import index as ix
  b = Builder()
  gi, gj, gk = b.grid(-(-m // block)), b.grid(-(-n // block)), b.loop(-(-k // block))
  i, j, l = b.tile(block), b.tile(block), b.tile(block)
  c, x, y = b.param((m, n), written=True), b.param((m, k)), b.param((k, n))
  acc = b.variable((block, block))
  row, column, inner = at(gi, block, i), at(gj, block, j), at(gk, block, l)
  product = x.load((row, inner), ix.both(ix.lt(row, m), ix.lt(inner, k))) * y.load(
    (inner, column), ix.both(ix.lt(inner, k), ix.lt(column, n))
  )
  return b.kernel(acc.set((i, j), 0), for_(gk, acc.set((i, j), acc[i, j] + product.sum(l))),
                  c.set((row, column), acc[i, j], ix.both(ix.lt(row, m), ix.lt(column, n))))


def test_whole_tiles_have_no_masks(dev: Device, opts: bool) -> None:
  """Those inside the edges take another way than those that hang over."""
  x, y = ints(20, 37), ints(37, 41, seed=1)
  kernel = ragged(20, 41, 37, 16)
  np.testing.assert_array_equal(run(kernel, dev, [np.zeros((20, 41), np.float32), x, y], opts)[0], x @ y)
  uops = lines(kernel, AVX2)
  assert sum(u.op is Ops.ELSE for u in uops) == 2 and any(
    u.op is Ops.LOAD and u.dtype.count > 1 and len(u.src) == 2 for u in uops
  )


def test_a_product_copies_what_it_reads_again() -> None:
  """Rows far apart are copied to local memory first, anew each time round; the numpy evaluator runs that too."""
  uops = lines(matmul(32, 256, 32, 32, 32, 16), AVX2)
  assert [u.arg[0] for u in uops if u.op is Ops.DEFINE_LOCAL] == ["v0", "cache0"]
  assert "__local float cache0[512]" in OpenCLRenderer(AVX2).render("k", uops).text
