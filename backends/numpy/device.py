"""The NUMPY device: memory is arrays of bytes, a program is its linear UOps, a launch evaluates them."""
from __future__ import annotations

import ctypes
import os
import time
from typing import Sequence

import numpy as np

from ntgrad.codegen import index as ix
from ntgrad.codegen.index import arguments, bounds_text, dim_text, evaluator
from ntgrad.codegen.ir import Ops, OutOfMemoryError, Target, UOp, VerifyError
from ntgrad.codegen.kernel import UOpList
from ntgrad.codegen.verify.forms import verify_linear

from ..base import Device, KernelSource, Program, ProgramSpec, Renderer, Sizes, Specs, grid_of
from ..memory_pool import from_system, host_room
from .evaluate import Evaluator
from .memory import Array

ALIGN = 64   # bytes, of an allocation


class NumpyRenderer(Renderer):
  """The "source" is the listing; it takes every linear program, those that were optimised for other targets too."""
  target = Target("numpy")

  def render(self, name: str, uops: Sequence[UOp], notes: Sequence[str] = ()) -> KernelSource:
    """The listing of the UOps under the kernel's name, without the notes."""
    return KernelSource(f"# {name}\n{UOpList(uops)}\n", sizes=tuple(arguments(uops).values()))


class NumpyProgram(Program):
  """A linear program ready to evaluate. Raises VerifyError for a program that is not legal."""

  def __init__(self, spec: ProgramSpec):
    self.spec = spec
    verify_linear(spec.uops, spec.label)
    if spec.sizes != (want := tuple(arguments(spec.uops))):
      has, launch = (", ".join(map(bounds_text, sizes)) or "none" for sizes in (want, spec.sizes))
      raise VerifyError(f"kernel {spec.label!r} has the sizes {has}, its launch {launch}")
    self.evaluator, self.grid = Evaluator(spec.label, spec.uops, spec.grid), grid_of(spec)
    if not spec.sizes: self._check(())

  def _check(self, sizes: Sizes) -> None:
    """What the program takes for granted of a launch. Raises VerifyError where it is not so."""
    spec = self.spec
    for size, n in zip(spec.sizes, sizes):
      low, high = ix.bounds(UOp(Ops.SIZE, ix.INT, (), size))
      if not low <= n <= high or size.power_of_two and n & n - 1:
        raise VerifyError(f"kernel {spec.label!r}: size {bounds_text(size)} is {n}")
    specials = [u.arg for u in spec.uops if u.op is Ops.SPECIAL]
    extents = {"g": self.grid(sizes), "l": (*spec.local, 1, 1, 1)}
    for (kind, dim, said), n in zip(specials, evaluator(tuple([s[2] for s in specials]), spec.sizes)(sizes)):
      if n != extents[kind][dim]:
        raise VerifyError(f"kernel {spec.label!r}: SPECIAL {(kind, dim, dim_text(said))} says {n} programs in dimension {dim}, "
                          f"the launch has {extents[kind][dim]}")

  def __call__(self, buffers: Sequence[Array], wait: bool = False, sizes: Sizes = ()) -> float | None:
    """Evaluate. Raises VerifyError for accesses out of bounds, uninitialised reads, races, and sizes out of their bounds."""
    spec = self.spec
    if len(buffers) != spec.nparams: raise VerifyError(f"kernel {spec.label!r} takes {spec.nparams} buffers, got {len(buffers)}")
    start = time.perf_counter()
    if all(self.grid(sizes)):
      if sizes: self._check(sizes)
      self.evaluator.run(buffers, dict(zip(spec.sizes, sizes)))
    return time.perf_counter() - start if wait else None


class NumpyDevice(Device):
  """The host's memory and numpy. Launches are done when they return."""
  name = "NUMPY"
  identity = f"numpy {np.__version__}"
  memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0

  def __init__(self) -> None: self.renderer = NumpyRenderer()

  def alloc(self, nbytes: int) -> Array:
    """A flat uint8 array, every byte 0xFF: what was never written reads as NaN or -1. Raises OutOfMemoryError."""
    def new() -> Array:
      try:
        host_room(nbytes, self.name)
        return np.full(nbytes + ALIGN, 0xFF, np.uint8)
      except MemoryError:
        raise OutOfMemoryError(f"{self.name}: out of memory allocating {nbytes:,} bytes ({self.allocated:,} in use)") from None
    room = from_system(self, nbytes, nbytes, new)
    begin = -room.ctypes.data % ALIGN
    self.allocated += nbytes
    self.peak = max(self.peak, self.allocated)
    return room[begin:begin + nbytes]

  def free(self, raw: Array, nbytes: int) -> None:
    """Count it; the array itself goes with the last reference to it."""
    self.allocated -= nbytes

  def part(self, raw: Array, offset: int, nbytes: int) -> Array: return raw[offset:offset + nbytes]

  def at(self, raw: Array, offset: int) -> Array: return raw[offset:]

  def copyin(self, raw: Array, data: np.ndarray) -> None: raw[:data.nbytes] = data

  def copyout(self, raw: Array, nbytes: int) -> np.ndarray: return np.array(raw[:nbytes])

  def compile(self, specs: Specs) -> list[Program]: return [NumpyProgram(s) for s in specs]

  def synchronize(self) -> None: """Nothing to do: a launch has finished when it returns."""

  # ---- memory shared with other libraries
  def adopt(self, address: int, nbytes: int) -> Array:
    """An array over it. See :meth:`Device.adopt`."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))

  def address(self, raw: Array, nbytes: int) -> int: return int(raw.ctypes.data)
