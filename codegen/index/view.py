"""Index transforms, written once: the tensor graph's movement operations and the arrangement's meta-operations.

A transform knows its output shape and how to *pull* an output index back to its input, with the condition under which the input
has that element. A View is a chain of them. The arg of a transform is that of its op, see ``Ops``."""
from __future__ import annotations

import functools
from itertools import accumulate
from typing import Any, Callable, Iterator, NamedTuple, Sequence

from ..ir import SHAPES, Ops, UOp
from . import algebra as ix
from .algebra import Dim as Dim, minus, plus, times

Shape = tuple[Dim, ...]
Indices = tuple[UOp, ...]
Pulled = tuple[Indices, UOp]


def strides_of(shape: Shape) -> Shape:
  """Row-major strides, in elements."""
  return tuple(accumulate((1, *reversed(shape[1:])), times))[::-1] if shape else ()


class Regrouped(tuple[Dim, ...]):
  """The shape after a reshape, with how many dimensions became how many, run by run.

  Sizes alone leave open which dimension of 1 is which. That matters where an index lies behind the end of its dimension."""
  runs: tuple[tuple[int, int], ...]

  @staticmethod
  def of(groups: Sequence[tuple[int, Shape]]) -> Regrouped:
    """From runs: how many dimensions of the input, and the sizes that they become."""
    out = Regrouped(n for _, sizes in groups for n in sizes)
    out.runs = tuple((n, len(sizes)) for n, sizes in groups)
    return out


def _runs(shape: Shape, arg: Shape) -> Iterator[tuple[int, int]]:
  """The smallest runs of dimensions that have equal products."""
  i = j = 0
  while i < len(shape) or j < len(arg):
    i0, j0 = i, j
    a: Dim = 1
    b: Dim = 1
    while True:  # grow the shorter side until both products agree
      if a == b and (i > i0 or j > j0): break
      if ix.count(a) <= ix.count(b) and i < len(shape) and not (a == b and i > i0): a, i = times(a, shape[i]), i + 1
      elif j < len(arg): b, j = times(b, arg[j]), j + 1
      elif i < len(shape): a, i = times(a, shape[i]), i + 1
      else: break
    yield i - i0, j - j0


def _pull_reshape(shape: Shape, arg: Shape, idx: Indices) -> Pulled:
  """(i*4 + j,) <- (i, j): dims are regrouped in runs that have equal products."""
  out: list[UOp] = []
  i = j = 0
  for m, n in arg.runs if isinstance(arg, Regrouped) else _runs(shape, arg):
    flat = ix.const(0)
    for d in range(j, j + n): flat = ix.add(ix.mul(flat, arg[d]), idx[d])
    group: list[UOp] = []
    for d in range(i + m - 1, i, -1):
      size = 1 if shape[d] == 0 else shape[d]   # nothing lies in a dimension of 0
      group.append(ix.mod(flat, size))
      flat = ix.fdiv(flat, size)
    out += [flat, *reversed(group)][:m]
    i, j = i + m, j + n
  return tuple(out), ix.TRUE


def _pull_pad(shape: Shape, arg: Any, idx: Indices) -> Pulled:
  src = tuple(ix.sub(i, lo) if lo != 0 else i for i, (lo, _) in zip(idx, arg))
  valid: list[UOp] = []
  for i, n, (lo, hi) in zip(src, shape, arg): valid += ([ix.ge(i, 0)] if lo != 0 else []) + ([ix.lt(i, n)] if hi != 0 else [])
  return src, ix.both(*valid)


def tile_shape(shape: Shape, arg: Any) -> Shape:
  """Outer counts, then inner sizes, of windows that lie wholly inside."""
  return *(window_count(d, *spec) for d, spec in zip(shape, arg)), *(spec[0] for spec in arg)


def rest(d: Dim, size: Dim, dilation: Dim) -> Dim:
  """What a dimension has behind its first window."""
  return minus(minus(d, times(minus(size, 1), dilation)), 1)


def window_count(d: Dim, size: Dim, stride: Dim, dilation: Dim, partial: bool = False) -> Dim:
  """How many windows a dimension has; with ``partial`` one more for elements that are left over, and one where there is none."""
  if not partial: return plus(ix.over(rest(d, size, dilation), stride), 1)
  if stride == size and dilation == 1 or d == 0: return ix.rounds(d, size)
  return ix.number(ix.greatest(ix.node(plus(ix.rounds(rest(d, size, dilation), stride), 1)), 1))


def _pull_tile(shape: Shape, arg: Any, idx: Indices) -> Pulled:
  n, out = len(shape), []
  for d, (size, stride, dilation, *shifted) in enumerate(arg):
    start = ix.mul(idx[d], stride)
    if shifted: start = ix.least(start, rest(shape[d], size, dilation))
    out.append(ix.add(start, ix.mul(idx[n + d], dilation)))
  return tuple(out), ix.TRUE


