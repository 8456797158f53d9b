"""What renderers to languages in C's style share: languages by name, functions and helpers, what a language may say
differently."""
from __future__ import annotations

import numpy as np
import pytest

from ntgrad.backends import RENDERERS, render, renderer
from ntgrad.backends.base import KernelSource, ProgramSpec, Target
from ntgrad.backends.c import CRenderer
from ntgrad.backends.cstyle.functions import SIZES, Library, Type
from ntgrad.backends.cstyle.kernel import CStyleRenderer
from ntgrad.backends.cstyle.language import VALUES, Text
from ntgrad.backends.opencl.renderer import OpenCLRenderer
from ntgrad.codegen.ir.dtype import DType, dtypes
from ntgrad.codegen.ir.errors import ArgumentError, CompileError
from ntgrad.codegen.ir.uop import BinaryOps, Ops, UnaryOps, UOp, toposort
from support import plain_c
from support.elementwise import const, load, param, store
from support.linear import Lines, dot, uops_to_cstyle

F32 = dtypes.float32


@pytest.mark.parametrize("name", RENDERERS)
def test_renderers_by_name(name: str) -> None:
  assert renderer(name).target.name == name
  if name != "triton": assert "dot" in render(name, "dot", dot().uops)


def test_an_unknown_renderer() -> None:
  with pytest.raises(ArgumentError, match="no renderer 'hlsl'; renderers: opencl, triton, c, metal, numpy"): renderer("hlsl")


@pytest.mark.parametrize("target, name", [("c", "double"), ("c", "expf"), ("metal", "exp"), ("metal", "kernel")])
def test_names_that_kernels_cannot_have(target: str, name: str) -> None:
  with pytest.raises(CompileError, match=f"no kernel can be called {name}: "): render(target, name, dot().uops)
  assert f"void {name}(" in render("opencl", name, dot().uops)   # whose compiler renames it


@pytest.mark.parametrize("target", ["c", "metal"])
def test_names_of_helper_functions_are_taken(target: str) -> None:
  """A kernel may be called as a helper function, but not as one that it uses."""
  x = load(param(1, F32), const(0))
  largest = toposort([store(param(0, F32, True), const(0), UOp.alu(BinaryOps.MAX, x, const(0.0, F32)))])
  with pytest.raises(CompileError, match="no kernel can be called max_float: "): render(target, "max_float", largest)
  assert "void max_float(" in render(target, "max_float", dot().uops)
  assert "void max_float(" in render("opencl", "max_float", largest)   # whose compiler renames it


class Short(CStyleRenderer):
  """Says nothing but what it must."""
  name, target, library = "Short", Target("short"), Library()
  def position(self, kind: str, dim: int, size: int) -> str: return f"place({dim})"


def test_what_a_language_does_not_say_is_c() -> None:
  p = Lines()
  g = p.gid(8)
  gate = p.alu(BinaryOps.CMPLT, g, 5)
  value = p.alu(BinaryOps.MAX, p.load(p.buf(1, F32), g, gate, p.const(F32, 2.0)), 0.0)
  p.store(p.buf(0, F32, True), g, value, gate)
  assert uops_to_cstyle(Short(), "k", p.uops) == """\
static float max_float(float a, float b) { return (a > b) | (a != a) ? a : b; }

void k(float* restrict data0, const float* restrict data1) {
  int gidx0 = place(0);
  bool alu0 = gidx0 < 5;
  float val0 = alu0 ? data1[gidx0] : 2.0f;
  if (alu0) data0[gidx0] = max_float(val0, 0.0f);
}
"""


