"""Normalisation by mean and variance, by size, and by what stands around."""
from __future__ import annotations

from typing import Any

from ntgrad.graph.checks import Ints, Operand, checked
from ntgrad.tensor import Tensor


@checked
def batch_norm(input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Operand | None = None,
               bias: Operand | None = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5) -> Tensor:
  """Normalisation of each channel of (n, c, ..), with ``training`` by the batch's mean and variance, towards which the running
  ones move by ``momentum``; without, by the running ones. Raises ShapeError, DTypeError, ArgumentError."""
  return input.batch_norm(running_mean, running_var, weight, bias, training, momentum, eps)


@checked
def instance_norm(input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None,
                  weight: Operand | None = None, bias: Operand | None = None, use_input_stats: bool = True,
                  momentum: float = 0.1, eps: float = 1e-5) -> Tensor:
  """Normalisation of each channel of each sample of (n, c, l, ..) by its own mean and variance, or without
  ``use_input_stats`` by the running ones. Raises ShapeError, DTypeError, ArgumentError."""
  return input.instance_norm(running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


@checked
def layer_norm(input: Tensor, normalized_shape: Ints, weight: Operand | None = None, bias: Operand | None = None,
               eps: float = 1e-5) -> Tensor:
  """Normalisation over the last dimensions, which have the sizes ``normalized_shape``. Raises ShapeError, DTypeError."""
  return input.layer_norm(normalized_shape, weight, bias, eps)


@checked
def rms_norm(input: Tensor, normalized_shape: Ints, weight: Operand | None = None, eps: float | None = None) -> Tensor:
  """x / sqrt(mean(x²) + eps) * weight over the last dimensions; an eps of None is the dtype's smallest step at 1. Raises
  ShapeError, DTypeError."""
  return input.rms_norm(normalized_shape, weight, eps)


@checked
def group_norm(input: Tensor, num_groups: int, weight: Operand | None = None, bias: Operand | None = None,
               eps: float = 1e-5) -> Tensor:
  """Normalisation of groups of channels of each sample of (n, c, ..). Raises ShapeError, DTypeError, ArgumentError."""
  return input.group_norm(num_groups, weight, bias, eps)


@checked
def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
  """x / (k + alpha * mean(x² of ``size`` channels around))^beta of (n, c, l, ..). Raises ShapeError, DTypeError,
  ArgumentError."""
  return input.local_response_norm(size, alpha, beta, k)


@checked
def normalize(input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Tensor | None = None) -> Tensor:
  """x over its p-norm along a dim, which counts as ``eps`` at least; written to ``out`` where that is given. Raises AxisError,
  ArgumentError; for ``out`` as ``Tensor.assign``."""
  result = input.normalize(p, dim, eps)
  return result if out is None else out.assign(result)


__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "normalize", "rms_norm"]
