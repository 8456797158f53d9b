"""Work and bounds of kernels: exact bytes and operations, and the oracle that counts the elements which a launch reaches."""
from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any, Callable

import numpy as np
import pytest

from ntgrad import Tensor, config
from ntgrad.backends import rates
from ntgrad.backends.cuda.renderer import TARGET
from ntgrad.codegen import index as ix
from ntgrad.codegen.choose.bound import Operations, Unit, Work, bound, work_of
from ntgrad.codegen.index.sizes import evaluator
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.target import Rates, Target
from ntgrad.codegen.ir.uop import BinaryOps, Ops
from ntgrad.codegen.kernel import EFFECTS, Kernel
from ntgrad.codegen.kernel.accesses import gate_or_true
from ntgrad.engine.compile import program_spec
from ntgrad.engine.device import get_device
from ntgrad.schedule import create_schedule
from support.indices import at_points
from support.kernels import GRAPHS, kernels
from support.sizes import MAKES, NAMES, numbers, symbols
from support.statements import I32, Builder, at, for_, if_, while_

E = Tensor.empty
MATRIX, VECTOR, SPECIAL = Unit.MATRIX, Unit.VECTOR, Unit.SPECIAL


def last(*tensors: Tensor) -> Kernel:
  """The kernel that a graph ends with."""
  kernel = create_schedule(list(tensors))[-1].ast
  assert kernel is not None
  return kernel


def ops(kernel: Kernel) -> dict[tuple[Unit, str], Any]: return {(o.unit, o.dtype): o.count for o in work_of(kernel).operations}


