"""Tensors of a Module that other Modules compute whenever they are read, with PyTorch's names."""
from __future__ import annotations

from typing import Any

from ntgrad.codegen.ir import ArgumentError, AssignError, shown
from ntgrad.compat.public import show
from ntgrad.graph import checked, no_grad
from ntgrad.nn.containers import ModuleDict, ModuleList
from ntgrad.nn.module import Module
from ntgrad.tensor import Tensor

from .weights import change, like, own

__all__ = ["ParametrizationList", "is_parametrized", "register_parametrization", "remove_parametrizations"]


class ParametrizationList(ModuleList):
  """What computes one tensor: ``original``, or ``original0``, ``original1``, .., and the Modules that it goes through."""
  _many = 0   # how many originals there are that the first Module takes
  original: Tensor

  def _originals(self) -> list[Any]: return [getattr(self, f"original{i}") for i in range(self._many)] or [self.original]

  def __call__(self) -> Any:
    """The tensor."""
    first, *others = self
    x = first(*self._originals())
    for module in others: x = module(x)
    return x

  def right_inverse(self, value: Tensor) -> None:
    """Write the originals that give a value. Raises AssignError where a Module has no ``right_inverse``."""
    with no_grad():
      for module in reversed(list(self)):
        if not hasattr(module, "right_inverse"):
          raise AssignError(f"a parametrized tensor is assigned, and {type(module).__name__} has no right_inverse(value); define "
                            "it, or write the original")
        value = module.right_inverse(value)
      for old, new in zip(self._originals(), value if self._many else (value,)): old.assign(new)


@checked
def register_parametrization(module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> Module:
  """Have a tensor of a Module computed by ``parametrization(tensor)`` from now on, whenever it is read; gives the Module. What it
  is made of lies in ``module.parametrizations.<name>``: ``original``, or ``original0``, .. where
  ``parametrization.right_inverse`` gives several for the tensor as it is. A second one is applied to the first one's result.
  Raises ArgumentError for a result of another shape or dtype, unless ``unsafe``."""
  m, name = module, tensor_name   # type: Any, str
  parametrization.train(m.training)
  again = is_parametrized(m, name)
  old = getattr(m, name) if again else own("register_parametrization", m, name)
  parts, given = m.parametrizations[name] if again else ParametrizationList(), old   # type: Any, Any
  with no_grad():
    if not again and hasattr(parametrization, "right_inverse"): given = parametrization.right_inverse(old)
    after = parametrization(*given) if isinstance(given, (tuple, list)) else parametrization(given)
  if not unsafe and (not isinstance(after, Tensor) or (after.shape, after.dtype) != (old.shape, old.dtype)):
    raise ArgumentError(f"register_parametrization: {type(parametrization).__name__} gives {shown(after)} for {name} of shape "
                        f"{old.shape}; it must keep shape and dtype (unsafe=True takes others)")
  if again:
    parts.append(parametrization)
    return module
  if isinstance(given, (tuple, list)):
    parts._many = len(given)
    for i, t in enumerate(given): setattr(parts, f"original{i}", like(t, old))
  else: parts.original = old if given is old else like(given, old)
  parts.append(parametrization)
  delattr(m, name)
  if not is_parametrized(m): m.parametrizations = ModuleDict()
  m.parametrizations[name] = parts
  change(m, name, True)
  return module


@checked
def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
  """Whether a Module has parametrizations, or one of this tensor."""
  found = vars(module).get("parametrizations")
  return isinstance(found, ModuleDict) and (len(found) > 0 if tensor_name is None else tensor_name in found)


@checked
def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
  """Have a tensor stored again, with its present value, or without ``leave_parametrized`` its original; gives the Module. Raises
  ArgumentError where it has no parametrization, or several originals."""
  m: Any = module
  if not is_parametrized(m, tensor_name):
    raise ArgumentError(f"remove_parametrizations: {type(m).__name__} has no parametrization of {tensor_name!r}")
  parts = m.parametrizations[tensor_name]
  old = parts._originals()
  if not leave_parametrized and parts._many:
    raise ArgumentError(f"remove_parametrizations: {tensor_name} has {parts._many} originals; leave_parametrized must be True")
  value = like(parts(), old[0]) if leave_parametrized else old[0]
  del m.parametrizations[tensor_name]
  if not len(m.parametrizations): del m.parametrizations
  change(m, tensor_name, False)
  setattr(m, tensor_name, value)
  return module


show(__name__)
