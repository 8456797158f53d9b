"""What captured functions and tile kernels read from outside: each way of changing it is seen at the next call."""
from __future__ import annotations

import enum
import functools
import gc
import math
import os
import random
import sys
import time
import types
import warnings
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

import numpy as np
import pytest

import ntgrad
import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad import Tensor, config, nn
from ntgrad.capture import captured
from ntgrad.errors import CaptureError
from ntgrad.graph.change_counts import Stamped
from ntgrad.reads import reads_of

X = np.arange(1, 5, dtype=np.float32)
Way = tuple[Callable[..., Any], Callable[[], Any], Callable[[], Any]]   # a function of a tensor, a change, and how it is undone


@pytest.fixture(autouse=True)
def numpy_device() -> Iterator[None]:
  with config(dev="NUMPY"): yield


# ---- what the ways read
NUMBER, FLAG, WORD, NOTHING, PAIR = 2.0, True, "relu", None, (1.0, 2.0)
TABLE: dict[str, Any] = {"lr": 2.0, "deep": {"list": [1.0, 2.0, {"x": 3.0}]}}
LIST = [1.0, 2.0, 3.0]
SET = {"a", "b"}
DEQUE = deque([1.0, 2.0])
ORDERED = OrderedDict(a=1.0, b=2.0)
ARRAY = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
WEIGHT = Tensor(X * 2, device="NUMPY").realize()
module = types.ModuleType("a_module_of_the_user")
module.scale = 2.0   # type: ignore[attr-defined]
sys.modules[module.__name__] = module


class Mode(enum.Enum):
  ADD = 1
  MULTIPLY = 2


@dataclass
class Inner:
  scale: float = 2.0
@dataclass
class Settings:
  scale: float = 2.0
  inner: Inner = field(default_factory=Inner)
  mode: Mode = Mode.ADD


class Slots:
  __slots__ = ("scale",)
  def __init__(self) -> None: self.scale = 2.0


class Plain:
  """A model as people write them without any base."""
  factor = 2.0
  steps = [1.0, 2.0]

  def __init__(self) -> None:
    self.scale, self.layers, self.weight = 2.0, [Leaf(), Leaf()], Tensor(X * 3, device="NUMPY").realize()
    self.table = {"a": Leaf(), "b": Leaf()}
  def __call__(self, x: Tensor) -> Tensor:
    for layer in self.layers: x = layer(x)
    return x * self.scale
  def method(self, x: Tensor) -> Tensor: return x * self.scale
  def by_key(self, x: Tensor, key: str) -> Tensor: return self.table[key](x)
  def weighted(self, x: Tensor) -> Tensor: return x * self.weight
  @property
  def doubled(self) -> float: return self.scale * 2
  @staticmethod
  def still(x: Tensor) -> Tensor: return x * NUMBER
  @classmethod
  def of_class(cls, x: Tensor) -> Tensor: return x * cls.factor
  @functools.cached_property
  def computed_once(self) -> float: return 1.0


class AttrDict(dict):
  __getattr__ = dict.__getitem__
class Asked:
  """Attributes that are looked up elsewhere."""
  def __init__(self) -> None: self.table = {"scale": 2.0}
  def __getattr__(self, name: str) -> Any: return self.__dict__["table"][name]
class Descriptor:
  def __get__(self, owner: Any, kind: Any) -> Any: return owner.scale * NUMBER if owner is not None else self
  def __set__(self, owner: Any, value: Any) -> None: raise AttributeError
class Described(Plain):
  made = Descriptor()
class MyDropout(nn.Dropout):
  def forward(self, x: Tensor) -> Tensor: return super().forward(x) + 1
class Below(Plain):
  def method(self, x: Tensor) -> Tensor: return super().method(x) + 1
class Leaf:
  def __init__(self) -> None: self.k = 1.0
  def __call__(self, x: Tensor) -> Tensor: return x + self.k


