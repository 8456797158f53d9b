"""Convolution, pooling and resampling over one, two and three dimensions."""
from __future__ import annotations

from ntgrad.checks import checked
from ntgrad.sorting import Sorting


@checked
class Spatial(Sorting):
  """Convolution, pooling and resampling over one, two and three dimensions."""
  __slots__ = ()


__all__ = ["Spatial"]
