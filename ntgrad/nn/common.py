"""What layers read their sizes by, and how they refuse inputs."""
from __future__ import annotations

from typing import Any

from ntgrad.checks import Ints
from ntgrad.codegen.errors import ArgumentError, ShapeError, shown
from ntgrad.core import MAX_SIZE
from ntgrad.tensor import Tensor


def size(layer: str, what: str, n: Any) -> int:
  """A size as a whole number. Raises ArgumentError."""
  if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= MAX_SIZE:
    raise ArgumentError(f"nn.{layer}: {what} is {shown(n)}, expected a whole number from 1 to {MAX_SIZE}")
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
    raise ArgumentError(
      f"nn.{layer}: {what} is {shown(x)}, expected a whole number from {least} to {MAX_SIZE}, or {rank} of them"
    )
  return out


def last(layer: str, x: Tensor, want: int, what: str) -> None:
  """Raises ShapeError for an input whose last dimension is not the wanted one."""
  if x.ndim == 0 or x.shape[-1] != want:
    raise ShapeError(f"nn.{layer}: input of shape {tuple(x.shape)}, expected (.., {want}): its last dimension is {what}")


def untrained(value: Tensor) -> Tensor:
  """A value in memory of its own (equal constants are one node) that no optimizer trains."""
  return value.clone().requires_grad_(False)


def implicit_dim(dim: Any, ndim: int) -> Any:
  """The dim that a softmax without one goes along in PyTorch: 0 for 0, 1 and 3 dimensions, else 1."""
  return dim if dim is not None else 0 if ndim in (0, 1, 3) else 1