def _pull_untile(shape: Shape, arg: Any, idx: Indices) -> Pulled:
  full, tile = arg
  n, outer, valid = len(full), [], []
  for d, (_, stride, dil) in enumerate(tile):
    at = ix.sub(idx[d], ix.mul(idx[n + d], dil))
    o = ix.fdiv(at, stride)
    if stride != 1: valid.append(ix.eq(ix.mod(at, stride), 0))
    valid += [ix.ge(o, 0), ix.lt(o, shape[d])]
    outer.append(o)
  return (*outer, *idx[n:]), ix.both(*valid)


class Transform(NamedTuple):
  """What an op does, as functions of the input's shape and the op's arg (and the output's indices)."""
  shape: Callable[[Shape, Any], Shape]
  pull: Callable[[Shape, Any, Indices], Pulled]


TRANSFORMS: dict[Ops, Transform] = {
  Ops.RESHAPE: Transform(lambda s, a: a, _pull_reshape),
  Ops.PERMUTE: Transform(
    lambda s, a: tuple(s[i] for i in a), lambda s, a, idx: (tuple(idx[a.index(d)] for d in range(len(a))), ix.TRUE)),
  Ops.EXPAND: Transform(
    lambda s, a: a, lambda s, a, idx: (tuple(ix.const(0) if n == 1 and m != 1 else i for n, m, i in zip(s, a, idx)), ix.TRUE)),
  Ops.PAD: Transform(lambda s, a: tuple(plus(plus(n, lo), hi) for n, (lo, hi) in zip(s, a)), _pull_pad),
  Ops.SHRINK: Transform(lambda s, a: tuple(minus(e, b) for b, e in a),
    lambda s, a, idx: (tuple(ix.add(i, b) if b != 0 else i for i, (b, _) in zip(idx, a)), ix.TRUE)),
  Ops.FLIP: Transform(lambda s, a: s, lambda s, a, idx: (
    tuple(ix.sub(ix.node(minus(n, 1)), i) if d in a else i for d, (n, i) in enumerate(zip(s, idx))), ix.TRUE)),
  Ops.TILE: Transform(tile_shape, _pull_tile),
  Ops.UNTILE: Transform(lambda s, a: (*a[0], *s[len(a[0]) :]), _pull_untile)}


def pull(op: Ops, shape: Shape, arg: Any, idx: Indices) -> Pulled: return TRANSFORMS[op].pull(shape, arg, idx)


# ---- shapes of tensor graph nodes
def _moved(u: UOp) -> Any: return TRANSFORMS[u.op].shape(u.src[0].shape, u.arg)


def _cat(u: UOp) -> Any:
  first = u.src[0].shape
  return *first[:u.arg], functools.reduce(plus, [s.shape[u.arg] for s in u.src]), *first[u.arg + 1:]


SHAPES.update({
  **dict.fromkeys(TRANSFORMS, _moved),
  Ops.ALU: lambda u: u.src[-1].shape,
  Ops.CONST: lambda u: (),
  Ops.BUFFER: lambda u: tuple(u.arg.shape),
  Ops.IOTA: lambda u: (u.arg,),
  Ops.REDUCE_AXIS: lambda u: tuple([1 if d in u.arg[1] else n for d, n in enumerate(u.src[0].shape)]),
  Ops.SORT_AXIS: lambda u: tuple([u.arg[3] or n if d == u.arg[0] else n for d, n in enumerate(u.src[0].shape)]),
  Ops.GATHER: lambda u: u.src[1].shape + u.src[0].shape[len(u.src) - 1:],
  Ops.CAT: _cat})


# ---- Views

class View:
  """A chain of transforms from a source shape: what an arrangement and a movement chain are made of.

  ``steps`` are the transforms, each an op and its arg; ``shapes`` the source's shape and that after each step."""
  __slots__ = "steps", "shapes"

  def __init__(self, source: Shape):
    self.steps: tuple[tuple[Ops, Any], ...] = ()
    self.shapes: tuple[Shape, ...] = (source,)

  @property
  def source(self) -> Shape: return self.shapes[0]
  @property
  def shape(self) -> Shape: return self.shapes[-1]

  def then(self, op: Ops, arg: Any, shape: Shape | None = None) -> View:
    """This view with one more transform; ``shape`` is what it gives, where there is a shorter expression for run-time sizes."""
    out = View(self.source)
    out.steps, out.shapes = (*self.steps, (op, arg)), (*self.shapes, shape or TRANSFORMS[op].shape(self.shape, arg))
    return out

  def pull(self, idx: Sequence[UOp]) -> Pulled:
    """The source index of an output index, and the condition under which there is one."""
    at, valid = tuple(idx), ix.TRUE
    for (op, arg), shape in zip(reversed(self.steps), self.shapes[-2::-1]):
      at, v = pull(op, shape, arg, at)
      valid = ix.both(valid, v)
    return at, valid

  def __repr__(self) -> str: return str(self.source) + "".join(f".{op.name.lower()}({arg})" for op, arg in self.steps)
