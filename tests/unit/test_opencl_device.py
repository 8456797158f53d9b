"""The OpenCL backend on a real device: every dtype and operation against numpy, control flow, memory, compiling, caching."""
from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ntgrad.backends.base import KernelSource, ProgramSpec
from ntgrad.backends.memory_pool import bucket
from ntgrad.backends.opencl.device import OpenCLDevice, available
from ntgrad.backends.opencl.renderer import OpenCLRenderer
from ntgrad.codegen.ir.config import config
from ntgrad.codegen.ir.dtype import DType, dtypes
from ntgrad.codegen.ir.errors import CompileError, DeviceError
from ntgrad.codegen.ir.uop import BinaryOps, Ops, UnaryOps, UOp, toposort
from support.elementwise import I32, N, check, const, elementwise, load, loop_over, param, run, samples, store
from support.marks import long, long_where

pytestmark = pytest.mark.skipif(not available()[0], reason=available()[1])


@pytest.fixture(scope="module")
def device() -> OpenCLDevice: return OpenCLDevice("CPU")


COMMON = [
  (BinaryOps.ADD, np.add),
  (BinaryOps.SUB, np.subtract),
  (BinaryOps.MUL, np.multiply),
  (BinaryOps.MAX, np.maximum),
  (BinaryOps.MIN, np.minimum),
  (BinaryOps.CMPLT, np.less),
  (BinaryOps.CMPLE, np.less_equal),
  (BinaryOps.CMPEQ, np.equal),
  (BinaryOps.CMPNE, np.not_equal),
  (BinaryOps.IDIV, np.floor_divide),
  (BinaryOps.MOD, np.mod),
]
BITS = [(BinaryOps.AND, np.bitwise_and), (BinaryOps.OR, np.bitwise_or), (BinaryOps.XOR, np.bitwise_xor)]
WIDE = [d for d in dtypes.numbers if d not in (dtypes.float8_e4m3, dtypes.float8_e5m2, dtypes.float16, dtypes.bfloat16)]


EVERY_WIDTH = (dtypes.float32, dtypes.int64, dtypes.uint8, dtypes.bool)


@pytest.mark.parametrize("dtype, n", [(d, n) for d in WIDE for n in ((1, 2, 4, 8, 16) if d in EVERY_WIDTH else (8,))], ids=str)
def test_binary(device: OpenCLDevice, dtype: DType, n: int) -> None:
  if dtype.kind == "b":
    table = [(BinaryOps.AND, np.logical_and), (BinaryOps.OR, np.logical_or), (BinaryOps.XOR, np.logical_xor), *COMMON[3:9],
             (BinaryOps.ADD, np.logical_or), (BinaryOps.MUL, np.logical_and)]
  elif dtype.kind == "f": table = [*COMMON, (BinaryOps.DIV, np.divide), (BinaryOps.POW, np.power)]
  else: table = [*COMMON, *BITS]
  a, b = samples(dtype)
  got = elementwise(device, n, [a, b], [lambda x, y, op=op: UOp.alu(op, x, y) for op, _ in table])
  with np.errstate(all="ignore"):
    for (op, ref), g in zip(table, got): check(g, ref(a, b), str(op), 1e-6 if op is BinaryOps.POW else 0)


@pytest.mark.parametrize("dtype, n", [(d, n) for d in dtypes.ints for n in (1, 8)], ids=str)
def test_integers_wrap_where_it_shows(device: OpenCLDevice, dtype: DType, n: int) -> None:
  a, b = samples(dtype)
  fns = [lambda x, y: UOp.alu(BinaryOps.CMPLT, UOp.alu(BinaryOps.ADD, x, y), x),
         lambda x, y: UOp.alu(BinaryOps.MUL, x, y).cast(dtypes.int64.vec(n)),
         lambda x, y: UOp.alu(BinaryOps.CMPLT, UOp.alu(UnaryOps.NEG, x), const(0, dtype)),
         lambda x, y: UOp.alu(UnaryOps.NOT, x),
         lambda x, y: UOp.alu(BinaryOps.SHL, x, const(3, dtype), dtype=x.dtype),
         lambda x, y: UOp.alu(BinaryOps.SHR, x, const(3, dtype), dtype=x.dtype),
         lambda x, y: UOp.alu(UnaryOps.ABS, x)]
  with np.errstate(all="ignore"):
    want = [a + b < a, (a*b).astype(np.int64), -a < 0, ~a, a << dtype.np.type(3), a >> dtype.np.type(3), np.abs(a)]
  for i, (g, w) in enumerate(zip(elementwise(device, n, [a, b], fns), want)): check(g, w, f"case {i}")


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.int32, dtypes.uint16, dtypes.uint64], ids=str)
def test_integer_power(device: OpenCLDevice, dtype: DType) -> None:
  a = samples(dtype)[0]
  b = (np.arange(N) % 9).astype(dtype.np)
  for n in (1, 4):
    got, = elementwise(device, n, [a, b], [lambda x, y: UOp.alu(BinaryOps.POW, x, y)])
    with np.errstate(all="ignore"): check(got, np.power(a, b), f"width {n}")


