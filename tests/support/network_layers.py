"""Blocks of random networks that go along features and sequences: perceptrons, attention, recurrent cells, rows taken and added
by an index, movement."""
from __future__ import annotations

from .network_blocks import BLOCKS as SPATIAL, Block, activation
from .network_program import FEATURES, Growing


def linear(g: Growing) -> None:
  g.become("rows", "sequence")
  g.put(f"{g.layer(f'nn.Linear({g.features}, {g.size(FEATURES)}' + (', bias=False' if g.often(0.3) else '') + ')')}(x)")
  activation(g)


def perceptron(g: Growing) -> None:
  """Two layers with what came in added; gated, sometimes."""
  g.become("rows", "sequence")
  d, wide = g.features, g.size(FEATURES)
  first, second = g.layer(f"nn.Linear({d}, {wide})"), g.layer(f"nn.Linear({wide}, {d})")
  norm = g.layer(g.choice([f"nn.LayerNorm({d})", f"nn.RMSNorm({d})"]))
  if g.often(0.4): g.put(f"x + {second}(F.silu({first}({norm}(x))) * {g.layer(f'nn.Linear({d}, {wide})')}({norm}(x)))")
  else: g.put(f"x + {second}(F.{g.choice(['gelu', 'relu', 'tanh'])}({first}({norm}(x))))")


def gate(g: Growing) -> None:
  """Half of the features decide about the others; or a softmax."""
  g.become("rows", "sequence")
  if g.features % 2 == 0 and g.often(0.6): g.put("F.glu(x)")
  else: g.put(g.choice(["F.softmax(x, -1)", "F.log_softmax(x, -1)", "F.normalize(x, dim=-1)", "F.softmin(x, 1)"]))


def all_activations(g: Growing) -> None:
  if not g.form: g.become("rows", "sequence", "image", "series")
  for _ in range(g.choice([1, 2, 3])): activation(g, 1)
  if g.often(0.3): g.put(f"{g.layer(f'nn.PReLU({g.features})' if g.form in ('rows', 'image', 'series') else 'nn.PReLU()')}(x)")


