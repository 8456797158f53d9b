"""The oracle itself: hand-made linear programs, the meaning of every ALU function, and what it refuses."""
from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from ntgrad.backends import render
from ntgrad.backends.base import KernelSource, ProgramSpec
from ntgrad.backends.numpy import evaluate
from ntgrad.backends.numpy.device import NumpyDevice
from ntgrad.backends.numpy.functions import erf, threefry
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.errors import VerifyError
from ntgrad.codegen.ir.uop import BinaryOps, Ops, TernaryOps, UnaryOps
from support.linear import INT, Lines, dot

F32 = dtypes.float32
DOT = """\
   0 UOps.DEFINE_GLOBAL  : ptr.dtypes.int            []                               (0, 'data0', True)
   1 UOps.DEFINE_GLOBAL  : ptr.dtypes.int            []                               (1, 'data1', False)
   2 UOps.DEFINE_GLOBAL  : ptr.dtypes.int            []                               (2, 'data2', False)
   3 UOps.DEFINE_ACC     : dtypes.int                []                               0
   4 UOps.CONST          : dtypes.int                []                               0
   5 UOps.CONST          : dtypes.int                []                               4
   6 UOps.LOOP           : dtypes.int                [4, 5]                           None
   7 UOps.LOAD           : dtypes.int                [1, 6]                           None
   8 UOps.LOAD           : dtypes.int                [2, 6]                           None
   9 UOps.ALU            : dtypes.int                [7, 8]                           BinaryOps.MUL
  10 UOps.ALU            : dtypes.int                [9, 3]                           BinaryOps.ADD
  11 UOps.PHI            : dtypes.int                [3, 10, 6]                       None
  12 UOps.ENDLOOP        :                           [6]                              None
  13 UOps.STORE          :                           [0, 4, 11]                       None"""


# ---- whole programs

def test_dot_product() -> None:
  out = np.zeros(1, np.int32)
  dot().run(out, np.array([1, 2, 3, 4], np.int32), np.array([5, 6, 7, 8], np.int32))
  assert out[0] == 70


def test_render_is_the_listing() -> None:
  assert render("numpy", "dot", dot().uops) == f"# dot\n{DOT}\n"


def test_fibonacci_swap_is_parallel() -> None:
  p = Lines()
  out = p.buf(0, INT, True)
  a, b = p.acc(INT, 0), p.acc(INT, 1)
  i = p.loop(0, 10)
  total = p.alu(BinaryOps.ADD, a, b)
  fa, fb = p.phi(a, b, i), p.phi(b, total, i)
  p.end(i)
  p.store(out, 0, fa)
  p.store(out, 1, fb)
  got = np.zeros(2, np.int32)
  p.run(got)
  assert got.tolist() == [55, 89]


def matmul(m: int, n: int, k: int) -> Lines:
  p = Lines()
  out, a, b = p.buf(0, F32, True), p.buf(1, F32), p.buf(2, F32)
  row, col = p.gid(m, 1), p.gid(n, 0)
  acc = p.acc(F32, 0.0)
  i = p.loop(0, k)
  x = p.load(a, p.alu(BinaryOps.ADD, p.alu(BinaryOps.MUL, row, k), i))
  y = p.load(b, p.alu(BinaryOps.ADD, p.alu(BinaryOps.MUL, i, n), col))
  s = p.phi(acc, p.alu(BinaryOps.ADD, acc, p.alu(BinaryOps.MUL, x, y)), i)
  p.end(i)
  p.store(out, p.alu(BinaryOps.ADD, p.alu(BinaryOps.MUL, row, n), col), s)
  return p


