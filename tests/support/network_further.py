"""Further blocks of random networks: tensors written in place or by an index, routed experts, windows and samples of images,
steps that are computed again for gradients, what is shared or kept between calls."""
from __future__ import annotations

from .network_blocks import Block, activation
from .network_layers import BLOCKS as LAYERS
from .network_program import CHANNELS, FEATURES, Growing, Unfit


def any_form(g: Growing) -> None:
  """Whatever there is."""
  if not g.form: g.become("rows", "sequence", "image", "series")


# ---- written
def written_by_index(g: Growing) -> None:
  """Rows put into a larger tensor at places that the input names, padded."""
  g.become("rows", "sequence")
  n = g.choice([8, 33, 64])
  i = g.input("i", f"ints({n}, b)")
  g.put(f"Tensor.zeros({n}, {', '.join(map(str, g.shape[1:]))}, dtype=x.dtype)", "s")
  how = g.choice(["s.index_put((I,), x, accumulate=True)", "s.index_add(0, I, x)", "s.index_copy(0, I, x)"])
  g.put(how.replace("I", i), "s")
  if g.often(0.6): g.put(f"F.pad(s, ({g.choice([0, 1, 3])}, {g.choice([1, 2])}), value=0.5)[..., :{g.features}]", "s")
  g.put(f"x + s[{i}]" if g.often(0.7) else "x * 0.5 + s.mean(0)")


def written_part(g: Growing) -> None:
  """A part of a copy is written, forward or by a mask."""
  any_form(g)
  n = g.shape[1]
  g.put("x.clone()", "y")
  hows = [f"y[:, {n // 3}:] = x[:, {n // 3}:] * 2", f"y[:, {n - 1}] = x[:, 0]", "y.relu_()", "y.masked_fill_(x > 1, 0.0)",
          "y.mul_(0.5).add_(x)", *["y[:, ::2] = 0.0"] * (n > 1)]
  g.run(g.choice(hows))
  g.put("y")


