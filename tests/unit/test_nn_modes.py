"""What a Module begins as: in training or not, and what may take a parameter's place."""
from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import numpy as np
import pytest

from ntgrad import Tensor, nn
from ntgrad.codegen.ir.recent import Recent
from ntgrad.errors import AssignError
from ntgrad.func import functional_call
from ntgrad.graph import origins
from ntgrad.nn.state import get_parameters, get_state_dict


class Net(nn.Module):
  """As PyTorch's are written."""
  def __init__(self) -> None:
    super().__init__()
    self.body = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    self.several = [nn.BatchNorm1d(4), {"a": nn.Dropout(0.5)}, (nn.RReLU(),)]
    self.named = nn.ModuleDict({"b": nn.Dropout(0.5)})
    self.scale = nn.Parameter(Tensor.ones(4))
    self.late: list[Any] = []
    self.late.append(nn.Dropout(0.5))
  def forward(self, x: Tensor) -> Any: return self.late[0](self.body(x) * self.scale)


class Bare(nn.Module):
  """No call of ``super().__init__()``."""
  def __init__(self) -> None: self.dropout, self.scale = nn.Dropout(0.5), nn.Parameter(Tensor.ones(4))
  def forward(self, x: Tensor) -> Any: return self.dropout(x * self.scale)


class Plain:
  """As tinygrad's are written."""
  def __init__(self) -> None: self.norm, self.scale = nn.BatchNorm2d(3), Tensor.ones(4)
  def __call__(self, x: Tensor) -> Any: return self.norm(x)


ALONE = [lambda: nn.Dropout(0.5), lambda: nn.Dropout2d(), lambda: nn.AlphaDropout(), lambda: nn.BatchNorm2d(3),
         lambda: nn.RReLU(), lambda: nn.InstanceNorm2d(3, track_running_stats=True), lambda: nn.MultiheadAttention(4, 2, 0.5),
         lambda: nn.LSTM(4, 4, 2, dropout=0.5), lambda: nn.Linear(4, 4), Bare]


def test_what_begins_in_training() -> None:
  assert not Tensor.training
  net = Net()
  assert net.training and all([m.training for m in net.modules() if m is not net.late[0]])
  for make in ALONE:
    assert not make().training
    for holder in (nn.Sequential(make()), nn.ModuleList([make()]), nn.ModuleDict({"a": make()})):
      assert holder.training and all([m.training for m in holder.modules()])
    other = Net()
    other.add_module("more", make())
    assert other.more.training
  assert nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2), 2).layers[1].dropout.training
  assert not Plain().norm.training and not Bare().dropout.training
  for m in (copy.deepcopy(net), pickle.loads(pickle.dumps(nn.Sequential(nn.Dropout()).eval()))):
    assert {x.training for x in m.modules() if x._mode is not None} == {m.training}
  # its own mode is kept; what is given to a Module in use begins in training, as in PyTorch
  net.eval()
  net.more, net.own = nn.Dropout(), nn.Dropout().eval()
  assert net.more.training and not net.own.training and not net.body[:1].training
  assert not any([m.training for m in net.train(None).modules()])
  net.again = nn.Dropout()
  assert not net.again.training   # the whole follows Tensor.training now
  circle: list[Any] = [nn.Dropout()]
  circle.append(circle)
  Net().circle = circle
  assert circle[0].training


def test_a_forward_has_its_modules_mode() -> None:
  net, x = Net(), Tensor.ones(64, 4)
  def drops(f: Any) -> bool: return bool((f().numpy() == 0).any())
  assert drops(lambda: net(x)) and drops(lambda: net.body(x)) and not Tensor.training
  net.late.clear()
  net.late.append(lambda y: y.dropout(0.5))
  assert drops(lambda: net(x))
  net.eval()
  with Tensor.train(): assert not drops(lambda: net(x))
  assert drops(lambda: net.train()(x))
  results = []
  thread = threading.Thread(target=lambda: results.append(drops(lambda: net(x))))   # a new thread: a Module's mode is its own
  thread.start()
  thread.join()
  assert results == [True]


