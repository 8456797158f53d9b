"""Recipes: graphs that are made again of other nodes, without the rules that made them the first time."""
from __future__ import annotations

import inspect
import threading
from contextlib import contextmanager
from functools import lru_cache, reduce, wraps
from itertools import islice
from operator import itemgetter, or_
from typing import Any, Callable, Collection, Iterable, Iterator, Mapping, Sequence, TypeVar

from ntgrad.codegen.ir import MOVEMENT, SHAPES, DType, NodeTable, Ops, Recent, UOp, config, dtypes, toposort
from ntgrad.codegen.ir.elementwise import const_value, make

from . import variable
from .checks import Valued
from .modes import autocast, mode
from .origins import Origin, carry, gradient_of, note_value, origin_now, own_lines

_F = TypeVar("_F", bound=Callable[..., Any])
_taker: Any = itemgetter
_NO_LINE, _CALLED = -1, -2   # in place of the number of an input whose line a node has
# what the engine looks for in a graph beside DETACHs that are marks
_TELLING = frozenset({Ops.UPDATE, Ops.CALL, Ops.CUSTOM, Ops.COPY, Ops.OUTPUT})
_FEW = 3           # nodes an output, from which on it is less work to make them later
SIGNATURES = 256   # of one method, whose recipes are kept


class _Recording(threading.local):
  """``blocks``: of ``nothing_computed``, in which this thread is."""
  blocks = 0


recording = _Recording()


