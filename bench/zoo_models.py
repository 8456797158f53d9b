"""Whole models, described once over a few layers that ntgrad and torch both have: for the whole steps of ``bench/zoo.py``.

Parameters are float32 and are cast to the row's dtype where they are used, on both sides; normalisations and losses compute in
float32 inside. Weights come from numpy, so that both sides begin with the same.
"""
from __future__ import annotations

import math
from typing import Any, Callable

import numpy as np

from ntgrad import Tensor, nn

Arrays = dict[str, Any]
Batch = tuple[Any, ...]


class Weights:
  """The initial weights of a model, by name."""

  def __init__(self) -> None:
    self.arrays: Arrays = {}
    self.state: Arrays = {}   # not trained
    self.rng = np.random.default_rng(7)

  def add(self, name: str, *shape: int, scale: float | None = None) -> None:
    """Normal numbers; those of ``shape[1:]`` are what one output is made of."""
    by = 1 / math.sqrt(math.prod(shape[1:])) if scale is None else scale
    self.arrays[name] = self.rng.standard_normal(shape, np.float32) * np.float32(by)

  def linear(self, name: str, into: int, out: int) -> None:
    self.add(name, out, into)
    self.arrays[f"{name}.bias"] = np.zeros(out, np.float32)

  def norm(self, name: str, n: int, running: bool = False) -> None:
    """Scale and shift, and for a batch norm what it keeps between steps."""
    self.arrays[name], self.arrays[f"{name}.bias"] = np.ones(n, np.float32), np.zeros(n, np.float32)
    if running: self.state[f"{name}.mean"], self.state[f"{name}.var"] = np.zeros(n, np.float32), np.ones(n, np.float32)


# ---- the layers of both sides

