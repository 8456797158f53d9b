"""The helper functions of OpenCL C: those of every language in C's style, and how PoCL's builtin functions are called.

PoCL calls every OpenCL builtin (``exp``, ``max``, ``vload8``, ``convert_int8``) out of line, which spills all vector registers
at the call. So what hot loops need is written here and in ``mathlib`` with operators and compiler builtins, which inline and
vectorise.
"""
from __future__ import annotations

from typing import Callable, Mapping

from ..cstyle.functions import COMMON, FLOATS, FUNCTIONS, Library, Templates, Type, helper, library

TEMPLATES: Templates = dict(COMMON)

# ---- the device's builtin functions: name -> number of arguments. PoCL compiles kernels and its library for CPUs that may differ
# (a new CPU with AVX-512, which its LLVM does not know, gets AVX2 kernels and AVX-512 functions). They agree on how vectors are
# handed over only up to the kernel's registers: a function of anything wider gives wrong numbers or ends the process. So wider
# vectors go in pieces, and so do those that ``selftest`` found wrong.
ROUNDINGS = "floor", "ceil", "trunc", "rint"
LIBRARY = {name: args for name, args in FUNCTIONS.items() if name not in ROUNDINGS}
_ALL = 128                                # bits that every CPU's vector registers have
_SOME = {256: "__AVX__"}                  # wider ones, and what the compiler defines where its code has them


Bad = Callable[[str, str], frozenset[int]]   # (function, element) → the widths of vectors at which the driver has it wrong


def trusted(name: str, base: str) -> frozenset[int]:
  """The answer where no driver has been tested: all is right."""
  return frozenset()


def registers(t: Type) -> str | None:
  """What the compiler defines where its code has registers for such a vector; "" where that is always so, None where never."""
  return "" if t.n == 1 or t.bits_wide <= _ALL else _SOME.get(t.bits_wide)


def either(macro: str | None, hard: str, soft: str) -> str:
  """``hard`` where the compiler defines ``macro``, else ``soft``."""
  return f"#ifdef {macro}\n{hard}\n#else\n{soft.strip()}\n#endif" if macro else soft


def _pieces(name: str, t: Type, bad: Bad) -> str:
  """A helper that calls a builtin function with vectors that fit the device's registers, and for which it is right."""
  args = "ab"[:LIBRARY[name]]
  parts = [f"s{i}" for i in range(3)] if t.n == 3 else ["lo", "hi"]
  part = Type(t.base, 1 if t.n == 3 else t.n//2)
  head = f"static {t} {name}_{t}({', '.join(f'{t} {a}' for a in args)}) "
  split = f"{head}{{ return ({t})({', '.join(library(name, part, *(f'{a}.{p}' for a in args)) for p in parts)}); }}"
  return split if t.n in bad(name, t.base) else either(registers(t), f"{head}{{ return {name}({', '.join(args)}); }}", split)


class OpenCLLibrary(Library):
  """What a device has of its own, where ``bad`` does not say that it is wrong; for CPUs this folder's functions come first."""
  templates = TEMPLATES

  def __init__(self, bad: Bad = trusted, native: bool = False):
    super().__init__()
    self.bad, self.native = bad, native   # native: a GPU, whose functions are fast

  def builtin(self, name: str, t: Type) -> str | None:
    if t.base not in FLOATS or (self.has(name, t) and not self.native): return None
    if name not in LIBRARY: return name if name in ROUNDINGS else None
    return name if registers(t) == "" and (t.n == 1 or t.n not in self.bad(name, t.base)) else None

  def template(self, name: str, t: Type) -> str:
    """See :meth:`Library.template`; a device's function of vectors too wide for it takes them in pieces."""
    return super().template(name, t) if self.has(name, t) or name not in LIBRARY else _pieces(name, t, self.bad)


# ---- float16 in memory: a hardware instruction does four or eight
@helper(TEMPLATES)
def _half_to_float(t: Type) -> str:
  hard = {1: "as_float4(__builtin_ia32_vcvtph2ps((short8)(as_short(x)))).s0",
          4: "__builtin_ia32_vcvtph2ps(as_short8((ushort8)(x, x)))", 8: "__builtin_ia32_vcvtph2ps256(as_short8(x))",
          16: "(float16)(@half_to_float:ushort8(x.lo), @half_to_float:ushort8(x.hi))"}
  return _by_hardware("half_to_float", "float", t, hard)


@helper(TEMPLATES)
def _float_to_half(t: Type) -> str:
  hard = {1: "as_ushort8(__builtin_ia32_vcvtps2ph((float4)(x), 0)).s0", 4: "as_ushort8(__builtin_ia32_vcvtps2ph(x, 0)).lo",
          8: "as_ushort8(__builtin_ia32_vcvtps2ph256(x, 0))",
          16: "(ushort16)(@float_to_half:float8(x.lo), @float_to_half:float8(x.hi))"}
  return _by_hardware("float_to_half", "ushort", t, hard)


def _by_hardware(name: str, to: str, t: Type, hard: Mapping[int, str]) -> str:
  soft = COMMON[name][0](t)
  return either("__F16C__", f"static {t.of(to)} {name}_{t}({t} x) {{ return {hard[t.n]}; }}", soft) if t.n in hard else soft
