"""Accesses by tensor descriptor (TMA): the box of memory that a LOAD or STORE which an Opt has marked takes a block of.

    LOAD(x, (gidx0*64 + r0)*100 + r1, gidx0*64 + r0 < 250), axes r0:64, r1:32
    ->   sizes (250, 100), strides (100, 1), blocks (64, 32); the block at [gidx0*64, 0]
    LOAD(x, (gidx0*64 + r0)*(K_16*16) + r1, gidx0*64 + r0 < M)   ->   sizes (M, ..), strides (K_16*16, 1)

An access says where each of its elements lies, and under which condition there is one. A descriptor says that of a whole box, and
an access names the corner of a block of it; what lies outside is read as 0 and not written, as the condition has it. Sizes and
strides may be made of sizes of the launch, where all that a descriptor asks for can be proven. An access of another form goes by
pointers, and the kernel's source says why.
"""
from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cmp_to_key
from itertools import pairwise
from typing import Mapping, Sequence

from ntgrad.codegen import index as ix
from ntgrad.codegen.index import Dim, as_sizes, conjuncts, dim_text, size_terms, uncast
from ntgrad.codegen.ir import BinaryOps, Ops, UOp, toposort
from ntgrad.codegen.kernel import gate_or_true, loads_zero

from ..writer import touched

MARK = "tma"          # the arg of a LOAD or STORE that may go by descriptor
CAPABILITY = 90       # the first chips that have them
MOST_DIMENSIONS = 5   # dimensions of a tensor that has a descriptor
MOST_ELEMENTS = 256   # of a block, along each dimension
UNIT = 16             # bytes: strides and the corners of blocks are multiples of it, and a block is no narrower
_FAR = 1 << 40        # bytes: no stride is as long

AxisIds = frozenset[int]                    # of TILE axes
Layout = tuple[tuple[Dim, Dim, int], ...]   # of each dimension its size, its stride, its elements in a block


class NoBox(Exception): """Why an access does not take a block of a box; the sentence goes on after "by pointers: "."""


@dataclass(frozen=True)
class Dimension:
  """One dimension of a box: its elements, how many elements of memory they are apart, how many a block has, and the TILE axis
  that goes through the block, if any. The block begins at ``start`` and the sum of ``terms`` (value, factor)."""
  size: Dim
  stride: Dim
  block: int
  axis: int | None
  terms: Mapping[UOp, int]
  start: int


@dataclass(frozen=True)
class Box:
  """What a LOAD or STORE by descriptor is a block of. The outermost dimension comes first."""
  dims: tuple[Dimension, ...]

  @property
  def axes(self) -> list[int]: return [dim.axis for dim in self.dims if dim.axis is not None]

  @property
  def atoms(self) -> list[UOp]: return [x for dim in self.dims for x in dim.terms]

  @property
  def layout(self) -> Layout:
    """What the descriptor itself says; accesses that agree in it share one."""
    return tuple((dim.size, dim.stride, dim.block) for dim in self.dims)


@dataclass
class _Slot:
  """A dimension of which not everything is known yet. Numbers are indices over SIZEs."""
  stride: UOp
  axis: int | None = None
  elements: int = 1                                # of the access, which may be fewer than the block has
  bound: UOp | None = None                         # offset + element < bound, by the condition; the offset without its constant
  offset: dict[UOp, UOp] = field(default_factory=dict)


def _constant(u: UOp) -> int:
  """Raises NoBox for an index that is no number."""
  if u.op is not Ops.CONST: raise NoBox(f"its blocks begin at multiples of {dim_text(u)}")
  return int(u.arg)


def _at_most(a: UOp, b: UOp | int) -> bool: return ix.vmax(ix.sub(a, b)) <= 0


def _ascending(first: tuple[UOp, UOp], second: tuple[UOp, UOp]) -> int:
  """The order of two terms by their factors. Raises NoBox where it depends on the sizes."""
  a, b = first[1], second[1]
  if a is b: return 0
  if _at_most(a, b): return -1
  if _at_most(b, a): return 1
  raise NoBox(f"which of its strides {dim_text(a)} and {dim_text(b)} is greater depends on the sizes")


