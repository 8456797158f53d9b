"""Machines that are not here: devices that choose, render and check the kernels of a target, and compute nothing.

Such a device is opened under a name of its own (``CPU:1001``), so that tensors on it go the way of all others: schedules, plans,
run-time sizes, programs, launches. Its memory has no bytes, and what is read from it is 0.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Sequence

import numpy as np

from ntgrad.backends.base import Device, Program, ProgramSpec, Raw, Renderer, grid_of
from ntgrad.backends.cuda.renderer import TARGET as CHIP, TritonRenderer
from ntgrad.backends.numpy.device import NumpyProgram, NumpyRenderer
from ntgrad.backends.opencl.renderer import OpenCLRenderer
from ntgrad.codegen.index.sizes import arguments, bounds_text
from ntgrad.codegen.ir.errors import VerifyError
from ntgrad.codegen.ir.target import Target
from ntgrad.engine import device as devices

CORES, BITS = (1, 2, 3, 4, 6, 8, 16, 64), (128, 256, 512)
# bytes of a core's own cache and of local memory, as PoCL has them on machines large and small
CACHES = ((256 << 10, 64 << 10), (512 << 10, 512 << 10), (1 << 20, 256 << 10), (2 << 20, 512 << 10))


@dataclass(frozen=True)
class Machine:
  """A target by name. ``settings`` make a CPU's real device generate the same code: CORES, VECTOR_BITS."""
  name: str
  device: str
  settings: tuple[tuple[str, int], ...] = ()

  def renderer(self) -> Renderer:
    """A fresh renderer for its target."""
    if self.name == "numpy": return NumpyRenderer()
    if self.name == "sm_80": return TritonRenderer(A100, 80)
    if self.name == "sm_90": return TritonRenderer(CHIP, 90)
    cores, bits = (n for _, n in self.settings)
    cache, local = CACHES[(CORES.index(cores) + 2 * BITS.index(bits)) % len(CACHES)]
    return OpenCLRenderer(Target("opencl", lanes=bits // 32, registers=32 if bits >= 512 else 16, cores=cores, long_index=True,
                                 local_memory=local, core_cache=cache))

  @property
  def environment(self) -> str:
    """What to set for a device of this machine to make the same code."""
    return " ".join(f"{k.upper()}={n}" for k, n in self.settings) or f"DEV={'NUMPY' if self.name == 'numpy' else 'CUDA'}"


A100 = replace(CHIP, cores=108, local_memory=163 << 10, cache=40 << 20, bandwidth=1.55e12)
MACHINES = {
  m.name: m for m in (
    *[Machine(f"cpu{c}x{b}", f"CPU:{1001 + 10 * i + j}", (("cores", c), ("vector_bits", b)))
      for i, c in enumerate(CORES) for j, b in enumerate(BITS)],
    Machine("sm_80", "CUDA:1080"), Machine("sm_90", "CUDA:1090"), Machine("numpy", "NUMPY:1000"))
}


class Checked(NumpyProgram):
  """A program that only checks its launches: how many buffers and sizes they have, what it takes for granted of these, and how
  many programs there are."""

  def __init__(self, spec: ProgramSpec):   # not the oracle's, which makes an evaluator
    self.spec, self.grid = spec, grid_of(spec)
    if spec.sizes != (want := tuple(arguments(spec.uops))):
      has, launch = (", ".join(map(bounds_text, sizes)) or "none" for sizes in (want, spec.sizes))
      raise VerifyError(f"kernel {spec.label!r} has the sizes {has}, its launch {launch}")
    if len(spec.source.sizes) != len(spec.sizes):
      raise VerifyError(f"kernel {spec.label!r}: its source has {len(spec.source.sizes)} sizes, its launch {len(spec.sizes)}")
    if not spec.sizes: self._check(())

  def __call__(self, buffers: Sequence[Raw], wait: bool = False, sizes: tuple[int, ...] = ()) -> float | None:
    """Check. Raises VerifyError, DeviceError."""
    spec = self.spec
    if len(buffers) != spec.nparams: raise VerifyError(f"kernel {spec.label!r} takes {spec.nparams} buffers, got {len(buffers)}")
    if all(self.grid(sizes)): self._check(sizes)
    return 0.0 if wait else None


class Pretended(Device):
  """A device of a machine that is not here."""
  memory = 1 << 40

  def __init__(self, machine: Machine):
    self.name, self.identity, self.renderer = machine.device, "", machine.renderer()
    self.count = 0   # programs made

  def alloc(self, nbytes: int) -> Raw: return (nbytes, 0)
  def free(self, raw: Raw, nbytes: int) -> None: pass
  def part(self, raw: Raw, offset: int, nbytes: int) -> Raw: return (nbytes, raw[1] + offset)
  def at(self, raw: Raw, offset: int) -> Raw: return (raw[0] - offset, raw[1] + offset)
  def copyin(self, raw: Raw, data: np.ndarray[Any, Any]) -> None: assert data.nbytes <= raw[0]
  def copyout(self, raw: Raw, nbytes: int) -> np.ndarray[Any, Any]: return np.zeros(nbytes, np.uint8)
  def synchronize(self) -> None: pass

  def compile(self, specs: Sequence[ProgramSpec]) -> list[Program]:
    self.count += len(specs)
    return [Checked(s) for s in specs]


def opened(machine: Machine) -> Pretended:
  """The machine's device, under its name for as long as the process lives."""
  found = devices._open.get(machine.device)
  if not isinstance(found, Pretended): found = devices._open[machine.device] = Pretended(machine)
  return found
