"""The tile language: kernels as an arrangement (how the parameters are tiled) and an application (what one program does with its
tiles).

``tensor.py`` and ``ntgrad/graph/symbol.py`` have the symbolic tensors and their meta-operations; ``interpret.py`` reads
applications, ``block.py`` and ``trace.py`` build the kernel meanwhile, ``language.py`` is what applications call;
``kernel.py`` specialises and ``launch.py`` runs.
"""
from ntgrad.graph.symbol import Symbol, block_size, cdiv

from . import language
from .apply import apply
from .assessments import check
from .build import Config, build
from .function import function
from .jagged import Jagged
from .kernel import TileKernel, jit, make
from .library import Library, load
from .operations import bfloat16, float16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64
from .tensor import Tensor, eval, named, subs  # noqa: A004
from .visualize import simulate_arrangement, visualize

__all__ = [
  "Config", "Jagged", "Library", "Symbol", "Tensor", "TileKernel", "apply", "bfloat16", "block_size", "build", "cdiv", "check",
  "eval", "float16", "float32", "float64", "function", "int16", "int32", "int64", "int8", "jit", "language", "load", "make",
  "named", "simulate_arrangement", "subs", "uint16", "uint32", "uint64", "uint8", "visualize"]
