"""Schedules of learning rates (and momentums), as PyTorch has them: call ``step()`` after each epoch, or each optimizer step.

A schedule writes ``group["lr"]`` of the optimizer's groups: numbers that kernels read, so nothing is compiled, and a captured
training step sees them. Call ``step()`` outside of the captured function.
"""
from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ntgrad.codegen.ir import ArgumentError, StateError, shown
from ntgrad.compat.public import show
from ntgrad.engine.buffer import refuse_recording
from ntgrad.graph import checked, whole_number as _whole
from ntgrad.nn.common import number, one_of

from .base import an_optimizer

_PLAIN = int, float, str, type(None)   # what lists and dicts of a schedule's state hold
_THEIRS = {"verbose", "_step_count", "_get_lr_called_within_step", "_is_initial"}   # of PyTorch's schedules
_FUNCTIONS = {"optimizer", "_fns", "_scale"}   # no state


def _each(name: str, what: str, value: Any, n: int) -> list[Any]:
  """One value a group, given for all or each."""
  if not isinstance(value, (list, tuple)): return [value] * n
  if len(value) != n: raise ArgumentError(f"{name}: {len(value)} of {what} for {n} groups of parameters")
  return list(value)


def _float(name: str, what: str, value: Any, least: float = -math.inf) -> float: return number(least)(name, what, value)
def _floats(name: str, what: str, value: Any, n: int) -> list[float]:
  return [_float(name, what, m, 0) for m in _each(name, what, value, n)]


@checked
class LRScheduler:
  """Base of the schedules: ``get_lr`` gives the rates of the groups at step ``last_epoch`` = 0, 1, ..

  A new schedule sets the rates of step 0. With ``last_epoch`` it goes on after that step, with groups whose ``initial_lr`` an
  earlier one has noted. Raises ArgumentError.
  """

  def __init__(self, optimizer: Any, last_epoch: int = -1):
    self.optimizer = an_optimizer(type(self).__name__, optimizer)
    _whole(type(self).__name__, "last_epoch", last_epoch, -1)
    for g in self.groups:
      if last_epoch == -1: g.setdefault("initial_lr", g["lr"])
      elif "initial_lr" not in g:
        raise ArgumentError(f"{type(self).__name__}: last_epoch {last_epoch} for a group without 'initial_lr'; "
                            "load the optimizer's state first, or begin at -1")
    self.base_lrs = [g["initial_lr"] for g in self.groups]
    self.last_epoch = last_epoch
    self.step()

  def __init_subclass__(cls) -> None:
    super().__init_subclass__()
    if cls.__module__ == __name__ and cls.__name__[0] != "_": checked(cls)

  @property
  def groups(self) -> list[Any]:
    """The optimizer's groups of parameters."""
    return self.optimizer.param_groups

  def get_lr(self) -> list[float]:
    """The rates of the groups at ``last_epoch``, from those before."""
    raise NotImplementedError(f"{type(self).__name__} has no rule for a rate")
  def _at(self, epoch: int) -> list[float] | None:
    """The rates at a step, from the step alone; None where they depend on those before."""
    return None

  def step(self, epoch: int | None = None) -> None:
    """Go on by one step (or to step ``epoch``), and set the optimizer's rates. Raises CaptureError in a captured function."""
    self._outside()
    self.last_epoch = self.last_epoch + 1 if epoch is None else _whole(type(self).__name__, "epoch", epoch, 0)
    rates = None if epoch is None else self._at(self.last_epoch)
    self._set(self.get_lr() if rates is None else rates)
  def _outside(self) -> None:
    refuse_recording(f"the schedule {type(self).__name__}.step() sets the optimizer's rates by numbers that Python counts")
  def _set(self, rates: list[float]) -> None:
    for g, rate in zip(self.groups, rates):
      if g["lr"] != rate: g["lr"] = rate
    self._last_lr = rates

  def get_last_lr(self) -> list[float]:
    """The rates that were set last."""
    return self._last_lr
  def _rates(self) -> list[float]: return [g["lr"] for g in self.groups]

  def state_dict(self) -> dict[str, Any]:
    """Everything but the optimizer, and functions that were given."""
    return {k: v for k, v in vars(self).items() if k not in _FUNCTIONS}
  def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
    """Take what :meth:`state_dict` gave; the optimizer's rates are its own state. Raises StateError for another schedule's."""
    mine = self.state_dict()
    if set(state_dict) - set(mine) - _THEIRS or set(mine) - set(state_dict) - {"_last_lr"}:
      raise StateError(f"{type(self).__name__}.load_state_dict: {shown(state_dict)}; expected {', '.join(map(repr, mine))}")
    for k, v in state_dict.items():
      if k in mine and not _alike(v, mine[k]):
        raise StateError(f"{type(self).__name__}.load_state_dict: {k} is {shown(v)}, expected something as {shown(mine[k])}")
    vars(self).update({k: v for k, v in state_dict.items() if k in mine})


