"""Recurrent layers against their formulas in numpy, gradients against finite differences, and how many kernels they take."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ntgrad import Tensor, dtypes, jit, nn, profile
from ntgrad.autograd import grad
from ntgrad.backends.cuda.renderer import TARGET
from ntgrad.codegen.ir.target import Rates, Target
from ntgrad.engine.device import get_device
from ntgrad.errors import ArgumentError, DTypeError, ShapeError
from ntgrad.nn import recurrent_kernels
from ntgrad.nn.utils.checkpoint import checkpoint
from ntgrad.nn.utils.rnn import (
  PackedSequence,
  pack_padded_sequence,
  pack_sequence,
  pad_packed_sequence,
  pad_sequence,
  unpack_sequence,
  unpad_sequence,
)
from ntgrad.schedule import create_schedule
from support.marks import long, long_unless, long_where

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


FORMS: dict[str, dict[str, Any]] = {
  "plain": {}, "both ways, in layers": {"bidirectional": True, "num_layers": 2}, "no biases": {"bias": False},
  "batch first": {"batch_first": True, "bidirectional": True}}


def _results(layer: Any, x: np.ndarray, dtype: str, states: tuple[np.ndarray, ...],
             lengths: list[int] | None) -> list[np.ndarray]:
  """What a layer gives, and all gradients of a number that is made of all of it."""
  device = layer.weight_hh_l0.device
  given = tuple([Tensor(s, requires_grad=True, device=device) for s in states])
  t = Tensor(x, device=device).cast(dtype).detach().requires_grad_()
  a: Any = pack_padded_sequence(t, lengths, layer.batch_first, enforce_sorted=False) if lengths else t
  hx = [s.cast(dtype) for s in given]
  out, last = layer(a, *([tuple(hx) if isinstance(layer, nn.LSTM) else hx[0]] if states else []))
  if lengths: out, _ = pad_packed_sequence(out, layer.batch_first)
  results = [out, *(last if isinstance(layer, nn.LSTM) else (last,))]
  parameters = list(layer.parameters())
  for p in parameters: p.grad = None
  sum([(r.cast("float64") * r.sin().cast("float64")).sum() for r in results]).backward()
  return [r.cast("float64").numpy() for r in (*results, t.grad, *[p.grad for p in parameters], *[s.grad for s in given])]


KINDS = "tanh", "relu", "GRU", "LSTM", "projected"
SHORT = {"tanh both ways, in layers NUMPY", "LSTM plain NUMPY", "projected plain NUMPY", "GRU no biases NUMPY",
         "GRU no biases CPU", "LSTM batch first NUMPY"}


@long_where(lambda kind, form, device: f"{kind} {form} {device}" not in SHORT)
@pytest.mark.parametrize("kind, form, lengths, given, device", [
  *[(k, "both ways, in layers", [3, 5, 1], True, "NUMPY") for k in KINDS], *[(k, "plain", None, False, "NUMPY") for k in KINDS],
  *[("GRU", "no biases", None, True, d) for d in ("NUMPY", "CPU")], ("LSTM", "no biases", [3, 5, 1], False, "NUMPY"),
  ("tanh", "batch first", None, True, "NUMPY"), ("LSTM", "batch first", [3, 5, 1], False, "NUMPY"),
  ("GRU", "both ways, in layers", [3, 5, 1], True, "CPU"), ("LSTM", "both ways, in layers", None, True, "CPU")])
def test_kernels_are_the_steps(kind: str, form: str, lengths: list[int] | None, given: bool, device: str,
                               monkeypatch: pytest.MonkeyPatch) -> None:
  """All steps in a kernel give what each step by itself gives, gradients too."""
  make = {"tanh": nn.RNN, "relu": lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k), "GRU": nn.GRU, "LSTM": nn.LSTM,
          "projected": lambda *a, **k: nn.LSTM(*a, proj_size=2, **k)}[kind]
  layer = make(3, 4, **FORMS[form]).to(device, "float64")   # type: ignore[operator]
  x = rand(5, 3, 3)
  if layer.batch_first: x = x.swapaxes(0, 1).copy()
  n, size = len([p for p in layer.state_dict() if "weight_hh" in p]), 2 if kind == "projected" else 4
  shapes = [(n, 3, size), (n, 3, 4)][:1 + isinstance(layer, nn.LSTM)] if given else []
  states = tuple([rand(*s) for s in shapes])
  got = _results(layer, x, "float64", states, lengths)
  monkeypatch.setattr(recurrent_kernels, "rows_of_programs", lambda *sizes: 0)
  for a, b in zip(got, _results(layer, x, "float64", states, lengths), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind, dtype, close", long_unless(lambda kind, dtype, close: (kind, dtype) in (
  ("RNN", "float16"), ("GRU", "float32")), [
  (k, d, c) for d, c in (("float32", 2e-6), ("float16", 4e-3), ("bfloat16", 3e-2)) for k in ("RNN", "LSTM", "GRU")]))
def test_small_floats(kind: str, dtype: str, close: float, monkeypatch: pytest.MonkeyPatch) -> None:
  layer, x = getattr(nn, kind)(3, 5, bidirectional=True).to("NUMPY", dtype), rand(6, 2, 3)
  got = _results(layer, x, dtype, (), None)
  monkeypatch.setattr(recurrent_kernels, "rows_of_programs", lambda *sizes: 0)
  for a, b in zip(got, _results(layer, x, dtype, (), None), strict=True): assert np.abs(a - b).max() <= close * np.abs(b).max()


def test_packed_sequences_end_where_they_end() -> None:
  """Each sequence has what it has alone."""
  layer = nn.LSTM(3, 4, num_layers=2, bidirectional=True).to("NUMPY")
  xs = [Tensor(rand(n, 3).astype(np.float32), device="NUMPY") for n in (2, 5, 1, 5)]
  packed, (h, c) = layer(pack_sequence(xs, enforce_sorted=False))
  for i, (x, out) in enumerate(zip(xs, unpack_sequence(packed), strict=True)):
    want, (wh, wc) = layer(x)
    for a, b in (out, want), (h[:, i], wh), (c[:, i], wc): np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", long_unless(lambda kind: kind == "LSTM", ["RNN", "LSTM", "GRU"]))
def test_gradients_of_gradients(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
  layer, x = getattr(nn, kind)(2, 3, num_layers=2).to("NUMPY", "float64"), rand(2, 1, 2)
  def second() -> list[np.ndarray]:
    t = Tensor(x, requires_grad=True, device="NUMPY")
    g, = grad(layer(t)[0].square().sum(), [t], create_graph=True)
    parameters = list(layer.parameters())
    return [f.numpy() for f in grad((g ** 3).sum(), [t, *parameters])]
  got = second()
  monkeypatch.setattr(recurrent_kernels, "rows_of_programs", lambda *sizes: 0)
  for a, b in zip(got, second(), strict=True): np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-12)


def test_checkpoint_has_the_gradients() -> None:
  layer, x = nn.GRU(2, 3), rand(4, 2, 2).astype(np.float32)
  def gradients(fn: Any) -> list[np.ndarray]:
    t = Tensor(x, requires_grad=True)
    for p in layer.parameters(): p.grad = None
    fn(lambda a: layer(a * 2.0)[0].sin(), t).sum().backward()
    return [t.grad.numpy(), *[p.grad.numpy() for p in layer.parameters()]]
  for a, b in zip(gradients(checkpoint), gradients(lambda f, t: f(t)), strict=True): np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize("kind, forward, both", [("RNN", 4, 14), ("LSTM", 4, 14), ("GRU", 5, 16)])
@pytest.mark.parametrize("steps", [5, 200])
def test_a_layer_is_few_kernels(kind: str, forward: int, both: int, steps: int) -> None:
  layer = getattr(nn, kind)(16, 16)
  x = Tensor.ones(steps, 4, 16).contiguous().realize()
  for p in layer.parameters(): p.realize()
  out = layer(x)[0]
  # zeros to begin with, the weights turned, the product of all inputs, all steps
  assert len(create_schedule([out])) <= forward + 1
  out.square().mean().backward()
  assert len(create_schedule([out, *[p.grad for p in layer.parameters()]])) <= both


@long
@pytest.mark.parametrize("captured", [False, True])
def test_other_lengths_and_batches_need_no_compile(captured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
  """After a second length, and a second batch. (A length with far more work than all before has kernels for so much.)"""
  layer = nn.LSTM(4, 8, num_layers=2, bidirectional=True)
  optimizer = nn.optim.SGD(layer.parameters(), lr=0.1)
  def step(x: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss = layer(x)[0].square().mean()
    loss.backward()
    optimizer.step()
    return loss.realize()
  call = jit(step) if captured else step
  def run(steps: int, n: int) -> int:
    x = Tensor(rand(steps, n, 4).astype(np.float32)).realize()
    with profile() as p: call(x)
    return sum([row.count for row in p.rows])
  def never(*_: Any) -> Any: raise AssertionError("nothing is compiled")
  for size in ((5, 20), (200, 20), (200, 30)):
    for _ in range(2): run(*size)   # the second call of a size may be recorded
  monkeypatch.setattr(type(get_device("CPU")), "compile", never)
  assert max([run(*size) for size in ((40, 30), (17, 24), (190, 21), (40, 27))]) <= 64


def test_the_price_of_a_kernel() -> None:
  """Small layers are kernels, and what a core's cache has no room for is not, nor on a GPU what takes long without its units."""
  def rows(target: Any, n: int, hidden: int, dtype: Any = dtypes.float32) -> int:
    return recurrent_kernels.rows_of_programs(target, 1, 100, n, 4, hidden, hidden, dtype)
  cpu = Target("opencl", lanes=16, cores=2, core_cache=2 << 20, rates=Rates({"float32": 333e9}, {}, 2e10, 333e9))
  assert [rows(cpu, n, 64) for n in (1, 8, 32, 1000)] == [1, 4, 16, 16]
  assert rows(cpu, 32, 128) == 16 and rows(cpu, 32, 1024) == 0
  assert recurrent_kernels.rows_of_programs(cpu, 1, 1, 4, 4, 64, 64, dtypes.float32) == 0   # one step
  assert rows(TARGET, 32, 32, dtypes.float16) == 16 and rows(TARGET, 32, 512) == rows(TARGET, 32, 512, dtypes.float16) == 0


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