# a scalar kernel for these, vectors for all
SCALAR_TOO = (dtypes.bool, dtypes.uint16, dtypes.int64, dtypes.float16, dtypes.float32)
BOTH = [(d, n) for d in dtypes.numbers for n in ((1, 8) if d in SCALAR_TOO else (8,))]


@pytest.mark.parametrize("source, n", BOTH, ids=str)
def test_cast(device: OpenCLDevice, source: DType, n: int) -> None:
  a = samples(source)[0]
  if source.kind == "f":  # out of the range of an int is undefined
    ints = np.linspace(0, 100, N).astype(source.np)
    got = elementwise(device, n, [ints], [lambda x, d=d: x.cast(d.vec(n)) for d in dtypes.ints])
    for d, g in zip(dtypes.ints, got): check(g, ints.astype(d.np), f"{source} to {d}")
  others = [d for d in dtypes.numbers if d is not source and not (source.kind == "f" and d.kind in "iu")]
  got = elementwise(device, n, [a], [lambda x, d=d: x.cast(d.vec(n)) for d in others])
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    for d, g in zip(others, got): check(g, a.astype(d.np), f"{source} to {d}")


@pytest.mark.parametrize("n", [1, 8, 16])
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float8_e4m3, dtypes.float8_e5m2], ids=str)
def test_narrow_floats_convert_exactly(device: OpenCLDevice, dtype: DType, n: int) -> None:
  """Every value of the narrow dtype, and floats round to the nearest even one just as ml_dtypes does."""
  bits = np.arange(1 << 8*dtype.itemsize, dtype=np.uint16).astype(np.uint16 if dtype.itemsize == 2 else np.uint8)
  every = bits.view(dtype.np)
  got, = elementwise(device, n, [every], [lambda x: x.cast(dtypes.float32.vec(n))])
  with np.errstate(all="ignore"): check(got, every.astype(np.float32), "decode")
  finite = np.sort(every.astype(np.float32)[np.isfinite(every.astype(np.float32))])
  halfway = (finite[1:] + finite[:-1])/2
  between = np.concatenate([halfway, np.nextafter(halfway, np.inf), finite[-1:]*1.03, finite[-1:]*1.2, finite[-1:]*100])
  floats = np.concatenate([finite, between, np.array([np.inf, -np.inf, np.nan, 1e-30, -1e-44], np.float32)]).astype(np.float32)
  floats = np.resize(floats, (len(floats) + 15)//16*16)
  got, back = elementwise(
    device, n, [floats], [lambda x: x.cast(dtype.vec(n)), lambda x: x.cast(dtype.vec(n)).cast(dtypes.float32.vec(n))]
  )
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    want = floats.astype(dtype.np)
    check(got, want, "encode")
    check(back, want.astype(np.float32), "round trip in registers")
  number = ~np.isnan(want.astype(np.float32))
  assert (np.signbit(got[number].astype(np.float32)) == np.signbit(want[number].astype(np.float32))).all()


def test_double_to_half_rounds_once(device: OpenCLDevice) -> None:
  u = 2.0**-11  # half a unit of the last place above 1
  a = np.resize(
    np.array([1 + u + 2.0**-40, 1 + u - 2.0**-40, -(1 + 3 * u - 2.0**-45), 1e300, -np.inf, np.nan, 65519.99999999, 0.1]), N
  )
  for n in (1, 8):
    got, = elementwise(device, n, [a], [lambda x, n=n: x.cast(dtypes.float16.vec(n))])
    with np.errstate(all="ignore"): check(got, a.astype(np.float16), f"width {n}")


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize(
  "pair",
  [
    (dtypes.float32, dtypes.int32),
    (dtypes.int32, dtypes.float32),
    (dtypes.float64, dtypes.uint64),
    (dtypes.float16, dtypes.int16),
    (dtypes.uint16, dtypes.bfloat16),
    (dtypes.float16, dtypes.bfloat16),
    (dtypes.int8, dtypes.uint8),
    (dtypes.uint32, dtypes.int32),
  ],
  ids=str,
)
def test_bitcast(device: OpenCLDevice, pair: tuple[DType, DType], n: int) -> None:
  a = samples(pair[0])[0]
  if pair[0].kind == "f": a = np.nan_to_num(a.astype(np.float32), nan=3.0).astype(pair[0].np)
  got, = elementwise(device, n, [a], [lambda x: UOp(Ops.BITCAST, pair[1].vec(n), (x,))])
  want = a.view(pair[1].np)
  check(got, want, str(pair))


@long_where(lambda n: n == 8)
@pytest.mark.parametrize("dtype, n", BOTH, ids=str)
def test_where_and_gates(device: OpenCLDevice, dtype: DType, n: int) -> None:
  a, b = samples(dtype)
  c = np.arange(N) % 3 == 0
  where, = elementwise(device, n, [c, a, b], [lambda c, x, y: c.where(x, y)])
  check(where, np.where(c, a, b), "where")
  # gates: a lane for itself and all lanes at once; what is not stored stays
  pc, pa, o1, o2, o3 = param(0, dtypes.bool), param(1, dtype), param(2, dtype, True), param(3, dtype, True), param(4, dtype, True)
  def body(i: UOp) -> list[UOp]:
    gate, whole = load(pc, i, n), UOp.alu(BinaryOps.CMPLT, i, const(N//2))
    other = const(1, dtype)
    return [store(o1, i, load(pa, i, n, gate, other)), store(o2, i, load(pa, i, n), gate),
            store(o3, i, load(pa, i, n, whole, other), whole)]
  _, _, g1, g2, g3 = run(device, loop_over(n, N, body), [c, a, *(np.zeros(N, dtype.np) for _ in range(3))])
  one, zero = np.ones(N, dtype.np), np.zeros(N, dtype.np)
  check(g1, np.where(c, a, one), "gated load")
  check(g2, np.where(c, a, zero), "gated store")
  check(g3, np.where(np.arange(N) < N//2, a, zero), "scalar gate")


@pytest.mark.parametrize("n", [2, 3, 8, 16])
@pytest.mark.parametrize("dtype", [dtypes.bool, dtypes.float16, dtypes.float32, dtypes.int64], ids=str)
def test_vectors_load_and_store_anywhere(device: OpenCLDevice, dtype: DType, n: int) -> None:
  """No alignment is promised; lanes come apart and together in order."""
  a = samples(dtype)[0]
  src, out, turned = param(0, dtype), param(1, dtype, True), param(2, dtype, True)
  v = load(src, const(5), n)
  lanes = [UOp(Ops.GEP, dtype, (v,), i) for i in range(n)]
  uops = toposort(
    [store(out, const(3), v, arg="nt"), store(turned, const(1), UOp(Ops.VECTORIZE, dtype.vec(n), tuple(lanes[::-1])))]
  )
  _, g, t = run(device, uops, [a, np.zeros(N, dtype.np), np.zeros(N, dtype.np)])
  check(g[3:3 + n], a[5:5 + n], "straight")
  check(t[1:1 + n], a[5:5 + n][::-1], "turned round")
  assert not g[:3].any() and not g[3 + n:].any() and not t[0] and not t[1 + n:].any()


def test_broadcast(device: OpenCLDevice) -> None:
  """A scalar beside a vector counts for all lanes."""
  a = np.arange(N, dtype=np.int16)
  f = np.arange(N, dtype=np.float32)
  got = elementwise(device, 8, [a, f], [
    lambda x, y: UOp.alu(BinaryOps.MUL, const(3, dtypes.int16), x, dtype=x.dtype),
    lambda x, y: UOp.alu(BinaryOps.SUB, const(3.0, dtypes.float32), y, dtype=y.dtype),
    lambda x, y: UOp.alu(BinaryOps.ADD, UOp(Ops.CAST, dtypes.float32.vec(8), (const(2),)), y),
    lambda x, y: UOp.alu(BinaryOps.CMPLT, const(7, dtypes.int16), x),
    lambda x, y: const(True, dtypes.bool).where(const(1.0, dtypes.float32), y)])
  for g, w in zip(got, [a*3, 3 - f, f + 2, a > 7, np.ones(N, np.float32)]): check(g, w.astype(g.dtype), "broadcast")


@long
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_functions_at_every_width(dtype: str) -> None:
  """The library's functions and our own. In another process: a vector that is handed over wrongly may end it."""
  tests = Path(__file__).resolve().parents[1]
  done = subprocess.run([sys.executable, "-m", "support.opencl_functions", dtype], capture_output=True, text=True, timeout=300,
                        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (tests.parent, tests)))})
  assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-1000:]}"


