"""Reductions and factorisations whose functions take or give something else than the methods, which are tinygrad's."""
from __future__ import annotations

from typing import Any, NamedTuple

from ntgrad.codegen.ir import ArgumentError, shown
from ntgrad.core import axis_of
from ntgrad.graph import Operand, as_tuple, checked, flag, no_flag, variant
from ntgrad.tensor import Tensor
from ntgrad.tensor.linalg import QR

Dims = Any


# ---- extremes
def _extreme(name: str, input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Operand | None = None) -> Any:
  if other is not None and dim is not None: raise ArgumentError(f"{name}: dim={shown(dim)} and another tensor; give one of them")
  return getattr(input, name)(dim if other is None else other, flag(f"{name}: keepdim", keepdim))


max = checked(variant("max", _extreme, """
  The greatest element; along a dim ``(values, indices)``, the first of equal ones; of two tensors, ``max(a, b)``, the greater
  of each two elements.

  ``x.max(1)`` has the values alone, and ``x.amax(dim)`` shares the gradient among equal ones. Raises AxisError, ShapeError;
  ArgumentError for no elements.
  """))
min = checked(variant("min", _extreme, """
  The least element; along a dim ``(values, indices)``; of two tensors the lesser of each two elements. See :func:`max`."""))


# ---- variances
def _spread(name: str, input: Tensor, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *,
            correction: float | None = None) -> Any:
  """A method that takes ``unbiased`` too."""
  if isinstance(dim, bool):   # the only argument of one of PyTorch's overloads
    if unbiased is not None or correction is not None:
      raise ArgumentError(f"{name}: dim is {dim}, which says unbiased= already; give a dim or None")
    dim, unbiased = None, dim
  if unbiased is not None and correction is not None:
    raise ArgumentError(f"{name}: unbiased= and correction= say the same; give one of them")
  if correction is None: correction = 1 if unbiased is None else int(unbiased)
  return getattr(input, name)(dim, keepdim, correction)


std = checked(variant("std", _spread, """
  The standard deviation along dims (None: all), of n elements divided by n - ``correction`` (1; 0 where ``unbiased`` is False).
  Raises AxisError, ArgumentError."""))
var = checked(variant("var", _spread, "The variance along dims; see :func:`std`."))
std_mean = checked(variant("std_mean", _spread, "``(std, mean)`` along dims; see :func:`std`."))
var_mean = checked(variant("var_mean", _spread, "``(var, mean)`` along dims; see :func:`std`."))
std.__annotations__["return"] = var.__annotations__["return"] = "Tensor"
std_mean.__annotations__["return"] = var_mean.__annotations__["return"] = "tuple[Tensor, Tensor]"


@checked
def norm(input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
  """The norm of the elements along dims (None: all): (sum |x|^p)^(1/p); "fro" is 2, "nuc" the sum of the singular values of the
  matrices in two dims. Raises AxisError, ArgumentError."""
  x = input if dtype is None else input.cast(dtype)
  if isinstance(p, str) and p == "nuc":
    if dim is None and x.ndim != 2: raise ArgumentError(f"norm: p='nuc' for shape {x.shape}; give the two dims of its matrices")
    return x.matrix_norm("nuc", (-2, -1) if dim is None else dim, keepdim)
  if isinstance(p, str) and p != "fro": raise ArgumentError(f"norm: p is {p!r}; it takes a number, 'fro' or 'nuc'")
  return x.norm(2 if isinstance(p, str) or p is None else p, dim, keepdim)


# ---- factorisations of before torch.linalg
class SVD(NamedTuple):
  """What :func:`svd` gives: ``U @ diag(S) @ V.mT``."""
  U: Any
  S: Any
  V: Any


@checked
def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> SVD:
  """``(U, S, V)`` of matrices (.., m, n), V not transposed (``linalg.svd`` has it so); without ``some`` U and V are square.
  Without ``compute_uv`` they are zeros. Raises ShapeError, DTypeError."""
  u, s, vh = input.svd(not some)
  return SVD(u, s, vh.mT) if compute_uv else SVD(u.zeros_like(), s, vh.mT.zeros_like())


@checked
def qr(input: Tensor, some: bool = True) -> QR:
  """``(Q, R)`` of matrices (.., m, n); without ``some`` Q is square. Raises ShapeError, DTypeError."""
  return input.qr("reduced" if some else "complete")


# ---- slopes of samples
@checked
def gradient(input: Tensor, *, spacing: Any = None, dim: Any = None, edge_order: int = 1) -> list[Tensor]:
  """The slopes of samples along dims (None: each), one tensor a dim: second order inside, ``edge_order`` (1 or 2) at the ends.

  ``spacing`` is the distance of samples, one for all dims or a list; a tensor in the list has the places along a dim. What a
  value depends on is another thing: ``loss.gradient(x)``, ``ntgrad.autograd.grad``. Raises AxisError, ArgumentError.
  """
  if edge_order not in (1, 2): raise ArgumentError(f"gradient: edge_order {edge_order}; it takes 1 or 2")
  dims = [*range(input.ndim)] if dim is None else [axis_of("gradient", d, input.ndim) for d in as_tuple(dim)]
  steps = as_tuple(1.0 if spacing is None else no_flag("gradient", "spacing", spacing))
  if len(steps) == 1 and not isinstance(spacing, (list, tuple)): steps = steps * len(dims)
  if len(steps) != len(dims): raise ArgumentError(f"gradient: {len(steps)} spacings for {len(dims)} dims; give one for each")
  return [_slope(input, d, h, edge_order) for d, h in zip(dims, steps)]


def _slope(x: Tensor, d: int, h: Any, order: int) -> Tensor:
  n = x.shape[d]
  if n <= order: raise ArgumentError(f"gradient: {n} samples along dim {d}; edge_order {order} needs {order + 1}")
  at = h if isinstance(h, Tensor) and h.ndim else Tensor.arange(
    n, dtype=x.dtype if x.dtype.kind == "f" else None, device=x.device) * h
  if at.shape != (n,): raise ArgumentError(f"gradient: places of shape {at.shape} for {n} samples along dim {d}")
  def part(t: Any, a: int, b: int) -> Any: return t.narrow(d if t is x else 0, a, b - a)
  def along(t: Any) -> Any: return t.reshape(*[-1 if i == d else 1 for i in range(x.ndim)])
  gap = at[1:] - at[:-1]
  left, right = along(gap[:-1]), along(gap[1:])
  inner = [] if n < 3 else [
    (left / right * part(x, 2, n) + (right / left - left / right) * part(x, 1, n - 1) - right / left * part(x, 0, n - 2))
    / (left + right)]
  def end(i: int, sign: int) -> Any:
    """A slope at an end, from the two or three samples there."""
    def sample(k: int) -> Any: return part(x, i + sign * k, i + sign * k + 1)
    def step(k: int) -> Any: return along(at[i + sign * k:i + sign * k + 1] - at[i:i + 1])
    if order == 1: return (sample(1) - sample(0)) / step(1)
    a, b = step(1), step(2)
    return (b / a * (sample(1) - sample(0)) - a / b * (sample(2) - sample(0))) / (b - a)
  return Tensor.cat([end(0, 1), *inner, end(n - 1, -1)], dim=d)
