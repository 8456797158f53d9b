"""Derivatives of functions, and products with vectors. Each element of an output is gone through by itself."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ntgrad.codegen.ir import ArgumentError, shown
from ntgrad.compat.public import show
from ntgrad.graph import checked, enable_grad, mode
from ntgrad.tensor import Tensor
from ntgrad.tensor.custom import ruled

from . import _listed, grad

Fn = Callable[..., Any]


def _apart(x: Any, keep: bool = True) -> Any:
  """An input that derivatives are found for; with ``keep`` gradients go on to what it is made of."""
  if not keep or not x.requires_grad: return x.detach().requires_grad_()
  with enable_grad(): return ruled([x.detach()], [x], lambda grads, *_: grads)[0]._called(x._names)


def _called(name: str, func: Fn, inputs: Any, keep: bool) -> tuple[list[Any], list[Any], bool, bool]:
  """Inputs that outputs depend on, the outputs, and whether each was one Tensor by itself."""
  xs = [_apart(x, keep) for x in _listed(name, "inputs", inputs)]
  with enable_grad(): out = func(*xs)
  return xs, _listed(name, "the function's result", out), isinstance(inputs, Tensor), isinstance(out, Tensor)


def _rows(y: Any, xs: list[Any], keep: bool) -> list[Any]:
  """The derivatives of each element of y with respect to each x: shape y.shape + x.shape."""
  flat = y.reshape(-1)
  each = [grad(flat[i], xs, create_graph=keep, materialize_grads=True) for i in range(flat.shape[0])]
  if not each: return [x.new_zeros(*y.shape, *x.shape) for x in xs]
  return [Tensor.stack([e[k] for e in each]).reshape(*y.shape, *x.shape) for k, x in enumerate(xs)]


def _shaped(rows: Sequence[Any], one: bool) -> Any: return rows[0] if one else tuple(rows)
def _kept(ys: list[Any], keep: bool) -> list[Any]: return ys if keep else [y.detach() for y in ys]


@checked
def jacobian(func: Fn, inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
             strategy: str = "reverse-mode") -> Any:
  """The derivatives of a function's results: for each result (one, or a tuple) and each input (one, or a tuple) a tensor of the
  result's shape and then the input's. Raises ArgumentError, GradientError."""
  xs, ys, one_in, one_out = _called("jacobian", func, inputs, create_graph)
  return _shaped([_shaped(_rows(y, xs, create_graph), one_in) for y in ys], one_out)


@checked
def hessian(func: Fn, inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
            outer_jacobian_strategy: str = "reverse-mode") -> Any:
  """The second derivatives of a function that gives one number: for each two inputs a tensor of both shapes. Raises
  ArgumentError, GradientError."""
  one = isinstance(inputs, Tensor)
  def slopes(*xs: Any) -> Any: return grad(_number("hessian", func(*xs)), xs, create_graph=True, materialize_grads=True)
  found = jacobian(slopes, inputs, create_graph)
  return found[0] if one else found


def _number(name: str, y: Any) -> Any:
  if not isinstance(y, Tensor) or y.numel() != 1: raise ArgumentError(f"{name}: a function gives {shown(y)}; it gives one number")
  return y.reshape(())


@checked
def vjp(func: Fn, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
  """``(func(*inputs), v times its derivatives)``; v has the results' shapes, and may be left out for one number. Raises
  ArgumentError, GradientError."""
  xs, ys, one_in, one_out = _called("vjp", func, inputs, create_graph)
  found = grad(ys, xs, None if v is None else _listed("vjp", "v", v), create_graph=create_graph, materialize_grads=True)
  return _shaped(_kept(ys, create_graph), one_out), _shaped(found, one_in)


@checked
def jvp(func: Fn, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
  """``(func(*inputs), its derivatives times v)``; v has the inputs' shapes. By two gradients: that of the gradient with
  respect to what comes from above. Raises ArgumentError, GradientError."""
  xs, ys, _, one_out = _called("jvp", func, inputs, create_graph)
  vs = [x.ones_like() for x in xs] if v is None else _listed("jvp", "v", v)
  above = [y.new_zeros(*y.shape, requires_grad=True) for y in ys]
  with enable_grad(): inner = grad(ys, xs, above, create_graph=True, materialize_grads=True)
  found = grad(inner, above, vs, create_graph=create_graph, materialize_grads=True)
  return _shaped(_kept(ys, create_graph), one_out), _shaped(found, one_out)


@checked
def vhp(func: Fn, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
  """``(func(*inputs), v times its second derivatives)`` of a function to one number. Raises ArgumentError, GradientError."""
  xs, ys, one_in, _ = _called("vhp", func, inputs, create_graph)
  with enable_grad(): slopes = grad(_number("vhp", ys[0]), xs, create_graph=True, materialize_grads=True)
  vs = [x.ones_like() for x in xs] if v is None else _listed("vhp", "v", v)
  found = grad(slopes, xs, vs, create_graph=create_graph, materialize_grads=True)
  return _kept(ys, create_graph and mode.grad)[0], _shaped(found, one_in)


hvp = vhp   # second derivatives are symmetric

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

show(__name__)
