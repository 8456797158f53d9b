"""Rendered Triton becomes cubins for sm_80 and sm_90 with no GPU, and computes under the interpreter what the numpy backend
does."""
from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from ntgrad import Tensor, nn
from ntgrad.backends import cache as disk
from ntgrad.backends.base import KernelSource, ProgramSpec
from ntgrad.backends.cuda import compiler
from ntgrad.backends.cuda.renderer import TritonRenderer, launch_grid
from ntgrad.backends.numpy.device import NumpyDevice
from ntgrad.codegen.choose.cpu import optimize
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.errors import CompileError
from ntgrad.codegen.kernel import AxisKind, Kernel
from ntgrad.codegen.kernel.linear import UOpList
from ntgrad.codegen.linearizer import linearize
from ntgrad.engine.compile import extent
from ntgrad.schedule import create_schedule
from support import triton
from support.kernels import contents
from support.marks import long_where
from support.triton_kernels import GRAPHS, MORE, NAMES, STATEMENTS, kernels, lines, online_softmax

pytestmark = triton.needs_triton
ADDS = "import triton\nimport triton.language as tl\n\n\n# data0: *fp32\n@triton.jit\n"
ADDS += "def add(data0):\n  tl.store(data0, tl.load(data0) + {})\n"


@cache
def interpreter() -> Any:
  from ntgrad.backends.cuda.interpreter import InterpreterDevice
  return InterpreterDevice()


def run(device: Any, kernel: Kernel, uops: UOpList, data: list[np.ndarray]) -> list[np.ndarray]:
  """The params after a launch."""
  source = device.renderer.render("k", uops)
  program, = device.compile([ProgramSpec("k", source, extent(kernel, AxisKind.GRID), (1, 1, 1), len(kernel.params), tuple(uops))])
  arrays = [a.copy() for a in data]
  program([a.reshape(-1).view(np.uint8) for a in arrays])
  return arrays


def same(got: np.ndarray, want: np.ndarray) -> None:
  if got.dtype.kind in "iub": return np.testing.assert_array_equal(got, want)
  eps = {1: 0.13, 2: 0.01}.get(got.dtype.itemsize, 1e-5)
  np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=eps, atol=eps)


@long_where(lambda name, target: target == "sm_80" or name == "long_rows")
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", NAMES)
def test_cubin(name: str, target: str) -> None:
  renderer = TritonRenderer(capability=compiler.capability(target))
  for k in kernels(name):
    source = renderer.render(name, lines(k))
    binary = compiler.build(compiler.Request(source, name, target))
    assert binary.cubin[:4] == b"\x7fELF" and binary.name == name and f".target {target}" in binary.ptx


@pytest.mark.parametrize("name", [*GRAPHS, *MORE])
def test_blocks_compute_what_loops_do(name: str) -> None:
  rng = np.random.default_rng(0)
  plain = [item.ast for item in create_schedule({**GRAPHS, **MORE}[name]()) if item.ast is not None]
  for k, tiled in zip(plain, kernels(name)):
    data = contents(k, rng, True)
    for p, d in zip(k.params, data):   # indices in range, divisors of both signs
      if p.dtype.kind in "iu" and name in ("gather", "embedding_gradient"): d[...] = np.abs(d)
    for got, want in zip(run(interpreter(), tiled, lines(tiled), data), run(NumpyDevice(), k, linearize(k), data)):
      same(got, want)


@pytest.mark.parametrize("name", STATEMENTS)
def test_statements(name: str) -> None:
  rng = np.random.default_rng(1)
  k, = kernels(name)
  data = contents(k, rng, True)
  if name in ("scatter", "picked"): data = [np.abs(d) if d.dtype.kind == "i" else d for d in data]   # indices
  for got, want in zip(run(interpreter(), k, lines(k), data), run(NumpyDevice(), k, linearize(k), data)): same(got, want)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16], ids=str)
def test_online_softmax(dtype: Any) -> None:
  rng = np.random.default_rng(2)
  k = online_softmax(dtype)
  data = contents(k, rng, False)
  q, keys, values = (a.astype(np.float64) for a in data[1:])
  p = np.exp(q @ keys.T)
  same(run(interpreter(), k, lines(k), data)[0], (p / p.sum(1, keepdims=True) @ values).astype(dtype.np))


def test_specials_reach_reductions() -> None:
  """NaN goes through a maximum; what is padded adds nothing, not even to a sum of exp."""
  x = np.zeros((3, 5), np.float32)
  x[0, 1], x[1, 2] = np.nan, -np.inf
  with triton.installed(), np.errstate(invalid="ignore"):
    t = Tensor(x, device=triton.NAME)
    np.testing.assert_array_equal(t.max(axis=1).numpy(), x.max(axis=1))
    np.testing.assert_array_equal((-t).numpy(), -x)
    assert np.signbit((-t).numpy()[2]).all()
    np.testing.assert_allclose(t.exp().sum(1).numpy(), np.exp(x).sum(1))


def test_launch_errors_name_the_program() -> None:
  program, = interpreter().compile([ProgramSpec("add", triton.module(ADDS.format("tl.sum(1)")), (1, 1, 1), (1, 1, 1), 1)])
  with pytest.raises(CompileError, match=r"kernel add, program \(0, 0, 0\)"): program([np.zeros(4, np.uint8)])


