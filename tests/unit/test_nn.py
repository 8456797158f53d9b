"""Layers against numpy, their state's names and shapes as PyTorch has them, and their refusals."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from ntgrad import GlobalCounters, Tensor, nn
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.errors import ArgumentError, DTypeError, ShapeError
from ntgrad.nn.state import get_parameters, get_state_dict

rng = np.random.default_rng(0)


def rand(*shape: int) -> np.ndarray: return rng.standard_normal(shape).astype(np.float32)


def close(got: Tensor, want: np.ndarray, tolerance: float = 1e-5) -> None:
  assert got.shape == want.shape
  np.testing.assert_allclose(got.numpy(), want, rtol=tolerance, atol=tolerance)


@pytest.fixture
def training() -> Iterator[None]:
  Tensor.training = True
  yield
  Tensor.training = False


def shapes(layer: Any) -> dict[str, tuple[int, ...]]: return {k: tuple(v.shape) for k, v in get_state_dict(layer).items()}


@pytest.mark.parametrize("bias", [False, True])
def test_linear(bias: bool) -> None:
  l, x = nn.Linear(5, 3, bias=bias), rand(2, 4, 5)
  close(l(Tensor(x)), x @ l.weight.numpy().T + (l.bias.numpy() if l.bias is not None else 0))
  assert shapes(l) == ({"weight": (3, 5), "bias": (3,)} if bias else {"weight": (3, 5)})
  assert np.abs(l.weight.numpy()).max() <= 5**-0.5 and all(p.requires_grad for p in get_parameters(l))


def conv(
  x: np.ndarray, w: np.ndarray, stride: tuple[int, int], padding: Any, dilation: tuple[int, int], groups: int
) -> np.ndarray:
  """The definition, in loops."""
  (t, b), (l, r) = padding
  x = np.pad(x, ((0, 0), (0, 0), (t, b), (l, r)))
  n, c, h, v = x.shape
  o, _, kh, kw = w.shape
  oh, ow = ((s - d * (k - 1) - 1) // st + 1 for s, d, k, st in zip((h, v), dilation, (kh, kw), stride))
  out = np.zeros((n, o, oh, ow))
  for g in range(groups):
    ins, outs = slice(g * c // groups, (g + 1) * c // groups), slice(g * o // groups, (g + 1) * o // groups)
    for i in range(oh):
      for j in range(ow):
        window = x[:, ins, i * stride[0] :, j * stride[1] :][:, :, : (kh - 1) * dilation[0] + 1, : (kw - 1) * dilation[1] + 1]
        window = window[:, :, :: dilation[0], :: dilation[1]]
        out[:, outs, i, j] = np.einsum("ncyx,ocyx->no", window, w[outs])
  return out


@pytest.mark.parametrize("kernel, stride, padding, pads, dilation, groups", [
  (3, 1, 0, ((0, 0), (0, 0)), 1, 1), ((2, 3), (2, 1), (1, 0), ((1, 1), (0, 0)), 1, 2), (3, 2, 2, ((2, 2), (2, 2)), (1, 2), 4),
  (3, 1, "same", ((1, 1), (1, 1)), 1, 1), ((2, 4), 1, "same", ((0, 1), (3, 3)), (1, 2), 1)])
def test_conv2d(kernel: Any, stride: Any, padding: Any, pads: Any, dilation: Any, groups: int) -> None:
  c, x = nn.Conv2d(4, 8, kernel, stride, padding, dilation, groups), rand(2, 4, 7, 9)
  def pair(v: Any) -> tuple[int, int]: return (v, v) if isinstance(v, int) else v
  assert c.bias is not None
  want = conv(x, c.weight.numpy(), pair(stride), pads, pair(dilation), groups) + c.bias.numpy()[:, None, None]
  close(c(Tensor(x)), want.astype(np.float32), 1e-4)
  assert shapes(c) == {"weight": (8, 4 // groups, *pair(kernel)), "bias": (8,)}


def test_conv1d() -> None:
  c, x = nn.Conv1d(2, 3, 3, padding=1, bias=False), rand(2, 2, 6)
  want = conv(x[:, :, None], c.weight.numpy()[:, :, None], (1, 1), ((0, 0), (1, 1)), (1, 1), 1)[:, :, 0]
  close(c(Tensor(x)), want.astype(np.float32), 1e-4)


@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5), (4, 3, 5, 2)])
def test_batch_norm_in_training(training: None, shape: tuple[int, ...]) -> None:
  norm, x = nn.BatchNorm(3), rand(*shape) * 3 + 1
  norm.weight, norm.bias = Tensor(w := rand(3), requires_grad=True), Tensor(b := rand(3), requires_grad=True)
  axes = tuple(i for i in range(x.ndim) if i != 1)
  def wide(a: np.ndarray) -> np.ndarray: return a.reshape(1, 3, *[1] * (x.ndim - 2))
  mean, var, n = x.mean(axes), x.var(axes), x.size // 3
  close(norm(Tensor(x)), (x - wide(mean)) / np.sqrt(wide(var) + 1e-5) * wide(w) + wide(b), 1e-4)
  close(norm.running_mean, 0.1 * mean)
  close(norm.running_var, 0.9 + 0.1 * var * n / (n - 1))
  assert norm.num_batches_tracked.item() == 1 and norm.num_batches_tracked.dtype is dtypes.int64
  norm(Tensor(x))
  close(norm.running_mean, 0.19 * mean)
  assert norm.num_batches_tracked.item() == 2


def test_batch_norm_gradient(training: None) -> None:
  norm, x, g = nn.BatchNorm(3), rand(5, 3, 4), rand(5, 3, 4)
  t = Tensor(x, requires_grad=True)
  (norm(t) * Tensor(g)).sum().backward()
  axes, n = (0, 2), 20
  inv = 1 / np.sqrt(x.var(axes, keepdims=True) + 1e-5)
  hat = (x - x.mean(axes, keepdims=True)) * inv
  want = inv / n * (n * g - g.sum(axes, keepdims=True) - hat * (g * hat).sum(axes, keepdims=True))
  close(t.grad, want.astype(np.float32), 1e-4)
  assert norm.weight is not None and norm.bias is not None
  close(norm.weight.grad, (g * hat).sum(axes), 1e-4)
  close(norm.bias.grad, g.sum(axes), 1e-4)


def test_batch_norm_in_evaluation() -> None:
  norm, x = nn.BatchNorm(3, affine=False), rand(2, 3, 4)
  norm.running_mean.assign(Tensor(m := rand(3))).realize()
  norm.running_var.assign(Tensor(v := np.abs(rand(3)) + 1)).realize()
  close(norm(Tensor(x)), (x - m[:, None]) / np.sqrt(v[:, None] + 1e-5), 1e-4)
  assert norm.num_batches_tracked.item() == 0
  untracked = nn.BatchNorm(3, track_running_stats=False)
  close(untracked(Tensor(x)), (x - x.mean((0, 2), keepdims=True)) / np.sqrt(x.var((0, 2), keepdims=True) + 1e-5), 1e-4)
  assert shapes(untracked) == {"weight": (3,), "bias": (3,)}


def test_batch_norm_state() -> None:
  norm = nn.BatchNorm2d(3)
  assert shapes(norm) == {"weight": (3,), "bias": (3,), "num_batches_tracked": (), "running_mean": (3,), "running_var": (3,)}
  assert [p.requires_grad for p in get_parameters(norm)] == [True, True, False, False, False]


def normed(x: np.ndarray, axes: Any, eps: float = 1e-5) -> np.ndarray:
  return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def test_layer_norm() -> None:
  x = rand(3, 4, 5)
  l = nn.LayerNorm(5)
  l.weight, l.bias = Tensor(w := rand(5)), Tensor(b := rand(5))
  close(l(Tensor(x)), normed(x, -1) * w + b, 1e-4)
  close(nn.LayerNorm((4, 5), eps=0.1)(Tensor(x)), normed(x, (-2, -1), 0.1), 1e-4)
  assert shapes(nn.LayerNorm((4, 5), elementwise_affine=False)) == {} and shapes(nn.LayerNorm(3)) == {
    "weight": (3,),
    "bias": (3,),
  }
  y = rand(2, 4, 3, 3)
  close(nn.LayerNorm2d(4)(Tensor(y)), normed(y, 1), 1e-4)


def test_group_norm() -> None:
  x = rand(2, 6, 4, 3)
  l = nn.GroupNorm(3, 6)
  l.weight, l.bias = Tensor(w := rand(6)), Tensor(b := rand(6))
  want = normed(x.reshape(2, 3, -1), -1).reshape(x.shape) * w[:, None, None] + b[:, None, None]
  close(l(Tensor(x)), want, 1e-4)


def test_rms_norm() -> None:
  x = rand(3, 5)
  l = nn.RMSNorm(5, eps=0.1)
  l.weight = Tensor(w := rand(5))
  close(l(Tensor(x)), x / np.sqrt((x * x).mean(-1, keepdims=True) + 0.1) * w, 1e-4)


def test_embedding() -> None:
  e, i = nn.Embedding(7, 3), np.array([[0, 6, 2], [2, 2, 1]], np.int32)
  out = e(Tensor(i))
  close(out, e.weight.numpy()[i])
  (out * Tensor(g := rand(2, 3, 3))).sum().backward()
  want = np.zeros((7, 3), np.float32)
  np.add.at(want, i, g)
  close(e.weight.grad, want)


@pytest.mark.parametrize("call, error, said", [
  (lambda: nn.Linear(0, 3), ArgumentError, "nn.Linear: in_features 0"),
  (lambda: nn.Linear(3, 2.5), ArgumentError, "out_features is 2.5"),  # type: ignore[arg-type]
  (lambda: nn.Linear(3, 4)(Tensor.zeros(2, 5)), ShapeError, r"nn.Linear: input of shape \(2, 5\), expected \(\.\., 3\)"),
  (lambda: nn.Conv2d(3, 4, 0), ArgumentError, "nn.Conv2d: kernel_size is 0"),
  (lambda: nn.Conv2d(3, 4, (3, 3, 3, 3)), ArgumentError, r"kernel_size is \(3, 3, 3, 3\)"),
  (lambda: nn.Conv2d(3, 4, 3, stride=0), ArgumentError, "stride is 0"),
  (lambda: nn.Conv2d(3, 4, 3, padding=-1), ArgumentError, "padding is -1"),
  (lambda: nn.Conv2d(3, 4, 3, padding="full"), ArgumentError, "padding 'full'"),
  (lambda: nn.Conv2d(3, 4, 3, groups=2), ArgumentError, "3 channels in and 4 out cannot be divided into 2 groups"),
  (lambda: nn.Conv2d(3, 4, 3)(Tensor.zeros(1, 4, 8, 8)), ShapeError, r"input of shape \(1, 4, 8, 8\), expected \(n, 3, h, w\)"),
  (lambda: nn.BatchNorm(3)(Tensor.zeros(2, 4)), ShapeError, r"nn.BatchNorm: input of shape \(2, 4\), expected \(n, 3, \.\.\)"),
  (lambda: nn.BatchNorm(3, momentum=2), ArgumentError, "momentum is 2"),
  (lambda: nn.LayerNorm(()), ArgumentError, "normalized_shape is empty"),
  (lambda: nn.LayerNorm((4, 5))(Tensor.zeros(2, 5)), ShapeError, r"expected \(\.\., 4, 5\)"),
  (lambda: nn.GroupNorm(4, 6), ArgumentError, "6 channels cannot be divided into 4 groups"),
  (lambda: nn.RMSNorm(4)(Tensor.zeros(3)), ShapeError, r"nn.RMSNorm: input of shape \(3,\)"),
  (lambda: nn.Embedding(4, 3)(Tensor.zeros(3)), DTypeError, "nn.Embedding: indices of float32")])
def test_refusals(call: Callable[[], Any], error: type[Exception], said: str) -> None:
  with pytest.raises(error, match=said): call()


def test_one_value_a_channel(training: None) -> None:
  with pytest.raises(ArgumentError, match=r"of shape \(1, 3\) has 1 value a channel"): nn.BatchNorm(3)(Tensor.zeros(1, 3))


@pytest.mark.parametrize("loaded", [False, True])
def test_running_statistics_of_a_frozen_net_do_not_pile_up(loaded: bool) -> None:
  """Nothing asks for them while the head alone is trained: each step computes them with the sums that it needs anyway."""
  rng = np.random.default_rng(0)
  body = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
  if loaded: body.load_state_dict({k: t.clone().realize() for k, t in body.state_dict().items()})
  body.train().requires_grad_(False)
  head = nn.Linear(3, 2)
  opt = nn.optim.SGD(head.parameters(), lr=0.1)
  x = [rng.standard_normal((8, 4)).astype(np.float32) for _ in range(12)]
  kernels = []
  for a in x:
    GlobalCounters.reset()
    opt.zero_grad()
    head(body(Tensor(a))).square().mean().backward()
    opt.step()
    kernels.append(GlobalCounters.kernel_count)
  assert len(set(kernels[3:])) == 1, kernels
  GlobalCounters.reset()
  mean, var = body[1].running_mean.numpy(), body[1].running_var.numpy()
  assert GlobalCounters.kernel_count <= 2
  want_mean, want_var = np.zeros(3), np.ones(3)
  for a in x:
    y = a @ body[0].weight.numpy().T + body[0].bias.numpy()
    want_mean, want_var = 0.9 * want_mean + 0.1 * y.mean(0), 0.9 * want_var + 0.1 * y.var(0, ddof=1)
  np.testing.assert_allclose(mean, want_mean, rtol=1e-4, atol=1e-6)
  np.testing.assert_allclose(var, want_var, rtol=1e-4)
