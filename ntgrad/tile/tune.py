"""Choosing the values of ``block_size()`` symbols: a model's first choice, then, unless ``TUNE=0``, measuring around it on copies
of what the kernel writes, each candidate compared with the unoptimised kernel; the choice is remembered on disk. All that the
search does counts for its seconds: each phase begins with what there is when the one before has had its part."""
from __future__ import annotations

import hashlib
import itertools
import math
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Sequence

import numpy as np

from ntgrad.backends import cache
from ntgrad.backends.base import Device, Program
from ntgrad.backends.progress import line
from ntgrad.codegen.choose.gpu_products import Blocks
from ntgrad.codegen.choose.gpu_resources import LEAST_DOT, best_of, from_best, room_of, seconds_of
from ntgrad.codegen.index import count
from ntgrad.codegen.ir import ArgumentError, NtgradError, Target, config, power_of_two
from ntgrad.codegen.passes.tiles import lower_tiles
from ntgrad.engine.measuring import HOPELESS, Bench, CandidateMemory, candidates_of, compiled_in_time, kept_on_interrupt
from ntgrad.engine.search_results import CHOICE, TUNER, found_choice
from ntgrad.graph.symbol import Symbol

if TYPE_CHECKING:
  from .kernel import TileKernel
  from .specialised import Specialised

_Values = dict[str, int]
Read = Callable[[_Values], Any]   # of values the kernel that is specialised for them
Candidate = tuple[_Values, Any]
COMPILER_OPTIONS = "num_warps", "num_stages"
CONFIGS = 12                         # candidates that are measured at most
READ = 200                           # candidates that are read at most
DISTINCT, DISTINCT_BLOCKS = 40, 120  # candidates that are different kernels, at most: on a CPU, on targets with blocks
UNOPTIMISED = 2e8                    # operations a second of a kernel without Opts, about
_LONG = 0.1                          # of the search's seconds: a kernel without Opts that takes longer is not run to compare with
_MOST = 1 << 20                      # the greatest value of a symbol without a bound
MOST_TOLD = 64                       # the greatest number of warps, and of stages
FEWEST_TRIED_WARPS, MOST_TRIED_WARPS = 4, 8            # warps that are tried


class Clock:
  """The seconds of a search, and the parts of them after which no candidate is read, made source of, or compiled any more."""
  READING, RENDERING, COMPILING = 0.2, 0.45, 0.85
  MEASURING = 0.2   # at least, for a compiler may take longer than it has
  SECONDS, SECONDS_BLOCKS = 6.0, 4.0

  def __init__(self, target: Target, seconds: float | None = None):
    self.seconds = (self.SECONDS_BLOCKS if target.blocks else self.SECONDS) if seconds is None else seconds
    self.started = time.perf_counter()

  def left(self, part: float = 1.0) -> float:
    """Seconds until a part of the time is over."""
    return self.started + part * self.seconds - time.perf_counter()


def free_symbols(symbols: Sequence[Symbol], kernel: TileKernel) -> list[Symbol]:
  """Those that are the tuner's to choose. Raises ArgumentError for one that is neither a size, nor given, nor the tuner's."""
  left = [str(s) for s in symbols if not s.meta]
  if left: raise ArgumentError(f"{kernel.name}: no value for {', '.join(left)}; give {left[0]}=… with the call")
  return list(symbols)


# ---- the first choice

def first_choice(symbols: Sequence[Symbol], blocks: bool) -> _Values:
  """Powers of two within the bounds that are good enough to run: long for one alone, larger for chips with blocks."""
  out: _Values = {}
  for s in symbols:
    n = 1024 if len(symbols) == 1 else 128 if blocks and len(symbols) > 2 else 64
    low, high = s.lower_bound or 1, s.upper_bound or _MOST
    while n > high and n > 1: n //= 2
    while n < low: n *= 2
    out[str(s)] = n
  return out


