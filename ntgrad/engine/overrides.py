"""Kernels that a person puts in the place of scheduled ones: which there are, and whether they give the same values.

They are those of ``ntgrad.override`` and the files of the folder that ``OVERRIDE`` names. They are found by the contents of the
scheduled kernel (``kernel_key``), not by its name. The first launch of each runs the scheduler's kernel too, and compares what
the two wrote. """
from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, Hashable, Sequence

import numpy as np

from ntgrad.backends.base import Device, Program, ProgramAround, ProgramSpec, Raw, Sizes
from ntgrad.codegen import index as ix
from ntgrad.codegen.explain.tile_source import kernel_key
from ntgrad.codegen.index import evaluator, shape_text
from ntgrad.codegen.ir import DType, NtgradError, OverrideError, Recent, config
from ntgrad.codegen.ir.paths import usable
from ntgrad.codegen.kernel import Kernel, Param
from ntgrad.codegen.passes.parts import Parts

from .measuring import Bench, CandidateMemory
from .override_files import Exported, read_file
from .size_variants import SizedProgram

# by the bytes of a float, of the greatest value and of each one: of kernels that are written anew, that add in another order
TOLERANCE, ROUNDING = {8: 1e-9, 4: 1e-4, 2: 2e-2, 1: 0.3}, {8: 1e-12, 4: 1e-5, 2: 2e-2, 1: 0.3}
SHORT = 1024   # terms of a sum; those of longer ones are further apart


given_overrides: dict[str, Exported] = {}   # by ``ntgrad.override``
kernel_listeners: list[Callable[[Kernel, ProgramSpec, Parts, Device], None]] = []   # called for each new kernel of the scheduler


def _found() -> dict[str, Exported]:
  """The kernels that are in force, by what they stand for. Raises OverrideError for a file that says nothing."""
  return {**(in_folder(config.override) if config.override else {}), **given_overrides}


def state() -> Hashable:
  """What stands for the overrides in force in keys of caches; None where there are none."""
  if not given_overrides and not config.override: return None
  return tuple(sorted((key, mine.number) for key, mine in _found().items()))


def in_folder(folder: str) -> dict[str, Exported]:
  """The files of a folder, read again where one has changed. Raises OverrideError where there is no such folder, or two of its
  files stand for the same kernel."""
  path = Path(folder)
  with usable("OVERRIDE", folder, OverrideError): there = path.is_dir()
  if not there: raise OverrideError(f"OVERRIDE={folder}: there is no such folder; python -m ntgrad eject writes one")
  return _read(folder, *[(f, (now := f.stat()).st_mtime_ns, now.st_size) for f in sorted(path.glob("*.py"))])


@lru_cache(maxsize=1)
def _read(folder: str, *files: tuple[Path, int, int]) -> dict[str, Exported]:
  """What lies in a folder whose files, with their times and sizes, are these."""
  out: dict[str, Exported] = {}
  for f, *_ in files:
    mine = read_file(f)
    if mine.key in out: raise OverrideError(f"{f} and {out[mine.key].file} stand for the same kernel, {mine.key}; remove one")
    out[mine.key] = mine
  return out


def standing_for(kernel: Kernel) -> Exported | None:
  """A person's own kernel that stands for one of the scheduler's, if there is one."""
  found = _found()
  return found.get(kernel_key(kernel)) if found else None


def check_parameters(mine: Exported, kernel: Kernel) -> Kernel:
  """A person's kernel in index form. Raises OverrideError where its parameters or run-time sizes are not those of the
  scheduler's."""
  try: form = mine.form()
  except NtgradError as e: raise OverrideError(f"{mine.file}: {e}") from e
  want, have = list(map(_said, kernel.params)), list(map(_said, form.params))
  if want != have:
    raise OverrideError(f"{mine.file}: its parameters are {'; '.join(have)}; the scheduled kernel has {'; '.join(want)}")
  want, have = [s.name for s in kernel.sizes], [s.name for s in form.sizes]
  if want != have: raise OverrideError(f"{mine.file}: its run-time sizes are {have}; the scheduled kernel has {want}")
  return form


def _said(p: Param) -> str: return f"data{p.slot} {shape_text(p.shape)} {p.dtype.name}{', written' if p.written else ''}"


@dataclass(eq=False)
class Checked(ProgramAround):
  """A person's program, which is compared with the scheduler's before its first launch; ``asked`` are its run-time sizes."""
  pair: ComparedPrograms
  program: Program
  asked: Sizes

  def __call__(self, buffers: Sequence[Raw], wait: bool = False, sizes: Sizes = ()) -> float | None:
    if not self.pair.checked: self.pair.check(buffers, self.asked)
    return self.program(buffers, wait, sizes)

  def clone(self) -> Program: return self.program.clone() if self.pair.checked else self


