"""Plans for sizes that are not known: the graph of a second batch size becomes one of a size N, and a third costs no compile.

When a *skeleton* comes again with other sizes, those that differ become run-time sizes (SIZEs) or expressions of them: (32, 320)
and (48, 480) are N and 10*N. That is a guess, so each use is checked (docs/architecture.md, the engine).
"""
from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, Callable, Collection, Hashable, Iterable, Mapping, NamedTuple, Sequence

from ntgrad.codegen import index as ix
from ntgrad.codegen.index import evaluator, sizes_of
from ntgrad.codegen.ir import MOVEMENT, BinaryOps, DType, Ops, UnaryOps, UOp, dtypes
from ntgrad.codegen.kernel import substitute
from ntgrad.codegen.passes.one_pass_rule import MOST_WITHIN
from ntgrad.codegen.passes.scatters import worth_sorting
from ntgrad.graph import BoundInt, Derived
from ntgrad.schedule.placement import Sink, offset_of

from .buffer import Buffer, Storage, number_buffer, slice_of
from .device import get_device
from .keeping import device_of
from .size_variants import names_beside
from .traced_sizes import value_now

MOST_SAMPLES = 8                                  # graphs of one skeleton that a guess is made from
FACTORS = 64                                      # how many times another a size is looked at for
_OPEN = -1                                        # in the place of a size
_COMMON = 0.0, 0.5, 1.0, 2.0                      # floats that stay part of a kernel
_SMALL = 0, 1                                     # sizes that stay what they are: other rules hold for them
_Ints = tuple[int, ...]
Sample = tuple[_Ints, tuple[Any, ...]]  # the sizes and the numbers of a graph
NumberNode = tuple[Hashable, DType, Any]          # what a node is without its number, the dtype, the number or the Buffer


class Skeleton(NamedTuple):
  """A graph without its sizes and numbers, and these, in order. ``dims`` tells which of the sizes are those of buffers."""
  key: tuple[Any, ...]
  sizes: _Ints
  numbers: tuple[Any, ...]
  dims: tuple[bool, ...]

  @property
  def constants(self) -> tuple[Any, ...]:
    """The numbers without the memory of slices."""
    return tuple([None if isinstance(n, Buffer) else n for n in self.numbers])

  @property
  def declared(self) -> bool:
    """Whether some of the sizes, places and numbers are made of Variables."""
    return any([type(n) is BoundInt for n in self.sizes]) or any(
      [type(n) is Derived or isinstance(n, Buffer) and type(n.offset) is BoundInt for n in self.numbers])


def made_of_variables(order: Sequence[UOp]) -> bool:
  """Whether sizes, places or numbers in a graph are made of Variables."""
  for u in order:
    if any([type(n) is BoundInt for n in u.shape]) or type(u.arg) is Derived: return True
    if u.op is Ops.SHRINK or u.op is Ops.UPDATE:
      parts = [arg for op, arg in (u.arg if u.op is Ops.UPDATE else ((u.op, u.arg),)) if op is Ops.SHRINK]
      if any([type(n) is BoundInt for part in parts for ends in part for n in ends]): return True
  return False


def used_on(order: Sequence[UOp]) -> Callable[[UOp], Collection[str]]:
  """On which device a node of a graph is, or on which ones it is used, if it has none of its own."""
  found: dict[UOp, set[str]] = {}
  default = {device_of(order)}
  for u in reversed(order) if any([u.op is Ops.COPY for u in order]) else ():
    here = default if u.op is Ops.COPY else found.get(u, default) if u.device is None else {u.device}
    for s in u.src:
      if s.device is None: found.setdefault(s, set()).update(here)
  return lambda u: found.get(u, default) if u.device is None else (u.device,)


