"""Recipes: graphs that are made again of other nodes, without the rules that made them the first time."""
from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import wraps
from operator import itemgetter
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence, TypeVar

from ntgrad.codegen.ir import DType, Ops, Recent, UOp, config, dtypes, toposort
from ntgrad.codegen.ir.elementwise import const_value, make

from . import variable
from .alias import next_look
from .checks import Valued
from .modes import mode
from .origins import Origin, origin_now

_F = TypeVar("_F", bound=Callable[..., Any])
_taker: Any = itemgetter
_NO_LINE, _CALLED = -1, -2   # in place of the place of an input, whose line a node has
SIGNATURES = 256   # of one method, whose recipes are kept


class Recipe:
  """What makes ``outputs`` of ``inputs``, as a list of nodes to make: a call with other inputs, of the same shapes, dtypes and
  devices, gives what the rules would have given for them.

  ``exp(a) * 2`` of a -> EXP(input 0), MUL(node 1, 2). What no input is beneath, constants alone, is the same node each time.
  ``lines`` says of a node which input's line it is a gradient of; without it, what has a line now gets the line of a call. Raises
  AssertionError for an input that comes twice, or where memory lies beneath that is none of them."""
  __slots__ = "_steps", "_outputs", "_kept"

  def __init__(self, inputs: Sequence[UOp], outputs: Iterable[UOp], lines: Mapping[UOp, int] | None = None) -> None:
    place = {u: i for i, u in enumerate(inputs)}
    assert len(place) == len(inputs), "an input of a recipe comes twice"
    outputs = list(outputs)
    order = [u for u in toposort(outputs, lambda u: u in place) if u not in place]
    made: set[UOp] = set(place)
    for u in order:
      if any([s in made for s in u.src]): made.add(u)
    kept = [u for u in order if u not in made]
    assert not any([u.op is Ops.BUFFER or u.is_unique for u in kept]), "memory beneath a recipe that is none of its inputs"
    self._kept = tuple(kept)
    place.update({u: i for i, u in enumerate(kept, len(inputs))})
    steps = []
    for u in filter(made.__contains__, order):
      place[u] = len(place)
      src: Any = [place[s] for s in u.src]
      line = lines.get(u, _NO_LINE) if lines is not None else _NO_LINE if u.origin is None else _CALLED
      steps.append((u.op, u.dtype, _taker(*src) if len(src) > 1 else src[0], u.arg, u.shape, u.device, u.is_unique, line))
    self._steps, self._outputs = tuple(steps), tuple([place[u] for u in outputs])

  def __call__(self, inputs: Sequence[UOp], called: Origin | None = None) -> list[UOp]:
    """The outputs for these inputs, made by the line ``called``."""
    nodes = [*inputs, *self._kept]
    add, lines = nodes.append, config.origins
    for op, dtype, src, arg, shape, device, alone, line in self._steps:
      u = (unequalled if alone else make)(op, dtype, (nodes[src],) if type(src) is int else src(nodes), arg, shape, device)
      if line == _CALLED: u.origin = called or u.origin
      elif line >= 0 and u.origin is None and lines and (origin := nodes[line].origin) is not None: u.origin = *origin[:2], True
      add(u)
    return [nodes[i] for i in self._outputs]


def unequalled(op: Ops, dtype: DType, src: tuple[UOp, ...], arg: Any, shape: Any, device: str | None) -> UOp:
  """A node that equals no other."""
  u = UOp.unique(op, dtype, src, arg)
  u.__dict__.update(shape=shape, device=device)
  return u


@contextmanager
def nothing_computed() -> Iterator[None]:
  """In the block no value is computed because many tensors have been made: stand-ins have none."""
  look, next_look[0] = next_look[0], sys.maxsize
  try: yield
  finally: next_look[0] = look


def recalled(fn: _F) -> _F:
  """A method of a tensor, called by place, whose result (one tensor or a tuple of them, none of them a view of another) follows
  from what kinds of tensors it is given and from its other arguments: a recipe makes it from the third call with the same on.

  What it may look at is dtype, shape, device, names and whether gradients are needed: the recipe is made of stand-ins that have
  no more. Numbers, which it may fold, and tensors of a class that may have methods of its own are left to it."""
  known: Recent[Any, tuple[Recipe, list[tuple[int, Any]], bool] | None] = Recent(SIGNATURES)

  def recorded(args: Sequence[Any], kind: Any) -> tuple[Recipe, list[tuple[int, Any]], bool]:
    new: dict[UOp, UOp] = {}
    def given(x: Any) -> Any:
      if type(x) is not kind: return x
      if (u := x.lazydata) not in new: new[u] = unequalled(Ops.DETACH, u.dtype, (), None, u.shape, u.device)
      return object.__new__(kind)._hold(new[u], int(x._state > 0))._called(x._names)
    with nothing_computed(): out = fn(*map(given, args))
    results = out if type(out) is tuple else (out,)
    return Recipe([*new.values()], [t.lazydata for t in results]), [(t._state, t._names) for t in results], out is results

  @wraps(fn)
  def call(*args: Any) -> Any:
    kind: Any = type(args[0])
    if kind is not kind._class or variable.looks: return fn(*args)
    key: list[Any] = [mode.grad, dtypes.default_float, dtypes.default_int]
    nodes: list[UOp] = []
    for x in args:
      if type(x) is kind:
        if (u := x._node) is None: u = x._read()
        if (u.op is Ops.CONST or u.op is Ops.EXPAND or u.op is Ops.RESHAPE) and const_value(u) is not None: return fn(*args)
        if u in nodes: key += nodes.index(u), x._state > 0, x._names
        else:
          key += u.dtype, u.shape, u.device, x._state > 0, x._names
          nodes.append(u)
      elif isinstance(x, Valued): return fn(*args)
      else: key += type(x), x
    try: made = known[at := tuple(key)]
    except TypeError: return fn(*args)   # a list, say
    if made is None:
      made = known[at] = recorded(args, kind) if at in known else None
      if made is None: return fn(*args)
    recipe, results, several = made
    out = [object.__new__(kind)._hold(u, state)._called(names)._counted()
           for u, (state, names) in zip(recipe(nodes, origin_now()), results)]
    return tuple(out) if several else out[0]
  return call  # type: ignore[return-value]