class CheckedSizes(SizedProgram):
  """The same of a kernel with run-time sizes: the variant for each of these is a program that is compared first."""

  def __init__(self, pair: ComparedPrograms, mine: SizedProgram):
    self.pair, self.mine, self.variants, self.found = pair, mine, mine.variants, Recent(1)   # all else is the person's own

  def variant(self, sizes: Sizes) -> tuple[Program, Sizes]:
    """The program for run-time sizes, and what it is launched with."""
    program, given = self.mine.variant(sizes)
    return program if self.pair.checked else Checked(self.pair, program, sizes), given


def Overridden(kernel: Kernel, theirs: Program, mine: Program, file: str, device: Device) -> Program:
  """A person's program in the place of the scheduler's, whose results it is compared with once."""
  pair = ComparedPrograms(kernel, theirs, mine, file, device)
  return CheckedSizes(pair, mine) if isinstance(mine, SizedProgram) else Checked(pair, mine, ())


@dataclass(eq=False)
class ComparedPrograms:
  """The scheduler's program and a person's, and whether they have been compared."""
  kernel: Kernel
  theirs: Program
  mine: Program
  file: str
  device: Device
  checked: bool = False

  def check(self, buffers: Sequence[Raw], sizes: Sizes) -> None:
    """Run both on copies of what they write. Raises OverrideError where the results are not the same."""
    d, params = self.device, self.kernel.params
    counts = evaluator(tuple(ix.product(p.shape) for p in params), self.kernel.sizes)(sizes)
    memory = [CandidateMemory(n * p.dtype.itemsize, p.dtype, raw, p.written) for n, p, raw in zip(counts, params, buffers)]
    bench, results = Bench(d, memory), []
    for program in self.theirs, self.mine:
      with bench.trial() as raws:
        program([d.at(raw, 0) if p.align and p.written else raw for p, raw in zip(params, raws)], False, sizes)
        results.append(bench.results(raws))
    for p, want, got in zip((p for p in params if p.written), *results):
      if (said := difference(want, got, p.dtype, TOLERANCE[p.dtype.itemsize])) is not None:
        name = self.mine.spec.name  # type: ignore[attr-defined]
        raise OverrideError(f"{self.file}: {name} gives something else than the scheduled kernel: data{p.slot}, {said}")
    self.checked = True


def rounding_part(dtype: DType, kernel: Kernel | None = None) -> float:
  """The part of a float that rounding may take, of a kernel with sums as long as its own."""
  terms = [ix.count(ix.product([kernel.axis(i).size for i in r.arg[1]])) for r in kernel.reduces] if kernel is not None else []
  return ROUNDING[dtype.itemsize] * math.sqrt(max([n / SHORT for n in terms if n > SHORT], default=1))


def difference(want: np.ndarray[Any, Any], got: np.ndarray[Any, Any], dtype: DType, rate: float,
               noise: np.ndarray[Any, Any] | None = None) -> str | None:
  """How two results differ, and by how much more than rounding, a part ``rate`` of them; None where they do not. ``noise``: how
  far each element may be off at least."""
  if not want.size: return None
  a, b, wrong, allowed = want.astype(np.float64), got.astype(np.float64), got != want, np.zeros(want.shape)
  if dtype.kind != "f":
    off = np.abs(b - a) * wrong
    if noise is not None: wrong = wrong & (noise == 0)
  else:
    finite = np.isfinite(a)
    allowed = rate * (np.abs(np.where(finite, a, 0)) + np.max(np.abs(a), initial=0, where=finite))
    if noise is not None: allowed = np.fmax(allowed, noise)
    with np.errstate(invalid="ignore"): off = np.where((a == b) | np.isnan(a) & np.isnan(b), 0.0, np.abs(b - a))
    off = np.where(np.isnan(off), math.inf, off)
    wrong = off > allowed
  if not wrong.any(): return None
  at = int(np.argmax(np.where(wrong, off, -1)))
  x, y, place = want.flat[at], got.flat[at], at if want.ndim == 1 else tuple(map(int, np.unravel_index(at, want.shape)))
  steps = f", {off.flat[at] / np.spacing(abs(x)):.4g} ULP" if want.dtype.char in "efd" and np.isfinite(off.flat[at]) else ""
  return (f"{int(wrong.sum())} of {want.size} elements, most at element {place}: {y} in place of {x}, "
          f"a difference of {off.flat[at]:.4g} where {allowed.flat[at]:.2g} is rounding{steps}")