def test_the_interpreter_leaves_no_trace() -> None:
  """The same process compiles after interpreting, and calling a kernel's function without a launch is still an error."""
  source = triton.module(ADDS.format("1.5"))
  x = np.zeros(1, np.float32)
  program, = interpreter().compile([ProgramSpec("add", source, (3, 1, 1), (1, 1, 1), 1)])
  program([x.view(np.uint8)])
  assert x[0] == 4.5
  assert compiler.build(compiler.Request(source, "add", "sm_90")).num_warps == 4
  with pytest.raises(RuntimeError): compiler.load(source.text).add(1)


def test_kept_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
  source = triton.module(ADDS.format("2.5"))
  first = compiler.build(compiler.Request(source, "add", "sm_90"))
  monkeypatch.setattr(compiler, "_compile", lambda *a: pytest.fail("compiled again"))
  assert compiler.build(compiler.Request(source, "add", "sm_90")) == first
  assert compiler.Binary.unpack(first.pack()) == [first]
  assert disk.load("triton", "nothing") is None


def test_tritons_files_are_not_read_to_compile(monkeypatch: pytest.MonkeyPatch) -> None:
  """To tell one Triton from another, which takes up to a second in each process; other users of it find it as it was."""
  from triton.runtime import cache
  monkeypatch.setattr(cache, "triton_key", key := lambda: pytest.fail("all files read"))
  compiler._compile(compiler._triton(), compiler.Request(triton.module(ADDS.format("3.5")), "add", "sm_90"))
  assert cache.triton_key is key


def test_what_triton_refuses_is_said() -> None:
  wrong = compiler.Request(triton.module(ADDS.format("tl.nothing")), "add")
  with pytest.raises(CompileError, match="kernel add for sm_90: .*"): compiler.build(wrong)
  with pytest.raises(CompileError, match="no Python"): compiler.load("def :")
  with pytest.raises(CompileError, match="expected sm_ and a number"): compiler.capability("gfx90a")


def test_large_grids_lie_in_one_dimension() -> None:
  assert [launch_grid(ProgramSpec("k", KernelSource(""), grid, (1,), 1))(()) for grid in ((4, 65535), (4, 65536, 2))] == [
    (4, 65535, 1), (4 * 65536 * 2, 1, 1)]


def test_what_a_schedule_writes_it_has_read_before() -> None:
  """Adam's step, one kernel: the parameters' update needs both averages as they were before the same kernel writes them."""
  def trained(device: str) -> np.ndarray:
    p = Tensor(np.linspace(-1, 1, 50, dtype=np.float32), device=device, requires_grad=True)
    opt = nn.optim.Adam([p], lr=0.1)
    for _ in range(3):
      opt.zero_grad()
      (p * p).sum().backward()
      opt.step()
    return p.numpy()
  np.testing.assert_allclose(trained("TRITON"), trained("NUMPY"), rtol=1e-5, atol=1e-6)


def test_only_sums_are_fused() -> None:
  """A product and a sum are rounded one by one, as numpy does it, unless many are added up."""
  x = Tensor.empty(64, 64)
  scaled, summed = (item.ast for item in (create_schedule([t])[-1] for t in (x*3.7 + 1, (x*3.7 + 1).sum(1))))
  note = "total += tl.dot(a, b); for x in tl.arange(0, 65536): tl.sum(x)   # flatten=True"
  for k, fused in ((scaled, False), (summed, True)):
    plain, noted = (TritonRenderer().render("k", linearize(k), notes) for notes in ((), (note,)))
    assert noted.text == f"# {note}\n{plain.text}" and noted.options == plain.options   # what a comment says is for people
    assert ("fma" in compiler.build(compiler.Request(noted, "k")).ptx) is fused


@pytest.mark.parametrize(
  "n, dtype, block",
  [
    (4096, "bfloat16", (128, 256)),
    (2048, "float16", (128, 256)),
    (1024, "float16", (64, 128)),
    (512, "bfloat16", (64, 64)),
    (4096, "float32", (64, 64)),
  ],
)
def test_blocks_of_a_product(n: int, dtype: str, block: tuple[int, int]) -> None:
  """As large as leaves a program for each of 132 cores."""
  item, = [i for i in create_schedule([Tensor.empty(n, n, dtype=dtype) @ Tensor.empty(n, n, dtype=dtype)]) if i.ast is not None]
  kernel = optimize(item.ast, TritonRenderer().target)
  assert tuple(a.size for a in kernel.of_kind(AxisKind.TILE)[:2]) == block


@triton.needs_triton
def test_a_number_alone_has_its_dtype() -> None:
  """A literal that meets nothing but a pointer is float32 to Triton."""
  assert (Tensor.full((5,), 0.1, dtype="float64", device=triton.NAME).contiguous().numpy() == 0.1).all()
  x = np.array([1.0, -1.0])
  t = Tensor(x, device=triton.NAME)
  np.testing.assert_array_equal(
    (t > 0).where(Tensor.full((2,), 0.1, dtype="float64", device=triton.NAME), 0.3).numpy(), np.where(x > 0, 0.1, 0.3)
  )