def test_it_is_said_once_where_nobody_has(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(origins, "_told", Recent(16))
  x, image = Tensor.ones(4, 4), Tensor.rand(2, 3, 4, 4)
  calls = [lambda: nn.Dropout(0.5)(x), lambda: nn.RReLU()(x), lambda: Plain()(image), lambda: Bare()(x),
           lambda: nn.InstanceNorm2d(3, track_running_stats=True)(image), lambda: nn.MultiheadAttention(4, 2, 0.5)(x, x, x),
           lambda: nn.LSTM(4, 4, 2, dropout=0.5)(x)]
  def in_thread() -> None:   # where nobody has said it
    for _ in range(2):
      for call in calls: call()   # type: ignore[no-untyped-call]
    nn.Sequential(nn.Dropout3d())(Tensor.ones(2, 2, 2, 2))
    # nothing follows: no statistics, no dropout, a mode
    for f in (lambda: nn.InstanceNorm2d(3)(image), lambda: nn.MultiheadAttention(4, 2)(x, x, x), lambda: nn.LSTM(4, 4, 2)(x),
              lambda: nn.Dropout1d(0.0)(x), lambda: nn.Dropout1d().eval()(x)): f()   # type: ignore[no-untyped-call]
    with Tensor.train(): nn.Dropout1d()(x)
    nn.Dropout1d()(x)   # said: training is over
  with pytest.warns(UserWarning) as warned:
    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
  assert all([w.filename == __file__ for w in warned])
  said = [str(w.message) for w in warned]
  for name in ("Dropout", "RReLU", "BatchNorm2d", "InstanceNorm2d", "MultiheadAttention", "LSTM"):
    assert sum([line.startswith(f"nn.{name} is in no Module") for line in said]) == 1, (name, said)
  assert len(said) == 6 and "nothing is dropped" in said[0] and "Tensor.training" in said[0]


def test_what_takes_a_parameters_place() -> None:
  net, plain = Net(), Tensor.zeros(4)
  for wrong in (plain, net.scale * 2, 3, np.ones(4)):
    with pytest.raises(AssignError, match=r"Net.scale is a parameter, and .* is none; assign nn.Parameter"): net.scale = wrong
  net.scale = nn.Parameter(plain)
  assert dict(net.named_parameters())["scale"] is net.scale and net.scale.requires_grad
  frozen = nn.Parameter(plain, requires_grad=False)
  net.scale = frozen
  assert net.scale is frozen and net.scale.requires_grad is False
  net.scale = None
  assert "scale" not in dict(net.named_parameters())
  net.more = plain   # no parameter was there
  net.more = Tensor.ones(3)
  net.register_buffer("held", Tensor.ones(2))
  net.held = Tensor.zeros(2)
  assert [k for k, _ in net.named_buffers()][0] == "held"
  # for one call values may stand there that are none
  out = functional_call(Bare(), {"scale": Tensor.zeros(4)}, Tensor.ones(2, 4))
  assert out.numpy().max() == 0


@pytest.mark.parametrize("make, name", [(lambda: nn.Linear(4, 4), "weight"), (lambda: nn.LayerNorm(4), "weight"), (Bare, "scale"),
                                        (lambda: nn.Conv2d(1, 1, 2), "bias")])
def test_a_plain_tensor_becomes_a_layers_parameter(make: Any, name: str) -> None:
  layer = make()
  value = Tensor.full(getattr(layer, name).shape, 2.0)
  setattr(layer, name, value)
  assert getattr(layer, name) is value and value.requires_grad and isinstance(value, nn.Parameter)
  assert any([t is value for t in get_parameters(layer)]) and get_state_dict(layer)[name] is value
  optimizer = nn.optim.SGD(layer.parameters(), lr=1.0)
  (value * 3).sum().backward()
  optimizer.step()
  assert (value.numpy() == -1).all()
  hyper = Tensor.ones(*value.shape, requires_grad=True)
  setattr(layer, name, hyper * 2)   # made by others, whose gradients it has
  (getattr(layer, name) * 3).sum().backward()
  assert hyper.grad is not None and (hyper.grad.numpy() == 6).all()


def test_a_plain_tensor_in_a_plain_class() -> None:
  model = Plain()
  model.scale = Tensor.zeros(4)
  assert get_state_dict(model)["scale"] is model.scale and any([t is model.scale for t in get_parameters(model)])
  with Tensor.train():
    optimizer = nn.optim.SGD(get_parameters(model), lr=1.0)
    (model.scale * 3).sum().backward()
    optimizer.step()
  assert (model.scale.numpy() == -3).all()
