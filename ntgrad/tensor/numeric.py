"""Functions of elements made of others, and reductions beside sums: logarithms, angles, comparisons by name, statistics."""
from __future__ import annotations

from ntgrad.checks import checked
from ntgrad.sorting import Sorting


@checked
class Numeric(Sorting):
  """Functions of elements made of others, and reductions beside sums: logarithms, angles, comparisons by name, statistics."""
  __slots__ = ()


__all__ = ["Numeric"]
