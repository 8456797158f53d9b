"""OpenCL C. PoCL has no ``cl_khr_fp16``: float16 in memory is read and written by helper functions."""
from __future__ import annotations

from dataclasses import replace
from typing import Sequence

from ntgrad.codegen.index.sizes import Dim
from ntgrad.codegen.ir import DType, Ops, Target, UOp
from ntgrad.codegen.ir.config import config

from ..cstyle.kernel import CStyleRenderer
from ..cstyle.language import Atomic
from . import atomics, mathlib, prelude  # noqa: F401  (mathlib's helpers are found by name)

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

  def atomic(self, how: str, dtype: DType, place: str, value: str) -> Atomic:
    """See :meth:`Language.atomic`; ``atomics`` has what the device has not."""
    if dtype.kind == "b": return super().atomic(how, dtype, place, value)
    call = f"atomic_{how}_{dtype.short}"
    if dtype.short in ("int", "uint"): return f"atomic_{how}({place}, {value})", (), ()
    text, needs = self.library.resolve(atomics.source(call, how, dtype), self.value_type(dtype))
    return f"{call}({place}, {value})", (*needs, (call, text)), atomics.pragmas(dtype)
