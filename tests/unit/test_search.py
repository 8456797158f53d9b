"""``BEAM=n``: what is found computes the same, is never slower than the start, and is found again on disk."""
from __future__ import annotations

from pathlib import Path
from typing import Any, Sequence

import numpy as np
import pytest

from ntgrad import Tensor, config
from ntgrad.backends.base import Device, KernelSource, Program, ProgramSpec
from ntgrad.backends.numpy.device import NumpyDevice
from ntgrad.codegen import pipeline
from ntgrad.codegen.choose.cpu import optimize
from ntgrad.codegen.ir.errors import ArgumentError, DeviceError
from ntgrad.codegen.ir.target import Target
from ntgrad.codegen.ir.uop import prod
from ntgrad.codegen.kernel import AxisKind, Kernel
from ntgrad.codegen.opts import Warps
from ntgrad.codegen.passes.parts import Parts
from ntgrad.engine import measuring, search
from ntgrad.engine.compile import extent, rendered
from ntgrad.engine.device import default_device, get_device
from ntgrad.schedule import create_schedule
from support import triton
from support.kernels import launch, spec
from support.marks import long
from support.statements import Builder, while_

E = Tensor.empty


def kernel(t: Tensor) -> Kernel:
  k = create_schedule([t])[-1].ast
  assert k is not None
  return k


def best(k: Kernel, device: Device) -> Kernel: return search.best(Parts.of(k), device, "k", rendered).kernel


class Timed(Program):
  """A program that takes as long as its device says."""

  def __init__(self, device: Stopwatch, spec: ProgramSpec, real: Program): self.device, self.spec, self.real = device, spec, real
  def __call__(self, buffers: Sequence[Any], wait: bool = False) -> float | None:
    self.device.launches += 1
    if self.spec.options in self.device.broken: raise DeviceError("out of registers")
    self.real(buffers)
    if self.spec.options in self.device.wrong: buffers[0][:] = 1
    return self.device.seconds(self.spec) if wait else None


class Stopwatch(NumpyDevice):
  """Runs kernels without their Opts, with numpy; a kernel is the faster the fewer programs it has and the more warps it is
  told."""

  def __init__(self, plain: Kernel):
    super().__init__()
    from ntgrad.backends.cuda.renderer import TritonRenderer
    self.renderer, self.launches = TritonRenderer(), 0
    self.real, = super().compile([spec(plain, "k")])
    self.wrong: set[Any] = set()
    self.broken: set[Any] = set()
  def compile(self, specs: Sequence[ProgramSpec]) -> list[Program]: return [Timed(self, s, self.real) for s in specs]
  def seconds(self, s: ProgramSpec) -> float: return prod(s.grid) * 1e-6 / dict(s.options).get("num_warps", 4)


@pytest.fixture(autouse=True)
def _kept(tmp_path: Path) -> Any:
  with config(cache=1, cache_dir=str(tmp_path), beam=2): yield


@long
def test_it_finds_what_is_fast_and_keeps_it() -> None:
  k = kernel(E(64, 512, device="NUMPY") + 1)
  device = Stopwatch(k)
  found = best(k, device)
  assert Warps(16) in found.applied and extent(found, AxisKind.GRID) == (1, 1, 1)
  done = device.launches
  assert best(k, device).applied == found.applied and device.launches == done
  device.identity = "the same device after an update of its driver"
  assert best(k, device).applied == found.applied and device.launches > done
  done = device.launches
  assert best(kernel(E(64, 512, device="NUMPY") + 2), device).applied and device.launches > done


def test_wrong_and_broken_candidates_are_left_out() -> None:
  k = kernel(E(64, 512, device="NUMPY") + 1)
  device = Stopwatch(k)
  device.wrong, device.broken = {(("num_warps", 16),)}, {(("num_warps", 8),)}
  assert not {Warps(16), Warps(8)} & set(best(k, device).applied)


@pytest.mark.parametrize("on_disk", [1, 0])
def test_what_a_search_has_found_is_kept_on_ctrl_c(on_disk: int, monkeypatch: pytest.MonkeyPatch) -> None:
  k = kernel(E(64, 512, device="NUMPY") + 1 + on_disk)
  device, times = Stopwatch(k), [5e-6, 3e-6, 4e-6]
  def measure(*_: Any) -> float:
    if not times: raise KeyboardInterrupt
    return times.pop(0)
  tried: list[Any] = []
  real = search.candidates_of
  monkeypatch.setattr(search, "candidates_of", lambda d, specs: tried.extend(specs) or real(d, specs))
  monkeypatch.setattr(search.Bench, "measure", measure)
  with config(cache=on_disk):
    with pytest.raises(KeyboardInterrupt): best(k, device)
    assert not times and len(tried) > 3
    found = best(k, device)
    search._kept.clear()   # as in another process
    if on_disk: assert best(k, device).applied == found.applied
    else:
      with pytest.raises(KeyboardInterrupt): best(k, device)
  with config(cache=0): assert spec(found, "k").grid == tried[1].grid and spec(found, "k").options == tried[1].options


@long
def test_a_damaged_entry_is_searched_anew(monkeypatch: pytest.MonkeyPatch) -> None:
  k = kernel(E(64, 512, device="NUMPY") + 1)
  device = Stopwatch(k)
  found = best(k, device)
  for damage in (b"[", b"7", b"[]", b"[[{}]]", b'[[["Block", 7, 64]]]', b'[[["overlap", 0, 8]]]',
                 b'[[["Block", "0", 64]]]'):
    monkeypatch.setattr(search.cache, "load", lambda *a, damage=damage: damage if a[0] == "beam" else None)
    assert best(k, device).applied == found.applied