def test_elements_and_addresses_are_the_languages() -> None:
  """Loads, stores, gates and arrays go through what the language says."""
  class Marked(Short):
    spaces = {"global": "far ", "local": "near ", "private": "own "}
    index = "loop"
    def element(self, buffer: str, index: Text) -> str: return f"{buffer}.at({index[0]})"
  p = Lines()
  v = p.local("v", 4, F32, "private")
  i = p.loop(0, 4)
  p.store(v, i, p.load(p.buf(1, F32), i))
  p.end(i)
  p.store(p.buf(0, F32, True), 0, p.load(v, 3))
  assert uops_to_cstyle(Marked(), "k", p.uops) == """\
void k(far float* restrict data0, far const float* restrict data1) {
  own float v[4];
  for (int loop0 = 0; loop0 < 4; loop0++) {
    float val0 = data1.at(loop0);
    v.at(loop0) = val0;
  }
  float val1 = v.at(3);
  data0.at(0) = val1;
}
"""


def test_what_a_language_cannot_do() -> None:
  p = Lines()
  p.store(p.buf(0, F32, True), p.lid(4), p.const(F32, 1.0))
  p.barrier()
  with pytest.raises(CompileError, match="kernel k: Short has no barrier"): uops_to_cstyle(Short(), "k", p.uops)
  p = Lines()
  p.add(Ops.ATOMIC, F32, (p.buf(0, F32, True), p.gid(4), p.const(F32, 1.0)), "add")
  with pytest.raises(CompileError, match="Short has no atomic add of dtypes.float"): uops_to_cstyle(Short(), "k", p.uops)


def test_parentheses_and_no_blanks() -> None:
  """Every operation is in parentheses but the first of a chain of sums or products."""
  class Tight(Short): parenthesised = True
  x, y, z = (load(param(i, dtypes.uint32), const(0)) for i in (1, 2, 3))
  i, j = (load(param(i, dtypes.int32), const(0)) for i in (1, 2))
  alu = UOp.alu
  add, sub, mul = BinaryOps.ADD, BinaryOps.SUB, BinaryOps.MUL
  for value, want in (
    (alu(add, alu(add, x, y), z), "val0+val1+val2"),
    (alu(add, x, alu(add, y, z)), "val0+(val1+val2)"),
    (alu(mul, alu(add, x, y), z), "(val0+val1)*val2"),
    (alu(sub, alu(sub, x, y), z), "(val0-val1)-val2"),
    (alu(BinaryOps.SHL, x, const(3, dtypes.uint32)), "val0<<3u"),
    (alu(BinaryOps.AND, alu(BinaryOps.AND, x, y), z), "(val0&val1)&val2"),
    (alu(add, alu(add, i, j), const(-3)), "(int)((uint)val0+val1+(-3))"),
    (alu(mul, alu(add, i, j), j), "(int)(((uint)val0+val1)*val1)"),
  ):
    if value.dtype is dtypes.int32: value, want = value.cast(dtypes.int64), f"(long){want}"   # where an overflow would show
    else: want = f"({want})"
    text = uops_to_cstyle(Tight(), "k", toposort([store(param(0, value.dtype, True), const(0), value)]))
    assert f"data0[0] = {want};" in text, text


def test_a_function_that_nobody_has() -> None:
  with pytest.raises(CompileError, match="no function frexp of float"): Library().source("frexp", Type("float"))
  out = param(0, F32, True)
  uops = toposort([store(out, const(0), UOp.alu(UnaryOps.EXP, load(param(1, F32), const(0))))])
  with pytest.raises(CompileError, match="no function exp of float"): uops_to_cstyle(Short(), "k", uops)


def test_the_languages_own_function_comes_first() -> None:
  class Own(Library):
    names = {"exp": "my_exp", "abs": "my_abs"}
  assert [key for key, _ in Own().source("erf", Type("float"))] == ["erf_float"]
  text = Own().source("erf", Type("float"))[0][1]
  assert "my_exp(" in text and "my_abs(" in text and "@" not in text


