"""Sizes that a launch gives, on every backend: one compiled program, launched with several numbers."""
from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any, Callable

import numpy as np
import pytest
from unit.test_cuda_device import Fake
from unit.test_cuda_graph import binary, fake  # noqa: F401

from ntgrad.backends import render
from ntgrad.backends.base import Device, KernelSource, Program, ProgramSpec, grid_of, size_names
from ntgrad.backends.cuda import compiler
from ntgrad.backends.cuda.device import CUDADevice
from ntgrad.backends.numpy.device import NumpyDevice
from ntgrad.codegen import index as ix
from ntgrad.codegen.index import Size
from ntgrad.codegen.index.sizes import arguments, bounds_text, dim_text, evaluator
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.errors import DeviceError, VerifyError
from ntgrad.codegen.ir.uop import BinaryOps, Ops, UOp
from ntgrad.codegen.verify.forms import verify_linear
from ntgrad.engine.compile import from_specs
from ntgrad.engine.device import get_device
from support import metal, plain_c, triton
from support.graphs import Launches
from support.linear import INT, Lines
from support.marks import long

F32, I64 = dtypes.float32, dtypes.int64
Array = np.ndarray[Any, Any]
N, M = Size("N", 0, 1 << 20), Size("M", 0, 1 << 10)
ROWS, COLUMNS = Size("rows", 1, 1 << 10), Size("columns", 1, 1 << 10)
UNITS = Size("N", 0, 1 << 16, unit=16)


def index(size: Size) -> UOp: return UOp(Ops.SIZE, ix.INT, (), size)


def blocks(p: Lines, g: UOp, n: int) -> UOp:
  """The element that a program is about: of one block of ``n`` for a target that has them, else the program's own."""
  return p.alu(BinaryOps.ADD, p.alu(BinaryOps.MUL, g, n), p.add(Ops.RANGE, g.dtype, (), (0, n)))


def elementwise(tiled: bool) -> Lines:
  """out[i] = x[i] + 1 for i < N, the grid rounded up."""
  p = Lines()
  out, x, n = p.buf(0, F32, True), p.buf(1, F32), p.var(N)
  if tiled: i = blocks(p, p.gid(ix.cdiv(index(N), 64)), 64)
  else:
    g, l = p.gid(ix.cdiv(index(N), 4)), p.loop(0, 4)
    i = p.alu(BinaryOps.ADD, p.alu(BinaryOps.MUL, g, 4), l)
  inside = p.alu(BinaryOps.CMPLT, i, n)
  p.store(out, i, p.alu(BinaryOps.ADD, p.load(x, i, inside), 1.0), inside)
  if not tiled: p.end(l)
  return p


def reduction(tiled: bool) -> Lines:
  """out[i] = sum of x[i, :N], of M rows."""
  p = Lines()
  out, x, n = p.buf(0, F32, True), p.buf(1, F32), p.var(N)
  row = p.gid(index(M))
  acc, k = p.acc(F32, 0.0), p.loop(0, n)
  value = p.load(x, p.alu(BinaryOps.ADD, p.alu(BinaryOps.MUL, row, n), k))
  total = p.phi(acc, p.alu(BinaryOps.ADD, acc, value), k)
  p.end(k)
  p.store(out, row, total)
  return p


def transposition(tiled: bool) -> Lines:
  """out[j, i] = x[i, j], one program for each element."""
  p = Lines()
  out, x, m, n = p.buf(0, F32, True), p.buf(1, F32), p.var(ROWS), p.var(COLUMNS)
  g = p.gid(ix.mul(index(ROWS), index(COLUMNS)))
  i, j = p.alu(BinaryOps.IDIV, g, n), p.alu(BinaryOps.MOD, g, n)
  p.store(out, p.alu(BinaryOps.ADD, p.alu(BinaryOps.MUL, j, m), i), p.load(x, g))
  return p


