"""Kernels with run-time sizes: twins, variants of programs, widths of indices, what is said of them."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ntgrad.backends import renderer
from ntgrad.backends.base import KernelSource, Program, ProgramSpec
from ntgrad.codegen import index as ix, pipeline
from ntgrad.codegen.choose.bound import work_of
from ntgrad.codegen.choose.runtime_sizes import as_twin, with_numbers
from ntgrad.codegen.index import Size
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.target import Target
from ntgrad.codegen.ir.uop import BinaryOps, Ops, UOp
from ntgrad.codegen.kernel import Kernel
from ntgrad.codegen.kernel.linear import UOpList
from ntgrad.codegen.opts import Cover, Pad, Peel, Serial, ShiftInwards, UpcastInwards
from ntgrad.codegen.passes.widths import lower_index
from ntgrad.engine.compile import kernel_name
from ntgrad.engine.device import get_device
from ntgrad.engine.report import describe, grid_text, launched_spec
from ntgrad.engine.size_variants import UNIT, SizedProgram
from support.sizes import MAKES, centered, elementwise, product, row_sum, symbols
from support.statements import Builder

CPU = Target("opencl", lanes=8, registers=16, cores=2, local_memory=512 << 10)


def size(name: str, **known: Any) -> UOp: return UOp(Ops.SIZE, ix.INT, (), Size(name, 1, **known))


def gathered(n: UOp) -> Kernel:
  """out[i] = x[at[i]], 0 where at[i], of 64 bits, is no place of x."""
  b = Builder()
  i = b.grid(n)
  out, x, at = b.param((n,), written=True), b.param((n,)), b.param((n,), dtypes.int64)
  place = UOp(Ops.CAST, ix.INT, (at[i].u,))
  return b.kernel(out.set(i, x.load(place, ix.both(ix.ge(place, 0), ix.lt(place, n)))))


# ---- twins

def test_a_twin_has_numbers() -> None:
  """About what sizes are: long ones are multiples of what vectors and copies like."""
  k = product({"M": size("M", hint=1000), "N": ix.mul(size("N", unit=16, hint=3), 16), "K": size("K", hint=31)})
  twin = with_numbers(k)
  assert not twin.sizes and [a.size for a in twin.axes] == [1024, 48, 31] and twin.params[0].shape == (1024, 48)
  assert [a.size for a in with_numbers(product(symbols(33))).axes] == [48] * 3


def test_a_kernel_without_sizes_is_its_own_twin() -> None:
  k = product({"M": 4, "N": 5, "K": 6})
  assert as_twin(k, CPU, lambda given: given) is k


@pytest.mark.parametrize("name", MAKES)
def test_opts_of_a_twin_are_replayed(name: str) -> None:
  """What a CPU's heuristics choose for numbers is done with sizes: vectors among it."""
  k = pipeline.run_passes(pipeline.prepare(MAKES[name](symbols(1000)), CPU), CPU, "opts", "opts").kernel
  assert k.sizes and any(a.kind.name == "LANE" for a in k.axes), (name, k.applied)


def test_what_depends_on_numbers_is_needed() -> None:
  n = symbols(100)
  assert [str(Cover(1, 128).apply(row_sum(n)).needs)] != ["()"] and not Pad(1, 4).apply(row_sum(n)).needs
  assert len(ShiftInwards(0, 8).apply(elementwise(n)).needs) == 1 and len(UpcastInwards(0, 4).apply(elementwise(n)).needs) == 1
  assert not Peel(1, 8).apply(row_sum(n)).needs and not Serial(0, 8).apply(row_sum(n)).needs


def test_parts_of_an_axis_are_apart() -> None:
  """Both STOREs of a peeled axis are one statement's: the kernel stays plain, and neither waits for the other's reads."""
  k = Peel(1, 4).apply(Serial(1).apply(MAKES["in_place"](symbols())))
  assert len(k.body) == 2 and k.plain and k.apart(*k.body) and not k.apart(k.body[0], k.body[0])


# ---- variants

