"""Modules that hold others: one after the other, in a list, by name."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any

from ntgrad.codegen.ir import ArgumentError, AxisError, MissingKeyError, shown
from ntgrad.graph import behaving, checked, mode
from ntgrad.tensor import Tensor

from .module import Module, Parameter


@checked
class _Many(Module):
  """Things under the numbers from 0, which are attributes: their tensors are called ``0.weight``."""

  def _keys(self) -> list[str]: return [k for k in vars(self) if k.isdecimal()]
  def _all(self) -> list[Any]: return [vars(self)[k] for k in self._keys()]
  def _put(self, things: Iterable[Any]) -> None:
    for k in self._keys(): delattr(self, k)
    for i, x in enumerate(things): setattr(self, str(i), x)

  def __len__(self) -> int: return len(self._all())
  def __iter__(self) -> Iterator[Any]: return iter(self._all())
  def __contains__(self, x: Any) -> bool: return any(x is y for y in self._all())
  def _at(self, index: Any) -> int:
    n = len(self)
    if not isinstance(index, int) or not -n <= index < n:
      raise AxisError(f"nn.{type(self).__name__}: index {shown(index)}, it has {n} parts")
    return index % n
  def __getitem__(self, index: int | slice) -> Any:
    if not isinstance(index, slice): return self._all()[self._at(index)]
    try: found = self._all()[index]
    except (TypeError, ValueError): raise ArgumentError(f"nn.{type(self).__name__}: {shown(index)} is no slice of ints") from None
    out = type(self)()
    out._put(found)
    out._mode = self._mode
    return out
  def __setitem__(self, index: int, x: Any) -> None: setattr(self, self._keys()[self._at(index)], x)
  def __delitem__(self, index: int) -> None:
    things = self._all()
    del things[self._at(index)]
    self._put(things)

  def append(self, module: Any) -> Any:
    """Add one at the end. Gives the container."""
    setattr(self, str(len(self)), module)
    return self
  def extend(self, modules: Iterable[Any]) -> Any:
    """Add several at the end. Gives the container."""
    for m in list(modules): self.append(m)
    return self
  def insert(self, index: int, module: Any) -> None:
    """Put one before the one that is at ``index``."""
    things = self._all()
    things.insert(index, module)
    self._put(things)


@checked
class Sequential(_Many):
  """Layers (or any functions) applied one after the other: ``nn.Sequential(nn.Linear(3, 4), nn.ReLU(), Tensor.exp)``.
  One dict of them gives each a name, which its tensors then have in front; ``add_module`` and Modules in attributes do so too.
  Raises ArgumentError for what cannot be called."""
  _names: tuple[str, ...] = ()   # of what was added by name

  def __init__(self, *layers: Any):
    super().__init__()
    named = len(layers) == 1 and isinstance(layers[0], Mapping)
    for k, x in layers[0].items() if named else enumerate(layers):
      self.add_module(_name_of(self, "Sequential", k) if named else str(k), _function("Sequential", x))

  def _keys(self) -> list[str]:
    return [k for k, x in vars(self).items() if k.isdecimal() or k in self._names or isinstance(x, Module)]
  def add_module(self, name: str, module: Any) -> None:
    """Put a layer behind the others, by a name. Raises ArgumentError for a name that no attribute can have."""
    super().add_module(name, module)
    self._names = *self._names, name

  def __call__(self, input: Any) -> Any:
    """The input through all layers."""
    if self._mode is None or self._mode is mode.training: return self._run(input)
    with behaving(self._mode): return self._run(input)

  def _run(self, x: Any) -> Any:
    for layer in self._all(): x = layer(x)
    return x


@checked
class ModuleList(_Many):
  """A list of Modules, whose tensors are called by their numbers. A plain list in an attribute does as well."""

  def __init__(self, modules: Iterable[Any] = ()):
    super().__init__()
    self._put(modules)


@checked
class ParameterList(_Many):
  """A list of parameters, which are called by their numbers. A tensor that is given becomes an ``nn.Parameter``; anything else
  stays what it is. A plain list in an attribute does as well."""

  def __init__(self, values: Iterable[Any] = ()):
    super().__init__()
    self._put(values)

  def __setattr__(self, name: str, x: Any) -> None: super().__setattr__(name, _parameter(x) if name.isdecimal() else x)
  def __iadd__(self, values: Iterable[Any]) -> Any: return self.extend(values)


def _parameter(x: Any) -> Any: return Parameter(x) if isinstance(x, Tensor) and x._state in (0, 1) else x


@checked
class ModuleDict(Module):
  """Modules by name. A plain dict in an attribute does as well. Raises ArgumentError for a name that an attribute of it has."""

  def __init__(self, modules: Mapping[str, Any] | None = None):
    super().__init__()
    if modules is not None: self.update(modules)

  def __getitem__(self, key: str) -> Any:
    if key not in self:
      raise MissingKeyError(f"nn.{type(self).__name__}: no {shown(key)}; it has {', '.join(self.keys()) or 'none'}")
    return vars(self)[key]
  def __setitem__(self, key: str, module: Any) -> None: setattr(self, _name_of(self, type(self).__name__, key), module)
  def __delitem__(self, key: str) -> None:
    self[key]
    delattr(self, key)
  def __contains__(self, key: Any) -> bool: return isinstance(key, str) and key in self.keys()
  def __len__(self) -> int: return len(self.keys())
  def __iter__(self) -> Iterator[str]: return iter(self.keys())
  def keys(self) -> list[str]:
    """The names."""
    return [k for k in vars(self) if k not in self._private]
  def update(self, modules: Mapping[str, Any]) -> None:
    """Add the Modules of a dict."""
    for k in modules: _name_of(self, type(self).__name__, k)
    for k, m in modules.items(): self[k] = m
  values: Any = MutableMapping.values
  items: Any = MutableMapping.items
  def pop(self, key: str) -> Any:
    """Take a Module out and give it. Raises MissingKeyError."""
    found = self[key]
    del self[key]
    return found
  clear: Any = MutableMapping.clear


@checked
class ParameterDict(ModuleDict):
  """Parameters by name. A tensor that is given becomes an ``nn.Parameter``; anything else stays what it is. A plain dict in an
  attribute does as well. Raises ArgumentError for a name that an attribute of it has."""

  def __init__(self, parameters: Mapping[str, Any] | None = None): super().__init__(parameters)

  def __setitem__(self, key: str, parameter: Any) -> None: super().__setitem__(key, _parameter(parameter))
  def __or__(self, other: Mapping[str, Any]) -> Any: return ParameterDict({**dict(self.items()), **dict(other.items())})
  def __reversed__(self) -> Iterator[str]: return reversed(self.keys())
  def get(self, key: str, default: Any = None) -> Any:
    """The parameter of a name, or ``default`` where there is none."""
    return self[key] if key in self else default
  def setdefault(self, key: str, default: Any = None) -> Any:
    """The parameter of a name, which becomes ``default`` where there is none."""
    if key not in self: self[key] = default
    return self[key]
  def popitem(self) -> tuple[str, Any]:
    """Take out what was added last; gives its name and itself. Raises MissingKeyError where there is nothing."""
    key = (self.keys() or [""])[-1]
    return key, self.pop(key)
  def copy(self) -> Any:
    """Another one with the same tensors."""
    return ParameterDict(dict(self.items()))


def _name_of(x: Any, container: str, key: Any) -> str:
  if not isinstance(key, str) or not key or "." in key or hasattr(type(x), key) or key == "_names":
    raise ArgumentError(f"nn.{container}: {shown(key)} cannot be a name in it; it takes text without dots that is none of its "
                        "own attributes")
  return key


def _function(container: str, x: Any) -> Any:
  if not callable(x): raise ArgumentError(f"nn.{container}: {shown(x)} cannot be called; it takes layers, or functions")
  return x
