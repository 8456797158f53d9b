"""Averages of weights over training: ``EMA``, and PyTorch's ``AveragedModel``."""
from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ntgrad.codegen.ir import ArgumentError, dtypes, shown
from ntgrad.compat.public import show
from ntgrad.graph import checked, no_grad
from ntgrad.nn.common import number
from ntgrad.nn.module import Module
from ntgrad.nn.recipes import Recipes, write
from ntgrad.nn.state import get_parameters
from ntgrad.tensor import Tensor

from .base import BELOW_1
from .flat import own

Average = Callable[[Tensor, Tensor, Tensor], Tensor]   # of the mean so far, the value, the number of values in it
Averages = Callable[[Sequence[Tensor], Sequence[Tensor], Tensor], Any]


def _trained(name: str, given: Any) -> list[Tensor]:
  params = list(given) if isinstance(given, (list, tuple, Iterator)) else get_parameters(given)
  if not params or not all(isinstance(p, Tensor) for p in params):
    raise ArgumentError(f"{name}: {shown(given)}; it takes a model, or a list of its parameters")
  return params


@checked
class EMA:
  """The exponential moving average of parameters: ``update()`` after each step makes it ``decay·average + (1-decay)·p``.

  Takes a model or a list of Tensors; those that are no floats are copied. ``with ema.applied(): ..`` evaluates with the averages
  in place of the parameters. Raises ArgumentError for a decay outside [0, 1)."""

  def __init__(self, params: Any, decay: float = 0.999):
    self.decay = BELOW_1("EMA", "decay", decay)
    self.params = _trained("EMA", params)
    self.average, self._recipes = [own(p) for p in self.params], Recipes()
    Tensor.realize(*self.average)

  def update(self) -> None:
    """Take the parameters as they are now into the average. It may be captured."""
    n, decay = len(self.average), self.decay
    def averaged(given: Sequence[Tensor]) -> dict[int, Tensor]:
      return {i: a * decay + p.cast(a.dtype) * (1 - decay) if dtypes.is_float(p.dtype) else p
              for i, (a, p) in enumerate(zip(given[:n], given[n:]))}
    with no_grad():
      made = self._recipes.make(decay, [*self.average, *[p.detach() for p in self.params]], averaged)
      for i, value in made.items(): write(self.average[i], value)
    Tensor.realize(*self.average)

  @contextmanager
  def applied(self) -> Iterator[None]:
    """The parameters have the averages' values inside, and get their own back."""
    before = [own(p) for p in self.params]
    Tensor.realize(*before)
    try:
      self._write(self.average)
      yield
    finally: self._write(before)

  def _write(self, values: Sequence[Tensor]) -> None:
    with no_grad():
      for p, v in zip(self.params, values): p.assign(v.detach())
    Tensor.realize(*self.params)

  def state_dict(self) -> dict[str, Tensor]:
    """The averages by number; writing into them is loading."""
    return {str(i): a for i, a in enumerate(self.average)}

  def __repr__(self) -> str: return f"EMA({len(self.params)} tensors, decay={self.decay})"


def get_ema_avg_fn(decay: float = 0.999) -> Average:
  """For :class:`AveragedModel`: ``decay·mean + (1-decay)·value``. Raises ArgumentError for a decay outside [0, 1]."""
  decay = number()("get_ema_avg_fn", "decay", decay)
  if decay > 1: raise ArgumentError(f"get_ema_avg_fn: decay is {decay!r}, expected from 0 to 1")
  return lambda mean, value, count: mean * decay + value * (1 - decay)


def get_swa_avg_fn() -> Average:
  """For :class:`AveragedModel`: the mean of all values (https://arxiv.org/abs/1803.05407)."""
  return lambda mean, value, count: mean + (value - mean) / (count + 1)


def _of_lists(one: Average) -> Averages:
  def update(means: Sequence[Tensor], values: Sequence[Tensor], count: Tensor) -> None:
    for m, v in zip(means, values): m.assign(one(m, v, count.cast(m.dtype)))
  return update


def get_ema_multi_avg_fn(decay: float = 0.999) -> Averages:
  """As :func:`get_ema_avg_fn`, for lists."""
  return _of_lists(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> Averages:
  """As :func:`get_swa_avg_fn`, for lists."""
  return _of_lists(get_swa_avg_fn())


@checked
class AveragedModel(Module):
  """A copy of a model whose parameters are the average of those given to ``update_parameters``; ``module`` is the copy.

  The mean of all unless ``avg_fn`` or ``multi_avg_fn`` says otherwise (``get_ema_multi_avg_fn(0.999)``). Tensors that are no
  floats, or not trained (running statistics), are copied, with ``use_buffers`` averaged. Raises ArgumentError for both functions.
  """

  def __init__(self, model: Any, device: str | None = None, avg_fn: Any = None, multi_avg_fn: Any = None,
               use_buffers: bool = False):
    if avg_fn is not None and multi_avg_fn is not None:
      raise ArgumentError("AveragedModel: avg_fn and multi_avg_fn; give one of them")
    for f in avg_fn, multi_avg_fn:
      if f is not None and not callable(f): raise ArgumentError(f"AveragedModel: {shown(f)} is no function")
    _trained("AveragedModel", model)
    super().__init__()
    self.module = copy.deepcopy(model)
    self.n_averaged = own(Tensor.zeros((), dtype=dtypes.int64))
    if device is not None: self.to(device)
    self.use_buffers = use_buffers
    self._update = (multi_avg_fn or _of_lists(avg_fn or get_swa_avg_fn()),)

  def forward(self, *args: Any, **kwargs: Any) -> Any: return self.module(*args, **kwargs)

  def update_parameters(self, model: Any) -> None:
    """Take a model of the same structure into the average; the first is copied. Raises ArgumentError for another structure."""
    mine, theirs = get_parameters(self.module), _trained("AveragedModel", model)
    if [t.shape for t in mine] != [t.shape for t in theirs]:
      raise ArgumentError("AveragedModel.update_parameters: a model of other parameters")
    with no_grad():
      values = [t.detach().to(m.device) for m, t in zip(mine, theirs)]
      averaged = [i for i, m in enumerate(mine)
                  if dtypes.is_float(m.dtype) and (self.use_buffers or m.requires_grad is not False)]
      rest = [i for i in range(len(mine)) if i not in set(averaged)]
      if self.n_averaged.item() == 0: rest, averaged = list(range(len(mine))), []
      for i in rest: mine[i].assign(values[i])
      if averaged: self._update[0]([mine[i] for i in averaged], [values[i] for i in averaged], self.n_averaged)
      self.n_averaged.assign(self.n_averaged + 1)
    Tensor.realize(*mine, self.n_averaged)


__all__ = ["AveragedModel", "EMA", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn"]

show(__name__)
