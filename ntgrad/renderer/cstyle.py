"""Languages in C's style, and ``uops_to_cstyle``, as tinygrad has them."""
from typing import Sequence

from ntgrad.backends.cstyle.kernel import CStyleRenderer as CStyleLanguage
from ntgrad.backends.metal import MetalRenderer as MetalLanguage
from ntgrad.backends.opencl.renderer import OpenCLRenderer as OpenCLLanguage
from ntgrad.codegen.ir import UOp


def uops_to_cstyle(lang: CStyleLanguage, function_name: str, uops: Sequence[UOp]) -> str:
  """The source of a kernel in a language, as text: ``uops_to_cstyle(MetalLanguage(), "dot", k.uops)``."""
  return lang.render(function_name, uops).text


__all__ = ["CStyleLanguage", "MetalLanguage", "OpenCLLanguage", "uops_to_cstyle"]
