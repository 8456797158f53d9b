"""Names of dimensions: which name stands at which dimension of a result, and what is said where names or sizes do not fit.

``Tensor._names`` is None where no dimension has a name, and then nothing here is called but ``axis_of``. An operation says where
the dimensions of its tensors go, its *places*, and names go along (docs/architecture.md, What holds everywhere).
"""
from __future__ import annotations

import math
from typing import Any, Callable, Iterable, Sequence

import numpy as np

from ntgrad.codegen.index import TRANSFORMS, count, text_of
from ntgrad.codegen.ir import ArgumentError, AxisError, Ops, ShapeError, shown

from .variable import BoundInt

_Shape = tuple[int, ...]
Names = tuple[str | None, ...]
Places = Sequence[int | None]   # of each dimension of a tensor, which dimension of another one it is; None: of none
_Move = tuple[Ops, Any]

_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth".split()
_ZERO = 2 ** 61 - 1   # stands for a size of 0 where products are compared: a prime that no size has


# ---- names that are given
def checked_names(name: str, names: Sequence[Any], shape: _Shape) -> Names | None:
  """Names for a tensor of a shape; None where none is among them. Raises ShapeError for another number, ArgumentError for one
  that is no identifier or stands twice."""
  given = f"{shown(tuple(names))} for shape {shape}"
  if len(names) != len(shape):
    raise ShapeError(f"{name}: {len(names)} names {given}; give one for each dimension, None for a dimension without")
  for n in names:
    if n is not None and not (isinstance(n, str) and n.isidentifier()):
      raise ArgumentError(f"{name}: {shown(n)} in {given}; a name is an identifier such as 'time', or None")
    if n is not None and names.count(n) > 1:
      raise ArgumentError(f"{name}: {n!r} stands {names.count(n)} times in {given}; a name stands at one dimension")
  return _or_none(tuple(names))


def axis_of(name: str, axis: Any, ndim: int, called: Names | None = None, to: str = "") -> int:
  """An axis as a number from 0; negative ones count from the end, text is one of the names. ``to`` says what is done with it that
  takes one. Raises AxisError."""
  if type(axis) is int and 0 <= axis < ndim: return axis
  if isinstance(axis, str):
    if called is None:
      raise AxisError(f"{name}: axis {shown(axis)} of a tensor without names; give a number, or name the dimensions with "
                      ".named()")
    if axis not in called: raise AxisError(f"{name}: no dimension has the name {shown(axis)}; the names are {called}")
    return called.index(axis)
  if not isinstance(axis, (int, np.integer)) or isinstance(axis, bool):
    raise AxisError(f"{name}: axis {shown(axis)} is no integer")
  n = max(ndim, 1)
  if not -n <= axis < n:
    raise AxisError(f"{name}: axis {shown(axis)} of a tensor with {ndim} dimensions; axes go from {-n} to {n - 1}")
  if to and not ndim: raise AxisError(f"{name}: a tensor of shape () has no dimension to {to}")
  return int(axis) % n


def axes_of(name: str, axis: Any, ndim: int, called: Names | None = None) -> tuple[int, ...]:
  """An axis, several, or None for all, as sorted numbers from 0; text is a name. Raises AxisError (also for one given twice)."""
  if axis is None: return tuple(range(ndim))
  if not isinstance(axis, (tuple, list)): return (axis_of(name, axis, ndim, called),)[:1 if ndim else 0]
  axes = sorted(axis_of(name, a, ndim, called) for a in axis)
  if len(set(axes)) != len(axes):
    raise AxisError(f"{name}: axes {shown(tuple(axis))} name one twice in a tensor with {ndim} dimensions")
  return tuple(axes) if ndim else ()


# ---- names that follow
def names_at(names: Names | None, dims: Iterable[int | None]) -> Names | None:
  """The names of a result, of each of whose dimensions ``dims`` says which one of the source it is."""
  return None if names is None else _or_none(tuple([None if d is None else names[d] for d in dims]))


def without(names: Names | None, axes: Sequence[int]) -> Names | None:
  """The names of what is left when dimensions go."""
  return None if names is None else names_at(names, [d for d in range(len(names)) if d not in axes])


def merged(name: str, tensors: Sequence[Any], places: Sequence[Places], ndim: int, what: str = "tensor") -> Names | None:
  """The names of a result with ``ndim`` dimensions that is made of several tensors, each of whose dimensions goes to a place.
  Those from ``ndim`` on are summed: their names must agree too, and they go. Raises ShapeError for two names at one place, and
  for a name at two places."""
  found: dict[int, tuple[str, int, int]] = {}   # place -> name, tensor, dimension of it
  for k, (t, where) in enumerate(zip(tensors, places)):
    for d, (n, p) in enumerate(zip(t._names or (), where)):
      if n is None or p is None: continue
      first = found.setdefault(p, (n, k, d))
      if first[0] != n:
        raise ShapeError(f"{name}: {first[0]!r} of the {ordinal(first[1])} {what} meets {n!r} of the {ordinal(k)}: "
                         f"{_shapes(tensors)}; bring the dimensions into one order, or rename one with .named()")
  out = [found[p][0] if p in found else None for p in range(ndim)]
  for p, n in enumerate(out):
    if n is not None and n in out[:p]:
      (_, k, d), (_, l, e) = found[out.index(n)], found[p]
      raise ShapeError(f"{name}: {n!r} would be dimension {out.index(n)} and dimension {p} of the result: it is dimension {d} of "
                       f"the {ordinal(k)} {what} and dimension {e} of the {ordinal(l)}: {_shapes(tensors)}; rename one with "
                       ".named()")
  return _or_none(tuple(out))


