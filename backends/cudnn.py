"""``torch.backends.cudnn``: what scripts set and ask there. All kernels are ntgrad's own, and the same program always gives the
same bits. Only ``allow_tf32`` changes them: it is ``config.conv_tf32``, which is on where nobody sets it."""
from __future__ import annotations

import sys
from types import ModuleType

from ntgrad.codegen.ir import config

enabled = deterministic = True
benchmark = False           # ``config.beam`` measures kernels where that is wanted


def is_available() -> bool:
  """False."""
  return False


def version() -> None:
  """None: there is no cuDNN."""


class _Module(ModuleType):
  """Of a module, what setting changes."""
  @property
  def allow_tf32(self) -> bool: return bool(config.conv_tf32)
  @allow_tf32.setter
  def allow_tf32(self, value: bool) -> None: config.conv_tf32 = bool(value)


sys.modules[__name__].__class__ = _Module
