"""GGUF files: what they say, every type of tensor against numpy, quantised weights in products, damage."""
from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ntgrad
from ntgrad import Device, Tensor
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.errors import AssignError, MissingFileError, StateError
from ntgrad.nn.state import gguf_load, safe_load, safe_save
from ntgrad.schedule import create_schedule
from support import gguf
from support.marks import long

RNG = np.random.default_rng(0)
METADATA: list[tuple[str, str, Any, str]] = [
  ("general.name", "text", "Modell ä", ""), ("a.u8", "u8", 200, ""), ("a.i8", "i8", -3, ""), ("a.u16", "u16", 40000, ""),
  ("a.i16", "i16", -300, ""), ("a.u32", "u32", 2**32 - 1, ""), ("a.i32", "i32", -5, ""), ("a.f32", "f32", 0.5, ""),
  ("a.bool", "bool", True, ""), ("a.u64", "u64", 2**64 - 1, ""), ("a.i64", "i64", -2**63, ""), ("a.f64", "f64", 0.1, ""),
  ("tokens", "list", ["a", "Ġb", ""], "text"), ("scores", "list", [0.5, -1.0], "f32"), ("types", "list", [1, 3], "i32"),
  ("empty", "list", [], "text")]


def quantised(path: Path, kind: str, shape: tuple[int, int], **options: Any) -> np.ndarray[Any, Any]:
  """A file with the tensor w of a type; its values."""
  n, _ = gguf.BLOCKS[kind]
  raw = gguf.random_blocks(kind, shape[0] * shape[1] // n, RNG)
  gguf.write(path, [], {"w": (kind, shape, raw.tobytes())}, **options)
  return gguf.values(kind, raw, shape)


@pytest.mark.parametrize("version", (2, 3))
def test_values_and_plain_tensors(tmp_path: Path, version: int) -> None:
  x = (RNG.standard_normal((3, 5)) * 9).astype(np.float32)
  kinds = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "F64": np.float64, "I8": np.int8, "I16": np.int16,
           "I32": np.int32, "I64": np.int64}
  arrays = {kind: x.astype(d) for kind, d in kinds.items()} | {"scalar": np.float32(2.5), "none": np.zeros((0, 3), np.float32)}
  of = {k: (k if k in kinds else "F32", a.shape, a.tobytes()) for k, a in arrays.items()}
  gguf.write(tmp_path / "a", [*METADATA, ("general.alignment", "u32", 64, "")], of, version, 64)
  metadata, tensors = gguf_load(tmp_path / "a")
  assert metadata == {k: v for k, _, v, _ in METADATA} | {"general.alignment": 64}
  assert list(tensors) == list(arrays)
  for k, a in arrays.items():
    got = tensors[k].numpy()
    assert got.dtype == a.dtype and got.shape == a.shape and got.tobytes() == a.tobytes(), k


@pytest.mark.parametrize("kind", gguf.BLOCKS)
def test_quantised_values(tmp_path: Path, kind: str) -> None:
  shape = (3, 2 * gguf.BLOCKS[kind][0])
  want = quantised(tmp_path / "a", kind, shape)
  w = gguf_load(tmp_path / "a")[1]["w"]
  assert w.dtype is dtypes.float32 and w.shape == shape
  # products may be added without rounding them first
  np.testing.assert_allclose(w.numpy(), want, rtol=1e-5, atol=1e-5 * float(np.abs(want).max()))
  np.testing.assert_allclose(w[1:, ::3].numpy(), want[1:, ::3], rtol=1e-5, atol=1e-5 * float(np.abs(want).max()))


