"""The text of rendered OpenCL C: what a reader sees with DEBUG=4. Needs no device."""
from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest

from ntgrad.backends import render
from ntgrad.backends.opencl.prelude import LIBRARY, OpenCLLibrary, Type
from ntgrad.backends.opencl.renderer import OpenCLRenderer
from ntgrad.codegen.ir.config import config
from ntgrad.codegen.ir.dtype import DType, dtypes
from ntgrad.codegen.ir.errors import CompileError
from ntgrad.codegen.ir.target import Target
from ntgrad.codegen.ir.uop import BinaryOps, Ops, UnaryOps, UOp, toposort
from support.machines import MACHINES
from support.opencl_helpers import has, source

I32, F32 = dtypes.int32, dtypes.float32


def const(x: Any, dtype: DType = I32) -> UOp: return UOp.const(dtype, x)
def param(slot: int, dtype: DType, written: bool = False) -> UOp:
  return UOp(Ops.DEFINE_GLOBAL, dtype, (), (slot, f"data{slot}", written))


def load(buffer: UOp, index: UOp, n: int = 1, *gate: UOp) -> UOp:
  return UOp(Ops.LOAD, buffer.dtype.vec(n), (buffer, index, *gate))


def store(*src: UOp, arg: Any = None) -> UOp: return UOp(Ops.STORE, src[2].dtype, src, arg)
def add(a: UOp, b: UOp, **k: Any) -> UOp: return UOp.alu(BinaryOps.ADD, a, b, **k)
def mul(a: UOp, b: UOp, **k: Any) -> UOp: return UOp.alu(BinaryOps.MUL, a, b, **k)


def text(*roots: UOp) -> str:
  """The kernel of a straight program, without its first line."""
  return OpenCLRenderer().render("k", toposort(roots)).text.split("reqd_work_group_size(1, 1, 1)))\n")[1]


def body(*roots: UOp) -> list[str]: return [line.strip() for line in text(*roots).split("\n")[1:-2]]


def test_dot_product() -> None:
  out, a, b = param(0, I32, True), param(1, I32), param(2, I32)
  acc, loop = UOp(Ops.DEFINE_ACC, I32, (), 0), UOp(Ops.LOOP, I32, (const(0), const(4)))
  x, y = load(a, loop), load(b, loop)
  m = mul(x, y)
  s = add(m, acc)
  phi = UOp(Ops.PHI, I32, (acc, s, loop))
  uops = [out, a, b, acc, const(0), const(4), loop, x, y, m, s, phi, UOp(Ops.ENDLOOP, I32, (loop,)), store(out, const(0), phi)]
  assert render("opencl", "dot", uops) == """\
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void dot(__global int* restrict data0, __global const int* restrict data1, __global const int* restrict data2) {
  int acc0 = 0;
  for (int i0 = 0; i0 < 4; i0++) {
    int val0 = data1[i0];
    int val1 = data2[i0];
    acc0 = val0*val1 + acc0;
  }
  data0[0] = acc0;
}
"""


def test_vectors() -> None:
  g = UOp(Ops.SPECIAL, I32, (), ("g", 0, 16))
  at = mul(g, const(8))
  x = load(param(1, F32), at, 8)
  value = add(mul(x, x), const(1.0, F32), dtype=x.dtype)
  assert OpenCLRenderer().render("k", toposort([store(param(0, F32, True), at, value, arg="nt")])).text == """\
typedef float8 float8u __attribute__((aligned(4)));

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void k(__global float* restrict data0, __global const float* restrict data1) {
  int gidx0 = get_group_id(0);
  int alu0 = gidx0*8;
  float8 val0 = *(__global const float8u*)(data1 + alu0);
  __builtin_nontemporal_store(val0*val0 + 1.0f, (__global float8*)(data0 + alu0));
}
"""


def test_streaming_stores_need_a_certain_alignment() -> None:
  g = UOp(Ops.SPECIAL, I32, (), ("g", 0, 16))
  x = load(param(1, F32), const(0), 8)
  for index, streams in ((mul(g, const(8)), True), (mul(g, const(4)), False), (add(mul(g, const(8)), const(1)), False),
                         (add(mul(g, const(24)), const(16)), True)):
    assert ("nontemporal" in text(store(param(0, F32, True), index, x, arg="nt"))) is streams


