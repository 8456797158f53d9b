"""Random programs of in-place writes, as lines of Python: a program is a function of its kind and seed (and of what methods
Tensor has)."""
from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass
from typing import Any, Callable

import numpy as np

from ntgrad import Tensor, errors

from . import fuzz_model as model

KINDS = ("eager", "gradient", "capture")
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Line:
  """A statement of one line."""
  text: str


@dataclass(frozen=True)
class Function:
  """A captured function: its lines, and the names that it returns."""
  name: str
  params: tuple[str, ...]
  body: tuple[str, ...]
  results: tuple[str, ...]

  @property
  def text(self) -> str:
    params = ", ".join(self.params)
    own = {s.split(" = ")[0] for s in self.body} | set(self.params)
    changed = sorted({m[1] for s in self.body if (m := re.match(r"(\w+) [-+*/]= ", s))} - own)
    lines = [f"global {', '.join(changed)}"] if changed else []
    result = self.results[0] if len(self.results) == 1 else f"({', '.join(self.results)})"
    return "\n  ".join([f"@jit\ndef {self.name}({params}):", *lines, *self.body, f"return {result}"])


Program = tuple[Line | Function, ...]


class NotRaised(Exception):
  """What should have been refused was done."""


REFUSALS = (errors.AssignError, errors.DTypeError, errors.GradientError, errors.ShapeError)


class raises:
  """``with raises(Error): ..``, as in pytest."""
  def __init__(self, kind: Any): self.kind = kind
  def __enter__(self) -> None: pass
  def __exit__(self, kind: Any, *_: Any) -> bool:
    if kind is None: raise NotRaised(f"no {self.kind.__name__}")
    return issubclass(kind, REFUSALS)   # where a write is wrong in two ways, either may be said


def namespace(check: Callable[..., Any] = lambda got: None) -> dict[str, Any]:
  """What programs run in, with the model."""
  return {"np": np, "Tensor": model.Tensor, "jit": model.jit, "no_grad": model.no_grad, "grad": model.grad, "raises": raises,
          "check": check, **{n: getattr(errors, n) for n in errors.__all__}}


