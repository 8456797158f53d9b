"""``python -m ntgrad check script.py``: every launch of a script beside the oracle, the NUMPY backend without Opts, on a copy of
what the kernel reads."""
from __future__ import annotations

import sys
from argparse import REMAINDER, Namespace
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Sequence

import numpy as np

from ntgrad.backends.base import Device, Program, ProgramSpec, Raw, Sizes
from ntgrad.codegen import index as ix
from ntgrad.codegen.explain.tile_source import tile_source
from ntgrad.codegen.index import evaluator
from ntgrad.codegen.ir import NtgradError, VerifyError, config
from ntgrad.codegen.kernel import Kernel
from ntgrad.codegen.opts import Opts
from ntgrad.codegen.passes.parts import Parts
from ntgrad.engine import compile as compiling
from ntgrad.engine.device import get_device
from ntgrad.engine.profile import run_script, there_is
from ntgrad.engine.size_variants import with_sizes
from ntgrad.engine.tolerances import difference, rounding

Array = np.ndarray[Any, Any]
Arrays = Sequence[Array]   # one for each param of a kernel
NOISE = 32                 # times what inputs that are off by a rounding change in a result: so far results may be apart
DRAWS = 4                  # such inputs that are tried


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
    text = tile_source(self.kernel, self.name, self.opts)
    with open(path, "wb") as f:
      np.savez(f, source=np.array(text), name=np.array(self.name), device=np.array(self.device),
               **{f"data{i}": a.reshape(-1).view(np.uint8) for i, a in enumerate(self.data)})


class Oracle:
  """What a kernel computes, by numpy, from arrays and the numbers of its run-time sizes by their names."""

  def __init__(self, kernel: Kernel, name: str):
    self.kernel, self.device = kernel, get_device("NUMPY")
    with config(noopt=1): self.spec = compiling.program_spec(kernel, self.device, name).spec
    self.program, = self.device.compile([self.spec])

  def __call__(self, data: Arrays, sizes: Mapping[str, int]) -> list[Array]:
    """The params afterwards. Raises VerifyError for what a device may do in several ways."""
    raws = [self.device.alloc(max(a.nbytes, 1)) for a in data]
    for raw, a in zip(raws, data): raw[:a.nbytes] = a.reshape(-1).view(np.uint8)
    self.program(raws, False, tuple([sizes[s.name] for s in self.spec.sizes]))
    out = [raw[:a.nbytes].view(a.dtype).reshape(a.shape) for raw, a in zip(raws, data)]
    for raw, a in zip(raws, data): self.device.free(raw, max(a.nbytes, 1))
    return out


def compare(kernel: Kernel, oracle: Callable[[Arrays], Arrays], data: Arrays, got: Arrays) -> str | None:
  """How results of a kernel differ from the oracle's; None where rounding is all. Where they are further apart than sums of such
  values usually are, so may the oracle's be for inputs that are off by a rounding: of a difference of nearly equal values."""
  try: want = oracle(data)
  except VerifyError as e: return str(e)
  written = [p.slot for p in kernel.params if p.written]
  def said(noise: Mapping[int, Array]) -> str | None:
    for i in written:
      dtype = kernel.params[i].dtype
      if text := difference(want[i], got[i], dtype, rounding(dtype, kernel), noise.get(i)): return f"data{i}, {text}"
    return None
  if said({}) is None: return None
  rng = np.random.default_rng(0)
  def off(a: Array) -> Array:
    if a.dtype.kind in "biu": return a
    eps = {8: 2.0 ** -52, 4: 2.0 ** -23, 2: 2.0 ** -10}.get(a.dtype.itemsize, 2.0 ** -3)
    return (a.astype(np.float64) * (1 + eps * rng.choice([-1, 1], a.shape))).astype(a.dtype)
  with np.errstate(all="ignore"):
    moved = [oracle([off(a) for a in data]) for _ in range(DRAWS)]
    apart = {i: np.max([np.abs(m[i].astype(np.float64) - want[i].astype(np.float64)) for m in moved], 0) for i in written}
    noise = {i: NOISE * (d + np.sqrt(np.mean(d * d, where=np.isfinite(d))) if want[i].dtype.kind not in "biu" else d)
             for i, d in apart.items()}
  return said(noise)


