"""Gradients by recipe are those by rules, node for node: every search for gradients in the block is made both ways."""
from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator, Sequence
from unittest.mock import patch

from ntgrad.codegen.ir import Ops, UOp
from ntgrad.tensor import gradient


def _other(g: Any) -> dict[UOp, UOp]:
  """Another graph of the same structure: what no gradient passes is another node there, with nothing beneath it."""
  new: dict[UOp, UOp] = {}
  stack = list(g.nodes)
  while stack:
    n = stack[-1]
    inner = [s for s in n.src if s in g.place]
    if n in new or n.op is Ops.CONST: new[stack.pop()] = new.get(n, n)
    elif missing := [s for s in inner if s not in new]: stack += missing
    else:
      u = UOp(n.op, n.dtype, tuple([new.get(s, s) for s in n.src]), n.arg) if inner else UOp.unique(n.op, n.dtype, (), n.arg)
      u.__dict__.update(shape=n.shape, device=n.device)
      new[stack.pop()] = u
  return new


def _by_rules(root: UOp, start: UOp, targets: Sequence[UOp]) -> dict[UOp, UOp]:
  order = gradient.walk(root)
  found = gradient.gradients(order, {root: start}, targets)
  return {n: found[n] for n in order if n in found}


@contextmanager
def recipes_compared() -> Iterator[list[bool]]:
  """The list gets, for each search, whether there was a recipe for it. Raises AssertionError where the ways differ."""
  by_recipe: list[bool] = []
  found = gradient._found

  def both(g: Any, start: UOp, targets: Sequence[UOp]) -> dict[UOp, UOp | None]:
    by_recipe.append(g.key is not None)
    if g.key is None: return found(g, start, targets)
    root = g.nodes[0]
    want = _by_rules(root, start, targets)
    for _ in range(2): found(g, start, targets)   # it is remembered, made a recipe
    with patch.object(gradient, "gradients", None): out = found(g, start, targets)
    assert set(out) == set(targets) and [n for n, x in out.items() if x is not None] == list(want)
    for n, x in want.items(): assert out[n] is x, f"{n} beneath {root}: by recipe {out[n]}, by rules {x}"
    new = _other(g)
    recipe, _ = gradient._recipes[g.key, tuple(sorted({g.place[n] for n in targets}))][g.constants]
    other = _by_rules(new[root], new[start], [new[n] for n in targets])
    assert recipe([new[n] for n in g.nodes]) == list(other.values()), f"of other nodes beneath {root}"
    return out

  with patch.object(gradient, "_found", both): yield by_recipe
