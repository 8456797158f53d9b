"""Layers without weights, transposed convolutions, norms and embeddings against numpy, and what they print as."""
from __future__ import annotations

import math
import subprocess
import sys
from typing import Any, Callable

import numpy as np
import pytest

from ntgrad import Tensor, nn
from ntgrad.errors import ArgumentError, ShapeError
from support.marks import long

rng = np.random.default_rng(0)


def rand(*shape: int) -> np.ndarray: return rng.standard_normal(shape).astype(np.float32)


def close(got: Any, want: Any, tolerance: float = 1e-5) -> None:
  assert got.shape == np.shape(want)
  np.testing.assert_allclose(got.numpy(), want, rtol=tolerance, atol=tolerance)


def sigmoid(x: np.ndarray) -> np.ndarray: return 1 / (1 + np.exp(-x))
def softplus(x: np.ndarray) -> np.ndarray: return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)
def softmax(x: np.ndarray, axis: int) -> np.ndarray: return np.exp(x) / np.exp(x).sum(axis, keepdims=True)
def elu(x: np.ndarray, a: float) -> np.ndarray: return np.where(x > 0, x, a * np.expm1(np.minimum(x, 0)))


_erf = np.vectorize(math.erf)
FORMULAS: dict[str, tuple[tuple[Any, ...], str, Callable[[np.ndarray], np.ndarray]]] = {
  "ReLU": ((), "", lambda x: np.maximum(x, 0)),
  "ReLU6": ((), "", lambda x: np.clip(x, 0, 6)),
  "LeakyReLU": ((0.2,), "negative_slope=0.2", lambda x: np.where(x > 0, x, 0.2 * x)),
  "ELU": ((0.7,), "alpha=0.7", lambda x: elu(x, 0.7)),
  "SELU": ((), "", lambda x: 1.0507009873554805 * elu(x, 1.6732632423543772)),
  "CELU": ((1.3,), "alpha=1.3", lambda x: np.where(x > 0, x, 1.3 * np.expm1(np.minimum(x, 0) / 1.3))),
  "GELU": ((), "approximate='none'", lambda x: x * (1 + _erf(x / np.sqrt(2))) / 2),
  "SiLU": ((), "", lambda x: x * sigmoid(x)),
  "Mish": ((), "", lambda x: x * np.tanh(softplus(x))),
  "Softplus": ((2.0,), "beta=2.0, threshold=20.0", lambda x: softplus(2 * x) / 2),
  "Softsign": ((), "", lambda x: x / (1 + np.abs(x))),
  "Tanh": ((), "", np.tanh),
  "Sigmoid": ((), "", sigmoid),
  "LogSigmoid": ((), "", lambda x: -softplus(-x)),
  "Hardtanh": ((-2.0, 0.5), "min_val=-2.0, max_val=0.5", lambda x: np.clip(x, -2, 0.5)),
  "Hardswish": ((), "", lambda x: x * np.clip(x + 3, 0, 6) / 6),
  "Hardsigmoid": ((), "", lambda x: np.clip(x + 3, 0, 6) / 6),
  "Tanhshrink": ((), "", lambda x: x - np.tanh(x)),
  "Hardshrink": ((0.6,), "lambd=0.6", lambda x: np.where(np.abs(x) > 0.6, x, 0)),
  "Softshrink": ((0.6,), "lambd=0.6", lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.6, 0)),
  "Threshold": ((0.1, 20.0), "threshold=0.1, value=20.0", lambda x: np.where(x > 0.1, x, 20)),
  "Softmax": ((-1,), "dim=-1", lambda x: softmax(x, -1)),
  "Softmin": ((1,), "dim=1", lambda x: softmax(-x, 1)),
  "LogSoftmax": ((), "dim=None", lambda x: np.log(softmax(x, 1))),
  "Softmax2d": ((), "", lambda x: softmax(x, 1)),
  "GLU": ((1,), "dim=1", lambda x: x[:, :3] * sigmoid(x[:, 3:])),
  "PReLU": ((6,), "num_parameters=6", lambda x: np.where(x > 0, x, 0.25 * x)),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_activations(name: str) -> None:
  args, said, formula = FORMULAS[name]
  layer, a = getattr(nn, name)(*args), rand(3, 6, 2, 2) * 3
  assert repr(layer) == f"{name}({said})"
  x = Tensor(a, requires_grad=True, device="NUMPY")
  if name == "PReLU": layer.to("NUMPY")
  y = layer(x)
  close(y, formula(a), 1e-4)
  g = rand(*y.shape)
  (y * Tensor(g, device="NUMPY")).sum().backward()
  wide, d = a.astype(np.float64), rng.standard_normal(a.shape)
  slope = ((formula(wide + 1e-6 * d) - formula(wide - 1e-6 * d)) * g).sum() / 2e-6
  np.testing.assert_allclose((x.grad.numpy() * d).sum(), slope, rtol=1e-3, atol=1e-3)


