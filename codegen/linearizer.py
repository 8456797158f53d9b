"""Kernels by hand: Opts one after the other, then the list of UOps."""
from __future__ import annotations

from .choose.cpu import optimize
from .ir import Ops, OptError, Target, UOp
from .kernel import Axis, AxisKind, Kernel, Param, Shape, UOpList
from .opts import Local, Opt, Serial, Unroll, Upcast, Vectorize
from .pipeline import linearize

_ROUNDS = AxisKind.GRID, AxisKind.LOCAL, AxisKind.LOOP   # gone through; axes of other kinds are written out


class Linearizer:
  """Drives a kernel by hand: Opts, then ``linearize()``, then ``.uops``. Nothing is applied but what is called; ``optimize()``
  applies what realising on ``target`` would. ``full_shape``, ``upcasted``, ``bufs`` and their like have tinygrad's words."""

  def __init__(self, ast: Kernel, target: Target | None = None):
    self.kernel, self.target = ast, target
    self.uops = UOpList()

  def __repr__(self) -> str:
    opts = f"opts   {', '.join(map(str, self.kernel.applied))}\n" if self.kernel.applied else ""
    made = f"{len(self.uops)} linear UOps, in .uops" if self.uops else "not linearised yet"
    return f"<Linearizer: {made}\n{opts}{self.kernel}>"

  def apply(self, opt: Opt) -> Linearizer:
    """Apply an Opt. Raises OptError where it cannot be."""
    self.kernel = opt.apply(self.kernel)
    return self

  def optimize(self) -> Linearizer:
    """Apply the heuristics of the target (a ``Target``). Raises OptError without one."""
    if self.target is None: raise OptError("Linearizer.optimize: no target was given; Linearizer(ast, target) takes a Target")
    self.kernel = optimize(self.kernel, self.target)
    return self

  def _axis(self, what: str, axis: int | None) -> int:
    """The axis that was given, else the last GRID or LOOP axis. Raises OptError where there is none, or it has one element."""
    here, verb = self.kernel.axes, {"lane": "vectorize", "local": "share"}.get(what, what)
    if axis is None:
      left = self.kernel.of_kind(AxisKind.LOOP, AxisKind.GRID)
      if not left and here: raise OptError(f"{what}: no GRID or LOOP axis is left of {', '.join(map(str, here))}")
      axis = left[-1].id if left else 0
    if not here: raise OptError(f"{what}: can't {verb} a dimension with size 1, and the kernel has no other")
    if one := [a for a in here if a.id == axis and a.size == 1]:
      raise OptError(f"{what}: can't {verb} a dimension with size 1, which {one[0]} is")
    return axis

  def upcast(self, axis: int | None = None, amount: int | None = None) -> Linearizer:
    """Copies of the last (or given) axis instead of a loop; on a reduced axis this is ``unroll``."""
    a = self._axis("upcast", axis)
    return self.apply((Unroll if a in self.kernel.bound else Upcast)(a, amount))

  def unroll(self, axis: int | None = None, amount: int | None = None) -> Linearizer:
    """Copies of a reduced axis, added up in index order."""
    return self.apply(Unroll(self._axis("unroll", axis), amount))

  def lane(self, axis: int | None = None, amount: int | None = None) -> Linearizer:
    """Vector lanes along an axis."""
    return self.apply(Vectorize(self._axis("lane", axis), amount))

  def tile(self, axis: int, amount: int) -> Linearizer:
    """An axis in blocks of ``amount``, gone through by a loop."""
    return self.apply(Serial(axis, amount))

  def local(self, axis: int | None = None, amount: int | None = None) -> Linearizer:
    """Work-items of a group along an axis."""
    return self.apply(Local(self._axis("local", axis), amount))

  def linearize(self) -> Linearizer:
    """Make ``uops``."""
    self.uops = linearize(self.kernel, self.target)
    return self

  # ---- what tinygrad's Linearizer tells of a kernel

  def _parts(self) -> tuple[list[Axis], list[Axis], list[Axis]]:
    """The axes of the output, those that are reduced by loops and work-items, and those that are written out."""
    rounds, bound = sorted(self.kernel.of_kind(*_ROUNDS), key=lambda a: _ROUNDS.index(a.kind)), self.kernel.bound
    reduced = [a for a in rounds if a.id in bound]
    return [a for a in rounds if a not in reduced], reduced, [a for a in self.kernel.axes if a.kind not in _ROUNDS]

  @property
  def full_shape(self) -> Shape:
    """The sizes of all axes but those of one element: of the output, then reduced, last those that are written out."""
    return tuple([a.size for part in self._parts() for a in part])
  @property
  def shape_len(self) -> int:
    """How many axes there are."""
    return len(self.full_shape)
  @property
  def upcasted(self) -> int:
    """How many of the last axes of ``full_shape`` are written out. Setting more upcasts the last of the others."""
    return len(self._parts()[2])
  @upcasted.setter
  def upcasted(self, n: int) -> None:
    if n < self.upcasted: raise OptError(f"upcasted: {self.upcasted} axes are written out, which is not undone; got {n}")
    while self.upcasted < n: self.upcast()
  @property
  def first_reduce(self) -> int:
    """Where the reduced axes begin in ``full_shape``."""
    return len(self._parts()[0])
  @property
  def group_for_reduces(self) -> int:
    """How many of the reduced axes work-items share."""
    return sum(a.kind is AxisKind.LOCAL for a in self._parts()[1])

  @property
  def reduceop(self) -> UOp | None:
    """The first reduction; None where there is none."""
    return next(iter(self.kernel.reduces), None)
  @property
  def bufs(self) -> list[Param]:
    """The buffers, in the order of their names: ``data0`` is written."""
    return list(self.kernel.params)
  @property
  def earlybufs(self) -> list[Param]:
    """The buffers that the reduction reads."""
    read = set() if self.reduceop is None else {u.src[0] for u in self.reduceop.toposort() if u.op is Ops.LOAD}
    return [p for p in self.kernel.params if p.uop in read]


__all__ = ["Linearizer", "linearize"]
