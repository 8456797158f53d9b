"""The tile language: kernels as an arrangement (how the parameters are tiled) and an application (what one program does with its
tiles).

``tensor.py`` and ``ntgrad/symbol.py`` have the symbolic tensors and their meta-operations; ``interpret.py`` reads applications,
``block.py`` and ``trace.py`` build the kernel meanwhile, ``language.py`` is what applications call; ``kernel.py`` specialises and
``launch.py`` runs.
"""
from ntgrad.symbol import Symbol, block_size, cdiv

from . import language
from .apply import apply
from .assess import check
from .build import Config, Library, build, load
from .function import function
from .jagged import Jagged
from .kernel import TileKernel, jit, make
from .simulate import simulate_arrangement
from .tensor import Tensor, named
from .visualize import visualize

__all__ = [
  "Config",
  "Jagged",
  "Library",
  "Symbol",
  "Tensor",
  "TileKernel",
  "apply",
  "block_size",
  "build",
  "cdiv",
  "check",
  "function",
  "jit",
  "language",
  "load",
  "make",
  "named",
  "simulate_arrangement",
  "visualize",
]
