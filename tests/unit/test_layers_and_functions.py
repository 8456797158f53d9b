"""Layers and functions of one name give the same, whatever their arguments are, and by place what PyTorch's give.

A layer's good call (``tests/fuzz/test_arguments.py``) is made with each parameter left out, as it is there, and changed.
"""
from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fuzz.test_arguments import LAYERS

import ntgrad
from ntgrad import Device, Tensor, nn
from ntgrad.errors import NtgradError
from support.marks import long_half

F = nn.functional
RENAMED = {"BCELoss": "binary_cross_entropy", "BCEWithLogitsLoss": "binary_cross_entropy_with_logits",
           **{f"{kind}Norm{n}d": f"{kind.lower()}_norm" for kind in ("Batch", "Instance") for n in (1, 2, 3)},
           **{f"{way}Pad{n}d": "pad" for way in ("Zero", "Constant", "Reflection", "Replication", "Circular") for n in (1, 2, 3)}}
# what functions call otherwise, or what a class stands for
WAYS = {"Zero": "constant", "Constant": "constant", "Reflection": "reflect", "Replication": "replicate", "Circular": "circular"}
GIVEN: dict[str, dict[str, Any]] = {f"{way}Pad{n}d": {"mode": mode} for n in (1, 2, 3) for way, mode in WAYS.items()}
OTHERS = {   # other values of arguments that are texts
  "reduction": ("mean", "sum", "none"), "mode": ("sum", "mean", "max", "nearest", "linear", "bilinear"),
  "approximate": ("none", "tanh"), "padding_mode": ("zeros",)}


def function_of(name: str) -> Any:
  """The function of a layer's name, or None."""
  found = {n.replace("_", ""): n for n in F.__all__}
  key = name.lower()
  at = RENAMED.get(name) or found.get(key) or found.get(key.removesuffix("loss"))
  return None if at is None else getattr(F, at)


PAIRS = {name: function_of(name) for name in LAYERS if function_of(name) is not None}


@pytest.fixture(autouse=True)
def _device() -> Iterator[None]:
  Device.DEFAULT = "NUMPY"
  yield
  Device.DEFAULT = None


def parameters(fn: Any) -> list[str]: return [n for n in inspect.signature(fn).parameters if n not in ("device", "dtype")]


def changed(name: str, value: Any) -> list[Any]:
  """Other values that an argument may have."""
  if isinstance(value, bool): return [not value]
  if isinstance(value, int): return [value + 1]
  if isinstance(value, float): return [value * 0.5 + 0.125, value * 2 + 0.25]
  if isinstance(value, str): return [v for v in OTHERS.get(name, ()) if v != value]
  if isinstance(value, tuple) and all(isinstance(v, int) for v in value): return [tuple([v + 1 for v in value])]
  return []


def calls(name: str) -> Iterator[dict[str, Any]]:
  """Arguments of a layer, by name; those that are for its tensors are in the function's tensors."""
  names, good = parameters(getattr(nn, name)), LAYERS[name][0]
  base = dict(zip(names, good))
  required = [n for n, p in inspect.signature(getattr(nn, name)).parameters.items() if p.default is p.empty]
  yield {n: base[n] for n in required if n in base}
  yield base
  for n, value in base.items():
    for other in changed(n, value): yield {**base, n: other}


def inputs(name: str) -> list[Any]:
  """What the layer is called with, of random floats."""
  rng = np.random.default_rng(len(name))
  def other(x: Any) -> Any:
    if not isinstance(x, Tensor) or x.dtype.kind != "f": return x
    return Tensor((rng.random(x.shape) * 0.8 + 0.1).astype(np.float32))
  return [other(x) for x in LAYERS[name][1]()]


def flat(x: Any) -> list[Any]: return [y for each in x for y in flat(each)] if isinstance(x, (tuple, list)) else [x]


def result(fn: Any) -> Any:
  """What a call gives, as arrays, or the class of the error that it raises."""
  ntgrad.manual_seed(3)
  try: return [x.numpy() if isinstance(x, Tensor) else x for x in flat(fn())]
  except NtgradError as e: return type(e)


