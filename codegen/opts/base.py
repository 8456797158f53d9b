"""What all Opts share: fields, text, JSON, the way they are applied, and how the search goes from one list of them to the
next."""
from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import astuple, dataclass, fields, replace
from functools import reduce
from typing import Any, ClassVar, Iterable, Iterator

from ..ir import Ops, OptError, Target, shown
from ..kernel import Axis, AxisKind, Kernel

__all__ = ["OPTS", "OnAxis", "Opt", "Opts", "PLAIN_KINDS", "SizedOpt", "read_opt", "with_opts"]

OPTS: dict[str, type[Opt]] = {}   # every Opt by its name
PLAIN_KINDS = AxisKind.GRID, AxisKind.LOOP
PREFIX = {"axis": "a", "other": "a", "param": "data"}   # fields that name something; all other ints are amounts, at least 1


@dataclass(frozen=True)
class Opt(ABC):
  """A step on a kernel. Prints as a call, without fields that have their default: ``a0.vectorize(8)``, ``data1.cache_read(a2)``,
  ``warps(8)``.

  ``axis`` is an axis's id, ``param`` a param's slot. Raises OptError where a field has a value that it does not take.

  What a STORE leaves is the same however often and in whichever order its elements are stored. That is not so of effects that
  read their place (``kernel.reads_its_place``: a STORE that adds, a scatter, an ATOMIC) nor of a kernel that reads what it
  writes:

  - ``ShiftInwards`` and its like compute elements twice: none of these kernels takes them, and the verifier refuses one that has.
  - ``NonTemporal`` and ``TensorDescriptor`` change how a STORE writes: of these effects they are refused.
  - An axis that is gone through in order is split, padded (the added values are not stored) or moved, as long as the order is the
    same. No other Opt takes it.
  - All others give every element to exactly one place of the new axes, and any effect takes them."""
  name: ClassVar[str] = ""
  # for the search
  blocks: ClassVar[bool | None] = None   # True: of use on targets with blocks only, False: on others only
  late: ClassVar[bool] = False           # comes after all that makes copies and lanes
  optional: ClassVar[bool] = False       # may be left out

  def __init_subclass__(cls, abstract: bool = False) -> None:
    cls.name = "".join("_" + c.lower() if c.isupper() else c for c in cls.__name__)[1:]
    if not abstract: OPTS[cls.name] = cls

  def __post_init__(self) -> None:
    for f in fields(self):
      value = getattr(self, f.name)
      if value is None and f.default is None: continue
      if type(value).__name__ != str(f.type).split()[0]:
        raise OptError(f"{type(self).__name__}: {f.name} is {f.type}, got {shown(value)}")
      least = 0 if f.name in PREFIX else 1
      if f.type != "bool" and value < least: raise OptError(f"{self}: {f.name} is at least {least}, got {value}")

  def __str__(self) -> str:
    given = [(f.name, v) for f in fields(self) if (v := getattr(self, f.name)) != f.default]
    args = [f"{k}={v}" if isinstance(v, bool) else f"{PREFIX.get(k, '')}{v}" for k, v in given]
    on = f"{args.pop(0)}." if given[0][0] in PREFIX else ""
    return f"{on}{self.name}({', '.join(args)})"

  def json(self) -> list[Any]: return [self.name, *astuple(self)]   # its name and its fields, for ``read_opt``

  def apply(self, kernel: Kernel) -> Kernel:
    """The kernel after this Opt. Raises OptError, saying why, where the kernel does not take it."""
    if kernel.scans: raise OptError(f"{self}: the kernel has a SCAN in a value; the pass scans makes a loop of it first")
    if kernel.sorts: raise OptError(f"{self}: the kernel has a SORTED in a value; the pass sorts makes statements of it first")
    return self.change(kernel).with_(applied=(*kernel.applied, self))

  @abstractmethod
  def change(self, kernel: Kernel) -> Kernel: """What ``apply`` does, without a note that it has been done."""

  def axis_of(self, kernel: Kernel, id: int) -> Axis:
    """The axis with this id, which may still be changed: once programs are persistent, those of their loops."""
    here = ", ".join(map(str, kernel.axes)) or "none, since all dimensions have one element"
    found = next((a for a in kernel.axes if a.id == id), None)
    if found is None: raise OptError(f"{self}: the kernel has axes {here}")
    if any(a.programs for a in kernel.axes) and (found.programs or found.kind is not AxisKind.LOOP):
      raise OptError(f"{self}: persistent programs ({here}) are the last step")
    return found

  # ---- for the search

  def resized(self) -> Iterable[Opt]:
    """The same step with other numbers."""
    return ()

  @classmethod
  def suits(cls, target: Target) -> bool:
    """Whether one may be added for a target."""
    return cls.blocks in (None, target.blocks)

  @classmethod
  def more(cls, kernel: Kernel, target: Target) -> Iterator[Opts]:
    """Other lists to try after those that led to a kernel."""
    return iter(())


