"""``BEAM=n``: Opts found by measuring. The n fastest lists of Opts are changed in every way that one step allows, until nothing gets faster.

It starts from what the model chose, so what it finds is never slower than that; what it finds is remembered on disk, for the hardware with
its driver and the kernel. (A beam search over schedules, as Adams et al. 2019 have it, with measured times in place of a learned model.)
"""
from __future__ import annotations

import itertools
import json
import time
from dataclasses import replace
from typing import Any, Iterator, Sequence

import numpy as np

from ntgrad.backends import cache
from ntgrad.backends.base import Device, ProgramSpec
from ntgrad.backends.progress import bar
from ntgrad.codegen.config import config
from ntgrad.codegen.errors import NtgradError
from ntgrad.codegen.estimate import estimate
from ntgrad.codegen.kernel import AxisKind, Kernel
from ntgrad.codegen.opt import Opt, apply_opt
from ntgrad.codegen.optimize import optimize
from ntgrad.codegen.parts import Parts
from ntgrad.codegen.target import Target
from ntgrad.codegen.tiling import even
from ntgrad.codegen.uop import prod

from .buffer import Buffer
from .trials import Bench, Memory, ready

Opts = tuple[Opt, ...]
BUDGET = 30.0                 # seconds for one kernel
ROUNDS = 8
STEP = 32                     # candidates of a round at most
GAIN = 0.02                   # less than this is noise
WARPS, STAGES = (1, 2, 4, 8, 16), (2, 3, 4, 5)


def best(kernel: Kernel, device: Device) -> Kernel:
  """A plain kernel after the fastest Opts that ``config.beam`` lists a round lead to."""
  target = device.renderer.target
  start = optimize(kernel, target)
  name = cache.key("beam", cache.version(), text(kernel), device.identity, str(target), config.key())
  raw = cache.load("beam", name)
  if raw is not None:
    try: return applied(kernel, [Opt(*o) for o in json.loads(raw)])
    except (NtgradError, ValueError, TypeError): cache.remove("beam", name)
  found = search(kernel, start, device)
  cache.store("beam", name, json.dumps([(o.name, o.axis, o.amount) for o in found.applied]).encode())
  return found


def applied(kernel: Kernel, opts: Sequence[Opt]) -> Kernel:
  """The kernel after a list of Opts. Raises OptError where one does not apply."""
  for o in opts: kernel = apply_opt(kernel, o)
  return kernel


def text(kernel: Kernel) -> str:
  """All that a kernel is, the same in every process."""
  number = {u: i for i, u in enumerate(kernel.nodes)}
  nodes = [(u.op.name, str(u.dtype), [number[s] for s in u.src], str(u.arg)) for u in kernel.nodes]
  return repr((kernel.params, [str(a) for a in kernel.axes], nodes, [number[b] for b in kernel.body]))


def search(kernel: Kernel, start: Kernel, device: Device) -> Kernel:
  """The fastest kernel that was found within the budget."""
  from .compile import kernel_name, rendered  # it calls this module
  buffers = [contents(device.name, p) for p in kernel.params]
  bench = Bench(device, [Memory(b.nbytes, b.dtype, b.raw, p.written) for b, p in zip(buffers, kernel.params)])
  name, target = kernel_name(kernel), device.renderer.target
  known: dict[Any, float] = {}
  started = time.perf_counter()
  def left() -> float: return BUDGET - (time.perf_counter() - started)
  def measured(candidates: Sequence[Kernel]) -> list[tuple[float, Kernel]]:
    specs: list[tuple[Kernel, ProgramSpec]] = []
    for k in candidates:
      try: specs.append((k, replace(rendered(kernel, Parts.of(k), device, name), uops=())))
      except NtgradError: continue
    new: dict[Any, tuple[Kernel, ProgramSpec]] = {}
    for k, s in specs:
      key = (s.source, s.grid, s.local, s.options)
      if key not in known: new.setdefault(key, (k, s))
    programs = device.compile([s for _, s in new.values()])
    ready(programs, left() / 2)
    out = []
    for (key, (k, _)), p in zip(new.items(), programs):
      known[key] = float("inf")
      if left() < 0 and bench.best < float("inf"): break
      try:
        if bench.want is None: bench.reference(p)
        known[key] = bench.measure(p)
        out.append((known[key], k))
      except NtgradError: continue
      shown.update(1)
    return out
  with bar(f"searching {name}", STEP, config.debug >= 2) as shown:
    front = measured([start])
    first = front[0][0] if front else 0.0
    for _ in range(ROUNDS):
      if not front or left() < 0: break
      steps: dict[Opts, Kernel] = {}
      for opts in (o for _, k in front for o in neighbours(kernel, k, device)):
        if opts in steps: continue
        try: steps[opts] = applied(kernel, opts)
        except NtgradError: continue
      likely = list(steps.values())
      if target.blocks: likely.sort(key=lambda k: estimate(k, target))
      before = front[0][0]
      front = sorted([*front, *measured(likely[:STEP * len(front)])], key=lambda f: f[0])[:max(config.beam, 1)]
      if front[0][0] > before * (1 - GAIN): break
  if not front: return start
  if config.debug >= 2:
    print(f"BEAM {name}: {first * 1e6:.1f} µs -> {front[0][0] * 1e6:.1f} µs, {len(known)} kernels, {time.perf_counter() - started:.1f} s: "
          f"{' '.join(map(str, front[0][1].applied))}")
  return front[0][1]


