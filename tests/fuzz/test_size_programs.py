"""Programs whose sizes change give what they give at numbers, and compile no more after some sizes; tests of that fuzzer."""
from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

import ntgrad
from ntgrad import Device, config
from ntgrad.engine import planner, size_templates
from support.devices import missing
from support.fuzz_sizes import Invalid, forget, run, shortened, source
from support.fuzz_sizes_generate import MODES, SizedCalls, generate
from support.marks import long, long_where

SECONDS = 1   # for those of a mode
X = (("x0", "n, m", "float32"),)
CALLS = ((8, 6, 2), (20, 10, 5), (13, 17, 3), (20, 10, 5))


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(ntgrad.Device, "assigned", None)
  forget()


def fails(program: SizedCalls, device: str, name: str) -> None:
  """Fail, with the shortest program that fails so, where a program does."""
  try: problem = run(program, device)
  except Invalid: return
  if problem is None: return
  program, problem = shortened(program, problem, device, seconds=10)
  pytest.fail(f"{name} on {device}: {problem.what}\n\n{source(program, device, problem)}", pytrace=False)


@long_where(lambda mode: mode not in ("eager", "jit"))
@pytest.mark.parametrize("mode", MODES)
def test_sizes(mode: str) -> None:
  """Seeds in order, as many as there is time for."""
  until = time.monotonic() + SECONDS
  for seed in range(12):
    if time.monotonic() > until: break
    fails(generate(seed, mode), "NUMPY", f"sizes {seed} {mode}")


BODIES = {
  "views": ("t0 = (x0 * 2)[k:k + 3]", "t1 = x0.reshape(m, n)[1:-1].T", "t2 = t0.cat(t0.flip(0))"),
  "masks": ("t0 = (Tensor.arange(m) < k).where(x0, -1)", "t1 = t0.softmax(1).cumsum(0)", "t2 = t1.expand(2, -1, -1).sum(1)"),
  "writes": ("t0 = x0 * 1", "t0[k] = 5", "t0[1:k + 1] += x0[1:k + 1].sum(0)", "t1 = t0[:, ::2]", "t1[:k] = 0", "t2 = t0 @ t0.T"),
}


ON_NUMPY = [("NUMPY", name, mode) for name, modes in (
  ("views", ("eager", "variables", "gradient", "jit")), ("masks", ("always", "variables", "gradient", "jit variables")),
  ("writes", ("eager", "always", "variables", "gradient always", "jit dynamic", "jit variables"))) for mode in modes]


@long_where(lambda device: device != "NUMPY")
@pytest.mark.parametrize("device, name, mode", [*ON_NUMPY, ("CPU", "masks", "eager"), ("CPU", "writes", "jit variables")])
def test_programs(device: str, name: str, mode: str) -> None:
  if missing(device): pytest.skip(missing(device))
  fails(SizedCalls(X, BODIES[name], ("t0", "t1", "t2"), CALLS, mode), device, name)


# ---- the fuzzer

@long
def test_finds_and_shortens(monkeypatch: pytest.MonkeyPatch) -> None:
  """A template that is used for sizes that are not its own is found, and shown in a few lines."""
  right = size_templates.Template.values
  def wrong(self: Any, s: Any) -> Any:
    return right(self, s) or (tuple([int(s.sizes[p]) for p in self.places]) if len(self.sizes) > 1 else None)
  monkeypatch.setattr(size_templates.Template, "values", wrong)
  calls = ((20, 10, 2), (30, 20, 4), (13, 12, 9))
  program = SizedCalls(X, ("t0 = x0 + 1", "t1 = t0[k:m] * 2", "t2 = t1.sum()"), ("t2", "t0"), calls, "eager")
  problem = run(program, "NUMPY")
  assert problem is not None
  short, again = shortened(program, problem, "NUMPY", seconds=8)
  assert again.kind == problem.kind and len(short.body) <= 2 and len(short.calls) <= 3


def test_compiling_for_each_size_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
  for finds in ("known", "new"): monkeypatch.setattr(planner._Sized, finds, lambda self: None)
  calls = tuple([(13 + i, 20 + i, 3) for i in range(10)])
  problem = run(SizedCalls(X, ("t0 = x0 + 1",), ("t0",), calls, "steady"), "NUMPY")
  assert problem is not None and problem.what == "compiles late"


@pytest.mark.parametrize("mode", MODES)
def test_printed_programs_run(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
  assert generate(3, mode) == generate(3, mode)
  program = replace(generate(3, mode), calls=((8, 5, 2), (16, 5, 3)))
  with config(dynamic="auto", dev="NUMPY"): exec(source(program, "NUMPY"), {})
  assert capsys.readouterr().out.count("[array(") == 2 and Device.assigned is None