Opts = tuple[Opt, ...]


@dataclass(frozen=True)
class OnAxis(Opt, abstract=True):
  """A step on one axis."""
  axis: int

  def change(self, kernel: Kernel) -> Kernel:
    axis = self.axis_of(kernel, self.axis)
    if any(s.op is Ops.FOR and s.arg == axis.id for s in kernel.statements):
      raise OptError(f"{self}: a FOR goes through {axis}, as it is written")
    return self.on(kernel, axis)

  @abstractmethod
  def on(self, kernel: Kernel, axis: Axis) -> Kernel: """What ``change`` does, to the axis that was found."""

  def plain(self, kernel: Kernel, axis: Axis, loops: bool = False) -> None:
    """Raises OptError for an axis that is no GRID and no LOOP axis; unless it stays in ``loops``, also where local copies are
    laid out."""
    if axis.kind not in PLAIN_KINDS: raise OptError(f"{self}: axis {axis} is expanded already")
    if not loops and any(u.op is Ops.CACHE_READ for u in kernel.nodes):
      raise OptError(f"{self}: a copy in local memory is laid out; cache_read comes later")

  def steady(self, axis: Axis) -> None:
    """Raises OptError for an axis whose size varies with another, as that of a loop does whose last one is shorter."""
    if axis.varies: raise OptError(f"{self}: the size of {axis} varies")

  def unordered(self, kernel: Kernel, axis: Axis) -> None:
    """Raises OptError for an axis that the kernel goes through in order."""
    if axis.id in kernel.sequential: raise OptError(f"{self}: the axis {axis} is gone through in order")

  def alone(self, kernel: Kernel, axis: Axis) -> None:
    """Raises OptError where the size of another axis varies with this one."""
    other = next((a for a in kernel.axes if a.varies and a is not axis and axis.rng in a.rng.ranges), None)
    if other is not None: raise OptError(f"{self}: the size of {other} varies with {axis}")


@dataclass(frozen=True)
class SizedOpt(OnAxis, abstract=True):
  """A step on ``n`` values of an axis, all of them where ``n`` is None."""
  n: int | None = None
  tried: ClassVar[tuple[int, ...]] = ()            # numbers that the search tries
  along: ClassVar[tuple[AxisKind, ...]] = PLAIN_KINDS    # axes along which it does

  def resized(self) -> Iterable[Opt]: return [replace(self, n=m) for m in (self.n * 2, self.n // 2) if m >= 2] if self.n else []


def with_opts(kernel: Kernel, opts: Iterable[Opt]) -> Kernel:
  """A kernel after some Opts, one after the other."""
  return reduce(lambda k, o: o.apply(k), opts, kernel)


def read_opt(entry: Any) -> Opt:
  """The Opt that ``Opt.json`` gave. Raises OptError for what is none."""
  try:
    name, *values = entry
    return OPTS[name](*values)
  except (KeyError, TypeError, ValueError) as e:
    raise OptError(f"{shown(entry)} is no Opt: a name of {', '.join(OPTS)}, then its fields") from e