# ---- attention
def _heads(g: Growing) -> tuple[int, int]:
  """Heads and features of each, where the sequence has about so many features."""
  d = g.size((2, 3, 4, 5, 8, 15, 16, 17, 24, 32, 33, 64))
  return max(1, g.choice([1, 2, 3, 4, 5, 8, max(1, min(g.features // d, 12))])), d


def _mask(g: Growing, length: str, keys: str, most: int) -> str:
  """A mask of attention as an argument; "" for none. ``length`` and ``keys`` are how the program calls these, ``most`` is the
  latter as a number."""
  kind = g.choice(["none", "causal", "causal", "bool", "float", "padding"])
  if kind == "causal": return ", is_causal=True"
  if kind == "bool": return f", attn_mask=Tensor.ones({length}, {keys}).tril().cast('bool')"
  if kind == "float": return f", attn_mask=(Tensor.arange({keys}) - Tensor.arange({length}).unsqueeze(1)) * {g.parameter(1)}"
  if kind == "padding":
    lengths = g.input("n", f"ints({most}, b)")
    return f", attn_mask=(Tensor.arange({keys}) <= {lengths}.reshape(-1, 1, 1, 1))"
  return ""


def attention(g: Growing, grouped: bool = False, rotary: bool = False) -> None:
  """Attention of a sequence to itself, its heads by one product; then a product back."""
  g.become("sequence")
  h, d = _heads(g)
  length, width = g.shape[1], g.features
  kv = g.divisor(h) if grouped else h
  if rotary: d += d % 2
  qkv, out = g.layer(f"nn.Linear({width}, {(h + 2 * kv) * d}, bias={g.often(0.5)})"), g.layer(f"nn.Linear({h * d}, {width})")
  g.put("x", "y")
  if g.often(0.5): g.put(f"{g.layer(f'nn.LayerNorm({width})')}(x)")
  g.put(f"{qkv}(x).unflatten(2, (-1, {d})).transpose(1, 2).split([{h}, {kv}, {kv}], 1)", "q, k, v")
  if rotary:
    g.put(f"Tensor.arange(x.shape[1]).unsqueeze(1) * 10000.0 ** (Tensor.arange({d // 2}) / -{d / 2})", "a")
    for n in "qk":
      g.put(f"{n}[..., ::2]", "even")
      g.put(f"{n}[..., 1::2]", "odd")
      g.put("Tensor.stack(even * a.cos() - odd * a.sin(), even * a.sin() + odd * a.cos(), dim=-1).flatten(3).cast(x.dtype)", n)
  if grouped or g.often(0.6):
    more = _mask(g, "q.shape[2]", "q.shape[2]", length) + (", enable_gqa=True" if kv != h else "")
    g.put(f"F.scaled_dot_product_attention(q, k, v{more})")
  else:   # by hand
    g.put(f"q @ k.transpose(2, 3) * {d ** -0.5:.4f}", "s")
    if g.often(0.5): g.put("s.masked_fill(Tensor.ones(x.shape[1], x.shape[1]).triu(1).cast('bool'), -1e4)", "s")
    g.put("F.softmax(s, -1) @ v")
  g.put(f"y + {out}(x.transpose(1, 2).flatten(2))")


def grouped_attention(g: Growing) -> None: attention(g, grouped=True)
def rotary_attention(g: Growing) -> None: attention(g, rotary=True, grouped=g.often(0.3))


def cross_attention(g: Growing) -> None:
  """Attention to another sequence, or from a few learned queries."""
  g.become("sequence")
  h, d = _heads(g)
  width, keys = g.features, g.size((1, 2, 3, 7, 16, 33, 50, 77, 128))
  other = g.size(FEATURES, 256)
  context = g.input("c", f'data(b, {keys}, {other}, dtype="{g.dtype}")')
  q, kv = g.layer(f"nn.Linear({width}, {h * d})"), g.layer(f"nn.Linear({other}, {2 * h * d})")
  out = g.layer(f"nn.Linear({h * d}, {width})")
  g.put(f"{q}(x).unflatten(2, ({h}, {d})).transpose(1, 2)", "q")
  g.put(f"{kv}({context}).unflatten(2, (2, {h}, {d})).permute(2, 0, 3, 1, 4)", "kv")
  mask = _mask(g, "x.shape[1]", str(keys), keys).replace(", is_causal=True", "")
  g.put(f"F.scaled_dot_product_attention(q, kv[0], kv[1]{mask})", "o")
  g.put(f"x + {out}(o.transpose(1, 2).flatten(2))")


def multihead(g: Growing) -> None:
  """The layer of attention, with key padding and weights."""
  g.become("sequence")
  length, width = g.shape[1:]
  heads = g.divisor(width, 16)
  more = g.choice(["", "", ", add_bias_kv=True", ", bias=False"])
  layer = g.layer(f"nn.MultiheadAttention({width}, {heads}, batch_first=True{more})")
  more = ", need_weights=False" if g.often(0.5) else ""
  if g.often(0.4):
    lengths = g.input("n", f"ints({length}, b)")
    more += f", key_padding_mask=Tensor.arange(x.shape[1]) > {lengths}.unsqueeze(1)"
  elif g.often(0.4): more += ", attn_mask=Tensor.ones(x.shape[1], x.shape[1]).triu(1).cast('bool')"
  g.put(f"x + {layer}(x, x, x{more})[0]")


def encoder(g: Growing) -> None:
  """The layer of a transformer's encoder."""
  g.become("sequence")
  width = g.features
  more = f"dropout={g.choice([0.0, 0.1])}, batch_first=True, norm_first={g.often(0.5)}"
  g.put(f"{g.layer(f'nn.TransformerEncoderLayer({width}, {g.divisor(width, 8)}, {g.size(FEATURES, 256)}, {more})')}(x)")


# ---- recurrent
def _recurrent(g: Growing, cell: str) -> None:
  g.become("sequence")
  if g.shape[1] > 8: g.put(f"x[:, {g.choice([':6', '-5:', '::' + str(-(-g.shape[1] // 5))])}]")
  hidden, both = g.size(FEATURES, 200), g.often(0.4)
  layers = g.choice([1, 1, 2])
  if g.often(0.25):   # step by step
    c = g.layer(f"nn.{cell}Cell({g.features}, {hidden})")
    g.put("None", "h")
    g.put("[]", "o")
    g.loop("for i in range(x.shape[1]):", f"h = {c}(x[:, i], h)", f"o.append({'h[0]' if cell == 'LSTM' else 'h'})")
    g.put("Tensor.stack(o, dim=1)")
  else:
    more = (", bidirectional=True" if both else "") + (f", num_layers={layers}" if layers > 1 else "")
    g.put(f"{g.layer(f'nn.{cell}({g.features}, {hidden}, batch_first=True{more})')}(x)[0]")


def rnn(g: Growing) -> None: _recurrent(g, "RNN")
def gru(g: Growing) -> None: _recurrent(g, "GRU")
def lstm(g: Growing) -> None: _recurrent(g, "LSTM")


# ---- by an index
def embedding(g: Growing) -> None:
  """Words of a vocabulary, added to what there is."""
  g.become("sequence")
  rows = g.size((1, 2, 3, 10, 31, 100, 257, 1000))
  words = g.input("w", f"ints({rows}, b, {g.shape[1]})")
  more = f", padding_idx={g.rng.randrange(rows)}" if g.often(0.2) else ""
  g.put(f"x + {g.layer(f'nn.Embedding({rows}, {g.features}{more})')}({words})")


def embedding_bag(g: Growing) -> None:
  g.become("rows")
  rows, each = g.size((1, 3, 10, 100, 1000)), g.choice([1, 2, 3, 7, 20])
  words = g.input("w", f"ints({rows}, b, {each})")
  mode = g.choice(["sum", "mean", "max"])
  g.put(f"""x + {g.layer(f'nn.EmbeddingBag({rows}, {g.features}, mode="{mode}")')}({words})""")


def gather(g: Growing) -> None:
  """Some places of each sequence."""
  g.become("sequence", "rows")
  if g.form == "rows":
    n = g.choice([1, 2, 5, 16, 33])
    g.put(f"x.gather(1, {g.input('i', f'ints({g.features}, b, {n})')})")
  else:
    length, n = g.shape[1], g.choice([1, 2, 3, 8, 17])
    i = g.input("i", f"ints({length}, b, {n})")
    if g.often(0.5): g.put(f"x.gather(1, {i}.unsqueeze(2).expand(-1, -1, {g.features}))")
    else: g.put(f"x[Tensor.arange({i}.shape[0]).unsqueeze(1), {i}]")


def select(g: Growing) -> None:
  """Rows of a table that all have, by an index of the network's own or the input's."""
  g.become("sequence", "rows", "image", "series")
  dim = g.choice(range(1, len(g.shape)))
  n = g.choice([1, 2, 5, 9])
  g.put(f"x.index_select({dim}, Tensor({[g.rng.randrange(g.shape[dim]) for _ in range(n)]}, dtype='int32'))")


def scatter(g: Growing) -> None:
  """Places written, or added to, by an index."""
  g.become("rows")
  n, wide = g.features, g.size(FEATURES, 257)
  i = g.input("i", f"ints({wide}, b, {n})")
  how = g.choice(["scatter_add", "scatter_add", "scatter_reduce", "scatter"])
  base = f"Tensor.zeros(x.shape[0], {wide}, dtype=x.dtype)"
  if how == "scatter_reduce": g.put(f'{base}.scatter_reduce(1, {i}, x, "{g.choice(["sum", "mean", "amax"])}")')
  else: g.put(f"{base}.{how}(1, {i}, x)")


def index_add(g: Growing) -> None:
  """The rows of the batch added up by class, and each class's sum given back."""
  g.become("rows")
  n = g.choice([1, 2, 3, 10, 64])
  i = g.input("i", f"ints({n}, b)")
  g.put(f"Tensor.zeros({n}, {g.features}, dtype=x.dtype).index_add(0, {i}, x)", "s")
  g.put(f"x - s[{i}]")


def positions(g: Growing) -> None:
  """Learned positions, added."""
  g.become("sequence", "series", "image")
  g.put(f"x + {g.parameter(*g.shape[1:])}")


def ordered(g: Growing) -> None:
  """Running sums, sorts, the first few."""
  g.become("sequence", "rows")
  n = g.shape[-1]
  first = f"x.topk({min(n, g.choice([1, 2, 5]))}, -1)[0]"
  how = g.choice(["x.cumsum(1)", "x.cumsum(-1)", "x.sort(-1)[0]", first, "x.cummax(1)[0]", "x.logcumsumexp(-1)",
                  "x.flip(1).cumsum(1).flip(1)"])
  g.put(how)


# ---- products and movement
def einsum(g: Growing) -> None:
  g.become("sequence", "rows", "image")
  if g.form == "rows":
    a, b = g.size(FEATURES, 64), g.size((1, 2, 3, 5, 8))
    experts = g.parameter(b, g.features, a)
    g.put(f'Tensor.einsum("bi,kio,bk->bo", x, {experts}, {g.layer(f"nn.Linear({g.features}, {b})")}(x))')
  elif g.form == "image":
    g.put(f'Tensor.einsum("bchw,dc->bdhw", x, {g.parameter(g.size(FEATURES, 96), g.features)})')
  else:
    how = g.choice(["bld,bmd->blm", "bld,ble->bde"])
    g.put(f'Tensor.einsum("{how}", x, x) * {1 / max(g.shape):.4f}')


def cat(g: Growing) -> None:
  """What came in beside what a layer makes of it."""
  if not g.form: g.become("rows", "sequence", "image", "series")
  along = {"rows": -1, "sequence": -1, "image": 1, "series": 1}[g.form]
  if g.form in ("rows", "sequence"): other = g.layer(f"nn.Linear({g.features}, {g.size(FEATURES, 256)})") + "(x)"
  else: other = g.layer(f"nn.Conv{len(g.shape) - 2}d({g.features}, {g.size(FEATURES, 48)}, 3, padding=1)") + "(x)"
  g.put(f"Tensor.cat(x, F.relu({other}){', x * 2' if g.often(0.3) else ''}, dim={along})")


def moved(g: Growing) -> None:
  """Rolled, flipped, padded, cut, repeated."""
  if not g.form: g.become("rows", "sequence", "image", "series")
  for _ in range(g.choice([1, 2])):
    dim = g.choice(range(1, len(g.shape)))
    n = g.shape[dim]
    padded = f"F.pad(x, ({g.choice([0, 1, 2])}, {g.choice([1, 3])}))"
    hows = [f"x.roll({g.choice([1, -2, n // 2])}, {dim})", f"x.flip({dim})", padded, f"x.narrow({dim}, {n // 3}, {n - n // 3})",
            f"x.repeat_interleave(2, {dim})"]
    if len(g.shape) > 2 and min(g.shape[2:]) > 1:
      by = "(1, 0, 0, 1)" if g.form == "image" else f"({g.choice([0, 1])}, 1)"
      hows += [f'F.pad(x, {by}, mode="{g.choice(["reflect", "replicate", "circular"])}")'] * 2
    g.put(g.choice(hows))


def dropout(g: Growing) -> None:
  if not g.form: g.become("rows", "sequence", "image", "series")
  g.put(f"F.{'dropout2d' if g.form == 'image' and g.often(0.3) else 'dropout'}(x, {g.choice([0.1, 0.5])})")


BLOCKS: dict[str, Block] = SPATIAL | {f.__name__: f for f in (
  linear, perceptron, gate, all_activations, attention, grouped_attention, rotary_attention, cross_attention, multihead, encoder,
  rnn, gru, lstm, embedding, embedding_bag, gather, select, scatter, index_add, positions, ordered, einsum, cat, moved, dropout)}
