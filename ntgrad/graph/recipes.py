"""Recipes: graphs that are made again of other nodes, without the rules that made them the first time."""
from __future__ import annotations

from typing import Iterable, Sequence

from ntgrad.codegen.ir import Ops, UOp, toposort


class Recipe:
  """What makes ``outputs`` of ``inputs``, as a list of nodes to make: a call with other inputs, of the same shapes, dtypes and
  devices, gives what the rules would have given for them.

  ``exp(a) * 2`` of a -> EXP(input 0), MUL(node 1, 2). What no input is beneath, constants alone, is the same node each time.
  Raises AssertionError where memory lies beneath that is no input.
  """
  __slots__ = "_steps", "_outputs", "_kept"

  def __init__(self, inputs: Sequence[UOp], outputs: Iterable[UOp]) -> None:
    place = {u: i for i, u in enumerate(inputs)}
    outputs, n = list(outputs), len(inputs)
    order = [u for u in toposort(outputs, lambda u: u in place) if u not in place]
    made: set[UOp] = set(place)
    for u in order:
      if any([s in made for s in u.src]): made.add(u)
    kept = [u for u in order if u not in made]
    assert not any([u.op is Ops.BUFFER or u.is_unique for u in kept]), "memory beneath a recipe that is none of its inputs"
    self._kept = tuple(kept)
    place.update({u: n + i for i, u in enumerate(kept)})
    steps = []
    for u in order:
      if u not in made: continue
      place[u] = len(place)
      steps.append((u.op, u.dtype, tuple([place[s] for s in u.src]), u.arg, u.shape, u.device, u.is_unique))
    self._steps, self._outputs = tuple(steps), tuple([place[u] for u in outputs])

  def __call__(self, inputs: Sequence[UOp]) -> list[UOp]:
    """The outputs for these inputs."""
    nodes = [*inputs, *self._kept]
    add = nodes.append
    for op, dtype, src, arg, shape, device, alone in self._steps:
      u = (UOp.unique if alone else UOp)(op, dtype, tuple([nodes[i] for i in src]), arg)
      known = u.__dict__
      if "shape" not in known: known["shape"], known["device"] = shape, device
      add(u)
    return [nodes[i] for i in self._outputs]
