"""The bound of a kernel: what one launch has to do at least, and how long a device takes for that (its roofline).

Work is counted in the index form, before any Opt, so it does not depend on how the kernel is computed:

- bytes: each element of a param that is read counts once, each that is written once more. Of a gather at most as many elements
  count as are asked for, and never more than the param has. Overlapping windows count once. Padding is not read.
- operations, by the unit that can do them: sums of products with rows, columns and a contraction are matrix work, ``exp``, ``/``
  and the like special work, all other arithmetic vector work. Index arithmetic and masks made of indices count nothing.

Sizes of the launch stay expressions. The body of a WHILE counts once, both branches of an IF count: how often they run is data.
"""
from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Iterable, Mapping, NamedTuple, Sequence

from .. import index as ix
from ..index import Dim, greater, lesser, sizes_of
from ..ir import COMPARE, TF32, BinaryOps, DType, Ops, Target, TernaryOps, UnaryOps, UOp, is_marked, memoized, toposort
from ..kernel import ACCESSES, EFFECTS, Kernel, gate_or_true, is_masked, walk_statements
from ..opts import split_axes

_LINE = 64   # bytes of memory that are fetched together


class Unit(Enum):
  """What limits a launch: a kind of memory, or a unit that computes."""
  MEMORY = "memory"
  CACHE = "cache"       # the last one, where all that a launch touches may lie
  MATRIX = "matrix"
  VECTOR = "vector"
  SPECIAL = "special"
  __hash__ = object.__hash__


@dataclass(frozen=True)
class Operations:
  """``count`` operations of a unit on values of a dtype, by its name (of a matrix unit: of the factors)."""
  unit: Unit
  dtype: str
  count: Dim


@dataclass(frozen=True)
class Work:
  """What one launch does at least: bytes moved, operations, and the sizes of its axes, as numbers or indices over SIZEs; and the
  bytes that lie beside those moved, in the same lines of memory, and are left out, by steps along a last dimension or by data."""
  bytes: Dim = 0
  operations: tuple[Operations, ...] = ()
  axes: tuple[Dim, ...] = ()
  beside: Dim = 0

  @property
  def flops(self) -> Dim:
    """Arithmetic operations of all units, a multiplication and an addition counting as two."""
    return ix.total(o.count for o in self.operations)

  @property
  def numbers(self) -> tuple[Dim, ...]:
    """Everything that sizes may stand in."""
    return self.bytes, self.beside, *self.axes, *[o.count for o in self.operations]

  def with_numbers(self, numbers: Sequence[Dim]) -> Work:
    """The work with these in place of ``numbers``."""
    n = 2 + len(self.axes)
    operations = tuple(replace(o, count=c) for o, c in zip(self.operations, numbers[n:]))
    return Work(numbers[0], operations, tuple(numbers[2:n]), numbers[1])

  def likely(self) -> Work:
    """The work with numbers for all sizes, about what they may be."""
    return self.with_numbers([ix.count(n) for n in self.numbers])

  def given(self, sizes: Sequence[ix.Size]) -> Work:
    """The work with about what they may be in place of sizes that a launch does not give."""
    return self.with_numbers([n if set(sizes_of([n])) <= set(sizes) else ix.count(n) for n in self.numbers])

  def rounded(self) -> Work:
    """The work where factors of float32 products may be rounded to tf32."""
    def name(o: Operations) -> str: return "tf32" if o.unit is Unit.MATRIX and o.dtype == "float32" else o.dtype
    return replace(self, operations=tuple(replace(o, dtype=name(o)) for o in self.operations))


@dataclass(frozen=True)
class Bound:
  """The seconds below which no launch can be, and the unit that needs them."""
  seconds: float
  unit: Unit


