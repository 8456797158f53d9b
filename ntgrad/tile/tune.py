"""Choosing the values of ``block_size()`` symbols: a model's first choice, then, with permission (``TUNE=1``), measuring around
it.

The search runs candidates on copies of everything that the kernel writes, compares each with the unoptimised kernel, and keeps
the fastest; the choice is remembered on disk for the hardware with its driver, the kernel, and shapes rounded up to powers of
two.
"""
from __future__ import annotations

import hashlib
import itertools
import json
import time
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Sequence

import numpy as np

from ntgrad.backends import cache
from ntgrad.backends.base import Device, Program
from ntgrad.backends.progress import bar
from ntgrad.codegen.config import config
from ntgrad.codegen.errors import ArgumentError, NtgradError
from ntgrad.codegen.estimate import estimate
from ntgrad.codegen.tiles import lower_tiles
from ntgrad.engine.trials import Bench, Memory, ready
from ntgrad.symbol import Symbol

from .sizes import bucket

if TYPE_CHECKING:
  from .kernel import TileKernel
  from .specialised import Specialised

Values = dict[str, int]
BUDGET = 20.0                 # seconds for one search
CONFIGS = 12                  # candidates that are measured at most


def free_symbols(symbols: Sequence[Symbol], kernel: TileKernel) -> list[Symbol]:
  """Those that are the tuner's to choose. Raises ArgumentError for one that is neither a size, nor given, nor the tuner's."""
  left = [str(s) for s in symbols if not s.meta]
  if left: raise ArgumentError(f"{kernel.name}: no value for {', '.join(left)}; give {left[0]}=… with the call")
  return [s for s in symbols if s.meta]


def first_choice(symbols: Sequence[Symbol], blocks: bool) -> Values:
  """Powers of two within the bounds that are good enough to run: long when there is only one, larger for chips that compute with
  blocks."""
  out: Values = {}
  for s in symbols:
    n = 1024 if len(symbols) == 1 else 128 if blocks and len(symbols) > 2 else 64
    low, high = s.lower_bound or 1, s.upper_bound or 1 << 20
    while n > high and n > 1: n //= 2
    while n < low: n *= 2
    out[str(s)] = n
  return out


def candidates(symbols: Sequence[Symbol], more: Mapping[str, Sequence[int]]) -> Iterator[Values]:
  """All values within the bounds, those near the first choice first; ``more`` has settings that are tried with each, on targets
  with blocks."""
  start = first_choice(symbols, bool(more)) | {n: vs[0] for n, vs in more.items()}
  def options(s: Symbol) -> list[int]:
    low, high = max(s.lower_bound or 1, 1), s.upper_bound or 1024
    return [n for e in range(11) if low <= (n := 1 << e) <= high] or [start[str(s)]]
  points = list(itertools.product(*map(options, symbols), *more.values()))
  names = [*(str(s) for s in symbols), *more]
  def distance(p: tuple[int, ...]) -> float: return sum(abs(np.log2(n / start[name])) for n, name in zip(p, names))
  for p in sorted(points, key=distance): yield dict(zip(names, p))


def key_of(
  kernel: TileKernel, arguments: Sequence[Any], numbers: Mapping[int, Any], values: Mapping[str, int], device: Device
) -> str:
  """What a choice is remembered under: the kernel's code, dtypes, shapes rounded up, the hardware with its driver."""
  shapes = [None if a is None else (tuple(map(bucket, a.shape)), str(a.dtype), a.jagged is not None) for a in arguments]
  rounded = sorted((n, bucket(v)) for n, v in values.items())
  arranged = [repr(t) for t in kernel.arranged]
  return cache.key(
    "tune",
    kernel.identity,
    arranged,
    shapes,
    sorted(numbers.items()),
    rounded,
    device.identity,
    str(device.renderer.target),
    sorted(kernel.settings.items()),
    config.key(),
  )


