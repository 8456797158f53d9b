"""Metal, text only, laid out as tinygrad's renderer does. Compile it with safe math: fast math takes NaN and infinity for
impossible. Metal has no ``double``, and atomic operations on 32 bits only. Values are single numbers; float16 is ``half`` in
memory, bfloat16 and the fp8 dtypes are integers of their size."""
from __future__ import annotations

from ntgrad.codegen.index import Dim
from ntgrad.codegen.ir import SUM, DType, Target, Text, dtypes, inside

from .cstyle.functions import FUNCTIONS, Library, Type
from .cstyle.kernel import CStyleRenderer
from .cstyle.language import KEYWORDS, STORED, VALUES, Atomic

# what Metal calls a function of floats; a conversion is a type's name
NAMES = {**{f: f for f in FUNCTIONS if f != "erf"}, "abs": "fabs", "half_to_float": "float", "float_to_half": "half"}


class MetalType(Type):
  """A type of Metal."""

  def bits(self, base: str, x: str) -> str: return f"as_type<{self.of(base)}>({x})"


class MetalLibrary(Library):
  """<metal_stdlib>."""
  names = NAMES
  floats = "float", "half"


class MetalRenderer(CStyleRenderer):
  """The Metal shading language."""
  name = "Metal"
  target = Target("metal", registers=32, cores=8, locals=True, local_memory=1 << 15,
                  dtypes=tuple(d for d in dtypes.all if d is not dtypes.float64))
  library = MetalLibrary()
  type = MetalType
  values = {d: t for d, t in VALUES.items() if t != "double"}
  stored = {**STORED, "float16": "half"}
  reserved = KEYWORDS.union(NAMES, "class constant device half kernel main metal namespace new template this thread "
                                     "threadgroup uchar uint ulong ushort using max min select step".split())
  header = "#include <metal_stdlib>", "using namespace metal;"
  spaces = {"global": "device ", "local": "threadgroup ", "private": ""}
  barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);"
  index = "ridx"
  parenthesised = True

  def param(self, t: Type, name: str, written: bool, alone: bool) -> str:
    return f"{'' if written else 'const '}device {t}* {name}"

  def size_param(self, t: Type, name: str) -> str: return f"constant {t}& {name}"

  def head(self, name: str, params: list[str], size: list[int]) -> str:
    places = "uint3 gid [[threadgroup_position_in_grid]]", "uint3 lid [[thread_position_in_threadgroup]]"
    return f"kernel void {name}({', '.join([*params, *places])}) {{"

  def position(self, kind: str, dim: int, size: Dim) -> str: return f"{kind}id.{'xyz'[dim]}"

  def element(self, buffer: str, index: Text) -> str: return f"*({buffer}+{inside(index, SUM)})"

  def atomic(self, how: str, dtype: DType, place: str, *values: str) -> Atomic:
    """See :meth:`Language.atomic`; floats are only added and exchanged, and nothing is compared, which may fail for no reason."""
    if how == "cas" or dtype.short not in ("int", "uint", *(("float",) if how in ("add", "xchg") else ())):
      return super().atomic(how, dtype, place, *values)
    name = "exchange" if how == "xchg" else f"fetch_{how}"
    return f"atomic_{name}_explicit((device atomic_{dtype.short}*)({place}), {values[0]}, memory_order_relaxed)", (), ()
