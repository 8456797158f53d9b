"""float64 does not mix with a model's smaller floats; smaller ones go by the table; parameters keep their dtype."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ntgrad.nn.functional as F
from ntgrad import Tensor, dtypes, nn
from ntgrad.errors import DTypeError


def x(dtype: str, *shape: int) -> Tensor: return Tensor(np.linspace(0.1, 1, int(np.prod(shape))).reshape(shape), dtype=dtype)


# what takes parameters -> a call with data of a dtype, beside a model of another
CALLS: dict[str, Any] = {
  "Linear": lambda d, m: nn.Linear(4, 2).to(m)(x(d, 1, 4)),
  "Bilinear": lambda d, m: nn.Bilinear(4, 3, 2).to(m)(x(d, 1, 4), x(m, 1, 3)),
  **{f"Conv{n}d": (lambda d, m, n=n: getattr(nn, f"Conv{n}d")(2, 1, 1).to(m)(x(d, 1, 2, *[3] * n))) for n in (1, 2, 3)},
  **{f"ConvTranspose{n}d": (lambda d, m, n=n: getattr(nn, f"ConvTranspose{n}d")(2, 1, 1).to(m)(x(d, 1, 2, *[3] * n)))
     for n in (1, 2, 3)},
  "BatchNorm1d": lambda d, m: nn.BatchNorm1d(3).to(m).train()(x(d, 4, 3)),
  "BatchNorm2d used": lambda d, m: nn.BatchNorm2d(2, affine=False).to(m).eval()(x(d, 1, 2, 2, 2)),
  "InstanceNorm2d": lambda d, m: nn.InstanceNorm2d(2, affine=True).to(m)(x(d, 1, 2, 2, 2)),
  "InstanceNorm2d used": lambda d, m: nn.InstanceNorm2d(2, track_running_stats=True).to(m).eval()(x(d, 1, 2, 2, 2)),
  "InstanceNorm": lambda d, m: nn.InstanceNorm(2).to(m)(x(d, 1, 2, 3)),
  "GroupNorm": lambda d, m: nn.GroupNorm(1, 2).to(m)(x(d, 1, 2, 3)),
  "LayerNorm": lambda d, m: nn.LayerNorm(3).to(m)(x(d, 2, 3)),
  "RMSNorm": lambda d, m: nn.RMSNorm(3).to(m)(x(d, 2, 3)),
  "PReLU": lambda d, m: nn.PReLU(2).to(m)(x(d, 2, 2)),
  "LSTM": lambda d, m: nn.LSTM(3, 2).to(m)(x(d, 2, 1, 3))[0],
  "GRU, its state": lambda d, m: nn.GRU(3, 2).to(m)(x(m, 2, 1, 3), x(d, 1, 1, 2))[0],
  "RNNCell": lambda d, m: nn.RNNCell(3, 2).to(m)(x(d, 1, 3)),
  "LSTMCell, its state": lambda d, m: nn.LSTMCell(3, 2).to(m)(x(m, 1, 3), (x(m, 1, 2), x(d, 1, 2)))[0],
  "MultiheadAttention": lambda d, m: nn.MultiheadAttention(4, 2).to(m)(*[x(d, 3, 4)] * 3)[0],
  "TransformerEncoderLayer": lambda d, m: nn.TransformerEncoderLayer(4, 2, 4).to(m).eval()(x(d, 3, 4)),
  "EmbeddingBag": lambda d, m: nn.EmbeddingBag(4, 2, mode="sum").to(m)(Tensor([[1, 2]]), None, x(d, 1, 2)),
  "F.embedding_bag": lambda d, m: F.embedding_bag(Tensor([[1, 2]]), x(m, 4, 2), mode="sum", per_sample_weights=x(d, 1, 2)),
  "F.linear": lambda d, m: F.linear(x(d, 2, 3), x(m, 4, 3), x(m, 4)),
  "F.linear, its bias": lambda d, m: F.linear(x(m, 2, 3), x(m, 4, 3), x(d, 4)),
  "F.layer_norm": lambda d, m: F.layer_norm(x(d, 2, 3), (3,), x(m, 3)),
  "F.batch_norm": lambda d, m: F.batch_norm(x(d, 2, 3), x(m, 3), x(m, 3)),
  "F.scaled_dot_product_attention": lambda d, m: F.scaled_dot_product_attention(x(d, 2, 3), x(m, 2, 3), x(m, 2, 3)),
  "@": lambda d, m: x(d, 2, 3) @ x(m, 3, 2).requires_grad_(),
  "einsum": lambda d, m: Tensor.einsum("ij,jk", x(d, 2, 3), x(m, 3, 2).requires_grad_()),
  "addmm": lambda d, m: x(m, 2, 2).addmm(x(d, 2, 3), x(m, 3, 2).requires_grad_())}


@pytest.mark.parametrize("name", CALLS)
def test_float64_does_not_widen_a_model(name: str) -> None:
  call = CALLS[name]
  for model in ("float32", "float16", "bfloat16"):
    said = rf"float64 of shape .* with {model} of shape .*; float64 does not mix"
    with pytest.raises(DTypeError, match=said) as error: call("float64", model)
    assert isinstance(error.value, TypeError)
    assert f"x.cast('{model}')" in str(error.value) and "model.double()" in str(error.value)
  assert call("float64", "float64").dtype is dtypes.float64
  # smaller floats go by the table
  for small in ("float16", "bfloat16"):
    assert call(small, "float32").dtype in (dtypes.float32, dtypes.of(small)) and call(small, small).dtype is dtypes.of(small)
  assert call("float32", "float32").dtype is dtypes.float32


def test_a_model_whose_parameters_are_frozen() -> None:
  layer = nn.Linear(4, 2).requires_grad_(False)
  with Tensor.no_grad(), pytest.raises(DTypeError, match="float64"): layer(x("float64", 1, 4))
  assert nn.Linear(4, 2)(Tensor([[1, 2, 3, 4]])).dtype is dtypes.float32


def test_what_goes_by_the_table() -> None:
  a, w = x("float64", 2, 3), x("float32", 3, 2)
  assert (a @ w).dtype is dtypes.float64                         # two tensors, no model
  assert (a * nn.Parameter(x("float32", 3))).dtype is dtypes.float64
  assert (w.requires_grad_() @ Tensor([[1], [2]])).dtype is dtypes.float32
  assert (x("float32", 2, 3) @ Tensor(w.numpy(), dtype="float64")).dtype is dtypes.float64


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "LAMB", "NAdam", "RAdam", "Adamax"])
def test_parameters_and_gradients_keep_their_dtype(kind: str) -> None:
  layer = nn.Linear(4, 1)
  optimizer = getattr(nn.optim, kind)(layer.parameters(), lr=0.1)
  loss = F.mse_loss(layer(x("float32", 2, 4)), x("float64", 2, 1))
  assert loss.dtype is dtypes.float64
  loss.backward()
  assert {p.grad.dtype for p in layer.parameters()} == {dtypes.float32}
  optimizer.step()
  layer.weight.grad = x("float64", 1, 4)
  optimizer.step()
  assert {p.dtype for p in layer.parameters()} == {dtypes.float32}