# ---- packed and padded sequences
def test_pack_and_pad() -> None:
  """Steps one after the other, of each the sequences that have it, longest first."""
  xs = [Tensor(np.arange(n, dtype=np.float32) + 10 * n) for n in (2, 4, 1)]
  packed = pack_sequence(xs, enforce_sorted=False)
  assert packed.data.tolist() == [40, 20, 10, 41, 21, 42, 43] and packed.batch_sizes.tolist() == [3, 2, 1, 1]
  assert packed.sorted_indices is not None and packed.sorted_indices.tolist() == [1, 0, 2]
  padded, lengths = pad_packed_sequence(packed, batch_first=True, padding_value=-1.0, total_length=5)
  assert padded.tolist() == [[20, 21, -1, -1, -1], [40, 41, 42, 43, -1], [10, -1, -1, -1, -1]] and lengths.tolist() == [2, 4, 1]
  assert [x.tolist() for x in unpack_sequence(packed)] == [x.tolist() for x in xs]
  by_hand = PackedSequence(packed.data, packed.batch_sizes, packed.sorted_indices)
  assert pad_packed_sequence(by_hand)[0].tolist() == pad_packed_sequence(packed)[0].tolist()
  assert by_hand.unsorted_indices is not None and by_hand.unsorted_indices.tolist() == [1, 0, 2]
  ordered = pack_padded_sequence(Tensor.ones(3, 2, 2), Tensor([3, 1]))
  assert ordered.sorted_indices is None and ordered.data.shape == (4, 2) and ordered.to("float64").data.dtype is dtypes.float64


