"""Several optimizers as one."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ntgrad.backends.process import uninterrupted
from ntgrad.codegen.ir.errors import ArgumentError, GradientError, StateError, shown
from ntgrad.graph.checks import checked
from ntgrad.tensor import Tensor

from .base import Optimizer


@checked
class OptimizerGroup:
  """Steps several optimizers together: ``OptimizerGroup(Muon(matrices), AdamW(others))``. Raises ArgumentError for
  what is none."""

  def __init__(self, *optimizers: Any):
    for o in optimizers:
      if not isinstance(o, (Optimizer, OptimizerGroup)): raise ArgumentError(f"OptimizerGroup: {shown(o)} is no optimizer")
    if not optimizers: raise ArgumentError("OptimizerGroup: no optimizer")
    self.optimizers = optimizers

  def __getitem__(self, i: int) -> Any:
    if not isinstance(i, int) or not -len(self.optimizers) <= i < len(self.optimizers):
      raise ArgumentError(f"OptimizerGroup: index {shown(i)}; it has {len(self.optimizers)} optimizers")
    return self.optimizers[i]
  def __iter__(self) -> Iterator[Any]: return iter(self.optimizers)

  @property
  def params(self) -> list[Tensor]:
    """All that are trained."""
    return [p for o in self.optimizers for p in o.params]
  @property
  def param_groups(self) -> list[Any]:
    """The groups of all."""
    return [g for o in self.optimizers for g in o.param_groups]

  def zero_grad(self, set_to_none: bool = True) -> None:
    """See :class:`Optimizer`."""
    for o in self.optimizers: o.zero_grad(set_to_none)

  def step(self) -> None:
    """A step of each that has a gradient, realised together. Raises GradientError if none has."""
    with uninterrupted(): tensors = self.schedule_step()
    Tensor.realize(*tensors)

  def schedule_step(self) -> list[Tensor]:
    """As :meth:`step`, lazily; see :class:`Optimizer`."""
    able = [o for o in self.optimizers if any(p.grad is not None for p in o.params)]
    if not able: raise GradientError("OptimizerGroup.step: no parameter has a gradient; call loss.backward() first")
    return [t for o in able for t in o.schedule_step()]

  def state_dict(self) -> dict[str, Any]:
    """Those of all, by number."""
    return {str(i): o.state_dict() for i, o in enumerate(self.optimizers)}

  def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
    """Take what :meth:`state_dict` gave. Raises StateError."""
    if set(state_dict) != {str(i) for i in range(len(self.optimizers))}:
      raise StateError(f"OptimizerGroup.load_state_dict: {shown(state_dict)}; expected a dict of {len(self.optimizers)}, by "
                       "number")
    for i, o in enumerate(self.optimizers): o.load_state_dict(state_dict[str(i)])

  def __repr__(self) -> str: return "\n  ".join(["OptimizerGroup(", *[repr(o) for o in self.optimizers]]) + "\n)"