def bound(work: Work, target: Target) -> Bound:
  """The bound of a launch on a device. ``work`` has numbers only. Units work at the same time: the slowest of them counts."""
  rates, moved = target.rates, work.bytes
  assert isinstance(moved, int), "the work of a launch has numbers"
  where = Unit.CACHE if moved <= target.cache else Unit.MEMORY
  seconds = {where: moved / (rates.cache if where is Unit.CACHE else target.bandwidth)}
  for o in work.operations:
    assert isinstance(o.count, int), "the work of a launch has numbers"
    unit, rate = o.unit, rates.special if o.unit is Unit.SPECIAL else rates.vector.get(o.dtype, rates.vector["float32"])
    if unit is Unit.MATRIX:   # by whichever is faster: some chips have no matrix unit for some dtypes
      by_matrix = rates.matrix.get(o.dtype, 0)
      if by_matrix > rate: rate = by_matrix
      else: unit = Unit.VECTOR
    seconds[unit] = seconds.get(unit, 0) + o.count / rate
  slowest = max(seconds, key=seconds.__getitem__)
  return Bound(seconds[slowest], slowest)


# ---- counting

# done by special function units, where a chip has them, and by ten vector operations or more where it has not
SPECIAL = frozenset((
  UnaryOps.RECIP, UnaryOps.SQRT, UnaryOps.RSQRT, UnaryOps.EXP, UnaryOps.EXP2, UnaryOps.LOG, UnaryOps.LOG2, UnaryOps.SIN,
  UnaryOps.COS, UnaryOps.TAN, UnaryOps.TANH, UnaryOps.ERF, BinaryOps.DIV, BinaryOps.POW))
# functions that take more than one operation however they are computed: 20 rounds of three, and the keys
_SEVERAL = {BinaryOps.THREEFRY: 75}
_EMPTY: frozenset[UOp] = frozenset()
_Nodes = list[tuple[Sequence[UOp], frozenset[UOp]]]


@lru_cache(maxsize=256)
def work_of(kernel: Kernel) -> Work:
  """What one launch of a kernel in index form does at least."""
  if kernel.plain and not kernel.tiles: kernel = split_axes(kernel)   # rows and columns of a flattened product
  sizes: dict[UOp, Dim] = {a.rng: a.count if a.varies else a.size for a in kernel.axes}
  # the nodes, and the axes that they are gone through for beside their own: the programs and the FORs around
  nodes: _Nodes = [(kernel.nodes, _EMPTY)]
  if not kernel.plain:
    grid = frozenset(a.rng for a in kernel.grid)
    nodes = [([*toposort(s.src), s] if s.op in EFFECTS else toposort(s.src[:1]), grid.union(kernel.axis(i).rng for i in fors))
             for s, fors in walk_statements(kernel.body)]
  moved, beside = _bytes(kernel, nodes, sizes)
  return Work(moved, _operations(kernel, nodes, sizes), tuple(sizes.values()), beside)


# ---- operations

def _operations(kernel: Kernel, parts: _Nodes, sizes: Mapping[UOp, Dim]) -> tuple[Operations, ...]:
  """The operations of a launch, those of a unit and dtype together, in a fixed order."""
  found: dict[tuple[Unit, str], Dim] = {}
  def note(unit: Unit, dtype: DType | str, over: Iterable[UOp], times: int = 1) -> None:
    key = unit, dtype if isinstance(dtype, str) else dtype.scalar().name
    found[key] = ix.plus(found.get(key, 0), ix.times(ix.product([sizes.get(r, 1) for r in over]), times))
  for nodes, around in parts:
    products = {u: p for u in nodes if u.op is Ops.REDUCE and (p := _product(u)) is not None}
    multiplied = {node for node, _ in products.values()}
    for u in nodes:
      op = u.op
      if u in products: note(Unit.MATRIX, products[u][1], products[u][0].ranges | around, 2)
      elif op is Ops.REDUCE or op is Ops.SCAN: note(Unit.VECTOR, u.dtype, u.src[0].ranges | around)
      elif op is Ops.SORTED or op is Ops.SORT:   # comparisons that any sort needs
        axis = kernel.axis(u.arg[0])
        own = {axis.rng} if op is Ops.SORT else _EMPTY
        note(Unit.VECTOR, u.dtype, u.src[0].ranges | around | own, max((axis.count - 1).bit_length(), 1))
      elif _adds_to(u): note(Unit.VECTOR, u.dtype, u.src[1].ranges | u.src[2].ranges | around)
      elif op is Ops.ALU and u not in multiplied and (dtype := _computes(u)) is not None:
        unit = Unit.SPECIAL if u.arg in SPECIAL and dtype.kind == "f" else Unit.VECTOR
        note(unit, dtype, u.ranges | around, _SEVERAL.get(u.arg, 1))
  return tuple(Operations(*key, n) for key, n in sorted(found.items(), key=lambda f: (f[0][0].value, f[0][1])) if n != 0)


