"""Buffers have the names that state dicts know tensors by, in schedules, tables and errors."""
from __future__ import annotations

import gc
from pathlib import Path

import pytest

from ntgrad import Tensor, nn
from ntgrad.codegen.ir.config import config
from ntgrad.engine.buffer import largest
from ntgrad.graph import buffer_names
from ntgrad.nn.state import get_parameters, get_state_dict, safe_save
from ntgrad.schedule import create_schedule

pytestmark = pytest.mark.usefixtures("nothing_compiled")


class Model:
  def __init__(self) -> None:
    self.layers = [nn.Linear(4, 8), nn.Linear(8, 2)]
    for p in get_parameters(self.layers): p.realize()
  def __call__(self, x: Tensor) -> Tensor: return x.sequential([self.layers[0], Tensor.relu, self.layers[1]])


def test_schedules_and_tables(capsys: pytest.CaptureFixture[str]) -> None:
  model, x = Model(), Tensor.empty(3, 4, device="NUMPY")
  for t in get_parameters(model): t.to_("NUMPY")
  Tensor.realize(*get_parameters(model))
  assert "layers." not in str(create_schedule(model(x)))
  get_state_dict(model)
  text = str(create_schedule(model(x)))
  for name in ("layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias"): assert name in text, text
  assert "layers.0.weight" in str(create_schedule(model(x))[0])
  with config(debug=3, color=0, cache=0, dynamic="never"): model(Tensor([[1.0] * 4] * 3, device="NUMPY").realize()).realize()
  table = capsys.readouterr().out
  assert "layers.0.weight" in table and "layers.1.bias" in table


def test_parts_of_flat_memory() -> None:
  """An optimizer keeps parameters as slices of one buffer."""
  model = Model()
  for t in get_parameters(model): t.requires_grad = True
  nn.optim.SGD(get_parameters(model), lr=0.1)
  get_state_dict(model, "net")
  text = str(create_schedule(model(Tensor.empty(3, 4))))
  for name in ("net.layers.0.weight", "net.layers.1.weight"): assert name in text, text


def test_files_and_errors(tmp_path: Path) -> None:
  t = Tensor([1.0, 2.0, 3.0]).realize()
  safe_save({"a.name": t}, tmp_path / "x.safetensors")
  assert "a.name" in str(create_schedule(t + 1))
  big = Tensor.zeros(1 << 20).contiguous().realize()
  buffer_names.remember_names({"big.one": big})
  assert "big.one of shape (1048576,)" in largest(big.device)


def test_names_keep_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
  t = Tensor([1.0]).realize()
  buffer_names.remember_names({"gone": t})
  key = id(t)
  assert buffer_names._known[key][1] == "gone"
  del t
  gc.collect()
  assert key not in buffer_names._known
  monkeypatch.setattr(buffer_names, "_MOST", 2)
  some = [Tensor([float(i)]).realize() for i in range(5)]
  buffer_names.remember_names({str(i): t for i, t in enumerate(some)})
  assert [name for _, name in buffer_names._known.values()] == ["3", "4"]
