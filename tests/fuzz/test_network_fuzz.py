"""Random networks on machines that are not here: nothing that is chosen is refused, and what is computed is right; and tests of
the fuzzer itself (``python tests/fuzz/networks.py`` tries as many as one likes)."""
from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ntgrad.backends.base import KernelSource
from ntgrad.backends.opencl.renderer import OpenCLRenderer
from ntgrad.codegen.ir.config import config
from ntgrad.codegen.ir.errors import OptError
from ntgrad.codegen.opts import Vectorize
from support import network_machines
from support.devices import missing
from support.ledger_cases import specs
from support.marks import long, long_after, long_unless
from support.network_build import KINDS, grown
from support.network_draws import BUILT, FAMILIES, SIZES, Draw, draw, draws
from support.network_machines import MACHINES
from support.network_program import Spec
from support.network_run import Failure, on, tried, wrong_values

SEED, COUNT = 29, 12
SCRIPT = Path(__file__).with_name("networks.py")


needs_cpu = pytest.mark.skipif(bool(missing("CPU")), reason=missing("CPU"))


@pytest.mark.parametrize("number", long_after(1, range(COUNT)))
def test_networks(number: int) -> None:
  """A failure names the network, the machine and the error, and has the program."""
  failures, made = tried(draw(SEED, number), built=False)
  fail(number, failures)
  assert made


@needs_cpu
@pytest.mark.parametrize("number", long_after(0, range(0, COUNT, BUILT)))
def test_values(number: int) -> None: fail(number, wrong_values(draw(SEED, number)))


def fail(number: int, failures: list[Failure]) -> None:
  for f in failures: pytest.fail(f"network {number} of seed {SEED} on {f.where}: {f.what}\n{f.code}", pytrace=False)


@pytest.mark.usefixtures("nothing_compiled")
@pytest.mark.parametrize("number", long_unless(lambda n: n == 4, range(len(specs()))))
def test_networks_are_printed(number: int, capsys: pytest.CaptureFixture[str]) -> None:
  """What ``DEBUG=3`` says of their kernels. In number 4 an access sees no digit of a fused axis, which once was an error."""
  with config(debug=3): on(MACHINES["cpu16x512"], grown(specs()[number]))
  assert "axes   " in capsys.readouterr().out


def test_draws_cover_pairs() -> None:
  """1,000 networks have every kind and every two families of blocks on every machine and with every way of sizes."""
  first = list(itertools.islice(draws(SEED), 1000))
  parts = [*KINDS, *itertools.product(FAMILIES, FAMILIES)]
  on = {(x, m) for d in first for x in (*d.parts, d.spec.sizes) for m in d.machines}
  assert on == {*itertools.product((*parts, *SIZES), MACHINES)}
  assert {(x, d.spec.sizes) for d in first for x in d.parts} == {*itertools.product(parts, SIZES)}


def test_programs_are_functions_of_number_and_seed() -> None:
  for a, b in zip(itertools.islice(draws(3), 30), itertools.islice(draws(3), 30)):
    assert a == b and grown(a.spec) == grown(b.spec)


def small(number: int, sizes: str, *machines: str) -> Draw:
  """A network whose kernels no other test has made: its number makes its sizes."""
  return Draw(Spec(number, 1729, ("linear", "layer_norm", "perceptron"), sizes, True), machines)


def test_finds_a_refused_opt(monkeypatch: pytest.MonkeyPatch) -> None:
  def refuse(self: Any, kernel: Any) -> Any: raise OptError(f"{self}: put in")
  monkeypatch.setattr(Vectorize, "change", refuse)
  failures, _ = tried(small(1, "numbers", "cpu2x512", "numpy"), built=False)
  assert failures and all(f.where == "cpu2x512" and "put in" in f.what for f in failures)


@long
def test_finds_a_launch_with_other_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
  call = network_machines.Checked.__call__
  def fewer(self: Any, buffers: Any, wait: bool = False, sizes: tuple[int, ...] = ()) -> Any:
    return call(self, buffers, wait, sizes[1:])
  monkeypatch.setattr(network_machines.Checked, "__call__", fewer)
  for sizes in SIZES:
    failures, _ = tried(small(2, sizes, "cpu3x128", "sm_80"), built=False)
    assert [f.where for f in failures] == ([] if sizes == "numbers" else ["cpu3x128", "sm_80"]), sizes
    assert all("sizes" in f.what for f in failures)


@long
@needs_cpu
def test_finds_a_wrong_value(monkeypatch: pytest.MonkeyPatch) -> None:
  rendered = OpenCLRenderer.render
  def wrong(self: Any, name: str, uops: Any, notes: Any = ()) -> KernelSource:
    source = rendered(self, name, uops, notes)
    return source if config.noopt else KernelSource(**{**vars(source), **{k: _less(v) for k, v in vars(source).items()}})
  monkeypatch.setattr(OpenCLRenderer, "render", wrong)
  failures = wrong_values(small(7, "numbers", "cpu2x256"))
  assert [f.where for f in failures] == ["values"] and "differs by" in failures[0].what


def _less(text: Any) -> Any:
  """Source with another epsilon in its norms."""
  if isinstance(text, tuple): return tuple([_less(x) for x in text])
  return text.replace("1e-05f", "1.0f") if isinstance(text, str) else text


def run(*args: str, path: str = "") -> str:
  env = {**os.environ, "PYTHONPATH": os.pathsep.join([path, str(SCRIPT.parents[2]), str(SCRIPT.parents[1])])}
  done = subprocess.run([sys.executable, str(SCRIPT), *args], capture_output=True, text=True, timeout=300, env=env)
  assert done.returncode == bool(path), done.stdout + done.stderr
  return done.stdout


@long
def test_crash(tmp_path: Path) -> None:
  """A process that dies is a finding, and the networks after it are tried."""
  text = "import os, signal\nfrom ntgrad import Tensor\n"
  text += "def end(*_): os.kill(os.getpid(), signal.SIGSEGV)\nTensor.backward = end\n"
  (tmp_path / "sitecustomize.py").write_text(text)
  out = run("--count", "4", "--seed", "6", "--no-values", path=str(tmp_path))
  assert "the process ended with -11" in out and "4 networks of seed 6" in out


@long
def test_script(tmp_path: Path) -> None:
  """The command goes on where it was ended, and shows one network as a program that runs."""
  state = tmp_path / "state"
  assert "2 networks of seed 5" in run("--count", "2", "--seed", "5", "--no-values", "--state", str(state))
  lines = state.read_text()
  assert "3 networks of seed 5" in run("--count", "3", "--seed", "5", "--no-values", "--state", str(state), "--jobs", "2")
  assert state.read_text().startswith(lines) and [json.loads(x)["number"] for x in state.read_text().splitlines()] == [0, 1, 2]
  shown = run("--only", "1", "--seed", "5", "--machine", "cpu2x256", "--no-values")
  assert "class Net(nn.Module):" in shown and "CORES=2 VECTOR_BITS=256" in shown
