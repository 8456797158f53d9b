"""Plain C: C11 and its standard library, text only. A kernel is a function that runs its programs one after another:

  void name(<elements>* data0, const <elements>* data1, …, const int32_t N, …, const int* grid)

takes a buffer for each parameter, in slot order, a number for each of ``ProgramSpec.sizes``, and the number of programs in each
dimension of the grid. Values are single numbers; float16, bfloat16 and the fp8 dtypes are stored as integers of their size, bool
as a byte. Compile it without options that change what floats mean (``-ffast-math``); ``-std=c11`` keeps gcc from fusing products
and sums.
"""
from __future__ import annotations

from typing import Sequence

from ntgrad.codegen.index import Dim
from ntgrad.codegen.ir import CompileError, Ops, Target, UOp, dtypes

from .cstyle.functions import COMMON, FLOATS, FUNCTIONS, Library, Templates, Type, helper
from .cstyle.kernel import CStyleRenderer
from .cstyle.language import KEYWORDS

TEMPLATES: Templates = dict(COMMON)


class CType(Type):
  """A type of C: integers of a known size are called as <stdint.h> has them."""

  names = {d.short: f"{d.name}_t" for d in dtypes.ints}

  def bits(self, base: str, x: str) -> str:
    """See :meth:`Type.bits`; the call of a helper between an integer and a float."""
    return f"@as:{base}({x})" if self.base in FLOATS or base in FLOATS else f"({self.of(base)})({x})"


@helper(TEMPLATES, "int", "uint", "long", "ulong", *FLOATS)
def _as(t: Type) -> str:
  other = t.of({"float": "uint", "double": "ulong"}.get(t.base, FLOATS[t.size == 8]))
  return f"static {t} as_{t}({other} x) {{ {t} y; memcpy(&y, &x, sizeof y); return y; }}"


class CLibrary(Library):
  """<math.h>."""
  templates = TEMPLATES
  names = {**{f: f for f in FUNCTIONS}, "abs": "fabs"}

  def builtin(self, name: str, t: Type) -> str | None:
    found = super().builtin(name, t)
    return f"{found}f" if found and t.base == "float" else found


class CRenderer(CStyleRenderer):
  """C11. Programs run one after another, so an atomic operation is a plain one."""
  name = "C"
  target = Target("c")
  library = CLibrary()
  type = CType
  suffixes = {"uint": "u", "long": "LL", "ulong": "uLL"}
  reserved = KEYWORDS.union(FUNCTIONS, [f"{name}f" for name in FUNCTIONS], "main abs fabs memcpy".split())
  header = tuple(f"#include <{name}.h>" for name in ("math", "stdbool", "stdint", "string"))
  serial = True
  printing = "#include <stdio.h>",

  def head(self, name: str, params: list[str], size: list[int]) -> str:
    return super().head(name, [*params, "const int* grid"], size)

  def begin(self, uops: Sequence[UOp]) -> list[str]:
    """The loops over the grid."""
    types = {u.arg[1]: u.dtype for u in uops if u.op is Ops.SPECIAL and u.arg[0] == "g"}
    # programs that differ in nothing do the same: how many there are counts where they add up or print
    if any(u.op in (Ops.ATOMIC, Ops.PRINT) for u in uops): types = {**dict.fromkeys(range(3), dtypes.int32), **types}
    return [
      f"for ({self.value_type(types[d])} gidx{d} = 0; gidx{d} < grid[{d}]; gidx{d}++) {{" for d in sorted(types, reverse=True)]

  def position(self, kind: str, dim: int, size: Dim) -> str:
    """See :meth:`Language.position`. Raises CompileError for groups of several work-items."""
    if kind == "g": return f"gidx{dim}"
    if size == 1: return "0"
    raise CompileError(f"C runs one work-item after another: a group of {size} has to be 1; leave out the Opt 'local'")