def number_nodes(sinks: Sequence[Sink], order: list[UOp]) -> dict[int, NumberNode]:
  """What ``_parameter`` finds in a graph, and is used on one device, by the number of the node in ``order``."""
  targets, on = {target.arg.storage for _, target in sinks if target is not None}, used_on(order)
  return {i: p for i, u in enumerate(order) if (p := _parameter(u, targets)) is not None and len(on(u)) == 1}


def _parameter(u: UOp, written: Collection[Storage]) -> NumberNode | None:
  """What another call may well have otherwise in a node (a learning rate, not the 0 of a relu; the place of a write or a slice):
  the node without it, its dtype, and the number; of a slice of memory that is not among what is ``written``, its Buffer."""
  if u.op is Ops.CONST and u.dtype.kind == "f" and (type(u.arg) is Derived or math.isfinite(u.arg) and abs(u.arg) not in _COMMON):
    return ("number", u.dtype), u.dtype, u.arg
  if u.op is Ops.SHRINK:
    part = slice_of(u)
    return None if part is None or part.storage in written else (("slice", u.dtype, u.shape, part.align), u.dtype, part)
  found = offset_of(u) if u.op is Ops.UPDATE else None
  return None if found is None else (("place", u.dtype, found[0]), dtypes.int32, found[1])


def open_numbers(order: Sequence[UOp], numbers: Mapping[int, NumberNode]) -> dict[int, NumberNode]:
  """What may be other in graphs of one skeleton: whole numbers may come of sizes; a write at a number is one at a size."""
  found, on = dict[int, NumberNode](), used_on(order)
  for i, u in enumerate(order):
    if u.op is Ops.CONST and u.dtype.kind in "iu" and abs(u.arg) > 1 and len(on(u)) == 1:
      found[i] = ("number", u.dtype), u.dtype, u.arg
    elif i in numbers and u.op is not Ops.UPDATE: found[i] = numbers[i]
  return found


def number_node(u: UOp, devices: Iterable[str], number: NumberNode) -> UOp:
  """The BUFFER that is given for the number of a node, which is used on one device."""
  (device,), (_, dtype, value) = devices, number
  return value.node if isinstance(value, Buffer) else number_buffer(device, dtype, value, (1,) if u.op is Ops.UPDATE else ()).node


def _shape(shape: Sequence[int], size: Callable[[int], Any]) -> tuple[Any, ...]:
  """A shape with other sizes, but for 0 and 1."""
  return tuple([int(n) if n in _SMALL else size(n) for n in shape])


def _ends(begin: int, end: int, size: Callable[[int], Any]) -> tuple[Any, Any]:
  """Ends of a SHRINK: where a dimension of 0 or 1 is left, the beginning says where it ends."""
  if end == 0: return 0, 0
  first, n = size(begin), end - begin
  if n not in _SMALL: return first, size(end)
  return first, int(n) if first == _OPEN else ix.plus(first, int(n))


def _argument(op: Ops, arg: Any, size: Callable[[int], Any]) -> Any:
  """The argument of a node with what ``size`` gives in the place of its sizes, asked in their order."""
  if op is Ops.RESHAPE or op is Ops.EXPAND: return _shape(arg, size)
  if op is Ops.PAD: return tuple([(0, 0) if lo == hi == 0 else (size(lo), size(hi)) for lo, hi in arg])
  if op is Ops.SHRINK: return tuple([_ends(begin, end, size) for begin, end in arg])
  if op is Ops.IOTA: return _shape((arg,), size)[0]
  if op is Ops.UNTILE: return _shape(arg[0], size), arg[1]
  if op is Ops.CALL: return arg[0].base or arg[0], _shape(arg[0].sizes, size), *arg[1:]
  return tuple([(o, _argument(o, a, size)) for o, a in arg]) if op is Ops.UPDATE else arg


def sorted_entries(u: UOp) -> list[int]:
  """How many entries the index of a write has, where it is sorted."""
  sizes, device = u.src[1 + (u.op is not Ops.SCATTER)].shape, u.device
  if device is None or not all(type(n) is int for n in sizes): return []
  return [n] if worth_sorting(n := math.prod(sizes), get_device(device).renderer.target) else []