def _adds_to(u: UOp) -> bool:
  """Whether an effect combines what it stores with what is there."""
  return u.op is Ops.ATOMIC or u.op is Ops.STORE and isinstance(u.arg, tuple) and u.arg[0] == "add"


def _computes(u: UOp) -> DType | None:
  """The dtype that an ALU node computes with; None for index arithmetic, masks made of indices, and logic of conditions."""
  if u.arg is TernaryOps.WHERE and not _of_data(u.src[0]): return None
  dtype = (u.src[0] if u.arg in COMPARE else u).dtype
  return dtype if dtype.kind == "f" or dtype.kind in "iu" and dtype is not ix.INT and _of_data(u) else None


@memoized
def _of_data(u: UOp) -> bool:
  """Whether a value depends on what is in memory, or in a variable."""
  return u.op is Ops.LOAD or any(map(_of_data, u.src))


def _product(u: UOp) -> tuple[UOp, str] | None:
  """The multiplication that a REDUCE adds up, and the dtype of its factors as they are in memory, where matrix units can do it:
  one factor has rows, the other columns, and both what is added along; else None."""
  value = u.src[0]
  while value.op is Ops.CAST or is_masked(value) and not _of_data(value.src[0]): value = value.src[value.op is not Ops.CAST]
  if u.arg[0] is not BinaryOps.ADD or value.arg is not BinaryOps.MUL: return None
  a, b = value.src
  def bound(ranges: frozenset[UOp]) -> frozenset[UOp]: return frozenset(r for r in ranges if r.arg[0] in u.arg[1])
  mine, others = a.ranges - b.ranges, b.ranges - a.ranges
  if not bound(a.ranges & b.ranges) or not mine - bound(mine) or not others - bound(others): return None
  x, y = [(s.src[0] if s.op is Ops.CAST else s).dtype.scalar() for s in (a, b)]
  return value, TF32 if is_marked((a, b)) else (
    x if x is y and x.kind == value.dtype.kind and x.kind in "fi" else value.dtype.scalar()).name


# ---- bytes

class _Access(NamedTuple):
  """Where a param is read or written: one index a dimension, under a condition, for each value of the axes ``around``."""
  at: UOp
  gate: UOp
  around: frozenset[UOp]


class _Span(NamedTuple):
  """Where an index goes along a dimension: from ``low`` to ``high``, multiples of ``step`` apart, so many places at most."""
  low: Dim
  high: Dim
  step: int
  number: Dim