class Made(Program):
  """What is launched is noted."""

  def __init__(self, kernel: Kernel) -> None:
    self.kernel, self.launched = kernel, list[tuple[int, ...]]()
    self.spec = ProgramSpec(kernel_name(kernel), KernelSource(""), (1,), (1,), len(kernel.params), sizes=kernel.sizes)

  def __call__(self, buffers: Any, wait: bool = False, sizes: tuple[int, ...] = ()) -> float | None:
    self.launched.append(sizes)
    return None


class On:
  """A device of a target."""
  def __init__(self, target: Target) -> None: self.renderer = type("R", (), {"target": target})()


def sized(kernel: Kernel, target: Target, needs: tuple[UOp, ...] = ()) -> SizedProgram:
  return SizedProgram(kernel, On(target), lambda k: (Made(k), needs))  # type: ignore[arg-type]


def test_a_variant_for_wide_indices() -> None:
  """From 2**31 elements on, and a little before: the last block goes on past the end."""
  p = sized(elementwise(symbols()), Target("triton", blocks=True))
  for sizes in ((7, 9), (1000, 1001), (46341, 46341), (3, 1 << 30), (1 << 16, 1 << 15)): p([], sizes=sizes)
  assert [v.wide for v in p.variants] == [False, True, True]        # the third is for multiples of 16
  assert p.variant((46339, 46337))[0] is p.variants[1].program      # 2,147,210,243 elements
  p([], sizes=(46001, 46001))                                       # 2,116,092,001
  assert [v.wide for v in p.variants] == [False, True, True, False]
  whole = sized(MAKES["whole_sum"](symbols()), Target("triton", blocks=True))
  whole([], sizes=(1 << 20, 1 << 11))
  assert [v.wide for v in whole.variants] == [True] and all(s.wide for s in whole.variants[0].program.kernel.sizes)


def test_variants_for_multiples() -> None:
  blocks = sized(elementwise(symbols()), Target("triton", blocks=True))
  for sizes in ((7, 32), (7, 33), (9, 64)): blocks([], sizes=sizes)
  assert [v.units for v in blocks.variants] == [(1, 4), (1, 1)]       # 16 bytes of float32
  program = blocks.variants[0].program
  assert isinstance(program, Made) and program.launched == [(7, 8), (9, 16)]
  lanes = sized(elementwise(symbols()), CPU)                          # vectors begin anywhere, but those past the cache
  for sizes in ((7, 32), (7, 33), (4096, 4096), (4097, 4096), (4096, 4097)): lanes([], sizes=sizes)
  assert [v.units for v in lanes.variants] == [(1, 1), (1, UNIT), (1, 1)]   # the last for much more work


def test_nothing_is_a_multiple_of_all() -> None:
  """A size may be 0 where its bounds say so, also in a variant for multiples of 16: no proof may rest on it being 1 at least."""
  p = sized(elementwise({s: ix.Size(s, lower=0).node for s in "MN"}), Target("triton", blocks=True))
  for sizes in ((7, 32), (7, 0)): p([], sizes=sizes)
  assert [v.units for v in p.variants] == [(1, 4)] and p.variants[0].program.launched == [(7, 8), (7, 0)]  # type: ignore[attr-defined]
  assert [s.lower for s in p.variants[0].program.kernel.sizes] == [0, 0]  # type: ignore[attr-defined]


def test_a_variant_for_whole_blocks() -> None:
  """A product whose loop has whole blocks only runs without masks; at most four combinations of multiples have variants."""
  triton = renderer("triton")
  p = sized(product(symbols()), triton.target)
  def made(*sizes: int) -> Any:
    """The Variant for M, N, K."""
    program, _ = p.variant(tuple([dict(zip("MNK", sizes))[s.name] for s in p.sizes]))
    return next(v for v in p.variants if v.program is program)
  whole = made(1000, 1024, 1024)
  assert whole.blocks.loops == (0,) and whole.units[0] > 4 and whole.units[1] == 1, "K, M, N"
  k = pipeline.run_passes(pipeline.prepare(whole.program.kernel, triton.target), triton.target, "opts", "opts")
  text = triton.render("k", pipeline.finish(k, triton.target)).text
  loads = [line for line in text.splitlines() if "tl.load" in line]
  assert len(loads) == 2 and all("< K" not in line for line in text.splitlines()) and "mask" not in loads[1]
  assert made(1001, 2048, 512) is whole
  assert made(1000, 1000, 1000).units == (4, 1, 4) and made(1000, 1000, 1001).units == (1, 1, 4)   # 16 bytes of float32
  assert made(1000, 1024, 1001).units == (1, 1, 4)
  assert made(1000, 1001, 1004).units == (1, 1, 1) and made(1000, 1001, 2048).units == (1, 1, 1) and len(p.variants) == 4


