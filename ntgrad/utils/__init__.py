"""``torch.utils``: ``data``, ``checkpoint``."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ntgrad.compat.public import show

if TYPE_CHECKING:
  from . import checkpoint as checkpoint, data as data

_FILES = ("checkpoint", "data")


def __getattr__(name: str) -> Any:
  if name not in _FILES: raise AttributeError(name)
  from importlib import import_module
  return import_module(f"ntgrad.utils.{name}")


__all__ = ["checkpoint", "data"]

show(__name__)