@pytest.mark.parametrize("kind", gguf.BLOCKS)
def test_a_product_reads_the_bytes(tmp_path: Path, kind: str) -> None:
  """One kernel; of blocks of 256 the scales, which are made of several bytes each, are found in one before."""
  want = quantised(tmp_path / "a", kind, (24, 512))
  w = gguf_load(tmp_path / "a")[1]["w"]
  x = Tensor(RNG.standard_normal((1, 512)).astype(np.float32))
  numbers, nbytes = gguf.BLOCKS[kind]
  for y in (x @ w.T, (w @ x.reshape(-1)).reshape(1, -1)):
    items = create_schedule([y])
    assert len(items) == (1 if numbers == 32 else 2)
    read = {n for item in items for n in item.nodes if n.dtype is dtypes.uint8}
    assert [n.arg.nbytes for n in read] == [24 * 512 // numbers * nbytes]
    assert max(math.prod(n.shape) for item in items for n in item.writes) <= 24 * 512 // 16
    np.testing.assert_allclose(y.numpy(), x.numpy() @ want.T, rtol=1e-3, atol=1e-4 * float(np.abs(want).max()) * 512)


def test_rows_are_looked_up_in_one_kernel(tmp_path: Path) -> None:
  want = quantised(tmp_path / "a", "Q8_0", (50, 64))
  w = gguf_load(tmp_path / "a")[1]["w"]
  index = Tensor([3, 49, 0]).realize()
  assert len(create_schedule([w[index]])) == 1
  np.testing.assert_allclose(w[index].numpy(), want[[3, 49, 0]], rtol=1e-6)


@long
def test_a_jit_keeps_the_bytes(tmp_path: Path) -> None:
  """A jit computes what comes from outside once, into memory; not so quantised weights."""
  want = quantised(tmp_path / "a", "Q4_1", (2048, 1024))
  w = gguf_load(tmp_path / "a")[1]["w"]
  step = ntgrad.jit(lambda x: (x @ w.T).realize())
  before = Device.memory().allocated
  for i in range(4):
    x = np.full((1, 1024), i + 1, np.float32)
    np.testing.assert_allclose(step(Tensor(x)).numpy(), x @ want.T, rtol=1e-3, atol=0.1)
  assert Device.memory().allocated - before < 2 * 2048 * 1024   # 1.3 MB of bytes; the values would be 8.4 MB


def test_quantised_weights_cannot_be_written(tmp_path: Path) -> None:
  want = quantised(tmp_path / "a", "Q4_0", (4, 32))
  w = gguf_load(tmp_path / "a")[1]["w"]
  for write in (lambda: w.assign(Tensor.zeros(4, 32)), lambda: w[0].assign(Tensor.zeros(32)), lambda: w.__setitem__(0, 1.0)):
    with pytest.raises(AssignError, match="unpacked from 72 bytes cannot be written"): write()
  own = w.clone()
  own[0] = 1.0
  assert own.numpy()[0].sum() == 32
  np.testing.assert_allclose(w.numpy(), want, rtol=1e-6)
  np.testing.assert_allclose(w.realize().numpy(), want, rtol=1e-6)


@long
def test_quantised_to_safetensors(tmp_path: Path) -> None:
  """What is not computed yet is computed for the file alone."""
  want = quantised(tmp_path / "a", "Q5_1", (1024, 1024))
  w = gguf_load(tmp_path / "a")[1]["w"]
  w[:1].numpy()
  before = Device.memory().allocated
  safe_save({f"w{i}": w + i for i in range(6)}, tmp_path / "b")
  assert Device.memory().allocated < before + 1024
  np.testing.assert_allclose(safe_load(tmp_path / "b")["w3"].numpy(), want + 3, rtol=1e-6, atol=1e-5)


def test_damage(tmp_path: Path) -> None:
  whole = gguf.write(tmp_path / "a", METADATA[:3], {"x": ("F32", (2, 3), bytes(24)), "y": ("Q4_0", (1, 32), bytes(18))})
  def changed(a: bytes, b: bytes) -> bytes:
    assert whole.count(a) == 1
    return whole.replace(a, b)
  place = struct.pack("<QIQ", 1, gguf.KINDS["Q4_0"], 32)
  twice = gguf.write(tmp_path / "a", [], {"x": ("F32", (8,), bytes(32)), "z": ("F32", (8,), bytes(32))})
  for data, said in (
    (b"", "its name takes 4 bytes at byte 0, it has 0 bytes"),
    (b"GGML" + whole[4:], "begins with b'GGML'"),
    (whole[:4] + struct.pack("<I", 1) + whole[8:], "version 1"),
    (whole[:4] + struct.pack(">I", 3) + whole[8:], "or big-endian"),
    (whole[:8] + struct.pack("<QQ", 2**60, 3) + whole[24:], "takes"),
    (whole[:8] + struct.pack("<QQ", 2, 2**60) + whole[24:], "takes|of type|UTF-8"),
    (changed(b"Modell \xc3\xa4", b"Modell \xff\xff"), "'general.name' is not UTF-8"),
    (changed(gguf.text("a.i8"), gguf.text("a.u8")), "the value 'a.u8' stands twice"),
    (changed(gguf.text("a.u8") + struct.pack("<I", 0), gguf.text("a.u8") + struct.pack("<I", 13)), "'a.u8' is of type 13"),
    (changed(gguf.text("y"), gguf.text("x")), "the tensor 'x' stands twice"),
    (changed(place, struct.pack("<QIQ", 1, 16, 32)), "'y' is of type IQ2_XXS; types: F32"),
    (changed(place, struct.pack("<QIQ", 1, 2, 40)), "no multiple of 32"),
    (changed(place, struct.pack("<QIQ", 1, 2, 2**62)), "the file may be truncated"),
    (changed(struct.pack("<IQQ", 2, 32, 1), struct.pack("<IQQ", 2, 31, 1)), "comes in blocks of 32"),
    (changed(struct.pack("<IQQ", 2, 32, 1), struct.pack("<IQQ", 2, 2**63, 2**63)), "has a shape of 2 dimensions"),
    (whole[:-1], "takes bytes 32 to 50 of its 49"),
    (twice.replace(struct.pack("<IQ", 0, 32), struct.pack("<IQ", 0, 0)), "inside of"),
  ):
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(StateError, match=said):
      gguf_load(tmp_path / "a")
  for alignment in (0, 3, 2**32 - 1):
    gguf.write(tmp_path / "a", [("general.alignment", "u32", alignment, "")], {})
    with pytest.raises(StateError, match="expected a power of two"): gguf_load(tmp_path / "a")
  with pytest.raises(MissingFileError): gguf_load(tmp_path / "none")


@long
def test_any_byte_changed_is_refused_or_read(tmp_path: Path) -> None:
  whole = gguf.write(tmp_path / "a", METADATA, {"x": ("F32", (2, 3), bytes(24)), "y": ("Q6_K", (1, 256), bytes(210))})
  for n in range(len(whole)):
    (tmp_path / "a").write_bytes(whole[:n])
    with pytest.raises(StateError, match="not a whole GGUF file"): gguf_load(tmp_path / "a", "NUMPY")
  for n in range(len(whole)):
    data = bytearray(whole)
    data[n] ^= 1 << RNG.integers(8)
    (tmp_path / "a").write_bytes(data)
    try: gguf_load(tmp_path / "a", "NUMPY")
    except StateError: pass
