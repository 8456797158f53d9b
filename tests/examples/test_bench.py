"""bench/cpu.py: what it refuses, and that its rows can be measured. bench/zoo.py: its rows, some measured, its verdict.
bench/first_hour.py: its rows, one measured."""
from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

import ntgrad
from ntgrad import Tensor
from support.devices import missing
from support.marks import long

BENCH = Path(__file__).resolve().parents[2] / "bench"


def run(*args: str, file: str = "cpu.py", **env: str) -> subprocess.CompletedProcess[str]:
  return subprocess.run(
    [sys.executable, str(BENCH / file), *args], env={**os.environ, **env}, text=True, capture_output=True, timeout=300,
    check=False
  )


def test_the_numpy_backend_is_refused() -> None:
  done = run(DEV="NUMPY")
  assert done.returncode == 1 and "the numpy backend is the oracle" in done.stderr


@long
def test_a_row_of_the_table() -> None:
  done = run("--only", "peak memory", "--width", "2", "--rounds", "1")
  assert "| peak memory of training |" in done.stdout and "must reach" in done.stdout, done.stderr


# ---- bench/zoo.py

@pytest.fixture(scope="module")
def zoo() -> dict[str, ModuleType]:
  """Its modules that need no torch. bench/ is on the path no longer than that: bench/cuda.py has the name of NVIDIA's package."""
  sys.path.insert(0, str(BENCH))
  try: return {name: importlib.import_module(f"zoo_{name}") for name in ("rows", "models", "report")}
  finally: sys.path.remove(str(BENCH))


@pytest.mark.parametrize("device", ["CPU", "CUDA"])
def test_the_rows_of_the_zoo(zoo: dict[str, ModuleType], device: str) -> None:
  rows = zoo["rows"].rows(device)
  assert len(rows) >= 80 and len({r.name for r in rows}) == len(rows)
  groups = Counter(r.kind.group for r in rows)
  assert set(groups) == set(zoo["rows"].GROUPS) and max(groups.values()) * 4 <= len(rows)
  for kind in zoo["rows"].KINDS:
    assert len(kind.gpu) == len(kind.cpu)
    assert any(r.odd for r in rows if r.kind is kind) or kind.dtype == "int8", kind.name   # torch takes multiples of 8 only
  parts = [zoo["rows"].shard(rows, i, 8) for i in range(1, 9)]
  assert sorted(r.name for p in parts for r in p) == sorted(r.name for r in rows)
  weights = [sum(r.kind.weight for r in p) for p in parts]
  assert max(weights) < 1.5 * min(weights)


def test_every_kind_of_the_zoo_is_built(zoo: dict[str, ModuleType]) -> None:
  z = zoo["rows"]
  with Tensor.train():
    for row in z.rows("TINY"):
      if row.kind.ours is None: continue
      inputs = [Tensor(a) for a in z.tensors(row, 0)]
      if row.kind.model:
        weights, model = zoo["models"].MODELS[row.kind.model.split()[0]](*row.sizes)
        layers = zoo["models"].Ours(weights, row.dtype)
        loss = model(layers, *inputs)
        grads = loss.gradient(*layers.p.values())
        assert loss.shape == () and all(g.shape == p.shape for g, p in zip(grads, layers.p.values()))
      else:
        outs = z.computed(row.kind)(*inputs)
        assert len(outs) == 1 + len(row.kind.wrt) or not row.kind.wrt
        for i, out in zip(row.kind.wrt, outs[1:]): assert out.shape == inputs[i].shape


@pytest.mark.skipif(bool(missing("CPU")), reason=missing("CPU"))
@long
def test_some_rows_of_the_zoo(zoo: dict[str, ModuleType], tmp_path: Path) -> None:
  out = tmp_path / "zoo.json"
  words = "sum of all,sort of rows,perceptron"
  args = ("--tiny", "--ours-only", "--only", words, "--seconds", "0.05", "--out", str(out))
  done = run(*args, file="zoo.py")
  assert done.returncode == 0, done.stdout + done.stderr
  rows = json.loads(out.read_text())["rows"]
  assert len(rows) == 3, done.stdout + done.stderr
  for name, row in rows.items():
    if name.startswith("sort"): continue
    assert row["captured"] and row["ours"] > 0, (name, row)
  assert run(*args, file="zoo.py").stdout.startswith("3 of ")   # nothing is measured again
  text = zoo["report"].document(zoo["rows"].rows("TINY"), zoo["report"].Results([str(out)]).read(), "cpu")
  assert "| sum of all" in text and "first step" in text