def fitting(symbols: Sequence[Symbol], read: Read, target: Target, settings: Mapping[str, Any]) -> _Values:
  """The first choice; on a chip with blocks, where a core has no room for it, one that fits: step by step a block is halved, or
  warps are doubled, as leaves the least to do. A product comes as near to the scheduler's blocks as halving leads."""
  start = first_choice(symbols, target.blocks)
  if not target.blocks or not symbols: return start
  fixed = {n: vs[0] for n, vs in settings.items() if n in COMPILER_OPTIONS}

  def of(values: _Values, fn: Callable[[Specialised], Any]) -> Any:
    """``fn`` of the kernel for values; None where there is none."""
    try: s = read(fixed | values)
    except NtgradError: return None
    return None if s is None else fn(s)

  def cost(values: _Values) -> tuple[float, float] | None:
    """What a core lacks, and how far from the best it is; None where there is no such kernel."""
    return of(values, lambda s: (max(excess(s, target), 1.0), from_best(s.kernel, best, target)))

  def steps(values: _Values) -> Iterator[_Values]:
    for s in symbols:
      half = values[str(s)] // 2
      if half >= max(s.lower_bound or 1, LEAST_DOT): yield values | {str(s): half}
    warps = values.get("num_warps", FEWEST_TRIED_WARPS)
    if "num_warps" not in fixed and warps < MOST_TRIED_WARPS: yield values | {"num_warps": 2 * warps}

  best: Blocks | None = None
  values, least = start, cost(start)
  if least is None or least[0] <= 1: return start
  # of a product, by small blocks: it is padded least
  small = {str(s): max(s.lower_bound or 1, min(start[str(s)], LEAST_DOT)) for s in symbols}
  best = of(small, lambda s: best_of(s.kernel, target))
  least = cost(start) or least
  while least[0] > 1 or least[1] >= 1:
    now, better = min([(c, v) for v in steps(values) if (c := cost(v)) is not None], key=lambda t: t[0], default=(least, values))
    if now >= least: break
    values, least = better, now
  return values


def excess(s: Specialised, target: Target) -> float:
  """How many times as much of a core as there is a program takes."""
  told = dict(s.options)
  return room_of(s.kernel, told.get("num_warps", 0), told.get("num_stages", 0)).excess(target)


# ---- what is remembered

def tuning_key(kernel: TileKernel, arguments: Sequence[Any], numbers: Mapping[int, Any], values: Mapping[str, int],
               device: Device) -> str:
  """What a choice is remembered under: the kernel's code, dtypes, shapes rounded up, the hardware with its driver."""
  shapes = [None if a is None else (tuple(map(power_of_two, a.shape)), str(a.dtype), a.jagged is not None) for a in arguments]
  rounded = sorted((n, power_of_two(v)) for n, v in values.items())
  return cache.key("tune", kernel.identity, list(map(repr, kernel.arranged)), shapes, sorted(numbers.items()), rounded,
                   getattr(device, "identity", ""), str(device.renderer.target), sorted(kernel.settings.items()), config.key())


def remembered(key: str, symbols: Sequence[Symbol], table: str = TUNER) -> _Values | None:
  """The choice of an earlier search. One that has other names, or values out of bounds, is removed."""
  found: _Values | None = found_choice(table, key, CHOICE)
  if found is None: return None
  low, high = dict.fromkeys(COMPILER_OPTIONS, 1), dict.fromkeys(COMPILER_OPTIONS, MOST_TOLD)
  for s in symbols:
    low[str(s)] = least = s.lower_bound or 1
    high[str(s)] = max(s.upper_bound or _MOST, 2 * least)   # no power of two may be within the bounds
  if {*map(str, symbols)} <= {*found} <= {*low} and all(low[n] <= v <= high[n] for n, v in found.items()): return found
  cache.remove(table, key)
  return None


