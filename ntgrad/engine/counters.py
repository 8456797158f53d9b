"""Counts of what was launched since the last ``reset_counters``: kernels, their operations and bytes; and where the time of a
first step goes, which ``DEBUG=1`` prints. A launch of many steps costs one count. Its steps are added up when somebody asks."""
from __future__ import annotations

import time
from collections.abc import Sequence
from functools import wraps
from threading import local
from typing import Any, Callable, NamedTuple, TypeVar

from ntgrad.codegen.index import count

from . import report
from .observers import observers

_F = TypeVar("_F", bound=Callable[..., Any])
_MOST = 256                        # launches of different steps that are kept apart
_runs: dict[int, list[Any]] = {}   # by the identity of the steps: the steps, how often


class Totals(NamedTuple):
  """Kernels, operations, bytes that they read and write at least, and seconds of those that were timed."""
  kernels: int = 0
  operations: int = 0
  nbytes: int = 0
  seconds: float = 0.0


_sum = [0, 0, 0]


def count_launches(steps: Sequence[Any]) -> None:
  """Steps were launched, once each."""
  if (found := _runs.get(id(steps))) is not None: found[1] += 1
  else:
    _runs[id(steps)] = [steps, 1]
    if len(_runs) > _MOST: totals()


def totals() -> Totals:
  """What has been launched since the last ``reset_counters``."""
  for steps, times in list(_runs.values()):
    for s in steps:
      if (spec := getattr(s.program, "spec", None)) is None: continue   # a copy between devices
      work = report.launched_spec(spec, s.sizes).work
      for i, n in enumerate((1, count(work.flops), count(work.bytes))): _sum[i] += times * n
  _runs.clear()
  return Totals(*_sum)._replace(seconds=report.seconds[0])


def reset_counters() -> None:
  """Count from 0 again."""
  _runs.clear()
  _sum[:], report.seconds[0] = [0, 0, 0], 0.0


# ---- time
# cutting the graph into kernels; Opts; lowering and source; waiting for machine code; launches until the device is done
PHASES = "scheduling", "choosing", "rendering", "compiling", "running"
# making their graphs; between host and devices; for a device; of the first use of one
OTHERS = "gradients", "copies", "waiting", "opening devices"
_spent: dict[str, float] = dict.fromkeys(PHASES, 0.0)


class _Open(local):
  """The phases that a thread is in, the innermost last."""
  def __init__(self) -> None: self.phases: list[phase] = []


_open = _Open()


def open_phases() -> list[phase]:
  """The phases that this thread is in, the innermost last: a list that goes on changing."""
  return _open.phases


class phase:
  """Count the time of a block, or of the calls of a function, for one of ``PHASES`` or ``OTHERS``; that of a phase within it does
  not count for it."""

  __slots__ = "name", "inner", "began"

  def __init__(self, name: str) -> None: self.name, self.inner, self.began = name, 0.0, 0.0

  def __call__(self, fn: _F) -> _F:
    @wraps(fn)
    def call(*args: Any, **named: Any) -> Any:
      with phase(self.name): return fn(*args, **named)
    return call  # type: ignore[return-value]

  def __enter__(self) -> None:
    self.inner, self.began = 0.0, time.perf_counter()
    _open.phases.append(self)

  def __exit__(self, *_: object) -> None:
    took, around = time.perf_counter() - self.began, _open.phases
    while around and around.pop() is not self: pass   # an interrupt may have left some open
    own = took - self.inner
    if around: around[-1].inner += took
    if self.name in _spent: _spent[self.name] += own
    for o in observers: o.phase((self.name, self.began, took, own, around))


def take_phase_seconds() -> dict[str, float]:
  """Seconds of each of ``PHASES`` since the last call."""
  found = dict(_spent)
  _spent.update(dict.fromkeys(PHASES, 0.0))
  return found
