"""Random tensor programs whose sizes change from call to call, compared with the same at sizes that are numbers
(``dynamic="never"`` on NUMPY).

A program is a function of sizes ``n`` and ``m``, a place ``k`` and Tensors. It is called several times, with other sizes, in one
process: with ints, with values of Variables, with gradients, or captured.
"""
from __future__ import annotations

import math
import random
import re
import warnings
from dataclasses import dataclass
from typing import Any, Callable

import numpy as np

from ntgrad import Tensor

MODES = ("eager", "always", "variables", "gradient", "gradient always", "jit", "jit dynamic", "jit variables", "steady")
SIZES = (1, 2, 3, 5, 7, 8, 13, 16, 17, 23, 31, 32, 33, 48, 64, 100, 128)
BIG = (257, 300, 512, 1000)
STATE = 40          # rows of the tensor that the function holds
MOST = 40_000       # elements of a value
SHAPES = ("n, m", "n, m", "m, n", "n", "m", "n, 8", "5, m", "n, n", "2, n, m", "n + 1, m", "2 * n, m", "n, 1",
          "n, 2 * m", "n, m, 3")
Values = tuple[int, int, int]


@dataclass(frozen=True)
class SizedCalls:
  """``inputs``: name, shape and dtype, those that have n and m as their first dimensions before all others. ``calls``: values of
  n, m and k."""
  inputs: tuple[tuple[str, str, str], ...]
  body: tuple[str, ...]
  results: tuple[str, ...]
  calls: tuple[Values, ...]
  mode: str

  def text(self, captured: bool = False) -> str:
    names = ", ".join([name for name, _, _ in self.inputs])
    head = f"def p(n, m, k, {names}):"
    if captured and "variables" not in self.mode:   # sizes come from shapes
      head = f"def p({names}):\n  n, m = {self.inputs[0][0]}.shape[:2]\n  k = n // 3"
    return "\n  ".join([head, *self.body, f"return [{', '.join(self.results)}]"])


