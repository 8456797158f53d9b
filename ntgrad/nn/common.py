"""What layers read their sizes by, and how they refuse inputs."""
from __future__ import annotations

import math
from typing import Any, Callable

import numpy as np

from ntgrad.codegen.ir import ArgumentError, DType, DTypeError, ShapeError, dtypes, shown
from ntgrad.core import MAX_SIZE, real_number, whole_number
from ntgrad.engine.observers import observers
from ntgrad.graph import Ints, no_flag
from ntgrad.tensor import Tensor


def size(layer: str, what: str, n: Any) -> int:
  """A size as a whole number. Raises ArgumentError."""
  whole_number(f"nn.{layer}", what, n)
  return n


MANY = 65535   # layers, or parts, that are made one by one


def count(layer: str, what: str, n: Any) -> int:
  """A number of things that are made one by one. Raises ArgumentError."""
  if size(layer, what, n) > MANY: raise ArgumentError(f"nn.{layer}: {what} is {shown(n)}, expected up to {MANY}")
  return n


def ints(layer: str, what: str, x: Ints, rank: int, least: int) -> tuple[int, ...]:
  """``rank`` whole numbers, given one for all or each. Raises ArgumentError."""
  out = (x,) * rank if isinstance(x, int) else tuple(x)
  if len(out) != rank or not all(least <= n <= MAX_SIZE for n in out):
    raise ArgumentError(f"nn.{layer}: {what} is {shown(x)}, expected a whole number from {least} to {MAX_SIZE}, "
                        f"or {rank} of them")
  return out


def last(layer: str, x: Tensor, want: int, what: str) -> None:
  """Raises ShapeError for an input whose last dimension is not the wanted one."""
  if x.ndim == 0 or x.shape[-1] != want:
    raise ShapeError(f"nn.{layer}: input of shape {tuple(x.shape)}, expected (.., {want}): its last dimension is {what}")


def number(least: float = 0.0, below: float = math.inf, beyond: bool = False) -> Callable[[str, str, Any], float]:
  """Takes a finite number of at least ``least`` (``beyond``: greater) and below ``below``. Raises ArgumentError."""
  def check(name: str, what: str, value: Any) -> float:
    try: x = float(no_flag(name, what, value))
    except (TypeError, ValueError, OverflowError):
      raise ArgumentError(f"{name}: {what} is {shown(value)}, expected a number") from None
    if not (x > least if beyond else x >= least) or not x < below or x == -math.inf:
      kind = "" if least == -math.inf else f" {'above' if beyond else 'of at least'} {least:g}"
      if kind and below != math.inf: kind += f" and below {below:g}"
      raise ArgumentError(f"{name}: {what} is {value!r}, expected a number{kind}")
    return x
  return check


def one_of(name: str, what: str, value: Any, *choices: str) -> str:
  """One of several words. Raises ArgumentError."""
  if value in choices: return str(value)
  raise ArgumentError(f"{name}: {what} is {shown(value)}, expected {', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}")


def probability(name: str, what: str, value: Any) -> Any:
  """A number from 0 to 1. Raises ArgumentError."""
  if not 0 <= real_number(name, what, value) <= 1: raise ArgumentError(f"{name}: {what} is {value}, expected 0 to 1")
  return value


def leaf(*shape: int, bound: float) -> Tensor:
  """A parameter that begins as U(-bound, bound)."""
  for o in observers: o.built("a layer's parameters")
  return Tensor.uniform(*shape, low=-bound, high=bound, requires_grad=True)


def is_dtype(x: Any) -> bool:
  """Whether something names a dtype, or is one."""
  try: return bool(dtypes.of(x))
  except DTypeError: return False


def spatial(n: int) -> str:
  """Names for n spatial dimensions, for messages."""
  return ", ".join("dhw"[3 - n:])


def batched_or_not(layer: str, x: Tensor, n: int, channels: int | None = None) -> None:
  """Raises ShapeError for an input that has not n spatial dimensions behind its channels, or not so many of these."""
  if x.ndim not in (n + 1, n + 2) or channels not in (None, x.shape[-1 - n]):
    c, dims = "c" if channels is None else channels, spatial(n)
    raise ShapeError(f"nn.{layer}: input of shape {tuple(x.shape)}, expected (n, {c}, {dims}) or ({c}, {dims})")


def untrained(value: float, *shape: int, dtype: DType | None = None) -> Tensor:
  """A number everywhere (of the default float unless told otherwise), that no optimizer trains. It lies in memory from the start:
  a step that reads and writes it has one form, where the first one would read a number, and is compiled once."""
  return Tensor(np.full(shape, value, (dtype or dtypes.default_float).np), requires_grad=False)