def same(a: Any, b: Any) -> bool:
  if isinstance(a, type) or isinstance(b, type): return isinstance(a, type) and isinstance(b, type)
  return len(a) == len(b) and all(np.allclose(x, y, 1e-5, 1e-6, equal_nan=True) if x is not None else y is None
                                  for x, y in zip(a, b))


@pytest.mark.parametrize("name", long_half(PAIRS))
def test_a_layer_is_its_function(name: str) -> None:
  takes = parameters(PAIRS[name])
  wrong = []
  for given in calls(name):
    made: list[Any] = []
    def layer(given: dict[str, Any] = given, made: list[Any] = made) -> Any:
      made.append(getattr(nn, name)(**given))
      ntgrad.manual_seed(3)
      return made[0](*inputs(name))
    got, xs = result(layer), inputs(name)
    if not made and "weight" in takes: continue   # refused before there are tensors
    own: dict[str, Any] = {} if not made else {n: getattr(made[0], n) for n in takes if isinstance(getattr(made[0], n, 0), (
      Tensor, bool, tuple, type(None)))}
    if made and "pad" in takes: own["pad"] = made[0].padding
    if made and "running_mean" in takes:   # as they were before the call
      own |= {n: getattr(getattr(nn, name)(**given), n, None) for n in ("running_mean", "running_var")}
    if made and own.get("running_mean", 0) is None: own |= {"use_input_stats": True, "training": True}
    elif made: own["use_input_stats"] = made[0].training
    arguments = {**given, **own, **GIVEN.get(name, {})}
    asked = ["input" if n == "idx" else n for n in parameters(getattr(nn, name).__call__)[1:len(xs) + 1]]
    if set(asked) <= set(takes): arguments, xs = {**arguments, **dict(zip(asked, xs))}, []
    arguments = {n: v for n, v in arguments.items() if n in takes[len(xs):]}
    want = result(lambda: PAIRS[name](*xs, **arguments))  # noqa: B023
    if not same(got, want): wrong.append(f"{given}: layer {got}, function {want}".replace("\n", ""))
  assert not wrong, f"{len(wrong)} of nn.{name}:\n" + "\n".join(wrong)


@pytest.mark.parametrize("name", [n for n in LAYERS if "weight" not in dir(n)])
def test_arguments_by_place_are_pytorchs(name: str) -> None:
  """Each parameter by place, the good value and others: what PyTorch's layer gives, and its function."""
  torch = pytest.importorskip("torch")
  other = getattr(torch.nn, name, None)
  if other is None: pytest.skip("not in PyTorch")
  def theirs(x: Any) -> Any:
    if isinstance(x, Tensor): return torch.tensor(x.numpy().astype(np.int64) if x.dtype.kind == "i" else x.numpy())
    return tuple([theirs(y) for y in x]) if isinstance(x, tuple) else x
  names, good = parameters(getattr(nn, name)), LAYERS[name][0]
  there = parameters(other)
  same_names = [a == b for a, b in zip(names, there)]
  k = same_names.index(False) if False in same_names else len(same_names)
  if k < min(len(good), len(there)) and there[k] in ("size_average", "reduce"):   # flags of old, which we have not
    for flag in (True, False):
      made = functools.partial(getattr(nn, name), *good[:k], flag)
      assert isinstance(result(made), type), f"{there[k]}={flag}"
  good, wrong = good[:k], list[str]()
  for k in range(len(good) + 1):
    for value in [good[k - 1], *changed(names[k - 1], good[k - 1])] if k else [None]:
      args = (*good[:k - 1], value) if k else ()
      try:
        with warnings.catch_warnings():
          warnings.simplefilter("ignore")
          made = other(*theirs(args))
          if list(made.parameters()) or "RReLU" in name or "Dropout" in name: return   # random
          want = [x.detach().numpy() for x in flat(made(*theirs(tuple(inputs(name)))))]
      except Exception: continue   # refused there
      got = result(lambda: getattr(nn, name)(*args)(*inputs(name)))  # noqa: B023
      if not same(got, want): wrong.append(f"{args}: {got}, PyTorch has {want}".replace("\n", ""))
  assert not wrong, f"{len(wrong)} of nn.{name}:\n" + "\n".join(wrong)
