"""Max pooling: windows of the last two dimensions, which overlap where the stride is smaller than the window."""
import numpy as np

import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad.tile import Symbol, Tensor, block_size

WINDOW_H, WINDOW_W = Symbol("WINDOW_H", constexpr=True), Symbol("WINDOW_W", constexpr=True)
BLOCK = block_size()


def arrangement(input, output):
  windows = input.tile((1, 1, WINDOW_H, WINDOW_W), strides=(-1, -1, 2, 2), floor_mode=True)
  windows = windows.ravel()                                     # (n, c, h, w) and (1, 1, WINDOW_H, WINDOW_W) in one level
  windows = windows.flatten(start_dim=4).flatten(end_dim=4)     # (windows, elements of a window)
  return windows.tile((BLOCK, -1)), output.flatten().unsqueeze(1).tile((BLOCK, 1))


def application(input, output):
  output = tl.max(input, axis=1, keep_dims=True)


max_pool2d = tile.make(arrangement, application, (Tensor(4, other=float("-inf")), Tensor(4)), kernel_name="max_pool2d")


def case(rng):
  """Arguments for one call, the last of them written; and what must be in it."""
  x = rng.standard_normal((2, 3, 13, 17), np.float32)
  want = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))[:, :, ::2, ::2].max((4, 5))
  return max_pool2d, (x, np.empty(want.shape, np.float32), {"WINDOW_H": 3, "WINDOW_W": 3}), want


if __name__ == "__main__":
  from show import show
  show(case)
