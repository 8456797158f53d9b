"""Kernels that fill memory share programs: counts of programs, and the bits of what each would do with a program of its own."""
from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Iterator, Sequence

import numpy as np
import pytest

import ntgrad
from ntgrad import Device, Tensor, config, dtypes, nn
from ntgrad.backends.base import ProgramSpec
from ntgrad.engine import compile as compiling, planner
from support.marks import long_where
from support.triton import INSTALLED

FLOATS = dtypes.float32, dtypes.float16, dtypes.float64
NUMBERS = {dtypes.bool: (False, True), dtypes.int8: (0, -3), dtypes.uint16: (65535,), dtypes.int64: (1, -1 << 63, (1 << 40) + 1),
           dtypes.uint64: (1 << 63, 7)}


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
  """The names of programs that are built."""
  names: list[str] = []
  made = compiling.from_specs
  def counted(specs: Sequence[ProgramSpec], device: Any) -> Any:
    names.extend(s.name for s in specs)
    return made(specs, device)
  monkeypatch.setattr(compiling, "from_specs", counted)
  with config(cache=0): yield names


def parameters(a: int, b: int, c: int) -> list[Tensor]:
  net = nn.Sequential(nn.Conv2d(3, a, 3), nn.BatchNorm2d(a), nn.Linear(1, a), nn.Linear(a, b), nn.LayerNorm(b), nn.LayerNorm(c),
                      nn.Embedding(c, b), nn.MultiheadAttention(b, 2), nn.LSTM(b, c), nn.Linear(c, 17))
  return list(net.state_dict().values())


def test_parameters_of_any_net_are_made_by_four_programs(built: list[str]) -> None:
  """Uniform and normal numbers, floats and ints: whatever the sizes and bounds."""
  for i, sizes in enumerate(((32, 64, 50), (48, 20, 34), (24, 128, 100), (24, 130, 200))):
    made = parameters(*sizes)
    made[i // 2].realize(*made)   # the structure is that of before, or another one
    assert len(built) <= 4, built
  own = [nn.init.uniform_(Tensor.empty(71, 9), -3, 1), Tensor.randn(77), Tensor.full((19, 2), 5.0)]
  own[0].realize(*own[1:])
  assert len(built) <= 4, built
  assert own[2].tolist() == [[5.0] * 2] * 19


def test_one_beside_other_work_has_a_program_of_its_own(built: list[str]) -> None:
  """Whatever was made before: a second start finds the same kernels."""
  x = Tensor.uniform(3, 5, 23, low=-2, dtype="float16")
  Tensor.realize(x, Tensor(np.arange(7, dtype=np.float32)).realize() * 2)
  assert {"E_345", "E_3_5_23"} & {*built}, built


def values(device: str) -> list[Tensor]:
  Tensor.manual_seed(5)
  out = []
  for shape in ((5,), (3, 7), (2, 33, 5))[:3 if device == "CPU" else 2]:
    for d in FLOATS:
      out += [Tensor.uniform(*shape, low=-0.37, high=0.371, dtype=d), Tensor.uniform(*shape, high=3, dtype=d),
              Tensor.normal(*shape, dtype=d), Tensor.normal(*shape, mean=0.3, std=0.02, dtype=d)]
      out += [Tensor.full(shape, v, dtype=d) for v in (-0.0, 0.1, 3e-5, float("inf"), float("nan"))]
    out += [Tensor.full(shape, v, dtype=d) for d, numbers in NUMBERS.items() for v in numbers]
    out += [Tensor.trunc_normal(*shape, std=0.02), Tensor.randint(*shape, high=77), Tensor.rand(shape[0]).pad(((0, 20),))]
  return out


@long_where(lambda device: device == "CPU")
@pytest.mark.parametrize("device", ["CPU", "NUMPY", *["TRITON"] * INSTALLED])
def test_bits(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(Device, "assigned", device)
  found = []
  for dynamic in "auto", "never":
    with config(dynamic=dynamic):
      made = values(device)
      made[0].realize(*made[1:])
      found.append([t.numpy() for t in made])
  for t, a, b in zip(made, *found): assert a.tobytes() == b.tobytes(), (t.shape, t.dtype, a, b)


@pytest.mark.parametrize("device", ["NUMPY", "CPU"])
def test_captured(device: str) -> None:
  """Replays draw the next numbers; a padded piece is 0 beyond its end."""
  def draw(x: Tensor) -> list[Tensor]:
    return [Tensor.uniform(n, high=n, device=device).pad(((0, 30 - n),)).contiguous() for n in (17, 18, 29)] + [x + 1]
  runs = []
  for call in ntgrad.jit(draw), draw:
    Tensor.manual_seed(3)
    runs.append([[t.tolist() for t in call(Tensor.zeros(1, device=device))] for _ in range(4)])
  assert runs[0] == runs[1] and runs[0][0] != runs[0][3] and runs[0][3][1][18:] == [0.0] * 12


def test_a_plan_from_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  """It has its numbers, and launches programs with them."""
  plans, make = list[Any](), planner.make_plan
  monkeypatch.setattr(planner, "make_plan", lambda *args: plans.append(make(*args)) or plans[-1])
  runs = []
  with config(cache=1, cache_dir=str(tmp_path), verify=0):
    for _ in range(2):
      Tensor.manual_seed(2)
      planner._plans.clear()
      made = [Tensor.uniform(n, low=-n) for n in (33, 44, 55)]
      made[0].realize(*made[1:])
      runs.append([t.tolist() for t in made])
  assert runs[0] == runs[1] and len(plans) == 1 and all(step.sizes for step in plans[0].steps)


def test_what_is_printed_has_no_bits(built: list[str], capsys: pytest.CaptureFixture[str]) -> None:
  """Of what the launch is given only sizes are told."""
  made = [Tensor.uniform(n, low=-0.25, high=0.75) for n in (37, 53)]
  with config(debug=2): made[0].realize(*made[1:])
  lines = [line for line in capsys.readouterr().out.split("\n") if line.startswith("***")]
  assert lines and all("n=" in line and "=-" not in line and not re.search(r"=\d{7}", line) for line in lines), lines