@pytest.mark.parametrize("n", [1, 2, 8])
def test_helpers_of_a_gpu_call_its_functions(n: int) -> None:
  """No builtin of the compiler that PoCL has stands in source for a GPU."""
  language = OpenCLRenderer(Target("opencl", locals=True))
  x = load(param(1, F32), const(0), n)
  for fn in (BinaryOps.IDIV, BinaryOps.MOD):
    text = uops_to_cstyle(language, "k", toposort([store(param(0, F32, True), const(0), UOp.alu(fn, x, x))]))
    assert "__builtin_elementwise" not in text and "__builtin_ia32" not in text


def test_types_are_read_as_written() -> None:
  for base in SIZES: assert Type.parse(base) == Type(base) and Type.parse(f"{base}4") == Type(base, 4)
  assert (
    str(CRenderer.type("char")) == "int8_t"
    and str(CRenderer.type("ulong")) == "uint64_t"
    and str(CRenderer.type("float")) == "float"
  )


def nearest(x: int, bits: int) -> int:
  """``x`` with so many bits that count, ties to even."""
  below = max(abs(x).bit_length() - bits, 0)
  q, r = divmod(abs(x), 1 << below)
  return (q + (2*r > 1 << below or (2*r == 1 << below and q % 2 == 1)) << below) * (1 if x >= 0 else -1)


@plain_c.needs_cc
@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.uint64], ids=lambda d: d.name)
def test_wide_ints_round_once_where_there_is_no_double(dtype: DType) -> None:
  """As integers: a float between would round a first time."""
  class NoDouble(CRenderer): values = {d: t for d, t in VALUES.items() if t != "double"}
  rng, top, least, most = np.random.default_rng(0), dtype.itemsize*8 - (dtype.kind == "i"), dtypes.min(dtype), dtypes.max(dtype)
  hard = [(1 << k) + (1 << max(k - 8, 0)) + d for k in range(9, top) for d in (-1, 0, 1)]
  drawn = zip(rng.integers(least, most, 200, dtype.np, endpoint=True), rng.integers(0, 40, 200))
  values = [*hard, *(-x for x in hard if dtype.kind == "i"), 0, 1, least, most, *(int(x) >> int(s) for x, s in drawn)]
  data = np.array(values, dtype.np)
  p = Lines()
  g = p.gid(len(data))
  p.store(p.buf(0, dtypes.bfloat16, True), g, p.cast(p.load(p.buf(1, dtype), g), dtypes.bfloat16))
  source = uops_to_cstyle(NoDouble(), "k", p.uops)
  assert "double" not in source
  program, = plain_c.CDevice().compile([ProgramSpec("k", KernelSource(source), (len(data),), (1,), 2)])
  out = np.zeros(len(data), dtypes.bfloat16.np)
  program([out.view(np.uint8), data.view(np.uint8)])
  assert [int(float(x)) for x in out] == [nearest(int(x), 8) for x in data]


def apart(count: int, first: int = 0, base: int = 0) -> str:
  """A loop that adds up elements 3 apart, as C; ``first`` and ``base``: how far the first is from the index, and that from 0."""
  p = Lines()
  x, out = p.buf(1, F32), p.buf(0, F32, True)
  i = p.loop(0, 4)
  at = p.alu(BinaryOps.ADD, p.alu(BinaryOps.MUL, i, 100), base) if base else p.alu(BinaryOps.MUL, i, 100)
  values = [p.load(x, p.alu(BinaryOps.ADD, at, first + 3*n) if first + 3*n else at) for n in range(count)]
  total = values[0]
  for v in values[1:]: total = p.alu(BinaryOps.ADD, total, v)
  p.store(out, i, total)
  p.end(i)
  return uops_to_cstyle(CRenderer(), "k", p.uops)


def test_many_elements_at_constant_distances_are_reached_from_one_pointer() -> None:
  many = apart(12)
  assert "(data1 + alu0)[33]" in many and "data1[alu0 + " not in many and "data1[alu0]" in many
  assert "data1[alu0 + 6]" in apart(4) and "(data1" not in apart(4)
  assert "(data1" not in apart(12, first=-40), "a pointer may not be before the buffer, nor go back"
  assert "(data1" not in apart(24, base=-50), "where the index may be"
