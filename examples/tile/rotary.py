"""Rotary position embedding: each pair of halves of a head turns by its position's angle."""
import numpy as np

import ntgrad.tile as tile
from ntgrad.tile import Tensor


def arrangement(input, sine, cosine, output):
  def halves(x):                                        # (batch, length, heads) of (2) of (half a head)
    return x.tile((1, 1, 1, x.shape[3] // 2)).tile((1, 1, 1, -1))
  def table(t):                                         # the same for every batch and head
    t = t.tile((1, -1)).unsqueeze(0).unsqueeze(2).expand((input.shape[0], -1, input.shape[2], -1))
    return t
  out = []
  for x in (input, output):
    x = halves(x)
    x.dtype = x.dtype.squeeze((0, 1, 2))
    x.dtype.dtype = x.dtype.dtype.squeeze((0, 1, 2))
    out.append(x)
  tables = []
  for t in (sine, cosine):
    t = table(t)
    t.dtype = t.dtype.squeeze(0)
    tables.append(t)
  return out[0], *tables, out[1]


def application(input, sine, cosine, output):
  a, b = input[0], input[1]
  output[0] = a * cosine - b * sine
  output[1] = a * sine + b * cosine


rotary = tile.make(arrangement, application, (Tensor(4), Tensor(2), Tensor(2), Tensor(4)), kernel_name="rotary")


def case(rng):
  """Arguments for one call, the last of them written; and what must be in it."""
  x = rng.standard_normal((2, 7, 3, 16), np.float32)
  angle = np.arange(7)[:, None] / 10000 ** (np.arange(8) / 8)
  s, c = np.sin(angle).astype(np.float32), np.cos(angle).astype(np.float32)
  a, b = x[..., :8], x[..., 8:]
  s4, c4 = s[None, :, None], c[None, :, None]
  return rotary, (x, s, c, np.empty_like(x)), np.concatenate([a * c4 - b * s4, a * s4 + b * c4], -1)


if __name__ == "__main__":
  from show import show
  show(case)
