"""Weights that are computed of other tensors whenever they are read; of these the normalised ones."""
from __future__ import annotations

from functools import lru_cache
from typing import Any

from ntgrad.codegen.ir import ArgumentError, AssignError
from ntgrad.graph import checked, no_grad
from ntgrad.nn.module import Module, Parameter
from ntgrad.tensor import Tensor


# ---- Modules of which some attributes are computed: they are of a class of their own
def _value(m: Any, name: str) -> Any:
  dims = vars(m).get("_norm_dims", {})
  if name not in dims: return m.parametrizations[name]()
  return normed(getattr(m, f"{name}_v"), getattr(m, f"{name}_g"), dims[name])


def _put(m: Any, name: str, value: Any) -> None:
  if name in vars(m).get("_norm_dims", {}):
    raise AssignError(f"{type(m).__name__}.{name} is computed of {name}_g and {name}_v; assign these, or call remove_weight_norm")
  m.parametrizations[name].right_inverse(value)


@lru_cache(maxsize=256)
def _class_of(kind: Any, names: frozenset[str]) -> Any:
  """A class of Modules whose attributes of these names are computed."""
  def computed(name: str) -> property: return property(lambda m: _value(m, name), lambda m, value: _put(m, name, value))
  def reduce(m: Any, protocol: Any) -> Any: return _new, (kind, names), vars(m)
  return type(kind)(f"Parametrized{kind.__name__}", (kind,), {
    "__module__": kind.__module__, "__doc__": kind.__doc__, "__reduce_ex__": reduce, "_computes": (kind, names),
    **{name: computed(name) for name in names}})


def _new(kind: Any, names: frozenset[str]) -> Any: return object.__new__(_class_of(kind, names))


def change(m: Module, name: str, computes: bool) -> None:
  """Have an attribute of a Module computed from now on, or no longer."""
  kind, names = getattr(type(m), "_computes", (type(m), frozenset()))
  names = names | {name} if computes else names - {name}
  m.__class__ = _class_of(kind, names) if names else kind   # type: ignore[arg-type]


def own(caller: str, m: Any, name: str) -> Tensor:
  """A tensor that is stored in a Module. Raises ArgumentError."""
  if isinstance(found := vars(m).get(name), Tensor): return found
  raise ArgumentError(f"{caller}: {type(m).__name__} has no tensor {name!r} of its own")


def like(value: Tensor, old: Tensor) -> Tensor: return Parameter(value) if old.requires_grad else value.detach()


# ---- weight normalisation
def norm_beside(v: Tensor, dim: int | None) -> Tensor:
  """The norm of each part along ``dim``, of the shape that goes with ``v``; of all of it for None, or -1."""
  if dim is None or type(dim) is int and dim == -1: return v.square().sum().sqrt()
  at = v._dim("weight_norm", dim)
  return v.square().sum([d for d in range(v.ndim) if d != at], keepdim=True).sqrt()


def normed(v: Tensor, g: Tensor, dim: int | None) -> Tensor: return v * (g / norm_beside(v, dim))


@checked
def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
  """Have a weight computed as ``g * v / ||v||`` (https://arxiv.org/abs/1602.07868) of the parameters ``<name>_g`` and
  ``<name>_v``; gives the Module. The norms are those of each part along ``dim``; None: of all of it. Raises ArgumentError,
  AxisError."""
  m: Any = module
  v = own("weight_norm", m, name)
  with no_grad(): g = norm_beside(v, dim)
  delattr(m, name)
  for part, value in (("g", g), ("v", v)): setattr(m, f"{name}_{part}", Parameter(value))
  m._norm_dims = {**vars(m).get("_norm_dims", {}), name: dim}
  change(m, name, True)
  return module


@checked
def remove_weight_norm(module: Module, name: str = "weight") -> Module:
  """Have a weight stored again that :func:`weight_norm` has taken apart; gives the Module. Raises ArgumentError for another."""
  m: Any = module
  dims = dict(vars(m).get("_norm_dims", {}))
  if name not in dims: raise ArgumentError(f"remove_weight_norm: {type(m).__name__} has no weight_norm of {name!r}")
  value = Parameter(getattr(m, name))
  del dims[name]
  m._norm_dims = dims
  for part in "gv": delattr(m, f"{name}_{part}")
  change(m, name, False)
  setattr(m, name, value)
  return module
