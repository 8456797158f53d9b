"""z = x + y, a block of elements a program."""
import numpy as np

import ntgrad.tile as tile
from ntgrad.tile import Tensor, block_size

BLOCK = block_size()


def arrangement(x, y, z):
  return x.tile((BLOCK,)), y.tile((BLOCK,)), z.tile((BLOCK,))


def application(x, y, z):
  z = x + y


add = tile.make(arrangement, application, (Tensor(1), Tensor(1), Tensor(1)), kernel_name="add")


def case(rng):
  """Arguments for one call, the last of them written; and what must be in it."""
  x, y = rng.standard_normal((2, 1000), np.float32)
  return add, (x, y, np.empty_like(x)), x + y


if __name__ == "__main__":
  from show import show
  show(case)