def test_variants_for_much_more_work() -> None:
  """What was made for little work is not what does much of it; less work, and a few times as much, needs no other."""
  p = sized(product(symbols()), CPU)
  for n in (4, 64, 100, 512, 1200, 1024, 40): p([], sizes=(n, n, n))
  assert [v.work for v in p.variants] == [4 ** 3, 512 ** 3]
  for n, i in ((4, 0), (100, 0), (512, 1), (1024, 1), (1200, 1)): assert p.variant((n, n, n))[0] is p.variants[i].program


def test_a_sum_of_any_length_is_cut_into_parts_whose_places_fit() -> None:
  """Over two sizes that have no bounds but those of an index: parts of parts begin where an int64 says."""
  b = Builder()
  m, k = (ix.Size(s, lower=1, upper=1 << 31, hint=64).node for s in "MK")
  i = b.loop(ix.times(m, k))
  out, x, y = b.param((1,), written=True), b.param((ix.times(m, k),)), b.param((ix.times(m, k),))
  kernel = b.kernel(out.set(0, (x[i] * y[i]).sum(i))).with_(free=True)
  uops = pipeline.finish(pipeline.prepare(kernel, CPU), CPU)
  assert max(abs(u.arg) for u in uops if u.op is Ops.CONST and u.dtype.kind in "iu") < 1 << 48   # columns of a matrix come on top


