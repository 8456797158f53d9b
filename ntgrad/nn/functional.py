"""What layers compute, as functions: ``functional.cross_entropy(logits, target)`` is ``logits.cross_entropy(target)``.

Each public method of ``Tensor`` is one. Dropout and batch norm go by ``Tensor.training``, as the methods do.
"""
from __future__ import annotations

from typing import Any

from ntgrad.namespace import method, methods


def __getattr__(name: str) -> Any:
  found = method(name)
  if found is None: raise AttributeError(f"module 'ntgrad.nn.functional' has no attribute {name!r}; it has the methods of Tensor")
  globals()[name] = found
  return found


def __dir__() -> list[str]: return methods()