def remembered(key: str, symbols: Sequence[Symbol]) -> Values | None:
  """The choice of an earlier search."""
  raw = cache.load("tile-tune", key)
  if raw is None: return None
  found: Values = json.loads(raw)
  return found if all(str(s) in found for s in symbols) else None


def search(
  kernel: TileKernel, symbols: Sequence[Symbol], specialise: Any, device: Device, inputs: Sequence[Any]
) -> tuple[Values, list[str]]:
  """The fastest values, and a line about each that was tried. ``specialise(values)`` builds, ``inputs`` are Buffers by slot."""
  lines: list[str] = []
  distinct: dict[Any, tuple[Values, Specialised]] = {}
  more = {"num_warps": kernel.settings.get("num_warps", (4, 8)), "num_stages": kernel.settings.get("num_stages", (3,))}
  more_blocks = device.renderer.target.blocks
  for values in itertools.islice(candidates(symbols, more if more_blocks else {}), 200):
    try:
      s = specialise(values)
    except NtgradError as e:
      lines.append(f"{show(values)}: {str(e).splitlines()[0]}")
      continue
    lowered = lower_tiles(s.kernel) if s.kernel.plain and not device.renderer.target.blocks else s.kernel
    distinct.setdefault((lowered.axes, lowered.body, s.options) if lowered.plain else id(s), (values, s))
    if len(distinct) >= (120 if more_blocks else 40):
      break
  if not distinct:
    raise ArgumentError(f"{kernel.name}: no block size fits; " + "; ".join(lines[:3]))
  first = next(iter(distinct.values()))
  if len(distinct) == 1:
    return first[0], lines
  most = kernel.settings.get("max_num_configs") or CONFIGS
  ranked = [
    first,
    *sorted((d for d in distinct.values() if d is not first), key=lambda d: estimate(d[1].kernel, device.renderer.target)),
  ][:most]
  bench = Bench(device, [Memory(b.nbytes, b.dtype, b.raw, p.written) for p, b in zip(first[1].parameters, inputs)])
  with config(noopt=1):
    bench.reference(*device.compile([first[1].spec(device)]))
  best: tuple[float, Values] | None = None
  started = time.perf_counter()
  with progress(kernel.name, len(ranked)) as shown:
    for values, program in compiled(ranked, device, lines):
      if best is not None and time.perf_counter() - started > BUDGET:
        break
      try:
        seconds = bench.measure(program)
      except NtgradError as e:
        lines.append(f"{show(values)}: {str(e).splitlines()[0]}")
      else:
        lines.append(f"{show(values)}: {seconds * 1e6:.1f} µs")
        if best is None or seconds < best[0]:
          best = seconds, values
      shown.update(1)
  return (best[1] if best is not None else first[0]), lines


def compiled(ranked: Sequence[tuple[Values, Specialised]], device: Device, lines: list[str]) -> list[tuple[Values, Program]]:
  """The candidates' programs, ready as far as half of the budget goes. ``lines`` is told of those that cannot be rendered, and of
  those whose source another one has."""
  out: list[tuple[Values, Program]] = []
  known: dict[Any, Values] = {}
  for values, s in ranked:
    try:
      spec = s.spec(device)
      first = known.setdefault((spec.source.text, spec.grid, spec.local, spec.options), values)
      if first is values: out.append((values, device.compile([spec])[0]))   # workers begin while the next is rendered
      else: lines.append(f"{show(values)}: the same program as {show(first)}")
    except NtgradError as e: lines.append(f"{show(values)}: {str(e).splitlines()[0]}")
  ready([p for _, p in out], BUDGET / 2)
  return out


def show(values: Mapping[str, int]) -> str:
  """Values as written in a call."""
  return ", ".join(f"{n}={v}" for n, v in values.items())


def progress(name: str, total: int) -> Any:
  """A bar with DEBUG=2 on a terminal."""
  return bar(f"tuning {name}", total, config.debug >= 2)


def fingerprint(*texts: str) -> str: return hashlib.blake2b("\0".join(texts).encode(), digest_size=16).hexdigest()
