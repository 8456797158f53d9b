"""Products with a matrix of weights."""
from __future__ import annotations

import math

from ntgrad.checks import checked
from ntgrad.nn.common import last, size
from ntgrad.tensor import Tensor


@checked
class Linear:
  """``x @ weight.T + bias``: ``(.., in_features) -> (.., out_features)``.

  ``weight`` is (out_features, in_features), ``bias`` (out_features,) or None, both from U(-k, k) with k = 1/√in_features.
  """
  _room = "nn."

  def __init__(self, in_features: int, out_features: int, bias: bool = True):
    self.in_features, self.out_features = (
      size("Linear", "in_features", in_features),
      size("Linear", "out_features", out_features),
    )
    bound = 1 / math.sqrt(in_features)
    self.weight = Tensor.uniform(out_features, in_features, low=-bound, high=bound, requires_grad=True)
    self.bias: Tensor | None = Tensor.uniform(out_features, low=-bound, high=bound, requires_grad=True) if bias else None

  def __call__(self, x: Tensor) -> Tensor:
    """``(.., in_features) -> (.., out_features)``. Raises ShapeError for another last dimension."""
    last("Linear", x, self.in_features, "in_features")
    return x.linear(self.weight.transpose(0, 1), self.bias)


__all__ = ["Linear"]