class Generator:
  """Grows a program line by line; each is run by the model at once, and left out where the model takes no side."""

  def __init__(self, kind: str, seed: int):
    self.kind, self.rng = kind, random.Random(f"{kind} {seed}")
    self.exact = kind != "gradient"
    self.sizes = self.rng.choice([(1, 2, 3), (2, 3, 5), (0, 1, 2, 3, 5, 7)])
    self.ndims = self.rng.choice([(1,), (1, 2), (1, 2, 2, 3), (0, 1, 2, 3, 4)])
    self.dtypes = self.rng.choice([("float32",), ("float32", "int32"), ("int32",), model.DTYPES]) if self.exact else ("float64",)
    self.lines: list[Line | Function] = []
    self.env, self.count, self.scope = namespace(), 0, list[str]()
    self.session = model.begin(model.Session(self.exact))
    self.expressions: list[str] = []
    self.prefix = "x"

  # ---- growing
  def name(self) -> str:
    self.count += 1
    return f"{self.prefix}{self.count - 1}"

  def chance(self, p: float) -> bool: return self.rng.random() < p

  def ask(self, text: str) -> Any:
    """An expression's value in the model, None where it has none."""
    try: return eval(text, self.env)
    except Exception: return None

  def add(self, text: str, refused: bool = True) -> bool:
    """One more line, if the model has it; with the error that it raises, if that is one of ntgrad's (and may be)."""
    try: exec(text, self.env)
    except errors.NtgradError as e:
      if not refused or self.prefix != "x" or text.startswith("with ") or self.chance(0.5): return False
      text = f"with raises({type(e).__name__}): {text}"
    except Exception: return False
    self.lines.append(Line(text))
    return True

  def restart(self) -> None:
    """Run the lines so far once more, after something was tried."""
    self.env, self.session = namespace(), model.begin(model.Session(self.exact))
    for s in self.lines: exec(s.text, self.env)

  def define(self, text: str | None) -> str | None:
    """A new name for a tensor."""
    if text is None or not isinstance(self.ask(text), model.Tensor): return None
    name = self.name()
    if not self.add(f"{name} = {text}", refused=False): return None
    self.expressions.append(text)
    self.scope.append(name)
    return name

  # ---- picking
  def pick(self) -> str: return self.rng.choice(self.scope[-4:] if self.chance(0.5) else self.scope)
  def shape(self) -> Shape:
    while math.prod(shape := tuple(self.rng.choice(self.sizes) for _ in range(self.rng.choice(self.ndims)))) > 60: pass
    return shape
  def axis(self, t: Any) -> int: return self.rng.randrange(t.ndim)

  def array(self, shape: Shape, dtype: str) -> str:
    """Values of the host: different ones, so that one in the wrong place is seen."""
    n, first = math.prod(shape), self.rng.choice([0, 1, 10]) if dtype == "uint8" else self.rng.choice([0, 1, -2, 10])
    turned = f".reshape({', '.join(map(str, shape))})" if len(shape) > 1 else ""
    if not self.exact and not shape: return f"np.array({self.rng.choice([-0.5, 0.25, 1.5])})"
    if not self.exact: return f"np.linspace({self.rng.choice([-1, 0.2])}, {self.rng.choice([1, 0.7])}, {n}){turned}"
    if not shape: return f"np.array({first % 2 if dtype == 'bool' else first}, dtype=np.{dtype})".replace("np.bool)", "np.bool_)")
    if dtype[0] == "i" and self.chance(0.15):   # sums and products of these wrap
      return f"(np.arange({n}) + {(np.iinfo(dtype).max >> self.rng.choice([0, 1])) - n}).astype(np.{dtype}){turned}"
    if dtype == "bool": return f"(np.arange({n}) % {self.rng.choice([2, 3])} == 0){turned}"
    return f"np.arange({first}, {first + n}, dtype=np.{dtype}){turned}"

  def host(self, shape: Shape, dtype: str) -> str: return f"Tensor({self.array(shape, dtype)})"

  def filled(self, shape: Shape, dtype: str) -> str:
    """A constant, which has no memory before it is written."""
    return f"Tensor.{self.rng.choice(['zeros', 'ones'])}({', '.join(map(str, shape))}, dtype='{dtype}')"

  def index(self, t: Any) -> str:
    """A basic index, seldom with one array of ints."""
    items = []
    for n in t.shape[:self.rng.randint(0 if t.ndim > 1 else 1, t.ndim)]:
      k = self.rng.randrange(6)
      if n and k < 2: items.append(str(self.rng.randrange(-n, n)))
      elif k == 2: items.append(self.rng.choice(["::-1", "::2", "1::2", "::-2", "-2::-1"]))
      elif k == 3: items.append(":")
      else: items.append(self.rng.choice(["1:", ":-1", ":2", "1:3", "-2:", ":"]))
    if items and self.exact and self.chance(0.2):
      k = self.rng.randrange(len(items))
      if n := t.shape[k]:
        rows = [self.rng.randrange(-n, n) for _ in range(self.rng.randint(1, 4))]
        items = [":"] * k + [self.rng.choice([f"{rows}", f"np.array({rows})", f"Tensor({rows})"])]
    elif self.chance(0.1): items.insert(self.rng.randint(0, len(items)), "None")
    elif self.chance(0.1): items.append("...") if self.chance(0.5) else items.insert(0, "...")
    return ", ".join(items) or "..."

  # ---- expressions
  def view(self, text: str) -> str | None:
    """A view of what an expression means."""
    t = self.ask(text)
    if t is None: return None
    n, s, r = t.ndim, t.shape, self.rng
    kinds = ["index", "index", "reshape", "unsqueeze", "squeeze", "T", "detach", "flatten", "expand"]
    if n:
      kinds += [
        "index",
        "flip",
        "shrink",
        "split",
        "chunk",
        "permute",
        "unflatten",
        *(["unbind"] if hasattr(Tensor, "unbind") else []),
      ]
    if n > 1: kinds += ["transpose", "T", *(["diagonal"] * 2 if n == 2 and s[0] == s[1] else [])]
    kind = r.choice(kinds)
    if kind == "index": return f"{text}[{self.index(t)}]" if n else f"{text}[None]"
    if kind == "T": return f"{text}.T"
    if kind == "detach" and not self.exact and self.chance(0.5): return None
    if kind in ("detach", "flatten", "diagonal"): return f"{text}.{kind}()"
    if kind in ("reshape", "unflatten"):
      sizes = s if kind == "reshape" else s[(d := self.axis(t)):][:1]
      new = factors(math.prod(sizes), r) if 0 not in sizes else list(r.sample(sizes, len(sizes)))
      if self.chance(0.2): new.insert(r.randint(0, len(new)), 1)
      return (
        f"{text}.{r.choice(['reshape', 'view'])}{tuple(new)}" if kind == "reshape" else f"{text}.unflatten({d}, {tuple(new)})"
      )
    if kind == "unsqueeze": return f"{text}.unsqueeze({r.randint(0, n)})"
    if kind == "squeeze": return f"{text}.squeeze({self.axis(t) if n and self.chance(0.5) else ''})"
    if kind == "expand":
      new = [r.choice([2, 3]) if d == 1 else d for d in s]
      if new == list(s) or self.chance(0.2): new.insert(0, r.choice([1, 2, 3]))
      return f"{text}.{r.choice(['expand', 'broadcast_to'])}{tuple(new)}" if self.chance(0.4) else None
    if kind == "flip": return f"{text}.flip({self.axis(t)})"
    if kind == "shrink":
      box = tuple((b := r.randint(0, k), r.randint(b, k)) for k in s)
      return f"{text}.shrink({box})"
    if kind in ("split", "chunk"):
      d, k = self.axis(t), r.choice([1, 2, 3])
      pieces = self.ask(f"{text}.{kind}({k}, {d})") or [0]
      return f"{text}.{kind}({k}, {d})[{r.randrange(len(pieces))}]"
    if kind == "unbind": return f"{text}.unbind({d})[{r.randrange(s[d])}]" if s[d := self.axis(t)] else None
    order = r.sample(range(n), n)
    return f"{text}.permute{tuple(order)}" if kind == "permute" else f"{text}.transpose{tuple(order[:2])}"

  def views(self, text: str, most: int) -> str:
    """Up to so many views upon another."""
    for _ in range(self.rng.randint(0, most)):
      if self.ask(new := self.view(text) or "None") is not None: text = new
    return text

  def own(self, text: str) -> str | None:
    """An expression for a tensor of its own made from another."""
    t, r = self.ask(text), self.rng
    if t is None: return None
    if self.chance(0.3): return self.numbers(text, t)
    if self.chance(0.45): return self.arithmetic(text)
    if self.chance(0.35): return f"{text}.{r.choice(['contiguous', 'clone'])}()"
    kinds = ["to", "cast", "Tensor", "repeat", "sum", "where", "stack"]
    if t.ndim: kinds += ["pad", "unfold", "cat", "interleave", "diag", "meshgrid", "roll", "max"]
    if not self.exact:
      kinds = [k for k in kinds if k not in ("cast", "max", "where", "to")] + ["rows"] * (t.ndim > 0 and t.shape[0] > 0)
    kind, d = r.choice(kinds), self.axis(t) if t.ndim else 0
    if kind == "to": return f"{text}.to(None)"
    if kind == "cast": return f"{text}.cast('{r.choice([str(t.dtype), *self.dtypes])}')"
    if kind == "Tensor": return f"Tensor({text})"
    if kind == "repeat": return f"{text}.repeat{tuple(r.choice([1, 1, 2]) for _ in range(max(t.ndim, 1)))}"
    if kind in ("sum", "max"):
      axis, keep = f"axis={d}" if t.ndim else "", ", keepdim=True" if t.ndim and self.chance(0.5) else ""
      return f"{text}.{kind}({axis}{keep})"
    if kind == "where": return f"({text} > {r.choice([0, 1, 2])}).where({text}, {r.choice([0, self.other(t) or 1])})"
    if kind in ("stack", "cat"):
      return f"{text}.{kind}({self.other(t) or text}, dim={d})" if self.chance(0.8) else f"{text}.{kind}(dim={d})"
    if kind == "pad": return f"{text}.pad({tuple((r.choice([0, 0, 1]), r.choice([0, 0, 2])) for _ in t.shape)})"
    if kind == "unfold": return f"{text}.unfold({d}, {r.choice([1, 2])}, {r.choice([1, 2])})"
    if kind == "interleave": return f"{text}.repeat_interleave({r.choice([1, 2])}, {d})"
    if kind == "diag": return f"{text}.diag()" if t.ndim == 1 else None
    if kind == "rows": return f"{text}[{[r.randrange(t.shape[0]) for _ in range(r.choice([1, 2, 3]))]}]"
    if kind == "meshgrid": return f"{text}.meshgrid(Tensor([1, 2]))[0]" if t.ndim == 1 else None
    return f"{text}.roll({r.choice([0, 1, -1])}, {d})"

  def numbers(self, text: str, t: Any) -> str:
    """Results of no dimension, running sums, what folds, ints that wrap: it is their values that go wrong."""
    r, d = self.rng, self.axis(t) if t.ndim else 0
    kind = r.choice(["total", *(["scan"] * 2 if t.ndim else []), *(["fold", "ints", "ints"] if self.exact else [])])
    if kind == "scan": return self.scanned(text, t, d)
    if kind == "fold": return self.folded(text, t)
    if kind == "total": return f"{text}.{'sum' if not self.exact else r.choice(['sum', 'max', 'any', 'all', 'prod'])}()"
    how = r.choice(["//", "%", "<<", ">>", "abs"])
    if how == "abs": return f"{text}.abs(){self.read_on()}"
    other = (self.other(t) or text) if self.chance(0.5) else r.choice(["1", "3", "31", "40"])
    return f"({text} {how} {other}){self.read_on()}"

  def read_on(self) -> str:
    """What makes more of ints than their low bits: a compiler that takes overflow for impossible gives the exact result there."""
    return self.rng.choice(["", "", ".cast('int64')", ".cast('float64')", ".abs()", " // 2", " > 0"])

  def scanned(self, text: str, t: Any, d: int) -> str:
    """Running sums and products, mostly read on."""
    how = self.rng.choice(["cumsum", "cumsum", "cumprod"]) if self.exact else "cumsum"
    dtype = str(t.dtype) if t.dtype.kind == "f" else self.rng.choice(["int32", "int64"])
    return f"{text}.{how}({d}, dtype='{dtype}'){self.read_on() if t.dtype.kind != 'f' else ''}"

  def folded(self, text: str, t: Any) -> str:
    """What is a number, or another tensor, once a schedule has looked at it."""
    none = f"{text}.flatten()[0:0]"
    one = self.rng.choice([f"{none}.sum()", f"{none}.prod()", f"{none}.any()", f"{none}.all()", f"{text} ** 0"])
    if self.chance(0.5): return one
    yes, no = self.rng.sample([text, self.other(t) or f"{text} * 2"], 2)
    return f"{none}.{self.rng.choice(['any', 'all'])}().where({yes}, {no})"

  def arithmetic(self, text: str) -> str:
    t, r = self.ask(text), self.rng
    if not self.exact and self.chance(0.35): return f"{text}.{r.choice(['sin', 'tanh', 'sigmoid'])}()"
    other = (self.other(t) or text) if self.chance(0.5) else r.choice(["2", "1", "3"])
    return f"{text} {r.choice('++-**')} {other}"

  def other(self, t: Any) -> str | None:
    """Another tensor of the same shape and dtype."""
    found = [n for n in self.scope if (u := self.env[n]).shape == t.shape and u.dtype == t.dtype]
    return self.rng.choice(found) if found else None

  def value(self, shape: Shape, dtype: Any, near: str) -> str:
    """What may be written into a part: a number, host values, another tensor, another part of the same memory."""
    r, k = self.rng, self.rng.random()
    if k < 0.25: return str(r.choice([0, 1, 5, 7, 9])) if dtype.kind != "b" else r.choice(["True", "False"])
    if k < 0.35 and len(shape): return self.array(shape[r.choice([0, 0, 1]):], str(dtype))
    if k < 0.4: return self.pick()   # most do not fit
    t = self.ask(near)
    found = [n for n in self.scope if self.env[n].dtype == dtype and model.broadcasts(self.env[n].shape, shape)]
    if k < 0.7 and found: return self.views_keeping(r.choice(found))
    n = math.prod(shape)
    if n and t is not None and t.index.size > n:
      at = r.randint(0, t.index.size - n)
      return f"{near}.flatten()[{at}:{at + n}].reshape{tuple(shape)}"
    if found: return f"{r.choice(found)} * 2" if dtype.kind != "b" else r.choice(found)
    return self.host(shape, str(dtype)) if self.exact else "0.5"

  def views_keeping(self, text: str) -> str:
    """Seldom turned round, which keeps the shape."""
    n = self.env[text].ndim
    return f"{text}.flip({self.rng.randrange(n)})" if n and self.chance(0.3) else text

  # ---- statements
  def write(self) -> None:
    """One of the ways of writing."""
    name, r = self.pick(), self.rng
    if not self.exact and not self.chance(0.1):
      name = r.choice([n for n in self.scope if not self.env[n].is_leaf][-4:] or [name])
    k = r.random()
    if k < 0.45:
      target = self.views(name, 2)
      t = self.ask(target)
      index = self.index(t) if t.ndim else "..."
      at = self.ask(f"{target}[{index}]")
      if at is None: return
      how = r.choice(["=", "=", "=", "+=", "*="]) if at.dtype.kind != "b" else "="
      self.add(f"{target}[{index}] {how} {self.value(at.shape, at.dtype, name)}")
      return
    target = name if k < 0.7 else self.views(name, 2)
    t = self.ask(target)
    if self.kind == "eager" and self.chance(0.15):   # what shared its memory keeps its values
      t = self.ask(name)
      self.add(f"{name}.data = {self.value(t.shape, t.dtype, name) if self.chance(0.7) else self.pick()}")
      return
    if k < 0.6 and hasattr(Tensor, "__iadd__"):
      number = "1.5" if self.chance(0.05) else None
      self.add(
        f"{name} {r.choice(['+=', '-=', '*=', '/='])} {number or self.value(self.ask(name).shape, self.ask(name).dtype, name)}"
      )
      return
    methods = [m for m in ("add_", "mul_", "zero_", "fill_", "copy_") if hasattr(Tensor, m)] if k > 0.75 else []
    how = r.choice(methods or ["assign"])
    value = "" if how == "zero_" else r.choice("1259") if how == "fill_" else self.value(t.shape, t.dtype, name)
    self.add(f"{target}.{how}({value})")

  def look(self, p: float = 1.0) -> None:
    """A value compared now."""
    if self.scope and self.chance(p): self.add(f"check({self.pick()}.{self.rng.choice(['numpy', 'numpy', 'tolist'])}())")

  def realize(self) -> None:
    self.add(f"{self.pick()}.realize({self.pick() if self.chance(0.3) else ''})")

  def forget(self) -> None:
    if len(self.scope) > 2 and self.add(f"del {(name := self.pick())}"): self.scope.remove(name)

  def from_host(self) -> None:
    """A tensor of host values; they may change afterwards."""
    shape, dtype = self.shape(), self.rng.choice(self.dtypes)
    if self.exact and self.prefix == "x" and shape and self.chance(0.1):
      name = self.name()
      if self.add(f"h{name} = {self.array(shape, dtype)}") and self.add(f"{name} = Tensor(h{name})"): self.scope.append(name)
      self.add(f"h{name}[...] = 0")
    elif shape and self.chance(0.12): self.define(self.filled(shape, dtype))
    else: self.define(self.host(shape, dtype))

  def copy_out(self) -> None:
    """Values taken to the host stay as they were, and are the host's own."""
    name = f"h{self.name()}"
    self.add(f"{name} = {(x := self.pick())}.numpy()")
    if self.chance(0.5): self.add(f"{name}[...] = 0")
    else: self.kept.append(name)
    self.add(f"check({x}.numpy())")

  def step(self, outer: bool = True) -> None:
    """One statement or so."""
    table: list[tuple[float, Callable[[], Any]]] = [
      (5, self.write), (3, lambda: self.define(self.view(self.pick()))), (1, lambda: self.define(self.views(self.pick(), 3))),
      (2.5, lambda: self.define(self.own(self.views(self.pick(), 1)))), (0.7, self.realize), (0.3, self.from_host)]
    if self.expressions: table.append((0.7, lambda: self.define(self.rng.choice(self.expressions))))
    if outer: table += [(0.6, self.look), (0.3, self.forget), (0.2, self.copy_out)]
    if not self.exact: table.append((0.5, self.leaf))
    self.rng.choices([f for _, f in table], [w for w, _ in table])[0]()

  # ---- programs
  def program(self) -> Program:
    self.kept: list[str] = []
    getattr(self, self.kind)()
    for name in self.scope + self.kept: self.lines.append(Line(f"check({name}{'' if name in self.kept else '.numpy()'})"))
    return tuple(self.lines)

  def eager(self) -> None:
    for _ in range(self.rng.choice([1, 1, 2, 3])): self.from_host()
    if not self.scope: self.define(self.host((3,), "float32"))
    for _ in range(self.rng.randint(3, 14)): self.step()

  def leaf(self) -> None:
    """A leaf's new value."""
    leaves = [n for n in self.scope if self.env[n].is_leaf]
    if not leaves: return
    name, r = self.rng.choice(leaves), self.rng
    t = self.ask(name)
    how = r.choice(
      [
        f"with no_grad(): {name}.assign({name} * 2)",
        f"with no_grad(): {name}.assign({self.value(t.shape, t.dtype, name)})",
        f"{name}.assign({self.host(t.shape, 'float64')})",
        f"with no_grad(): {name} -= {name} * 0.5",
      ]
    )
    if "-=" not in how or hasattr(Tensor, "__isub__"): self.add(how)

  def gradient(self) -> None:
    r = self.rng
    leaves = [self.name() for _ in range(r.choice([1, 1, 2]))]
    for name in leaves:
      shape = self.rng.choice([(2,), (3,), (2, 2), (2, 3), (1,), ()])
      self.add(f"{name} = {self.host(shape, 'float64')[:-1]}, requires_grad=True)")
      self.scope.append(name)
    self.define(f"{leaves[0]} * 2")
    if self.chance(0.5): self.define(self.own(self.rng.choice(leaves)))
    for _ in range(self.rng.randint(2, 9)): self.step(outer=False)
    terms = [f"({leaves[0]} * {leaves[0]}).sum()"] if self.chance(0.5) else []
    for _ in range(self.rng.choice([1, 2, 3])):
      x = (
        r.choice([n for n in self.scope if not self.env[n].is_leaf and self.env[n].needs] or leaves)
        if self.chance(0.8)
        else self.pick()
      )
      terms.append(f"({x}{self.rng.choice([f' * {x}', '.sin()', ''])}).sum()")
    names = []
    for t in terms:
      if self.ask(t) is not None and self.add(f"{(name := self.name())} = {t}"): names.append(name)
    if not self.add(f"loss = {' + '.join(names) or 'None'}") or not self.add("loss.backward()"): return
    for name in leaves: self.lines.append(Line(f"check(grad({name}))"))

  def capture(self) -> None:
    for _ in range(self.rng.choice([1, 1, 2])): self.from_host()
    if not self.scope: self.define(self.host((3,), "float32"))
    for _ in range(self.rng.choice([0, 0, 1, 2, 3])): self.step()
    for f in ("f", "g")[:self.rng.choice([1, 1, 1, 2])]: self.function(f)

  def function(self, name: str) -> None:
    """A captured function and calls of it."""
    r, outer, kept = self.rng, list(self.scope), len(self.lines)
    params = ("a", "b", "c")[:r.choice([0, 1, 1, 2, 2, 3])]
    like = [(t.shape, str(t.dtype)) for n in outer if (t := self.env[n]).index.size]
    kinds = [r.choice(like) if like and self.chance(0.4) else (self.shape(), r.choice(self.dtypes)) for _ in params]
    if kinds and self.chance(0.5): kinds = [kinds[0]] * len(params)   # so that they can overlap
    count, expressions = self.count, self.expressions
    for p, (shape, dtype) in zip(params, kinds): exec(f"{p} = {self.host(shape, dtype)}", self.env)
    # inside: temporaries, and what is written counts for each call
    self.prefix, self.count, self.expressions = "t", 0, []
    state = r.sample(outer, min(len(outer), r.choice([0, 1, 2, 3]) if params else 3))
    self.scope = [*params, *state, *params]
    for _ in range(r.randint(1, 5)):
      if self.scope: self.step(outer=False)
    body = tuple(s.text for s in self.lines[kept:])
    scope = list(dict.fromkeys(self.scope))
    results = tuple(r.sample(scope, min(len(scope), r.choice([0, 1, 1, 2, 3]))))
    del self.lines[kept:]
    self.prefix, self.count, self.expressions, self.scope = "x", count, expressions, outer
    self.lines.append(Function(name, params, body, results))
    self.restart()
    recipe, varied = self.recipe(len(params)), self.chance(0.4)
    others = [kinds]   # other shapes, which are captured each for itself
    if kinds and self.chance(0.3):
      others.append([(tuple(r.choice([n, n, n + 1]) for n in shape), dtype) for shape, dtype in kinds])
    for _ in range(r.randint(4, 6) * len(others)):
      self.call(name, r.choice(others), len(results), self.recipe(len(params)) if varied and self.chance(0.4) else recipe)
      for _ in range(r.choice([0, 0, 1])): self.step()
      if self.chance(0.6):
        for n in r.sample(self.scope, min(len(self.scope), 8)): self.add(f"check({n}.numpy())")

  def recipe(self, n: int) -> list[str]:
    """What each argument is: a new tensor, one that is there, a part of one (which others may be too), the same as another."""
    return [self.rng.choice(["new", "new", "live", "part", "part", "same", "expanded"]) for _ in range(n)]

  def call(self, name: str, kinds: list[tuple[Shape, str]], results: int, recipe: list[str]) -> None:
    args: list[str] = []
    for (shape, dtype), how in zip(kinds, recipe):
      n, r = math.prod(shape), self.rng
      base = next((x for x in self.scope[::-1] if self.env[x].index.size > n > 0 and str(self.env[x].dtype) == dtype), None)
      live = [x for x in self.scope if self.env[x].shape == shape and str(self.env[x].dtype) == dtype]
      like = [a for a in args if (t := self.ask(a)).shape == shape and str(t.dtype) == dtype]
      if how == "same" and like: args.append(r.choice(like))
      elif how == "live" and live: args.append(r.choice(live))
      elif how == "part":
        if base is None: base = self.define(self.host((n + r.choice([1, 2, 3]),), dtype))
        if base is None: return
        at = r.randint(0, self.env[base].index.size - n)
        args.append(f"{base}.flatten(){r.choice(['', '', '[::-1]'])}[{at}:{at + n}].reshape{tuple(shape)}")
      elif how == "expanded" and n > 1:
        x = base or self.define(self.host((2,), dtype))
        args.append(f"{x}.flatten()[0:1].reshape{(1,) * len(shape)}.expand{tuple(shape)}")
      elif x := self.define(self.host(shape, dtype)): args.append(x)
      else: return
    names = [self.name() for _ in range(results)]
    text = f"{', '.join(names)}{' = ' if names else ''}{name}({', '.join(args)})"
    if self.add(text, refused=False): self.scope += names
    else: self.restart()


def factors(n: int, r: random.Random) -> list[int]:
  """Sizes whose product is n."""
  out = []
  while n > 1:
    out.append(r.choice([k for k in (2, 3, 5, 7, n) if n % k == 0]))
    n //= out[-1]
  return out


def generate(kind: str, seed: int) -> Program: return Generator(kind, seed).program()
