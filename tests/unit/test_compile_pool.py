"""Worker processes: what they build is what is built here, and what they cannot do is done here."""
from __future__ import annotations

import operator
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Iterator

import numpy as np
import pytest

from ntgrad import Tensor
from ntgrad.backends import workers
from ntgrad.backends.base import KernelSource, Program, ProgramSpec
from ntgrad.backends.cuda import compiler
from ntgrad.backends.cuda.compiler import Request
from ntgrad.backends.cuda.renderer import TritonRenderer
from ntgrad.backends.opencl.compiler import Unit
from ntgrad.codegen.ir.config import config
from ntgrad.codegen.ir.errors import CompileError
from ntgrad.engine import compile as programs, plan_cache
from ntgrad.engine.device import get_device
from ntgrad.engine.plan import Plan, Step
from ntgrad.schedule import create_schedule
from support import triton
from support.marks import long
from support.triton_kernels import kernels, lines

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ("import triton\nimport triton.language as tl\n\n\n# data0: *fp32\n@triton.jit\ndef k{0}(data0):\n"
          "  r0 = tl.arange(0, 64)\n  tl.store(data0 + r0, tl.load(data0 + r0)*{1})\n")


class Call(workers.Job):
  """A call of a function."""

  def __init__(self, *call: Any):
    super().__init__()
    self.call = call

  def work(self) -> workers.Work: return self.call[0], self.call[1:]


def until(what: Callable[[], object], seconds: float = 20.0) -> None:
  """Wait for something that must come to be."""
  end = time.monotonic() + seconds
  while not what():
    assert time.monotonic() < end, "it has not come to be"
    time.sleep(0.01)


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None: monkeypatch.setattr(workers, "_lost", 0)


@pytest.fixture(scope="module", autouse=True)
def stopped() -> Iterator[None]:
  yield
  workers.stop()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[None]:
  """This process and one more, with a disk cache of their own."""
  with config(workers=2, cache=1, cache_dir=str(tmp_path)): yield


def request(i: int, factor: object = 2, **more: Any) -> Request:
  source = triton.module(SOURCE.format(i, factor))
  return Request(**{**dict(source=source, name=f"k{i}", target="sm_90", num_warps=4, num_stages=3, shared=200_000), **more})


# ---- the queue

def test_order(two: None) -> None:
  """This process takes the first, a worker the last; jobs that nobody holds are not built."""
  queue = workers.Queue(None)   # no workers yet
  jobs = [Call(operator.add, i, 1) for i in range(5)]
  for j in jobs: queue.add(j)
  del jobs[3], j
  assert [j.call[1] for j in queue.waiting()] == [0, 1, 2, 4]  # type: ignore[attr-defined]
  with queue.claim(jobs[0]) as mine: assert mine and jobs[0].taken
  with queue.claim(jobs[0]) as mine: assert not mine
  queue.many = 0.0
  queue.serve()
  until(lambda: all(j.answer for j in jobs[1:]))
  assert [j.answer for j in jobs] == [None, 2, 3, 5] and not queue.waiting()
  with queue.claim(jobs[1]) as mine: assert mine and not jobs[1].done
  assert jobs[1].done


def test_failing_here_is_no_end() -> None:
  queue = workers.Queue(None)
  job = Call()
  queue.add(job)
  for _ in range(2):
    with pytest.raises(KeyError):
      with queue.claim(job): raise KeyError
    assert not job.taken and not job.done
  with queue.claim(job) as mine: assert mine


def test_few_jobs_start_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
  workers.stop()
  started: list[int] = []
  monkeypatch.setattr(workers, "Worker", lambda: started.append(1) or pytest.fail("started"))
  queue = workers.Queue(8)
  jobs = [Call(operator.add, i, 1) for i in range(20)]
  for j in jobs[:8]: queue.add(j)
  with config(workers=0): queue.serve()
  for j in jobs[8:]: queue.add(j)
  with config(workers=1): queue.serve()
  queue.many = None
  with config(workers=4): queue.serve()
  assert not started


