"""What several functions need: results written to their input, reductions by their old names."""
from __future__ import annotations

from ntgrad.tensor import Tensor


def written(name: str, input: Tensor, result: Tensor, inplace: bool = True) -> Tensor:
  """A result, or with ``inplace`` the input with the result written to it. Raises as ``Tensor.add_``."""
  return input._in_place(name, lambda: result) if inplace else result


def how(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
  """The reduction, which the two older arguments stand for where one of them is given."""
  if size_average is None and reduce is None: return reduction
  if reduce is False: return "none"
  return "sum" if size_average is False else "mean"