def test_isnan(device: OpenCLDevice) -> None:
  x = samples(dtypes.float32)[0]
  for n in (1, 8):
    isnan, = elementwise(device, n, [x], [lambda v: UOp.alu(UnaryOps.ISNAN, v)])
    check(isnan, np.isnan(x), "isnan")


def test_threefry(device: OpenCLDevice) -> None:
  def reference(x: int, key: int) -> int:
    m = 0xffffffff
    k = [key & m, key >> 32, (key & m) ^ (key >> 32) ^ 0x1BD11BDA]
    a, b = ((x & m) + k[0]) & m, ((x >> 32) + k[1]) & m
    for i in range(5):
      for r in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
        a = (a + b) & m
        b = ((b << r | b >> (32 - r)) & m) ^ a
      a, b = (a + k[(i + 1) % 3]) & m, (b + k[(i + 2) % 3] + i + 1) & m
    return b << 32 | a
  assert reference(0, 0) == 0x99ba4efe6b200159  # the known answer of threefry2x32-20
  a, b = samples(dtypes.uint64)
  for n in (1, 4):
    got, = elementwise(device, n, [a, b], [lambda x, y: UOp.alu(BinaryOps.THREEFRY, x, y)])
    check(got, np.array([reference(int(x), int(y)) for x, y in zip(a, b)], np.uint64), f"width {n}")


