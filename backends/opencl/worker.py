"""What a worker process does for the OpenCL backend: programs with machine code."""
from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Sequence

from ntgrad.backends.base import ProgramSpec, grid_of
from ntgrad.backends.opencl.device import OpenCLDevice
from ntgrad.backends.opencl.program import SMALL_GRID, OpenCLProgram
from ntgrad.codegen.errors import CompileError
from ntgrad.codegen.index import Size


@cache
def _device(name: str) -> OpenCLDevice: return OpenCLDevice(name)


def _number(size: Size) -> int:
  """What a size is where it does not matter: small."""
  return max(1, size.lower or 1)


def build(name: str, specs: Sequence[ProgramSpec]) -> bytes:
  """The packed program of ``specs`` for a device, machine code included: each kernel runs once on memory of no meaning.

  A crash there costs the worker only. Raises CompileError.
  """
  device = _device(name)
  unit = device.compiler.unit(specs)
  device.compiler.build(unit)
  if unit.program is None: raise CompileError(f"kernels {', '.join(s.name for s in specs)} do not compile as one program")
  unit.done = unit.launched = True   # it is not saved here
  memory = device.cl.Buffer(device.context, device.cl.mem_flags.READ_WRITE, min(int(device.device.max_mem_alloc_size), 1 << 31))
  device.direct = False
  for spec in unit.specs.values():
    # one group makes the same code as many, unless the grid is wide
    likely = grid_of(spec)([_number(s) if s.hint is None else s.hint for s in spec.sizes])
    grid = tuple((SMALL_GRID + 1)//n + 1 if g*n > SMALL_GRID else 1 for g, n in zip(likely, (*spec.local, 1, 1, 1)))
    OpenCLProgram(device, replace(spec, grid=grid), unit)([memory]*spec.nparams, sizes=tuple(map(_number, spec.sizes)))
  return device.compiler.pack(unit)
