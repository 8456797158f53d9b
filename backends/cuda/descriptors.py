"""Accesses by tensor descriptor (TMA): which block of which box of memory an access is.

A LOAD or STORE that an Opt has marked says where each element lies, and under which condition there is one. A descriptor says
that of a whole box: sizes, strides, and the sizes of the blocks that are read or written; an access then names the corner of one.
What lies outside the box is read as 0 and not written, which is what the conditions mean. An access of another form keeps its
pointers, and says why.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Sequence

from ntgrad.codegen.blocks import EFFECTS, sources, terms
from ntgrad.codegen.index import bounds, conjuncts
from ntgrad.codegen.uop import BinaryOps, Ops, UOp

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
  any.

  The block begins at ``start`` and so many times each atom; ``terms`` names an atom by its number among the access's last
  sources.
  """
  size: int
  stride: int
  block: int
  axis: int | None
  terms: tuple[tuple[int, int], ...]
  start: int


@dataclass(frozen=True)
class Box:
  """The arg of an access by descriptor, LOAD(buffer, atom..) or STORE(buffer, value, atom..). The outermost dimension comes
  first."""
  dims: tuple[Dimension, ...]

  @property
  def axes(self) -> list[int]:
    """The TILE axes of the block, as memory has them."""
    return [d.axis for d in self.dims if d.axis is not None]

  @property
  def blocks(self) -> tuple[int, ...]: return tuple(d.block for d in self.dims)

  @property
  def layout(self) -> tuple[tuple[int, int, int], ...]:
    """What the descriptor itself says; accesses that agree in it share one."""
    return tuple((d.size, d.stride, d.block) for d in self.dims)


@dataclass
class _Slot:
  """A dimension while it is found."""
  stride: int
  axis: UOp | None
  block: int = 1                                   # elements of the access, which may be fewer than the block's
  bound: int | None = None                         # offset without constant + element < bound
  offset: dict[UOp, int] = field(default_factory=dict)


def find(u: UOp, dims: Mapping[UOp, frozenset[int]], padded: Mapping[int, int]) -> tuple[Box, tuple[UOp, ...]]:
  """The box of a LOAD or STORE, and the atoms of its offsets. Raises Pointers, saying why, where there is none."""
  buffer, index = u.src[:2]
  load, itemsize = u.op is Ops.LOAD, buffer.dtype.itemsize
  if load and len(u.src) > 3 and not (u.src[3].op is Ops.CONST and u.src[3].arg == 0):
    raise Pointers("outside it, something else than 0 is read")
  none: frozenset[int] = frozenset()
  rest, c = terms(index)
  rest = {x: k for x, k in rest.items() if k}
  if any(x.op is not Ops.RANGE and dims.get(x, none) for x in rest): raise Pointers("its index is not linear in the block's axes")
  tiles = sorted(((x, k) for x, k in rest.items() if x.op is Ops.RANGE), key=lambda t: -t[1])
  if not tiles: raise Pointers("it is one element")
  if tiles[-1][1] < 1: raise Pointers("it goes backwards through memory")
  if tiles[-1][1] != 1: raise Pointers(f"neighbours in the block are {tiles[-1][1]} elements apart")
  if len({k for _, k in tiles}) < len(tiles): raise Pointers("its windows overlap")
  slots = {x: _Slot(k, x, x.arg[1]) for x, k in tiles}
  if not load and not dims.get(u.src[2], none) <= {x.arg[0] for x in slots}:
    raise Pointers("its value has other axes than its place")
  for x, _ in tiles: del rest[x]
  gate = u.src[2] if load and len(u.src) > 2 else u.src[3] if not load and len(u.src) > 3 else None
  for condition in [] if gate is None else conjuncts(gate): _bounded(condition, slots, dims)
  for s in slots.values():
    # TILE sizes are rounded up: the elements added must lie outside
    if s.bound is None and s.axis is not None and padded[s.axis.arg[0]] != s.block: s.bound = s.block
    for x, k in s.offset.items(): rest[x] = rest.get(x, 0) - k * s.stride
  order = _spread({x: k for x, k in rest.items() if k}, sorted(slots.values(), key=lambda s: -s.stride))
  atoms = tuple(dict.fromkeys(x for s in order for x in s.offset))
  out = []
  for s in order:
    start, c = divmod(c, s.stride)
    low, high = _span(s.offset, start)
    if low < 0: raise Pointers("a block may begin before the first element")
    size = high + s.block if s.bound is None else s.bound + start
    block = 1 if s.axis is None else padded[s.axis.arg[0]]
    if block != s.block and low + s.block < size:
      raise Pointers(f"a block has {s.block} elements along a dimension, no power of two")
    if block > MOST_ELEMENTS: raise Pointers(f"a block has {block} elements along a dimension, more than {MOST_ELEMENTS}")
    if not 0 < size < 1 << 31 or high >= 1 << 31: raise Pointers(f"a dimension has {size} elements")
    axis = None if s.axis is None else s.axis.arg[0]
    out.append(Dimension(size, s.stride, block, axis, tuple((atoms.index(x), k) for x, k in s.offset.items()), start))
  _check(out, itemsize, not load)
  return Box(tuple(out)), atoms


