"""Declarations of the OpenCL functions that kernels call, to stand before a program in the place of the whole header: 18,000
lines, which PoCL reads before each program, 90 of the 105 ms of building a small one. For a name that is missing here the program
is built again, with the header."""
from __future__ import annotations

import re

from ..cstyle.functions import FLOATS, FUNCTIONS, SIZES

WITHOUT_HEADER = "-D_OPENCL_H_"   # the header's guard: it counts as read

_INTEGERS = "int", "uint", "long", "ulong"
_SCALARS = [base for base in SIZES if base not in ("bool", "half")]
_SPACES = "__global", "__local"
_WIDTHS = "", "2", "3", "4", "8", "16"


def _all() -> dict[str, list[str]]:
  """Declarations of functions for all types that kernels may call them for: a missing one would have arguments converted."""
  out = {f"get_{what}": [f"size_t C get_{what}(uint)"]
         for what in "global_id local_id group_id global_size local_size num_groups".split()}
  out["barrier"] = ["void __attribute__((overloadable, convergent)) barrier(cl_mem_fence_flags)"]
  vectors = [f"{base}{n}" for base in FLOATS for n in _WIDTHS]
  for name, count in FUNCTIONS.items(): out[name] = [f"{t} C {name}({', '.join([t]*count)})" for t in vectors]
  for name in "min", "max": out[name] = [f"{t} C {name}({t}, {t})" for t in _SCALARS]
  for name in "add min max and or xor xchg cmpxchg".split():
    # of 32 bits "atomic_", of 64 "atom_"
    for short, bases in ("atomic", _INTEGERS[:2]), ("atom", _INTEGERS):
      out[f"{short}_{name}"] = [f"{t} F {short}_{name}(volatile {space} {t}*, {', '.join([t]*(1 + (name == 'cmpxchg')))})"
                                for t in bases for space in _SPACES]
  out["printf"] = ["int printf(__constant const char* restrict, ...)"]
  for n in _WIDTHS[1:]:
    out[f"vload{n}"] = [f"{base}{n} P vload{n}(size_t, const {space} {base}*)" for base in _SCALARS for space in _SPACES]
    out[f"vstore{n}"] = [f"void F vstore{n}({base}{n}, size_t, {space} {base}*)" for base in _SCALARS for space in _SPACES]
  return out


_ATTRIBUTES = {"F": "overloadable", "C": "overloadable, const", "P": "overloadable, pure"}
_DECLARED = {
  name: " ".join(re.sub(r" ([FCP]) ", lambda m: f" __attribute__(({_ATTRIBUTES[m[1]]})) ", line) + ";" for line in lines)
  for name, lines in _all().items()}
_CALLS = re.compile(rf"\b({'|'.join(sorted(_DECLARED, key=len, reverse=True))})\s*\(")


def declared(source: str) -> str:
  """A source behind the declarations of the functions that it calls, for a build ``WITHOUT_HEADER``."""
  return "\n".join([*(_DECLARED[name] for name in sorted(set(_CALLS.findall(source)))), "#line 1", source])
