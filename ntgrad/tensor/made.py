"""Functions made of methods of ``Tensor``, with the parameters that PyTorch gives them."""
from __future__ import annotations

import ast
import inspect
import os
from typing import Any, Callable, Mapping

from ntgrad.graph.checks import checked

from . import Tensor

_STATIC = (staticmethod, classmethod)


def method(name: str) -> Any:
  """The public method of ``Tensor`` with this name, None where there is none."""
  if name.startswith("_"): return None
  found = inspect.getattr_static(Tensor, name, None)
  return getattr(Tensor, name) if isinstance(found, _STATIC) or inspect.isfunction(found) else None


def function(name: str, parameters: str, of: str | None = None) -> Callable[..., Any]:
  """A function that calls the method ``of`` (None: the one with its name), of the first argument where that is a tensor::

      function("sum", "input, dim=None, keepdim=False, *, dtype=None")

  is ``def sum(input, dim=None, keepdim=False, *, dtype=None): return Tensor.sum(input, dim, keepdim, dtype=dtype)``. What PyTorch
  calls ``dim`` may be called ``axis``, as it may there.
  """
  called = method(of or name)
  definition: Any = ast.parse(f"def {name}({parameters}): pass").body[0]
  given = definition.args
  if next(iter(inspect.signature(called).parameters)) == "self": given.args[0].annotation = ast.Name("Tensor")
  arguments = [a.arg for a in given.args]
  named = [f"{a.arg}={a.arg}" for a in given.kwonlyargs]
  scope: dict[str, Any] = {"Tensor": Tensor, "_method": called, "__name__": __name__}
  source = f"def {name}({ast.unparse(given)}): return _method({', '.join([*arguments, *named])})"
  exec(compile(source, os.path.join(os.path.dirname(__file__), f"<function {name}>"), "exec"), scope)   # a file of ntgrad's
  out = scope[name]
  out.__doc__ = called.__doc__
  return checked(out)


def functions(table: Mapping[str, str]) -> dict[str, tuple[str, str]]:
  """Names with their parameters and methods, from a table that has the names for each list of parameters: ``"sum"``, or
  ``"expit:sigmoid"`` where the method has another name."""
  out = {}
  for parameters, names in table.items():
    for name in names.split():
      first, _, of = name.partition(":")
      out[first] = parameters, of or first
  return out


__all__ = ["function", "functions", "method"]
