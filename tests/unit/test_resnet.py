"""Residual networks: they infer and train on every device, and give what the oracle gives."""
from __future__ import annotations

import numpy as np
import pytest

from ntgrad import Device, Tensor, nn
from support.devices import HAS_CUDA, missing
from support.marks import long
from support.models import ResNet, resnet18, resnet50

DEVICES = ["CUDA"] if HAS_CUDA else [pytest.param("CPU", marks=pytest.mark.skipif(bool(missing("CPU")), reason=missing("CPU")))]


@long
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("make", [resnet18, resnet50])
def test_infer_and_train(make: type[ResNet], device: str, monkeypatch: pytest.MonkeyPatch) -> None:
  x, y = np.random.default_rng(0).standard_normal((4, 3, 32, 32)).astype(np.float32), np.arange(4, dtype=np.int32)
  results = []
  weights: list[np.ndarray] = []
  Tensor.manual_seed(0)   # with other weights six steps may not lessen the loss
  for dev in ("NUMPY", device):
    monkeypatch.setattr(Device, "assigned", dev)
    net = make(width=4, classes=5)
    params = nn.state.get_parameters(net)
    if not weights: weights = [p.numpy() for p in params]
    for p, w in zip(params, weights): p.assign(Tensor(w)).realize()
    before = net(Tensor(x)).numpy()
    optimizer = nn.optim.SGD([p for p in params if p.requires_grad is not False], lr=0.02, momentum=0.9)
    losses = []
    with Tensor.train():
      for _ in range(1 if dev == "NUMPY" else 6):
        optimizer.zero_grad()
        loss = net(Tensor(x)).cross_entropy(Tensor(y)).backward()
        optimizer.step()
        losses.append(loss.item())
    results.append((before, losses))
  (want, first), (got, losses) = results
  np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
  assert abs(losses[0] - first[0]) < 1e-2 * first[0] and losses[-1] < losses[0]
