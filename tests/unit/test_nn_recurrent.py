"""Recurrent layers against their formulas in numpy, gradients against finite differences, and how many kernels they take."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ntgrad import Tensor, nn
from ntgrad.errors import ArgumentError, ShapeError
from ntgrad.schedule import create_schedule
from support.marks import long, long_where

rng = np.random.default_rng(0)


def rand(*shape: int) -> np.ndarray: return rng.standard_normal(shape)
def sigmoid(x: np.ndarray) -> np.ndarray: return 1 / (1 + np.exp(-x))


def step(kind: str, x: np.ndarray, state: tuple[np.ndarray, ...], w: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
  """One step by the definition."""
  h = state[0]
  a, b = x @ w["weight_ih"].T + w["bias_ih"], h @ w["weight_hh"].T + w["bias_hh"]
  if kind == "RNN": return (np.tanh(a + b),)
  if kind == "LSTM":
    i, f, g, o = np.split(a + b, 4, -1)
    c = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c
  (ar, az, an), (br, bz, bn) = np.split(a, 3, -1), np.split(b, 3, -1)
  z = sigmoid(az + bz)
  return ((1 - z) * np.tanh(an + sigmoid(ar + br) * bn) + z * h,)


def weights(layer: Any, end: str = "") -> dict[str, np.ndarray]:
  return {n: getattr(layer, n + end).numpy().astype(np.float64) for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}


def run(kind: str, layer: Any, x: np.ndarray, states: tuple[np.ndarray, ...]) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
  """A layer of several over a sequence (steps, n, features), by the definition."""
  ends, last = ("", "_reverse") if layer.bidirectional else ("",), []
  for k in range(layer.num_layers):
    outs = []
    for e in ends:
      state, w, out = tuple([s[len(last)] for s in states]), weights(layer, f"_l{k}{e}"), []
      for t in range(len(x))[::-1 if e else 1]:
        state = step(kind, x[t], state, w)
        out.append(state[0])
      outs.append(np.stack(out[::-1] if e else out))
      last.append(state)
    x = np.concatenate(outs, -1)
  return x, tuple([np.stack(s) for s in zip(*last)])


@long_where(lambda device: device != "NUMPY")
@pytest.mark.parametrize("device", ["NUMPY", "CPU"])
@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_layers(kind: str, device: str) -> None:
  layer = getattr(nn, kind)(3, 4, num_layers=2, batch_first=True, bidirectional=True).to(device)
  x, states = rand(2, 3, 3), tuple([rand(4, 2, 4) for _ in range(1 + (kind == "LSTM"))])
  given = tuple([Tensor(s.astype(np.float32), device=device) for s in states])
  out, last = layer(Tensor(x.astype(np.float32), device=device), given if kind == "LSTM" else given[0])
  want, ends = run(kind, layer, x.swapaxes(0, 1), states)
  np.testing.assert_allclose(out.numpy(), want.swapaxes(0, 1), rtol=1e-4, atol=1e-5)
  for got, end in zip(last if kind == "LSTM" else (last,), ends):
    np.testing.assert_allclose(got.numpy(), end, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_gradients(kind: str) -> None:
  """Against finite differences of the definition."""
  layer = getattr(nn, kind)(2, 3).to("NUMPY", "float64")
  x, states = rand(10, 1, 2), tuple([np.zeros((1, 1, 3)) for _ in range(1 + (kind == "LSTM"))])   # enough steps to be joined
  t = Tensor(x, requires_grad=True, device="NUMPY")
  layer(t)[0].sin().sum().backward()
  def loss() -> float: return float(np.sin(run(kind, layer, x, states)[0]).sum())
  for name, p in (*layer.named_parameters(), ("x", t)):
    a = x if name == "x" else p.numpy()
    want = np.zeros_like(a)
    for at in np.ndindex(a.shape):
      ends = []
      for d in (1e-5, -1e-5):
        before = a[at]
        a[at] += d
        if name != "x": p.assign(Tensor(a, device="NUMPY")).realize()
        ends.append(loss())
        a[at] = before
      want[at] = (ends[0] - ends[1]) / 2e-5
    if name != "x": p.assign(Tensor(a, device="NUMPY")).realize()
    np.testing.assert_allclose(p.grad.numpy(), want, rtol=1e-5, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_cells_are_a_step_of_the_layer(kind: str) -> None:
  cell, x = getattr(nn, f"{kind}Cell")(3, 4), rand(2, 3).astype(np.float32)
  states = tuple([rand(2, 4) for _ in range(1 + (kind == "LSTM"))])
  given = tuple([Tensor(s.astype(np.float32)) for s in states])
  got = cell(Tensor(x), given if kind == "LSTM" else given[0])
  for g, w in zip(got if kind == "LSTM" else (got,), step(kind, x, states, weights(cell))):
    np.testing.assert_allclose(g.numpy(), w, rtol=1e-4, atol=1e-5)
  assert list(cell.state_dict()) == ["weight_ih", "weight_hh", "bias_ih", "bias_hh"]
  bare = getattr(nn, f"{kind}Cell")(3, 4, bias=False)
  assert list(bare.state_dict()) == ["weight_ih", "weight_hh"]
  assert (bare(Tensor(x))[0] if kind == "LSTM" else bare(Tensor(x))).shape == (2, 4)


def test_names_and_shapes() -> None:
  """Those of PyTorch."""
  layer = nn.LSTM(3, 4, num_layers=2, bidirectional=True, proj_size=2)
  names = [f"{n}_l{k}{e}" for k in (0, 1) for e in ("", "_reverse")
           for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")]
  assert list(layer.state_dict()) == names
  assert layer.weight_ih_l1.shape == (16, 4) and layer.weight_hh_l0.shape == (16, 2) and layer.weight_hr_l0.shape == (2, 4)
  out, (h, c) = layer(Tensor.ones(5, 3))
  assert out.shape == (5, 4) and h.shape == (4, 2) and c.shape == (4, 4)
  assert repr(nn.GRU(3, 4, bidirectional=True)) == ("GRU(3, 4, num_layers=1, bias=True, batch_first=False, dropout=0.0, "
                                                    "bidirectional=True)")
  assert all([p.requires_grad and np.abs(p.numpy()).max() <= 0.5 for p in layer.parameters()])


def test_dropout_between_layers() -> None:
  Tensor.manual_seed(0)   # with some weights no unit of the first layer passes anything on
  layer, x = nn.RNN(3, 4, num_layers=2, dropout=1.0, nonlinearity="relu"), Tensor.ones(5, 2, 3)
  alone = nn.RNN(4, 4, nonlinearity="relu")
  for n in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"): setattr(alone, n, getattr(layer, n.replace("l0", "l1")))
  want = alone(Tensor.zeros(5, 2, 4))[0].numpy()
  np.testing.assert_allclose(layer.train()(x)[0].numpy(), want, rtol=1e-5, atol=1e-6)
  assert np.abs(layer.eval()(x)[0].numpy() - want).max() > 1e-3


@long
@pytest.mark.parametrize("kind, forward, both", [("RNN", 1, 4), ("LSTM", 2, 6), ("GRU", 2, 7)])
def test_a_step_is_few_kernels(kind: str, forward: int, both: int) -> None:
  steps, layer = 64, getattr(nn, kind)(16, 16)
  x = Tensor.ones(steps, 4, 16).contiguous().realize()
  for p in layer.parameters(): p.realize()
  out = layer(x)[0]
  assert len(create_schedule([out])) <= steps * forward + 2   # the product of all inputs, one store
  out.square().mean().backward()
  assert len(create_schedule([out, *[p.grad for p in layer.parameters()]])) <= steps * both + 12


def test_refusals() -> None:
  for call, error, said in (
    (lambda: nn.RNN(3, 4, nonlinearity="sin"), ArgumentError, "nonlinearity 'sin'"),
    (lambda: nn.LSTM(3, 4, proj_size=4), ArgumentError, "proj_size is 4"),
    (lambda: nn.GRU(3, 4, dropout=2), ArgumentError, "dropout is 2"),
    (lambda: nn.GRU(3, 4)(Tensor.ones(2, 3, 5)), ShapeError, r"input of shape \(2, 3, 5\), expected \(\.\., 3\)"),
    (lambda: nn.GRU(3, 4)(Tensor.ones(0, 2, 3)), ShapeError, "no steps"),
    (lambda: nn.GRU(3, 4)(Tensor.ones(5, 2, 3), Tensor.ones(2, 4)), ShapeError, r"shape \(2, 4\), expected \(1, 2, 4\)"),
    (lambda: nn.GRUCell(3, 4)(Tensor.ones(2, 3), Tensor.ones(2, 3)), ShapeError, r"expected \(2, 4\)")):
    with pytest.raises(error, match=said): call()
