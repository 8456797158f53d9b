"""The tensors of a model by name."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ntgrad.buffer_names import remember
from ntgrad.checks import checked
from ntgrad.codegen.errors import StateError
from ntgrad.tensor import Tensor


@checked
def get_state_dict(obj: Any, prefix: str = "") -> dict[str, Tensor]:
  """Every Tensor reachable from ``obj`` (attributes, dict values, list and tuple items) under its dotted path.

  ``{"l1.weight": Tensor, "layers.0.bias": Tensor, ..}``, in the order of definition. A tensor held twice is listed
  under both names. ``prefix`` goes before every name. Schedules and tables call the tensors so from then on. Raises StateError
  where two paths spell one name.
  """
  out = tensors_in(obj, prefix)
  remember(out)
  return out


def tensors_in(obj: Any, prefix: str = "") -> dict[str, Tensor]:
  """:func:`get_state_dict` without a note of the names."""
  out: dict[str, Tensor] = {}
  # a stack, not recursion; ``above`` is the chain of containers, so that a model that refers back to itself ends
  stack: list[tuple[Any, str, tuple[int, ...]]] = [(obj, prefix.rstrip("."), ())]
  while stack:
    x, path, above = stack.pop()
    if isinstance(x, Tensor):
      if path in out and out[path] is not x:
        raise StateError(f"get_state_dict: two different tensors are both called {path!r}; rename one of the attributes or keys")
      out[path] = x
      continue
    if id(x) in above: continue
    items: list[tuple[Any, Any]]
    if isinstance(x, Mapping): items = list(x.items())
    elif isinstance(x, tuple) and hasattr(x, "_fields"): items = list(zip(x._fields, x))
    elif isinstance(x, (list, tuple)): items = list(enumerate(x))
    elif hasattr(x, "__dict__") and not isinstance(x, type): items = list(vars(x).items())
    else: continue
    stack.extend((v, f"{path}.{k}" if path else str(k), (*above, id(x))) for k, v in reversed(items))
  return out


@checked
def get_parameters(obj: Any) -> list[Tensor]:
  """Every Tensor reachable from ``obj``, each once, in the order of :func:`get_state_dict`.

  Includes tensors that are not trained (running statistics); optimizers train those with ``requires_grad`` and leave the others.
  """
  return list({id(t): t for t in tensors_in(obj).values()}.values())
