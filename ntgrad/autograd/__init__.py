"""``torch.autograd``: gradients of tensors with respect to others, and ``Function``, whose gradient is written by hand."""
from __future__ import annotations

from functools import reduce
from importlib import import_module
from operator import add
from typing import Any

from ntgrad.codegen.ir import ArgumentError, GradientError, shown
from ntgrad.compat.public import show
from ntgrad.graph import checked, enable_grad, inference_mode, no_grad, set_grad_enabled
from ntgrad.tensor import Tensor
from ntgrad.tensor.custom import Function
from ntgrad.tensor.gradient import gradient

from .anomaly import detect_anomaly, set_detect_anomaly


def _each(x: Any) -> list[Any]:
  """What there is in something, or the one thing."""
  try: return [x] if isinstance(x, Tensor) else list(x)
  except TypeError: return [x]


def _listed(name: str, what: str, tensors: Any) -> list[Any]:
  """One tensor or several as a list. Raises ArgumentError for others."""
  found = _each(tensors)
  if not found or not all(isinstance(t, Tensor) for t in found):
    raise ArgumentError(f"{name}: {what} {shown(tensors)}; give a Tensor, or several in a tuple")
  return found


def _one(name: str, outputs: Any, weights: Any) -> Any:
  """A number whose gradient is that of several tensors, each multiplied by the gradient from above."""
  outputs = _listed(name, "outputs", outputs)
  given = _each(weights)
  if weights is None: given *= len(outputs)
  if len(given) != len(outputs):
    raise ArgumentError(f"{name}: {len(given)} gradients from above for {len(outputs)} tensors; give one for each, or None")
  terms = []
  for i, (y, g) in enumerate(zip(outputs, given)):
    if g is None and y.numel() != 1:
      raise GradientError(f"{name}: output {i} of shape {y.shape} is not one number; "
                          "reduce it (.sum(), .mean()) or give its gradient from above")
    if g is not None and (not isinstance(g, Tensor) or g.shape != y.shape):
      raise ArgumentError(f"{name}: the gradient of output {i}, {shown(g)}; it has its shape {y.shape}")
    if y.dtype.kind != "f": raise GradientError(f"{name}: output {i} is of {y.dtype.name}; gradients are those of floats")
    terms.append((y if g is None else y * g).sum())
  return reduce(add, terms)


@checked
def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: Any = None, create_graph: bool = False,
         only_inputs: bool = True, allow_unused: bool | None = None, is_grads_batched: bool = False,
         materialize_grads: bool = False) -> tuple[Any, ...]:
  """The gradients of outputs, summed, with respect to each input; nothing is stored.

  ``grad_outputs`` are the gradients from above, needed of what is not one number. With ``create_graph`` the gradients have
  gradients themselves. For an input that the outputs are not made of: None with ``allow_unused``, zeros with
  ``materialize_grads``. The graph stays in any case. Raises GradientError, ArgumentError."""
  if is_grads_batched: raise ArgumentError("grad: is_grads_batched; call it once for each gradient from above")
  wanted = _listed("grad", "inputs", inputs)
  found = gradient(_one("grad", outputs, grad_outputs), wanted, None, bool(allow_unused or materialize_grads))
  if materialize_grads: found = [x.zeros_like() if g is None else g for g, x in zip(found, wanted)]
  return tuple(g if g is None or create_graph else g.detach() for g in found)


@checked
def backward(tensors: Any, grad_tensors: Any = None, retain_graph: Any = None, create_graph: bool = False,
             grad_variables: Any = None, inputs: Any = None) -> None:
  """Add the gradients of tensors, summed, to ``grad`` of the leaves beneath them (of ``inputs`` alone); see
  :meth:`Tensor.backward`. Raises GradientError, ArgumentError."""
  _one("backward", tensors, grad_tensors if grad_variables is None else grad_variables).backward(create_graph=create_graph,
                                            inputs=None if inputs is None else _listed("backward", "inputs", inputs))


@checked
def Variable(data: Tensor, requires_grad: bool = False, volatile: Any = None) -> Tensor:
  """The tensor without its graph, a leaf with ``requires_grad``: what programs for early PyTorch make of every tensor."""
  return data.detach().requires_grad_(requires_grad)


def __getattr__(name: str) -> Any:
  if name != "functional": raise AttributeError(name)
  return import_module(f"{__name__}.{name}")


__all__ = ["Function", "Variable", "backward", "detect_anomaly", "enable_grad", "grad", "inference_mode", "no_grad",
           "set_detect_anomaly", "set_grad_enabled"]

show(__name__)
