"""ATOMIC in OpenCL C, where the device has no instruction of its own: read, compute, compare and swap, until nobody came
between."""
from __future__ import annotations

from ntgrad.backends.opencl import prelude
from ntgrad.codegen.dtype import DType
from ntgrad.codegen.errors import CompileError

_STORED = {
  "char": "char",
  "uchar": "uchar",
  "short": "short",
  "ushort": "ushort",
  "half": "ushort",
  "bfloat16": "ushort",
  "fp8e4m3": "uchar",
  "fp8e5m2": "uchar",
  "float": "float",
  "long": "long",
  "ulong": "ulong",
  "double": "double",
}
_NARROW = ("half", "bfloat16", "fp8e4m3", "fp8e5m2")


def pragmas(d: DType) -> tuple[str, ...]:
  """What the program needs to say first."""
  return ("#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable",) if d.itemsize == 8 else ()


def source(how: str, d: DType) -> list[tuple[str, str]]:
  """The helper ``atomic_<how>_<dtype>(pointer, value)`` after those that it calls, as (name, text) pairs."""
  if d.short not in _STORED: raise CompileError(f"no atomic operations on {d}")
  stored = _STORED[d.short]
  register = "float" if d.short in _NARROW else stored
  out: list[tuple[str, str]] = []
  new = "old + value"
  if how != "add":
    out += prelude.source(how, register)
    new = f"{how}_{register}(old, value)"
  if d.short in _NARROW:
    out += [*prelude.source(f"{d.short}_to_float", stored), *prelude.source(f"float_to_{d.short}", "float")]
    new = f"float_to_{d.short}_float({new})"
  def old(bits: str) -> str: return f"{d.short}_to_float_{stored}({bits})" if d.short in _NARROW else bits
  name = f"atomic_{how}_{d.short}"
  if d.itemsize >= 4:
    word, swap = ("uint", "atomic_cmpxchg") if d.itemsize == 4 else ("ulong", "atom_cmpxchg")
    text = f"""static void {name}(volatile __global {stored}* p, {register} value) {{
  {word} seen = *(volatile __global {word}*)p, before;
  do {{
    before = seen;
    {register} old = as_{stored}(before);
    seen = {swap}((volatile __global {word}*)p, before, as_{word}({new}));
  }} while (seen != before);
}}"""
  else:  # part of a word
    bits = d.itemsize * 8
    text = f"""static void {name}(volatile __global {stored}* p, {register} value) {{
  volatile __global uint* word = (volatile __global uint*)((size_t)p & ~(size_t)3);
  uint shift = (uint)((size_t)p & 3)*8, mask = {hex((1 << bits) - 1)}u << shift, seen = *word, before;
  do {{
    before = seen;
    {register} old = {old(f'({stored})(before >> shift)')};
    uint next = (u{stored.lstrip('u')})({new});
    seen = atomic_cmpxchg(word, before, (before & ~mask) | next << shift);
  }} while (seen != before);
}}"""
  return [*out, (name, text)]
