"""Accesses by tensor descriptor (TMA): which block of which box of memory an access is.

A LOAD or STORE that an Opt has marked says where each element lies, and under which condition there is one. A descriptor says
that of a whole box: sizes, strides, and the sizes of the blocks that are read or written; an access then names the corner of one.
What lies outside the box is read as 0 and not written, which is what the conditions mean. An access of another form keeps its
pointers, and says why.
"""
from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Mapping, Sequence

from ntgrad.codegen.blocks import gate_of, loads_zero, terms
from ntgrad.codegen.index import bounds, conjuncts
from ntgrad.codegen.uop import BinaryOps, Ops, UOp, toposort

MARK = "tma"          # the arg of a LOAD or STORE that may go by descriptor
CAPABILITY = 90       # the first chips that have them
MOST_DIMENSIONS = 5
MOST_ELEMENTS = 256   # of a block, along each dimension
UNIT = 16             # bytes: strides and the corners of blocks are multiples of it, and a block is no narrower
_FAR = 1 << 40        # bytes: no stride is as long


class Pointers(Exception):
  """Why an access is none of a block of a box; the sentence goes on after "by pointers: "."""


@dataclass(frozen=True)
class Dimension:
  """One dimension of a box: elements, how far they are apart, how many a block has and the TILE axis that goes through it, if
  any. The block begins at ``start`` and so many times each atom of ``terms``."""
  size: int
  stride: int
  block: int
  axis: int | None
  terms: Mapping[UOp, int]
  start: int


@dataclass(frozen=True)
class Box:
  """What a LOAD or STORE by descriptor is a block of. The outermost dimension comes first."""
  dims: tuple[Dimension, ...]

  @property
  def axes(self) -> list[int]:
    """The TILE axes of the block, as memory has them."""
    return [dim.axis for dim in self.dims if dim.axis is not None]

  @property
  def atoms(self) -> list[UOp]:
    """The values that say where the block begins."""
    return [x for dim in self.dims for x in dim.terms]

  @property
  def layout(self) -> tuple[tuple[int, int, int], ...]:
    """What the descriptor itself says; accesses that agree in it share one."""
    return tuple((dim.size, dim.stride, dim.block) for dim in self.dims)


@dataclass
class _Slot:
  """A dimension while it is found."""
  stride: int
  axis: int | None = None
  elements: int = 1                                # of the access, which may be fewer than the block's
  bound: int | None = None                         # offset without constant + element < bound
  offset: dict[UOp, int] = field(default_factory=dict)


def find(u: UOp, dims: Mapping[UOp, frozenset[int]], padded: Mapping[int, int]) -> Box:
  """The box of a LOAD or STORE. Raises Pointers, saying why, where there is none."""
  load, itemsize = u.op is Ops.LOAD, u.src[0].dtype.itemsize
  if load and not loads_zero(u): raise Pointers("outside it, something else than 0 is read")
  rest, c = terms(u.src[1])
  rest = {x: k for x, k in rest.items() if k}
  if any(x.op is not Ops.RANGE and dims[x] for x in rest): raise Pointers("its index is not linear in the block's axes")
  slots = {x: _Slot(k, *x.arg) for x, k in sorted(rest.items(), key=lambda t: -t[1]) if x.op is Ops.RANGE}
  strides = [s.stride for s in slots.values()]
  if not slots: raise Pointers("it is one element")
  if strides[-1] < 1: raise Pointers("it goes backwards through memory")
  if strides[-1] != 1: raise Pointers(f"neighbours in the block are {strides[-1]} elements apart")
  if len(set(strides)) < len(slots): raise Pointers("its windows overlap")
  if not load and not dims[u.src[2]] <= {x.arg[0] for x in slots}: raise Pointers("its value has other axes than its place")
  for condition in conjuncts(gate_of(u)): _bounded(condition, slots, dims)
  for x, s in slots.items():
    del rest[x]
    # TILE sizes are rounded up: the elements added must lie outside
    if s.bound is None and padded[x.arg[0]] != s.elements: s.bound = s.elements
    for atom, k in s.offset.items(): rest[atom] = rest.get(atom, 0) - k * s.stride
  out = []
  for s in _spread({x: k for x, k in rest.items() if k}, list(slots.values())):
    start, c = divmod(c, s.stride)
    low, high = _span(s.offset, start)
    if low < 0: raise Pointers("a block may begin before the first element")
    size = high + s.elements if s.bound is None else s.bound + start
    block = 1 if s.axis is None else padded[s.axis]
    if block != s.elements and low + s.elements < size:
      raise Pointers(f"a block has {s.elements} elements along a dimension, no power of two")
    if block > MOST_ELEMENTS: raise Pointers(f"a block has {block} elements along a dimension, more than {MOST_ELEMENTS}")
    if not 0 < size < 1 << 31 or high >= 1 << 31: raise Pointers(f"a dimension has {size} elements")
    out.append(Dimension(size, s.stride, block, s.axis, s.offset, start))
  _check(out, itemsize, not load)
  return Box(tuple(out))