def test_dropout() -> None:
  x = Tensor.ones(200, 30, 5)
  for name, same in (("Dropout", False), ("Dropout1d", True), ("FeatureAlphaDropout", True), ("AlphaDropout", False)):
    layer = getattr(nn, name)(0.3)
    close(layer(x), np.ones(x.shape))
    y = layer.train()(x).numpy()
    values, counts = np.unique(y, return_counts=True)
    assert len(values) == 2 and abs(counts[0] / y.size - 0.3) < 0.05
    if "Alpha" not in name: np.testing.assert_allclose(values, [0, 1 / 0.7], rtol=1e-5)
    assert (y == y[:, :, :1]).all() == same
    assert nn.Dropout(1.0).train()(x).numpy().max() == 0
  y = nn.AlphaDropout(0.4).train()(Tensor.randn(400, 400)).numpy()
  assert abs(y.mean()) < 0.02 and abs(y.std() - 1) < 0.02
  with Tensor.train(): assert nn.Dropout2d()(Tensor.ones(4, 8, 3, 3)).numpy().min() == 0


def test_pooling() -> None:
  a = rand(2, 3, 6, 8)
  x, parts = Tensor(a), a.reshape(2, 3, 3, 2, 4, 2)
  close(nn.MaxPool2d(2)(x), parts.max((3, 5)))
  close(nn.AvgPool2d(2)(x), parts.mean((3, 5)))
  close(nn.AdaptiveAvgPool2d((3, None))(x), a.reshape(2, 3, 3, 2, 8).mean(3))
  close(nn.AdaptiveMaxPool1d(3)(x[0]), np.stack([a[0, :, :, b:e].max(-1) for b, e in ((0, 3), (2, 6), (5, 8))], -1))
  close(nn.AdaptiveAvgPool3d(1)(x), a.mean((1, 2, 3), keepdims=True))
  close(nn.MaxPool1d(3, 2, 1)(x[0]), np.stack([np.pad(a[0], ((0, 0), (0, 0), (1, 1)), constant_values=-9)[:, :, i:i + 3].max(-1)
                                                for i in (0, 2, 4, 6)], -1))
  with pytest.raises(ShapeError, match=r"nn.MaxPool3d: input of shape \(2, 3\), expected \(n, c, d, h, w\)"):
    nn.MaxPool3d(2)(Tensor.ones(2, 3))


def test_movement() -> None:
  a = rand(2, 8, 3, 4)
  x = Tensor(a)
  up = nn.PixelShuffle(2)(x)
  close(up, a.reshape(2, 2, 2, 2, 3, 4).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 6, 8))
  close(nn.PixelUnshuffle(2)(up), a)
  close(nn.Flatten()(x), a.reshape(2, -1))
  close(nn.Unflatten(1, (2, 4))(x), a.reshape(2, 2, 4, 3, 4))
  assert nn.Identity(3, unused=1)(x) is x


@pytest.mark.skipif(not hasattr(Tensor, "interpolate"), reason="Tensor.interpolate")
def test_upsample() -> None:
  close(nn.Upsample(scale_factor=2)(Tensor(a := rand(1, 2, 3, 4))), a.repeat(2, 2).repeat(2, 3))


