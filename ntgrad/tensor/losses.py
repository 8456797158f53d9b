"""Losses, attention, and what is random in layers."""
from __future__ import annotations

from ntgrad.checks import checked
from ntgrad.sorting import Sorting


@checked
class Losses(Sorting):
  """Losses, attention, and what is random in layers."""
  __slots__ = ()


__all__ = ["Losses"]
