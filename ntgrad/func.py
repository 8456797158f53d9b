"""``torch.func``: functions made of functions, their derivatives among them."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ntgrad.autograd import _listed, functional, grad as gradients
from ntgrad.codegen.ir import ArgumentError, shown
from ntgrad.compat.public import show
from ntgrad.functions.settings import _over, vmap as vmap
from ntgrad.graph import Ints, checked, enable_grad, mode, variant
from ntgrad.tensor import Tensor

Fn = Callable[..., Any]


def _value_and_slopes(name: str, func: Fn, argnums: Any, has_aux: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
  """The gradients with respect to some arguments, the value, and what else the function gives."""
  places = [argnums] if isinstance(argnums, int) else list(argnums)
  given, xs, all_given = list(args), list[Any](), list[Any]()
  def apart(t: Any) -> Any:
    xs.append(functional._apart(t))
    return xs[-1]
  with enable_grad():
    for i in places:
      before = len(xs)
      if -len(args) <= i < len(args): given[i] = _over(apart, args[i])
      if len(xs) == before: raise ArgumentError(f"{name}: argnums {shown(argnums)}; argument {i} of {len(args)} has no Tensor")
    out = func(*given, **kwargs)
    value, aux = out if has_aux else (out, None)
    found = gradients(functional._number(name, value), xs, create_graph=True, materialize_grads=True)
  _over(all_given.append, args)
  if not mode.grad or not any([t.requires_grad for t in all_given]):
    found, value = tuple([g.detach() for g in found]), value.detach()
  at = iter(found)
  each = tuple([_over(lambda _: next(at), args[i]) for i in places])
  return each[0] if isinstance(argnums, int) else each, value, aux


@checked
def grad(func: Fn, argnums: Ints = 0, has_aux: bool = False) -> Fn:
  """A function that gives the gradient of one that gives a number, with respect to an argument (a Tensor, or a dict, list or
  tuple of some, as its gradients are then), or a tuple for several; with ``has_aux`` the function gives ``(number, anything)``
  and this one ``(gradient, anything)``. Raises ArgumentError."""
  def slopes(*args: Any, **kwargs: Any) -> Any:
    found, _, aux = _value_and_slopes("grad", func, argnums, has_aux, args, kwargs)
    return (found, aux) if has_aux else found
  return slopes


@checked
def grad_and_value(func: Fn, argnums: Ints = 0, has_aux: bool = False) -> Fn:
  """A function that gives ``(gradient, value)``, with ``has_aux`` ``(gradient, (value, anything))``; see :func:`grad`."""
  def both(*args: Any, **kwargs: Any) -> Any:
    found, value, aux = _value_and_slopes("grad_and_value", func, argnums, has_aux, args, kwargs)
    return (found, (value, aux)) if has_aux else (found, value)
  return both


def _of_one(name: str, make: Fn, func: Fn, argnums: int = 0) -> Fn:
  if not isinstance(argnums, int): raise ArgumentError(f"{name}: argnums {shown(argnums)}; it takes the number of one argument")
  def derivative(*args: Any) -> Any:
    def of(x: Any) -> Any: return func(*args[:argnums], x, *args[argnums + 1:])
    x = args[argnums]
    return make(of, x, create_graph=isinstance(x, Tensor) and bool(x.requires_grad))   # inside of another derivative
  return derivative


jacrev = jacfwd = checked(variant("jacrev", _of_one, functional.jacobian, """
  A function that gives the derivatives of another with respect to an argument: see :func:`autograd.functional.jacobian`."""))
hessian = checked(variant("hessian", _of_one, functional.hessian, """
  A function that gives the second derivatives of one that gives a number: see :func:`autograd.functional.hessian`."""))


@checked
def vjp(func: Fn, *primals: Any, has_aux: bool = False) -> Any:
  """``(func(*primals), fn)``, where ``fn(v)`` gives v times the derivatives, one tensor for each primal in a tuple; with
  ``has_aux`` what else the function gives comes third. Raises ArgumentError, GradientError."""
  xs = [functional._apart(x) for x in _listed("vjp", "primals", primals)]
  with enable_grad(): out = func(*xs)
  value, aux = out if has_aux else (out, None)
  def pulled(*v: Any) -> Any:
    return gradients(value, xs, v[0] if len(v) == 1 else v, create_graph=True, materialize_grads=True)
  return (value, pulled, aux) if has_aux else (value, pulled)


@checked
def jvp(func: Fn, primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
  """``(func(*primals), its derivatives times tangents)``: see :func:`autograd.functional.jvp`."""
  return functional.jvp(func, primals, tangents)


def functional_call(module: Any, parameter_and_buffer_dicts: Any, args: Any = None,
                    kwargs: Mapping[str, Any] | None = None) -> Any:
  """A module's result with other tensors in place of its own, by their names in its state dict; the module stays as it is.
  Raises ArgumentError for a name that it does not have."""
  given: dict[str, Any] = {}
  for d in parameter_and_buffer_dicts if isinstance(parameter_and_buffer_dicts, (tuple, list)) else [parameter_and_buffer_dicts]:
    if not isinstance(d, Mapping) or not all([isinstance(k, str) and isinstance(t, Tensor) for k, t in d.items()]):
      raise ArgumentError(f"functional_call: {shown(d)}; it takes a dict of names and Tensors, or several")
    given.update(d)
  if kwargs is not None and not isinstance(kwargs, Mapping):
    raise ArgumentError(f"functional_call: kwargs {shown(kwargs)}; it takes a dict")
  before = []
  try:
    for name, value in given.items():
      *path, last = name.split(".")
      owner = module
      for part in path: owner = owner[int(part)] if part.isdigit() else getattr(owner, part, None)
      if not isinstance(getattr(owner, last, None), Tensor):
        raise ArgumentError(f"functional_call: {type(module).__name__} has no tensor {name!r}")
      before.append((owner, last, getattr(owner, last)))
      object.__setattr__(owner, last, value)   # for this call: it may be no parameter
    return module(*(args if isinstance(args, tuple) else () if args is None else (args,)), **(kwargs or {}))
  finally:
    for owner, last, value in reversed(before): object.__setattr__(owner, last, value)


__all__ = "functional_call grad grad_and_value hessian jacfwd jacrev jvp vjp vmap".split()  # noqa: PLE0605

show(__name__)
