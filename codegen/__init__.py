"""From a kernel's index form to linear UOps: dtypes, the IR, views, arrangements, Opts, the linearizer. Knows no device."""
from __future__ import annotations

if __name__ != "ntgrad.codegen":
  raise ImportError("import this package as ntgrad.codegen (the bare name would load a second copy)")

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from .index import view as view  # its rules give UOps their shapes

# modules that people import under a shorter name, as docs/walkthrough.md does: ``from ntgrad.codegen.target import Target``
SHORT = {"arrangement": "kernel.arrangement", "bound": "choose.bound", "optimize": "choose.optimize",
         "printing": "explain.printing", "target": "ir.target", "tiles": "passes.tiles", "uop": "ir.uop"}


class _Short:
  """Finds these modules: the same module under both names."""

  @classmethod
  def find_spec(cls, name: str, *more: Any) -> ModuleSpec | None:
    package, dot, last = name.rpartition(".")
    return ModuleSpec(name, cls) if package == __name__ and last in SHORT else None  # type: ignore[arg-type]

  @staticmethod
  def create_module(spec: ModuleSpec) -> None: return None

  @staticmethod
  def exec_module(module: ModuleType) -> None:
    name = module.__name__
    sys.modules[name] = import_module(f"{__name__}.{SHORT[name.rpartition('.')[2]]}")


sys.meta_path.append(_Short)