@pytest.mark.parametrize("chunk", [1, 3, 7, 1 << 18])
def test_matmul_in_chunks(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(evaluate, "CHUNK", chunk)
  rng = np.random.default_rng(0)
  a, b = (rng.integers(-9, 9, s).astype(np.float32) for s in ((5, 6), (6, 4)))
  out = np.full((5, 4), np.nan, np.float32)
  matmul(5, 4, 6).run(out, a, b)
  assert np.array_equal(out, a @ b)


def test_loop_bounds_of_outer_loop_and_start_of_inner_accumulator() -> None:
  p = Lines()
  out = p.buf(0, INT, True)
  i = p.loop(0, 4)
  acc = p.acc(INT, 0)
  j = p.loop(0, i)
  s = p.phi(acc, p.alu(BinaryOps.ADD, acc, j), j)
  p.end(j)
  p.store(out, i, s)
  p.end(i)
  got = np.full(4, -1, np.int32)
  p.run(got)
  assert got.tolist() == [0, 0, 1, 3]


def test_one_accumulator_over_two_loops() -> None:
  p = Lines()
  out = p.buf(0, INT, True)
  acc = p.acc(INT, 100)
  i = p.loop(0, 3)
  j = p.loop(0, 5)
  s = p.phi(acc, p.alu(BinaryOps.ADD, acc, p.alu(BinaryOps.MUL, i, j)), i, j)
  p.end(j)
  p.end(i)
  p.store(out, 0, s)
  got = np.zeros(1, np.int32)
  p.run(got)
  assert got[0] == 100 + 3 * 10


def test_loop_bounds_that_differ_between_programs() -> None:
  p = Lines()
  out = p.buf(0, INT, True)
  g = p.gid(5)
  acc = p.acc(INT, 0)
  i = p.loop(0, g)
  s = p.phi(acc, p.alu(BinaryOps.ADD, acc, i), i)
  p.end(i)
  p.store(out, g, s)
  got = np.zeros(5, np.int32)
  p.run(got)
  assert got.tolist() == [0, 0, 1, 3, 6]


def test_loop_in_an_if_has_a_step_of_the_programs_that_run_only() -> None:
  p = Lines()
  out, steps = p.buf(0, INT, True), p.buf(1, INT)
  g = p.gid(4)
  acc = p.acc(INT, 0)
  c = p.if_(p.alu(BinaryOps.CMPLT, g, 2))
  i = p.add(Ops.LOOP, INT, (p.const(INT, 0), p.const(INT, 6), p.load(steps, g)))
  s = p.phi(acc, p.alu(BinaryOps.ADD, acc, i), i)
  p.end(i)
  p.endif(c)
  p.store(out, g, s)
  got = np.zeros(4, np.int32)
  p.run(got, np.array([2, 3, 0, 0], np.int32))
  assert got.tolist() == [6, 3, 0, 0]


def test_vectors() -> None:
  p = Lines()
  out, a = p.buf(0, F32, True), p.buf(1, F32)
  g = p.gid(3)
  at = p.alu(BinaryOps.MUL, g, 4)
  v = p.load(a, at, count=4)
  first = p.gep(v, 0)
  w = p.alu(BinaryOps.ADD, p.alu(BinaryOps.MUL, v, v), p.vector(first, first, p.gep(v, 3), first))
  p.store(out, at, w)
  x, got = np.arange(12, dtype=np.float32), np.zeros(12, np.float32)
  p.run(got, x)
  y = x.reshape(3, 4)
  assert np.array_equal(got.reshape(3, 4), y * y + y[:, [0, 0, 3, 0]])


def test_vector_accumulator_starts_with_equal_lanes() -> None:
  p = Lines()
  out, a = p.buf(0, F32, True), p.buf(1, F32)
  acc = p.acc(F32.vec(4), 1.0)
  i = p.loop(0, 3)
  s = p.phi(acc, p.alu(BinaryOps.ADD, acc, p.load(a, p.alu(BinaryOps.MUL, i, 4), count=4)), i)
  p.end(i)
  p.store(out, 0, p.alu(BinaryOps.ADD, p.gep(s, 0), p.gep(s, 3)))
  got = np.zeros(1, np.float32)
  p.run(got, np.arange(12, dtype=np.float32))
  assert got[0] == (0 + 4 + 8 + 1) + (3 + 7 + 11 + 1)


@pytest.mark.parametrize("lanes", [1, 4])
def test_gates(lanes: int) -> None:
  p = Lines()
  out, a = p.buf(0, F32, True), p.buf(1, F32)
  at = p.alu(BinaryOps.MUL, p.gid(3), 4)
  gates = [p.alu(BinaryOps.CMPLT, p.alu(BinaryOps.ADD, at, i), 10) for i in range(4)]
  if lanes == 4:
    gate = p.vector(*gates)
    p.store(out, at, p.load(a, at, gate, p.const(F32, -1.0), count=4), gate)
  else:
    for i, gate in enumerate(gates):
      where = p.alu(BinaryOps.ADD, at, i)
      p.store(out, where, p.load(a, where, gate, p.const(F32, -1.0)), gate)
  x, got = np.arange(10, dtype=np.float32), np.zeros(10, np.float32)
  p.run(got, x)
  assert np.array_equal(got, x)


def test_false_gate_gives_other_and_touches_nothing() -> None:
  p = Lines()
  out, a = p.buf(0, F32, True), p.buf(1, F32)
  g = p.gid(4)
  gate = p.alu(BinaryOps.CMPLT, g, 2)
  p.store(out, g, p.load(a, g, gate, p.const(F32, 7.0)))
  got = np.zeros(4, np.float32)
  p.run(got, np.array([1, 2], np.float32))
  assert got.tolist() == [1, 2, 7, 7]
  p = Lines()  # without an `other` it is 0, and an empty buffer is fine
  out, a = p.buf(0, F32, True), p.buf(1, F32)
  p.store(out, 0, p.load(a, 0, p.const(dtypes.bool, False)))
  p.run(got, np.zeros(0, np.float32))
  assert got[0] == 0


def test_if_masks_programs() -> None:
  p = Lines()
  out = p.buf(0, INT, True)
  g = p.gid(4)
  acc = p.acc(INT, 5)
  i = p.loop(0, 3)
  c = p.if_(p.alu(BinaryOps.CMPLT, g, 2))
  p.store(out, g, p.alu(BinaryOps.ADD, g, i))
  p.endif(c)
  s = p.phi(acc, p.alu(BinaryOps.ADD, acc, 1), i)
  p.end(i)
  p.store(out, p.alu(BinaryOps.ADD, g, 4), s)
  got = np.full(8, -1, np.int32)
  p.run(got)
  assert got.tolist() == [2, 3, -1, -1, 8, 8, 8, 8]


def test_local_memory_is_one_array_a_group() -> None:
  p = Lines()
  out, a = p.buf(0, INT, True), p.buf(1, INT)
  shared = p.local("tile", 4, INT)
  g, l = p.gid(3), p.lid(4)
  at = p.alu(BinaryOps.ADD, p.alu(BinaryOps.MUL, g, 4), l)
  s = p.store(shared, l, p.load(a, at))
  p.barrier(s)
  p.store(out, at, p.load(shared, p.alu(BinaryOps.SUB, 3, l)))
  x, got = np.arange(12, dtype=np.int32), np.zeros(12, np.int32)
  p.run(got, x)
  assert np.array_equal(got.reshape(3, 4), x.reshape(3, 4)[:, ::-1])


def test_private_array_is_one_a_program() -> None:
  p = Lines()
  out = p.buf(0, INT, True)
  mine = p.local("regs", 3, INT, "private")
  g = p.gid(5)
  i = p.loop(0, 3)
  p.store(mine, i, p.alu(BinaryOps.MUL, g, i))
  p.end(i)
  p.store(out, g, p.alu(BinaryOps.ADD, p.load(mine, 1), p.load(mine, 2)))
  got = np.zeros(5, np.int32)
  p.run(got)
  assert got.tolist() == [0, 3, 6, 9, 12]


def test_in_place_update() -> None:
  p = Lines()
  a = p.buf(0, F32, True)
  g = p.gid(6)
  p.store(a, g, p.alu(BinaryOps.MUL, p.load(a, g), p.const(F32, 2.0)))
  x = np.arange(6, dtype=np.float32)
  p.run(x)
  assert x.tolist() == [0, 2, 4, 6, 8, 10]


# ---- what every function means

def apply(fn: object, *arrays: np.ndarray, count: int = 1) -> np.ndarray:
  p = Lines()
  n = arrays[0].size
  ds = [dtypes.of(a.dtype) for a in arrays]
  ins = [p.buf(i + 1, d) for i, d in enumerate(ds)]
  g = p.gid(n // count)
  at = p.alu(BinaryOps.MUL, g, count)
  value = p.alu(fn, *[p.load(b, at, count=count) for b in ins])
  out = np.zeros(n, value.dtype.np)
  p.store(p.buf(0, value.dtype.scalar(), True), at, value)
  p.run(out, *[a.copy() for a in arrays])
  return out


@pytest.mark.parametrize("dtype", dtypes.ints, ids=lambda d: d.name)
def test_ints(dtype: object) -> None:
  lo, hi = dtypes.min(dtype), dtypes.max(dtype)
  values = sorted({lo, lo + 1, 0, 1, 2, 3, 7, hi - 1, hi, *(v for v in (-1, -2, -7) if v >= lo)})
  a, b = (np.array(x, dtype=dtype.np) for x in zip(*[(x, y) for x in values for y in values]))
  bits = dtype.itemsize * 8
  def wrap(v: int) -> int:
    v &= (1 << bits) - 1
    return v - (1 << bits) if lo < 0 and v >> (bits - 1) else v
  pairs = [(int(x), int(y)) for x, y in zip(a, b)]
  exact = {BinaryOps.ADD: lambda x, y: x + y, BinaryOps.SUB: lambda x, y: x - y, BinaryOps.MUL: lambda x, y: x * y,
           BinaryOps.MAX: max, BinaryOps.MIN: min, BinaryOps.AND: lambda x, y: x & y, BinaryOps.OR: lambda x, y: x | y,
           BinaryOps.XOR: lambda x, y: x ^ y}
  for fn, f in exact.items(): assert apply(fn, a, b).tolist() == [wrap(f(x, y)) for x, y in pairs], fn
  some = b != 0
  for fn, f in {BinaryOps.IDIV: lambda x, y: x // y, BinaryOps.MOD: lambda x, y: x % y}.items():
    assert apply(fn, a[some], b[some]).tolist() == [wrap(f(x, y)) for x, y in pairs if y], fn
  for fn, f in {BinaryOps.CMPLT: lambda x, y: x < y, BinaryOps.CMPLE: lambda x, y: x <= y, BinaryOps.CMPEQ: lambda x, y: x == y,
                BinaryOps.CMPNE: lambda x, y: x != y}.items():
    assert apply(fn, a, b).tolist() == [f(x, y) for x, y in pairs], fn
  shift = b % bits
  assert apply(BinaryOps.SHL, a, shift).tolist() == [wrap(int(x) << int(y)) for x, y in zip(a, shift)]
  assert apply(BinaryOps.SHR, a, shift).tolist() == [int(x) >> int(y) for x, y in zip(a, shift)]
  power = np.abs(b) % 5
  assert apply(BinaryOps.POW, a, power).tolist() == [wrap(int(x) ** int(y)) for x, y in zip(a, power)]
  assert apply(UnaryOps.NEG, a).tolist() == [wrap(-int(x)) for x in a]
  assert apply(UnaryOps.NOT, a).tolist() == [wrap(~int(x)) for x in a]
  assert apply(UnaryOps.ABS, a).tolist() == [wrap(abs(int(x))) for x in a]
  assert not apply(UnaryOps.ISNAN, a).any()
  assert apply(UnaryOps.FLOOR, a).tolist() == a.tolist()


def test_int_power_of_negative_exponent() -> None:
  a, b = np.array([1, -1, -1, 2, 0, -3], np.int32), np.array([-5, -3, -2, -1, -1, -2], np.int32)
  assert apply(BinaryOps.POW, a, b).tolist() == [1, -1, 1, 0, 0, 0]


def test_bool() -> None:
  a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
  assert apply(UnaryOps.NOT, a).tolist() == [True, True, False, False]
  for fn, want in {BinaryOps.AND: a & b, BinaryOps.OR: a | b, BinaryOps.XOR: a ^ b, BinaryOps.MAX: a | b, BinaryOps.MIN: a & b,
                   BinaryOps.ADD: a | b, BinaryOps.MUL: a & b, BinaryOps.CMPLT: ~a & b}.items():
    assert apply(fn, a, b).tolist() == want.tolist(), fn


FLOATS = [dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64]
UNARY = {
  UnaryOps.NEG: lambda x: -x,
  UnaryOps.RECIP: lambda x: 1 / x,
  UnaryOps.SQRT: np.sqrt,
  UnaryOps.RSQRT: lambda x: 1 / np.sqrt(x),
  UnaryOps.EXP: np.exp,
  UnaryOps.EXP2: np.exp2,
  UnaryOps.LOG: np.log,
  UnaryOps.LOG2: np.log2,
  UnaryOps.SIN: np.sin,
  UnaryOps.COS: np.cos,
  UnaryOps.TAN: np.tan,
  UnaryOps.TANH: np.tanh,
  UnaryOps.FLOOR: np.floor,
  UnaryOps.CEIL: np.ceil,
  UnaryOps.TRUNC: np.trunc,
  UnaryOps.ROUND: np.round,
  UnaryOps.ABS: np.abs,
  UnaryOps.ERF: lambda x: np.array([math.erf(float(v)) for v in x]),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_float_functions(dtype: object) -> None:
  x = np.concatenate([np.linspace(-7.5, 7.5, 61), [0.0, -0.0, 0.5, 1.5, 2.5, 1e-3, math.inf, -math.inf, math.nan]]).astype(
    dtype.np
  )
  wide = x.astype(np.float64)
  eps = float(ml_dtypes.finfo(dtype.np).eps)
  with np.errstate(all="ignore"):
    for fn, f in UNARY.items():
      got, want = apply(fn, x), f(wide)
      assert got.dtype == dtype.np
      np.testing.assert_allclose(
        got.astype(np.float64), want.astype(dtype.np).astype(np.float64), rtol=eps, atol=0, err_msg=str(fn)
      )
    y = x[::-1].copy()
    for fn, f in {
      BinaryOps.ADD: np.add,
      BinaryOps.SUB: np.subtract,
      BinaryOps.MUL: np.multiply,
      BinaryOps.DIV: np.divide,
      BinaryOps.MAX: np.maximum,
      BinaryOps.MIN: np.minimum,
      BinaryOps.POW: np.power,
      BinaryOps.MOD: np.mod,
      BinaryOps.IDIV: np.floor_divide,
    }.items():
      a, b = (x, y) if fn is not BinaryOps.POW else (np.abs(x), y)
      want = f(a.astype(np.float64), b.astype(np.float64)).astype(dtype.np)
      if fn in (BinaryOps.MOD, BinaryOps.IDIV):  # a rounded quotient may land on the other side of a whole number
        ok = np.isfinite(a.astype(np.float64) / b.astype(np.float64))
        a, b, want = a[ok], b[ok], want[ok]
      np.testing.assert_allclose(
        apply(fn, a, b).astype(np.float64), want.astype(np.float64), rtol=eps, atol=4 * eps, err_msg=str(fn)
      )
  assert apply(UnaryOps.ISNAN, x).tolist() == np.isnan(wide).tolist()


@pytest.mark.parametrize("dtype", dtypes.floats, ids=lambda d: d.name)
def test_max_and_min_give_nan_if_either_is(dtype: object) -> None:
  a, b = np.array([1, math.nan, 2]).astype(dtype.np), np.array([math.nan, 1, 3]).astype(dtype.np)
  for fn in (BinaryOps.MAX, BinaryOps.MIN):
    assert np.isnan(apply(fn, a, b).astype(np.float64)).tolist() == [True, True, False]


def test_narrow_floats_round_after_every_step() -> None:
  one, tiny = np.array([256.0]).astype(ml_dtypes.bfloat16), np.array([1.0]).astype(ml_dtypes.bfloat16)
  assert float(apply(BinaryOps.ADD, one, tiny)[0]) == 256.0  # bfloat16 has 8 bits: 257 rounds to even
  got = apply(BinaryOps.MUL, np.array([1.5]).astype(ml_dtypes.float8_e4m3fn), np.array([1.125]).astype(ml_dtypes.float8_e4m3fn))
  assert float(got[0]) == 1.75  # 1.6875 lies between 1.625 and 1.75: half goes to even


@pytest.mark.parametrize("src", dtypes.numbers, ids=lambda d: d.name)
@pytest.mark.parametrize("dst", dtypes.numbers, ids=lambda d: d.name)
def test_casts(src: object, dst: object) -> None:
  values = [0, 1, 2, 3, 100] if src.kind in "bu" or dst.kind == "u" else [0, 1, -1, 2.75 if src.kind == "f" else 2, -3, -100]
  x = np.array(values).astype(src.np)
  p = Lines()
  a, out = p.buf(1, src), p.buf(0, dst, True)
  g = p.gid(len(values))
  p.store(out, g, p.cast(p.load(a, g), dst) if src is not dst else p.load(a, g))
  got = np.zeros(len(values), dst.np)
  p.run(got, x)
  exact = [float(v) for v in x.astype(np.float64)]
  want = (
    [v != 0 for v in exact]
    if dst.kind == "b"
    else np.array(exact).astype(dst.np)
    if dst.kind == "f"
    else [math.trunc(v) for v in exact]
  )
  assert got.astype(np.float64).tolist() == np.array(want).astype(np.float64).tolist()


def test_bitcast() -> None:
  p = Lines()
  a, out = p.buf(1, F32), p.buf(0, dtypes.uint32, True)
  g = p.gid(3)
  p.store(out, g, p.bitcast(p.load(a, g), dtypes.uint32))
  x, got = np.array([1, -2, math.nan], np.float32), np.zeros(3, np.uint32)
  p.run(got, x)
  assert np.array_equal(got, x.view(np.uint32))


def test_where_takes_a_scalar_condition_for_a_vector() -> None:
  p = Lines()
  a, out = p.buf(1, F32), p.buf(0, F32, True)
  g = p.gid(2)
  at = p.alu(BinaryOps.MUL, g, 2)
  v = p.load(a, at, count=2)
  p.store(out, at, p.add(Ops.ALU, F32.vec(2), (p.alu(BinaryOps.CMPEQ, g, 0), v, p.const(F32, 9.0)), TernaryOps.WHERE))
  got = np.zeros(4, np.float32)
  p.run(got, np.arange(4, dtype=np.float32))
  assert got.tolist() == [0, 1, 9, 9]


def test_erf_known_values() -> None:
  # Abramowitz and Stegun, table 7.1, and the ends
  x = np.array([0.0, 0.02, 0.5, -0.5, 1.0, 1.98, 30.0, math.inf, -math.inf])
  want = np.array([0.0, 0.0225645747, 0.5204998778, -0.5204998778, 0.8427007929, 0.9948920004, 1.0, 1.0, -1.0])
  assert np.abs(erf(x) - want).max() < 6e-11 and erf(np.zeros((0, 3))).shape == (0, 3)
  assert np.isnan(erf(np.array([math.nan])))[0]


def test_threefry_known_answers() -> None:  # Random123's kat_vectors, threefry2x32 20
  def word(hi: int, lo: int) -> int: return hi << 32 | lo
  ctr = np.array([0, word(0xffffffff, 0xffffffff), word(0x85a308d3, 0x243f6a88)], np.uint64)
  key = np.array([0, word(0xffffffff, 0xffffffff), word(0x03707344, 0x13198a2e)], np.uint64)
  want = [word(0x99ba4efe, 0x6b200159), word(0xbb002be7, 0x1cb996fc), word(0x483df7a0, 0xc4923a9c)]
  assert threefry(ctr, key).tolist() == want
  assert apply(BinaryOps.THREEFRY, ctr, key).tolist() == want


# ---- what it refuses

@pytest.mark.parametrize("index, size", [(5, 5), (-1, 5)])
@pytest.mark.parametrize("verb", ["reads", "writes"])
def test_out_of_bounds(index: int, size: int, verb: str) -> None:
  p = Lines()
  out, a = p.buf(0, F32, True), p.buf(1, F32)
  x = p.load(a, index if verb == "reads" else 0)
  p.store(out, index if verb == "writes" else 0, x)
  slot = "param 1 'data1'" if verb == "reads" else "param 0 'data0'"
  with pytest.raises(VerifyError, match=f"kernel 'test' {verb} {slot} at index {index}, but its size is {size}; line"):
    p.run(np.zeros(5, np.float32), np.zeros(5, np.float32))


def test_vector_out_of_bounds() -> None:
  p = Lines()
  out, a = p.buf(0, F32, True), p.buf(1, F32)
  p.store(out, 0, p.load(a, 2, count=4))
  with pytest.raises(VerifyError, match=r"index 2\.\.5, but its size is 5"):
    p.run(np.zeros(4, np.float32), np.zeros(5, np.float32))


@pytest.mark.parametrize("kind", ["local", "private"])
def test_uninitialised(kind: str) -> None:
  p = Lines()
  out = p.buf(0, F32, True)
  m = p.local("m", 4, F32, kind)
  p.store(m, 2, p.const(F32, 1.0))
  p.store(out, 0, p.load(m, 3))
  with pytest.raises(VerifyError, match=f"reads {kind} array 'm' at index 3, which nothing has written"):
    p.run(np.zeros(1, np.float32))


def test_private_array_declared_in_a_loop_starts_anew() -> None:
  p = Lines()
  out = p.buf(0, F32, True)
  i = p.loop(0, 2)
  m = p.local("m", 2, F32, "private")
  p.store(m, i, p.const(F32, 1.0))
  p.store(out, i, p.load(m, 0))
  p.end(i)
  with pytest.raises(VerifyError, match="index 0, which nothing has written"): p.run(np.zeros(2, np.float32))


def test_write_write_race() -> None:
  p = Lines()
  out = p.buf(0, INT, True)
  g = p.gid(4)
  p.store(out, 0, g)
  with pytest.raises(VerifyError, match="writes param 0 'data0' at index 0 with different values in two programs"):
    p.run(np.zeros(4, np.int32))


def test_race_between_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(evaluate, "CHUNK", 1)
  test_write_write_race()


def test_equal_values_in_two_programs_are_no_race() -> None:
  p = Lines()
  out = p.buf(0, INT, True)
  p.gid(4)
  p.store(out, 0, p.const(INT, 3))
  got = np.zeros(1, np.int32)
  p.run(got)
  assert got[0] == 3


def test_read_write_race() -> None:
  p = Lines()
  a = p.buf(0, F32, True)
  g = p.gid(4)
  p.store(a, g, p.load(a, p.alu(BinaryOps.SUB, 3, g)))
  with pytest.raises(VerifyError, match="in one program and reads it in another: a race"): p.run(np.arange(4, dtype=np.float32))


def test_race_through_one_buffer_under_two_params() -> None:
  p = Lines()
  out, a = p.buf(0, F32, True), p.buf(1, F32)
  g = p.gid(4)
  p.store(out, g, p.load(a, p.alu(BinaryOps.SUB, 3, g)))
  x = np.arange(4, dtype=np.float32)
  with pytest.raises(VerifyError, match="a race"): p.run(x, x)


def test_missing_barrier() -> None:
  p = Lines()
  out = p.buf(0, INT, True)
  shared = p.local("tile", 4, INT)
  l = p.lid(4)
  p.store(shared, l, l)
  p.store(out, l, p.load(shared, p.alu(BinaryOps.SUB, 3, l)))
  with pytest.raises(VerifyError, match="reads local array 'tile' .* a race"): p.run(np.zeros(4, np.int32))


def test_launch_that_disagrees() -> None:
  p = Lines()
  out = p.buf(0, INT, True)
  g = p.gid(4)
  p.store(out, g, g)
  spec = p.spec()
  with pytest.raises(VerifyError, match="says 4 programs in dimension 0, the launch has 5"):
    NumpyDevice().compile([ProgramSpec("k", KernelSource(""), (5, 1, 1), (1, 1, 1), 1, spec.uops)])
  program, = NumpyDevice().compile([spec])
  with pytest.raises(VerifyError, match="takes 1 buffers, got 2"): program([np.zeros(16, np.uint8)] * 2)


# ---- the device

def test_device_memory() -> None:
  d = NumpyDevice()
  raw = d.alloc(40)
  assert raw.nbytes == 40 and raw.ctypes.data % 64 == 0
  assert np.isnan(d.copyout(raw, 40).view(np.float32)).all()  # nothing that was never written looks like a number
  data = np.arange(40, dtype=np.uint8)
  d.copyin(raw, data)
  out = d.copyout(raw, 40)
  raw[:] = 0
  assert np.array_equal(out, data)


def test_wait_gives_seconds() -> None:
  program, = NumpyDevice().compile([dot().spec()])
  bufs = [np.zeros(16, np.uint8) for _ in range(3)]
  assert program(bufs) is None
  assert program(bufs, wait=True) > 0