def wide(tiled: bool) -> Lines:
  """out[i] = x[i]*N in int64, of N units of 16 elements in two dimensions of programs."""
  p = Lines()
  out, x, n = p.buf(0, I64, True), p.buf(1, I64), p.var(UNITS, I64)
  g, h = (p.add(Ops.SPECIAL, I64, (), ("g", d, size)) for d, size in ((0, 16), (1, index(UNITS))))
  i = p.alu(BinaryOps.ADD, p.alu(BinaryOps.MUL, h, 16), g)
  p.store(out, i, p.alu(BinaryOps.MUL, p.load(x, i), n))
  return p


def cases(name: str, m: int, n: int) -> tuple[tuple[int, ...], Array, Array]:
  """Numbers for a program's sizes, its input, and what it has to give."""
  x = np.random.default_rng(m * 7 + n).integers(-9, 10, max(m, 1) * n).astype(np.float32)
  if name == "elementwise": return (n,), x[:n], x[:n] + np.float32(1)
  x = x if name == "wide" else x[:m * n]
  if name == "reduction": return (m, n), x, x.reshape(m, n).sum(1)
  if name == "transposition": return (n, m), x, np.ascontiguousarray(x.reshape(m, n).T).reshape(-1)
  data = np.resize(x, 16 * n).astype(np.int64) if x.size else np.zeros(16 * n, np.int64)
  return (n,), data, data * n


PROGRAMS: dict[str, Callable[[bool], Lines]] = {f.__name__: f for f in (elementwise, reduction, transposition, wide)}
DEVICES = [
  "NUMPY",
  "CPU",
  pytest.param(plain_c.NAME, marks=plain_c.needs_cc),
  pytest.param("METAL", marks=metal.needs_cxx),
  pytest.param(triton.NAME, marks=triton.needs_triton),
]


def device(name: str) -> Device: return metal.MetalDevice() if name == "METAL" else get_device(name)


def launched(d: Device, program: Any, sizes: tuple[int, ...], x: Array, out: Array) -> Array:
  """What a launch writes."""
  raws = [d.alloc(max(a.nbytes, 1)) for a in (out, x)]
  for raw, a in zip(raws, (out, x)): d.copyin(raw, a.reshape(-1).view(np.uint8))
  program(raws, sizes=sizes)
  got: Array = d.copyout(raws[0], out.nbytes).view(out.dtype)
  for raw, a in zip(raws, (out, x)): d.free(raw, max(a.nbytes, 1))
  return got


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("where", DEVICES)
def test_one_program_for_all_sizes(where: str, name: str) -> None:
  d = device(where)
  program = PROGRAMS[name](where == triton.NAME).program(d, name)
  for m, n in ((3, 5), (1, 1), (4, 64), (2, 65), (0, 4), (5, 0), (0, 0), (3, 5)):
    if name == "transposition" and not m * n: continue   # divides by them
    sizes, x, want = cases(name, m, n)
    got = launched(d, program, sizes, x, np.zeros_like(want))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("where", ["NUMPY", "CPU", pytest.param(triton.NAME, marks=triton.needs_triton)])
def test_parts_of_memory_and_clones(where: str) -> None:
  """Where a part begins is an argument of its own beside the sizes; a clone keeps other arguments."""
  d, p = device(where), Lines()
  out, x, n = p.buf(0, F32, True), p.add(Ops.DEFINE_GLOBAL, F32, (), (1, "data1", False, 4)), p.var(N)
  g = p.gid(index(N))
  p.store(out, g, p.alu(BinaryOps.ADD, p.load(x, g), p.cast(n, F32)))
  first = p.program(d, "part")
  second = first.clone()
  raws = [d.alloc(32), d.alloc(32)]
  d.copyin(raws[0], np.zeros(8, np.float32).view(np.uint8))
  d.copyin(raws[1], np.arange(8, dtype=np.float32).view(np.uint8))
  def run(program: Program, offset: int, n: int) -> list[float]:
    program([raws[0], d.at(raws[1], offset)], sizes=(n,))
    return list(d.copyout(raws[0], 32).view(np.float32))
  assert run(first, 8, 3) == [5, 6, 7, 0, 0, 0, 0, 0]
  assert run(second, 4, 2) == [3, 4, 7, 0, 0, 0, 0, 0]
  assert run(first, 12, 1) == [4, 4, 7, 0, 0, 0, 0, 0]
  assert run(first, 8, 3) == [5, 6, 7, 0, 0, 0, 0, 0]