# ---- control flow
def test_parallel_assignment(device: OpenCLDevice) -> None:
  """Fibonacci: (a, b) = (b, a + b)."""
  out = param(0, I32, True)
  a, b = UOp(Ops.DEFINE_ACC, I32, (), 0), UOp(Ops.DEFINE_ACC, I32, (), 1)
  loop = UOp(Ops.LOOP, I32, (const(0), const(10)))
  total = UOp.alu(BinaryOps.ADD, a, b)
  pa, pb = UOp(Ops.PHI, I32, (a, b, loop)), UOp(Ops.PHI, I32, (b, total, loop))
  head = [out, const(0), const(1), const(10), a, b, loop, total]
  for phis in ([pa, pb], [pb, pa]):
    tail = [UOp(Ops.ENDLOOP, I32, (loop,)), store(out, const(0), pa), store(out, const(1), pb)]
    got, = run(device, [*head, *phis, *tail], [np.zeros(2, np.int32)])
    assert got.tolist() == [55, 89]


def test_nested_loops_set_inner_accumulators_anew(device: OpenCLDevice) -> None:
  out, data = param(0, dtypes.float32, True), param(1, dtypes.float32)
  rows = UOp(Ops.LOOP, I32, (const(0), const(4)))
  acc = UOp(Ops.DEFINE_ACC, dtypes.float32.vec(8), (), 0.0)
  cols = UOp(Ops.LOOP, I32, (const(0), const(2)))
  index = UOp.alu(BinaryOps.ADD, UOp.alu(BinaryOps.MUL, rows, const(16)), UOp.alu(BinaryOps.MUL, cols, const(8)))
  v = load(data, index, 8)
  phi = UOp(Ops.PHI, acc.dtype, (acc, UOp.alu(BinaryOps.ADD, UOp.alu(BinaryOps.MUL, v, v), acc), cols))
  total = UOp(Ops.GEP, dtypes.float32, (phi,), 0)
  for i in range(1, 8): total = UOp.alu(BinaryOps.ADD, total, UOp(Ops.GEP, dtypes.float32, (phi,), i))
  tail = [u for u in toposort([total]) if u.op is Ops.GEP or (u.op is Ops.ALU and u.dtype.count == 1 and u.dtype.kind == "f")]
  inner = [u for u in toposort([phi]) if u.op in (Ops.ALU, Ops.LOAD)]
  uops = [out, data, const(0), const(2), const(4), const(8), const(16), rows, acc, cols, *inner, phi,
          UOp(Ops.ENDLOOP, I32, (cols,)), *tail, store(out, rows, total), UOp(Ops.ENDLOOP, I32, (rows,))]
  x = np.arange(64, dtype=np.float32)
  got, _ = run(device, uops, [np.zeros(4, np.float32), x])
  np.testing.assert_array_equal(got, (x.reshape(4, 16)**2).sum(1))


