"""Gradients and parameters as a whole: their norm, limits of it, one vector of all."""
from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from ntgrad.codegen.ir import ArgumentError, GradientError, ShapeError, dtypes, shown
from ntgrad.graph import checked, no_grad
from ntgrad.nn.optim.flat import joined
from ntgrad.nn.recipes import Recipes, write
from ntgrad.tensor import Tensor

_clipping = Recipes()


def _tensors(name: str, given: Any) -> list[Tensor]:
  given = list(given) if isinstance(given, Iterable) and not isinstance(given, (Tensor, np.ndarray)) else [given]
  for t in given:
    if not isinstance(t, Tensor):
      raise ArgumentError(f"{name}: {shown(t)} is no Tensor; it takes parameters (model.parameters())")
  return given


def _limit(name: str, what: str, value: float, least: float = 0.0) -> float:
  if not value >= least: raise ArgumentError(f"{name}: {what} is {value!r}, expected a number of at least {least:g}")
  return float(value)


_FEW = 3   # tensors that are summed up each by itself, and not copied into one vector before


def _flat(tensors: Sequence[Tensor]) -> list[Tensor]:
  """All in one vector, or a few, in float32 at least."""
  dtype = dtypes.float64 if any(t.dtype is dtypes.float64 for t in tensors) else dtypes.float32
  parts = [t.detach().reshape(-1).to(tensors[0].device).cast(dtype) for t in tensors]
  return parts if len(parts) <= _FEW else [Tensor.cat(*parts, dim=0).contiguous()]


def _norm(parts: Sequence[Tensor], p: float) -> Tensor:
  if p == math.inf: return reduce(Tensor.maximum, [x.abs().max() for x in parts])
  total: Tensor = reduce(Tensor.add, [(x.square() if p == 2 else x.abs() ** p).sum() for x in parts])
  return total.sqrt() if p == 2 else total ** (1 / p)


@checked
def get_total_norm(tensors: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> Tensor:
  """The norm of all elements of all tensors together: a lazy scalar, 0 for none. ``norm_type`` is above 0, or inf.
  Raises ArgumentError, and with ``error_if_nonfinite`` GradientError for a norm that is not finite (it is computed then)."""
  name, p = "get_total_norm", _limit("get_total_norm", "norm_type", norm_type, 1e-30)
  given = [t for t in _tensors(name, tensors) if t.numel()]
  total = _norm(_flat(given), p) if given else Tensor(0.0)
  if error_if_nonfinite and not math.isfinite(total.item()):
    raise GradientError(f"{name}: the norm of the gradients is {total.item()}; look for what overflows, "
                        "or pass error_if_nonfinite=False")
  return total


@checked
def clip_grad_norm_(parameters: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> Tensor:
  """Scale the gradients of parameters so that their norm (see :func:`get_total_norm`) is ``max_norm`` at most; gives the norm
  before, a lazy scalar. Those without a gradient are left out. Nothing is computed here, so it may stand in a captured step.

  ``g *= min(1, max_norm / (norm + 1e-6))``, as PyTorch has it. Raises as :func:`get_total_norm`.
  """
  name, limit = "clip_grad_norm_", _limit("clip_grad_norm_", "max_norm", max_norm)
  grads = joined([p.grad for p in _tensors(name, parameters) if p.grad is not None])
  def scaled(g: Tensor, by: Tensor) -> Tensor: return g * by.to(g.device).cast(g.dtype)
  def clipped(grads: Sequence[Tensor]) -> dict[Any, Tensor]:
    total = get_total_norm(grads, norm_type, error_if_nonfinite)
    factor = (limit / (total + 1e-6)).minimum(1.0)
    return {"norm": total, "factor": factor} | {i: scaled(g, factor) for i, g in enumerate(grads)}
  with no_grad():
    apart = len({g._alias for g in grads}) == len(grads)   # else one may be read after another is written
    made = _clipping.make((limit, norm_type) if apart and not error_if_nonfinite else None, grads, clipped)
    total, factor = made.pop("norm"), made.pop("factor")
    for i, g in made.items(): write(grads[i], g if apart else scaled(grads[i], factor))
  return total if isinstance(total, Tensor) else Tensor._from_node(total)


@checked
def clip_grad_value_(parameters: Any, clip_value: float) -> None:
  """Bring each element of the gradients into [-clip_value, clip_value]. Raises ArgumentError."""
  limit = _limit("clip_grad_value_", "clip_value", clip_value)
  with no_grad():
    for p in _tensors("clip_grad_value_", parameters):
      if p.grad is not None: p.grad.assign(p.grad.clamp(-limit, limit))


@checked
def parameters_to_vector(parameters: Any) -> Tensor:
  """All elements of all parameters, (n,): a lazy copy that gradients go through. Raises ArgumentError for none."""
  given = _tensors("parameters_to_vector", parameters)
  if not given: raise ArgumentError("parameters_to_vector: no parameters")
  return Tensor.cat(*[t.reshape(-1) for t in given], dim=0)


@checked
def vector_to_parameters(vec: Any, parameters: Any) -> None:
  """Write the elements of a vector to parameters, in their order. Raises ShapeError for another number of elements."""
  given = _tensors("vector_to_parameters", parameters)
  if not isinstance(vec, Tensor): raise ArgumentError(f"vector_to_parameters: {shown(vec)} is no Tensor")
  n = sum(t.numel() for t in given)
  if vec.shape != (n,): raise ShapeError(f"vector_to_parameters: a vector of shape {vec.shape} for {n} elements")
  with no_grad():
    for t, part in zip(given, vec.detach().split([t.numel() for t in given])): t.assign(part.reshape(t.shape).cast(t.dtype))
