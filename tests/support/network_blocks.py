"""Blocks of random networks that go along images and series: convolutions, pooling, resampling; and norms of all forms."""
from __future__ import annotations

import math
from typing import Callable

from .network_program import CHANNELS, Growing, Unfit

Block = Callable[[Growing], None]
ACTIVATIONS = ("relu", "gelu", "silu", "tanh", "sigmoid", "elu", "selu", "celu", "leaky_relu", "relu6", "hardtanh", "hardswish",
               "hardsigmoid", "softplus", "mish", "logsigmoid", "softsign", "tanhshrink", "softshrink", "hardshrink")


def activation(g: Growing, p: float = 0.7) -> None:
  """One of all activations, or none."""
  if g.often(p): g.put(f"F.{g.choice(ACTIVATIONS[:3] * 6 + ACTIVATIONS)}(x)")


def dims(g: Growing) -> int: return 2 if g.form == "image" else 1
def sides(g: Growing) -> tuple[int, ...]: return g.shape[2:]


def convolution(g: Growing, groups: str) -> None:
  """A convolution whose kernel fits: of 1 to 7, with stride, dilation and padding. ``groups``: one, some, or each channel."""
  n, side = dims(g), min(sides(g))
  c = g.features
  count = {"one": 1, "some": g.divisor(c), "each": c}[groups]
  to = c if g.often(0.3) else g.size(CHANNELS)
  to = max(to // count, 1) * count if to * count < 4096 else count
  k = g.choice([1, 2, 3, 3, 3, 4, 5, 7])
  dilation = g.choice([1, 1, 1, 2, 3])
  padding = g.choice([0, k // 2, k // 2, k * dilation // 2, k - 1])
  while (k - 1) * dilation + 1 > side + 2 * padding:
    if dilation > 1: dilation -= 1
    else: k -= 1
  stride = g.choice([1, 1, 1, 2, 2, 3, k])
  given = (("stride", stride, 1), ("padding", padding, 0), ("dilation", dilation, 1), ("groups", count, 1))
  more = "".join([f", {name}={v}" for name, v, default in given if v != default])
  if padding and padding < side and g.often(0.1): more += f', padding_mode="{g.choice(["reflect", "replicate", "circular"])}"'
  kernel = f"({k}, {g.choice([1, k])})" if n == 2 and g.often(0.1) else k
  layer = g.layer(f"nn.Conv{n}d({c}, {to}, {kernel}{more}{', bias=False' if g.often(0.3) else ''})")
  g.put(f"{layer}(x)")
  activation(g)


def conv1d(g: Growing) -> None:
  g.become("series")
  convolution(g, g.choice(["one", "one", "some", "each"]))


def conv2d(g: Growing) -> None:
  g.become("image")
  convolution(g, "one")


def grouped(g: Growing) -> None:
  g.become("image")
  convolution(g, g.choice(["some", "each"]))


def conv3d(g: Growing) -> None:
  """A convolution of an image's channels as a third dimension."""
  g.become("image")
  k = min(g.choice([1, 2, 3]), *g.shape[1:])
  to = g.size((1, 2, 3, 4))
  g.put("x.unsqueeze(1)")
  g.put(f"{g.layer(f'nn.Conv3d(1, {to}, {k}, padding={g.choice([0, k // 2])})')}(x)")
  g.put("x.flatten(1, 2)")
  activation(g)


def transposed(g: Growing) -> None:
  """A transposed convolution."""
  g.become("image", "series")
  c, k, stride = g.features, g.choice([1, 2, 3, 4, 5]), g.choice([1, 2, 2, 3])
  count = g.choice([1, 1, g.divisor(c)])
  to = max(g.size(CHANNELS, 64) // count, 1) * count
  padding = g.choice([0, min((k - 1) // 2, 1)])
  more = f", output_padding={stride - 1}" if stride > 1 and g.often(0.3) else ""
  layer = g.layer(f"nn.ConvTranspose{dims(g)}d({c}, {to}, {k}, stride={stride}, padding={padding}{more}, groups={count})")
  g.put(f"{layer}(x)")
  activation(g)


def convnext(g: Growing) -> None:
  """Channels by themselves, then a norm and a perceptron along them, with what came in added."""
  g.become("image")
  c, k = g.features, g.choice([3, 5, 7])
  if c > 256: g.put(f"{g.layer(f'nn.Conv2d({c}, {(c := 64)}, 1)')}(x)")
  wide = g.choice([1, 2, 4]) * c
  g.put("x", "y")
  g.put(f"{g.layer(f'nn.Conv2d({c}, {c}, {k}, padding={k // 2}, groups={c})')}(x).permute(0, 2, 3, 1)")
  g.put(f"{g.layer(f'nn.LayerNorm({c})')}(x)")
  first, second = g.layer(f"nn.Linear({c}, {wide})"), g.layer(f"nn.Linear({wide}, {c})")
  g.put(f"y + {second}(F.gelu({first}(x))).permute(0, 3, 1, 2)")


def residual(g: Growing) -> None:
  """Two convolutions with norms, and what came in, brought to their shape."""
  g.become("image")
  c, to, stride = g.features, g.size(CHANNELS), g.choice([1, 1, 2])
  def conv(a: int, b: int, k: int, s: int) -> str: return g.layer(f"nn.Conv2d({a}, {b}, {k}, {s}, {k // 2}, bias=False)")
  def norm() -> str:
    return g.layer(f"nn.BatchNorm2d({to})" if g.batch > 1 and g.often(0.5) else f"nn.GroupNorm({g.divisor(to)}, {to})")
  g.put(f"{norm()}({conv(c, to, 1, stride)}(x))" if to != c or stride > 1 else "x", "y")
  g.put(f"F.relu({norm()}({conv(c, to, 3, stride)}(x)))")
  g.put(f"F.relu({norm()}({conv(to, to, 3, 1)}(x)) + y)")


def _window(g: Growing) -> tuple[int, int, int]:
  k = min(g.choice([1, 2, 2, 3, 3, 5]), *sides(g))
  return k, g.choice([1, 2, k]), g.choice([0, 0, k // 2])


def max_pool(g: Growing) -> None:
  g.become("image", "series")
  k, stride, padding = _window(g)
  more = ", ceil_mode=True" if g.often(0.2) else ""
  g.put(f"F.max_pool{dims(g)}d(x, {k}, {stride}, {padding}{more})")


def average_pool(g: Growing) -> None:
  g.become("image", "series")
  k, stride, padding = _window(g)
  more = "".join([f", {name}" for name in ("ceil_mode=True", "count_include_pad=False") if g.often(0.2)])
  g.put(f"F.avg_pool{dims(g)}d(x, {k}, {stride}, {padding}{more})")


def adaptive_pool(g: Growing) -> None:
  g.become("image", "series")
  n = dims(g)
  to = [max(1, min(s, g.choice([1, 2, 3, 5, 7]))) for s in sides(g)]
  g.put(f"F.adaptive_{g.choice(['avg', 'max'])}_pool{n}d(x, {tuple(to) if n == 2 else to[0]})")


def norm_pool(g: Growing) -> None:
  g.become("image", "series")
  k, stride, _ = _window(g)
  g.put(f"F.lp_pool{dims(g)}d({'x' if g.often(0.5) else 'x.abs() + 0.1'}, 2, {k}, {stride})")


def upsample(g: Growing) -> None:
  g.become("image", "series")
  n = dims(g)
  modes = ["nearest", "nearest", "bilinear", "bicubic", "area"] if n == 2 else ["nearest", "linear"]
  mode = g.choice(modes)
  more = ", align_corners=True" if mode not in ("nearest", "area") and g.often(0.4) else ""
  if mode == "bicubic" or g.often(0.4):
    to = tuple([max(1, s + g.choice([-1, 0, 1, 2, s])) for s in sides(g)])
    g.put(f'F.interpolate(x, size={to if n == 2 else to[0]}, mode="{mode}"{more})')
  else: g.put(f'F.interpolate(x, scale_factor=2, mode="{mode}"{more})')


def pixel_shuffle(g: Growing) -> None:
  g.become("image")
  c, h, w = g.shape[1:]
  r = g.choice([2, 2, 3])
  if g.often(0.5) and h % r == 0 and w % r == 0: g.put(f"F.pixel_unshuffle(x, {r})")
  else:
    if c % (r * r): g.put(f"{g.layer(f'nn.Conv2d({c}, {r * r * g.size((1, 2, 3, 4, 8))}, 1)')}(x)")
    g.put(f"F.pixel_shuffle(x, {r})")


# ---- norms, of any form
def batch_norm(g: Growing) -> None:
  g.become("image", "series", "rows")
  if math.prod((g.shape[0], *sides(g))) < 2: raise Unfit
  more = g.choice(["", "", "", ", affine=False", ", momentum=None", ", track_running_stats=False"])
  g.put(f"{g.layer(f'nn.BatchNorm{2 if dims(g) == 2 else 1}d({g.features}{more})')}(x)")
  activation(g, 0.5)


def layer_norm(g: Growing) -> None:
  g.become("sequence", "rows", "image")
  shape = g.shape[1:] if g.form == "image" or g.often(0.2) else g.shape[-1:]
  more = g.choice(["", "", "", ", elementwise_affine=False", ", bias=False"])
  g.put(f"{g.layer(f'nn.LayerNorm({tuple(shape) if len(shape) > 1 else shape[0]}{more})')}(x)")


def channel_norm(g: Growing) -> None:
  """A layer norm over the channels of an image."""
  g.become("image")
  g.put(f"{g.layer(f'nn.LayerNorm({g.features})')}(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)")


def group_norm(g: Growing) -> None:
  g.become("image", "series")
  more = g.choice(["", "", ", affine=False"])
  g.put(f"{g.layer(f'nn.GroupNorm({g.divisor(g.features)}, {g.features}{more})')}(x)")
  activation(g, 0.5)


def instance_norm(g: Growing) -> None:
  g.become("image", "series")
  if math.prod(sides(g)) < 2: raise Unfit
  more = g.choice(["", ", affine=True", ", track_running_stats=True"])
  g.put(f"{g.layer(f'nn.InstanceNorm{dims(g)}d({g.features}{more})')}(x)")


def rms_norm(g: Growing) -> None:
  g.become("sequence", "rows")
  g.put(f"{g.layer(f'nn.RMSNorm({g.features})')}(x)")


def response_norm(g: Growing) -> None:
  g.become("image")
  g.put(f"F.local_response_norm(x, {g.choice([2, 3, 5])})")


BLOCKS: dict[str, Block] = {f.__name__: f for f in (
  conv1d, conv2d, grouped, conv3d, transposed, convnext, residual, max_pool, average_pool, adaptive_pool, norm_pool, upsample,
  pixel_shuffle, batch_norm, layer_norm, channel_norm, group_norm, instance_norm, rms_norm, response_norm)}