def _widths(order: Sequence[UOp], sources: Callable[[UOp], _Ints]) -> list[int]:
  """How many elements the products sum that exponentials are made of, if a program has all of them: how a graph with attention is
  cut into kernels depends on the width of its heads (schedule/chains.py)."""
  made: dict[int, int] = {}   # of places: what is made of such a product element by element
  found: dict[int, None] = {}
  for i, u in enumerate(order):
    if u.op is Ops.REDUCE_AXIS:
      n = [u.src[0].shape[d] for d in u.arg[1]]
      if u.arg[0] is BinaryOps.ADD and u.src[0].arg is BinaryOps.MUL and all(type(x) is int for x in n):
        if 1 < math.prod(n) <= MOST_WITHIN: made[i] = math.prod(n)
    elif u.op is Ops.ALU or u.op is Ops.CAST or u.op in MOVEMENT:
      if (n := [made[s] for s in sources(u) if s in made]): made[i] = n[0]
      if n and u.arg in (UnaryOps.EXP, UnaryOps.EXP2): found[n[0]] = None
  return list(found)


def skeleton(order: Sequence[UOp], sources: Callable[[UOp], _Ints], numbers: Mapping[int, NumberNode],
             seen: Callable[[int, UOp], tuple[_Ints, Any]] = lambda _, u: (u.shape, u.arg)) -> Skeleton:
  """A graph in ``order`` without its sizes and ``numbers`` (by place); ``sources`` gives the places of a node's sources,
  ``seen`` the shape and the argument of the node at a place."""
  key: list[Any] = []
  sizes: list[int] = []
  given: list[Any] = []
  dims: list[bool] = []
  def size(n: int) -> int:
    """Leaves a size out."""
    sizes.append(n)
    dims.append(u.op is Ops.BUFFER)
    return _OPEN
  for i, u in enumerate(order):
    if i in numbers:
      _, dtype, value = numbers[i]
      if isinstance(value, Buffer): key.append(("slice", dtype, value.align, _shape(value.shape, size)))
      else: key.append(("number", dtype))
      given.append(value)
    elif u.op is Ops.BUFFER: key.append((u.dtype, u.arg.device, u.arg.signature[3:], _shape(seen(i, u)[0], size)))
    else:
      shape, arg = seen(i, u)
      key.append((u.op, u.dtype, float.hex(arg) if type(arg) is float else _argument(u.op, arg, size), sources(u)))
      if u.op is Ops.SORT_AXIS: key.append(u.src[0].shape[u.arg[0]])   # how a row is sorted depends on how long it is,
      elif u.op is Ops.SCATTER or u.op is Ops.UPDATE and len(u.src) > 2: key += sorted_entries(u)   # and a long index is sorted
      if u.op is Ops.SHRINK or u.op is Ops.PAD: key.append(tuple(n if n in _SMALL else _OPEN for n in shape))
  key += _widths(order, sources)
  return Skeleton(tuple(key), tuple(sizes), tuple(given), tuple(dims))


# ---- a guess