def test_params() -> None:
  """const and restrict say what is read and written; slots that no one uses keep their place."""
  both = param(2, F32, True)
  line = text(store(both, const(0), add(load(both, const(0)), load(param(1, dtypes.float16), const(0)).cast(F32)))).split("\n")[0]
  assert line == "void k(__global const uchar* unused0, __global const ushort* restrict data1, __global float* data2) {"
  lines = text(store(param(7, F32, True), const(0), const(1.0, F32))).split("\n")
  assert lines[:2] == ["void k(", "    __global const uchar* unused0,"] and lines[8] == "    __global float* restrict data7) {"


def test_parentheses() -> None:
  x, y, z = (load(param(i, dtypes.uint32), const(0)) for i in (1, 2, 3))
  i, j = (load(param(i, I32), const(0)) for i in (1, 2))
  sub, shl, bit = (partial(UOp.alu, f) for f in (BinaryOps.SUB, BinaryOps.SHL, BinaryOps.AND))
  for value, want in (
    (mul(add(x, y), z), "(val0 + val1)*val2"),
    (add(x, mul(y, z)), "val0 + val1*val2"),
    (sub(x, sub(y, z)), "val0 - (val1 - val2)"),
    (sub(sub(x, y), z), "val0 - val1 - val2"),
    (sub(i, const(-3)), "(int)((uint)val0 - (-3))"),
    (shl(add(x, y), const(3, dtypes.uint32)), "(val0 + val1) << 3u"),
    (mul(add(i, j), sub(i, j)), "(int)(((uint)val0 + val1)*((uint)val0 - val1))"),
    (add(UOp.alu(UnaryOps.NEG, add(i, j)), j), "(int)(-((uint)val0 + val1) + val1)"),
    (UOp.alu(UnaryOps.NEG, UOp.alu(UnaryOps.NEG, i)), "(int)(-(-(uint)val0))"),
    (bit(add(x, y), z), "(val0 + val1) & val2"),
    (bit(bit(x, y), z), "val0 & val1 & val2"),
  ):
    if value.dtype is I32: value, want = value.cast(dtypes.int64), f"(long){want}"   # where an overflow would show
    assert body(store(param(0, value.dtype, True), const(0), value))[-1] == f"data0[0] = {want};"


def test_where_and_comparisons_read_as_c() -> None:
  x, y = load(param(1, F32), const(0)), load(param(2, F32), const(0))
  out = param(0, F32, True)
  value = UOp.alu(BinaryOps.AND, UOp.alu(BinaryOps.CMPLT, x, y), UOp.alu(BinaryOps.CMPNE, x, const(0.0, F32))).where(
    add(x, y), const(1.0, F32)
  )
  assert body(store(out, const(0), value))[-1] == "data0[0] = val0 < val1 && val0 != 0.0f ? val0 + val1 : 1.0f;"


def test_gates() -> None:
  g = UOp(Ops.SPECIAL, I32, (), ("g", 0, 16))
  gate = UOp.alu(BinaryOps.CMPLT, g, const(9))
  lines = body(store(param(0, F32, True), g, load(param(1, F32), g, 1, gate, const(2.0, F32)), gate))
  assert lines == ["int gidx0 = get_group_id(0);", "bool alu0 = gidx0 < 9;", "float val0 = alu0 ? data1[gidx0] : 2.0f;",
                   "if (alu0) data0[gidx0] = val0;"]


def test_narrow_floats_round_once() -> None:
  """A CAST before its STORE leaves the rounding to the store."""
  x = load(param(1, F32), const(0))
  assert (
    body(store(param(0, dtypes.float16, True), const(0), x.cast(dtypes.float16)))[-1] == "data0[0] = float_to_half_float(val0);"
  )


@pytest.mark.parametrize("n", [2, 40])
def test_roundings_are_left_to_the_stores(n: int) -> None:
  """A CAST that is stored, twice or after a line of its own, is not rounded before; one that is computed with is."""
  sums = load(param(1, F32), const(0))
  for i in range(n): sums = add(sums, load(param(1, F32), const(i)))
  half = sums.cast(dtypes.float16)
  stores = [store(param(i, dtypes.float16, True), const(0), half) for i in (0, 2)]
  rendered = OpenCLRenderer().render("k", toposort(stores)).text
  assert "half_to_float" not in rendered and rendered.count(" = float_to_half_float(cast0);") == 2
  other = store(param(3, F32, True), const(0), UOp.alu(UnaryOps.NEG, half.cast(F32)))
  assert " cast0 = half_to_float_ushort(float_to_half_float(" in text(*stores, other)


