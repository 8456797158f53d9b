"""The settings (see ``ntgrad.codegen.ir.config``).

``ntgrad.config`` is the object ``config``. Importing this module would put the module in its place, so the module
behaves as the object.
"""
from __future__ import annotations

import sys as _sys
from dataclasses import fields as _fields
from types import ModuleType as _ModuleType
from typing import Any as _Any

from ntgrad.codegen.ir.config import Settings as Config, config


def _field(name: str) -> property:
  return property(lambda self: getattr(config, name), lambda self, value: setattr(config, name, value))


class _Settings(_ModuleType):
  locals().update((each.name, _field(each.name)) for each in _fields(Config))   # as pytest's monkeypatch needs it to put one back

  def __call__(self, **changes: _Any) -> _Any: return config(**changes)
  def __getattr__(self, name: str) -> _Any: return getattr(config, name)
  def __setattr__(self, name: str, value: _Any) -> None:
    if name.startswith("__"): super().__setattr__(name, value)
    else: setattr(config, name, value)


del annotations, _field
_sys.modules[__name__].__class__ = _Settings

__all__ = ["Config", "config"]