def guess(samples: Sequence[_Ints], dims: Sequence[bool],
          declared: bool = False) -> tuple[tuple[ix.Dim, ...], tuple[tuple[ix.Size, int], ...]]:
  """An expression for each size of several graphs, and the run-time sizes with the places where they are found. Of one graph
  all sizes are run-time sizes, unless some are ``declared`` to be."""
  known: dict[_Ints, UOp] = {}
  made: list[tuple[ix.Size, int]] = []
  out: list[ix.Dim] = []
  every = list(zip(*samples))   # of each place
  alone = len(samples) == 1
  named: dict[str, tuple[UOp, int]] = {}   # Variables that people named, and their values
  for place, n in enumerate(samples[-1]):
    if type(n) is BoundInt and n.node.op is Ops.SIZE and (size := n.node.arg).name not in named:
      size = size._replace(lower=size.lower if min(every[place]) < 2 else max(size.lower, 2), hint=int(n))
      made.append((size, place))
      known[every[place]] = size.node
      named[size.name] = size.node, n
  free = names_beside(named)
  def fresh(place: int) -> UOp:
    """A run-time size of its own."""
    size = ix.Size(next(free), 2 if min(every[place]) >= 2 else 0, hint=every[place][0])
    made.append((size, place))
    return size.node
  def stays(values: _Ints) -> bool: return len(set(values)) == 1 and (not alone or declared)
  for place, values in enumerate(every):   # dimensions come before what is made of them
    if not dims[place] or values in known or type(values[-1]) is BoundInt or stays(values): continue
    known[values] = fresh(place)
  for place, values in enumerate(every):
    n = values[-1]
    if type(n) is BoundInt and value_now(n.node, lambda s: named[s.name][1]) == int(n):
      out.append(ix.number(substitute((n.node,), {s.node: named[s.name][0] for s in sizes_of((n.node,))})[0]))
    elif stays(values) or alone and n in _SMALL: out.append(int(n))
    else:
      found = known.get(values)
      if found is None and not dims[place]: found = _related(values, known)
      if found is None: found = fresh(place)
      known.setdefault(values, found)
      out.append(ix.number(found))
  return tuple(out), tuple(made)


