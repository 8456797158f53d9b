"""Linear algebra: factorisations, solutions, determinants."""
from __future__ import annotations

from ntgrad.checks import checked
from ntgrad.sorting import Sorting


@checked
class Linalg(Sorting):
  """Linear algebra: factorisations, solutions, determinants."""
  __slots__ = ()


__all__ = ["Linalg"]
