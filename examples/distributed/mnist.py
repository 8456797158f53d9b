#!/usr/bin/env python3
"""Trains a convolutional network on real handwritten digits with several processes, data parallel.

    python -m ntgrad launch -n 2 examples/distributed/mnist.py   # two processes of this machine, without a GPU too
    python examples/distributed/mnist.py                         # one: the same losses, to the last digits of float32

Every rank has a part of each batch; gradients are the mean of all ranks' ones, and batch norm is over all of the batch.
"""
from __future__ import annotations

import argparse
import time

import numpy as np

import ntgrad
from ntgrad import Tensor, distributed as dist, nn
from ntgrad.nn.data import DataLoader, DistributedSampler
from ntgrad.nn.datasets import mnist
from ntgrad.nn.parallel import DistributedDataParallel, SyncBatchNorm


def model_of(width: int) -> nn.Sequential:
  """``(n, 1, 28, 28) -> (n, 10)``, logits."""
  return nn.Sequential(
    nn.Conv2d(1, width, 5), nn.ReLU(), nn.Conv2d(width, width, 5, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(width, 2 * width, 3), nn.ReLU(), nn.Conv2d(2 * width, 2 * width, 3, bias=False), nn.BatchNorm2d(2 * width),
    nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18 * width, 10)).train()


def main(argv: list[str] | None = None) -> float:
  """Run from the command line; gives the share of the held-out digits that the model gets right."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--epochs", type=int, default=4, help="(default %(default)s)")
  parser.add_argument("--batch", type=int, default=128, help="digits in a step, of all ranks together (default %(default)s)")
  parser.add_argument("--width", type=int, default=8, help="channels of the first block (default %(default)s)")
  args = parser.parse_args(argv)
  rank, ranks = dist.get_rank(), dist.get_world_size()
  start, digits = time.perf_counter(), mnist(None)
  images = digits.train_images.astype(np.float32) / 255
  rows = nn.data.TensorDataset(images, digits.train_labels)
  sampler = DistributedSampler(rows, drop_last=True)
  loader = DataLoader(rows, args.batch // ranks, sampler=sampler, drop_last=True)

  Tensor.manual_seed(0)
  model = DistributedDataParallel(SyncBatchNorm.convert_sync_batchnorm(model_of(args.width)), broadcast_buffers=False)
  optimizer = nn.optim.Adam(list(model.parameters()), lr=0.003)

  @ntgrad.jit
  def step(x: Tensor, y: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss = model(x).cross_entropy(y)
    loss.backward()
    optimizer.step()
    return dist.functional.all_reduce(loss.detach(), "avg")

  for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    losses = [step(x, y).item() for x, y in loader]
    if rank == 0: print(f"epoch {epoch}: loss {np.mean(losses):.4f}, last {losses[-1]:.6f}")
  model.eval()
  with Tensor.no_grad():   # each rank tests its part
    mine = slice(rank, None, ranks)
    found = model(Tensor(digits.test_images[mine].astype(np.float32) / 255)).argmax(axis=1).numpy()
  right = Tensor([float((found == digits.test_labels[mine]).sum())])
  dist.all_reduce(right)
  score = right.item() / len(digits.test_labels)
  if rank == 0: print(f"{ranks} ranks: test accuracy {score:.1%}, {time.perf_counter() - start:.0f} s")
  return score


if __name__ == "__main__":
  dist.init_process_group()
  main()
