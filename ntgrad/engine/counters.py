"""Counts of what was launched since the last ``reset_counters``: kernels, their operations and bytes; and where the time of a
first step goes, which ``DEBUG=1`` prints. A launch of many steps costs one count. Its steps are added up when somebody asks."""
from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ntgrad.codegen.index import count

from . import report

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
_spent: dict[str, float] = dict.fromkeys(PHASES, 0.0)
_open: list[str] = []      # phases that have begun, the innermost last


@contextmanager
def phase(name: str) -> Iterator[None]:
  """Count the time of a block for one of ``PHASES``; that of a phase within it does not count for it."""
  started = time.perf_counter()
  _open.append(name)
  try: yield
  finally:
    took = time.perf_counter() - started
    _spent[_open.pop()] += took
    if _open: _spent[_open[-1]] -= took


def take_phase_seconds() -> dict[str, float]:
  """Seconds of each phase since the last call."""
  found = dict(_spent)
  _spent.update(dict.fromkeys(PHASES, 0.0))
  return found
