"""Functions whose arguments come in several ways, or stand in another order than the method's."""
from __future__ import annotations

from typing import Any

from ntgrad.codegen.ir import ArgumentError, ShapeError, shown
from ntgrad.graph import Operand, checked, operand, variant
from ntgrad.tensor import Tensor
from ntgrad.tensor.promotion import broadcast_shape


# ---- elements
@checked
def where(condition: Tensor, input: Any = None, other: Any = None) -> Any:
  """``input`` where the condition holds, else ``other``, broadcast; the condition alone gives the indices where it holds, one
  tensor a dim. Raises ShapeError."""
  if input is None and other is None: return condition.nonzero(as_tuple=True)
  if input is None or other is None: raise ArgumentError("where: one value; give input and other, or neither")
  return condition.where(input, other)


def pow(input: Any, exponent: Any) -> Tensor:
  """``input ** exponent``; one of both may be a number. Raises ShapeError, ArgumentError."""
  if isinstance(input, Tensor): return input.pow(exponent)
  if isinstance(exponent, Tensor): return exponent.pow(input, reverse=True)
  return operand("pow", input, Tensor).pow(exponent)


@checked
def rsub(input: Tensor, other: Any, *, alpha: float = 1) -> Tensor:
  """``other - alpha * input``. Raises ShapeError."""
  return (input if alpha == 1 else input * alpha).sub(other, True)


# ---- shapes
@checked
def adjoint(input: Tensor) -> Tensor:
  """The last two dims the other way round: numbers are real. Raises ShapeError."""
  return input.mT


def _each(name: str, *tensors: Any) -> Any:
  several = len(tensors) == 1 and isinstance(tensors[0], (list, tuple))
  found = list(tensors[0] if several else tensors)
  wrong = [t for t in found if not isinstance(t, Tensor)]
  if not found: raise ArgumentError(f"{name}: no tensors; give at least one")
  if wrong: raise ArgumentError(f"{name}: {shown(wrong[0])} is no Tensor")
  out = tuple(getattr(t, name)() for t in found)
  return out if several or len(out) > 1 else out[0]


atleast_1d = variant("atleast_1d", _each, """
  Tensors with at least one dim; one, or a tuple of several. Raises ArgumentError for what is no tensor.""")
atleast_2d = variant("atleast_2d", _each, """
  Tensors with at least two dims: (n,) -> (1, n). Raises ArgumentError for what is no tensor.""")
atleast_3d = variant("atleast_3d", _each, """
  Tensors with at least three dims: (n,) -> (1, n, 1), (m, n) -> (m, n, 1). Raises ArgumentError for what is no tensor.""")


@checked
def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
  """Tensors in the shape that they broadcast to. Raises ShapeError."""
  if not tensors: return ()
  shape = broadcast_shape("broadcast_tensors", *[t.shape for t in tensors])
  return tuple(t.broadcast_to(shape) for t in tensors)


@checked
def column_stack(tensors: Any) -> Tensor:
  """Tensors side by side, those of one dim as columns. Raises ShapeError."""
  return Tensor.hstack([t.reshape(-1, 1) if isinstance(t, Tensor) and t.ndim < 2 else t for t in tensors]
                       if isinstance(tensors, (list, tuple)) else tensors)


@checked
def repeat_interleave(input: Tensor, repeats: Any = None, dim: Any = None, *, output_size: int | None = None) -> Tensor:
  """Each element along a dim (None: of all, flattened) so often; repeats alone give the places, 0 as often as the first says, and
  so on. Raises AxisError, ShapeError, ArgumentError."""
  if repeats is not None: return input.atleast_1d().repeat_interleave(repeats, dim, output_size)
  if input.ndim != 1: raise ShapeError(f"repeat_interleave: repeats of shape {input.shape}; give one for each place")
  return Tensor.arange(input.shape[0], dtype=input.dtype, device=input.device).repeat_interleave(input, 0, output_size)


@checked
def scatter(input: Tensor, dim: Any, index: Any, src: Any = None, *, value: Any = None, reduce: str | None = None) -> Tensor:
  """A copy with ``src`` (or a number, ``value``) at an index along a dim; see :meth:`Tensor.scatter`."""
  if (src is None) == (value is None): raise ArgumentError("scatter: give src or value")
  return input.scatter(dim, index, value if src is None else src, reduce)


# ---- sets and orders
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
  """Whether elements are among ``test_elements``; one of both may be a number. Raises ShapeError, DTypeError, ArgumentError."""
  like = test_elements if isinstance(test_elements, Tensor) else Tensor
  return operand("isin", elements, like).isin(test_elements, assume_unique, invert)


@checked
def msort(input: Tensor) -> Tensor:
  """The elements in rising order along the first dim."""
  return input.sort(0).values


@checked
def cross(input: Tensor, other: Operand, dim: Any = None) -> Tensor:
  """The cross product along a dim of size 3; None: the first that has it. Raises ShapeError, AxisError."""
  if dim is None: dim = next((d for d, n in enumerate(input.shape) if n == 3), -1)
  return input.cross(other, dim)
