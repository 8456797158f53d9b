"""What a worker process does for the OpenCL backend: programs with machine code."""
from __future__ import annotations

from functools import cache
from typing import Any, Sequence

import numpy as np

from ntgrad.backends.base import ProgramSpec
from ntgrad.backends.opencl.compiler import Unit
from ntgrad.codegen.errors import CompileError

_SMALL_GRID = 65535           # PoCL makes other machine code for grids wider than this


@cache
def _device(name: str) -> Any:
  from ntgrad.backends.opencl.device import OpenCLDevice
  return OpenCLDevice(name)


def build(name: str, specs: Sequence[ProgramSpec]) -> bytes:
  """The packed program of ``specs`` for a device, machine code included: each kernel runs once on memory of no meaning.

  A crash there costs the worker only. Raises CompileError.
  """
  device = _device(name)
  cl = device.cl
  unit = Unit({device.compiler.key(s): s for s in specs})
  device.compiler.build(unit)
  if unit.program is None: raise CompileError(f"kernels {', '.join(s.name for s in specs)} do not compile as one program")
  memory = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, min(int(device.device.max_mem_alloc_size), 1 << 31))
  for spec, name in zip(specs, unit.names.values()):
    kernel = cl.Kernel(unit.program, name)
    count = int(kernel.num_args)
    for i in range(count): kernel.set_arg(i, memory if i < count - len(spec.source.parts) else np.uint64(0))
    local = (*spec.local, 1, 1, 1)[:3]
    # one group makes the same code as many, unless the grid is wide
    grid = tuple((_SMALL_GRID + 1)//s + 1 if g*s > _SMALL_GRID else 1 for g, s in zip((*spec.grid, 1, 1, 1), local))
    cl.enqueue_nd_range_kernel(device.queue, kernel, tuple(g*s for g, s in zip(grid, local)), local)
  packed: bytes = device.compiler.pack(unit)
  return packed
