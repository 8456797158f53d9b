"""Modules, containers, how models print, training mode, attention and values to begin with."""
from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from ntgrad import Device, Tensor, jit, nn
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.errors import ArgumentError, AxisError, DTypeError, ShapeError, StateError
from ntgrad.graph.alias import values
from ntgrad.nn import init
from ntgrad.nn.state import get_state_dict
from support.marks import long

rng = np.random.default_rng(0)


def rand(*shape: int) -> np.ndarray: return rng.standard_normal(shape).astype(np.float32)


def close(got: Any, want: Any, tolerance: float = 1e-4) -> None:
  assert got.shape == np.shape(want)
  np.testing.assert_allclose(got.numpy(), want, rtol=tolerance, atol=tolerance)


class Plain:
  """A model that is no Module."""
  def __init__(self) -> None:
    self.head, self.scale, self.mean = nn.Linear(2, 2), Tensor.ones(2), Tensor.ones(2).requires_grad_(False)
  def __call__(self, x: Tensor) -> Tensor: return self.head(x) * self.scale


class Net(nn.Module):
  def __init__(self) -> None:
    self.first, self.rest = nn.Linear(3, 2), [nn.BatchNorm(2), nn.ReLU()]
    self.plain = Plain()
    self.tied = self.first
    self.register_buffer("steps", Tensor.zeros(4))
    self.register_buffer("cache", Tensor.zeros(5), persistent=False)
  def forward(self, x: Tensor) -> Tensor: return self.plain(self.first(x).sequential(self.rest).dropout(0.5))


class Kept(nn.Module):
  """As PyTorch's: plain tensors in attributes, and in lists, are no part of it, and its own tensors come before its layers'."""
  def __init__(self) -> None:
    super().__init__()
    self.layer, self.mask, self.seen, self.frozen = nn.Linear(3, 3), Tensor.ones(3), [Tensor.ones(2)], nn.Parameter([1.0], False)
    self.register_buffer("count", Tensor.zeros(1))
    self.scale, self.tail = nn.Parameter(Tensor.ones(3)), [nn.Parameter(Tensor.ones(1))]
  def forward(self, x: Tensor) -> Tensor:
    self.state = self.layer(x) * self.scale * self.mask
    self.seen.append(self.state.detach())
    return self.state


class Masked(nn.Linear):
  """A layer of one's own that keeps a tensor."""
  def __init__(self) -> None:
    super().__init__(3, 2)
    self.mask = Tensor.ones(2, 3)


def test_plain_tensors_are_no_parameters() -> None:
  layer = Masked()
  assert list(layer.state_dict()) == ["weight", "bias"]
  layer.weight = Tensor.zeros(2, 3)
  assert list(layer.state_dict()) == ["weight", "bias"] and layer.weight.requires_grad
  net, other = Kept(), Kept()
  for _ in range(2):
    net(Tensor.ones(1, 3))
    assert [n for n, _ in net.named_parameters()] == ["frozen", "scale", "layer.weight", "layer.bias", "tail.0"]
    assert list(net.state_dict()) == ["frozen", "scale", "count", "layer.weight", "layer.bias", "tail.0"]
  other.load_state_dict(net.state_dict())
  step = nn.optim.AdamW(net.parameters(), lr=0.1, weight_decay=0.5)
  net(Tensor.ones(1, 3)).sum().backward()
  step.step()
  assert net.mask.tolist() == [1, 1, 1] and net.mask.grad is None and "mask" not in repr(nn.summary(net))
  net(Tensor.ones(1, 3))   # what it keeps may be assigned still


