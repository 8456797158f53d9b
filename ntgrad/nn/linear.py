"""Products with a matrix of weights."""
from __future__ import annotations

import math

from ntgrad.checks import checked
from ntgrad.codegen.errors import ShapeError
from ntgrad.nn.common import last, size
from ntgrad.nn.module import Module, placed
from ntgrad.tensor import Tensor


@checked
@placed
class Linear(Module):
  """``x @ weight.T + bias``: ``(.., in_features) -> (.., out_features)``.

  ``weight`` is (out_features, in_features), ``bias`` (out_features,) or None, both from U(-k, k) with k = 1/√in_features.
  """
  _said = ("in_features", "out_features", "bias")

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


@checked
@placed
class Bilinear(Module):
  """``x1ᵀ weight[k] x2 + bias[k]`` for each k: ``(.., in1_features), (.., in2_features) -> (.., out_features)``.

  ``weight`` is (out_features, in1_features, in2_features), ``bias`` (out_features,) or None, both from U(-k, k) with
  k = 1/√in1_features.
  """
  _said = ("in1_features", "in2_features", "out_features", "bias")

  def __init__(self, in1_features: int, in2_features: int, out_features: int, bias: bool = True):
    for what, n in (("in1_features", in1_features), ("in2_features", in2_features), ("out_features", out_features)):
      size("Bilinear", what, n)
    self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
    bound = 1 / math.sqrt(in1_features)
    self.weight = Tensor.uniform(out_features, in1_features, in2_features, low=-bound, high=bound, requires_grad=True)
    self.bias: Tensor | None = Tensor.uniform(out_features, low=-bound, high=bound, requires_grad=True) if bias else None

  def __call__(self, input1: Tensor, input2: Tensor) -> Tensor:
    """``(.., in1_features), (.., in2_features) -> (.., out_features)``. Raises ShapeError for other dimensions."""
    last("Bilinear", input1, self.in1_features, "in1_features")
    last("Bilinear", input2, self.in2_features, "in2_features")
    if input1.shape[:-1] != input2.shape[:-1]:
      raise ShapeError(f"nn.Bilinear: inputs of shapes {input1.shape} and {input2.shape}; all but the last sizes must be equal")
    i, j, k = self.in1_features, self.in2_features, self.out_features
    x = input1.dot(self.weight.permute(1, 0, 2).reshape(i, k * j)).reshape(*input1.shape[:-1], k, j)
    out = x.dot(input2.unsqueeze(-1)).squeeze(-1)
    return out if self.bias is None else out + self.bias


__all__ = ["Bilinear", "Linear"]
