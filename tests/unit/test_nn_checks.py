"""Which numbers of dimensions layers take, and what is no probability."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ntgrad.nn.functional as F
from ntgrad import Tensor, config, jit, nn
from ntgrad.engine import counters
from ntgrad.errors import ArgumentError, ShapeError
from support.marks import long

# a layer -> the numbers of dimensions that it takes, as PyTorch's; channels are 2, and so are all sizes
RANKS: dict[str, set[int]] = {
  **{f"{name}{n}d({given})": {n + 1, n + 2} for n in (1, 2, 3) for name, given in (
    ("Conv", "2, 3, 1"), ("ConvTranspose", "2, 3, 1"), ("InstanceNorm", "2"), ("MaxPool", "2"), ("AvgPool", "2"),
    ("AdaptiveMaxPool", "1"), ("LPPool", "2, 2"), ("Dropout", "0.5"), ("ReflectionPad", "1"), ("ReplicationPad", "1"),
    ("CircularPad", "1"))},
  "BatchNorm1d(2)": {2, 3}, "BatchNorm2d(2)": {4}, "BatchNorm3d(2)": {5}, "BatchNorm(2)": {2, 3, 4, 5, 6},
  "AdaptiveAvgPool1d(1)": {2, 3}, "FractionalMaxPool2d(2, output_size=1)": {3, 4},
  "FractionalMaxPool3d(1, output_size=1)": {4, 5},
  "GroupNorm(1, 2)": {2, 3, 4, 5, 6}, "LayerNorm(2)": {1, 2, 3, 4, 5, 6}, "CrossMapLRN2d(2)": {4}, "Softmax2d()": {3, 4},
  "RNN(2, 2)": {2, 3}, "LSTM(2, 2)": {2, 3}, "GRUCell(2, 2)": {1, 2}, "Fold(2, 1)": set(), "Unfold(1)": {3, 4},
  "TransformerEncoderLayer(2, 1, 2)": {2, 3}, "MultiheadAttention(2, 1)": {2, 3}, "Linear(2, 3)": {1, 2, 3, 4, 5, 6}}


@pytest.mark.parametrize("layer", RANKS)
@pytest.mark.parametrize("training", [True, False])
def test_numbers_of_dimensions(layer: str, training: bool) -> None:
  """A wrong one is refused at the call, in a sentence that names the layer or its function, and the shape."""
  for rank in range(7):
    made, x = eval(f"nn.{layer}", {"nn": nn}).train(training), Tensor.ones(*[2] * rank)
    args = (x, x, x) if "Multihead" in layer else (x,)
    if rank in RANKS[layer]: made(*args)
    else:
      with pytest.raises(ShapeError) as e: made(*args)
      assert f"{(2,) * rank}" in str(e.value), str(e.value)


def test_convolutions_without_a_batch() -> None:
  for layer in (nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), nn.Conv2d(2, 3, 2, 2),
                nn.ConvTranspose2d(2, 3, 2, stride=2)):
    x = Tensor.rand(2, 4, 5)
    np.testing.assert_allclose(layer(x).numpy(), layer(x.unsqueeze(0)).numpy()[0], rtol=1e-5)
  assert nn.ConvTranspose2d(2, 3, 2, stride=2)(Tensor.ones(2, 4, 4), (9, 9)).shape == (3, 9, 9)


# ---- probabilities
TARGET = [0.0, 1.0, 1.0]
LOSSES: dict[str, Any] = {
  "binary_cross_entropy": lambda x: F.binary_cross_entropy(x, Tensor(TARGET, dtype=x.dtype)),
  "BCELoss": lambda x: nn.BCELoss(reduction="sum")(x, Tensor(TARGET, dtype=x.dtype)),
  "weighted": lambda x: F.binary_cross_entropy(x, Tensor(TARGET, dtype=x.dtype), Tensor([1.0, 2.0, 0.0])),
  "a method": lambda x: x.binary_cross_entropy(Tensor(TARGET, dtype=x.dtype))}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("device", ["CPU", "NUMPY"])
def test_what_is_no_probability(name: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
  from ntgrad import Device
  monkeypatch.setattr(Device, "assigned", device)
  loss = LOSSES[name]
  nan, inf = float("nan"), float("inf")
  for value, dtype in ((1.5, "float32"), (-0.25, "float32"), (-1e-30, "float32"), (nan, "float32"), (inf, "float32"),
                       (-inf, "float16"), (2.0, "bfloat16"), (1 + 1e-12, "float64"), (-1e-300, "float64")):
    with pytest.raises(ArgumentError) as e: loss(Tensor([0.5, value, 1.0], dtype=dtype)).item()
    shown = f"{np.float32(value):.7g}"
    assert f": {shown} at (1,) of an input of shape (3,), which takes probabilities" in str(e.value), str(e.value)
    assert "logits" in str(e.value) and "test_nn_checks.py:" in str(e.value)
  with pytest.raises(ArgumentError, match="2.0 at every place"): loss(Tensor.full((3,), 2.0))   # known at the call
  for fine in ([0.0, 1.0, -0.0], [0.25, 0.5, 1.0]):
    for dtype in ("float16", "float32", "float64"): assert np.isfinite(loss(Tensor(fine, dtype=dtype)).item())
  with config(check_indices=0): assert np.isnan(loss(Tensor([0.5, 2.0, 1.0])).item()) or name == "weighted"


def test_tinygrads_name_has_tinygrads_values() -> None:
  assert np.isnan(Tensor([-0.1, 1.5]).binary_crossentropy(Tensor([1.0, 0.0]), "none").numpy()).all()


@long
def test_probabilities_in_a_step() -> None:
  """The gradient is as it was, and the check belongs to what a captured function launches."""
  x = Tensor([0.25, 0.5, 0.75], requires_grad=True)
  F.binary_cross_entropy(x, Tensor(TARGET), reduction="sum").backward()
  np.testing.assert_allclose(x.grad.numpy(), [1 / 0.75, -1 / 0.5, -1 / 0.75], rtol=1e-6)
  model = nn.Linear(3, 3)
  optimizer = nn.optim.SGD(model.parameters(), lr=0.5)
  @jit
  def step(x: Tensor, scale: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss = F.binary_cross_entropy(model(x).sigmoid() * scale, Tensor([TARGET] * 2))
    loss.backward()
    optimizer.step()
    return loss.realize()
  data, one = Tensor(np.eye(2, 3, dtype=np.float32)).realize(), Tensor([1.0]).realize()
  losses = [step(data, one).item() for _ in range(8)]
  assert step.captured and losses[-1] < losses[0]
  with pytest.raises(ArgumentError, match="which takes probabilities"): step(data, Tensor([9.0]).realize()).item()
  before = counters.totals().kernels
  F.binary_cross_entropy(Tensor.rand(8).realize(), Tensor.rand(8).realize()).realize()
  assert counters.totals().kernels - before <= 4   # the loss, the check, and the drawing of both