def test_groups_local_memory_and_if(device: OpenCLDevice) -> None:
  """Each group of four turns its elements round through local memory; the last work-item writes a private array's sum."""
  out, data, sums = param(0, I32, True), param(1, I32), param(2, I32, True)
  g, l = UOp(Ops.SPECIAL, I32, (), ("g", 0, 4)), UOp(Ops.SPECIAL, I32, (), ("l", 0, 4))
  local, private = UOp(Ops.DEFINE_LOCAL, I32, (), ("shared", 4, "local")), UOp(Ops.DEFINE_LOCAL, I32, (), ("mine", 2, "private"))
  index = UOp.alu(BinaryOps.ADD, UOp.alu(BinaryOps.MUL, g, const(4)), l)
  v = load(data, index)
  back = UOp.alu(BinaryOps.SUB, const(3), l)
  turned = load(local, back)
  cond = UOp.alu(BinaryOps.CMPEQ, l, const(3))
  block = UOp(Ops.IF, dtypes.bool, (cond,))
  first, last = load(local, const(0)), load(local, const(3))
  total = UOp.alu(BinaryOps.ADD, load(private, const(0)), load(private, const(1)))
  uops = [
    out,
    data,
    sums,
    g,
    l,
    local,
    private,
    const(0),
    const(1),
    const(3),
    const(4),
    index.src[0],
    index,
    v,
    store(local, l, v),
    UOp(Ops.BARRIER, dtypes.bool),
    back,
    turned,
    store(out, index, turned),
    cond,
    block,
    first,
    last,
    store(private, const(0), first),
    store(private, const(1), last),
    *total.src,
    total,
    store(sums, g, total),
    UOp(Ops.ENDIF, dtypes.bool, (block,)),
  ]
  x = np.arange(16, dtype=np.int32)
  got, _, s = run(device, uops, [np.zeros(16, np.int32), x, np.zeros(4, np.int32)], (4,), (4,))
  np.testing.assert_array_equal(got, x.reshape(4, 4)[:, ::-1].ravel())
  np.testing.assert_array_equal(s, x.reshape(4, 4)[:, 0] + x.reshape(4, 4)[:, 3])


# ---- the runtime
def scale(factor: float, size: int = 64) -> list[UOp]:
  """data0 = data1 * factor"""
  out, data = param(0, dtypes.float32, True), param(1, dtypes.float32)
  return loop_over(8, size, lambda i: [store(out, i, UOp.alu(BinaryOps.MUL, const(factor, dtypes.float32), load(data, i, 8)))])


def spec_of(device: OpenCLDevice, name: str, uops: list[UOp]) -> ProgramSpec:
  return ProgramSpec(name, device.renderer.render(name, uops), (1,), (1,), sum(u.op is Ops.DEFINE_GLOBAL for u in uops))