# ---- the search
@contextmanager
def noting(lines: list[str], values: Mapping[str, Any]) -> Iterator[None]:
  """What fails in the block is a line about values."""
  try: yield
  except NtgradError as e: lines.append(f"{shown_values(values)}: {str(e).splitlines()[0]}")


def shown_values(values: Mapping[str, Any]) -> str:
  """Values as written in a call."""
  return ", ".join(f"{n}={v}" for n, v in values.items())


def _candidates(symbols: Sequence[Symbol], more: Mapping[str, Sequence[int]], start: _Values) -> Iterator[_Values]:
  """All values within the bounds, those near the first choice first, each with the settings in ``more`` (with blocks)."""
  start = {n: vs[0] for n, vs in more.items()} | start
  def options(s: Symbol) -> list[int]:
    low, high = max(s.lower_bound or 1, 1), s.upper_bound or 1024
    return [n for e in range(11) if low <= (n := 1 << e) <= high] or [start[str(s)]]
  points = list(itertools.product(*map(options, symbols), *more.values()))
  names = [*(str(s) for s in symbols), *more]
  def distance(p: tuple[int, ...]) -> float: return sum(abs(np.log2(n / start[name])) for n, name in zip(p, names))
  for p in sorted(points, key=distance): yield dict(zip(names, p))


def search_values(kernel: TileKernel, symbols: Sequence[Symbol], specialise: Read, device: Device, inputs: Sequence[Any],
                  interrupted: Callable[[_Values], None] = lambda _: None,
                  seconds: float | None = None) -> tuple[_Values, list[str]]:
  """The fastest values, and a line about each that was tried. ``specialise(values)`` builds, ``inputs`` are Buffers by slot.
  ``interrupted`` gets the fastest so far where Ctrl-C ends the search; it takes ``seconds``, or what a target usually has."""
  lines: list[str] = []
  target, clock = device.renderer.target, Clock(device.renderer.target, seconds)
  found = different(kernel, symbols, specialise, target, clock, lines)
  if not found: raise ArgumentError(f"{kernel.name}: no block size fits; " + "; ".join(lines[:3]))
  if len(found) == 1: return found[0][0], lines
  ranked = likely(found, target, lines)[:kernel.settings.get("max_num_configs") or CONFIGS]
  first = ranked[0]
  bench = Bench(device, [CandidateMemory(b.nbytes, b.dtype, b.raw, p.written) for p, b in zip(first[1].parameters, inputs)])
  timed: list[tuple[float, _Values]] = []
  with line(lambda: f"tuning {kernel.name}, {len(lines)} block sizes tried"), kept_on_interrupt(timed, interrupted):
    programs = compiled_candidates(ranked, device, lines, clock, bench)
    over = time.perf_counter() + max(clock.left(), clock.MEASURING * clock.seconds)   # what is compiled is worth it
    for values, program in programs:
      if timed and time.perf_counter() > over: break
      with noting(lines, values):
        timed.append((bench.measure(program), values))
        lines.append(f"{shown_values(values)}: {timed[-1][0] * 1e6:.1f} µs")
      line.draw()
  return min(timed, key=lambda t: t[0], default=(0.0, first[0]))[1], lines


