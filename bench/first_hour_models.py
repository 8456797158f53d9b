"""Small workloads and how each is trained, written once for two libraries: each takes torch, or ntgrad in its place.

For ``bench/first_hour.py``, which times steps of ``WORKS`` and first losses. Data are random, made once from a seeded generator;
a batch is new arrays, as a loader gives them.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def normal(rng: np.random.Generator, *shape: int) -> Array: return rng.standard_normal(shape, np.float32)


@dataclass
class Work:
  """A model, a step of its training that gives the loss, the batch of a step, and what follows a step outside of it."""
  model: Any
  step: Callable[..., Any]
  batch: Callable[[int], list[Array]]
  after: Callable[[], object] = lambda: None
  steady: int = 6   # losses, from the first on, that rounding changes by less than 1e-3
  loss: Callable[..., Any] | None = None   # of a batch, and what takes a step with its gradients: of the usual step
  optimizer: Any = None


def drawn(size: int, *arrays: Array) -> Callable[[int], list[Array]]:
  """Batches of ``size`` samples of some arrays, one after the other, from the front again where they end."""
  def batch(i: int) -> list[Array]:
    at = np.arange(i * size, (i + 1) * size) % len(arrays[0])
    return [a[at] for a in arrays]
  return batch


def trained(model: Any, loss: Callable[..., Any], optimizer: Any, batch: Callable[[int], list[Array]],
            clip: Callable[..., object] | None = None, schedule: Any = None) -> Work:
  """The usual step. ``early``: the loss is asked for before its gradients are."""
  model.train()
  def step(*inputs: Any, early: bool = False) -> Any:
    value = loss(*inputs)
    if early: value.item()
    optimizer.zero_grad()
    value.backward()
    if clip is not None: clip(model.parameters(), 1.0)
    optimizer.step()
    return value
  return Work(model, step, batch, schedule.step if schedule is not None else lambda: None, loss=loss, optimizer=optimizer)


def perceptron(torch: Any) -> Work:
  """Two hidden layers on 8×8 pictures, batch 64."""
  nn, rng = torch.nn, np.random.default_rng(1)
  model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
  return trained(model, lambda x, y: nn.functional.cross_entropy(model(x), y),
                 torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4),
                 drawn(64, rng.random((1024, 64), np.float32), rng.integers(0, 10, 1024)))


def cnn(torch: Any) -> Work:
  """Two convolutions with batch norms on 8×8 pictures, batch 64; label smoothing, a cosine schedule."""
  nn, rng = torch.nn, np.random.default_rng(2)
  model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1),
    nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
  optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
  return trained(model, lambda x, y: nn.functional.cross_entropy(model(x), y, label_smoothing=0.1), optimizer,
                 drawn(64, normal(rng, 1024, 1, 8, 8), rng.integers(0, 10, 1024)),
                 schedule=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000))


def resnet(torch: Any, width: int = 16, batch: int = 32) -> Work:
  """A residual network of depth 18 (He et al., 2015), 16 channels wide at first, 32×32 pictures, batch 32."""
  nn, rng = torch.nn, np.random.default_rng(3)

  class Block(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, into: int, out: int, stride: int) -> None:
      super().__init__()
      def unit(into: int, size: int, stride: int) -> Any:
        return nn.Sequential(nn.Conv2d(into, out, size, stride, size // 2, bias=False), nn.BatchNorm2d(out))
      self.first, self.second, self.relu = unit(into, 3, stride), unit(out, 3, 1), nn.ReLU(inplace=True)
      self.short = unit(into, 1, stride) if stride > 1 else nn.Identity()
    def forward(self, x: Any) -> Any:
      out = self.second(self.relu(self.first(x)))
      out += self.short(x)
      return self.relu(out)

  layers = [nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
  for a, b in ((1, 1), (1, 2), (2, 4), (4, 8)): layers += [Block(a * width, b * width, b // a), Block(b * width, b * width, 1)]
  model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(8 * width, 10))
  work = trained(model, lambda x, y: nn.functional.cross_entropy(model(x), y),
                 torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4),
                 drawn(batch, normal(rng, 8 * batch, 3, 32, 32), rng.integers(0, 10, 8 * batch)))
  return replace(work, steady=3)   # the fourth is off by 1e-3 in torch itself, float32 against float64


def transformer_layer(torch: Any, width: int, heads: int, context: int = 0, written_out: bool = True) -> Any:
  """Attention and two linear layers, normalised before. Tokens of a ``context`` see those before them; without one, all."""
  nn, f = torch.nn, torch.nn.functional

  class Layer(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
      super().__init__()
      self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
      self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
      self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
      if context: self.register_buffer("mask", torch.tril(torch.ones(context, context)).view(1, 1, context, context))
    def mixed(self, q: Any, k: Any, v: Any) -> Any:
      if not context or not written_out: return f.scaled_dot_product_attention(q, k, v, is_causal=bool(context))
      scores, n = (q @ k.transpose(-2, -1)) * (width // heads) ** -0.5, q.size(2)
      return f.softmax(scores.masked_fill(self.mask[:, :, :n, :n] == 0, float("-inf")), dim=-1) @ v
    def attention(self, x: Any) -> Any:
      b, n, _ = x.size()
      q, k, v = (t.view(b, n, heads, width // heads).transpose(1, 2) for t in self.qkv(x).split(width, dim=2))
      return self.out(self.mixed(q, k, v).transpose(1, 2).contiguous().view(b, n, width))
    def forward(self, x: Any) -> Any:
      x = x + self.attention(self.before(x))
      return x + self.down(f.gelu(self.up(self.between(x))))

  return Layer()


def gpt(torch: Any, width: int = 128, layers: int = 4, context: int = 64, words: int = 96, batch: int = 16,
        written_out: bool = True) -> Work:
  """A decoder of four layers of width 128, context 64, batch 16; AdamW in two groups, clipping, warm-up."""
  nn, f, rng, heads = torch.nn, torch.nn.functional, np.random.default_rng(4), max(4, width // 64)

  class Decoder(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
      super().__init__()
      self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(context, width)
      self.layers = nn.ModuleList([transformer_layer(torch, width, heads, context, written_out) for _ in range(layers)])
      self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
    def forward(self, x: Any) -> Any:
      h = self.tokens(x) + self.places(torch.arange(x.size(1), device=x.device))
      for layer in self.layers: h = layer(h)
      return self.head(self.norm(h))

  def loss(x: Any, y: Any) -> Any:
    logits = model(x)
    return f.cross_entropy(logits.view(-1, logits.size(-1)), y.view(-1))
  model, text = Decoder(), rng.integers(0, words, (16 * batch, context + 1))
  wide, narrow = ([p for p in model.parameters() if (p.dim() >= 2) == big] for big in (True, False))
  groups = [{"params": wide, "weight_decay": 0.1}, {"params": narrow, "weight_decay": 0.0}]
  optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95))
  return trained(model, loss, optimizer, drawn(batch, text[:, :-1], text[:, 1:]), nn.utils.clip_grad_norm_,
                 torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 10)))


def bilstm(torch: Any) -> Work:
  """Two layers of an LSTM in both directions over 40 tokens, the mean of those that are there, batch 32."""
  nn, rng = torch.nn, np.random.default_rng(5)
  embedding, lstm = nn.Embedding(100, 32, padding_idx=0), nn.LSTM(32, 64, num_layers=2, batch_first=True, bidirectional=True)
  head = nn.Linear(128, 4)
  def loss(x: Any, there: Any, y: Any) -> Any:
    out, _ = lstm(embedding(x))
    return nn.functional.cross_entropy(head((out * there.unsqueeze(-1)).sum(1) / there.sum(1, keepdim=True)), y)
  model = nn.ModuleList([embedding, lstm, head])
  there = np.arange(40) < rng.integers(5, 40, (512, 1))
  words = rng.integers(1, 100, (512, 40)) * there
  return trained(model, loss, torch.optim.Adam(model.parameters(), lr=1e-2),
                 drawn(32, words, there.astype(np.float32), words.sum(1) % 4))


def vae(torch: Any) -> Work:
  """A variational autoencoder (Kingma & Welling, 2013) of 64 numbers by 8, batch 64."""
  nn, f, rng = torch.nn, torch.nn.functional, np.random.default_rng(6)
  model = nn.ModuleDict({name: nn.Linear(into, out) for name, into, out in (
    ("in", 64, 64), ("mean", 64, 8), ("log_var", 64, 8), ("middle", 8, 64), ("out", 64, 64))})
  def loss(x: Any, noise: Any) -> Any:
    h = f.relu(model["in"](x))
    mean, log_var = model["mean"](h), model["log_var"](h)
    made = torch.sigmoid(model["out"](f.relu(model["middle"](mean + noise * torch.exp(0.5 * log_var)))))
    apart = f.binary_cross_entropy(made, x, reduction="sum")
    return apart - 0.5 * torch.sum(1 + log_var - mean.pow(2) - log_var.exp())
  return trained(model, loss, torch.optim.Adam(model.parameters(), lr=1e-3),
                 drawn(64, rng.random((1024, 64), np.float32), normal(rng, 1024, 8)))


def gan(torch: Any) -> Work:
  """A generator and a discriminator of two layers, an optimizer each, batch 64."""
  nn, rng = torch.nn, np.random.default_rng(7)
  maker = nn.Sequential(nn.Linear(16, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.Tanh())
  judge = nn.Sequential(nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
  made_by, judged_by = (torch.optim.Adam(m.parameters(), lr=2e-4, betas=(0.5, 0.999)) for m in (maker, judge))
  apart = nn.BCEWithLogitsLoss()
  def step(x: Any, noise: Any) -> Any:
    fake = maker(noise)
    judged_by.zero_grad()
    first = apart(judge(x), torch.ones(64, 1)) + apart(judge(fake.detach()), torch.zeros(64, 1))
    first.backward()
    judged_by.step()
    made_by.zero_grad()
    second = apart(judge(fake), torch.ones(64, 1))
    second.backward()
    made_by.step()
    return first + second
  return Work(nn.ModuleList([maker, judge]).train(), step, drawn(64, rng.random((1024, 64), np.float32), normal(rng, 1024, 16)))


def unet(torch: Any, width: int = 8, size: int = 32, batch: int = 8) -> Work:
  """Three levels of convolutions with one transposed and one bilinear way up, 32×32 pictures, batch 8; cross entropy and dice."""
  nn, f, rng = torch.nn, torch.nn.functional, np.random.default_rng(8)
  def pair(into: int, out: int) -> Any:
    units = [(nn.Conv2d(n, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU()) for n in (into, out)]
    return nn.Sequential(*units[0], *units[1])
  model = nn.ModuleDict({
    "down1": pair(1, width), "down2": pair(width, 2 * width), "down3": pair(2 * width, 4 * width),
    "join2": pair(4 * width, 2 * width), "join1": pair(3 * width, width),
    "up2": nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2),
    "up1": nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False), "out": nn.Conv2d(width, 1, 1)})
  def loss(x: Any, y: Any) -> Any:
    one = model["down1"](x)
    two = model["down2"](f.max_pool2d(one, 2))
    three = model["down3"](f.max_pool2d(two, 2))
    two = model["join2"](torch.cat([model["up2"](three), two], dim=1))
    out = model["out"](model["join1"](torch.cat([model["up1"](two), one], dim=1)))
    p = torch.sigmoid(out)
    return f.binary_cross_entropy_with_logits(out, y) + 1 - (2 * (p * y).sum() + 1) / (p.sum() + y.sum() + 1)
  masks = (rng.random((16 * batch, 1, size, size)) < 0.2).astype(np.float32)
  pictures = masks + 0.3 * normal(rng, *masks.shape)
  return trained(model, loss, torch.optim.Adam(model.parameters(), lr=1e-3), drawn(batch, pictures, masks))


def ddpm(torch: Any) -> Work:
  """A denoising network (Ho et al., 2020) for points of a plane with 100 steps of noise, batch 256."""
  nn, rng = torch.nn, np.random.default_rng(9)
  model = nn.ModuleDict({"time": nn.Embedding(100, 64), "in": nn.Linear(2, 64), "net": nn.Sequential(
    nn.SiLU(), nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 2))})
  model.register_buffer("kept", torch.cumprod(1 - torch.linspace(1e-4, 0.02, 100), dim=0))
  def loss(x: Any, t: Any, noise: Any) -> Any:
    kept = model.kept[t][:, None]
    noised = kept.sqrt() * x + (1 - kept).sqrt() * noise
    return nn.functional.mse_loss(model["net"](model["in"](noised) + model["time"](t)), noise)
  return trained(model, loss, torch.optim.AdamW(model.parameters(), lr=1e-3),
                 drawn(256, normal(rng, 4096, 2), rng.integers(0, 100, 4096), normal(rng, 4096, 2)))


def graph_net(torch: Any) -> Work:
  """Two layers that average over neighbours, by ``index_add``; 500 nodes, 3000 edges, the loss of half of the nodes."""
  nn, f, rng = torch.nn, torch.nn.functional, np.random.default_rng(10)
  model = nn.ModuleList([nn.ModuleList([nn.Linear(a, b), nn.Linear(a, b)]) for a, b in ((32, 64), (64, 5))])
  def layer(x: Any, source: Any, target: Any, around: Any, itself: Any) -> Any:
    total = torch.zeros(x.shape[0], x.shape[1]).index_add(0, target, x[source])
    degree = torch.zeros(x.shape[0]).index_add(0, target, torch.ones(source.shape[0])).clamp(min=1)
    return around(total / degree[:, None]) + itself(x)
  def loss(x: Any, source: Any, target: Any, y: Any, known: Any) -> Any:
    out = layer(f.relu(layer(x, source, target, *model[0])), source, target, *model[1])
    return f.cross_entropy(out[known], y[known])
  arrays = [normal(rng, 500, 32), *rng.integers(0, 500, (2, 3000)), rng.integers(0, 5, 500), rng.permutation(500)[:250]]
  return trained(model, loss, torch.optim.Adam(model.parameters(), lr=1e-2), lambda i: [a.copy() for a in arrays])


def encoder(torch: Any) -> Work:
  """``nn.TransformerEncoder`` of two layers of width 64 over 32 tokens with padding, batch 16."""
  nn, rng = torch.nn, np.random.default_rng(11)
  layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
  model = nn.ModuleDict(
    {"tokens": nn.Embedding(50, 64), "encoder": nn.TransformerEncoder(layer, 2), "out": nn.Linear(64, 50)})
  def loss(x: Any, padding: Any, y: Any) -> Any:
    out = model["out"](model["encoder"](model["tokens"](x), src_key_padding_mask=padding))
    return nn.functional.cross_entropy(out.reshape(-1, 50), y.reshape(-1), ignore_index=-100)
  x = rng.integers(0, 50, (256, 32))
  padding = np.arange(32) >= rng.integers(16, 32, (256, 1))
  return trained(model, loss, torch.optim.Adam(model.parameters(), lr=1e-3),
                 drawn(16, x, padding, np.where(padding, -100, (x + 1) % 50)))


def vit(torch: Any, width: int = 128, layers: int = 4, size: int = 32, patch: int = 4, batch: int = 32) -> Work:
  """A vision transformer (Dosovitskiy et al., 2020) of four layers of width 128 over 64 patches of 32×32 pictures, batch 32."""
  nn, rng = torch.nn, np.random.default_rng(12)
  places, heads = nn.Embedding((size // patch) ** 2, width), max(4, width // 64)
  model = nn.ModuleDict({"patches": nn.Conv2d(3, width, patch, patch), "places": places, "layers": nn.Sequential(
    *[transformer_layer(torch, width, heads) for _ in range(layers)], nn.LayerNorm(width)), "out": nn.Linear(width, 100)})
  def loss(x: Any, y: Any) -> Any:
    h = model["patches"](x).flatten(2).transpose(1, 2) + model["places"].weight
    return nn.functional.cross_entropy(model["out"](model["layers"](h).mean(1)), y)
  return trained(model, loss, torch.optim.AdamW(model.parameters(), lr=1e-3),
                 drawn(batch, normal(rng, 2 * batch, 3, size, size), rng.integers(0, 100, 2 * batch)))


def convnext(torch: Any, width: int = 32, size: int = 64, batch: int = 16) -> Work:
  """Three stages of two blocks of a ConvNeXt (Liu et al., 2022), 32 channels wide at first, 64×64 pictures, batch 16."""
  nn, f, rng = torch.nn, torch.nn.functional, np.random.default_rng(13)

  class Block(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, width: int) -> None:
      super().__init__()
      self.around, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width)
      self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
    def forward(self, x: Any) -> Any:
      h = self.norm(self.around(x).permute(0, 2, 3, 1))
      return x + self.down(f.gelu(self.up(h))).permute(0, 3, 1, 2)

  layers = [layer for into, out, step in ((3, width, 4), (width, 2 * width, 2), (2 * width, 4 * width, 2))
            for layer in (nn.Conv2d(into, out, step, step), Block(out), Block(out))]
  model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 100))
  return trained(model, lambda x, y: f.cross_entropy(model(x), y), torch.optim.AdamW(model.parameters(), lr=1e-3),
                 drawn(batch, normal(rng, 4 * batch, 3, size, size), rng.integers(0, 100, 4 * batch)))


def everyday(torch: Any) -> Work:
  """A convolution with a batch norm and dropout on 8×8 pictures, up to 99 of them."""
  nn, rng = torch.nn, np.random.default_rng(14)
  model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                        nn.Dropout(0.1), nn.Linear(128, 10))
  return trained(model, lambda x, y: nn.functional.cross_entropy(model(x), y), torch.optim.Adam(model.parameters(), lr=3e-3),
                 drawn(99, normal(rng, 99, 1, 8, 8), rng.integers(0, 10, 99)))


WORKS: dict[str, Callable[[Any], Work]] = {
  "perceptron": perceptron, "CNN": cnn, "ResNet-18": resnet, "GPT": gpt, "biLSTM": bilstm, "VAE": vae, "GAN": gan, "U-Net": unet,
  "DDPM": ddpm, "graph net": graph_net, "encoder": encoder}
FIRST_LOSSES: dict[str, Callable[[Any], Work]] = {
  "VAE": vae, "GPT": gpt, "ViT": vit, "biLSTM": bilstm, "ResNet-18": resnet, "U-Net": unet, "ConvNeXt": convnext}
