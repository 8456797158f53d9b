"""Products of tensors under the names that people know: mm, bmm, tensordot, einsum, kron, rearrange."""
from __future__ import annotations

from ntgrad.checks import checked
from ntgrad.sorting import Sorting


@checked
class Products(Sorting):
  """Products of tensors under the names that people know: mm, bmm, tensordot, einsum, kron, rearrange."""
  __slots__ = ()


__all__ = ["Products"]
