"""Convolution as an implicit matrix product: the windows of the input are the rows of a matrix that never exists."""
import numpy as np
from matmul import application, arrangement as matmul_arrangement

import ntgrad.tile as tile
from ntgrad.tile import Tensor


def arrangement(input, filter, output):
  windows = input.tile((1, *filter.shape[1:]), strides=(-1, -1, 1, 1), floor_mode=True)   # (n, 1, p, q) of (1, c, r, s)
  windows = windows.squeeze(1)
  windows.dtype = windows.dtype.squeeze(0)
  rows = windows.ravel().flatten(end_dim=3).flatten(start_dim=1)                            # (n*p*q, c*r*s)
  columns = filter.flatten(start_dim=1).permute((1, 0))                                     # (c*r*s, k)
  pixels = output.permute((0, 2, 3, 1)).flatten(end_dim=3)                                  # (n*p*q, k)
  return matmul_arrangement(rows, columns, pixels)


conv2d = tile.make(arrangement, application, (Tensor(4), Tensor(4), Tensor(4)), kernel_name="conv2d")


def case(rng):
  """Arguments for one call, the last of them written; and what must be in it."""
  x, w = rng.standard_normal((2, 3, 9, 10), np.float32), rng.standard_normal((5, 3, 3, 2), np.float32)
  windows = np.lib.stride_tricks.sliding_window_view(x, (3, 2), axis=(2, 3))
  want = np.einsum("nchwrs,kcrs->nkhw", windows, w)
  return conv2d, (x, w, np.empty(want.shape, np.float32)), want


if __name__ == "__main__":
  from show import show
  show(case)
