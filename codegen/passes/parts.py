"""A kernel cut into *parts*, each lowered by itself, in the order in which they run, between the marks of loops and branches.

A plain kernel is one part, each statement of another a small kernel, for which Opts are chosen by themselves.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Callable, Iterable, Iterator, Union

from ..ir import Ops, UOp, dtypes
from ..kernel import Axis, Kernel
from ..opts import Opt, Opts, with_opts


@dataclass(frozen=True)
class Part:
  """Statements that run at once, or one value that a mark asks for. ``roots``: its body, once expanded."""
  kernel: Kernel
  roots: tuple[UOp, ...] = ()


@dataclass(frozen=True)
class Mark:
  """LOOP (over ``axis``), WHILE, BREAK, IF, ELSE, or the end of one; ``values`` are its sources: start and end, a condition."""
  op: Ops
  values: tuple[Part, ...] = ()
  axis: Axis | None = None

  @staticmethod
  def index(axis: Axis) -> UOp:
    """What stands for the axis of a LOOP in the parts inside."""
    return UOp(Ops.SPECIAL, dtypes.index, (), ("for", axis.id, axis.size))

  def __str__(self) -> str: return self.op.name + (f" a{self.axis.id}:{self.axis.size}" if self.axis is not None else "")


Item = Union[Part, Mark]


@dataclass(frozen=True)
class Parts:
  """A kernel as parts. ``kernel`` is the whole one, before Opts if it is in several parts."""
  kernel: Kernel
  items: tuple[Item, ...]

  @staticmethod
  def of(kernel: Kernel) -> Parts:
    """A plain kernel as its one part."""
    return Parts(kernel, (Part(kernel),))

  def all(self) -> Iterator[Part]:
    """Every part, those of marks too."""
    for item in self.items: yield from (item,) if isinstance(item, Part) else item.values

  @property
  def needs(self) -> tuple[UOp, ...]:
    """The conditions on run-time sizes under which it may be launched."""
    return tuple(dict.fromkeys([c for k in (self.kernel, *[p.kernel for p in self.all()]) for c in k.needs]))

  @property
  def opts(self) -> tuple[Opts, ...]:
    """The Opts of each part."""
    return tuple(p.kernel.applied for p in self.all())

  def after(self, opts: Iterable[Iterable[Opt]]) -> Parts:
    """With a list of Opts applied to each part, in the order of ``all``. Raises OptError where one does not apply."""
    lists = iter(opts)
    out = self.with_kernels(lambda k: with_opts(k, next(lists)))
    return Parts.of(next(out.all()).kernel) if self.kernel.plain else out

  def map(self, fn: Callable[[Part], Part]) -> Parts:
    """With every part replaced."""
    items = [fn(x) if isinstance(x, Part) else replace(x, values=tuple(map(fn, x.values))) for x in self.items]
    return replace(self, items=tuple(items))

  def with_kernels(self, fn: Callable[[Kernel], Kernel]) -> Parts:
    """With the kernel of every part replaced."""
    return self.map(lambda p: replace(p, kernel=fn(p.kernel)))
