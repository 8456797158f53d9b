"""A process that builds programs for another: ``python -m ntgrad.backends.opencl.worker``.

Jobs come on stdin and answers go to stdout, each a length and a pickle. A job is a group of kernels; the answer is the binary of their
program with machine code, taken after each kernel has run once on memory of no meaning (a crash there costs this process only). It
ends when stdin does.
"""
from __future__ import annotations

import os
import sys
from typing import Any, Sequence

from ntgrad.backends.base import ProgramSpec
from ntgrad.backends.opencl.compiler import Unit
from ntgrad.backends.opencl.messages import receive, send

_SMALL_GRID = 65535           # PoCL makes other machine code for grids wider than this


def build(device: Any, specs: Sequence[ProgramSpec]) -> bytes:
  """The program binary of ``specs``, machine code included. Raises CompileError."""
  cl = device.cl
  unit = Unit({device.compiler.key(s): s for s in specs})
  device.compiler.build(unit)
  memory = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, min(int(device.device.max_mem_alloc_size), 1 << 31))
  for spec, name in zip(specs, unit.names.values()):
    kernel = cl.Kernel(unit.program, name)
    for i in range(int(kernel.num_args)): kernel.set_arg(i, memory)
    local = (*spec.local, 1, 1, 1)[:3]
    # one group makes the same code as many, unless the grid is wide
    grid = tuple((_SMALL_GRID + 1)//s + 1 if g*s > _SMALL_GRID else 1 for g, s in zip((*spec.grid, 1, 1, 1), local))
    cl.enqueue_nd_range_kernel(device.queue, kernel, tuple(g*s for g, s in zip(grid, local)), local)
  packed: bytes = device.compiler.pack(unit)
  return packed


def main() -> None:
  """Answer jobs until there are none."""
  jobs, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
  os.dup2(2, 1)  # what a driver prints must not come between answers
  from ntgrad.backends.opencl.device import OpenCLDevice
  devices: dict[str, Any] = {}
  while True:
    try:
      name, specs = receive(jobs)
    except EOFError:
      return
    try:
      if name not in devices: devices[name] = OpenCLDevice(name)
      answer: Any = build(devices[name], specs)
    except Exception as e:  # the other side builds it itself and meets the same error
      answer = f"{type(e).__name__}: {e}"
    send(answers, answer)


if __name__ == "__main__": main()
