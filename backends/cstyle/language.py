"""What languages in C's style write differently. A renderer is a :class:`Language` that says so."""
from __future__ import annotations

import math
from typing import Sequence

from ntgrad.codegen.index import Dim
from ntgrad.codegen.ir import ATOM, SHIFT, SUM, UNARY, CompileError, DType, Text, UOp, dtypes, held, signs
from ntgrad.codegen.kernel import NARROW

from ..base import Renderer
from ..writer import float_text, head_text
from .functions import Library, Source, Type

# the type of a dtype's values, and of its elements in memory, as Type.base
VALUES = {d.name: "float" if d in NARROW else d.short for d in dtypes.numbers}
STORED = VALUES | {"bool": "uchar"} | {d.name: "ushort" if d.itemsize == 2 else "uchar" for d in NARROW}

KEYWORDS = frozenset("""
auto bool break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while""".split())

# how tightly C's operators bind that are looser than a shift, and those of two values
LESS, EQUAL, AND, XOR, OR, LAND, LOR, COND = range(SHIFT + 1, SHIFT + 9)
C = signs("MUL * DIV / IDIV / MOD %", "ADD + SUB -", "SHL << SHR >>", "CMPLT < CMPLE <=", "CMPEQ == CMPNE !=", "AND &",
          "XOR ^", "OR |", spaced=SUM)

Atomic = tuple[str, Source, tuple[str, ...]]   # an expression, helpers, lines for the head of the source


class Language(Renderer):
  """A language, and the machine that kernels are for. What a class does not say is as it stands here."""
  name: str                                               # in messages
  library: Library                                        # its functions
  type = Type                                             # how it writes types
  widths: Sequence[int] = (1,)                            # of its vectors, which are written as OpenCL C has them
  values = VALUES                                         # the types of values by dtypes; others are refused
  stored = STORED                                         # the types of elements in memory
  suffixes = {"uint": "u", "long": "L", "ulong": "uL"}    # of literals
  # what no kernel can be called, nor what a helper is called; None where the compiler gives kernels names of its own
  reserved: frozenset[str] | None = KEYWORDS
  header: Sequence[str] = ()                              # a source's first lines
  spaces = {"global": "", "local": "", "private": ""}     # what arrays and pointers to them begin with
  aligned = ""                                            # what declarations of arrays end with
  barrier = ""                                            # the statement that waits for the other work-items of a group
  printing: tuple[str, ...] | None = None                 # the head of a source that calls printf; None where there is none
  serial = False                                          # one program runs after another, each with one work-item
  index = "i"                                             # names of loops' indices begin with it
  parenthesised = False                                   # every operation in parentheses, and no blanks
  streams = False                                         # has stores past the cache
  offsets = False                                         # where a param begins in its memory is a parameter of its own, in bytes

  # ---- types and literals
  def value_type(self, dtype: DType) -> Type:
    """The C type that holds a value of ``dtype``. Raises CompileError where the language has none."""
    if dtype.count not in self.widths:
      raise CompileError(f"{self.name} has no vectors of {dtype.count} elements ({dtype}); widths: "
                         f"{', '.join(map(str, self.widths[1:])) or 'none'}")
    if dtype.name not in self.values:
      lowered = "index dtypes must be lowered to int32 or int64 before rendering"
      raise CompileError(f"{self.name} has no dtype {dtype}; "
                         f"{lowered if dtype.name == 'index' else 'dtypes: ' + ', '.join(self.values)}")
    return self.type("int" if dtype.kind == "b" and dtype.count > 1 else self.values[dtype.name], dtype.count)

  def stored_type(self, dtype: DType) -> Type:
    """The C type that memory has for elements of ``dtype``."""
    self.value_type(dtype)
    return self.type(self.stored[dtype.name], dtype.count)

  def constant(self, dtype: DType, value: float) -> Text:
    """A literal; of a vector, the number in all its elements."""
    t = self.value_type(dtype)
    if t.n > 1: return f"({t})({-int(value) if dtype.kind == 'b' else self.constant(dtype.scalar(), value)[0]})", ATOM
    if dtype.kind == "b": return ("true" if value else "false"), ATOM
    if dtype.kind == "f":
      value = held(value, dtype)
      if not math.isfinite(value):   # these names are floats
        text = "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
        if dtype is dtypes.float64: text = f"({t}){text}"
        return text, ATOM if text[0].isalpha() else UNARY
      text, prec = float_text(value, dtype)
      return (text if dtype is dtypes.float64 else f"{text}f"), prec
    value = int(value)
    suffix = self.suffixes.get(t.base, "")
    least = dtype.kind == "i" and dtype.itemsize >= 4 and value == dtypes.min(dtype)
    if least: return f"(-{-value - 1}{suffix} - 1)", ATOM  # C reads the number before the sign
    return f"{value}{suffix}", UNARY if value < 0 else ATOM

  # ---- the kernel
  def param(self, t: Type, name: str, written: bool, alone: bool) -> str:
    """The declaration of a buffer; ``alone``: no other pointer reaches what is written through this one."""
    return f"{self.spaces['global']}{'' if written else 'const '}{t}* {'restrict ' if alone else ''}{name}"

  def size_param(self, t: Type, name: str) -> str: return f"const {t} {name}"

  def head(self, name: str, params: list[str], size: list[int]) -> str:
    """What stands before the body, with its brace; ``size`` is that of a group."""
    return head_text(f"void {name}", params, " {")

  def begin(self, uops: Sequence[UOp]) -> list[str]:
    """The first statements of the body. A block that one of them opens, by a brace at its end, goes on to the kernel's end."""
    return []

  def position(self, kind: str, dim: int, size: Dim) -> str:
    """Which of ``size`` the program is in the grid ("g"), or the work-item in its group ("l"): an expression, or ``gidx0``,
    ``lidx0``, .. where a parameter or loop of this name says it."""
    raise NotImplementedError

  def element(self, buffer: str, index: Text) -> str: return f"{buffer}[{index[0]}]"   # the C lvalue of an element

  def atomic(self, how: str, dtype: DType, place: str, *values: str) -> Atomic:
    """What does ``*place = how(*place, value)`` in one step, and gives what was there; "cas" has what it compares with before the
    value. Raises CompileError."""
    raise CompileError(f"{self.name} has no atomic {how} of {dtype}")
