"""The tile language: kernels as an arrangement (how the parameters are tiled) and an application (what one program does with its
tiles).

``tensor.py`` and ``ntgrad/graph/symbol.py`` have the symbolic tensors and their meta-operations; ``interpret.py`` reads
applications, ``block.py`` and ``trace.py`` build the kernel meanwhile, ``language.py`` is what applications call;
``kernel.py`` specialises and ``launch.py`` runs.
"""
from ntgrad.codegen.ir.dtype import dtypes as _dtypes
from ntgrad.graph.symbol import Symbol, block_size, cdiv

from . import language
from .apply import apply
from .assessments import check
from .build import Config, Library, build, load
from .function import function
from .jagged import Jagged
from .kernel import TileKernel, jit, make
from .simulate import simulate_arrangement
from .tensor import Tensor, eval, named, subs  # noqa: A004
from .visualize import visualize

int8, int16, int32, int64 = _dtypes.int8, _dtypes.int16, _dtypes.int32, _dtypes.int64
uint8, uint16, uint32, uint64 = _dtypes.uint8, _dtypes.uint16, _dtypes.uint32, _dtypes.uint64
float16, bfloat16, float32, float64 = _dtypes.float16, _dtypes.bfloat16, _dtypes.float32, _dtypes.float64

__all__ = [
  "Config",
  "Jagged",
  "Library",
  "Symbol",
  "Tensor",
  "TileKernel",
  "apply",
  "bfloat16",
  "block_size",
  "build",
  "cdiv",
  "check",
  "eval",
  "float16",
  "float32",
  "float64",
  "function",
  "int16",
  "int32",
  "int64",
  "int8",
  "jit",
  "language",
  "load",
  "make",
  "named",
  "simulate_arrangement",
  "subs",
  "uint16",
  "uint32",
  "uint64",
  "uint8",
  "visualize",
]
