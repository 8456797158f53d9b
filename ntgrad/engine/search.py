"""``BEAM=n``: Opts found by measuring. The n fastest lists of Opts are changed in every way that one step allows, from the
model's choice on, until nothing gets faster. The result is kept on disk, for the kernel and for the hardware with its driver.
(A beam search over schedules, as Adams et al. 2019 have it, with measured times in place of a learned model.)"""
from __future__ import annotations

import itertools
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any, Callable, Iterator, Sequence

import numpy as np

from ntgrad.backends import cache
from ntgrad.backends.base import Device, ProgramSpec
from ntgrad.backends.progress import line
from ntgrad.codegen.choose.chooser import choose
from ntgrad.codegen.choose.gpu_cost import estimate
from ntgrad.codegen.ir import NtgradError, Ops, Recent, Target, config, prod
from ntgrad.codegen.kernel import Kernel, structure_text
from ntgrad.codegen.opts import OPTS, PLAIN_KINDS, Opts, SizedOpt, read_opt
from ntgrad.codegen.passes.builder import chooses
from ntgrad.codegen.passes.parts import Mark, Parts

from .buffer import Buffer
from .measuring import Bench, CandidateMemory, candidates_of, compiled_in_time, kept_on_interrupt
from .search_results import BEAM, LISTS, About, device_text, found_choice, keep_choice

BUDGET = 30.0                 # seconds for one kernel
_ROUNDS = 8   # rounds of a search, each from the best so far
_STEP = 32                     # candidates of a round at most
_GAIN = 0.02                   # less than this is noise
Lists = tuple[tuple[Any, ...], ...]   # of Opts, as the disk cache has them
_kept: Recent[str, Lists] = Recent(64)   # what searches had found that Ctrl-C has ended, by key: there may be no disk cache
Render = Callable[[Kernel, Parts, Device, str], tuple[ProgramSpec, Any]]   # what ``compile.rendered`` does


def measurable(parts: Parts, target: Target) -> bool:
  """Whether ``BEAM`` searches Opts for a kernel: not where it prints, or a loop's end is data: it runs on made-up numbers."""
  if target.name == "numpy" or any(isinstance(item, Mark) and item.op is Ops.WHILE for item in parts.items): return False
  return not parts.kernel.prints and (parts.kernel.plain or chooses(target))


def best(parts: Parts, device: Device, name: str, render: Render, label: str = "") -> Parts:
  """The parts of a kernel after the fastest Opts (``config.beam`` lists a round); ``render`` makes source."""
  target = device.renderer.target
  start = choose(parts, target)
  key = cache.key("beam", cache.version(), structure_text(parts.kernel), device.identity, str(target), config.key())
  if (kept := _kept[key] or found_choice(BEAM, key, LISTS)) is not None:
    try: return parts.after([list(map(read_opt, opts)) for opts in kept])
    except Exception: cache.remove(BEAM, key)   # whatever they are, they are not this kernel's
  def remember(parts: Parts) -> Lists:
    lists = tuple(tuple(o.json() for o in opts) for opts in parts.opts)
    keep_choice(BEAM, key, LISTS, lists, About(device_text(device), label or name, cache.version()))
    return lists
  def interrupted(fastest: Parts) -> None: _kept[key] = remember(fastest)
  fastest = search_opts(parts, start, device, name, render, label or name, interrupted)
  remember(fastest)
  return fastest


