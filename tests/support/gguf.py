"""GGUF files written by hand, and numpy's values of quantised blocks, found as ggml's C code finds them: number by number."""
from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

KINDS = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14, "I8": 24,
         "I16": 25, "I32": 26, "I64": 27, "F64": 28, "BF16": 30}
BLOCKS = {"Q4_0": (32, 18), "Q4_1": (32, 20), "Q5_0": (32, 22), "Q5_1": (32, 24), "Q8_0": (32, 34), "Q4_K": (256, 144),
          "Q5_K": (256, 176), "Q6_K": (256, 210)}   # numbers in a block, bytes of one
# where a block has floats
HALVES = {"Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q4_K": (0, 2), "Q5_K": (0, 2),
          "Q6_K": (208,)}
_CODES = {"u8": 0, "i8": 1, "u16": 2, "i16": 3, "u32": 4, "i32": 5, "f32": 6, "bool": 7, "text": 8, "list": 9, "u64": 10,
          "i64": 11, "f64": 12}
_PACK = dict(zip(_CODES, "BbHhIif?  Qqd"))
Array = np.ndarray[Any, Any]


def text(x: str) -> bytes: return struct.pack("<Q", len(x.encode())) + x.encode()


def value(kind: str, x: Any, of: str = "") -> bytes:
  """A value without its type; ``of`` is the type of a list's values."""
  if kind == "text": return text(x)
  if kind == "list": return struct.pack("<IQ", _CODES[of], len(x)) + b"".join(value(of, v) for v in x)
  return struct.pack("<" + _PACK[kind], x)


def write(path: Path, metadata: Sequence[tuple[str, str, Any, str]], tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]],
          version: int = 3, alignment: int = 32) -> bytes:
  """A file of values (name, type, value, type in a list) and tensors (type, shape, bytes); its bytes."""
  out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
  for name, kind, x, of in metadata: out += text(name) + struct.pack("<I", _CODES[kind]) + value(kind, x, of)
  data = b""
  for name, (kind, shape, raw) in tensors.items():
    data += b"\0" * (-len(data) % alignment)
    out += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], KINDS[kind], len(data))
    data += raw
  out += b"\0" * (-len(out) % alignment) + data
  path.write_bytes(out)
  return out


def random_blocks(kind: str, n: int, rng: np.random.Generator) -> Array:
  """(n, bytes) of any bits, with floats that are small numbers."""
  out = rng.integers(0, 256, (n, BLOCKS[kind][1]), dtype=np.uint8)
  for at in HALVES[kind]: out[:, at:at + 2] = rng.standard_normal((n, 1)).astype(np.float16).view(np.uint8)
  return out


def values(kind: str, raw: Array, shape: tuple[int, ...]) -> Array:
  """The numbers of blocks (n, bytes), float32."""
  assert math.prod(shape) == len(raw) * BLOCKS[kind][0]
  return np.stack([_READ[kind](b) for b in raw]).astype(np.float32).reshape(shape)


def _half(b: Array, at: int) -> np.float32: return np.float32(b[at:at + 2].view(np.float16)[0])
def _low_high(qs: Array) -> Array: return np.concatenate([qs & 15, qs >> 4]).astype(np.int32)


def _fifth(b: Array, at: int) -> Array:
  bits = int(b[at:at + 4].view(np.uint32)[0])
  return np.array([(bits >> j & 1) << 4 for j in range(32)], np.int32)


def _six_bits(scales: Array, j: int) -> tuple[int, int]:
  """ggml's get_scale_min_k4."""
  q = [int(x) for x in scales]
  if j < 4: return q[j] & 63, q[j + 4] & 63
  return (q[j + 4] & 15) | (q[j - 4] >> 6) << 4, (q[j + 4] >> 4) | (q[j] >> 6) << 4


def _k(b: Array, qs: Array, high: Array | None) -> Array:
  out = np.zeros(256, np.float32)
  for s in range(8):
    scale, least = _six_bits(b[4:16], s)
    q = (qs[s // 2 * 32:s // 2 * 32 + 32] >> (4 * (s % 2)) & 15).astype(np.float32)
    if high is not None: q += 16 * (high >> s & 1)
    out[s * 32:s * 32 + 32] = _half(b, 0) * np.float32(scale) * q - _half(b, 2) * np.float32(least)
  return out


def _q6_k(b: Array) -> Array:
  out = np.zeros(256, np.float32)
  for h in range(2):
    ql, qh, scales = b[64 * h:64 * h + 64], b[128 + 32 * h:160 + 32 * h], b[192 + 8 * h:200 + 8 * h].view(np.int8)
    for l in range(32):
      for t, q in enumerate((ql[l] & 15, ql[l + 32] & 15, ql[l] >> 4, ql[l + 32] >> 4)):
        number = int(q) | (int(qh[l]) >> 2 * t & 3) << 4
        out[128 * h + 32 * t + l] = _half(b, 208) * np.float32(scales[l // 16 + 2 * t]) * np.float32(number - 32)
  return out


_READ: dict[str, Callable[[Array], Array]] = {
  "Q4_0": lambda b: _half(b, 0) * (_low_high(b[2:]) - 8).astype(np.float32),
  "Q4_1": lambda b: _half(b, 0) * _low_high(b[4:]).astype(np.float32) + _half(b, 2),
  "Q5_0": lambda b: _half(b, 0) * ((_low_high(b[6:]) | _fifth(b, 2)) - 16).astype(np.float32),
  "Q5_1": lambda b: _half(b, 0) * (_low_high(b[8:]) | _fifth(b, 4)).astype(np.float32) + _half(b, 2),
  "Q8_0": lambda b: _half(b, 0) * b[2:].view(np.int8).astype(np.float32),
  "Q4_K": lambda b: _k(b, b[16:], None), "Q5_K": lambda b: _k(b, b[48:], b[16:48]), "Q6_K": _q6_k}