@long
def test_conv_transpose_is_the_adjoint() -> None:
  """<conv(x), y> = <x, conv_transpose(y)> with the same weight."""
  for rank in (1, 2, 3):
    up = getattr(nn, f"ConvTranspose{rank}d")(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2, bias=False)
    y, x = Tensor(rand(2, 4, *[3] * rank)), Tensor(rand(2, 6, *[6] * rank))
    got = up(y)
    assert got.shape == x.shape and up.weight.shape == (4, 3, *[3] * rank)
    down = x.conv2d(up.weight, None, 2, 2, 1, 1)
    np.testing.assert_allclose((got * x).sum().item(), (down * y).sum().item(), rtol=1e-3)


def test_conv3d_and_padding_modes() -> None:
  c, a = nn.Conv3d(2, 3, 2, bias=False), rand(1, 2, 3, 4, 3)
  w = c.weight.numpy()
  want = sum([np.einsum("ncdhw,oc->nodhw", a[:, :, i:i + 2, j:j + 3, k:k + 2], w[:, :, i, j, k])
              for i in (0, 1) for j in (0, 1) for k in (0, 1)])
  close(c(Tensor(a)), want, 1e-4)
  for mode, name in (("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")):
    l, b = nn.Conv1d(2, 3, 3, padding=1, padding_mode=mode), rand(2, 2, 5)
    plain = nn.Conv1d(2, 3, 3)
    plain.weight, plain.bias = l.weight, l.bias
    close(l(Tensor(b)), plain(Tensor(np.pad(b, ((0, 0), (0, 0), (1, 1)), mode=name))).numpy())   # type: ignore[call-overload]
  assert repr(nn.Conv2d(3, 4, 3, padding=1, bias=False)) == (
    "Conv2d(3, 4, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), bias=False)")


def test_instance_norm() -> None:
  a = rand(3, 2, 4, 5) * 2 + 1
  norm = nn.InstanceNorm2d(2, affine=True, track_running_stats=True)
  want = (a - a.mean((2, 3), keepdims=True)) / np.sqrt(a.var((2, 3), keepdims=True) + 1e-5)
  close(norm.train()(Tensor(a)), want, 1e-4)
  close(norm.running_mean, 0.1 * a.mean((0, 2, 3)))
  close(norm.running_var, 0.9 + 0.1 * a.var((2, 3), ddof=1).mean(0), 1e-4)
  m, v = norm.running_mean.numpy()[:, None, None], norm.running_var.numpy()[:, None, None]
  close(norm.eval()(Tensor(a[0])), (a[0] - m) / np.sqrt(v + 1e-5), 1e-4)
  assert nn.InstanceNorm1d(2).state_dict() == {} and norm.num_batches_tracked.item() == 1


def test_batch_norm_of_all_batches() -> None:
  norm, batches = nn.BatchNorm1d(3, momentum=None).train(), rand(3, 5, 3)
  for b in batches: norm(Tensor(b))
  close(norm.running_mean, batches.mean((0, 1)))
  close(norm.running_var, batches.var(1, ddof=1).mean(0))
  assert norm.num_batches_tracked.item() == 3


def test_bilinear() -> None:
  l, a, b = nn.Bilinear(3, 4, 5), rand(2, 6, 3), rand(2, 6, 4)
  assert l.bias is not None
  close(l(Tensor(a), Tensor(b)), np.einsum("nmi,kij,nmj->nmk", a, l.weight.numpy(), b) + l.bias.numpy(), 1e-4)


def test_embeddings() -> None:
  e, i = nn.Embedding(5, 3, padding_idx=-1), np.array([[0, 4], [4, 1]], np.int32)
  assert repr(e) == "Embedding(5, 3, padding_idx=4)" and not e.weight.numpy()[4].any()
  e(Tensor(i)).sum().backward()
  close(e.weight.grad, np.array([1, 1, 0, 0, 0])[:, None] * np.ones(3))
  for mode in ("sum", "mean", "max"):
    bag = nn.EmbeddingBag(5, 3, mode=mode)
    close(bag(Tensor(i)), getattr(bag.weight.numpy()[i], mode)(1))
  bag = nn.EmbeddingBag(5, 3, mode="mean", padding_idx=4)
  close(bag(Tensor(i)), bag.weight.numpy()[[0, 1]])
  bag = nn.EmbeddingBag(5, 3, mode="sum")
  close(bag(Tensor(i), per_sample_weights=Tensor(w := rand(2, 2))), (bag.weight.numpy()[i] * w[..., None]).sum(1))