def _bytes(kernel: Kernel, parts: _Nodes, sizes: Mapping[UOp, Dim]) -> tuple[Dim, Dim]:
  """The bytes that a launch has to move: elements read, and elements written, each once; and those beside them."""
  found: dict[UOp, tuple[dict[_Access, None], dict[_Access, None]]] = {p.uop: ({}, {}) for p in kernel.params}
  for nodes, around in parts:
    for u in nodes:
      if u.op not in ACCESSES or (buffer := u.src[0]) not in found: continue
      access = _Access(u.src[1], gate_or_true(u), around if _of_data(u.src[1]) else _EMPTY)
      if u.op is Ops.LOAD or _adds_to(u): found[buffer][0][access] = None
      if u.op is not Ops.LOAD: found[buffer][1][access] = None
  reached = [(p.dtype.itemsize, *_touched(p.shape, list(accesses), sizes, max(_LINE // p.dtype.itemsize, 1)))
             for p in kernel.params for accesses in found[p.uop] if accesses]
  return ix.total(ix.times(n, size) for size, n, _ in reached), ix.total(ix.times(n, size) for size, _, n in reached)


def _touched(shape: Sequence[Dim], accesses: Sequence[_Access], sizes: Mapping[UOp, Dim], line: int) -> tuple[Dim, Dim]:
  """How many different elements some accesses of one param reach, at most; and how many lie beside these, in lines of so many,
  where all of them leave some out."""
  out: Dim = 0
  step = line
  spans: list[list[_Span]] = []
  for a in accesses:
    ends = _ends(a, sizes)
    spans.append([_span(i, n, a.around, ends) for i, n in zip(a.at.src, shape)])
    each = ix.product(_length(*ends[r]) for r in a.at.ranges | a.around)
    out = ix.plus(out, _least(each, ix.product(s.number for s in spans[-1])))
    if shape and not _of_data(a.at.src[-1]) and spans[-1][-1].number != 1: step = min(step, spans[-1][-1].step)
  out, box = _least(out, ix.product(shape)), _together(spans) if len(spans) > 1 else None
  if box is not None: out = _least(out, box)
  return out, ix.minus(_least(ix.times(out, step), ix.product(shape)), out)


def _together(spans: Sequence[Sequence[_Span]]) -> int | None:
  """The elements of the box around several accesses that their steps come to; None where its ends are known at the launch."""
  out = 1
  for along in zip(*spans):
    ends = [(s.low, s.high) for s in along if isinstance(s.low, int) and isinstance(s.high, int)]
    if len(ends) < len(along): return None
    low, high = min(a for a, _ in ends), max(b for _, b in ends)
    out *= (high - low) // math.gcd(*[s.step for s in along], *[a - low for a, _ in ends]) + 1
  return out


_Ends = dict[UOp, tuple[Dim, Dim]]   # the first and last value of axes


def _ends(a: _Access, sizes: Mapping[UOp, Dim]) -> _Ends:
  """The first and last value of each axis of an access, as far as conditions on one axis leave some out."""
  out: _Ends = {r: (0, ix.minus(sizes.get(r, 1), 1)) for r in a.at.ranges | a.gate.ranges | a.around}
  for c in ix.conjuncts(a.gate):
    if c.arg is not BinaryOps.CMPLT or c.src[0].dtype is not ix.INT: continue
    whole = ix.sub(*c.src)   # less than 0
    axes = [(t, k) for t, k in ix.linear(whole)[0] if not ix.of_sizes(t)]
    if len(axes) != 1 or axes[0][0] not in out: continue
    (r, k), = axes
    rest, (low, high) = ix.sub(whole, ix.mul(r, k)), out[r]
    if k > 0: out[r] = low, _least(high, ix.number(ix.fdiv(ix.sub(ix.const(-1), rest), k)))
    else: out[r] = greater(low, ix.number(ix.cdiv(ix.add(rest, 1), -k))), high
  return out


def _length(low: Dim, high: Dim) -> Dim: return greater(ix.plus(ix.minus(high, low), 1), 0)


def _span(index: UOp, size: Dim, around: frozenset[UOp], ends: _Ends) -> _Span:
  """Where an index goes along a dimension of so many elements."""
  axes = index.ranges | (around if _of_data(index) else _EMPTY)
  count = _least(ix.product(_length(*ends[r]) for r in axes), size)
  terms, start = ix.linear(index)
  low: Dim = start
  high: Dim = start
  step = 0
  for t, k in terms:
    first, last = ends[t] if t in ends else (ix.number(t),) * 2 if ix.of_sizes(t) else ix.bounds(t)
    if last is not first and isinstance(first, int) and isinstance(last, int) and last - first >= ix.FAR:
      return _Span(0, ix.minus(size, 1), 1, count)
    if not ix.of_sizes(t): step = math.gcd(step, k)
    low, high = [ix.plus(n, ix.times(end, k)) for n, end in zip((low, high), (first, last) if k > 0 else (last, first))]
  step = max(step, 1)
  if isinstance(low, int) and low < 0: low %= step   # a mask leaves out what is before the first element,
  if isinstance(high, int) and isinstance(size, int): high = min(high, size - 1)   # and past the last
  if len(axes) > 1 or isinstance(low, int) and isinstance(high, int): count = _least(count, ix.rounds(_length(low, high), step))
  return _Span(low, high, step, count)


def _least(a: Dim, b: Dim) -> Dim:
  """The lesser of two sizes, what is in both only once: min(min(N, M), M) -> min(N, M)."""
  for x, y in ((a, b), (b, a)):
    if isinstance(x, UOp) and x.arg is BinaryOps.MIN and y in x.src: return x
  return lesser(a, b)
