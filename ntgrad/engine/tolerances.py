"""How far two computations of one kernel may be apart that add in another order."""
from __future__ import annotations

import math

import numpy as np

from ntgrad.codegen.ir import DType
from ntgrad.codegen.kernel import Kernel

# by the bytes of a float, of the greatest value and of each one: of kernels that do the same in another order, and of kernels
# that somebody has written anew
ROUNDING = {8: 1e-12, 4: 1e-5, 2: 2e-2, 1: 0.3}
TOLERANCE = {8: 1e-9, 4: 1e-4, 2: 2e-2, 1: 0.3}
SHORT = 1024   # terms of a sum, from which on more of them are further apart


def rounding(dtype: DType, kernel: Kernel | None = None) -> float:
  """The part of a value that rounding may take, of a kernel with sums of so many terms."""
  sums = [] if kernel is None else kernel.reduces
  terms = max([math.prod([kernel.axis(i).count for i in r.arg[1]]) for r in sums], default=1) if kernel is not None else 1
  return ROUNDING[dtype.itemsize] * math.sqrt(max(terms / SHORT, 1))


def difference(want: np.ndarray, got: np.ndarray, dtype: DType, rate: float, noise: np.ndarray | None = None) -> str | None:
  """How two results differ, and by how much more than a part ``rate`` of them; None where they do not. ``noise``: how far each
  element may be off at least."""
  if not want.size: return None
  a, b, wrong, allowed = want.astype(np.float64), got.astype(np.float64), got != want, np.zeros(want.shape)
  if dtype.kind != "f":
    off = np.abs(b - a) * wrong
    if noise is not None: wrong &= noise == 0
  else:
    finite = np.isfinite(a)
    allowed = rate * (np.abs(np.where(finite, a, 0)) + np.max(np.abs(a), initial=0, where=finite))
    if noise is not None: allowed = np.maximum(allowed, noise)
    with np.errstate(invalid="ignore"): off = np.where((a == b) | np.isnan(a) & np.isnan(b), 0.0, np.abs(b - a))
    off = np.where(np.isnan(off), math.inf, off)
    wrong = off > allowed
  if not wrong.any(): return None
  at = int(np.argmax(np.where(wrong, off, -1)))
  place = at if want.ndim == 1 else tuple(map(int, np.unravel_index(at, want.shape)))
  steps = off.flat[at] / np.spacing(np.abs(want.flat[at])) if want.dtype.char in "efd" and np.isfinite(off.flat[at]) else 0
  return (f"{int(wrong.sum())} of {want.size} elements, most at element {place}: {got.flat[at]} in place of {want.flat[at]}, "
          f"a difference of {off.flat[at]:.4g} where {allowed.flat[at]:.2g} is rounding{f', {steps:.4g} ULP' if steps else ''}")
