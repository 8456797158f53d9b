"""What belongs to layers but is none, where PyTorch has it: ``nn.utils.checkpoint``, ``.data``, ``.clip_grad_norm_``."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ntgrad.compat.public import show

from .gradients import clip_grad_norm_, clip_grad_value_, get_total_norm, parameters_to_vector, vector_to_parameters

if TYPE_CHECKING:
  from . import checkpoint as checkpoint, data as data

_FILES = ("checkpoint", "data")


def __getattr__(name: str) -> Any:
  if name not in _FILES: raise AttributeError(name)
  from importlib import import_module
  return import_module(f"ntgrad.nn.utils.{name}")


__all__ = ["clip_grad_norm_", "clip_grad_value_", "get_total_norm", "parameters_to_vector", "vector_to_parameters"]


def __dir__() -> list[str]: return [*_FILES, *__all__]

show(__name__)
