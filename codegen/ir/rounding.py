"""Which products may round float32 factors to tf32 (10 bits of mantissa), as matrix units of GPUs multiply them: all of them by a
setting, or those whose factors are marked. A mark is a CAST to the dtype that the value has: it changes nothing by itself."""
from __future__ import annotations

from collections.abc import Iterable

from .config import config
from .dtype import dtypes
from .uop import MOVEMENT, Ops, TernaryOps, UOp

TF32 = "tf32"   # arg of such a CAST


def is_marked(factors: Iterable[UOp]) -> bool:
  """Whether one of a product's factors is marked. One is enough: gradients multiply a marked factor by others."""
  for u in factors:
    while u.arg is TernaryOps.WHERE: u = u.src[1]   # which leaves elements out
    if u.op is Ops.CAST and u.arg == TF32: return True
  return False


def may_round(factors: Iterable[UOp]) -> bool:
  """Whether a product of float32 factors may round them."""
  return bool(config.allow_tf32) or is_marked(factors)


def multiplied_exactly(product: UOp) -> bool:
  """Whether two values of float32 are multiplied as such: neither has fewer bits, or may be rounded to them."""
  if product.dtype is not dtypes.float32 or may_round(product.src): return False
  for u in product.src:
    while (u.op in MOVEMENT or u.op is Ops.CAST) and u.dtype.itemsize > 2: u = u.src[0]
    if u.dtype.itemsize <= 2: return False
  return True
