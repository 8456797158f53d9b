"""A person's kernels in functions that ``ntgrad.jit`` captures, and in kernels with run-time sizes: they are what is captured and
launched, they are compared first, and what is captured already says what to do."""
from __future__ import annotations

# ruff: noqa: F841 (assigning a parameter stores)
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

import ntgrad
import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad import Tensor
from ntgrad.config import config
from ntgrad.engine import overrides
from ntgrad.errors import OverrideError
from ntgrad.schedule import create_schedule
from ntgrad.tile.eject import Eject

DEVICES = ["CPU", "NUMPY"]


@pytest.fixture(autouse=True)
def none_in_force() -> Iterator[None]:
  overrides.given_overrides.clear()
  yield
  overrides.given_overrides.clear()


def rows(*xs: Any) -> Any: return tuple(x.tile((1, -1)) for x in xs)

def by_reciprocal(y: Any, x: Any) -> None:
  e = tl.exp(2 * (x - tl.max(x)))
  y = e * tl.reciprocal(tl.sum(e))

def wrong(y: Any, x: Any) -> None: y = tl.exp(x)


def kernel(application: Callable[..., None]) -> Any:
  return tile.make(rows, application, (tile.Tensor(shape=(3, 4), dtype="float32"),) * 2)


def numbers(*shape: int) -> np.ndarray: return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def softmax(a: np.ndarray) -> np.ndarray:
  e = np.exp(a - a.max(-1, keepdims=True))
  return e / e.sum(-1, keepdims=True)


class Calls:
  """A captured softmax of (3, 4), the schedule's item of it, and what its calls launch."""

  def __init__(self, device: str):
    self.device = device
    self.item = create_schedule((self.given() * 2).softmax(-1))[-1]
    self.f = ntgrad.jit(lambda t: (t * 2).softmax(-1).realize())

  def given(self) -> Tensor: return Tensor(numbers(3, 4), device=self.device).realize()

  def __call__(self) -> list[str]:
    x = self.given()   # of its own: what is computed already is not computed again
    with ntgrad.profile() as p: got = self.f(x)
    np.testing.assert_allclose(got.numpy(), softmax(numbers(3, 4) * 2), rtol=1e-5)
    return names(p)


def names(p: Any) -> list[str]:
  """The kernels that ran, without the numbers of those of the same name."""
  return [re.sub(r"n\d+$", "", row.name) for row in p.rows]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("when", [0, 1])
def test_what_is_captured_is_the_persons(device: str, when: int) -> None:
  """In force before the plain call, or between it and the recorded one."""
  call = Calls(device)
  for n in range(5):
    if n == when: ntgrad.override(call.item, kernel(by_reciprocal))
    ran = call()
    assert n < when or ran == ["by_reciprocal_overridden"]
  assert call.f.captured


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("when", [0, 1])
def test_a_wrong_one_is_not_captured(device: str, when: int) -> None:
  call = Calls(device)
  if when: call()
  ntgrad.override(call.item, kernel(wrong))
  for _ in range(3):
    with pytest.raises(OverrideError, match="wrong_overridden gives something else"): call()
    assert not call.f.captured
  ntgrad.override(call.item, None)
  for _ in range(3): assert "wrong" not in call()[0]
  assert call.f.captured


@pytest.mark.parametrize("device", DEVICES)
def test_it_is_compared_once(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
  checks: list[str] = []
  check = overrides.ComparedPrograms.check
  monkeypatch.setattr(overrides.ComparedPrograms, "check", lambda pair, *more: checks.append(pair.file) or check(pair, *more))
  call = Calls(device)
  ntgrad.override(call.item, kernel(by_reciprocal))
  for _ in range(5): call()
  assert checks == ["kernel by_reciprocal"]
  programs = [step.program for step in call.f._replay.steps]
  assert not any(isinstance(p, overrides.Checked) for p in programs)   # replays launch the program itself


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_captured_before_is_captured_again(device: str, capsys: pytest.CaptureFixture[str]) -> None:
  call = Calls(device)
  for _ in range(3): before = call()
  with config(debug=1, color=0): ntgrad.override(call.item, kernel(by_reciprocal))
  assert "override: by_reciprocal is in force" in capsys.readouterr().out
  for _ in range(3): assert call() == ["by_reciprocal_overridden"]
  with config(debug=1, color=0): ntgrad.override(call.item, None)
  assert "override: by_reciprocal is no longer in force" in capsys.readouterr().out
  for _ in range(3): assert call() == before


def several(t: Tensor) -> Tensor:
  """Kernels one after another, most of them with run-time sizes."""
  y = (t * 2).softmax(-1)
  return (y.sum(0) + t.max(axis=0)).realize()


def expected(a: np.ndarray) -> np.ndarray: return np.asarray(softmax(a * 2).sum(0) + a.max(0))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.usefixtures("nothing_compiled")
def test_run_time_sizes(device: str, captured: bool, tmp_path: Path) -> None:
  """A file that stands for the kernel of all sizes is in force in all its variants, and in captures for all sizes."""
  def run() -> list[list[str]]:
    f: Callable[[Tensor], Tensor] = ntgrad.jit(several) if captured else several
    out = []
    for n in (5, 6, 7, 9, 12, 5, 40):
      x = Tensor(a := numbers(n, 4), device=device).realize()
      with ntgrad.profile() as p: got = f(x)
      np.testing.assert_allclose(got.numpy(), expected(a), rtol=1e-5)
      out.append(names(p))
    return out
  with config(cache=0), Eject("*", tmp_path) as found: before = run()
  assert not found.refused and any(name.startswith("r_s0") for ran in before for name in ran)
  with config(override=str(tmp_path)): after = run()
  assert all(name.endswith("_overridden") for ran in after for name in ran), after


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.usefixtures("nothing_compiled")
def test_a_wrong_one_for_run_time_sizes(captured: bool, tmp_path: Path) -> None:
  def run() -> None:
    f: Any = (lambda t: (t * 2).softmax(-1).realize())
    if captured: f = ntgrad.jit(f)
    for n in (5, 6, 7, 9): f(Tensor(numbers(n, 4)).realize())
  with config(cache=0), Eject("r_s0_4*", tmp_path): run()
  path, = tmp_path.iterdir()
  assert "data1 * 2." in (text := path.read_text())
  path.write_text(text.replace("data1 * 2.", "data1 * 2.5"))
  with config(override=str(tmp_path)):
    for _ in range(2):
      with pytest.raises(OverrideError, match="gives something else than the scheduled kernel"): run()
