"""Metal's text, compared with what tinygrad prints for the same kernels; and what it computes, taken for C++
(tests/support/metal.py)."""
from __future__ import annotations

import re

import numpy as np
import pytest

from ntgrad import Tensor
from ntgrad.backends import render, renderer
from ntgrad.backends.base import ProgramSpec
from ntgrad.backends.metal import NAMES, MetalRenderer
from ntgrad.backends.numpy.device import NumpyDevice
from ntgrad.codegen.choose.cpu import optimize
from ntgrad.codegen.ir.dtype import DType, dtypes
from ntgrad.codegen.ir.errors import CompileError
from ntgrad.codegen.ir.uop import BinaryOps, Ops, UnaryOps, UOp, toposort
from ntgrad.codegen.linearizer import Linearizer
from ntgrad.schedule import create_schedule
from support.functions import functions
from support.kernels import GRAPHS, contents, kernels, launch, spec
from support.linear import Lines, uops_to_cstyle
from support.marks import long_half
from support.metal import MetalDevice, needs_cxx

# what makes the text a whole source; tinygrad's notes leave it out
HEADER = "#include <metal_stdlib>\nusing namespace metal;\n\n"
SIGNATURE = ("kernel void r_4(device int* data0, const device int* data1, const device int* data2, "
             "uint3 gid [[threadgroup_position_in_grid]], uint3 lid [[thread_position_in_threadgroup]]) {\n")
# as tinygrad printed it
LOOP = """\
  int acc0 = 0;
  for (int ridx0 = 0; ridx0 < 4; ridx0++) {
    int val0 = *(data1+ridx0);
    int val1 = *(data2+ridx0);
    acc0 = ((val0*val1)+acc0);
  }
  *(data0+0) = acc0;
}
"""
# tinygrad has an accumulator that nothing is added to before, reads data1 first, and adds from the last product to the first;
# ours has no accumulator without a loop, reads where a value is needed, and adds in the order of the loop, which gives the same
# bits as the loop
UNROLLED = """\
  int val0 = *(data1+0);
  int val1 = *(data2+0);
  int val2 = *(data1+1);
  int val3 = *(data2+1);
  int val4 = *(data1+2);
  int val5 = *(data2+2);
  int val6 = *(data1+3);
  int val7 = *(data2+3);
  *(data0+0) = ((val0*val1)+(val2*val3)+(val4*val5)+(val6*val7));
}
"""


@pytest.mark.parametrize("upcast", [False, True], ids=["loop", "upcast"])
def test_dot_product(upcast: bool, capsys: pytest.CaptureFixture[str]) -> None:
  """The script of the notes, with our imports."""
  a = Tensor([1, 2, 3, 4]).realize()
  b = Tensor([5, 6, 7, 8]).realize()
  c = a.dot(b)
  s = create_schedule([c.lazydata])[0]
  k = Linearizer(*s.ast)
  if upcast: k.upcast()
  k.linearize()
  capsys.readouterr()
  k.uops.print()
  assert ("UOps.LOOP " in capsys.readouterr().out) is not upcast
  text = uops_to_cstyle(MetalRenderer(), "r_4", k.uops.uops)
  assert text == HEADER + SIGNATURE + (UNROLLED if upcast else LOOP)
  assert text == render("metal", "r_4", k.uops)


def lines(*statements: str) -> str: return "".join(f"  {s}\n" for s in statements) + "}\n"


def test_groups() -> None:
  """Places in the grid and in the group, an array that a group shares, a barrier."""
  p = Lines()
  out, x, shared = p.buf(0, dtypes.float16, True), p.buf(1, dtypes.float32), p.local("shared", 32, dtypes.float32)
  g, l = p.gid(8, 1), p.lid(32)
  p.store(shared, l, p.load(x, p.alu(BinaryOps.ADD, p.alu(BinaryOps.MUL, g, 32), l)))
  p.barrier()
  p.store(
    out, p.alu(BinaryOps.ADD, g, 1), p.cast(p.alu(UnaryOps.EXP, p.load(shared, p.alu(BinaryOps.SUB, 31, l))), dtypes.float16)
  )
  assert render("metal", "k", p.uops).endswith(
    lines(
      "threadgroup float shared[32];",
      "int gidx1 = gid.y;",
      "int lidx0 = lid.x;",
      "float val0 = *(data1+(gidx1*32)+lidx0);",
      "*(shared+lidx0) = val0;",
      "threadgroup_barrier(mem_flags::mem_threadgroup);",
      "float val1 = *(shared+31-lidx0);",
      "*(data0+gidx1+1) = half(exp(val1));",
    )
  )


def test_conditions_and_bits() -> None:
  p = Lines()
  x, y = p.load(p.buf(1, dtypes.float32), 0), p.load(p.buf(2, dtypes.float32), 0)
  less = p.alu(BinaryOps.AND, p.alu(BinaryOps.CMPLT, x, y), p.alu(BinaryOps.CMPNE, x, 0.0))
  value = less.where(p.alu(BinaryOps.SUB, x, p.alu(BinaryOps.SUB, y, x)), p.alu(BinaryOps.ADD, y, -1.0))
  uops = toposort(
    [UOp(Ops.STORE, dtypes.bool, (p.buf(0, dtypes.int32, True), p._node(0), UOp(Ops.BITCAST, dtypes.int32, (value,))))]
  )
  assert render("metal", "k", uops).endswith(
    "  *(data0+0) = as_type<int>((((val0<val1)&&(val0!=0.0f))?(val0-(val1-val0)):(val1+(-1.0f))));\n}\n"
  )


