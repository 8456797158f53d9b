"""Kernels that are built quickly first, and optimised ones that take over."""
from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Iterator

import numpy as np
import pytest

from ntgrad import Tensor, config
from ntgrad.backends import cache, workers
from ntgrad.backends.opencl import tiers
from ntgrad.backends.opencl.device import OpenCLDevice
from ntgrad.engine.compile import from_specs
from ntgrad.engine.device import get_device
from ntgrad.errors import DeviceError
from support.devices import missing
from support.marks import long

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(bool(missing("CPU")), reason=missing("CPU"))

# a step with convolutions, reductions, a tile kernel, an optimizer; plain and captured
SCRIPT = """
import os, signal, sys, time
import numpy as np
import ntgrad
from ntgrad import nn, Tensor
from ntgrad.backends import workers
from ntgrad.engine.device import get_device
import ntgrad.nn.functional as F

ntgrad.manual_seed(0)
m = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(96, 10))
rnn = nn.LSTM(3, 5, batch_first=True)
opt = ntgrad.optim.Adam([*m.parameters(), *rnn.parameters()], lr=1e-2)
x = Tensor(np.random.default_rng(0).standard_normal((8, 1, 8, 8), np.float32))
y, z = Tensor(np.arange(8) % 10), Tensor(np.random.default_rng(1).standard_normal((8, 7, 3), np.float32))
def step(x, y, z):
  opt.zero_grad()
  loss = F.cross_entropy(m(x), y) + rnn(z)[0].square().mean()
  loss.backward()
  opt.step()
  return loss
captured = ntgrad.jit(step)
device = get_device("CPU")
def said(what): print(what, file=sys.stderr)
def quick(): return sum([p.quick for p in device.programs])
m.train()
"""
STEPS = """
losses = [step(x, y, z).item() for _ in range(3)]
said(f"quick {quick()}")
losses += [captured(x, y, z).item() for _ in range(12)]
ntgrad.Device.optimise()
said(f"left {quick()} replaced {device.replaced} built {device.compiler.built}")
losses += [captured(x, y, z).item() for _ in range(3)] + [step(x, y, z).item() for _ in range(3)]
print([n.hex() for n in losses])
"""


def run(code: str, folder: Path, **env: str) -> tuple[str, dict[str, int]]:
  """What a script prints, and the numbers that it says by name."""
  done = subprocess.run([sys.executable, "-c", SCRIPT + code], capture_output=True, text=True, timeout=300, check=False, env={
    **os.environ, "PYTHONPATH": str(ROOT), "CACHE_DIR": str(folder), "WORKERS": "2", "TIERS": "auto", "DEV": "CPU", **env})
  assert done.returncode == 0, done.stderr
  words = done.stderr.split()
  return done.stdout, {a: int(b) for a, b in zip(words, words[1:]) if b.isdigit()}


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
  """What the script prints with kernels that are optimised at once, and the disk cache of a run with both tiers."""
  folder = tmp_path_factory.mktemp("cold")
  want, numbers = run(STEPS, folder / "one", TIERS="0")
  assert numbers["quick"] == numbers["replaced"] == 0
  got, numbers = run(STEPS, folder / "two")
  if not numbers["quick"]: pytest.skip("this driver has one tier")
  assert numbers["left"] == 0 < numbers["replaced"]
  assert got == want, "other bits"
  return want, folder / "two"


@long
def test_optimised_kernels_take_over_with_the_same_bits(cold: tuple[str, Path]) -> None: assert cold


@long
def test_a_second_start_finds_what_was_optimised(cold: tuple[str, Path]) -> None:
  got, numbers = run(STEPS, cold[1])
  assert got == cold[0] and numbers["quick"] == numbers["replaced"] == numbers["built"] == 0, numbers


@long
def test_what_runs_once_is_built_once(tmp_path: Path) -> None:
  """Nothing is optimised after two steps; a second start finds the quick builds."""
  code = """
print([step(x, y, z).item().hex() for _ in range(2)])
said(f"quick {quick()} asked {len(device.compiler.optimising)} built {device.compiler.built}")
"""
  first, numbers = run(code, tmp_path)
  assert numbers["quick"] > 0 == numbers["asked"] and numbers["built"], numbers
  second, numbers = run(code, tmp_path)
  assert second == first and numbers["quick"] > 0 == numbers["asked"] == numbers["built"], numbers


@long
@pytest.mark.parametrize("sizes", [(8,), (5, 6, 7)])
def test_what_takes_long_is_optimised(sizes: tuple[int, ...], tmp_path: Path) -> None:
  """Kernels are built again once their quick code has taken some time, also where sizes change with each call."""
  found, numbers = run(f"""
from ntgrad.backends.opencl import program, threads
threads.WORTH_OPTIMISING = program.WORTH_OPTIMISING = threads.ALL_WORTH_OPTIMISING = 1e-3
asked = calls = 0
while not asked and calls < 300:
  n = {sizes}[calls % {len(sizes)}]
  captured(x[:n], y[:n], z[:n]).item()
  asked, calls = asked + len(device.compiler.optimising) + device.replaced, calls + 1
said(f"quick {{quick()}} asked {{asked}} calls {{calls}}")
""", tmp_path)
  assert numbers["asked"], numbers


@long
def test_some_of_a_program_are_optimised(tmp_path: Path) -> None:
  """Kernels that were built in one program with one that is optimised now stay on disk."""
  run("""
step(x, y, z).item()
device.compiler.save()
one = max([p for p in device.programs if p.quick], key=lambda p: len(p.unit.names))
assert len(one.unit.names) > 1
device.compiler.optimise([one.spec])
device.wait_optimised()
device.take_over()
said(f"optimised {not one.quick:d}")
""", tmp_path)
  _, numbers = run('step(x, y, z).item()\nsaid(f"built {device.compiler.built}")', tmp_path)
  assert numbers["built"] == 0