class Ours:
  """Layers of ntgrad over named parameters."""

  def __init__(self, weights: Weights, dtype: str) -> None:
    self.dtype = dtype
    self.p = {k: Tensor(a, requires_grad=True) for k, a in weights.arrays.items()}
    self.state = {k: Tensor(a, requires_grad=False) for k, a in weights.state.items()}
    Tensor.realize(*self.p.values(), *self.state.values())

  def w(self, name: str) -> Tensor:
    p = self.p[name]
    return p if self.dtype == "float32" else p.cast(self.dtype)

  def cast(self, x: Tensor) -> Tensor: return x.cast(self.dtype)
  def rows(self, name: str, index: Tensor) -> Tensor: return self.w(name)[index]
  def linear(self, x: Tensor, name: str) -> Tensor:
    return x.linear(self.w(name).transpose(0, 1), self.w(f"{name}.bias") if f"{name}.bias" in self.p else None)
  def conv(self, x: Tensor, name: str, stride: int, padding: int) -> Tensor:
    return x.conv2d(self.w(name), stride=stride, padding=padding)
  def layer_norm(self, x: Tensor, name: str) -> Tensor: return x.layernorm() * self.w(name) + self.w(f"{name}.bias")

  def batch_norm(self, x: Tensor, name: str) -> Tensor:
    """Of a batch in training, as nn.BatchNorm has it."""
    wide, n = x.float(), x.shape[0] * x.shape[2] * x.shape[3]
    mean = wide.mean((0, 2, 3))
    centred = wide - mean.detach().reshape(1, -1, 1, 1)
    var = (centred * centred).mean((0, 2, 3))
    for key, value in (("mean", mean), ("var", var * (n / (n - 1)))):
      kept = self.state[f"{name}.{key}"]
      kept.assign(0.9 * kept + 0.1 * value.detach())
    return wide.batchnorm(self.p[name], self.p[f"{name}.bias"], mean, (var + 1e-5).rsqrt()).cast(x.dtype)

  def relu(self, x: Tensor) -> Tensor: return x.relu()
  def gelu(self, x: Tensor) -> Tensor: return x.gelu()
  def max_pool(self, x: Tensor) -> Tensor: return x.max_pool2d(3, stride=2, padding=1)
  def attention(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor: return q.scaled_dot_product_attention(k, v, is_causal=True)
  def cross_entropy(self, x: Tensor, y: Tensor) -> Tensor: return x.float().cross_entropy(y)

  def lstm(self, x: Tensor, hidden: int) -> Tensor:
    """The last hidden state of (batch, steps, channels)."""
    into = x @ self.w("in").transpose(0, 1) + self.w("in.bias") + self.w("hidden.bias")
    h = c = Tensor.zeros(x.shape[0], hidden, dtype=x.dtype)
    for t in range(x.shape[1]):
      i, f, g, o = (into[:, t] + h @ self.w("hidden").transpose(0, 1)).chunk(4, 1)
      c = f.sigmoid() * c + i.sigmoid() * g.tanh()
      h = o.sigmoid() * c.tanh()
    return h

  def step(self, model: Callable[..., Any], how: str) -> Callable[..., Any]:
    """What is measured: of a batch, the loss, and what comes of it."""
    if how == "forward": return lambda *batch: (model(self, *batch),)
    if how == "gradients":
      def gradients(*batch: Tensor) -> Any:
        loss = model(self, *batch)
        return (loss, *loss.gradient(*self.p.values()))
      return gradients
    opt = nn.optim.AdamW([*self.p.values(), *self.state.values()], lr=1e-4)
    def train(*batch: Tensor) -> Any:
      opt.zero_grad()
      loss = model(self, *batch).backward()
      opt.step()
      return (loss.realize(),)
    return train


class Theirs:
  """The same layers of torch."""

  def __init__(self, torch: Any, weights: Weights, dtype: Any, device: str, last: bool = False) -> None:
    self.torch, self.f, self.dtype = torch, torch.nn.functional, dtype
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    def put(a: Any) -> Any:
      x = torch.from_numpy(a.copy()).to(device).to(wide)
      return x.contiguous(memory_format=torch.channels_last) if last and x.ndim == 4 else x
    self.p = {k: put(a).requires_grad_() for k, a in weights.arrays.items()}
    self.state = {k: put(a) for k, a in weights.state.items()}

  def w(self, name: str) -> Any: return self.p[name].to(self.dtype)
  def cast(self, x: Any) -> Any: return x.to(self.dtype)
  def rows(self, name: str, index: Any) -> Any: return self.f.embedding(index, self.w(name))
  def linear(self, x: Any, name: str) -> Any:
    return self.f.linear(x, self.w(name), self.w(f"{name}.bias") if f"{name}.bias" in self.p else None)
  def conv(self, x: Any, name: str, stride: int, padding: int) -> Any:
    return self.f.conv2d(x, self.w(name), stride=stride, padding=padding)
  def layer_norm(self, x: Any, name: str) -> Any:
    return self.f.layer_norm(x, (x.shape[-1],), self.w(name), self.w(f"{name}.bias"))
  def batch_norm(self, x: Any, name: str) -> Any:
    return self.f.batch_norm(x, self.state[f"{name}.mean"], self.state[f"{name}.var"], self.p[name], self.p[f"{name}.bias"], True)
  def relu(self, x: Any) -> Any: return self.f.relu(x)
  def gelu(self, x: Any) -> Any: return self.f.gelu(x, approximate="tanh")
  def max_pool(self, x: Any) -> Any: return self.f.max_pool2d(x, 3, 2, 1)
  def attention(self, q: Any, k: Any, v: Any) -> Any: return self.f.scaled_dot_product_attention(q, k, v, is_causal=True)
  def cross_entropy(self, x: Any, y: Any) -> Any: return self.f.cross_entropy(x if x.dtype.itemsize > 4 else x.float(), y)

  def lstm(self, x: Any, hidden: int) -> Any:
    """The last hidden state; one call of a library."""
    start = x.new_zeros(1, x.shape[0], hidden)
    p = [self.w(name) for name in ("in", "hidden", "in.bias", "hidden.bias")]
    return self.torch.lstm(x, (start, start), p, True, 1, 0.0, True, False, True)[1][0]

  def step(self, model: Callable[..., Any], how: str, compiled: bool) -> Callable[..., Any]:
    """What is measured; ``compiled`` is the model, not the optimizer, which is one fused kernel anyway."""
    forward = self.torch.compile(lambda *batch: model(self, *batch)) if compiled else lambda *batch: model(self, *batch)
    if how == "forward":
      def plain(*batch: Any) -> Any:
        with self.torch.no_grad(): return (forward(*batch),)
      return plain
    params = list(self.p.values())
    if how == "gradients":
      def gradients(*batch: Any) -> Any:
        loss = forward(*batch)
        return (loss.detach(), *self.torch.autograd.grad(loss, params))
      return gradients
    on_gpu = params[0].is_cuda
    opt = self.torch.optim.AdamW(params, lr=1e-4, weight_decay=0.01, fused=True, **({"capturable": True} if on_gpu else {}))
    def train(*batch: Any) -> Any:
      opt.zero_grad(set_to_none=True)
      loss = forward(*batch)
      loss.backward()
      opt.step()
      return (loss.detach(),)
    return train


# ---- the models: weights for sizes, and the loss of a batch

Model = tuple[Weights, Callable[..., Any]]


def gpt(layers: int, heads: int, vocabulary: int, batch: int, length: int) -> Model:
  """A decoder with learned places, norms before the layers and one table for both ends (GPT-2: 12 layers, 12 heads of 64)."""
  width, weights = 64 * heads, Weights()
  weights.add("tokens", vocabulary, width, scale=0.02)
  weights.add("places", length, width, scale=0.01)
  for i in range(layers):
    for name in ("norm1", "norm2"): weights.norm(f"{i}.{name}", width)
    for name, into, out in (("qkv", 1, 3), ("out", 1, 1), ("up", 1, 4), ("down", 4, 1)):
      weights.linear(f"{i}.{name}", into * width, out * width)
  weights.norm("norm", width)

  def model(F: Any, x: Any, y: Any) -> Any:
    b, n = x.shape
    h = F.rows("tokens", x) + F.w("places")
    for i in range(layers):
      qkv = F.linear(F.layer_norm(h, f"{i}.norm1"), f"{i}.qkv").reshape(b, n, 3, heads, 64)
      a = F.attention(*[qkv[:, :, j].transpose(1, 2) for j in range(3)])
      h = h + F.linear(a.transpose(1, 2).reshape(b, n, width), f"{i}.out")
      h = h + F.linear(F.gelu(F.linear(F.layer_norm(h, f"{i}.norm2"), f"{i}.up")), f"{i}.down")
    return F.cross_entropy(F.linear(F.layer_norm(h, "norm"), "tokens").reshape(b * n, vocabulary), y.reshape(b * n))
  return weights, model


def resnet(depth: int, batch: int, size: int) -> Model:
  """A residual network of depth 18 or 50 (He et al., 2015), 64 channels wide at first, 1000 classes."""
  counts, expansion = ((2, 2, 2, 2), 1) if depth == 18 else ((3, 4, 6, 3), 4)
  weights = Weights()
  def add(name: str, into: int, out: int, k: int) -> None:
    weights.add(name, out, into, k, k, scale=math.sqrt(2 / (into * k * k)))
    weights.norm(f"{name}.norm", out, True)
  add("stem", 3, 64, 7)
  inner, blocks = 64, []   # a block: its name, the kernels and strides of its convolutions, the shortcut's stride or 0
  for stage, count in enumerate(counts):
    for i in range(count):
      name, mid, stride = f"{stage}.{i}", 64 << stage, 2 if stage and not i else 1
      out = mid * expansion
      kernels = [(3, stride), (3, 1)] if expansion == 1 else [(1, 1), (3, stride), (1, 1)]
      channels = [inner, *[mid] * (len(kernels) - 1), out]
      for j, (k, _) in enumerate(kernels): add(f"{name}.{j}", channels[j], channels[j + 1], k)
      short = stride if stride > 1 or inner != out else 0
      if short: add(f"{name}.short", inner, out, 1)
      blocks.append((name, kernels, short))
      inner = out
  weights.linear("head", inner, 1000)

  def model(F: Any, x: Any, y: Any) -> Any:
    def unit(x: Any, name: str, k: int, stride: int) -> Any: return F.batch_norm(F.conv(x, name, stride, k // 2), f"{name}.norm")
    x = F.max_pool(F.relu(unit(F.cast(x), "stem", 7, 2)))
    for name, kernels, short in blocks:
      h = x
      for j, (k, stride) in enumerate(kernels):
        h = unit(h, f"{name}.{j}", k, stride)
        if j < len(kernels) - 1: h = F.relu(h)
      x = F.relu(h + (unit(x, f"{name}.short", 1, short) if short else x))
    return F.cross_entropy(F.linear(x.mean((2, 3)), "head"), y)
  return weights, model


def lstm(batch: int, width: int) -> Model:
  """One layer over 64 steps, and classes from its last state."""
  weights = Weights()
  for name in ("in", "hidden"): weights.linear(name, width, 4 * width)
  weights.linear("head", width, 10)
  return weights, lambda F, x, y: F.cross_entropy(F.linear(F.lstm(F.cast(x), width), "head").reshape(x.shape[0], 10), y)


def perceptron(batch: int) -> Model:
  """Two hidden layers."""
  weights = Weights()
  for name, into, out in (("one", 784, 1024), ("two", 1024, 1024), ("three", 1024, 10)): weights.linear(name, into, out)
  def model(F: Any, x: Any, y: Any) -> Any:
    x = F.relu(F.linear(F.relu(F.linear(F.cast(x), "one")), "two"))
    return F.cross_entropy(F.linear(x, "three"), y)
  return weights, model


MODELS: dict[str, Callable[..., Model]] = {"gpt": gpt, "resnet": resnet, "lstm": lstm, "perceptron": perceptron}


def ours(what: str, sizes: tuple[int, ...], dtype: str) -> Callable[..., Any]:
  """A model of some sizes as a function of a batch: ``"gpt train"``."""
  name, how = what.split()
  weights, model = MODELS[name](*sizes)
  return Ours(weights, dtype).step(model, how)


def theirs(torch: Any, what: str, sizes: tuple[int, ...], dtype: Any, device: str, last: bool = False,
           compiled: bool = False) -> Callable[..., Any]:
  """The same in torch."""
  name, how = what.split()
  weights, model = MODELS[name](*sizes)
  return Theirs(torch, weights, dtype, device, last).step(model, how, compiled)


def exact_loss(torch: Any, what: str, sizes: tuple[int, ...], batch: Batch, device: str) -> float:
  """The loss of a batch with the initial weights, in float64."""
  weights, model = MODELS[what.split()[0]](*sizes)
  with torch.no_grad(): return float(model(Theirs(torch, weights, torch.float64, device), *batch))