class Net(nn.Module):
  def __init__(self) -> None:
    super().__init__()
    self.scale, self.first, self.second = 2.0, nn.Sequential(nn.Dropout(0.0), nn.ReLU()), nn.LayerNorm(4)
    self.blocks = [nn.Dropout(0.0) for _ in range(2)]
  def forward(self, x: Tensor) -> Tensor:
    x = self.first(x) * self.scale
    for i, b in enumerate(self.blocks): x = b(x) + i
    return self.second(x) if self.training else x


def helper(x: Tensor, k: float = 2.0, *, j: float = 1.0) -> Tensor: return x * k * j
def deeper(x: Tensor) -> Tensor: return inner_helper(x) + 1
def inner_helper(x: Tensor) -> Tensor: return x * NUMBER
def number() -> float: return NUMBER
def settings() -> Settings: return SETTINGS
def twice(fn: Callable[..., Any]) -> Callable[..., Any]:
  @functools.wraps(fn)
  def call(x: Tensor) -> Tensor: return fn(fn(x))
  return call
@twice
def decorated(x: Tensor) -> Tensor: return x * NUMBER
@contextmanager
def scaled() -> Iterator[float]: yield NUMBER
def generated(n: int) -> Iterator[float]:
  for i in range(n): yield i * NUMBER


SETTINGS, SLOTS, PLAIN, BELOW = Settings(), Slots(), Plain(), Below()
ATTRIBUTES, ASKED, DESCRIBED, DROPOUT = AttrDict(scale=2.0), Asked(), Described(), MyDropout(0.0).train()
with config(dev="NUMPY"): NET = Net()
HANDLERS = {"double": lambda x: x * NUMBER, "add": helper}


def with_block(x: Tensor) -> Tensor:
  with scaled() as k: return x * k
def conditional(x: Tensor) -> Tensor:
  if FLAG and WORD == "relu": return x.relu() * 2
  return x if NOTHING is None else x - 1
def through_names(x: Tensor) -> Tensor:
  s = SETTINGS
  inner = s.inner
  return x * inner.scale
def comprehended(x: Tensor) -> Tensor: return sum([x * layer.k for layer in PLAIN.layers], x * 0)
def unpacked(x: Tensor) -> Tensor:
  a, b = PAIR
  return x * a + b
def zipped(x: Tensor) -> Tensor:
  for (_, layer), k in zip(PLAIN.table.items(), LIST): x = layer(x) * k
  return x
def starred(x: Tensor) -> Tensor:
  def added(x: Tensor, *more: float) -> Tensor: return x + sum(more)
  return added(x, *LIST)
def tried(x: Tensor) -> Tensor:
  try: return x * TABLE["not there"]
  except KeyError: return x * TABLE["lr"]
def sliced(x: Tensor) -> Tensor: return x * LIST[-1] + sum(LIST[:2])
def counted(x: Tensor) -> Tensor:
  for i in range(len(LIST)): x = x + LIST[i]
  return x
def changed_default(x: Tensor) -> Tensor: return helper(x)
def from_function(x: Tensor) -> Tensor: return x * settings().inner.scale
def enumerated(x: Tensor) -> Tensor: return x + 1 if SETTINGS.mode is Mode.ADD else x * 5
def dynamic(x: Tensor) -> Tensor: return x * getattr(SETTINGS, "scale")   # noqa: B009
def printed(x: Tensor) -> Tensor:
  print(NUMBER)
  return x * NUMBER
def imported(x: Tensor) -> Tensor:
  import a_module_of_the_user as m
  from a_module_of_the_user import scale
  return x * m.scale + scale
def of_its_type(x: Tensor) -> Tensor: return x * type(PLAIN).factor + x * PLAIN.__class__.steps[1]
def membership(x: Tensor) -> Tensor: return x + 1 if "a" in SET else x * 7


def put(holder: Any, name: str, value: Any) -> Way:
  """The two ways between a value and the present one, of an attribute or an item."""
  def get(h: Any) -> Any:
    if isinstance(h, (dict, list, deque)): return h[name]
    return vars(h)[name] if hasattr(h, "__dict__") else getattr(h, name)
  def set_(h: Any, v: Any) -> None:
    if isinstance(h, (dict, list, deque)): h[name] = v
    else: setattr(h, name, v)
  old = get(holder)
  return lambda x: x, lambda: set_(holder, value), lambda: set_(holder, old)


