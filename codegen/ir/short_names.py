"""Modules that people import under a shorter name, as docs/walkthrough.md does: ``from ntgrad.codegen.target import Target``."""
from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_PACKAGE = __name__.removesuffix(".ir.short_names")
SHORT_NAMES = {
  "arrangement": "kernel.arrangement", "bound": "choose.bound", "dtype": "ir.dtype", "errors": "ir.errors",
  "optimize": "choose.cpu", "printing": "explain.printing", "target": "ir.target", "tiles": "passes.tiles", "uop": "ir.uop"}


class Finder:
  """Finds them: the same module has both names."""

  @classmethod
  def find_spec(cls, name: str, *more: Any) -> ModuleSpec | None:
    package, dot, last = name.rpartition(".")
    return ModuleSpec(name, cls) if package == _PACKAGE and last in SHORT_NAMES else None  # type: ignore[arg-type]

  @staticmethod
  def create_module(spec: ModuleSpec) -> None: return None

  @staticmethod
  def exec_module(module: ModuleType) -> None:
    name = module.__name__
    sys.modules[name] = import_module(f"{_PACKAGE}.{SHORT_NAMES[name.rpartition('.')[2]]}")