def array(name: str, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
  """The value of an input: small numbers, of which sums are exact."""
  a = np.random.default_rng(ord(name[-1])).integers(-3, 4, shape)
  return a.astype(dtype) if dtype == "int32" else (a / 2).astype(np.float32)


def shape_of(text: str, values: Values) -> tuple[int, ...]:
  n, m, k = values
  return eval(f"({text},)", {"n": n, "m": m, "k": k})  # type: ignore[no-any-return]


class Generator:
  """Grows a function line by line, each tried at all sizes: what is refused at one of them is left out. Nothing is computed."""

  def __init__(self, seed: int, mode: str | None = None):
    self.rng = r = random.Random(f"sizes {seed}")
    drawn = r.choice(MODES)
    self.mode = mode or drawn
    self.grad = self.mode.startswith("gradient")
    self.calls = self.draw_calls()
    shapes = ["n, m", *r.sample(SHAPES, r.choice([0, 1, 2, 2]))]
    dtypes = ["float32", *[r.choice(["float32", "float32", "float32", "int32"]) for _ in shapes[1:]]]
    self.inputs = tuple([(f"x{i}", s, d) for i, (s, d) in enumerate(zip(shapes, dtypes))])
    self.exact = {name for name, _, _ in self.inputs} | {"s"}
    self.scope = [name for name, _, _ in self.inputs]
    self.fresh = set(self.scope) if r.random() < 0.4 and not self.grad else set[str]()   # what may be written
    self.body: list[str] = []
    self.count = 0
    self.state = r.random() < 0.3 and not self.grad
    distinct = list(dict.fromkeys(self.calls))
    self.envs = [self.env(v) for v in distinct]
    if self.state:
      self.scope.append("s")
      self.fresh.add("s")
    # what a dimension is called, by its values
    self.known = {tuple([v[i] for v in distinct]): name for i, name in ((0, "n"), (1, "m"))}

  def draw_calls(self) -> tuple[Values, ...]:
    """Sizes in any order, some of them again."""
    r = self.rng
    if self.mode == "steady":
      return tuple([(n, m, r.randrange(3, n - 4)) for n, m in zip(*[r.sample(range(13, 99), 10) for _ in "nm"])])
    small = r.random() < 0.35
    sizes = [x for x in SIZES if small or x >= 5]
    if r.random() < 0.2: sizes += BIG
    fixed = r.choice([None, None, 8, 16, 20])
    values: list[Values] = []
    while len(values) < r.choice([5, 6, 7]):
      n, m = r.choice(sizes), fixed or r.choice(sizes)
      if n * m <= 12_000: values.append((n, m, r.randrange(max(n - 1, 1))))
    calls = values + [r.choice(values) for _ in range(r.choice([1, 2, 4]))]
    if r.random() < 0.5: r.shuffle(calls)
    return tuple(calls)

  def env(self, values: Values) -> dict[str, Any]:
    n, m, k = values
    env = {"Tensor": Tensor, "np": np, "n": n, "m": m, "k": k}
    for name, shape, dtype in self.inputs: env[name] = Tensor(array(name, shape_of(shape, values), dtype))
    if self.state: env["s"] = Tensor(np.zeros((STATE, 8), np.float32))
    return env

  # ---- asking
  def shape(self, name: str) -> tuple[tuple[int, ...], ...]:
    """The sizes of each dimension, one for each call."""
    return tuple(zip(*[e[name].shape for e in self.envs]))

  def dim(self, name: str, d: int) -> str:
    """What a dimension is called."""
    values = self.shape(name)[d]
    if len(set(values)) == 1 and self.rng.random() < 0.5: return str(values[0])
    found = self.known.get(values)
    return found if found and self.rng.random() < 0.8 else f"{name}.shape[{d}]"

  def add(self, text: str) -> bool:
    """One more line, if no call refuses it."""
    made = text.split(" = ")[0] if re.match(r"[tc]\d+ = ", text) else None
    if self.mode == "steady" and re.search(r"%|split|chunk|roll|k:|:k|k \+", text): return False   # several structures
    with warnings.catch_warnings():
      warnings.simplefilter("ignore")
      try:
        code = compile(text, "<line>", "exec")
        for e in self.envs: exec(code, e)
        if made and (len({e[made].ndim for e in self.envs}) > 1 or any(math.prod(e[made].shape) > MOST for e in self.envs)):
          raise ValueError
        if made and max(e[made].ndim for e in self.envs) > 5: raise ValueError
      except Exception:
        self.restart()
        return False
    self.body.append(text)
    return True

  def restart(self) -> None:
    """Run the lines so far once more, after one was refused."""
    self.envs = [self.env((e["n"], e["m"], e["k"])) for e in self.envs]
    for text in self.body:
      for e in self.envs: exec(text, e)

  def define(self, text: str | None, exact: bool, fresh: bool = False) -> None:
    if text is None: return
    name = f"t{self.count}"
    if not self.add(f"{name} = {text}"): return
    self.count += 1
    self.scope.append(name)
    if exact: self.exact.add(name)
    if fresh: self.fresh.add(name)

  def pick(self) -> str: return self.rng.choice(self.scope[-3:] if self.rng.random() < 0.6 else self.scope)

  def place(self, most: str) -> str:
    """An int from 0 to about a size."""
    return self.rng.choice(
      ["1", "2", "k", "k", "k + 1", f"{most} // 2", f"{most} - 1", f"{most} - 2", "-1", "-2", "n // 3", "n % 4"])

  def piece(self, name: str, d: int) -> str:
    r, size = self.rng, self.dim(name, d)
    how = r.randrange(9)
    if how == 0: return "::-1"
    if how == 1: return r.choice(["::2", "1::2", "::3"])
    if how == 2: return f"{self.place(size)}"
    if how == 3: return f"k:k + {r.choice(['1', '2', '3'])}"
    if how == 4: return f":{self.place(size)}"
    if how == 5: return f"{self.place(size)}:"
    if how == 6: return f"{r.choice(['1', '2', 'k'])}:{self.place(size)}"
    return ":"

  def index(self, name: str) -> str:
    n = len(self.shape(name))
    pieces = [self.piece(name, d) for d in range(self.rng.randint(1, n))] if n else ["..."]
    return ", ".join(pieces)

  # ---- statements
  def step(self) -> None:
    table: list[tuple[float, Callable[[str], None]]] = [
      (3, self.view), (3, self.elementwise), (2.5, self.reduction), (1.5, self.product), (1.2, self.made), (1.2, self.rows),
      (1.2, self.windows), (1, self.whole), (3 if self.fresh else 0.5, self.write), (1, self.own), (0.3, self.realize)]
    self.rng.choices([f for _, f in table], [w for w, _ in table])[0](self.pick())

  def view(self, x: str) -> None:
    r, shape = self.rng, self.shape(x)
    n = len(shape)
    if not n: return
    d = r.randrange(n)
    how = r.choice(["index", "index", "index", "permute", "flip", "reshape", "reshape", "expand", "pad", "pad", "shrink",
                    "halves", "cat", "cat", "stack", "repeat", "split", "diagonal", "roll"])
    keeps = how in ("index", "permute", "flip", "reshape", "shrink", "halves", "split")
    text = None
    if how == "index": text = f"{x}[{self.index(x)}]"
    elif how == "permute": text = f"{x}.permute{tuple(r.sample(range(n), n))}"
    elif how == "flip": text = f"{x}.flip({d})"
    elif how == "reshape":
      dims = [self.dim(x, i) for i in range(n)]
      new = r.choice([f"-1, {dims[-1]}", f"{dims[0]}, -1", " * ".join(dims), ", ".join(dims[:d] + ["1"] + dims[d:]), "-1, 2",
                      f"{dims[0]}, 2, -1", "-1"])
      text = f"{x}.reshape({new})"
    elif how == "expand":
      text = f"{x}.unsqueeze({d}).expand({', '.join(['-1'] * d + [r.choice(['n', 'm', '3', 'k + 1'])] + ['-1'] * (n - d))})"
    elif how == "pad":
      pairs = [r.choice(["(0, 0)", "(1, 2)", "(0, 1)", "(k, 0)", f"(0, {self.dim(x, i)})", "(0, 16 - n % 16)"]) for i in range(n)]
      text = f"{x}.pad(({', '.join(pairs)},))"
    elif how == "shrink":
      boxes = [r.choice(["None", "None", f"(1, {self.dim(x, i)})", f"(k, {self.dim(x, i)})", f"(0, {self.dim(x, i)} // 2 + 1)",
                         "(k, k + 1)"]) for i in range(n)]
      text = f"{x}.shrink(({', '.join(boxes)},))"
    elif how == "halves":
      size = self.dim(x, d)
      text = f"{x}.unflatten({d}, ({size} // 2, 2))" if r.random() < 0.5 else \
             f"{x}[{':, ' * d}:{size} // 4 * 4].unflatten({d}, (-1, 4))"
    elif how in ("cat", "stack"):
      other = r.choice([y for y in self.scope if len(self.shape(y)) == n])
      text = f"{x}.{how}({other}, dim={d})" if r.random() < 0.8 else f"Tensor.{how}({x}, {x}, {other}, dim={d})"
    elif how == "repeat": text = f"{x}.repeat({', '.join([r.choice(['1', '2', '1']) for _ in range(n)])})"
    elif how == "split":
      text = f"{x}.{r.choice(['split', 'chunk'])}({r.choice(['2', '3', 'k + 1'])}, {d})[{r.choice(['0', '-1'])}]"
    elif how == "diagonal": text = f"{x}.diagonal()"
    elif how == "roll": text = f"{x}.roll({r.choice(['1', '-1', 'k'])}, {d})"
    self.define(text, x in self.exact, keeps and x in self.fresh)

  def elementwise(self, x: str) -> None:
    r = self.rng
    if r.random() < 0.5:
      text = r.choice([
        f"{x} * 0.5", f"{x} + 1", f"-{x}", f"{x}.relu()", f"{x}.abs()", f"{x}.clamp(-2, 2)", f"{x} * k", f"{x} + n", f"{x} - m",
        f"({x} > 0).where({x}, {r.choice(['0', 'n', '-1.5', 'k'])})" if x in self.exact else f"{x}.relu()", f"{x}.tanh()",
        f"{x}.sigmoid()", f"{x}.clamp(-3, 3).exp()", f"{x} / n", f"{x} * (1 / m)", f"{x} / (n * m)", f"{x}.gelu()",
        f"{x}.float()", f"{x}.cast('int32')" if x in self.exact else f"{x} * 2"])
      # numbers with sizes round otherwise
      return self.define(text, x in self.exact and not re.search(r"tanh|sigmoid|exp|/|gelu|\* k|[+-] [nm]", text), True)
    y = self.pick()
    fn = r.choice(["+", "+", "*", "-", "maximum"])
    text = f"{x} {fn} {y}" if fn != "maximum" else f"{x}.maximum({y})"
    self.define(text, x in self.exact and y in self.exact and fn != "*", True)

  def reduction(self, x: str) -> None:
    n = len(self.shape(x))
    if not n: return
    r, d, keep = self.rng, self.rng.randrange(n), self.rng.choice(["", ", keepdim=True"])
    exact = ["sum", "max", "min"] + ["argmax", "argmin"] * (x in self.exact and not self.grad)
    inexact = ["mean", "softmax", "logsumexp", "cumsum", "var", "std", "log_softmax", "layernorm"]
    how = r.choice(exact * 2 + inexact + ["wrapped"] * (x in self.exact and not self.grad))
    if how == "wrapped":   # running sums of ints that overflow, read on as wider ones
      sums = f"({x}.cast('int32') * {1 << 30}).cumsum({d}, dtype='int32')"
      return self.define(f"({sums}.cast('int64') // {1 << 29}).float()", True, True)
    if how == "layernorm": return self.define(f"{x}.layernorm()", False, True)
    if how in ("softmax", "log_softmax", "cumsum"):
      return self.define(f"{x}.{how}({d})", how == "cumsum" and x in self.exact, True)
    if how == "logsumexp": return self.define(f"{x}.logsumexp({d}{keep})", False, True)
    what = r.choice([f"{d}{keep}", f"{d}{keep}", "" if how not in ("argmax", "argmin") else f"{d}", f"{tuple(range(n))}"])
    if how in ("max", "min") and what: what = f"axis={what}"
    self.define(f"{x}.{how}({what})", how in exact and x in self.exact, True)

  def product(self, x: str) -> None:
    r, found = self.rng, []
    if not (shape := self.shape(x)): return
    for y in self.scope:
      s = self.shape(y)
      if not s: continue
      if len(s) >= 2 and s[-2] == shape[-1]: found.append(f"{x} @ {y}")
      if len(s) >= 2 and s[-1] == shape[-1]: found.append(f"{x} @ {y}.transpose(-1, -2)")
      if len(s) == 1 and s[0] == shape[-1]: found.append(f"{x} @ {y}")
    if len(shape) == 3: found += [f"{x}.scaled_dot_product_attention({x}, {x})"]
    if len(shape) == 2:
      found += [f"{x}.transpose(0, 1) @ {x}", f"{x} @ Tensor.ones({self.dim(x, 1)}, {r.choice(['4', 'm', 'n'])})"]
    if found: self.define(r.choice(found), False, True)

  def made(self, x: str) -> None:
    """Numbers made of sizes: aranges, masks, constants."""
    shape, r = self.shape(x), self.rng
    if not shape: return
    last, first = self.dim(x, len(shape) - 1), self.dim(x, 0)
    places = f"Tensor.arange({last})"
    mask = r.choice([f"{places} < {self.place(last)}", f"{places} >= k", f"{places} % 2 == 0", f"{places} == {last} - 1"])
    column = ", ".join([first, *["1"] * (len(shape) - 1)])
    text = r.choice([
      f"({mask}).where({x}, {r.choice(['0', 'k', '-1'])})", f"{x} + {places}", f"{x}.masked_fill({mask}, 0)",
      f"{x} * Tensor.full(({column},), k)", f"{x}.tril()", f"{x}.triu({r.choice(['1', '-1', 'k'])})",
      f"{places}.one_hot({last}).float() + {x}.sum()", f"{x} + Tensor.linspace(0, 4, 5).sum()", f"Tensor.arange(k, k + {first})",
      f"Tensor.zeros({first}, {last})", f"Tensor.eye({last})", f"Tensor.arange(0, {first}, 2)",
      f"Tensor.full(({first}, 3), n * 0.5)",
      f"{x}.cat(Tensor.ones({', '.join([self.dim(x, i) for i in range(len(shape))])}))"])
    self.define(text, x in self.exact, True)

  def rows(self, x: str) -> None:
    shape, r = self.shape(x), self.rng
    if not shape: return
    size = self.dim(x, 0)
    last = len(shape) - 1
    text = r.choice([f"{x}[Tensor.arange({size}) // 2]", f"{x}[[0, -1, 0]]", f"{x}[({size} - 1 - Tensor.arange({size}))]",
                     f"{x}[(Tensor.arange(n) * 3) % {size}]", f"{x}[Tensor([k])]" if size == "n" else f"{x}[Tensor([0, 0])]",
                     f"{x}.gather({last}, Tensor.arange({self.dim(x, last)}).reshape({', '.join(['1'] * last + ['-1'])})"
                     f".expand({', '.join([self.dim(x, i) for i in range(len(shape))])}))", f"{x}.repeat_interleave(2, 0)"])
    self.define(text, x in self.exact, True)

  def windows(self, x: str) -> None:
    shape, r = self.shape(x), self.rng
    if not shape: return
    d = r.randrange(len(shape))
    texts = [f"{x}.unfold({d}, {r.choice(['2', '3'])}, {r.choice(['1', '2'])})"]
    if len(shape) == 2:
      pad, stride = r.choice([0, 1]), r.choice([1, 2])
      texts += [f"{x}.reshape(1, 1, *{x}.shape).conv2d(Tensor.ones(2, 1, 3, 3), stride={stride}, padding={pad})[0]",
                f"{x}.reshape(1, 1, *{x}.shape).max_pool2d(2)[0, 0]",
                f"{x}.reshape(1, 1, *{x}.shape).avg_pool2d(2, {stride})[0, 0]"]
    if len(shape) == 3:
      texts.append(f"{x}.unsqueeze(0).conv2d(Tensor.ones(2, {self.dim(x, 0)}, 3, 3), padding={r.choice([0, 1])})[0]")
    text = r.choice(texts)
    self.define(text, x in self.exact and "avg" not in text, True)

  def whole(self, x: str) -> None:
    """Several operations that people write together."""
    if not self.shape(x): return
    self.define(self.rng.choice([
      f"({x} - {x}.mean(-1, keepdim=True)) / ({x}.var(-1, keepdim=True) + 1).sqrt()", f"{x} * {x}.sum(0)", f"{x}.rms_norm()",
      f"{x} / ({x}.abs().sum(-1, keepdim=True) + 1)", f"({x} * {x}).sum(-1, keepdim=True).sqrt() + {x}", f"{x} - {x}.max()",
      f"{x}.softmax(-1) @ {x}.transpose(-1, -2)" if len(self.shape(x)) > 1 else f"{x}.softmax(0) * {x}"]), False, True)

  def own(self, x: str) -> None: self.define(f"{x}.{self.rng.choice(['contiguous', 'clone'])}()", x in self.exact, True)
  def realize(self, x: str) -> None:
    if not self.grad: self.add(f"{x}.realize()")

  def write(self, x: str) -> None:
    r = self.rng
    names = [n for n in self.scope if n in self.fresh]
    if not names: return self.own(x)
    x = r.choice(names[-3:])
    if not self.shape(x): return
    target = f"{x}[{self.index(x)}]"
    y = r.choice([v for v in self.scope if v != "s"])
    how = r.choice(["=", "=", "+=", "*=" if x != "s" else "=", "-="])
    value = r.choice(["1", "0", "2", y, f"{y}.sum()", f"{y}[{self.index(y)}]" if self.shape(y) else y, f"{target} * 2",
                      f"{target}.flip(0)", "Tensor.ones(1)", "k"])
    kept = list(self.scope)
    if r.random() < 0.15: self.add(f"{x}.assign({x} * 2)")
    elif r.random() < 0.15: self.add(f"{x}[Tensor([0, 1])] = {value}")
    elif self.add(f"{target} {how} {value}") and (value.split("[")[0].split(".")[0] not in self.exact and "t" in value):
      self.exact -= set(kept)   # views of it may be among them

  def program(self) -> SizedCalls:
    for _ in range(self.rng.choice([2, 3, 4, 5, 7, 9])): self.step()
    made = [n for n in self.scope if re.match(r"t\d", n)] or ["x0 + 1"]
    results = [made[-1], *self.rng.sample(made[:-1], min(len(made) - 1, self.rng.choice([0, 1, 2])))]
    return SizedCalls(self.inputs, tuple(self.body), tuple(results), self.calls, self.mode)


def generate(seed: int, mode: str | None = None) -> SizedCalls: return Generator(seed, mode).program()
