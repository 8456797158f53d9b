"""``torch.backends.cuda.matmul``: ``allow_tf32`` is ``config.allow_tf32``; products of 16 bits are summed in float32, whatever is
set here."""
from __future__ import annotations

import sys
from types import ModuleType

from ntgrad.codegen.ir import config

allow_fp16_reduced_precision_reduction = allow_bf16_reduced_precision_reduction = allow_fp16_accumulation = False


class _Matmul(ModuleType):
  @property
  def allow_tf32(self) -> bool: return bool(config.allow_tf32)
  @allow_tf32.setter
  def allow_tf32(self, value: bool) -> None: config.allow_tf32 = bool(value)


sys.modules[__name__].__class__ = _Matmul