def test_what_is_in_a_module() -> None:
  net = Net()
  assert [n for n, _ in net.named_parameters()] == [
    "first.weight", "first.bias", "rest.0.weight", "rest.0.bias", "plain.head.weight", "plain.head.bias", "plain.scale"]
  assert [n for n, _ in net.named_buffers()] == [
    "steps", "cache", "rest.0.running_mean", "rest.0.running_var", "rest.0.num_batches_tracked", "plain.mean"]
  assert [n for n, _ in net.named_modules()] == ["", "first", "rest.0", "rest.1", "plain.head"]
  assert [n for n, _ in net.named_children()] == ["first", "rest.0", "rest.1", "plain.head"]
  assert list(net.state_dict()) == [n for n in get_state_dict(net) if n != "cache"]
  seen: list[Any] = []
  assert net.apply(seen.append) is net and seen[-1] is net and len(seen) == 5
  net.requires_grad_(False)
  # what an object that is no Module does not train counts as a buffer
  assert len(list(net.parameters())) == 6 and not any([p.requires_grad for p in net.parameters()])
  with pytest.raises(ArgumentError, match="'train' cannot be a buffer's name"): net.register_buffer("train", None)
  with pytest.raises(ArgumentError, match="Module: cannot be called; define forward"): nn.Module()(1)


def test_state_goes_from_one_to_another() -> None:
  a, b = Net(), Net()
  b.load_state_dict(a.state_dict())
  for x, y in zip(a.state_dict().values(), b.state_dict().values()): close(x, y.numpy())
  with pytest.raises(StateError, match="lacks"): b.load_state_dict({})
  missing, extra = b.load_state_dict({"first.bias": Tensor.ones(2), "more": Tensor.ones(1)}, strict=False)
  assert "first.weight" in missing and "first.bias" not in missing and extra == ["more"]
  assert b.load_state_dict(b.state_dict()).missing_keys == []
  close(b.first.bias, np.ones(2))


def test_to_and_zero_grad() -> None:
  net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm(3))
  weight = net[0].weight
  net(Tensor.ones(2, 2)).sum().backward()
  assert net.to("NUMPY", "float16") is net and net[0].weight is weight and weight.requires_grad
  assert {t.dtype for t in net.parameters()} == {dtypes.float16} and {t.device for t in net.state_dict().values()} == {"NUMPY"}
  assert net[1].num_batches_tracked.dtype is dtypes.int64 and weight.grad.dtype is dtypes.float16
  y = net.float()(Tensor.ones(2, 2, device="NUMPY")).sum()
  net.zero_grad()
  assert weight.grad is None
  y.backward()
  assert weight.grad.shape == (3, 2)
  with pytest.raises(DTypeError, match="int32 is no float"): net.to("int32")


def test_modes() -> None:
  """A Module's own mode counts, where it has one, for what its forward calls too; else Tensor.training."""
  net, x = Net(), Tensor.ones(64, 3)
  dropout = nn.Dropout(1.0)
  def on() -> bool: return bool((dropout(x).numpy() == 0).all())
  assert not on() and not net.training
  with Tensor.train():
    assert on() and net.training
    assert dropout.eval() is dropout and not on()
    assert dropout.train(None) and on()
  dropout.training = True
  assert on()
  with Tensor.train(False): assert on()
  # x.dropout() in forward, and a plain object, follow the model's mode
  net.first.bias = None
  net.rest = []
  net.train()
  assert (net(x).numpy() == net(x).numpy()).mean() < 1
  with Tensor.train(): assert (net.eval()(x).numpy() == net(x).numpy()).all()
  assert not Tensor.training
  norm = nn.BatchNorm(3).train()
  norm(Tensor(rand(8, 3)))
  assert norm.num_batches_tracked.item() == 1
  norm.eval()
  with Tensor.train(): norm(Tensor(rand(8, 3)))
  assert norm.num_batches_tracked.item() == 1
  with pytest.raises(ArgumentError, match="training is 3"): dropout.training = 3   # type: ignore[assignment]


def test_forward_and_call_are_one() -> None:
  class Twice(nn.Linear):
    def forward(self, x: Tensor) -> Any: return super().forward(x) * 2   # type: ignore[misc]
  layer, x = Twice(2, 3), Tensor(rand(4, 2))
  close(layer(x), layer.forward(x).numpy())   # type: ignore[no-untyped-call]
  close(layer(x), nn.Linear.__call__(layer, x).numpy() * 2)
  assert nn.ReLU().forward(x).shape == (4, 2)   # type: ignore[attr-defined]