class Recipe:
  """What makes ``outputs`` of ``inputs``, as a list of nodes to make: a call with other inputs, of the same shapes, dtypes and
  devices, gives what the rules would have given for them.

  ``exp(a) * 2`` of a -> EXP(input 0), MUL(node 1, 2). What no input is beneath, constants alone, is the same node each time.
  ``lines`` says of a node which input's line it is a gradient of; without it, what has a line now gets the line of a call.
  ``passes``: gradients pass. Raises AssertionError for an input that comes twice, or where memory lies beneath that is none."""
  __slots__ = "shapes", "reads", "passes", "_inputs", "_noted", "_steps", "_kept", "_outputs", "_results", "_moved"

  def __init__(self, inputs: Sequence[UOp], outputs: Sequence[UOp], lines: Mapping[UOp, int] | None = None,
               passes: bool = False) -> None:
    self.passes = passes
    assert len(set(inputs)) == len(inputs), "an input of a recipe comes twice"
    below = dict.fromkeys(toposort(outputs, set(inputs).__contains__))
    self._inputs = [i for i, u in enumerate(inputs) if u in below]
    place = {inputs[i]: k for k, i in enumerate(self._inputs)}
    needs = {u: 1 << k for u, k in place.items()}   # a bit for each input
    order = [u for u in below if u not in place]
    for u in order: needs[u] = reduce(or_, [needs[s] for s in u.src], 0)
    kept = [u for u in order if not needs[u]]
    assert not any([u.op is Ops.BUFFER or u.is_unique for u in kept]), "memory beneath a recipe that is none of its inputs"
    self._kept = tuple(kept)
    place.update({u: i for i, u in enumerate(kept, len(place))})
    noted = {i: n for n, i in enumerate(dict.fromkeys((lines or {}).values()))}   # inputs whose lines are, and their numbers
    self._noted = list(noted)
    steps = []
    for u in order:
      if not needs[u]: continue
      place[u] = len(place)
      src: Any = [place[s] for s in u.src]
      line = _NO_LINE if lines is not None or u.origin is None else _CALLED
      if lines is not None and u in lines: line = noted[lines[u]]
      steps.append((u.op, u.dtype, _taker(*src) if len(src) > 1 else src[0], u.arg, u.shape, u.device, u.is_unique, line))
    self._steps, self._outputs = tuple(steps), [place[u] for u in outputs]
    made = {u: line for u, (*_, line) in zip([u for u in order if needs[u]], steps)}
    moved = self._results_of(outputs, made)
    # what its OUTPUTs stand for, and of each output the moves from there
    results = {u: i for i, u in enumerate(dict.fromkeys([u for u, _ in moved]))}
    self._results = [(place[u], u.dtype, u.shape, u.device, made[u]) for u in results]
    self._moved = [(results[u], moves) for u, moves in moved]
    self.shapes, self.reads = [u.shape for u in results], [needs[u] for u in results]

  def _results_of(self, outputs: Sequence[UOp], made: Collection[UOp]) -> list[tuple[UOp, list[Any]]]:
    """Of each output what it is a reshape of, and the reshapes; [] where some output is a view of what is given, or a node says
    more than what is computed: then all are made at once."""
    if len(made) < _FEW * len(outputs) or any([
      u.op in _TELLING or u.op is Ops.DETACH and u.arg is not None or u.is_unique and self.passes for u in made]): return []
    out = []
    for u in outputs:
      moves: list[Any] = []
      while u.op is Ops.RESHAPE and u in made:
        moves.insert(0, (u.op, u.dtype, u.arg, u.shape, u.device))
        u = u.src[0]
      base = u
      while (base.op in MOVEMENT or base.op is Ops.DETACH) and base in made: base = base.src[0]
      if base not in made or u.device is None: return []
      out.append((u, moves))
    return out

  def __call__(self, inputs: Sequence[UOp], called: Origin | None = None) -> list[UOp]:
    """The outputs for these inputs, made by the line ``called``."""
    nodes = self._nodes([inputs[i] for i in self._inputs], called, self._lines(inputs))
    return [nodes[i] for i in self._outputs]

  def later(self, inputs: Sequence[UOp], called: Origin | None = None, kept: Sequence[tuple[int, UOp]] = ()) -> list[UOp]:
    """The outputs for these inputs as nodes whose shape, dtype and device alone are known until a plan is made, or rules for
    gradients are asked: OUTPUTs of an APPLY, and reshapes of these. All are made now where they have to be. ``kept``: other
    APPLYs, by number, of whose inner values some are kept, which may be among what is made."""
    if not self._moved: return self(inputs, called)
    call = make(Ops.APPLY, dtypes.bool, tuple([inputs[i] for i in self._inputs]), self, (), None)
    if call.origin is None: call.origin = called
    call.note = self._lines(inputs)
    if kept: kept_beneath.put(call, kept)
    found = [make(Ops.OUTPUT, dtype, (call,), i, shape, device) for i, (_, dtype, shape, device, _) in enumerate(self._results)]
    if config.origins:
      for u, (*_, line) in zip(found, self._results): _note(u, line, called, call.note)
    out = []
    for i, moves in self._moved:
      u = found[i]
      for op, dtype, arg, shape, device in moves: u = make(op, dtype, (u,), arg, shape, device)
      out.append(u)
    return out

  def nodes_of(self, call: UOp) -> list[UOp]:
    """All nodes that an APPLY stands for, its sources first. They stay as long as it does."""
    if (found := _made.get(call)) is None: _made.put(call, found := self._nodes(call.src, call.origin, call.note or ()))
    return found

  def made(self, call: UOp, src: Iterable[UOp] | None = None) -> list[UOp]:
    """What the OUTPUTs of an APPLY stand for, made now of its sources or of others in their place."""
    nodes = self.nodes_of(call) if src is None else self._nodes(src, call.origin, call.note or ())
    return [nodes[i] for i, *_ in self._results]

  def _lines(self, inputs: Sequence[UOp]) -> list[Origin | None]:
    return [inputs[i].origin for i in self._noted] if config.origins else []

  def _nodes(self, inputs: Iterable[UOp], called: Origin | None, lines: Sequence[Origin | None]) -> list[UOp]:
    nodes = [*inputs, *self._kept]
    add = nodes.append
    for op, dtype, src, arg, shape, device, alone, line in self._steps:
      u = (unequalled if alone else make)(op, dtype, (nodes[src],) if type(src) is int else src(nodes), arg, shape, device)
      if line != _NO_LINE: _note(u, line, called, lines)
      add(u)
    return nodes


def _note(u: UOp, line: int, called: Origin | None, lines: Sequence[Origin | None]) -> None:
  """Note the line that has made a node: that of a call, or that of the input which it is a gradient of."""
  if u.origin is not None: return
  if line == _CALLED: u.origin = called
  elif line >= 0 and lines and (origin := lines[line]) is not None: u.origin = gradient_of(origin)


_made: NodeTable[list[UOp]] = NodeTable()   # APPLYs: what they stand for, where that has been asked for
# APPLYs: the places of those of their inner nodes whose values are kept; and which such APPLYs others are made of, by number
kept_within: NodeTable[tuple[int, ...]] = NodeTable()
kept_beneath: NodeTable[Sequence[tuple[int, UOp]]] = NodeTable()


def stood_for(u: UOp) -> UOp:
  """What an OUTPUT stands for, made now."""
  call: UOp = u.src[0]
  return call.arg.made(call)[u.arg]


