"""OpenCL C. PoCL has no ``cl_khr_fp16``: float16 in memory is read and written by helper functions."""
from __future__ import annotations

from dataclasses import replace
from typing import Sequence

from ntgrad.codegen.index import Dim
from ntgrad.codegen.ir import DType, Ops, Target, UOp, config
from ntgrad.codegen.kernel import NARROW

from ..cstyle.kernel import CStyleRenderer
from ..cstyle.language import STORED, VALUES, Atomic
from . import prelude

DEFAULT_TARGET = Target("opencl", lanes=8, registers=16, cores=2, long_index=True)   # where nothing says otherwise


def pretended(machine: Target) -> Target:
  """A CPU's target with what ``config.vector_bits`` and ``config.cores`` say in place of the machine's."""
  lanes = config.vector_bits // 32 or machine.lanes
  # AVX-512 has 32 registers of 16 floats, AVX2 16 of 8
  return replace(machine, lanes=lanes, registers=32 if lanes >= 16 else 16, cores=config.cores or machine.cores)


class OpenCLRenderer(CStyleRenderer):
  """OpenCL C 1.2 for a target, the settings' own where none is given; ``bad`` says which functions the driver has wrong."""
  name = "OpenCL"
  reserved = None   # see Unit.names
  widths = 1, 2, 3, 4, 8, 16
  spaces = {"global": "__global ", "local": "__local ", "private": ""}
  aligned = " __attribute__((aligned(64)))"
  offsets = True
  printing = ()
  barrier = "barrier(CLK_LOCAL_MEM_FENCE);"

  def __init__(self, target: Target | None = None, bad: prelude.Bad = prelude.trusted):
    self.target = target or pretended(DEFAULT_TARGET)
    self.library, self.streams = prelude.OpenCLLibrary(bad, self.target.locals), not self.target.locals

  def head(self, name: str, params: list[str], size: list[int]) -> str:
    return f"__kernel __attribute__((reqd_work_group_size({size[0]}, {size[1]}, {size[2]})))\n{super().head(name, params, size)}"

  def begin(self, uops: Sequence[UOp]) -> list[str]:
    """GPUs' compilers fuse products and sums: only sums over many elements gain by it, other numbers keep numpy's bits."""
    return [] if not self.target.locals or any(u.op is Ops.LOOP for u in uops) else ["#pragma OPENCL FP_CONTRACT OFF"]

  def position(self, kind: str, dim: int, size: Dim) -> str: return f"{'get_group_id' if kind == 'g' else 'get_local_id'}({dim})"

  def atomic(self, how: str, dtype: DType, place: str, *values: str) -> Atomic:
    if dtype.kind == "b": return super().atomic(how, dtype, place, *values)
    call, given = f"atomic_{how}_{dtype.short}", ", ".join([place, *values])
    if dtype.short in ("int", "uint"): return f"atomic_{'cmpxchg' if how == 'cas' else how}({given})", (), ()
    text, needs = self.library.resolve(_swapping(call, how, dtype), self.value_type(dtype))
    enable = ("#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable",) if dtype.itemsize == 8 else ()
    return f"{call}({given})", (*needs, (call, text)), enable


def _swapping(name: str, how: str, d: DType) -> str:
  """The helper ``name(pointer, value)`` for an atomic operation that the device has not: read, compute, compare and swap, until
  nobody came between; gives what was there. Calls for the register type of ``d`` are marked with ``@``."""
  register, stored = VALUES[d.name], STORED[d.name]
  new = f"@{how}(old, value)"
  if how == "add": new = "(long)((ulong)old + value)" if register == "long" else "old + value"
  elif how == "xchg": new = "value"
  elif how == "cas": new = "old == compared ? value : old"
  elif how not in ("max", "min"): new = f"old {'&|^'[('and', 'or', 'xor').index(how)]} value"
  given = f"{register} compared, {register} value" if how == "cas" else f"{register} value"
  if d in NARROW: new = f"@float_to_{d.short}({new})"
  if d.itemsize >= 4:
    word, swap = ("uint", "atomic_cmpxchg") if d.itemsize == 4 else ("ulong", "atom_cmpxchg")
    return f"""static {register} {name}(volatile __global {stored}* p, {given}) {{
  {word} seen = *(volatile __global {word}*)p, before;
  {register} old;
  do {{
    before = seen;
    old = as_{stored}(before);
    seen = {swap}((volatile __global {word}*)p, before, as_{word}({new}));
  }} while (seen != before);
  return old;
}}"""
  # part of a word
  old = f"({stored})(before >> shift)"
  if d in NARROW: old = f"@{d.short}_to_float:{stored}({old})"
  return f"""static {register} {name}(volatile __global {stored}* p, {given}) {{
  volatile __global uint* word = (volatile __global uint*)((size_t)p & ~(size_t)3);
  uint shift = (uint)((size_t)p & 3)*8, mask = {hex((1 << 8*d.itemsize) - 1)}u << shift, seen = *word, before;
  {register} old;
  do {{
    before = seen;
    old = {old};
    uint next = (u{stored.lstrip('u')})({new});
    seen = atomic_cmpxchg(word, before, (before & ~mask) | next << shift);
  }} while (seen != before);
  return old;
}}"""