def _bounded(condition: UOp, slots: Mapping[UOp, _Slot], dims: Mapping[UOp, frozenset[int]]) -> None:
  """Note a condition ``offset + element < bound`` with its dimension, whose offset it also tells."""
  if condition.op is Ops.CONST and condition.arg: return
  unlike = Pointers("its condition is no bound of a dimension")
  if condition.arg is not BinaryOps.CMPLT: raise unlike
  (left, a), (right, b) = terms(condition.src[0]), terms(condition.src[1])
  offset = {x: k for x in {**left, **right} if (k := left.get(x, 0) - right.get(x, 0))}
  varying = [x for x in offset if dims[x]]
  if len(varying) != 1 or varying[0] not in slots or offset.pop(varying[0]) != 1: raise unlike
  s, bound = slots[varying[0]], b - a
  if s.bound is not None and s.offset != offset: raise Pointers("two conditions bound one dimension in two ways")
  s.bound, s.offset = bound if s.bound is None else min(bound, s.bound), offset


def _spread(rest: dict[UOp, int], order: list[_Slot]) -> list[_Slot]:
  """The dimensions with the atoms that are left, each in the outermost that it moves by whole elements. Where that one has a
  bound, and so knows its offset, the atom gets a new dimension, of which a block has one element."""
  for x, k in sorted(rest.items(), key=lambda t: t[1]):
    if k < 0: raise Pointers("its condition and its index disagree, or it goes backwards through memory")
    host = next(s for s in order if s.stride <= k)
    if k % host.stride: raise Pointers(f"its blocks are {k} elements apart, which is no multiple of {host.stride}")
    if host.bound is None: host.offset[x] = host.offset.get(x, 0) + k // host.stride
    elif k > host.stride: order.insert(order.index(host), _Slot(k, offset={x: 1}))
    else: raise Pointers("its condition and its index disagree")
  return order


def _span(offset: Mapping[UOp, int], start: int) -> tuple[int, int]:
  """The least and the greatest value."""
  low = high = start
  for x, k in offset.items():
    a, b = sorted(k * n for n in bounds(x))
    low, high = low + a, high + b
  return low, high


def _check(dims: Sequence[Dimension], itemsize: int, written: bool) -> None:
  """What the hardware asks for. It reads rows to the element, and writes them in units: what lies behind a row's end in its last
  unit would be overwritten. Raises Pointers."""
  if len(dims) > MOST_DIMENSIONS: raise Pointers(f"it has {len(dims)} dimensions, a descriptor {MOST_DIMENSIONS} at most")
  inner = dims[-1]
  if inner.block * itemsize < UNIT: raise Pointers(f"a block is {inner.block * itemsize} bytes wide, less than {UNIT}")
  if any(n * itemsize % UNIT for n in (inner.start, *inner.terms.values())):
    raise Pointers(f"blocks begin at other than multiples of {UNIT} bytes")
  for outer, below in pairwise(dims):
    apart = outer.stride * itemsize
    if apart % UNIT: raise Pointers(f"its rows are {apart} bytes apart, no multiple of {UNIT}")
    if apart >= _FAR: raise Pointers(f"its rows are {apart} bytes apart")
    if outer.stride % below.stride or below.size * below.stride > outer.stride: raise Pointers("its windows overlap")
  if written and inner.size * itemsize % UNIT:
    raise Pointers(f"its rows end at {inner.size * itemsize} bytes, no multiple of the {UNIT} that are written at once")


# ---- the program

def find_boxes(uops: Sequence[UOp], dims: Mapping[UOp, frozenset[int]],
               padded: Mapping[int, int]) -> tuple[dict[UOp, Box], dict[str, str]]:
  """The boxes of the marked accesses; and of those that have none, the names of their params, and why."""
  boxes: dict[UOp, Box] = {}
  pointers: dict[str, str] = {}
  loaded = {u.src[0] for u in uops if u.op is Ops.LOAD}
  stored = Counter(u.src[0] for u in uops if u.op in (Ops.STORE, Ops.ATOMIC))
  loops: list[UOp] = []   # the LOOPs and WHILEs that are open
  for u in uops:
    if u.op in (Ops.LOOP, Ops.WHILE): loops.append(u)
    elif u.op in (Ops.ENDLOOP, Ops.ENDWHILE): loops.pop()
    elif u.op in (Ops.LOAD, Ops.STORE) and u.arg == MARK:
      try:
        if u.src[0] in loaded and u.src[0] in stored: raise Pointers("it is read and written")
        box = find(u, dims, padded)
        if u.op is Ops.STORE:   # those by descriptor are not ordered among each other: no element may be stored twice
          if stored[u.src[0]] > 1: raise Pointers("it is written in several places")
          beneath = toposort(box.atoms)
          if any(loop not in beneath for loop in loops): raise Pointers("a loop writes the same elements again")
        boxes[u] = box
      except Pointers as e: pointers.setdefault(u.src[0].arg[1], str(e))
  return boxes, pointers
