"""Parametrizations that PyTorch has: weight normalisation."""
from __future__ import annotations

from ntgrad.compat.public import show
from ntgrad.graph import checked
from ntgrad.nn.module import Module
from ntgrad.tensor import Tensor

from .parametrize import register_parametrization
from .weights import norm_beside, normed

__all__ = ["weight_norm"]


class _WeightNorm(Module):
  def __init__(self, dim: int | None) -> None:
    super().__init__()
    self.dim = dim
  def __call__(self, weight_g: Tensor, weight_v: Tensor) -> Tensor: return normed(weight_v, weight_g, self.dim)
  def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]: return norm_beside(weight, self.dim), weight


@checked
def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
  """:func:`nn.utils.weight_norm` as a parametrization: ``parametrizations.<name>.original0`` are the norms, ``original1`` what
  they are of. Raises ArgumentError, AxisError."""
  return register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


show(__name__)
