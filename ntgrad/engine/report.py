"""What ``DEBUG`` shows: schedules, a line per kernel, axes and arrangements, source, UOps."""
from __future__ import annotations

import sys
from typing import Any

from ntgrad.backends.base import ProgramSpec
from ntgrad.codegen.config import config
from ntgrad.codegen.kernel import Kernel


def color(text: str, name: str) -> str:
  """Coloured text on a terminal (or as ``config.color`` says), plain elsewhere."""
  on = sys.stdout.isatty() if config.color < 0 else bool(config.color)
  code = {"green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36, "gray": 90}[name]
  return f"\x1b[{code}m{text}\x1b[0m" if on else text


def scheduled(count: int, hit: bool, seconds: float) -> None:
  """Level 1: a schedule."""
  if config.debug >= 1: print(f"{color('schedule', 'cyan')} {count} kernels, {'found again' if hit else 'new'}, {seconds * 1e3:.1f} ms")


def compiled(spec: ProgramSpec, kernel: Kernel) -> None:
  """Levels 3 to 5: what a new kernel looks like."""
  if config.debug < 3: return
  print(color(f"kernel {spec.name}", "yellow"))
  print("  axes  " + ", ".join(map(str, kernel.axes)))
  if kernel.applied: print("  opts  " + ", ".join(map(str, kernel.applied)))
  for p in kernel.params: print(f"  data{p.slot}  {p.shape} {p.dtype}{' written' if p.written else ''}")
  if config.debug >= 4: print(spec.source)
  if config.debug >= 5 and spec.uops:
    from ntgrad.codegen.uop import UOpList
    print(UOpList(spec.uops))


_count = [0]


def ran(spec: Any, seconds: float) -> None:
  """Level 2: a line per kernel that ran."""
  _count[0] += 1
  grid = "x".join(str(g) for g in spec.grid if g > 1) or "1"
  name = color(f"{spec.name:40s}", "green")
  speed = f"{spec.flops / seconds * 1e-9:9.2f} GFLOP/s {spec.bytes / seconds * 1e-9:8.2f} GB/s"
  print(f"*** {_count[0]:5d} {name} grid {grid:12s} {seconds * 1e6:10.1f} us {speed}")