def test_pad_sequence() -> None:
  xs = [Tensor([[1.0], [2.0]]), Tensor([[3.0]])]
  assert pad_sequence(xs).tolist() == [[[1], [3]], [[2], [0]]]
  assert pad_sequence(xs, batch_first=True, padding_value=9, padding_side="left").tolist() == [[[1], [2]], [[9], [3]]]
  assert [x.tolist() for x in unpad_sequence(pad_sequence(xs), Tensor([2, 1]))] == [[[1], [2]], [[3]]]


def test_gradients_of_packing() -> None:
  x = Tensor(rand(3, 2, 2), requires_grad=True)
  padded, _ = pad_packed_sequence(pack_padded_sequence(x, [3, 1]), padding_value=5.0)
  padded.square().sum().backward()
  mask = np.array([[1, 1], [1, 0], [1, 0]])[..., None]
  np.testing.assert_allclose(x.grad.numpy(), 2 * x.numpy() * mask)


def test_refusals_of_packing() -> None:
  x = Tensor.ones(3, 2, 4)
  for call, error, said in (
    (lambda: pack_padded_sequence(x, [1, 2]), ArgumentError, "not sorted.*enforce_sorted=False"),
    (lambda: pack_padded_sequence(x, [1]), ShapeError, "1 lengths for 2 sequences"),
    (lambda: pack_padded_sequence(x, [3, 0]), ArgumentError, "a length of 0"),
    (lambda: pack_padded_sequence(x, [4, 1]), ArgumentError, "a length of 4, and the input has 3 steps"),
    (lambda: pack_padded_sequence(x, Tensor([1.0, 1.0])), DTypeError, "must be ints"),
    (lambda: pack_padded_sequence(Tensor.ones(3), [1]), ShapeError, r"shape \(3,\)"),
    (lambda: pad_packed_sequence(pack_padded_sequence(x, [3, 1]), total_length=2), ArgumentError, "total_length is 2"),
    (lambda: pad_sequence([]), ArgumentError, "no sequences"),
    (lambda: pad_sequence([x, x[0]]), ShapeError, "first dimension only"),
    (lambda: pad_sequence([x], padding_side="up"), ArgumentError, "'right' or 'left'"),
    (lambda: nn.GRU(3, 4)(pack_padded_sequence(x, [3, 1])), ShapeError, r"expected \(\.\., 3\)"),
    (lambda: nn.GRU(3, 4)(pack_padded_sequence(Tensor.ones(3, 2), [3, 1])), ShapeError, "packed elements of shape")):
    with pytest.raises(error, match=said): call()


@long
def test_plans_that_call_them_are_found_on_disk(tmp_path: Path) -> None:
  """By another process, which has other objects for the same kernels."""
  script = """
import numpy as np
from ntgrad import Tensor, nn
from ntgrad.engine import planner
made, make = [], planner.make_plan
planner.make_plan = lambda *a, **k: (made.append(1), make(*a, **k))[1]
Tensor.manual_seed(3)
net = nn.LSTM(8, 8, bidirectional=True)
x = Tensor(np.ones((5, 2, 8), np.float32), requires_grad=True)
net(x)[0].sum().backward()
print(x.grad.sum().item().hex(), len(made))
"""
  env = {**os.environ, "CACHE_DIR": str(tmp_path), "VERIFY": "0"}
  (one, first), (two, second) = [subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True,
                                                env=env).stdout.split() for _ in range(2)]
  assert one == two and int(first) > 0 == int(second)
