"""What is chosen applies: ways that a kernel refuses are dropped and counted, products on many CPUs refuse none and fit local
memory, and a program is launched with the sizes that it takes."""
from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Callable

import pytest

from ntgrad import Tensor, config
from ntgrad.backends.base import Program, ProgramSpec
from ntgrad.backends.opencl.renderer import OpenCLRenderer
from ntgrad.codegen import index as ix, pipeline
from ntgrad.codegen.choose.candidates import first, refusals
from ntgrad.codegen.choose.chooser import choose
from ntgrad.codegen.choose.cpu_panels import local_bytes
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.target import Target
from ntgrad.codegen.ir.uop import Ops, UOp
from ntgrad.codegen.kernel import Axis, AxisKind, Kernel, Param
from ntgrad.codegen.opts import CacheRead, Vectorize
from ntgrad.codegen.passes.parts import Parts
from ntgrad.engine.compile import Elsewhere, rendered
from ntgrad.engine.size_variants import SizedProgram
from ntgrad.schedule import create_schedule

E = Tensor.empty
SMALL = Target("opencl", lanes=8, registers=16, cores=1, local_memory=64 << 10, core_cache=256 << 10, long_index=True)
MACHINES = [SMALL, replace(SMALL, cores=4, local_memory=512 << 10, core_cache=1 << 20),
            replace(SMALL, cores=16, lanes=16, registers=32, core_cache=2 << 20), replace(SMALL, cores=3, lanes=4)]


def kernel(t: Tensor) -> Kernel:
  k = create_schedule([t])[-1].ast
  assert k is not None
  return k


def test_a_way_that_is_refused_is_dropped_counted_and_said(capsys: pytest.CaptureFixture[str]) -> None:
  k = kernel(E(10, 32) * 2)
  odd, even = Vectorize(0, 3), Vectorize(1, 8)
  with config(debug=1): made = first(k, [lambda k: None, odd.apply, even.apply])
  assert made.applied == (even,), "the next one is taken"
  assert len(refusals) == 1 and "a0.vectorize(3): 3 does not divide" in str(refusals[0])
  assert str(refusals[0]) in capsys.readouterr().out
  assert first(k, [odd.apply, lambda k: None]) is k, "plain loops always apply"
  assert len(refusals) == 2
  refusals.clear()


# products whose factors lie so that panels, packed rows, loops over both are chosen, at sizes that leave a last round shorter
PRODUCTS: dict[str, Callable[[int, int, int], Tensor]] = {
  "rows far apart": lambda m, n, k: E(k, m).T @ E(k, n),
  "a factor without an axis of the sum": lambda m, n, k: (E(k, 1, m, 1) * E(k, 3, 1, n)).sum((0, 1)),
  "the other factor without it": lambda m, n, k: (E(k, 3, m, 1) * E(k, 1, 1, n)).sum((0, 1)),
  "a gate that varies further": lambda m, n, k: (
    E(k, m).reshape(k, 1, m, 1) * E(k, n).reshape(k, 1, 1, n).pad((0, 0, 0, 0, 1, 1))).sum((0, 1)),
  "one matrix twice": lambda m, n, k: (lambda x: x.T @ x)(E(k, m)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_what_is_chosen_for_products_applies(name: str) -> None:
  """The fixture of all tests fails for one that is dropped."""
  for target, (m, n, k) in itertools.product(MACHINES, ((96, 256, 64), (256, 64, 97), (352, 300, 256), (1000, 176, 64))):
    chosen = pipeline.run_passes(pipeline.prepare(kernel(PRODUCTS[name](m, n, k)), target), target, "opts", "opts")
    assert chosen.kernel.applied and local_bytes(chosen.kernel) <= target.local_memory


def test_a_copy_of_rows_goes_along_what_they_vary_with() -> None:
  """The gradient of a convolution whose filters do not overlap: rows of a matrix that two of the three axes of the sum leave."""
  target = replace(SMALL, cores=2, local_memory=512 << 10, core_cache=1 << 20)
  k = kernel((E(16, 1, 1, 128, 1) * E(16, 4, 4, 1, 512)).sum((0, 1, 2)))
  reads = [o for o in choose(Parts.of(k), target).kernel.applied if isinstance(o, CacheRead)]
  assert {o.param for o in reads} == {1, 2}


def test_local_memory_has_room_for_parts_of_a_sum() -> None:
  """Long sums become sums of sums, whose copies have room for whole parts: 5 times 97 as 6 times 97."""
  x = E(5, 97, 128).permute(2, 0, 1).reshape(128, 1, 5, 97)
  k = kernel((x * E(1, 16, 5, 97)).sum((2, 3)))
  for target in MACHINES:
    chosen = pipeline.run_passes(pipeline.prepare(k, target), target, "opts", "opts")
    taken = local_bytes(chosen.kernel)
    uops = pipeline.finish(chosen, target)
    assert sum(u.arg[1] * u.dtype.itemsize for u in uops if u.op is Ops.DEFINE_LOCAL) == taken <= target.local_memory


def test_a_program_is_launched_with_the_sizes_that_it_takes() -> None:
  """What vanishes where a size is a multiple (N % 4 * M) is no argument of that variant, whose launch does not give it."""
  n, m = (ix.Size(s, lower=1, hint=8) for s in "NM")
  a = Axis(0, n.node, AxisKind.GRID)
  out, x = Param(0, (n.node, n.node), dtypes.float32, True), Param(1, (n.node, n.node), dtypes.float32, False)
  at = ix.add(a.rng, ix.mul(ix.mod(n.node, 4), m.node))
  def index(i: UOp) -> UOp: return UOp(Ops.INDEX, ix.INT, (ix.ZERO, i))
  value = UOp(Ops.LOAD, dtypes.float32, (x.uop, index(at), ix.lt(at, n.node)))
  k = Kernel((out, x), (a,), (UOp(Ops.STORE, dtypes.float32, (out.uop, index(a.rng), value)),))
  assert [s.name for s in k.sizes] == ["M", "N"]
  device = Elsewhere("CPU", OpenCLRenderer(replace(SMALL, blocks=False, stream=0)))
  launched: list[tuple[ProgramSpec, tuple[int, ...]]] = []
  class Made(Program):
    def __init__(self, spec: ProgramSpec): self.spec = spec
  def make(k: Kernel) -> tuple[Program, tuple[UOp, ...]]:
    parts = pipeline.prepare(k, device.renderer.target)
    spec, needs = rendered(parts.kernel, pipeline.run_passes(parts, device.renderer.target, "opts", "opts"), device, "k")
    return Made(spec), needs
  program = SizedProgram(k, device, make)   # type: ignore[arg-type]
  for sizes in ((3, 16), (3, 17), (5, 32)):
    found, given = program.variant(sizes)
    assert isinstance(found, Made) and len(given) == len(found.spec.sizes) == len(found.spec.source.sizes)
    launched.append((found.spec, given))
  assert [given for _, given in launched] == [(1,), (3, 17), (2,)]
