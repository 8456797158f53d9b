"""A random network as a program: code that a person can read, made block by block while it is tried on tensors of no device's.

Values between blocks are ``rows`` (batch, features), ``sequence`` (batch, length, features), ``series`` (batch, channels, length)
or ``image`` (batch, channels, height, width); a block that takes another form gets an adapter.
"""
from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Callable, Sequence

import numpy as np

import ntgrad
import ntgrad.nn.functional as F
from ntgrad import Tensor, nn
from ntgrad.utils.checkpoint import checkpoint

PRELUDE = """import numpy as np

import ntgrad
import ntgrad.nn.functional as F
from ntgrad import Tensor, Variable, nn
from ntgrad.utils.checkpoint import checkpoint

rng = np.random.default_rng(0)
Tensor.manual_seed(0)


def data(*shape, dtype="float32"): return Tensor(rng.standard_normal(shape).astype("float32"), dtype=dtype)
def ints(high, *shape): return Tensor(rng.integers(0, high, shape).astype("int32"))


def fill(net):
  for name, p in sorted([*net.named_parameters(), *net.named_buffers()]):
    if p.dtype.kind == "f": p.assign(Tensor(values(name, p.shape).astype("float32"), dtype=p.dtype))


def values(name, shape):
  if "var" in name: return rng.random(shape) + 0.5
  return rng.standard_normal(shape) / max(1, int(np.prod(shape[1:]))) ** 0.5 + (len(shape) == 1 and "weight" in name)
"""
SMALL = (1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 16, 17)
FEATURES = (1, 2, 3, 5, 7, 8, 15, 16, 17, 24, 31, 32, 33, 37, 48, 63, 64, 65, 96, 100, 127, 128, 129, 192, 256, 257, 384, 512,
            513, 768, 1000)
CHANNELS = (1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 24, 31, 32, 33, 48, 64, 65, 96, 128)
SIDES = (1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 15, 16, 17, 19, 23, 28, 31, 32, 33, 48, 63, 64)
LENGTHS = (1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 32, 33, 50, 63, 64, 65, 97, 128, 129, 200)
BATCHES = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 32, 33)
MOST = 1 << 22       # elements of a value
FORMS = {2: "rows", 3: "sequence", 4: "image"}


@dataclass(frozen=True)
class Spec:
  """What is drawn of a network before it is made: the kinds of its blocks in order, how sizes are given, and whether it is to be
  small enough to be computed by the oracle."""
  number: int
  seed: int
  kinds: tuple[str, ...]
  sizes: str             # "numbers", "changing", "variable"
  small: bool

  @property
  def oracle(self) -> bool:
    """Whether the numpy backend computes it, for which it is very small."""
    return self.small and self.number % 20 == 0


@dataclass(frozen=True)
class Program:
  """``body`` after the prelude defines ``step(b, t)``, which gives what is to be computed for a batch ``b`` of sequences of
  length ``t``; ``calls`` are values of both. Where there are ``bounds``, what varies is a Variable with that greatest value."""
  body: str
  calls: tuple[tuple[int, int], ...]
  bounds: tuple[int, int] = (0, 0)

  @property
  def text(self) -> str:
    """All of it."""
    given = ", ".join([f"Variable('n{x}', 1, {most}).bind({x})" if most else x for x, most in zip("bt", self.bounds)])
    calls = ", ".join(map(str, self.calls))
    return f"{PRELUDE}\n\n{self.body}\n\n\nfor b, t in [{calls}]: Tensor.realize(*step({given}))\n"


class Grown(nn.Module):
  """The module of a network that is being made."""


class Unfit(Exception):
  """What a block would have made is too large, or empty."""