def test_bits_of_a_condition_are_an_operand() -> None:
  x, y = load(param(1, F32), const(0)), load(param(2, F32), const(0))
  bits = UOp(Ops.BITCAST, dtypes.uint8, (UOp.alu(BinaryOps.CMPLT, x, y),))
  lines = body(store(param(0, dtypes.uint8, True), const(0), add(bits, const(1, dtypes.uint8))))
  assert lines[-1] == "data0[0] = (uchar)((val0 < val1) + 1);"


def test_a_scalar_is_converted_before_it_is_widened() -> None:
  x = load(param(1, I32), const(0))
  for dtype, want in ((F32, "(float4)((float)val0)"), (dtypes.bool, "(int4)(-(val0 != 0))")):
    assert want in text(store(param(0, dtype, True), const(0), UOp(Ops.CAST, dtype.vec(4), (x,))))


def test_assignments_stay_in_their_block() -> None:
  """What a PHI assigns in one branch is written there, not in the next."""
  out, x, loop = param(0, I32, True), param(1, I32), UOp(Ops.LOOP, I32, (const(0), const(4)))
  a, b = UOp(Ops.DEFINE_ACC, I32, (), 0), UOp(Ops.DEFINE_ACC, I32, (), 1)
  v = load(x, loop)
  cond = UOp.alu(BinaryOps.CMPLT, v, const(2))
  block = UOp(Ops.IF, dtypes.bool, (cond,))
  more = UOp(Ops.ELSE, dtypes.bool, (block,))
  phi, other = UOp(Ops.PHI, I32, (a, v, loop)), UOp(Ops.PHI, I32, (b, v, loop))
  ends = [UOp(Ops.ENDIF, dtypes.bool, (block,)), UOp(Ops.ENDLOOP, I32, (loop,))]
  uops = [out, x, const(0), const(2), const(4), a, b, loop, v, cond, block, phi, more, other, *ends, store(out, const(0), phi)]
  lines = [line.strip() for line in OpenCLRenderer().render("k", uops).text.split("\n")]
  at = lines.index("} else {")
  assert lines[at - 1:at + 3] == ["acc0 = val0;", "} else {", "acc1 = val0;", "}"]


def test_division_is_plain_where_ranges_allow() -> None:
  out, g, x = param(0, I32, True), UOp(Ops.SPECIAL, I32, (), ("g", 0, 100)), load(param(1, I32), const(0))
  assert body(store(out, g, UOp.alu(BinaryOps.IDIV, g, const(7))))[-1] == "data0[gidx0] = gidx0/7;"
  assert body(store(out, const(0), UOp.alu(BinaryOps.MOD, x, const(7))))[-1] == "data0[0] = mod_int(val0, 7);"


def test_signed_ints_wrap_where_that_shows() -> None:
  """C leaves open what an overflow gives. A sum that is only stored is left plain: its low bits are right. What is read again, or
  on as something else, is not; and what fits needs nothing."""
  out, x, y = param(0, I32, True), load(param(1, I32), const(0)), load(param(2, I32), const(0))
  assert body(store(out, const(0), add(x, y)))[-1] == "data0[0] = val0 + val1;"
  wide = param(0, dtypes.int64, True)
  assert body(store(wide, const(0), add(x, y).cast(dtypes.int64)))[-1] == "data0[0] = (long)(int)((uint)val0 + val1);"
  assert body(store(wide, const(0), add(x.cast(dtypes.int64), y.cast(dtypes.int64))))[-1] == "data0[0] = (long)val0 + (long)val1;"
  small = load(param(1, dtypes.int8), const(0)), load(param(2, dtypes.int8), const(0))
  assert body(store(param(0, dtypes.int8, True), const(0), add(*small)))[-1] == "data0[0] = (char)(val0 + val1);"
  kept = UOp(Ops.DEFINE_LOCAL, I32, (), ("kept", 1, "private"))   # a running sum of int32 that goes on as int64
  stored = store(kept, const(0), add(x, y))
  read = UOp.unique(Ops.LOAD, I32, (kept, const(0)))
  text = body(store(wide, const(0), read.cast(dtypes.int64)), stored)
  assert text[-1] == "kept[0] = (int)((uint)val1 + val2);", text