# ---- sources

def test_opencl_source() -> None:
  assert render("opencl", "add", elementwise(False).uops).split("\n")[1:7] == [
    "void add(__global float* restrict data0, __global const float* restrict data1, const int N) {",
    "  int gidx0 = get_group_id(0);",
    "  for (int i0 = 0; i0 < 4; i0++) {",
    "    int alu0 = gidx0*4 + i0;",
    "    bool alu1 = alu0 < N;",
    "    float val0 = alu1 ? data1[alu0] : 0.0f;",
  ]
  # the bounds of the sizes say that C's division, which truncates, is the same
  assert "data0[gidx0%columns*rows + gidx0/columns] = val0;" in render("opencl", "t", transposition(False).uops)


def test_triton_source() -> None:
  """Programs that may be more than a launch can have in its second dimension are all in the first."""
  assert render("triton", "wide", wide(True).uops).split("\n\n\n")[1] == (
    "# data0: *i64, data1: *i64, N_16: i64\n@triton.jit\ndef wide(data0, data1, N_16):\n"
    "  gidx1 = (tl.program_id(0)//16).to(tl.int64)\n  gidx0 = (tl.program_id(0)%16).to(tl.int64)\n"
    "  alu0 = gidx1*16 + gidx0\n  val0 = tl.load(data1 + alu0)\n  tl.store(data0 + alu0, val0*N_16)\n"
  )
  few = Lines()
  out, h = few.buf(0, INT, True), few.gid(index(Size("few", 1, 100)), 1)
  few.store(out, h, h)
  assert "gidx1 = tl.program_id(1)\n" in render("triton", "few", few.uops)


def test_listing() -> None:
  listing = str(wide(False).uops)
  assert "UOps.DEFINE_VAR" in listing and "N/16 (0..65536)\n" in listing and "('g', 1, N/16)" in listing
  assert "('g', 0, (N + 3)//4)" in str(elementwise(False).uops) and bounds_text(Size("K", 1)) == "K (1..)"


def test_names() -> None:
  """A size has its name, or something like it that is no name of the language or the program."""
  given = ("N", "x.shape[0]", "for", "max", "val0", "data1", "exp", "3d", "λ", "x_shape_0", "max_int", "N")
  sizes = [Size(name, unit=1 + 15 * (i == 11)) for i, name in enumerate(given)]
  assert list(size_names(sizes, lambda name: name in ("for", "max")).values())[:4] == ["N", "x_shape_0", "size_for", "size_max"]
  p = Lines()
  out, _, total = p.buf(0, I64, True), p.buf(1, I64), p.const(I64, 0)
  for size in sizes: total = p.alu(BinaryOps.MAX, total, p.var(size, I64))
  p.store(out, 0, total)
  for where in ("CPU", *((plain_c.NAME,) if plain_c.CC else ()), *((triton.NAME,) if triton.INSTALLED else ())):
    d = get_device(where)
    got = launched(d, p.program(d, "names"), tuple(range(12)), np.zeros(0), np.zeros(1, np.int64))
    assert got[0] == 11


# ---- what a program takes

def test_wrong_sizes() -> None:
  for where in ("NUMPY", "CPU"):
    program = elementwise(False).program(get_device(where))
    for sizes in ((), (1, 2)):
      with pytest.raises(DeviceError, match=r"takes 1 sizes \(N\), got"): program([None, None], sizes=sizes)
  with pytest.raises(DeviceError, match="a size is out of range"):
    elementwise(False).program(get_device("CPU"))([None, None], sizes=(1 << 40,))


