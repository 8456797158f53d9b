"""Choosing elements: order statistics, sets, searches, scatters and gathers along one dim."""
from __future__ import annotations

from ntgrad.checks import checked
from ntgrad.sorting import Sorting


@checked
class Selecting(Sorting):
  """Choosing elements: order statistics, sets, searches, scatters and gathers along one dim."""
  __slots__ = ()


__all__ = ["Selecting"]