@dataclass(eq=False)
class Compared(Program):
  """A program whose launches are compared with the oracle's."""
  check: Check
  program: Program
  kernel: Kernel
  opts: tuple[Opts, ...]
  device: Device
  oracle: Oracle | None = None

  @property
  def spec(self) -> ProgramSpec: return self.program.spec  # type: ignore[attr-defined]

  def __call__(self, buffers: Sequence[Raw], wait: bool = False, sizes: Sizes = ()) -> float | None:
    """Launch, and compare. Raises VerifyError for the first that differs."""
    if self.check not in compiling.comparers: return self.program(buffers, wait, sizes)   # the block is over
    spec, params = self.spec, self.kernel.params
    given = {s.name: n for s, n in zip(spec.sizes, sizes)}
    known = [s for s in self.kernel.sizes if s.name in given]
    shapes = evaluator(tuple(ix.node(n) for p in params for n in p.shape), tuple(known))
    numbers = iter(shapes([given[s.name] for s in known]))
    dims = [tuple([int(next(numbers)) for _ in p.shape]) for p in params]
    def read() -> list[Array]:
      return [self.device.copyout(raw, int(np.prod(d)) * p.dtype.itemsize).view(p.dtype.np).reshape(d)
              for raw, d, p in zip(buffers, dims, params)]
    before = read()
    took = self.program(buffers, wait, sizes)
    if self.oracle is None: self.oracle = Oracle(self.kernel, spec.name)
    oracle = self.oracle
    self.check.launched[spec.label] = self.check.launched.get(spec.label, 0) + 1
    if said := compare(self.kernel, lambda data: oracle(data, given), before, read()):
      kernel = with_sizes(self.kernel, [ix.node(given[s.name]) for s in self.kernel.sizes]) if known else self.kernel
      opts = " | ".join(" ".join(map(str, o)) for o in self.opts if o) or "none"
      error = VerifyError(f"{spec.label} on {self.device.name} gives something else than the oracle: {said}\nopts   {opts}")
      if self.check.first is None:
        self.check.first, self.check.case = error, Case(kernel, spec.name, self.opts, self.device.name, before)
      raise error
    return took

  def ready(self) -> None: self.program.ready()


@dataclass(eq=False)
class Check:
  """In the block kernels that are compiled are compared at each launch. ``first``: the error about the first that differed, and
  its ``case``; ``launched``: how often each was."""
  first: NtgradError | None = None
  case: Case | None = None
  launched: dict[str, int] = field(default_factory=dict)
  kernels: dict[Any, tuple[Kernel, tuple[Opts, ...]]] = field(default_factory=dict)   # by their source

  def __enter__(self) -> Check:
    self._settings = config(cache=0, tiers=0, workers=1)   # each is made here, and as it will be
    self._settings.__enter__()
    compiling.comparers.append(self)
    return self

  def __exit__(self, *_: object) -> None:
    compiling.comparers.remove(self)
    self._settings.__exit__(None, None, None)

  def rendered(self, kernel: Kernel, spec: ProgramSpec, parts: Parts, device: Any) -> None:
    """A kernel has been rendered."""
    self.kernels[device.name, spec.source] = kernel, parts.opts

  def compared(self, program: Program, spec: ProgramSpec, device: Device) -> Program:
    """The program that is to run in place of a new one."""
    known = self.kernels.get((device.name, spec.source))
    return program if known is None or device.name == "NUMPY" else Compared(self, program, *known, device)

  def run(self, script: str, args: Sequence[str]) -> int:
    """Run a script as ``python script args...`` does; gives its exit code, 1 where a kernel differed."""
    shown = sys.excepthook
    sys.excepthook = lambda kind, e, tb: None if e is self.first else shown(kind, e, tb)
    try:
      with self: run_script(script, args)
    except SystemExit as e: return e.code if isinstance(e.code, int) else int(e.code is not None)
    finally: sys.excepthook = shown
    return 0


def check(args: Namespace) -> int:
  """Run a script with each launch compared, and say what was found; its exit code, 1 where a kernel differed."""
  there_is(args.script, "check")
  found = Check()
  code = found.run(args.script, args.args)
  sys.stdout.flush()
  if found.first is None or found.case is None:
    print(f"{len(found.launched)} kernels, {sum(found.launched.values())} launches, all as the oracle's")
    return code
  print(found.first)
  if args.save:
    try: found.case.save(args.save)
    except NtgradError as e: print(f"{args.save} is not written: {e}")
    else: print(f"wrote {args.save}; python -m ntgrad reduce {args.save} makes a short program of it")
  return 1


def add(commands: Any) -> None:
  """Add the command to argparse's."""
  parser = commands.add_parser("check", help="run a script with every kernel compared with the oracle",
                               description="Run a script, compare what every launch computes with the NUMPY backend, which is "
                               "slow, and say which kernel differs first. The exit code is 1 then, else the script's.")
  parser.add_argument("--save", metavar="FILE", help="where to write the kernel that differs, with what it read")
  parser.add_argument("script")
  parser.add_argument("args", nargs=REMAINDER)
  parser.set_defaults(run=check)
