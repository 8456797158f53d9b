"""Layer norm over the last dimension, with weight and bias: a program has a row, and all programs the same weight."""
import numpy as np

import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad.tile import Tensor


def arrangement(input, weight, bias, eps, output):
  def rows(vector):
    return vector.unsqueeze(0).tile((1, -1)).expand((input.shape[0], -1))
  return input.tile((1, -1)), rows(weight), rows(bias), eps, output.tile((1, -1))


def application(input, weight, bias, eps, output):
  n = input.shape[1]
  centred = input - tl.sum(input, axis=1, keep_dims=True) / n
  variance = tl.sum(centred * centred, axis=1, keep_dims=True) / n
  output = centred * tl.rsqrt(variance + eps) * weight + bias


layer_norm = tile.make(
  arrangement, application, (Tensor(2), Tensor(1), Tensor(1), Tensor(0), Tensor(2)), kernel_name="layer_norm"
)


def case(rng):
  """Arguments for one call, the last of them written; and what must be in it."""
  x, (w, b) = rng.standard_normal((20, 200), np.float32), rng.standard_normal((2, 200), np.float32)
  want = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * w + b
  return layer_norm, (x, w, b, 1e-5, np.empty_like(x)), want


if __name__ == "__main__":
  from show import show
  show(case)