def try_scale(device: OpenCLDevice, program: Any, factor: float) -> None:
  a, b = device.alloc(256), device.alloc(256)
  device.copyin(b, np.arange(64, dtype=np.float32).view(np.uint8))
  program([a, b])
  np.testing.assert_array_equal(device.copyout(a, 256).view(np.float32), np.arange(64)*np.float32(factor))
  device.free(a, 256)
  device.free(b, 256)


def test_memory_is_counted_and_reused(device: OpenCLDevice) -> None:
  before = device.allocated
  device.reset_peak()
  a = device.alloc(1000)
  b = device.alloc(5 << 20)
  assert device.allocated - before == 1000 + (5 << 20) == device.peak - before
  address = b.int_ptr
  device.free(b, 5 << 20)
  c = device.alloc((5 << 20) - 100)
  assert c.int_ptr == address  # a near size shares the bucket
  device.free(c, (5 << 20) - 100)
  device.free(a, 1000)
  assert device.allocated == before and device.peak - before == 1000 + (5 << 20)
  device.trim()
  assert device.pooled == 0


def test_buckets() -> None:
  for n in (1, 4095, 4096, 4097, 100_000, 64 << 20, (64 << 20) + 1, 3_000_000_001):
    size = bucket(n, OpenCLDevice.unit)
    assert n <= size <= max(n*1.13 + 4096, 4096) and size % 4096 == 0 and bucket(size, OpenCLDevice.unit) == size


def test_out_of_memory_names_the_size(device: OpenCLDevice) -> None:
  with pytest.raises(DeviceError, match="1,125,899,906,842,624 bytes"): device.alloc(1 << 50)


def test_copies_may_be_changed_after_the_call(device: OpenCLDevice) -> None:
  x = np.arange(1 << 20, dtype=np.uint8)
  raw = device.alloc(x.nbytes)
  device.copyin(raw, x)
  want = x.copy()
  x[:] = 0
  got = device.copyout(raw, x.nbytes)
  np.testing.assert_array_equal(got, want)
  got[:] = 7  # the caller's own
  np.testing.assert_array_equal(device.copyout(raw, x.nbytes), want)
  device.free(raw, x.nbytes)


def test_launches_are_timed_and_checked(device: OpenCLDevice) -> None:
  program, = device.compile([spec_of(device, "timed", scale(2))])
  a, b = device.alloc(256), device.alloc(256)
  assert program([a, b]) is None
  seconds = program([a, b], wait=True)
  assert seconds is not None and 0 < seconds < 1
  with pytest.raises(DeviceError, match="takes 2 buffers, got 1"): program([a])


def test_unknown_devices_are_refused() -> None:
  with pytest.raises(DeviceError, match="CL:99"): OpenCLDevice("CL:99")
  assert available("CL:99")[0] is False and "found" in available("CL:99")[1]


def test_target(device: OpenCLDevice) -> None:
  with config(vector_bits=0, cores=0):
    t = device.renderer.target
    assert t.lanes in (4, 8, 16) and t.cores >= 1 and not t.locals and t.local_memory > 0 and dtypes.float64 in t.dtypes
  for bits, lanes, registers in ((128, 4, 16), (256, 8, 16), (512, 16, 32)):
    with config(vector_bits=bits, cores=5):
      assert (device.renderer.target.lanes, device.renderer.target.registers, device.renderer.target.cores) == (
        lanes,
        registers,
        5,
      )
      assert OpenCLRenderer().target.lanes == lanes
  with config(vector_bits=0, cores=0): assert device.renderer.target == t


def test_vectors_are_as_wide_as_compiled_code_has_them(tmp_path: Path) -> None:
  """Asked of the compiler once, then read from the disk: a CPU's own width is not what a compiler makes that does not know the
  CPU."""
  with config(cache=1, cache_dir=str(tmp_path)):
    found = OpenCLDevice().compiler.vector_bits()
    assert found in (128, 256, 512) and found <= 32*max(OpenCLDevice().device.native_vector_width_float, 1)
    other = OpenCLDevice().compiler
    other.load_source = None  # type: ignore[assignment, method-assign]
    assert other.vector_bits() == found


# ---- compiling
BAD = ProgramSpec("bad", KernelSource("", kernel=("__kernel void ", "(__global int* a) {\n  a[0] = missing;\n}")), (1,), (1,), 1)