def test_a_worker_dies(two: None) -> None:
  """Its job is built here; after some deaths there are no more workers."""
  workers.stop()
  queue = workers.Queue(0)
  for n in range(1, workers.LOST + 1):
    jobs = [Call(operator.add, 1, 1), Call(os._exit, 1)]
    for j in jobs: queue.add(j)
    queue.serve()
    assert workers.alive()
    until(lambda: jobs[1].here)   # noqa: B023
    with queue.claim(jobs[1]) as mine: assert mine and jobs[1].answer is None
    with queue.claim(jobs[0]): pass
    assert workers._lost == n
  queue.add(jobs[0])
  queue.serve()
  assert not workers.alive()


def test_answers(two: None, capfd: pytest.CaptureFixture[str]) -> None:
  """An error of another kind than CompileError says nothing of the kernel: it is built here. Nothing that is printed is seen."""
  queue = workers.Queue(0)
  shout, bad, refused = Call(print, "hello"), Call(operator.truediv, 1, 0), Call(compiler.capability, "gfx90a")
  for j in (shout, bad, refused): queue.add(j)
  queue.serve()
  until(lambda: refused.here and bad.here and not shout.taken and not queue.waiting())
  assert not bad.refused and "expected sm_ and a number" in refused.refused and not shout.here
  assert workers.once((operator.add, (1, 2))) == 3
  with pytest.raises(CompileError, match="ZeroDivisionError"): workers.once((operator.truediv, (1, 0)))
  with pytest.raises(CompileError, match="the process that compiles ended"): workers.once((os._exit, (1,)))
  assert capfd.readouterr() == ("", "")


def _modules() -> tuple[list[str], float, list[str]]:
  """The parts of ntgrad that a worker has, before and after it asks the package for something of its own."""
  before = [m for m in sys.modules if m.startswith("ntgrad.")]
  import ntgrad
  return before, float(ntgrad.Tensor([2.0], device="NUMPY").sum().item()), [m for m in sys.modules if m.startswith("ntgrad.")]


def test_workers_do_without_tensors(two: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  """A worker starts with the parts that compile; what a job asks the package for is there all the same."""
  code = Path(__file__).read_text().split("def _modules()")[1].split("\n\n\n")[0]
  (tmp_path / "asks.py").write_text(f"import sys\n\n\ndef _modules(){code}\n")
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.setenv("PYTHONPATH", str(tmp_path))
  before, value, after = workers.once((__import__("asks")._modules, ()))
  assert "ntgrad.codegen.ir" in before and not [m for m in before if m.startswith("ntgrad.tensor")]
  assert value == 2 and "ntgrad.tensor" in after


@long
def test_idle_workers_end(two: None, monkeypatch: pytest.MonkeyPatch) -> None:
  workers.stop()
  monkeypatch.setattr(workers, "IDLE", 0.05)
  queue = workers.Queue(0)
  job = Call(operator.add, 1, 2)
  queue.add(job)
  queue.serve()
  worker, = workers._workers
  until(lambda: job.answer == 3 and worker.poll() == 0)
  assert not workers.alive()


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)", "raise SystemExit"])
def test_no_worker_outlives_the_parent(end: str) -> None:
  """Not even one that is at work."""
  code = ("import os, sys, time\nfrom ntgrad.backends import workers as pool\nq = pool.Queue(0)\n"
          "class Long(pool.Job):\n  def work(self): return time.sleep, (60,)\n"
          "jobs = [Long(), Long()]\nfor j in jobs: q.add(j)\nq.serve()\nwhile not jobs[1].taken: time.sleep(0.01)\n"
          f"time.sleep(0.5)\nprint(pool._workers[0].pid, flush=True)\n{end}\n")
  done = subprocess.run(
    [sys.executable, "-c", code],
    env={**os.environ, "WORKERS": "2", "PYTHONPATH": str(ROOT)},
    capture_output=True,
    text=True,
    timeout=60,
    check=False,
  )
  pid = int(done.stdout)
  def gone() -> bool:
    try: return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError: return True
  until(gone, 10)


