"""Candidates: a chooser may only take a kernel that its Opts have been applied to.

    ways to optimise a kernel, the best first   ->   the result of the first way that the kernel takes; else the kernel as it is

A way whose Opts a kernel refuses is dropped. That is a defect of whoever made the way: it is counted here, said with ``DEBUG=1``,
and tests fail where there was one.
"""
from __future__ import annotations

from collections import deque
from typing import Any, Callable, Iterable

from ..ir import OptError, config
from ..kernel import Kernel

_MOST = 256   # refusals that are remembered
Refusal = str   # of a way that was dropped: what its OptError said, and the axes of the kernel
refusals: deque[Refusal] = deque(maxlen=_MOST)


def first(kernel: Kernel, ways: Iterable[Callable[[Kernel], Kernel | None]]) -> Kernel:
  """What the first way makes of a kernel that suits it (no None) and of which it refuses no Opt; else the kernel itself."""
  for way in ways:
    try:
      if (made := way(kernel)) is not None: return made
    except OptError as e: note_refusal(kernel, e)
  return kernel


def tried(kernel: Kernel, way: Callable[..., Kernel | None], *args: Any) -> Kernel:
  """What one way makes of a kernel, ``way(kernel, *args)``, as :func:`first` has it."""
  return first(kernel, [lambda k: way(k, *args)])


def note_refusal(kernel: Kernel, why: OptError) -> None:
  """Count a way that was dropped, or an Opt of one that was left out."""
  tell([f"{why} (kernel with {', '.join(map(str, kernel.axes))})"])


def tell(found: Iterable[Refusal]) -> None:
  """Count refusals, also those of a process that chooses for this one."""
  for r in found:
    refusals.append(r)
    if config.debug >= 1: print(f"Opts that were chosen do not apply and are dropped: {r}", flush=True)