@pytest.mark.parametrize(
  "dtype, value, want",
  [
    (F32, 0.1, "0.1f"),
    (F32, 1.0, "1.0f"),
    (F32, float("inf"), "INFINITY"),
    (F32, float("-inf"), "-INFINITY"),
    (F32, float("nan"), "NAN"),
    (F32, -0.0, "-0.0f"),
    (F32, 1e10, "1e+10f"),
    (dtypes.float64, 0.1, "0.1"),
    (F32, 1e40, "INFINITY"),
    (dtypes.float16, 0.1, "0.099975586f"),
    (I32, -2147483648, "(-2147483647 - 1)"),
    (I32, -5, "-5"),
    (dtypes.int64, -(1 << 63), "(-9223372036854775807L - 1)"),
    (dtypes.uint32, 4294967295, "4294967295u"),
    (dtypes.uint64, (1 << 64) - 1, "18446744073709551615uL"),
    (dtypes.bool, True, "true"),
    (dtypes.int8, -128, "-128"),
  ],
)
def test_literals(dtype: DType, value: Any, want: str) -> None:
  assert OpenCLRenderer().constant(dtype, value)[0] == want


def test_helpers_come_before_what_calls_them() -> None:
  x = load(param(1, F32), const(0), 16)
  rendered = OpenCLRenderer().render("k", toposort([store(param(0, F32, True), const(0), UOp.alu(UnaryOps.ERF, x))])).text
  order = [rendered.index(f"{name}_float16(float16 x) {{") for name in ("abs", "exp", "erf")] + [rendered.index("__kernel")]
  assert order == sorted(order)
  assert [n for n, _ in source("tan", "float")] == ["abs_float", "sin_float", "cos_float", "tan_float"]


def test_names_for_what_loops_would_repeat() -> None:
  """A value from outside a loop is a variable, not computed anew each time round."""
  out, x = param(0, F32, True), load(param(1, F32), const(0))
  y, loop = add(x, x), UOp(Ops.LOOP, I32, (const(0), const(4)))
  uops = [out, *toposort([y]), const(4), loop, store(out, loop, y), UOp(Ops.ENDLOOP, I32, (loop,))]
  assert (
    "  float alu0 = val0 + val0;\n  for (int i0 = 0; i0 < 4; i0++) {\n    data0[i0] = alu0;\n  }\n"
    in OpenCLRenderer().render("k", uops).text
  )


def test_refusals() -> None:
  out = param(0, F32, True)
  with pytest.raises(CompileError, match="no vectors of 5"): text(store(out, const(0), load(param(1, F32), const(0), 5)))
  with pytest.raises(CompileError, match="lowered"):
    text(store(out, const(0), load(param(1, F32), UOp(Ops.SPECIAL, dtypes.index, (), ("g", 0, 4)))))
  with pytest.raises(CompileError, match="4,000,000 bytes of local arrays"):
    text(store(out, const(0), load(UOp(Ops.DEFINE_LOCAL, F32, (), ("big", 1_000_000, "local")), const(0))))
  with pytest.raises(CompileError, match="takes floats"):
    text(store(param(0, I32, True), const(0), UOp.alu(UnaryOps.EXP, const(1))))


@pytest.mark.parametrize("base", ["float", "double"])
@pytest.mark.parametrize("name", LIBRARY)
def test_functions_take_vectors_that_registers_hold(name: str, base: str) -> None:
  """The device's own are called at 128 bits, at 256 where the compiler has AVX, and never wider."""
  for n in (1, 2, 3, 4, 8, 16):
    t = Type(base, n)
    assert (OpenCLLibrary(native=True).builtin(name, t) == name) is (t.bits_wide <= 128 or n == 1)
    if t.bits_wide <= 128 or has(name, t): continue
    own = source(name, str(t))[-1][1]
    plain, guarded = rf"\b{name}\(", own.startswith("#ifdef __AVX__\n")
    assert guarded is (t.bits_wide == 256)
    if guarded: assert len(re.findall(plain, own.split("#else")[0])) == 1
    elif t.bits_wide > 256: assert not re.search(plain, own)


@pytest.mark.parametrize("machine", MACHINES)
def test_default_target_is_what_the_settings_say(machine: str) -> None:
  with config(**MACHINES[machine]): target = OpenCLRenderer().target
  assert (target.lanes*32, target.cores) == tuple(MACHINES[machine].values())


def test_gpus_do_not_fuse_what_is_no_sum() -> None:
  """A GPU's compiler makes x*2 + 1 one rounding, unless it is told not to."""
  out, x = param(0, F32, True), param(1, F32)
  uops = toposort((store(out, const(0), add(mul(load(x, const(0)), const(2.0, F32)), const(1.0, F32))),))
  gpu = OpenCLRenderer(Target("opencl", locals=True))
  assert "FP_CONTRACT OFF" in gpu.render("k", uops).text and "FP_CONTRACT" not in OpenCLRenderer().render("k", uops).text