def test_the_oracle_checks_sizes() -> None:
  program = elementwise(False).program(NumpyDevice())
  with pytest.raises(VerifyError, match=r"size N \(0..1048576\) is 1048577"):
    program([np.zeros(8, np.uint8)] * 2, sizes=((1 << 20) + 1,))
  out, x = np.zeros(4, np.float32), np.ones(4, np.float32)
  with pytest.raises(VerifyError, match="at index 4, but its size is 4"):
    program([a.view(np.uint8) for a in (out, x)], sizes=(5,))
  spec = elementwise(False).spec()
  with pytest.raises(VerifyError, match=r"SPECIAL \('g', 0, '\(N \+ 3\)//4'\) says 2 programs in dimension 0, the launch has 3"):
    NumpyDevice().compile([replace(spec, grid=(3,))])[0]([out.view(np.uint8), x.view(np.uint8)], sizes=(5,))
  with pytest.raises(VerifyError, match="has the sizes N"): NumpyDevice().compile([replace(spec, sizes=())])


def test_verifier() -> None:
  for size, dtype, wrong in (
    ("N", INT, "the arg of DEFINE_VAR is a Size"), (N, F32, "DEFINE_VAR is an index, an int32 or an int64, got dtypes.float"),
    (N, dtypes.index, "has dtype index")
  ):
    p = Lines()
    p.add(Ops.DEFINE_VAR, dtype, (), size)
    with pytest.raises(VerifyError, match=wrong): verify_linear(p.uops)
  p = Lines()
  p.var(N)
  p.var(N._replace(upper=7))
  with pytest.raises(VerifyError, match="size N is defined twice"): verify_linear(p.uops)
  p = Lines()
  p.add(Ops.SPECIAL, INT, (), ("l", 0, index(N)))
  with pytest.raises(VerifyError, match="a group has a number of work-items that is known"): verify_linear(p.uops)


# ---- what identifies a program

def test_specs_are_pickled() -> None:
  spec = elementwise(False).spec()
  back = pickle.loads(pickle.dumps(spec))
  assert back == spec and back.grid[0] is spec.grid[0] is ix.cdiv(index(N), 4) and hash(back) == hash(spec)
  assert grid_of(back)((9,)) == (3, 1, 1) and grid_of(back)((-9,)) == (0, 1, 1)
  assert arguments(spec.uops) == {N: INT} and arguments(reduction(False).uops) == {M: I64, N: INT}


def test_programs_are_told_apart_by_their_grids() -> None:
  d = get_device("CPU")
  p = elementwise(False)
  spec = replace(p.spec("add"), source=d.renderer.render("add", p.uops))
  other = replace(spec, grid=(ix.cdiv(index(N), 8),))
  a, b, c = from_specs([spec, other, pickle.loads(pickle.dumps(spec))], d)
  assert a is c and a is not b


def test_expressions() -> None:
  n, m = index(N), index(M)
  for e in (ix.cdiv(n, 64), ix.sub(n, m), ix.mul(ix.add(n, 3), m), ix.mod(ix.add(n, 5), ix.add(m, 1)), ix.greatest(n, m)):
    f = evaluator((e, 7), (M, N))
    for v in ((3, 100), (9, 0), (0, 5)): assert f(v) == (eval(dim_text(e), {"M": v[0], "N": v[1], "max": max}), 7)


@long
def test_workers_build_for_any_size() -> None:
  """A worker runs each kernel once, with small numbers for its sizes."""
  d = get_device("CPU")
  p = elementwise(False)
  spec = replace(p.spec("packed_add"), source=d.renderer.render("packed_add", p.uops))
  d.unpack(d.pack([spec]), [spec])
  out = launched(d, d.compile([spec])[0], (3,), np.arange(3, dtype=np.float32), np.zeros(3, np.float32))
  assert out.tolist() == [1, 2, 3]


# ---- a GPU that is not there

@triton.needs_triton
@pytest.mark.parametrize("name", PROGRAMS)
def test_cubin(name: str) -> None:
  """One binary for all sizes: no number is part of it."""
  from ntgrad.backends.cuda.renderer import TritonRenderer
  source = TritonRenderer().render(name, PROGRAMS[name](True).uops)
  binary = compiler.build(compiler.Request(source, name, "sm_90"))
  kinds = {"i32": ".u32", "i64": ".u64"}
  params = [line.split()[1] for line in binary.ptx.split(".entry")[1].split(")")[0].split("\n") if ".param" in line]
  assert binary.cubin[:4] == b"\x7fELF" and params[2:-2] == [kinds[t] for _, t in source.signature[2:]]


