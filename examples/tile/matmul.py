"""Matrix product: a program has one tile of the output, and goes along a row of tiles of one matrix and a column of the
other's."""
import numpy as np

import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad.tile import Tensor, block_size

BM, BN, BK = block_size(), block_size(), block_size()


def arrangement(input, other, output):
  output_arranged = output.tile((BM, BN))
  input_arranged = input.tile((BM, BK)).tile((1, -1)).expand((-1, output_arranged.shape[1]))
  input_arranged.dtype = input_arranged.dtype.squeeze(0)
  other_arranged = other.tile((BK, BN)).tile((-1, 1)).expand((output_arranged.shape[0], -1))
  other_arranged.dtype = other_arranged.dtype.squeeze(1)
  return input_arranged, other_arranged, output_arranged


def application(input, other, output):
  accumulator = tl.zeros(output.shape, dtype=tl.float32)
  for k in range(input.shape[0]):
    accumulator += tl.dot(input[k], other[k])
  output = accumulator


matmul = tile.make(arrangement, application, (Tensor(2), Tensor(2), Tensor(2)), kernel_name="matmul")


def case(rng):
  """Arguments for one call, the last of them written; and what must be in it."""
  a, b = rng.standard_normal((100, 70), np.float32), rng.standard_normal((70, 90), np.float32)
  return matmul, (a, b, np.empty((100, 90), np.float32)), a @ b


if __name__ == "__main__":
  from show import show
  show(case)
