"""Which part of each buffer a kernel touches.

Where it is one piece, ``x[200:300]`` of 1000 rows, the kernel takes the piece as its param, and its place as an argument of the
launch: all slices of one shape share a kernel. That of ``x[:, 3]`` begins at the first row that is touched, and ends behind the
last.
"""
from __future__ import annotations

import functools
from typing import Iterable, NamedTuple, Sequence

from ntgrad.codegen import index as ix
from ntgrad.codegen.index import Shape
from ntgrad.codegen.ir import Ops, UOp, prod

from .nodes import Idx

PART_ALIGN_BYTES = 64   # bytes: a vector register, and what every allocation begins at a multiple of


class _Part(NamedTuple):
  """Consecutive elements of a buffer: the number of the first one, ``shape``, and the least index in each dimension of the
  buffer. The first ``gone`` dimensions have one index only. ``rows`` says how many rows apart the elements of the first
  dimensions lie; these are then one dimension of the part."""
  offset: int
  shape: Shape
  begin: Idx
  gone: int = 0
  align: int = 0
  rows: tuple[int, ...] = ()

  def within(self, index: Idx) -> Idx:
    """An index of the buffer as one of the part."""
    if not self.begin: return (ix.ZERO,)
    at = tuple(ix.sub(i, b) for i, b in zip(index[self.gone:], self.begin[self.gone:]))
    return (functools.reduce(ix.add, map(ix.mul, at, self.rows)), *at[len(self.rows):]) if self.rows else at


def touched_parts(slots: Sequence[UOp], nodes: Iterable[UOp]) -> list[_Part]:
  """For each buffer (its stand-in) the part that the LOADs and STOREs among ``nodes`` touch."""
  accesses: dict[UOp, list[Idx]] = {s: [] for s in slots}
  for u in nodes:
    if u.op in (Ops.LOAD, Ops.STORE): accesses[u.src[0]].append(u.src[1].src)
  return [_part(s, accesses[s]) for s in slots]


def _part(stand_in: UOp, accesses: Sequence[Idx]) -> _Part:
  """(10, 4, 8) of which 3, 1..2, 0..7 are touched -> (2, 8) from element 104 on."""
  shape, itemsize = tuple(stand_in.arg.shape), stand_in.dtype.itemsize
  given: int = stand_in.arg.arg.align if stand_in.arg.op is Ops.BUFFER else 0   # of a buffer that is a part itself
  touched = [(0, n) for n in shape]
  for d, n in enumerate(shape):
    if not isinstance(n, int): break   # of a run-time size all may be touched
    lo, hi = _touched(accesses, d)
    if lo < 0 or hi > n: break   # only a gate keeps it inside
    touched[d] = lo, hi
    if hi > lo + 1: break
  if (part := _apart(shape, accesses)) is None:
    sizes, first = tuple(ix.minus(e, b) for b, e in touched), consecutive(shape, touched)
    if not shape or not isinstance(first, int) or sizes == shape and not given:
      return _Part(0, shape or (1,), (ix.ZERO,) * len(shape), align=given)
    gone = next((d for d, n in enumerate(sizes) if n != 1), len(shape) - 1)
    part = _Part(first, sizes[gone:], tuple(ix.const(b) for b, _ in touched), gone)
  return part._replace(align=min(alignment(part.offset * itemsize, itemsize), given or PART_ALIGN_BYTES))


def _touched(accesses: Sequence[Idx], d: int) -> tuple[int, int]:
  """The first index in a dimension, and the one behind the last."""
  return min([ix.vmin(i[d]) for i in accesses]), max([ix.vmax(i[d]) for i in accesses]) + 1


def _apart(shape: Shape, accesses: Sequence[Idx]) -> _Part | None:
  """(32, 64, 8) of which 0..31, 5, 0..7 are touched -> (31*64 + 1, 8) from element 40 on, by 64*i + j. None for other parts."""
  sizes = [n for n in shape if isinstance(n, int)]
  if len(sizes) < max(len(shape), 2): return None
  found = [_touched(accesses, d) for d in range(len(shape))]
  if any(lo < 0 or hi > n for (lo, hi), n in zip(found, sizes)): return None
  one = [d for d, ((lo, hi), n) in enumerate(zip(found, sizes)) if hi == lo + 1 and n > 1]
  several = [d for d, (lo, hi) in enumerate(found) if hi > lo + 1]
  if not one or not several or one[-1] < several[0]: return None
  last = one[-1]
  if any((lo, hi) != (0, n) for (lo, hi), n in zip(found[last + 1:], sizes[last + 1:])): return None
  steps = [prod(sizes[d + 1:last + 1]) for d in range(last + 1)]
  span = sum((hi - lo - 1) * step for (lo, hi), step in zip(found, steps)) + 1
  first = sum(lo * step for (lo, _), step in zip(found, steps)) * prod(sizes[last + 1:])
  return _Part(first, (span, *shape[last + 1:]), tuple(ix.const(lo) for lo, _ in found), rows=tuple(steps))


def consecutive(shape: Sequence[ix.Dim], slices: Sequence[tuple[ix.Dim, ix.Dim]]) -> ix.Dim | None:
  """The number of the first element of ``slices`` (begin, end) of an array, where their elements are consecutive; else None."""
  first: ix.Dim = 0
  partial = False
  for n, (b, e) in zip(shape, slices):
    if partial and (b, e) != (0, n): return None
    first = ix.plus(ix.times(first, n), b)
    partial = partial or ix.minus(e, b) != 1
  return first


def alignment(offset: int, itemsize: int) -> int:
  """The ``align`` of a part that begins at a byte."""
  return PART_ALIGN_BYTES if offset % PART_ALIGN_BYTES == 0 else itemsize
