"""Renderers, compilers and runtimes: the only code that knows a device. ``base`` is the contract."""
from __future__ import annotations

if __name__ != "ntgrad.backends":
  raise ImportError("import this package as ntgrad.backends (the bare name would load a second copy)")

from typing import Sequence

from ntgrad.codegen.errors import ArgumentError
from ntgrad.codegen.uop import UOp

from .base import Renderer


def renderer(target: str) -> Renderer:
  """The renderer called ``target``: opencl, triton or numpy. Needs no device. Raises ArgumentError for another name."""
  if target == "opencl":
    from .opencl.renderer import OpenCLRenderer
    return OpenCLRenderer()
  if target == "numpy":
    from .numpy.device import NumpyRenderer
    return NumpyRenderer()
  if target == "triton":
    from .cuda.renderer import TritonRenderer
    return TritonRenderer()
  raise ArgumentError(f"no renderer {target!r}; renderers: opencl, triton, numpy")


def render(target: str, name: str, uops: Sequence[UOp]) -> str:
  """The source of a linear program for a target, as text."""
  return renderer(target).render(name, uops).text