def _box(u: UOp, dims: Mapping[UOp, AxisIds], padded: Mapping[int, int]) -> Box:
  """The box of a LOAD or STORE. Raises NoBox, saying why, where there is none."""
  load, itemsize = u.op is Ops.LOAD, u.src[0].dtype.itemsize
  if load and not loads_zero(u): raise NoBox("outside it, something else than 0 is read")
  if any(align % UNIT for align in u.src[0].arg[3:]): raise NoBox(f"its memory begins at no multiple of {UNIT} bytes")
  rest, c = size_terms(u.src[1])
  if any(x.op is not Ops.RANGE and dims[x] for x in rest): raise NoBox("its index is not linear in the block's axes")
  slots = {x: _Slot(k, *x.arg) for x, k in sorted(
    [(x, k) for x, k in rest.items() if x.op is Ops.RANGE], key=cmp_to_key(_ascending), reverse=True)}
  strides = [s.stride for s in slots.values()]
  if not slots: raise NoBox("it is one element")
  if ix.vmin(strides[-1]) < 1: raise NoBox("it goes backwards through memory")
  if strides[-1] is not ix.ONE: raise NoBox(f"neighbours in the block are {dim_text(strides[-1])} elements apart")
  if len(set(strides)) < len(slots): raise NoBox("its windows overlap")
  if not load and not dims[u.src[2]] <= {x.arg[0] for x in slots}: raise NoBox("its value has other axes than its place")
  for condition in conjuncts(gate_or_true(u)): _bounded(condition, slots, dims)
  for x, s in slots.items():
    del rest[x]
    # TILE sizes are rounded up: the elements added must lie outside
    if s.bound is None and padded[x.arg[0]] != s.elements: s.bound = ix.const(s.elements)
    for atom, k in s.offset.items(): rest[atom] = ix.sub(rest.get(atom, ix.ZERO), ix.mul(k, s.stride))
  out = []
  for s in _spread({x: k for x, k in rest.items() if k is not ix.ZERO}, list(slots.values())):
    start, c = ix.fdiv(c, s.stride), ix.mod(c, s.stride)
    low, high = _span(s.offset, start)
    if ix.vmin(low) < 0: raise NoBox("a block may begin before the first element")
    size = ix.add(high, s.elements) if s.bound is None else ix.add(s.bound, start)
    block = 1 if s.axis is None else padded[s.axis]
    if block != s.elements and not _at_most(size, ix.add(low, s.elements)):
      raise NoBox(f"a block has {s.elements} elements along a dimension, no power of two")
    if block > MOST_ELEMENTS: raise NoBox(f"a block has {block} elements along a dimension, more than {MOST_ELEMENTS}")
    if ix.vmin(size) < 1 or ix.vmax(size) >= 1 << 31 or s.bound is None and ix.vmax(high) >= 1 << 31:
      raise NoBox(f"a dimension has {dim_text(size)} elements")
    out.append(Dimension(ix.number(size), ix.number(s.stride), block, s.axis, {x: _constant(k) for x, k in s.offset.items()},
                         _constant(start)))
  _check(out, itemsize, not load)
  return Box(tuple(out))


def _bounded(condition: UOp, slots: Mapping[UOp, _Slot], dims: Mapping[UOp, AxisIds]) -> None:
  """A condition ``offset + element < bound`` gives its dimension a bound and an offset. Raises NoBox for another condition."""
  if condition.op is Ops.CONST and condition.arg: return
  unlike = NoBox("its condition is no bound of a dimension")
  if condition.arg is not BinaryOps.CMPLT: raise unlike
  (left, a), (right, b) = size_terms(condition.src[0]), size_terms(condition.src[1])
  offset = {x: ix.sub(left.get(x, ix.ZERO), right.get(x, ix.ZERO)) for x in {**left, **right}}
  offset = {x: k for x, k in offset.items() if k is not ix.ZERO}
  varying = [x for x in offset if dims[x]]
  if len(varying) != 1 or varying[0] not in slots or offset.pop(varying[0]) is not ix.ONE: raise unlike
  s, bound = slots[varying[0]], ix.sub(b, a)
  if s.bound is not None and s.offset != offset: raise NoBox("two conditions bound one dimension in two ways")
  s.bound, s.offset = bound if s.bound is None else ix.least(bound, s.bound), offset


