#!/usr/bin/env python3
"""Trains a small transformer on the pages of docs/ with an optimizer whose state lies in parts on the ranks (ZeRO 1).

    python -m ntgrad launch -n 2 examples/distributed/gpt.py             # writes a checkpoint at the end, or goes on from one
    python -m ntgrad launch -n 4 examples/distributed/gpt.py --steps 400 # any number of ranks goes on from it
"""
from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from ntgrad import Tensor, distributed as dist, nn
from ntgrad.nn.parallel import ZeroRedundancyOptimizer, load_checkpoint, save_checkpoint

DOCS = Path(__file__).resolve().parents[2] / "docs"
LENGTH, WIDTH, HEADS, BLOCKS = 64, 64, 4, 2


class Block(nn.Module):
  """Attention to the letters before, then a perceptron, each added to what comes in: ``(n, length, WIDTH) -> same``."""

  def __init__(self) -> None:
    super().__init__()
    self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
    self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
    self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

  def forward(self, x: Tensor) -> Tensor:
    b, n, w = x.shape
    q, k, v = self.qkv(self.norm1(x)).reshape(b, n, 3, HEADS, w // HEADS).permute(2, 0, 3, 1, 4)
    y = q.scaled_dot_product_attention(k, v, is_causal=True)
    x = x + self.out(y.transpose(1, 2).reshape(b, n, w))
    return x + self.down(self.up(self.norm2(x)).gelu())


class GPT(nn.Module):
  """Letters (n, length) -> logits of the next ones (n, length, 128)."""

  def __init__(self) -> None:
    super().__init__()
    self.letter, self.place = nn.Embedding(128, WIDTH), nn.Embedding(LENGTH, WIDTH)
    self.blocks = nn.ModuleList([Block() for _ in range(BLOCKS)])
    self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 128)

  def forward(self, letters: Tensor) -> Tensor:
    x = self.letter(letters) + self.place.weight[:letters.shape[1]]
    for block in self.blocks: x = block(x)
    return self.head(self.norm(x))


def main(argv: list[str] | None = None) -> float:
  """Run from the command line; gives the last loss."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--steps", type=int, default=200, help="training steps in all (default %(default)s)")
  parser.add_argument("--batch", type=int, default=16, help="pieces in a step, of all ranks together (default %(default)s)")
  parser.add_argument("--out", type=Path, default=Path("gpt-checkpoint"), help="folder of the checkpoint (default %(default)s)")
  args = parser.parse_args(argv)
  rank, ranks = dist.get_rank(), dist.get_world_size()
  text = "\n".join([page.read_text() for page in sorted(DOCS.glob("*.md"))])
  letters = np.frombuffer(text.encode("ascii", "ignore"), np.uint8).astype(np.int32)

  Tensor.manual_seed(0)
  model = GPT()
  optimizer, first, loss = ZeroRedundancyOptimizer(model.parameters(), nn.optim.AdamW, lr=0.002), 0, Tensor(0.0)
  if (args.out / "model.safetensors.index.json").exists():
    state = load_checkpoint(args.out)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first = state["step"]
  start = time.perf_counter()
  for i in range(first, args.steps):
    at = np.random.default_rng(i).integers(0, len(letters) - LENGTH - 1, args.batch)[rank::ranks]   # the same ones whatever ranks
    pieces = np.stack([letters[a:a + LENGTH + 1] for a in at])
    optimizer.zero_grad()
    loss = model(Tensor(pieces[:, :-1])).flatten(0, 1).cross_entropy(Tensor(pieces[:, 1:]).flatten())
    loss.backward()
    optimizer.step()
    if (i + 1) % 50 == 0 or i + 1 == args.steps:
      loss = dist.functional.all_reduce(loss.detach(), "avg")
      if rank == 0: print(f"step {i + 1}: {loss.item():.4f} nats a letter, {time.perf_counter() - start:.0f} s")
  save_checkpoint({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": args.steps}, args.out)
  return loss.item()


if __name__ == "__main__":
  dist.init_process_group()
  main()
