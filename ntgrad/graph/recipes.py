"""Recipes: graphs that are made again of other nodes, without the rules that made them the first time."""
from __future__ import annotations

from operator import itemgetter
from typing import Any, Iterable, Mapping, Sequence

from ntgrad.codegen.ir import DType, Ops, UOp, config, make, toposort

from .origins import Origin


class Recipe:
  """What makes ``outputs`` of ``inputs``, as a list of nodes to make: a call with other inputs, of the same shapes, dtypes and
  devices, gives what the rules would have given for them.

  ``exp(a) * 2`` of a -> EXP(input 0), MUL(node 1, 2). What no input is beneath, constants alone, is the same node each time.
  ``lines`` says of a node which input's line it is a gradient of. Raises AssertionError where memory lies beneath that is no input.
  """
  __slots__ = "_steps", "_outputs", "_kept"

  def __init__(self, inputs: Sequence[UOp], outputs: Iterable[UOp], lines: Mapping[UOp, Origin] | None = None) -> None:
    place = {u: i for i, u in enumerate(inputs)}
    made_by = {id(u.origin): i for i, u in enumerate(inputs) if u.origin is not None}
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
      src: Any = [place[s] for s in u.src]
      line = made_by.get(id(lines.get(u)), -1) if lines else -1
      steps.append((u.op, u.dtype, itemgetter(*src) if len(src) > 1 else src[0], u.arg, u.shape, u.device, u.is_unique, line))
    self._steps, self._outputs = tuple(steps), tuple([place[u] for u in outputs])

  def __call__(self, inputs: Sequence[UOp]) -> list[UOp]:
    """The outputs for these inputs."""
    nodes = [*inputs, *self._kept]
    add, lines = nodes.append, config.origins
    for op, dtype, src, arg, shape, device, alone, line in self._steps:
      u = (_alone if alone else make)(op, dtype, (nodes[src],) if type(src) is int else src(nodes), arg, shape, device)
      if line >= 0 and u.origin is None and lines and (origin := nodes[line].origin) is not None: u.origin = *origin[:2], True
      add(u)
    return [nodes[i] for i in self._outputs]


def _alone(op: Ops, dtype: DType, src: tuple[UOp, ...], arg: Any, shape: Any, device: str | None) -> UOp:
  """A node that equals no other."""
  u = UOp.unique(op, dtype, src, arg)
  u.__dict__.update(shape=shape, device=device)
  return u