def _bounded(condition: UOp, slots: Mapping[UOp, _Slot], dims: Mapping[UOp, frozenset[int]]) -> None:
  """Note a condition ``offset + element < bound`` with its dimension, whose offset it also tells."""
  if condition.op is Ops.CONST and condition.arg: return
  if condition.op is not Ops.ALU or condition.arg is not BinaryOps.CMPLT:
    raise Pointers("its condition is no bound of a dimension")
  (left, a), (right, b) = terms(condition.src[0]), terms(condition.src[1])
  offset = {x: k for x in {**left, **right} if (k := left.get(x, 0) - right.get(x, 0))}
  varying = [x for x in offset if dims.get(x)]
  if len(varying) != 1 or varying[0] not in slots or offset.pop(varying[0]) != 1:
    raise Pointers("its condition is no bound of a dimension")
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
    elif k > host.stride: order.insert(order.index(host), _Slot(k, None, 1, None, {x: 1}))
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
  if any(n * itemsize % UNIT for n in (inner.start, *(k for _, k in inner.terms))):
    raise Pointers(f"blocks begin at other than multiples of {UNIT} bytes")
  for outer, below in zip(dims, dims[1:]):
    apart = outer.stride * itemsize
    if apart % UNIT: raise Pointers(f"its rows are {apart} bytes apart, no multiple of {UNIT}")
    if apart >= _FAR: raise Pointers(f"its rows are {apart} bytes apart")
    if outer.stride % below.stride or below.size * below.stride > outer.stride: raise Pointers("its windows overlap")
  if written and inner.size * itemsize % UNIT:
    raise Pointers(f"its rows end at {inner.size * itemsize} bytes, no multiple of the {UNIT} that are written at once")


# ---- the pass

@dataclass
class Boxes:
  """``find`` makes the marked accesses that are boxes into accesses by descriptor. ``pointers`` has the others' params, and
  why."""
  uops: list[UOp]
  dims: dict[UOp, frozenset[int]]
  padded: Mapping[int, int]
  pointers: dict[str, str] = field(default_factory=dict)

  def find(self) -> list[UOp]:
    """The program with them, and without what only their indices needed; ``dims`` then knows its values."""
    if not any(u.arg == MARK for u in self.uops if u.op in (Ops.LOAD, Ops.STORE)): return self.uops
    loaded = {u.src[0] for u in self.uops if u.op is Ops.LOAD}
    stored = [u.src[0] for u in self.uops if u.op in (Ops.STORE, Ops.ATOMIC)]
    new: dict[UOp, UOp] = {}
    out: list[UOp] = []
    around: list[UOp] = []   # LOOPs and WHILEs
    for u in self.uops:
      if u.op in (Ops.LOOP, Ops.WHILE): around.append(u)
      elif u.op in (Ops.ENDLOOP, Ops.ENDWHILE): around.pop()
      src = tuple(new.get(s, s) for s in u.src)   # constants made on the way stand in no list
      n = u.replace(src)
      if u.op in (Ops.LOAD, Ops.STORE) and u.arg == MARK:
        try:
          if u.src[0] in loaded and u.src[0] in stored: raise Pointers("it is read and written")
          box, atoms = find(u, self.dims, self.padded)
          if u.op is Ops.STORE: _in_order(atoms, stored.count(u.src[0]), around)
          n = UOp.unique(u.op, u.dtype, (src[0], *(src[2:3] if u.op is Ops.STORE else ()), *(new.get(x, x) for x in atoms)), box)
        except Pointers as e: self.pointers.setdefault(u.src[0].arg[1], str(e))
      new[u] = n
      if u in self.dims: self.dims[n] = self.dims[u]
      out.append(n)
    used: set[UOp] = set()
    for u in reversed(out):
      # masks for the elements added to an axis are made from its RANGE
      if u.op in EFFECTS or u in used or u.op is Ops.RANGE and self.padded[u.arg[0]] != u.arg[1]: used.update((u, *sources(u)))
    return [u for u in out if u in used]


def _in_order(atoms: Sequence[UOp], count: int, around: Sequence[UOp]) -> None:
  """Stores by descriptor are not ordered among each other: no element may be stored twice. Raises Pointers."""
  if count > 1: raise Pointers("it is written in several places")
  beneath = {n for x in atoms for n in x.toposort()}
  if any(loop not in beneath for loop in around): raise Pointers("a loop writes the same elements again")

