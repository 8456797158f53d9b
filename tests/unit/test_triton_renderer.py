"""What Triton source looks like for small cases, and what it refuses. Needs no triton."""
from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from ntgrad import Tensor
from ntgrad.backends import render
from ntgrad.backends.cuda.helpers import HELPERS, with_called
from ntgrad.backends.cuda.renderer import TritonRenderer, signature
from ntgrad.codegen import pipeline
from ntgrad.codegen.ir.config import config
from ntgrad.codegen.ir.dtype import DType, dtypes
from ntgrad.codegen.ir.errors import CompileError
from ntgrad.codegen.ir.uop import BinaryOps, Ops, TernaryOps, UnaryOps, UOp
from ntgrad.codegen.linearizer import Linearizer
from ntgrad.schedule import create_schedule, schedule_graph
from support.linear import INT, Lines, dot
from support.triton_kernels import kernels, lines

F, U8 = dtypes.float32, dtypes.uint8


def body(p: Lines, renderer: TritonRenderer | None = None) -> str:
  """The lines of the kernel, without what is before them."""
  source = (renderer or TritonRenderer()).render("k", p.uops).text
  return "\n".join(line[2:] for line in source[source.index("def k("):].splitlines()[1:])


def stored(dtype: DType, *sources: DType) -> tuple[Lines, UOp, list[UOp]]:
  """A program that loads a value of each dtype; what it is to store comes then."""
  p = Lines()
  out = p.buf(0, dtype, True)
  return p, out, [p.load(p.buf(i + 1, d), 0) for i, d in enumerate(sources)]


def value(fn: object, dtype: DType, *sources: DType | float) -> str:
  """How ``fn`` of loaded values and constants reads."""
  p, out, xs = stored(dtype, *[s for s in sources if isinstance(s, DType)])
  rest = iter(xs)
  p.store(out, 0, p.alu(fn, *[next(rest) if isinstance(s, DType) else s for s in sources]))
  return body(p).splitlines()[-1].removeprefix("tl.store(data0, ")[:-1]


def test_dot_product() -> None:
  assert body(dot()) == """\
acc0 = tl.full((), 0, tl.int32)
for i0 in range(0, 4):
  val0 = tl.load(data1 + i0)
  val1 = tl.load(data2 + i0)
  acc0 = val0*val1 + acc0
tl.store(data0, acc0)"""


def test_element_numbers_of_two_dtypes() -> None:
  """An axis has one name; what is of another dtype is made of it."""
  p = Lines()
  out = p.buf(0, dtypes.int64, True)
  narrow, wide = (p.add(Ops.RANGE, d, (), (0, 12)) for d in (INT, dtypes.int64))
  p.store(out, narrow, p.alu(BinaryOps.MUL, wide, wide))
  assert body(p) == """\
r0 = tl.arange(0, 16)
m0 = r0 < 12
tl.store(data0 + r0, r0.to(tl.int64)*r0.to(tl.int64), mask=m0)"""


def test_by_hand_as_the_design_has_it() -> None:
  a, b = Tensor([1, 2, 3, 4]).realize(), Tensor([5, 6, 7, 8]).realize()
  k = Linearizer(create_schedule([a.dot(b)])[-1].ast)
  k.upcast()
  k.linearize()
  assert "tl.store(data0, val0*val1 + val2*val3 + val4*val5 + val6*val7)" in render("triton", "dot", k.uops)


@pytest.mark.parametrize(
  "text, args",
  [
    ("val0 + 1.5", (BinaryOps.ADD, F, F, 1.5)),
    ("val0 + (-1.5)", (BinaryOps.ADD, F, F, -1.5)),
    ("tl.div_rn(1.0, val0)", (UnaryOps.RECIP, F, F)),
    ("val0*-1.0", (UnaryOps.NEG, F, F)),
    ("-val0", (UnaryOps.NEG, INT, INT)),
    ("_floor_div(val0, val1)", (BinaryOps.IDIV, INT, INT, INT)),
    ("_floor_mod(val0, tl.full((), 3, tl.int32))", (BinaryOps.MOD, INT, INT, 3)),
    ("_unsigned_div(val0, val1)", (BinaryOps.IDIV, U8, U8, U8)),
    ("tl.maximum(val0, val1, propagate_nan=tl.PropagateNan.ALL)", (BinaryOps.MAX, F, F, F)),
    ("tl.maximum(val0, 0)", (BinaryOps.MAX, INT, INT, 0)),
    ("libdevice.exp(val0)", (UnaryOps.EXP, F, F)),
    ("tl.sqrt_rn(val0)", (UnaryOps.SQRT, F, F)),
    ("tl.sqrt(val0)", (UnaryOps.SQRT, dtypes.float64, dtypes.float64)),
    ("libdevice.pow(val0, tl.full((), 2.5, tl.float32))", (BinaryOps.POW, F, F, 2.5)),
    ("~val0", (UnaryOps.NOT, INT, INT)),
    ("val0 << 2", (BinaryOps.SHL, INT, INT, 2)),
    ("_threefry(val0, val1)", (BinaryOps.THREEFRY, dtypes.uint64, dtypes.uint64, dtypes.uint64)),
    (
      "(val0.to(tl.float32) + val1.to(tl.float32)).to(tl.float16)",
      (BinaryOps.ADD, dtypes.float16, dtypes.float16, dtypes.float16),
    ),
    ("_to_e4m3(_from_e4m3(val0)*2.0)", (BinaryOps.MUL, dtypes.float8_e4m3, dtypes.float8_e4m3, 2.0)),
    ("(val0 | val1).to(tl.int8)", (BinaryOps.ADD, dtypes.bool, dtypes.bool, dtypes.bool)),
    ("tl.where(val0, val1, 0.0)", (TernaryOps.WHERE, F, dtypes.bool, F, 0.0)),
  ],
  ids=lambda x: x if isinstance(x, str) else "",
)
def test_values(text: str, args: tuple[object, ...]) -> None:
  fn, dtype, *sources = args
  assert value(fn, dtype, *sources) == text  # type: ignore[arg-type]