def test_compile_error_shows_the_lines(device: OpenCLDevice) -> None:
  with pytest.raises(CompileError, match=r"kernel bad.*\n.*2    a\[0\] = missing;\n.*undeclared"):
    device.compile([BAD])[0].ready()


@pytest.mark.parametrize("name", ["exp", "dot", "kernel", "max", "float4", "vload8", "as_float8", "float8u", "exp_float8"])
def test_kernels_may_be_called_as_anything_else_is(device: OpenCLDevice, name: str) -> None:
  """As OpenCL C calls something, as a helper function of another kernel is called, and two kernels as one another."""
  out, data = param(0, dtypes.float32, True), param(1, dtypes.float32)
  exp = loop_over(8, 64, lambda i: [store(out, i, UOp.alu(UnaryOps.EXP, load(data, i, 8)))])
  with config(cache=0):
    programs = device.compile([spec_of(device, name, uops) for uops in (scale(2), scale(3), exp)])
  for p, f in zip(programs, (2, 3)): try_scale(device, p, f)
  programs[2].ready()


def test_kernels_of_one_program_share_what_they_use(device: OpenCLDevice) -> None:
  """Typedefs, pragmas and helpers stand once, whatever the order in which kernels bring them; a kernel's name changes where it is
  its own."""
  def adds(factor: float, vectors: bool) -> list[UOp]:
    out, data = param(0, dtypes.float64, True), param(1, dtypes.float64)
    value = load(data, const(0), 2) if vectors else load(data, const(0))
    scaled = UOp.alu(
      BinaryOps.MUL, const(factor, dtypes.float64), UOp(Ops.GEP, dtypes.float64, (value,), 1) if vectors else value
    )
    return toposort([UOp.unique(Ops.ATOMIC, dtypes.float64, (out, const(0), scaled), "add")])

  specs = [
    spec_of(device, "data0", adds(2, False)),
    spec_of(device, "data0", adds(3, True)),
    spec_of(device, "data0", adds(5, True)),
  ]
  unit = device.compiler.unit(specs)
  text = unit.join()
  lines = [line for line in text.splitlines() if line.startswith(("typedef ", "#pragma ", "static "))]
  assert len(set(lines)) == len(lines) and "typedef double2 double2u" in text and "pragma" in text and "atomic_add_double" in text
  assert [*unit.names.values()] == ["data0_0", "data0_1", "data0_2"] and text.count("__global double* restrict data0") == 3
  with config(cache=0): programs = device.compile(specs)
  a, b = device.alloc(8), device.alloc(16)
  device.copyin(a, np.zeros(1).view(np.uint8))
  device.copyin(b, np.array([1.0, 10.0]).view(np.uint8))
  for p in programs: p([a, b])
  assert device.copyout(a, 8).view(np.float64)[0] == 2 + 30 + 50


def test_equal_kernels_are_built_once(device: OpenCLDevice) -> None:
  with config(cache=0):
    before = device.compiler.built
    programs = device.compile(
      [spec_of(device, "once", scale(11)), spec_of(device, "once", scale(11)), spec_of(device, "once", scale(12))]
    )
    for p in programs: p.ready()
    assert device.compiler.built - before == 2
    device.compile([spec_of(device, "once", scale(11))])[0].ready()
    assert device.compiler.built - before == 2
  for p, f in zip(programs, (11, 11, 12)): try_scale(device, p, f)


def test_one_bad_kernel_does_not_take_others_with_it(device: OpenCLDevice) -> None:
  """Those of its group are built alone; the bad one says each time what is wrong."""
  with config(cache=0):
    one, wrong, other = device.compile([spec_of(device, "one", scale(21)), BAD, spec_of(device, "other", scale(22))])
  for _ in range(2):
    with pytest.raises(CompileError, match="kernel bad"): wrong.ready()
  try_scale(device, one, 21)
  try_scale(device, other, 22)


