"""Gradients by recipe are those by rules, node for node: every search for gradients in the block is made both ways."""
from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator, Sequence
from unittest.mock import patch

from ntgrad.codegen.ir import UOp
from ntgrad.tensor import gradient


@contextmanager
def recipes_compared() -> Iterator[list[bool]]:
  """The list gets, for each search, whether there was a recipe for it. Raises AssertionError where the ways differ."""
  by_recipe: list[bool] = []
  found = gradient._found

  def both(g: Any, start: UOp, targets: Sequence[UOp]) -> dict[UOp, UOp | None]:
    by_recipe.append(g.key is not None)
    if g.key is None: return found(g, start, targets)
    for _ in range(2): found(g, start, targets)   # it is remembered, made a recipe
    with patch.object(gradient, "gradients", None): out = found(g, start, targets)
    want = gradient._by_rules(g.root, start, set(targets))
    assert list(out) == list(want) and set(out) == set(targets)
    for n, x in want.items(): assert out[n] is x, f"{n} beneath {g.root}: by recipe {out[n]}, by rules {x}"
    return out

  with patch.object(gradient, "_found", both): yield by_recipe