def contents(device: str, p: Any) -> Buffer:
  """A buffer to measure on: random numbers; zeros for ints, which may be indices."""
  b = Buffer(device, p.shape, p.dtype)
  if p.dtype.kind != "f": data = np.zeros(p.shape, p.dtype.np)
  else: data = np.resize(np.random.default_rng(p.slot).standard_normal(min(prod(p.shape), 1 << 20)), p.shape).astype(p.dtype.np)
  b.put(data)   # told to nobody: a jit may be recording
  return b


# ---- steps

_SIZED = ("block", "group", "upcast", "unroll", "tile", "lane", "overlap", "local")
_OPTIONAL = ("upcast", "unroll", "lane", "overlap", "tile", "loop", "stream", "stage", "pack")
_LATER = ("loop", "tile", "stage", "pack", "stream")   # come after all that makes copies and lanes
_STAYING = ("persist", "descriptor")


def neighbours(kernel: Kernel, now: Kernel, device: Device) -> Iterator[Opts]:
  """The lists of Opts that are one step away from those that led from ``kernel`` to ``now``. Not all can be applied."""
  opts: Opts = now.applied
  for i, o in enumerate(opts):
    for n in (o.amount * 2, o.amount // 2) if o.name in _SIZED else ():
      if n >= 2: yield (*opts[:i], Opt(o.name, o.axis, n), *opts[i + 1:])
  yield from (blocks if device.renderer.target.blocks else lanes)(kernel, now, device.renderer.target)


def without(opts: Opts, *names: str) -> Opts: return tuple([o for o in opts if o.name not in names])


def blocks(kernel: Kernel, now: Kernel, target: Target) -> Iterator[Opts]:
  """Other steps on targets with blocks."""
  opts: Opts = now.applied
  for w in WARPS: yield (*without(opts, "warps"), Opt("warps", w))
  for s in STAGES if now.of_kind(AxisKind.LOOP) else (): yield (*without(opts, "stages"), Opt("stages", s))
  if without(opts, *_STAYING) != opts: yield without(opts, *_STAYING)
  else:
    boxes = tuple(Opt("descriptor", p.slot) for p in kernel.params if target.descriptors)
    programs = prod(a.size for a in now.of_kind(AxisKind.GRID))
    for n in (even(programs, target.cores), target.cores, 2 * target.cores): yield (*opts, Opt("persist", n), *boxes)
    if boxes: yield (*opts, *boxes)
  for a in now.of_kind(AxisKind.GRID):
    for n in (2, 8, 64): yield (*opts, Opt("block", a.id, n))
    for n in (4, 8, 16): yield (*opts, Opt("group", a.id, n))


def lanes(kernel: Kernel, now: Kernel, target: Target) -> Iterator[Opts]:
  """Other steps on targets without."""
  opts: Opts = now.applied
  for i, o in enumerate(opts):
    if o.name in _OPTIONAL: yield (*opts[:i], *opts[i + 1:])
  at = next((i for i, o in enumerate(opts) if o.name in _LATER), len(opts))
  for a in now.of_kind(AxisKind.GRID, AxisKind.LOOP):
    kinds = ["unroll" if a.id in now.bound else "upcast", *(["lane"] if target.lanes > 1 else []), *(["local"] if target.locals else [])]
    for name, n in itertools.product(kinds, (2, 4, 8)): yield (*opts[:at], Opt(name, a.id, n), *opts[at:])
    for n in (4, 16) if a.kind is AxisKind.GRID else (): yield (*opts, Opt("tile", a.id, n))