def test_parallel_assignment() -> None:
  p = Lines()
  out = p.buf(0, INT, True)
  a, b = p.acc(INT, 0), p.acc(INT, 1)
  i = p.loop(0, 9)
  total = p.alu(BinaryOps.ADD, a, b)
  last = p.phi(a, b, i)
  p.phi(b, total, i)
  p.end(i)
  p.store(out, 0, last)
  assert "  alu0 = acc0 + acc1\n  acc0 = acc1\n  acc1 = alu0\n" in body(p)


def test_a_copy_of_narrow_floats_does_not_widen_them() -> None:
  p, out, (x,) = stored(dtypes.bfloat16, dtypes.bfloat16)
  p.store(out, 0, p.alu(TernaryOps.WHERE, p.const(dtypes.bool, True), x, p.const(dtypes.bfloat16, 1.0)))
  assert "float32" not in body(p)


def test_long_sorts_have_more_warps_where_cores_idle() -> None:
  def warps(rows: int, n: int) -> int:
    target = TritonRenderer().target
    items = schedule_graph([Tensor.empty(rows, n).sort(-1)[0].lazydata], target)[1]
    kernel = next(i.ast for i in items if i.ast is not None and any(u.op is Ops.SORTED for u in i.ast.nodes))
    parts = pipeline.run_passes(pipeline.prepare(kernel, target, "k"), target, "opts", "widths", "k")
    return dict(TritonRenderer().render("k", parts).options)["num_warps"]
  assert [warps(*s) for s in ((1, 8192), (100, 8192), (4096, 8192), (1, 2048))] == [8, 8, 4, 2]


def test_tf32_only_when_asked() -> None:
  k, = kernels("matmul_float")
  assert 'input_precision="ieee"' in TritonRenderer().render("k", lines(k)).text
  assert 'input_precision="tf32"' in TritonRenderer(allow_tf32=True).render("k", lines(k)).text


def test_fp8_products_where_the_chip_has_them() -> None:
  k, = kernels("matmul_fp8")
  assert "tl.float8e4nv, bitcast=True" in TritonRenderer(capability=90).render("k", lines(k)).text
  assert "float8e4nv" not in TritonRenderer(capability=80).render("k", lines(k)).text


def test_64_bit_indices() -> None:
  p = Lines()
  out = p.buf(0, F, True)
  g = p.add(Ops.SPECIAL, dtypes.int64, (), ("g", 0, 1 << 33))
  p.store(out, g, p.const(F, 0.0))
  assert body(p) == "gidx0 = tl.program_id(0).to(tl.int64)\ntl.store(data0 + gidx0, 0.0)"


def test_grids_beyond_what_cuda_launches() -> None:
  p = Lines()
  out = p.buf(0, F, True)
  x, y = p.gid(5), p.gid(70000, 1)
  p.store(out, p.alu(BinaryOps.ADD, p.alu(BinaryOps.MUL, y, 5), x), p.const(F, 0.0))
  assert "gidx1 = tl.program_id(0)//5\ngidx0 = tl.program_id(0)%5\n" in body(p)


def test_a_source_has_its_parameters_types() -> None:
  p, out, (x,) = stored(dtypes.bool, dtypes.float8_e5m2)
  p.store(out, 0, p.cast(x, dtypes.bool))
  source = TritonRenderer().render("k", p.uops)
  assert source.signature == (("data0", "*i8"), ("data1", "*u8")) == tuple(signature(p.uops).items())
  assert "\n# data0: *i8, data1: *u8\n@triton.jit\n" in source.text


def test_refusals() -> None:
  p, out, _ = stored(F)
  p.store(out, 0, p.vector(p.const(F, 1.0), p.const(F, 2.0)))
  with pytest.raises(CompileError, match=r"Triton has no vectors \(dtypes.float.vec\(2\)\).*without LANE axes"): body(p)
  p, out, _ = stored(F)
  p.store(out, p.lid(4), p.const(F, 1.0))
  with pytest.raises(CompileError, match="Triton makes work-items itself"): body(p)
  p, out, (x,) = stored(dtypes.int8, dtypes.int8)
  p.uops.append(UOp.unique(Ops.ATOMIC, dtypes.int8, (out, p.const(INT, 0), x), "add"))
  with pytest.raises(CompileError, match="CUDA has no atomic add of dtypes.char; a wider dtype has"): body(p)
  p, out, (x,) = stored(F, dtypes.float16)
  p.store(out, 0, p.bitcast(x, F))
  with config(verify=0), pytest.raises(CompileError, match="item sizes differ"): body(p)


def test_helpers_bring_what_they_call() -> None:
  for name, text in HELPERS.items():
    assert text.startswith(f"@triton.jit\ndef {name}(")
    known = {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)} & {*HELPERS, "libdevice"}
    found = with_called([name])
    assert found[-1] == name and known < set(found)
    for i, called in enumerate(found):   # what a helper calls stands before it
      names = {n.id for n in ast.walk(ast.parse(HELPERS.get(called, ""))) if isinstance(n, ast.Name)}
      assert names & set(HELPERS) <= {*found[:i], called}


def test_rendering_imports_no_triton() -> None:
  code = (
    "import sys, ntgrad; assert not any(m.startswith('ntgrad.backends.cuda') for m in sys.modules); from ntgrad.backends import "
    "renderer; "
    "renderer('triton'); assert 'triton' not in sys.modules"
  )
  subprocess.run([sys.executable, "-c", code], check=True)
