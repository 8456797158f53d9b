"""Results of functions that give several tensors: named tuples, as in PyTorch. A script that takes such a tuple for a tensor is
told so: the operators of tuples mean something else."""
from __future__ import annotations

from typing import Any

import numpy as np

from ntgrad.codegen.ir import ArgumentError, shown

_MEANT_OF_ONE = (
  "sub mul truediv floordiv mod pow matmul and or xor lshift rshift rsub rmul rtruediv rfloordiv rmod rpow rmatmul rand ror "
  "rxor rlshift rrshift lt le gt ge neg pos abs invert float int round array").split()   # what is asked of one tensor


class Several:
  """The base of such a tuple, beside the NamedTuple with its names."""
  __slots__ = ()

  def refused(self: Any, what: str = "") -> ArgumentError:
    """The error where it was taken for a tensor, to do ``what`` with."""
    first = self._fields[0]   # a NamedTuple has them
    return ArgumentError(
      f"({', '.join(self._fields)}) is a tuple of tensors, not one tensor{what}; take .{first}"
      f"{', or write axis= instead of the dim, as in x.max(axis=1): that gives the values alone' if first == 'values' else ''}")

  def __getattr__(self, name: str) -> Any:
    if name[:1] == "_": raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
    raise AttributeError(str(self.refused(f", and has no .{name}")))

  def __getitem__(self: Any, index: Any) -> Any:
    if isinstance(index, (int, slice, np.integer)): return tuple.__getitem__(self, index)
    raise self.refused(f", and takes no index {shown(index)}")

  def __add__(self: Any, x: Any) -> Any:
    if not isinstance(x, tuple) or isinstance(x, Several): raise self.refused()
    return tuple(self) + x
  def __radd__(self: Any, x: Any) -> Any:
    if not isinstance(x, tuple): raise self.refused()
    return x + tuple(self)
  def __eq__(self: Any, x: Any) -> Any:
    if x is not None and not isinstance(x, (tuple, list, str)): raise self.refused()
    return tuple.__eq__(self, x)
  def __ne__(self, x: Any) -> Any: return not self == x
  def __format__(self, spec: str) -> str:
    if spec: raise self.refused()
    return repr(self)
  def __hash__(self: Any) -> int: return tuple.__hash__(self)


def _refuse(self: Any, *operands: Any, **how: Any) -> Any: raise self.refused()


for _name in _MEANT_OF_ONE: setattr(Several, f"__{_name}__", _refuse)
