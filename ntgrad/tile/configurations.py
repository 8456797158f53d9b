"""Configurations of a library that differ in meta-parameters only, such as sizes of blocks: which one is kept."""
from __future__ import annotations

import math
from contextlib import ExitStack
from typing import Any, Sequence

import numpy as np

from ntgrad.backends.base import Device
from ntgrad.codegen import index as ix
from ntgrad.codegen.choose.gpu_cost import estimate
from ntgrad.codegen.index.algebra import UNKNOWN
from ntgrad.codegen.ir.config import config
from ntgrad.codegen.ir.errors import ArgumentError, NtgradError
from ntgrad.engine import report
from ntgrad.engine.measuring import Bench, CandidateMemory
from ntgrad.graph.symbol import Symbol, evaluate

from .kernel import TileKernel
from .specialised import Specialised

SEED = 0   # of the numbers that candidates are measured on


def fastest_config(
  kernels: Sequence[TileKernel], members: Sequence[Any], said: Sequence[dict[str, Any]], device: Device, here: bool
) -> int:
  """The number of the configuration, of ``members`` with their kernels, that is kept: the fastest one, measured where the
  device is ``here`` and else as the cost model has it. With ``TUNE=0`` it is the first. ``said`` are the values that each is
  called by."""
  if len(members) == 1 or not config.tune or config.noopt: return 0
  made: dict[int, Specialised] = {}
  lines: list[str] = []
  for i, (kernel, c) in enumerate(zip(kernels, members)):
    try: made[i] = kernel.specialise(*sizes_for(kernel, c), **c.values)
    except NtgradError as e: lines.append(f"{_shown(said[i])}: {str(e).splitlines()[0]}")
  if not made: return 0   # which says why when it is compiled
  seconds: dict[int, float] = {}
  if not here:
    seconds = {i: estimate(s.kernel, device.renderer.target) for i, s in made.items()}
    lines += [f"{_shown(said[i])}: {n * 1e6:.1f} µs by the model" for i, n in seconds.items()]
  else:
    with ExitStack() as held:
      bench = Bench(device, memory(next(iter(made.values())), device, held))
      with config(noopt=1): bench.reference(*device.compile([next(iter(made.values())).spec(device)]))
      for i, s in made.items():
        try: seconds[i] = bench.measure(device.compile([s.spec(device)])[0])
        except NtgradError as e: lines.append(f"{_shown(said[i])}: {str(e).splitlines()[0]}")
        else: lines.append(f"{_shown(said[i])}: {seconds[i] * 1e6:.1f} µs")
  best = min(seconds or made, key=lambda i: seconds.get(i, 0.0))
  report.tuned(kernels[best].name, said[best], lines)
  return best


def _shown(values: dict[str, Any]) -> str: return ", ".join([f"{n}={v}" for n, v in values.items()])


def sizes_for(kernel: TileKernel, c: Any) -> list[tuple[tuple[int, ...], Any]]:
  """The shape and dtype of each argument: those of a configuration, its hints (or some likely number) for what it leaves open."""
  likely = {n: v if isinstance(v, int) else max(v) for n, v in c.hints.items()}
  def number(n: Any, declared: Any) -> int:
    if isinstance(n, int): return n
    s = n if isinstance(n, Symbol) else Symbol(n) if isinstance(n, str) and n != "?" else declared
    if isinstance(s, int): return s
    known = {m.name: likely.get(m.name, min(max(m.lower_bound or 1, UNKNOWN), m.upper_bound or UNKNOWN)) for m in s.names()}
    return int(evaluate(s, known))
  given = [kernel.tensors[i] for i in kernel.given]
  if not c.arguments: return [(tuple([number(None, e) for e in t.shape]), t.element or "float32") for t in given]
  if len(c.arguments) != len(given): raise ArgumentError(f"{kernel.name}: takes {len(given)} arguments, got {len(c.arguments)}")
  return [(tuple([number(n, e) for n, e in zip(shape, t.shape)]), dtype) for t, (shape, dtype) in zip(given, c.arguments)]


def memory(s: Specialised, device: Device, held: ExitStack) -> list[CandidateMemory]:
  """Memory for each parameter, as long as ``held``: floats from 0 to 1, and ints that are 0, which are places everywhere."""
  rng, out = np.random.default_rng(SEED), []
  for p in s.parameters:
    n = math.prod([ix.count(m) for m in p.shape])
    numbers = rng.random(n, np.float32) if p.dtype.kind == "f" else np.zeros(n)
    array = numbers.astype(p.dtype.np)
    raw = device.alloc(max(array.nbytes, 1))
    held.callback(device.free, raw, max(array.nbytes, 1))
    if n: device.copyin(raw, array.view(np.uint8))
    out.append(CandidateMemory(array.nbytes, p.dtype, raw, p.written))
  return out
