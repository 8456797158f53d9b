"""A kernel in index form: parameters, axes, and a body of STOREs whose values are functions of the axes."""
from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any, Iterator

from . import index as ix
from .dtype import DType
from .uop import BinaryOps, Ops, UOp, toposort


class AxisKind(Enum):
  """How the values of an axis are gone through (DESIGN section 4)."""
  GRID = "grid"
  LOOP = "loop"
  TILE = "tile"
  LOCAL = "local"
  UPCAST = "upcast"
  UNROLL = "unroll"
  LANE = "lane"
  __hash__ = object.__hash__
  def __str__(self) -> str: return self.name


@dataclass(frozen=True)
class Axis:
  """One dimension of the iteration space: ``RANGE(id, size)`` in the body."""
  id: int
  size: int
  kind: AxisKind

  @property
  def rng(self) -> UOp: return ix.rng(self.id, self.size)
  def __str__(self) -> str: return f"a{self.id}:{self.size} {self.kind}"


@dataclass(frozen=True)
class Param:
  """A buffer parameter: its source shape (indices are one a source dimension), element type, and whether it is written."""
  slot: int
  shape: tuple[int, ...]
  dtype: DType
  written: bool

  @property
  def uop(self) -> UOp: return UOp(Ops.DEFINE_GLOBAL, self.dtype, (), (self.slot, f"data{self.slot}", self.written))


@dataclass(frozen=True)
class Kernel:
  """``body`` is a tuple of STORE(param, INDEX, value[, gate]); ``applied`` lists the Opts that led here."""
  params: tuple[Param, ...]
  axes: tuple[Axis, ...]
  body: tuple[UOp, ...]
  applied: tuple[Any, ...] = ()

  def __iter__(self) -> Iterator[Kernel]: yield self   # ``Linearizer(*item.ast)``, as older scripts have it

  def with_(self, **changes: Any) -> Kernel: return replace(self, **changes)

  @cached_property
  def nodes(self) -> list[UOp]: return toposort(self.body)

  @cached_property
  def reduces(self) -> list[UOp]: return [u for u in self.nodes if u.op is Ops.REDUCE]

  @cached_property
  def bound(self) -> frozenset[int]:
    """Ids of the axes that one program goes through: those that some REDUCE binds, and the sequential ones."""
    return self.sequential.union(i for r in self.reduces for i in r.arg[1])

  @cached_property
  def sequential(self) -> frozenset[int]:
    """Ids of the axes that a scattering STORE goes through in order: later values are added to, or replace, earlier ones."""
    return frozenset(i for s in self.body if isinstance(s.arg, tuple) for i in s.arg[1])

  @cached_property
  def in_place(self) -> bool:
    """Whether some parameter is both read and written."""
    written = {u.src[0] for u in self.body}
    return bool(self.sequential) or any(u.op is Ops.LOAD and u.src[0] in written for u in self.nodes)

  def axis(self, id: int) -> Axis: return next(a for a in self.axes if a.id == id)

  def of_kind(self, *kinds: AxisKind) -> list[Axis]: return [a for a in self.axes if a.kind in kinds]

  @cached_property
  def flops(self) -> int:
    """Arithmetic operations of one launch, as a person would count them."""
    size = {a.rng: a.size for a in self.axes}
    def count(over: frozenset[UOp]) -> int:
      n = 1
      for r in over: n *= size.get(r, 1)
      return n
    total = 0
    for u in self.nodes:
      if u.op is Ops.ALU and u.dtype.kind == "f": total += count(u.ranges)
      elif u.op is Ops.REDUCE and u.arg[0] is BinaryOps.ADD: total += count(u.src[0].ranges)
    return total

  @cached_property
  def bytes(self) -> int:
    """Least traffic of one launch: what is read and written of each parameter, once."""
    total = 0
    for p in self.params:
      n = 1
      for s in p.shape: n *= s
      reads = {u.src[1] for u in self.nodes if u.op in (Ops.LOAD, Ops.STORE) and u.src[0] is p.uop}
      touched = 0
      for i in reads:
        t = 1
        for r in i.ranges: t *= r.arg[1]
        touched += t
      total += min(n, max(touched, 1)) * p.dtype.itemsize
    return total