def _alike(given: Any, mine: Any) -> bool:
  """Whether a loaded value may stand where a schedule has another: a whole number, a number, text, numbers in a list or dict."""
  if isinstance(mine, (list, tuple, Mapping)):
    if not isinstance(given, (list, tuple, Mapping)): return False
    first = next(iter(_inside(mine)), None)
    return all(_alike(n, first) if isinstance(first, (list, tuple)) else isinstance(n, _PLAIN) for n in _inside(given))
  if isinstance(mine, (bool, str)): return isinstance(given, type(mine))
  return isinstance(given, int if isinstance(mine, int) else (int, float, type(None), type(mine)))


def _inside(x: Any) -> Any: return x.values() if isinstance(x, Mapping) else x


_LRScheduler = LRScheduler


class _ByFunction(LRScheduler):
  def __init__(self, optimizer: Any, lr_lambda: Any, last_epoch: int = -1):
    name = type(self).__name__
    self._fns: Sequence[Callable[[int], float]] = _each(
      name, "lr_lambda", lr_lambda, len(an_optimizer(name, optimizer).param_groups))
    if not all(map(callable, self._fns)):
      raise ArgumentError(f"{name}: lr_lambda is {shown(lr_lambda)}, expected a function of the step")
    super().__init__(optimizer, last_epoch)


class LambdaLR(_ByFunction):
  """The first rate times a function of the step (one, or one a group)."""
  def get_lr(self) -> list[float]: return [base * fn(self.last_epoch) for base, fn in zip(self.base_lrs, self._fns)]


class MultiplicativeLR(_ByFunction):
  """The rate before times a function of the step (one, or one a group)."""
  def get_lr(self) -> list[float]:
    return self._rates() if self.last_epoch <= 0 else [lr * fn(self.last_epoch) for lr, fn in zip(self._rates(), self._fns)]


class _ByFactor(LRScheduler):
  """The rate times a factor of the step."""
  _factor: Callable[[int], float]   # what the rate before a step is multiplied with
  _total: Callable[[int], float]    # what the first rate is multiplied with at a step, all in all

  def get_lr(self) -> list[float]: return [lr * self._factor(self.last_epoch) for lr in self._rates()]
  def _at(self, epoch: int) -> list[float]: return [base * self._total(epoch) for base in self.base_lrs]