class Growing:
  """A network that is being made. ``x`` is the value now, without memory; ``form`` its form."""

  def __init__(self, spec: Spec):
    self.spec, self.rng = spec, random.Random(f"network {spec.seed} {spec.number}")
    self.init: list[str] = []
    self.forward: list[str] = []
    self.net, self.count = Grown(), 0
    self.inputs: list[str] = []      # lines that make the step's inputs
    self.scope: dict[str, Any] = {"nn": nn, "F": F, "Tensor": Tensor, "self": self.net, "np": np, "ntgrad": ntgrad,
                                  "checkpoint": checkpoint}
    r = self.rng
    self.batch = r.choice(BATCHES[:8] if spec.small else BATCHES)
    self.length = 0      # of the sequences that come in
    self.dtype = r.choice(["float32"] * 16 + ["float16", "float16", "bfloat16", "bfloat16", "float64"])
    self.form = ""

  # ---- drawing
  def choice(self, among: Sequence[Any]) -> Any: return self.rng.choice(among)
  def size(self, among: Sequence[int], most: int = 1 << 30) -> int:
    """A size from a pool; a small network takes small ones."""
    if self.spec.small: most = min(most, 12 if self.spec.oracle else 33)
    return int(self.choice([n for n in among if n <= most] or [1]))
  def often(self, p: float) -> bool: return self.rng.random() < p
  def divisor(self, n: int, most: int = 1 << 30) -> int:
    """A divisor of a number."""
    return int(self.choice([d for d in range(1, min(n, most) + 1) if n % d == 0]))

  # ---- writing
  @property
  def x(self) -> Tensor: return self.scope["x"]  # type: ignore[no-any-return]
  @property
  def shape(self) -> tuple[int, ...]: return tuple(map(int, self.x.shape))
  @property
  def features(self) -> int:
    """The size of the dimension that weights go along."""
    return self.shape[-1] if self.form in ("rows", "sequence") else self.shape[1]

  def layer(self, text: str) -> str:
    """A new layer of the network; gives how ``forward`` calls it."""
    self.count += 1
    name = f"self.a{self.count}"
    self.init.append(f"{name} = {text}")
    exec(self.init[-1], self.scope)
    if self.dtype != "float32": self.net.to(self.dtype)
    return name

  def parameter(self, *shape: int) -> str: return self.layer(f"Tensor.empty({', '.join(map(str, shape))}).requires_grad_()")

  def put(self, value: str, name: str = "x") -> None:
    """A line of ``forward``: ``x = value``."""
    line = f"{name} = {value}"
    exec(line, self.scope)
    made = self.scope[name.split(",")[0]]
    if isinstance(made, Tensor):
      self.forward.append(f"{line}   # {', '.join(map(str, made.shape))}")
      if not 0 < made.numel() <= MOST >> (10 if self.spec.oracle else 5 if self.spec.small else 0): raise Unfit
    else: self.forward.append(line)

  def setup(self, line: str) -> None:
    """A line of ``__init__`` that makes no layer."""
    self.count += 1
    self.init.append(line)
    exec(line, self.scope)
    if self.dtype != "float32": self.net.to(self.dtype)

  def run(self, line: str) -> None:
    """A line of ``forward`` that is no assignment to a name."""
    self.forward.append(line)
    exec(line, self.scope)

  def loop(self, head: str, *lines: str) -> None:
    """A loop of ``forward``."""
    self.forward += [head, *[f"  {x}" for x in lines]]
    exec("\n".join(self.forward[-1 - len(lines):]), self.scope)

  def input(self, name: str, text: str) -> str:
    """Another input of the network, whose first dimension is the batch ``b``."""
    self.count += 1
    name = f"{name}{self.count}"
    self.inputs.append(f"{name} = {text}")
    self.scope[name] = eval(text, {**self.scope, "b": self.batch, "data": dry, "ints": dry_ints})
    return name

  def begin(self, form: str) -> None:
    """The network's first value."""
    f, h, w = self.size(FEATURES), self.size(SIDES), self.size(SIDES)
    shape = {"rows": (f,), "sequence": (self.size(LENGTHS), f), "series": (self.size(CHANNELS), self.size(LENGTHS)),
             "image": (self.choice([1, 3, 3, self.size(CHANNELS)]), h, w if self.often(0.3) else h)}[form]
    self.form = form
    if form == "sequence": self.length = shape[0]
    if form == "series": self.length = shape[1]
    dtype = f', dtype="{self.dtype}"' if self.dtype != "float32" else ""
    self.inputs.append(f"x = data(b, {', '.join(map(str, shape))}{dtype})")
    self.scope["x"] = dry(self.batch, *shape, dtype=self.dtype)

  def become(self, *forms: str) -> None:
    """Give ``x`` one of these forms, its own if it is one of them."""
    if self.form in forms: return
    if not self.form:
      self.begin(self.choice(forms))
      return
    to = self.choice(forms)
    self.put(self.choice(ADAPTERS[self.form, to])(self))
    self.form = to


def dry(*shape: int, dtype: str = "float32") -> Tensor: return Tensor.empty(*shape, dtype=dtype)
def dry_ints(high: int, *shape: int) -> Tensor: return Tensor.empty(*shape, dtype="int32")
Adapter = Callable[[Growing], str]


def _square(g: Growing) -> str:
  """Rows as images."""
  n = g.features
  h = max(d for d in range(1, int(n ** 0.5) + 1) if n % d == 0)
  return f"x.unflatten(1, ({g.divisor(n // h, 64)}, {h}, -1))"


ADAPTERS: dict[tuple[str, str], list[Adapter]] = {
  ("image", "rows"): [lambda g: "x.mean((2, 3))", lambda g: "x.amax((2, 3))", lambda g: "F.adaptive_avg_pool2d(x, 1).flatten(1)",
                      lambda g: "x.flatten(1)"],
  ("image", "sequence"): [lambda g: "x.flatten(2).transpose(1, 2)", lambda g: "x.mean(2).transpose(1, 2)"],
  ("image", "series"): [lambda g: "x.flatten(2)", lambda g: "x.amax(3)"],
  ("sequence", "rows"): [lambda g: "x.mean(1)", lambda g: "x[:, -1]", lambda g: "x.amax(1)"],
  ("sequence", "series"): [lambda g: "x.transpose(1, 2)", lambda g: "x.permute(0, 2, 1).contiguous()"],
  ("sequence", "image"): [lambda g: "x.unsqueeze(1)", lambda g: "x.transpose(1, 2).unsqueeze(2)",
                          lambda g: f"x.unflatten(2, ({g.divisor(g.features)}, -1))"],
  ("series", "rows"): [lambda g: "x.mean(2)", lambda g: "x.flatten(1)", lambda g: "x.std(2)" if g.shape[2] > 1 else "x.sum(2)"],
  ("series", "sequence"): [lambda g: "x.transpose(1, 2)"],
  ("series", "image"): [lambda g: "x.unsqueeze(2)", lambda g: "x.unsqueeze(3).expand(-1, -1, -1, 3)"],
  ("rows", "sequence"): [lambda g: "x.unsqueeze(1)", lambda g: f"x.unflatten(1, ({g.divisor(g.features)}, -1))"],
  ("rows", "series"): [lambda g: "x.unsqueeze(2)", lambda g: "x.unsqueeze(1)"],
  ("rows", "image"): [_square],
}
