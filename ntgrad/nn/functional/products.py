"""Products with weights: linear, bilinear, convolutions."""
from __future__ import annotations

from ntgrad.codegen.ir import ShapeError
from ntgrad.graph import Ints, Operand, checked, text, variant
from ntgrad.nn.linear import bilinear as of_two
from ntgrad.tensor import Tensor
from ntgrad.tensor.convolution import numbers


# ---- matrices
def linear(input: Tensor, weight: Operand, bias: Operand | None = None) -> Tensor:
  """x @ weight.T + bias: (.., in), weight (out, in) -> (.., out); a weight (in,) gives (..). Raises ShapeError."""
  if not input.ndim or weight.ndim not in (1, 2) or weight.shape[-1] != input.shape[-1]:
    raise ShapeError(f"linear: input {text(input)} with weight {text(weight)}; give (.., in) and (out, in), or (in,)")
  if weight.ndim == 2: return input._projected(weight, bias)
  out = input.dot(weight)
  return out if bias is None else out + bias


def bilinear(input1: Tensor, input2: Operand, weight: Operand, bias: Operand | None = None) -> Tensor:
  """x1ᵀ weight[k] x2 + bias[k] for each k: (.., i), (.., j), weight (out, i, j) -> (.., out). Raises ShapeError."""
  return of_two("bilinear", input1, input2, weight, bias)


# ---- convolutions
def _convolution(name: str, n: int, input: Tensor, weight: Operand, bias: Operand | None = None, stride: Ints = 1,
                 padding: str | Ints = 0, dilation: Ints = 1, groups: int = 1) -> Tensor:
  if groups < 1 or weight.ndim != n + 2 or input.ndim not in (n + 1, n + 2) or (
      input.shape[-n - 1] != groups * weight.shape[1] or weight.shape[0] % groups):
    raise ShapeError(f"{name}: input {text(input)} with weight {text(weight)} and groups {groups}; give (n, cin, *{n} sizes), or "
                     f"without n, and (cout, cin / groups, *{n} sizes), cout a multiple of groups")
  if not isinstance(padding, str): padding = numbers(name, "padding", padding, n, 0)
  return input._convolved(name, n, weight, bias, groups, stride, dilation, padding)


conv1d = variant("conv1d", _convolution, 1, """
  Convolution: (n, cin, l), weight (cout, cin / groups, k) -> (n, cout, l'); the input may lack n. Raises as :func:`conv2d`.""")
conv2d = variant("conv2d", _convolution, 2, """
  Convolution: (n, cin, h, w), weight (cout, cin / groups, *kernel) -> (n, cout, h', w'); the input may lack n.

  ``padding`` is numbers, "valid" (none) or "same" (what keeps the size, with stride 1). Raises ShapeError, ArgumentError.
  """)
conv3d = variant("conv3d", _convolution, 3, """
  Convolution: (n, cin, d, h, w), weight (cout, cin / groups, *kernel) -> (n, cout, d', h', w'); the input may lack n. Raises
  as :func:`conv2d`.""")


def conv_tbc(input: Tensor, weight: Operand, bias: Operand, pad: int = 0) -> Tensor:
  """Convolution of (l, n, cin) with weight (k, cin, cout): (l', n, cout). Raises as :func:`conv2d`."""
  if input.ndim != 3 or weight.ndim != 3:
    raise ShapeError(f"conv_tbc: input {text(input)} with weight {text(weight)}; give (l, n, cin) and (k, cin, cout)")
  return _convolution("conv_tbc", 1, input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, 1, pad, 1, 1).permute(2, 0, 1)


def _transposed(name: str, n: int, input: Tensor, weight: Operand, bias: Operand | None = None, stride: Ints = 1,
                padding: Ints = 0, output_padding: Ints = 0, groups: int = 1, dilation: Ints = 1) -> Tensor:
  if groups < 1 or weight.ndim != n + 2 or input.ndim not in (n + 1, n + 2) or (
      input.shape[-n - 1] != weight.shape[0] or weight.shape[0] % groups):
    raise ShapeError(f"{name}: input {text(input)} with weight {text(weight)} and groups {groups}; give (n, cin, *{n} sizes), or "
                     f"without n, and (cin, cout / groups, *{n} sizes), cin a multiple of groups")
  padding = numbers(name, "padding", padding, n, 0)
  return input._transposed(name, n, weight, bias, groups, stride, dilation, padding, output_padding)


conv_transpose1d = variant("conv_transpose1d", _transposed, 1, """
  The adjoint of :func:`conv1d`: (n, cin, l), weight (cin, cout / groups, k) -> (n, cout, l'). Raises ShapeError,
  ArgumentError.""")
conv_transpose2d = variant("conv_transpose2d", _transposed, 2, """
  The adjoint of :func:`conv2d`: (n, cin, h, w), weight (cin, cout / groups, *kernel) -> (n, cout, h', w'). Raises ShapeError,
  ArgumentError.""")
conv_transpose3d = variant("conv_transpose3d", _transposed, 3, """
  The adjoint of :func:`conv3d`: (n, cin, d, h, w), weight (cin, cout / groups, *kernel) -> (n, cout, d', h', w'). Raises
  ShapeError, ArgumentError.""")


__all__ = ["bilinear", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
           "linear"]

globals().update({name: checked(globals()[name]) for name in __all__})