# ---- Triton's kernels

@long
@triton.needs_triton
def test_workers_make_the_same(two: None, monkeypatch: pytest.MonkeyPatch) -> None:
  """The same binaries as this process, with fewer stages where they do not fit; and they are on the disk then, for the next."""
  (k,), fits = kernels("matmul_half"), 20_000
  source = TritonRenderer().render("matmul_half", lines(k))
  more = [request(i, 2.5) for i in range(4)]
  requests = [*more, Request(source, "matmul_half", "sm_90", 4, 3, fits), request(9, "tl.nothing")]
  units = compiler.ahead(requests)
  assert workers.alive() and compiler.ahead(requests) == units
  until(lambda: all(not u.taken and (u.answer or u.refused) for u in units), 60)
  with monkeypatch.context() as m:
    m.setattr(compiler, "build", lambda *a: pytest.fail("compiled here"))
    made = [compiler.finished(r) for r in requests[:-1]]
    for _ in range(2):
      with pytest.raises(CompileError, match="kernel k9 for sm_90: "): compiler.finished(requests[-1])
    again = compiler.ahead(requests[:-1])
  with config(cache=0): here = [r.fitting(compiler.build) for r in requests[:-1]]
  assert made == here and 0 < made[-1].shared <= fits
  units.clear()
  workers.stop()
  monkeypatch.setattr(workers, "Worker", lambda: pytest.fail("a worker for what is on the disk"))
  assert [u.binary for u in again] == made
  again.clear()
  found = compiler.ahead(requests[:-1])
  assert [u.binary for u in found] == made and all(u.done for u in found)
  assert [compiler.finished(r) for r in requests[:-1]] == made


@triton.needs_triton
def test_without_workers(tmp_path: Path) -> None:
  """Built when it is needed, in whichever order."""
  workers.stop()
  with config(workers=1, cache_dir=str(tmp_path)):
    units = compiler.ahead([request(20), request(21), request(22, "tl.nothing")])
    assert not workers.alive() and not any(u.done for u in units)
    assert [compiler.finished(request(i)).name for i in (21, 20)] == ["k21", "k20"]
    for _ in range(2):
      with pytest.raises(CompileError, match="kernel k22 for sm_90: "): compiler.finished(request(22, "tl.nothing"))
    assert compiler.finished(request(23)).name == "k23"   # never in the queue


# ---- who keeps and who knows

def test_plans_keep_options(monkeypatch: pytest.MonkeyPatch) -> None:
  """Two kernels that differ in nothing else are two, also in another process."""
  class Made(Program):
    def __init__(self, spec: ProgramSpec) -> None: self.spec = spec
  device = SimpleNamespace(name="D", compile=lambda specs: [Made(s) for s in specs])
  monkeypatch.setattr(plan_cache, "get_device", lambda name: device)
  specs = [ProgramSpec("k", KernelSource("source"), (1,), (1,), 1, options=(("num_warps", n),)) for n in (4, 8)]
  with config(cache=1):
    plan_cache.store_plan("0" * 64, Plan(1, (), tuple(Step(p, (0,), (0,), (), "D") for p in device.compile(specs)), ()))
    plan = plan_cache.load_plan("0" * 64)
  assert plan is not None and [s.program.spec for s in plan.steps] == specs  # type: ignore[union-attr]


def test_tf32_has_kernels_of_its_own() -> None:
  before = config.key()
  with config(allow_tf32=1): assert config.key() != before
  k, = kernels("matmul_float")
  renderer, asked, never = TritonRenderer(), TritonRenderer(allow_tf32=True), TritonRenderer(allow_tf32=False)
  for setting, want in ((0, ("ieee", "tf32", "ieee")), (1, ("tf32", "tf32", "ieee"))):
    with config(allow_tf32=setting):
      for r, precision in zip((renderer, asked, never), want):
        assert f'input_precision="{precision}"' in r.render("k", lines(k)).text