def way(f: Callable[..., Any], holder: Any, name: Any, value: Any) -> Way: return f, *put(holder, name, value)[1:]
def this(name: str, value: Any, f: Callable[..., Any]) -> Callable[[], Way]: return lambda: way(f, globals(), name, value)


def closure() -> Way:
  k = 2.0
  def f(x: Tensor) -> Tensor: return x * k
  def change(value: float) -> None:
    nonlocal k
    k = value
  return f, lambda: change(3.0), lambda: change(2.0)


def cell_of_a_helper() -> Way:
  k = [2.0]
  def inner(x: Tensor) -> Tensor: return x * k[0]
  return lambda x: inner(x) + 1, *put(k, 0, 5.0)[1:]   # type: ignore[arg-type]


def mode_of(thing: Any) -> tuple[Callable[[], Any], Callable[[], Any]]: return lambda: thing.eval(), lambda: thing.train()
def dropped(x: Tensor) -> Tensor: return TRAINED(x)
def frozen(x: Tensor) -> Tensor:
  return (x * PARAMETER).sum().gradient(PARAMETER)[0] if PARAMETER.requires_grad else x * 0


class Trained(nn.Module):
  def __init__(self) -> None:
    super().__init__()
    self.norm = nn.BatchNorm1d(4)
    self.p = 2.0
  def forward(self, x: Tensor) -> Tensor: return self.norm(x.reshape(1, 4).cat(x.reshape(1, 4) * 2)) * self.p


with config(dev="NUMPY"): TRAINED = Trained()
PARAMETER = Tensor(X, device="NUMPY", requires_grad=True)
TRAINED.train()