def test_layers_that_a_sequential_gets_by_name() -> None:
  class Block(nn.Sequential):
    def __init__(self) -> None:
      super().__init__()
      self.double, self.act, self.growth = Twice(), nn.ReLU(), 3

  class Twice(nn.Module):
    def forward(self, x: Tensor) -> Tensor: return x * 2

  x = Tensor([[-1.0, 2.0]])
  block = Block()
  assert block(x).tolist() == [[0, 4]] and len(block) == 2 and block[1] is block.act
  block.add_module("conv:1-2", Twice())
  block.add_module("0", nn.Flatten(0))
  assert block(x).tolist() == [0, 8] and list(dict(block.named_children())) == ["double", "act", "conv:1-2", "0"]
  block[1] = block.act = nn.Identity()
  assert block(x).tolist() == [-4, 8] and len(block) == 4
  del block[-1], block[0]
  assert block(x).tolist() == [[-2, 4]] and list(dict(block.named_children())) == ["0", "1"]
  named = nn.Sequential({"a": Twice(), "b": nn.ReLU()})
  named[1] = Twice()
  assert named(x).tolist() == [[-4, 8]] and list(dict(named.named_children())) == ["a", "b"]
  for name in "", "a.b", "train":
    with pytest.raises(ArgumentError, match="cannot be a module's name"): named.add_module(name, Twice())


def test_containers() -> None:
  seq = nn.Sequential(nn.Linear(2, 3), Tensor.relu, nn.Linear(3, 1))
  assert list(seq.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"] and len(seq) == 3
  x = Tensor(rand(4, 2))
  close(seq(x), seq[2](seq[0](x).relu()).numpy())
  close(seq[:1](x), seq[0](x).numpy())
  named = nn.Sequential({"a": nn.Linear(2, 2), "b": nn.Tanh()})
  assert list(named.state_dict()) == ["a.weight", "a.bias"] and named(x).shape == (4, 2)
  layers = nn.ModuleList([nn.Linear(1, 1)]).append(nn.ReLU())
  layers.insert(0, nn.Tanh())
  layers.extend([nn.GELU()])
  assert [type(m).__name__ for m in layers] == ["Tanh", "Linear", "ReLU", "GELU"] and layers[-1] is layers[3]
  del layers[0]
  assert list(layers.state_dict()) == ["0.weight", "0.bias"] and layers[0] in layers
  table = nn.ModuleDict({"a": nn.Linear(1, 2)})
  table["b"] = nn.ReLU()
  assert table.keys() == ["a", "b"] and "a" in table and list(table.state_dict()) == ["a.weight", "a.bias"]
  assert isinstance(table.pop("b"), nn.ReLU) and len(table) == 1
  for call, error, said in ((lambda: layers[7], AxisError, "index 7, it has 3 parts"),
                            (lambda: table["z"], ArgumentError, "it has a"),
                            (lambda: nn.ModuleDict({"keys": nn.ReLU()}), ArgumentError, "'keys' cannot be"),
                            (lambda: nn.Sequential(3), ArgumentError, "3 cannot be called")):
    with pytest.raises(error, match=said): call()


def test_how_models_print() -> None:
  net = Net()
  text = repr(net)
  assert text == str(nn.summary(net)) and text.splitlines()[0] == "Net: 20 parameters (80 bytes), 16 numbers in buffers"
  assert "first: Linear(in_features=3, out_features=2, bias=True)" in text and "weight (2, 3), bias (2,)" in text
  assert "as above" in text and "rest.0: BatchNorm(2, eps=1e-05" in text and "  plain: Plain" in text
  assert repr(nn.Linear(3, 4)) == "Linear(in_features=3, out_features=4, bias=True)"
  assert str(nn.summary(Plain())).startswith("Plain: 8 parameters (32 bytes), 2 numbers in buffers\n")
  assert net.first.weight.lazydata not in values   # nothing was computed


# ---- attention
def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  s = np.where(mask, -np.inf, q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]))
  w = np.exp(s - s.max(-1, keepdims=True))
  w /= w.sum(-1, keepdims=True)
  return w @ v, w


