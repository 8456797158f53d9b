"""Taking nested arguments and results apart and putting them together: Tensors out of tuples, lists, dicts and dataclasses."""
from __future__ import annotations

import copy
import dataclasses
from enum import Enum
from typing import Any, Callable

import numpy as np

from ntgrad.codegen.dtype import DType
from ntgrad.core import Base

VALUES = (type(None), bool, int, float, complex, str, bytes, range, slice, type(Ellipsis), DType, Enum)


@dataclasses.dataclass
class Pieces:
  """Nested values taken apart: the containers as marks, Tensors and other leaves with the place where they were."""
  marks: list[Any] = dataclasses.field(default_factory=list)
  tensors: list[Any] = dataclasses.field(default_factory=list)
  places: list[str] = dataclasses.field(default_factory=list)          # of the Tensors
  others: list[Any] = dataclasses.field(default_factory=list)
  other_places: list[str] = dataclasses.field(default_factory=list)


def take(value: Any, place: str, out: Pieces) -> Pieces:
  """Add what ``value`` is made of to ``out``; ``place`` is what an error calls it."""
  kind = type(value)
  if isinstance(value, Base):
    out.marks.append("Tensor")
    out.tensors.append(value)
    out.places.append(place)
  elif kind is tuple or kind is list or (isinstance(value, (tuple, list))):
    out.marks.append((kind, len(value)))
    for i, v in enumerate(value): take(v, f"{place}[{i}]", out)
  elif isinstance(value, dict):
    out.marks.append((kind, tuple(value)))
    for k, v in value.items(): take(v, f"{place}[{k!r}]", out)
  elif dataclasses.is_dataclass(value) and not isinstance(value, type) and not isinstance(value, VALUES):
    names = tuple([f.name for f in dataclasses.fields(value) if hasattr(value, f.name)])
    out.marks.append((kind, names))
    for n in names: take(getattr(value, n), f"{place}.{n}", out)
  else:
    out.marks.append(None)
    out.others.append(value)
    out.other_places.append(place)
  return out


def put(value: Any, tensor: Callable[[], Any]) -> Any:
  """``value`` with each Tensor replaced by what ``tensor`` gives, in the order of ``take``. Containers with a Tensor inside are new ones."""
  if isinstance(value, Base): return tensor()
  if isinstance(value, (tuple, list)):
    items = [put(v, tensor) for v in value]
    if all([a is b for a, b in zip(items, value)]): return value
    if type(value) in (tuple, list): return type(value)(items)
    if isinstance(value, tuple): return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    rebuilt: Any = copy.copy(value)
    rebuilt[:] = items
    return rebuilt
  if isinstance(value, dict):
    changed = {k: put(v, tensor) for k, v in value.items()}
    if all([changed[k] is v for k, v in value.items()]): return value
    if type(value) is dict: return changed
    rebuilt = copy.copy(value)
    for k, v in changed.items(): rebuilt[k] = v
    return rebuilt
  if dataclasses.is_dataclass(value) and not isinstance(value, type) and not isinstance(value, VALUES):
    fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if hasattr(value, f.name)}
    changed = {n: put(v, tensor) for n, v in fields.items()}
    if all([changed[n] is v for n, v in fields.items()]): return value
    rebuilt = copy.copy(value)
    for n, v in changed.items(): object.__setattr__(rebuilt, n, v)
    return rebuilt
  return value


def kept(value: Any) -> Any:
  """A leaf as it is to be remembered: what may change in place is copied."""
  return value.copy() if isinstance(value, (np.ndarray, bytearray)) else value


def same(a: Any, b: Any) -> bool:
  """Whether two leaves are the same value: numbers, strings and arrays by what they are, all else by identity."""
  if a is b: return True
  if type(a) is not type(b): return False
  if isinstance(a, (float, complex)): return repr(a) == repr(b)   # -0.0 is not 0.0, nan is nan
  if isinstance(a, VALUES): return bool(a == b)
  if isinstance(a, (np.ndarray, np.generic)): return bool(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")) and a.dtype == b.dtype
  return isinstance(a, bytearray) and a == b


def text(value: Any) -> str:
  """Arguments in short, for messages: (Tensor, {'y': Tensor}, 3)."""
  if isinstance(value, Base): return "Tensor"
  if isinstance(value, dict): return "{" + ", ".join(f"{k!r}: {text(v)}" for k, v in value.items()) + "}"
  if isinstance(value, list): return "[" + ", ".join(map(text, value)) + "]"
  if isinstance(value, tuple): return "(" + ", ".join(map(text, value)) + ("," if len(value) == 1 else "") + ")"
  short = repr(value) if isinstance(value, VALUES) else f"<{type(value).__name__}>"
  return short if len(short) <= 60 else short[:57] + "..."