LOSSES: dict[str, tuple[str, Callable[[np.ndarray, np.ndarray], np.ndarray]]] = {
  "MSELoss": ("mse_loss", lambda x, y: (x - y) ** 2),
  "L1Loss": ("l1_loss", lambda x, y: np.abs(x - y)),
  "SmoothL1Loss": ("smooth_l1_loss", lambda x, y: np.where(np.abs(x - y) < 1, (x - y) ** 2 / 2, np.abs(x - y) - 0.5)),
  "HuberLoss": ("huber_loss", lambda x, y: np.where(np.abs(x - y) < 1, (x - y) ** 2 / 2, np.abs(x - y) - 0.5)),
  "BCELoss": ("binary_cross_entropy", lambda x, y: -(y * np.log(x) + (1 - y) * np.log(1 - x))),
  "BCEWithLogitsLoss": ("binary_cross_entropy_with_logits", lambda x, y: softplus(x) - x * y),
  "KLDivLoss": ("kl_div", lambda x, y: y * (np.log(y) - x)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str) -> None:
  method, formula = LOSSES[name]
  if not hasattr(Tensor, method): pytest.skip(f"Tensor.{method}")
  x, y = rng.uniform(0.1, 0.9, (2, 4, 3)).astype(np.float32)
  for reduction, of in (("mean", np.mean), ("sum", np.sum), ("none", np.array)):
    close(getattr(nn, name)(reduction=reduction)(Tensor(x), Tensor(y)), of(formula(x, y)), 1e-4)   # type: ignore[operator]
  with pytest.raises(ArgumentError, match="reduction 'all'"): getattr(nn, name)(reduction="all")


def test_losses_of_classes() -> None:
  x, y = rand(4, 5), np.array([0, 4, -100, 2], np.int32)
  p = np.log(softmax(x, 1))
  want = -p[[0, 1, 3], [0, 4, 2]].mean()
  close(nn.CrossEntropyLoss()(Tensor(x), Tensor(y)), want)
  close(nn.NLLLoss()(Tensor(p), Tensor(y)), want)
  assert list(dict(nn.CrossEntropyLoss(weight=Tensor.ones(5)).named_buffers())) == ["weight"]


def test_the_index_knows_every_name() -> None:
  """The names of nn are those that its files give, and importing it loads none of them."""
  from importlib import import_module
  for file, names in nn._NAMES.items():
    given = vars(import_module(f"ntgrad.nn.{file}"))
    own = {n for n, x in given.items() if n[0] != "_" and isinstance(x, type) and x.__module__ == f"ntgrad.nn.{file}"
           and issubclass(x, nn.Module)}
    assert own - {"Layer"} <= set(names.split()) <= set(given), file
  assert len(set(nn.__all__)) == len(nn.__all__) and all([getattr(nn, n) is not None for n in nn.__all__])
  code = "import sys, ntgrad.nn; print([m for m in sys.modules if m.startswith('ntgrad.nn.')])"
  assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_arguments_that_other_libraries_have() -> None:
  """By PyTorch's names and places."""
  x, v = Tensor(rand(2, 4, 5, 5)), Tensor(rand(3, 8))
  norm = nn.BatchNorm2d(4, 1e-5, 0.2, False)
  assert norm.momentum == 0.2 and norm.weight is None and norm.track_running_stats
  norm = nn.BatchNorm2d(4, 1e-5, None, True, False)
  assert norm.momentum is None and norm.weight is not None and not norm.track_running_stats
  norm = nn.BatchNorm2d(4, 1e-5, False, True, 0.3)   # tinygrad's
  assert norm.weight is None and norm.momentum == 0.3
  for made in (nn.BatchNorm2d(4, bias=False), nn.GroupNorm(2, 4, bias=False), nn.InstanceNorm2d(4, affine=True, bias=False)):
    assert made.bias is None and made.weight is not None and made(x).shape == x.shape
  with pytest.raises(ArgumentError, match="momentum is True"): nn.BatchNorm2d(4, momentum=True)
  wide = nn.RMSNorm([5, 5], eps=None)
  a = x.numpy()
  close(wide(x), a / np.sqrt((a * a).mean((-1, -2), keepdims=True) + np.finfo(np.float32).eps))
  with pytest.raises(ShapeError, match=r"expected \(\.\., 5, 5\)"): wide(v)
  up = nn.ConvTranspose2d(4, 3, 3, stride=2, padding_mode="zeros")
  assert up(x).shape[2:] == (11, 11) and up(x, output_size=(12, 11)).shape[2:] == up(x, [2, 3, 12, 11]).shape[2:] == (12, 11)
  close(up(x, (12, 12)), nn_same(nn.ConvTranspose2d(4, 3, 3, stride=2, output_padding=1), up)(x))
  with pytest.raises(ShapeError, match=r"from \(11, 11\) to \(12, 12\)"): up(x, 13)
  with pytest.raises(ArgumentError, match="'zeros' alone"): nn.ConvTranspose2d(4, 3, 3, padding_mode="reflect")
  layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
  assert nn.TransformerEncoder(layer, 1, enable_nested_tensor=False, mask_check=False)(v.unsqueeze(0)).shape == (1, 3, 8)
  doubled = nn.Upsample(scale_factor=1.5, mode="bilinear", recompute_scale_factor=True)(x)
  close(doubled, x.interpolate(size=(7, 7), mode="bilinear"))


def nn_same(layer: Any, other: Any) -> Any:
  """A layer with the parameters of another one."""
  layer.load_state_dict(other.state_dict())
  return layer


@long
def test_tables() -> None:
  i = np.array([1, 3, 3, 0, 1, 1])
  table = Tensor(rand(5, 4) * 3, requires_grad=True)
  short = nn.Embedding(5, 4, max_norm=1.0, _weight=table.detach().clone().requires_grad_())
  before = short.weight.numpy()
  got = short(Tensor(i)).numpy()
  length = np.linalg.norm(before, axis=1, keepdims=True)
  want = np.where(length > 1, before / (length + 1e-7), before)
  want[[2, 4]] = before[[2, 4]]   # of those that are used
  np.testing.assert_allclose(short.weight.numpy(), want, rtol=1e-5)
  np.testing.assert_allclose(got, want[i], rtol=1e-5)
  rare = nn.Embedding(5, 4, scale_grad_by_freq=True)
  rare(Tensor(i)).sum().backward()
  close(rare.weight.grad, np.array([1, 1, 0, 1, 0])[:, None] * np.ones(4))
  with pytest.raises(ShapeError, match="a table of shape"): nn.Embedding(5, 3, _weight=table)
  offsets = np.array([0, 2, 2, 5])
  for mode, fn in (("sum", np.sum), ("mean", np.mean), ("max", np.max)):
    bag = nn.EmbeddingBag(5, 4, mode=mode)
    w = bag.weight.numpy()
    parts = [i[0:2], i[2:2], i[2:5], i[5:6]]
    close(bag(Tensor(i), Tensor(offsets)), np.stack([fn(w[p], 0) if len(p) else np.zeros(4) for p in parts]))
    ends = nn_same(nn.EmbeddingBag(5, 4, mode=mode, include_last_offset=True), bag)
    close(ends(Tensor(i), Tensor(np.append(offsets, 6))), bag(Tensor(i), Tensor(offsets)))
    without = nn_same(nn.EmbeddingBag(5, 4, mode=mode, padding_idx=1), bag)
    parts = [p[p != 1] for p in parts]
    close(without(Tensor(i), Tensor(offsets)), np.stack([fn(w[p], 0) if len(p) else np.zeros(4) for p in parts]))
  with pytest.raises(ShapeError, match="with offsets"): nn.EmbeddingBag(5, 4)(Tensor(i))


def test_lists_with_a_dim_behind() -> None:
  a, b = rand(2, 3), rand(2, 3)
  close(Tensor.cat([Tensor(a), Tensor(b)], 1), np.concatenate([a, b], 1))
  close(Tensor.stack((Tensor(a), Tensor(b)), -1), np.stack([a, b], -1))
