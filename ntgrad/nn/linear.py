"""Products with a matrix of weights."""
from __future__ import annotations

import math

from ntgrad.codegen.ir.errors import ShapeError
from ntgrad.graph.checks import one_width
from ntgrad.tensor import Tensor

from .common import last, leaf, size
from .module import Module, placed


@placed
class Linear(Module):
  """``x @ weight.T + bias``: ``(.., in_features) -> (.., out_features)``.
  ``weight`` is (out_features, in_features), ``bias`` (out_features,) or None, both from U(-k, k) with k = 1/√in_features."""
  _said = ("in_features", "out_features", "bias")

  def __init__(self, in_features: int, out_features: int, bias: bool = True):
    self.in_features, self.out_features = size("Linear", "in_features", in_features), size("Linear", "out_features", out_features)
    bound = 1 / math.sqrt(in_features)
    self.weight = leaf(out_features, in_features, bound=bound)
    self.bias: Tensor | None = leaf(out_features, bound=bound) if bias else None

  def __call__(self, x: Tensor) -> Tensor:
    """``(.., in_features) -> (.., out_features)``. Raises ShapeError for another last dimension."""
    last("Linear", x, self.in_features, "in_features")
    return x.linear(self.weight.transpose(0, 1), self.bias)


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
    self.weight = leaf(out_features, in1_features, in2_features, bound=bound)
    self.bias: Tensor | None = leaf(out_features, bound=bound) if bias else None

  def __call__(self, input1: Tensor, input2: Tensor) -> Tensor:
    """``(.., in1_features), (.., in2_features) -> (.., out_features)``. Raises ShapeError for other dimensions."""
    last("Bilinear", input1, self.in1_features, "in1_features")
    last("Bilinear", input2, self.in2_features, "in2_features")
    if input1.shape[:-1] != input2.shape[:-1]:
      raise ShapeError(f"nn.Bilinear: inputs of shapes {input1.shape} and {input2.shape}; all but the last sizes must be equal")
    return bilinear(input1, input2, self.weight, self.bias)


def bilinear(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
  """``xᵀ weight[k] y + bias[k]`` for each k, of tensors that fit."""
  one_width("bilinear", x, y, weight, bias)
  k, i, j = weight.shape
  out = x.dot(weight.permute(1, 0, 2).reshape(i, k * j)).reshape(*x.shape[:-1], k, j).dot(y.unsqueeze(-1)).squeeze(-1)
  return out if bias is None else out + bias


__all__ = ["Bilinear", "Linear"]