def sources_of_output(u: UOp, but: int) -> list[UOp]:
  """The sources of its APPLY that an OUTPUT needs, but for those of some bits."""
  call: UOp = u.src[0]
  src = call.src
  return [src[i] for i in _places(call.arg.reads[u.arg], but)]


@lru_cache(maxsize=4096)
def _places(bits: int, but: int) -> list[int]:
  left, out = bits & ~but, []
  while left:
    out.append((left & -left).bit_length() - 1)
    left &= left - 1
  return out


def written_out(nodes: Sequence[UOp]) -> list[UOp]:
  """Nodes of graphs with what recipes make in the place of their OUTPUTs."""
  new, made = dict[UOp, UOp](), dict[UOp, list[UOp]]()
  for u in toposort(nodes):
    if u.op is Ops.APPLY: made[u] = u.arg.made(u, [new[s] for s in u.src])
    elif u.op is Ops.OUTPUT: new[u] = made[u.src[0]][u.arg]
    else:
      new[u] = u.replace(tuple([new[s] for s in u.src]))
      carry(u, new[u])
  return [new[u] for u in nodes]


SHAPES[Ops.OUTPUT] = lambda u: u.src[0].arg.shapes[u.arg]


def unequalled(op: Ops, dtype: DType, src: tuple[UOp, ...], arg: Any, shape: Any, device: str | None) -> UOp:
  """A node that equals no other."""
  u = UOp.unique(op, dtype, src, arg)
  u.__dict__.update(shape=shape, device=device)
  return u


@contextmanager
def nothing_computed() -> Iterator[None]:
  """In the block this thread computes no value because many tensors have been made (``engine.realize.cut``): stand-ins have none,
  and what is computed is no node that a recipe can make."""
  recording.blocks += 1
  try: yield
  finally: recording.blocks -= 1


def recalled(fn: _F) -> _F:
  """A method of a tensor whose result (one tensor or a tuple of them, none of them a view of another) follows from what kinds of
  tensors it is given and from its other arguments: a recipe makes it from the third call with the same on.

  What it may look at is dtype, shape, device, names, whether gradients are needed, and constants, which it may fold: the recipe
  is made of stand-ins that have no more. Tensors of a class that may have methods of its own are left to it."""
  defaults = {k: p.default for k, p in inspect.signature(fn).parameters.items()}
  known: Recent[Any, tuple[Recipe, list[tuple[int, Any]], bool] | None] = Recent(SIGNATURES)

  def recorded(args: Sequence[Any], kind: Any) -> tuple[Recipe, list[tuple[int, Any]], bool]:
    new: dict[UOp, UOp] = {}
    def given(x: Any) -> Any:
      if type(x) is not kind: return x
      u = x.lazydata
      if const_value(u) is None and u not in new: new[u] = unequalled(Ops.DETACH, u.dtype, (), None, u.shape, u.device)
      return object.__new__(kind)._hold(new.get(u, u), int(x._state > 0))._called(x._names)
    with config(origins=1), nothing_computed(): out = fn(*map(given, args))   # a recipe stays when lines are asked for later
    results = out if type(out) is tuple else (out,)
    recipe = Recipe([*new.values()], [t.lazydata for t in results], passes=True)
    return recipe, [(t._state, t._names) for t in results], out is results

  @wraps(fn)
  def call(*args: Any, **named: Any) -> Any:
    if named: args = *args, *[named[k] if k in named else v for k, v in islice(defaults.items(), len(args), None)]
    kind: Any = type(args[0])
    if kind is not kind._class or variable.looks: return fn(*args)
    key: list[Any] = [mode.grad, autocast.get(), dtypes.default_float, dtypes.default_int, config.conv_tf32]
    nodes: list[UOp] = []
    for x in args:
      if type(x) is kind:
        if (u := x._node) is None: u = x._read()
        if (u.op is Ops.CONST or u.op is Ops.EXPAND or u.op is Ops.RESHAPE) and const_value(u) is not None:
          key += u, x._state > 0, x._names
        elif u in nodes: key += nodes.index(u), x._state > 0, x._names
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
    line = origin_now()
    out = [object.__new__(kind)._hold(u, state)._called(names) for u, (state, names) in zip(recipe.later(nodes, line), results)]
    for t in out:
      if line is not None and ((u := t._alias.node).origin is not line or own_lines):
        note_value(u, line, t._alias, [x for x in args if type(x) is kind])
    for t in out: t._counted()
    return tuple(out) if several else out[0]
  return call  # type: ignore[return-value]
