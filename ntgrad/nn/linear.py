"""Products with a matrix of weights; and the adaptive softmax, where frequent classes have a product of their own, and rare ones
lie in clusters of smaller products."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ntgrad.codegen.ir import ArgumentError, ShapeError
from ntgrad.core import real_number
from ntgrad.graph import of_kind, one_width, text
from ntgrad.tensor import Tensor

from .common import last, leaf, size
from .containers import ModuleList, Sequential
from .module import Module, placed


@placed
class Linear(Module):
  """``x @ weight.T + bias``: ``(.., in_features) -> (.., out_features)``.
  ``weight`` is (out_features, in_features), ``bias`` (out_features,) or None, both from U(-k, k) with k = 1/√in_features."""
  _said = "in_features out_features bias"

  def __init__(self, in_features: int, out_features: int, bias: bool = True):
    self.in_features, self.out_features = size("Linear", "in_features", in_features), size("Linear", "out_features", out_features)
    bound = 1 / math.sqrt(in_features)
    self.weight = leaf(out_features, in_features, bound=bound)
    self.bias: Tensor | None = leaf(out_features, bound=bound) if bias else None

  def __call__(self, x: Tensor) -> Tensor:
    """``(.., in_features) -> (.., out_features)``. Raises ShapeError for another last dimension."""
    last("Linear", x, self.in_features, "in_features")
    return x._projected(self.weight, self.bias)


@placed
class Bilinear(Module):
  """``x1ᵀ weight[k] x2 + bias[k]`` for each k: ``(.., in1_features), (.., in2_features) -> (.., out_features)``.

  ``weight`` is (out_features, in1_features, in2_features), ``bias`` (out_features,) or None, both from U(-k, k) with
  k = 1/√in1_features.
  """
  _said = "in1_features in2_features out_features bias"

  def __init__(self, in1_features: int, in2_features: int, out_features: int, bias: bool = True):
    for what, n in ("in1_features", in1_features), ("in2_features", in2_features), ("out_features", out_features):
      size("Bilinear", what, n)
    self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
    bound = 1 / math.sqrt(in1_features)
    self.weight = leaf(out_features, in1_features, in2_features, bound=bound)
    self.bias: Tensor | None = leaf(out_features, bound=bound) if bias else None

  def __call__(self, input1: Tensor, input2: Tensor) -> Tensor:
    """``(.., in1_features), (.., in2_features) -> (.., out_features)``. Raises ShapeError for other dimensions."""
    return bilinear("nn.Bilinear", input1, input2, self.weight, self.bias)


def bilinear(name: str, x: Tensor, y: Any, weight: Any, bias: Any) -> Tensor:
  """``xᵀ weight[k] y + bias[k]`` for each k. Raises ShapeError, DTypeError."""
  if x.ndim < 1 or weight.ndim != 3 or x.shape[:-1] != y.shape[:-1] or weight.shape[1:] != (*x.shape[-1:], *y.shape[-1:]):
    raise ShapeError(f"{name}: inputs {text(x)} and {text(y)} with weight {text(weight)}; give (.., i), (.., j) and (out, i, j)")
  one_width(name, x, y, weight, bias)
  k, i, j = weight.shape
  out = x.dot(weight.permute(1, 0, 2).reshape(i, k * j)).reshape(*x.shape[:-1], k, j).dot(y.unsqueeze(-1)).squeeze(-1)
  return out if bias is None else out + bias


class ASMoutput(NamedTuple):
  """``output``: the log probability of each row's class, ``loss``: the mean of their negatives."""
  output: Tensor
  loss: Tensor


@placed
class AdaptiveLogSoftmaxWithLoss(Module):
  """Log probabilities of many classes, sorted from frequent to rare (https://arxiv.org/abs/1609.04309).

  Classes below ``cutoffs[0]`` and one class for each cluster are the ``head``; cluster i has the classes from cutoffs[i] to
  cutoffs[i + 1], the last one up to ``n_classes``, computed from ``in_features / div_value ** (i + 1)`` features. Parameters have
  PyTorch's names: ``head.weight``, ``tail.0.0.weight``, ``tail.0.1.weight``. All clusters are computed for all rows.
  """
  _said = "in_features n_classes cutoffs div_value"

  def __init__(self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0, head_bias: bool = False):
    super().__init__()
    name = "AdaptiveLogSoftmaxWithLoss"
    size(name, "in_features", in_features), size(name, "n_classes", n_classes)
    given = list(cutoffs)
    if not given or given != sorted(set(given)) or given[0] < 1 or given[-1] >= n_classes:
      raise ArgumentError(f"nn.{name}: cutoffs {tuple(given)}; they must be whole numbers in order, each once, from 1 to "
                          f"n_classes - 1 = {n_classes - 1}")
    if not 0 < real_number(f"nn.{name}", "div_value", div_value):
      raise ArgumentError(f"nn.{name}: div_value {div_value}; it must be greater than 0")
    self.in_features, self.n_classes, self.div_value, self.head_bias = in_features, n_classes, div_value, head_bias
    self.cutoffs = [*given, n_classes]
    self.shortlist_size, self.n_clusters = given[0], len(given)
    self.head_size = self.shortlist_size + self.n_clusters
    self.head = Linear(in_features, self.head_size, head_bias)
    self.tail = ModuleList()
    for i in range(self.n_clusters):
      inner = size(name, f"in_features // div_value ** {i + 1}", int(in_features // div_value ** (i + 1)))
      self.tail.append(Sequential(Linear(in_features, inner, False), Linear(inner, self.cutoffs[i + 1] - self.cutoffs[i], False)))

  def log_prob(self, input: Tensor) -> Tensor:
    """``(n, in_features) -> (n, n_classes)``, or without n: logarithms of probabilities. Raises ShapeError."""
    last("AdaptiveLogSoftmaxWithLoss", input, self.in_features, "in_features")
    head = self.head(input).log_softmax(-1)
    k = self.shortlist_size
    parts = [cluster(input).log_softmax(-1) + head[..., k + i:k + i + 1] for i, cluster in enumerate(self.tail)]
    return head[..., :k].cat(*parts, dim=-1)

  def predict(self, input: Tensor) -> Tensor:
    """``(n, in_features) -> (n,)``, int32: the class that is most probable. Raises ShapeError."""
    return self.log_prob(input).argmax(-1)

  def __call__(self, input: Tensor, target: Tensor) -> ASMoutput:
    """``(output, loss)`` of inputs (n, in_features) and class indices (n,), or (in_features,) and (). Raises ShapeError,
    DTypeError, IndexOutOfRangeError."""
    name = "nn.AdaptiveLogSoftmaxWithLoss"
    if input.ndim not in (1, 2) or target.shape != input.shape[:-1]:
      raise ShapeError(f"{name}: input {input.shape} and target {target.shape}; give (n, {self.in_features}) and (n,)")
    of_kind("iu", name, "a target", target, "it takes class indices, ints")
    each: Any = self.log_prob(input).nll_loss(target, reduction="none")
    return ASMoutput(-each, each.mean())
