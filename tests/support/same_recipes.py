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
    if g.key is None:
      by_recipe.append(False)
      return found(g, start, targets)
    order = gradient.walk(g.nodes[0])
    want = gradient.gradients(order, {order[-1]: start}, targets)
    for _ in range(3): out = found(g, start, targets)   # it is remembered, made a recipe, made by that
    with patch.object(gradient, "gradients", None): out = found(g, start, targets)
    by_recipe.append(True)
    assert [n for n, x in out.items() if x is not None] == [n for n in order if n in want]
    assert set(out) == set(targets)
    for n, x in want.items(): assert out[n] is x, f"{n} of {g.nodes[0]}: by recipe {out[n]}, by rules {x}"
    return out

  with patch.object(gradient, "_found", both): yield by_recipe