def _spread(rest: dict[UOp, UOp], order: list[_Slot]) -> list[_Slot]:
  """The dimensions with the terms that no condition names, each in the outermost dimension that it moves by whole elements. Where
  a condition has given that one its offset, the term gets a new dimension, of which a block has one element. Raises NoBox."""
  for x, k in sorted(rest.items(), key=cmp_to_key(_ascending)):
    if ix.vmin(k) < 1: raise NoBox("its condition and its index disagree, or it goes backwards through memory")
    host = next(s for s in order if _at_most(s.stride, k))
    if ix.mod(k, host.stride) is not ix.ZERO:
      raise NoBox(f"its blocks are {dim_text(k)} elements apart, which is no multiple of {dim_text(host.stride)}")
    if host.bound is None: host.offset[x] = ix.add(host.offset.get(x, ix.ZERO), ix.fdiv(k, host.stride))
    elif k is not host.stride: order.insert(order.index(host), _Slot(k, offset={x: ix.ONE}))
    else: raise NoBox("its condition and its index disagree")
  return order


def _span(offset: Mapping[UOp, UOp], start: UOp) -> tuple[UOp, UOp]:
  """The least and the greatest value of a sum of terms and a constant."""
  low = high = start
  for x, k in offset.items():
    ends = ix.const(ix.vmin(x)), _greatest(x)
    a, b = (ix.mul(k, n) for n in (ends if ix.vmin(k) >= 0 else ends[::-1]))
    low, high = ix.add(low, a), ix.add(high, b)
  return low, high


def _greatest(x: UOp) -> UOp:
  """The greatest value of an integer: of programs and loops as their sizes have it."""
  x = uncast(x)
  end: Dim | None = x.arg[2] if x.op is Ops.SPECIAL else as_sizes(x.src[1]) if x.op is Ops.LOOP else None
  return ix.const(ix.vmax(x)) if end is None or isinstance(end, int) else ix.sub(end, 1)


def _check(dims: Sequence[Dimension], itemsize: int, written: bool) -> None:
  """What the hardware asks for: it writes rows in units, the last of which would overwrite what follows a row. Raises NoBox."""
  if len(dims) > MOST_DIMENSIONS: raise NoBox(f"it has {len(dims)} dimensions, a descriptor {MOST_DIMENSIONS} at most")
  inner = dims[-1]
  if inner.block * itemsize < UNIT: raise NoBox(f"a block is {inner.block * itemsize} bytes wide, less than {UNIT}")
  if any(n * itemsize % UNIT for n in (inner.start, *inner.terms.values())):
    raise NoBox(f"blocks begin at other than multiples of {UNIT} bytes")
  for outer, below in pairwise(dims):
    stride, under, size = map(ix.node, (outer.stride, below.stride, below.size))
    apart = ix.mul(stride, itemsize)
    if not ix.divides(UNIT, apart): raise NoBox(f"its rows are {dim_text(apart)} bytes apart, no multiple of {UNIT}")
    if ix.vmin(apart) >= _FAR: raise NoBox(f"its rows are {dim_text(apart)} bytes apart")
    if ix.mod(stride, under) is not ix.ZERO or not _at_most(ix.mul(size, under), stride): raise NoBox("its windows overlap")
  ends = ix.mul(ix.node(inner.size), itemsize)
  if written and not ix.divides(UNIT, ends):
    raise NoBox(f"its rows end at {dim_text(ends)} bytes, no multiple of the {UNIT} that are written at once")


# ---- the program

def find_boxes(uops: Sequence[UOp], dims: Mapping[UOp, AxisIds],
               padded: Mapping[int, int]) -> tuple[dict[UOp, Box], dict[str, str]]:
  """The boxes of the marked accesses; and of those that have none, the names of their params, and why."""
  boxes = {}
  pointers = dict[str, str]()
  loaded = touched(uops, Ops.LOAD)
  stored = Counter(u.src[0] for u in uops if u.op in (Ops.STORE, Ops.ATOMIC))
  loops = []   # the LOOPs and WHILEs that are open
  for u in uops:
    op, src = u.op, u.src
    if op in (Ops.LOOP, Ops.WHILE): loops.append(u)
    elif op in (Ops.ENDLOOP, Ops.ENDWHILE): loops.pop()
    elif op in (Ops.LOAD, Ops.STORE) and u.arg == MARK:
      try:
        if src[0] in loaded and src[0] in stored: raise NoBox("it is read and written")
        box = _box(u, dims, padded)
        if op is Ops.STORE:   # those by descriptor are not ordered among each other: no element may be stored twice
          if stored[src[0]] > 1: raise NoBox("it is written in several places")
          beneath = toposort(box.atoms)
          if any(loop not in beneath for loop in loops): raise NoBox("a loop writes the same elements again")
        boxes[u] = box
      except NoBox as e: pointers.setdefault(src[0].arg[1], str(e))
  return boxes, pointers
