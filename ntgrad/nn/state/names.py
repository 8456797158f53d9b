"""The tensors of a model by name."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ntgrad.codegen.ir.errors import StateError, shown
from ntgrad.graph.buffer_names import remember_names
from ntgrad.graph.checks import checked
from ntgrad.nn.tree import walk
from ntgrad.tensor import Tensor


@checked
def get_state_dict(obj: Any, prefix: str = "") -> dict[str, Tensor]:
  """Every Tensor reachable from ``obj`` (attributes, dict values, list and tuple items) under its dotted path.

  ``{"l1.weight": Tensor, "layers.0.bias": Tensor, ..}``, in the order of definition. A tensor held twice is listed
  under both names. ``prefix`` goes before every name. Schedules and tables call the tensors so from then on. Raises StateError
  where two paths spell one name.
  """
  out = tensors_in(obj, prefix)
  remember_names(out)
  return out


def tensors_in(obj: Any, prefix: str = "") -> dict[str, Tensor]:
  """:func:`get_state_dict` without a note of the names."""
  out: dict[str, Tensor] = {}
  for path, x in (("", obj), *[(p.path, p.value) for p in walk(obj)]):
    if not isinstance(x, Tensor): continue
    name = ".".join(filter(None, (prefix.rstrip("."), path)))
    if out.setdefault(name, x) is not x:
      raise StateError(f"get_state_dict: two different tensors are both called {name!r}; rename one of the attributes or keys")
  return out


@checked
def get_parameters(obj: Any) -> list[Tensor]:
  """Every Tensor reachable from ``obj``, each once, in the order of :func:`get_state_dict`.

  Includes tensors that are not trained (running statistics); optimizers train those with ``requires_grad`` and leave the others.
  """
  return list({id(t): t for t in tensors_in(obj).values()}.values())


def listed(names: Sequence[Any], most: int = 8) -> str:
  """The first names for a message, and how many more there are."""
  said = ", ".join(map(shown, names[:most]))
  return said if len(names) <= most else f"{said} and {len(names) - most} more"
