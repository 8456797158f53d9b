"""Of configurations that differ in meta-parameters only, a library has the one that is fastest."""
from __future__ import annotations

# ruff: noqa: F841 (assigning a parameter stores)
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad import config
from ntgrad.errors import NtgradError
from ntgrad.tile import Config, Tensor


def premake(factor: float, work: int = 1, width: int = 64) -> Any:
  """``work`` makes it slow, and is no part of what it computes."""
  def scaled(x: Any, y: Any) -> None:
    slow = tl.zeros(y.shape)
    for k in range(work): slow = slow * 0.5 + tl.sin(x + k) * 0.0
    y = x * factor + slow
  return (lambda x, y: (x.tile((width,)), y.tile((width,)))), scaled, (Tensor(1), Tensor(1))


def kept(folder: Path) -> list[dict[str, Any]]: return list(json.loads((folder / "manifest.json").read_text())["kernels"])


@pytest.mark.parametrize("shape", [(40000,), ("N",), None])
def test_the_fastest_is_kept(shape: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
  """Measured, for numbers and for hints of open sizes."""
  arguments = [] if shape is None else [(shape, "float32")] * 2
  open_ = {} if shape == (40000,) else {"hints": {"N": 40000} if shape else {}}
  configs = [Config((2.0,), {"work": w}, arguments, **open_) for w in (300, 1, 100)]
  with config(tune=1, debug=2, color=0): tile.build(premake, configs, tmp_path, kernel_name="scaled", meta_parameters=("work",))
  assert "tuned scaled: work=1" in (shown := capsys.readouterr().out) and "work=300: " in shown
  assert [k["binary"] for k in kept(tmp_path)] == ["scaled_1.bin"]
  x, y = np.arange(40000, dtype=np.float32), np.zeros(40000, np.float32)
  tile.load(tmp_path)(x, y)
  np.testing.assert_allclose(y, x * 2)


def test_for_several_sizes_by_the_geometric_mean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
  """One kernel serves all sizes: neither the best for the largest nor that with the least sum need be it."""
  module = sys.modules["ntgrad.tile.build"]
  times = {100: iter([1e-6, 2e-6, 9e-6]), 5000: iter([9e-4, 1.1e-4, 1e-4])}
  monkeypatch.setattr(module.Bench, "measure", lambda self, program: next(times[self.memory[0].nbytes // 4]))
  configs = [Config((2.0,), {"width": w}, [(("N",), "float32")] * 2, hints={"N": (100, 5000)}) for w in (16, 64, 256)]
  with config(tune=1): tile.build(premake, configs, tmp_path, kernel_name="scaled", meta_parameters=("width",))
  assert [k["binary"] for k in kept(tmp_path)] == ["scaled_1.bin"]


def test_without_tuning_the_first_is_kept(tmp_path: Path) -> None:
  configs = [Config((2.0,), {"work": w}, [((64,), "float32")] * 2) for w in (30, 1)]
  with config(tune=0): tile.build(premake, configs, tmp_path, kernel_name="scaled", meta_parameters=("work",))
  assert [k["binary"] for k in kept(tmp_path)] == ["scaled_0.bin"]


def test_each_of_the_others_has_its_own(tmp_path: Path) -> None:
  """What calls tell apart is kept for each; so is all where no meta-parameters are named."""
  configs = [Config((2.0,), {"width": w}, [((n,), "float32")] * 2) for n in (64, 4096) for w in (16, 64, 256)]
  with config(tune=1): tile.build(premake, configs, tmp_path, kernel_name="scaled", meta_parameters=("width",))
  assert [k["arguments"][0][0] for k in kept(tmp_path)] == [[64], [4096]]
  with pytest.raises(NtgradError, match="two configurations"): tile.build(premake, configs[:1] * 2, tmp_path / "all")


def test_one_that_cannot_be_made_is_left_out(tmp_path: Path) -> None:
  configs = [Config((2.0,), {"width": w}, [((64,), "float32")] * 2) for w in (0, 16)]
  def careful(factor: float, width: int) -> Any:
    arrangement, application, tensors = premake(factor)
    def asked(x: Any, y: Any) -> Any:
      tile.check(x.shape[0] >= 16 if width else x.shape[0] > 100, "no block of nothing")
      return arrangement(x, y)
    return asked, application, tensors
  with config(tune=1): tile.build(careful, configs, tmp_path, kernel_name="scaled", meta_parameters=("width",))
  assert [k["binary"] for k in kept(tmp_path)] == ["scaled_1.bin"]


def test_by_the_model_for_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
  pytest.importorskip("triton")
  costs = iter([3.0, 1.0, 2.0])
  monkeypatch.setattr(sys.modules["ntgrad.tile.build"], "estimate", lambda kernel, target: next(costs))
  configs = [Config((2.0,), {"width": w}, [((4096,), "float32")] * 2) for w in (16, 64, 256)]
  with config(tune=1): tile.build(premake, configs, tmp_path, target="sm_90", kernel_name="scaled", meta_parameters=("width",))
  assert [k["binary"] for k in kept(tmp_path)] == ["scaled_1.bin"]
