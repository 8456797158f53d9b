#!/usr/bin/env python3
"""What a script waits for the first time, in a process that imports what the script would: for ``bench/first_hour.py``.

    python bench/first_loss.py ntgrad VAE        # the first loss of a workload of first_hour_models.py
    python bench/first_loss.py torch everyday    # a smaller last batch, one sample, accumulated gradients, evaluation

The last line is JSON: by what was done, the seconds until a value was printed (a first loss: from after the imports, with making
the parameters), the value, and how many programs and plans ntgrad made.
"""
from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from first_hour_models import FIRST_LOSSES, Work, everyday

LIBRARY, NAME = sys.argv[1:3]
counted: Callable[[], Any] = importlib.import_module("measure").compiled if LIBRARY == "ntgrad" else nullcontext
sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != Path(__file__).resolve().parent]   # bench/cuda.py is no package
library: Any = importlib.import_module(LIBRARY)
importlib.import_module(f"{LIBRARY}.optim")


def first_loss() -> float:
  """The first training step of the workload, from nothing on."""
  work = FIRST_LOSSES[NAME](library)
  return float(work.step(*map(library.from_numpy, work.batch(0))).item())


def variants(work: Work) -> dict[str, Callable[[], float]]:
  """What comes after three steps with 50 samples, by name."""
  def inputs(n: int) -> list[Any]: return [library.from_numpy(a[:n]) for a in work.batch(0)]
  def train(n: int) -> float: return float(work.step(*inputs(n)).item())
  def accumulate() -> float:
    losses = []
    for _ in range(3):
      assert work.loss is not None
      loss = work.loss(*inputs(50)) / 3
      loss.backward()
      losses.append(float(loss.item()))
    work.optimizer.step()
    work.optimizer.zero_grad()
    return sum(losses)
  def evaluate() -> float:
    work.model.eval()
    x, y = inputs(99)
    with library.no_grad(): return float((work.model(x).argmax(1) == y).sum().item())
  for _ in range(3): train(50)
  return {"last batch": lambda: train(28), "batch of one": lambda: train(1), "accumulation": accumulate, "evaluation": evaluate}


library.manual_seed(0)
found = {}
for name, fn in (variants(everyday(library)) if NAME == "everyday" else {"first loss": first_loss}).items():
  start = time.perf_counter()
  with counted() as made: print(name, value := fn(), flush=True)
  found[name] = {"seconds": time.perf_counter() - start, "value": value, **(made or {"programs": 0, "plans": 0})}
print(json.dumps(found))