def cut_and_put_back(g: Growing) -> None:
  """A slice goes through a layer and back to its place."""
  g.become("sequence", "rows")
  n = g.features
  k = g.choice([1, max(1, n // 2), n])
  layer = g.layer(f"nn.Linear({k}, {k})")
  g.put(f"x.slice_scatter({layer}(x[..., :{k}]), {len(g.shape) - 1}, 0, {k})")


def cached(g: Growing) -> None:
  """A buffer that each call writes a row of, and reads all of."""
  g.become("rows")
  n = g.choice([4, 7, 16])
  name = f"c{g.count}"
  g.setup(f'self.register_buffer("{name}", Tensor.zeros({n}, {g.features}))')
  g.run(f"self.{name}[{g.rng.randrange(n)}] = x.detach().mean(0)")
  g.put(f"x + self.{name}.mean(0).cast(x.dtype)")


# ---- routed
def experts(g: Growing) -> None:
  """A few of several layers for each row, by a gate."""
  g.become("rows", "sequence")
  n, wide, d = g.choice([2, 3, 4, 8]), g.size(FEATURES, 257), g.features
  k = g.choice([1, 2])
  gate, first, second = g.layer(f"nn.Linear({d}, {n}, bias=False)"), g.parameter(n, d, wide), g.parameter(n, wide, d)
  g.put(f"F.softmax({gate}(x), -1).topk({k}, -1)", "w, i")
  g.put(f'Tensor.einsum("...d,edw->...ew", x, {first}).relu()', "h")
  g.put(f'Tensor.einsum("...ew,ewd->...ed", h, {second})', "h")
  g.put(f"h.gather({len(g.shape) - 1}, i.unsqueeze(-1).expand(*i.shape, {d}))", "h")
  g.put("x + (h * w.unsqueeze(-1)).sum(-2)")


def one_hot(g: Growing) -> None:
  """Classes as rows of zeros and a one, times a table; or the nearest of a table's rows, whose gradient goes straight through."""
  g.become("rows", "sequence")
  n, d = g.size((1, 2, 5, 16, 33, 100)), g.features
  table = g.parameter(n, d)
  if g.often(0.5):
    i = g.input("i", f"ints({n}, b)")
    g.put(f"x + (F.one_hot({i}, {n}).cast(x.dtype) @ {table}){'.unsqueeze(1)' if g.form == 'sequence' else ''}")
  else:
    g.put(f"(x.unsqueeze(-2) - {table}).square().sum(-1).argmin(-1)", "i")
    g.put(f"x + ({table}[i] - x).detach() + {table}[i] * 0.1")


def excited(g: Growing) -> None:
  """Channels by weights that come of their means."""
  g.become("image", "series")
  c, n = g.features, len(g.shape) - 2
  less = max(1, c // g.choice([2, 4, 16]))
  first, second = g.layer(f"nn.Linear({c}, {less})"), g.layer(f"nn.Linear({less}, {c})")
  g.put(f"{second}(F.relu({first}(x.mean({tuple(range(2, 2 + n))})))).sigmoid()", "s")
  g.put(f"x * s{'.unsqueeze(-1)' * n}")


# ---- images
def unfolded(g: Growing) -> None:
  """Patches by a product, or as a sequence."""
  g.become("image")
  k = min(g.choice([1, 2, 3, 4]), *g.shape[2:])
  stride = g.choice([1, k])
  g.put(f"F.unfold(x, {k}, stride={stride})")
  g.form = "series"
  if g.often(0.5):
    g.put("x.transpose(1, 2)")
    g.form = "sequence"


def folded(g: Growing) -> None:
  """Patches and back, as sums."""
  g.become("image")
  h, w = g.shape[2:]
  k = min(g.choice([1, 2, 3]), h, w)
  g.put(f"F.fold(F.unfold(x, {k}, padding={k // 2}), ({h}, {w}), {k}, padding={k // 2})")


def sampled(g: Growing) -> None:
  """An image seen from elsewhere: bilinear at places that the input gives."""
  g.become("image")
  h, w = g.choice([1, 3, 8, 13]), g.choice([2, 5, 8])
  mode = g.choice(["bilinear", "bilinear", "nearest"])
  if g.often(0.5): where = f"{g.input('p', f'data(b, {h}, {w}, 2)')}.cast(x.dtype)"
  else:
    size = f"(x.shape[0], {g.features}, {h}, {w})"
    where = f"F.affine_grid({g.input('p', 'data(b, 2, 3)')}, {size}, align_corners=False).cast(x.dtype)"
  pad = g.choice(["zeros", "border"])
  g.put(f'F.grid_sample(x, {where}, mode="{mode}", padding_mode="{pad}", align_corners={g.often(0.5)})')


def patches(g: Growing) -> None:
  """An image as a sequence of patches with a token before it."""
  g.become("image")
  k = min(g.choice([1, 2, 4, 7, 8]), *g.shape[2:])
  d = g.size(FEATURES, 256)
  conv, token = g.layer(f"nn.Conv2d({g.features}, {d}, {k}, {k})"), g.parameter(1, 1, d)
  g.put(f"{conv}(x).flatten(2).transpose(1, 2)")
  g.form = "sequence"
  g.put(f"{token}.expand(x.shape[0], -1, -1).cat(x, dim=1)")


def dense(g: Growing) -> None:
  """Each layer sees what all before it gave."""
  g.become("image", "series")
  n, grow = len(g.shape) - 2, g.size(CHANNELS, 33)
  for _ in range(g.choice([2, 3])):
    layer = g.layer(f"nn.Conv{n}d({g.features}, {grow}, 3, padding=1)")
    g.put(f"Tensor.cat(x, {layer}(F.relu(x)), dim=1)")


def up_and_down(g: Growing) -> None:
  """A smaller image, and back beside the larger."""
  g.become("image")
  c, h, w = g.shape[1:]
  if min(h, w) < 2: raise Unfit
  to = g.size(CHANNELS, 64)
  down, middle = g.layer(f"nn.Conv2d({c}, {to}, 3, 2, 1)"), g.layer(f"nn.Conv2d({to}, {to}, 3, padding=1)")
  g.put("x", "y")
  g.put(f"F.relu({middle}(F.relu({down}(x))))")
  g.put(f'F.interpolate(x, size=({h}, {w}), mode="{g.choice(["nearest", "bilinear"])}")')
  g.put("Tensor.cat(x, y, dim=1)")


# ---- the rest
def statistics(g: Growing) -> None:
  """Reductions that stay, of one or several dimensions."""
  any_form(g)
  dims = g.rng.sample(range(1, len(g.shape)), g.choice(range(1, len(g.shape))))
  by = dims[0] if len(dims) == 1 else tuple(dims)
  hows = ["x - x.mean({by}, keepdim=True)", "x / (x.square().sum({by}, keepdim=True) + 1).sqrt()",
          "x - x.amax({by}, keepdim=True)", "x - x.logsumexp({dim}, keepdim=True)", "x * x.norm(dim={dim}, keepdim=True)",
          "x * (x.abs().amax({by}, keepdim=True) + 1).rsqrt()"]
  if g.shape[dims[0]] > 1: hows += ["x - x.std({dim}, keepdim=True)", "x * x.var({dim}, keepdim=True)", "x.diff(dim={dim})"]
  g.put(g.choice(hows).format(by=by, dim=dims[0]))


def pairs(g: Growing) -> None:
  """Every two places of a sequence, or halves of the features, by a form of both."""
  g.become("sequence", "rows")
  d = g.features
  if g.form == "rows":
    if d > 64: g.put(f"{g.layer(f'nn.Linear({d}, {(d := 33)})')}(x)")
    g.put(f"{g.layer(f'nn.Bilinear({d}, {d}, {g.size(FEATURES, 48)})')}(x, x)")
  elif g.often(0.5): g.put("Tensor.cdist(x, x)" if g.dtype == "float32" else "x @ x.transpose(1, 2)")
  else: g.put("(x.unsqueeze(2) - x.unsqueeze(1)).abs().mean(3)")


def again(g: Growing) -> None:
  """A perceptron that is computed again for its gradients."""
  g.become("rows", "sequence")
  d, wide = g.features, g.size(FEATURES, 512)
  part = g.layer(f"nn.Sequential(nn.Linear({d}, {wide}), nn.GELU(), nn.Linear({wide}, {d}))")
  g.put(f"x + checkpoint({part}, x, use_reentrant=False)")


def shared(g: Growing) -> None:
  """One layer several times."""
  g.become("rows", "sequence")
  layer = g.layer(f"nn.Linear({g.features}, {g.features})")
  for _ in range(g.choice([2, 3, 4])): g.put(f"x + F.{g.choice(['tanh', 'relu', 'silu'])}({layer}(x))")


def mixer(g: Growing) -> None:
  """A perceptron along the places, then one along the features."""
  g.become("sequence")
  t, d = g.shape[1:]
  for n, way in ((t, ".transpose(1, 2)"), (d, "")):
    wide = g.size(FEATURES, 200)
    norm = g.layer(f"nn.LayerNorm({d})")
    first, second = g.layer(f"nn.Linear({n}, {wide})"), g.layer(f"nn.Linear({wide}, {n})")
    g.put(f"x + {second}(F.gelu({first}({norm}(x){way}))){way}")


def drawn(g: Growing) -> None:
  """Numbers that are drawn in between."""
  any_form(g)
  hows = ["x + Tensor.randn(*x.shape) * 0.1", "x * (Tensor.rand(*x.shape) < 0.7)", "F.gumbel_softmax(x, dim=-1)",
          "F.alpha_dropout(x, 0.2)"]
  g.put(f"({g.choice(hows)}).cast(x.dtype)")
  activation(g, 0.3)


BLOCKS: dict[str, Block] = LAYERS | {f.__name__: f for f in (
  written_by_index, written_part, cut_and_put_back, cached, experts, one_hot, excited, unfolded, folded, sampled, patches, dense,
  up_and_down, statistics, pairs, again, shared, mixer, drawn)}
