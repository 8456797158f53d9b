"""The settings (see ``ntgrad.codegen.config``).

``ntgrad.config`` is the object ``config``. Importing this module would put the module in its place, so the module
behaves as the object.
"""
from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from ntgrad.codegen.config import Config, config


class _Settings(ModuleType):
  def __call__(self, **changes: Any) -> Any: return config(**changes)
  def __getattr__(self, name: str) -> Any: return getattr(config, name)
  def __setattr__(self, name: str, value: Any) -> None:
    if name.startswith("__"): super().__setattr__(name, value)
    else: setattr(config, name, value)


sys.modules[__name__].__class__ = _Settings

__all__ = ["Config", "config"]
