"""Renderers, compilers and runtimes: the only code that knows a device. ``base`` is the contract."""
from __future__ import annotations

if __name__ != "ntgrad.backends":
  raise ImportError("import this package as ntgrad.backends (the bare name would load a second copy)")

from importlib import import_module
from typing import Any, Sequence

from ntgrad.codegen.ir import ArgumentError, UOp

from .base import Renderer

# the renderers by the names of their targets: module and class
RENDERERS = {"opencl": (".opencl.renderer", "OpenCLRenderer"), "triton": (".cuda.renderer", "TritonRenderer"),
             "c": (".c", "CRenderer"), "metal": (".metal", "MetalRenderer"), "numpy": (".numpy.device", "NumpyRenderer")}


def renderer(target: str) -> Renderer:
  """The renderer for a target: opencl, triton, c, metal or numpy. Needs no device. Raises ArgumentError for another name."""
  if target not in RENDERERS: raise ArgumentError(f"no renderer {target!r}; renderers: {', '.join(RENDERERS)}")
  module, name = RENDERERS[target]
  return getattr(import_module(module, __name__), name)()


def __getattr__(name: str) -> Any:
  """Modules with settings, as scripts for PyTorch name them: ``backends.cudnn.benchmark = True``."""
  if name not in ("cuda", "cudnn", "mps"): raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
  return import_module(f".{name}", __name__)


def render(target: str, name: str, uops: Sequence[UOp]) -> str: return renderer(target).render(name, uops).text
