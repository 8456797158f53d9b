"""Filters of pictures: blur, edges, sharpening, a histogram that is made even."""
import sys

import numpy as np

from ntgrad import Tensor


def gaussian(size: int, sigma: float) -> Tensor:
  at = Tensor.arange(size) - (size - 1) / 2
  line = (-(at / sigma).square() / 2).exp()
  line = line / line.sum()
  return line.outer(line)


def filtered(picture: Tensor, kernel: Tensor) -> Tensor:
  """Each channel of (c, h, w) with a kernel, edges repeated."""
  c, p = picture.shape[0], kernel.shape[0] // 2
  padded = picture.unsqueeze(0).pad((p, p, p, p), mode="replicate")
  return padded.conv2d(kernel.reshape(1, 1, *kernel.shape).expand(c, 1, *kernel.shape), groups=c)[0]


def edges(picture: Tensor) -> Tensor:
  sobel = Tensor([[1.0, 0.0, -1.0], [2.0, 0.0, -2.0], [1.0, 0.0, -1.0]])
  return (filtered(picture, sobel).square() + filtered(picture, sobel.T).square()).sqrt()


def sharpened(picture: Tensor, amount: float = 0.7) -> Tensor:
  return (picture + (picture - filtered(picture, gaussian(7, 1.5))) * amount).clip(0, 1)


def equalised(picture: Tensor) -> Tensor:
  """As many pixels of each brightness."""
  level = (picture * 255).round().int().flatten()
  counts = Tensor.zeros(256).scatter(0, level, Tensor.ones(level.shape[0]), reduce="add")
  return (counts.cumsum() / level.shape[0])[level].reshape(picture.shape)


def main() -> float:
  y, x = np.mgrid[0:96, 0:128]
  disc = ((x - 64) ** 2 + (y - 48) ** 2 < 900).astype(np.float32)
  noise = np.random.default_rng(0).standard_normal((3, 96, 128)).astype(np.float32) * 0.1
  picture = Tensor((disc * 0.6 + 0.2 + noise).clip(0, 1).astype(np.float32))
  blurred, found = filtered(picture, gaussian(9, 2.0)), edges(filtered(picture, gaussian(9, 2.0)))
  ring = found.numpy()[:, np.abs(np.hypot(x - 64, y - 48) - 30) < 2].mean() / found.numpy().mean()
  flat = equalised(picture).numpy()
  sharp = sharpened(picture)
  print(f"noise {picture[:, :20, :20].std().item():.3f} -> {blurred[:, :20, :20].std().item():.3f}, "
        f"edge on the ring {ring:.1f} × the mean, sharpened in {sharp.min():.1f}..{sharp.max():.1f}, "
        f"equalised mean {flat.mean():.2f}")
  return float(ring)


if __name__ == "__main__": sys.exit(main() < 3)