def test_the_cpu_path_imports_neither_triton_nor_bars() -> None:
  code = (
    "import sys\nfrom ntgrad import Tensor\nprint((Tensor([1.0], device='NUMPY') + 1).tolist())\n"
    "import ntgrad.backends.opencl.compiler\nprint([m for m in sys.modules if m.split('.')[0] in ('triton', 'cuda', 'tqdm')])"
  )
  done = subprocess.run(
    [sys.executable, "-c", code],
    env={**os.environ, "PYTHONPATH": str(ROOT)},
    capture_output=True,
    text=True,
    timeout=120,
    check=True,
  )
  assert done.stdout == "[2.0]\n[]\n"


# ---- whole kernels

def several(device: str) -> list[Tensor]:
  """Kernels of two kinds, each of another size."""
  rng = np.random.default_rng(0)
  x = [Tensor(rng.integers(-3, 4, (n, 17)).astype(np.float32), device=device) for n in range(40, 46)]
  return [y for a in x for y in ((a * 2).exp().sum(1), a @ a.T)]


@pytest.mark.parametrize("name", ["CPU", "NUMPY"])
def test_workers_make_the_same_source(name: str, two: None, monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(programs, "MANY_KERNELS", 2)
  monkeypatch.setattr(programs, "needs_parts", lambda: True)
  device = get_device(name)
  kernels = dict(enumerate([i.ast for i in create_schedule(several(name)) if i.ast is not None]))
  alone = {i: programs.program_spec(k, device) for i, k in kernels.items()}   # functions are tested here
  with config(noopt=1): plain = programs.program_spec(kernels[0], device)
  for noopt, wanted in ((0, alone), (1, {0: plain})):
    with config(noopt=noopt): jobs = programs.made_by_workers(kernels, device)
    until(lambda: all(j.answer or j.here for j, _ in jobs.values()))   # noqa: B023
    for i, made in wanted.items():
      job, at = jobs[i]
      (made_there, built), want = job.answer, made.spec
      answer = made_there[at]
      got = answer.spec
      assert (built is not None) is (device.builds_anywhere() is not None)
      assert (got.source, got.grid, got.options, got.work) == (want.source, want.grid, want.options, want.work)
      assert answer.needs == made.needs and answer.parts.kernel.applied == made.parts.kernel.applied and not answer.refusals


def test_programs_of_workers(two: None, monkeypatch: pytest.MonkeyPatch) -> None:
  """They compute what those of this process do; what no worker can do is done here."""
  want = [t.numpy() for t in several("NUMPY")]
  monkeypatch.setattr(programs, "MANY_KERNELS", 2)
  with config(dynamic="never"):
    outs = [t * 3 for t in several("NUMPY")]   # which runs the UOps that a worker has made
    Tensor.realize(*outs)
    for got, w in zip(outs, want): np.testing.assert_allclose(got.numpy(), w * 3, 1e-5)
    for got, w in zip(several("CPU"), want): np.testing.assert_allclose(got.numpy(), w, 1e-5)
    outs = several("CPU")
    Tensor.realize(*outs)
    for got, w in zip(outs, want): np.testing.assert_allclose(got.numpy(), w, 1e-5)
    monkeypatch.setattr(programs, "_made", os._exit)
    outs = [t + 1 for t in several("CPU")]
    Tensor.realize(*outs)
    for got, w in zip(outs, want): np.testing.assert_allclose(got.numpy(), w + 1, 1e-5)


@long
def test_an_answer_that_is_loaded_already() -> None:
  """An interrupt may come after a worker's answer was loaded, and before it was stored on disk."""
  device = get_device("CPU")
  unit = Unit(program=object(), files=None)
  assert device.compiler.take_answer(unit) and unit.launched   # type: ignore[attr-defined]
  assert not device.compiler.take_answer(Unit())   # type: ignore[attr-defined]