class StepLR(_ByFactor):
  """The rate times ``gamma`` every ``step_size`` steps."""
  def __init__(self, optimizer: Any, step_size: int, gamma: float = 0.1, last_epoch: int = -1):
    self.step_size, self.gamma = _whole("StepLR", "step_size", step_size), _float("StepLR", "gamma", gamma)
    super().__init__(optimizer, last_epoch)
  def _factor(self, n: int) -> float: return self.gamma if n > 0 and n % self.step_size == 0 else 1.0
  def _total(self, n: int) -> float: return float(self.gamma ** (n // self.step_size))


class MultiStepLR(_ByFactor):
  """The rate times ``gamma`` at each of the ``milestones``."""
  def __init__(self, optimizer: Any, milestones: Sequence[int], gamma: float = 0.1, last_epoch: int = -1):
    self.milestones = sorted([_whole("MultiStepLR", "a milestone", m, 0) for m in milestones])
    self.gamma = _float("MultiStepLR", "gamma", gamma)
    super().__init__(optimizer, last_epoch)
  def _factor(self, n: int) -> float: return float(self.gamma ** self.milestones.count(n))
  def _total(self, n: int) -> float: return float(self.gamma ** bisect_right(self.milestones, n))


class ConstantLR(_ByFactor):
  """The rate times ``factor`` until step ``total_iters``."""
  def __init__(self, optimizer: Any, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1):
    self.factor, self.total_iters = _float("ConstantLR", "factor", factor, 0), _whole("ConstantLR", "total_iters", total_iters, 0)
    if not 0 < factor <= 1: raise ArgumentError(f"ConstantLR: factor is {factor!r}, expected above 0, up to 1")
    super().__init__(optimizer, last_epoch)
  def _factor(self, n: int) -> float: return self.factor if n == 0 else 1 / self.factor if n == self.total_iters else 1.0
  def _total(self, n: int) -> float: return self.factor if n < self.total_iters else 1.0


class LinearLR(_ByFactor):
  """The rate times what goes from ``start_factor`` to ``end_factor`` in ``total_iters`` steps, along a line: a warm-up."""
  def __init__(self, optimizer: Any, start_factor: float = 1.0 / 3, end_factor: float = 1.0, total_iters: int = 5,
               last_epoch: int = -1):
    self.start_factor = _float("LinearLR", "start_factor", start_factor)
    self.end_factor = _float("LinearLR", "end_factor", end_factor)
    self.total_iters = _whole("LinearLR", "total_iters", total_iters)
    if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
      raise ArgumentError(f"LinearLR: factors {start_factor!r} and {end_factor!r}, expected from 0 to 1 (the first above 0)")
    super().__init__(optimizer, last_epoch)
  def _factor(self, n: int) -> float:
    if n == 0: return self.start_factor
    rise = self.end_factor - self.start_factor
    return 1.0 if n > self.total_iters else 1 + rise / (self.total_iters * self.start_factor + (n - 1) * rise)
  def _total(self, n: int) -> float:
    return self.start_factor + (self.end_factor - self.start_factor) * (min(self.total_iters, n) / self.total_iters)


class ExponentialLR(_ByFactor):
  """The rate times ``gamma`` every step."""
  def __init__(self, optimizer: Any, gamma: float, last_epoch: int = -1):
    self.gamma = _float("ExponentialLR", "gamma", gamma)
    super().__init__(optimizer, last_epoch)
  def _factor(self, n: int) -> float: return self.gamma if n else 1.0
  def _total(self, n: int) -> float: return float(self.gamma ** n)


class PolynomialLR(_ByFactor):
  """The first rate times (1 - step/total_iters)^power, then 0."""
  def __init__(self, optimizer: Any, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1):
    self.total_iters, self.power = _whole("PolynomialLR", "total_iters", total_iters), _float("PolynomialLR", "power", power, 0)
    super().__init__(optimizer, last_epoch)
  def _factor(self, n: int) -> float:
    if n == 0 or n > self.total_iters: return 1.0
    return float(((1.0 - n / self.total_iters) / (1.0 - (n - 1) / self.total_iters)) ** self.power)
  def _total(self, n: int) -> float: return float((1.0 - min(self.total_iters, n) / self.total_iters) ** self.power)


class CosineAnnealingLR(LRScheduler):
  """From the first rate to ``eta_min`` along half a cosine in ``T_max`` steps (https://arxiv.org/abs/1608.03983)."""
  def __init__(self, optimizer: Any, T_max: int, eta_min: float = 0.0, last_epoch: int = -1):
    self.T_max, self.eta_min = _whole("CosineAnnealingLR", "T_max", T_max), _float("CosineAnnealingLR", "eta_min", eta_min, 0)
    super().__init__(optimizer, last_epoch)
  def get_lr(self) -> list[float]:
    n, t, low = self.last_epoch, self.T_max, self.eta_min
    if n == 0: return self._rates()
    if (n - 1 - t) % (2 * t) == 0:
      return [lr + (base - low) * (1 - math.cos(math.pi / t)) / 2 for lr, base in zip(self._rates(), self.base_lrs)]
    return [(1 + math.cos(math.pi * n / t)) / (1 + math.cos(math.pi * (n - 1) / t)) * (lr - low) + low for lr in self._rates()]
  def _at(self, epoch: int) -> list[float]:
    return [self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * epoch / self.T_max)) / 2 for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
  """Half cosines from the first rate to ``eta_min``: of ``T_0`` steps, then each ``T_mult`` times as long
  (https://arxiv.org/abs/1608.03983). ``step(epoch)`` takes parts of epochs as well."""
  def __init__(self, optimizer: Any, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1):
    name = "CosineAnnealingWarmRestarts"
    self.T_0, self.T_mult = _whole(name, "T_0", T_0), _whole(name, "T_mult", T_mult)
    self.eta_min = _float(name, "eta_min", eta_min, 0)
    self.T_i, self.T_cur = self.T_0, float(last_epoch)
    super().__init__(optimizer, last_epoch)
  def get_lr(self) -> list[float]:
    return [self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2 for base in self.base_lrs]
  def step(self, epoch: float | None = None) -> None:
    """Go on by one step, or to ``epoch``, a number of at least 0."""
    self._outside()
    at = self.last_epoch + 1 if epoch is None else _float("CosineAnnealingWarmRestarts", "epoch", epoch, 0)
    begin, size = int(at // self.T_0) * self.T_0 if self.T_mult == 1 else 0, self.T_0
    while begin + size <= at: begin, size = begin + size, size * self.T_mult
    self.T_i, self.T_cur, self.last_epoch = size, at - begin, math.floor(at)
    self._set(self.get_lr())


def _cycled(name: str, g: Any) -> str:
  """The option of a group that is its momentum."""
  if "betas" in g: return "betas"
  if "momentum" in g: return "momentum"
  raise ArgumentError(f"{name}: cycle_momentum with an optimizer that has neither momentum nor betas; pass cycle_momentum=False")


def _set_momentum(name: str, g: Any, value: float) -> None:
  option = _cycled(name, g)
  g[option] = (value, g["betas"][1]) if option == "betas" else value


class OneCycleLR(LRScheduler):
  """One cycle (https://arxiv.org/abs/1708.07120): from ``max_lr / div_factor`` up to ``max_lr`` in ``pct_start`` of the steps,
  down to a ``final_div_factor``-th of where it began; momentum the other way round. ``three_phase``: down to where it began in as
  many steps as up. Raises ArgumentError beyond the last step."""
  def __init__(self, optimizer: Any, max_lr: Any, total_steps: int | None = None, epochs: int | None = None,
               steps_per_epoch: int | None = None, pct_start: float = 0.3, anneal_strategy: str = "cos",
               cycle_momentum: bool = True, base_momentum: Any = 0.85, max_momentum: Any = 0.95, div_factor: float = 25.0,
               final_div_factor: float = 1e4, three_phase: bool = False, last_epoch: int = -1):
    name = "OneCycleLR"
    groups = an_optimizer(name, optimizer).param_groups
    if total_steps is None:
      if epochs is None or steps_per_epoch is None:
        raise ArgumentError(f"{name}: give total_steps, or epochs and steps_per_epoch")
      total_steps = _whole(name, "epochs", epochs) * _whole(name, "steps_per_epoch", steps_per_epoch)
    self.total_steps = _whole(name, "total_steps", total_steps)
    if not 0 <= _float(name, "pct_start", pct_start) <= 1:
      raise ArgumentError(f"{name}: pct_start is {pct_start!r}, expected from 0 to 1")
    self.anneal_strategy = one_of(name, "anneal_strategy", anneal_strategy, "cos", "linear")
    self.cycle_momentum = cycle_momentum
    n = len(groups)
    low, high = _floats(name, "base_momentum", base_momentum, n), _floats(name, "max_momentum", max_momentum, n)
    if last_epoch == -1:
      for g, most, m in zip(groups, _floats(name, "max_lr", max_lr, n), high):
        begin = most / _float(name, "div_factor", div_factor, 1e-30)
        g.update(max_lr=most, min_lr=begin / _float(name, "final_div_factor", final_div_factor, 1e-30), lr=begin)
        if cycle_momentum: _set_momentum(name, g, m)
    if not all("max_lr" in g for g in groups):
      raise ArgumentError(f"{name}: last_epoch {last_epoch} for groups without 'max_lr'; load the optimizer's state first")
    # (the last step, rate from, to, momentum from, to)
    self._phases = []
    for g, low_m, high_m in zip(groups, low, high):
      begin, most = g["max_lr"] / div_factor, g["max_lr"]
      up = float(pct_start * total_steps) - 1, begin, most, high_m, low_m
      down = [(2 * pct_start * total_steps - 2, most, begin, low_m, high_m)] if three_phase else []
      last = total_steps - 1, begin if three_phase else most, g["min_lr"], high_m if three_phase else low_m, high_m
      self._phases.append([up, *down, last])
    super().__init__(optimizer, last_epoch)

  def _between(self, a: float, b: float, part: float) -> float:
    return b + (a - b) / 2 * (1 + math.cos(math.pi * part)) if self.anneal_strategy == "cos" else (b - a) * part + a

  def get_lr(self) -> list[float]:
    if self.last_epoch > self.total_steps: raise ArgumentError(f"OneCycleLR: step {self.last_epoch} of {self.total_steps}")
    out = []
    for g, phases in zip(self.groups, self._phases):
      i = next((i for i, (end, *_) in enumerate(phases) if self.last_epoch <= end), len(phases) - 1)
      begin, (end, a, b, m, k) = phases[i - 1][0] if i else 0.0, phases[i]
      part = (self.last_epoch - begin) / (end - begin) if end > begin else 1.0
      out.append(self._between(a, b, part))
      if self.cycle_momentum: _set_momentum("OneCycleLR", g, self._between(m, k, part))
    return out


class CyclicLR(LRScheduler):
  """Between ``base_lr`` and ``max_lr``, up in ``step_size_up`` steps and down in as many or ``step_size_down``
  (https://arxiv.org/abs/1506.01186): as they are ("triangular"), each half as high ("triangular2"), times gamma^step
  ("exp_range"), or by a ``scale_fn`` of the cycle or of the step (``scale_mode`` "iterations")."""
  def __init__(self, optimizer: Any, base_lr: Any, max_lr: Any, step_size_up: int = 2000, step_size_down: int | None = None,
               mode: str = "triangular", gamma: float = 1.0, scale_fn: Any = None, scale_mode: str = "cycle",
               cycle_momentum: bool = True, base_momentum: Any = 0.8, max_momentum: Any = 0.9, last_epoch: int = -1):
    name = "CyclicLR"
    groups = an_optimizer(name, optimizer).param_groups
    n = len(groups)
    if scale_fn is not None and not callable(scale_fn):
      raise ArgumentError(f"{name}: scale_fn is {shown(scale_fn)}, expected a function of a number")
    if scale_fn is None: one_of(name, "mode", mode, "triangular", "triangular2", "exp_range")
    one_of(name, "scale_mode", scale_mode, "cycle", "iterations")
    up = _whole(name, "step_size_up", step_size_up)
    self.total_size = float(up + (up if step_size_down is None else _whole(name, "step_size_down", step_size_down)))
    self.step_ratio = up / self.total_size
    self.mode, self.gamma, self.cycle_momentum = mode, _float(name, "gamma", gamma), cycle_momentum
    self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
    self._scale = (scale_fn,)
    self.max_lrs = _floats(name, "max_lr", max_lr, n)
    if last_epoch == -1:
      for g, least in zip(groups, _floats(name, "base_lr", base_lr, n)): g["lr"] = least
    self.base_momentums = _floats(name, "base_momentum", base_momentum, n)
    self.max_momentums = _floats(name, "max_momentum", max_momentum, n)
    if cycle_momentum:
      for g in groups: _cycled(name, g)
    super().__init__(optimizer, last_epoch)
    self.base_lrs = _floats(name, "base_lr", base_lr, n)

  def _scaled(self, x: float) -> float:
    if self._scale[0] is not None: return _float("CyclicLR", "what scale_fn gives", self._scale[0](x))
    return 1.0 if self.mode == "triangular" else 1 / 2.0 ** (x - 1) if self.mode == "triangular2" else self.gamma ** x

  def get_lr(self) -> list[float]:
    cycle = math.floor(1 + self.last_epoch / self.total_size)
    x = 1.0 + self.last_epoch / self.total_size - cycle
    part = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
    scale = self._scaled(cycle if self.scale_mode == "cycle" else self.last_epoch)
    if self.cycle_momentum:
      for g, low, high in zip(self.groups, self.base_momentums, self.max_momentums):
        _set_momentum("CyclicLR", g, high - (high - low) * part * scale)
    return [base + (most - base) * part * scale for base, most in zip(self.base_lrs, self.max_lrs)]


class _OfSchedules(LRScheduler):
  _schedulers: list[LRScheduler]

  def _count(self, epoch: int | None) -> None:
    if epoch is not None: raise ArgumentError(f"{type(self).__name__}: step takes no epoch")
    self.last_epoch += 1
  def state_dict(self) -> dict[str, Any]:
    return {**super().state_dict(), "_schedulers": [s.state_dict() for s in self._schedulers]}
  def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
    theirs = state_dict.get("_schedulers") if isinstance(state_dict, Mapping) else None
    if not isinstance(theirs, (list, tuple)) or len(theirs) != len(self._schedulers):
      raise StateError(f"{type(self).__name__}.load_state_dict: {shown(state_dict)}; "
                       f"expected the state of {len(self._schedulers)} schedules")
    own = {k: v for k, v in state_dict.items() if k in vars(self) and k != "_schedulers"}
    if wrong := [k for k, v in own.items() if not _alike(v, vars(self)[k])]:
      raise StateError(f"{type(self).__name__}.load_state_dict: {wrong[0]} is {shown(own[wrong[0]])}")
    for s, state in zip(self._schedulers, theirs): s.load_state_dict(state)
    vars(self).update(own)


class SequentialLR(_OfSchedules):
  """Schedules one after the other: the next begins at each of the ``milestones``."""
  def __init__(self, optimizer: Any, schedulers: Sequence[Any], milestones: Sequence[int], last_epoch: int = -1):
    name = "SequentialLR"
    self.optimizer = an_optimizer(name, optimizer)
    _scheduled(name, schedulers, optimizer)
    if len(milestones) != len(schedulers) - 1 or sorted(milestones) != list(milestones):
      raise ArgumentError(f"{name}: milestones {milestones} for {len(schedulers)} schedules; give one less, in order")
    self._schedulers, self._milestones, self.last_epoch = list(schedulers), list(milestones), last_epoch + 1
    for g in self.groups: g["lr"] = g["initial_lr"]
    for s in self._schedulers: s.last_epoch -= 1   # each has made its first step; only the first one should have
    self._schedulers[0].step()
    self._last_lr = self._schedulers[0].get_last_lr()

  def step(self, epoch: int | None = None) -> None:
    """Go on by one step."""
    self._count(epoch)
    at = bisect_right(self._milestones, self.last_epoch)
    scheduler = self._schedulers[at]
    if at > 0 and self._milestones[at - 1] == self.last_epoch: scheduler.step(0)
    else: scheduler.step()
    self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_OfSchedules):
  """Schedules on top of each other: each changes what those before it have set."""
  def __init__(self, schedulers: Sequence[Any], optimizer: Any = None):
    if not schedulers: raise ArgumentError("ChainedScheduler: no schedules")
    self.optimizer = getattr(schedulers[0], "optimizer", None) if optimizer is None else optimizer
    _scheduled("ChainedScheduler", schedulers, self.optimizer)
    self._schedulers, self.last_epoch = list(schedulers), 0
    self._last_lr = self._rates()
  def step(self, epoch: int | None = None) -> None:
    """A step of each."""
    self._count(epoch)
    for s in self._schedulers: s.step()
    self._last_lr = self._rates()


def _scheduled(name: str, schedulers: Sequence[Any], optimizer: Any) -> None:
  if not schedulers: raise ArgumentError(f"{name}: no schedules")
  for s in schedulers:
    if not isinstance(s, LRScheduler): raise ArgumentError(f"{name}: {shown(s)} is no schedule that can be combined")
    if s.optimizer is not optimizer: raise ArgumentError(f"{name}: a schedule is of another optimizer")


class ReduceLROnPlateau(LRScheduler):
  """The rate times ``factor`` where a measure (``step(loss)``) has not become better for more than ``patience`` steps.

  Better is less ("min") or more ("max") than the best so far by a part ``threshold`` of it ("rel") or by ``threshold`` ("abs").
  After a change ``cooldown`` steps are not counted; no rate falls below ``min_lr``, or by less than ``eps``.
  """
  def __init__(self, optimizer: Any, mode: str = "min", factor: float = 0.1, patience: int = 10, threshold: float = 1e-4,
               threshold_mode: str = "rel", cooldown: int = 0, min_lr: Any = 0.0, eps: float = 1e-8):
    name = "ReduceLROnPlateau"
    self.optimizer = an_optimizer(name, optimizer)
    self.mode, self.threshold_mode = one_of(name, "mode", mode, "min", "max"), one_of(
      name, "threshold_mode", threshold_mode, "rel", "abs")
    self.factor = _float(name, "factor", factor, 0)
    if self.factor >= 1: raise ArgumentError(f"{name}: factor is {factor!r}, expected below 1")
    self.patience, self.cooldown = _whole(name, "patience", patience, 0), _whole(name, "cooldown", cooldown, 0)
    self.threshold, self.eps = _float(name, "threshold", threshold, 0), _float(name, "eps", eps, 0)
    self.min_lrs = _floats(name, "min_lr", min_lr, len(self.groups))
    self.best = math.inf if mode == "min" else -math.inf
    self.num_bad_epochs = self.cooldown_counter = self.last_epoch = 0
    self._last_lr = self._rates()

  def is_better(self, a: float, best: float) -> bool:
    """Whether a measure is better than the best by enough."""
    sign = 1 if self.mode == "max" else -1
    least = best * (1 + sign * self.threshold) if self.threshold_mode == "rel" else best + sign * self.threshold
    return sign * a > sign * least

  def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
    """Note a measure: a number, or a Tensor of one element."""
    try: now = float(metrics)
    except (TypeError, ValueError):
      raise ArgumentError(f"ReduceLROnPlateau: a measure of {shown(metrics)}, expected a number") from None
    self.last_epoch = self.last_epoch + 1 if epoch is None else _whole("ReduceLROnPlateau", "epoch", epoch, 0)
    if self.is_better(now, self.best): self.best, self.num_bad_epochs = now, 0
    else: self.num_bad_epochs += 1
    if self.cooldown_counter > 0: self.cooldown_counter, self.num_bad_epochs = self.cooldown_counter - 1, 0
    if self.num_bad_epochs > self.patience:
      for g, least in zip(self.groups, self.min_lrs):
        new = max(g["lr"] * self.factor, least)
        if g["lr"] - new > self.eps: g["lr"] = new
      self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
    self._last_lr = self._rates()


__all__ = ["ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR",
           "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR",
           "ReduceLROnPlateau", "SequentialLR", "StepLR"]

show(__name__)
