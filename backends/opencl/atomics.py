"""ATOMIC in OpenCL C, where the device has no instruction of its own: read, compute, compare and swap, until nobody came
between."""
from __future__ import annotations

from ntgrad.codegen.ir.dtype import DType
from ntgrad.codegen.kernel.linear import NARROW

from ..cstyle.language import STORED, VALUES


def pragmas(d: DType) -> tuple[str, ...]:
  """What the program needs to say first."""
  return ("#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable",) if d.itemsize == 8 else ()


def source(name: str, how: str, d: DType) -> str:
  """The helper ``name(pointer, value)``, in which calls for the register type of ``d`` are marked with ``@``."""
  register, stored = VALUES[d.name], STORED[d.name]
  new = f"@{how}(old, value)"
  if how == "add": new = "(long)((ulong)old + value)" if register == "long" else "old + value"
  if d in NARROW: new = f"@float_to_{d.short}({new})"
  if d.itemsize >= 4:
    word, swap = ("uint", "atomic_cmpxchg") if d.itemsize == 4 else ("ulong", "atom_cmpxchg")
    return f"""static void {name}(volatile __global {stored}* p, {register} value) {{
  {word} seen = *(volatile __global {word}*)p, before;
  do {{
    before = seen;
    {register} old = as_{stored}(before);
    seen = {swap}((volatile __global {word}*)p, before, as_{word}({new}));
  }} while (seen != before);
}}"""
  # part of a word
  old = f"({stored})(before >> shift)"
  if d in NARROW: old = f"@{d.short}_to_float:{stored}({old})"
  return f"""static void {name}(volatile __global {stored}* p, {register} value) {{
  volatile __global uint* word = (volatile __global uint*)((size_t)p & ~(size_t)3);
  uint shift = (uint)((size_t)p & 3)*8, mask = {hex((1 << 8*d.itemsize) - 1)}u << shift, seen = *word, before;
  do {{
    before = seen;
    {register} old = {old};
    uint next = (u{stored.lstrip('u')})({new});
    seen = atomic_cmpxchg(word, before, (before & ~mask) | next << shift);
  }} while (seen != before);
}}"""
