"""What has been launched since the last ``reset``: kernels, their operations and bytes.

A launch of many steps (a schedule, a replay) costs one count; what it stands for is added up when somebody asks.
"""
from __future__ import annotations

from typing import Any, NamedTuple, Sequence

from ntgrad.codegen.index import count

from . import report

_MOST = 256   # launches of different steps that are kept apart
_runs: dict[int, list[Any]] = {}   # by the identity of the steps: the steps, how often


class Totals(NamedTuple):
  """Kernels, operations, bytes that they read and write at least, and seconds of those that were timed."""
  kernels: int = 0
  operations: int = 0
  nbytes: int = 0
  seconds: float = 0.0


_sum = [Totals()]


def launched(steps: Sequence[Any]) -> None:
  """Steps were launched, once each."""
  found = _runs.get(id(steps))
  if found is not None: found[1] += 1
  else:
    _runs[id(steps)] = [steps, 1]
    if len(_runs) > _MOST: totals()


def totals() -> Totals:
  """What has been launched since the last ``reset``."""
  for steps, times in list(_runs.values()):
    kernels = operations = nbytes = 0
    for s in steps:
      spec = getattr(s.program, "spec", None)
      if spec is None: continue   # a copy between devices
      kernels += 1
      work = report.launched(spec, s.sizes).work
      operations += times * count(work.flops)
      nbytes += times * count(work.bytes)
    before = _sum[0]
    _sum[0] = Totals(before.kernels + times * kernels, before.operations + operations, before.nbytes + nbytes)
  _runs.clear()
  return _sum[0]._replace(seconds=report.seconds[0])


def reset() -> None:
  """Count from 0 again."""
  _runs.clear()
  _sum[0], report.seconds[0] = Totals(), 0.0


__all__ = ["Totals", "launched", "reset", "totals"]
