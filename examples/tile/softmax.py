"""Softmax of the rows: a program has a whole row, whatever its length."""
import numpy as np

import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad.tile import Tensor


def arrangement(input, output):
  return input.tile((1, -1)), output.tile((1, -1))


def application(input, output):
  exponential = tl.exp(input - tl.max(input, axis=1, keep_dims=True))
  output = exponential / tl.sum(exponential, axis=1, keep_dims=True)


softmax = tile.make(arrangement, application, (Tensor(2), Tensor(2)), kernel_name="softmax")


def case(rng):
  """Arguments for one call, the last of them written; and what must be in it."""
  x = rng.standard_normal((20, 333), np.float32)
  e = np.exp(x - x.max(1, keepdims=True))
  return softmax, (x, np.empty_like(x)), e / e.sum(1, keepdims=True)


if __name__ == "__main__":
  from show import show
  show(case)
