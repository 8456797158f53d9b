"""Taking nested arguments and results apart and putting them together: Tensors out of tuples, lists, dicts and dataclasses."""
from __future__ import annotations

import copy
import dataclasses
from enum import Enum
from typing import Any, Callable, Sequence

import numpy as np

from ntgrad.codegen.ir import CaptureError, DType
from ntgrad.codegen.ir.nested import fold_tree
from ntgrad.core import Base

_LONGEST, _MOST = 1 << 16, 1 << 22   # characters of what a value is called, and values, in what is taken apart
VALUES = type(None), bool, int, float, complex, str, bytes, range, slice, type(Ellipsis), DType, Enum


@dataclasses.dataclass(slots=True)
class Pieces:
  """Nested values taken apart: the containers as marks, Tensors and other leaves with the place where they were."""
  marks: list[Any] = dataclasses.field(default_factory=list)
  tensors: list[Any] = dataclasses.field(default_factory=list)
  places: list[str] = dataclasses.field(default_factory=list)          # of the Tensors
  others: list[Any] = dataclasses.field(default_factory=list)
  other_places: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class Call(Pieces):
  """The arguments of a call taken apart, as they were, and the values of its sizes; why it runs plainly, in a word and in a
  sentence."""
  args: tuple[Any, ...] = ()
  kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)
  values: tuple[int, ...] = ()
  why: tuple[str, str] = "", ""


def inside(value: Any) -> tuple[Any, str, Sequence[Any], Sequence[Any]] | None:
  """Of a container what tells it from others, how an error calls its parts, their keys, and the parts. None for a leaf."""
  if isinstance(value, (tuple, list)): return len(value), "[%r]", range(len(value)), value
  if isinstance(value, dict): return tuple(value), "[%r]", tuple(value), list(value.values())
  if not dataclasses.is_dataclass(value) or isinstance(value, (type, Base, *VALUES)): return None
  names = tuple(f.name for f in dataclasses.fields(value) if hasattr(value, f.name))
  return names, ".%s", names, [getattr(value, n) for n in names]


def take(value: Any, place: str, out: Pieces) -> Pieces:
  """Add what ``value`` is made of to ``out``; ``place`` is what an error calls it."""
  stack = [(value, place)]
  while stack:
    value, place = stack.pop()
    if isinstance(value, Base):
      out.marks.append("Tensor")
      out.tensors.append(value)
      out.places.append(place)
    elif len(place) > _LONGEST or len(out.marks) > _MOST:
      raise CaptureError(f"{place[:40]}.. is nested {len(place) // 3} deep or more, has more than {_MOST} values, or has itself; "
                         "captured functions take and give what ends")
    elif (found := inside(value)) is not None:
      mark, said, keys, parts = found
      out.marks.append((type(value), mark))
      stack += [(v, place + said % (k,)) for k, v in zip(keys, parts)][::-1]
    else:
      out.marks.append(None)
      out.others.append(value)
      out.other_places.append(place)
  return out


def parts_of(value: Any) -> Sequence[Any]:
  """What a container has in it."""
  return () if (found := inside(value)) is None else found[-1]


def put(value: Any, tensor: Callable[[], Any]) -> Any:
  """``value`` with what ``tensor`` gives for each Tensor, in the order of ``take``; containers with one inside are new."""
  if isinstance(value, Base): return tensor()
  return fold_tree(value, parts_of, lambda v, parts: with_parts(v, parts) if parts else tensor() if isinstance(v, Base) else v)


def with_parts(value: Any, parts: list[Any]) -> Any:
  """A container with other things in it; itself where they are the same."""
  if all(a is b for a, b in zip(parts, parts_of(value))): return value
  kind = type(value)
  if kind is list or isinstance(value, tuple): return kind(*parts) if hasattr(value, "_fields") else kind(parts)
  if kind is dict: return dict(zip(value, parts))
  rebuilt: Any = copy.copy(value)
  if isinstance(value, list): rebuilt[:] = parts
  elif isinstance(value, dict):
    for k, v in zip(value, parts): rebuilt[k] = v
  else:
    for n, v in zip((inside(value) or ((),))[0], parts): object.__setattr__(rebuilt, n, v)
  return rebuilt


@dataclasses.dataclass(frozen=True, eq=False)
class Same:
  """An object that equals only itself."""
  value: Any

  def __eq__(self, other: object) -> bool: return isinstance(other, Same) and other.value is self.value
  def __hash__(self) -> int: return id(self.value)


def constant(value: Any) -> Any:
  """What stands for a leaf in a signature: numbers, strings and arrays are equal by what they are, all else is only itself."""
  kind = type(value)
  if isinstance(value, (float, complex)): return kind, repr(value)   # -0.0 is not 0.0, nan is nan
  if isinstance(value, slice): return kind, constant(value.start), constant(value.stop), constant(value.step)
  if isinstance(value, VALUES): return kind, value
  if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind != "O":
    return kind, value.dtype, value.shape, value.tobytes()
  return (kind, bytes(value)) if isinstance(value, bytearray) else Same(value)
