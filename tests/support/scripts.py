"""Scripts of the repository that are no modules, as modules."""
from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def load(path: str) -> ModuleType:
  """The module that a file makes; ``path`` from the root."""
  spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
  assert spec is not None and spec.loader is not None
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module
