"""``check``: run a script, and compare what every launch computes with the oracle."""
from __future__ import annotations

import sys
from argparse import Namespace
from collections import Counter
from dataclasses import dataclass
from traceback import extract_tb
from typing import Any, Callable, Mapping, Sequence

import numpy as np

from ntgrad.backends.base import Device, Program, ProgramAround, ProgramSpec, Raw, Sizes
from ntgrad.codegen import index as ix
from ntgrad.codegen.explain.scheduler_form import without_tiles
from ntgrad.codegen.explain.tile_source import tile_source
from ntgrad.codegen.index import evaluator
from ntgrad.codegen.ir import NtgradError, RaceError, VerifyError, config, prod
from ntgrad.codegen.kernel import Kernel
from ntgrad.codegen.opts import Opts
from ntgrad.codegen.passes.parts import Parts
from ntgrad.engine import compile as compiling
from ntgrad.engine.device import get_device
from ntgrad.engine.overrides import difference, rounding_part
from ntgrad.engine.size_variants import with_sizes
from ntgrad.graph import origins

from .parser import add_script, command, run_script, tell

Arrays = Sequence[np.ndarray]   # one for each param of a kernel
NOISE, DRAWS = 32, 4   # results may be so many times as far apart as those of so many inputs that are off by a rounding


@dataclass(frozen=True)
class Case:
  """A launch: a kernel without run-time sizes, the Opts of its parts, what its params held before."""
  kernel: Kernel
  name: str
  opts: tuple[Opts, ...]
  device: str
  data: Arrays

  def save(self, path: str) -> None:
    """Write it, the kernel in the tile language. Raises ExportError for one that has no such form."""
    arrays: dict[str, Any] = {f"data{i}": a.reshape(-1).view(np.uint8) for i, a in enumerate(self.data)}
    texts = tile_source(self.kernel, self.name, self.opts), self.name, self.device
    with open(path, "wb") as f: np.savez(f, texts=np.array(texts), **arrays)


def oracle(kernel: Kernel, name: str) -> Callable[[Arrays, Mapping[str, int]], list[np.ndarray]]:
  """What a kernel makes of its params by numpy, given the numbers of its run-time sizes by their names. Raises VerifyError for
  what a device may do in several ways."""
  with config(noopt=1): spec = compiling.program_spec(kernel, get_device("NUMPY"), name).spec
  program, = get_device("NUMPY").compile([spec])

  def run(data: Arrays, sizes: Mapping[str, int]) -> list[np.ndarray]:
    out = [a.copy() for a in data]
    program([a.reshape(-1).view(np.uint8) for a in out], False, tuple([sizes[s.name] for s in spec.sizes]))
    return out
  return run


def compare(kernel: Kernel, oracle: Callable[[Arrays], Arrays], data: Arrays, got: Arrays) -> str | None:
  """How results differ from the oracle's; None where rounding is all. So it is where inputs that are off by a rounding lead to
  such a difference: of nearly equal values, which sums cancel."""
  try: want = oracle(data)
  except RaceError: raise
  except VerifyError as e: return str(e)
  written, rng = [p for p in kernel.params if p.written], np.random.default_rng(0)
  def said(noise: Mapping[int, np.ndarray]) -> str | None:
    for i, dtype in [(p.slot, p.dtype) for p in written]:
      if text := difference(want[i], got[i], dtype, rounding_part(dtype, kernel), noise.get(i)): return f"data{i}, {text}"
    return None
  def off(a: np.ndarray) -> np.ndarray:
    if a.dtype.kind in "biu": return a
    eps = 2.0 ** -{8: 52, 4: 23, 2: 8, 1: 3}[a.dtype.itemsize]
    return (a.astype(np.float64) * (1 + eps * rng.choice([-1, 1], a.shape))).astype(a.dtype)
  if said({}) is None: return None
  with np.errstate(all="ignore"):
    moved = [oracle([off(a) for a in data]) for _ in range(DRAWS)]
    apart = {p.slot: np.max([abs(m[p.slot].astype(float) - want[p.slot].astype(float)) for m in moved], 0) for p in written}
    return said({i: NOISE * (d + (want[i].dtype.kind not in "biu") * np.sqrt(np.nanmean(d * d))) for i, d in apart.items()})