def aligned_names(name: str, tensors: Sequence[Any]) -> Names | None:
  """The names of what tensors give that broadcast together, aligned from the last dimension. Raises ShapeError."""
  first = tensors[0]._names
  return first if all(t._names == first for t in tensors) else merged(name, tensors, *from_last(tensors))


def from_last(tensors: Sequence[Any]) -> tuple[list[range], int]:
  """The places of dimensions that are aligned from the last, and how many there are."""
  n = max([len(t.shape) for t in tensors])
  return [range(n - len(t.shape), n) for t in tensors], n


def fit(name: str, tensors: Sequence[Any], places: Sequence[Places], ndim: int, what: str = "tensor") -> None:
  """Raises a ShapeError that names the first dimension whose sizes do not broadcast (or, summed, differ), if a tensor has
  names."""
  if all(t._names is None for t in tensors): return
  found: dict[int, tuple[int, int, int]] = {}   # place -> size, tensor, dimension of it
  for k, (t, where) in enumerate(zip(tensors, places)):
    for d, (size, p) in enumerate(zip(t.shape, where)):
      if p is None: continue
      first = found.setdefault(p, (size, k, d))
      if first[0] == size: continue
      if 1 not in (first[0], size) or p >= ndim:
        one, other = _dimension(tensors[first[1]], first[2]), _dimension(t, d)
        middle = "" if one == other and one[0] == "'" else f"{other} " if other[0] == "'" else f"{other} is "
        raise ShapeError(f"{name}: {one} is {first[0]} in the {ordinal(first[1])} {what} and {middle}{size} in the "
                         f"{ordinal(k)}: {_shapes(tensors)}")
      if first[0] == 1: found[p] = size, k, d


def fit_aligned(name: str, tensors: Sequence[Any]) -> None: fit(name, tensors, *from_last(tensors))


# ---- movement: (shape, arg) -> of each dimension of the result, which one of the source it is
def regrouped(old: _Shape, new: _Shape) -> list[int | None]:
  """Of each dimension of a reshape's result, which one of the source it is: those between runs of dimensions with equal products.
  Dims of 1 beside a run are the same where there are as many of them; else nobody can say which is which, and they are none."""
  old, new = [tuple([d or _ZERO for d in s]) for s in (old, new)]
  out: list[int | None] = [None] * len(new)
  if math.prod(old) != math.prod(new): return out   # of no elements, with other sizes around the 0
  i = j = 0
  while i < len(old) and j < len(new):
    i0, j0 = i, j
    while i < len(old) and old[i] == 1: i += 1
    while j < len(new) and new[j] == 1: j += 1
    if i - i0 == j - j0: out[j0:j] = range(i0, i)
    if i == len(old) or j == len(new): break
    a, b = old[i], new[j]
    if a == b: out[j] = i
    i, j = i + 1, j + 1
    while a != b:
      if a < b: a, i = a * old[i], i + 1
      else: b, j = b * new[j], j + 1
  return out


_PLACES: dict[Ops, Callable[[_Shape, Any], Places]] = {   # of other movement each dimension stays where it is
  Ops.RESHAPE: regrouped, Ops.PERMUTE: lambda s, arg: arg, Ops.TILE: lambda s, arg: (*range(len(s)), *[None] * len(s))}


def moved_names(names: Names, shape: _Shape, moves: Iterable[_Move]) -> Names | None:
  """The names after one move after the other, of a tensor of a shape."""
  out: Names | None = names
  for op, arg in moves:
    out = names_at(out, _PLACES[op](shape, arg) if op in _PLACES else range(len(shape)))
    if op is not Ops.DETACH: shape = tuple(map(count, TRANSFORMS[op].shape(shape, arg)))
  return out


# ---- in words
def text(t: Any) -> str:
  """A tensor's shape with its names: ``(batch 8, time 128)``; without names as Python writes it."""
  if t._names is None: return shape_with_variables(t.shape)
  return f"({', '.join(f'{n} {_size_text(s)}' if n else _size_text(s) for n, s in zip(t._names, t.shape))})"


def _size_text(size: int) -> str:
  """A size, with the Variables that it is made of: ``n = 3``."""
  return f"{text_of(size.node)} = {size:d}" if isinstance(size, BoundInt) else str(size)


def shape_with_variables(shape: Sequence[int]) -> str:
  """A shape as Python writes it, its sizes with the Variables that they are made of: ``(n = 3, 2)``."""
  return f"({', '.join(map(_size_text, shape))}{',' * (len(shape) == 1)})"


def _shapes(tensors: Sequence[Any]) -> str:
  texts = [text(t) for t in tensors]
  return f"shapes {', '.join(texts[:-1])} and {texts[-1]}"


def _dimension(t: Any, d: int) -> str:
  return f"dimension {d}" if t._names is None or t._names[d] is None else repr(t._names[d])


def ordinal(k: int) -> str: return _ORDINALS[k] if k < len(_ORDINALS) else f"{k + 1}th"


def _or_none(names: Names) -> Names | None: return names if any(names) else None
