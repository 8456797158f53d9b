"""Rows of a table by index."""
from __future__ import annotations

import math

from ntgrad.checks import checked
from ntgrad.codegen.dtype import dtypes
from ntgrad.codegen.errors import DTypeError
from ntgrad.nn.common import size
from ntgrad.tensor import Tensor


@checked
class Embedding:
  """Rows of a table: int ``(..) -> (.., embed_size)``. ``weight`` is (vocab_size, embed_size), Glorot uniform."""
  _room = "nn."

  def __init__(self, vocab_size: int, embed_size: int):
    self.vocab_size, self.embed_size = size("Embedding", "vocab_size", vocab_size), size("Embedding", "embed_size", embed_size)
    bound = math.sqrt(6 / (vocab_size + embed_size))
    self.weight = Tensor.uniform(vocab_size, embed_size, low=-bound, high=bound, requires_grad=True)

  def __call__(self, idx: Tensor) -> Tensor:
    """``(..) -> (.., embed_size)``, as ``weight[idx]``. Raises DTypeError for an index that is not an integer."""
    if not dtypes.is_int(idx.dtype):
      raise DTypeError(f"nn.Embedding: index of {idx.dtype.name}, expected an integer dtype; use idx.cast('int32')")
    return self.weight[idx]


__all__ = ["Embedding"]