def test_no_time() -> None:
  """The model's choice, where nothing can be measured."""
  k = kernel(E(64, 512, device="NUMPY") + 1)
  device = Stopwatch(k)
  device.broken = {()}
  assert best(k, device).applied == optimize(k, device.renderer.target).applied


def test_a_trial_compares() -> None:
  k = kernel(E(16, device="NUMPY") + 1)
  device = Stopwatch(k)
  buffers = [search.contents("NUMPY", p) for p in k.params]
  memory = [measuring.CandidateMemory(b.nbytes, b.dtype, b.raw, p.written) for b, p in zip(buffers, k.params)]
  bench = measuring.Bench(device, memory)
  good, bad = device.compile([spec(k, "k"), ProgramSpec("k", KernelSource(""), (1,), (1,), 2, options=(("num_warps", 2),))])
  bench.reference(good)
  assert bench.measure(good) == 1e-6 / 4 * 16
  device.wrong = {(("num_warps", 2),)}
  with pytest.raises(ArgumentError, match="16 of 16 results differ"): bench.measure(bad)


@pytest.mark.skipif(default_device() != "CPU", reason="no OpenCL device")
def test_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(search, "BUDGET", 3.0)
  found: list[Parts] = []
  real = search.search_opts
  monkeypatch.setattr(search, "search_opts", lambda *a: found.append(real(*a)) or found[-1])
  rng = np.random.default_rng(0)
  a, b = rng.random((40, 48), np.float32), rng.random((48, 56), np.float32)
  np.testing.assert_allclose((Tensor(a, device="CPU") @ Tensor(b, device="CPU")).numpy(), a @ b, rtol=1e-5)
  assert len(found) == 1 and found[0].kernel.applied


@triton.needs_triton
def test_every_step_is_legal_or_refused() -> None:
  """All that one step leads to computes what the start does."""
  k = kernel(E(20, 24) @ E(24, 40))
  device = get_device(triton.NAME)
  start = optimize(k, device.renderer.target)
  rng = np.random.default_rng(0)
  data = [rng.integers(-3, 4, p.shape).astype(p.dtype.np) for p in k.params]
  want = launch(get_device("NUMPY"), [spec(k, "k")], k, data)[0][0]
  done = 0
  for opts in search.neighbours(Parts.of(start), device.renderer.target):
    try:
      now = Parts.of(k).after(opts).kernel
      got = launch(device, [spec(now, "k")], k, data)[0][0]
    except search.NtgradError: continue   # refused, also by the compiler: blocks of too many elements
    np.testing.assert_array_equal(got, want, err_msg=str(opts))
    done += 1
  assert done > 10


def statements() -> Kernel:
  """t = x summed over rows of 8, then y = x - t: two statements, over a grid of 3."""
  b = Builder()
  g, i, j = b.grid(3), b.tile(16), b.tile(8)
  out, x, t = b.param((3, 16, 8), written=True), b.param((3, 16, 8)), b.variable((16,))
  return b.kernel(t.set(i, x[g, i, j].sum(j)), out.set((g, i, j), x[g, i, j] - t[i]))


def test_statements_have_opts_of_their_own() -> None:
  """One step changes the Opts of one statement; all that apply compute the same."""
  k, target = statements(), Target("lanes", lanes=8, cores=2, local_memory=1 << 20)
  parts = pipeline.prepare(k, target)
  start = pipeline.run_passes(parts, target, "opts", "opts")
  assert search.measurable(parts, target) and sum(map(bool, start.opts)) == 2
  data = [np.zeros((3, 16, 8), np.float32), np.random.default_rng(0).integers(-4, 5, (3, 16, 8)).astype(np.float32)]
  want = data[1] - data[1].sum(2, keepdims=True)
  done = set()
  for opts in search.neighbours(start, target):
    assert sum(a != b for a, b in zip(opts, start.opts)) == 1
    try: now = parts.after(opts)
    except search.NtgradError: continue
    uops = pipeline.finish(now, target)
    program, = NumpyDevice().compile([ProgramSpec("k", KernelSource(""), (3, 1, 1), (1, 1, 1), 2, tuple(uops))])
    raws = [a.copy().reshape(-1).view(np.uint8) for a in data]
    program(raws)
    np.testing.assert_array_equal(raws[0].view(np.float32).reshape(want.shape), want, err_msg=str(opts))
    done.add(next(i for i, (a, b) in enumerate(zip(opts, start.opts)) if a != b))
  assert done == {0, 1}


def test_a_loop_that_data_ends_is_not_run_on_made_up_numbers() -> None:
  b = Builder()
  g = b.grid(2)
  out, x, n = b.param((2,), written=True), b.param((2,)), b.variable()
  k = b.kernel(n.set((), x[g]), while_(n[()] > 1, n.set((), n[()] * 0.5)), out.set(g, n[()]))
  target = Target("lanes", lanes=8, cores=2)
  assert not search.measurable(pipeline.prepare(k, target), target)


@pytest.mark.skipif(default_device() != "CPU", reason="no OpenCL device")
def test_statements_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(search, "BUDGET", 3.0)
  k, device = statements(), get_device("CPU")
  parts = pipeline.prepare(k, device.renderer.target)
  found = search.best(parts, device, "k", rendered)
  assert len(found.opts) == len(parts.opts) and search.best(parts, device, "k", rendered).opts == found.opts