@pytest.mark.parametrize("device", ["NUMPY", "CPU"])
def test_multihead_attention(device: str) -> None:
  n, steps, keys, e, heads = 2, 3, 5, 4, 2
  layer = nn.MultiheadAttention(e, heads, batch_first=True, kdim=6, vdim=3).to(device)
  assert list(layer.state_dict()) == [
    "q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"]
  assert layer.in_proj_bias is not None and layer.out_proj.bias is not None
  layer.in_proj_bias.assign(Tensor(rand(3 * e), device=device))
  q, k, v = rand(n, steps, e), rand(n, keys, 6), rand(n, keys, 3)
  hidden, padded = rng.random((steps, keys)) > 0.6, np.zeros((n, keys), bool)
  hidden[:, 0], padded[1, 3:] = False, True
  b = np.split(layer.in_proj_bias.numpy(), 3)
  def split(x: np.ndarray, w: Tensor, b: np.ndarray) -> np.ndarray:
    return (x @ w.numpy().T + b).reshape(n, -1, heads, e // heads).swapaxes(1, 2)
  found, weights = attention(split(q, layer.q_proj_weight, b[0]), split(k, layer.k_proj_weight, b[1]),
                             split(v, layer.v_proj_weight, b[2]), hidden | padded[:, None, None, :])
  want = found.swapaxes(1, 2).reshape(n, steps, e) @ layer.out_proj.weight.numpy().T + layer.out_proj.bias.numpy()
  def to(a: np.ndarray) -> Tensor: return Tensor(a, device=device)
  for need in (True, False):
    out, w = layer(to(q), to(k), to(v), to(padded), need, to(hidden))
    close(out, want)
    if w is not None: close(w, weights.mean(1))
  close(layer(to(q), to(k), to(v), to(padded), True, to(hidden), average_attn_weights=False)[1], weights)


@long
def test_causal_and_one_sample() -> None:
  layer = nn.MultiheadAttention(4, 2)
  assert list(layer.state_dict()) == ["in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"]
  x = Tensor(rand(5, 4))
  out, w = layer(x, x, x, is_causal=True)
  assert w is not None and not np.triu(w.numpy(), 1).any()
  close(layer(x[:3], x[:3], x[:3])[0][2], out[2].numpy())
  for bad in (Tensor.ones(2, 2), Tensor.ones(5, 5, dtype="int32")):
    with pytest.raises((ShapeError, DTypeError), match="mask of"): layer(x, x, x, attn_mask=bad)
  with pytest.raises(ArgumentError, match="embed_dim 4 cannot be divided into 3 heads"): nn.MultiheadAttention(4, 3)


@pytest.mark.parametrize("first", [False, True])
def test_transformer_layers(first: bool) -> None:
  layer = nn.TransformerEncoderLayer(4, 2, 8, 0.0, "gelu", batch_first=True, norm_first=first)
  x = Tensor(rand(2, 3, 4))
  def attend(y: Tensor) -> Tensor: return layer.self_attn(y, y, y, is_causal=True)[0]
  def feed(y: Tensor) -> Tensor: return layer.linear2(layer.linear1(y).gelu("none"))
  norm1, norm2 = layer.norm1, layer.norm2   # type: ignore[attr-defined]
  if first:
    y = x + attend(norm1(x))
    want = y + feed(norm2(y))
  else:
    y = norm1(x + attend(x))
    want = norm2(y + feed(y))
  close(layer(x, is_causal=True), want.numpy())
  model = nn.TransformerEncoder(layer, 2, nn.LayerNorm(4))
  names = [n for n in layer.state_dict()]
  assert list(model.state_dict()) == [f"layers.{i}.{n}" for i in (0, 1) for n in names] + ["norm.weight", "norm.bias"]
  decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 8, 0.0, batch_first=True, norm_first=first), 2)
  out = decoder(x, model(x), tgt_is_causal=True)
  assert out.shape == x.shape
  out.sin().sum().backward()
  assert all([p.grad is not None for p in [*model.parameters(), *decoder.parameters()]])
  weights = [m.linear1.weight for m in model.layers]
  assert weights[0] is not weights[1]
  close(weights[0], weights[1].numpy())


