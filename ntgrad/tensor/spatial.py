"""Convolution, pooling, resampling, sampling and normalisation, each in a file of its own, as one part of ``Tensor``."""
from __future__ import annotations

from ntgrad.tensor.convolution import Convolution
from ntgrad.tensor.normalising import Normalising
from ntgrad.tensor.pooling import Pooling
from ntgrad.tensor.resampling import Resampling
from ntgrad.tensor.sampling import Sampling


class Spatial(Convolution, Pooling, Resampling, Sampling, Normalising):
  """Convolution, pooling, resampling, sampling and normalisation."""
  __slots__ = ()


__all__ = ["Spatial"]