def test_variants_for_what_opts_need() -> None:
  n = size("N")
  needs = (ix.lt(n, 65), ix.ge(n, 33))
  b = Builder()
  i = b.grid(n)
  k = b.kernel(b.param((n,), written=True).set(i, 1.0))
  made: list[Kernel] = []
  def make(k: Kernel) -> tuple[Program, tuple[UOp, ...]]:
    made.append(k)
    s = UOp(Ops.SIZE, ix.INT, (), k.sizes[0])
    top = 1 << (ix.hint(s) - 1).bit_length()
    return Made(k), (ix.lt(s, top + 1), ix.ge(s, top // 2 + 1))
  p = SizedProgram(k, On(Target("triton", blocks=True)), make)  # type: ignore[arg-type]
  for x in (41, 63, 33, 65, 41): p([], sizes=(x,))
  assert len(made) == 2 and len(needs) == 2


def test_a_variant_for_any_sizes() -> None:
  """What the first variant's vectors and copies do not fit is served by one that needs nothing, whatever else comes."""
  seen: list[tuple[bool, tuple[UOp, ...]]] = []
  def make(k: Kernel) -> tuple[Program, tuple[UOp, ...]]:
    parts = pipeline.run_passes(pipeline.prepare(k, CPU), CPU, "opts", "opts")
    seen.append((k.free, parts.needs))
    return Made(k), parts.needs
  p = SizedProgram(product(symbols()), On(CPU), make)  # type: ignore[arg-type]
  for sizes in ((55, 62, 10), (2, 5, 300), (300, 1, 1), (1, 300, 1), (63, 64, 65)): p([], sizes=sizes)
  assert [free for free, _ in seen] == [False, True] and seen[0][1] and not seen[1][1]


# ---- widths

def widths(kernel: Kernel, target: Target | None = None) -> dict[str, set[str]]:
  """The dtypes of the sizes and of the addresses of a kernel."""
  uops = pipeline.linearize(kernel, target)
  return {
    "sizes": {u.dtype.name for u in uops if u.op is Ops.DEFINE_VAR},
    "places": {u.src[1].dtype.name for u in uops if u.op in (Ops.LOAD, Ops.STORE)},
  }


def test_sizes_fit_32_bits_where_the_host_says_so() -> None:
  assert widths(row_sum(symbols())) == {"sizes": {"int32"}, "places": {"int32"}}
  wide = {n: size(n, wide=True) for n in "MNK"}
  assert widths(row_sum(wide)) == {"sizes": {"int64"}, "places": {"int64"}}


def test_data_of_64_bits_is_not_cut() -> None:
  """A loaded place is compared as it is: cut to 32 bits, 2**32 would be a place."""
  assert "int64" in widths(gathered(size("N")))["places"]
  oracle = get_device("NUMPY")
  uops = pipeline.linearize(gathered(size("N")))
  sizes = gathered(size("N")).sizes
  program, = oracle.compile([ProgramSpec("k", KernelSource(""), (size("N"),), (1,), 3, tuple(uops), sizes=sizes)])
  x, at = np.arange(3, dtype=np.float32) + 1, np.array([1, 1 << 32, -1], dtype=np.int64)
  raws = [oracle.alloc(n) for n in (12, 12, 24)]
  oracle.copyin(raws[1], x.view(np.uint8))
  oracle.copyin(raws[2], at.view(np.uint8))
  program(raws, sizes=(3,))
  assert oracle.copyout(raws[0], 12).view(np.float32).tolist() == [2, 0, 0]


def test_scalars_of_64_bits_where_they_cost_nothing() -> None:
  """An address is 64 bits; the numbers of a vector stay 32, for twice as many fit a register."""
  n = size("N")
  long = Target("opencl", lanes=8, long_index=True)
  lanes = UOp(Ops.VECTORIZE, ix.INT.vec(2), (ix.const(0), ix.const(1)))
  vector = UOp(Ops.ALU, ix.INT.vec(2), (ix.mul(n, 2), lanes), BinaryOps.ADD)
  out = lower_index(UOpList(vector.toposort()), long)
  assert {u.dtype.name for u in out if u.op is Ops.DEFINE_VAR} == {"int64"}
  assert out[-1].dtype == dtypes.int32.vec(2) and any(u.op is Ops.CAST and u.dtype is dtypes.int32 for u in out)
  assert widths(row_sum(symbols()), long) == {"sizes": {"int64"}, "places": {"int64"}}


@pytest.mark.parametrize("wide", [False, True])
def test_texts(wide: bool) -> None:
  n = {x: size(x, hint=100, wide=wide) for x in "MNK"}
  for name, texts in (("c", ("const int K", "const long K")), ("triton", ("tl.int32", "tl.int64"))):
    r = renderer(name)
    parts = pipeline.run_passes(pipeline.prepare(row_sum(n), r.target), r.target, "opts", "opts")
    source = r.render("k", pipeline.finish(parts, r.target))
    if name == "triton": assert [d.name for d in source.sizes] == ["int64" if wide else "int32"] * 2
    else: assert texts[wide] in source.text.replace("int64_t", "long").replace("int32_t", "int"), source.text


# ---- what is said

def test_texts_of_a_kernel() -> None:
  text = describe(centered(symbols()))
  assert "a0:M GRID, a1:K LOOP" in text and "data2(M, K).tile((1, K))" in text and kernel_name(centered(symbols())) == "r_M_K"
  units = elementwise(symbols(unit=16))
  assert "a0:M GRID, a1:N GRID" in describe(units)


@pytest.mark.parametrize("name", MAKES)
def test_descriptions_of_what_heuristics_make(name: str) -> None:
  assert describe(pipeline.run_passes(pipeline.prepare(MAKES[name](symbols(100)), CPU), CPU, "opts", "opts").kernel)


def test_work_of_a_launch() -> None:
  k = product(symbols())
  at = dict(zip((s.name for s in k.sizes), (5, 3, 4)))                # K, M, N
  spec = ProgramSpec("k", KernelSource(""), (k.axes[0].size,), (1,), 3, work=work_of(k), sizes=k.sizes)
  numbers = launched_spec(spec, (5, 3, 4))
  static = product(at)
  assert (numbers.work, numbers.grid) == (work_of(static), (3,)) and grid_text(numbers) == "3"
  assert launched_spec(spec).work == work_of(product({"M": 16, "N": 16, "K": 16})) and grid_text(spec) == "M"