def test_the_verdict_of_the_zoo(zoo: dict[str, ModuleType]) -> None:
  report, rows = zoo["report"], zoo["rows"].rows("CPU")
  one, two, *_ = [r for r in rows if r.kind.group == "losses"]
  good = {"ours": 1.0, "theirs": 5.0, "right": True, "error": 0.0, "torch_error": 0.0, "captured": True, "kernels": 1,
          "torch": {"way": "eager"}, "first": 1.0, "peak": 1}
  assert report.ratio(good) == 5 and report.means(rows, {one.name: good}) == {"losses": pytest.approx(3)}
  wrong = {**good, "right": False}
  assert report.means(rows, {one.name: good, two.name: wrong})["losses"] == pytest.approx((3 * 0.01) ** 0.5)
  text = report.document(rows, {"rows": {one.name: good, two.name: wrong, rows[0].name: {"failed": "ShapeError: a | b"}}}, "cpu")
  assert "5.00, wrong: 0" in text and "ShapeError: a / b" in text and "3 of " in text and "1 of 3 reach 0.6" in text
  reference = {"device": "x", "calibration": {"copy": 1.0, "product": 1.0}}
  assert report.refusal(reference, "x", {"copy": 1.04, "product": 0.97}) == ""
  assert "product takes 1100.000 ms, there 1000.000 ms (+10%)" in report.refusal(reference, "x", {"copy": 1.0, "product": 1.1})
  assert "it is of x, this is y" in report.refusal(reference, "y", {"copy": 1.0, "product": 1.0})


# ---- bench/first_hour.py

@pytest.mark.skipif(bool(missing("CPU")), reason=missing("CPU"))
def test_a_row_of_the_first_hour(tmp_path: Path) -> None:
  out = tmp_path / "rows.json"
  done = run("--quick", "--only", "gradients one", "--cores", "1", "--json", str(out), file="first_hour.py")
  assert done.returncode == 0, done.stdout + done.stderr
  assert "| work | ntgrad | torch | value | must | aim | verdict |" in done.stdout
  row, = json.loads(out.read_text())["rows"]
  assert f"| {row['work']} |" in done.stdout and row["work"].startswith("p.grad.norm().item()") and row["value"] > 0
  assert row["verdict"] in ("must", f"**misses by {row['value'] / row['must'] - 1:.0%}**")


def test_the_first_hour_refuses_words_that_name_nothing() -> None:
  done = run("--only", "perceptrom", file="first_hour.py")
  assert done.returncode == 1 and "perceptrom" in done.stderr and "plain perceptron, " in done.stderr


@pytest.mark.parametrize("name, firsts, cold, warm", [
  ("VAE", ["first loss"], (1.3, 0.8), (0.5, 0.3)),
  ("everyday", ["last batch", "batch of one", "accumulation", "evaluation"], (0.4, 0.05), (0.4, 0.05)),
])
@long
@pytest.mark.skipif(bool(missing("CPU")), reason=missing("CPU"))
def test_what_is_waited_for_the_first_time(tmp_path: Path, name: str, firsts: list[str], cold: tuple[float, float],
                                           warm: tuple[float, float]) -> None:
  done = run("--quick", "--only", f"loss {name},of {name}", "--json", str(tmp_path / "rows.json"), file="first_hour.py")
  assert done.returncode == 0, done.stdout + done.stderr
  rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
  assert [r["work"] for r in rows] == [f"{what}{how}: {name}" for how in ("", ", warm disk cache") for what in firsts]
  assert [(r["must"], r["aim"]) for r in rows] == [cold] * len(firsts) + [warm] * len(firsts)
  assert int(rows[0]["ours"].split()[0]) > 10 and all(r["value"] > 0 for r in rows)


@long
def test_every_workload_of_the_first_hour_gives_a_loss() -> None:
  sys.path.insert(0, str(BENCH))
  try: models = importlib.import_module("first_hour_models")
  finally: sys.path.remove(str(BENCH))
  assert len(models.WORKS) == 11 and len(models.FIRST_LOSSES) == 7
  for name, make in (models.WORKS | models.FIRST_LOSSES).items():
    work = make(ntgrad)
    loss = work.step(*[Tensor(a) for a in work.batch(0)])
    assert loss.shape == () and len(work.batch(99)[0]), name