def _related(values: _Ints, known: Mapping[_Ints, UOp]) -> UOp | None:
  """A size as a sum, a multiple, a part, or a product of those that are known; None for any other."""
  def times(base: _Ints, of: _Ints = values) -> int:
    """How many times ``base`` it is, everywhere alike; 0 where it is not."""
    found = {v // b if b and v % b == 0 else 0 for v, b in zip(of, base)}
    return found.pop() if len(found) == 1 else 0
  apart = [other for other in known if len({v - o for v, o in zip(values, other)}) == 1]
  if apart:   # the nearest: of one graph, each is some number apart
    nearest = min(apart, key=lambda other: abs(values[0] - other[0]))
    return ix.add(known[nearest], values[0] - nearest[0])
  for other, e in known.items():
    if k := times(other): return ix.mul(e, k)
    if k := times(values, other): return ix.fdiv(e, k)
  for (a, e), (b, f) in itertools.combinations_with_replacement(known.items(), 2):
    if k := times(tuple(x * y for x, y in zip(a, b))): return ix.mul(ix.mul(e, f), k)
  return next(filter(None, (_on_a_line(values, other, e) for other, e in known.items())), None)


def _on_a_line(values: _Ints, other: _Ints, e: UOp) -> UOp | None:
  """A size as k*N + c, or as (N + c) // k, of one that is known as ``e`` and was ``other``; None for any other."""
  rise, run = values[-1] - values[0], other[-1] - other[0]
  if not rise or not run: return None
  if rise % run == 0 and abs(k := rise // run) <= FACTORS:
    c = values[0] - k * other[0]
    if all(v == k * o + c for v, o in zip(values, other)): return ix.add(ix.mul(e, k), c)
  k = round(run / rise)
  if not 1 < k <= FACTORS: return None
  for c in range(-2 * k, 2 * k + 1):
    if all(v == (o + c) // k for v, o in zip(values, other)): return ix.fdiv(ix.add(e, c), k)
  return None


# ---- a graph with sizes

@dataclass(frozen=True)
class Template:
  """A graph with run-time sizes, its nodes in order, and what must hold of a graph that it stands for."""
  order: tuple[UOp, ...]
  new: Mapping[UOp, UOp]                          # the node of the graph that it was made from -> its own
  sizes: tuple[ix.Size, ...]
  places: _Ints                         # where each size is found among those of a graph
  given: Callable[[Sequence[int]], _Ints]         # values for the sizes -> ``exprs``, ``conditions``
  numbers: tuple[Any, ...]                        # the numbers that stay, None for those that are parameters
  exprs: tuple[ix.Dim, ...]                       # all sizes of a graph
  conditions: tuple[UOp, ...]                     # no dimension is empty

  def alike(self, other: Template) -> bool:
    """Whether another one, of graphs of the same skeleton, is the same."""
    mine, theirs = [(t.exprs, t.sizes, t.places, tuple(map(repr, t.numbers))) for t in (self, other)]
    return mine == theirs

  def values(self, s: Skeleton) -> _Ints | None:
    """The values of the sizes in a graph with this skeleton; None where it is none of this template's."""
    values = tuple([int(s.sizes[p]) for p in self.places])
    if any([n is not None and n != m for n, m in zip(self.numbers, s.numbers)]): return None
    if any([v < size.lower for v, size in zip(values, self.sizes)]): return None   # type: ignore[operator]
    found, n = self.given(values), len(self.exprs)
    return values if found[:n] == s.sizes and all(found[n:]) else None


def template(order: Sequence[UOp], source: Callable[[UOp], UOp], numbers: Mapping[int, NumberNode], samples: Sequence[Sample],
             dims: Sequence[bool], declared: bool = False) -> Template:
  """The template of graphs of one skeleton, from the last of them in ``order``; ``source`` finds what stands for a source."""
  exprs, made = guess([m[0] for m in samples], dims, declared)
  todo = iter(exprs)
  new: dict[UOp, UOp] = {}
  def size(n: int) -> ix.Dim: return next(todo)
  for i, u in enumerate(order):
    value = numbers[i][2] if i in numbers else u.arg if u.op is Ops.BUFFER else None
    if isinstance(value, Buffer): new[u] = _memory(value, _shape(value.shape, size))
    elif value is not None: new[u] = u
    else:
      src, arg = tuple(new[source(s)] for s in u.src), _argument(u.op, u.arg, size)
      if u.op is Ops.CALL: arg = arg[0].with_sizes(arg[1]) if arg[1] else arg[0], *arg[2:]
      # not ``replace`` where sizes are: ints that remember what they are made of equal those that do not
      new[u] = u.replace(src) if u.is_unique else UOp(u.op, u.dtype, src, arg)
  sizes = tuple(s for s, _ in made)
  fixed = tuple(None if len(set(map(repr, each))) > 1 or isinstance(each[-1], Derived) else each[-1]
                for each in zip(*[constants for _, constants in samples]))
  shapes: dict[Any, None] = dict.fromkeys(n for u in new.values() for n in u.shape if isinstance(n, UOp))
  open_ = tuple(c for n in shapes if (c := ix.ge(n, 1)) is not ix.TRUE)
  return Template(tuple(new[u] for u in order), new, sizes, tuple(p for _, p in made), evaluator((*exprs, *open_), sizes),
                  fixed, exprs, open_)


def _memory(b: Buffer, shape: tuple[Any, ...]) -> UOp:
  """A BUFFER of sizes that are not known, which has no memory."""
  made = Buffer(b.device, shape, b.dtype, Storage(b.device, 0))
  made.signature, made.align = (shape, b.dtype, b.device, *b.signature[3:]), b.align
  return made.node


def template_text(t: Template) -> str:
  """What has become a size, in words: for DEBUG=1."""
  places: dict[UOp, list[str]] = {}
  for i, u in enumerate(u for u in t.order if u.op is Ops.BUFFER):
    for d, n in enumerate(u.shape):
      if isinstance(n, UOp): places.setdefault(n, []).append(f"dimension {d} of input {i}")
  dims = list(map(" = ".join, places.values()))   # kernels have names of their own for them
  if free := len(set(t.sizes) - {n.arg for n in places if n.op is Ops.SIZE}):
    dims.append(f"and {free} more in its operations" if dims else f"{free} in its operations")
  return ", ".join(dims)
