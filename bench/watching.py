#!/usr/bin/env python3
"""What it costs to be watched: steps with a profile around them, and with the first NaN looked for, beside steps without.

    python bench/watching.py [--models VAE,GPT] [--steps 40]

Each model is trained plainly and captured, in turns of so many steps, after its kernels are optimised. Medians and means of all
turns; a profile is allowed 1.05 of a captured step and 1.15 of a plain one, ``check_nan`` 1.5. Numbers are ratios: the machine
that they are from is in the first line.
"""
from __future__ import annotations

import argparse
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from statistics import mean, median
from typing import Any, Callable

sys.path.insert(0, str(Path(__file__).resolve().parent))
from first_hour_models import FIRST_LOSSES  # noqa: E402
from measure import cores, processor  # noqa: E402

import ntgrad  # noqa: E402
import ntgrad.optim  # noqa: E402, F401

sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != Path(__file__).resolve().parent]   # bench/cuda.py is no package

TURNS = 6
MODES: dict[str, tuple[Callable[[], Any], dict[str, float]]] = {   # what is around the steps; what it may cost: plain, captured
  "profile": (ntgrad.profile, {"plain": 1.15, "captured": 1.05}),
  "check_nan": (lambda: ntgrad.config(check_nan=1), {"plain": 1.5, "captured": 1.5})}


def turns(step: Callable[[], float], steps: int) -> dict[str, list[float]]:
  """Seconds of single steps in each mode, and without ("")."""
  out: dict[str, list[float]] = {name: [] for name in ("", *MODES)}
  for _ in range(TURNS):
    for name, seconds in out.items():
      with MODES[name][0]() if name else nullcontext():
        step()   # what it begins with, such as timing the kernels of a first run, is a step's more than others
        for _ in range(steps):
          started = time.perf_counter()
          step()
          seconds.append(time.perf_counter() - started)
  return out


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--models", default="VAE,GPT,ResNet-18")
  parser.add_argument("--steps", type=int, default=40)
  args = parser.parse_args()
  print(f"{processor()}, {cores()} cores", flush=True)
  missed = 0
  for model in args.models.split(","):
    for kind in "plain", "captured":
      work = FIRST_LOSSES[model](ntgrad)
      call = ntgrad.jit(work.step) if kind == "captured" else work.step
      batch = [ntgrad.from_numpy(a) for a in work.batch(0)]
      def step(call: Any = call, batch: Any = batch) -> float: return float(call(*batch).item())
      for _ in range(10): step()
      ntgrad.Device.optimise()
      for around, _ in MODES.values():
        with around(): step()
      found = turns(step, args.steps)
      for mode, (_, most) in MODES.items():
        ratios = [f(found[mode]) / f(found[""]) for f in (median, mean)]
        missed += ratios[0] > most[kind]
        print(f"{model:12} {kind:9} {median(found['']) * 1e3:8.2f} ms  {mode:10} median {ratios[0]:.3f}  mean {ratios[1]:.3f}  "
              f"{'must' if ratios[0] <= most[kind] else 'MISSES'} {most[kind]}", flush=True)
  return int(missed > 0)


if __name__ == "__main__": sys.exit(main())