F = "float32"
CASES: dict[str, tuple[Callable[[], Tensor], int, dict[tuple[Unit, str], int]]] = {
  "elementwise": (lambda: E(8, 64) * 2 + E(64), 4 * (512 + 64 + 512), {(VECTOR, F): 2 * 512}),
  "special": (lambda: E(8, 64).exp() / E(8, 64).sqrt(), 4 * 3 * 512, {(SPECIAL, F): 3 * 512}),
  "ints": (lambda: E(8, dtype="int32") // 3 + 1, 4 * 16, {(VECTOR, "int32"): 16}),
  "cast": (lambda: E(8, 64).cast("float16"), 512 * (4 + 2), {}),
  "copy": (lambda: E(8, 64).T.contiguous(), 4 * 2 * 512, {}),
  "a part": (lambda: E(100)[10:20] + 1, 4 * 20, {(VECTOR, F): 10}),
  "strided": (lambda: E(100)[::5] + 1, 4 * 40, {(VECTOR, F): 20}),
  "padded": (lambda: E(10).pad((2, 3)) + 1, 4 * (10 + 15), {(VECTOR, F): 15}),
  "a part, padded": (lambda: E(100)[5:15].pad((2, 3)) + 1, 4 * (10 + 15), {(VECTOR, F): 15}),
  "triangle": (lambda: E(8, 8).tril(), 4 * 128, {}),
  "neighbours": (lambda: (x := E(100))[1:] - x[:-1], 4 * (100 + 99), {(VECTOR, F): 99}),
  "reduction": (lambda: E(8, 64).sum(1), 4 * (512 + 8), {(VECTOR, F): 512}),
  "greatest": (lambda: E(8, 64).max(axis=1), 4 * (512 + 8), {(VECTOR, F): 512}),
  # the greatest, the difference, the sum; exp and the quotient
  "softmax": (lambda: E(8, 64).softmax(), 4 * 1024, {(VECTOR, F): 3 * 512, (SPECIAL, F): 2 * 512}),
  "matmul": (lambda: E(16, 32) @ E(32, 8), 4 * (512 + 256 + 128), {(MATRIX, F): 2 * 16 * 32 * 8}),
  "matmul of halves": (lambda: E(16, 32, dtype="float16") @ E(32, 8, dtype="float16"), 2 * 896, {(MATRIX, "float16"): 8192}),
  "matmul, then more": (lambda: (E(16, 32) @ E(32, 8) + E(8)).relu(), 4 * 904, {(MATRIX, F): 8192, (VECTOR, F): 2 * 128}),
  "batched": (lambda: E(3, 16, 32) @ E(3, 32, 8), 3 * 4 * 896, {(MATRIX, F): 3 * 8192}),
  "matrix and vector": (lambda: E(16, 32) @ E(32), 4 * (512 + 32 + 16), {(VECTOR, F): 2 * 512}),
  "convolution": (lambda: E(2, 3, 10, 10).conv2d(E(5, 3, 3, 3)), 4 * (600 + 135 + 640), {(MATRIX, F): 2 * 640 * 27}),
  "convolution of every second": (
    lambda: E(2, 3, 10, 10).conv2d(E(5, 3, 1, 1), stride=2), 4 * (2 * 3 * 25 + 15 + 250), {(MATRIX, F): 2 * 250 * 3}),
  "each channel by itself": (
    lambda: E(2, 3, 10, 10).conv2d(E(3, 1, 3, 3), groups=3), 4 * (600 + 27 + 384), {(VECTOR, F): 2 * 384 * 9}),
  "windows": (lambda: E(2, 3, 10, 10).max_pool2d((3, 3), stride=1), 4 * (600 + 384), {(VECTOR, F): 384 * 9}),
  "few rows": (lambda: E(1000, 16)[E(4, dtype="int32")], 4 * (64 + 4 + 64), {}),
  "many rows": (lambda: E(4, 16)[E(400, dtype="int32")], 4 * (64 + 400 + 6400), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_work(name: str) -> None:
  make, nbytes, operations = CASES[name]
  with config(check_indices=0): kernel = last(make())
  work = work_of(kernel)
  assert work.bytes == nbytes == work_of(kernel).bytes
  found = ops(kernel)
  if "rows" in name: found = {k: n for k, n in found.items() if k[1] == F}   # besides what makes negative indices positive
  assert found == operations and work.flops == work_of(kernel).flops


@pytest.mark.parametrize("make, want", [
  (lambda: E(100)[::5] + 1, 4 * (96 - 20)), (lambda: E(64, 64)[:, ::32].sum(1), 4 * 128 * 15),
  (lambda: E(64, 64)[:, 3] + 1, 4 * 64 * 15),
  (lambda: E(64, 64)[:, E(2, dtype="int32")].sum(1), 4 * 128 * 15), (lambda: E(64, 64)[E(2, dtype="int32")].sum(1), 0),
  (lambda: E(8, 64).T.contiguous(), 0), (lambda: E(8, 64) * 2 + E(64), 0), (lambda: (x := E(100))[1:] - x[:-1], 0)])
def test_bytes_beside_those_that_are_moved(make: Callable[[], Tensor], want: int) -> None:
  assert work_of(last(make())).beside == want


def test_random_numbers_take_integer_operations() -> None:
  found = ops(last(Tensor.rand(64)))
  assert found[VECTOR, "uint64"] >= 75 * 64 and found[VECTOR, F] == 64


# ---- the oracle

def naive(kernel: Kernel) -> tuple[int, int]:
  """Bytes of all loads and stores, each element as often as it is asked for, and one operation (a random number: 75) for each
  node that computes, all for each point of the axes that it depends on."""
  def count(*nodes: Any) -> int: return int(np.prod([r.arg[1] for r in frozenset().union(*(n.ranges for n in nodes))]))
  sizes = {p.uop: p.dtype.itemsize for p in kernel.params}
  nbytes = sum(count(u.src[1], *u.src[2:]) * sizes[u.src[0]] for u in kernel.nodes if u.op in (Ops.LOAD, *EFFECTS))
  nbytes += sum(count(*u.src[1:]) * sizes[u.src[0]] for u in kernel.effects if u.arg is not None)   # reads its place
  computing = [u for u in kernel.nodes if u.op in (Ops.ALU, Ops.REDUCE, *EFFECTS)]
  return nbytes, sum(count(u, *u.src) * (75 if u.arg is BinaryOps.THREEFRY else 1) for u in computing)


def reached(kernel: Kernel) -> int | None:
  """The bytes of different elements that are read, and that are written, by going through all points; None where indices are
  data."""
  found: dict[Any, set[tuple[int, ...]]] = {}
  for u in kernel.nodes:
    if u.op not in (Ops.LOAD, *EFFECTS): continue
    nodes = (*u.src[1].src, gate_or_true(u))
    if any(n.op is Ops.LOAD for x in nodes for n in x.toposort()): return None
    axes = sorted({r for n in nodes for r in n.ranges}, key=lambda r: r.arg[0])
    env = {r: np.arange(r.arg[1]).reshape([-1 if i == d else 1 for i in range(len(axes))]) for d, r in enumerate(axes)}
    shape = np.broadcast_shapes(*(e.shape for e in env.values()))
    *index, gate = (np.broadcast_to(at_points(n, env), shape).reshape(-1) for n in nodes)
    places = set(zip(*(i[gate.astype(bool)].tolist() for i in index)))
    for how in ("read",) if u.op is Ops.LOAD else ("written",) if u.arg is None else ("read", "written"):
      found.setdefault((u.src[0], how), set()).update(places)
  return sum(len(places) * p.dtype.itemsize for (buffer, _), places in found.items() for p in kernel.params if p.uop is buffer)


def test_bytes_are_those_of_what_is_reached_and_no_more_than_a_naive_count() -> None:
  for name in GRAPHS:
    for k in kernels(name):
      nbytes, flops = naive(k)
      assert work_of(k).bytes <= nbytes and work_of(k).flops <= flops, name
      assert reached(k) in (None, work_of(k).bytes), name


@pytest.mark.parametrize("name", MAKES)
def test_run_time_sizes(name: str) -> None:
  """The work of a kernel for all sizes is that of the kernel for numbers."""
  kernel = MAKES[name](symbols())
  values = dict(zip(NAMES, (40, 24, 16)))
  work = work_of(kernel).with_numbers(evaluator(work_of(kernel).numbers, kernel.sizes)([values[s.name] for s in kernel.sizes]))
  want = work_of(MAKES[name](numbers([values[n] for n in NAMES])))
  assert work == want and pickle.loads(pickle.dumps(work_of(kernel))) == work_of(kernel)


def test_of_an_unknown_size_likely_work_is_about_what_it_may_be() -> None:
  assert work_of(MAKES["product"](symbols(hint=100))).likely() == work_of(MAKES["product"](numbers((100,) * 3)))


# ---- statements

def tiled_product() -> Kernel:
  """(16, 24) @ (24, 32) in blocks of 8 x 16 x 8."""
  b = Builder()
  gi, gj, gk, i, j, l = b.grid(2), b.grid(2), b.loop(3), b.tile(8), b.tile(16), b.tile(8)
  c, x, y, acc = b.param((16, 32), written=True), b.param((16, 24)), b.param((24, 32)), b.variable((8, 16))
  product = (x[at(gi, 8, i), at(gk, 8, l)] * y[at(gk, 8, l), at(gj, 16, j)]).sum(l)
  return b.kernel(
    acc.set((i, j), 0), for_(gk, acc.set((i, j), acc[i, j] + product)), c.set((at(gi, 8, i), at(gj, 16, j)), acc[i, j]))


def test_blocks_of_a_product() -> None:
  k = tiled_product()
  assert work_of(k).bytes == 4 * (16 * 24 + 24 * 32 + 16 * 32)
  assert ops(k) == {(MATRIX, F): 2 * 16 * 24 * 32, (VECTOR, F): 3 * 16 * 32}   # and a sum for each block of the 24
  assert work_of(k).axes == (2, 2, 3, 8, 16, 8)


def test_blocks_that_hang_over_an_edge() -> None:
  """Masks leave out what is past the end of memory; the programs compute with whole blocks."""
  b = Builder()
  g, i = b.grid(4), b.tile(8)
  out, x = b.param((30,), written=True), b.param((27,))
  row = at(g, 8, i)
  k = b.kernel(out.set(row, x.load(row, ix.lt(row, 27)) * 2.0, ix.lt(row, 30)))
  assert work_of(k).bytes == 4 * (27 + 30) and work_of(k).flops == 32


def test_blocks_of_run_time_sizes() -> None:
  """out[i] = x[i] + x[i + 2] in blocks of 8: of sizes that blocks do not divide, what memory has counts."""
  n = ix.node(symbols()["N"])
  b = Builder()
  g, i = b.grid(ix.cdiv(n, 8)), b.tile(8)
  out, x = b.param((n,), written=True), b.param((ix.add(n, 2),))
  row = at(g, 8, i)
  k = b.kernel(out.set(row, x.load(row, ix.lt(row, n)) + x.load(ix.add(row, 2), ix.lt(row, n)), ix.lt(row, n)))
  for size in (1, 27, 64):
    work = work_of(k).with_numbers(evaluator(work_of(k).numbers, k.sizes)((size,)))
    whole = -(-size // 8)
    assert (work.bytes, work.flops, work.axes) == (4 * (size + 2 + size), 8 * whole, (whole, 8))


def test_branches_and_loops_of_unknown_length() -> None:
  """Both branches of an IF count, the body of a WHILE once, its condition too; of a FOR whose end is data all that it may do."""
  b = Builder()
  g, n, i = b.grid(6), b.loop(5), b.tile(16)
  out, x, flag = b.param((6, 16), written=True), b.param((6, 16)), b.param((6,), I32)
  v = b.variable((16,))
  k = b.kernel(
    v.set(i, x[g, i]),
    if_(flag[g] > 0, [v.set(i, v[i] * 2)], [v.set(i, v[i].exp())]),
    while_(v[i].reduce(BinaryOps.MAX, i) > 1, v.set(i, v[i] - 1)),
    for_(n, v.set(i, v[i] + 1), end=flag[g]),
    out.set((g, i), v[i]))
  assert work_of(k).bytes == 4 * (96 + 96 + 6)
  assert ops(k) == {(SPECIAL, F): 96, (VECTOR, F): 96 + (96 + 6) + 96 + 5 * 96, (VECTOR, "int32"): 6}


def test_gathers_by_way_of_variables() -> None:
  """Where each program reads is known to it alone: as many elements as all ask for, or all that there are."""
  def kernel(rows: int) -> Kernel:
    b = Builder()
    g, n, i = b.grid(6), b.loop(2), b.tile(16)
    out, x, index, at_ = b.param((6, 2, 16), written=True), b.param((rows, 16)), b.param((6, 2), I32), b.variable((), I32)
    return b.kernel(for_(n, at_.set((), index[g, n]), out.set((g, n, i), x[at_[()], i])))
  assert work_of(kernel(100)).bytes == 4 * (192 + 12 * 16 + 12)
  assert work_of(kernel(5)).bytes == 4 * (192 + 5 * 16 + 12)


def test_atomics_read_and_write() -> None:
  b = Builder()
  g, i = b.grid(16), b.tile(8)
  out, x, where = b.param((5,), written=True), b.param((16, 8)), b.param((16, 8), I32)
  k = b.kernel(out.atomic("add", where[g, i], x[g, i]))
  assert work_of(k).bytes == 4 * (5 + 5 + 128 + 128) and ops(k) == {(VECTOR, F): 128}


def test_scans_and_sorts() -> None:
  b = Builder()
  g, i = b.grid(3), b.tile(20)
  out, x, v, w = b.param((3, 20), written=True), b.param((3, 20)), b.variable((20,)), b.variable((20,))
  k = b.kernel(v.set(i, x[g, i].scan(BinaryOps.ADD, i)), w.set(i, v[i].sort(i)), out.set((g, i), w[i]))
  assert work_of(k).bytes == 4 * 120 and work_of(k).flops == 60 + 60 * 5   # five comparisons each place one of 20


def test_what_is_read_and_written_counts_twice() -> None:
  b = Builder()
  g = b.grid(10)
  x = b.param((20,), written=True)
  assert work_of(b.kernel(x.set(g, x[g] * 2))).bytes == 4 * 20
  h = b.grid(3)
  assert work_of(b.kernel(x.set(at(h, 2), x[at(h, 2, 1)] * 2))).bytes == 4 * 6


# ---- bounds

# a core that moves 1 byte and does 10 vector, 40 matrix, 2 special operations a second; 100 bytes a second in its cache of 64
RATES = Rates({F: 10.0, "float64": 5.0}, {"float16": 40.0, "tf32": 20.0}, 2.0, 100.0)
SLOW = Target("slow", bandwidth=1.0, cache=64, rates=RATES)


def least(nbytes: int, *operations: tuple[Unit, str, int]) -> tuple[float, Unit]:
  found = bound(Work(nbytes, tuple([Operations(*o) for o in operations])), SLOW)
  return found.seconds, found.unit


def test_the_slowest_unit_is_the_bound() -> None:
  assert least(100, (VECTOR, F, 100)) == (100.0, Unit.MEMORY) and least(50, (VECTOR, F, 1)) == (0.5, Unit.CACHE)
  assert least(50, (VECTOR, F, 100)) == (10.0, VECTOR) and least(0, (VECTOR, "float64", 100)) == (20.0, VECTOR)
  assert least(50, (VECTOR, "float16", 100)) == (10.0, VECTOR), "16-bit floats are computed with as float32"
  assert least(0, (SPECIAL, F, 100), (VECTOR, F, 100)) == (50.0, SPECIAL)
  assert least(0, (MATRIX, "float16", 400), (VECTOR, F, 50)) == (10.0, MATRIX)
  assert least(0, (MATRIX, F, 400), (VECTOR, F, 50)) == (45.0, VECTOR), "no matrix unit takes float32 as it is"
  assert least(0) == (0.0, Unit.CACHE)


def test_rounded_factors() -> None:
  work = work_of(last(E(16, 32) @ E(32, 8)))
  assert bound(replace(work, bytes=0), SLOW).unit is VECTOR and bound(replace(work.rounded(), bytes=0), SLOW).unit is MATRIX
  device = get_device("NUMPY")
  for rounds in (0, 1):
    with config(allow_tf32=rounds):
      spec = program_spec(last(E(16, 32) @ E(32, 8)), device).spec
    assert {o.dtype for o in spec.work.operations} == {("float32", "tf32")[rounds]}


def test_rates_belong_to_no_key() -> None:
  """A CPU tells its clock as it is at the moment: no cache key and no choice may depend on it."""
  assert TARGET == replace(TARGET, rates=Rates()) and hash(TARGET) == hash(replace(TARGET, rates=Rates()))
  assert repr(TARGET) == repr(replace(TARGET, rates=Rates()))


def test_rates_of_devices() -> None:
  h100 = TARGET.rates   # what NVIDIA says of one, at its greatest clock
  assert 60e12 < h100.vector[F] < 70e12 and 0.95e15 < h100.matrix["float16"] == h100.matrix["bfloat16"] < 1.1e15
  assert h100.matrix["float8_e4m3"] == 2 * h100.matrix["float16"] == 4 * h100.matrix["tf32"] and "float32" not in h100.matrix
  for capability, like in ((103, 100), (87, 86), (60, 70)):
    assert rates.of_nvidia(capability, 1, 1.0) == rates.of_nvidia(like, 1, 1.0)
  assert rates.of_cpu(2, 8, 3e9) == rates.of_cpu(2, 8) and rates.of_cpu(1, 8).vector[F] == 96e9
  for name in ("NUMPY", "CPU"):
    target = get_device(name).renderer.target
    assert {F, "float64"} <= set(target.rates.vector) and min(*target.rates.vector.values(), target.rates.special) > 0
    assert not target.rates.matrix and target.rates.cache >= target.bandwidth


@pytest.mark.parametrize("dtype", [d for d in dtypes.all if d is not dtypes.bool], ids=str)
def test_every_dtype_has_a_bound(dtype: Any) -> None:
  kernel = last(E(16, 32, dtype=dtype) @ E(32, 16, dtype=dtype))
  for target in (TARGET, Target("any")): assert bound(work_of(kernel), target).seconds > 0


def test_rows_and_columns_of_a_flattened_result() -> None:
  """The gradient of a weight in a flat memory of all parameters: its one axis is rows and columns."""
  x, g, w = [Tensor.empty(*s, requires_grad=True) for s in ((64, 48), (64, 32), (32, 48))]
  flat = (g.T @ x + w).reshape(32 * 48).contiguous()
  work = work_of(last(flat))
  assert [(o.unit, o.count) for o in work.operations if o.unit is Unit.MATRIX] == [(Unit.MATRIX, 2 * 32 * 48 * 64)]
