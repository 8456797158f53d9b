"""Kernels by hand: Opts one after the other, then the list of UOps."""
from __future__ import annotations

from .errors import OptError
from .kernel import AxisKind, Kernel
from .listing import UOpList
from .optimize import optimize
from .opts import Local, Opt, Serial, Unroll, Upcast, Vectorize
from .pipeline import linearize
from .target import Target


class Linearizer:
  """Drives a kernel by hand: Opts, then ``linearize()``, then ``.uops``.

  Nothing is applied but what is called; ``optimize()`` applies what realising on ``target`` would. ``Linearizer(*item.ast)``
  works as well.
  """

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

  def _last(self, axis: int | None) -> int:
    if axis is not None: return axis
    loops = self.kernel.of_kind(AxisKind.LOOP, AxisKind.GRID)
    if not loops: raise OptError(f"the kernel has no LOOP or GRID axis left to work on: {', '.join(map(str, self.kernel.axes))}")
    return loops[-1].id

  def upcast(self, axis: int | None = None, amount: int | None = None) -> Linearizer:
    """Copies of the last (or given) axis instead of a loop; on a reduced axis this is ``unroll``."""
    a = self._last(axis)
    return self.apply((Unroll if a in self.kernel.bound else Upcast)(a, amount))

  def unroll(self, axis: int | None = None, amount: int | None = None) -> Linearizer:
    """Copies of a reduced axis, added up in index order."""
    return self.apply(Unroll(self._last(axis), amount))

  def lane(self, axis: int | None = None, amount: int | None = None) -> Linearizer:
    """Vector lanes along an axis."""
    return self.apply(Vectorize(self._last(axis), amount))

  def tile(self, axis: int, amount: int) -> Linearizer:
    """An axis in blocks of ``amount``, gone through by a loop."""
    return self.apply(Serial(axis, amount))

  def local(self, axis: int | None = None, amount: int | None = None) -> Linearizer:
    """Work-items of a group along an axis."""
    return self.apply(Local(self._last(axis), amount))

  def linearize(self) -> Linearizer:
    """Make ``uops``."""
    self.uops = linearize(self.kernel, self.target)
    return self


__all__ = ["Linearizer", "linearize"]
