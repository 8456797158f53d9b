"""Where the time of a first step goes. ``DEBUG=1`` says it after every schedule for which kernels were made:

    first run in 412 ms: scheduling 8.1 ms, choosing 21 ms, rendering 12 ms, compiling 366 ms, running 1.4 ms
"""
from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

# cutting the graph into kernels; Opts; lowering and source; waiting for machine code; launches until the device is done
PHASES = ("scheduling", "choosing", "rendering", "compiling", "running")
_spent: dict[str, float] = dict.fromkeys(PHASES, 0.0)
_open: list[str] = []      # phases that have begun, the innermost last: its time counts for it alone
_since = [0.0]


def _turn() -> None:
  """What has passed counts for the innermost phase."""
  now = time.perf_counter()
  if _open: _spent[_open[-1]] += now - _since[0]
  _since[0] = now


@contextmanager
def phase(name: str) -> Iterator[None]:
  """Count the time of a block for one of ``PHASES``; that of a phase within it does not count for it."""
  _turn()
  _open.append(name)
  try: yield
  finally:
    _turn()
    _open.pop()


def taken() -> dict[str, float]:
  """Seconds of each phase since the last call."""
  _turn()
  found = dict(_spent)
  _spent.update(dict.fromkeys(PHASES, 0.0))
  return found


__all__ = ["PHASES", "phase", "taken"]
