"""k-means of points in a plane."""
import sys

import numpy as np

from ntgrad import Tensor, TinyJit


def kmeans(x: Tensor, k: int, rounds: int = 20) -> tuple[Tensor, Tensor]:
  """Lloyd's algorithm: the centres, and each point's."""
  centres = x[:1]
  for _ in range(k - 1):   # begin with points that lie far from those before
    nearest = (x.unsqueeze(1) - centres.unsqueeze(0)).square().sum(-1).min(axis=1)
    centres = Tensor.cat(centres, x[nearest.argmax()].reshape(1, -1))

  @TinyJit
  def step(c: Tensor) -> tuple[Tensor, Tensor]:
    distance = (x.unsqueeze(1) - c.unsqueeze(0)).square().sum(-1)
    labels = distance.argmin(axis=1)
    member = labels.one_hot(k).float()
    moved = member.T @ x / member.sum(0).clamp(min_=1).unsqueeze(1)
    return moved.realize(), labels.realize()

  for _ in range(rounds): centres, labels = step(centres)
  return centres, labels


def main() -> float:
  rng = np.random.default_rng(0)
  true = np.array([[0, 0], [6, 1], [2, 7], [-5, 4]], dtype=np.float32)
  which = rng.integers(0, 4, 2000)
  points = Tensor(true[which] + rng.standard_normal((2000, 2)).astype(np.float32))
  centres, labels = kmeans(points, 4)
  found = centres.numpy()
  error = max(np.abs(found - t).sum(1).min() for t in true)
  print(f"centres\n{found.round(2)}\nlargest error {error:.3f}")
  return float(error)


if __name__ == "__main__": sys.exit(main() > 0.3)
