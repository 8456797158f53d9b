"""Optimizers that are written as for PyTorch: ``super().__init__(params, defaults)``, and a ``step`` that goes through groups.

    class Signs(nn.optim.Optimizer):
      def __init__(self, params, lr=0.01): super().__init__(params, {"lr": lr})
      @torch.no_grad()
      def step(self):
        for group in self.param_groups:
          for p in group["params"]: p.add_(p.grad.sign(), alpha=-group["lr"])
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from types import MappingProxyType
from typing import Any

import numpy as np

from ntgrad.codegen.ir.errors import ArgumentError, StateError, shown
from ntgrad.engine.buffer import refuse_recording
from ntgrad.reads import Reads
from ntgrad.tensor import Tensor

from .base import Optimizer, by_hand
from .groups import Shared

_NUMBERS = int, float, np.generic


class ByHand(Optimizer):
  """What a class that defines ``step``, and no rule for a parameter (``_update``), has beneath it in the place of ``Optimizer``.

  Groups are dicts with ``params`` and all options; ``state[p]`` is a dict of anything. Parameters stay where they are. After a
  step parameters and state are realised. Raises ArgumentError for no parameter, what is no Tensor, or one of two groups."""
  param_groups: list[dict[str, Any]]   # type: ignore[assignment]
  params = list[Tensor]()                                # of one that does not call ``super().__init__``
  _of: Mapping[Tensor, dict[str, Any]] = MappingProxyType({})

  def __init__(self, params: Iterable[Any], defaults: Any):
    name = type(self).__name__
    if not isinstance(defaults, Mapping):
      raise ArgumentError(f"{name}: defaults is {shown(defaults)}, expected a dict of options, as a class that defines step() "
                          "has it in PyTorch; one that defines _update() takes a learning rate here")
    self.defaults, self.param_groups, self.params, self.buffers = dict(defaults), [], [], []
    self._of = defaultdict[Tensor, dict[str, Any]](dict)
    given = list(params)
    for g in given if any(isinstance(g, Mapping) for g in given) else [{"params": given}]: self.add_param_group(g)
    if not self.params: raise ArgumentError(f"{name}: no params")

  def add_param_group(self, param_group: Mapping[str, Any]) -> None:
    """Another group: ``{"params": [..], "lr": ..}``; options that are not given are the optimizer's. Raises ArgumentError."""
    name, found = type(self).__name__, param_group["params"]
    params = [found] if isinstance(found, Tensor) else list({id(p): p for p in found}.values())
    known = set(map(id, self.params))
    for p in params:
      if not isinstance(p, Tensor): raise ArgumentError(f"{name}: params has a {type(p).__name__}, expected Tensors")
      if id(p) in known: raise ArgumentError(f"{name}: a parameter of shape {p.shape} is in two groups; give each once")
      if p.requires_grad is None: p.requires_grad = True
    self.params += params
    self.param_groups.append(Shared({**self.defaults, **param_group, "params": params}))

  @property
  def state(self) -> Any:
    """What is kept of each parameter: a dict that begins empty."""
    return self._of

  @property
  def lr(self) -> Any:
    """The learning rate of the first group. Assign one: all groups have it."""
    return self.param_groups[0]["lr"]

  @lr.setter
  def lr(self, value: Any) -> None:
    for g in self.param_groups: g["lr"] = value

  def schedule_step(self) -> list[Tensor]:
    """:meth:`step`; nothing is left to be realised."""
    self.step()
    return []

  def state_dict(self) -> dict[str, Any]:
    """State and options, as PyTorch has them, parameters by number."""
    number = {p: i for i, p in enumerate(self.params)}
    groups = [{**g, "params": [number[p] for p in g["params"]]} for g in self.param_groups]
    return {"state": {number[p]: dict(s) for p, s in self._of.items()}, "param_groups": groups}

  def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
    """Take what :meth:`state_dict` gave. Raises StateError for groups of other sizes."""
    groups = state_dict["param_groups"]
    sizes, theirs = [[len(g["params"]) for g in some] for some in (self.param_groups, groups)]
    if sizes != theirs:
      raise StateError(f"{type(self).__name__}.load_state_dict: groups of {theirs} parameters for an optimizer that has {sizes}")
    self._of = defaultdict[Tensor, dict[str, Any]](dict)
    for mine, g in zip(self.param_groups, groups):
      mine.update({k: v for k, v in g.items() if k != "params"})
      for p, i in zip(mine["params"], g["params"]):
        state = state_dict["state"].get(i, state_dict["state"].get(str(i), {}))
        if state: self.state[p] = {k: v.detach().clone().to(p.device) if isinstance(v, Tensor) else v for k, v in state.items()}

  def _note_reads(self, reads: Reads, text: str) -> None:
    for i, g in enumerate(reads.whole(self.param_groups, f"{text}.param_groups")):
      for k in g: reads.item(g, k, f"{text}.param_groups[{i}][{k!r}]")

  def _numbers_kept(self) -> dict[tuple[int, str], Any]:
    return {(id(p), k): v for p, s in self._of.items() for k, v in s.items() if isinstance(v, _NUMBERS)}

  def __repr__(self) -> str:
    return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.defaults.items())}, {len(self.params)} parameters)"


def _begin(cls: type) -> None:
  """Put ``ByHand`` beneath a class."""
  for kind in cls.__mro__:
    if Optimizer in kind.__bases__ and kind is not ByHand:
      kind.__bases__ = tuple([ByHand if b is Optimizer else b for b in kind.__bases__])
  cls.step = _whole(vars(cls)["step"])   # type: ignore[attr-defined]


by_hand.append(_begin)


def _whole(step: Callable[..., Any]) -> Callable[..., Any]:
  """A ``step`` after which parameters and state are realised; GradScaler may have it do nothing."""
  @wraps(step)
  def all_of(self: ByHand, *args: Any, **kwargs: Any) -> Any:
    if self._skip is not None:
      refuse_recording(f"{type(self).__name__}.step() is skipped by GradScaler where a gradient is not finite", "which takes a "
                       "value to Python here; step outside of the captured function")
      if bool(self._skip.item()): return None
    before = self._numbers_kept()
    out = step(self, *args, **kwargs)
    if self._numbers_kept() != before:
      refuse_recording(f"{type(self).__name__}.step() changes numbers of its state that Python counts", "so a replay would "
                       "repeat them; keep them as Tensors that are written in place, or step outside of the captured function")
    tensors = [*self.params, *[t for s in self._of.values() for t in s.values() if isinstance(t, Tensor)]]
    if tensors: Tensor.realize(*tensors)
    return out
  return all_of