@dataclass(eq=False)
class Compared(ProgramAround):
  """A program whose launches are compared with the oracle's."""
  check: Check
  program: Program
  kernel: Kernel
  opts: tuple[Opts, ...]
  device: Device
  oracle: Any = None

  def __call__(self, buffers: Sequence[Raw], wait: bool = False, sizes: Sizes = ()) -> float | None:
    """Launch, and compare. Raises VerifyError for the first that differs."""
    if self.check not in compiling.comparers: return self.program(buffers, wait, sizes)   # the block is over
    given = {s.name: n for s, n in zip(self.spec.sizes, sizes)}
    kernel, device, known = self.kernel, self.device, [s for s in self.kernel.sizes if s.name in given]
    numbers = [evaluator(tuple(map(ix.node, p.shape)), tuple(known))([given[s.name] for s in known]) for p in kernel.params]
    def read() -> Arrays:
      return [device.copyout(raw, prod(shape) * p.dtype.itemsize).view(p.dtype.np).reshape(shape)
              for raw, shape, p in zip(buffers, numbers, kernel.params)]
    before = read()
    took = self.program(buffers, wait, sizes)
    self.oracle = self.oracle or oracle(kernel, self.spec.name)
    self.check.launched[self.spec.label] += 1
    try:
      if said := compare(kernel, lambda data: self.oracle(data, given), before, read()):
        opts = " | ".join([" ".join(map(str, o)) for o in self.opts if o]) or "none"
        raise VerifyError(f"{self.spec.label} on {device.name} gives something else than the oracle: {said}\nopts   {opts}")
    except VerifyError as e:   # that, or a race
      if kernel.plain and kernel.tiles and not device.renderer.target.blocks: kernel = without_tiles(kernel)
      if known: kernel = with_sizes(kernel, [ix.node(given[s.name]) for s in kernel.sizes])
      self.check.first = self.check.first or (e, Case(kernel, self.spec.name, self.opts, device.name, before))
      raise
    return took


class Check:
  """Runs a script with each launch compared. ``first``: the error about the first that differed, and its case; ``launched``: how
  often each kernel was."""

  def __init__(self) -> None:
    self.first: tuple[NtgradError, Case] | None = None
    self.launched, self.kernels = Counter[str](), dict[Any, tuple[Kernel, tuple[Opts, ...]]]()   # the latter by their source

  def rendered(self, kernel: Kernel, spec: ProgramSpec, parts: Parts, device: Any) -> None:
    """A kernel has been rendered."""
    self.kernels[device.name, spec.source] = kernel, parts.opts

  def compared(self, program: Program, spec: ProgramSpec, device: Device) -> Program:
    """The program that is to run in place of a new one."""
    known = self.kernels.get((device.name, spec.source))
    return program if known is None or device.name == "NUMPY" else Compared(self, program, *known, device)

  def run(self, script: str, args: Sequence[str], nan: bool = False, json: bool = False) -> int:
    """Run a script as ``run_script`` does, with ``nan`` such that the first NaN is an error; gives its exit code."""
    shown = sys.excepthook
    def hook(kind: Any, e: Any, tb: Any) -> None:
      if self.first is not None and isinstance(e, RaceError): self.first = e, self.first[1]   # in the words of its kernel
      elif self.first is None or e is not self.first[0]: shown(kind, e, tb)
    sys.excepthook = hook
    compiling.comparers.append(self)
    try:
      # each kernel is made here, as it will be
      with config(cache=0, tiers=0, workers=1, check_nan=int(nan)): run_script(script, args, json)
    except SystemExit as e: return e.code if isinstance(e.code, int) else int(e.code is not None)
    finally:
      compiling.comparers.remove(self)
      sys.excepthook = shown
    return 0


def checked(args: Namespace) -> int:
  """Run a script with each launch compared, and say what was found; its exit code, 1 where a kernel differed."""
  found = Check()
  code = found.run(args.script, args.args, args.nan, args.json)
  kernels, launches = len(found.launched), found.launched.total()
  said = {"kernels": kernels, "launches": launches, "differs": None}
  if found.first is None:
    tell(args, said, f"{kernels} kernels, {launches} launches, all as the oracle's")
    return code
  error, case = found.first
  text = str(error)
  frames = [f for f in extract_tb(error.__traceback__) if not origins.is_internal(f.filename)]
  if frames and "blamed" not in error.__dict__: text += f"\nlaunched at {frames[-1].filename}:{frames[-1].lineno}"
  if args.save:
    try: case.save(args.save)
    except NtgradError as e: text += f"\n{args.save} is not written: {e}"
    else: text += f"\nwrote {args.save}; python -m ntgrad reduce {args.save} makes a short program of it"
  tell(args, {**said, "differs": text}, text)
  return 1


def add(commands: Any) -> None:
  """``check``."""
  parser = command(
    commands, "check", checked, "Run a script, and compare what every launch computes with the oracle, numpy without Opts, which "
    "is slow. Says which kernel differs first; the exit code is 1 then, else the script's.", "check --nan train.py --epochs 1",
    "check --save case.npz train.py")
  parser.add_argument("--nan", action="store_true", help="the first NaN that an operation makes is an error, too")
  parser.add_argument("--save", metavar="FILE", help="write the launch that differs, for reduce")
  add_script(parser)