WAYS: dict[str, Callable[[], Way]] = {
  "a global": this("NUMBER", 3.0, lambda x: x * NUMBER),
  "a global that is printed first": this("NUMBER", 3.0, printed),
  "a global bool and a string": this("FLAG", False, conditional),
  "a global string": this("WORD", "gelu", conditional),
  "a global that was None": lambda: ((lambda x: x if NOTHING is None else x - 1), *put(globals(), "NOTHING", 1)[1:]),
  "a tuple": this("PAIR", (3.0, 4.0), unpacked),
  "-0.0 for 0.0": lambda: (lambda x: x / TABLE["zero"], lambda: TABLE.update(zero=-0.0), lambda: TABLE.update(zero=0.0)),
  "a helper's global": this("NUMBER", 3.0, deeper),
  "what a helper gives": this("NUMBER", 3.0, lambda x: x * number()),
  "another helper": this("inner_helper", lambda x: x * 9, deeper),
  "a decorated helper": this("NUMBER", 3.0, lambda x: decorated(x)),
  "a context manager": this("NUMBER", 3.0, with_block),
  "a generator": this("NUMBER", 3.0, lambda x: x * sum(generated(3))),
  "a lambda in a dict": this("NUMBER", 3.0, lambda x: HANDLERS["double"](x)),
  "another lambda in a dict": lambda: way(lambda x: HANDLERS["double"](x), HANDLERS, "double", lambda x: x * 11),
  "a partial": this("NUMBER", 3.0, functools.partial(lambda k, x: x * k * NUMBER, 2.0)),
  "a closure": closure,
  "a helper's closure": cell_of_a_helper,
  "a default": lambda: (
    changed_default, lambda: setattr(helper, "__defaults__", (5.0,)), lambda: setattr(helper, "__defaults__", (2.0,))),
  "a default by name": lambda: (
    changed_default, lambda: helper.__kwdefaults__.update(j=3.0), lambda: helper.__kwdefaults__.update(j=1.0)),
  "an item of a dict": lambda: way(lambda x: x * TABLE["lr"], TABLE, "lr", 3.0),
  "an item by get": lambda: way(lambda x: x * TABLE.get("lr", 1.0), TABLE, "lr", 3.0),
  "a deep item": lambda: way(lambda x: x * TABLE["deep"]["list"][2]["x"], TABLE["deep"]["list"][2], "x", 4.0),
  "a key that was not there": lambda: (tried, lambda: TABLE.update({"not there": 4.0}), lambda: TABLE.pop("not there")),
  "an element of a list": lambda: way(sliced, LIST, 1, 9.0),
  "the length of a list": lambda: (counted, lambda: LIST.append(4.0), lambda: LIST.pop()),
  "arguments from a list": lambda: way(starred, LIST, 0, 9.0),
  "a set": lambda: (membership, lambda: SET.discard("a"), lambda: SET.add("a")),
  "a deque": lambda: way(lambda x: x * DEQUE[0], DEQUE, 0, 5.0),
  "an ordered dict": lambda: way(lambda x: sum([x * v for v in ORDERED.values()], x), ORDERED, "b", 5.0),
  "a numpy array in place": lambda: (
    lambda x: x * float(ARRAY[0]), lambda: ARRAY.__setitem__(0, 5.0), lambda: ARRAY.__setitem__(0, 1.0)),
  "a module's attribute": lambda: way(lambda x: x * module.scale, module, "scale", 3.0),
  "a dataclass": lambda: way(lambda x: x * SETTINGS.scale, SETTINGS, "scale", 3.0),
  "an attribute of an attribute": lambda: way(through_names, SETTINGS.inner, "scale", 3.0),
  "another object": lambda: way(through_names, SETTINGS, "inner", Inner(7.0)),
  "an object that a function gives": lambda: way(from_function, SETTINGS.inner, "scale", 3.0),
  "an enum": lambda: way(enumerated, SETTINGS, "mode", Mode.MULTIPLY),
  "getattr": lambda: way(dynamic, SETTINGS, "scale", 3.0),
  "a slot": lambda: way(lambda x: x * SLOTS.scale, SLOTS, "scale", 3.0),
  "an object that is called": lambda: way(lambda x: PLAIN(x), PLAIN, "scale", 3.0),
  "a part in a list": lambda: way(lambda x: PLAIN(x), PLAIN.layers[1], "k", 3.0),
  "a part in a dict": lambda: way(lambda x: PLAIN.by_key(x, "b"), PLAIN.table["b"], "k", 3.0),
  "parts in a comprehension": lambda: way(comprehended, PLAIN.layers[0], "k", 3.0),
  "parts in zip": lambda: way(zipped, PLAIN.table["a"], "k", 3.0),
  "one part more": lambda: (lambda x: PLAIN(x), lambda: PLAIN.layers.append(Leaf()), lambda: PLAIN.layers.pop()),
  "a method": lambda: way(PLAIN.method, PLAIN, "scale", 3.0),
  "a property": lambda: way(lambda x: x * PLAIN.doubled, PLAIN, "scale", 3.0),
  "a static method": this("NUMBER", 3.0, lambda x: PLAIN.still(x)),
  "a class method": lambda: way(lambda x: PLAIN.of_class(x), Plain, "factor", 3.0),
  "a class's attribute": lambda: way(lambda x: x * PLAIN.factor, Plain, "factor", 3.0),
  "an attribute over the class's": lambda: (
    lambda x: x * PLAIN.factor, lambda: setattr(PLAIN, "factor", 5.0), lambda: delattr(PLAIN, "factor")),
  "a list of the class": lambda: way(lambda x: x * PLAIN.steps[0], Plain.steps, 0, 3.0),
  "what super() calls": lambda: way(lambda x: BELOW.method(x), BELOW, "scale", 3.0),
  "another method": lambda: way(lambda x: PLAIN.method(x), Plain, "method", lambda self, x: x * 13),
  "a method of the object's own": lambda: (
    lambda x: PLAIN.method(x), lambda: setattr(PLAIN, "method", lambda x: x * 17), lambda: delattr(PLAIN, "method")),
  "another tensor": lambda: way(lambda x: x * WEIGHT, globals(), "WEIGHT", Tensor(X * 5).realize()),
  "another tensor in an object": lambda: way(lambda x: PLAIN.weighted(x), PLAIN, "weight", Tensor(X * 7).realize()),
  "a Module's mode": lambda: (lambda x: TRAINED(x), lambda: TRAINED.eval(), lambda: TRAINED.train()),
  "the mode of a part": lambda: (dropped, lambda: TRAINED.norm.eval(), lambda: TRAINED.norm.train()),
  "a Module's number": lambda: way(dropped, TRAINED, "p", 3.0),
  "a layer's number": lambda: way(dropped, TRAINED.norm, "eps", 0.5),
  "a Module's number in a list": lambda: way(lambda x: NET(x), NET, "scale", 3.0),
  "another layer": lambda: way(lambda x: NET(x), NET, "first", nn.Sequential(nn.Sigmoid())),
  "one layer more": lambda: (
    lambda x: NET(x), lambda: NET.first.append(nn.Sigmoid()), lambda: delattr(NET.first, "2")),
  "another block": lambda: way(lambda x: NET(x), NET.blocks, 0, nn.Sigmoid()),
  "a function given to a layer": this("NUMBER", 3.0, lambda x: nn.Sequential(inner_helper)(x)),
  "a function given to sequential": this("NUMBER", 3.0, lambda x: x.sequential([inner_helper, PLAIN])),
  "a frozen parameter": lambda: (
    frozen, lambda: PARAMETER.requires_grad_(False), lambda: PARAMETER.requires_grad_(True)),
  "an attribute of a dict": lambda: way(lambda x: x * ATTRIBUTES.scale, ATTRIBUTES, "scale", 3.0),
  "an attribute that is looked up": lambda: way(lambda x: x * ASKED.scale, ASKED.table, "scale", 3.0),
  "a descriptor": this("NUMBER", 3.0, lambda x: x * DESCRIBED.made),
  "a module that is imported inside": lambda: way(imported, module, "scale", 3.0),
  "the class of an object": lambda: way(of_its_type, Plain, "factor", 3.0),
  "a list of the class of an object": lambda: way(of_its_type, Plain.steps, 1, 5.0),
  "a layer's number by super()": lambda: way(lambda x: DROPOUT(x), DROPOUT, "p", 1.0),
  "os.getenv": lambda: (
    lambda x: x * float(os.getenv("NTGRAD_TEST_SCALE", "1")), lambda: os.environ.update(NTGRAD_TEST_SCALE="3"),
    lambda: os.environ.update(NTGRAD_TEST_SCALE="2")),
  "os.environ.get": lambda: (
    lambda x: x * float(os.environ.get("NTGRAD_TEST_SCALE", "1")), lambda: os.environ.pop("NTGRAD_TEST_SCALE"),
    lambda: os.environ.update(NTGRAD_TEST_SCALE="2")),
  "an environment variable": lambda: (
    lambda x: x * float(os.environ["NTGRAD_TEST_SCALE"]), lambda: os.environ.update(NTGRAD_TEST_SCALE="3"),
    lambda: os.environ.update(NTGRAD_TEST_SCALE="2")),
}


