"""A batch norm as part of the layer before it, for use after training."""
from __future__ import annotations

import copy
from typing import Any

from ntgrad.codegen.ir import ArgumentError, ShapeError
from ntgrad.compat.public import show
from ntgrad.graph import checked, no_grad
from ntgrad.nn.module import Module, Parameter
from ntgrad.tensor import Tensor

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]


@checked
def fuse_conv_bn_weights(conv_w: Tensor, conv_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Tensor | None,
                         bn_b: Tensor | None, transpose: bool = False) -> tuple[Tensor, Tensor]:
  """The weight (out, in, ..), with ``transpose`` (in, out, ..), and bias (out,) of a convolution that does what it and a batch
  norm do: of that running mean and variance, eps, weight and bias, (out,). Raises ShapeError."""
  if conv_w.ndim < 2: raise ShapeError(f"fuse: a weight of shape {conv_w.shape}; it has at least 2 dimensions")
  with no_grad():
    factor = (bn_rv + bn_eps).rsqrt() * (1.0 if bn_w is None else bn_w)
    shape = [1] * conv_w.ndim
    shape[int(transpose)] = -1
    bias = ((0.0 if conv_b is None else conv_b) - bn_rm) * factor + (0.0 if bn_b is None else bn_b)
    return (Parameter((conv_w * factor.reshape(shape)).cast(conv_w.dtype), bool(conv_w.requires_grad)),
            Parameter(bias.cast(conv_w.dtype), bool(conv_w.requires_grad)))


@checked
def fuse_linear_bn_weights(linear_w: Tensor, linear_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float,
                           bn_w: Tensor | None, bn_b: Tensor | None) -> tuple[Tensor, Tensor]:
  """:func:`fuse_conv_bn_weights` of a linear layer's weight (out, in). Raises ShapeError."""
  return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


@checked
def fuse_conv_bn_eval(conv: Module, bn: Module, transpose: bool = False) -> Module:
  """A copy of a convolution that does what it and the batch norm behind it do in use. ``transpose``: of a transposed one. Raises
  ArgumentError while one of them is in training, or the norm has no running statistics."""
  b: Any = bn
  if conv.training or bn.training: raise ArgumentError("fuse: a layer or a batch norm in training; call eval() on both first")
  if not getattr(b, "track_running_stats", False): raise ArgumentError(f"fuse: {type(bn).__name__} has no running statistics")
  a: Any = copy.deepcopy(conv)
  a.weight, a.bias = fuse_conv_bn_weights(a.weight, a.bias, b.running_mean, b.running_var, b.eps, b.weight, b.bias, transpose)
  return a


@checked
def fuse_linear_bn_eval(linear: Module, bn: Module) -> Module:
  """:func:`fuse_conv_bn_eval` of a linear layer. Raises ArgumentError for a batch norm of another size too."""
  features, norms = (getattr(m, name, None) for m, name in ((linear, "out_features"), (bn, "sz")))
  if norms not in (1, features): raise ArgumentError(f"fuse: {features} features, a batch norm of {norms}; they must be equal")
  return fuse_conv_bn_eval(linear, bn)


show(__name__)