def search_opts(parts: Parts, start: Parts, device: Device, name: str, render: Render, label: str,
                interrupted: Callable[[Parts], None]) -> Parts:
  """The parts after the fastest Opts that were found within the budget. ``interrupted`` gets the fastest so far where Ctrl-C ends
  the search."""
  kernel = parts.kernel
  buffers = [contents(device.name, p) for p in kernel.params]
  bench = Bench(device, [CandidateMemory(b.nbytes, b.dtype, b.raw, p.written) for b, p in zip(buffers, kernel.params)])
  target = device.renderer.target
  known: dict[Any, float] = {}
  timed: list[tuple[float, Parts]] = []
  started = time.perf_counter()
  def left() -> float: return BUDGET - (time.perf_counter() - started)
  def measured(candidates: Sequence[Parts]) -> list[tuple[float, Parts]]:
    new: dict[Any, tuple[Parts, ProgramSpec]] = {}
    for k in candidates:
      with suppress(NtgradError):
        s = replace(render(kernel, k, device, name)[0], uops=())
        if (key := (s.source, s.grid, s.local, s.options)) not in known: new.setdefault(key, (k, s))
    programs = candidates_of(device, [s for _, s in new.values()])
    compiled_in_time(programs, left() / 2)
    before = len(timed)
    for (key, (k, _)), p in zip(new.items(), programs):
      known[key] = float("inf")
      if left() < 0 and bench.best < float("inf"): break
      with suppress(NtgradError):
        if bench.want is None: bench.reference(p)
        known[key] = bench.measure(p)
        timed.append((known[key], k))
        line.draw()
    return timed[before:]
  with line(lambda: f"searching {label}, {len(known)} kernels measured"), kept_on_interrupt(timed, interrupted):
    if not (front := measured([start])): return start
    first = best = front[0][0]
    for _ in range(_ROUNDS):
      if left() < 0: break
      steps: dict[tuple[Opts, ...], Parts] = {}
      for opts in (o for _, k in front for o in neighbours(k, target)):
        with suppress(NtgradError):
          if opts not in steps: steps[opts] = parts.after(opts)
      likely = list(steps.values())
      if target.blocks: likely.sort(key=lambda k: estimate(k.kernel, target))
      before = best
      front = sorted([*front, *measured(likely[:_STEP * len(front)])], key=lambda f: f[0])[:max(config.beam, 1)]
      if (best := front[0][0]) > before * (1 - _GAIN): break
  if config.debug >= 2 and config.speaks_of(label):
    print(f"BEAM {label}: {first * 1e6:.1f} µs -> {best * 1e6:.1f} µs, {len(known)} kernels, "
          f"{time.perf_counter() - started:.1f} s: {' | '.join(' '.join(map(str, opts)) for opts in front[0][1].opts if opts)}")
  return front[0][1]


def contents(device: str, p: Any) -> Buffer:
  """A buffer to measure on: random numbers; zeros for ints, which may be indices."""
  b = Buffer(device, p.shape, p.dtype)
  data = np.zeros(p.shape)
  if p.dtype.kind == "f": data = np.resize(np.random.default_rng(p.slot).standard_normal(min(prod(p.shape), 1 << 20)), p.shape)
  b.put(data.astype(p.dtype.np))   # told to nobody: a jit may be recording
  return b


def neighbours(parts: Parts, target: Target) -> Iterator[tuple[Opts, ...]]:
  """The Opts of all parts one step from those that they have: one part's changed. Not all can be applied."""
  every = parts.opts
  for i, part in enumerate(parts.all()):
    if part.kernel.body[0].op is Ops.STORE:
      yield from ((*every[:i], opts, *every[i + 1 :]) for opts in changed(part.kernel, target))


def changed(kernel: Kernel, target: Target) -> Iterator[Opts]:
  """The lists of Opts one step from those that led to a kernel: one with another number, one left out, one more, each as its
  class has it. Not all can be applied."""
  opts: Opts = kernel.applied
  for i, o in enumerate(opts): yield from ((*opts[:i], other, *opts[i + 1:]) for other in o.resized())
  yield from ((*opts[:i], *opts[i + 1:]) for i, o in enumerate(opts) if o.optional)
  late = next((i for i, o in enumerate(opts) if o.late), len(opts))
  known = [c for c in OPTS.values() if c.suits(target)]
  for c in known: yield from c.more(kernel, target)
  for a, s in itertools.product(kernel.of_kind(*PLAIN_KINDS), (c for c in known if issubclass(c, SizedOpt))):
    at = len(opts) if s.late else late
    if a.kind in s.along: yield from ((*opts[:at], s(a.id, n), *opts[at:]) for n in s.tried)