@pytest.mark.parametrize("name", WAYS)
def test_captured(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
  """Changed, undone, changed again: each call gives what the function gives, and calls in between replay."""
  monkeypatch.setenv("NTGRAD_TEST_SCALE", "2")
  TABLE["zero"] = 0.0
  f, change, undo = WAYS[name]()
  with warnings.catch_warnings(), np.errstate(all="ignore"):
    warnings.simplefilter("error")
    j = ntgrad.jit(f)
    results = []
    for step in (None, change, undo, change, undo):
      if step is not None: step()
      want = f(Tensor(X)).numpy()
      for _ in range(3): np.testing.assert_array_equal(j(Tensor(X)).numpy(), want, name)
      assert j.captured, name
      results.append(want)
  assert not np.array_equal(results[0], results[1]) and np.array_equal(results[0], results[2]), name


def test_objects_among_the_arguments() -> None:
  """What is read of an object that is given is compared; lists, dicts and dataclasses belong to the signature."""
  j = ntgrad.jit(lambda x, model, more: model(x) * more["k"][0] + more["s"].scale)
  model, more = Plain(), {"k": [2.0], "s": Settings()}
  def same() -> None:
    for _ in range(3):
      np.testing.assert_array_equal(j(Tensor(X), model, more).numpy(), j.fn(Tensor(X), model, more).numpy())
      more["k"], more["s"] = list(more["k"]), Settings(more["s"].scale)   # other ones that are equal
    assert j.captured
  same()
  model.scale = 3.0
  same()
  model.layers[0].k = 5.0
  same()
  more["k"][0] = 4.0
  same()
  more["s"].scale = 9.0
  same()


# ---- tile kernels: the same ways, where an application can read so
def arrangement(x: Any, y: Any) -> Any: return x.tile((4,)), y.tile((4,))
def triple(x: Any) -> Any: return x * NUMBER
def of_settings(x: Any, s: Any = SETTINGS) -> Any: return x * s.inner.scale


def tile_global(x: Any, y: Any) -> None: y = x * NUMBER   # noqa: F841
def tile_helper(x: Any, y: Any) -> None: y = triple(x)   # noqa: F841
def tile_item(x: Any, y: Any) -> None: y = x * TABLE["deep"]["list"][2]["x"]   # noqa: F841
def tile_attribute(x: Any, y: Any) -> None: y = x * SETTINGS.scale   # noqa: F841
def tile_default(x: Any, y: Any) -> None: y = of_settings(x)   # noqa: F841
def tile_number(x: Any, y: Any) -> None: y = x * number()   # noqa: F841
def tile_flag(x: Any, y: Any) -> None:
  if FLAG: y = tl.exp(x)   # noqa: F841
  else: y = x + 1   # noqa: F841
def tile_module(x: Any, y: Any) -> None: y = x * module.scale   # type: ignore[attr-defined] # noqa: F841
def tile_loop(x: Any, y: Any) -> None:
  total = x * 0
  for i in tl.static_range(len(LIST)): total += x * LIST[i]
  y = total   # noqa: F841


def tile_closure() -> Way:
  k = 2.0
  def f(x: Any, y: Any) -> None: y = x * k   # noqa: F841
  def change(value: float) -> None:
    nonlocal k
    k = value
  return f, lambda: change(3.0), lambda: change(2.0)


TILE_WAYS: dict[str, Callable[[], Way]] = {
  "a global": this("NUMBER", 3.0, tile_global),
  "a helper's global": this("NUMBER", 3.0, tile_helper),
  "another helper": this("triple", lambda x: x * 9, tile_helper),
  "what a helper gives": this("NUMBER", 3.0, tile_number),
  "a flag": this("FLAG", False, tile_flag),
  "a deep item": lambda: way(tile_item, TABLE["deep"]["list"][2], "x", 4.0),
  "an attribute": lambda: way(tile_attribute, SETTINGS, "scale", 3.0),
  "a default's attribute": lambda: way(tile_default, SETTINGS.inner, "scale", 3.0),
  "a module's attribute": lambda: way(tile_module, module, "scale", 3.0),
  "an element of a list": lambda: way(tile_loop, LIST, 1, 9.0),
  "the length of a list": lambda: (tile_loop, lambda: LIST.append(4.0), lambda: LIST.pop()),
  "a closure": tile_closure,
}


@pytest.mark.parametrize("in_jit", [False, True], ids=["called", "captured"])
@pytest.mark.parametrize("name", TILE_WAYS)
def test_tile(name: str, in_jit: bool) -> None:
  """Each size sees the change, those that were seen before and new ones."""
  f, change, undo = TILE_WAYS[name]()
  kernel = tile.make(arrangement, f, (tile.Tensor(1), tile.Tensor(1)))
  def once(x: Tensor) -> Tensor:
    y = Tensor.empty(*x.shape)
    kernel(x, y)
    return y
  call = ntgrad.jit(once) if in_jit else once
  def run(n: int) -> np.ndarray: return call(Tensor(np.arange(n, dtype=np.float32))).numpy()
  results = []
  for step in (None, change, undo, change, undo):
    if step is not None: step()
    fresh = tile.make(arrangement, f, (tile.Tensor(1), tile.Tensor(1)))
    for n in (8, 16, 8, 8, 8, 20 + len(results)):
      want = np.zeros(n, np.float32)
      fresh(np.arange(n, dtype=np.float32), want)
      np.testing.assert_array_equal(run(n), want, name)
    results.append(run(8))
  assert not np.array_equal(results[0], results[1]) and np.array_equal(results[0], results[2])


# ---- what cannot be compared, what the function changes itself, and what changes all the time
def test_what_cannot_be_compared_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
  it = iter([1.0, 2.0, 3.0] * 9)
  large = np.ones(10_000, np.float32)
  ways: dict[str, Callable[..., Any]] = {
    "next": lambda x: x * next(it), "time": lambda x: x * min(time.time(), 1.0),
    "random": lambda x: x * min(random.random(), 0.0),
    "array": lambda x: x * float(large[0])}
  for what, f in ways.items():
    j = ntgrad.jit(f)
    with pytest.warns(UserWarning) as said:
      for _ in range(4): j(Tensor(X))
    told, = said
    assert told.filename == __file__ and told.lineno == f.__code__.co_firstlineno, told
    text = str(told.message)
    assert "It stays what it is when the function is captured" in text and {"array": "large"}.get(what, what) in text, text
    j = ntgrad.jit(f)
    with warnings.catch_warnings():
      warnings.simplefilter("error")
      for _ in range(4): j(Tensor(X))   # once
    strict = ntgrad.jit(f, strict=True)
    strict(Tensor(X))
    with pytest.raises(CaptureError, match="reads what is not compared") as e: strict(Tensor(X))
    assert os.path.basename(__file__) in str(e.value)


def test_what_the_function_changes_itself() -> None:
  """Replays do not change it, which is said; no call captures anew for it. What is only listed or printed does not count."""
  class Counter:
    count = 0
  c, seen = Counter(), []
  calls = 0
  @ntgrad.jit
  def f(x: Tensor) -> Tensor:
    c.count += 1
    seen.append(calls)
    print(f"call {calls}")
    return x * 2
  with pytest.warns(UserWarning, match="c.count is changed by the function itself"):
    for calls in range(6): f(Tensor(X))   # noqa: B007
  assert f.captured and c.count == 2 and seen == [0, 1]


def test_what_changes_at_every_call() -> None:
  """Right at each call, and captured once it stays."""
  k = 0.0
  j = ntgrad.jit(lambda x: x * k)
  with pytest.warns(UserWarning, match="k was"):
    for i in range(40):
      k = float(i)
      np.testing.assert_array_equal(j(Tensor(X)).numpy(), X * k)
  for _ in range(captured.REST + 8): np.testing.assert_array_equal(j(Tensor(X)).numpy(), X * k)
  assert j.captured


def test_a_value_that_comes_again_is_captured_once() -> None:
  ran = 0
  model = nn.Sequential(nn.Dropout(0.0), nn.BatchNorm1d(4))
  @ntgrad.jit
  def f(x: Tensor) -> Tensor:
    nonlocal ran
    ran += 1
    return model(x)
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")   # it counts how often it ran
    for _ in range(5):
      for mode in (True, False):
        model.train(mode)
        for _ in range(3): f(Tensor(np.ones((2, 4), np.float32)))
  assert ran == 4


def test_schedules_are_stepped_outside() -> None:
  layer = nn.Linear(1, 1, bias=False)
  optimizer = nn.optim.SGD(layer.parameters(), lr=1.0)
  schedule = ntgrad.optim.lr_scheduler.StepLR(optimizer, 4, gamma=0.1)
  inside = False
  @ntgrad.jit
  def step(x: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss = layer(x).sum()
    loss.backward()
    optimizer.step()
    if inside: schedule.step()
    return loss
  moved = []
  for _ in range(10):
    before = layer.weight.item()
    step(Tensor.ones(1, 1))
    schedule.step()
    moved.append(round(before - layer.weight.item(), 4))
  assert moved == [1] * 4 + [0.1] * 4 + [0.01] * 2
  inside = True
  step(Tensor.ones(1, 1))
  with pytest.raises(CaptureError, match="schedule StepLR.step.*outside of the captured function"): step(Tensor.ones(1, 1))


def test_options_of_an_optimizer() -> None:
  """Numbers lie in memory that kernels read; flags are seen."""
  w = Tensor(X, requires_grad=True)
  optimizer = nn.optim.SGD([w], lr=1.0, momentum=0.5)
  @ntgrad.jit
  def step() -> Tensor:
    optimizer.zero_grad()
    loss = w.sum()
    loss.backward()
    optimizer.step()
    return loss
  for _ in range(3): step()
  optimizer.param_groups[0]["lr"] = 0.0
  before = w.numpy()
  step()
  np.testing.assert_array_equal(w.numpy(), before)
  optimizer.param_groups[0]["lr"] = 1.0
  reads = step._last.reads   # type: ignore[attr-defined, union-attr]
  assert reads.hold()
  optimizer.param_groups[0]["nesterov"] = True
  assert not reads.hold() and "nesterov" in reads.why


# ---- what is kept, and what it costs
def test_nothing_is_kept_alive() -> None:
  class Model:
    def __init__(self) -> None:
      self.part = Part(self)
      self.scale = 2.0
    @ntgrad.jit
    def step(self, x: Tensor) -> Tensor: return self.part(x) * self.scale
  class Part:
    def __init__(self, above: Any): self.above, self.weight = above, Tensor(X).realize()
    def __call__(self, x: Tensor) -> Tensor: return x * self.weight + self.above.scale
  m = Model()
  for _ in range(3): m.step(Tensor(X))
  model, weight = ref(m), ref(m.part.weight)
  del m
  gc.collect()
  assert model() is None and weight() is None


def test_reading_large_models_is_one_comparison() -> None:
  """A Module whose attributes were not set is not looked at."""
  model = nn.Sequential(*[nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1)) for _ in range(20)])
  other = nn.Linear(1, 1)
  reads = reads_of(model.forward if hasattr(model, 'forward') else model)
  reads.settle()
  looked: list[Any] = []
  assert reads.hold() and len(reads._modules) > 200
  for p in reads._modules:
    class Counted(type(p)):   # type: ignore[misc]
      __slots__ = ()
      def differs(self) -> str:
        looked.append(self)
        return super().differs()
    p.__class__ = Counted
  assert reads.hold() and not looked
  other.train()
  assert reads.hold() and not looked
  model.eval()
  assert not reads.hold() and looked
  before = Stamped.changes
  del model
  gc.collect()
  assert not reads.hold() and "gone" in reads.why and Stamped.changes == before


def test_looking_makes_nothing() -> None:
  table: dict[str, float] = defaultdict(float, scale=2.0)
  j = ntgrad.jit(lambda x: x * table["scale"])
  for _ in range(3): j(Tensor(X))
  del table["scale"]
  reads = j._last.reads   # type: ignore[attr-defined, union-attr]
  assert not reads.hold() and "scale" not in table
  np.testing.assert_array_equal(j(Tensor(X)).numpy(), X * 0)


def test_names_come_out_as_written() -> None:
  """Every kind of place is named as the code writes it."""
  reads = reads_of(lambda x: PLAIN(x) * SETTINGS.inner.scale * TABLE["deep"]["list"][0] * math.pi)
  names = {p.text for p in reads._places.values()}
  assert {"PLAIN", "PLAIN.scale", "PLAIN.layers[1].k", "SETTINGS.inner.scale", "TABLE['deep']['list'][0]"} <= names
  assert not any("math" in n and "." in n for n in names)   # nobody changes Python's own
