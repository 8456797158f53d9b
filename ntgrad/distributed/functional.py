"""Collective operations that give new tensors, and have gradients: that of an ``all_reduce`` is one, those of ``all_gather`` and
``reduce_scatter`` are each other's. The loss that counts is the sum of all ranks' losses."""
from __future__ import annotations

from typing import Any

from ntgrad.codegen.ir import GradientError, ShapeError
from ntgrad.compat.public import show
from ntgrad.graph import checked
from ntgrad.tensor import Tensor
from ntgrad.tensor.custom import ruled

from .collective import collective
from .operations import group_of, op_of, root_of


def _made(kind: str, x: Tensor, out: tuple[int, ...], group: Any, rule: Any, op: str = "", root: int = 0) -> Tensor:
  def gradients(grads: Any, *_: Any) -> tuple[Tensor]:
    if op not in ("", "sum", "avg"):
      raise GradientError(f"distributed.functional.{kind}: {op} has no gradient; sum and avg have")
    return (rule(grads[0]),)
  made: Tensor = ruled([collective(kind, x.detach(), out, group, op, root)], [x], gradients)[0]
  return made


@checked
def all_reduce(tensor: Tensor, op: str = "sum", group: Any = None) -> Tensor:
  """The combination of all ranks' tensors, of the same shape. "sum" and "avg" have gradients. Raises as
  ``distributed.all_reduce``, and GradientError for gradients of others."""
  g, op = group_of(group), op_of(op)
  return _made("all_reduce", tensor, tuple(tensor.shape), g, lambda grad: all_reduce(grad, op, g), op)


@checked
def all_gather(tensor: Tensor, group: Any = None) -> Tensor:
  """The tensors of all ranks, one behind the other along dim 0: ``(n, ..) -> (ranks * n, ..)``. Raises DistributedError, and
  ShapeError for a number."""
  g = group_of(group)
  if not tensor.ndim: raise ShapeError("distributed.functional.all_gather: a tensor without dimensions; reshape it to (1,)")
  out = (g.size() * tensor.shape[0], *tensor.shape[1:])
  return _made("all_gather", tensor, out, g, lambda grad: reduce_scatter(grad, "sum", g))


@checked
def reduce_scatter(tensor: Tensor, op: str = "sum", group: Any = None) -> Tensor:
  """This rank's part along dim 0 of the combination of all ranks' tensors: ``(ranks * n, ..) -> (n, ..)``. Raises as
  ``all_reduce``, and ShapeError where dim 0 has no equal parts."""
  g, op = group_of(group), op_of(op)
  out = _part("reduce_scatter", tensor, g.size())
  return _made("reduce_scatter", tensor, out, g, lambda grad: all_gather(grad / g.size() if op == "avg" else grad, g), op)


@checked
def all_to_all(tensor: Tensor, group: Any = None) -> Tensor:
  """Part r along dim 0 goes to rank r, and that of rank r comes in its place: ``(ranks * n, ..) -> same``. Raises
  DistributedError, and ShapeError where dim 0 has no equal parts."""
  g = group_of(group)
  _part("all_to_all", tensor, g.size())
  return _made("all_to_all", tensor, tuple(tensor.shape), g, lambda grad: all_to_all(grad, g))


@checked
def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
  """The tensor of rank ``src`` (of the world); its gradient there is the sum of all, and 0 elsewhere. Raises DistributedError and
  ArgumentError."""
  g = group_of(group)
  root = root_of("broadcast", src, g)
  def rule(grad: Tensor) -> Tensor:
    total = all_reduce(grad, "sum", g)
    return total if g.rank() == root else total * 0
  return _made("broadcast", tensor, tuple(tensor.shape), g, rule, root=root)


def _part(name: str, x: Tensor, n: int) -> tuple[int, ...]:
  if not x.ndim or x.shape[0] % n:
    raise ShapeError(f"distributed.functional.{name}: a tensor of shape {tuple(x.shape)} for {n} ranks; dim 0 must be a "
                     "multiple of that")
  return (x.shape[0] // n, *x.shape[1:])


__all__ = ["all_gather", "all_reduce", "all_to_all", "broadcast", "reduce_scatter"]

show(__name__)