def cuda_spec() -> ProgramSpec:
  typed = (("data0", "*fp32"), ("data1", "*fp32"), ("N", "i32"), ("M", "i64"))
  source = KernelSource("def double(): pass", typed, sizes=(INT, I64))
  return ProgramSpec("double", source, (ix.cdiv(index(N), 64), index(M)), (1, 1, 1), 2, sizes=(N, M))


def test_launches_on_cuda(fake: Fake) -> None:   # noqa: F811
  fake.graphs.parameters = 6
  d = CUDADevice("CUDA")
  program, = d.compile([cuda_spec()])
  for sizes in ((65, 3), (65, 3), (1, 1), (0, 5), (64, 70000)): program([10, 11], sizes=sizes)
  assert [(x[0], x[4]) for x in fake.launches] == [
    (grid, (10, 11, *sizes, 0, 0))
    for grid, sizes in (((2, 3, 1), (65, 3)), ((2, 3, 1), (65, 3)), ((1, 1, 1), (1, 1)), ((1, 70000, 1), (64, 70000)))
  ]
  assert program([10, 11], wait=True, sizes=(0, 5)) == 0.0
  with pytest.raises(DeviceError, match=r"takes 2 sizes \(N, M\), got 1"): program([10, 11], sizes=(1,))


def test_graphs_are_resized(fake: Fake) -> None:   # noqa: F811
  """A node whose grid has no programs is left out until it has some again."""
  fake.graphs.parameters = 6
  d = CUDADevice("CUDA")
  program, = d.compile([cuda_spec()])
  graph = Launches(d, (program, [1, 2], (), (64, 1)), (program, [3, 4], (0,), (0, 1)))

  def launched() -> list[Any]:
    fake.launches.clear()
    graph()
    return [(x[0], x[4][:4]) for x in fake.launches]
  assert launched() == [((1, 1, 1), (1, 2, 64, 1))]
  graph.resize(1, (128, 5))
  graph.resize(0, (64, 1))   # as it is
  graph.change(1, 0, 33)
  fake.graphs.patched.clear()
  for _ in range(2): assert launched() == [((1, 1, 1), (1, 2, 64, 1)), ((2, 5, 1), (33, 4, 128, 5))]
  assert fake.graphs.patched == [1]
  graph.resize(0, (0, 1))
  assert launched() == [((2, 5, 1), (33, 4, 128, 5))]
  with pytest.raises(DeviceError, match="takes 2 sizes"): graph.resize(0, (1,))


def test_buffers_that_the_kernel_has_no_use_for(fake: Fake) -> None:   # noqa: F811
  """Sizes follow the last buffer that it uses, whatever the launch gives besides."""
  fake.graphs.parameters = 6
  d = CUDADevice("CUDA")
  program, = d.compile([replace(cuda_spec(), nparams=3)])
  program([10, 11, 12], sizes=(64, 2))
  graph = Launches(d, (program, [1, 2, 3], (), (64, 3)))
  graph.change(0, 2, 99)
  graph.change(0, 1, 22)
  graph.resize(0, (128, 4))
  graph()
  assert [x[4] for x in fake.launches] == [(10, 11, 64, 2, 0, 0), (1, 22, 128, 4, 0, 0)]


def test_scratch_memory_grows_with_the_grid(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:   # noqa: F811
  """What a graph has of it stays."""
  fake.graphs.parameters = 6
  monkeypatch.setattr(compiler, "build", lambda r: binary(r.name, scratch=256))
  d = CUDADevice("CUDA")
  program, = d.compile([cuda_spec()])
  graph = Launches(d, (program, [1, 2], (), (64, 3)))
  program([1, 2], sizes=(64, 2))
  program([1, 2], sizes=(64, 100))
  graph()
  first, second, third = (x[4][4] for x in fake.launches)
  assert first == third != second and d.allocated == 1024 + 32768
  graph.resize(0, (64, 50))
  graph()
  assert fake.launches[-1][4][4] == second
  del graph, program
  assert d.allocated == 0