@long
def test_a_fork_takes_nothing_along(cold: tuple[str, Path], tmp_path: Path) -> None:
  """A fork in the first tier: the child is told that the device is its parent's, which goes on to the optimised tier."""
  code = STEPS.replace("ntgrad.Device.optimise()", """
if (child := os.fork()) == 0:
  try: captured(x, y, z)
  except ntgrad.errors.DeviceError: os._exit(7)
  os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
ntgrad.Device.optimise()""")
  got, numbers = run(code, tmp_path)
  assert got == cold[0] and numbers["left"] == 0 < numbers["replaced"], numbers


@long
@pytest.mark.parametrize("what", ["for p in [w.pid for w in workers._workers]: os.kill(p, signal.SIGKILL)",
                                  "import shutil; shutil.rmtree(os.environ['CACHE_DIR'])", "ntgrad.config.cache = 0",
                                  "sys.exit(print([n.hex() for n in losses]))"])
def test_nothing_is_lost(what: str, cold: tuple[str, Path], tmp_path: Path) -> None:
  """Workers that are killed while they optimise, a disk cache that goes, one that is off, and an end in the middle of it."""
  code = STEPS.replace("ntgrad.Device.optimise()", f"{what}\nntgrad.Device.optimise()").replace("left {quick()}", "left 0")
  got, _ = run(code, tmp_path)
  assert eval(cold[0])[:len(found := eval(got))] == found and len(found) in (15, 21)   # noqa: S307


@long
def test_both_ways_are_compared(cold: tuple[str, Path], tmp_path: Path) -> None:
  assert run(STEPS, tmp_path, TIERS="check")[0] == cold[0]


def test_both_ways_serve_a_kernel_that_the_disk_has_twice() -> None:
  device = get_device("CPU")
  if not device.compiler.tiers: pytest.skip("this driver has one tier")
  with config(tiers="check", cache=0):
    one, two = [from_specs([replace(_spec("7.0f"), again=lambda: None)], device)[0] for _ in range(2)]
  assert one is two and one.spec is one.first.spec and one.spec.again is not None


def test_a_difference_is_told() -> None:
  with config(tiers="check", dynamic="never", cache=0):
    x = Tensor(np.arange(5, dtype=np.float32), device="CPU").realize()
    y = (x * 3.25).realize()
    np.testing.assert_array_equal(y.numpy(), np.arange(5) * np.float32(3.25))
  device = get_device("CPU")
  with config(cache=0): one, other = [device.programs_of([_spec(factor)])[0] for factor in ("2.0f", "3.0f")]
  raws = [device.new_raw(64), device.new_raw(64)]
  for raw in raws: raw.host[:] = 1
  with pytest.raises(DeviceError, match=r"kernel scale: built quickly and optimised .* first at byte 0 of its 0\. piece"):
    tiers.BothWays(device, one, other)(raws)


def _spec(factor: str) -> Any:
  from ntgrad.backends.base import KernelSource, ProgramSpec
  before, after = "__kernel void ", f"(__global float* o, __global const float* x) {{ o[0] = x[0] * {factor}; }}\n"
  return ProgramSpec("scale", KernelSource(f"{before}scale{after}", kernel=(before, after)), (1,), (1,), 2)


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
  """A driver that nobody has tested, and a disk cache that has nothing of it."""
  monkeypatch.setattr(tiers, "KNOWN", ("no such driver",))
  with config(cache=1, cache_dir=str(tmp_path), workers=2): yield
  workers.stop()


def test_another_driver_is_tested_first(unknown: None, monkeypatch: pytest.MonkeyPatch) -> None:
  device = OpenCLDevice()
  if not device.direct: pytest.skip("this driver has one tier")
  assert device.untested and not device.compiler.two_tiers()
  monkeypatch.setattr(tiers, "equal", lambda device: True)
  assert tiers.test(device) and OpenCLDevice().compiler.two_tiers()
  monkeypatch.setattr(tiers, "equal", lambda device: False)
  assert not tiers.test(device)
  again = OpenCLDevice()
  assert not again.untested and not again.compiler.two_tiers()


@long
def test_a_worker_tests_another_driver(unknown: None) -> None:
  device = OpenCLDevice()
  if not device.direct: pytest.skip("this driver has one tier")
  device.test_tiers()
  job = device.tier_test
  with workers.changed: assert workers.changed.wait_for(lambda: job.answer is not None or job.here, 120)
  assert job.answer is True and cache.get(tiers.TABLE, cache.key(tiers.TABLE, device.compiler.identity), tiers.BOOL) is True


@long
def test_this_driver() -> None:
  """Both ways of building give the same bits for all that kernels are made of."""
  device = get_device("CPU")
  if not device.compiler.tiers: pytest.skip("this driver has one tier")
  assert tiers.equal(device)


def test_few_kernels_are_optimised_at_once() -> None:
  """Nobody waits long for them; of many each is built quickly, but for those that are measured, or disassembled."""
  from dataclasses import replace
  with config(cache=0, workers=2):
    for count, settings, quick in ((3, {}, False), (30, {}, True), (30, {"beam": 2}, False), (30, {"debug": 6}, False),
                                   (30, {"tiers": 0}, False), (30, {"workers": 1}, False)):
      device = OpenCLDevice()
      if not device.compiler.tiers: pytest.skip("this driver has one tier")
      specs = [replace(_spec(f"{i}.5f"), name=f"scale{i}") for i in range(count)]
      with config(**settings): units = device.compiler.compile(specs)   # type: ignore[arg-type]
      assert {u.quick for u in units} == {quick}, (count, settings)
  workers.stop()
