"""Sorting of ``Tensor``: sort, argsort, topk.

Keys are unsigned ints that order as the values do, each with its place behind it in one number: to sort these is to sort in a
stable way, and gives the places. Values are then read at their places, so their gradients are those of reading there.
"""
from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.errors import ArgumentError, ShapeError
from ntgrad.codegen.ir.uop import UOp
from ntgrad.core import whole_number
from ntgrad.graph import nodes as graph
from ntgrad.graph.checks import checked, flag, paired
from ntgrad.graph.several import Several

from .elementwise import Elementwise

_PLACES = 32      # bits of a key's place in its row, where fewer do not make both together a uint32
# bits that float32's of a smaller float need at most, from the top: sign, exponent, and its fraction
_FRACTIONS = {"float16": 10, "bfloat16": 7, "float8_e4m3": 3, "float8_e5m2": 2}


def bits_of(u: UOp) -> tuple[UOp, int]:
  """Unsigned ints that order as the values do, NaN after everything else, and how many bits they have."""
  d = u.dtype
  if d.kind == "b": return graph.cast(u, dtypes.uint32), 1
  if d.kind == "e": return graph.cast(graph.seen_as(u, dtypes.uint8), dtypes.uint32), 8
  if d.kind == "u": return (u if d.itemsize == 8 else graph.cast(u, dtypes.uint32)), 8 * d.itemsize
  wide = d.itemsize == 8
  key, signed, size = (dtypes.uint64, dtypes.int64, 64) if wide else (dtypes.uint32, dtypes.int32, 32)
  if d.kind == "i":
    bits = 8 * d.itemsize
    if d.itemsize < 4: return graph.cast(graph.add(graph.cast(u, signed), 1 << bits - 1), key), bits
    return graph.xor(graph.seen_as(u, key), 1 << size - 1), size
  x = u if wide else graph.cast(u, dtypes.float32)
  number = graph.seen_as(graph.where(graph.eq(x, 0.0), 0.0, x), key)   # -0 is as great as 0
  ones, top = dtypes.max(key), graph.const(1 << size - 1, key, x.shape)
  negative = graph.lt(graph.xor(number, ones), top)
  number = graph.xor(number, graph.where(negative, ones, top))
  number = graph.where(graph.isnan(x), ones, number)
  low = 23 - _FRACTIONS[d.name] if d.itemsize < 4 else 0
  return (graph.shr(number, low) if low else number), size - low


def places_of(u: UOp, axis: int, bits: int, keep: int) -> UOp:
  """Where what is sorted along an axis stands, of unsigned ints of so many bits; the first ``keep`` of them."""
  n, s = u.shape[axis], u.shape
  if bits > _PLACES:   # by the lower half first, then what that gives by the upper one
    low = places_of(graph.cast(graph.and_(u, (1 << _PLACES) - 1), dtypes.uint32), axis, _PLACES, n)
    high = graph.cast(graph.shr(u, _PLACES), dtypes.uint32)
    return at_places(low, places_of(at_places(high, low, axis), axis, bits - _PLACES, keep), axis)
  shift = (n - 1).bit_length() if isinstance(n, int) else _PLACES
  key, shift = (dtypes.uint32, shift) if shift + bits <= 32 else (dtypes.uint64, _PLACES)
  both = graph.or_(graph.shl(graph.cast(u, key), shift), graph.cast(graph.index_along(axis, s), key))
  out = graph.sort(both, axis, shift, shift + bits, keep)
  return graph.cast(graph.and_(out, (1 << min(shift, 31)) - 1), dtypes.int32)


def at_places(u: UOp, places: UOp, axis: int) -> UOp:
  """out[i][j] = u[i][places[i][j]] for axis 1; all places are there."""
  s, step = u.shape, 1
  work = dtypes.int64 if math.prod(s) >= 2 ** 31 else dtypes.int32
  flat: UOp | None = None
  for a in reversed(range(len(s))):
    if s[a] != 1:
      at = graph.cast(places if a == axis else graph.index_along(a, places.shape), work)
      if step != 1: at = graph.mul(at, step)
      flat = at if flat is None else graph.add(flat, at)
    step *= s[a]
  return graph.gather(graph.reshape(u, (step,)), graph.const(0, work, places.shape) if flat is None else flat)


class _Picked(NamedTuple):
  values: Any
  indices: Any


class Picked(Several, _Picked):
  """Elements of a tensor, and where they stood (int32)."""
  __slots__ = ()


@checked
class Sorting(Elementwise):
  """Sorts."""
  __slots__ = ()

  def _sorted(self, dim: int, keep: int, descending: bool) -> tuple[UOp, UOp]:
    """Values and places of the first ``keep`` when sorted."""
    u = self.lazydata
    if u.shape and keep < u.shape[dim] and not math.prod(u.shape):
      u = graph.shrink(u, [(0, keep if a == dim else n) for a, n in enumerate(u.shape)])
    if not u.shape or not math.prod(u.shape): return u, graph.const(0, dtypes.int32, u.shape)
    if u.shape[dim] > dtypes.max(dtypes.int32):
      raise ShapeError(f"sorting {u.shape[dim]} elements along dim {dim}: int32 has places of {dtypes.max(dtypes.int32)} at most"
                       "; sort parts of it")
    key, bits = bits_of(graph.detach(u))
    if descending: key = graph.xor(key, (1 << bits) - 1)
    places = places_of(key, dim, bits, keep)
    return at_places(u, places, dim), places

  @paired
  def sort(self, dim: int | str = -1, descending: bool = False, stable: bool = False) -> Picked:
    """``(values, indices)``: the elements along a dim in rising (``descending``: falling) order, and where they stood (int32).

    Equal ones, as 0 and -0 are, keep their order whatever ``stable`` says; NaN is greater than everything. Raises AxisError.
    """
    d = self._dim("sort", dim)
    values, places = self._sorted(d, self.shape[d] if self.ndim else 1, flag("descending", descending))
    return Picked(self._wrap(values), self._detached(places))

  def argsort(self, dim: int | str = -1, descending: bool = False, stable: bool = False) -> Self:
    """The indices (int32) of what stands along a dim in rising order; see :meth:`sort`. Raises AxisError."""
    d = self._dim("argsort", dim)
    return self._detached(self._sorted(d, self.shape[d] if self.ndim else 1, flag("descending", descending))[1])

  @paired
  def topk(self, k: int, dim: int | str = -1, largest: bool = True, sorted_: bool = True, *, sorted: bool = True) -> Picked:
    """``(values, indices)`` of the k greatest along a dim (``largest=False``: the least), the greatest (least) first; of equal
    ones those that stand first. They are in order whatever ``sorted`` (or ``sorted_``) says.

    Raises AxisError, ArgumentError for a k that is not from 0 to the size of the dim.
    """
    d = self._dim("topk", dim)
    n = self.shape[d] if self.ndim else 1
    k = whole_number("topk", "k", k, 0)
    if k > n: raise ArgumentError(f"topk: k = {k} of the {n} elements along dim {dim} of shape {self.shape}; it takes up to {n}")
    if not k and self.ndim:
      none = graph.shrink(self.lazydata, [(0, 0 if a == d else s) for a, s in enumerate(self.shape)])
      return Picked(self._wrap(none), self._detached(graph.const(0, dtypes.int32, none.shape)))
    values, places = self._sorted(d, k, flag("largest", largest))
    return Picked(self._wrap(values), self._detached(places))
