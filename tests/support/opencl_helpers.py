"""The helper functions of OpenCL C for a CPU, as text."""
from __future__ import annotations

from ntgrad.backends.cstyle.functions import Source, Type
from ntgrad.backends.opencl.prelude import Bad, OpenCLLibrary, trusted

has = OpenCLLibrary().has


def source(name: str, ctype: str, bad: Bad = trusted) -> Source:
  """The helper ``name`` for ``ctype`` after those that it calls, as (name in C, text) pairs; ``bad`` says what the driver has
  wrong."""
  return OpenCLLibrary(bad).source(name, Type.parse(ctype))