def test_disk_cache(tmp_path: Any) -> None:
  """Another process (here: another device object) finds the binary; a damaged one is rebuilt."""
  with config(cache=1, cache_dir=str(tmp_path)):
    first = OpenCLDevice()
    specs = [spec_of(first, f"kept{f}", scale(f)) for f in (2, 3)]
    for p, f in zip(first.compile(specs), (2, 3)): try_scale(first, p, f)
    assert first.compiler.built == 2
    first.compiler.save()
    second = OpenCLDevice()
    for p, f in zip(second.compile(specs), (2, 3)): try_scale(second, p, f)
    assert (second.compiler.built, second.compiler.found) == (0, 2)
    for path in tmp_path.rglob("*"):
      if path.is_file() and "opencl-program" in str(path): path.write_bytes(path.read_bytes()[:-100])
    third = OpenCLDevice()
    for p, f in zip(third.compile(specs), (2, 3)): try_scale(third, p, f)
    assert third.compiler.built == 2
    third.compiler.save()
    fourth = OpenCLDevice()
    fourth.compile(specs)
    assert fourth.compiler.found == 2


@long
def test_workers_build_many(tmp_path: Any) -> None:
  """In a script without a __main__ guard; a kernel that does not compile is reported by its own name."""
  script = tmp_path/"script.py"
  script.write_text("""
import time
import numpy as np
from ntgrad.backends import workers as pool
from ntgrad.backends.base import KernelSource, ProgramSpec
from ntgrad.backends.opencl.device import OpenCLDevice
from ntgrad.codegen.ir.errors import CompileError
d = OpenCLDevice()
def spec(name, i, get="get_group_id"):
  kernel = ("__kernel void ", "(__global int* a) {\\n  a[%s(0)] = %d;\\n}" % (get, i))
  return ProgramSpec(name, KernelSource(name.join(kernel), kernel=kernel), (4,), (1,), 1)
specs = [spec(f"k{i}", i) for i in range(20)]
programs = d.compile(specs)
assert pool.alive()
programs[0].ready()  # built here
while programs[-1].unit.answer is None: time.sleep(0.01)  # and the last ones by the worker
a = d.alloc(16)
for i, p in enumerate(programs):
  p([a])
  assert (d.copyout(a, 16).view(np.int32) == i).all()
assert d.compiler.built in (20, 22)   # our own threads may have built their two kernels by now
assert programs[-1].unit.shapes and not programs[0].unit.shapes
try:
  for p in d.compile([spec(f"x{i}", i, "get_grup_id" if i == 3 else "get_group_id") for i in range(6)]): p.ready()
except CompileError as e: assert "kernel x3" in str(e), e
else: raise AssertionError
pool.stop()
print("fine")
""")
  root = str(Path(__file__).resolve().parents[2])
  env = {**os.environ, "WORKERS": "2", "CACHE_DIR": str(tmp_path/"cache"), "PYTHONPATH": root}
  done = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=120)
  assert done.stdout == "fine\n", done.stdout + done.stderr


def test_disassembly_is_text_or_says_why(device: OpenCLDevice) -> None:
  spec = spec_of(device, "seen", scale(5))
  assert "not been compiled" in device.disassemble(spec)
  program, = device.compile([spec])
  try_scale(device, program, 5)
  text = device.disassemble(spec)
  assert "vmulps" in text or "mulps" in text or text.startswith("# no assembly of seen"), text[:300]


def test_each_thread_has_a_core(tmp_path: Path) -> None:
  """PoCL's threads have cores of their own among those that the process may use; with POCL_AFFINITY nobody touches them."""
  if sys.platform != "linux": pytest.skip("only Linux tells the threads of a process")
  script = tmp_path/"script.py"
  script.write_text(textwrap.dedent("""
    import os, sys
    from ntgrad.backends.opencl.device import _threads, _cl_devices
    before = _threads()
    _cl_devices()
    print(sorted(sorted(os.sched_getaffinity(t)) for t in _threads() - before) == [[c] for c in sorted(os.sched_getaffinity(0))])
  """))
  root = str(Path(__file__).resolve().parents[2])
  def told(**env: str) -> str:
    given = {**os.environ, "PYTHONPATH": root, **env}
    return subprocess.run([sys.executable, str(script)], env=given, capture_output=True, text=True, timeout=60).stdout.strip()
  if len(os.sched_getaffinity(0)) != os.cpu_count(): pytest.skip("PoCL has a thread for each core of the machine")
  assert told() == "True"
  if len(os.sched_getaffinity(0)) > 1: assert told(POCL_AFFINITY="0") == "False"