# ---- values to begin with
@long
def test_init() -> None:
  w = Tensor.empty(300, 200, requires_grad=True)
  for fn, std, most in ((lambda: init.uniform_(w, -2, 2), 2 / math.sqrt(3), 2), (lambda: init.normal_(w, 0, 3), 3, 20),
                        (lambda: init.xavier_uniform_(w, 2), 2 * math.sqrt(2 / 500), 2 * math.sqrt(6 / 500)),
                        (lambda: init.xavier_normal_(w), math.sqrt(2 / 500), 1),
                        (lambda: init.kaiming_uniform_(w, nonlinearity="relu"), math.sqrt(2 / 200), math.sqrt(6 / 200)),
                        (lambda: init.kaiming_normal_(w, math.sqrt(5), "fan_out"), math.sqrt(2 / 6 / 300), 1),
                        (lambda: init.trunc_normal_(w, 0, 1, -1, 1), 0.5396, 1)):
    assert fn() is w and w.requires_grad and w.is_leaf   # type: ignore[no-untyped-call]
    a = w.numpy()
    assert abs(a.std() / std - 1) < 0.02 and abs(a).max() <= most + 1e-6 and abs(a.mean()) < 0.03 * std
  q = init.orthogonal_(Tensor.empty(3, 2, 4), 2.0).numpy().reshape(3, 8)
  np.testing.assert_allclose(q @ q.T, 4 * np.eye(3), atol=1e-5)
  assert ((init.sparse_(Tensor.empty(10, 7), 0.35, 1.0).numpy() == 0).sum(0) == 4).all()
  close(init.eye_(Tensor.empty(2, 3)), np.eye(2, 3))
  close(init.constant_(Tensor.empty(2), 3), [3, 3])
  conv = nn.Conv1d(2, 2, 3, padding=1, bias=False)
  init.dirac_(conv.weight)
  close(conv(Tensor(x := rand(1, 2, 5))), x)
  (w.sum() * 2).backward()
  close(w.grad, np.full((300, 200), 2))
  assert math.isclose(init.calculate_gain("leaky_relu", 1), 1) and init.calculate_gain("tanh") == 5 / 3
  for call, said in ((lambda: init.xavier_uniform_(Tensor.empty(3)), "at least two"),
                     (lambda: init.calculate_gain("sin"), "'sin'")):
    with pytest.raises((ShapeError, ArgumentError), match=said): call()


def test_checkpoints_keep_less() -> None:
  def segment(x: Tensor, a: Tensor, b: Tensor) -> Tensor: return x.dot(a).tanh().dot(b).tanh() + x
  def peak(kept: bool) -> tuple[int, np.ndarray]:
    w = [Tensor(rand_of(i), requires_grad=True, device="NUMPY").realize() for i in range(12)]
    y = Tensor(np.ones((512, 64), np.float32), device="NUMPY").realize()
    for i in range(0, 12, 2): y = segment(y, *w[i:i + 2]) if kept else nn.checkpoint(segment, y, *w[i:i + 2])
    y.square().sum().backward()
    Device.reset_peak("NUMPY")
    w[0].grad.realize(*[t.grad for t in w])
    return Device.memory("NUMPY").peak, w[0].grad.numpy()
  def rand_of(i: int) -> np.ndarray: return np.random.default_rng(i).standard_normal((64, 64)).astype(np.float32) / 8
  (most, want), (less, got) = peak(True), peak(False)
  np.testing.assert_allclose(got, want, rtol=1e-4)
  assert less < 0.75 * most


@long
def test_a_model_under_jit() -> None:
  net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2)).train()
  opt = nn.optim.SGD(list(net.parameters()), lr=0.1)
  @jit
  def step(x: Tensor, y: Tensor) -> Tensor:
    opt.zero_grad()
    loss = (net(x) - y).square().mean()
    loss.backward()
    opt.step()
    return loss.realize()
  x = rand(32, 3)
  losses = [step(Tensor(x).realize(), Tensor(x[:, :2]).realize()).item() for _ in range(12)]
  assert losses[-1] < 0.7 * losses[0] and net[1].num_batches_tracked.item() == 12
