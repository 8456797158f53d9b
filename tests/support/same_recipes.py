"""What recipes make is what rules and methods make, node for node: every search for gradients, and every call of a method with
recipes, in the block is made both ways."""
from __future__ import annotations

import inspect
from contextlib import ExitStack, contextmanager
from typing import Any, Iterator, Sequence
from unittest.mock import patch

from ntgrad.codegen.ir import UOp
from ntgrad.graph.recipes import written_out
from ntgrad.tensor import gradient
from ntgrad.tensor.activation import Activation
from ntgrad.tensor.convolution import Convolution
from ntgrad.tensor.losses import Losses
from ntgrad.tensor.normalising import Normalising
from ntgrad.tensor.products import Products


@contextmanager
def recipes_compared() -> Iterator[list[bool]]:
  """The list gets, for each search, whether there was a recipe for it. Raises AssertionError where the ways differ."""
  by_recipe: list[bool] = []
  found = gradient._found

  def both(g: Any, start: UOp, targets: Sequence[UOp], *how: Any) -> dict[UOp, UOp | None]:
    by_recipe.append(g.key is not None)
    if g.key is None: return found(g, start, targets, *how)
    found(g, start, targets)   # a recipe is made
    with patch.object(gradient, "gradients", None): out = found(g, start, targets)
    want = gradient._by_rules(g.root, start, set(targets))
    assert list(out) == list(want) and set(out) == set(targets)
    for n, x in want.items(): assert out[n] is x, f"{n} beneath {g.root}: by recipe {out[n]}, by rules {x}"
    return found(g, start, targets, *how)

  with patch.object(gradient, "_found", both): yield by_recipe


RECALLED = {Products: ["_projected"], Normalising: ["layer_norm"], Convolution: ["_convolved"],
            Losses: ["_loss_of_classes", "_bce_logits"],
            Activation: ["gelu", "silu", "leaky_relu", "elu", "celu", "selu", "softplus", "mish", "quick_gelu"]}
MEMBERS = {Convolution: ["conv1d", "conv2d", "conv3d"], Losses: ["mse_loss", "l1_loss", "binary_cross_entropy_with_logits"]}


def body_of(fn: Any) -> Any:
  """The method that ``recalled`` was given, of one that is checked, say, besides."""
  return inspect.unwrap(fn, stop=lambda f: "known" in f.__code__.co_freevars).__wrapped__


@contextmanager
def calls_compared() -> Iterator[list[str]]:
  """The list gets the name of each method with a recipe that is called. Raises AssertionError where what it gives by recipe is
  not what its body gives."""
  names: list[str] = []

  def both(call: Any) -> Any:
    def compared(*args: Any, **named: Any) -> Any:
      want = body_of(call)(*args, **named)
      for _ in range(3): got = call(*args, **named)
      names.append(call.__name__)
      for g, w in zip(*[x if isinstance(x, tuple) else (x,) for x in (got, want)], strict=True):
        a, b = written_out([g.lazydata, w.lazydata])
        assert (a, g._state, g._names, type(g)) == (b, w._state, w._names, type(w)), call.__name__
      return got
    return compared

  with ExitStack() as stack:
    for kind, methods in RECALLED.items():
      for m in methods: stack.enter_context(patch.object(kind, m, both(vars(kind)[m])))
    for kind, methods in MEMBERS.items():   # what another one, with a recipe, is called by
      for m in methods:
        names_known = inspect.unwrap(vars(kind)[m]).__globals__
        stack.enter_context(patch.dict(names_known, _fn=both(names_known["_fn"])))
    yield names