def different(kernel: TileKernel, symbols: Sequence[Symbol], specialise: Read, target: Target, clock: Clock,
              lines: list[str]) -> list[Candidate]:
  """The candidates that make different kernels, the first choice in front, within the time; each is read once for all warps."""
  read: dict[tuple[tuple[str, int], ...], Any] = {}
  def reading(values: _Values) -> Any:
    """Raises NtgradError again for what has raised one."""
    blocks = {str(s): values[str(s)] for s in symbols}
    key = tuple(blocks.items())
    if key not in read:
      try: read[key] = specialise(blocks)
      except NtgradError as e: read[key] = e
    if isinstance(s := read[key], NtgradError): raise s
    told = tuple((n, values[n]) for n in COMPILER_OPTIONS if n in values)
    return replace(s, options=told) if told and s is not None else s

  told = {"num_warps": (FEWEST_TRIED_WARPS, MOST_TRIED_WARPS), "num_stages": (3,)} if target.blocks else {}
  more: dict[str, Sequence[int]] = {n: kernel.settings.get(n, vs) for n, vs in told.items()}
  out: dict[Any, Candidate] = {}
  tight: list[tuple[float, Candidate]] = []
  for values in itertools.islice(_candidates(symbols, more, fitting(symbols, reading, target, kernel.settings)), READ):
    if out and clock.left(clock.READING) < 0: break
    s = None
    with noting(lines, values): s = reading(values)
    if s is None: continue
    if target.blocks and (times := excess(s, target)) > 1:
      tight.append((times, (values, s)))
      lines.append(f"{shown_values(values)}: {times:.1f} times what a core has room for, or is compiled in reasonable time")
      continue
    lowered = lower_tiles(s.kernel) if s.kernel.plain and not target.blocks else s.kernel
    out.setdefault((lowered.axes, lowered.body, s.options) if lowered.plain else (id(s.kernel), s.options), (values, s))
    if len(out) >= (DISTINCT_BLOCKS if target.blocks else DISTINCT): break
  return list(out.values()) or [c for _, c in sorted(tight, key=lambda t: t[0])[:1]]


def likely(found: Sequence[Candidate], target: Target, lines: list[str]) -> list[Candidate]:
  """The first candidate, and the others in order of the model's times; of kernels of blocks without those that cannot win."""
  seconds: dict[int, float] = {}
  for _, s in found:
    seconds[id(s.kernel)] = seconds.get(id(s.kernel)) or seconds_of(s.kernel, target)
  most = HOPELESS * min(seconds.values()) if target.blocks else math.inf
  rest = [(seconds[id(s.kernel)], (v, s)) for v, s in found[1:]]
  lines += [f"{shown_values(v)}: {n * 1e6:.1f} µs by the model" for n, (v, _) in rest if n > most]
  return [found[0], *[c for n, c in sorted(rest, key=lambda t: t[0]) if n <= most]]


def compiled_candidates(ranked: Sequence[Candidate], device: Device, lines: list[str], clock: Clock | None = None,
                        bench: Bench | None = None) -> list[tuple[_Values, Program]]:
  """The programs that are ready in time; ``bench`` gets what they are compared with, ``lines`` why the others are not there."""
  target = device.renderer.target
  clock, blocks = clock or Clock(target), target.blocks
  out: list[tuple[_Values, Program]] = []
  known: dict[Any, _Values] = {}
  reference: list[Program] = []
  if bench is not None:
    with config(noopt=1): spec = ranked[0][1].spec(device)
    if count(spec.work.flops) <= _LONG * clock.seconds * UNOPTIMISED or blocks:
      reference = candidates_of(device, [spec])
  for n, (values, s) in enumerate(ranked):
    if out and clock.left(clock.RENDERING) < 0:
      lines.append(f"{len(ranked) - n} more: no time is left to try them")
      break
    with noting(lines, values):
      spec = s.spec(device)
      first = known.setdefault((spec.source.text, spec.grid, spec.local, spec.options), values)
      if first is values: out.append((values, candidates_of(device, [spec])[0]))   # workers begin while the next is rendered
      else: lines.append(f"{shown_values(values)}: the same program as {shown_values(first)}")
  there = compiled_in_time([*reference, *[p for _, p in out]], clock.left(clock.COMPILING), blocks)
  each = list(zip(out, there[len(reference):]))
  in_time = [c for c, done in each if done]
  lines += [f"{shown_values(v)}: not compiled in time" for (v, _), done in each if not done]
  if bench is not None and in_time: bench.reference(reference[0] if reference and there[0] else in_time[0][1])
  return in_time


def fingerprint(*texts: str) -> str: return hashlib.blake2b("\0".join(texts).encode(), digest_size=16).hexdigest()