@pytest.mark.parametrize(
  "dtype, how, ok",
  [
    (dtypes.int32, "add", True),
    (dtypes.uint32, "max", True),
    (dtypes.uint32, "xor", True),
    (dtypes.float32, "add", True),
    (dtypes.float32, "max", False),
    (dtypes.int64, "add", False),
    (dtypes.float16, "add", False),
  ],
)
def test_atomics(dtype: DType, how: str, ok: bool) -> None:
  p = Lines()
  p.add(Ops.ATOMIC, dtype, (p.buf(0, dtype, True), p.gid(4), p.const(dtype, 1)), how)
  if ok: assert f"atomic_fetch_{how}_explicit((device atomic_{dtype.short}*)(data0+gidx0), 1" in render("metal", "k", p.uops)
  else:
    with pytest.raises(CompileError, match=f"Metal has no atomic {how} of dtypes.{dtype.short}"): render("metal", "k", p.uops)


def test_no_double() -> None:
  p = Lines()
  p.store(p.buf(0, dtypes.float32, True), 0, p.cast(p.load(p.buf(1, dtypes.float64), 0), dtypes.float32))
  with pytest.raises(CompileError, match="Metal has no dtype dtypes.double; dtypes: bool, int8,"): render("metal", "k", p.uops)


def test_ints_are_rounded_once_without_double() -> None:
  """From int32 to bfloat16 by way of a float rounded to odd, which Metal computes in integers."""
  p = Lines()
  p.store(p.buf(0, dtypes.bfloat16, True), 0, p.cast(p.load(p.buf(1, dtypes.int32), 0), dtypes.bfloat16))
  text = render("metal", "k", p.uops)
  assert "double" not in text and "float_to_bfloat16_float(to_odd_int(val0))" in text


@pytest.mark.parametrize("dtype", dtypes.numbers, ids=lambda d: d.name)
def test_every_function_has_a_spelling(dtype: DType) -> None:
  """No helper calls what Metal has not: the names in the text are types, Metal's functions, or helpers that stand before."""
  if dtype is dtypes.float64: pytest.skip("Metal has no double")
  known = {*NAMES.values(), *"if for return bool char uchar short ushort int uint long ulong half float".split()}
  for fn in (*UnaryOps, *BinaryOps):
    p = Lines()
    x, y = p.load(p.buf(1, dtype), 0), p.load(p.buf(2, dtype), 0)
    try:
      value = p.alu(fn, *((x,) if isinstance(fn, UnaryOps) else (x, y)))
      p.store(p.buf(0, value.dtype, True), 0, value)
      text = render("metal", "k", p.uops)
    except (CompileError, TypeError, ValueError): continue
    defined = set(re.findall(r"static \w+ (\w+)\(", text)) | {"k"}
    called = set(re.findall(r"\b([a-z_]\w*)\(", text))
    assert called <= known | defined, (fn, called - known - defined)
    assert "@" not in text and "convertvector" not in text and not re.search(r"\bas_(?!type<)", text), text


def test_work_items() -> None:
  """A kernel of tensor code with the Opts of the target has groups."""
  item = create_schedule([(Tensor.empty(64, 64) + 1).sqrt()])[-1]
  assert item.ast is not None
  k = Linearizer(item.ast, MetalRenderer.target).optimize().linearize()
  text = render("metal", "k", k.uops)
  assert "lid.x" in text and "sqrt(" in text


# ---- as C++

@needs_cxx
@pytest.mark.parametrize("name", long_half(GRAPHS))
def test_kernels(name: str) -> None:
  """Kernels of tensor code with the Opts of the target, against the oracle."""
  device = MetalDevice()
  for k in kernels(name):
    data = contents(k, np.random.default_rng(0), True)
    want, = launch(NumpyDevice(), [spec(k, "k")], k, data)
    target = device.renderer.target
    got, = launch(device, [spec(optimize(k, target), "fast", target)], k, data)
    for g, w in zip(got, want): np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), rtol=1e-5, atol=1e-6)


@needs_cxx
@pytest.mark.parametrize("dtype", [d for d in dtypes.numbers if d is not dtypes.float64], ids=lambda d: d.name)
def test_functions(dtype: DType) -> None: functions(MetalDevice(), dtype)


@needs_cxx
def test_groups_wait() -> None:
  """Work-items that read what others of the group have written."""
  p = Lines()
  shared, g, l = p.local("shared", 16, dtypes.float32), p.gid(3), p.lid(16)
  at = p.alu(BinaryOps.ADD, p.alu(BinaryOps.MUL, g, 16), l)
  p.store(shared, l, p.load(p.buf(1, dtypes.float32), at))
  p.barrier()
  p.store(p.buf(0, dtypes.float32, True), at, p.load(shared, p.alu(BinaryOps.SUB, 15, l)))
  x, out = np.arange(48, dtype=np.float32), np.zeros(48, np.float32)
  program, = MetalDevice().compile([ProgramSpec("k", renderer("metal").render("k", p.uops), (3,), (16,), 2)])
  program([out.view(np.uint8), x.view(np.uint8)])
  np.testing.assert_array_equal(out.reshape(3, 16), x.reshape(3, 16)[:, ::-1])


@needs_cxx
@pytest.mark.parametrize("how, want", [("add", 6), ("max", 3), ("min", 0)])
def test_atomics_add_up(how: str, want: int) -> None:
  p = Lines()
  p.add(Ops.ATOMIC, dtypes.int32, (p.buf(0, dtypes.int32, True), p._node(0), p.gid(4)), how)
  out = np.zeros(1, np.int32)
  program, = MetalDevice().compile([ProgramSpec("k", renderer("metal").render("k", p.uops), (4,), (1,), 1)])
  program([out.view(np.uint8)])
  assert out[0] == want
